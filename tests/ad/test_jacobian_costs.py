"""What Jacobians by forward mode cost: the loop over directions is not there where directions need one term each.

The table has what users differentiate every day, each in a few spellings, with a bound on the operations of
``az.jacobian(f, mode="forward")``, simplified (Shaikhha et al. 2019, section 6 and figure 12, ask for these). All are
held to reverse mode and to central differences, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.core.types import dims

pytestmark = pytest.mark.unguarded

Vector, Matrix = az.Array[az.f64, "n"], az.Array[az.f64, "m n"]
Square = az.Array[az.f64, "n n"]


def A(dims: str) -> Any:
    return az.Array[az.f64, dims]


# x @ A @ x


def product(a: Square, x: Vector) -> az.f64:
    return x @ a @ x


def product_by_einsum(a: Square, x: Vector) -> az.f64:
    return az.einsum("i,ij,j->", x, a, x)


def product_by_loops(a: Square, x: Vector) -> az.f64:
    def row(i: Any) -> Any:
        return az.fori_loop(0, x.shape[0], lambda j, s: s + a[i, j] * x[j], 0.0)

    return az.fori_loop(0, x.shape[0], lambda i, s: s + x[i] * row(i), 0.0)


# Non-negative matrix factorisation, of rank one and k


def divergence(a: Any, p: Any) -> Any:
    return az.sum(az.log(p) + a / p)


def outer(a: Matrix, u: A("m"), v: Vector) -> az.f64:  # type: ignore[valid-type]
    return divergence(a, az.outer(u, v))


def outer_turned(a: Matrix, u: A("m"), v: Vector) -> az.f64:  # type: ignore[valid-type]
    return divergence(a.T, az.outer(v, u))


def factors(a: Matrix, w: A("m k"), h: A("k n")) -> az.f64:  # type: ignore[valid-type]
    return divergence(a, w @ h)


def factors_by_einsum(a: Matrix, w: A("m k"), h: A("k n")) -> az.f64:  # type: ignore[valid-type]
    return divergence(a, az.einsum("ik,kj->ij", w, h))


# Curves


def exponentials(p: A("k 2"), t: Vector) -> Any:  # type: ignore[valid-type]
    return az.map(lambda s: az.sum(az.map(lambda q: q[0] * az.exp(-q[1] * s), p)), t)


# Networks


def layers(a: A("h n"), b: A("o h"), x: Vector, y: A("o")) -> az.f64:  # type: ignore[valid-type]
    return az.sum((b @ az.tanh(a @ x) - y) ** 2)


def softmax(x: Vector) -> Any:
    e = az.exp(x - az.max(x))
    return e / az.sum(e)


# Loops, convolutions, clusters


def squares(v: Vector) -> az.f64:
    return az.fori_loop(0, v.shape[0], lambda i, s: s + v[i] ** 2, 0.0)


def convolution(x: Vector, w: A("k")) -> Any:  # type: ignore[valid-type]
    places = x.shape[0] - w.shape[0] + 1
    return az.generate(places, lambda i: az.sum(az.generate(w.shape[0], lambda l: x[i + l] * w[l])))


def convolution_turned(x: Vector, w: A("k")) -> Any:  # type: ignore[valid-type]
    places = x.shape[0] - w.shape[0] + 1
    return az.generate(places, lambda i: az.sum(az.generate(w.shape[0], lambda l: x[l + i] * w[l])))


def kmeans(points: A("n d"), centroids: A("k d")) -> az.f64:  # type: ignore[valid-type]
    return az.sum(az.map(lambda p: az.min(az.map(lambda c: az.sum((p - c) ** 2), centroids)), points))


# What was fine before


def dot(u: Vector, v: Vector) -> az.f64:
    return az.sum(u * v)


def total(v: Vector) -> az.f64:
    return az.sum(v)


def applied(m: Matrix, v: Vector) -> Any:
    return m @ v


def trace(m: Square) -> az.f64:
    return az.sum(az.generate(m.shape[0], lambda i: m[i, i]))


def trace_of_product(m: Square, a: Square) -> az.f64:
    return trace(m @ a)


def bilinear(u: A("m"), a: Matrix, v: Vector) -> az.f64:  # type: ignore[valid-type]
    return u @ a @ v


def products(m: Matrix, n: A("n k")) -> Any:  # type: ignore[valid-type]
    return m @ n


def added(u: Vector, v: Vector) -> Any:
    return u + v


def scaled(s: az.f64, v: Vector) -> Any:
    return s * v


def logsumexp(v: Vector) -> az.f64:
    return az.logsumexp(v)


def mean_squared(x: Matrix, w: Vector, y: A("m")) -> az.f64:  # type: ignore[valid-type]
    return az.mean((x @ w - y) ** 2)


def largest(v: Vector) -> az.f64:
    return az.max(v)


def multiplied(v: Vector) -> az.f64:
    return az.prod(v)


@dataclass(frozen=True)
class Row:
    spellings: Sequence[Callable[..., Any]]
    by: str
    bound: Callable[..., float]  # on the operations, by the sizes
    sizes: str


TABLE = {
    "x A x": Row([product, product_by_einsum, product_by_loops], "x", lambda n: 4 * n**2 + 8 * n, "n"),
    "NNMF by u": Row([outer, outer_turned], "u", lambda m, n: 36 * m * n, "mn"),
    "NNMF by v": Row([outer, outer_turned], "v", lambda m, n: 36 * m * n, "mn"),
    "NNMF by H": Row([factors, factors_by_einsum], "h", lambda k, m, n: 6 * k * m * n + 40 * m * n, "kmn"),
    "NNMF by W": Row([factors, factors_by_einsum], "w", lambda k, m, n: 6 * k * m * n + 40 * m * n, "kmn"),
    "exponentials": Row([exponentials], "p", lambda k, n: 40 * k * n, "kn"),
    "two layers by the first matrix": Row(
        [layers], "a", lambda h, n, o: 8 * h * n + 8 * h * o + 80 * (h + n + o), "hno"
    ),
    "two layers by x": Row([layers], "x", lambda h, n, o: 8 * h * n + 8 * h * o + 80 * (h + n + o), "hno"),
    "two layers by the last matrix": Row([layers], "b", lambda h, n, o: 8 * h * n + 8 * h * o + 80 * h, "hno"),
    "squares": Row([squares], "v", lambda n: 4 * n, "n"),
    "convolution by x": Row([convolution, convolution_turned], "x", lambda k, n: 4 * n**2, "kn"),
    "softmax": Row([softmax], "x", lambda n: 6 * n**2 + 80 * n, "n"),
    "k-means": Row([kmeans], "centroids", lambda d, k, n: 6 * d * k * n + d * k + 8 * k * n, "dkn"),
    "dot": Row([dot], "u", lambda n: 0, "n"),
    "sum": Row([total], "v", lambda n: 0, "n"),
    "M v by v": Row([applied], "v", lambda m, n: 0, "mn"),
    "M v by M": Row([applied], "m", lambda m, n: m**2, "mn"),
    "tr(M)": Row([trace], "m", lambda n: n**2, "n"),
    "tr(M A)": Row([trace_of_product], "m", lambda n: 0, "n"),
    "u M v": Row([bilinear], "a", lambda m, n: m * n, "mn"),
    "M N": Row([products], "m", lambda k, m, n: k * m**2, "kmn"),
    "u + v": Row([added], "u", lambda n: n**2, "n"),
    "s v": Row([scaled], "s", lambda n: 0, "n"),
    "logsumexp": Row([logsumexp], "v", lambda n: 46 * n + 13, "n"),
    "mean squared error": Row([mean_squared], "w", lambda m, n: 5 * m * n + 11 * (m + n), "mn"),
    "max": Row([largest], "v", lambda n: 7 * n + 1, "n"),
    "product of a vector": Row([multiplied], "v", lambda n: 5 * n**2, "n"),
}

SPELLED = [pytest.param(row, f, id=f"{name}: {f.__name__}") for name, row in TABLE.items() for f in row.spellings]


@pytest.mark.parametrize(("row", "f"), SPELLED)
def test_operations(row: Row, f: Any) -> None:
    """At three sizes, each another: gradients cost what the program does (S16), or more where no rule applies (S22)."""
    cost = az.cost(az.jacobian(az.program(f), row.by, "forward"))
    for scale in (1, 2, 4):
        sizes = {name: scale * (9 + 2 * k) for k, name in enumerate(row.sizes)}
        operations = cost.at(**sizes).operations
        assert isinstance(operations, int) and operations <= row.bound(**sizes)


# Values

SIZES = {"n": 5, "m": 4, "k": 3, "d": 2, "h": 4, "o": 3}


def arguments(f: az.Program) -> list[Any]:
    generator = np.random.default_rng(7)
    types = [parameter.type for parameter in f.parameters]
    shapes = [[dim.evaluate(SIZES) for dim in dims(type)] for type in types if type is not None]
    return [generator.uniform(0.5, 1.5, shape) if shape else 0.75 for shape in shapes]


def differences(f: Callable[[Any], Any], x: Any, step: float = 1e-6) -> Any:
    """The Jacobian by central differences, with the places of x behind those of the result."""
    moves = [step * np.reshape(row, np.shape(x)) for row in np.eye(np.size(x))]
    columns = [(np.asarray(f(x + move)) - np.asarray(f(x - move))) / (2 * step) for move in moves]
    return np.moveaxis(columns, 0, -1).reshape(*np.shape(f(x)), *np.shape(x))


@pytest.mark.parametrize(("row", "f"), SPELLED)
def test_values(row: Row, f: Any) -> None:
    """Those of reverse mode and of differences."""
    program = az.program(f)
    given = arguments(program)
    forward, reverse = [az.jacobian(program, row.by, mode) for mode in ("forward", "reverse")]
    found = az.evaluate(forward)(*given)
    np.testing.assert_allclose(found, az.evaluate(reverse)(*given), rtol=1e-12, atol=1e-14)
    k = [parameter.name for parameter in program.parameters].index(row.by)
    plain = az.evaluate(program)
    wanted = differences(lambda x: plain(*given[:k], x, *given[k + 1 :]), given[k])
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("row", "f"), SPELLED)
def test_compiled_values(row: Row, f: Any) -> None:
    program = az.program(f)
    given, forward = arguments(program), az.jacobian(program, row.by, "forward")
    found, wanted = az.compile(forward)(*given), az.evaluate(forward)(*given)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


# The printed programs

PRINTED = [
    (product, "x", "x @ a + a @ x"),
    (product_by_einsum, "x", "a @ x + x @ a"),
    (squares, "v", "v + v"),
    (layers, "x", "(1.0 - tanh(a @ x) ** 2) * (t2 @ b) @ a"),
    (factors, "h", "w.T @ t1"),
    (factors, "w", "t1 @ h.T"),
    (mean_squared, "w", "2.0 / f64(m) * ((x @ w - y) @ x)"),
    (trace_of_product, "m", "a.T"),
]


@pytest.mark.parametrize(("f", "by", "last"), PRINTED, ids=[f"{f.__name__} by {by}" for f, by, _ in PRINTED])
def test_the_loop_over_directions_is_gone(f: Any, by: str, last: str) -> None:
    """What is returned reads as a person would write it."""
    assert az.pretty(az.jacobian(az.program(f), by, "forward")).splitlines()[-1] == f"  return {last}"


def test_the_hand_derived_rule_of_factorisation() -> None:
    """``W.T @ (1 / (W @ H) - A / (W @ H) ** 2)``."""
    a, w, h = arguments(program := az.program(factors))
    p = w @ h
    slope = 1 / p - a / p**2
    by_w, by_h = az.evaluate(az.jacobian(program, ("w", "h"), "forward"))(a, w, h)
    np.testing.assert_allclose(by_h, w.T @ slope, rtol=1e-12)
    np.testing.assert_allclose(by_w, slope @ h.T, rtol=1e-12)


# Zeros by their form, and other zeros


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_zeros_and_infinities(mode: str) -> None:
    """A branch that is not taken is zero, and so is an absent tangent; a factor of the program is a factor."""
    x, c = np.array([0.0, 4.0]), np.ones(2)

    def jacobian(f: Any) -> Any:
        @az.program
        def program(x: Vector, c: Vector):  # type: ignore[no-untyped-def]
            return f(x, c)

        return az.evaluate(az.jacobian(program, 0, mode))(x, c)

    np.testing.assert_array_equal(jacobian(lambda x, c: az.maximum(az.sqrt(x), 0.0) * c), [[np.inf, 0], [0, 0.25]])
    np.testing.assert_array_equal(jacobian(lambda x, c: 0.0 * az.sqrt(x)), [[np.nan, 0], [0, 0]])
    np.testing.assert_array_equal(jacobian(lambda x, c: az.where(c > 0, 0.0, c) * az.sqrt(x)), [[np.nan, 0], [0, 0]])
    np.testing.assert_array_equal(jacobian(lambda x, c: az.where(c < 0, az.sqrt(x), c)), np.zeros((2, 2)))
    np.testing.assert_array_equal(jacobian(lambda x, c: az.sum(az.sqrt(x) * c) + x), [[np.inf, 0.25], [np.inf, 1.25]])


def printed(f: Any, by: str) -> str:
    return az.pretty(az.jacobian(az.program(f), by, "forward"))


def values(f: Any, by: str, *given: Any) -> Any:
    return az.evaluate(az.jacobian(az.program(f), by, "forward"))(*given)


# Numbers before sums, and terms under one test

Places = az.Array[az.i64, "m"]


def seen(x: Vector, k: Places, c: A("m"), s: az.f64) -> az.f64:  # type: ignore[valid-type]
    return az.sum(az.map(lambda j, a: s * (x[j] - a) ** 2, k, c))


def test_kmeans_costs_at_most_twice_as_much_as_by_reverse_mode() -> None:
    forward, reverse = [az.cost(az.jacobian(az.program(kmeans), "centroids", mode)) for mode in ("forward", "reverse")]
    for n, k, d in ((10, 3, 2), (100, 7, 5), (1000, 40, 30)):
        costs = [cost.at(n=n, k=k, d=d).operations for cost in (forward, reverse)]
        assert float(costs[0]) <= 2 * float(costs[1])


def test_a_number_stands_before_a_sum_under_tests_and_what_may_be_infinite_does_not() -> None:
    """Where no test of a sum holds, it is zero by its form, whatever the factor is."""
    assert "2.0 * sum(where(k == i, (x[k] - c) * s, 0.0))" in printed(seen, "x")
    found = values(seen, "x", np.array([3.0, 2.0, 2.0]), np.array([1, 1]), np.array([1.0, 0.5]), np.inf)
    np.testing.assert_array_equal(found, [0.0, np.inf, 0.0])


def test_terms_under_one_test_are_added_under_it() -> None:
    def moved(x: Vector, k: az.i64, c: Vector) -> Any:
        return az.generate(x.shape[0], lambda i: (x[i] - x[k]) * c[i] + x[k] * c[0])

    assert printed(moved, "x").endswith("yield (c[i] if i == j else 0.0) + (c[0] - c[i] if k == j else 0.0)")
    found = values(moved, "x", np.ones(3), 1, np.array([2.0, 3.0, np.inf]))
    np.testing.assert_array_equal(found, [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, -np.inf, np.inf]])


def test_terms_whose_tests_differ_are_multiplied_together() -> None:
    def moved(x: Vector, k: az.i64, c: Vector) -> Any:
        return az.generate(x.shape[0], lambda i: (x[i] + x[k]) * c[i])

    assert printed(moved, "x").endswith("yield c[i] * ((1.0 if i == j else 0.0) + (1.0 if k == j else 0.0))")


# Where the rules must not fire


def test_a_test_without_one_solution_stays_in_the_sum() -> None:
    """Every second place: `2 * l + i == j` has a solution for half of the directions."""

    def f(x: Vector, w: A("k")) -> Any:  # type: ignore[valid-type]
        return az.generate(3, lambda i: az.sum(az.generate(w.shape[0], lambda l: w[l] * x[2 * l + i])))

    assert "sum" in printed(f, "x")
    x, w = np.arange(7.0), np.array([1.0, 2.0, 3.0])
    wanted = [[w[(j - i) // 2] if 0 <= j - i < 6 and (j - i) % 2 == 0 else 0 for j in range(7)] for i in range(3)]
    np.testing.assert_array_equal(az.evaluate(az.jacobian(az.program(f), "x", "forward"))(x, w), wanted)


def test_a_factor_of_every_later_step_stays_a_loop() -> None:
    def f(v: Vector) -> az.f64:
        return az.fori_loop(0, v.shape[0], lambda i, s: s * 0.5 + v[i], 0.0)

    assert "loop" in printed(f, "v")
    np.testing.assert_allclose(az.evaluate(az.jacobian(az.program(f), "v", "forward"))(np.ones(3)), [0.25, 0.5, 1.0])


def test_what_a_branch_of_the_program_alone_needs_is_not_computed_before() -> None:
    """A costly value in a branch that no direction chooses."""

    def only_there(x: Vector, y: Vector) -> az.f64:
        def element(i: Any) -> Any:
            return az.cond(y[i] > 0.0, lambda: az.sum(az.sin(y * y[i])) * x[i], lambda: x[i])

        return az.sum(az.generate(x.shape[0], element))

    found = az.cost(az.jacobian(az.program(only_there), "x", "forward"))(np.ones(8), -np.ones(8))
    assert found.operations <= 4 * 8**2  # no sines


# The mode that is taken


@pytest.mark.parametrize(("row", "f"), SPELLED)
def test_the_default_costs_no_more_than_the_better_mode(row: Row, f: Any) -> None:
    """At three sizes; where they decide, the cost is that of the branch that they take.

    Rows that are accumulated count half as much again (``ad/modes.py``).
    """
    jacobians = [az.jacobian(az.program(f), row.by, mode) for mode in (None, "forward", "reverse")]
    costs = [az.cost(jacobian) for jacobian in jacobians]
    in_rows = any(line.startswith("    ") and "accumulate" in line for line in az.pretty(jacobians[2]).splitlines())
    for scale in (1, 3, 30):
        sizes = {name: scale * (5 + 2 * k) for k, name in enumerate(row.sizes)}
        taken, forward, reverse = [cost.at(**sizes).work for cost in costs]
        assert taken <= 1.05 * min(forward, reverse * (1.5 if in_rows else 1)) + 64


@pytest.mark.parametrize("sizes", [{"n": 9, "k": 2}, {"n": 9, "k": 8}])
def test_a_choice_by_sizes(sizes: dict[str, int]) -> None:
    """A narrow convolution is derived row by row, one nearly as wide as its input column by column."""
    both = az.jacobian(az.program(convolution), "x")
    text = az.pretty(both)
    assert text.count("  return if ") == 1 and "accumulate" in text and "w[t1] if 0 <= t1 < k else 0.0" in text
    x, w = np.ones(sizes["n"]), np.arange(1.0, 1 + sizes["k"])
    wanted = [np.pad(w, (i, sizes["n"] - sizes["k"] - i)) for i in range(sizes["n"] - sizes["k"] + 1)]
    for run in (az.evaluate, az.compile):
        np.testing.assert_array_equal(run(both)(x, w), wanted)


def test_a_choice_by_sizes_of_a_cost_with_logarithms() -> None:
    """By reverse mode places are sorted, which is more for few of them, and less for many."""

    def composed(x: Vector, k: az.Array[az.i64, "n"]) -> Any:
        """The maps of elements that go to one place, one after the other."""

        def then(f: Any, g: Any) -> Any:
            return f[0] * g[0], f[1] * g[0] + g[1]

        return az.permute(then, (az.full(4, 2.0), az.ones(4)), lambda i: k[i], (x, x))

    default, forward, reverse = [
        az.cost(az.jacobian(az.program(composed), "x", mode)) for mode in (None, "forward", "reverse")
    ]
    for n in (1, 4, 1000):
        taken, columns, rows = [float(cost.at(n=n).work) for cost in (default, forward, reverse)]
        assert taken <= 1.05 * min(columns, rows) + 64
    assert columns > 10 * rows


def test_nested_derivatives_hold_two_forms_at_most() -> None:
    """Inside of another derivative, and of a loop, one mode is taken."""
    inner = az.jacobian(az.program(convolution), "x")

    def summed(x: Vector, w: A("k")) -> az.f64:  # type: ignore[valid-type]
        return az.sum(az.sin(inner(x, w)))

    def mapped(x: Matrix, w: A("k")) -> Any:  # type: ignore[valid-type]
        return az.map(lambda row: inner(row, w), x)

    x, w = np.linspace(0, 1, 5), np.array([1.0, 2.0])
    for f in (az.grad(az.program(summed), "w"), az.program(mapped)):
        assert "else:" not in az.pretty(f)
    wanted = differences(lambda w: az.evaluate(az.program(summed))(x, w), w)
    np.testing.assert_allclose(az.evaluate(az.grad(az.program(summed), "w"))(x, w), wanted, rtol=1e-7)


def test_terms_and_factors_that_share_a_graph_are_not_counted_one_by_one() -> None:
    """Sums of sums and products of products, of 2 ** 40 each."""

    def doubled(x: Vector) -> az.f64:
        def element(v: Any) -> Any:
            for _ in range(40):
                v = v + v * 0.5
            for _ in range(6):
                v = v * v
            return v

        return az.sum(az.map(element, x))

    f, x = az.program(doubled), np.full(3, 1e-7)
    found = az.evaluate(az.jacobian(f, "x", "forward"))(x)
    np.testing.assert_allclose(found, az.evaluate(az.jacobian(f, "x", "reverse"))(x), rtol=1e-12)


def test_the_only_mode_that_a_rule_allows() -> None:
    """A cotangent that is clipped has no transpose: only rows can be derived."""
    clipped = az.custom_vjp(lambda x: x * 3.0)
    clipped.defvjp(lambda primals, g: (az.clip(g * 3.0, -1.0, 1.0),))

    def f(x: Vector) -> Any:
        return az.map(clipped, x)

    with pytest.raises(az.Unsupported, match="not linear"):
        az.evaluate(az.jacobian(az.program(f), 0, "forward"))(np.ones(2))
    np.testing.assert_array_equal(az.evaluate(az.jacobian(az.program(f)))(np.ones(2)), np.eye(2))
