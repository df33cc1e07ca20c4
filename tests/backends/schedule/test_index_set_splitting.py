"""Index-set splitting: neighbours that wrap around or are padded, with and without it, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sampling import some

import adze as az
from adze.backends.schedule.loops.index_set_splitting import _Lanes

pytestmark = pytest.mark.unguarded

Row = az.Array[az.f64, "n"]
SIZES = (0, 1, 2, 7, 33, 130, 257)


def _smoothed(u: Any, xp: Any) -> Any:
    return 0.5 * u + 0.25 * (xp.roll(u, 1, 0) + xp.roll(u, -1, 0))


def _rolled_far(u: Any, xp: Any) -> Any:
    return xp.roll(u, 3, 0) - xp.roll(u, -40, 0) * xp.roll(u, 1000, 0) + xp.roll(u, 0, 0)


def _padded(u: Any, xp: Any) -> Any:
    p = xp.pad(u, ((2, 3),) + ((0, 0),) * (u.ndim - 1))
    return p[:-5] + p[5:] - p[2:-3] * p[4:-1]


def _joined(u: Any, xp: Any) -> Any:
    return xp.concatenate([u[-1:], u, u[:1]])[1:] * 2.0


def _chosen(u: Any, xp: Any) -> Any:
    places = np.arange(u.shape[0]) if xp is np else az.iota(u.shape[0])
    places = places if u.ndim == 1 else places[:, None]
    return xp.where(places < 3, 0 * u, xp.roll(u, 3, 0)) + xp.where(places == u.shape[0] - 1, u, u + u)


def _turned(u: Any, xp: Any) -> Any:
    n = u.shape[0]
    turns = (np.arange(n) + 3) // max(n, 1) if xp is np else az.generate(n, lambda i: (i + 3) // n)
    return xp.roll(u, -3, 0) * (1 + turns)


def _over_columns(u: Any, xp: Any) -> Any:
    return xp.roll(u, 1, 1) + xp.roll(u, -2, 1) * xp.roll(u, 1, 0) - u


def _above(u: Any, xp: Any) -> Any:
    return xp.pad(u, ((1, 0), (0, 0)))[:-1] - u


def _sums(u: Any, xp: Any) -> Any:
    return xp.sum((u - xp.roll(u, 1, 1)) ** 2, 1)


def _clamped(u: Any, xp: Any) -> Any:
    p = xp.pad(u, ((1, 1),) * u.ndim, mode="edge")
    return p[(slice(2, None),) * u.ndim] - p[(slice(None, -2),) * u.ndim]


def _wrapped(u: Any, xp: Any) -> Any:
    p = xp.pad(u, ((2, 1),) * u.ndim, mode="wrap")
    return p[(slice(3, None),) * u.ndim] * p[(slice(None, -3),) * u.ndim] - u


GRIDS: tuple[Callable[[Any, Any], Any], ...] = (_smoothed, _rolled_far, _padded, _joined, _chosen)
LINES: tuple[Callable[[Any, Any], Any], ...] = (*GRIDS, _turned)
GRIDS = (*GRIDS, _over_columns, _above, _sums, _clamped, _wrapped)


def _calls(function: Callable[[Any, Any], Any], threads: int = 1) -> list[Any]:
    return [az.compile(lambda u: function(u, az), threads=threads, schedule={"split": on}) for on in (True, False)]


def _numbers(*shape: int) -> Any:
    return (np.arange(np.prod(shape, dtype=int)) * 37 % 101 - 50.0).reshape(shape) / 4


KINDS = [(function, np.float64) for function in LINES] + [(_rolled_far, np.float32), (_joined, np.int32)]


@pytest.mark.parametrize(("function", "scalar"), KINDS)
def test_lines(function: Any, scalar: Any) -> None:
    calls = [*_calls(function), *_calls(function, threads=2)[:1]]
    for n in SIZES:
        x = _numbers(n).astype(scalar)
        first, *others = [call(x) for call in calls]
        assert np.array_equal(first, function(x, np)), n
        for other in others:
            assert first.tobytes() == other.tobytes()


@pytest.mark.parametrize("function", GRIDS)
def test_grids(function: Any) -> None:
    calls = _calls(function)
    for n, m in ((0, 3), (3, 0), (1, 1), (1, 40), (2, 64), (7, 33), (33, 7), (5, 257)):
        if n * m == 0 and function in (_clamped, _wrapped):
            continue  # there is nothing that a border is made of
        x = _numbers(n, m)
        split, whole = (call(x) for call in calls)
        assert np.array_equal(split, function(x, np)), (n, m)
        assert split.tobytes() == whole.tobytes()


def _inside(call: Any) -> str:
    """What the first loop that is split runs inside."""
    return re.split(r"\n +if all", call.loops)[1].partition("else\n")[0]


@pytest.mark.parametrize("function", [_smoothed, _padded, _chosen, _clamped, _wrapped, _sums])
def test_nothing_is_asked_inside(function: Any) -> None:
    call, _ = _calls(function)
    call(_numbers(*[40, 50][: 1 + (function is _sums)]))
    inside = _inside(call)
    assert "[" in inside
    assert not re.search(r" % |\?|select", inside)


@pytest.mark.parametrize("function", [_smoothed, _padded, _clamped, _wrapped, _over_columns, _above])
def test_nothing_is_asked_of_rows_inside(function: Any) -> None:
    call, _ = _calls(function)
    call(_numbers(40, 50))
    inside = _inside(call)
    assert re.search(r"u1\[t\d+, [it]\d+\]", inside)  # a row beside this one
    assert not re.search(r" % |\?|select", inside)


@pytest.mark.parametrize("shape", [(1, 9, 40), (4, 5, 33), (3, 1, 70)])
def test_blocks(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADZE_DEBUG", "bounds")

    def around(u: Any, xp: Any) -> Any:
        p = xp.pad(u, ((1, 1),) * 3)
        return (p[2:, 1:-1, 1:-1] - p[:-2, 1:-1, 1:-1]) * (p[1:-1, 2:, 1:-1] - p[1:-1, :-2, 1:-1]) + p[1:-1, 1:-1, 2:]

    split, whole = _calls(around)
    u = _numbers(*shape)
    assert np.array_equal(split(u), around(u, np)) and split(u).tobytes() == whole(u).tobytes()
    assert not re.search(r"\?|select", _inside(split))


def test_a_period_of_few_lanes_is_no_border() -> None:
    call = az.compile(lambda x: az.generate(x.shape[0], lambda i: x[i] * (i % 4).astype(az.f64)))
    x = _numbers(100)
    assert np.array_equal(call(x), x * (np.arange(100) % 4))
    assert "all(" not in call.loops


def test_neighbours_by_index_that_wrap_around_require_no_more_than_elements() -> None:
    call = az.compile(lambda x: az.generate(3, lambda i: x[(i - 1) % x.shape[0]]))
    assert np.array_equal(call(_numbers(2)), _numbers(2)[[1, 0, 1]])
    assert call.loops.count("require") <= 1
    with pytest.raises(ZeroDivisionError):
        call(_numbers(0))


@pytest.mark.parametrize("function", [_rolled_far, _joined])
def test_memory_is_checked_inside(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADZE_DEBUG", "bounds")
    call = az.compile(lambda u: function(u, az), threads=1)
    for n in (1, 5, 100):
        assert np.array_equal(call(_numbers(n)), function(_numbers(n), np))


def test_a_failure_that_is_sure_inside_is_combined() -> None:
    """Where all lanes but few fail, too."""
    call = az.compile(
        lambda x: az.sum(az.generate(x.shape[0], lambda i: az.generate(x.shape[0], lambda j: x[i] + x[j + 1])))
    )
    with pytest.raises(IndexError, match="index 200"):
        call(_numbers(200))


# Loops inside of lanes: the points of a window


def _place(i: Any, n: Any, kind: str, xp: Any) -> Any:
    """An index in range for any other one."""
    return {
        "wrap": lambda: i % n,
        "edge": lambda: xp.minimum(xp.maximum(i, 0), n - 1),
        "mirror": lambda: xp.minimum(i % (2 * n), 2 * n - 1 - i % (2 * n)),
        "zero": lambda: xp.where((i >= 0) & (i < n), i, n),  # behind what is read: a zero
    }[kind]()


MOVES: dict[str, Callable[[Any, Any], Any]] = {
    "forth": lambda i, k: i + k - 2,
    "back": lambda i, k: i - k + 1,
    "far": lambda i, k: i + 3 * k - 40,
    "twice": lambda i, k: 2 * k - i,
    "even": lambda i, k: i + k // 2 - 1,
    "apart": lambda i, k: i + (3 * k - 40),
    "squared": lambda i, k: i + (k * k - 3) * (k * k - 3),
    "twice back": lambda i, k: i + (2 - (k + 1) * 2),
}


@pytest.mark.unguarded
@pytest.mark.parametrize("kind", some(["wrap", "edge", "zero", "mirror"], 2))
@pytest.mark.parametrize(("move", "known"), [*[(move, True) for move in MOVES], ("forth", False), ("far", False)])
def test_windows(kind: str, move: str, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over a window of 5 points, whose number is known or not; with bounds checked."""
    monkeypatch.setenv("ADZE_DEBUG", "bounds")

    def window(u: Any, w: Any) -> Any:
        n = u.shape[0]

        def point(i: az.Expr, k: az.Expr) -> Any:
            place = MOVES[move](i, k)
            if kind == "zero":
                inside = (place >= 0) & (place < n)
                return az.cond(inside, lambda: u[place] * w[k], lambda: 0.0)
            return u[_place(place, n, kind, az)] * w[k]

        return az.generate(n, lambda i: az.sum(az.generate(w.shape[0], lambda k: point(i, k))))

    program = az.program(window).at(az.Array[az.f64, "n"], az.Array[az.f64, "5" if known else "k"])
    calls = [az.compile(program, threads=1, schedule={"split": on}) for on in (True, False)]
    w = _numbers(5) + 0.25
    for n in (1, 7, 33, 130):
        u = _numbers(n)
        i, k = np.arange(n)[:, None], np.arange(5)
        padded = np.append(u, 0.0)
        wanted = (padded[_place(MOVES[move](i, k), n, kind, np)] * w).sum(1)
        split, whole = (call(u, w) for call in calls)
        np.testing.assert_array_equal(split, wanted)
        assert split.tobytes() == whole.tobytes()


