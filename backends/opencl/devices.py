"""OpenCL devices: which there are, which one a program runs on, and what is kept open for it.

A driver may list a device for which it cannot build a kernel, so a device is *usable* when a small kernel was built
for it and ran; that is tried when somebody first wants to know. What a process opens on a device, it opens once: a
context, a queue that runs in order, and a pool of memory. The drivers do not survive a ``fork``, so a child of a
process that has used OpenCL is refused; ``pyopencl`` is imported on first use, and Adze works without it::

    az.devices()                          (<device 0: NVIDIA H100 80GB HBM3, gpu of NVIDIA CUDA, ...>, <device 1: ...>)
    az.compile(f, backend="opencl")       on the device that ADZE_OPENCL_DEVICE names, else the first usable GPU, ...
    az.compile(f, backend="opencl", device="h100")
    az.to_device(x)                       an array that stays on the device between calls
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np

from ...core import trees
from ...core.host_arrays import MASKED, advice, is_masked, on_device, read_array, scalar_in
from ...core.source import at_line
from ...core.types import f64
from ..target import Target
from .interrupts import Progress

VARIABLE = "ADZE_OPENCL_DEVICE"

NO_PYOPENCL = "OpenCL needs the package pyopencl: pip install 'adze-lang[opencl]'"
NO_PLATFORM = (
    "there is no OpenCL driver on this machine. For the CPU: apt install pocl-opencl-icd. For a GPU: the driver of its "
    "vendor; where NVIDIA's is installed and not found, write a file nvidia.icd with the line libnvidia-opencl.so.1, "
    "and let the environment variable OCL_ICD_VENDORS name its folder"
)
_FORKED = (
    "OpenCL was used in the process from which this one was forked, and its drivers do not work in both: use it in the "
    "children only, or start them with multiprocessing.get_context('spawn')"
)
_KINDS = ("gpu", "accelerator", "cpu", "custom")  # in the order in which they are chosen
_PROBE = "__kernel void probe(__global int *x) { x[get_global_id(0)] = 3 * (int)get_global_id(0) + 1; }"
_PROBED = 64  # iterations of the probe
_LOG = 2000  # characters of a build log that an error shows
_RESERVED = 1 << 10  # bytes of local memory that are left to the driver

_lock = threading.RLock()
_process: int | None = None  # the one that has used OpenCL


@dataclass(frozen=True)
class Device:
    """An OpenCL device, as its driver describes it; memory is in bytes."""

    index: int  # in ``az.devices()``
    platform: str
    name: str
    vendor: str
    driver: str  # version
    kind: str  # "gpu", "accelerator", "cpu" or "custom"
    compute_units: int
    memory: int
    largest_allocation: int
    local_memory: int
    largest_group: int
    double: bool  # computes with f64
    int64_atomics: bool
    multiply_add: bool  # has a fused one
    rounded_division: bool  # of f32: divisions and square roots can be rounded correctly
    handle: Any = field(repr=False)  # the pyopencl.Device

    def __repr__(self) -> str:
        shown = f"<device {self.index}: {self.name}, {self.kind} of {self.platform}, {self.compute_units} compute units"
        return f"{shown}, {self.memory / 2**30:.1f} GiB, {'f64' if self.double else 'no f64'}>"

    @property
    def usable(self) -> bool:
        """Whether a kernel can be built and run: tried once."""
        return self.problem is None

    @cached_property
    def problem(self) -> str | None:
        """Why no kernel can be built or run, with the log of the build; None when one was."""
        _pyopencl()
        with _lock:
            return _probe(self)


def devices() -> tuple[Device, ...]:
    """All OpenCL devices of this machine, those of all platforms; none when no driver is installed.

    Raises ImportError when pyopencl is missing. Whether a listed device is ``usable`` is found out when one asks it.
    """
    _pyopencl()
    with _lock:
        return _listed()


def choose(device: Any = None) -> Device:
    """The device that is meant: by its index in ``az.devices()``, a part of its or its platform's name, or itself.

    None is what the environment variable ADZE_OPENCL_DEVICE says, else the first usable GPU, accelerator or CPU.
    Raises ImportError without pyopencl; RuntimeError when there is no driver or the device builds no kernel; ValueError
    for a device that there is not, or a name that several have; TypeError for what names no device.
    """
    found = devices()
    if not found:
        raise RuntimeError(NO_PLATFORM)
    named = os.environ.get(VARIABLE, "").strip()
    if device is None and not named:
        return _preferred(found)
    chosen = _found(device, found, "device=") if device is not None else _found(named, found, f"{VARIABLE}=")
    if chosen.problem is not None:
        raise RuntimeError(f"{chosen!r} builds or runs no kernel: {chosen.problem}")
    return chosen


def _preferred(found: Sequence[Device]) -> Device:
    for device in sorted(found, key=lambda device: _KINDS.index(device.kind)):
        if device.usable:
            return device
    problems = [f"{device!r}: {device.problem}" for device in found]
    advice = "no OpenCL device of this machine builds and runs a kernel; for the CPU: apt install pocl-opencl-icd"
    raise RuntimeError("\n".join([advice, *problems]))


def _found(wanted: Any, found: Sequence[Device], given: str) -> Device:
    """The one device that is wanted; a string of digits that is an index means the index."""
    if isinstance(wanted, Device):
        return wanted
    if isinstance(wanted, str) and wanted.isdecimal() and int(wanted) < len(found):
        wanted = int(wanted)
    if isinstance(wanted, bool | float):
        raise TypeError(f"{given}{wanted!r} names no device: give an index, a name, a Device or a pyopencl.Device")
    if isinstance(wanted, int | np.integer):
        fitting = [device for device in found if device.index == wanted]
    elif isinstance(wanted, str):
        part = wanted.strip().lower()
        fitting = [device for device in found if device.name.lower() == part]
        fitting = fitting or [device for device in found if part in f"{device.name}\n{device.platform}".lower()]
    elif isinstance(wanted, _pyopencl().Device):
        fitting = [device for device in found if device.handle == wanted]
    else:
        raise TypeError(f"{given}{wanted!r} names no device: give an index, a name, a Device or a pyopencl.Device")
    if len(fitting) != 1:
        listed = "\n".join(map(repr, fitting or found))
        which = "several devices fit: give an index of" if fitting else "there is no such OpenCL device, but"
        raise ValueError(f"{given}{wanted!r}: {which}\n{listed}")
    return fitting[0]


# What the driver says


def _pyopencl() -> Any:
    """The package pyopencl, in a process that may use it."""
    global _process
    if _process is not None and _process != os.getpid():
        raise RuntimeError(_FORKED)
    try:
        import pyopencl
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(NO_PYOPENCL, name="pyopencl") from error
    except ImportError as error:
        raise ImportError(f"pyopencl is installed, but cannot be imported: {error}") from error
    _process = os.getpid()
    return pyopencl


@cache
def _listed() -> tuple[Device, ...]:
    cl = _pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.LogicError as error:
        if error.code == cl.status_code.PLATFORM_NOT_FOUND_KHR:  # the loader has found no driver
            return ()
        raise
    found = [(platform.name, handle) for platform in platforms for handle in _of_platform(platform)]
    return tuple([_described(index, *each) for index, each in enumerate(found)])


def _of_platform(platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except _pyopencl().Error:  # a driver without its hardware
        return []


def _described(index: int, platform: str, handle: Any) -> Device:
    config = _pyopencl().device_fp_config
    extensions = handle.extensions.split()
    return Device(
        index=index,
        platform=platform.strip(),
        name=handle.name.strip(),
        vendor=handle.vendor.strip(),
        driver=handle.driver_version.strip(),
        kind=_kind(handle.type),
        compute_units=handle.max_compute_units,
        memory=handle.global_mem_size,
        largest_allocation=handle.max_mem_alloc_size,
        local_memory=handle.local_mem_size,
        largest_group=handle.max_work_group_size,
        double="cl_khr_fp64" in extensions,
        int64_atomics="cl_khr_int64_base_atomics" in extensions,
        multiply_add=bool(handle.single_fp_config & config.FMA),
        rounded_division=bool(handle.single_fp_config & config.CORRECTLY_ROUNDED_DIVIDE_SQRT),
        handle=handle,
    )


def _kind(bits: int) -> str:
    """What a device calls itself; a simulator calls itself everything, and is a CPU."""
    types = _pyopencl().device_type
    if bits & types.CPU:
        return "cpu"
    if bits & types.GPU:
        return "gpu"
    return "accelerator" if bits & types.ACCELERATOR else "custom"


def _probe(device: Device) -> str | None:
    """Build and run a small kernel; what went wrong, or None."""
    cl = _pyopencl()
    expected = 3 * np.arange(_PROBED, dtype=np.int32) + 1
    actual = np.zeros_like(expected)
    try:
        on = opened(device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            program = cl.Program(on.context, _PROBE).build(list(build_options(device)))
        memory = cl.Buffer(on.context, cl.mem_flags.READ_WRITE, actual.nbytes)
        program.probe(on.queue, actual.shape, None, memory)
        cl.enqueue_copy(on.queue, actual, memory)
    except cl.Error as error:
        return str(error).strip()[-_LOG:]
    return None if (actual == expected).all() else "a small kernel ran and gave wrong numbers"


# What is open


@dataclass(frozen=True)
class Opened:
    """A device in use: one context, one queue in order (which takes times), one pool of memory a process."""

    device: Device
    context: Any
    queue: Any
    pool: Any
    progress: Progress

    def wait_for(self, array: Any) -> None:
        """Let the work on a ``pyopencl.array.Array`` end that was given to another queue than ours."""
        if array.queue is not None and array.queue != self.queue:
            array.queue.finish()


_opened: dict[Device, Opened] = {}


def opened(device: Device) -> Opened:
    """What this process has open on a device; RuntimeError in a forked child, whose drivers do not work."""
    cl = _pyopencl()
    with _lock:
        found = _opened.get(device)
        if found is None:
            from pyopencl import tools

            context = cl.Context([device.handle])
            queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
            pool = tools.MemoryPool(tools.ImmediateAllocator(queue))
            found = _opened[device] = Opened(device, context, queue, pool, Progress(queue))
    return found


def build_options(device: Device) -> tuple[str, ...]:
    """How kernels are built: never with relaxed arithmetic; compilers keep their warnings to themselves."""
    return ("-cl-std=CL1.2", "-w", *(["-cl-fp32-correctly-rounded-divide-sqrt"] if device.rounded_division else []))


def target_of(device: Device) -> Target:
    """What the scheduler may know of a device.

    There are enough iterations at work to hide the latency of memory: some groups of them a compute unit. On CPUs a
    group is a loop of the driver, which it vectorises.
    """
    throughput = device.kind != "cpu"
    group = min(256 if throughput else 64, 1 << device.largest_group.bit_length() - 1)
    return Target(
        register_bytes=8,
        registers=32,
        l1_bytes=32 << 10,
        l2_bytes=1 << 20,
        parallel=True,
        multiply_add=device.multiply_add or not throughput,
        group=group,
        shared_bytes=max(0, device.local_memory - _RESERVED),
        threads=max(group, device.compute_units * (2048 if throughput else 1024)),
        units=device.compute_units,
        atomics=device.int64_atomics,
    )


# What a device cannot do


def require_double(device: Device, what: str) -> None:
    """TypeError when a device does not compute with f64, which ``what`` wants."""
    if not device.double:
        raise TypeError(
            f"{what} has values of f64, and {device.name} has no double precision (cl_khr_fp64): programs of f32 run "
            'there, programs of f64 on another device (az.devices()) or by az.compile(f, backend="llvm")'
        )


def require_memory(device: Device, what: str, peak: int, largest: int) -> None:
    """MemoryError when ``peak`` bytes in all, the largest array of ``largest`` bytes, can never fit on a device."""
    if peak > device.memory:
        raise out_of_memory(device, what, peak)
    if largest > device.largest_allocation:
        problem = f"{what}: an array takes {_size(largest)}, and {device.name} gives"
        raise MemoryError(at_line(f"{problem} {_size(device.largest_allocation)} at most to one"))


def out_of_memory(device: Device, what: str, peak: int) -> MemoryError:
    """The error of a call for whose ``peak`` bytes a device has no room."""
    problem = f"{what}: a call takes {_size(peak)} on the device, and {device.name} has {_size(device.memory)} in all"
    return MemoryError(at_line(f"{problem}, of which arrays that are still in use take their part"))


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 1 << 30 else f"{count / 2**20:.2f} MiB"


# Arrays


def to_device(x: Any, device: Any = None) -> trees.Structure:
    """Arrays and numbers in the memory of a device, as ``pyopencl.array.Array``; structures of them leaf by leaf.

    A program compiled for the device takes them without a copy, every other interpretation fetches them. Scalar types
    stay what they are. An array that is there already is given back as it is. ``device`` is chosen as by
    ``az.compile(..., device=...)``. Raises TypeError for what is no array of the language's scalar types.
    """
    on = opened(choose(device))
    return trees.tree_map(lambda leaf: _moved(leaf, on), x)


def _moved(leaf: Any, on: Opened) -> Any:
    from pyopencl import array as arrays

    if on_device(leaf) and leaf.context == on.context:
        return leaf
    if is_masked(leaf):
        raise TypeError(at_line(f"az.to_device of {MASKED}"))
    try:
        array = read_array(leaf)
    except (ValueError, TypeError, BufferError) as error:
        raise TypeError(at_line(f"a value of type {type(leaf).__name__} is no array: {error}")) from None
    scalar = scalar_in(array)
    if scalar is None:
        problem = f"a value of type {type(leaf).__name__} ({array.dtype}) is not a value of the language"
        raise TypeError(at_line(problem + advice(array.dtype, None)))
    if scalar == f64:
        require_double(on.device, "the array" if array.ndim else "the number")
    return arrays.to_device(on.queue, np.array(array, scalar.dtype, order="C"), allocator=on.pool)
