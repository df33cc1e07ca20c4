"""Operands of commutative operations: programs that differ in their order alone are one code."""

import subprocess
import sys
from typing import Any

import pytest

import adze as az

pytestmark = pytest.mark.unguarded

Matrix, Row = az.Array[az.f64, "n m"], az.Array[az.f64, "m"]


def _scores(x: Any, w: Any, k: Any) -> Any:
    return az.tanh(x * w + k) * x


def _scores_commuted(x: Any, w: Any, k: Any) -> Any:
    return x * az.tanh(k + w * x)


def _rows(x: Any, w: Any, k: Any) -> Any:
    return az.generate(x.shape[0], lambda i: az.sum(x[i] * w) + 2.0 * k)


def _rows_commuted(x: Any, w: Any, k: Any) -> Any:
    return az.generate(x.shape[0], lambda i: k * 2.0 + az.sum(w * x[i]))


def _chosen(x: Any, w: Any, k: Any) -> Any:
    return az.map(lambda a, b: az.where((a == 0.0) & (k < b), a + k, a * b), x[0], w)


def _chosen_commuted(x: Any, w: Any, k: Any) -> Any:
    return az.map(lambda a, b: az.where((k < b) & (a == 0.0), k + a, b * a), x[0], w)


def _places(x: Any, w: Any, k: Any) -> Any:
    n, m = x.shape
    return az.generate((n, m), lambda i, j: w[(i * m + j) % m] + x[n - 1 - i, j])


def _places_commuted(x: Any, w: Any, k: Any) -> Any:
    n, m = x.shape
    return az.generate((n, m), lambda i, j: x[n - 1 - i, j] + w[(j + m * i) % m])


PAIRS = [(_scores, _scores_commuted), (_rows, _rows_commuted), (_chosen, _chosen_commuted), (_places, _places_commuted)]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__[1:])
@pytest.mark.parametrize("derived", [False, True])
def test_one_code(pair: Any, derived: bool) -> None:
    def loops(written: Any) -> str:
        @az.program
        def f(x: Matrix, w: Row, k: az.f64) -> Any:
            y = written(x, w, k)
            return az.sum(y) if derived else y

        return az.compile(az.grad(f) if derived else f).loops

    first, second = map(loops, pair)
    assert first == second


@pytest.mark.slow
def test_the_same_order_in_each_process() -> None:
    """Texts have other hashes in each of them."""
    code = (
        "import adze as az\n"
        "f = lambda x, w: (w[0] + 1) * (x[0] - w[1]) + az.sin(x[1]) * az.cos(w[1])\n"
        "print(az.compile(az.program(lambda x: f(x, x[2:])).at(az.Array[az.f64, '8'])).loops)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout


@az.program
def _by_rows(x: az.Array[az.f64, "n*m"], w: Matrix) -> Any:
    n, m = w.shape
    return az.sum(az.generate((n, m), lambda i, j: x[i * m + j] * w[i, j]) ** 2)


@az.program
def _by_rows_commuted(x: az.Array[az.f64, "n*m"], w: Matrix) -> Any:
    n, m = w.shape
    return az.sum(az.generate((n, m), lambda i, j: w[i, j] * x[j + m * i]) ** 2)


@pytest.mark.parametrize("f", [_by_rows, _by_rows_commuted])
def test_places_that_are_apart_however_they_are_written(f: Any) -> None:
    assert "copies" not in az.compile(az.grad(f)).schedule
