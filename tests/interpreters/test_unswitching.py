"""What no loop changes in a branch: where it is computed before the loops, and where it must stay."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.interpreters.evaluate import evaluate_block
from adze.interpreters.simplify import simplify

pytestmark = pytest.mark.unguarded

Vector, Matrix = az.Array[az.f64, "n"], az.Array[az.f64, "m n"]


def of(f: Callable[..., Any]) -> az.Program:
    """A program of a matrix and two numbers; f gives an element, by its place."""

    def program(x: Matrix, a: az.f64, c: az.f64) -> Any:
        return az.generate(x.shape[0], lambda i: az.generate(x.shape[1], lambda j: f(x, a, c, i, j)))

    return az.program(program)


LEAVES: dict[str, Callable[..., Any]] = {
    "a function": lambda x, a, c, i, j: az.cond(c > 0.0, lambda: x[i, j] * az.sin(a), lambda: x[i, j]),
    "of both branches": lambda x, a, c, i, j: az.cond(
        c > 0.0, lambda: x[i, j] * az.sin(a), lambda: x[i, j] + az.sin(a + c)
    ),
    "what is cheap beside it": lambda x, a, c, i, j: az.cond(
        c > 0.0, lambda: x[i, j] * az.sin(a) + x[j, i] * (a + 1.0), lambda: x[i, j]
    ),
    "a result": lambda x, a, c, i, j: az.cond(c > 0.0, lambda: az.sin(a), lambda: x[i, j]),
    "in a branch inside": lambda x, a, c, i, j: az.cond(
        x[i, j] > 1.0, lambda: az.cond(c > 0.0, lambda: x[i, j] * az.sin(a), lambda: x[i, j]), lambda: c
    ),
    "in an array of the branch": lambda x, a, c, i, j: az.sum(
        az.cond(
            c > 0.0,
            lambda: az.generate(2, lambda k: x[i, j] ** k * az.sin(a)),
            lambda: az.generate(2, lambda k: x[i, j] * k),
        )
    ),
}

STAYS: dict[str, Callable[..., Any]] = {
    "a test of an element": lambda x, a, c, i, j: az.cond(x[i, j] > 0.0, lambda: x[i, j] * az.sin(a), lambda: x[i, j]),
    "a function of an element": lambda x, a, c, i, j: az.cond(c > 0.0, lambda: az.sin(x[i, j] + a), lambda: x[i, j]),
    "what a loop around changes": lambda x, a, c, i, j: az.cond(
        c > 0.0, lambda: x[i, j] * az.sin(a * i), lambda: x[i, j]
    ),
    "what is cheap": lambda x, a, c, i, j: az.cond(c > 0.0, lambda: x[i, j] * (a + 1.0), lambda: x[i, j]),
    "in a branch inside that is not taken": lambda x, a, c, i, j: az.cond(
        c > 0.0, lambda: az.cond(x[i, j] > 1.0, lambda: x[i, j] * az.sin(a), lambda: c), lambda: x[i, j]
    ),
}
X, A = np.array([[0.5, 1.5], [-2.0, 3.0]]), 0.75


def around_loops(f: Callable[..., Any]) -> tuple[str, str]:
    """What is printed before the loops over elements, and the rest."""
    text = az.pretty(of(f), style="loops")
    place = text.index("return")
    return text[:place], text[place:]


@pytest.mark.parametrize("name", LEAVES)
def test_what_leaves(name: str) -> None:
    """The sine stands before the loops, once, under the test."""
    head, rest = around_loops(LEAVES[name])
    assert "if c > 0.0" in head and head.count("sin(a)") == 1 and "sin(" not in rest


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    head, _ = around_loops(STAYS[name])
    assert "if c > 0.0:" not in head and "sin" not in head


def test_a_loop_that_may_not_end_stays_in_its_branch() -> None:
    def halved(x: Any, a: Any, c: Any, i: Any, j: Any) -> Any:
        def small() -> Any:
            return x[i, j] * az.while_loop(lambda s: s > c, lambda s: s * 0.5, az.sin(a))

        return az.cond(c > 0.0, small, lambda: x[i, j])

    head, rest = around_loops(halved)
    assert "sin(a)" in head and "while" in rest and "while" not in head


@pytest.mark.parametrize("name", [*LEAVES, *STAYS])
@pytest.mark.parametrize("c", [0.25, -1.0])
def test_values(name: str, c: float) -> None:
    """Those of the program as it is written, of whichever branch."""
    program = of({**LEAVES, **STAYS}[name])
    wanted = az.evaluate(program)(X, A, c)
    [simplified] = evaluate_block(simplify(program), [X, A, c], {"m": 2, "n": 2})
    np.testing.assert_array_equal(simplified, wanted)
    np.testing.assert_allclose(az.compile(program)(X, A, c), wanted, rtol=1e-15)


def test_a_branch_that_is_not_taken_spoils_nothing() -> None:
    """Neither the value nor the gradient by what its branch alone would divide by."""

    def scaled(x: Matrix, a: az.f64, c: az.f64) -> az.f64:
        f = of(lambda x, a, c, i, j: az.cond(a > 0.0, lambda: x[i, j] / az.sqrt(a), lambda: x[i, j]))
        return az.sum(f(x, a, c))

    program = az.program(scaled)
    assert az.evaluate(program)(X, 0.0, 1.0) == X.sum()
    for run in (az.evaluate, az.compile):
        assert run(az.grad(program, "a"))(X, 0.0, 1.0) == 0.0
        np.testing.assert_allclose(run(az.grad(program, "a"))(X, 4.0, 1.0), -X.sum() / 16)


def test_a_branch_that_uses_what_is_summed_up_around_it() -> None:
    """The gradient of this adds up in the loop over rows what the branch leads back."""

    @az.program
    def total(x: Matrix, c: az.f64) -> az.f64:
        def of_row(row: az.Expr) -> az.Expr:
            s = az.sum(row)
            factor = az.cond(c > 0.1, lambda: az.exp(-s), lambda: s * 2.0)
            return az.sum(az.map(lambda w: factor * w + factor + az.exp(-w), row * s + az.sin(row)))

        return az.sum(az.map(of_row, x))

    x, step = np.linspace(-0.4, 0.7, 12).reshape(3, 4), 1e-6
    gradient = az.compile(az.grad(total))
    for c in (0.0, 0.3):
        found = gradient(x, c)
        np.testing.assert_allclose(found, az.evaluate(az.grad(total))(x, c), rtol=1e-12)
        for place in np.ndindex(3, 4):
            moved = np.zeros_like(x)
            moved[place] = step
            slope = (az.evaluate(total)(x + moved, c) - az.evaluate(total)(x - moved, c)) / (2 * step)
            assert abs(slope - found[place]) < 1e-6 * (1.0 + abs(slope))
