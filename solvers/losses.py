"""Robust losses: what a residual counts, so that outliers do not decide a fit (M-estimators; Huber 1964).

With a loss rho and a scale c, the cost is ``c**2 / 2 * sum(rho((r / c)**2))`` instead of ``sum(r**2) / 2``. Around a
point that is a problem of least squares again, with a weight for each residual and its row of the Jacobian, which gives
the gradient exactly. As the losses are concave in ``r**2``, its cost is never below the robust one: a step that lowers
it lowers both (iteratively reweighted least squares)::

    w = sqrt(rho'((r / c)**2))       J <- w J      r <- w r

With second derivatives of rho (Triggs et al. 2000, section 4.3; SciPy) the rows of outliers would have no weight at
all, and of a start where most residuals are outliers a fit would know no scale. Ceres leaves them out, too, where rho
is concave. (Holland and Welsch, *Robust regression using iteratively reweighted least-squares*, 1977. The names and
formulas are those of ``scipy.optimize.least_squares``.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Of = Callable[[Any], tuple[Any, Any]]


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

    def weights(self, residuals: Any) -> Any:
        """The factors of the residuals, and of the rows of the Jacobian, for the problem with this loss."""
        return np.sqrt(LOSSES[self.name]((residuals / self.scale) ** 2)[1])


def _linear(z: Any) -> tuple[Any, Any]:
    return z, 1 + 0 * z


def _huber(z: Any) -> tuple[Any, Any]:
    root = np.sqrt(np.maximum(z, 1.0))
    return np.where(z <= 1, z, 2 * root - 1), 1 / root


def _soft_l1(z: Any) -> tuple[Any, Any]:
    root = np.sqrt(1 + z)
    return 2 * (root - 1), 1 / root


def _cauchy(z: Any) -> tuple[Any, Any]:
    return np.log1p(z), 1 / (1 + z)


def _arctan(z: Any) -> tuple[Any, Any]:
    return np.arctan(z), 1 / (1 + z * z)


# rho(z) of a squared residual z, and its derivative
LOSSES: dict[str, Of] = {
    "linear": _linear,
    "huber": _huber,
    "soft_l1": _soft_l1,
    "cauchy": _cauchy,
    "arctan": _arctan,
}
