"""Forward mode: general operators, what is inactive, accumulators, structure; test_derivatives.py has every program."""

from typing import Any

import numpy as np
import pytest
from plain import instance
from programs import numbers

import adze as az
from adze.core import trees
from adze.core.terms import Block
from adze.interpreters.check import check

Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n m"]


def both(program: az.Program, *arguments: Any) -> Any:
    """What a program gives when it is evaluated, after compiled code was seen to give the same."""
    check(instance(program, arguments))
    evaluated, compiled = az.evaluate(program)(*arguments), az.compile(program, threads=1)(*arguments)
    for x, y in zip(trees.flatten(evaluated)[0], trees.flatten(compiled)[0], strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-14)
    return evaluated


def tangent(program: Any, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    return both(az.jvp(az.program(program)), *primals, *tangents)[1]


def operations(block: Block) -> list[Any]:
    """All operations, at all depths."""
    return [y for x in block.bindings for y in [x, *[z for inner in x.blocks for z in operations(inner)]]]


# Reductions


def test_any_operator() -> None:
    """Compositions of affine maps, and a matrix product of two-by-two matrices as four numbers."""

    def composed(p: Any, q: Any) -> Any:
        return az.reduce(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), (1.0, 0.0), (p, q))

    p, q, dp, dq = (numbers(4, seed=seed) for seed in range(4))
    moved, offset = tangent(composed, (p, q), (dp, dq))
    h = 1e-6

    def plain(p: Any, q: Any) -> tuple[float, float]:
        a, b = 1.0, 0.0
        for r, s in zip(p, q, strict=True):
            a, b = a * r, b * r + s
        return a, b

    ahead, behind = plain(p + h * dp, q + h * dq), plain(p - h * dp, q - h * dq)
    np.testing.assert_allclose([moved, offset], (np.array(ahead) - behind) / (2 * h), rtol=1e-7)


def test_reductions_and_scans_of_duals_are_written_as_others_are() -> None:
    """The sizes of results are a part of what has such: of scans, not of reductions."""

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.f64:
        products = az.scan(lambda a, b: a * b + az.sin(a), 1.0, x)
        return az.reduce(lambda a, b: a * b + az.sin(a), 1.0, products)

    term = az.jvp(f).at().term
    found = {operation.op: len(operation.static) for operation in operations(term)}
    assert (found["reduce"], found["scan"]) == (0, 1)


def test_an_operator_that_captures_what_is_differentiated() -> None:
    def f(x: Any, s: Any) -> Any:
        return az.reduce(lambda p, q: p + q + s * p * q, 0.0, x)

    x, dx, s, ds, h = numbers(4) / 4, numbers(4, seed=2), 0.5, 2.0, 1e-6

    def plain(x: Any, s: float) -> float:
        total = 0.0
        for v in x:
            total = total + v + s * total * v
        return total

    wanted = (plain(x + h * dx, s + h * ds) - plain(x - h * dx, s - h * ds)) / (2 * h)
    assert tangent(f, (x, s), (dx, ds)) == pytest.approx(wanted, rel=1e-7)


@pytest.mark.unguarded
def test_extrema_of_infinities_and_of_nothing() -> None:
    for x in ([-np.inf, -np.inf], [-np.inf, 2.0], [np.inf, 1.0]):
        array = np.array(x)
        assert tangent(lambda x: az.max(x), (array,), (np.array([3.0, 5.0]),)) == (3, 5)[int(np.argmax(array))]
    assert tangent(lambda x: az.max(x), (np.zeros(0),), (np.zeros(0),)) == 0


@pytest.mark.parametrize("x", [[2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 0.0, 4.0], []], ids=str)
def test_products(x: list[float]) -> None:
    array, dx = np.array(x), numbers(len(x), seed=3)
    wanted = sum(np.prod(np.delete(array, k)) * dx[k] for k in range(len(x)))
    assert tangent(lambda x: az.prod(x), (array,), (dx,)) == wanted


# What does not move


