"""The benchmark programs against independent implementations (tests/data), and what their derivatives cost."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from load import benchmark
from scipy.sparse import csr_array

import adze as az

pytestmark = pytest.mark.unguarded

TOLERANCE = 1e-8
PROGRAMS = ("kmeans", "ba", "ht", "lstm", "lse", "llsq", "ode")

CASES = [case for name in PROGRAMS for case in benchmark("cases").read_cases(name)]

# What is left to the long run: sequences of a thousand steps, hands, and derivatives that are long to compile.
LONG_TO_EVALUATE = {("lstm", "objective"), ("lstm", "jacobian"), ("ht", "surface jacobian")}
LONG_TO_COMPILE = {("ba", "jacobian"), ("ode", "gradient")}
LONG_TO_COMPILE |= {(program, function) for program in ("ht", "lstm") for function in benchmark(program).FUNCTIONS}


def functions(long: set[tuple[str, str]]) -> pytest.MarkDecorator:
    """A test of each function of each case."""
    parameters = [
        pytest.param(
            case,
            function,
            id=f"{case.program}-{function}-{case.description}".replace(" ", "_"),
            marks=[pytest.mark.slow] if (case.program, function) in long else [],
        )
        for case in CASES
        for function in case.wanted
    ]
    return pytest.mark.parametrize(("case", "function"), parameters)


def leaves(tree: Any) -> list[np.ndarray]:
    """The numbers of an answer, in the order of its names."""
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves(tree[name])]
    return [np.asarray(tree)]


def close(found: Any, wanted: Any, tolerance: float = TOLERANCE) -> None:
    """Each element is right, relative to itself (to 1, where it is small)."""
    for a, b in zip(leaves(found), leaves(wanted), strict=True):
        assert a.shape == b.shape and a.dtype.kind in "if"
        scale = np.maximum(1.0, np.maximum(abs(a), abs(b)))
        assert np.max(abs(a - b) / scale, initial=0.0) <= tolerance


@cache
def compiled(name: str, function: str, threads: int) -> az.Compiled:
    return az.compile(benchmark(name).FUNCTIONS[function], threads=threads)


@functions(LONG_TO_EVALUATE)
def test_evaluated(case: Any, function: str) -> None:
    program = benchmark(case.program)
    result = az.evaluate(program.FUNCTIONS[function])(*program.arguments(case.given))
    close(program.answer(function, result), case.wanted[function])


@functions(LONG_TO_COMPILE)
def test_compiled(case: Any, function: str) -> None:
    """On one thread and two: the same bits."""
    program = benchmark(case.program)
    one, two = (compiled(case.program, function, k)(*program.arguments(case.given)) for k in (1, 2))
    close(program.answer(function, one), case.wanted[function])
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (one, two)), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_the_cases_are_there() -> None:
    assert {case.program for case in CASES} == set(PROGRAMS)
    for case in CASES:
        assert case.wanted.keys() <= benchmark(case.program).FUNCTIONS.keys()


# The work of a gradient is at most six times that of its program; that of ba's Jacobian at most six times for each of
# the two rows of an observation, and that of ht's at most three times for each direction.

SIZES = {
    "kmeans": [{"n": 100, "d": 16, "k": 10}, {"n": 1000, "d": 3, "k": 50}],
    "lse": [{"n": 100}, {"n": 10000}],
    "llsq": [{"n": 100, "m": 32}, {"n": 1000, "m": 8}],
    "ode": [{"n": 100, "s": 10}, {"n": 10, "s": 1000}],
    "lstm": [{"t": 100, "b": 7, "l": 2}, {"t": 1000, "b": 14, "l": 4}],
}
WORK = 6


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in ("lstm", "ode") else []) for name in SIZES]
)
def test_the_gradient_costs_a_small_multiple_of_the_program(name: str) -> None:
    """For ode the program is the last element of the solution, for kmeans the derivative is of second order."""
    program = benchmark(name)
    primal, derivative = program.FUNCTIONS.values()
    for sizes in SIZES[name]:
        work = az.cost(program.last if name == "ode" else primal).at(**sizes).work
        assert az.cost(derivative).at(**sizes).work <= WORK * work


def test_two_rows_of_the_bundle_cost_a_small_multiple_of_the_errors() -> None:
    ba, sizes = benchmark("ba"), {"n": 20, "m": 500, "p": 1000}
    assert az.cost(ba.jacobian).at(**sizes).work <= 2 * WORK * az.cost(ba.errors).at(**sizes).work


@pytest.mark.slow
@pytest.mark.parametrize(("function", "seeds"), [("", 26), ("surface ", 28)])
def test_a_column_of_the_pose_costs_a_small_multiple_of_the_residuals(function: str, seeds: int) -> None:
    program, sizes = benchmark("ht"), {"v": 544, "t": 1084, "p": 100}
    work = az.cost(program.FUNCTIONS[f"{function}objective"]).at(**sizes).work
    assert az.cost(program.FUNCTIONS[f"{function}jacobian"]).at(**sizes).work <= 3 * seeds * work


# What the cases leave out


def bundle(n: int, m: int, p: int) -> tuple[Any, ...]:
    """Arguments with different cameras and points, of which one camera is not turned at all.

    All cameras are looked through. (The reference has one observation, repeated.)
    """
    random = np.random.default_rng(3)
    cameras = random.uniform(-1, 1, (n, 11))
    cameras[1, :3] = 0
    points, weights = random.uniform(2, 3, (m, 3)), random.uniform(0.5, 1, p)
    observations = np.stack([random.integers(n, size=p), random.integers(m, size=p)], axis=1)
    observations[:n, 0] = range(n)
    return cameras, points, weights, observations, random.uniform(-1, 1, (p, 2))


@pytest.mark.parametrize("run", [az.evaluate, pytest.param(az.compile, marks=pytest.mark.slow)])
def test_bundle_adjustment_of_different_cameras_and_points(run: Any) -> None:
    """The whole Jacobian, column by column, against the sparse one that the program makes."""
    ba, n, m, p = benchmark("ba"), 3, 4, 7
    cameras, points, weights, *rest = bundle(n, m, p)
    pushed = az.evaluate(az.jvp(ba.errors))
    columns = []
    for direction in np.eye(11 * n + 3 * m + p):
        parts = np.split(direction, [11 * n, 11 * n + 3 * m])
        tangents = [part.reshape(x.shape) for part, x in zip(parts, (cameras, points, weights), strict=True)]
        _, (reprojection, weight) = pushed(cameras, points, weights, *rest, *tangents, np.zeros((p, 2)))
        columns.append(np.append(reprojection.ravel(), weight))
    csr = ba.matrix(*run(ba.jacobian)(cameras, points, weights, *rest))
    close(csr.toarray(), np.array(columns).T, 1e-12)
    np.testing.assert_array_equal(np.diff(csr.indptr), [15] * (2 * p) + [1] * p)


@pytest.mark.parametrize("given", [False, True], ids=["detected", "given"])
@pytest.mark.parametrize("run", [az.evaluate, pytest.param(None, marks=pytest.mark.slow)], ids=["evaluate", "compile"])
def test_bundle_adjustment_by_the_pattern(run: Any, given: bool) -> None:
    """The same matrix from a pattern. What is found has an entry less a row: there is one for each principal point."""
    ba, arguments = benchmark("ba"), bundle(3, 4, 20)
    direct = ba.matrix(*az.evaluate(ba.jacobian)(*arguments))
    jacobian = az.sparse_jacobian(ba.errors, argnums=(0, 1, 2), pattern=direct if given else None, run=run)
    found = jacobian(*arguments)
    assert isinstance(found, csr_array)
    close(found.toarray(), direct.toarray(), 1e-12)
    entries = 15 if given else 14
    np.testing.assert_array_equal(np.diff(found.indptr), [entries] * 40 + [1] * 20)
    assert jacobian.mode == "forward" and jacobian.colors == entries
    jacobian.verify(*arguments)


@pytest.mark.slow
def test_golden_bundle_adjustment_by_the_pattern() -> None:
    """The case of the suite, in its size, with the pattern of the suite."""
    ba, case = benchmark("ba"), next(case for case in CASES if case.program == "ba")
    arguments = ba.arguments(case.given)
    pattern = ba.matrix(*compiled("ba", "jacobian", 2)(*arguments))
    found = az.sparse_jacobian(ba.errors, argnums=(0, 1, 2), pattern=pattern)(*arguments)
    arrays = {"rows": found.indptr, "cols": found.indices, "vals": found.data}
    close({name: np.append(a[:30], a[-1]) for name, a in arrays.items()}, case.wanted["jacobian"])
    detected = az.sparse_jacobian(ba.errors, argnums=(0, 1, 2))(*arguments)
    assert abs(detected - found).max() <= 1e-8 * abs(found).max()


def hand(description: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The program, its arguments and what it must give, for a case of hand tracking."""
    case = next(case for case in CASES if case.program == "ht" and case.description.startswith(description))
    return benchmark("ht"), benchmark("ht").arguments(case.given), case.wanted


