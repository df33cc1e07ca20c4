"""Loops that look ahead for the places that indices tell (``backends/schedule/loops/prefetching.py``)."""

from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
Indices = az.Array[az.i64, "m"]


@az.program
def gathered(x: Vector, k: Indices) -> Any:
    return x[k]


@az.program
def of_rows(x: az.Array[az.f64, "n 3"], k: az.Array[az.i64, "m 2"]) -> Any:
    return az.generate(az.size(k), lambda i: x[k[i, 1], 2] - x[k[i, 0], 0])


@az.program
def scattered(x: Vector, k: Indices, v: az.Array[az.f64, "m"]) -> Any:
    return az.scatter(x, k, v)


@az.program
def counted(k: Indices, n: az.i64) -> Any:
    return az.histogram(lambda a, b: a + b, 0, n, k, az.map(lambda _: 1, k))


@az.program
def of_a_table(x: az.Array[az.f64, 100], k: Indices) -> Any:
    return x[k]


@az.program
def neighbours(x: Vector) -> Any:
    return az.generate(az.size(x), lambda i: x[az.maximum(i - 1, 0)])


def loops_of(program: Any, **schedule: Any) -> str:
    return str(az.compile(program, schedule=schedule).loops)


@pytest.mark.rest
def test_only_indices_from_memory_and_large_arrays() -> None:
    for program in (gathered, of_rows, scattered, counted):
        assert "prefetch " in loops_of(program)
        assert "prefetch " not in loops_of(program, prefetch=False)
    assert "prefetch " not in loops_of(of_a_table) + loops_of(neighbours)


@pytest.mark.parametrize("n, m", [(1, 1), (300, 129), (5, 1000), (2_200_000, 100_003)])
def test_values(n: int, m: int) -> None:
    """Also where the row of indices ends before the loop looks ahead, and for arrays larger than a cache."""
    rng = np.random.default_rng(n)
    x, k = rng.normal(size=n), rng.integers(0, n, m)
    once = rng.permutation(n)[:m]
    v = rng.normal(size=len(once))
    expected = x.copy()
    expected[once] = v
    rows, pairs = rng.normal(size=(n, 3)), rng.integers(0, n, (m, 2))
    for threads in (1, 2):
        np.testing.assert_array_equal(az.compile(gathered, threads=threads)(x, k), x[k])
        np.testing.assert_array_equal(az.compile(scattered, threads=threads)(x, once, v), expected)
        np.testing.assert_array_equal(az.compile(counted, threads=threads)(k, n), np.bincount(k, minlength=n))
        found = az.compile(of_rows, threads=threads)(rows, pairs)
        np.testing.assert_array_equal(found, rows[pairs[:, 1], 2] - rows[pairs[:, 0], 0])


def test_wrong_indices_are_told_and_not_followed() -> None:
    for wrong in (-1, 2_200_000, 2**62, -(2**62)):
        k = np.zeros(1000, dtype=np.int64)
        k[700] = wrong
        with pytest.raises(IndexError):
            az.compile(gathered)(np.ones(2_200_000), k)
