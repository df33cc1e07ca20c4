"""Private arrays: what each point of a nest makes for itself, with an element for each lane (*array expansion*).

A return sweep reads its states backwards from an array that the forward sweep has filled, and adds to accumulators.
Both are private to the point, and keep it scalar: nothing is allocated inside lanes. An accumulator without axes is
no array but a variable. Other arrays get the lane as their last axis, so that reading and writing is contiguous, and
the lanes come in pieces as long as a strip, one after the other or in parallel; each piece has the arrays once ::

    nest i < n                              parallel piece < ceil(n / 32)
      temporary tape: f64[steps]              temporary tape: f64[steps, 32]
      for t < steps                           lanes lane < min(n - 32 piece, 32) by 32
        tape[t] = s                     =>      for t < steps
        ...                                       tape[t, lane] = s

That is for arrays whose extents no point decides, in a body of plain loops, of which some are long: what has short ones
only becomes straight-line code (``unrolling.py``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from .. import ir
from ..target import UNROLLED_ITERATIONS
from .context import zero


def is_long(body: ir.Block) -> bool:
    """Whether a body that allocates something has a loop that cannot be written out (``unrolling.py``)."""
    extents = [loop.extent for loop in ir.of_kind(body, ir.For)]
    short = all(isinstance(each, ir.Constant) and each.value <= UNROLLED_ITERATIONS for each in extents)
    return not short and ir.contains(body, ir.Allocate)


def without_cells(body: ir.Block) -> ir.Block:
    """A body with variables in place of the arrays without axes that it allocates."""
    cells = {each.buffer for each in ir.of_kind(body, ir.Allocate) if not each.buffer.extents and not each.shared}
    if not cells:
        return body

    def expression(e: ir.Expression) -> ir.Expression:
        if isinstance(e, ir.Load) and e.buffer in cells:
            return ir.Variable(e.buffer.name, e.buffer.scalar)
        return ir.map_operands(e, expression)

    def store(s: ir.Store) -> ir.Statement:
        return ir.Assign(s.buffer.name, s.value) if s.buffer in cells else s

    def declared(block: ir.Block) -> ir.Block:
        made: list[ir.Statement] = []
        for s in block:
            if isinstance(s, ir.Allocate) and s.buffer in cells:
                s = ir.Declare(s.buffer.name, ir.Constant(zero(s.buffer.scalar), s.buffer.scalar))
            made.append(ir.map_inside(s, declared))
        return tuple(made)

    return declared(ir.map_block(body, expression, store))


def private_to(body: ir.Block, variables: Collection[str]) -> frozenset[ir.Buffer]:
    """The arrays that a body allocates for each point; none unless neither points nor data decide any extent."""
    buffers = [each.buffer for each in ir.of_kind(body, ir.Allocate)]
    inside = ir.bound_in(body) | set(variables)
    extents = [extent for buffer in buffers for extent in buffer.extents]
    fixed = inside.isdisjoint(ir.names_in(extents)) and not any(ir.names_of(extent)[1] for extent in extents)
    return frozenset(buffers if fixed else ())


def without_allocations(body: ir.Block, private: Collection[ir.Buffer]) -> ir.Block:
    """A body that finds its private arrays there."""
    return ir.without(body, lambda s: isinstance(s, ir.Allocate) and s.buffer in private) if private else body


def expanded(
    body: ir.Block, private: Collection[ir.Buffer], lane: str, lanes: ir.Expression
) -> tuple[list[ir.Statement], ir.Block]:
    """The allocation of private arrays for so many lanes, and a body without it that uses the part of its lane."""
    wide = {each: replace(each, extents=(*each.extents, lanes)) for each in private}

    def expression(e: ir.Expression) -> ir.Expression:
        e = ir.map_operands(e, expression)
        if not (isinstance(e, ir.Load) and e.buffer in wide):
            return e
        return ir.Load(wide[e.buffer], (*e.indices, ir.Variable(lane)), e.guarded)

    def store(s: ir.Store) -> ir.Store:
        if s.buffer not in wide:
            return s
        return replace(s, buffer=wide[s.buffer], indices=(*s.indices, ir.Variable(lane)))

    allocations: list[ir.Statement] = [ir.Allocate(each) for each in sorted(wide.values(), key=lambda each: each.name)]
    return allocations, ir.map_block(without_allocations(body, private), expression, store)
