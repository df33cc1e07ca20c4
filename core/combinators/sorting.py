"""Sorting: ``argsort`` is a construct, the rest is said with it."""

from __future__ import annotations

from typing import Any

from ..builder import current
from ..expr import Expr, as_expr, promoted
from ..graph import Value
from ..source import at_line, user_line
from ..types import i64
from .control import fori_loop, where
from .operands import axis_moved, axis_of
from .shapes import ravel


def argsort(x: Any, axis: Any = -1, descending: bool = False) -> Expr:
    """The i64 indices that sort along an axis (None: of x flattened).

    The order is stable, also a descending one, and NumPy's: NaN comes last (descending: first), False before True.
    """
    x = as_expr(x)
    if axis is None:
        return argsort(ravel(x), 0, descending)
    along = axis_of(x, axis)
    rows = axis_moved(x, along, x.ndim - 1)
    builder = current()
    builder.origin = user_line()
    *sizes, length = builder.sizes(rows.value)
    last = builder.primitive("subtract", length, builder.literal(1, i64))

    def mirrored(i: Value) -> Value:
        return builder.primitive("subtract", last, i) if descending else i

    def order(*indices: Value) -> Value:
        if not descending:
            return builder.emit("argsort", (), [builder.part(rows.value, indices)])[0]
        backwards = builder.array([length], lambda i: builder.index(rows.value, [*indices, mirrored(i)]))
        found = builder.emit("argsort", (), [backwards])[0]
        return builder.array([length], lambda i: mirrored(builder.index(found, [mirrored(i)])))

    return axis_moved(Expr(builder.array(sizes, order), builder), x.ndim - 1, along)


def sort(x: Any, axis: Any = -1, descending: bool = False) -> Expr:
    """The elements in order along an axis (None: of x flattened); NaN last (descending: first).

    >>> import adze as az
    >>> @az.program
    ... def ranked(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
    ...     return az.sort(x, descending=True)
    """
    x = as_expr(x)
    if axis is None:
        x, axis = ravel(x), 0
    along = axis_of(x, axis)
    order = argsort(x, along, descending).value
    builder = current()
    builder.origin = user_line()

    def at(*i: Value) -> Value:
        return builder.index(x.value, [*i[:along], builder.index(order, i), *i[along + 1 :]])

    return Expr(builder.array(builder.sizes(order), at), builder)


def searchsorted(a: Any, v: Any, side: str = "left") -> Expr:
    """Where in a sorted vector values would be inserted: the first place, or with side "right" the last one.

    The i64 places have the shape of ``v``. NaN is largest. Raises TypeError when ``a`` is not a vector. The size of
    ``a`` alone says how many steps there are, so that values are searched side by side.
    """
    if side not in ("left", "right"):
        raise ValueError(at_line(f"the side of a searchsorted is 'left' or 'right', not {side!r}"))
    vector, values = promoted([a, v])
    if vector.ndim != 1:
        raise TypeError(at_line(f"searchsorted in a vector, not in a value of type {vector.type}"))
    builder = current()
    builder.origin = user_line()
    size, floating = as_expr(vector.axis_size(0)), vector.dtype.kind == "float"
    halvings = _digits(size)

    def at(*indices: Value) -> Value:
        wanted = Expr(builder.index(values.value, indices), builder)
        unordered = wanted != wanted

        def halved(step: Expr, low: Expr) -> Expr:
            count = size >> step  # so many are left, the middle again where the number is even and the middle is before
            half = count >> 1
            element = Expr(builder.index(vector.value, [(low + half).value]), builder)
            after = element < wanted if side == "left" else element <= wanted
            if floating:
                after = after | (unordered & (element == element) if side == "left" else unordered)
            return where(after, low + (count - half), low)

        place: Expr = fori_loop(0, halvings, halved, 0)
        return place.value

    return Expr(builder.array(builder.sizes(values.value), at), builder)


def _digits(size: Expr) -> Expr:
    """How many binary digits a size has: so often is it halved until nothing is left."""
    count, rest = as_expr(0), size
    for digits in (32, 16, 8, 4, 2, 1):
        more = digits * ((rest >> digits) > 0)
        count, rest = count + more, rest >> more
    return count + rest
