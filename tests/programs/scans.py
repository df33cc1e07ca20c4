"""Scans, reductions by index, and reductions and scans with operators on structures and small arrays."""

from typing import Any

import numpy as np

import adze as az

from .case import NONE, A, Matrix, Vector, X, Y, case, numbers

ONE = numbers(1)
BINS = np.array([2, 0, 2, 5, -1, 1, 2])
VALUES = numbers(7, seed=2)
BIG = numbers(33)


@case(np.cumsum, (X,), (NONE,), (ONE,), (BIG,))
def running_sum(x: Vector) -> Vector:
    return az.cumsum(x)


@case(lambda x: (np.cumprod(x), np.maximum.accumulate(x), np.minimum.accumulate(x)), (X,), (NONE,), (ONE,))
def running_extremes(x: Vector) -> Any:
    product = az.scan(lambda a, b: a * b, 1.0, x)
    return product, az.scan(az.maximum, -np.inf, x), az.scan(az.minimum, np.inf, x)


def _exclusive(x: Any) -> Any:
    return np.concatenate([[0.0], np.cumsum(x)[:-1]]) if len(x) else x


@case(lambda x: (_exclusive(x), np.cumsum(x[::-1])[::-1], _exclusive(x[::-1])[::-1]), (X,), (NONE,), (ONE,), (BIG,))
def directions(x: Vector) -> Any:
    def add(a: Any, b: Any) -> Any:
        return a + b

    exclusive = az.scan(add, 0.0, x, exclusive=True)
    backwards = az.scan(add, 0.0, x, reverse=True)
    return exclusive, backwards, az.scan(add, 0.0, x, exclusive=True, reverse=True)


@case(lambda a: (np.cumsum(a, 0), np.cumsum(a, 1)), (A,), (numbers(0, 3),), (numbers(3, 0),), (numbers(1, 1),))
def scans_of_axes(a: Matrix) -> Any:
    return az.scan(lambda p, q: p + q, 0.0, a), az.scan(lambda p, q: p + q, 0.0, a, axis=1)


@case(lambda i: np.cumsum(i, dtype=i.dtype), (numbers(6, dtype=np.int32),), (np.array([2**31 - 1, 5], np.int32),))
def running_integers(i: az.Array[az.i32, "n"]) -> az.Array[az.i32, "n"]:
    return az.scan(lambda a, b: a + b, 0, i)


def _affine(slopes: Any, offsets: Any) -> Any:
    p, q, out = 1.0, 0.0, []
    for r, s in zip(slopes, offsets, strict=True):
        p, q = p * r, q * r + s
        out.append((p, q))
    return tuple(np.array(out).reshape(-1, 2).T)


def compose(f: Any, g: Any) -> Any:
    """First the affine map f, then g; maps are (slope, offset)."""
    return f[0] * g[0], f[1] * g[0] + g[1]


@case(lambda x, y: _affine(np.sign(x), y), (X, Y), (NONE, NONE), (ONE, ONE))
def linear_recurrence(x: Vector, y: Vector) -> Any:
    return az.scan(compose, (1.0, 0.0), (az.sign(x), y))


@case(lambda x, y: _affine(np.tanh(x), y), (X, Y), (NONE, NONE), (BIG, numbers(33, seed=1)))
def contracting_recurrence(x: Vector, y: Vector) -> Any:
    return az.scan(compose, (1.0, 0.0), (az.tanh(x), y))


def _products(m: Any) -> Any:
    out, total = [], np.eye(m.shape[1])
    for a in m:
        total = total @ a
        out.append(total)
    return np.array(out).reshape(m.shape), total


SMALL = numbers(5, 2, 2) / 2


@case(_products, (SMALL,), (numbers(0, 2, 2),), (SMALL[:1],))
def matrix_products(m: az.Array[az.f64, "n 2 2"]) -> Any:
    """An operator on small arrays, which does not commute."""
    eye = np.eye(2)
    return az.scan(lambda a, b: a @ b, eye, m), az.reduce(lambda a, b: a @ b, eye, m)


