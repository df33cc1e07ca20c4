"""Expressions of the loop IR: immutable trees of scalars, and the arithmetic that makes them.

Operators are those of Python, as in Halide: ``(n + 3) // 4``, ``(0 <= i) & (i < n)``, ``~test``, ``minimum(a, b)``. An
integer of Python is an i64 constant, and what is known is computed at once; ``apply`` does the same for any primitive.
Constructors compute nothing: ``Apply(row, (a, b), type)`` is that node. ``==`` says whether two expressions are the
same, ``equal(a, b)`` whether their values are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import copysign
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast, dataclass_transform

import numpy as np

from ...core.primitive import Primitive, lookup
from ...core.types import Scalar, bool_, i64

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def node(kind: type[T]) -> type[T]:
    """A dataclass whose fields nobody sets again, by the checker of types.

    One that is ``frozen`` refuses that when it runs, too, which makes its constructor three times as slow; and passes
    construct so many that this was a tenth of what compilation spent in Python. What ``queries.py`` keeps with a node
    is not pickled.
    """
    kind.__getstate__ = _fields_of  # type: ignore[method-assign, assignment]
    return dataclass(unsafe_hash="__hash__" not in vars(kind), eq="__eq__" not in vars(kind))(kind)


def _fields_of(node: Any) -> dict[str, object]:
    """The fields of a node, by name."""
    return {each: vars(node)[each] for each in node.__match_args__}


class _Arithmetic:
    """What Python's operators make of expressions."""

    if TYPE_CHECKING:

        @property
        def type(self) -> Scalar: ...

    def __add__(self, other: Operand) -> Expression:
        return apply("add", self, other)

    def __radd__(self, other: int) -> Expression:
        return apply("add", other, self)

    def __sub__(self, other: Operand) -> Expression:
        return apply("subtract", self, other)

    def __rsub__(self, other: int) -> Expression:
        return apply("subtract", other, self)

    def __mul__(self, other: Operand) -> Expression:
        return apply("multiply", self, other)

    def __rmul__(self, other: int) -> Expression:
        return apply("multiply", other, self)

    def __floordiv__(self, other: Operand) -> Expression:
        return apply("floor_divide", self, other)

    def __rfloordiv__(self, other: int) -> Expression:
        return apply("floor_divide", other, self)

    def __mod__(self, other: Operand) -> Expression:
        return apply("remainder", self, other)

    def __rmod__(self, other: int) -> Expression:
        return apply("remainder", other, self)

    def __neg__(self) -> Expression:
        return apply("negative", self)

    def __lt__(self, other: Operand) -> Expression:
        return apply("less", self, other)

    def __le__(self, other: Operand) -> Expression:
        return apply("less_equal", self, other)

    def __gt__(self, other: Operand) -> Expression:
        return apply("less", other, self)

    def __ge__(self, other: Operand) -> Expression:
        return apply("less_equal", other, self)

    def __and__(self, other: Operand) -> Expression:
        """Whether both hold."""
        a, b = _expression(self), _expression(other)
        for known, rest in ((a, b), (b, a)):
            if isinstance(known, Constant):
                return rest if known.value else known
        return apply("logical_and", a, b)

    def __or__(self, other: Operand) -> Expression:
        """Whether one of both holds."""
        a, b = _expression(self), _expression(other)
        for known, rest in ((a, b), (b, a)):
            if isinstance(known, Constant):
                return known if known.value else rest
        return a if a == b else apply("logical_or", a, b)

    def __invert__(self) -> Expression:
        return apply("logical_not", self)

    def __bool__(self) -> NoReturn:
        raise TypeError("whether an expression holds is known when the code runs")


@node
class Constant(_Arithmetic):
    """A number, of type i64 if nothing else is said. 0.0 and -0.0 are not equal: they are different constants."""

    value: int | float | bool
    type: Scalar = i64

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        same = self.value is other.value or self.value == other.value
        return same and self.type == other.type and copysign(1, self.value) == copysign(1, other.value)

    def __hash__(self) -> int:
        return hash(self.value)


