"""The saddle point of a function: a descent of the greatest value that an ascent inside of it finds.

    f(x, y) = |x|^2 - |y|^2        wanted: x that minimises max over y of f(x, y), then y that maximises f(x, y)

The gradient by x is that of a whole ascent (descent.py), whose own gradients are by y: derivatives of two levels, each
by forward (f) or reverse (r) mode. ``fr`` is forward mode by x, with reverse mode by y inside. All descents begin at
the same point, and the last ascent is by the mode of the outer descent.

Source: Siskind and Pearlmutter 2008, as GradBench has it (saddle).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import adze as az

from .descent import SLOPES, Slope, argmax, argmin


def height(x: az.Expr, y: az.Expr) -> Any:
    """f: it rises with x and falls with y, and is level where both are 0."""
    return az.sum(x**2) - az.sum(y**2)


def minimax(outer: Slope, inner: Slope) -> Any:
    """The program that finds the saddle point, with the given modes of both derivatives."""

    @az.program
    def saddle(start: az.Array[az.f64, "2"]) -> tuple[az.Array[az.f64, "2"], az.Array[az.f64, "2"]]:
        def greatest(x: az.Expr) -> Any:
            return height(x, argmax(lambda y: height(x, y), inner, start))

        x = argmin(greatest, outer, start)
        return x, argmax(lambda y: height(x, y), outer, start)

    return saddle


FUNCTIONS = {outer + inner: minimax(SLOPES[outer], SLOPES[inner]) for outer in SLOPES for inner in SLOPES}


def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where all descents begin."""
    return (np.array(given["start"], dtype=np.float64),)


def answer(function: str, result: Any) -> Any:
    """Both points, one vector."""
    return np.concatenate(result)
