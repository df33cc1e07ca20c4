"""Signals that come while compiled code runs: handlers run soon, and what they raise ends the call."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from load import ROOT

import adze as az

pytestmark = pytest.mark.unguarded

SOON = 1.0  # seconds, on a machine that does other things besides
LONG = 10**13  # iterations, which nobody waits for


@contextmanager
def handled(handler: Any, number: int = signal.SIGINT) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Python's own handler, which there is none of in what a shell has started in the background."""
    with handled(signal.default_int_handler):
        yield


@contextmanager
def later(seconds: float, times: int = 1, number: int = signal.SIGINT) -> Iterator[None]:
    """Send a signal to this process, after so many seconds, so many times."""
    over = threading.Event()

    def send() -> None:
        for _ in range(times):
            if not over.wait(seconds):
                os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass
class Long:
    """A program that a number makes long, on some threads."""

    program: Callable[..., Any]
    threads: int = 1


@az.program
def counted(n: az.i64) -> az.f64:
    return az.while_loop(lambda s: s < n, lambda s: s + 1.0, 0.0)


@az.program
def tight(n: az.i64) -> az.f64:
    return az.fori_loop(0, n, lambda i, s: s * 0.5 + 1.0, 0.0)


@az.program
def nested(n: az.i64) -> az.f64:
    return az.fori_loop(0, n, lambda i, s: az.fori_loop(0, n % 7, lambda j, t: t * 0.5 + 1.0, s), 0.0)


@az.program
def rows(n: az.i64) -> az.Array[az.f64, "65"]:
    return az.fori_loop(0, n, lambda i, s: s * 0.5 + az.sin(s), az.iota(65) * 1.0)


