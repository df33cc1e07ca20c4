"""Each case in a process of its own, so that a crash is an outcome, and belongs to the case that caused it.

A worker is a fork of this process, which has imported everything and has run no compiled code, so it has no threads.
What every worker would do first, it has done once, too (``prepare``): that was a third of the time of most cases.
Processor time and memory are limited by the system. Memory that is freed, and new memory, is filled with a pattern
(``MALLOC_PERTURB_``, which the process must be started with): what nobody wrote does not look like zero.

    prepare()
    for case, outcome in outcomes(cases, "base"): ...
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing import connection
from typing import Any

import numpy as np

import adze as az
from adze.backends.llvm.frames import entries
from adze.backends.llvm.pool import workers

from .cases import Case, drawn
from .checks import Checks, Outcome, checked

PROCESSES = multiprocessing.get_context("fork")
SECONDS = {"base": 60, "cross": 400, "opencl": 200}  # of processor time
MEMORY = 16 << 30  # bytes of address space
_ENDING = signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGXCPU
PATIENCE = 20  # how often the limit of processor time may pass on the clock
PREPARED = range(3)  # seeds


def prepare() -> None:
    """Make ready what most cases need: the runtime's own machine code, and what is computed on first use.

    Programs are evaluated, differentiated and compiled, but compiled code is not run: that would start threads.
    """
    entries()
    workers()
    with np.errstate(all="ignore"):
        for case in map(drawn, PREPARED):
            with suppress(Exception):
                checks = Checks(case)
                checks.evaluated()
                for program in (checks.program, checks.pushforward, checks.pullback):
                    assert az.compile(program, threads=1).loops
    gc.collect()
    gc.freeze()  # collections in a fork do not look at what was there before


def _child(case: Case, mode: str, file: int, answer: connection.Connection, seconds: int) -> None:
    os.dup2(file, 1)
    os.dup2(file, 2)
    faulthandler.disable()
    for ending in _ENDING:  # an OpenCL driver of the parent may have put handlers there
        signal.signal(ending, signal.SIG_DFL)
    faulthandler.enable(file=sys.__stderr__ or 2)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        outcome = checked(case, mode)
    except BaseException as error:
        outcome = Outcome("failed", "harness", f"{type(error).__name__}: {error}")
    answer.send(outcome)
    answer.close()
    os._exit(0)  # nothing that a program left behind is of interest


class Worker:
    def __init__(self, case: Case, mode: str, seconds: int) -> None:
        self.case, self.started, self.limit = case, time.monotonic(), seconds * PATIENCE
        self.output = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the outcome)
        self.answer, theirs = PROCESSES.Pipe(duplex=False)
        arguments = (case, mode, self.output.fileno(), theirs, seconds)
        self.process = PROCESSES.Process(target=_child, args=arguments, daemon=True)
        self.process.start()
        theirs.close()

    def outcome(self) -> Outcome | None:
        """The outcome, if there is one yet."""
        if self.process.is_alive() and not self.answer.poll() and time.monotonic() - self.started < self.limit:
            return None
        found = None
        if self.answer.poll():
            with suppress(EOFError):
                found = self.answer.recv()
        if found is None and self.process.is_alive():
            self.process.kill()
        self.process.join()
        code = self.process.exitcode or 0
        self.answer.close()
        if found is None:
            late = code in (-signal.SIGXCPU, -signal.SIGKILL)
            name = signal.Signals(-code).name if code < 0 else f"exit {code}"
            self.output.seek(0)
            told = self.output.read()[-2000:].decode(errors="replace")
            found = Outcome("timeout" if late else "crash", name, f"{name}: {told}")
        self.output.close()
        return found

    def wait_for(self) -> list[Any]:
        return [self.process.sentinel, self.answer]


def outcomes(
    cases: Iterable[Case], mode: str = "base", jobs: int = 1, seconds: int = 0
) -> Iterator[tuple[Case, Outcome]]:
    """Check cases, ``jobs`` at a time; they come in the order in which they end."""
    running: list[Worker] = []
    remaining = iter(cases)
    while True:
        while len(running) < jobs and (case := next(remaining, None)) is not None:
            running.append(Worker(case, mode, seconds or SECONDS[mode]))
        if not running:
            return
        connection.wait([each for worker in running for each in worker.wait_for()], timeout=1)
        for worker in list(running):
            found = worker.outcome()
            if found is not None:
                running.remove(worker)
                yield worker.case, found


def outcome_of(case: Case, mode: str = "base", seconds: int = 0) -> Outcome:
    (_, found), *_ = outcomes([case], mode, 1, seconds)
    return found
