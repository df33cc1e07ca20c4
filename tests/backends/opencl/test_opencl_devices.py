"""OpenCL devices: which there are, how one is chosen, what is said where one is missing, and arrays on them."""

import dataclasses
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_device import ROOT

import adze as az
from adze.backends.opencl import devices as module
from adze.backends.opencl.devices import (
    VARIABLE,
    Device,
    build_options,
    choose,
    opened,
    out_of_memory,
    require_double,
    require_memory,
    target_of,
)

DTYPES = [np.float32, np.float64, np.int32, np.int64, np.uint8, np.int16, np.uint64, np.bool_]
GIB = 1 << 30


def record(index: int = 0, **changes: Any) -> Device:
    """A device that no driver has."""
    # fmt: off
    plain = {
        "platform": "Platform", "name": f"Device {index}", "vendor": "Vendor", "driver": "1.0", "kind": "gpu",
        "compute_units": 10, "memory": 8 * GIB, "largest_allocation": 2 * GIB, "local_memory": 48 << 10,
        "largest_group": 1024, "double": True, "int64_atomics": True, "multiply_add": True, "rounded_division": True,
    }
    # fmt: on
    return Device(index, handle=object(), **(plain | changes))


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that these devices are there; those whose driver is "broken" build nothing."""
    pytest.importorskip("pyopencl")

    def pretend(*found: Device) -> None:
        monkeypatch.delenv(VARIABLE, raising=False)
        monkeypatch.setattr(module, "_listed", lambda: found)
        monkeypatch.setattr(module, "_probe", lambda d: "error: no compiler" if d.driver == "broken" else None)

    return pretend


def python(code: str, **environment: str) -> str:
    """What Python code prints, in a process of its own."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


# What is missing


@pytest.mark.rest
def test_without_pyopencl() -> None:
    """Adze imports and compiles for the CPU; what needs OpenCL says what to install."""
    shown = python("""
        import sys
        sys.modules["pyopencl"] = None
        import adze as az
        print(az.program(lambda x: az.sum(x)).at(az.Array[az.f64, "n"])([1.0, 2.5]))
        for needs_it in (az.devices, lambda: az.to_device(1.0)):
            try:
                needs_it()
            except ImportError as error:
                print(error)
    """)
    value, *errors = shown.splitlines()
    assert value == "3.5" and len(errors) == 2
    assert all("pip install 'adze-lang[opencl]'" in error for error in errors)


