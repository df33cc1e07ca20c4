"""Decisions: where the scheduler may go either way, which way it went, and how to have it the other way.

Each pass asks before it does what it could leave. A decision is named by the switch of its pass and by what it is
about: the program's lines where there are any, else the array that a nest or loop writes first. ::

    distribute: f64[k] of gmm.py:78 for all i < n
    fuse: array9 with array7

``schedule={"force": {"fuse: array9 with array7": False}}`` compiles a program with the other side of one decision, or
of several. ``compiled.decisions(*arguments)`` tells all of them, each with what the code costs (``cost.py``) as it is,
and what it would with the other side of this one alone: so what follows from a decision counts, too. ::

                                            taken    us  other side
    fuse: array9 with array7                  yes  12.1        18.4
    reassociate: f64[n, k, d] of gmm.py:31     no  12.1        12.9
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.showing import Shown
from ..core.source import Origin, at_line
from ..core.types import Type
from . import ir
from .tables import table, us


@dataclass
class Decisions:
    """Those that were made on the way of one program so far, by name; ``forced`` are those that are given."""

    forced: Mapping[str, bool] = field(default_factory=dict)
    taken: dict[str, bool] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)  # sentences for people, in order

    def take(self, switch: str, what: str, told: str = "", wanted: bool = True) -> bool:
        """Whether to do something: as it is forced, or else wanted. ``told`` says to people what is done then.

        What has one name is forced as one; it counts as taken where any of it is.
        """
        name = f"{switch}: {what}"
        taken = self.forced.get(name, wanted)
        self.taken[name] = self.taken.get(name, False) or taken
        if taken and told:
            self.note(told)
        return taken

    def is_forced(self, switch: str, what: str) -> bool:
        """Whether a decision is given, for all sizes."""
        return f"{switch}: {what}" in self.forced

    def note(self, told: str) -> None:
        """Tell people what is no decision between two sides."""
        self.notes.setdefault(told)

    def copy(self) -> Decisions:
        """The same decisions, to which others are added."""
        return Decisions(self.forced, dict(self.taken), dict(self.notes))

    def declining(self, later: Decisions) -> Decisions:
        """These decisions, and none taken of those that were made after them."""
        return Decisions(self.forced, {**dict.fromkeys(later.taken, False), **self.taken}, dict(self.notes))


def check_forced(forced: Mapping[str, bool], made: Iterable[Decisions], only: bool = True) -> None:
    """Raise ValueError for forced decisions that nobody made; ``made`` are those of all forms of a program.

    Where this is not the ``only`` code of a program, as without annotations, other code may decide them: a UserWarning.
    """
    known = list(dict.fromkeys([name for each in made for name in each.taken]))
    for name in forced:
        if name not in known:
            names = ", ".join(map(repr, known)) or "none"
            told = at_line(f"schedule= forces {name!r}, which is not decided here; decisions are: {names}")
            if only:
                raise ValueError(told)
            warnings.warn(told, stacklevel=2)


@dataclass(frozen=True)
class Choice:
    """A decision, and the seconds of a call as it is and with the other side of it, both estimated."""

    name: str
    taken: bool
    seconds: float
    otherwise: float


@dataclass(frozen=True)
class Choices(Shown):
    """The decisions of a call, in the order in which they were made."""

    rows: tuple[Choice, ...]

    def __str__(self) -> str:
        rows = [(row.name, "yes" if row.taken else "no", us(row.seconds), us(row.otherwise)) for row in self.rows]
        return table(["taken", "us", "other side"], rows)

    __repr__ = __str__

    @staticmethod
    def of(made: Decisions, now: float, otherwise: Callable[[str, bool], float]) -> Choices:
        """Decisions that were made, the seconds of a call with them, and those with a decision forced."""
        return Choices(tuple([Choice(name, side, now, otherwise(name, not side)) for name, side in made.taken.items()]))


# What decisions are about


def origin_text(origin: Origin, types: Sequence[Type]) -> str:
    """What an operation of the program makes, and its line where that is known."""
    what = origin.name or " and ".join([str(type) for type in types])
    return f"{what} of {Path(origin.file).name}:{origin.line}" if origin.file else what


def writes_text(*statements: ir.Statement) -> str:
    """What statements write first, or combine into, but for what they allocate themselves."""
    inner = list(ir.walk(statements))
    own = ir.allocated_in(statements)
    combined = [each.name for nest in inner if isinstance(nest, ir.Nest) for each in nest.combines]
    combined += [each.name for loop in inner if isinstance(loop, ir.For) for each in loop.reductions]
    written = [each.buffer.name for each in inner if isinstance(each, ir.Store | ir.Update)]
    return next((name for name in (*written, *combined) if name not in own), "requirements")
