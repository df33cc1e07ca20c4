"""The tree in which what chunks give is combined: its shape is that of their number, in whatever order they come.

Chunk k is leaf k of a binary tree; two neighbours whose numbers differ in the last digit are combined, the left one on
the left. A node without a neighbour goes up as it is. So a run of neighbouring chunks can be combined by whoever has
it, as far as whole subtrees go, and the bits of the root do not depend on who had what.

>>> tree = Tree(5, lambda a, b: f"({a} {b})")
>>> for k in (4, 1, 0, 3, 2):
...     tree.add(0, k, "abcde"[k])
>>> tree.root
'(((a b) (c d)) e)'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Node = tuple[int, int, Any]  # level, place in it, value


class Tree:
    """What has been combined of ``count`` leaves."""

    def __init__(self, count: int, merge: Callable[[Any, Any], Any]) -> None:
        self._count, self._merge = count, merge
        self._waiting: dict[tuple[int, int], Any] = {}  # nodes whose neighbour is not there yet

    def add(self, level: int, place: int, value: Any) -> None:
        """Put a node in, and combine what can be."""
        while self._width(level) > 1:
            neighbour = place ^ 1
            if neighbour < self._width(level):
                if (level, neighbour) not in self._waiting:
                    break
                other = self._waiting.pop((level, neighbour))
                value = self._merge(value, other) if place < neighbour else self._merge(other, value)
            level, place = level + 1, place // 2
        self._waiting[level, place] = value

    def _width(self, level: int) -> int:
        """The number of nodes of a level."""
        return -(-self._count >> level)

    @property
    def nodes(self) -> list[Node]:
        """What is left: subtrees that another tree of as many leaves takes."""
        return [(level, place, value) for (level, place), value in sorted(self._waiting.items(), key=lambda x: x[0])]

    @property
    def root(self) -> Any:
        """All leaves, combined."""
        ((_, _, value),) = self.nodes
        return value
