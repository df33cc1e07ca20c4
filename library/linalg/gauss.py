"""Factors of Gauss's elimination, and what is computed by them: solves, inverses, determinants.

A solve factorises a constant, and the rule gets the factors: its gradient is two more triangular solves with them ::

    x = solve(a, b)             y = solve(a.T, x_bar)        a_bar = -y x.T        b_bar = y

Those of inverses and of determinants take the inverse, made of the factors. (Giles 2008, sections 2.2.3 and 2.3.1.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.combinators import all as all_of
from ...core.combinators import (
    arange,
    broadcast_to,
    concatenate,
    eye,
    fori_loop,
    generate,
    prod,
    tril,
    triu,
    zeros,
    zeros_like,
)
from ...core.combinators import sum as total
from ...core.expr import Expr, as_expr, floating
from ...core.primitive import PRIMITIVES
from ...core.source import at_line
from ...core.types import Type, array_of, dims, i64
from . import blocked, small
from .operands import (
    SMALL,
    Operation,
    constant,
    diagonals,
    each_of,
    is_small,
    like,
    matrices,
    of_lapack,
    one_by_one,
    operation,
    read,
    regular,
    symmetric,
    turned,
    written,
)
from .triangles import factored, solution, solved_triangles, triangular


class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its magnitude."""

    sign: Any
    logabsdet: Any


class LUResult(NamedTuple):
    """The factors of ``p @ l @ u``: a permutation, a lower triangle with ones on its diagonal, an upper triangle."""

    p: Any
    l: Any
    u: Any


# Factors


def _getrf(a: Any, packed: Any, pivots: Any) -> None:
    """The factors, column by column: as transposes."""

    def factors(a: Any, packed: Any, pivots: Any) -> None:
        numbers = np.empty(pivots.shape, np.intc)
        blocked.lu(a, packed, numbers)
        pivots[...] = numbers
        pivots -= 1

    each_of(factors, a, packed, pivots)


def _packed(type: Type) -> tuple[Type, Type]:
    rows, columns = dims(type)[-2:]
    return like(type, columns, rows), array_of(i64, (*dims(type)[:-2], rows.minimum(columns)))


def _program(a: Any) -> Any:
    packed, pivots = small.lu(a)
    return turned(packed), pivots


_in_columns = of_lapack("lu_factor", _getrf, _packed, _program)


def _factors(a: Any) -> Any:
    packed, pivots = _in_columns(a)
    return turned(packed), pivots


# Rows


def _order(pivots: Expr, rows: Any, back: bool = False) -> Any:
    """Which row of a matrix is where after the exchanges of a factorisation, or after those from the last one back."""
    count = pivots.shape[0]

    def step(turn: Any, order: Any) -> Any:
        k = count - 1 - turn if back else turn
        pivot = pivots[k]
        first, second = order[k], read(order, pivot)
        return written(written(order, k, second), pivot, first)

    return fori_loop(0, count, step, arange(rows))


def _exchanged(pivots: Expr, b: Expr, back: bool = False) -> Any:
    """The rows of each of a stack after its exchanges."""
    if is_small(b):
        return one_by_one(functools.partial(small.exchanged, back=back))(b, pivots)
    rows = b.shape[-2]
    orders = (
        generate(b.shape[:-2], lambda *at: _order(pivots[at], rows, back)) if b.ndim > 2 else _order(pivots, rows, back)
    )
    return generate(b.shape, lambda *at: read(b, *at[:-2], orders[at[:-1]], at[-1]))


