"""Least squares over chunks: the fits of the whole data, with sums alone."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]


@az.program
def decay(p: az.Array[az.f64, 3], t: Vector, y: Vector) -> Vector:
    return p[0] * az.exp(-p[1] * t) + p[2] - y


@az.program
def layer(
    p: {"w": az.Array[az.f64, "d k"], "b": az.Array[az.f64, "k"]},
    x: az.Array[az.f64, "n d"],
    y: az.Array[az.f64, "n k"],
) -> Any:
    """Residuals in two axes, some that are not cut, and a number."""
    return {"fit": az.tanh(x @ p["w"] + p["b"]) - y, "prior": 0.1 * p["w"], "sum": az.sum(p["b"])}


RNG = np.random.default_rng(3)
T = np.linspace(0.0, 2.0, 401)
Y = 3.0 * np.exp(-0.5 * T) + 1.0 + 0.01 * RNG.normal(size=401)
Y[::40] += 2.0
START = np.array([1.0, 1.0, 0.0])


def chunked(f: Any, chunk: int | None = 100, **options: Any) -> Any:
    return az.compile(f, backend="dask", over="n", chunk=chunk, **options)


@pytest.mark.parametrize("loss", [pytest.param("linear", marks=pytest.mark.slow), "cauchy"])
def test_the_fit_of_whole_data(loss: str) -> None:
    whole = az.least_squares(decay, START, (T, Y), loss=loss, f_scale=0.02)
    for chunk in (57, 401):
        found = az.least_squares(chunked(decay, chunk), START, (T, Y), loss=loss, f_scale=0.02)
        np.testing.assert_allclose(found.x, whole.x, rtol=1e-6)
        np.testing.assert_allclose(found.cost, whole.cost, rtol=1e-9)
        np.testing.assert_allclose(found.covariance(), whole.covariance(), rtol=1e-6)
        np.testing.assert_allclose(np.asarray(found.fun), decay(found.x, T, Y), rtol=1e-12, atol=1e-14)


@pytest.mark.rest
def test_structures_many_unknowns_and_residuals_that_are_not_cut() -> None:
    x = RNG.normal(size=(60, 4))
    y = np.tanh(x @ RNG.normal(size=(4, 3)) + 0.3)
    start = {"w": np.full((4, 3), 0.1), "b": np.zeros(3)}
    whole, found = (az.least_squares(f, start, (x, y)) for f in (layer, chunked(layer, 25)))
    for name in start:
        np.testing.assert_allclose(found.x[name], whole.x[name], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.cost, whole.cost, rtol=1e-9)
    np.testing.assert_allclose(found.covariance(), whole.covariance(), rtol=1e-5, atol=1e-12)


def test_types_that_are_given_to_at() -> None:
    line = az.program(lambda p, t, y: p * t - y).at(az.f64, Vector, Vector)
    assert az.least_squares(chunked(line), 1.0, (T, 2.5 * T)).x == pytest.approx(2.5)


def test_a_gradient_over_chunks_is_minimised_by_scipy() -> None:
    optimize = pytest.importorskip("scipy.optimize")

    @az.program
    def cost(p: az.Array[az.f64, 3], t: Vector, y: Vector) -> az.f64:
        return 0.5 * az.sum(decay(p, t, y) ** 2)

    found = optimize.minimize(chunked(az.value_and_grad(cost)), START, args=(T, Y), jac=True)
    np.testing.assert_allclose(found.x, az.least_squares(decay, START, (T, Y)).x, rtol=1e-4)


def test_unknowns_of_which_one_has_no_effect() -> None:
    flat = az.program(lambda p, t, y: p[0] * t + 0 * p[1] - y).at(az.Array[az.f64, 2], Vector, Vector)
    fit = az.least_squares(chunked(flat), np.ones(2), (T, Y))
    with pytest.raises(np.linalg.LinAlgError, match="has rank 1, and there are 2 unknowns"):
        fit.covariance()
    both = az.program(lambda p, t, y: (p[0] + p[1]) * t - y).at(az.Array[az.f64, 2], Vector, Vector)
    with pytest.raises(np.linalg.LinAlgError, match="has rank 1, and there are 2 unknowns"):
        az.least_squares(chunked(both), np.ones(2), (T, Y)).covariance()


def test_what_is_refused() -> None:
    each = az.program(lambda x, y: x - y).at(Vector, Vector)
    with pytest.raises(ValueError, match=r"the unknowns are f64\[n\], and over='n' cuts what is given beside"):
        az.least_squares(chunked(each), T, (Y,))
    counts = az.program(lambda p, t: az.map(lambda u: (p * u).astype(az.i64), t)).at(az.f64, Vector)
    with pytest.raises(TypeError, match=r"returns i64\[n\] as residuals: residuals are floating numbers"):
        az.least_squares(chunked(counts), 1.0, (T,))
    with pytest.raises(TypeError, match="x0 is of type i64: unknowns are floating numbers"):
        az.least_squares(chunked(az.program(lambda p, t: p - t).at(az.i64, Vector)), 1, (T,))
    with pytest.raises(TypeError, match="over chunks J is not stored"):
        _ = az.least_squares(chunked(decay), START, (T, Y)).jac


@pytest.mark.rest
def test_what_is_not_finite_has_its_place_in_the_whole() -> None:
    """As in a fit in memory: of residuals that are arrays of several axes, and of their derivatives."""
    wrong = Y.copy()
    wrong[[313, 350]] = np.inf, np.nan
    cases: list[tuple[Any, Any, Any, str]] = [
        (decay, START, (T, wrong), "residuals[313] is -inf at x0"),
        (layer, {"w": np.zeros((4, 3)), "b": np.zeros(3)}, (np.ones((60, 4)), grid(41)), "residuals['fit'][41, 2] is"),
        (root, np.zeros(2), (T, Y), "the derivative of residuals[7] by x0[0] is not finite at x0"),
    ]
    for f, start, arguments, message in cases:
        for each in (f, chunked(f, 100)):
            with pytest.raises(ValueError, match=re.escape(message)):
                az.least_squares(each, start, arguments)
    squared = az.program(lambda p, t: p * t).at(az.f64, Vector)
    with pytest.raises(ValueError, match="the residuals at x0 have the cost inf"):
        az.least_squares(chunked(squared), 1e200, (T,))


def grid(row: int) -> Any:
    made = np.zeros((60, 3))
    made[row, 2] = np.nan
    return made


@az.program
def root(p: az.Array[az.f64, 2], t: Vector, y: Vector) -> Vector:
    """Its derivative by the first unknown is infinite at 0 from the eighth residual on."""
    return az.where(t > T[6], az.sqrt(p[0] * t), p[0]) + p[1] - y


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    made = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=100, local_directory=None
    )
    client = distributed.Client(made)
    yield client
    client.close()
    made.close()


@pytest.mark.slow
def test_the_same_bits_on_workers(client: Any) -> None:
    here, there = (az.least_squares(chunked(decay, client=each), START, (T, Y)) for each in (None, client))
    assert here.x.tobytes() == there.x.tobytes() and here.cost == there.cost
    assert here.covariance().tobytes() == there.covariance().tobytes()
