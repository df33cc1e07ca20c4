"""Values written to computed places: histograms, which combine those of one place, and scatters, which write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import trees
from ..builder import current
from ..expr import Expr, as_expr, broadcast_element, broadcast_sizes, promoted, same_size
from ..graph import Value
from ..host_arrays import as_array
from ..indexing import Reader, as_index, element_reader, guard_indices, select
from ..primitive import PRIMITIVES
from ..source import at_line, user_line
from ..terms import Failure
from ..trees import Structure
from ..types import bool_, dims, f64, i64, rank
from .arrays import map
from .operands import Elements, Function, equal_sizes, extent_of, product
from .reductions import max, sum
from .scans import cumsum
from .shapes import raveled, unraveled, within

WORD = 6  # an integer has 2**6 bits for as many places

# Histograms


def histogram(op: Function, neutral: Any, bins: Any, indices: Any, values: Any) -> Structure:
    """For each bin the reduction with ``op`` of the values that go there, in order (Futhark's ``reduce_by_index``).

    ``indices`` is a vector of integers, the bin of each value; values of bins outside 0..bins are ignored, and an
    empty bin holds the neutral element. ``values`` (an array or a structure of arrays along the same first axis),
    ``neutral`` and ``op`` are as in :func:`reduce`: other axes are mapped over, or belong to the elements when the
    neutral has them. Raises TypeError when structures, types or lengths do not fit.

    >>> import adze as az
    >>> @az.program
    ... def totals(group: az.Array[az.i64, "n"], x: az.Array[az.f64, "n"]) -> az.Array[az.f64, 3]:
    ...     return az.histogram(lambda a, b: a + b, 0.0, 3, group, x)
    >>> az.evaluate(totals)([0, 2, 0, 5], [1.0, 2.0, 3.0, 4.0])
    array([4., 0., 2.])
    """
    places = _places(indices, "histogram")
    count = extent_of(bins)
    if rank(places.type) != 1:
        raise TypeError(at_line(f"the bins of a histogram are a vector of integers, not {places.type}"))
    elements = Elements("histogram", op, neutral, values, 0)
    builder = elements.builder
    for x in elements.arrays:
        same_size(places, 0, x.value, 0, "histogram")
    builder.origin = user_line()

    def build(prefix: tuple[Value, ...]) -> Sequence[Value]:
        def at(i: Value) -> list[Value]:
            return [builder.index(places, [i]), *elements.at(prefix, i)]

        return builder.histogram(count, elements.extent, elements.neutrals, at, elements.operator, elements.names)

    return elements.in_place(elements.mapped(build))


def _places(indices: Any, what: str) -> Value:
    """An array of i64 indices."""
    found = as_expr(as_array(indices) if isinstance(indices, list) else indices)
    if found.dtype.kind != "int":
        raise TypeError(at_line(f"the indices of a {what} are integers, not {found.type}"))
    return as_index(found)


def bincount(x: Any, weights: Any = None, minlength: Any = 0, length: Any = None) -> Expr:
    """How often each integer occurs in a vector, or the sum of its weights, in f64 as in NumPy.

    The result is as long as ``length`` says (larger integers are not counted); without it, it reaches the largest
    integer and has at least ``minlength`` elements, as in NumPy. Negative integers are not counted.
    """
    x = as_expr(x)
    if length is None:
        largest: Any = max(Expr(_places(x, "histogram"), x.builder))
        length = PRIMITIVES["maximum"](PRIMITIVES["maximum"](largest, -1) + 1, minlength)
    if weights is None:
        return histogram(PRIMITIVES["add"], 0, length, x, map(lambda _: as_expr(1), x))
    return histogram(PRIMITIVES["add"], 0, length, x, as_expr(weights).astype(f64))


# Scatters


def scatter(destination: Any, indices: Any, values: Any, unique: bool = True, mode: str = "error") -> Structure:
    """``destination`` with ``values[i]`` written at ``indices[i]``, for all i; a new array.

    ``indices`` is an array of integers into the first axis, or a tuple of arrays into as many axes; they broadcast
    together. ``values`` broadcast to their shape, followed by the axes of the destination behind those indexed. The
    destination may be a structure of arrays, which the values then have too. With ``unique`` no two values may go to
    one place: ValueError in the run if they do (or when built, if the indices are known). Without it the last one wins.
    An index out of range is an IndexError; with ``mode="drop"`` it is ignored, a negative one too. Raises TypeError
    when shapes or types do not fit.

    >>> import adze as az
    >>> @az.program
    ... def inverse(p: az.Array[az.i64, "n"]) -> az.Array[az.i64, "n"]:
    ...     return az.scatter(p, p, az.iota(az.size(p)))
    >>> az.evaluate(inverse)([2, 0, 1])
    array([1, 2, 0])
    """
    if mode not in ("error", "drop"):
        raise ValueError(at_line(f"the mode of a scatter is 'error' or 'drop', not {mode!r}"))
    leaves, tree = trees.flatten(destination)
    given, value_tree = trees.flatten(values)
    if tree == trees.LEAF and value_tree != trees.LEAF and isinstance(values, list):
        given, value_tree = [as_array(values)], trees.LEAF
    if tree != value_tree or not leaves:
        raise TypeError(at_line("the values of a scatter have the structure of the destination"))
    arrays = [as_expr(leaf) for leaf in leaves]
    places = [_places(part, "scatter") for part in (indices if isinstance(indices, tuple) else (indices,))]
    builder = current()
    first = arrays[0]
    for x in arrays:
        if x.ndim < len(places):
            raise TypeError(at_line(f"scatter: {len(places)} indices into a destination of type {x.type}"))
    builder.origin = user_line()
    arrays = [_with_sizes(x, first, len(places)) for x in arrays]
    if mode == "error":
        for k, place in enumerate(places):
            guard_indices(builder, place, builder.size(first.value, k), first, k)
    extents = broadcast_sizes(places, "the indices of a scatter")
    if unique:
        _require_unique(extents, places, first, mode == "drop")
    readers = [element_reader(place, 0, len(extents)) for place in places]
    return trees.unflatten(tree, _written("scatter", arrays, extents, readers, given, unique))


def _with_sizes(x: Expr, like: Expr, axes: int) -> Expr:
    """x with the sizes of another destination along the axes that are written to."""
    if dims(x.type)[:axes] == dims(like.type)[:axes]:
        return x
    builder = current()
    for k in range(axes):
        same_size(like.value, k, x.value, k, "scatter")
    sizes = [*builder.sizes(like.value)[:axes], *builder.sizes(x.value)[axes:]]
    return Expr(builder.array(sizes, lambda *i: builder.index(x.value, i)), builder)


def _written(
    what: str, arrays: Sequence[Expr], extents: Sequence[Value], readers: Sequence[Reader], values: Sequence[Any],
    unique: bool,
) -> list[Expr]:  # fmt: skip
    """Arrays with values written at the places that are read over these extents."""
    builder = current()
    fitted = [
        _fitted(what, x, value, [*extents, *builder.sizes(x.value)[len(readers) :]])
        for x, value in zip(arrays, values, strict=True)
    ]
    builder.origin = user_line()

    def at(*i: Value) -> list[Value]:
        i = i[: len(extents)]
        return [
            *[read(i) for read in readers],
            *[_part(x, len(readers), value, i) for x, value in zip(arrays, fitted, strict=True)],
        ]

    results = builder.scatter(unique, extents or [builder.literal(1, i64)], [x.value for x in arrays], at)
    return [Expr(result, builder) for result in results]


def _fitted(what: str, x: Expr, value: Any, sizes: Sequence[Value]) -> Value:
    """A value with x's scalar type that broadcasts to these sizes."""
    found = as_expr(value, x.dtype)
    if found.dtype != x.dtype and promoted([found, x])[0].dtype != x.dtype:
        raise TypeError(at_line(f"{what}: values of type {found.type} do not go into an array of type {x.type}"))
    if found.ndim > len(sizes):
        raise TypeError(at_line(f"{what}: values of type {found.type} have more axes than the {len(sizes)} written to"))
    converted = found.astype(x.dtype).value
    for own, size in zip(current().sizes(converted), sizes[len(sizes) - found.ndim :], strict=True):
        if own.literal != 1:
            equal_sizes(own, size, f"{what}: values of type {found.type} do not fit the place in {x.type}")
    return converted


def _part(x: Expr, axes: int, value: Value, indices: Sequence[Value]) -> Value:
    """What is written at one place: an element, or an array over the axes behind the indices."""
    builder = current()
    sizes = builder.sizes(x.value)[axes:]
    return builder.array(sizes, lambda *rest: broadcast_element(value, [*indices, *rest]))


def _require_unique(extents: Sequence[Value], places: Sequence[Value], x: Expr, dropped: bool) -> None:
    """Require that no two writes go to one place: that as many places are written as there are writes.

    The places that are written are a set of bits, which fits into a cache where an integer a place would not. How many
    values go to which place is only counted when the requirement fails. Writes may be ``dropped``: to no place.
    """
    builder = current()
    builder.origin = user_line()
    sizes = builder.sizes(x.value)[: len(places)]
    bins, writes = product(sizes), product(extents)

    def integer(value: int) -> Value:
        return builder.literal(value, i64)

    def place(k: Value) -> Value:
        """The number of the place that a write goes to, -1 for one that is dropped."""
        i = unraveled(k, extents)
        here = [broadcast_element(place, i) for place in places]
        if not dropped:
            return raveled(here, sizes)
        return builder.cond(within(here, sizes), lambda: [raveled(here, sizes)], lambda: [integer(-1)])[0]

    def bit(k: Value) -> list[Value]:
        """The word of the set that a write's place is in, and its bit there."""
        found = place(k)
        low = builder.primitive("bitwise_and", found, integer(2**WORD - 1))
        return [
            builder.primitive("right_shift", found, integer(WORD)),
            builder.primitive("left_shift", integer(1), low),
        ]

    def united(a: Value, b: Value) -> list[Value]:
        return [builder.primitive("bitwise_or", a, b)]

    rounded = builder.primitive("add", bins, integer(2**WORD - 1))
    words = builder.primitive("floor_divide", rounded, integer(2**WORD))
    written = builder.histogram(words, writes, [integer(0)], bit, united)[0]

    def to_a_place(k: Value) -> Value:
        return builder.primitive("i64", builder.primitive("less_equal", integer(0), place(k)))

    expected = builder.sum(writes, to_a_place, i64) if dropped else writes
    found = builder.sum(words, lambda w: builder.primitive("population_count", builder.index(written, [w])), i64)
    distinct = builder.primitive("equal", found, expected)
    builder.cond(distinct, list, lambda: _require_few(bins, writes, place, sizes, x))


def _require_few(
    bins: Value, writes: Value, place: Callable[[Value], Value], sizes: Sequence[Value], x: Expr
) -> list[Value]:
    """Require that at most one of the writes goes to each place, counted by a histogram of the places."""
    builder = current()
    zero, one = builder.literal(0, i64), builder.literal(1, i64)

    def total(a: Value, b: Value) -> list[Value]:
        return [builder.primitive("add", a, b)]

    counts = builder.histogram(bins, writes, [zero], lambda k: [place(k), one], total)[0]
    shown = ", ".join(f"{{{k + 1}}}" for k in range(len(sizes)))
    message = (
        f"scatter: {{0}} values go to the place [{shown}] of a destination of type {x.type}; unique=False allows it"
    )
    failure = Failure("size", message, user_line())

    def check(bin: Value) -> None:
        count = builder.index(counts, [bin])
        builder.require(builder.primitive("less_equal", count, one), failure, [count, *unraveled(bin, sizes)])

    builder.each([bins], check)
    return []


def update(array: Any, index: Any, value: Any) -> Expr:
    """``array`` with ``value`` at ``array[index]``; a new array, made in place where the old one is not used again.

    ``index`` is what indexing takes: integers, slices, None, an ellipsis, arrays of integers; ``value`` broadcasts to
    the place and has (or promotes to) the array's type. Where arrays of indices name a place twice, the last value
    wins. Raises IndexError or TypeError when the index or the value does not fit.

    >>> import adze as az
    >>> @az.program
    ... def with_zeros(a: az.Array[az.f64, "n m"]) -> az.Array[az.f64, "n m"]:
    ...     return az.update(a, (0, slice(None, None, 2)), 0.0)
    >>> az.evaluate(with_zeros)([[1.0, 2.0, 3.0]])
    array([[0., 2., 0.]])
    """
    x = as_expr(array)
    if not x.ndim:
        raise TypeError(at_line(f"update of a scalar of type {x.type}"))
    selection = select(x, index)
    whole = selection.whole if selection.whole < x.ndim else x.ndim - 1
    count = len(selection.extents) - whole
    extents, readers = selection.extents[:count], selection.readers[: x.ndim - whole]
    return _written("update", [x], extents, readers, [value], not selection.repeats)[0]


# What a mask selects


def filter(f: Function, xs: Any) -> Structure:
    """The elements of an array (or a structure of arrays) along the first axis for which ``f`` holds, in order.

    The run decides how many there are: the result has an opaque size. Raises TypeError when ``f`` does not give a
    scalar bool.

    >>> import adze as az
    >>> @az.program
    ... def positive(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "m"]:
    ...     return az.filter(lambda v: v > 0, x)
    >>> az.evaluate(positive)([1.0, -2.0, 3.0])
    array([1., 3.])
    """
    keep = map(f, xs)
    if not isinstance(keep, Expr) or keep.dtype != bool_ or keep.ndim != 1:
        shown = keep.type if isinstance(keep, Expr) else "a structure"
        raise TypeError(at_line(f"the function of a filter gives a scalar bool for each element; it gave {shown}"))
    builder = current()
    builder.origin = user_line()
    ends, total, count = cumsum(keep), sum(keep), builder.size(keep.value, 0)
    outside, one = builder.literal(-1, i64), builder.literal(1, i64)
    start = builder.array([total.value], lambda i: i)

    def at(i: Value) -> list[Value]:
        place = builder.primitive("subtract", builder.index(ends.value, [i]), one)
        return [builder.cond(builder.index(keep.value, [i]), lambda: [place], lambda: [outside])[0], i]

    sources = builder.scatter(True, [count], [start], at)[0]

    def kept(leaf: Any) -> Expr:
        x = as_expr(leaf).value
        rows = builder.generate(total.value, lambda j: [builder.part(x, [builder.index(sources, [j])])])
        return Expr(rows[0], builder)

    return trees.tree_map(kept, xs)