def _of_factors(arguments: Any, results: Any, cotangents: Any) -> Any:
    """Of a square block, which the elimination goes through, and of the rows below or the columns beyond it.

    (de Hoog, Anderssen and Lukas, "Differentiation of matrix functionals using triangular factorization", 2011.)
    """
    (packed, pivots), bar = results, cotangents[0]
    count = pivots.shape[-1]
    lower, upper = packed[..., :count], packed[..., :count, :]
    square, square_bar = upper[..., :count], bar[..., :count, :count]
    l, u = tril(square, -1) + eye(count, dtype=packed.dtype), triu(square)
    solved_l, solved_u = triangular(True, True, True), triangular(False, False)
    below, below_bar = lower[..., count:, :], bar[..., count:, :count]
    beyond, beyond_bar = upper[..., count:], bar[..., :count, count:]
    # below = its rows of a, times 1/u; beyond = 1/l, times its columns of a
    below_slope = turned(solved_u(u, turned(below_bar)))
    beyond_slope = solved_l(l, beyond_bar)
    l_bar = tril(square_bar, -1) - tril(beyond_slope @ turned(beyond), -1)
    u_bar = triu(square_bar) - triu(turned(below) @ below_slope)
    inner = tril(turned(l) @ l_bar, -1) + triu(u_bar @ turned(u))
    slope = turned(solved_u(u, turned(solved_l(l, inner))))
    corner = zeros((*packed.shape[:-2], below.shape[-2], beyond.shape[-1]), packed.dtype)
    above = concatenate([slope, beyond_slope], axis=-1)
    slopes = concatenate([above, concatenate([below_slope, corner], axis=-1)], axis=-2)
    return (_exchanged(pivots, slopes, back=True),)


_lu = operation("lu_factor", _factors, _of_factors)


def lu_factor(a: Any) -> tuple[Expr, Expr]:
    """The factors of a matrix with its rows exchanged, for :func:`lu_solve`, as SciPy's: ``(lu, piv)``.

    Below its diagonal lu is the lower factor, whose own diagonal is ones, and else the upper one; i64 ``piv[k]`` is the
    row with which row k was exchanged. A singular matrix has factors, with a zero on the diagonal.

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda a: az.linalg.lu_factor(a))(np.array([[1.0, 2.0], [2.0, 2.0]]))
    (array([[2. , 2. ],
           [0.5, 1. ]]), array([1, 1]))
    """
    packed, pivots = _lu(matrices("lu_factor", floating(a), square=False))
    return packed, pivots


def lu(a: Any) -> LUResult:
    """The factors p, l and u with ``p @ l @ u == a``, of any matrix, as SciPy's; row exchanges have no derivative.

    (de Hoog, Anderssen and Lukas 2011.)

    >>> import adze as az, numpy as np
    >>> p, l, u = az.evaluate(lambda a: az.linalg.lu(a))(np.array([[1.0, 2.0], [2.0, 2.0]]))
    >>> l, u
    (array([[1. , 0. ],
           [0.5, 1. ]]), array([[2., 2.],
           [0., 1.]]))
    """
    packed, pivots = lu_factor(a)
    rows, count = packed.shape[-2], pivots.shape[-1]
    unit = eye(rows, dtype=packed.dtype)
    lower = tril(packed[..., :count], -1) + unit[:, :count]
    return LUResult(
        _exchanged(pivots, broadcast_to(unit, (*packed.shape[:-2], rows, rows)), back=True),
        lower,
        triu(packed[..., :count, :]),
    )


def lu_solve(lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0) -> Expr:
    """The solution of ``a @ x == b`` (1: of ``a.T @ x == b``), given what :func:`lu_factor` gives for a, as SciPy's.

    LinAlgError in the run for a zero on the diagonal.

    >>> import adze as az, numpy as np
    >>> a, b = np.array([[1.0, 2.0], [2.0, 2.0]]), np.array([3.0, 4.0])
    >>> az.evaluate(lambda a, b: az.linalg.lu_solve(az.linalg.lu_factor(a), b))(a, b)
    array([1., 1.])
    """
    if trans not in (0, 1):
        raise ValueError(at_line(f"lu_solve: trans is 0 or 1, not {trans!r}"))
    packed, pivots = lu_and_piv
    exchanges = as_expr(pivots)
    if exchanges.dtype.kind != "int" or exchanges.ndim == 0:
        raise TypeError(at_line(f"lu_solve takes (lu, piv) with integers piv, not {exchanges.type}"))

    def solved(packed: Expr, b: Expr, pivots: Expr) -> Any:
        rows = packed.shape[-1]
        regular(all_of((pivots >= 0) & (pivots < rows), -1), "lu_solve: a row in piv that is not there")
        nonsingular("lu_solve", packed)
        return _solved_by(triangular, bool(trans), packed, pivots, b)

    return solution("lu_solve", solved, packed, b, exchanges.astype(i64))


