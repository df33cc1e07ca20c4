"""Requirements beside lanes: points run side by side whatever they require, and a failure is that of evaluation."""

from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

RNG = np.random.default_rng(0)
LINKS = RNG.permutation(1000)


def failure(run: Any, *arguments: Any) -> str:
    with pytest.raises((IndexError, ZeroDivisionError)) as raised:
        run(*arguments)
    return str(raised.value)


def agrees(program: Any, good: tuple[Any, ...], bad: tuple[Any, ...] = (), lanes: bool = True) -> None:
    """The values of evaluation, with any number of threads, and its failure."""
    for threads in (1, 2):
        compiled = az.compile(program, threads=threads)
        np.testing.assert_array_equal(compiled(*good), az.evaluate(program)(*good))
        assert ("combining failed" in compiled.loops) == lanes
        if bad:
            assert failure(compiled, *bad) == failure(az.evaluate(program), *bad)


@az.program
def followed(links: az.Array[az.i64, "k"], starts: az.Array[az.i64, "n"]) -> az.Array[az.i64, "n"]:
    return az.map(lambda at: az.fori_loop(0, 5, lambda _, at: links[at], at), starts)


@pytest.mark.parametrize("n", [0, 1, 2, 31, 33, 511, 513, 700])
def test_what_steps_require_keeps_no_lanes_off(n: int) -> None:
    starts, broken = np.arange(n), LINKS.copy()
    agrees(followed, (LINKS, starts))
    broken[LINKS[LINKS[n - 1]]] = -3
    assert n == 0 or failure(az.compile(followed), broken, starts) == failure(az.evaluate(followed), broken, starts)


@pytest.mark.parametrize("scalar", [az.f64, az.f32, az.i64])
def test_a_bisection_by_hand_has_lanes(scalar: Any) -> None:
    @az.program
    def place(table: az.Array[scalar, "k"], values: az.Array[scalar, "n"]) -> az.Array[az.i64, "n"]:
        def one(value: Any) -> Any:
            def halved(_: Any, ends: Any) -> Any:
                low, high = ends
                middle = (low + high) // 2
                after = table[middle] <= value
                return az.where(after, middle, low), az.where(after, high, middle)

            return az.fori_loop(0, 8, halved, (0, table.shape[0] - 1))[0]

        return az.map(one, values)

    kind = np.int64 if scalar == az.i64 else np.float32 if scalar == az.f32 else np.float64
    table = np.sort(100 * RNG.random(200)).astype(kind)
    values = (100 * RNG.random(777)).astype(kind)
    if kind != np.int64:
        values[[3, 99]], table[-1] = (np.nan, np.inf), np.nan
    agrees(place, (table, values), (table[:0], values))


def test_loops_that_end_differently_have_no_lanes() -> None:
    """The extent of an inner loop is a state of an outer one, or a value of the point."""

    @az.program
    def sums(x: az.Array[az.f64, "n"], counts: az.Array[az.i64, "m"]) -> az.Array[az.f64, "m"]:
        return az.map(lambda count: az.fori_loop(0, count, lambda i, s: s + x[i], 0.0), counts)

    @az.program
    def growing(x: az.Array[az.f64, "n"], counts: az.Array[az.i64, "m"]) -> az.Array[az.f64, "m"]:
        def step(_: Any, state: Any) -> Any:
            total, count = state
            return total + az.fori_loop(0, count, lambda i, s: s + x[i], 0.0), count + 1

        return az.map(lambda count: az.fori_loop(0, 3, step, (0.0, count))[0], counts)

    x, counts = RNG.random(50), RNG.integers(0, 40, 100)
    agrees(sums, (x, counts), (x[:20], counts), lanes=False)
    agrees(growing, (x, counts), (x[:20], counts), lanes=False)


