"""Parameters of which the fast run tries some, the long run more, and the sweep all.

    @pytest.mark.parametrize("shape", some(SHAPES, 3), ids=str)   # the first, the fourth, ... each time

    @pytest.mark.slow                                             # every tenth in the long run, the others in the sweep
    @pytest.mark.parametrize("seed", some(range(400), 10, long=0))

Those that are left out of a run differ from those in it by their numbers alone, or are the programs of the suite that
other tests run, too. ``make sweep`` takes hours, and is for whoever changes what such a test is about.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

SLOW = [pytest.mark.slow]
SWEEP = [pytest.mark.slow, pytest.mark.sweep]


def some(values: Iterable[Any], every: int = 4, long: int = 1) -> list[Any]:
    """Values for ``parametrize``, of which every so-manieth (0: none) is tried each time.

    Of the others every ``long``-th (0: none) is for the long run, and what is left then for the sweep.
    """
    made, others = [], 0
    for number, value in enumerate(values):
        marks: list[pytest.MarkDecorator] = []
        if not every or number % every:
            marks = SLOW if long and others % long == 0 else SWEEP
            others += 1
        made.append(pytest.param(value, marks=marks))
    return made


def sooner(values: Iterable[Any], soon: Callable[[Any], bool], long: int) -> list[Any]:
    """Values for ``parametrize``: what is ``soon`` each time, every ``long``-th of the others in the long run."""
    values = list(values)
    first, others = ([value for value in values if bool(soon(value)) is side] for side in (True, False))
    return [*first, *some(others, 0, long)]
