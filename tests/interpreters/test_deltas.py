"""Sums of one term and loops of one step: where they go away, where they must not, and what they are out of range."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agreement import leaves

import adze as az
from adze.interpreters.simplify import simplify

Vector, Places = az.Array[az.f64, "n"], az.Array[az.i64, "k"]

X = np.array([1.5, -2.0, np.inf, 3.0, -0.5])
# Inside of an array of five, at both of its ends, and outside
PLACES = np.array([0, 4, 2, -1, 5, 2**62, -(2**63)])


def total(x: Any, test: Callable[[Any], Any], element: Callable[[Any], Any]) -> Any:
    return az.sum(az.generate(x.shape[0], lambda j: az.where(test(j), element(j), 0.0)))


def stepped(x: Any, test: Callable[[Any], Any], next: Callable[[Any, Any], Any], start: float = 0.25) -> Any:
    return az.fori_loop(0, x.shape[0], lambda j, s: az.cond(test(j), lambda: next(j, s), lambda: s), start)


GONE: dict[str, Callable[[Any, Any], Any]] = {
    "the term at a place": lambda x, p: total(x, lambda j: j == p, lambda j: x[j]),
    "the place on the left": lambda x, p: total(x, lambda j: p == j, lambda j: x[j] * 2.0),
    "an offset": lambda x, p: total(x, lambda j: j + 2 == p, lambda j: x[j]),
    "a loop that falls": lambda x, p: total(x, lambda j: 3 - j == p, lambda j: x[j]),
    "one of two tests": lambda x, p: total(x, lambda j: (x[j] > 0.0) & (j == p), lambda j: x[j]),
    "a step that adds": lambda x, p: az.fori_loop(
        0, x.shape[0], lambda j, s: s + az.where(j + 1 == p, x[j], 0.0), 1.0
    ),
    "a step beside others": lambda x, p: az.fori_loop(
        0, x.shape[0], lambda j, s: (s[0] + az.where(j == p, x[j], 0.0), az.sin(s[1])), (0.5, 1.0)
    ),
}  # fmt: skip

KEPT: dict[str, Callable[[Any, Any], Any]] = {
    "a state that is chosen": lambda x, p: stepped(x, lambda j: j == p, lambda j, s: s * x[j]),
    "twice the index": lambda x, p: total(x, lambda j: 2 * j == p, lambda j: x[j]),
    "an index that data gives": lambda x, p: total(x, lambda j: az.where(x[j] > 0.0, j, 0) == p, lambda j: x[j]),
    "a comparison": lambda x, p: total(x, lambda j: j >= p, lambda j: x[j]),
    "elements that are not zero": lambda x, p: az.sum(
        az.generate(x.shape[0], lambda j: az.where(j == p, x[j], 1.0))
    ),
    "a product": lambda x, p: az.prod(az.generate(x.shape[0], lambda j: az.where(j == p, x[j], 0.0))),
    "a state that another reads": lambda x, p: az.fori_loop(
        0, x.shape[0], lambda j, s: (az.where(j == p, x[j], s[0]), s[1] + s[0]), (0.5, 0.0)
    )[1],
    "a state that the test reads": lambda x, p: stepped(
        x, lambda j: (j == p) | (j.astype(az.f64) == 1.0), lambda j, s: s + x[j]
    ),
    "a step that reads another state": lambda x, p: az.fori_loop(
        0, x.shape[0], lambda j, s: (az.where(j == p, s[1], s[0]), s[1] * 0.5), (0.5, 1.0)
    )[0],
}  # fmt: skip


def program_of(f: Callable[[Any, Any], Any]) -> az.Program:
    @az.program
    def each(x: Vector, places: Places):  # type: ignore[no-untyped-def]
        return az.map(lambda p: f(x, p), places)

    return each


def loops(f: az.Program) -> int:
    """The loops with a state and the reductions of a simplified program."""

    def count(block: Any) -> int:
        here = [operation.op in ("reduce", "loop") for operation in block.bindings]
        return sum(here) + sum(count(inner) for operation in block.bindings for inner in operation.blocks)

    return count(simplify(f.at().term))


# What the sums are, by element, in Python
PLAIN: dict[str, Callable[[Any, int, int], float]] = {
    "the term at a place": lambda x, p, j: x[j] if j == p else 0.0,
    "the place on the left": lambda x, p, j: 2 * x[j] if j == p else 0.0,
    "an offset": lambda x, p, j: x[j] if j + 2 == p else 0.0,
    "a loop that falls": lambda x, p, j: x[j] if 3 - j == p else 0.0,
    "one of two tests": lambda x, p, j: x[j] if x[j] > 0 and j == p else 0.0,
    "twice the index": lambda x, p, j: x[j] if 2 * j == p else 0.0,
    "a comparison": lambda x, p, j: x[j] if j >= p else 0.0,
}


@pytest.mark.unguarded
@pytest.mark.parametrize("name", [*GONE, *KEPT])
def test_deltas(name: str) -> None:
    """The loop is gone or not; the values are those of the program as it was written, in range and out of it."""
    program = program_of((GONE | KEPT)[name])
    left = loops(program)
    assert left == (name == "a step beside others") if name in GONE else left > 0
    found, compiled = az.evaluate(program)(X, PLACES), az.compile(program)(X, PLACES)
    for one, other in zip(leaves(found), leaves(compiled), strict=True):
        np.testing.assert_array_equal(one, other)
    if name in PLAIN:
        element = PLAIN[name]
        wanted = [sum(element(X, int(p), j) for j in range(len(X))) for p in PLACES]
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_a_loop_of_one_step(run: Any) -> None:
    """Exactly the state where the step changes it, also from minus infinity, and without an iteration."""

    @az.program
    def last(x: Vector, p: az.i64) -> az.f64:
        return az.fori_loop(0, x.shape[0], lambda j, s: s + az.where(j == p, x[j], 0.0), -np.inf)

    assert loops(last) == 0
    assert np.isnan(run(last)(X, 2))
    assert run(last)(X, 3) == -np.inf
    assert run(last)(X[:0], 0) == -np.inf


@pytest.mark.unguarded
def test_loops_of_no_and_of_one_step() -> None:
    for steps, wanted in ((0, 2.0), (1, np.sin(2.0))):

        @az.program
        def program(x: az.f64, steps: int = steps) -> az.f64:
            return az.fori_loop(0, steps, lambda i, s: az.sin(s), x)

        assert loops(program) == 0
        assert az.evaluate(program)(2.0) == az.compile(program)(2.0) == wanted


@pytest.mark.unguarded
def test_a_branch_that_tests_again_what_is_known() -> None:
    """The test itself, or a part of it where it holds; where it fails, the part may hold."""

    @az.program
    def again(x: az.f64, y: az.f64) -> az.f64:
        both = (x > 0.0) & (y > 0.0)
        inner = az.where(x > 0.0, az.sqrt(x), az.exp(x))
        return az.cond(both, lambda: az.where(both, inner, x * 2.0), lambda: az.where(both, x * 3.0, inner))

    text = az.pretty(again)
    assert text.count("sqrt") == 2 and text.count("exp") == 1 and "2.0 * x" not in text and "3.0 * x" not in text
    for x, y in ((4.0, 1.0), (4.0, -1.0), (-1.0, 1.0), (np.nan, 1.0)):
        np.testing.assert_array_equal(az.compile(again)(x, y), np.sqrt(x) if x > 0 else np.exp(x))
