"""Redundant-loop elimination: loops of a block that go through the same states are one, which stores for all of them.

The return sweep of a nest runs inner loops again: to reach the next state, and to store what it reads. Loops are the
same when they begin with the same values and make the same next states of them (``value_numbering.py``); what they
store may differ.

    s = loop j < m with s = x: next f(s, j)                s, y = loop j < m with s = x: next f(s, j)
    t, y = loop j < m with t = x: next f(t, j)                                           yield g(s)
                                  yield g(t)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from ...core.builder import Builder, Replacement
from ...core.graph import Node, Value
from .loop_rewriting import LoopRewriting, Loops, Pending, source
from .value_numbering import ValueNumbering, fused_results, start


class RedundantLoops(LoopRewriting):
    """Rebuilds a term with one loop in the place of equal ones of a block."""

    def rewrites(self, node: Node) -> bool:
        return not node.effects and not node.partial

    def change(self, loops: Loops, results: Sequence[Value], statements: list[Node]) -> dict[int, Replacement]:
        """What a later loop stores may depend on nothing that comes after the first."""
        known: dict[Hashable, int] = {}
        numbering, starts = ValueNumbering(self.builder), Counter([start(loop.node) for loop in loops])
        for position, loop in enumerate(loops):
            if starts[start(loop.node)] == 1:
                continue
            with numbering.comparing():
                key = numbering.key(loop.node)
            first = known.setdefault(key, position)
            later = {binder.number for other in loops[first:] for binder in other.results}
            if first != position and loop.node.free.isdisjoint(later):
                _merge(self.builder, loops[first], loop)
                self.changed = True
        return {}


def _merge(b: Builder, first: Pending, second: Pending) -> None:
    """Let the first loop store what the second does, too, and the second be the first."""
    body, other, count = first.node.bodies[0], second.node.bodies[0], len(first.node.args) - 1
    outputs = b.substitute(other.results[count:], dict(zip(other.binders, body.binders, strict=True)))
    wider = b.close(body.binders, (), tuple(fused_results(b, [*body.results, *outputs])))
    second.places = [*range(count), *range(len(body.results), len(wider.results))]
    first.node = second.node = source(b.make("loop", first.node.static, first.node.args, [wider])[0])
