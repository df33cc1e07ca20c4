"""The first-order form: which functions reach an application, and what values are in parts.

That the form of every program means the same is in ``tests/laws/test_programs_higher_order.py``.
"""

from typing import Any, Generic, TypeVar

import numpy as np
import pytest
from programs.functions import List, Maybe

import adze as az
from adze.core.language import Unsupported
from adze.core.procedures import Procedure, procedures_of
from adze.core.program import instance_of
from adze.core.terms import Block
from adze.core.types import Named, f64, i64
from adze.interpreters.first_order import first_order, is_first_order

T = TypeVar("T")


def form(program: Any) -> Block:
    return first_order(instance_of(program).term).block


def procedures(program: Any) -> list[Procedure]:
    return procedures_of(form(program))


def constructs(block: Block) -> set[str]:
    inside = [constructs(inner) for operation in block.bindings for inner in operation.blocks]
    return {operation.op for operation in block.bindings}.union(*inside)


def test_what_has_no_functions_is_first_order_as_it_is() -> None:
    @az.program
    def plain(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(x * x)

    @az.program
    def chosen(x: az.f64) -> az.f64:
        return az.cond(x > 0, lambda: az.function(lambda y: y, az.f64), lambda: az.function(lambda y: -y, az.f64))(x)

    assert is_first_order(instance_of(plain).term)
    assert not is_first_order(instance_of(chosen).term)
    assert is_first_order(form(chosen))


def test_a_chosen_function_is_a_number_and_what_it_captures() -> None:
    """The variant is chosen once, the application branches on it: no function is left, and no data."""

    @az.program
    def program(x: az.f64, y: az.f64) -> az.f64:
        plus, times = az.function(lambda z: z + y, az.f64), az.function(lambda z: z * y * y, az.f64)
        f = az.fori_loop(0, 3, lambda i, g: az.cond(i == 1, lambda: plus, lambda: times), plus)
        return f(x)

    made = form(program)
    assert constructs(made) <= {"primitive", "cond", "loop"}
    [loop] = [operation for operation in made.bindings if operation.op == "loop"]
    assert loop.types == (i64, f64, f64)  # which of the two, and y for each
    assert az.compile(program)(1.5, 2.0) == az.evaluate(program)(1.5, 2.0) == 6.0


def test_one_function_is_called_with_what_it_captures() -> None:
    @az.program
    def power(x: az.f64, n: az.i64) -> az.f64:
        return az.fix(lambda self, k: az.cond(k == 0, lambda: 1.0, lambda: x * self(k - 1)), az.i64, result=az.f64)(n)

    [procedure] = procedures(power)
    assert procedure.block.binders == (f64, i64) and procedure.results == (f64,)


def test_procedures_as_text() -> None:
    @az.program
    def reverse(xs: List[az.f64]) -> List[az.f64]:
        onto = az.fix(
            lambda self, xs, done: az.case(xs, Nil=lambda: done, Cons=lambda h, t: self(t, List.Cons(h, done))),
            List[az.f64],
            List[az.f64],
            result=List[az.f64],
        )
        return onto(xs, List[az.f64].Nil())

    assert az.pretty(reverse, style="procedures").splitlines() == [
        "def reverse(xs: List[f64]) -> List[f64]:",
        "  return function(xs, List.Nil())",
        "",
        "def function(xs: List[f64], done: List[f64]) -> List[f64]:",
        "  return match xs:",
        "    case Nil(): done",
        "    case Cons(head, tail): function(tail, List.Cons(head, done))",
    ]


def test_functions_that_meet_are_one_procedure_each() -> None:
    """A function with a function as its argument: both are known, and a scalar is all that is handed over."""

    @az.program
    def program(c: az.f64) -> az.f64:
        @az.fix
        def root(self: Any, f: az.Function[[az.f64], az.f64], low: az.f64, high: az.f64) -> az.f64:
            middle = (low + high) / 2

            def narrower() -> Any:
                return az.cond(f(middle) < 0, lambda: self(f, middle, high), lambda: self(f, low, middle))

            return az.cond(high - low < 1e-9, lambda: middle, narrower)

        return root(lambda x: x * x - c, 0.0, 8.0)

    [procedure] = procedures(program)
    assert procedure.block.binders == (f64, f64, f64)
    assert abs(az.compile(program)(2.0) - 2**0.5) < 1e-8


def test_what_does_not_recur_is_its_parts() -> None:
    @az.program
    def halves(m: Maybe[az.f64], p: tuple[az.f64, az.i64]) -> Maybe[tuple[az.f64, az.i64]]:
        pair = Maybe[tuple[az.f64, az.i64]]
        return az.case(m, Nothing=lambda: pair.Nothing(), Just=lambda x: pair.Just((x + p[0], p[1])))

    made = form(halves)
    assert made.binders == (i64, f64, f64, i64) and made.types == (i64, f64, i64)
    for given in (Maybe.Nothing(), Maybe.Just(2.0)):
        assert az.compile(halves)(given, (0.5, 3)) == az.evaluate(halves)(given, (0.5, 3))


def test_data_that_recur_are_one_value() -> None:
    """Tuples in them are fields of their own; a variant that holds a list is a cell, too."""

    @az.program
    def program(xs: List[tuple[az.f64, az.i64]], m: Maybe[List[az.f64]]) -> az.f64:
        second = az.case(m, Nothing=lambda: 0.0, Just=lambda ys: az.case(ys, Nil=lambda: 1.0, Cons=lambda y, _: y))
        return second + az.case(xs, Nil=lambda: 0.0, Cons=lambda p, _: p[0])

    first, second = form(program).binders
    assert isinstance(first, Named) and isinstance(second, Named)
    assert [str(type) for type in first.fields("Cons").values()] == ["f64", "i64", str(first)]
    given = List.Cons((2.0, 3), List.Nil()), Maybe.Just(List.Cons(0.5, List.Nil()))
    assert az.compile(program)(*given) == 2.5


def test_a_type_that_grows_without_end_is_refused() -> None:
    @az.data
    class Nested(Generic[T]):
        class Nil: ...

        class Cons:
            head: T
            tail: "Nested[tuple[T, T]]"

    @az.program
    def depth(xs: Nested[az.f64]) -> az.f64:
        return az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: head)

    with pytest.raises(Unsupported, match=r"Nested contains itself at ever larger types, by its field Cons\.tail"):
        az.compile(depth)(Nested.Nil())