# Solves


def nonsingular(what: str, packed: Expr) -> None:
    """Require that factors are those of matrices that have inverses."""
    regular(all_of(diagonals(packed) != 0, -1), f"{what}: singular matrix")


def _solved_by(
    triangles: Callable[..., Operation], transposed: bool, packed: Any, pivots: Any, b: Any, columns: bool = False
) -> Any:
    """The solution with factors, or with those that are column by column in ``packed``, by solves with triangles."""
    lower, upper = triangles(not columns, transposed != columns, True), triangles(columns, transposed != columns)
    if transposed:
        return _exchanged(pivots, lower(packed, upper(packed, b)), back=True)
    return upper(packed, lower(packed, _exchanged(pivots, b)))


@functools.cache
def _solved(transposed: bool) -> Operation:
    """The solve with a matrix or with its transpose, given its factors column by column, and its rule."""

    def computed(a: Any, packed: Any, pivots: Any, b: Any) -> Any:
        return _solved_by(solved_triangles, transposed, packed, pivots, b, columns=True)

    def rule(arguments: Any, x: Any, cotangent: Any) -> Any:
        a, packed, pivots, _ = arguments
        y = _solved(not transposed)(a, packed, pivots, cotangent)
        return -(x @ turned(y) if transposed else y @ turned(x)), zeros_like(packed), None, y

    return operation("solve", computed, rule, transposed)


def _factorised(a: Any) -> tuple[Any, Any]:
    """The factors of a constant, column by column."""
    packed, pivots = _in_columns(constant(a))
    return packed, pivots


def _general(a: Expr, b: Expr) -> Any:
    packed, pivots = _factorised(a)
    nonsingular("solve", packed)
    return _solved(False)(a, packed, pivots, b)


def _of_positive(arguments: Any, x: Any, cotangent: Any) -> Any:
    a, factor, _ = arguments
    y = _solved_positive(a, factor, cotangent)
    return symmetric(-(y @ turned(x))), zeros_like(factor), y


def _by_factor(a: Any, factor: Any, b: Any) -> Any:
    return solved_triangles(True, True)(factor, solved_triangles(True, False)(factor, b))


_solved_positive = operation("solve", _by_factor, _of_positive)


def _positive(a: Expr, b: Expr) -> Any:
    return _solved_positive(a, factored(constant(a)), b)


def solve(a: Any, b: Any, assume_a: str = "gen") -> Expr:
    """The solution x of ``a @ x == b``; b is a vector if it has one axis, and else matrices with a column each.

    ``assume_a="pos"`` is for positive definite matrices, of which the lower half is looked at: they are factorised as
    by :func:`cholesky`, in half of the time. LinAlgError in the run for a singular matrix, or one that is not positive
    definite.

    >>> import adze as az, numpy as np
    >>> a, b = np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 2.0])
    >>> az.evaluate(lambda a, b: az.linalg.solve(a, b))(a, b)
    array([1. , 0.5])
    >>> az.grad(lambda a, b: az.sum(az.linalg.solve(a, b)))(a, b)
    array([[-0.5  , -0.25 ],
           [-0.25 , -0.125]])
    """
    if assume_a not in ("gen", "pos"):
        raise ValueError(at_line(f"solve: assume_a is 'gen' or 'pos', not {assume_a!r}"))
    return solution("solve", _general if assume_a == "gen" else _positive, a, b)


