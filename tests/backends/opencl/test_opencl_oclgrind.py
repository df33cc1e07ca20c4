"""Programs and gradients under a simulator of a device, which finds data races and accesses outside of memory.

The simulator interprets each instruction, so sizes are small: at most 33. So are the groups: a handful of elements
needs several of them, and all phases of scans, reductions and tiles. What is run is what ``batches`` names: every
program of the suite, and its gradient. The simulator sees one process for each batch, in which it takes much of the
time to build kernels.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_device import simulated
from opencl_groups import groups
from programs import CASES, numbers
from sampling import some
from test_compile import assert_same
from test_derivatives import DIFFERENTIABLE, SINGLE, Point, assert_close, leaves

import adze as az
from adze.backends.opencl.devices import choose

pytestmark = [pytest.mark.unguarded, pytest.mark.slow]

SIZE, THREADS = 4, 8
BATCHES = 12  # of programs, and as many of gradients

Run = Callable[[az.Compiled], None]


def programs() -> Iterator[tuple[str, az.Program, Run]]:
    """Each program of the suite, and what to run it on."""
    for case in CASES:

        def run(compiled: az.Compiled, case: Any = case) -> None:
            for arguments in case.arguments:
                assert_same(compiled(*arguments), az.evaluate(case.program)(*arguments))

        yield case.name, case.program, run


def gradients() -> Iterator[tuple[str, az.Program, Run]]:
    for case in DIFFERENTIABLE:
        point = Point(case)
        program, arguments = az.vjp(case.program), (*point.arguments, point.cotangent)

        def run(compiled: az.Compiled, wanted: Any = (case, program, arguments)) -> None:
            case, program, arguments = wanted
            tolerance = 1e-5 if case.name in SINGLE else 1e-12
            assert_close(leaves(compiled(*arguments)), leaves(az.evaluate(program)(*arguments)), tolerance)

        yield f"gradient of {case.name}", program, run


@az.program
def mixed(A: az.Array[az.f64, "n m"], B: az.Array[az.f64, "m k"], x: az.Array[az.f64, "m"]) -> Any:
    """A product, sums of rows and columns and of all, a transposed read, a scan, a sort and a histogram."""
    return (
        A @ B,
        az.sum(A, axis=1),
        az.sum(A, axis=0),
        az.sum(A),
        A.T * 2.0,
        az.cumsum(x),
        az.argsort(x),
        az.histogram(lambda p, q: p + q, 0.0, 5, az.iota(az.size(x)) % 5, x),
    )


@az.program
def stored(x: az.Array[az.f64, "n"]) -> az.f64:
    """Its gradient stores what a loop came by, so many steps as each element says."""

    def steps(v: Any) -> Any:
        return az.while_loop(lambda s: s[1] < 9.0, lambda s: (s[0] + 1, s[1] * s[1] + abs(v)), (0, 1.5))[1]

    return az.sum(az.map(steps, x))


@az.program
def halved(x: az.Array[az.f64, "n"]) -> Any:
    """A loop whose test the device computes from an array."""
    return az.while_loop(lambda s: az.sum(s) > 1.0, lambda s: s * 0.5, abs(x))


@az.program
def gathered(x: az.Array[az.f64, "n"], places: az.Array[az.i64, "m"], w: az.Array[az.f64, "m"]) -> az.f64:
    return az.sum(x[places] * x[places] * w)


def larger() -> Iterator[tuple[str, az.Program, Run]]:
    """What several groups do together, at sizes that fill no strip."""
    forms: list[tuple[az.Program, list[tuple[Any, ...]]]] = [
        (mixed, [(numbers(n, m), numbers(m, k), numbers(m)) for n, m, k in [(33, 17, 5), (3, 33, 9), (0, 5, 1)]]),
        (az.grad(stored), [(numbers(33),), (numbers(1),)]),
        (halved, [(numbers(33),), (numbers(0),)]),
        (az.grad(gathered), [(numbers(7), np.arange(33) % 7, numbers(33)), (numbers(33), np.arange(20), numbers(20))]),
    ]
    for program, calls in forms:

        def run(compiled: az.Compiled, wanted: Any = (program, calls)) -> None:
            program, calls = wanted
            for arguments in calls:
                found = leaves(compiled(*arguments)), leaves(az.evaluate(program)(*arguments))
                assert_close(*found, 1e-12)

        yield program.name, program, run


SOURCES = {"programs": programs, "gradients": gradients, "larger": larger}


def simulate(source: str, batch: int, batches: int, deterministic: bool = False) -> None:
    """Run every so-many-th program of a source on the device of this process, and say what was run."""
    with groups(choose(), SIZE, THREADS) as device:
        for k, (name, program, run) in enumerate(SOURCES[source]()):
            if k % batches == batch:
                print(name, flush=True)
                run(az.compile(program, backend="opencl", device=device, deterministic=deterministic))
    print("all ran")


def clean(folder: Path, source: str, batch: int, batches: int, deterministic: bool = False) -> None:
    """The programs agree with evaluate, and the simulator saw nothing wrong."""
    call = f"simulate({source!r}, {batch}, {batches}, {deterministic})"
    run, found = simulated(folder, f"from test_opencl_oclgrind import simulate\n{call}", timeout=550)
    assert run.returncode == 0 and not found, f"{run.stdout}\n{run.stderr}\n{found}"
    assert run.stdout.endswith("all ran\n")


@pytest.mark.parametrize("batch", some(range(BATCHES), 6, long=0))
@pytest.mark.parametrize("source", ["programs", "gradients"])
def test_the_suite(source: str, batch: int, tmp_path: Path) -> None:
    clean(tmp_path, source, batch, BATCHES)


@pytest.mark.parametrize("deterministic", [False, True])
def test_larger_sizes(deterministic: bool, tmp_path: Path) -> None:
    clean(tmp_path, "larger", 0, 1, deterministic)
