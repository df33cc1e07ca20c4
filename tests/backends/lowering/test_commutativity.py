"""Which operators are found to commute (``backends/lowering/commutativity.py``), and reductions by them along lanes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.backends.lowering.commutativity import commutes
from adze.core.program import instance_of
from adze.core.terms import Block

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
Integers = az.Array[az.i64, "n"]


def operator_of(program: Any) -> Block:
    """The operator of the only reduction of a program."""
    (found,) = [binding for binding in instance_of(program).term.bindings if binding.op == "reduce"]
    return found.blocks[1]


def with_index(better: Callable[..., Any]) -> Block:
    """The operator of a search for the best element, with its place."""

    @az.program
    def search(x: Vector) -> Any:
        def choose(a: Any, b: Any) -> Any:
            return az.cond(better(a, b), lambda: a, lambda: b)

        return az.reduce(choose, (0.0, az.size(x)), (x, az.iota(az.size(x))))

    return operator_of(search)


def on_numbers(operator: Callable[..., Any], neutral: Any = 0) -> Block:
    @az.program
    def combined(x: Integers) -> Any:
        return az.reduce(operator, neutral, x)

    return operator_of(combined)


@az.program
def largest(x: Vector) -> Any:
    return az.argmax(x)


@az.program
def smallest(x: Integers) -> Any:
    return az.argmin(x)


@az.program
def complex_product(x: Vector, y: Vector) -> Any:
    return az.reduce(lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]), (1.0, 0.0), (x, y))


@az.program
def extremes(x: Vector) -> Any:
    return az.reduce(lambda a, b: (az.minimum(a[0], b[0]), az.maximum(a[1], b[1])), (np.inf, -np.inf), (x, x))


@az.program
def affine(x: Vector, y: Vector) -> Any:
    return az.reduce(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1.0, 0.0), (x, y))


def test_searches_for_a_place_commute() -> None:
    """Those of argmax and argmin with NaN too; an index is not equal to another element's."""
    for program in (largest, smallest):
        assert commutes(operator_of(program), frozenset([1]))
    assert not commutes(operator_of(largest)), "equal floating numbers of equal places may be zeros of two signs"
    first = with_index(lambda a, b: (a[0] > b[0]) | (~(b[0] > a[0]) & (a[1] <= b[1])))
    assert commutes(first, frozenset([1]))
    drops_nan = with_index(lambda a, b: (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] <= b[1])))
    assert not commutes(drops_nan, frozenset([1])), "of two values that are NaN, the right one"
    assert not commutes(with_index(lambda a, b: a[0] >= b[0]), frozenset([1])), "of equal values, the left one"


def test_components_that_commute_by_themselves() -> None:
    assert commutes(operator_of(complex_product)) and commutes(operator_of(extremes))
    assert not commutes(operator_of(affine))


def test_choices_of_one_number() -> None:
    """Of equal integers either one is the same; of equal floating numbers one may be -0.0."""
    assert commutes(on_numbers(lambda a, b: az.where(a > b, a, b)))
    assert commutes(on_numbers(lambda a, b: az.where(a > b, a + b, b + a)))
    assert not commutes(on_numbers(lambda a, b: az.where(a > b, a - b, b - a + 1)))
    assert not commutes(on_numbers(lambda a, b: a))
    assert not commutes(on_numbers(lambda a, b: az.where(a > 0, a, b))), "a comparison with a constant is not decided"

    @az.program
    def larger(x: Vector) -> Any:
        return az.reduce(lambda a, b: az.where(a > b, a, b), -np.inf, x)

    assert not commutes(operator_of(larger))


def lanes(program: Any, **schedule: Any) -> bool:
    return "lanes" in str(az.compile(program, schedule=schedule).loops)


def test_what_commutes_is_reduced_along_lanes() -> None:
    for program in (largest, smallest, complex_product, extremes):
        assert lanes(program) and not lanes(program, vectorise=False)
    assert not lanes(affine)


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 1000, 70_001])
def test_values(n: int) -> None:
    """At ties the first place, and NaN before all others, wherever it is; on any number of threads."""
    rng = np.random.default_rng(n)
    x = rng.integers(0, 5, n).astype(float)
    for places in ([], [n // 2], [n - 1, n // 3]):
        x[places] = np.nan
        for threads in (1, 2):
            assert az.compile(largest, threads=threads)(x) == np.argmax(x)
    whole = rng.integers(-4, 4, n)
    assert az.compile(smallest)(whole) == np.argmin(whole)
    y = np.array([-0.0, 0.0] * n)[:n]
    assert az.compile(largest)(y) == 0
    low, high = az.compile(extremes)(whole.astype(float))
    assert (low, high) == (whole.min(), whole.max())
    angles = rng.normal(size=n)
    real, imaginary = az.compile(complex_product)(np.cos(angles), np.sin(angles))
    np.testing.assert_allclose([real, imaginary], [np.cos(angles.sum()), np.sin(angles.sum())], atol=1e-9)


def test_the_derivative_of_a_maximum_goes_to_its_first_place() -> None:
    @az.program
    def top(x: Vector) -> Any:
        return az.max(x)

    gradient = az.compile(az.grad(top))
    for n in (1, 5, 100, 40_000):
        x = np.random.default_rng(n).integers(0, 9, n).astype(float)
        expected = np.zeros(n)
        expected[np.argmax(x)] = 1
        np.testing.assert_array_equal(gradient(x), expected)
