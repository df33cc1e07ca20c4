"""Arrays of the host program, as NumPy's: one way in for arguments, captured arrays, tangents and ``out=``.

Whoever takes an array asks here, so that what cannot be read faithfully is refused everywhere, and with the same words:
a mask would be lost, and a dtype may be none of the language's. Byte orders and foreign memory are converted. An array
in the memory of a device is known by its attributes and fetched.

>>> refusal(np.dtype(np.float16), None)
'an array of float16 is not a value of the language; convert it with x.astype(np.float32)'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .source import at_line
from .types import Scalar, f32, f64, scalar_of

Array = np.ndarray[Any, Any]

MASKED = "a masked array, whose mask would be lost; give x.filled(value), or x.data and ~x.mask as two arrays"


def as_array(leaf: Any) -> Array:
    """A value of the host program as NumPy's array: as ``read_array``, with the user's line where it is none."""
    try:
        return read_array(leaf)
    except ValueError as error:
        message = f"a value of type {type(leaf).__name__} is not a regular array ({error})"
        raise ValueError(at_line(message)) from None


def read_array(leaf: Any) -> Array:
    """An argument as NumPy's array: by DLPack, the array interface or the buffer protocol, without a copy if it can.

    An array in the memory of a device is fetched. Raises TypeError for a masked array, what NumPy raises when it is
    none at all.
    """
    if on_device(leaf):
        return _fetched(leaf)
    if is_masked(leaf):
        raise TypeError(at_line(MASKED))
    if hasattr(leaf, "__dlpack__") and not isinstance(leaf, np.ndarray | np.generic):
        return np.from_dlpack(leaf)
    return np.asarray(leaf)


def too_long(shape: Sequence[int]) -> ValueError:
    """What is raised where NumPy has no array of this shape, although it is empty."""
    return ValueError(at_line(f"NumPy has no array of shape {tuple(shape)}: it is empty, but too long"))


def no_memory(shape: Sequence[int]) -> MemoryError:
    """What is raised where there is no memory for an array of this shape."""
    return MemoryError(at_line(f"no memory for an array of shape {tuple(shape)}"))


def new_array(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """As ``np.empty``; MemoryError, or ValueError where an empty array is too long, with the user's line."""
    try:
        return np.empty(shape, dtype)
    except MemoryError:
        raise no_memory(shape) from None
    except ValueError:  # where the number of bytes is none of 64 bits
        raise too_long(shape) if 0 in shape else no_memory(shape) from None


def is_masked(leaf: Any) -> bool:
    """Whether this is an array with a mask, or a list that holds one, or a masked element."""
    if not isinstance(leaf, list | tuple):
        return isinstance(leaf, np.ma.MaskedArray)
    kinds = set(map(type, leaf))
    if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds):
        return True
    return any(issubclass(kind, list | tuple) for kind in kinds) and any(map(is_masked, leaf))


def scalar_in(array: Any) -> Scalar | None:
    """The scalar type of an array's elements, in any byte order; None when it is none of the language's."""
    return scalar_of(array.dtype.newbyteorder("="))


def refusal(dtype: np.dtype[Any], wanted: Scalar | None, what: str = "array") -> str:
    """Why an array of a dtype is refused, and what to write instead."""
    return f"an {what} of {dtype} is not a value of the language{advice(dtype, wanted)}"


def advice(dtype: np.dtype[Any], wanted: Scalar | None) -> str:
    """What to write instead of an array of a dtype that the language does not have, of a type that is wanted."""
    if dtype.kind == "c":
        return "; complex numbers are two arrays, x.real and x.imag"
    if dtype.kind != "f" or scalar_of(dtype.newbyteorder("=")) is not None:
        return ""
    return f"; convert it with x.astype(np.{(wanted or (f32 if dtype.itemsize < 4 else f64)).dtype})"


# Devices


def on_device(leaf: Any) -> bool:
    """Whether this is an array in the memory of an OpenCL device: pyopencl's, known by its attributes."""
    return hasattr(leaf, "base_data") and hasattr(leaf, "get")


def _fetched(array: Any) -> Array:
    """The elements of an array on a device; of a view with gaps or backwards, all that lies between its ends."""
    if array.flags.forc or not all(array.shape):
        fetched: Array = array.get() if all(array.shape) else np.empty(array.shape, array.dtype)
        return fetched
    reach = [(length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True)]
    first, last = (sum([side(0, steps) for steps in reach]) for side in (min, max))
    count = (last - first) // array.dtype.itemsize + 1
    between = type(array)(array.queue, count, array.dtype, data=array.base_data, offset=array.offset + first).get()
    return np.ndarray(array.shape, array.dtype, between, -first, array.strides).copy()
