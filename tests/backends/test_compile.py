"""Compiled programs: equal to evaluate on every program, for any number of threads, and safe on bad input."""

import pickle
import threading
from typing import Any

import numpy as np
import pytest
from programs import CASES, Case, numbers

import adze as az


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    if isinstance(tree, tuple | list):
        return [leaf for value in tree for leaf in leaves(value)]
    return [tree]


def assert_same(actual: Any, expected: Any, exact: bool = False) -> None:
    actual, expected = leaves(actual), leaves(expected)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert np.shape(a) == np.shape(e)
        assert np.asarray(a).dtype == np.asarray(e).dtype
        if exact:
            assert np.asarray(a).tobytes() == np.asarray(e).tobytes()
        else:
            tolerance = 1e-5 if np.asarray(e).dtype == np.float32 else 1e-12
            np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)


@pytest.mark.unguarded
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_evaluate_for_any_number_of_threads(case: Case) -> None:
    for arguments in case.arguments:
        expected = az.evaluate(case.program)(*arguments)
        single = az.compile(case.program, threads=1)(*arguments)
        assert_same(single, expected)
        for threads in (2, 7):
            assert_same(az.compile(case.program, threads=threads)(*arguments), single, exact=True)


@pytest.mark.rest
@pytest.mark.unguarded
def test_arrays_whose_size_the_run_decides_beside_others() -> None:
    """A branch that is decided when the program is made has a size that is known; what is filtered has not."""

    def f(x: az.Array[az.f64, "n"]) -> Any:
        kept = az.filter(lambda v: v > 0, x)
        return az.cond(x.shape[0] >= 0, lambda: (kept, x[:2], kept), lambda: (x, x[1:], kept)), az.sum(x)

    for n in (0, 1, 9):
        x = numbers(n)
        for threads in (1, 2):
            (a, b, c), total = az.compile(az.program(f), threads=threads)(x)
            assert_same((a, b, c, total), (x[x > 0], x[:2], x[x > 0], x.sum()))


@az.program
def mixed(A: az.Array[az.f64, "n m"], B: az.Array[az.f64, "m k"], x: az.Array[az.f64, "m"], y: az.Array[az.f64, "n"]):  # type: ignore[no-untyped-def]
    """A product, its row sums, a matrix-vector product, a column sum, an outer product and a transposed read."""
    product = A @ B
    return (
        product,
        az.sum(product, axis=1),
        az.exp(A @ x),
        az.sum(A, axis=0),
        az.generate((A.shape[1], A.shape[0]), lambda j, i: A[i, j] * x[j] + y[i]),
        az.sum(az.map(lambda row: az.max(row) - az.min(row), A)),
    )


@pytest.mark.unguarded
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 31, 32, 33, 100])
@pytest.mark.parametrize("m", [0, 1, 3, 8, 33])
def test_every_size(n: int, m: int) -> None:
    """Tails of strips and copies, and empty arrays: one compiled program for all."""
    k = (n + m) % 37
    A, B, x, y = numbers(n, m), numbers(m, k, seed=1), numbers(m, seed=2), numbers(n, seed=3)
    product, rows, e, columns, outer, spread = az.compile(mixed, threads=2)(A, B, x, y)
    np.testing.assert_array_equal(product, A @ B)
    np.testing.assert_array_equal(rows, (A @ B).sum(axis=1))
    np.testing.assert_allclose(e, np.exp(A @ x), rtol=1e-13)
    np.testing.assert_array_equal(columns, A.sum(axis=0))
    np.testing.assert_array_equal(outer, (A * x + y[:, None]).T)
    if m:
        np.testing.assert_array_equal(spread, (A.max(axis=1) - A.min(axis=1)).sum())


