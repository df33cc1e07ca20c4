"""Functions of Python that compiled code calls: one entry for all calls of a program, under the interpreter's lock.
(Functions of C it calls by itself.)

The code tells the number of the call (``lowering/calls.py``), the iteration that it is part of, where the arguments and
results are, with their extents, and where the failure record is, which is another in each run. The function runs on
copies, or on views that cannot be written to; what it gives is copied to where it shall be. A view keeps what it is
a view of: the arena of the call, which then is that of no later call, or an array of the caller's. Of memory that is
freed by the code itself there are no views, but copies.

What a function raises is kept by the run until that has ended, which it does as after any failure: no further function
is called, and the exception reaches the caller as it is, with the line of the call beside it. Of several that were
running at once, it is that of the first iteration, in the order of the program; one that ends the interpreter
(KeyboardInterrupt) comes before all others.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...core.foreign import BrokenPromise, applied, promised
from ...core.types import Type, element, rank
from ..lowering.context import Site
from .frames import Frame

Array = np.ndarray[Any, Any]

_FAILED = 1
_Order = tuple[bool, Sequence[int], int]  # of exceptions: those of the language, then by iteration, then by call


class Callbacks:
    """The functions that a program calls; it may be run by several threads at once."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        self.views = any(site.function.views for site in sites)
        self._raised: dict[int, tuple[_Order, BaseException]] = {}  # by the address of the failure record of a run
        self._frames: dict[int, Frame] = {}  # of the runs, where there are views
        self._entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(self._call)

    @property
    def address(self) -> int:
        """That of the entry; it may be called from any thread, as long as this object is there."""
        return int(ctypes.cast(self._entry, ctypes.c_void_p).value or 0)

    @contextmanager
    def running(self, frame: Frame) -> Iterator[None]:
        """The time in which code runs on a frame. An arena that is viewed afterwards is left to its views."""
        if not self.views:
            yield
            return
        self._frames[frame.record] = frame
        before = sys.getrefcount(frame.block)
        try:
            yield
        finally:
            del self._frames[frame.record]
            frame.owners = ()
            if sys.getrefcount(frame.block) > before:
                frame.leave_arena()

    def raised(self, run: int) -> BaseException | None:
        """What a function raised in a run, which is over."""
        found = self._raised.pop(run, None)
        return None if found is None else found[1]

    def _call(self, number: int, words: int, run: int) -> int:
        site, iteration = self._sites[number], list[int]()
        try:
            if run in self._raised:
                return _FAILED
            rest = _words(site, words)
            iteration.extend([next(rest) for _ in range(site.loops)])
            _run(site, rest, self._frames.get(run))
        except BaseException as error:
            promise = isinstance(error, BrokenPromise)
            raised = TypeError(f"{error}, at {site.origin}") if promise else error
            if not promise:
                raised.add_note(f"in {site.function.name}, which is called at {site.origin}")
            order = isinstance(error, Exception), iteration, number
            if run not in self._raised or order < self._raised[run][0]:
                self._raised[run] = order, raised
            return _FAILED
        return 0


def _words(site: Site, address: int) -> Iterator[int]:
    """What describes a call: the iteration, then for each array its address, and its extents."""
    count = site.loops + sum([1 + rank(type) for type in (*site.arguments, *site.results)])
    return iter(list((ctypes.c_int64 * count).from_address(address)))


def _run(site: Site, words: Iterator[int], frame: Frame | None) -> None:
    """Run a function on arrays that are described by words, with views of the memory of a frame, if there is one."""
    function = site.function
    arguments = [_given(type, words, frame if function.views else None) for type in site.arguments]
    places = [_array(type, *_described(type, words)) for type in site.results]
    types = promised(function, arguments, site.arguments)
    for place, result in zip(places, applied(function, arguments, types), strict=True):
        if place.shape != np.shape(result):
            shape = ", ".join(map(str, np.shape(result)))
            raise BrokenPromise(f"{function.name} gave an array of {shape}, where {place.shape} was promised")
        place[...] = result


def _given(type: Type, words: Iterator[int], frame: Frame | None) -> Any:
    """An argument: a number, a view of what a frame owns, or else a copy."""
    address, extents = _described(type, words)
    size = int(np.prod(extents)) * element(type).bytes
    for owner in () if frame is None or not rank(type) or not size else (frame.block, *frame.owners):
        offset = address - owner.ctypes.data
        if 0 <= offset <= owner.nbytes - size:
            return np.ndarray(extents, element(type).dtype, owner, offset)
    return np.array(_array(type, address, extents))[()]


def _described(type: Type, words: Iterator[int]) -> tuple[int, list[int]]:
    """The address and the extents that the next words say."""
    return next(words), [max(0, next(words)) for _ in range(rank(type))]


def _array(type: Type, address: int, extents: Sequence[int]) -> Array:
    """The memory of an array, or of a number."""
    scalar, size = element(type), int(np.prod(extents))
    if not size:
        return np.empty(extents, scalar.dtype)
    memory: Any = (ctypes.c_char * (size * scalar.bytes)).from_address(address)
    array: Array = np.frombuffer(memory, scalar.dtype)
    return array.reshape(extents)
