"""Gamma numbers, and those that are made of them: beta, Dirichlet and Student's t.

A gamma number is drawn as its logarithm, since it may be too small for a float where its shape is. It is the cube of a
normal number that is moved and scaled, accepted with a probability of more than 0.95 (Marsaglia and Tsang 2000, "A
simple method for generating gamma variables"); a number of a shape a below 1 is one of a + 1, times u^(1/a).

What is drawn by rejection has no derivative of its own. But x is a quantile of its distribution, and moves with the
shape as the quantile of the same probability does (Figurnov, Mohamed and Mnih 2018, "Implicit reparameterization
gradients")::

    F(x; a) = u        dx/da  =  -(dF/da) / f(x; a)  =  -1/f(x)  integral from 0 to x of (log t - digamma(a)) f(t) dt

The integral from x on is the same, but for its sign. Up to exp(digamma(a)) the integrand has one sign, and beyond it
the other, so one of both integrals loses no digits. With t = x exp(-q) below and t = x (1 + q) beyond, it is taken by
the double exponential formula for functions that decay as exp(-q) does (Takahasi and Mori 1974). With 64 points it is
exact to some 1e-13 for shapes from 1e-3 to 1e5 and in all tails. It has no loop that could be long, and derivatives of
its own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.combinators import softmax, sum, where
from ...core.combinators.operands import shape_of
from ...core.custom import custom_jvp
from ...core.expr import Expr, as_expr
from ...core.gamma import digamma
from ...core.primitives import exp, expm1, log, log1p, maximum, minimum, sigmoid, sqrt, stop_gradient
from ...core.source import at_line
from ...core.types import f64
from .continuous import box_muller, normal_number
from .generator import Draw, drawn, floats, fraction
from .rejection import accepted


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = f64) -> Any:
    """Gamma numbers of the shape ``a`` and the scale 1; ``a`` broadcasts to the shape of the array, or gives it.

    Derivatives are those with respect to ``a``, by implicit reparametrisation. A number is NaN where ``a`` is not
    positive and finite. Where ``a`` is near 0 many numbers are less than any float, and are 0: see :func:`loggamma`.

    >>> import adze as az
    >>> @az.program
    ... def mean(key: az.Array[az.u32, 2], a: az.f64) -> az.f64:
    ...     return az.mean(az.random.gamma(key, a, 10000))
    >>> abs(float(mean(az.random.key(0), 3.0)) - 3) < 0.1
    True
    """
    return exp(loggamma(key, a, shape, dtype))


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = f64) -> Any:
    """The logarithms of the numbers that :func:`gamma` draws, which are finite where these are 0.

    >>> import adze as az
    >>> bool(az.evaluate(lambda key: az.random.loggamma(key, 1e-6) < -1000)(az.random.key(0)))
    True
    """
    return drawn("gamma", key, shape, _log_gamma, as_expr(a).astype(floats(dtype)))


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = f64) -> Any:
    """Beta numbers of the shapes ``a`` and ``b``, which broadcast to the shape of the array, or give it.

    A number is the share of one gamma number in the sum of two, so derivatives and NaN are those of :func:`gamma`.

    >>> import adze as az
    >>> x = az.evaluate(lambda key: az.random.beta(key, 2, [3.0, 4.0]))(az.random.key(0))
    >>> x.shape, bool((x > 0).all() and (x < 1).all())
    ((2,), True)
    """
    scalar = floats(dtype)

    def element(draw: Draw, a: Expr, b: Expr) -> Any:
        first, second = _log_gamma(lambda k: draw(2 * k), a), _log_gamma(lambda k: draw(2 * k + 1), b)
        return sigmoid(first - second)

    return drawn("beta", key, shape, element, *[as_expr(x).astype(scalar) for x in (a, b)])


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = f64) -> Any:
    """Vectors of the Dirichlet distribution, along the last axis; ``alpha`` has its parameters along its own last one.

    ``shape`` is that of the array of vectors, to which the other axes of ``alpha`` broadcast; without it, they are it.
    A vector holds the shares of gamma numbers in their sum, so derivatives and NaN are those of :func:`gamma`. Raises
    TypeError for an ``alpha`` without axes.

    >>> import adze as az
    >>> x = az.evaluate(lambda key: az.random.dirichlet(key, [0.1, 2.0, 3.0], 4))(az.random.key(0))
    >>> x.shape, bool((abs(x.sum(1) - 1) < 1e-12).all())
    ((4, 3), True)
    """
    given = as_expr(alpha)
    if not given.ndim:
        raise TypeError(at_line(f"dirichlet takes parameters along an axis, not a value of type {given.type}"))
    sizes = None if shape is None else (*shape_of(shape), given.shape[-1])
    return softmax(loggamma(key, given, sizes, dtype))


def student_t(key: Any, df: Any, shape: Any = None, dtype: Any = f64) -> Any:
    """Numbers of Student's t distribution with ``df`` degrees of freedom, which broadcast to the shape, or give it.

    A number is a normal one over the root of a gamma number, so derivatives and NaN are those of :func:`gamma`.

    >>> import adze as az
    >>> x = az.evaluate(lambda key: az.random.student_t(key, 3.0, 10001))(az.random.key(0))
    >>> abs(float(np.median(x))) < 0.1
    True
    """

    def element(draw: Draw, df: Expr) -> Any:
        square = _log_gamma(lambda k: draw(k + 1), df / 2) - log(df / 2)
        return normal_number(draw(0), df.dtype) * exp(-square / 2)

    return drawn("student_t", key, shape, element, as_expr(df).astype(floats(dtype)))


# The logarithm of a gamma number


def _log_gamma(draw: Draw, a: Expr) -> Any:
    """Of one element, with its derivative."""

    @custom_jvp
    def drawn_at(a: Expr) -> Any:
        return _marsaglia_tsang(draw, a)

    @drawn_at.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return tangents[0] * _slope(primals[0], drawn_at(*primals))

    return drawn_at(a)


def _marsaglia_tsang(draw: Draw, a: Expr) -> Any:
    right = (a > 0) & (a < math.inf)
    safe = where(right, a, 1)
    d = where(safe < 1, safe + 1, safe) - 1 / 3
    c = 1 / (3 * sqrt(d))

    def trial(number: Any) -> Any:
        first, second, third, fourth = draw(number)
        x = box_muller(fraction(a.dtype, first, second, inside=True), fraction(a.dtype, third))
        t: Any = c * x
        root: Any = 3 * log1p(t)  # the logarithm of v = (1 + t)^3; no number or infinite where there is none
        accepts = log(fraction(a.dtype, fourth, inside=True)) < x * x / 2 + d * (root - t * (3 + t * (3 + t)))
        return root, accepts

    # The first block is for the power of a uniform number, the others are for trials.
    logarithm = log(d) + accepted(a.dtype, lambda number: trial(number + 1))
    power: Any = log(fraction(a.dtype, *draw(0)[:2], inside=True))
    return where(right, logarithm + where(safe < 1, power / safe, 0), math.nan)


# Its derivative


def _points() -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of the double exponential formula for functions on the positive numbers."""
    t, step = np.linspace(-3.5, 3.8, 64, retstep=True)
    points = np.exp(t - np.exp(-t))
    return points, step * points * (1 + np.exp(-t))


_POINTS, _WEIGHTS = _points()


def _slope(a: Any, y: Any) -> Any:
    """dy/da of the quantile y of the logarithms of gamma numbers of the shape a: the integral in the module's words.

    Points are scaled to where the integrand falls by a factor e, on which the integral does not depend.
    """
    x: Any = exp(y)
    middle = digamma(a)
    below = y < maximum(middle, 0)
    width = where(below, maximum(a - x, minimum(sqrt(x), a)), maximum(minimum(x - (a - 1), x), sqrt(x)))
    step: Any = stop_gradient(1 / width)
    points, weights = (step * as_expr(values.astype(a.dtype.dtype)) for values in (_POINTS, _WEIGHTS))
    ratio = where(below, -points, log1p(points))  # log t - y
    excess = where(below, expm1(-points), points)  # t / x - 1
    density: Any = exp(a * ratio - x * excess)  # over that at x, with respect to log t
    return sum((y - middle + ratio) * density * where(below, -1, 1 / (1 + points)) * weights)
