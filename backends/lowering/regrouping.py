"""Sums of sums of products, with what does not vary with one of the sums taken out of it.

A nest whose body is a sum over two loops of a product of two factors, one of which does not vary with the first of
them, nor the other with all loops of the nest, is two nests, and one level of loops is saved: the first sum is made
of the other factor alone, and stored. ::

    c[k, j] = sum(i, r: g[i, k, r] * Q[k, r, j])   =>   s[k, r] = sum(i: g[i, k, r])
                                                        c[k, j] = sum(r: s[k, r] * Q[k, r, j])

Reverse mode makes such sums for whatever is shared by points: a mean, a bias. The order of the two loops does not
matter. Where the first sum is empty, so is the second: 0 would not be right for a factor that is infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.types import i64
from ..loops import (
    Apply,
    Assign,
    Block,
    Buffer,
    Constant,
    Declare,
    Expression,
    For,
    Let,
    Load,
    MultiplyAdd,
    Reduction,
    Select,
    Store,
    Variable,
    walk,
)
from .arithmetic import folded
from .context import ZERO, Context, zero
from .factors import factors_of, parts_of
from .nests import Loop, depends
from .survey import survey


@dataclass(frozen=True)
class Regrouped:
    """The two nests that a nest becomes: the loops and the body of the first, what it stores, and the second's body."""

    loops: list[Loop]
    first: Block
    stored: Buffer
    second: Block


@dataclass(frozen=True)
class _Sum:
    """A sum over two loops: the outer and the inner one, what is bound before the product, and what is multiplied."""

    start: Declare
    outer: For
    inner: For
    last: Assign
    before: list[Let]
    factors: tuple[Expression, Expression]


def regrouped(context: Context, loops: Sequence[Loop], body: Block) -> Regrouped | None:
    """A nest as two, where that saves a level of loops."""
    found = _sum(context, body)
    if found is None:
        return None
    looked = survey(body)
    bound = looked.bound | {loop.variable.name for loop in loops}
    if not looked.simple or depends(found.outer.extent, bound) or depends(found.inner.extent, bound):
        return None
    mutable = {s.name for s in walk(body) if isinstance(s, Declare)}
    a, b = found.factors
    for once, other in ((a, b), (b, a)):
        (lets, free), (rest, others) = parts_of(once, found.before), parts_of(other, found.before)
        if (free | others) & mutable:
            return None
        for first, second in ((found.outer, found.inner), (found.inner, found.outer)):
            kept = [loop for loop in loops if loop.variable.name in free]
            if first.variable in free - others and second.variable in others and len(kept) < len(loops):
                added = _Factor(once, lets), _Factor(other, rest)
                return _two(context, found, (first, second), added, kept, body)
    return None


def _sum(context: Context, body: Block) -> _Sum | None:
    """The sum over two loops that a body makes, if that is all the loops it has."""
    match [s for s in body if isinstance(s, For)]:
        case [For(kind="sequential") as outer]:
            pass
        case _:
            return None
    *lets, inner = outer.body
    if not isinstance(inner, For) or inner.kind != "sequential":
        return None
    *more, last = inner.body
    before = [s for s in (*body, *lets, *more) if isinstance(s, Let)]
    reduction = context.reductions.get(outer.variable)
    starts = [s for s in body if isinstance(s, Declare) and reduction is not None and s.name == reduction.name]
    plain = all(isinstance(s, Let) for s in (*lets, *more)) and isinstance(last, Assign)
    if not plain or reduction != context.reductions.get(inner.variable) or len(starts) != 1:
        return None
    assert isinstance(last, Assign) and reduction is not None
    start, factors = starts[0], factors_of(last, before)
    zeros = isinstance(start.initial, Constant) and str(start.initial.value) == "0.0"
    if factors is None or reduction.primitive.name != "add" or last.name != start.name or not zeros:
        return None
    return _Sum(start, outer, inner, last, before, factors)


@dataclass(frozen=True)
class _Factor:
    value: Expression
    lets: tuple[Let, ...]


def _two(
    context: Context,
    found: _Sum,
    order: tuple[For, For],
    factors: tuple[_Factor, _Factor],
    kept: list[Loop],
    body: Block,
) -> Regrouped:
    """The nests: the first sums one factor over the first loop, the second the products over the other."""
    (first, second), (once, other) = order, factors
    type = found.start.initial.type
    loops = [*kept, Loop(Variable(second.variable, i64), second.extent)]
    stored = Buffer(context.fresh("summed"), type, tuple([loop.extent for loop in loops]))
    place = tuple([loop.variable for loop in loops])
    total = Variable(context.fresh("sum"), type)
    add = context.reductions[first.variable].primitive
    context.reductions[first.variable] = Reduction(total.name, add, Constant(zero(type), type))
    step = Assign(total.name, Apply(add, (total, once.value), type))
    inner: Block = (
        Declare(total.name, Constant(zero(type), type)),
        For(first.variable, first.extent, "sequential", (*once.lets, step)),
        Store(stored, place, total),
    )
    result = Variable(found.start.name, type)
    a, b = Load(stored, place), other.value
    fused = isinstance(found.last.value, MultiplyAdd)
    more = MultiplyAdd(a, b, result, type) if fused else folded("add", result, folded("multiply", a, b))
    extent = Select(folded("less", ZERO, first.extent), second.extent, ZERO, i64)
    loop = For(second.variable, extent, "sequential", (*other.lets, Assign(result.name, more)))
    return Regrouped(loops, inner, stored, tuple([loop if s is found.outer else s for s in body]))
