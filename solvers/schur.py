"""Sparse least squares: blocks of unknowns that meet no others are eliminated from the normal equations first.

In bundle adjustment an observation is of one point by one camera. Then two points never meet in ``J^T J``, and their
part of it consists of small blocks (``elimination.py``). Solved for, block by block, they leave a system of the cameras
alone, the Schur complement, which is much smaller::

    [V  W ] [e]   [-a]        e: unknowns in blocks, V block-diagonal
    [W' U ] [c] = [-b]        (U - W' V^-1 W) c = W' V^-1 a - b,      V e = -a - W c

It is assembled and factorised (``complement.py``) unless that takes more than a dense matrix of 6,000 unknowns does.
Then the complement is never formed, and conjugate gradients solve for c, with the block diagonal of ``U`` as
preconditioner.

(Triggs, McLauchlan, Hartley and Fitzgibbon, *Bundle adjustment: a modern synthesis*, 2000, section 6.1; Agarwal,
Snavely, Seitz and Szeliski, *Bundle adjustment in the large*, 2010.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from ..library.linalg.one_thread import on_one_thread
from .complement import Layout, Tiled
from .elimination import BLOCK, Elimination, Sparse
from .linearised import Linearised
from .unknowns import Array

ACCURACY = 1e-8  # of conjugate gradients, relative to the right-hand side


@dataclass(frozen=True)
class Reduction:
    """What is known of a pattern: what is eliminated, and how what is left is laid out, if it is factorised."""

    elimination: Elimination
    layout: Layout | None
    widths: Sequence[int]

    @staticmethod
    def of(jacobian: Sparse, widths: Sequence[int]) -> Reduction:
        """The reduction for the pattern of a Jacobian, where rows of leaves have these widths."""
        elimination = Elimination.of(jacobian)
        return Reduction(elimination, Layout.of(jacobian, elimination, widths), widths)

    def around(self, jacobian: Sparse, residuals: Array) -> Linearised:
        """The problem around a point, for a Jacobian of this pattern."""
        if self.layout is not None:
            return Tiled(self.layout, jacobian, residuals)
        return Implicit(jacobian, residuals, self.elimination, self.widths)


class Implicit(Linearised):
    """The normal equations, less the blocks that are eliminated; what is left is solved by conjugate gradients."""

    def __init__(self, jacobian: Sparse, residuals: Array, elimination: Elimination, widths: Sequence[int]) -> None:
        self.normal = (jacobian.T @ jacobian).tocsr()
        self.gradient = jacobian.T @ residuals
        self.squares = self.normal.diagonal()
        self.elimination, self.widths = elimination, widths

    def prepare(self, scales: Array) -> None:
        self.scales = scales
        inverse = scipy.sparse.diags_array(1 / scales)
        matrix = (inverse @ self.normal @ inverse).tocsr()
        e, c = self.elimination.eliminated, self.elimination.left
        by_rows = matrix[e]
        self.v, self.w, self.u = by_rows[:, e], by_rows[:, c], matrix[c][:, c]

    @on_one_thread
    def step(self, damping: float) -> Array | None:
        e, c = self.elimination.eliminated, self.elimination.left
        right = -self.gradient / self.scales
        found = np.empty(len(right))
        try:
            if not len(e):
                return self.solved(damping, None, right) / self.scales
            inverse = self.elimination.inverse(self.v + damping * scipy.sparse.eye_array(len(e)))
            found[c] = self.solved(damping, inverse, right[c] - self.w.T @ (inverse @ right[e]))
            found[e] = inverse @ (right[e] - self.w @ found[c])
        except np.linalg.LinAlgError:
            return None
        return found / self.scales

    def solved(self, damping: float, inverse: Sparse, right: Array) -> Array:
        """The solution of the system of what is left."""
        count = len(right)
        u = self.u + damping * scipy.sparse.eye_array(count)

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
