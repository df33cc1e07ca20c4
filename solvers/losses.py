"""Robust losses: what a residual counts, so that outliers do not decide a fit (M-estimators; Huber 1964).

With a loss rho and a scale c, the cost is ``c**2 / 2 * sum(rho((r / c)**2))`` instead of ``sum(r**2) / 2``. Near its
minimum that is a problem of least squares again, with a weight for each row of the Jacobian and another for each
residual, which give the gradient exactly and the Hessian up to second derivatives of r::

    z = (r / c)**2      w = max(rho'(z) + 2 z rho''(z), eps)
    J <- sqrt(w) J      r <- rho'(z) r / sqrt(w)

The rows of outliers so count little, or nothing. (Triggs, McLauchlan, Hartley and Fitzgibbon, *Bundle adjustment: a
modern synthesis*, 2000, section 4.3; the names and formulas are those of ``scipy.optimize.least_squares``.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Of = Callable[[Any], tuple[Any, Any, Any]]


@dataclass(frozen=True)
class Loss:
    """A loss by its name, with the scale at which a residual begins to be an outlier.

    What it does with residuals is written with NumPy's functions: it takes arrays, and expressions inside a program.
    """

    name: str
    scale: float

    @property
    def is_linear(self) -> bool:
        return self.name == "linear"

    def costs(self, residuals: Any) -> Any:
        """What each residual adds to the cost."""
        if self.is_linear:
            return residuals * residuals / 2
        return self.scale**2 / 2 * LOSSES[self.name]((residuals / self.scale) ** 2)[0]

    def weights(self, residuals: Any, epsilon: float) -> tuple[Any, Any]:
        """The factors of the rows of the Jacobian, and of the residuals, for the problem with this loss."""
        z = (residuals / self.scale) ** 2
        _, first, second = LOSSES[self.name](z)
        row = np.sqrt(np.maximum(first + 2 * z * second, epsilon))
        return row, first / row


def _linear(z: Any) -> tuple[Any, Any, Any]:
    return z, 1 + 0 * z, 0 * z


def _huber(z: Any) -> tuple[Any, Any, Any]:
    root = np.sqrt(np.maximum(z, 1.0))
    inside = z <= 1
    return np.where(inside, z, 2 * root - 1), 1 / root, np.where(inside, 0.0, -0.5 / root**3)


def _soft_l1(z: Any) -> tuple[Any, Any, Any]:
    root = np.sqrt(1 + z)
    return 2 * (root - 1), 1 / root, -0.5 / root**3


def _cauchy(z: Any) -> tuple[Any, Any, Any]:
    inverse = 1 / (1 + z)
    return np.log1p(z), inverse, -(inverse**2)


def _arctan(z: Any) -> tuple[Any, Any, Any]:
    inverse = 1 / (1 + z * z)
    return np.arctan(z), inverse, -2 * z * inverse**2


# rho(z) of a squared residual z, and its first two derivatives
LOSSES: dict[str, Of] = {
    "linear": _linear,
    "huber": _huber,
    "soft_l1": _soft_l1,
    "cauchy": _cauchy,
    "arctan": _arctan,
}
