"""The updates of an accumulator in a statement, and what their loops and tests allow.

A statement of an accumulate is a tree of loops and tests whose *leaves* are updates. A leaf knows the path to it; the
tree knows what its leaves share, and so what would be computed twice if they ran apart (``accumulators.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush

from ...core.builder import Builder, Scope
from ...core.graph import Node, Value
from ...core.types import dims, element
from .costs import is_costly_value, own_cost

# Cheap operations that several leaves share are repeated while that makes the whole at most so many times as much.
REPEATED = 3


@dataclass(frozen=True)
class Guard:
    """A test on the way to a leaf, and the number of loops around it."""

    test: Value
    wanted: bool
    depth: int


@dataclass(frozen=True)
class Path:
    """The loops and tests around a place, outermost first; loops by binder and extent."""

    loops: tuple[tuple[Value, Value], ...] = ()
    guards: tuple[Guard, ...] = ()

    def inside(self, node: Node, branch: int) -> Path:
        """The path to the statements in a body of a loop or a test."""
        if node.op == "generate":
            return Path((*self.loops, (node.bodies[0].binders[0], node.args[0])), self.guards)
        return Path(self.loops, (*self.guards, Guard(node.args[0], branch == 0, len(self.loops))))

    @cached_property
    def binders(self) -> frozenset[int]:
        return frozenset([binder.number for binder, _ in self.loops])


@dataclass(frozen=True)
class Leaf:
    """One update: ``for loops: if tests: accumulator[indices] += value``.

    A loop that is the last index goes along a row of the accumulator. With ``by_rows`` it stands inside of those that
    say which row that is: an element gets what it got, in the same order.
    """

    node: Node
    path: Path
    by_rows: bool = True

    @property
    def accumulator(self) -> Value:
        return self.node.args[0]

    @property
    def value(self) -> Value:
        return self.node.args[1]

    @property
    def indices(self) -> tuple[Value, ...]:
        return self.node.args[2:]

    @property
    def operands(self) -> list[Value]:
        """What the leaf needs, the extents of its loops aside."""
        return [*self.node.args[1:], *[guard.test for guard in self.path.guards]]

    @cached_property
    def used(self) -> frozenset[int]:
        """The loops that the indices mention."""
        return frozenset().union(*[index.free for index in self.indices]) & self.path.binders

    @cached_property
    def order(self) -> list[tuple[Value, Value]]:
        """The loops as they run after the interchange: those of the indices first, the others as a sum inside."""
        last = self.indices[-1].number if self._goes_along_rows else None
        return sorted(self.path.loops, key=lambda loop: (loop[0].number not in self.used, loop[0].number == last))

    @property
    def _goes_along_rows(self) -> bool:
        *rows, last = self.indices or [self.value]
        return self.by_rows and bool(rows) and all(last.number not in index.free for index in rows)

    def prefix(self, numbers: frozenset[int]) -> bool:
        """Whether these loops are the outermost ones after the interchange."""
        return frozenset([binder.number for binder, _ in self.order[: len(numbers)]]) == numbers

    def covers(self, array: Value) -> bool:
        """Whether the indices are distinct loops that run over the whole array."""
        extents = {binder.number: extent.dim for binder, extent in self.path.loops}
        numbers = [index.number for index in self.indices]
        if len(set(numbers)) != len(numbers):
            return False
        return all(extents.get(n) == dim for n, dim in zip(numbers, dims(array.type), strict=True))

    def in_place(self) -> bool:
        """Whether the indices are the loops, in their order, and no test has loops inside."""
        in_order = [index.number for index in self.indices] == [binder.number for binder, _ in self.path.loops]
        return in_order and all(guard.depth == len(self.path.loops) for guard in self.path.guards)

    def stands_alone(self, statements: frozenset[int]) -> bool:
        """Whether nothing that the leaf needs is the result of one of these statements."""
        needed = [*self.operands, *[extent for _, extent in self.path.loops]]
        return all(value.free.isdisjoint(statements) for value in needed)

    def may_interchange(self) -> bool:
        """Whether the loops may run in the new order, as far as extents and tests say."""
        around: set[int] = set()
        for binder, extent in self.order:
            if not extent.free & self.path.binders <= around:
                return False  # triangular
            around.add(binder.number)
        for guard in self.path.guards:
            outside = frozenset([binder.number for binder, _ in self.path.loops[: guard.depth]])
            if guard.depth < len(self.path.loops) and not (outside <= self.used or self.used <= outside):
                return False
        return True

    def changes(self) -> bool:
        """Whether the loops would run in another order, or some of them as a sum.

        Every test that has loops inside must stand inside the others.
        """
        return (len(self.used) < len(self.path.loops) or self.order != list(self.path.loops)) and all(
            self.used <= {binder.number for binder, _ in self.path.loops[: guard.depth]}
            for guard in self.path.guards
            if guard.depth < len(self.path.loops)
        )

    def guards(self, depth: int) -> list[Guard]:
        """The tests that stand in this many loops of the new order: in all when no loop is inside them, but never
        between the loops of the indices."""
        loops = len(self.path.loops)
        level = {
            guard: loops if guard.depth == loops else max(guard.depth, len(self.used)) for guard in self.path.guards
        }
        return [guard for guard in self.path.guards if level[guard] == depth]


class Tree:
    """A statement: its leaves, and the statements in it that are no loops, tests or updates."""

    def __init__(self, statement: Node, beside: frozenset[int]) -> None:
        self.statement = statement
        self.leaves: list[Leaf] = []
        self.opaque: list[Node] = []
        self._walk(statement, Path())
        self.statements = beside | {node.number for node in self.opaque}
        self.binders = frozenset().union(*[leaf.path.binders for leaf in self.leaves])

    def _walk(self, node: Node, path: Path) -> None:
        if node.op == "add_to":
            self.leaves.append(Leaf(node, path))
        elif node.results or not node.row.control:
            self.opaque.append(node)
        else:
            for k, body in enumerate(node.bodies):
                inner = path.inside(node, k)
                for statement in body.statements:
                    self._walk(statement, inner)

    def stands_alone(self) -> bool:
        return all(leaf.stands_alone(self.statements) for leaf in self.leaves)

    @cached_property
    def needed(self) -> list[tuple[Node, int]]:
        """The nodes that depend on the loops, each with the set of leaves that need it, as the bits of a number.

        What a statement other than a leaf needs has one bit more.
        """
        found: list[tuple[Node, int]] = []
        read: set[int] = set()  # by number, those that are not only run
        waiting: dict[int, tuple[Node, int]] = {}
        heap: list[int] = []

        def need(node: Node, who: int) -> None:
            if not node.free.isdisjoint(self.binders):
                if node.number not in waiting:
                    heappush(heap, -node.number)  # users have greater numbers than what they use
                waiting[node.number] = (node, waiting.get(node.number, (node, 0))[1] | who)

        def need_values(values: Iterable[Value], who: int) -> None:
            for value in values:
                if value.source is not None:
                    read.add(value.source.number)
                    need(value.source, who)

        def need_operands(node: Node, who: int) -> None:
            need_values(node.args, who)
            for body in node.bodies:
                need_values(body.results, who)
                for statement in body.statements:
                    need(statement, who)

        for k, leaf in enumerate(self.leaves):
            need_values(leaf.operands, 1 << k)
        for statement in self.opaque:
            need_operands(statement, 1 << len(self.leaves))
        while heap:
            node, who = waiting.pop(-heappop(heap))
            if node.number in read:
                found.append((node, who))
            need_operands(node, who)
        return found

    def independent(self) -> list[Leaf]:
        """The leaves whose loops may be split off and interchanged without repeating anything costly."""
        costly = [(node.free, who) for node, who in self.needed if is_costly_value(node)]

        def once(k: int, leaf: Leaf) -> bool:
            return all(
                who.bit_count() == 1 and leaf.prefix(free & leaf.path.binders) for free, who in costly if who >> k & 1
            )

        found: list[Leaf] = []
        for k, leaf in enumerate(self.leaves):
            ways = (leaf, replace(leaf, by_rows=False)) if leaf.stands_alone(self.statements) else ()
            allowed = [way for way in ways if way.may_interchange() and once(k, way)]
            if allowed:
                self.leaves[k] = allowed[0]
                found.append(allowed[0])
        return found

    def runs_once(self, leaf: Leaf) -> bool:
        """Whether nothing costly is repeated for a leaf when its loops stand in the order of its indices."""
        bit = 1 << self.leaves.index(leaf)
        numbers = [index.number for index in leaf.indices]
        shared = [node.free & leaf.used for node, who in self.needed if who & bit and is_costly_value(node)]
        return all(frozenset(numbers[: len(loops)]) == loops for loops in shared)

    def repeats(self, leaving: Sequence[Leaf]) -> bool:
        """Whether too much cheap work would be done again when these leaves run alone."""
        alone = {leaf.node.number for leaf in leaving}
        bits = sum([1 << k for k, leaf in enumerate(self.leaves) if leaf.node.number in alone])
        once = again = 0.0
        for node, who in self.needed:
            cost = own_cost(node)
            once += cost
            again += cost * ((who & bits).bit_count() + (who & ~bits != 0))
        return again > REPEATED * (once + len(self.leaves))


# Tests as choices


def zero(b: Builder, value: Value) -> Value:
    return b.literal(0, element(value.type))


def guarded(b: Builder, guards: Sequence[Guard], value: Value) -> Value:
    """The value where the tests hold, zero elsewhere."""
    for guard in reversed(guards):
        branches = [b.close((), (), (value,)), b.close((), (), (zero(b, value),))]
        value = b.emit("cond", (), [guard.test], branches if guard.wanted else branches[::-1])[0]
    return value


# Statements that are emitted apart


def recorded(b: Builder, emit: Callable[[], object]) -> list[Node]:
    """What is emitted as statements, taken out of the open scope again."""
    outer = b.scopes[-1]
    b.scopes.append(Scope((), outer))
    b.scopes[-1].partial = outer.partial
    try:
        emit()
    finally:
        statements = b.scopes.pop().statements
    return statements


def without(b: Builder, node: Node, removed: set[int]) -> list[Node]:
    """The statement without some of its updates."""
    if node.number in removed:
        return []
    if node.results or not node.row.control:
        return [node]
    bodies = [[new for old in body.statements for new in without(b, old, removed)] for body in node.bodies]
    return with_statements(b, node, bodies)


def with_statements(b: Builder, node: Node, bodies: Sequence[Sequence[Node]]) -> list[Node]:
    """A loop or test of statements with other statements."""
    if all(len(new) == len(old.statements) for new, old in zip(bodies, node.bodies, strict=True)):
        if all(x is y for new, old in zip(bodies, node.bodies, strict=True) for x, y in zip(new, old.statements)):
            return [node]
    closed = [b.close(old.binders, tuple(new), ()) for new, old in zip(bodies, node.bodies, strict=True)]
    return recorded(b, lambda: b.emit(node.op, node.static, list(node.args), closed))