@case(lambda m: _products(m)[1], (numbers(3, 4, 4) / 4,), (numbers(0, 4, 4),), (numbers(7, 4, 4) / 8,))
def product_of_four_by_four(m: az.Array[az.f64, "n 4 4"]) -> az.Array[az.f64, "4 4"]:
    return az.reduce(lambda a, b: a @ b, np.eye(4), m)


def _by_bin(bins: Any, values: Any) -> Any:
    total, product, largest = np.zeros(4), np.ones(4), np.full(4, -np.inf)
    for k, v in zip(bins, values, strict=True):
        if 0 <= k < 4:
            total[k], product[k], largest[k] = total[k] + v, product[k] * v, max(largest[k], v)
    return total, product, largest


@case(_by_bin, (BINS, VALUES), (BINS[:0], NONE), (BINS[:1], ONE))
def histograms(bins: az.Array[az.i64, "n"], values: Vector) -> Any:
    """Sums, products and maxima by bin; out-of-range bins are ignored, empty ones have the neutral element."""
    total = az.histogram(lambda a, b: a + b, 0.0, 4, bins, values)
    product = az.histogram(lambda a, b: a * b, 1.0, 4, bins, values)
    return total, product, az.histogram(az.maximum, -np.inf, 4, bins, values)


def _affine_by_bin(bins: Any, slopes: Any, offsets: Any) -> Any:
    p, q = np.ones(3), np.zeros(3)
    for k, r, s in zip(bins, slopes, offsets, strict=True):
        if 0 <= k < 3:
            p[k], q[k] = p[k] * r, q[k] * r + s
    return p, q


@case(_affine_by_bin, (BINS, VALUES, numbers(7, seed=5)), (BINS[:0], NONE, NONE))
def histogram_of_maps(bins: az.Array[az.i64, "n"], slopes: Vector, offsets: Vector) -> Any:
    """By bin, in the order of the elements: an operator that does not commute."""
    return az.histogram(compose, (1.0, 0.0), 3, bins, (slopes, offsets))


def _rows_by_bin(bins: Any, rows: Any, m: int) -> Any:
    total = np.zeros((m, rows.shape[1]))
    np.add.at(total, bins, rows)
    return total


@case(_rows_by_bin, (np.array([1, 0, 1]), A, 3), (np.zeros(0, np.int64), numbers(0, 4), 2), (np.array([0, 0, 0]), A, 1))
def histogram_of_rows(bins: az.Array[az.i64, "n"], rows: Matrix, m: az.i64) -> Any:
    return az.histogram(lambda a, b: a + b, az.zeros(az.size(rows, 1)), m, bins, rows)


@case(
    lambda x: np.array([np.cumsum(x[: i + 1] * x[i])[-1] for i in range(len(x))]),
    (X,),
    (NONE,),
    (ONE,),
)
def scan_in_map(x: Vector) -> Vector:
    return az.generate(x.shape[0], lambda i: az.cumsum(x * x[i])[i])


@case(
    lambda a: np.array([[row[0::2].sum(), row[1::2].sum()] for row in a]).reshape(-1, 2),
    (A,),
    (numbers(0, 3),),
    (numbers(2, 0),),
)
def histogram_in_map(a: Matrix) -> az.Array[az.f64, "n 2"]:
    places = az.iota(az.size(a, 1)) % 2
    return az.map(lambda row: az.histogram(lambda p, q: p + q, 0.0, 2, places, row), a)


@case(lambda x: (np.argmax(x), np.argmin(x)), (X,), (np.array([1.0, 3.0, 3.0, 1.0]),), (ONE,))
def places_of_extremes(x: Vector) -> Any:
    return az.argmax(x), az.argmin(x)


@case(lambda a: (np.argmax(a, 0), np.argmin(a, 1)), (A,), (numbers(1, 1),))
def places_along_axes(a: Matrix) -> Any:
    return az.argmax(a, 0), az.argmin(a, 1)


@case(lambda x, s: np.cumsum(x * s) * s, (X, 1.5), (NONE, 2.0))
def scan_with_free_variable(x: Vector, s: az.f64) -> Vector:
    """The operator ``a + b`` through a division and a multiplication by what it captures."""
    return az.scan(lambda a, b: (a / s + b / s) * s, 0.0, x * s) * s
