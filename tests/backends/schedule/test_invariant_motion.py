"""Temporaries that loops fill again and again with the same are filled before them."""

import re
from typing import Any

import numpy as np
import plain_loops
import pytest
from plain_loops import apply, at, const, loop, put, var

import adze as az
from adze.backends import ir
from adze.backends.decisions import Decisions
from adze.backends.schedule.loops.invariant_motion import hoisted
from adze.core.types import f64

pytestmark = pytest.mark.unguarded

Matrix = az.Array[az.f64, "n m"]


@az.program
def recurrence(x: az.Array[az.f64, "t b h"], w: az.Array[az.f64, "h h"]) -> Any:
    """A state that is multiplied by a matrix in each step."""

    def step(state: Any, given: Any) -> Any:
        after = az.tanh(state @ w + given)
        return after, after

    return az.scan_loop(step, az.zeros((x.shape[1], x.shape[2])), x)[1]


@az.program
def summed(x: az.Array[az.f64, "t b h"], w: az.Array[az.f64, "h h"]) -> Any:
    return az.sum(recurrence(x, w) ** 2)


gradient = az.grad(summed, argnums=(0, 1))


@az.program
def changing(w: az.Array[az.f64, "h h"], steps: az.i64) -> Any:
    """A matrix that is another in each step."""
    return az.fori_loop(0, steps, lambda _, a: a @ a / az.sum(a * a), w)


def loops_of(program: Any, **schedule: Any) -> str:
    return str(az.compile(program, schedule=schedule).loops)


@pytest.mark.rest
@pytest.mark.parametrize("t, b, h", [(0, 40, 40), (3, 40, 37), (3, 5, 6), (2, 0, 3)])
def test_values(t: int, b: int, h: int) -> None:
    """In tiles and in plain nests, and without any step: those without the transformation, bit by bit."""
    rng = np.random.default_rng(t)
    x, w = rng.normal(size=(t, b, h)), rng.normal(size=(h, h)) / max(1, h)
    for one, other in zip(az.compile(gradient)(x, w), az.compile(gradient, schedule={"hoist": False})(x, w)):
        np.testing.assert_array_equal(one, other)
    state, expected = np.zeros((b, h)), np.zeros((t, b, h))
    for k in range(t):
        state = expected[k] = np.tanh(state @ w + x[k])
    np.testing.assert_allclose(az.compile(recurrence)(x, w), expected, rtol=1e-12, atol=1e-14)


def test_a_matrix_is_packed_before_the_loop() -> None:
    for program in (recurrence, az.grad(summed, argnums=0)):
        assert "\n   " not in "".join(re.findall(r"\n *(?=temporary right)", loops_of(program)))
        assert "\n  temporary right" not in loops_of(program, hoist=False)


def test_what_changes_is_packed_again() -> None:
    assert loops_of(changing).count("temporary right") == 1
    w = np.random.default_rng(1).normal(size=(40, 40))
    expected = w
    for _ in range(3):
        expected = expected @ expected / np.sum(expected * expected)
    np.testing.assert_allclose(az.compile(changing)(w, 3), expected, rtol=1e-10)


# Single loops: x and y are arguments, t is the temporary that step s < m adds to z

x, y, z, t = (ir.Buffer(name, f64, (var("n"),)) for name in "xyzt")
filled = loop("i", "n", put(t, "i", apply("exp", at(x, "i"))))
used = loop("k", "n", put(z, "k", apply("add", at(z, "k"), at(t, "k"))))


def moved(*body: ir.Statement, after: ir.Block = ()) -> bool:
    """Whether the temporary leaves the loop; either way, what is computed stays the same."""
    begin = loop("j", "n", put(z, "j", const(0.0, f64))), ir.Declare("count", const(0))
    function = ir.Function("f", ("n", "m"), (x, y), (z,), (*begin, loop("s", "m", *body), *after))
    there = hoisted(function, Decisions())
    for m in (0, 1, 3):
        results = []
        for each in (function, there):
            z_found = np.zeros(4)
            plain_loops.run(each, [np.array([0.5, -1.0, 2.0, 0.0]), np.arange(4.0), z_found], [4, m])
            results.append(z_found)
        np.testing.assert_array_equal(*results)
    inner = next(each for each in there.body if isinstance(each, ir.For) and each.variable == "s")
    return ir.Allocate(t) not in inner.body and not any(
        ir.Allocate(t) in each.then for each in inner.body if isinstance(each, ir.If)
    )


def test_what_is_the_same_in_each_step_is_moved() -> None:
    assert moved(ir.Allocate(t), filled, used)
    often = apply("less", const(2), var("n"))
    assert moved(ir.If(often, (ir.Allocate(t), filled, used), ()))
    assert moved(ir.Allocate(t), ir.If(often, (filled,), (loop("i", "n", put(t, "i", const(1.0, f64))),)), used)


def test_what_varies_stays() -> None:
    step = apply("f64", var("s"))
    assert not moved(ir.Allocate(t), loop("i", "n", put(t, "i", step)), used), "the loop's variable"
    assert not moved(ir.Let("a", step), ir.Allocate(t), loop("i", "n", put(t, "i", var("a", f64))), used), (
        "what it binds"
    )
    assert not moved(ir.Allocate(t), loop("i", "n", put(t, "i", at(z, "i"))), used), "what it writes"
    counted = ir.Assign("count", apply("add", var("count"), const(1)))
    assert not moved(ir.Allocate(t), loop("i", "n", put(t, "i", apply("f64", var("count")))), used, counted), (
        "a variable"
    )
    first = apply("less", var("s"), const(1))
    assert not moved(ir.If(first, (ir.Allocate(t), filled, used), ())), "whether it is filled"
    read = apply("less", const(0.0, f64), at(x, const(2)))
    assert not moved(ir.If(read, (ir.Allocate(t), filled, used), ())), "what may not be read without an iteration"
    assert not moved(ir.Allocate(t), filled, ir.If(first, (loop("i", "n", put(t, "i", at(y, "i"))),), ()), used), (
        "a part"
    )


def test_what_is_filled_again_after_it_was_read_stays() -> None:
    doubled = loop("p", "n", put(t, "p", apply("add", at(t, "p"), at(t, "p"))))
    last = loop("q", "n", put(z, "q", apply("add", at(z, "q"), at(t, "q"))))
    assert not moved(ir.Allocate(t), filled, used, doubled, last)
    assert moved(ir.Allocate(t), filled, doubled, used)


def test_what_does_more_stays() -> None:
    both = loop("i", "n", put(t, "i", at(x, "i")), put(z, "i", at(x, "i")))
    assert not moved(ir.Allocate(t), both, used)
    counting = loop("i", "n", put(t, "i", at(x, "i")), ir.Assign("count", apply("add", var("count"), const(1))))
    assert not moved(ir.Allocate(t), counting, used)
    checked = loop("i", "n", put(t, "i", at(x, "i")), ir.Require(apply("less", var("i"), const(9)), 0, ()))
    assert not moved(ir.Allocate(t), checked, used)
