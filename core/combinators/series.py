"""Series: numbers that follow each other. Ranges of them, their differences, what lies between them, and filters.

A convolution is a sum over the places where both vectors are, and only these: there is no border of zeros, which would
make a NaN of an infinity beside it. ``correlate`` is the convolution with a reversed vector, cut out as NumPy does::

    a    0 1 2 3             full     x x x x x x       n + m - 1 places
    v      0 1 2             same       x x x x         max(n, m)
                             valid        x x           max(n, m) - min(n, m) + 1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..builder import current
from ..expr import Expr, as_expr, floating, promoted, same_size, scalar_type
from ..graph import Value
from ..primitive import PRIMITIVES
from ..source import at_line
from ..types import bool_, i64
from .arrays import generate
from .control import where
from .operands import axis_of, nonempty
from .reductions import any, sum
from .shapes import concatenate, flip, moveaxis, within
from .sorting import searchsorted

_CUTS = ("full", "same", "valid")

# Ranges


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Expr:
    """The numbers from ``start`` on in steps, as far as they are before ``stop``; with one argument, from 0 to that.

    Integers give i64, others the floating type that they have, if no ``dtype`` is given. Raises ValueError for a step
    of 0, if it is known, and ZeroDivisionError in the run.

    >>> import adze as az
    >>> az.evaluate(lambda n: az.arange(1, n, 3))(9)
    array([1, 4, 7])
    """
    first, last = (0, start) if stop is None else (start, stop)
    if not isinstance(step, Expr) and step == 0:
        raise ValueError(at_line("arange: a step of 0"))
    begin, end, by = promoted([first, last, step])
    for x in (begin, end, by):
        if x.ndim or x.dtype == bool_:
            raise TypeError(at_line(f"arange takes numbers, not a value of type {x.type}"))
    if by.dtype.kind == "int":
        begin, end, by = begin.astype(i64), end.astype(i64), by.astype(i64)
        count = -((begin - end) // by)
    else:
        count = PRIMITIVES["ceil"]((end - begin) / by).astype(i64)
        by = (begin + by) - begin  # as NumPy rounds it
    scalar = by.dtype if dtype is None else scalar_type(dtype)
    result = generate(PRIMITIVES["maximum"](count, 0), lambda k: (begin + k.astype(by.dtype) * by).astype(scalar))
    assert isinstance(result, Expr)
    return result


def linspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None, axis: Any = 0) -> Expr:
    """``num`` numbers at even distances from ``start`` to ``stop``, which is the last one if it is the ``endpoint``.

    Both may be arrays, which broadcast; the numbers are then along a new ``axis`` of the result. They are f64, or of
    the floating type of the ends, unless a ``dtype`` is given.

    >>> import adze as az
    >>> az.evaluate(lambda a, b: az.linspace(a, b, 5))(0.0, 1.0)
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    begin, end = map(floating, promoted([start, stop]))
    spread, steps = end - begin, as_expr(num) - (1 if endpoint else 0)
    step = spread / PRIMITIVES["maximum"](steps, 1).astype(begin.dtype)

    def at(k: Expr) -> Any:
        inner = begin + k.astype(begin.dtype) * step
        return where((k == steps) & (steps > 0), end, inner) if endpoint else inner

    result = generate(num, at)
    assert isinstance(result, Expr)
    made, scalar = moveaxis(result, 0, axis), result.dtype if dtype is None else scalar_type(dtype)
    return (PRIMITIVES["floor"](made) if scalar.kind == "int" else made).astype(scalar)


# Neighbours


