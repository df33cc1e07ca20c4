"""Fits: structures of unknowns, losses, large ones, bad input, and what a result tells."""

from typing import Any

import numpy as np
import pytest
from scipy import optimize

import adze as az
from adze.solvers import problem as problems
from adze.solvers.losses import LOSSES, Loss
from adze.solvers.normal_pass import ROWS, WAYS, Pass, normal_pass
from adze.solvers.unknowns import read

T = np.linspace(0.0, 4.0, 40)
RIGHT = np.array([2.0, 0.7, 0.5])
NOISE = 0.02 * np.sin(37 * T) + np.where(np.arange(40) % 13 == 5, 1.5, 0.0)


@az.program
def decay(p: az.Array[az.f64, "n"], t: az.Array[az.f64, "m"], y: az.Array[az.f64, "m"]):
    return p[0] * az.exp(-p[1] * t) + p[2] - y


def data(noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    return T, RIGHT[0] * np.exp(-RIGHT[1] * T) + RIGHT[2] + noise * NOISE


# Structures


@az.data
class Curve:
    height: az.f64
    rate: az.f64
    floor: az.Array[az.f64, "k"]


def misfit(height: Any, rate: Any, floor: Any, t: Any, y: Any) -> Any:
    return height * az.exp(-rate * t) + floor - y


STRUCTURES = {
    "dictionary": ({"height": 1.0, "rate": 1.0, "floor": 0.0}, lambda p: (p["height"], p["rate"], p["floor"])),
    "tuple": ((np.array([1.0, 1.0]), 0.0), lambda p: (p[0][0], p[0][1], p[1])),
    "list": ([1.0, np.ones((1, 1)), 0.0], lambda p: (p[0], p[1][0, 0], p[2])),
    "record": (Curve(1.0, 1.0, np.zeros(1)), lambda p: (p.height, p.rate, p.floor[0])),
    "array": (np.array([1.0, 1.0, 0.0]), lambda p: (p[0], p[1], p[2])),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_result_has_the_structure_of_the_start(name: str) -> None:
    x0, parts = STRUCTURES[name]
    fit = az.least_squares(lambda p, t, y: misfit(*parts(p), t, y), x0, args=data(0.0))
    assert type(fit.x) is type(x0) and fit.success
    np.testing.assert_allclose(np.array([float(part) for part in parts(fit.x)]), RIGHT, rtol=1e-8)
    assert fit.fun.shape == (40,) and fit.jac.shape == (40, 3) and fit.grad.shape == (3,)


def test_residuals_may_be_several_arrays_and_numbers() -> None:
    def residuals(p: Any, t: Any, y: Any) -> Any:
        r = decay(p, t, y)
        return {"first": r[:10], "square": r[10:].reshape(5, 6)}, 0.1 * (p[0] - 2.0)

    fit = az.least_squares(residuals, np.ones(3), args=data())
    right = optimize.least_squares(lambda p: np.append(decay(p, *data()), 0.1 * (p[0] - 2.0)), np.ones(3), xtol=1e-14)
    np.testing.assert_allclose(fit.x, right.x, rtol=1e-6)
    assert fit.cost == pytest.approx(right.cost, rel=1e-12)
    assert fit.fun.shape == (41,)


def test_single_precision() -> None:
    t, y = [a.astype(np.float32) for a in data(0.0)]
    fit = az.least_squares(lambda p, t, y: decay_of(p, t) - y, np.ones(3, np.float32), args=(t, y))
    assert fit.x.dtype == np.float32 and fit.success
    np.testing.assert_allclose(fit.x, RIGHT, rtol=1e-4)


def decay_of(p: Any, t: Any) -> Any:
    return p[0] * az.exp(-p[1] * t) + p[2]


def test_fewer_residuals_than_unknowns() -> None:
    fit = az.least_squares(lambda x: az.array([x[0] + x[1] + x[2] - 3.0]), np.zeros(3))
    assert fit.success
    np.testing.assert_allclose(fit.x, np.ones(3), rtol=1e-9)


def test_many_unknowns_take_the_normal_equations(monkeypatch: pytest.MonkeyPatch) -> None:
    def residuals(x: Any) -> Any:
        return 10 * (x[1:] - x[:-1] ** 2), 1 - x[:-1]

    by_qr = az.least_squares(residuals, np.full(8, 0.5))
    monkeypatch.setattr(problems, "TRIANGULAR", 4)
    by_cholesky = az.least_squares(residuals, np.full(8, 0.5))
    np.testing.assert_allclose(by_qr.x, np.ones(8), rtol=1e-8)
    np.testing.assert_allclose(by_cholesky.x, np.ones(8), rtol=1e-8)


# Losses


@pytest.mark.unguarded
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_are_those_of_scipy(loss: str) -> None:
    fit = az.least_squares(decay, np.ones(3), args=data(), loss=loss, f_scale=0.1)
    right = optimize.least_squares(
        decay,
        np.ones(3),
        jac=az.jacobian(decay),
        args=data(),
        loss=loss,
        f_scale=0.1,
        xtol=1e-14,
        ftol=1e-14,
        gtol=1e-12,
    )
    assert fit.success
    assert fit.cost == pytest.approx(right.cost, rel=1e-9)
    np.testing.assert_allclose(fit.x, right.x, rtol=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_costs_of_losses(loss: str) -> None:
    """Also where a residual is just the scale, or zero."""
    r = np.array([-3.0, -0.5, 0.0, 0.25, 0.5, 7.0])
    found = Loss(loss, 0.5)
    costs = np.array(
        [optimize.least_squares(lambda x: x, [each], loss=loss, f_scale=0.5, max_nfev=1).cost for each in r]
    )
    np.testing.assert_allclose(found.costs(r), costs, rtol=1e-14)
    z = np.array([0.1, 0.9, 1.1, 5.0])
    rho, first = LOSSES[loss](z)
    np.testing.assert_allclose((LOSSES[loss](z + 1e-6)[0] - rho) / 1e-6, first, atol=1e-5)


# Few unknowns, many residuals


@pytest.mark.unguarded
@pytest.mark.parametrize("loss", ["linear", "cauchy"])
def test_normal_equations_in_one_pass(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    t = np.linspace(0.0, 4.0, 2500)
    y = decay_of_numbers(RIGHT, t) + 0.1 * np.cos(40 * t)
    stored = az.least_squares(decay, np.ones(3), args=(t, y), loss=loss, f_scale=0.1)
    monkeypatch.setattr(problems, "LARGE", 1)
    summed = az.least_squares(decay, np.ones(3), args=(t, y), loss=loss, f_scale=0.1)
    assert summed.success and summed.cost == pytest.approx(stored.cost, rel=1e-12)
    np.testing.assert_allclose(summed.x, stored.x, rtol=1e-6)
    np.testing.assert_allclose(summed.jac, stored.jac, atol=1e-5)


def decay_of_numbers(p: np.ndarray, t: np.ndarray) -> np.ndarray:
    return np.asarray(p[0] * np.exp(-p[1] * t) + p[2])


@pytest.mark.rest
@pytest.mark.unguarded
def test_the_jacobian_of_many_residuals_is_not_stored() -> None:
    """A pass takes a small part of what the residuals alone would take; ``J.T @ J`` takes three times that, or more."""
    m = 1_000_000
    arguments = (np.ones(3), np.zeros(m), np.zeros(m))
    unknowns, _, _ = read("least_squares", decay, arguments[0], arguments[1:])
    one = az.compile(normal_pass(decay, unknowns, Loss("linear", 1.0), arguments), threads=2)
    assert one.peak_bytes(*arguments) < 0.1 * 8 * m

    @az.program
    def two(p: az.Array[az.f64, 3], t: az.Array[az.f64, "m"], y: az.Array[az.f64, "m"]):
        table = az.jacobian(decay)(p, t, y)
        return table.T @ table, decay(p, t, y) @ table

    assert az.compile(two, threads=2).peak_bytes(*arguments) > 2 * 8 * m


@pytest.mark.unguarded
def test_residuals_that_share_much_are_not_computed_in_blocks() -> None:
    """Each of them needs the whole way of a state: a block would go it again."""

    @az.program
    def growth(p: az.Array[az.f64, 2], y: az.Array[az.f64, "m"]):
        return az.scan(lambda a, b: a * b, 1.0, az.full(az.size(y), 1.0 + p[0])) * p[1] - y

    y = np.zeros(200_000)
    unknowns, _, _ = read("least_squares", growth, np.ones(2), [y])
    chosen = normal_pass(growth, unknowns, Loss("linear", 1.0), [np.full(2, 1e-5), y])
    assert chosen.function.way == "whole"


def test_what_a_block_of_residuals_shares_is_computed_once_for_it() -> None:
    """A residual reads one of some running products, whose derivatives go through all that are before it."""

    @az.program
    def shares(p: az.Array[az.f64, 2], y: az.Array[az.f64, "m"]):
        products = az.scan(lambda a, b: a * b, 1.0, az.full(40, 1.0 + p[0]))
        return az.map(lambda i, v: products[i % 40] * p[1] - v, az.arange(az.size(y)), y)

    arguments = [np.full(2, 1e-3), np.zeros(200_000)]
    unknowns, _, _ = read("least_squares", shares, arguments[0], arguments[1:])
    assert normal_pass(shares, unknowns, Loss("linear", 1.0), arguments).function.way == "blocks"


@az.program
def waves(x: {"a": az.Array[az.f64, 2, 2], "b": az.f32}, t: az.Array[az.f64, "m"], y: az.Array[az.f64, "m"]):
    sums = az.map(lambda s: az.sum(az.map(lambda q: q[0] * az.exp(-q[1] * s), x["a"])), t)
    return {"level": (x["b"] - sums[0]) * 2.0, "waves": az.map(lambda s, v: s + x["b"] * v, sums, y)}


@pytest.mark.parametrize("way", WAYS)
def test_a_pass_sums_the_products_of_the_jacobian(way: str) -> None:
    """Two blocks and a part of one; unknowns in a structure, of two scalar types; residuals in another."""
    m = 2 * ROWS + 50
    x = {"a": np.array([[1.0, 0.5], [2.0, 3.0]]), "b": np.float32(0.25)}
    arguments = [x, np.linspace(0.0, 2.0, m), np.cos(np.arange(m))]
    unknowns, _, _ = read("least_squares", waves, x, arguments[1:])
    made = Pass("normal", waves, unknowns, Loss("linear", 1.0), way).made()
    cost, matrix, gradient = az.evaluate(made)(*arguments)
    residuals, rows = az.evaluate(waves)(*arguments), az.evaluate(az.jacobian(waves))(*arguments)
    r = np.append(residuals["level"], residuals["waves"])
    table = np.concatenate(
        [
            np.column_stack([np.reshape(row["a"], (-1, 4)), np.reshape(row["b"], (-1, 1))])
            for row in (rows["level"], rows["waves"])
        ]
    )
    assert cost == pytest.approx(r @ r / 2, rel=1e-12)
    np.testing.assert_allclose(matrix, table.T @ table, rtol=1e-6)
    np.testing.assert_allclose(gradient, table.T @ r, rtol=1e-6)


def test_a_step_that_is_taken_is_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was refused is a pass for nothing, and the one behind it first a cost alone."""
    monkeypatch.setattr(problems, "LARGE", 1)
    arguments = data()
    unknowns, x, rest = read("least_squares", decay, np.ones(3), arguments)
    problem = problems.Problem("least_squares", decay, unknowns, x, rest, Loss("linear", 1.0))
    program, passes = normal_pass(decay, unknowns, problem.loss, [x, *rest]), []
    monkeypatch.setattr(problem, "normal", lambda x, *rest: passes.append(x.copy()) or program(x, *rest))

    def costs(x: np.ndarray) -> bool:
        return problem.cost(x) == pytest.approx(np.sum((decay_of_numbers(x, arguments[0]) - arguments[1]) ** 2) / 2)

    taken, refused, last = x + 0.1, x + 5.0, x + 0.2
    assert problem.linearised(x) and costs(x) and costs(taken) and problem.linearised(taken)
    np.testing.assert_array_equal(passes, [x, taken])
    assert costs(refused) and costs(last)
    np.testing.assert_array_equal(passes, [x, taken, refused])
    around = problem.linearised(last)
    assert around is not None and costs(last)
    np.testing.assert_array_equal(passes, [x, taken, refused, last])
    table = az.jacobian(decay)(last, *arguments)
    np.testing.assert_allclose(around.gradient, table.T @ decay(last, *arguments), rtol=1e-9)


def test_a_pass_computes_once_what_derivatives_share() -> None:
    """Of five exponentials by ten unknowns: as much as the residuals twice and a half, and the products."""

    @az.program
    def decays(p: az.Array[az.f64, 5, 2], t: az.Array[az.f64, "m"], y: az.Array[az.f64, "m"]):
        return az.map(lambda s, v: az.sum(az.map(lambda q: q[0] * az.exp(-q[1] * s), p)) - v, t, y)

    m = 1_000_000
    arguments = [np.ones((5, 2)), np.zeros(m), np.zeros(m)]
    unknowns, _, _ = read("least_squares", decays, arguments[0], arguments[1:])
    chosen = normal_pass(decays, unknowns, Loss("linear", 1.0), arguments)
    operations = az.cost(chosen).at(m=m).operations
    assert chosen.function.way == "rows"
    assert operations < 2.5 * az.cost(decays).at(m=m).operations + 2 * 11 * 11 * m


# How it ends


def test_a_start_that_is_optimal_takes_no_step() -> None:
    fitted = az.least_squares(decay, np.ones(3), args=data()).x
    for f, start, args in [(decay, fitted, data()), (lambda x: 3.0 * (x - 1.0), np.ones(3), ())]:
        fit = az.least_squares(f, start, args=args, gtol=1e-8)
        assert (fit.steps, fit.status, fit.nfev) == (0, 1, 1)
        np.testing.assert_array_equal(fit.x, start)


def test_no_convergence_is_no_error() -> None:
    fit = az.least_squares(decay, np.array([100.0, 9.0, -50.0]), args=data(), max_nfev=3)
    assert not fit.success and fit.status == 0 and fit.nfev == 3
    assert fit.message == f"not converged: the limit of 3 evaluations is reached, after {fit.steps} steps"


def test_jacobians_without_rank() -> None:
    """Of rank 0, with a column of zeros, and with two equal columns."""
    flat = az.least_squares(lambda x: 0 * x + 1.0, np.ones(2))
    assert (flat.status, flat.steps) == (1, 0)
    unused = az.least_squares(lambda x: az.array([x[0] - 1.0, 2.0 * x[0] - 2.0]), np.array([5.0, 7.0]))
    np.testing.assert_allclose(unused.x, [1.0, 7.0], rtol=1e-12)
    equal = az.least_squares(lambda x: (x[0] + x[1]) * np.array([1.0, 2.0, 3.0]) - 2.0, np.array([1.0, 3.0]))
    assert equal.success and equal.x.sum() == pytest.approx(2 * 6 / 14)
    for fit in (flat, unused, equal):
        with pytest.raises(np.linalg.LinAlgError, match="they have no covariance"):
            fit.covariance()


def test_steps_to_where_nothing_is_finite_are_refused() -> None:
    fit = az.least_squares(lambda x: az.log(x) + 3.0, np.array([5.0]))
    assert fit.success and fit.x[0] == pytest.approx(np.exp(-3.0))
    assert fit.nfev > fit.steps + 1
    alone = az.least_squares(lambda x: az.where(x == 2.0, 1.0 * x, np.nan), np.array([2.0]))
    assert (alone.success, alone.status, alone.steps) == (False, -1, 0)
    np.testing.assert_array_equal(alone.x, [2.0])


def test_the_callback_sees_each_step_and_may_stop() -> None:
    seen = []
    fit = az.least_squares(decay, np.ones(3), args=data(), callback=seen.append)
    assert [(step.number, step.cost) for step in seen] == [(step.number, step.cost) for step in fit.history[1:]]
    np.testing.assert_array_equal(seen[-1].x, fit.x)
    stopped = az.least_squares(decay, np.ones(3), args=data(), callback=lambda step: step.number == 2)
    assert (stopped.steps, stopped.status, stopped.success) == (2, -2, False)
    np.testing.assert_array_equal(stopped.x, seen[1].x)

    def fail(step: Any) -> None:
        raise LookupError("no such file")

    with pytest.raises(LookupError, match="no such file"):
        az.least_squares(decay, np.ones(3), args=data(), callback=fail)


def test_scales_of_unknowns() -> None:
    for scale in ("jac", 1.0, np.array([1.0, 10.0, 1.0])):
        fit = az.least_squares(decay, np.ones(3), args=data(0.0), x_scale=scale)
        np.testing.assert_allclose(fit.x, RIGHT, rtol=1e-8)


def test_the_covariance_is_that_of_curve_fit() -> None:
    t, y = data()
    fit = az.least_squares(decay, np.ones(3), args=(t, y))
    right = optimize.curve_fit(lambda t, *p: decay_of_numbers(p, t), t, y, np.ones(3), ftol=1e-14, xtol=1e-14)[1]
    np.testing.assert_allclose(fit.covariance(), right, rtol=1e-4)
    np.testing.assert_allclose(fit.covariance(absolute=True) * 2 * fit.cost / 37, fit.covariance())
    few = az.least_squares(lambda x: x - 1.0, np.zeros(2))
    with pytest.raises(ValueError, match="2 residuals of 2 unknowns leave nothing to estimate the variance from"):
        few.covariance()


def test_a_result_prints_as_a_table() -> None:
    fit = az.least_squares(lambda x: az.array([10 * (x[1] - x[0] ** 2), 1 - x[0]]), np.array([-1.2, 1.0]))
    lines = str(fit).splitlines()
    assert lines[0].startswith("least_squares(<lambda>): converged: ") and lines[1].startswith("cost ")
    assert lines[2].split() == ["step", "cost", "damping"] and lines[3].split()[0] == "0"
    assert len(lines) == 14 and lines[8].strip() == "..." and lines[-1].split()[0] == str(fit.steps)
    assert repr(fit) == str(fit)


def test_scipy_takes_compiled_programs() -> None:
    right = az.least_squares(decay, np.ones(3), args=data())
    fit = optimize.least_squares(az.compile(decay), np.ones(3), jac=az.compile(az.jacobian(decay)), args=data())
    np.testing.assert_allclose(fit.x, right.x, rtol=1e-4)


# Bad input

REFUSED = [
    (
        lambda: az.least_squares(decay, np.ones(3), args=data(), bounds=(0, 1)),
        ValueError,
        "scipy.optimize.least_squares",
    ),
    (
        lambda: az.least_squares(decay, np.ones(3), args=data(), method="trf"),
        ValueError,
        "the method is 'lm', not 'trf'",
    ),
    (lambda: az.least_squares(decay, np.ones(3), args=data(), loss="l1"), ValueError, "the loss is one of 'linear', "),
    (lambda: az.least_squares(decay, np.ones(3), args=data(), f_scale=0.0), ValueError, "f_scale is a positive number"),
    (lambda: az.least_squares(decay, np.ones(3), args=data(), x_scale="no"), ValueError, "x_scale is 'jac', "),
    (lambda: az.least_squares(decay, np.ones(3), args=data(), x_scale=-1.0), ValueError, "x_scale is 'jac', "),
    (lambda: az.least_squares(decay, np.ones(3), args=data(), gtol=-1), ValueError, "gtol is a number from 0 to 1"),
    (lambda: az.least_squares(decay, np.ones(3), args=data(), max_nfev=0), ValueError, "max_nfev is a positive whole"),
    (lambda: az.least_squares(decay, np.ones(3), args=(T,)), TypeError, "decay takes 3 argument"),
    (lambda: az.least_squares(lambda p: p["a"] * 1.0, {"a": np.arange(3)}), TypeError, r"x0\['a'\] is of type i64\["),
    (lambda: az.least_squares(lambda p: az.floor(p) > 1.0, np.ones(2)), TypeError, "residuals are floating numbers"),
    (
        lambda: az.least_squares(lambda p: {"a": p, "b": az.size(p)}, np.ones(2)),
        TypeError,
        r"int64 as residuals\['b'\]",
    ),
    (lambda: az.least_squares(lambda p: p, np.ones(0)), TypeError, "x0 holds no numbers"),
    (lambda: az.least_squares(lambda p: p[1:], np.ones(1)), TypeError, "returns no residuals"),
    (
        lambda: az.least_squares(lambda p: {"a": az.log(p)}, np.array([1.0, -1.0])),
        ValueError,
        r"residuals\['a'\]\[1\] is nan",
    ),
    (
        lambda: az.least_squares(lambda p: az.sqrt(p), np.array([1.0, 0.0])),
        ValueError,
        r"residuals\[1\] by x0\[1\] is not",
    ),
]


@pytest.mark.parametrize("call, kind, message", REFUSED, ids=[message for _, _, message in REFUSED])
def test_bad_input(call: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        call()
    assert "test_least_squares.py:" in str(caught.value)


OF_ANOTHER_TYPE = [
    (lambda: az.least_squares(decay, np.ones(3), args=data(), ftol="fine"), ValueError, "ftol is a number from 0 to 1"),
    (lambda: az.least_squares(decay, np.ones(3), args=data(), max_nfev=np.inf), ValueError, "number, not inf"),
    (lambda: az.least_squares(decay, np.ones(3), args=data(), f_scale="1"), ValueError, "positive number, not '1'"),
    (
        lambda: az.least_squares(decay, np.ones(3), args=data(), callback=3),
        TypeError,
        "callback is a function of a step",
    ),
    (lambda: az.least_squares(decay, np.ones(3), args={"t": T, "y": T}), TypeError, "args is a tuple of what follows"),
    (lambda: az.least_squares(decay, np.ones(3), args=T), TypeError, "args is a tuple of what follows"),
]


@pytest.mark.unguarded
@pytest.mark.parametrize("call, kind, message", OF_ANOTHER_TYPE)
def test_options_of_another_type(call: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        call()
    assert "test_least_squares.py:" in str(caught.value)