@pytest.mark.slow
def test_golden_hand_by_jacobian() -> None:
    """All columns; and the columns of one finger, by the few directions that move it."""
    ht, arguments, wanted = hand("hand")
    reference = np.array(wanted["jacobian"])
    found = az.evaluate(az.jacobian(ht.residuals, mode="forward"))(*arguments)
    close(found.reshape(reference.shape), reference)

    @az.program
    def of_finger(angles: az.Array[az.f64, "4"], theta: az.Array[az.f64, "26"], model: Any, near: Any, points: Any):  # type: ignore[no-untyped-def]
        return ht.residuals(az.concatenate([theta[:10], angles, theta[14:]]), model, near, points)

    theta = arguments[0]
    found = az.evaluate(az.jacobian(of_finger))(theta[10:14], *arguments)
    close(found.reshape(-1, 4), reference[:, 10:14])


@pytest.mark.parametrize("run", [az.evaluate, pytest.param(None, marks=pytest.mark.slow)], ids=["evaluate", "compile"])
def test_golden_hand_on_the_surface_by_the_pattern(run: Any) -> None:
    """The blocks of the points' own places share two directions; a translation moves one coordinate of each point."""
    ht, arguments, wanted = hand("surface")
    jacobian = az.sparse_jacobian(ht.surface_residuals, argnums=(0, 1), run=run)
    found, p = jacobian(*arguments), len(arguments[1])
    assert jacobian.mode == "forward" and jacobian.colors == 26
    np.testing.assert_array_equal(np.diff(found.indptr), 26)
    whole, point = found.toarray(), np.arange(p)
    own = whole[:, 26:].reshape(p, 3, p, 2)[point, :, point].reshape(3 * p, 2)
    close(np.concatenate([own, whole[:, :26]], axis=1), wanted["surface jacobian"])


