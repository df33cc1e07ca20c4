"""The command line: the table of commands, and how their reports and errors become output and exit codes.

    0    the command did what it says
    1    an error of the program, or a check that does not hold
    2    the command line: no such file, program, argument or option
    130  interrupted

An error is its message, with the user's line; the traceback comes with ``--traceback``. With ``--json`` it is an object
on the standard output, too, whoever finds it. A pipe that is closed at its other end (``adze show ... | head -1``) has
read enough, which is no error.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any, NoReturn, TextIO

from ..core.source import NOWHERE, names_line, raised_at
from .bench import BENCH
from .cache import CACHE
from .check import CHECK
from .command import Command, UsageError, closest, installed_version
from .cost import COST, PROFILE
from .derivatives import GRAD, JVP
from .devices import DEVICES
from .doctor import DOCTOR
from .explore import EXPLORE
from .report import Report, complain, show
from .show import DUMP, SHOW
from .trace import TRACE

# In the order in which help lists them. A new command is a module with a row, and its name here.
COMMANDS: tuple[Command, ...] = (
    SHOW,
    GRAD,
    JVP,
    TRACE,
    CHECK,
    DUMP,
    COST,
    BENCH,
    PROFILE,
    EXPLORE,
    DEVICES,
    CACHE,
    DOCTOR,
)

_DESCRIPTION = "A typed, differentiable array language embedded in Python: programs from the command line."
_EPILOG = (
    "FILE:PROGRAM names a program, as in kmeans.py:cost. FILE is executed: name only files that you trust. Exit codes: "
    "0; 1 for an error of the program or a failed check; 2 for a wrong command line. docs/commands.md has examples."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, those of the process if none are given. The exit code."""
    _prepare("stdout")
    _prepare("stderr")
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard()
        return 0
    except OSError as error:  # from writing: those of commands are reported in _run
        _discard()
        complain(f"adze: what was found cannot be written: {error.strerror or error}")
        return 1
    except SystemExit as ended:  # from argparse, which has printed help, or what is wrong
        return ended.code if isinstance(ended.code, int) else 0
    except KeyboardInterrupt:
        return 130


def _prepare(name: str) -> None:
    """Have a stream that takes everything: also where it is closed, or has no such letters."""
    stream: Any = getattr(sys, name)
    if stream is None:
        setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    elif hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")


def _discard() -> None:
    """Let what Python still has for the standard output go nowhere, or it would complain when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str]) -> int:
    # What is known of options before they are read, for the errors of reading them
    options = Namespace(command=None, json="--json" in argv, traceback="--traceback" in argv)
    try:
        options = _options(argv)
        # What programs and files print is not for the standard output, which is the report's.
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.showwarning = _warn
            report = options.command.run(options)
    except BrokenPipeError:
        raise
    except Exception as error:
        return _failed(error, options)
    show(report, as_data=options.json)
    return 1 if report.failed else 0


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Say what a warning says, in the way of errors: ``warnings.showwarning``."""
    complain(f"{category.__name__}: {message}")


class _Unread(UsageError):
    """Options cannot be read by a parser."""

    def __init__(self, message: str, hint: str, by: ArgumentParser) -> None:
        super().__init__(message, hint)
        self.by = by


class _Parser(ArgumentParser):
    """A parser whose errors are raised, and say what was probably meant."""

    def error(self, message: str) -> NoReturn:
        known = [option for action in self._actions for option in action.option_strings]
        known += [command.name for command in COMMANDS]
        words = re.findall(r"(?<=: )--[\w-]+|(?<=invalid choice: ')[^']+", message)[:1]
        hints = [f"Did you mean adze show {word}?" if _is_program(word) else closest(word, known) for word in words]
        raise _Unread(message, "".join(hints), self)


def _is_program(word: str) -> bool:
    """Whether a word, where a command is expected, names a program or its file."""
    return re.fullmatch(r".+\.py(:.*)?|[\w.]+:\w+", word) is not None


def parser() -> ArgumentParser:
    """The parser of the whole command line."""
    made = _Parser("adze", description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False)
    made.add_argument("--version", action="version", version=f"adze {installed_version()}")
    commands = made.add_subparsers(metavar="COMMAND", title="commands")
    made.set_defaults(command=None, parser=made)
    for command in COMMANDS:
        one = commands.add_parser(
            command.name, help=command.summary, description=command.summary, epilog=_EPILOG, allow_abbrev=False
        )
        command.options(one)
        one.add_argument("--json", action="store_true", help="print the report as JSON")
        one.add_argument("--traceback", action="store_true", help="with an error, print where it was raised")
        one.set_defaults(command=command, parser=one)
    return made


def _options(argv: Sequence[str]) -> Namespace:
    """The options of a command line, in which arguments may stand before and behind options."""
    options, rest = parser().parse_known_args(argv)
    if options.command is None and rest:
        options.parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command is None:
        options.parser.print_help()
        raise SystemExit(2)
    words = [word for word in rest if not word.startswith("-")]
    if words != rest or (words and not hasattr(options, "arguments")):
        options.parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if words:
        options.arguments = [*options.arguments, *words]
    return options


def _failed(error: Exception, options: Namespace) -> int:
    """Say what is wrong; the exit code."""
    code = 2 if isinstance(error, UsageError) else 1
    if options.json:
        show(Report({"error": _as_data(error)}, []), as_data=True)
    if options.traceback:
        traceback.print_exception(error)
    elif isinstance(error, _Unread):
        error.by.print_usage(sys.stderr)
        complain(f"{error.by.prog}: error: {error}", error.hint)
    elif isinstance(error, UsageError):
        complain(f"adze {options.command.name}: {error}", error.hint)
    else:
        complain(_message(error))
    return code


def _as_data(error: Exception) -> dict[str, Any]:
    """An error for other programs: what it is, what it says, where in the user's code it was raised."""
    said = {
        "message": "\n".join([str(error), *getattr(error, "__notes__", [])]),
        "hint": None,
        "file": None,
        "line": None,
    }
    if isinstance(error, UsageError):
        return {"type": "UsageError", **said, "hint": error.hint or None}
    origin = raised_at(error)
    where = {} if origin == NOWHERE else {"file": origin.file, "line": origin.line}
    return {"type": type(error).__name__, **said, **where}


def _message(error: Exception) -> str:
    """What an error says, with the user's line if it names none."""
    said, *notes = traceback.format_exception_only(error)
    message, origin = "".join([said, *notes]).rstrip(), raised_at(error)
    if origin != NOWHERE and not names_line(message) and not isinstance(error, SyntaxError):
        linecache.checkcache(origin.file)
        written = linecache.getline(origin.file, origin.line).strip()
        code = f"\n    {written}" if written else ""
        message = f"{said.rstrip()} (at {origin}){code}\n{''.join(notes)}".rstrip()
    return message
