"""Loops in order count quotients and remainders (``backends/schedule/loops/strength_reduction.py``)."""

from typing import Any

import numpy as np
import pytest
from plain_loops import apply, const, loop, put, run, var

import adze as az
from adze.backends import ir
from adze.backends.schedule.loops.strength_reduction import stepped
from adze.core.types import i64

pytestmark = pytest.mark.unguarded

Matrix = az.Array[az.f64, "h w"]
I = var("i")
COLUMNS, ROWS = ir.Buffer("columns", i64, (var("n"),)), ir.Buffer("rows", i64, (var("n"),))


def counting(kind: str, offset: ir.Expression, divisor: ir.Expression, place: ir.Expression = I) -> ir.Function:
    """A loop that stores the quotient and the remainder of its counter with something added."""
    moved = apply("add", place, offset)
    body = (
        ir.Let("moved", moved),
        ir.Let("row", apply("floor_divide", var("moved"), divisor)),
        ir.Let("column", apply("remainder", var("moved"), divisor)),
        put(ROWS, "i", var("row")),
        put(COLUMNS, "i", var("column")),
    )
    return ir.Function("counting", ("n", "w"), (), (ROWS, COLUMNS), (loop("i", "n", *body, kind=kind),))


def divides(function: ir.Function) -> bool:
    """Whether a loop of a function still divides."""
    loops = [each for each in ir.walk(function.body) if isinstance(each, ir.For)]
    inside = [part for each in loops for s in ir.walk(each.body) for e in ir.expressions_of(s) for part in ir.inside(e)]
    return any(isinstance(part, ir.Apply) and part.primitive.name == "floor_divide" for part in inside)


