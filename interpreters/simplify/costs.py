"""What it costs to compute a value again: about how many additions, where it is little enough to do so."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from ...core.graph import Node, Value
from ...core.terms import Operation

# An array element is computed where it is read when that costs at most about this many additions.
CHEAP = 12
# A scalar operation that costs more than this many additions is not repeated.
COSTLY = 8
# An index that wraps around is a choice, in lanes at borders alone (backends/schedule/loops/index_set_splitting.py).
WRAPPING = 2
# Divisions of indices go when lanes are split, or stand outside of them.
INDEX_ARITHMETIC = frozenset(("remainder", "floor_divide"))


def is_costly(node: Node | Operation) -> bool:
    """Whether something should not be computed twice: an expensive scalar operation, or anything that runs a block."""
    if node.op == "primitive":
        return bool(node.static[0].cost > COSTLY)
    return not node.row.cheap


def is_costly_value(node: Node) -> bool:
    """Whether a node is costly, and not only an index, which is little beside what is read there."""
    return not (node.op == "primitive" and node.static[0].name in INDEX_ARITHMETIC) and is_costly(node)


def own_cost(node: Node) -> float:
    """What a node costs that is no loop, where its indices are computed in lanes."""
    if node.op != "primitive":
        return 1
    return float(WRAPPING if node.static[0].name in INDEX_ARITHMETIC else node.static[0].cost)


def cost_within(value: Value, inside: frozenset[int], stored: Container[int] = ()) -> float:
    """About how many additions it takes to compute a scalar inside these binders; infinite with something costly.

    Nodes that are ``stored``, by number, are only read.
    """
    cost, wrapping = 0.0, set[int]()
    for node in nodes_within([value], inside, stored):
        if node.op == "index":
            around = [index.source.number for index in node.args[1:] if index.source and _wraps(index.source, inside)]
            wrapping.update(around)
            cost += WRAPPING * len(around)
        if node.number in wrapping:
            continue
        if is_costly(node) or cost > CHEAP:
            return float("inf")
        cost += own_cost(node)
    return cost


def _wraps(node: Node, inside: frozenset[int]) -> bool:
    """Whether a node is a remainder by what does not vary."""
    return node.op == "primitive" and node.static[0].name == "remainder" and node.args[1].free.isdisjoint(inside)


def nodes_within(values: Sequence[Value], binders: frozenset[int], stored: Container[int] = ()) -> Iterator[Node]:
    """The nodes that depend on the binders, also inside branches of a cond; bodies of loops are not entered.

    Those that are ``stored``, by number, are left out, and what they alone are made of.
    """
    stack = [value.source for value in values if value.source is not None]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node.number in seen or node.number in stored or node.free.isdisjoint(binders):
            continue
        seen.add(node.number)
        yield node
        stack.extend([arg.source for arg in node.args if arg.source is not None])
        if node.op == "cond":
            stack.extend([r.source for body in node.bodies for r in body.results if r.source is not None])
