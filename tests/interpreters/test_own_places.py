"""States that are made element by element are made where they are, and the results are what they were."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.core.program import Program
from adze.interpreters.own_places import at_own_places

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
Grid = az.Array[az.f64, "n m"]


def loop(states: Any, steps: az.Expr, step: Callable[[az.Expr, Any], Any]) -> Any:
    return az.fori_loop(0, steps, step, states)


@az.program
def swing(x: Vector, v: Vector, steps: az.i64) -> Any:
    """The second state is made of the first one's next value."""

    def step(_: az.Expr, state: Any) -> Any:
        x, v = state
        v = v - 0.1 * az.sin(x)
        return x + 0.1 * v, v

    return loop((x, v), steps, step)


@az.program
def fading(x: Grid, y: Grid, steps: az.i64) -> az.Expr:
    """An array of rows, and a sum along a row beside the element."""
    return loop(x, steps, lambda t, x: 0.5 * x + y + (y @ az.ones(y.shape[1]))[:, None] / (1 + t).astype(az.f64))


@az.program
def exchanged(x: Grid, y: Grid, steps: az.i64) -> Any:
    """The new state is where the other one was: a wave."""

    def step(_: az.Expr, state: Any) -> Any:
        u, before = state
        around = az.roll(u, 1, 0) + az.roll(u, -1, 0) + az.roll(u, 1, 1) + az.roll(u, -1, 1)
        return 2 * u - before + 0.1 * (around - 4 * u), u

    return loop((x, y), steps, step)


@az.program
def through_updates(x: Grid, y: Grid, steps: az.i64) -> az.Expr:
    """An update, a new array, an update."""

    def step(t: az.Expr, x: az.Expr) -> az.Expr:
        x = az.update(x, 0, az.zeros(x.shape[1]))
        return az.update(0.5 * x - y, (slice(None), -1), 1.0)

    return loop(x, steps, step)


@az.program
def rotation(x: Vector, v: Vector, steps: az.i64) -> Any:
    """Each state wants to be read by the other first: they are made together."""
    return loop((x, v), steps, lambda _, state: (state[0] + 0.1 * state[1], state[1] - 0.1 * state[0]))


@az.program
def three(x: Grid, y: Grid, steps: az.i64) -> Any:
    def step(t: az.Expr, state: Any) -> Any:
        a, b, c = state
        return 0.5 * a + 0.25 * b - c, b - 0.5 * c + 0.1 * a, c * 0.9 + 0.1 * a * b

    return loop((x, y, x + y), steps, step)


def vectors(n: int) -> Any:
    rng = np.random.default_rng(n)
    return rng.normal(size=n), rng.normal(size=n)


def grids(n: int) -> Any:
    rng = np.random.default_rng(n)
    return rng.normal(size=(n, n + 2)), rng.normal(size=(n, n + 2))


# The arrays that a call takes room for beside its results
ROOM = {
    swing: (vectors, 0),
    fading: (grids, 0),
    exchanged: (grids, 2),
    through_updates: (grids, 0),
    rotation: (vectors, 0),
    three: (grids, 0),
}


@pytest.mark.parametrize("program", ROOM, ids=lambda program: program.name)
def test_states_that_are_made_where_they_are(program: Program) -> None:
    given, arrays = ROOM[program]
    for threads in (1, 2):
        compiled = az.compile(program, threads=threads)
        for n, steps in ((1, 3), (5, 0), (5, 1), (40, 4), (40, 7)):
            args = given(n)
            found, wanted = (run(*args, steps) for run in (compiled, az.evaluate(program)))
            one, other = (x if isinstance(x, tuple) else (x,) for x in (found, wanted))
            for x, y in zip(one, other, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-13, atol=1e-15)
    args = given(100)
    results = len(one)
    assert compiled.peak_bytes(*args, 5) < (results + arrays + 0.5) * args[0].nbytes


@az.program
def neighbours(x: Vector, v: Vector, steps: az.i64) -> az.Expr:
    return loop(x, steps, lambda _, x: 0.5 * (x + az.roll(x, 1)))


@az.program
def turned(x: Grid, y: Grid, steps: az.i64) -> az.Expr:
    """Elements are read, but across."""
    n, m = x.shape
    return loop(x, steps, lambda _, x: az.generate((n, m), lambda i, j: x[i, j] + x[j % n, i % m]))


@az.program
def normalised(x: Vector, v: Vector, steps: az.i64) -> az.Expr:
    return loop(x, steps, lambda _, x: (x + v) / az.sqrt(az.sum((x + v) ** 2)))


@az.program
def half_across(x: Vector, v: Vector, steps: az.i64) -> Any:
    """One of two that are made of each other reads a neighbour."""
    return loop((x, v), steps, lambda _, state: (state[0] + 0.1 * state[1], state[1] - az.roll(state[0], 1)))


@az.program
def of_other_lengths(x: Vector, v: Vector, steps: az.i64) -> Any:
    long = az.concatenate([x, v])
    n = x.shape[0]

    def step(_: az.Expr, state: Any) -> Any:
        x, long = state
        return x + long[:n], long * 0.5 + az.sum(x)

    return loop((x, long), steps, step)


@az.program
def crossed(x: Vector, v: Vector, steps: az.i64) -> Any:
    return loop((x, v), steps, lambda _, state: (2.0 * state[1], 0.5 * state[0]))


@az.program
def both_of_one(x: Vector, v: Vector, steps: az.i64) -> Any:
    return loop((x, v), steps, lambda _, state: (state[0] + 1.0, state[0] * 2.0))


@az.program
def stored(x: Vector, v: Vector, steps: az.i64) -> Any:
    """Each state is kept, too."""
    return az.scan_loop(lambda x, t: (x * 0.5 + v, x), x, az.iota(5))


