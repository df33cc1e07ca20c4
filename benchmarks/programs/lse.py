"""The logarithm of a sum of exponentials, shifted by the maximum so that nothing overflows.

    logsumexp(x) = m + log(sum_i exp(x_i - m)),  m = max_i x_i

It is written with a maximum and a sum. The derivative goes through the maximum, too, and what comes that way cancels.

Source: GradBench (lse).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import adze as az


@az.program
def logsumexp(x: az.Array[az.f64, "n"]) -> az.f64:
    """log(sum(exp(x)))."""
    top = az.max(x)
    return top + az.log(az.sum(az.exp(x - top)))


gradient = az.grad(logsumexp)

FUNCTIONS = {"primal": logsumexp, "gradient": gradient}


def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The vector."""
    return (np.array(given["x"], dtype=np.float64),)


def answer(function: str, result: Any) -> Any:
    """The number, or the vector."""
    return result
