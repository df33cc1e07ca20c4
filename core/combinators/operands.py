"""What combinators are given: sizes, axes, structures of arrays, and functions on their elements.

``Elements`` is the one idea here: a structure of arrays seen along an axis, whose elements an operator combines.
What an element is, the neutral element says: the last axes of an array, as many as its neutral has, belong to the
element, and the others are mapped over.

    reduce(add, 0.0, a)                     # a: f64[n, m]; elements are scalars: m sums
    reduce(matmul, np.eye(4), ms)           # ms: f64[n, 4, 4]; elements are matrices: one product
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import trees
from ..builder import current
from ..dims import Dim, Opaque
from ..expr import Expr, as_expr, is_number, same_size
from ..graph import Value, numbers
from ..indexing import as_index, extents_of
from ..ranges import never_negative
from ..source import at_line, user_line
from ..terms import Failure, Origin
from ..types import Scalar, dims, i64, rank

Function = Callable[..., Any]

# Sizes


def size_value(n: Any) -> Value:
    """The i64 value of a size; TypeError when it is not an integer."""
    value = as_expr(int(n) if isinstance(n, np.integer) else n)
    if value.ndim or value.dtype.kind != "int":
        raise TypeError(at_line(f"a size is an integer, not {value.type}"))
    return as_index(value)


def dim_of(size: Value) -> Dim:
    """The dim that an i64 value is in types."""
    assert size.dim is not None
    return size.dim


def extent_of(n: Any) -> Value:
    """A size that is not negative: proved, refused, or left to a requirement of the run."""
    builder, value = current(), size_value(n)
    if value.literal is not None and value.literal < 0:
        raise ValueError(at_line(f"a size of {value.literal}"))
    known = value.source is not None and value.source.op == "size"
    if not known and not never_negative(dim_of(value), extents_of(builder)):
        builder.origin = user_line()
        test = builder.primitive("less_equal", builder.literal(0, i64), value)
        builder.require(test, Failure("size", "a size of {0}", user_line()), [value])
    return value


def shape_of(shape: Any) -> tuple[Any, ...]:
    """The sizes of a shape, which may be one size."""
    return tuple(shape) if isinstance(shape, tuple | list) else (shape,)


def equal_sizes(first: Value, second: Value, what: str) -> None:
    """Make sure that two sizes are equal: proved, refused, or left to a requirement of the run."""
    one, other = dim_of(first), dim_of(second)
    equal = one.compare(other)
    if equal is False:
        raise TypeError(at_line(f"{what}: {one} is not {other}"))
    if equal is None:
        builder = current()
        failure = Failure("size", f"{what}: {one} = {{0}} is not {other} = {{1}}", user_line())
        builder.require(builder.primitive("equal", first, second), failure, [first, second])


def nonempty(size: Value, what: str) -> None:
    """Make sure that a size is not zero: proved, refused, or left to a requirement of the run."""
    if size.literal == 0:
        raise ValueError(at_line(f"{what} of nothing"))
    if not (dim_of(size) - 1).is_nonnegative():
        builder = current()
        builder.origin = user_line()
        test = builder.primitive("less", builder.literal(0, i64), size)
        builder.require(test, Failure("size", f"{what} of nothing", user_line()), [])


def added(a: Value, b: Value) -> Value:
    """The sum of two sizes. OverflowError where it is none; of what the run decides it is required."""
    if a.literal is not None and b.literal is not None:
        _fits(int(a.literal) + int(b.literal))
    builder = current()
    total = builder.primitive("add", a, b)
    if total not in (a, b) and not dim_of(total).is_static():
        test = builder.primitive("less_equal", builder.literal(0, i64), total)
        builder.require(test, Failure("size", "a size of {0} + {1} does not fit i64", user_line()), [a, b])
    return total


def product(sizes: Sequence[Value]) -> Value:
    """The product of sizes. OverflowError where that is known to be none."""
    if all(size.literal is not None for size in sizes):
        _fits(math.prod([int(size.literal or 0) for size in sizes]))
    builder = current()
    total = builder.literal(1, i64)
    for size in sizes:
        total = size if total.literal == 1 else builder.primitive("multiply", total, size)
    return total


def scaled(size: Value, times: Value) -> Value:
    """A size so many times. OverflowError where that is none; of what the run decides it is required."""
    total, builder = product([size, times]), current()
    if total not in (size, times) and not dim_of(total).is_static():
        most, one = builder.literal((1 << 63) - 1, i64), builder.literal(1, i64)
        least = builder.primitive("floor_divide", most, builder.primitive("maximum", times, one))
        test = builder.primitive("less_equal", size, least)
        builder.require(test, Failure("size", "a size of {0} times {1} does not fit i64", user_line()), [size, times])
    return total


def _fits(size: int) -> None:
    if size >= 1 << 63:
        raise OverflowError(at_line(f"a size of {size}, which does not fit i64"))


# Axes


def axis_of(x: Expr, axis: Any, extra: int = 0) -> int:
    """An axis of x counted from the front (of a result with ``extra`` more axes); ValueError when there is none."""
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise TypeError(at_line(f"an axis is a Python integer, not {axis!r}"))
    count = x.ndim + extra
    if not -count <= axis < count:
        raise ValueError(at_line(f"axis {axis} of a value of type {x.type}"))
    return int(axis) % count


def axes_of(x: Expr, axis: Any) -> list[int]:
    """The axes that an ``axis`` argument names, in order: None all of them, a tuple several."""
    if axis is None:
        return list(range(x.ndim))
    axes = sorted([axis_of(x, one) for one in (axis if isinstance(axis, tuple | list) else (axis,))])
    if len(set(axes)) < len(axes):
        raise ValueError(at_line(f"axis {axis} names an axis of a value of type {x.type} twice"))
    return axes


def with_axes(x: Expr, axes: Sequence[int]) -> Expr:
    """x with new axes of size one, which the result has at these places."""
    if not axes:
        return x
    return x[tuple([None if axis in axes else slice(None) for axis in range(x.ndim + len(axes))])]


def permuted(x: Expr, axes: Sequence[int]) -> Expr:
    """x with its axes in another order."""
    if list(axes) == list(range(x.ndim)):
        return x
    builder = current()
    builder.origin = user_line()
    sizes = builder.sizes(x.value)

    def at(*indices: Value) -> Value:
        return builder.index(x.value, [indices[axes.index(axis)] for axis in range(x.ndim)])

    return Expr(builder.array([sizes[axis] for axis in axes], at), builder)


def axis_moved(x: Expr, source: int, target: int) -> Expr:
    """x with one axis at another place, the others in their order."""
    axes = [axis for axis in range(x.ndim) if axis != source]
    axes.insert(target, source)
    return permuted(x, axes)


# Values of one type


def conformed(x: Value, like: Value, what: str) -> Value:
    """x with the type of another array, whose sizes it is required to have where that is not proved."""
    if x.type == like.type:
        return x
    builder = current()
    for axis in range(rank(x.type)):
        same_size(like, axis, x, axis, what)
    return builder.array(builder.sizes(like), lambda *indices: builder.index(x, indices))


def extreme(scalar: Scalar, sign: int) -> Any:
    """The greatest (sign 1) or least (sign -1) value of a scalar type."""
    if scalar.kind == "float":
        return sign * float("inf")
    if scalar.kind == "bool":
        return sign > 0
    return scalar.most if sign > 0 else scalar.least


def totalled(x: Any, dtype: Any = None) -> Expr:
    """An operand of a sum or product in the type that it has in NumPy: of integers and booleans i64 or u64."""
    given = as_expr(x)
    return given.astype(np.zeros(0, given.dtype.dtype).sum().dtype if dtype is None else dtype)


class Elements:
    """The elements of a structure of arrays along an axis, and the operator that combines them (see the module)."""

    def __init__(self, what: str, op: Function, neutral: Any, xs: Any, axis: Any) -> None:
        self.what, self.op, self.builder = what, op, current()
        leaves, self.tree = trees.flatten(xs)
        units, unit_tree = trees.flatten(neutral)
        if not leaves:
            raise TypeError(at_line(f"{what} takes at least one array"))
        if self.tree != unit_tree:
            raise TypeError(at_line(f"the neutral element of a {what} has the structure of an element"))
        self.arrays = [as_expr(leaf) for leaf in leaves]
        self.axes = [axis_of(x, axis) for x in self.arrays]
        self.names = [leaf for name in parameter_names(op, 2) for leaf in leaf_names(name, self.tree)]
        given = [self._unit(unit, x) for unit, x in zip(units, self.arrays, strict=True)]
        self.outer = self._mapped_axes([unit.ndim for unit in given])
        first = self.arrays[0].value
        for x, own in zip(self.arrays[1:], self.axes[1:], strict=True):
            same_size(first, self.axes[0], x.value, own, what)
            for k, l in zip(self.outer[0], self._other_axes(x, own), strict=False):
                same_size(first, k, x.value, l, what)
        self.builder.origin = user_line()
        self.origin = replace(self.builder.origin, combines=True)
        self.extent = self.builder.size(first, self.axes[0])
        self.sizes = [self.builder.size(first, k) for k in self.outer[0]]
        self.neutrals = [self._neutral(k, unit) for k, unit in enumerate(given)]

    def _unit(self, unit: Any, x: Expr) -> Expr:
        """A neutral element, with the scalar type of the array's elements."""
        found = as_expr(unit, x.dtype)
        if found.dtype == x.dtype:
            return found
        if not isinstance(unit, Expr) and not is_number(unit):
            with np.errstate(all="ignore"):
                converted = np.asarray(unit).astype(x.dtype.dtype)
            if np.array_equal(converted, unit, equal_nan=x.dtype.kind == "float"):
                return as_expr(converted)
        raise TypeError(
            at_line(f"the neutral element of a {self.what} over {x.dtype} is of type {found.type}, not {x.dtype}")
        )

    def _mapped_axes(self, ranks: Sequence[int]) -> list[list[int]]:
        """For each array the axes that are mapped over: one number for all of them."""
        outer = []
        for x, own, inner in zip(self.arrays, self.axes, ranks, strict=True):
            others = self._other_axes(x, own)
            if inner > len(others):
                wanted = f"at most {len(others)} axes" if others else "no axes"
                raise TypeError(
                    at_line(
                        f"the neutral element of a {self.what} over axis {own} of {x.type} has {wanted}, not {inner}"
                    )
                )
            outer.append(others[: len(others) - inner])
        for x, axes in zip(self.arrays, outer, strict=True):
            if len(axes) != len(outer[0]):
                message = f"{self.what}: {self.arrays[0].type} is mapped over {len(outer[0])} axes, {x.type} over"
                raise TypeError(at_line(f"{message} {len(axes)}: the neutral elements have the axes of an element"))
        return outer

    def _other_axes(self, x: Expr, axis: int) -> list[int]:
        return [k for k in range(x.ndim) if k != axis]

    def _neutral(self, k: int, unit: Expr) -> Value:
        if not unit.ndim:
            return unit.value
        x = self.arrays[k]
        inner = self._other_axes(x, self.axes[k])[len(self.outer[k]) :]
        sizes = [self.builder.size(x.value, axis) for axis in inner]
        for axis, (size, own) in enumerate(zip(sizes, self.builder.sizes(unit.value), strict=True)):
            what = (
                f"the neutral element {unit.type} of a {self.what} does not fit the elements of {x.type} at axis {axis}"
            )
            equal_sizes(size, own, what)
        if dims(unit.type) == tuple([size.dim for size in sizes]):
            return unit.value
        return self.builder.array(sizes, lambda *indices: self.builder.index(unit.value, indices))

    def at(self, prefix: Sequence[Value], i: Value) -> list[Value]:
        """The element of each array at i, for these indices of the axes that are mapped over."""
        return [
            self._element(x, [*prefix[:axis], i, *prefix[axis:]], axis)
            for x, axis in zip(self.arrays, self.axes, strict=True)
        ]

    def _element(self, x: Expr, indices: list[Value], axis: int) -> Value:
        """The part of x at indices of its mapped axes, with that of the combined axis among or after them."""
        mapped = len(indices) - 1
        if axis <= mapped:
            return self.builder.part(x.value, indices)
        sizes = self.builder.sizes(x.value)
        inner = [size for k, size in enumerate(sizes) if k >= mapped and k != axis]
        prefix, i = indices[:-1], indices[-1]

        def at(*rest: Value) -> Value:
            return self.builder.index(x.value, [*prefix, *rest[: axis - mapped], i, *rest[axis - mapped :]])

        return self.builder.array(inner, at)

    def operator(self, *values: Value) -> list[Value]:
        """The user's operator on the leaves of two elements."""
        half = len(values) // 2
        a, b = ([Expr(v, self.builder) for v in part] for part in (values[:half], values[half:]))
        results, tree = trees.flatten(self.op(trees.unflatten(self.tree, a), trees.unflatten(self.tree, b)))
        if tree != self.tree:
            raise TypeError(at_line(f"the operator of a {self.what} returns the structure of an element"))
        combined = []
        for result, old in zip(results, a, strict=True):
            new = as_expr(result, old.dtype)
            if new.dtype != old.dtype or new.ndim != old.ndim:
                message = f"the operator of a {self.what} over {old.type} returned a value of type {new.type}"
                raise TypeError(at_line(message))
            combined.append(conformed(new.value, old.value, f"the operator of a {self.what}"))
        self.builder.origin = self.origin
        return combined

    def mapped(self, build: Callable[[tuple[Value, ...]], Sequence[Value]]) -> list[Expr]:
        """The results of ``build`` for all indices of the axes that are mapped over."""

        def nest(prefix: tuple[Value, ...]) -> Sequence[Value]:
            if len(prefix) == len(self.sizes):
                return build(prefix)
            return self.builder.generate(self.sizes[len(prefix)], lambda i: nest((*prefix, i)))

        return [Expr(value, self.builder) for value in nest(())]

    def structure(self, results: Sequence[Expr]) -> trees.Structure:
        return trees.unflatten(self.tree, results)

    def in_place(self, results: Sequence[Expr]) -> trees.Structure:
        """The results of ``mapped`` with the axis that follows the mapped ones where the arrays have it."""
        count = len(self.sizes)
        return self.structure([axis_moved(x, count, axis) for x, axis in zip(results, self.axes, strict=True)])