@pytest.mark.parametrize("sizes", ["0 4", "3 0", "0 0"])
@pytest.mark.parametrize(
    "f",
    [
        lambda a: az.scan(lambda p, q: p + q, 0.0, a, axis=1),
        lambda a: (a + 1.0, a.T * 2.0),
        lambda a: (a @ a.T, a.T @ a),
        lambda a: az.sum(az.exp(a), axis=0),
        lambda a: az.map(lambda row: az.max(row), a),
    ],
    ids=["scan", "elementwise", "products", "sums", "extremes"],
)
def test_sizes_that_are_fixed_at_zero(f: Any, sizes: str) -> None:
    """An index moves no address in such an array; the loops make no turn."""
    program = az.program(f).at(az.Array[az.f64, sizes])
    array = np.zeros([int(n) for n in sizes.split()])
    assert_same(az.compile(program)(array), az.evaluate(program)(array), exact=True)


def test_large_reductions_are_chunked_and_reproducible() -> None:
    @az.program
    def norm(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(x * x)

    x = np.random.default_rng(0).normal(size=100_003)
    results = {float(az.compile(norm, threads=threads)(x)) for threads in (1, 2, 3, 7) for _ in range(3)}
    assert len(results) == 1
    np.testing.assert_allclose(results.pop(), x @ x, rtol=1e-13)


def test_arguments_of_any_stride_and_read_only() -> None:
    @az.program
    def twice(a: az.Array[az.f64, "n m"]):  # type: ignore[no-untyped-def]
        return a + a

    base = numbers(6, 8)
    base.flags.writeable = False
    for a in (base[::2, ::-1], base.T, base[:, 1:3], np.asfortranarray(base)):
        np.testing.assert_array_equal(twice(a), a + a)


def test_results_never_share_memory() -> None:
    @az.program
    def same(a: az.Array[az.f64, "n"]):  # type: ignore[no-untyped-def]
        return a, a, np.ones(3)

    a = numbers(5)
    first, second, constant = same(a)
    assert not np.shares_memory(first, a) and not np.shares_memory(first, second)
    constant[:] = 7.0
    np.testing.assert_array_equal(same(a)[2], np.ones(3))


def test_scattered_updates_have_private_copies() -> None:
    """The gradient of a gather adds at computed places; threads add to copies of their own."""

    @az.program
    def picked(x: az.Array[az.f64, "n"], places: az.Array[az.i64, "m"], w: az.Array[az.f64, "m"]) -> az.f64:
        return az.sum(x[places] * x[places] * w)

    generator = np.random.default_rng(0)
    x, w = generator.normal(size=50), generator.normal(size=200_000)
    places = generator.integers(0, 50, size=200_000)
    gradient = az.grad(picked)
    expected = np.bincount(places, weights=2 * x[places] * w, minlength=50)
    single = az.compile(gradient, threads=1)(x, places, w)
    np.testing.assert_allclose(single, expected, rtol=1e-10)
    for threads in (2, 7):
        assert_same(az.compile(gradient, threads=threads)(x, places, w), single, exact=True)


@pytest.mark.parametrize("size", [1, 300, 60_000, 300_000])
def test_scattered_updates_of_a_large_array_are_made_in_it(size: int) -> None:
    """Where copies would cost as much as the additions, these are made in order, in the result."""

    @az.program
    def picked(x: az.Array[az.f64, "n"], places: az.Array[az.i64, "m"]) -> az.Array[az.f64, "m"]:
        return x[places]

    generator = np.random.default_rng(0)
    x, cotangent = generator.normal(size=size), generator.normal(size=200_000)
    places = generator.integers(0, size, size=200_000)
    pulled = az.vjp(picked, argnums=0)
    value, single = az.compile(pulled, threads=1)(x, places, cotangent)
    np.testing.assert_array_equal(value, x[places])
    expected = np.bincount(places, weights=cotangent, minlength=size)
    if size > 200_000:
        np.testing.assert_array_equal(single, expected)
        assert az.compile(pulled).peak_bytes(x, places, cotangent) < x.nbytes + cotangent.nbytes + 10_000
    np.testing.assert_allclose(single, expected, rtol=1e-9, atol=1e-9)
    for threads in (2, 7):
        assert_same(az.compile(pulled, threads=threads)(x, places, cotangent)[1], single, exact=True)


def test_bins_out_of_range_are_left_out() -> None:
    @az.program
    def sums(
        bins: az.Array[az.i64, "n"], x: az.Array[az.f64, "n"], like: az.Array[az.f64, "m"]
    ) -> az.Array[az.f64, "m"]:
        return az.histogram(lambda a, b: a + b, 0.0, az.size(like), bins, x)

    bins = np.array([0, 3, -1, 2, 4, 2**62, -(2**63), 2**63 - 1, 3, 4 + 2**32])
    x = numbers(len(bins))
    for m in (4, 1, 0):
        inside = (bins >= 0) & (bins < m)
        expected = np.bincount(bins[inside], weights=x[inside], minlength=m).astype(np.float64)
        assert_same(az.compile(sums)(bins, x, np.zeros(m)), expected, exact=True)


@pytest.mark.parametrize("size", [5, 70_000, 300_000])
def test_scatters_by_one_thread_and_by_several(size: int) -> None:
    """Small destinations are written by one thread; a place that is named twice is reported from a plain loop."""

    @az.program
    def scattered(
        x: az.Array[az.f64, "n"], places: az.Array[az.i64, "m"], values: az.Array[az.f64, "m"]
    ) -> az.Array[az.f64, "n"]:
        return az.scatter(x, places, values)

    generator = np.random.default_rng(0)
    x, places = generator.normal(size=size), generator.permutation(size)[: size - 2]
    values = generator.normal(size=size - 2)
    expected = x.copy()
    expected[places] = values
    for threads in (1, 2, 7):
        compiled = az.compile(scattered, threads=threads)
        assert_same(compiled(x, places, values), expected, exact=True)
        twice = places.copy()
        twice[-1] = twice[0]
        with pytest.raises(ValueError, match=rf"2 values go to the place \[{twice[0]}\]"):
            compiled(x, twice, values)
        with pytest.raises(IndexError):
            compiled(x, np.where(places == places[0], -1, places), values)
    checks = compiled.loops.rpartition("\n  else\n")[2].partition("\n  parallel")[0]
    assert "require" in checks and "parallel" not in checks


def test_an_index_out_of_range_is_reported_with_its_line() -> None:
    @az.program
    def read(x: az.Array[az.f64, "n"], i: az.i64) -> az.f64:
        return x[i]  # the line

    line = read.function.__code__.co_firstlineno + 2
    for i in (5, -1, 2**62):
        with pytest.raises(IndexError, match=rf"index {i} is out of range .*size is 5.*test_compile.py:{line}"):
            az.compile(read)(numbers(5), i)
    with pytest.raises(IndexError):
        az.compile(read)(np.zeros(0), 0)
    assert np.isfinite(az.compile(read, checks=False)(numbers(5), 10**12))


@pytest.mark.unguarded
def test_an_index_out_of_range_touches_no_other_memory() -> None:
    """Reads and updates outside an array, in parallel and nested, are harmless before they are reported."""

    @az.program
    def rows(a: az.Array[az.f64, "n m"], i: az.Array[az.i64, "k"]):  # type: ignore[no-untyped-def]
        return az.map(lambda row: az.sum(a[row]), i)

    @az.program
    def loss(a: az.Array[az.f64, "n m"], i: az.Array[az.i64, "k"]) -> az.f64:
        return az.sum(rows(a, i))

    wild = np.array([0, 2**60, -(2**60), 10**9])
    for a in (numbers(3, 1000), np.zeros((0, 1000))):
        for program in (rows, az.grad(loss)):
            with pytest.raises(IndexError):
                program(a, wild)
            az.compile(program, checks=False)(a, wild)


@pytest.mark.unguarded
def test_loops_that_only_check_are_not_there_without_checks() -> None:
    rows, places = az.Array[az.f64, "n m"], az.Array[az.i64, "n p"]

    def looped(row: az.Expr, at: az.Expr) -> az.Expr:
        az.fori_loop(0, at.shape[0], lambda i, s: s + row[at[i]], 0.0)
        return az.sum(row)

    def nested(row: az.Expr, at: az.Expr) -> az.Expr:
        az.fori_loop(0, 2, lambda i, s: az.fori_loop(0, at[i], lambda j, t: t + row[at[j]], s), 0.0)
        return az.sum(az.map(lambda v: v * row[0], row))

    def chosen(row: az.Expr, at: az.Expr) -> az.Expr:
        az.cond(row[0] > 1.0, lambda: az.fori_loop(0, 2, lambda i, s: s + row[at[i]], 0.0), lambda: 0.0)
        return az.sum(row)

    a, at = numbers(4, 3), np.array([[0, 1], [1, 2], [0, 0], [2, 2]])
    for body in (looped, nested, chosen):

        def program(a: rows, at: places) -> Any:  # type: ignore[valid-type]
            return az.map(body, a, at)  # noqa: B023

        unchecked = az.compile(program, checks=False)
        np.testing.assert_array_equal(unchecked(a, at), az.evaluate(program)(a, at))
        assert "require" not in str(unchecked.loops)


def test_division_by_zero_is_reported() -> None:
    @az.program
    def divide(a: az.i64, b: az.i64):  # type: ignore[no-untyped-def]
        return a // b, a % b

    for a, b in ((7, 2), (-7, 2), (7, -2), (-7, -2), (-(2**63), -1), (0, 5)):
        with np.errstate(all="ignore"):
            assert tuple(divide(a, b)) == (np.int64(a) // np.int64(b), np.int64(a) % np.int64(b))
    with pytest.raises(ZeroDivisionError, match="integer division by zero"):
        divide(1, 0)
    assert tuple(az.compile(divide, checks=False)(1, 0)) == (0, 0)


def test_several_python_threads_may_call_at_once() -> None:
    @az.program
    def step(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(az.sin(x) * x)

    x = np.random.default_rng(1).normal(size=50_000)
    fast = az.compile(step, threads=2)
    expected = float(fast(x))
    wrong: list[float] = []

    def call() -> None:
        wrong.extend(value for value in (float(fast(x)) for _ in range(50)) if value != expected)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@pytest.mark.rest
def test_what_was_generated_can_be_looked_at() -> None:
    fast = az.compile(mixed, threads=1)
    assert "parallel" in fast.loops and "lanes" in fast.loops and "jam" in fast.loops
    assert "define" in fast.llvm_ir and "fma" in fast.llvm_ir
    assert "ret" in fast.assembly
    assert fast.compile_seconds > 0


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="no backend 'cuda'"):
        az.compile(mixed, backend="cuda")
    with pytest.raises(ValueError, match="at least one thread"):
        az.compile(mixed, threads=0)


def test_terms_pickle() -> None:
    term = mixed.at().term
    assert pickle.loads(pickle.dumps(term)) == term


def test_the_gradient_of_a_minimum_finds_its_place_whatever_the_rounding() -> None:
    """Forward and return sweep compute a distance in different loops, which must not change where the least is."""

    @az.program
    def cost(points: az.Array[az.f64, "n d"], centroids: az.Array[az.f64, "k d"]) -> az.f64:
        return az.sum(az.map(lambda p: az.min(az.map(lambda c: az.sum((p - c) ** 2), centroids)), points))

    generator = np.random.default_rng(0)
    points, centroids = generator.normal(size=(500, 16)), generator.normal(size=(10, 16))
    nearest = np.argmin(((points[:, None] - centroids) ** 2).sum(axis=-1), axis=1)
    expected = np.zeros_like(centroids)
    np.add.at(expected, nearest, 2 * (centroids[nearest] - points))
    np.testing.assert_allclose(az.compile(az.grad(cost, argnums=1))(points, centroids), expected, rtol=1e-10)


@pytest.mark.rest
@pytest.mark.unguarded
def test_updates_run_once_where_what_follows_them_is_stored() -> None:
    """A loop is distributed behind an accumulate that also adds to accumulators around the loop."""

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(az.map(lambda t: az.sum(az.sin(x * t) * (t * t)) * az.sum(x * t), x))

    x, ones, step = np.array([1.0, 2.0, -0.5]), np.ones(3), 1e-5
    gradient = az.evaluate(az.grad(f))
    wanted = (gradient(x + step * ones) - gradient(x - step * ones)) / (2 * step)
    product = az.jvp(az.grad(f))
    for run in (az.evaluate(product), az.compile(product, threads=1)):
        np.testing.assert_allclose(run(x, ones)[1], wanted, rtol=1e-7)


@pytest.mark.parametrize(
    "chosen",
    [
        lambda r, m: az.cond(r > 0.3, lambda: az.ones((m, 2)), lambda: az.full((m, 2), r)),
        lambda r, m: az.cond(r > 0.3, lambda: az.ones((2 * m + 1, m)), lambda: az.full((2 * m + 1, m), r)),
        lambda r, m: az.map(lambda v: az.cond(v > r, lambda: az.ones(m), lambda: az.full(m, v)), az.array([r, 1.0])),
        lambda r, m: az.cond(
            r > 9, lambda: az.zeros(m), lambda: az.cond(r > 0.3, lambda: az.ones(m), lambda: r * az.ones(m))
        ),
    ],
    ids=["sizes", "computed", "map", "nested"],
)
def test_arrays_of_a_size_that_branches_compute(chosen: Any) -> None:
    """The size is computed where it is used, which is in the branches only."""

    @az.program
    def f(r: az.f64, k: az.i64) -> Any:
        return chosen(r, az.maximum(k, 0))

    for arguments in ((0.5, 3), (0.0, 2), (0.25, -1)):
        assert_same(az.compile(f)(*arguments), az.evaluate(f)(*arguments))


@pytest.mark.unguarded
@pytest.mark.parametrize("depth", [32, pytest.param(60, marks=pytest.mark.slow)])
def test_nests_of_many_loops_have_values(depth: int) -> None:
    """What a nest costs is estimated in numbers that are no integers of 64 bits."""

    def nested(x: az.Expr, product: Any, depth: int) -> Any:
        return az.map(lambda v: nested(x, product * v, depth - 1), x) if depth else az.sin(product)

    @az.program
    def deep(x: az.Array[az.f64, "n"]) -> Any:
        return nested(x, 1.0, depth)

    found = az.compile(deep)(np.array([0.9]))
    assert found.shape == (1,) * depth
    np.testing.assert_allclose(found.item(), np.sin(0.9**depth), rtol=1e-14)


@pytest.mark.parametrize("shape", [lambda n: (0, n), lambda n: (n, 0), lambda n: (0, n, 5)])
def test_empty_results_may_be_longer_than_memory(shape: Any) -> None:
    made = az.compile(lambda n: az.generate(shape(n), lambda *i: 1.0 * i[0] + i[1]))(2**50)
    assert made.shape == shape(2**50) and made.dtype == np.float64


def test_empty_results_that_numpy_does_not_have_are_refused_at_the_line() -> None:
    known = az.compile(lambda: az.generate((0, 2**62), lambda i, j: 1.0 * i))
    given = az.compile(lambda n: az.generate((0, n), lambda i, j: 1.0 * i))
    for call in (known, lambda: given(2**62)):
        with pytest.raises(
            ValueError, match=r"NumPy has no array of shape \(0, 4611686018427387904\).*test_compile\.py"
        ):
            call()
    assert given(7).shape == (0, 7)
