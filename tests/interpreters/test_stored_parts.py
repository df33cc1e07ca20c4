"""Loops store the rows, columns and numbers that are read of their states, where these lie at places of the step.

Every program is simplified and run on several sizes, nothing among them, and gives the bits that it gives as written.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plain import Plain
from test_rematerialisation import count, simplified, stored

import adze as az
from adze.core.environment import Env

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n n"]


def eliminated(k: Any, a: Any) -> Any:
    """A step of Gauss's elimination, which writes what later ones write again."""
    factors = a[k + 1 :, k] * 0.25
    return az.update(
        a, (slice(k + 1, None), slice(k + 1, None)), a[k + 1 :, k + 1 :] - az.outer(factors, a[k, k + 1 :])
    )


def swept(x: Any, read: Callable[[Any, Any, Any], Any]) -> Any:
    """The last matrix of an elimination, and numbers made of these and of what is read of that before each step p."""
    n = az.size(x)
    first = az.outer(x, x) + az.eye(n)
    last, before = az.scan_loop(lambda a, k: (eliminated(k, a), a), first, az.iota(n))
    return last, az.fori_loop(0, n, lambda j, t: t * 0.5 + read(before, n - 1 - j, t), x)


def falling(before: Any, p: Any, t: Any) -> Any:
    """What is on the right of the diagonal and below it, in a loop that is shorter at each step."""
    n = az.size(t)
    return az.sum(az.generate(n - p - 1, lambda j: t[j] * before[p, p, p + 1 + j] * before[p, p + 1 + j, p]))


PARTS: dict[str, tuple[Callable[[Any, Any, Any], Any], list[int]]] = {
    "rows": (lambda before, p, t: before[p, p] @ t, [2]),
    "columns": (lambda before, p, t: before[p, p:, p] @ t[p:], [2]),
    "both": (falling, [2, 2]),
    "a number in both": (lambda before, p, t: falling(before, p, t) * before[p, p, p], [2, 2]),
    "from the last": (lambda before, p, t: before[p, az.size(t) - 1 - p, p:] @ t[p:], [2]),
    "a row that stays": (lambda before, p, t: before[p, az.size(t) - 1, p:] @ t[p:], [2]),
    "the first row": (lambda before, p, t: before[p, 0, p:] @ t[p:], [2]),
    "two rows": (lambda before, p, t: (before[p, az.size(t) - 1 - p, p:] * before[p, p, p:]) @ t[p:], [2, 2]),
    "the row of another step": (lambda before, p, t: before[az.size(t) - 1 - p, p, p:] @ t[p:], [2]),
}
WHOLE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a part and all": lambda before, p, t: before[p, p] @ t + az.sum(before[p, p:, p:] @ t[p:]),
    "a row that may be outside": lambda before, p, t: az.cond(p > 0, lambda: before[p, p - 1, p:] @ t[p:], lambda: 0.0),
    "a row by what is read": lambda before, p, t: before[p, az.argmin(t), p:] @ t[p:],
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_stored(name: str) -> None:
    read, ranks = PARTS[name]

    @az.program
    def program(x: Vector) -> Any:
        return swept(x, read)

    assert stored(simplified(program))[: len(ranks) + 1] == ranks


@pytest.mark.parametrize("name", WHOLE)
def test_states_are_stored_that_are_read_otherwise(name: str) -> None:
    @az.program
    def program(x: Vector) -> Any:
        return swept(x, WHOLE[name])

    assert 3 in stored(simplified(program))


def test_as_many_parts_as_the_state_has_are_no_less() -> None:
    @az.program
    def program(x: Vector) -> Any:
        n = az.size(x)
        pairs = az.generate((n, 2), lambda i, j: x[i] + j)
        last, before = az.scan_loop(lambda s, k: (s * 0.5 + s[::-1] * 0.25, s), pairs, az.iota(n))

        def step(j: Any, t: Any) -> Any:
            p = n - 1 - j
            return t * 0.5 + (before[p, p:, 0] @ t[p:]) * (before[p, p:, 1] @ t[p:])

        return last, az.fori_loop(0, n, step, x)

    assert stored(simplified(program))[0] == 3


def lu(a: Matrix) -> Any:
    def column(k: Any, a: Any) -> Any:
        factors = a[k + 1 :, k] / a[k, k]
        a = az.update(a, (slice(k + 1, None), k), factors)
        rest = a[k + 1 :, k + 1 :] - az.outer(factors, a[k, k + 1 :])
        return az.update(a, (slice(k + 1, None), slice(k + 1, None)), rest)

    return az.fori_loop(0, a.shape[0] - 1, column, a)


