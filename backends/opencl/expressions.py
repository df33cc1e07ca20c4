"""Expressions of the loop IR as OpenCL C, as a person would write them.

Integers wrap around in the language, but in C a sum that is too large has no meaning. So they are computed as unsigned
numbers: ``(long)((ulong)x[i] + y[i])``. What is made of sizes, counters and small constants cannot become too large,
and stays as it is: ``i * n + 1``. To tell, the magnitude of an integer is bounded from above (``_most``). A size or a
counter counts as less than 2^31: one may be more, but not two that are multiplied, or the loops would never end.

    select(x[i] <= 0.0, fma(x[i], 2.0, 1.0), remainder(j, 3))
    x[i] <= 0.0 ? fma(x[i], 2.0, 1.0) : j % 3

Division of counters by positive constants is C's; any other goes by the rules of the language (``primitives.py``). A
load that is guarded reads memory where its indices are within: ``within(j, n) ? x[j] : 0.0``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ...core.primitive import Conversion, Primitive
from ...core.types import Scalar, i64
from .. import ir
from .atomics import Space, updater
from .names import c_name
from .primitives import ANY, MEMORY, REGISTER, TERNARY, C, Speller, binary, call, cast, literal, narrowed

__all__ = ["MEMORY", "REGISTER", "Expressions", "c_name"]

_OPERATORS = {"add": "+", "subtract": "-", "multiply": "*"}
_DIVISIONS = {"floor_divide": "/", "remainder": "%"}
COUNTER = 2**31 - 1  # of a size or a counter
LARGEST = 2**63 - 1

_WITHIN = """\
bool within(long index, long extent) {
  return 0 <= index && index < extent;
}"""


class Expressions(Speller, ABC):
    """Writes expressions; what names and elements are called, a subclass says.

    ``helpers`` are the functions that they need, by name, in the order in which they must stand in the program.
    """

    @abstractmethod
    def variable(self, name: str) -> str:
        """The name in C of a variable."""

    @abstractmethod
    def element(self, buffer: ir.Buffer, indices: Sequence[str]) -> str:
        """An element of a buffer, as what can be assigned to: ``x[i * n + j]``. It binds like a name."""

    @abstractmethod
    def is_index(self, name: str) -> bool:
        """Whether a variable is made of sizes and counters of loops alone, and is not negative."""

    def most(self, name: str) -> int:
        """What such a variable is at most."""
        return COUNTER

    def text(self, expression: ir.Expression) -> str:
        """An expression, as it stands behind ``=`` or between parentheses."""
        return self._expression(expression).untyped().text

    def apply(self, primitive: Primitive, scalar: Scalar, *operands: str) -> str:
        """A primitive applied to names or elements of one type."""
        return self.spell(primitive, [scalar] * len(operands), [C(operand) for operand in operands]).text

    def update(self, primitive: Primitive, scalar: Scalar, space: Space) -> str:
        """The name of a function that combines a value into a place that others update at the same time.

        It takes a pointer to the place, in that address space, and the value.
        """
        return updater(self, primitive, scalar, space)

    def guard(self, buffer: ir.Buffer, indices: Sequence[str], guarded: Sequence[int]) -> str:
        """Whether indices are within the buffer along some axes; to be joined to other tests by ``&&``.

        The tests themselves are joined without a branch, which would cost more than they do. (PoCL 3.1 makes code that
        reads outside of arrays from nested branches on what all threads share and what they do not.)
        """
        self.helpers.setdefault("within", _WITHIN)
        tests = [call("within", C(indices[axis]), self._expression(buffer.extents[axis])).text for axis in guarded]
        return " & ".join(tests)

    def _expression(self, expression: ir.Expression) -> C:
        match expression:
            case ir.Constant(value, type):
                return literal(value, type)
            case ir.Variable(name):
                return C(self.variable(name))
            case ir.Load():
                return self._load(expression)
            case ir.MultiplyAdd(a, b, c):
                return C(f"fma({', '.join(self._expression(each).text for each in (a, b, c))})")
            case ir.Select(test, then, orelse):
                parts = self._expression(test), self._expression(then), self._expression(orelse)
                return narrowed(_choice(*parts), expression.type)
            case ir.Apply():
                return self._apply(expression)
            case ir.All() | ir.First():
                raise AssertionError("threads are no lanes of vectors")

    def _load(self, load: ir.Load) -> C:
        indices = [self.text(index) for index in load.indices]
        element = C(self.element(load.buffer, indices))
        value = cast("bool", element) if load.type.kind == "bool" else element
        if not load.guarded:
            return value
        zero = literal(False if load.type.kind == "bool" else 0, load.type)
        chosen = _choice(C(self.guard(load.buffer, indices, load.guarded), TERNARY + 1), value, zero)
        return narrowed(chosen, load.type)

    def _apply(self, apply: ir.Apply) -> C:
        name, arguments = apply.primitive.name, apply.arguments
        operands = [self._expression(argument) for argument in arguments]
        small = apply.type == i64 and self._most(apply) <= LARGEST
        if name in _OPERATORS and (small or (apply.type.bits >= 32 and not apply.type.signed)):
            return binary(_OPERATORS[name], *operands)
        if small:
            if name in _DIVISIONS and self._not_negative(arguments[0]) and _positive(arguments[1]):
                return binary(_DIVISIONS[name], *operands)
        return self.spell(apply.primitive, [argument.type for argument in arguments], operands)

    # What is known of integers

    def _most(self, expression: ir.Expression) -> int:
        """What the magnitude of an integer is at most; more than ``LARGEST`` where it may wrap around."""
        match expression:
            case ir.Constant(value):
                return abs(int(value))
            case ir.Variable(name, type) if type == i64 and self.is_index(name):
                return self.most(name)
            case ir.Apply(primitive, (source,), type) if isinstance(primitive.llvm, Conversion):
                wraps = source.type.kind != "int" or (source.type.signed and not type.signed)
                return 1 << type.bits if wraps else self._most(source)
            case ir.Apply(primitive, (a, b), type) if type == i64:
                most = self._most(a), self._most(b)
                match primitive.name:
                    case "add" | "subtract":
                        return _bounded(sum(most))
                    case "multiply":
                        return _bounded(most[0] * most[1])
                    case "minimum" | "maximum" | "remainder" | "floor_divide":
                        return max(most)
                    case _:
                        return LARGEST + 1
            case ir.Select(_, then, orelse):
                return max(self._most(then), self._most(orelse))
            case _:
                return 1 << expression.type.bits - expression.type.signed

    def _not_negative(self, expression: ir.Expression) -> bool:
        match expression:
            case ir.Constant(value):
                return value >= 0
            case ir.Variable(name):
                return self.is_index(name)
            case ir.Apply(primitive, (a, b)) if primitive.name in ("add", "multiply"):
                return self._most(expression) <= LARGEST and self._not_negative(a) and self._not_negative(b)
            case ir.Apply(primitive, (a, b)) if primitive.name in ("minimum", "remainder", "floor_divide"):
                return self._not_negative(a) and self._not_negative(b)
            case ir.Apply(primitive, (a, b)) if primitive.name == "maximum":
                return self._not_negative(a) or self._not_negative(b)
            case _:
                return False


def _bounded(most: int) -> int:
    """What may be too large for 64 bits wraps around, and can be anything."""
    return min(most, LARGEST + 1)


def _positive(expression: ir.Expression) -> bool:
    return isinstance(expression, ir.Constant) and expression.value > 0


def _choice(test: C, then: C, orelse: C) -> C:
    return C(f"{test.within(TERNARY + 1)} ? {then.within(ANY)} : {orelse.within(TERNARY)}", TERNARY)
