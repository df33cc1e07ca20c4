"""Blocked factorisations: values, and the same bits on any number of threads; the team that runs their tasks."""

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.linalg import lapack

import adze as az
from adze.core.foreign import surroundings
from adze.library.linalg import blocked
from adze.library.linalg.one_thread import on_one_thread
from adze.library.linalg.routines import run
from adze.library.linalg.team import Team

PANEL, BLOCK = blocked.PANEL, blocked.BLOCK
Array = np.ndarray[Any, Any]
threads_of = az.operation("threads_of", numpy=lambda x: np.int64(surroundings.threads), result=az.i64)


def reflected(a: az.Array[az.f64, "m n"]) -> Any:
    return az.linalg.qr(a)


def general(rows: int, columns: int, dtype: Any = np.float64) -> Array:
    return np.random.default_rng(rows * columns).standard_normal((rows, columns)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (PANEL - 1, PANEL - 1), (PANEL, PANEL), (PANEL + 1, PANEL + 1), (PANEL + BLOCK + 1, PANEL + BLOCK + 1),
        (2 * PANEL + 3, PANEL + 2), (PANEL + 2, 2 * PANEL + BLOCK + 3), (1, 600), (600, 1), (0, 3), (3, 0),
        (BLOCK, BLOCK), (2 * BLOCK, BLOCK + 1), (0, BLOCK + 1),
    ],
)  # fmt: skip
def test_orthogonal_factors(rows: int, columns: int, dtype: Any) -> None:
    a = general(rows, columns, dtype)
    q, r = az.evaluate(lambda a: az.linalg.qr(a))(a)
    assert q.dtype == r.dtype == dtype
    assert (r == np.triu(r)).all()
    small = 50 * np.finfo(dtype).eps
    np.testing.assert_allclose(q.T @ q, np.eye(min(rows, columns)), atol=10 * small)
    np.testing.assert_allclose(q @ r, a, atol=50 * small)
    expected = np.linalg.qr(a.astype(np.float64)).R  # LAPACK's signs, too
    np.testing.assert_allclose(r, expected, atol=50 * small * max(rows, columns, 1) ** 0.5)


@pytest.mark.parametrize("n", [PANEL + 1, BLOCK + 1])
def test_factors_of_what_has_no_full_rank_and_of_nan(n: int) -> None:
    q, r = az.evaluate(reflected)(np.zeros((n, n)))
    assert (q == np.eye(n)).all() and not r.any()
    a = np.tile(general(n, 1), (1, n))
    q, r = az.evaluate(reflected)(a)
    np.testing.assert_allclose(q.T @ q, np.eye(n), atol=1e-13)
    np.testing.assert_allclose(q @ r, a, atol=1e-12)
    a = general(n, n)
    a[3, 5] = np.nan
    q, r = az.evaluate(reflected)(a)
    assert np.isfinite(r[:5, :5]).all() and np.isnan(r[5:, 6:].diagonal()).all() and np.isnan(q).any()


def test_a_matrix_of_one_block_takes_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[str]()

    def counted(name: str, *arguments: Any) -> int:
        called.append(name)
        return run(name, *arguments)

    monkeypatch.setattr(blocked, "run", counted)
    factors(general(BLOCK, BLOCK), 1)
    assert called == ["geqrf", "orgqr"]
    factors(general(3, BLOCK + 1), 1)
    assert called[2:] == ["geqrt3", "larfb", "larfb"]  # the columns on the right of the panel are one block


def in_child(check: Callable[[], None]) -> int:
    """How a forked child ends, which checks something."""
    child = os.fork()
    if not child:
        try:
            check()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def factors(a: Array, threads: int) -> list[Array]:
    least, (rows, columns) = min(a.shape), a.shape
    turned = [np.empty((least, rows), a.dtype), np.empty((columns, least), a.dtype)]
    surroundings.threads = threads
    on_one_thread(blocked.qr)(np.ascontiguousarray(a.T), *turned)
    surroundings.threads = 1
    return [each.T for each in turned]


def same(found: Any, expected: Any) -> bool:
    return all((each == wanted).all() for each, wanted in zip(found, expected, strict=True))


