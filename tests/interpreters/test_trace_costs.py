"""What a trace and its reverse pass cost: time and memory in proportion to the number of steps.

Programs that take n turns, in each way that a program can, are traced and swept back over for two n. Growth is counted
in calls of functions, which are the same in each run and find a loop too many, and in bytes, which find what a step
copies. Everything runs in processes of its own, without the type checks of the test run.
"""

import cProfile
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs.functions import List, folded, linked
from sampling import some

import adze as az
from adze.ad.tape import reverse
from adze.interpreters.evaluate.functions import deeply

Vector = az.Array[az.f64, "m"]

GROWTH = 20  # the length of the longer of two traces, in lengths of the shorter
MOST = 1.1  # calls, in proportion to the length
MOST_BYTES = 2  # Python has the small integers ready, which are all that short traces need: that is up to 1.5


def apart(call: str) -> None:
    """Make a call of this module in a process of its own."""
    code = f"import {Path(__file__).stem} as module; module.{call}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


# Programs of n turns


@dataclass(frozen=True)
class Turns:
    """A program whose trace has so many steps a turn; none, if its turns are elements of arrays."""

    program: az.Program
    arguments: Callable[[int], tuple[Any, ...]]
    steps: int

    def trace(self, n: int) -> az.Trace:
        return az.trace(self.program)(*self.arguments(n))


TURNS: dict[str, Turns] = {}
X = np.linspace(0.5, 1.5, 10)


def turns(arguments: Callable[[int], tuple[Any, ...]], steps: int) -> Callable[[Callable[..., Any]], az.Program]:
    def add(function: Callable[..., Any]) -> az.Program:
        program = az.program(function)
        TURNS[program.name] = Turns(program, arguments, steps)
        return program

    return add


def grid(n: int) -> Any:
    return np.linspace(0.1, 0.9, n)


@turns(lambda n: (0.5, n), steps=1)
def a_loop_of_numbers(x: az.f64, n: az.i64) -> az.f64:
    return az.fori_loop(0, n, lambda i, y: az.sin(y), x)


@turns(lambda n: (0.5, 1.5, n), steps=2)
def one_number_used_in_all_turns(x: az.f64, s: az.f64, n: az.i64) -> az.f64:
    return az.fori_loop(0, n, lambda i, y: az.sin(y) * s, x)


@turns(lambda n: (X, n), steps=1)
def a_loop_of_vectors(x: Vector, n: az.i64) -> az.f64:
    return az.sum(az.fori_loop(0, n, lambda i, y: az.map(lambda a, b: az.sin(a) * b, y, x), x))


@turns(lambda n: (grid(n),), steps=3)
def the_elements_of_an_array(x: Vector) -> az.f64:
    return az.fori_loop(0, az.size(x), lambda i, s: s + x[i] * x[i], 0.0)


@turns(lambda n: (X, n), steps=7)
def one_element_written_in_each_turn(x: Vector, n: az.i64) -> az.f64:
    """Two checks of a place, two reads, sin, times, and the update."""
    return az.sum(az.fori_loop(0, n, lambda i, y: az.update(y, 3, az.sin(y[3]) * y[7]), x))


@turns(lambda n: (0.9, n), steps=4)
def recursion(x: az.f64, n: az.i64) -> az.f64:
    go = az.fix(lambda self, k: az.cond(k == 0, lambda: x, lambda: az.sin(self(k - 1)) * x), az.i64, result=az.f64)
    return go(n)


@turns(lambda n: (linked([*grid(n)]), 0.5), steps=2)
def a_list(xs: List[az.f64], s: az.f64) -> az.f64:
    return folded(xs, az.f64, az.f64, s, lambda x, rest: az.sin(rest) + x)


@turns(lambda n: (grid(n),), steps=3)
def a_fold_that_branches(x: Vector) -> az.f64:
    """An element is read, the test of a branch, and the branch."""
    return az.reduce(lambda p, q: az.cond(p < q, lambda: p + q, lambda: az.hypot(p, q)), 0.0, x)


@turns(lambda n: (grid(n),), steps=3)
def a_scan_that_branches(x: Vector) -> az.f64:
    """What it has come to at each element is joined to an array in one step, which adds each to its place."""
    return az.sum(az.scan(lambda p, q: az.cond(p < q, lambda: p + q, lambda: az.hypot(p, q)), 0.0, x))


@turns(lambda n: (grid(n),), steps=14)
def the_gradient_of_a_loop_that_branches(x: Vector) -> az.f64:
    """Reverse mode on terms adds to accumulators, which are taken apart: what each turn adds is joined at the end."""

    def f(x: Vector) -> az.f64:
        def step(i: Any, s: Any) -> Any:
            return s * az.cond(x[i] < 0.4, lambda: az.sinh(x[i]), lambda: az.cosh(x[i]))

        return az.fori_loop(0, az.size(x), step, 1.0)

    return az.sum(az.grad(f)(x))


@turns(lambda n: (grid(n), 1.5), steps=0)
def a_map_that_branches(x: Vector, s: az.f64) -> az.f64:
    return az.sum(az.map(lambda v: az.cond(v < 0.4, lambda: v * s, lambda: az.sin(v)), x))


