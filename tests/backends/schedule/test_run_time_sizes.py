"""Arrays whose sizes are integers of a call are stored as others are (``backends/schedule/terms/cuts.py``)."""

from typing import Any

import numpy as np
import pytest

import adze as az

Points = az.Array[az.f64, "n d"]


@az.program
def best(points: Points, weights: az.Array[az.f64, "m d"], k: az.i64) -> az.Array[az.f64, "n"]:
    """The first k rows of weights; k is no size of an array."""
    chosen = az.generate((k, points.shape[1]), lambda c, j: weights[c, j])
    return az.max(points @ chosen.T, 1)


@az.program
def triangles(points: Points) -> az.f64:
    """As many elements as the loop around says: there is nothing to be stored before it."""
    n = points.shape[0]
    rows = az.generate(n, lambda i: az.sum(az.cumsum(az.generate(i + 1, lambda j: az.sin(points[j, 0])))))
    return az.sum(rows)


@pytest.mark.rest
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 3, 40])
def test_rows_of_a_product_with_so_many_columns_as_an_argument_says(n: int, k: int) -> None:
    drawn = np.random.default_rng(n)
    points, weights = drawn.normal(size=(n, 4)), drawn.normal(size=(6, 4))
    expected = np.max(points @ weights[:k].T, 1)
    np.testing.assert_allclose(az.compile(best)(points, weights, k), expected, rtol=1e-12, atol=1e-14)


def test_it_is_one_product() -> None:
    nests = az.compile(best).nests
    assert any("nest" in line and "< n, " in line and "< k" in line for line in nests.splitlines()), nests


@pytest.mark.parametrize("n", [0, 1, 7])
def test_sizes_of_the_loop_itself(n: int) -> None:
    points: Any = np.random.default_rng(n).normal(size=(n, 1))
    expected = sum(np.cumsum(np.sin(points[: i + 1, 0])).sum() for i in range(n))
    np.testing.assert_allclose(az.compile(triangles)(points), expected, rtol=1e-12, atol=1e-14)
