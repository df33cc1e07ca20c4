"""What is invoked, as LLVM IR: procedures, jumps, and the cells of data.

A procedure is a function that takes the failure record, scalars, and the addresses of arrays, and gives scalars. These
travel in registers, as far as there are some; others are handed over in words that the failure record leads to, which
whoever is called reads before all else. It is called by the convention ``tailcc``, in which a jump is a call that takes
the place of its caller; with nothing on the stack that is so whatever both take. Cells are taken from the *region* of
the call, one after the other, and given back with it when the call has ended; those without fields are constants.

    cell      0 its tag               1, 2, ... its fields, eight bytes each: numbers, and addresses of cells and arrays
    region    0 the next free byte    1 the end of its newest chunk   (``stacks.py`` has the others)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.types import i64
from .. import ir
from .function import Emitter
from .text import register_type
from .unit import HANDED, OUT_OF_CELLS, REGION, Arena, Unit
from .values import one

_FLOATS = ("float", "double")
_VECTORS = {"float": 4, "double": 2}  # how many there are in a vector


@dataclass(frozen=True)
class Handed:
    """How scalars of some types travel: in registers, or in words."""

    types: tuple[str, ...]
    words: tuple[int | None, ...]  # by scalar; None: in a register

    @staticmethod
    def of(types: Sequence[str], integers: int, floats: int) -> Handed:
        """With so many registers of both kinds."""
        left, words, count = {True: floats, False: integers}, list[int | None](), 0
        for type in types:
            kind = type in _FLOATS
            if left[kind]:
                left[kind] -= 1
                words.append(None)
            else:
                words.append(count)
                count += 1
        return Handed(tuple(types), tuple(words))

    @property
    def in_registers(self) -> list[str]:
        """The types of those that do."""
        return [type for type, word in zip(self.types, self.words, strict=True) if word is None]

    @staticmethod
    def back(types: Sequence[str]) -> Handed:
        """As what functions give: with the registers that processors have for that."""
        return Handed.of(types, 3, 4)

    @property
    def returned(self) -> list[str]:
        """The types of those that do, as a function gives them.

        A convention of C gives back two floats at most on some processors, and four vectors: of more than two, each is
        the first number of a vector, which is the same register.
        """
        own = self.in_registers
        wide = sum([type in _FLOATS for type in own]) > 2
        return [f"<{_VECTORS[type]} x {type}>" if wide and type in _FLOATS else type for type in own]

    @property
    def result(self) -> str:
        """The type of a function that gives these."""
        own = self.returned
        return own[0] if len(own) == 1 else f"{{ {', '.join(own)} }}" if own else "void"


def given_to(procedure: ir.Function) -> Handed:
    """What a procedure takes behind the failure record."""
    taken = taken_by(procedure)
    return Handed.of([*[register_type(each.type) for each in taken.binds], *["ptr"] * len(taken.enters)], 5, 8)


def given_by(procedure: ir.Function) -> Handed:
    """What a procedure gives."""
    return Handed.back([register_type(value.type) for value in taken_by(procedure).values])


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
        self.last_calls: frozenset[int] = frozenset()  # the identities of those whose failures the caller sees

    def invoke(self, call: ir.Invoke) -> None:
        match call.kind:
            case "procedure":
                self._procedure(call)
            case "jump":
                self.jump(call)
            case "cell":
                self._cell_of(call)
            case "tag":
                self.names[call.name] = one(i64, self.body.value(f"load i64, ptr {self._word(call, 0)}"))
            case "fields":
                self._fields(call)
            case "place":
                word = self._word(call, 1 + call.places[0])
                self.names[call.name] = one(i64, self.body.value(f"ptrtoint ptr {word} to i64"))
            case "put":
                word = self.body.value(f"inttoptr i64 {self.scalar(call.values[0])} to ptr")
                self.to_word(register_type(call.values[1].type), self.scalar(call.values[1]), word)
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

    def given(self, call: ir.Invoke) -> list[str]:
        """What a call gives to its procedure: registers of scalars, words for what it writes, addresses of arrays."""
        kept, addresses = {buffer.name for buffer in ir.keeps(call, self.unit.kept)}, list[str]()
        for buffer in (*call.reads, *call.writes):
            addresses.append(self._lasting(buffer) if buffer.name in kept else self.places[buffer.name].pointer)
        slots = [self.body.slot("i64", 8) for _ in (call.binds if self._writes(call) else ())]
        words = [self.body.value(f"ptrtoint ptr {slot} to i64") for slot in slots]
        return [*map(self.scalar, call.values), *words, *addresses]

    def _writes(self, call: ir.Invoke) -> bool:
        """Whether the procedure writes what it gives."""
        return bool(call.binds) and not given_by(self.unit.procedures[call.number]).types

    def bind(self, call: ir.Invoke, given: Sequence[str], made: Sequence[str]) -> None:
        """What a procedure has given, or written to words that it was given."""
        if self._writes(call):
            words = given[len(call.values) :][: len(call.binds)]
            pointers = [self.body.value(f"inttoptr i64 {word} to ptr") for word in words]
            typed = zip(call.binds, pointers, strict=True)
            made = [self.from_word(register_type(variable.type), pointer) for variable, pointer in typed]
        for variable, part in zip(call.binds, made, strict=True):
            self.names[variable.name] = one(variable.type, part)

    def _text(self, number: int, given: Sequence[str]) -> str:
        """A call without what comes before it."""
        own = self.hand_over(given_to(self.unit.procedures[number]), given)
        arguments = ", ".join(["ptr " + self.failure, *[f"{type} {value}" for type, value in own]])
        result = given_by(self.unit.procedures[number]).result
        return f"call tailcc {result} @{self.unit.procedure_name(number)}({arguments})"

    def called(self, number: int, given: Sequence[str]) -> list[str]:
        """The registers that a procedure gives, which may have failed."""
        text, gives = self._text(number, given), given_by(self.unit.procedures[number])
        if gives.result == "void":
            self.body.line(text)
            return self.taken_over(gives, "")
        return self.taken_over(gives, self.body.value(text))

    def _procedure(self, call: ir.Invoke) -> None:
        given = self.given(call)
        self.bind(call, given, self.called(call.number, given))
        if id(call) not in self.last_calls:
            self.leave_if_stopped()

    def jump(self, call: ir.Invoke) -> None:
        """A call that takes the place of its caller."""
        text, result = self._text(call.number, self.given(call)), given_by(self.unit.procedures[call.number]).result
        if result == "void":
            self.body.line(f"musttail {text}")
            self.body.line("ret void")
        else:
            self.body.line(f"ret {result} {self.body.value(f'musttail {text}')}")
        self.body.label(self.body.name("behind"))

    def hand_over(self, handed: Handed, values: Sequence[str]) -> list[tuple[str, str]]:
        """Store what travels in words; gives the types and values of the rest."""
        own: list[tuple[str, str]] = []
        for type, word, value in zip(handed.types, handed.words, values, strict=True):
            if word is None:
                own.append((type, value))
            else:
                self.to_word(type, value, self._handed(word))
        return own

    def hand_back(self, handed: Handed, values: Sequence[str]) -> None:
        """Give values to a caller."""
        made = "poison"
        own = zip(self.hand_over(handed, values), handed.returned, strict=True)
        for number, ((type, value), returned) in enumerate(own):
            if returned != type:
                value = self.body.value(f"insertelement {returned} poison, {type} {value}, i64 0")
            if len(handed.returned) > 1:
                value = self.body.value(f"insertvalue {handed.result} {made}, {returned} {value}, {number}")
            made = value
        self.body.line(f"ret {handed.result} {made}" if handed.returned else "ret void")

    def taken_over(self, handed: Handed, made: str) -> list[str]:
        """The registers of what was given, some of it as the result of a call, some of it in words."""
        returned, found = iter(enumerate(handed.returned)), list[str]()
        for type, word in zip(handed.types, handed.words, strict=True):
            if word is not None:
                found.append(self.from_word(type, self._handed(word)))
                continue
            number, own = next(returned)
            value = made
            if len(handed.returned) > 1:
                value = self.body.value(f"extractvalue {handed.result} {made}, {number}")
            found.append(value if own == type else self.body.value(f"extractelement {own} {value}, i64 0"))
        return found

    def to_word(self, type: str, value: str, word: str) -> None:
        """Store the register of a value in a word."""
        if type == "i1":
            type, value = "i8", self.body.value(f"zext i1 {value} to i8")
        self.body.line(f"store {type} {value}, ptr {word}")

    def from_word(self, type: str, word: str) -> str:
        """What a word holds, of the type of a register."""
        if type == "i1":
            return self.body.value(f"trunc i8 {self.body.value(f'load i8, ptr {word}')} to i1")
        return self.body.value(f"load {type}, ptr {word}")

    def _handed(self, number: int) -> str:
        """The address of a word of what is handed over."""
        return self.word_of(self.shared_word(HANDED), number)

    def word_of(self, pointer: str, number: int) -> str:
        """The address of a word of some."""
        return self.body.value(f"getelementptr i64, ptr {pointer}, i64 {number}")

    # Cells

    def _word(self, call: ir.Invoke, number: int) -> str:
        """The address of a word of the cell that is opened."""
        cell = self.body.value(f"inttoptr i64 {self.scalar(call.values[0])} to ptr")
        return self.body.value(f"getelementptr i64, ptr {cell}, i64 {number}")

    def _fields(self, call: ir.Invoke) -> None:
        places = iter(call.places)
        for variable in call.binds:
            word = self._word(call, 1 + next(places))
            self.names[variable.name] = one(variable.type, self.from_word(register_type(variable.type), word))
        for buffer in call.enters:
            pointer = self.body.value(f"load ptr, ptr {self._word(call, 1 + next(places))}")
            self.place(buffer, pointer)
            self.lasting.add(buffer.name)

    def _cell_of(self, call: ir.Invoke) -> None:
        if not call.places:
            self.names[call.name] = one(i64, self._cell_without_fields(call.number))
            return
        arrays = [self._lasting(buffer) for buffer in call.reads]
        cell = self._room_in_region(str(8 * (1 + len(call.places))))
        self.body.line(f"store i64 {call.number}, ptr {cell}")
        held = [(register_type(value.type), self.scalar(value)) for value in call.values]
        held += [("ptr", pointer) for pointer in arrays]
        for place, (type, value) in zip(call.places, held, strict=True):
            self.to_word(type, value, self.body.value(f"getelementptr i64, ptr {cell}, i64 {1 + place}"))
        self.names[call.name] = one(i64, self.body.value(f"ptrtoint ptr {cell} to i64"))

    def _cell_without_fields(self, tag: int) -> str:
        """The address of the one cell of a tag that has no fields."""
        name = f"cell.{tag}"
        self.unit.module.define(name, f"@{name} = internal unnamed_addr constant i64 {tag}, align 8")
        return self.body.value(f"ptrtoint ptr @{name} to i64")

    def _lasting(self, buffer: ir.Buffer) -> str:
        """Where the elements of an array are as long as cells are: a copy, if they are not so already."""
        pointer = self.places[buffer.name].pointer
        if buffer.name in self.lasting:
            return pointer
        copy, size = self.lasting_room(buffer)
        self.body.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {copy}, ptr {pointer}, i64 {size}, i1 false)")
        return copy

    def lasting_room(self, buffer: ir.Buffer) -> tuple[str, str]:
        """Where an array has room in the region, and its bytes. It begins with a cache line, as vectors like it."""
        size = str(buffer.scalar.bytes)
        for extent in buffer.extents:
            length = self.body.value(f"call i64 @llvm.smax.i64(i64 {self.scalar(extent)}, i64 1)")
            size = self.body.multiply(size, length)
        start = self._room_in_region(self.body.multiply(self.body.divide(self.body.add(size, "127"), 64), "64"))
        line = self.body.add(self.body.value(f"ptrtoint ptr {start} to i64"), "63")
        return self.body.value(f"inttoptr i64 {self.body.value(f'and i64 {line}, -64')} to ptr"), size

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
        body.line(f"store i64 {OUT_OF_CELLS}, ptr {self.failure}")
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
