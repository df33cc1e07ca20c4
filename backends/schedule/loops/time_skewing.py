"""Time skewing (Wolfe 1986; Wonnacott 2000): a few steps at a time of a grid that no cache holds.

A step of a stencil computes little for what it reads and writes. So steps that each go through the whole grid wait for
the memory. But a row of the next step needs no more than the rows around it, which the cache still holds::

    for t < steps                               for some < steps / s
      parallel i < n                              for block < (n + (s - 1) * r) / b
        y[i] = ... x[i - r] ... x[i + r] ...  =>    for turn < s
      x, y = y, x                                     parallel i of block * b - turn * r up to as many + b
                                                        y[i] = ... x[i - r] ... x[i + r] ...
                                                      x, y = y, x

In each step a block moves back by as many rows as are read ahead. So what a row is computed from, the block itself has
computed, or the one before. And what a block writes over in a step was read, if at all, in steps before, by rows that
are in this block then, or in one before. So each element is computed once, from the same numbers, in the same order;
but the memory is gone through once for ``s`` steps.

Scalars change with the step, as the slots of a state do (``lowering/state.py``): each block begins with those that the
first one began with. How many rows a block has, and how many steps it goes through, the sizes say in the run: all rows,
and all steps, which is the loop as it was, where the cache holds anyway what a step reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from ... import ir
from ...decisions import Decisions, writes_text
from ...target import FARTHEST_ROW, L3_BYTES, SKEWED_BYTES, SKEWED_STEPS

# What rows of one step may do, in any order: nothing that others than their own and later steps' rows see.
_OF_A_ROW = ir.For | ir.If | ir.Let | ir.Declare | ir.Assign | ir.Store | ir.Prefetch | ir.Allocate

ANY = (-inf, inf)


def skewed(function: ir.Function, decisions: Decisions) -> ir.Function:
    """A function whose loops over steps go through several steps of a block of rows at a time."""
    skewing = _Skewing(ir.unused_names(function), decisions)
    return replace(function, body=skewing.block(function.body))


@dataclass(frozen=True)
class _Skewing:
    fresh: Callable[[str], str]
    decisions: Decisions

    def block(self, block: ir.Block) -> ir.Block:
        made: list[ir.Statement] = []
        for statement in block:
            match statement:
                case ir.For(kind="sequential"):
                    steps = _Steps.of(statement)
                    if steps is not None and self.decisions.take("skew", f"steps of {writes_text(statement)}"):
                        made += steps.skewed(self.fresh)
                    else:
                        made.append(ir.map_inside(statement, self.block))
                case ir.For():
                    made.append(statement)
                case _:
                    made.append(ir.map_inside(statement, self.block))
        return tuple(made)


@dataclass(frozen=True)
class _Steps:
    """A loop over steps: its loop over rows, and the scalars that are bound before it, and changed after it.

    ``reach`` is how many rows before and behind its own a row reads of what steps write, at least one; ``buffers`` are
    all that a step reads and writes.
    """

    loop: ir.For
    before: ir.Block
    rows: ir.For
    after: ir.Block
    reach: int
    buffers: tuple[ir.Buffer, ...]

    @staticmethod
    def of(loop: ir.For) -> _Steps | None:
        """The steps of a loop, if each of them goes row by row through what they write."""
        places = [place for place, each in enumerate(loop.body) if isinstance(each, ir.For)]
        if len(places) != 1:
            return None
        before, rows, after = loop.body[: places[0]], loop.body[places[0]], loop.body[places[0] + 1 :]
        assert isinstance(rows, ir.For)
        if rows.kind != "parallel" or not all(isinstance(each, _OF_A_ROW) for each in ir.walk(rows.body)):
            return None
        if not all(isinstance(each, ir.Let) for each in before):
            return None
        if not all(isinstance(each, ir.Let | ir.Assign) for each in after):
            return None
        accesses, own = [*ir.accesses(rows.body)], ir.allocated_in(rows.body)
        states = {each.buffer.name for each in accesses if isinstance(each, ir.Store)} - own
        changing = ir.bound_in(loop.body) | ir.assigned_in(after) | {loop.variable}
        known_before = changing.isdisjoint(ir.names_in([rows.extent]))
        if not states or not known_before or not states.isdisjoint(ir.read_in((*before, *after))):
            return None
        reach = _Rows(rows).reach([each for each in accesses if each.buffer.name in states])
        buffers = {each.buffer.name: each.buffer for each in accesses if each.buffer.name not in own}
        return None if reach is None else _Steps(loop, before, rows, after, max(reach, 1), tuple(buffers.values()))

    def skewed(self, fresh: Callable[[str], str]) -> ir.Block:
        """The loop, over several steps of a block of rows at a time."""

        def let(stem: str, value: ir.Expression) -> ir.Variable:
            made.append(ir.Let(fresh(stem), value))
            return ir.Variable(made[-1].name, value.type)

        made: list[ir.Let] = []
        extent, reach = self.rows.extent, self.reach
        whole = let("bytes", ir.total(map(ir.bytes_of, self.buffers)))
        most = let("most", SKEWED_BYTES // ir.maximum(whole // ir.maximum(extent, 1), 1))
        deep = let("deep", (most // (2 * reach) >= SKEWED_STEPS) & (whole > L3_BYTES))
        every = ir.maximum(self.loop.extent, 1)
        height = let("height", ir.select(deep, most, extent + (every * reach if reach > 1 else every)))
        count = let("count", ir.select(deep, most // (2 * reach), every))
        sizes, made = made, []

        some, block, turn, row = (ir.Variable(fresh(stem)) for stem in ("some", "block", "turn", "row"))
        first = let("first", some * count)
        steps = let("steps", ir.minimum(count, self.loop.extent - first))
        carried = [each for each in self.after if isinstance(each, ir.Assign)]
        begun = [let("begun", ir.Variable(each.name, each.value.type)) for each in carried]
        outer, made = made, []

        behind = let("behind", turn * reach) if reach > 1 else turn
        low = let("low", ir.maximum(block * height - behind, 0))
        high = let("high", ir.minimum((block + 1) * height - behind, extent))
        inner = made

        place = ir.Let(self.rows.variable, low + row)
        rows = replace(self.rows, variable=row.name, extent=ir.maximum(high - low, 0), body=(place, *self.rows.body))
        step = ir.Let(self.loop.variable, first + turn)
        turned = ir.without_unused((step, *self.before, *inner, rows, *self.after))
        turns = ir.For(turn.name, steps, "sequential", turned)
        again = [ir.Assign(each.name, value) for each, value in zip(carried, begun, strict=True)]
        blocks = ir.maximum(ir.ceil_divide(extent + ((steps - 1) * reach if reach > 1 else steps - 1), height), 1)
        inside = ir.For(block.name, blocks, "sequential", (*again, turns))
        times = ir.ceil_divide(self.loop.extent, count)
        return (*sizes, ir.For(some.name, times, "sequential", (*outer, inside)))


class _Rows:
    """A loop over rows, and what is bound in it, by name: in branches a name may be bound several times."""

    def __init__(self, rows: ir.For) -> None:
        self.row, self.extent = ir.Variable(rows.variable), rows.extent
        self.bound: dict[str, list[ir.Statement]] = {}
        self.known: dict[tuple[str, bool], tuple[float, float]] = {}
        for statement in ir.walk(rows.body):
            match statement:
                case ir.Let(name) | ir.Declare(name) | ir.For(name):
                    self.bound.setdefault(name, []).append(statement)

    def reach(self, accesses: Sequence[ir.Load | ir.Store]) -> int | None:
        """How far from its own row a row reads buffers of which it writes that row; None if that is not known."""
        axes: dict[str, int] = {}
        for access in accesses:
            if isinstance(access, ir.Store):
                own = [axis for axis, index in enumerate(access.indices) if index == self.row]
                if len(own) != 1 or axes.setdefault(access.buffer.name, own[0]) != own[0]:
                    return None
        farthest = 0
        for access in accesses:
            low, high = self.around(access.indices[axes[access.buffer.name]])
            if max(-low, high) > FARTHEST_ROW:
                return None
            farthest = max(farthest, int(-low), int(high))
        return farthest

    def around(self, index: ir.Expression) -> tuple[float, float]:
        """Bounds of how many rows behind its own a row is: of an index minus the variable of the loop."""
        match index:
            case ir.Constant(value):
                last = self.extent.value - 1 if isinstance(self.extent, ir.Constant) else inf
                return value - last, value  # no row is negative, or behind the last one
            case ir.Variable() if index == self.row:
                return 0, 0
            case ir.Variable(name) if name in self.bound:
                return self.of_name(name, moving=True)
            case ir.Select(_, then, orelse):
                return _union([self.around(then), self.around(orelse)])
            case ir.Apply(primitive, (a, b)) if primitive.name in ("minimum", "maximum"):
                (low, high), (other_low, other_high) = self.around(a), self.around(b)
                chosen = min if primitive.name == "minimum" else max
                return chosen(low, other_low), chosen(high, other_high)
            case ir.Apply(primitive, (a, b)) if primitive.name in ("add", "subtract"):
                if primitive.name == "add" and self.span(a) != ANY:
                    a, b = b, a
                (low, high), (least, most) = self.around(a), self.span(b)
                return (low + least, high + most) if primitive.name == "add" else (low - most, high - least)
        return (1, inf) if index == self.extent else ANY  # each row is before the end

    def span(self, index: ir.Expression) -> tuple[float, float]:
        """Bounds of an integer that does not depend on the row."""
        match index:
            case ir.Constant(value):
                return value, value
            case ir.Variable(name) if name in self.bound:
                return self.of_name(name, moving=False)
            case ir.Apply(primitive, (a, b)) if primitive.name in ("add", "subtract"):
                (low, high), (least, most) = self.span(a), self.span(b)
                return (low + least, high + most) if primitive.name == "add" else (low - most, high - least)
        return ANY

    def of_name(self, name: str, moving: bool) -> tuple[float, float]:
        """Bounds of what is bound to a name, looked for once, of that minus the row where it is ``moving``."""
        key = name, moving
        if key not in self.known:
            self.known[key] = _union([self.of_binding(each, moving) for each in self.bound[name]])
        return self.known[key]

    def of_binding(self, statement: ir.Statement, moving: bool) -> tuple[float, float]:
        match statement:
            case ir.Let(_, value):
                return self.around(value) if moving else self.span(value)
            case ir.For(_, ir.Constant(turns)) if not moving:
                return 0, turns - 1
        return ANY


def _union(bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    lows, highs = zip(*bounds, strict=True)
    return min(lows), max(highs)