@pytest.mark.parametrize("offset", [-7, -1, 0, 1, 5, 11])
@pytest.mark.parametrize("n", [0, 1, 23])
@pytest.mark.parametrize("w", [0, 1, 2, 5, 100])
def test_what_is_counted_is_what_is_divided(w: int, n: int, offset: int) -> None:
    function = counting("sequential", const(offset), var("w"))
    made = stepped(function)
    assert not divides(made) and divides(function)
    ir.check(made)
    rows, columns = np.zeros(n, np.int64), np.zeros(n, np.int64)
    run(made, [rows, columns], [n, w])
    moved = np.arange(n) + offset
    np.testing.assert_array_equal(rows, moved // w if w else 0 * moved)
    np.testing.assert_array_equal(columns, moved % w if w else 0 * moved)


@pytest.mark.parametrize("offset", [2**31, -20 - 2**40, 2**63 - 9, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("w", [0, 1, 2, 5, 100, 2**62 + 1, 2**63 - 1])
def test_what_is_added_may_wrap_around(w: int, offset: int) -> None:
    n, function = 23, counting("sequential", const(offset), var("w"))
    made = stepped(function)
    assert not divides(made) and divides(function)
    ir.check(made)
    rows, columns = np.zeros(n, np.int64), np.zeros(n, np.int64)
    with np.errstate(over="ignore"):
        run(made, [rows, columns], [n, w])
    moved = [(k + offset + 2**63) % 2**64 - 2**63 for k in range(n)]
    wanted = [divmod(each, w) if w else (0, 0) for each in moved]
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == wanted


def test_a_remainder_of_what_wraps_around() -> None:
    @az.program
    def mixed(x: az.Array[az.f64, "n"], o: az.i64, d: az.i64) -> az.i64:
        n = x.shape[0]
        return az.fori_loop(0, 2 * n, lambda i, s: s * 31 + (i + o) % n * 7 + (i - o) // d, 0)

    compiled = az.compile(mixed)
    for o in (0, -3, 2**63 - 3, -(2**63) + 2):
        for d in (1, -1, 4, -3):
            assert compiled(np.ones(7), o, d) == az.evaluate(mixed)(np.ones(7), o, d)


def test_what_is_added_may_be_large_though_it_is_made_of_sizes() -> None:
    @az.program
    def bounded(x: az.Array[az.i8, "n"]) -> az.i64:
        n = x.shape[0]
        return az.fori_loop(0, 5, lambda i, s: s * 31 + (i + az.maximum(n, 2**63 - 3)) // n, 0)

    @az.program
    def volume(
        x: az.Array[az.i8, "n"], y: az.Array[az.i8, "m"], z: az.Array[az.i8, "k"], d: az.Array[az.i8, "d"]
    ) -> az.i64:
        last = x.shape[0] * y.shape[0] * z.shape[0] - 1
        return az.fori_loop(0, 5, lambda i, s: s * 31 + (i + last) // d.shape[0], 0)

    three, long = np.zeros(3, np.int8), np.zeros(2**21, np.int8)
    assert az.compile(bounded)(three) == az.evaluate(bounded)(three)
    assert az.compile(volume)(long, long, long, three) == az.evaluate(volume)(long, long, long, three)


@pytest.mark.parametrize(
    "function",
    [
        counting("lanes", const(0), var("w")),
        counting("parallel", const(0), var("w")),
        counting("sequential", const(0), const(-3)),
        counting("sequential", const(0), apply("subtract", var("w"), const(3))),
        counting("sequential", I, var("w")),
        counting("sequential", const(0), var("w"), apply("multiply", I, const(2))),
        counting("sequential", const(0), apply("add", I, const(1))),
    ],
    ids=["lanes", "parallel", "negative", "perhaps negative", "twice the counter", "strided", "by the counter"],
)
def test_what_does_not_step_is_divided(function: ir.Function) -> None:
    assert stepped(function).body == function.body


PROGRAMS: dict[str, Any] = {
    "cumsum": (lambda x: az.cumsum(az.ravel(x)), lambda x: np.cumsum(x)),
    "bins": (
        lambda x: az.bincount(az.ravel(x).astype(az.i64), length=50),
        lambda x: np.bincount(x.ravel().astype(int), minlength=50),
    ),
    "argmax": (lambda x: az.argmax(az.ravel(x)), lambda x: np.argmax(x)),
    "three axes": (
        lambda x: az.cumsum(az.ravel(az.stack([x, 2.0 * x], 2))),
        lambda x: np.cumsum(np.stack([x, 2.0 * x], 2)),
    ),
    "windows": (lambda x: az.cumsum(az.ravel(x)[3:]), lambda x: np.cumsum(x.ravel()[3:])),
}


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (7, 3), (1, 40), (60, 70)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_array_as_one_row(name: str, shape: tuple[int, int]) -> None:
    ours, numpy = PROGRAMS[name]
    x = np.random.default_rng(3).integers(0, 50, shape).astype(np.float64)
    if name == "windows" and x.size < 3:
        return

    @az.program
    def f(x: Matrix) -> Any:
        return ours(x)

    compiled = az.compile(f)
    np.testing.assert_allclose(compiled(x), numpy(x), rtol=1e-12)
    stored = [line for line in compiled.loops.splitlines() if "temporary" in line and "i64[h * w]" in line]
    assert not stored  # no quotient or remainder is


@pytest.mark.parametrize("divisor", [3, -3, -1, 7])
def test_ranges_of_quotients_by_any_constant(divisor: int) -> None:
    """What a negative number divides is no row; reads out of range give zero where checks are left out."""

    @az.program
    def f(x: az.Array[az.f64, "3"]) -> Any:
        return az.cumsum(az.generate(6, lambda i: x[i // divisor] + 10 * x[i % divisor]))

    x, places = np.array([1.0, 2.0, 3.0]), np.arange(6)
    first, second = [np.where((k >= 0) & (k < 3), x[k % 3], 0.0) for k in (places // divisor, places % divisor)]
    np.testing.assert_array_equal(az.compile(f, checks=False)(x), np.cumsum(first + 10 * second))
