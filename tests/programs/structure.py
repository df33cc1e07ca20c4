"""Constants, structured values, sharing, and programs inside programs."""

from typing import Any

import numpy as np

import adze as az

from .case import Vector, X, case, numbers
from .elementwise import scalars
from .reductions import total

# Constants, structure, sharing

TABLE = numbers(4, seed=7)


@case(lambda x: x * TABLE + np.arange(4), (numbers(4),))
def captured(x: az.Array[az.f64, 4]) -> az.Array[az.f64, 4]:
    return TABLE * x + np.arange(4)


@case(lambda x: TABLE[x], (np.array([3, 1]),))
def captured_table(x: az.Array[az.i64, "n"]) -> Vector:
    return az.map(lambda i: az.generate(4, lambda j: TABLE[2] * 0 + 1.0)[0] * _table()[i], x)


def _table() -> Any:
    return az.where(np.array([True] * 4), TABLE, 0.0)


@case(lambda x: {"a": x, "b": [x, (x + 1, x)]}, (1.5,))
def structure(x: az.f64) -> Any:
    return {"a": x, "b": [x, (x + 1, x)]}


@case(lambda x, y: (x + y) ** 2 / (x + y), (1.5, 2.0))
def sharing(x: az.f64, y: az.f64) -> az.f64:
    return (x + y) * (x + y) / (y + x)


@case(lambda p, c: ((p[:, None] - c) ** 2).sum(-1).min(-1).sum(), (numbers(6, 2), numbers(3, 2, seed=4)))
def kmeans(p: az.Array[az.f64, "n d"], c: az.Array[az.f64, "k d"]) -> az.f64:
    return az.sum(az.map(lambda q: az.min(az.map(lambda r: az.sum((q - r) ** 2), c)), p))


@case(lambda x: np.sum(np.tanh(x) ** 2) + 1, (X,))
def inlined(x: Vector) -> az.f64:
    return total(az.tanh(x) ** 2) + scalars(0.0, -4.0)
