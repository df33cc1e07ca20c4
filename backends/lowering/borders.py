"""What an update leaves of an array that it does not overwrite in place: the border around a box that is written.

An update that writes a box, a range along each axis, is made in other memory than the old array's. Only what is
around the box is copied there: for each axis what is before the range and behind it, within the ranges before.

    for i < n - 2: for j < m - 2: b[1 + i, 1 + j] = ...

        =>    b[:1, :] = a[:1, :]    b[n-1:, :] = a[n-1:, :]    b[1:n-1, :1] = a[1:n-1, :1]    b[1:n-1, m-1:] = ...

The whole array is copied where it is small, or the box is empty or not all inside of it, which the run tells.

A loop that updates its state takes turns with two slots. If each turn writes the same box of it, the border is the one
that the state had at the beginning, and is copied in the first turn alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...core.dims import Dim
from ...core.ranges import never_negative, positive
from .. import ir
from ..target import BORDER_ELEMENTS
from .arrays import Arrays
from .context import ONE, ZERO, ArrayRef


@dataclass(frozen=True)
class _Range:
    """The indices that are written along an axis: the first one, and how many there are."""

    start: ir.Expression
    length: ir.Expression


class Borders(Arrays):
    """The lowering of copies of what is not written."""

    def box(
        self, loops: Sequence[ir.Axis], statements: ir.Block, place: Sequence[ir.Expression]
    ) -> list[_Range] | None:
        """What is written along each axis at a place that loops over statements compute; None where it is no box."""
        bindings = {s.name: s.value for s in statements if isinstance(s, ir.Let)}
        bound = {name for s in statements for name in ir.bound_in((s,))} | {loop.variable.name for loop in loops}
        left, ranges = list(loops), list[_Range]()
        for index in place:
            own = [loop for loop in left if self.follows(index, loop)]
            if not own:
                return None
            left.remove(own[0])
            start = _expanded(index, {**bindings, own[0].variable.name: ZERO})
            if any(True for _ in ir.loads(ir.Let("", start))) or not bound.isdisjoint(ir.names_in([start])):
                return None
            ranges.append(_Range(start, own[0].extent))
        return None if left else ranges

    def follows(self, index: ir.Expression, loop: ir.Axis) -> bool:
        """Whether an index is one of a loop, and something that the loop does not change."""
        dim = self.dim(index)
        return dim is not None and self.known[loop.variable.name].atoms().isdisjoint(
            (dim - self.known[loop.variable.name]).atoms()
        )

    def copy_around(
        self, old: ArrayRef, target: ArrayRef, box: Sequence[_Range] | None, turns: ir.Expression | None = None
    ) -> None:
        """Copy what is outside of a box, or all, from one array into another of the same extents.

        Of a state that is updated from slot to slot, the border is in all of them after so many ``turns``.
        """
        ranges = [number for each in box or () for number in (each.start, each.length)]
        if turns is not None and box is not None and old.buffer == target.buffer and all(map(self.of_sizes, ranges)):
            with self.captured() as copies:
                self.copy_around(old, target, box)
            self.emit(ir.If(turns, tuple(copies), ()))
            return
        extents = [old.extent(axis) for axis in range(len(old.order) - len(old.prefix))]
        inside: ir.Expression = ir.product(extents) >= BORDER_ELEMENTS
        if box is None or self.target.group or inside == ir.Constant(False):
            self.copy(old, target)
            return
        within: list[_Range] = []
        with self.captured() as border:
            for axis, (written, extent) in enumerate(zip(box, extents, strict=False)):
                whole = [_Range(ZERO, each) for each in extents[axis + 1 :]]
                behind = self.behind(written, extent)
                inside &= self.at_least(1, written.length) & self.at_least(0, written.start) & self.at_least(0, behind)
                self.copy_box(old, target, [*within, _Range(ZERO, written.start), *whole])
                self.copy_box(old, target, [*within, _Range(written.start + written.length, behind), *whole])
                within.append(written)
        with self.captured() as everything:
            self.copy(old, target)
        self.emit(*ir.branch(inside, border, everything))

    def behind(self, written: _Range, extent: ir.Expression) -> ir.Expression:
        """How many indices there are behind a range that is not empty."""
        start, length, whole = self.dim(written.start), self.dim(written.length), self.dim(extent)
        if start is not None and length is not None and whole is not None:
            rest = whole - start - positive(length)
            if rest.constant is not None:
                return ir.Constant(rest.constant)
        return extent - (written.start + written.length)

    def at_least(self, least: int, number: ir.Expression) -> ir.Expression:
        """Whether an integer is so large, at once where that is known."""
        dim = self.dim(number)
        known = dim is not None and never_negative(dim - least, self._extent_of)
        return ir.Constant(True) if known else number >= least

    def copy_box(self, old: ArrayRef, target: ArrayRef, box: Sequence[_Range]) -> None:
        """Copy a box of an array, which may be empty."""
        if ZERO in [each.length for each in box]:
            return
        loops, place = list[ir.Axis](), list[ir.Expression]()
        for each in box:
            variable: ir.Expression = ZERO
            if each.length != ONE:
                loops.append(ir.Axis(self.loop_variable("i", self.dim(each.length) or Dim({})), each.length))
                variable = loops[-1].variable
            place.append(_sum(each.start, variable))
        store = ir.Store(target.buffer, target.place(place), ir.Load(old.buffer, old.place(place)))
        self.nest(loops, (store,)) if loops else self.emit(store)


def _sum(a: ir.Expression, b: ir.Expression) -> ir.Expression:
    return b if a == ZERO else a if b == ZERO else a + b


def _expanded(e: ir.Expression, values: Mapping[str, ir.Expression]) -> ir.Expression:
    """An expression with values in place of variables, and of those in the values."""
    if isinstance(e, ir.Variable):
        return _expanded(values[e.name], values) if e.name in values else e
    made = ir.map_operands(e, lambda each: _expanded(each, values))
    match made:
        case ir.Apply(primitive, (a, b)) if primitive.name == "add" and ZERO in (a, b):
            return _sum(a, b)
        case ir.Apply(primitive, arguments):
            return ir.apply(primitive, *arguments)
    return made
