"""Jacobians by a few parameters: all directions in one pass, whose tangents that are zero are left out.

``project`` of bundle adjustment is measured as in Shaikhha et al. (2019), figure 12: 2 n results by the 11 parameters
of a camera (``benchmarks/programs/jacobians.py``).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from load import benchmark

import adze as az

pytestmark = pytest.mark.unguarded

A = az.Array
Three, Vector = A[az.f64, 3], A[az.f64, "n"]


def flat(found: Any) -> list[np.ndarray]:
    if isinstance(found, tuple):
        return [leaf for part in found for leaf in flat(part)]
    return [] if found is None else [np.ravel(found)]


def differences(f: Callable[..., Any], k: int, given: list[Any], step: float = 1e-6) -> np.ndarray:
    """The columns by a parameter, by central differences, of all results one after the other."""
    columns = []
    for row in np.eye(np.size(given[k])):
        move = step * np.reshape(row, np.shape(given[k]))
        ends = [np.concatenate(flat(f(*given[:k], given[k] + s * move, *given[k + 1 :]))) for s in (1, -1)]
        columns.append((ends[0] - ends[1]) / (2 * step))
    return np.stack(columns, 1)


# Values


def squared_error(w: Three, x: A[az.f64, "n", 3], y: Vector) -> az.f64:  # type: ignore[valid-type]
    return az.sum((az.tanh(x @ w) - y) ** 2)


def running(w: Three, x: Vector) -> Any:  # type: ignore[valid-type]
    return az.cumsum(w[0] * x**2 + w[1] * x) + w[2]


def largest(w: Three, x: Vector) -> az.f64:  # type: ignore[valid-type]
    return az.max(az.sin(w[0] * x) + w[1] * x) * w[2]


def running_product(w: Three, x: Vector) -> Any:  # type: ignore[valid-type]
    return az.cumprod(w[0] * x + w[1]) * w[2]


def until_long(w: A[az.f64, 2, 2]) -> Any:  # type: ignore[valid-type]
    return az.while_loop(lambda s: az.sum(s**2) < 100.0, lambda s: w @ s + s, az.array([1.0, 0.5]))


def steps(w: A[az.f64, 2, 2], x: Vector) -> Any:  # type: ignore[valid-type]
    return az.fori_loop(0, 5, lambda i, s: az.sin(w @ s) + s * x[i], az.array([1.0, 0.5]))


def bins(w: Three, k: A[az.i64, "n"], x: Vector) -> Any:  # type: ignore[valid-type]
    return az.histogram(lambda a, b: a + b, 0.0, 4, k, x * w[0] + az.exp(w[1] * x) * w[2])


def scattered(w: Three, k: A[az.i64, "n"], x: Vector) -> Any:  # type: ignore[valid-type]
    return az.scatter(x * w[2], k, x * w[0] + az.exp(w[1] * x))


def solved(w: A[az.f64, 3, 3], b: Three) -> Any:  # type: ignore[valid-type]
    return az.linalg.solve(w, b)


def branches(w: Three, x: Vector) -> Any:  # type: ignore[valid-type]
    def element(v: Any) -> Any:
        return az.cond(v > w[0], lambda: az.array([w[1] * v, w[2]]), lambda: az.array([w[0] * w[0], v]))

    return az.map(element, x)


def gradients(w: Three, x: Vector) -> Any:  # type: ignore[valid-type]
    return az.grad(lambda u: az.sum(az.sin(u * w[0]) * w[1] + u**3 * w[2]))(x)


def of_a_jacobian(w: A[az.f64, 2], x: Vector) -> az.f64:  # type: ignore[valid-type]
    return az.sum(az.jacobian(lambda p: az.map(lambda v: az.sin(p[0] * v) * p[1], x))(w) ** 2)


def of_a_rule(w: Three, x: Vector) -> Any:  # type: ignore[valid-type]
    tripled = az.custom_jvp(lambda v: v * 3.0)
    tripled.defjvp(lambda primals, tangents: tangents[0] * 3.0)
    return az.map(lambda v: tripled(v * w[1]) * w[2], x)


draw = np.random.default_rng(0)
x, w3, w2 = draw.uniform(0.2, 1, 6), draw.uniform(0.2, 1, 3), draw.uniform(-1, 1, (2, 2))
places = draw.integers(0, 4, 6)

PROGRAMS: list[tuple[Any, list[Any]]] = [
    (squared_error, [w3, draw.normal(size=(6, 3)), x]),
    (running, [w3, x]),
    (largest, [w3, x]),
    (running_product, [w3, x]),
    (until_long, [w2]),
    (steps, [w2, x]),
    (bins, [w3, places, x]),
    (scattered, [w3, draw.permutation(6), x]),
    (solved, [np.eye(3) * 2 + 0.1 * draw.normal(size=(3, 3)), w3]),
    (branches, [w3, x]),
    (gradients, [w3, x]),
    (of_a_jacobian, [w3[:2], x]),
    (of_a_rule, [w3, x]),
]


@pytest.mark.parametrize(("f", "given"), PROGRAMS, ids=[f.__name__ for f, _ in PROGRAMS])
def test_values(f: Any, given: list[Any]) -> None:
    """Those of reverse mode, where there is one, and of differences; evaluated and compiled."""
    program = az.program(f)
    jacobian = az.jacobian(program, 0, "forward")
    found = np.concatenate(flat(az.evaluate(jacobian)(*given)))
    wanted = differences(az.evaluate(program), 0, given).ravel()
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(np.concatenate(flat(az.compile(jacobian)(*given))), found, rtol=1e-12, atol=1e-14)
    if f is not of_a_rule:
        rows = np.concatenate(flat(az.evaluate(az.jacobian(program, 0, "reverse"))(*given)))
        np.testing.assert_allclose(found, rows, rtol=1e-11, atol=1e-13)


def test_several_parameters_and_results() -> None:
    """Also of another scalar type, and with integers among the results."""

    @az.program
    def f(a: az.f32, b: A[az.f64, 2], x: Vector):  # type: ignore[no-untyped-def, valid-type]
        return az.exp(-a.astype(az.f64) * x) * b[0], az.sum(b**2 * a.astype(az.f64)), az.iota(3)

    given = np.float32(0.5), np.array([2.0, 3.0]), np.array([1.0, 2.0])
    (curve_a, curve_b), (sum_a, sum_b), none = az.evaluate(az.jacobian(f, (0, 1), "forward"))(*given)
    e = np.exp(-0.5 * given[2])
    assert none is None and curve_a.dtype == np.float32
    np.testing.assert_allclose(curve_a, -given[2] * e * 2, rtol=1e-6)
    np.testing.assert_allclose(curve_b, np.stack([e, 0 * e], 1), rtol=1e-12)
    np.testing.assert_allclose(sum_a, 13.0)
    np.testing.assert_allclose(sum_b, [2.0, 3.0])


def test_one_value_for_two_parameters() -> None:
    @az.program
    def f(a: A[az.f64, 2], b: A[az.f64, 2], x: Vector):  # type: ignore[no-untyped-def, valid-type]
        return az.map(lambda v: a[0] * v + az.sin(b[1] * v) * b[0], x)

    @az.program
    def both(a: A[az.f64, 2], x: Vector):  # type: ignore[no-untyped-def, valid-type]
        return az.jacobian(f, (0, 1), "forward")(a, a, x)

    a, x = np.array([2.0, 3.0]), np.array([1.0, 2.0])
    by_a, by_b = az.evaluate(both)(a, x)
    np.testing.assert_allclose(by_a, np.stack([x, 0 * x], 1))
    np.testing.assert_allclose(by_b, np.stack([np.sin(3 * x), 2 * x * np.cos(3 * x)], 1))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """All directions side by side, whatever that costs."""
    monkeypatch.setattr("adze.ad.jacobians.cheaper_way", lambda b, block, plain, other: other())


def in_small_arrays(w: A[az.f64, 2, 2], x: Vector) -> Any:  # type: ignore[valid-type]
    """Arrays of arrays, of which some elements move, and branches that give them."""

    def element(v: Any) -> Any:
        rows = az.generate(2, lambda i: az.generate(3, lambda j: w[i, 0] * v + j * w[i, 1] ** 2))
        chosen = az.cond(v > 0.5, lambda: rows, lambda: az.array([[v, w[0, 0], 1.0], [0.0, v, w[1, 1]]]))
        return az.sum(chosen * v) + chosen[1, 2] - chosen[0, 0] ** 2

    return az.map(element, x)


def of_unlike_types(w: A[az.f32, 3], x: Vector) -> Any:  # type: ignore[valid-type]
    wide = w.astype(az.f64)
    return az.map(lambda v: az.sin(wide[0] * v) * wide[1] + az.where(v > 0.5, wide[2] * wide[0], v), x)


def in_chains(w: Three, x: Vector) -> Any:  # type: ignore[valid-type]
    """Numbers that move with one number alone, and with several."""

    def element(v: Any) -> Any:
        a = az.exp(az.sin(w[0] * v) * 2.0)
        b = az.where(v > 0.4, w[1] * v, 0.5)
        return a + b * b + az.sqrt(b + a) * w[2] - a / (1.0 + w[0] ** 2)

    return az.map(element, x)


def sums(w: Three, x: Vector) -> Any:  # type: ignore[valid-type]
    """Of a few elements, of many, under a test, and of what does not move."""
    many = az.sum(az.map(lambda v: az.where(v > w[0] * 0.0 + 0.5, w[1] * v, v) + w[2], x))
    few = az.sum(az.generate(3, lambda i: w[i] * (i + 1.0)))
    return az.array([many * few, az.sum(x) + w[0], many])


def branches_in_a_scan(w: Three, x: Vector) -> Any:  # type: ignore[valid-type]
    """A scan is derived direction by direction, and so is what is in it."""
    return az.cumprod(az.map(lambda v: az.cond(v > 0.5, lambda: w[0] * v, lambda: w[1] + v * w[2]), x))


def branches_that_give_arrays(w: Three, x: Vector) -> Any:  # type: ignore[valid-type]
    """As long as the run says."""
    up, down = lambda: az.cumsum(x * w[1]), lambda: az.cumsum(w[0] * x + w[2])
    return az.cond(w[0] > 0.0, up, down) * w[1] + az.cond(w[0] < 0.0, up, down)


BESIDE = [
    *PROGRAMS,
    (branches_in_a_scan, [w3, x]),
    (branches_that_give_arrays, [w3, x]),
    (in_small_arrays, [w2, x]),
    (of_unlike_types, [w3.astype(np.float32), x]),
    (in_chains, [w3, x]),
    (sums, [w3, x]),
]


@pytest.mark.parametrize(("f", "given"), BESIDE, ids=[f.__name__ for f, _ in BESIDE])
def test_all_directions_side_by_side(f: Any, given: list[Any], always: None) -> None:
    program = az.program(f)
    found = np.concatenate(flat(az.evaluate(az.jacobian(program, 0, "forward"))(*given)))
    columns = az.evaluate(az.jvp(program, argnums=0))
    for k, unit in enumerate(np.eye(np.size(given[0]))):
        tangent = unit.reshape(np.shape(given[0])).astype(given[0].dtype)
        column = np.concatenate(flat(columns(*given, tangent)[1]))
        rtol = 1e-6 if given[0].dtype == np.float32 else 1e-11
        np.testing.assert_allclose(found.reshape(len(column), -1)[:, k], column, rtol=rtol, atol=1e-13)


# What tangents have in common


def quadratic(w: Three, x: Vector) -> Any:  # type: ignore[valid-type]
    def element(v: Any) -> Any:
        q = az.sin(w[0] * v)
        return w[1] * q + w[2] * q * q

    return az.map(element, x)


def unlike(w: Three, x: Vector) -> Any:  # type: ignore[valid-type]
    return az.map(lambda v: az.sin(w[0] * v) * w[1] + az.exp(w[1] * v) * w[0], x)


def under_unlike_tests(w: Three, x: Vector) -> Any:  # type: ignore[valid-type]
    return az.map(lambda v: az.where(v > 0.5, w[0], 0.0) * az.where(v < 1.0, w[0] * v, 0.0), x)


def test_a_factor_of_both_terms_of_a_tangent_is_multiplied_once(always: None) -> None:
    """The derivative of a polynomial of what moves is one factor, that of what moves the other."""
    text = az.pretty(az.jacobian(az.program(quadratic), "w", "forward"))
    assert "(w[1] + 2.0 * t2 * w[2]) * v * cos(t1) if i < 1" in text


@pytest.mark.parametrize(
    ("f", "term"),
    [
        (unlike, "v * cos(t1) * w[1] + t2 if i < 1 else sin(t1) + v * t2 * w[0]"),
        (under_unlike_tests, "t1 + t2 if i < 1"),
    ],
)
def test_terms_without_a_common_factor_are_added(f: Any, term: str, always: None) -> None:
    jacobian = az.jacobian(az.program(f), "w", "forward")
    assert term in az.pretty(jacobian)
    given = [np.array([0.7, 1.3, 0.2]), np.array([0.2, 0.75, 1.5])]
    found = np.ravel(az.evaluate(jacobian)(*given))
    np.testing.assert_allclose(found, differences(az.evaluate(az.program(f)), 0, given).ravel(), rtol=1e-6, atol=1e-8)


# Zeros by their form


def test_what_is_zero_by_its_form_costs_nothing() -> None:
    @az.program
    def f(p: A[az.f64, 4], x: Vector):  # type: ignore[no-untyped-def, valid-type]
        return az.map(lambda v: az.array([p[0] * v, p[1] + v]), x)

    text = az.pretty(az.jacobian(f, mode="forward"))
    assert "0.0 *" not in text and "0.0 +" not in text and "sum" not in text
    x = np.array([2.0, np.inf])
    wanted = [[[v, 0, 0, 0], [0, 1, 0, 0]] for v in x]
    for run in (az.evaluate, az.compile):
        np.testing.assert_array_equal(run(az.jacobian(f, mode="forward"))(np.ones(4), x), wanted)


def test_an_infinite_factor_of_a_zero_by_its_form() -> None:
    """A branch that is not taken is zero, whatever the derivatives of a chain before and behind it are."""

    @az.program
    def f(p: A[az.f64, 2], x: Vector):  # type: ignore[no-untyped-def, valid-type]
        return az.map(lambda v: az.sqrt(az.where(v > 0.0, v * p[0], 0.0)) * 3.0 + p[1], x)

    found = az.evaluate(az.jacobian(f, mode="forward"))(np.array([1.0, 0.0]), np.array([4.0, -1.0]))
    np.testing.assert_array_equal(found[0], [3.0, 1.0])


# Costs


@pytest.fixture(scope="module")
def programs() -> Any:
    return benchmark("jacobians")


def per_point(program: az.Program) -> float:
    cost = az.cost(program)
    return float(cost.at(n=2000).operations - cost.at(n=1000).operations) / 1000


def test_project_is_one_loop_over_the_points(programs: Any) -> None:
    """A camera's Jacobian, by forward mode (S21), costs some times what the program does; its text is short (S23)."""
    jacobian = az.jacobian(programs.project_scalars, "camera", "forward")
    assert per_point(jacobian) <= 510 and per_point(programs.project_scalars) <= 75
    text = az.pretty(jacobian).splitlines()
    assert len(text) <= 150 and sum("for p in points" in line for line in text) == 1


