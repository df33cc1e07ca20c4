"""What the scheduler may do to a program: each transformation by name, to be switched off for an experiment.

None of them changes what a program means, and each has its own module, which says what it does and why. With one of
them off, what it gains is measured: ``az.compile(f, schedule={"jam": False})``. Two numbers override what the
scheduler would choose: ``az.compile(f, schedule={"strip": 16, "copies": 2})``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Transformations:
    """The transformations that are on, and numbers that are chosen; 0 leaves them to the scheduler."""

    distribute: bool = True  # store what inner loops share, and run one nest after the other (schedule.py)
    reassociate: bool = True  # sum first what a stored product would multiply (reassociating.py)
    vectorise: bool = True  # run a loop of a nest as lanes of vectors (lowering/lanes.py)
    reuse: bool = True  # store what several loops compute for the same indices (reusing.py)
    pack: bool = True  # copy an array that lanes would read across (lowering/nests.py)
    regroup: bool = True  # sum a factor of a sum of sums of products first (lowering/regrouping.py)
    contract: bool = True  # run matrix products tile by tile, from packed operands (lowering/contractions.py)
    bound: bool = True  # leave out of products what a triangle makes 0, or nobody reads (lowering/triangles.py)
    fuse: bool = True  # run neighbouring nests over the same extents as one (fusion.py)
    chunk: bool = True  # sum what is stored for a range in the chunks that store it (chunking.py)
    share: bool = True  # store what a later nest would compute again (sharing.py)
    hoist: bool = True  # fill a temporary that stays the same before a loop (hoisting.py)
    localise: bool = True  # run parallel loops over the same range as one, in the cache (localising.py)
    jam: bool = True  # run several iterations of an outer loop side by side (lowering/lanes.py)
    inline: bool = True  # elementary functions as code of our own, not as calls of a library (llvm/elementary)
    straighten: bool = True  # run maps over short arrays as straight-line code along lanes (lowering/straight.py)
    prefetch: bool = True  # ask for elements at indices that are read further on (prefetching.py)
    split: bool = True  # lanes away from borders ask of no border (splitting.py)
    strip: int = 0  # how many lanes of a nest run at a time, a power of two (lowering/lanes.py)
    copies: int = 0  # how many iterations a jam runs side by side (lowering/lanes.py)


ALL = Transformations()


def transformations_of(schedule: Mapping[str, bool | int] | None) -> Transformations:
    """The transformations with some switched off, or with numbers chosen. Raises ValueError for others.

    >>> transformations_of({"jam": False, "strip": 16}).strip
    16
    >>> transformations_of({"tile": True})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: schedule= knows no 'tile'; it takes ...
    """
    switches = [field.name for field in fields(Transformations) if field.default is True]
    numbers = [field.name for field in fields(Transformations) if field.name not in switches]
    for name, value in (schedule or {}).items():
        if name not in (*switches, *numbers):
            known = f"{', '.join(switches)} (True or False), {', '.join(numbers)} (a positive power of two)"
            raise ValueError(f"schedule= knows no {name!r}; it takes {known}")
        if name in switches and not isinstance(value, bool):
            raise ValueError(f"schedule= takes {name!r} as True or False, not {value!r}")
        if name in numbers and (isinstance(value, bool) or value < 1 or value & (value - 1)):
            raise ValueError(f"schedule= takes {name!r} as a positive power of two, not {value!r}")
    return Transformations(**(schedule or {}))  # type: ignore[arg-type]
