"""Solves, factors and determinants: the operations of LAPACK, each with its rule (see ``__init__.py``)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.combinators import (
    broadcast_to,
    concatenate,
    eye,
    swapaxes,
    tril,
    where,
)
from ...core.combinators.linear import batch_sizes
from ...core.custom import Custom, custom_vjp
from ...core.dims import Dim
from ...core.expr import Expr, floating, promoted, same_size
from ...core.operations import foreign
from ...core.source import at_line
from ...core.types import Type, array_of, bool_, dims, element


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


class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its magnitude."""

    sign: Any
    logabsdet: Any


# Operands


def matrices(what: str, x: Expr, square: bool = True) -> Expr:
    """A matrix, or a stack of them."""
    if x.ndim < 2:
        raise TypeError(at_line(f"{what} takes a matrix or a stack of matrices, not a value of type {x.type}"))
    if square:
        same_size(x.value, x.ndim - 2, x.value, x.ndim - 1, f"{what} of what is not square")
    return x


def _stacks(what: str, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Two stacks of as many matrices."""
    if a.ndim == b.ndim == 2:
        return a, b
    front = [Expr(size, a.builder) for size in batch_sizes(a, b, what)]
    first, second = [broadcast_to(x, (*front, *x.shape[-2:])) for x in (a, b)]
    return first, second


def _turned(x: Any) -> Any:
    return swapaxes(x, -1, -2)


def _halved(x: Any) -> Any:
    """The lower triangle with half of the diagonal."""
    size = x.shape[-1]
    return tril(x) - 0.5 * eye(size, dtype=x.dtype) * x


def _symmetric(x: Any) -> Any:
    return 0.5 * (x + _turned(x))


def _on_diagonal(x: Any) -> Any:
    """Matrices with these diagonals."""
    return eye(x.shape[-1], dtype=x.dtype) * x[..., None, :]


def _operation(name: str, function: Callable[..., Any], result: Callable[..., Any]) -> Custom:
    """A function of NumPy or SciPy, which waits for its rule."""
    called = foreign(name, function, result)

    def operation(*arrays: Any) -> Any:
        return called(*arrays)

    operation.__name__ = name
    return custom_vjp(operation)


def _like(type: Type, *sizes: Dim) -> Type:
    """The type of a stack of other arrays than the matrices of a type."""
    return array_of(element(type), (*dims(type)[:-2], *sizes))


# Triangles and solves


def cholesky(a: Any) -> Expr:
    """The lower triangle L with ``L @ L.T == a``, for positive definite matrices; NumPy looks at the lower half of a.

    Derivatives are those with respect to the symmetric matrix. LinAlgError in the run for one that has no factor.

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda a: az.linalg.cholesky(a))(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 0.],
           [1., 2.]])
    """
    x = floating(a)
    return _cholesky(matrices("cholesky", x))


_cholesky = _operation("cholesky", np.linalg.cholesky, lambda a: a)


@_cholesky.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    factor = _cholesky(*primals)
    inner = _halved(_turned(factor) @ tril(cotangent))
    left = _triangular(True, True)(factor, inner)
    return (_symmetric(_turned(_triangular(True, True)(factor, _turned(left)))),)


def _solved_triangles(lower: bool, transposed: bool, a: Any, b: Any) -> Any:
    """SciPy's solve of each of a stack."""
    from scipy.linalg import solve_triangular as solved

    made = np.empty_like(b)
    for place in np.ndindex(*b.shape[:-2]):
        made[place] = solved(a[place], b[place], trans=int(transposed), lower=lower, check_finite=False)
    return made


@functools.cache
def _triangular(lower: bool, transposed: bool) -> Custom:
    """The operation that solves with a triangle, or with its transpose."""
    operation = _operation("solve_triangular", functools.partial(_solved_triangles, lower, transposed), lambda a, b: b)

    def rule(primals: Any, cotangent: Any) -> Any:
        a, b = primals
        x, y = operation(a, b), _triangular(lower, not transposed)(a, cotangent)
        slope = -(x @ _turned(y) if transposed else y @ _turned(x))
        return tril(slope) if lower else _turned(tril(_turned(slope))), y

    operation.defvjp(rule)
    return operation


