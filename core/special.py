"""Functions written in the language from the primitives: every interpretation, and every derivative, has them for free.

The table at the end says which functions of NumPy they are when one of these is applied to an expression:
``np.clip(x, 0, 1)``. (A function that is the meaning of a primitive needs no entry, but where it takes other operands.)
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from .combinators.control import where
from .expr import as_expr, floating
from .methods import METHODS
from .numpy_calls import NUMPY
from .primitives import abs_, erf, floor_divide, logaddexp, maximum, minimum, remainder, round_, tanh, trunc
from .source import at_line
from .types import i8


def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    """``minimum(maximum(x, low), high)``, elementwise with broadcasting; None is no bound.

    NaN stays; the derivative is that of x where x is one of the bounds.

    >>> import adze as az
    >>> @az.program
    ... def f(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
    ...     return az.clip(x, 0, 1)
    >>> f(np.array([-0.5, 0.5, 1.5]))
    array([0. , 0.5, 1. ])
    """
    if low is not None:
        x = maximum(x, low)
    if high is not None:
        x = minimum(x, high)
    return x


def square(x: Any) -> Any:
    """``x * x``, elementwise; of booleans i8, as in NumPy."""
    x = as_expr(x)
    x = x.astype(i8) if x.dtype.kind == "bool" else x
    return x * x


def reciprocal(x: Any) -> Any:
    """``1 / x``, elementwise, of floating numbers (integers are converted to f64)."""
    return 1.0 / floating(x)


def softplus(x: Any) -> Any:
    """``log(1 + exp(x))``, elementwise, without overflow.

    >>> import adze as az
    >>> @az.program
    ... def f(x: az.f64) -> az.f64:
    ...     return az.softplus(x)
    >>> float(f(1000.0)), float(az.grad(f)(0.0))
    (1000.0, 0.5)
    """
    return logaddexp(x, 0.0)


def log_sigmoid(x: Any) -> Any:
    """``log(sigmoid(x))``, elementwise, without underflow."""
    return -logaddexp(-x, 0.0)


def relu(x: Any) -> Any:
    """x where it is positive, else 0, elementwise; the derivative at 0 is 0, and NaN stays.

    >>> import adze as az
    >>> az.evaluate(lambda x: az.relu(x))(np.array([-2.0, 3.0]))
    array([0., 3.])
    """
    x = as_expr(x)
    return where(x <= 0, as_expr(0, x.dtype).astype(x.dtype), x)


def gelu(x: Any, approximate: bool = True) -> Any:
    """x times the normal distribution's share below it (Hendrycks and Gimpel 2016), elementwise.

    It is approximated by a hyperbolic tangent, as by JAX, or else given by ``erf``, as by PyTorch.

    >>> import adze as az
    >>> float(az.evaluate(lambda x: az.gelu(x, approximate=False))(0.0))
    0.0
    """
    x = floating(x)
    if approximate:
        return 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def nan_to_num(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """x with numbers in the places of NaN and the infinities: the largest that there are, unless others are given.

    >>> import adze as az
    >>> az.evaluate(lambda x: az.nan_to_num(x, posinf=9.0))(np.array([np.nan, np.inf, 1.0]))
    array([0., 9., 1.])
    """
    x = as_expr(x)
    if x.dtype.kind != "float":
        return x
    largest = float(np.finfo(x.dtype.dtype).max)
    high, low = (largest if posinf is None else posinf), (-largest if neginf is None else neginf)
    finite = where(x == math.inf, as_expr(high).astype(x.dtype), where(x == -math.inf, as_expr(low).astype(x.dtype), x))
    return where(x != x, as_expr(nan).astype(x.dtype), finite)


def _round(x: Any, decimals: int = 0) -> Any:
    """To some decimal places, or tens and hundreds where these are negative; integers stay integers, as in NumPy."""
    scale = 10.0 ** abs(decimals)
    if decimals == 0 or (decimals > 0 and x.dtype.kind != "float"):
        return round_(x)
    if decimals > 0:
        return round_(x * scale) / scale
    tens: Any = round_(x / scale)
    return (tens * scale).astype(x.dtype)


def _reciprocal(x: Any) -> Any:
    """NumPy's: of integers it would be an integer, 0 for all but 1 and -1, which nobody means."""
    if as_expr(x).dtype.kind != "float":
        raise TypeError(at_line("np.reciprocal of integers is an integer in NumPy: write 1 / x, or 1 // x"))
    return reciprocal(x)


METHODS["clip"] = clip

NUMPY |= {
    np.around: _round,
    np.clip: clip,
    np.deg2rad: lambda x: x * (math.pi / 180),
    np.degrees: lambda x: x * (180 / math.pi),
    np.divmod: lambda a, b: (floor_divide(a, b), remainder(a, b)),
    np.fabs: lambda x: abs_(floating(x)),
    np.fix: trunc,
    np.nan_to_num: nan_to_num,
    np.ndim: lambda x: x.ndim,
    np.positive: operator.pos,
    np.rad2deg: lambda x: x * (180 / math.pi),
    np.radians: lambda x: x * (math.pi / 180),
    np.reciprocal: _reciprocal,
    np.rint: lambda x: round_(floating(x)),
    np.round: _round,
    np.shape: lambda x: x.shape,
    np.size: lambda x, axis=None: math.prod(x.shape) if axis is None else x.shape[axis],
    np.square: square,
}
