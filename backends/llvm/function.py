"""The statements and expressions of the loop IR as the text of one LLVM function.

Structured control flow becomes blocks; immutable names become registers, mutable ones stack slots that LLVM turns
into registers again. What surrounds a statement (strips and copies) is kept in a :class:`Widening`; what is
moved out into functions of its own, parallel loops and parts of long blocks, is in ``regions.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...core.types import Scalar, i64
from ..loops import (
    Allocate,
    Apply,
    Assign,
    Block,
    Buffer,
    Constant,
    Declare,
    Expression,
    For,
    If,
    Let,
    Load,
    MultiplyAdd,
    Reduction,
    Require,
    Select,
    Statement,
    Store,
    Variable,
)
from ..loops_walk import varying
from ..memory import Plan
from .access import Access, Place, Regions
from .host import Machine
from .spelling import Speller
from .text import Body, Module, constant, iota, literal, register_type, suffix
from .values import Axis, Strip, Value, Widening, one, slice_of, splat

_FAIL = """\
define internal void @fail(ptr %record, i64 %site, i64 %a, i64 %b, i64 %c, i64 %d) cold noinline nounwind {
  %old = cmpxchg ptr %record, i64 0, i64 %site monotonic monotonic
  %first = extractvalue { i64, i1 } %old, 1
  br i1 %first, label %write, label %end
write:
  %values = getelementptr i64, ptr %record, i64 1
  store i64 %a, ptr %values
  %values.1 = getelementptr i64, ptr %record, i64 2
  store i64 %b, ptr %values.1
  %values.2 = getelementptr i64, ptr %record, i64 3
  store i64 %c, ptr %values.2
  %values.3 = getelementptr i64, ptr %record, i64 4
  store i64 %d, ptr %values.3
  br label %end
end:
  ret void
}"""

Combiner = Callable[[str, str, int], str]


@dataclass(frozen=True)
class Cell:
    """A mutable variable: one stack slot a copy, of scalars or of vectors; or a word of an array in memory."""

    scalar: Scalar
    slots: tuple[str, ...]
    axes: tuple[Axis, ...] = ()
    lanes: int = 0
    guarded: bool = False  # lanes that are off keep their value
    word: int | None = None  # in the array at the slot


@dataclass
class Arena:
    """How a function finds the slots of the arena: offsets from one base, or from another for private slots."""

    base: str
    private: str
    stride: str  # between the private slots of one thread and the next
    offsets: dict[int, str]


class Unit:
    """A module under construction, and what all its functions share."""

    def __init__(self, plan: Plan, machine: Machine) -> None:
        self.plan, self.machine = plan, machine
        self.module = Module()
        self._varying: dict[int, frozenset[int]] = {}
        self._count = 0

    def varying(self, loop: For) -> frozenset[int]:
        if id(loop) not in self._varying:
            self._varying[id(loop)] = varying(loop)
        return self._varying[id(loop)]

    def fresh(self, kind: str) -> str:
        """The name of another function of the module."""
        self._count += 1
        return f"{kind}.{self._count}"


class Emitter:
    """Emits statements into one function."""

    def __init__(self, unit: Unit, arena: Arena, threads: str, failure: str) -> None:
        self.unit, self.arena, self.threads, self.failure = unit, arena, threads, failure
        self.body = Body()
        self.widening = Widening(self.body)
        self.regions = Regions(unit.module)
        self.access = Access(self.widening, self.regions)
        self.speller = Speller(unit.module, self.body, unit.machine.routine)
        self.names: dict[str, Value | Cell] = {}
        self.places: dict[str, Place] = {}
        self._varying: dict[Axis | None, frozenset[int]] = {}  # by jam axis; None: the strip

    # Statements

    def block(self, block: Block) -> None:
        for statement in block:
            self.statement(statement)
        self.forget(block)

    def forget(self, block: Block) -> None:
        """Names bound in a block are not in scope after it."""
        for statement in block:
            if isinstance(statement, Let | Declare):
                self.names.pop(statement.name, None)

    def statement(self, statement: Statement) -> None:
        match statement:
            case Let(name, value):
                self.names[name] = self.evaluate(value)
            case Declare(name, initial):
                self.names[name] = cell = self._cell(statement, initial.type)
                self._assign(cell, self.evaluate(initial))
            case Assign(name, value):
                self.assign(name, value)
            case Store(buffer, indices, value):
                places = [self.evaluate(index) for index in indices]
                self.access.store(buffer, self.places[buffer.name], places, self.evaluate(value))
            case Allocate(buffer):
                self.allocate(buffer)
            case For():
                self._loop(statement)
            case If():
                self._if(statement)
            case Require(test, site, values):
                self._require(self.scalar(test), site, [self.scalar(value) for value in values])

    def assign(self, name: str, value: Expression) -> None:
        """Give a variable another value."""
        self._assign(self._mutable(name), self.evaluate(value))

    def _mutable(self, name: str) -> Cell:
        cell = self.names[name]
        assert isinstance(cell, Cell)
        return cell

    def _cell(self, statement: Declare, scalar: Scalar) -> Cell:
        axes = tuple(axis for axis in self.widening.axes if id(statement) in self._varying[axis])
        strip = self.widening.strip
        lanes = strip.lanes if strip and id(statement) in self._varying[None] else 0
        return self._cells(scalar, axes, lanes)

    def _cells(self, scalar: Scalar, axes: tuple[Axis, ...], lanes: int, guarded: bool = False) -> Cell:
        copies = 1
        for axis in axes:
            copies *= axis.factor
        type = register_type(scalar, lanes)
        return Cell(scalar, tuple(self.body.slot(type) for _ in range(copies)), axes, lanes, guarded)

    def _assign(self, cell: Cell, value: Value) -> None:
        if cell.lanes:
            value = self.widening.vector(value)
        assert cell.lanes == value.lanes and value.uniform == (not value.lanes)
        type = register_type(cell.scalar, cell.lanes)
        for slot, part in zip(self._addresses(cell), value.along(cell.axes)):
            if cell.guarded and self.widening.strip and (mask := self.widening.strip.mask):
                old = self.body.value(f"load {type}, ptr {slot}")
                part = self.body.value(f"select <{cell.lanes} x i1> {mask}, {type} {part}, {type} {old}")
            self.body.line(f"store {type} {part}, ptr {slot}")

    def _if(self, statement: If) -> None:
        test = self.scalar(statement.test)
        then, orelse, after = (self.body.name(part) for part in ("then", "else", "after"))
        self.body.line(f"br i1 {test}, label %{then}, label %{orelse if statement.orelse else after}")
        self.body.label(then)
        self.block(statement.then)
        self.body.branch(after)
        if statement.orelse:
            self.body.label(orelse)
            self.block(statement.orelse)
            self.body.branch(after)
        self.body.label(after)

    def _require(self, test: str, site: int, values: Sequence[str]) -> None:
        if test == "true":
            return
        fail, after = self.body.name("fail"), self.body.name("after")
        self.body.line(f"br i1 {test}, label %{after}, label %{fail}")
        self.body.label(fail)
        record = [str(site + 1), *values, *["0"] * (4 - len(values))]
        if not self.unit.module.defines("fail"):
            self.unit.module.define("fail", _FAIL)
        self.body.line(f"call void @fail(ptr {self.failure}, " + ", ".join(f"i64 {word}" for word in record) + ")")
        self.body.branch(after)
        self.body.label(after)

    # Buffers

    def allocate(self, buffer: Buffer) -> None:
        """Enter a temporary with its address."""
        slot = self.unit.plan.slot_of[buffer.name]
        private = self.unit.plan.slots[slot].private
        pointer = self.body.value(
            f"getelementptr inbounds i8, ptr {self.arena.private if private else self.arena.base}, "
            f"i64 {self.arena.offsets[slot]}"
        )
        self.place(buffer, pointer, f"slot {slot}")

    def place(self, buffer: Buffer, pointer: str, region: str) -> None:
        """Enter a buffer with its address."""
        self.places[buffer.name] = Place(pointer, self.strides(buffer)[1:], region)

    def strides(self, buffer: Buffer) -> tuple[str, ...]:
        """The number of a buffer's elements, then the stride of each dimension."""
        strides = ["1"]
        for extent in reversed(buffer.extents):
            strides.append(self.body.multiply(strides[-1], self.scalar(extent)))
        return tuple(reversed(strides))

    # Loops

    def _loop(self, loop: For) -> None:
        match loop.kind:
            case "sequential":
                with self.body.loop("0", self.scalar(loop.extent), 1, loop.variable) as i:
                    self.iteration(loop, one(i64, i))
            case "jam":
                self._jam(loop)
            case "lanes":
                self._lanes(loop)
            case "parallel":
                self.parallel(loop)

    def parallel(self, loop: For) -> None:
        """Run the iterations of a loop on several threads."""
        raise NotImplementedError

    def iteration(self, loop: For, variable: Value) -> None:
        """The body of a loop for one value of its variable, or for several side by side."""
        self.names[loop.variable] = variable
        self.block(loop.body)
        del self.names[loop.variable]

    def _jam(self, loop: For) -> None:
        extent = self.scalar(loop.extent)
        whole = self.body.whole(extent, loop.factor)
        if whole != "0":
            axis = Axis(len(self.widening.axes), loop.factor)
            self.widening.axes.append(axis)
            self._varying[axis] = self.unit.varying(loop)
            with self.body.loop("0", whole, loop.factor, loop.variable) as i:
                copies = tuple(self.body.add(i, str(number)) for number in range(loop.factor))
                self.iteration(loop, Value(i64, copies, (axis,)))
            self.widening.axes.pop()
        if whole != extent:
            with self.body.loop(whole, extent, 1, loop.variable) as i:
                self.iteration(loop, one(i64, i))

    def _lanes(self, loop: For) -> None:
        """Whole strips, then the rest in strips of one register, of which the last may be partly off."""
        extent = self.scalar(loop.extent)
        whole = self.body.whole(extent, loop.factor)
        self._varying[None] = self.unit.varying(loop)
        outer = {reduction.name: self._mutable(reduction.name) for reduction in loop.reductions}
        partial: list[dict[str, Cell]] = []
        narrow = min(loop.factor, self.unit.machine.strip(loop))
        size = literal(extent)
        ragged = size is None or size % narrow != 0
        for lanes, start, stop, masked in ((loop.factor, "0", whole, False), (narrow, whole, extent, ragged)):
            if start == stop:
                continue
            self.widening.strip = Strip(lanes)
            cells = {reduction.name: self._neutral(reduction, outer[reduction.name]) for reduction in loop.reductions}
            partial.append(cells)
            self.names.update(cells)
            with self.body.loop(start, stop, lanes, loop.variable) as i:
                if masked:
                    self.widening.strip.mask = self._mask(lanes, i, stop)
                self.iteration(loop, Value(i64, (i,), stride=1))
        self.widening.strip = None
        self.names.update(outer)
        for reduction in loop.reductions:
            self._combine(reduction, [cells[reduction.name] for cells in partial])

    def _mask(self, lanes: int, i: str, stop: str) -> str:
        left = splat(self.body, "i64", self.body.subtract(stop, i), lanes)
        return self.body.value(f"icmp slt <{lanes} x i64> {iota(lanes)}, {left}")

    def _neutral(self, reduction: Reduction, cell: Cell) -> Cell:
        """Partial results of all lanes, from the neutral element."""
        partial = self._cells(cell.scalar, cell.axes, self.widening.lanes, guarded=True)
        type, element = register_type(cell.scalar, partial.lanes), register_type(cell.scalar)
        neutral = splat(self.body, element, constant(reduction.neutral.value, cell.scalar), partial.lanes)
        for slot in partial.slots:
            self.body.line(f"store {type} {neutral}, ptr {slot}")
        return partial

    def _combine(self, reduction: Reduction, partial: list[Cell]) -> None:
        """Halve the lanes until one is left, taking in the narrower vector of the tail on the way."""
        cell = self._mutable(reduction.name)
        scalar = cell.scalar
        element = register_type(scalar)

        def apply(a: str, b: str, lanes: int) -> str:
            return self.speller.apply(reduction.primitive, (scalar, scalar), scalar, (a, b), lanes)

        for number, slot in enumerate(cell.slots):
            total, lanes = "", 0
            for each in partial:
                vector = self.body.value(f"load {register_type(scalar, each.lanes)}, ptr {each.slots[number]}")
                if total:
                    total, lanes = self._halve(apply, element, total, lanes, each.lanes), each.lanes
                    total = apply(total, vector, lanes)
                else:
                    total, lanes = vector, each.lanes
            if not total:
                continue
            total = self._halve(apply, element, total, lanes, 1)
            last = self.body.value(f"extractelement <1 x {element}> {total}, i64 0")
            before = self.body.value(f"load {element}, ptr {slot}")
            self.body.line(f"store {element} {apply(before, last, 0)}, ptr {slot}")

    def _halve(self, apply: Combiner, element: str, vector: str, lanes: int, wanted: int) -> str:
        while lanes > wanted:
            half = lanes // 2
            low = slice_of(self.body, element, vector, lanes, range(half))
            high = slice_of(self.body, element, vector, lanes, range(half, lanes))
            vector, lanes = apply(low, high, half), half
        return vector

    # Expressions

    def scalar(self, expression: Expression) -> str:
        """The register of an expression that varies with no loop that is being widened."""
        value = self.evaluate(expression)
        assert value.uniform and not value.axes, f"{expression} varies with a lanes or jam loop"
        return value.parts[0]

    def evaluate(self, expression: Expression) -> Value:
        match expression:
            case Constant(value, type):
                return one(type, constant(value, type))
            case Variable(name):
                return self.read(self.names[name])
            case Load(buffer, indices):
                places = [self.evaluate(index) for index in indices]
                return self.access.load(buffer, self.places[buffer.name], places)
            case MultiplyAdd(a, b, c, type):
                return self._call("fma", type, [self.evaluate(operand) for operand in (a, b, c)])
            case Select(test, then, orelse, type):
                return self._select(type, self.evaluate(test), self.evaluate(then), self.evaluate(orelse))
            case Apply():
                return self._apply(expression)

    def read(self, found: Value | Cell) -> Value:
        """What a name stands for, now."""
        if isinstance(found, Value):
            return found
        cell = found
        type = register_type(cell.scalar, cell.lanes)
        parts = tuple(self.body.value(f"load {type}, ptr {slot}") for slot in self._addresses(cell))
        return Value(cell.scalar, parts, cell.axes, cell.lanes)

    def _addresses(self, cell: Cell) -> tuple[str, ...]:
        if cell.word is None:
            return cell.slots
        return (self.body.value(f"getelementptr i64, ptr {cell.slots[0]}, i64 {cell.word}"),)

    def _call(self, intrinsic: str, type: Scalar, values: list[Value]) -> Value:
        def call(parts: Sequence[str], lanes: int) -> str:
            name = register_type(type, lanes)
            arguments = ", ".join(f"{name} {part}" for part in parts)
            return self.body.value(f"call {name} @llvm.{intrinsic}.{suffix(type, lanes)}({arguments})")

        return self.widening.lift(type, values, call)

    def _select(self, type: Scalar, test: Value, then: Value, orelse: Value) -> Value:
        def select(parts: Sequence[str], lanes: int) -> str:
            mask, name = f"<{lanes} x i1>" if lanes else "i1", register_type(type, lanes)
            return self.body.value(f"select {mask} {parts[0]}, {name} {parts[1]}, {name} {parts[2]}")

        return self.widening.lift(type, [test, then, orelse], select)

    def _apply(self, expression: Apply) -> Value:
        primitive, type = expression.primitive, expression.type
        values = [self.evaluate(argument) for argument in expression.arguments]
        if type == i64 and not any(value.lanes for value in values):
            match primitive.name:
                case "add":
                    return self.widening.add(*values)
                case "subtract":
                    return self.widening.subtract(*values)
                case "multiply" if (product := self.widening.multiply(*values)) is not None:
                    return product
                case _:
                    pass
        types = [value.scalar for value in values]
        return self.widening.lift(
            type, values, lambda parts, lanes: self.speller.apply(primitive, types, type, parts, lanes)
        )
