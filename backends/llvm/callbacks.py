"""Functions of Python that compiled code calls: one entry for all calls of a program, under the interpreter's lock.
(Functions of C it calls by itself.)

The code tells the number of the call (``lowering/calls.py``), the iteration that it is part of, where the arguments and
results are, with their extents, how many threads it has there, and where the failure record is, which is another in
each run. The function runs on copies, or on views that cannot be written to; what it gives is copied to where it shall
be, unless it is handed that place to fill. A view keeps what it is a view of: the arena of the call, which then is that
of no later call, or an array of the caller's. Of memory that is freed by the code itself there are no views, but
copies.

What a function raises is kept by the run until that has ended, which it does as after any failure: no further function
is called, and the exception reaches the caller as it is, with the line of the call beside it. Of several that were
running at once, it is that of the first iteration, in the order of the program; one that ends the interpreter
(KeyboardInterrupt) comes before all others.

Python runs handlers of signals as it enters a function, before any ``try`` of that. What they raise there ctypes gives
to ``sys.unraisablehook`` and drops: so that is where a run in the main thread finds it. And since what ctypes returns
then is no answer, the code looks at a word that only a call which has come to its end clears.
"""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...core.foreign import BrokenPromise, filled, given, promised, surroundings
from ...core.types import Type, element, rank
from ..lowering.context import Site
from .frames import Frame

Array = np.ndarray[Any, Any]

_Span = tuple[int, int, Array]  # the addresses of its first byte and of that behind it, and what owns it
_Order = tuple[bool, Sequence[int], int]  # of exceptions: those of the language, then by iteration, then by call


class Callbacks:
    """The functions that a program calls; it may be run by several threads at once."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._calls = [_Call(site) for site in sites]
        self.views = any(site.function.views or site.function.fills for site in sites)
        self._raised: dict[int, tuple[_Order, BaseException]] = {}  # by the address of the failure record of a run
        self._spans: dict[int, list[_Span]] = {}  # the memory of each run, where there are views
        words = ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
        self._entry = ctypes.CFUNCTYPE(None, *words)(self._call)

    @property
    def address(self) -> int:
        """That of the entry; it may be called from any thread, as long as this object is there."""
        return int(ctypes.cast(self._entry, ctypes.c_void_p).value or 0)

    @contextmanager
    def running(self, frame: Frame) -> Iterator[None]:
        """The time in which code runs on a frame. An arena that is viewed afterwards is left to its views."""
        if not self.views:
            with _entered():
                yield
            return
        before = sys.getrefcount(frame.block)
        owned = [(int(owner.ctypes.data), owner) for owner in (frame.block, *frame.owners)]
        self._spans[frame.record] = [(start, start + owner.nbytes, owner) for start, owner in owned]
        del owned
        try:
            with _entered():
                yield
        finally:
            del self._spans[frame.record]
            frame.owners = ()
            if sys.getrefcount(frame.block) > before:
                frame.leave_arena()

    def raised(self, run: int) -> BaseException | None:
        """What a function raised in a run, which is over."""
        found = self._raised.pop(run, None)
        return None if found is None else found[1]

    def _call(self, number: int, described: int, threads: int, run: int) -> None:
        iteration, around = list[int](), surroundings.threads
        try:
            call = self._calls[number]
            if run in self._raised:
                return
            memory = (ctypes.c_int64 * (call.count + 1)).from_address(described)
            words = iter(memory[: call.count])
            iteration.extend([next(words) for _ in range(call.site.loops)])
            surroundings.threads = threads
            call.run(words, self._spans.get(run, ()))
            memory[call.count] = 0
        except BaseException as error:
            self._keep(error, number, iteration, run)
        finally:
            surroundings.threads = around

    def _keep(self, error: BaseException, number: int, iteration: Sequence[int], run: int) -> None:
        """Keep what a call in a run has raised, unless something is kept that comes before it."""
        site, promise = self._calls[number].site, isinstance(error, BrokenPromise)
        raised = TypeError(f"{error}, at {site.origin}") if promise else error
        if not promise:
            raised.add_note(f"in {site.function.name}, which is called at {site.origin}")
        order = isinstance(error, Exception), iteration, number
        if run not in self._raised or order < self._raised[run][0]:
            self._raised[run] = order, raised


@contextmanager
def _entered() -> Iterator[None]:
    """The time in which what is raised as a call is entered is kept by its run, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = sys.unraisablehook

    def keep(lost: sys.UnraisableHookArgs) -> None:
        trace, error = lost.exc_traceback, lost.exc_value
        if trace is None or error is None or trace.tb_frame.f_code is not Callbacks._call.__code__:
            before(lost)
            return
        entry = trace.tb_frame.f_locals
        entry["self"]._keep(error, entry["number"], (), entry["run"])

    sys.unraisablehook = keep
    try:
        yield
    finally:
        if sys.unraisablehook is keep:
            sys.unraisablehook = before


