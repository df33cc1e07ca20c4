"""Reductions, scans, histograms and sorting for targets with groups, run as plain loops, against evaluate and NumPy.

The target is small, so that few elements take several tiles, chunks and pieces.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import plain_loops
import pytest
from agreement import exact, leaves, magnitude, rounded
from programs import CASES, Case, numbers, sampled

import adze as az
from adze.backends import ir
from adze.backends.target import Target
from adze.core.program import as_program
from adze.core.terms import Block

pytestmark = pytest.mark.unguarded

GROUP = 4
TARGET = Target(
    register_bytes=8,
    registers=32,
    l1_bytes=32 << 10,
    l2_bytes=1 << 20,
    parallel=True,
    multiply_add=True,
    group=GROUP,
    shared_bytes=256,
    threads=8,
    atomics=True,
)
LARGER = replace(TARGET, group=64, shared_bytes=32 << 10, threads=4096)

# Around a group, a tile of one component (rows of 7 elements) and of two (of 3), and several chunks.
SIZES = [0, 1, 2, GROUP - 1, GROUP, GROUP + 1, 11, 12, 13, 28, 29, 57, 113, 230, 500]


def mentions(block: Block, operations: set[str]) -> bool:
    return any(op.op in operations or any(mentions(inner, operations) for inner in op.blocks) for op in block.bindings)


def combines(case: Case) -> bool:
    program = as_program(case.program)
    term = program.instance_for(program.bind(case.arguments[0], {})).term
    return mentions(term, {"reduce", "scan", "histogram", "argsort"})


def like_evaluate(program: Any, *arguments: Any, **options: Any) -> Any:
    """What the loops for groups give, which is what evaluate gives, to rounding."""
    found = plain_loops.lowered(program, TARGET, arguments, **options)
    whole = as_program(program)
    bound = whole.bind(arguments, {})
    instance = whole.instance_for(bound)
    largest = magnitude(instance.term, *instance.signature.convert(instance.leaves(bound)))
    rounded(found, az.evaluate(program)(*arguments), largest)
    return found


def exactly(program: Any, wanted: Any, *arguments: Any, **options: Any) -> None:
    exact(plain_loops.lowered(program, TARGET, arguments, **options), wanted)


def buffers(function: ir.Function) -> set[str]:
    """The names of shared buffers, without their numbers."""
    shared = [each.buffer.name for each in ir.walk(function.body) if isinstance(each, ir.Allocate) and each.shared]
    return {name.rstrip("0123456789") for name in shared}


@pytest.mark.unguarded
@sampled([case for case in CASES if combines(case)])
def test_programs(case: Case) -> None:
    for arguments in case.arguments:
        like_evaluate(case.program, *arguments)


# Reductions


def integers(n: int, seed: int = 0) -> Any:
    """Odd and even integers of all sizes: their arithmetic wraps, and so is exactly associative."""
    return np.random.default_rng(seed).integers(-(2**62), 2**62, size=n)


@pytest.mark.unguarded
@pytest.mark.parametrize("n", SIZES)
def test_single_primitives(n: int) -> None:
    @az.program
    def all_four(x: az.Array[az.i64, "n"]):  # type: ignore[no-untyped-def]
        return az.sum(x), az.prod(x), az.reduce(az.maximum, -(2**63), x), az.reduce(az.minimum, 2**63 - 1, x)

    x = integers(n)
    ends = np.max(x, initial=-(2**63)), np.min(x, initial=2**63 - 1)
    exactly(all_four, (np.sum(x), np.prod(x), *ends), x)


def test_truth_values_and_small_integers() -> None:
    @az.program
    def found(b: az.Array[az.bool_, "n"], i: az.Array[az.i32, "n"]):  # type: ignore[no-untyped-def]
        return az.any(b), az.all(b), az.sum(i), az.max(i), az.scan(lambda p, q: p != q, False, b)

    for n in (1, 30, 200):
        b, i = np.arange(n) % 11 == 5, numbers(n, dtype=np.int32)
        wanted = b.any(), b.all(), i.sum(), i.max(), np.cumsum(b) % 2 == 1
        exactly(found, wanted, b, i)


def test_not_a_number() -> None:
    @az.program
    def ends(x: az.Array[az.f64, "n"]):  # type: ignore[no-untyped-def]
        return az.sum(x), az.max(x), az.cumsum(x), az.argsort(x)

    x = numbers(120)
    x[[37, 90]] = np.nan
    exactly(ends, (np.nan, np.nan, np.cumsum(x), np.argsort(x, kind="stable")), x)


def test_elements_with_loops_of_their_own() -> None:
    """The sums of rows come from a nest; an element with a branch or a while is a lane's."""

    @az.program
    def sums(a: az.Array[az.f64, "n m"]):  # type: ignore[no-untyped-def]
        halvings = az.map(
            lambda x: az.while_loop(lambda v: v[0] > 1.0, lambda v: (v[0] / 2, v[1] + 1), (x, 0))[1], a[:, 0]
        )
        return az.sum(a * a), az.max(az.sum(a, 1)), az.sum(halvings), az.sum(az.where(a[:, 0] > 0, a[:, 0], -1.0))

    for n, m in ((0, 3), (3, 1), (5, 70), (70, 5)):
        like_evaluate(sums, numbers(n, m))


