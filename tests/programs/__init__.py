"""Programs for every interpretation: small, named, each with its meaning in NumPy and inputs.

One body of programs serves all tests: evaluate, simplify, derivatives and compiled code must agree on each of them
with NumPy and with each other. Inputs are quarters of small integers, so that polynomial programs are exact.

    for case in CASES:
        for arguments in case.arguments:
            compare(az.evaluate(case.program)(*arguments), case.numpy(*arguments))
"""

from . import accelerate, arrays, control, elementwise, linear_algebra, reductions, scans, state, structure
from .case import CASES, Case, numbers, sampled

__all__ = [
    "CASES",
    "Case",
    "accelerate",
    "arrays",
    "control",
    "elementwise",
    "linear_algebra",
    "numbers",
    "reductions",
    "sampled",
    "scans",
    "state",
    "structure",
]
