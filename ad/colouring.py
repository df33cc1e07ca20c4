"""Graph colouring of the columns of a sparse matrix: columns of one colour have no row in common.

Then one directional derivative along the sum of a colour's columns gives all their entries at once (Curtis, Powell
and Reid, *On the estimation of sparse Jacobian matrices*, 1974). Columns are coloured one after the other, those that
meet the most others first, each with the first colour that none of its rows has (Coleman and Moré, *Estimation of
sparse Jacobian matrices and graph coloring problems*, 1983). Columns that come first in each of their rows, of those
that have no colour yet, do not meet, and wait for no other: they are coloured at once (Jones and Plassmann, *A parallel
graph coloring heuristic*, 1993), with the same colours as one after the other.

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

from ..interpreters.sparsity.sets import spans

Array = np.ndarray[Any, Any]


MANY = 8  # columns at once, from which on that is faster than one after the other


def column_colouring(pattern: scipy.sparse.csr_array) -> Array:
    """The colour of each column, numbered from 0. Columns without entries have colour 0."""
    in_row = np.diff(pattern.indptr)
    met = np.bincount(pattern.indices, np.repeat(in_row, in_row), minlength=pattern.shape[1])
    order = np.argsort(-met, kind="stable")
    rank = np.empty(len(order), pattern.indices.dtype)
    rank[order] = np.arange(len(order))
    colours = np.zeros(len(order), np.int64)
    colours[order] = _FirstFit(
        scipy.sparse.csr_array((pattern.data, rank[pattern.indices], pattern.indptr), shape=pattern.shape)
    ).coloured()
    return colours


class _FirstFit:
    """Columns, numbered in the order in which they are coloured; a row keeps the colours that it has as bits."""

    def __init__(self, pattern: scipy.sparse.csr_array) -> None:
        pattern.sort_indices()
        by_column = pattern.tocsc()
        self.pattern, self.starts, self.members = pattern, by_column.indptr, by_column.indices
        self.colours = np.zeros(pattern.shape[1], np.int64)
        self.taken = np.zeros((pattern.shape[0], 1), np.uint64)

    def coloured(self) -> Array:
        """The colours: of the columns that come first in all of their rows at once, while these are many."""
        first, ends, degrees = self.pattern.indptr[:-1].copy(), self.pattern.indptr[1:], np.diff(self.starts)
        waiting = degrees - np.bincount(self.pattern.indices[first[first < ends]], minlength=len(degrees))
        is_left = degrees > 0
        ready = np.flatnonzero((waiting == 0) & is_left)
        while len(ready) >= MANY:
            rows = self.members[spans(self.starts[ready], degrees[ready])]
            self.colour(ready, rows, degrees[ready])
            is_left[ready] = False
            first[rows] += 1
            heads = self.pattern.indices[first[rows][first[rows] < ends[rows]]]
            np.subtract.at(waiting, heads, 1)
            ready = np.unique(heads[waiting[heads] == 0])
        for column in np.flatnonzero(is_left).tolist():
            self.colour_one(column)
        return self.colours

    def colour(self, columns: Array, rows: Array, lengths: Array) -> None:
        """Columns without a common row; those of each are so many of these rows."""
        words = np.bitwise_or.reduceat(self.taken[rows], np.cumsum(lengths) - lengths, axis=0)
        if (words == _FULL).all(axis=1).any():
            self.add_word()
            words = np.concatenate([words, np.zeros((len(words), 1), np.uint64)], axis=1)
        word = np.argmax(words != _FULL, axis=1)
        bits = words[np.arange(len(words)), word]
        bit = ~bits & (bits + np.uint64(1))
        self.taken[rows, np.repeat(word, lengths)] |= np.repeat(bit, lengths)
        self.colours[columns] = 64 * word + np.frexp(bit.astype(np.float64))[1] - 1

    def colour_one(self, column: int) -> None:
        rows = self.members[self.starts[column] : self.starts[column + 1]]
        words = np.bitwise_or.reduce(self.taken[rows], axis=0).tolist()
        word, bits = next(((k, bits) for k, bits in enumerate(words) if bits != _FULL), (len(words), 0))
        if word == len(words):
            self.add_word()
        bit = ~bits & (bits + 1)
        self.taken[rows, word] |= np.uint64(bit)
        self.colours[column] = 64 * word + bit.bit_length() - 1

    def add_word(self) -> None:
        self.taken = np.concatenate([self.taken, np.zeros((len(self.taken), 1), np.uint64)], axis=1)


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
