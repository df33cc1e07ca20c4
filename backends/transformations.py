"""What the scheduler may do to a program: each transformation by name, to be switched off for an experiment.

None of them changes what a program means, and each has its own module, which says what it does and why
(``pipeline.py`` has them in order). With one of them off, what it gains is measured:
``az.compile(f, schedule={"jam": False})``. Two numbers override what the scheduler would choose:
``az.compile(f, schedule={"strip": 16, "copies": 2})``. Single decisions are forced by their names (``decisions.py``):
``az.compile(f, schedule={"force": {"fuse: array9 with array7": False}})``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import SupportsIndex

from ..core.source import at_line


@dataclass(frozen=True)
class Transformations:
    """The transformations that are on, and numbers that are chosen; 0 leaves them to the scheduler."""

    distribute: bool = True  # store what inner loops share, and run one nest after the other
    reassociate: bool = True  # sum first what a stored product would multiply
    vectorise: bool = True  # run a loop of a nest as lanes of vectors (lowering/lanes.py)
    materialise: bool = True  # store what several loops compute for the same indices
    pack: bool = True  # copy an array that lanes would read across (lowering/nests.py)
    regroup: bool = True  # sum a factor of a sum of sums of products first (lowering/regrouping.py)
    contract: bool = True  # run matrix products tile by tile, from packed operands (lowering/contractions.py)
    bound: bool = True  # leave out of products what a triangle makes 0, or nobody reads (lowering/triangles.py)
    fuse: bool = True  # run neighbouring nests over the same extents as one
    fuse_tiles: bool = True  # sum what is stored for a range in the chunks that store it
    fuse_rows: bool = True  # run what makes and uses the same rows of large tables on blocks of rows
    cse: bool = True  # store what a later nest would compute again
    hoist: bool = True  # fill a temporary that stays the same before a loop
    fuse_loops: bool = True  # run parallel loops over the same range as one, in the cache
    jam: bool = True  # run several iterations of an outer loop side by side (lowering/lanes.py)
    inline: bool = True  # elementary functions as code of our own, not as calls of a library (llvm/elementary)
    unfold: bool = True  # recursion with calls in their places, some levels deep (llvm/unfolding.py)
    unroll: bool = True  # run maps over short arrays as straight-line code along lanes (lowering/unrolling.py)
    memory_order: bool = True  # read the rows of large arrays one after the other
    prefetch: bool = True  # ask for elements at indices that are read further on
    split: bool = True  # lanes away from borders ask of no border
    skew: bool = True  # run some steps of a loop at a time, block by block of rows, where no cache holds the state
    strip: int = 0  # how many lanes of a nest run at a time, a power of two (lowering/lanes.py)
    copies: int = 0  # how many iterations a jam runs side by side (lowering/lanes.py)
    force: tuple[tuple[str, bool], ...] = ()  # decisions by name, and whether they are taken (decisions.py)

    def forcing(self, name: str, taken: bool) -> Transformations:
        """The same with one more decision that is forced."""
        return replace(self, force=tuple(sorted({**dict(self.force), name: taken}.items())))


# What switches were called before, for programs that still say so.
EARLIER = {
    "reuse": "materialise", "chunk": "fuse_tiles", "share": "cse", "localise": "fuse_loops", "straighten": "unroll",
}  # fmt: skip
ALL = Transformations()


# What ``schedule=`` takes: switches, numbers, and under "force" decisions by name
Schedule = Mapping[str, bool | int | Mapping[str, bool]]


def transformations_of(schedule: Schedule | None) -> Transformations:
    """The transformations with some switched off, numbers chosen, or decisions forced. Raises ValueError for others.

    >>> transformations_of({"jam": False, "strip": 16}).strip
    16
    >>> transformations_of({"tile": True})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: schedule= knows no 'tile'; it takes ...
    """
    chosen = {_name_now(name): value for name, value in (schedule or {}).items()}
    forced = _forced(chosen.pop("force", {}))
    switches = [field.name for field in fields(Transformations) if field.default is True]
    numbers = [field.name for field in fields(Transformations) if field.default == 0 and field.name not in switches]
    for name, value in chosen.items():
        if name not in (*switches, *numbers):
            known = f"{', '.join(switches)} (True or False), {', '.join(numbers)} (a positive power of two), force"
            raise ValueError(at_line(f"schedule= knows no {name!r}; it takes {known}"))
        if name in switches and not isinstance(value, bool):
            raise ValueError(at_line(f"schedule= takes {name!r} as True or False, not {value!r}"))
        if name in numbers and not _is_power_of_two(value):
            raise ValueError(at_line(f"schedule= takes {name!r} as a positive power of two, not {value!r}"))
    chosen = {name: int(value) if name in numbers else value for name, value in chosen.items()}  # type: ignore[arg-type]
    return Transformations(**chosen, force=forced)  # type: ignore[arg-type]


def _is_power_of_two(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return False
    number = value.__index__()
    return number > 0 and number & (number - 1) == 0


def _forced(decisions: object) -> tuple[tuple[str, bool], ...]:
    """The decisions that are forced, in one order."""
    if not isinstance(decisions, Mapping) or not all(
        isinstance(name, str) and isinstance(taken, bool) for name, taken in decisions.items()
    ):
        problem = f"a dictionary from names of decisions to True or False, not {decisions!r}"
        raise ValueError(at_line(f"schedule= takes 'force' as {problem}; compiled.decisions(*arguments) has the names"))
    return tuple(sorted(decisions.items()))


def _name_now(name: str) -> str:
    """The name of a switch, which a program may call by the one that it had before."""
    if name in EARLIER:
        warnings.warn(at_line(f"schedule= calls {name!r} {EARLIER[name]!r} now"), FutureWarning, stacklevel=2)
    return EARLIER.get(name, name)
