"""Index-set shifting: updates at shifted places are renumbered, so that loops run over the array that they update.

The derivative of reading ``y[i - 1]`` adds to the place ``i - 1``. Neighbours then add to one place, and their loops
would have to wait for each other. Where an index is ``i + c`` or ``c - i``, the loop over ``i`` becomes one over the
place itself, which tests whether there is an iteration that adds there, and then what is added to one array in one
place is one sum, whatever the shifts were:

    for i < n:                                    for j < n:
      if i > 0: t[i - 1] += f(i)            =>      t[j] += (f(j + 1) if j + 1 < n else 0) + g(j)
      t[i] += g(i)

The offset may depend on loops that no index stands for, which become the terms of a sum (a convolution's
derivative: ``t[i + r] += a[i] * w[r]``). An index like ``2 * i`` leaves places out, and stays. What is renumbered is
computed once an update, so nothing costly may be shared; and the places must not be many more than the iterations.

Reads that wrap around, ``y[(i + c) % n]``, are shifted along a circle: where there are as many iterations as places,
each place has one, and nothing is to be tested:

    for i < n: t[(i + 1) % n] += f(i)             =>      for j < n: t[j] += f((j - 1) % n)

The derivative of reading ``y[i // m, i % m]``, which a reshape is made of, adds to a place of its own in each
iteration. A loop over n m iterations becomes one over the n rows and one over the m columns:

    for i < n * m: t[i // m, i % m] += f(i)       =>      for a < n, b < m: t[a, b] += f(a * m + b)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from ...core.builder import Builder
from ...core.dims import Dim, Opaque
from ...core.graph import Node, Value
from ...core.indexing import extents_of
from ...core.ranges import never_negative
from ...core.types import dims, i64
from .algebra import operands_of
from .costs import is_costly_value
from .leaves import Guard, Leaf, Tree, guarded, recorded, without

# There may be twice as many places as iterations, and so many more.
SLACK = 16


@dataclass(frozen=True)
class _Shift:
    """How an index follows a loop variable: from where, up or down, and around which circle if it is on one."""

    offset: Value
    falls: bool
    period: Value | None

    def iteration(self, b: Builder, place: Value, offset: Value) -> Value:
        """The iteration that adds to a place, for an offset at that place."""
        if self.falls:
            found = b.primitive("subtract", offset, place)
        elif offset.literal is not None and offset.literal < 0:
            found = b.primitive("add", place, b.literal(-int(offset.literal), i64))
        else:
            found = b.primitive("subtract", place, offset)
        return found if self.period is None else b.primitive("remainder", found, self.period)


@dataclass(frozen=True)
class _Aligned:
    """A leaf with a loop for each axis of its array, or none where the index depends on no loop.

    ``moved`` says which of these loops are shifted, and how.
    """

    leaf: Leaf
    loops: tuple[Value | None, ...]
    moved: dict[int, _Shift]

    @property
    def inner(self) -> list[tuple[Value, Value]]:
        """The loops that stand for no axis."""
        return [loop for loop in self.leaf.path.loops if loop[0] not in self.loops]


def shifted_index_sets(b: Builder, statement: Node, beside: frozenset[int]) -> list[Node]:
    """The statement with the updates at shifted places in loops of their own, renumbered.

    ``beside`` are the statements of the block, whose results must not be needed.
    """
    if not statement.row.control or statement.results:
        return [statement]
    tree = Tree(statement, beside)
    if len(tree.leaves) == 1 and not tree.opaque and not tree.leaves[0].path.guards:
        rows = _in_rows(b, tree.leaves[0])
        if rows is not None:
            return rows
    aligned = [one for leaf in tree.independent() if (one := _aligned(b, leaf)) is not None]
    shifted = {one.leaf.accumulator for one in aligned if one.moved and _repeats_nothing(tree, one)}
    chosen = [one for one in aligned if one.leaf.accumulator in shifted and _repeats_nothing(tree, one)]
    if not chosen or tree.repeats([one.leaf for one in chosen]):
        return [statement]
    rest = without(b, statement, {one.leaf.node.number for one in chosen})
    groups: dict[tuple[object, ...], list[_Aligned]] = {}
    for one in chosen:
        groups.setdefault(_axes(one), []).append(one)
    return [*rest, *[node for group in groups.values() for node in _renumbered(b, group)]]


def _axes(one: _Aligned) -> tuple[object, ...]:
    """What leaves share that may run in the same loops: extents, and indices that depend on no loop."""
    sizes = dims(one.leaf.accumulator.type)
    fixed = [None if loop else index for loop, index in zip(one.loops, one.leaf.indices, strict=True)]
    return (*[dim if loop else None for loop, dim in zip(one.loops, sizes, strict=True)], *fixed)


def _repeats_nothing(tree: Tree, one: _Aligned) -> bool:
    """Whether nothing costly in a leaf would run once for each term of a sum, or of several axes."""
    bit = 1 << tree.leaves.index(one.leaf)
    costly = [node for node, who in tree.needed if who & bit and is_costly_value(node)]
    axes = frozenset([loop.number for loop in one.loops if loop is not None])
    skewed = any(shift.offset.free & one.leaf.path.binders for shift in one.moved.values())
    return not costly or not (skewed or any(not axes <= node.free for node in costly))


# Quotient and remainder


def _in_rows(b: Builder, leaf: Leaf) -> list[Node] | None:
    """The update with a loop over rows and one over columns, where its indices are a loop's quotient and remainder."""
    if any(not extent.free.isdisjoint(leaf.path.binders) for _, extent in leaf.path.loops):
        return None
    for axis, (row, column) in enumerate(pairwise(leaf.indices)):
        for loop, extent in leaf.path.loops:
            length = _length(row, column, loop)
            n, m = dims(leaf.accumulator.type)[axis : axis + 2]
            rows = b.known(n)
            if length is None or rows is None or length.dim != m or extent.dim != n * m:
                continue
            return recorded(b, partial(_in_two_loops, b, leaf, axis, loop, rows, length))
    return None


