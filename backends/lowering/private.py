"""Nests that update accumulators, on several threads without atomics.

When each iteration of the outer loop updates a slice of its own, the loop is parallel as it is. Otherwise it is cut
into pieces; a piece updates a copy of its own, and the copies are added in order. Sizes decide how many pieces there
are, so the result does not depend on the number of threads.
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
    Statement,
    Store,
    Variable,
    walk,
)
from . import nests
from .context import ONE, Context, zero
from .rewriting import map_block, map_operands
from .survey import survey

# Copies of an accumulator that threads add to side by side.
COPIES = 8


def private_accumulators(context: Context, body: Block, loops: list[nests.Loop]) -> list[Statement] | None:
    """A nest that updates accumulators: None when its loops are independent.

    The outer loop is parallel when each iteration updates a slice of its own; else it is cut into pieces that
    update copies, which are then added in order.
    """
    updated = _updated(body)
    if not updated:
        return None
    outer = loops[0]
    nest = body
    for loop in reversed(loops[1:]):
        nest = (For(loop.variable.name, loop.extent, "sequential", nest),)
    sequential: list[Statement] = [For(outer.variable.name, outer.extent, "sequential", nest)]
    if context.inside or not context.target.parallel:
        return sequential
    own = outer.variable.name
    shared = {buffer for buffer, stores in updated.items() if not _sliced(stores, own)}
    grain = nests.grain_of(survey(body).work, [loop.extent for loop in loops[1:]])
    if not shared:
        return [For(own, outer.extent, "parallel", nest, grain=grain)]
    return _copies(context, outer, nest, shared, grain)


def _copies(
    context: Context, outer: nests.Loop, nest: Block, shared: set[Buffer], grain: Expression
) -> list[Statement]:
    """The outer loop in pieces, each of which updates its own copy of the shared accumulators."""
    made: list[Statement] = []
    piece = context.fresh("piece")
    wanted = context.apply("floor_divide", outer.extent, grain)
    pieces = context.fresh("pieces")
    bounded = context.apply("maximum", context.apply("minimum", wanted, Constant(COPIES, i64)), ONE)
    made.append(Let(pieces, bounded))
    count = Variable(pieces, i64)
    private = {
        buffer: Buffer(context.fresh(f"{buffer.name}_copy"), buffer.scalar, (Constant(COPIES, i64), *buffer.extents))
        for buffer in sorted(shared, key=lambda b: b.name)
    }
    made.extend([Allocate(copy) for copy in private.values()])

    def bound(k: Expression) -> Expression:
        return context.apply("floor_divide", context.apply("multiply", outer.extent, k), count)

    def expression(e: Expression) -> Expression:
        if isinstance(e, Load) and e.buffer in private:
            return Load(private[e.buffer], (Variable(piece, i64), *[expression(i) for i in e.indices]))
        return map_operands(e, expression)

    def store(s: Store) -> Store:
        return Store(private[s.buffer], (Variable(piece, i64), *s.indices), s.value) if s.buffer in private else s

    body: list[Statement] = []
    for copy in private.values():

        def clear(i: tuple[Expression, ...], c: Buffer = copy) -> Store:
            return Store(c, (Variable(piece, i64), *i), Constant(zero(c.scalar), c.scalar))

        body.extend(_over(context, copy.extents[1:], clear))
    start = context.fresh("start")
    body.append(Let(start, bound(Variable(piece, i64))))
    length = context.apply("subtract", bound(context.apply("add", Variable(piece, i64), ONE)), Variable(start, i64))
    step = context.fresh("step")
    at = Let(outer.variable.name, context.apply("add", Variable(start, i64), Variable(step, i64)))
    body.append(For(step, length, "sequential", (at, *map_block(nest, expression, store))))
    made.append(For(piece, count, "parallel", tuple(body), grain=ONE))
    for buffer, copy in private.items():
        k = context.fresh("piece")

        def merge(i: tuple[Expression, ...], b: Buffer = buffer, c: Buffer = copy, k: str = k) -> Store:
            return Store(b, i, context.apply("add", Load(b, i), Load(c, (Variable(k, i64), *i))))

        made.append(For(k, count, "sequential", tuple(_over(context, buffer.extents, merge))))
    return made


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


def _updated(body: Block) -> dict[Buffer, list[Store]]:
    """The buffers from outside that a body adds to: stored and read at one place by one statement."""
    found: dict[Buffer, list[Store]] = {}
    own: set[Buffer] = set()
    for statement in walk(body):
        match statement:
            case Allocate(buffer):
                own.add(buffer)
            case Store(buffer, indices, Apply(_, (Load(source, place), _))) if source == buffer and place == indices:
                found.setdefault(buffer, []).append(statement)
    return {buffer: stores for buffer, stores in found.items() if buffer not in own}


def _sliced(stores: list[Store], variable: str) -> bool:
    """Whether all updates of a buffer have the variable itself as index of one common axis."""
    axes = set(range(len(stores[0].indices)))
    for store in stores:
        axes &= {k for k, index in enumerate(store.indices) if isinstance(index, Variable) and index.name == variable}
    return bool(axes)
