"""Loops of a few iterations that choose by their index become their iterations, one after another."""

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

Three = az.Array[az.f64, "3"]


@az.program
def cross(a: Three, b: Three) -> Three:
    return az.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


@az.program
def volume(a: Three, b: Three, c: Three) -> az.f64:
    return cross(a, b) @ c


def test_the_cotangent_of_an_array_that_is_written_out_chooses_nothing() -> None:
    gradient = az.grad(volume, argnums=(0, 1, 2))
    text = az.pretty(gradient)
    assert "if" not in text.split("return")[0] and "for" not in text.split("return")[0]
    assert az.cost(gradient).at().work <= 4 * az.cost(volume).at().work
    a, b, c = np.random.default_rng(0).normal(size=(3, 3))
    for run in (az.evaluate, az.compile):
        found = run(gradient)(a, b, c)
        for one, wanted in zip(found, (np.cross(b, c), np.cross(c, a), np.cross(a, b)), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-14)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_choices_by_comparisons_of_all_kinds(size: int) -> None:
    """Sums, products and updates, for sizes that are unrolled and one that is not."""

    @az.program
    def f(x: az.Array[az.f64, "n"], k: az.i64) -> tuple[az.f64, az.f64]:
        chosen = az.generate(
            size,
            lambda i: az.cond(i == 1, lambda: x[0] * x[i], lambda: az.cond(i >= 2, lambda: az.sin(x[i]), lambda: 2.0)),
        )
        return az.sum(chosen), az.prod(az.generate(size, lambda i: az.cond(i < k, lambda: x[i], lambda: 1.0)))

    x = np.linspace(0.5, 2, size)
    wanted = 2 + x[0] * x[1] + np.sin(x[2:]).sum(), x[:2].prod()
    for run in (az.evaluate, az.compile):
        np.testing.assert_allclose(run(f)(x, 2), wanted, rtol=1e-14)
    by_x = az.evaluate(az.vjp(f, argnums=0))(x, 2, (1.0, 0.0))[1]
    np.testing.assert_allclose(by_x, np.concatenate([[x[1], x[0]], np.cos(x[2:])]), rtol=1e-14)


def test_requirements_of_each_iteration_are_checked() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        return az.sum(az.generate(2, lambda i: az.cond(i == 0, lambda: x[k], lambda: x[0])))

    for run in (az.evaluate, az.compile):
        assert run(f)(np.array([1.0, 3.0]), 1) == 4
        with pytest.raises(IndexError, match=r"test_unrolling\.py"):
            run(f)(np.ones(2), 2)
