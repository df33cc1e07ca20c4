"""What a command is, and the options that several commands have.

>>> from argparse import Namespace
>>> from .report import Line, Report
>>> def greet(options: Namespace) -> Report:
...     return Report({"greeting": "hello"}, [Line("hello")])
>>> Command("greet", "Say hello.", greet, lambda parser: None).run(Namespace()).data
{'greeting': 'hello'}
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .report import Report


class UsageError(Exception):
    """The command line cannot be understood, or names what is not there: exit code 2. ``hint`` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Command:
    """A command: its name, what it does, the function that does it, and what adds its options to a parser."""

    name: str
    summary: str
    run: Callable[[Namespace], Report]
    options: Callable[[ArgumentParser], None]


PROGRAM = (
    "a program: kmeans.py:cost, package.module:cost or models.py:Model.loss; without :PROGRAM, the only one that the "
    "file has. FILE is executed, as Python imports it: name only files that you trust"
)
ARGUMENTS = (
    "an argument, as NAME=... or for the first parameter that has none yet: a number or list (3.0, [1,2,3]), a file of "
    "NumPy's (.npy; .npz has arguments by their names), random, normal, zeros, ones or range with a shape "
    "(random:1000x16) or the declared one, or a size (n=1000)"
)


def program_options(parser: ArgumentParser, *, gradient: bool = True) -> None:
    """Which program it is, or the gradient of which."""
    parser.add_argument("program", metavar="FILE:PROGRAM", help=PROGRAM)
    if gradient:
        by = "take its gradient by these parameters, numbers or names: --grad 0 or --grad mu,sigma"
        parser.add_argument("--grad", metavar="BY", help=by)


def argument_options(parser: ArgumentParser) -> None:
    """The arguments of a call."""
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", default=[], help=ARGUMENTS)
    parser.add_argument("--seed", type=seed, default=0, help="of random arguments (default: 0)")


def target_options(parser: ArgumentParser, *, backend: bool = True) -> None:
    """What a program is compiled for."""
    parser.add_argument("--threads", type=int, metavar="N", help="(default: ADZE_THREADS, or all cores)")
    if backend:
        parser.add_argument("--backend", choices=["llvm", "opencl"], default="llvm", help="(default: llvm)")
    parser.add_argument("--device", metavar="DEVICE", help="of OpenCL: an index or a part of a name (adze devices)")
    parser.add_argument("--flush-subnormals", action="store_true", help="numbers below 2.2e-308 count as zero")


def seed(text: str) -> int:
    """The seed of a text; ValueError, which argparse turns into a message, when it is none."""
    number = int(text)
    if number < 0:
        raise ValueError("a seed is a whole number, from 0")
    return number


def saved(file: str | Path, save: Callable[[str | Path], None]) -> None:
    """Have a file written; UsageError where it cannot be."""
    try:
        save(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror or error}") from None


def installed_version() -> str:
    """The version of Adze, which the public face names: it is there when any of its modules is."""
    found: str = vars(sys.modules[__name__.partition(".")[0]])["__version__"]
    return found


def closest(name: str, known: Sequence[str]) -> str:
    """A question after the name that was probably meant; empty, if none is near.

    >>> closest("lss", ["loss", "model"])
    'Did you mean loss?'
    >>> closest("N", ["n", "d"])
    'Did you mean n?'
    """
    from difflib import get_close_matches

    lower = {each.lower(): each for each in known}
    found = get_close_matches(name, known, 1) or [lower[each] for each in get_close_matches(name.lower(), lower, 1)]
    return "".join([f"Did you mean {each}?" for each in found])
