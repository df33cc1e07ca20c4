"""Adjoints of reads at affine places, by enumeration: what is gathered is what would have been scattered, bit for bit.

All factors and offsets that are small, all extents from 0 to 9, every way to treat what lies outside. Whole numbers:
every order of sums gives the same bits. The oracle adds place by place.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sampling import some

import adze as az

pytestmark = pytest.mark.unguarded

Array = np.ndarray[Any, Any]
FACTORS, OFFSETS, EXTENTS = range(-3, 4), range(-4, 5), range(10)

# What is read for a place that may lie outside of an array: in Adze, and the place in Python (none, where nothing is).


def zero(x: az.Expr, place: az.Expr) -> Any:
    n = x.shape[0]
    return az.cond((place >= 0) & (place < n), lambda: x[place], lambda: 0.0)


def edge(x: az.Expr, place: az.Expr) -> Any:
    return x[az.clip(place, 0, x.shape[0] - 1)]


def wrap(x: az.Expr, place: az.Expr) -> Any:
    return x[place % x.shape[0]]


def reflect(x: az.Expr, place: az.Expr) -> Any:
    """To and fro, the ends once."""
    period = az.maximum(2 * x.shape[0] - 2, 1)
    around = place % period
    return x[az.where(around < x.shape[0], around, period - around)]


def symmetric(x: az.Expr, place: az.Expr) -> Any:
    """To and fro, the ends twice."""
    around = place % (2 * x.shape[0])
    return x[az.where(around < x.shape[0], around, 2 * x.shape[0] - 1 - around)]


def selected(x: az.Expr, place: az.Expr) -> Any:
    """The last one for all that are outside."""
    inside = (place >= 0) & (place < x.shape[0])
    return x[az.where(inside, place, x.shape[0] - 1)]


def to_and_fro(place: int, n: int) -> int:
    around = place % max(2 * n - 2, 1)
    return around if around < n else 2 * n - 2 - around


def to_and_fro_twice(place: int, n: int) -> int:
    around = place % (2 * n)
    return around if around < n else 2 * n - 1 - around


MODES: dict[Callable[..., Any], Callable[[int, int], int | None]] = {
    zero: lambda place, n: place if 0 <= place < n else None,
    edge: lambda place, n: min(max(place, 0), n - 1),
    wrap: lambda place, n: place % n,
    reflect: to_and_fro,
    symmetric: to_and_fro_twice,
    selected: lambda place, n: place if 0 <= place < n else n - 1,
}


def scattered(places: list[int | None], cotangent: Array, n: int) -> Array:
    found = np.zeros(n)
    for place, value in zip(places, cotangent.ravel(), strict=True):
        if place is not None:
            found[place] += value
    return found


def agree(program: az.Program, places: Callable[[int, tuple[int, ...]], list[int | None]], rank: int) -> None:
    """The adjoint of a linear program to an array of this rank, at all extents."""
    pull = az.vjp(program, argnums=0)
    evaluated, compiled = az.evaluate(pull), az.compile(pull, threads=1)
    extents = EXTENTS if rank == 1 else range(0, 10, 3)
    for n, shape in itertools.product(EXTENTS, itertools.product(extents, repeat=rank)):
        if n == 0 and np.prod(shape):
            continue  # there is nothing to read
        cotangent = np.arange(1.0, np.prod(shape) + 1).reshape(shape)
        wanted = scattered(places(n, shape), cotangent, n)
        given = np.ones(n), np.empty(shape), cotangent
        np.testing.assert_array_equal(compiled(*given)[-1], wanted, err_msg=f"{n} places, {shape}")
        if (n + sum(shape)) % 7 == 0:
            np.testing.assert_array_equal(evaluated(*given)[-1], wanted, err_msg=f"{n} places, {shape}")


def along_one(mode: Callable[..., Any], factor: int, offset: int) -> None:
    @az.program
    def read(x: az.Array[az.f64, "n"], like: az.Array[az.f64, "m"]) -> az.Array[az.f64, "m"]:
        return az.generate(like.shape[0], lambda i: mode(x, factor * i + offset))

    agree(read, lambda n, shape: [MODES[mode](factor * i + offset, n) for i in range(shape[0])], 1)


def along_two(mode: Callable[..., Any], factors: tuple[int, int], offset: int) -> None:
    """As a window reads, and a slice with steps of it."""
    a, b = factors

    @az.program
    def read(x: az.Array[az.f64, "n"], like: az.Array[az.f64, "m k"]) -> az.Array[az.f64, "m k"]:
        return az.generate(like.shape, lambda i, j: mode(x, a * i + b * j + offset))

    def places(n: int, shape: tuple[int, ...]) -> list[int | None]:
        return [MODES[mode](a * i + b * j + offset, n) for i, j in np.ndindex(*shape)]

    agree(read, places, 2)


@pytest.mark.parametrize("mode", MODES)
def test_some_maps(mode: Callable[..., Any]) -> None:
    along_one(mode, 1, -2)
    along_one(mode, -2, 3)
    along_two(mode, (1, 1), -1)


@pytest.mark.slow
@pytest.mark.parametrize("factor", some(FACTORS, 3, long=0))
@pytest.mark.parametrize("mode", MODES)
def test_all_maps_of_one_loop(mode: Callable[..., Any], factor: int) -> None:
    for offset in OFFSETS if factor else range(5):  # a constant below 0 is refused when the program is built
        along_one(mode, factor, offset)


@pytest.mark.slow
@pytest.mark.parametrize("factors", some(itertools.product((-2, -1, 1, 2), repeat=2), 5, long=0))
@pytest.mark.parametrize("mode", MODES)
def test_all_maps_of_two_loops(mode: Callable[..., Any], factors: tuple[int, int]) -> None:
    for offset in (-2, 0, 1):
        along_two(mode, factors, offset)