def regular(values: Sequence[Value], origin: Origin) -> None:
    """Refuse arrays of arrays whose size depends on the index, or is computed from what does."""
    builder = current()
    for value in values:
        assert value.source is not None
        body = value.source.bodies[0]
        inner = numbers(body.binders, body.statements)
        for dim in dims(value.type):
            for atom in dim.atoms():
                if isinstance(atom, Opaque) and not inner.isdisjoint(builder.needs(atom)):
                    message = f"irregular array of type {value.type}: an inner size depends on the index, at {origin}"
                    raise TypeError(f"{message}; give all rows one size (masked, or padded), or keep them in one array")


# Names, for printing


def parameter_names(f: Function, count: int) -> list[str]:
    """The names of a function's positional parameters; empty where unknown."""
    try:
        names = [p.name for p in inspect.signature(f).parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        names = []
    return (names + [""] * count)[:count]


def leaf_names(name: str, tree: trees.Shape) -> list[str]:
    """Names for the leaves of a structure that has a name: those of its parts, else the name with a number."""
    if not name or tree == trees.LEAF:
        return [name] * tree.leaves
    if tree.keys and tree.is_flat:
        return [str(key) for key in tree.keys]
    return [f"{name}{k + 1}" for k in range(tree.leaves)]


def named(x: Any, name: str) -> None:
    """Note a name for a value that has none."""
    if isinstance(x, Expr) and name and x._value.source is not None and not x._value.source.origin.name:
        source = x._value.source
        source.origin = type(source.origin)(source.origin.file, source.origin.line, name)
