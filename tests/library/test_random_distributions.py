"""Distributions drawn by rejection and by search: their statistics, their bits, and their derivatives by quantiles."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
from sampling import some

import adze as az

pytestmark = pytest.mark.unguarded

KEY = az.random.key(2025)
COUNT = 20_000
SURE = 1e-3  # the least p-value

Draw = Callable[..., Any]
R = az.random


def program_of(draw: Draw) -> Any:
    return az.program(lambda key, n: draw(key, n)).at(az.Array[az.u32, 2], az.i64)


# With the distribution of SciPy's, and how far compiled numbers may be from evaluated ones.
CONTINUOUS: dict[str, tuple[Draw, Any, float]] = {
    "gamma, 0.1": (lambda key, n: R.gamma(key, 0.1, n), scipy.stats.gamma(0.1), 1e-13),
    "gamma, 0.9": (lambda key, n: R.gamma(key, 0.9, n), scipy.stats.gamma(0.9), 1e-13),
    "gamma, 1": (lambda key, n: R.gamma(key, 1, n), scipy.stats.gamma(1), 1e-13),
    "gamma, 30": (lambda key, n: R.gamma(key, 30.0, n), scipy.stats.gamma(30), 1e-13),
    "gamma, 1e6": (lambda key, n: R.gamma(key, 1e6, n), scipy.stats.gamma(1e6), 1e-13),
    "gamma, 0.5, f32": (lambda key, n: R.gamma(key, 0.5, n, az.f32), scipy.stats.gamma(0.5), 1e-5),
    "gamma, 1e3, f32": (lambda key, n: R.gamma(key, 1e3, n, az.f32), scipy.stats.gamma(1e3), 1e-5),
    "loggamma, 1e-3": (lambda key, n: R.loggamma(key, 1e-3, n), scipy.stats.loggamma(1e-3), 1e-13),
    "beta, 0.1, 0.2": (lambda key, n: R.beta(key, 0.1, 0.2, n), scipy.stats.beta(0.1, 0.2), 1e-13),
    "beta, 3, 40": (lambda key, n: R.beta(key, 3, 40, n), scipy.stats.beta(3, 40), 1e-13),
    "student_t, 1": (lambda key, n: R.student_t(key, 1.0, n), scipy.stats.t(1), 1e-13),
    "beta, 0.5, 2, f32": (lambda key, n: R.beta(key, 0.5, 2, n, az.f32), scipy.stats.beta(0.5, 2), 1e-5),
    "student_t, 4, f32": (lambda key, n: R.student_t(key, 4.0, n, az.f32), scipy.stats.t(4), 1e-5),
    "student_t, 9": (lambda key, n: R.student_t(key, 9.0, n), scipy.stats.t(9), 1e-13),
    "truncated, -1, 2": (lambda key, n: R.truncated_normal(key, -1, 2, n), scipy.stats.truncnorm(-1, 2), 1e-12),
    "truncated, 0.5, 1e9": (
        lambda key, n: R.truncated_normal(key, 0.5, 1e9, n),
        scipy.stats.truncnorm(0.5, 1e9),
        1e-12,
    ),
    "truncated, whole": (lambda key, n: R.truncated_normal(key, -np.inf, np.inf, n), scipy.stats.norm(), 1e-12),
    "truncated, 6, 7": (lambda key, n: R.truncated_normal(key, 6, 7, n), scipy.stats.truncnorm(6, 7), 1e-12),
    "truncated, -60, -50": (
        lambda key, n: R.truncated_normal(key, -60, -50, n),
        scipy.stats.truncnorm(-60, -50),
        1e-12,
    ),
    "truncated, 3, 9, f32": (
        lambda key, n: R.truncated_normal(key, 3, 9, n, az.f32),
        scipy.stats.truncnorm(3, 9),
        1e-5,
    ),
    "truncated, 20, f32": (
        lambda key, n: R.truncated_normal(key, 20, 30, n, az.f32),
        scipy.stats.truncnorm(20, 30),
        1e-5,
    ),
}
COUNTS: dict[str, tuple[Draw, Any]] = {
    "poisson, 0": (lambda key, n: R.poisson(key, 0, n), scipy.stats.poisson(0)),
    "poisson, 0.3": (lambda key, n: R.poisson(key, 0.3, n), scipy.stats.poisson(0.3)),
    "poisson, 9.9": (lambda key, n: R.poisson(key, 9.9, n), scipy.stats.poisson(9.9)),
    "poisson, 10": (lambda key, n: R.poisson(key, 10, n), scipy.stats.poisson(10)),
    "poisson, 1e3": (lambda key, n: R.poisson(key, 1e3, n), scipy.stats.poisson(1e3)),
    "poisson, 1e7": (lambda key, n: R.poisson(key, 1e7, n), scipy.stats.poisson(1e7)),
    "poisson, 3, f32": (lambda key, n: R.poisson(key, 3.0, n, az.f32), scipy.stats.poisson(3)),
    "poisson, 1e5, f32": (lambda key, n: R.poisson(key, 1e5, n, az.f32), scipy.stats.poisson(1e5)),
    "binomial, 1, 0.2": (lambda key, n: R.binomial(key, 1, 0.2, n), scipy.stats.binom(1, 0.2)),
    "binomial, 12, 0.9": (lambda key, n: R.binomial(key, 12, 0.9, n), scipy.stats.binom(12, 0.9)),
    "binomial, 20, 0.5": (lambda key, n: R.binomial(key, 20, 0.5, n), scipy.stats.binom(20, 0.5)),
    "binomial, 1000, 0.005": (lambda key, n: R.binomial(key, 1000, 0.005, n), scipy.stats.binom(1000, 0.005)),
    "binomial, 1000, 0.7": (lambda key, n: R.binomial(key, 1000, 0.7, n), scipy.stats.binom(1000, 0.7)),
    "binomial, 10**9, 0.3": (lambda key, n: R.binomial(key, 10**9, 0.3, n), scipy.stats.binom(10**9, 0.3)),
    "binomial, 300, 0.1, f32": (lambda key, n: R.binomial(key, 300, 0.1, n, az.f32), scipy.stats.binom(300, 0.1)),
}


def share_of_counts(drawn: np.ndarray, distribution: Any) -> float:
    """The p-value of Pearson's test, with some 20 numbers or more expected in each of at most 60 classes."""
    tops = np.unique(distribution.ppf(np.linspace(0, 1, 60)[1:-1]))
    bounds = np.concatenate([[-np.inf], tops, [np.inf]])
    expected = len(drawn) * np.diff(np.concatenate([[0], distribution.cdf(tops), [1]]))
    found = np.histogram(drawn, np.nextafter(bounds, np.inf))[0]
    few = expected < 20
    found, expected = (np.append(x[~few], x[few].sum()) for x in (found, expected))
    there = expected > 0
    assert found[~there].sum() == 0
    return float(scipy.stats.chisquare(found[there], expected[there]).pvalue) if there.sum() > 1 else 1.0


