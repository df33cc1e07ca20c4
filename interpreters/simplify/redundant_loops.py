"""Redundant-loop elimination: loops of a block that go through the same states are one, which stores for all of them.

The return sweep of a nest runs inner loops again: to reach the next state, and to store what it reads. Loops are the
same when they begin with the same values and make the same next states of them (``value_numbering.py``); what they
store may differ. The first may require something, as the forward sweep does.

    s = loop j < m with s = x: next f(s, j)                s, y = loop j < m with s = x: next f(s, j)
    t, y = loop j < m with t = x: next f(t, j)                                           yield g(s)
                                  yield g(t)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from ...core.builder import Builder, Replacement
from ...core.graph import Body, Node, Value
from .loop_rewriting import LoopRewriting, Loops, Pending
from .value_numbering import ValueNumbering, fused_results, only_requires, start


class RedundantLoops(LoopRewriting):
    """Rebuilds a term with one loop in the place of equal ones of a block."""

    def rewrites(self, node: Node) -> bool:
        return only_requires(node) and not node.partial

    def change(self, loops: Loops, results: Sequence[Value], statements: list[Node]) -> dict[int, Replacement]:
        """What a later loop stores may depend on nothing that comes after the first."""
        known: dict[Hashable, int] = {}
        merged: list[tuple[Pending, Pending]] = []
        numbering, starts = ValueNumbering(self.builder), Counter([start(loop.node) for loop in loops])
        for position, loop in enumerate(loops):
            if starts[start(loop.node)] == 1:
                continue
            with numbering.comparing():
                key = numbering.key(loop.node)
            first = known.setdefault(key, position)
            later = {binder.number for other in loops[first:] for binder in other.results}
            if first != position and not loop.node.effects and loop.node.free.isdisjoint(later):
                wider = _merged(self.builder, loops[first], loop)
                self.replace(loops, loops[first], wider, statements)
                merged.append((loops[first], loop))
        for one, other in merged:
            other.node = one.node
        return {}


def _merged(b: Builder, first: Pending, second: Pending) -> Body:
    """The body of the first loop that stores what the second does, too, which then is the first."""
    body, other, count = first.node.bodies[0], second.node.bodies[0], len(first.node.args) - 1
    outputs = b.substitute(other.results[count:], dict(zip(other.binders, body.binders, strict=True)))
    wider = b.close(body.binders, body.statements, tuple(fused_results(b, [*body.results, *outputs])))
    second.places = [*range(count), *range(len(body.results), len(wider.results))]
    return wider
