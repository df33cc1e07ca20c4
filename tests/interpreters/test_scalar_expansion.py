"""What many updates share is computed once and stored, where they could not leave their loop otherwise."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sampling import some

import adze as az
from adze.interpreters.simplify import simplify

pytestmark = pytest.mark.unguarded

Program = Any
RANDOM = np.random.default_rng(5)


def written_out(size: int, border: Callable[[Any, int], Any]) -> Program:
    """The squares of a stencil with so many points along each axis, each a term of its own."""

    @az.program
    def energy(u: az.Array[az.f64, "n m"], w: az.Array[az.f64, f"{size} {size}"]) -> az.f64:
        (n, m), padded, total = u.shape, border(u, size // 2), 0.0
        for a in range(size):
            for b in range(size):
                total = total + w[a, b] * padded[a : a + n, b : b + m]
        return az.sum(total**2)

    return energy


def zeros(u: Any, width: int) -> Any:
    return az.pad(u, width)


def edges(u: Any, width: int) -> Any:
    return az.pad(u, width, mode="edge")


def energies(u: Any, w: Any, mode: str) -> tuple[Any, Any]:
    """The stencil's values, and the matrix of the linear map from u to them, in NumPy."""
    size = len(w)

    def values(v: Any) -> Any:
        padded = np.pad(v, size // 2, mode=mode)
        parts = [w[a, b] * padded[a : a + v.shape[0], b : b + v.shape[1]] for a in range(size) for b in range(size)]
        return np.sum(parts, axis=0)

    unit = np.eye(u.size).reshape(-1, *u.shape)
    return values(u), np.array([values(one).ravel() for one in unit])


@pytest.mark.parametrize("shape", some([(2, 3), (1, 1), (9, 33), (7, 5)], 2))
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize(("border", "mode"), [(zeros, "constant"), (edges, "edge")])
def test_gradients_of_stencils_that_are_written_out(border: Any, mode: str, size: int, shape: tuple[int, int]) -> None:
    u, w = RANDOM.integers(-4, 5, shape) / 4, RANDOM.integers(-4, 5, (size, size)) / 4
    values, matrix = energies(u, w, mode)
    wanted = (matrix @ (2 * values.ravel())).reshape(shape)
    gradient = az.grad(written_out(size, border))
    for run in (az.evaluate(gradient), az.compile(gradient, threads=1), az.compile(gradient, threads=3)):
        np.testing.assert_array_equal(run(u, w), wanted)  # quarters: sums are exact in every order


@pytest.mark.parametrize("size", [3, 5, 7])
def test_a_gradient_does_a_few_times_the_work_of_the_value(size: int) -> None:
    """Without the array each of the updates computes the stencil again: size**4 products and not 2 size**2."""
    program = written_out(size, zeros)
    gradient = az.grad(program)
    assert "+=" not in str(az.pretty(gradient))
    sizes = {"n": 100, "m": 200}
    ratio = az.cost(gradient).operations.evaluate(sizes) / az.cost(program).operations.evaluate(sizes)
    assert ratio < 4
    peak = az.compile(gradient, threads=1).peak_bytes(np.empty((100, 200)), np.empty((size, size)))
    assert peak <= 2 * 8 * 100 * 200 + 128  # two arrays, and where they are


def test_what_is_cheap_is_computed_in_each_update() -> None:
    @az.program
    def slopes(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum((x[1:] - x[:-1]) ** 2)

    assert str(az.pretty(az.grad(slopes))).count("for ") == 1


def test_what_has_more_values_than_places_is_not_stored() -> None:
    """The forces of all pairs would be an array of n m; the loop adds them up."""

    @az.program
    def attraction(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "m"]) -> az.f64:
        def pair(i: az.Expr, j: az.Expr) -> Any:
            d = x[i] - y[j]
            return d * (d + 1) * (d + 2) * (d + 3) * (d + 4) * (d + 5)

        return az.sum(az.generate((x.shape[0], y.shape[0]), pair))

    gradient = az.grad(attraction, argnums=(0, 1))
    x, y = RANDOM.random(300), RANDOM.random(400)
    d = np.polynomial.Polynomial.fromroots(-np.arange(6.0)).deriv()(x[:, None] - y)
    compiled = az.compile(gradient, threads=1)
    for found, wanted in zip(compiled(x, y), (d.sum(1), -d.sum(0)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert compiled.peak_bytes(x, y) < 8 * 300 * 400 / 4
    assert "for j < m: for" not in str(az.pretty(simplify(gradient)))


def test_what_varies_with_a_sum_is_not_stored() -> None:
    """The indices of u mention both loops, but it has as many places as one of them."""

    @az.program
    def pairs(x: az.Array[az.f64, "n"], u: az.Array[az.f64, "2*n+5"]) -> az.f64:
        n = x.shape[0]
        return az.sum(az.generate((n, n), lambda i, j: sum([(c + 1.0) * u[i + j + c] for c in range(6)], 0.0) ** 2))

    compiled = az.compile(az.grad(pairs, argnums=1), threads=1)
    x, u = np.zeros(40), RANDOM.integers(-4, 5, 85) / 4
    wanted = np.zeros(85)
    for i in range(40):
        for j in range(40):
            part = slice(i + j, i + j + 6)
            wanted[part] += 2 * (u[part] @ np.arange(1.0, 7.0)) * np.arange(1.0, 7.0)
    np.testing.assert_array_equal(compiled(x, u), wanted)
    assert compiled.peak_bytes(np.empty(1000), np.empty(2005)) < 8 * 1000 * 1000 / 4


@pytest.mark.rest
def test_updates_that_share_more_than_one_value() -> None:
    """Two values that several updates share, one of which is made of the other; one is read under a test."""

    @az.program
    def f(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"]) -> az.f64:
        n = x.shape[0]

        def at(i: az.Expr) -> Any:
            near = [az.where((i + k >= 0) & (i + k < n), x[az.clip(i + k, 0, n - 1)], 0.0) for k in (-2, -1, 0, 1, 2)]
            p = near[0] * near[1] + near[1] * near[2] * near[3] + near[3] * near[4] + near[0] * near[4]
            q = p * p * near[2] + near[0] * near[1] * near[3] * near[4] + p * y[i]
            return az.where(y[i] > 0, q * q + p, q - p * p)

        return az.sum(az.generate(n, at))

    x, y = RANDOM.random(17), RANDOM.random(17) - 0.5
    gradient = az.grad(f, argnums=(0, 1))
    found = az.compile(gradient)(x, y)
    for k, part in enumerate(found):
        for i in range(17):
            step = np.zeros(17)
            step[i] = 1e-6
            ends = [az.evaluate(f)(*[v + s * step * (k == j) for j, v in enumerate((x, y))]) for s in (1, -1)]
            assert part[i] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-6)
    for one, other in zip(found, az.evaluate(gradient)(x, y), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
