"""From a function of the loop IR to an LLVM module.

The module has three entries. ``entry(buffers, sizes, arena, threads, failure)`` runs the function: ``buffers`` points
to the addresses of arguments and results, and of the records of returned arrays (an array's address, which the caller
is to free, and its extents), ``arena`` to the memory of temporaries, ``failure`` to a record of five words, of which
the first comes back as the result: 0, or the number of a failed site plus one with its values behind it, or
``OUT_OF_MEMORY``. Behind the record are the words of what is ``KEPT``: a large temporary whose size the run decides
stays for the next call, since new memory costs more than what is done with it. ``arena_bytes(sizes, threads, layout)``
is the size of the arena, and writes where the slots are: ``layout_words()`` words, which stand at the head of the
arena, for all calls with these sizes. Where code is made on demand (``branches.py``) there is another one,
``needed(sizes, taken)``, which writes a byte for each branch: whether a run takes it.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

from ...core.types import i64
from .. import ir
from ..memory.arena import ALWAYS, Slot
from .bounds import CANARY, Bounds
from .forks import forks
from .host import Machine
from .outlining import Function
from .procedures import emit_procedures
from .text import OPTNONE, Module
from .unit import ALIGNMENT, BUFFERS, KEPT, SIZES, TICK, Arena, Unit
from .values import Value, one


def emit(function: ir.Function, machine: Machine) -> Module:
    """The module, in LLVM's text."""
    unit = Unit(function, machine)
    _Entry(unit, function).emit()
    emit_procedures(unit, function)
    _ArenaBytes(unit, function).emit()
    if unit.branches.tests:
        _Needed(unit, function).emit()
    for number in range(len(unit.branches.tests)):
        described = unit.branches.described(number)
        unit.module.define_later(f"branch.{number}", partial(unit.emit_branch, number), described)
    return unit.module


_WITHOUT_NAMES = "ptr, ptr, ptr, i64, ptr"
# What runs a function that invokes others: on a stack of its own, with what they share in the failure record.
_ON_ITS_STACK = f"""\
  %buffers.word = getelementptr i64, ptr %failure, i64 {BUFFERS}
  store ptr %buffers, ptr %buffers.word
  %sizes.word = getelementptr i64, ptr %failure, i64 {SIZES}
  store ptr %sizes, ptr %sizes.word
{{opened}}  %site = call i64 @adze_deep(ptr @inside, ptr %buffers, ptr %sizes, ptr %arena, i64 %threads, ptr %failure)
{{closed}}  ret i64 %site"""

_OPENED = "  call void @adze_open(ptr %failure, i64 %threads)\n"  # for workers to help
_CLOSED = "  call void @adze_close(ptr %failure)\n"

# Of what is called once for all calls of the same sizes: to optimise it would take longer than it ever runs.
_ONCE = f"nounwind noinline {OPTNONE}"


