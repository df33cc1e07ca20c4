"""A Kalman smoother: a loop over the measurements, and one back, whose results are those of one large linear system.

    python examples/kalman_smoother.py

Something starts near to zero, moves with a velocity that drifts, and its place is measured with noise:

    x[0] = start,   x[t + 1] = MOTION x[t] + drift,   y[t] = the place in x[t] + noise

The filter knows the past of each step; the way back adds its future (Rauch, Tung and Striebel, "Maximum likelihood
estimates of linear dynamic systems", 1965). The most likely path is also the solution of least squares in all states at
once, with which it is compared. The gradient of the likelihood, by the variances of drift and noise, goes through the
same loop, and is compared with differences.
"""

from typing import Any

import numpy as np
import scipy.optimize

import adze as az

MOTION = np.array([[1.0, 1.0], [0.0, 1.0]])
Series = az.Array[az.f64, "t"]


def filtered(y: az.Expr, drift: az.Expr, noise: az.Expr) -> Any:
    """The misfit, and for each step the state before and after its measurement, with their covariances."""

    def step(state: Any, y: az.Expr) -> Any:
        x, p, misfit = state
        variance, error = p[0, 0] + noise, y - x[0]
        gain = p[:, 0] / variance
        known, spread = x + gain * error, p - az.outer(gain, p[0])
        ahead = MOTION @ known, MOTION @ spread @ MOTION.T + drift * az.eye(2)
        return (*ahead, misfit + (error**2 / variance + az.log(variance)) / 2), (known, spread, *ahead)

    (_, _, misfit), steps = az.scan_loop(step, (az.zeros(2), az.eye(2), 0.0), y)
    return misfit, steps


@az.program
def misfit(parameters: az.Array[az.f64, 2], y: Series) -> az.f64:
    """The negative logarithm of the likelihood, but for a constant."""
    return filtered(y, parameters[0], parameters[1])[0]


@az.program
def smoothed(parameters: az.Array[az.f64, 2], y: Series) -> az.Array[az.f64, "t", 2]:
    """The most likely states."""
    _, steps = filtered(y, parameters[0], parameters[1])

    def step(later: Any, now: Any) -> Any:
        known, spread, ahead, spread_ahead = now
        back = az.linalg.solve(spread_ahead, MOTION @ spread).T
        state = known + back @ (later[0] - ahead)
        return (az.where(later[1], state, known), True), az.where(later[1], state, known)

    return az.scan_loop(step, (az.zeros(2), False), steps, reverse=True)[1]


def at_once(drift: float, noise: float, y: np.ndarray) -> np.ndarray:
    """The same by least squares in all states, whose matrix has a row for each equation over its deviation."""
    count = len(y)
    first, moves, measured = np.eye(2, 2 * count), np.zeros((2 * count - 2, 2 * count)), np.zeros((count, 2 * count))
    for t in range(count - 1):
        moves[2 * t : 2 * t + 2, 2 * t : 2 * t + 4] = np.hstack([-MOTION, np.eye(2)])
    measured[np.arange(count), 2 * np.arange(count)] = 1
    rows = np.vstack([first, moves / np.sqrt(drift), measured / np.sqrt(noise)])
    right = np.concatenate([np.zeros(2), np.zeros(2 * count - 2), y / np.sqrt(noise)])
    return np.linalg.lstsq(rows, right, rcond=None)[0].reshape(count, 2)


def main() -> None:
    random = np.random.default_rng(1)
    drift, noise, count = 0.01, 4.0, 100
    states = [random.standard_normal(2)]
    for _ in range(count - 1):
        states.append(MOTION @ states[-1] + np.sqrt(drift) * random.standard_normal(2))
    path = np.array(states)
    y = path[:, 0] + np.sqrt(noise) * random.standard_normal(count)

    parameters = np.array([drift, noise])
    found = az.compile(smoothed)(parameters, y)
    print(f"smoothed states off from least squares by {np.max(abs(found - at_once(drift, noise, y))):.0e}")
    errors = [np.sqrt(np.mean((x - path[:, 0]) ** 2)) for x in (y, found[:, 0])]
    print(f"places are off by {errors[0]:.2f} as measured, by {errors[1]:.2f} as smoothed")

    _, gradient = az.compile(az.value_and_grad(misfit))(parameters, y)
    slopes = scipy.optimize.approx_fprime(parameters, lambda p: float(az.compile(misfit)(p, y)), 1e-7)
    print(f"gradient off from differences by {np.max(abs(gradient / slopes - 1)):.0e} of it")


if __name__ == "__main__":
    main()
