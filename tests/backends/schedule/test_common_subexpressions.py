"""What several nests compute is stored by the first (``backends/schedule/nests/common_subexpressions.py``)."""

from itertools import pairwise
from typing import Any

import numpy as np
import plain_loops
import pytest
from plain_loops import apply, at, const, put, var
from test_nests import VECTORS

import adze as az
from adze.backends import ir
from adze.backends.lowering import Lowered
from adze.backends.lowering.lower import Lowering
from adze.backends.schedule.nests.common_subexpressions import without_common_subexpressions
from adze.core.types import f64

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n m"]


def loops_of(program: Any, **schedule: Any) -> str:
    return str(az.compile(program, schedule=schedule).loops)


@az.program
def softmax(x: Vector) -> Any:
    e = az.exp(x - az.max(x))
    return e / az.sum(e)


@az.program
def logsumexp(x: Vector) -> Any:
    return az.logsumexp(x)


@az.program
def by_hand(x: Vector) -> Any:
    top = az.max(x)
    return top + az.log(az.sum(az.exp(x - top)))


@az.program
def pairs(x: Vector) -> Any:
    """A sum over pairs, and one more that needs the first."""

    def total(scale: Any) -> Any:
        return az.sum(az.map(lambda a: az.sum(az.map(lambda b: scale * az.exp(-((a - b) ** 2)), x)), x))

    return total(1 / total(1.0))


@az.program
def relaxed(x: Vector, steps: az.i64) -> Any:
    """Nests in a loop: what they share is another value in each step."""
    return az.fori_loop(0, steps, lambda _, y: az.tanh(y) - az.sum(az.tanh(y)) * az.tanh(y) / 100, x)


@az.program
def rows(x: Matrix) -> Any:
    total = az.sum(az.exp(x))
    return az.exp(x) / total, az.transpose(az.exp(x)) * total


