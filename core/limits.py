"""Python's limits while terms are made: its collector of garbage rests, and calls may be nested deep.

Graphs, terms and their meanings are all live while they are made; walking them again and again took most of the time
of long programs. They are as deep as the program's nest of loops and branches, and each level of it is some forty
calls of Python, which allows 1,000 by default: too few for a nest of 32.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Calls inside of each other. Few of them are made through C, so that this takes a small part of a thread's stack.
CALLS = 10_000

_lock = threading.Lock()
_before: list[int] = []  # the limits that there were when each of those that now nest deep began


@contextmanager
def lifted_limits() -> Iterator[None]:
    """Let calls be nested deep, and no garbage be collected, while much is made that lives on."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with nested_calls(CALLS):
            yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def nested_calls(count: int) -> Iterator[None]:
    """Let so many calls be nested, in all threads. Where that is asked for more than once, the last one ends it."""
    with _lock:
        _before.append(sys.getrecursionlimit())
        sys.setrecursionlimit(max(_before[-1], count))
    try:
        yield
    finally:
        with _lock:
            limit = _before.pop()
            if not _before:
                sys.setrecursionlimit(limit)