def test_a_requirement_in_an_element_is_reported() -> None:
    @az.program
    def picked(x: az.Array[az.f64, "n"], i: az.Array[az.i64, "m"]) -> az.f64:
        return az.sum(az.map(lambda k: x[k], i))

    like_evaluate(picked, numbers(5), np.arange(60) % 5)
    with pytest.raises(IndexError):
        plain_loops.lowered(picked, TARGET, (numbers(5), np.arange(60) % 6))


def larger(a: Any, b: Any) -> Any:
    first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
    return az.where(first, a[0], b[0]), az.where(first, a[1], b[1])


@pytest.mark.unguarded
def test_the_first_of_ties() -> None:
    @az.program
    def place(x: az.Array[az.f32, "n"]):  # type: ignore[no-untyped-def]
        return az.argmax(x), az.reduce(larger, (-float("inf"), 2**62), (x.astype(az.f64), az.iota(x.shape[0])))

    for n in SIZES[1:]:
        x = (np.arange(n) * 7 % 5).astype(np.float32)
        exactly(place, (np.argmax(x), (np.float64(x.max()), np.argmax(x))), x)


def affine(f: Any, g: Any) -> Any:
    """First f, then g: neither commutative nor of one component."""
    return f[0] * g[0], f[1] * g[0] + g[1]


def composed(a: Any, b: Any) -> list[tuple[Any, Any]]:
    found, p, q = [], np.int64(1), np.int64(0)
    with np.errstate(over="ignore"):
        for r, s in zip(a, b, strict=True):
            p, q = p * r, q * r + s
            found.append((p, q))
    return found


@pytest.mark.unguarded
@pytest.mark.parametrize("n", SIZES)
def test_maps_in_order(n: int) -> None:
    @az.program
    def recurrence(a: az.Array[az.i64, "n"], b: az.Array[az.i64, "n"]):  # type: ignore[no-untyped-def]
        return az.scan(affine, (1, 0), (a, b)), az.reduce(affine, (1, 0), (a, b))

    a, b = integers(n), integers(n, seed=1)
    wanted = composed(a, b)
    columns = np.array(wanted, np.int64).reshape(-1, 2).T
    exactly(recurrence, (tuple(columns), wanted[-1] if n else (np.int64(1), np.int64(0))), a, b)


def product(a: Any, b: Any) -> Any:
    """Of 2 x 2 matrices, as four scalars."""
    return (
        a[0] * b[0] + a[1] * b[2],
        a[0] * b[1] + a[1] * b[3],
        a[2] * b[0] + a[3] * b[2],
        a[2] * b[1] + a[3] * b[3],
    )


