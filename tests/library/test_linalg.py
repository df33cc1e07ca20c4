"""Linear algebra: values against NumPy and SciPy, derivatives against differences, in forward and reverse mode."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from sampling import some, sooner

import adze as az
from adze.library.linalg import blocked, routines

pytestmark = pytest.mark.unguarded

RANDOM = np.random.default_rng(17)
STEP = 1e-6


def general(*shape: int) -> np.ndarray:
    """Matrices with singular values that are apart."""
    made = RANDOM.standard_normal(shape)
    return made + 2 * np.eye(*shape[-2:]) if shape[-2:] != (0, 0) else made


def positive(*shape: int) -> np.ndarray:
    x = RANDOM.standard_normal(shape)
    return x @ np.swapaxes(x, -1, -2) + shape[-1] * np.eye(shape[-1])


def symmetric(x: Any) -> Any:
    return (x + np.swapaxes(x, -1, -2)) / 2


def close(found: Any, wanted: Any, rtol: float = 1e-10) -> None:
    if isinstance(wanted, tuple):
        assert type(found).__name__ == type(wanted).__name__ or type(wanted) is tuple
        for mine, theirs in zip(found, wanted, strict=True):
            close(mine, theirs, rtol)
        return
    assert np.shape(found) == np.shape(wanted) and np.asarray(found).dtype == np.asarray(wanted).dtype
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol)


# Values: how each is called with az.linalg or with NumPy, on what

CALLS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "cholesky": (lambda l, a: l.cholesky(a), [(positive(4, 4),), (positive(2, 3, 3),), (positive(0, 0),)]),
    "inv": (lambda l, a: l.inv(a), [(general(4, 4),), (general(2, 3, 3),), (general(0, 0),)]),
    "det": (lambda l, a: l.det(a), [(general(4, 4),), (general(2, 3, 3),), (general(0, 0),)]),
    "slogdet": (lambda l, a: l.slogdet(a), [(general(4, 4),), (-general(2, 3, 3),), (general(0, 0),)]),
    "solve": (
        lambda l, a, b: l.solve(a, b),
        [
            (general(4, 4), RANDOM.standard_normal(4)),
            (general(4, 4), RANDOM.standard_normal((4, 2))),
            (general(5, 4, 4), RANDOM.standard_normal((4, 2))),
            (general(4, 4), RANDOM.standard_normal((5, 4, 2))),
            (general(5, 4, 4), RANDOM.standard_normal(4)),
            (general(0, 0), np.ones(0)),
        ],
    ),
    "qr": (lambda l, a: l.qr(a), [(general(4, 4),), (general(5, 3),), (general(3, 5),), (general(2, 4, 3),)]),
    "eigh": (lambda l, a: l.eigh(a).eigenvalues, [(symmetric(general(4, 4)),), (symmetric(general(2, 3, 3)),)]),
    "eigvalsh": (lambda l, a: l.eigvalsh(a), [(symmetric(general(4, 4)),)]),
    "svd": (lambda l, a: svd_of(l, a), [(general(4, 4),), (general(5, 3),), (general(3, 5),), (general(2, 4, 3),)]),
    "pinv": (lambda l, a: l.pinv(a), [(general(4, 4),), (general(5, 3),), (general(2, 3, 5),)]),
    "matrix_rank": (lambda l, a: l.matrix_rank(a), [(general(4, 4),), (np.ones((3, 4)),), (np.zeros(3),)]),
    "cond": (lambda l, a: l.cond(a), [(general(4, 4),), (general(5, 3),)]),
    "cond of others": (
        lambda l, a: tuple(l.cond(a, p) for p in (1, -1, 2, -2, np.inf, -np.inf, "fro")),
        [(general(4, 4),), (general(2, 3, 3),)],
    ),
    "norm": (lambda l, a: l.norm(a), [(general(4, 4),), (general(2, 3, 4),), (np.arange(4.0),)]),
    "norms of vectors": (
        lambda l, a: tuple(l.norm(a, p, axis) for p in (None, 1, 2, 3, 0, 0.5, np.inf, -np.inf) for axis in (0, -1)),
        [(general(4, 3),)],
    ),
    "norms of matrices": (
        lambda l, a: tuple(l.norm(a, p, (0, 2)) for p in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)),
        [(general(4, 3, 3),)],
    ),
    "norms that keep axes": (
        lambda l, a: (l.norm(a, keepdims=True), l.norm(a, 2, (1, 0), keepdims=True), l.norm(a, 1, 0, keepdims=True)),
        [(general(4, 3),)],
    ),
    "matrix_power": (
        lambda l, a: tuple(l.matrix_power(a, n) for n in (0, 1, 2, 3, 10, -1, -2)),
        [(general(4, 4),), (general(2, 3, 3),)],
    ),
    "lstsq": (
        lambda l, a, b: (l.lstsq(a, b)[0], l.lstsq(a, b)[1], l.lstsq(a, b)[3]),
        [(general(5, 3), RANDOM.standard_normal(5)), (general(33, 4), RANDOM.standard_normal((33, 2)))],
    ),
    "trace": (lambda l, a: (l.trace(a), l.trace(a, offset=1)), [(general(4, 4),), (general(2, 3, 5),), (np.eye(0),)]),
    "multi_dot": (
        lambda l, a, b: (l.multi_dot([a, b, a]), l.multi_dot([a[0], b, a, b[:, 0]]), l.multi_dot([a, b])),
        [(general(3, 5), general(5, 3))],
    ),
}


def svd_of(library: Any, a: Any) -> Any:
    return library.svd(a).S if library is az.linalg else library.svd(a, full_matrices=False).S


@pytest.mark.parametrize("name", some(CALLS, 5))
def test_values_are_those_of_numpy(name: str) -> None:
    call, cases = CALLS[name]
    for arguments in cases:
        program = az.program(
            (lambda a: call(az.linalg, a)) if len(arguments) == 1 else (lambda a, b: call(az.linalg, a, b))
        )
        wanted = call(np.linalg, *arguments)
        close(az.evaluate(program)(*arguments), wanted)
        close(az.compile(program)(*arguments), wanted)
        narrow = [x.astype(np.float32) for x in arguments]
        close(az.compile(program)(*narrow), call(np.linalg, *narrow), 2e-4)


OPTIONS: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "svd, reduced": (lambda a: np.linalg.svd(a, full_matrices=False)[1], general(5, 3)),
    "svd, numbers": (lambda a: np.linalg.svd(a, compute_uv=False), general(3, 5)),
    "qr, reduced": (lambda a: np.linalg.qr(a, mode="reduced"), general(5, 3)),
    "qr, r": (lambda a: np.linalg.qr(a, mode="r"), general(2, 3, 5)),
    "eigh, lower": (lambda a: np.linalg.eigh(a, "L")[0], general(4, 4)),
    "eigh, upper": (lambda a: np.linalg.eigh(a, UPLO="u")[0], general(4, 4)),
    "eigvalsh, upper": (lambda a: np.linalg.eigvalsh(a, UPLO="U"), general(2, 3, 3)),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_those_of_numpy(name: str) -> None:
    """Of a matrix that is not symmetric, one triangle is looked at."""
    call, a = OPTIONS[name]
    close(az.evaluate(call)(a), call(a))


def test_the_upper_factor() -> None:
    """NumPy has it from 2.0 on."""
    a = np.triu(positive(2, 4, 4)) + np.tril(general(4, 4), -1)
    found = az.evaluate(lambda a: az.linalg.cholesky(a, upper=True))(a)
    close(found, np.stack([scipy.linalg.cholesky(each) for each in a]))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda a: np.linalg.svd(a), r"svd: full_matrices=True is for square matrices .* full_matrices=False \(at"),
        (lambda a: np.linalg.qr(a, mode="complete"), r'qr: mode is "reduced" or "r" here, got \'complete\' \(at'),
        (lambda a: az.linalg.eigh(a[:3], UPLO="lower"), r'eigh: UPLO is "L" or "U", got \'lower\' \(at'),
    ],
)
def test_options_that_are_not_there(call: Callable[[Any], Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        az.evaluate(call)(general(5, 3))
    square = az.program(lambda a: np.linalg.svd(a)).at(az.Array[az.f64, "n n"])
    close(az.evaluate(square)(np.diag([1.0, -2.0]))[1], np.array([2.0, 1.0]))


def test_numpy_on_expressions() -> None:
    @az.program
    def f(a: az.Array[az.f64, "n n"], b: az.Array[az.f64, "n"]) -> Any:
        return np.linalg.solve(a, b), np.linalg.slogdet(a).logabsdet, np.linalg.norm(b), np.linalg.inv(a) @ b

    a, b = general(3, 3), np.arange(3.0)
    close(
        az.compile(f)(a, b), (np.linalg.solve(a, b), np.linalg.slogdet(a)[1], np.linalg.norm(b), np.linalg.inv(a) @ b)
    )


@pytest.mark.slow
def test_values_are_those_of_scipy() -> None:
    a, b = general(4, 4), RANDOM.standard_normal((4, 2))
    for lower in (False, True):
        for trans in (0, 1, "N", "T"):
            wanted = scipy.linalg.solve_triangular(a, b, trans=trans, lower=lower)
            program = az.program(lambda a, b: az.linalg.solve_triangular(a, b, trans, lower))  # noqa: B023
            close(az.compile(program)(a, b), wanted)
            close(az.evaluate(program)(a, b[:, 0]), wanted[:, 0])
        factor = np.linalg.cholesky(positive(4, 4))
        factor = factor if lower else factor.T
        solved = az.program(lambda f, b: az.linalg.cho_solve((f, lower), b))  # noqa: B023
        close(az.compile(solved)(factor, b), scipy.linalg.cho_solve((factor, lower), b))
    for scale in (0.0, 1e-3, 1.0, 30.0):
        close(az.compile(lambda a: az.linalg.expm(a))(scale * a), scipy.linalg.expm(scale * a), 1e-9)
    stack = np.stack([a, 0.1 * a])
    close(az.compile(lambda a: az.linalg.expm(a))(stack), np.stack([scipy.linalg.expm(each) for each in stack]), 1e-9)
    assert not np.isfinite(az.compile(lambda a: az.linalg.expm(a))(np.full((2, 2), np.inf))).any()
    close(az.compile(lambda a, b: az.linalg.kron(a, b))(a, b), np.kron(a, b))
    x, y = RANDOM.standard_normal((2, 5, 3))
    vectors = az.Array[az.f64, "n", 3]
    close(az.compile(az.program(lambda a, b: az.linalg.cross(a, b)).at(vectors, vectors))(x, y), np.cross(x, y))
    t, u = RANDOM.standard_normal((2, 3, 4)), RANDOM.standard_normal((3, 4, 5))
    for axes in (2, 0, ([1, 2], [0, 1]), ([2, 1], [1, 0]), (1, 0)):
        program = az.program(lambda t, u: az.linalg.tensordot(t, u, axes))  # noqa: B023
        close(az.compile(program)(t, u), np.tensordot(t, u, axes))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (1, 1), (5, 5), (5, 3), (3, 5), (33, 33), (2, 4, 4)])
def test_factors_are_those_of_scipy(shape: tuple[int, ...]) -> None:
    """Also of matrices that are not square, singular, of integers, and not contiguous."""
    a, factors = general(*shape), az.compile(lambda a: tuple(az.linalg.lu(a)))
    others = [a[..., ::-1], np.asfortranarray(a), 0 * a, np.round(a).astype(np.int64)]
    for each in (a, *others) if a.size else (a,):
        p, l, u = factors(each)
        close(p @ l @ u, each.astype(float))
        for mine, theirs in zip((p, l, u), scipy.linalg.lu(each) if a.size and a.ndim == 2 else (p, l, u), strict=True):
            close(mine, theirs)
    for mine, theirs in zip(az.evaluate(lambda a: tuple(az.linalg.lu(a)))(a), factors(a), strict=True):
        close(mine, theirs)


@pytest.mark.rest
def test_solves_with_factors() -> None:
    a, b = general(5, 5), RANDOM.standard_normal((5, 2))
    held = scipy.linalg.lu_factor(a)
    for trans in (0, 1):
        program = az.program(lambda lu, piv, b: az.linalg.lu_solve((lu, piv), b, trans))  # noqa: B023
        close(az.compile(program)(*held, b), scipy.linalg.lu_solve(held, b, trans))
    found = az.compile(lambda a: az.linalg.lu_factor(a))(a)
    for mine, theirs in zip(found, held, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    stack = general(3, 4, 4)
    solved = az.compile(lambda a, b: az.linalg.lu_solve(az.linalg.lu_factor(a), b))(stack, b[:4])
    close(solved, np.linalg.solve(stack, b[:4]))
    outside = az.program(lambda lu, piv, b: az.linalg.lu_solve((lu, piv), b))
    with pytest.raises(np.linalg.LinAlgError, match="a row in piv that is not there"):
        az.compile(outside)(held[0], held[1] + 3, b)


@pytest.mark.rest
def test_least_squares_of_matrices_without_full_rank() -> None:
    """The least x, a rank, and a cutoff; NumPy leaves the residuals out."""
    a, b = np.outer(np.arange(1.0, 5.0), [1.0, 2.0, 3.0]), RANDOM.standard_normal(4)
    x, residuals, rank, _ = az.compile(lambda a, b: tuple(az.linalg.lstsq(a, b)))(a, b)
    wanted = np.linalg.lstsq(a, b)
    close(x, wanted[0])
    assert rank == wanted[2] == 1 and np.isclose(residuals[0], np.sum((a @ x - b) ** 2))
    near = np.diag([1.0, 1e-3])
    for rcond in (1e-2, 1e-4):
        found = az.compile(lambda a, b: az.linalg.lstsq(a, b, rcond).x)(near, np.ones(2))  # noqa: B023
        close(found, np.linalg.lstsq(near, np.ones(2), rcond)[0])


def test_many_right_hand_sides_are_solved_for_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which sizes alone decide; those of which the first numbers are 0 are solved for from there on."""
    triangle = np.tril(general(40, 40)) + 4 * np.eye(40)
    program = az.program(lambda a, b: az.linalg.solve_triangular(a, b, lower=True))
    calls = counted(monkeypatch)
    for count, blocks in ((1, 1), (256, 1), (257, 2), (523, 3)):
        b = RANDOM.standard_normal((40, count))
        b[:7, :] = 0
        calls.clear()
        one, two = (az.compile(program, threads=threads)(triangle, b) for threads in (1, 2))
        np.testing.assert_array_equal(one, two)
        close(one, scipy.linalg.solve_triangular(triangle, b, lower=True))
        assert sum(calls.values()) == 2 * blocks


