"""Compiled reductions, scans and histograms: any operator over scalars, tuples and arrays, at any size and depth."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_compile import assert_same

import adze as az

# On both sides of a strip, of what one thread does in order, of a block, and of a group of blocks.
SIZES = [0, 1, 2, 7, 31, 4095, 4097, 10_001, 33_343, 66_689]
HUGE = 1_100_003

SCALARS = [np.float64, np.float32, np.int64, np.int32]
DTYPES = {np.float64: az.f64, np.float32: az.f32, np.int64: az.i64, np.int32: az.i32, np.bool_: az.bool_}


def compiled(program: Any, *arguments: Any) -> Any:
    """What the compiled program gives: the same bits for any number of threads."""
    single = az.compile(program, threads=1)(*arguments)
    for threads in (2, 7):
        assert_same(az.compile(program, threads=threads)(*arguments), single, exact=True)
    return single


def like_evaluate(program: Any, *arguments: Any) -> Any:
    """The same, which is what the reference interpreter gives."""
    result = compiled(program, *arguments)
    assert_same(result, az.evaluate(program)(*arguments))
    return result


def integers(*shape: int, seed: int = 0) -> Any:
    """Odd and even integers of all sizes: their arithmetic wraps, and so is exactly associative."""
    return np.random.default_rng(seed).integers(-(2**62), 2**62, size=shape)


def running(step: Callable[..., Any], start: Any, *columns: Any) -> list[Any]:
    """The running results of a step, in Python."""
    found, state = [], start
    with np.errstate(over="ignore"):
        for element in zip(*columns, strict=True):
            state = step(state, *element)
            found.append(state)
    return found


# Scans of scalars


@pytest.mark.unguarded
@pytest.mark.parametrize("dtype", SCALARS)
def test_cumulative(dtype: Any) -> None:
    def all_four(x):  # type: ignore[no-untyped-def]
        return az.cumsum(x), az.cumprod(x), az.cummax(x), az.cummin(x)

    program = az.program(all_four)
    for n in SIZES:
        x = (np.arange(n) * 7 % 5 - 2).astype(dtype)
        signs = np.where(np.arange(n) % 3 == 0, -1, 1).astype(dtype)
        total, _, largest, smallest = compiled(program, x)
        np.testing.assert_array_equal(total, np.cumsum(x), strict=True)
        np.testing.assert_array_equal(largest, np.maximum.accumulate(x), strict=True)
        np.testing.assert_array_equal(smallest, np.minimum.accumulate(x), strict=True)
        np.testing.assert_array_equal(compiled(program, signs)[1], np.cumprod(signs), strict=True)


@pytest.mark.unguarded
def test_scan_of_truth_values() -> None:
    @az.program
    def seen(x: az.Array[az.bool_, "n"]):  # type: ignore[no-untyped-def]
        parity = az.scan(lambda a, b: a != b, False, x)
        return az.scan(lambda a, b: a | b, False, x), parity, az.scan(lambda a, b: a & b, True, ~x, reverse=True)

    for n in SIZES:
        x = np.arange(n) % 11 == 5
        some, parity, none_after = compiled(seen, x)
        np.testing.assert_array_equal(some, np.logical_or.accumulate(x))
        np.testing.assert_array_equal(parity, np.cumsum(x) % 2 == 1)
        np.testing.assert_array_equal(none_after, np.logical_and.accumulate(~x[::-1])[::-1])


@pytest.mark.unguarded
def test_scan_of_special_values() -> None:
    @az.program
    def both(x: az.Array[az.f64, "n"]):  # type: ignore[no-untyped-def]
        return az.cumsum(x), az.cummax(x)

    x = np.ones(70_001)
    x[[40_000, 50_000, 60_000]] = [np.inf, -np.inf, np.nan]
    total, largest = compiled(both, x)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(total, np.cumsum(x))
        np.testing.assert_array_equal(largest, np.maximum.accumulate(x))


@pytest.mark.unguarded
def test_long_scan() -> None:
    """Several groups of blocks, with a remainder."""

    @az.program
    def total(x: az.Array[az.i64, "n"]):  # type: ignore[no-untyped-def]
        return az.cumsum(x), az.scan(lambda a, b: a + b, 0, x, exclusive=True, reverse=True)

    x = integers(HUGE)
    forwards, backwards = compiled(total, x)
    np.testing.assert_array_equal(forwards, np.cumsum(x))
    np.testing.assert_array_equal(backwards, np.append(np.cumsum(x[::-1])[-2::-1], 0))


Affine = az.Array[az.i64, "n"]


def affine(f: Any, g: Any) -> Any:
    """First f, then g: neither commutative nor of one component."""
    return f[0] * g[0], f[1] * g[0] + g[1]


def composed(state: Any, a: Any, b: Any) -> Any:
    return state[0] * a, state[1] * a + b


@az.program
def recurrence(a: Affine, b: Affine):  # type: ignore[no-untyped-def]
    return az.scan(affine, (1, 0), (a, b)), az.reduce(affine, (1, 0), (a, b))


@pytest.mark.unguarded
@pytest.mark.parametrize("n", [*SIZES, HUGE])
def test_pairs_in_order(n: int) -> None:
    a, b = integers(n), integers(n, seed=1)
    (slopes, offsets), (slope, offset) = compiled(recurrence, a, b)
    expected = running(composed, (np.int64(1), np.int64(0)), a, b)
    np.testing.assert_array_equal(slopes, np.array([each[0] for each in expected], np.int64))
    np.testing.assert_array_equal(offsets, np.array([each[1] for each in expected], np.int64))
    assert (slope, offset) == (expected[-1] if n else (1, 0))


@pytest.mark.unguarded
def test_components_of_different_types() -> None:
    """The first place of the largest number, whose operator is a choice."""

    def larger(a: Any, b: Any) -> Any:
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return az.where(first, a[0], b[0]), az.where(first, a[1], b[1])

    @az.program
    def place(x: az.Array[az.f32, "n"]):  # type: ignore[no-untyped-def]
        pairs = (x, az.iota(az.size(x)).astype(az.i32))
        neutral = (-np.inf, 2**31 - 1)
        return az.reduce(larger, neutral, pairs), az.scan(larger, neutral, pairs)

    for n in (1, 5, 4097, 100_003):
        x = (np.arange(n) * 37 % 101).astype(np.float32)
        (value, where), (values, wheres) = compiled(place, x)
        assert (value, where) == (x.max(), x.argmax())
        np.testing.assert_array_equal(values, np.maximum.accumulate(x))
        np.testing.assert_array_equal(x[wheres], values)
        assert wheres.dtype == np.int32 and (np.diff(wheres) >= 0).all()


# Arrays as elements


def products(matrices: Any) -> Any:
    total = np.eye(matrices.shape[-1], dtype=matrices.dtype)
    return np.array(running(lambda t, m: t @ m, total, matrices), matrices.dtype).reshape(matrices.shape)


def chain(m: Any) -> Any:
    """All that can be done with the products of matrices of integers."""
    unit = az.generate((m.shape[1], m.shape[1]), lambda i, j: az.where(i == j, 1, 0))
    return az.reduce(lambda a, b: a @ b, unit, m), az.scan(lambda a, b: a @ b, unit, m)


@az.program
def products_of(m: az.Array[az.i64, "n d d"]):  # type: ignore[no-untyped-def]
    return chain(m)


@pytest.mark.unguarded
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("fixed", [False, True])
def test_matrix_products(d: int, fixed: bool) -> None:
    @az.program
    def products_of_fixed_size(m: az.Array[az.i64, f"n {d} {d}"]):  # type: ignore[no-untyped-def]
        return chain(m)

    program = products_of_fixed_size if fixed else products_of
    for n in (0, 1, 2, 33, 4097, 20_011) if d < 5 else (0, 1, 3, 2_003):
        m = integers(n, d, d)
        total, partial = compiled(program, m)
        expected = products(m)
        np.testing.assert_array_equal(partial, expected)
        np.testing.assert_array_equal(total, expected[-1] if n else np.eye(d, dtype=np.int64))


@pytest.mark.rest
def test_large_matrices_one_after_the_other() -> None:
    m = integers(5, 70, 70)
    total, partial = compiled(products_of, m)
    np.testing.assert_array_equal(partial, products(m))
    np.testing.assert_array_equal(total, products(m)[-1])


def swap(a: Any, b: Any) -> Any:
    """The sum of vectors, of which each carries a cyclic shift for those behind it."""
    turn = (a[0] + b[0]) % 3
    return turn, az.generate(a[1].shape, lambda j: a[1][j] + b[1][(j + a[0]) % 3])


@az.program
def sums(x: az.Array[az.i64, "n 3"], k: az.Array[az.i64, "n"]):  # type: ignore[no-untyped-def]
    zero = np.zeros(3, np.int64)
    turned = (k % 3, x)
    return (
        az.reduce(lambda a, b: a + b, zero, x),
        az.scan(lambda a, b: a + b, zero, x),
        az.reduce(swap, (0, zero), turned),
        az.scan(swap, (0, zero), turned),
        az.histogram(swap, (0, zero), 5, k % 7, turned),
        az.reduce(lambda a, b: az.reverse(az.reverse(a) + az.reverse(b)), zero, x),
    )


@pytest.mark.unguarded
@pytest.mark.parametrize("n", [4097, 30_011, 0, 1, 2])
def test_operators_that_read_their_own_place_and_others(n: int) -> None:
    """Sums are made in place; what reads other places of its left operand, or an earlier result, is not."""

    def step(state: Any, s: Any, v: Any) -> Any:
        return ((state[0] + s) % 3, state[1] + v[(np.arange(3) + state[0]) % 3])

    x, k = integers(n, 3), np.abs(integers(n)) % 1000
    zero = np.zeros(3, np.int64)
    total, partial, (turn, turned), (turns, all_turned), (bin_turns, bins), mirrored = compiled(sums, x, k)
    np.testing.assert_array_equal(total, x.sum(axis=0))
    np.testing.assert_array_equal(mirrored, x.sum(axis=0))
    np.testing.assert_array_equal(partial, np.cumsum(x, axis=0))
    expected = running(step, (0, zero), k % 3, x)
    np.testing.assert_array_equal(turns, [each[0] for each in expected])
    np.testing.assert_array_equal(all_turned, np.array([each[1] for each in expected], np.int64).reshape(n, 3))
    assert turn == (expected[-1][0] if n else 0)
    np.testing.assert_array_equal(turned, expected[-1][1] if n else zero)
    for b in range(5):
        inside = k % 7 == b
        last = [(0, zero), *running(step, (0, zero), k[inside] % 3, x[inside])][-1]
        assert bin_turns[b] == last[0]
        np.testing.assert_array_equal(bins[b], last[1])


# Histograms


@pytest.mark.unguarded
@pytest.mark.parametrize("dtype", SCALARS)
def test_sums_by_bin(dtype: Any) -> None:
    def by_bin(k, x, z):  # type: ignore[no-untyped-def]
        m = az.size(z)
        return (
            az.histogram(lambda a, b: a + b, 0, m, k, x),
            az.histogram(az.maximum, az.min(x) - 1, m, k, x)
            if np.dtype(dtype).kind == "i"
            else az.bincount(k, length=m),
        )

    program = az.program(by_bin)
    for n in (0, 1, 5, 4097, 100_003):
        for m in (0, 1, 3, 256, 30_000):
            k = (np.arange(n) * 7919) % (m + 5) - 2
            x = (np.arange(n) % 7 - 3).astype(dtype)
            if n == 0 and np.dtype(dtype).kind == "i":
                continue
            sums, others = compiled(program, k, x, np.zeros(m))
            inside = (k >= 0) & (k < m)
            expected = np.zeros(m, dtype)
            np.add.at(expected, k[inside], x[inside])
            np.testing.assert_array_equal(sums, expected, strict=True)
            if np.dtype(dtype).kind == "i":
                expected = np.full(m, x.min() - 1, dtype)
                np.maximum.at(expected, k[inside], x[inside])
                np.testing.assert_array_equal(others, expected, strict=True)
            else:
                np.testing.assert_array_equal(others, np.bincount(k[inside], minlength=m), strict=True)


@az.program
def pairs_by_bin(k: az.Array[az.i64, "n"], a: Affine, b: Affine):  # type: ignore[no-untyped-def]
    return az.histogram(affine, (1, 0), 10, k, (a, b))


@pytest.mark.unguarded
@pytest.mark.parametrize("n", [0, 1, 1000, 200_003])
def test_bins_keep_the_order(n: int) -> None:
    k, a, b = integers(n, seed=2) % 12 - 1, integers(n), integers(n, seed=1)
    slopes, offsets = compiled(pairs_by_bin, k, a, b)
    for bin in range(10):
        inside = k == bin
        unit = (np.int64(1), np.int64(0))
        assert (slopes[bin], offsets[bin]) == [unit, *running(composed, unit, a[inside], b[inside])][-1]


@az.program
def matrices_by_bin(k: az.Array[az.i64, "n"], m: az.Array[az.i64, "n 4 4"]):  # type: ignore[no-untyped-def]
    return az.histogram(lambda a, b: a @ b, np.eye(4, dtype=np.int64), 3, k, m)


@pytest.mark.parametrize("n", [0, 1, 100, 30_011])
def test_matrices_by_bin(n: int) -> None:
    k, m = integers(n) % 5 - 1, integers(n, 4, 4, seed=1)
    found = compiled(matrices_by_bin, k, m)
    for bin in range(3):
        inside = m[k == bin]
        np.testing.assert_array_equal(found[bin], products(inside)[-1] if len(inside) else np.eye(4))


@pytest.mark.unguarded
def test_bins_far_outside() -> None:
    @az.program
    def count(k: az.Array[az.i64, "n"]):  # type: ignore[no-untyped-def]
        return az.bincount(k, length=4)

    k = np.array([2**63 - 1, -(2**63), 4, -1, 3, 0, 2**32, 2**32 + 1])
    np.testing.assert_array_equal(compiled(count, k), [1, 0, 0, 1])
    np.testing.assert_array_equal(compiled(count, np.tile(k, 50_000)), [50_000, 0, 0, 50_000])


# Inside other constructs


@az.program
def nested(a: az.Array[az.f64, "n m"], k: az.Array[az.i64, "m"], s: az.f64):  # type: ignore[no-untyped-def]
    """Scans, histograms and reductions over pairs and arrays in maps, loops, branches and each other."""

    def bins(row: Any) -> Any:
        return az.histogram(lambda x, y: x + y, 0.0, 4, k, row * s)

    def fold(x: Any, y: Any) -> Any:
        return x[0] * y[0], x[1] * y[0] + y[1]

    def round_trip(i: Any, x: Any) -> Any:
        return az.cumsum(x) / (1.0 + i) + az.sum(az.histogram(lambda p, q: p + q, 0.0, 3, k % 3, x))

    rows = az.size(a)
    small = az.map(lambda row: az.stack([row[:2], row[1:]]) if False else az.sum(row), a)
    return (
        az.map(lambda row: az.cumsum(row * s), a),
        az.map(bins, a),
        az.map(lambda row: az.reduce(fold, (1.0, 0.0), (row / 8, row)), a),
        az.reduce(lambda x, y: x + y, np.zeros(4), az.map(bins, a)),
        az.cumsum(az.map(lambda row: az.sum(az.exp(row / 8)), a)),
        az.cumsum(a, axis=1),
        az.cumsum(a, axis=0),
        az.cond(s > 0, lambda: az.cumsum(small), lambda: small),
        az.fori_loop(0, 3, round_trip, az.sum(a, axis=0)),
        az.map(lambda i: az.sum(az.cumsum(az.generate(i, lambda j: small[j]))), az.iota(rows)),
        az.histogram(lambda x, y: x + y, 0.0, rows, k, az.generate(az.size(k), lambda j: az.sum(az.exp(a[:, j])))),
    )


@pytest.mark.rest
@pytest.mark.unguarded
@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 3), (1, 1), (3, 5), (7, 40), (40, 9)])
@pytest.mark.parametrize("s", [0.5, -1.0])
def test_nested(n: int, m: int, s: float) -> None:
    a = (np.arange(n * m) * 7 % 33 / 4 - 4).reshape(n, m)
    k = np.arange(m) * 5 % 6 - 1
    like_evaluate(nested, a, k, s)


@pytest.mark.rest
@pytest.mark.unguarded
def test_nested_arrays_as_elements() -> None:
    @az.program
    def program(m: az.Array[az.f64, "k n 2 2"], v: az.Array[az.f64, "2"]):  # type: ignore[no-untyped-def]
        def product(ms: Any) -> Any:
            return az.reduce(lambda a, b: a @ b, np.eye(2), ms)

        return (
            az.map(product, m),
            az.map(lambda ms: az.scan(lambda a, b: a @ b, np.eye(2), ms) @ v, m),
            az.reduce(lambda a, b: a @ b, np.eye(2), az.map(product, m)),
            az.scan(lambda a, b: a @ b, np.eye(2), az.map(product, m)),
            az.fori_loop(0, 3, lambda i, s: s @ product(m[0]), np.eye(2)),
        )

    generator = np.random.default_rng(0)
    for k, n in ((1, 0), (1, 1), (3, 5), (9, 2)):
        rotation = np.linalg.qr(generator.normal(size=(k, n, 2, 2)))[0] if n else np.zeros((k, n, 2, 2))
        like_evaluate(program, rotation, np.array([1.0, -0.5]))


@pytest.mark.rest
@pytest.mark.unguarded
def test_operators_with_free_variables() -> None:
    """Addition modulo p, and the product with a metric between the factors."""

    @az.program
    def program(x: az.Array[az.i64, "n"], p: az.i64, m: az.Array[az.i64, "n 2 2"], g: az.Array[az.i64, "2 2"]):  # type: ignore[no-untyped-def]
        def modular(a: Any, b: Any) -> Any:
            return (a + b) % p

        def through(a: Any, b: Any) -> Any:
            return a @ g @ b

        return (
            az.reduce(modular, 0, x % p),
            az.scan(modular, 0, x % p),
            az.histogram(modular, 0, 3, x % 4, x % p),
            az.reduce(through, g, m),
            az.scan(through, g, m),
        )

    g = np.array([[0, 1], [1, 0]])  # its own inverse, and so the neutral element
    for n in (0, 1, 5, 5_003, 80_001):
        x, m = np.abs(integers(n)) // 4, integers(n, 2, 2)
        total, partial, bins, product, products_ = compiled(program, x, 1009, m, g)
        np.testing.assert_array_equal(partial, np.cumsum(x % 1009) % 1009)
        assert total == (x % 1009).sum() % 1009
        np.testing.assert_array_equal(bins, [(x[x % 4 == b] % 1009).sum() % 1009 for b in range(3)])
        expected = running(lambda s, each: s @ g @ each, g, m)
        np.testing.assert_array_equal(products_, np.array(expected, np.int64).reshape(m.shape))
        np.testing.assert_array_equal(product, expected[-1] if n else g)


@pytest.mark.unguarded
def test_sizes_that_the_run_decides() -> None:
    @az.program
    def program(n: az.i64, x: az.Array[az.i64, "m"]):  # type: ignore[no-untyped-def]
        y = az.generate(n, lambda i: i * i % 1000)
        inner = az.fori_loop(0, 4, lambda i, s: s + az.sum(az.cumsum(az.generate(i * n, lambda j: j % 7))), 0)
        bins = az.fori_loop(0, 3, lambda i, s: s + az.histogram(az.maximum, 0, 5, y % 6, y)[i], 0)
        return az.sum(az.cumsum(y)), az.sum(az.cumsum(az.cumsum(x[:3]))), inner, bins, az.sum(az.bincount(y % 7))

    for n in (0, 1, 10, 100_003):
        y = np.arange(n) ** 2 % 1000
        total, _, inner, bins, count = compiled(program, n, integers(5))
        assert total == np.cumsum(y).sum()
        assert inner == sum(np.cumsum(np.arange(i * n) % 7).sum() for i in range(4))
        assert bins == sum(max([0, *y[y % 6 == i]]) for i in range(3))
        assert count == n


@pytest.mark.unguarded
def test_heavy_elements_are_stored_once() -> None:
    """What takes long in an element of a scan is computed side by side, before the scan."""

    @az.program
    def program(x: az.Array[az.f64, "n"]):  # type: ignore[no-untyped-def]
        return az.cumsum(az.exp(x) + 1.0)

    x = np.random.default_rng(0).normal(size=70_001)
    np.testing.assert_allclose(compiled(program, x), np.cumsum(np.exp(x) + 1.0), rtol=1e-12)
    assert az.compile(program).loops.count("exp") == 1


@pytest.mark.unguarded
def test_heavy_elements_of_any_operator_are_stored() -> None:
    """The first place of a largest value, whose elements are computed side by side and then compared in order."""

    @az.program
    def program(x: az.Array[az.f64, "n"]):  # type: ignore[no-untyped-def]
        return az.argmax(az.exp(x))

    x = np.random.default_rng(0).normal(size=70_001)
    assert compiled(program, x) == np.argmax(x)
    exponential = [line for line in az.compile(program).loops.splitlines() if "exp" in line]
    assert len(exponential) == 1


@pytest.mark.parametrize("rows", [False, True])
def test_as_many_bins_as_a_reduction_counts(rows: bool) -> None:
    """The count is a variable while it is made; what pieces allocate has its size from then on."""

    @az.program
    def binned(x: az.Array[az.f64, "n"], k: az.Array[az.i64, "n"]) -> Any:
        bins = az.count_nonzero(x > 0.25)
        if rows:
            return az.histogram(lambda a, b: a + b, az.zeros(2), bins, k, az.stack((x, -x), 1))
        return az.histogram(lambda a, b: a + b, 0.0, bins, k, x)

    for n in (0, 7, 60_000):
        x = np.where(np.arange(n) < 5, 0.5, -0.75)
        k = np.arange(n) % 7
        wanted = np.array([x[k == bin].sum() for bin in range(min(n, 5))]).reshape(min(n, 5))
        np.testing.assert_array_equal(compiled(binned, x, k), np.stack((wanted, -wanted), 1) if rows else wanted)


@pytest.mark.parametrize("combine", ["reduce", "scan", "histogram"])
@pytest.mark.parametrize("name", ["logaddexp", "hypot"])
def test_operators_that_are_written_in_the_language(name: str, combine: str) -> None:
    """Against NumPy's own reductions, in one loop and in pieces."""
    operator, theirs, neutral = getattr(az, name), getattr(np, name), -np.inf if name == "logaddexp" else 0.0

    def program(x: az.Array[az.f64, "n"]) -> Any:
        if combine == "reduce":
            return az.reduce(operator, neutral, x)
        if combine == "scan":
            return az.scan(operator, neutral, x)
        return az.histogram(operator, neutral, 3, az.floor(x).astype(az.i64), x)

    x = np.random.default_rng(4).uniform(0.0, 3.0, size=3000)
    bins = [theirs.reduce(x[np.floor(x) == k]) for k in range(3)]
    wanted = {"reduce": theirs.reduce(x), "scan": theirs.accumulate(x), "histogram": bins}[combine]
    for threads in (1, 2):
        np.testing.assert_allclose(az.compile(program, threads=threads)(x), wanted, rtol=1e-12)
