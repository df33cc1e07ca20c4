"""``adze explore``: a page of a program and of all that it is lowered to, for a browser."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from pathlib import Path

from ..core.progress import shown
from ..pages import explore
from .arguments import fixed, read
from .command import Command, UsageError, argument_options, program_options, saved
from .programs import find
from .report import Line, Report


def _explore(options: Namespace) -> Report:
    found = find(options, open=True)
    file = Path(options.output or re.sub(r"\W+", "_", found.family.name).strip("_") + ".html")
    if file.suffix not in (".html", ".htm"):
        raise UsageError(f"a page is a file that ends in .html, and {file} does not")
    chosen, words = fixed(found, options.arguments, options.seed)
    values = read(chosen, words, seed=options.seed, fill=True).values if words else []
    with shown(f"exploring {found.name}"):
        page = found.call(lambda: explore(chosen.program, *values, kernels=not options.no_kernels))
    saved(file, page.save)
    panels = [panel.key for panel in page.panels]
    data = {"program": found.name, "file": str(file), "panels": panels}
    return Report(data, [Line(f"{file}: {', '.join(panels)}")])


def _explore_options(parser: ArgumentParser) -> None:
    program_options(parser)
    argument_options(parser)
    parser.add_argument("-o", "--output", metavar="PAGE.html", help="(default: the program's name, and .html)")
    parser.add_argument("--no-kernels", action="store_true", help="leave out the kernels of an OpenCL device")


EXPLORE = Command(
    "explore", "Write a page that shows a program and all that is made of it.", _explore, _explore_options
)
