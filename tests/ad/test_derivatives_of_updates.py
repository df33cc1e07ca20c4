"""Reverse mode of loops that update arrays in place: what is stored a step is what is read of the array, not the array.

With a state of n numbers and n steps, storing the state before each step would make a gradient of O(n) operations one
of O(n^2) (Schenck et al. 2022, section 6.2).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plain import instance

import adze as az
from adze.core.program import Program
from adze.core.terms import Block
from adze.core.types import rank
from adze.interpreters.simplify import simplify

pytestmark = pytest.mark.unguarded

Vector, Places, Matrix = az.Array[az.f64, "n"], az.Array[az.i64, "n"], az.Array[az.f64, "n m"]
Square = az.Array[az.f64, "n n"]


@az.program
def one_before(x: Vector, a: Vector) -> az.f64:
    return az.sum(az.fori_loop(1, az.size(x), lambda i, s: az.update(s, i, az.sin(s[i - 1]) * a[i]), x) ** 2)


@az.program
def two_before(x: Vector) -> az.f64:
    n = az.size(x)
    return az.fori_loop(2, n, lambda i, s: az.update(s, i, az.sin(s[i - 1]) * s[i - 2] + x[i]), x)[n - 1]


@az.program
def at_places(x: Vector, to: Places, of: Places) -> az.f64:
    def step(i: Any, s: Any) -> Any:
        return az.update(s, to[i], az.sin(s[of[i]]) * s[to[i]])

    return az.sum(az.fori_loop(0, az.size(x), step, x))


@az.program
def at_one_place(x: Vector) -> az.f64:
    return az.sum(az.fori_loop(0, az.size(x), lambda i, s: az.update(s, 0, az.sin(s[0]) * x[i]), x))


@az.program
def at_a_moving_place(x: Vector) -> az.f64:
    n = az.size(x)

    def step(i: Any, state: Any) -> Any:
        s, place = state
        return az.update(s, place, az.sin(s[place]) * s[i]), (place * 5 + 1) % n

    return az.sum(az.fori_loop(0, n, step, (x, 0))[0] ** 2)


@az.program
def until_the_end(x: Vector) -> az.f64:
    def step(state: Any) -> Any:
        s, place = state
        return az.update(s, place, az.sin(s[place - 1]) * s[place]), place + 1

    return az.sum(az.while_loop(lambda state: state[1] < az.size(x), step, (x, 1))[0] ** 2)


@az.program
def with_outputs(x: Vector, a: Vector) -> az.f64:
    def step(state: Any, v: Any) -> Any:
        s, place = state
        s = az.update(s, place, az.sin(s[place]) * v)
        return (s, (place + 1) % az.size(x)), s[place] * v

    (last, _), outputs = az.scan_loop(step, (x, 0), a)
    return az.sum(last**2) + az.sum(outputs)


@az.program
def swapped_in_order(x: Vector) -> az.f64:
    def step(i: Any, s: Any) -> Any:
        return az.cond(s[i - 1] > s[i], lambda: az.update(az.update(s, i, s[i - 1] * s[i]), i - 1, s[i]), lambda: s)

    return az.sum(az.fori_loop(1, az.size(x), step, x) * x)


@az.program
def chosen_by_the_state(x: Vector) -> az.f64:
    def step(i: Any, s: Any) -> Any:
        by_two = lambda: az.cond(x[i] > 0.8, lambda: az.update(s, i - 1, az.sin(s[i])), lambda: s)  # noqa: E731
        return az.cond(s[i] > 0.7, lambda: az.update(s, i, s[i] * s[i - 1] * x[0]), by_two)

    return az.sum(az.fori_loop(1, az.size(x), step, x) ** 2)


@az.program
def twice_a_step(x: Vector) -> az.f64:
    n = az.size(x)

    def step(i: Any, s: Any) -> Any:
        s = az.update(s, i, az.sin(s[i - 1]) * s[i])
        return az.update(s, i * 7 % n, s[i] * s[i * 3 % n])

    return az.sum(az.fori_loop(1, n, step, x) ** 2)


@az.program
def a_few_at_once(x: Vector, at: Places) -> az.f64:
    """Which may be one place: the last wins."""

    def step(i: Any, s: Any) -> Any:
        values = az.stack([x[i] * 2.0, az.sin(x[at[i]]), x[0] * x[i]])
        return az.update(s, az.stack([i, at[i], i // 2]), values)

    return az.sum(az.fori_loop(0, az.size(x), step, x) * x)


@az.program
def in_turns(x: Vector) -> az.f64:
    def step(i: Any, state: Any) -> Any:
        a, b = state
        return b, az.update(a, i, az.sin(a[i - 1]) * b[i])

    a, b = az.fori_loop(1, az.size(x), step, (x, x * 2))
    return az.sum(a * b)


@az.program
def cholesky(a: Square) -> az.f64:
    n = az.size(a)

    def column(j: Any, a: Any) -> Any:
        def row(i: Any, a: Any) -> Any:
            rest = az.fori_loop(0, j, lambda k, s: s - a[i, k] * a[j, k], a[i, j])
            place = lambda value: az.update(a, (i, j), value)  # noqa: E731
            return az.cond(i == j, lambda: place(az.sqrt(rest)), lambda: place(rest / a[j, j]))

        return az.fori_loop(j, n, row, a)

    return az.sum(az.fori_loop(0, n, column, a) ** 2)


@az.program
def in_a_nest(x: Matrix, a: Vector) -> az.f64:
    def row(i: Any, s: Any) -> Any:
        return az.fori_loop(0, az.size(x, 1), lambda j, s: az.update(s, (i, j), az.sin(s[i - 1, j]) * a[i]), s)

    return az.sum(az.fori_loop(1, az.size(x), row, x) ** 2)


@az.program
def row_by_row(x: Matrix) -> az.f64:
    return az.sum(az.fori_loop(1, az.size(x), lambda i, s: az.update(s, i, az.sin(s[i - 1]) * s[i]), x) ** 2)


@az.program
def in_a_map(x: Matrix) -> az.f64:
    def row(r: Any) -> Any:
        return az.sum(az.fori_loop(1, az.size(r), lambda i, s: az.update(s, i, az.sin(s[i - 1]) * s[i]), r))

    return az.sum(az.map(row, x))


def vector(n: int) -> np.ndarray:
    return np.random.default_rng(n).uniform(0.5, 1, n)


def places(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, n, n)


def definite(n: int) -> np.ndarray:
    return vector(n * n).reshape(n, n) / n + 3 * np.eye(n)


# Each program with its arguments for vectors of n numbers, and whether what it stores a step is a number.
PROGRAMS: list[tuple[Program, Callable[[int], tuple[Any, ...]], bool]] = [
    (one_before, lambda n: (vector(n), vector(n) + 0.1), True),
    (two_before, lambda n: (vector(n),), True),
    (at_places, lambda n: (vector(n), places(n, 1), places(n, 2)), True),
    (at_one_place, lambda n: (vector(n),), True),
    (at_a_moving_place, lambda n: (vector(n),), True),
    (until_the_end, lambda n: (vector(n),), True),
    (with_outputs, lambda n: (vector(n), vector(n) + 0.1), True),
    (swapped_in_order, lambda n: (vector(n),), True),
    (chosen_by_the_state, lambda n: (vector(n),), True),
    (twice_a_step, lambda n: (vector(n),), True),
    (a_few_at_once, lambda n: (vector(n), places(n, 3)), True),
    (in_turns, lambda n: (vector(n),), True),
    (cholesky, lambda n: (definite(n),), False),
    (in_a_nest, lambda n: (vector(3 * n).reshape(n, 3), vector(n)), False),
    (row_by_row, lambda n: (vector(3 * n).reshape(n, 3),), False),
    (in_a_map, lambda n: (vector(2 * n).reshape(2, n),), False),
]
each = pytest.mark.parametrize(("program", "given", "narrow"), PROGRAMS, ids=[p[0].name for p in PROGRAMS])


@each
@pytest.mark.parametrize("n", [1, 6])
def test_values(program: Program, given: Any, narrow: bool, n: int) -> None:
    if program is two_before and n < 2:
        n = 2
    arguments = given(n)
    x, f = arguments[0], az.evaluate(program)
    gradient = az.evaluate(az.grad(program))(*arguments)
    step = 1e-5
    for k in np.ndindex(x.shape):
        unit = np.zeros_like(x)
        unit[k] = step
        near = (f(x + unit, *arguments[1:]) - f(x - unit, *arguments[1:])) / (2 * step)
        far = (f(x + 2 * unit, *arguments[1:]) - f(x - 2 * unit, *arguments[1:])) / (4 * step)
        assert gradient[k] == pytest.approx((4 * near - far) / 3, rel=1e-8, abs=1e-8)


@each
def test_compiled(program: Program, given: Any, narrow: bool) -> None:
    arguments = given(7)
    gradient = az.grad(program)
    np.testing.assert_allclose(
        az.compile(gradient)(*arguments), az.evaluate(gradient)(*arguments), rtol=1e-13, atol=1e-13
    )


@each
def test_no_state_is_stored_where_numbers_do(program: Program, given: Any, narrow: bool) -> None:
    """Where steps read single numbers, the gradient of a program on vectors holds no matrix."""
    term = simplify(instance(az.grad(program), given(6)).term)
    assert not narrow or _largest_rank(term) == 1


@pytest.mark.parametrize("directions", [0, pytest.param(1, marks=pytest.mark.slow)], ids=["gradient", "hessian"])
@pytest.mark.parametrize("program, given", [p[:2] for p in PROGRAMS if p[2]], ids=[p[0].name for p in PROGRAMS if p[2]])
def test_the_work_a_step_does_not_grow(program: Program, given: Any, directions: int) -> None:
    """Counted by running the gradient, or its product with a direction, on 10 and on 40 numbers."""
    derived = az.cost(az.hvp(program) if directions else az.grad(program))
    few, many = (derived(*args, *[np.ones_like(args[0])] * directions).work for args in (given(10), given(40)))
    assert many < 1.25 * 4 * few


def _largest_rank(block: Block) -> int:
    own = [rank(type) for binding in block.bindings for type in binding.types]
    return max([0, *own, *[_largest_rank(inner) for binding in block.bindings for inner in binding.blocks]])
