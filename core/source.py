"""The user's line: where in the user's own code an expression was written, and where an error ends.

The traceback of an error that is about the user's program ends in the user's frame: what is called from outside drops
the frames of this package before it lets the error go (``shorten``). A bare ``raise`` does not add the frame again. An
error is the user's if it was raised in the user's frame, or names a line of it, as all our messages do; any other is a
mistake of ours, and keeps all frames. With ``ADZE_TRACEBACK=full`` all do.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import wraps
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, ParamSpec, TypeVar


@dataclass(frozen=True)
class Origin:
    """Where an operation was written: the user's file and line, and a name for its result if there is one.

    ``combines`` says that the user combines elements there, with a neutral element that is to be verified.
    """

    file: str
    line: int
    name: str = ""
    combines: bool = field(default=False, compare=False)

    @property
    def derived(self) -> Origin:
        """The origin of what a derivative makes of the operation."""
        return replace(self, combines=False) if self.combines else self

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "an unknown line"


NOWHERE = Origin("", 0)

_MACHINERY = ("adze", "numpy", "typeguard", "contextlib", "functools", "torch", "jax")


def _is_own(frame: FrameType) -> bool:
    return _root(frame) == "adze"


def _root(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0]


def _is_machinery(frame: FrameType) -> bool:
    return _root(frame) in _MACHINERY


_LINE = re.compile(r"\bat \S.*:\d+")  # as messages name lines

P = ParamSpec("P")
R = TypeVar("R")


class Standing:
    """What is made inside a ``with`` block stands for an operation that was written somewhere: its derivative, say.

    Where none of the user's functions is called inside, that is the user's line of what is made there.
    """

    __slots__ = ("_before", "_frame", "origin")

    def __init__(self, origin: Origin) -> None:
        self.origin = origin

    def __enter__(self) -> None:
        self._frame: FrameType | None = sys._getframe(1)
        self._before = _standing.set(self if self.origin.file else _standing.get())

    def __exit__(self, *_: object) -> None:
        _standing.reset(self._before)
        self._frame = None

    def began_in(self, frame: FrameType) -> bool:
        return self._frame is frame


_standing: ContextVar[Standing | None] = ContextVar("standing", default=None)


def user_line(name: str = "") -> Origin:
    """The innermost frame outside this package and the libraries it is called through."""
    frame: FrameType | None = sys._getframe(1)
    standing = _standing.get()
    while frame is not None:
        if standing is not None and standing.began_in(frame):
            return Origin(standing.origin.file, standing.origin.line, name)
        if not _is_machinery(frame):
            return Origin(frame.f_code.co_filename, frame.f_lineno, name)
        frame = frame.f_back
    return NOWHERE


def line_of(function: Any) -> Origin:
    """Where a Python function is; the user's line for what is none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return user_line() if code is None else Origin(code.co_filename, code.co_firstlineno, "")


def repeated(error: RecursionError) -> None:
    """Raise an error with the name of the user's function that calls itself, if one does."""
    calls: Counter[CodeType] = Counter()
    for entry in _entries(error):
        if not _is_machinery(entry.tb_frame):
            calls[entry.tb_frame.f_code] += 1
    for code, count in calls.most_common(1):
        if count > 10:
            said = f"{code.co_name} calls itself {count} times deep while the program is built (at {code.co_filename}:"
            instead = "both branches of a cond are built, so that only az.fix makes a function that calls itself"
            raise RecursionError(f"{said}{code.co_firstlineno}); {instead}") from None


def without_value(error: NameError, building: str) -> None:
    """Raise an error with the line, if a function that is being built mentions a name that is defined further down."""
    *_, last = _entries(error)
    code = last.tb_frame.f_code
    if error.name in code.co_freevars:
        said = f"{building} mentions {error.name!r}, which has no value yet (at {code.co_filename}:{last.tb_lineno})"
        instead = "inside of a program a function is built where it is defined; define those that mention each other"
        raise NameError(f"{said}; {instead} outside of it") from None


def shorten(error: BaseException) -> None:
    """Leave the frames of this package out of the traceback of an error that is the user's, and of its causes."""
    if os.environ.get("ADZE_TRACEBACK") == "full":
        return
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        todo += [one.__cause__, one.__context__]
        entries = list(_entries(one))
        if entries and (not _is_own(entries[-1].tb_frame) or _LINE.search(str(one))):
            one.__traceback__ = _without_machinery(entries)


def _entries(error: BaseException) -> Iterator[TracebackType]:
    entry = error.__traceback__
    while entry is not None:
        yield entry
        entry = entry.tb_next


def _without_machinery(entries: Sequence[TracebackType]) -> TracebackType | None:
    """A traceback of the user's frames; those of other libraries stay where the error was raised in them."""
    kept: TracebackType | None = None
    own = False
    for entry in reversed(entries):
        own = own or _is_own(entry.tb_frame)
        if not (_is_machinery(entry.tb_frame) and own):
            kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept


def names_line(message: str) -> bool:
    """Whether a message names a line of the user's, as those of this package do."""
    return _LINE.search(message) is not None


def without_line(message: str) -> str:
    """A message without the line at its end, where somebody else than a line of Python asked.

    >>> without_line("there is no backend 'cuda' (at model.py:3)")
    "there is no backend 'cuda'"
    """
    return re.sub(r" \(at \S.*:\d+\)$", "", message)


def raised_at(error: BaseException) -> Origin:
    """The innermost line of the user's own code in the traceback of an error."""
    for entry in reversed(list(_entries(error))):
        file = entry.tb_frame.f_code.co_filename
        if not _is_machinery(entry.tb_frame) and not file.startswith("<frozen "):
            return Origin(file, entry.tb_lineno)
    return NOWHERE


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn of what is not as it should be, at the user's line."""
    origin = user_line()
    warnings.warn_explicit(message, category, origin.file, origin.line)


def called_at(origin: Origin, action: Callable[[], R]) -> R:
    """Call an action where somebody else asks for it: messages and tracebacks name the line of the origin."""
    code = (lambda action: action()).__code__.replace(co_filename=origin.file, co_firstlineno=origin.line)
    result: R = FunctionType(code, {"__name__": "called_at"})(action)
    return result


def ending_at_user(function: Callable[P, R]) -> Callable[P, R]:
    """A function that users call, with errors whose tracebacks are shortened."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    return run


def at_line(message: str) -> str:
    """An error message with the user's line."""
    return f"{message} (at {user_line()})"
