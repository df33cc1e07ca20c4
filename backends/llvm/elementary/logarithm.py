"""The natural logarithm, and that of one plus a number.

A number is ``2**k (1 + f)`` with ``1 + f`` between the square roots of 1/2 and 2, and

    log(1 + f) = f - f**2 / 2 + s (f**2 / 2 + s**2 R(s**2)),    s = f / (2 + f),

with a polynomial R that interpolates ``(2 artanh(s) / s - 2) / s**2`` at Chebyshev points: the largest term is exact.
"""

from __future__ import annotations

import math

from .writer import Real, Writer

_DOUBLE = (
    0.666666666666667,
    0.3999999999989889,
    0.28571428626253836,
    0.22222211089379496,
    0.1818289243253687,
    0.15331611722055008,
    0.14617807153417325,
)
_SINGLE = (0.6666666865348816, 0.4000012278556824, 0.28550779819488525, 0.23331613838672638)
# log(2): a number with zeros at its end, so that its product with an exponent is exact, and the rest
_LOG_2 = (0.6931471803691238, 1.9082149292705877e-10)
_LOG_2_SINGLE = (0.693145751953125, 1.428606765330187e-06)
_ROOT_OF_HALF = {64: 0x3FE6A09E667F3BCD, 32: 0x3F3504F3}  # its bits


def log(w: Writer, x: Real) -> Real:
    least = 2.0 ** (1 - w.format.bias)  # of normal numbers
    subnormal = x < least
    digits = w.format.digits + 2
    scaled = w.where(subnormal, x * 2.0**digits, x)
    value = _log(w, scaled, w.where(subnormal, -float(digits), 0.0), w.real(0.0))
    return _defined(w, x, value)


def log1p(w: Writer, x: Real) -> Real:
    total = x + 1.0
    back = total - 1.0
    lost = (1.0 - (total - back)) + (x - back)  # by rounding the total
    value = _log(w, total, w.real(0.0), lost / total)
    return _defined(w, total, w.where(abs(x) < 2.0 ** -(w.format.digits + 2), x, value))


def _log(w: Writer, x: Real, exponent: Real, correction: Real) -> Real:
    """``log x + exponent log 2 + correction`` for a positive normal number."""
    digits = w.format.digits
    shift = (x.bits() - _ROOT_OF_HALF[w.scalar.bits]) >> digits
    f = (x.bits() - (shift << digits)).as_bits() - 1.0
    k = shift.real() + exponent
    high, low = w.pick(_LOG_2, _LOG_2_SINGLE)
    half = f * f * 0.5
    s = f / (f + 2.0)
    square = s * s
    rest = w.fma(square, w.polynomial(square, w.pick(_DOUBLE, _SINGLE)), half)
    return w.fma(k, high, f - (half - w.fma(s, rest, w.fma(k, low, correction))))


def _defined(w: Writer, x: Real, value: Real) -> Real:
    """The value where ``x``, whose logarithm is meant, is positive and finite."""
    outside = w.where(x.equals(0.0), -math.inf, w.where(x.equals(math.inf), math.inf, math.nan))
    return w.where((x > 0.0) & (x < math.inf), value, outside)
