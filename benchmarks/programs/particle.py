"""A charged particle is steered to the origin: a simulation whose forces are derivatives, inside of an optimisation.

Two charges stand at (10, 10 - w) and (10, 0), and repel a particle that flies in from (0, 8). Its potential and
acceleration are

    p(x; w) = 1 / |x - (10, 10 - w)| + 1 / |x - (10, 0)|        x'' = -(gradient of p by x)

Euler's method follows it until it would cross the axis x_1 = 0, and the last step ends there. Wanted is the w for which
it crosses at the origin: a descent of the squared miss (descent.py). The gradient of the miss by w goes through the
steps, and so through the gradients of p: derivatives of two levels, each by forward (f) or reverse (r) mode. ``fr`` is
forward mode by w, with reverse mode by x inside.

Source: Siskind and Pearlmutter 2008, as GradBench has it (particle).
"""

from collections.abc import Mapping
from typing import Any

import adze as az

from .descent import SLOPES, Slope, argmin

START, SPEED = (0.0, 8.0), (0.75, 0.0)
STEP = 0.1  # of time


def miss(w: az.Expr, slope: Slope) -> Any:
    """The square of the place at which the particle crosses the axis."""
    charges = az.array([[10.0, 10.0 - w], [10.0, 0.0]])

    def potential(x: az.Expr) -> Any:
        return az.sum(1 / az.sqrt(az.sum((x - charges) ** 2, axis=1)))

    def above(state: Any) -> Any:
        x, speed = state
        return (x + STEP * speed)[1] > 0

    def step(state: Any) -> Any:
        x, speed = state
        return x + STEP * speed, speed - STEP * slope(potential, x)

    x, speed = az.while_loop(above, step, (az.array(START), az.array(SPEED)))
    return (x[0] - x[1] / speed[1] * speed[0]) ** 2


def steering(by_control: Slope, by_place: Slope) -> Any:
    """The program that finds w from where it starts, with the given modes of both derivatives."""

    @az.program
    def control(w: az.f64) -> az.f64:
        return argmin(lambda w: miss(w[0], by_place), by_control, az.array([w]))[0]

    return control


FUNCTIONS = {outer + inner: steering(SLOPES[outer], SLOPES[inner]) for outer in SLOPES for inner in SLOPES}


def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where w starts."""
    return (float(given["w"]),)


def answer(function: str, result: Any) -> Any:
    """The w that was found."""
    return result
