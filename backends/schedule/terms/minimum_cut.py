"""Minimum cuts: the cheapest values that all ways from some values to where they are wanted go through.

Values are the nodes of a graph without cycles, with an edge to each value that is made from one, and each has a cost to
be stored. By the theorem of Ford and Fulkerson (1956), as much flows from the sources to the sinks as the cheapest cut
costs, where each value lets through what it costs. ::

    s = sum(..)   1          exp(s)  1 ------> p * q  1 ---> wanted         the sources: s, exp(s)
       |__________________________|_________> s > 0   1 --------^           cut: p * q and s, say; or what they become
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping

Node = tuple[int, bool]  # a value, where flow comes in, or where it goes out
_SOURCE, _SINK = (-1, True), (-1, False)


def last_cut(
    costs: Mapping[int, float], users: Mapping[int, Collection[int]], sources: Collection[int], sinks: Collection[int]
) -> set[int]:
    """The cheapest values whose removal leaves no way from sources to sinks; of several cuts the one nearest the sinks.

    ``costs`` are of the values by their numbers, from 0; what cannot be removed has an infinite one. ``users`` are made
    from a value. Empty where only infinite costs are in the way, or nothing is.

    >>> sorted(last_cut({0: 1, 1: 1, 2: 1}, {0: [1, 2], 1: [2]}, [0, 1], [2]))
    [2]
    >>> sorted(last_cut({0: 1, 1: 1, 2: 3}, {0: [2], 1: [2]}, [0, 1], [2]))
    [0, 1]
    """
    room: defaultdict[Node, dict[Node, float]] = defaultdict(dict)  # what may yet flow along an edge
    edges = [((k, False), (k, True), cost) for k, cost in costs.items()]
    edges += [((k, True), (user, False), math.inf) for k, those in users.items() for user in those]
    edges += [(_SOURCE, (k, False), math.inf) for k in sources] + [((k, True), _SINK, math.inf) for k in sinks]
    for start, end, most in edges:
        room[start][end] = most
        room[end].setdefault(start, 0.0)
    while path := _path(room):
        flow = min(room[start][end] for start, end in path)
        if math.isinf(flow):
            return set()
        for start, end in path:
            room[start][end] -= flow
            room[end][start] += flow
    behind = _reaching(room)
    return {k for k in costs if (k, True) in behind and (k, False) not in behind}


def _path(room: Mapping[Node, Mapping[Node, float]]) -> list[tuple[Node, Node]]:
    """A shortest way from the source to the sink along which more may flow; empty where there is none."""
    before, queue = {_SOURCE: _SOURCE}, [_SOURCE]
    for node in queue:
        for other, most in room[node].items():
            if most > 0 and other not in before:
                before[other] = node
                queue.append(other)
    path, node = list[tuple[Node, Node]](), _SINK
    while node in before and node != _SOURCE:
        path.append((before[node], node))
        node = before[node]
    return path[::-1]


def _reaching(room: Mapping[Node, Mapping[Node, float]]) -> set[Node]:
    """The nodes from which more may flow to the sink."""
    found, queue = {_SINK}, [_SINK]
    for node in queue:
        for other in room[node]:
            if other not in found and room[other][node] > 0:
                found.add(other)
                queue.append(other)
    return found
