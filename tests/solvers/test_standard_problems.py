"""The problems of Moré, Garbow and Hillstrom, from their starting points and from ten times these.

(Moré, Garbow and Hillstrom, *Testing unconstrained optimization software*, 1981: formulas, starting points and minima,
which are sums of squares. Numbers in comments are theirs.)
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import adze as az


def rosenbrock(x: Any) -> Any:  # 1
    return az.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])


def freudenstein_roth(x: Any) -> Any:  # 2
    a = -13 + x[0] + ((5 - x[1]) * x[1] - 2) * x[1]
    return az.array([a, -29 + x[0] + ((x[1] + 1) * x[1] - 14) * x[1]])


def powell_badly_scaled(x: Any) -> Any:  # 3
    return az.array([1e4 * x[0] * x[1] - 1, az.exp(-x[0]) + az.exp(-x[1]) - 1.0001])


def brown_badly_scaled(x: Any) -> Any:  # 4
    return az.array([x[0] - 1e6, x[1] - 2e-6, x[0] * x[1] - 2])


def beale(x: Any) -> Any:  # 5
    return az.map(lambda y, k: y - x[0] * (1 - x[1] ** k), np.array([1.5, 2.25, 2.625]), np.arange(1.0, 4.0))


def jennrich_sampson(x: Any) -> Any:  # 6
    return az.map(lambda i: 2 + 2 * i - (az.exp(i * x[0]) + az.exp(i * x[1])), np.arange(1.0, 11.0))


def helical_valley(x: Any) -> Any:  # 7
    turns = az.atan2(x[1], x[0]) / (2 * np.pi)
    theta = az.where(turns < -0.25, turns + 1, turns)
    return az.array([10 * (x[2] - 10 * theta), 10 * (az.sqrt(x[0] ** 2 + x[1] ** 2) - 1), x[2]])


BARD = np.array([0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.10, 4.39])


def bard(x: Any) -> Any:  # 8
    u = np.arange(1.0, 16.0)
    v = 16 - u
    return BARD - (x[0] + u / (v * x[1] + np.minimum(u, v) * x[2]))


GAUSSIAN = np.array([9, 44, 175, 540, 1295, 2420, 3521, 3989, 3521, 2420, 1295, 540, 175, 44, 9]) / 1e4


def gaussian(x: Any) -> Any:  # 9
    return x[0] * az.exp(-x[1] * (np.arange(7, -8, -1) / 2 - x[2]) ** 2 / 2) - GAUSSIAN


def box(x: Any) -> Any:  # 12
    t = np.arange(1.0, 11.0) / 10
    return az.exp(-t * x[0]) - az.exp(-t * x[1]) - x[2] * (np.exp(-t) - np.exp(-10 * t))


def powell_singular(x: Any) -> Any:  # 13, and 22 for more unknowns
    parts = x.reshape(-1, 4)
    a, b, c, d = [parts[:, k] for k in range(4)]
    return a + 10 * b, np.sqrt(5) * (c - d), (b - 2 * c) ** 2, np.sqrt(10) * (a - d) ** 2


def wood(x: Any) -> Any:  # 14
    a, b, c, d = [x[k] for k in range(4)]
    valleys = [10 * (b - a**2), 1 - a, np.sqrt(90) * (d - c**2), 1 - c]
    return az.array([*valleys, np.sqrt(10) * (b + d - 2), (b - d) / np.sqrt(10)])


def brown_dennis(x: Any) -> Any:  # 16
    t = np.arange(1.0, 21.0) / 5
    return (x[0] + t * x[1] - np.exp(t)) ** 2 + (x[2] + x[3] * np.sin(t) - np.cos(t)) ** 2


def watson(x: Any) -> Any:  # 20
    t, k = np.arange(1.0, 30.0)[:, None] / 29, np.arange(6.0)
    slopes, values = (t ** np.maximum(k - 1, 0) * k) @ x, (t**k) @ x
    return slopes - values**2 - 1, x[0], x[1] - x[0] ** 2 - 1


def extended_rosenbrock(x: Any) -> Any:  # 21
    pairs = x.reshape(-1, 2)
    return 10 * (pairs[:, 1] - pairs[:, 0] ** 2), 1 - pairs[:, 0]


def penalty(x: Any) -> Any:  # 23
    return np.sqrt(1e-5) * (x - 1), az.sum(x**2) - 0.25


def variably_dimensioned(x: Any) -> Any:  # 25
    moment = az.sum(np.arange(1.0, 11.0) * (x - 1))
    return x - 1, moment, moment**2


def trigonometric(x: Any) -> Any:  # 26
    i = np.arange(1.0, 11.0)
    return 10 - az.sum(az.cos(x)) + i * (1 - az.cos(x)) - az.sin(x)


def brown_almost_linear(x: Any) -> Any:  # 27
    return x[:9] + az.sum(x) - 11, az.prod(x) - 1


STEP = 1 / 11
NODES = np.arange(1, 11) * STEP


def discrete_boundary_value(x: Any) -> Any:  # 28
    padded = az.pad(x, 1)
    return 2 * x - padded[:10] - padded[2:] + STEP**2 * (x + NODES + 1) ** 3 / 2


def broyden_tridiagonal(x: Any) -> Any:  # 30
    padded = az.pad(x, 1)
    return (3 - 2 * x) * x - padded[:10] - 2 * padded[2:] + 1


def linear_full_rank(x: Any) -> Any:  # 32, of 20 residuals
    s = az.sum(x)
    return x - s / 10 - 1, az.full(10, -s / 10 - 1)


def linear_rank_one(x: Any) -> Any:  # 33
    return np.arange(1.0, 21.0) * az.sum(np.arange(1.0, 11.0) * x) - 1


def linear_rank_one_with_zeros(x: Any) -> Any:  # 34
    moment = az.sum(np.arange(2.0, 10.0) * x[1:9])
    return np.arange(0.0, 20.0) * az.where(np.arange(20) < 19, 1.0, 0.0) * moment - 1


class Standard(NamedTuple):
    residuals: Callable[[Any], Any]
    start: Any
    minima: tuple[float, ...]  # of the sum of squares, with those that are not global
    far: tuple[float, ...] = ()  # and where the way from ten times the start may end


PROBLEMS = [
    Standard(rosenbrock, [-1.2, 1], (0,)),
    Standard(freudenstein_roth, [0.5, -2], (0, 48.98425)),
    Standard(powell_badly_scaled, [0, 1], (0,)),
    Standard(brown_badly_scaled, [1, 1], (0,)),
    Standard(beale, [1, 1], (0,), (0.452,)),
    Standard(jennrich_sampson, [0.3, 0.4], (124.36218,), (259.58019,)),
    Standard(helical_valley, [-1, 0, 0], (0,)),
    Standard(bard, [1, 1, 1], (8.214877e-3, 17.42869)),
    Standard(gaussian, [0.4, 1, 0], (1.127933e-8,)),
    Standard(box, [0, 10, 20], (0,), (0.07558874,)),
    Standard(powell_singular, [3, -1, 0, 1], (0,)),
    Standard(wood, [-3, -1, -3, -1], (0,)),
    Standard(brown_dennis, [25, 5, -5, -1], (85822.20,)),
    Standard(watson, np.zeros(6), (2.287670e-3,)),
    Standard(extended_rosenbrock, np.tile([-1.2, 1], 5), (0,)),
    Standard(powell_singular, np.tile([3.0, -1, 0, 1], 3), (0,)),
    Standard(penalty, [1, 2, 3, 4], (2.249978e-5,)),
    Standard(variably_dimensioned, 1 - np.arange(1, 11) / 10, (0,)),
    Standard(trigonometric, np.full(10, 0.1), (0, 2.795056e-5), (4.218634e-5,)),
    Standard(brown_almost_linear, np.full(10, 0.5), (0, 1)),
    Standard(discrete_boundary_value, NODES * (NODES - 1), (0,)),
    Standard(broyden_tridiagonal, np.full(10, -1), (0,)),
    Standard(linear_full_rank, np.ones(10), (10,)),
    Standard(linear_rank_one, np.ones(10), (20 * 19 / (2 * 41),)),
    Standard(linear_rank_one_with_zeros, np.ones(10), ((20**2 + 3 * 20 - 6) / (2 * 37),)),
]


@pytest.mark.unguarded
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: f"{problem.residuals.__name__}-{len(problem.start)}")
def test_minima(problem: Standard) -> None:
    program = az.program(problem.residuals)
    start = np.asarray(problem.start, float)
    near = az.least_squares(program, start)
    far = az.least_squares(program, 10 * start, max_nfev=400)
    assert near.success and any(2 * near.cost == pytest.approx(least, rel=1e-6, abs=1e-12) for least in problem.minima)
    found = (*problem.minima, *problem.far)
    assert any(2 * far.cost == pytest.approx(least, rel=1e-4, abs=1e-12) for least in found)
