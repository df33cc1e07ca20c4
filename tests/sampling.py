"""Parameters of which the fast run tries some, the long run more, and the sweep all.

Of every test with parameters ``make test`` runs one case in eight and ``make test-all`` as many as one in two, always
the same ones; the others are left to ``make sweep``. What takes long is left to longer runs by ``some``:

    @pytest.mark.parametrize("shape", some(SHAPES, 3), ids=str)   # the first, the fourth, ... each time

    @pytest.mark.slow                                             # every tenth in the long run, the others in the sweep
    @pytest.mark.parametrize("seed", some(range(400), 10, long=0))

Those that are left out of a run differ from those in it by their numbers alone, or are the programs of the suite that
other tests run, too. ``make sweep`` takes hours, and is for whoever changes what such a test is about.
"""

import collections
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

FAST, LONG = 8, 2  # cases of a test, of which the fast run takes one, and the long run one
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


def leave_the_rest(items: Sequence[pytest.Item]) -> None:
    """Leave cases of each test to the long run and to the sweep, but for one in ``FAST`` and one in ``LONG`` cases.

    Cases are chosen by their names alone, so that it is always the same ones, and a new case changes few of them.
    """
    cases = collections.defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if hasattr(item, "callspec") and item.get_closest_marker("slow") is None:
            cases[item.nodeid.partition("[")[0]].append(item)
    for found in cases.values():
        found.sort(key=lambda item: hashlib.sha256(item.nodeid.encode()).digest())
        fast, long = (-(-len(found) // each) for each in (FAST, LONG))
        for number, item in enumerate(found[fast:], fast):
            item.add_marker("rest" if number < long else "sweep")
