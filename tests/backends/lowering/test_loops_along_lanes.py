"""Loops that end by a test, inside of maps: iterations side by side, each with an end of its own."""

from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]


def doublings(x: Any) -> Any:
    """Until it is 10 or more; from zero there is no end."""
    return az.while_loop(lambda s: s[0] < 10.0, lambda s: (s[0] * 2.0, s[1] + 1), (x, 0))


def fibonacci(x: Any) -> Any:
    """Two arrays that change places, one of which is new in each turn."""

    def step(state: Any) -> Any:
        k, a, b = state
        return k + 1.0, b, a + b * 0.5

    a = az.array([1.0, 1.0, 2.0])
    return az.while_loop(lambda s: s[0] < x, step, (0.0, a, a * 2.0))[1]


def exchanged(x: Any) -> Any:
    """Two arrays that change places, and are read."""
    a = az.array([x, 1.0])
    return az.while_loop(lambda s: s[0] < x, lambda s: (s[0] + az.cos(s[1][1]) ** 2, s[2], s[1]), (0.0, a, a + 1.0))[1]


def in_a_branch(x: Any) -> Any:
    return az.cond(x > 3.0, lambda: az.while_loop(lambda v: v < 50.0, lambda v: v * v, x), lambda: az.sin(x))


def nested(x: Any) -> Any:
    def step(v: Any) -> Any:
        return az.while_loop(lambda w: w > 1.0, lambda w: w / 3.0, v) + v / 2.0

    return az.while_loop(lambda v: v > 4.0, step, x * 8.0)


MAPPED = {
    "doublings": lambda v: az.map(lambda x: doublings(x)[0], v),
    "turns": lambda v: az.map(lambda x: az.exp(x) * doublings(x)[1], v),
    "fibonacci": lambda v: az.map(fibonacci, v),
    "exchanged": lambda v: az.map(exchanged, v),
    "in a branch": lambda v: az.map(in_a_branch, v),
    "nested": lambda v: az.map(nested, v),
}


@pytest.mark.parametrize("name", MAPPED)
@pytest.mark.parametrize("n", [1, 4, 7, 100])
def test_compiled_values(name: str, n: int) -> None:
    """Those of iterations one after the other, also where lanes are off: a zero in one of these would have no end."""

    def f(v: Vector) -> Any:
        return MAPPED[name](v)

    v = np.random.default_rng(1).uniform(0.5, 9.0, n)
    np.testing.assert_allclose(az.compile(az.program(f))(v), az.evaluate(az.program(f))(v), rtol=1e-14)


@pytest.mark.parametrize("name", MAPPED)
def test_they_are_along_lanes_when_compiled(name: str) -> None:
    def f(v: Vector) -> Any:
        return MAPPED[name](v)

    compiled = az.compile(az.program(f))
    compiled(np.linspace(1.0, 9.0, 50))
    lines = str(compiled.loops).splitlines()
    [first, *_] = [k for k, line in enumerate(lines) if line.strip().startswith("while")]
    depth = len(lines[first]) - len(lines[first].lstrip())
    around = [line for line in lines[:first] if len(line) - len(line.lstrip()) < depth]
    assert any(line.strip().startswith("lanes") for line in around)


def test_compiled_values_do_not_depend_on_their_place() -> None:
    def f(v: Vector) -> Any:
        return MAPPED["turns"](v)

    v, compiled = np.random.default_rng(2).uniform(0.01, 9.0, 37), az.compile(az.program(f))
    whole = compiled(v)
    np.testing.assert_array_equal([compiled(v[k : k + 1])[0] for k in range(37)], whole)
