"""Choices and loops."""

from typing import Any

import numpy as np

import adze as az

from .case import NONE, A, Matrix, Vector, X, Y, case, numbers

# Choice


@case(lambda x: np.where(x > 0, np.sqrt(np.abs(x)), 0.0), (X,), (NONE,))
def where_sqrt(x: Vector) -> Vector:
    return az.where(x > 0, az.sqrt(abs(x)), 0.0)


@case(lambda x, s: x * 2 if s > 0 else x - 1, (X, 1.0), (X, -1.0))
def cond_arrays(x: Vector, s: az.f64) -> Vector:
    return az.cond(s > 0, lambda: x * 2, lambda: x - 1)


@case(lambda x: (x * x, 1) if x > 1 else (-x, 2), (2.0,), (0.5,))
def cond_structure(x: az.f64) -> Any:
    return az.cond(x > 1, lambda: (x * x, 1), lambda: (-x, 2))


@case(lambda x: np.array([v if v > 0 else 2 * v if v > -2 else 0 for v in x]), (X,))
def cond_in_map(x: Vector) -> Vector:
    return az.map(lambda v: az.cond(v > 0, lambda: v, lambda: az.cond(v > -2, lambda: 2 * v, lambda: 0.0)), x)


@case(lambda a, x: np.where(a > x, a, x), (A, numbers(4, seed=2)))
def where_broadcast(a: Matrix, x: az.Array[az.f64, "m"]) -> Matrix:
    return az.where(a > x, a, x)


# Branches of different sizes: the result's is known before the run only if simplifying decides the test


@case(lambda x: x[:2], (X,), (X[:1],), (NONE,))
def cond_on_a_size(x: Vector) -> Any:
    return az.cond(x.shape[0] >= 0, lambda: x[:2], lambda: x[1:])


@case(lambda x, y: (y[1:], x, x[:3]), (X, Y), (X[:1], Y), (NONE, NONE))
def cond_decided(x: Vector, y: az.Array[az.f64, "m"]) -> Any:
    y = az.cond(False, lambda: x, lambda: y[1:])
    return y, *az.cond(y.shape[0] == y.shape[0], lambda: (x, x[:3]), lambda: (y, x))


@case(lambda x, z: {"x": x[1:], "z": z}, (X, 1.0), (NONE, np.inf))
def cond_on_no_nan(x: Vector, z: az.f64) -> Any:
    return {"x": az.cond((z == z) | True, lambda: x[1:], lambda: x[:1]), "z": z}


@case(lambda x, z: x[: len(x) // 2], (X[:4], 1.0), (X[:4], -1.0), (X[:2], np.nan))
def cond_sizes_that_agree(x: Vector, z: az.f64) -> Any:
    return az.cond(z > 0, lambda: x[: x.shape[0] // 2], lambda: x[: (x.shape[0] + 1) // 2])


# Loops


@case(lambda x: x**5, (1.5,))
def power_loop(x: az.f64) -> az.f64:
    return az.fori_loop(0, 5, lambda i, p: p * x, 1.0)


@case(lambda n: _fibonacci(n), (10,), (0,), (-3,))
def fibonacci(n: az.i64) -> az.i64:
    return az.fori_loop(0, n, lambda i, s: (s[1], s[0] + s[1]), (0, 1))[0]


def _fibonacci(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


@case(lambda x, n: {"x": x * 2.0 ** max(n - 2, 0), "count": n * (n - 1) // 2 - 1 if n > 2 else 0}, (X, 5), (X, 1))
def loop_dictionary(x: Vector, n: az.i64) -> Any:
    def body(i: Any, s: Any) -> Any:
        return {"x": s["x"] * 2, "count": s["count"] + i}

    return az.fori_loop(2, n, body, {"x": x, "count": 0})


@case(lambda a, x: np.linalg.matrix_power(a, 3) @ x, (numbers(3, 3), numbers(3)))
def matrix_power_loop(a: az.Array[az.f64, "n n"], x: Vector) -> Vector:
    return az.fori_loop(0, 3, lambda i, v: a @ v, x)


@case(lambda x: np.array([v**3 for v in x]), (X,), (NONE,))
def loop_in_map(x: Vector) -> Vector:
    return az.map(lambda v: az.fori_loop(0, 3, lambda i, p: p * v, 1.0), x)


@case(lambda x: np.array([(x[:i] * x[:i]).sum() for i in range(len(x))]), (X,), (NONE,))
def prefix_sums(x: Vector) -> Vector:
    """An inner extent that depends on the outer index."""
    return az.generate(x.shape[0], lambda i: az.sum(az.generate(i, lambda j: x[j] * x[j])))


@case(lambda x: _horner(x), (X,), (NONE,))
def horner(x: Vector) -> az.f64:
    return az.fori_loop(0, x.shape[0], lambda i, s: s * 0.5 + x[i], 0.0)


def _horner(x: Any) -> Any:
    s = 0.0
    for v in x:
        s = s * 0.5 + v
    return s
