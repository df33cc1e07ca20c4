"""Blocked factorisations: of large matrices, in place, by LAPACK for panels and by BLAS for all that is beside them.

A panel is some columns, which one thread factorises. What its factors do to the other columns is products of matrices,
and blocks of these columns are updated side by side by a :class:`~.team.Team`::

    lu      for each panel: its elimination, then that of the columns on its right          getrf, laswp, trsm, gemm
            the exchanges of later panels, in the columns on their left                     laswp

    inverse     for each block of its rows: X U = 1, Y L = X, columns exchanged             trsm

    cholesky    for each panel: its triangle, the rows on its right                         potrf, trsm
                then the columns on its right, above their diagonals and on them            gemm, syrk

    qr      for each panel: its reflections, as 1 - V T V', then those of the columns on its right      geqrt3, larfb
            Q: the same reflections of an identity, from the last panel back                            larfb

The first block beside a panel is the next panel, and who has updated it factorises it at once, while others update the
rest (look-ahead; Dongarra, Luszczek and Petitet, "The LINPACK benchmark: past, present and future", 2003).

What has little to be done side by side LAPACK factorises as a whole, by fewer calls: in a QR what is one block, else
what has few operations beside its panels. LAPACK's own exchanges rows while it copies them for products,
and so is faster on one thread.

Panels and blocks depend on the extents alone, and so do all bits. (QR: Schreiber and Van Loan 1989; a panel is
factorised by the recursion of Elmroth and Gustavson 2000.)

Matrices are those of LAPACK, column by column: arrays are their transposes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from .routines import Matrix, clear_above, run
from .team import Team

PANEL = 64  # columns, of a QR: each more is reflected by all others of its panel, and so is the triangle T
WIDE = 352  # columns, of an elimination: with fewer the exchanges of rows go through the matrix too often
NARROW = 192  # columns, of a Cholesky factor: there are no exchanges, and of the first panel one thread alone has work
BLOCK = 256  # columns: a product with so many has the rate of a large one
ROWS = 128  # of an inverse, which are 0 before their part of the identity: larger blocks solve for more zeros
SHARED = 150_000_000  # operations beside panels: two threads save some times what it takes to start them

Panel = tuple[int, int]  # its first column, and how many it has


def lu(matrix: Any, columns: Any, pivots: Any) -> None:
    """Fill ``columns`` with the factors of a matrix, and ``pivots`` with the exchanged rows, counted from 1."""
    rows, count = matrix.shape
    if not matrix.size:
        return
    panels, elimination = _panels(rows, count), _Elimination(columns, pivots)
    if not panels:
        columns[...] = matrix.T
        elimination.factorise((0, count))
        return
    with Team() as team:
        team.run(_blocks(partial(_transpose, matrix, columns), 0, count))
        elimination.factorise(panels[0])
        for panel, following in pairwise(panels):
            ahead = partial(elimination.look_ahead, panel, following)
            team.run([ahead, *_blocks(partial(elimination.update, panel), sum(following), count)])
        team.run(_blocks(partial(elimination.update, panels[-1]), sum(panels[-1]), count))
        team.run([partial(elimination.exchange, panel) for panel in panels[:-1]])


def _panels(rows: int, count: int) -> list[Panel]:
    """The panels of an elimination, as long as each other; none if few operations are beside those of look-ahead."""
    least = min(rows, count)
    panels = _even(least, WIDE)
    behind = [*[sum(following) for following in panels[1:]], least]
    shared = sum([2 * size * (rows - first) * (count - end) for (first, size), end in zip(panels, behind, strict=True)])
    return panels if shared >= SHARED else []


def _even(count: int, most: int) -> list[Panel]:
    """Panels of at most so many columns, as long as each other but for the last."""
    size = -(-count // -(-count // most))
    return [(first, min(size, count - first)) for first in range(0, count, size)]


def _transpose(matrix: Any, columns: Any, first: int, size: int) -> None:
    columns[first : first + size] = matrix[:, first : first + size].T


class _Elimination:
    """The steps of an elimination, each of which writes columns of its own."""

    def __init__(self, columns: Any, pivots: Any) -> None:
        self.matrix, self.pivots, self.least = Matrix(columns), pivots, len(pivots)

    def run(self, name: str, *arguments: Any) -> None:
        run(name, self.matrix.columns.dtype, *arguments)

    def factorise(self, panel: Panel) -> None:
        (first, size), rows = panel, self.matrix.rows
        self.run("getrf", rows - first, size, self.matrix.at(first, first), rows, self.pivots[first:])
        self.pivots[first : first + size] += first

    def update(self, panel: Panel, column: int, count: int) -> None:
        """Do to so many columns what was done to a panel."""
        (first, size), at, rows = panel, self.matrix.at, self.matrix.rows
        end, above, left = first + size, at(first, column), at(first, first)
        self.run("laswp", count, at(0, column), rows, first + 1, end, self.pivots, 1)
        self.run("trsm", "L", "L", "N", "U", size, count, 1.0, left, rows, above, rows)
        if end < rows:
            below = at(end, first), rows, above, rows, 1.0, at(end, column), rows
            self.run("gemm", "N", "N", rows - end, count, size, -1.0, *below)

    def look_ahead(self, panel: Panel, following: Panel) -> None:
        self.update(panel, *following)
        self.factorise(following)

    def exchange(self, panel: Panel) -> None:
        """Exchange rows of a panel as those behind it."""
        (first, size), at, rows = panel, self.matrix.at, self.matrix.rows
        self.run("laswp", size, at(0, first), rows, first + size + 1, self.least, self.pivots, 1)


def inverse(columns: Any, pivots: Any, inverted: Any) -> None:
    """Fill ``inverted`` with the columns of an inverse, given the factors and the exchanged rows, counted from 0."""
    n, factors, order = len(pivots), Matrix(columns), [*range(len(pivots))]
    for k, pivot in enumerate(pivots.tolist()):
        order[k], order[pivot] = order[pivot], order[k]

    def solve(first: int, size: int) -> None:
        block = np.zeros((n, size), columns.dtype)  # column by column, too; X is 0 before its part of the identity
        block[first : first + size] = np.eye(size)
        upper = factors.at(first, first), n, block[first:], size
        run("trsm", block.dtype, "R", "U", "N", "N", size, n - first, 1.0, *upper)
        run("trsm", block.dtype, "R", "L", "N", "U", size, n, 1.0, factors.at(0, 0), n, block, size)
        inverted[order, first : first + size] = block

    with Team() as team:
        team.run(_blocks(solve, 0, n, ROWS))


def cholesky(matrix: Any, columns: Any) -> None:
    """Fill ``columns`` with the upper factor of a matrix, of which its columns above the diagonal are looked at.

    LinAlgError for one that has none.
    """
    n, factor = len(matrix), _Triangle(matrix, columns)
    if n**3 // 3 < SHARED:
        factor.copy(0, n)
        factor.factorise((0, n))
        return
    panels = _even(n, NARROW)
    with Team() as team:
        team.run(_blocks(factor.copy, 0, n))
        factor.factorise(panels[0])
        for panel, following in pairwise(panels):
            team.run(_blocks(partial(factor.solve, panel), sum(panel), n))
            ahead, rest = partial(factor.look_ahead, panel, following), partial(factor.update, panel)
            team.run([ahead, *reversed(_blocks(rest, sum(following), n))])  # the last one is the longest


class _Triangle:
    """The steps of a Cholesky factor, each of which writes columns of its own."""

    def __init__(self, given: Any, columns: Any) -> None:
        self.given, self.matrix, self.n = given, Matrix(columns), len(columns)

    def run(self, name: str, *arguments: Any) -> int:
        return run(name, self.matrix.columns.dtype, *arguments)

    def copy(self, first: int, size: int) -> None:
        """Copy what is above the diagonal, and set what is below it to 0."""
        columns, end = self.matrix.columns[first : first + size], first + size
        columns[:, :end], columns[:, end:] = self.given[first:end, :end], 0
        clear_above(columns[:, first:end])

    def factorise(self, panel: Panel) -> None:
        first, size = panel
        if size and self.run("potrf", "U", size, self.matrix.at(first, first), self.n):
            raise np.linalg.LinAlgError("the matrix is not positive definite")

    def solve(self, panel: Panel, column: int, count: int) -> None:
        """Divide a panel's rows by its triangle, in so many columns on its right."""
        (first, size), at, n = panel, self.matrix.at, self.n
        self.run("trsm", "L", "U", "T", "N", size, count, 1.0, at(first, first), n, at(first, column), n)

    def update(self, panel: Panel, column: int, count: int) -> None:
        """Subtract products of a panel's rows from so many columns on its right."""
        (first, size), at, n = panel, self.matrix.at, self.n
        end, own = first + size, (at(first, column), n)
        if column > end:
            self.run(
                "gemm", "T", "N", column - end, count, size, -1.0, at(first, end), n, *own, 1.0, at(end, column), n
            )
        self.run("syrk", "U", "T", count, size, -1.0, *own, 1.0, at(column, column), n)

    def look_ahead(self, panel: Panel, following: Panel) -> None:
        self.update(panel, *following)
        self.factorise(following)


