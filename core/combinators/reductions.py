"""Reductions: an associative operator between the elements along an axis, and its named instances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..builder import current
from ..expr import Expr, as_expr, floating, scalar_type
from ..graph import Value
from ..primitive import PRIMITIVES
from ..source import at_line, user_line
from ..trees import Structure
from ..types import bool_, i64
from .control import where
from .operands import Elements, Function, axes_of, axis_of, extreme, nonempty, totalled, with_axes
from .shapes import ravel


def reduce(op: Function, neutral: Any, xs: Any, axis: Any = 0) -> Structure:
    """Combine the elements along an axis with an associative ``op`` whose neutral element is ``neutral``.

    ``xs`` is an array or a structure of arrays; ``neutral`` and the arguments and results of ``op`` have the structure
    of one element. The neutral's axes say what an element is: with a scalar neutral the other axes are mapped over
    (reducing a matrix over axis 0 gives a vector), with an array of rank k the last k of them belong to the element.
    ``op`` need not commute: elements are combined in order. Raises TypeError when the structures or types do not fit.

    >>> import adze as az
    >>> import numpy as np
    >>> @az.program
    ... def largest(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.reduce(lambda a, b: az.where(a > b, a, b), -float("inf"), x)
    >>> float(az.evaluate(largest)(np.array([1.0, 3.0, 2.0])))
    3.0
    >>> @az.program
    ... def chain(ms: az.Array[az.f64, "n 2 2"]) -> az.Array[az.f64, "2 2"]:
    ...     return az.reduce(lambda a, b: a @ b, np.eye(2), ms)
    """
    elements = Elements("reduce", op, neutral, xs, axis)

    def build(prefix: tuple[Value, ...]) -> Sequence[Value]:
        return elements.builder.reduce(
            elements.extent, elements.neutrals, lambda i: elements.at(prefix, i), elements.operator, elements.names
        )

    return elements.structure(elements.mapped(build))


def _named(x: Expr, axis: Any, keepdims: bool, primitive: str, neutral: Any) -> Expr:
    """The reduction with a primitive over some axes, from the last to the first."""
    axes = axes_of(x, axis)
    total = x
    for one in reversed(axes):
        total = reduce(PRIMITIVES[primitive], neutral, total, one)
    return with_axes(total, axes) if keepdims else total


def sum(x: Any, axis: Any = None, keepdims: bool = False, *, dtype: Any = None) -> Expr:
    """The sum over an axis, a tuple of axes, or all (the default).

    Integers and booleans are added as i64, as in NumPy, those without a sign as u64; ``dtype`` says another type.

    >>> import adze as az, numpy as np
    >>> @az.program
    ... def totals(x: az.Array[az.i32, "n"]):
    ...     return az.sum(x), az.sum(x, dtype=az.i32)
    >>> totals(np.array([2**31 - 1, 1], np.int32))
    (np.int64(2147483648), np.int32(-2147483648))
    """
    return _named(totalled(x, dtype), axis, keepdims, "add", 0)


def prod(x: Any, axis: Any = None, keepdims: bool = False, *, dtype: Any = None) -> Expr:
    """The product over an axis, a tuple of axes, or all; of integers and booleans in i64 or u64, or in ``dtype``."""
    return _named(totalled(x, dtype), axis, keepdims, "multiply", 1)


def max(x: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    """The largest element over an axis, several, or all; minus infinity (integers: the least value) of nothing."""
    x = as_expr(x)
    return _named(x, axis, keepdims, "maximum", extreme(x.dtype, -1))


def min(x: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    """The smallest element over an axis, several, or all; infinity (integers: the largest value) of nothing."""
    x = as_expr(x)
    return _named(x, axis, keepdims, "minimum", extreme(x.dtype, 1))


def any(x: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    """Whether some element is true, over an axis, several, or all."""
    return _named(as_expr(x).astype(bool_), axis, keepdims, "logical_or", False)


def all(x: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    """Whether all elements are true, over an axis, several, or all."""
    return _named(as_expr(x).astype(bool_), axis, keepdims, "logical_and", True)


def count_nonzero(x: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    """How many elements are not zero, as i64."""
    return sum(as_expr(x).astype(bool_), axis, keepdims)


def mean(x: Any, axis: Any = None, keepdims: bool = False, *, dtype: Any = None) -> Expr:
    """The mean over an axis, several, or all; of integers it is f64, of nothing NaN. ``dtype`` is f32 or f64."""
    x = _floating(x, dtype)
    average: Expr = sum(x, axis, keepdims) / _number_of(x, axes_of(x, axis), 0)
    return average


def var(x: Any, axis: Any = None, ddof: Any = 0, keepdims: bool = False, *, dtype: Any = None) -> Expr:
    """The variance over an axis, several, or all: the mean of the squared deviations, over count - ddof."""
    x = _floating(x, dtype)
    axes = axes_of(x, axis)
    deviation = x - with_axes(mean(x, axis), axes)
    variance: Expr = sum(deviation * deviation, axis, keepdims) / _number_of(x, axes, ddof)
    return variance


def std(x: Any, axis: Any = None, ddof: Any = 0, keepdims: bool = False, *, dtype: Any = None) -> Expr:
    """The standard deviation: the square root of the variance."""
    root: Expr = PRIMITIVES["sqrt"](var(x, axis, ddof, keepdims, dtype=dtype))
    return root


def _floating(x: Any, dtype: Any = None) -> Expr:
    if dtype is None:
        return floating(x)
    wanted = scalar_type(dtype)
    if wanted.kind != "float":
        raise TypeError(at_line(f"a mean or variance is computed in f32 or f64, not in {wanted}"))
    return as_expr(x).astype(wanted)


def _number_of(x: Expr, axes: Sequence[int], ddof: Any) -> Expr:
    """How many elements the axes hold, less ``ddof`` (at least zero), in x's scalar type."""
    count: Any = 1
    for axis in axes:
        count = x.axis_size(axis) * count
    if ddof:
        count = PRIMITIVES["maximum"](count - ddof, 0)
    return as_expr(count, x.dtype).astype(x.dtype)


def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    """``log(sum(exp(x)))`` over an axis, several, or all, without overflow; minus infinity of nothing.

    Its gradient does not go through the maximum that is subtracted.
    """
    x = as_expr(x)
    axes = axes_of(x, axis)
    top = PRIMITIVES["stop_gradient"](max(x, axis))
    finite = where(abs(top) < float("inf"), top, 0.0)
    spread = finite if axis is None else with_axes(finite, axes)
    total = finite + PRIMITIVES["log"](sum(PRIMITIVES["exp"](x - spread), axis))
    return with_axes(total, axes) if keepdims else total


def softmax(x: Any, axis: Any = -1) -> Expr:
    """``exp(x) / sum(exp(x))`` along an axis, several, or of all (None), without overflow.

    Of nothing but minus infinity, or with an infinity or a NaN, it is NaN.

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda x: az.softmax(x))(np.array([1000.0, 1000.0]))
    array([0.5, 0.5])
    """
    x = as_expr(x)
    top = PRIMITIVES["stop_gradient"](max(x, axis, keepdims=True))
    parts = PRIMITIVES["exp"](x - top)
    return parts / sum(parts, axis, keepdims=True)


def argmax(x: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    """The i64 index of the largest element along an axis (by default in x flattened): the first one of several.

    NaN counts as largest, as in NumPy. Of nothing: ValueError, when the size is known to be zero or in the run.
    """
    return _position(x, axis, keepdims, "argmax", -1, lambda a, b: a > b)


def argmin(x: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    """The i64 index of the smallest element along an axis (by default in x flattened): the first one of several.

    NaN counts as smallest, as in NumPy. Of nothing: ValueError, when the size is known to be zero or in the run.
    """
    return _position(x, axis, keepdims, "argmin", 1, lambda a, b: a < b)


def _position(x: Any, axis: Any, keepdims: bool, what: str, worst: int, better: Callable[[Expr, Expr], Expr]) -> Expr:
    """Where the best element is: a reduction of pairs, of a value and its index, to the best and the least."""
    given = as_expr(x)
    flat, along = (ravel(given), 0) if axis is None else (given, axis_of(given, axis))
    builder = current()
    extent = builder.size(flat.value, along)
    nonempty(extent, what)
    builder.origin = user_line()

    def before(a: Expr, b: Expr) -> Expr:
        return better(a, b) | ((a != a) & (b == b)) if flat.dtype.kind == "float" else better(a, b)

    def operator(*values: Value) -> list[Value]:
        a, i, b, j = [Expr(value, builder) for value in values]
        second = before(b, a) | (~before(a, b) & (j < i))
        return [where(second, b, a).value, where(second, j, i).value]

    neutrals = [builder.literal(extreme(flat.dtype, worst), flat.dtype), builder.literal(extreme(i64, 1), i64)]
    sizes = builder.sizes(flat.value)

    def at(*others: Value) -> Value:
        def element(i: Value) -> list[Value]:
            return [builder.index(flat.value, [*others[:along], i, *others[along:]]), i]

        return builder.reduce(extent, neutrals, element, operator, ["a", "i", "b", "j"])[1]

    position = Expr(builder.array(sizes[:along] + sizes[along + 1 :], at), builder)
    return with_axes(position, axes_of(given, axis)) if keepdims else position
