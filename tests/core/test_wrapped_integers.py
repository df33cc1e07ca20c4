"""Integers that may have wrapped around before they are divided or compared: nothing is proved of these."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

INTEGERS = [0, 1, 5, -3, -4, 2**61, 2**62 - 1, 2**62, 2**63 - 2, 2**63 - 1, -(2**62) - 1, -(2**63)]
# For all integers that do not wrap around these are 0, 1 or true.
QUOTIENTS: list[Callable[[Any], Any]] = [
    lambda k: (2 * k + 1) // 2 - k >= 0,
    lambda k: np.maximum((2 * k + 1) // 2 - k, 0),
    lambda k: (k + 1) // 2 - k // 2 >= 0,
    lambda k: np.minimum((k + 3) // 4 - k // 4, 0),
    lambda k: (3 * k + 2) // 3 - k < 0,
]


COMPARISONS: list[Callable[[Any], Any]] = [
    lambda k: k < k + 1,
    lambda k: k - 1 <= k,
    lambda k: k + 1 == k,
    lambda k: k + 1 != k + 3,
    lambda k: np.maximum(k, 0) + 1 > 0,
    lambda k: np.maximum(k, 0) * 4 >= 0,
    lambda k: np.maximum(k, 0) * 2 != -2,
    lambda k: np.minimum(np.maximum(k, -2), 3) + 2 >= 0,
    lambda k: np.maximum(k + 1, 3) - np.maximum(k, 2) >= 0,
    lambda k: np.minimum(np.maximum(k, 0) * 4, 6) % 7,
    lambda k: np.minimum(np.maximum(k, 0) * 4, 6) // 7,
]


@pytest.mark.parametrize("made", [*QUOTIENTS, *COMPARISONS])
def test_an_integer_is_no_size(made: Any) -> None:
    @az.program
    def f(k: az.i64) -> Any:
        return made(k)

    evaluated, compiled = az.evaluate(f), az.compile(f)
    for k in INTEGERS:
        wanted = made(np.array([k]))[0]
        assert evaluated(k) == wanted, k
        assert compiled(k) == wanted, k


@pytest.mark.parametrize("k", [2, 2**62])
def test_an_index_that_is_such_a_quotient_is_in_range(k: int) -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        return x[az.minimum(az.maximum((2 * k + 1) // 2 - k, 0), az.size(x) - 1)]

    x = np.array([7.0, 8.0])
    assert az.compile(f)(x, k) == az.evaluate(f)(x, k) == 7.0


def test_what_is_proved_of_loop_variables_and_sizes() -> None:
    """These do not wrap around: no test of an index is left."""

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> Any:
        n = az.size(x)
        return az.generate(n, lambda i: x[i // 2] + x[n - 1 - i // 3])

    assert "require" not in str(az.simplify(f))
    x = np.arange(6.0)
    i = np.arange(6)
    np.testing.assert_array_equal(az.compile(f)(x), x[i // 2] + x[5 - i // 3])


def test_comparisons_of_what_does_not_wrap_around_are_decided() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], k: az.i64) -> Any:
        n = az.size(x)
        inside = np.minimum(np.maximum(k, 0), n)
        return az.generate(
            n, lambda i: az.where((i + 1 > 0) & (i < n + 1) & (inside + 1 > 0) & (inside - 1 < n), x[i], 0.0)
        )

    assert "cond" not in str(az.simplify(f))
    np.testing.assert_array_equal(az.compile(f)(np.arange(3.0), 2), np.arange(3.0))