@az.program
def kept_outside(x: Vector, v: Vector, steps: az.i64) -> Any:
    """The array that the loop begins with is a result."""
    first = az.sin(x)
    return loop(first, steps, lambda _, x: x * 0.5 + v), first


@az.program
def nested(x: Vector, v: Vector, steps: az.i64) -> az.Expr:
    """A loop in a loop, which begins with the state."""
    return loop(x, steps, lambda _, x: loop(0.9 * x, steps, lambda _, y: y + v) - x)


@az.program
def in_branches(x: Vector, v: Vector, steps: az.i64) -> az.Expr:
    return loop(x, steps, lambda t, x: az.cond(t % 2 == 0, lambda: x + v, lambda: x * v))


@az.program
def reread(x: Vector, v: Vector, steps: az.i64) -> Any:
    """The state is read behind its next value: as one number, which needs that."""

    def step(_: az.Expr, state: Any) -> Any:
        x, total = state
        new = x * 0.5 + v
        return new, total + x[az.argmax(new)]

    return loop((x, 0.0), steps, step)


OTHERS = [neighbours, turned, normalised, half_across, of_other_lengths, crossed, both_of_one, stored, kept_outside]


@pytest.mark.parametrize("program", [*OTHERS, nested, in_branches, reread], ids=lambda program: program.name)
def test_states_that_others_read_are_what_they_were(program: Program) -> None:
    compiled = az.compile(program, threads=2)
    for n, steps in ((1, 3), (5, 0), (5, 1), (40, 4), (41, 7)):
        args = (grids if program is turned else vectors)(n)
        before = [np.copy(each) for each in args]
        found, wanted = (run(*args, steps) for run in (compiled, az.evaluate(program)))
        one, other = (x if isinstance(x, tuple) else (x,) for x in (found, wanted))
        for x, y in zip(one, other, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-14)
        for x, y in zip(args, before, strict=True):
            np.testing.assert_array_equal(x, y)  # arguments stay as they are


@pytest.mark.parametrize("program", [swing, fading, exchanged, rotation, normalised], ids=lambda program: program.name)
def test_gradients_through_such_loops(program: Program) -> None:
    """Against central differences along a direction."""

    def total(x: az.Expr, y: az.Expr, steps: az.Expr) -> az.Expr:
        results = program.function(x, y, steps)
        return sum([az.sum(x**2) for x in (results if isinstance(results, tuple) else (results,))])

    scalar = az.program(total)
    x, y = ROOM.get(program, (vectors, 0))[0](6)
    gradient = az.compile(az.grad(scalar, argnums=(0, 1)))(x, y, 5)
    rng = np.random.default_rng(1)
    dx, dy = rng.normal(size=x.shape), rng.normal(size=y.shape)
    run = az.evaluate(scalar)
    high, low = run(x + 1e-6 * dx, y + 1e-6 * dy, 5), run(x - 1e-6 * dx, y - 1e-6 * dy, 5)
    np.testing.assert_allclose(
        (gradient[0] * dx).sum() + (gradient[1] * dy).sum(), (high - low) / 2e-6, rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("checkpoint", ["sqrt", (3, 2)])
def test_gradients_with_checkpoints(checkpoint: Any) -> None:
    """They are those without."""

    def gradient(checkpoint: Any) -> Any:
        def step(_: az.Expr, state: Any) -> Any:
            x, v = state
            return x + 0.1 * az.sin(v), v - 0.1 * az.sin(x)

        @az.program
        def total(x: Vector, v: Vector, steps: az.i64) -> az.f64:
            x, v = az.fori_loop(0, steps, step, (x, v), checkpoint=checkpoint)
            return az.sum(x**2 * v)

        return az.compile(az.grad(total, argnums=(0, 1)))

    for n, steps in ((1, 0), (5, 1), (40, 6), (40, 7)):
        for found, wanted in zip(gradient(checkpoint)(*vectors(n), steps), gradient("all")(*vectors(n), steps)):
            np.testing.assert_allclose(found, wanted, rtol=1e-13)


@az.program
def half_zero(x: az.Array[az.f64, "n n"], y: az.Array[az.f64, "n n"], steps: az.i64) -> az.Expr:
    """An array that is 0 above its diagonal, in memory that the state takes then, which is not."""
    n = x.shape[0]

    def step(_: az.Expr, x: az.Expr) -> az.Expr:
        a = az.generate((n, n), lambda i, j: az.where(j <= i, az.exp(x[i, j]), 0.0))
        w = a @ y
        return az.generate((n, n), lambda i, j: a[i, j] + w[i, j] + w[j, i])

    return az.fori_loop(0, steps, step, x) @ y


@pytest.mark.parametrize("n", [2, 33, 70])
def test_where_an_array_is_zero_what_takes_its_memory_is_not(n: int) -> None:
    x, y = np.full((n, n), 0.1), np.eye(n) + 0.01 * np.arange(n)
    for steps in (0, 1):
        found, wanted = (run(half_zero)(x, y, steps) for run in (az.compile, az.evaluate))
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_what_is_read_at_its_own_place() -> None:
    @az.program
    def arrays(a: Grid, b: Grid, c: Grid, d: Grid) -> az.Expr:
        """Of the last array a row is summed, beside."""
        return az.generate(a.shape, lambda i, j: a[i, j] * b[i, j] + c[j % 2, j] + az.sum(d[i]))

    block = az.simplify(arrays)
    level, found = len(block.binders), list[list[int]]()
    for each in block.bindings:
        if each.op == "generate":
            found.append([level - 1 - index for index in at_own_places(each, 0)])
        level += len(each.types)
    assert sorted(found[-1]) == [0, 1]
