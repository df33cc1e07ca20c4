"""The tests around reads and writes of code that checks its memory (``bounds.py``), and the poison in new memory."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.types import bool_, i64
from .. import ir
from .bounds import Bounds
from .expressions import Expressions
from .text import register_type
from .unit import Unit
from .values import Value, one


class Checking(Expressions):
    """Emits the expressions of one function, whose accesses end the run where an index is out of range."""

    def __init__(self, unit: Unit, failure: str) -> None:
        super().__init__(unit)
        self.failure = failure
        self.may_leave = False  # from anywhere: when there is no memory, or an index is out of range

    def guarded(
        self, buffer: ir.Buffer, indices: Sequence[ir.Expression], guarded: Sequence[int]
    ) -> tuple[list[Value], Value | None]:
        places, guard = super().guarded(buffer, indices, guarded)
        if self.unit.bounds is not None and places:
            self._expect_inside(self.unit.bounds, buffer, places, guard)
        return places, guard

    def room_along(self, extent: str) -> str:
        """Room for one along each axis: a clamped index into an empty array still touches its memory alone."""
        return self.body.value(f"call i64 @llvm.smax.i64(i64 {extent}, i64 1)")

    def poison(self, pointer: str, size: str) -> None:
        """Fill memory of code that checks it with what shows when it is read before it is written."""
        if self.unit.bounds is not None:
            self.body.line(f"call void @llvm.memset.p0.i64(ptr {pointer}, i8 -1, i64 {size}, i1 false)")

    def _expect_inside(self, bounds: Bounds, buffer: ir.Buffer, indices: Sequence[Value], guard: Value | None) -> None:
        """Leave, and tell of the indices that are out of range in a lane that is on."""
        body, extents = self.body, self.places[buffer.name].extents
        found = [self._inside(index, extent, guard) for index, extent in zip(indices, extents, strict=True)]
        total = "true"
        for inside in found:
            for part in inside.parts:
                total = body.value(f"and i1 {total}, {self._all(part, inside.lanes)}")
        wrong, after = body.name("outside"), body.name("after")
        body.line(f"br i1 {total}, label %{after}, label %{wrong}")
        body.label(wrong)
        for axis, (index, inside, extent) in enumerate(zip(indices, found, extents, strict=True)):
            values = self.widening.vector(index) if inside.lanes else index
            for value, part in zip(values.along(inside.axes), inside.parts, strict=True):
                worst, whole = self._worst(value, part, inside.lanes), self._all(part, inside.lanes)
                words = f"i64 {bounds.numbers[buffer.name]}, i64 {axis}, i64 {worst}, i64 {extent}, i1 {whole}"
                body.line(f"call void @{bounds.outside()}(ptr {self.failure}, {words})")
        body.branch("exit")
        body.label(after)
        self.may_leave = True

    def _inside(self, index: Value, extent: str, guard: Value | None) -> Value:
        """Whether an index is in range, or the lane or the guard off."""
        inside = self.widening.lift(bool_, [index, one(i64, self.room_along(extent))], self._below)
        strip = self.widening.strip

        def holds(parts: Sequence[str], lanes: int) -> str:
            type, all_on = register_type(bool_, lanes), "splat (i1 true)" if lanes else "true"
            off = list(parts[1:])
            if lanes and strip is not None and strip.mask is not None:
                off.append(strip.mask)
            whether = parts[0]
            for on in off:
                whether = self.body.value(f"or {type} {whether}, {self.body.value(f'xor {type} {on}, {all_on}')}")
            return whether

        return self.widening.lift(bool_, [inside] if guard is None else [inside, guard], holds)

    def _all(self, flags: str, lanes: int) -> str:
        """Whether a flag holds in all lanes."""
        return (
            self.body.value(f"call i1 @llvm.vector.reduce.and.v{lanes}i1(<{lanes} x i1> {flags})") if lanes else flags
        )

    def _worst(self, index: str, inside: str, lanes: int) -> str:
        """An index that is out of range, of all lanes; negative ones are the largest."""
        if not lanes:
            return index
        type = f"<{lanes} x i64>"
        wrong = self.body.value(f"select <{lanes} x i1> {inside}, {type} zeroinitializer, {type} {index}")
        return self.body.value(f"call i64 @llvm.vector.reduce.umax.v{lanes}i64({type} {wrong})")
