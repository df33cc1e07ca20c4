"""Writing: updates and scatters, sorting, and loops whose state is written to."""

from typing import Any

import numpy as np

import adze as az

from .case import NONE, A, Matrix, Vector, X, Y, case, numbers

ONE = numbers(1)


def _updated(x: Any, place: Any, value: Any) -> Any:
    y = np.array(x)
    y[place] = value
    return y


@case(lambda x, i, v: (_updated(x, i, v), x), (X, 2, 9.0), (ONE, 0, 1.5))
def updated_element(x: Vector, i: az.i64, v: az.f64) -> Any:
    """The old array is still there."""
    return az.update(x, i, v), x


@case(lambda a, row: (_updated(a, 1, row), _updated(a, (slice(None), -1), 0.0)), (A, numbers(4, seed=3)))
def updated_slices(a: az.Array[az.f64, "3 m"], row: az.Array[az.f64, "m"]) -> Any:
    return az.update(a, 1, row), az.update(a, (slice(None), -1), 0.0)


@case(lambda x: _updated(_updated(x, slice(1, None, 2), 0.0), slice(0, 2), x[1:3]), (X,), (numbers(3),))
def updates_of_updates(x: Vector) -> Vector:
    """The second update reads what was there before the first."""
    return az.update(az.update(x, slice(1, None, 2), 0.0), slice(0, 2), x[1:3])


@case(lambda x: (_updated(x, 0, 1.0), _updated(x, 0, 2.0), x.sum()), (X,), (ONE,))
def two_updates_of_one(x: Vector) -> Any:
    y = x + 0.0
    return az.update(y, 0, 1.0), az.update(y, 0, 2.0), az.sum(y)


@case(lambda x, i, v: _updated(x, i, v), (X, np.array([3, 0]), numbers(2, seed=1)), (X, np.zeros(0, np.int64), NONE))
def scattered(x: Vector, i: az.Array[az.i64, "m"], v: az.Array[az.f64, "m"]) -> Vector:
    return az.scatter(x, i, v)


@case(lambda x, i, v: _updated(x, i, v), (X, np.array([3, 0, 3, 3]), numbers(4, seed=1)))
def scattered_twice(x: Vector, i: az.Array[az.i64, "m"], v: az.Array[az.f64, "m"]) -> Vector:
    """The last write to a place wins."""
    return az.scatter(x, i, v, unique=False)


@case(lambda a, i, rows: _updated(a, i, rows), (A, np.array([2, 0]), numbers(2, 4, seed=2)))
def scattered_rows(a: Matrix, i: az.Array[az.i64, "k"], rows: az.Array[az.f64, "k m"]) -> Matrix:
    return az.scatter(a, i, rows)


@case(lambda p: np.argsort(p), (np.array([2, 0, 3, 1]),), (np.array([0]),))
def inverse_permutation(p: az.Array[az.i64, "n"]) -> az.Array[az.i64, "n"]:
    return az.scatter(az.zeros(az.size(p), az.i64), p, az.iota(az.size(p)))


TIES = np.array([1.0, np.nan, -0.0, np.inf, 0.0, 1.0, -np.inf, np.nan, 0.0])


@case(lambda x: (np.argsort(x, kind="stable"), np.sort(x)), (X,), (NONE,), (ONE,), (TIES,), (numbers(300),))
def sorting(x: Vector) -> Any:
    return az.argsort(x), az.sort(x)


