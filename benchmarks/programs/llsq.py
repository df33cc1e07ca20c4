"""Linear least squares: a polynomial is fitted to the sign function at n equidistant places in [-1, 1].

    loss = 1/2 sum_i (sign(t_i) - sum_j x_j t_i^j)^2,  t_i = -1 + 2 i / (n - 1)

Source: GradBench (llsq).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import adze as az


@az.program
def loss(x: az.Array[az.f64, "m"], n: az.i64) -> az.f64:
    """Half the sum of the squared residuals of the polynomial with coefficients x."""

    def squared_residual(i: az.Expr) -> Any:
        t = -1 + 2 * i / (n - 1)
        powers = az.cumprod(az.where(az.iota(x.shape[0]) == 0, 1.0, t))
        return (az.sign(t) - x @ powers) ** 2

    return 0.5 * az.sum(az.generate(n, squared_residual))


gradient = az.grad(loss)

FUNCTIONS = {"primal": loss, "gradient": gradient}


def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The coefficients, and the number of places."""
    return np.array(given["x"], dtype=np.float64), int(given["n"])


def answer(function: str, result: Any) -> Any:
    """The loss, or its gradient by the coefficients."""
    return result
