"""Updates go along rows (``interpreters/simplify/leaves.py``): the loop that is the last index is the inner one."""

import re
from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

Matrix = az.Array[az.f64, "n d"]
Places = az.Array[az.i64, "k"]


@az.program
def by_columns(x: Matrix, places: Places, w: az.Array[az.f64, "d d"]) -> Any:
    """The gradient by x of this goes through rows for each column, as it is derived."""
    kept = x[places]
    return az.sum(az.map(lambda column: az.sum((kept @ w) * column), w))


@az.program
def gram(x: Matrix, places: Places, w: az.Array[az.f64, "d d"]) -> Any:
    kept = x[places]
    return az.sum((kept.T @ kept) * w)


@az.program
def costly(x: Matrix, places: Places, w: az.Array[az.f64, "d d"]) -> Any:
    """A value that takes long and varies with columns alone is not computed for each row."""
    return az.sum(az.map(lambda v: az.sum(az.map(lambda p: x[p, 0] * az.exp(v), places)), w[0]))


def given(n: int, k: int, d: int) -> tuple[Any, ...]:
    drawn = np.random.default_rng(n + k)
    return drawn.normal(size=(n, d)), drawn.integers(0, n, k), drawn.normal(size=(d, d))


@pytest.mark.parametrize("program", [by_columns, gram, costly], ids=lambda program: program.name)
@pytest.mark.parametrize(("n", "k", "d"), [(5, 9, 3), (4, 0, 2), (1, 6, 1), (40, 30, 7)])
def test_the_order_of_loops_changes_no_value(program: Any, n: int, k: int, d: int) -> None:
    x, places, w = given(n, k, d)
    gradient = az.grad(program)
    expected = np.zeros_like(x)
    for row, column in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[row, column] = 1e-4
        ahead, behind = program(x + step, places, w), program(x - step, places, w)
        expected[row, column] = (ahead - behind) / 2e-4
    np.testing.assert_allclose(az.compile(gradient)(x, places, w), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(az.evaluate(gradient)(x, places, w), expected, rtol=1e-6, atol=1e-7)


def test_rows_are_written_along_their_elements() -> None:
    """A column at a time would touch a line of the cache for each element."""
    text = str(az.pretty(az.simplify(az.grad(gram))))
    assert len(re.findall(r"for p in places:\n +for (\w+) < d:\n +\w+\[p, \1\] \+=", text)) == 2
