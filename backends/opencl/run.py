"""The host's part of a function: what is around its kernels, run on NumPy's scalars.

A function is made ready once: its kernels are built, and each statement of the host becomes a Python function of the
*call*, which holds the scalars and the device's memory. Kernels go to a queue that runs them in order; the host waits
only where it reads a number back, and at the end. Temporaries have their places by the memory plan
(``memory/arena.py``), each slot a piece of the device's pool. What the plan takes is compared with the device's memory
before anything runs. Before it waits for the device it asks for signals (``interrupts.py``).
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from ...core.stages import stage
from ...core.types import bool_, f64
from .. import ir
from ..memory.arena import plan, room
from ..memory.scratch import with_heaps
from ..runtime import Failure
from ..target import Target
from .devices import Device, build_options, opened, out_of_memory, require_double, require_memory, target_of
from .kernels import split
from .names import c_name
from .source import FAILURE_VALUES, Entry, source

Value = Callable[["Call"], Any]
Step = Callable[["Call"], None]

_FAILURE_BYTES = 8 * (1 + FAILURE_VALUES)
# Memory for the temporaries of all threads of a kernel; where it is not enough, fewer threads run
_SCRATCH_SHARE = 8


class Failed(Exception):
    """A requirement that the host looked at did not hold."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


@dataclass
class Call:
    """The state of one call."""

    names: dict[str, Any]
    memory: dict[str, Any]  # by buffer
    arguments: Mapping[str, Any]  # scalar arguments, by buffer
    failure: Any = None  # the record, where something is required
    returned: dict[int, tuple[Any, tuple[int, ...]]] = field(default_factory=dict)
    slots: dict[int, Any] = field(default_factory=dict)
    events: list[tuple[str, Any]] | None = None  # of kernels, for a profile


def in_kernels(function: ir.Function, target: Target) -> ir.Function:
    """What the device and the host run of a function, with memory for what kernels allocate."""
    return with_heaps(split(function), target.group)


