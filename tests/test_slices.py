"""Slices: the elements are NumPy's, whatever the ends; equal lengths are known to be, and reads to be in range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adze as az

ENDS = (None, 0, 1, 7, 2**63 - 1, -1, -5, -(2**63))
STEPS = (None, 2, -1, -7)

X = az.Array[az.f64, "n"]
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