def test_bits_do_not_depend_on_threads() -> None:
    a = general(2 * BLOCK + 8, 2 * BLOCK + 8)
    expected = factors(a, 1)
    assert same(factors(a, 2), expected) and same(factors(a, 3), expected)
    compiled = az.compile(lambda a, x: (az.linalg.qr(a), az.map(lambda a: az.linalg.qr(a), x)), threads=2)

    def holds() -> None:
        alone, mapped = compiled(a, np.stack([a, a]))
        assert all(same(found, expected) for found in (alone, [x[0] for x in mapped], [x[1] for x in mapped]))

    holds()
    assert in_child(holds) == 0


def lu_factor(a: Array) -> tuple[Array, Array]:
    """LAPACK's own factors."""
    packed, pivots, _ = on_one_thread(lapack.dgetrf if a.dtype == np.float64 else lapack.sgetrf)(a)
    return packed, pivots


def eliminated(a: Array, threads: int) -> tuple[Array, Array]:
    packed, pivots = np.empty(a.shape[::-1], a.dtype), np.empty(min(a.shape), np.intc)
    surroundings.threads = threads
    on_one_thread(blocked.lu)(a, packed, pivots)
    surroundings.threads = 1
    return packed.T, pivots - 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (0, 0), (0, 3), (3, 0), (1, 1), (2, 2), (33, 33), (511, 511), (600, 600), (1000, 1000), (700, 300), (1300, 720),
        (720, 1300), (90, 4000),
    ],
)  # fmt: skip
def test_factors_of_an_elimination(rows: int, columns: int, dtype: Any) -> None:
    a = general(rows, columns, dtype)
    (packed, pivots), (again, others), three = [eliminated(a, threads) for threads in (1, 2, 3)]
    assert same([again, others], [packed, pivots]) and same(three, [packed, pivots])
    if a.size:
        expected, exchanged = lu_factor(a)
        assert (pivots == exchanged).all()
        np.testing.assert_allclose(packed, expected, atol=2e4 * np.finfo(dtype).eps * max(rows, columns))
    turned, exchanged = az.evaluate(lambda a: az.linalg.lu_factor(a.T))(a.T)  # is there column by column
    assert same([turned, exchanged], [packed, pivots])


def test_matrices_of_a_stack_are_eliminated_as_alone() -> None:
    stack = np.stack([general(900, 900), general(900, 900)[::-1]])
    packed, pivots = az.compile(lambda a: az.linalg.lu_factor(a), threads=2)(stack)
    assert all(same((packed[k], pivots[k]), eliminated(np.ascontiguousarray(stack[k]), 1)) for k in range(2))


@pytest.mark.parametrize("column", [0, 400, 999])
def test_elimination_of_what_is_singular_and_of_nan(column: int) -> None:
    a = general(1000, 1000)
    a[:, column] = 0
    (packed, pivots), (expected, exchanged) = eliminated(a, 2), lu_factor(a)
    assert (pivots == exchanged).all()
    assert np.flatnonzero(packed.diagonal() == 0).tolist() == [column] == np.flatnonzero(expected.diagonal() == 0)
    np.testing.assert_allclose(packed, expected, atol=1e-9)
    with pytest.raises(np.linalg.LinAlgError, match="solve: singular matrix"):
        az.evaluate(lambda a: az.linalg.solve(a, a[0]))(a)
    a[column, column] = np.nan
    (packed, pivots), (expected, exchanged) = eliminated(a, 2), lu_factor(a)
    assert (np.isnan(packed) == np.isnan(expected)).all() and (pivots == exchanged)[:column].all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [0, 1, 33, BLOCK + 1, 2 * BLOCK + 3])
def test_inverses_by_blocks(n: int, dtype: Any) -> None:
    a = general(n, n, dtype) + np.eye(n, dtype=dtype) * 2 * n**0.5
    packed, pivots = eliminated(a, 1)
    found = [np.empty((n, n), dtype) for _ in range(2)]
    for threads, inverted in enumerate(found, 1):
        surroundings.threads = threads
        on_one_thread(blocked.inverse)(np.ascontiguousarray(packed.T), pivots, inverted)
    surroundings.threads = 1
    assert same(*found)
    np.testing.assert_allclose(found[0].T @ a, np.eye(n), atol=100 * np.finfo(dtype).eps)


