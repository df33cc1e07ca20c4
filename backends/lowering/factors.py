"""Products among nests: a body that is one sum, over inner loops, of a product of two factors.

One factor varies with the innermost loop and a *row* loop of the nest, the other with it and a *column* loop;
what both vary with, or neither, are further loops (a batch). Factors need not be plain reads: each is a scalar with
the bindings that it is computed from. ::

    Y[k, r, i] = sum(j: Q[k, r, j] * (x[i, j] - mu[k, j]))     batch k, row r: Q[k, r, j], column i: x[i, j] - mu[k, j]

What is made of a product is in ``products.py`` (groups of threads) and ``contractions.py`` (lanes of vectors).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.types import Scalar
from ..loops import (
    Apply,
    Assign,
    Constant,
    Declare,
    Expression,
    For,
    If,
    Let,
    Load,
    MultiplyAdd,
    Require,
    Store,
    Variable,
    walk,
)
from ..loops_walk import inside
from .nests import Loop, Nest, contiguous, depends
from .survey import Access, Survey


@dataclass(frozen=True)
class Operand:
    """One of the two that are multiplied, with what it is computed from, and the loop of the nest that it is along."""

    value: Expression
    lets: tuple[Let, ...]
    along: Loop
    inner_first: bool  # it is contiguous along the inner loop


@dataclass(frozen=True)
class Product:
    """What a nest does: a sum, the inner loop that adds to it, and the two that are multiplied."""

    sum: Declare
    outer: tuple[For, ...]  # loops around the inner one that add to the sum as well, outermost first
    loop: For
    fused: bool  # multiplied and added at once
    row: Operand
    column: Operand

    @property
    def type(self) -> Scalar:
        return self.sum.initial.type


def product_of(nest: Nest, found: Survey, loops: Sequence[Loop]) -> Product | None:
    """A nest's body as a product, if it is one."""
    outside = [s for s in nest.body if not isinstance(s, For)]
    chain = _chain(nest)
    if not chain or len(chain) != len(found.inner):
        return None
    *outer, loop = chain
    reduction = nest.reductions[loop.variable]
    sums = [s for s in outside if isinstance(s, Declare) and s.name == reduction.name]
    known = reduction.primitive.name == "add" and not any(depends(each.extent, found.bound) for each in chain)
    scalars = all(isinstance(s, Let | Declare | Assign | Store | If | Require) for s in walk(tuple(outside)))
    if not known or len(sums) != 1 or not scalars:
        return None
    initial, type = sums[0].initial, sums[0].initial.type
    *_, last = loop.body
    lets = [s for each in chain for s in each.body[:-1]]
    if not isinstance(initial, Constant) or str(initial.value) not in ("0", "0.0"):
        return None
    if not isinstance(last, Assign) or not all(isinstance(s, Let) for s in lets):
        return None
    before = [s for s in (*nest.body, *lets) if isinstance(s, Let)]
    factors = factors_of(last, before)
    if factors is None or any(factor.type != type for factor in factors):
        return None
    parts = [parts_of(factor, before) for factor in factors]
    varying = found.bound - {let.name for let in before} | {s.name for s in walk(nest.body) if isinstance(s, Declare)}
    own = {each.variable.name for each in nest.loops} | {each.variable for each in chain}
    if any(not free & varying <= own or loop.variable not in free for _, free in parts):
        return None
    (a, b), (_, free_a), (_, free_b) = factors, *parts
    first, second = _widest(loops, free_a - free_b), _widest(loops, free_b - free_a)
    if first is None or second is None:
        return None
    operands = [
        Operand(value, part, along, _inner_first(found, value, part, loop.variable, along))
        for value, (part, _), along in zip((a, b), parts, (first, second), strict=True)
    ]
    operands.sort(key=lambda operand: loops.index(operand.along))
    return Product(sums[0], tuple(outer), loop, isinstance(last.value, MultiplyAdd), *operands)


def _chain(nest: Nest) -> list[For]:
    """The loops inside a nest, each of them the last statement of the one before, that make one sum together."""
    found = [s for s in nest.body if isinstance(s, For)]
    if len(found) != 1:
        return []
    while isinstance(last := found[-1].body[-1], For):
        found.append(last)
    names = {getattr(nest.reductions.get(loop.variable), "name", "") for loop in found}
    return found if len(names) == 1 and "" not in names else []


def factors_of(last: Assign, lets: Sequence[Let]) -> tuple[Expression, Expression] | None:
    """The two scalars whose product is added to a sum."""
    match last.value:
        case MultiplyAdd(a, b, Variable(name)) if name == last.name:
            return a, b
        case Apply(add, (Variable(name), value)) if add.name == "add" and name == last.name:
            defined = {let.name: let.value for let in lets}
            value = defined.get(getattr(value, "name", ""), value)
            if isinstance(value, Apply) and value.primitive.name == "multiply":
                return value.arguments[0], value.arguments[1]
    return None


def parts_of(value: Expression, lets: Sequence[Let]) -> tuple[tuple[Let, ...], set[str]]:
    """The bindings that a scalar is computed from, and the other variables that these and it mention."""
    free = _variables(value)
    needed: list[Let] = []
    for let in reversed(lets):
        if let.name in free:
            needed.append(let)
            free = free - {let.name} | _variables(let.value)
    return tuple(reversed(needed)), free


def free(operand: Operand) -> set[str]:
    """The variables that an operand mentions."""
    return parts_of(operand.value, operand.lets)[1]


def _variables(expression: Expression) -> set[str]:
    return {part.name for part in inside(expression) if isinstance(part, Variable)}


def _widest(loops: Sequence[Loop], names: set[str]) -> Loop | None:
    """Of the loops with these variables, the one that is known to be longest, or else the last."""
    found = [loop for loop in loops if loop.variable.name in names]

    def length(loop: Loop) -> float:
        return loop.extent.value if isinstance(loop.extent, Constant) else float("inf")

    return max(reversed(found), key=length, default=None)


def _inner_first(found: Survey, value: Expression, lets: Sequence[Let], inner: str, along: Loop) -> bool:
    """Whether an operand reads its arrays contiguously along the inner loop, and not along the loop of the nest."""
    reads = [
        part for whole in (value, *[let.value for let in lets]) for part in inside(whole) if isinstance(part, Load)
    ]

    def across(variable: str) -> int:
        matching = [a for a in found.loads if a.mentions(variable) and any(_reads(a, load) for load in reads)]
        return sum(not contiguous(access, variable, len(access.indices) - 1) for access in matching)

    return across(inner) < across(along.variable.name)


def _reads(access: Access, load: Load) -> bool:
    return access.buffer == load.buffer and access.indices == load.indices
