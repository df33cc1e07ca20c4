"""Whether an operator combines in any order: what it gives is found for both orders of its operands, case by case.

A reduction whose operator is associative and commutative may take its elements in any order, so that each lane of a
vector has one of neighbouring elements. A single primitive says by itself whether it commutes. Other operators are
tried: wherever two components are compared, there are three outcomes, or more with NaN, and in each of them the tests
of an operator are known, and with them what it chooses.

    (v, i), (w, j) -> (v, i) if v > w or (v == w and i < j) else (w, j)

    v < w, i < j: the right one; with the operands swapped, the left one, which is the same      it commutes
    v = w, i < j: the left one; with the operands swapped, the right one, which is the same           ...

What it computes is compared as it is written, but that the operands of commutative primitives have no order. Numbers
that are equal are the same number, but floating ones may be zeros of different signs. An index that tells an element
from all others is never equal to that of another element, if the operator gives back one of its operands as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from math import nan, prod

import numpy as np

from ...core import terms
from ...core.environment import Env
from ...core.primitive import Primitive
from ...core.types import Type
from ..target import COMMUTATIVITY_CASES

_COMPARISONS = frozenset({"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"})
_LOGIC = frozenset({"logical_and", "logical_or", "logical_not", "logical_xor"})

Number = float | int | bool


@dataclass(frozen=True)
class _Component:
    """A component of an operand: ``side`` is 0 for the first operand and 1 for the second."""

    side: int
    number: int
    value: Number  # a number like it, for comparisons with its like


@dataclass(frozen=True)
class _Computed:
    """What is computed from components and numbers: equal computations have equal numbers."""

    number: int


Known = bool | _Component | _Computed  # a bool: the outcome of a test


class _Undecided(Exception):
    """A case does not tell what an operator does."""


def commutes(operator: terms.Block, indices: frozenset[int] = frozenset()) -> bool:
    """Whether an operator gives the same, to the bit, with its operands swapped.

    ``indices`` are the components that are different in any two elements.
    """
    types = operator.binders[: len(operator.binders) // 2]
    kinds = [getattr(type, "kind", "") for type in types]
    cases = [_pairs(kind, number in indices) for number, kind in enumerate(kinds)]
    if not all(kinds) or prod(map(len, cases)) > COMMUTATIVITY_CASES:
        return False
    try:
        return all(_Case(operator, pairs).same(types, bool(indices)) for pairs in product(*cases))
    except _Undecided:
        return False


def _pairs(kind: str, different: bool) -> list[tuple[Number, Number]]:
    """Numbers that stand for the outcomes of a comparison."""
    if kind == "bool":
        return [(False, False), (False, True), (True, False), (True, True)]
    ordered: list[tuple[Number, Number]] = [(0, 1), (1, 0)] if different else [(0, 1), (0, 0), (1, 0)]
    return [*ordered, (nan, 0), (0, nan), (nan, nan)] if kind == "float" else ordered


@dataclass
class _Case:
    """An operator on two operands that compare in one way; their components are like these numbers."""

    operator: terms.Block
    pairs: Sequence[tuple[Number, Number]]
    numbers: dict[object, int] = field(default_factory=dict)  # of what is computed

    def same(self, types: Sequence[Type], whole: bool) -> bool:
        """Whether both orders give the same; ``whole``: and give back one of the operands."""
        first, second = ([_Component(side, k, pair[side]) for k, pair in enumerate(self.pairs)] for side in (0, 1))
        there = self.results(self.operator, Env[Known]().enter([*first, *second]))
        back = self.results(self.operator, Env[Known]().enter([*second, *first]))
        if whole and (there not in (first, second) or back not in (first, second)):
            return False
        return all(_equal(a, b, type) for a, b, type in zip(there, back, types, strict=True))

    def results(self, block: terms.Block, env: Env[Known]) -> list[Known]:
        for binding in block.bindings:
            arguments = [self.atom(atom, env) for atom in binding.args]
            if binding.op == "primitive":
                env = env.extend([self.applied(binding.static[0], arguments)])
            elif binding.op == "cond" and not isinstance(arguments[0], _Computed):
                holds = arguments[0].value if isinstance(arguments[0], _Component) else arguments[0]
                env = env.extend(self.results(binding.blocks[0 if holds else 1], env.enter([])))
            else:
                raise _Undecided
        return [self.atom(atom, env) for atom in block.results]

    def atom(self, atom: terms.Atom, env: Env[Known]) -> Known:
        match atom:
            case terms.Variable(index):
                return env.get(index) if index < len(env) else self.computed(("outside", index - len(env)))
            case terms.Literal(bits, type):
                return bool(bits) if type.kind == "bool" else self.computed(atom)
        return self.computed(atom)

    def applied(self, row: Primitive, arguments: Sequence[Known]) -> Known:
        """What a primitive gives: the outcome of a test where that is known."""
        numbers = [each.value if isinstance(each, _Component) else each for each in arguments]
        if row.name in _LOGIC and all(isinstance(number, bool) for number in numbers):
            return bool(row.numpy(*[np.bool_(number) for number in numbers]))
        like = {each.number if isinstance(each, _Component) else -1 for each in arguments}
        if row.name in _COMPARISONS and len(like) == 1 and -1 not in like:
            return bool(row.numpy(*numbers))
        told = [(each.side, each.number) if isinstance(each, _Component) else each for each in arguments]
        symmetric = row.commutative or row.name in ("minimum", "maximum")
        return self.computed((row.name, *(sorted(told, key=repr) if symmetric else told)))

    def computed(self, what: object) -> _Computed:
        return _Computed(self.numbers.setdefault(what, len(self.numbers)))


def _equal(a: Known, b: Known, type: Type) -> bool:
    """Whether two results are the same bits."""
    if isinstance(a, _Component) and isinstance(b, _Component):
        exact = getattr(type, "kind", "") != "float"
        return a.number == b.number and (a.side == b.side or (exact and a.value == b.value))
    return a == b
