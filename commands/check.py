"""``adze check``: whether programs can be built and are well typed; one, or all that a file has.

It runs nothing and compiles nothing, so it takes little time: a hook before a commit, say.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from ..core.program import Instance
from ..interpreters.check import check
from ..interpreters.simplify import simplify
from .arguments import version
from .command import Command, UsageError, argument_options, program_options
from .programs import Named, closing, gradient, imported, named, programs, split
from .report import Report, Table

OK, WRONG, OPEN = "ok", "error", "not checked"


def _check(options: Namespace) -> Report:
    file, name = split(options.program)
    if name is not None:
        found = [named(options.program)]
    else:
        found = programs(imported(file))
        if not found:
            raise UsageError(f"{file} has no programs", "A program is a function below @az.program, with annotations.")
    if options.arguments:
        found = [closing(each) for each in found]
    checked = [(each.name, *_checked(gradient(each, options.grad), options)) for each in found]
    data = {"programs": [dict(zip(("name", "state", "detail"), row, strict=True)) for row in checked]}
    states = [state for _, state, _ in checked]
    return Report(data, [Table(("program", "state", ""), checked, "llf")], failed=WRONG in states)


def _checked(found: Named, options: Namespace) -> tuple[str, str]:
    """The state of a program, and its type or what is wrong with it."""
    try:
        chosen = version(found, options.arguments, options.seed)
    except UsageError as error:
        return OPEN, f"{error}. {error.hint}"

    def typed() -> Any:
        instance = chosen if isinstance(chosen, Instance) else chosen.at()
        check(instance)
        check(simplify(instance.term))
        return instance

    try:
        instance = found.call(typed)
    except Exception as error:
        if options.traceback:
            raise
        return WRONG, "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
    return OK, f"({', '.join(map(str, instance.types))}) -> {', '.join(map(str, instance.term.types))}"


def _check_options(parser: ArgumentParser) -> None:
    program_options(parser)
    argument_options(parser)


CHECK = Command("check", "Build and type-check a program, or all programs of a file.", _check, _check_options)
