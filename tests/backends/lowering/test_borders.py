"""Updates that are not in place copy only what is around a box that they write; those that may be are."""

from typing import Any

import numpy as np
import pytest
from programs import numbers
from test_compile import assert_same

import adze as az

pytestmark = pytest.mark.unguarded

Grid = az.Array[az.f64, "n m"]
Square = az.Array[az.f64, "n n"]
INNER = (slice(1, -1), slice(1, -1))


def check(program: Any, *arguments: Any) -> Any:
    """Compiled code gives what evaluate gives, the same bits on any number of threads."""
    expected = az.evaluate(program)(*arguments)
    single = az.compile(program, threads=1)(*arguments)
    assert_same(single, expected)
    assert_same(az.compile(program, threads=2)(*arguments), single, exact=True)
    return single


def average(u: Any) -> Any:
    return 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


@az.program
def relaxed(u: Grid, steps: az.i64) -> Grid:
    return az.fori_loop(0, steps, lambda _, u: az.update(u, INNER, average(u)), u)


def test_only_the_border_is_copied() -> None:
    nests = az.compile(relaxed).nests
    test = "    if 4096 <= n * m and 1 <= maximum(0, n + -2) and 1 <= maximum(0, m + -2)\n"
    border, rest = nests[nests.index(test) : nests.rindex("    slot")].split("    else\n")
    assert [line.count(" < ") for line in border.splitlines() if "nest" in line] == [1, 1, 1]  # the rows are one nest
    assert [line.count(" < ") for line in rest.splitlines() if "nest" in line] == [2, 2]  # all, where nothing is inside


