"""Linear algebra: the functions of ``numpy.linalg``, on matrices and stacks of them, with derivatives of any order.

LAPACK computes, through NumPy and SciPy. Each factorisation and each solve is one operation, whose rule for reverse
mode is written with operations again; forward mode, and derivatives of derivatives, follow from it::

    x = solve(a, b)             y = solve(a.T, x_bar)        a_bar = -y x.T        b_bar = y

Axes in front count matrices, and broadcast. Integers are computed with in f64. What LAPACK cannot factorise is a
``LinAlgError``, with the line of the call as a note.

The rules are those of Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008), for solves, inverses, determinants and symmetric eigenvalues; of Murray, "Differentiation of
the Cholesky decomposition" (2016); of Walter and Lehmann, "Algorithmic differentiation of linear algebra functions with
application in optimum experimental design" (2010), for QR; of Townsend, "Differentiating the singular value
decomposition" (2016); and of Golub and Pereyra (1973) for the pseudoinverse. Where eigenvalues or singular values are
equal, their vectors have no derivatives: these are infinite or NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.combinators import all as all_of
from ..core.combinators import (
    broadcast_to,
    concatenate,
    count_nonzero,
    einsum,
    eye,
    fori_loop,
    matmul,
    reshape,
    stack,
    swapaxes,
    tril,
    where,
)
from ..core.combinators import max as largest
from ..core.combinators import min as smallest
from ..core.combinators import sum as total
from ..core.combinators.linear import batch_sizes
from ..core.custom import Custom, custom_vjp, foreign
from ..core.dims import Dim
from ..core.expr import Expr, as_expr, promoted, same_size
from ..core.numpy_calls import NUMPY
from ..core.primitive import PRIMITIVES
from ..core.source import at_line
from ..core.types import Type, array_of, bool_, dims, element, f64, i64

__all__ = [
    "EighResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cho_solve",
    "cholesky",
    "cond",
    "cross",
    "det",
    "eigh",
    "eigvalsh",
    "expm",
    "inv",
    "kron",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
]


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


def _floating(*arrays: Any) -> list[Expr]:
    """Expressions of one floating type."""
    return [x if x.dtype.kind == "float" else x.astype(f64) for x in promoted(list(arrays))]


def _matrices(what: str, x: Expr, square: bool = True) -> Expr:
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
    [x] = _floating(a)
    return _cholesky(_matrices("cholesky", x))


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
    x, y = _floating(a, b)
    _matrices(what, x)
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
    [x] = _floating(a)
    return _inv(_matrices("inv", x))


_inv = _operation("inv", np.linalg.inv, lambda a: a)


@_inv.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    x = _turned(_inv(*primals))
    return (-(x @ cotangent @ x),)


def pinv(a: Any) -> Expr:
    """The pseudoinverse (Moore and Penrose). Its derivative is that of a matrix whose rank stays."""
    [x] = _floating(a)
    return _pinv(_matrices("pinv", x, square=False))


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
    [x] = _floating(a)
    return _det(_matrices("det", x))


_det = _operation("det", np.linalg.det, lambda a: array_of(element(a), dims(a)[:-2]))


@_det.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    return ((cotangent * _det(*primals))[..., None, None] * _turned(_inv(*primals)),)


def slogdet(a: Any) -> SlogdetResult:
    """The sign of the determinant (0 if that is zero), and the logarithm of its magnitude."""
    [x] = _floating(a)
    return SlogdetResult(*_slogdet(_matrices("slogdet", x)))


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
    [x] = _floating(a)
    return QRResult(*_qr(_matrices("qr", x, square=False)))


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
    return (_side_by_side(first, q @ beyond_bar),)


def _side_by_side(a: Any, b: Any) -> Any:
    """Columns of a, then those of b."""
    return concatenate([a, b], axis=-1)


def eigh(a: Any) -> EighResult:
    """Eigenvalues in ascending order and eigenvectors of symmetric matrices; NumPy looks at the lower triangle.

    Derivatives are those with respect to the symmetric matrix.
    """
    [x] = _floating(a)
    return EighResult(*_eigh(_matrices("eigh", x)))


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
    [x] = _floating(a)
    return SVDResult(*_svd(_matrices("svd", x, square=False)))


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
    [x] = _floating(a)
    _matrices("expm", x)
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
    _matrices("matrix_power", x)
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
    [given] = _floating(x)
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


def cond(a: Any, p: Any = None) -> Expr:
    """The condition number: by singular values for the norm 2 (the default) or -2, else by the norm of the inverse."""
    [x] = _floating(a)
    _matrices("cond", x, square=p not in (None, 2, -2))
    if p in (None, 2, -2):
        values = svdvals(x)
        return values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
    return norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))


def matrix_rank(a: Any, tol: Any = None) -> Expr:
    """How many singular values are larger than ``tol``: by default the largest times the longer side times eps."""
    [x] = _floating(a)
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


NUMPY |= {
    getattr(np.linalg, function.__name__): function
    for function in (
        cholesky, cond, det, eigh, eigvalsh, inv, matrix_power, matrix_rank, multi_dot, norm, pinv, qr, slogdet, solve,
        svd,
    )
}  # fmt: skip
