"""The memory that calls take: what is planned, what is taken, and how it grows with checkpoints."""

import ctypes
import gc
import tracemalloc
from collections.abc import Iterator
from math import ceil, isqrt
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.backends.llvm import frames, jit
from adze.core.limits import lifted_limits

WIDTH = 512  # numbers in a state
STATE = np.linspace(0.1, 0.9, WIDTH)
HELD = 30  # states: what is held beside those stored, however many steps there are


def gradient(checkpoint: Any) -> az.program:
    @az.program
    def f(x: az.Array[az.f64, "m"], steps: az.i64) -> az.f64:
        return az.sum(az.fori_loop(0, steps, lambda i, s: az.sin(s * x), x, checkpoint=checkpoint))

    return az.grad(f)


def root(n: int) -> int:
    return isqrt(n - 1) + 1


# By option, the states stored of n steps: those of the outermost loop, and those of one segment of each inner one
STORED: dict[Any, Any] = {
    "all": lambda n: n,
    "sqrt": lambda n: root(n) + ceil(n / root(n)),
    8: lambda n: ceil(n / 8) + 8,
    50: lambda n: ceil(n / 50) + 50,
    (64, 8): lambda n: ceil(n / 64) + 8 + 8,
    (128, 32, 8, 2): lambda n: ceil(n / 128) + 4 + 4 + 4 + 2,
}
FAST = ("all", "sqrt")


@pytest.mark.unguarded
@pytest.mark.parametrize(
    "checkpoint", [*FAST, *[pytest.param(k, marks=pytest.mark.slow) for k in STORED if k not in FAST]], ids=str
)
def test_states_stored(checkpoint: Any) -> None:
    compiled, stored = az.compile(gradient(checkpoint), threads=1), STORED[checkpoint]
    planned = {n: compiled.peak_bytes(np.empty(WIDTH), n) / STATE.nbytes for n in (256, 400, 10_000)}
    for n, states in planned.items():
        assert stored(n) <= states <= stored(n) + HELD
    for n in (400, 10_000):  # the growth is that of the formula alone
        assert abs(planned[n] - planned[256] - (stored(n) - stored(256))) < 0.1


@pytest.mark.rest
@pytest.mark.unguarded
def test_steps_that_sizes_say() -> None:
    """What the sizes decide is all in the arena."""

    def of(checkpoint: Any) -> Any:
        @az.program
        def f(x: az.Array[az.f64, "m"], xs: az.Array[az.f64, "n"]) -> az.f64:
            return az.sum(az.scan_loop(lambda s, y: (az.sin(s * x) + y, ()), x, xs, checkpoint=checkpoint)[0])

        return az.compile(az.grad(f), threads=1)

    for checkpoint, states in (("all", 400), ("sqrt", 40), (20, 40)):
        assert states <= of(checkpoint).peak_bytes(np.empty(WIDTH), np.empty(400)) / STATE.nbytes <= states + HELD


# What is planned against what is taken


class Allocator:
    """Counts what compiled code takes and gives back."""

    def __init__(self) -> None:
        self.held = self.most = 0
        self._sizes: dict[int, int] = {}
        libc = ctypes.CDLL(None)
        libc.aligned_alloc.restype, libc.aligned_alloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t] * 2
        libc.free.argtypes = [ctypes.c_void_p]

        def take(alignment: int, size: int) -> int:
            address = int(libc.aligned_alloc(alignment, size))
            self._sizes[address] = size
            self.held += size
            self.most = max(self.most, self.held)
            return address

        def give(address: int | None) -> None:
            if address is not None:
                self.held -= self._sizes.pop(address)
                libc.free(address)

        self.give = give
        self._take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(take)
        self._give = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(give)
        self.symbols = {
            "aligned_alloc": ctypes.cast(self._take, ctypes.c_void_p).value,
            "free": ctypes.cast(self._give, ctypes.c_void_p).value,
        }


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Allocator]:
    counting, link = Allocator(), jit.link
    monkeypatch.setattr(
        jit, "link", lambda code, exports, imports: link(code, exports, {**imports, **counting.symbols})
    )
    monkeypatch.setattr(frames, "_free", lambda pointer: counting.give(pointer.value))
    yield counting
    gc.collect()  # what calls have kept goes with the compiled program
    assert counting.held == 0


@pytest.mark.unguarded
@pytest.mark.parametrize("checkpoint", ["sqrt", pytest.param((64, 8), marks=pytest.mark.slow)], ids=str)
def test_planned_is_taken(checkpoint: Any, allocator: Allocator) -> None:
    compiled = az.compile(gradient(checkpoint), threads=1)
    fixed = compiled.peak_bytes(STATE, 0) - allocator.most
    for n in (0, 1, 100, 401):
        allocator.most = 0
        arena = compiled.backend.version(compiled._annotated).built(0).executable.arena_bytes([WIDTH], 1)
        compiled(STATE, n)
        assert compiled.peak_bytes(STATE, n) == arena + allocator.most + STATE.nbytes
    assert fixed > 0


