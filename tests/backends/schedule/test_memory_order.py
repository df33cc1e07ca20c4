"""Rows of large arrays are read one after the other: what is summed, and its bits, stay the same."""

from dataclasses import replace
from typing import Any

import numpy as np
import plain_loops
import pytest
from test_transformations import TINY

import adze as az

pytestmark = pytest.mark.unguarded

Matrix = az.Array[az.f64, "n m"]
NEIGHBOURS = {"memory_order": False}


@az.program
def scores(a: Matrix, x: az.Array[az.f64, "m"]) -> Any:
    """Sums of rows, and what they are read for."""
    return az.exp(-(a @ x)), az.max(a, 1)


@az.program
def columns(a: Matrix, w: az.Array[az.f64, "n"]) -> Any:
    """Sums and extrema of columns, with what is computed for a row, for a column, and behind the sums."""
    shifted = az.sum(az.tanh(w)[:, None] * (a - a[0]), 0)
    return az.sqrt(az.abs(shifted)), az.argmin(a, 0), w @ a


@az.program
def columns_less_something_costly(a: Matrix, c: az.Array[az.f64, "m"]) -> Any:
    """What is made for a column is needed in each row."""
    base = az.map(lambda x: az.exp(az.sin(x)) * az.log1p(x * x), c)
    return az.generate(a.shape[1], lambda j: az.sum(az.abs(a[:, j] - base[j] * az.tanh(c[j])))), az.sum(a > c, 0)


@az.program
def columns_as_they_grow(a: Matrix) -> Any:
    """A state for each column, of which each row is written."""
    return az.cumsum(a, 0), az.cumprod(a * 0.01, 0)


@az.program
def blocks(a: az.Array[az.f64, "b n m"], x: az.Array[az.f64, "m"]) -> Any:
    return az.map(lambda each: each @ x, a), az.sum(a, 1)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def check(program: Any, *arguments: Any) -> Any:
    """Compiled code gives what it gives with neighbours, on any number of threads."""
    found = az.compile(program, threads=1)(*arguments)
    for other in (az.compile(program, threads=1, schedule=NEIGHBOURS), az.compile(program, threads=2)):
        for one, same in zip(found, other(*arguments), strict=True):
            np.testing.assert_array_equal(one, same)
    for one, wanted in zip(found, az.evaluate(program)(*arguments), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-10, atol=1e-10)
    return found


# Around a jam, a part and a piece; around a strip, and where columns are too many for one piece
ROWS = [1, 2, 3, 4, 5, 7, 255, 256, 257, 600, 1027]
LARGE = [(4000, 40), (1311, 100), (1312, 101), (70, 2048), (71, 2049), (40, 5000), (3, 50000), (140_000, 1)]


@pytest.mark.parametrize("n", ROWS)
def test_rows(n: int) -> None:
    for m in (1, 5, 33, 100):
        a, x = numbers(n, m), numbers(m)
        found = check(scores, a, x)
        np.testing.assert_allclose(found[0], np.exp(-(a @ x)), rtol=1e-11)
        np.testing.assert_array_equal(found[1], a.max(1))


@pytest.mark.parametrize(("n", "m"), [*LARGE, (5, 3), (100, 33), (0, 40)])
def test_columns(n: int, m: int) -> None:
    a, w = numbers(n, m), numbers(n)
    if n:
        found = check(columns, a, w)
        np.testing.assert_allclose(found[2], w @ a, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(found[1], a.argmin(0))
    else:
        np.testing.assert_array_equal(az.compile(lambda a: az.sum(a, 0))(a), np.zeros(m))
    check(columns_less_something_costly, a, numbers(m))
    grown = check(columns_as_they_grow, a)
    np.testing.assert_allclose(grown[0], a.cumsum(0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [az.f32, az.i64, az.i32])
def test_other_numbers_and_views(dtype: Any) -> None:
    @az.program
    def program(a: az.Array[dtype, "n m"], x: az.Array[dtype, "m"]) -> Any:  # type: ignore[valid-type]
        return a @ x, az.max(a, 0), az.sum(a, 0)

    a = (10 * numbers(2600, 130)).astype(dtype.dtype)
    for view in (a, a[::2], a[:, ::-1], a[:, :101], a.T.copy().T):
        x = (10 * numbers(view.shape[1])).astype(dtype.dtype)
        found = az.compile(program)(view, x)
        for one, wanted in zip(found, (view @ x, view.max(0), view.sum(0)), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=2e-3 if dtype == az.f32 else 0, atol=0.05)


def test_batches() -> None:
    for shape in ((3, 5, 7), (2, 1400, 100), (9, 300, 64)):
        a, x = numbers(*shape), numbers(shape[-1])
        found = check(blocks, a, x)
        np.testing.assert_allclose(found[0], a @ x, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found[1], a.sum(1), rtol=1e-9, atol=1e-9)


def test_a_failure_in_rows_is_reported() -> None:
    @az.program
    def program(a: Matrix, places: az.Array[az.i64, "n"]) -> Any:
        return az.sum(az.generate(a.shape, lambda i, j: a[places[i], j]), 0)

    a, places = numbers(2000, 80), np.arange(2000)
    np.testing.assert_allclose(az.compile(program)(a, places), a.sum(0), rtol=1e-9, atol=1e-9)
    places[1999] = 2000
    with pytest.raises(IndexError, match="2000"):
        az.compile(program)(a, places)


@pytest.mark.parametrize("shape", [(5, 7), (19, 9), (40, 34), (33, 70)])
def test_loops_of_a_tiny_core(shape: tuple[int, int]) -> None:
    """Its second cache holds next to nothing, so that columns are summed row by row."""
    a, x, w = numbers(*shape), numbers(shape[1]), numbers(shape[0])
    for program, arguments in ((scores, (a, x)), (columns, (a, w)), (columns_as_they_grow, (a,))):
        found = plain_loops.lowered(program, replace(TINY, l2_bytes=64), arguments)
        for one, wanted in zip(found, az.evaluate(program)(*arguments), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-10, atol=1e-10)


def text(program: Any, **schedule: Any) -> str:
    return str(az.compile(program, schedule=schedule).loops)


def test_rows_are_taken_from_parts_and_sums_of_columns_are_an_array() -> None:
    rows, neighbours = text(scores), text(scores, memory_order=False)
    assert "jam part" in rows and "jam part" not in neighbours
    summed, kept = text(columns), text(columns, memory_order=False)
    assert "temporary sums" in summed and "temporary sums" not in kept


def test_what_is_made_for_a_column_is_made_once() -> None:
    found, kept = text(columns_less_something_costly), text(columns_less_something_costly, memory_order=False)
    assert found.count("tanh(") == 2 * kept.count("tanh(")  # once in either way
    rows = found[found.index("temporary sums") :]
    assert "tanh(" not in rows[rows.index("for i") : rows.index("else")]


@az.program
def windows(x: az.Array[az.f64, "n"], w: az.Array[az.f64, "m"]) -> Any:
    return az.generate(x.shape[0] - w.shape[0] + 1, lambda i: az.sum(x[i : i + w.shape[0]] * w))


@az.program
def triples(p: az.Array[az.f64, "n 3"], q: az.Array[az.f64, "3"]) -> Any:
    return p @ q


@pytest.mark.parametrize("program", [windows, triples])
def test_rows_that_overlap_or_are_short_stay_neighbours(program: Any) -> None:
    assert text(program) == text(program, memory_order=False)
