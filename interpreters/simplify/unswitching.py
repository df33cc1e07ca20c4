"""Partial loop unswitching: what no loop changes in a branch is computed before all loops, if none changes the test.

A branch is not run before it is taken, so what stands in it stays in its loops, though no iteration changes it. Where
the same branch is taken in all iterations, the test goes before the loops with it, and these read what it gives:

    for i < n: if c: x[i] * sin(a)        t = sin(a) if c else 0
               else: x[i]                 for i < n: if c: x[i] * t
                                                     else: x[i]

The loop itself is not written twice, as it is by loop unswitching (Allen and Cocke 1971). Numbers leave, not arrays,
and only with something costly among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...core import terms
from ...core.builder import Builder, Substitution
from ...core.graph import Body, Node, Value, numbers, sources
from ...core.types import Scalar
from ..embed import Embed, rebuilt
from .costs import is_costly


def unswitched(block: terms.Block) -> terms.Block:
    """The term with such branches before its loops; the same object if there are none."""
    if not _chooses(block, [False] * len(block.binders), False):
        return block
    made = rebuilt(block, Embed, _rule)
    return block if made == block else made


def is_before_loops(b: Builder, node: Node) -> bool:
    """Whether loops are open, none of which changes an operation."""
    loops = _loops(b)
    return bool(loops) and node.free.isdisjoint(numbers(loops, ()))


def _loops(b: Builder) -> list[Value]:
    """What the loops bind that are open."""
    return [binder for s in b.scopes if s.binders and s.binders[0].number in b.extents for binder in s.binders]


def _chooses(block: terms.Block, varying: Sequence[bool], looped: bool) -> bool:
    """Whether a loop has a branch that no loop chooses, with something costly in it.

    ``varying`` tells of the values that the block may read, its parameters the last, which of them a loop changes.
    """
    varying = list(varying)
    for operation in block.bindings:
        blocks, loops = operation.blocks, operation.row.loops
        read = [atom for atom in operation.args if isinstance(atom, terms.Variable)]
        changes = any([varying[-1 - each.index] for each in (*read, *[v for inner in blocks for v in inner.free])])
        if looped and operation.op == "cond" and any(map(_has_costly, blocks)):
            test = operation.args[0]
            if not (isinstance(test, terms.Variable) and varying[-1 - test.index]):
                return True
        if any([_chooses(inner, [*varying, *[loops] * len(inner.binders)], looped or loops) for inner in blocks]):
            return True
        varying += [changes] * len(operation.types)
    return False


def _has_costly(block: terms.Block) -> bool:
    """Whether something in a block is costly."""
    return any([is_costly(x) or any(map(_has_costly, x.blocks)) for x in block.bindings])


def _rule(
    b: Builder, op: str, static: tuple[Any, ...], args: tuple[Value, ...], bodies: tuple[Body, ...]
) -> tuple[Value, ...] | None:
    """The builder's rule for a cond."""
    if op != "cond" or any([body.statements for body in bodies]):
        return None
    loops, (test,) = _loops(b), args
    bound = numbers(loops, ())
    if not test.free.isdisjoint(bound) or all([body.free.isdisjoint(bound) for body in bodies]):
        return None
    found = [_invariants(test, body, bound) for body in bodies]
    leaving = [value for nodes in found for node in nodes for value in node.results]
    if not leaving:
        return None
    before = dict(zip(leaving, b.emit("cond", (), args, _alone(b, found, leaving)), strict=True))
    reads = {node.number: _Read([before[value] for value in node.results]) for nodes in found for node in nodes}
    inside = Substitution(b, {binder: binder for binder in loops}, None, (), reads)
    inside.memo.update({node.number: node.results for scope in b.scopes for node in scope.statements})  # they stay
    branches = [b.close((), (), tuple(inside.values(body.results)), body.partial) for body in bodies]
    return b.make("cond", (), args, branches)


def _alone(b: Builder, found: Sequence[Sequence[Node]], leaving: Sequence[Value]) -> list[Body]:
    """Branches that give what leaves them, and zero for what leaves the other one."""
    branches = []
    for nodes in found:
        own = {value for node in nodes for value in node.results}
        zero = [b.literal(0, value.type) for value in leaving]  # type: ignore[arg-type]
        results = [value if value in own else other for value, other in zip(leaving, zero, strict=True)]
        branches.append(b.close((), (), tuple(results)))
    return branches


@dataclass(frozen=True)
class _Read:
    """What was computed before the loop, where it is read."""

    results: Sequence[Value]

    def __call__(self, inside: Substitution) -> tuple[Value, ...]:
        return tuple(self.results)


def _invariants(test: Value, body: Body, loops: frozenset[int]) -> list[Node]:
    """The operations of a branch that no loop changes, but whose users one does; none if all are cheap.

    What stands in branches inside may not be run, and stays, and so does what is in loops that may have no iteration.
    """
    found, changing = list[Node](), set(loops)
    waiting, seen = sources(body.results), set[int]()
    while waiting:
        node = waiting.pop()
        if node.number in seen or (node.op == "cond" and node.args[0] is test):
            continue
        seen.add(node.number)
        if node.free.isdisjoint(changing):
            if _may_leave(node):
                found.append(node)
            continue
        waiting += sources(node.args)
        if node.op == "generate" and node.args[0].literal:
            changing.add(node.bodies[0].binders[0].number)
            waiting += sources(node.bodies[0].results)
    return found if any(map(_takes_long, found)) else []


def _may_leave(node: Node) -> bool:
    """Whether an operation makes numbers, and is not just a read, which is none the cheaper before the loop."""
    numbers_alone = all([isinstance(value.type, Scalar) for value in node.results])
    computes = node.op == "primitive" or not node.row.cheap
    return numbers_alone and computes and not node.effects and not node.partial


def _takes_long(node: Node) -> bool:
    """Whether an operation is costly, or one that it needs."""
    waiting, seen = [node], set[int]()
    while waiting:
        node = waiting.pop()
        if node.number not in seen:
            if is_costly(node):
                return True
            seen.add(node.number)
            waiting += sources(node.args)
    return False