@pytest.mark.unguarded
def test_temporaries_of_each_thread(allocator: Allocator) -> None:
    """Loops of different lengths side by side: the longest bounds all, once a thread."""

    @az.program
    def f(x: az.Array[az.f64, "m"], counts: az.Array[az.i64, "b"]) -> az.f64:
        return az.sum(az.map(lambda k: az.fori_loop(0, k, lambda i, s: az.sin(s * x), x), counts))

    counts = np.array([3, 100, 7])
    one, two = (az.compile(az.grad(f), threads=threads) for threads in (1, 2))
    one(STATE, counts)
    assert 100 * STATE.nbytes <= allocator.most <= one.peak_bytes(STATE, counts)
    longest, shorter = one.peak_bytes(STATE, counts), one.peak_bytes(STATE, counts[[0, 2, 2]])
    assert longest - shorter == 93 * STATE.nbytes
    assert two.peak_bytes(STATE, counts) - two.peak_bytes(STATE, counts[[0, 2, 2]]) == 2 * (longest - shorter)


def test_results_that_the_run_makes_room_for() -> None:
    @az.program
    def f(n: az.i64):
        return az.generate(n, lambda i: i * 0.5)

    assert 8000 <= az.compile(f).peak_bytes(1000) <= 8128


def test_a_program_that_stores_nothing_takes_its_result_alone() -> None:
    assert az.compile(az.program(lambda x: 2 * x)).peak_bytes(STATE) == STATE.nbytes


def test_a_sum_takes_no_array_of_its_elements() -> None:
    squares = az.program(lambda x: az.sum(x * x)).at(az.Array[az.f64, "100000"])
    assert az.compile(squares).peak_bytes(np.empty(100_000)) < 10_000


@pytest.mark.unguarded
def test_sizes_that_an_argument_holds() -> None:
    """At a place that is known, and at one that goes round: each bounds what is taken."""

    @az.program
    def one(x: az.f64, counts: az.Array[az.i64, "b"]) -> az.f64:
        return az.sum(az.sort(az.generate(counts[1], lambda i: az.sin(x * i))))

    @az.program
    def rounds(x: az.f64, n: az.i64, k: az.i64) -> az.f64:
        return az.sum(az.generate(n, lambda i: az.sum(az.sort(az.generate(i % k, lambda j: az.sin(x * j))))))

    def bytes_of(*counts: int) -> int:
        return az.compile(one, threads=1).peak_bytes(1.0, np.array(counts))

    assert bytes_of(5, 40_000, 7) - bytes_of(5, 8_000, 7) >= 32_000 * STATE.itemsize
    assert bytes_of(5, 8_000, 7) == bytes_of(40_000, 8_000, 90_000)
    peak = az.compile(rounds, threads=1).peak_bytes
    assert peak(1.0, 1001, 1000) == peak(1.0, 5000, 1000) > peak(1.0, 5000, 800) >= 800 * STATE.itemsize


def test_what_the_run_decides_below_a_size_is_bounded() -> None:
    """Blocks of lengths that are states: none has more than all."""

    @az.program
    def f(x: az.Array[az.f64, "m"], steps: az.i64) -> az.f64:
        def step(_: az.Expr, state: Any) -> Any:
            k, x = state
            return 2 * k, az.generate(x.shape[0], lambda i: az.sin(x[i // (2 * k) * k + i % k]))

        return az.sum(az.fori_loop(0, steps, step, (1, x))[1])

    gradient = az.compile(az.grad(f), threads=1)
    assert 3 * STATE.nbytes < gradient.peak_bytes(STATE, 3) < 20 * STATE.nbytes
    np.testing.assert_allclose(gradient(STATE, 3), az.evaluate(az.grad(f))(STATE, 3), rtol=1e-13)


def test_what_only_the_run_knows_is_refused() -> None:
    @az.program
    def f(x: az.Array[az.f64, "m"]) -> az.f64:
        return az.sum(az.while_loop(lambda s: az.sum(s) > 1, lambda s: az.sin(s * x), x))

    assert STATE.nbytes <= az.compile(f, threads=1).peak_bytes(STATE) < 2 * STATE.nbytes
    with pytest.raises(ValueError, match=r"grad\(f\): how much memory .* is known when it has run.*test_memory.py"):
        az.compile(az.grad(f)).peak_bytes(STATE)


# Evaluate


@pytest.mark.slow
@pytest.mark.unguarded
def test_evaluate_holds_as_many_states() -> None:
    def held(checkpoint: Any, n: int) -> float:
        run = az.evaluate(gradient(checkpoint))
        run(STATE, n)
        gc.collect()
        with lifted_limits():  # when it runs is a matter of luck, and worth some states
            tracemalloc.start()
            run(STATE, n)
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return most / STATE.nbytes

    for checkpoint in ("all", "sqrt"):
        few, many = held(checkpoint, 40), held(checkpoint, 160)
        growth = STORED[checkpoint](160) - STORED[checkpoint](40)
        assert growth <= many - few <= 2.5 * growth  # states are collected, then stacked
