"""Nests that update accumulators, on several threads without atomics (for many and light ones see ``adding.py``).

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

from ...core.types import f64, i64
from ..loops import (
    Allocate,
    Apply,
    Block,
    Buffer,
    Constant,
    Expression,
    For,
    Let,
    Load,
    Select,
    Statement,
    Store,
    Variable,
    walk,
)
from ..loops_walk import bound_in, inside
from . import nests
from .arithmetic import chosen, either, folded, product, total
from .context import ONE, Context, zero
from .rewriting import map_block, map_operands, with_own_buffers
from .survey import survey

# Copies of an accumulator that threads add to side by side.
COPIES = 8
# Accumulators of a nest are small when they have at most so many scalars together, or one for COPIES iterations.
SMALL = 256
# What it costs to clear and to add a scalar of a copy, in additions.
COPYING = 4
# Multiples of a loop variable are all different where they are at most so large, and not 0: they do not wrap around.
LARGEST_STEP = 1 << 20


def private_accumulators(context: Context, body: Block, loops: list[nests.Loop]) -> list[Statement] | None:
    """A nest that updates accumulators: None when its loops are independent, as those of any other nest.

    The outer loop is parallel when each iteration updates a slice of its own; else it is cut into pieces that
    update copies, which are then added in order.
    """
    updated = updated_by(body)
    if not updated:
        return None
    own = {buffer: own_variables(context, stores, body, loops) for buffer, stores in updated.items()}
    if _meet_nowhere(body, updated, own, loops):
        return None
    outer = loops[0]
    nest = body
    for loop in reversed(loops[1:]):
        nest = (For(loop.variable.name, loop.extent, "sequential", nest),)
    sequential: list[Statement] = [For(outer.variable.name, outer.extent, "sequential", nest)]
    if context.inside or not context.target.parallel:
        return sequential
    name = outer.variable.name
    bound = bound_in(body) | {loop.variable.name for loop in loops}
    shared = {buffer: common_prefix(stores, bound) for buffer, stores in updated.items() if name not in own[buffer]}
    grain = nests.grain_of(survey(body).work, [loop.extent for loop in loops[1:]])
    way = "copies for pieces of the loop, added in order" if shared else "a slice of its own for each iteration"
    context.decisions.append(f"accumulated in {', '.join([buffer.name for buffer in updated])}: {way}")
    if not shared:
        return [For(name, outer.extent, "parallel", nest, grain=grain)]
    places = [Place(buffer, prefix, context) for buffer, prefix in shared.items()]
    worth = _pieces_worth(outer, places, grain)
    several = either(_small(outer, places), folded("less_equal", Constant(2, i64), worth))
    copies = _copies(context, outer, with_own_buffers(nest, context.fresh), places, worth, grain)
    return list(chosen(several, copies, tuple(sequential)))


def _meet_nowhere(
    body: Block, updated: dict[Buffer, list[Store]], own: dict[Buffer, set[str]], loops: list[nests.Loop]
) -> bool:
    """Whether each iteration of all loops together has a place of its own, to which it adds outside of inner loops."""
    apart = all(loop.variable.name in variables for variables in own.values() for loop in loops)
    return apart and all(store in body for stores in updated.values() for store in stores)


def own_variables(context: Context, stores: list[Store], body: Block, loops: list[nests.Loop]) -> set[str]:
    """The variables of a nest's loops whose iterations update slices of a buffer of their own.

    All updates have the same index along one axis: the variable or a known multiple of it, also with something that
    the nest does not change added, or ``i * extent + j``, with a loop over j of this extent.
    """
    extents = {loop.variable.name: loop.extent for loop in loops}
    bound = bound_in(body) | set(extents)
    found: set[str] = set()
    for axis in range(len(stores[0].indices)):
        index, *others = [_expanded(context, store.indices[axis]) for store in stores]
        moving = _moving(index, bound) if all(other == index for other in others) else None
        match list((moving or {}).items()):
            case [(i, Constant(step))] if 0 < abs(step) <= LARGEST_STEP:
                found.add(i)
            case [(i, step), (j, by)] | [(j, by), (i, step)] if by == ONE and step == extents.get(j):
                found.update((i, j))
    return found & set(extents)


def _expanded(context: Context, index: Expression) -> Expression:
    """An index with what its names stand for, but for what was read, which may have changed."""
    if isinstance(index, Variable):
        value = context.values.get(index.name, index)
        read = value == index or any(isinstance(part, Load) for part in inside(value))
        return index if read else _expanded(context, value)
    return map_operands(index, lambda each: _expanded(context, each))


def _moving(index: Expression, bound: set[str]) -> dict[str, Expression] | None:
    """By how much each of the variables that a nest binds moves an index that is a sum; None for another one."""
    if not any(isinstance(part, Variable) and part.name in bound for part in inside(index)):
        return {}
    match index:
        case Variable(name):
            return {name: ONE}
        case Apply(primitive, (a, b)) if primitive.name == "add":
            first, second = _moving(a, bound), _moving(b, bound)
            return None if first is None or second is None or first.keys() & second.keys() else {**first, **second}
        case Apply(primitive, (a, b)) if primitive.name == "subtract" and _moving(b, bound) == {}:
            return _moving(a, bound)
        case Apply(primitive, ((Variable(name), step) | (step, Variable(name)))) if primitive.name == "multiply":
            return {name: step} if name in bound and _moving(step, bound) == {} else None
    return None


def _small(outer: nests.Loop, places: Sequence[Place]) -> Expression:
    """Whether copies of the accumulators cost next to nothing."""
    spread = folded("floor_divide", outer.extent, Constant(COPIES, i64))
    return folded("less_equal", _scalars(places), folded("maximum", spread, Constant(SMALL, i64)))


def _pieces_worth(outer: nests.Loop, places: Sequence[Place], grain: Expression) -> Expression:
    """How many pieces of the loop are worth a thread's attention and a copy of the accumulators each."""
    copying = folded("multiply", _scalars(places), Constant(COPYING, i64))
    grains = folded("add", folded("floor_divide", copying, Constant(nests.GRAIN, i64)), ONE)
    return folded("floor_divide", outer.extent, folded("multiply", grain, grains))


