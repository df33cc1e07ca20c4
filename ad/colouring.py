"""Colours for the columns of a sparse matrix: columns of one colour have no row in common.

Then one directional derivative along the sum of a colour's columns gives all their entries at once (Curtis, Powell
and Reid, *On the estimation of sparse Jacobian matrices*, 1974). Columns are coloured one after the other, those that
meet the most others first, each with the first colour that none of its rows has (Coleman and Moré, *Estimation of
sparse Jacobian matrices and graph coloring problems*, 1983). A row keeps the colours that it has as bits.

>>> tridiagonal = csr_array(np.eye(5) + np.eye(5, k=1) + np.eye(5, k=-1))
>>> coloured(tridiagonal).tolist()
[2, 1, 0, 2, 1]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

Array = np.ndarray[Any, Any]


def coloured(pattern: csr_array) -> Array:
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


_FULL = (1 << 64) - 1
