"""What the scheduler may do to a program: each transformation by name, to be switched off for an experiment.

None of them changes what a program means, and each has its own module, which says what it does and why. With one of
them off, what it gains is measured; ``az.compile(f, schedule=...)`` takes them by name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Transformations:
    """The transformations that are on."""

    distribute: bool = True  # store what inner loops share, and run one nest after the other (schedule.py)
    vectorise: bool = True  # run a loop of a nest as lanes of vectors (lowering/nests.py)
    pack: bool = True  # copy an array that lanes would read across (lowering/nests.py)
    jam: bool = True  # run several iterations of an outer loop side by side (lowering/nests.py)


ALL = Transformations()
