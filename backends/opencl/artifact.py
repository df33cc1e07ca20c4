"""The kernels of one form of a program, and their calls: arrays of the host or of the device in, the same out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...core import trees
from ...core.host_arrays import new_array, on_device
from ...core.program import Instance
from ...core.types import Type, element
from ..lowering import Lowered, returned
from ..memory.arena import room
from ..specialisations import ALWAYS, COMPILED, Specialisation, purpose
from .devices import Device
from .run import Executable


class Built:
    """The kernels of one form, which serve all sizes that take it."""

    def __init__(self, instance: Instance, lower: Callable[[], Lowered], device: Device) -> None:
        started = time.perf_counter()
        self.instance, self._lowered = instance, lower()
        function, types = self._lowered.function, self._lowered.types
        self.executable = Executable(function, device, instance.program.name)
        self.on = self.executable.on
        loose = [k for k, type in enumerate(types) if returned(type)]
        self._order = [*[k for k in range(len(types)) if k not in loose], *loose]
        hidden = function.arguments[len(instance.term.binders) :]
        self._constants = {
            buffer.name: self._moved(constant.array)
            for buffer, constant in zip(hidden, self._lowered.constants, strict=True)
        }
        self.seconds = time.perf_counter() - started

    def specialisations(self) -> list[Specialisation]:
        """All kernels."""
        return [Specialisation(ALWAYS, purpose(self.executable.function.body), COMPILED, self.seconds)]

    def warm(self, sizes: Mapping[str, int] | None) -> None:
        """All kernels are there already."""

    def run(
        self, arrays: Sequence[Any], sizes: Mapping[str, int], stays: bool, events: list[tuple[str, Any]] | None
    ) -> Any:
        """The results for converted arguments; whether they stay on the device."""
        parameters = self._lowered.function.arguments[: len(arrays)]
        memory = {buffer.name: self._placed(array) for buffer, array in zip(parameters, arrays, strict=True)}
        given, failure = self.executable.run({**memory, **self._constants}, sizes, events)
        if failure is not None:
            raise self._lowered.failures[failure.site].error(failure.values)
        results: dict[int, Any] = {}
        for k, (buffer, shape) in zip(self._order, given, strict=True):
            results[k] = self._result(buffer, shape, self._lowered.types[k], stays)
        return trees.unflatten(self.instance.outputs, [results[k] for k in range(len(results))])

    def _placed(self, array: Any) -> Any:
        """An argument as a kernel takes it: a number, or memory of the device."""
        if on_device(array):
            return self._memory_of(array)
        return array if array.ndim == 0 else self._moved(array)

    def _memory_of(self, array: Any) -> Any:
        self.on.wait_for(array)
        if array.size == 0:
            return self._moved(np.empty(array.shape, array.dtype))
        if array.offset == 0:
            return array.base_data
        copy = self.executable.allocate(array.nbytes)
        self.executable.cl.enqueue_copy(
            self.on.queue, copy, array.base_data, src_offset=array.offset, byte_count=array.nbytes
        )
        return copy

    def _moved(self, array: np.ndarray[Any, Any]) -> Any:
        """A copy on the device; of an empty array, room for what is read where an index is clamped."""
        memory = self.executable.allocate(room(array.shape) * array.itemsize)
        if array.nbytes:
            self.on.progress.wait()
            self.executable.cl.enqueue_copy(self.on.queue, memory, np.ascontiguousarray(array))
        return memory

    def _result(self, memory: Any, shape: tuple[int, ...], type: Type, stays: bool) -> Any:
        dtype = element(type).dtype
        if stays:
            from pyopencl.array import Array

            return Array(self.on.queue, shape, dtype, data=memory, allocator=self.on.pool)
        result = new_array(shape, dtype)
        self.on.progress.wait()
        if result.nbytes:
            self.executable.cl.enqueue_copy(self.on.queue, result, memory)
        return result if result.ndim else result[()]
