"""What it costs to compute a value again: about how many additions, where it is little enough to do so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...core.graph import Node, Value

# An array element is computed where it is read when that costs at most about this many additions.
CHEAP = 12
# A scalar operation that costs more than this many additions is not repeated.
COSTLY = 8


def is_costly(node: Node) -> bool:
    """Whether a node should not be computed twice: an expensive scalar operation, or anything that runs a block."""
    if node.op == "primitive":
        return bool(node.static[0].cost > COSTLY)
    return not node.row.cheap


def cost_within(value: Value, inside: frozenset[int]) -> float:
    """About how many additions it takes to compute a scalar inside these binders; infinite with something costly."""
    cost = 0.0
    for node in nodes_within([value], inside):
        if is_costly(node) or cost > CHEAP:
            return float("inf")
        cost += node.static[0].cost if node.op == "primitive" else 1
    return cost


def nodes_within(values: Sequence[Value], binders: frozenset[int]) -> Iterator[Node]:
    """The nodes that depend on the binders, also inside branches of a cond; bodies of loops are not entered."""
    stack = [value.source for value in values if value.source is not None]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node.number in seen or node.free.isdisjoint(binders):
            continue
        seen.add(node.number)
        yield node
        stack.extend([arg.source for arg in node.args if arg.source is not None])
        if node.op == "cond":
            stack.extend([r.source for body in node.bodies for r in body.results if r.source is not None])
