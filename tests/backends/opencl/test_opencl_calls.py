"""Calls of programs on an OpenCL device: arguments and results, threads, memory, errors, profiles, and what is kept."""

import os
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_device import ROOT
from programs import numbers

import adze as az
from adze.backends.opencl.devices import Device
from adze.core.language import Unsupported

pytestmark = pytest.mark.usefixtures("opencl")


def compiled(program: Any, **options: Any) -> az.Compiled:
    return az.compile(program, backend="opencl", **options)


@az.program
def twice(a: az.Array[az.f64, "n m"]) -> Any:
    return a + a


@az.program
def loss(x: az.Array[az.f64, "m"], a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "n"]) -> az.f64:
    return az.sum((a @ x - b) ** 2)


gradient = az.grad(loss)


@az.program
def step(x: az.Array[az.f64, "m"], a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "n"], rate: az.f64) -> Any:
    """One step of gradient descent."""
    return x - rate * gradient(x, a, b)


@az.program
def statistics(x: az.Array[az.f64, "n"]) -> Any:
    return {"mean": az.mean(x), "largest": (az.max(x), az.argmax(x)), "sorted": az.sort(x)}


# Arguments and results


def test_arguments_of_any_stride_and_read_only() -> None:
    base = numbers(6, 8)
    base.flags.writeable = False
    run = compiled(twice)
    for a in (base, base[::2, ::-1], base.T, base[:, 1:3], np.asfortranarray(base)):
        np.testing.assert_array_equal(run(a), a + a)
        assert run(a).flags.writeable


def test_empty_arrays() -> None:
    for shape in ((0, 4), (3, 0), (0, 0)):
        np.testing.assert_array_equal(compiled(twice)(np.zeros(shape)), np.zeros(shape))
        np.testing.assert_array_equal(compiled(gradient)(np.ones(shape[1]), np.zeros(shape), np.ones(shape[0])), 0)


def test_structures_of_numbers_and_arrays() -> None:
    found = compiled(statistics)(np.array([3.0, 1.0, 8.0]))
    assert found["mean"] == 4 and found["largest"] == (8, 2) and type(found["mean"]) is np.float64
    np.testing.assert_array_equal(found["sorted"], [1, 3, 8])


def test_numbers_are_arguments(opencl: Device) -> None:
    """Numbers that only the host needs, that kernels need, and truth; from the device as well."""

    @az.program
    def f(n: az.i64, x: az.f32, up: az.bool_, a: az.f32) -> Any:
        return az.generate(n, lambda i: i.astype(az.f32) * x + a), n + 1, az.where(up, x, -x), ~up

    for up in (True, False):
        wanted = az.evaluate(f)(3, 0.5, up, np.float32(2))
        for place in (lambda value: value, lambda value: az.to_device(value, opencl)):
            got = compiled(f)(3, place(np.float32(0.5)), place(np.bool_(up)), place(np.float32(2)))
            for x, y in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(x if isinstance(x, np.ndarray | np.generic) else x.get(), y)


def test_results_never_share_memory() -> None:
    @az.program
    def same(a: az.Array[az.f64, "n"]) -> Any:
        return a, a, np.ones(3)

    a = az.to_device(numbers(5))
    first, second, constant = compiled(same)(a)
    first += 1
    second += 2
    constant += 3
    np.testing.assert_array_equal(a.get(), numbers(5))
    np.testing.assert_array_equal(first.get() + 1, second.get())
    np.testing.assert_array_equal(compiled(same)(numbers(5))[2], np.ones(3))


def test_results_stay_on_the_device_with_an_argument(opencl: Device) -> None:
    """An argument on the device is enough; also one that begins inside of another's memory, one with gaps, or empty."""
    import pyopencl.array as arrays

    x = numbers(6, 4)
    there, run = az.to_device(x, opencl), compiled(twice)
    for part in (np.s_[:], np.s_[2:], np.s_[:, ::-1], np.s_[:0]):
        found = run(there[part])
        assert isinstance(found, arrays.Array) and found.shape == x[part].shape
        np.testing.assert_array_equal(found.get(), 2 * x[part])
    assert isinstance(run(x), np.ndarray)
    value = compiled(loss)(there[0], x, numbers(6))
    assert isinstance(value, arrays.Array) and value.shape == ()
    np.testing.assert_allclose(value.get(), az.evaluate(loss)(x[0], x, numbers(6)), rtol=1e-12)
    np.testing.assert_array_equal(there.get(), x)