@az.program
def squares_of_factors(a: Matrix) -> az.f64:
    return az.sum(lu(a) ** 2)


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_the_gradient_of_an_elimination_stores_a_row_and_a_column_a_step(n: int) -> None:
    gradient = az.grad(squares_of_factors)
    assert stored(az.simplify(gradient)) == [2, 2]
    a = np.random.default_rng(n).standard_normal((n, n)) + 3 * n * np.eye(n)
    found = az.compile(gradient)(a)
    np.testing.assert_allclose(found, az.evaluate(gradient)(a), rtol=1e-12)

    def squares(a: np.ndarray) -> float:
        a = a.copy()
        for k in range(n - 1):
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
        return float((a**2).sum())

    direction = np.random.default_rng(n + 1).standard_normal((n, n))
    slope = (squares(a + 1e-6 * direction) - squares(a - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose((found * direction).sum(), slope, rtol=1e-6)


# Reads of what a loop of updates has not written


def updated(x: Any, low: Any, read: Callable[[Any], Any]) -> Any:
    """A vector of cheap elements, those from ``low`` on written by a loop, and what is read of it."""
    n = az.size(x)
    y = az.update(az.generate(n + 1, lambda i: i * 0.5), slice(low, None), az.generate(n + 1 - low, lambda i: x[0] + i))
    return read(y)


@pytest.mark.parametrize(
    ("low", "place", "left"),
    [
        (lambda n: n - 1, lambda n: 0, None),
        (lambda n: 1, lambda n: 0, 0),  # before all that is written
        (lambda n: 1, lambda n: 1, 1),  # the first that is written
        (lambda n: 1, lambda n: n, 1),
    ],
)
def test_what_is_read_beside_updates_is_what_was_there(low: Any, place: Any, left: int | None) -> None:
    @az.program
    def program(x: Vector) -> Any:
        n = az.size(x)
        return az.cond(n > 1, lambda: updated(x, low(n), lambda y: y[place(n)]), lambda: 0.0)

    block = simplified(program)
    if left is not None:
        assert count(block, "scatter") == left


def test_equal_tests_of_readers_are_stored_once_in_a_byte() -> None:
    """The tests of a minimum are read by rows and by columns in the return sweep, and stored along a state."""

    @az.program
    def paths(d: Matrix) -> az.f64:
        return az.sum(az.fori_loop(0, d.shape[0], lambda k, d: az.minimum(d, d[:, k, None] + d[k]), d))

    gradient = az.grad(paths)
    [loop, *_] = [operation for operation in az.simplify(gradient).bindings if operation.op == "loop"]
    assert [str(type) for type in loop.types[1:]] == ["bool[n, n, n]"]
    d = np.random.default_rng(3).random((7, 7))
    found = az.compile(gradient)(d)
    np.testing.assert_array_equal(found, az.evaluate(gradient)(d))
    run, slope = az.evaluate(paths), np.zeros_like(d)
    for place in np.ndindex(d.shape):
        step = np.zeros_like(d)
        step[place] = 1e-7
        slope[place] = (run(d + step) - run(d - step)) / 2e-7
    np.testing.assert_allclose(found, slope, atol=1e-6)


def test_what_the_loop_makes_for_itself_is_stored_as_it_is() -> None:
    """A force is an array that other rows read: no loop computes it again to store it."""

    @az.program
    def swing(x: Vector) -> az.f64:
        def step(_: Any, state: Any) -> Any:
            x, v = state
            v = v + az.map(lambda p: az.sum(az.sin(x - p)), x)
            x = x + az.map(lambda a: az.sum(az.exp(-((v - a) ** 2))), v)
            return x, v

        x, v = az.fori_loop(0, 3, step, (x, x))
        return az.sum(x * v)

    gradient = az.grad(swing)
    block = az.simplify(gradient)
    [loop] = [operation for operation in block.bindings if operation.op == "loop"][:1]
    assert count(loop.blocks[0], "sin") == 1 and count(loop.blocks[0], "exp") == 1
    x = np.linspace(0.0, 1.0, 6)
    np.testing.assert_allclose(az.compile(gradient)(x), az.evaluate(gradient)(x), rtol=1e-12)


@pytest.mark.parametrize(
    "step",
    [
        lambda a: a.T * 0.2 + az.minimum(a.T, az.sum(a, axis=1)[:, None]),
        lambda a: az.maximum(a.T - az.mean(a, axis=1)[:, None], 0.0),
        lambda a: az.where(az.max(a, axis=1)[:, None] <= a.T, a.T * 0.5, a.T * 0.1),
    ],
)
def test_what_rows_share_is_made_once_a_row(step: Callable[[Any], Any]) -> None:
    """What is stored along another axis than its loops are nested would make sums of rows for each element."""

    @az.program
    def squares(a: Matrix) -> az.f64:
        return az.sum(az.fori_loop(0, 3, lambda _, a: step(a), a) ** 2)

    term, operations = az.simplify(az.grad(squares)), []
    for n in (8, 16):
        plain = Plain({"n": n})
        term.interpret(plain)(Env(), [np.linspace(0.1, 1.0, n * n).reshape(n, n)])
        operations.append(plain.operations)
    assert operations[1] < 5 * operations[0]


def test_costly_parts_of_what_is_stored_are_found_in_the_loop() -> None:
    @az.program
    def squares(x: Vector) -> az.f64:
        def step(_: Any, a: Any) -> Any:
            return az.tanh(az.map(lambda p: az.sum(az.sin(a - p)), a)) * 0.3

        return az.sum(az.fori_loop(0, 3, step, x) ** 2)

    assert stored(az.simplify(az.grad(squares))) == [2, 2]
