"""Slices: the elements are NumPy's, whatever the ends; equal lengths are known to be, and reads to be in range."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import adze as az

ENDS = (None, 0, 1, 7, 2**63 - 1, -1, -5, -(2**63))
STEPS = (None, 2, -1, -7)

X = az.Array[az.f64, "n"]
Y = az.Array[az.f64, "m"]
Grid = az.Array[az.f64, "n m"]


def _sliced(key: slice) -> Any:
    @az.program
    def sliced(x: X):  # type: ignore[no-untyped-def]
        return x[key]

    return sliced


@pytest.mark.parametrize("step", STEPS)
def test_elements_are_those_of_numpy(step: int | None) -> None:
    for key in [slice(start, stop, step) for start in ENDS for stop in ENDS]:
        sliced = _sliced(key)
        for n in (0, 1, 2, 3, 6):
            x = np.arange(1.0, n + 1)
            assert np.array_equal(az.evaluate(sliced)(x), x[key]), (key, n)


def _neighbours(u: Any) -> Any:
    return u[1:-1, 1:-1] + u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]


def _second_differences(u: Any) -> Any:
    return (u[1:] - u[:-1])[1:] - (u[1:] - u[:-1])[:-1]


def _mirrored(u: Any) -> Any:
    return u[-2::-1] + u[:0:-1]


@pytest.mark.parametrize("function", [_neighbours, _second_differences, _mirrored])
def test_neighbours_are_read_without_guards(function: Any) -> None:
    @az.program
    def program(u: Grid):  # type: ignore[no-untyped-def]
        return function(u)

    loops = az.compile(program).loops
    assert "?" not in loops
    assert "require" not in loops
    for n, m in ((0, 0), (1, 4), (2, 2), (3, 3), (5, 40)):
        u = np.arange(float(n * m)).reshape(n, m)
        if n or function is _neighbours:  # NumPy has no elements to subtract from none
            assert np.array_equal(az.compile(program)(u), function(u))


def test_an_array_that_is_read_once_at_a_distance_is_not_made() -> None:
    """However its parts are written: what wraps around or is padded leaves no border inside."""

    def inner(u: Any, xp: Any) -> Any:
        around = xp.roll(u, 1, 0) + xp.roll(u, -1, 1) + xp.pad(u, 1)[2:, :-2]
        return xp.sum((0.25 * xp.exp(around + u))[1:-1, 1:-1] ** 2)

    program = az.compile(lambda u: inner(u, az))
    for n, m in ((1, 3), (2, 2), (3, 4), (9, 40)):
        u = np.arange(float(n * m)).reshape(n, m) / (n * m)
        assert np.allclose(program(u), inner(u, np), rtol=1e-12)
    assert "temporary array" not in program.loops
    assert not re.search(r"\?|%|select", program.loops)


def test_a_wrapped_or_clamped_place_that_is_in_range_is_itself() -> None:
    @az.program
    def program(x: X, y: X):  # type: ignore[no-untyped-def]
        n = x.shape[0]
        return az.generate(n - 1, lambda i: x[(i + 1) % n] + y[az.minimum(i, n - 1)] + x[az.maximum(i // n, i)])

    assert "x[1 + i] + y[i] + x[i]" in str(az.pretty(az.simplify(program), style="loops"))
    x, y = np.arange(5.0), np.arange(5.0) ** 2
    assert np.array_equal(az.compile(program)(x, y), x[1:] + y[:-1] + x[:-1])


def test_indices_that_a_sort_makes_are_in_range() -> None:
    """Those of the array that was sorted, however they are read; of a shorter array they are checked."""

    @az.program
    def inside(x: X, m: az.i64) -> Any:
        order = az.argsort(x)
        return x[order], x[order[m:]], az.map(lambda k: x[order[k]], order)

    @az.program
    def outside(x: X, y: Y) -> Any:
        return y[az.argsort(x)]

    assert "require" not in az.pretty(inside) and "require" in az.pretty(outside)
    x = np.array([3.0, np.nan, 1.0, -0.0, 0.0])
    order = np.argsort(x, kind="stable")
    for found in (az.evaluate(inside)(x, 2), az.compile(inside)(x, 2)):
        for mine, wanted in zip(found, (x[order], x[order[2:]], x[order[order]]), strict=True):
            np.testing.assert_array_equal(mine, wanted)
    with pytest.raises(IndexError):
        az.compile(outside)(x, x[:4])
