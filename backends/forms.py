"""Forms: what a program is after the stages on terms, which the sizes of a call may choose from.

Where it depends on sizes which of two ways to compute something is less work, each way is a form of its own. A form is
lowered and compiled when a call takes it (``multiversioning.py``), and most programs only ever see sizes that take the
same one; so nothing is spent on the other. Forms are tried in order, and the last one serves all sizes::

    form 0, where n*d - 64*n < 0 and 0 < n:  sums without the product
    form 1:                                  the product is stored
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..core.dims import Dim
from ..core.procedures import Procedure
from ..core.terms import Block
from .decisions import Decisions
from .specialisations import ALWAYS, conjunction


@dataclass(frozen=True)
class Condition:
    """What holds of the sizes of a call: these are below zero, and those above."""

    below: tuple[Dim, ...]
    above: tuple[Dim, ...]

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds for the values of size names; it does not where a size divides by zero.

        >>> fewer = Condition((Dim.parse("n - m"),), (Dim.parse("n"),))
        >>> [fewer.holds({"n": n, "m": 4}) for n in (0, 3, 4)]
        [False, True, False]
        """
        try:
            negative = all([dim.evaluate(sizes) < 0 for dim in self.below])
            return negative and all([dim.evaluate(sizes) > 0 for dim in self.above])
        except ZeroDivisionError:
            return False

    def known(self) -> bool | None:
        """Whether it holds for all sizes, or for none; None where that depends on them.

        >>> Condition((Dim.parse("-n"),), ()).known(), Condition((Dim.parse("-n - 1"),), ()).known()
        (None, True)
        """
        if any([dim.is_nonnegative() for dim in self.below]) or any([(-dim).is_nonnegative() for dim in self.above]):
            return False
        negative = all([(-dim - 1).is_nonnegative() for dim in self.below])
        return True if negative and all([(dim - 1).is_nonnegative() for dim in self.above]) else None

    def __str__(self) -> str:
        return " and ".join([*[f"{dim} < 0" for dim in self.below], *[f"0 < {dim}" for dim in self.above]])


@dataclass(frozen=True)
class Head:
    """When a form is taken (None: whenever no form before it is), and what it is made for."""

    condition: Condition | None
    why: str


@dataclass(frozen=True)
class Form:
    """A scheduled program, where it is taken (None: for all sizes that no form before it takes), and why it is so.

    Decisions are for people, all that were made on the way to it; what sets it apart from other forms is ``why``.
    """

    block: Block
    condition: Condition | None = None
    decisions: Decisions = field(default_factory=Decisions)
    why: str = "as it was scheduled"
    procedures: Mapping[Procedure, Block] = field(default_factory=dict)  # that it calls, scheduled

    @property
    def head(self) -> Head:
        """What chooses this form."""
        return Head(self.condition, self.why)


def where_taken(heads: Sequence[Head]) -> list[str]:
    """What holds where each form is taken, as text."""
    if len(heads) == 1:
        return [ALWAYS]
    conditions = [str(head.condition) for head in heads[:-1]]
    return [*conditions, conjunction([f"not ({condition})" for condition in conditions])]


def chosen(conditions: Sequence[Condition | None], sizes: Mapping[str, int]) -> int:
    """The number of the first form that sizes take."""
    return next(k for k, condition in enumerate(conditions) if condition is None or condition.holds(sizes))
