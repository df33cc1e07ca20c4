"""The rules of reduce, scan and histogram at their corners: ties, zeros, nothing, small matrices; in both modes."""

from typing import Any

import numpy as np
import pytest
from programs import numbers

import adze as az
from adze.core import trees

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
Places = az.Array[az.i64, "n"]
INF = float("inf")


def jacobian(program: az.Program, x: Any, *more: Any) -> Any:
    """By reverse mode, evaluated; compiled code and forward mode were seen to give the same."""
    shape = np.shape(az.evaluate(program)(x, *more))
    rows, pull = [], az.vjp(program, argnums=0)
    compiled = az.compile(pull, threads=1)
    for place in np.ndindex(shape):
        cotangent = np.zeros(shape)
        cotangent[place] = 1.0
        rows.append(az.evaluate(pull)(x, *more, cotangent)[1])
        np.testing.assert_allclose(compiled(x, *more, cotangent)[1], rows[-1], rtol=1e-13, atol=1e-13)
    result = np.array(rows).reshape(*shape, *np.shape(x))
    push = az.evaluate(az.jvp(lambda v: program(v, *more)))
    for place in np.ndindex(np.shape(x)):
        tangent = np.zeros(np.shape(x))
        tangent[place] = 1.0
        np.testing.assert_allclose(push(x, tangent)[1], result[(..., *place)], rtol=1e-12, atol=1e-12)
    return result


def first_places(x: Any, sign: int) -> Any:
    """The Jacobian of running maxima (or minima, for -1)."""
    rows = np.zeros((len(x), len(x)))
    for i in range(len(x)):
        rows[i, np.argmax(sign * x[: i + 1])] = 1
    return rows


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("x", [[], [2.0], [1.0, 3.0, 3.0, 2.0, 3.0], [-INF, -INF, 1.0, INF, INF]], ids=str)
def test_running_extrema_move_with_the_first_that_attains_them(x: list[float], sign: int) -> None:
    @az.program
    def f(x: Vector) -> Vector:
        return az.scan(az.maximum, -INF, x) if sign == 1 else az.scan(az.minimum, INF, x)

    array = sign * np.array(x)
    np.testing.assert_array_equal(jacobian(f, array), first_places(array, sign))


@az.program
def largest(x: Vector, bins: Places) -> az.Array[az.f64, "4"]:
    return az.histogram(az.maximum, -INF, 4, bins, x)


def test_extrema_by_bin_move_with_the_first_that_attains_them() -> None:
    """Bin 0 has a tie, bin 1 nothing but infinities, bin 2 is empty, and two elements are in no bin."""
    bins = np.array([0, 5, 0, 1, 0, 1, -1, 3])
    x = np.array([1.0, 9.0, 4.0, -INF, 4.0, -INF, 9.0, 2.0])
    wanted = np.zeros((4, 8))
    wanted[[0, 1, 3], [2, 3, 7]] = 1
    np.testing.assert_array_equal(jacobian(largest, x, bins), wanted)
    np.testing.assert_array_equal(jacobian(largest, x[:0], bins[:0]), np.zeros((4, 0)))


def test_extrema_by_bin_are_not_sorted() -> None:
    counted = az.cost(az.vjp(largest, argnums=0))
    cost = [counted(numbers(n), np.arange(n) % 4, np.ones(4)).work for n in (40, 400)]
    assert cost[1] < 10 * cost[0]


@az.program
def product_by_bin(x: Vector, bins: Places) -> az.Array[az.f64, "3"]:
    return az.histogram(lambda a, b: a * b, 1.0, 3, bins, x)


