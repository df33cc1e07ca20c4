"""What a loop carries is combined last (``backends/schedule/loops/height_reduction.py``)."""

import re
from typing import Any

import numpy as np
import pytest
from plain_loops import apply, at, const, loop, put, var

import adze as az
from adze.backends import ir
from adze.backends.schedule.loops.height_reduction import shortened
from adze.core.primitive import lookup
from adze.core.types import f64

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
ONE = const(1.0, f64)
NUMBERS = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -np.inf, np.inf, np.nan])
X, Y = ir.Buffer("x", f64, (var("n"),)), ir.Buffer("y", f64, (var("n"),))


@az.program
def alignment(b: Vector, above: Vector, gap: az.f64) -> Any:
    """The state is wanted by the first of three operations."""

    def cell(left: az.Expr, given: Any) -> Any:
        corner, up = given
        score = az.maximum(0.0, az.maximum(corner, az.maximum(left - gap, up - gap)))
        return score, score

    return az.scan_loop(cell, 0.0, (b, above))[1]


@az.program
def two_states(b: Vector, above: Vector, gap: az.f64) -> Any:
    """One of the states is computed from the other one's next value, which so comes later."""

    def cell(state: Any, given: Any) -> Any:
        (left, across), (corner, up) = state, given
        across = az.minimum(left - gap, across + gap)
        left = az.minimum(az.minimum(across, corner), up)
        return (left, across), (left, across)

    return az.scan_loop(cell, (1.0, 2.0), (b, above))[1]


@az.program
def counted(b: Vector, above: Vector, gap: az.f64) -> Any:
    """Integers may be added in any order, and combined by logic."""

    def cell(state: Any, given: Any) -> Any:
        (count, seen), (corner, up) = state, given
        count = (count + (corner > gap).astype(az.i64)) + (up > gap).astype(az.i64)
        seen = ((seen | (corner > up)) & (up != gap)) & (corner != gap)
        return (count, seen), (count, seen)

    return az.scan_loop(cell, (0, False), (b, above))[1]


@az.program
def added(b: Vector, above: Vector, gap: az.f64) -> Any:
    """Sums and products of floats are rounded."""

    def cell(state: Any, given: Any) -> Any:
        (total, product), (corner, up) = state, given
        total, product = (total + corner) + up, (product * corner) * up
        return (total, product), (total, product)

    return az.scan_loop(cell, (0.0, 1.0), (b, above))[1]


def last(program: az.Program, name: str) -> str:
    """The value that the loops bind by several applications of a primitive."""
    found = re.findall(rf"= ({name}\({name}\(.*)", str(az.compile(program).loops))
    assert len(found) == 1
    return str(found[0])


def test_the_state_comes_last() -> None:
    (waits,) = re.findall(r"let (t\d+) = t\d+ - gap", str(az.compile(alignment).loops))[:1]
    assert re.fullmatch(rf"maximum\(maximum\(.*\), {waits}\)", last(alignment, "maximum"))


def test_of_two_states_the_later_one_comes_last() -> None:
    loops = str(az.compile(two_states).loops)
    (left,) = re.findall(r"let (t\d+) = t\d+ - gap", loops)
    assert re.search(rf"let t\d+ = minimum\(t\d+, {left}\)\n", loops)


@pytest.mark.parametrize("program", [alignment, two_states, counted, added])
def test_values(program: az.Program) -> None:
    rng = np.random.default_rng(1)
    for drawn in (rng.choice(NUMBERS, (2, 50)), rng.choice(NUMBERS[:5], (2, 50)), rng.standard_normal((2, 1000))):
        for gap in (0.0, -0.0, 0.5, np.nan):
            arguments = (*drawn, gap)
            found, wanted = az.compile(program)(*arguments), az.evaluate(program)(*arguments)
            for a, b in zip(*(each if isinstance(each, tuple) else (each,) for each in (found, wanted)), strict=True):
                np.testing.assert_array_equal(a, b)


def carried(*body: ir.Statement) -> ir.Function:
    """A loop over two arrays with a variable that it carries, and what is made of it."""
    whole = (ir.Declare("s", const(0.0, f64)), loop("i", var("n"), *body))
    return shortened(ir.Function("f", ("n",), (X,), (Y,), whole))


def test_what_is_assigned_in_between_is_read_before() -> None:
    """A value that mentions a variable, or an array, stays where it is."""
    i, s, t, u = var("i"), ir.Variable("s", f64), ir.Variable("t", f64), ir.Variable("u", f64)
    for first in (apply("maximum", s, at(X, i)), apply("maximum", at(Y, i), ONE)):
        body = (
            ir.Let("t", first),
            put(Y, i, s),
            ir.Assign("s", at(X, i)),
            ir.Let("u", apply("maximum", t, s)),
            ir.Assign("s", u),
        )
        kept = carried(*body).body[1]
        assert isinstance(kept, ir.For) and "t" in ir.bound_in(kept.body)


def test_a_value_that_is_used_twice_stays() -> None:
    i, s, t, u = var("i"), ir.Variable("s", f64), ir.Variable("t", f64), ir.Variable("u", f64)
    state, other = ir.Variable("a", f64), ir.Variable("b", f64)
    before = (ir.Let("a", s), ir.Let("b", at(X, i)), ir.Let("t", apply("maximum", state, other)))
    after = (ir.Let("u", apply("maximum", t, ONE)), ir.Assign("s", u))
    once, twice = carried(*before, *after).body[1], carried(*before, put(Y, i, t), *after).body[1]
    assert isinstance(once, ir.For) and isinstance(twice, ir.For)
    assert "t" not in ir.bound_in(once.body) and "t" in ir.bound_in(twice.body)
    wanted = ir.Apply(lookup("maximum"), (apply("maximum", other, ONE), state), f64, chained=True)
    assert once.body[2] == ir.Let("u", wanted)


@pytest.mark.parametrize("scalar", [az.f32, az.f64])
@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_extrema_in_chains(name: str, scalar: Any) -> None:
    """A state and what comes, of which each may be a zero of either sign, or not a number."""
    operation = getattr(az, name)

    @az.program
    def last(start: scalar, x: az.Array[scalar, 1]) -> Any:
        return az.scan_loop(lambda s, e: (operation(s, e), operation(s, e)), start, az.concatenate([x, x]))[1][1]

    compiled = az.compile(last.at(scalar, az.Array[scalar, 1]))
    for start in NUMBERS.astype(scalar.dtype):
        for x in NUMBERS.astype(scalar.dtype):
            found, wanted = compiled(start, x[None]), getattr(np, name)(start, x)
            np.testing.assert_array_equal(found, wanted)
            if start == x == 0:
                signs = np.signbit(start), np.signbit(x)
                assert np.signbit(found) == (any(signs) if name == "minimum" else all(signs))
