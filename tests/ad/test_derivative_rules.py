"""Rules of derivatives, one by one: kinks, ties, zeros, branches, gathers, structures, nesting, and what is refused."""

from typing import Any

import numpy as np
import pytest
from programs import numbers

import adze as az

pytestmark = pytest.mark.unguarded

Weights, Inputs, Vector = az.Array[az.f64, "m n"], az.Array[az.f64, "k n"], az.Array[az.f64, "m"]


@az.program
def network(w: Weights, x: Inputs, b: Vector) -> az.f64:
    """A dense layer, a selection and a loop: everything second order must go through."""

    def unit(row: az.Expr) -> az.Expr:
        h = az.tanh(w @ row + b)
        state = az.fori_loop(0, 3, lambda i, s: s * 0.5 + az.sum(h * h), az.sum(h))
        return az.cond(state > 0.5, lambda: az.log(1.0 + state * state), lambda: az.sin(state))

    return az.sum(az.map(unit, x)) + az.logsumexp(b)


@pytest.mark.slow
def test_second_order_four_ways() -> None:
    """jvp of grad, grad of jvp and vjp of grad are one Hessian, which is symmetric and a difference of gradients."""
    generator = np.random.default_rng(2)
    w, x, b = (generator.normal(size=s) for s in ((3, 4), (5, 4), (3,)))
    direction = generator.normal(size=(3, 4))

    @az.program
    def forward_over_reverse(w: Weights, x: Inputs, b: Vector, d: Weights):  # type: ignore[no-untyped-def]
        return az.jvp(lambda w: az.grad(network)(w, x, b), (w,), (d,))[1]

    @az.program
    def reverse_over_forward(w: Weights, x: Inputs, b: Vector, d: Weights):  # type: ignore[no-untyped-def]
        return az.grad(lambda w: az.jvp(lambda w: network(w, x, b), (w,), (d,))[1])(w)

    @az.program
    def reverse_over_reverse(w: Weights, x: Inputs, b: Vector, d: Weights):  # type: ignore[no-untyped-def]
        return az.grad(lambda w: az.sum(az.grad(network)(w, x, b) * d))(w)

    gradient, step = az.evaluate(az.grad(network)), 1e-6
    difference = (gradient(w + step * direction, x, b) - gradient(w - step * direction, x, b)) / (2 * step)
    for program in (forward_over_reverse, reverse_over_forward, reverse_over_reverse):
        for run in (az.evaluate(program), az.compile(program, threads=2)):
            np.testing.assert_allclose(run(w, x, b, direction), difference, rtol=1e-6, atol=1e-8)


def test_no_perturbation_confusion() -> None:
    @az.program
    def f(x: az.f64) -> az.f64:
        return x * az.grad(lambda y: x * y)(x)

    assert az.evaluate(az.grad(f))(3.0) == az.grad(f)(3.0) == 6.0


