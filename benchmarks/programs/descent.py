"""Gradient descent with steps that grow and shrink, for programs that optimise inside of what is differentiated.

From a point x with the slope g, a step leads to x - rate g. It is taken if f is less there; else the rate is halved.
After ten steps in a row it is doubled. The descent ends where the slope, or the step, is no longer than ``SHORT``.

    argmin(lambda x: (x[0] - 3) ** 2, reverse, az.array([0.0]))        about [3.0]

``slope`` is how the gradient of f is found, by ``forward`` or by ``reverse`` mode. All of this is a part of a program,
which may be differentiated in turn: f may have a descent inside, and it may stand inside of another f.

Source: Siskind and Pearlmutter, "Using programming language theory to make automatic differentiation sound and
efficient" (2008), as GradBench has it for particle and saddle.
"""

from collections.abc import Callable
from typing import Any

import adze as az

SHORT = 1e-5
FIRST_RATE = 1e-5
IN_A_ROW = 10  # steps before the rate is doubled

Function = Callable[[az.Expr], Any]
Slope = Callable[[Function, az.Expr], Any]


def forward(f: Function, x: az.Expr) -> Any:
    """The gradient of f by forward mode: one direction for each coordinate of x."""
    return az.map(lambda direction: az.jvp(f, (x,), (direction,))[1], az.eye(x.shape[0]))


def reverse(f: Function, x: az.Expr) -> Any:
    """The gradient of f by reverse mode."""
    return az.grad(f)(x)


SLOPES: dict[str, Slope] = {"f": forward, "r": reverse}


def argmin(f: Function, slope: Slope, start: az.Expr) -> Any:
    """The place to which the descent of f leads from ``start``, a vector."""

    def goes_on(state: Any) -> Any:
        _, _, g, rate, steps = state
        return (length(g) > SHORT) & ((steps == IN_A_ROW) | (length(rate * g) > SHORT))

    def step(state: Any) -> Any:
        x, value, g, rate, steps = state

        def move() -> Any:
            to = x - rate * g
            there = f(to)
            return az.cond(
                there < value,
                lambda: (to, there, slope(f, to), rate, steps + 1),
                lambda: (x, value, g, rate / 2, 0),
            )

        return az.cond(steps == IN_A_ROW, lambda: (x, value, g, 2 * rate, 0), move)

    return az.while_loop(goes_on, step, (start, f(start), slope(f, start), FIRST_RATE, 0))[0]


def argmax(f: Function, slope: Slope, start: az.Expr) -> Any:
    """The place to which the ascent of f leads from ``start``."""
    return argmin(lambda x: -f(x), slope, start)


def length(v: az.Expr) -> Any:
    return az.sqrt(az.sum(v**2))
