"""Small programs of many kinds, of which ``rewriting.py`` makes other spellings.

Each is written as a user would write it first, with all that is known of its sizes in its annotations. ``VARIANTS`` has
them by name, with small arguments and which of these their gradients are by.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import adze as az
from adze.core import trees

from . import ba, kmeans
from .rewriting import like


@dataclass(frozen=True)
class Variant:
    """A program, the shapes of its arguments (or others than random arrays, as they are), and what to derive by.

    With the ``large`` ones a call takes long enough to be timed.
    """

    program: az.Program
    shapes: Sequence[Any]
    large: Sequence[Any]
    argnums: tuple[int, ...]

    def arguments(self, large: bool = False) -> list[Any]:
        """Random arguments, the same each time."""
        drawn, shapes = np.random.default_rng(7), self.large if large else self.shapes
        return [drawn.normal(size=shape) if isinstance(shape, tuple) else shape for shape in shapes]


def mixture() -> az.Program:
    """The objective of ``examples/gmm.py``."""
    path = Path(__file__).resolve().parents[2] / "examples" / "gmm.py"
    spec = importlib.util.spec_from_file_location("mixture", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.objective


@az.program
def network(
    x: az.Array[az.f64, "n d"],
    labels: az.Array[az.i64, "n"],
    first: az.Array[az.f64, "d h"],
    offset: az.Array[az.f64, "h"],
    second: az.Array[az.f64, "h c"],
) -> az.f64:
    """The mean loss of a network with one hidden layer, whose results are probabilities of labels."""
    scores = az.tanh(x @ first + offset) @ second
    losses = az.map(lambda row, label: az.logsumexp(row) - row[label], scores, labels)
    return az.mean(losses)


@az.program
def attention(
    queries: az.Array[az.f64, "n d"], keys: az.Array[az.f64, "m d"], values: az.Array[az.f64, "m e"]
) -> az.Array[az.f64, "n e"]:
    """For each query the mean of values, weighted by how much their keys are like it."""

    def row(query: az.Expr) -> Any:
        scores = az.map(lambda key: query @ key, keys) / az.sqrt(az.size(query) + 0.0)
        weights = az.exp(scores - az.max(scores))
        return weights @ values / az.sum(weights)

    return az.map(row, queries)


@az.program
def layer_norm(
    x: az.Array[az.f64, "n d"], scale: az.Array[az.f64, "d"], offset: az.Array[az.f64, "d"]
) -> az.Array[az.f64, "n d"]:
    """Rows with mean 0 and variance 1, scaled and shifted."""

    def normed(row: az.Expr) -> Any:
        centred = row - az.mean(row)
        return centred / az.sqrt(az.mean(centred * centred) + 1e-5) * scale + offset

    return az.map(normed, x)


@az.program
def diffusion(start: az.Array[az.f64, "n m"], steps: az.i64) -> az.Array[az.f64, "n m"]:
    """Steps of a five-point stencil; the border stays as it is."""

    def step(_: az.Expr, u: az.Expr) -> Any:
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return az.update(u, (slice(1, -1), slice(1, -1)), u[1:-1, 1:-1] + 0.2 * (around - 4.0 * u[1:-1, 1:-1]))

    return az.fori_loop(0, steps, step, start)


@az.program
def n_body(places: az.Array[az.f64, "n 3"], masses: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n 3"]:
    """What accelerates each of n bodies: the pull of all of them."""

    def pull(place: az.Expr, other: az.Expr, mass: az.Expr) -> Any:
        away = other - place
        square = away @ away + 0.01
        return mass / (square * az.sqrt(square)) * away

    def pulls(place: az.Expr) -> Any:
        return az.sum(az.map(lambda other, mass: pull(place, other, mass), places, masses), axis=0)

    return az.map(pulls, places)


@az.program
def distances(x: az.Array[az.f64, "n d"], y: az.Array[az.f64, "m d"]) -> az.Array[az.f64, "n m"]:
    """Of all pairs of points."""
    return az.map(lambda p: az.map(lambda q: az.sqrt(az.sum((p - q) ** 2) + 1e-9), y), x)


LABELS = np.array([2, 0, 1, 1, 2])
SEEN = np.array([[0, 1], [1, 3], [1, 0], [0, 2], [1, 1]])
MANY_LABELS = np.arange(200) % 10
SEEN_OFTEN = np.stack([np.arange(1000) % 10, np.arange(1000) % 99], axis=1)

VARIANTS: Mapping[str, Variant] = {
    "gmm": Variant(
        mixture(),
        [(4,), (4, 3), (4, 3), (4, 3), (5, 3), 1.0, 2],
        [(20,), (20, 8), (20, 8), (20, 28), (500, 8), 1.0, 2],
        (0, 1, 2, 3),
    ),
    "kmeans": Variant(kmeans.cost, [(5, 3), (4, 3)], [(2000, 8), (20, 8)], (1,)),
    "network": Variant(
        network,
        [(5, 4), LABELS, (4, 6), (6,), (6, 3)],
        [(200, 50), MANY_LABELS, (50, 64), (64,), (64, 10)],
        (2, 3, 4),
    ),
    "attention": Variant(attention, [(5, 3), (4, 3), (4, 2)], [(100, 32), (100, 32), (100, 32)], (0, 1, 2)),
    "layer norm": Variant(layer_norm, [(5, 4), (4,), (4,)], [(500, 64), (64,), (64,)], (0, 1, 2)),
    "diffusion": Variant(diffusion, [(6, 5), 3], [(100, 100), 20], (0,)),
    "n-body": Variant(n_body, [(5, 3), (5,)], [(150, 3), (150,)], (0, 1)),
    "distances": Variant(distances, [(5, 3), (4, 3)], [(150, 16), (150, 16)], (0, 1)),
    "ba": Variant(
        ba.errors,
        [(2, 11), (4, 3), (5,), SEEN, (5, 2)],
        [(10, 11), (99, 3), (1000,), SEEN_OFTEN, (1000, 2)],
        (0, 1, 2),
    ),
}


def gradient(program: az.Program, argnums: Sequence[int]) -> az.Program:
    """The gradient of what a program returns; of the sum of its squares, if that is more than a number."""

    def total(*arguments: Any) -> Any:
        results = trees.flatten(program(*arguments))[0]
        if len(results) == 1 and results[0].ndim == 0:
            return results[0]
        return sum([az.sum(result * result) for result in results])

    return az.grad(like(program, total), argnums=tuple(argnums))
