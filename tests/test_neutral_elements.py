"""Neutral elements that are not neutral: every interpretation refuses them, at the line that says them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az

X, M = np.arange(1.0, 6.0), np.arange(1.0, 13.0).reshape(3, 4)
NOT_NEUTRAL = (
    r"the neutral element is not neutral: .*, at .*test_neutral_elements.py:\d+; a start is combined afterwards"
)

Vector, Matrix = az.Array[az.f64, "n"], az.Array[az.f64, "n m"]


def plus(a: Any, b: Any) -> Any:
    return a + b


def product(a: Any, b: Any) -> Any:
    return a @ b


def groups(x: Any) -> Any:
    return az.map(lambda v: v.astype(az.i64) % 3, x)


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
    "in a loop": (lambda x: az.fori_loop(0, 2, lambda i, s: az.reduce(plus, 1.0, s * x), 1.0), X),
}


def typed(function: Callable[..., Any], x: np.ndarray) -> Any:
    return az.program(function).at(az.Array[az.f64, "n m" if x.ndim == 2 else "n"])


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_neutral_is_refused(name: str) -> None:
    function, x = WRONG[name]
    with pytest.raises(ValueError, match=NOT_NEUTRAL):
        az.evaluate(typed(function, x))(x)
    for options in ({}, {"threads": 2}):
        with pytest.raises(ValueError, match=NOT_NEUTRAL):
            az.compile(typed(function, x), **options)(x)


@pytest.mark.parametrize("name", ["reduce", "scan", "histogram", "rows", "vectors"])
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


def test_without_checks_nothing_is_verified() -> None:
    function, x = WRONG["tuple"]
    az.compile(typed(function, x), checks=False)(x)


def test_what_derivatives_reduce_is_not_verified() -> None:
    def chained(x: Vector) -> az.f64:
        return az.reduce(lambda a, b: a + b + a * b, 0.0, x)

    for verb in (az.grad, az.jvp, az.vjp):
        assert "reduce: the neutral" not in az.compile(verb(az.program(chained))).loops


def test_one_application_is_made_outside_of_loops() -> None:
    """The loops are those of a program without the requirement."""

    def total(m: Matrix) -> Any:
        return az.map(lambda r: az.reduce(lambda a, b: a + b + a * b, 0.0, r), m)

    verified, plain = (az.compile(az.program(total), checks=checks).loops for checks in (True, False))
    assert verified.count("require") > 0
    assert verified.count("for ") == plain.count("for ")
