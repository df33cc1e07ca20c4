"""Orthogonal factors: QR, eigenvalues of symmetric matrices, singular values, and what is made of these.

Where eigenvalues or singular values are equal, their vectors have no derivatives: these are infinite or NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from ...core.combinators import all as all_of
from ...core.combinators import concatenate, count_nonzero, eye, tril, where
from ...core.combinators import max as largest
from ...core.combinators import sum as total
from ...core.expr import Expr, as_expr, floating, promoted, same_size
from ...core.primitive import PRIMITIVES
from ...core.source import at_line
from ...core.types import Type, bool_, dims
from . import blocked, jacobi, routines, small
from .operands import (
    SMALL,
    constant,
    each_of,
    fill_with_nan,
    filling,
    is_small,
    like,
    matrices,
    of_lapack,
    on_diagonal,
    operation,
    regular,
    symmetric,
    turned,
)
from .triangles import triangular

LANES = 8  # extents, at most, up to which code for a CPU has the program of a factorisation, and not a call
LANES_SVD = 4  # twice as many numbers: of eight it would take some ten seconds to compile


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and the matrix whose columns are their vectors."""

    eigenvalues: Any
    eigenvectors: Any


class SVDResult(NamedTuple):
    """The factors of ``U @ diag(S) @ Vh``, with singular values in descending order."""

    U: Any
    S: Any
    Vh: Any


class QRResult(NamedTuple):
    """The factors of ``Q @ R``: orthonormal columns, and a triangle."""

    Q: Any
    R: Any


class LstsqResult(NamedTuple):
    """What :func:`lstsq` gives: solutions, the squared lengths of what is left, the rank, the singular values."""

    x: Any
    residuals: Any
    rank: Any
    s: Any


def _alone(values_of: Callable[[Any], Any]) -> Callable[..., None]:
    """NumPy's function for the values of matrices, which fills an array with them, or with NaN where it finds none."""
    return filling(lambda a: (values_of(a),))


def _factors(type: Type) -> tuple[Type, Type]:
    rows, columns = dims(type)[-2:]
    least = rows.minimum(columns)
    return like(type, rows, least), like(type, least, columns)


def _of_qr(arguments: Any, results: Any, cotangents: Any) -> Any:
    [a], (q, r), (q_bar, r_bar) = arguments, results, cotangents
    square = r.shape[-2]  # of the columns beyond, each is what Q makes of it
    beyond, beyond_bar = a[..., square:], r_bar[..., square:]
    q_bar = q_bar + beyond @ turned(beyond_bar)
    inner = r[..., :square] @ turned(r_bar[..., :square]) - turned(q_bar) @ q
    mirrored = tril(inner) + turned(tril(inner, -1))
    right = turned(q_bar + q @ mirrored)
    first = turned(triangular(False, False)(r[..., :square], right))
    return (concatenate([first, q @ beyond_bar], axis=-1),)


def _geqrt(turned: Any, q: Any, r: Any) -> None:
    blocked.qr(np.array(turned), q, r)


def _triangle(turned: Any, r: Any) -> None:
    blocked.qr(np.array(turned), None, r)


def _turned_factors(type: Type) -> tuple[Type, Type]:
    columns, rows = dims(type)
    least = rows.minimum(columns)
    return like(type, least, rows), like(type, columns, least)


def _of_columns(a: Any) -> Any:
    q, r = small.orthonormal(turned(a))
    return turned(q), turned(r)


_of_each = of_lapack(
    "qr",
    filling(np.linalg.qr),
    _factors,
    small.orthonormal,
    LANES,
    fewer={(1,): _alone(functools.partial(np.linalg.qr, mode="r"))},
)
_of_turned = of_lapack("qr", _geqrt, _turned_factors, _of_columns, LANES, fewer={(1,): _triangle})


