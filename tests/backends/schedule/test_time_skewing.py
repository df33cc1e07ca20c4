"""Steps of a grid, several at a time: the same bits as one by one, and what NumPy computes; caches of a few rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.backends.schedule.loops import time_skewing

pytestmark = pytest.mark.unguarded

Grid = az.Array[az.f64, "n m"]


@pytest.fixture(autouse=True)
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of ten rows or so, with every access checked."""
    monkeypatch.setattr(time_skewing, "L3_BYTES", 0)
    monkeypatch.setattr(time_skewing, "SKEWED_BYTES", 16 * 16 * 20)
    monkeypatch.setattr(time_skewing, "SKEWED_STEPS", 2)
    monkeypatch.setenv("ADZE_CACHE", "off")
    monkeypatch.setenv("ADZE_DEBUG", "bounds")


def _zeros_around(u: Any, t: Any, xp: Any) -> Any:
    p = xp.pad(u, 1)
    return u + 0.125 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4.0 * u)


def _clamped(u: Any, t: Any, xp: Any) -> Any:
    p = xp.pad(u, ((2, 2), (0, 0)), mode="edge")
    return 0.5 * p[:-4] + 0.25 * p[4:] + 0.25 * u


def _upwind(u: Any, t: Any, xp: Any) -> Any:
    """What lies above alone, in another measure for each step."""
    return u - (u - xp.pad(u, ((1, 0), (0, 0)))[:-1]) / (t + 2)


def _pointwise(u: Any, t: Any, xp: Any) -> Any:
    return u * (1.5 - 0.5 * u * u)


STEPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "zeros around": _zeros_around,
    "clamped": _clamped,
    "upwind": _upwind,
    "pointwise": _pointwise,
}


def _numbers(n: int, m: int) -> Any:
    return (np.arange(n * m) * 37 % 101 - 50.0).reshape(n, m) / 64


def _sides(program: az.Program, threads: int = 1) -> list[Any]:
    return [az.compile(program, threads=threads, schedule={"skew": on}) for on in (True, False)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", STEPS)
def test_steps(kind: str, threads: int) -> None:
    step = STEPS[kind]

    @az.program
    def steps(u: Grid, count: az.i64) -> Grid:
        return az.fori_loop(0, count, lambda t, u: step(u, t, az), u)

    skewed, plain = _sides(steps, threads)
    assert "some" in skewed.loops and "some" not in plain.loops
    for n, m in ((1, 9), (2, 16), (9, 16), (61, 16), (100, 5), (40, 3)):
        for count in (0, 1, 2, 7, 30):
            u = wanted = _numbers(n, m)
            for t in range(count):
                wanted = step(wanted, t, np)
            found = skewed(u, count)
            assert found.tobytes() == plain(u, count).tobytes(), (n, m, count)
            np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)


def test_two_steps_are_read_and_scalars_are_carried() -> None:
    """A wave, whose speed falls with each step: three slots, which change their roles."""

    def step(before: Any, now: Any, speed: Any, xp: Any) -> tuple[Any, Any, Any]:
        p = xp.pad(now, 1)
        around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4.0 * now
        return now, 2.0 * now - before + speed * around, speed * 0.9

    @az.program
    def wave(u: Grid, count: az.i64) -> Any:
        return az.fori_loop(0, count, lambda t, state: step(*state, az), (u, u, 0.25))

    skewed, plain = _sides(wave)
    assert "some" in skewed.loops
    for count in (1, 2, 3, 5, 24):
        u = _numbers(75, 12)
        wanted: Any = (u, u, 0.25)
        for _ in range(count):
            wanted = step(*wanted, np)
        found = skewed(u, count)
        for one, other, third in zip(found, plain(u, count), wanted, strict=True):
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
            np.testing.assert_allclose(one, third, rtol=1e-11, atol=1e-12)


def test_a_window_by_a_loop() -> None:
    @az.program
    def smoothed(u: Grid, w: az.Array[az.f64, "5"], count: az.i64) -> Grid:
        def step(_: Any, u: Any) -> Any:
            p = az.pad(u, ((2, 2), (0, 0)))
            return az.generate(u.shape, lambda i, j: az.sum(az.generate(5, lambda k: p[i + k, j] * w[k])))

        return az.fori_loop(0, count, step, u)

    skewed, plain = _sides(smoothed)
    assert "some" in skewed.loops
    w = np.array([0.1, 0.2, 0.4, 0.2, 0.1])
    for n in (1, 4, 50):
        u = wanted = _numbers(n, 16)
        for _ in range(9):
            p = np.pad(wanted, ((2, 2), (0, 0)))
            wanted = sum(w[k] * p[k : k + n] for k in range(5))
        np.testing.assert_allclose(skewed(u, w, 9), wanted, rtol=1e-11, atol=1e-13)
        assert skewed(u, w, 9).tobytes() == plain(u, w, 9).tobytes()


@pytest.mark.parametrize(
    "step",
    [
        lambda u: az.roll(u, 1, 0),  # the first row reads the last one
        lambda u: az.flip(u, 0) * 0.5,
        lambda u: u - az.sum(u, 0),  # each row reads all
        lambda u: az.pad(u, ((100, 0), (0, 0)))[:-100],  # rows far away
    ],
)
def test_what_rows_read_from_anywhere_waits_for_the_step_before(step: Callable[[Any], Any]) -> None:
    program = az.program(lambda u: az.fori_loop(0, 10, lambda _, u: step(u), u)).at(Grid)
    assert "some" not in az.compile(program).loops


def test_what_a_cache_holds_is_done_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes say it in the run, by one code."""
    monkeypatch.setattr(time_skewing, "L3_BYTES", 2 * 8 * 50 * 16)

    @az.program
    def steps(u: Grid, count: az.i64) -> Grid:
        return az.fori_loop(0, count, lambda t, u: _zeros_around(u, t, az), u)

    skewed, plain = _sides(steps)
    for n, count in ((50, 11), (51, 11), (50, 0), (50, -3), (1, 500), (0, 10**7)):
        u = _numbers(n, 16)
        assert skewed(u, count).tobytes() == plain(u, count).tobytes(), (n, count)


def test_gradients_of_steps() -> None:
    @az.program
    def energy(u: Grid, count: az.i64) -> az.f64:
        return az.sum(az.fori_loop(0, count, lambda t, u: _zeros_around(u, t, az), u) ** 2)

    skewed, plain = _sides(az.grad(energy))
    u, v = _numbers(33, 16), _numbers(16, 33).T
    slope = skewed(u, 12)
    assert slope.tobytes() == plain(u, 12).tobytes()
    f = az.compile(energy)
    np.testing.assert_allclose(np.vdot(slope, v), (f(u + 1e-6 * v, 12) - f(u - 1e-6 * v, 12)) / 2e-6, rtol=1e-7)