def test_branches_divisions_and_rows_in_steps() -> None:
    @az.program
    def quotients(a: az.Array[az.i64, "n"], b: az.Array[az.i64, "n"]) -> az.Array[az.i64, "n"]:
        return az.generate(a.shape[0], lambda i: az.fori_loop(0, 4, lambda j, s: s + a[i] // (b[i] - j), 0))

    @az.program
    def guarded(x: az.Array[az.i64, "n"], p: az.Array[az.i64, "n"]) -> az.Array[az.i64, "n"]:
        def step(j: Any, s: Any) -> Any:
            return az.cond(s % 3 != j % 3, lambda: x[p[s % az.size(p)]], lambda: s + 1)

        return az.map(lambda s: az.fori_loop(0, 4, step, s), p)

    @az.program
    def walks(x: az.Array[az.i64, "h w"], p: az.Array[az.i64, "h w"]) -> az.Array[az.i64, "h w"]:
        return az.generate(
            x.shape, lambda i, j: az.fori_loop(0, 3, lambda _, s: (s[0] + x[i, s[1]], p[i, s[1]]), (0, j))[0]
        )

    a, b = RNG.integers(0, 50, 100), RNG.integers(5, 50, 100)
    zero = b.copy()
    zero[[50, 70]] = 3, 0
    agrees(quotients, (a, b), (a, zero))
    for program, places, wrong in ((guarded, (100,), 100), (walks, (7, 45), 45)):
        x = RNG.integers(0, 1000, places)
        p = RNG.integers(0, places[-1], places)
        broken = p.copy()
        broken.flat[broken.size // 2 :: 7] = wrong
        agrees(program, (x, p), (x, broken))


@pytest.mark.parametrize("steps", [1, 3])
def test_what_is_overwritten_is_required_before(steps: int) -> None:
    """A state that is updated where it stands has the indices that its next values are read by."""

    @az.program
    def chased(x: az.Array[az.i64, "n"], p: az.Array[az.i64, "n"], times: az.i64) -> az.Array[az.i64, "n"]:
        def step(_: Any, p: Any) -> Any:
            def one(at: Any) -> Any:
                return x[at] if steps == 1 else az.fori_loop(0, steps, lambda _, at: x[at], at)

            return az.update(p, slice(0, 10), az.map(one, p[:10]))

        return az.fori_loop(0, times, step, p)

    x, p = RNG.permutation(100), np.arange(100)
    agrees(chased, (x, p, 3), (np.full(100, -7), p, 3))
    broken = p.copy()
    broken[4] = 100
    agrees(chased, (x, p, 0), (x, broken, 1))


@pytest.mark.parametrize("scalar", [az.f64, az.f32, az.i64])
def test_a_sum_over_a_row_checks_what_it_reads(scalar: Any) -> None:
    """Rows of any length, in any order and none; the failure is that of the first row that has one."""

    @az.program
    def product(
        values: az.Array[scalar, "e"],
        columns: az.Array[az.i64, "e"],
        rows: az.Array[az.i64, "r"],
        x: az.Array[scalar, "n"],
    ) -> az.Array[scalar, "r-1"]:
        def row(i: az.Expr) -> az.Expr:
            here = slice(rows[i], rows[i + 1])
            return az.sum(values[here] * x[columns[here]])

        return az.generate(rows.shape[0] - 1, row)

    kind = np.int64 if scalar == az.i64 else np.float32 if scalar == az.f32 else np.float64
    lengths = RNG.permutation([*range(12), *[0] * 5, 31, 33, 64, 700])
    rows = np.concatenate([[0], np.cumsum(lengths)])
    values, x = RNG.integers(-9, 9, rows[-1]).astype(kind), RNG.integers(-9, 9, 50).astype(kind)
    columns = RNG.integers(0, 50, rows[-1])
    broken = columns.copy()
    broken[[700, 300, 301, 40]] = 50, -1, 51, 60
    agrees(product, (values, columns, rows, x), (values, broken, rows, x))
    agrees(product, (values, columns, rows[::-1].copy(), x), (values, columns, rows, x[:0]))
    assert az.compile(product).loops.count("parallel") == 1
    for place in range(0, len(columns), 97):
        broken = columns.copy()
        broken[place] = -7
        assert failure(az.compile(product), values, broken, rows, x) == failure(
            az.evaluate(product), values, broken, rows, x
        )


def test_what_two_indices_of_a_row_require_is_found_in_order() -> None:
    """The first array of indices is looked through before the second, row by row."""

    @az.program
    def differences(
        first: az.Array[az.i64, "e"],
        second: az.Array[az.i64, "e"],
        rows: az.Array[az.i64, "r"],
        x: az.Array[az.f64, "n"],
    ) -> az.Array[az.f64, "r-1"]:
        def row(i: az.Expr) -> az.Expr:
            here = slice(rows[i], rows[i + 1])
            return az.sum(x[first[here]] * x[second[here]])

        return az.generate(rows.shape[0] - 1, row)

    rows = np.arange(0, 101, 10)
    first, second, x = RNG.integers(0, 40, 100), RNG.integers(0, 40, 100), RNG.integers(0, 9, 40) * 1.0
    wrong, other = first.copy(), second.copy()
    wrong[55], other[54] = 40, -1
    for bad in ((wrong, second), (first, other), (wrong, other)):
        agrees(differences, (first, second, rows, x), (*bad, rows, x))
