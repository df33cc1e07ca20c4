"""From a function of the loop IR to the text of an LLVM module.

The module has two entries. ``entry(buffers, sizes, arena, threads, failure)`` runs the function: ``buffers`` points
to the addresses of arguments and results, ``arena`` to the memory of temporaries, ``failure`` to a record of five
words, of which the first comes back as the result: 0, or the number of a failed site plus one with its values
behind it, or ``OUT_OF_MEMORY``. ``arena_bytes(sizes, threads)`` is the size of the arena.
"""

from __future__ import annotations

from ...core.types import i64
from .. import memory
from ..loops import Buffer
from ..loops import Function as Loops
from .host import Machine
from .regions import Function
from .text import bytes_of
from .unit import Arena, Unit
from .values import one

ALIGNMENT = 128  # of every buffer in the arena: two cache lines, which are often fetched together
OUT_OF_MEMORY = -1


def emit(function: Loops, machine: Machine) -> str:
    """The module's text."""
    unit = Unit(memory.plan(function), machine)
    _Entry(unit, function).emit()
    _ArenaBytes(unit, function).emit()
    return str(unit.module)


class _Exported(Function):
    """A function that is called from outside, and starts from the sizes."""

    def __init__(self, unit: Unit, function: Loops) -> None:
        super().__init__(unit, Arena("%arena", "null", "0", {}), "%threads", "%failure")
        self.function = function
        for number, size in enumerate(function.sizes):
            place = self.body.value(f"getelementptr i64, ptr %sizes, i64 {number}")
            self.names[size] = one(i64, self.body.value(f"load i64, ptr {place}"))

    def lay_out(self) -> str:
        """Compute the offsets of all slots; gives the bytes of those that are shared."""
        for let in self.unit.plan.prelude:
            self.statement(let)
        totals = {False: "0", True: "0"}
        for number, slot in enumerate(self.unit.plan.slots):
            self.arena.offsets[number] = totals[slot.private]
            elements = "1"
            for extent in slot.like.extents:
                # Room for one along each axis: a clamped index into an empty array still touches its memory alone.
                length = self.body.value(f"call i64 @llvm.smax.i64(i64 {self.scalar(extent)}, i64 1)")
                elements = self.body.multiply(elements, length)
            totals[slot.private] = self.body.add(totals[slot.private], self.padded(slot.like, elements))
        self.arena.stride = totals[True]
        return totals[False]

    def padded(self, buffer: Buffer, elements: str) -> str:
        """The bytes of some elements, up to the next multiple of the alignment."""
        size = self.body.multiply(elements, str(bytes_of(buffer.scalar)))
        return self.body.multiply(self.body.divide(self.body.add(size, str(ALIGNMENT - 1)), ALIGNMENT), str(ALIGNMENT))


class _Entry(_Exported):
    def emit(self) -> None:
        body, unit = self.body, self.unit
        body.line("store i64 0, ptr %failure")
        for number, buffer in enumerate((*self.function.arguments, *self.function.results)):
            place = body.value(f"getelementptr ptr, ptr %buffers, i64 {number}")
            self.place(buffer, body.value(f"load ptr, ptr {place}"), buffer.name)
        shared = self.lay_out()
        self.arena.private = body.value(f"getelementptr i8, ptr %arena, i64 {shared}")
        self._dynamic = [body.slot("ptr") for _ in unit.plan.dynamic]
        for slot in self._dynamic:
            body.line(f"store ptr null, ptr {slot}")
        self._pending = iter(self._dynamic)
        self.block(self.function.body)
        body.branch("exit")
        body.label("exit")
        for slot in self._dynamic:
            unit.module.declare("free", "declare void @free(ptr) nounwind")
            body.line(f"call void @free(ptr {body.value(f'load ptr, ptr {slot}')})")
        body.line(f"ret i64 {body.value('load i64, ptr %failure')}")
        self.regions.close()
        parameters = "ptr %buffers, ptr %sizes, ptr %arena, i64 %threads, ptr %failure"
        unit.module.define("entry", f"define i64 @entry({parameters}) {unit.attributes} {{\n{body}\n}}")

    def allocate(self, buffer: Buffer) -> None:
        if buffer.name not in self.unit.plan.dynamic:
            super().allocate(buffer)
            return
        body = self.body
        elements = self.strides(buffer)[0]
        size = body.add(self.padded(buffer, elements), str(ALIGNMENT))
        self.unit.module.declare("aligned_alloc", "declare ptr @aligned_alloc(i64, i64) nounwind")
        pointer = body.value(f"call ptr @aligned_alloc(i64 {ALIGNMENT}, i64 {size})")
        body.line(f"store ptr {pointer}, ptr {next(self._pending)}")
        missing, found = body.name("missing"), body.name("found")
        body.line(f"br i1 {body.value(f'icmp eq ptr {pointer}, null')}, label %{missing}, label %{found}")
        body.label(missing)
        body.line(f"store i64 {OUT_OF_MEMORY}, ptr %failure")
        body.branch("exit")
        body.label(found)
        self.place(buffer, pointer, buffer.name)


class _ArenaBytes(_Exported):
    def emit(self) -> None:
        shared = self.lay_out()
        total = self.body.add(shared, self.body.multiply(self.arena.stride, "%threads"))
        self.body.line(f"ret i64 {total}")
        self.unit.module.define(
            "arena_bytes", f"define i64 @arena_bytes(ptr %sizes, i64 %threads) nounwind {{\n{self.body}\n}}"
        )