@pytest.mark.unguarded
@pytest.mark.parametrize("shared_bytes", [64, 256, 4096])
def test_matrices_as_scalars(shared_bytes: int) -> None:
    """With a row of several elements, of one, and where no tile fits into the memory of a group."""

    @az.program
    def products(m: az.Array[az.i64, "n 4"]):  # type: ignore[no-untyped-def]
        columns = (m[:, 0], m[:, 1], m[:, 2], m[:, 3])
        return az.reduce(product, (1, 0, 0, 1), columns), az.scan(product, (1, 0, 0, 1), columns)

    target = replace(TARGET, shared_bytes=shared_bytes)
    function = plain_loops.loops_of(products, target, [integers(8).reshape(-1, 4)])
    assert buffers(function) == ({"stage", "parts"} if shared_bytes > 64 else set())
    for n in (0, 1, 5, 30, 200):
        m = integers(4 * n).reshape(-1, 4)
        total, running = np.eye(2, dtype=np.int64), []
        with np.errstate(over="ignore"):
            for each in m:
                total = total @ each.reshape(2, 2)
                running.append(total.ravel())
        columns = tuple(np.array(running, np.int64).reshape(-1, 4).T)
        exact(plain_loops.lowered(products, target, [m]), (tuple(total.ravel()), columns))


@pytest.mark.unguarded
@pytest.mark.parametrize("n", [0, 1, 2, 17, 60, 150])
def test_small_matrices(n: int) -> None:
    """A thread has a piece, and totals are combined in pairs."""

    @az.program
    def products(m: az.Array[az.i64, "n 3 3"]):  # type: ignore[no-untyped-def]
        eye = np.eye(3, dtype=np.int64)
        return az.reduce(lambda a, b: a @ b, eye, m), az.scan(lambda a, b: a @ b, eye, m)

    m = integers(9 * n).reshape(-1, 3, 3)
    total, running = np.eye(3, dtype=np.int64), []
    for each in m:
        total = total @ each
        running.append(total)
    exactly(products, (total, np.array(running, np.int64).reshape(-1, 3, 3)), m)


@pytest.mark.rest
@pytest.mark.unguarded
def test_large_matrices_go_one_after_the_other() -> None:
    @az.program
    def products(m: az.Array[az.f64, "n k k"]):  # type: ignore[no-untyped-def]
        eye = az.generate(az.size(m, 1), lambda i: az.generate(az.size(m, 1), lambda j: az.where(i == j, 1.0, 0.0)))
        return az.reduce(lambda a, b: a @ b, eye, m), az.scan(lambda a, b: a @ b, eye, m)

    like_evaluate(products, numbers(70, 2, 2) / 8)
    like_evaluate(products, numbers(2, 17, 17) / 64)
    like_evaluate(products, numbers(0, 17, 17))


def test_reductions_inside_of_loops_are_a_thread_s() -> None:
    @az.program
    def inside(a: az.Array[az.f64, "n m"]):  # type: ignore[no-untyped-def]
        return az.map(az.argmax, a), az.map(az.cumsum, a), az.map(az.argsort, a)

    like_evaluate(inside, numbers(6, 40))
    like_evaluate(inside, numbers(40, 6))


# Scans


@pytest.mark.unguarded
@pytest.mark.parametrize("n", SIZES)
def test_directions(n: int) -> None:
    @az.program
    def sums(x: az.Array[az.i64, "n"]):  # type: ignore[no-untyped-def]
        add = lambda a, b: a + b  # noqa: E731
        return az.cumsum(x), az.scan(add, 0, x, exclusive=True, reverse=True)

    x = integers(n)
    with np.errstate(over="ignore"):
        exactly(sums, (np.cumsum(x), np.append(np.cumsum(x[::-1])[:-1][::-1], np.zeros(min(n, 1), int))), x)


