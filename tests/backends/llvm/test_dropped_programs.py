"""Compiled programs that nobody holds any more: their memory comes back, and no code goes while it is in use."""

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from load import ROOT

import adze as az
from adze.core.program import instance_of

pytestmark = pytest.mark.unguarded

X = np.linspace(-1.0, 1.0, 9)

SCRIPT = """if True:
    import gc
    import sys
    import numpy as np
    import adze as az

    X = np.linspace(-1.0, 1.0, 9)

    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * 4

    def executable():
        spans = [line.split() for line in open("/proc/self/maps")]
        ends = [span[0].split("-") for span in spans if "x" in span[1] and len(span) == 5]
        return sum(int(end, 16) - int(start, 16) for start, end in ends) // 1024

    def total(factor):
        return az.program(lambda x: az.sum(az.sin(x) * factor))

    def run(number):
        factor = 1.0 + number
        kind = number % 3
        if kind == 0:
            assert np.isclose(az.compile(total(factor))(X), factor * np.sin(X).sum())
        elif kind == 1:
            assert np.allclose(az.compile(az.grad(total(factor)), threads=2)(X), factor * np.cos(X))
        else:
            bound = az.compile(lambda x: az.filter(lambda v: v < factor, x)).bind(X)
            assert bound().size == (X < factor).sum()

    found = []
    programs = int(sys.argv[1])
    for number in range(programs):
        run(number)
        if number % 8 == 7:
            gc.collect()
            found.append((resident(), executable()))
    print((found[-1][0] - found[3][0]) / (programs - 32), found[-1][1] - found[3][1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("programs", [72, 200])
def test_memory_comes_back(programs: int) -> None:
    command = [sys.executable, "-c", SCRIPT, str(programs)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    kilobytes, code = map(float, done.stdout.split())
    assert kilobytes < 30 and code <= 0  # the two kinds of pass managers alone took more than 100 for each program


def total(factor: float) -> az.Program:
    @az.program
    def total(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(az.sin(x) * factor)

    return total


def test_nothing_holds_a_program() -> None:
    def refer() -> list[weakref.ref[Any]]:
        program = total(2.0)
        compiled = az.compile(az.grad(program))
        compiled(X)
        with pytest.raises(TypeError, match="shape"):
            compiled(np.ones((2, 2)))
        instance = instance_of(compiled.program)
        version = compiled.backend.version(instance)
        return [weakref.ref(each) for each in (program, compiled, instance, version, version.built(0).executable)]

    references = refer()
    gc.collect()
    assert [reference() for reference in references] == [None] * 5


def others() -> None:
    """Other programs, whose code would take the place of code that is gone."""
    gc.collect()
    for factor in (3.0, 5.0, 7.0):
        az.compile(total(factor))(X)


def bound(compiled: az.Compiled) -> Callable[[], Any]:
    return compiled.bind(X)


def derived(compiled: az.Compiled) -> Callable[[], Any]:
    return lambda: compiled.program(X)


@pytest.mark.parametrize("held", [bound, derived])
def test_what_is_held_keeps_its_code(held: Callable[[az.Compiled], Callable[[], Any]]) -> None:
    call = held(az.compile(total(2.0)))
    wanted = call()
    others()
    assert call() == wanted
    np.testing.assert_allclose(wanted, 2 * np.sin(X).sum())


def test_results_outlive_their_program() -> None:
    found = az.compile(lambda x: (az.filter(lambda v: v > 0, x), x[:3] + 1))(X)  # sizes of either kind
    large = az.compile(lambda x: x + 1)(np.zeros(1 << 17))[5:]
    others()
    np.testing.assert_array_equal(found[0], X[X > 0])
    np.testing.assert_array_equal(found[1], X[:3] + 1)
    assert (large == 1).all()


def test_a_run_keeps_its_code() -> None:
    """A thread that holds a program by its call alone, while others drop theirs."""
    found: list[float] = []

    def count(number: int) -> None:
        compiled = az.compile(lambda n: az.fori_loop(0, n, lambda i, s: az.sin(s + number), 0.0), threads=1)
        found.append(float(compiled(5_000_000)))

    threads = [threading.Thread(target=count, args=(number,)) for number in (1, 1, 1)]
    for thread in threads:
        thread.start()
    others()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1 and -1 < found[0] < 1
