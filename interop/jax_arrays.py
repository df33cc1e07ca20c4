"""JAX's arrays as arguments of a program: which are taken, and as what.

JAX is imported when it is first asked for, and Adze works without it.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np

from ..core.arguments import array_of_type
from ..core.source import at_line
from ..core.types import SCALARS, Scalar, Type, element, f32, is_data, rank

_NO_JAX = "this needs the package jax: pip install 'adze-lang[jax]'"
_X64 = 'jax.config.update("jax_enable_x64", True)'


@cache
def jax_module(part: str = "jax") -> Any:
    """The package jax, or a part of it; ImportError, with the command that installs it, where there is none."""
    try:
        return importlib.import_module(part)
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        raise ModuleNotFoundError(_NO_JAX, name="jax") from error


def aval(type: Type, shape: Any) -> Any:
    """What JAX knows of an array before there is one: its scalar type and shape."""
    return jax_module().core.ShapedArray(tuple(shape), element(type).dtype)


def concrete(leaf: Any) -> Any:
    """A leaf as it is: JAX has no symbols of numbers."""
    return leaf


def stand_in(leaf: Any) -> Any:
    """An array of the scalar type and rank of one of JAX's, for what chooses by these; anything else as it is.

    TypeError for an array of a type that the language does not have.
    """
    if not isinstance(leaf, jax_module().Array):
        return leaf
    for scalar in SCALARS.values():
        if leaf.dtype == scalar.dtype:
            return np.empty((1,) * leaf.ndim, scalar.dtype)
    raise TypeError(at_line(f"an array of {leaf.dtype} is not a value of the language{_advice(leaf, f32)}"))


def argument(leaf: Any, type: Type, what: str) -> Any:
    """An array of JAX's of a type, from one of JAX's or NumPy's, or a number; TypeError, ``what`` first, else.

    Its sizes are not looked at.
    """
    jax = jax_module()
    if not is_data(type):
        raise TypeError(at_line(f"{what} is {type}, which no array of JAX is"))
    scalar = element(type)
    if isinstance(leaf, bool | int | float) and not isinstance(leaf, np.generic):
        rounds = scalar.kind == "float" and rank(type) == 0  # as JAX does
        value = leaf if rounds else array_of_type(leaf, type, what).item()
        leaf = np.asarray(value, scalar.dtype)
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
        got = f"a value of type {leaf.__class__.__name__}; give jax.numpy.asarray(x)"
        raise TypeError(at_line(f"{what} is {type}, got {got}"))
    if getattr(leaf, "weak_type", False) and _promotes(leaf, scalar):
        leaf = leaf.astype(scalar.dtype)
    if leaf.dtype != scalar.dtype or leaf.ndim != rank(type):
        advice = _advice(leaf, scalar) if leaf.dtype != scalar.dtype else ""
        raise TypeError(at_line(f"{what} is {type}, got an array of {leaf.dtype} with shape {leaf.shape}{advice}"))
    if not all([isinstance(size, int) for size in leaf.shape]):
        raise TypeError(
            at_line(f"{what} is {type}, got an array of the symbolic shape {leaf.shape}; sizes are numbers")
        )
    refuse_long(type, f"{what} is {type}")
    return leaf if isinstance(leaf, jax.Array) else jax.numpy.asarray(leaf)


def _promotes(leaf: Any, scalar: Scalar) -> bool:
    """Whether a number of Python's that JAX has in its hands may become one of a scalar type, as it does in JAX."""
    kinds = {"f": ("float",), "i": ("float", "int")}
    return leaf.ndim == 0 and _is_there(scalar) and scalar.kind in kinds.get(leaf.dtype.kind, ())


def refuse_long(type: Type, what: str) -> None:
    """TypeError for a type that JAX's arrays do not have while its numbers of 64 bits are off."""
    if not _is_there(element(type)):
        instead = f"call {_X64}, or write the program with a type of 32 bits"
        raise TypeError(at_line(f"{what}, which JAX does not have now: {instead}"))


def _is_there(scalar: Scalar) -> bool:
    return bool(jax_module().dtypes.canonicalize_dtype(scalar.dtype) == scalar.dtype)


def _advice(leaf: Any, wanted: Scalar) -> str:
    """What to write instead of an array of another type than is wanted."""
    numpy = jax_module().numpy
    if numpy.issubdtype(leaf.dtype, numpy.complexfloating):
        return "; complex numbers are two arrays, x.real and x.imag"
    if not _is_there(wanted):
        return f"; numbers of 64 bits take {_X64}"
    if numpy.issubdtype(leaf.dtype, numpy.floating) and wanted.kind != "float":
        return ""
    return f"; convert it with x.astype({wanted.dtype.name!r})"