@pytest.mark.parametrize(
    "shape", [(2, 2), (2, 9), (3, 3), (3, 70), (70, 3), (17, 33), (64, 64), (40, 1000), (2, 4000), (4000, 3)]
)
def test_a_grid(shape: tuple[int, int]) -> None:
    grid = numbers(*shape)
    grid[shape[0] // 2, -1] = np.nan
    for steps in (0, 1, 2, 5):
        found, expected = check(relaxed, grid, steps), grid.copy()
        for _ in range(steps):
            expected[1:-1, 1:-1] = average(expected)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


# Borders of states: copied in the first turns


@az.program
def waves(u: Grid, before: Grid, steps: az.i64) -> Any:
    """Two states that change places, whose borders differ."""

    def step(_: Any, state: Any) -> Any:
        u, before = state
        return az.update(u, INNER, 1.5 * average(u) - before[INNER]), u

    return az.fori_loop(0, steps, step, (u, before))


@az.program
def until_small(u: Grid, bound: az.f64) -> Grid:
    return az.while_loop(lambda u: az.max(abs(u)) > bound, lambda u: az.update(u, INNER, 0.5 * average(u)) * 0.5, u)


@az.program
def relaxed_until(u: Grid, steps: az.i64) -> Any:
    return az.while_loop(lambda s: s[0] < steps, lambda s: (s[0] + 1, az.update(s[1], INNER, average(s[1]))), (0, u))


@az.program
def heated(u: Grid, steps: az.i64) -> Grid:
    """What is written around the box changes the state, too."""
    return az.fori_loop(0, steps, lambda t, u: az.update(az.update(u, INNER, average(u)), 0, u[0] + t), u)


@az.program
def growing(u: Grid, steps: az.i64) -> Grid:
    """The box is another one in each turn."""

    def step(t: Any, u: Any) -> Any:
        here = (slice(1, t + 2), slice(1, -1))
        return az.update(u, here, average(u)[: t + 1])

    return az.fori_loop(0, steps, step, u)


@az.program
def at_last(u: Grid, steps: az.i64) -> Grid:
    """The update is not of the state alone."""
    return az.fori_loop(0, steps, lambda t, u: az.update(az.where(t > 2, u * 2.0, u), INNER, average(u)), u)


# What reads the old state first may then write where it is


@az.program
def in_place_of_the_old(u: Grid, steps: az.i64) -> Any:
    def step(_: Any, state: Any) -> Any:
        u, total = state
        new = az.update(u, INNER, 0.5 * u[INNER])
        return new, total + az.sum(az.update(u, 0, az.sum(new) + u[0]))

    return az.fori_loop(0, steps, step, (u, 0.0))


@az.program
def another_in_place_of_the_old(u: Grid, steps: az.i64) -> Any:
    def step(_: Any, state: Any) -> Any:
        u, before = state
        new = az.update(u, INNER, 0.5 * u[INNER] + 0.1 * before[INNER])
        return new, az.update(u, 0, az.sum(new) + u[0])

    return az.fori_loop(0, steps, step, (u, u * 2.0))


@az.program
def outputs_in_place_of_the_old(u: Grid, steps: az.i64) -> Any:
    def step(u: Any, t: Any) -> Any:
        new = az.update(u, INNER, 0.5 * u[INNER])
        return new, az.update(u, 0, az.sum(new) + t)

    return az.scan_loop(step, u, az.iota(steps))


@pytest.mark.parametrize("shape", [(3, 4), (70, 66)])
@pytest.mark.parametrize(
    "program", [in_place_of_the_old, another_in_place_of_the_old, outputs_in_place_of_the_old], ids=lambda p: p.name
)
def test_borders_where_the_old_state_is_overwritten(program: Any, shape: tuple[int, int]) -> None:
    for steps in range(6):
        check(program, numbers(*shape), steps)


@pytest.mark.parametrize("shape", [(3, 4), (9, 500), (70, 66), (40, 1000)])
def test_borders_of_states(shape: tuple[int, int]) -> None:
    grid, other = numbers(*shape), numbers(*shape, seed=1)
    grid[-1, -1] = np.nan
    for steps in range(6):
        check(waves, grid, other, steps)
        check(relaxed_until, grid, steps)
        for program in (heated, growing, at_last):
            check(program, grid, min(steps, shape[0] - 2))
    check(until_small, other, 1e-3)


@pytest.mark.parametrize(("program", "turns"), [(relaxed, 1), (relaxed_until, 1), (waves, 2)])
def test_borders_of_states_are_copied_in_the_first_turns(program: Any, turns: int) -> None:
    code = az.compile(program).nests
    before = code[: code.index("if 4096 <= n * m")].splitlines()
    assert before[-2].strip().startswith("if") and before[-2].endswith(f" < {turns}")


@pytest.mark.parametrize("program", [heated, growing, at_last])
def test_borders_that_change_are_copied_in_each_turn(program: Any) -> None:
    assert " < 1\n" not in az.compile(program).nests


# Loops in segments, as with checkpoints


@az.program
def relaxed_in_segments(u: Grid, steps: az.i64) -> Grid:
    return az.fori_loop(0, steps, lambda _, u: az.update(u, INNER, average(u)), u, checkpoint="sqrt")


@az.program
def counted_in_segments(u: Grid, steps: az.i64) -> Any:
    """States that change places, scalars, and a body that asks which step it is; segments of three steps."""

    def step(t: Any, state: Any) -> Any:
        u, before, total = state
        return az.update(u, INNER, average(u) + t * before[INNER]), u, total + t * u[0, 0]

    return az.fori_loop(0, steps, step, (u, 2.0 * u, 0.0), checkpoint=(3,))


@az.program
def filled_in_segments(u: Grid, steps: az.i64) -> Grid:
    """A state that is updated where it is."""
    return az.fori_loop(0, steps, lambda t, u: az.update(u, t, u[t] * 2.0 + t), u, checkpoint="sqrt")


@az.program
def from_the_state_around(u: Grid, steps: az.i64) -> Grid:
    """No segments: the loop inside reads what the state was before it."""

    def turn(_: Any, a: Any) -> Any:
        return az.fori_loop(0, 4, lambda _, u: az.update(u, INNER, average(u) + 0.1 * a[INNER]), a)

    return az.fori_loop(0, steps, turn, u)


@az.program
def with_scalars_around(u: Grid, steps: az.i64) -> Any:
    """What is read of the states before the loop inside is what they were then."""

    def turn(i: Any, state: Any) -> Any:
        u, total = state
        corner, sum = u[0, 0], total

        def inside(j: Any, state: Any) -> Any:
            u, total = state
            return az.tanh(u[::-1] + corner + j), total + sum + u[-1, -1]

        return az.fori_loop(0, 2 + i, inside, (u, total))

    return az.fori_loop(0, steps, turn, (u, 1.0))


@pytest.mark.parametrize("shape", [(9, 5), (70, 66)])
def test_segments(shape: tuple[int, int]) -> None:
    grid = numbers(*shape)
    for steps in (0, 1, 2, 3, 4, 7, 9):
        np.testing.assert_array_equal(check(relaxed_in_segments, grid, steps), az.compile(relaxed)(grid, steps))
        check(counted_in_segments, grid, steps)
        check(filled_in_segments, grid, steps)
        check(from_the_state_around, grid, steps)
        check(with_scalars_around, grid, steps)


def test_segments_are_one_loop_over_states() -> None:
    assert az.compile(relaxed_in_segments).nests.count("temporary") == az.compile(relaxed).nests.count("temporary") == 1


def test_gradients() -> None:
    @az.program
    def squares(u: Grid) -> az.f64:
        return az.sum(relaxed(u, 3) ** 2)

    check(az.grad(squares), numbers(66, 70))
    grid, moved = numbers(5, 7), numbers(5, 7, seed=1)
    slope = (az.evaluate(squares)(grid + 1e-6 * moved) - az.evaluate(squares)(grid - 1e-6 * moved)) / 2e-6
    np.testing.assert_allclose(np.sum(az.compile(az.grad(squares))(grid) * moved), slope, rtol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 33, 4099])
