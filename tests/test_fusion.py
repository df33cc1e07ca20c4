"""Neighbouring nests run as one, and temporaries between them are not stored (``backends/fusion``)."""

from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]


def loops_of(program: Any, **schedule: Any) -> str:
    return str(az.compile(program, schedule=schedule).loops)


def nests(text: str) -> int:
    return text.count("lanes ")


@az.program
def neighbours(x: Vector, y: Vector) -> Any:
    return x + y, x * y, x - 2 * y


@az.program
def chain(x: Vector, m: az.i64) -> Any:
    """A state that is a sum of what two others are made of."""

    def step(i: az.Expr, state: Any) -> Any:
        a, b = state
        return a + b, az.exp(-(a * b))

    return az.fori_loop(0, m, step, (x, x))


@az.program
def shifted(x: Vector) -> Any:
    y = az.exp(x) + 1
    return y, az.generate(x.shape[0], lambda i: az.cond(i > 0, lambda: y[i - 1], lambda: 0.0))


@az.program
def matrices(x: az.Array[az.f64, "n m"], y: az.Array[az.f64, "m n"]) -> Any:
    return x + 1, x * x, y + 2


@az.program
def scanned(x: Vector, c: az.Array[az.f64, "m"]) -> Any:
    """A scan for each number, and what is made of it in order, once as it comes and once from its end."""

    def sums(v: az.Expr) -> Any:
        powers = az.cumprod(az.map(lambda d: v + d, c))
        return c @ powers, c @ powers[::-1], powers

    return az.map(sums, x)


@pytest.mark.parametrize("n", [0, 1, 7, 33, 5000])
@pytest.mark.parametrize("program", [neighbours, chain, shifted, matrices, scanned], ids=lambda program: program.name)
def test_values(program: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    arguments: dict[str, tuple[Any, ...]] = {
        "neighbours": (rng.random(n), rng.random(n)),
        "chain": (rng.random(n), 3),
        "shifted": (rng.random(n),),
        "matrices": (rng.random((n, 5)), rng.random((5, n))),
        "scanned": (rng.random(n), rng.random(n % 6)),
    }
    given = arguments[program.name]
    together, apart = COMPILED[program.name]
    for a, b, expected in zip(together(*given), apart(*given), az.evaluate(program)(*given), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, expected, rtol=1e-14)


COMPILED = {
    program.name: (az.compile(program), az.compile(program, schedule={"fuse": False}))
    for program in (neighbours, chain, shifted, matrices, scanned)
}


def test_nests_of_one_extent_are_one() -> None:
    assert nests(loops_of(neighbours)) == 1
    assert nests(loops_of(matrices)) == 2  # the third is of other extents
    assert nests(loops_of(matrices, fuse=False)) == 3


def test_a_read_of_another_iteration_keeps_nests_apart() -> None:
    assert nests(loops_of(shifted)) == 2


def test_a_temporary_between_nests_is_not_stored() -> None:
    @az.program
    def gradient(x: Vector) -> Any:
        return az.grad(lambda x: az.sum(az.exp(x) * az.sin(x) * az.exp(x)))(x)

    x = np.linspace(-1, 1, 100)
    expected = np.exp(2 * x) * (2 * np.sin(x) + np.cos(x))
    np.testing.assert_allclose(az.compile(gradient)(x), expected, rtol=1e-14)
    assert "temporary" not in loops_of(gradient)


def test_a_scan_is_summed_while_it_is_made() -> None:
    @az.program
    def polynomials(x: Vector, c: az.Array[az.f64, "m"]) -> Any:
        return az.map(lambda v: c @ az.cumprod(az.map(lambda _: v, c)), x)

    x, c = np.linspace(-1, 1, 100), np.array([2.0, -1.0, 3.0])
    np.testing.assert_allclose(az.compile(polynomials)(x, c), x * np.polyval(c[::-1], x), rtol=1e-13)
    assert "temporary" not in loops_of(polynomials)
    assert loops_of(polynomials).count("for ") == 1


def test_a_scan_that_is_read_from_its_end_is_made_before() -> None:
    @az.program
    def reversed_sums(x: Vector, c: az.Array[az.f64, "m"]) -> Any:
        return az.map(lambda v: c @ az.cumprod(az.map(lambda _: v, c))[::-1], x)

    x, c = np.linspace(-1, 1, 100), np.array([2.0, -1.0, 3.0])
    np.testing.assert_allclose(az.compile(reversed_sums)(x, c), x * np.polyval(c, x), rtol=1e-13)
    assert loops_of(reversed_sums).count("for ") == 2


def test_zeros_of_different_signs_stay_apart() -> None:
    @az.program
    def reciprocals(x: Vector) -> Any:
        def element(zero: float) -> Any:
            def at(i: az.Expr) -> Any:
                product = i.astype(az.f64) * zero
                return 1 / product + product

            return at

        n = x.shape[0]
        return az.generate(n, element(0.0)), az.generate(n, element(-0.0))

    positive, negative = az.compile(reciprocals)(np.ones(5))
    np.testing.assert_array_equal(positive, np.full(5, np.inf))
    np.testing.assert_array_equal(negative, np.full(5, -np.inf))
    assert nests(loops_of(reciprocals)) == 1


@az.program
def picked(x: Vector, k: az.Array[az.i64, "m"]) -> Any:
    return x[k]


@az.program
def picked_and_bounded(x: Vector, k: az.Array[az.i64, "m"]) -> Any:
    """Both need the indices, and only one of them a requirement."""
    return x[k], az.map(lambda i: az.maximum(i, 0), k)


@az.program
def picked_from_both(x: Vector, y: Vector, k: az.Array[az.i64, "m"]) -> Any:
    return az.map(lambda i: x[i] + y[az.size(y) - 1 - i], k)


@pytest.mark.parametrize("m", [0, 1, 33, 4096, 9001])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_required_is_tested_while_it_is_used(m: int, threads: int) -> None:
    assert loops_of(picked).count("lanes ") == 1
    assert loops_of(picked, fuse=False).count("lanes ") == 2
    rng = np.random.default_rng(m)
    x, y, k = rng.normal(size=700), rng.normal(size=700), rng.integers(0, 700, m)
    for program, arguments, wanted in (
        (picked, (x,), x[k]),
        (picked_and_bounded, (x,), (x[k], k)),
        (picked_from_both, (x, y), x[k] + y[699 - k]),
    ):
        compiled = az.compile(program, threads=threads)
        found = compiled(*arguments, k)
        for a, b in zip(
            found if isinstance(found, tuple) else (found,),
            wanted if isinstance(wanted, tuple) else (wanted,),
            strict=True,
        ):
            np.testing.assert_array_equal(a, b)
        for place in {0, m // 2, m - 1} if m else ():
            for outside in (-1, 700, 2**62):
                wrong = k.copy()
                wrong[place] = outside
                with pytest.raises(IndexError, match=f"index {outside} "):
                    compiled(*arguments, wrong)


def test_what_is_required_of_an_array_is_tested_before_it_is_overwritten() -> None:
    @az.program
    def followed(x: Vector, k: az.Array[az.i64, "n"], steps: az.i64) -> Any:
        return az.fori_loop(0, steps, lambda _, k: az.map(lambda i: k[i], k), k), x

    k = np.random.default_rng(0).permutation(9000)
    wanted = k
    for steps in range(3):
        np.testing.assert_array_equal(az.compile(followed)(np.zeros(9000), k, steps)[0], wanted)
        wanted = wanted[wanted]
    k[8999] = 9000
    with pytest.raises(IndexError, match="index 9000 "):
        az.compile(followed)(np.zeros(9000), k, 1)
