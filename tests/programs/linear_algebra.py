"""A linear algebra library of the smallest language: arrays are built and read, loops carry a state, nothing else.

Shaikhha et al. write it in F~ (section 3.2, figure 4) with ``build``, ``get``, ``length`` and ``ifold``. Here these
four are ``az.generate``, indexing, ``az.size`` and ``az.fori_loop``; every function below is made of them alone.
Names are the paper's, in Python's spelling; ``vector_slice`` includes its end.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import adze as az

from .case import NONE, A, Vector, X, Y, case, numbers

Function = Callable[..., Any]

build, length = az.generate, az.size


def ifold(f: Function, initial: Any, n: Any) -> Any:
    """``f(f(initial, 0), 1)`` and so on: n steps."""
    return az.fori_loop(0, n, lambda i, state: f(state, i), initial)


def vector_range(n: Any) -> Any:
    return build(n, lambda i: i)


def vector_fill(n: Any, e: Any) -> Any:
    return build(n, lambda i: e)


def vector_zeros(n: Any) -> Any:
    return vector_fill(n, 0.0)


def vector_hot(n: Any, i: Any) -> Any:
    return build(n, lambda j: az.cond(i == j, lambda: 1.0, lambda: 0.0))


def vector_map(v: Any, f: Function) -> Any:
    return build(length(v), lambda i: f(v[i]))


def vector_map2(v: Any, w: Any, f: Function) -> Any:
    return build(length(v), lambda i: f(v[i], w[i]))


def vector_zip(v: Any, w: Any) -> Any:
    return vector_map2(v, w, lambda a, b: (a, b))


def vector_add(v: Any, w: Any) -> Any:
    return vector_map2(v, w, lambda a, b: a + b)


def vector_sub(v: Any, w: Any) -> Any:
    return vector_map2(v, w, lambda a, b: a - b)


def vector_emul(v: Any, w: Any) -> Any:
    return vector_map2(v, w, lambda a, b: a * b)


def vector_smul(v: Any, s: Any) -> Any:
    return vector_map(v, lambda a: a * s)


def vector_sum(v: Any) -> Any:
    return ifold(lambda s, i: s + v[i], 0.0, length(v))


def vector_dot(v: Any, w: Any) -> Any:
    return vector_sum(vector_emul(v, w))


def vector_norm(v: Any) -> Any:
    return az.sqrt(vector_dot(v, v))


def vector_slice(v: Any, start: Any, end: Any) -> Any:
    return build(end - start + 1, lambda i: v[i + start])


def vector_cross(v: Any, w: Any) -> Any:
    def component(i: Any) -> Any:
        j, k = (i + 1) % 3, (i + 2) % 3
        return v[j] * w[k] - v[k] * w[j]

    return build(3, component)


def vector_to_matrix(v: Any) -> Any:
    return build(1, lambda i: v)


def vector_out_prod(v: Any, w: Any) -> Any:
    return build(length(v), lambda i: build(length(w), lambda j: v[i] * w[j]))


def matrix_rows(m: Any) -> Any:
    return length(m)


def matrix_cols(m: Any) -> Any:
    return length(m, 1)


def matrix_fill(rows: Any, columns: Any, e: Any) -> Any:
    return build(rows, lambda i: vector_fill(columns, e))


def matrix_zeros(rows: Any, columns: Any) -> Any:
    return matrix_fill(rows, columns, 0.0)


def matrix_ones(rows: Any, columns: Any) -> Any:
    return matrix_fill(rows, columns, 1.0)


def matrix_eye(n: Any) -> Any:
    return build(n, lambda i: vector_hot(n, i))


def matrix_hot(rows: Any, columns: Any, r: Any, c: Any) -> Any:
    def element(i: Any, j: Any) -> Any:
        return az.cond((i == r) & (j == c), lambda: 1.0, lambda: 0.0)

    return build(rows, lambda i: build(columns, lambda j: element(i, j)))


def matrix_map(m: Any, f: Function) -> Any:
    return build(matrix_rows(m), lambda i: f(m[i]))


def matrix_map2(m: Any, n: Any, f: Function) -> Any:
    return build(matrix_rows(m), lambda i: f(m[i], n[i]))


def matrix_zip(m: Any, n: Any) -> Any:
    return matrix_map2(m, n, vector_zip)


def matrix_add(m: Any, n: Any) -> Any:
    return matrix_map2(m, n, vector_add)


def matrix_transpose(m: Any) -> Any:
    return build(matrix_cols(m), lambda i: build(matrix_rows(m), lambda j: m[j][i]))


def matrix_mul(m: Any, n: Any) -> Any:
    columns = matrix_transpose(n)
    return build(matrix_rows(m), lambda i: build(matrix_rows(columns), lambda j: vector_dot(m[i], columns[j])))


def matrix_trace(m: Any) -> Any:
    return ifold(lambda s, i: s + m[i][i], 0.0, matrix_rows(m))


S = numbers(3, 3, seed=2)


@case(
    lambda v, w, s: {
        "range": np.arange(len(v)),
        "fill": np.full(len(v), s),
        "zeros": np.zeros(len(v)),
        "map": v * v,
        "zip": (v, w),
        "add": v + w,
        "sub": v - w,
        "emul": v * w,
        "smul": v * s,
        "sum": v.sum(),
        "dot": v @ w,
        "norm": np.sqrt(v @ v),
        "to_matrix": v[None],
        "out_prod": np.outer(v, w),
    },
    (X, Y, 1.5),
    (NONE, NONE, 1.0),
    (numbers(1), numbers(1, seed=1), 2.0),
)
def vectors(v: Vector, w: Vector, s: az.f64) -> Any:
    return {
        "range": vector_range(length(v)),
        "fill": vector_fill(length(v), s),
        "zeros": vector_zeros(length(v)),
        "map": vector_map(v, lambda a: a * a),
        "zip": vector_zip(v, w),
        "add": vector_add(v, w),
        "sub": vector_sub(v, w),
        "emul": vector_emul(v, w),
        "smul": vector_smul(v, s),
        "sum": vector_sum(v),
        "dot": vector_dot(v, w),
        "norm": vector_norm(v),
        "to_matrix": vector_to_matrix(v),
        "out_prod": vector_out_prod(v, w),
    }


@case(
    lambda v, w: (np.cross(v[:3], w[:3]), v[1:4], np.eye(len(v))[2]),
    (X, Y),
)
def parts_of_vectors(v: Vector, w: Vector) -> Any:
    return vector_cross(vector_slice(v, 0, 2), vector_slice(w, 0, 2)), vector_slice(v, 1, 3), vector_hot(length(v), 2)


@case(
    lambda m, n: {
        "zeros": np.zeros(m.shape),
        "ones": np.ones(m.shape),
        "eye": np.eye(len(m)),
        "hot": np.eye(1, m.size, 3).reshape(m.shape) if m.size > 3 else np.zeros(m.shape),
        "map": 2 * m,
        "zip": (m, n),
        "add": m + n,
        "transpose": m.T,
        "mul": m @ n.T,
        "trace": np.trace(m @ n.T),
    },
    (A, numbers(3, 4, seed=5)),
    (numbers(0, 4), numbers(0, 4)),
    (numbers(1, 1), numbers(1, 1, seed=1)),
    (numbers(2, 0), numbers(2, 0)),
)
def matrices(m: az.Array[az.f64, "r c"], n: az.Array[az.f64, "r c"]) -> Any:
    product = matrix_mul(m, matrix_transpose(n))
    rows, columns = matrix_rows(m), matrix_cols(m)
    return {
        "zeros": matrix_zeros(rows, columns),
        "ones": matrix_ones(rows, columns),
        "eye": matrix_eye(rows),
        "hot": matrix_hot(rows, columns, 0, 3),
        "map": matrix_map(m, lambda row: vector_smul(row, 2.0)),
        "zip": matrix_zip(m, n),
        "add": matrix_add(m, n),
        "transpose": matrix_transpose(m),
        "mul": product,
        "trace": matrix_trace(product),
    }


@case(lambda m, v: (np.linalg.norm(m.T @ m @ v), np.trace(m @ m)), (S, numbers(3)), (numbers(1, 1), numbers(1)))
def combined(m: az.Array[az.f64, "n n"], v: Vector) -> Any:
    """A column matrix times a vector, and the trace of a product."""
    column = matrix_transpose(vector_to_matrix(v))
    image = matrix_mul(matrix_mul(matrix_transpose(m), m), column)
    return vector_norm(matrix_transpose(image)[0]), matrix_trace(matrix_mul(m, m))
