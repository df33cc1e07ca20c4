"""The user's line: where in the user's own code an expression was written."""

from __future__ import annotations

import sys
from types import FrameType

from .terms import NOWHERE, Origin

_MACHINERY = ("adze", "numpy", "typeguard", "contextlib", "functools")


def user_line(name: str = "") -> Origin:
    """The innermost frame outside this package and the libraries it is called through."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _MACHINERY:
            return Origin(frame.f_code.co_filename, frame.f_lineno, name)
        frame = frame.f_back
    return NOWHERE


def at_line(message: str) -> str:
    """An error message with the user's line."""
    return f"{message} (at {user_line()})"
