"""The methods of arrays that users of NumPy expect on expressions: each is the combinator of the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from .expr import Expr


class ArrayMethods:
    """The methods, for ``Expr`` to inherit; their arguments are those of the combinators."""

    __slots__ = ()

    @property
    def T(self) -> Expr:
        """The axes in reversed order."""
        return self.transpose()

    @property
    def size(self) -> Any:
        """The number of elements: an int where it is known, an i64 expression elsewhere."""
        count: Any = 1
        for n in cast("Expr", self).shape:
            count = n * count
        return count

    def transpose(self, *axes: Any) -> Expr:
        from .combinators import transpose

        return transpose(self, (axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes) or None)

    def reshape(self, *shape: Any) -> Expr:
        from .combinators import reshape

        return reshape(self, shape[0] if len(shape) == 1 else shape)

    def ravel(self) -> Expr:
        from .combinators import ravel

        return ravel(self)

    flatten = ravel

    def squeeze(self, axis: Any = None) -> Expr:
        from .combinators import squeeze

        return squeeze(self, axis)

    def swapaxes(self, axis1: Any, axis2: Any) -> Expr:
        from .combinators import swapaxes

        return swapaxes(self, axis1, axis2)

    def sum(self, axis: Any = None, keepdims: bool = False, *, dtype: Any = None) -> Expr:
        from .combinators import sum

        return sum(self, axis, keepdims, dtype=dtype)

    def prod(self, axis: Any = None, keepdims: bool = False, *, dtype: Any = None) -> Expr:
        from .combinators import prod

        return prod(self, axis, keepdims, dtype=dtype)

    def max(self, axis: Any = None, keepdims: bool = False) -> Expr:
        from .combinators import max

        return max(self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Expr:
        from .combinators import min

        return min(self, axis, keepdims)

    def any(self, axis: Any = None, keepdims: bool = False) -> Expr:
        from .combinators import any

        return any(self, axis, keepdims)

    def all(self, axis: Any = None, keepdims: bool = False) -> Expr:
        from .combinators import all

        return all(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False, *, dtype: Any = None) -> Expr:
        from .combinators import mean

        return mean(self, axis, keepdims, dtype=dtype)

    def var(self, axis: Any = None, ddof: Any = 0, keepdims: bool = False, *, dtype: Any = None) -> Expr:
        from .combinators import var

        return var(self, axis, ddof, keepdims, dtype=dtype)

    def std(self, axis: Any = None, ddof: Any = 0, keepdims: bool = False, *, dtype: Any = None) -> Expr:
        from .combinators import std

        return std(self, axis, ddof, keepdims, dtype=dtype)

    def argmax(self, axis: Any = None, keepdims: bool = False) -> Expr:
        from .combinators import argmax

        return argmax(self, axis, keepdims)

    def argmin(self, axis: Any = None, keepdims: bool = False) -> Expr:
        from .combinators import argmin

        return argmin(self, axis, keepdims)

    def argsort(self, axis: Any = -1, descending: bool = False) -> Expr:
        from .combinators import argsort

        return argsort(self, axis, descending)

    def cumsum(self, axis: Any = None, *, dtype: Any = None) -> Expr:
        from .combinators import cumsum

        return cumsum(self, axis, dtype=dtype)

    def cumprod(self, axis: Any = None, *, dtype: Any = None) -> Expr:
        from .combinators import cumprod

        return cumprod(self, axis, dtype=dtype)

    def dot(self, other: Any) -> Expr:
        from .combinators import dot

        return dot(self, other)

    def trace(self, offset: Any = 0, axis1: Any = 0, axis2: Any = 1, *, dtype: Any = None) -> Expr:
        """The sum of a diagonal of a matrix; of more axes, that of two of them."""
        from .combinators import diagonal, sum

        return sum(diagonal(self, offset, axis1, axis2), -1, dtype=dtype)

    def diagonal(self, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Expr:
        from .combinators import diagonal

        return diagonal(self, offset, axis1, axis2)

    def repeat(self, repeats: Any, axis: Any = None) -> Expr:
        from .combinators import repeat

        return repeat(self, repeats, axis)

    def take(self, indices: Any, axis: Any = None) -> Expr:
        from .combinators import take

        return take(self, indices, axis)
