"""How long each nest of a call took: from code of its own, which looks at the clock before and behind each of them.

Code that nobody asks for a profile has no clock in it. What is made for one is kept with the version, not on disk.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...core.program import Instance
from ...core.progress import still
from ..cost import Breakdown, Row, measured, nests
from ..lowering import Lowered
from .artifact import Built
from .host import Machine


class Clocked:
    """The code of a form with clocks in it.

    What it notes are the time of its last look, and for each part of the function the nanoseconds and the runs; part 0
    is what stands between nests.
    """

    def __init__(self, instance: Instance, lower: Callable[[], Lowered], machine: Machine, flush: bool) -> None:
        parts = 1 + len(list(nests(lower().function.body)))
        self._words = (ctypes.c_int64 * (1 + 2 * parts))()
        machine = replace(machine, clock=ctypes.addressof(self._words))
        self._built = Built(instance, lower, machine, flush, None, None)

    def profile(self, leaves: Sequence[Any], threads: int | None, rows: Sequence[Row]) -> tuple[Breakdown, Any]:
        """Run a call twice, since the first makes what is missing, and tell what the rows took in the second.

        With it the result.
        """
        self._run(leaves, threads)
        with still():
            seconds, result = self._run(leaves, threads)
        spent, runs = [1e-9 * number for number in self._words[3::2]], self._words[4::2]
        return Breakdown.of(measured(rows, spent, runs), seconds), result

    def _run(self, leaves: Sequence[Any], threads: int | None) -> tuple[float, Any]:
        """The seconds of a call, which notes those of its parts, and its result."""
        ctypes.memset(self._words, 0, ctypes.sizeof(self._words))
        self._words[0] = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        started = time.perf_counter()
        result = self._built.calls.run(leaves, threads)
        return time.perf_counter() - started, result
