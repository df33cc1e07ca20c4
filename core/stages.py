"""Stages: what Adze is doing, named in one place, for logs and for the line that shows progress.

Who builds or compiles says so in ``with`` statements. What a stage took goes to a logger of Python's, and what goes on
is shown in a terminal (``progress.py``)::

    with compiling("grad(loss)"):       adze.build    grad(loss): build, 0.021 s
        with stage("simplify"): ...     adze.compile  grad(loss): simplify, 0.046 s
        with stage("LLVM"): ...         adze.compile  grad(loss): LLVM, 0.512 s
                                        adze.compile  grad(loss): 0.579 s in all

The time of a stage is without that of others inside of it: together they take what the whole does. The last line is
logged at INFO, the others at DEBUG; a stage that fails is not logged, as the exception tells more.

Adze configures no logging, as a library should not. With the environment variable ``ADZE_LOG``, which names loggers
(``build``, ``compile``, ``cache``, ``call`` or ``all``), it prints what these have to say to standard error.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .progress import shown, write_above
from .settings import names_in

ADZE = logging.getLogger("adze")
BUILD = logging.getLogger("adze.build")  # terms are built, derivatives among them
COMPILE = logging.getLogger("adze.compile")  # stages from a term to code
CACHE = logging.getLogger("adze.cache")  # what is found on disk, and what is kept there
CALL = logging.getLogger("adze.call")  # calls that take other code, or other memory, than those before

RUNTIME = "runtime"  # what belongs to no program


@dataclass
class _Span:
    """A stage, or a whole, that goes on in a thread."""

    subject: str
    compiles: bool
    started: float
    inside: float = 0.0  # seconds that spans inside of it took
    total: float = 0.0

    @property
    def own(self) -> float:
        """The seconds that it took without those inside of it, when it is over."""
        return self.total - self.inside


class _Here(threading.local):
    """What goes on in this thread, the innermost last."""

    def __init__(self) -> None:
        self.spans: list[_Span] = []


_here = _Here()


def subject() -> str:
    """The program that is being built or compiled in this thread."""
    return _here.spans[-1].subject if _here.spans else RUNTIME


@contextmanager
def compiling(program: str) -> Iterator[None]:
    """A program is compiled, or a part of it; what is compiled on the way to that belongs to it."""
    if _here.spans and _here.spans[-1].compiles:
        yield
        return
    with _span(program, "compile", f"compiling {program}", True) as span:
        yield
    COMPILE.info("%s: %.3f s in all", program, span.total)


@contextmanager
def building_term(program: str) -> Iterator[None]:
    """The term of a program is built."""
    with _span(program, "build", f"building {program}", False) as span:
        yield
    BUILD.debug("%s: build, %.3f s", program, span.own)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A stage of compiling what is being compiled."""
    with _span(subject(), name, name, True) as span:
        yield
    COMPILE.debug("%s: %s, %.3f s", span.subject, name, span.own)


@contextmanager
def _span(subject: str, name: str, alone: str, compiles: bool) -> Iterator[_Span]:
    """Time what is done, and show it: under its name inside of others, else as it is called alone."""
    outer = _here.spans[-1] if _here.spans else None
    with shown(alone, name):
        span = _Span(subject, compiles, time.perf_counter())
        _here.spans.append(span)
        try:
            yield span
        finally:
            _here.spans.pop()
            span.total = time.perf_counter() - span.started
            if outer is not None:
                outer.inside += span.total


# Loggers


class _OnStandardError(logging.Handler):
    """Prints what some loggers have to say, above the line that shows progress."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        self.addFilter(lambda record: record.name in names)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            write_above(self.format(record))
        except Exception:
            self.handleError(record)  # as handlers do: it prints the error, unless logging is told not to


def _configure() -> None:
    """Print what ``ADZE_LOG`` asks for. ValueError for a name that there is not."""
    ADZE.addHandler(logging.NullHandler())
    loggers = {each.name.removeprefix("adze."): each for each in (BUILD, COMPILE, CACHE, CALL)}
    wanted = names_in("ADZE_LOG", (*loggers, "all"))
    chosen = [each for name, each in loggers.items() if name in wanted or "all" in wanted]
    for each in chosen:
        each.setLevel(logging.DEBUG)
    if chosen:
        ADZE.addHandler(_OnStandardError([each.name for each in chosen]))


_configure()
