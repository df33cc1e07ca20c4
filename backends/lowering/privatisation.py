"""Privatisation: accumulators updated by several threads without atomics (for light ones see ``group_updates.py``).

When each iteration of the outer loop updates a slice of its own, the loop is parallel as it is. Otherwise it is cut
into pieces; a piece updates a copy of its own, and the copies are added in order. Sizes decide how many pieces there
are, so the result does not depend on the number of threads. Copies of large accumulators cost time, so there are only
as many as the work of the nest is worth; where that is less than two, as for the derivative of a gather from an array
as long as what is read from it, one thread adds to the accumulators themselves. Copies of small ones cost next to
nothing: the extent of the loop alone says how many, and the result does not depend on what else the nest does, such
as running a loop again from a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.types import f64
from .. import ir
from ..target import (
    ACCUMULATOR_COPIES,
    ACCUMULATOR_COPY_COST,
    LARGEST_MULTIPLE,
    SMALL_ACCUMULATORS,
    SURVEY_UNKNOWN_ITERATIONS,
    THREAD_GRAIN,
)
from .context import ONE, Context, zero
from .survey import survey


def private_accumulators(context: Context, nest: ir.Nest) -> list[ir.Statement] | None:
    """A nest that updates accumulators: None when its loops are independent, as those of any other nest.

    The outer loop is parallel when each iteration updates a slice of its own; else it is cut into pieces that
    update copies, which are then added in order.
    """
    loops, body = nest.axes, nest.body
    updated = updated_by(body)
    if not updated:
        return None
    own = {buffer: own_variables(context, stores, body, loops) for buffer, stores in updated.items()}
    if _meet_nowhere(body, updated, own, loops):
        return None
    outer = loops[0]
    inner = ir.nested(loops[1:], body)
    sequential: list[ir.Statement] = [ir.For(outer.variable.name, outer.extent, "sequential", inner)]
    if not nest.outermost or not context.target.parallel:
        return sequential
    name = outer.variable.name
    bound = ir.bound_in(body) | {loop.variable.name for loop in loops}
    shared = {buffer: common_prefix(stores, bound) for buffer, stores in updated.items() if name not in own[buffer]}
    grain = THREAD_GRAIN // ir.maximum(_work(inner, bound), 1) + 1
    way = "copies for pieces of the loop, added in order" if shared else "a slice of its own for each iteration"
    context.decisions.note(f"accumulated in {', '.join([buffer.name for buffer in updated])}: {way}")
    if not shared:
        return [ir.For(name, outer.extent, "parallel", inner, grain=grain)]
    places = [Place(buffer, prefix, context) for buffer, prefix in shared.items()]
    worth = _pieces_worth(outer, places, grain)
    several = _small(outer, places) | (worth >= 2)
    copies = _copies(context, outer, ir.with_own_buffers(inner, context.fresh), places, worth, grain)
    return list(ir.branch(several, copies, sequential))


def _meet_nowhere(
    body: ir.Block, updated: dict[ir.Buffer, list[ir.Store]], own: dict[ir.Buffer, set[str]], loops: Sequence[ir.Axis]
) -> bool:
    """Whether each iteration of all loops together has one place of its own in each buffer, to which it adds."""
    apart = all(loop.variable.name in variables for variables in own.values() for loop in loops)
    inside = ir.bound_in(body)
    return apart and all(
        store in body or inside.isdisjoint(ir.names_in(store.indices))
        for stores in updated.values()
        for store in stores
    )


def own_variables(context: Context, stores: list[ir.Store], body: ir.Block, loops: Sequence[ir.Axis]) -> set[str]:
    """The variables of a nest's loops whose iterations update slices of a buffer of their own.

    All updates have the same index along one axis: the variable or a known multiple of it, also with something that
    the nest does not change added, or ``i * extent + j``, with a loop over j of this extent.
    """
    extents = {loop.variable.name: loop.extent for loop in loops}
    bound = ir.bound_in(body) | set(extents)
    found: set[str] = set()
    for axis in range(len(stores[0].indices)):
        index, *others = [_expanded(context, store.indices[axis]) for store in stores]
        moving = _moving(index, bound) if all(other == index for other in others) else None
        match sorted((moving or {}).items(), key=lambda each: each[1] == ONE):
            case [(i, ir.Constant(step))] if 0 < abs(step) <= LARGEST_MULTIPLE:
                found.add(i)
            case [(i, step), (j, by)] if by == ONE and step == extents.get(j):
                found.update((i, j))
    return found & set(extents)


def _expanded(context: Context, index: ir.Expression) -> ir.Expression:
    """An index with what its names stand for, but for what was read, which may have changed."""
    if isinstance(index, ir.Variable):
        value = context.values.get(index.name, index)
        read = value == index or any(isinstance(part, ir.Load) for part in ir.inside(value))
        return index if read else _expanded(context, value)
    return ir.map_operands(index, lambda each: _expanded(context, each))


def _moving(index: ir.Expression, bound: set[str]) -> dict[str, ir.Expression] | None:
    """By how much each of the variables that a nest binds moves an index that is a sum; None for another one."""
    if not any(isinstance(part, ir.Variable) and part.name in bound for part in ir.inside(index)):
        return {}
    match index:
        case ir.Variable(name):
            return {name: ONE}
        case ir.Apply(primitive, (a, b)) if primitive.name == "add":
            first, second = _moving(a, bound), _moving(b, bound)
            return None if first is None or second is None or first.keys() & second.keys() else {**first, **second}
        case ir.Apply(primitive, (a, b)) if primitive.name == "subtract" and _moving(b, bound) == {}:
            return _moving(a, bound)
        case ir.Apply(primitive, (a, b)) if primitive.name == "multiply":
            for one, step in ((a, b), (b, a)):
                if isinstance(one, ir.Variable) and one.name in bound and _moving(step, bound) == {}:
                    return {one.name: step}
    return None


def _small(outer: ir.Axis, places: Sequence[Place]) -> ir.Expression:
    """Whether copies of the accumulators cost next to nothing."""
    spread = outer.extent // ACCUMULATOR_COPIES
    return _scalars(places) <= ir.maximum(spread, SMALL_ACCUMULATORS)


def _pieces_worth(outer: ir.Axis, places: Sequence[Place], grain: ir.Expression) -> ir.Expression:
    """How many pieces of the loop are worth a thread's attention and a copy of the accumulators each."""
    copying = _scalars(places) * ACCUMULATOR_COPY_COST
    grains = copying // THREAD_GRAIN + 1
    return outer.extent // (grain * grains)