@pytest.mark.parametrize("dtype", [az.f32, az.i64, az.i32, az.bool_])
def test_ranges_of_vectors(n: int, dtype: Any) -> None:
    @az.program
    def program(x: az.Array[dtype, "n"], k: az.i64) -> Any:  # type: ignore[valid-type]
        before, behind = az.update(x, slice(None, k), x[-1]), az.update(x, slice(k, None), x[0])
        whole = az.update(x, slice(None), x[::-1])
        return before, behind, whole, az.update(before, slice(k, k + 2), behind[0]), x

    x = (numbers(n) * 10).astype(dtype.dtype)
    for k in (0, 1, n // 2, n, n + 3, -1):
        if n:
            check(program, x, k)


@pytest.mark.rest
def test_boxes_in_larger_arrays() -> None:
    """Rows of matrices, axes in another order, and several boxes into one another."""

    @az.program
    def program(x: az.Array[az.f64, "a b c"], k: az.i64) -> Any:
        rows = az.update(x, slice(k, None), x[0] + 1.0)
        boxes = az.update(rows, (slice(1, None), slice(None, -1), slice(k, k + 3)), -x[1:, :-1, k : k + 3])
        crossed = az.scatter(x, (az.iota(2)[:, None], az.iota(2)[None, :]), x[:2, :2] * 2.0)
        turned = az.generate((3, 4), lambda i, j: x[j, i, 0])
        return rows, boxes, crossed, az.update(turned, (slice(0, 2), slice(1, 4)), turned[1:, 1:].reshape(2, 3))

    for shape in [(5, 4, 3), (4, 5, 70), (6, 70, 11), (70, 6, 11)]:
        for k in (0, 1, 2, 5):
            check(program, numbers(*shape), k)


@az.program
def eliminated(a: Square) -> Square:
    def column(k: Any, a: Any) -> Any:
        factors = a[k + 1 :, k] / a[k, k]
        a = az.update(a, (slice(k + 1, None), k), factors)
        return az.update(
            a, (slice(k + 1, None), slice(k + 1, None)), a[k + 1 :, k + 1 :] - az.outer(factors, a[k, k + 1 :])
        )

    return az.fori_loop(0, a.shape[0] - 1, column, a)


@az.program
def eliminated_by_rows(a: Square) -> Square:
    """The same, with rows as values, and all columns."""

    def column(k: Any, a: Any) -> Any:
        factors = a[k + 1 :, k] / a[k, k]
        rest = a[k + 1 :] - az.outer(factors, az.where(az.iota(a.shape[1]) > k, a[k], 0.0))
        return az.update(az.update(a, slice(k + 1, None), rest), (slice(k + 1, None), k), factors)

    return az.fori_loop(0, a.shape[0] - 1, column, a)


@az.program
def coloured(u: az.Array[az.f64, "n"], steps: az.i64) -> az.Array[az.f64, "n"]:
    """Red and black places in turns: each colour reads the other."""

    def step(_: Any, u: Any) -> Any:
        u = az.update(u, slice(1, -1, 2), 0.5 * (u[:-2:2] + u[2::2]))
        return az.update(u, slice(2, -1, 2), 0.5 * (u[1:-2:2] + u[3::2]))

    return az.fori_loop(0, steps, step, u)


@az.program
def substituted(a: Square, b: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
    """From the last unknown to the first: each is taken from all before it."""

    def unknown(j: Any, x: Any) -> Any:
        k = x.size - 1 - j
        x = az.update(x, k, x[k] / a[k, k])
        return az.update(x, slice(0, k), x[:k] - a[:k, k] * x[k])

    return az.fori_loop(0, b.size, unknown, b)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 33, 70])
