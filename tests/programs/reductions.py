"""Reductions."""

from typing import Any

import numpy as np

import adze as az

from .case import NONE, A, Matrix, Vector, X, Y, bools, case, numbers

# Reductions


@case(lambda x: x.sum(), (X,), (NONE,))
def total(x: Vector) -> az.f64:
    return az.sum(x)


@case(lambda a: (a.sum(), a.sum(0), a.sum(1), a.sum(-1)), (A,), (numbers(0, 3),), (numbers(3, 0),))
def sums(a: Matrix) -> Any:
    return az.sum(a), az.sum(a, 0), az.sum(a, 1), az.sum(a, -1)


@case(lambda x: x.prod(), (numbers(4),), (NONE,))
def product(x: Vector) -> az.f64:
    return az.prod(x)


@case(lambda a: (a.max(), a.min(0), a.max(1), a.mean(), a.mean(0)), (A,), (np.array([[np.nan, 1.0], [2.0, np.inf]]),))
def statistics(a: Matrix) -> Any:
    return az.max(a), az.min(a, 0), az.max(a, 1), az.mean(a), az.mean(a, 0)


@case(lambda x: (x.max(initial=-np.inf), x.min(initial=np.inf)), (X,), (NONE,))
def extremes_of_all(x: Vector) -> Any:
    return az.max(x), az.min(x)


@case(
    lambda i: (i.max(), i.min(), i.sum(), i.prod(), i.sum(dtype=i.dtype), i.prod(dtype=i.dtype)),
    (numbers(6, dtype=np.int32),),
    (np.array([2**31 - 1, 3, 7], np.int32),),
)
def integer_reductions(i: az.Array[az.i32, "n"]) -> Any:
    return az.max(i), az.min(i), az.sum(i), az.prod(i), az.sum(i, dtype=az.i32), az.prod(i, dtype=az.i32)


@case(lambda b: (b.any(), b.all(), b.sum()), (bools(5),), (np.ones(3, bool),), (np.ones(0, bool),))
def bool_reductions(b: az.Array[az.bool_, "n"]) -> Any:
    return az.any(b), az.all(b), az.sum(b)


def _logsumexp(x: Any, axis: Any = None) -> Any:
    with np.errstate(all="ignore"):
        top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0)
        return np.log(np.exp(x - top).sum(axis)) + np.squeeze(top, axis)


@case(
    lambda a: (_logsumexp(a), _logsumexp(a, 0), _logsumexp(a, 1)),
    (A,),
    (1000 * A,),
    (np.full((2, 2), -np.inf),),
    (np.array([[np.inf, 1.0], [0.0, -np.inf]]),),
    (numbers(2, 0),),
)
def log_sum_exp(a: Matrix) -> Any:
    return az.logsumexp(a), az.logsumexp(a, 0), az.logsumexp(a, 1)


@case(lambda x, y: x @ y, (X, Y), (NONE, NONE))
def dot(x: Vector, y: Vector) -> az.f64:
    return az.dot(x, y)


@case(
    lambda a, b, x, y: (a @ b, a @ x, y @ a),
    (A, numbers(4, 2), numbers(4), numbers(3)),
    (numbers(2, 0), numbers(0, 3), NONE, numbers(2)),
)
def products(a: Matrix, b: az.Array[az.f64, "m k"], x: az.Array[az.f64, "m"], y: az.Array[az.f64, "n"]) -> Any:
    return a @ b, a @ x, y @ a


def _argmax(x: Any) -> Any:
    return (x.max(), np.argmax(x)) if len(x) else (-np.inf, 2**62)


@case(_argmax, (X,), (np.array([1.0, 3.0, 3.0]),), (NONE,))
def largest_and_place(x: Vector) -> Any:
    def larger(a: Any, b: Any) -> Any:
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return az.where(first, a[0], b[0]), az.where(first, a[1], b[1])

    return az.reduce(larger, (-float("inf"), 2**62), (x, az.iota(x.shape[0])))


@case(lambda a: _affine(a), (A[:, :2],), (numbers(0, 2),))
def composed_affine(a: az.Array[az.f64, "n 2"]) -> Any:
    """Compositions of the maps x -> p x + q: an operator that does not commute."""
    return az.reduce(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), (1.0, 0.0), (a[:, 0], a[:, 1]))


def _affine(a: Any) -> Any:
    p, q = 1.0, 0.0
    for r, s in a:
        p, q = p * r, q * r + s
    return p, q


@case(lambda a: np.abs(a).max(0, initial=0), (A,), (numbers(0, 2),))
def reduce_columns(a: Matrix) -> az.Array[az.f64, "m"]:
    return az.reduce(lambda p, q: az.where(p > q, p, q), 0.0, abs(a), axis=0)
