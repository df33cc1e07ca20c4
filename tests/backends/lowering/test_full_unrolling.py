"""Maps over short arrays run as straight-line code along lanes: what becomes of them, and that they mean the same."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import plain_loops
import pytest
from plain_loops import apply, at, const, fma, loop, put, var
from vectors import WIDE

import adze as az
from adze.backends import ir
from adze.backends.decisions import Decisions
from adze.backends.lowering.partial_evaluation import simplified
from adze.backends.lowering.unrolling import straightened
from adze.backends.target import Target
from adze.backends.transformations import ALL
from adze.core.types import f64, i64

pytestmark = pytest.mark.unguarded

TARGET = Target(register_bytes=64, registers=32, l1_bytes=1 << 15, l2_bytes=1 << 20, parallel=True, multiply_add=True)
N = var("n")
X, Y = ir.Buffer("x", f64, (N, const(3))), ir.Buffer("y", f64, (N, const(3)))
R, S = ir.Buffer("r", f64, (N,)), ir.Buffer("s", f64, (N,))
LOCAL = ir.Buffer("u", f64, (const(3),))
RANDOM = np.random.default_rng(0)


def names() -> Callable[[str], str]:
    numbers = iter(range(10_000))
    return lambda stem: f"{stem}_{next(numbers)}"


def both(
    body: ir.Block, arguments: list[ir.Buffer], results: list[ir.Buffer], *arrays: np.ndarray
) -> tuple[str, list[Any]]:
    """The text of a function after the pass, and its results, which are those from before it."""
    size = len(arrays[0])
    found = []
    for code in (body, straightened(body, TARGET, names(), Decisions())):
        function = ir.Function("f", ("n",), tuple(arguments), tuple(results), code)
        ir.check(function)
        written = [
            np.full([size, *[e.value for e in b.extents[1:] if isinstance(e, ir.Constant)]], np.nan) for b in results
        ]
        assert plain_loops.run(function, [*map(np.array, arrays), *written], [size]) == []
        found.append((ir.text(function), written))
    for before, after in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_array_equal(before, after)
    return found[1]


def norms() -> ir.Block:
    """Of each row of x, divided by r, the square of its length; the lanes run along the row."""
    return (
        loop(
            "i",
            "n",
            ir.Allocate(LOCAL),
            loop("j", 3, put(LOCAL, "j", apply("divide", at(X, "i", "j"), at(R, "i")))),
            ir.Declare("sum", const(0.0, f64)),
            loop("k", 3, ir.Assign("sum", fma(at(LOCAL, "k"), at(LOCAL, "k"), var("sum", f64)))),
            loop("l", 3, put(Y, "i", "l", apply("multiply", var("sum", f64), apply("exp", at(LOCAL, "l"))))),
            kind="parallel",
        ),
    )


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 700])
def test_a_local_array_becomes_names(n: int) -> None:
    x, r = RANDOM.normal(size=(n, 3)), RANDOM.uniform(1, 2, n)
    made, (y,) = both(norms(), [X, R], [Y], x, r)
    assert "temporary" not in made and "for" not in made and "by 8" in made
    assert made.count("exp(") == 3 and made.count("/ t") == 3
    u = x / r[:, None]
    np.testing.assert_allclose(y, (u * u).sum(axis=1)[:, None] * np.exp(u), rtol=1e-14)


def test_loops_over_one_range_become_one_and_what_they_pass_on_is_no_array() -> None:
    between = ir.Buffer("between", f64, (N,))
    first = loop("i", "n", put(between, "i", apply("exp", at(R, "i"))), kind="parallel")
    second = loop(
        "k",
        "n",
        loop("j", 3, put(Y, "k", "j", apply("exp", apply("multiply", at(between, "k"), at(X, "k", "j"))))),
        kind="parallel",
    )
    x, r = RANDOM.normal(size=(20, 3)), RANDOM.normal(size=20)
    made, (y,) = both((ir.Allocate(between), first, second), [X, R], [Y], x, r)
    assert made.count("parallel") == 1 and "between" not in made
    np.testing.assert_allclose(y, np.exp(np.exp(r)[:, None] * x), rtol=1e-14)


def test_what_another_iteration_wrote_is_not_passed_on() -> None:
    between = ir.Buffer("between", f64, (N,))
    first = loop("i", "n", put(between, "i", apply("exp", at(R, "i"))), kind="parallel")
    back = apply("subtract", apply("subtract", var("n"), const(1)), var("k"))
    work = apply("exp", apply("exp", at(between, back)))
    second = loop("k", "n", loop("j", 3, put(Y, "k", "j", apply("add", work, at(X, "k", "j")))), kind="parallel")
    x, r = RANDOM.normal(size=(20, 3)), RANDOM.uniform(0, 0.1, size=20)
    made, (y,) = both((ir.Allocate(between), first, second), [X, R], [Y], x, r)
    assert made.count("parallel") == 2 and "temporary between" in made
    np.testing.assert_allclose(y, np.exp(np.exp(np.exp(r)[::-1]))[:, None] + x, rtol=1e-14)


def branching(*, also_stored: bool) -> ir.Block:
    """Where r is positive, y is exp(x / s), else x, or nothing is stored."""
    place = ("i", "j")
    then = loop("j", 3, put(Y, *place, apply("exp", apply("divide", at(X, *place), at(S, "i")))))
    orelse = (loop("j", 3, put(Y, *place, at(X, *place))),) if also_stored else ()
    first = () if also_stored else (loop("j", 3, put(Y, *place, const(5.0, f64))),)
    test = apply("greater", at(R, "i"), const(0.0, f64))
    return (loop("i", "n", *first, ir.If(test, (then,), orelse), kind="parallel"),)


@pytest.mark.parametrize("also_stored", [True, False])
def test_branches_become_selections(also_stored: bool) -> None:
    x, r = RANDOM.normal(size=(20, 3)), RANDOM.normal(size=20)
    s = np.where(r > 0, 2.0, 0.0)  # infinities and NaNs where the branch is not taken
    x[3], r[3] = 0, -1
    made, (y,) = both(branching(also_stored=also_stored), [X, R, S], [Y], x, r, s)
    assert " if " not in made and "select" in made and "for" not in made
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(y, np.where(r[:, None] > 0, np.exp(x / 2), x if also_stored else 5.0), rtol=1e-14)


def inside(*body: Any) -> ir.Block:
    """A loop over n, written to run in order, inside a parallel loop of two iterations."""
    return (loop("o", 2, loop("i", "n", *body), kind="parallel"),)


def rows(place: Any, source: Any) -> Any:
    """y[o, place, j] = exp(exp(source))"""
    return loop("j", 3, put(DEEP, "o", place, "j", apply("exp", apply("exp", source))))


DEEP = ir.Buffer("deep", f64, (const(2), N, const(3)))


def run_deep(body: ir.Block, x: np.ndarray) -> tuple[str, np.ndarray]:
    """The text after the pass, and what stands in the buffer then, which is what stands there without the pass."""
    found = []
    for code in (body, straightened(body, TARGET, names(), Decisions())):
        function = ir.Function("f", ("n",), (X,), (DEEP,), code)
        ir.check(function)
        deep = np.full((2, len(x), 3), np.nan)
        assert plain_loops.run(function, [x.copy(), deep], [len(x)]) == []
        found.append((ir.text(function), deep))
    np.testing.assert_array_equal(found[0][1], found[1][1])
    return found[1]


@pytest.mark.parametrize("n", [0, 1, 8, 13])
def test_a_loop_in_order_whose_iterations_have_places_of_their_own_becomes_lanes(n: int) -> None:
    x = RANDOM.uniform(-1, 1, size=(n, 3))
    made, deep = run_deep(inside(rows("i", at(X, "i", "j"))), x)
    assert "lanes" in made and "for" not in made
    np.testing.assert_allclose(deep, np.exp(np.exp(np.stack([x, x]))), rtol=1e-14)


def test_a_loop_that_needs_its_order_stays() -> None:
    last = apply("maximum", apply("subtract", var("i"), const(1)), const(0))
    summed = ir.Assign("sum", apply("add", var("sum", f64), at(X, "i", 0)))
    for body in (
        inside(rows(const(0), at(X, "i", "j"))),  # the last one stores what stays
        inside(rows("i", at(X, "i", "j")), rows(last, at(X, "i", "j"))),  # two iterations store at one place
        inside(rows("i", at(X, "i", "j")), loop("k", 3, put(DEEP, "o", "i", "k", at(DEEP, "o", last, "k")))),
        (
            loop(
                "o",
                2,
                ir.Declare("sum", const(0.0, f64)),
                loop("i", "n", summed, rows("i", apply("add", at(X, "i", "j"), var("sum", f64)))),
                kind="parallel",
            ),
        ),
    ):
        assert straightened(body, TARGET, names(), Decisions()) == body


def test_a_store_in_one_branch_alone_keeps_the_loop_as_it_is() -> None:
    body = branching(also_stored=True)[0]
    test = body.body[0]
    assert isinstance(test, ir.If)
    one = (replace(body, body=(ir.If(test.test, test.then, ()),)),)
    assert straightened(one, TARGET, names(), Decisions()) == one


def test_stores_in_branches_at_places_that_may_be_one_keep_their_order() -> None:
    p, q = ir.Buffer("p", i64, (N,)), ir.Buffer("q", i64, (N,))
    test = apply("greater", at(R, "i"), const(0.0, f64))
    then = [put(Y, "i", at(place, "i"), const(value, f64)) for place, value in ((p, 1.0), (q, 2.0), (p, 3.0))]
    orelse = [put(Y, "i", at(place, "i"), const(value, f64)) for place, value in ((p, 4.0), (q, 5.0))]
    body = (loop("i", "n", ir.If(test, tuple(then), tuple(orelse)), kind="parallel"),)
    both(body, [R, p, q], [Y], RANDOM.normal(size=12), np.arange(12) % 3, np.arange(12) % 2)


def test_an_index_that_is_good_in_its_branch_alone_reads_nothing_elsewhere() -> None:
    """Compiled, with an index far outside where the branch is not taken."""

    @az.program
    def f(x: az.Array[az.f64, "m 3"], k: az.Array[az.i64, "n"], y: az.Array[az.f64, "n 3"]) -> az.Array[az.f64, "n 3"]:
        def one(k: Any, y: Any) -> Any:
            return az.cond(k >= 0, lambda: az.exp(x[k] / az.sqrt(y @ y)), lambda: y)

        return az.map(one, k, y)

    k = np.where(np.arange(37) % 3 == 0, np.arange(37) % 5, -(1 << 50))
    x, y = RANDOM.normal(size=(5, 3)), RANDOM.normal(size=(37, 3))
    wanted = np.where(k[:, None] >= 0, np.exp(x[k % 5] / np.linalg.norm(y, axis=1)[:, None]), y)
    for checks in (True, False):
        np.testing.assert_allclose(az.compile(f, checks=checks)(x, k, y), wanted, rtol=1e-14)


@pytest.mark.parametrize("test", [lambda a, b: a & b, lambda a, b: b & a, lambda a, b: a | b, lambda a, b: b | a])
def test_tests_that_are_known_in_part(test: Callable[[Any, Any], Any]) -> None:
    """An index of straight-line code is a constant, and a test of it is one; the rest of a test is not."""

    @az.program
    def f(x: az.Array[az.f64, "n 4"], c: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n 4"]:
        def total(row: az.Expr, t: az.Expr, j: az.Expr) -> az.Expr:
            return az.sum(az.generate(4, lambda k: az.where(test(row[k] > t, k <= j), row[k] * t, 0.0)))

        def entry(row: az.Expr, t: az.Expr, j: az.Expr) -> az.Expr:
            return az.where(test(row[j] > t, j != 1), row[j], total(row, t, j))

        return az.map(lambda row, t: az.generate(4, lambda j: entry(row, t, j)), x, c)

    x, c = RANDOM.normal(size=(301, 4)), RANDOM.normal(size=(301, 1))
    totals = np.where(test((x > c)[:, None], np.tri(4, dtype=bool)), (x * c)[:, None], 0.0).sum(2)
    compiled = az.compile(f)
    assert not WIDE or "straight-line code" in compiled.schedule
    wanted = np.where(test(x > c, np.arange(4) != 1), x, totals)
    np.testing.assert_allclose(compiled(x, c[:, 0]), wanted, rtol=1e-13, atol=1e-13)


def test_a_buffer_that_only_ever_receives_one_constant_is_that_constant() -> None:
    ones = ir.Buffer("ones", f64, (const(3),))
    fill = loop("f", 3, put(ones, "f", const(1.0, f64)), kind="parallel")
    use = loop(
        "i",
        "n",
        loop("j", 3, put(Y, "i", "j", apply("multiply", at(ones, "j"), apply("exp", apply("exp", at(X, "i", "j")))))),
        kind="parallel",
    )
    x = RANDOM.normal(size=(20, 3))
    made, (y,) = both((ir.Allocate(ones), fill, use), [X], [Y], x)
    assert "ones" not in made and "1.0" not in made
    np.testing.assert_allclose(y, np.exp(np.exp(x)), rtol=1e-14)


def test_a_map_over_rows_and_a_long_loop_stay_as_they_are() -> None:
    doubled = loop(
        "i", "n", loop("j", 3, put(Y, "i", "j", apply("add", at(X, "i", "j"), at(X, "i", "j")))), kind="parallel"
    )
    wide = ir.Buffer("wide", f64, (N, const(33)))
    total = ir.Assign("sum", apply("add", var("sum", f64), apply("exp", at(wide, "i", "j"))))
    kept = put(S, "i", var("sum", f64))
    long = loop("i", "n", ir.Declare("sum", const(0.0, f64)), loop("j", 33, total), kept, kind="parallel")
    for body in ((doubled,), (long,)):
        assert straightened(body, TARGET, names(), Decisions()) == body


def test_only_what_holds_for_all_floats_is_simplified() -> None:
    x, zero, one = var("x", f64), const(0.0, f64), const(1.0, f64)
    minus = const(-0.0, f64)
    assert simplified(apply("multiply", x, one)) == x and simplified(apply("add", minus, x)) == x
    assert simplified(apply("subtract", x, zero)) == x and simplified(apply("divide", x, one)) == x
    for kept in (
        apply("multiply", zero, x),  # NaN and infinities
        apply("add", x, zero),  # -0.0
        apply("subtract", zero, x),
        apply("divide", one, x),
    ):
        assert simplified(kept) == kept
    k = var("k")
    assert simplified(apply("multiply", const(0), k)) == const(0) and simplified(apply("add", k, const(0))) == k


def squares(scalar: Any) -> Any:
    """For each pair of matrices the square of their product, and a comparison of its rows."""
    matrices = az.Array[scalar, "n 2 2"]

    @az.program
    def f(a: matrices, b: matrices) -> tuple[matrices, az.Array[az.bool_, "n 2"]]:  # type: ignore[valid-type]
        def one(a: Any, b: Any) -> Any:
            c = a @ b
            return c @ c, c[0] < c[1]

        return az.map(one, a, b)

    return f


@pytest.mark.parametrize("scalar", [az.f32, az.f64, az.i32, az.i64])
def test_all_scalars_compiled(scalar: Any) -> None:
    compiled = az.compile(squares(scalar))
    assert "iterations side by side" in compiled.schedule
    for n in (0, 1, 7, 8, 65):
        a, b = RANDOM.integers(-5, 6, size=(2, n, 2, 2)).astype(scalar.dtype)
        found, less = compiled(a, b)
        c = a @ b
        np.testing.assert_array_equal(found, c @ c)
        np.testing.assert_array_equal(less, c[:, 0] < c[:, 1])
        assert found.dtype == scalar.dtype


def test_a_value_does_not_depend_on_its_place_or_on_threads() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n 3"]) -> az.Array[az.f64, "n 3"]:
        return az.map(lambda row: row * az.sin(row @ row) / az.exp(row[0]), x)

    x = np.tile(RANDOM.normal(size=3), (1003, 1))
    results = [az.compile(f, threads=threads)(x) for threads in (1, 2, 7)]
    assert all(np.array_equal(result, results[0]) for result in results)
    assert np.all(results[0] == results[0][0])


def test_it_can_be_switched_off() -> None:
    off = replace(TARGET, transformations=replace(ALL, unroll=False))
    x = RANDOM.normal(size=(9, 2, 2))
    loops = {target: ir.text(plain_loops.loops_of(squares(az.f64), target, [x, x])) for target in (TARGET, off)}
    assert "temporary" not in loops[TARGET] and "temporary" in loops[off]
    for target in (TARGET, off):
        found, _ = plain_loops.lowered(squares(az.f64), target, [x, x])
        np.testing.assert_allclose(found, x @ x @ x @ x, rtol=1e-12)


def test_a_row_of_a_loop_outside_is_read_as_it_is_in_a_branch() -> None:
    """It is in range wherever the branch stands; so what is made of it does not vary with the lanes."""

    @az.program
    def lower(l: az.Array[az.f64, "k m"], q: az.Array[az.f64, "k d"]) -> az.Array[az.f64, "k d d"]:
        def entry(b: az.Expr, r: az.Expr, c: az.Expr) -> az.Expr:
            diagonal = lambda: az.cond(r == c, lambda: az.exp(q[b, r]), lambda: 0.0)  # noqa: E731
            return az.cond(r > c, lambda: l[b, c * (2 * d - 1 - c) // 2 + r - c - 1], diagonal)

        d = q.shape[1]
        return az.generate((q.shape[0], d, d), entry)

    compiled = az.compile(lower, checks=False)
    assert re.search(r"= q2\[[a-s]\w*, [a-s]\w*\]", compiled.loops) and "select(" in compiled.loops, compiled.loops
    for k, d in ((2, 19), (3, 1), (0, 4), (2, 0)):
        l, q = RANDOM.random((k, d * (d - 1) // 2)), RANDOM.random((k, d))
        wanted = np.zeros((k, d, d))
        for b in range(k):
            wanted[b].T[np.triu_indices(d, 1)] = l[b]
            wanted[b] += np.diag(np.exp(q[b]))
        np.testing.assert_allclose(compiled(l, q), wanted, rtol=1e-15)


def test_a_grid_whose_code_would_be_long_stays_loops() -> None:
    """A relaxation until it settles: a small grid is held in registers, point by point, and a large one is an array."""

    def relaxed(side: int) -> Any:
        def one(b: az.Expr) -> az.Expr:
            def step(s: Any) -> Any:
                p = az.pad(s[0], 1)
                u = (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] + b) / 4.0
                return u, az.max(abs(u - s[0]))

            return az.while_loop(lambda s: s[1] > 1e-2, step, (0.0 * b, 1.0))[0]

        def many(b: Any) -> Any:
            return az.map(one, b)

        many.__annotations__["b"] = az.Array[az.f64, f"m {side} {side}"]
        return az.program(many)

    for side, straight in ((3, True), (12, False)):
        b = RANDOM.random((3, side, side))
        found = ir.text(plain_loops.loops_of(relaxed(side), TARGET, [b]))
        assert ("temporary" not in found) == straight, found
        assert len(found.splitlines()) < 400
