"""Arrays in the memory of others: which are, which must not be, and results stay what they are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from programs import numbers

import adze as az
from adze.backends import ir
from adze.backends.schedule.loops.shared_memory import sharing_memory
from adze.backends.schedule.nests.elementwise import elementwise
from adze.core.types import f64, i64

n, i, j = ir.Variable("n"), ir.Variable("i"), ir.Variable("j")


def array(name: str, *extents: ir.Expression) -> ir.Buffer:
    return ir.Buffer(name, f64, extents)


OLD, NEW, OTHER = array("old", n), array("new", n), array("other", n)
ONE = ir.Constant(1.0, f64)


def fill(buffer: ir.Buffer, value: ir.Expression = ONE) -> ir.For:
    return ir.For("i", n, "sequential", (ir.Store(buffer, (i,), value),))


def at(buffer: ir.Buffer, index: ir.Expression = i) -> ir.Load:
    return ir.Load(buffer, (index,))


def shared(*body: ir.Statement, results: Sequence[ir.Buffer] = ()) -> set[str]:
    """The names of the arrays that are left of a function with these temporaries and results."""
    allocated = [ir.Allocate(each) for each in (OLD, NEW, OTHER) if each not in results]
    made = sharing_memory(ir.Function("f", ("n",), (), tuple(results), (*allocated, *body)), PAIRS)
    return ir.mentioned(made.body)[1]


PAIRS = frozenset([("old", "new"), ("new", "other")])
USED = fill(array("last", n), at(NEW))  # something that keeps the new array


def test_an_array_that_is_read_where_another_is_written() -> None:
    assert shared(fill(OLD), fill(NEW, at(OLD)), USED) == {"new", "other", "last"}
    assert shared(fill(OLD), fill(NEW, at(OLD)), results=[NEW]) == {"new", "other"}


def test_chains_of_arrays_are_one() -> None:
    body = fill(OLD), fill(NEW, at(OLD)), fill(OTHER, at(NEW))
    assert shared(*body) == shared(*body, results=[OTHER]) == {"other"}


@pytest.mark.parametrize(
    "body",
    [
        (fill(NEW, at(OLD)), fill(OTHER, at(OLD))),  # the old one is read later
        (fill(NEW), fill(NEW, at(OLD))),  # the new one is written before
        (fill(NEW, at(OLD, n - 1 - i)),),  # at another place
        (fill(NEW, at(OLD) + at(OLD, ir.Constant(0))),),
        (fill(NEW, ir.Load(OLD, (i,), (0,))),),  # a read that is moved into the array
        (ir.For("i", n, "sequential", (*fill(NEW).body, *fill(OTHER, at(OLD)).body)),),  # read after the write
        (ir.For("i", n, "sequential", fill(NEW, at(OLD) + at(NEW)).body),),  # the new one is read
        (ir.If(n < 3, (fill(NEW),), (fill(NEW, at(OLD, j)),)),),  # a branch that reads elsewhere
    ],
    ids=str,
)
def test_arrays_that_stay_apart(body: tuple[ir.Statement, ...]) -> None:
    assert shared(fill(OLD), *body, USED) >= {"old", "new"}


def test_branches_may_each_read_and_write() -> None:
    one, two = fill(NEW, at(OLD)), fill(NEW, at(OLD) * at(OLD))
    assert shared(fill(OLD), ir.If(n < 3, (one,), (two,)), USED) == {"new", "other", "last"}


def test_nests_say_what_is_made_element_by_element() -> None:
    axes = ir.Axis(ir.Variable("a"), n), ir.Axis(ir.Variable("b"), n)
    a, b = (axis.variable for axis in axes)
    square, result = array("square", n, n), array("result", n, n)

    def pairs(write: Sequence[ir.Expression], *reads: Sequence[ir.Expression]) -> set[tuple[str, str]]:
        value: ir.Expression = ONE
        for read in reads:
            value = value + ir.Load(square, tuple(read))
        nest = ir.Nest(axes, (ir.Store(result, tuple(write), value),), outermost=True)
        return set(elementwise(ir.Function("f", ("n",), (), (result,), (ir.Allocate(square), nest))))

    assert pairs((a, b), (a, b)) == pairs((b, a), (b, a), (b, a)) == {("square", "result")}
    assert pairs((a, b), (b, a)) == pairs((a, b), (a, b), (a, a)) == pairs((a, a), (a, a)) == set()
    assert pairs((a, ir.Constant(0, i64)), (a, ir.Constant(0, i64))) == set()


@pytest.mark.unguarded
def test_a_softmax_has_no_array_but_its_result() -> None:
    @az.program
    def softmax(x: az.Array[az.f64, "n m"]) -> az.Array[az.f64, "n m"]:
        e = az.exp(x - az.max(x))
        return e / az.sum(e)

    x: Any = numbers(300, 70)
    compiled, e = az.compile(softmax, threads=1), np.exp(x - x.max())
    np.testing.assert_allclose(compiled(x), e / e.sum(), rtol=1e-13)
    assert x.nbytes <= compiled.peak_bytes(x) < x.nbytes + 8192
