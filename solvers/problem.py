"""What a solver asks of residuals: the cost at a point, and the linear problem around it.

Which program answers depends on sizes alone. The Jacobian is stored where it is small or has many columns; of few
unknowns and many residuals one pass gives the normal equations instead (``normal_pass.py``)::

    m residuals, n unknowns                      costs                           around a point
    n <= 16 and m n >= 2**17                     the same pass, a compiled sum   the normal equations in one pass
    n > 16, m n >= 2**17, a tenth not zero       compiled residuals              the sparse Jacobian (``schur.py``)
    else, n <= 256                               compiled residuals              the Jacobian, QR
    else                                         compiled residuals              the Jacobian, Cholesky

A pass gives the cost, too. So the cost of a step is that of a pass, whose derivatives serve if the step is taken;
behind a step that was refused it is a compiled sum, as the next one may be refused as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..ad.jacobians import jacobian
from ..ad.sparse import SparseJacobian, sparse_jacobian
from ..core import trees
from ..core.combinators import sum as total
from ..core.program import Program
from ..core.source import at_line
from ..core.verb import Verb
from .linearised import Linearised, Normal, Triangular
from .losses import Loss
from .normal_pass import normal_pass
from .schur import Reduction, widths
from .unknowns import Array, Unknowns, joined, place

FEW = 16  # unknowns, at most, whose normal equations are made in one pass
LARGE = 2**17  # numbers in a Jacobian from which it is not stored then: a megabyte
SPARSE = 0.1  # of the entries may be other than zero in a Jacobian that is kept sparse
SPARSE_KEPT = 2  # programs whose patterns are kept for their next fits
TRIANGULAR = 256  # unknowns, at most, for which the Jacobian is factorised; the square of its condition counts above


class Problem:
    """Residuals as a function of a vector of unknowns, at given other arguments.

    Raises TypeError where a leaf of the residuals is not floating, or there is none, ValueError where one is NaN or
    infinite at x0.
    """

    def __init__(self, name: str, f: Program, unknowns: Unknowns, x: Array, rest: Sequence[Any], loss: Loss) -> None:
        self.name, self.f, self.unknowns, self.rest, self.loss = name, f, unknowns, rest, loss
        leaves, self.structure = trees.flatten(f(unknowns.of(x), *rest))
        arrays = [np.asarray(leaf) for leaf in leaves]
        self.paths, self.shapes = trees.paths(self.structure), [array.shape for array in arrays]
        for path, array in zip(self.paths, arrays, strict=True):
            if array.dtype.kind != "f":
                problem = f"{f.name} returns {array.dtype} as residuals{path}: residuals are floating numbers"
                raise TypeError(at_line(f"{name}: {problem}"))
        self.count = sum([array.size for array in arrays])
        if not self.count:
            raise TypeError(at_line(f"{name}: {f.name} returns no residuals"))
        if not all([np.isfinite(array).all() for array in arrays]):
            first = joined(arrays)
            wrong = int(np.flatnonzero(~np.isfinite(first))[0])
            where = place("residuals", self.paths, self.shapes, wrong)
            raise ValueError(at_line(f"{name}: {where} is {first[wrong]} at x0"))
        self.few = unknowns.count <= FEW and self.count * unknowns.count >= LARGE
        self.pattern: _Pattern | None = None  # of the sparse Jacobian
        self.sparse = self.sparse_jacobian(x) if not self.few and self.count * unknowns.count >= LARGE else None
        self.normal: Program | None = None  # the program of the normal equations, once it is chosen
        self.passed: _Passed | None = None  # what it gave last
        self.ahead = True  # whether a step is likely to be taken, as the last one was
        self.nfev = self.njev = 0

    # Costs

    def residuals(self, x: Array) -> Array:
        return joined(trees.flatten(self.f(self.unknowns.of(x), *self.rest))[0])

    def cost(self, x: Array) -> float:
        """Half the sum of squares, or what a loss makes of it; what overflows is infinite, or NaN."""
        self.nfev += 1
        with np.errstate(all="ignore"):
            if self.few and self.ahead:
                return self.at(x).cost
            if self.few:
                return float(_Cost("cost", self.f, self.loss).program(self.f.parameters)(self.of(x), *self.rest))
            return float(np.sum(self.loss.costs(self.residuals(x))))

    def of(self, x: Array) -> Any:
        return self.unknowns.of(x)

    # Derivatives

    def jacobian(self, x: Array) -> Array:
        """The matrix of derivatives: a row for each residual, a column for each unknown."""
        rows = jacobian(self.f, 0)(self.of(x), *self.rest)
        parts = trees.matched(self.structure, rows)
        tables = []
        for shape, part in zip(self.shapes, parts, strict=True):
            height = int(np.prod(shape))
            leaves = trees.flatten(part)[0]
            tables.append(np.concatenate([np.reshape(leaf, (height, -1)) for leaf in leaves], axis=1))
        return np.concatenate(tables).astype(np.float64)

    def sparse_jacobian(self, x: Array) -> SparseJacobian | None:
        """What computes the Jacobian, if less than a tenth of it may be other than zero."""
        found = _sparse(self.f)
        self.pattern = found.pattern(widths(self.unknowns.shapes), self.of(x), *self.rest)
        return found.jacobian if self.pattern.places.nnz < SPARSE * self.count * self.unknowns.count else None

    def finish(self) -> None:
        """Nothing to do: the data are the caller's."""

    def weighted(self, x: Array) -> tuple[Any, Array]:
        """The Jacobian, dense or sparse, and the residuals, as a loss weighs them."""
        residuals = self.residuals(x)
        if self.sparse is None:
            table: Any = self.jacobian(x)
        else:
            table = self.sparse(self.of(x), *self.rest).astype(np.float64, copy=False)
        if self.loss.is_linear:
            return table, residuals
        with np.errstate(all="ignore"):
            weights = self.loss.weights(residuals)
        if self.sparse is None:
            return weights[:, None] * table, weights * residuals
        table.data *= np.repeat(weights, np.diff(table.indptr))
        return table, weights * residuals

    def linearised(self, x: Array) -> Linearised | None:
        """The problem around a point; None where a derivative is NaN or infinite."""
        self.njev += 1
        with np.errstate(all="ignore"):
            found = self.around(x)
        self.ahead = True
        return found if np.all(np.isfinite(found.gradient)) and np.all(np.isfinite(found.squares)) else None

    def around(self, x: Array) -> Linearised:
        if self.few:
            return self.at(x).around
        table, residuals = self.weighted(x)
        if self.sparse is not None and self.pattern is not None:
            return self.pattern.reduced(table).around(table, residuals)
        if self.unknowns.count <= TRIANGULAR:
            return Triangular(table, residuals)
        return Normal.of(table, residuals)

    def at(self, x: Array) -> _Passed:
        """The cost and the normal equations at a point, by one pass.

        Most steps are taken: so their costs come with their derivatives, but for those behind a refused one.
        """
        if self.passed is None or not np.array_equal(self.passed.x, x):
            self.ahead = False
            arguments = [self.of(x), *self.rest]
            self.normal = self.normal or normal_pass(self.f, self.unknowns, self.loss, arguments)
            cost, *parts = self.normal(*arguments)
            matrix, gradient = [np.asarray(part, np.float64) for part in parts]
            self.passed = _Passed(x.copy(), float(cost), Normal(matrix, gradient))
        return self.passed

    def derivative_that_is_not_finite(self, x: Array) -> str:
        """Its name, for people."""
        with np.errstate(all="ignore"):
            row, column = np.argwhere(~np.isfinite(self.jacobian(x)))[0]
        where = place("residuals", self.paths, self.shapes, int(row))
        return f"the derivative of {where} by {self.unknowns.place(int(column))}"


