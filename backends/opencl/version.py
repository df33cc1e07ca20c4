"""OpenCL kernels for one instance of a program, and its calls: arrays of the host or of the device in, the same out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...core import trees
from ...core.host_arrays import new_array, on_device
from ...core.limits import lifted_limits
from ...core.program import Instance, convert
from ...core.types import Type, element
from .. import ir
from ..cost import Breakdown, Given, Row, estimate
from ..decisions import Choices, check_forced
from ..lowering import Lowered, returned
from ..memory.arena import room
from ..pipeline import forms_of, loops_of, nests_of
from ..schedule.summary import schedule_text
from ..specialisations import ALWAYS, COMPILED, Specialisation, purpose
from ..target import Target
from ..transformations import ALL, Transformations
from .devices import Device, target_of
from .interrupts import BRIEF
from .run import Executable, in_kernels


class Version:
    """The kernels of one instance for a device. One serves all sizes."""

    def __init__(
        self,
        instance: Instance,
        device: Device,
        checks: bool,
        deterministic: bool,
        allowed: Transformations = ALL,
    ) -> None:
        started = time.perf_counter()
        self.instance, self.device = instance, device
        self._target = replace(target_of(device), transformations=allowed)
        self._checks, self._deterministic = checks, deterministic
        self.lowered = self._lower(loops_of, self._target)
        check_forced(dict(allowed.force), [self.lowered.decisions], instance.program.annotated)
        self.executable = Executable(self.lowered.function, device, instance.program.name)
        self.on = self.executable.on
        types = self.lowered.types
        self.loose = [k for k, type in enumerate(types) if returned(type)]
        self.order = [*[k for k in range(len(types)) if k not in self.loose], *self.loose]
        hidden = self.lowered.function.arguments[len(instance.term.binders) :]
        self.constants = {
            buffer.name: self._moved(constant.array)
            for buffer, constant in zip(hidden, self.lowered.constants, strict=True)
        }
        self.seconds = time.perf_counter() - started
        self._brief: list[Any] | None = None  # the sizes and numbers of the latest call, if it was brief

    def _lower(self, stage: Callable[..., Lowered], target: Target) -> Lowered:
        [form] = forms_of(self.instance, target, self._checks)
        return stage(form, self.instance.program.name, target, self._checks, self._deterministic)

    def run(self, leaves: Sequence[Any], events: list[tuple[str, Any]] | None = None) -> Any:
        """Run on the leaves of a call's arguments.

        The results are NumPy's, unless an argument is an array on the device: then they stay there, too.
        """
        started = time.perf_counter()
        arrays, sizes = convert(self.instance, leaves, self.on.context)
        stays = any(on_device(leaf) for leaf in leaves)
        like = [*sizes.values(), *[array for array in arrays if array.ndim == 0]]
        with self.on.progress.of_call(not stays and like == self._brief):
            result = self._run(arrays, sizes, stays, events)
        self._brief = like if not stays and time.perf_counter() - started < BRIEF else None
        return result

    def _run(
        self, arrays: Sequence[Any], sizes: Mapping[str, int], stays: bool, events: list[tuple[str, Any]] | None
    ) -> Any:
        parameters = self.lowered.function.arguments[: len(arrays)]
        memory = {buffer.name: self._placed(array) for buffer, array in zip(parameters, arrays, strict=True)}
        given, failure = self.executable.run({**memory, **self.constants}, sizes, events)
        if failure is not None:
            raise self.lowered.failures[failure.site].error(failure.values)
        results: dict[int, Any] = {}
        for k, (buffer, shape) in zip(self.order, given, strict=True):
            results[k] = self._result(buffer, shape, self.lowered.types[k], stays)
        return trees.unflatten(self.instance.outputs, [results[k] for k in range(len(results))])

    @property
    def nests(self) -> str:
        with lifted_limits():
            return ir.text(self._lower(nests_of, self._target).function)

    @property
    def loops(self) -> str:
        """The loop IR, in kernels and what the host does around them."""
        return ir.text(self.executable.function)

    @property
    def schedule(self) -> str:
        return schedule_text(self.lowered.decisions, self.executable.function)

    def specialisations(self) -> list[Specialisation]:
        """The kernels, which serve all sizes."""
        return [Specialisation(ALWAYS, purpose(self.executable.function.body), COMPILED, self.seconds)]

    def warm(self, sizes: Mapping[str, int] | None) -> None:
        """All kernels are there already."""

    @property
    def source(self) -> str:
        return self.executable.source.text

    def given(self, leaves: Sequence[Any]) -> Given:
        """What is known of a call with these arguments."""
        arguments, sizes = convert(self.instance, leaves, self.on.context)
        return Given(sizes, arguments)

    def cost(self, given: Given) -> Breakdown:
        """What each kernel takes in a call, estimated."""
        return Breakdown.of(self._rows(self.lowered, self.executable.function, given))

    def _rows(self, form: Lowered, kernels: ir.Function, given: Given) -> list[Row]:
        with lifted_limits():
            return estimate(kernels, self._target, given.sizes, given.arrays(form), threads=1)

    def decisions(self, given: Given) -> Choices:
        """What was decided on the way, and what the other side of each decision would cost."""

        def forced(name: str, side: bool) -> float:
            target = replace(self._target, transformations=self._target.transformations.forcing(name, side))
            lowered = self._lower(loops_of, target)
            return Breakdown.of(self._rows(lowered, in_kernels(lowered.function, target), given)).seconds

        with lifted_limits():
            return Choices.of(self.lowered.decisions, self.cost(given).seconds, forced)

    def peak_bytes(self, leaves: Sequence[Any]) -> int:
        """The bytes on the device of a call's temporaries and results, as far as sizes decide them."""
        _, sizes = convert(self.instance, leaves, self.on.context)
        return self.executable.peak_bytes(sizes)

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