PROGRAMS = {
    "softmax": (softmax, 1),
    "gradient": (az.grad(logsumexp), 1),
    "gradient by hand": (az.grad(by_hand), 1),
    "pairs": (pairs, 1),
    "relaxed": (relaxed, 1),
    "rows": (rows, 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str) -> None:
    """Those of evaluate, with and without; the same bits for any number of threads."""
    program, rank = PROGRAMS[name]
    for n in (1, 7, 64, 301):
        x = np.random.default_rng(n).normal(size=(n, 5)[:rank])
        given = (x, 3) if name == "relaxed" else (x,)
        expected = az.evaluate(program)(*given)
        single = az.compile(program, threads=1)(*given)
        for run in (az.compile(program, threads=2), az.compile(program, schedule={"cse": False}, threads=1)):
            found = [each if isinstance(each, tuple) else (each,) for each in (run(*given), single, expected)]
            for a, b, c in zip(*found, strict=True):
                np.testing.assert_allclose(a, c, rtol=1e-11, atol=1e-14)
                np.testing.assert_allclose(b, c, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("n", [0, 3, 4096, 4097, 600_000])
def test_softmax_of_any_size(n: int) -> None:
    """On both sides of a chunk, and of chunks that grow."""
    x = np.random.default_rng(n).normal(size=n)
    e = np.exp(x - x.max(initial=-np.inf))
    for threads in (1, 2):
        np.testing.assert_allclose(az.compile(softmax, threads=threads)(x), e / e.sum(), rtol=1e-12)


def test_an_exponential_is_computed_once_and_in_the_result() -> None:
    for program in (az.grad(logsumexp), az.grad(by_hand)):
        assert loops_of(program, cse=False, fuse=False).count("exp(") == 2
        assert loops_of(program).count("exp(") == 1
    assert "temporary shared" not in loops_of(az.grad(logsumexp)), "it is in the result's memory"


def test_what_is_too_large_or_changes_is_computed_again() -> None:
    assert loops_of(pairs) == loops_of(pairs, cse=False), "no memory for all pairs"

    @az.program
    def twice(x: Vector) -> Any:
        """Two exponentials of one array, and one of another."""
        y = x * az.sum(az.exp(x))
        return az.exp(y) * az.sum(az.exp(y))

    x = np.array([0.1, 0.2, 0.3])
    y = x * np.exp(x).sum()
    np.testing.assert_allclose(az.compile(twice)(x), np.exp(y) * np.exp(y).sum(), rtol=1e-14)


def nest(index: str, *body: ir.Statement) -> ir.Nest:
    return ir.Nest((ir.Axis(var(index), var("n")),), body, True)


def with_shared(function: ir.Function) -> ir.Function:
    return without_common_subexpressions(Lowered(function, (), [], [], [], [], Lowering(VECTORS, True, True))).function


def test_a_nest_reads_what_it_has_written_itself() -> None:
    x, z, y, w, t = (ir.Buffer(name, f64, (var("n"),)) for name in "xzywt")
    first = nest("i", ir.Let("a", apply("exp", at(t, "i"))), put(y, "i", var("a", f64)))
    again = nest("j", put(t, "j", at(z, "j")), ir.Let("b", apply("exp", at(t, "j"))), put(w, "j", var("b", f64)))
    body = ir.Allocate(t), nest("h", put(t, "h", at(x, "h"))), first, again
    numbers = np.arange(3.0)
    found = np.zeros(3), np.zeros(3)
    plain_loops.run(with_shared(ir.Function("f", ("n",), (x, z), (y, w), body)), [numbers, -numbers, *found], [3])
    np.testing.assert_allclose(found, [np.exp(numbers), np.exp(-numbers)])


@pytest.mark.rest
def test_a_long_chain_of_temporaries_is_one_result() -> None:
    x, y = (ir.Buffer(name, f64, (var("n"),)) for name in "xy")
    chain = [x, *[ir.Buffer(f"t{k}", f64, (var("n"),)) for k in range(1200)], y]
    body: list[Any] = [ir.Allocate(each) for each in chain[1:-1]]
    for before, after in pairwise(chain):
        body.append(nest("i", put(after, "i", apply("add", at(before, "i"), const(1.0, f64)))))
    there = with_shared(ir.Function("f", ("n",), (x,), (y,), tuple(body)))
    assert not any(isinstance(each, ir.Allocate) for each in there.body)
    found = np.zeros(3)
    plain_loops.run(there, [np.arange(3.0), found], [3])
    np.testing.assert_array_equal(found, np.arange(3.0) + 1201)


def test_a_temporary_is_in_one_result_at_most() -> None:
    x, y, z, t = (ir.Buffer(name, f64, (var("n"),)) for name in "xyzt")
    made = nest("i", put(t, "i", apply("exp", at(x, "i"))))
    both = nest("k", ir.Let("v", at(t, "k")), put(y, "k", var("v", f64)), put(z, "k", const(2.0, f64)))
    there = with_shared(ir.Function("f", ("n",), (x,), (y, z), (ir.Allocate(t), made, both)))
    found = np.zeros(3), np.zeros(3)
    plain_loops.run(there, [np.arange(3.0), *found], [3])
    np.testing.assert_allclose(found[0], np.exp(np.arange(3.0)))
    np.testing.assert_array_equal(found[1], np.full(3, 2.0))


def test_what_a_nest_has_stored_is_not_stored_again() -> None:
    """The exponentials are stored for the product, and the sums compute them again: they read what is stored."""

    @az.program
    def weighted(x: az.Array[az.f64, "n m"], v: az.Array[az.f64, "m k"]) -> Any:
        (n, m), top = x.shape, az.max(x, axis=1)
        e = az.generate((n, m), lambda i, j: az.exp(x[i, j] - top[i]))
        sums = az.generate(n, lambda i: az.sum(az.generate(m, lambda j: az.exp(x[i, j] - top[i]))))
        return az.generate((n, v.shape[1]), lambda i, k: az.sum(e[i] * v[:, k]) / sums[i])

    fast = az.compile(weighted)
    assert fast.nests.count("exp(") == 1 and fast.nests.count(": f64[n, m]\n") == 1
    x, v = np.arange(35.0).reshape(5, 7) % 11, np.arange(21.0).reshape(7, 3) - 9
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(fast(x, v), e @ v / e.sum(1, keepdims=True), rtol=1e-13)
