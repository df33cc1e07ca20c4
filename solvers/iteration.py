"""The method of Levenberg and Marquardt: Gauss-Newton steps, damped as much as the last one was good.

A step that makes the cost fall as the linear problem predicts halves the damping or better; one that does not is
refused, and tried again with more of it. Nielsen's rule changes it smoothly, with the ratio rho of what the cost fell
to what was predicted, and faster the more steps were refused in a row::

    rho > 0:    x += p        mu *= max(1/3, 1 - (2 rho - 1)**3)      nu = 2
    else:                     mu *= nu                                nu *= 2

The unknowns are scaled by the largest norms that the columns of J had so far, so that the units in which they are
written do not matter (Moré 1978). Where a cost or a derivative is not finite, a step is refused like any other.

(Nielsen, *Damping parameter in Marquardt's method*, IMM-REP-1999-05; Madsen, Nielsen and Tingleff, *Methods for
non-linear least squares problems*, 2004, algorithm 3.16. The tests of convergence are MINPACK's ``lmder``.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..library.linalg.one_thread import on_one_thread
from .linearised import Linearised
from .result import Step
from .unknowns import Array, Unknowns

FIRST_DAMPING = 1e-3  # of unknowns whose columns are of length 1 (Nielsen's tau)
MOST_DAMPING = 1e30  # a step that is so much shorter than Gauss and Newton's moves nothing


@dataclass(frozen=True)
class Tolerances:
    gradient: float
    cost: float
    step: float
    evaluations: int


class Objective(Protocol):
    """What a fit asks of its problem."""

    unknowns: Unknowns
    nfev: int

    def of(self, x: Array) -> Any: ...

    def cost(self, x: Array) -> float: ...

    def linearised(self, x: Array) -> Linearised | None: ...


@dataclass
class Iteration:
    """A fit on its way: where it is, what it costs there, and the steps so far."""

    problem: Objective
    x: Array
    around: Linearised
    scales: Array | None  # those that are given; None: by the columns of J
    tolerances: Tolerances
    callback: Callable[[Step], object] | None
    cost: float = 0.0
    damping: float = FIRST_DAMPING
    history: list[Step] = field(default_factory=list)

    def run(self) -> int:
        """Take steps until one of the tests ends it: the status."""
        self.cost = self.problem.cost(self.x)
        self.history.append(Step(0, self.cost, self.damping))
        norms = np.zeros(len(self.x))
        while True:
            if self.is_flat():
                return 1
            norms = np.maximum(norms, np.sqrt(self.around.squares))
            status = self.advance(self.scales if self.scales is not None else np.where(norms > 0, norms, 1.0))
            if status is not None:
                return status

    def is_flat(self) -> bool:
        """Whether the residuals are orthogonal to the columns of J, or so near to it as asked for."""
        lengths = np.sqrt(self.around.squares * 2 * self.cost)
        return bool(np.all(np.abs(self.around.gradient) <= self.tolerances.gradient * lengths))

    def advance(self, scales: Array) -> int | None:
        """Take one step, with as much damping as it needs: the status, if it is the last."""
        self.around.prepare(scales)
        growth, lost = 2.0, False  # whether all steps that moved anything led to what is not finite
        while True:
            if self.problem.nfev >= self.tolerances.evaluations:
                return 0
            used = self.damping
            step = self.around.step(used)
            if step is None and used < MOST_DAMPING:
                self.damping, growth = used * growth, 2 * growth
                continue
            if step is None:
                return -1
            x = self.problem.unknowns.rounded(self.x + step)
            cost = self.problem.cost(x)
            fell, predicted = self.cost - cost, self.around.predicted(step, used, scales)
            around = self.problem.linearised(x) if fell > 0 and predicted > 0 else None
            if not np.array_equal(x, self.x):
                lost = not np.isfinite(cost) or (around is None and fell > 0)
            elif lost:
                return -1
            status = None if lost else self.converged(fell, predicted, scales * step, scales * self.x)
            if around is None:
                self.damping, growth = used * growth, 2 * growth
                if status is not None:
                    return status
                continue
            self.x, self.cost, self.around = x, cost, around
            self.damping = used * max(1 / 3, 1 - (2 * fell / predicted - 1) ** 3)
            return -2 if self.taken(used) else status

    @on_one_thread
    def converged(self, fell: float, predicted: float, step: Array, whole: Array) -> int | None:
        """The status where the cost falls by nearly nothing, as predicted, or the scaled step is nearly nothing."""
        most = self.tolerances.cost * self.cost
        by_cost = abs(fell) <= most and predicted <= most and fell <= 2 * predicted
        shortest = self.tolerances.step * (self.tolerances.step + np.linalg.norm(whole))
        by_step = bool(np.linalg.norm(step) <= shortest)
        return (4 if by_step else 2) if by_cost else 3 if by_step else None

    def taken(self, damping: float) -> bool:
        """Note a step, and show it to the callback: whether that wants to stop."""
        step = Step(len(self.history), self.cost, damping)
        self.history.append(step)
        return self.callback is not None and self.callback(step._replace(x=self.problem.of(self.x))) is True
