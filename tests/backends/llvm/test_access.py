"""Reads of lanes: elements a few places apart, at all lengths and of all scalars, with lanes off and guards."""

from typing import Any

import numpy as np
import pytest

import adze as az

SCALARS = {"f64": np.float64, "f32": np.float32, "i64": np.int64, "bool": np.bool_}
LENGTHS = (0, 1, 2, 5, 8, 17, 31, 33, 63, 64, 65, 100, 128, 257, 1000)


@pytest.mark.unguarded
@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("apart", [2, 3, 4, 5])
@pytest.mark.parametrize("name", SCALARS)
def test_elements_a_few_places_apart(name: str, apart: int, first: int) -> None:
    scalar = {"f64": az.f64, "f32": az.f32, "i64": az.i64, "bool": az.bool_}[name]

    @az.program
    def picked(x: az.Array[scalar, "n"]) -> Any:  # type: ignore[valid-type]
        return az.generate((x.shape[0] - first) // apart, lambda i: x[apart * i + first])

    compiled = az.compile(picked, threads=1)
    for n in LENGTHS:
        if n >= first:
            x = (np.arange(n) % 7 < 3) if name == "bool" else (np.arange(n) * 3 % 101).astype(SCALARS[name])
            np.testing.assert_array_equal(compiled(x), x[first::apart][: (n - first) // apart])
    assert "gather" not in compiled.llvm_ir or apart == 5


def test_elements_a_few_places_apart_with_guards() -> None:
    """The neighbours of every second point, with zeros around, and a choice in each lane."""

    @az.program
    def halved(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"]) -> Any:
        padded = az.pad(x, 2)

        def point(i: az.Expr) -> az.Expr:
            around = padded[2 * i] + padded[2 * i + 4]
            return az.where(y[i] > 0.0, around, x[2 * i])

        return az.generate(x.shape[0] // 2, point)

    compiled = az.compile(halved, threads=1)
    for n in LENGTHS:
        x, y = np.arange(1.0, n + 1), np.sin(np.arange(n) * 7.0)
        padded, m = np.pad(x, 2), n // 2
        around = (padded[::2][:m] if m else np.zeros(0)) + (padded[4::2][:m] if m else np.zeros(0))
        np.testing.assert_array_equal(compiled(x, y), np.where(y[:m] > 0, around, x[::2][:m]))
