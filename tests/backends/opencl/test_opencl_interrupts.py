"""Signals that come while a device works: handlers run soon, what they raise ends the call, and the next call works."""

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_interrupts import LONG, handled, interrupted, later

import adze as az
from adze.backends.opencl import version
from adze.backends.opencl.devices import Device, opened

pytestmark = [pytest.mark.unguarded, pytest.mark.usefixtures("opencl")]

X = np.linspace(0.0, 1.0, 5_000)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    with handled(signal.default_int_handler):
        yield


@az.program
def steps(x: az.Array[az.f64, "m"], n: az.i64) -> az.Array[az.f64, "m"]:
    """A kernel for each step; nothing is read before the end."""
    return az.fori_loop(0, n, lambda i, s: az.sin(s) + x, x)


@az.program
def decided(x: az.Array[az.f64, "m"], n: az.i64) -> az.f64:
    """A number is read for each step."""
    return az.while_loop(lambda s: s[1] < n, lambda s: (az.sin(s[0]) + x, s[1] + 1 + az.sum(s[0]) * 0.0), (x, 0.0))[1]


@az.program
def required(x: az.Array[az.f64, "m"], n: az.i64) -> az.Array[az.f64, "m"]:
    """Failures are looked for at the end."""
    return az.fori_loop(0, n, lambda i, s: az.sin(s[x.shape[0] - 1 - i % 7 * 0]) + x * 0.5, x)


@az.program
def slow(x: az.Array[az.f64, "m"], n: az.i64) -> az.Array[az.f64, "m"]:
    """Few kernels, of which each takes some milliseconds."""
    return az.fori_loop(0, n, lambda i, s: az.map(lambda v: az.fori_loop(0, 40, lambda j, t: az.sin(t), v), s), x)


@pytest.mark.rest
@pytest.mark.parametrize("program", [steps, decided, required, slow], ids=lambda program: program.name)
def test_long_calls_end(program: az.Program) -> None:
    compiled = az.compile(program, backend="opencl")
    wanted = compiled(X, 20)
    np.testing.assert_allclose(wanted, az.evaluate(program)(X, 20), rtol=1e-12)
    for _ in range(3):
        interrupted(lambda: compiled(X, LONG))
        started = time.monotonic()
        np.testing.assert_array_equal(compiled(X, 20), wanted)
        assert time.monotonic() - started < 5.0  # with what the interrupted call has left in the queue
    there = az.to_device(X)
    interrupted(lambda: compiled(there, LONG))
    np.testing.assert_array_equal(compiled(X, 20), wanted)


def test_nothing_more_is_given_to_the_device(opencl: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is some kernels ahead when the signal comes, where the device is not as fast, and then stops."""
    compiled, progress = az.compile(slow, backend="opencl"), opened(opencl).progress
    wanted, events = compiled(X, 10), list[Any]()
    enqueued = progress.enqueued
    monkeypatch.setattr(type(progress), "enqueued", lambda self, event: [events.append(event), enqueued(event)][1])
    interrupted(lambda: compiled(X, LONG))
    count = len(events)
    ahead = sum(event.command_execution_status > 0 for event in events)
    assert ahead <= 32 and 0 < count < LONG
    time.sleep(0.2)
    assert len(events) == count
    assert progress._left  # the memory of the call, until a call finds that its kernels have ended
    np.testing.assert_array_equal(compiled(X, 10), wanted)
    assert not progress._left


def test_a_handler_may_call_other_programs_and_let_the_call_go_on() -> None:
    outer, inner, found = az.compile(slow, backend="opencl"), az.compile(steps, backend="opencl"), list[Any]()
    wanted, expected = inner(X, 5), outer(X, 50)

    def handler(*_: Any) -> None:
        found.append(inner(X, 5))

    with handled(handler), later(0.02, 2):
        result = outer(X, 50)
        while len(found) < 2:
            time.sleep(0.01)
    np.testing.assert_array_equal(result, expected)
    assert all([np.array_equal(each, wanted) for each in found])


def test_a_handler_that_calls_what_it_interrupts_is_told() -> None:
    compiled = az.compile(steps, backend="opencl")
    wanted = compiled(X, 5)
    with handled(lambda *_: compiled(X, 5)), later(0.1), pytest.raises(RuntimeError, match="called by a handler"):
        compiled(X, LONG)
    np.testing.assert_array_equal(compiled(X, 5), wanted)


@pytest.mark.rest
def test_calls_of_other_threads_are_not_interrupted() -> None:
    compiled, found = az.compile(slow, backend="opencl"), list[Any]()
    wanted = compiled(X, 20)

    def run() -> None:
        for _ in range(10):
            found.append(compiled(X, 20))

    thread = threading.Thread(target=run)
    with later(0.1):
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(60)
    thread.join()
    assert len(found) == 10 and all([np.array_equal(each, wanted) for each in found])


def test_brief_calls_wait_in_the_driver(opencl: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are like the call before, and that was brief."""
    progress, waits = opened(opencl).progress, list[Any]()
    wait_for = progress._wait_for
    monkeypatch.setattr(type(progress), "_wait_for", lambda self, event: [waits.append(event), wait_for(event)][1])
    monkeypatch.setattr(version, "BRIEF", 60.0)
    compiled = az.compile(steps, backend="opencl")

    def waited(x: Any, n: int) -> bool:
        waits.clear()
        np.testing.assert_allclose(compiled(x, n), az.evaluate(steps)(x, n))
        return bool(waits)

    assert waited(X, 40) and not waited(X, 40) and not waited(X + 1, 40)
    assert waited(X, 41) and waited(X, 40) and waited(X[:10], 40) and not waited(X[:10], 40)
    monkeypatch.setattr(version, "BRIEF", 0.0)
    assert not waited(X[:10], 40) and waited(X[:10], 40)
