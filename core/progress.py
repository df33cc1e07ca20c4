"""Progress: what takes more than a second is shown in one line of the terminal, which is wiped at the end.

    compiling grad(loss): LLVM, 3.2 s

There is one line for all threads; it tells of the task that has lasted longest. What is shown inside of a task, in the
same thread, is a part of it. A thread writes the line ten times a second, from the first second of a task on, and
sleeps else. It is there while there are tasks, ends with the process, and writes under a lock that the end of a task
takes, too: once a task is over, or has failed, nothing more is said of it. A fork waits for that lock, and the child
begins without tasks.

What is measured has no such thread beside it: ``still()`` ends it, and the line stands as it is meanwhile.

Nothing is written where standard error is no terminal, or after ``az.progress(False)``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

_PATIENCE = 1.0  # seconds before anything is shown
_INTERVAL = 0.1  # seconds between two looks at what there is to show
_WIPE = "\r\x1b[K"
_COLUMNS = 80  # of a terminal that does not say how wide it is


@dataclass(eq=False)
class Task:
    """What is being done, and which part of it at the moment."""

    text: str
    part: str = ""
    started: float = field(default_factory=time.perf_counter)
    over: bool = False

    def __str__(self) -> str:
        return f"{self.text}{': ' if self.part else ''}{self.part}"

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return time.perf_counter() - self.started


class _Line:
    """The line in the terminal, and the tasks that it may tell of, the oldest first."""

    def __init__(self) -> None:
        self.wanted = True
        self._start()
        os.register_at_fork(
            before=lambda: self.lock.acquire(), after_in_parent=lambda: self.lock.release(), after_in_child=self._start
        )

    def _start(self) -> None:
        self.lock = threading.RLock()  # which a handler of signals may take again
        self._tasks: list[Task] = []
        self._ticker: threading.Thread | None = None
        self._awake = threading.Event()  # set when the thread shall look at once
        self._stands = 0  # for how many that measure
        self._visible = False

    def begin(self, task: Task) -> None:
        with self.lock:
            self._tasks.append(task)
            self._move()

    def end(self, task: Task) -> None:
        task.over = True  # before the lock: whoever waits for it may be interrupted
        with self.lock:
            self._forget()

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Have no thread that moves the line, which tells of what goes on already."""
        with self.lock:
            self._stands += 1
            ticker = self._ticker
        try:
            if ticker is not None:
                self._awake.set()
                ticker.join()
            with self.lock:
                self.redraw()
            yield
        finally:
            with self.lock:
                self._stands -= 1
                self._forget()
                self._move()

    def wipe(self) -> None:
        """Leave the terminal as it was; the next look writes the line anew."""
        with self.lock:
            if self._visible:
                self._visible = False
                self._write(_WIPE)

    def redraw(self) -> None:
        """Write the line anew where it stands: nothing else would."""
        if self._stands and self._tasks and self.wanted:
            self._show(f"{self._tasks[0]} ...")

    def _move(self) -> None:
        """Have a thread that moves the line, if there is something to tell and nothing is measured."""
        if self._tasks and not self._stands and self._ticker is None:
            ticker = threading.Thread(target=self._tick, name="adze progress", daemon=True)
            with suppress(RuntimeError):  # no more threads can be started, at the end of the process, say
                ticker.start()
                self._ticker = ticker

    def _forget(self) -> None:
        """Drop the tasks that are over; the line, too, if it told of one."""
        left = [task for task in self._tasks if not task.over]
        if left[:1] != self._tasks[:1]:
            self.wipe()
        self._tasks = left

    def _tick(self) -> None:
        while True:
            self._awake.wait(_INTERVAL)
            self._awake.clear()
            with self.lock:
                self._forget()
                if self._stands or not self._tasks:
                    self._ticker = None
                    return
                oldest = self._tasks[0]
                if self.wanted and oldest.seconds >= _PATIENCE:
                    self._show(f"{oldest}, {oldest.seconds:.1f} s")

    def _show(self, text: str) -> None:
        self._visible = True
        self._write(_WIPE + text[: _columns() - 1])

    def _write(self, text: str) -> None:
        terminal = _terminal()
        if terminal is not None:
            with suppress(OSError, ValueError):  # the terminal is gone, and with it who would read of that
                terminal.write(text)
                terminal.flush()


_line = _Line()


class _Here(threading.local):
    """The task that is shown of this thread."""

    task: Task | None = None


_here = _Here()


@contextmanager
def shown(text: str, part: str | None = None) -> Iterator[None]:
    """Show a task in the terminal, if there is one and the task takes long.

    Inside of another task it is a part of that, under the name ``part`` if it has one.
    """
    outer = _here.task
    if outer is not None:
        before, outer.part = outer.part, part or text
        try:
            yield
        finally:
            outer.part = before
        return
    task = _here.task = Task(text)
    try:
        if _line.wanted and _terminal() is not None:
            _line.begin(task)
        yield
    finally:
        _here.task = None
        _line.end(task)


@contextmanager
def still() -> Iterator[None]:
    """Measure, without a thread of ours beside it. The line stands: at once, and as it is when this begins."""
    with _line.standing():
        yield


@contextmanager
def above() -> Iterator[None]:
    """Write to standard error where the line of the progress would be, which moves down."""
    with _line.lock:
        _line.wipe()
        yield
        _line.redraw()


def write_above(text: str) -> None:
    """Write a line to standard error, above that of the progress."""
    with above():
        if sys.stderr is not None:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


def progress(shown: bool) -> AbstractContextManager[None]:
    """Whether a terminal shows what is compiled, when that takes more than a second; it does unless it is told not to.

    The line tells of the program, of the stage of compiling and of the seconds so far, as in ``compiling grad(loss):
    LLVM, 3.2 s``. It is written to standard error, only where that is a terminal, and wiped when the code is there. In
    a ``with`` statement what was chosen before holds again at the end. TypeError for what is not True or False.

    >>> import adze as az, numpy as np
    >>> fast = az.compile(lambda x: az.sum(x * x))
    >>> with az.progress(False):
    ...     float(fast(np.array([3.0, 4.0])))
    25.0
    """
    if not isinstance(shown, bool):
        raise TypeError(f"progress is shown or not, True or False, not {shown!r}")
    setting = _Setting(_line.wanted)
    _line.wanted = shown
    if not shown:
        _line.wipe()
    return setting


@dataclass(frozen=True)
class _Setting(AbstractContextManager[None]):
    """What was chosen before, which holds again at the end of a ``with`` statement."""

    before: bool

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        _line.wanted = self.before

    def __repr__(self) -> str:
        return f"<progress is {'shown' if _line.wanted else 'not shown'}>"


def _terminal() -> Any:
    """Standard error, if it is a terminal in which a line can be written anew."""
    stream, is_terminal = sys.stderr, getattr(sys.stderr, "isatty", None)  # which some that stand in for it lack
    if is_terminal is None or getattr(stream, "closed", False) or os.environ.get("TERM") == "dumb":
        return None
    return stream if is_terminal() else None


def _columns() -> int:
    with suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    return _COLUMNS