@dataclass(frozen=True)
class _Passed:
    """What a pass gave at a point."""

    x: Array
    cost: float
    around: Linearised


@dataclass
class _Pattern:
    """The places of a sparse Jacobian, and what follows from them once a fit has asked."""

    places: Any
    widths: Sequence[int]
    reduction: Reduction | None = None

    def reduced(self, table: Any) -> Reduction:
        """What is eliminated, and how the rest is laid out, for a Jacobian of this pattern."""
        self.reduction = self.reduction or Reduction.of(table, self.widths)
        return self.reduction


@dataclass
class _Sparse:
    """The sparse Jacobian of a program, and the pattern of the last fit, which often is that of the next one."""

    jacobian: SparseJacobian
    last: _Pattern | None = None

    def pattern(self, widths: Sequence[int], *arguments: Any) -> _Pattern:
        places = self.jacobian.find(*arguments)
        found = self.last
        if found is None or found.places is not places or found.widths != widths:
            found = self.last = _Pattern(places, widths)
        return found


@lru_cache(maxsize=SPARSE_KEPT)
def _sparse(f: Program) -> _Sparse:
    return _Sparse(sparse_jacobian(f, 0))


@dataclass(frozen=True)
class _Cost(Verb):
    loss: Loss

    def __call__(self, *args: Any) -> Any:
        leaves = trees.flatten(self.f(*args))[0]
        first, *more = [total(self.loss.costs(leaf)) if leaf.ndim else self.loss.costs(leaf) for leaf in leaves]
        for part in more:
            first = first + part
        return first
