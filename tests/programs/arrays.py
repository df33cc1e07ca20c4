"""Arrays from indices and from other arrays."""

from typing import Any

import numpy as np

import adze as az

from .case import NONE, A, Matrix, Vector, X, Y, case, numbers

# map, generate, iota


@case(lambda a: (a**2).sum(1), (A,), (numbers(0, 3),), (numbers(3, 0),))
def row_norms(a: Matrix) -> Vector:
    return az.map(lambda row: az.sum(row * row), a)


@case(lambda x, y: {"sum": x + y, "pair": (x - y, x)}, (X, Y), (NONE, NONE))
def map_to_structure(x: Vector, y: Vector) -> Any:
    return az.map(lambda a, b: {"sum": a + b, "pair": (a - b, a)}, x, y)


@case(lambda a: 2 * a + 1, (A,), (numbers(0, 2),))
def map_rows(a: Matrix) -> Matrix:
    return az.map(lambda row: 2 * row + 1, a)


@case(lambda x, y: np.add.outer(x, y) * x[:, None], (X, numbers(3)), (NONE, X), (X, NONE))
def generate_two(x: Vector, y: az.Array[az.f64, "m"]) -> Matrix:
    return az.generate((x.shape[0], y.shape[0]), lambda i, j: (x[i] + y[j]) * x[i])


@case(lambda x: np.arange(len(x)) * x, (X,), (NONE,))
def iota_times(x: Vector) -> Vector:
    return az.iota(x.shape[0]) * x


@case(
    lambda x: np.concatenate([np.zeros(len(x)), np.ones(len(x)), np.full(3, 2.5)])[: len(x) + 1],
    (numbers(2),),
    (NONE,),
)
def filled(x: Vector) -> az.Array[az.f64, "n+1"]:
    n = x.shape[0]
    zero, one, rest = az.zeros(n), az.ones(n), az.full(3, 2.5)
    return az.generate(
        n + 1,
        lambda i: az.cond(
            i < n, lambda: zero[i], lambda: az.cond(i < 2 * n, lambda: one[i - n], lambda: rest[i - 2 * n])
        ),
    )


@case(lambda l: np.tril(np.ones((3, 3)) * l[:3], -1) + np.diag(np.exp(l[3:6])), (numbers(6),))
def triangle(l: az.Array[az.f64, 6]) -> az.Array[az.f64, "3 3"]:
    return az.generate(
        (3, 3),
        lambda i, j: az.cond(i == j, lambda: az.exp(l[i + 3]), lambda: az.cond(j < i, lambda: l[j], lambda: 0.0)),
    )


# Indexing and slicing


@case(lambda x: (x[1:], x[:-1], x[::2], x[::-1], x[-2:0:-2], x[1:4]), (X,), (numbers(6),), (numbers(1),))
def slices(x: Vector) -> Any:
    return x[1:], x[:-1], x[::2], x[::-1], x[-2:0:-2], x[1:4]


@case(lambda a: (a[1], a[:, 2], a[-1, 1:], a[..., 0], a[None, 1, ..., None], a[::2, ::-1]), (A,))
def matrix_slices(a: az.Array[az.f64, "3 m"]) -> Any:
    return a[1], a[:, 2], a[-1, 1:], a[..., 0], a[None, 1, ..., None], a[::2, ::-1]


@case(lambda x: x[0] * x[-1] + x[2], (X,))
def elements(x: az.Array[az.f64, 5]) -> az.f64:
    return x[0] * x[-1] + x[2]


@case(lambda x, i: x[i] * 2, (X, np.array([4, 0, 0, 2])), (X, np.array([], np.int64)))
def gather(x: Vector, i: az.Array[az.i64, "m"]) -> az.Array[az.f64, "m"]:
    return x[i] * 2


@case(lambda a, i, j: a[i, j] + a[i][:, 1], (A, np.array([2, 0, 1]), np.array([3, 3, 0])))
def gather_pairs(a: Matrix, i: az.Array[az.i64, "k"], j: az.Array[az.i64, "k"]) -> az.Array[az.f64, "k"]:
    pairs = az.map(lambda p, q: a[p, q], i, j)
    return pairs + a[i][:, 1]


@case(lambda x: x[1:] - x[:-1], (X,), (numbers(1),))
def differences(x: Vector) -> Any:
    return x[1:] - x[:-1]