@az.program
def chunks(n: az.i64) -> az.f64:
    """Parallel, each iteration of which is short, and all of which are many."""
    return az.sum(az.map(lambda k: az.fori_loop(0, 5 + k % 3, lambda i, s: az.sin(s + k), 0.0), az.iota(n // 100)))


@az.program
def wide(n: az.i64) -> az.f64:
    """Parallel, with lanes only in each of many iterations."""
    rows = az.iota(n // 10**6)
    return az.sum(az.map(lambda k: az.sum(az.map(lambda j: az.sin(k + 1.0 * j), az.iota(500))), rows))


@az.program
def uneven(n: az.i64) -> az.Array[az.f64, "64"]:
    """Parallel, with one iteration that takes long: some thread waits for another."""
    return az.map(lambda k: az.fori_loop(0, az.where(k == n % 64, n, 1), lambda i, s: s * 0.5 + k, 0.0), az.iota(64))


@az.program
def decided(n: az.i64):
    """With a result whose size the run decides, which is there before the rest."""
    found = az.filter(lambda v: v % 2 == 0, az.iota(20_000))
    return found, az.while_loop(lambda s: s < n, lambda s: s + 1.0, az.sum(found) * 0.0)


@az.program
def product(n: az.i64) -> az.Array[az.f64, "80 80"]:
    a = az.eye(80) * 0.5
    return az.fori_loop(0, n, lambda i, s: s @ a, a)


PROGRAMS = [
    Long(counted),
    Long(tight),
    Long(nested),
    Long(rows),
    Long(chunks),
    Long(chunks, 2),
    Long(wide),
    Long(wide, 2),
    Long(uneven),
    Long(uneven, 2),
    Long(decided),
    Long(product, 2),
]


def interrupted(call: Callable[[], Any], raised: type[BaseException] = KeyboardInterrupt) -> None:
    with later(0.1):
        started = time.monotonic()
        with pytest.raises(raised):
            call()
        assert time.monotonic() - started < 0.1 + SOON


def same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("long", PROGRAMS, ids=lambda long: f"{long.program.name}-{long.threads}")
def test_long_calls_end(long: Long) -> None:
    compiled = az.compile(long.program, threads=long.threads)
    wanted = compiled(1000)
    bound = compiled.bind(LONG + 3)
    for call in (lambda: compiled(LONG), lambda: compiled(LONG + 37), bound):
        interrupted(call)
        same(compiled(1000), wanted)
    with pytest.raises(TypeError):
        compiled("many")  # a message of its own, and no signal that was left


def test_arrays_to_write_to_may_be_used_again() -> None:
    compiled, memory = az.compile(rows), np.empty(65)
    interrupted(lambda: compiled(LONG, out=memory))
    assert compiled(10, out=memory) is memory
    np.testing.assert_array_equal(memory, compiled(10))


def test_a_handler_may_raise_what_it_likes() -> None:
    error = LookupError("of the handler")

    def handler(*_: Any) -> None:
        raise error

    with handled(handler), later(0.1), pytest.raises(LookupError) as found:
        az.compile(tight)(LONG)
    assert found.value is error
    frames = [entry.name for entry in found.traceback]
    assert frames[0] == "test_a_handler_may_raise_what_it_likes" and frames[-1] == "handler"


def test_a_handler_that_raises_nothing_lets_the_call_go_on() -> None:
    seen: list[float] = []
    compiled = az.compile(tight)
    with handled(lambda *_: seen.append(time.monotonic())), later(0.1, 3):
        started = time.monotonic()
        steps = 50_000_000
        while len(seen) < 3:
            result = compiled(steps)
            assert time.monotonic() - started < 60
    assert result == compiled(1000) == 2.0 and seen == sorted(seen)


def test_a_handler_may_call_programs() -> None:
    """On the same workers as the call that it interrupts; and a signal within ends the outer call only after it."""
    inner, outer = az.compile(rows, threads=2), az.compile(uneven, threads=2)
    wanted, found = inner(100), []

    def handler(*_: Any) -> None:
        found.append(inner(100))
        if len(found) == 3:
            raise KeyboardInterrupt

    with handled(handler), later(0.1, 3), pytest.raises(KeyboardInterrupt):
        outer(LONG)
    assert len(found) == 3
    for each in found:
        np.testing.assert_array_equal(each, wanted)


def test_calls_of_other_threads_are_not_interrupted() -> None:
    compiled, found = az.compile(tight), list[float]()
    compiled(10)

    def run() -> None:
        for _ in range(20):
            found.append(compiled(10_000_000))

    thread = threading.Thread(target=run)
    with later(0.1):
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(60)
    interrupted(lambda: compiled(LONG))  # beside theirs
    thread.join()
    assert found == [2.0] * 20


@pytest.mark.rest
def test_a_forked_child_is_interrupted_too() -> None:
    script = """if True:
        import os, signal, threading, time
        import adze as az

        signal.signal(signal.SIGINT, signal.default_int_handler)
        compiled = az.compile(lambda n: az.fori_loop(0, n, lambda i, s: s * 0.5 + 1.0, 0.0), threads=1)
        assert compiled(1000) == 2.0
        child = os.fork()
        if child == 0:
            try:
                print("running", flush=True)
                compiled(10**13)
            except KeyboardInterrupt:
                os._exit(7 if compiled(1000) == 2.0 else 8)
            os._exit(9)
        time.sleep(0.5)
        os.kill(child, signal.SIGINT)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("long", [Long(uneven, 2), Long(decided)], ids=["parallel", "serial"])
def test_hundreds_of_interruptions(long: Long) -> None:
    compiled = az.compile(long.program, threads=long.threads)
    wanted = compiled(1000)

    class Alarm(Exception):
        pass

    def handler(*_: Any) -> None:
        raise Alarm

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4

    before = 0
    with handled(handler, signal.SIGALRM):
        for number in range(200):
            with pytest.raises(Alarm):
                signal.setitimer(signal.ITIMER_REAL, 0.001)
                compiled(LONG + number)
            same(compiled(1000), wanted)
            if number == 100:
                before = resident()
    assert resident() - before < 5_000  # kilobytes
