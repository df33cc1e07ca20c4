"""Indexing with NumPy's notation: ``x[i]``, ``x[1:, ::-1]``, ``x[i, :, None]``, ``x[..., j]`` and ``x[integers]``.

A key selects places: it says for each axis of x, from the indices of the result, the index that is read there. What
reads them is a ``generate``, which costs nothing where it is read once; what writes them is a ``scatter``. Indices
that are not proved in range get a requirement beside them; reading and writing themselves are total. Negative
literals count from the end, those of a captured array too; a negative index that is computed is an error of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .builder import Builder, current
from .dims import Dim, DimAtom, Opaque
from .expr import Expr, as_expr, broadcast_element, broadcast_sizes
from .graph import Value
from .host_arrays import as_array, is_masked
from .methods import METHODS
from .primitive import PRIMITIVES
from .ranges import index_in_range
from .source import at_line, user_line
from .terms import Failure
from .types import i64, rank

# The index read on an axis of the array, for the indices of the result.
Reader = Callable[[tuple[Value, ...]], Value]


@dataclass
class Selection:
    """The places that a key selects: the shape of the result, and for each axis of the array the index there.

    The last ``whole`` axes of the array are the last of the result, unchanged. Where ``repeats``, a place may be
    selected twice.
    """

    extents: list[Value]
    readers: list[Reader]
    whole: int
    repeats: bool


def getitem(x: Expr, key: Any) -> Expr:
    """``x[key]``; IndexError or TypeError, with the user's line, when the key does not fit the type."""
    selection = select(x, key)
    builder, readers = current(), selection.readers
    return Expr(
        builder.array(selection.extents, lambda *i: builder.index(x.value, [read(i) for read in readers])), builder
    )


METHODS["getitem"] = getitem


def select(x: Expr, key: Any) -> Selection:
    """The places that a key selects (see :class:`Selection`)."""
    keys = _expand_ellipsis(x, list(key) if isinstance(key, tuple) else [key])
    builder = current()
    builder.origin = user_line()
    indices: dict[int, Value] = {}
    axis = 0
    for position, part in enumerate(keys):
        if not (part is None or isinstance(part, slice)):
            indices[position] = _index(x, axis, part)
        axis += part is not None
    arrays = [value for value in indices.values() if rank(value.type)]
    block = broadcast_sizes(arrays, "the indices")
    places = list(indices)
    apart = len(arrays) > 0 and places[-1] - places[0] >= len(places)
    # Arrays of indices give the result their common axes: where the first index stands, or in front of all others
    # when a slice or a new axis stands between two indices.
    extents = list(block) if apart else []
    start = 0 if apart else None
    readers: list[Reader] = []
    for position, part in enumerate(keys):
        if part is None:
            extents.append(builder.literal(1, i64))
        elif isinstance(part, slice):
            count, read = _slice(builder, part, builder.size(x.value, len(readers)))
            readers.append(_at(len(extents), read))
            extents.append(count)
        else:
            if arrays and start is None:
                start = len(extents)
                extents.extend(block)
            readers.append(element_reader(indices[position], start or 0, len(block)))
    whole = 0
    while whole < len(keys) and is_whole(keys[-1 - whole]):
        whole += 1
    return Selection(extents, readers, whole, bool(arrays))


def _at(position: int, read: Callable[[Value], Value]) -> Reader:
    return lambda indices: read(indices[position])


def is_whole(part: Any) -> bool:
    """Whether a part of a key is the slice that takes a whole axis."""
    return isinstance(part, slice) and part.start is None and part.stop is None and part.step is None


def element_reader(value: Value, first: int, count: int) -> Reader:
    """An index, or the element of an array of indices for the indices of the result that stand from ``first`` on."""
    return lambda indices: broadcast_element(value, indices[first : first + count])


def _expand_ellipsis(x: Expr, keys: list[Any]) -> list[Any]:
    """One key an axis: an ellipsis, or the missing tail, becomes full slices."""
    used = sum(part is not None and part is not Ellipsis for part in keys)
    if used > x.ndim:
        raise IndexError(at_line(f"{used} indices into a value of type {x.type}"))
    full = [slice(None)] * (x.ndim - used)
    places = [position for position, part in enumerate(keys) if part is Ellipsis]
    if len(places) > 1:
        raise IndexError(at_line(f"an index into a value of type {x.type} has more than one ellipsis"))
    if places:
        return keys[: places[0]] + full + keys[places[0] + 1 :]
    return keys + full


def _slice(builder: Builder, part: slice, size: Value) -> tuple[Value, Callable[[Value], Value]]:
    """The length of a slice, and the index read for each index of the result."""
    step = 1 if part.step is None else _plain(part.step)
    if not isinstance(step, int) or isinstance(step, bool) or step == 0:
        raise TypeError(at_line("the step of a slice is a Python integer other than zero"))
    zero, one = builder.literal(0, i64), builder.literal(1, i64)

    def bound(end: Any, default: Value, inner: str, low: Value, high: Value) -> Value:
        """An end of the slice, clipped as Python clips it; ``inner`` does so on the side where the other end is.

        That is left out where nothing overflows: beyond the other end, the slice is empty.
        """
        if end is None:
            return default
        end = _plain(end)
        value = _integer(as_expr(end), "the end of a slice")
        if rank(value.type):
            raise TypeError(at_line(f"the end of a slice is an integer, not {value.type}"))
        if isinstance(end, int) and end < 0:
            value = builder.primitive("add", size, value)
        small = value.dim is not None and value.dim.is_static() and value.dim.fits(61)
        if not (small and inner == "maximum"):
            value = builder.primitive("maximum", value, low)
        return value if small and inner == "minimum" else builder.primitive("minimum", value, high)

    if step > 0:
        start = bound(part.start, zero, "minimum", zero, size)
        stop = bound(part.stop, size, "maximum", zero, size)
        span = builder.primitive("subtract", stop, start)
    else:
        last, before = builder.primitive("subtract", size, one), builder.literal(-1, i64)
        start = bound(part.start, last, "maximum", before, last)
        stop = bound(part.stop, before, "minimum", before, last)
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


