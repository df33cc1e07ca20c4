"""Constants that procedures take and give, and what of both is not used."""

from typing import Any

import numpy as np
import pytest
from programs.functions import List, linked

import adze as az
from adze.core.procedures import procedures_of
from adze.core.program import instance_of
from adze.core.terms import Block
from adze.core.types import f64, i64
from adze.interpreters.first_order import first_order
from adze.interpreters.first_order.cells import in_cells
from adze.interpreters.first_order.constants import with_constants
from adze.interpreters.first_order.unused import without_unused

Row = List[az.f64]


def in_less(program: Any) -> Block:
    return without_unused(with_constants(in_cells(first_order(instance_of(program).term).block)))


def signatures(program: Any) -> list[tuple[Any, Any]]:
    return [(each.parameters, each.results) for each in procedures_of(in_less(program))]


def along(*types: Any, step: Any, end: Any, result: Any = az.f64) -> Any:
    """A recursion along a list, with other parameters."""
    return az.fix(
        lambda self, xs, *rest: az.case(xs, Nil=lambda: end(*rest), Cons=lambda h, t: step(self, h, t, *rest)),
        Row,
        *types,
        result=result,
    )


def test_a_number_that_is_passed_along_is_no_parameter() -> None:
    """The calls from outside pass the same one; with another one it stays."""

    def apart(one: float, other: float) -> az.Program:
        @az.program
        def program(xs: Row) -> az.f64:
            scaled = along(az.f64, step=lambda self, h, t, s: s * h + self(t, s), end=lambda s: 0.0)
            return scaled(xs, one) - scaled(xs, other)

        return program

    assert signatures(apart(2.0, 2.0)) == [((i64,), (f64,))]
    assert signatures(apart(2.0, 3.0)) == signatures(apart(0.0, -0.0)) == [((i64, f64), (f64,))]


def test_a_sum_of_zeros_is_zero() -> None:
    """The walk along the list is not made, for it ends."""
    zeros = along(step=lambda self, h, t: 0.0 + self(t), end=lambda: 0.0)

    @az.program
    def program(xs: Row, y: az.f64) -> az.f64:
        return y + zeros(xs)

    assert procedures_of(in_less(program)) == []


def test_a_recursion_that_may_have_no_end_stays() -> None:
    """What it gives is known, but not that it gives it."""
    same = along(step=lambda self, h, t: 0.0 + self(Row.Cons(h, t)), end=lambda: 0.0)

    @az.program
    def program(xs: Row) -> az.f64:
        return az.sin(same(xs))

    assert signatures(program) == [((i64,), ())]
    assert az.evaluate(program)(Row.Nil()) == 0.0


def test_a_requirement_stays() -> None:
    @az.program
    def program(xs: Row, a: az.Array[az.f64, 3]) -> az.f64:
        along(az.i64, step=lambda self, h, t, k: self(t, k + 1), end=lambda k: a[k])(xs, 0)
        return 1.0

    assert signatures(program) == [((i64, i64), ())]


def test_what_only_goes_round_is_no_parameter() -> None:
    """Two lists that are walked along together, of which one decides alone; and a counter that nobody looks at."""
    both = along(
        Row,
        az.i64,
        step=lambda self, h, t, ys, n: h + self(t, az.case(ys, Nil=lambda: ys, Cons=lambda h, t: t), n + 1),
        end=lambda ys, n: 0.0,
    )

    @az.program
    def program(xs: Row, ys: Row) -> az.f64:
        return both(xs, ys, 0)

    assert signatures(program) == [((i64,), (f64,))]


def test_a_result_that_nobody_uses_is_none() -> None:
    """Of two sums one is used; the branches of the choice give that one alone."""
    sums = along(
        step=lambda self, h, t: (lambda rest: (h + rest[0], h * h + rest[1]))(self(t)),
        end=lambda: (0.0, 1.0),
        result=(az.f64, az.f64),
    )

    @az.program
    def program(xs: Row) -> az.f64:
        return sums(xs)[1]

    assert signatures(program) == [((i64,), (f64,))]


def test_only_the_branch_that_is_taken_counts() -> None:
    """A flag that is always set: what the other branch would pass is not looked at."""
    down = along(
        az.bool_,
        az.f64,
        step=lambda self, h, t, flag, s: az.cond(flag, lambda: h * s + self(t, flag, s), lambda: self(t, flag, s + 1)),
        end=lambda flag, s: 0.0,
    )

    @az.program
    def program(xs: Row) -> az.f64:
        return down(xs, True, 1.0)

    assert signatures(program) == [((i64,), (f64,))]


@pytest.mark.unguarded
def test_compiled_gradients_of_lists_pass_no_cotangent_along() -> None:
    """The gradient by a list of a sum of squares, and the sum of that: one procedure, which takes a list."""
    squares = along(step=lambda self, h, t: h * h + self(t), end=lambda: 0.0)
    total = along(step=lambda self, h, t: h + self(t), end=lambda: 0.0)

    @az.program
    def loss(xs: Row) -> az.f64:
        return squares(xs)

    @az.program
    def both(xs: Row) -> tuple[az.f64, az.f64]:
        value, slope = az.value_and_grad(loss)(xs)
        return value, total(slope)

    x = np.random.default_rng(0).standard_normal(50)
    compiled = az.compile(both, threads=1)
    value, slope = compiled(linked(x))
    np.testing.assert_allclose([value, slope], [x @ x, 2 * x.sum()], rtol=1e-13)
    first = str(compiled.loops).split("procedure 0:")[1].splitlines()[1]
    assert first.strip().startswith("take ") and first.count(":") == 1
