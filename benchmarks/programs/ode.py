"""An ordinary differential equation, solved by the classical Runge-Kutta method of fourth order.

    y' = f(y),  f(y)_0 = x_0,  f(y)_i = x_i y_{i-1},  y(0) = 0;  wanted is y(2), in s steps

Source: GradBench (ode).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import adze as az


@az.program
def solution(x: az.Array[az.f64, "n"], s: az.i64) -> az.Array[az.f64, "n"]:
    """y at 2, after s steps."""
    h = 2 / s

    def f(y: az.Expr) -> Any:
        return az.generate(x.shape[0], lambda i: x[i] * az.cond(i > 0, lambda: y[i - 1], lambda: 1.0))

    def step(i: az.Expr, y: az.Expr) -> Any:
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return az.fori_loop(0, s, step, az.zeros_like(x))


@az.program
def last(x: az.Array[az.f64, "n"], s: az.i64) -> az.f64:
    """The last element of the solution."""
    return solution(x, s)[-1]


gradient = az.grad(last)

FUNCTIONS = {"primal": solution, "gradient": gradient}


def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The parameters of the equation, and the number of steps."""
    return np.array(given["x"], dtype=np.float64), int(given["s"])


def answer(function: str, result: Any) -> Any:
    """y at the end, or the gradient of its last element by x."""
    return result
