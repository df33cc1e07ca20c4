"""Functions of Python that compiled code calls: one entry for all calls of a program, under the interpreter's lock.

The code tells the number of the call (``lowering/calls.py``), where the arguments and results are, with their extents,
and where the failure record is, which is another in each run. The function runs on copies; what it gives is copied to
where it shall be. What it raises is kept by the run until that has ended, which it does as after any failure: no more
functions are called, and the exception reaches the caller as it is, with the line of the call beside it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...core.foreign import BrokenPromise, applied, promised
from ...core.types import Type, element, rank
from ..lowering.context import Site

_FAILED = 1


class Callbacks:
    """The functions that a program calls; it may be run by several threads at once."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        self._raised: dict[int, BaseException] = {}  # by the address of the failure record of a run
        self._entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(self._call)

    @property
    def address(self) -> int:
        """That of the entry; it may be called from any thread, as long as this object is there."""
        return int(ctypes.cast(self._entry, ctypes.c_void_p).value or 0)

    def raised(self, run: int) -> BaseException | None:
        """What a function raised in a run, which is over."""
        return self._raised.pop(run, None)

    def _call(self, number: int, words: int, run: int) -> int:
        if run in self._raised:
            return _FAILED
        site = self._sites[number]
        try:
            _run(site, words)
        except BrokenPromise as error:
            self._raised.setdefault(run, TypeError(f"{error}, at {site.origin}"))
            return _FAILED
        except BaseException as error:
            error.add_note(f"in {site.function.name}, which is called at {site.origin}")
            self._raised.setdefault(run, error)
            return _FAILED
        return 0


def _run(site: Site, words: int) -> None:
    """Run a function on arrays that are described by some words: for each its address, and its extents."""
    count = sum([1 + max(1, rank(type)) for type in (*site.arguments, *site.results)])
    rest = iter(list((ctypes.c_int64 * count).from_address(words)))
    arguments = [np.array(_array(type, rest))[()] for type in site.arguments]
    places = [_array(type, rest) for type in site.results]
    types = promised(site.function, arguments, site.arguments)
    for place, result in zip(places, applied(site.function, arguments, types), strict=True):
        if place.shape != np.shape(result):
            shape = ", ".join(map(str, np.shape(result)))
            raise BrokenPromise(f"{site.function.name} gave an array of {shape}, where {place.shape} was promised")
        place[...] = result


def _array(type: Type, words: Iterator[int]) -> np.ndarray[Any, Any]:
    """The memory of an array, or of a number, as it is described by the next words."""
    address = next(words)
    extents = [max(0, next(words)) for _ in range(max(1, rank(type)))]
    scalar = element(type)
    size = int(np.prod(extents))
    if not size:
        return np.empty(extents, scalar.dtype)
    memory: Any = (ctypes.c_char * (size * scalar.bytes)).from_address(address)
    array: np.ndarray[Any, Any] = np.frombuffer(memory, scalar.dtype)
    return array.reshape(extents if rank(type) else ())
