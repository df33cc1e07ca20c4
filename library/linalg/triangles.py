"""Triangles: the Cholesky factor of positive definite matrices, and solves with triangular ones."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...core.combinators import all as all_of
from ...core.combinators import broadcast_to, generate, tril, where
from ...core.expr import Expr, floating, promoted, same_size
from ...core.primitive import PRIMITIVES
from ...core.source import at_line
from ...core.types import Type
from . import blocked, routines, small
from .operands import (
    Operation,
    diagonals,
    each_of,
    halved,
    is_small,
    matrices,
    of_each,
    of_lapack,
    one_by_one,
    operation,
    read,
    regular,
    stacks,
    symmetric,
    turned,
)

BLOCK = 256  # right-hand sides, at most, of a call beside others: each of them goes through the whole triangle


def solution(what: str, function: Operation, a: Any, b: Any, *vectors: Expr) -> Expr:
    """What a solve gives for matrices a, with vectors each, and for b: a vector if it has one axis, else matrices."""
    x, y = map(floating, promoted([a, b]))
    matrices(what, x)
    if y.ndim == 0:
        raise TypeError(at_line(f"{what} for a vector or for matrices, not for a value of type {y.type}"))
    columns = y[:, None] if y.ndim == 1 else y
    same_size(x.value, x.ndim - 2, columns.value, columns.ndim - 2, what)
    first, second = stacks(what, x, columns)
    more = [broadcast_to(v, (*first.shape[:-2], v.shape[-1])) for v in vectors]
    found: Expr = one_by_one(function)(first, second, *more)
    return found[..., 0] if y.ndim == 1 else found


def of_second(*types: Type) -> Type:
    """The type of a solution, by those of matrices and of right-hand sides."""
    return types[-1]


# Solves


def _solved_triangles(lower: bool, transposed: bool, unit: bool, a: Any, b: Any, x: Any) -> None:
    # A triangle in rows is the other one of the transpose in columns, and so are b and x: x.T a.T = b.T.
    uplo, trans, diag = "U" if lower else "L", "T" if transposed else "N", "U" if unit else "N"

    def solved(a: Any, b: Any, x: Any) -> None:
        n, count = b.shape
        a, x[...] = np.ascontiguousarray(a), b
        if not x.size:
            return
        # What is 0 before the first number of all right-hand sides stays so, as half of an identity.
        first = int(x.any(axis=1).argmax()) if lower != transposed and count > 1 and not x[0].any() else 0
        if count == 1:
            routines.run("trsv", a.dtype, uplo, "N" if transposed else "T", diag, n, a, n, x, 1)
        else:
            corner, rest = a.reshape(-1)[first * (n + 1) :], x.reshape(-1)[first * count :]
            routines.run("trsm", a.dtype, "R", uplo, trans, diag, count, n - first, 1.0, corner, n, rest, count)

    each_of(solved, a, b, x)


def _in_blocks(called: Operation, a: Any, b: Any) -> Any:
    """A solve for so many right-hand sides, the columns of b, at a time: a parallel loop over calls.

    The last block begins so that it is as long as the others: it solves again what the one before has solved.
    """
    n, count = b.shape
    blocks = PRIMITIVES["maximum"]((count + BLOCK - 1) // BLOCK, 1)
    length = (count + blocks - 1) // blocks
    last = (blocks - 1) * length
    back = last - (count - length)

    def block(k: Any) -> Any:
        first = PRIMITIVES["minimum"](k * length, count - length)
        return called(a, generate((n, length), lambda i, j: read(b, i, first + j)))

    found = generate(blocks, block)

    def element(i: Any, j: Any) -> Any:
        place = where(j < last, j, j + back)
        return read(found, place // length, i, place % length)

    return generate((n, count), element)


@functools.cache
def solved_triangles(lower: bool, transposed: bool, unit: bool = False) -> Operation:
    """The solve of constants with a triangle, or with its transpose; ``unit`` is for ones on the diagonal."""
    options = (lower, transposed, unit)
    program = functools.partial(small.substituted, *options)
    called = of_lapack("solve_triangular", functools.partial(_solved_triangles, *options), of_second, program)

    def solved(a: Any, b: Any) -> Any:
        if is_small(a):
            return of_each(program)(a, b)
        return _in_blocks(called, a, b) if b.ndim == 2 else called(a, b)

    return solved


@functools.cache
def triangular(lower: bool, transposed: bool, unit: bool = False) -> Operation:
    """The solve with its rule."""

    def rule(arguments: Any, x: Any, cotangent: Any) -> Any:
        y = triangular(lower, not transposed, unit)(arguments[0], cotangent)
        slope, last = -(x @ turned(y) if transposed else y @ turned(x)), -1 if unit else 0
        return tril(slope, last) if lower else turned(tril(turned(slope), last)), y

    return operation("solve_triangular", solved_triangles(lower, transposed, unit), rule, lower, transposed, unit)


def solve_triangular(a: Any, b: Any, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False) -> Expr:
    """The solution x of ``a @ x == b`` for triangular matrices, of which the other half is not looked at.

    ``trans`` is 1 or "T" for ``a.T @ x == b``; a ``unit_diagonal`` is one of ones, and not looked at. As SciPy's, and
    for stacks as :func:`solve`. LinAlgError in the run for a zero on the diagonal. (Giles 2008, section 2.3.1.)

    >>> import adze as az, numpy as np
    >>> triangle = np.array([[2.0, 0.0], [1.0, 4.0]])
    >>> az.evaluate(lambda a, b: az.linalg.solve_triangular(a, b, lower=True))(triangle, np.array([2.0, 5.0]))
    array([1., 1.])
    """
    if trans not in (0, 1, "N", "T"):
        raise ValueError(at_line(f"solve_triangular: trans is 0, 1, 'N' or 'T', not {trans!r}"))
    solved = triangular(bool(lower), trans in (1, "T"), bool(unit_diagonal))

    def checked(a: Expr, b: Expr) -> Any:
        if not unit_diagonal:
            regular(all_of(diagonals(a) != 0, -1), "solve_triangular: singular matrix")
        return solved(a, b)

    return solution("solve_triangular", checked, a, b)


# The factor of Cholesky


def _factors(a: Any, factor: Any) -> None:
    if a.ndim == 2:
        _factor(a, factor)
        return
    try:
        factor[...] = np.linalg.cholesky(a)
    except np.linalg.LinAlgError:  # some of them have none: which is for a requirement to say
        each_of(_factor, a, factor)


def _factor(a: Any, factor: Any) -> None:
    """The factor of one matrix, or NaN: NumPy, which is fast for many small ones, copies element by element."""
    try:
        blocked.cholesky(a, factor)  # column by column, the lower half of a is the upper one of its transpose
    except np.linalg.LinAlgError:
        factor[...] = np.nan


def _of_factor(arguments: Any, factor: Any, cotangent: Any) -> Any:
    inner = halved(turned(factor) @ tril(cotangent))
    left = triangular(True, True)(factor, inner)
    return (symmetric(turned(triangular(True, True)(factor, turned(left)))),)


_cholesky = operation("cholesky", of_lapack("cholesky", _factors, of_second, small.cholesky), _of_factor)


@one_by_one
def factored(a: Expr) -> Expr:
    """The lower factors, which are required to exist."""
    factor: Expr = _cholesky(a)
    regular(all_of(diagonals(factor) > 0, -1), "cholesky: the matrix is not positive definite")
    return factor


def cholesky(a: Any, upper: bool = False) -> Expr:
    """The lower triangle L with ``L @ L.T == a``, for positive definite matrices, of which the lower half is looked at.

    With ``upper`` it is U with ``U.T @ U == a``, and the upper half.
    Derivatives are those with respect to the symmetric matrix (Murray 2016, section 3.1). LinAlgError in the run for
    one that has no factor.

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda a: az.linalg.cholesky(a))(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 0.],
           [1., 2.]])
    """
    given = matrices("cholesky", floating(a))
    factor: Expr = turned(factored(turned(given))) if upper else factored(given)
    return factor


def cho_solve(c_and_lower: tuple[Any, bool], b: Any) -> Expr:
    """The solution of ``a @ x == b``, given a Cholesky factor of a and whether it is the lower one, as SciPy's.

    >>> import adze as az, numpy as np
    >>> factor = np.array([[2.0, 0.0], [1.0, 2.0]])
    >>> az.evaluate(lambda c, b: az.linalg.cho_solve((c, True), b))(factor, np.array([6.0, 7.0]))
    array([1., 1.])
    """
    factor, lower = c_and_lower
    first = solve_triangular(factor, b, trans=0 if lower else 1, lower=lower)
    return solve_triangular(factor, first, trans=1 if lower else 0, lower=lower)
