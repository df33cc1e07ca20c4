"""Loops in a map and their return sweeps run along lanes, with the states that they store private to each lane."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_compile import assert_same

import adze as az

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
Single = az.Array[az.f32, "n"]


def over_points(point: Callable[..., Any], vector: Any = Vector) -> Any:
    """The sum over points of what a loop of so many steps makes of two numbers."""

    def program(x: vector, a: vector, steps: az.i64) -> Any:
        return az.sum(az.map(lambda x, a: point(x, a, steps), x, a))

    return az.program(program)


def logistic(x: Any, a: Any, steps: Any) -> Any:
    return az.fori_loop(0, steps, lambda _, s: s * a * (1 - s), x)


def pair(x: Any, a: Any, steps: Any) -> Any:
    def step(_: Any, state: Any) -> Any:
        s, v = state
        return s + 0.1 * v * az.cos(a), v - 0.1 * az.sin(s)

    s, v = az.fori_loop(0, steps, step, (x, a))
    return s * v


def scanned(x: Any, a: Any, steps: Any) -> Any:
    states, outputs = az.scan_loop(lambda s, _: (s * a * (1 - s), s * s), x, None, steps)
    return states + az.sum(outputs * a)


def nested(x: Any, a: Any, steps: Any) -> Any:
    return az.fori_loop(0, 3, lambda _, s: logistic(s, a, steps) + 0.1, x)


def chosen(x: Any, a: Any, steps: Any) -> Any:
    return az.fori_loop(0, steps, lambda _, s: az.where(s > 0.5, s * a * (1 - s), s * s * a + 0.3), x)


POINTS = {"logistic": logistic, "pair": pair, "scanned": scanned, "nested": nested, "chosen": chosen}


def arguments(n: int, dtype: Any = np.float64) -> tuple[Any, Any]:
    rng = np.random.default_rng(n)
    return rng.random(n).astype(dtype), (3 * rng.random(n) + 0.5).astype(dtype)


@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS.keys())
@pytest.mark.parametrize("vector", [Vector, Single], ids=["f64", "f32"])
def test_gradients_of_loops_in_a_map(point: Any, vector: Any) -> None:
    gradient = az.value_and_grad(over_points(point, vector), argnums=(0, 1))
    single, double = az.compile(gradient, threads=1), az.compile(gradient, threads=2)
    for n, steps in ((0, 3), (1, 0), (1, 5), (7, 4), (33, 6), (700, 1)):
        given = *arguments(n, np.float32 if vector is Single else np.float64), steps
        found = single(*given)
        assert_same(found, az.evaluate(gradient)(*given))
        assert_same(double(*given), found, exact=True)


@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS.keys())
def test_return_sweeps_have_lanes(point: Any) -> None:
    schedule = str(az.compile(az.grad(over_points(point), argnums=(0, 1)), threads=2).schedule)
    loops = [line for line in schedule.splitlines() if re.match(r" *(parallel|lanes|for) ", line)]
    inside = [line for line in loops if line.startswith("    for ")]
    assert inside and not [line for line in loops if line.startswith("  for ")]


def test_private_arrays_are_those_of_a_strip() -> None:
    compiled = az.compile(az.grad(over_points(logistic), argnums=(0, 1)), threads=1)
    x, a = arguments(10_000)
    assert compiled.peak_bytes(x, a, 100) < x.nbytes + a.nbytes + 100 * 8 * 65
    assert compiled.peak_bytes(x[:4], a[:4], 100) < 100 * 8 * 5


def test_points_in_two_axes() -> None:
    @az.program
    def program(x: az.Array[az.f64, "n m"], a: Vector, steps: az.i64) -> Any:
        return az.sum(az.map(lambda row, a: az.map(lambda x: logistic(x, a, steps), row), x, a))

    gradient = az.grad(program, argnums=(0, 1))
    compiled, other = az.compile(gradient, threads=1), az.compile(gradient, threads=2)
    for n, m in ((3, 70), (70, 3), (2, 0), (1, 1)):
        given = np.random.default_rng(n).random((n, m)), 3 * np.random.default_rng(m).random(n), 9
        found = compiled(*given)
        assert_same(found, az.evaluate(gradient)(*given))
        assert_same(other(*given), found, exact=True)


@pytest.mark.rest
def test_what_points_have_in_common() -> None:
    """Each point has a sum of what it adds, and so lanes."""

    @az.program
    def program(x: Vector, b: az.f64, c: az.f64, steps: az.i64) -> Any:
        return az.sum(az.map(lambda x: az.fori_loop(0, steps, lambda i, s: b * s * (1 - s) + c / (i + 1), x), x))

    gradient = az.grad(program, argnums=(0, 1, 2))
    compiled, other = az.compile(gradient, threads=1), az.compile(gradient, threads=2)
    assert "sums of points, added in order" in str(compiled.schedule)
    for n, steps in ((0, 4), (1, 4), (9, 0), (500, 7), (10_000, 3)):
        given = arguments(n)[0], 1.5, 0.1, steps
        found, wanted = compiled(*given), az.evaluate(gradient)(*given)
        assert_same(found[0], wanted[0])
        for one, expected in zip(found[1:], wanted[1:], strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-10)
        assert_same(other(*given), found, exact=True)


def test_what_is_not_a_number_stays_in_its_lane() -> None:
    compiled, x = az.compile(az.grad(over_points(chosen), argnums=(0, 1))), arguments(40)[0]
    clean = compiled(x, 2 * x, 5)
    x[7], spoilt = np.nan, compiled(np.where(np.arange(40) == 7, np.nan, x), 2 * x, 5)
    wanted = az.evaluate(az.grad(over_points(chosen), argnums=(0, 1)))(x, 2 * np.nan_to_num(x), 5)
    assert all(np.isnan(each[7]) for each in wanted)
    for one, other in zip(clean, spoilt, strict=True):
        assert np.isnan(other[7])
        np.testing.assert_array_equal(np.delete(one, 7), np.delete(other, 7))


def test_an_index_out_of_range_in_a_step() -> None:
    @az.program
    def program(x: Vector, table: az.Array[az.f64, "m"], steps: az.i64) -> Any:
        return az.sum(az.map(lambda x: az.fori_loop(0, steps, lambda i, s: s * table[i], x), x))

    gradient = az.grad(program, argnums=(0, 1))
    x, table = arguments(50)[0], np.arange(1.0, 6.0)
    assert_same(az.compile(gradient)(x, table, 5), az.evaluate(gradient)(x, table, 5))
    with pytest.raises(IndexError, match="out of range") as raised:
        az.compile(gradient)(x, table, 6)
    with pytest.raises(IndexError) as wanted:
        az.evaluate(gradient)(x, table, 6)
    assert str(raised.value) == str(wanted.value)
