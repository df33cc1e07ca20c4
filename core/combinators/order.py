"""What an array is like in order: the elements in the middle or at some share, and which ones there are, how often.

All of it sorts, and then reads where it has to; ``repeat`` goes back, from counts to places: ::

    sorted       1 1 3 4 4 4 9         median 4
    firsts       0   2 3     6         unique 1 3 4 9       counts: from each first to the next, 2 1 3 1
    ends             2 3     6 7       repeat: at place j is the first element that ends behind j
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..builder import current
from ..dims import Dim
from ..expr import Expr, as_expr, broadcast_element, floating, promoted, same_size
from ..graph import Value
from ..primitive import PRIMITIVES
from ..source import at_line, user_line
from ..terms import Constant, Failure
from ..types import dims, i64
from .arrays import generate, iota, map
from .control import where
from .operands import axes_of, axis_of, extent_of, nonempty, permuted, scaled, with_axes
from .reductions import any, sum
from .scans import cumsum
from .scattering import filter, scatter
from .shapes import ravel, reshape, resized
from .sorting import argsort, searchsorted, sort

# At a place in the order


def median(x: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    """The middle element along an axis, several, or of all; of an even number the mean of two. With a NaN it is NaN.

    Raises ValueError for a median of nothing.

    >>> import adze as az, numpy as np
    >>> float(az.evaluate(lambda x: az.median(x))(np.array([5.0, 1.0, 2.0, 9.0])))
    3.5
    """

    def middle(rows: Expr, n: Expr) -> Expr:
        below, above = rows[..., (n - 1) // 2], rows[..., n // 2]
        return where(below == above, above, (below + above) / 2)

    return _ordered("median", x, axis, keepdims, middle)


def quantile(x: Any, q: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    """What a share q of the elements lies below, along an axis, several, or of all: linear between two elements.

    An array q gives as many quantiles, along the first axes of the result. With a NaN it is NaN. Raises ValueError for
    a quantile of nothing, and for a share that is known not to be from 0 to 1 (in the run: IndexError).

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda x: az.quantile(x, [0.0, 0.5, 0.75]))(np.array([5.0, 1.0, 2.0]))
    array([1. , 2. , 3.5])
    """
    if not isinstance(q, Expr) and not np.all((np.asarray(q) >= 0) & (np.asarray(q) <= 1)):
        raise ValueError(at_line(f"quantile: a share is from 0 to 1, not {q!r}"))
    given, shares = promoted([floating(x), q])

    def at(rows: Expr, n: Expr) -> Expr:
        builder = current()

        def one(*indices: Value) -> Value:
            share = Expr(broadcast_element(shares.value, indices), builder)
            place = share * (n - 1).astype(rows.dtype)
            before = PRIMITIVES["floor"](place)
            k = before.astype(i64)
            low, high, t = rows[..., k], rows[..., PRIMITIVES["minimum"](k + 1, n - 1)], place - before
            spread = high - low
            mixed = where(t < 0.5, low + spread * t, high - spread * (1 - t))
            return where(low == high, low, mixed).value

        return Expr(builder.array(builder.sizes(shares.value), one), builder)

    return _ordered("quantile", given, axis, keepdims, at, shares.ndim)


def _ordered(what: str, x: Any, axis: Any, keepdims: bool, at: Callable[[Expr, Expr], Expr], in_front: int = 0) -> Expr:
    """What ``at`` reads from rows in order, which are so long; it may put axes in front."""
    given = floating(x)
    axes = axes_of(given, axis)
    others = [k for k in range(given.ndim) if k not in axes]
    moved = permuted(given, [*others, *axes])
    rows = moved if len(axes) == 1 else reshape(moved, (*[given.shape[k] for k in others], -1))
    builder = rows.builder
    count = builder.size(rows.value, len(others))
    nonempty(count, what)
    rows = sort(rows)
    last = rows[..., -1]
    found = where(last != last, last, at(rows, Expr(count, builder)))
    return with_axes(found, [in_front + axis for axis in axes]) if keepdims else found


# What occurs


def unique(x: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The elements of an array, each once, in order; all NaN count as one. The run decides how many there are.

    Further results, in this order: where each occurs first in x flattened; which of them each element of x is; how
    often each occurs.

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda x: az.unique(x, return_counts=True))(np.array([3, 1, 3]))
    (array([1, 3]), array([1, 2]))
    """
    given = as_expr(x)
    flat = ravel(given)
    order, n = argsort(flat), flat.axis_size(0)

    def is_first(k: Expr) -> Expr:
        here, before = flat[order[k]], flat[order[PRIMITIVES["maximum"](k - 1, 0)]]
        other = here != before
        return (k == 0) | ((other & ((here == here) | (before == before))) if flat.dtype.kind == "float" else other)

    firsts: Any = filter(is_first, iota(n))
    places = order[firsts]
    results = [flat[places]]
    if return_index:
        results.append(places)
    if return_inverse:
        number = cumsum(map(is_first, iota(n))) - 1
        inverse: Any = scatter(iota(n), order, number)
        results.append(reshape(inverse, given.shape))
    if return_counts:
        count = firsts.shape[0]

        def until_next(k: Expr) -> Any:
            following = firsts[PRIMITIVES["minimum"](k + 1, count - 1)]
            return where(k + 1 < count, following, n) - firsts[k]

        counts: Any = generate(count, until_next)
        results.append(counts)
    return results[0] if len(results) == 1 else tuple(results)


def repeat(x: Any, repeats: Any, axis: Any = None) -> Expr:
    """Each element several times along an axis, by default of x flattened.

    ``repeats`` says how often: an integer for all elements, or a vector with an integer for each. Of a vector that is
    an argument or computed, the run decides how long the result is. Raises TypeError for anything else, ValueError
    where lengths differ or a number is negative, before the run if that is known.

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda x: az.repeat(x, [2, 0, 1]))(np.array([3.0, 4.0, 5.0]))
    array([3., 3., 5.])
    """
    given = ravel(x) if axis is None else as_expr(x)
    along, counts, builder = axis_of(given, 0 if axis is None else axis), as_expr(repeats), current()
    if counts.ndim == 0 or dims(counts.type) == (Dim.of(1),):
        times = extent_of(counts if counts.ndim == 0 else counts[0])
        extent = scaled(builder.size(given.value, along), times)
        return resized(given, along, extent, lambda i, size: builder.primitive("floor_divide", i, times))
    if counts.ndim != 1 or counts.dtype.kind != "int":
        raise TypeError(at_line(f"repeat: repeats are an integer or a vector of integers, not {counts.type}"))
    same_size(given.value, along, counts.value, 0, "repeat")
    known = counts.value.atom
    if isinstance(known, Constant):
        times_each = known.array.astype(np.int64)
        if np.any(times_each < 0):
            raise ValueError(at_line(f"repeat: an element cannot be there {np.min(times_each)} times"))
        places = as_expr(np.repeat(np.arange(len(times_each)), times_each))
        total = builder.size(places.value, 0)
    else:
        places, total = _places(counts.astype(i64))
    return resized(given, along, total, lambda j, size: builder.index(places.value, [j]))


def _places(counts: Expr) -> tuple[Expr, Value]:
    """Where in an array each element of its repetition is from, and how many these are."""
    builder = current()
    builder.origin = user_line()
    failure = Failure("size", "repeat: an element cannot be there a negative number of times", user_line())
    builder.require((~any(counts < 0)).value, failure, [])
    counts = PRIMITIVES["maximum"](counts, 0)  # no place is outside of the array, even where a device fails later
    ends, total = cumsum(counts), sum(counts)
    return searchsorted(ends, iota(total), side="right"), total.value
