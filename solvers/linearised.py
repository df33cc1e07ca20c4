"""The linear problem of a step: damped least squares around a point, for one damping after the other.

With the Jacobian J and the residuals r at a point, a step is the p that minimises

    |J p + r|**2 / 2 + mu |D p|**2 / 2             D: the scales of the unknowns, a diagonal

that is ``(J^T J + mu D**2) p = -J^T r``. A rejected step asks again with a larger mu, so what does not depend on it is
done once. Several ways, for what is known of J:

* ``Triangular``: J itself, few columns. One QR factorisation of ``[J / D, r]``, and for each mu one of a triangle with
  ``sqrt(mu) I`` below it (Moré, *The Levenberg-Marquardt algorithm: implementation and theory*, 1978). It squares no
  condition number.
* ``Normal``: ``J^T J`` and ``J^T r``, and a Cholesky factorisation for each mu.
* ``Tiled`` and ``Implicit`` (``schur.py``): a sparse ``J^T J``, of which blocks are eliminated first.

LAPACK has one thread, as in programs (``library/linalg/one_thread.py``): a fit has the same bits for any number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy

from ..library.linalg.one_thread import on_one_thread
from .unknowns import Array


class Linearised(ABC):
    """The problem around a point: its gradient, the squared norms of the columns of J, and its damped steps."""

    gradient: Array
    squares: Array

    @abstractmethod
    def prepare(self, scales: Array) -> None:
        """Do what does not depend on the damping, for these scales of the unknowns."""

    @abstractmethod
    def step(self, damping: float) -> Array | None:
        """The step for a damping; None where rounding leaves no system that can be solved."""

    @on_one_thread
    def predicted(self, step: Array, damping: float, scales: Array) -> float:
        """By how much the linear problem says that the cost falls (Madsen, Nielsen and Tingleff 2004, eq. 3.14)."""
        return float(step @ (damping * scales**2 * step - self.gradient)) / 2


class Triangular(Linearised):
    @on_one_thread
    def __init__(self, jacobian: Array, residuals: Array) -> None:
        self.jacobian, self.residuals = jacobian, residuals
        self.gradient = jacobian.T @ residuals
        self.squares = np.einsum("ij,ij->j", jacobian, jacobian)

    @on_one_thread
    def prepare(self, scales: Array) -> None:
        self.scales = scales
        self.triangle = _triangle(np.column_stack([self.jacobian / scales, self.residuals]))

    @on_one_thread
    def step(self, damping: float) -> Array | None:
        count = len(self.scales)
        below = np.column_stack([np.sqrt(damping) * np.eye(count), np.zeros(count)])
        both = _triangle(np.concatenate([self.triangle, below]))
        diagonal = np.abs(np.diagonal(both)[:count])
        if not diagonal.min() > 0 or not np.all(np.isfinite(both)):
            return None
        found: Array = -scipy.linalg.solve_triangular(both[:count, :count], both[:count, count]) / self.scales
        return found


def _triangle(matrix: Array) -> Array:
    """The upper factor of a QR factorisation."""
    found: Any = np.linalg.qr(matrix, mode="r")
    return np.asarray(found)


class Normal(Linearised):
    def __init__(self, normal: Array, gradient: Array) -> None:
        self.normal, self.gradient = normal, gradient
        self.squares = np.diagonal(normal).copy()

    @staticmethod
    @on_one_thread
    def of(jacobian: Array, residuals: Array) -> Normal:
        return Normal(jacobian.T @ jacobian, jacobian.T @ residuals)

    def prepare(self, scales: Array) -> None:
        self.scales = scales
        self.scaled = self.normal / scales / scales[:, None]

    @on_one_thread
    def step(self, damping: float) -> Array | None:
        matrix = self.scaled.copy()
        matrix[np.diag_indices_from(matrix)] += damping
        try:
            factor = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True)
        except (np.linalg.LinAlgError, ValueError):
            return None
        found: Array = -scipy.linalg.cho_solve(factor, self.gradient / self.scales) / self.scales
        return found