def _copies(
    context: Context, outer: nests.Loop, nest: Block, places: Sequence[Place], worth: Expression, grain: Expression
) -> Block:
    """The outer loop in pieces, each of which updates its own copy of the shared accumulators."""
    made: list[Statement] = []
    piece = context.fresh("piece")
    pieces = context.fresh("pieces")
    private = {place.buffer: place for place in places}
    wanted = Select(_small(outer, places), outer.extent, worth, i64)
    bounded = context.apply("maximum", context.apply("minimum", wanted, Constant(COPIES, i64)), ONE)
    made.append(Let(pieces, bounded))
    count = Variable(pieces, i64)
    made.extend([Allocate(place.copy) for place in private.values()])

    def bound(k: Expression) -> Expression:
        return context.apply("floor_divide", context.apply("multiply", outer.extent, k), count)

    def store(s: Store) -> Store:
        return private[s.buffer].redirected(s, Variable(piece, i64)) if s.buffer in private else s

    body: list[Statement] = []
    for place in private.values():

        def clear(i: tuple[Expression, ...], c: Buffer = place.copy) -> Store:
            return Store(c, (Variable(piece, i64), *i), Constant(zero(c.scalar), c.scalar))

        body.extend(_over(context, place.extents, clear))
    start = context.fresh("start")
    body.append(Let(start, bound(Variable(piece, i64))))
    length = context.apply("subtract", bound(context.apply("add", Variable(piece, i64), ONE)), Variable(start, i64))
    step = context.fresh("step")
    at = Let(outer.variable.name, context.apply("add", Variable(start, i64), Variable(step, i64)))
    body.append(For(step, length, "sequential", (at, *map_block(nest, lambda e: e, store))))
    # as many pieces as have the iterations that are worth a thread's attention
    share = context.apply(
        "floor_divide", context.apply("multiply", grain, count), context.apply("maximum", outer.extent, ONE)
    )
    made.append(For(piece, count, "parallel", tuple(body), grain=context.apply("maximum", share, ONE)))
    for place in private.values():
        k = context.fresh("piece")

        def merge(i: tuple[Expression, ...], p: Place = place, k: str = k) -> Store:
            final = (*p.prefix, *i)
            value = context.apply("add", Load(p.buffer, final), Load(p.copy, (Variable(k, i64), *i)))
            return Store(p.buffer, final, value)

        made.append(For(k, count, "sequential", tuple(_over(context, place.extents, merge))))
    return tuple(made)


