"""What ``help`` says of elementwise functions: what they compute, where they are defined, and their derivatives.

The rows of ``primitives.py`` and ``gamma.py`` say how; these say what, to people. Domains and derivatives are formulas
in ``x`` and ``y``, the operands, and in functions of ``az``. A test holds them to the rows: outside of its domain a
function of floating numbers is NaN or infinite, inside it is finite, and its rule gives what the formula says.

>>> from adze.core.primitives import log
>>> print(log.__doc__)
log(x): the natural logarithm.
<BLANKLINE>
Defined where x > 0. Its derivative is 1 / x.
"""

from __future__ import annotations

from . import gamma, primitives  # noqa: F401  (whose rows are described)
from .primitive import lookup

EVERYWHERE = "True"

# Of floating operands: the sentence, where it is defined, and its partial derivatives.
SMOOTH: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "abs": ("the absolute value", EVERYWHERE, ("sign(x)",)),
    "sign": ("-1, 0 or 1, as x is below, at or above 0", EVERYWHERE, ("0",)),
    "floor": ("the next integer below, as a floating number", EVERYWHERE, ("0",)),
    "ceil": ("the next integer above, as a floating number", EVERYWHERE, ("0",)),
    "trunc": ("the next integer towards 0, as a floating number", EVERYWHERE, ("0",)),
    "round": ("the nearest integer, the even one of two, as a floating number", EVERYWHERE, ("0",)),
    "sqrt": ("the square root", "x >= 0", ("1 / (2 * sqrt(x))",)),
    "cbrt": ("the cube root, which is negative where x is", EVERYWHERE, ("1 / (3 * cbrt(x) ** 2)",)),
    "hypot": ("the length of the vector (x, y)", EVERYWHERE, ("x / hypot(x, y)", "y / hypot(x, y)")),
    "power": ("x to the power of y, as ``x ** y``", "x > 0", ("y * x ** (y - 1)", "log(x) * x ** y")),
    "exp": ("e to the power of x", EVERYWHERE, ("exp(x)",)),
    "exp2": ("2 to the power of x", EVERYWHERE, ("log(2.0) * exp2(x)",)),
    "expm1": ("exp(x) - 1, exact to the last digits near 0, too", EVERYWHERE, ("exp(x)",)),
    "log": ("the natural logarithm", "x > 0", ("1 / x",)),
    "log2": ("the logarithm to the base 2", "x > 0", ("1 / (log(2.0) * x)",)),
    "log10": ("the logarithm to the base 10", "x > 0", ("1 / (log(10.0) * x)",)),
    "log1p": ("log(1 + x), exact to the last digits near 0, too", "x > -1", ("1 / (1 + x)",)),
    "logaddexp": ("log(exp(x) + exp(y)), without overflow", EVERYWHERE, ("sigmoid(x - y)", "sigmoid(y - x)")),
    "sigmoid": ("the logistic function, 1 / (1 + exp(-x))", EVERYWHERE, ("sigmoid(x) * sigmoid(-x)",)),
    "sin": ("the sine of an angle in radians", EVERYWHERE, ("cos(x)",)),
    "cos": ("the cosine of an angle in radians", EVERYWHERE, ("-sin(x)",)),
    "tan": ("the tangent of an angle in radians", EVERYWHERE, ("1 + tan(x) ** 2",)),
    "asin": ("the angle from -pi/2 to pi/2 whose sine is x", "abs(x) <= 1", ("1 / sqrt(1 - x**2)",)),
    "acos": ("the angle from 0 to pi whose cosine is x", "abs(x) <= 1", ("-1 / sqrt(1 - x**2)",)),
    "atan": ("the angle from -pi/2 to pi/2 whose tangent is x", EVERYWHERE, ("1 / (1 + x**2)",)),
    "atan2": (
        "the angle from -pi to pi of the vector (y, x), the second coordinate first",
        EVERYWHERE,
        ("y / (x**2 + y**2)", "-x / (x**2 + y**2)"),
    ),
    "sinh": ("the hyperbolic sine", EVERYWHERE, ("cosh(x)",)),
    "cosh": ("the hyperbolic cosine", EVERYWHERE, ("sinh(x)",)),
    "tanh": ("the hyperbolic tangent", EVERYWHERE, ("1 - tanh(x) ** 2",)),
    "asinh": ("the number whose hyperbolic sine is x", EVERYWHERE, ("1 / sqrt(x**2 + 1)",)),
    "acosh": ("the number from 0 on whose hyperbolic cosine is x", "x >= 1", ("1 / sqrt(x**2 - 1)",)),
    "atanh": ("the number whose hyperbolic tangent is x", "abs(x) < 1", ("1 / (1 - x**2)",)),
    "erf": ("the error function", EVERYWHERE, ("2 / sqrt(3.141592653589793) * exp(-(x**2))",)),
    "erfc": ("1 - erf(x), exact where that is tiny, too", EVERYWHERE, ("-2 / sqrt(3.141592653589793) * exp(-(x**2))",)),
    "lgamma": ("the logarithm of the absolute value of the gamma function", "x > 0", ("digamma(x)",)),
    "maximum": (
        "the larger of two numbers; NaN if one is",
        EVERYWHERE,
        ("1.0 * (x >= y)", "1.0 * (x < y)"),
    ),
    "minimum": (
        "the smaller of two numbers; NaN if one is",
        EVERYWHERE,
        ("1.0 * (x <= y)", "1.0 * (x > y)"),
    ),
    "stop_gradient": ("x itself, as a constant for derivatives", EVERYWHERE, ("0",)),
}

# Of others: the sentence.
PLAIN = {
    "digamma": "the derivative of lgamma, for x > 0; its own derivative is a series that is differentiated",
    "floor_divide": "the quotient rounded down, as ``x // y``; an integer divided by 0 is an error",
    "remainder": "what ``x // y`` leaves, with the sign of y, as ``x % y``",
    "isfinite": "whether x is neither infinite nor NaN",
    "isinf": "whether x is infinite",
    "isnan": "whether x is NaN",
    "logical_and": "whether both are true, as ``x & y`` of booleans",
    "logical_or": "whether one is true, as ``x | y`` of booleans",
    "logical_xor": "whether one is true and the other is not, as ``x ^ y`` of booleans",
    "logical_not": "whether x is false, as ``~x`` of a boolean",
    "bitwise_and": "the bits that both integers have, as ``x & y``",
    "bitwise_or": "the bits that one of two integers has, as ``x | y``",
    "bitwise_xor": "the bits in which two integers differ, as ``x ^ y``",
    "bitwise_not": "the bits that an integer does not have, as ``~x``",
    "population_count": "how many bits of an integer are set",
    "left_shift": "the bits of x moved to the left by y places, as ``x << y``",
    "right_shift": "the bits of x moved to the right by y places, with the sign of x, as ``x >> y``",
}


for _name, (_sentence, _domain, _derivatives) in SMOOTH.items():
    _where = "Defined everywhere." if _domain == EVERYWHERE else f"Defined where {_domain}."
    _their = "Its derivative is" if len(_derivatives) == 1 else "Its derivatives are"
    lookup(_name).describe(f"{_sentence}.\n\n{_where} {_their} {' and '.join(_derivatives)}.")
for _name, _sentence in PLAIN.items():
    lookup(_name).describe(f"{_sentence}.")
