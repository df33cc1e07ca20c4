"""Nests: what lowering leaves without an order means the program, and its points need nothing of each other."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import plain_loops
import pytest
from programs import CASES, Case, sampled
from spelled_alike import numbered_anew
from test_compile import assert_same
from test_grids import GROUPS

import adze as az
from adze.backends import ir

pytestmark = pytest.mark.unguarded

VECTORS = replace(GROUPS, register_bytes=32, group=0, shared_bytes=0, threads=1, atomics=False)


def of(program: Any, *arguments: Any, nests: bool = True) -> ir.Function:
    return plain_loops.loops_of(program, VECTORS, arguments, nests=nests)


@sampled(CASES)
@pytest.mark.parametrize("target", [VECTORS, GROUPS], ids=["vectors", "groups"])
def test_nests_run_point_by_point_give_the_values_of_the_program(case: Case, target: Any) -> None:
    """The interpreter of loops also finds points that touch what another one writes."""
    for arguments in case.arguments[:1]:
        found = plain_loops.lowered(case.program, target, arguments, nests=True)
        assert_same(found, az.evaluate(case.program)(*arguments))


@pytest.mark.parametrize("case", CASES[1::9], ids=lambda case: case.name)
def test_nests_keep_the_rules_of_loops(case: Case) -> None:
    ir.check(of(case.program, *case.arguments[0]), nests=True)


def test_loops_have_no_nests_left() -> None:
    x = np.ones((3, 4))
    double = az.program(lambda x: az.map(lambda row: row * az.sum(row), x))
    assert ir.contains(of(double, x).body, ir.Nest)
    assert not ir.contains(of(double, x, nests=False).body, ir.Nest)
    with pytest.raises(ir.InvalidLoops, match="a nest has no loops yet, in: nest i"):
        ir.check(of(double, x))


@pytest.mark.rest
def test_nests_are_printed() -> None:
    @az.program
    def outer(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "m"]) -> az.Array[az.f64, "n m"]:
        return az.generate((x.shape[0], y.shape[0]), lambda i, j: x[i] * y[j])

    text = """\
