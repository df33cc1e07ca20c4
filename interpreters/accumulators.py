"""Accumulators become arrays, reductions and single updates where their indices allow it.

An accumulate is a list of *leaves*: one update each, inside loops and tests. A leaf whose indices are exactly its
loops, over the whole array, is a generate; loops that its indices do not mention become a sum:

    accumulate dQ = 0:  for i < n, k < m, j < m: dQ[k, j] += g[i, k] * x[i, j]
    dQ = for k < m, j < m: sum(i < n: g[i, k] * x[i, j])

This interchanges loops, which must not repeat work: it is done only when everything costly in the value still runs
once for each value of what it depends on, and is not shared with another leaf. (Storing such values first is the
scheduler's decision, ``backends/schedule.py``.) After Schenck et al. 2022, section 6.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.builder import Builder, Scope
from ..core.graph import Body, Node, Value
from ..core.types import dims, element

# A scalar operation that costs more than this many additions is not repeated.
COSTLY = 8


@dataclass
class Leaf:
    """One update: ``for loops: if tests: accumulator[indices] += value``."""

    loops: list[tuple[Value, Value]]  # binder and extent, outermost first
    tests: list[tuple[Value, bool]]
    accumulator: Value
    value: Value
    indices: tuple[Value, ...]

    @property
    def binders(self) -> frozenset[int]:
        return frozenset([binder.number for binder, _ in self.loops])

    @property
    def operands(self) -> list[Value]:
        return [self.value, *self.indices, *[test for test, _ in self.tests]]

    def order(self) -> list[int]:
        """The loops as they would run after the interchange: those of the indices first."""
        used = self.used()
        inner = [binder.number for binder, _ in self.loops if binder.number not in used]
        return [binder.number for binder, _ in self.loops if binder.number in used] + inner

    def used(self) -> frozenset[int]:
        free = frozenset().union(*[index.free for index in self.indices]) if self.indices else frozenset()
        return free & self.binders


def rewrite_accumulate(b: Builder, initials: Sequence[Value], body: Body) -> Sequence[Value] | None:
    """The results of an accumulate in a better form, or None when it stays as it is."""
    if not body.statements:
        return [*initials, *body.results]
    if body.results:
        return None
    values = list(initials)
    position = {binder.number: k for k, binder in enumerate(body.binders)}
    kept: list[Node] = []
    for statement in body.statements:
        leaves = leaves_of(statement, [], [])
        if leaves is None or not _may_interchange(leaves):
            kept.append(statement)
            continue
        for leaf in leaves:
            k = position.get(leaf.accumulator.number)
            if k is not None and _covers(leaf, initials[k]):
                values[k] = plus(b, values[k], _generated(b, leaf))
            else:
                kept.extend(_update(b, leaf))
    own = set(position)
    if not any(node.effects & own for node in kept):
        b.scopes[-1].statements.extend(kept)
        b.open.update([node.number for node in kept])
        return values
    if len(kept) == len(body.statements) and all(x is y for x, y in zip(kept, body.statements, strict=True)):
        return None
    return b.make("accumulate", (), values, [b.close(body.binders, tuple(kept), ())])


def leaves_of(node: Node, loops: list[tuple[Value, Value]], tests: list[tuple[Value, bool]]) -> list[Leaf] | None:
    """The updates of a statement, or None when it is not made of loops, tests and updates alone."""
    if node.op == "add_to":
        return [Leaf(loops, tests, node.args[0], node.args[1], node.args[2:])]
    if node.results or node.op not in ("generate", "cond"):
        return None
    found: list[Leaf] = []
    for k, body in enumerate(node.bodies):
        inner_loops = [*loops, (body.binders[0], node.args[0])] if node.op == "generate" else loops
        inner_tests = [*tests, (node.args[0], k == 0)] if node.op == "cond" else tests
        for statement in body.statements:
            leaves = leaves_of(statement, inner_loops, inner_tests)
            if leaves is None:
                return None
            found.extend(leaves)
    return found


def _may_interchange(leaves: list[Leaf]) -> bool:
    shared: set[int] = set()
    for leaf in leaves:
        bound = leaf.binders
        if any(not extent.free.isdisjoint(bound) for _, extent in leaf.loops):
            return False  # triangular
        order = leaf.order()
        costly = costly_nodes(leaf.operands, bound)
        for node in costly:
            depends = node.free & bound
            if node.effects or frozenset(order[: len(depends)]) != depends:
                return False
        numbers = {node.number for node in costly}
        if numbers & shared:
            return False
        shared |= numbers
    return True


def costly_nodes(values: Sequence[Value], binders: frozenset[int]) -> list[Node]:
    """What depends on the binders and should not be computed twice: inner loops and expensive scalar operations."""
    stack = [value.source for value in values if value.source is not None]
    seen: set[int] = set()
    found: list[Node] = []
    while stack:
        node = stack.pop()
        if node.number in seen or node.free.isdisjoint(binders):
            continue
        seen.add(node.number)
        if (node.bodies and node.op != "cond") or (node.op == "primitive" and node.static[0].cost > COSTLY):
            found.append(node)
        stack.extend([arg.source for arg in node.args if arg.source is not None])
        for body in node.bodies:
            stack.extend([result.source for result in body.results if result.source is not None])
    return found


def _covers(leaf: Leaf, initial: Value) -> bool:
    """Whether the indices are distinct loops that run over the whole array."""
    extents = {binder.number: extent for binder, extent in leaf.loops}
    numbers = [index.number for index in leaf.indices]
    if len(set(numbers)) != len(numbers) or not all(number in extents for number in numbers):
        return False
    return all(extents[n].dim == dim for n, dim in zip(numbers, dims(initial.type), strict=True))


def _guarded(b: Builder, leaf: Leaf) -> Value:
    """The value where the tests hold, zero elsewhere."""
    value = leaf.value
    zero = b.literal(0, element(value.type))
    for test, wanted in reversed(leaf.tests):
        branches = [b.close((), (), (value,)), b.close((), (), (zero,))]
        value = b.emit("cond", (), [test], branches if wanted else branches[::-1])[0]
    return value


def _summed(b: Builder, leaf: Leaf, value: Value) -> Value:
    """The value summed over the loops that the indices do not mention."""
    used = leaf.used()
    zero = b.literal(0, element(value.type))
    for binder, extent in reversed(leaf.loops):
        if binder.number not in used:
            operator = b.body([value.type] * 2, lambda x, y: [b.primitive("add", x, y)])
            value = b.emit("reduce", (), [extent, zero], [b.close((binder,), (), (value,)), operator])[0]
    return value


def _generated(b: Builder, leaf: Leaf) -> Value:
    extents = {binder.number: extent for binder, extent in leaf.loops}
    value = _summed(b, leaf, _guarded(b, leaf))
    for index in reversed(leaf.indices):
        extent = extents[index.number]
        value = b.emit("generate", (extent.dim,), [extent], [b.close((index,), (), (value,))])[0]
    return value


def _update(b: Builder, leaf: Leaf) -> list[Node]:
    """The leaf as a statement, with a sum in place of the loops that its indices do not mention."""
    used = leaf.used()
    summing = len(used) < len(leaf.loops) and not any(not test.free.isdisjoint(used) for test, _ in leaf.tests)
    if summing:
        value = _summed(b, leaf, _guarded(b, leaf))
        loops = [loop for loop in leaf.loops if loop[0].number in used]
    else:
        value, loops = _guarded(b, leaf), leaf.loops
    statements = _recorded(b, "add_to", (), [leaf.accumulator, value, *leaf.indices], [])
    for binder, extent in reversed(loops):
        body = b.close((binder,), tuple(statements), ())
        statements = _recorded(b, "generate", (extent.dim,), [extent], [body])
    return statements


def _recorded(b: Builder, op: str, static: tuple[object, ...], args: list[Value], bodies: list[Body]) -> list[Node]:
    """Emit a statement and take it out of the open scope again."""
    b.scopes.append(Scope(()))
    try:
        b.emit(op, static, args, bodies)
    finally:
        statements = b.scopes.pop().statements
    return statements


def is_zero(value: Value) -> bool:
    """Whether a value is zero everywhere, by its form."""
    while value.source is not None and value.source.op == "generate":
        value = value.source.bodies[0].results[value.position]
    return value.literal == 0 and not isinstance(value.literal, bool)


def plus(b: Builder, x: Value, y: Value) -> Value:
    """The elementwise sum of two values of one shape; an absent (zero) one costs nothing."""
    if is_zero(x):
        return y
    if is_zero(y):
        return x
    return b.array(b.sizes(x), lambda *i: b.primitive("add", b.index(x, i), b.index(y, i)))


def zeros_like(b: Builder, value: Value) -> Value:
    """Zeros of a value's type."""
    return b.array(b.sizes(value), lambda *_: b.literal(0, element(value.type)))
