"""Indexing with NumPy's notation: ``x[i]``, ``x[1:, ::-1]``, ``x[i, :, None]``, ``x[..., j]`` and ``x[integers]``.

Every key becomes, for each axis of the result, the index it reads; the result is a ``generate`` over these, which
costs nothing where it is read once. Indices that are not proved in range get a requirement beside them; the read
itself is total. Negative literals count from the end; a negative index that is computed is an error of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .builder import Builder, current
from .dims import Dim, DimAtom, Opaque, index_in_range
from .graph import Value
from .source import at_line, user_line
from .terms import Failure
from .types import i64, rank

if TYPE_CHECKING:
    from .expr import Expr

# One entry an axis of the array: how the result's indices (at most one, at a position) give the index read there.
Reader = Callable[[tuple[Value, ...]], Value]


def getitem(x: Expr, key: Any) -> Expr:
    """``x[key]``; IndexError or TypeError, with the user's line, when the key does not fit the type."""
    from .expr import Expr

    keys = list(key) if isinstance(key, tuple) else [key]
    keys = _expand_ellipsis(x, keys)
    builder = current()
    builder.origin = user_line()
    extents: list[Value] = []
    readers: list[Reader] = []
    for part in keys:
        if part is None:
            extents.append(builder.literal(1, i64))
            continue
        axis = len(readers)
        size = builder.size(x.value, axis)
        if isinstance(part, slice):
            count, read = _slice(builder, part, size)
            readers.append(_at(len(extents), read))
            extents.append(count)
        else:
            _index(x, axis, size, part, extents, readers)
    if not any(isinstance(part, slice) or part is None for part in keys) and not extents:
        return Expr(builder.index(x.value, [read(()) for read in readers]), builder)
    return Expr(builder.array(extents, lambda *i: builder.index(x.value, [read(i) for read in readers])), builder)


def _at(position: int, read: Callable[[Value], Value]) -> Reader:
    return lambda indices: read(indices[position])


def _expand_ellipsis(x: Expr, keys: list[Any]) -> list[Any]:
    """One key an axis: an ellipsis, or the missing tail, becomes full slices."""
    used = sum(part is not None and part is not Ellipsis for part in keys)
    if used > x.ndim:
        raise IndexError(at_line(f"{used} indices into a value of type {x.type}"))
    full = [slice(None)] * (x.ndim - used)
    for position, part in enumerate(keys):
        if part is Ellipsis:
            return keys[:position] + full + keys[position + 1 :]
    return keys + full


def _slice(builder: Builder, part: slice, size: Value) -> tuple[Value, Callable[[Value], Value]]:
    """The length of a slice, and the index read for each index of the result."""
    from .expr import as_expr

    step = 1 if part.step is None else part.step
    if not isinstance(step, int) or step == 0:
        raise TypeError(at_line("the step of a slice is a Python integer other than zero"))
    zero, one = builder.literal(0, i64), builder.literal(1, i64)

    def bound(end: Any, default: Value, low: Value, high: Value) -> Value:
        """An end of the slice, clipped as Python clips it."""
        if end is None:
            return default
        value = _integer(as_expr(end), "the end of a slice")
        if isinstance(end, int) and end < 0:
            value = builder.primitive("add", size, value)
        return builder.primitive("minimum", builder.primitive("maximum", value, low), high)

    if step > 0:
        start = bound(part.start, zero, zero, size)
        stop = bound(part.stop, size, zero, size)
        span = builder.primitive("subtract", stop, start)
    else:
        last, before = builder.primitive("subtract", size, one), builder.literal(-1, i64)
        start = bound(part.start, last, before, last)
        stop = bound(part.stop, before, before, last)
        span = builder.primitive("subtract", start, stop)
    stride = builder.literal(abs(step), i64)
    if part.start is not None or part.stop is not None:
        span = builder.primitive("maximum", span, zero)
    rounded = builder.primitive("add", span, builder.literal(abs(step) - 1, i64))
    count = span if abs(step) == 1 else builder.primitive("floor_divide", rounded, stride)

    def read(i: Value) -> Value:
        offset = i if abs(step) == 1 else builder.primitive("multiply", i, stride)
        if start.literal == 0 and step > 0:
            return offset
        return builder.primitive("add" if step > 0 else "subtract", start, offset)

    return count, read


def _index(x: Expr, axis: int, size: Value, part: Any, extents: list[Value], readers: list[Reader]) -> None:
    """A scalar index reads one place; an array of integers reads one place an element."""
    from .expr import as_expr

    builder = current()
    value = _integer(as_expr(part), f"an index into a value of type {x.type}")
    if rank(value.type) == 0:
        written = None
        if value.literal is not None and value.literal < 0:
            written, value = int(value.literal), builder.primitive("add", size, value)
        guard_index(builder, value, size, x, axis, written)
        readers.append(lambda indices: value)
        return
    first, sizes = len(extents), builder.sizes(value)

    def check(*indices: Value) -> None:
        guard_index(builder, builder.index(value, indices), size, x, axis)

    builder.each(sizes, check)
    extents.extend(sizes)
    readers.append(lambda indices: builder.index(value, indices[first : first + len(sizes)]))


def _integer(x: Expr, what: str) -> Value:
    if x.dtype.kind != "int":
        raise TypeError(at_line(f"{what} is an integer, not {x.type}"))
    return x.astype(i64).value


def guard_index(builder: Builder, index: Value, size: Value, x: Expr, axis: int, written: int | None = None) -> None:
    """Require ``0 <= index < size`` unless it is proved; refuse what is never in range.

    ``written`` is what the user wrote for an index that counts from the end.
    """
    assert index.dim is not None and size.dim is not None
    if index_in_range(index.dim, size.dim, extents_of(builder)):
        return
    constant, limit = index.dim.constant, size.dim.constant
    if constant is not None and (constant < 0 or (limit is not None and constant >= limit)):
        raise IndexError(
            at_line(
                f"index {constant if written is None else written} is out of range for axis {axis} of type {x.type}"
            )
        )
    shown = "{0}" if written is None else str(written)
    name = x._value.name or "an array"
    message = f"index {shown} is out of range for axis {axis} of {name}, of type {x.type}, whose size is {{1}}"
    inside = builder.primitive(
        "logical_and",
        builder.primitive("less_equal", builder.literal(0, i64), index),
        builder.primitive("less", index, size),
    )
    builder.require(inside, Failure("index", message, user_line()), [index, size])


def extents_of(builder: Builder) -> Callable[[DimAtom], Dim | None]:
    """The extents of the loop variables in scope, for proofs about indices."""

    def extent(atom: DimAtom) -> Dim | None:
        return builder.extents.get(atom.number) if isinstance(atom, Opaque) else None

    return extent
