"""Nests that combine: what their points give is combined side by side, in parts, and the parts in order.

A range is cut into chunks for the threads; within a chunk the points are lanes, where that is possible::

                                                  let size = ..., chunks = (n + size - 1) // size
    nest i < n combining total by add       =>    parallel chunk < chunks
      y[i] = f(x[i])                                var part = 0.0
      total = total + y[i]                          lanes lane combining part by add: y[i] = f(x[i]); part = part + y[i]
                                                    partial[chunk] = part
                                                  for part < chunks: total = total + partial[part]

Sizes alone decide how many chunks there are, and their totals are combined in order, so the result does not depend on
the number of threads. On a target with groups the lanes are those of a group, each of which takes every ``group``-th
point of a chunk, and one more group combines the groups' totals.

Several totals of one nest have the same chunks. What is combined alone and what is combined beside others has the same
parts, since nests whose totals would have others are not fused (``roles_of``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...core.types import f32
from .. import ir
from ..target import GROUP_LANE_ELEMENTS, LANE_CHUNK, REDUCTION_PIECES, THREAD_GRAIN, TOTAL_CHUNK_UNIT, TOTAL_REGISTERS
from .context import ZERO, Context
from .nests import Roles
from .survey import survey


def totals(context: Context, nest: ir.Nest) -> list[ir.Statement]:
    """The loops of a nest that combines, and the declarations of what it combines into."""
    with context.captured() as made:
        if context.target.group:
            _by_groups(context, nest)
        elif nest.outermost:
            _in_chunks(context, nest)
        else:
            _in_one_chunk(context, nest)
    return made


def roles_of(context: Context, nest: ir.Nest) -> Roles:
    """The roles that the loops of a nest that combines will have."""
    variables, target = tuple([axis.variable.name for axis in nest.axes]), context.target
    found = survey(nest.body, variables)
    kinds = {(each.neutral.type, _is_pairwise(each)) for each in nest.combines}
    room = bool(target.group) or TOTAL_REGISTERS * len(nest.combines) <= target.registers
    wide = bool(target.group) or (found.simple and target.transformations.vectorise)
    alone = wide and not found.inner and len(kinds) == 1 and room
    return Roles(variables, variables[-1], has_loops=bool(found.inner), in_order=alone)


def _is_pairwise(reduction: ir.Reduction) -> bool:
    """Whether a sum is combined in blocks of blocks (``schedule/loops/pairwise_summation.py``), as nothing else is."""
    return reduction.primitive.name == "add" and reduction.neutral.type is f32


def _declared(nest: ir.Nest) -> list[ir.Declare]:
    return [ir.Declare(each.name, each.neutral) for each in nest.combines]


# Vectors


def _in_chunks(context: Context, nest: ir.Nest) -> None:
    """Partial results of chunks, whose points are lanes where that is possible, combined in order."""
    [axis], target = nest.axes, context.target
    chunk, lane = context.variable("chunk"), context.fresh("lane")
    parts = [context.variable("part", each.neutral.type) for each in nest.combines]
    size = context.let("size", _chunk(axis.extent))
    start = chunk * size
    length = ir.minimum(axis.extent - start, size)
    count = context.let("chunks", (axis.extent + size - 1) // size)
    partial = [context.temporary("partial", part.type, (ir.Constant(REDUCTION_PIECES),)) for part in parts]
    body = (ir.Let(axis.variable.name, start + ir.Variable(lane)), *_into(context, nest, parts))
    reductions = tuple([replace(each, name=p.name) for each, p in zip(nest.combines, parts, strict=True)])
    loop, work = _along(context, lane, length, body, reductions)
    declared = [ir.Declare(p.name, each.neutral) for each, p in zip(nest.combines, parts, strict=True)]
    stored = [ir.Store(buffer, (chunk,), part) for buffer, part in zip(partial, parts, strict=True)]
    grain = THREAD_GRAIN // (size * max(1, work)) if target.parallel else None
    kind: ir.Kind = "parallel" if target.parallel else "sequential"
    context.emit(ir.For(chunk.name, count, kind, (*declared, loop, *stored), grain=grain))
    context.emit(*_declared(nest))
    for each, buffer in zip(nest.combines, partial, strict=True):
        with context.over("part", count) as index:
            context.emit(each.combined(ir.Load(buffer, (index,))))


def _in_one_chunk(context: Context, nest: ir.Nest) -> None:
    """The total where other threads run already, as in a procedure: that of one chunk."""
    [axis] = nest.axes
    context.emit(*_declared(nest), _along(context, axis.variable.name, axis.extent, nest.body, nest.combines)[0])


def _along(
    context: Context, variable: str, length: ir.Expression, body: ir.Block, reductions: tuple[ir.Reduction, ...]
) -> tuple[ir.For, int]:
    """The loop over the points of a chunk, which are lanes where that is possible; and the work of one."""
    found, target = survey(body), context.target
    if not (found.simple and not found.inner and target.transformations.vectorise):
        return ir.For(variable, length, "sequential", body), int(found.work)
    strip = TOTAL_REGISTERS * min([target.lanes(each.neutral.type) for each in reductions])
    return ir.For(variable, length, "lanes", body, strip, reductions=reductions), int(found.work)


def _chunk(extent: ir.Expression) -> ir.Expression:
    """The points of a chunk: a multiple of ``TOTAL_CHUNK_UNIT``, such that there are few enough chunks."""
    strips = extent // (TOTAL_CHUNK_UNIT * REDUCTION_PIECES)
    share = (strips + 1) * TOTAL_CHUNK_UNIT
    return ir.maximum(share, LANE_CHUNK)


def _into(context: Context, nest: ir.Nest, parts: Sequence[ir.Variable]) -> ir.Block:
    """The body of a nest that combines into other variables; loops inside do so, too."""
    names = {each.name: part.name for each, part in zip(nest.combines, parts, strict=True)}
    for loop in ir.of_kind(nest.body, ir.For):
        inner = context.reductions.get(loop.variable)
        if inner is not None and inner.name in names:
            context.reductions[loop.variable] = replace(inner, name=names[inner.name])
    return ir.renamed(nest.body, names)


# Groups

# What is done with a point at an index, given the variables to combine into.
Point = Callable[[ir.Expression, Sequence[ir.Variable]], None]


def _by_groups(context: Context, nest: ir.Nest) -> None:
    """Partial totals along the lanes of each group, and the totals of these along the lanes of one more."""
    [axis] = nest.axes
    extent = axis.extent

    def point(index: ir.Expression, parts: Sequence[ir.Variable]) -> None:
        context.emit(ir.Let(axis.variable.name, index), *_into(context, nest, parts))

    least = GROUP_LANE_ELEMENTS * context.target.group
    strips = ir.maximum(ir.ceil_divide(extent, least * context.most_groups), 1)
    size = context.let("size", strips * least)
    count = context.let("chunks", (extent + size - 1) // size)
    found = [ir.Variable(each.name, each.neutral.type) for each in nest.combines]
    if isinstance(count, ir.Constant) and count.value <= 1:
        context.emit(*_declared(nest))
        _along_lanes(context, nest, ZERO, extent, found, point)
        return
    partial = [context.temporary("partial", total.type, (count,)) for total in found]
    with context.over("chunk", count, "parallel") as chunk:
        start = context.let("start", chunk * size)
        length = ir.minimum(extent - start, size)
        parts = [context.declare("part", each.neutral) for each in nest.combines]
        _along_lanes(context, nest, start, length, parts, point)
        context.emit(*[ir.Store(buffer, (chunk,), part) for buffer, part in zip(partial, parts, strict=True)])

    def combine(index: ir.Expression, into: Sequence[ir.Variable]) -> None:
        for each, total, buffer in zip(nest.combines, into, partial, strict=True):
            context.emit(replace(each, name=total.name).combined(ir.Load(buffer, (index,))))

    context.emit(*_declared(nest))
    _along_lanes(context, nest, ZERO, count, found, combine)


def _along_lanes(
    context: Context,
    nest: ir.Nest,
    start: ir.Expression,
    length: ir.Expression,
    into: Sequence[ir.Variable],
    point: Point,
) -> None:
    """A stretch that the lanes of a group combine into variables."""
    lane = context.variable("lane")
    reductions = tuple([replace(each, name=total.name) for each, total in zip(nest.combines, into, strict=True)])
    with context.over(lane, length, "lanes", context.target.group, reductions=reductions):
        point(start + lane if start != ZERO else lane, into)