@pytest.mark.parametrize("mode", ["constant", "edge", "wrap"])
def test_windows_of_two_axes_ask_nothing_inside(mode: str) -> None:
    options = {} if mode == "constant" else {"mode": mode}

    @az.program
    def window(u: az.Array[az.f64, "n m"], w: az.Array[az.f64, "5 3"]) -> Any:
        p = az.pad(u, ((2, 2), (1, 1)), **options)
        return az.generate(u.shape, lambda i, j: az.sum(p[i : i + 5, j : j + 3] * w))

    call = az.compile(window, threads=1)
    u, w = _numbers(40, 70), _numbers(5, 3)
    padded = np.pad(u, ((2, 2), (1, 1)), **options)
    wanted = sum(w[a, b] * padded[a : a + 40, b : b + 70] for a in range(5) for b in range(3))
    np.testing.assert_array_equal(call(u, w), wanted)
    inside = _inside(call)
    assert "u1[" in inside and not re.search(r" % |\?", inside)


def test_what_data_say_of_a_window_is_not_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets that are read in no iteration of an empty window."""
    monkeypatch.setenv("ADZE_DEBUG", "bounds")

    def window(u: Any, offsets: Any) -> Any:
        n, k = u.shape[0], offsets.shape[0]
        return az.generate(n, lambda i: az.sum(az.generate(k, lambda j: u[(i + j + offsets[j]) % n])))

    program = az.program(window).at(az.Array[az.f64, "n"], az.Array[az.i64, "k"])
    call, u = az.compile(program, threads=1), _numbers(100)
    for offsets in ([], [3], [-1, 0, 200]):
        places = [(np.arange(100) + j + offset) % 100 for j, offset in enumerate(offsets)]
        wanted = np.sum([u[place] for place in places], axis=0) if places else np.zeros(100)
        np.testing.assert_array_equal(call(u, np.array(offsets, dtype=np.int64)), wanted)


# Quotients, one number in a strip of lanes


TURNS: dict[str, Callable[[Any, Any], Any]] = {
    "repeated": lambda k, m: k // m,
    "tiled": lambda k, m: k % m,
    "rows of another length": lambda k, m: k // (2 * m) * m + k % m,
    "behind": lambda k, m: (k + 5) // m + (k + 5) % m,
    "before": lambda k, m: (k - 70) // m + (k - 70) % m + 80,
    "of a quotient": lambda k, m: k // m % 3 + k % m,
    "mirrored": lambda k, m: (k // m + 1) * m - 1 - k % m,
    "back": lambda k, m: (600 - k) // m,
}


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("scalar", [np.float64, np.float32, np.int32])
def test_turns(turn: str, scalar: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of lengths that the run says, shorter and longer than strips, and dividing the whole or not."""
    monkeypatch.setenv("ADZE_DEBUG", "bounds")

    def turning(u: Any, y: Any, m: Any) -> Any:
        return az.generate(y.shape[0], lambda k: u[TURNS[turn](k, m)] * (k // m).astype(u.dtype) + y[k])

    calls = [az.compile(turning, threads=1, schedule={"split": on}) for on in (True, False)]
    u = _numbers(1000).astype(scalar)
    for n, m in ((0, 3), (1, 1), (40, 64), (300, 1), (300, 16), (257, 50), (300, 299), (512, 128)):
        y, k = _numbers(n).astype(scalar), np.arange(n)
        split, whole = (call(u, y, m) for call in calls)
        np.testing.assert_array_equal(split, u[TURNS[turn](k, m)] * (k // m).astype(scalar) + y)
        assert split.tobytes() == whole.tobytes()


def test_no_divisor_that_is_not_positive_has_turns() -> None:
    call = az.compile(lambda u, m: az.generate(u.shape[0], lambda k: u[k] + (k // m + k % m).astype(az.f64)))
    u = _numbers(300)
    for m in (-1, -50, -1000):
        np.testing.assert_array_equal(call(u, m), u + np.arange(300) // m + np.arange(300) % m)
    with pytest.raises(ZeroDivisionError):
        call(u, 0)


@pytest.mark.parametrize("start", [2**63 - 30, 2**63 - 1, -(2**63), -(2**63) + 5])
@pytest.mark.parametrize("divisor", [50, 999, 2**62, 2**63 - 1])
def test_numbers_that_wrap_around_have_no_turns(start: int, divisor: int) -> None:
    """The largest integer and the least one in one strip of lanes."""
    call = az.compile(lambda y, o, m: az.generate(y.shape[0], lambda k: ((k + o) % m, (k + o) // m)), threads=1)
    with np.errstate(over="ignore"):
        places = np.arange(270) + np.int64(start)
    for found, wanted in zip(call(_numbers(270), start, divisor), (places % divisor, places // divisor), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_turns_are_rows_inside() -> None:
    call = az.compile(lambda u, n, m: az.generate(n, lambda k: u[k // (2 * m) * m + k % m] + u[k // m]), threads=1)
    u, k = _numbers(300), np.arange(500)
    np.testing.assert_array_equal(call(u, 500, 100), u[k // 200 * 100 + k % 100] + u[k // 100])
    inside = _inside(call)
    assert "first(" in call.loops and not re.search(r" // | % ", inside)


@pytest.mark.parametrize(("divisor", "turns"), [(4, False), (33, False), (1000, True)])
def test_constant_divisors_have_turns_if_they_are_long(divisor: int, turns: bool) -> None:
    call = az.compile(lambda x, u: az.generate(x.shape[0], lambda i: x[i] * u[i // divisor]), threads=1)
    x, u = _numbers(3000), _numbers(3000)
    assert np.array_equal(call(x, u), x * u[np.arange(3000) // divisor])
    assert ("first(" in call.loops) == turns


def test_a_row_of_rows_asks_for_no_turns() -> None:
    """The quotient and the remainder by the length of the rows that are read."""
    call = az.compile(lambda x: az.generate(x.shape[0] * x.shape[1], lambda i: x[i // x.shape[1], i % x.shape[1]] + 1))
    x = _numbers(30, 70)
    assert np.array_equal(call(x), x.ravel() + 1)
    assert "first(" not in call.loops


@pytest.mark.parametrize("length", [0, 1, 5, 40, 200])
def test_what_lies_still_inside_alone_is_no_part_of_a_condition(length: int) -> None:
    """A clamped place is 1 in nearly all lanes, and a further place is reckoned from it."""

    def clamped(u: Any) -> Any:
        n = u.shape[0]
        return az.generate(n, lambda i: u[az.clip(i + 3 * az.clip(i - 1, 0, 1) - 4, 0, n - 1)])

    program = az.program(clamped).at(az.Array[az.f64, "n"])
    u, i = _numbers(length), np.arange(length)
    places = np.clip(i + 3 * np.clip(i - 1, 0, 1) - 4, 0, max(length - 1, 0))
    np.testing.assert_array_equal(az.compile(program)(u), u[places])


def test_the_work_for_a_chain_of_joined_arrays_grows_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twice as many it is asked how few times as many expressions move: each is looked through once."""
    count, once = [0], _Lanes.affine_of_parts

    def counted(lanes: Any, e: Any) -> Any:
        count[0] += 1
        return once(lanes, e)

    monkeypatch.setattr(_Lanes, "affine_of_parts", counted)

    def asked(length: int) -> int:
        @az.program
        def f(x: Row) -> Any:
            for c in range(1, length + 1):
                x = az.concatenate([x[c:], x[:c] * 2.0]) + x
            return x

        count[0] = 0
        assert "lanes" in az.compile(f, threads=1).loops
        return count[0]

    assert asked(6) < 4 * asked(3)
