"""Graph colouring of the columns of a sparse matrix: columns of one colour have no row in common.

Then one directional derivative along the sum of a colour's columns gives all their entries at once (Curtis, Powell
and Reid, *On the estimation of sparse Jacobian matrices*, 1974). Columns are coloured one after the other, those that
meet the most others first, each with the first colour that none of its rows has (Coleman and Moré, *Estimation of
sparse Jacobian matrices and graph coloring problems*, 1983). A row keeps the colours that it has as bits.

>>> tridiagonal = scipy.sparse.csr_array(np.eye(5) + np.eye(5, k=1) + np.eye(5, k=-1))
>>> column_colouring(tridiagonal).tolist()
[2, 1, 0, 2, 1]

A symmetric matrix needs fewer, since each entry is there twice: it is enough that one of both can be read (Coleman and
Moré, *Estimation of sparse Hessian matrices and graph coloring problems*, 1984). Its rows are the vertices of a graph,
and the colours are a *star colouring*: neighbours differ, and every path of four vertices has three colours. So the
vertices of any two colours fall into stars, and the edge of a star is read at its leaf (Gebremedhin, Manne and Pothen,
*What color is your Jacobian?*, 2005).

>>> arrow = np.eye(5)
>>> arrow[0] = arrow[:, 0] = 1
>>> column_colouring(scipy.sparse.csr_array(arrow)).tolist(), star_colouring(scipy.sparse.csr_array(arrow)).tolist()
([0, 1, 2, 3, 4], [0, 1, 1, 1, 1])
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

Array = np.ndarray[Any, Any]


def column_colouring(pattern: scipy.sparse.csr_array) -> Array:
    """The colour of each column, numbered from 0. Columns without entries have colour 0."""
    rows, columns = pattern.shape
    by_column = pattern.tocsc()
    starts, members = by_column.indptr.tolist(), by_column.indices
    in_row = np.diff(pattern.indptr)
    met = by_column.astype(np.int64).T @ in_row
    order = np.argsort(-met, kind="stable")
    colours = np.zeros(columns, np.int64)
    taken = np.zeros((rows, 1), np.uint64)
    for column in order[: np.count_nonzero(met)].tolist():
        own = members[starts[column] : starts[column + 1]]
        words = np.bitwise_or.reduce(taken[own], axis=0).tolist()
        word, bits = next(((k, bits) for k, bits in enumerate(words) if bits != _FULL), (len(words), 0))
        if word == len(words):
            taken = np.concatenate([taken, np.zeros_like(taken)], axis=1)
        bit = ~bits & (bits + 1)
        taken[own, word] |= np.uint64(bit)
        colours[column] = 64 * word + bit.bit_length() - 1
    return colours


def star_colouring(pattern: scipy.sparse.csr_array) -> Array:
    """A star colouring of the rows of a symmetric pattern, numbered from 0. Rows without neighbours have colour 0.

    Vertices are coloured one after the other, those with the most neighbours first, each with the first colour that
    makes no path of four vertices in two colours. The time is linear in the entries.
    """
    size = pattern.shape[0]
    entries = pattern.tocoo()
    apart = entries.row != entries.col
    graph = scipy.sparse.csr_array(
        (np.ones(apart.sum(), np.bool_), (entries.row[apart], entries.col[apart])), shape=pattern.shape
    )
    starts, members = graph.indptr.tolist(), graph.indices.tolist()
    degrees = np.diff(graph.indptr)
    colours = np.full(size, -1)
    colours[degrees == 0] = 0
    around = [0] * size  # the colours of a vertex' neighbours, as bits
    # The colours of those of its neighbours that have another neighbour of its colour: a vertex with such a colour
    # would be the end of a path of four.
    blocked = [0] * size
    of_colour: list[dict[int, list[int]]] = [{} for _ in range(size)]  # the first two neighbours of each colour
    for vertex in np.argsort(-degrees, kind="stable")[: np.count_nonzero(degrees)].tolist():
        neighbours = members[starts[vertex] : starts[vertex + 1]]
        own = of_colour[vertex]
        taken = around[vertex]
        for other in neighbours:
            if colours[other] >= 0:
                taken |= around[other] if len(own[colours[other]]) > 1 else blocked[other]
        bit = ~taken & (taken + 1)
        colour = colours[vertex] = bit.bit_length() - 1
        for other in neighbours:
            around[other] |= bit
            same = of_colour[other].setdefault(colour, [])
            if len(same) < 2:
                same.append(vertex)
            if colours[other] >= 0:
                if len(same) > 1:
                    for each in (*same, vertex):
                        blocked[each] |= 1 << int(colours[other])
                if len(own[colours[other]]) > 1:
                    blocked[other] |= bit
    return colours


def readable(pattern: scipy.sparse.csr_array, colours: Array) -> Array:
    """For each entry of a symmetric pattern, whether it is the only one of its row whose column has its colour.

    With a star colouring an entry is, or the one that mirrors it.
    """
    entries = pattern.tocoo()
    _, place, count = np.unique(
        entries.row.astype(np.int64) * (colours.max(initial=0) + 1) + colours[entries.col],
        return_inverse=True,
        return_counts=True,
    )
    alone: Array = count[place] == 1
    return alone


_FULL = (1 << 64) - 1