def test_derivatives_inside_every_construct() -> None:
    """grad inside map, in a loop and in a branch, of functions that capture outer variables."""

    @az.program
    def f(x: az.Array[az.f64, "n"], c: az.f64) -> az.f64:
        inner = az.map(lambda v: az.grad(lambda y: az.sin(y * v) * c)(v), x)
        looped = az.fori_loop(0, 2, lambda i, s: s + az.grad(lambda y: y * y * s)(c), 1.0)
        branch = az.cond(c > 0, lambda: az.grad(lambda y: az.exp(y * c))(0.5), lambda: 0.0)
        return az.sum(inner) + looped + branch

    def plain(x: Any, c: float) -> float:
        looped = 1.0
        for _ in range(2):
            looped += 2 * c * looped
        return float(np.sum(c * x * np.cos(x * x)) + looped + c * np.exp(0.5 * c))

    x, c, step = numbers(5) / 4, 0.7, 1e-6
    assert float(f(x, c)) == pytest.approx(plain(x, c), rel=1e-12)
    for run in (az.evaluate, az.compile):
        by_x, by_c = run(az.grad(f, argnums=(0, 1)))(x, c)
        assert by_c == pytest.approx((plain(x, c + step) - plain(x, c - step)) / (2 * step), rel=1e-7)
        unit = np.eye(5)[2] * step
        assert by_x[2] == pytest.approx((plain(x + unit, c) - plain(x - unit, c)) / (2 * step), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_only_the_branch_taken_is_differentiated(run: Any) -> None:
    @az.program
    def roots(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(az.where(x > 0, az.sqrt(x), 0.0))

    @az.program
    def mapped(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(az.map(lambda v: az.where(v > 0, az.sqrt(v), 0.0), x))

    x = np.array([-1.0, 0.0, 4.0])
    for program in (roots, mapped):
        np.testing.assert_array_equal(run(az.grad(program))(x), [0.0, 0.0, 0.25])


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_kinks_ties_and_zeros(run: Any) -> None:
    @az.program
    def largest(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.max(x) - 2 * az.min(x)

    @az.program
    def product(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.prod(x)

    @az.program
    def scalars(a: az.f64, b: az.f64) -> az.f64:
        return az.maximum(a, b) + 3 * az.minimum(a, b) + abs(a)

    np.testing.assert_array_equal(run(az.grad(largest))(np.array([1.0, 3.0, 1.0, 3.0])), [-2, 1, 0, 0])
    np.testing.assert_array_equal(run(az.grad(largest))(np.zeros(0)), np.zeros(0))
    for x, gradient in (
        ([2.0, 3.0, 4.0], [12, 8, 6]),
        ([2.0, 0.0, 4.0], [0, 8, 0]),
        ([0.0, 3.0, 0.0], [0, 0, 0]),
        ([], []),
    ):
        np.testing.assert_array_equal(run(az.grad(product))(np.array(x)), gradient)
    assert tuple(run(az.grad(scalars, argnums=(0, 1)))(0.0, 0.0)) == (4.0, 0.0)


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_reads_at_computed_places_add_up(run: Any) -> None:
    @az.program
    def gathered(x: az.Array[az.f64, "n"], places: az.Array[az.i64, "m"]) -> az.f64:
        return az.sum(x[places] ** 2)

    x, places = numbers(4), np.array([0, 2, 2, 3, 2])
    expected = np.zeros(4)
    np.add.at(expected, places, 2 * x[places])
    np.testing.assert_array_equal(run(az.grad(gathered))(x, places), expected)
    value, by_x, *rest = run(az.vjp(gathered))(x, places, 1.0)
    np.testing.assert_array_equal(by_x, expected)
    assert value == np.sum(x[places] ** 2) and rest == []


def test_structures_types_and_unused_parameters() -> None:
    @az.program
    def f(parameters, x: az.Array[az.f32, "n"], unused: az.Array[az.f64, "k"], steps: int = 2):  # type: ignore[no-untyped-def]
        total = parameters["scale"] * az.sum(parameters["pair"][0] * parameters["pair"][1])
        for _ in range(steps):
            total = total * 2.0
        return total + az.sum(x).astype(az.f64)

    a, b = numbers(3), numbers(3, seed=1)
    parameters = {"scale": 0.5, "pair": (a, b), "count": 3}
    x = numbers(4, dtype=np.float32)
    by_parameters, by_x, by_unused = az.grad(f, argnums=(0, 1, -2))(parameters, x, np.ones(2))
    assert by_parameters["count"] is None
    assert by_parameters["scale"] == 4 * np.sum(a * b)
    np.testing.assert_array_equal(by_parameters["pair"][0], 2.0 * b)
    assert by_x.dtype == np.float32
    np.testing.assert_array_equal(by_x, np.ones(4, np.float32))
    np.testing.assert_array_equal(by_unused, np.zeros(2))


def test_the_gradient_of_logsumexp_holds_no_search_for_the_maximum() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.logsumexp(x)

    x = numbers(6)
    np.testing.assert_allclose(az.grad(f)(x), np.exp(x) / np.exp(x).sum(), rtol=1e-14)
    assert "accumulate" not in az.pretty(az.grad(f)) and "minimum" not in az.pretty(az.grad(f))


def test_jax_forms_inside_a_program() -> None:
    @az.program
    def both(x: az.Array[az.f64, "n"], v: az.Array[az.f64, "n"]):  # type: ignore[no-untyped-def]
        value, pull = az.vjp(lambda x: az.sum(x**3), x)
        (pulled,) = pull(2.0)
        primal, tangent = az.jvp(lambda x: az.sum(x**3), (x,), (v,))
        return value, pulled, primal, tangent

    x, v = numbers(4), numbers(4, seed=1)
    value, pulled, primal, tangent = both(x, v)
    assert value == primal == np.sum(x**3)
    np.testing.assert_array_equal(pulled, 6 * x**2)
    assert tangent == np.sum(3 * x**2 * v)


# Refusals


@az.program
def typed(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
    return az.sum(x) * k


def test_refused_parameters_and_results() -> None:
    with pytest.raises(TypeError, match=r"grad\(typed\): parameter 'k' \(argnums 1\) is of type i64"):
        az.grad(typed, argnums=1)
    with pytest.raises(ValueError, match=r"grad\(typed\): argnums 5, but typed has 2 parameter"):
        az.grad(typed, argnums=5)

    @az.program
    def vector(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        return x

    @az.program
    def count(x: az.Array[az.f64, "n"]):  # type: ignore[no-untyped-def]
        return x.shape[0]

    for program, shown in ((vector, "f64"), (count, "i64")):
        with pytest.raises(TypeError, match=rf"grad.*scalar.*{program.name} returns {shown}.*test_derivative_rules.py"):
            az.grad(program)(np.ones(3))


def test_a_general_operator_in_both_modes() -> None:
    @az.program
    def last(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.reduce(lambda a, b: a + b + a * b, 0.0, x)

    x = numbers(4) / 8
    np.testing.assert_allclose(az.grad(last)(x), np.prod(1 + x) / (1 + x), rtol=1e-14)
    _, tangent = az.jvp(last)(x, np.ones(4))
    assert tangent == pytest.approx(np.sum(np.prod(1 + x) / (1 + x)))
