"""Sparse fits: which unknowns are eliminated, the steps that come out, and a bundle adjustment beside SciPy's."""

from typing import Any

import numpy as np
import pytest
import scipy
from scipy import optimize

import adze as az
from adze.ad import sparse
from adze.solvers import complement
from adze.solvers import problem as problems
from adze.solvers.elimination import Elimination
from adze.solvers.linearised import Normal
from adze.solvers.schur import Reduction, widths

pytestmark = pytest.mark.unguarded


def random_jacobian(cameras: int, blocks: list[int], seed: int = 0) -> Any:
    """Rows that meet two unknowns of one block and two of the first ``cameras``."""
    draw = np.random.default_rng(seed)
    places = cameras + np.cumsum([0, *blocks[:-1]])
    rows = []
    for start, width in zip(places, blocks):
        for _ in range(3 * width):
            row = np.zeros(cameras + sum(blocks))
            row[start : start + width] = draw.normal(size=width)
            row[draw.choice(cameras, 2, replace=False)] = draw.normal(size=2)
            rows.append(row)
    return scipy.sparse.csr_array(np.array(rows))


def test_blocks_that_meet_no_others_are_eliminated() -> None:
    jacobian = random_jacobian(6, [3] * 30 + [2] * 5)
    order = np.random.default_rng(1).permutation(jacobian.shape[1])
    shuffled = jacobian[:, order]
    found = Elimination.of(shuffled.tocsr())
    np.testing.assert_array_equal(np.sort(order[found.left]), np.arange(6))
    assert found.width == 3 and np.bincount(np.bincount(found.block)).tolist() == [0, 0, 5, 30]


def test_unknowns_in_no_row_are_eliminated_one_by_one() -> None:
    jacobian = random_jacobian(6, [3] * 30)
    unseen = scipy.sparse.hstack([jacobian, scipy.sparse.csr_array((jacobian.shape[0], 40))]).tocsr()
    found = Elimination.of(unseen)
    np.testing.assert_array_equal(found.left, np.arange(6))
    assert found.count == 30 + 40


def test_a_chain_has_no_small_blocks() -> None:
    chain = scipy.sparse.diags_array([np.ones(50), np.ones(49)], offsets=[0, 1]).tocsr()
    found = Elimination.of(chain)
    assert len(found.left) >= 48


