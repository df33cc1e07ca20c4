"""Functions of matrices, the numbers that they have, and products: programs of the language (see ``__init__.py``)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.combinators import all as all_of
from ...core.combinators import count_nonzero, diagonal, einsum, eye, fori_loop, matmul, reshape, stack
from ...core.combinators import max as largest
from ...core.combinators import min as smallest
from ...core.combinators import sum as total
from ...core.dims import Dim
from ...core.expr import Expr, as_expr, floating, promoted
from ...core.primitive import PRIMITIVES
from ...core.source import at_line
from ...core.types import dims, i64
from .gauss import inv, solve
from .operands import matrices
from .orthogonal import svdvals

# Functions of matrices


# Coefficients of the Pade approximant of degree 13, and how large a norm it is exact enough for (Higham 2005).
_PADE = (
    *(64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0),
    *(10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0),
)
_PADE_NORM = 5.37
_MOST_SQUARINGS = 1100  # beyond, all is infinite


def expm(a: Any) -> Expr:
    """The exponential of matrices, by an approximant of a fraction that is squared again and again (Higham 2005).

    The largest matrix of a stack says how often.

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda a: az.linalg.expm(a))(np.array([[0.0, 1.0], [0.0, 0.0]]))
    array([[1., 1.],
           [0., 1.]])
    """
    x = floating(a)
    matrices("expm", x)
    size = PRIMITIVES["stop_gradient"](largest(total(PRIMITIVES["abs"](x), -2)))
    halvings = PRIMITIVES["ceil"](PRIMITIVES["log2"](PRIMITIVES["maximum"](size / _PADE_NORM, 1.0)))
    halvings = PRIMITIVES["minimum"](halvings, _MOST_SQUARINGS)
    x = x * PRIMITIVES["exp2"](-halvings)
    one, x2 = eye(x.shape[-1], dtype=x.dtype), x @ x
    x4 = x2 @ x2
    x6, b = x4 @ x2, _PADE
    odd = x @ (x6 @ (b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2 + b[1] * one)
    even = x6 @ (b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * one
    result: Expr = fori_loop(0, halvings.astype(i64), lambda _, r: r @ r, solve(even - odd, even + odd))
    return result


def matrix_power(a: Any, n: int) -> Expr:
    """A whole power of square matrices, by repeated squaring; a negative one of the inverse."""
    [x] = promoted([a])
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise TypeError(at_line(f"matrix_power: the power is a Python integer, not {n!r}"))
    matrices("matrix_power", x)
    if n < 0:
        x, n = inv(x), -n
    result: Expr | None = None
    while n:
        if n % 2:
            result = x if result is None else result @ x
        x, n = x @ x if n > 1 else x, n // 2
    return eye(x.shape[-1], dtype=x.dtype) + 0 * x if result is None else result


# Numbers that matrices have


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Expr:
    """The norm of vectors along an axis, of matrices along two, or of all of x; ``ord`` is NumPy's.

    Of vectors: 2 (the default), any other number, and ``np.inf``. Of matrices: "fro" (the default), 1, -1, 2, -2, "nuc"
    and ``np.inf``. Raises ValueError for others, as NumPy does.
    """
    given = floating(x)
    if axis is None:
        if ord is None:
            length = norm(reshape(given, (-1,)), axis=0)
            return reshape(length, (1,) * given.ndim) if keepdims else length
        axes = tuple(range(given.ndim))
    else:
        axes = tuple([int(k) % given.ndim for k in (axis if isinstance(axis, tuple | list) else [axis])])
    if len(axes) == 1:
        return _of_vectors(given, 2 if ord is None else ord, axes[0], keepdims)
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ValueError(at_line(f"norm: vectors have one axis, and matrices two different ones, not {axis!r}"))
    return _of_matrices(given, "fro" if ord is None else ord, axes, keepdims)


def _of_vectors(x: Expr, ord: Any, axis: int, keepdims: bool) -> Expr:
    magnitudes = PRIMITIVES["abs"](x)
    match ord:
        case 2:
            return PRIMITIVES["sqrt"](total(x * x, axis, keepdims))
        case np.inf:
            return largest(magnitudes, axis, keepdims)
        case _ if ord == -np.inf:
            return smallest(magnitudes, axis, keepdims)
        case 0:
            return count_nonzero(x, axis, keepdims).astype(x.dtype)
        case 1:
            return total(magnitudes, axis, keepdims)
        case int() | float():
            return total(magnitudes**ord, axis, keepdims) ** (1 / ord)
    raise ValueError(at_line(f"norm: vectors have none of order {ord!r}"))


def _of_matrices(x: Expr, ord: Any, axes: Sequence[int], keepdims: bool) -> Expr:
    rows, columns = axes
    magnitudes = PRIMITIVES["abs"](x)
    if ord == "fro":
        return PRIMITIVES["sqrt"](total(x * x, tuple(axes), keepdims))
    if ord in (1, -1, np.inf, -np.inf):
        along, across = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = total(magnitudes, along, keepdims=True)
        found = (largest if ord > 0 else smallest)(sums, across, keepdims=True)
        return found if keepdims else found[tuple([0 if k in axes else slice(None) for k in range(x.ndim)])]
    if ord not in (2, -2, "nuc"):
        raise ValueError(at_line(f"norm: matrices have none of order {ord!r}"))
    others = [k for k in range(x.ndim) if k not in axes]
    values = svdvals(x.transpose(*others, rows, columns))
    found = total(values, -1) if ord == "nuc" else largest(values, -1) if ord == 2 else smallest(values, -1)
    return found[tuple([None if k in axes else slice(None) for k in range(x.ndim)])] if keepdims else found


def trace(x: Any, offset: int = 0) -> Expr:
    """The sum of a diagonal of each matrix of a stack; ``offset`` counts diagonals from the main one up.

    >>> import adze as az, numpy as np
    >>> float(az.evaluate(lambda a: az.linalg.trace(a))(np.array([[1.0, 2.0], [3.0, 4.0]])))
    5.0
    """
    [given] = promoted([x])
    return total(diagonal(matrices("trace", given, square=False), offset, -2, -1), -1)


def cond(a: Any, p: Any = None) -> Expr:
    """The condition number: by singular values for the norm 2 (the default) or -2, else by the norm of the inverse."""
    x = floating(a)
    matrices("cond", x, square=p not in (None, 2, -2))
    if p in (None, 2, -2):
        values = svdvals(x)
        return values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
    return norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))


def matrix_rank(a: Any, tol: Any = None) -> Expr:
    """How many singular values are larger than ``tol``: by default the largest times the longer side times eps."""
    x = floating(a)
    if x.ndim < 2:
        return 1 - all_of(x == 0).astype("i8")
    values = svdvals(x)
    if tol is None:
        longer = PRIMITIVES["maximum"](*x.shape[-2:]).astype(x.dtype)
        tol = largest(values, -1, keepdims=True) * longer * float(np.finfo(x.dtype.dtype).eps)
    return count_nonzero(values > tol, -1)


# Products


def cross(a: Any, b: Any) -> Expr:
    """The cross product of vectors of three numbers along the last axis."""
    x, y = promoted([a, b])
    for each in (x, y):
        if each.ndim == 0 or dims(each.type)[-1] != Dim.of(3):
            raise TypeError(at_line(f"cross of vectors of three numbers, not of {each.type}"))
    first, second = ([each[..., k] for k in range(3)] for each in (x, y))
    turns = ((1, 2), (2, 0), (0, 1))
    return stack([first[i] * second[j] - first[j] * second[i] for i, j in turns], axis=-1)


def kron(a: Any, b: Any) -> Expr:
    """The Kronecker product of two matrices: b, times each element of a in its place."""
    x, y = promoted([a, b])
    for each in (x, y):
        if each.ndim != 2:
            raise TypeError(at_line(f"kron of two matrices, not of {each.type}"))
    (n, m), (k, l) = x.shape, y.shape
    return reshape(x[:, None, :, None] * y[None, :, None, :], (n * k, m * l))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Expr:
    """The sums of products over axes of both: the last so many of a with the first of b, or a pair of lists of axes."""
    x, y = promoted([a, b])
    if isinstance(axes, int | np.integer):
        left, right = list(range(x.ndim - int(axes), x.ndim)), list(range(int(axes)))
    else:
        left, right = ([int(k) for k in (part if isinstance(part, tuple | list) else [part])] for part in axes)
    if len(left) != len(right) or any([not -x.ndim <= k < x.ndim for k in left]) or len(left) > min(x.ndim, y.ndim):
        raise ValueError(at_line(f"tensordot: {axes!r} are no axes of {x.type} and {y.type}"))
    letters = iter([chr(code) for code in (*range(ord("a"), ord("z") + 1), *range(ord("A"), ord("Z") + 1))])
    first = [next(letters) for _ in range(x.ndim)]
    second = [next(letters) for _ in range(y.ndim)]
    for i, j in zip(left, right, strict=True):
        second[j] = first[i]
    summed = {first[i] for i in left}
    kept = [letter for letter in (*first, *second) if letter not in summed]
    return einsum(f"{''.join(first)},{''.join(second)}->{''.join(kept)}", x, y)


def multi_dot(arrays: Sequence[Any]) -> Expr:
    """The product of several matrices, of which the first and the last may be vectors, from left to right."""
    if len(arrays) < 2:
        raise ValueError(at_line("multi_dot takes at least two arrays"))
    return functools.reduce(matmul, [as_expr(x) for x in arrays])
