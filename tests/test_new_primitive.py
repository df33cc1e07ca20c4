"""One entry makes a primitive: the rows of examples/new_primitive.py in every interpretation."""

import pickle
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from load import example

import adze as az
from adze.core.primitive import PRIMITIVES

# Fills no vector, fills it, leaves a tail, fills a strip, leaves a tail behind several strips.
SIZES = (0, 1, 3, 8, 9, 31, 32, 33, 70, 1003)
POINTS = np.array([-800.0, -37.5, -2.0, -0.25, 0.0, 0.25, 2.0, 37.5, 800.0])


@pytest.fixture(scope="module")
def new() -> Iterator[ModuleType]:
    """The example, and the table of primitives as it was afterwards."""
    before = dict(PRIMITIVES)
    module = example("new_primitive")
    yield module
    PRIMITIVES.clear()
    PRIMITIVES.update(before)
    del sys.modules[module.__name__]


def sigmoid(x: Any) -> Any:
    return np.exp(x - np.logaddexp(x, 0))


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
        return new.softplus(x)

    return each


@pytest.fixture(scope="module")
def total(new: ModuleType) -> az.Program:
    @az.program
    def total(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(new.softplus(x) * new.softplus(x))

    return total


def test_the_row_is_in_the_table(new: ModuleType) -> None:
    assert PRIMITIVES["softplus"] is new.softplus
    assert pickle.loads(pickle.dumps(new.softplus)) is new.softplus
    close(new.softplus(POINTS), np.logaddexp(POINTS, 0))


def test_evaluate(each: az.Program) -> None:
    close(az.evaluate(each)(POINTS), np.logaddexp(POINTS, 0), 0)


def test_pretty(each: az.Program, total: az.Program) -> None:
    assert az.pretty(each) == "def each(x: f64[n]) -> f64[n]:\n  return for i < n: softplus(x[i])"
    assert "exp(x[i] - " in az.pretty(az.grad(total))


def test_check_and_terms(total: az.Program) -> None:
    for program in (total, az.grad(total), az.jvp(total)):
        term = program.at().term
        az.check(term)
        assert term.interpret(az.Reify()) == term
        assert pickle.loads(pickle.dumps(term)) == term


def test_simplify(new: ModuleType, total: az.Program) -> None:
    assert az.pretty(total).count("softplus") == 1  # what is written twice is computed once

    @az.program
    def constant() -> az.f64:
        return new.softplus(0.0) + new.softplus(1.0)

    assert constant.at().term.count() == 0 or az.simplify(constant.at().term).count() == 0
    close(az.evaluate(constant)(), np.float64(np.logaddexp(0.0, 0) + np.logaddexp(1.0, 0)))


def test_forward(each: az.Program) -> None:
    tangent = numbers(len(POINTS))
    for run in (az.evaluate, az.compile):
        value, pushed = run(az.jvp(each))(POINTS, tangent)
        close(value, np.logaddexp(POINTS, 0))
        close(pushed, tangent * sigmoid(POINTS))


def test_reverse(each: az.Program, total: az.Program) -> None:
    cotangent = numbers(len(POINTS))
    for run in (az.evaluate, az.compile):
        value, pulled = run(az.vjp(each))(POINTS, cotangent)
        close(value, np.logaddexp(POINTS, 0))
        close(pulled, cotangent * sigmoid(POINTS))
        close(run(az.grad(total))(POINTS), 2 * np.logaddexp(POINTS, 0) * sigmoid(POINTS))


def test_second_order(new: ModuleType) -> None:
    @az.program
    def f(x: az.f64) -> az.f64:
        return new.softplus(x)

    for x in POINTS:
        s = sigmoid(x)
        for run in (az.evaluate, az.compile):
            close(run(az.grad(az.grad(f)))(x), s * (1 - s), 64)
            first, second = run(az.jvp(az.grad(f)))(x, 1.0)
            close(first, s)
            close(second, s * (1 - s), 64)


def test_compiled(each: az.Program) -> None:
    compiled = az.compile(each)
    for n in SIZES:
        close(compiled(numbers(n)), np.logaddexp(numbers(n), 0))
    whole = compiled(numbers(1003))
    for start in (1, 7, 32):  # a value does not depend on its place in the array
        assert compiled(numbers(1003)[start:]).tobytes() == whole[start:].tobytes()
    close(compiled(POINTS), np.logaddexp(POINTS, 0))


def test_compiled_in_single_precision(new: ModuleType) -> None:
    @az.program
    def single(x: az.Array[az.f32, "n"]) -> az.Array[az.f32, "n"]:
        return new.softplus(x)

    for n in SIZES:
        x = numbers(n, np.float32)
        close(az.compile(single)(x), np.logaddexp(x, np.float32(0)))
        close(az.evaluate(single)(x), np.logaddexp(x, np.float32(0)))


def test_compiled_derivatives_inside_every_construct(new: ModuleType) -> None:
    @az.program
    def f(a: az.Array[az.f64, "n m"], s: az.f64) -> az.f64:
        def row(r: az.Expr) -> Any:
            total = az.sum(new.softplus(r) * s)
            return az.cond(total > 0, lambda: new.softplus(total), lambda: az.sum(r))

        start = az.sum(az.map(row, a))
        return az.fori_loop(0, 3, lambda i, t: new.softplus(t * s), start)

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
        return np.rint(x) + new.atan2(x, y)  # a row whose meaning is a function of NumPy is found under that name

    @az.program
    def angle(x: az.f64, y: az.f64) -> az.f64:
        return new.atan2(x, y) + new.rint(x)

    assert "rint(x[i])" in az.pretty(f)
    compiled = az.compile(f)
    for n in SIZES:
        x, y = numbers(n) * 1.25, numbers(n)[::-1] + 0.125
        close(az.evaluate(f)(x, y), np.rint(x) + np.arctan2(x, y))
        close(compiled(x, y), np.rint(x) + np.arctan2(x, y))
    for run in (az.evaluate, az.compile):
        by_x, by_y = run(az.grad(angle, argnums=(0, 1)))(3.0, 4.0)
        close([by_x, by_y], [4 / 25, -3 / 25])


def test_a_floating_primitive_needs_a_derivative() -> None:
    with pytest.raises(TypeError, match="'cube' has floating operands and result, so it needs a derivative"):
        az.primitive("cube", numpy=lambda x: x**3, llvm=az.Expansion(lambda x: x * x * x))
    assert "cube" not in PRIMITIVES


def test_integers_become_floats_and_nothing_else_does(new: ModuleType) -> None:
    @az.program
    def f(i: az.Array[az.i64, "n"]) -> az.Array[az.f64, "n"]:
        return new.softplus(i)

    close(az.evaluate(f)([0, 1]), np.logaddexp([0.0, 1.0], 0))

    @az.program
    def wrong(x: az.f64) -> az.f64:
        return new.softplus(x, x)

    with pytest.raises(TypeError, match=r"softplus takes 1 argument\(s\), got 2"):
        wrong(1.0)
