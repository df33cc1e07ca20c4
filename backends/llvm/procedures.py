"""Procedures as LLVM functions.

Each is called by itself and by others, as deep as the stack reaches (``stacks.py``). Where it begins it looks how deep
that is, and whether there is a signal. Its temporary arrays are on the stack, too. Sizes and constants it finds by the
failure record, which all functions of a run share.

Behind a call it looks whether that has failed. It does not where nothing follows but arithmetic: what is computed then
of numbers that mean nothing is given to the caller, who looks. ::

    let t: f64 = call 0 on rest       a failure is left to the caller
    let s = t + x * y
    give s
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...core.types import i64
from .. import ir
from .function import Emitter
from .invocations import given_by, given_to, taken_by
from .outlining import Function
from .unfolding import unfolded
from .unit import ALIGNMENT, BUFFERS, SIZES, STACK, TICK, Arena, Unit
from .values import one

_PARAMETERS = tuple([f"%given.{number}" for number in range(16)])  # more than there are registers
_SMALL = 4096  # bytes of an array that has its place in the frame of a procedure


class ProcedureEmitter(Function):
    """Emits a procedure."""

    def __init__(self, unit: Unit, around: ir.Function, number: int, copied: bool = False) -> None:
        super().__init__(unit, Arena("null", "null", "0", {}), "1", "%failure")
        self.function, self.number, self.copied = around.procedures[number], number, copied
        self.repeated: list[str] = []  # where it finds what it is given, if it goes on with itself in one frame
        self.head = ""  # the label behind which it looks there
        self.taken = taken_by(self.function)
        self.made_to_last = ir.made_to_last(self.function.body, unit.kept)
        self.last_calls = frozenset(map(id, _last_calls(self.function.body)))
        self._numbers = {buffer.name: k for k, buffer in enumerate((*around.arguments, *around.results))}

    def text(self) -> str:
        """The function."""
        body, function = self.body, self.function
        self.word = self.shared_word(TICK)
        sizes, buffers = self.shared_word(SIZES), self.shared_word(BUFFERS)
        for number, size in enumerate(function.sizes):
            self.names[size] = one(i64, body.value(f"load i64, ptr {self.word_at(sizes, number)}"))
        for buffer in function.arguments:
            self.place(buffer, body.value(f"load ptr, ptr {self.word_at(buffers, self._numbers[buffer.name])}"))
            self.lasting.add(buffer.name)
        Emitter.block(self, function.body)
        body.line("unreachable")
        if self.may_leave:
            body.label("exit")
            self.give([self.scalar(value) for value in self.taken.values], last=True)
        self.apart.close()
        given = [f", {type} {name}" for type, name in zip(given_to(function).in_registers, _PARAMETERS, strict=False)]
        head = f"define hidden tailcc {given_by(function).result} @{self.unit.procedure_name(self.number)}"
        # without loops there are no vectors, whose aligned stack would cost each frame as much as all else
        attributes = self.unit.attributes if ir.contains(function.body, ir.For) else "nounwind"
        return f"{head}(ptr %failure{''.join(given)}) {attributes} {{\n{body}\n}}"

    def take(self, call: ir.Invoke) -> None:
        handed, names = given_to(self.function), iter(_PARAMETERS)
        taken = [
            next(names) if word is None else self.from_word(type, self._handed(word))
            for type, word in zip(handed.types, handed.words, strict=True)
        ]
        if not self.copied:
            self._expect_room("0")
        if self._repeats():
            taken = self._repeat(handed.types, taken)
        count = len(call.binds)
        for variable, value in zip(call.binds, taken[:count], strict=True):
            self.names[variable.name] = one(variable.type, value)
        for number, (buffer, value) in enumerate(zip(call.enters, taken[count:], strict=True)):
            self.place(buffer, value)
            if number in self.unit.kept[self.number]:
                self.lasting.add(buffer.name)
        if self.repeated or not self.copied:
            self.look()

    def _repeats(self) -> bool:
        """Whether it goes on with itself, and no memory of its own is in the way."""
        if self.taken.enters or ir.contains(self.function.body, ir.Allocate):
            return False
        own = (self.number, "jump")
        return any((each.number, each.kind) == own for each in ir.of_kind(self.function.body, ir.Invoke))

    def _repeat(self, types: Sequence[str], taken: Sequence[str]) -> list[str]:
        """Begin what is repeated; gives what it is given then."""
        self.repeated = [self.body.slot(type, 8) for type in types]
        self.head = self.body.name("again")
        self._again(types, taken)
        self.body.repeats = True
        self.body.label(self.head)
        return [self.body.value(f"load {type}, ptr {slot}") for type, slot in zip(types, self.repeated, strict=True)]

    def _again(self, types: Sequence[str], values: Sequence[str]) -> None:
        for type, value, slot in zip(types, values, self.repeated, strict=True):
            self.body.line(f"store {type} {value}, ptr {slot}")
        self.body.branch(self.head)

    def jump(self, call: ir.Invoke) -> None:
        if call.number != self.number or not self.repeated:
            super().jump(call)
            return
        self._again(given_to(self.function).types, self.given(call))
        self.body.label(self.body.name("behind"))

    def give(self, values: Sequence[str], last: bool = False) -> None:
        self.hand_back(given_by(self.function), values)
        if not last:
            self.body.label(self.body.name("behind"))

    def _expect_room(self, size: str) -> None:
        """Fail where the stack has no room for so many bytes."""
        body = self.body
        limit = body.value(f"ptrtoint ptr {self.shared_word(STACK)} to i64")
        here = body.value(f"ptrtoint ptr {body.value('call ptr @llvm.stacksave.p0()')} to i64")
        deep, after = body.name("deep"), body.name("after")
        fits = body.value(f"icmp sgt i64 {body.subtract(here, limit)}, {size}")
        body.line(f"br i1 {fits}, label %{after}, label %{deep}")
        body.label(deep)
        wanted = body.subtract(here, size)
        end = body.value(f"call preserve_mostcc i64 @{self.unit.deeper()}(ptr {self.failure}, i64 {wanted})")
        self._require(body.value(f"icmp sgt i64 {body.subtract(here, end)}, {size}"), self.taken.number, ())
        body.branch(after)
        body.label(after)

    # Temporary arrays

    def allocate(self, buffer: ir.Buffer) -> None:
        """A temporary is on the stack, unless a cell keeps it."""
        if buffer.name in self.made_to_last:
            self.place(buffer, self.lasting_room(buffer)[0])
            self.lasting.add(buffer.name)
            return
        extents = [each.value for each in buffer.extents if isinstance(each, ir.Constant)]
        size = buffer.scalar.bytes
        for extent in extents:
            size *= max(1, int(extent))
        if len(extents) == len(buffer.extents) and size <= _SMALL:
            pointer = self.body.slot(f"[{size} x i8]", ALIGNMENT)
        else:
            needed = self.bytes(buffer, self.saturating)
            self._expect_room(needed)
            pointer = self.body.value(f"alloca i8, i64 {needed}, align {ALIGNMENT}")
        self.place(buffer, pointer)

    def block(self, block: ir.Block) -> None:
        """What a block inside allocates goes at its end."""
        if not any(isinstance(each, ir.Allocate) for each in block) or isinstance(block[-1], ir.Invoke):
            Emitter.block(self, block)
            return
        stack = self.body.value("call ptr @llvm.stacksave.p0()")
        Emitter.block(self, block)
        self.body.line(f"call void @llvm.stackrestore.p0(ptr {stack})")

    def parallel(self, loop: ir.For) -> None:
        raise AssertionError("a procedure has no parallel loops")


def _last_calls(block: ir.Block) -> Iterator[ir.Invoke]:
    """The calls of procedures that nothing follows but arithmetic, and the end."""
    for number, each in enumerate(block):
        if isinstance(each, ir.If):
            yield from _last_calls(each.then)
            yield from _last_calls(each.orelse)
        if isinstance(each, ir.Invoke) and each.kind == "procedure" and isinstance(block[-1], ir.Invoke):
            between = block[number + 1 : -1]
            if block[-1].kind == "give" and all([isinstance(x, ir.Let) and not list(ir.loads(x)) for x in between]):
                yield each


def emit_procedures(unit: Unit, function: ir.Function) -> None:
    """Emit the procedures of a program's function into its module."""

    def text(number: int, copied: bool = False) -> str:
        return ProcedureEmitter(unit.of_procedure(function.procedures[number]), function, number, copied).text()

    short: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for number, procedure in enumerate(function.procedures):
        name = unit.procedure_name(number)
        numbers[name], own = number, text(number)
        unit.module.define(name, own)
        if unit.machine.target.transformations.unfold and not ir.contains(procedure.body, ir.For):
            short[name] = own
    for name, own in unfolded(short, lambda name: text(numbers[name], copied=True)).items():
        unit.module.define(name, own)