@pytest.mark.rest
def test_products_by_bin_to_second_order() -> None:
    """With no zero, one and two zeros in a bin, and what is in no bin."""
    x, bins = np.array([2.0, 3.0, 0.0, 4.0, 0.0, 0.0, 5.0, 7.0]), np.array([0, 0, 1, 1, 2, 2, 2, 8])
    others = np.zeros((3, 8))
    hessian = np.zeros((8, 8))  # of the sum of all products
    for i in range(7):
        mates = [k for k in range(8) if bins[k] == bins[i] and k != i]
        others[bins[i], i] = np.prod(x[mates])
        for k in mates:
            hessian[i, k] = np.prod(x[[j for j in mates if j != k]])
    np.testing.assert_array_equal(jacobian(product_by_bin, x, bins), others)
    total = az.program(lambda x, bins: az.sum(product_by_bin(x, bins)))
    np.testing.assert_array_equal(jacobian(az.grad(total), x, bins), hessian)


@pytest.mark.parametrize("x", [[2.0, 0.0, 4.0, 0.0], [0.0], [1.0, INF, 2.0]], ids=str)
def test_running_products_at_zeros(x: list[float]) -> None:
    @az.program
    def f(x: Vector) -> Vector:
        return az.scan(lambda a, b: a * b, 1.0, x)

    def by(i: int, j: int) -> float:
        return float(np.prod(np.delete(x[: i + 1], j))) if j <= i else 0.0

    wanted = [[by(i, j) for j in range(len(x))] for i in range(len(x))]
    if INF in x:  # an infinity times the zero of a cotangent is not defined
        cotangent = np.ones(3)
        assert az.evaluate(az.vjp(f))(np.array(x), cotangent)[1].tolist() == np.sum(wanted, 0).tolist()
    else:
        np.testing.assert_array_equal(jacobian(f, np.array(x)), wanted)


