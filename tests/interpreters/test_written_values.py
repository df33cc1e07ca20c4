"""What steps have written is read, not computed again; and an array that is read at one place is not made.

Every program is simplified and run on several sizes, nothing among them, and gives the bits that it gives as written.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_rematerialisation import back_over, simplified, states

import adze as az
from adze.core import terms
from adze.core.program import Program

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]


def counts(block: terms.Block, name: str) -> int:
    """How often a construct or a primitive stands in a block, or in what is inside of it."""
    found = 0
    for operation in block.bindings:
        own = operation.static[0].name if operation.op == "primitive" else operation.op
        found += (own == name) + sum([counts(inner, name) for inner in operation.blocks])
    return found


def hidden(x: Any) -> Callable[[Any, Any], Any]:
    """A step that writes a number made of all of the state."""
    return lambda i, s: az.tanh(az.sum(s) * 0.25 + x[i])


@az.program
def a_number(x: Vector) -> Any:
    made = hidden(x)
    last, before = states(x, lambda i, s: az.update(s, i, made(i, s)))
    return last, back_over(x, lambda p, t: t * (1.0 - made(p, before[p]) ** 2))


@az.program
def backwards(x: Vector) -> Any:
    made, n = hidden(x), az.size(x)
    last, before = states(x, lambda i, s: az.update(s, n - 1 - i, made(n - 1 - i, s)))
    return last, back_over(x, lambda p, t: t * (1.0 - made(n - 1 - p, before[p]) ** 2))


def row(x: Any, i: Any, s: Any) -> Any:
    return az.generate(az.size(x), lambda j: az.tanh(s[i, j] + az.sum(s[:, j]) * x[i]))


@az.program
def rows(x: Vector) -> Any:
    n = az.size(x)
    last, before = states(az.zeros((n, n)) + x, lambda i, s: az.update(s, i, row(x, i, s)))
    return back_over(x, lambda p, t: t * (1.0 - row(x, p, before[p]) ** 2)), last


def below(x: Any, j: Any, s: Any) -> Any:
    """A column of a factor: under a test, the value at the place of the step among what it is made of."""
    rest = x - s @ s[j]
    return az.generate(az.size(x), lambda i: az.where(i >= j, az.exp(rest[i]) / az.exp(rest[j]), 0.0))


@az.program
def columns(x: Vector) -> Any:
    n = az.size(x)
    last, before = states(az.zeros((n, n)), lambda j, s: az.update(s, (slice(None), j), below(x, j, s)))
    return back_over(x, lambda p, t: 0.5 * t + below(x, p, before[p]) ** 2), last


def ratios(function: Any, x: Any, j: Any, s: Any) -> Callable[[Any], Any]:
    rest = x - s @ s[j]
    return lambda i: function(rest[i]) / function(rest[j])


def column(x: Any, value: Callable[[Any], Any]) -> Any:
    return az.generate(az.size(x), value)


@az.program
def two_under_one_test(x: Vector) -> Any:
    """Both are written under one test, and read in one choice by it."""
    n = az.size(x)

    def step(both: Any, j: Any) -> Any:
        (a, b), column_of = both, lambda f, s: column(x, lambda i: az.where(i >= j, ratios(f, x, j, s)(i), 0.0))
        return tuple([az.update(s, (slice(None), j), column_of(f, s)) for f, s in ((az.exp, a), (az.tanh, b))]), both

    (a, b), (a_before, b_before) = az.scan_loop(step, (az.zeros((n, n)), az.zeros((n, n))), az.iota(n))

    def read(p: Any, i: Any) -> Any:
        return ratios(az.exp, x, p, a_before[p])(i) * ratios(az.tanh, x, p, b_before[p])(i)

    return back_over(x, lambda p, t: 0.5 * t + column(x, lambda i: az.where(i >= p, read(p, i), 0.0))), a, b


@az.program
def two_by_one_test(x: Vector) -> Any:
    """One is written where the test holds, and one where it does not."""
    n = az.size(x)

    def choice(j: Any, s: Any, other: Any) -> Callable[[Any], tuple[Any, Any]]:
        return lambda i: (
            az.where(i >= j, ratios(az.exp, x, j, s)(i), 0.0),
            az.where(i >= j, 0.0, ratios(az.tanh, x, j, other)(i)),
        )

    def step(both: Any, j: Any) -> Any:
        columns = [column(x, lambda i, k=k: choice(j, *both)(i)[k]) for k in range(2)]
        return tuple([az.update(s, (slice(None), j), c) for s, c in zip(both, columns, strict=True)]), both

    (a, b), (a_before, b_before) = az.scan_loop(step, (az.zeros((n, n)), az.zeros((n, n))), az.iota(n))

    def read(p: Any, i: Any) -> Any:
        first, second = [ratios(f, x, p, s[p])(i) for f, s in ((az.exp, a_before), (az.tanh, b_before))]
        return az.where(i >= p, first**2, second**2)

    return back_over(x, lambda p, t: 0.5 * t + column(x, lambda i: read(p, i))), a, b


READ = {"a_number": ("tanh", 1), "backwards": ("tanh", 1), "rows": ("tanh", 1), "columns": ("exp", 2)}
CHOSEN = [two_under_one_test, two_by_one_test]


@pytest.mark.parametrize("program", [a_number, backwards, rows, columns], ids=lambda program: program.name)
def test_what_was_written_is_read(program: Program) -> None:
    name, once = READ[program.name]
    assert counts(simplified(program), name) == once


@pytest.mark.parametrize("program", CHOSEN, ids=lambda program: program.name)
def test_states_that_are_written_under_one_test_are_read(program: Program) -> None:
    """No read of one undoes that of the other: the quotients are made in the steps alone."""
    block = simplified(program)
    assert (counts(block, "exp"), counts(block, "tanh")) == (2, 2)
    x = np.linspace(0.1, 0.8, 6)
    for found, wanted in zip(az.compile(program)(x), az.evaluate(program)(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11)


@az.program
def of_another_step(x: Vector) -> Any:
    """What the step before would have made of this state."""
    made = hidden(x)
    last, before = states(x, lambda i, s: az.update(s, i, made(i, s)))
    return last, back_over(x, lambda p, t: t * made(az.maximum(p - 1, 0), before[p]))


@az.program
def of_another_state(x: Vector) -> Any:
    made = hidden(x)
    last, before = states(x, lambda i, s: az.update(s, i, made(i, s)))
    return last, back_over(x, lambda p, t: t * made(p, before[az.maximum(p - 1, 0)]))


@az.program
def of_the_last_state(x: Vector) -> Any:
    made = hidden(x)
    last, before = states(x, lambda i, s: az.update(s, i, made(i, s)))
    return last, back_over(x, lambda p, t: t * made(p, last) + az.sum(before[p]))


@az.program
def elsewhere(x: Vector) -> Any:
    """The other branch of the test under which a step writes it."""
    n = az.size(x)
    last, before = states(az.zeros((n, n)), lambda j, s: az.update(s, (slice(None), j), below(x, j, s)))

    def above(p: Any, s: Any) -> Any:
        rest = x - s @ s[p]
        return az.generate(n, lambda i: az.where(i >= p, 0.0, az.exp(rest[i]) / az.exp(rest[p])))

    return back_over(x, lambda p, t: 0.5 * t + above(p, before[p])), last


@pytest.mark.parametrize(
    "program", [of_another_step, of_another_state, of_the_last_state, elsewhere], ids=lambda program: program.name
)
def test_what_was_not_written_is_computed(program: Program) -> None:
    assert counts(simplified(program), "exp" if program is elsewhere else "tanh") >= 2


@az.program
def beyond_the_steps(x: Vector) -> Any:
    """What is written does not read the state; readers go on where there are no steps."""
    n = az.size(x)

    def made(i: Any) -> Any:
        return az.tanh(az.exp(x[i]))

    last, before = az.scan_loop(lambda s, i: (az.update(s, i, made(i)), s), az.zeros(n), az.iota(n // 2))

    def reader(p: Any) -> Any:
        return made(p) + az.cond(p < n // 2, lambda: az.tanh(az.sum(before[p])), lambda: 0.0)

    return last, az.generate(n, reader)


@az.program
def last_of_many(x: Vector) -> Any:
    """A step writes several numbers to one place, the last of which stays."""
    n = az.size(x)

    def made(j: Any, s: Any) -> Any:
        return az.tanh(az.sum(s) * 0.25 + x[j])

    def step(s: Any, i: Any) -> Any:
        places, values = az.generate(n, lambda j: i + 0 * j), az.generate(n, lambda j: made(j, s))
        return az.scatter(s, places, values, unique=False), s

    last, before = az.scan_loop(step, x, az.iota(n))
    return last, az.generate((n, n), lambda p, j: made(j, before[p]))


@az.program
def under_a_test_of_the_state(x: Vector) -> Any:
    def made(i: Any, s: Any) -> Any:
        before = az.where(i > 0, s[az.maximum(i - 1, 0)], 0.0)
        return az.where(before < 0.9, az.tanh(az.sum(s) + x[i]), 0.0)

    last, before = states(x, lambda i, s: az.update(s, i, made(i, s)))
    return last, back_over(x, lambda p, t: t * (1.0 - made(p, before[p]) ** 2))


@pytest.mark.parametrize("program", [beyond_the_steps, last_of_many, under_a_test_of_the_state], ids=lambda p: p.name)
def test_what_is_read_is_what_was_written(program: Program) -> None:
    simplified(program)
    x = np.linspace(0.1, 0.8, 6)
    for found, wanted in zip(az.compile(program)(x), az.evaluate(program)(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11)


def test_the_gradient_of_what_is_written_under_a_test_of_the_state() -> None:
    @az.program
    def gate(x: Vector) -> az.f64:
        n = az.size(x)

        def step(i: az.Expr, s: az.Expr) -> az.Expr:
            before = az.where(i > 0, s[az.maximum(i - 1, 0)], 0.0)
            return az.update(s, i, az.where(before < 0.9, az.tanh(az.sum(s) + x[i]), 0.0))

        return az.sum(az.fori_loop(0, n, step, az.zeros(n)) ** 2)

    x, e = np.linspace(0.3, 0.9, 5), 1e-6 * np.eye(5)
    run = az.evaluate(gate)
    wanted = [(run(x + step) - run(x - step)) / 2e-6 for step in e]
    np.testing.assert_allclose(az.compile(az.grad(gate))(x), wanted, rtol=1e-6, atol=1e-9)


@az.program
def network(x: az.Array[az.f64, "n m"], w: az.Array[az.f64, "k k"], u: az.Array[az.f64, "k m"]) -> az.f64:
    """A recurrent network whose states are rows of an array."""
    (n, _), k = x.shape, w.shape[0]

    def step(i: az.Expr, states: az.Expr) -> az.Expr:
        before = az.where(i > 0, states[az.maximum(i - 1, 0)], 0.0)
        return az.update(states, i, az.tanh(w @ before + u @ x[i]))

    return az.sum(az.fori_loop(0, n, step, az.zeros((n, k))) ** 2)


def test_the_gradient_of_a_network_whose_states_are_rows() -> None:
    gradient = az.grad(network, argnums=(1, 2))
    assert counts(az.simplify(gradient), "tanh") == 1
    rng = np.random.default_rng(0)
    x, w, u = rng.normal(size=(6, 3)), 0.5 * rng.normal(size=(4, 4)), rng.normal(size=(4, 3))
    found = az.compile(gradient)(x, w, u)
    for k, at in (0, (1, 2)), (1, (3, 0)):
        moved = [np.copy(w), np.copy(u)], [np.copy(w), np.copy(u)]
        moved[0][k][at] += 1e-6
        moved[1][k][at] -= 1e-6
        high, low = (az.evaluate(network)(x, *each) for each in moved)
        np.testing.assert_allclose(found[k][at], (high - low) / 2e-6, rtol=1e-6)


# Arrays that are read at one place


@az.program
def pivots(x: Vector, k: az.i64) -> az.f64:
    """The element at a place divides all others."""
    made = az.generate(az.size(x), lambda i: az.sum(az.exp(x * x[i])))
    return az.sum(x / made[k]) + az.sum(az.where(x > 0.5, az.sqrt(made[k]), 0.0))


@az.program
def each(x: Vector) -> Any:
    """All elements are read, as a loop comes to them."""
    made = az.generate(az.size(x), lambda i: az.sum(az.exp(x * x[i])))
    return az.generate((3, az.size(x)), lambda j, i: made[i] * x[i])


def test_an_array_that_is_read_at_one_place_is_not_made() -> None:
    text = az.pretty(az.simplify(pivots))
    assert "x[k]" in text and "for " not in text.split("return")[0].replace("sum(exp(x * x[k]))", "")
    x = np.linspace(0.1, 1.0, 9)
    made = np.exp(x * x[4]).sum()
    wanted = (x / made).sum() + (x > 0.5).sum() * np.sqrt(made)
    for run in (az.compile(pivots), az.evaluate(pivots)):
        np.testing.assert_allclose(run(x, 4), wanted, rtol=1e-14)
    with pytest.raises(IndexError):
        az.compile(pivots)(x, 9)


def test_an_array_that_loops_read_is_made() -> None:
    assert "t1 = map(lambda v: sum(exp(x * v)) * v, x)" in az.pretty(az.simplify(each))
    x = np.linspace(0.1, 1.0, 9)
    np.testing.assert_allclose(az.compile(each)(x)[1], np.exp(np.outer(x, x)).sum(1) * x, rtol=1e-14)
