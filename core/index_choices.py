"""Choices by the index of a loop of a known length: whether some iteration takes a branch.

An array that is written out, ``az.array([a, b, c])``, is a loop that chooses by its index:

    for i < 3: a if i < 1 else (b if i < 2 else c)

Each branch is taken, in a loop that runs at least once. So what is computed in it is computed anyway.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from .graph import Node, Value

# Loops of more iterations are not looked at.
MOST = 64

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}


class IndexChoices:
    """The branches that a place is in, from inside, and the loops around these."""

    def __init__(self) -> None:
        self._tests: dict[int, list[tuple[Callable[[int, int], bool], int, bool]]] = {}  # by the number of an index
        self.taken = False  # whether all branches so far are taken by some iteration of the loops so far

    def enter(self, test: Value, holds: bool) -> bool:
        """Go out of a branch, in which a test holds or does not; whether the test compares an index with a number."""
        self.taken = False
        source = test.source
        if source is None or source.op != "primitive" or source.static[0].name not in _COMPARISONS:
            return False
        index, number = source.args
        if index.source is not None or index.atom is not None or not isinstance(number.literal, int):
            return False
        compare = _COMPARISONS[source.static[0].name]
        self._tests.setdefault(index.number, []).append((compare, number.literal, holds))
        return True

    def leave(self, loop: Node) -> bool:
        """Go out of a loop; whether it has a known length, and an iteration for the branches."""
        count, tests = loop.args[0].literal, self._tests.pop(loop.bodies[0].binders[0].number, [])
        if not isinstance(count, int) or not 1 <= count <= MOST:
            return False
        chosen = any(all(compare(i, number) is holds for compare, number, holds in tests) for i in range(count))
        self.taken = chosen and bool(tests) and not self._tests
        return chosen
