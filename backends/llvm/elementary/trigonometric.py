"""Sine and cosine.

``x = k pi/2 + r`` with k whole and r within pi/4 of 0. Both functions are, up to sign, the sine or the cosine of r:

    sin r = r + r**3 S(r**2),    cos r = 1 - r**2 / 2 + r**4 C(r**2)

with polynomials that interpolate at Chebyshev points. The number r is kept as a sum of two, since close to a multiple
of pi/2 nothing else is left of x. ``k pi/2`` is taken away in parts: the first leaves an exact difference, the product
of k and the second is exact. That holds up to a limit; beyond it, which is rare, the C library computes. A program
with sine and cosine of one number computes all of this once.
"""

from __future__ import annotations

import math

from .writer import Real, Whole, Writer

_SINE = (
    -0.16666666666666666,
    0.008333333333330936,
    -0.00019841269836740527,
    2.7557316093196066e-06,
    -2.5051129895962807e-08,
    1.5917988944318716e-10,
)
_SINE_SINGLE = (-0.1666666716337204, 0.008333331905305386, -0.00019840084132738411, 2.724962087086169e-06)
_COSINE = (
    0.041666666666666664,
    -0.0013888888888887389,
    2.48015872987544e-05,
    -2.7557317265876615e-07,
    2.087614504910828e-09,
    -1.1382544623404291e-11,
)
_COSINE_SINGLE = (0.0416666679084301, -0.00138888880610466, 2.4800598112051375e-05, -2.7300703209220956e-07)
# pi/2 in parts; the second has as many zeros at its end as k may have digits
_HALF_PI = (1.5707963267948966, 6.12323399409214e-17, 1.6446256936324258e-26)
_HALF_PI_SINGLE = (1.5707963705062866, -4.371395334601402e-08, 2.5633440682570896e-12, 8.333743212599745e-20)
LIMITS = {64: 2.0**22, 32: 2.0**11}


def sin(w: Writer, x: Real) -> Real:
    value = _turned(w, abs(x), 0)
    sign = x.bits() ^ abs(x).bits()
    return _near_or_far(w, x, "sin", (value.bits() ^ sign).as_bits())


def cos(w: Writer, x: Real) -> Real:
    return _near_or_far(w, x, "cos", _turned(w, abs(x), 1))


def _near_or_far(w: Writer, x: Real, function: str, value: Real) -> Real:
    """The value within the limit, and what the C library says beyond it."""
    return w.rarely((abs(x) > LIMITS[w.scalar.bits]) & (abs(x) < math.inf), function, x, value)


def _turned(w: Writer, x: Real, quarters: int) -> Real:
    """The sine, a number of quarter turns ahead."""
    k, r, rest = _reduced(w, x)
    sine, cosine = _both(w, r, rest)
    turn = k + quarters
    value = w.where((turn & 1).is_zero(), sine, cosine)
    return (value.bits() ^ ((turn & 2) << (w.scalar.bits - 2))).as_bits()


def _reduced(w: Writer, x: Real) -> tuple[Whole, Real, Real]:
    """``k``, ``r`` and what it lacks."""
    number, whole = w.nearest(x, 2 / math.pi)
    first, second, *others = w.pick(_HALF_PI, _HALF_PI_SINGLE)
    exact = w.fma(number, -first, x)
    r = w.fma(number, -second, exact)
    rest = w.fma(number, -second, exact - r)
    for part in others:
        rest = w.fma(number, -part, rest)
    return whole, r, rest


def _both(w: Writer, r: Real, rest: Real) -> tuple[Real, Real]:
    """The sine and the cosine of a sum, whose second part hardly counts."""
    square = r * r
    half = square * 0.5
    most = 1.0 - half
    sine = w.polynomial(square, w.pick(_SINE, _SINE_SINGLE))
    cosine = w.polynomial(square, w.pick(_COSINE, _COSINE_SINGLE))
    small = w.fma(square * square, cosine, -(r * rest)) + ((1.0 - most) - half)
    return r + w.fma(rest, most, r * square * sine), most + small
