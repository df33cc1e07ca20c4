"""Normal numbers between bounds: the quantile of a number of equal probability.

Probabilities are held as logarithms, and a bound above 0 is mirrored, so that bounds far out in a tail keep their
digits. The logarithm of the distribution function is that of ``erfc``, or its asymptotic series where ``erfc`` is too
small (Abramowitz and Stegun 26.2.12). The quantile is Hastings' approximation (26.2.23), mended by Newton's method.

A number x that is drawn by u moves with its bounds as the quantile of u does::

    u = (F(x) - F(l)) / (F(h) - F(l))           dx = ((1 - u) f(l) dl + u f(h) dh) / f(x)
"""

from __future__ import annotations

import math
from typing import Any

from ...core.combinators import where
from ...core.custom import custom_jvp
from ...core.expr import Expr, as_expr
from ...core.primitives import erfc, exp, expm1, log, log1p, maximum, minimum, sqrt
from ...core.types import f32, f64
from .generator import Draw, drawn, floats, fraction

_LOG_ROOT = 0.5 * math.log(2 * math.pi)
_STEPS = 3  # of Newton's method, which begin with an error of 4.5e-4


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = f64) -> Any:
    """Standard normal numbers between ``lower`` and ``upper``, which broadcast to the shape, or give it.

    Bounds may be infinite, and lie far out in a tail. Derivatives are those with respect to the bounds. A number is NaN
    where a bound is NaN, or where the lower one is above the upper one.

    >>> import adze as az
    >>> x = az.evaluate(lambda key: az.random.truncated_normal(key, 1, [2.0, 3.0, 4.0]))(az.random.key(0))
    >>> x.shape, bool((x >= 1).all() and (x <= [2, 3, 4]).all())
    ((3,), True)
    """
    scalar = floats(dtype)

    def element(draw: Draw, low: Expr, high: Expr) -> Any:
        u = fraction(scalar, *draw(0)[:2], inside=True)

        @custom_jvp
        def between(low: Expr, high: Expr) -> Any:
            return _quantile(low, high, u)

        @between.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            x: Any = between(*primals)
            shares = [exp((x - bound) * (x + bound) / 2) for bound in primals]  # densities over that of x
            return (1 - u) * shares[0] * tangents[0] + u * shares[1] * tangents[1]

        return between(low, high)

    return drawn("truncated_normal", key, shape, element, *[as_expr(x).astype(scalar) for x in (lower, upper)])


def _quantile(low: Any, high: Any, u: Any) -> Any:
    """The number that has the share u of the probability between the bounds below it."""
    mirrored = low + high > 0
    below, above = where(mirrored, -high, low), where(mirrored, -low, high)
    share = where(mirrored, 1 - u, u)
    total: Any = _log_probability(above)
    x: Any = _normal_quantile(total + log(share + (1 - share) * exp(_log_probability(below) - total)))
    x = maximum(minimum(where(mirrored, -x, x), high), low)
    return where(low <= high, x, math.nan)


def _log_probability(x: Any) -> Any:
    """The logarithm of the probability of numbers below x."""
    far = -12.0 if x.dtype == f32 else -35.0
    z: Any = minimum(x, far)
    square = 1 / (z * z)
    series = -square * (1 - 3 * square * (1 - 5 * square * (1 - 7 * square)))
    tail = log1p(series) - z * z / 2 - _LOG_ROOT - log(-z)
    return where(x < far, tail, log(erfc(maximum(x, far) * -math.sqrt(0.5)) / 2))


def _normal_quantile(t: Any) -> Any:
    """The number below which the probability has this logarithm."""
    upper = t > -math.log(2)
    t = where(upper, log(-expm1(t)), t)
    r: Any = sqrt(-2 * t)
    x = (2.515517 + r * (0.802853 + r * 0.010328)) / (1 + r * (1.432788 + r * (0.189269 + r * 0.001308))) - r
    for _ in range(_STEPS):
        found: Any = _log_probability(x)
        x = x - (found - t) * exp(found + x * x / 2 + _LOG_ROOT)
    return where(upper, -x, x)
