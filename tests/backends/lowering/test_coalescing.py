"""Columns of several loops as those of one, packed in squares: kernels' gradients at all sizes; values are NumPy's."""

from functools import cache
from typing import Any

import numpy as np
import plain_loops
import pytest
from sampling import some
from test_transformations import TINY

import adze as az

pytestmark = pytest.mark.unguarded

Shape = tuple[int, ...]
Matrix = np.ndarray[Any, Any]

# Kernels, channels, and an image: runs shorter than a square, as long, longer; sums of one block and of several
SHAPES = [
    (8, 3, 9, 20),
    (9, 7, 12, 18),
    (16, 5, 30, 33),
    (33, 16, 40, 47),
    (70, 2, 66, 19),
    (8, 4, 3, 700),
    (12, 9, 300, 5),
]


@cache
def kernels(scalar: Any, apart: int) -> Any:
    """The gradient by the kernels of a convolution at each so-manieth place."""

    height, width = (f"({size}-3)//{apart}+1" for size in "hw")

    @az.program
    def gradient(g: az.Array[scalar, f"o {height} {width}"], image: az.Array[scalar, "c h w"]) -> Any:
        (o, a, b), c = g.shape, image.shape[0]

        def weight(f: az.Expr, k: az.Expr, i: az.Expr, j: az.Expr) -> az.Expr:
            terms = az.generate((a, b), lambda y, x: g[f, y, x] * image[k, apart * y + i, apart * x + j])
            return az.sum(terms)

        return az.generate((o, c, 3, 3), weight)

    return gradient


def arguments(shape: Shape, apart: int, scalar: Any) -> tuple[Matrix, Matrix]:
    o, c, a, b = shape
    r = np.random.default_rng(o)
    image = r.standard_normal((c, apart * (a - 1) + 3, apart * (b - 1) + 3))
    return r.standard_normal((o, a, b)).astype(scalar), image.astype(scalar)


def in_numpy(g: Matrix, image: Matrix, apart: int) -> Matrix:
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.float64), (3, 3), axis=(1, 2))
    return np.einsum("fyx,cyxij->fcij", g.astype(np.float64), windows[:, ::apart, ::apart])


@pytest.mark.parametrize("apart", some([1, 3, 2], 2))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_columns_of_several_loops_are_packed_in_squares(shape: Shape, apart: int) -> None:
    for scalar, numpy, close in ((az.f32, np.float32, 1e-4), (az.f64, np.float64, 1e-11)):
        g, image = arguments(shape, apart, numpy)
        compiled = az.compile(kernels(scalar, apart))
        found = compiled(g, image)
        np.testing.assert_allclose(found, in_numpy(g, image, apart), rtol=close, atol=close * 10)
        assert "number" in compiled.schedule
        assert "square" in compiled.loops
        other = az.compile(kernels(scalar, apart), threads=3)(g, image)
        assert np.array_equal(found, other)


def test_what_is_not_finite_stays_in_its_column() -> None:
    g, image = arguments(SHAPES[3], 1, np.float64)
    image[7, 5, 11] = np.inf
    wanted = in_numpy(g, image, 1)
    found = az.compile(kernels(az.f64, 1))(g, image)
    assert np.array_equal(np.isfinite(found), np.isfinite(wanted))
    assert np.isfinite(found).any()
    np.testing.assert_allclose(found[np.isfinite(wanted)], wanted[np.isfinite(wanted)], rtol=1e-11, atol=1e-10)


@pytest.mark.rest
@pytest.mark.parametrize("shape", some([(9, 7, 12, 3), (8, 3, 9, 20), (13, 5, 6, 31)], 3), ids=str)
def test_squares_on_a_tiny_core(shape: Shape) -> None:
    g, image = arguments(shape, 1, np.float64)
    found = plain_loops.lowered(kernels(az.f64, 1), TINY, (g, image))
    np.testing.assert_allclose(found, in_numpy(g, image, 1), rtol=1e-11, atol=1e-10)


@az.program
def expanded(x: az.Array[az.f64, "n k"], w: az.Array[az.f64, "k p q r"]) -> az.Array[az.f64, "n"]:
    """Rows of what is stored of a product with columns of three axes, whose order is free."""
    (n, k), (_, p, q, r) = x.shape, w.shape
    stored = az.generate((n, p, q, r), lambda i, a, b, c: az.sum(az.generate(k, lambda j: x[i, j] * w[j, a, b, c])))
    return az.generate(n, lambda i: az.max(stored[i]) - az.min(stored[i]) + stored[i, 0, q - 1, 0])


@pytest.mark.parametrize(
    "shape", [(30, 20, 4, 3, 5), (64, 40, 2, 9, 7), (9, 70, 1, 1, 66), (40, 16, 33, 1, 1)], ids=str
)
def test_temporaries_have_the_columns_last(shape: Shape) -> None:
    n, k, *columns = shape
    r = np.random.default_rng(n)
    x, w = r.random((n, k)), r.random((k, *columns))
    stored = np.einsum("ij,jabc->iabc", x, w)
    wanted = stored.max((1, 2, 3)) - stored.min((1, 2, 3)) + stored[:, 0, -1, 0]
    np.testing.assert_allclose(az.compile(expanded)(x, w), wanted, rtol=1e-11)
