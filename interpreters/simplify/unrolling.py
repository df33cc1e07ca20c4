"""Full unrolling: a loop of a few iterations that chooses by its index is its iterations, one after another.

An array that is written out, ``az.array([a, b, c])``, is a ``generate`` that chooses by its index; its cotangent comes
to the elements in a loop that chooses again. With the index known in each iteration nothing is left to choose:

    for k < 3:                                     x_bar += t[0]
      if k < 1: x_bar += t[k]                      y_bar += t[1]
      elif k < 2: y_bar += t[k]                    z_bar += t[2]
      else: z_bar += t[k]

What has no choice by the index stays a loop, and so does what would become long.
"""

from __future__ import annotations

from ...core.builder import Builder
from ...core.graph import Body, Node, Value
from ...core.types import i64
from .switches import is_on

# At most so many iterations.
FEW = 4
# At most so many operations in all iterations.
LONG = 400

_COMPARISONS = {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"}


def iterations(b: Builder, extent: Value, body: Body) -> list[list[Value]] | None:
    """The results of a body at each index; its statements go to the open scope. None when it is to stay a loop."""
    count = extent.literal
    if not isinstance(count, int) or not 1 < count <= FEW or not is_on("unroll_few") or not _chooses(body, count):
        return None
    return [b.instantiate(body, [b.literal(k, i64)]) for k in range(count)]


def _chooses(body: Body, count: int) -> bool:
    """Whether something in a body that is short enough compares the index with a number."""
    index = body.binders[0].number
    found = False
    seen: set[int] = set()
    waiting = [body]
    while waiting:
        entered = waiting.pop()
        nodes = [value.source for value in entered.results] + list(entered.statements)
        while nodes:
            node = nodes.pop()
            if node is None or node.number in seen or index not in node.free:
                continue
            seen.add(node.number)
            if len(seen) * count > LONG:
                return False
            found = found or _compares(node, index)
            nodes += [arg.source for arg in node.args]
            waiting += node.bodies
    return found


def _compares(node: Node, index: int) -> bool:
    """Whether this is a choice by a comparison of the index (and numbers) with a number."""
    if node.op != "cond":
        return False
    test = node.args[0].source
    if test is None or test.op != "primitive" or test.static[0].name not in _COMPARISONS:
        return False
    return test.free == {index}
