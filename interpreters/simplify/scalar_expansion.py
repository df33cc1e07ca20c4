"""Scalar expansion: what several updates share is computed once an iteration, and stored, so that they can leave.

An update that leaves its loop takes along what it is made of (``accumulators.py``). What many share would be computed
again in each, as in the derivative of a stencil of 49 points, whose 49 updates share a value of 49 products. Where that
would be too much, the value is stored first, and each update reads it:

    for i < n:                                          V = for i < n: (x[i - 1] + 2 * x[i] + x[i + 1]) ** 3
      v = (x[i - 1] + 2 * x[i] + x[i + 1]) ** 3   =>    for i < n:
      t[i - 1] += v; t[i] += 2 * v; t[i + 1] += v         t[i - 1] += V[i]; t[i] += 2 * V[i]; t[i + 1] += V[i]

What is so cheap that simplify would compute it where it is read is not stored, nor what has more values than an update
has places, as in a sum over pairs. (Allen and Kennedy 2002, section 5.3.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ...core.builder import Builder, Replacement, Substitution
from ...core.graph import Node, Value
from ...core.types import Scalar
from .costs import CHEAP, cost_within
from .leaves import Leaf, Tree, recorded

Leaving = Mapping[int, frozenset[int]]  # by the place of a leaf in its tree: the loops that are axes of its array


def expanded(b: Builder, tree: Tree, leaving: Leaving) -> list[Node]:
    """The statement of a tree, where what these leaves share is stored."""
    replaced = _stored(b, tree, leaving)
    if not replaced:
        return [tree.statement]
    same = {leaf.accumulator: leaf.accumulator for leaf in tree.leaves}
    rebuilding = Substitution(b, same, None, (), replaced)
    return recorded(b, lambda: rebuilding.copy(tree.statement))


def _stored(b: Builder, tree: Tree, leaving: Leaving) -> dict[int, Replacement]:
    """What stands for the nodes that are stored, by number: reads of arrays of all their values."""
    found: dict[int, Replacement] = {}
    for node, leaf in _shared(tree, leaving):
        if cost_within(node.results[0], leaf.path.binders, found) > CHEAP:
            loops = [loop for loop in leaf.path.loops if loop[0].number in node.free]
            array = _array(b, node.results[0], loops, dict(found))
            found[node.number] = _reading(array, [binder for binder, _ in loops])
    return found


def _shared(tree: Tree, leaving: Leaving) -> Iterator[tuple[Node, Leaf]]:
    """What may be stored, each with a leaf of its loops; what others are made of comes before them."""
    inner = frozenset([binder.number for node, _ in tree.needed for body in node.bodies for binder in body.binders])
    read_alone = _read_by_fewer(tree)
    for node, who in reversed(tree.needed):
        sharing = [k for k in leaving if who >> k & 1]
        along = [tree.leaves[k] for k in sharing if _is_along(node, tree.leaves[k], leaving[k])]
        if len(sharing) < 2 or not along or node.number not in read_alone:
            continue
        if node.free.isdisjoint(inner | tree.statements) and _is_number(node):
            yield node, along[0]


def _read_by_fewer(tree: Tree) -> frozenset[int]:
    """The nodes, by number, that something reads which fewer leaves need."""
    who_needs = {node.number: who for node, who in tree.needed}
    readers = [(value, 1 << k) for k, leaf in enumerate(tree.leaves) for value in leaf.operands]
    for node, who in tree.needed:
        readers += [(value, who) for value in node.args]
        readers += [(value, who) for body in node.bodies for value in body.results]
    return frozenset([v.source.number for v, who in readers if v.source and who_needs.get(v.source.number, who) != who])


def _is_along(node: Node, leaf: Leaf, axes: frozenset[int]) -> bool:
    """Whether a node varies with no loop but those that are axes of a leaf's array: it has no more values than that."""
    extents = [extent for binder, extent in leaf.path.loops if binder.number in node.free]
    in_order = all(extent.free.isdisjoint(leaf.path.binders) for extent in extents)
    return in_order and node.free & leaf.path.binders <= axes


def _is_number(node: Node) -> bool:
    """Whether a node is a floating number, and nothing else happens when it is computed."""
    if len(node.results) != 1 or node.effects or node.partial:
        return False
    type = node.results[0].type
    return isinstance(type, Scalar) and type.kind == "float"


def _array(b: Builder, value: Value, loops: Sequence[tuple[Value, Value]], stored: Mapping[int, Replacement]) -> Value:
    """A value for all iterations of these loops, made of what is ``stored`` already."""

    def elements(at: dict[Value, Value]) -> Value:
        if len(at) == len(loops):
            return Substitution(b, at, None, (), stored).values([value])[0]
        binder, extent = loops[len(at)]
        return b.generate(extent, lambda i: [elements({**at, binder: i})], binder.name)[0]

    return elements({})


def _reading(array: Value, binders: Sequence[Value]) -> Callable[[Substitution], tuple[Value, ...]]:
    return lambda rebuilding: (rebuilding.builder.index(array, [rebuilding.value(binder) for binder in binders]),)
