"""Factors and solves of one matrix as programs of the language: for small ones on a CPU, and for all on OpenCL devices.

Inside of a map over small matrices its iterations are the lanes. LAPACK branches on pivots. Here nothing does: the rows
of a step are exchanged by selection, so that the matrices of all lanes take the same steps, and the loops of a matrix
are written out where its extents are at most eight or so (``backends/lowering/unrolling.py``)::

    for k < n:   p = the row from k on with the largest a[p, k]
                 row[j] = a[p, j], a[p, j] = a[k, j]                 by selection among the rows behind k
                 a[i, k] = a[i, k] / row[k], a[i, j] -= a[i, k] row[j]    for i, j > k

On a device a step of a large matrix is a few kernels, over all of its elements. (Golub and Van Loan, "Matrix
Computations", 2013, algorithms 3.4.1, 3.1.1, 4.2.1 and 5.2.1, in the order of outer products.)
"""

from __future__ import annotations

from typing import Any

from ...core.combinators import eye, fori_loop, generate, where, zeros
from ...core.combinators import max as largest
from ...core.combinators import sum as total
from ...core.expr import Expr
from ...core.primitive import PRIMITIVES
from .operands import read

UNROLLED = 8  # rows of a matrix that is in the registers of a lane
State = Any


def _least(first: Any, second: Any) -> Any:
    """The smaller of two sizes."""
    known = isinstance(first, int) and isinstance(second, int)
    return min(first, second) if known else PRIMITIVES["minimum"](first, second)


def _written_out(rows: Any) -> bool:
    """Whether a loop over so many rows is, where it runs along lanes."""
    return isinstance(rows, int) and rows <= UNROLLED


def lu(a: Expr) -> tuple[Any, Any]:
    """Both factors in one matrix, and the row with which each was exchanged in its turn, as LAPACK's getrf."""
    rows, columns = a.shape
    steps = _least(rows, columns)

    def step(k: Any, state: State) -> State:
        a, pivots = state

        def larger(i: Any, best: State) -> State:
            size, at = best
            own = PRIMITIVES["abs"](a[i, k])
            better = (i > k) & (own > size)
            return where(better, own, size), where(better, i, at)

        _, pivot = fori_loop(0, rows, larger, (PRIMITIVES["abs"](a[k, k]), k))
        row = _row(a, pivot, k)

        def element(i: Any, j: Any) -> Any:
            own, first = where(pivot == i, a[k, j], a[i, j]), where(pivot == i, a[k, k], a[i, k])
            factor = first / row[k]
            below = where(j < k, own, where(j == k, factor, own - factor * row[j]))
            return where(i < k, a[i, j], where(i == k, row[j], below))

        return generate((rows, columns), element), generate(steps, lambda i: where(i == k, pivot, pivots[i]))

    return fori_loop(0, steps, step, (a, generate(steps, lambda i: i)))


def _row(a: Any, pivot: Any, k: Any) -> Any:
    """The row of a pivot from row k on: selected, where a matrix is one of many lanes, or else read."""
    rows, columns = a.shape
    if not _written_out(rows):
        return generate(columns, lambda j: read(a, pivot, j))

    def chosen(j: Any) -> Any:
        return fori_loop(0, rows, lambda i, value: where((i > k) & (pivot == i), a[i, j], value), a[k, j])

    return generate(columns, chosen)


def exchanged(b: Expr, pivots: Expr, back: bool = False) -> Any:
    """The rows of b after the exchanges of a factorisation, or after these from the last one back to the first."""
    [steps] = pivots.shape

    def step(turn: Any, b: Any) -> Any:
        k = steps - 1 - turn if back else turn
        pivot = pivots[k]

        row = _row(b, pivot, k)
        return generate(b.shape, lambda i, c: where(i == k, row[c], where(pivot == i, b[k, c], b[i, c])))

    return fori_loop(0, steps, step, b)


def substituted(lower: bool, transposed: bool, unit: bool, a: Expr, b: Expr) -> Any:
    """The solution of a triangular system: by a triangle of a or its transpose, with ``unit`` ones on its diagonal."""
    rows = a.shape[0]
    forward = lower != transposed

    def step(turn: Any, x: Any) -> Any:
        k = turn if forward else rows - 1 - turn
        row = generate(x.shape[1], lambda c: x[k, c] if unit else x[k, c] / a[k, k])

        def element(i: Any, c: Any) -> Any:
            remaining = x[i, c] - (a[k, i] if transposed else a[i, k]) * row[c]
            return where(i == k, row[c], where(i > k if forward else i < k, remaining, x[i, c]))

        return generate(x.shape, element)

    return fori_loop(0, rows, step, b)


def cholesky(a: Expr) -> Any:
    """The factor of a symmetric matrix, by its lower triangle; if there is none, its diagonal is not positive."""
    rows = a.shape[0]

    def step(k: Any, a: Any) -> Any:
        corner = PRIMITIVES["sqrt"](a[k, k])
        column = generate(rows, lambda i: where(i < k, 0.0, where(i == k, corner, a[i, k] / corner)))

        def element(i: Any, j: Any) -> Any:
            behind = where(j == k, column[i], a[i, j] - column[i] * column[j])
            return where(i < j, 0.0, where(j < k, a[i, j], behind))

        return generate((rows, rows), element)

    return fori_loop(0, rows, step, a)


def orthonormal(a: Expr) -> tuple[Any, Any]:
    """Orthonormal columns and a triangle by Householder's reflections, with LAPACK's signs."""
    rows, columns = a.shape
    steps = _least(rows, columns)

    def reflected(k: Any, v: Any, scale: Any, a: Any) -> Any:
        """a after ``1 - scale v v.T``, for a v that is zero before row k."""

        def along(j: Any) -> Any:
            return scale * total(generate(rows, lambda i: where(i < k, 0.0, v[i] * a[i, j])))

        sums = generate(a.shape[1], along)
        return generate(a.shape, lambda i, j: where(i < k, a[i, j], a[i, j] - v[i] * sums[j]))

    def step(k: Any, state: State) -> State:
        a, vectors, scales = state
        size = largest(generate(rows, lambda i: where(i < k, 0.0, PRIMITIVES["abs"](a[i, k]))))
        unit = where(size > 0, size, 1.0)  # so that no square is too large or small
        x = generate(rows, lambda i: where(i < k, 0.0, a[i, k] / unit))
        length = PRIMITIVES["sqrt"](total(x * x))
        v = generate(rows, lambda i: where(i == k, x[i] + where(x[i] < 0, -length, length), x[i]))
        below = total(generate(rows, lambda i: where(i > k, x[i] * x[i], 0.0)))
        scale = where(below == 0, 0.0, 2 / total(v * v))
        vectors = generate(vectors.shape, lambda i, j: where(i == k, v[j], vectors[i, j]))
        return reflected(k, v, scale, a), vectors, generate(steps, lambda i: where(i == k, scale, scales[i]))

    triangle, vectors, scales = fori_loop(0, steps, step, (a, zeros((steps, rows), a.dtype), zeros(steps, a.dtype)))

    def back(turn: Any, q: Any) -> Any:
        k = steps - 1 - turn
        return reflected(k, vectors[k], scales[k], q)

    unit = eye(rows, dtype=a.dtype)[:, :steps]
    return fori_loop(0, steps, back, unit), generate((steps, columns), lambda i, j: where(i > j, 0.0, triangle[i, j]))
