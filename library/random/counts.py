"""Numbers of events: Poisson and binomial.

Few are found by adding up probabilities until they exceed a number of equal probability (Kemp 1981). Many are drawn by
transformed rejection (Hörmann 1993, "The transformed rejection method for generating Poisson random variables" and "The
generation of binomial random variates"): a number of equal probability is stretched so that it looks like the
distribution, and is mostly accepted without computing probabilities.

The probability of k events is computed from how far k is from its mean, so that it is exact for large numbers, too. A
binomial one is made of three of Poisson's: with a mean of n, k and n - k of two kinds are independent, given n::

    binomial(k; n, p)  =  poisson(k; n p) poisson(n - k; n (1 - p)) / poisson(n; n)

Counts do not move with their parameters: they have no derivatives.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.combinators import cond, where, while_loop
from ...core.expr import Expr, as_expr, scalar_type
from ...core.primitives import abs_, exp, floor, log, log1p, maximum, minimum, sqrt, stop_gradient
from ...core.source import at_line
from ...core.types import Scalar, f32, f64, i32, i64
from .generator import Draw, drawn, fraction
from .rejection import accepted

_MANY = 10  # the mean from which on numbers are drawn by rejection


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = i64) -> Any:
    """Poisson numbers with the mean ``lam``, which broadcasts to the shape, or gives it.

    They are i64 or i32, or f64 or f32. Where ``lam`` is negative, infinite or NaN they are -1, or NaN. They have no
    derivative. Of f32, large ones are rounded.

    >>> import adze as az
    >>> x = az.evaluate(lambda key: az.random.poisson(key, 4.5, 10000))(az.random.key(0))
    >>> x.dtype, abs(float(x.mean()) - 4.5) < 0.1
    (dtype('int64'), True)
    """
    scalar = _counting(dtype)

    def element(draw: Draw, lam: Expr) -> Any:
        right = (lam >= 0) & (lam < math.inf)
        mean = where(right, lam, 0)

        def few() -> Any:
            return _searched(draw, exp(-mean), lambda k: mean / (k + 1))

        def many() -> Any:
            spread = 0.931 + 2.53 * sqrt(mean)
            return _transformed(
                draw,
                spread,
                -0.059 + 0.02483 * spread,
                mean + 0.43,
                0.9277 - 3.6224 / (spread - 2),
                log(1.1239 + 1.1328 / (spread - 3.4)),
                lambda k: _log_poisson(k, mean),
            )

        return where(right, cond(mean < _MANY, few, many), math.nan)

    return _counts("poisson", key, shape, scalar, element, lam)


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = i64) -> Any:
    """How many of ``n`` trials succeed, each with the probability ``p``; both broadcast to the shape, or give it.

    They are i64 or i32, or f64 or f32. Where ``n`` is negative, infinite or NaN, or ``p`` is not from 0 to 1, they are
    -1, or NaN. What is no whole number of trials is rounded down. They have no derivative. Of f32, large ones are
    rounded.

    >>> import adze as az
    >>> x = az.evaluate(lambda key: az.random.binomial(key, 10, 0.3, 10000))(az.random.key(0))
    >>> int(x.min()) >= 0, int(x.max()) <= 10, abs(float(x.mean()) - 3) < 0.1
    (True, True, True)
    """
    scalar = _counting(dtype)

    def element(draw: Draw, n: Expr, p: Expr) -> Any:
        right = (n >= 0) & (n < math.inf) & (p >= 0) & (p <= 1)
        trials: Any = floor(where(right, n, 0))
        rare = where(right, minimum(p, 1 - p), 0)
        mean = trials * rare

        def few() -> Any:
            odds = rare / (1 - rare)
            return _searched(draw, exp(trials * log1p(-rare)), lambda k: odds * (trials - k) / (k + 1))

        def many() -> Any:
            deviation: Any = sqrt(mean * (1 - rare))
            spread = 1.15 + 2.53 * deviation

            def log_share(k: Any) -> Any:
                return _log_poisson(k, mean) + _log_poisson(trials - k, trials - mean)

            return _transformed(
                draw,
                spread,
                -0.0873 + 0.0248 * spread + 0.01 * rare,
                mean + 0.5,
                0.92 - 4.2 / spread,
                log((2.83 + 5.1 / spread) * deviation) + log_share(floor((trials + 1) * rare)),
                log_share,
            )

        successes = cond(mean < _MANY, few, many)
        return where(right, where(p > 0.5, trials - successes, successes), math.nan)

    return _counts("binomial", key, shape, scalar, element, n, p)


def _counting(dtype: Any) -> Scalar:
    scalar = scalar_type(dtype)
    if scalar not in (i32, i64, f32, f64):
        raise TypeError(at_line(f"counts of i32, i64, f32 or f64, not of {scalar}"))
    return scalar


def _counts(what: str, key: Any, shape: Any, scalar: Scalar, element: Any, *parameters: Any) -> Any:
    """Counts that are computed in f32 if they are of it, else in f64; NaN is -1 of integers."""
    kind = f32 if scalar == f32 else f64
    found = drawn(what, key, shape, element, *[stop_gradient(as_expr(x).astype(kind)) for x in parameters])
    return found if scalar.kind == "float" else where(found == found, found, -1).astype(scalar)


def _searched(draw: Draw, first: Any, ratio: Any) -> Any:
    """The first k to which probabilities add up to more than a number of equal probability.

    ``ratio(k)`` is the probability of k + 1 over that of k, of 0 it is ``first``. The search ends where probabilities
    are too small to be told from what the sum is rounded by.
    """
    least = 2.0**-26 if first.dtype == f32 else 2.0**-55

    def step(state: Any) -> Any:
        k, rest, probability = state
        return k + 1, rest - probability, probability * ratio(k)

    def goes_on(state: Any) -> Any:
        _, rest, probability = state
        return (rest >= probability) & (probability > least)

    zero = as_expr(0).astype(first.dtype)
    found: Any = while_loop(goes_on, step, (zero, fraction(first.dtype, *draw(0)[:2]), first))
    return found[0]


def _transformed(draw: Draw, b: Any, a: Any, centre: Any, quick: Any, log_scale: Any, log_share: Any) -> Any:
    """A count by transformed rejection with a squeeze, in the letters of Hörmann's papers.

    A number u around 0 becomes (2 a / (1/2 - abs(u)) + b) u + centre, rounded down. It is accepted in the share
    ``quick`` of the trials for most u, else by its probability, whose logarithm is ``log_share`` but for a constant.
    """

    def trial(number: Any) -> Any:
        words = draw(number)
        u = fraction(b.dtype, *words[:2], inside=True) - 0.5
        v = fraction(b.dtype, *words[2:], inside=True)
        edge: Any = 0.5 - abs_(u)
        k: Any = floor((2 * a / edge + b) * u + centre)
        bound = log(v) + log_scale - log(a / (edge * edge) + b)
        return k, ((edge >= 0.07) & (v <= quick)) | (bound <= log_share(k))

    return accepted(b.dtype, trial)


# Probabilities

_ROOT = 0.5 * math.log(2 * math.pi)
# By how much log k! is above Stirling's formula (k + 1/2) log(k + 1) - (k + 1) + log(2 pi) / 2, for k below 10.
_CORRECTIONS = np.array([math.lgamma(k + 1) - (k + 0.5) * math.log(k + 1) + k + 1 - _ROOT for k in range(10)])


def _log_poisson(k: Any, mean: Any) -> Any:
    """The logarithm of the probability of k events where ``mean`` are expected; NaN or -inf where k is negative."""
    away = k + 1 - mean
    return away - (k + 0.5) * log1p(away / mean) - 0.5 * log(mean) - _ROOT - _correction(k)


def _correction(k: Any) -> Any:
    table = as_expr(_CORRECTIONS.astype(k.dtype.dtype))
    square = 1 / ((k + 1) * (k + 1))
    series = (1 / 12 - (1 / 360 - square / 1260) * square) / (k + 1)
    return where(k < 10, table[maximum(minimum(k, 9), 0).astype(i64)], series)
