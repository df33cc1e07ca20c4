"""Unification of sizes: what a program requires of the sizes of its arguments is known before it runs.

Arguments without annotations have a fresh name for each size, and a program that multiplies two of them requires that
two names are equal. Such a requirement holds in every run that goes on, so it may as well be part of the types: the
equations are solved (Robinson's unification, over polynomials), one name stands for both sizes, and the program is
built with these types, as if they had been written. A call checks the equations, with what the requirements say::

    lambda x, w: x @ w     of  x: f64[x_0, x_1], w: f64[w_0, w_1]     require x_1 == w_0
                           is  x: f64[x_0, x_1], w: f64[x_1, w_1]

Only what is required always counts, not what is required in a loop or a branch, and only sizes that the arguments
decide: what the run computes is compared in the run. What is required in loops and branches may be *assumed* by code
for those calls whose sizes are equal there (:func:`probable`); other calls take other code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from .dims import Dim, DimAtom, Name
from .terms import Atom, Block, Failure, Literal, Operation, Size, Variable
from .types import Type, all_dims, i64, map_dims


@dataclass(frozen=True)
class Equality:
    """A requirement that two sizes are equal: what it compares, and what it says where they differ."""

    left: Dim
    right: Dim
    failure: Failure
    values: tuple[Dim, ...]

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds for these sizes."""
        return self.left.evaluate(sizes) == self.right.evaluate(sizes)

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raise what the requirement raises, where it does not hold for these sizes."""
        if not self.holds(sizes):
            raise self.failure.error([value.evaluate(sizes) for value in self.values])

    def map(self, size: Callable[[Dim], Dim]) -> Equality:
        """The same of other sizes."""
        return replace(self, left=size(self.left), right=size(self.right), values=tuple(map(size, self.values)))


def equalities(block: Block) -> list[Equality]:
    """The equalities of sizes of arguments that a program requires in every run, in order."""
    found: list[Equality] = []
    scope: Scope = []
    for operation in _statements(block, True, scope):
        sides = _compared("equal", operation.args[0], scope)
        values = [_dim(atom) for atom in operation.args[1:]]
        if sides is not None and None not in values:
            found.append(Equality(*sides, operation.static[0], tuple([value for value in values if value is not None])))
    return found


def defining(block: Block) -> list[Equality]:
    """The equalities that a program requires anywhere: the first one of an open name says what it is."""
    found: list[Equality] = []
    scope: Scope = []
    for operation in _statements(block, False, scope):
        sides = _compared("equal", operation.args[0], scope)
        if sides is not None:
            found.append(Equality(*sides, operation.static[0], ()))
    return found


def named(block: Block) -> set[str]:
    """The names of the sizes that a program computes with."""
    found, todo = set[str](), [block]
    while todo:
        inner = todo.pop()
        atoms = [*inner.results]
        for operation in inner.bindings:
            atoms += operation.args
            todo += operation.blocks
        found.update([name for atom in atoms if isinstance(atom, Size) for name in atom.dim.names()])
    return found


def probable(block: Block) -> list[Equality]:
    """The equalities that a program requires anywhere, and those that are likely where what it requires holds.

    A factor that two equal products share is left out; and a loop whose variable is an index goes over all of the axis.
    """
    found: list[Equality] = []
    scope: Scope = []
    for operation in _statements(block, False, scope):
        sides = _compared("equal", operation.args[0], scope) or _compared("less", operation.args[0], scope)
        if sides is not None:
            found.append(Equality(*_without_factor(sides[0] - sides[1]), operation.static[0], ()))
    return found


# What each value in scope is: the result of an operation, a loop variable of this extent, or another binder
Scope = list[Operation | Dim | None]


def _statements(block: Block, always: bool, scope: Scope, extents: Sequence[Dim] = ()) -> Iterator[Operation]:
    """Requirements, with what is in scope in ``scope``: those of every run, or those of loops and branches, too."""
    outside = len(scope)
    scope += [*extents, *[None] * (len(block.binders) - len(extents))]
    for operation in block.bindings:
        if operation.op == "require":
            yield operation
        for k, inner in enumerate(operation.blocks):
            if always and not operation.row.role(k).always:
                continue
            yield from _statements(inner, always, scope, operation.static if operation.op == "generate" else ())
        scope += [operation] * len(operation.types)
    del scope[outside:]


def _compared(comparison: str, test: Atom, scope: Scope, count: int | None = None) -> tuple[Dim, Dim] | None:
    """The sizes that a test compares, where a loop variable stands for its extent; None if it is another test.

    The first ``count`` values of the scope are there, or all of them.
    """
    level = _level(test, len(scope) if count is None else count)
    made = None if level is None else scope[level]
    if level is None or not isinstance(made, Operation) or made.op != "primitive":
        return None
    if made.static[0].name == "logical_and":  # 0 <= index and index < size
        return _compared(comparison, made.args[1], scope, level)
    if made.static[0].name != comparison:
        return None
    left, right = [_dim(atom) for atom in made.args]
    if comparison == "less":
        index = _level(made.args[0], level)
        extent = None if index is None else scope[index]
        left = extent if isinstance(extent, Dim) and extent.is_static() else None
    return None if left is None or right is None else (left, right)


def _level(atom: Atom, count: int) -> int | None:
    """Which of so many values in scope a variable is, from the outside."""
    return count - 1 - atom.index if isinstance(atom, Variable) else None


def _without_factor(difference: Dim) -> tuple[Dim, Dim]:
    """The two sides of an equation, without the factors that all of its terms have."""
    if not difference.terms:
        return difference, difference
    shared, *others = [Counter(monomial) for monomial, _ in difference.terms]
    for other in others:
        shared &= other
    divided = {tuple((Counter(monomial) - shared).elements()): c for monomial, c in difference.terms}
    sides = Dim({m: c for m, c in divided.items() if c > 0}), Dim({m: -c for m, c in divided.items() if c < 0})
    return sides


def _dim(atom: Atom) -> Dim | None:
    """The size that an atom is, if the arguments decide it."""
    if isinstance(atom, Size):
        return atom.dim if atom.dim.is_static() else None
    return Dim.of(int(atom.value)) if isinstance(atom, Literal) and atom.type == i64 else None


class Unifier:
    """The most general solution of equations between the size names of some types."""

    def __init__(self, types: Sequence[Type]) -> None:
        self._order: dict[str, int] = {}  # names by first occurrence
        for type in types:
            for dim in all_dims(type):
                for monomial, _ in dim.terms:
                    for name in sorted(Dim({monomial: 1}).names()):
                        self._order.setdefault(name, len(self._order))
        self.meaning: dict[str, Dim] = {}

    def add(self, equality: Equality) -> bool:
        """Solve an equation for a name; False where it has no name to be solved for, or holds already.

        >>> from adze.core.annotations import Array
        >>> from adze.core.terms import NOWHERE
        >>> from adze.core.types import f64
        >>> unifier = Unifier([Array[f64, "n"], Array[f64, "m"]])
        >>> unifier.add(Equality(Dim.parse("2*n"), Dim.parse("2*m"), Failure("size", "", NOWHERE), ()))
        True
        >>> print(unifier.type(Array[f64, "m"]))
        f64[n]
        """
        solution = self._solution(self.dim(equality.left) - self.dim(equality.right))
        if solution is None:
            return False
        name, replacement = solution

        def new(atom: DimAtom) -> Dim | None:
            return replacement if atom == Name(name) else None

        self.meaning = {known: dim.substitute(new) for known, dim in self.meaning.items()}
        self.meaning[name] = replacement
        return True

    @property
    def names(self) -> Set[str]:
        """The names of the types."""
        return self._order.keys()

    def is_open(self, equality: Equality) -> bool:
        """Whether an equation has names that are none of the types', and no meaning yet."""
        left, right = self.dim(equality.left), self.dim(equality.right)
        return not left.names() | right.names() <= self.names

    def checks(self, equations: Iterable[Equality]) -> list[Equality]:
        """What is left to be checked of equations, in the names of the types: an open name is what they say it is."""

        def known(atom: DimAtom) -> Dim | None:
            return self.meaning.get(atom.name) if isinstance(atom, Name) and atom.name not in self.names else None

        closed = [equation.map(lambda dim: dim.substitute(known)) for equation in equations]
        return [equation for equation in closed if equation.left != equation.right]

    def dim(self, dim: Dim) -> Dim:
        """A size in terms of the names that are left."""
        return dim.substitute(lambda atom: self.meaning.get(atom.name) if isinstance(atom, Name) else None)

    def type(self, type: Type) -> Type:
        """A type in terms of the names that are left."""
        return map_dims(type, self.dim)

    def _solution(self, difference: Dim) -> tuple[str, Dim] | None:
        """A name and what it is where a difference is zero: never below zero if that can be had, and the last name.

        Where there are names that are none of the types', it is one of these.
        """
        divisor = math.gcd(*[c for _, c in difference.terms])
        candidates = difference.names() - self.names or difference.names()
        found: list[tuple[bool, int, str, Dim]] = []
        for monomial, c in difference.terms:
            match monomial:
                case (Name(name),) if abs(c) == divisor and name in candidates:
                    rest = Dim({m: -k // c for m, k in difference.terms if m != monomial})
                    if name not in rest.names() and (rest.constant is None or rest.constant >= 0):
                        found.append((rest.is_nonnegative(), self._order.get(name, 0), name, rest))
        if not found:
            return None
        _, _, name, rest = max(found, key=lambda each: each[:2])
        return name, rest