def test_a_hand_that_is_not_turned() -> None:
    """The rotation by no angle is constant there, and nothing is divided by the angle."""
    ht, case = benchmark("ht"), next(case for case in CASES if case.program == "ht")
    theta, *rest = ht.arguments(case.given)
    theta[:3] = 0
    jacobian = az.evaluate(ht.jacobian)(theta, *rest)
    assert np.isfinite(jacobian).all() and not jacobian[:, :3].any()
    np.testing.assert_allclose(jacobian[:, 3:6], np.tile(-np.eye(3), (100, 1)))


@pytest.mark.parametrize("run", [az.evaluate, pytest.param(az.compile, marks=pytest.mark.slow)])
def test_the_last_element_of_the_solution_is_linear_in_each_parameter(run: Any) -> None:
    """y_i is a multiple of x_0 ... x_i: its derivative by x_j is y_i / x_j. (In the cases it is nearly 0.)"""
    ode, x = benchmark("ode"), np.random.default_rng(4).uniform(3, 5, 9)
    gradient = run(ode.gradient)
    for steps in (0, 1, 7, 50):
        last = az.evaluate(ode.solution)(x, steps)[-1]
        np.testing.assert_allclose(gradient(x, steps), last / x, rtol=1e-12)


def test_the_gradient_of_logsumexp_is_softmax() -> None:
    """Also where exponentials would overflow, at ties of the maximum, and for one number."""
    gradients = az.evaluate(benchmark("lse").gradient), compiled("lse", "gradient", 2)
    for x in ([1000.0, 1000.0, 999.0], [3.0], np.random.default_rng(5).normal(size=1000)):
        shares = np.exp(x - np.max(x))
        for gradient in gradients:
            np.testing.assert_allclose(gradient(np.array(x)), shares / shares.sum(), rtol=1e-12, atol=1e-15)


def test_evaluated_lstm() -> None:
    """A short sequence: the gradient against the derivative in a direction."""
    lstm, case = benchmark("lstm"), next(case for case in CASES if case.program == "lstm")
    layers, ends, state, sequence = lstm.arguments(case.given)
    given = layers, ends, state, sequence[:12]
    gradient = az.evaluate(lstm.gradient)(*given)
    random = np.random.default_rng(6)
    tangents = random.normal(size=layers.shape), random.normal(size=ends.shape)
    fixed = tuple(map(np.zeros_like, state)), np.zeros_like(given[3])
    _, slope = az.evaluate(az.jvp(lstm.loss))(*given, *tangents, *fixed)
    close(slope, sum(np.sum(g * t) for g, t in zip(gradient, tangents, strict=True)), 1e-12)