def assert_moments(drawn: np.ndarray, distribution: Any) -> None:
    mean, variance, _, kurtosis = distribution.stats("mvsk")
    if np.isfinite(variance):
        assert abs(np.mean(drawn) - mean) <= 4 * np.sqrt(variance / len(drawn))
    if np.isfinite(kurtosis):
        assert abs(np.var(drawn) - variance) <= 4 * variance * np.sqrt((kurtosis + 2) / len(drawn))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_numbers_are_distributed_as_scipy_says(name: str) -> None:
    draw, distribution, _ = CONTINUOUS[name]
    drawn = az.compile(program_of(draw))(KEY, COUNT)
    assert drawn.dtype == (np.float32 if "f32" in name else np.float64)
    assert scipy.stats.kstest(drawn, distribution.cdf).pvalue > SURE
    assert_moments(drawn, distribution)


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_distributed_as_scipy_says(name: str) -> None:
    draw, distribution = COUNTS[name]
    drawn = az.compile(program_of(draw))(KEY, COUNT)
    assert drawn.dtype == (np.float32 if "f32" in name else np.int64)
    assert share_of_counts(drawn, distribution) > SURE
    assert_moments(drawn, distribution)


@pytest.mark.slow
@pytest.mark.parametrize("name", some([*CONTINUOUS, *COUNTS], 4, long=0))
def test_ten_million_numbers_are_distributed_as_scipy_says(name: str) -> None:
    """A distribution that is wrong by a part in a thousand shows here."""
    draw, distribution = (CONTINUOUS | COUNTS)[name][:2]
    drawn = az.compile(program_of(draw))(az.random.key(7), 10_000_000).astype(np.float64)
    if name in COUNTS:
        assert share_of_counts(drawn, distribution) > SURE
    elif "f32" not in name:  # of f32 so many numbers are not all different
        bounds = distribution.ppf(np.linspace(0, 1, 1001)[1:-1])
        found = np.bincount(np.searchsorted(bounds, drawn), minlength=1000)
        assert scipy.stats.chisquare(found).pvalue > SURE


