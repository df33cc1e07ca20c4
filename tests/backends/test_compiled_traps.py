"""Programs that a slightly wrong compiler would get wrong: one for each mistake that once went unnoticed.

Each is known by its results, by its bits on several threads or by the memory that it plans, never by what a pass
gives, so that it holds whatever passes there are.
"""

from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import adze as az
from adze.backends.llvm import stored

pytestmark = pytest.mark.unguarded

GENERATOR = np.random.default_rng(18)


def on_threads(program: Any, *arguments: Any) -> Any:
    """The result, which must be the same bits on one thread and on three."""
    one, three = (az.compile(program, threads=threads)(*arguments) for threads in (1, 3))
    for a, b in zip(np.atleast_1d(one), np.atleast_1d(three), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    return one


def test_memory_that_a_loop_reads_again_is_not_given_away() -> None:
    """What was stored before a loop is read in each iteration, after temporaries of the same size were made in it."""

    @az.program
    def rounds(x: az.Array[az.f64, "n"], steps: az.i64) -> az.Array[az.f64, "n"]:
        ordered = az.sort(x)

        def step(i: az.Expr, s: az.Expr) -> Any:
            other = az.sort(ordered * az.sin(s + ordered[0]))
            return other + az.cumsum(az.sort(s * other)) + ordered[i]

        return az.fori_loop(0, steps, step, x)

    x = GENERATOR.normal(size=37)
    expected, ordered = x, np.sort(x)
    for i in range(5):
        other = np.sort(ordered * np.sin(expected + ordered[0]))
        expected = other + np.cumsum(np.sort(expected * other)) + ordered[i]
    assert np.allclose(on_threads(rounds, x, 5), expected, rtol=1e-10)


@pytest.mark.rest
def test_what_a_kernel_reads_and_what_it_writes_are_apart(opencl: Any) -> None:
    """A temporary that is read for the last time, in another order than the next one of its size is written in."""

    @az.program
    def turned(x: az.Array[az.f64, "n"]) -> az.f64:
        ordered = az.sort(x)
        backwards = az.sort(az.generate(x.shape[0], lambda i: ordered[x.shape[0] - 1 - i] * (1 + i % 3)))
        again = az.sort(az.generate(x.shape[0], lambda i: backwards[x.shape[0] - 1 - i] * (1 + i % 5)))
        return az.sum(again * az.cumsum(again))

    x = GENERATOR.normal(size=5000)
    i = np.arange(len(x))
    again = np.sort(np.sort(np.sort(x)[::-1] * (1 + i % 3))[::-1] * (1 + i % 5))
    expected = np.sum(again * np.cumsum(again))
    assert np.isclose(az.compile(turned, backend="opencl", device=opencl)(x), expected, rtol=1e-10)


@pytest.mark.parametrize("n", [7, 40, 5000])
def test_an_element_that_is_read_between_two_loops_is_there(n: int) -> None:
    """Loops over the same range with an element of the first one's result between them are not one loop."""

    @az.program
    def weighted(x: az.Array[az.f64, "n"], c: az.Array[az.f64, "m"]) -> Any:
        powers = az.map(lambda v: az.cumprod(az.full(c.shape[0], v)), x)
        cube = powers[1, 2]
        return az.map(lambda row: az.sum(c * row * cube), powers)

    x, c = GENERATOR.normal(size=n), GENERATOR.normal(size=6)
    powers = np.cumprod(np.broadcast_to(x[:, None], (n, 6)), axis=1)
    assert np.allclose(az.compile(weighted)(x, c), powers @ c * powers[1, 2])


def test_updates_beside_their_iteration_take_no_copies() -> None:
    """A place that is the iteration less a constant is its own as much as the iteration itself is."""

    def planned(place: Any) -> int:
        @az.program
        def gradient(x: az.Array[az.f64, "n"], table: az.Array[az.f64, "m d"], c: az.i64) -> Any:
            def total(table: az.Expr) -> az.Expr:
                def factors(i: az.Expr) -> az.Expr:
                    return az.map(lambda t: x[i] + t, table[place(i, c)])

                return az.sum(az.generate(x.shape[0], lambda i: az.prod(factors(i))))

            return az.grad(total)(table)

        compiled = az.compile(gradient, threads=4)
        x, table = GENERATOR.normal(size=400), GENERATOR.normal(size=(400, 5))
        factors = x[:, None] + table
        expected = np.stack([np.prod(np.delete(factors, j, 1), axis=1) for j in range(5)], 1)
        assert np.allclose(compiled(x, table, 0), expected)
        return int(compiled.peak_bytes(np.empty(400_000), np.empty((100, 5)), 0))

    assert planned(lambda i, c: i - c) == planned(lambda i, c: i)


@pytest.mark.parametrize("n", [1000, 100_000])
def test_the_last_of_several_writes_to_a_place_wins(opencl: Any, n: int) -> None:
    @az.program
    def written(x: az.Array[az.f64, "m"], p: az.Array[az.i64, "n"], v: az.Array[az.f64, "n"]) -> Any:
        return az.scatter(x, p, v, unique=False)

    x, p, v = np.zeros(n // 3), GENERATOR.integers(0, n // 3, n), GENERATOR.normal(size=n)
    expected = x.copy()
    for place, value in zip(p, v, strict=True):
        expected[place] = value
    assert np.array_equal(az.compile(written)(x, p, v), expected)
    assert np.array_equal(az.compile(written, backend="opencl", device=opencl)(x, p, v), expected)


def _products(x: Any) -> Any:
    """Products of 2 by 2 matrices in order, which do not commute."""

    def times(a: Any, b: Any) -> Any:
        return (
            a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
            a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3],
        )  # fmt: skip

    return az.reduce(times, (1.0, 0.0, 0.0, 1.0), (az.cos(x), -az.sin(x), az.sin(x), az.cos(x)))


@az.program
def turn(x: az.Array[az.f64, "n"]) -> Any:
    return _products(x)


@az.program
def count(x: az.Array[az.f64, "n"], k: az.Array[az.i64, "n"]) -> Any:
    return az.sum(x), az.max(x), az.argmin(x), az.sum(k), az.prod(1 + 0 * x), az.any(k < 0)


@pytest.mark.parametrize("size", [1, 2, 3, 31, 33, 255, 257, 1023, 1025, 4097, 9999, 50_001, 262_147])
def test_reductions_of_all_lengths_count_each_element_once(size: int) -> None:
    """Rotations: their angles are added. Whole numbers: a sum is exact."""

    x = GENERATOR.normal(size=size)
    angle, got = x.sum(), on_threads(turn, x)
    assert np.allclose(got, [np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], atol=1e-9)

    k = np.arange(size)
    whole = GENERATOR.integers(-9, 9, size).astype(float)
    expected = whole.sum(), whole.max(), whole.argmin(), k.sum(), 1.0, False
    assert [float(each) for each in on_threads(count, whole, k)] == [float(each) for each in expected]


@pytest.mark.rest
@pytest.mark.parametrize("size", [9999, 50_001])
def test_reductions_by_groups_count_each_element_once(opencl: Any, size: int) -> None:
    k = np.arange(size)
    got = az.compile(count, backend="opencl", device=opencl)(k.astype(float), k)
    assert [float(each) for each in got] == [k.sum(), size - 1, 0, k.sum(), 1, 0]


@az.program
def products(a: az.Array[az.f64, "n n"], b: az.Array[az.f64, "n n"]) -> Any:
    lower, upper, strict = az.tril(a), az.triu(a), az.tril(b, -1)
    factors = lower @ strict, upper @ strict, strict @ upper, lower @ b, b @ upper, lower.T @ strict, strict @ lower.T
    return *factors, az.tril(a @ b), az.triu(b @ a, 1), az.tril(b @ b, 1), az.triu(a @ a, -1)


@pytest.mark.rest
@pytest.mark.parametrize("n", [32, 33, 37, 40, 41, 47, 48, 49, 63, 64, 65, 80, 97, 129])
def test_products_of_triangles_leave_out_zeros_alone(n: int) -> None:
    """Whole numbers, so that sums are exact: factors and results beside and across the diagonal."""
    a, b = (GENERATOR.integers(1, 9, (n, n)).astype(float) for _ in range(2))
    lower, upper, strict = np.tril(a), np.triu(a), np.tril(b, -1)
    expected = lower @ strict, upper @ strict, strict @ upper, lower @ b, b @ upper, lower.T @ strict, strict @ lower.T
    masked = np.tril(a @ b), np.triu(b @ a, 1), np.tril(b @ b, 1), np.triu(a @ a, -1)
    for got, wanted in zip(az.compile(products)(a, b), (*expected, *masked), strict=True):
        assert np.array_equal(got, wanted)


@az.program
def ordered(x: az.Array[az.f64, "n"]) -> Any:
    return az.argsort(x)


@pytest.mark.parametrize("size", [2, 3, 15, 16, 17, 31, 33, 200, 1023, 1025, 2049, 4100, 8191, 8193, 20_000])
def test_sorting_keeps_the_order_of_what_is_equal(size: int) -> None:
    for kinds in (1, 2, 5, size):
        x = GENERATOR.integers(0, kinds, size).astype(float)
        for keys in (x, np.sort(x), np.sort(x)[::-1].copy(), np.where(x == 1, np.nan, x)):
            assert np.array_equal(on_threads(ordered, keys), np.argsort(keys, kind="stable"))


def test_code_for_another_processor_is_not_taken_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path / "above" / "cache"))

    def state() -> str:
        compiled = az.compile(az.program(lambda x: x * 3).at(az.Array[az.f64, "n"]))
        compiled.warm()
        return str(compiled.specialisations[0].state)

    assert [state(), state()] == ["compiled", "loaded from disk"]
    for folder in (tmp_path / "above", tmp_path / "above" / "cache"):
        assert folder.stat().st_mode & 0o777 == 0o700
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(llvm, "get_host_cpu_name", lambda: "x86-64-v2")
        stored._surroundings.cache_clear()
        assert state() == "compiled"
    stored._surroundings.cache_clear()
    assert state() == "loaded from disk"


