"""What a fit gives back: the object of SciPy's ``least_squares``, with the structure of x0 and how it got there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..core.source import at_line
from ..library.linalg.one_thread import on_one_thread
from .unknowns import Array

SHOWN = 10  # steps of the history that are printed: the first ones and the last

MESSAGES = {
    -2: "the callback stopped it",
    -1: "no step gives finite residuals and derivatives",
    0: "not converged: the limit of {max_nfev} evaluations is reached",
    1: "converged: the gradient is below gtol",
    2: "converged: the cost falls by less than ftol",
    3: "converged: the step is below xtol",
    4: "converged: the cost falls by less than ftol and the step is below xtol",
}


class Step(NamedTuple):
    """A step of a fit: its number, the cost after it, the damping it was made with, and where it leads.

    ``x`` has the structure of x0; in the history of a result it is None.
    """

    number: int
    cost: float
    damping: float
    x: Any = None


@dataclass(frozen=True)
class LeastSquaresResult:
    """The result of :func:`least_squares`.

    ``x`` has the structure of x0. ``cost`` is half the sum of squares, or of what the loss makes of them. ``fun`` are
    the residuals at x in one vector; ``jac`` is their Jacobian there, weighted where there is a loss; ``grad`` is the
    gradient of the cost and ``optimality`` its largest magnitude. Over chunks ``fun`` is what the program gives, with
    arrays of Dask's, and ``jac`` is a TypeError, as J is not stored. ``nfev`` and ``njev`` count evaluations of the
    residuals and of their derivatives. ``steps`` are those that were taken, and ``history`` has each of them, after
    the start. ``status`` is 1, 2, 3 or 4 where the tolerance of the gradient, of the cost, of the step, or both of the
    latter are met; 0 where ``max_nfev`` was reached, -1 where no finite step was found, -2 where the callback stopped.
    ``success`` is whether it is positive.
    """

    x: Any
    cost: float
    grad: Array
    nfev: int
    njev: int
    steps: int
    status: int
    message: str
    history: list[Step]
    _fun: Callable[[], Array] = field(repr=False)
    _jac: Callable[[], Any] = field(repr=False)
    _name: str = field(repr=False)
    _factor: Callable[[], tuple[int, Array]] | None = field(default=None, repr=False)  # where J is not stored

    @cached_property
    def fun(self) -> Array:
        return self._fun()

    @cached_property
    def jac(self) -> Any:
        return self._jac()

    @property
    def optimality(self) -> float:
        return float(np.max(np.abs(self.grad)))

    @property
    def success(self) -> bool:
        return self.status > 0

    @on_one_thread
    def covariance(self, absolute: bool = False) -> Array:
        """The covariance of the unknowns at x, in the order of their vector: shape ``[n, n]``, in f64.

        It is ``s2 (J^T J)^-1`` where s2 is estimated by ``2 cost / (m - n)``; with ``absolute=True`` it is 1, for
        residuals that are divided by their standard deviations. (Bates and Watts, *Nonlinear regression analysis and
        its applications*, 1988, section 2.1; ``scipy.optimize.curve_fit``.)

        Raises LinAlgError when J has a smaller rank than there are unknowns, ValueError when there are not more
        residuals than unknowns and s2 is to be estimated.

        >>> import adze as az, numpy as np
        >>> fit = az.least_squares(lambda p, x, y: p[0] * x - y, [1.0], args=(np.ones(3), np.array([1.0, 2.0, 3.0])))
        >>> fit.covariance().round(6)
        array([[0.333333]])
        """
        if self._factor is not None:
            rows, table = self._factor()
        else:
            table = self.jac.toarray() if hasattr(self.jac, "toarray") else self.jac
            rows = len(table)
        count = table.shape[1]
        scales = np.sqrt(np.einsum("ij,ij->j", table, table))
        _, values, vectors = np.linalg.svd(table / np.where(scales > 0, scales, 1.0), full_matrices=False)
        rank = int(np.sum(values > np.finfo(np.float64).eps * max(rows, count) * values[0]))
        if rank < count:
            problem = f"the Jacobian at x has rank {rank}, and there are {count} unknowns"
            raise np.linalg.LinAlgError(at_line(f"{self._name}: {problem}: they have no covariance"))
        if not absolute and rows <= count:
            problem = f"{rows} residuals of {count} unknowns leave nothing to estimate the variance from"
            raise ValueError(at_line(f"{self._name}: {problem}; say absolute=True"))
        half = vectors.T / values / scales[:, None]
        found: Array = half @ half.T
        return found if absolute else found * (2 * self.cost / (rows - count))

    def __str__(self) -> str:
        """A short table: how it ended, and the cost and damping of the first and last steps."""
        lines = [
            f"{self._name}: {self.message}",
            f"cost {self.cost:.6g}, optimality {self.optimality:.3g}, {self.steps} steps, "
            f"{self.nfev} evaluations, {self.njev} Jacobians",
            f"{'step':>6} {'cost':>14} {'damping':>9}",
        ]
        shown = self.history
        if len(shown) > SHOWN:
            shown = [*shown[: SHOWN // 2], *shown[-SHOWN // 2 :]]
        for before, step in zip([None, *shown], shown):
            if before is not None and step.number > before.number + 1:
                lines.append(f"{'...':>6}")
            lines.append(f"{step.number:>6} {step.cost:>14.6e} {step.damping:>9.1e}")
        return "\n".join(lines)

    __repr__ = __str__