# The same bits everywhere


@pytest.mark.parametrize("name", some([*CONTINUOUS, *COUNTS], 2))
def test_the_same_numbers_in_every_interpretation(name: str) -> None:
    program = program_of((CONTINUOUS | COUNTS)[name][0])
    wanted = az.evaluate(program)(KEY, 300)
    found = [az.compile(program, threads=threads)(KEY, 300) for threads in (1, 2, 3)]
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])
    np.testing.assert_allclose(found[0], wanted, rtol=CONTINUOUS[name][2] if name in CONTINUOUS else 0)
    np.testing.assert_array_equal(az.compile(program)(KEY, 10), found[0][:10])  # an element depends on its place alone


@pytest.mark.parametrize("name", some([*CONTINUOUS, *COUNTS]))
def test_the_same_numbers_of_distributions_on_a_device(name: str, opencl: Any) -> None:
    program = program_of((CONTINUOUS | COUNTS)[name][0])
    rounding = CONTINUOUS[name][2] if name in CONTINUOUS else 0
    found = az.compile(program, backend="opencl")(KEY, 300)
    np.testing.assert_allclose(found, az.evaluate(program)(KEY, 300), rtol=rounding)


@pytest.mark.rest
def test_parameters_broadcast_and_do_not_change_what_others_draw() -> None:
    a, b = np.array([[0.5], [3.0]]), np.array([1.0, 2.0, 9.0])
    given = {
        "gamma": (lambda key, a, b: R.gamma(key, a + 0 * b)),
        "beta": (lambda key, a, b: R.beta(key, a, b)),
        "student_t": (lambda key, a, b: R.student_t(key, a * b)),
        "truncated_normal": (lambda key, a, b: R.truncated_normal(key, -a, b)),
        "poisson": (lambda key, a, b: R.poisson(key, 5 * a * b)),
        "binomial": (lambda key, a, b: R.binomial(key, 10 * b, a / 4)),
        "bernoulli": (lambda key, a, b: R.bernoulli(key, a * b / 30)),
        "uniform": (lambda key, a, b: R.uniform(key, (2, 3), minval=-a, maxval=b)),
        "integers": (lambda key, a, b: R.integers(key, (2, 3), -10 * a, 100 * b)),
    }

    def drawn(draw: Draw, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        found: np.ndarray = az.evaluate(lambda key: draw(key, az.array(a), az.array(b)))(KEY)
        return found

    for name, draw in given.items():
        table = drawn(draw, a, b)
        assert table.shape == (2, 3), name
        for row, column in [(0, 2), (1, 1)]:  # the element of a table of its parameters alone
            assert drawn(draw, a[row] + 0 * a, b[column] + 0 * b)[row, column] == table[row, column], name
    rows = az.compile(lambda key, a: R.gamma(key, a, (4, 3)))(KEY, b)
    np.testing.assert_array_equal(rows, az.compile(lambda key, a: R.gamma(key, a))(KEY, np.tile(b, (4, 1))))
    one = az.compile(lambda key: R.gamma(key, 1.0))(KEY)
    assert one.shape == () and one == rows[0, 0]


@pytest.mark.rest
def test_dirichlet_vectors() -> None:
    alpha = np.array([0.2, 1.0, 3.0])
    drawn = az.compile(lambda key, alpha: R.dirichlet(key, alpha, COUNT))(KEY, alpha)
    np.testing.assert_allclose(drawn.sum(1), 1, rtol=1e-12)
    for k, a in enumerate(alpha):  # each share is a beta number
        assert scipy.stats.kstest(drawn[:, k], scipy.stats.beta(a, alpha.sum() - a).cdf).pvalue > SURE
    np.testing.assert_allclose(np.cov(drawn.T), scipy.stats.dirichlet(alpha).cov(), atol=3e-3)
    table = az.evaluate(lambda key, alpha: R.dirichlet(key, alpha))(KEY, np.tile(alpha, (5, 1)))
    np.testing.assert_allclose(table, drawn[:5], rtol=1e-12)
    assert az.compile(lambda key, alpha: R.dirichlet(key, alpha, (2, 4), az.f32))(KEY, alpha).shape == (2, 4, 3)
    tiny = az.compile(lambda key: R.dirichlet(key, [1e-5, 1e-5], 1000))(KEY)  # shares of numbers below any float
    assert (tiny.max(1) > 0.99).all() and 400 < tiny[:, 0].sum() < 600
    with pytest.raises(TypeError, match="dirichlet takes parameters along an axis, not a value of type f64"):
        az.evaluate(lambda key, a: R.dirichlet(key, a))(KEY, 1.0)


def test_the_parts_of_a_number_are_independent() -> None:
    """A number of a normal and a gamma one, or of two of gamma, has words of its own for each."""
    normal, gamma, t = (
        az.compile(program_of(draw))(KEY, COUNT)
        for draw in (R.normal, lambda key, n: R.gamma(key, 1.5, n), lambda key, n: R.student_t(key, 3.0, n))
    )
    for other in (gamma, (normal / t) ** 2):
        assert abs(scipy.stats.spearmanr(np.abs(normal), other).statistic) < 4 / np.sqrt(COUNT)


# Wrong parameters

WRONG = np.array([np.nan, 0.0, -1.0, np.inf])


# Which of these are right, and whether the program is compiled, too; it is not where another one has the same loop.
DRAWS_OF_WRONG: dict[str, tuple[Draw, list[bool], bool]] = {
    "gamma": (R.gamma, [False] * 4, True),
    "loggamma": (R.loggamma, [False] * 4, False),
    "student_t": (R.student_t, [False] * 4, False),
    "beta, a": (lambda key, a: R.beta(key, a, 2.0), [False] * 4, False),
    "beta, b": (lambda key, b: R.beta(key, 2.0, b), [False] * 4, False),
    "dirichlet": (lambda key, a: R.dirichlet(key, az.stack([a, 1 + 0 * a], 1))[:, 1], [False] * 4, False),
    "poisson": (lambda key, a: R.poisson(key, a, dtype=az.f64), [False, True, False, False], True),
    "binomial, n": (lambda key, n: R.binomial(key, n, 0.5, dtype=az.f64), [False, True, False, False], True),
    "binomial, p": (lambda key, p: R.binomial(key, 40, p, dtype=az.f32), [False, True, False, False], False),
    "truncated, from": (lambda key, a: R.truncated_normal(key, a, 0.0), [False, True, True, False], False),
    "truncated, to": (lambda key, a: R.truncated_normal(key, -0.5, a), [False, True, False, True], False),
}


@pytest.mark.parametrize("name", DRAWS_OF_WRONG)
def test_wrong_parameters_give_no_number_and_end(name: str) -> None:
    draw, right, compiled = DRAWS_OF_WRONG[name]
    for run in (az.evaluate, az.compile) if compiled else (az.evaluate,):
        np.testing.assert_array_equal(~np.isnan(run(lambda key, a: draw(key, a))(KEY, WRONG)), right)


def test_counts_of_wrong_parameters() -> None:
    assert az.evaluate(lambda key, a: R.poisson(key, a))(KEY, WRONG).tolist() == [-1, 0, -1, -1]
    assert az.evaluate(lambda key, p: R.binomial(key, 40, p, dtype=az.i32))(KEY, WRONG).tolist() == [-1, 0, -1, -1]


def test_parameters_at_their_limits() -> None:
    def drawn(draw: Draw, *given: Any) -> Any:
        return az.evaluate(lambda key: draw(key, *[az.array(x) for x in given]))(KEY)

    np.testing.assert_array_equal(drawn(R.binomial, [5, 5, 0], [0.0, 1.0, 0.5]), [0, 5, 0])
    assert drawn(R.binomial, 2.5, 1.0) == 2
    np.testing.assert_allclose(drawn(R.gamma, [1e16, 1e300]), [1e16, 1e300], rtol=1e-7)
    np.testing.assert_allclose(drawn(R.poisson, 1e16), 10**16, rtol=1e-7)
    assert drawn(R.poisson, 1e300) == np.iinfo(np.int64).max
    np.testing.assert_array_equal(drawn(R.truncated_normal, [2.0, -3.0], [2.0, -3.0]), [2, -3])
    assert drawn(R.loggamma, 1e-300) < -1e298


def test_wrong_types() -> None:
    for draw, match in (
        (lambda key: R.gamma(key, 1.0, (), az.i64), "random numbers of f32 or f64, not of i64"),
        (lambda key: R.poisson(key, 1.0, (), az.u8), "counts of i32, i64, f32 or f64, not of u8"),
        (lambda key: R.gamma(key, [1.0, 2.0], ()), r"broadcast of f64\[2\] to 0 axes"),
        (lambda key: R.uniform(key, 3, minval=az.array([1.0, 2.0])), "broadcast of .* to another size"),
        (lambda key: R.beta(key, [1.0, 2.0], [1.0, 2.0, 3.0]), "beta: "),
    ):
        with pytest.raises(TypeError, match=rf"{match}.*test_random_distributions.py:\d+"):
            az.evaluate(az.program(lambda key, draw=draw: draw(key)))(KEY)


# Derivatives, as those of quantiles


def quantile_slope(distribution: Any, x: np.ndarray, parameters: list[np.ndarray], k: int) -> np.ndarray:
    """The derivative of the quantile x of a distribution with respect to a parameter, by differences."""
    lower, upper = distribution.cdf(x, *parameters), distribution.sf(x, *parameters)

    def at(step: float) -> np.ndarray:
        moved = [value + step * width * (j == k) for j, value in enumerate(parameters)]
        return np.where(lower < 0.5, distribution.ppf(lower, *moved), distribution.isf(upper, *moved))

    width = 1e-4 * np.abs(parameters[k])
    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * width)


