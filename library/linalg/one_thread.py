"""LAPACK on one thread: while a call is under way, OpenBLAS beneath NumPy and SciPy has no threads beside it.

So results have the same bits on any number of cores, and no thread of the library waits for work, by spinning, on a
core where one of Adze's would run. OpenBLAS has one number of threads for the whole process: the first call sets it,
the last one puts back what it was, and what others compute with NumPy or SciPy meanwhile has one thread, too::

    cholesky                    2 -> 1
        solve, in another thread     (1)
    ends                             (1)
        ends                    1 -> 2

The wheels of NumPy and SciPy bring an OpenBLAS each. Another library beneath them, or an OpenBLAS whose threads are
those of OpenMP, is left as it is.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import threading
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# What calls the libraries, through which their functions are found; and what their names begin and end with.
_CALLERS = ("numpy.linalg._umath_linalg", "scipy.linalg._flapack", "scipy.linalg._fblas")
_PREFIXES, _SUFFIXES = ("scipy_", ""), ("64_", "_64", "")
_ITS_OWN = 1  # the kind of threads that OpenBLAS makes itself


class _Library(NamedTuple):
    """The functions of an OpenBLAS that get and set its number of threads."""

    number: Callable[[], int]
    set_number: Callable[[int], None]


def _found() -> Iterator[_Library]:
    """The libraries with threads of their own, each once."""
    places = set[int | None]()
    for caller in _CALLERS:
        # Functions that take less time than it takes to give up the interpreter's lock and to get it back.
        loaded = ctypes.PyDLL(importlib.import_module(caller).__file__)
        for prefix, suffix in product(_PREFIXES, _SUFFIXES):
            functions: list[Any] = [
                getattr(loaded, f"{prefix}openblas_{name}{suffix}", None)
                for name in ("get_parallel", "get_num_threads", "set_num_threads")
            ]
            if None not in functions:
                kind, number, set_number = functions
                place = ctypes.cast(set_number, ctypes.c_void_p).value
                if kind() == _ITS_OWN and place not in places:
                    places.add(place)
                    yield _Library(number, set_number)


class _Libraries:
    """The libraries of this process, how many calls are under way, and what they found."""

    def __init__(self) -> None:
        self._before: list[tuple[Callable[[int], None], int]] = []  # what sets those with more threads, and how many
        self.after_fork()
        os.register_at_fork(after_in_child=self.after_fork)

    def after_fork(self) -> None:
        """No call is under way in a child, whose libraries are still to get back what calls of its parent found."""
        self._lock, self._calls = threading.Lock(), 0

    @functools.cached_property
    def _loaded(self) -> list[_Library]:
        return list(_found())

    def begin(self) -> None:
        with self._lock:
            if not self._calls:
                if not self._before:
                    self._before = [
                        (set_number, found) for number, set_number in self._loaded if (found := number()) != 1
                    ]
                for set_number, _ in self._before:
                    set_number(1)
            self._calls += 1

    def end(self) -> None:
        with self._lock:
            self._calls -= 1
            if not self._calls and self._before:
                for set_number, found in self._before:
                    set_number(found)
                self._before = []


_libraries = _Libraries()


def on_one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """The function, during whose calls LAPACK has one thread."""
    begin, end = _libraries.begin, _libraries.end

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        begin()
        try:
            return function(*args, **kwargs)
        finally:
            end()

    return called
