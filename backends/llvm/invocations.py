"""What is invoked, as LLVM IR: procedures, jumps, and the cells of data.

A procedure is a function that takes the failure record, scalars, and the addresses of arrays, and gives scalars; all of
these travel in registers, as many as there are. It is called by the convention ``tailcc``, in which a jump is a call
that takes the place of its caller, whatever both take. Cells are taken from the *region* of the call, one after the
other, and given back with it when the call has ended.

    cell      0 which variant it is   1, 2, ... its fields, eight bytes each: numbers, and addresses of cells and arrays
    region    0 the next free byte    1 the end of its newest chunk   (``stacks.py`` has the others)
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.types import Scalar, bool_, i64
from .. import ir
from .function import Emitter
from .text import register_type
from .unit import OUT_OF_MEMORY, REGION, Arena, Unit
from .values import one


def signature(procedure: ir.Function) -> tuple[list[str], str]:
    """The types of what a procedure takes behind the failure record, and of what it gives."""
    taken = taken_by(procedure)
    given = [register_type(value.type) for value in taken.values]
    result = given[0] if len(given) == 1 else f"{{ {', '.join(given)} }}" if given else "void"
    return [*[register_type(each.type) for each in taken.binds], *["ptr"] * len(taken.enters)], result


def taken_by(procedure: ir.Function) -> ir.Invoke:
    """How a procedure begins."""
    first = next(each for each in procedure.body if isinstance(each, ir.Invoke))
    assert first.kind == "take"
    return first


class Invocations(Emitter):
    """Emits a function that invokes procedures."""

    def __init__(self, unit: Unit, arena: Arena, threads: str, failure: str) -> None:
        super().__init__(unit, arena, threads, failure)
        self.lasting: set[str] = set()  # the buffers whose memory lasts as long as cells do

    def invoke(self, call: ir.Invoke) -> None:
        match call.kind:
            case "procedure":
                self._procedure(call)
            case "jump":
                self._jump(call)
            case "cell":
                self._cell_of(call)
            case "tag":
                self.names[call.name] = one(i64, self.body.value(f"load i64, ptr {self._word(call, 0)}"))
            case "fields":
                self._fields(call)
            case "give":
                self.give([self.scalar(value) for value in call.values])
            case "take":
                self.take(call)
        self.names.setdefault(call.name, one(i64, "0"))

    def take(self, call: ir.Invoke) -> None:
        raise AssertionError("only a procedure is given something")

    def give(self, values: Sequence[str]) -> None:
        raise AssertionError("only a procedure gives something")

    # Calls

    def _called(self, call: ir.Invoke) -> tuple[str, str]:
        """A call without what comes before it, and the type that it gives."""
        types, result = signature(self.unit.procedures[call.number])
        given = [*map(self.scalar, call.values), *[self.places[b.name].pointer for b in (*call.reads, *call.writes)]]
        arguments = ", ".join([f"{type} {value}" for type, value in zip(types, given, strict=True)])
        return f"call tailcc {result} @{self.unit.procedure_name(call.number)}(ptr {self.failure}, {arguments})", result

    def _procedure(self, call: ir.Invoke) -> None:
        text, result = self._called(call)
        if result == "void":
            self.body.line(text)
        else:
            made = self.body.value(text)
            for number, variable in enumerate(call.binds):
                part = made if len(call.binds) == 1 else self.body.value(f"extractvalue {result} {made}, {number}")
                self.names[variable.name] = one(variable.type, part)
        self.leave_if_stopped()

    def _jump(self, call: ir.Invoke) -> None:
        text, result = self._called(call)
        if result == "void":
            self.body.line(f"musttail {text}")
            self.body.line("ret void")
        else:
            self.body.line(f"ret {result} {self.body.value(f'musttail {text}')}")
        self.body.label(self.body.name("behind"))

    # Cells

    def _word(self, call: ir.Invoke, number: int) -> str:
        """The address of a word of the cell that is opened."""
        cell = self.body.value(f"inttoptr i64 {self.scalar(call.values[0])} to ptr")
        return self.body.value(f"getelementptr i64, ptr {cell}, i64 {number}")

    def _fields(self, call: ir.Invoke) -> None:
        places = iter(call.places)
        for variable in call.binds:
            word = self._word(call, 1 + next(places))
            self.names[variable.name] = one(variable.type, self._loaded(variable.type, word))
        for buffer in call.enters:
            pointer = self.body.value(f"load ptr, ptr {self._word(call, 1 + next(places))}")
            self.place(buffer, pointer, buffer.name)
            self.lasting.add(buffer.name)

    def _loaded(self, scalar: Scalar, word: str) -> str:
        if scalar is bool_:
            return self.body.value(f"trunc i8 {self.body.value(f'load i8, ptr {word}')} to i1")
        return self.body.value(f"load {register_type(scalar)}, ptr {word}")

    def _cell_of(self, call: ir.Invoke) -> None:
        arrays = [self._lasting(buffer) for buffer in call.reads]
        cell = self._room_in_region(str(8 * (1 + len(call.places))))
        self.body.line(f"store i64 {call.number}, ptr {cell}")
        held = [(value.type, self.scalar(value)) for value in call.values] + [(None, pointer) for pointer in arrays]
        for place, (scalar, value) in zip(call.places, held, strict=True):
            word = self.body.value(f"getelementptr i64, ptr {cell}, i64 {1 + place}")
            if scalar is bool_:
                self.body.line(f"store i8 {self.body.value(f'zext i1 {value} to i8')}, ptr {word}")
            else:
                self.body.line(f"store {'ptr' if scalar is None else register_type(scalar)} {value}, ptr {word}")
        self.names[call.name] = one(i64, self.body.value(f"ptrtoint ptr {cell} to i64"))

    def _lasting(self, buffer: ir.Buffer) -> str:
        """Where the elements of an array are as long as cells are: a copy, if they are not so already."""
        pointer = self.places[buffer.name].pointer
        if buffer.name in self.lasting:
            return pointer
        size = str(buffer.scalar.bytes)
        for extent in buffer.extents:
            length = self.body.value(f"call i64 @llvm.smax.i64(i64 {self.scalar(extent)}, i64 1)")
            size = self.body.multiply(size, length)
        padded = self.body.multiply(self.body.divide(self.body.add(size, "63"), 64), "64")
        copy = self._room_in_region(padded)
        self.body.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {copy}, ptr {pointer}, i64 {size}, i1 false)")
        return copy

    def _room_in_region(self, size: str) -> str:
        """The address of so many bytes of the region."""
        body = self.body
        self.may_leave = True
        self.unit.module.declare("adze_room", "declare ptr @adze_room(ptr, i64) nounwind")
        region = self.shared_word(REGION)
        start = body.value(f"load ptr, ptr {region}")
        end = body.value(f"load ptr, ptr {body.value(f'getelementptr i64, ptr {region}, i64 1')}")
        left = body.subtract(body.value(f"ptrtoint ptr {end} to i64"), body.value(f"ptrtoint ptr {start} to i64"))
        fits, full, missing, found = (body.name(part) for part in ("fits", "full", "missing", "room"))
        body.line(f"br i1 {body.value(f'icmp ule i64 {size}, {left}')}, label %{fits}, label %{full}")
        body.label(full)
        fresh = body.value(f"call ptr @adze_room(ptr {region}, i64 {size})")
        body.line(f"br i1 {body.value(f'icmp eq ptr {fresh}, null')}, label %{missing}, label %{found}")
        body.label(missing)
        body.line(f"store i64 {OUT_OF_MEMORY}, ptr {self.failure}")
        body.branch("exit")
        body.label(fits)
        body.line(f"store ptr {body.value(f'getelementptr i8, ptr {start}, i64 {size}')}, ptr {region}")
        body.branch(found)
        body.label(found)
        return body.value(f"phi ptr [ {start}, %{fits} ], [ {fresh}, %{full} ]")

    def shared_word(self, number: int) -> str:
        """The address in a word of the failure record."""
        word = self.body.value(f"getelementptr i64, ptr {self.failure}, i64 {number}")
        return self.body.value(f"load ptr, ptr {word}")