@node
class Variable(_Arithmetic):
    """A size of the function, a loop variable, a Let or a Declare; an i64 if nothing else is said."""

    name: str
    type: Scalar = i64


@node
class Apply(_Arithmetic):
    """A primitive applied to scalars; ``chained`` where the next step of a loop waits for it, by the last argument."""

    primitive: Primitive
    arguments: tuple[Expression, ...]
    type: Scalar
    chained: bool = False


@node
class Select(_Arithmetic):
    """``then`` where the test holds, ``orelse`` elsewhere; both are computed."""

    test: Expression
    then: Expression
    orelse: Expression
    type: Scalar


@node
class MultiplyAdd(_Arithmetic):
    """``a * b + c``, rounded once."""

    a: Expression
    b: Expression
    c: Expression
    type: Scalar


@node
class Load(_Arithmetic):
    """One element; the indices are in range whenever the load runs.

    Along the axes that are ``guarded`` they need not be: outside the buffer there is 0.
    """

    buffer: Buffer
    indices: tuple[Expression, ...]
    guarded: tuple[int, ...] = ()

    @property
    def type(self) -> Scalar:
        return self.buffer.scalar


@node
class All(_Arithmetic):
    """Whether a test holds in all lanes that run side by side: the test of an ``If`` alone, inside of lanes of vectors.

    How many lanes these are is the target's business, so both branches mean the same where it holds. What is tested are
    comparisons of integers that move with the lanes by a constant, or several such: the first and the last lane decide.
    """

    test: Expression

    @property
    def type(self) -> Scalar:
        return bool_


@node
class First(_Arithmetic):
    """What an integer that moves with the lanes is in the first of those that run side by side: it is one for them.

    As that is the target's business, what is made of it says nothing but how the same is computed (see :class:`All`).
    """

    of: Expression

    @property
    def type(self) -> Scalar:
        return i64


Expression = Constant | Variable | Apply | Select | MultiplyAdd | Load | All | First
Operand = _Arithmetic | int  # an expression, or an integer that stands for its constant


@node
class Buffer:
    """A row-major array of scalars (one scalar when it has no extents). Names are unique in a function."""

    name: str
    scalar: Scalar
    extents: tuple[Expression, ...]


def apply(primitive: Primitive | str, *arguments: Operand) -> Expression:
    """A primitive, or that of this name, applied to scalars: at once where they are known.

    >>> from adze.core.types import i64
    >>> apply("add", Constant(2, i64), 3)
    Constant(value=5, type=i64)
    """
    row = lookup(primitive) if isinstance(primitive, str) else primitive
    operands = tuple([_expression(each) for each in arguments])
    type = row.result_type([each.type for each in operands])
    numbers = [each.type.dtype.type(each.value) for each in operands if isinstance(each, Constant)]
    if len(numbers) < len(operands):
        return Apply(row, operands, type)
    with np.errstate(all="ignore"):
        return Constant(np.asarray(row.numpy(*numbers)).astype(type.dtype).item(), type)


def _expression(operand: Operand) -> Expression:
    if isinstance(operand, int):
        return Constant(operand, bool_ if isinstance(operand, bool) else i64)
    return cast(Expression, operand)


def minimum(a: Operand, b: Operand) -> Expression:
    """The smaller of two numbers."""
    return apply("minimum", a, b)


def maximum(a: Operand, b: Operand) -> Expression:
    """The larger of two numbers."""
    return apply("maximum", a, b)


def equal(a: Operand, b: Operand) -> Expression:
    """Whether two numbers are the same when the code runs."""
    return apply("equal", a, b)


def select(test: Expression, then: Operand, orelse: Operand) -> Expression:
    """``then`` where the test holds, ``orelse`` elsewhere."""
    a, b = _expression(then), _expression(orelse)
    return Select(test, a, b, a.type)
