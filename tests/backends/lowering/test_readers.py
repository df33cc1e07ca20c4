"""An array of which either axis may be the last one in memory lies as those want it who read it."""

from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

Points = az.Array[az.f64, "n k"]
Centres = az.Array[az.f64, "m k"]


def distances(x: Any, w: Any) -> Any:
    """Along lanes of points it costs what it does along lanes of centres."""
    return az.generate((x.shape[0], w.shape[0]), lambda i, j: az.sum(abs(x[i] - w[j])))


@az.program
def over_points(x: Points, w: Centres) -> az.Array[az.f64, "m"]:
    return az.logsumexp(distances(x, w), 0)


@az.program
def over_centres(x: Points, w: Centres) -> az.Array[az.f64, "n"]:
    return az.logsumexp(distances(x, w), 1)


@az.program
def ranks(x: Points, w: Centres) -> az.Array[az.i64, "n m"]:
    return az.map(az.argsort, distances(x, w))


@az.program
def ranks_of_points(x: Points, w: Centres) -> az.Array[az.i64, "m n"]:
    return az.map(az.argsort, distances(x, w).T)


@pytest.mark.parametrize(
    ("program", "layout"),
    [(over_points, "n, m"), (over_centres, "m, n"), (ranks, "n, m"), (ranks_of_points, "m, n")],
)
def test_the_layout_of_an_array_is_what_its_readers_want(program: Any, layout: str) -> None:
    r = np.random.default_rng(1)
    x, w = r.standard_normal((70, 5)), r.standard_normal((40, 5))
    compiled = az.compile(program)
    assert f": f64[{layout}]" in str(compiled.loops)
    assert f": f64[{', '.join(reversed(layout.split(', ')))}]" not in str(compiled.loops)
    np.testing.assert_allclose(compiled(x, w), az.evaluate(program)(x, w), rtol=1e-12)


Blocks = az.Array[az.f64, "b 64"]


def powers(t: Any) -> Any:
    """A row of six for each number: straight-line code, of which several numbers run side by side."""
    x = az.sin(t)
    return az.array([x, t * x, t * t, x * x, t + x, x - t])


@az.program
def products_of_powers(t: Blocks) -> az.Array[az.f64, "b 6 6"]:
    """The products read rows or columns, so that each power lies beside those of the next number."""

    def block(numbers: Any) -> Any:
        rows = az.map(powers, numbers)
        return rows.T @ rows

    return az.map(az.checkpoint(block), t)


@az.program
def powers_in_a_row(t: Blocks) -> az.Array[az.i64, "b 384"]:
    """Here all powers are read as one row, in which those of a number lie side by side."""
    return az.map(az.checkpoint(lambda numbers: az.argsort(az.ravel(az.map(powers, numbers)))), t)


def test_what_lanes_of_straight_line_code_store_is_contiguous_along_them() -> None:
    t = np.random.default_rng(2).standard_normal((5, 64))
    x = np.sin(t)
    rows = np.stack([x, t * x, t * t, x * x, t + x, x - t], -1)
    compiled = az.compile(products_of_powers, threads=1)
    assert "f64[6, 64]" in str(compiled.loops) and "f64[64, 6]" not in str(compiled.loops)
    np.testing.assert_allclose(compiled(t), rows.transpose(0, 2, 1) @ rows, rtol=1e-12)
    np.testing.assert_array_equal(compiled(t), az.compile(products_of_powers, threads=2)(t))


def test_what_is_read_as_one_row_keeps_the_order_of_its_axes() -> None:
    t = np.random.default_rng(3).standard_normal((5, 64))
    assert "f64[6, 64]" not in str(az.compile(powers_in_a_row).loops)
    np.testing.assert_array_equal(az.compile(powers_in_a_row)(t), az.evaluate(powers_in_a_row)(t))
