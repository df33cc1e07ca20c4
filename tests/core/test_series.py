"""Ranges, filters, order and the functions of networks: values against NumPy, slopes against differences."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

X = np.array([0.3, -1.2, 2.5, 0.0, -0.1, 1.7, -2.2])
RUNS = [az.evaluate, az.compile]


def slope_agrees(f: Callable[[Any], Any], x: np.ndarray) -> None:
    """The gradient of a program on a vector, against central differences."""
    program, step = az.program(lambda x: f(x)), 1e-6
    run = az.compile(program)
    wanted = [(run(x + step * e) - run(x - step * e)) / (2 * step) for e in np.eye(len(x))]
    np.testing.assert_allclose(az.compile(az.grad(program))(x), wanted, rtol=1e-5, atol=1e-7)


# Ranges


@pytest.mark.parametrize("run", RUNS)
def test_ranges_of_integers(run: Callable[..., Any]) -> None:
    of_three = run(lambda a, b, c: az.arange(a, b, c))
    for a, b, c in [(0, 5, 1), (2, 11, 3), (9, 2, -2), (2, 2, 1), (5, 2, 1), (0, -7, -3), (2, 11, 100)]:
        found, wanted = of_three(a, b, c), np.arange(a, b, c)
        assert found.dtype == wanted.dtype and np.array_equal(found, wanted)
    assert np.array_equal(run(lambda n: az.arange(n))(4), np.arange(4))
    assert np.array_equal(run(lambda n: az.arange(1, n))(4), np.arange(1, 4))
    assert run(lambda n: az.arange(n, dtype=az.f32))(3).dtype == np.float32
    with pytest.raises(ZeroDivisionError):
        of_three(0, 5, 0)
    with pytest.raises(ValueError, match=r"a step of 0 .*test_series.py"):
        run(lambda n: az.arange(0, n, 0))(3)
    with pytest.raises(TypeError, match="arange takes numbers"):
        run(lambda x: az.arange(x))(X)


@pytest.mark.parametrize("run", RUNS)
def test_ranges_of_floating_numbers(run: Callable[..., Any]) -> None:
    of_three = run(lambda a, b, c: az.arange(a, b, c))
    for a, b, c in [(0.1, 1.0, 0.1), (0.0, 1.0, 0.3), (1.0, -1.0, -0.25), (3.0, 1.0, 0.5), (0.5, 0.6, 7.0)]:
        np.testing.assert_array_equal(of_three(a, b, c), np.arange(a, b, c))


def test_a_range_between_two_numbers() -> None:
    spaced = az.compile(lambda a, b, n: az.linspace(a, b, n))
    for a, b in [(0.0, 1.0), (2.0, -3.0), (1.0, 1.0), (0.1, 0.7)]:
        for n in (0, 1, 2, 3, 50):
            np.testing.assert_allclose(spaced(a, b, n), np.linspace(a, b, n), rtol=1e-15, atol=1e-16)
        assert spaced(a, b, 7)[-1] == b
    slope_agrees(lambda x: az.sum(az.linspace(x[0], x[1], 5) ** 2), X[:2])


# Filters and order


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_filters_have_slopes(mode: str) -> None:
    kernel = np.array([0.5, -1.0, 2.0])
    slope_agrees(lambda x: az.sum(az.convolve(x, kernel, mode) ** 2), X)
    slope_agrees(lambda x: az.sum(az.correlate(X, x, mode) ** 2), kernel)


def test_filters_read_only_what_is_there() -> None:
    """An infinite kernel meets no zeros beside the vector, which would make NaN of it."""
    found = az.compile(lambda a, v: az.convolve(a, v))(np.ones(3), np.array([1.0, np.inf]))
    np.testing.assert_array_equal(found, np.convolve(np.ones(3), [1.0, np.inf]))


@pytest.mark.rest
def test_order_has_slopes() -> None:
    slope_agrees(az.median, X)
    slope_agrees(az.median, X[:6])
    slope_agrees(lambda x: az.quantile(x, 0.3), X)
    slope_agrees(lambda x: az.sum(az.interp(x, [-1.0, 0.2, 2.0], [3.0, -1.0, 4.0])), X)
    slope_agrees(lambda x: az.sum(az.interp(X, [-1.0, 0.2, 2.0], x)), np.array([3.0, -1.0, 4.0]))


def test_all_nan_are_one_in_order() -> None:
    x = np.array([np.nan, 1.0, -0.0, 0.0, np.nan, 1.0])
    found = az.compile(lambda x: az.unique(x, True, True, True))(x)
    for mine, theirs in zip(found, np.unique(x, True, True, True), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert np.isnan(az.compile(lambda x: az.median(x))(x))


def test_shares_that_are_none() -> None:
    def quantile_at(share: Any) -> Callable[[Any], Any]:
        return lambda x: az.quantile(x, share)

    for share in (1.5, -0.1, [0.5, 2.0], math.nan):
        with pytest.raises(ValueError, match=r"a share is from 0 to 1, not .*test_series.py"):
            az.evaluate(quantile_at(share))(X)
    with pytest.raises(ValueError, match="quantile of nothing"):
        az.evaluate(lambda x: az.quantile(x, 0.5))(X[:0])


# Loops from the back


@pytest.mark.parametrize("checkpoint", ["all", "sqrt"])
def test_loops_from_the_back(checkpoint: Any) -> None:
    @az.program
    def behind(x: az.Array[az.f64, "n"]) -> Any:
        return az.scan_loop(lambda s, v: (az.sin(s) + v, s), 0.5, x, reverse=True, checkpoint=checkpoint)

    last, states = az.compile(behind)(X)
    state, wanted = 0.5, np.zeros_like(X)
    for k in reversed(range(len(X))):
        wanted[k], state = state, math.sin(state) + X[k]
    np.testing.assert_allclose(states, wanted, rtol=1e-14)
    assert math.isclose(last, state, rel_tol=1e-14)
    slope_agrees(lambda x: behind(x)[0] + az.sum(behind(x)[1] ** 2), X)
    empty = az.compile(behind)(X[:0])
    assert empty[0] == 0.5 and empty[1].shape == (0,)
    counted = az.evaluate(lambda n: az.scan_loop(lambda s, _: (s * 2, s), 1, None, n, reverse=True))(4)
    assert counted[0] == 16 and counted[1].tolist() == [8, 4, 2, 1]


# Networks


def test_functions_of_networks() -> None:
    softmax, rows = az.compile(lambda x: az.softmax(x)), np.stack([X, X + 1000, -X])
    e = np.exp(rows - rows.max(1, keepdims=True))
    np.testing.assert_allclose(softmax(rows), e / e.sum(1, keepdims=True), rtol=1e-14)
    np.testing.assert_allclose(az.evaluate(lambda x: az.softmax(x, 0))(rows).sum(0), 1, rtol=1e-14)
    for call in (lambda x: az.softmax(x, (0, 1)), lambda x: az.softmax(x, None)):
        np.testing.assert_allclose(az.evaluate(call)(rows).sum(), 1, rtol=1e-14)
    assert np.isnan(softmax(np.array([-np.inf, -np.inf]))).all()
    np.testing.assert_array_equal(softmax(np.array([-np.inf, 1.0])), [0, 1])
    slope_agrees(lambda x: az.sum(az.softmax(x) * X), X)

    exact = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in X]
    np.testing.assert_allclose(az.evaluate(lambda x: az.gelu(x, approximate=False))(X), exact, rtol=1e-14)
    np.testing.assert_allclose(az.evaluate(lambda x: az.gelu(x))(X), exact, atol=5e-4)
    slope_agrees(lambda x: az.sum(az.gelu(x) + az.gelu(x, False)), X)

    np.testing.assert_array_equal(
        az.evaluate(lambda x: az.relu(x))(np.array([-1.0, 2.0, np.nan, 0.0])), [0, 2, np.nan, 0]
    )
    assert az.grad(lambda x: az.sum(az.relu(x)))(np.array([-1.0, 0.0, 2.0])).tolist() == [0, 0, 1]

    hot = az.evaluate(lambda k: az.one_hot(k, 3))(np.array([[2, 0], [5, -1]]))
    np.testing.assert_array_equal(hot, [[[0, 0, 1], [1, 0, 0]], [[0, 0, 0], [0, 0, 0]]])
    assert az.evaluate(lambda k: az.one_hot(k, 3, az.f32, 0))(np.array([2, 0])).dtype == np.float32
    with pytest.raises(TypeError, match="one_hot of integers"):
        az.evaluate(lambda x: az.one_hot(x, 3))(X)
