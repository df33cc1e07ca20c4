"""Strongly connected components: which nodes of a directed graph reach each other (Tarjan 1972).

>>> components({"main": ["even"], "even": ["odd", "print"], "odd": ["even"], "print": []})
[['print'], ['even', 'odd'], ['main']]
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def components(graph: Mapping[Node, Iterable[Node]]) -> list[list[Node]]:
    """The components of a graph from nodes to those that they lead to, each after those that it leads to.

    Nodes of a component are in the order in which they are found. The search has a stack of its own.
    """
    found: list[list[Node]] = []
    number: dict[Node, int] = {}
    lowest: dict[Node, int] = {}  # of those that a node leads to and that have no component yet
    waiting: list[Node] = []
    placed: set[Node] = set()
    entered: list[tuple[Node, Iterator[Node]]] = []

    def enter(node: Node) -> None:
        number[node] = lowest[node] = len(number)
        waiting.append(node)
        entered.append((node, iter(graph[node])))

    for root in graph:
        if root not in number:
            enter(root)
        while entered:
            node, others = entered[-1]
            for other in others:
                if other not in number:
                    enter(other)
                    break
                if other not in placed:
                    lowest[node] = min(lowest[node], number[other])
            else:
                entered.pop()
                if entered:
                    before = entered[-1][0]
                    lowest[before] = min(lowest[before], lowest[node])
                if lowest[node] == number[node]:
                    first = len(waiting) - 1
                    while waiting[first] != node:
                        first -= 1
                    found.append(waiting[first:])
                    placed.update(waiting[first:])
                    del waiting[first:]
    return found