SHAPES = np.repeat([0.05, 0.1, 0.5, 1.0, 1.5, 3.0, 30.0, 1000.0], 25)


@pytest.mark.rest
@pytest.mark.parametrize("dtype", [az.f64, az.f32])
def test_gamma_numbers_move_as_quantiles(dtype: Any) -> None:
    draw = az.program(lambda a: R.gamma(KEY, a, dtype=dtype))
    slopes = az.grad(lambda a: az.sum(draw(a)))
    shapes = SHAPES.astype(dtype.dtype)
    x, found = az.compile(draw)(shapes), az.compile(slopes)(shapes)
    wanted = quantile_slope(scipy.stats.gamma, x.astype(np.float64), [SHAPES], 0)
    there = x > np.finfo(x.dtype).tiny
    np.testing.assert_allclose(found[there], wanted[there], rtol=2e-6 if dtype == az.f64 else 1e-3)
    np.testing.assert_allclose(az.evaluate(slopes)(shapes), found, rtol=1e-12 if dtype == az.f64 else 1e-4)
    tangents = az.compile(az.jvp(draw))(shapes, np.ones_like(shapes))[1]
    np.testing.assert_allclose(tangents, found, rtol=1e-12 if dtype == az.f64 else 1e-4)


def test_the_integral_of_the_slope_is_exact() -> None:
    """Where there are formulas: x^a / a is the probability of small x, and a = 1 has exponential numbers."""
    from adze.library.random.gammas import _slope

    slope = az.compile(lambda a, y: az.map(_slope, a, y))
    a, y = np.array([1e-3, 0.1, 1.0, 30.0]), np.array([-9e4, -800.0, -60.0, -40.0])
    small = (scipy.special.digamma(a + 1) - y) / a  # of log x, where log u = a log x - log gamma(a + 1)
    np.testing.assert_allclose(slope(a, y), small, rtol=1e-13)
    x = np.geomspace(1e-3, 300, 50)
    # The integral from x on of (log t + gamma) exp(x - t) is log x + gamma + exp(x) E1(x).
    wanted = (np.log(x) + np.euler_gamma + np.exp(x) * scipy.special.exp1(x)) / x
    np.testing.assert_allclose(slope(np.ones(50), np.log(x)), wanted, rtol=1e-12)