@pytest.mark.parametrize("dense", [6000, 0])
def test_steps_are_those_of_the_whole_system(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a complement that is factorised, and by conjugate gradients; with blocks of two widths, and without any."""
    monkeypatch.setattr(complement, "DENSE", dense)
    bidiagonal = scipy.sparse.diags_array([np.full(40, 2.0), np.ones(39)], offsets=[0, 1]).tocsr()
    for jacobian in (random_jacobian(6, [3] * 30 + [2] * 5), bidiagonal):
        count = jacobian.shape[1]
        residuals = np.cos(np.arange(jacobian.shape[0]))
        sparse = Reduction.of(jacobian, [1] * count).around(jacobian, residuals)
        whole = Normal((jacobian.T @ jacobian).toarray(), jacobian.T @ residuals)
        np.testing.assert_allclose(sparse.gradient, whole.gradient)
        scales = np.sqrt(whole.squares)
        for each in (sparse, whole):
            each.prepare(scales)
        for damping in (1e-3, 1.0):
            np.testing.assert_allclose(sparse.step(damping), whole.step(damping), rtol=1e-5, atol=1e-8)


@pytest.mark.rest
def test_tiles_of_a_band() -> None:
    """Cameras of four unknowns and of three, in any order; each point is seen by two neighbours on a road."""
    draw = np.random.default_rng(2)
    cameras = [np.arange(4 * k, 4 * k + 4) for k in range(10)] + [np.arange(40 + 3 * k, 43 + 3 * k) for k in range(10)]
    road = draw.permutation(20)
    rows = []
    for k in range(95):
        for near in (road[k % 19], road[k % 19 + 1]):
            for _ in range(2):
                row = np.zeros(70 + 3 * 95)
                row[cameras[near]] = draw.normal(size=len(cameras[near]))
                row[70 + 3 * k : 73 + 3 * k] = draw.normal(size=3)
                rows.append(row)
    jacobian = scipy.sparse.csr_array(np.concatenate([rows, np.eye(70, 355)]))
    residuals = draw.normal(size=jacobian.shape[0])
    reduction = Reduction.of(jacobian, [4] * 10 + [3] * 105)
    assert reduction.layout is not None and reduction.layout.is_banded and reduction.layout.tiles.width == 4
    sparse = reduction.around(jacobian, residuals)
    whole = Normal((jacobian.T @ jacobian).toarray(), jacobian.T @ residuals)
    np.testing.assert_allclose(sparse.squares, whole.squares)
    for each in (sparse, whole):
        each.prepare(np.sqrt(whole.squares))
    np.testing.assert_allclose(sparse.step(0.1), whole.step(0.1), rtol=1e-9, atol=1e-12)


def test_a_system_that_is_not_positive_has_no_step() -> None:
    jacobian = random_jacobian(6, [3] * 10)
    sparse = Reduction.of(jacobian, [1] * jacobian.shape[1]).around(jacobian, np.ones(jacobian.shape[0]))
    sparse.prepare(np.ones(jacobian.shape[1]))
    assert sparse.step(-1e6) is None


def test_rows_of_leaves_are_blocks() -> None:
    assert widths([(2, 3), (4,), (), (1, 40)]) == [3, 3, 1, 1, 1, 1, 1, *[1] * 40]


def test_unknowns_that_all_fall_into_blocks() -> None:
    """Nothing is left, and each step solves 300 systems of two."""

    def valleys(x: Any) -> Any:
        return 10 * (x[:, 1] - x[:, 0] ** 2), 1 - x[:, 0]

    fit = az.least_squares(valleys, np.tile([-1.2, 1.0], (300, 1)))
    assert fit.success and scipy.sparse.issparse(fit.jac)
    np.testing.assert_allclose(fit.x, np.ones((300, 2)), rtol=1e-8)


# Bundle adjustment


@az.program
def bundle(
    x: {"cameras": az.Array[az.f64, "c", 4], "points": az.Array[az.f64, "p", 3]},
    camera: az.Array[az.i64, "o"],
    point: az.Array[az.i64, "o"],
    seen: az.Array[az.f64, "o", 2],
):
    """Cameras that look along the third axis, each with a place and a focal length."""

    def error(c: Any, p: Any, s: Any) -> Any:
        own, place = x["cameras"][c], x["points"][p]
        depth = place[2] - own[2]
        return az.array([own[3] * (place[k] - own[k]) / depth - s[k] for k in range(2)])

    return az.map(error, camera, point, seen)


def scene(
    cameras: int, points: int, views: int, outliers: float
) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, ...]]:
    draw = np.random.default_rng(5)
    places = {
        "cameras": np.column_stack([draw.normal(size=(cameras, 2)), np.full(cameras, -8.0), np.full(cameras, 2.0)]),
        "points": draw.normal(size=(points, 3)),
    }
    point = np.repeat(np.arange(points), views)
    camera = np.concatenate([draw.choice(cameras, views, replace=False) for _ in range(points)])
    exact = bundle(places, camera, point, np.zeros((len(point), 2)))
    seen = exact + 0.01 * draw.normal(size=exact.shape) + (draw.random(exact.shape) < outliers) * 1.0
    return {name: part + 0.1 * draw.normal(size=part.shape) for name, part in places.items()}, (camera, point, seen)


@pytest.mark.parametrize("loss", [pytest.param("linear", marks=pytest.mark.slow), "huber"])
def test_bundle_adjustment(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "LARGE", 1)
    start, observations = scene(6, 40, 4, 0.01 if loss == "huber" else 0.0)
    fit = az.least_squares(bundle, start, args=observations, loss=loss, f_scale=0.03)
    assert fit.success and fit.history[0].cost > 2 * fit.cost and scipy.sparse.issparse(fit.jac)
    jacobian = az.sparse_jacobian(bundle)

    def structured(x: np.ndarray) -> dict[str, np.ndarray]:
        return {"cameras": x[:24].reshape(6, 4), "points": x[24:].reshape(40, 3)}

    right = optimize.least_squares(
        lambda x: bundle(structured(x), *observations).ravel(),
        np.concatenate([part.ravel() for part in start.values()]),
        jac=lambda x: jacobian(structured(x), *observations).toarray(),
        loss=loss,
        f_scale=0.03,
        xtol=1e-9,
        ftol=1e-9,
    )
    assert fit.cost <= right.cost * (1 + 1e-6)


def test_a_pattern_serves_the_next_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """While sizes and integers are the same; a fit with others has its own."""
    monkeypatch.setattr(problems, "LARGE", 1)
    found, reduced = list[Any](), list[Any]()
    dependence, of = sparse.dependence, Reduction.of
    monkeypatch.setattr(sparse, "dependence", lambda *given: found.append(0) or dependence(*given))
    monkeypatch.setattr(Reduction, "of", staticmethod(lambda *given: reduced.append(0) or of(*given)))
    own = az.Program(bundle.function, "own", bundle.parameters)
    start, (camera, point, seen) = scene(4, 20, 3, 0.0)
    first = az.least_squares(own, start, args=(camera, point, seen))
    again = az.least_squares(own, start, args=(camera, point, seen.copy()))
    assert (len(found), len(reduced)) == (1, 1)
    np.testing.assert_array_equal(again.x["points"], first.x["points"])
    order = np.argsort(camera, kind="stable")
    turned = az.least_squares(own, start, args=(camera[order], point[order], seen[order]))
    assert (len(found), len(reduced)) == (2, 2)
    np.testing.assert_allclose(turned.cost, first.cost, rtol=1e-9)
    point[:] = 0  # what a pattern was found for is not what the caller changes later
    az.least_squares(own, start, args=(camera[order], np.repeat(np.arange(20), 3)[order], seen[order]))
    assert len(found) == 2
