"""Minimum cut: the lightest set of vertices that separates sources from sinks in a graph.

It is as heavy as the largest flow that the vertices let through (Ford and Fulkerson 1956). Flow is sent along
shortest ways that still have room (Edmonds and Karp 1972); in the end, what can be reached from the sources stops at
the cut. Of several lightest cuts this is the one nearest to the sources.

    a (4) -> b (1) -> c (9), d (9)      with the source a, and the sinks c and d: the cut is b

What lies behind the cut may have a price as well. Then the cut and what is behind it cost least together: with a price
of 7 for c, and a weight of 1, the cut is b and c.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Mapping
from types import MappingProxyType
from typing import TypeVar

Vertex = TypeVar("Vertex", bound=Hashable)


def minimum_cut(
    weights: Mapping[Vertex, int],
    before: Mapping[Vertex, Collection[Vertex]],
    sinks: Collection[Vertex],
    behind: Mapping[Vertex, int] = MappingProxyType({}),
) -> set[Vertex]:
    """The cut, given the weights of all vertices and what leads into those that are no sources.

    ``behind`` are the prices of vertices that are behind the cut.

    >>> minimum_cut({"a": 4, "b": 1, "c": 9, "d": 9}, {"b": "a", "c": "b", "d": "b"}, "cd")
    {'b'}
    >>> sorted(minimum_cut({"a": 4, "b": 1, "c": 2}, {"b": "a", "c": "a"}, "bc"))
    ['b', 'c']
    >>> minimum_cut({"a": 1, "b": 1}, {"b": "a"}, "b"), minimum_cut({"a": 1}, {}, "")
    ({'a'}, set())
    >>> [minimum_cut({"a": 1, "b": 3}, {"b": "a"}, "b", {"b": price}) for price in (1, 4)]
    [{'a'}, {'b'}]
    """
    endless = 1 + sum(weights.values()) + sum(behind.values())
    start, end = -1, -2
    place = {vertex: 2 * k for k, vertex in enumerate(weights)}  # where a vertex is entered; one more where it is left
    room: dict[int, dict[int, int]] = {start: {}, end: {}}
    for vertex, k in place.items():
        room[k], room[k + 1] = {k + 1: weights[vertex]}, {k: 0}

    def join(x: int, y: int) -> None:
        room[x][y], room[y][x] = endless, room[y].get(x, 0)

    for vertex, k in place.items():
        for other in before.get(vertex, ()):
            join(place[other] + 1, k)
        if vertex not in before:
            join(start, k)
        elif vertex in behind:
            room[start][k], room[k][start] = behind[vertex], 0
    for vertex in sinks:
        join(place[vertex] + 1, end)
    while True:
        came = _shortest_ways(room, start, end)
        if end not in came:
            return {vertex for vertex, k in place.items() if k in came and k + 1 not in came}
        way, at = [end], end
        while at != start:
            at = came[at]
            way.append(at)
        edges = list(zip(way[1:], way, strict=False))
        amount = min([room[x][y] for x, y in edges])
        for x, y in edges:
            room[x][y] -= amount
            room[y][x] += amount


def _shortest_ways(room: Mapping[int, Mapping[int, int]], start: int, end: int) -> dict[int, int]:
    """For each place that can be reached, until the end is, the place before it."""
    came, waiting = {start: start}, deque([start])
    while waiting and end not in came:
        x = waiting.popleft()
        for y, left in room[x].items():
            if left and y not in came:
                came[y] = x
                waiting.append(y)
    return came
