"""Arrays from indices, from other arrays element by element, and from constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import trees
from ..builder import current
from ..expr import Expr, as_expr, same_size, scalar_type
from ..graph import Value
from ..source import at_line, user_line
from ..trees import Structure
from ..types import f64
from .operands import Function, axis_of, extent_of, named, parameter_names, regular, shape_of


def generate(shape: Any, f: Function) -> Structure:
    """The array (or structure of arrays) of ``f(i, j, ...)`` over all indices of a shape.

    ``shape`` is a size or a tuple of sizes (integers or i64 expressions). ``f`` may return a scalar, an array (which
    adds its axes) or a structure of these. Raises TypeError when a size is not an integer.

    >>> import adze as az
    >>> @az.program
    ... def table(n: az.i64) -> az.Array[az.i64, "n m"]:
    ...     return az.generate((n, 3), lambda i, j: 10 * i + j)
    >>> az.evaluate(table)(2)
    array([[ 0,  1,  2],
           [10, 11, 12]])
    """
    extents = [extent_of(n) for n in shape_of(shape)]
    return _generate(extents, parameter_names(f, len(extents)), f)


def _generate(extents: Sequence[Value], names: Sequence[str], f: Function) -> Structure:
    builder = current()
    origin = user_line()
    shapes: list[trees.Shape] = []

    def build(prefix: tuple[Expr, ...]) -> Sequence[Value]:
        if len(prefix) == len(extents):
            leaves, tree = trees.flatten(f(*prefix))
            shapes[:] = [tree]
            return [as_expr(leaf).value for leaf in leaves]
        builder.origin = origin
        depth = len(prefix)
        values = builder.generate(extents[depth], lambda i: build((*prefix, Expr(i, builder))), names[depth])
        regular(values, origin)
        return values

    values = build(())
    return trees.unflatten(shapes[0], [Expr(value, builder) for value in values])


def map(f: Function, *arrays: Any) -> Structure:
    """``f`` applied along the first axis of one or more arrays (structures of arrays count leaf by leaf).

    ``map(f, xs, ys)[i] == f(xs[i], ys[i])``; the results are stacked. Raises TypeError when the arrays have no axis
    or their lengths differ.
    """
    builder = current()
    leaves, tree = trees.flatten(arrays)
    if not leaves:
        raise TypeError(at_line("map takes at least one array"))
    expressions = [as_expr(leaf) for leaf in leaves]
    for x in expressions:
        if x.ndim == 0:
            raise TypeError(at_line(f"map over a scalar of type {x.type}"))
        same_size(expressions[0].value, 0, x.value, 0, "map")
    names = parameter_names(f, len(arrays))

    def at(i: Expr) -> Any:
        arguments = trees.unflatten(tree, [x[i] for x in expressions])
        for name, argument in zip(names, arguments, strict=True):
            named(argument, name)
        return f(*arguments)

    return _generate([builder.size(expressions[0].value, 0)], [""], at)


def iota(n: Any) -> Expr:
    """The i64 array 0, 1, ..., n - 1."""
    result = generate(n, lambda i: i)
    assert isinstance(result, Expr)
    return result


def full(shape: Any, value: Any) -> Structure:
    """An array filled with one value: a number, a scalar expression, or an array, whose axes come last."""
    return generate(shape, lambda *_: value)


def zeros(shape: Any, dtype: Any = f64) -> Structure:
    """An array of zeros."""
    return full(shape, as_expr(0, scalar_type(dtype)).astype(dtype))


def ones(shape: Any, dtype: Any = f64) -> Structure:
    """An array of ones."""
    return full(shape, as_expr(1, scalar_type(dtype)).astype(dtype))


def full_like(x: Any, value: Any, dtype: Any = None) -> Expr:
    """An array with the shape and scalar type of x (or another type), filled with one number or scalar expression."""
    x = as_expr(x)
    scalar = x.dtype if dtype is None else scalar_type(dtype)
    filled = as_expr(value, scalar).astype(scalar)
    return Expr(x.builder.array(x.builder.sizes(x.value), lambda *_: filled.value), x.builder)


def zeros_like(x: Any, dtype: Any = None) -> Expr:
    """Zeros with the shape and scalar type of x (or another type)."""
    return full_like(x, 0, dtype)


def ones_like(x: Any, dtype: Any = None) -> Expr:
    """Ones with the shape and scalar type of x (or another type)."""
    return full_like(x, 1, dtype)


def size(x: Any, axis: Any = 0) -> Any:
    """The length of an axis: an int where it is known, an i64 expression elsewhere."""
    x = as_expr(x)
    return x.axis_size(axis_of(x, axis))
