"""Rematerialisation by a minimum cut: loops store for other loops what these compute of arrays, where that is less.

The return sweep of a loop reads the states that its forward sweep has stored, one a step. When the state is an array
of which each step touches a few elements, storing it costs the whole array a step. But the return sweep knows at
step p what the forward sweep knew: a value made from p, from what was stored at p and from what is constant can be
computed in the forward sweep as well, and be stored there. A *cut* through these values, between what is stored now
and what the return sweep does with it, is all that must be stored; the lightest one is (``minimum_cut.py``).

    y, s = loop i < n with s = x:                 y, c = loop i < n with s = x:
      next update(s, i, sin(s[i - 1]))              next update(s, i, sin(s[i - 1]))
      yield s                                       yield s[i - 1]
    loop j < n with t = y_bar:                    loop j < n with t = y_bar:
      p = n - 1 - j                                 p = n - 1 - j
      ... t[p] * cos(s[p, p - 1]) ...               ... t[p] * cos(c[p]) ...

A value inside inner loops, whose extents do not change, is an array over these. Scalars stay as they are stored. What
is moved is not computed twice if it is costly (where it is needed as before, it is stored as well), nor where it was
not computed before, and only what is cheap leaves a parallel loop.

What is costly and computed in the forward sweep anyway (``value_numbering.py``) has a price where it is computed again:
an exponential, a sum, an inner loop. So more may be stored than before, if that is less work altogether; but at most
some times as much, and nothing of an inner loop that goes on from the state: it is a segment of the steps, which is
there to be run again (``core/combinators/segments.py``).

    s' = tanh(w * s), yield s                     s' = tanh(w * s), yield s, s'
    t' = t[p] * (1 - tanh(w * s[p]) ** 2)         t' = t[p] * (1 - s'[p] ** 2)

(Schenck et al. 2022, section 5.3, save what an update overwrites, at the update; here nothing is known of updates, and
what is saved is what is read.)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...core.builder import Builder, Replacement, Substitution
from ...core.dims import Dim, Opaque
from ...core.graph import Body, Node, Value, sources
from ...core.terms import Block, Operation
from ...core.types import ArrayType, dims, element, i64, is_data, is_float, rank
from .costs import is_costly, nodes_within
from .loop_rewriting import Index, LoopRewriting, Loops, Pending, Readers, source, statements_in
from .minimum_cut import minimum_cut
from .value_numbering import ValueNumbering, amount, fused_results, kind, operands, own_work

# To store eight bytes, and to read them again, takes about as long as so many additions.
STORED = 12
# What is stored to save work takes at most so many times the memory of what was stored before.
MOST = 8
# The readers of a loop are looked into when they have at most so many operations.
LARGEST = 4000


def stores_arrays(block: Block) -> bool:
    """Whether a loop of a term stores an array a step."""

    def stores(operation: Operation) -> bool:
        outputs = operation.types[len(operation.args) - 1 :] if operation.op == "loop" else ()
        return any(rank(type) > 1 for type in outputs) or any(map(stores_arrays, operation.blocks))

    return any(map(stores, block.bindings))


class Rematerialisation(LoopRewriting):
    """Rebuilds a term with loops that store less."""

    def change(self, loops: Loops, results: Sequence[Value], statements: list[Node]) -> dict[int, Replacement]:
        readers = Readers(loops[0].known, results, statements)
        replaced: dict[int, Replacement] = {}
        for loop in loops:
            body = narrower(self.builder, loop, readers, replaced)
            if body is not None:
                self.replace(loops, loop, body, statements)
        return replaced


# What may be stored


@dataclass(frozen=True)
class _Known:
    """What is known of a node that depends on what a loop has stored.

    ``feeds`` are the outputs of the loop and the vertices that it is computed from, ``steps`` the numbers of the loop
    variables that say at which step they were stored, and ``order`` those that go along the axes of a state, in the
    read with most of them.
    """

    movable: bool  # it may be computed at another place, and all that it needs
    vertex: bool  # its results may be stored
    feeds: frozenset[Value]
    steps: frozenset[int]
    order: tuple[int, ...] = ()


class _Flow:
    """What is computed from what one loop has stored. Unless ``costly``, only what is cheap is moved."""

    def __init__(self, loop: Pending, readers: Readers, costly: bool) -> None:
        self.loop, self.readers, self.costly = loop, readers, costly
        self.count = loop.node.args[0]
        self.outputs = {output.number for output in loop.outputs}
        self.reads: dict[int, Value] = {}  # by loop variable: the step that is read there
        self.known: dict[int, _Known] = {}
        self.arrays: dict[Value, Value] = {}  # by the elements that they are made of
        nodes = [readers.nodes[number] for number in sorted(readers.nodes)]  # operands have lower numbers
        for node in nodes:
            self._step(node)
        for node in nodes:
            if not node.free.isdisjoint(self.outputs):
                self.known[node.number] = self._known(node)
                if node.op == "generate" and len(node.results) == 1:
                    self.arrays[node.bodies[0].results[0]] = node.results[0]
            elif costly and is_costly(node) and self._of_step_alone(node):
                steps = frozenset(node.free & self.reads.keys())
                self.known[node.number] = _Known(True, self._has_place(node, *steps), frozenset(), steps)

    def _known(self, node: Node) -> _Known:
        step = self._step(node)
        movable, order = node.row.movable and not node.partial, tuple[int, ...]()
        feeds, steps = set[Value](), set[int]()
        if step is not None:
            feeds, steps = {node.args[0]}, {step}
            order = tuple([place.number for place in node.args[2:] if place.number in self.readers.loops])
        for value in [*(operands(node) if step is None else node.args[1:])]:
            if value.number in self.outputs:
                movable = False
            source = value.source
            below = None if source is None else self.known.get(source.number)
            if below is not None:
                movable, feeds, steps = movable and below.movable, feeds | self._feeding(value), steps | below.steps
                order = max(order, below.order, key=len)
            elif source is not None and not source.free <= self.loop.known:
                movable = movable and not source.partial and self._may_go_along(value)
        for statement in statements_in(node):
            below = self.known.get(statement.number)
            if below is None:
                movable = False  # an effect on something else
            else:
                movable, feeds, steps = movable and below.movable, feeds | below.feeds, steps | below.steps
        if is_costly(node):
            in_order = all(self.index(j).in_order for j in steps)
            movable = movable and self.costly and in_order and node.number in self.readers.always
        stored = not node.effects and all([is_data(value.type) for value in node.results])
        vertex = movable and stored and len(steps) == 1 and self._has_place(node, *steps)
        return _Known(movable, vertex, frozenset(feeds), frozenset(steps), order)

    def _of_step_alone(self, node: Node) -> bool:
        """Whether a node is a number of the step, whatever was stored, that may be computed elsewhere."""
        steps = frozenset(node.free & self.reads.keys())
        if len(steps) != 1 or not all(self.index(j).in_order for j in steps) or node.number not in self.readers.always:
            return False
        around = nodes_within(node.results, steps)
        return all(x.row.movable and not x.effects and not x.partial and not x.bodies for x in around)

    def _feeding(self, value: Value) -> frozenset[Value]:
        known = self.known[source(value).number]
        return frozenset([value]) if known.vertex else known.feeds

    def index(self, number: int) -> Index:
        index = self.readers.loops[number]
        assert index is not None
        return index

    def _step(self, node: Node) -> int | None:
        """The loop variable that says at which step a read of an output reads, if one does, from the first or last."""
        if node.op != "index" or node.args[0].number not in self.outputs:
            return None
        step, count = node.args[1], self.count.dim
        moving = step.free - self.loop.known
        index = self.readers.loops.get(next(iter(moving))) if len(moving) == 1 else None
        if index is None or index.extent.dim != count or step.dim is None or count is None:
            return None
        j = index.variable
        if j.dim is None or step.dim not in (j.dim, count - 1 - j.dim):
            return None
        known = self.reads.setdefault(j.number, step)
        return j.number if known.dim == step.dim else None

    def _may_go_along(self, value: Value) -> bool:
        """Whether what does not depend on the loop may be computed elsewhere for a node that does."""
        moving = frozenset(self.readers.loops)
        return all(
            self.costly and x.number in self.readers.always for x in nodes_within([value], moving) if is_costly(x)
        )

    def _has_place(self, node: Node, step: int) -> bool:
        """Whether a node depends on nothing but the step, loops of constant extents and what is known before."""
        known = self.loop.known
        inner = [self.readers.loops.get(number) for number in node.free - known - self.outputs - {step}]
        if step not in node.free or any(index is None or not index.extent.free <= known for index in inner):
            return False
        sizes = {size.number for size in node.sizes if size.free <= known} | known
        atoms = {x for value in node.results for dim in _dims(value) if not dim.is_static() for x in dim.atoms()}
        return all(atom.number in sizes for atom in atoms if isinstance(atom, Opaque))

    def inner(self, value: Value) -> list[Index]:
        """The loops around a vertex, inside the one that reads, along the axes of a state that it reads.

        So what several readers make alike is stored once. But the loops are as they are nested where some go along no
        axis, or something costly in the vertex is made for some of them alone: it stays outside of the others.
        """
        known = self.known[source(value).number]
        numbers = value.free - self.loop.known - self.outputs - known.steps
        along = [number for number in dict.fromkeys(known.order) if number in numbers]
        if len(along) < len(numbers) or any(
            is_costly(x) and not numbers <= x.free for x in nodes_within([value], numbers)
        ):
            along = sorted(numbers)
        return [self.index(number) for number in along]

    def in_loop(self, b: Builder) -> tuple[dict[Value, Value], dict[int, Replacement]]:
        """What stands in the loop that stores for its readers' loop variables, and for nodes that read a step."""
        body = self.loop.node.bodies[0]
        states = dict(zip(self.loop.outputs, body.results[len(self.loop.node.args) - 1 :], strict=True))
        last = b.primitive("subtract", self.count, b.literal(1, i64))
        mapping: dict[Value, Value] = {}
        replaced: dict[int, Replacement] = {}
        for number, step in self.reads.items():
            j = self.index(number).variable
            mapping[j] = body.binders[0] if step.dim == j.dim else b.primitive("subtract", last, body.binders[0])
            if step.source is not None:
                replaced[step.source.number] = lambda _: (body.binders[0],)
        for number in self.known:
            node = self.readers.nodes[number]
            if self._step(node) is not None:
                replaced[number] = partial(_read_state, states[node.args[0]], node.args[2:])
        return mapping, replaced

    def prices(self, b: Builder) -> dict[int, int]:
        """What it costs to compute again what the loop computes anyway, by the numbers of nodes.

        Integers have none: they are the sizes of what is stored.
        """
        nodes = [self.readers.nodes[number] for number, known in self.known.items() if known.vertex]
        nodes = [node for node in nodes if node.results and all(is_float(value.type) for value in node.results)]
        costs = {node.number: own_work(node) for node in nodes if is_costly(node)}
        nodes = [node for node in nodes if node.number in costs]
        if not any(costs.values()) or len(self.known) > LARGEST:
            return {}
        numbering, body = ValueNumbering(b), self.loop.node.bodies[0]
        mapping, replaced = self.in_loop(b)
        found: dict[int, int] = {}
        with numbering.comparing():
            for node in nodes:
                around: list[Dim] = []
                for index in self.inner(node.results[0]):
                    extent = index.extent.dim
                    assert extent is not None
                    mapping.setdefault(index.variable, numbering.variable(extent, around.count(extent)))
                    around.append(extent)
                found[node.number] = costs[node.number] * amount(around)
            computed = numbering.computed(body)
            found = {node.number: found[node.number] for node in nodes if kind(node) in computed.kinds}
            nodes = [node for node in nodes if node.number in found]
            images = numbering.images([node.results[0] for node in nodes], mapping, replaced)
            for node, image in zip(nodes, images, strict=True):
                again = image.source
                segment = (
                    again is not None and again.op == "loop" and not set(again.args[1:]).isdisjoint(body.binders[1:])
                )
                if again is None or segment or again not in computed:
                    del found[node.number]
        return found

    def cut(self, twice: bool, prices: Mapping[int, int]) -> list[Value]:
        """The values to be stored instead of outputs; none when the loop should stay as it is.

        What moves and is costly, but is needed where it was as well, is stored, too, if that can be. If not it must be
        a number, which is computed ``twice``. Nodes that have ``prices`` may be computed at both places.
        """
        escaping, sinks = self._ends()
        weights: dict[Value | Node, int] = {}
        before: dict[Value | Node, Collection[Value | Node]] = {}
        for output in self.loop.outputs:
            stays = output in escaping or rank(output.type) < 2
            weights[output] = 0 if stays else _to_store(output, dims(output.type)[1:])
        for number, known in self.known.items():
            node = self.readers.nodes[number]
            for value in node.results if known.vertex else ():
                extents = [index.extent.dim for index in self.inner(value)]
                weights[value] = _to_store(
                    value, [*[extent for extent in extents if extent is not None], *_dims(value)]
                )
                before[value] = [node] if number in prices else known.feeds
            if number in prices:
                before[node] = known.feeds
        if len(weights) > LARGEST:
            return []
        most, behind = sum(weights.values()) + sum(prices.values()), dict[Value | Node, int]()
        for number, price in prices.items():
            weights[self.readers.nodes[number]], behind[self.readers.nodes[number]] = most + 1, price
        lightest = minimum_cut(weights, before, sinks, behind)
        chosen, again = {value for value in lightest if isinstance(value, Value)}, set[Value]()
        while more := self._repeated(chosen, prices) - again:
            chosen |= more & weights.keys()
            again |= more - weights.keys()
        if any([not twice or source(value).op != "primitive" for value in again]):
            return []
        stored, moved = sum([weights[value] for value in chosen]), self._moved(chosen)
        saved = sum([price for number, price in prices.items() if number in moved])
        if stored > saved + sum([weights[output] for output in self.loop.outputs]):
            return []
        if prices and stored > MOST * sum([_to_store(output, dims(output.type)[1:]) for output in self.loop.outputs]):
            return []
        return [self._whole(value, weights) for value in chosen if value.source is not None]

    def _whole(self, value: Value, weights: Mapping[Value | Node, int]) -> Value:
        """The array whose element a value is, if it is as light: so it may be one that the loop makes anyway."""
        whole = self.arrays.get(value)
        return value if whole is None or weights.get(whole, math.inf) > weights[value] else self._whole(whole, weights)

    def _ends(self) -> tuple[set[Value], set[Value]]:
        """The outputs that are needed as they are, and the vertices that are used by what is no vertex."""
        escaping, sinks = set[Value](), set[Value]()
        stack, seen = list(self.readers.statements), set[int]()

        def use(values: Iterable[Value]) -> None:
            for value in values:
                if value.number in self.outputs:
                    escaping.add(value)
                elif value.source is not None and value.source.number in self.readers.nodes:
                    known = self.known.get(value.source.number)
                    if known is not None and known.vertex:
                        sinks.add(value)
                    else:
                        stack.append(value.source)

        use(self.readers.results)
        while stack:
            node = stack.pop()
            if node.number not in seen and node.number in self.readers.nodes:
                seen.add(node.number)
                use(operands(node))
                stack.extend(statements_in(node))
        return escaping, sinks

    def _moved(self, stored: Collection[Value]) -> set[int]:
        """The nodes of these values, and all that they are made of."""
        moved, stack = set[int](), sources(stored)
        while stack:
            node = stack.pop()
            if node.number in self.readers.nodes and node.number not in moved:
                moved.add(node.number)
                stack.extend([*sources(operands(node)), *statements_in(node)])
        return moved

    def _repeated(self, stored: Collection[Value], free: Collection[int]) -> set[Value]:
        """What is costly, moves with these values and would be computed where it was, too, but for what is ``free``."""
        moved = self._moved(stored).difference(free)
        found, seen = set[Value](), set[int]()
        stack = [*sources(self.readers.results), *self.readers.statements]
        while stack and moved:
            node = stack.pop()
            if node.number not in seen and node.number in self.readers.nodes:
                seen.add(node.number)
                needed = [value for value in operands(node) if value not in stored and value.source is not None]
                again = [value for value in needed if source(value).number in moved and is_costly(source(value))]
                found.update(again)
                stack.extend([source(value) for value in needed if value not in again])
                stack.extend(statements_in(node))
        return found