def positive(n: int, dtype: Any = np.float64) -> Array:
    a = general(n, n, dtype)
    return (a @ a.T + 2 * n * np.eye(n)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shared", [1, blocked.SHARED])  # by panels whatever the extents, and by LAPACK alone
@pytest.mark.parametrize("n", [0, 1, 2, blocked.NARROW - 1, blocked.NARROW + 1, 700, 2 * blocked.NARROW + BLOCK + 3])
def test_factors_of_positive_matrices(n: int, shared: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "SHARED", shared)
    a, found = positive(n, dtype), [np.full((n, n), np.nan, dtype) for _ in range(3)]
    given = a + np.triu(np.full_like(a, np.nan), 1)  # the half that is not looked at
    for threads, factor in enumerate(found, 1):
        surroundings.threads = threads
        on_one_thread(blocked.cholesky)(given, factor)
    surroundings.threads = 1
    assert same(found[1:], found[:1] * 2) and (np.triu(found[0], 1) == 0).all()
    expected = np.linalg.cholesky(a.astype(np.float64))
    np.testing.assert_allclose(found[0], expected, atol=20 * np.finfo(dtype).eps * max(n, 1))


@pytest.mark.parametrize("place", [0, 450, 999])
def test_a_large_matrix_without_a_factor_or_with_nan(place: int) -> None:
    a = positive(1000)
    factor = az.compile(lambda a: az.linalg.cholesky(a), threads=2)
    assert same([factor(a)], [az.evaluate(lambda a: az.linalg.cholesky(a))(a)])
    for wrong in (-1.0, np.nan):
        a[place, place] = wrong
        with pytest.raises(np.linalg.LinAlgError, match=r"cholesky: the matrix is not positive definite, at .*test_bl"):
            factor(a)


def test_a_triangle_alone_is_that_of_both_factors() -> None:
    for rows, columns in [(BLOCK, BLOCK), (BLOCK + 70, BLOCK + 9), (BLOCK - 9, BLOCK + 70)]:
        a = general(rows, columns)
        (q, r), alone = factors(a, 2), np.empty((columns, min(rows, columns)))
        on_one_thread(blocked.qr)(np.ascontiguousarray(a.T), None, alone)
        assert same([alone.T], [r]) and q.any()


def test_a_call_says_how_many_threads_it_has() -> None:
    once, each = lambda x: threads_of(x), lambda x: az.map(threads_of, x)
    for threads in (1, 2, 3):
        assert az.compile(once, threads=threads)(1.0) == threads
    assert surroundings.threads == 1 == az.evaluate(once)(1.0)
    assert set(az.compile(each, threads=2)(np.arange(9.0)).tolist()) <= {1, 2}
    assert (az.compile(each, threads=1)(np.arange(9.0)) == 1).all()


def test_a_call_inside_of_another_has_its_own() -> None:
    inner = az.compile(lambda x: threads_of(x), threads=3)
    found = list[int]()

    def outer(x: Any) -> Any:
        found.extend([surroundings.threads, int(inner(x)), surroundings.threads])
        return x

    calls = az.operation("calls", numpy=outer, result=az.f64)
    az.compile(lambda x: calls(x), threads=2)(1.0)
    assert found == [2, 3, 2]


@pytest.fixture
def three() -> Any:
    surroundings.threads = 3
    yield
    surroundings.threads = 1


@pytest.mark.usefixtures("three")
def test_a_team_runs_tasks_side_by_side() -> None:
    meeting = threading.Barrier(3, timeout=60)
    with Team() as team:
        team.run([meeting.wait] * 3)
        team.run([])
        done = list[int]()
        team.run([lambda k=k: done.append(k) for k in range(20)])
    assert sorted(done) == list(range(20))
    assert not [each for each in threading.enumerate() if each.name.startswith("adze linalg")]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("here", [True, False])
def test_what_a_task_raises_reaches_the_caller(error: type[BaseException], here: bool) -> None:
    caller, meeting, ended = threading.current_thread(), threading.Barrier(2, timeout=60), list[bool]()

    def task() -> None:
        meeting.wait()
        if (threading.current_thread() is caller) == here:
            raise error
        ended.append(True)

    with pytest.raises(error), Team() as team:
        try:
            team.run([task, task])
        finally:
            assert ended == [True]  # no task is under way
    assert not [each for each in threading.enumerate() if each.name.startswith("adze linalg")]


@pytest.mark.usefixtures("three")
def test_a_team_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the process none can be started."""

    def start(self: Any) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)
    done = list[int]()
    with Team() as team:
        team.run([lambda k=k: done.append(k) for k in range(5)])
    assert done == list(range(5))
