"""One entry makes a primitive: the rows of examples/new_primitive.py in every interpretation."""

import math
import pickle
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from load import example

import adze as az
from adze.core.primitive import MEANINGS, PRIMITIVES

# Fills no vector, fills it, leaves a tail, fills a strip, leaves a tail behind several strips.
SIZES = (0, 1, 3, 8, 9, 31, 32, 33, 70, 1003)
POINTS = np.array([-800.0, -37.5, -2.0, -0.25, 0.0, 0.25, 2.0, 37.5, 800.0])


@pytest.fixture(scope="module")
def new() -> Iterator[ModuleType]:
    """The example, and the table of primitives as it was afterwards."""
    before = [(table, dict(table)) for table in (PRIMITIVES, MEANINGS)]
    module = example("new_primitive")
    yield module
    for table, rows in before:
        table.clear()
        table.update(rows)
    del sys.modules[module.__name__]


def log_cosh(x: Any) -> Any:
    """Another formula, of the same precision as the argument."""
    size = abs(np.asarray(x))
    return (size + np.log1p(np.expm1(-2 * size) / 2))[()]


def numbers(n: int, dtype: Any = np.float64) -> Any:
    return (np.arange(n) % 41 / 4 - 5).astype(dtype)


def close(found: Any, wanted: Any, units: float = 16) -> None:
    """Equal up to some units in the last place of the largest magnitude."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    largest = max(1.0, float(np.max(abs(wanted), initial=0.0)))
    assert np.max(abs(found - wanted), initial=0.0) <= units * np.finfo(wanted.dtype).eps * largest


@pytest.fixture(scope="module")
def each(new: ModuleType) -> az.Program:
    @az.program
    def each(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        return new.log_cosh(x)

    return each


@pytest.fixture(scope="module")
def total(new: ModuleType) -> az.Program:
    @az.program
    def total(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(new.log_cosh(x) * new.log_cosh(x))

    return total


def test_the_row_is_in_the_table(new: ModuleType) -> None:
    assert PRIMITIVES["log_cosh"] is new.log_cosh
    assert pickle.loads(pickle.dumps(new.log_cosh)) is new.log_cosh
    close(new.log_cosh(POINTS), log_cosh(POINTS))


def test_evaluate(each: az.Program) -> None:
    close(az.evaluate(each)(POINTS), log_cosh(POINTS))


def test_pretty(each: az.Program, total: az.Program) -> None:
    assert az.pretty(each) == "def each(x: f64[n]) -> f64[n]:\n  return log_cosh(x)"
    assert "tanh(" in az.pretty(az.grad(total))


def test_check_and_terms(total: az.Program) -> None:
    for program in (total, az.grad(total), az.jvp(total)):
        term = program.at().term
        az.check(term)
        assert term.interpret(az.Reify()) == term
        assert pickle.loads(pickle.dumps(term)) == term


def test_simplify(new: ModuleType, total: az.Program) -> None:
    assert az.pretty(total).count("log_cosh") == 1  # what is written twice is computed once

    @az.program
    def constant() -> az.f64:
        return new.log_cosh(0.0) + new.log_cosh(1.0)

    assert constant.at().term.count() == 0 or az.simplify(constant.at().term).count() == 0
    close(az.evaluate(constant)(), log_cosh(0.0) + log_cosh(1.0))


def test_forward(each: az.Program) -> None:
    tangent = numbers(len(POINTS))
    for run in (az.evaluate, az.compile):
        value, pushed = run(az.jvp(each))(POINTS, tangent)
        close(value, log_cosh(POINTS))
        close(pushed, tangent * np.tanh(POINTS))


def test_reverse(each: az.Program, total: az.Program) -> None:
    cotangent = numbers(len(POINTS))
    for run in (az.evaluate, az.compile):
        value, pulled = run(az.vjp(each))(POINTS, cotangent)
        close(value, log_cosh(POINTS))
        close(pulled, cotangent * np.tanh(POINTS))
        close(run(az.grad(total))(POINTS), 2 * log_cosh(POINTS) * np.tanh(POINTS))


def test_second_order(new: ModuleType) -> None:
    @az.program
    def f(x: az.f64) -> az.f64:
        return new.log_cosh(x)

    for x in POINTS:
        slope = np.tanh(x)
        for run in (az.evaluate, az.compile):
            close(run(az.grad(az.grad(f)))(x), 1 - slope * slope, 64)
            first, second = run(az.jvp(az.grad(f)))(x, 1.0)
            close(first, slope)
            close(second, 1 - slope * slope, 64)


def test_compiled(each: az.Program) -> None:
    compiled = az.compile(each)
    for n in SIZES:
        close(compiled(numbers(n)), log_cosh(numbers(n)))
    whole = compiled(numbers(1003))
    for start in (1, 7, 32):  # a value does not depend on its place in the array
        assert compiled(numbers(1003)[start:]).tobytes() == whole[start:].tobytes()
    close(compiled(POINTS), log_cosh(POINTS))


def test_compiled_in_single_precision(new: ModuleType) -> None:
    @az.program
    def single(x: az.Array[az.f32, "n"]) -> az.Array[az.f32, "n"]:
        return new.log_cosh(x)

    for n in SIZES:
        x = numbers(n, np.float32)
        close(az.compile(single)(x), log_cosh(x))
        close(az.evaluate(single)(x), log_cosh(x))


def test_compiled_derivatives_inside_every_construct(new: ModuleType) -> None:
    @az.program
    def f(a: az.Array[az.f64, "n m"], s: az.f64) -> az.f64:
        def row(r: az.Expr) -> Any:
            total = az.sum(new.log_cosh(r) * s)
            return az.cond(total > 0, lambda: new.log_cosh(total), lambda: az.sum(r))

        start = az.sum(az.map(row, a))
        return az.fori_loop(0, 3, lambda i, t: new.log_cosh(t * s), start)

    gradient = az.value_and_grad(f, argnums=(0, 1))
    az.check(gradient.at().term)
    a = numbers(77).reshape(7, 11) / 4
    value, (by_a, by_s) = az.evaluate(gradient)(a, 0.25)
    for threads in (1, 2):
        found, (found_a, found_s) = az.compile(gradient, threads=threads)(a, 0.25)
        close(found, value, 64)
        close(found_a, by_a, 64)
        close(found_s, by_s, 64)
    step = 1e-6
    difference = (az.evaluate(f)(a, 0.25 + step) - az.evaluate(f)(a, 0.25 - step)) / (2 * step)
    assert abs(difference - by_s) <= 1e-8 * max(1.0, abs(by_s))


def test_instructions_and_functions_of_the_library(new: ModuleType) -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        return np.copysign(x, y) + new.gamma(x)  # a row whose meaning is a function of NumPy is found under that name

    @az.program
    def both(x: az.f64, y: az.f64) -> az.f64:
        return new.gamma(x) + new.copysign(x, y)

    assert "copysign(x, y) + gamma(x)" in az.pretty(f)
    compiled = az.compile(f)
    for n in SIZES:
        x, y = numbers(n) % 3 + 0.5, numbers(n)[::-1] + 0.125
        wanted = np.copysign(x, y) + np.array([math.gamma(each) for each in x])
        close(az.evaluate(f)(x, y), wanted)
        close(compiled(x, y), wanted)
    for run in (az.evaluate, az.compile):
        by_x, by_y = run(az.grad(both, argnums=(0, 1)))(1.0, -4.0)
        close([by_x, by_y], [-0.5772156649015329 - 1.0, 0.0])


def test_a_floating_primitive_needs_a_derivative() -> None:
    with pytest.raises(TypeError, match="'cube' has floating operands and result, so it needs a derivative"):
        az.primitive("cube", numpy=lambda x: x**3, llvm=az.Expansion(lambda x: x * x * x))
    assert "cube" not in PRIMITIVES


def test_integers_become_floats_and_nothing_else_does(new: ModuleType) -> None:
    @az.program
    def f(i: az.Array[az.i64, "n"]) -> az.Array[az.f64, "n"]:
        return new.log_cosh(i)

    close(az.evaluate(f)([0, 1]), log_cosh(np.array([0.0, 1.0])))

    @az.program
    def wrong(x: az.f64) -> az.f64:
        return new.log_cosh(x, x)

    with pytest.raises(TypeError, match=r"log_cosh takes 1 argument\(s\), got 2"):
        wrong(1.0)
