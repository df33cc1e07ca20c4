"""The same elements in other places: axes, shapes, pieces put together. All of it is ``generate`` and ``index``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..builder import current
from ..dims import Dim
from ..expr import Expr, as_expr, broadcast_element, promoted, same_size
from ..graph import Value
from ..indexing import gathered
from ..source import at_line, user_line
from ..types import bool_, dims, i64
from .operands import (
    added,
    axes_of,
    axis_moved,
    axis_of,
    equal_sizes,
    extent_of,
    nonempty,
    permuted,
    product,
    scaled,
    shape_of,
    size_value,
    with_axes,
)

# Axes


def transpose(x: Any, axes: Sequence[int] | None = None) -> Expr:
    """x with its axes in another order: reversed (the default), or as a permutation says. ValueError for others."""
    x = as_expr(x)
    order = list(range(x.ndim))[::-1] if axes is None else [axis_of(x, axis) for axis in axes]
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(at_line(f"transpose: {tuple(axes or ())} is not an order of the axes of {x.type}"))
    return permuted(x, order)


def swapaxes(x: Any, axis1: Any, axis2: Any) -> Expr:
    """x with two axes exchanged."""
    x = as_expr(x)
    order = list(range(x.ndim))
    first, second = axis_of(x, axis1), axis_of(x, axis2)
    order[first], order[second] = second, first
    return permuted(x, order)


def moveaxis(x: Any, source: Any, destination: Any) -> Expr:
    """x with one axis at another place, the others in their order."""
    x = as_expr(x)
    return axis_moved(x, axis_of(x, source), axis_of(x, destination))


def expand_dims(x: Any, axis: Any) -> Expr:
    """x with a new axis of size one (or several), at these places of the result."""
    x = as_expr(x)
    places = list(axis) if isinstance(axis, tuple | list) else [axis]
    return with_axes(x, [axis_of(x, place, len(places)) for place in places])


def squeeze(x: Any, axis: Any = None) -> Expr:
    """x without these axes of size one (by default all that are known to be): ValueError when one is not."""
    given = as_expr(x)
    ones = [k for k, dim in enumerate(dims(given.type)) if dim == Dim.of(1)]
    chosen = ones if axis is None else axes_of(given, axis)
    for k in chosen:
        if k not in ones:
            raise ValueError(at_line(f"squeeze: axis {k} of {given.type} has size {dims(given.type)[k]}, not 1"))
    return given[tuple([0 if k in chosen else slice(None) for k in range(given.ndim)])]


# Shapes


def reshape(x: Any, shape: Any) -> Expr:
    """The elements of x in row-major order in another shape, of which one size may be -1: what is left.

    Raises TypeError when the number of elements differs for all sizes; where that depends on the sizes it is required
    of the run.

    >>> import adze as az
    >>> @az.program
    ... def pairs(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n//2 2"]:
    ...     return az.reshape(x, (-1, 2))
    >>> az.evaluate(pairs)([1.0, 2.0, 3.0, 4.0])
    array([[1., 2.],
           [3., 4.]])
    """
    x = as_expr(x)
    builder = current()
    builder.origin = user_line()
    sources = builder.sizes(x.value)
    targets = _targets(x, sources, shape_of(shape))
    lead = _common(sources, targets)
    tail = _common(sources[lead:][::-1], targets[lead:][::-1])
    inner, outer = sources[lead : len(sources) - tail], targets[lead : len(targets) - tail]

    def at(*indices: Value) -> Value:
        middle = unraveled(raveled(indices[lead : len(targets) - tail], outer), inner)
        return builder.index(x.value, [*indices[:lead], *middle, *indices[len(targets) - tail :]])

    return Expr(builder.array(targets, at), builder)


def _targets(x: Expr, sources: list[Value], shape: tuple[Any, ...]) -> list[Value]:
    """The sizes of a shape, with -1 replaced by what is left, required to hold all elements of x."""
    builder = current()
    open = [k for k, n in enumerate(shape) if isinstance(n, int | np.integer) and n == -1]
    if len(open) > 1:
        raise ValueError(at_line(f"reshape: {shape} has more than one size -1"))
    targets = [extent_of(1 if k in open else n) for k, n in enumerate(shape)]
    if open:
        rest, known = list(sources), [target for k, target in enumerate(targets) if k not in open]
        for target in list(known):
            equal = next((source for source in rest if source.dim == target.dim), None)
            if equal is not None:
                rest.remove(equal)
                known.remove(target)
        left, divisor = product(rest), _volume(known)
        targets[open[0]] = left if divisor.literal == 1 else builder.primitive("floor_divide", left, divisor)
        if divisor.literal == 1:
            return targets
    equal_sizes(product(sources), _volume(targets), f"reshape of {x.type} to another number of elements")
    return targets


def _volume(sizes: Sequence[Value]) -> Value:
    """The product of sizes that a user has given, each step of which fits i64."""
    return functools.reduce(scaled, sizes, current().literal(1, i64))


def _common(sources: Sequence[Value], targets: Sequence[Value]) -> int:
    """How many sizes at the front are the same."""
    count = 0
    while count < min(len(sources), len(targets)) and sources[count].dim == targets[count].dim:
        count += 1
    return count


def raveled(indices: Sequence[Value], sizes: Sequence[Value]) -> Value:
    """The position in row-major order."""
    builder = current()
    position = builder.literal(0, i64)
    for k, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        position = builder.primitive("add", builder.primitive("multiply", position, size), index) if k else index
    return position


def unraveled(position: Value, sizes: Sequence[Value]) -> list[Value]:
    """The indices of a position in row-major order."""
    builder = current()
    indices = []
    for size in sizes[:0:-1]:
        indices.append(builder.primitive("remainder", position, size))
        position = builder.primitive("floor_divide", position, size)
    return [position, *indices[::-1]] if sizes else []


def ravel(x: Any) -> Expr:
    """The elements of x in row-major order, as a vector."""
    x = as_expr(x)
    return x if x.ndim == 1 else reshape(x, (-1,))


def broadcast_to(x: Any, shape: Any) -> Expr:
    """x stretched to a shape: axes of size one repeat, and new axes come first.

    Raises TypeError when x has more axes or another size.
    """
    x = as_expr(x)
    builder = current()
    targets = [extent_of(n) for n in shape_of(shape)]
    if x.ndim > len(targets):
        raise TypeError(at_line(f"broadcast of {x.type} to {len(targets)} axes"))
    sizes = builder.sizes(x.value)
    for size, target in zip(sizes, targets[len(targets) - x.ndim :], strict=True):
        if size.literal != 1:
            equal_sizes(size, target, f"broadcast of {x.type} to another size")
    builder.origin = user_line()
    return Expr(builder.array(targets, lambda *indices: broadcast_element(x.value, indices)), builder)


# Pieces put together


def array(x: Any, dtype: Any = None) -> Expr:
    """An array from nested lists of numbers, expressions and arrays of one shape, as ``np.array``; of one, what it is.

    With ``dtype=az.f32``, say, the elements are converted, as by ``astype``.
    """
    if isinstance(x, tuple | list) and any(isinstance(leaf, Expr | tuple | list) for leaf in x):
        made = stack(x)
    else:
        made = as_expr(x)
    return made if dtype is None else made.astype(dtype)


def concatenate(arrays: Any, axis: Any = 0) -> Expr:
    """Arrays one after the other along an axis (None: flattened); along the other axes they have one size.

    Scalar types are promoted as by operators. Raises TypeError when there is no array or the shapes differ.
    """
    if not isinstance(arrays, tuple | list):
        raise TypeError(at_line("concatenate takes a tuple or list of arrays"))
    if not arrays:
        raise TypeError(at_line("concatenate takes at least one array"))
    pieces = promoted(list(map(_piece, arrays)))
    if axis is None:
        pieces, axis = [ravel(x) for x in pieces], 0
    for x in pieces:
        if x.ndim != pieces[0].ndim or not x.ndim:
            shown = ", ".join(str(piece.type) for piece in pieces)
            raise TypeError(at_line(f"concatenate takes arrays with the same number of axes, got {shown}"))
    first, along = pieces[0], axis_of(pieces[0], axis)
    for x in pieces[1:]:
        for k in range(first.ndim):
            if k != along:
                same_size(first.value, k, x.value, k, "concatenate")
    builder = current()
    builder.origin = user_line()
    ends = [builder.literal(0, i64)]
    for x in pieces:
        ends.append(added(ends[-1], builder.size(x.value, along)))
    sizes = builder.sizes(first.value)

    def at(*indices: Value) -> Value:
        def read(k: Any) -> Value:
            inside = builder.primitive("subtract", indices[along], ends[k])
            return builder.index(pieces[k].value, [*indices[:along], inside, *indices[along + 1 :]])

        return _chosen(indices[along], ends, read)

    return Expr(builder.array([*sizes[:along], ends[-1], *sizes[along + 1 :]], at), builder)


def vstack(arrays: Any) -> Expr:
    """Arrays one below the other: along the first axis, vectors as rows. Raises what ``concatenate`` raises."""
    return concatenate([_at_least(x, 2) for x in arrays] if isinstance(arrays, tuple | list) else arrays)


def hstack(arrays: Any) -> Expr:
    """Arrays side by side: vectors along their axis, others along the second. Raises what ``concatenate`` raises."""
    pieces = [_at_least(x, 1) for x in arrays] if isinstance(arrays, tuple | list) else arrays
    return concatenate(pieces, 0 if pieces and pieces[0].ndim == 1 else 1)


def _at_least(x: Any, axes: int) -> Expr:
    piece = _piece(x)
    return with_axes(piece, range(axes - piece.ndim)) if piece.ndim < axes else piece


def meshgrid(*xi: Any, indexing: str = "xy", sparse: bool = False) -> tuple[Expr, ...]:
    """For vectors of coordinates the grid of all their combinations: an array of each coordinate.

    With ``indexing="xy"`` the first two axes change places, as in pictures; ``sparse`` arrays have size one along the
    axes that they do not vary with. Raises ValueError for another indexing.

    >>> import adze as az
    >>> x, y = az.evaluate(lambda x: az.meshgrid(x, x))(np.arange(2.0))
    >>> x, y
    (array([[0., 1.],
           [0., 1.]]), array([[0., 0.],
           [1., 1.]]))
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(at_line(f"meshgrid: the indexing is 'xy' or 'ij', not {indexing!r}"))
    vectors = [ravel(_at_least(x, 1)) for x in xi]
    order = list(range(len(vectors)))
    if indexing == "xy":
        order[:2] = order[:2][::-1]
    shape = [vectors[k].axis_size(0) for k in order]
    grids = []
    for k, x in enumerate(vectors):
        thin = with_axes(x, [axis for axis in order if order[axis] != k])
        grids.append(thin if sparse else broadcast_to(thin, shape))
    return tuple(grids)


def _chosen(i: Value, ends: Sequence[Value], read: Callable[[int], Value]) -> Value:
    """What is read from piece k where ``ends[k] <= i < ends[k + 1]``, by halves."""
    builder = current()

    def choose(low: int, high: int) -> Value:
        if high - low == 1:
            return read(low)
        middle = (low + high) // 2
        test = builder.primitive("less", i, ends[middle])
        return builder.cond(test, lambda: [choose(low, middle)], lambda: [choose(middle, high)])[0]

    return choose(0, len(ends) - 1)


def _piece(x: Any) -> Any:
    """One of the arrays that are put together: a list may hold expressions."""
    return array(x) if isinstance(x, tuple | list) else x


def stack(arrays: Sequence[Any], axis: Any = 0) -> Expr:
    """Arrays (or scalars) of one shape along a new axis, which the result has at this place.

    Scalar types are promoted as by operators. Raises TypeError when there is no array or the shapes differ.
    """
    if not len(arrays):
        raise TypeError(at_line("stack takes at least one array"))
    pieces = promoted(list(map(_piece, arrays)))
    first = pieces[0]
    for x in pieces[1:]:
        if x.ndim != first.ndim:
            raise TypeError(at_line(f"stack takes arrays of one shape, got {first.type} and {x.type}"))
        for k in range(first.ndim):
            same_size(first.value, k, x.value, k, "stack")
    along = axis_of(first, axis, 1)
    builder = current()
    builder.origin = user_line()
    ends = [builder.literal(k, i64) for k in range(len(pieces) + 1)]
    sizes = builder.sizes(first.value)

    def at(*indices: Value) -> Value:
        others = [*indices[:along], *indices[along + 1 :]]
        return _chosen(indices[along], ends, lambda k: builder.index(pieces[k].value, others))

    return Expr(builder.array([*sizes[:along], ends[-1], *sizes[along:]], at), builder)


def tile(x: Any, reps: Any) -> Expr:
    """x repeated as a whole, as often as ``reps`` says for each of the last axes."""
    given = as_expr(x)
    times = [extent_of(n) for n in shape_of(reps)]
    tiled = with_axes(given, range(len(times) - given.ndim))
    for k, n in enumerate(times, tiled.ndim - len(times)):
        if n.literal != 1:
            extent = scaled(current().size(tiled.value, k), n)
            tiled = resized(tiled, k, extent, lambda i, size: current().primitive("remainder", i, size))
    return tiled


def resized(x: Expr, axis: Any, extent: Value, source: Callable[[Value, Value], Value]) -> Expr:
    """x with another size along an axis, where index i of the result is that of ``source(i, size)`` in x."""
    builder = current()
    builder.origin = user_line()
    sizes = builder.sizes(x.value)

    def at(*indices: Value) -> Value:
        return builder.index(x.value, [*indices[:axis], source(indices[axis], sizes[axis]), *indices[axis + 1 :]])

    return Expr(builder.array([*sizes[:axis], extent, *sizes[axis + 1 :]], at), builder)


# Elements in another order along an axis


def flip(x: Any, axis: Any = None) -> Expr:
    """x with an axis reversed, several, or all (the default)."""
    given = as_expr(x)
    backwards = axes_of(given, axis)
    return given[tuple([slice(None, None, -1 if k in backwards else None) for k in range(given.ndim)])]


def reverse(x: Any, axis: Any = 0) -> Expr:
    """x with one axis reversed, by default the first."""
    return flip(x, axis)


def roll(x: Any, shift: Any, axis: Any = None) -> Expr:
    """x moved ``shift`` places towards the end of an axis, and what leaves it enters at the front.

    ``shift`` is an integer or an i64 expression; without an axis x is moved in row-major order, as in NumPy. Of several
    shifts, of several axes or of both, one is for one of the other; ValueError when they are not as many.
    """
    rolled = as_expr(x)
    if axis is None:
        return reshape(roll(ravel(rolled), shift, 0), rolled.shape)
    shifts, axes = _each(shift), _each(axis)
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(axes) == 1:
        axes = axes * len(shifts)
    if len(shifts) != len(axes):
        raise ValueError(at_line(f"roll: {len(shifts)} shifts along {len(axes)} axes"))
    for places, along in zip(shifts, axes, strict=True):
        rolled = _rolled(rolled, places, along)
    return rolled


def _each(x: Any) -> list[Any]:
    """The parts of a tuple, list or vector of numbers; what is none of these is the only part."""
    return list(x) if isinstance(x, tuple | list) or (isinstance(x, np.ndarray) and x.ndim) else [x]


def _rolled(x: Expr, shift: Any, axis: Any) -> Expr:
    along, places = axis_of(x, axis), size_value(shift)
    builder = current()

    def source(i: Value, size: Value) -> Value:
        return builder.primitive("remainder", builder.primitive("subtract", i, places), size)

    return resized(x, along, builder.size(x.value, along), source)


def rotate(x: Any, shift: Any, axis: Any = 0) -> Expr:
    """x moved ``shift`` places towards the front of an axis: ``rotate(x, 1)`` is x[1], x[2], ..., x[0].

    As in Futhark; ``roll`` is NumPy's, in the other direction.
    """
    return roll(x, [-places for places in _each(shift)], axis)


def take(x: Any, indices: Any, axis: Any = None) -> Expr:
    """The parts of x at some indices along an axis (by default in x flattened), as ``x[..., indices]``."""
    given = ravel(x) if axis is None else as_expr(x)
    along = axis_of(given, 0 if axis is None else axis)
    return given[tuple([slice(None)] * along + [indices])]


def take_along_axis(x: Any, indices: Any, axis: Any) -> Expr:
    """The elements of x at indices that are given for each place: ``x[..., indices[..., j, ...], ...]``.

    ``indices`` has as many axes as x, and its sizes off the axis. This is how ``argsort`` and ``argmax`` are used.
    """
    x, places = as_expr(x), as_expr(indices)
    along = axis_of(x, axis)
    if places.ndim != x.ndim:
        raise TypeError(at_line(f"take_along_axis: indices of type {places.type} into {x.type}, with other axes"))
    for k in range(x.ndim):
        if k != along:
            same_size(x.value, k, places.value, k, "take_along_axis")
    return gathered(x, along, places)


# Borders

# What an index outside an axis stands for, by the names that Accelerate has for it, and NumPy in ``pad``.
MODES = ("edge", "wrap", "reflect", "symmetric")
BOUNDARIES = ("clamp", "mirror", *MODES)


def bordered(i: Value, size: Value, boundary: str) -> Value:
    """The index inside an axis, which is not empty, that stands for one outside.

    It is the nearest, the periodic or the reflected one, however far outside; but by "mirror" an index is reflected
    once, and what is then still outside is clamped.
    """
    builder = current()
    if boundary == "wrap":
        return builder.primitive("remainder", i, size)
    zero, one = builder.literal(0, i64), builder.literal(1, i64)
    last = builder.primitive("subtract", size, one)
    if boundary in ("reflect", "symmetric"):
        # There and back again: "reflect" is at each end once, "symmetric" twice. (An integer modulo 0 is 0.)
        half = last if boundary == "reflect" else size
        forth = builder.primitive("remainder", i, builder.primitive("add", half, half))
        back = builder.primitive("subtract", builder.primitive("add", half, last), forth)
        return builder.primitive("minimum", forth, back)
    if boundary == "mirror":
        twice = builder.primitive("multiply", builder.literal(2, i64), last)
        positive = builder.primitive("abs", i)
        i = builder.primitive(
            "minimum", positive, builder.primitive("abs", builder.primitive("subtract", twice, positive))
        )
    return builder.primitive("maximum", builder.primitive("minimum", i, last), zero)


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Expr:
    """x with borders: ``pad_width`` is one size, (before, after), or such a pair for each axis, as in NumPy.

    The border is ``constant_values`` (a number or scalar expression, or pairs as for the widths), or with mode "edge",
    "wrap", "reflect" or "symmetric" it is made of x, again and again where it is wider than x is long. Raises
    ValueError for another mode, and for a border that is made of nothing.

    >>> import adze as az
    >>> @az.program
    ... def bordered(x: az.Array[az.f64, "n"]):
    ...     return az.pad(x, (1, 4), mode="reflect")
    >>> bordered([1.0, 2.0, 3.0])
    array([2., 1., 2., 3., 2., 1., 2., 3.])
    """
    x = as_expr(x)
    if mode not in ("constant", *MODES):
        modes = "'constant', 'edge', 'wrap', 'reflect' or 'symmetric'"
        raise ValueError(at_line(f"pad: the mode is {modes}, not {mode!r}"))
    widths = [[extent_of(n) for n in pair] for pair in _pairs(x, pad_width)]
    pairs = _pairs(x, constant_values)
    numbers = {id(c): as_expr(c, x.dtype).astype(x.dtype).value for pair in pairs for c in pair}
    fillings = [[numbers[id(c)] for c in pair] for pair in pairs]
    builder = current()
    builder.origin = user_line()
    sizes = builder.sizes(x.value)
    extents = [added(added(size, before), after) for size, (before, after) in zip(sizes, widths, strict=True)]

    if mode != "constant":
        for k, (size, pair) in enumerate(zip(sizes, widths, strict=True)):
            if any(width.literal != 0 for width in pair):
                nonempty(size, f"pad: a border by mode {mode!r} of axis {k}")

    def at(*indices: Value) -> Value:
        inner = [builder.primitive("subtract", i, pair[0]) for i, pair in zip(indices, widths, strict=True)]
        if mode == "constant":
            return _filled(x, inner, sizes, fillings)
        inside = [
            i if all(width.literal == 0 for width in pair) else bordered(i, size, mode)
            for i, size, pair in zip(inner, sizes, widths, strict=True)
        ]
        return builder.index(x.value, inside)

    return Expr(builder.array(extents, at), builder)


def _filled(x: Expr, indices: Sequence[Value], sizes: Sequence[Value], fillings: Sequence[Sequence[Value]]) -> Value:
    """The element of x, or what fills the border there: in corners, that of the last axis."""
    builder, values = current(), [filling for pair in fillings for filling in pair]
    if all(value is values[0] for value in values):
        filled = values[0] if values else builder.literal(0, x.dtype)
        inside = within(indices, sizes)
        return builder.cond(inside, lambda: [builder.index(x.value, indices)], lambda: [filled])[0]

    def choose(axis: int) -> Value:
        if axis < 0:
            return builder.index(x.value, indices)
        i, (before, after) = indices[axis], fillings[axis]
        low = builder.primitive("less", i, builder.literal(0, i64))
        high = builder.primitive("less_equal", sizes[axis], i)
        return builder.cond(
            low, lambda: [before], lambda: builder.cond(high, lambda: [after], lambda: [choose(axis - 1)])
        )[0]

    return choose(len(indices) - 1)


def within(indices: Sequence[Value], sizes: Sequence[Value]) -> Value:
    """Whether all indices are inside their axes."""
    builder = current()
    inside = builder.literal(True, bool_)
    for k, (i, size) in enumerate(zip(indices, sizes, strict=True)):
        low = builder.primitive("less_equal", builder.literal(0, i64), i)
        both = builder.primitive("logical_and", low, builder.primitive("less", i, size))
        inside = builder.primitive("logical_and", inside, both) if k else both
    return inside


def _pairs(x: Expr, given: Any) -> list[tuple[Any, Any]]:
    """What is before and after each axis: sizes of borders, or what they hold."""
    if isinstance(given, Expr):
        return [(given, given)] * x.ndim
    pairs = np.asarray(given, dtype=object)
    try:
        return [tuple(pair) for pair in np.broadcast_to(pairs, (x.ndim, 2))]
    except ValueError:
        raise ValueError(at_line(f"pad: {given!r} is not a border for each axis of {x.type}")) from None
