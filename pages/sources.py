"""The user's source: the functions in which the operations of a program were written, as they stand in their files."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..core.source import Origin
from .panels import Line, Panel

_TITLE = "Source"
_AROUND = 2  # lines shown before and behind one that is in no function


def source_panel(origins: Iterable[Origin], program: Origin) -> Panel:
    """A panel of the functions around these places, by files; ``program`` is where the function of the program is.

    Functions inside of others are shown with these, but for those in which the program itself was defined.
    """
    places: dict[str, set[int]] = {}
    for origin in origins:
        if origin.file:
            places.setdefault(origin.file, set()).add(origin.line)
    lines: list[Line] = []
    missing: list[str] = []
    for file, numbers in sorted(places.items()):
        text = linecache.getlines(file)
        if not text:
            missing.append(file)
            continue
        if len(places) > 1:
            lines.append(Line(f"# {Path(file).name}", number=0))
        lines += _shown(file, text, numbers, program.line if program.file == file else 0)
    about = "What you wrote. Each operation remembers the line on which it was called."
    if missing:
        about += f" Python no longer has the text of {', '.join(missing)}."
    if not places:
        about = "No operation of this program has a line: its term was not built by a function."
    return Panel.of("source", _TITLE, about, lines)


def _shown(file: str, text: Sequence[str], numbers: set[int], program: int) -> Iterator[Line]:
    """The functions around some lines of a file."""
    last = 0
    for first, end in _ranges("".join(text), numbers, len(text), program):
        if last and first > last + 1:
            yield Line("⋯", number=0)
        for number in range(first, end + 1):
            found = frozenset([Origin(file, number)] if number in numbers else [])
            yield Line(text[number - 1].rstrip("\n"), found, number=number)
        last = end


def _ranges(text: str, numbers: set[int], count: int, program: int) -> list[tuple[int, int]]:
    """The first and last lines of what is shown, in order and apart from each other."""
    functions = [_around(each) for each in _functions(text)]
    spans = [(first, last) for first, last in functions if not first < program <= last]
    found: set[int] = set()
    for number in numbers:
        holding = [span for span in spans if span[0] <= number <= span[1]]
        first, last = min(holding, default=(number - _AROUND, number + _AROUND), key=lambda span: span[0] - span[1])
        found.update(range(max(1, first), min(count, last) + 1))
    ranges: list[tuple[int, int]] = []
    for number in sorted(found):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges


def _functions(text: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a file; none where it is not Python, as a document with examples is not."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _around(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, int]:
    """The lines of a function with its decorators."""
    first = min([function.lineno, *[each.lineno for each in function.decorator_list]])
    return first, function.end_lineno or function.lineno
