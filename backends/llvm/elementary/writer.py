"""Formulas on floating numbers as instructions: arithmetic on Python objects that stand for registers.

A :class:`Writer` fixes the floating type and the number of lanes; what it reads off an argument are objects with the
operators of Python, each of which emits one instruction. A formula so written is the same operations in the same
order for a scalar and for vectors of any width, so a value does not depend on where it stands in an array::

    def square_plus_one(w: Writer, x: Real) -> Real:
        return w.fma(x, x, 1.0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....core.types import Scalar, i32, i64
from ..text import Body, Module, constant, register_type, suffix
from ..values import concatenate, slice_of

_SCALE_LANES = {64: ("pd", 8, "i8"), 32: ("ps", 16, "i16")}  # of one register, by the bits of a lane


@dataclass(frozen=True)
class Format:
    """What a formula needs to know of a floating type."""

    digits: int  # of the fraction
    bias: int  # of the exponent

    @property
    def shifter(self) -> float:
        """Added to a number of moderate size it leaves the nearest whole number in the low bits."""
        return 1.5 * 2.0**self.digits


FORMATS = {64: Format(52, 1023), 32: Format(23, 127)}


@dataclass(frozen=True)
class Test:
    """A truth value, or one a lane."""

    writer: Writer
    register: str

    def __and__(self, other: Test) -> Test:
        return Test(self.writer, self.writer.emit(f"and {self.writer.mask} {self.register}, {other.register}"))

    def __or__(self, other: Test) -> Test:
        return Test(self.writer, self.writer.emit(f"or {self.writer.mask} {self.register}, {other.register}"))


@dataclass(frozen=True)
class Whole:
    """An integer as wide as the floating type."""

    writer: Writer
    register: str

    def _with(self, operation: str, other: Whole | int) -> Whole:
        operands = f"{self.register}, {self.writer.whole(other).register}"
        return Whole(self.writer, self.writer.emit(f"{operation} {self.writer.whole_type} {operands}"))

    def __add__(self, other: Whole | int) -> Whole:
        return self._with("add", other)

    def __sub__(self, other: Whole | int) -> Whole:
        return self._with("sub", other)

    def __and__(self, other: Whole | int) -> Whole:
        return self._with("and", other)

    def __or__(self, other: Whole | int) -> Whole:
        return self._with("or", other)

    def __xor__(self, other: Whole | int) -> Whole:
        return self._with("xor", other)

    def __lshift__(self, count: int) -> Whole:
        return self._with("shl", count)

    def __rshift__(self, count: int) -> Whole:
        """The sign comes in from the left."""
        return self._with("ashr", count)

    def is_zero(self) -> Test:
        emitted = self.writer.emit(f"icmp eq {self.writer.whole_type} {self.register}, zeroinitializer")
        return Test(self.writer, emitted)

    def real(self) -> Real:
        """The number of the same value."""
        writer = self.writer
        return Real(writer, writer.emit(f"sitofp {writer.whole_type} {self.register} to {writer.type}"))

    def as_bits(self) -> Real:
        """The number of these bits."""
        writer = self.writer
        return Real(writer, writer.emit(f"bitcast {writer.whole_type} {self.register} to {writer.type}"))


@dataclass(frozen=True)
class Real:
    """A floating number."""

    writer: Writer
    register: str

    def _with(self, operation: str, a: Real | float, b: Real | float) -> str:
        first, second = self.writer.real(a).register, self.writer.real(b).register
        return self.writer.emit(f"{operation} {self.writer.type} {first}, {second}")

    def __add__(self, other: Real | float) -> Real:
        return Real(self.writer, self._with("fadd", self, other))

    def __sub__(self, other: Real | float) -> Real:
        return Real(self.writer, self._with("fsub", self, other))

    def __rsub__(self, other: float) -> Real:
        return Real(self.writer, self._with("fsub", other, self))

    def __mul__(self, other: Real | float) -> Real:
        return Real(self.writer, self._with("fmul", self, other))

    def __truediv__(self, other: Real | float) -> Real:
        return Real(self.writer, self._with("fdiv", self, other))

    def __neg__(self) -> Real:
        return Real(self.writer, self.writer.emit(f"fneg {self.writer.type} {self.register}"))

    def __abs__(self) -> Real:
        return self.writer.call("fabs", self)

    def __lt__(self, other: Real | float) -> Test:
        return Test(self.writer, self._with("fcmp olt", self, other))

    def __gt__(self, other: Real | float) -> Test:
        return Test(self.writer, self._with("fcmp ogt", self, other))

    def equals(self, other: float) -> Test:
        return Test(self.writer, self._with("fcmp oeq", self, other))

    def bits(self) -> Whole:
        writer = self.writer
        return Whole(writer, writer.emit(f"bitcast {writer.type} {self.register} to {writer.whole_type}"))


class Writer:
    """Emits formulas for one floating type, on scalars (``lanes`` 0) or on vectors."""

    def __init__(self, module: Module, scalar: Scalar, lanes: int, scales: bool) -> None:
        self.module, self.body, self.scalar, self.lanes = module, Body(), scalar, lanes
        self.scales = scales  # the machine multiplies by powers of two in one instruction
        self.format = FORMATS[scalar.bits]
        self.type = register_type(scalar, lanes)
        self.whole_type = register_type(i64 if scalar.bits == 64 else i32, lanes)
        self.mask = f"<{lanes} x i1>" if lanes else "i1"

    def emit(self, text: str) -> str:
        """One instruction; gives the register that it defines."""
        return self.body.value(text)

    def pick(self, double: Sequence[float], single: Sequence[float]) -> Sequence[float]:
        """The constants for this type."""
        return double if self.scalar.bits == 64 else single

    def real(self, value: Real | float) -> Real:
        if isinstance(value, Real):
            return value
        text = constant(value, self.scalar)
        return Real(self, f"splat ({register_type(self.scalar)} {text})" if self.lanes else text)

    def whole(self, value: Whole | int) -> Whole:
        if isinstance(value, Whole):
            return value
        return Whole(self, f"splat (i{self.scalar.bits} {value})" if self.lanes else str(value))

    def call(self, intrinsic: str, *operands: Real | float) -> Real:
        """An intrinsic of LLVM on numbers."""
        arguments = ", ".join(f"{self.type} {self.real(operand).register}" for operand in operands)
        name = f"@llvm.{intrinsic}.{suffix(self.scalar, self.lanes)}"
        return Real(self, self.emit(f"call {self.type} {name}({arguments})"))

    def fma(self, a: Real | float, b: Real | float, c: Real | float) -> Real:
        """``a * b + c``, rounded once."""
        return self.call("fma", a, b, c)

    def where(self, test: Test, then: Real | float, orelse: Real | float) -> Real:
        first, second = self.real(then).register, self.real(orelse).register
        text = f"select {self.mask} {test.register}, {self.type} {first}, {self.type} {second}"
        return Real(self, self.emit(text))

    def signed_like(self, x: Real, other: Real) -> Real:
        return self.call("copysign", x, other)

    def within(self, x: Real, low: float, high: float) -> Real:
        """The number, or the bound that it is beyond; NaN stays NaN."""
        x = self.where(x < low, low, x)
        return self.where(x > high, high, x)

    def nearest(self, x: Real, factor: float) -> tuple[Real, Whole]:
        """The whole number nearest to a product below 2**22 in size, as a number and as an integer."""
        shifter = self.format.shifter
        shifted = self.fma(x, factor, shifter)
        start = (self.format.bias + self.format.digits << self.format.digits) + (1 << self.format.digits - 1)
        return shifted - shifter, shifted.bits() - start

    def polynomial(self, x: Real, coefficients: Sequence[float]) -> Real:
        """The value of a polynomial, lowest power first: the even and the odd powers side by side."""
        square = x * x
        even, odd = self._horner(square, coefficients[::2]), self._horner(square, coefficients[1::2])
        return self.fma(odd, x, even)

    def _horner(self, x: Real, coefficients: Sequence[float]) -> Real:
        total: Real | float = coefficients[-1]
        for coefficient in coefficients[-2::-1]:
            total = self.fma(total, x, coefficient)
        return self.real(total)

    def rarely(self, test: Test, function: str, x: Real, value: Real) -> Real:
        """The value; but where a test holds, which is rare, that of a function of the C library."""
        beyond, usual, after = (self.body.name(stem) for stem in ("beyond", "usual", "after"))
        some = test.register
        if self.lanes:
            some = self.emit(f"call i1 @llvm.vector.reduce.or.v{self.lanes}i1({self.mask} {some})")
        self.body.branch(usual)
        self.body.label(usual)
        self.body.line(f"br i1 {some}, label %{beyond}, label %{after}")
        self.body.label(beyond)
        other = self._library(function, x, value, test) if self.lanes else self._library_of_one(function, x)
        self.body.branch(after)
        self.body.label(after)
        return Real(self, self.emit(f"phi {self.type} [ {value.register}, %{usual} ], [ {other}, %{beyond} ]"))

    def _library_of_one(self, function: str, x: Real) -> str:
        called = function + ("f" if self.scalar.bits == 32 else "")
        self.module.declare(called, f"declare {self.type} @{called}({self.type}) nounwind willreturn memory(none)")
        return self.emit(f"call {self.type} @{called}({self.type} {x.register}) cold")

    def _library(self, function: str, x: Real, value: Real, test: Test) -> str:
        """Call a function of the module that calls one of the C library for each lane where the test holds."""
        name, element = f"{function}.beyond.{suffix(self.scalar, self.lanes)}", register_type(self.scalar)
        if not self.module.defines(name):
            one = Writer(self.module, self.scalar, 0, self.scales)
            body, flags = one.body, f"<{self.lanes} x i8>"
            numbers, values, tests = body.slot(self.type), body.slot(self.type), body.slot(flags)
            body.line(f"store {self.type} %x, ptr {numbers}")
            body.line(f"store {self.type} %value, ptr {values}")
            body.line(f"store {flags} {body.value(f'zext {self.mask} %test to {flags}')}, ptr {tests}")
            with body.loop("0", str(self.lanes), 1) as lane:
                chosen, following = body.name("chosen"), body.name("following")
                flag = body.value(f"load i8, ptr {body.value(f'getelementptr i8, ptr {tests}, i64 {lane}')}")
                body.line(f"br i1 {body.value(f'icmp ne i8 {flag}, 0')}, label %{chosen}, label %{following}")
                body.label(chosen)
                number, result = (
                    body.value(f"getelementptr {element}, ptr {each}, i64 {lane}") for each in (numbers, values)
                )
                computed = one._library_of_one(function, Real(one, body.value(f"load {element}, ptr {number}")))
                body.line(f"store {element} {computed}, ptr {result}")
                body.branch(following)
                body.label(following)
            body.line(f"ret {self.type} {body.value(f'load {self.type}, ptr {values}')}")
            parameters = f"{self.type} %x, {self.type} %value, {self.mask} %test"
            self.module.define(
                name, f"define internal {self.type} @{name}({parameters}) cold noinline optnone nounwind {{\n{body}\n}}"
            )
        operands = f"{self.type} {x.register}, {self.type} {value.register}, {self.mask} {test.register}"
        return self.emit(f"call {self.type} @{name}({operands})")

    def power_of_two(self, exponent: Whole) -> Real:
        """2 to an exponent that a normal number has."""
        return ((exponent + self.format.bias) << self.format.digits).as_bits()

    def scaled(self, x: Real, exponent: Whole, number: Real) -> Real:
        """A number times 2 to the exponent, rounded once; ``number`` is the exponent as a floating number."""
        kind, lanes, mask = _SCALE_LANES[self.scalar.bits]
        if not self.scales or not self.lanes or self.lanes % lanes:
            # in two factors, since that power of two may be no normal number; the first product is exact
            half = exponent >> 1
            return x * self.power_of_two(half) * self.power_of_two(exponent - half)
        element, pieces = register_type(self.scalar), []
        for start in range(0, self.lanes, lanes):
            chosen = range(start, start + lanes)
            a, b = (slice_of(self.body, element, each.register, self.lanes, chosen) for each in (x, number))
            type = f"<{lanes} x {element}>"
            name = f"llvm.x86.avx512.mask.scalef.{kind}.512"
            pieces.append(self.emit(f"call {type} @{name}({type} {a}, {type} {b}, {type} {a}, {mask} -1, i32 4)"))
        return Real(self, concatenate(self.body, element, pieces, lanes))