def solve_triangular(a: Any, b: Any, trans: int | str = 0, lower: bool = False) -> Expr:
    """The solution x of ``a @ x == b`` for triangular matrices, of which the other half is not looked at.

    ``trans`` is 1 or "T" for ``a.T @ x == b``. As SciPy's, and for stacks as :func:`solve`. LinAlgError in the run for
    a zero on the diagonal.
    """
    if trans not in (0, 1, "N", "T"):
        raise ValueError(at_line(f"solve_triangular: trans is 0, 1, 'N' or 'T', not {trans!r}"))
    return _solution("solve_triangular", _triangular(bool(lower), trans in (1, "T")), a, b)


def solve(a: Any, b: Any) -> Expr:
    """The solution x of ``a @ x == b``; b is a vector if it has one axis, and else matrices with a column each.

    LinAlgError in the run for a singular matrix.

    >>> import adze as az, numpy as np
    >>> a, b = np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 2.0])
    >>> az.evaluate(lambda a, b: az.linalg.solve(a, b))(a, b)
    array([1. , 0.5])
    >>> az.grad(lambda a, b: az.sum(az.linalg.solve(a, b)))(a, b)
    array([[-0.5  , -0.25 ],
           [-0.25 , -0.125]])
    """
    return _solution("solve", _solve, a, b)


def _solution(what: str, operation: Custom, a: Any, b: Any) -> Expr:
    x, y = map(floating, promoted([a, b]))
    matrices(what, x)
    if y.ndim == 0:
        raise TypeError(at_line(f"{what} for a vector or for matrices, not for a value of type {y.type}"))
    columns = y[:, None] if y.ndim == 1 else y
    same_size(x.value, x.ndim - 2, columns.value, columns.ndim - 2, what)
    found: Expr = operation(*_stacks(what, x, columns))
    return found[..., 0] if y.ndim == 1 else found


_solve = _operation("solve", np.linalg.solve, lambda a, b: b)


@_solve.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    x, y = _solve(*primals), _solve(_turned(primals[0]), cotangent)
    return -(y @ _turned(x)), y


def cho_solve(c_and_lower: tuple[Any, bool], b: Any) -> Expr:
    """The solution of ``a @ x == b``, given a Cholesky factor of a and whether it is the lower one, as SciPy's."""
    factor, lower = c_and_lower
    first = solve_triangular(factor, b, trans=0 if lower else 1, lower=lower)
    return solve_triangular(factor, first, trans=1 if lower else 0, lower=lower)


def inv(a: Any) -> Expr:
    """The inverse. To apply it to something, take :func:`solve`. LinAlgError in the run for a singular matrix."""
    x = floating(a)
    return _inv(matrices("inv", x))


_inv = _operation("inv", np.linalg.inv, lambda a: a)


@_inv.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    x = _turned(_inv(*primals))
    return (-(x @ cotangent @ x),)


def pinv(a: Any) -> Expr:
    """The pseudoinverse (Moore and Penrose). Its derivative is that of a matrix whose rank stays."""
    x = floating(a)
    return _pinv(matrices("pinv", x, square=False))


_pinv = _operation("pinv", np.linalg.pinv, lambda a: _like(a, dims(a)[-1], dims(a)[-2]))


@_pinv.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    [a] = primals
    p, back = _pinv(a), _turned(cotangent)
    turned, product = _turned(p), back @ p
    rows, columns = eye(a.shape[-2], dtype=a.dtype), eye(a.shape[-1], dtype=a.dtype)
    first = (rows - a @ p) @ product @ turned
    second = turned @ p @ back @ (columns - p @ a)
    return (first + second - turned @ cotangent @ turned,)


# Determinants


def det(a: Any) -> Expr:
    """The determinant. Its gradient needs the inverse: LinAlgError in the run of that for a singular matrix."""
    x = floating(a)
    return _det(matrices("det", x))


_det = _operation("det", np.linalg.det, lambda a: array_of(element(a), dims(a)[:-2]))


@_det.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    return ((cotangent * _det(*primals))[..., None, None] * _turned(_inv(*primals)),)


def slogdet(a: Any) -> SlogdetResult:
    """The sign of the determinant (0 if that is zero), and the logarithm of its magnitude."""
    x = floating(a)
    return SlogdetResult(*_slogdet(matrices("slogdet", x)))


