"""Sums that points add to in loops of their own: first what each point adds, side by side, then the sum of that.

A return sweep in a map adds, step by step, to the derivatives of what all points have in common. In lanes it would add
to one place for all of them; so each point has a sum to itself, which is stored and then combined as any other ::

    nest i < n                              temporary part: f64[n]
      for t < steps                         nest i < n
        a[] = a[] + e                         var own = 0.0
                                      =>      for t < steps: own = own + e
                                              part[i] = own
                                            nest i < n combining total by add: total = total + part[i]
                                            a[] = a[] + total
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core.primitive import lookup
from .. import ir
from .context import Context, zero
from .privatisation import updated_by


@dataclass(frozen=True)
class PointSums:
    """A nest whose points store what they add, the nest that combines it, and what is done with the totals."""

    stored: Sequence[ir.Allocate]
    points: ir.Nest
    totals: ir.Nest
    added: Sequence[ir.Store]


def point_sums(context: Context, nest: ir.Nest) -> PointSums | None:
    """A nest along one axis in this form; None unless all that it adds to are single places, in loops inside."""
    updated = updated_by(nest.body)
    if not updated or len(nest.axes) != 1 or all(store in nest.body for each in updated.values() for store in each):
        return None
    [axis] = nest.axes
    inside = ir.bound_in(nest.body) | {axis.variable.name}
    if not all(_is_one_place(buffer, stores, nest.body, inside) for buffer, stores in updated.items()):
        return None
    own = {buffer: context.variable("own", buffer.scalar) for buffer in updated}
    parts = {buffer: ir.Buffer(context.fresh("part"), buffer.scalar, (axis.extent,)) for buffer in updated}
    combined = {
        buffer: ir.Reduction(context.fresh("total"), lookup("add"), ir.Constant(zero(buffer.scalar), buffer.scalar))
        for buffer in updated
    }

    def update(s: ir.Store) -> ir.Statement:
        if s.buffer not in own or not isinstance(s.value, ir.Apply):
            return s
        return ir.Assign(own[s.buffer].name, replace(s.value, arguments=(own[s.buffer], s.value.arguments[1])))

    body = (
        *[ir.Declare(own[buffer].name, each.neutral) for buffer, each in combined.items()],
        *ir.map_block(nest.body, lambda e: e, update),
        *[ir.Store(parts[buffer], (axis.variable,), own[buffer]) for buffer in updated],
    )
    index = context.variable("i")
    sums = tuple([each.combined(ir.Load(parts[buffer], (index,))) for buffer, each in combined.items()])
    added = list[ir.Store]()
    for buffer, [first, *_] in updated.items():
        total = ir.Variable(combined[buffer].name, buffer.scalar)
        added.append(replace(first, value=ir.Load(buffer, first.indices) + total))
    return PointSums(
        [ir.Allocate(each) for each in parts.values()],
        replace(nest, body=body, fills=(*nest.fills, *parts.values())),
        ir.Nest((replace(axis, variable=index),), sums, nest.outermost, combines=tuple(combined.values())),
        added,
    )


def _is_one_place(buffer: ir.Buffer, stores: Sequence[ir.Store], body: ir.Block, inside: set[str]) -> bool:
    """Whether a body adds to one element of a buffer that is known before it, and reads nothing else of it."""
    reads = [load for statement in ir.walk(body) for load in ir.loads(statement) if load.buffer == buffer]
    sums = all(isinstance(s.value, ir.Apply) and s.value.primitive.name == "add" for s in stores)
    places = {(s.indices, s.guarded) for s in stores} | {(e.indices, e.guarded) for e in reads}
    known = inside.isdisjoint(ir.names_in(stores[0].indices)) and not any(ir.names_of(i)[1] for i in stores[0].indices)
    return sums and known and places == {(stores[0].indices, ())} and len(reads) == len(stores)