def test_the_last_row_is_combined_where_it_is_asked_for() -> None:
    """Rows at places that the run computes, as the elements of a reduction."""

    @az.program
    def largest(a: az.Array[az.f64, "m n"], k: az.Array[az.i64, "p"]) -> az.Array[az.f64, "n"]:
        rows, nothing = az.map(lambda j: a[j], k), az.full(a.shape[1], -np.inf)
        return az.reduce(lambda p, q: az.where(p[0] < q[0], q, p), nothing, rows)

    a, places = np.sort(GENERATOR.normal(size=(4, 5)), axis=0), np.array([2, 3, 0, 3])
    for chosen, row in ((places, 3), (places[2:3], 0)):
        assert np.array_equal(on_threads(largest, a, chosen), a[row])


def test_a_state_that_is_no_result_has_memory_of_its_own() -> None:
    """An argument's array is updated step by step, and only its sum is given back."""

    @az.program
    def total(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(az.fori_loop(0, az.size(x), lambda i, s: az.update(s, i, 2.0 * s[i] + s[0]), x))

    x = GENERATOR.normal(size=9)
    expected = x.copy()
    for i in range(9):
        expected[i] = 2.0 * expected[i] + expected[0]
    before = x.copy()
    assert np.isclose(on_threads(total, x), expected.sum(), rtol=1e-13) and np.array_equal(x, before)


def test_what_is_made_behind_an_array_that_is_written_in_place() -> None:
    """The array is made where the result shall be, and what comes later is not."""

    @az.program
    def chosen(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"], p: az.Array[az.i64, "m"]) -> Any:
        placed = az.sort(x)
        other = az.sort(az.sin(y))
        sums = az.cumsum(other * other)
        result = az.scatter(placed, p, sums[p] + other[p])
        later = az.sort(result * y)
        return result, az.sum(later * az.cumsum(later))

    (x, y), p = GENERATOR.normal(size=(2, 50)), GENERATOR.permutation(50)[:20]
    other, expected = np.sort(np.sin(y)), np.sort(x)
    expected[p] = np.cumsum(other * other)[p] + other[p]
    later = np.sort(expected * y)
    result, total = az.compile(chosen)(x, y, p)
    assert np.allclose(result, expected) and np.isclose(total, (later * np.cumsum(later)).sum())


def test_transposed_copies_that_are_not_side_by_side() -> None:
    """Of two arrays that are read across the lanes one goes element by element, the other in steps of two."""

    @az.program
    def turned(x: az.Array[az.f64, "m n"], y: az.Array[az.f64, "m n 2"]) -> az.Array[az.f64, "n m"]:
        return az.generate((x.shape[1], x.shape[0]), lambda i, j: x[j, i] * y[j, i, 1])

    x, y = GENERATOR.normal(size=(70, 61)), GENERATOR.normal(size=(70, 61, 2))
    assert np.array_equal(on_threads(turned, x, y), (x * y[:, :, 1]).T)


def test_permutations_one_after_the_other() -> None:
    """The operator reads its left operand at places that the right one tells: its result has memory of its own."""

    @az.program
    def composed(p: az.Array[az.i64, "n k m"]) -> az.Array[az.i64, "k m"]:
        def after(a: az.Expr, b: az.Expr) -> az.Expr:
            return az.generate(b.shape, lambda i, j: a[i, b[i, j]])

        return az.reduce(after, az.generate(p.shape[1:], lambda i, j: j), p)

    p = np.array([[GENERATOR.permutation(300) for _ in range(3)] for _ in range(20)])
    expected = np.tile(np.arange(300), (3, 1))
    for each in p:
        expected = np.take_along_axis(expected, each, axis=1)
    assert np.array_equal(on_threads(composed, p), expected)


def test_what_a_chunk_packs_is_as_long_as_the_chunk() -> None:
    @az.program
    def rows(x: az.Array[az.f64, "n k"], m: az.Array[az.f64, "k l"]) -> az.Array[az.f64, "n"]:
        return az.map(lambda row: az.sum(az.generate(m.shape, lambda i, j: az.tanh(row[i] * m[i, j]))), x)

    x, m = GENERATOR.normal(size=(1030, 70)), GENERATOR.normal(size=(70, 3))
    assert np.allclose(on_threads(rows, x, m), np.tanh(x[:, :, None] * m).sum((1, 2)))
    planned = az.compile(rows, threads=1).peak_bytes(np.empty((40_000, 10)), np.empty((10, 20)))
    assert planned < 40_000 * x.itemsize + 100_000


def test_a_sum_over_a_triangle_of_products() -> None:
    """One factor of the sum varies with the outer index, the other with the inner one, which the outer one bounds."""

    @az.program
    def products(a: az.Array[az.f64, "n k"], b: az.Array[az.f64, "m k"]) -> az.Array[az.f64, "n m"]:
        def below(r: az.Expr, c: az.Expr, i: az.Expr) -> az.Expr:
            return az.sum(az.generate(i, lambda j: a[r, i] * b[c, j]))

        return az.generate(
            (a.shape[0], b.shape[0]), lambda r, c: az.sum(az.generate(a.shape[1], lambda i: below(r, c, i)))
        )

    a, b = GENERATOR.normal(size=(5, 30)), GENERATOR.normal(size=(7, 30))
    assert np.allclose(on_threads(products, a, b), a @ np.tri(30, k=-1) @ b.T)


def test_gradients_of_what_goes_into_a_loop_and_of_the_loop() -> None:
    """The loop back adds to one and gives what the other is made of: it is run once for both."""

    @az.program
    def recurrent(m: az.Array[az.f64, "d e"], w: az.Array[az.f64, "d d"], x: az.Array[az.f64, "n e"]) -> az.f64:
        def row(r: az.Expr) -> az.Expr:
            return az.sum(az.fori_loop(0, 2, lambda i, h: az.tanh(w @ h), m @ r))

        return az.sum(az.map(row, x))

    m, w, x = GENERATOR.normal(size=(5, 4)), GENERATOR.normal(size=(5, 5)), GENERATOR.normal(size=(30, 4))
    first = x @ m.T
    second = np.tanh(first @ w.T)
    last = 1 - np.tanh(second @ w.T) ** 2
    before = (last @ w) * (1 - second**2)
    expected = (before @ w).T @ x, last.T @ second + before.T @ first
    for threads in (1, 3):
        for got, wanted in zip(az.compile(az.grad(recurrent, argnums=(0, 1)), threads=threads)(m, w, x), expected):
            assert np.allclose(got, wanted)