def _one_each(type: Type) -> tuple[Type, Type]:
    one = array_of(element(type), dims(type)[:-2])
    return one, one


_slogdet = _operation("slogdet", np.linalg.slogdet, _one_each)


@_slogdet.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    return (cotangent[1][..., None, None] * _turned(_inv(*primals)),)


# Orthogonal factors


def qr(a: Any) -> QRResult:
    """Orthonormal columns Q and a triangle R with ``Q @ R == a`` (NumPy's mode "reduced")."""
    x = floating(a)
    return QRResult(*_qr(matrices("qr", x, square=False)))


def _factors(type: Type) -> tuple[Type, Type]:
    rows, columns = dims(type)[-2:]
    least = rows.minimum(columns)
    return _like(type, rows, least), _like(type, least, columns)


_qr = _operation("qr", np.linalg.qr, _factors)


@_qr.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    [a] = primals
    (q, r), (q_bar, r_bar) = _qr(a), cotangent
    square = r.shape[-2]  # of the columns beyond, each is what Q makes of it
    beyond, beyond_bar = a[..., square:], r_bar[..., square:]
    q_bar = q_bar + beyond @ _turned(beyond_bar)
    inner = r[..., :square] @ _turned(r_bar[..., :square]) - _turned(q_bar) @ q
    mirrored = tril(inner) + _turned(tril(inner, -1))
    right = _turned(q_bar + q @ mirrored)
    first = _turned(_triangular(False, False)(r[..., :square], right))
    return (concatenate([first, q @ beyond_bar], axis=-1),)


def eigh(a: Any) -> EighResult:
    """Eigenvalues in ascending order and eigenvectors of symmetric matrices; NumPy looks at the lower triangle.

    Derivatives are those with respect to the symmetric matrix.
    """
    x = floating(a)
    return EighResult(*_eigh(matrices("eigh", x)))


def eigvalsh(a: Any) -> Expr:
    """The eigenvalues of symmetric matrices, in ascending order."""
    values: Expr = eigh(a).eigenvalues
    return values


_eigh = _operation("eigh", np.linalg.eigh, lambda a: (_like(a, dims(a)[-1]), a))


def _apart(values: Any) -> Any:
    """For each pair of numbers ``1 / (values[j] - values[i])``, and 0 for each with itself."""
    size = values.shape[-1]
    own = eye(size, dtype=bool_)
    gaps = values[..., None, :] - values[..., :, None]
    return where(own, 0.0, 1 / where(own, 1.0, gaps))


@_eigh.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    (values, vectors), (values_bar, vectors_bar) = _eigh(*primals), cotangent
    inner = _on_diagonal(values_bar) + _apart(values) * (_turned(vectors) @ vectors_bar)
    return (_symmetric(vectors @ inner @ _turned(vectors)),)


def svd(a: Any) -> SVDResult:
    """The factors of ``U @ diag(S) @ Vh == a`` (NumPy's ``full_matrices=False``), singular values descending."""
    x = floating(a)
    return SVDResult(*_svd(matrices("svd", x, square=False)))


def svdvals(a: Any) -> Expr:
    """The singular values, in descending order."""
    values: Expr = svd(a).S
    return values


def _thin(a: Any) -> Any:
    return np.linalg.svd(a, full_matrices=False)


def _of_svd(type: Type) -> tuple[Type, Type, Type]:
    left, right = _factors(type)
    return left, _like(type, dims(right)[-2]), right


_svd = _operation("svd", _thin, _of_svd)


@_svd.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    [a] = primals
    (u, s, vh), (u_bar, s_bar, vh_bar) = _svd(a), cotangent
    v, v_bar, factors = _turned(vh), _turned(vh_bar), _apart(s * s)
    across, down = s[..., None, :], s[..., :, None]
    rows, columns = eye(a.shape[-2], dtype=a.dtype), eye(a.shape[-1], dtype=a.dtype)
    left, right = _turned(u) @ u_bar, vh @ v_bar
    inner = _on_diagonal(s_bar) + factors * (left - _turned(left)) * across + down * factors * (right - _turned(right))
    outside = (rows - u @ _turned(u)) @ (u_bar / across) @ vh + u @ (vh_bar / down) @ (columns - v @ vh)
    return (u @ inner @ vh + outside,)