def _orthonormal(a: Any) -> Any:
    """The factors: by NumPy for a stack, which it goes through in C."""
    if a.ndim > 2 or is_small(a, LANES):
        return _of_each(a)
    q, r = _of_turned(turned(a))
    return turned(q), turned(r)


_qr = operation("qr", _orthonormal, _of_qr)


@overload
def qr(a: Any, mode: Literal["reduced"] = "reduced") -> QRResult: ...
@overload
def qr(a: Any, mode: Literal["r"]) -> Expr: ...
def qr(a: Any, mode: str = "reduced") -> Any:
    """Orthonormal columns Q and a triangle R with ``Q @ R == a``; with ``mode="r"``, R alone.

    ValueError for NumPy's other modes, which have more columns or are LAPACK's own form. (Walter and Lehmann 2010,
    section 3.1, for tall matrices.)

    >>> import adze as az, numpy as np
    >>> q, r = az.evaluate(lambda a: az.linalg.qr(a))(np.array([[3.0, 0.0], [4.0, 5.0]]))
    >>> (q @ r).round(6)
    array([[3., 0.],
           [4., 5.]])
    """
    if mode not in ("reduced", "r"):
        raise ValueError(at_line(f'qr: mode is "reduced" or "r" here, got {mode!r}'))
    found = QRResult(*_qr(matrices("qr", floating(a), square=False)))
    return found if mode == "reduced" else found.R


# Eigenvalues


def _apart(values: Any) -> Any:
    """For each pair of numbers ``1 / (values[j] - values[i])``, and 0 for each with itself."""
    own = eye(values.shape[-1], dtype=bool_)
    gaps = values[..., None, :] - values[..., :, None]
    return where(own, 0.0, 1 / where(own, 1.0, gaps))


def _of_eigh(arguments: Any, results: Any, cotangents: Any) -> Any:
    (values, vectors), (values_bar, vectors_bar) = results, cotangents
    inner = on_diagonal(values_bar) + _apart(values) * (turned(vectors) @ vectors_bar)
    return (symmetric(vectors @ inner @ turned(vectors)),)


def _values_and_vectors(type: Type) -> tuple[Type, Type]:
    return like(type, dims(type)[-1]), type


def _syevd(a: Any, values: Any, rows: Any) -> None:
    """The eigenvalues and, in rows, the eigenvectors of one matrix; NaN where they are not found."""
    n, rows[...] = len(a), a  # column by column, its lower half is the upper one
    work, places = np.empty(1 + 6 * n + 2 * n * n, a.dtype), np.empty(3 + 5 * n, np.intc)
    if n and routines.run("syevd", a.dtype, "V", "U", n, rows, n, values, work, work.size, places, places.size):
        fill_with_nan(values, rows)


def _in_rows(a: Any) -> Any:
    values, vectors = jacobi.eigh(a)
    return values, turned(vectors)


_eigh_of = functools.partial(
    of_lapack, "eigh", result=_values_and_vectors, lanes=LANES, devices=SMALL, fewer={(0,): _alone(np.linalg.eigvalsh)}
)
_pairs, _of_rows = _eigh_of(filling(np.linalg.eigh), program=jacobi.eigh), _eigh_of(_syevd, program=_in_rows)


def _decomposed(a: Any) -> Any:
    if a.ndim > 2 or is_small(a, LANES):  # NumPy goes through a stack in C
        values, vectors = _pairs(a)
    else:
        values, rows = _of_rows(a)
        vectors = turned(rows)
    regular(all_of(values == values, -1), "eigh: the eigenvalues did not converge")
    return values, vectors


_eigh = operation("eigh", _decomposed, _of_eigh)


