"""The stages of a compiled program as panels: what each line of them came from, as far as that is known.

* A line of **nests** and **loops** came from where its statement did (``backends/origins.py``).
* **LLVM IR** and **assembly** have debug locations: the file is the text of the loops (``backends/llvm/locations.py``).
* **OpenCL C** has the names of the loop IR in it: a line belongs to the first of them that it mentions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..backends import ir
from ..backends.cost import Breakdown, nests
from ..backends.decisions import Choices
from ..backends.llvm.locations import Located
from ..backends.llvm.version import Version
from ..backends.multiversioning import Stage
from ..backends.opencl.names import c_name
from ..backends.origins import Names, bound
from .panels import Line, Panel

_WORD = re.compile(r"\w+")
_PLACE = re.compile(r" of (\S+):(\d+)")
_ON_LINES = "Each instruction has the debug location of the statement of the loops that it is from"


def stage_panels(stage: Stage, found: Breakdown | None, measured: bool, name: str) -> list[Panel]:
    """Nests, loops, LLVM IR and assembly of a form, with what a call takes where that is known."""
    version, lowered = stage.version, stage.version.lowered(stage.number)
    assert isinstance(version, Version)
    names = Names(lowered.context.shared.origins)
    in_nests = [_line(names, *each) for each in ir.lines(version.in_nests(stage.number))]
    loops = _numbered([_line(names, *each) for each in ir.lines(lowered.function)])
    about = "The loops that run: which are shared by threads, which are lanes of vectors."
    if found is not None:
        loops = _timed(loops, lowered.function, found)
        about += " Times were measured in this call." if measured else " Times are estimated."
    llvm, assembly = version.located(stage.number)
    return [
        Panel.of(
            "nests",
            f"Nests of {name}",
            "What the program is lowered to: points that run in any order, and loops that have one.",
            in_nests,
            ("name", "source"),
        ),
        Panel.of("loops", f"Loops of {name}", about, loops, ("loop", "name", "source")),
        Panel.of("llvm", "LLVM IR", _located_about(llvm, loops), _on_loops(llvm, loops), ("loop", "name", "source")),
        Panel.of(
            "assembly", "Assembly", _located_about(assembly, loops), _on_loops(assembly, loops),
            ("loop", "name", "source"),
        ),
    ]  # fmt: skip


def _line(names: Names, text: str, statement: ir.Statement | None) -> Line:
    """A line of the loop IR with the statement that begins there."""
    if statement is None:
        return Line(text)
    return Line(text, names.of_statement(statement), frozenset(bound(statement) & names.origins.keys()))


def decisions_panel(stage: Stage, choices: Choices | None) -> Panel:
    """What the scheduler decided, with what the other side would cost where sizes are known."""
    lowered = stage.version.lowered(stage.number)
    names, made = Names(lowered.context.shared.origins), lowered.decisions
    if choices is not None:
        text = str(choices).split("\n")
        about = "Where the scheduler could go either way: what it did, and what a call would take on the other side."
    else:
        text = [f"{'yes' if taken else 'no '}  {name}" for name, taken in made.taken.items()]
        about = "Where the scheduler could go either way. Give arguments, or sizes=, to see what the other side costs."
    places = {(origin.file.rpartition("/")[2], origin.line): origin for origin in names.origins.values()}
    lines = []
    for line in [*text, *made.notes]:
        known = frozenset(_WORD.findall(line)) & names.origins.keys()
        there = [places[key] for file, number in _PLACE.findall(line) if (key := (file, int(number))) in places]
        lines.append(Line(line, names.of(known) | frozenset(there), frozenset(known)))
    if not made.taken:
        about, lines = "There was nothing to decide.", [Line(each) for each in made.notes]
    return Panel.of("decisions", "Decisions", about, lines, ("name", "source"))


def opencl_panel(stage: Stage, source: str, device: str) -> Panel:
    """Kernels, by the names in them."""
    origins = stage.version.lowered(stage.number).context.shared.origins
    names, spelled = Names(origins), {c_name(name): name for name in origins}
    lines = []
    for text in source.rstrip("\n").split("\n"):
        known = [spelled[word] for word in _WORD.findall(text) if word in spelled][:1]
        lines.append(Line(text, names.of(known), frozenset(known)))
    about = f"Kernels for {device}, whose nests are its own. A line belongs to the first name of the loop IR in it."
    return Panel.of("opencl", "OpenCL C", about, lines, ("source",))


def _numbered(lines: Sequence[Line]) -> list[Line]:
    return [replace(line, loops=frozenset([number])) for number, line in enumerate(lines, 1)]


def _timed(lines: Sequence[Line], function: ir.Function, found: Breakdown) -> list[Line]:
    """The lines of loops, with what each nest of them took."""
    numbers = {id(statement): number for number, (_, statement) in enumerate(ir.lines(function))}
    timed, whole = list(lines), found.seconds
    rows = {row.number: row for row in found.rows}
    for number, nest in enumerate(nests(function.body)):
        row, place = rows[number], numbers[id(nest)]
        share = row.seconds / whole if whole > 0 else 0.0
        timed[place] = replace(
            timed[place], remark=f"{_time(row.seconds)} · {100 * share:.0f} %", share=min(1.0, share)
        )
    return timed


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{1e6 * seconds:.3g} µs"


def _on_loops(lines: Sequence[Located], loops: Sequence[Line]) -> list[Line]:
    """Lines of code, with what the statements that they are from came from."""
    made = []
    for text, place in lines:
        if 0 < place <= len(loops):
            made.append(replace(loops[place - 1], text=text, remark="", share=None))
        else:
            made.append(Line(text))
    return made


def _located_about(lines: Sequence[Located], loops: Sequence[Line]) -> str:
    """How many instructions know their statement."""
    instructions = [
        place for text, place in lines if text[:1].isspace() and not text.strip().startswith((".", "#", ";"))
    ]
    known = sum([0 < place <= len(loops) for place in instructions])
    rest = "the others were made by LLVM, or look after the call"
    return f"{_ON_LINES}, as far as LLVM kept it: {known} of {len(instructions)}; {rest}."