def test_sizes_that_are_known() -> None:
    """One chunk needs no second stage."""
    for n in (0, 3, 20, 300):

        @az.program
        def both(x: az.Array[az.i64, n]):  # type: ignore[no-untyped-def, valid-type]
            return az.sum(x), az.cumsum(x), az.reduce(affine, (1, 0), (x, x))

        x = integers(n)
        wanted = composed(x, x)
        with np.errstate(over="ignore"):
            exactly(both, (np.sum(x), np.cumsum(x), wanted[-1] if n else (np.int64(1), np.int64(0))), x)


# Histograms


def by_bin(bins: Any, x: Any, m: int) -> Any:
    wanted = np.zeros(m, x.dtype)
    inside = (bins >= 0) & (bins < m)
    np.add.at(wanted, bins[inside], x[inside])
    return wanted


@az.program
def counts(m: az.i64, bins: az.Array[az.i64, "n"], x: az.Array[az.i64, "n"]):  # type: ignore[no-untyped-def]
    largest = az.histogram(az.maximum, -(2**63), m, bins, x)
    return az.histogram(lambda a, b: a + b, 0, m, bins, x), largest


@az.program
def few_counts(bins: az.Array[az.i64, "n"], x: az.Array[az.i64, "n"]):  # type: ignore[no-untyped-def]
    return az.histogram(lambda a, b: a + b, 0, 5, bins, x)


@az.program
def sized_counts(like: az.Array[az.f64, "m"], bins: az.Array[az.i64, "n"], x: az.Array[az.i64, "n"]):  # type: ignore[no-untyped-def]
    return az.histogram(lambda a, b: a + b, 0, az.size(like, 0), bins, x)


@pytest.mark.unguarded
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("n", [0, 1, 40, 300])
def test_counts(n: int, deterministic: bool) -> None:
    """Bins in the memory of groups, too many for it, and of a number that only the run knows."""
    x = integers(n)
    for m in (1, 5, 40):
        bins = np.arange(n) * 7 % (m + 2) - 1  # some are outside, before and behind
        exactly(sized_counts, by_bin(bins, x, m), numbers(m), bins, x, deterministic=deterministic)
        like_evaluate(counts, m, bins, x, deterministic=deterministic)
    exactly(few_counts, by_bin(bins, x, 5), bins, x, deterministic=deterministic)


def test_bins_are_updated_in_the_memory_of_groups() -> None:
    arguments = [integers(3), integers(3)]
    assert buffers(plain_loops.loops_of(few_counts, TARGET, arguments)) == {"bins"}
    assert any(
        isinstance(each, ir.Update) for each in ir.walk(plain_loops.loops_of(few_counts, TARGET, arguments).body)
    )
    without = replace(TARGET, atomics=False)
    function = plain_loops.loops_of(few_counts, without, arguments)
    assert not any(isinstance(each, ir.Update) for each in ir.walk(function.body))
    bins = np.arange(50) % 9 - 2
    exact(plain_loops.lowered(few_counts, without, [bins, integers(50)]), by_bin(bins, integers(50), 5))


def test_sums_of_floats_in_a_fixed_order() -> None:
    @az.program
    def sums(bins: az.Array[az.i64, "n"], x: az.Array[az.f64, "n"]):  # type: ignore[no-untyped-def]
        return az.histogram(lambda a, b: a + b, 0.0, 5, bins, x)

    arguments = [integers(3), numbers(3)]
    function = plain_loops.loops_of(sums, TARGET, arguments, deterministic=True)
    assert not any(isinstance(each, ir.Update) for each in ir.walk(function.body))
    like_evaluate(sums, np.arange(50) % 9 - 2, numbers(50), deterministic=True)


