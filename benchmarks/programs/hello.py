"""The smallest program with a derivative, x^2: what a session of GradBench is tried with.

Source: GradBench (hello).
"""

from typing import Any

import adze as az


@az.program
def square(x: az.f64) -> az.f64:
    """x^2."""
    return x**2


double = az.grad(square)

FUNCTIONS = {"square": square, "double": double}


def arguments(given: float) -> tuple[Any, ...]:
    """The number."""
    return (float(given),)


def answer(function: str, result: Any) -> Any:
    """The number."""
    return result
