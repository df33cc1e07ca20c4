"""Sums of sums of products: a factor that one sum does not reach is multiplied once; values are NumPy's."""

from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded


@az.program
def outer_first(
    g: az.Array[az.f64, "n k m"], q: az.Array[az.f64, "k m j"], w: az.Array[az.f64, "n"]
) -> az.Array[az.f64, "k j"]:
    def entry(k: az.Expr, j: az.Expr) -> az.Expr:
        def point(i: az.Expr) -> az.Expr:
            return az.sum(az.generate(q.shape[1], lambda r: (w[i] * g[i, k, r]) * q[k, r, j]))

        return 2.0 * az.sum(az.generate(g.shape[0], point)) + 1.0

    return az.generate((q.shape[0], q.shape[2]), entry)


@az.program
def inner_first(
    g: az.Array[az.f64, "n k m"], q: az.Array[az.f64, "k m j"], w: az.Array[az.f64, "n"]
) -> az.Array[az.f64, "k j"]:
    def entry(k: az.Expr, j: az.Expr) -> az.Expr:
        def row(r: az.Expr) -> az.Expr:
            return az.sum(az.generate(g.shape[0], lambda i: q[k, r, j] * (w[i] * g[i, k, r])))

        return 2.0 * az.sum(az.generate(q.shape[1], row)) + 1.0

    return az.generate((q.shape[0], q.shape[2]), entry)


def arguments(n: int, k: int, m: int, j: int) -> tuple[np.ndarray[Any, Any], ...]:
    r = np.random.default_rng(n)
    return r.standard_normal((n, k, m)), r.standard_normal((k, m, j)), r.standard_normal(n)


@pytest.mark.parametrize("program", [outer_first, inner_first])
def test_sums_of_all_sizes(program: Any) -> None:
    compiled = az.compile(program)
    for sizes in ((7, 3, 5, 40), (0, 2, 3, 4), (5, 2, 0, 4), (1, 1, 1, 1), (33, 2, 17, 0)):
        g, q, w = arguments(*sizes)
        wanted = 2.0 * np.einsum("i,ikr,krj->kj", w, g, q) + 1.0
        np.testing.assert_allclose(compiled(g, q, w), wanted, rtol=1e-12, atol=1e-12)
    assert "summed" in str(compiled.loops)
    plain = az.compile(program, schedule={"regroup": False})
    np.testing.assert_allclose(plain(g, q, w), compiled(g, q, w), rtol=1e-12)
    assert "summed" not in str(plain.loops)


def test_an_empty_sum_of_infinite_factors_is_zero() -> None:
    g, q, w = arguments(0, 2, 3, 4)
    q[:] = np.inf
    np.testing.assert_array_equal(az.compile(outer_first)(g, q, w), az.evaluate(outer_first)(g, q, w))


def test_what_both_sums_reach_stays() -> None:
    @az.program
    def program(x: az.Array[az.f64, "n m"], y: az.Array[az.f64, "n m"]) -> az.f64:
        def row(i: az.Expr) -> az.Expr:
            return az.sum(az.generate(x.shape[1], lambda j: x[i, j] * y[i, j]))

        return az.sum(az.generate(x.shape[0], row))

    x = np.random.default_rng(0).standard_normal((5, 6))
    compiled = az.compile(program)
    np.testing.assert_allclose(compiled(x, 2 * x), np.sum(2 * x * x), rtol=1e-12)
    assert "summed" not in str(compiled.loops)


def test_a_factor_needs_what_is_bound_before_the_sums() -> None:
    @az.program
    def program(x: az.Array[az.f64, "n m k"], y: az.Array[az.f64, "k j"]) -> az.Array[az.f64, "m j"]:
        def entry(i: az.Expr, j: az.Expr) -> az.Expr:
            def term(c: az.Expr, k: az.Expr) -> az.Expr:
                return x[c, i, k] * az.where(k < j + 2, y[k, j], 0.0)

            return az.sum(az.generate((x.shape[0], x.shape[2]), term))

        return az.generate((x.shape[1], y.shape[1]), entry)

    x, y, _ = arguments(3, 4, 5, 6)
    compiled = az.compile(program)
    wanted = np.einsum("nmk,kj->mj", x, np.triu(y[0], -1))
    np.testing.assert_allclose(compiled(x, y[0]), wanted, rtol=1e-12, atol=1e-12)
    assert "summed" in str(compiled.loops)