@case(lambda i: np.argsort(i, kind="stable"), (numbers(9, dtype=np.int32) // 2,), (np.zeros(3, np.int32),))
def sorting_integers(i: az.Array[az.i32, "n"]) -> az.Array[az.i64, "n"]:
    return az.argsort(i)


@case(lambda a: np.sort(a, axis=-1), (A,), (numbers(2, 0),), (numbers(0, 2),))
def sorting_rows(a: Matrix) -> Matrix:
    return az.map(lambda row: az.sort(row), a)


def _sieve(n: int) -> Any:
    prime = np.ones(n, bool)
    prime[:2] = False
    for p in range(2, n):
        prime[2 * p :: p] = False
    return prime


@case(_sieve, (30,), (2,), (3,))
def sieve(n: az.i64) -> Any:
    """An array state, written to in place: an inner loop that skips, as a while."""

    def cross(p: Any, prime: Any) -> Any:
        def strike(s: Any) -> Any:
            return s[0] + p, az.update(s[1], s[0], False)

        return az.while_loop(lambda s: s[0] < n, strike, (2 * p, prime))[1]

    start = az.generate(n, lambda i: i > 1)
    return az.fori_loop(2, n, cross, start)


@case(lambda x: np.cumsum(x) + 0, (X,), (NONE,), (ONE,))
def prefix_in_place(x: Vector) -> Vector:
    def step(i: Any, y: Any) -> Any:
        return az.update(y, i, y[i] + az.cond(i > 0, lambda: y[i - 1], lambda: 0.0))

    return az.fori_loop(0, az.size(x), step, x)


@case(lambda x, y: (y, x) if len(x) % 2 else (x, y), (X, Y), (numbers(2), numbers(2, seed=1)))
def swapped_states(x: Vector, y: Vector) -> Any:
    return az.fori_loop(0, az.size(x), lambda i, s: (s[1], s[0]), (x, y))


def _fibonacci_table(n: int) -> Any:
    table = np.zeros(n, np.int64)
    for i in range(n):
        table[i] = 1 if i < 2 else table[i - 1] + table[i - 2]
    return table


@case(_fibonacci_table, (10,), (1,), (0,))
def fibonacci_table(n: az.i64) -> Any:
    def step(i: Any, t: Any) -> Any:
        return az.update(t, i, az.cond(i < 2, lambda: 1, lambda: t[i - 1] + t[i - 2]))

    return az.fori_loop(0, n, step, az.zeros(n, az.i64))


def _heat(u: Any, steps: int) -> Any:
    for _ in range(steps):
        u = np.concatenate([u[:1], u[1:-1] + (u[:-2] - 2 * u[1:-1] + u[2:]) / 4, u[-1:]])
    return u


@case(_heat, (numbers(8), 4), (numbers(2), 1), (numbers(8), 0))
def heat(u: Vector, steps: az.i64) -> Vector:
    """Every cell of the new state reads its neighbours in the old one."""
    n = az.size(u)

    def cell(u: Any, i: Any) -> Any:
        return az.cond((i > 0) & (i < n - 1), lambda: u[i] + (u[i - 1] - 2 * u[i] + u[i + 1]) / 4, lambda: u[i])

    return az.fori_loop(0, steps, lambda _, u: az.generate(n, lambda i: cell(u, i)), u)


def _exponential(x: Any) -> Any:
    term, total, k = 1.0, 0.0, 0
    while abs(term) > 1e-6:
        total, k = total + term, k + 1
        term = term * x / k
    return total, k


@case(_exponential, (1.5,), (0.0,))
def series(x: az.f64) -> Any:
    """A loop whose number of steps depends on the data."""

    def step(s: Any) -> Any:
        return {"term": s["term"] * x / (s["k"] + 1), "total": s["total"] + s["term"], "k": s["k"] + 1}

    last = az.while_loop(lambda s: abs(s["term"]) > 1e-6, step, {"term": 1.0, "total": 0.0, "k": 0})
    return last["total"], last["k"]


def _collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n, steps = n // 2 if n % 2 == 0 else 3 * n + 1, steps + 1
    return steps


@case(lambda n: np.array([_collatz(int(k)) for k in n], np.int64), (np.arange(1, 12),), (np.zeros(0, np.int64),))
def collatz(n: az.Array[az.i64, "k"]) -> az.Array[az.i64, "k"]:
    """Each element has its own number of steps."""

    def steps(n: Any) -> Any:
        def step(s: Any) -> Any:
            return az.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1

        return az.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]

    return az.map(steps, n)


@case(lambda x: (x.sum(), np.cumsum(x)), (X,), (NONE,), (ONE,))
def outputs_of_steps(x: Vector) -> Any:
    return az.scan_loop(lambda total, v: (total + v, total + v), 0.0, x)


@case(lambda a: {"last": a.sum(0), "norms": np.cumsum(a, 0).max(1)}, (A,), (numbers(1, 2),))
def outputs_of_array_steps(a: Matrix) -> Any:
    def step(state: Any, row: Any) -> Any:
        after = state + row
        return after, az.max(after)

    last, norms = az.scan_loop(step, az.zeros(az.size(a, 1)), a)
    return {"last": last, "norms": norms}


@case(lambda x: (x * 2.0**3, 3), (X,), (NONE,))
def while_with_array(x: Vector) -> Any:
    return az.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * 2, s[1] + 1), (x, 0))