def _in_two_loops(b: Builder, leaf: Leaf, axis: int, loop: Value, rows: Value, length: Value) -> None:
    """Emit the update whose indices at two axes are the quotient and the remainder of a loop variable by a length."""
    extents = [x for at, size in leaf.path.loops for x in ([rows, length] if at is loop else [size])]

    def emit(*places: Value) -> None:
        rest, at, own = iter(places), dict[Value, Value](), list[Value]()
        for variable, _ in leaf.path.loops:
            at[variable] = next(rest)
            if variable is loop:
                own = [at[variable], next(rest)]
                at[variable] = b.primitive("add", b.primitive("multiply", own[0], length), own[1])
        indices = [b.substitute([index], at)[0] for index in leaf.indices]
        indices[axis : axis + 2] = own
        b.emit("add_to", (), [leaf.accumulator, *b.substitute([leaf.value], at), *indices])

    b.each(extents, emit)


def _length(row: Value, column: Value, loop: Value) -> Value | None:
    """What a loop variable is divided by, if these are the quotient and the remainder."""
    for index, name in ((row, "floor_divide"), (column, "remainder")):
        source = index.source
        if source is None or source.op != "primitive" or source.static[0].name != name or source.args[0] is not loop:
            return None
    assert row.source is not None and column.source is not None
    same = row.source.args[1] is column.source.args[1] and loop.number not in row.source.args[1].free
    return row.source.args[1] if same else None


# Which loop an index stands for


def axes_of(b: Builder, leaf: Leaf) -> frozenset[int] | None:
    """The loops for which the indices of a leaf stand, as they are or shifted; None where they stand for none."""
    found = _aligned(b, leaf)
    return None if found is None else frozenset([loop.number for loop in found.loops if loop is not None])


def _aligned(b: Builder, leaf: Leaf) -> _Aligned | None:
    """The loops that the indices stand for, each one index alone; None when there is none such."""
    loops: list[Value | None] = []
    moved: dict[int, _Shift] = {}
    sizes = dims(leaf.accumulator.type)
    for index, size in zip(leaf.indices, sizes, strict=True):
        if index.free.isdisjoint(leaf.path.binders):
            loops.append(None)
            continue
        line, period = _on_circle(index, size)
        for loop, extent in leaf.path.loops:
            falls = slope(line, loop)
            if falls is None or loop in loops or b.known(size) is None:
                continue
            plain = index is loop and extent.dim == size
            if plain or _is_dense(b, extent, size, period is not None):
                if not plain:
                    moved[loop.number] = _Shift(b.substitute([line], {loop: b.literal(0, i64)})[0], falls, period)
                loops.append(loop)
                break
        else:
            return None
    shifted = frozenset(moved)
    offsets = frozenset[int]().union(*[shift.offset.free for shift in moved.values()])
    extents = frozenset[int]().union(*[extent.free for _, extent in leaf.path.loops])
    if not any(loops) or (offsets | extents) & shifted:
        return None
    return _Aligned(leaf, tuple(loops), moved)


def _on_circle(index: Value, size: Dim) -> tuple[Value, Value | None]:
    """What an index is the remainder of when divided by the axis's length, and that length; else the index itself."""
    line, period = operands_of(index, "remainder") or (index, None)
    return (line, period) if period is not None and period.dim == size else (index, None)


def _is_dense(b: Builder, extent: Value, size: Dim, on_circle: bool) -> bool:
    """Whether a loop has about as many iterations as there are places, on a circle just as many."""
    if on_circle:
        return extent.dim == size
    return extent.dim is not None and never_negative(extent.dim * 2 + SLACK - size, extents_of(b))


def slope(index: Value, loop: Value) -> bool | None:
    """Whether an index falls as a loop variable grows, each step by one; None when it does not follow it so."""
    if index.dim is None or loop.number not in index.free:
        return None
    atom = Opaque(loop.number)
    own = [(monomial, c) for monomial, c in index.dim.terms if atom in Dim({monomial: 1}).atoms()]
    if len(own) != 1 or own[0][0] != (atom,) or abs(own[0][1]) != 1 or _varies_otherwise(index, loop):
        return None
    return own[0][1] < 0


