"""Reports: what a command found, as text for people or as JSON for other programs.

A report has ``data``, which ``--json`` prints, and ``parts``, which people read. Here alone is known how wide the
terminal is, whether it has colours (a terminal without ``NO_COLOR``), and that ``rich`` does it. A table that is wider
than the terminal is shown row by row, so that it can be read at 40 columns::

    nest                us  runs          total3: parallel
    total3: parallel  12.0     1            us    12.0
                                            runs  1

Text that is code is never broken into lines of another length: it may be piped into a file.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from ..core import trees
from ..core.progress import above

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 120  # columns, where the output is no terminal and COLUMNS says nothing
_LEAST_FOLDED = 30  # columns that are left to what is folded, at least


@dataclass(frozen=True)
class Line:
    """A sentence; ``style`` is rich's, such as "bold" or "red"."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Code:
    """Text as it is, in a language that Pygments has this name for."""

    text: str
    language: str = "python"


@dataclass(frozen=True)
class Value:
    """The result of a program: each of its leaves, behind where it is in the structure."""

    value: Any


@dataclass(frozen=True)
class Table:
    """Rows below the heads of their columns; without heads, names with what they are.

    ``columns`` has a letter a column: "l" and "r" for the side that it is aligned to, "f" for text that may be folded.
    """

    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    columns: str


Part = Line | Code | Value | Table


@dataclass(frozen=True)
class Report:
    """What a command found; ``failed`` says that a check did not hold, which is exit code 1."""

    data: Mapping[str, Any]
    parts: Sequence[Part]
    failed: bool = False


# JSON


def as_json(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, structures with names as objects; infinities and NaN as strings.

    >>> as_json((np.array([1.0, math.inf]), {"n": np.int64(3)}))
    [[1.0, 'inf'], {'n': 3}]
    """
    if isinstance(value, Mapping):
        return {str(key): as_json(part) for key, part in value.items()}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, np.ndarray | np.generic):
        return as_json(value.tolist()) if isinstance(value, np.ndarray) else as_json(value.item())
    if isinstance(value, list):
        return [as_json(part) for part in value]
    leaves, shape = trees.flatten(value)
    return _structure(shape, iter(leaves))


def _structure(shape: trees.Shape, leaves: Iterator[Any]) -> Any:
    if shape.container is None:
        leaf = next(leaves)
        known = isinstance(leaf, bool | int | float | str | list | np.ndarray | np.generic)
        return as_json(leaf) if known else str(leaf)
    parts = [_structure(inner, leaves) for inner in shape.inner]
    return {str(key): part for key, part in zip(shape.keys, parts, strict=True)} if shape.keys else parts


# Printing


def console(file: TextIO) -> Console:
    """The console of rich that prints to a file: colours and widths are those of a terminal, if it is one."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise  # the BrokenPipeError that rich has caught: main.py knows what it means

    known = file.isatty() or "COLUMNS" in os.environ
    return Piped(
        file=file,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if known else _WIDE,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


def show(report: Report, *, as_data: bool) -> None:
    """Print a report to the standard output: its data as JSON, or its parts."""
    if as_data:
        print(json.dumps(as_json(report.data), indent=2, ensure_ascii=False, allow_nan=False))
        return
    out = console(sys.stdout)
    for part in report.parts:
        _print(out, part)


def complain(message: str, hint: str = "") -> None:
    """Print what is wrong to the standard error, and what to do about it."""
    with above():
        err = console(sys.stderr)
        _wrapped(err, message, "red")
        if hint:
            _wrapped(err, hint, "")


def _print(out: Console, part: Part) -> None:
    match part:
        case Line(text, style):
            _wrapped(out, text, style)
        case Code(text, language):
            _code(out, text, language)
        case Value(value):
            for line in _leaves(value, out.width):
                out.print(line, soft_wrap=True)
        case Table():
            _table(out, part)


def _wrapped(out: Console, text: str, style: str) -> None:
    """Text in lines of the terminal; what is longer than a line, such as a path, stays in one piece."""
    out.print(text, style=style, soft_wrap=not out.is_terminal and "COLUMNS" not in os.environ)


def _code(out: Console, text: str, language: str) -> None:
    if out.color_system is None:
        out.print(text, soft_wrap=True)
        return
    from rich.syntax import Syntax

    coloured = Syntax("", language, theme="ansi_dark", background_color="default").highlight(text)
    coloured.rstrip()
    out.print(coloured, soft_wrap=True)


def _leaves(value: Any, width: int) -> Iterator[str]:
    leaves, shape = trees.flatten(value)
    for path, leaf in zip(trees.paths(shape), leaves, strict=True):
        text = (
            np.array2string(leaf, max_line_width=width, separator=", ") if isinstance(leaf, np.ndarray) else str(leaf)
        )
        if not path:
            yield text
        elif "\n" in text:
            yield f"{path}\n{text}"
        else:
            yield f"{path}  {text}"


def _table(out: Console, table: Table) -> None:
    """A table, if it fits; else each row by itself, with the heads before its cells."""
    from rich.cells import cell_len

    lines = [table.heads, *table.rows] if table.heads else list(table.rows)
    if not lines:
        return
    widths = [max([cell_len(line[k]) for line in lines]) for k in range(len(table.columns))]
    least = [min(width, _LEAST_FOLDED) if kind == "f" else width for width, kind in zip(widths, table.columns)]
    if sum(least) + 2 * (len(least) - 1) <= out.width:
        _grid(out, table)
        return
    for name, *cells in table.rows:
        out.print(name, style="bold")
        if not table.heads:
            _indented(out, [("", cell) for cell in cells])
        else:
            _indented(out, [pair for pair in zip(table.heads[1:], cells, strict=True) if pair[1]])


def _indented(out: Console, pairs: Sequence[tuple[str, str]]) -> None:
    """Cells below each other, behind their heads."""
    from rich.padding import Padding
    from rich.table import Table as Grid

    grid = Grid.grid(padding=(0, 2, 0, 0))
    if any(head for head, _ in pairs):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for pair in pairs:
        grid.add_row(*pair[-len(grid.columns) :])
    _stripped(out, Padding(grid, (0, 0, 0, 2)))


def _stripped(out: Console, grid: Any) -> None:
    """Print a grid without the spaces that its lines end in."""
    with out.capture() as captured:
        out.print(grid)
    out.file.write("".join([f"{line.rstrip()}\n" for line in captured.get().splitlines()]))


def _grid(out: Console, table: Table) -> None:
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(table.heads), header_style="bold")
    for head, kind in zip(table.heads or [""] * len(table.columns), table.columns, strict=True):
        grid.add_column(head, justify="right" if kind == "r" else "left", overflow="fold", no_wrap=kind != "f")
    for row in table.rows:
        grid.add_row(*row)
    _stripped(out, grid)