def _copies(
    context: Context,
    outer: ir.Axis,
    nest: ir.Block,
    places: Sequence[Place],
    worth: ir.Expression,
    grain: ir.Expression,
) -> ir.Block:
    """The outer loop in pieces, each of which updates its own copy of the shared accumulators."""
    made: list[ir.Statement] = []
    piece = context.fresh("piece")
    pieces = context.fresh("pieces")
    private = {place.buffer: place for place in places}
    wanted = ir.select(_small(outer, places), outer.extent, worth)
    bounded = ir.maximum(ir.minimum(wanted, ACCUMULATOR_COPIES), 1)
    made.append(ir.Let(pieces, bounded))
    count = ir.Variable(pieces)
    made.extend([ir.Allocate(place.copy) for place in private.values()])

    def bound(k: ir.Expression) -> ir.Expression:
        return outer.extent * k // count

    def store(s: ir.Store) -> ir.Store:
        return private[s.buffer].redirected(s, ir.Variable(piece)) if s.buffer in private else s

    alike: dict[tuple[ir.Expression, ...], list[Place]] = {}  # by extents: one loop runs over all of these
    for place in private.values():
        alike.setdefault(place.extents, []).append(place)
    body: list[ir.Statement] = []
    for extents, same in alike.items():
        body += _over(context, extents, [place.cleared(ir.Variable(piece)) for place in same])
    start = context.fresh("start")
    body.append(ir.Let(start, bound(ir.Variable(piece))))
    length = bound(ir.Variable(piece) + 1) - ir.Variable(start)
    step = context.fresh("step")
    at = ir.Let(outer.variable.name, ir.Variable(start) + ir.Variable(step))
    body.append(ir.For(step, length, "sequential", (at, *ir.map_block(nest, lambda e: e, store))))
    # as many pieces as have the iterations that are worth a thread's attention
    share = grain * count // ir.maximum(outer.extent, 1)
    made.append(ir.For(piece, count, "parallel", tuple(body), grain=ir.maximum(share, 1)))
    for extents, same in alike.items():
        k = context.fresh("piece")
        merged = _over(context, extents, [place.merged(ir.Variable(k)) for place in same])
        made.append(ir.For(k, count, "sequential", tuple(merged)))
    return tuple(made)


def _work(block: ir.Block, bound: set[str]) -> ir.Expression:
    """What a block takes, by the sizes that its loops run to; a few turns where what the nest binds says how many."""
    found: dict[tuple[ir.Expression, ...], float] = {}

    def visit(block: ir.Block, extents: tuple[ir.Expression, ...], times: float) -> None:
        once = survey(tuple([each for each in block if not isinstance(each, ir.For)]))
        found[extents] = found.get(extents, 0.0) + times * once.work
        for loop in block:
            if isinstance(loop, ir.For) and isinstance(loop.extent, ir.Constant):
                visit(loop.body, extents, times * float(loop.extent.value))
            elif isinstance(loop, ir.For) and ir.unchanged_by(bound, loop.extent):
                visit(loop.body, (*extents, loop.extent), times)
            elif isinstance(loop, ir.For):
                visit(loop.body, extents, times * SURVEY_UNKNOWN_ITERATIONS)

    visit(block, (), 1.0)
    return ir.total([ir.product([ir.Constant(int(work)), *extents]) for extents, work in found.items() if work >= 1])