@pytest.mark.unguarded
@pytest.mark.parametrize("m", [1, 3, 100])
def test_maps_by_bin(m: int) -> None:
    """In order, and one of two components: in pieces where bins are few, sorted where they are many."""

    @az.program
    def maps(  # type: ignore[no-untyped-def]
        like: az.Array[az.f64, "m"], bins: az.Array[az.i64, "n"], a: az.Array[az.i64, "n"], b: az.Array[az.i64, "n"]
    ):
        return az.histogram(affine, (1, 0), az.size(like, 0), bins, (a, b))

    target = replace(TARGET, threads=512)
    for n in (0, 1, 290):
        bins, a, b = np.arange(n) * 7 % (m + 2) - 1, integers(n), integers(n, seed=1)
        p, q = np.ones(m, np.int64), np.zeros(m, np.int64)
        with np.errstate(over="ignore"):
            for k, r, s in zip(bins, a, b, strict=True):
                if 0 <= k < m:
                    p[k], q[k] = p[k] * r, q[k] * r + s
        exact(plain_loops.lowered(maps, target, [numbers(m), bins, a, b]), (p, q))


@pytest.mark.unguarded
@pytest.mark.parametrize("m", [2, 80])
def test_matrices_by_bin(m: int) -> None:
    @az.program
    def products(like: az.Array[az.f64, "m"], bins: az.Array[az.i64, "n"], a: az.Array[az.i64, "n 2 2"]):  # type: ignore[no-untyped-def]
        return az.histogram(lambda x, y: x @ y, np.eye(2, dtype=np.int64), az.size(like, 0), bins, a)

    for n in (0, 270):
        bins, a = np.arange(n) * 7 % (m + 2) - 1, integers(4 * n).reshape(-1, 2, 2)
        wanted = np.tile(np.eye(2, dtype=np.int64), (m, 1, 1))
        for k, each in zip(bins, a, strict=True):
            if 0 <= k < m:
                wanted[k] = wanted[k] @ each
        exact(plain_loops.lowered(products, replace(TARGET, threads=512), [numbers(m), bins, a]), wanted)


@pytest.mark.unguarded
@pytest.mark.parametrize("deterministic", [False, True])
def test_rows_by_bin(deterministic: bool) -> None:
    """Parts of rows that are only read are updated side by side; rows that are computed are a thread's each."""

    @az.program
    def rows(like: az.Array[az.f64, "m"], bins: az.Array[az.i64, "n"], a: az.Array[az.f64, "n d"]):  # type: ignore[no-untyped-def]
        zeros, m = az.zeros(az.size(a, 1)), az.size(like, 0)
        running = az.map(lambda row: az.cumsum(row), a)
        computed = az.histogram(az.maximum, zeros, m, bins, running)
        return az.histogram(lambda p, q: p + q, zeros, m, bins, a), computed

    function = plain_loops.loops_of(rows, TARGET, [numbers(3), integers(3), numbers(3, 2)], deterministic=deterministic)
    assert any(isinstance(each, ir.Update) for each in ir.walk(function.body)) == (not deterministic)
    for n, d in ((0, 3), (3, 0), (40, 3)):
        bins, a = np.arange(n) * 7 % 6 - 1, numbers(n, d)
        like_evaluate(rows, numbers(4), bins, a, deterministic=deterministic)


# Sorting


@pytest.mark.unguarded
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.bool_])
def test_sorting_is_stable(dtype: Any) -> None:
    @az.program
    def order(x):  # type: ignore[no-untyped-def]
        return az.argsort(x)

    for n in (0, 1, 2, 15, 16, 17, 33, 64, 65, 200):
        x = numbers(n).astype(dtype)
        exactly(order, np.argsort(x, kind="stable"), x)


# Shapes


def test_a_chunk_is_a_group_s_and_loads_are_side_by_side() -> None:
    @az.program
    def place(x: az.Array[az.f64, "n"]):  # type: ignore[no-untyped-def]
        return az.argmax(x)

    function = plain_loops.loops_of(place, LARGER, [numbers(3)])
    kinds = [(each.kind, each.factor) for each in ir.walk(function.body) if isinstance(each, ir.For)]
    assert kinds.count(("parallel", 1)) == 2 and kinds.count(("lanes", 64)) == 2
    assert any(isinstance(each, ir.Barrier) for each in ir.walk(function.body))
    x = np.where(np.arange(2000) % 700 == 650, 9.0, numbers(2000))
    assert leaves(plain_loops.lowered(place, LARGER, [x]))[0] == np.argmax(x)
