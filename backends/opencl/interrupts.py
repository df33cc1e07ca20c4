"""Signals while a device works: the main thread waits so that Python's handlers of signals run meanwhile.

A wait inside of a driver cannot be interrupted. So before the main thread reads from the device, it asks whether the
kernel before that has ended, and again after pauses, in which handlers run. The pauses grow with the time that was
waited: a wait that is over soon has none, and a long one takes a fiftieth more at most. Other threads wait in the
driver, as no handler runs in them. So does the main thread in a *brief* call, one for sizes and numbers for which the
call before took less than ``BRIEF``: drivers wake it sooner, and have the next command when the one before has ended.

What is in a queue cannot be taken back. So the host runs ahead of the device by some kernels only, and these are all
that an interrupted call leaves behind. The memory of that call, which they still use, is kept until they have ended.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

BRIEF = 0.02  # seconds

_PATIENCE = 100e-6  # seconds before the first pause
_SHARE = 50  # of the time waited that a pause takes
_LONGEST = 0.02  # seconds of a pause
_AHEAD = 16  # kernels between one that the host remembers and the next; it waits for the one before the latest of these
_COMPLETE = 0  # of CL_COMMAND_EXECUTION_STATUS: what is below is an error, what is above is to come


class Progress:
    """How far the queue of a device has come, which runs in order."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._latest: Any = None  # the event of the kernel that was enqueued last
        self._remembered: Any = None
        self._count = 0
        self._left: list[tuple[Any, Any]] = []  # what calls were using that did not come to their end
        self._brief = False  # the call of the main thread

    @contextmanager
    def of_call(self, brief: bool) -> Iterator[None]:
        """Around a call: whether it is known to be brief."""
        if not _is_main():
            yield
            return
        before, self._brief = self._brief, brief  # that of the call that a handler has interrupted
        try:
            yield
        finally:
            self._brief = before

    def enqueued(self, event: Any) -> None:
        """A kernel was enqueued. Waits where the device lags behind."""
        self._latest = event
        self._count += 1
        if self._count % _AHEAD == 0:
            before, self._remembered = self._remembered, event
            if not self._brief:
                self._wait_for(before)

    def wait(self) -> None:
        """Let the kernels in the queue end, if this is the main thread. Raises what handlers of signals raise."""
        if self._left or not self._brief:
            self._wait_for(self._latest)
        if self._left:
            self._left = [(event, used) for event, used in self._left if not _over(event)]

    def leave(self, used: Any) -> None:
        """Keep this until the kernels in the queue have ended: a call that uses it ends without them."""
        self._left.append((self._latest, used))

    def _wait_for(self, event: Any) -> None:
        if _over(event) or not _is_main():
            return
        self._queue.flush()
        started = time.monotonic()
        while not _over(event):
            waited = time.monotonic() - started
            if waited > _PATIENCE:
                time.sleep(min(waited / _SHARE, _LONGEST))
            else:
                os.sched_yield()  # to the driver's threads, if the device is the CPU


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _over(event: Any) -> bool:
    return event is None or event.command_execution_status <= _COMPLETE