@pytest.mark.parametrize(("n", "d"), [(0, 2), (1, 2), (5, 2), pytest.param(3, 3, marks=pytest.mark.slow)])
def test_scans_of_small_matrices(n: int, d: int) -> None:
    """As a scan of affine maps: against differences, which are exact for what is linear in each element."""

    @az.program
    def f(m: az.Array[az.f64, f"n {d} {d}"]) -> az.Array[az.f64, f"n {d} {d}"]:
        return az.scan(lambda a, b: a @ b, np.eye(d), m)

    m = numbers(n, d, d) / 2
    result = jacobian(f, m)
    for place in np.ndindex(m.shape):
        moved = m.copy()
        moved[place] += 1
        difference = az.evaluate(f)(moved) - az.evaluate(f)(m)
        np.testing.assert_allclose(result[(..., *place)], difference, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_the_span_of_the_gradient_of_a_scan_of_small_matrices_is_logarithmic(d: int) -> None:
    @az.program
    def f(m: az.Array[az.f64, f"n {d} {d}"]) -> az.f64:
        return az.sum(az.scan(lambda a, b: a @ b, np.eye(d), m))

    gradient = az.cost(az.grad(f))
    assert int(gradient.at(n=4096).span) < 4 * int(gradient.at(n=16).span)


@pytest.mark.slow
def test_components_that_reach_each_other_and_those_that_do_not() -> None:
    """A sum, an extremum and affine maps in one operator; a cotangent of each result."""

    def op(p: Any, q: Any) -> Any:
        return p[0] + q[0], az.maximum(p[1], q[1]), p[2] * q[2], p[3] * q[2] + q[3]

    @az.program
    def f(x: Vector) -> az.Array[az.f64, "8"]:
        elements = (x, x * x, az.sin(x), x + 1.0)
        neutral = (0.0, -INF, 1.0, 0.0)
        made = az.reduce(op, neutral, elements)
        runs = az.scan(op, neutral, elements)
        return az.stack([*made, *[az.sum(run * run) for run in runs]])

    x, h = np.array([0.5, -1.25, 0.75, 1.0]), 1e-6
    result = jacobian(f, x)
    for k in range(4):
        step = h * np.eye(4)[k]
        difference = (az.evaluate(f)(x + step) - az.evaluate(f)(x - step)) / (2 * h)
        np.testing.assert_allclose(result[:, k], difference, rtol=1e-7, atol=1e-7)


def of_two(p: Any, q: Any) -> Any:
    """A choice: the larger, and the second of two that are equal."""
    return az.where(p > q, p, q)


@pytest.mark.parametrize("x", [[], [2.0], [1.0, 3.0, 3.0, 2.0], [-INF, -INF], [-INF, 4.0, INF, INF]], ids=str)
@pytest.mark.parametrize("first", [True, False])
def test_choices_move_with_the_element_that_they_give_back(x: list[float], first: bool) -> None:
    """The operator says which of two that are equal; the neutral element is never meant, be it as large."""
    operator = (lambda p, q: az.where(p >= q, p, q)) if first else of_two

    @az.program
    def f(x: Vector) -> Any:
        return az.reduce(operator, -INF, x), az.scan(operator, -INF, x)

    def chosen(k: int) -> Any:
        """The place that is chosen of the first k elements."""
        largest = [i for i in range(k) if x[i] == max(x[:k])]
        return np.arange(len(x)) == (largest[0] if first else largest[-1])

    rows = np.array([chosen(k) for k in range(1, 1 + len(x))]).reshape(len(x), len(x))
    for k, row in enumerate(rows):
        _, (moved, running) = az.evaluate(az.jvp(f))(np.array(x), np.eye(len(x))[k])
        assert moved == rows[-1, k]
        np.testing.assert_array_equal(running, rows[:, k])
        given = az.evaluate(az.vjp(lambda x: f(x)[1]))(np.array(x), np.eye(len(x))[k])[1]
        np.testing.assert_array_equal(given, row)
    gradient = az.grad(lambda x: f(x)[0])
    np.testing.assert_array_equal(az.evaluate(gradient)(np.array(x)), rows[-1] if x else [])
    assert "scan" not in az.pretty(gradient.instance_for((np.array(x),)))


def test_choices_by_bin() -> None:
    """Bin 0 has a tie, bin 1 an element like the neutral one, bin 2 is empty; two elements are in no bin."""

    @az.program
    def f(x: Vector, bins: Places) -> az.Array[az.f64, "4"]:
        return az.histogram(of_two, -INF, 4, bins, x)

    bins = np.array([0, 5, 0, 1, 0, -1, 3])
    x = np.array([1.0, 9.0, 4.0, -INF, 4.0, 9.0, 2.0])
    _, given = az.evaluate(az.vjp(f, argnums=0))(x, bins, np.array([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_array_equal(given, [0, 0, 0, 2, 1, 0, 4])
    assert "argsort" not in az.pretty(az.grad(lambda x, bins: az.sum(f(x, bins))).instance_for((x, bins)))


def test_an_extremum_with_what_belongs_to_it() -> None:
    """Several components, the operands of the choice either way round, and a free variable in its test."""

    @az.program
    def f(x: Vector, y: Vector, bias: az.f64) -> Any:
        def op(p: Any, q: Any) -> Any:
            smaller = p[0] + bias > q[0] + bias
            return az.where(smaller, q[0], p[0]), az.where(smaller, q[1], p[1]), az.where(smaller, q[2], p[2])

        return az.reduce(op, (INF, 0.0, 0), (az.sin(x), x * y, az.iota(x.shape[0])))

    x, y = np.array([1.0, -2.0, -1.0, 4.0]), np.array([3.0, 5.0, 7.0, 2.0])
    _, by_x, by_y, by_bias = az.evaluate(az.vjp(f))(x, y, 0.25, (2.0, 3.0, None))
    np.testing.assert_allclose(by_x, [0, 2 * np.cos(-2.0) + 3 * 5, 0, 0])
    np.testing.assert_allclose(by_y, [0, 3 * -2.0, 0, 0])
    assert by_bias == 0
    second = az.evaluate(az.hvp(lambda x: f(x, y, 0.25)[1] ** 2))(x, np.ones(4))
    np.testing.assert_allclose(second, [0, 2 * 25, 0, 0])


def test_the_row_with_the_largest_key() -> None:
    """Only that row is read in the return sweep."""

    @az.program
    def f(keys: Vector, rows: az.Array[az.f64, "n m"]) -> Any:
        def op(p: Any, q: Any) -> Any:
            return az.cond(p[0] >= q[0], lambda: p, lambda: q)

        return az.reduce(op, (-INF, az.zeros(rows.shape[1])), (2.0 * keys, rows**2))

    keys, rows = np.array([1.0, 3.0, 3.0, 2.0]), numbers(4, 3)
    cotangent = (0.5, np.array([1.0, 2.0, 3.0]))
    _, by_keys, by_rows = az.evaluate(az.vjp(f))(keys, rows, cotangent)
    wanted = np.zeros((4, 3))
    wanted[1] = 2 * rows[1] * cotangent[1]
    np.testing.assert_array_equal(by_keys, [0, 1, 0, 0])
    np.testing.assert_array_equal(by_rows, wanted)
    moved = az.evaluate(az.jvp(f))(keys, rows, np.ones(4), np.ones((4, 3)))[1]
    assert moved[0] == 2
    np.testing.assert_array_equal(moved[1], 2 * rows[1])
    cost = az.cost(az.vjp(f))
    assert cost(keys, rows, cotangent).work < 4 * (az.cost(f)(keys, rows).work + 20)


# Every rule in every direction, and what elements may be


def differences(program: az.Program, x: Any, v: Any) -> list[Any]:
    """The leaves of the derivative along v, by central differences."""
    h = 1e-6
    ahead, behind = (trees.flatten(az.evaluate(program)(x + step * v))[0] for step in (h, -h))
    with np.errstate(invalid="ignore"):  # infinities that stay
        return [np.where(a == b, 0.0, (a - b) / (2 * h)) for a, b in zip(ahead, behind, strict=True)]


def both_modes(program: az.Program, x: Any, tolerance: float = 1e-6, compiled: bool = False) -> None:
    """Forward mode against differences, and reverse mode against forward mode; compiled against evaluated."""
    v = numbers(*np.shape(x), seed=2) + 0.125
    moved = trees.flatten(az.evaluate(az.jvp(program))(x, v)[1])[0]
    for got, wanted in zip(moved, differences(program, x, v), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
    result = az.evaluate(program)(x)
    cotangent = trees.tree_map(lambda leaf: numbers(*np.shape(leaf), seed=3)[()], result)
    given = az.evaluate(az.vjp(program))(x, cotangent)[1]
    assert given.shape == np.shape(x)
    left = sum(np.sum(a * b) for a, b in zip(trees.flatten(cotangent)[0], moved, strict=True))
    assert np.sum(given * v) == pytest.approx(left, rel=1e-11, abs=1e-11)
    if compiled:
        np.testing.assert_allclose(
            az.compile(az.vjp(program), threads=1)(x, cotangent)[1], given, rtol=1e-12, atol=1e-12
        )


def softly(p: Any, q: Any) -> Any:
    """A general operator, with 0 as its neutral element."""
    return p + q + p * q


def affine(f: Any, g: Any) -> Any:
    return f[0] * g[0], f[1] * g[0] + g[1]


def counting(p: Any, q: Any) -> Any:
    """The product, and beside it the number of elements, which the sum of their squares uses."""
    return p[0] * q[0], p[1] + q[1], p[2] + q[2] + 0.0 * p[1]


# An operator, its neutral element, and its elements from numbers.
RULES: dict[str, tuple[Any, Any, Any]] = {
    "sum": (lambda p, q: p + q, 0.0, lambda x: x),
    "product": (lambda p, q: p * q, 1.0, lambda x: x),
    "maximum": (az.maximum, -INF, lambda x: x),
    "minimum": (az.minimum, INF, lambda x: x),
    "softly": (softly, 0.0, lambda x: x),
    "affine": (affine, (1.0, 0.0), lambda x: (x, x * x)),
    "counting": (counting, (1.0, 0, 0.0), lambda x: (x, az.iota(x.shape[0]) + 1, x * x)),
    "rows": (lambda p, q: p + q, np.zeros(2), lambda x: az.stack([x, x * x], 1)),
    "matrices": (lambda p, q: p @ q, np.eye(2), lambda x: az.map(lambda a: az.array([[a, 1.0], [0.5, a * a]]), x)),
}
DIRECTIONS = [{}, {"exclusive": True}, {"reverse": True}, {"exclusive": True, "reverse": True}]
FAST = {("product", 1), ("softly", 3), ("affine", 2), ("maximum", 3), ("counting", 1), ("rows", 2)}


def floating(tree: Any) -> Any:
    """The floating leaves."""
    return tuple([leaf for leaf in trees.flatten(tree)[0] if leaf.dtype.kind == "float"])


@pytest.mark.parametrize(
    ("rule", "direction"),
    [
        pytest.param(rule, direction, marks=() if (rule, direction) in FAST else pytest.mark.slow)
        for rule in RULES
        for direction in range(len(DIRECTIONS))
    ],
)
def test_scans_in_all_directions(rule: str, direction: int) -> None:
    """Of some elements, of one and of none; compiled in the long run."""
    operator, neutral, elements = RULES[rule]

    @az.program
    def f(x: Vector) -> Any:
        return floating(az.scan(operator, neutral, elements(x), **DIRECTIONS[direction]))

    for n in (5, 1, 0):
        both_modes(f, numbers(n) / 4 + 0.03, compiled=n == 5 and (rule, direction) not in FAST)


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=() if rule == "counting" else pytest.mark.slow) for rule in RULES]
)
def test_reductions_and_histograms_of_some_of_one_and_of_nothing(rule: str) -> None:
    """Bin 1 is empty, and two elements are in no bin."""
    operator, neutral, elements = RULES[rule]
    bins = np.array([2, 0, 3, 2, -1, 0])

    @az.program
    def f(x: Vector) -> Any:
        made = az.histogram(operator, neutral, 3, az.take(bins, az.iota(x.shape[0])), elements(x))
        total = az.reduce(operator, neutral, elements(x))
        return tuple([az.where(abs(leaf) < INF, leaf, 0.0) for leaf in floating((made, total))])

    for n in (6, 1, 0):
        both_modes(f, numbers(n) / 4 + 0.03, compiled=n == 6 and rule not in ("counting", "matrices"))


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_products_with_zeros_to_second_order(zeros: int) -> None:
    """Of a reduction and of a scan: sums of products of the others."""

    @az.program
    def f(x: Vector) -> az.f64:
        return az.prod(x) + az.sum(az.cumprod(x))

    x = np.array([2.0, -3.0, 0.5, 4.0, 1.5])
    x[[1, 3, 4][:zeros]] = 0.0

    def others(*without: int) -> float:
        """The derivative by these elements, each once."""
        parts = [x[:k] for k in range(1, 6)] + [x]
        return sum(float(np.prod(np.delete(part, without))) for part in parts if max(without) < len(part))

    pairs = [[others(i, k) if i != k else 0.0 for k in range(5)] for i in range(5)]
    np.testing.assert_allclose(az.evaluate(az.grad(f))(x), [others(i) for i in range(5)], rtol=1e-14)
    hessian = az.evaluate(az.hessian(f))(x)
    np.testing.assert_allclose(hessian, pairs, rtol=1e-14, atol=1e-14)


def test_free_variables_of_operators_have_cotangents() -> None:
    """Numbers and arrays that operators of reductions, scans and histograms read, to second order."""

    @az.program
    def f(x: Vector, w: Vector, c: az.f64) -> az.f64:
        def op(p: Any, q: Any) -> Any:
            return p + q + c * w[0] * p * q

        places = az.iota(x.shape[0]) % 2
        runs = az.scan(op, 0.0, x, reverse=True)
        return az.reduce(op, 0.0, x) + az.sum(runs**2) + az.sum(az.histogram(op, 0.0, 2, places, x) ** 2)

    point = numbers(4) / 8, numbers(4, seed=1) / 8, 0.75
    along, h = (numbers(4, seed=2), numbers(4, seed=3), 0.5), 1e-6
    gradient = az.evaluate(az.grad(f, argnums=(0, 1, 2)))

    def moved(step: float) -> list[Any]:
        return [x + step * v for x, v in zip(point, along, strict=True)]

    slope = (az.evaluate(f)(*moved(h)) - az.evaluate(f)(*moved(-h))) / (2 * h)
    parts = gradient(*point)
    assert sum(np.sum(g * v) for g, v in zip(parts, along, strict=True)) == pytest.approx(slope, rel=1e-7)
    assert np.all(parts[1][1:] == 0) and parts[1][0] != 0
    assert az.evaluate(az.jvp(f))(*point, *along)[1] == pytest.approx(slope, rel=1e-7)
    second = az.evaluate(az.hvp(f, argnums=(0, 1, 2)))(*point, *along)
    for got, ahead, behind in zip(second, gradient(*moved(h)), gradient(*moved(-h)), strict=True):
        np.testing.assert_allclose(got, (ahead - behind) / (2 * h), rtol=1e-6, atol=1e-7)


def test_elements_that_are_nan() -> None:
    """They spoil what is made of them, and no other bin or earlier result."""

    @az.program
    def f(x: Vector, bins: Places) -> Any:
        return (
            az.cumsum(x),
            az.cumprod(x),
            az.scan(softly, 0.0, x),
            az.histogram(softly, 0.0, 2, bins, x),
            az.histogram(lambda a, b: a * b, 1.0, 2, bins, x),
            az.histogram(az.maximum, -INF, 2, bins, x),
        )

    x, bins = np.array([2.0, 3.0, np.nan, 5.0]), np.array([1, 0, 1, 0])

    def part(k: int) -> az.Program:
        return az.program(lambda x: f(x, bins)[k])

    early, bin = np.array([1.0, 1.0, 0.0, 0.0]), np.array([1.0, 0.0])
    for k, wanted in [(3, [6, 4]), (4, [5, 3]), (5, [0, 1])]:
        np.testing.assert_array_equal(az.evaluate(az.vjp(part(k)))(x, bin)[1][[1, 3]], wanted)
    np.testing.assert_array_equal(az.evaluate(az.vjp(part(0)))(x, early)[1], [2, 1, 0, 0])
    for k in (1, 2):
        moved = az.evaluate(az.jvp(part(k)))(x, np.ones(4))[1]
        assert np.isfinite(moved[:2]).all() and np.isnan(moved[2:]).all()


@pytest.mark.parametrize("rule", ["product", "maximum", "softly", "affine"])
def test_single_precision(rule: str) -> None:
    """Derivatives are f32, and those of f64 to rounding."""
    operator, neutral, elements = RULES[rule]

    def f(x: Any) -> Any:
        runs = az.scan(operator, neutral, elements(x))
        made = az.histogram(operator, neutral, 2, az.iota(x.shape[0]) % 2, elements(x))
        return sum(az.sum(leaf) for leaf in floating((runs, made, az.reduce(operator, neutral, elements(x)))))

    x = numbers(6) / 4 + 0.03
    single = az.evaluate(az.grad(f))(x.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, az.evaluate(az.grad(f))(x), rtol=1e-4)
    tangent = az.evaluate(az.jvp(f))(x.astype(np.float32), np.ones(6, np.float32))[1]
    assert tangent.dtype == np.float32 and tangent == pytest.approx(np.sum(single), rel=1e-4)
