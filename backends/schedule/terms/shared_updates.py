"""Which small arrays are read by updates that all iterations of a loop share.

``schedule/terms/distribution.py`` leaves small inner arrays where they are: straight-line code keeps them in registers.
But updates of an accumulator that read such an array then stay in the loop, one after the other. With the array stored,
they are sums:

    for i < n:                                            Y = for i < n, j < 3: ...
      y = for j < 3: ...                            =>
      for j < 3, k < 3: s[j, k] += y[j] * x[i, k]         for j < 3, k < 3: s[j, k] += sum(i < n: Y[i, j] * x[i, k])

So an array of fewer elements than updates read it in an iteration is stored: to write and read 3 elements is less work
than 9 updates in order. It is not where each iteration has places of its own (s[i, j], or s[c[i], j] of which nobody
knows), and not where as many updates as elements only pass the array on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....core.dims import Dim
from ...target import UPDATES_UNKNOWN_ITERATIONS

Free = frozenset[int]  # De Bruijn indices, seen from the environment of an operation


@dataclass(frozen=True)
class Place:
    """What updates add to: an accumulator, and what their indices are made of."""

    accumulator: int
    indices: Free


# For updates of a place, what their values are made of, and how many read it in one run of an operation.
Updates = Mapping[Place, Mapping[int, float]]


def repeated(updates: Updates, extent: Dim | None = None) -> Updates:
    """The updates of a loop, from those of its body."""
    times = UPDATES_UNKNOWN_ITERATIONS if extent is None or extent.constant is None else extent.constant
    return {place: {index: times * count for index, count in read.items()} for place, read in updates.items()}


def updates_of(binders: int, bindings: Sequence[Any]) -> dict[Place, dict[int, float]]:
    """The updates in a block by levels: its binders are from 0, what is around it is below 0."""
    if not any(binding.operation.updates for binding in bindings):
        return {}
    starts, position = [], binders
    sources: dict[int, Free] = {}  # of each level, the binders and what is around the block that it is made of
    for binding in bindings:
        starts.append(position)
        made_of = _closed(binding.operation.free, position, binders, sources)
        sources.update(dict.fromkeys(range(position, position + len(binding.types)), made_of))
        position += len(binding.types)
    found: dict[Place, dict[int, float]] = {}
    for start, binding in zip(reversed(starts), reversed(bindings), strict=True):
        results = range(start, start + len(binding.types))
        for read in found.values():  # what a value is read for, so is what it is made of
            count = max([read.get(level, 0) for level in results], default=0)
            if count:
                _count(read, {start - 1 - index: count for index in binding.operation.free})
        for place, counts in binding.operation.updates.items():
            indices = _closed(place.indices, start, binders, sources)
            read = found.setdefault(Place(start - 1 - place.accumulator, indices), {})
            _count(read, {start - 1 - index: count for index, count in counts.items()})
    return found


def outside(updates: Updates) -> Updates:
    """The updates of a block, seen from its place: those of accumulators around it."""
    found: dict[Place, dict[int, float]] = {}
    for place, read in updates.items():
        if place.accumulator < 0:
            own = Place(-1 - place.accumulator, frozenset([-1 - level for level in place.indices if level < 0]))
            _count(found.setdefault(own, {}), {-1 - level: count for level, count in read.items() if level < 0})
    return found


def together(parts: Sequence[Updates]) -> Updates:
    """The updates of several parts of an operation."""
    found: dict[Place, dict[int, float]] = {}
    for part in parts:
        for place, read in part.items():
            _count(found.setdefault(place, {}), read)
    return found


def shared(updates: Updates, around: Callable[[int], bool | None]) -> Iterator[Mapping[int, float]]:
    """What updates read whose place is the same for all iterations of a loop, of whose body they are.

    ``around``: whether there is a loop between an accumulator and this loop, or None where it does not exist. The
    iterations of such a loop may share a place which each iteration of this one has for itself.
    """
    for place, read in updates.items():
        between = around(-1 - place.accumulator)
        if between is not None and (0 not in place.indices or (between and place.indices == {0})):
            yield read


def _closed(free: Free, position: int, binders: int, sources: Mapping[int, Free]) -> Free:
    """The levels of binders, and of what is around a block, that something is made of."""
    levels = [position - 1 - index for index in free]
    own = [sources[level] for level in levels if level >= binders]
    return frozenset([level for level in levels if level < binders]).union(*own)


def _count(read: dict[int, float], counts: Mapping[int, float]) -> None:
    for index, count in counts.items():
        read[index] = max(read.get(index, 0), count)