class Executable:
    """A function of the loop IR in kernels, ready to run on a device. One call runs at a time."""

    def __init__(self, function: ir.Function, device: Device, name: str) -> None:
        import pyopencl as cl

        self.cl, self.device, self.name = cl, device, name
        self.on = opened(device)
        self.target = target_of(device)
        self.function = function
        self._require_types()
        with stage("emit"):
            self.source = source(self.function, self.target.group)
        with stage("OpenCL"):
            program = self._built()
        self.kernels = {name: _typed(getattr(program, c_name(name)), e) for name, e in self.source.entries.items()}
        self.plan = plan(self.function)
        statements = list(ir.walk(self.function.body))
        self.fails = any(isinstance(each, ir.Require) for each in statements)
        self.scalar_arguments = {buffer.name for buffer in self.function.arguments if not buffer.extents}
        self.steps = self._block(self.function.body)
        self.prelude = self._block(self.plan.prelude)
        self.lock = threading.RLock()  # which does not keep a handler of signals from coming here again
        self.running = False
        self.planned = 0  # bytes of the present call
        self.extents: dict[ir.Buffer, list[Value]] = {}

    def _require_types(self) -> None:
        """TypeError where the device does not compute with what the program has."""
        statements = list(ir.walk(self.function.body))
        buffers = [*self.function.arguments, *self.function.results]
        buffers += [each.buffer for each in statements if isinstance(each, ir.Allocate)]
        scalars = {part.type for each in statements for whole in ir.expressions_of(each) for part in ir.inside(whole)}
        if f64 in scalars or any(buffer.scalar == f64 for buffer in buffers):
            require_double(self.device, self.name)

    def _built(self) -> Any:
        """The kernels, built by the driver; pyopencl keeps their binaries for other processes."""
        program = self.cl.Program(self.on.context, self.source.text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", self.cl.CompilerWarning)
                return program.build(list(build_options(self.device)))
        except self.cl.Error as error:
            most = self.device.handle.max_parameter_size
            wide = [entry.name for entry in self.source.entries.values() if entry.parameter_bytes > most]
            reason = f"{', '.join(wide)}: more than the {most} bytes of parameters that it takes; " if wide else ""
            raise RuntimeError(
                f"{self.name}: the driver of {self.device.name} does not build its kernels: {reason}{error}"
            ) from error

    # Calls

    def run(
        self,
        arrays: Mapping[str, Any],
        sizes: Mapping[str, int],
        events: list[tuple[str, Any]] | None = None,
    ) -> tuple[list[tuple[Any, tuple[int, ...]]], Failure | None]:
        """Run on arguments by the names of their buffers: NumPy's scalars, and memory of the device.

        Gives the device's memory and the shape of each result, then of each returned array; and the first failure.
        """
        with self._alone(), np.errstate(all="ignore"):
            names = {name: np.int64(sizes[name]) for name in self.function.sizes}
            scalars = {name: value for name, value in arrays.items() if name in self.scalar_arguments}
            memory = {name: value for name, value in arrays.items() if name not in scalars}
            call = Call(names, memory, scalars, events=events)
            try:
                return self._run(call)
            except BaseException:
                self.on.progress.leave(call)
                raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One call at a time; RuntimeError for a handler of signals that calls what it has interrupted."""
        with self.lock:
            if self.running:
                raise RuntimeError(f"{self.name} is called by a handler of a signal that has interrupted a call of it")
            self.running = True
            try:
                yield
            finally:
                self.running, self.planned = False, 0

    def _run(self, call: Call) -> tuple[list[tuple[Any, tuple[int, ...]]], Failure | None]:
        self._reserve(call)
        failure = None
        try:
            self.steps(call)
        except Failed as failed:
            failure = failed.failure
        except MemoryError:  # how much it asked for may be due to what failed
            failure = self._failure(call)
            if failure is None:
                raise
        results = [(call.memory[b.name], self._shape(b, call)) for b in self.function.results]
        results += [call.returned.get(k, (None, ())) for k in range(self.function.returned)]
        return results, self._failure(call) or failure

    def peak_bytes(self, sizes: Mapping[str, int]) -> int:
        """What the plan takes on the device: temporaries and results."""
        with np.errstate(all="ignore"):
            slots, results = self._room({name: np.int64(sizes[name]) for name in self.function.sizes})
            return sum(slots) + sum(results)

    def _room(self, sizes: Mapping[str, Any]) -> tuple[list[int], list[int]]:
        """The bytes of each slot of the plan, and of each result."""
        call = Call(dict(sizes), {}, {})
        self.prelude(call)
        slots = [self._bytes(slot.like, call) for slot in self.plan.slots]
        return slots, [self._bytes(buffer, call) for buffer in self.function.results]

    def _reserve(self, call: Call) -> None:
        """Memory for the results; MemoryError where what is planned does not fit."""
        slots, results = self._room(call.names)
        self.planned = sum(slots) + sum(results)
        require_memory(self.device, self.name, self.planned, max([*slots, *results], default=0))
        call.slots = {k: self._allocate(count) for k, count in enumerate(slots)}
        for buffer, count in zip(self.function.results, results, strict=True):
            call.memory[buffer.name] = self._allocate(count)
        if self.fails:
            call.failure = self._allocate(_FAILURE_BYTES)
            self.cl.enqueue_fill_buffer(self.on.queue, call.failure, np.zeros(1, np.int32), 0, _FAILURE_BYTES)

    def _failure(self, call: Call) -> Failure | None:
        if not self.fails:
            return None
        record = np.zeros(1 + FAILURE_VALUES, np.int64)
        self.on.progress.wait()
        self.cl.enqueue_copy(self.on.queue, record, call.failure)
        site = int(record[:1].view(np.int32)[0])
        return Failure(site - 1, tuple(map(int, record[1:]))) if site else None

    def _allocate(self, count: int) -> Any:
        if count > self.device.largest_allocation:
            raise out_of_memory(self.device, self.name, max(count, self.planned))
        return self.allocate(count)

    def allocate(self, count: int) -> Any:
        """Memory of the device; MemoryError where it has none."""
        try:
            return self.on.pool.allocate(max(8, -(-count // 8) * 8))
        except (self.cl.MemoryError, self.cl.RuntimeError, self.cl.LogicError) as error:  # the last for absurd sizes
            raise out_of_memory(self.device, self.name, max(count, self.planned)) from error

    # Sizes

    def _shape(self, buffer: ir.Buffer, call: Call) -> tuple[int, ...]:
        extents = self.extents.get(buffer)
        if extents is None:
            extents = self.extents[buffer] = [self._value(extent) for extent in buffer.extents]
        return tuple([max(0, int(extent(call))) for extent in extents])

    def _bytes(self, buffer: ir.Buffer, call: Call) -> int:
        """Room for all that may be read, where an index is clamped, too."""
        return room(self._shape(buffer, call)) * buffer.scalar.bytes

    # Statements of the host

    def _block(self, block: ir.Block) -> Step:
        steps = [self._statement(statement) for statement in block]

        def run(call: Call) -> None:
            for step in steps:
                step(call)

        return run

    def _statement(self, statement: ir.Statement) -> Step:
        match statement:
            case ir.Let(name, value) | ir.Declare(name, value) | ir.Assign(name, value):
                compute = self._value(value)

                def bind(call: Call) -> None:
                    call.names[name] = compute(call)

                return bind
            case ir.Allocate(buffer):
                return self._allocation(buffer)
            case ir.Kernel(name, body):
                launch, test = self._launch(self.source.entries[name]), ir.writes_elements(body)
                if test is None:
                    return launch
                fills = self._value(test)
                return lambda call: launch(call) if fills(call) else None
            case ir.For():
                return self._loop(statement)
            case ir.If(test, then, orelse):
                holds, first, second = self._value(test), self._block(then), self._block(orelse)
                return lambda call: first(call) if holds(call) else second(call)
            case ir.While():
                return self._while(statement)
            case ir.Require(test, site, values):
                return self._requirement(self._value(test), site, [self._value(value) for value in values])
            case ir.Return(number, buffer):

                def give(call: Call) -> None:
                    call.returned[number] = call.memory[buffer.name], self._shape(buffer, call)

                return give
        raise AssertionError(f"the host does not run {statement}")

    def _allocation(self, buffer: ir.Buffer) -> Step:
        slot = self.plan.slot_of.get(buffer.name)

        def place(call: Call) -> None:
            call.memory[buffer.name] = (
                call.slots[slot] if slot is not None else self._allocate(self._bytes(buffer, call))
            )

        return place

    def _loop(self, loop: ir.For) -> Step:
        extent, body, variable = self._value(loop.extent), self._block(loop.body), loop.variable

        def run(call: Call) -> None:
            for i in range(int(extent(call))):
                call.names[variable] = np.int64(i)
                body(call)

        return run

    def _while(self, statement: ir.While) -> Step:
        head, test, body = self._block(statement.head), self._value(statement.test), self._block(statement.body)
        requires = ir.contains((statement,), ir.Require)

        def run(call: Call) -> None:
            head(call)
            while test(call) and not (requires and self._failure(call)):
                body(call)
                head(call)

        return run

    def _requirement(self, test: Value, site: int, values: Sequence[Value]) -> Step:
        def look(call: Call) -> None:
            if not test(call):
                integers = tuple([int(value(call)) for value in values])
                raise Failed(Failure(site, integers + (0,) * (FAILURE_VALUES - len(integers))))

        return look

    # Expressions of the host

    def _value(self, expression: ir.Expression) -> Value:
        match expression:
            case ir.Constant(value, type):
                number = type.dtype.type(value)
                return lambda call: number
            case ir.Variable(name):
                return lambda call: call.names[name]
            case ir.Apply(primitive, arguments, type):
                operands, scalar = [self._value(each) for each in arguments], type.dtype.type
                return lambda call: scalar(primitive.numpy(*[operand(call) for operand in operands]))
            case ir.Select(test, then, orelse):
                holds, first, second = self._value(test), self._value(then), self._value(orelse)
                return lambda call: first(call) if holds(call) else second(call)
            case ir.MultiplyAdd():
                raise AssertionError("a sum of products is the device's")
            case ir.All() | ir.First():
                raise AssertionError("threads are no lanes of vectors")
            case ir.Load(buffer, indices):
                return self._read_back(buffer, [self._value(index) for index in indices])

    def _read_back(self, buffer: ir.Buffer, indices: Sequence[Value]) -> Value:
        if buffer.name in self.scalar_arguments:
            return lambda call: call.arguments[buffer.name]
        dtype = buffer.scalar.dtype

        def read(call: Call) -> Any:
            place = 0
            for index, extent in zip(indices, self._shape(buffer, call), strict=True):
                place = place * extent + int(index(call))
            number = np.empty(1, dtype)
            self.on.progress.wait()
            self.cl.enqueue_copy(self.on.queue, number, call.memory[buffer.name], src_offset=place * dtype.itemsize)
            return number[0]

        return read

    # Kernels

    def _launch(self, entry: Entry) -> Step:
        kernel = self.kernels[entry.name]
        scalars = [(name, scalar == bool_) for name, scalar in entry.scalars]
        buffers = [buffer.name for buffer in entry.buffers]
        grid = [self._value(extent) for extent in entry.grid]
        group = entry.group if entry.grouped or grid else 1

        def launch(call: Call) -> None:
            total = prod([max(0, int(extent(call))) for extent in grid])
            if total == 0:
                return
            groups = self._groups(entry, total, call) if grid else 1
            values = [np.uint8(call.names[name]) if test else call.names[name] for name, test in scalars]
            values += [call.memory[name] for name in buffers]
            for each in entry.scratch:
                count = groups if each.of_group else groups * group
                values.append(self._allocate(self._bytes(each.buffer, call) * count))
            values += [self.cl.LocalMemory(self._bytes(buffer, call)) for buffer in entry.shared]
            if entry.fails:
                values.append(call.failure)
            kernel.set_args(*values)
            event = self.cl.enqueue_nd_range_kernel(self.on.queue, kernel, (groups * group,), (group,))
            self.on.progress.enqueued(event)
            if call.events is not None:
                call.events.append((entry.name, event))

        return launch

    def _groups(self, entry: Entry, total: int, call: Call) -> int:
        """How many groups run a grid: where they take turns, as many as keep the device at work and have memory."""
        wanted = total if entry.grouped else -(-total // entry.group)
        if not entry.strides:
            return wanted
        wanted = min(wanted, max(1, self.target.threads // entry.group))
        if entry.scratch:
            each = sum(self._bytes(s.buffer, call) * (1 if s.of_group else entry.group) for s in entry.scratch)
            wanted = min(wanted, max(1, self.device.memory // _SCRATCH_SHARE // each))
        return wanted


def _typed(kernel: Any, entry: Entry) -> Any:
    """The kernel with the types of its numbers, which need not be found out at each launch; a truth value is a byte."""
    numbers = [np.dtype(np.uint8) if scalar == bool_ else scalar.dtype for _, scalar in entry.scalars]
    others = len(entry.buffers) + len(entry.scratch) + len(entry.shared) + entry.fails
    kernel.set_scalar_arg_dtypes([*numbers, *[None] * others])
    return kernel
