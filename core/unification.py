"""Unification of sizes: what a program requires of the sizes of its arguments is known before it runs.

Arguments without annotations have a fresh name for each size, and a program that multiplies two of them requires that
two names are equal. Such a requirement holds in every run that goes on, so it may as well be part of the types: the
equations are solved (Robinson's unification, over polynomials), one name stands for both sizes, and the program is
built with these types, as if they had been written. A call checks the equations, with what the requirements say::

    lambda x, w: x @ w     of  x: f64[x_0, x_1], w: f64[w_0, w_1]     require x_1 == w_0
                           is  x: f64[x_0, x_1], w: f64[x_1, w_1]

Only what is required always counts, not what is required in a loop or a branch, and only sizes that the arguments
decide: what the run computes is compared in the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .dims import Dim, DimAtom, Name
from .terms import Atom, Block, Failure, Literal, Operation, Size, Variable
from .types import Type, all_dims, i64, map_dims

# Constructs whose blocks run exactly once where the construct does; of a custom function the first block does.
_ONCE = {"custom": 1, "par": None, "accumulate": None}


@dataclass(frozen=True)
class Equality:
    """A requirement that two sizes are equal: what it compares, and what it says where they differ."""

    left: Dim
    right: Dim
    failure: Failure
    values: tuple[Dim, ...]

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raise what the requirement raises, where it does not hold for these sizes."""
        if self.left.evaluate(sizes) != self.right.evaluate(sizes):
            raise self.failure.error([value.evaluate(sizes) for value in self.values])

    def map(self, size: Callable[[Dim], Dim]) -> Equality:
        """The same of other sizes."""
        return replace(self, left=size(self.left), right=size(self.right), values=tuple(map(size, self.values)))


def equalities(block: Block) -> list[Equality]:
    """The equalities of sizes of arguments that a program requires in every run, in order."""
    found: list[Equality] = []
    values: list[Operation | None] = [None] * len(block.binders)  # what each value in scope is the result of
    for operation in block.bindings:
        if operation.op == "require":
            found += _equality(operation, values)
        elif operation.op in _ONCE:
            for inner in operation.blocks[: _ONCE[operation.op]]:
                found += equalities(inner)
        values += [operation] * len(operation.types)
    return found


def _equality(operation: Operation, values: Sequence[Operation | None]) -> list[Equality]:
    test, *said = operation.args
    made = values[-1 - test.index] if isinstance(test, Variable) and test.index < len(values) else None
    if made is None or made.op != "primitive" or made.static[0].name != "equal":
        return []
    dims = [_dim(atom) for atom in (*made.args, *said)]
    known = tuple([dim for dim in dims if dim is not None])
    return [Equality(known[0], known[1], operation.static[0], known[2:])] if len(known) == len(dims) else []


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

    def dim(self, dim: Dim) -> Dim:
        """A size in terms of the names that are left."""
        return dim.substitute(lambda atom: self.meaning.get(atom.name) if isinstance(atom, Name) else None)

    def type(self, type: Type) -> Type:
        """A type in terms of the names that are left."""
        return map_dims(type, self.dim)

    def _solution(self, difference: Dim) -> tuple[str, Dim] | None:
        """A name and what it is where a difference is zero: never below zero if that can be had, and the last name."""
        divisor = math.gcd(*[c for _, c in difference.terms])
        found: list[tuple[bool, int, str, Dim]] = []
        for monomial, c in difference.terms:
            match monomial:
                case (Name(name),) if abs(c) == divisor and name in self._order:
                    rest = Dim({m: -k // c for m, k in difference.terms if m != monomial})
                    if name not in rest.names() and (rest.constant is None or rest.constant >= 0):
                        found.append((rest.is_nonnegative(), self._order[name], name, rest))
        if not found:
            return None
        _, _, name, rest = max(found, key=lambda each: each[:2])
        return name, rest