@pytest.mark.rest
def test_without_a_driver(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    code = """
        import adze as az
        print(az.devices())
        try:
            az.to_device(1.0)
        except RuntimeError as error:
            print(error)
    """
    shown = python(code, OCL_ICD_VENDORS=str(tmp_path), OCL_ICD_FILENAMES="")
    assert shown.startswith("()\nthere is no OpenCL driver on this machine")
    assert "apt install pocl-opencl-icd" in shown and "OCL_ICD_VENDORS" in shown


@pytest.mark.rest
def test_adze_does_not_import_pyopencl() -> None:
    assert python("import adze, sys; print('pyopencl' in sys.modules)") == "False\n"


# How one is chosen


def test_the_first_usable_device_of_the_best_kind(listed: Callable[..., None]) -> None:
    cpu, accelerator = record(0, kind="cpu"), record(1, kind="accelerator")
    broken, gpu = record(2, driver="broken"), record(3)
    listed(cpu, accelerator, broken, gpu)
    assert choose() is gpu and az.devices() == (cpu, accelerator, broken, gpu)
    assert not broken.usable and broken.problem == "error: no compiler"
    listed(cpu, accelerator, broken)
    assert choose() is accelerator
    listed(broken, cpu)
    assert choose() is cpu


def test_devices_that_build_nothing(listed: Callable[..., None]) -> None:
    listed(record(0, driver="broken"), record(1, driver="broken", kind="cpu"))
    with pytest.raises(RuntimeError, match=r"(?s)no OpenCL device .*apt install.*Device 0.*no compiler.*Device 1"):
        choose()
    with pytest.raises(RuntimeError, match=r"<device 1: .*> builds or runs no kernel: error: no compiler"):
        choose(1)


def test_a_device_by_its_name(listed: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    h100, h200 = record(0, name="NVIDIA H100", platform="CUDA"), record(1, name="NVIDIA H200", platform="CUDA")
    other, long = record(2, name="pthread", platform="Portable"), record(3, name="pthread 8x", platform="Portable")
    listed(h100, h200, other, long)
    assert choose("h100") is h100 and choose(" H200 ") is h200 and choose("pthread") is other and choose("8X") is long
    assert choose(1) is h200 and choose(np.int64(2)) is other and choose("2") is other and choose("200") is h200
    assert choose(other) is other
    for named, expected in (("H200", h200), ("0", h100), ("  ", h100)):
        monkeypatch.setenv(VARIABLE, named)
        assert choose() is expected and choose("pthread") is other


def test_names_that_mean_no_device(listed: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    listed(record(0, name="NVIDIA H100"), record(1, name="NVIDIA H200"))
    for wrong in ("amd", 2, -1, "7"):
        with pytest.raises(ValueError, match=r"(?s)there is no such OpenCL device, but.*NVIDIA H100.*NVIDIA H200"):
            choose(wrong)
    with pytest.raises(ValueError, match=r"(?s)device='nvidia': several devices fit: give an index of.*H100.*H200"):
        choose("nvidia")
    for strange in (1.5, True, ["h100"]):
        with pytest.raises(TypeError, match="names no device"):
            choose(strange)
    monkeypatch.setenv(VARIABLE, "amd")
    with pytest.raises(ValueError, match="ADZE_OPENCL_DEVICE='amd': there is no such OpenCL device"):
        choose()


# What one is


def test_devices_of_this_machine(opencl: Device) -> None:
    assert (
        opencl in az.devices() and opencl.usable and [d.index for d in az.devices()] == list(range(len(az.devices())))
    )
    assert f"<device {opencl.index}: {opencl.name}, {opencl.kind} of" in repr(opencl)
    assert choose(opencl.handle) is opencl and choose(opencl.index) is opencl


def test_a_probe_that_fails(opencl: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error shows the log of the build; wrong numbers are no success."""
    monkeypatch.setattr(module, "_PROBE", "__kernel void probe(__global int *x) { x[0] = nonsense; }")
    assert "nonsense" in str(module._probe(opencl))
    monkeypatch.setattr(module, "_PROBE", "__kernel void probe(__global int *x) { x[get_global_id(0)] = 1; }")
    assert module._probe(opencl) == "a small kernel ran and gave wrong numbers"


def test_what_the_scheduler_knows() -> None:
    gpu = target_of(record())
    assert (gpu.group, gpu.threads, gpu.shared_bytes) == (256, 20480, 47 << 10)
    assert gpu.parallel and gpu.atomics and gpu.multiply_add
    cpu = target_of(record(kind="cpu", multiply_add=False, int64_atomics=False))
    assert (cpu.group, cpu.threads) == (64, 10240) and cpu.multiply_add and not cpu.atomics
    small = target_of(record(largest_group=100, multiply_add=False, local_memory=512))
    assert small.group == 64 and not small.multiply_add and small.shared_bytes == 0
    assert target_of(record(largest_group=1)).group == 1


def test_build_options() -> None:
    assert build_options(record()) == ("-cl-std=CL1.2", "-w", "-cl-fp32-correctly-rounded-divide-sqrt")
    assert build_options(record(rounded_division=False)) == ("-cl-std=CL1.2", "-w")


def test_no_double_precision() -> None:
    require_double(record(), "f")
    with pytest.raises(TypeError, match=r"f has values of f64, and Device 0 has no double precision.*f32 run there"):
        require_double(record(double=False), "f")


def test_too_little_memory() -> None:
    require_memory(record(), "f", 8 * GIB, 2 * GIB)
    with pytest.raises(MemoryError, match=r"f: a call takes 9\.00 GiB on the device, and Device 0 has 8\.00 GiB"):
        require_memory(record(), "f", 9 * GIB, GIB)
    with pytest.raises(MemoryError, match=r"f: an array takes 3\.00 GiB, and Device 0 gives 2\.00 GiB at most"):
        require_memory(record(), "f", 4 * GIB, 3 * GIB)
    assert "takes 1.50 MiB" in str(out_of_memory(record(), "f", 3 << 19))


# What is open


def test_opened_once(opencl: Device) -> None:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(opened(opencl))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(each is opened(opencl) for each in found)


def in_child(connection: Any) -> None:
    try:
        connection.send(choose().name)
    except RuntimeError as error:
        connection.send(str(error))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused(opencl: Device) -> None:
    """Drivers do not survive a fork; a child that waited for them would wait forever."""
    opened(opencl)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=in_child, args=(sender,))
    child.start()
    child.join(60)
    assert child.exitcode == 0 and "OpenCL was used in the process from which this one was forked" in receiver.recv()


@pytest.mark.rest
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.usefixtures("opencl")
def test_a_child_forked_before_may_use_it() -> None:
    assert "True" in python("""
        import os
        import adze as az
        child = os.fork()
        if child == 0:
            print(any(device.usable for device in az.devices()), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """)


# Arrays


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (7,), (3, 4), (0,), (2, 0, 3)])
def test_there_and_back(opencl: Device, dtype: Any, shape: tuple[int, ...]) -> None:
    if dtype is np.float64 and not opencl.double:
        pytest.skip("the device has no double precision")
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    there = az.to_device(array, opencl)
    assert there.dtype == array.dtype and there.shape == shape and there.context == opened(opencl).context
    back = there.get()
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_arrays_of_any_layout(opencl: Device) -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    for given in (array.T, array[::2, ::-1], array.astype(">f4"), memoryview(array)):
        there = az.to_device(given, opencl)
        assert there.flags.c_contiguous and there.dtype == np.float32
        np.testing.assert_array_equal(there.get(), np.asarray(given))


def test_structures_and_numbers(opencl: Device) -> None:
    there = az.to_device({"a": (np.float32(1.5), [3, None]), "b": True}, opencl)
    assert there["a"][0].dtype == np.float32 and there["a"][1][0].dtype == np.int64 and there["b"].dtype == np.bool_
    assert there["a"][0].get() == 1.5 and there["a"][1][0].get() == 3 and there["a"][1][1] is None
    assert az.to_device(there, opencl)["b"] is there["b"]
    for wrong in (1j, "text", np.float16(1), 2**70, object()):
        with pytest.raises(TypeError, match=r"of type .* is not a value of the language|is no array"):
            az.to_device(wrong, opencl)


def test_doubles_on_a_device_without(opencl: Device) -> None:
    without = dataclasses.replace(opencl, double=False)
    with pytest.raises(TypeError, match="no double precision"):
        az.to_device(1.0, without)
    assert az.to_device(np.float32(1.0), without).get() == 1


# Arguments

both = pytest.mark.parametrize("run", [az.evaluate, az.compile], ids=["evaluate", "compile"])


@az.program
def scaled(x: az.Array[az.f32, "m n"], y: az.Array[az.f32, "n"], s: az.f32) -> az.Array[az.f32, "m n"]:
    return x * y * s


@both
def test_arguments_are_fetched(opencl: Device, run: Any) -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(4, dtype=np.float32)
    there, scale = az.to_device((x, y), opencl), az.to_device(np.float32(0.5), opencl)
    np.testing.assert_array_equal(run(scaled)(*there, scale), x * y / 2)
    np.testing.assert_array_equal(run(scaled)(x, there[1], 0.5), x * y / 2)
    inferred = az.program(lambda a, b: a["x"] * b)
    np.testing.assert_array_equal(run(inferred)({"x": there[0]}, scale), x / 2)


@both
@pytest.mark.parametrize(
    "part", [np.s_[1:], np.s_[:, 1:3], np.s_[::2], np.s_[::-1, ::-2], np.s_[2:, 3:], np.s_[:0, ::2], np.s_[1:2, ::3]]
)
def test_parts_of_arrays_are_fetched(opencl: Device, run: Any, part: Any) -> None:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    there = az.to_device(x, opencl)
    twice = az.program(lambda a: a + a).at(az.Array[az.f32, "m n"])
    np.testing.assert_array_equal(run(twice)(there[part]), 2 * x[part])
    np.testing.assert_array_equal(run(twice)(there.T[part]), 2 * x.T[part])


def test_arguments_stay_on_their_device(opencl: Device) -> None:
    """Whole arrays, also those that begin inside of others' memory; scalars and views with gaps are fetched."""
    x, context = np.arange(20, dtype=np.float32).reshape(4, 5), opened(opencl).context
    there, y = az.to_device(x, opencl), az.to_device(x[0], opencl)
    signature = scaled.at().signature
    leaves, sizes = signature.convert([there, y, az.to_device(np.float32(2), opencl)], context)
    assert leaves[0] is there and leaves[1] is y and leaves[2] == 2 and type(leaves[2]) is np.float32
    assert sizes == {"m": 4, "n": 5}
    leaves, sizes = signature.convert([there[1:], y, 2], context)
    assert leaves[0].offset == 20 and sizes == {"m": 3, "n": 5}
    leaves, _ = signature.convert([there[:, ::-1], there[1], 2], context)
    np.testing.assert_array_equal(leaves[0], x[:, ::-1])
    assert leaves[1].offset == 20


def test_wrong_arguments_on_a_device(opencl: Device) -> None:
    x, whole = az.to_device(np.ones((2, 3), np.float32), opencl), az.to_device(np.ones((2, 3), np.int32), opencl)
    with pytest.raises(
        TypeError, match=r"scaled: argument 'x' is f32\[m, n\], got an array of int32 with shape \(2, 3\), on a device"
    ) as caught:
        scaled(whole, x[0], 1.0)
    assert "test_opencl_devices.py:" in str(caught.value)
    with pytest.raises(TypeError, match=r"argument 'y' is f32\[n\], got an array of float32 with shape \(2, 3\), on"):
        scaled(x, x, 1.0)
    with pytest.raises(ValueError, match=r"n is 3 in argument 'x' .*, but 2 in argument 'y'"):
        scaled(x, x[0, :2], 1.0)
    with pytest.raises(ValueError, match="'x' is an array on another device or in another context than the call's"):
        scaled.at().signature.convert([x, x[0], 1.0], object())


def test_work_of_another_queue_is_awaited(opencl: Device) -> None:
    import pyopencl as cl
    from pyopencl import array as arrays

    on = opened(opencl)
    queue = cl.CommandQueue(on.context)
    there = arrays.zeros(queue, 1000, np.float32) + 1
    on.wait_for(there)
    statuses = [event.command_execution_status for event in there.events]
    assert all(status == cl.command_execution_status.COMPLETE for status in statuses)
    on.wait_for(there.with_queue(None))


# The simulator

RACE = """
    import numpy as np, pyopencl as cl
    import adze as az
    from adze.backends.opencl.devices import choose, opened
    on = opened(choose())
    x = az.to_device(np.arange(64, dtype=np.int32))
    source = "__kernel void f(__global int *x) {{ int i = get_global_id(0); x[i] = x[{0}] + 1; }}"
    cl.Program(on.context, source).build().f(on.queue, (64,), (16,), x.base_data)
    print(choose().name, x.get()[-1])
"""


@pytest.mark.rest
def test_the_simulator_runs_kernels(oclgrind: Callable[[str], str]) -> None:
    shown = oclgrind(RACE.format("i"))
    assert shown.startswith("Oclgrind") and shown.endswith(" 64\n")


@pytest.mark.rest
def test_the_simulator_finds_races(oclgrind: Callable[[str], str]) -> None:
    with pytest.raises(AssertionError, match="data race"):
        oclgrind(RACE.format("0"))