class _Call:
    """A place where a function is called, and what describes a call: the iteration, then addresses and extents."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.count = site.loops + sum([1 + rank(type) for type in (*site.arguments, *site.results)])
        self._promised: tuple[list[tuple[int, ...]], Sequence[Type]] | None = None  # for the shapes of the last call

    def run(self, words: Iterator[int], spans: Sequence[_Span]) -> None:
        """Run the function on arrays that are described by words, with views of these spans of memory, if it wants."""
        function, site = self.site.function, self.site
        arguments = [_given(type, words, spans if function.views else ()) for type in site.arguments]
        if function.fills:
            self._fill(arguments, [_described(type, words) for type in site.results], spans)
            return
        places = [_array(type, *_described(type, words)) for type in site.results]
        for place, result in zip(places, given(function, arguments, self._types(arguments)), strict=True):
            if place.shape != result.shape:
                shape = ", ".join(map(str, result.shape))
                raise BrokenPromise(f"{function.name} gave an array of {shape}, where {place.shape} was promised")
            place[...] = result

    def _fill(self, arguments: Sequence[Any], results: Sequence[tuple[int, list[int]]], spans: Sequence[_Span]) -> None:
        """Have the function fill its results where they shall be, or arrays that are copied there."""
        copied = list[tuple[Array, Array]]()
        views = list[Array]()
        for type, (address, extents) in zip(self.site.results, results, strict=True):
            view = _view(type, address, extents, spans)
            if view is None:
                view = np.empty(extents, element(type).dtype)
                copied.append((_array(type, address, extents), view))
            views.append(view)
        filled(self.site.function, arguments, views)
        for place, view in copied:
            place[...] = view

    def _types(self, arguments: Sequence[Any]) -> Sequence[Type]:
        shapes, known = [argument.shape for argument in arguments], self._promised
        if known is None or known[0] != shapes:
            known = self._promised = shapes, promised(self.site.function, arguments, self.site.arguments)
        return known[1]


def _given(type: Type, words: Iterator[int], spans: Sequence[_Span]) -> Any:
    """An argument: a number, a view of what somebody owns, or else a copy."""
    address, extents = _described(type, words)
    view = _view(type, address, extents, spans)
    return np.array(_array(type, address, extents))[()] if view is None else view


def _view(type: Type, address: int, extents: Sequence[int], spans: Sequence[_Span]) -> Array | None:
    """An array as part of what owns its memory; None for a number, and where nobody is known to."""
    size = math.prod(extents) * element(type).bytes
    for start, end, owner in spans if extents and size else ():
        if start <= address and address + size <= end:
            return np.ndarray(extents, element(type).dtype, owner, address - start)
    return None


def _described(type: Type, words: Iterator[int]) -> tuple[int, list[int]]:
    """The address and the extents that the next words say."""
    return next(words), [max(0, next(words)) for _ in range(rank(type))]


def _array(type: Type, address: int, extents: Sequence[int]) -> Array:
    """The memory of an array, or of a number."""
    scalar, size = element(type), math.prod(extents)
    if not size:
        return np.empty(extents, scalar.dtype)
    memory: Any = (ctypes.c_char * (size * scalar.bytes)).from_address(address)
    return np.ndarray(extents, scalar.dtype, memory)
