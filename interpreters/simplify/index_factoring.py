"""Index factoring: what is added at a function of a sum of loop variables is added up by that sum first.

The derivative of reading a row in windows whose ends are clamped adds to ``clip(i + k - 1, 0, n - 1)``. Such an index
has no inverse, so its updates would stay where they are, one for each i and k. But it depends on ``i + k`` alone: an
array of sums over all pairs with the same ``i + k`` comes first, and only its elements are scattered::

    for i < n, k < 3: t[clip(i + k - 1, 0, n - 1)] += f(i, k)

    s = accumulate 0 (n + 2 places): for i < n, k < 3: s[i + k] += f(i, k)
    for q < n + 2: t[clip(q - 1, 0, n - 1)] += s[q]

The updates of ``s`` are shifted (``index_set_shifting.py``), so they become sums, and nothing of n times 3 is left. The
same holds for updates that are written out, ``t[clip(i - 1, ..)] += ..; t[clip(i, ..)] += ..; ..``: what they do to
``i + c`` is the same for all of them. It is worth it where more than ``SHARED`` updates share a place of ``s``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ...core.builder import Builder, Replacement, Substitution
from ...core.dims import Dim, DimAtom, Opaque
from ...core.graph import Node, Value
from ...core.ranges import least
from ...core.types import dims, element, i64, rank
from ..embed import accumulate
from .costs import nodes_within
from .index_set_shifting import axes_of, slope
from .leaves import Leaf, Tree, recorded, without

SHARED = 2


@dataclass(frozen=True)
class _Line:
    """An index that depends on its loops by a sum alone: from ``lowest`` to below a loop's extent and ``beyond``."""

    sum: Value
    extent: Value
    lowest: int
    beyond: int
    index: Value  # as a function of a variable that stands for the sum
    place: Value  # that variable

    @property
    def size(self) -> int:
        """How many operations there are on the sum."""
        return sum(1 for _ in nodes_within([self.index], frozenset([self.place.number])))


