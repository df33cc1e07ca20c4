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
from dataclasses import dataclass, replace

from .. import ir
from .context import Context, zero
from .factors import Factor, Sum, sum_of
from .nests import depends
from .survey import survey


@dataclass(frozen=True)
class Regrouped:
    """The two nests that a nest becomes: the loops and the body of the first, what it stores, and the second's body."""

    loops: list[ir.Axis]
    first: ir.Block
    stored: ir.Buffer
    second: ir.Block


def regrouped(context: Context, loops: Sequence[ir.Axis], body: ir.Block) -> Regrouped | None:
    """A nest as two, where that saves a level of loops."""
    sum = sum_of(body, context.reductions)
    if sum is None or sum.tests or len(sum.loops) != 2:
        return None
    outer, inner = sum.loops
    found = survey(body, [loop.variable.name for loop in loops])
    if not found.simple or any(depends(each.extent, found.bound) for each in sum.loops):
        return None
    a, b = sum.factors
    if (a.free | b.free) & {s.name for s in ir.of_kind(body, ir.Declare)}:
        return None
    for once, other in ((a, b), (b, a)):
        for first, second in ((outer, inner), (inner, outer)):
            kept = [loop for loop in loops if loop.variable.name in once.free]
            if first.variable in once.free - other.free and second.variable in other.free and len(kept) < len(loops):
                return _two(context, sum, (first, second), (once, other), kept, body)
    return None


def _two(
    context: Context,
    sum: Sum,
    order: tuple[ir.For, ir.For],
    factors: tuple[Factor, Factor],
    kept: list[ir.Axis],
    body: ir.Block,
) -> Regrouped:
    """The nests: the first sums one factor over the first loop, the second the products over the other.

    What the first nest binds has names of its own: the second binds the old ones, and either may move into the other.
    """
    (first, second), (once, other) = order, factors
    type = sum.type
    loops = [*kept, ir.Axis(ir.Variable(second.variable), second.extent)]
    stored = ir.Buffer(context.fresh("summed"), type, tuple([loop.extent for loop in loops]))
    place = tuple([loop.variable for loop in loops])
    total = context.variable("sum", type)
    add = context.reductions[first.variable].primitive
    own = {name: context.fresh(name.rstrip("0123456789")) for name in _bound(loops, first, once)}
    context.reductions[own[first.variable]] = sums = ir.Reduction(total.name, add, ir.Constant(zero(type), type))
    inner: ir.Block = (
        ir.Declare(total.name, sums.neutral),
        ir.For(first.variable, first.extent, "sequential", (*once.lets, sums.combined(once.value))),
        ir.Store(stored, place, total),
    )
    result = ir.Variable(sum.start.name, type)
    a, b = ir.Load(stored, place), other.value
    more = ir.MultiplyAdd(a, b, result, type) if sum.fused else result + a * b
    extent = ir.select(first.extent > 0, second.extent, 0)
    known = {s.name for s in body if isinstance(s, ir.Let)}  # before the loops, where they stay
    lets = [let for let in other.lets if let.name not in known]
    loop = ir.For(second.variable, extent, "sequential", (*lets, ir.Assign(result.name, more)))
    return Regrouped(
        [replace(loop, variable=ir.Variable(own[loop.variable.name])) for loop in loops],
        ir.renamed(inner, own),
        stored,
        tuple([loop if s is sum.loops[0] else s for s in body]),
    )


def _bound(loops: Sequence[ir.Axis], inner: ir.For, factor: Factor) -> list[str]:
    """What a nest binds that sums a factor: the variables of its loops, and the bindings of the factor."""
    return [*[loop.variable.name for loop in loops], inner.variable, *[let.name for let in factor.lets]]
