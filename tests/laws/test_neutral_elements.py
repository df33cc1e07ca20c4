"""Neutral elements that are not neutral: every interpretation refuses them, at the line that says them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

X, M = np.arange(1.0, 6.0), np.arange(1.0, 13.0).reshape(3, 4)
NOT_NEUTRAL = (
    r"the neutral element is not neutral: .*, at .*test_neutral_elements.py:\d+; a start is combined afterwards"
)

Vector, Matrix, Integers = az.Array[az.f64, "n"], az.Array[az.f64, "n m"], az.Array[az.i64, "n"]


def plus(a: Any, b: Any) -> Any:
    return a + b


def product(a: Any, b: Any) -> Any:
    return a @ b


def groups(x: Any) -> Any:
    return az.map(lambda v: v.astype(az.i64) % 3, x)


def loose(a: Any, b: Any) -> Any:
    """A sum that is not known as one, so that no literal is refused before anything runs."""
    return a + b + 0 * a * b


def total(x: Any) -> Any:
    return az.reduce(loose, 1.0, x)


def pulled(m: Any) -> Any:
    return az.grad(lambda w: az.sum(az.tanh(m @ w)))(m[0])


WRONG: dict[str, tuple[Callable[..., Any], Any]] = {
    "reduce": (lambda x: az.reduce(plus, 1.0, x), X),
    "product": (lambda x: az.reduce(lambda a, b: a * b, 2.0, x), X),
    "scan": (lambda x: az.scan(plus, 1.0, x), X),
    "exclusive scan": (lambda x: az.scan(plus, 1.0, x, exclusive=True), X),
    "histogram": (lambda x: az.histogram(plus, 1.0, 3, groups(x), x), X),
    "maximum": (lambda x: az.reduce(az.maximum, 0.0, -x), X),
    "right": (lambda x: az.reduce(lambda a, b: b, 0.0, x), X),
    "left": (lambda x: az.reduce(lambda a, b: a, 0.0, x), X),
    "tuple": (lambda x: az.reduce(lambda a, b: (a[0] + b[0], az.maximum(a[1], b[1])), (1.0, -np.inf), (x, x)), X),
    "rows": (lambda m: az.map(lambda r: az.reduce(plus, 1.0, r), m), M),
    "axis": (lambda m: az.reduce(plus, 1.0, m, axis=1), M),
    "sum of rows": (lambda m: az.sum(az.map(lambda r: az.reduce(plus, 1.0, r), m)), M),
    "branch": (lambda x: az.cond(x[0] > 0, lambda: az.reduce(plus, 1.0, x), lambda: 0.0), X),
    "vectors": (lambda m: az.reduce(plus, np.ones(4), m), M),
    "matrices": (lambda m: az.reduce(product, 2 * np.eye(2), m.reshape((3, 2, 2))), M),
    "in a loop": (lambda x: az.fori_loop(0, 2, lambda i, s: total(s * x), 1.0), X),
    "in a while loop": (lambda x: az.while_loop(lambda s: s < 3, lambda s: s + total(s * x), 1.0), X),
    "in a test": (lambda x: az.while_loop(lambda s: (s < 9) & (total(s * x) > 0), lambda s: s + 1.0, 1.0), X),
    "rows in a loop": (
        lambda m: az.fori_loop(0, 2, lambda i, s: az.sum(az.map(lambda r: total(s * r), m)), 1.0),
        M,
    ),
    "loops in rows": (lambda m: az.map(lambda r: az.fori_loop(0, 2, lambda i, s: total(s * r), 1.0), m), M),
    "scan in a loop": (lambda x: az.fori_loop(0, 2, lambda i, s: az.scan(loose, 1.0, s), x), X),
    "checkpoint": (lambda x: az.checkpoint(total)(x), X),
    "beside a gradient": (lambda m: (az.map(total, m), pulled(m)), M),
    "around a gradient": (lambda m: az.map(lambda r: total(r) + az.sum(pulled(m * r)), m), M),
    "first in a bin": (lambda x: az.histogram(loose, 1.0, 3, x.astype(az.i64) - 4, x), X),
    "first in a bin of rows": (
        lambda m: az.map(lambda r: az.histogram(loose, 1.0, 3, r.astype(az.i64) - 4, r), m),
        M + 1,
    ),
}


def typed(function: Callable[..., Any], x: np.ndarray) -> Any:
    return az.program(function).at(az.Array[az.f64, "n m" if x.ndim == 2 else "n"])


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_neutral_is_refused(name: str) -> None:
    function, x = WRONG[name]
    for vectorize in (True, False):
        with pytest.raises(ValueError, match=NOT_NEUTRAL):
            az.evaluate(typed(function, x), vectorize=vectorize)(x)
    with pytest.raises(ValueError, match=NOT_NEUTRAL):
        az.compile(typed(function, x), threads=2)(x)


@pytest.mark.parametrize("name", ["reduce", "scan", "histogram", "vectors", "rows in a loop", "first in a bin"])
def test_what_is_not_neutral_is_refused_on_a_device(name: str, opencl: Any) -> None:
    function, x = WRONG[name]
    with pytest.raises(ValueError, match=NOT_NEUTRAL):
        az.compile(typed(function, x), backend="opencl")(x)


RIGHT: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "maximum": (lambda x: az.reduce(az.maximum, 0.0, x), X, 5.0),
    "rounded": (
        lambda x: az.reduce(lambda a, b: az.log(az.exp(a) + az.exp(b)), -np.inf, x),
        X,
        np.log(np.exp(X).sum()),
    ),
    "infinite": (
        lambda x: az.reduce(lambda a, b: az.log(az.exp(a) + az.exp(b)), -np.inf, x),
        np.full(3, -np.inf),
        -np.inf,
    ),
    "NaN": (lambda x: az.reduce(lambda a, b: a + b + 0 * a * b, 0.0, x), np.full(3, np.nan), np.nan),
    "matrices": (lambda m: az.reduce(product, np.eye(2), m.reshape((3, 2, 2))), M, None),
    "nothing": (lambda x: az.reduce(az.maximum, 9.0, x), X[:0], 9.0),
    "no rows": (lambda m: az.map(lambda r: az.reduce(az.maximum, 9.0, r), m), M[:0], np.zeros(0)),
    "no columns": (lambda m: az.map(lambda r: az.reduce(az.maximum, 9.0, r), m), M[:, :0], np.full(3, 9.0)),
    "no bin": (lambda x: az.histogram(az.maximum, 9.0, 3, groups(x) + 3, x), X, np.full(3, 9.0)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_neutral_for_the_elements_is_taken(name: str) -> None:
    function, x, wanted = RIGHT[name]
    if wanted is None:
        parts = x.reshape(3, 2, 2)
        wanted = parts[0] @ parts[1] @ parts[2]
    for run in (az.evaluate(typed(function, x)), az.compile(typed(function, x))):
        np.testing.assert_allclose(run(x), wanted, rtol=1e-14)


@pytest.mark.parametrize("name", ["reduce", "product", "right", "tuple", "in a loop", "first in a bin"])
def test_without_checks_compiled_code_verifies_nothing(name: str) -> None:
    function, x = WRONG[name]
    az.compile(typed(function, x), checks=False)(x)


def test_each_row_of_a_histogram_is_verified_on_its_first_element() -> None:
    """Of the rows, the second has its first element in a bin later, where the neutral element is none."""

    def binned(m: Matrix) -> Any:
        return az.map(lambda r: az.histogram(loose_maximum, 0.0, 2, az.map(lambda v: az.where(v > 5, -1, 0), r), r), m)

    for vectorize in (True, False):
        with pytest.raises(ValueError, match=NOT_NEUTRAL):
            az.evaluate(az.program(binned), vectorize=vectorize)(np.array([[1.0, 2.0], [6.0, -1.0]]))


def loose_maximum(a: Any, b: Any) -> Any:
    return az.maximum(a, b) + 0 * a * b


def test_what_derivatives_reduce_is_not_verified() -> None:
    def chained(x: Vector) -> az.f64:
        return az.reduce(lambda a, b: a + b + a * b, 0.0, x)

    for verb in (az.grad, az.jvp, az.vjp):
        assert "reduce: the neutral" not in az.compile(verb(az.program(chained))).loops


@pytest.mark.parametrize("run", [az.evaluate, az.compile, lambda f: lambda *args: az.trace(f)(*args).result])
def test_derivatives_take_elements_without_a_derivative(run: Any) -> None:
    """With the value and its tangent combined as a pair, 0 times infinity is no sign of a wrong neutral element."""

    @az.program
    def rows(m: Matrix) -> Vector:
        return az.map(az.prod, m)

    m, ones = np.array([[np.inf, 1.0, 2.0], [np.nan, 0.0, 2.0], [2.0, 3.0, 4.0]]), np.ones((3, 3))
    value, tangent = run(az.jvp(rows))(m, ones)
    np.testing.assert_array_equal(value, [np.inf, np.nan, 24.0])
    np.testing.assert_array_equal(tangent[1:], [np.nan, 26.0])


def test_one_application_is_made_outside_of_loops() -> None:
    """The loops are those of a program without the requirement."""

    def rows(m: Matrix) -> Any:
        return az.map(lambda r: az.reduce(lambda a, b: a + b + a * b, 0.0, r), m)

    def repeated(m: Matrix) -> Any:
        def step(i: Any, s: Any) -> Any:
            halved = az.while_loop(lambda u: u > 1, lambda u: u / 2, s)
            return az.sum(rows(s * m)) + az.fori_loop(0, 9, lambda j, u: u * u, halved)

        return az.fori_loop(0, 5, step, 1.0)

    for function in (rows, repeated):
        verified, plain = (az.compile(az.program(function).at(Matrix), checks=c).loops for c in (True, False))
        assert verified.count("require") > 0
        for loop in ("for ", "while "):
            assert verified.count(loop) == plain.count(loop)


@pytest.mark.parametrize(
    ("op", "applications"),
    [(lambda a, b: a + b + a * b, 1), (lambda a, b: az.where(a < b, b, a), 1), (lambda a, b: a * b + b, 2)],
)
def test_both_orders_are_tried_where_they_may_differ(op: Any, applications: int) -> None:
    def reduced(x: Integers, unit: az.i64) -> az.i64:
        return az.reduce(op, unit, x)

    assert az.compile(az.program(reduced)).loops.count("require") == applications


def test_first_iterations_are_verified_by_their_own_numbers() -> None:
    """What is added in a first iteration that is run once more is added once, and sums see what was added to them."""

    def summed(m: Matrix) -> Any:
        def row(r: Any) -> Any:
            slope = az.grad(lambda w: az.sum(az.tanh(m * w)))(r)
            return az.reduce(loose_maximum, slope[0], slope), az.sum(slope)

        return az.map(row, m)

    small = M[:, :1] / 9
    for got, wanted in zip(az.compile(az.program(summed))(small), az.evaluate(az.program(summed))(small), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-13)
