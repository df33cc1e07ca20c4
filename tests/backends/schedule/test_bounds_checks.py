"""Checks of indices that are decided before their loops: what fails, and which index is told, is as in evaluate."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import numbers

import adze as az

pytestmark = pytest.mark.unguarded

X = az.Array[az.f64, "n"]
Y = az.Array[az.f64, "m"]


def shifted(x: Any, y: Any) -> Any:
    return az.generate(x.shape[0], lambda i: x[i] + y[i + 2])


def strided(x: Any, y: Any) -> Any:
    return az.generate(x.shape[0], lambda i: x[i] * y[3 * i + 1])


def backwards(x: Any, y: Any) -> Any:
    return az.generate(x.shape[0], lambda i: x[i] - y[7 - 2 * i])


def nested(x: Any, y: Any) -> Any:
    return az.generate((x.shape[0], 3), lambda i, j: y[2 * i + j])


def triangular(x: Any, y: Any) -> Any:
    return az.generate(x.shape[0], lambda i: az.sum(az.generate(i, lambda j: y[i + j])))


def in_a_branch(x: Any, y: Any) -> Any:
    return az.generate(x.shape[0], lambda i: az.cond(x[i] > 0, lambda: y[i + 1], lambda: 0.0))


def in_a_loop(x: Any, y: Any) -> Any:
    return az.fori_loop(0, x.shape[0], lambda k, s: s + az.generate(y.shape[0], lambda i: x[i + k]), y)


def the_same_in_each(x: Any, y: Any) -> Any:
    return az.fori_loop(0, x.shape[0], lambda k, s: s + az.generate(y.shape[0], lambda i: x[i + 1]), y)


def by_data(x: Any, y: Any) -> Any:
    """Where to read is the same in all iterations of both loops, and known in the run alone."""
    places = az.abs(y).astype(az.i64)

    def step(k: az.Expr, s: az.Expr) -> Any:
        return az.fori_loop(0, 2, lambda j, t: t + x[places], s)

    return az.fori_loop(0, x.shape[0] - 1, step, y)


def behind_what_varies(x: Any, y: Any) -> Any:
    """The first iteration fails at x[k + 1] or at y[i + 1], whichever comes first."""

    def step(k: az.Expr, s: az.Expr) -> Any:
        first = x[k + 1]
        return s + first + az.generate(y.shape[0], lambda i: y[i + 1])

    return az.fori_loop(0, x.shape[0], step, y)


def outcome(run: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return np.asarray(run(*arguments)).tolist()
    except IndexError as error:
        return str(error)


FUNCTIONS = (
    shifted,
    strided,
    backwards,
    nested,
    triangular,
    in_a_branch,
    in_a_loop,
    the_same_in_each,
    by_data,
    behind_what_varies,
)


@pytest.mark.parametrize("f", FUNCTIONS, ids=[f.__name__ for f in FUNCTIONS])
def test_failures_are_those_of_the_loop(f: Any) -> None:
    program = az.program(f).at(X, Y)
    run, evaluated = az.compile(program, threads=1), az.evaluate(program)
    seen = set()
    for n in (0, 1, 2, 4):
        for m in (0, 1, 2, 3, 5, 8, 12):
            x, y = numbers(n), numbers(m, seed=1)
            wanted = outcome(evaluated, x, y)
            assert outcome(run, x, y) == wanted
            seen.add(type(wanted))
    assert seen == {list, str}  # some of these calls fail, and some do not


def test_loops_that_only_check_run_if_they_may_fail() -> None:
    """One comparison stands before the loop."""
    loops = az.compile(az.program(shifted).at(X, Y)).schedule
    assert loops.index("if ") < loops.index("failed")


@pytest.mark.parametrize("wrong", range(3))
def test_each_of_several_checks_in_a_loop_may_fail(wrong: int) -> None:
    @az.program
    def read(x: X, p: az.Array[az.i64, "k"], q: az.Array[az.i64, "k"], r: az.Array[az.i64, "k"]) -> Any:
        return az.map(lambda a, b, c: x[a] * x[b] * x[c], p, q, r)

    x, places = numbers(5), np.tile(np.arange(5), (3, 2))
    run = az.compile(read)
    assert run(x, *places).tolist() == (x * x * x).tolist() * 2
    places[wrong, 7] = 9
    with pytest.raises(IndexError, match="index 9 is out of range"):
        run(x, *places)


def test_integers_that_wrap_around_are_left_to_the_loop() -> None:
    """The last index is 16 * 2**61, which is 0 as an integer of 64 bits; the fourth is out of range."""

    def f(x: Any, y: Any) -> Any:
        return az.generate(x.shape[0], lambda i: y[i * 2**61])

    run = az.compile(az.program(f).at(X, Y))
    with pytest.raises(IndexError, match=f"index {2**61} is out of range"):
        run(numbers(17), numbers(5))
    assert run(numbers(1), numbers(5)).tolist() == [numbers(5)[0]]


@pytest.mark.usefixtures("opencl")
def test_devices_decide_checks_before_loops() -> None:
    program = az.program(shifted).at(X, Y)
    run = az.compile(program, backend="opencl")
    for m in (3, 8, 12):
        assert outcome(run, numbers(6), numbers(m)) == outcome(az.evaluate(program), numbers(6), numbers(m))


def test_a_loop_checks_once_what_is_the_same_in_each_iteration() -> None:
    nests = az.compile(az.program(by_data).at(X, Y)).nests
    assert nests.count("require") == 1 and nests.index("require") < nests.index("for k")