def eigh(a: Any, UPLO: str = "L") -> EighResult:
    """Eigenvalues in ascending order and eigenvectors of symmetric matrices, of which this triangle is looked at.

    ValueError for another one than "L" and "U". Derivatives are those with respect to the symmetric matrix (Giles
    2008, section 3.1).

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda a: az.linalg.eigh(a))(np.diag([2.0, 1.0])).eigenvalues
    array([1., 2.])
    """
    if UPLO.upper() not in ("L", "U"):
        raise ValueError(at_line(f'eigh: UPLO is "L" or "U", got {UPLO!r}'))
    given = matrices("eigh", floating(a))
    return EighResult(*_eigh(given if UPLO.upper() == "L" else turned(given)))


def eigvalsh(a: Any, UPLO: str = "L") -> Expr:
    """The eigenvalues of symmetric matrices, in ascending order; see :func:`eigh`.

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda a: az.linalg.eigvalsh(a))(np.diag([2.0, 1.0]))
    array([1., 2.])
    """
    values: Expr = eigh(a, UPLO).eigenvalues
    return values


# Singular values


def _gesdd(a: Any, u: Any, s: Any, vh: Any) -> None:
    """The factors of a matrix, or by NumPy, in C, of each of a stack; NaN where they are not found."""
    if not np.isfinite(a).all():  # an infinity has LAPACK search without end
        if a.ndim > 2:
            each_of(_gesdd, a, u, s, vh)
        else:
            fill_with_nan(u, s, vh)
        return
    if a.ndim > 2:
        filling(functools.partial(np.linalg.svd, full_matrices=False))(a, u, s, vh)
        return
    (rows, columns), least = a.shape, s.size
    if not least:
        return
    # Column by column this is the transpose, whose left vectors are the right ones.
    arrays = (np.array(a), columns, s, vh, columns, u, least)
    work = np.empty(4 * least * least + 7 * least + 64 * (rows + columns), a.dtype)
    places = np.empty(8 * least, np.intc)
    if routines.run("gesdd", a.dtype, "S", columns, rows, *arrays, work, work.size, places):
        fill_with_nan(u, s, vh)


def _parts(type: Type) -> tuple[Type, Type, Type]:
    left, right = _factors(type)
    return left, like(type, dims(right)[-2]), right


def _of_svd(arguments: Any, results: Any, cotangents: Any) -> Any:
    [a], (u, s, vh), (u_bar, s_bar, vh_bar) = arguments, results, cotangents
    v, v_bar, factors = turned(vh), turned(vh_bar), _apart(s * s)
    across, down = s[..., None, :], s[..., :, None]
    rows, columns = eye(a.shape[-2], dtype=a.dtype), eye(a.shape[-1], dtype=a.dtype)
    left, right = turned(u) @ u_bar, vh @ v_bar
    inner = on_diagonal(s_bar) + factors * (left - turned(left)) * across + down * factors * (right - turned(right))
    outside = (rows - u @ turned(u)) @ (u_bar / across) @ vh + u @ (vh_bar / down) @ (columns - v @ vh)
    return (u @ inner @ vh + outside,)


_triples = of_lapack(
    "svd",
    _gesdd,
    _parts,
    jacobi.svd,
    LANES_SVD,
    devices=SMALL,
    fewer={(1,): _alone(functools.partial(np.linalg.svd, compute_uv=False))},
)


def _singular(a: Any) -> Any:
    u, values, vh = _triples(a)
    regular(all_of(values == values, -1), "svd: the singular values did not converge")
    return u, values, vh


_svd = operation("svd", _singular, _of_svd)


@overload
def svd(a: Any, full_matrices: bool = False, compute_uv: Literal[True] = True) -> SVDResult: ...
@overload
def svd(a: Any, full_matrices: bool = False, *, compute_uv: Literal[False]) -> Expr: ...
def svd(a: Any, full_matrices: bool = False, compute_uv: bool = True) -> Any:
    """The factors of ``U @ diag(S) @ Vh == a``, singular values descending; without ``compute_uv`` these alone.

    ValueError for ``full_matrices``, which NumPy has by default, unless matrices are square: what belongs to no
    singular value is any basis of the rest.
    (Townsend, "Differentiating the singular value decomposition", 2016.)

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda a: az.linalg.svd(a))(np.diag([1.0, -2.0])).S
    array([2., 1.])
    """
    given = matrices("svd", floating(a), square=False)
    rows, columns = dims(given.type)[-2:]
    if full_matrices and compute_uv and rows != columns:
        problem = f"is for square matrices here, which {given.type} may not be; there is full_matrices=False"
        raise ValueError(at_line(f"svd: full_matrices=True {problem}"))
    found = SVDResult(*_svd(given))
    return found if compute_uv else found.S


