"""PyTorch's tensors and NumPy's arrays as each other, without a copy, and which tensors are arguments of a program.

Both sides share memory by DLPack. A tensor that is expanded or transposed is an array with the same strides. PyTorch
is imported when it is first asked for, and Adze works without it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ..core.arguments import array_of_type
from ..core.source import at_line
from ..core.types import SCALARS, Scalar, Type, element, f32, is_data, rank

_NO_TORCH = "this needs the package torch: pip install 'adze-lang[torch]'"


@cache
def pytorch() -> Any:
    """The package torch; ImportError, with the command that installs it, where there is none."""
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(_NO_TORCH, name="torch") from error


def as_array(tensor: Any) -> Any:
    """The memory of a tensor as an array, with its strides; the number in a tensor without axes."""
    array = np.from_dlpack(tensor.detach().resolve_neg())
    return array if array.ndim else array[()]


def as_tensor(result: Any) -> Any:
    """The memory of an array as a tensor; a scalar is copied."""
    return pytorch().from_dlpack(np.asarray(result))


def empty(type: Type, shape: Sequence[int], device: Any) -> Any:
    """A tensor for a result of a type, with nothing in it."""
    return pytorch().empty(tuple(shape), dtype=dtype(element(type)), device=device)


@cache
def dtype(scalar: Scalar) -> Any:
    """PyTorch's name of a scalar type."""
    return getattr(pytorch(), scalar.dtype.name)


def concrete(leaf: Any) -> Any:
    """The number that a symbol of PyTorch's compiler stands for; anything else as it is."""
    torch = pytorch()
    for symbol, python in ((torch.SymBool, bool), (torch.SymInt, int), (torch.SymFloat, float)):
        if isinstance(leaf, symbol):
            return python(leaf)
    return leaf


def stand_in(leaf: Any) -> Any:
    """An array of the scalar type and rank of a tensor, for what chooses by these; anything else as it is.

    TypeError for a tensor of a type that the language does not have.
    """
    if not isinstance(leaf, pytorch().Tensor):
        return concrete(leaf)
    for scalar in SCALARS.values():
        if leaf.dtype is dtype(scalar):
            return np.empty((1,) * leaf.ndim, scalar.dtype)
    raise TypeError(at_line(f"a tensor of {leaf.dtype} is not a value of the language{_advice(leaf, f32)}"))


def argument(leaf: Any, type: Type, what: str) -> Any:
    """A tensor of a type, from a tensor or a number; TypeError, ``what`` first, for anything else.

    Its sizes are not looked at, nor the device that it is on.
    """
    torch = pytorch()
    if not is_data(type):
        raise TypeError(at_line(f"{what} is {type}, which no tensor is"))
    if not isinstance(leaf, torch.Tensor):
        return _number(leaf, type, what)
    scalar = element(type)
    if leaf.layout is not torch.strided:
        raise TypeError(at_line(f"{what} is {type}, got a tensor of the layout {leaf.layout}; give x.to_dense()"))
    if leaf.dtype is not dtype(scalar) or leaf.ndim != rank(type):
        got = f"a tensor of {leaf.dtype} with shape {tuple(leaf.shape)}"
        advice = _advice(leaf, scalar) if leaf.dtype is not dtype(scalar) else ""
        raise TypeError(at_line(f"{what} is {type}, got {got}{advice}"))
    return leaf


def _number(leaf: Any, type: Type, what: str) -> Any:
    leaf = concrete(leaf)
    if not isinstance(leaf, bool | int | float | np.generic):
        instead = "; give torch.from_numpy(x)" if isinstance(leaf, np.ndarray) else ""
        raise TypeError(at_line(f"{what} is {type}, got a value of type {leaf.__class__.__name__}{instead}"))
    scalar = element(type)
    rounds = scalar.kind == "float" and rank(type) == 0 and not isinstance(leaf, np.generic)  # as PyTorch does
    value = leaf if rounds else array_of_type(leaf, type, what).item()
    return pytorch().tensor(value, dtype=dtype(scalar), device="cpu")


def _advice(tensor: Any, wanted: Scalar) -> str:
    """What to write instead of a tensor of another type than is wanted."""
    if tensor.is_complex():
        return "; complex numbers are two tensors, x.real and x.imag"
    if tensor.is_floating_point() and wanted.kind != "float":
        return ""
    return f"; convert it with x.to({dtype(wanted)})"