outer(m, n; x1: f64[n], y2: f64[m]) -> result3: f64[n, m]
  nest i4 < n, j6 < m
    let t5 = x1[i4]
    let t7 = y2[j6]
    let t8 = t5 * t7
    result3[i4, j6] = t8"""
    assert az.compile(outer).nests == text
    assert az.compile(outer, backend="opencl").nests == text


def test_an_array_that_is_handed_out_has_its_axes_in_order() -> None:
    """Lanes along the first axis would be faster, and another layout then; the caller wants rows."""

    @az.program
    def turned(x: az.Array[az.f64, "n m"]) -> Any:
        few = az.filter(lambda v: v > 0.5, x[0])
        return az.generate((x.shape[1], az.size(few)), lambda j, i: x[i, j] + 1)

    x = np.linspace(0.2, 1.4, 63).reshape(9, 7)
    compiled = az.compile(turned)
    np.testing.assert_array_equal(compiled(x), x[: (x[0] > 0.5).sum()].T + 1)
    assert "temporary returned" not in compiled.loops


# Roles

SIZES = (0, 1, 2, 7, 33)
RANDOM = np.random.default_rng(28)


def test_a_table_of_rows_has_lanes_along_a_side() -> None:
    """Lanes along the sum would have to be summed for each entry, and read more."""

    @az.program
    def distances(x: az.Array[az.f64, "n d"], y: az.Array[az.f64, "m d"]) -> az.Array[az.f64, "n m"]:
        return az.generate((x.shape[0], y.shape[0]), lambda i, j: az.sum((x[i] - y[j]) ** 2))

    compiled = az.compile(distances)
    assert "y2_packed" in compiled.loops
    for n, m, d in zip(SIZES, SIZES[::-1], (3, 1, 40, 0, 17), strict=True):
        x, y = RANDOM.random((n, d)), RANDOM.random((m, d))
        np.testing.assert_allclose(compiled(x, y), ((x[:, None] - y) ** 2).sum(2), rtol=1e-13)


def test_all_sums_of_an_element_are_lanes() -> None:
    @az.program
    def cosines(x: az.Array[az.f64, "n d"], a: az.Array[az.f64, "d"]) -> az.Array[az.f64, "n"]:
        return az.map(lambda row: az.sum(row * a) / az.sqrt(az.sum(row * row)), x)

    compiled = az.compile(cosines)
    assert compiled.loops.count("combining") == 2
    for n, d in ((0, 3), (1, 1), (7, 33), (33, 130), (5, 1025)):
        x, a = RANDOM.random((n, d)), RANDOM.random(d)
        np.testing.assert_allclose(compiled(x, a), x @ a / np.sqrt((x * x).sum(1)), rtol=1e-13)


def test_sums_of_which_one_is_no_lane_stay_as_they_are() -> None:
    """The length of the second one varies along it; its state is no sum."""

    @az.program
    def ragged(x: az.Array[az.f64, "n d"], counts: az.Array[az.i64, "n"]) -> az.Array[az.f64, "n"]:
        def element(i: az.Expr) -> az.Expr:
            last = az.fori_loop(0, counts[i], lambda k, s: 0.5 * s + x[i, k], 0.0)
            return az.sum(x[i]) * last

        return az.map(element, az.iota(x.shape[0]))

    x, counts = RANDOM.random((7, 40)), np.arange(7)
    wanted = [row.sum() * sum(0.5 ** (n - 1 - k) * row[k] for k in range(n)) for row, n in zip(x, counts, strict=True)]
    np.testing.assert_allclose(az.compile(ragged)(x, counts), wanted, rtol=1e-13)


@pytest.mark.parametrize("order", ["ij", "ji"])
def test_outer_loops_run_as_what_they_read_stands_in_memory(order: str) -> None:
    """However the program is written."""

    @az.program
    def sums(x: az.Array[az.f64, "n m d"]) -> Any:
        if order == "ij":
            return az.generate(x.shape[:2], lambda i, j: az.sum(x[i, j]))
        return az.generate((x.shape[1], x.shape[0]), lambda j, i: az.sum(x[i, j]))

    loops = az.compile(sums).loops
    assert loops.index("parallel i") < loops.index("for j")


@pytest.mark.parametrize("turned", [False, True])
def test_a_product_of_many_rows_stays_with_the_thread_that_reads_it(turned: bool) -> None:
    """What is summed over the product's rows, or its columns, is never there as a whole."""

    @az.program
    def squares(q: az.Array[az.f64, "k d d"], x: az.Array[az.f64, "n d"]) -> az.Array[az.f64, "n k"]:
        def total(i: az.Expr, j: az.Expr) -> az.Expr:
            row = az.generate(q.shape[1], lambda r: az.sum((q[j, :, r] if turned else q[j, r]) * x[i]))
            return az.sum(row * row)

        return az.generate((x.shape[0], q.shape[0]), total)

    q, x = RANDOM.random((16, 64, 64)), RANDOM.random((1000, 64))
    compiled = az.compile(squares, threads=1)
    np.testing.assert_allclose(
        compiled(q, x), (np.einsum("kcr,nc->nkr" if turned else "krc,nc->nkr", q, x) ** 2).sum(2), rtol=1e-12
    )
    many = np.empty((10_000, 64))  # so that tiles, which are as large as a machine's caches, are not what counts
    assert compiled.peak_bytes(q, many) < 16 * 10_000 * 64 * 8 / 4


# The same program, written in other ways

Points, Centres = az.Array[az.f64, "n d"], az.Array[az.f64, "k d"]


def squared(p: az.Expr, q: az.Expr) -> az.Expr:
    return az.sum((p - q) ** 2)


def mapped(x: Points, y: Centres) -> az.f64:
    return az.sum(az.map(lambda p: az.min(az.map(lambda q: squared(p, q), y)), x))


def by_rows(x: Points, y: Centres) -> az.f64:
    table = az.generate((x.shape[0], y.shape[0]), lambda i, j: squared(x[i], y[j]))
    return az.sum(az.min(table, axis=1))


def by_columns(x: Points, y: Centres) -> az.f64:
    table = az.generate((y.shape[0], x.shape[0]), lambda j, i: squared(x[i], y[j]))
    return az.sum(az.min(table, axis=0))


def broadcast(x: Points, y: Centres) -> az.f64:
    return az.sum(az.min(az.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=2), axis=1))


