"""Reduction recognition: accumulators become arrays, reductions and single updates where their indices allow it.

The statements of an accumulate are trees of loops and tests whose *leaves* are updates. A statement all of whose
leaves run exactly over the arrays that they update is a generate with several results; so is a single leaf whose
indices are distinct loops over the whole array, and the loops that its indices do not mention become a sum:

    accumulate dQ = 0:  for i < n, k < m, j < m: dQ[k, j] += g[i, k] * x[i, j]
    dQ = for k < m, j < m: sum(i < n: g[i, k] * x[i, j])

This interchanges and splits loops, which must not repeat work: it is done only when everything costly in a value still
runs once for each value of what it depends on and is not shared with another leaf, and when what is cheap is not
repeated too often. (Storing values first is the scheduler's decision, ``backends/schedule/terms/distribution.py``.) A
test around loops must not come to stand inside loops that would then run in vain. After Schenck et al. 2022, section
6.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...core.builder import Builder
from ...core.graph import Body, Node, Value
from ...core.types import element, i64
from .dropped_digits import without_dropped_digits
from .index_factoring import factored
from .index_set_shifting import axes_of, shifted_index_sets
from .leaves import Leaf, Path, Tree, guarded, recorded, with_statements, without, zero
from .scalar_expansion import expanded

# A test around at most so many updates becomes a choice of what they add.
CHOSEN = 8


def rewrite_accumulate(b: Builder, initials: Sequence[Value], body: Body) -> Sequence[Value] | None:
    """The results of an accumulate in a better form, or None when it stays as it is."""
    b.scopes[-1].partial |= body.partial
    accumulate = _Accumulate(b, initials, body)
    statements = factored(b, body.statements, accumulate.statements)
    kept = [node for statement in statements for node in accumulate.rewritten(statement)]
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
        stored = self.with_stored(statement)
        digits = [one for each in stored for one in without_dropped_digits(self.b, each, self.statements)]
        aligned = [one for each in digits for one in shifted_index_sets(self.b, each, self.statements)]
        chosen = [one for each in aligned for one in self.chosen(each, Path())]
        return [node for one in chosen for node in self.split(one)]

    def with_stored(self, statement: Node) -> list[Node]:
        """The statement, where what its leaves share is stored if they could not leave otherwise."""
        if statement.results or not statement.row.control:
            return [statement]
        tree, leaving = Tree(statement, self.statements), dict[int, frozenset[int]]()
        independent = tree.independent()
        if not tree.repeats(independent):
            return [statement]
        for k, leaf in enumerate(tree.leaves):
            axes = self.axes(leaf) if leaf in independent else None
            if axes is not None:
                leaving[k] = axes
        repeats = tree.repeats([tree.leaves[k] for k in leaving])
        return expanded(self.b, tree, leaving) if repeats else [statement]

    def axes(self, leaf: Leaf) -> frozenset[int] | None:
        """The loops that are axes of what a leaf may become: an array, or a sum with none; None if it stays."""
        if self.covered(leaf):
            return frozenset([index.number for index in leaf.indices])
        axes = axes_of(self.b, leaf)
        return frozenset() if axes is None and leaf.changes() else axes

    # Tests around updates become choices of what is added

    def chosen(self, node: Node, path: Path) -> list[Node]:
        """The statement with conds of updates alone replaced by updates of conds, where one may leave the body."""
        if not node.row.control or node.results:
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
        return with_statements(self.b, node, bodies)

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
            for new in recorded(b, partial(b.emit, "add_to", (), [accumulator, value, *indices]))
        ]

    # Leaves leave

    def split(self, statement: Node) -> list[Node]:
        tree = Tree(statement, self.statements)
        if tree.opaque == [statement]:
            return [statement]
        if not tree.opaque and all(self.covered(x) and x.in_place() for x in tree.leaves) and tree.stands_alone():
            for leaf, value in self._mapped(statement, Path()):
                self._add(leaf, value)
            return []
        leaving = [leaf for leaf in tree.independent() if self.covered(leaf) or leaf.changes()]
        if not leaving or tree.repeats(leaving):
            return [statement]
        updates: list[Node] = []
        for leaf in leaving:
            if self.covered(leaf):
                self._add(leaf, _array(self.b, leaf, tree.runs_once(leaf)))
            else:
                updates.extend(_update(self.b, leaf))
        return [*without(self.b, statement, {leaf.node.number for leaf in leaving}), *updates]

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
                [value if k == own else zero(self.b, value) for _, value in inner[own]] for own in range(len(inner))
            ]
            bodies.append(self.b.close(body.binders, (), tuple([value for values in added for value in values])))
        return list(zip(leaves, self.b.emit(node.op, node.static, node.args, bodies), strict=True))


# New forms of a leaf
#
# Their loops have binders of their own: those of the statement may still run around other leaves, and a sum over one of
# them, which an equal sum over another stands for, would come to stand inside it.

At = dict[Value, Value]  # loop variables of the leaf, and the new ones


def _renamed(b: Builder, value: Value, at: At) -> Value:
    return b.substitute([value], at)[0]


def _summed(b: Builder, leaf: Leaf, at: At, depth: int) -> Value:
    """The value summed over the loops that the indices do not mention, from the one at this depth on."""
    if depth == len(leaf.order):
        value = _renamed(b, leaf.value, at)
    else:
        binder, extent = leaf.order[depth]
        count = _renamed(b, extent, at)
        extents = [] if count.dim is None else [count.dim]
        added = b.body([i64], lambda i: [_summed(b, leaf, {**at, binder: i}, depth + 1)], [binder.name], extents)
        operator = b.body([leaf.value.type] * 2, lambda x, y: [b.primitive("add", x, y)])
        value = b.emit("reduce", (), [count, zero(b, leaf.value)], [added, operator])[0]
    guards = [replace(guard, test=_renamed(b, guard.test, at)) for guard in leaf.guards(depth)]
    return guarded(b, guards, value)


def _array(b: Builder, leaf: Leaf, as_indexed: bool) -> Value:
    """What a leaf adds to the whole of its accumulator.

    Its loops stand in the order of its indices, or as they ran: then the array is transposed.
    """
    extents = {binder.number: extent for binder, extent in leaf.path.loops}
    loops = list(leaf.indices) if as_indexed else [binder for binder, _ in leaf.order[: len(leaf.used)]]

    def elements(at: At) -> Value:
        if len(at) == len(loops):
            return _summed(b, leaf, at, len(loops))
        binder = loops[len(at)]
        count = _renamed(b, extents[binder.number], at)
        return b.generate(count, lambda i: [elements({**at, binder: i})], binder.name)[0]

    value = elements({})
    if as_indexed:
        return value
    places = [leaf.indices.index(binder) for binder in loops]
    sizes = [extents[index.number] for index in leaf.indices]
    return b.array(sizes, lambda *i: b.index(value, [i[place] for place in places]))


def _update(b: Builder, leaf: Leaf) -> list[Node]:
    """The leaf as a statement, with a sum in place of the loops that its indices do not mention."""

    def statements(at: At) -> Sequence[Value]:
        if len(at) == len(leaf.used):
            indices = b.substitute(leaf.indices, at)
            b.emit("add_to", (), [leaf.accumulator, _summed(b, leaf, at, len(at)), *indices])
        else:
            binder, extent = leaf.order[len(at)]
            b.generate(_renamed(b, extent, at), lambda i: statements({**at, binder: i}), binder.name)
        return []

    return recorded(b, lambda: statements({}))


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
