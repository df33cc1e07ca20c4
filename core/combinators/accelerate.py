"""The combinators of Accelerate that are not found under another name, with their published meanings.

``All`` stands for a whole axis in the slice specifications of ``replicate`` and ``slice`` (and in any index).
Where an operator has no neutral element (``permute``, ``fold1``) it is lifted to pairs of a flag and a value, of which
(False, anything) is neutral, and so runs in parallel too.

(Chakravarty et al.: Accelerating Haskell array codes with multicore GPUs, 2011; Smeding 2021, section 2.3.2.)
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import trees
from ..builder import current
from ..expr import Expr, as_expr, same_size
from ..graph import Value
from ..indexing import as_index, is_whole
from ..source import at_line, user_line
from ..terms import Failure
from ..trees import Shape, Structure
from ..types import bool_, i64
from .arrays import full_like, generate, map
from .control import cond
from .operands import Function, axis_of, extent_of, nonempty, product, shape_of
from .reductions import reduce
from .scattering import histogram
from .shapes import BOUNDARIES, bordered, ravel, raveled, reshape, within

All = builtins.slice(None)


def replicate(spec: Any, x: Any) -> Expr:
    """x with new axes along which it repeats: ``All`` in ``spec`` is the next axis of x, a size is a new axis.

    ``replicate((3, All), x)[i, j] == x[j]``. Raises TypeError when there is not one ``All`` for each axis of x.
    """
    x = as_expr(x)
    entries = shape_of(spec)
    kept = [k for k, entry in enumerate(entries) if is_whole(entry)]
    if len(kept) != x.ndim:
        raise TypeError(at_line(f"replicate: {len(kept)} axes are All, but a value of type {x.type} has {x.ndim}"))
    builder = current()
    sizes = iter(builder.sizes(x.value))
    extents = [next(sizes) if is_whole(entry) else extent_of(entry) for entry in entries]
    builder.origin = user_line()
    return Expr(builder.array(extents, lambda *i: builder.index(x.value, [i[k] for k in kept])), builder)


def slice(x: Any, spec: Any) -> Expr:
    """The part of x at fixed indices of some axes: ``All`` in ``spec`` keeps an axis, an integer takes one place.

    ``slice(x, (All, 0)) == x[:, 0]``. Raises TypeError when there is not one entry for each axis.
    """
    given, entries = as_expr(x), shape_of(spec)
    if len(entries) != given.ndim:
        raise TypeError(at_line(f"slice: {len(entries)} entries for the axes of a value of type {given.type}"))
    return given[entries]


def backpermute(shape: Any, f: Function, x: Any) -> Structure:
    """The array of this shape whose element at an index is that of x at ``f(index)`` (a gather).

    ``f`` takes one index a dimension and returns the index (or a tuple of them) in x, an array or a structure of
    arrays. An index out of range is an IndexError.
    """
    arrays = trees.tree_map(as_expr, x)

    def at(*indices: Expr) -> Structure:
        place = f(*indices)
        return trees.tree_map(lambda array: array[place], arrays)

    return generate(shape, at)


def permute(op: Function, defaults: Any, f: Function, x: Any) -> Structure:
    """``defaults`` with every element of x combined into the place that ``f`` gives for its index.

    ``op(old, new)`` is associative; elements that go to one place are combined in the order of x, after the default.
    ``f`` takes one index a dimension of x and returns an index (or a tuple) in ``defaults``; an element whose index is
    negative is left out, another index out of range is an IndexError. ``x`` and ``defaults`` are arrays, or structures
    of arrays of one shape each. Raises TypeError when structures or types do not fit.

    >>> import adze as az
    >>> @az.program
    ... def parities(x: az.Array[az.i64, "n"]) -> az.Array[az.i64, 2]:
    ...     return az.permute(lambda a, b: a + b, az.zeros(2, az.i64), lambda i: x[i] % 2, x)
    >>> az.evaluate(parities)([1, 2, 3, 4])
    array([6, 4])
    """
    sources, tree = _one_shape(x, "the array of a permute")
    targets, target_tree = _one_shape(defaults, "the defaults of a permute")
    if tree != target_tree:
        raise TypeError(at_line("the defaults of a permute have the structure of the array"))
    for new, old in zip(sources, targets, strict=True):
        if new.dtype != old.dtype:
            raise TypeError(at_line(f"permute: values of type {new.dtype} do not go into an array of type {old.type}"))
    first, builder = targets[0], current()
    sizes = builder.sizes(first.value)

    def bin(*indices: Expr) -> Expr:
        place = [as_expr(i) for i in shape_of(f(*indices))]
        if len(place) != first.ndim or any(i.ndim or i.dtype.kind != "int" for i in place):
            shown = ", ".join(str(i.type) for i in place)
            raise TypeError(at_line(f"permute: ({shown}) is not an index into an array of type {first.type}"))
        values = [as_index(i) for i in place]
        negative = [builder.primitive("less", value, builder.literal(0, i64)) for value in values]
        left_out = functools.reduce(lambda a, b: builder.primitive("logical_or", a, b), negative)
        for axis, (value, size) in enumerate(zip(values, sizes, strict=True)):
            test = builder.primitive("logical_or", left_out, builder.primitive("less", value, size))
            message = f"permute: index {{0}} is out of range for axis {axis} of {first.type}, whose size is {{1}}"
            builder.require(test, Failure("index", message, user_line()), [value, size])
        outside = builder.literal(-1, i64)
        return Expr(builder.cond(left_out, lambda: [outside], lambda: [raveled(values, sizes)])[0], builder)

    bins = ravel(generate(sources[0].shape, bin))
    lifted = _Lifted(op, trees.unflatten(tree, [ravel(x) for x in sources]))
    count = Expr(product(sizes), builder)
    found, values = histogram(lifted.operator, lifted.neutral, count, bins, lifted.elements)

    def combined(old: Any, has: Expr, new: Any) -> Structure:
        return cond(has, lambda: op(old, new), lambda: old)

    results = map(combined, trees.unflatten(tree, [ravel(x) for x in targets]), found, values)
    return trees.tree_map(lambda leaf: reshape(leaf, first.shape), results)


def fold1(op: Function, xs: Any, axis: Any = 0) -> Structure:
    """``xs[0] op xs[1] op ...`` along an axis, with an associative ``op`` that needs no neutral element.

    ``xs`` is an array or a structure of arrays of one shape; other axes are mapped over. Of nothing: ValueError, when
    the size is known to be zero or in the run. (A fold that begins with any element is ``op(initial, reduce(...))``.)
    """
    arrays, tree = _one_shape(xs, "the array of a fold1")
    nonempty(current().size(arrays[0].value, axis_of(arrays[0], axis)), "fold1")
    lifted = _Lifted(op, trees.unflatten(tree, arrays))
    result: Structure = reduce(lifted.operator, lifted.neutral, lifted.elements, axis)[1]
    return result


class _Lifted:
    """An operator without a neutral element, on pairs of a flag and a value: with one, False and anything."""

    def __init__(self, op: Function, xs: Any) -> None:
        self.op = op
        flags = full_like(trees.flatten(xs)[0][0].astype(bool_), True)
        self.elements = (flags, xs)
        self.neutral = (False, trees.tree_map(lambda x: as_expr(0, x.dtype).astype(x.dtype), xs))

    def operator(self, a: Any, b: Any) -> Any:
        (has_a, x), (has_b, y) = a, b
        return has_a | has_b, cond(has_a, lambda: cond(has_b, lambda: self.op(x, y), lambda: x), lambda: y)


def _one_shape(xs: Any, what: str) -> tuple[list[Expr], trees.Shape]:
    """The leaves of a structure of arrays, which have one shape."""
    leaves, tree = trees.flatten(xs)
    arrays = [as_expr(leaf) for leaf in leaves]
    if not arrays:
        raise TypeError(at_line(f"{what} is missing"))
    for x in arrays:
        if not x.ndim or x.ndim != arrays[0].ndim:
            raise TypeError(at_line(f"{what} is of type {', '.join(str(x.type) for x in arrays)}, not of one shape"))
        for axis in range(x.ndim):
            same_size(arrays[0].value, axis, x.value, axis, what)
    return arrays, tree


# Stencils


def stencil(f: Function, boundary: Any, *arrays: Any) -> Structure:
    """The array of ``f`` applied to the neighbourhood of every element.

    ``f`` gets a *window* for each array: ``w[0, 0]`` is the element itself, ``w[-1, 0]`` the one before it along the
    first axis, ``w[k]`` in a vector the one k places on; offsets are Python integers, of any size. Outside the array a
    window reads what ``boundary`` says: "clamp" (the nearest element), "wrap" (the array repeated), "mirror" (the
    array reflected once at its last element), "edge", "reflect" or "symmetric" as in ``pad``, a function of the index
    there, or a constant. Arrays have one shape; each may be a structure of arrays, of which a window gives the
    structure. Raises TypeError when shapes or offsets do not fit.

    >>> import adze as az
    >>> @az.program
    ... def smooth(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
    ...     return az.stencil(lambda w: (w[-1] + 2 * w[0] + w[1]) / 4, "clamp", x)
    >>> az.evaluate(smooth)([0.0, 4.0, 8.0])
    array([1., 4., 7.])
    """
    if isinstance(boundary, str) and boundary not in BOUNDARIES:
        names = ", ".join([repr(name) for name in BOUNDARIES])
        raise ValueError(at_line(f"the boundary of a stencil is {names} or a value, not {boundary!r}"))
    expressions, tree = _one_shape(arrays, "the array of a stencil")

    def at(*indices: Expr) -> Structure:
        rest = iter(expressions)
        result: Structure = f(
            *[Window([next(rest) for _ in range(one.leaves)], one, indices, boundary) for one in tree.inner]
        )
        return result

    return generate(expressions[0].shape, at)


class Window:
    """The neighbourhood of one element, indexed by offsets (see :func:`stencil`)."""

    def __init__(self, arrays: Sequence[Expr], tree: Shape, centre: Sequence[Expr], boundary: Any) -> None:
        self._arrays, self._tree, self._centre, self._boundary = arrays, tree, centre, boundary

    def __getitem__(self, offsets: Any) -> Structure:
        builder, given = current(), shape_of(offsets)
        first = self._arrays[0]
        if len(given) != first.ndim or not all(isinstance(k, int | np.integer) for k in given):
            wanted = f"{first.ndim} integer offset(s)"
            raise TypeError(at_line(f"a window of an array of type {first.type} takes {wanted}, not {offsets!r}"))
        builder.origin = user_line()
        sizes = builder.sizes(first.value)
        places = [(i + int(k)).value if k else i.value for i, k in zip(self._centre, given, strict=True)]
        moved = [axis for axis, k in enumerate(given) if k]
        if isinstance(self._boundary, str):
            for axis in moved:
                places[axis] = bordered(places[axis], sizes[axis], self._boundary)
            return self._structure(self._read(places))
        if not moved:
            return self._structure(self._read(places))
        inside = within([places[axis] for axis in moved], [sizes[axis] for axis in moved])
        return self._structure(builder.cond(inside, lambda: self._read(places), lambda: self._outside(places)))

    def _structure(self, values: Sequence[Value]) -> Structure:
        return trees.unflatten(self._tree, [Expr(value, current()) for value in values])

    def _read(self, places: Sequence[Value]) -> list[Value]:
        return [current().index(x.value, places) for x in self._arrays]

    def _outside(self, places: Sequence[Value]) -> list[Value]:
        given = self._boundary
        leaves, tree = trees.flatten(given(*[Expr(i, current()) for i in places]) if callable(given) else given)
        values = [as_expr(leaf, x.dtype) for leaf, x in zip(leaves, self._arrays, strict=False)]
        if tree != self._tree or any(v.type != x.dtype for v, x in zip(values, self._arrays, strict=True)):
            wanted = ", ".join(str(x.dtype) for x in self._arrays)
            raise TypeError(at_line(f"the boundary of a stencil has the structure and type of an element: {wanted}"))
        return [value.value for value in values]
