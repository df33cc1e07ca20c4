"""Jacobians of programs as linear operators of SciPy, against those that are made."""

import inspect
from typing import Any

import numpy as np
import pytest
from sampling import some
from scipy.sparse.linalg import LinearOperator, aslinearoperator, lsqr

import adze as az


@az.program
def plain(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n-1"]:
    return x[1:] ** 2 * az.sin(x[:-1])


@az.program
def structured(p: {"a": az.Array[az.f64, "n m"], "k": az.i64, "b": az.f64}, y: az.Array[az.f64, "m"]):
    row = p["a"] @ y * p["b"]
    return {"count": az.size(row), "rows": row, "total": (az.sum(row) * p["k"], p["a"] * y)}


def dense(jacobian: Any, rows: int) -> Any:
    return np.concatenate([np.reshape(part, (rows, -1)) for part in jacobian], axis=1)


@pytest.mark.unguarded
def test_products() -> None:
    x = np.array([0.3, -1.0, 2.0, 0.5])
    operator, matrix = az.linear_operator(plain, x), az.jacobian(plain)(x)
    rng = np.random.default_rng(0)
    v, u, many, others = rng.random(4), rng.random(3), rng.random((4, 5)), rng.random((3, 1))
    assert isinstance(operator, LinearOperator) and operator.shape == (3, 4) and operator.dtype == np.float64
    np.testing.assert_allclose(operator @ v, matrix @ v)
    np.testing.assert_allclose(operator @ v[:, None], (matrix @ v)[:, None])
    np.testing.assert_allclose(operator.T @ u, matrix.T @ u)
    np.testing.assert_allclose(operator.H @ u, matrix.T @ u)
    np.testing.assert_allclose(operator @ many, matrix @ many)
    np.testing.assert_allclose(operator.T @ others, matrix.T @ others)
    np.testing.assert_allclose(operator.matmat(many[:, :1]), matrix @ many[:, :1])
    np.testing.assert_allclose((operator.T @ operator) @ v, matrix.T @ matrix @ v)
    assert operator.rmatmat(others).shape == (4, 1) and (operator @ many[:, :0]).shape == (3, 0)


@pytest.mark.unguarded
@pytest.mark.parametrize("argnums", some([(1, 0), 0, 1, (0, 1), "y"], 5))
def test_structures(argnums: Any) -> None:
    """Rows and columns are in the order of the leaves; integers have none."""
    rng = np.random.default_rng(1)
    a, y = rng.random((2, 3)), rng.random(3)
    operator = az.linear_operator(structured, {"a": a, "k": 3, "b": 0.5}, y, argnums=argnums)
    rows = 2 + 1 + 6

    def flat(v: Any) -> Any:
        w = np.concatenate([a.ravel(), [0.5], y]) if v is None else v
        row = w[:6].reshape(2, 3) @ w[7:] * w[6]
        return np.concatenate([row, [np.sum(row) * 3], np.ravel(w[:6].reshape(2, 3) * w[7:])])

    point = np.concatenate([a.ravel(), [0.5], y])
    step = 1e-6 * np.eye(10)
    matrix = np.stack([(flat(point + h) - flat(point - h)) / 2e-6 for h in step], axis=1)
    columns = {0: range(7), 1: range(7, 10), "y": range(7, 10)}
    chosen = [column for number in (argnums if isinstance(argnums, tuple) else [argnums]) for column in columns[number]]
    assert operator.shape == (rows, len(chosen))
    np.testing.assert_allclose(operator @ np.eye(len(chosen)), matrix[:, chosen], atol=1e-8)
    np.testing.assert_allclose(operator.T @ np.eye(rows), matrix[:, chosen].T, atol=1e-8)


def test_single_precision() -> None:
    @az.program
    def mixed(x: az.Array[az.f32, "n"], y: az.f64):
        return x * x, y * y

    x = np.array([1.0, 2.0], np.float32)
    assert az.linear_operator(lambda x: x * x, x).dtype == np.float32
    operator = az.linear_operator(mixed, x, 3.0, argnums=(0, 1))
    assert operator.dtype == np.float64 and operator.T.dtype == np.float64
    np.testing.assert_allclose(operator @ np.eye(3), np.diag([2.0, 4.0, 6.0]))


def test_the_point_is_copied() -> None:
    x = np.ones(3)
    operator = az.linear_operator(lambda x: x**2, x)
    x[:] = 7
    np.testing.assert_allclose(operator @ np.ones(3), 2 * np.ones(3))


def test_static_parameters_and_functions() -> None:
    @az.program
    def powers(x: az.Array[az.f64, "n"], times: int):
        return x**times

    np.testing.assert_allclose(az.linear_operator(powers, np.array([2.0]), 3) @ np.ones(1), [12.0])
    np.testing.assert_allclose(az.linear_operator(lambda x, a: a @ x, np.ones(2), np.eye(2)) @ [3.0, 4.0], [3.0, 4.0])


def test_with_solvers_and_sums() -> None:
    x = np.array([0.3, -1.0, 2.0])
    operator = az.linear_operator(lambda x: az.sin(x) + 2 * x, x) + aslinearoperator(np.eye(3))
    np.testing.assert_allclose(lsqr(operator, np.ones(3), atol=1e-14)[0], 1 / (np.cos(x) + 3))


WRONG = {
    "type": (lambda: az.linear_operator(plain, [1j, 2.0]), TypeError, "'x' is f64"),
    "argnums": (lambda: az.linear_operator(plain, np.ones(3), argnums=1), ValueError, "plain"),
    "missing": (lambda: az.linear_operator(plain), TypeError, "missing: x"),
    "integers": (lambda: az.linear_operator(lambda x: x, np.array([1])), TypeError, "no floating numbers in its arg"),
    "no result": (lambda: az.linear_operator(lambda x: az.argmax(x), np.ones(2)), TypeError, "numbers in its results"),
    "sizes": (lambda: az.linear_operator(lambda x: az.filter(lambda v: v > 0, x), np.ones(2)), ValueError,
              r"the run decides the size of a result of type f64.*, which a linear operator has to know"),
    "vector": (lambda: az.linear_operator(plain, np.ones(3)) @ np.ones(2), ValueError, "mismatch"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_input(wrong: str) -> None:
    call, error, message = WRONG[wrong]
    with pytest.raises(error, match=message) as raised:
        call()
    if wrong != "vector":
        line = inspect.getsourcelines(call)[1]
        assert any(f"(at {__file__}:{line + more})" in str(raised.value) for more in (0, 1))
