"""Programs for every interpretation: small, named, each with its meaning in NumPy and inputs.

One body of programs serves all tests: evaluate, simplify, derivatives and compiled code must agree on each of them
with NumPy and with each other. Inputs are quarters of small integers, so that polynomial programs are exact.

    for case in CASES:
        for arguments in case.arguments:
            compare(az.evaluate(case.program)(*arguments), case.numpy(*arguments))
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import adze as az

Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """A program, the same function in NumPy, and the arguments of some calls."""

    name: str
    program: az.Program
    numpy: Callable[..., Any]
    arguments: tuple[Arguments, ...]


CASES: list[Case] = []


def case(numpy: Callable[..., Any], *arguments: Arguments) -> Callable[[Callable[..., Any]], az.Program]:
    """Make a case of a function: its meaning in NumPy, and the arguments of some calls."""

    def add(function: Callable[..., Any]) -> az.Program:
        program = az.program(function)
        CASES.append(Case(program.name, program, numpy, arguments))
        return program

    return add


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    """Distinct-looking quarters between -4 and 4; integers in that range for an integer type."""
    steps = (np.arange(int(np.prod(shape, dtype=int))) * 7 + 5 * seed + 3) % 33 - 16
    return (steps / 4 if np.dtype(dtype).kind == "f" else steps // 4).astype(dtype).reshape(shape)


def bools(*shape: int, seed: int = 0) -> Any:
    return numbers(*shape, seed=seed) > 0


def positive(*shape: int, seed: int = 0) -> Any:
    return np.abs(numbers(*shape, seed=seed)) + 0.25


X, Y = numbers(5), numbers(5, seed=1)
A, B = numbers(3, 4), numbers(3, 4, seed=1)
NONE = numbers(0)
Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n m"]

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


@case(lambda i: (i.max(), i.min(), i.sum(dtype=i.dtype), i.prod(dtype=i.dtype)), (numbers(6, dtype=np.int32),))
def integer_reductions(i: az.Array[az.i32, "n"]) -> Any:
    return az.max(i), az.min(i), az.sum(i), az.prod(i)


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
