"""Operators on rows that work element by element are derived as those of single elements, column by column."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import numbers

import adze as az
from adze.ad.interchange import interchanged
from adze.core.terms import Block
from adze.interpreters.check import check
from adze.interpreters.simplify import simplify

INF = float("inf")
Matrix = az.Array[az.f64, "n m"]
Row = az.Array[az.f64, "m"]
Places = az.Array[az.i64, "n"]
Operator = Callable[[Any, Any], Any]

BINS = np.array([0, 2, 0, 2, 5, 0])


GRADIENT = """\
def grad(f)(a: f64[n, m]) -> f64[n, m]:
  t1 = for i < m:
    t2, t3 = scan j < n: 1.0, 0.0 if j == 0 else a[n - j, i]
    combining (t4, t5) with (t6, t7), from 0.0, 1.0: t6 + t7 * t4, t7 * t5
    t8 = cumprod(a[:, i])
    yield for j < n: t2[n - 1 - j] if j == 0 else t2[n - 1 - j] * t8[j - 1]
  return t1.T"""


def softly(p: Any, q: Any) -> Any:
    """An operator without a rule of its own: associative, with 0 as its neutral element."""
    return p + q + p * q


OPERATORS: dict[str, tuple[Operator, float]] = {
    "product": (lambda p, q: p * q, 1.0),
    "softly": (softly, 0.0),
    "maximum": (az.maximum, -INF),
    "minimum": (az.minimum, INF),
}


def reduced(operator: Operator, neutral: Any) -> Callable[..., Any]:
    return lambda a, bins: az.reduce(operator, neutral, a)


def scanned(operator: Operator, neutral: Any) -> Callable[..., Any]:
    return lambda a, bins: az.scan(operator, neutral, a)


def by_bin(operator: Operator, neutral: Any) -> Callable[..., Any]:
    return lambda a, bins: az.histogram(operator, neutral, 3, bins, a)


CONSTRUCTS = {"reduce": reduced, "scan": scanned, "histogram": by_bin}


def rows_and_columns(construct: str, operator: Operator, neutral: float) -> tuple[az.Program, az.Program]:
    """The construct on the rows of a matrix, and on the columns, one by one."""
    combine = CONSTRUCTS[construct]

    @az.program
    def rows(a: Matrix, bins: Places) -> Any:
        return combine(operator, az.full(a.shape[1], neutral))(a, bins)

    @az.program
    def columns(a: Matrix, bins: Places) -> Any:
        made = az.map(lambda column: combine(operator, neutral)(column, bins), a.T)
        return made if construct == "reduce" else made.T

    return rows, columns


ALL = [(construct, name) for construct in CONSTRUCTS for name in OPERATORS]
FAST = {("reduce", "maximum"), ("scan", "softly"), ("histogram", "product")}


@pytest.mark.unguarded
@pytest.mark.parametrize(
    ("construct", "name"), [pytest.param(*pair, marks=() if pair in FAST else pytest.mark.slow) for pair in ALL]
)
def test_rows_have_the_derivatives_of_columns(construct: str, name: str) -> None:
    """In both modes, at ties and zeros, and where there is nothing."""
    rows, columns = rows_and_columns(construct, *OPERATORS[name])
    whole = numbers(6, 3)
    whole[2, 0], whole[0, 1] = 0.0, whole[3, 1]
    for a in (whole, whole[:1], whole[:0], whole[:, :0]):
        bins = BINS[: len(a)]
        cotangent = numbers(*np.shape(az.evaluate(rows)(a, bins)), seed=3)
        for one, other in [(az.vjp(rows), az.vjp(columns)), (az.jvp(rows), az.jvp(columns))]:
            more = cotangent if one.parameters[-1].name == "cotangent" else numbers(*a.shape, seed=2)
            wanted = az.evaluate(other)(a, bins, more)
            np.testing.assert_array_equal(az.evaluate(one)(a, bins, more)[1], wanted[1])


@pytest.mark.slow
@pytest.mark.parametrize(("construct", "name"), ALL)
def test_compiled(construct: str, name: str) -> None:
    rows, _ = rows_and_columns(construct, *OPERATORS[name])
    a = numbers(6, 3)
    for program, more in [
        (az.vjp(rows), numbers(*np.shape(az.evaluate(rows)(a, BINS)), seed=3)),
        (az.jvp(rows), numbers(6, 3, seed=2)),
    ]:
        wanted = az.evaluate(program)(a, BINS, more)[1]
        np.testing.assert_allclose(az.compile(program, threads=1)(a, BINS, more)[1], wanted, rtol=1e-14)


@pytest.mark.unguarded
@pytest.mark.parametrize(
    "construct", ["scan", *[pytest.param(name, marks=pytest.mark.slow) for name in ("reduce", "histogram")]]
)
def test_rows_cost_what_columns_cost(construct: str) -> None:
    """And columns are scanned in parallel: the span is a logarithm."""
    rows, columns = rows_and_columns(construct, *OPERATORS["softly"])
    costs = []
    for n in (8, 32):
        a, bins = numbers(n, 4) / 8, np.arange(n) % 3
        cotangent = az.evaluate(rows)(a, bins)
        own, other = (az.cost(az.vjp(f))(a, bins, cotangent) for f in (rows, columns))
        assert own.work <= 1.1 * other.work
        costs.append(own)
    assert costs[1].span < 2 * costs[0].span


def test_the_printed_gradient_of_running_products_of_rows() -> None:
    @az.program
    def f(a: Matrix) -> az.f64:
        return az.sum(az.scan(lambda p, q: p * q, az.ones(a.shape[1]), a))

    assert az.pretty(az.grad(f)) == GRADIENT


@pytest.mark.slow
def test_second_order() -> None:
    @az.program
    def f(a: Matrix) -> az.f64:
        total = az.reduce(softly, az.zeros(a.shape[1]), a)
        running = az.scan(lambda p, q: p * q, az.ones(a.shape[1]), a)
        return az.sum(total**2) + az.sum(running**2)

    a, v, h = numbers(4, 2) / 4, numbers(4, 2, seed=1), 1e-6
    gradient = az.evaluate(az.grad(f))
    wanted = (gradient(a + h * v) - gradient(a - h * v)) / (2 * h)
    np.testing.assert_allclose(az.evaluate(az.hvp(f))(a, v), wanted, rtol=1e-6)
    np.testing.assert_allclose(az.evaluate(az.vjp(az.grad(f)))(a, v)[1], wanted, rtol=1e-6)


def test_free_variables_and_structures() -> None:
    """A row of weights that the operator reads at its own index, and an extremum of rows with its place."""

    @az.program
    def f(a: Matrix, w: Row) -> Any:
        weighted = az.scan(lambda p, q: p + q + w * p * q, az.zeros(a.shape[1]), a)

        def larger(p: Any, q: Any) -> Any:
            return az.where(p[0] >= q[0], p[0], q[0]), az.where(p[0] >= q[0], p[1], q[1])

        places = az.generate(a.shape, lambda i, j: i)
        start = az.full(a.shape[1], -INF), az.full(a.shape[1], 0)
        return weighted, az.reduce(larger, start, (a, places))

    a, w, v, u, h = numbers(4, 3) / 4, numbers(3, seed=2) / 4, numbers(4, 3, seed=3), numbers(3, seed=4), 1e-6
    (tangent, (moved, _)) = az.evaluate(az.jvp(f))(a, w, v, u)[1]
    ahead, behind = (az.evaluate(f)(a + s * v, w + s * u) for s in (h, -h))
    np.testing.assert_allclose(tangent, (ahead[0] - behind[0]) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(moved, (ahead[1][0] - behind[1][0]) / (2 * h), rtol=1e-6)
    cotangent = (numbers(4, 3, seed=5), (numbers(3, seed=6), None))
    _, by_a, by_w = az.evaluate(az.vjp(f))(a, w, cotangent)
    left = np.sum(cotangent[0] * tangent) + np.sum(cotangent[1][0] * moved)
    assert np.sum(by_a * v) + np.sum(by_w * u) == pytest.approx(left, rel=1e-12)


def deepest(block: Block) -> list[str]:
    """The types that operators combine."""
    found = []
    for operation in block.bindings:
        if operation.op in ("reduce", "scan", "histogram"):
            found += [str(type) for type in operation.blocks[1].types]
        found += [type for inner in operation.blocks for type in deepest(inner)]
    return found


def test_the_outermost_axes_are_taken_off() -> None:
    """Of batches of matrices until a product is met; sums of rows and operators that mix columns stay."""

    @az.program
    def batches(a: az.Array[az.f64, "n b 2 2"]) -> Any:
        unit = az.generate((a.shape[1], 2, 2), lambda k, i, j: az.where(i == j, 1.0, 0.0))
        return az.scan(lambda p, q: az.map(lambda x, y: x @ y, p, q), unit, a)

    @az.program
    def cubes(a: az.Array[az.f64, "n b c"]) -> Any:
        return az.scan(lambda p, q: p * q, az.ones(a.shape[1:]), a)

    @az.program
    def sums(a: Matrix) -> Any:
        return az.scan(lambda p, q: p + q, az.zeros(a.shape[1]), a)

    @az.program
    def mixed(a: az.Array[az.f64, "n 2"]) -> Any:
        return az.reduce(lambda p, q: az.array([p[0] * q[0], p[1] * q[0] + q[1]]), np.array([1.0, 0.0]), a)

    for program, types in [(batches, ["f64[2, 2]"]), (cubes, ["f64"])]:
        inside = simplify(interchanged(simplify(program)))
        check(inside)
        assert set(types) <= set(deepest(inside)) and not any(", 2, 2" in type for type in deepest(inside))
    for program in (sums, mixed):
        term = simplify(program)
        assert interchanged(term) is term
    a = numbers(3, 2, 2, 2) / 4
    cotangent = numbers(3, 2, 2, 2, seed=2)
    tangent = numbers(3, 2, 2, 2, seed=1)
    moved = az.evaluate(az.jvp(batches))(a, tangent)[1]
    given = az.evaluate(az.vjp(batches))(a, cotangent)[1]
    assert np.sum(cotangent * moved) == pytest.approx(np.sum(given * tangent), rel=1e-12)


@pytest.mark.slow
def test_sizes_that_the_run_decides() -> None:
    """Rows as long as an argument says, as what is kept of an array, and as the index of a loop."""

    @az.program
    def f(k: az.i64, x: az.Array[az.f64, "n"]) -> az.f64:
        rows = az.generate((x.shape[0], k), lambda i, j: x[i] * (1.0 + j))
        kept = az.filter(lambda v: v > 0, x)
        scanned = az.scan(lambda p, q: p * q, az.ones(kept.shape[0]), az.map(lambda v: kept * v, x))

        def longest(i: Any) -> Any:
            return az.sum(az.reduce(az.maximum, az.full(i + 1, -INF), az.generate((2, i + 1), lambda a, b: x[b] * a)))

        return az.sum(az.reduce(softly, az.zeros(k), rows)) + az.sum(scanned) + az.sum(az.generate(x.shape[0], longest))

    x, h = np.array([0.5, -0.25, 0.75]), 1e-6
    differences = [(az.evaluate(f)(4, x + h * e) - az.evaluate(f)(4, x - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(az.evaluate(az.grad(f, argnums=1))(4, x), differences, rtol=1e-7)
    np.testing.assert_allclose([az.jvp(f)(4, x, e)[1] for e in np.eye(3)], differences, rtol=1e-7)