def _read_state(state: Value, places: Sequence[Value], level: Substitution) -> tuple[Value, ...]:
    """What a read of a stored state reads in the loop that stores it."""
    return (level.builder.index(state, [level.value(place) for place in places]),)


def _to_store(value: Value, extents: Iterable[Dim]) -> int:
    """What it takes to store a value, or what a loop stores a step, for all places of these extents."""
    return STORED * element(value.type).dtype.itemsize * amount(extents) // 8


def _dims(value: Value) -> tuple[Dim, ...]:
    return dims(value.type) if isinstance(value.type, ArrayType) else ()


# The new loop


def narrower(b: Builder, loop: Pending, readers: Readers, replaced: dict[int, Replacement]) -> Body | None:
    """The body of a loop that stores less, if it can; what its readers read then is noted."""
    for costly, twice, priced in (
        (True, False, True),
        (True, False, False),
        (False, False, False),
        (True, True, False),
    ):
        flow = _Flow(loop, readers, costly)
        cut = flow.cut(twice, flow.prices(b) if priced else {})
        if cut:
            break
    if not cut or any(source(value).number in replaced for value in cut):
        return None
    chosen = sorted(cut, key=lambda value: value.number)
    node = loop.node
    body = node.bodies[0]
    mapping, nodes = flow.in_loop(b)
    results, positions = list(body.results), dict[Value, int]()
    for value in chosen:
        inner = flow.inner(value)

        def element(*q: Value, value: Value = value, inner: Sequence[Index] = inner) -> Value:
            known = {index.variable: x for index, x in zip(inner, q, strict=True)}
            return Substitution(b, mapping | known, None, (), nodes).values([value])[0]

        positions[value] = len(results)
        results.append(b.array([index.extent for index in inner], element))
    results = fused_results(b, results)
    parts: dict[int, list[tuple[Value, int]]] = {}
    for value, position in positions.items():
        parts.setdefault(source(value).number, []).append((value, position))
    for number, values in parts.items():
        replaced[number] = _reading(loop, flow, values)
    return b.close(body.binders, body.statements, tuple(results), body.partial)


def _reading(loop: Pending, flow: _Flow, values: Sequence[tuple[Value, int]]) -> Replacement:
    """Reads of values of one node, given with the positions of the results that they are stored in."""
    node = source(values[0][0])
    step = flow.reads[next(iter(flow.known[node.number].steps))]

    def replace(rewriting: Substitution) -> tuple[Value, ...]:
        others = len(values) < len(node.results)
        results = dict(enumerate(rewriting.copy(node) if others else ()))
        for value, position in values:
            places = [step, *[index.variable for index in flow.inner(value)]]
            array, *indices = rewriting.values([loop.node.results[position], *places])
            results[value.position] = rewriting.builder.part(array, indices)
        return tuple([results[k] for k in range(len(results))])

    return replace