# What is stored for an element, by its indices.
Element = Callable[[tuple[ir.Expression, ...]], ir.Store]


class Place:
    """What a nest adds to, with a buffer for the copies that its pieces add to.

    It is the part of a buffer behind leading indices (``prefix``) that the nest does not bind. The rest of the buffer
    may be read in the nest: it is another state of the same loop.
    """

    def __init__(self, buffer: ir.Buffer, prefix: tuple[ir.Expression, ...], context: Context) -> None:
        self.buffer, self.prefix, self.extents = buffer, prefix, buffer.extents[len(prefix) :]
        name = context.fresh(f"{buffer.name}_copy")
        self.copy = ir.Buffer(name, buffer.scalar, (ir.Constant(ACCUMULATOR_COPIES), *self.extents))

    def cleared(self, piece: ir.Expression) -> Element:
        """What clears an element of a piece's copy."""
        nothing = ir.Constant(zero(self.copy.scalar), self.copy.scalar)
        return lambda index: ir.Store(self.copy, (piece, *index), nothing)

    def merged(self, piece: ir.Expression) -> Element:
        """What adds an element of a piece's copy to the accumulator."""

        def merge(index: tuple[ir.Expression, ...]) -> ir.Store:
            final = (*self.prefix, *index)
            return ir.Store(self.buffer, final, ir.Load(self.buffer, final) + ir.Load(self.copy, (piece, *index)))

        return merge

    def redirected(self, update: ir.Store, piece: ir.Expression) -> ir.Store:
        """The update, of a piece's copy."""
        assert isinstance(update.value, ir.Apply)
        place = (piece, *update.indices[len(self.prefix) :])
        added = update.value.arguments[1]
        return ir.Store(
            self.copy, place, ir.Apply(update.value.primitive, (ir.Load(self.copy, place), added), added.type)
        )


def _scalars(places: Sequence[Place]) -> ir.Expression:
    """How many scalars the accumulators have together."""
    return ir.total([ir.product(place.extents) for place in places])


def _over(context: Context, extents: Sequence[ir.Expression], stores: Sequence[Element]) -> list[ir.Statement]:
    """Stores for all indices, the last of them as lanes."""
    names = [context.fresh("i") for _ in extents]
    indices = tuple([ir.Variable(name) for name in names])
    body: ir.Block = tuple([store(indices) for store in stores])
    for k, (name, extent) in reversed(list(enumerate(zip(names, extents, strict=True)))):
        last = k == len(names) - 1
        body = (
            ir.For(name, extent, "lanes" if last else "sequential", body, context.target.lanes(f64) if last else 1),
        )
    return list(body)


def updated_by(body: ir.Block) -> dict[ir.Buffer, list[ir.Store]]:
    """The buffers from outside that a body adds to: stored and read at one place by one statement."""
    found: dict[ir.Buffer, list[ir.Store]] = {}
    own: set[ir.Buffer] = set()
    for statement in ir.walk(body):
        match statement:
            case ir.Allocate(buffer):
                own.add(buffer)
            case ir.Store(buffer) if adds(statement):
                found.setdefault(buffer, []).append(statement)
    return {buffer: stores for buffer, stores in found.items() if buffer not in own}


def adds(store: ir.Store) -> bool:
    """Whether a store combines something into what was at its place."""
    match store.value:
        case ir.Apply(_, (ir.Load(source, place), _)):
            return source == store.buffer and place == store.indices
    return False


def sliced(stores: list[ir.Store], variable: str) -> bool:
    """Whether all updates of a buffer have the variable itself as index of one common axis."""
    axes = set(range(len(stores[0].indices)))
    for store in stores:
        axes &= {
            k for k, index in enumerate(store.indices) if isinstance(index, ir.Variable) and index.name == variable
        }
    return bool(axes)


def common_prefix(stores: list[ir.Store], bound: set[str]) -> tuple[ir.Expression, ...]:
    """The leading indices that all updates of a buffer share and that are known before the nest."""
    first = stores[0].indices
    for count, index in enumerate(first):
        known = isinstance(index, ir.Constant) or (isinstance(index, ir.Variable) and index.name not in bound)
        if not known or any(store.indices[count] != index for store in stores):
            return first[:count]
    return first
