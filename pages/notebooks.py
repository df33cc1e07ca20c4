"""What notebooks show: programs and traces as their text, costs and decisions as tables.

Each class has one row, which is entered into ``core.showing.HTML``. Text is escaped, and tables have no style of their
own, so that they look as the notebook's do.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from ..backends.chunked.chunked import Chunked
from ..backends.chunked.plan import Plan
from ..backends.compiled import Compiled
from ..backends.cost import Breakdown
from ..backends.decisions import Choices
from ..backends.tables import us
from ..core.program import Instance, Program
from ..core.showing import HTML
from ..interpreters.cost import ProgramCost
from ..interpreters.pretty import pretty
from ..interpreters.trace import Trace


def text(content: str) -> str:
    """Text as it is."""
    return f"<pre>{escape(content)}</pre>"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A row for each thing, with its name first.

    >>> table(["runs"], [("a < b", "1")])
    '<table><thead><tr><th></th><th>runs</th></tr></thead><tbody><tr><th>a &lt; b</th><td>1</td></tr></tbody></table>'
    """
    head = "".join([f"<th>{escape(each)}</th>" for each in ("", *heads)])
    body = "".join(
        [
            f"<tr><th>{escape(name)}</th>{''.join([f'<td>{escape(x)}</td>' for x in cells])}</tr>"
            for name, *cells in rows
        ]
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def program(value: Program | Instance) -> str:
    """The program as text; one that leaves types to its arguments by its parameters."""
    known = isinstance(value, Instance) or value.annotated
    return text(pretty(value) if known else repr(value))


def compiled(value: Compiled) -> str:
    """The program, and the pieces of code that there are of it."""
    of = value.program
    if not isinstance(of, Instance) and not of.annotated and not of.instances():
        return text(repr(value))
    pieces = value.specialisations
    rows = [(each.condition, each.why, each.state, f"{1e3 * each.seconds:.1f}") for each in pieces]
    return program(of) + table(["what for", "state", "ms to have it"], rows)


def chunked(value: Chunked[Any, Any]) -> str:
    """The program, and what is done for it, in order."""
    count = value.plan.stages
    return program(value.program) + text(f"over {value.over}, {count} stage{'' if count == 1 else 's'}\n{value.plan}")


def breakdown(value: Breakdown) -> str:
    """Each nest with its share of the whole."""
    whole = value.seconds or 1.0
    rows = [
        (row.title, us(row.seconds), f"{100 * row.seconds / whole:.0f} %", f"{row.operations:.3g}", f"{row.bytes:.3g}",
         f"{row.runs:.0f}")
        for row in value.rows
    ]  # fmt: skip
    heads = ["µs", "share", "operations", "bytes", "runs"]
    return table(heads, [*rows, ("in all", us(value.seconds), "", "", "", "")])


def choices(value: Choices) -> str:
    """Each decision with the time of the call on both sides of it."""
    rows = [(row.name, "yes" if row.taken else "no", us(row.seconds), us(row.otherwise)) for row in value.rows]
    return table(["taken", "µs", "other side"], rows)


def cost(value: ProgramCost) -> str:
    """The counts, one a row."""
    counts = [line.partition(":") for line in str(value).split("\n")]
    return table(["count"], [(name, count.strip()) for name, _, count in counts])


HTML.update(
    {
        Program: program,
        Instance: program,
        Trace: lambda trace: text(str(trace)),
        Compiled: compiled,
        Chunked: chunked,
        Plan: lambda plan: text(str(plan)),
        Breakdown: breakdown,
        Choices: choices,
        ProgramCost: cost,
    }
)
