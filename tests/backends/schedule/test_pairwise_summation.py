"""Long sums of f32 are as exact as NumPy's, and the same for all numbers of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

Vector, Matrix = az.Array[az.f32, "n"], az.Array[az.f32, "n m"]
EPS = float(np.finfo(np.float32).eps)


@az.program
def total(x: Vector) -> Any:
    return az.sum(x)


@az.program
def rows(x: Matrix) -> Any:
    return az.sum(x, 1)


@az.program
def columns(x: Matrix) -> Any:
    return az.sum(x, 0)


@az.program
def several(x: Vector) -> Any:
    return az.sum(x), az.sum(x * x), az.max(x)


@az.program
def doubled_below_total(x: Vector, bound: az.f32) -> Any:
    return az.while_loop(lambda t: az.sum(az.where(t > 0, x, 0)) > t, lambda t: t * 2, bound)


def test_ten_million_tenths() -> None:
    x = np.full(10**7, 0.1, np.float32)
    exact = x.sum(dtype=np.float64)
    assert abs(float(az.compile(total)(x)) - exact) < 4 * EPS * exact
    for value in az.compile(rows)(x.reshape(4, -1)):
        assert abs(float(value) - exact / 4) < 16 * EPS * exact / 4


@pytest.mark.parametrize("way", [{}, {"threads": 1}])
def test_sums_in_the_test_of_a_while_are_as_exact(way: dict[str, Any]) -> None:
    x = np.full(10**7, 0.1, np.float32)
    exact, compiled = x.sum(dtype=np.float64), az.compile(doubled_below_total, **way)
    below, above = (np.float32(exact * (1 + k * EPS)) for k in (-4, 4))
    assert compiled(x, below) == 2 * below and compiled(x, above) == above


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1023, 1024, 1025, 16 * 1024 + 7, 300_001])
def test_all_elements_are_summed(n: int) -> None:
    x = np.random.default_rng(n).uniform(0.5, 1.5, n).astype(np.float32)
    y = x.astype(np.float64)
    matrix = np.stack([x, x[::-1]])
    wanted = [(total, x, y.sum()), (rows, matrix, [y.sum(), y.sum()]), (several, x, [y.sum(), (y * y).sum(), None])]
    for program, argument, exact in wanted:
        found = [az.compile(program, threads=threads)(argument) for threads in (1, 2, 3)]
        for other in found[1:]:
            np.testing.assert_array_equal(np.asarray(other), np.asarray(found[0]))
        values = found[0][:2] if program is several else found[0]
        np.testing.assert_allclose(values, exact[:2] if program is several else exact, rtol=32 * EPS)
    if n:
        assert az.compile(several)(x)[2] == x.max()


@pytest.mark.rest
@pytest.mark.usefixtures("opencl")
def test_ten_million_tenths_where_threads_come_in_groups() -> None:
    x = np.full(10**7, 0.1, np.float32)
    exact = x.sum(dtype=np.float64)
    assert abs(float(az.compile(total, backend="opencl")(x)) - exact) < 16 * EPS * exact
    for program, matrix in ((rows, x.reshape(4, -1)), (columns, x.reshape(-1, 4))):
        for value in az.compile(program, backend="opencl")(matrix):
            assert abs(float(value) - exact / 4) < 32 * EPS * exact / 4


@pytest.mark.usefixtures("opencl")
def test_sums_in_the_test_of_a_while_are_as_exact_where_threads_come_in_groups() -> None:
    x = np.full(10**7, 0.1, np.float32)
    exact, compiled = x.sum(dtype=np.float64), az.compile(doubled_below_total, backend="opencl")
    below, above = (np.float32(exact * (1 + k * EPS)) for k in (-16, 16))
    assert compiled(x, below) == 2 * below and compiled(x, above) == above


@pytest.mark.rest
@pytest.mark.usefixtures("opencl")
def test_all_elements_are_summed_where_threads_come_in_groups() -> None:
    """Around the lengths of a group's row, of a block, and of a block of blocks, of a thread and of a group."""
    programs = {program: az.compile(program, backend="opencl") for program in (total, rows, columns, several)}
    for n in (0, 1, 63, 64, 65, 4095, 4096, 4097, 64 * 4096 - 1, 64 * 4096 + 65):
        x = np.random.default_rng(n).uniform(0.5, 1.5, n).astype(np.float32)
        y, pair = x.astype(np.float64), np.stack([x, x[::-1]])
        sums = [y.sum(), y.sum()]
        wanted = [(total, x, y.sum()), (rows, pair, sums), (columns, pair.T, sums), (several, x, [y.sum(), y @ y])]
        for program, argument, exact in wanted:
            np.testing.assert_allclose(
                programs[program](argument)[:2] if program is several else programs[program](argument),
                exact,
                rtol=32 * EPS,
            )


def test_sums_of_rows_are_evaluated_in_pairs() -> None:
    x = np.full((2, 200_000), 0.1, np.float32)
    exact = x[0].sum(dtype=np.float64)
    np.testing.assert_allclose(az.evaluate(rows)(x), exact, rtol=4 * EPS)
