"""``adze trace``: the straight-line program that arguments take through a program, with the value of each step."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ..core.progress import shown
from ..interpreters.trace import trace
from .arguments import read
from .command import Command, argument_options, program_options
from .programs import find
from .report import Code, Report


def _trace(options: Namespace) -> Report:
    found = find(options)
    given = read(found, options.arguments, seed=options.seed)
    with shown(f"tracing {found.name}"):
        run = found.call(lambda: trace(found.program, keep=options.keep)(*given.values))
    text = str(run)
    data = {"program": found.name, "steps": len(run), "text": text, "result": run.result}
    return Report(data, [Code(text)])


def _trace_options(parser: ArgumentParser) -> None:
    program_options(parser)
    argument_options(parser)
    kept = "which types stay in the trace; the others are traced away (default: arrays)"
    parser.add_argument("--keep", choices=["reals", "scalars", "arrays"], default="arrays", help=kept)


TRACE = Command("trace", "Print what a program does with given arguments, step by step.", _trace, _trace_options)
