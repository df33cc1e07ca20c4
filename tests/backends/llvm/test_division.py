"""Whole-number division along lanes (``backends/llvm/division.py``): NumPy's results for all integers."""

from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

Integers = az.Array[az.i64, "n"]
EDGE = 1 << 51
LEAST = np.iinfo(np.int64).min


@az.program
def divided(a: Integers, b: Integers) -> Any:
    return a // b, a % b


@az.program
def divided_by(a: Integers, b: az.i64) -> Any:
    return a // b, a % b


def numbers(limit: int, count: int = 4000) -> Any:
    drawn = np.random.default_rng(limit % 1000)
    return drawn.integers(-limit, limit, count, endpoint=True)


def check(a: Any, b: Any) -> None:
    program = divided if isinstance(b, np.ndarray) else divided_by
    quotient, rest = az.compile(program, checks=False)(a, b)
    with np.errstate(divide="ignore", over="ignore"):
        np.testing.assert_array_equal(quotient, a // b)
        np.testing.assert_array_equal(rest, a % b)


@pytest.mark.parametrize("divisors", [3, 1000, 1 << 31, EDGE - 1, (1 << 63) - 1])
@pytest.mark.parametrize("limit", [3, 1000, 1 << 31, EDGE - 1, 1 << 52, (1 << 63) - 1])
def test_random_integers(limit: int, divisors: int) -> None:
    """Zeros are among the divisors: without checks the quotient and the rest are 0 there, as NumPy's."""
    check(numbers(limit), numbers(divisors))


def test_quotients_next_to_whole_ones() -> None:
    """The largest quotients that are floating numbers, and the smallest distances from the next whole number."""
    divisors = np.concatenate([np.arange(1, 400), 2 ** np.arange(9, 51) - 1, 2 ** np.arange(9, 51) + 1])
    quotients = (EDGE - 1) // divisors
    for distance in (-2, -1, 0, 1, 2):
        for sign in (1, -1):
            a = np.clip(quotients * divisors + distance, -EDGE, EDGE - 1)
            check(sign * a, divisors)
            check(a, sign * divisors)


@pytest.mark.parametrize("place", range(9))
@pytest.mark.parametrize("number", [EDGE, -EDGE, -EDGE - 1, 1 << 62, LEAST])
def test_one_large_integer_among_small_ones(place: int, number: int) -> None:
    a, b = numbers(100, 41), np.full(41, 7)
    a[place] = number
    check(a, b)
    check(b, np.where(np.arange(41) == place, number, 3))
    check(a, np.where(np.arange(41) == place, -1, 3))


@pytest.mark.parametrize("divisor", [1, -1, 2, 3, 10, -7, 64, 1 << 40, EDGE, LEAST, 0])
def test_one_divisor_for_all(divisor: int) -> None:
    check(numbers(1 << 40), divisor)

    @az.program
    def constant(a: Integers) -> Any:
        return a // divisor, a % divisor

    if divisor:
        a = numbers(1 << 40)
        quotient, rest = az.compile(constant)(a)
        np.testing.assert_array_equal(quotient, a // divisor)
        np.testing.assert_array_equal(rest, a % divisor)