def qr(columns: Any, q: Any | None, r: Any) -> None:
    """Fill ``q``, if it is wanted, and ``r`` with the factors of a matrix, which is overwritten."""
    if len(columns) <= BLOCK:
        _whole_qr(columns, q, r)
        return
    least, rows, own = min(columns.shape), columns.shape[1], Matrix(columns)
    panels = [(first, min(PANEL, least - first)) for first in range(0, least, PANEL)]
    triangles = [np.empty((size, size), columns.dtype) for _, size in panels]

    def reflect(matrix: Matrix, transposed: str, number: int, column: int, count: int) -> None:
        """Have so many columns reflected by a panel."""
        first, size = panels[number]
        vectors, place = own.at(first, first), matrix.at(first, column)
        sizes, work = (rows - first, count, size), np.empty((size, count), columns.dtype)
        arrays = vectors, rows, triangles[number], size, place, rows, work, count
        run("larfb", columns.dtype, "L", transposed, "F", "C", *sizes, *arrays)

    with Team() as team:
        for number, (first, size) in enumerate(panels):
            run("geqrt3", columns.dtype, rows - first, size, own.at(first, first), rows, triangles[number], size)
            team.run(_blocks(partial(reflect, own, "T", number), first + size, len(columns)))
        r[...] = columns[:, :least]
        clear_above(r[:least])
        if q is None:
            return
        q[...] = 0
        q.reshape(-1)[:: rows + 1] = 1
        for number, (first, _) in reversed([*enumerate(panels)]):
            team.run(_blocks(partial(reflect, Matrix(q), "N", number), first, least))


def _whole_qr(columns: Any, q: Any | None, r: Any) -> None:
    """The same by LAPACK alone."""
    least, rows, dtype = min(columns.shape), columns.shape[1], columns.dtype
    if not least:
        return
    scales, work = np.empty(least, dtype), np.empty(PANEL * len(columns), dtype)
    run("geqrf", dtype, rows, len(columns), columns, rows, scales, work, work.size)
    r[...] = columns[:, :least]
    clear_above(r[:least])
    if q is None:
        return
    q[...] = columns[:least]
    run("orgqr", dtype, rows, least, least, q, rows, scales, work, work.size)


def _blocks(task: Callable[[int, int], None], first: int, end: int, most: int = BLOCK) -> list[Callable[[], None]]:
    """A task for each block of these columns."""
    return [partial(task, column, min(most, end - column)) for column in range(first, end, most)]
