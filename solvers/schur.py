"""Sparse least squares: blocks of unknowns that meet no others are eliminated from the normal equations first.

In bundle adjustment an observation is of one point by one camera. Then two points never meet in ``J^T J``, and their
part of it consists of small blocks. Solved for, block by block, they leave a system of the cameras alone, the Schur
complement, which is much smaller::

    [V  W ] [e]   [-a]        e: unknowns in blocks, V block-diagonal
    [W' U ] [c] = [-b]        (U - W' V^-1 W) c = W' V^-1 a - b,      V e = -a - W c

Which unknowns those are is found in the pattern of ``J^T J``, whatever they are called: of the unknowns with few
neighbours, those in small components of the graph of what meets what. The bound on neighbours is the one by which most
are eliminated. The blocks are inverted by a compiled program, one block an iteration of its map. What is left is
solved by Cholesky as a dense matrix, or, of more than 6,000 unknowns, by conjugate gradients, with the block diagonal
of ``U`` as preconditioner; then the complement is never formed.

(Triggs, McLauchlan, Hartley and Fitzgibbon, *Bundle adjustment: a modern synthesis*, 2000, section 6.1; Agarwal,
Snavely, Seitz and Szeliski, *Bundle adjustment in the large*, 2010.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from .linearised import Linearised
from .unknowns import Array

BLOCK = 16  # unknowns, at most, that are eliminated together
BOUNDS = 24  # numbers of neighbours that are tried as the bound
DENSE = 6000  # unknowns, at most, of a complement that is factorised
ACCURACY = 1e-8  # of conjugate gradients, relative to the right-hand side
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
    def of(pattern: Sparse) -> Elimination:
        """The elimination of most unknowns for a symmetric pattern."""
        neighbours = np.diff(pattern.indptr)
        found, labels = np.zeros(0, np.int64), np.zeros(0, np.int64)
        bounds = np.unique(neighbours)
        best = bounds[0]
        for _ in range(2):  # among all numbers of neighbours, then near the best of these
            tried = np.unique(bounds[np.linspace(0, len(bounds) - 1, BOUNDS).astype(int)])
            for bound in tried:
                few = np.flatnonzero(neighbours <= bound)
                _, component = scipy.sparse.csgraph.connected_components(pattern[few][:, few], directed=False)
                small = np.bincount(component)[component] <= BLOCK
                if small.sum() > len(found):
                    found, labels, best = few[small], component[small], bound
            at = int(np.searchsorted(tried, best))
            near = tried[max(at - 1, 0) : at + 2]
            bounds = bounds[(bounds >= near[0]) & (bounds <= near[-1])]
        order = np.argsort(labels, kind="stable")
        found, (_, block, sizes) = found[order], np.unique(labels[order], return_inverse=True, return_counts=True)
        slot = np.arange(len(found)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        left = np.setdiff1d(np.arange(pattern.shape[0]), found)
        return Elimination(found, block, slot, int(sizes.max(initial=0)), left)

    def inverse(self, matrix: Sparse) -> Sparse:
        """The inverse of the part of a matrix that belongs to the eliminated unknowns; LinAlgError if it has none."""
        entries, count = matrix.tocoo(), int(self.block.max(initial=-1)) + 1
        blocks = np.zeros((count, self.width, self.width))
        blocks[:, range(self.width), range(self.width)] = 1.0  # where a block is smaller
        blocks[self.block, self.slot, self.slot] = 0.0
        blocks[self.block[entries.row], self.slot[entries.row], self.slot[entries.col]] = entries.data
        inverses = _inverses(self.width)(blocks)
        sizes = np.bincount(self.block, minlength=count)[self.block]
        rows = np.repeat(np.arange(len(self.block)), sizes)
        slots = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        columns = rows - self.slot[rows] + slots
        data = inverses[self.block[rows], self.slot[rows], slots]
        pointers = np.concatenate([[0], np.cumsum(sizes)])
        return scipy.sparse.csr_array((data, columns, pointers), shape=matrix.shape)


@cache
def _inverses(width: int) -> Program:
    """The program that inverts positive definite blocks of this width."""

    def inverses(blocks: Any) -> Any:
        return each(lambda block: solve(block, eye(width), assume_a="pos"), blocks)

    blocks = array_of(f64, (Dim.atom(Name("count")), Dim.of(width), Dim.of(width)))
    return Program(inverses, "inverses", [Parameter("blocks", blocks)])


class Reduced(Linearised):
    """The problem around a point where J is sparse: its normal equations, less the blocks that are eliminated."""

    def __init__(self, jacobian: Sparse, residuals: Array, known: Elimination | None, widths: Sequence[int]) -> None:
        self.normal = (jacobian.T @ jacobian).tocsr()
        self.gradient = jacobian.T @ residuals
        self.squares = self.normal.diagonal()
        self.elimination = known or Elimination.of(self.normal)
        self.widths = widths

    def prepare(self, scales: Array) -> None:
        self.scales = scales
        inverse = scipy.sparse.diags_array(1 / scales)
        matrix = (inverse @ self.normal @ inverse).tocsr()
        e, c = self.elimination.eliminated, self.elimination.left
        by_rows = matrix[e]
        self.v, self.w, self.u = by_rows[:, e], by_rows[:, c], matrix[c][:, c]

    def step(self, damping: float) -> Array | None:
        e, c = self.elimination.eliminated, self.elimination.left
        right = -self.gradient / self.scales
        found = np.empty(len(right))
        try:
            if not len(e):
                found[c] = self.complement(damping, None, right[c])
                return found / self.scales
            inverse = self.elimination.inverse(self.v + damping * scipy.sparse.eye_array(len(e)))
            found[c] = self.complement(damping, inverse, right[c] - self.w.T @ (inverse @ right[e]))
            found[e] = inverse @ (right[e] - self.w @ found[c])
        except np.linalg.LinAlgError:
            return None
        return found / self.scales

    def complement(self, damping: float, inverse: Sparse, right: Array) -> Array:
        """The solution of the system of what is left."""
        count = len(right)
        if not count:
            return right
        u = self.u + damping * scipy.sparse.eye_array(count)
        if count <= DENSE:
            whole = (u if inverse is None else u - self.w.T @ (inverse @ self.w)).toarray()
            return np.asarray(scipy.linalg.cho_solve(scipy.linalg.cho_factor(whole, overwrite_a=True), right))

        def product(x: Array) -> Array:
            return np.asarray(u @ x if inverse is None else u @ x - self.w.T @ (inverse @ (self.w @ x)))

        operator = scipy.sparse.linalg.LinearOperator((count, count), matvec=product)
        before = scipy.sparse.linalg.LinearOperator((count, count), matvec=self.block_diagonal(u))
        return np.asarray(scipy.sparse.linalg.cg(operator, right, rtol=ACCURACY, M=before)[0])

    def block_diagonal(self, matrix: Sparse) -> Callable[[Array], Array]:
        """The inverse of the block diagonal of what is left; a block is a row of a leaf of the unknowns."""
        block = np.repeat(np.arange(len(self.widths)), self.widths)[self.elimination.left]
        block = np.unique(block, return_inverse=True)[1]
        sizes = np.bincount(block)
        slot = np.arange(len(block)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        entries = matrix.tocoo()
        same = block[entries.row] == block[entries.col]
        own = scipy.sparse.coo_array(
            (entries.data[same], (entries.row[same], entries.col[same])), shape=matrix.shape
        ).tocsr()
        inverse = Elimination(np.arange(len(block)), block, slot, int(sizes.max()), np.zeros(0)).inverse(own)
        return lambda x: np.asarray(inverse @ x)


def widths(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """The lengths of the rows of leaves: of what is in one row, all may meet. Rows longer than a block are numbers."""
    found: list[int] = []
    for shape in shapes:
        length = shape[-1] if len(shape) > 1 and 0 < shape[-1] <= BLOCK else 1
        found += [length] * (math.prod(shape) // length)
    return found
