"""Loops store no states of arrays that they write once: the last state has them.

Every program is simplified and run on several sizes, nothing among them, and gives the bits that it gives as written.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_rematerialisation import back, simplified, states, stored

import adze as az
from adze.core.program import Program

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n n"]


def all_before(x: Any, step: Callable[[Any, Any], Any], read: Callable[[Any, Any], Any]) -> Any:
    """The last state, and a sum of what is read of the state before each step p, from the last step to the first."""
    n, (last, before) = az.size(x), states(x, step)
    return last, az.fori_loop(0, n, lambda j, t: t * 0.5 + read(before, n - 1 - j), az.zeros(n))


def damped(i: Any, s: Any) -> Any:
    return az.update(s, i, s[i] * 0.5 + s[0] + az.sum(s))


@az.program
def whole(x: Vector) -> Any:
    return all_before(x, damped, lambda before, p: before[p])


@az.program
def from_the_last(x: Vector) -> Any:
    n = az.size(x)
    return all_before(x, lambda i, s: damped(n - 1 - i, s), lambda before, p: before[p] * before[p, p])


@az.program
def shifted(x: Vector) -> Any:
    """The first place is never written."""

    def step(i: Any, s: Any) -> Any:
        return az.update(s, i + 1, s[i] * 0.5 + az.sum(s))

    last, before = az.scan_loop(
        lambda s, i: (step(i, s), s), az.generate(az.size(x) + 1, lambda i: i * 0.25), az.iota(az.size(x))
    )
    return last, back(az.size(x), lambda p: az.sum(before[p]))


@az.program
def afterwards(x: Vector) -> Any:
    """What is stored is the state behind each step."""

    def step(s: Any, i: Any) -> Any:
        following = damped(i, s)
        return following, following

    last, after = az.scan_loop(step, x, az.iota(az.size(x)))
    return last, back(az.size(x), lambda p: az.sum(after[p]) + after[p, p])


def columns(x: Any) -> Any:
    """A matrix whose columns are made one after the other, and the states before."""
    n = az.size(x)

    def step(factor: Any, j: Any) -> Any:
        column = x - factor @ factor[j]
        below = az.generate(n, lambda i: az.where(i >= j, column[i], 0.0))
        return az.update(factor, (slice(None), j), below), factor

    return az.scan_loop(step, az.zeros((n, n)), az.iota(n))


@az.program
def by_columns(x: Vector) -> Any:
    last, before = columns(x)
    return last, back(az.size(x), lambda p: az.sum(before[p] @ before[p, p]))


@az.program
def by_rows_in_a_map(x: Vector) -> Any:
    _, before = columns(x)
    return az.generate(az.size(x), lambda p: before[p].T @ before[p, :, 0])


@az.program
def two_arrays(x: Vector) -> Any:
    """One is written once, the other is not: its first place is written at each step."""

    def step(state: Any, i: Any) -> Any:
        a, b = state
        return (az.update(a, i, a[i] + az.sum(b)), az.update(b, 0, b[0] * 0.5 + a[i])), (a, b)

    last, (a, b) = az.scan_loop(step, (x, x), az.iota(az.size(x)))
    n = az.size(x)
    return *last, az.fori_loop(0, n, lambda j, t: t * 0.5 + a[n - 1 - j] * b[n - 1 - j], az.zeros(n))


ONCE = [whole, from_the_last, shifted, afterwards, by_columns, by_rows_in_a_map]


@pytest.mark.parametrize("program", ONCE, ids=lambda program: program.name)
def test_no_states_are_stored(program: Program) -> None:
    assert not any(each > 1 for each in stored(simplified(program)))


def test_other_states_are() -> None:
    assert [each for each in stored(simplified(two_arrays)) if each > 1] == [2]


@az.program
def results(x: Vector) -> Any:
    return states(x, damped)


@az.program
def another_place(x: Vector) -> Any:
    """The place that a step writes depends on the data."""
    places = az.argsort(x)
    return all_before(x, lambda i, s: damped(places[i], s), lambda before, p: before[p])


@az.program
def twice(x: Vector) -> Any:
    """A second update writes where other steps write, too."""
    return all_before(x, lambda i, s: az.update(damped(i, s), 0, s[i]), lambda before, p: before[p])


@az.program
def half_as_fast(x: Vector) -> Any:
    return all_before(x, lambda i, s: damped(i // 2, s), lambda before, p: before[p])


@pytest.mark.parametrize("program", [results, another_place, twice, half_as_fast], ids=lambda program: program.name)
def test_states_that_are_results_or_written_more_than_once_are_stored(program: Program) -> None:
    assert 2 in stored(simplified(program))


@az.program
def log_determinant(a: Matrix) -> az.f64:
    """By a Cholesky factor, column by column."""
    n = a.shape[0]

    def column(j: az.Expr, factor: az.Expr) -> az.Expr:
        rest = a[:, j] - factor @ factor[j]
        below = az.generate(n, lambda i: az.where(i >= j, rest[i] / az.sqrt(rest[j]), 0.0))
        return az.update(factor, (slice(None), j), below)

    return 2 * az.sum(az.log(az.diagonal(az.fori_loop(0, n, column, az.zeros((n, n))))))


@az.program
def triangular_solve(u: Matrix, b: Vector) -> az.f64:
    """From the last unknown to the first; the squares of these are added up."""
    n = b.shape[0]

    def step(t: az.Expr, z: az.Expr) -> az.Expr:
        i = n - 1 - t
        return az.update(z, i, (b[i] - u[i] @ z) / u[i, i])

    z = az.fori_loop(0, n, step, az.zeros(n))
    return z @ z


def positive(n: int) -> Any:
    a = np.random.default_rng(n).normal(size=(n, n))
    return a @ a.T + n * np.eye(n)


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_gradients_of_factors_are_those_of_formulas(n: int) -> None:
    """The derivative of log det A is its inverse, of |U^-1 b|^2 it is 2 U^-T U^-1 b for b."""
    a = positive(n)
    found = az.compile(az.grad(log_determinant))(a)
    np.testing.assert_allclose((found + found.T) / 2, np.linalg.inv(a), rtol=1e-9, atol=1e-12)
    upper, b = np.triu(a), np.linspace(1.0, 2.0, n)
    z = np.linalg.solve(upper, b)
    wanted = 2 * np.linalg.solve(upper.T, z)
    np.testing.assert_allclose(az.compile(az.grad(triangular_solve, argnums=1))(upper, b), wanted, rtol=1e-9)


def test_the_gradient_of_a_factor_takes_the_memory_of_some_matrices() -> None:
    n = 100
    gradient = az.compile(az.grad(log_determinant), threads=1)
    assert gradient.peak_bytes(np.empty((n, n))) < 8 * 8 * n * n
