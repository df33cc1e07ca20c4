"""Long programs: nothing recurses over the length of a program, and everything takes time in proportion to it.

A program of n bindings is built, simplified, printed, checked, evaluated, differentiated and compiled, with uses that
are near (each binding uses the two before it) and far (each uses two that are drawn at random). Growth is counted
in calls, which are the same in each run and find a loop too many, and measured in processor time, with a generous
limit, for what one call does (to copy a set, say). Everything runs in processes of its own, without the type checks of
the test run.
"""

import cProfile
import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sampling import some

import adze as az

pytestmark = pytest.mark.unguarded

KINDS = ("near", "far")
# The most that the longer of two programs may take, where its length is GROWTH times the shorter's. Calls grow in
# proportion, but for a logarithm here and there. In seconds a program that no longer fits into the caches takes about
# twice as much for its length, and a busy machine twice that; quadratic growth would be a factor of 64.
GROWTH = 8
MOST_CALLS = 1.1 * GROWTH
MOST_SECONDS = 5 * GROWTH


def apart(call: str) -> None:
    """Make a call of this module in a process of its own."""
    code = f"import {Path(__file__).stem} as module; module.{call}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def combine(k: int, a: Any, b: Any) -> Any:
    """One binding of two operations, on expressions or numbers."""
    return (a - b) * 0.75 if k % 3 else (a + b) * 0.5


