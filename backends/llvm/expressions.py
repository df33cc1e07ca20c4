"""The expressions of the loop IR, and the variables they read, as instructions.

An immutable name stands for registers. A mutable one is a :class:`Cell`, stack slots that LLVM turns into registers
again. How expressions widen inside ``lanes`` and ``jam`` loops is in ``values.py``, loads are in ``access.py``, and
applications of primitives in ``primitives.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core.primitive import Primitive
from ...core.types import Scalar, bool_, i64
from .. import ir
from .access import Access, Apart, Place
from .division import DIVISIONS
from .primitives import Speller
from .text import Body, constant, literal, register_type, suffix
from .unit import Unit
from .values import Axis, Digit, Value, Widening, one, slopes


@dataclass(frozen=True)
class Cell:
    """A mutable variable: one stack slot a copy, of scalars or of vectors; or a word of an array in memory."""

    scalar: Scalar
    slots: tuple[str, ...]
    axes: tuple[Axis, ...] = ()
    lanes: int = 0
    guarded: bool = False  # lanes that are off keep their value
    word: int | None = None  # in the array at the slot


class Expressions:
    """Emits the expressions of one function."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.body = Body()
        self.widening = Widening(self.body)
        self.apart = Apart(unit.module, unit.plan.may_overlap)
        self.access = Access(self.widening, self.apart)
        self.speller = Speller(unit.module, self.body, unit.machine.routine, unit.elementary, unit.attributes)
        self.names: dict[str, Value | Cell] = {}
        self.places: dict[str, Place] = {}

    def scalar(self, expression: ir.Expression) -> str:
        """The register of an expression that varies with no loop that is being widened."""
        value = self.evaluate(expression)
        assert value.uniform and not value.axes, f"{expression} varies with a lanes or jam loop"
        return value.parts[0]

    def evaluate(self, expression: ir.Expression) -> Value:
        match expression:
            case ir.Constant(value, type):
                return one(type, constant(value, type))
            case ir.Variable(name):
                return self.read(self.names[name])
            case ir.Load(buffer, indices, guarded):
                places, guard = self.guarded(buffer, indices, guarded)
                return self.access.load(buffer, self.places[buffer.name], places, guard)
            case ir.MultiplyAdd(a, b, c, type):
                return self._call("fma", type, [self.evaluate(operand) for operand in (a, b, c)])
            case ir.Select(test, then, orelse, type):
                return self._select(type, self.evaluate(test), self.evaluate(then), self.evaluate(orelse))
            case ir.Apply(primitive, (a, b)) if (
                primitive.name == "logical_and"
                and (found := _index_and_size(a, b) or _index_and_size(b, a)) is not None
                and (extent := self.evaluate(found[1])).uniform
            ):
                return self._within(self.evaluate(found[0]), extent)
            case ir.Apply():
                return self._apply(expression)
            case ir.All(test):
                return one(bool_, self._in_all_lanes(test))
            case ir.First(number):
                moving = self.evaluate(number)
                assert not (moving.lanes or moving.axes), f"{number} does not move with the lanes by a constant"
                return one(i64, moving.parts[0])

    def _in_all_lanes(self, test: ir.Expression) -> str:
        """Whether a comparison holds in all lanes that are on: the first or the last one says."""
        assert isinstance(test, ir.Apply)
        if test.primitive.name == "logical_and":
            return self.body.value("and i1 " + ", ".join([self._in_all_lanes(each) for each in test.arguments]))
        a, b = (self.evaluate(each) for each in test.arguments)
        assert not (a.lanes or b.lanes or a.axes or b.axes), f"not all lanes decide {test}"
        last = self.widening.last if b.stride < a.stride else "0"
        left, right = (
            self.body.add(each.parts[0], self.body.multiply(last, str(each.stride))) if each.stride else each.parts[0]
            for each in (a, b)
        )
        return self.body.value(f"icmp {'slt' if test.primitive.name == 'less' else 'sle'} i64 {left}, {right}")

    def guarded(
        self, buffer: ir.Buffer, indices: Sequence[ir.Expression], guarded: Sequence[int]
    ) -> tuple[list[Value], Value | None]:
        """The indices of an access, and whether they are in range where that is not sure."""
        places = [self.evaluate(index) for index in indices]
        guard: Value | None = None
        for axis in guarded:
            inside = self._within(places[axis], self.evaluate(buffer.extents[axis]))
            guard = inside if guard is None else self.widening.lift(bool_, [guard, inside], self._both)
        return places, guard

    def _within(self, index: Value, extent: Value) -> Value:
        """Whether an index is in range, by one comparison."""
        length = [self.body.value(f"call i64 @llvm.smax.i64(i64 {part}, i64 0)") for part in extent.parts]
        return self.widening.lift(bool_, [index, Value(i64, tuple(length), extent.axes)], self._below)

    def _below(self, parts: Sequence[str], lanes: int) -> str:
        # A negative index is large as an unsigned number.
        return self.body.value(f"icmp ult {register_type(i64, lanes)} {parts[0]}, {parts[1]}")

    def _both(self, parts: Sequence[str], lanes: int) -> str:
        return self.body.value(f"and {register_type(bool_, lanes)} {parts[0]}, {parts[1]}")

    def read(self, found: Value | Cell) -> Value:
        """What a name stands for, now."""
        if isinstance(found, Value):
            return found
        cell = found
        type = register_type(cell.scalar, cell.lanes)
        parts = tuple(self.body.value(f"load {type}, ptr {slot}") for slot in self.addresses(cell))
        return Value(cell.scalar, parts, cell.axes, cell.lanes)

    def addresses(self, cell: Cell) -> tuple[str, ...]:
        """Where the copies of a variable are."""
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

    def _apply(self, expression: ir.Apply) -> Value:
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
        divides = type == i64 and primitive.name in DIVISIONS

        def apply(parts: Sequence[str], lanes: int) -> str:
            if divides and not lanes and (_is_positive(expression.arguments[1]) or (literal(parts[1]) or 0) > 0):
                divided = self.body.floor_divide if primitive.name == "floor_divide" else self.body.remainder
                return divided(parts[0], parts[1])
            return self.speller.apply(primitive, types, type, parts, lanes, expression.chained)

        found = self.widening.lift(type, values, apply)
        if divides:
            return replace(found, digit=Digit(primitive.name, values[0], expression.arguments[1]))
        sign = {"add": 1, "subtract": -1}.get(primitive.name) if type == i64 else None
        return found if sign is None else replace(found, slopes=slopes(values[0], values[1], 1, sign))

    # Mutable variables

    def assign(self, name: str, value: ir.Expression) -> None:
        """Give a variable another value."""
        self._assign(self._mutable(name), self.evaluate(value))

    def _mutable(self, name: str) -> Cell:
        cell = self.names[name]
        assert isinstance(cell, Cell)
        return cell

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
        for slot, part in zip(self.addresses(cell), value.along(cell.axes)):
            if cell.guarded and self.widening.strip and (mask := self.widening.strip.mask):
                old = self.body.value(f"load {type}, ptr {slot}")
                part = self.body.value(f"select <{cell.lanes} x i1> {mask}, {type} {part}, {type} {old}")
            self.body.line(f"store {type} {part}, ptr {slot}")


def _is_positive(number: ir.Expression) -> bool:
    """Whether it can be seen that an integer is above 0."""
    match number:
        case ir.Constant(value):
            return value > 0
        case ir.Apply(Primitive(name="maximum"), parts):
            return any(map(_is_positive, parts))
        case ir.Apply(Primitive(name="minimum"), parts):
            return all(map(_is_positive, parts))
    return False


def _index_and_size(low: ir.Expression, high: ir.Expression) -> tuple[ir.Expression, ir.Expression] | None:
    """The index and the size of ``0 <= index`` and ``index < size``, if these are the two tests."""
    match low, high:
        case ir.Apply(least, (ir.Constant(0), index)), ir.Apply(most, (same, size)):
            if (least.name, most.name) == ("less_equal", "less") and index == same and index.type == i64:
                return index, size
    return None