def test_functions_with_arrays_of_sizes_that_the_run_decides() -> None:
    """One is called with its array. Of several, the value has no room for it: each makes it again where it can."""

    @az.program
    def one(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        kept = az.filter(lambda t: t > 0, x)
        go = az.fix(lambda self, i: az.cond(i < 0, lambda: 0.0, lambda: kept[i] + self(i - 1)), az.i64, result=az.f64)
        return go(k)

    @az.program
    def several(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        kept = az.filter(lambda t: t > 0, x)
        first, last = az.function(lambda i: kept[i], az.i64), az.function(lambda i: x[i], az.i64)
        return az.fori_loop(0, 2, lambda j, f: az.cond(j == k, lambda: first, lambda: last), last)(0)

    @az.program
    def searched(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        """The size is that of a search, which may not end."""
        count = az.while_loop(lambda i: x[i] > 0, lambda i: i + 1, 0)
        head = az.generate(count, lambda i: az.while_loop(lambda y: y > 1, lambda y: y / 2, x[i]))
        first, last = az.function(lambda i: head[i], az.i64), az.function(lambda i: x[i], az.i64)
        return az.fori_loop(0, 2, lambda j, f: az.cond(j == k, lambda: first, lambda: last), last)(0)

    x = np.array([0.5, -1.0, 2.0, 4.0])
    assert az.compile(one)(x, 2) == 6.5
    assert [float(az.compile(several)(x[::-1], k)) for k in (0, 1)] == [4.0, 4.0]
    assert [float(az.compile(several)(x[1:], k)) for k in (0, 1)] == [-1.0, 2.0]
    assert az.evaluate(searched)(x, 1) == 0.5
    with pytest.raises(Unsupported, match=r"one of several functions captures an array of type .* whose size the run"):
        az.compile(searched)(x, 1)


def test_functions_do_not_cross_the_boundary() -> None:
    @az.program
    def applied(f: az.Function[[az.f64], az.f64], x: az.f64) -> az.f64:
        return f(x)

    with pytest.raises(Unsupported, match=r"takes and gives no functions.*pass a program as a static parameter"):
        az.compile(applied)(lambda x: x, 1.0)


def test_a_function_that_nothing_is() -> None:
    """A list of functions that is always empty: what would apply one is never run."""

    @az.program
    def program(x: az.f64) -> az.f64:
        fs = List[az.Function[[az.f64], az.f64]].Nil()
        go = az.fix(
            lambda self, fs, y: az.case(fs, Nil=lambda: y, Cons=lambda f, rest: self(rest, f(y))),
            List[az.Function[[az.f64], az.f64]],
            az.f64,
            result=az.f64,
        )
        return go(fs, x)

    assert az.compile(program)(1.5) == 1.5
