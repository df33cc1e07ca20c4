"""Fits inside of programs: many at once, their derivatives, and what is refused."""

from typing import Any

import numpy as np
import pytest
from scipy import optimize

import adze as az

pytestmark = pytest.mark.unguarded

T = np.linspace(0.0, 2.0, 7)


def decay(p: Any, t: Any, y: Any) -> Any:
    return p[0] * az.exp(-p[1] * t) - y


@az.program
def fits(t: az.Array[az.f64, "m"], ys: az.Array[az.f64, "k m"]) -> az.Array[az.f64, "k", 2]:
    return az.map(lambda y: az.levenberg_marquardt(decay, az.array([1.0, 1.0]), args=(t, y)), ys)


def data(count: int) -> np.ndarray:
    draw = np.random.default_rng(3)
    height, rate = 1 + draw.random((count, 1)), 0.3 + draw.random((count, 1))
    return np.asarray(height * np.exp(-rate * T) + 0.05 * draw.normal(size=(count, 7)))


@pytest.mark.rest
def test_many_fits_are_those_of_scipy() -> None:
    ys = data(20)
    found = fits(T, ys)
    for x, y in zip(found, ys):
        right = optimize.least_squares(
            lambda p, y=y: p[0] * np.exp(-p[1] * T) - y, [1.0, 1.0], jac="3-point", xtol=1e-14, ftol=1e-14, gtol=1e-14
        )
        np.testing.assert_allclose(x, right.x, rtol=1e-6)
    np.testing.assert_allclose(az.evaluate(fits)(T, ys[:2]), found[:2], rtol=1e-9)


def test_the_same_bits_for_any_number_of_threads() -> None:
    ys = data(1000)
    results = [az.compile(fits, threads=threads)(T, ys) for threads in (1, 2, 5)]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.slow
def test_on_a_device(opencl: Any) -> None:
    """The same fits as on the CPU: all take their steps side by side, and those that have ended stay."""
    ys = data(100)
    ys[3, 2] = np.nan
    found = az.compile(fits, backend="opencl", device=opencl)(T, ys)
    np.testing.assert_allclose(found, fits(T, ys), rtol=1e-7)  # rounding may end a fit a step sooner
    np.testing.assert_array_equal(found[3], [1.0, 1.0])
    weights = np.cos(np.arange(200.0)).reshape(100, 2)
    ys[3, 2] = 1.0
    pulled = az.vjp(fits, argnums=1)
    slopes = [run(pulled)(T, ys, weights)[1] for run in (az.compile, lambda p: az.compile(p, backend="opencl"))]
    np.testing.assert_allclose(slopes[1], slopes[0], rtol=1e-6, atol=1e-8)


@pytest.mark.rest
def test_a_fit_that_fails_leaves_the_others_alone() -> None:
    ys = data(8)
    right = fits(T, ys)
    ys[3, 2], ys[5, 0] = np.nan, np.inf
    found = fits(T, ys)
    np.testing.assert_array_equal(found[[3, 5]], np.ones((2, 2)))
    rest = [0, 1, 2, 4, 6, 7]
    np.testing.assert_allclose(found[rest], right[rest], rtol=1e-9)


@pytest.mark.rest
def test_the_unknowns_have_a_structure() -> None:
    @az.program
    def fit(t: az.Array[az.f32, "m"], y: az.Array[az.f32, "m"]):
        start = {"height": y[0], "rate": az.full((1, 1), t[1] * 3)}
        return az.levenberg_marquardt(lambda p, t, y: decay((p["height"], p["rate"][0, 0]), t, y), start, args=(t, y))

    y = (1.5 * np.exp(-0.5 * T)).astype(np.float32)
    found = fit(T.astype(np.float32), y)
    assert found["height"].dtype == np.float32 and found["rate"].shape == (1, 1)
    np.testing.assert_allclose([found["height"], found["rate"][0, 0]], [1.5, 0.5], rtol=1e-4)


@pytest.mark.rest
def test_zero_columns_and_residuals_that_are_zero() -> None:
    @az.program
    def fit(c: az.f64):
        return az.levenberg_marquardt(lambda p, c: az.array([p[0] - c, p[0] - c]), az.array([1.0, 7.0]), args=(c,))

    np.testing.assert_allclose(fit(3.0), [3.0, 7.0], rtol=1e-12)
    np.testing.assert_array_equal(fit(1.0), [1.0, 7.0])


# Derivatives


@az.program
def rate(y: az.Array[az.f64, "m"], t: az.Array[az.f64, "m"], n: az.i64) -> az.f64:
    def residuals(p: Any, data: Any, n: Any) -> Any:
        return az.exp(-p * data["t"]) * n - data["y"]

    return az.levenberg_marquardt(residuals, 1.0, args=({"y": y, "t": t}, n)) ** 2


@pytest.mark.rest
def test_derivatives_by_the_data_are_those_of_differences() -> None:
    """Of residuals that are not zero at the minimum, in both modes."""
    y = np.exp(-0.8 * T) + 0.1 * np.cos(5 * T)
    by_y, by_t = az.grad(rate, (0, 1))(y, T, 1)
    step = 1e-3
    for k in (0, 3):
        unit = step * np.eye(7)[k]
        assert by_y[k] == pytest.approx((rate(y + unit, T, 1) - rate(y - unit, T, 1)) / (2 * step), rel=1e-4)
        assert by_t[k] == pytest.approx((rate(y, T + unit, 1) - rate(y, T - unit, 1)) / (2 * step), rel=1e-4)
    direction = np.sin(np.arange(7.0))
    _, tangent = az.jvp(rate, argnums=0)(y, T, 1, direction)
    assert tangent == pytest.approx(by_y @ direction, rel=1e-9)


@pytest.mark.rest
def test_a_minimum_does_not_depend_on_the_start() -> None:
    @az.program
    def ended(start: az.f64, c: az.f64) -> az.f64:
        return az.levenberg_marquardt(lambda p, c: p**2 - c, start, args=(c,))

    by_start, by_c = az.grad(ended, (0, 1))(1.0, 4.0)
    assert by_start == 0.0 and by_c == pytest.approx(0.25)


# Bad input


@pytest.mark.parametrize(
    "x0, kind, message",
    [
        (lambda x: az.zeros(33), ValueError, "there are 33 unknowns, and may be from 1 to 32"),
        (lambda x: x, TypeError, "the sizes of unknowns are numbers"),
        (lambda x: {"a": 1}, TypeError, r"x0\['a'\] is of type i64: unknowns are floating numbers"),
    ],
)
def test_bad_input(x0: Any, kind: Any, message: str) -> None:
    @az.program
    def fit(x: az.Array[az.f64, "n"]):
        return az.levenberg_marquardt(lambda p: p, x0(x))

    with pytest.raises(kind, match=message) as caught:
        fit(np.ones(2))
    assert "test_inside.py:" in str(caught.value)


def test_it_is_for_programs() -> None:
    with pytest.raises(
        TypeError, match="levenberg_marquardt is for the inside of a program; least_squares takes arrays"
    ):
        az.levenberg_marquardt(lambda p: p, np.ones(2))
