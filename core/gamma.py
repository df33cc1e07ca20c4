"""The logarithm of the gamma function and its derivatives.

``lgamma`` is a function of the C library. ``digamma``, its derivative, is a primitive so that derivatives read well; it
is written once, in the language, and this is its meaning on NumPy's numbers too. ``trigamma`` is written in the
language and differentiated like every program.

For large z the functions are given by asymptotic series in the Bernoulli numbers; recurrences lead there from small
positive numbers and reflections from negative ones. (Abramowitz and Stegun, sections 6.3 and 6.4.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .combinators import where
from .expr import Expr
from .primitive import Expansion, Libm, Primitive, primitive
from .primitives import by_element, log, round_, sin, tan

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_SHIFT = 10  # from here on the series are exact to rounding


def _series(z: Any, coefficients: list[float]) -> Any:
    """``sum c[k] / z^(2k)``, k from 1."""
    square = 1.0 / (z * z)
    total: Any = 0.0
    for coefficient in reversed(coefficients):
        total = (total + coefficient) * square
    return total


def _choose(test: Any, a: Any, b: Any) -> Any:
    """``where``, on NumPy's numbers too."""
    return where(test, a, b) if isinstance(test, Expr) else np.where(test, a, b).astype(np.result_type(b))


def _lgamma(x: float) -> float:
    """As in C: infinity at the poles and where the value is too large."""
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return math.inf


def _digamma(x: Any) -> Any:
    positive = _choose(x > 0, x, 1.0 - x)
    z = positive + float(_SHIFT)
    below: Any = 0.0
    for k in reversed(range(_SHIFT)):
        below = below + 1.0 / (positive + float(k))
    value = log(z) - 0.5 / z - _series(z, [b / (2 * k + 2) for k, b in enumerate(_BERNOULLI)]) - below
    angle = math.pi * (x - round_(x))  # tan has the period pi, and the difference is exact
    return value - _choose(x > 0, 0.0, math.pi / tan(angle))


def trigamma(x: Any) -> Any:
    """The derivative of ``digamma``, elementwise, for expressions of floating numbers; infinite at 0, -1, -2, ..."""
    positive = where(x > 0, x, 1.0 - x)
    z = positive + float(_SHIFT)
    below: Any = 0.0
    for k in reversed(range(_SHIFT)):
        below = below + 1.0 / (positive + float(k)) ** 2
    value = (1.0 + 0.5 / z + _series(z, list(_BERNOULLI))) / z + below
    reflected = (math.pi / sin(math.pi * (x - round_(x)))) ** 2
    return where(x > 0, value, reflected - value)


lgamma = primitive(
    "lgamma",
    numpy=by_element(_lgamma),
    llvm=Libm("lgamma"),
    derivative=lambda y, x: (lambda t: t * digamma(x),),
    cost=60,
)
digamma: Primitive = primitive(
    "digamma",
    numpy=_digamma,
    llvm=Expansion(_digamma),
    derivative=lambda y, x: (lambda t: t * trigamma(x),),
    cost=200,
)