def _varies_otherwise(index: Value, loop: Value) -> bool:
    """Whether an index is made of something else that varies with the loop, as what is read at its variable."""
    assert index.dim is not None
    others = {each.number for each in index.dim.atoms() if isinstance(each, Opaque)} - {loop.number}
    stack = [index]
    while stack:
        value = stack.pop()
        if value.number in others:
            if loop.number in value.free:
                return True
            others.discard(value.number)
        elif value.source is not None:
            stack.extend(value.source.args)
    return bool(others)  # what is not found among the operands may vary


# The new loops


def _renumbered(b: Builder, group: Sequence[_Aligned]) -> list[Node]:
    """Leaves with the same axes as one statement; what is added to one array by loops alone is added up first."""
    first = group[0]
    sizes = [b.known(dim) for dim in dims(first.leaf.accumulator.type)]
    extents = [size for loop, size in zip(first.loops, sizes, strict=True) if loop is not None and size is not None]

    def emit(*places: Value) -> None:
        sums: dict[Value, tuple[Value, Sequence[Value]]] = {}
        for one in group:
            at = iter(places)
            pairs = zip(one.loops, one.leaf.indices, strict=True)
            place: Sequence[Value] = [index if loop is None else next(at) for loop, index in pairs]
            if one.inner:
                _summed(b, one, place)
                continue
            value, known = _Renumbered(b, one, place, {}).value(), sums.get(one.leaf.accumulator)
            sums[one.leaf.accumulator] = (value if known is None else b.primitive("add", known[0], value), place)
        for accumulator, (value, place) in sums.items():
            b.emit("add_to", (), [accumulator, value, *place])

    return recorded(b, lambda: b.each(extents, emit))


class _Renumbered:
    """A leaf at a place of its array: ``at`` are its loop variables there, those of ``inner`` as they are given."""

    def __init__(self, b: Builder, one: _Aligned, place: Sequence[Value], inner: Mapping[Value, Value]) -> None:
        self.b, self.leaf = b, one.leaf
        self.at = dict(inner)
        self.at.update({loop: at for loop, at in zip(one.loops, place, strict=True) if loop is not None})
        fixed = {loop: at for loop, at in self.at.items() if loop.number not in one.moved}
        self.shifted = [loop for loop in self.at if loop.number in one.moved]
        self.bounded = [loop for loop in self.shifted if one.moved[loop.number].period is None]
        for loop in self.shifted:
            shift = one.moved[loop.number]
            self.at[loop] = shift.iteration(b, self.at[loop], b.substitute([shift.offset], fixed)[0])

    def moved(self, value: Value) -> Value:
        """A value that the leaf needs."""
        return self.b.substitute([value], self.at)[0]

    def guards(self) -> list[Guard]:
        """What must hold for the leaf to add to the place: there is such an iteration, and the tests on its way."""
        b, extents = self.b, dict(self.leaf.path.loops)
        found: list[Guard] = []
        for loop in self.bounded:
            found.append(Guard(b.primitive("less_equal", b.literal(0, i64), self.at[loop]), True, 0))
            found.append(Guard(b.primitive("less", self.at[loop], self.moved(extents[loop])), True, 0))
        found.extend([Guard(self.moved(guard.test), guard.wanted, 0) for guard in self.leaf.path.guards])
        return [guard for guard in found if guard.test.literal is None or guard.test.literal is not guard.wanted]

    def value(self, known: Sequence[Guard] = ()) -> Value:
        """What is added: the value where the guards hold, else nothing. Some are ``known`` to."""
        return guarded(self.b, [guard for guard in self.guards() if guard not in known], self.moved(self.leaf.value))


def _summed(b: Builder, one: _Aligned, place: Sequence[Value]) -> None:
    """Add in all iterations of the loops that stand for no axis; guards that do not depend on these come first."""
    own = frozenset([loop.number for loop, _ in one.inner])
    outside = _Renumbered(b, one, place, {})
    before = [guard for guard in outside.guards() if guard.test.free.isdisjoint(own)]

    def add(*inner: Value) -> None:
        inside = _Renumbered(b, one, place, dict(zip([loop for loop, _ in one.inner], inner, strict=True)))
        b.emit("add_to", (), [one.leaf.accumulator, inside.value(before), *place])

    _under(b, before, lambda: b.each([outside.moved(extent) for _, extent in one.inner], add))


def _under(b: Builder, guards: Sequence[Guard], emit: Callable[[], object]) -> None:
    """Emit statements under guards."""
    if not guards:
        emit()
        return

    def inside() -> Sequence[Value]:
        _under(b, guards[1:], emit)
        return ()

    branches = (inside, lambda: ()) if guards[0].wanted else (lambda: (), inside)
    b.cond(guards[0].test, *branches)
