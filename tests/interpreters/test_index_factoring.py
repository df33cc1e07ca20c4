"""Index factoring: gradients of padded arrays are sums over places, of which each is scattered once."""

import itertools
from typing import Any

import numpy as np
import pytest
from sampling import some

import adze as az
from adze.interpreters.simplify import simplify

pytestmark = pytest.mark.unguarded

MODES = ["edge", "reflect", "symmetric", "wrap"]
SIZES = {1: [(1,), (2,), (5,), (9,), (40,)], 2: [(1, 3), (4, 5), (9, 8)], 3: [(2, 3, 4), (5, 4, 3)]}


def windowed(rank: int, width: int, mode: str, by_slices: bool) -> az.Program:
    """A sum over windows of so many places along each axis, of an array that is padded at its ends."""
    half = width // 2

    def by_window(u: Any, w: Any) -> Any:
        padded = az.pad(u, half, mode=mode)

        def at(*place: Any) -> Any:
            return az.sum(w * padded[tuple([slice(i, i + width) for i in place])])

        return az.generate(u.shape, at)

    def of_slices(u: Any, w: Any) -> Any:
        padded = az.pad(u, half, mode=mode)
        moved = [
            w[k] * padded[tuple([slice(a, a + n) for a, n in zip(k, u.shape, strict=True)])]
            for k in itertools.product(range(width), repeat=rank)
        ]
        return sum(moved[1:], moved[0])

    function = of_slices if by_slices else by_window
    sizes = " ".join("nmk"[:rank])
    types = {"u": az.Array[az.f64, sizes], "w": az.Array[az.f64, " ".join([str(width)] * rank)]}
    function.__annotations__ = types
    return az.program(function)


def pulled(weights: Any, cotangent: Any, mode: str) -> Any:
    """The adjoint, place by place: where NumPy's padding reads, weight times cotangent is added."""
    width, shape = weights.shape[0], cotangent.shape
    half = width // 2
    found = np.zeros(shape)
    places = [np.pad(np.arange(n), half, mode=mode) for n in shape]
    for at in np.ndindex(*shape):
        for k in np.ndindex(*weights.shape):
            found[tuple([p[i + a] for p, i, a in zip(places, at, k, strict=True)])] += weights[k] * cotangent[at]
    return found


@pytest.mark.rest
@pytest.mark.parametrize("by_slices", [False, True], ids=["window", "slices"])
@pytest.mark.parametrize(("rank", "width"), [(1, 3), (1, 7), (2, 3), (3, 3)])
@pytest.mark.parametrize("mode", some(MODES, 2))
def test_gradients_of_padded_arrays(mode: str, rank: int, width: int, by_slices: bool) -> None:
    """Small whole numbers: every order of sums gives the same bits."""
    program = az.vjp(windowed(rank, width, mode, by_slices), argnums=0)
    drawn = np.random.default_rng(rank * width)
    for shape in SIZES[rank]:
        if width // 2 >= min(shape) and mode in ("reflect", "symmetric", "wrap"):
            continue  # NumPy goes to and fro there, or around, several times; an Adze program does not pad so far
        u, w, c = (drawn.integers(-9, 9, size).astype(float) for size in (shape, (width,) * rank, shape))
        wanted = pulled(w, c, mode)
        np.testing.assert_array_equal(az.evaluate(program)(u, w, c)[-1], wanted)
        for threads in (1, 2):
            np.testing.assert_array_equal(az.compile(program, threads=threads)(u, w, c)[-1], wanted)


@pytest.mark.parametrize("by_slices", [False, True], ids=["window", "slices"])
@pytest.mark.parametrize("mode", MODES)
def test_each_sum_is_scattered_once(mode: str, by_slices: bool) -> None:
    """Of 25 updates a place there is one at most, and it stands in the loops over places alone."""
    term = simplify(az.vjp(windowed(2, 5, mode, by_slices), argnums=0).at().term)
    text = az.pretty(term)
    assert text.count("+=") <= 1, text
    if "+=" in text:
        updating = next(line for line in text.splitlines() if "+=" in line)
        loops = [line for line in text[: text.index(updating)].splitlines() if line.strip().startswith("for ")]
        assert len(loops) <= 2, text


def test_updates_that_do_not_meet_stay() -> None:
    """One update an iteration, or two: there is nothing to add up."""

    @az.program
    def moved(u: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        n = u.shape[0]
        return az.generate(n, lambda i: u[az.clip(i - 1, 0, n - 1)] * u[az.clip(i + 1, 0, n - 1)])

    gradient = az.vjp(moved)
    assert "n + 2" not in az.pretty(simplify(gradient.at().term))
    u, c = np.arange(1.0, 8.0), np.arange(2.0, 9.0)
    low, high = np.clip(np.arange(7) - 1, 0, 6), np.clip(np.arange(7) + 1, 0, 6)
    wanted = np.zeros(7)
    np.add.at(wanted, low, c * u[high])
    np.add.at(wanted, high, c * u[low])
    np.testing.assert_array_equal(az.compile(gradient)(u, c)[1], wanted)


@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_places_that_other_functions_of_a_sum_tell(n: int) -> None:
    """Half of the sum, so that two sums share a place; the sum from its end; and one of three loops."""

    def places(i: Any, j: Any, k: Any) -> list[Any]:
        return [(i + j) // 2, az.clip(n + 3 - (i + j), 0, n - 1), az.minimum(i + j + k, n - 1)]

    for number in range(3):

        @az.program
        def gathered(u: az.Array[az.f64, f"{n}"], w: az.Array[az.f64, "4 3"]) -> az.Array[az.f64, f"{n}"]:
            def at(i: az.Expr) -> Any:
                def term(j: az.Expr, k: az.Expr) -> Any:
                    return w[j, k] * u[az.clip(places(i, j, k)[number], 0, n - 1)]  # noqa: B023

                return az.sum(az.generate((4, 3), term))

            return az.generate(n, at)  # noqa: B023

        drawn = np.random.default_rng(n)
        u, w, c = (drawn.integers(-9, 9, size).astype(float) for size in (n, (4, 3), n))
        i, j, k = np.arange(n)[:, None, None], np.arange(4)[:, None], np.arange(3)
        at = [(i + j) // 2 + 0 * k, np.clip(n + 3 - (i + j), 0, n - 1) + 0 * k, np.minimum(i + j + k, n - 1)][number]
        wanted = np.zeros(n)
        np.add.at(wanted, np.clip(at, 0, n - 1), w * c[:, None, None])
        program = az.vjp(gathered, argnums=0)
        np.testing.assert_array_equal(az.evaluate(program)(u, w, c)[-1], wanted)
        np.testing.assert_array_equal(az.compile(program)(u, w, c)[-1], wanted)
