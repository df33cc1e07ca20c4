"""Which unknowns a sparse least-squares problem is relieved of first: blocks of them that meet no others.

They are found in the pattern of J, whatever they are called: of the unknowns with few neighbours, those in small
components of the graph of what meets what. The bound on neighbours is the one by which most are eliminated; it is found
by bisection, since what is in a large component is in one under each larger bound. Unknowns that occur in the same rows
are one vertex of the graph (supervariables: Duff and Reid, *The multifrontal solution of indefinite sparse symmetric
linear systems*, 1983). In bundle adjustment the points are eliminated, three unknowns each::

    J^T J = [V  W ]        V is block-diagonal: a block is inverted by itself
            [W' U ]

The blocks are inverted by a compiled program, one block an iteration of its map.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy

from ..core.annotations import Parameter
from ..core.combinators import eye
from ..core.combinators import map as each
from ..core.dims import Dim, Name
from ..core.program import Program
from ..core.types import array_of, f64
from ..library.linalg import solve
from .unknowns import Array

BLOCK = 16  # unknowns, at most, that are eliminated together
Sparse = Any


@dataclass(frozen=True)
class Elimination:
    """Which unknowns are eliminated, block after block, and which are left.

    ``block`` and ``slot`` say where each of the eliminated unknowns is; ``width`` is the size of the largest block.
    """

    eliminated: Array
    block: Array
    slot: Array
    width: int
    left: Array

    @staticmethod
    def of(jacobian: Sparse) -> Elimination:
        """The elimination of most unknowns for the pattern of a Jacobian."""
        group, met = _indistinguishable(jacobian)
        sizes, graph = np.bincount(group), (met.T @ met).tocsr()
        neighbours = graph.astype(np.bool_) @ sizes
        found, labels = np.zeros(0, np.int64), np.zeros(0, np.int64)
        bounds, place = np.unique(neighbours, return_inverse=True)
        most = np.cumsum(np.bincount(place, sizes))  # unknowns that a bound can eliminate, as far as is known
        while len(bounds):
            middle = len(bounds) // 2
            few = np.flatnonzero(neighbours <= bounds[middle])
            _, component = scipy.sparse.csgraph.connected_components(graph[few][:, few], directed=False)
            small = np.bincount(component, sizes[few])[component] <= BLOCK
            if sizes[few[small]].sum() > sizes[found].sum():
                found, labels = few[small], component[small]
            most[middle] = sizes[few[small]].sum()
            most[middle + 1 :] -= sizes[few[~small]].sum()  # where they are in larger components still
            better = most > sizes[found].sum()
            bounds, most = bounds[better], most[better]
        label = np.full(len(sizes), -1)
        label[found] = labels
        label = label[group]
        found = np.flatnonzero(label >= 0)
        labels = label[found]
        order = np.argsort(labels, kind="stable")
        found, (_, block, sizes) = found[order], np.unique(labels[order], return_inverse=True, return_counts=True)
        slot = np.arange(len(found)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        left = np.flatnonzero(label < 0)
        return Elimination(found, block, slot, int(sizes.max(initial=0)), left)

    @property
    def count(self) -> int:
        """The number of blocks."""
        return int(self.block.max(initial=-1)) + 1

    def inverse(self, matrix: Sparse) -> Sparse:
        """The inverse of the part of a matrix that belongs to the eliminated unknowns; LinAlgError if it has none."""
        entries, count = matrix.tocoo(), self.count
        blocks = np.zeros((count, self.width, self.width))
        blocks[:, range(self.width), range(self.width)] = 1.0  # where a block is smaller
        blocks[self.block, self.slot, self.slot] = 0.0
        blocks[self.block[entries.row], self.slot[entries.row], self.slot[entries.col]] = entries.data
        inverse = inverses(self.width)(blocks)
        sizes = np.bincount(self.block, minlength=count)[self.block]
        rows = np.repeat(np.arange(len(self.block)), sizes)
        slots = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        columns = rows - self.slot[rows] + slots
        data = inverse[self.block[rows], self.slot[rows], slots]
        pointers = np.concatenate([[0], np.cumsum(sizes)])
        return scipy.sparse.csr_array((data, columns, pointers), shape=matrix.shape)


def _indistinguishable(jacobian: Sparse) -> tuple[Array, Sparse]:
    """The unknowns in groups of those that occur in the same rows, and which groups each row has.

    What occurs in no row is a group of its own, since it does not meet the others of these. Other groups are known by a
    sum of random numbers, one for each row. Should two groups have the same, they are one with the rows of both.
    """
    entries = scipy.sparse.csr_array((np.ones(jacobian.nnz), jacobian.indices, jacobian.indptr), shape=jacobian.shape)
    sums = entries.T @ np.random.default_rng(0).random(jacobian.shape[0])
    nowhere = np.flatnonzero(np.bincount(jacobian.indices, minlength=len(sums)) == 0)
    sums[nowhere] = -1.0 - nowhere
    _, group = np.unique(sums, return_inverse=True)
    rows = np.repeat(np.arange(jacobian.shape[0]), np.diff(jacobian.indptr))
    ones = np.ones(jacobian.nnz, np.int64)
    shape = (jacobian.shape[0], int(group.max(initial=-1)) + 1)
    met = scipy.sparse.csr_array((ones, (rows, group[jacobian.indices])), shape=shape)
    met.sum_duplicates()
    return group, met


@cache
def inverses(width: int) -> Program:
    """The program that inverts positive definite blocks of this width."""

    def inverses(blocks: Any) -> Any:
        return each(lambda block: solve(block, eye(width), assume_a="pos"), blocks)

    blocks = array_of(f64, (Dim.atom(Name("count")), Dim.of(width), Dim.of(width)))
    return Program(inverses, "inverses", [Parameter("blocks", blocks)])
