"""The lengths of an evolutionary tree, fitted to an alignment: data, recursion, forks, and a gradient that is a tree.

A tree of species is a recursive type. The likelihood of an alignment goes up the tree (Felsenstein, 1981): for each
site, how likely the letters below a node are for each letter at the node. The gradient by a tree is a tree, and a step
of the fit is a program that walks over both. All of them are compiled.

    python examples/phylogeny.py
"""

from typing import Any

import numpy as np

import adze as az

SITES, LETTERS = 2000, 4
Table = az.Array[az.f64, SITES, LETTERS]
Alignment = az.Array[az.i64, "species", SITES]


@az.data
class Tree:
    """A species is a row of the alignment; from a split, branches of some lengths lead to its sides."""

    class Species:
        row: az.i64

    class Split:
        left: "Tree"
        to_left: az.f64
        right: "Tree"
        to_right: az.f64


def along(length: Any, below: Any) -> Any:
    """A branch by the model of Jukes and Cantor, in which every letter becomes each other one as often."""
    decay = az.exp(-4 / 3 * length)
    letters = az.arange(LETTERS)
    return below @ az.where(letters[:, None] == letters, 0.25 + 0.75 * decay, 0.25 - 0.25 * decay)


@az.program
def likelihood(tree: Tree, letters: Alignment) -> az.f64:
    """The logarithm of the likelihood of an alignment, a site."""

    @az.fix
    def below(self: Any, tree: Tree) -> Table:
        def split(left: Any, to_left: Any, right: Any, to_right: Any) -> Any:
            one, other = az.par(lambda: self(left), lambda: self(right))
            return along(to_left, one) * along(to_right, other)

        seen = lambda row: az.where(letters[row][:, None] == az.arange(LETTERS), 1.0, 0.0)  # noqa: E731
        return az.case(tree, Species=seen, Split=split)

    return az.mean(az.log(az.sum(0.25 * below(tree), 1)))


@az.program
def stepped(tree: Tree, slope: Tree, rate: az.f64) -> Tree:
    """The tree with each length moved along the gradient by its logarithm, so that none becomes negative."""

    @az.fix
    def go(self: Any, tree: Tree, slope: Tree) -> Tree:
        def split(left: Any, a: Any, right: Any, b: Any) -> Any:
            def moved(down: Any, da: Any, other: Any, db: Any) -> Any:
                to_left, to_right = a * az.exp(rate * a * da), b * az.exp(rate * b * db)
                return Tree.Split(self(left, down), to_left, self(right, other), to_right)

            return az.case(slope, Species=lambda row: tree, Split=moved)

        return az.case(tree, Species=lambda row: tree, Split=split)

    return go(tree, slope)


def grown(lengths: np.ndarray, species: int, first: int = 0) -> Any:
    """A balanced tree of species from a row on, with lengths from the front of an array."""
    if species == 1:
        return Tree.Species(first)
    half = species // 2
    left, right = grown(lengths[2:], half, first), grown(lengths[2 * half :], species - half, first + half)
    return Tree.Split(left, float(lengths[0]), right, float(lengths[1]))


def evolved(tree: Any, random: np.random.Generator) -> np.ndarray:
    """An alignment of the species of a tree."""

    def down(tree: Any, above: np.ndarray) -> list[np.ndarray]:
        if isinstance(tree, Tree.Species):
            return [above]
        rows = []
        for side, length in ((tree.left, tree.to_left), (tree.right, tree.to_right)):
            changes = random.random(SITES) < 0.75 - 0.75 * np.exp(-4 / 3 * length)
            rows += down(side, np.where(changes, (above + random.integers(1, LETTERS, SITES)) % LETTERS, above))
        return rows

    return np.array(down(tree, random.integers(0, LETTERS, SITES)))


def lengths_of(tree: Any) -> list[float]:
    if isinstance(tree, Tree.Species):
        return []
    return [tree.to_left, tree.to_right, *lengths_of(tree.left), *lengths_of(tree.right)]


def main() -> None:
    random = np.random.default_rng(2026)
    species = 16
    true = grown(0.05 + 0.2 * random.random(2 * species), species)
    letters = evolved(true, random)

    derived, step = az.compile(az.value_and_grad(likelihood)), az.compile(stepped)
    tree = grown(np.full(2 * species, 0.5), species)
    for number in range(201):
        value, slope = derived(tree, letters)
        if number in (0, 10, 50, 200):
            print(f"after {number:3} steps: {value:.4f}")
        tree = step(tree, slope, 2.0)
    print(f"of the tree that made the data: {az.compile(likelihood)(true, letters):.4f}")
    off = np.abs(np.array(lengths_of(tree)[2:]) - lengths_of(true)[2:])  # of the root's two only the sum is known
    print(f"lengths are off by {off.mean():.3f} in the mean, {off.max():.3f} at most")


if __name__ == "__main__":
    main()