@pytest.mark.parametrize("verb", [lambda f: f, az.grad], ids=["value", "gradient"])
def test_tables_made_in_other_ways_are_the_same_nests(verb: Any) -> None:
    x, y = RANDOM.random((70, 5)), RANDOM.random((9, 5))
    spellings = [az.compile(verb(az.program(f))) for f in (mapped, by_rows, by_columns, broadcast)]
    first, *others = [numbered_anew(compiled.nests) for compiled in spellings]
    assert [each == first for each in others] == [True] * 3
    np.testing.assert_allclose(spellings[2](x, y), az.evaluate(verb(az.program(mapped)))(x, y), rtol=1e-12)


@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_greatest_in_a_product_is_of_a_product(axis: int) -> None:
    """Its entries are sums inside of a maximum, and yet in tiles; those of no product are not stored."""

    @az.program
    def greatest(x: az.Array[az.f64, "n k"], y: az.Array[az.f64, "k m"]) -> Any:
        return az.max(x @ y, axis=axis)

    compiled = az.compile(greatest)
    assert "product over" in compiled.schedule
    for n, k, m in ((70, 40, 50), (7, 33, 130), (1, 0, 2), (33, 1, 1)):
        x, y = RANDOM.random((n, k)), RANDOM.random((k, m))
        np.testing.assert_allclose(compiled(x, y), (x @ y).max(axis), rtol=1e-13)


def test_a_sum_of_sums_has_lanes_whatever_sizes_its_extents_are_computed_from() -> None:
    @az.program
    def inside(u: az.Array[az.f64, "n m"]) -> az.f64:
        neighbours = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return az.sum(neighbours * neighbours)

    compiled = az.compile(inside)
    assert re.search(r"lanes \w+ < .* combining part", compiled.loops)
    for n, m in ((3, 3), (40, 7), (9, 130), (2, 5)):
        u = RANDOM.random((n, m))
        wanted = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        np.testing.assert_allclose(compiled(u), (wanted * wanted).sum(), rtol=1e-12)


@pytest.mark.parametrize("side", ["left", "right"])
def test_searches_run_along_lanes(side: Any) -> None:
    """Sizes decide how often the vector is halved, so that all lanes do it together, NaN or not."""
    search = az.program(lambda a, v: az.searchsorted(a, v, side))
    a = np.sort(np.append(np.random.default_rng(1).random(300), [np.nan, np.inf, -np.inf]))
    v = np.concatenate([a[::-1], np.random.default_rng(2).random(1001)])
    found = [az.compile(search, threads=threads) for threads in (1, 2)]
    for each in found:
        np.testing.assert_array_equal(each(a, v), np.searchsorted(a, v, side))
        assert "lanes" in each.loops and "while" not in each.loops


def test_loops_that_a_state_of_the_point_ends_have_no_lanes() -> None:
    @az.program
    def growing(counts: az.Array[az.i64, "m"]) -> az.Array[az.f64, "m"]:
        def step(_: Any, state: Any) -> Any:
            total, count = state
            return total + az.fori_loop(0, count, lambda _, s: 0.5 * s + 1.0, 0.0), count + 1

        return az.map(lambda count: az.fori_loop(0, 3, step, (0.0, count))[0], counts)

    counts = np.arange(100) % 7
    found = az.compile(growing)
    np.testing.assert_array_equal(found(counts), az.evaluate(growing)(counts))
    assert "lanes" not in found.loops


@pytest.mark.parametrize(("rows", "copies"), [(3, 3), (8, 4), (10, 5)])
def test_a_jam_of_known_extent_leaves_no_row_over(rows: int, copies: int) -> None:
    @az.program
    def products(x: az.Array[az.f64, "b", rows, 64]) -> az.Array[az.f64, "b", rows, rows]:
        return az.map(lambda block: block @ block.T, x)

    x = np.random.default_rng(4).standard_normal((3, rows, 64))
    compiled = az.compile(products, threads=1)
    assert re.search(rf"jam \w+ < {rows} by {copies}\n", str(compiled.loops))
    np.testing.assert_allclose(compiled(x), x @ x.transpose(0, 2, 1), rtol=1e-12, atol=1e-12)
