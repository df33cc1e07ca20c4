"""What running code has to do with its surroundings: failures, the number of threads, and the pool of workers.

Workers are started when a call first wants them and stay; they are plain C threads that know nothing of Python, so
that the interpreter may end while they sleep. A forked child has none of its parent's threads: its pool starts
again empty.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, wraps
from typing import TypeVar

from ..core.settings import names_in

T = TypeVar("T")

_LOOKS = 8000  # at the gate before a worker sleeps: about 100 microseconds, some times what it takes to wake it


def once(make: Callable[[], T]) -> Callable[[], T]:
    """A function that makes its result when it is first called; other threads wait for that.

    With a cache alone, two threads may make one each; it keeps one, and the memory of the other is freed while in use.
    """
    lock, made = threading.Lock(), cache(make)

    @wraps(make)
    def get() -> T:
        with lock:
            return made()

    return get


@contextmanager
def beside(makes: Sequence[Callable[[], object]]) -> Iterator[None]:
    """Have another thread make what will be asked for soon; what fails there fails again when it is asked for."""

    def work() -> None:
        with suppress(Exception):
            for make in makes:
                make()

    other = threading.Thread(target=work)
    if makes:
        other.start()
    try:
        yield
    finally:
        if makes:
            other.join()  # so that a process that is forked later has no lock that nobody opens


# What ADZE_DEBUG may name: bounds, every access to memory (llvm/bounds.py); unoptimised, code as it is emitted.
_DEBUGGED = ("bounds", "unoptimised")


@dataclass(frozen=True)
class Pool:
    """The compiled part of a pool: the main function of workers, and what runs parallel loops and forks, by address."""

    worker: int
    addresses: Mapping[str, int]
    reset: Callable[[], None]  # there are no workers
    equip: Callable[..., None]  # with what has to do with stacks (``llvm/stacks.py``)
    library: object  # which holds the code


@dataclass(frozen=True)
class Failure:
    """A requirement that did not hold: its site, and the integers it recorded."""

    site: int
    values: tuple[int, ...]


@cache
def default_threads() -> int:
    """The number in the environment variable ``ADZE_THREADS``, else one thread a CPU that this process may use.

    Both are looked at once, when a program first runs: asking the system takes longer than a small program.
    """
    wanted = os.environ.get("ADZE_THREADS", "")
    if wanted.strip():
        try:
            count = int(wanted)
        except ValueError:
            count = 0
        if count < 1:
            raise ValueError(f"ADZE_THREADS must be a positive integer, got {wanted!r}")
        return count
    return cpus()


def debugged() -> frozenset[str]:
    """What the environment variable ``ADZE_DEBUG`` asks for, to find mistakes of the compiler.

    It names several, separated by commas. ValueError for a name that there is not.
    """
    return frozenset(names_in("ADZE_DEBUG", _DEBUGGED))


def cpus() -> int:
    """The CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """The workers of one pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._start()
        os.register_at_fork(after_in_child=self._start)

    def _start(self) -> None:
        self.count = 0
        self._lock = threading.Lock()
        self.pool.reset()

    def ensure(self, threads: int) -> None:
        """Have workers enough for so many threads, the calling one included."""
        if self.count >= threads - 1:
            return
        with self._lock:
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                while self.count < threads - 1:
                    self._add()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _add(self) -> None:
        libc = ctypes.CDLL(None)
        handle = ctypes.c_void_p()
        # more workers than CPUs would keep each other from their work by looking for some
        looks = _LOOKS if self.count < cpus() - 1 else 0
        error = libc.pthread_create(
            ctypes.byref(handle), None, ctypes.c_void_p(self.pool.worker), ctypes.c_void_p(looks)
        )
        if error:
            raise RuntimeError(f"no thread could be started: {os.strerror(error)}")
        libc.pthread_detach(handle)
        self.count += 1
