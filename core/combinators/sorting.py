"""Sorting: ``argsort`` is a construct, the rest is said with it."""

from __future__ import annotations

from typing import Any

from ..builder import current
from ..expr import Expr, as_expr, promoted
from ..graph import Value
from ..source import at_line, user_line
from ..types import i64
from .control import where, while_loop
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

    The i64 places have the shape of ``v``. NaN is largest. Raises TypeError when ``a`` is not a vector.
    """
    if side not in ("left", "right"):
        raise ValueError(at_line(f"the side of a searchsorted is 'left' or 'right', not {side!r}"))
    vector, values = promoted([a, v])
    if vector.ndim != 1:
        raise TypeError(at_line(f"searchsorted in a vector, not in a value of type {vector.type}"))
    builder = current()
    builder.origin = user_line()

    def less(p: Expr, q: Expr) -> Expr:
        return (p < q) | ((p == p) & (q != q)) if vector.dtype.kind == "float" else p < q

    def at(*indices: Value) -> Value:
        wanted = Expr(builder.index(values.value, indices), builder)

        def halved(state: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
            low, high = state
            middle = (low + high) >> 1
            element = Expr(builder.index(vector.value, [middle.value]), builder)
            after = less(element, wanted) if side == "left" else ~less(wanted, element)
            return where(after, middle + 1, low), where(after, high, middle)

        ends: Any = while_loop(lambda state: state[0] < state[1], halved, (0, as_expr(vector.axis_size(0))))
        place: Value = ends[0].value
        return place

    return Expr(builder.array(builder.sizes(values.value), at), builder)
