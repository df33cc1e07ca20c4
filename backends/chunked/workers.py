"""What travels to workers: things that a process unpacks once, who makes code, and arrays of the caller's memory.

    a task      Once(stage), Once(call), Maker     unpacked, and compiled, once a process
                chunks of x                        sent once a call, to one worker
                a large theta                      sent once a call, to all of them

What Dask has been sent is lost with the worker that has it: whoever uses it sends it again.
"""

from __future__ import annotations

import pickle
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib import metadata
from typing import Any, Generic, TypeVar

import numpy as np

from ...core.source import at_line
from ..llvm.host import lacking, machine_of
from ..target import Target
from .call import Chunk
from .files import Buffer
from .sources import InMemory

T = TypeVar("T")
Runs = Sequence[Sequence[tuple[int, Chunk]]]  # numbered chunks, by task

UNPACKED = 64  # things, at most, that a worker keeps
RECYCLED = 65 << 20  # bytes, at most, of buffers that a thread of a worker keeps: of a chunk of the default length
SENDINGS = 6  # of arrays, where the worker that they are sent to is lost meanwhile
PAUSE = 0.1  # seconds before the first one is repeated; the scheduler finds out that a worker is gone


class Once(Generic[T]):
    """Something that a process unpacks once, however many tasks bring it; in the process that has it, it stays."""

    def __init__(self, value: T) -> None:
        self.value = value

    @cached_property
    def _content(self) -> bytes:
        import cloudpickle

        content: bytes = cloudpickle.dumps(self.value)
        return content

    def __reduce__(self) -> Any:
        return _unpacked, (self._content,)


@lru_cache(UNPACKED)
def _unpacked(content: bytes) -> Once[Any]:
    return Once(pickle.loads(content))


@dataclass(frozen=True)
class Maker:
    """Who makes code: a version of Adze for a processor. Another one may give other bits."""

    version: str
    target: Target
    cpu: str | None = None  # the level of processors that was asked for

    @staticmethod
    def here(cpu: str | None) -> Maker:
        return Maker(_version(), machine_of(cpu).target, cpu)

    def check(self, client: Maker) -> None:
        """RuntimeError where a worker is not like the client."""
        if self.version != client.version:
            raise RuntimeError(f"this worker has version {self.version} of adze-lang, the client {client.version}")
        if self.target != client.target:
            makes = f"this worker makes code for {self.target}, the client for {client.target}: other bits"
            raise RuntimeError(f'{makes}; where processors differ, compile with cpu="x86-64-v3"')
        if self.cpu is not None and lacking(self.cpu):
            problem = f"has no {', '.join(lacking(self.cpu))}, which cpu={self.cpu!r} asks for"
            raise RuntimeError(f"the processor of this worker {problem}")


@cache
def _version() -> str:
    return metadata.version("adze-lang")


@dataclass(frozen=True, eq=False)
class Ranges:
    """Ranges of an array, in order, which chunks are taken of."""

    firsts: tuple[int, ...]  # where they begin
    arrays: tuple[np.ndarray[Any, Any], ...]
    axis: int

    @staticmethod
    def of(source: InMemory, chunks: Sequence[Chunk]) -> Ranges:
        """What these chunks need, neighbours in one range."""
        ends = list[Chunk]()
        for start, stop in chunks:
            if ends and ends[-1][1] == start:
                start, _ = ends.pop()
            ends.append((start, stop))
        return Ranges(tuple([start for start, _ in ends]), tuple([source.read(*each) for each in ends]), source.axis)

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        number = bisect_right(self.firsts, start) - 1
        first = self.firsts[number]
        return InMemory(self.arrays[number], self.axis).read(start - first, stop - first)


@contextmanager
def recycled(count: int) -> Iterator[list[Buffer]]:
    """Buffers for the arrays of a chunk, which a thread keeps for its next task unless they are large.

    Allocators of workers give memory back at once, and pages that are fresh cost several times what a copy does.
    """
    kept: list[Buffer] = _kept.__dict__.pop("buffers", [])
    buffers = [*kept, *[Buffer() for _ in range(count - len(kept))]][:count]
    yield buffers
    _kept.buffers = buffers if sum(buffer.nbytes for buffer in buffers) <= RECYCLED else []


_kept = threading.local()


class Sent:
    """Arguments that workers have been sent, for one call or for several: an array is sent once while it is given."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int | None], tuple[Any, Any, Any]] = {}  # array, how it was cut, what Dask gave

    def whole(self, client: Any, array: np.ndarray[Any, Any]) -> Any:
        """An array that all workers have."""
        return self._once(array, None, (), lambda: scattered(client, array, broadcast=True))

    def ranges(self, client: Any, source: InMemory, runs: Runs) -> Sequence[Any]:
        """What each run of chunks needs of an array, which one worker has."""

        def send() -> Any:
            return scattered(client, [Ranges.of(source, [chunk for _, chunk in run]) for run in runs])

        found: Sequence[Any] = self._once(source.array, source.axis, runs, send)
        return found

    def _once(self, array: Any, axis: int | None, runs: Runs, send: Callable[[], Any]) -> Any:
        known = self._found.get((id(array), axis))
        if known is None or known[1] != runs:
            known = self._found[id(array), axis] = array, runs, send()
        return known[2]

    def keep(self, arrays: Sequence[Any]) -> None:
        """Forget what is none of these."""
        given = set(map(id, arrays))
        self._found = {key: known for key, known in self._found.items() if key[0] in given}


def scattered(client: Any, value: Any, broadcast: bool = False) -> Any:
    """What Dask gives for arrays that it has sent to workers; RuntimeError where these are lost again and again."""
    for attempt in range(SENDINGS):
        try:
            return client.scatter(value, broadcast=broadcast, hash=False)
        except OSError as error:  # the connection to a worker is closed, or there is none
            if attempt + 1 == SENDINGS:
                raise RuntimeError(at_line(f"arrays cannot be sent to workers: {error}")) from error
            time.sleep(PAUSE * 2**attempt)
    raise AssertionError("the last sending has an end")