class _Exported(Function):
    """A function that is called from outside, and starts from the sizes."""

    def __init__(self, unit: Unit, function: ir.Function) -> None:
        super().__init__(unit, Arena("%arena", "null", "0", {}), "%threads", "%failure")
        self.function = function
        for number, size in enumerate(function.sizes):
            place = self.body.value(f"getelementptr i64, ptr %sizes, i64 {number}")
            self.names[size] = one(i64, self.body.value(f"load i64, ptr {place}"))

    def prelude(self) -> None:
        """Bind what the extents of slots mention."""
        for let in self.unit.plan.prelude:
            self.statement(let)

    @property
    def head(self) -> int:
        """The bytes at the head of the arena: where each slot is, the end of those that are shared, the stride."""
        words = len(self.unit.plan.slots) + 2
        return -(-8 * words // ALIGNMENT) * ALIGNMENT

    def where_needed(self, slot: Slot, size: str) -> str:
        """The size of a slot, or 0 where the sizes of a call do not take the branch that needs it."""
        if slot.needed == ALWAYS:
            return size
        return self.body.value(f"select i1 {self.scalar(slot.needed)}, i64 {size}, i64 0")


class _Entry(_Exported):
    def emit(self) -> None:
        body, unit = self.body, self.unit
        self.words = iter(
            [
                body.value(f"getelementptr i8, ptr %failure, i64 {ALIGNMENT + 8 * word}")
                for word in range(2 * min(KEPT, len(unit.plan.dynamic)))
            ]
        )
        body.line("store i64 0, ptr %failure")
        self.word = body.value(f"load ptr, ptr {body.value(f'getelementptr i64, ptr %failure, i64 {TICK}')}")
        for number, buffer in enumerate((*self.function.arguments, *self.function.results)):
            place = body.value(f"getelementptr ptr, ptr %buffers, i64 {number}")
            self.place(buffer, body.value(f"load ptr, ptr {place}"))
        self.lasting |= {buffer.name for buffer in self.function.arguments}  # results may change
        shared = self.laid_out()
        first = len(self.function.arguments) + len(self.function.results)
        for number in range(self.function.returned):
            place = body.value(f"getelementptr ptr, ptr %buffers, i64 {first + number}")
            self.records.append(body.value(f"load ptr, ptr {place}"))
        canaries = [] if unit.bounds is None else self.canaries(unit.bounds)
        if unit.bounds is not None:
            behind = body.value(f"getelementptr i8, ptr %arena, i64 {self.head}")
            total = body.add(shared, body.multiply(self.arena.stride, self.threads))
            self.poison(behind, body.subtract(total, str(self.head)))
            for buffer in self.function.results:
                self.poison(self.places[buffer.name].pointer, self.filled_bytes(buffer))
        self.block(self.function.body)
        self.leave()
        for each in canaries:
            assert unit.bounds is not None
            self.look_at(*each, unit.bounds.canary())
        body.line(f"ret i64 {body.value('load i64, ptr %failure')}")
        self.apart.close()
        parameters = "ptr %buffers, ptr %sizes, ptr %arena, i64 %threads, ptr %failure"
        attributes = unit.attributes_of(body)
        if ir.invokes(self.function):
            unit.module.define("inside", f"define hidden i64 @inside({parameters}) {attributes} {{\n{body}\n}}")
            unit.module.declare("adze_deep", f"declare i64 @adze_deep(ptr, {_WITHOUT_NAMES}) nounwind")
            opened = closed = ""
            if forks(self.function):
                unit.module.declare("adze_open", "declare void @adze_open(ptr, i64) nounwind")
                unit.module.declare("adze_close", "declare void @adze_close(ptr) nounwind")
                opened, closed = _OPENED, _CLOSED
            text = _ON_ITS_STACK.format(opened=opened, closed=closed)
            unit.module.define("entry", f"define i64 @entry({parameters}) nounwind {{\n{text}\n}}")
        else:
            unit.module.define("entry", f"define i64 @entry({parameters}) {attributes} {{\n{body}\n}}")

    def laid_out(self) -> str:
        """Read the offsets of all slots; gives the end of those that are shared."""
        slots = self.unit.plan.slots
        if not slots:
            return str(self.head)
        *offsets, shared, self.arena.stride = [
            self.body.value(f"load i64, ptr {self.word_at('%arena', number)}") for number in range(len(slots) + 2)
        ]
        self.arena.offsets.update(enumerate(offsets))
        self.arena.private = self.body.value(f"getelementptr i8, ptr %arena, i64 {shared}")
        return shared

    def filled_bytes(self, buffer: ir.Buffer) -> str:
        """The bytes of an array's elements."""
        size = str(buffer.scalar.bytes)
        for extent in buffer.extents:
            length = self.body.value(f"call i64 @llvm.smax.i64(i64 {self.scalar(extent)}, i64 0)")
            size = self.body.multiply(size, length)
        return size

    def canaries(self, bounds: Bounds) -> list[tuple[bool, str, int, str]]:
        """The canaries: whether they are private, their offsets, the arrays that they are for, their bytes."""
        body, slots = self.body, self.unit.plan.slots
        self.prelude()
        found = [(False, str(self.head), bounds.numbers[slots[0].like.name], str(CANARY))] if slots else []
        for number, slot in enumerate(slots):
            own = self.where_needed(slot, self.own_bytes(slot.like, body.multiply))
            whole = self.where_needed(slot, self.bytes(slot.like, body.multiply))
            rest = body.add(body.subtract(whole, own), str(CANARY))
            behind = body.add(self.arena.offsets[number], own)
            found.append((slot.private, behind, bounds.numbers[slot.like.name], rest))
        return found

    def look_at(self, private: bool, offset: str, array: int, size: str, canary: str) -> None:
        """Tell of bytes of a canary that were written."""
        body, memory = self.body, self.arena.private if private else self.arena.base
        with body.loop("0", self.threads if private else "1", 1) as thread:
            place = body.add(body.multiply(thread, self.arena.stride), offset) if private else offset
            place = body.value(f"getelementptr i8, ptr {memory}, i64 {place}")
            body.line(f"call void @{canary}(ptr {self.failure}, i64 {array}, ptr {place}, i64 {size})")

    def keeping(self) -> tuple[str, str] | None:
        pointer, room = next(self.words, None), next(self.words, None)
        return None if pointer is None or room is None else (pointer, room)


class _OfSizes(_Exported):
    """A function that computes numbers from the sizes, all of them in its first block."""

    def __init__(self, unit: Unit, function: ir.Function) -> None:
        super().__init__(unit, function)
        self._found: dict[int, tuple[ir.Expression, Value]] = {}  # by ``id``

    def evaluate(self, expression: ir.Expression) -> Value:
        """Each part is computed once: what decides the branches is part of the extents of what these fill."""
        found = self._found.get(id(expression))
        if found is None:
            found = self._found[id(expression)] = expression, super().evaluate(expression)
        return found[1]


class _ArenaBytes(_OfSizes):
    def emit(self) -> None:
        """What does not fit into a word is more memory than there is."""
        body, module, slots = self.body, self.unit.module, self.unit.plan.slots
        words = len(slots) + 2 if slots else 0
        if slots:
            ends = self.pack()
            for number, end in enumerate(ends, len(slots)):
                body.line(f"store i64 {end}, ptr {self.word_at('%layout', number)}")
            body.line(f"ret i64 {self.added(ends[0], self.saturating(ends[1], '%threads'))}")
        else:
            body.line("ret i64 0")
        parameters = "ptr %sizes, i64 %threads, ptr %layout"
        module.define("arena_bytes", f"define i64 @arena_bytes({parameters}) {_ONCE} {{\n{body}\n}}")
        module.define("layout_words", f"define i64 @layout_words() {_ONCE} {{\n  ret i64 {words}\n}}")

    def pack(self) -> tuple[str, str]:
        """Find the offsets of all slots; gives the end of those that are shared, and the stride of private ones.

        Each slot ends with its canary. Where there are canaries, all slots live from the first statement on.
        """
        self.prelude()
        body, slots, has_canaries = self.body, self.unit.plan.slots, self.unit.bounds is not None
        canary, room = CANARY if has_canaries else 0, body.scratch(len(slots))
        sizes: dict[Hashable, str] = {}  # of many slots they are the same
        for number, slot in enumerate(slots):
            key = slot.like.scalar.bytes, slot.like.extents, slot.needed, slot.like.name in self.unit.unread
            if key not in sizes:
                size = self.where_needed(slot, self.bytes(slot.like, self.saturating))
                sizes[key] = self.added(size, str(canary)) if canary else size
            body.line(f"store i64 {sizes[key]}, ptr {self.word_at(room, number)}")
        lives = [f"i64 {word}" for slot in slots for word in ((0, 0) if has_canaries else (slot.first, slot.last))]
        self.unit.module.define("lives", f"@lives = internal constant [{len(lives)} x i64] [{', '.join(lives)}]")
        self.unit.module.declare("adze_pack", "declare i64 @adze_pack(ptr, i64, ptr, i64, ptr) nounwind")
        shared = sum(not slot.private for slot in slots)

        def packed(start: int, stop: int, base: str) -> str:
            """The end of some slots."""
            own = body.value(f"getelementptr [2 x i64], ptr @lives, i64 {start}")
            size, place = self.word_at(room, start), self.word_at("%layout", start)
            given = f"ptr {own}, i64 {stop - start}, ptr {size}, i64 {base}, ptr {place}"
            return body.value(f"call i64 @adze_pack({given})") if start < stop else base

        return packed(0, shared, str(self.head + canary)), packed(shared, len(slots), "0")


class _Needed(_OfSizes):
    def emit(self) -> None:
        body, branches = self.body, self.unit.branches
        for let in branches.prelude():
            self.statement(let)
        for number, test in enumerate(branches.tests):
            place = body.value(f"getelementptr i8, ptr %taken, i64 {number}")
            body.line(f"store i8 {body.value(f'zext i1 {self.scalar(test)} to i8')}, ptr {place}")
        body.line("ret void")
        self.unit.module.define("needed", f"define void @needed(ptr %sizes, ptr %taken) {_ONCE} {{\n{body}\n}}")