def _getri(packed: Any, pivots: Any, inverses: Any) -> None:
    each_of(blocked.inverse, packed, pivots, inverses)


def _from_columns(packed: Any, pivots: Any) -> Any:
    unit = eye(packed.shape[-1], dtype=packed.dtype)
    return _solved_by(solved_triangles, True, packed, pivots, unit, columns=True)


_inverses = of_lapack("inv", _getri, lambda packed, _: packed, _from_columns, devices=SMALL)


def _of_inverse(arguments: Any, inverse: Any, cotangent: Any) -> Any:
    slope = -(inverse @ turned(cotangent) @ inverse)
    return slope, zeros_like(slope), None


_turned_inverse = operation("inv", lambda _, packed, pivots: _inverses(packed, pivots), _of_inverse)


def _inverted(a: Expr) -> Any:
    packed, pivots = _factorised(a)
    nonsingular("inv", packed)
    return turned(_turned_inverse(a, packed, pivots))


def inv(a: Any) -> Expr:
    """The inverse. To apply it to something, take :func:`solve`. LinAlgError in the run for a singular matrix.

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda a: az.linalg.inv(a))(np.array([[2.0, 1.0], [1.0, 1.0]]))
    array([[ 1., -1.],
           [-1.,  2.]])
    """
    x = matrices("inv", floating(a))
    inverse: Expr = one_by_one(_inverted)(x)
    return inverse


# Determinants


def _inverse(arguments: Any) -> Any:
    """The transposed inverses of matrices with these factors."""
    nonsingular("the derivative of a determinant", arguments[1])
    return _turned_inverse(*arguments)


def _parity(pivots: Any, dtype: Any) -> Any:
    """1 for an even number of exchanges, -1 for an odd one."""
    places = arange(pivots.shape[-1])
    return 1 - 2 * (total((pivots != places).astype(i64), -1) % 2).astype(dtype)


def _product(a: Any, packed: Any, pivots: Any) -> Any:
    return prod(diagonals(packed), -1) * _parity(pivots, packed.dtype)


def _of_product(arguments: Any, value: Any, cotangent: Any) -> Any:
    slope = (cotangent * value)[..., None, None] * _inverse(arguments)
    return slope, zeros_like(slope), None


_det = operation("det", _product, _of_product)


def det(a: Any) -> Expr:
    """The determinant. Its gradient needs the inverse: LinAlgError in the run of that for a singular matrix.

    (Giles 2008, section 2.2.4.)

    >>> import adze as az, numpy as np
    >>> float(az.evaluate(lambda a: az.linalg.det(a))(np.array([[1.0, 2.0], [3.0, 4.0]])).round(6))
    -2.0
    """
    value: Expr = one_by_one(lambda a: _det(a, *_factorised(a)))(matrices("det", floating(a)))
    return value


def _logarithm(a: Any, packed: Any, pivots: Any) -> Any:
    own = diagonals(packed)
    sign = prod(PRIMITIVES["sign"](own), -1) * _parity(pivots, packed.dtype)
    return sign, total(PRIMITIVES["log"](PRIMITIVES["abs"](own)), -1)


def _of_logarithm(arguments: Any, results: Any, cotangents: Any) -> Any:
    slope = cotangents[1][..., None, None] * _inverse(arguments)
    return slope, zeros_like(slope), None


_slogdet = operation("slogdet", _logarithm, _of_logarithm)


def slogdet(a: Any) -> SlogdetResult:
    """The sign of the determinant (0 if that is zero), and the logarithm of its magnitude.

    >>> import adze as az, numpy as np
    >>> sign, magnitude = az.evaluate(lambda a: az.linalg.slogdet(a))(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> float(sign), float(np.exp(magnitude).round(6))
    (-1.0, 2.0)
    """
    return SlogdetResult(*one_by_one(lambda a: _slogdet(a, *_factorised(a)))(matrices("slogdet", floating(a))))
