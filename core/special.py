"""Special functions written in the language: every interpretation, and every derivative, has them for free."""

from __future__ import annotations

import math
from typing import Any

# psi(z) - log(z) + 1/(2 z) = -sum B_2k / (2k z^2k), for large z (Abramowitz and Stegun 6.3.18)
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_SHIFT = 10


def digamma(x: Any) -> Any:
    """The derivative of ``lgamma``, elementwise, for real scalars or arrays of expressions.

    The recurrence ``psi(x) = psi(x + 1) - 1/x`` leads to where the asymptotic series is exact to rounding; the
    reflection ``psi(x) = psi(1 - x) - pi / tan(pi x)`` leads there from negative numbers. At the poles
    (0, -1, -2, ...) the value is not finite. (Abramowitz and Stegun, 6.3.5, 6.3.7 and 6.3.18.)
    """
    from .combinators import where
    from .primitives import cos, log, sin

    positive = where(x > 0, x, 1.0 - x)
    z = positive + float(_SHIFT)
    square = 1.0 / (z * z)
    series: Any = 0.0
    for coefficient in reversed(_BERNOULLI):
        series = (series + coefficient) * square
    value = log(z) - 0.5 / z - series
    for k in range(_SHIFT):
        value = value - 1.0 / (positive + float(k))
    return where(x > 0, value, value - math.pi * cos(math.pi * x) / sin(math.pi * x))
