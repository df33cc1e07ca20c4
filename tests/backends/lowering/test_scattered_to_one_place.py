"""Scatters whose place does not vary with a loop: their iterations are no lanes and no jam.

No two values of a unique scatter go to one place. So along such a loop one value is written at most: the loop is short,
or the place is outside and nothing is written, as where the mask of a filter is a constant.
"""

import itertools
from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
Z = np.arange(1.0, 8.0)


@pytest.mark.parametrize("kept", [True, False])
def test_a_filter_with_one_answer_for_all(kept: bool) -> None:
    def known(z: Vector) -> Any:
        test = az.array(-0.75, az.f64)
        return az.filter(lambda v: test >= -0.75 if kept else test > -0.75, z)

    def told(z: Vector, s: az.f64) -> Any:
        return az.filter(lambda v: s > 0, z)

    part = slice(None) if kept else slice(0)
    for program, more, zeros in ((known, (), ()), (told, (1.0 if kept else -1.0,), (0.0,))):
        value, forward, backward = az.compile(program), az.compile(az.jvp(program)), az.compile(az.vjp(program))
        for size in (0, 1, 7, 700):
            z = np.arange(1.0, size + 1)
            np.testing.assert_array_equal(value(z, *more), z[part])
            for found, wanted in (
                (forward(z, *more, 2 * z, *zeros), (z[part], 2 * z[part])),
                (backward(z, *more, 3 * z[part]), (z[part], 3 * z * kept, *zeros)),
            ):
                assert len(found) == len(wanted)
                for one, other in zip(found, wanted, strict=True):
                    np.testing.assert_array_equal(one, other)


def one_place(z: Vector, v: az.Array[az.f64, "q"], k: az.i64) -> Any:
    return az.scatter(z, az.map(lambda _: k, v), v, mode="drop")


def test_values_for_one_place() -> None:
    program, sweep = az.compile(one_place), az.compile(az.vjp(one_place))
    for k, count in itertools.product((-1, 0, 6, 7), (0, 1, 20)):
        v, within = np.arange(count) + 5.0, 0 <= k < 7
        if count > 1 and within:
            with pytest.raises(ValueError, match=rf"20 values go to the place \[{k}\]"):
                program(Z, v, k)
            continue
        wanted, swept_z, swept_v = Z.copy(), 2 * Z, np.zeros(count)
        if count and within:
            wanted[k], swept_z[k], swept_v[0] = v[0], 0.0, 2 * Z[k]
        np.testing.assert_array_equal(program(Z, v, k), wanted)
        for found, expected in zip(sweep(Z, v, k, 2 * Z), (wanted, swept_z, swept_v), strict=True):
            np.testing.assert_array_equal(found, expected)


def product(z: Vector, a: az.Array[az.f64, "q", "k"], b: az.Array[az.f64, "k", "r"], at: az.Array[az.i64, "q"]) -> Any:
    v = a @ b
    return az.scatter(z, az.map(lambda k, row: az.map(lambda _: k, row), at, v), v, mode="drop")


def copied(z: Vector, v: az.Array[az.f64, "q", "r"], at: az.Array[az.i64, "q"]) -> Any:
    return az.scatter(z, az.map(lambda k, row: az.map(lambda _: k, row), at, v), v, mode="drop")


@pytest.mark.parametrize("program", [product, copied])
def test_places_of_rows(program: Any) -> None:
    """The place varies with the rows of a product or of an array, but not with their columns."""
    random, compiled, z = np.random.default_rng(0), az.compile(program), np.arange(100.0)
    for (rows, columns), within in itertools.product([(1, 1), (40, 1), (40, 0), (40, 2)], [True, False]):
        a, b = random.integers(0, 5, (rows, 30)) * 1.0, random.integers(0, 5, (30, columns)) * 1.0
        arguments = (a, b) if program is product else (a @ b,)
        at = random.permutation(100)[:rows] + (0 if within else 100)
        if columns == 2 and within:
            with pytest.raises(ValueError, match="2 values go to the place"):
                compiled(z, *arguments, at)
            continue
        wanted = z.copy()
        if columns and within:
            wanted[at] = (a @ b)[:, 0]
        np.testing.assert_array_equal(compiled(z, *arguments, at), wanted)


@pytest.mark.rest
def test_a_product_for_one_place_where_threads_come_in_groups() -> None:
    def program(z: Vector, a: az.Array[az.f64, "q", "k"], b: az.Array[az.f64, "k", "r"], at: az.i64) -> Any:
        v = a @ b
        return az.scatter(z, az.map(lambda row: az.map(lambda _: at, row), v), v, mode="drop")

    random, compiled = np.random.default_rng(0), az.compile(program, backend="opencl")
    a, b = random.integers(0, 5, (40, 30)) * 1.0, random.integers(0, 5, (30, 50)) * 1.0
    np.testing.assert_array_equal(compiled(Z, a, b, -1), Z)
    np.testing.assert_array_equal(compiled(Z, a[:1], b[:, :1], 2), [*Z[:2], a[0] @ b[:, 0], *Z[3:]])