@turns(lambda n: (grid(n), X), steps=0)
def nested_maps_that_branch(x: Vector, w: az.Array[az.f64, "k"]) -> az.f64:
    """The inner ones take one of two ways by the element of the outer one, and each of theirs one of two."""

    def row(v: Any) -> Any:
        large = az.map(lambda u: az.cond(u < 1.0, lambda: u * v, lambda: az.sin(v)), w)
        return az.cond(v < 0.4, lambda: az.sum(large), lambda: az.sum(w) * v)

    return az.sum(az.map(row, x))


@turns(lambda n: (grid(n),), steps=0)
def loops_of_a_few_lengths_in_a_map(x: Vector) -> az.f64:
    def element(v: Any, i: Any) -> Any:
        return az.fori_loop(0, i % 3, lambda _, y: az.sin(y), v)

    return az.sum(az.map(element, x, az.iota(az.size(x))))


# Time


def calls(work: Callable[[], Any]) -> int:
    """How many calls of functions something makes, Python's own included."""

    def counted() -> int:
        with cProfile.Profile() as profile:
            work()
        return sum(entry.callcount for entry in profile.getstats())

    return deeply(counted)  # the thread of recursive programs, which else is one that is not profiled


def swept(trace: az.Trace) -> Sequence[Any]:
    return reverse(trace.block, trace.inputs, trace.values, [1.0])


def compare(name: str, steps: int, amount: Callable[[Callable[[], Any]], int], most: float) -> None:
    """Tracing, and the reverse pass, of a trace of about so many steps and of one of GROWTH times the turns."""
    program = TURNS[name]
    turns = steps // max(1, program.steps)
    lengths = turns, turns * GROWTH
    swept(program.trace(3))  # what is done once, such as deriving the rules of primitives
    brief, long = [amount(partial(program.trace, n)) for n in lengths]
    assert long < most * brief, (name, "tracing", brief, long)
    traces = [program.trace(n) for n in lengths]
    assert len(traces[1]) - len(traces[0]) == program.steps * (lengths[1] - lengths[0]), traces
    brief, long = [amount(partial(swept, trace)) for trace in traces]
    assert long < most * brief, (name, "reverse pass", brief, long)


def grows_linearly(name: str, steps: int) -> None:
    compare(name, steps, calls, MOST * (GROWTH if TURNS[name].steps else 1))


def all_grow_linearly(steps: int) -> None:
    for name in TURNS:
        grows_linearly(name, steps)


@pytest.mark.slow
def test_work_grows_with_the_length() -> None:
    apart("all_grow_linearly(40)")


@pytest.mark.slow
@pytest.mark.parametrize("name", some(TURNS, 4, long=0))
def test_work_grows_with_the_length_of_long_traces(name: str) -> None:
    apart(f"grows_linearly({name!r}, 1_000)")


# Memory

DEEP = {"recursion", "a_list"}  # for each allocation tracemalloc counts the frames that Python is in


def most_bytes(work: Callable[[], Any]) -> int:
    """The most memory that something takes while it is at work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def memory_grows_linearly(steps: int) -> None:
    for name in TURNS:
        if name not in DEEP:
            compare(name, steps, most_bytes, MOST_BYTES * GROWTH)


@pytest.mark.slow
def test_memory_grows_with_the_length() -> None:
    """So reads of n elements of an array do not make n arrays of cotangents."""
    apart("memory_grows_linearly(200)")


# Workers


BRANCHES = 4


@az.program
def independent_branches(x: Vector) -> az.f64:
    """Maps that do not depend on each other; on the way back each shows its cotangent."""
    maps = [az.inspect(az.map(lambda v, k=k: az.exp(az.sin(v * k)), x), f"branch {k}") for k in range(BRANCHES)]
    return sum([az.sum(each * each) for each in maps], 0.0)


@pytest.mark.parametrize("workers", [2, BRANCHES])
def test_independent_branches_are_resolved_side_by_side(workers: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A branch goes on when as many branches as there are workers have come as far."""
    trace, meeting, met = az.trace(independent_branches)(X), threading.Barrier(workers, timeout=60), []

    def meet(name: str, values: Sequence[Any]) -> None:
        meeting.wait()
        met.append((name, threading.get_ident()))

    found = reverse(trace.block, trace.inputs, trace.values, [1.0], workers, meet)
    assert sorted(name for name, _ in met) == sorted(f"branch {k} cotangent" for k in range(BRANCHES))
    assert len({thread for _, thread in met}) == workers
    wanted = reverse(trace.block, trace.inputs, trace.values, [1.0], show=lambda name, values: None)
    assert [part.tobytes() for part in found] == [part.tobytes() for part in wanted]


def test_one_worker_takes_all_branches() -> None:
    trace, threads = az.trace(independent_branches, show=lambda name, values: None)(X), set()
    reverse(
        trace.block, trace.inputs, trace.values, [1.0], show=lambda name, values: threads.add(threading.get_ident())
    )
    assert threads == {threading.get_ident()}


def test_what_is_not_independent_is_resolved_by_one_thread_after_the_other() -> None:
    """On a chain, at most one of the workers is ever in a rule."""

    @az.program
    def chain(x: Vector) -> az.f64:
        for k in range(5):
            x = az.inspect(az.sin(x), f"turn {k}")
        return az.sum(x)

    trace, inside = az.trace(chain, show=lambda name, values: None)(X), threading.Lock()
    shown = []

    def show(name: str, values: Sequence[Any]) -> None:
        assert inside.acquire(blocking=False)
        shown.append(name)
        inside.release()

    reverse(trace.block, trace.inputs, trace.values, [1.0], 4, show)
    assert shown == [f"turn {k} cotangent" for k in reversed(range(5))]