@pytest.mark.slow
def test_project_with_arrays_is_one_loop_too(programs: Any) -> None:
    jacobian = az.jacobian(programs.project, "camera")
    assert per_point(jacobian) <= 600
    assert sum("for p in points" in line for line in az.pretty(jacobian).splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["project", "project_scalars"])
def test_values_of_project(name: str, programs: Any) -> None:
    program, given = getattr(programs, name), programs.seen(7)
    found = az.compile(az.jacobian(program, "camera", "forward"))(*given)
    rows = az.compile(az.jacobian(program, "camera", "reverse"))(*given)
    np.testing.assert_allclose(found, rows, rtol=1e-11, atol=1e-13)
    wanted = differences(az.compile(program), 0, list(given)).reshape(found.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


def test_sums_of_many_directions_are_one_loop() -> None:
    """What they share is computed once: one tanh for each place."""
    text = az.pretty(az.jacobian(az.program(squared_error), "w", "forward"))
    assert text.count("tanh") == 1


@pytest.mark.rest
def test_a_loop_with_a_state_runs_once(programs: Any) -> None:
    """The tangents by all rates beside the states of an orbit."""
    jacobian = az.jacobian(programs.orbit, "rates")
    assert sum("loop" in line for line in az.pretty(jacobian).splitlines()) == 1
    rates, times = programs.rates(5)
    found = az.compile(jacobian)(rates, times)
    wanted = differences(az.compile(programs.orbit), 0, [rates, times]).reshape(5, 2, 4)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


def test_more_directions_are_a_loop() -> None:
    @az.program
    def f(w: A[az.f64, 33], x: Vector):  # type: ignore[no-untyped-def, valid-type]
        return az.map(lambda v: az.sum(az.sin(w * v)), x)

    assert az.pretty(az.jacobian(f, mode="forward")).endswith("return map(lambda v: v * cos(w * v), x)")


# Few results, by reverse mode


def sums_of_waves(x: Vector) -> Any:  # type: ignore[valid-type]
    wave = az.sin(x) * az.exp(x)
    return az.array([az.sum(wave * x), az.sum(wave**2), az.sum(wave)])


def squares_and_steps(x: Vector) -> Any:  # type: ignore[valid-type]
    """A matrix, a number, integers, and the last state of a loop."""
    last = az.fori_loop(
        0, x.shape[0], lambda i, s: az.sin(s @ az.array([[x[i], 0.5], [1.0, -0.5]])), az.array([1.0, 0.5])
    )
    table = az.generate((2, 2), lambda i, j: az.sum(x ** (i + 2)) * last[j])
    return table, az.max(x), az.iota(2), last


@pytest.mark.parametrize("f", [sums_of_waves, squares_and_steps])
def test_few_rows(f: Any, always: None) -> None:
    jacobian = az.jacobian(az.program(f), 0, "reverse")
    found = flat(az.evaluate(jacobian)(x))
    wanted = differences(az.evaluate(az.program(f)), 0, [x])
    wanted = np.delete(wanted, [5, 6], axis=0) if f is squares_and_steps else wanted  # of integers
    np.testing.assert_allclose(np.concatenate(found), wanted.ravel(), rtol=1e-6, atol=1e-8)


def test_few_rows_cost_less_than_a_loop_over_all_of_them() -> None:
    """Sines and exponentials of three branches: 693 operations for each of n in a loop over the rows."""
    found = az.cost(az.jacobian(az.program(sums_of_waves), 0, "reverse")).at(n=1000)
    assert found.operations <= 240 * 1000
