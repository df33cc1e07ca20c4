"""Deep nests: loops in one another, up to 64, take code and time in proportion to their number.

Extents are 1 in the run, which the code does not know: so a nest is one evaluation of its innermost element, and its
derivative is known. Growth is counted in bindings of terms, and in calls of functions.
"""

import math
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.backends.schedule.terms.distribution import schedule
from adze.core.program import instance_of
from adze.interpreters.embed import Embed, rebuilt

pytestmark = pytest.mark.unguarded


def rows(depth: int) -> az.Program:
    """Maps over the rows of an array, down to its elements."""

    def element(row: Any, left: int) -> Any:
        return az.map(lambda inner: element(inner, left - 1), row) if left else az.sin(row)

    def f(x: az.Expr) -> Any:
        return az.sum(element(x, depth))

    f.__annotations__["x"] = az.Array[az.f64, " ".join(["n"] * depth)]
    return az.program(f)


def products(depth: int) -> az.Program:
    """An array whose elements use all indices."""

    def element(x: Any, product: Any, left: int) -> Any:
        if not left:
            return az.sin(product)
        return az.generate(x.shape[0], lambda i: element(x, product * x[i], left - 1))

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(element(x, 1.0, depth))

    return f


def chains(depth: int) -> az.Program:
    """Sums in one another, with a costly scalar at each level."""

    def total(x: Any, s: Any, left: int) -> Any:
        return az.sum(az.map(lambda v: total(x, az.sin(s) * v, left - 1), x)) if left else s

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.f64:
        return total(x, x[0], depth)

    return f


def branches(depth: int) -> az.Program:
    """Maps with a branch at each level."""

    def row(x: Any, s: Any, left: int) -> Any:
        if not left:
            return s
        return az.map(lambda v: az.cond(v > 0, lambda: az.sum(row(x, s * v, left - 1)), lambda: az.sin(v)), x)

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(row(x, 1.0, depth))

    return f


def loops(depth: int) -> az.Program:
    """Loops whose states pass through one another."""

    def state(x: Any, left: int) -> Any:
        if not left:
            return az.sum(az.sin(x))
        return az.fori_loop(0, az.size(x), lambda i, s: s + state(x * s, left - 1), az.array(0.5, az.f64))

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.f64:
        return state(x, depth)

    return f


def chained(x: float, depth: int) -> tuple[float, float]:
    value, derivative = x, 1.0
    for _ in range(depth):
        value, derivative = math.sin(value) * x, math.cos(value) * derivative * x + math.sin(value)
    return value, derivative


X = 0.9
NESTS: dict[Callable[[int], az.Program], Callable[[int], tuple[float, float]]] = {
    rows: lambda depth: (math.sin(X), math.cos(X)),
    products: lambda depth: (math.sin(X**depth), depth * X ** (depth - 1) * math.cos(X**depth)),
    chains: lambda depth: chained(X, depth),
    branches: lambda depth: (X**depth, depth * X ** (depth - 1)),
    loops: lambda depth: (depth / 2 + math.sin(X / 2**depth), math.cos(X / 2**depth) / 2**depth),
}


def argument(nest: Any, depth: int) -> Any:
    return np.full((1,) * depth if nest is rows else 1, X)


@pytest.mark.parametrize(
    ("nest", "derivative"), [(rows, True), (products, True), (chains, False), (branches, False), (loops, False)]
)
def test_nests_of_32_loops(nest: Any, derivative: bool) -> None:
    f, x = nest(32), argument(nest, 32)
    made, wanted = az.compile(az.grad(f) if derivative else f)(x), NESTS[nest](32)[derivative]
    np.testing.assert_allclose(np.ravel(made), [wanted], rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("nest", [products, chains])
def test_terms_grow_with_the_depth(nest: Any) -> None:
    """Of what is stored for all loops around, a gradient would have as many times more as its nest is deep."""
    counts = [schedule(az.simplify(az.grad(nest(depth)))).count() for depth in (10, 20)]
    assert counts[1] < 2 * counts[0]


def calls_of(run: Callable[[], Any]) -> int:
    """How many of Python's functions are called."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.rest
def test_loops_are_looked_into_as_often_as_they_are_deep() -> None:
    """Not twice as often for each loop around, to see what their states become."""
    counts = [calls_of(partial(az.simplify, az.grad(loops(depth)))) for depth in (6, 12)]
    assert counts[1] < 5 * counts[0]


@pytest.mark.parametrize("nest", [products, chains])
def test_work_grows_with_the_depth(nest: Any) -> None:
    """To look at each update with all around it again would take the cube of the depth."""
    terms = [az.simplify(az.grad(nest(depth))) for depth in (8, 16)]
    counts = [calls_of(partial(az.simplify, term)) for term in terms]
    assert counts[1] < 3 * counts[0]


@pytest.mark.parametrize("nest", [chains, loops])
def test_a_loop_is_looked_into_once_not_for_each_loop_around(nest: Any) -> None:
    """To see what it needs from outside, and whether it is equal to another."""
    terms = [instance_of(nest(depth)).term for depth in (16, 32)]
    counts = [calls_of(partial(rebuilt, term, Embed)) for term in terms]
    assert counts[1] < 2.1 * counts[0]


@pytest.mark.rest
def test_what_no_memory_holds_is_not_stored() -> None:
    """Loops outside of it are left as they are, and the schedule says so."""
    x = np.linspace(0.5, 1.5, 2)
    for depth, told in ((5, False), (10, True)):
        run = az.compile(az.grad(products(depth)))
        assert ("elements would be stored" in run.schedule) == told
        step = 1e-6 * np.eye(2)
        by = [float(az.evaluate(products(depth))(x + s) - az.evaluate(products(depth))(x - s)) / 2e-6 for s in step]
        np.testing.assert_allclose(run(x), by, rtol=1e-5)


def test_every_interpretation_takes_deep_nests() -> None:
    f, x = chains(32), np.full(1, X)
    value, derivative = chained(X, 32)
    assert np.isclose(az.evaluate(f)(x), value, rtol=1e-13)
    assert np.allclose(az.evaluate(az.jvp(f))(x, np.ones(1)), [value, derivative], rtol=1e-13)
    assert az.pretty(f).count("sin") >= 32
    az.check(f)


@pytest.mark.slow
def test_too_deep_is_an_error_and_limits_are_restored() -> None:
    def endless(x: Any) -> Any:
        return az.map(lambda v: endless(x), x)

    limit, failed = sys.getrecursionlimit(), list[str]()

    def attempt() -> None:
        try:
            az.compile(az.program(endless))(np.ones(3))
        except RecursionError as error:
            failed.append(str(error))

    threads = [threading.Thread(target=attempt) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 2 and all("endless calls itself" in message for message in failed)
    assert sys.getrecursionlimit() == limit
    with pytest.raises(ValueError, match=r"at most 64.*test_deep_nests\.py"):
        az.compile(products(65))(np.ones(1))
