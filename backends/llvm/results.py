"""Memory of large results, used again when nobody holds the array any more.

The pages of a large new array are given out, and cleared, by the system one after the other while the code writes to
them, and go back as soon as the array does. That takes longer than a sweep over the array. So the memory of a large
result comes back here with the last reference to the array and its views, and serves a later result of about that
size. Not more than ``MOST`` bytes wait; what came first goes first.

    y = f(x)   # new memory
    y = f(x)   # new memory: the first result is held until the second is there
    y = f(x)   # the memory of the first
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.host_arrays import new_array, no_memory

LARGE = 1 << 19  # bytes from which this is worth its while
MOST = 256 << 20
_ALIGNMENT = 64  # a cache line: a vector then never crosses two

_waiting: dict[int, np.ndarray[Any, Any]] = {}  # by identity; each operation on it is one step for other threads


class _Lease(np.ndarray[Any, Any]):
    """What the array and its views hold, and nothing else: they reach it as a buffer, so that NumPy keeps it."""


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """As ``new_array``, in memory that came back."""
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE:
        return new_array(shape, dtype)
    try:
        block = _found(size + _ALIGNMENT)
    except (MemoryError, ValueError):  # where NumPy has no arrays of that many bytes
        raise no_memory(shape) from None
    lease = block.view(_Lease)
    weakref.finalize(lease, _came_back, block).atexit = False
    start = -block.ctypes.data % _ALIGNMENT
    return np.frombuffer(lease.data, dtype, math.prod(shape), start).reshape(shape)


def waiting_bytes() -> int:
    """The bytes that are kept for later results."""
    return sum(block.nbytes for block in list(_waiting.values()))


def _found(size: int) -> np.ndarray[Any, Any]:
    """Memory of at least that size: some that waits, if little of it would be wasted, or else new."""
    for block in list(_waiting.values()):
        if size <= block.nbytes <= size + size // 4 and _waiting.pop(id(block), None) is not None:
            return block
    return np.empty(size, np.uint8)


def _came_back(block: np.ndarray[Any, Any]) -> None:
    if block.nbytes > MOST:
        return
    _waiting[id(block)] = block
    for first in list(_waiting):
        if waiting_bytes() <= MOST:
            break
        _waiting.pop(first, None)
