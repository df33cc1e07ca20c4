"""The exponential function, and what is made of it.

``exp x = 2**k exp r`` with k whole and r within log(2)/2 of 0. There ``exp r = 1 + r + r**2 q(r)``, with a polynomial
q that interpolates at Chebyshev points. Where the result is too large or too small for a normal number, the last
product says so: it is infinite, subnormal or zero as it should be.
"""

from __future__ import annotations

import math

from .writer import Real, Whole, Writer

_DOUBLE = (
    0.5000000000000001,
    0.16666666666666669,
    0.04166666666662413,
    0.008333333333330062,
    0.0013888888917213717,
    0.00019841269863053618,
    2.4801521295954376e-05,
    2.7557268459997064e-06,
    2.7620088445409746e-07,
    2.510038549551032e-08,
)
_SINGLE = (0.5, 0.16666576266288757, 0.041666556149721146, 0.008363178931176662, 0.0013926184037700295)
# log(2): a number with zeros at its end, so that its product with an exponent is exact, and the rest
_LOG_2 = (0.6931471803691238, 1.9082149292705877e-10)
_LOG_2_SINGLE = (0.693145751953125, 1.428606765330187e-06)


def exp(w: Writer, x: Real) -> Real:
    """Beyond the bounds the result is 0 or infinite."""
    low, high = w.pick((-746.0, 710.0), (-104.0, 89.0))
    number, whole, r, _ = _reduced(w, w.within(x, low, high))
    return w.scaled(w.fma(r * r, _rest(w, r), r) + 1.0, whole, number)


def expm1(w: Writer, x: Real) -> Real:
    """Below the bounds the result is -1; where it is tiny it is the argument."""
    low, high = w.pick((-40.0, 710.0), (-20.0, 89.0))
    value = _less_one(w, w.within(x, low, high))
    return w.where(abs(x) < 2.0 ** -(w.format.digits + 2), x, value)


def tanh(w: Writer, x: Real) -> Real:
    """``e / (e + 2)`` with ``e = exp 2x - 1``, which is exact enough to the right of 0; beyond the bound it is 1."""
    (bound,) = w.pick((44.0,), (20.0,))
    size = abs(x)
    e = _less_one(w, w.within(size + size, 0.0, bound))
    return w.signed_like(e / (e + 2.0), x)


def _less_one(w: Writer, x: Real) -> Real:
    """``exp x - 1`` where neither the number nor its power of two is too large.

    With ``2 t`` the power of two it is twice ``t r + (t - 1/2)``, which is nearly exact, and ``t`` times what is small.
    """
    _, whole, r, lost = _reduced(w, x)
    t = w.power_of_two(whole - 1)
    small = w.fma(r * r, _rest(w, r), lost)
    half = w.fma(t, small, w.fma(t, r, t - 0.5))
    return half + half


def _reduced(w: Writer, x: Real) -> tuple[Real, Whole, Real, Real]:
    """``k`` as a number and as an integer; ``r``, and what it lacks."""
    number, whole = w.nearest(x, 1 / math.log(2))
    high, low = w.pick(_LOG_2, _LOG_2_SINGLE)
    exact = w.fma(number, -high, x)
    r = w.fma(number, -low, exact)
    return number, whole, r, w.fma(number, -low, exact - r)


def _rest(w: Writer, r: Real) -> Real:
    """``(exp r - 1 - r) / r**2``."""
    return w.polynomial(r, w.pick(_DOUBLE, _SINGLE))
