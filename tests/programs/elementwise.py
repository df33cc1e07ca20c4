"""Elementwise arithmetic, broadcasting, and the scalar types."""

from typing import Any

import numpy as np

import adze as az

from .case import NONE, A, Matrix, Vector, X, Y, bools, case, numbers, positive

# Elementwise arithmetic and broadcasting


@case(lambda x, y: x * y + 2 * x - y / 4, (1.5, -2.25))
def scalars(x: az.f64, y: az.f64) -> az.f64:
    return x * y + 2 * x - y / 4


@case(lambda x, y: (x + y) * x - 3, (X, Y), (NONE, NONE), (numbers(1), numbers(1, seed=3)))
def elementwise(x: Vector, y: Vector) -> Vector:
    return (x + y) * x - 3


@case(lambda a, x: a * x - x, (A, numbers(4)), (numbers(0, 2), numbers(2)), (numbers(2, 0), numbers(0)))
def broadcast_rows(a: Matrix, x: az.Array[az.f64, "m"]) -> Matrix:
    return a * x - x


@case(lambda x, y: x[:, None] + y[None, :], (X, numbers(3, seed=2)), (NONE, X))
def outer_sum(x: Vector, y: az.Array[az.f64, "m"]) -> Matrix:
    return x[:, None] + y[None, :]


@case(lambda a, row: a + row, (A, numbers(1, 4)))
def stretched(a: Matrix, row: az.Array[az.f64, "1 m"]) -> Matrix:
    return a + row


@case(lambda a, s: a * s + s, (A, 0.5))
def array_and_scalar(a: Matrix, s: az.f64) -> Matrix:
    return a * s + s


@case(lambda x: x**3 - x**-2 + x**0, (positive(5),))
def integer_powers(x: Vector) -> Vector:
    return x**3 - x**-2 + x**0


@case(lambda x, y: x**y + 2**x, (positive(5), Y))
def powers(x: Vector, y: Vector) -> Vector:
    return x**y + 2**x


@case(
    lambda x: np.exp(-x) + np.log(x) * np.sin(x) - np.cos(x) / np.sqrt(x) + np.tanh(x) + np.log1p(x) + np.expm1(x),
    (positive(5),),
)
def transcendental(x: Vector) -> Vector:
    return az.exp(-x) + az.log(x) * az.sin(x) - az.cos(x) / az.sqrt(x) + az.tanh(x) + az.log1p(x) + az.expm1(x)


@case(lambda x, y: np.minimum(x, y) + 2 * np.maximum(x, y) + np.abs(x) * np.sign(y), (X, Y))
def extremes(x: Vector, y: Vector) -> Vector:
    return az.minimum(x, y) + 2 * az.maximum(x, y) + abs(x) * az.sign(y)


@case(lambda x: np.array([0.0, 0.6931471805599453, 12.801827480081469]), (np.array([1.0, 3.0, 10.0]),))
def log_gamma(x: Vector) -> Vector:
    return az.lgamma(x)


# Scalar types


@case(
    lambda i, j: i * j - i // 3 + j % 5,
    (numbers(6, dtype=np.int32), numbers(6, seed=2, dtype=np.int32)),
    (np.array([2**31 - 1, -(2**31)], np.int32), np.array([2, 3], np.int32)),
)
def integers32(i: az.Array[az.i32, "n"], j: az.Array[az.i32, "n"]) -> az.Array[az.i32, "n"]:
    return i * j - i // 3 + j % 5


@case(lambda i, j: np.where(j == 0, 0, i // np.where(j == 0, 1, j)), (numbers(6, dtype=np.int64), np.arange(-3, 3)))
def guarded_division(i: az.Array[az.i64, "n"], j: az.Array[az.i64, "n"]) -> az.Array[az.i64, "n"]:
    return az.where(j == 0, 0, i // az.where(j == 0, 1, j))


@case(lambda x: np.float32(0.5) * x * x + x, (numbers(5, dtype=np.float32),))
def single(x: az.Array[az.f32, "n"]) -> az.Array[az.f32, "n"]:
    return 0.5 * x * x + x


@case(lambda x, i: x.astype(np.float64) * i, (numbers(5, dtype=np.float32), numbers(5, seed=1, dtype=np.int64)))
def mixed(x: az.Array[az.f32, "n"], i: az.Array[az.i64, "n"]) -> az.Array[az.f64, "n"]:
    return x * i


@case(lambda x: (x * 2.5).astype(np.int32), (X,))
def conversion(x: Vector) -> az.Array[az.i32, "n"]:
    return (x * 2.5).astype(az.i32)


@case(lambda a, b: (a & ~b) | (b & (a == b)), (bools(5), bools(5, seed=3)))
def logic(a: az.Array[az.bool_, "n"], b: az.Array[az.bool_, "n"]) -> az.Array[az.bool_, "n"]:
    return (a & ~b) | (b & (a == b))


@case(
    lambda x, y: np.array(
        [(x < y).sum(), (x <= y).sum(), (x > y).sum(), (x >= y).sum(), (x == y).sum(), (x != y).sum()]
    ),
    (X, Y),
    (np.array([0.0, -0.0, np.nan, np.inf]), np.array([-0.0, 0.0, np.nan, -np.inf])),
)
def comparisons(x: Vector, y: Vector) -> az.Array[az.i64, 6]:
    tests = [x < y, x <= y, x > y, x >= y, x == y, x != y]
    counts = [az.sum(test) for test in tests]
    return az.generate(6, lambda k: _choose(k, counts))


def _choose(k: az.Expr, values: list[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    return az.cond(k == 0, lambda: values[0], lambda: _choose(k - 1, values[1:]))