@pytest.mark.rest
def test_second_derivatives_of_gamma_numbers() -> None:
    shapes = np.repeat([0.3, 1.0, 4.0, 100.0], 5)
    slopes = az.grad(lambda a: az.sum(R.gamma(KEY, a)))
    curvature = az.grad(lambda a: az.sum(slopes(a)))
    x = az.compile(lambda a: R.gamma(KEY, a))(shapes)
    lower, step = scipy.stats.gamma.cdf(x, shapes), 3e-3 * shapes
    at = [scipy.stats.gamma.ppf(lower, shapes + k * step) for k in range(-2, 3)]
    wanted = (16 * (at[1] + at[3]) - (at[0] + at[4]) - 30 * at[2]) / (12 * step**2)
    np.testing.assert_allclose(az.compile(curvature)(shapes), wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.rest
def test_a_gradient_draws_gamma_numbers_once() -> None:
    @az.program
    def total(a: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(R.gamma(KEY, a))

    assert az.compile(az.grad(total)).loops.count("while") == 1


@pytest.mark.rest
def test_truncated_normal_numbers_move_as_quantiles() -> None:
    low = np.array([-1.0, -0.3, 2.0, 6.0, -3.0, -8.0, 38.0] * 20)
    high = np.array([2.0, 0.1, 9.0, 7.0, -1.0, -6.0, 39.0] * 20)

    @az.program
    def total(low: az.Array[az.f64, "n"], high: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(R.truncated_normal(KEY, low, high))

    x = az.compile(lambda low, high: R.truncated_normal(KEY, low, high))(low, high)
    found = az.compile(az.grad(total, (0, 1)))(low, high)
    for k in (0, 1):
        wanted = quantile_slope(scipy.stats.truncnorm, x, [low, high], k)
        np.testing.assert_allclose(found[k], wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.slow
def test_derivatives_of_what_is_made_of_gamma_numbers() -> None:
    """Expectations move with the parameters as formulas say, which any reparametrisation gives."""

    @az.program
    def moments(a: az.f64, b: az.f64, df: az.f64, alpha: az.Array[az.f64, 3]) -> az.f64:
        keys = R.split(KEY, 3)
        beta = az.mean(R.beta(keys[0], a, b, 100_000))
        t = az.mean(abs(R.student_t(keys[1], df, 100_000)))
        return beta + t + az.mean(R.dirichlet(keys[2], alpha, 100_000)[:, 0] ** 2)

    a, b, df, alpha = 0.7, 2.0, 7.0, np.array([0.5, 1.0, 2.0])

    def formula(a: float, b: float, df: float, *alpha: float) -> float:
        log_t = scipy.special.gammaln((df + 1) / 2) - scipy.special.gammaln(df / 2) + 0.5 * np.log(df / np.pi)
        whole = sum(alpha)
        square = alpha[0] * (alpha[0] + 1) / (whole * (whole + 1))
        return float(a / (a + b) + 2 * np.exp(log_t) / (df - 1) + square)

    value, slopes = az.compile(az.value_and_grad(moments, (0, 1, 2, 3)))(a, b, df, alpha)
    given = np.array([a, b, df, *alpha])
    assert abs(value - formula(*given)) < 1e-2
    wanted = [(formula(*(given + h)) - formula(*(given - h))) / 2e-5 for h in 1e-5 * np.eye(6)]
    np.testing.assert_allclose(np.concatenate([np.ravel(s) for s in slopes]), wanted, rtol=0.05, atol=2e-3)


@pytest.mark.rest
def test_counts_do_not_move() -> None:
    @az.program
    def total(lam: az.f64, p: az.f64) -> az.f64:
        counts = R.poisson(KEY, lam, 10, az.f64) * lam + R.binomial(KEY, 50, p, 10, az.f64)
        return az.sum(counts)

    drawn = az.compile(lambda: R.poisson(KEY, 4.0, 10))()
    slopes = az.compile(az.grad(total, (0, 1)))(4.0, 0.4)
    assert slopes == (drawn.sum(), 0.0)


@pytest.mark.rest
def test_a_trace_keeps_the_rule() -> None:
    """A run that is recorded has trials in it, through which no derivative goes."""

    @az.program
    def total(a: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(R.gamma(KEY, a) * R.truncated_normal(KEY, -a, 2 * a))

    a = np.array([0.2, 1.0, 40.0])
    traced = az.trace(total)(a).program
    np.testing.assert_allclose(az.evaluate(az.grad(traced))(a), az.evaluate(az.grad(total))(a), rtol=1e-12)


@pytest.mark.rest
def test_keys_may_be_batched() -> None:
    keys = az.evaluate(lambda key: R.split(key, 3))(KEY)
    batch = az.compile(az.vmap(lambda key, a: R.gamma(key, a, 4), in_axes=(0, None)))(keys, 0.7)
    for key, row in zip(keys, batch, strict=True):
        np.testing.assert_array_equal(az.compile(lambda key, a: R.gamma(key, a, 4))(key, 0.7), row)
