"""Debug locations: which line of the loops' text an instruction is from, kept by LLVM through all that it does.

Code that is emitted to be looked at (``Machine.located``) has a note behind each instruction, a comment. Before a
module is parsed, notes become debug locations, as compilers of C write them for debuggers: the file is the text of the
loops (``ir.text``). Optimisation keeps them, merges them or drops them, and the code generator writes them into
assembly. What LLVM prints is read again here, and locations are taken out of it::

    %v7 = fmul double %v5, %v6 ; line 12          as emitted
    %v7 = fmul double %v5, %v6, !dbg !31          as parsed
    ("%v7 = fmul double %v5, %v6", 12)            as read

Code that runs has none of this. It is the same code: locations change no instruction, which a test holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

Located = tuple[str, int]  # a line of code, and the line of the loops that it is from; 0 where that is not known

_NOTE = re.compile(r" ; line (\d+)$", re.MULTILINE)
_TAIL = "!llvm.dbg.cu = !{{{unit}}}\n!llvm.module.flags = !{{{flag}}}"
_UNIT = (
    "distinct !DICompileUnit(language: DW_LANG_C99, file: {file}, isOptimized: true, emissionKind: DebugDirectivesOnly)"
)
_FUNCTION = (
    'distinct !DISubprogram(name: "{name}", file: {file}, type: {type}, spFlags: DISPFlagDefinition, unit: {unit})'
)


class Metadata(Protocol):
    """What has nodes of metadata: a module."""

    def metadata(self) -> str:
        """The name of a new node."""

    def fill(self, node: str, content: str) -> None:
        """Say what is in a node."""


def note(line: int) -> str:
    """What stands behind an instruction from a line of the loops; nothing for line 0."""
    return f" ; line {line}" if line else ""


def without_notes(text: str) -> str:
    """Code without notes."""
    return _NOTE.sub("", text)


def located(functions: Mapping[str, str], module: Metadata) -> tuple[dict[str, str], str]:
    """The functions of a module with debug locations in place of notes, and what the module says of them."""

    def node(content: str) -> str:
        name = module.metadata()
        module.fill(name, content)
        return name

    file = node('!DIFile(filename: "loops", directory: "")')
    unit = node(_UNIT.format(file=file))
    type = node("!DISubroutineType(types: !{})")

    def of(name: str, text: str) -> str:
        lines = dict.fromkeys([0, *map(int, _NOTE.findall(text))])
        if len(lines) == 1:
            return text
        head, _, body = text.partition(" {\n")
        scope = node(_FUNCTION.format(name=name, file=file, type=type, unit=unit))
        places = {line: node(f"!DILocation(line: {line}, scope: {scope})") for line in lines}
        made = [_with_location(line, places) for line in body.split("\n")]
        return f"{head} !dbg {scope} {{\n" + "\n".join(made)

    flag = node('!{i32 2, !"Debug Info Version", i32 3}')
    return {name: of(name, text) for name, text in functions.items()}, _TAIL.format(unit=unit, flag=flag)


def _with_location(line: str, places: Mapping[int, str]) -> str:
    """A line of a function, with the location that its note says; a call has one in any case, as LLVM wants it."""
    found = _NOTE.search(line)
    bare = line if found is None else line[: found.start()]
    if bare.lstrip().startswith(";") or (found is None and " call " not in bare):
        return bare
    return f"{bare}, !dbg {places[0 if found is None else int(found[1])]}"


# What LLVM prints

_LOCATION = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+)")
_OF_DEBUGGING = re.compile(r"^!(llvm\.dbg\.cu\b|\d+ = (?:distinct )?!(DI\w+\(|\{i32 2, !\"Debug Info Version\"|\{\}$))")
_MENTION = re.compile(r",? !dbg !(\d+)")
_FLAGS = "!llvm.module.flags = "
_DIRECTIVE = re.compile(r"^\s+\.loc\s+\d+\s+(\d+)\s")


def read_module(text: str) -> list[Located]:
    """The lines of a printed module without debug locations, each with the line of the loops that it is from."""
    printed = text.split("\n")
    places = {found[1]: int(found[2]) for line in printed if (found := _LOCATION.match(line))}
    lines = list[Located]()
    for line in printed:
        if _OF_DEBUGGING.match(line) or line.startswith(_FLAGS):
            continue
        found = _MENTION.search(line)
        lines.append((_MENTION.sub("", line), places.get(found[1], 0) if found else 0))
    return _without_blank_end(lines)


def read_assembly(text: str) -> list[Located]:
    """The lines of assembly, each with the line of the loops that it is from."""
    lines, place = list[Located](), 0
    for line in text.split("\n"):
        bare = line.strip()
        found = _DIRECTIVE.match(line)
        if found:
            place = int(found[1])
        elif bare.startswith(_QUIET):
            continue
        elif line.startswith("\t") and not bare.startswith((".", "#")):
            lines.append((line, place))
        else:
            place = 0 if bare.startswith(".cfi_startproc") else place
            lines.append((line, 0))
    return _without_blank_end(lines)


_QUIET = (".file", ".Ltmp", ".Lfunc_begin", ".Lfunc_end", ".cfi_sections")  # for debuggers


def _without_blank_end(lines: Sequence[Located]) -> list[Located]:
    found = list(lines)
    while found and not found[-1][0].strip():
        found.pop()
    return found
