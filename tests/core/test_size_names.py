"""Names of sizes in the types of functions: those of the program they are written in, wherever it is inlined."""

from typing import Any, Generic, TypeVar

import numpy as np
import pytest

import adze as az

T = TypeVar("T")
Row = az.Array[az.f64, "d"]


@az.data
class List(Generic[T]):
    class Nil: ...

    class Cons:
        head: T
        tail: "List[T]"


@az.fix
def squares_from(self: Any, v: Row, i: az.i64) -> az.f64:
    return az.cond(i >= v.shape[0], lambda: 0.0, lambda: v[i] * v[i] + self(v, i + 1))


@az.program
def squares(x: Row) -> az.f64:
    @az.fix
    def go(self: Any, v: Row, i: az.i64) -> az.f64:
        return az.cond(i >= v.shape[0], lambda: 0.0, lambda: v[i] * v[i] + self(v, i + 1))

    return go(x, 0)


@az.program
def both(x: Row, y: az.Array[az.f64, "m"]) -> az.f64:
    @az.fix
    def go(self: Any, v: az.Array[az.f64, "m"], i: az.i64) -> az.f64:
        return az.cond(i >= v.shape[0], lambda: 0.0, lambda: v[i] + self(v, i + 1))

    return go(x + y, 0)


@az.program
def chained(x: Row) -> az.f64:
    made = List[Row].Cons(x, List[Row].Cons(x * x, List[Row].Nil()))

    @az.fix
    def total(self: Any, xs: List[Row]) -> az.f64:
        return az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: az.sum(head) + self(tail))

    return total(made)


x = np.arange(4.0)


@pytest.mark.parametrize(
    ("f", "wanted"),
    [
        (lambda x: squares(x) * 2.0, 28.0),
        (lambda x: squares(x) + squares(x[1:-1]), 19.0),  # another size in each call
        (lambda x: squares_from(x[1:], 0), 14.0),  # a name that is the parameter's of no program
        (lambda x: az.cond(x[0] < 1.0, lambda: squares_from(x, 0), lambda: 0.0), 14.0),
        (lambda x: both(x, x), 12.0),  # one size with two names
        (lambda x: az.sum(az.vmap(squares)(x[:, None] + x)), 184.0),
    ],
)
def test_names_are_those_of_the_program_they_are_written_in(f: Any, wanted: float) -> None:
    assert az.evaluate(f)(x) == wanted
    assert az.evaluate(f, vectorize=False)(x) == wanted
    step = 1e-6 * x
    difference = (az.evaluate(f)(x + step) - az.evaluate(f)(x - step)) / 2e-6
    np.testing.assert_allclose(az.evaluate(az.grad(f))(x) @ x, difference, atol=1e-7)
    np.testing.assert_allclose(az.evaluate(az.jvp(f))(x, x)[1], difference, atol=1e-7)


@pytest.mark.parametrize("f", [lambda x: squares(x) * 2.0, lambda x: squares(x) + squares(x[1:-1]), both])
def test_compiled_code_takes_such_functions(f: Any) -> None:
    arguments = (x, x) if f is both else (x,)
    assert az.compile(f)(*arguments) == az.evaluate(f)(*arguments)


def test_types_of_data_that_a_program_makes_have_its_sizes() -> None:
    assert az.evaluate(lambda x: chained(x) + chained(x[1:]))(x) == 40.0


def test_a_call_of_an_own_name_binds_it_for_all_calls() -> None:
    @az.program
    def calls(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "m"]) -> az.f64:
        return squares_from(x, 0) + squares_from(y, 0)

    assert az.evaluate(calls)(x, x) == 28.0
    with pytest.raises(ValueError, match=r"axis 0 of f64\[d\] is d = 4, got 3"):
        az.evaluate(calls)(x, x[1:])


def test_a_size_that_the_run_computes_is_refused() -> None:
    @az.program
    def first(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        return squares_from(az.generate(k, lambda i: x[i]), 0)

    with pytest.raises(TypeError, match=r"first: the size d of .*squares_from, of type f64\[d\], cannot be found"):
        az.evaluate(first)(x, 2)


def test_trace_and_print_name_the_sizes_of_the_arguments() -> None:
    assert "f64[n]" in str(az.pretty(az.program(lambda x: squares(x) * 2.0).at(az.Array[az.f64, "n"])))
    assert "14.0" in str(az.trace(lambda x: squares(x))(x))