def diff(a: Any, n: Any = 1, axis: Any = -1, prepend: Any = None, append: Any = None) -> Expr:
    """The difference of each element and the one before along an axis, ``n`` times; of booleans, whether they differ.

    What is prepended or appended is a number or an array. Raises ValueError for a negative n.

    >>> import adze as az
    >>> az.evaluate(lambda x: az.diff(x))(np.array([1.0, 4.0, 2.0]))
    array([ 3., -2.])
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise ValueError(at_line(f"diff is taken a number of times, which is no less than 0, not {n!r}"))
    x = as_expr(a)
    along = axis_of(x, axis)
    parts = [x if part is x else _one_more(part, x, along) for part in (prepend, x, append) if part is not None]
    x = concatenate(parts, along) if len(parts) > 1 else x
    subtract = PRIMITIVES["not_equal" if x.dtype == bool_ else "subtract"]
    for _ in range(n):
        front = (slice(None),) * along
        x = subtract(x[(*front, slice(1, None))], x[(*front, slice(None, -1))])
    return x


def _one_more(part: Any, x: Expr, along: int) -> Expr:
    """What is put before or behind x: a number is a slice of one along the axis."""
    given = as_expr(part)
    if given.ndim:
        return given
    sizes = [1 if k == along else n for k, n in enumerate(x.shape)]
    filled = generate(tuple(sizes), lambda *_: given)
    assert isinstance(filled, Expr)
    return filled


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Expr:
    """The polygon through the points (``xp``, ``fp``) at the places x, where ``xp`` increases.

    Before the first point it is ``left``, behind the last one ``right``; by default the values there. NaN stays.
    Raises TypeError when xp and fp are no vectors, ValueError when they are empty or differ in length.

    >>> import adze as az
    >>> az.evaluate(lambda x: az.interp(x, [0.0, 1.0, 3.0], [0.0, 2.0, 0.0]))(np.array([-1.0, 0.5, 2.0]))
    array([0., 1., 1.])
    """
    places, points, values = map(floating, promoted([x, xp, fp]))
    if points.ndim != 1 or values.ndim != 1:
        raise TypeError(at_line(f"interp between vectors of points and values, not {points.type} and {values.type}"))
    builder = current()
    count = builder.size(points.value, 0)
    nonempty(count, "interp")
    same_size(points.value, 0, values.value, 0, "interp")
    n = Expr(count, builder)
    found = searchsorted(points, places, side="right") - 1
    before, last = PRIMITIVES["maximum"](found, 0), points[-1]
    after = PRIMITIVES["minimum"](before + 1, n - 1)
    x0, y0 = points[before], values[before]
    between = (values[after] - y0) / (points[after] - x0) * (places - x0) + y0
    inside = where(places == x0, y0, between)
    ends = [values[k] if end is None else as_expr(end).astype(values.dtype) for k, end in ((0, left), (-1, right))]
    return where(places < points[0], ends[0], where(places > last, ends[1], inside))


# Filters


def convolve(a: Any, v: Any, mode: str = "full") -> Expr:
    """The convolution of two vectors: element k of all is the sum of ``a[k - j] * v[j]`` where both are.

    With mode "same" it is as long as the longer vector, with "valid" only where the shorter lies in the longer. Raises
    TypeError for what are no vectors, ValueError for another mode or where one is empty.

    >>> import adze as az
    >>> az.evaluate(lambda a, v: az.convolve(a, v))(np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0]))
    array([ 1., 12., 23., 30.])
    """
    return _filtered("convolve", a, v, mode, lambda n, m: (PRIMITIVES["minimum"](n, m) - 1) // 2)


def correlate(a: Any, v: Any, mode: str = "valid") -> Expr:
    """The correlation of two vectors: element k of all is the sum of ``a[k - (m - 1) + j] * v[j]``, for m of v.

    Modes and errors are those of :func:`convolve`.

    >>> import adze as az
    >>> az.evaluate(lambda a, v: az.correlate(a, v))(np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0]))
    array([21., 32.])
    """

    def centre(n: Expr, m: Expr) -> Any:
        return where(n < m, n // 2, (m - 1) // 2)

    return _filtered("correlate", a, flip(as_expr(v)), mode, centre)


def _filtered(what: str, a: Any, v: Any, mode: str, centre: Callable[[Expr, Expr], Any]) -> Expr:
    """A convolution, or the part of it that a mode names; ``centre`` is where "same" begins, for the two lengths."""
    if mode not in _CUTS:
        raise ValueError(at_line(f"{what}: the mode is 'full', 'same' or 'valid', not {mode!r}"))
    x, y = promoted([a, v])
    if x.ndim != 1 or y.ndim != 1:
        raise TypeError(at_line(f"{what} of two vectors, not of {x.type} and {y.type}"))
    builder = current()
    sizes = [builder.size(each.value, 0) for each in (x, y)]
    for each in sizes:
        nonempty(each, what)
    n, m = [Expr(each, builder) for each in sizes]
    short, long = PRIMITIVES["minimum"](n, m), PRIMITIVES["maximum"](n, m)
    begin = {"full": as_expr(0), "same": centre(n, m), "valid": short - 1}[mode]
    count = {"full": n + m - 1, "same": long, "valid": long - short + 1}[mode]
    zero = builder.literal(0, x.dtype)
    joined, total = ("logical_and", any) if x.dtype == bool_ else ("multiply", sum)

    def at(k: Expr) -> Any:
        def term(j: Expr) -> Expr:
            place = (k + begin - j).value

            def product() -> list[Value]:
                factors = builder.index(x.value, [place]), builder.index(y.value, [j.value])
                return [builder.primitive(joined, *factors)]

            return Expr(builder.cond(within([place], sizes[:1]), product, lambda: [zero])[0], builder)

        return total(generate(m, term)).astype(x.dtype)

    result = generate(count, at)
    assert isinstance(result, Expr)
    return result