class Place:
    """What a nest adds to, with a buffer for the copies that its pieces add to.

    It is the part of a buffer behind leading indices (``prefix``) that the nest does not bind. The rest of the buffer
    may be read in the nest: it is another state of the same loop.
    """

    def __init__(self, buffer: Buffer, prefix: tuple[Expression, ...], context: Context) -> None:
        self.buffer, self.prefix, self.extents = buffer, prefix, buffer.extents[len(prefix) :]
        name = context.fresh(f"{buffer.name}_copy")
        self.copy = Buffer(name, buffer.scalar, (Constant(COPIES, i64), *self.extents))

    def redirected(self, update: Store, piece: Expression) -> Store:
        """The update, of a piece's copy."""
        assert isinstance(update.value, Apply)
        place = (piece, *update.indices[len(self.prefix) :])
        added = update.value.arguments[1]
        return Store(self.copy, place, Apply(update.value.primitive, (Load(self.copy, place), added), added.type))


def _scalars(places: Sequence[Place]) -> Expression:
    """How many scalars the accumulators have together."""
    return total([product(place.extents) for place in places])


def _over(
    context: Context, extents: Sequence[Expression], store: Callable[[tuple[Expression, ...]], Store]
) -> list[Statement]:
    """A store for all indices, the last of them as lanes."""
    names = [context.fresh("i") for _ in extents]
    body: Block = (store(tuple([Variable(name, i64) for name in names])),)
    for k, (name, extent) in reversed(list(enumerate(zip(names, extents, strict=True)))):
        last = k == len(names) - 1
        body = (For(name, extent, "lanes" if last else "sequential", body, context.target.lanes(f64) if last else 1),)
    return list(body)


def updated_by(body: Block) -> dict[Buffer, list[Store]]:
    """The buffers from outside that a body adds to: stored and read at one place by one statement."""
    found: dict[Buffer, list[Store]] = {}
    own: set[Buffer] = set()
    for statement in walk(body):
        match statement:
            case Allocate(buffer):
                own.add(buffer)
            case Store(buffer) if adds(statement):
                found.setdefault(buffer, []).append(statement)
    return {buffer: stores for buffer, stores in found.items() if buffer not in own}


def adds(store: Store) -> bool:
    """Whether a store combines something into what was at its place."""
    match store.value:
        case Apply(_, (Load(source, place), _)):
            return source == store.buffer and place == store.indices
    return False


def sliced(stores: list[Store], variable: str) -> bool:
    """Whether all updates of a buffer have the variable itself as index of one common axis."""
    axes = set(range(len(stores[0].indices)))
    for store in stores:
        axes &= {k for k, index in enumerate(store.indices) if isinstance(index, Variable) and index.name == variable}
    return bool(axes)


def common_prefix(stores: list[Store], bound: set[str]) -> tuple[Expression, ...]:
    """The leading indices that all updates of a buffer share and that are known before the nest."""
    first = stores[0].indices
    for count, index in enumerate(first):
        known = isinstance(index, Constant) or (isinstance(index, Variable) and index.name not in bound)
        if not known or any(store.indices[count] != index for store in stores):
            return first[:count]
    return first
