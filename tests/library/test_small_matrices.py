"""Small matrices: programs of the language, which give what LAPACK does, and run along lanes inside of maps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from sampling import some, sooner

import adze as az

pytestmark = pytest.mark.unguarded

RANDOM = np.random.default_rng(23)
RUNS = pytest.mark.parametrize("run", [az.evaluate, az.compile])


def general(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape) + 2 * np.eye(*shape[-2:])


def positive(*shape: int) -> np.ndarray:
    x = RANDOM.standard_normal(shape)
    return x @ np.swapaxes(x, -1, -2) + shape[-1] * np.eye(shape[-1])


def of(x: Any, front: str = "") -> Any:
    """The type of an array, all of whose extents are constant but those in front."""
    names = front.split()
    return az.Array[az.f32 if x.dtype == "f4" else az.f64, *names, *x.shape[len(names) :]] if x.ndim else az.f64


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], bool]] = {
    "cholesky": (lambda a, b: az.linalg.cholesky(a), lambda a, b: np.linalg.cholesky(a), True),
    "inv": (lambda a, b: az.linalg.inv(a), lambda a, b: np.linalg.inv(a), False),
    "det": (lambda a, b: az.linalg.det(a), lambda a, b: np.linalg.det(a), False),
    "slogdet": (lambda a, b: tuple(az.linalg.slogdet(a)), lambda a, b: tuple(np.linalg.slogdet(a)), False),
    "solve": (lambda a, b: az.linalg.solve(a, b), lambda a, b: np.linalg.solve(a, b), False),
    "solve, positive": (lambda a, b: az.linalg.solve(a, b, assume_a="pos"), lambda a, b: np.linalg.solve(a, b), True),
    "solve for a vector": (
        lambda a, b: az.linalg.solve(a, b[:, 0]),
        lambda a, b: np.linalg.solve(a, b)[:, 0] if b.shape[1] else b[:, 0],
        False,
    ),
    "lower": (
        lambda a, b: az.linalg.solve_triangular(a, b, lower=True),
        lambda a, b: scipy.linalg.solve_triangular(a, b, lower=True) if a.size else b,
        False,
    ),
    "upper, transposed, unit": (
        lambda a, b: az.linalg.solve_triangular(a, b, trans="T", unit_diagonal=True),
        lambda a, b: scipy.linalg.solve_triangular(a, b, trans=1, unit_diagonal=True) if a.size else b,
        False,
    ),
    "cho_solve": (
        lambda a, b: az.linalg.cho_solve((az.linalg.cholesky(a), True), b),
        lambda a, b: np.linalg.solve(a, b),
        True,
    ),
    "lu": (
        lambda a, b: tuple(az.linalg.lu(a)),
        lambda a, b: scipy.linalg.lu(a) if a.size else (a, a, a),
        False,
    ),
    "lu_solve, transposed": (
        lambda a, b: az.linalg.lu_solve(az.linalg.lu_factor(a), b, trans=1),
        lambda a, b: np.linalg.solve(a.T, b),
        False,
    ),
}


def close(found: Any, wanted: Any, rtol: float = 1e-9) -> None:
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for mine, theirs in pairs:
        assert np.shape(mine) == np.shape(theirs) and np.asarray(mine).dtype == np.asarray(theirs).dtype
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol)


SIZES = some([0, 1, 5, 2, 8, 32, 9], 3)


@pytest.mark.rest
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_matrix(name: str, size: int) -> None:
    call, wanted, symmetric = FUNCTIONS[name]
    a, b = (positive if symmetric else general)(size, size), RANDOM.standard_normal((size, 2))
    program = az.program(lambda a, b: call(a, b)).at(of(a), of(b))
    close(az.evaluate(program)(a, b), wanted(a, b))
    compiled = az.compile(program)
    assert "call" not in compiled.loops
    close(compiled(a, b), wanted(a, b))
    close(compiled(np.asfortranarray(a), b[:, ::-1]), wanted(a, b[:, ::-1]))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_map_over_matrices(name: str, size: int) -> None:
    call, wanted, symmetric = FUNCTIONS[name]
    count = 70 if size < 9 else 5  # more than the lanes are
    a, b = (positive if symmetric else general)(count, size, size), RANDOM.standard_normal((count, size, 2))
    program = az.program(lambda a, b: az.map(lambda a, b: call(a, b), a, b)).at(of(a, "m"), of(b, "m"))
    each = [wanted(x, y) for x, y in zip(a, b, strict=True)]
    stacked = tuple(map(np.stack, zip(*each, strict=True))) if isinstance(each[0], tuple) else np.stack(each)
    one = az.compile(program, threads=1)(a, b)
    close(one, stacked)
    for mine, theirs in zip(
        *[x if isinstance(x, tuple) else (x,) for x in (az.compile(program, threads=2)(a, b), one)]
    ):
        np.testing.assert_array_equal(mine, theirs)
    if name in ("solve", "cholesky") and size < 9:
        close(az.evaluate(program)(a, b), stacked)


@pytest.mark.rest
def test_stacks_broadcast() -> None:
    for left, right in [((4, 3, 3), (3, 2)), ((3, 3), (4, 3, 2)), ((2, 1, 3, 3), (4, 3, 1)), ((0, 3, 3), (3, 1))]:
        a, b = general(*left), RANDOM.standard_normal(right)
        program = az.program(lambda a, b: az.linalg.solve(a, b)).at(of(a), of(b))
        close(az.compile(program)(a, b), np.linalg.solve(a, b))
        close(az.evaluate(program)(a, b), np.linalg.solve(a, b))


def test_single_precision() -> None:
    a, b = general(40, 4, 4).astype("f4"), RANDOM.standard_normal((40, 4, 1)).astype("f4")
    program = az.program(lambda a, b: az.linalg.solve(a, b)).at(of(a, "m"), of(b, "m"))
    close(az.compile(program)(a, b), np.linalg.solve(a, b), 1e-3)


def test_pivots_are_those_of_lapack() -> None:
    """Which row is taken decides the error: rows that differ in scale, and a zero in the corner of each step."""
    a = general(200, 5, 5) * 10.0 ** RANDOM.integers(-8, 8, (200, 5, 1))
    a[::3, 0, 0] = a[::5, 1, 1] = 0
    a[1::2] = a[1::2, ::-1]
    program = az.program(lambda a: az.map(lambda a: az.linalg.lu_factor(a)[1], a)).at(of(a, "m"))
    wanted = np.stack([scipy.linalg.lu_factor(x)[1] for x in a])
    np.testing.assert_array_equal(az.compile(program)(a), wanted)
    np.testing.assert_array_equal(az.evaluate(program)(a[:20]), wanted[:20])


def test_the_program_of_a_map_calls_nothing_and_has_lanes() -> None:
    a = general(6, 6, 6)
    program = az.program(lambda a: az.map(lambda a: az.linalg.solve(a, az.ones(6)), a)).at(of(a, "m"))
    loops = az.compile(program).loops
    assert "call" not in loops and "f64[m, 6, 6]" not in loops.split("\n", 1)[1]
    [body] = [part for part in loops.split("parallel") if "abs" in part]
    assert "lanes" in body and "if" not in body and "for" not in body  # each matrix is in the registers of a lane


# Derivatives


def summed(call: Callable[..., Any]) -> Callable[..., Any]:
    def number(a: Any, b: Any) -> Any:
        found = call(a, b)
        return sum(az.sum(az.sin(az.reshape(x, (-1,)))) for x in (found if isinstance(found, tuple) else (found,)))

    return number


DIFFERENTIATED = [
    "cholesky",
    "inv",
    "det",
    "slogdet",
    "solve",
    "solve, positive",
    "lower",
    "lu_solve, transposed",
    "lu",
]
DERIVED = [(name, size) for name in DIFFERENTIATED for size in (1, 3, 9)]
STEP = 1e-6


@pytest.mark.rest
@pytest.mark.parametrize("case", sooner(DERIVED, lambda case: case == ("solve", 3), 4), ids=str)
def test_derivatives_of_small_matrices(case: tuple[str, int]) -> None:
    name, size = case
    call, _, symmetric = FUNCTIONS[name]
    # far from singular, and with a determinant whose sine differences can tell
    a = positive(3, size, size) if symmetric else general(3, size, size) / size + np.eye(size)
    b = RANDOM.standard_normal((3, size, 2))
    one = summed(lambda a, b: call((a + az.swapaxes(a, 0, 1)) / 2 if symmetric else a, b))
    program = az.program(lambda a, b: az.sum(az.map(lambda a, b: one(a, b), a, b)))
    ways = RANDOM.standard_normal(a.shape), RANDOM.standard_normal(b.shape)

    def slope(run: Callable[..., Any], *ways: np.ndarray) -> Any:
        ahead, behind = (run(*[x + h * way for x, way in zip((a, b), ways, strict=True)]) for h in (STEP, -STEP))
        return (np.asarray(ahead) - np.asarray(behind)) / (2 * STEP)

    run = az.compile(program.at(of(a, "m"), of(b, "m")))
    gradient = az.compile(az.grad(program, (0, 1)).at(of(a, "m"), of(b, "m")))
    found = sum(np.sum(part * way) for part, way in zip(gradient(a, b), ways, strict=True))
    np.testing.assert_allclose(found, slope(run, *ways), rtol=1e-5, atol=1e-6)
    kinds = [of(x, "m") for x in (a, b, a, b)]
    np.testing.assert_allclose(az.compile(az.jvp(program).at(*kinds))(a, b, *ways)[1], found, rtol=1e-9, atol=1e-9)
    second = az.compile(az.hvp(program).at(*kinds[:3]))(a, b, ways[0])
    wanted = slope(lambda *x: gradient(*x)[0], ways[0], 0 * ways[1])
    np.testing.assert_allclose(second, wanted, rtol=2e-4, atol=2e-5 * np.abs(wanted).max())


def test_evaluated_gradients() -> None:
    a, b = general(4, 3, 3), RANDOM.standard_normal((4, 3))
    program = az.program(lambda a, b: az.sum(az.map(lambda a, b: az.sum(az.linalg.solve(a, b) ** 3), a, b)))
    gradient = az.grad(program, (0, 1)).at(of(a, "m"), of(b, "m"))
    close(az.evaluate(gradient)(a, b), az.compile(gradient)(a, b))


@pytest.mark.rest
def test_a_filter_in_a_loop() -> None:
    """A Kalman filter: the likelihood of a series, and its derivative by the noise, against differences."""
    n, series = 3, RANDOM.standard_normal((20, 3))
    motion = 0.9 * np.eye(n) + 0.1 * RANDOM.standard_normal((n, n))

    @az.program
    def misfit(y: az.Array[az.f64, "t", n], a: az.Array[az.f64, n, n], noise: az.Array[az.f64, n, n]) -> az.f64:
        def step(state: Any, y: Any) -> Any:
            x, p, total = state
            x, p = a @ x, a @ p @ a.T + 0.1 * az.eye(n)
            factor = az.linalg.cholesky(p + noise)
            w = az.linalg.solve_triangular(factor, y - x, lower=True)
            gain = az.linalg.cho_solve((factor, True), p).T
            total = total + az.sum(w * w) / 2 + az.sum(az.log(az.diagonal(factor)))
            return (x + gain @ (y - x), p - gain @ p, total), total

        return az.scan_loop(step, (az.zeros(n), az.eye(n), 0.0), y)[0][2]

    noise, direction, h = np.eye(n), np.diag([1.0, -0.5, 2.0]), 1e-6
    run = az.compile(misfit)
    slope = (run(series, motion, noise + h * direction) - run(series, motion, noise - h * direction)) / (2 * h)
    found = az.compile(az.grad(misfit, 2))(series, motion, noise)
    assert np.isclose(np.sum(found * direction), slope, rtol=1e-6)


# What has no factor

A_BATCH = general(50, 3, 3)
BROKEN = A_BATCH.copy()
BROKEN[17], BROKEN[33] = 1, 0
FAILURES: dict[str, tuple[Callable[..., Any], str]] = {
    "map": (lambda a: az.map(lambda a: az.linalg.solve(a, az.ones(3)), a), "solve: singular matrix, number 17"),
    "stack": (lambda a: az.linalg.inv(a), "inv: singular matrix, number 17"),
    "positive": (lambda a: az.linalg.cholesky(a @ az.swapaxes(a, 1, 2)), "not positive definite, number (17|33)"),
    "triangle": (
        lambda a: az.linalg.solve_triangular(a, az.ones(3)),
        "solve_triangular: singular matrix, number 33",
    ),
    "loop": (
        lambda a: az.fori_loop(0, 50, lambda i, x: az.linalg.solve(a[i], x), az.ones(3)),
        "solve: singular matrix, number 17",
    ),
    "nested": (
        lambda a: az.generate(3, lambda k: az.map(lambda a: az.linalg.inv(a + (k - 1) * az.eye(3)), a)),
        "inv: singular matrix, number 1, 17",
    ),
    "branch": (
        lambda a: az.map(lambda a: az.cond(a[0, 0] == 0, lambda: az.linalg.det(az.linalg.inv(a)), lambda: 0.0), a),
        "inv: singular matrix, number 33",
    ),
}


@RUNS
@pytest.mark.parametrize("sizes", ["constant", "named"])
@pytest.mark.parametrize("name", FAILURES)
def test_the_first_matrix_that_fails_is_named(name: str, sizes: str, run: Callable[..., Any]) -> None:
    call, message = FAILURES[name]
    program = az.program(lambda a: call(a))
    typed = program.at(of(A_BATCH, "m")) if sizes == "constant" else program
    if name != "positive":
        run(typed)(A_BATCH)
    with pytest.raises(np.linalg.LinAlgError, match=rf"{message}, at .*test_small_matrices.py:\d+"):
        run(typed)(BROKEN)


@RUNS
def test_gradients_name_it_too(run: Callable[..., Any]) -> None:
    for call, message in [
        (lambda a: az.sum(az.linalg.det(a)), "the derivative of a determinant: singular matrix, number 17"),
        (lambda a: az.sum(az.linalg.inv(a)), "inv: singular matrix, number 17"),
    ]:
        gradient = az.grad(az.program(call)).at(of(A_BATCH, "m"))
        with pytest.raises(np.linalg.LinAlgError, match=message):
            run(gradient)(BROKEN)


@RUNS
def test_nan(run: Callable[..., Any]) -> None:
    """A solve has NaN for its result, as NumPy's; what has no comparison is not positive definite."""
    a = np.stack([np.eye(3), np.full((3, 3), np.nan)])
    found = run(az.program(lambda a: az.linalg.solve(a, az.ones(3))).at(of(a, "m")))(a)
    np.testing.assert_array_equal(np.isnan(found), [[False] * 3, [True] * 3])
    with pytest.raises(np.linalg.LinAlgError, match="number 1"):
        run(az.program(lambda a: az.linalg.cholesky(a)).at(of(a, "m")))(a)


def test_without_checks_there_are_no_requirements() -> None:
    program = az.program(lambda a: az.map(lambda a: az.linalg.solve(a, az.ones(3)), a)).at(of(A_BATCH, "m"))
    assert not np.isfinite(az.compile(program, checks=False)(BROKEN)).all()


# OpenCL


@pytest.mark.rest
@pytest.mark.parametrize("size", [2, 6, 9])
def test_small_matrices_on_a_device(size: int, opencl: Any) -> None:
    a, b = general(100, size, size), RANDOM.standard_normal((100, size))
    program = az.program(lambda a, b: az.sum(az.map(lambda a, b: az.sum(az.linalg.solve(a, b) ** 2), a, b)))
    gradient = az.grad(program, (0, 1)).at(of(a, "m"), of(b, "m"))
    close(az.compile(gradient, backend="opencl")(a, b), az.compile(gradient)(a, b))
    broken = a.copy()
    broken[17] = 0
    with pytest.raises(np.linalg.LinAlgError, match="number 17"):
        az.compile(gradient, backend="opencl")(broken, b)