def test_an_optimiser_copies_nothing(opencl: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl as cl

    random = np.random.default_rng(0)
    a, b = random.normal(size=(40, 5)), random.normal(size=40)
    x, *data = az.to_device((np.zeros(5), a, b), opencl)
    run = compiled(step)
    x = run(x, *data, 0.004)
    copies: list[int] = []
    copy = cl.enqueue_copy
    monkeypatch.setattr(cl, "enqueue_copy", lambda *given, **more: [copies.append(1), copy(*given, **more)][1])
    for _ in range(200):
        x = run(x, *data, 0.004)
    assert not copies
    np.testing.assert_allclose(x.get(), np.linalg.lstsq(a, b)[0], rtol=1e-8)


# Calls at once, and in turn


@pytest.mark.unguarded
def test_several_threads_may_call_at_once() -> None:
    run = compiled(az.value_and_grad(loss))
    random = np.random.default_rng(1)
    inputs = [(random.normal(size=m), random.normal(size=(n, m)), random.normal(size=n)) for n, m in ((50, 3), (7, 90))]
    expected = [run(*each) for each in inputs]
    wrong: list[Any] = []

    def call(k: int) -> None:
        for _ in range(20):
            value, slope = run(*inputs[k])
            if value != expected[k][0] or slope.tobytes() != expected[k][1].tobytes():
                wrong.append((k, value, slope))

    callers = [threading.Thread(target=call, args=(k % 2,)) for k in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_two_programs_in_turn(opencl: Device) -> None:
    """What one gives the other takes, before anybody waits."""
    x = az.to_device(numbers(3, 4), opencl)
    a, b = compiled(twice), compiled(az.program(lambda m: m.T - 1.0).at(az.Array[az.f64, "n m"]))
    wanted = numbers(3, 4)
    for _ in range(5):
        x, wanted = b(a(x)), (2 * wanted).T - 1
    np.testing.assert_array_equal(x.get(), wanted)


# What is seen of it


@az.program
def softmax(x: az.Array[az.f64, "n m"]) -> Any:
    powers = az.exp(x - az.max(x, axis=1)[:, None])
    return powers / az.sum(powers, axis=1)[:, None]


def test_estimates() -> None:
    """Kernels, what they do in all their launches, and what other decisions would cost."""

    @az.program
    def powers(x: az.Array[az.f64, "n"], steps: az.i64) -> az.Array[az.f64, "n"]:
        return az.fori_loop(0, steps, lambda k, s: s * x, x)

    x = np.ones(10_000)
    found = az.cost(powers, target="opencl")(x, 7)
    (row,) = [row for row in found.rows if row.runs == 7]
    assert row.operations == 70_000 and row.seconds > 0
    ran = {row.name: row.runs for row in az.compile(powers, backend="opencl").profile(x, 7).rows}
    assert ran == {row.name: row.runs for row in found.rows if row.runs}

    @az.program
    def spread(x: az.Array[az.f64, "n"]) -> az.f64:
        y = az.exp(x)
        return az.sum(y) + az.max(y)

    run = az.compile(spread, backend="opencl")
    rows = run.decisions(sizes={"n": 10_000}).rows
    assert rows == run.decisions(x).rows == run.decisions(az.to_device(x)).rows
    name, now, otherwise = rows[0].name, rows[0].seconds, rows[0].otherwise
    assert now == run.cost(x).seconds < otherwise
    apart = az.compile(spread, backend="opencl", schedule={"force": {name: False}})
    assert apart.cost(x).seconds == otherwise and float(apart(x)) == float(run(x))


def test_profile() -> None:
    run, x = compiled(softmax), numbers(200, 300)
    profile = run.profile(x)
    names = {row.name for row in profile.rows}
    assert len(names) >= 3 and all(f"kernel void {name}(" in run.opencl_source for name in names)
    assert all(row.runs == 1 and row.seconds > 0 for row in profile.rows)
    assert any(row.operations >= 100 for row in profile.rows)
    assert profile.seconds >= max(row.seconds for row in profile.rows)
    assert len(str(profile).splitlines()) == len(profile.rows) + 2
    assert run.profile(np.zeros((0, 0))).rows == ()


def test_source_can_be_read() -> None:
    """A comment at each kernel says what it computes, in names of the program's parameters and sizes."""
    run = compiled(softmax)
    lines = run.opencl_source.splitlines()
    heads = [k for k, line in enumerate(lines) if line.startswith("kernel void")]
    assert heads
    for head in heads:
        above = [line for line in lines[max(0, head - 3) : head] if line.startswith("//")]
        assert above, lines[head]
    assert "const long n" in run.opencl_source and "const long m" in run.opencl_source
    assert "kernel compute_" in run.loops and "parallel" in run.loops
    assert run.compile_seconds > 0


def test_what_another_backend_has() -> None:
    for name in ("llvm_ir", "assembly"):
        with pytest.raises(AttributeError, match=rf'no {name}: it was compiled with backend="opencl"'):
            getattr(compiled(twice), name)
    with pytest.raises(AttributeError, match="no bind"):
        compiled(twice).bind(numbers(2, 2))
    with pytest.raises(ValueError, match="out= is for backend="):
        compiled(twice)(numbers(2, 2), out=numbers(2, 2))
    with pytest.raises(AttributeError, match=r'no opencl_source: it was compiled with backend="llvm"'):
        _ = az.compile(twice).opencl_source


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="threads= is for backend="):
        compiled(twice, threads=2)
    with pytest.raises(ValueError, match=r'device= is for backend="opencl"'):
        az.compile(twice, device=0)
    with pytest.raises(ValueError, match="no such device"):
        compiled(twice, device="no such device")


# What goes wrong


def line_of(program: Any, offset: int) -> str:
    return f"test_opencl_calls.py:{program.function.__code__.co_firstlineno + offset}"


def raised(error: type[Exception], program: Any, *arguments: Any, alone: Sequence[tuple[Any, ...]] = ()) -> str:
    """What a program raises on the device: what it raises elsewhere. Afterwards it is as good as new.

    Where several threads fail, any of them may be told of: ``alone`` has arguments with which only one of them does.
    """
    run, told = compiled(program), list[str]()
    for _ in range(2):
        with pytest.raises(error) as caught:
            run(*arguments)
    for each in alone or [arguments]:
        with pytest.raises(error) as reference:
            az.compile(program)(*each)
        told.append(str(reference.value))
    assert str(caught.value) in told
    compiled(program, checks=False)(*arguments)
    return str(caught.value)


def test_an_index_out_of_range() -> None:
    @az.program
    def read(x: az.Array[az.f64, "n"], i: az.i64) -> az.f64:
        return x[i]  # the line

    for i in (5, -1, 2**62):
        message = raised(IndexError, read, numbers(5), i)
        assert f"index {i} is out of range" in message and "size is 5" in message and line_of(read, 2) in message
    assert compiled(read)(numbers(5), 4) == numbers(5)[4]


def test_an_index_out_of_range_in_a_map() -> None:
    @az.program
    def picked(x: az.Array[az.f64, "n"], places: az.Array[az.i64, "m"]) -> Any:
        return az.map(lambda i: x[i] * 2.0, places)  # the line

    places = np.arange(1000) % 5
    places[700] = 9
    message = raised(IndexError, picked, numbers(5), places)
    assert "index 9 is out of range" in message and line_of(picked, 2) in message
    for x, wrong in ((np.zeros(0), places), (numbers(5), np.array([2**60, -(2**60)]))):
        raised(IndexError, picked, x, wrong, alone=[(x, np.array([place])) for place in np.unique(wrong)])


@pytest.mark.rest
@pytest.mark.unguarded
def test_an_index_out_of_range_in_rows_and_their_gradient() -> None:
    @az.program
    def total(a: az.Array[az.f64, "n m"], rows: az.Array[az.i64, "k"]) -> az.f64:
        return az.sum(az.map(lambda i: az.sum(a[i] ** 2), rows))

    wild = np.array([0, 2**60, 2**60, 2**60])
    for a in (numbers(3, 1000), np.zeros((0, 1000))):
        for program in (total, az.grad(total)):
            with pytest.raises(IndexError):
                compiled(program)(a, wild)
            compiled(program, checks=False)(a, wild)


def test_division_of_integers_by_zero() -> None:
    @az.program
    def divided(a: az.Array[az.i64, "n"], b: az.Array[az.i64, "n"]) -> Any:
        return a // b, a % b  # the line

    a, b = np.array([7, -7, 7, -7, -(2**63)]), np.array([2, 2, -2, -2, -1])
    with np.errstate(all="ignore"):
        quotients, remainders = a // b, a % b
    found = compiled(divided)(a, b)
    np.testing.assert_array_equal(found[0], quotients)
    np.testing.assert_array_equal(found[1], remainders)
    b[3] = 0
    message = raised(ZeroDivisionError, divided, a, b)
    assert "integer division by zero" in message and line_of(divided, 2) in message


def test_a_requirement_that_fails_in_a_while_ends_it() -> None:
    """The loop would never end: the index that is refused reads as 0, which it waits for not to be."""

    @az.program
    def wait(x: az.Array[az.i64, "n"], start: az.i64) -> az.i64:
        return az.while_loop(lambda i: x[i] == 0, lambda i: i + 1, start)  # the line

    message = raised_quickly(wait, np.zeros(5, np.int64), 0)
    assert "index 5 is out of range" in message and line_of(wait, 2) in message
    assert compiled(wait)(np.array([0, 0, 1]), 0) == 2


def test_a_requirement_that_fails_in_a_while_of_kernels_ends_it() -> None:
    """The host runs several turns ahead of the test; the first failure is the one that counts."""

    @az.program
    def wait(x: az.Array[az.f64, "n"], places: az.Array[az.i64, "m"]) -> Any:
        def turn(s: Any) -> Any:
            i, y = s
            return i + 1, az.map(lambda p: y[p + i], places)  # the line

        return az.while_loop(lambda s: az.sum(s[1]) < 1000.0, turn, (0, x))

    message = raised_quickly(wait, np.zeros(5), np.array([0, 1, 2, 0, 0]))
    assert "index 5 is out of range" in message and "size is 5" in message and line_of(wait, 4) in message


def raised_quickly(program: Any, *arguments: Any) -> str:
    with pytest.raises(IndexError) as caught:
        compiled(program)(*arguments)
    return str(caught.value)


def test_a_requirement_that_fails_in_a_reduction_of_a_group() -> None:
    @az.program
    def rows(a: az.Array[az.f64, "n"], places: az.Array[az.i64, "k m"]) -> Any:
        return az.map(lambda row: az.sum(a[row]), places)  # the line

    places = np.arange(3 * 2000).reshape(3, 2000) % 5
    np.testing.assert_array_equal(compiled(rows)(numbers(5), places), numbers(5)[places].sum(axis=1))
    places[1, 1234] = 77
    message = raised(IndexError, rows, numbers(5), places)
    assert "index 77 is out of range" in message and line_of(rows, 2) in message


def test_argmax_of_nothing() -> None:
    assert compiled(statistics)(np.ones(1))["largest"][1] == 0
    with pytest.raises((ValueError, IndexError)) as caught:
        compiled(statistics)(np.zeros(0))
    with pytest.raises(type(caught.value)) as reference:
        az.compile(statistics)(np.zeros(0))
    assert str(caught.value) == str(reference.value)


def test_too_little_memory(opencl: Device) -> None:
    """It is said before anything runs, with what it takes."""
    small = replace(opencl, memory=100_000, largest_allocation=50_000)
    run = compiled(softmax, device=small)
    np.testing.assert_allclose(run(numbers(3, 4)), az.evaluate(softmax)(numbers(3, 4)))
    launched: list[Any] = []
    version = run.backend.version(softmax.at())
    version.built(0).executable.steps = launched.append
    with pytest.raises(MemoryError, match=r"softmax: a call takes .* has 0\.10 MiB in all.*test_opencl_calls\.py:\d+"):
        run(numbers(100, 150))
    for_one = r"softmax: an array takes 0\.06 MiB, and .* gives 0\.05 MiB at most.*test_opencl_calls\.py:\d+"
    with pytest.raises(MemoryError, match=for_one):
        compiled(softmax, device=replace(opencl, largest_allocation=50_000))(numbers(80, 100))
    assert not launched


def test_too_little_memory_for_an_array_whose_size_the_run_decides() -> None:
    @az.program
    def smallest(x: az.Array[az.f64, "n"], k: az.i64) -> Any:
        return az.generate(az.size(x), lambda i: az.sort(az.generate(k + i, lambda j: -1.0 * j))[0])

    run = compiled(smallest)
    for k in (2**45, 2**60):
        with pytest.raises(MemoryError, match=r"smallest: .*test_opencl_calls\.py:\d+"):
            run(numbers(3), k)
    np.testing.assert_array_equal(run(numbers(3), 5), [-4, -5, -6])


def test_empty_arrays_that_are_longer_than_memory() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n m"]) -> Any:
        return x + 1, az.sum(x, axis=0), az.cumsum(x, axis=1)

    wanted = [(2**50, 0), (0,), (2**50, 0)]
    assert [result.shape for result in compiled(f)(np.empty((2**50, 0)))] == wanted
    with pytest.raises(MemoryError, match=r"f: a call takes 8388608\.00 GiB .*test_opencl_calls\.py:\d+"):
        compiled(f)(np.empty((0, 2**50)))


def test_a_row_of_an_empty_array() -> None:
    """What is read before it is known that there is none is the argument's own memory."""

    @az.program
    def f(x: az.Array[az.f64, "n m"]) -> Any:
        return az.sum(x[0])

    for m in (3, 10**7):
        with pytest.raises(IndexError, match="index 0 is out of range for axis 0"):
            compiled(f)(np.empty((0, m)))


def test_peak_bytes() -> None:
    x = np.empty((300, 400))
    peak = compiled(softmax).peak_bytes(x)
    assert x.nbytes <= peak <= x.nbytes + 10 * 300 * 8, "exponentials are in the result's memory"


def test_doubles_on_a_device_without(opencl: Device) -> None:
    single = replace(opencl, double=False)
    with pytest.raises(TypeError, match=r"softmax has values of f64, and .* no double precision"):
        compiled(softmax, device=single)(numbers(3, 4))

    @az.program
    def f(x: az.Array[az.f32, "n"]) -> Any:
        return az.sum(az.exp(x)), x * 2

    x = numbers(5, dtype=np.float32)
    run = compiled(f, device=single)
    np.testing.assert_allclose(run(x)[0], np.exp(x).sum(), rtol=1e-6)
    assert "double" not in run.opencl_source and "fp64" not in run.opencl_source


def test_doubles_inside_of_a_program_without(opencl: Device) -> None:
    """Also where no array is of f64."""

    @az.program
    def f(x: az.Array[az.f32, "n"]) -> Any:
        return (az.exp(x.astype(az.f64)) * 1e30).astype(az.f32)

    with pytest.raises(TypeError, match="f has values of f64"):
        compiled(f, device=replace(opencl, double=False))(numbers(5, dtype=np.float32))


def test_functions_of_python_are_refused() -> None:
    solve = az.foreign("solve", np.linalg.solve, lambda a, b: b)

    @az.program
    def solution(a: az.Array[az.f64, "n n"], b: az.Array[az.f64, "n"]) -> Any:
        return solve(a, b) * 2.0

    with pytest.raises(Unsupported, match=r"the function solve, .* runs on the host, and not on a device") as caught:
        compiled(solution)(np.eye(2), np.ones(2))
    assert line_of(solution, 2) in str(caught.value)


# What is kept


def test_programs_pickle_after_they_were_compiled() -> None:
    instance = softmax.at()
    before = compiled(instance)(numbers(3, 4))
    for thing in (instance.term, instance, softmax):
        pickle.loads(pickle.dumps(thing))
    again = pickle.loads(pickle.dumps(instance))
    np.testing.assert_array_equal(compiled(again)(numbers(3, 4)), before)


def test_kernels_are_built_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl as cl

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> Any:
        return x * 3.0

    built: list[Any] = []
    program = cl.Program
    monkeypatch.setattr(cl, "Program", lambda *given: [built.append(given), program(*given)][1])
    for n in (3, 4):
        compiled(f)(numbers(n))
    assert len(built) == 1
    compiled(f, checks=False)(numbers(3))
    assert len(built) == 2


KEPT = """
    import numpy as np
    import adze as az

    @az.program
    def f(x: az.Array[az.f64, "n"]):
        return az.cumsum(x) * {0}, az.sum(x)

    print(az.compile(f, backend="opencl")(np.ones(3))[0][-1])
"""


@pytest.mark.slow
def test_kernels_are_kept_for_other_processes(tmp_path: Path) -> None:
    """A second process adds nothing to what the drivers keep on disk; another program does."""

    def run(factor: float) -> set[str]:
        drivers = {"POCL_CACHE_DIR": str(tmp_path / "pocl"), "CUDA_CACHE_PATH": str(tmp_path / "cuda")}
        folders = {"XDG_CACHE_HOME": str(tmp_path), **drivers}
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        given = {**os.environ, "PYTHONPATH": path, **folders}
        code = textwrap.dedent(KEPT.format(factor))
        shown = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True)
        assert float(shown.stdout) == 3 * factor
        return {str(path) for path in tmp_path.rglob("*") if path.is_file() and "tempfile" not in path.name}

    first = run(2.0)
    if not first:
        pytest.skip("the drivers keep nothing on disk")
    assert run(2.0) == first
    assert run(4.0) > first


def test_a_failure_on_the_host_leaves_the_program_usable() -> None:
    """A requirement of sizes alone is looked at before any kernel."""

    @az.program
    def first(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "m"]) -> Any:
        return x[:3] + y[:3]

    run = compiled(first)
    with pytest.raises((IndexError, ValueError)):
        run(numbers(2), numbers(5))
    np.testing.assert_array_equal(run(numbers(3), numbers(5)), numbers(3) + numbers(5)[:3])
