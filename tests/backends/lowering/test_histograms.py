"""Bins and values that are computed are computed in lanes, strip by strip (``backends/lowering/histograms.py``)."""

from typing import Any

import numpy as np
import pytest

import adze as az
from adze.backends.target import HISTOGRAM_STRIP

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
LENGTHS = [0, 1, HISTOGRAM_STRIP - 1, HISTOGRAM_STRIP, HISTOGRAM_STRIP + 1, 1000]


@az.program
def moved(x: Vector, shift: az.f64) -> Any:
    """Some elements are in no bin."""
    return az.bincount(az.round(3 * x + shift).astype(az.i64), length=7)


@az.program
def weighted(x: Vector, shift: az.f64) -> Any:
    """Two values an element, of which one is a number that does not vary."""
    bins = az.round(3 * x + shift).astype(az.i64)
    return az.histogram(
        lambda a, b: (a[0] + b[0], az.maximum(a[1], b[1])),
        (0.0, -np.inf),
        7,
        bins,
        (x * x + 1.0, az.full(x.shape, 2.0)),
    )


@az.program
def for_each(x: Vector, shift: az.f64) -> Any:
    return az.map(lambda s: az.bincount(az.round(3 * x + s * shift).astype(az.i64), length=7), x[:5])


def counts(x: Any, shift: float) -> Any:
    bins = np.round(3 * x + shift).astype(int)
    return np.bincount(bins[(bins >= 0) & (bins < 7)], minlength=7)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n", LENGTHS)
def test_bins_that_are_computed(n: int, threads: int) -> None:
    x, shift = np.random.default_rng(n).normal(size=n), 2.25
    np.testing.assert_array_equal(az.compile(moved, threads=threads)(x, shift), counts(x, shift))
    sums, greatest = az.compile(weighted, threads=threads)(x, shift)
    bins = np.round(3 * x + shift).astype(int)
    for k in range(7):
        np.testing.assert_allclose(sums[k], (x[bins == k] ** 2 + 1).sum(), rtol=1e-13)
        assert greatest[k] == (2.0 if (bins == k).any() else -np.inf)
    rows = az.compile(for_each, threads=threads)(x, shift)
    np.testing.assert_array_equal(rows, np.reshape([counts(x, s * shift) for s in x[:5]], (-1, 7)))


def test_many_elements_in_pieces_give_the_same_bits_on_all_numbers_of_threads() -> None:
    x = np.random.default_rng(0).normal(size=300_001)
    one, two = [az.compile(weighted, threads=threads)(x, 2.0) for threads in (1, 2)]
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_allclose(one[0].sum(), (x[np.abs(np.round(3 * x + 2) - 3) < 4] ** 2 + 1).sum(), rtol=1e-10)


def test_what_is_no_number_is_in_no_bin() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0] * 40)
    found = az.compile(moved)(x, 1.0)
    np.testing.assert_array_equal(found, az.evaluate(moved)(x, 1.0))


@pytest.mark.parametrize("n", LENGTHS)
def test_the_gradient_of_extrema_in_bins_that_are_computed(n: int) -> None:
    """Where each extremum was first is combined beside it: a value that is the number of the element itself."""

    @az.program
    def weighed(x: Vector, weights: az.Array[az.f64, "7"]) -> az.f64:
        bins = az.round(3 * x + 2.25).astype(az.i64)
        return az.sum(weights * az.histogram(az.maximum, -8.0, 7, bins, x * x + 1.0))

    rng = np.random.default_rng(n)
    x, weights = rng.normal(size=n), rng.normal(size=7)
    bins, wanted = np.round(3 * x + 2.25).astype(int), np.zeros(n)
    for k in range(7):
        (members,) = np.nonzero(bins == k)
        if members.size:
            first = members[np.argmax(x[members] ** 2)]
            wanted[first] = 2 * x[first] * weights[k]
    for threads in (1, 2):
        np.testing.assert_allclose(az.compile(az.grad(weighed), threads=threads)(x, weights), wanted, rtol=1e-14)


def test_only_what_is_more_than_read_has_lanes() -> None:
    computed = az.compile(moved).loops
    assert "strip" in computed and "lanes step" in computed
    assert "strip" not in az.compile(az.program(lambda b: az.bincount(b, length=7)).at(az.Array[az.i64, "n"])).loops