def test_states_in_place(n: int) -> None:
    matrix = numbers(n, n) + n * np.eye(n)
    for program in (eliminated, eliminated_by_rows):
        found = check(program, matrix)
        np.testing.assert_allclose((np.tril(found, -1) + np.eye(n)) @ np.triu(found), matrix, rtol=1e-9, atol=1e-9)
    check(coloured, numbers(2 * n + 1), 3)
    np.testing.assert_allclose(
        check(substituted, np.triu(matrix), np.ones(n)), np.linalg.solve(np.triu(matrix), np.ones(n))
    )


@pytest.mark.parametrize("program", [eliminated, eliminated_by_rows, coloured, substituted])
def test_nothing_is_copied_in_a_loop(program: Any) -> None:
    code = az.compile(program).nests
    assert "states" not in code and "updated" not in code


def test_an_output_that_is_the_state_is_written_before_the_update() -> None:
    @az.program
    def program(x: az.Array[az.f64, "n"], places: az.Array[az.i64, "m"]) -> Any:
        def step(state: Any, k: Any) -> Any:
            x, y = state
            new = az.update(x, k, x[k] + y[0])
            return (new, y + 1.0), (x, x[0], new, y, y)

        return az.scan_loop(step, (x, x), places)

    for places in ([], [2], [0, 4, 4, 1]):
        check(program, numbers(5), np.array(places, np.int64))

    @az.program
    def alone(x: az.Array[az.f64, "n"], places: az.Array[az.i64, "m"]) -> Any:
        return az.scan_loop(lambda x, k: (az.update(x, k, x[k] + 1.0), x), x, places)

    check(alone, numbers(5), np.array([0, 4, 4, 1]))
    code = az.compile(alone).nests
    assert "states" not in code and "updated" not in code


@pytest.mark.rest
@pytest.mark.parametrize("program", [eliminated, eliminated_by_rows])
def test_gradients_of_states_in_place(program: Any) -> None:
    @az.program
    def squares(a: Square) -> az.f64:
        return az.sum(program(a) ** 2)

    matrix, moved = numbers(6, 6) + 6 * np.eye(6), numbers(6, 6, seed=1)
    slope = (az.evaluate(squares)(matrix + 1e-6 * moved) - az.evaluate(squares)(matrix - 1e-6 * moved)) / 2e-6
    np.testing.assert_allclose(np.sum(check(az.grad(squares), matrix) * moved), slope, rtol=1e-6)
