"""Accumulators become arrays, reductions and single updates where their indices allow it.

The statements of an accumulate are trees of loops and tests whose *leaves* are updates. A statement all of whose
leaves run exactly over the arrays that they update is a generate with several results; so is a single leaf whose
indices are distinct loops over the whole array, and the loops that its indices do not mention become a sum:

    accumulate dQ = 0:  for i < n, k < m, j < m: dQ[k, j] += g[i, k] * x[i, j]
    dQ = for k < m, j < m: sum(i < n: g[i, k] * x[i, j])

This interchanges and splits loops, which must not repeat work: it is done only when everything costly in a value
still runs once for each value of what it depends on and is not shared with another leaf, and when what is cheap is
not repeated too often. (Storing values first is the scheduler's decision, ``backends/schedule.py``.) A test around
loops must not come to stand inside loops that would then run in vain. After Schenck et al. 2022, section 6.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

from ...core.builder import Builder, Scope
from ...core.graph import Body, Node, Value
from ...core.types import dims, element

# A scalar operation that costs more than this many additions is not repeated.
COSTLY = 8
# Cheap operations that several leaves share are repeated while that makes the whole at most so many times as much.
REPEATED = 3
# Constructs that take about as long as an addition, besides what is in the branches of a cond.
CHEAP_CONSTRUCTS = frozenset({"index", "size", "cond", "pack", "project", "construct"})
# A test around at most so many updates becomes a choice of what they add.
CHOSEN = 8


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
    """One update: ``for loops: if tests: accumulator[indices] += value``."""

    node: Node
    path: Path

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
        return sorted(self.path.loops, key=lambda loop: loop[0].number not in self.used)

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

    def sums(self) -> bool:
        """Whether some of the loops can become a sum, and every test that has loops inside stands inside the others."""
        return len(self.used) < len(self.path.loops) and all(
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


def rewrite_accumulate(b: Builder, initials: Sequence[Value], body: Body) -> Sequence[Value] | None:
    """The results of an accumulate in a better form, or None when it stays as it is."""
    b.scopes[-1].partial |= body.partial
    accumulate = _Accumulate(b, initials, body)
    kept = [node for statement in body.statements for node in accumulate.rewritten(statement)]
    updated = frozenset().union(*[node.effects for node in kept])
    remaining = [k for k, binder in enumerate(body.binders) if binder.number in updated]
    if not remaining:
        b.scopes[-1].statements.extend(kept)
        b.open.update([node.number for node in kept])
        return [*accumulate.values, *body.results]
    same = len(kept) == len(body.statements) and all(x is y for x, y in zip(kept, body.statements, strict=True))
    if same and len(remaining) == len(body.binders):
        return None
    inner = b.close(tuple([body.binders[k] for k in remaining]), tuple(kept), body.results)
    made = b.make("accumulate", (), [accumulate.values[k] for k in remaining], [inner])
    finals = dict(zip(remaining, made, strict=False))
    return [*[finals.get(k, value) for k, value in enumerate(accumulate.values)], *made[len(remaining) :]]


class _Accumulate:
    """An accumulate that is rewritten; ``values`` are what its accumulators start from, with what left the body."""

    def __init__(self, b: Builder, initials: Sequence[Value], body: Body) -> None:
        self.b, self.values = b, list(initials)
        self.statements = frozenset([statement.number for statement in body.statements])
        self.position = {binder.number: k for k, binder in enumerate(body.binders)}

    def covered(self, leaf: Leaf) -> bool:
        """Whether a leaf runs over the whole of an accumulator that is ours."""
        k = self.position.get(leaf.accumulator.number)
        return k is not None and leaf.covers(self.values[k])

    def rewritten(self, statement: Node) -> list[Node]:
        """What is left of a statement; the rest is added to ``values`` or is among the nodes in another form."""
        return [node for one in self.chosen(statement, Path()) for node in self.split(one)]

    # Tests around updates become choices of what is added

    def chosen(self, node: Node, path: Path) -> list[Node]:
        """The statement with conds of updates alone replaced by updates of conds, where one may leave the body."""
        if node.op not in ("generate", "cond") or node.results:
            return [node]
        bodies = []
        for k, body in enumerate(node.bodies):
            inner = path.inside(node, k)
            bodies.append([new for old in body.statements for new in self.chosen(old, inner)])
        updates = [update for statements in bodies for update in statements]
        if node.op == "cond" and len(updates) <= CHOSEN and all(update.op == "add_to" for update in updates):
            leaving = [self.covered(Leaf(update, path)) for update in updates]
            if all(leaving) or (any(leaving) and not path.loops):
                return self._choice(node, bodies)
        return _with_statements(self.b, node, bodies)

    def _choice(self, node: Node, branches: Sequence[Sequence[Node]]) -> list[Node]:
        b = self.b
        targets: dict[tuple[int, ...], tuple[Value, ...]] = {}
        added: list[dict[tuple[int, ...], Value]] = [{}, {}]
        for values, updates in zip(added, branches, strict=True):
            for update in updates:
                accumulator, value, *indices = update.args
                key = (accumulator.number, *[index.number for index in indices])
                targets[key] = (accumulator, *indices)
                values[key] = b.primitive("add", values[key], value) if key in values else value
        zeros = {key: b.literal(0, element(target[0].type)) for key, target in targets.items()}
        bodies = [b.close((), (), tuple([values.get(key, zeros[key]) for key in targets])) for values in added]
        chosen = b.emit("cond", (), node.args, bodies)
        return [
            new
            for (accumulator, *indices), value in zip(targets.values(), chosen, strict=True)
            for new in _recorded(b, "add_to", (), [accumulator, value, *indices], [])
        ]

    # Leaves leave

    def split(self, statement: Node) -> list[Node]:
        tree = _Tree(statement, self.statements)
        if tree.opaque == [statement]:
            return [statement]
        if not tree.opaque and all(self.covered(x) and x.in_place() for x in tree.leaves) and tree.stands_alone():
            for leaf, value in self._mapped(statement, Path()):
                self._add(leaf, value)
            return []
        leaving = [leaf for leaf in tree.independent() if self.covered(leaf) or leaf.sums()]
        if not leaving or tree.repeats(leaving):
            return [statement]
        updates: list[Node] = []
        for leaf in leaving:
            if self.covered(leaf):
                self._add(leaf, _array(self.b, leaf, tree.runs_once(leaf)))
            else:
                updates.extend(_update(self.b, leaf))
        return [*_without(self.b, statement, {leaf.node.number for leaf in leaving}), *updates]

    def _add(self, leaf: Leaf, array: Value) -> None:
        k = self.position[leaf.accumulator.number]
        self.values[k] = plus(self.b, self.values[k], array)

    def _mapped(self, node: Node, path: Path) -> list[tuple[Leaf, Value]]:
        """The leaves of a statement with what they add: the same loops and tests, as generates and conds."""
        if node.op == "add_to":
            return [(Leaf(node, path), node.args[1])]
        inner = [
            [pair for statement in body.statements for pair in self._mapped(statement, path.inside(node, k))]
            for k, body in enumerate(node.bodies)
        ]
        leaves = [leaf for pairs in inner for leaf, _ in pairs]
        bodies = []
        for k, body in enumerate(node.bodies):
            added = [
                [value if k == own else _zero(self.b, value) for _, value in inner[own]] for own in range(len(inner))
            ]
            bodies.append(self.b.close(body.binders, (), tuple([value for values in added for value in values])))
        return list(zip(leaves, self.b.emit(node.op, node.static, node.args, bodies), strict=True))


class _Tree:
    """A statement: its leaves, and the statements in it that are no loops, tests or updates."""

    def __init__(self, statement: Node, beside: frozenset[int]) -> None:
        self.leaves: list[Leaf] = []
        self.opaque: list[Node] = []
        self._walk(statement, Path())
        self.statements = beside | {node.number for node in self.opaque}
        self.binders = frozenset().union(*[leaf.path.binders for leaf in self.leaves])

    def _walk(self, node: Node, path: Path) -> None:
        if node.op == "add_to":
            self.leaves.append(Leaf(node, path))
        elif node.results or node.op not in ("generate", "cond"):
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
        waiting: dict[int, tuple[Node, int]] = {}
        heap: list[int] = []

        def need(values: Iterable[Value], who: int) -> None:
            for value in values:
                node = value.source
                if node is not None and not node.free.isdisjoint(self.binders):
                    if node.number not in waiting:
                        heappush(heap, -node.number)  # users have greater numbers than what they use
                    waiting[node.number] = (node, waiting.get(node.number, (node, 0))[1] | who)

        for k, leaf in enumerate(self.leaves):
            need(leaf.operands, 1 << k)
        for statement in self.opaque:
            need(_operands(statement), 1 << len(self.leaves))
        while heap:
            node, who = waiting.pop(-heappop(heap))
            found.append((node, who))
            need(_operands(node), who)
        return found

    def independent(self) -> list[Leaf]:
        """The leaves whose loops may be split off and interchanged without repeating anything costly."""
        allowed = [leaf.may_interchange() and leaf.stands_alone(self.statements) for leaf in self.leaves]
        for node, who in self.needed:
            if is_costly(node):
                alone = who.bit_count() == 1
                for k, leaf in enumerate(self.leaves):
                    if who >> k & 1 and not (alone and leaf.prefix(node.free & leaf.path.binders)):
                        allowed[k] = False
        return [leaf for leaf, may in zip(self.leaves, allowed, strict=True) if may]

    def runs_once(self, leaf: Leaf) -> bool:
        """Whether nothing costly is repeated for a leaf when its loops stand in the order of its indices."""
        bit = 1 << self.leaves.index(leaf)
        numbers = [index.number for index in leaf.indices]
        shared = [node.free & leaf.used for node, who in self.needed if who & bit and is_costly(node)]
        return all(frozenset(numbers[: len(loops)]) == loops for loops in shared)

    def repeats(self, leaving: Sequence[Leaf]) -> bool:
        """Whether too much cheap work would be done again when these leaves run alone."""
        alone = {leaf.node.number for leaf in leaving}
        bits = sum([1 << k for k, leaf in enumerate(self.leaves) if leaf.node.number in alone])
        once = again = 0
        for node, who in self.needed:
            cost = node.static[0].cost if node.op == "primitive" else 1
            once += cost
            again += cost * ((who & bits).bit_count() + (who & ~bits != 0))
        return again > REPEATED * (once + len(self.leaves))


def _operands(node: Node) -> Iterator[Value]:
    """What a node needs: its arguments, and what its bodies give back and do."""
    yield from node.args
    for body in node.bodies:
        yield from body.results
        for statement in body.statements:
            yield from _operands(statement)


def is_costly(node: Node) -> bool:
    """Whether a node should not be computed twice: an expensive scalar operation, or anything that runs a block."""
    if node.op == "primitive":
        return bool(node.static[0].cost > COSTLY)
    return node.op not in CHEAP_CONSTRUCTS


# New forms of a leaf


def _zero(b: Builder, value: Value) -> Value:
    return b.literal(0, element(value.type))


def _guarded(b: Builder, guards: Sequence[Guard], value: Value) -> Value:
    """The value where the tests hold, zero elsewhere."""
    for guard in reversed(guards):
        branches = [b.close((), (), (value,)), b.close((), (), (_zero(b, value),))]
        value = b.emit("cond", (), [guard.test], branches if guard.wanted else branches[::-1])[0]
    return value


def _summed(b: Builder, leaf: Leaf) -> Value:
    """The value summed over the loops that the indices do not mention."""
    value = _guarded(b, leaf.guards(len(leaf.order)), leaf.value)
    for depth in range(len(leaf.order) - 1, len(leaf.used) - 1, -1):
        binder, extent = leaf.order[depth]
        operator = b.body([value.type] * 2, lambda x, y: [b.primitive("add", x, y)])
        bodies = [b.close((binder,), (), (value,)), operator]
        value = b.emit("reduce", (), [extent, _zero(b, value)], bodies)[0]
        value = _guarded(b, leaf.guards(depth), value)
    return value


def _array(b: Builder, leaf: Leaf, as_indexed: bool) -> Value:
    """What a leaf adds to the whole of its accumulator.

    Its loops stand in the order of its indices, or as they ran: then the array is transposed.
    """
    extents = {binder.number: extent for binder, extent in leaf.path.loops}
    loops = list(leaf.indices) if as_indexed else [binder for binder, _ in leaf.order[: len(leaf.used)]]
    value = _summed(b, leaf)
    for index in reversed(loops):
        extent = extents[index.number]
        value = b.emit("generate", (extent.dim,), [extent], [b.close((index,), (), (value,))])[0]
    if as_indexed:
        return value
    places = [leaf.indices.index(binder) for binder in loops]
    sizes = [extents[index.number] for index in leaf.indices]
    return b.array(sizes, lambda *i: b.index(value, [i[place] for place in places]))


def _update(b: Builder, leaf: Leaf) -> list[Node]:
    """The leaf as a statement, with a sum in place of the loops that its indices do not mention."""
    statements = _recorded(b, "add_to", (), [leaf.accumulator, _summed(b, leaf), *leaf.indices], [])
    for binder, extent in reversed(leaf.order[: len(leaf.used)]):
        body = b.close((binder,), tuple(statements), ())
        statements = _recorded(b, "generate", (extent.dim,), [extent], [body])
    return statements


def _without(b: Builder, node: Node, removed: set[int]) -> list[Node]:
    """The statement without some of its updates."""
    if node.number in removed:
        return []
    if node.results or node.op not in ("generate", "cond"):
        return [node]
    bodies = [[new for old in body.statements for new in _without(b, old, removed)] for body in node.bodies]
    return _with_statements(b, node, bodies)


def _with_statements(b: Builder, node: Node, bodies: Sequence[Sequence[Node]]) -> list[Node]:
    """A loop or test of statements with other statements."""
    if all(len(new) == len(old.statements) for new, old in zip(bodies, node.bodies, strict=True)):
        if all(x is y for new, old in zip(bodies, node.bodies, strict=True) for x, y in zip(new, old.statements)):
            return [node]
    closed = [b.close(old.binders, tuple(new), ()) for new, old in zip(bodies, node.bodies, strict=True)]
    return _recorded(b, node.op, node.static, list(node.args), closed)


def _recorded(b: Builder, op: str, static: tuple[object, ...], args: list[Value], bodies: list[Body]) -> list[Node]:
    """Emit a statement and take it out of the open scope again."""
    outer = b.scopes[-1]
    b.scopes.append(Scope((), outer))
    b.scopes[-1].partial = outer.partial
    try:
        b.emit(op, static, args, bodies)
    finally:
        statements = b.scopes.pop().statements
    return statements


# Sums with absent terms


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
