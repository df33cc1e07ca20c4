"""``adze show`` and ``adze dump``: a program as text, and what the stages of the compiler make of it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

from ..backends.compile import compile
from ..backends.compiled import Compiled
from ..core.program import Instance, Program
from ..core.progress import shown
from ..core.source import without_line
from ..interpreters.pretty import STYLES, pretty
from .arguments import version
from .command import Command, UsageError, argument_options, program_options, target_options
from .programs import find
from .report import Code, Line, Report

# What dump shows: the option, what Compiled has it under, its language, what the help says
STAGES: dict[str, tuple[Callable[[Compiled], str], str, str]] = {
    "nests": (lambda compiled: compiled.nests, "python", "the loop nests that the program is lowered to"),
    "loops": (lambda compiled: compiled.loops, "python", "the loops that were chosen for them"),
    "schedule": (lambda compiled: compiled.schedule, "text", "what the scheduler decided"),
    "llvm": (lambda compiled: compiled.llvm_ir, "llvm", "the LLVM IR, optimised"),
    "asm": (lambda compiled: compiled.assembly, "gas", "the machine code, as assembly"),
    "opencl": (lambda compiled: compiled.opencl_source, "c", "the kernels of a device, as OpenCL C"),
}


def _show(options: Namespace) -> Report:
    found = find(options, open=True)
    chosen = version(found, options.arguments, options.seed)
    text = found.call(lambda: pretty(chosen, simplified=not options.as_written, style=options.style))
    return Report({"program": found.name, "style": options.style, "text": text}, [Code(text)])


def _show_options(parser: ArgumentParser) -> None:
    program_options(parser)
    argument_options(parser)
    parser.add_argument("--style", choices=STYLES, default=STYLES[0], help=f"(default: {STYLES[0]})")
    parser.add_argument("--as-written", action="store_true", help="do not simplify it first")


def _dump(options: Namespace) -> Report:
    stages = [stage for stage in STAGES if getattr(options, stage)]
    if not stages:
        raise UsageError("nothing to dump is named", f"Name some of {' '.join([f'--{stage}' for stage in STAGES])}.")
    found = find(options)
    chosen = version(found, options.arguments, options.seed)
    texts: dict[str, str] = {}
    with shown(f"compiling {found.name}"):
        for stage in stages:
            of = compiled(chosen, options, backend="opencl" if stage == "opencl" else options.backend)
            try:
                texts[stage] = found.call(partial(STAGES[stage][0], of))
            except AttributeError as error:
                raise UsageError(f"--{stage} is not there for --backend {options.backend}: {error}") from None
    parts: list[Any] = []
    for stage, text in texts.items():
        language = STAGES[stage][1]
        parts += [*([Line(f"== {stage}", "bold")] if len(texts) > 1 else []), Code(text.rstrip("\n"), language)]
    return Report({"program": found.name, **texts}, parts)


def compiled(program: Program | Instance, options: Namespace, backend: str | None = None) -> Compiled:
    """A program compiled as the options say. UsageError for options that do not go together, and unknown devices."""
    given = {"threads": options.threads, "device": options.device, "flush_subnormals": options.flush_subnormals}
    if backend is not None and backend != options.backend:
        given = {"device": options.device}  # the others are those of the backend that the options name
    try:
        return compile(program, backend=backend or options.backend, **given)
    except ValueError as error:
        raise UsageError(without_line(str(error))) from None


def _dump_options(parser: ArgumentParser) -> None:
    program_options(parser)
    argument_options(parser)
    for stage, (_, _, summary) in STAGES.items():
        parser.add_argument(f"--{stage}", action="store_true", help=summary)
    target_options(parser)


SHOW = Command("show", "Print a program as text.", _show, _show_options)
DUMP = Command("dump", "Print what the compiler makes of a program, stage by stage.", _dump, _dump_options)
