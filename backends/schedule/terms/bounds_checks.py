"""Bounds-check elimination by loop extremes: checks all over a loop are decided before it (Gupta 1993).

A loop that does nothing but check indices runs beside the one that reads. Where what it compares is monotone in each
loop variable, it never fails if it does not fail for the extreme values of these; and that is one comparison of sizes.
Only if this fails does the loop run, which finds the first index that is out of range, as if nothing had been decided::

    for i < n:                           if m - n - 2 < 0:
      require i + 2 < m        is          for i < n:
                                             require i + 2 < m

So loops without iterations and branches that are not taken check nothing, whatever the extremes say. Sizes are
compared that the arguments of a call decide; integers that may wrap around are left to the loop.

What a loop in order checks first, and the same in each iteration, it checks once, if it has an iteration at all::

    loop k < n with rank:                    if 0 < n:
      for i < e: require source[i] < m         for i < e: require source[i] < m
      next ..rank[source[i]]..       is      loop k < n with rank: next ..rank[source[i]]..
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from ....core.builder import Builder
from ....core.dims import Dim
from ....core.graph import Body, Node, Value
from ....core.indexing import extents_of
from ....core.ranges import least
from ....core.terms import Block
from ....core.types import bool_, i64
from ....interpreters.embed import Embed, rebuilt
from ....interpreters.simplify.implied import DIFFERENCES, is_exact
from ...target import BOUNDS_CHECK_COMPARISONS


def decided(block: Block) -> Block:
    """The closed block, where loops that only check run if a check may fail, and once if it is always the same."""
    return rebuilt(block, Embed, _decided)


def _decided(
    b: Builder, op: str, static: tuple[Any, ...], args: tuple[Value, ...], bodies: tuple[Body, ...]
) -> tuple[Value, ...] | None:
    if op == "loop" and bodies[0].statements:
        return _hoisted(b, static, args, bodies[0])
    if op != "generate" or bodies[0].results or not bodies[0].statements:
        return None
    extremes = _extremes(b, bodies[0].statements)
    if extremes is None or len(extremes) > BOUNDS_CHECK_COMPARISONS:
        return None
    zero, fails = b.literal(0, i64), b.literal(False, bool_)
    for extreme in dict.fromkeys(extremes):
        below = b.primitive("less", b.dim(extreme), zero)
        fails = below if fails.literal is False else b.primitive("logical_or", fails, below)

    def run() -> Sequence[Value]:
        b.make(op, static, args, bodies)
        return []

    return b.cond(fails, run, lambda: [])


def _hoisted(b: Builder, static: tuple[Any, ...], args: tuple[Value, ...], body: Body) -> tuple[Value, ...] | None:
    """A loop in order behind what its iterations check first, as long as they check the same."""
    varying = frozenset([*[binder.number for binder in body.binders], *[node.number for node in body.statements]])
    first = list(takewhile(lambda node: _only_checks(node) and _made_of(node).isdisjoint(varying), body.statements))
    if not first:
        return None

    def check() -> list[Value]:
        """What the first iteration checks."""
        return b.instantiate(Body(b.fresh(), body.binders, tuple(first), ()), [b.literal(0, i64), *args[1:]])

    runs = b.primitive("less", b.literal(0, i64), args[0])
    if runs.literal is True:
        check()
    else:
        b.cond(runs, check, lambda: [])
    rest = b.close(body.binders, body.statements[len(first) :], body.results, body.partial, body.opened)
    return b.make("loop", static, args, [rest])


def _only_checks(node: Node) -> bool:
    inside = [statement for body in node.bodies for statement in body.statements]
    return node.op == "require" or (node.row.control and not node.results and all(map(_only_checks, inside)))


def _made_of(node: Node) -> frozenset[int]:
    """What a statement of checks needs, but for the variables of its own loops."""
    found = frozenset[int]().union(*[arg.free for arg in node.args])
    for body in node.bodies:
        inside = frozenset[int]().union(*map(_made_of, body.statements))
        found |= inside - {binder.number for binder in body.binders}
    return found


def _extremes(b: Builder, statements: Sequence[Node]) -> list[Dim] | None:
    """Sizes so that no statement fails if none of them is below zero; None where that is not known."""
    found: list[Dim] = []
    for node in statements:
        if node.op == "require":
            own = _of_test(b, node.args[0])
        elif node.row.control and not node.results:
            own = _extremes(b, [statement for body in node.bodies for statement in body.statements])
        else:
            own = None
        if own is None:
            return None
        found += own
    return found


def _of_test(b: Builder, test: Value) -> list[Dim] | None:
    node = test.source
    if node is None or node.op != "primitive":
        return None
    name = node.static[0].name
    if name == "logical_and":
        parts = [_of_test(b, part) for part in node.args]
        return None if None in parts else [dim for part in parts for dim in part or ()]
    sides = [side.dim for side in node.args]
    if name not in DIFFERENCES or None in sides:
        return None
    x, y = [side for side in sides if side is not None]
    extents, found = extents_of(b), []
    for goal in DIFFERENCES[name][0](y - x):
        extreme = least(goal, extents)
        if extreme is None or not extreme.is_static() or not all(is_exact(b, dim) for dim in (x, y, extreme)):
            return None
        found.append(extreme)
    return found or None
