"""Choices that feed each other: of one that all branches of another want there are a few copies, and not one a path."""

from typing import Any

import numpy as np
import pytest

import adze as az


def chained(count: int) -> Any:
    """Both branches of each choice want the one before."""

    def f(x: az.f64, z: az.f64) -> az.f64:
        y = x
        for k in range(count):
            y = az.cond(x > k, lambda y=y: y * 0.5, lambda y=y: az.sin(y) + z)
        return y

    return az.program(f)


def pair_chained(count: int) -> Any:
    """Of two values, by tests of what the choice before gives."""

    def f(x: az.f64, z: az.f64) -> az.f64:
        y, w = x, z
        for k in range(count):
            y, w = az.cond(
                y > 0.1 * k, lambda y=y, w=w: (az.sin(y) * w, y + w), lambda y=y, w=w: (az.exp(-y) - w, y * w)
            )
        return y + w

    return az.program(f)


def with_sums(count: int) -> Any:
    """With a loop in one branch: its return sweep is split into choices by the same test."""

    def f(x: az.f64, z: az.Array[az.f64, "n"]) -> az.f64:
        y = x
        for k in range(count):
            y = az.cond(x > k, lambda y=y: az.sum(az.map(lambda t: az.sin(t * y), z)), lambda y=y: az.exp(-y))
        return y

    return az.program(f)


def by_hand(count: int, x: float, z: float) -> tuple[float, float, float]:
    """What ``chained`` gives, and its derivatives."""
    y, by_x, by_z = x, 1.0, 0.0
    for k in range(count):
        if x > k:
            y, by_x, by_z = y * 0.5, by_x * 0.5, by_z * 0.5
        else:
            y, by_x, by_z = np.sin(y) + z, np.cos(y) * by_x, np.cos(y) * by_z + 1.0
    return y, by_x, by_z


@pytest.mark.parametrize("derivative", [lambda f: f, az.jvp])
@pytest.mark.parametrize("program", [chained, pair_chained, with_sums])
def test_a_chain_grows_with_its_length(program: Any, derivative: Any) -> None:
    lines = [az.pretty(derivative(program(count))).count("\n") for count in (16, 32, 64)]
    assert lines[2] - lines[1] <= 2.1 * (lines[1] - lines[0])


def test_a_chain_has_its_values() -> None:
    count, z = 6, 0.25
    program = chained(count)
    gradient, tangent = az.compile(az.grad(program, argnums=(0, 1))), az.evaluate(az.jvp(program))
    for x in (-0.5, 3.5, 20.0):
        value, by_x, by_z = by_hand(count, x, z)
        np.testing.assert_allclose(az.evaluate(program)(x, z), value, rtol=1e-13)
        np.testing.assert_allclose(gradient(x, z), (by_x, by_z), rtol=1e-13)
        np.testing.assert_allclose(tangent(x, z, 1.0, 2.0)[1], by_x + 2.0 * by_z, rtol=1e-13)


@pytest.mark.parametrize("program", [pair_chained, with_sums])
def test_its_gradient_is_that_of_finite_differences(program: Any) -> None:
    f, z = az.evaluate(program(4)), 0.3 if program is pair_chained else np.array([0.3, -0.7, 1.1])
    h = 1e-6
    for x in (0.4, 2.5):
        expected = (f(x + h, z) - f(x - h, z)) / (2 * h)
        np.testing.assert_allclose(az.evaluate(az.grad(program(4)))(x, z), expected, rtol=1e-6, atol=1e-8)


def test_a_chain_stays_in_the_branch_that_wants_it() -> None:
    """However many copies there would be of what does not end in the other branch."""

    @az.program
    def f(x: az.f64) -> az.f64:
        y = az.cond(x > 0.0, lambda: x, lambda: az.while_loop(lambda s: s < 1.0, lambda s: s * 0.5, x))
        for k in range(6):
            y = az.cond(x > k, lambda y=y: az.sin(y), lambda y=y: y * 2.0)
        return az.cond(x > 0.0, lambda: y + 1.0, lambda: 0.0)

    for x in (-1.0, 2.5, 20.0):
        y = x
        for k in range(6):
            y = np.sin(y) if x > k else y * 2.0
        for run in (az.evaluate, az.compile):
            np.testing.assert_allclose(run(f)(x), y + 1.0 if x > 0.0 else 0.0, rtol=1e-14)


@az.data
class Measure:
    class Angle:
        value: az.f64

    class Length:
        value: az.f64


def test_a_choice_by_what_branches_bind_stays_in_them() -> None:
    """Branches that do the same with their fields are one body, which binds these."""

    def branch(v: az.Expr, x: az.Expr) -> az.Expr:
        y = v
        for k in range(6):
            y = az.cond(v > 0.2 * k, lambda y=y: az.sin(y) * x, lambda y=y: az.cos(y))
        return y

    @az.program
    def f(measure: Measure, x: az.f64) -> az.f64:
        return az.case(measure, Angle=lambda v: branch(v, x), Length=lambda v: branch(v, x))

    for make in (Measure.Angle, Measure.Length):
        for v in (0.3, 2.0):
            y, by_x = v, 0.0
            for k in range(6):
                taken = v > 0.2 * k
                y, by_x = (
                    (np.sin(y) * 3.0, np.sin(y) + 3.0 * np.cos(y) * by_x) if taken else (np.cos(y), -np.sin(y) * by_x)
                )
            for run in (az.evaluate, az.compile):
                np.testing.assert_allclose(run(f)(make(v), 3.0), y, rtol=1e-13)
                np.testing.assert_allclose(run(az.grad(f, argnums=1))(make(v), 3.0), by_x, rtol=1e-12)
