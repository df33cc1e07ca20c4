"""Where arrays are 0, and where they are read: what the tests around say, and what takes that knowledge away."""

from collections.abc import Callable
from typing import Any

import pytest

import adze as az
from adze.interpreters.domains import Domain, Domains

pytestmark = pytest.mark.unguarded

Square = az.Array[az.f64, "d d"]


def domains(program: az.Program) -> list[tuple[Domain, Domain]]:
    """For each array that a program makes at its top, where it is not 0 and where it is read."""
    block = az.simplify(program)
    found = Domains(block)
    made = [operation for operation in block.bindings if operation.op == "generate" and operation.types]
    return [(found.nonzero(operation, 0), found.needed(operation, 0)) for operation in made]


def where(test: Callable[[Any, Any], Any], x: Any) -> Any:
    """exp(x) where a test of the indices holds, else 0."""
    return az.generate(x.shape, lambda i, j: az.cond(test(i, j), lambda: az.exp(x[i, j]), lambda: 0.0))


def total(x: Any) -> Any:
    """Reads all elements of an array twice, so that it is stored."""
    return az.sum(x), az.sum(x, axis=0)


@pytest.mark.parametrize(
    ("test", "domain"),
    [
        (lambda i, j: i >= j, {(0, 1): 0}),
        (lambda i, j: j > i, {(1, 0): 1}),
        (lambda i, j: i - j == 2, {(0, 1): 2, (1, 0): -2}),
        (lambda i, j: (i + 3 > j) & (j <= i + 1), {(0, 1): -1}),
        (lambda i, j: az.logical_not(i < j), {(0, 1): 0}),
        (lambda i, j: (i > j) | (i == j), {(0, 1): 0}),
        (lambda i, j: (i > j) | (j > 5), {}),
        (lambda i, j: i > 5, {}),
    ],
)
def test_zeros_are_where_tests_put_them(test: Callable[[Any, Any], Any], domain: Domain) -> None:
    @az.program
    def program(x: Square) -> Any:
        return total(where(test, x))

    assert domains(program)[0][0] == domain


def test_branches_are_joined() -> None:
    """Entries below the diagonal, on it, and nothing above, as a factor of Cholesky has them."""

    @az.program
    def program(x: Square) -> Any:
        def entry(i: Any, j: Any) -> Any:
            upper = az.cond(i == j, lambda: az.exp(x[i, i]), lambda: 0.0)
            return az.cond(i > j, lambda: az.sin(x[i, j]), lambda: upper)

        return total(az.generate(x.shape, entry))

    assert domains(program)[0][0] == {(0, 1): 0}


def test_an_array_of_matrices_and_a_transposed_copy() -> None:
    @az.program
    def program(x: az.Array[az.f64, "k d d"]) -> Any:
        lower = az.map(lambda one: where(lambda i, j: i >= j, one), x)
        return total(az.map(lambda one: az.sort(-one.T), lower)), total(lower)

    found = [nonzero for nonzero, _ in domains(program)]
    assert {(1, 2): 0} in found


def test_what_is_multiplied_by_0_is_not_0() -> None:
    @az.program
    def program(x: Square) -> Any:
        return total(az.generate(x.shape, lambda i, j: az.cond(i >= j, lambda: 1.0, lambda: 0.0) * az.exp(x[i, j])))

    assert domains(program)[0][0] == {}


def test_negative_zero_is_no_zero() -> None:
    @az.program
    def program(x: Square) -> Any:
        return total(az.generate(x.shape, lambda i, j: az.cond(i >= j, lambda: az.exp(x[i, j]), lambda: -0.0)))

    assert domains(program)[0][0] == {}


def test_reads_under_a_test_are_where_it_holds() -> None:
    @az.program
    def program(x: Square) -> Any:
        y = x @ x
        first = az.generate(x.shape, lambda i, j: az.cond(i > j, lambda: az.exp(y[i, j]), lambda: 0.0))
        return first, az.generate(x.shape, lambda i, j: az.cond(i > j, lambda: y[i - 1, j], lambda: 1.0))

    assert ({}, {(0, 1): 0}) in domains(program)


def test_arrays_that_are_handed_out_or_passed_on_have_no_domains() -> None:
    @az.program
    def result(x: Square) -> Any:
        lower = where(lambda i, j: i >= j, x)
        return lower, az.sum(lower, axis=0)

    @az.program
    def updated(x: Square) -> Any:
        lower = where(lambda i, j: i >= j, x)
        return az.sum(az.update(lower, (0, 1), 5.0), axis=0)

    for program in (result, updated):
        assert all(nonzero == {} for nonzero, _ in domains(program))
