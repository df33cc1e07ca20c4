"""Adjoints of reads at places that leave out digits: what is summed is what would have been scattered, bit for bit.

All small radices, sizes and offsets, as constants and as arguments that may be negative or wrap around. Whole numbers:
every order of sums gives the same bits. The oracle adds place by place.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sampling import some

import adze as az

pytestmark = pytest.mark.unguarded

Index = Callable[[Any, Any, Any], Any]  # of an iteration, and two numbers
MAPS: dict[str, Index] = {
    "row": lambda i, c, m: i // c,
    "tile": lambda i, c, m: i % m,
    "block": lambda i, c, m: i // (c * m) * m + i % m,
    "block behind": lambda i, c, m: 3 + i % m + m * (i // (c * m)),
    "row before": lambda i, c, m: i // c - 1,
}
SIZES = range(0, 23, 2)


def wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


class Word(int):
    """An integer of 64 bits, whose sums and products wrap around, and which divides by 0 as Adze does in place."""

    def __add__(self, other: int) -> "Word":
        return Word(wrapped(int(self) + int(other)))

    def __mul__(self, other: int) -> "Word":
        return Word(wrapped(int(self) * int(other)))

    def __sub__(self, other: int) -> "Word":
        return Word(wrapped(int(self) - int(other)))

    def __floordiv__(self, other: int) -> "Word":
        return Word(wrapped(int(self) // int(other)))

    def __mod__(self, other: int) -> "Word":
        return Word(int(self) % int(other))

    def __radd__(self, other: int) -> "Word":
        return self + other


def read_at(x: az.Expr, place: az.Expr) -> Any:
    """An element, or nothing outside."""
    return az.cond((place >= 0) & (place < x.shape[0]), lambda: x[place], lambda: 0.0)


def scattered(places: list[int], cotangent: Any, n: int) -> Any:
    found = np.zeros(n)
    for place, value in zip(places, cotangent, strict=True):
        if 0 <= place < n:
            found[place] += value
    return found


def agree(pull: Any, index: Index, numbers: tuple[int, int], given: tuple[Any, ...], places: int) -> None:
    """The adjoint of a read, for all sizes of what is read and of what is made of it."""
    c, m = map(Word, numbers)
    for n in SIZES:
        cotangent = np.arange(1.0, n + 1)
        wanted = scattered([index(Word(i), c, m) for i in range(n)], cotangent, places)
        found = pull(np.ones(places), np.empty(n), *given, cotangent)[-1]
        np.testing.assert_array_equal(found, wanted, err_msg=f"{n} iterations, {places} places, {numbers}")


def test_a_large_constant() -> None:
    """No iteration has another quotient than 0."""

    @az.program
    def first(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "k"]) -> az.f64:
        return az.sum(az.generate(y.shape[0], lambda i: y[i] * x[i // 10**6] + x[i % 10**6] * y[i]))

    y = np.arange(1.0, 8.0)
    for run in (az.compile(az.grad(first)), az.evaluate(az.grad(first))):
        np.testing.assert_array_equal(run(np.ones(7), y), y + np.eye(7)[0] * y.sum())


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("radices", some([(c, m) for c in (1, 2, 3, 7) for m in (1, 2, 5)], 4))
def test_digits_by_constants(name: str, radices: tuple[int, int]) -> None:
    c, m = radices

    @az.program
    def read(x: az.Array[az.f64, "n"], like: az.Array[az.f64, "k"]) -> az.Array[az.f64, "k"]:
        return az.generate(like.shape[0], lambda i: read_at(x, MAPS[name](i, c, m)))

    pull = az.compile(az.vjp(read, argnums=0), threads=1)
    for places in (0, 1, 4, 9, 30):
        agree(pull, MAPS[name], (c, m), (), places)


ABSURD = [-(2**63), -(2**63) + 1, -(2**62), 2**62, 2**62 + 1, 2**63 - 1]


@pytest.fixture(scope="module", params=MAPS)
def pulled(request: pytest.FixtureRequest) -> tuple[Index, Any, Any]:
    """A map by arguments, and its adjoint, compiled and evaluated."""
    index = MAPS[request.param]

    @az.program
    def read(x: az.Array[az.f64, "n"], like: az.Array[az.f64, "k"], c: az.i64, m: az.i64) -> az.Array[az.f64, "k"]:
        return az.generate(like.shape[0], lambda i: read_at(x, index(i, c, m)))

    pull = az.vjp(read, argnums=0)
    return index, az.compile(pull, threads=2), az.evaluate(pull)


@pytest.mark.parametrize("m", [-3, -1, 1, 2, 5, 100, *ABSURD])
@pytest.mark.parametrize("c", [-2, 1, 2, 3])
def test_digits_by_arguments(pulled: tuple[Index, Any, Any], c: int, m: int) -> None:
    index, compiled, _ = pulled
    if wrapped(c * m) == 0:
        return  # nothing is divided by 0
    for places in (1, 9):
        agree(compiled, index, (c, m), (c, m), places)


@pytest.mark.parametrize("m", [-3, 2, 5, 2**62])
def test_digits_by_arguments_evaluated(pulled: tuple[Index, Any, Any], m: int) -> None:
    index, _, evaluated = pulled
    agree(evaluated, index, (2, m), (2, m), 9)


@az.program
def butterflies(x: az.Array[az.f64, "n"], like: az.Array[az.f64, "k"], m: az.i64) -> az.Array[az.f64, "k"]:
    """Half of the places of each stage of a Fourier transform, whose radix is an argument."""
    return az.generate(like.shape[0], lambda i: read_at(x, i // (2 * m) * m + i % m))


@pytest.mark.parametrize("m", [-5, -1, 1, 2, 3, 8, 40, *ABSURD])
def test_a_constant_number_of_digits_of_an_argument(m: int) -> None:
    pull = az.compile(az.vjp(butterflies, argnums=0), threads=1)
    if wrapped(2 * m) == 0:
        return
    for places in (1, 9, 20):
        agree(pull, lambda i, c, m: i // (m * 2) * m + i % m, (2, m), (m,), places)


@az.program
def scaled(x: az.Array[az.f64, "m"], y: az.Array[az.f64, "n"], c: az.i64, a: az.f64) -> az.f64:
    """What is added does not depend on the iteration."""
    return az.sum(az.generate(y.shape[0], lambda i: a * x[i // c]))


@az.program
def cubes(x: az.Array[az.f64, "m"], y: az.Array[az.f64, "n"], c: az.i64) -> az.f64:
    return az.sum(az.generate(y.shape[0], lambda i: read_at(x, i // c) ** 3))


@pytest.mark.parametrize("c", [1, 4, 9, 10, 10**14, 2**62, 2**62 + 1])
def test_no_more_terms_than_iterations(c: int) -> None:
    """However large a divisor is, and for derivatives of derivatives."""
    wanted = np.bincount(np.arange(9) // c, minlength=9).astype(float)
    for run in (az.compile(az.grad(scaled)), az.evaluate(az.grad(scaled))):
        np.testing.assert_array_equal(run(np.ones(9), np.ones(9), c, 2.0), 2 * wanted)
    x = np.arange(1.0, 10.0)
    for run in (az.compile(az.hvp(cubes)), az.evaluate(az.hvp(cubes))):
        np.testing.assert_allclose(run(x, np.ones(9), c, np.ones(9)), 6 * x * wanted, rtol=1e-15)


@az.program
def upsampled(x: az.Array[az.f64, "h w"], y: az.Array[az.f64, "2*h 3*w"]) -> az.f64:
    return az.sum(az.generate(y.shape, lambda i, j: y[i, j] * x[i // 2, j // 3] ** 2))


@az.program
def tiled(x: az.Array[az.f64, "h w"], y: az.Array[az.f64, "2*h 3*w"]) -> az.f64:
    h, w = x.shape
    return az.sum(az.generate(y.shape, lambda i, j: y[i, j] * x[i % h, j % w] ** 2))


@pytest.mark.parametrize("program", [upsampled, tiled], ids=["upsampled", "tiled"])
def test_pictures(program: az.Program) -> None:
    """No updates are left where sizes say that blocks are whole, and terms are added in their order."""
    gradient = az.grad(program, argnums=0)
    assert "accumulate" not in az.pretty(az.simplify(gradient))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 5)), rng.normal(size=(14, 15))
    wanted = np.zeros((7, 5))
    for i, j in np.ndindex(14, 15):
        place = (i // 2, j // 3) if program is upsampled else (i % 7, j % 5)
        wanted[place] += 2 * y[i, j] * x[place]
    np.testing.assert_allclose(az.compile(gradient)(x, y), wanted, rtol=1e-14)
    np.testing.assert_allclose(az.evaluate(gradient)(x, y), wanted, rtol=1e-14)


@az.program
def shared(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"], w: az.Array[az.f64, "k"]) -> az.f64:
    """Two arrays at one place, one of them at another, too, with something costly that all share."""

    def term(i: az.Expr) -> az.Expr:
        return az.exp(w[i]) * (x[i // 3] * y[i // 3] + y[(i // 3 + 1) % y.shape[0]])

    return az.sum(az.generate(w.shape[0], term))


def test_what_is_shared_is_computed_once() -> None:
    gradient = az.grad(shared, argnums=(0, 1))
    rng = np.random.default_rng(1)
    x, y, w = rng.normal(size=5), rng.normal(size=5), rng.normal(size=14)
    wanted = np.zeros(5), np.zeros(5)
    for i in range(14):
        wanted[0][i // 3] += np.exp(w[i]) * y[i // 3]
        wanted[1][i // 3] += np.exp(w[i]) * x[i // 3]
        wanted[1][(i // 3 + 1) % 5] += np.exp(w[i])
    for found, expected in zip(az.compile(gradient)(x, y, w), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert az.pretty(az.simplify(gradient)).count("exp(") == 1