def test_routines_run_side_by_side() -> None:
    """One of them keeps no other Python thread from running."""
    a, b, turns = np.eye(1500), RANDOM.standard_normal((1500, 1500)), list[int]()
    solving = threading.Thread(target=lambda: routines.run("trsm", a.dtype, *"LUTN", 1500, 1500, 1.0, a, 1500, b, 1500))
    solving.start()
    while solving.is_alive():
        turns.append(len(turns))
    assert len(turns) > 1000


def test_extents_beyond_32_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="extents of at most 2147483647, not 2147483648"):
        routines.run("trsv", np.dtype("f8"), *"UTN", 2**31, np.ones(1), 1, np.ones(1), 1)


# How often LAPACK is called


def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Counts the calls of the routines that factorise and solve from now on."""
    calls, run = dict[str, int](), routines.run

    def counting(name: str, *arguments: Any) -> int:
        calls[name] = calls.get(name, 0) + 1
        return run(name, *arguments)

    for caller in (routines, blocked):
        monkeypatch.setattr(caller, "run", counting)
    return calls


ONCE: dict[str, tuple[Callable[..., Any], dict[str, int]]] = {
    "solve": (lambda a, b: weighed(az.linalg.solve(a, b)), {"getrf": 1, "trsv": 4}),
    "slogdet": (lambda a, b: az.linalg.slogdet(a).logabsdet, {"getrf": 1, "trsm": 2}),
    "det": (lambda a, b: az.linalg.det(a), {"getrf": 1, "trsm": 2}),
    "inv": (lambda a, b: weighed(az.linalg.inv(a)), {"getrf": 1, "trsm": 2}),
    "both": (
        lambda a, b: b @ az.linalg.solve(a, b) + az.linalg.slogdet(a).logabsdet,
        {"getrf": 1, "trsv": 4, "trsm": 2},
    ),
    "positive": (
        lambda a, b: weighed(az.linalg.solve(a @ a.T, b, assume_a="pos")),
        {"potrf": 1, "laset": 1, "trsv": 4},
    ),
    "cholesky": (lambda a, b: weighed(az.linalg.cholesky(a @ a.T)), {"potrf": 1, "laset": 1, "trsm": 2}),
}


@pytest.mark.rest
@pytest.mark.parametrize("name", ONCE)
def test_a_gradient_factorises_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, wanted = ONCE[name]
    gradient = az.compile(az.value_and_grad(az.program(lambda a, b: call(a, b))))
    second = az.compile(az.hvp(az.program(lambda a, b: call(a, b)))) if name in ("solve", "slogdet") else None
    calls, (a, b) = counted(monkeypatch), (general(6, 6), RANDOM.standard_normal(6))
    gradient(a, b)
    assert calls == wanted
    if second is not None:
        second(a, b, a)
        assert calls["getrf"] == 2  # one more


FEWER: dict[str, tuple[Callable[..., Any], str, Callable[..., Any]]] = {
    "eigvalsh": (lambda a: az.linalg.eigvalsh(a), "syevd", np.linalg.eigvalsh),
    "largest": (lambda a: az.max(az.linalg.eigh(a).eigenvalues), "syevd", lambda a: np.linalg.eigvalsh(a)[-1]),
    "svdvals": (lambda a: az.linalg.svdvals(a), "gesdd", lambda a: np.linalg.svd(a, compute_uv=False)),
    "triangle": (lambda a: az.linalg.qr(a).R, "orgqr", lambda a: np.linalg.qr(a, mode="r")),
}


@pytest.mark.parametrize("name", FEWER)
def test_vectors_that_nobody_uses_are_not_computed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, routine, expected = FEWER[name]
    a = symmetric(general(40, 40))
    wanted, calls = expected(a), counted(monkeypatch)
    close(az.compile(az.program(call))(a), wanted)
    assert not calls.get(routine)
    value, slope = az.compile(az.value_and_grad(lambda a: az.sum(call(a) ** 2)))(a)
    np.testing.assert_allclose(value, (wanted**2).sum())
    assert slope.shape == a.shape and calls[routine] == 1  # the derivative has all of them, and they give the value


VALUES: list[Any] = [
    lambda a: az.linalg.eigvalsh(a),
    lambda a: az.linalg.eigh(a).eigenvectors,
    lambda a: az.linalg.svdvals(a),
    lambda a: az.linalg.svd(a).U,
]


@pytest.mark.parametrize("call", VALUES)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_values_that_are_not_found_are_told_with_the_line(call: Any, wrong: float) -> None:
    a = np.stack([symmetric(general(20, 20))] * 2)
    alone, unchecked = az.compile(az.program(call)), az.compile(az.program(call), checks=False)
    assert np.isfinite(alone(a[1])).all()
    a[1, 2, 2] = wrong
    with pytest.raises(np.linalg.LinAlgError, match=r"did not converge, at .*test_linalg"):
        alone(a[1])
    assert unchecked(a[1]).shape == alone(a[0]).shape


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
@pytest.mark.parametrize("size", [3, 20])
@pytest.mark.parametrize("call", VALUES)
def test_a_stack_tells_which_matrix_has_no_values(call: Any, size: int, run: Any) -> None:
    """With the line, as a matrix alone does; without checks the others have theirs."""
    a = np.stack([symmetric(general(size, size))] * 6).reshape(2, 3, size, size)
    a[1, 2, 1, 1] = a[1, 1, 1, 0] = np.nan
    with pytest.raises(np.linalg.LinAlgError, match=r"did not converge, number 1, 1, at .*test_linalg"):
        run(az.program(call))(a)
    if run is az.compile:
        found, good = az.compile(az.program(call), checks=False)(a), run(az.program(call))(a[0])
        close(np.abs(found[0]), np.abs(good))
        close(np.abs(found[1, 0]), np.abs(good[0]))
        assert np.isnan(found[1, 1]).all() and np.isnan(found[1, 2]).all()


# Derivatives: numbers that do not depend on what a factorisation leaves open

W = RANDOM.standard_normal((6, 6))


def weighed(x: Any) -> Any:
    """A number of an array, in which all elements take part."""
    return az.sum(az.sin(az.reshape(x, (-1,)) + 0.3))


SCALARS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "cholesky": (lambda a: weighed(az.linalg.cholesky(a + a.T)), (positive(4, 4),)),
    "cholesky of a stack": (lambda a: weighed(az.linalg.cholesky(a + a.swapaxes(1, 2))), (positive(2, 3, 3),)),
    "solve": (lambda a, b: weighed(az.linalg.solve(a, b)), (general(4, 4), RANDOM.standard_normal(4))),
    "solve for columns": (lambda a, b: weighed(az.linalg.solve(a, b)), (general(3, 3), RANDOM.standard_normal((3, 2)))),
    "solve stacks": (
        lambda a, b: weighed(az.linalg.solve(a, b)),
        (general(2, 3, 3), RANDOM.standard_normal((3, 2))),
    ),
    "lower": (
        lambda a, b: weighed(az.linalg.solve_triangular(a, b, lower=True)),
        (general(4, 4), RANDOM.standard_normal((4, 2))),
    ),
    "upper, transposed": (
        lambda a, b: weighed(az.linalg.solve_triangular(a, b, trans=1)),
        (general(4, 4), RANDOM.standard_normal(4)),
    ),
    "cho_solve": (
        lambda a, b: weighed(az.linalg.cho_solve((az.linalg.cholesky(a + a.T), True), b)),
        (positive(3, 3), RANDOM.standard_normal(3)),
    ),
    "lu": (lambda a: weighed(az.linalg.lu(a).l) + weighed(az.linalg.lu(a).u), (general(4, 4),)),
    "lu, tall": (lambda a: weighed(az.linalg.lu(a).l) + weighed(az.linalg.lu(a).u), (general(5, 3),)),
    "lu, wide": (lambda a: weighed(az.linalg.lu(a).l) + weighed(az.linalg.lu(a).u), (general(2, 3, 5),)),
    "lu_solve": (
        lambda a, b: weighed(az.linalg.lu_solve(az.linalg.lu_factor(a), b, trans=1)),
        (general(4, 4), RANDOM.standard_normal(4)),
    ),
    "solve, positive": (
        lambda a, b: weighed(az.linalg.solve(a + a.T, b, assume_a="pos")),
        (positive(4, 4), RANDOM.standard_normal(4)),
    ),
    "unit": (
        lambda a, b: weighed(az.linalg.solve_triangular(a, b, lower=True, unit_diagonal=True)),
        (general(4, 4), RANDOM.standard_normal(4)),
    ),
    "lstsq, tall": (lambda a, b: squares(a, b), (general(5, 3), RANDOM.standard_normal(5))),
    "lstsq, wide": (lambda a, b: squares(a, b), (general(3, 5), RANDOM.standard_normal(3))),
    "inv": (lambda a: weighed(az.linalg.inv(a)), (general(4, 4),)),
    "pinv, tall": (lambda a: weighed(az.linalg.pinv(a)), (general(5, 3),)),
    "pinv, wide": (lambda a: weighed(az.linalg.pinv(a)), (general(3, 5),)),
    "det": (lambda a: weighed(az.linalg.det(a)), (general(2, 3, 3),)),
    "slogdet": (lambda a: weighed(az.linalg.slogdet(a).logabsdet), (general(2, 3, 3),)),
    "qr": (lambda a: weighed(az.linalg.qr(a).Q) + weighed(az.linalg.qr(a).R), (general(4, 4),)),
    "qr, tall": (lambda a: weighed(az.linalg.qr(a).Q) + weighed(az.linalg.qr(a).R), (general(5, 3),)),
    "qr, wide": (lambda a: weighed(az.linalg.qr(a).Q) + weighed(az.linalg.qr(a).R), (general(3, 5),)),
    "eigh": (lambda a: eigen(a), (symmetric(general(4, 4)),)),
    "svd": (lambda a: singular(a), (general(4, 4),)),
    "svd, tall": (lambda a: singular(a), (general(5, 3),)),
    "svd, wide": (lambda a: singular(a), (general(3, 5),)),
    "expm": (lambda a: weighed(az.linalg.expm(a)), (general(3, 3) / 2,)),
    "matrix_power": (lambda a: weighed(az.linalg.matrix_power(a, -3)), (general(3, 3),)),
    "norms": (lambda a: az.linalg.norm(a) + az.linalg.norm(a, "nuc") + az.linalg.norm(a, 2), (general(4, 3),)),
}


def squares(a: Any, b: Any) -> Any:
    x, residuals, _, values = az.linalg.lstsq(a, b)
    return weighed(x) + weighed(residuals) + weighed(values)


def eigen(a: Any) -> Any:
    """Eigenvectors have no sign: their squares, and projections, do."""
    values, vectors = az.linalg.eigh(a + a.T)
    return weighed(values) + weighed(vectors**2) + weighed(vectors[:, :2] @ vectors[:, :2].T)


def singular(a: Any) -> Any:
    u, s, vh = az.linalg.svd(a)
    return weighed(s) + weighed(u**2) + weighed(vh**2) + weighed(u[:, :2] @ vh[:2])


def sometimes(names: Any, fast: set[str]) -> Any:
    """Over names, of which all but some are left to the long run and the sweep."""
    return pytest.mark.parametrize("name", sooner(names, lambda name: name in fast, 2))


@pytest.mark.rest
@sometimes(SCALARS, {"cholesky", "solve", "slogdet", "qr, wide", "eigh"})
def test_derivatives_are_those_of_differences(name: str) -> None:
    call, arguments = SCALARS[name]
    program = az.program((lambda a: call(a)) if len(arguments) == 1 else (lambda a, b: call(a, b)))
    run, directions = az.compile(program), [RANDOM.standard_normal(x.shape) for x in arguments]
    ahead = run(*[x + STEP * d for x, d in zip(arguments, directions, strict=True)])
    behind = run(*[x - STEP * d for x, d in zip(arguments, directions, strict=True)])
    slope = (ahead - behind) / (2 * STEP)
    numbers = tuple(range(len(arguments)))
    gradients = az.compile(az.grad(program, numbers))(*arguments)
    assert np.isclose(
        sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True)), slope, rtol=2e-6, atol=1e-7
    )
    assert np.isclose(az.compile(az.jvp(program))(*arguments, *directions)[1], slope, rtol=2e-6, atol=1e-7)


@pytest.mark.rest
@sometimes(
    [
        *(
            "solve",
            "cholesky",
            "slogdet",
            "det",
            "inv",
            "eigh",
            "svd, tall",
            "qr, tall",
            "expm",
            "lower",
            "lu",
            "lu, tall",
        ),
        *("lu, wide", "lu_solve", "solve, positive", "pinv, tall", "lstsq, tall", "unit"),
    ],
    {"solve", "slogdet"},
)
def test_second_derivatives(name: str) -> None:
    call, arguments = SCALARS[name]
    program = az.program((lambda a: call(a)) if len(arguments) == 1 else (lambda a, b: call(a, b)))
    first, direction = az.compile(az.grad(program)), RANDOM.standard_normal(arguments[0].shape)
    ahead, behind = (first(arguments[0] + way * STEP * direction, *arguments[1:]) for way in (1, -1))
    found = az.compile(az.hvp(program))(*arguments, direction)
    np.testing.assert_allclose(found, (ahead - behind) / (2 * STEP), rtol=2e-5, atol=2e-6)


def test_a_batch_by_map_is_one_by_stacks() -> None:
    stacks, columns = general(6, 3, 3), RANDOM.standard_normal((6, 3))
    one = az.compile(lambda a, b: az.map(lambda a, b: az.linalg.solve(a, b), a, b))(stacks, columns)
    np.testing.assert_allclose(one, np.linalg.solve(stacks, columns[..., None])[..., 0], rtol=1e-12)
    np.testing.assert_allclose(az.compile(az.vmap(az.linalg.det))(stacks), np.linalg.det(stacks), rtol=1e-12)


@pytest.mark.rest
def test_the_likelihood_of_a_gaussian_process() -> None:
    """What people write: by a factor, by slogdet and solve, and by hand."""
    x, y = np.sort(RANDOM.uniform(0, 5, 30)), RANDOM.standard_normal(30)

    def kernel(x: Any, scale: Any) -> Any:
        return az.exp(-(((x[:, None] - x[None, :]) / scale) ** 2) / 2) + 0.1 * az.eye(az.size(x))

    @az.program
    def by_factor(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"], scale: az.f64) -> az.f64:
        factor = az.linalg.cholesky(kernel(x, scale))
        w = az.linalg.solve_triangular(factor, y, lower=True)
        return az.sum(w * w) / 2 + az.sum(az.log(az.diagonal(factor)))

    @az.program
    def by_determinant(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"], scale: az.f64) -> az.f64:
        k = kernel(x, scale)
        return y @ az.linalg.solve(k, y) / 2 + az.linalg.slogdet(k).logabsdet / 2

    first = az.compile(az.value_and_grad(by_factor, (0, 2)))(x, y, 1.3)
    second = az.compile(az.value_and_grad(by_determinant, (0, 2)))(x, y, 1.3)
    close(first[0], second[0], 1e-9)
    close(first[1], second[1], 1e-7)


# What is wrong

WRONG: list[tuple[Callable[..., Any], tuple[Any, ...], type[Exception], str]] = [
    (lambda a: az.linalg.inv(a), (np.ones(3),), TypeError, "inv takes a matrix or a stack"),
    (lambda a: az.linalg.det(a), (np.ones((2, 3)),), Exception, "det of what is not square"),
    (lambda a, b: az.linalg.solve(a, b), (np.eye(3), np.ones(2)), Exception, "solve: .*3.*2"),
    (lambda a: az.linalg.solve(a, 1.0), (np.eye(3),), TypeError, "solve for a vector or for matrices"),
    (lambda a: az.linalg.solve_triangular(a, a, "C"), (np.eye(3),), ValueError, "trans is 0, 1, 'N' or 'T', not 'C'"),
    (lambda a: az.linalg.solve(a, a, assume_a="sym"), (np.eye(3),), ValueError, "assume_a is 'gen' or 'pos'"),
    (lambda a: az.linalg.lu_solve((a, a), a), (np.eye(3),), TypeError, "integers piv"),
    (lambda a: az.linalg.lu_solve(az.linalg.lu_factor(a), a, 2), (np.eye(3),), ValueError, "trans is 0 or 1, not 2"),
    (lambda a: az.linalg.lstsq(a, a[0, 0]), (np.eye(3),), TypeError, "lstsq of a matrix and of a vector"),
    (lambda a: az.linalg.norm(a, "spectral"), (np.eye(3),), ValueError, "norm: matrices have none of order 'spectral'"),
    (lambda a: az.linalg.norm(a, "fro"), (np.ones(3),), ValueError, "norm: vectors have none of order 'fro'"),
    (lambda a: az.linalg.norm(a, axis=(0, 0)), (np.eye(3),), ValueError, "two different ones"),
    (lambda a: az.linalg.matrix_power(a, 0.5), (np.eye(3),), TypeError, "the power is a Python integer, not 0.5"),
    (lambda a: az.linalg.cross(a, a), (np.ones(2),), TypeError, "cross of vectors of three numbers"),
    (lambda a: az.linalg.kron(a, a), (np.ones(2),), TypeError, "kron of two matrices"),
    (lambda a: az.linalg.multi_dot([a]), (np.eye(2),), ValueError, "at least two arrays"),
    (lambda a: az.linalg.tensordot(a, a, 3), (np.eye(2),), ValueError, "no axes of"),
]


@pytest.mark.parametrize("wrong", WRONG, ids=[match for *_, match in WRONG])
def test_wrong_operands(wrong: tuple[Callable[..., Any], tuple[Any, ...], type[Exception], str]) -> None:
    call, arguments, error, match = wrong
    program = az.program((lambda a: call(a)) if len(arguments) == 1 else (lambda a, b: call(a, b)))
    with pytest.raises(error, match=rf"(?s){match}.*test_linalg.py:\d+"):
        az.compile(program)(*arguments)


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_what_has_no_factor(run: Callable[..., Any]) -> None:
    for call, matrix in [
        (lambda a: az.linalg.cholesky(a), -np.eye(2)),
        (lambda a: az.linalg.solve(a, a), np.zeros((2, 2))),
        (lambda a: az.linalg.inv(a), np.ones((3, 2, 2))),
        (lambda a: az.linalg.solve_triangular(a, a), np.zeros((2, 2))),
    ]:
        with pytest.raises(np.linalg.LinAlgError):
            run(az.program(call))(matrix)