def _plain(part: Any) -> Any:
    """A part of a key, with NumPy's integers as Python's."""
    if isinstance(part, np.integer) or (isinstance(part, np.ndarray) and part.ndim == 0 and part.dtype.kind in "iu"):
        return int(part)
    return part


def _index(x: Expr, axis: int, part: Any) -> Value:
    """An index, or an array of indices, into an axis: made sure to be in range, counted from the front."""
    part = _plain(part)
    if isinstance(part, list):
        part = as_array(part) if part else np.zeros(0, np.int64)
    builder = current()
    size = builder.size(x.value, axis)
    what = f"an index into a value of type {x.type}"
    if isinstance(part, np.ndarray) and part.dtype.kind in "iu" and not is_masked(part):
        return _captured(x, axis, size, part.astype(np.int64))
    value = _integer(as_expr(part), what)
    if rank(value.type) == 0:
        written = None
        if value.literal is not None and value.literal < 0:
            written, value = int(value.literal), builder.primitive("add", size, value)
        guard_index(builder, value, size, x, axis, written)
        return value
    guard_indices(builder, value, size, x, axis)
    return value


def _captured(x: Expr, axis: int, size: Value, indices: np.ndarray[Any, Any]) -> Value:
    """Indices known when the program is built: what is left to the run is whether the axis is long enough."""
    builder = current()
    if not indices.size:
        return as_expr(indices).value
    for extreme in {int(indices.min()), int(indices.max())}:
        value, written = builder.literal(extreme, i64), None
        if extreme < 0:
            written, value = extreme, builder.primitive("add", size, value)
        guard_index(builder, value, size, x, axis, written)
    if indices.min() >= 0:
        return as_expr(indices).value
    if size.literal is not None:
        return as_expr(np.where(indices < 0, indices + int(size.literal), indices)).value
    from_end = as_expr((indices < 0).astype(np.int64))
    counted: Expr = as_expr(indices) + from_end * x.axis_size(axis)
    return counted.value


def gathered(x: Expr, axis: int, indices: Expr) -> Expr:
    """The elements of x at indices given for each place, which has the other indices of x."""
    builder = current()
    value = _integer(indices, "an index of take_along_axis")
    guard_indices(builder, value, builder.size(x.value, axis), x, axis)
    builder.origin = user_line()

    def at(*places: Value) -> Value:
        return builder.index(x.value, [*places[:axis], builder.index(value, places), *places[axis + 1 :]])

    return Expr(builder.array(builder.sizes(value), at), builder)


def _integer(x: Expr, what: str) -> Value:
    if x.dtype.kind == "bool":
        message = f"{what} is an integer, not {x.type}: only the run knows how much a mask selects"
        raise TypeError(at_line(f"{message}; use az.where to choose elementwise, or az.filter"))
    if x.dtype.kind != "int":
        raise TypeError(at_line(f"{what} is an integer, not {x.type}"))
    return as_index(x)


def as_index(x: Expr) -> Value:
    """An integer as i64; one that is too large becomes the largest, which is no place in an array either."""
    if x.dtype.most > i64.most:
        x = x.apply_primitive(PRIMITIVES["minimum"], [x, i64.most])
    return x.astype(i64).value


def guard_index(builder: Builder, index: Value, size: Value, x: Expr, axis: int, written: int | None = None) -> None:
    """Require ``0 <= index < size`` unless it is proved; refuse what is never in range.

    ``written`` is what the user wrote for an index that counts from the end.
    """
    assert index.dim is not None and size.dim is not None
    if index_in_range(index.dim, size.dim, extents_of(builder)) or _wraps_around(index, size):
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


def _wraps_around(index: Value, size: Value) -> bool:
    """Whether an index is a remainder by the size of its axis: what there is to require, that is not 0, it requires."""
    node = index.source
    remainder = node is not None and node.op == "primitive" and node.static[0].name == "remainder"
    return remainder and node is not None and node.args[1].dim == size.dim


def guard_indices(builder: Builder, indices: Value, size: Value, x: Expr, axis: int) -> None:
    """Require all elements of an array of indices to be in range."""
    builder.each(builder.sizes(indices), lambda *i: guard_index(builder, builder.index(indices, i), size, x, axis))


def extents_of(builder: Builder) -> Callable[[DimAtom], Dim | None]:
    """The extents of the loop variables in scope, for proofs about indices."""

    def extent(atom: DimAtom) -> Dim | None:
        return builder.extents.get(atom.number) if isinstance(atom, Opaque) else None

    return extent
