"""Machine code for one instance of a program: built once, for all sizes and any number of threads."""

from __future__ import annotations

import ctypes
import math
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ...core import trees
from ...core.arguments import convert
from ...core.program import Instance
from ...core.source import at_line
from ...core.types import Type, dims, element
from ..loops import Function
from ..lowering import returned
from ..peak import Peak
from ..runtime import default_threads
from ..stages import loops_of
from ..transformations import ALL, Transformations
from .host import host_target
from .jit import Executable
from .unit import ALIGNMENT

_free = ctypes.CDLL(None).free  # of the C library


class Version:
    """The machine code of one instance. One serves all sizes, and may be called from several threads at once."""

    def __init__(self, instance: Instance, checks: bool, allowed: Transformations = ALL) -> None:
        started = time.perf_counter()
        self.instance = instance
        self.lowered = loops_of(instance, replace(host_target(), transformations=allowed), checks)
        self.executable = Executable(self.lowered.function)
        self.constants = [constant.array for constant in self.lowered.constants]
        self.results = [_Returned(type) if returned(type) else _Result(type) for type in instance.term.types]
        self.seconds = time.perf_counter() - started

    def run(self, leaves: Sequence[Any], threads: int | None) -> Any:
        """Run on the leaves of a call's arguments; the results have memory of their own."""
        arrays, sizes = convert(self.instance, leaves)
        buffers = [_readable(array) for array in arrays]
        results = [result.allocate(sizes) for result in self.results]
        loose = [result for result, how in zip(results, self.results, strict=True) if isinstance(how, _Returned)]
        written = [result for result, how in zip(results, self.results, strict=True) if isinstance(how, _Result)]
        addresses = [array.ctypes.data for array in (*buffers, *self.constants, *written, *loose)]
        extents = [sizes[name] for name in self.lowered.function.sizes]
        failure = self.executable.run(addresses, extents, threads or default_threads())
        results = [how.finish(result) for result, how in zip(results, self.results, strict=True)]
        if failure is not None:
            raise self.lowered.failures[failure.site].error(failure.values)
        values = [result if result.ndim else result[()] for result in results]
        return trees.unflatten(self.instance.outputs, values)

    @property
    def function(self) -> Function:
        """The loop IR that the code is made from."""
        return self.lowered.function

    @cached_property
    def _peak(self) -> Peak:
        return Peak(self.lowered.function)

    def peak_bytes(self, leaves: Sequence[Any], threads: int | None) -> int:
        """The bytes of the arena, of temporaries beside it and of the results of a call."""
        arrays, sizes = convert(self.instance, leaves)
        function, threads = self.lowered.function, threads or default_threads()
        named = zip(function.arguments, (*arrays, *self.constants), strict=True)
        try:
            dynamic = self._peak.bytes({buffer.name: array for buffer, array in named}, sizes, threads, ALIGNMENT)
        except LookupError as error:
            raise ValueError(
                at_line(
                    f"{self.instance.program.name}: how much memory a call takes is known when it has run: "
                    f"the size of the temporary {error.args[0]} (see az.compile(...).loops) is computed on the way"
                )
            ) from None
        arena = self.executable.arena_bytes([sizes[name] for name in function.sizes], threads)
        return arena + dynamic + sum(how.bytes(sizes) for how in self.results)


class _Result:
    """How to allocate a result for given sizes."""

    def __init__(self, type: Type) -> None:
        self.dims, self.dtype = dims(type), element(type).dtype

    def allocate(self, sizes: Mapping[str, int]) -> np.ndarray[Any, Any]:
        return np.empty(tuple([dim.evaluate(sizes) for dim in self.dims]), self.dtype)

    def bytes(self, sizes: Mapping[str, int]) -> int:
        return math.prod([dim.evaluate(sizes) for dim in self.dims]) * self.dtype.itemsize

    def finish(self, result: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return result


class _Returned:
    """How to take over a result whose size the run decides: the function writes its address and extents to a record."""

    def __init__(self, type: Type) -> None:
        self.rank, self.dtype = len(dims(type)), element(type).dtype

    def allocate(self, sizes: Mapping[str, int]) -> np.ndarray[Any, Any]:
        return np.zeros(1 + self.rank, np.int64)

    def bytes(self, sizes: Mapping[str, int]) -> int:
        return 0  # a temporary, until it is handed over

    def finish(self, record: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        address, *shape = map(int, record)
        shape = [max(0, length) for length in shape]
        memory = (ctypes.c_char * (math.prod(shape) * self.dtype.itemsize)).from_address(address)
        weakref.finalize(memory, _free, ctypes.c_void_p(address))
        return np.frombuffer(memoryview(memory), self.dtype).reshape(shape)


def _readable(array: np.ndarray[Any, Any] | np.generic) -> np.ndarray[Any, Any]:
    """An argument in row-major order; an empty one with room for one along each axis.

    A read whose index is clamped then touches the argument's own memory, even in an empty array.
    """
    if array.size == 0:
        return np.zeros([max(1, length) for length in array.shape], array.dtype)
    return np.ascontiguousarray(array)