@dataclass(frozen=True)
class _Factored:
    """A leaf of a statement with a line for each index that has one; the others stay as they are."""

    statement: Node
    leaf: Leaf
    lines: tuple[_Line | None, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """What leaves share that may be added up together, as far as their loops say."""
        kept = zip(self.leaf.indices, self.lines, strict=True)
        extents = [line.extent.dim if line else index if _fixed(self.leaf, index) else None for index, line in kept]
        return (self.leaf.accumulator, *extents)

    @property
    def size(self) -> int:
        """How many operations on sums the lines have."""
        return sum([line.size for line in self.lines if line])

    @property
    def repeats(self) -> bool:
        """Whether there are loops beside one for each index: then many updates meet."""
        return len(self.leaf.path.loops) > len([index for index in self.leaf.indices if not _fixed(self.leaf, index)])

    def fits(self, b: Builder, first: _Factored, place: Value) -> bool:
        """Whether the indices are those of another leaf at the sums of this one."""
        return all(
            one is None or other is None or b.substitute([other.index], {place: one.sum})[0] is index
            for index, one, other in zip(self.leaf.indices, self.lines, first.lines, strict=True)
        )


def _fixed(leaf: Leaf, index: Value) -> bool:
    return index.free.isdisjoint(leaf.path.binders)


def factored(b: Builder, statements: Sequence[Node], beside: frozenset[int]) -> Sequence[Node]:
    """The statements of an accumulate, with updates at functions of sums added up by these sums first."""
    place, found, leaves = b.variable(i64, ""), list[_Factored](), dict[Node, list[Leaf]]()
    for statement in statements:
        if not statement.results and statement.row.control:
            tree = Tree(statement, beside)
            leaves[statement] = tree.leaves
            alone = [leaf for leaf in tree.leaves if leaf.stands_alone(tree.statements)]
            found += [one for leaf in alone if (one := _factored(b, statement, leaf, place)) is not None]
    chosen = [each for each in _groups(b, found, place) if len(each) > SHARED or any(one.repeats for one in each)]
    if not chosen:
        return statements
    leaving = {one.leaf.node.number for group in chosen for one in group}
    made = [rest for statement in statements for rest in without(b, statement, leaving)]
    for group in chosen:
        members = {one.leaf.node.number for one in group}
        updates: list[Node] = []
        for statement in dict.fromkeys([one.statement for one in group]):
            others = {leaf.node.number for leaf in leaves[statement]} - members
            updates += without(b, statement, others)
        made += recorded(b, partial(_added_up, b, group, updates, place))
    return made


def _groups(b: Builder, found: Sequence[_Factored], place: Value) -> list[list[_Factored]]:
    """Leaves whose indices are one function of their sums. The first of a group has the largest: where a sum is known
    to lie on one side of a border, the function is simpler."""
    groups: dict[tuple[object, ...], list[list[_Factored]]] = {}
    for one in sorted(found, key=lambda one: -one.size):
        known = groups.setdefault(one.key, [])
        fitting = next((group for group in known if one.fits(b, group[0], place)), None)
        if fitting is None:
            known.append([one])
        else:
            fitting.append(one)
    return [group for known in groups.values() for group in known]


def _factored(b: Builder, statement: Node, leaf: Leaf, place: Value) -> _Factored | None:
    """A leaf whose indices stay, are fixed, or have lines, of which there is one at least that is no loop."""
    if len(leaf.indices) != rank(leaf.accumulator.type) or axes_of(b, leaf) is not None:
        return None
    lines: list[_Line | None] = []
    extents = {loop: extent for loop, extent in leaf.path.loops}
    for index, size in zip(leaf.indices, dims(leaf.accumulator.type), strict=True):
        line = None
        if index in extents and extents[index].dim == size and extents[index].free.isdisjoint(leaf.path.binders):
            line = _Line(index, extents[index], 0, 0, place, place)
        elif not _fixed(leaf, index) and not any(slope(index, loop) is not None for loop in extents):
            line = _line(b, leaf, index, place)
            if line is None:
                return None
        lines.append(line)
    return _Factored(statement, leaf, tuple(lines)) if any(line and line.index is not place for line in lines) else None


def _line(b: Builder, leaf: Leaf, index: Value, place: Value) -> _Line | None:
    """The sum that an index depends on, if there is one."""
    parts = _linear_parts(leaf, index)
    if not parts:
        return None
    moving = [_moving(leaf, part) for part in parts]
    rising = next((k for k, steps in enumerate(moving) if all(step > 0 for step in steps.values())), None)
    if rising is None:
        return None
    falling = {loop: -step for loop, step in moving[rising].items()}
    if any(steps not in (moving[rising], falling) for steps in moving):
        return None
    sum, dim = parts[rising], parts[rising].dim
    assert dim is not None
    extents = {Opaque(loop.number): extent.dim for loop, extent in leaf.path.loops}

    def extent_of(atom: DimAtom) -> Dim | None:
        return extents.get(atom) if isinstance(atom, Opaque) else None

    lowest, highest = least(dim, extent_of), least(-dim, extent_of)
    if lowest is None or highest is None or lowest.constant is None:
        return None
    for loop, extent in leaf.path.loops:
        if loop.number in moving[rising] and extent.dim is not None:
            beyond = (-highest + 1 - extent.dim).constant
            if beyond is not None and extent.free.isdisjoint(leaf.path.binders):
                zeros = {each: b.literal(0, i64) for each, _ in leaf.path.loops}
                start = b.substitute([sum], zeros)[0]
                at = {**zeros, loop: b.primitive("subtract", place, start)}
                return _Line(sum, extent, lowest.constant, beyond, b.substitute([index], at)[0], place)
    return None


def _linear_parts(leaf: Leaf, index: Value) -> list[Value]:
    """What an index is made of that moves with loops by 1 or -1 a step each; none if it is made of anything else."""
    found, pending, seen = list[Value](), [index], set[int]()
    while pending:
        value = pending.pop()
        if value.number in seen or value.free.isdisjoint(leaf.path.binders):
            continue
        seen.add(value.number)
        if value.dim is not None and all(
            slope(value, loop) is not None for loop, _ in leaf.path.loops if loop.number in value.free
        ):
            found.append(value)
        elif value.source is not None and value.source.op == "primitive":
            pending.extend(value.source.args)
        else:
            return []
    return found


def _moving(leaf: Leaf, value: Value) -> dict[int, int]:
    """By how much a value moves with each loop, by the loop's number."""
    loops = [loop for loop, _ in leaf.path.loops if loop.number in value.free]
    return {loop.number: -1 if slope(value, loop) else 1 for loop in loops}


def _added_up(b: Builder, group: Sequence[_Factored], alone: Sequence[Node], place: Value) -> None:
    """Emit the updates of a group, which stand ``alone``, by their sums, and then those of their array."""
    first = group[0]
    accumulator = first.leaf.accumulator
    lines = [[line for one in group if (line := one.lines[k]) is not None] for k in range(len(first.lines))]
    lowest = [min([line.lowest for line in each], default=0) for each in lines]
    beyond = [max([line.beyond for line in each], default=0) for each in lines]
    kept = [k for k, index in enumerate(first.leaf.indices) if not _fixed(first.leaf, index)]
    sizes = b.sizes(accumulator)
    extents = []
    for k in kept:
        line = first.lines[k]
        extents.append(sizes[k] if line is None else _plus(b, line.extent, beyond[k] - lowest[k]))

    def zeros(count: int) -> Value:
        if count == len(extents):
            return b.literal(0, element(accumulator.type))
        return b.generate(extents[count], lambda _: [zeros(count + 1)])[0]

    def sums(array: Value) -> Sequence[Value]:
        def adding(one: _Factored) -> Replacement:
            def add(rebuilding: Substitution) -> tuple[Value, ...]:
                places = []
                for k in kept:
                    line, index = one.lines[k], one.leaf.indices[k]
                    at = rebuilding.value(index if line is None else line.sum)
                    places.append(at if line is None else _plus(b, at, -lowest[k]))
                return b.emit("add_to", (), [array, rebuilding.value(one.leaf.value), *places])

            return add

        same = {one.leaf.accumulator: one.leaf.accumulator for one in group}
        rebuilding = Substitution(b, same, None, (), {one.leaf.node.number: adding(one) for one in group})
        for node in alone:
            rebuilding.copy(node)
        return []

    array = accumulate(b, [zeros(0)], sums)[0]

    def scatter(*at: Value) -> None:
        indices = list(first.leaf.indices)
        for k, q in zip(kept, at, strict=True):
            line = first.lines[k]
            indices[k] = q if line is None else b.substitute([line.index], {place: _plus(b, q, lowest[k])})[0]
        b.emit("add_to", (), [accumulator, b.index(array, at), *indices])

    b.each(extents, scatter)


def _plus(b: Builder, value: Value, number: int) -> Value:
    return b.primitive("add", value, b.literal(number, i64)) if number else value
