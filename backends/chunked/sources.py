"""Sources: where chunks of arguments come from. A source gives any range of one axis as an array of NumPy's.

Arrays in memory give views. A file (a ``np.memmap`` in row-major order) is read: mapped pages would count as memory of
the process, and reading ahead has no faults. An array of Dask's gives its own blocks; anything else with a shape, a
scalar type and ``[start:stop]`` (zarr, h5py) is asked for ranges.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...core.arguments import array_of_type
from ...core.source import at_line
from ...core.types import Type, element, rank
from .files import Buffer, available, check, read


def in_order(array: np.ndarray[Any, Any], buffer: Buffer) -> np.ndarray[Any, Any]:
    """An array as programs take it: in row-major order, in a buffer if it has to be copied.

    What comes over a network is often at an odd address, where compiled code reads it as fast.
    """
    if array.flags.c_contiguous:
        return array
    found = buffer.array(array.shape, array.dtype)
    np.copyto(found, array)
    return found


class Source(ABC):
    """An array that is cut along an axis."""

    axis: int
    in_memory = False  # whether a range takes no more memory

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @abstractmethod
    def read(self, start: int, stop: int, buffer: Buffer | None = None) -> np.ndarray[Any, Any]:
        """A range of the axis; in a buffer, where it has to be put somewhere."""

    def part(self, start: int, stop: int) -> Source | np.ndarray[Any, Any]:
        """What a task needs of it: itself, to be read there, or the range."""
        return self

    def for_passes(self, count: int) -> Source:
        """The source for a call that goes through it so many times."""
        return self

    def place(self, start: int, stop: int) -> tuple[slice, ...]:
        return (slice(None),) * self.axis + (slice(start, stop),)


@dataclass(frozen=True, eq=False)
class InMemory(Source):
    """An array of NumPy's."""

    array: np.ndarray[Any, Any]
    axis: int
    in_memory = True

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def read(self, start: int, stop: int, buffer: Buffer | None = None) -> np.ndarray[Any, Any]:
        return self.array[self.place(start, stop)]

    def part(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        return self.read(start, stop)


@dataclass(frozen=True, eq=False)
class File(Source):
    """An array in row-major order in a file: it travels as where it is, and is read where it is needed."""

    path: str
    offset: int
    dtype: np.dtype[Any]
    whole: tuple[int, ...]
    axis: int
    once: bool = False  # whether it is read this one time, so that the system's cache need not have it

    @property
    def shape(self) -> tuple[int, ...]:
        return self.whole

    def read(self, start: int, stop: int, buffer: Buffer | None = None) -> np.ndarray[Any, Any]:
        buffer = buffer or Buffer()
        shape = (*self.whole[: self.axis], stop - start, *self.whole[self.axis + 1 :])
        length = check(self.path, self.offset + self.dtype.itemsize * math.prod(self.whole))
        if self.axis:  # a part of each row: pages are mapped while it is copied
            mapped = np.memmap(self.path, self.dtype, "r", self.offset, self.whole)
            found = buffer.array(shape, self.dtype)
            np.copyto(found, mapped[self.place(start, stop)])
            return found
        row = self.dtype.itemsize * math.prod(self.whole[1:])
        at, past = self.offset + start * row, self.once or length > available()
        found = read(self.path, at, shape[0] * row, buffer, past)
        return found.view(self.dtype).reshape(shape)

    def for_passes(self, count: int) -> File:
        """The file for a call that reads it so many times; what an earlier one has read is read again."""
        array = (self.path, self.offset, self.whole, self.axis)
        known = array in _READ
        if not known:
            _READ.append(array)
        return replace(self, once=count == 1 and not known)


_READ: deque[tuple[Any, ...]] = deque(maxlen=64)  # the last arrays in files that calls of this process have read


@dataclass(frozen=True, eq=False)
class Blocks(Source):
    """An array of Dask's, whose chunks along the axis are those of the call."""

    array: Any
    axis: int
    firsts: tuple[int, ...]  # where its chunks begin

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(int, self.array.shape))

    def key(self, number: int) -> tuple[Any, ...]:
        """What Dask calls the block of a chunk."""
        return (self.array.name, *[number if axis == self.axis else 0 for axis in range(len(self.shape))])

    def read(self, start: int, stop: int, buffer: Buffer | None = None) -> np.ndarray[Any, Any]:
        # of those that begin there, the last one has indices, and those before it have none
        number = bisect_right(self.firsts, start) - 1 if stop > start else bisect_left(self.firsts, start)
        block = self.array.blocks[(slice(None),) * self.axis + (number,)]
        return np.asarray(block.compute(scheduler="threads"))


@dataclass(frozen=True, eq=False)
class Sliced(Source):
    """Anything that has a shape and gives ranges."""

    array: Any
    axis: int
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(int, self.array.shape))

    def read(self, start: int, stop: int, buffer: Buffer | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.array[self.place(start, stop)], self.dtype)


def is_dask(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "dask" and hasattr(value, "to_delayed")


def source_of(value: Any, type: Type, axis: int, what: str) -> Source:
    """The source of an argument that is cut; TypeError for one of another scalar type or rank, or that is no array."""
    if is_dask(value) or (hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, np.ndarray)):
        if value.dtype != element(type).dtype or len(value.shape) != rank(type):
            raise TypeError(at_line(f"{what} is {type}, got an array of {value.dtype} with shape {value.shape}"))
        if not is_dask(value):
            return Sliced(value, axis, element(type).dtype)
        if any(np.isnan(size) for size in value.shape):
            value = value.compute_chunk_sizes()
        others = {k: -1 for k in range(rank(type)) if k != axis}
        value = value.rechunk(others)
        return Blocks(value, axis, _firsts(value.chunks[axis]))
    if isinstance(value, np.memmap) and value.dtype == element(type).dtype and value.ndim == rank(type):
        found = _file(value, axis)
        if found is not None:
            return found
    return InMemory(array_of_type(value, type, what), axis)


def _firsts(lengths: Sequence[int]) -> tuple[int, ...]:
    return tuple([int(first) for first in np.cumsum([0, *lengths])[:-1]])


def _file(array: np.memmap[Any, Any], axis: int) -> File | None:
    """The file of a map, or of a part of it that is in row-major order; None where it cannot be told."""
    path, base = array.filename, array
    while isinstance(base.base, np.memmap):
        base = base.base
    if path is None or array.mode == "c" or not array.flags.c_contiguous:  # "c": what was written is in memory alone
        return None
    start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return File(str(Path(path).absolute()), int(base.offset) + start, array.dtype, array.shape, axis)
