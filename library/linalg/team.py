"""Tasks that are run side by side by a team of threads (the fork-join of OpenMP), for as long as an operation lasts.

An operation on a large matrix calls BLAS for parts of it, which does not keep the interpreter's lock. It has the
threads of the call that it is a part of: one inside of a parallel loop, and in evaluation. What the tasks are depends
on the matrix alone, so that results have the same bits on any number of threads::

    with Team() as team:
        team.run([partial(update, block) for block in blocks])      each writes a block of its own

Threads are started when there are two tasks, by the thread that runs the operation: they inherit its control register
of floating-point arithmetic. When the operation ends they are joined, so that a forked child misses none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from types import TracebackType
from typing import Self

from ...core.foreign import surroundings

Task = Callable[[], object]


class Team:
    """As many threads as the call around has; this one is one of them."""

    def __init__(self) -> None:
        self._others = surroundings.threads - 1
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, tasks: Iterable[Task]) -> None:
        """Run tasks that do not depend on each other. What one raises is raised here, once no other is under way."""
        waiting = deque(tasks)
        helpers = list[Future[None]]()
        with suppress(RuntimeError):  # no more threads can be started, at the end of the process, say
            for _ in range(min(self._others, len(waiting) - 1)):
                self._pool = self._pool or ThreadPoolExecutor(self._others, "adze linalg")
                helpers.append(self._pool.submit(_work, waiting))
        try:
            _work(waiting)
        finally:
            waiting.clear()
            wait(helpers)
        for helper in helpers:
            helper.result()


def _work(waiting: deque[Task]) -> None:
    """Run tasks until none is waiting."""
    while True:
        try:
            task = waiting.popleft()
        except IndexError:
            return
        task()