def test_what_is_inactive_has_no_tangent_and_makes_no_nan() -> None:
    """Each of these would be 0 * inf or 0 / 0, were the inactive value given the tangent zero."""

    def f(x: Any, s: Any) -> Any:
        state = az.fori_loop(0, 2, lambda i, t: {"a": t["a"] / s, "b": t["b"] * x}, {"a": 1.0, "b": x})
        chosen = az.cond(s == 0, lambda: s, lambda: 1.0)
        zeros = az.sum(az.sqrt(az.map(lambda v: v * s, az.ones(2))))
        return x * az.exp(-az.sqrt(chosen)) + az.exp(-state["a"]) + state["b"] + zeros

    program = az.program(lambda x: az.jvp(lambda y: f(y, 0.0 * az.stop_gradient(x)), (x,), (1.0,))[1])
    assert both(program, 2.0) == 1 + 3 * 4
    assert tangent(lambda x: az.fori_loop(0, 3, lambda i, t: t * 2.0, 1.0) + x, (1.0,), (5.0,)) == 5


def test_a_state_that_becomes_active_late() -> None:
    """The tangent reaches the third state after three steps."""

    def f(x: Any) -> Any:
        def step(i: Any, s: Any) -> Any:
            return (s[0] * x, s[0] + s[1], s[1] * 2.0 + s[2], s[3] + 1.0)

        return az.fori_loop(0, 3, step, (1.0, 0.0, 0.0, 0.0))

    x = 2.0
    # s0 = x^i; s1 = 1 + x + x^2; s2 = 2 * (2 * 0 + 1) + ...
    a, b, c, d = tangent(f, (x,), (1.0,))
    assert (a, b, d) == (3 * x**2, 1 + 2 * x, 0)
    assert c == 2


def test_inactive_states_are_not_carried() -> None:
    def f(x: Any) -> Any:
        state = az.fori_loop(0, 3, lambda i, s: (s[0] * x, s[1] * 2.0), (x, 1.0))
        return state[0] * state[1]

    made = instance(az.jvp(az.program(f)), (2.0, 1.0))
    (loop,) = [x for x in made.term.bindings if x.op == "loop"]
    assert len(loop.types) == 3


# Structure


def test_integers_have_no_tangent() -> None:
    def f(p: Any) -> Any:
        return {"x": p["x"] * p["n"], "n": p["n"] + 1, "count": az.sum(p["v"] > 0)}

    program = az.jvp(az.program(f))
    point = {"x": 2.0, "n": 3, "v": numbers(4)}
    result, moved = az.evaluate(program)(point, {"x": 1.5, "n": None, "v": numbers(4, seed=1)})
    assert result["x"] == 6 and result["n"] == 4
    assert moved == {"x": 4.5, "n": None, "count": None}


def test_tangents_of_python_numbers_and_of_captured_arrays() -> None:
    table = numbers(3)

    @az.program
    def f(s: az.f64) -> Any:
        value, moved = az.jvp(lambda t: az.sum(t * table) * s, (s,), (2,))
        return value, moved

    assert both(f, 0.5) == (np.sum(table) / 4, np.sum(table))


def test_single_precision_stays() -> None:
    @az.program
    def f(x: az.Array[az.f32, "n"]) -> Any:
        return az.sum(x * x), az.max(x), az.prod(x)

    moved = az.evaluate(az.jvp(f))(numbers(3, dtype=np.float32), numbers(3, seed=1, dtype=np.float32))[1]
    assert {leaf.dtype for leaf in moved} == {np.dtype(np.float32)}
    inside = [x for x in operations(az.jvp(f).at().term) if any(t == az.f64 for t in x.types)]
    assert not inside


def test_requirements_stay() -> None:
    @az.program
    def f(x: Vector, k: az.Array[az.i64, "p"]) -> az.f64:
        return az.sum(x[k])

    with pytest.raises(IndexError, match=r"index 5 is out of range.*test_forward\.py"):
        az.evaluate(az.jvp(f))(numbers(3), np.array([0, 5]), numbers(3))


# Accumulators


def test_a_gradient_with_accumulators_moves() -> None:
    """jvp of a gradient that scatters: the Hessian of a sum of products of gathered elements."""

    @az.program
    def f(x: Vector, k: az.Array[az.i64, "p"], w: az.f64) -> az.f64:
        return az.sum(x[k] ** 3) * w + az.fori_loop(0, k.shape[0], lambda i, s: s * x[k[i]], 1.0)

    x, k, w, dx, dw, h = numbers(4) / 2, np.array([2, 0, 2]), 0.5, numbers(4, seed=1), 2.0, 1e-6
    gradient = az.evaluate(az.grad(f))
    wanted = (gradient(x + h * dx, k, w + h * dw) - gradient(x - h * dx, k, w - h * dw)) / (2 * h)
    _, moved = both(az.jvp(az.grad(f)), x, k, w, dx, dw)
    np.testing.assert_allclose(moved, wanted, rtol=1e-6, atol=1e-6)