def straight_line(kind: str, length: int, x: Any, y: Any) -> Any:
    """About ``length`` operations on two values."""
    draw = random.Random(length)
    values = [x, y]
    for k in range(length // 2):
        pair = values[-2:] if kind == "near" else [draw.choice(values), draw.choice(values)]
        values.append(combine(k, *pair))
    if kind == "near":
        return values[-1]
    while len(values) > 1:  # all of them are needed
        values = [
            combine(0, *values[k : k + 2]) if k + 1 < len(values) else values[k] for k in range(0, len(values), 2)
        ]
    return values[0]


def program(kind: str, length: int) -> az.Program:
    @az.program
    def long(x: az.f64, y: az.f64) -> az.f64:
        return straight_line(kind, length, x, y)

    return long


def through_everything(kind: str, length: int) -> None:
    f = program(kind, length)
    term = f.at().term
    assert term.count() >= 0.9 * length
    simplified = az.simplify(term)
    assert simplified.count() >= 0.5 * length
    az.check(simplified)
    assert az.pretty(term).count("\n") > 10
    wanted = straight_line(kind, length, np.float64(1.5), np.float64(-0.25))
    assert az.evaluate(f)(1.5, -0.25) == wanted
    np.testing.assert_allclose(az.compile(f)(1.5, -0.25), wanted, rtol=1e-9, atol=1e-12)
    gradient = az.grad(f)
    _, tangent = az.evaluate(az.jvp(f))(1.5, -0.25, 1.0, 0.0)
    np.testing.assert_allclose(az.evaluate(gradient)(1.5, -0.25), tangent, rtol=1e-9, atol=1e-12)


@pytest.mark.rest
@pytest.mark.parametrize("kind", some(KINDS, 2))
def test_more_bindings_than_the_stack_is_deep(kind: str) -> None:
    apart(f"through_everything({kind!r}, 3_000)")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("length", some([20_000, 100_000], 2, long=0))
@pytest.mark.parametrize("kind", some(KINDS, 2, long=0))
def test_very_many_bindings(kind: str, length: int) -> None:
    apart(f"through_everything({kind!r}, {length})")


# Growth

STAGES: dict[str, Callable[[az.Program], Any]] = {
    "build": lambda f: f.at().term,
    "simplify": lambda f: az.simplify(f.at().term),
    "check": lambda f: az.check(f.at().term),
    "pretty": lambda f: az.pretty(f.at().term),
    "evaluate": lambda f: az.evaluate(f)(1.5, -0.25),
    "grad": lambda f: az.grad(f).at().term,
    "jvp": lambda f: az.jvp(f).at().term,
    "compile": lambda f: az.compile(f)(1.5, -0.25),
}


def built(stage: str, kind: str, length: int) -> az.Program:
    """A program on which nothing before the stage is left to do."""
    f = program(kind, length)
    if stage != "build":
        assert f.at().term.count()
    return f


def calls(stage: str, kind: str, length: int) -> int:
    """How many calls of functions a stage makes, Python's own included."""
    f = built(stage, kind, length)
    with cProfile.Profile() as profile:
        STAGES[stage](f)
    return sum(entry.callcount for entry in profile.getstats())


def seconds(stage: str, kind: str, length: int) -> float:
    """The least processor time of a stage in three runs. As in timeit, the garbage collector waits: how often it comes
    and what it walks through is decided by all that the process has built before."""
    times = []
    for _ in range(3):
        f = built(stage, kind, length)
        gc.disable()
        started = time.process_time()
        STAGES[stage](f)
        times.append(time.process_time() - started)
        gc.enable()
    return min(times)


def grows_linearly(stage: str, kind: str) -> None:
    short, long = (calls(stage, kind, length) for length in (400, 400 * GROWTH))
    assert long < MOST_CALLS * short, (short, long)
    brief, lengthy = (seconds(stage, kind, length) for length in (1_000, 1_000 * GROWTH))
    assert lengthy < MOST_SECONDS * brief, (brief, lengthy)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", some(KINDS, 2, long=0))
@pytest.mark.parametrize("stage", STAGES)
def test_work_grows_with_the_length(stage: str, kind: str) -> None:
    apart(f"grows_linearly({stage!r}, {kind!r})")


# Chains of constructs


def conds(length: int) -> az.Program:
    """Each cond is used by the test and by both branches of the next."""

    @az.program
    def f(x: az.f64) -> az.f64:
        for k in range(length):
            x = az.cond(x > k, lambda x=x: x * 0.5, lambda x=x: x + 1.0)
        return x

    return f


def branches(length: int) -> az.Program:
    """One expression is used in a branch of each cond, and nowhere else."""

    @az.program
    def f(x: az.f64) -> az.f64:
        s = x
        for k in range(length):
            s = az.cond(s > k, lambda s=s: s - az.tanh(x), lambda s=s: s + 1.0)
        return s

    return f


def captured(length: int) -> az.Program:
    """Each binding is captured by the loop of the next, inside a loop."""

    @az.program
    def f(x: az.f64) -> az.f64:
        def row(i: az.Expr) -> az.Expr:
            s = x + i
            for _ in range(length):
                s = az.fori_loop(0, 2, lambda j, t, s=s: (t + s) * 0.5, 1.0)
            return s

        return az.sum(az.generate(3, row))

    return f


def loops(length: int) -> az.Program:
    @az.program
    def f(x: az.f64) -> az.f64:
        for _ in range(length):
            x = az.fori_loop(0, 2, lambda i, t: t * 0.5 + i, x)
        return x

    return f


def arrays(length: int) -> az.Program:
    """Arrays that are all computed in the loop of the last one."""

    @az.program
    def f(x: az.f64) -> az.f64:
        a = az.full(4, x)
        for k in range(length):
            a = az.tanh(a) if k % 2 else a * 0.5 + a
        return az.sum(a)

    return f


def chains(length: int) -> None:
    for chain in (conds, branches, captured, loops, arrays):
        f = chain(length)
        simplified = az.simplify(f.at().term)
        assert simplified.count() > 0
        assert np.isfinite(az.evaluate(f)(0.5))
        if chain is arrays:
            assert [operation.op for operation in simplified.bindings if operation.blocks] == ["reduce"]


@pytest.mark.slow
def test_chains_of_constructs() -> None:
    """Longer than Python's stack is deep."""
    apart("chains(1_100)")


@pytest.mark.unguarded
def test_a_sort_that_is_a_piece_of_a_long_block() -> None:
    """Long blocks are compiled in pieces: what a piece makes is read behind it, with the sizes that it bound."""

    def folded(v: Any) -> Any:
        for k in range(20):
            v = az.where(v > 0.5, v * (k + 2), v + 0.25)
        return v

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> Any:
        y = az.concatenate((x, x[1:]))
        for _ in range(3):
            y = y[az.argsort(az.cumsum(az.map(folded, y)))]
        return y

    x = np.random.default_rng(0).random(9)
    y = np.concatenate((x, x[1:]))
    for _ in range(3):
        v = y
        for k in range(20):
            v = np.where(v > 0.5, v * (k + 2), v + 0.25)
        y = y[np.argsort(np.cumsum(v), kind="stable")]
    np.testing.assert_array_equal(az.compile(f, threads=1)(x), y)
