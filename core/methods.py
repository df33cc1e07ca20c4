"""The methods of arrays that users of NumPy expect on expressions: each is the combinator of the same name.

Combinators are made of expressions, and expressions have them as methods. So the modules that define what an operator
or a method means enter it here, by name, and ``Expr`` looks it up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from .trees import Structure

# What a method means, by its name; and three operators: "apply" for f(x), "field" for x.name, "getitem" for x[i].
METHODS: dict[str, Callable[..., Any]] = {}


def method(name: str) -> Callable[..., Structure]:
    """What has been entered under a name."""
    return METHODS[name]


class ArrayMethods:
    """The methods, for ``Expr`` to inherit; their arguments are those of the combinators."""

    __slots__ = ()

    @property
    def T(self) -> Self:
        """The axes in reversed order."""
        return self.transpose()

    def transpose(self, *axes: Any) -> Self:
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return method("transpose")(self, given or None)

    def reshape(self, *shape: Any) -> Self:
        return method("reshape")(self, shape[0] if len(shape) == 1 else shape)

    def ravel(self) -> Self:
        return method("ravel")(self)

    flatten = ravel

    def squeeze(self, axis: Any = None) -> Self:
        return method("squeeze")(self, axis)

    def swapaxes(self, axis1: Any, axis2: Any) -> Self:
        return method("swapaxes")(self, axis1, axis2)

    def sum(self, axis: Any = None, keepdims: bool = False, *, dtype: Any = None) -> Self:
        return method("sum")(self, axis, keepdims, dtype=dtype)

    def prod(self, axis: Any = None, keepdims: bool = False, *, dtype: Any = None) -> Self:
        return method("prod")(self, axis, keepdims, dtype=dtype)

    def max(self, axis: Any = None, keepdims: bool = False) -> Self:
        return method("max")(self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Self:
        return method("min")(self, axis, keepdims)

    def any(self, axis: Any = None, keepdims: bool = False) -> Self:
        return method("any")(self, axis, keepdims)

    def all(self, axis: Any = None, keepdims: bool = False) -> Self:
        return method("all")(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False, *, dtype: Any = None) -> Self:
        return method("mean")(self, axis, keepdims, dtype=dtype)

    def var(self, axis: Any = None, ddof: Any = 0, keepdims: bool = False, *, dtype: Any = None) -> Self:
        return method("var")(self, axis, ddof, keepdims, dtype=dtype)

    def std(self, axis: Any = None, ddof: Any = 0, keepdims: bool = False, *, dtype: Any = None) -> Self:
        return method("std")(self, axis, ddof, keepdims, dtype=dtype)

    def argmax(self, axis: Any = None, keepdims: bool = False) -> Self:
        return method("argmax")(self, axis, keepdims)

    def argmin(self, axis: Any = None, keepdims: bool = False) -> Self:
        return method("argmin")(self, axis, keepdims)

    def argsort(self, axis: Any = -1, descending: bool = False) -> Self:
        return method("argsort")(self, axis, descending)

    def cumsum(self, axis: Any = None, *, dtype: Any = None) -> Self:
        return method("cumsum")(self, axis, dtype=dtype)

    def cumprod(self, axis: Any = None, *, dtype: Any = None) -> Self:
        return method("cumprod")(self, axis, dtype=dtype)

    def clip(self, min: Any = None, max: Any = None) -> Self:
        return method("clip")(self, min, max)

    def copy(self) -> Self:
        """The array itself: programs never write to one."""
        return self

    def dot(self, other: Any) -> Self:
        return method("dot")(self, other)

    def trace(self, offset: Any = 0, axis1: Any = 0, axis2: Any = 1, *, dtype: Any = None) -> Self:
        """The sum of a diagonal of a matrix; of more axes, that of two of them."""
        return method("sum")(method("diagonal")(self, offset, axis1, axis2), -1, dtype=dtype)

    def diagonal(self, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Self:
        return method("diagonal")(self, offset, axis1, axis2)

    def repeat(self, repeats: Any, axis: Any = None) -> Self:
        return method("repeat")(self, repeats, axis)

    def take(self, indices: Any, axis: Any = None) -> Self:
        return method("take")(self, indices, axis)
