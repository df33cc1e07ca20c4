"""Bits, and distributions whose numbers are made of one block of words each."""

from __future__ import annotations

import math
from typing import Any

from ...core.combinators import matmul, size
from ...core.combinators.operands import shape_of
from ...core.expr import Expr, as_expr, scalar_type
from ...core.primitives import abs_, cos, log, log1p, maximum, sign, sqrt
from ...core.source import at_line
from ...core.types import Scalar, f64, i64, u32, u64
from ..linalg import cholesky
from .generator import Draw, Words, drawn, floats, fraction, wide

# Bits, and numbers of equal probability


def bits(key: Any, shape: Any = (), dtype: Any = u32) -> Any:
    """Random bits, as u32 or u64: an array of the shape, or a number for the shape (). Raises TypeError for others.

    >>> import adze as az
    >>> az.evaluate(lambda key: az.random.bits(key, 3))(az.random.key(0)).dtype
    dtype('uint32')
    """
    scalar = scalar_type(dtype)
    if scalar not in (u32, u64):
        raise TypeError(at_line(f"random bits are u32 or u64, not {scalar}"))
    return drawn("bits", key, shape, lambda draw: draw(0)[0] if scalar == u32 else wide(*draw(0)[:2]))


def uniform(key: Any, shape: Any = (), dtype: Any = f64, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Numbers from ``minval`` on, below ``maxval``, which broadcast to the shape.

    They have 53 random bits of a f64, 24 of a f32. Raises TypeError for other types, and for bounds that do not fit.

    >>> import adze as az
    >>> x = az.evaluate(lambda key: az.random.uniform(key, (100, 2), minval=[0.0, 5.0], maxval=6))(az.random.key(0))
    >>> x.shape, bool((x >= [0, 5]).all() and (x < 6).all())
    ((100, 2), True)
    """
    scalar = floats(dtype)
    unit = isinstance(minval, float) and isinstance(maxval, float) and (minval, maxval) == (0.0, 1.0)

    def element(draw: Draw, *bounds: Expr) -> Any:
        u = fraction(scalar, *draw(0)[:2])
        return u if unit else bounds[0] + u * (bounds[1] - bounds[0])

    return drawn("uniform", key, shape, element, *[] if unit else [as_expr(x).astype(scalar) for x in (minval, maxval)])


def integers(key: Any, shape: Any, minval: Any, maxval: Any) -> Any:
    """i64 from ``minval`` on, below ``maxval``, which broadcast to the shape.

    They are the remainder of 64 random bits, which prefers none by 2**-32 if both bounds are 32 bits or less. Where
    there is no such integer, it is ``minval``.

    >>> import adze as az
    >>> dice = az.evaluate(lambda key: az.random.integers(key, 100, 1, 7))(az.random.key(0))
    >>> int(dice.min()), int(dice.max())
    (1, 6)
    """

    def element(draw: Draw, low: Expr, high: Expr) -> Any:
        count: Any = maximum((high - low).astype(u64), 1)
        return low + (wide(*draw(0)[:2]) % count).astype(i64)

    return drawn("integers", key, shape, element, *[as_expr(x).astype(i64) for x in (minval, maxval)])


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Any:
    """Booleans that hold with probability p, which broadcasts to the shape, or gives it.

    >>> import adze as az
    >>> az.evaluate(lambda key: az.random.bernoulli(key, [0.0, 1.0]))(az.random.key(0))
    array([False,  True])
    """
    return drawn("bernoulli", key, shape, lambda draw, p: fraction(f64, *draw(0)[:2]) < p, as_expr(p))


# Standard distributions


def normal(key: Any, shape: Any = (), dtype: Any = f64) -> Any:
    """Standard normal numbers, f64 or f32, by a radius and an angle (Box and Muller 1958).

    >>> import adze as az
    >>> x = az.evaluate(lambda key: az.random.normal(key, (10000,)))(az.random.key(0))
    >>> abs(float(x.mean())) < 0.05, abs(float(x.std()) - 1) < 0.05
    (True, True)
    """
    scalar = floats(dtype)
    return drawn("normal", key, shape, lambda draw: normal_number(draw(0), scalar))


def normal_number(words: Words, scalar: Scalar) -> Any:
    """A standard normal number of the words of a block."""
    a, b, c, d = words
    return box_muller(fraction(scalar, a, b, inside=True), fraction(scalar, c, d))


def box_muller(u: Any, v: Any) -> Any:
    """A standard normal number from two of equal probability, the first of which is above 0."""
    radius: Any = sqrt(-2.0 * log(u))
    return radius * cos((2 * math.pi) * v)


def exponential(key: Any, shape: Any = (), dtype: Any = f64) -> Any:
    """Exponentially distributed numbers with the mean 1, f64 or f32.

    >>> import adze as az
    >>> bool((az.evaluate(lambda key: az.random.exponential(key, 100))(az.random.key(0)) > 0).all())
    True
    """
    return -log(_inside("exponential", key, shape, dtype))


def gumbel(key: Any, shape: Any = (), dtype: Any = f64) -> Any:
    """Numbers of the standard Gumbel distribution, f64 or f32.

    Added to logits they make the largest a categorical draw: see :func:`categorical`.

    >>> import adze as az
    >>> x = az.evaluate(lambda key: az.random.gumbel(key, 10000))(az.random.key(0))
    >>> abs(float(x.mean()) - 0.5772) < 0.05
    True
    """
    return -log(-log(_inside("gumbel", key, shape, dtype)))


def laplace(key: Any, shape: Any = (), dtype: Any = f64) -> Any:
    """Numbers of the standard Laplace distribution, f64 or f32.

    >>> import adze as az
    >>> x = az.evaluate(lambda key: az.random.laplace(key, 10000))(az.random.key(0))
    >>> abs(float(abs(x).mean()) - 1) < 0.05
    True
    """
    u = _inside("laplace", key, shape, dtype) - 0.5
    return -sign(u) * log1p(-2.0 * abs_(u))


def _inside(what: str, key: Any, shape: Any, dtype: Any) -> Any:
    """Numbers above 0 and below 1."""
    scalar = floats(dtype)
    return drawn(what, key, shape, lambda draw: fraction(scalar, *draw(0)[:2], inside=True))


def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Any = ()) -> Any:
    """Normal vectors with a mean and a covariance, along the last axis; ``shape`` is that of the array of vectors.

    They move with the mean, and with the covariance by its Cholesky factor. Raises LinAlgError for a covariance that is
    not positive definite.

    >>> import adze as az
    >>> draw = lambda key: az.random.multivariate_normal(key, [1.0, 2.0], [[2.0, 1.0], [1.0, 2.0]], 5)
    >>> az.evaluate(draw)(az.random.key(0)).shape
    (5, 2)
    """
    centre = as_expr(mean)
    noise = normal(key, (*shape_of(shape), size(centre)), centre.dtype)
    return centre + matmul(noise, cholesky(cov).T)
