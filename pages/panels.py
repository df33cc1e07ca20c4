"""Panels: texts side by side, whose lines know what they came from.

A line has *marks* of three kinds, from the finest to the coarsest: lines of the text of the loops (``loop``), names
that it binds in the loop IR (``name``), and lines of the user's source (``source``). Two lines belong together when
they share a mark of the finest kind that both of their panels have::

    nests    let t4 = x[i3]        name t4, source 0       shares the name with
    loops    let t4 = x[i3]        loop 12, name t4, source 0    shares the line with
    LLVM     %v7 = load double...  loop 12, name t4, source 0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..core.source import Origin

KINDS = ("loop", "name", "source")  # of marks, the finest first


@dataclass(frozen=True)
class Line:
    """A line of text, and what it came from."""

    text: str
    origins: frozenset[Origin] = frozenset()
    names: frozenset[str] = frozenset()
    loops: frozenset[int] = frozenset()
    number: int | None = None  # where it is not that of the line in the panel
    remark: str = ""
    share: float | None = None  # of the time of a call


@dataclass(frozen=True)
class Panel:
    """A text with a title, what is said about it, and the kinds of marks that its lines have."""

    key: str
    title: str
    about: str
    lines: tuple[Line, ...] = ()
    kinds: tuple[str, ...] = ("source",)

    @staticmethod
    def of(key: str, title: str, about: str, lines: Iterable[Line], kinds: tuple[str, ...] = ("source",)) -> Panel:
        return Panel(key, title, about, tuple(lines), kinds)

    @staticmethod
    def empty(key: str, title: str, about: str) -> Panel:
        """A panel that says why there is nothing in it."""
        return Panel(key, title, about)


@dataclass
class Marks:
    """The marks of lines as short words: sources and names by the numbers in which they come."""

    numbers: dict[str, dict[object, int]] = field(default_factory=lambda: {kind: {} for kind in KINDS})

    def of(self, line: Line) -> Mapping[str, list[int]]:
        """The marks of a line, by their kind."""
        places = {(origin.file, origin.line) for origin in line.origins if origin.file}
        return {
            "loop": sorted(line.loops),
            "name": self._numbers("name", sorted(line.names)),
            "source": self._numbers("source", sorted(places)),
        }

    def _numbers(self, kind: str, found: Iterable[object]) -> list[int]:
        known = self.numbers[kind]
        return [known.setdefault(each, len(known)) for each in found]