def svdvals(a: Any) -> Expr:
    """The singular values, in descending order.

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda a: az.linalg.svdvals(a))(np.diag([1.0, -2.0]))
    array([2., 1.])
    """
    return svd(a, compute_uv=False)


# Pseudoinverses


def _by_parts(a: Any, cutoff: Any) -> Any:
    """The pseudoinverse, without singular values up to this part of the largest."""
    u, s, vh = _singular(a)
    kept = s > cutoff * largest(s, -1, keepdims=True)
    return turned(vh) @ (where(kept, 1 / where(kept, s, 1.0), 0.0)[..., :, None] * turned(u))


def _of_pinv(arguments: Any, p: Any, cotangent: Any) -> Any:
    a, back, back_p = arguments[0], turned(cotangent), turned(p)
    product = back @ p
    rows, columns = eye(a.shape[-2], dtype=a.dtype), eye(a.shape[-1], dtype=a.dtype)
    first = (rows - a @ p) @ product @ back_p
    second = back_p @ p @ back @ (columns - p @ a)
    return first + second - back_p @ cotangent @ back_p, 0.0


_pinv = operation("pinv", _by_parts, _of_pinv)


def pinv(a: Any, rcond: Any = None) -> Expr:
    """The pseudoinverse (Moore and Penrose): singular values up to ``rcond`` (1e-15) of the largest count as zero.

    Its derivative is that of a matrix whose rank stays (Golub and Pereyra 1973, section 4).

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda a: az.linalg.pinv(a))(np.array([[2.0, 0.0], [0.0, 0.0]]))
    array([[0.5, 0. ],
           [0. , 0. ]])
    """
    x = matrices("pinv", floating(a), square=False)
    found: Expr = _pinv(x, as_expr(1e-15 if rcond is None else rcond).astype(x.dtype))
    return found


def lstsq(a: Any, b: Any, rcond: Any = None) -> LstsqResult:
    """The x of least norm among those with the least squares of ``a @ x - b``, for one matrix, as NumPy's.

    b is a vector or a matrix with a column each. The residuals are the squared lengths of ``a @ x - b``, which NumPy
    leaves out where the rank is not the number of columns, or there are no more rows. ``rcond`` is that of
    :func:`pinv`; None is eps times the longer side. Derivatives are those of :func:`pinv`.

    >>> import adze as az, numpy as np
    >>> a, b = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 3.0, 5.0])
    >>> az.evaluate(lambda a, b: az.linalg.lstsq(a, b).x)(a, b).round(6)
    array([1., 2.])
    """
    x, y = map(floating, promoted([a, b]))
    if x.ndim != 2 or y.ndim not in (1, 2):
        raise TypeError(at_line(f"lstsq of a matrix and of a vector or a matrix, not of {x.type} and {y.type}"))
    same_size(x.value, 0, y.value, 0, "lstsq")
    if rcond is None:
        rcond = PRIMITIVES["maximum"](*x.shape).astype(x.dtype) * float(np.finfo(x.dtype.dtype).eps)
    solved = pinv(x, rcond) @ y
    left, values = x @ solved - y, svdvals(x)
    residuals = total(left * left, 0, keepdims=y.ndim == 1)
    rank = count_nonzero(values > rcond * largest(constant(values)), -1)
    return LstsqResult(solved, residuals, rank, values)
