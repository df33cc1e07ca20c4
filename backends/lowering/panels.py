"""Panels: an operand of a product, computed once an element into the order in which the kernel reads it.

A panel has so many rows or columns side by side, step by step of the inner loops; lanes are its rows, in a panel of 6
rows first four and then two (what is masked out takes many cycles to store on some processors). Rows that are
contiguous along the inner loop are packed one by one instead, and steps are lanes; or, where lanes are to be rows, in
squares that are transposed in registers. ::

    panels of 8 rows, a step at a time              rows that are contiguous along k
      lanes l < 8 by 8                                for r < 8
        for step: left[panel, step, l] = a[l, k]        lanes step: left[panel, r, step] = a[r, k]
                                                    in squares
                                                      lanes l < 16 by 16
                                                        for square: jam step < 16: right[panel, step, l] = b[l, k]

Several inner loops have their steps one after the other, as if they were one. What sticks out of the operand is 0.
Where a product may leave out what is multiplied by 0, it is noted for each panel whether all of it is finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...core.primitive import lookup
from ...core.types import bool_
from .. import ir
from ..target import STRIP_REGISTERS
from .context import ZERO, zero
from .factors import Operand


@dataclass(frozen=True)
class Part:
    """A part of a loop: its start and length, in the whole loop."""

    start: ir.Expression
    length: ir.Expression


@dataclass(frozen=True)
class Panels:
    """An operand, and the buffer of its panels; ``infinite`` says of each whether something in it is not finite."""

    operand: Operand
    buffer: ir.Buffer
    infinite: ir.Buffer | None
    width: int
    inner: tuple[ir.For, ...]
    lanes: int  # of a register
    fresh: Callable[[str], str]
    squares: bool = False  # side by side, though contiguous along the inner loop

    @property
    def buffers(self) -> list[ir.Buffer]:
        return [each for each in (self.buffer, self.infinite) if each is not None]

    @property
    def strips(self) -> list[tuple[int, int]]:
        """Where strips of lanes begin that a panel consists of, and how wide they are: registers, or halves."""
        if self.width & (self.width - 1) == 0:
            return [(0, self.width)]
        found, begin, wide = list[tuple[int, int]](), 0, self.lanes
        while begin < self.width:
            if begin + wide <= self.width:
                found.append((begin, wide))
                begin += wide
            else:
                wide //= 2
        return found

    def place(self, panel: ir.Expression, step: ir.Expression, row: ir.Expression) -> tuple[ir.Expression, ...]:
        """Where an element is."""
        return (panel, row, step) if self.operand.inner_first else (panel, step, row)

    def pack(self, part: Part, steps: Part) -> ir.For:
        """All panels of a part, for some steps."""
        panel = self.variable("panel")
        whole = self.row_by_row if self.operand.inner_first else self.side_by_side
        body = whole(part, steps, panel, panel)
        return ir.For(panel.name, ir.ceil_divide(part.length, self.width), "sequential", body)

    def side_by_side(self, part: Part, steps: Part, panel: ir.Expression, number: ir.Expression) -> ir.Block:
        """A panel of a part, which is kept under a number."""
        if self.squares:
            return self.in_squares(part, steps, panel, number)
        first, length, found = self.variable("first"), self.variable("width"), self.noticed()
        packed: list[ir.Statement] = []
        for begin, wide in self.strips:
            step, lane = self.variable("step"), self.variable("lane")
            row = plus(ir.Constant(begin), lane)
            at = self.turn(plus(steps.start, step), self.inner)
            body: ir.Block = self.element((number, step, row), plus(part.start, first + row), at, found)
            body = (ir.For(step.name, steps.length, "sequential", body),)
            extent = length if wide == self.width else ir.maximum(ir.minimum(length - begin, wide), 0)
            packed.append(ir.For(lane.name, extent, "lanes", body, wide, reductions=found))
        return (*self.panel(panel, part, number, steps, (first, length)), *self.noted(found, number, packed))

    def panel(
        self,
        panel: ir.Expression,
        part: Part,
        number: ir.Expression,
        steps: Part,
        names: tuple[ir.Variable, ir.Variable],
    ) -> ir.Block:
        """Where a panel begins in a part, and how wide it is, by these names; one that sticks out is filled with 0."""
        (first, length), nothing = names, list[ir.Statement]()
        for begin, wide in self.strips:
            step, lane = self.variable("step"), self.variable("lane")
            at = (number, step, plus(ir.Constant(begin), lane))
            rows = ir.For(step.name, steps.length, "sequential", (self.nothing(at),))
            nothing.append(ir.For(lane.name, ir.Constant(wide), "lanes", (rows,), wide))
        return (
            ir.Let(first.name, panel * self.width),
            ir.Let(length.name, ir.minimum(part.length - first, self.width)),
            ir.If(length < self.width, tuple(nothing), ()),
        )

    def row_by_row(self, part: Part, steps: Part, panel: ir.Expression, number: ir.Expression) -> ir.Block:
        """The same, where lanes are steps of one row."""
        r, lane = self.variable("r"), self.variable("lane")
        row, found = offset(panel, self.width, r), self.noticed()

        def over(extent: ir.Expression, body: ir.Block, found: tuple[ir.Reduction, ...] = ()) -> ir.For:
            return ir.For(lane.name, extent, "lanes", body, STRIP_REGISTERS * self.lanes, reductions=found)

        def packed(start: ir.Expression, length: ir.Expression, first: ir.Expression) -> ir.Block:
            place = (number, r, plus(start, lane))
            at = [ir.Let(self.inner[-1].variable, plus(first, lane))]
            return (over(length, self.element(place, plus(part.start, row), at, found), found),)

        nothing = over(steps.length, (self.nothing((number, r, lane)),))
        body: ir.Block = (ir.If(row < part.length, self.by_runs(steps, packed), (nothing,)),)
        return self.noted(found, number, [ir.For(r.name, ir.Constant(self.width), "sequential", body)])

    def in_squares(self, part: Part, steps: Part, panel: ir.Expression, number: ir.Expression) -> ir.Block:
        """A panel of rows that are contiguous along the inner loop, side by side: squares, transposed in registers.

        The last square of a run overlaps with the one before; a run that is shorter has none.
        """
        operand, side = self.operand, self.lanes
        first, length = self.variable("first"), self.variable("width")
        step, lane, square, begin = (self.variable(stem) for stem in ("step", "lane", "square", "begin"))
        rows, lets = ir.apart(operand.lets, {loop.variable for loop in self.inner})

        def packed(start: ir.Expression, count: ir.Expression, turn: ir.Expression) -> ir.Block:
            def element(at: ir.Expression) -> ir.Block:
                here = ir.Let(self.inner[-1].variable, plus(turn, at))
                return (here, *lets, ir.Store(self.buffer, (number, plus(start, at), lane), operand.value))

            short = count < side
            whole = ir.For(step.name, ir.Constant(side), "jam", element(begin + step), side)
            at = ir.Let(begin.name, ir.minimum(square * side, count - side))
            many = ir.select(short, 0, ir.ceil_divide(count, side))
            return (
                ir.For(square.name, many, "sequential", (at, whole)),
                ir.For(step.name, ir.select(short, count, 0), "sequential", element(step)),
            )

        at = ir.Let(operand.along.variable.name, plus(part.start, first + lane))
        body = (at, *rows, *self.by_runs(steps, packed))
        lanes = ir.For(lane.name, length, "lanes", body, side)
        return (*self.panel(panel, part, number, steps, (first, length)), lanes)

    def by_runs(
        self, steps: Part, packed: Callable[[ir.Expression, ir.Expression, ir.Expression], ir.Block]
    ) -> ir.Block:
        """Some steps run by run of the innermost loop, of which a block of steps may begin inside of one.

        ``packed(start, length, first)``: where a run starts in the block, and where the loop stands there.
        """
        if len(self.inner) == 1:
            return packed(ZERO, steps.length, steps.start)
        run, turn, first = self.variable("run"), self.variable("turn"), self.variable("first")
        last, end = self.inner[-1], plus(steps.start, steps.length)
        begin = steps.start // last.extent
        start, length = minus(first, steps.start), ir.minimum((turn + 1) * last.extent, end) - first
        body: ir.Block = (
            ir.Let(turn.name, plus(begin, run)),
            ir.Let(first.name, ir.maximum(turn * last.extent, steps.start)),
            *self.turn(turn, self.inner[:-1]),
            *packed(start, length, first - turn * last.extent),
        )
        return (ir.For(run.name, minus(ir.ceil_divide(end, last.extent), begin), "sequential", body),)

    def noticed(self) -> tuple[ir.Reduction, ...]:
        """Whether something in a panel is not finite, as a reduction, where that is to be known."""
        if self.infinite is None:
            return ()
        return (ir.Reduction(self.fresh("infinite"), lookup("logical_or"), ir.Constant(False, bool_)),)

    def noted(self, found: tuple[ir.Reduction, ...], number: ir.Expression, loops: Sequence[ir.Statement]) -> ir.Block:
        """Loops that pack a panel, and what they have found in it."""
        made = [*loops]
        for each in found:
            assert self.infinite is not None
            store = ir.Store(self.infinite, (number,), ir.Variable(each.name, bool_))
            made = [ir.Declare(each.name, each.neutral), *made, store]
        return tuple(made)

    def element(
        self,
        place: tuple[ir.Expression, ...],
        along: ir.Expression,
        inner: Sequence[ir.Let],
        found: tuple[ir.Reduction, ...],
    ) -> ir.Block:
        """An element, for inner loops that stand where ``inner`` says, stored; it is noted if it is not finite."""
        operand, scalar = self.operand, self.buffer.scalar
        made: list[ir.Statement] = [ir.Let(operand.along.variable.name, along), *inner, *operand.lets]
        made.append(ir.Store(self.buffer, place, operand.value))
        for reduction in found:
            nothing = operand.value - operand.value  # 0, if it is finite
            made.append(reduction.combined(ir.apply("not_equal", nothing, ir.Constant(zero(scalar), scalar))))
        return tuple(made)

    def turn(self, step: ir.Expression, loops: Sequence[ir.For]) -> list[ir.Let]:
        """Where each of some loops stands at a step of all of them, which are taken as one."""
        made: list[ir.Let] = []
        for loop in reversed(loops[1:]):
            number = self.variable("number")
            made += [ir.Let(number.name, step), ir.Let(loop.variable, number % loop.extent)]
            step = number // loop.extent
        return [*made, *[ir.Let(loop.variable, step) for loop in loops[:1]]]

    def nothing(self, place: tuple[ir.Expression, ...]) -> ir.Statement:
        scalar = self.buffer.scalar
        return ir.Store(self.buffer, place, ir.Constant(zero(scalar), scalar))

    def variable(self, stem: str) -> ir.Variable:
        return ir.Variable(self.fresh(stem))


def plus(start: ir.Expression, place: ir.Expression) -> ir.Expression:
    """A sum of sizes; nothing is added to what begins at 0."""
    return place if start == ZERO else start + place


def minus(end: ir.Expression, start: ir.Expression) -> ir.Expression:
    """A difference of sizes; nothing is taken from one that begins at 0."""
    return end if start == ZERO else end - start


def offset(piece: ir.Expression, length: int, rest: ir.Expression) -> ir.Expression:
    """Where something is, so far behind the beginning of a piece."""
    return piece * length + rest
