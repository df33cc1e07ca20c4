"""Blocked factorisations: of large matrices, in place, by LAPACK for panels and by BLAS for all that is beside them.

A panel is some columns, which one thread factorises. What its factors do to the other columns is products of matrices,
and blocks of these columns are updated side by side by a :class:`~.team.Team`::

    qr      for each panel: its reflections, as 1 - V T V', then those of the columns on its right      geqrt3, larfb
            Q: the same reflections of an identity, from the last panel back                            larfb

A matrix that is one block has nothing to be done side by side: LAPACK factorises it as a whole (geqrf, orgqr), by fewer
calls.

Panels and blocks depend on the extents alone, and so do all bits. (Schreiber and Van Loan 1989; a panel is factorised
by the recursion of Elmroth and Gustavson 2000.)

Matrices are those of LAPACK, column by column: arrays are their transposes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .routines import clear_above, run
from .team import Team

PANEL = 64  # columns: each more is reflected by all others of its panel, and so is the triangle T
BLOCK = 256  # columns: a product with so many has the rate of a large one


def qr(columns: Any, q: Any, r: Any) -> None:
    """Fill ``q`` and ``r`` with the factors of a matrix, which is overwritten."""
    if len(columns) <= BLOCK:
        _whole_qr(columns, q, r)
        return
    least, rows = q.shape
    panels = [(first, min(PANEL, least - first)) for first in range(0, least, PANEL)]
    triangles = [np.empty((size, size), q.dtype) for _, size in panels]
    flat = columns.reshape(-1)

    def reflect(matrix: Any, transposed: str, number: int, column: int, count: int) -> None:
        """Have so many columns reflected by a panel."""
        first, size = panels[number]
        vectors, place = _at(flat, rows, first, first), _at(matrix.reshape(-1), rows, first, column)
        sizes, work = (rows - first, count, size), np.empty((size, count), q.dtype)
        arrays = vectors, rows, triangles[number], size, place, rows, work, count
        run("larfb", q.dtype, "L", transposed, "F", "C", *sizes, *arrays)

    with Team() as team:
        for number, (first, size) in enumerate(panels):
            panel = _at(flat, rows, first, first)
            run("geqrt3", q.dtype, rows - first, size, panel, rows, triangles[number], size)
            team.run(_blocks(partial(reflect, columns, "T", number), first + size, len(columns)))
        r[...] = columns[:, :least]
        clear_above(r[:least])
        q[...] = 0
        q.reshape(-1)[:: rows + 1] = 1
        for number, (first, _) in reversed([*enumerate(panels)]):
            team.run(_blocks(partial(reflect, q, "N", number), first, least))


def _whole_qr(columns: Any, q: Any, r: Any) -> None:
    """The same by LAPACK alone."""
    least, rows = q.shape
    if not least:
        return
    scales, work = np.empty(least, q.dtype), np.empty(PANEL * len(columns), q.dtype)
    run("geqrf", q.dtype, rows, len(columns), columns, rows, scales, work, work.size)
    r[...] = columns[:, :least]
    clear_above(r[:least])
    q[...] = columns[:least]
    run("orgqr", q.dtype, rows, least, least, q, rows, scales, work, work.size)


def _at(flat: Any, rows: int, row: int, column: int) -> Any:
    """The memory of a matrix from a place on."""
    return flat[column * rows + row :]


def _blocks(task: Callable[[int, int], None], first: int, end: int) -> list[Callable[[], None]]:
    """A task for each block of these columns."""
    return [partial(task, column, min(BLOCK, end - column)) for column in range(first, end, BLOCK)]
