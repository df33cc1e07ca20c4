"""Nests that update accumulators where threads are many and light (targets with groups).

Iterations of loops whose variables are indices of all that is added to have places of their own; the others meet.
Where no two iterations meet, the nest is a grid like any other. Else there are three ways:

* *slices*: the loops whose iterations do not meet are a grid, and a thread runs the others in order.
* *copies*: as many threads as there is memory for take turns at the iterations, and each adds to a copy of its own.
  Copies are then added in order, which is a nest of reductions. This too gives the same bits in every run.
* *atomics*: all iterations are a grid, and what meets is an atomic update. What is added first is another thing in
  each run, and many additions to few places wait for each other.

With atomics: slices where there are enough of them for the target's threads; else copies where the accumulators have
at most ``SMALL`` scalars, and updates would wait; else atomics. Without atomics, or when the order of additions must
be the same in every run (``deterministic``): slices, unless there are more copies than slices. Sizes decide, and
where they are not known all these forms are there.
"""

from __future__ import annotations

from ...core.primitive import lookup
from ...core.types import i64
from ..loops import (
    Allocate,
    Apply,
    Assign,
    Block,
    Buffer,
    Constant,
    Declare,
    Expression,
    For,
    Let,
    Load,
    Reduction,
    Statement,
    Store,
    Update,
    Variable,
)
from ..loops_walk import bound_in
from . import grids
from .arithmetic import chosen, folded, product, total
from .context import ONE, Context, zero
from .nests import Loop, Nest
from .private import adds, common_prefix, sliced, updated_by
from .rewriting import map_block, with_own_buffers
from .survey import survey

# Accumulators of so many scalars together are small: updates of one place would wait for each other.
SMALL = 256
# The copies of accumulators have at most so many scalars.
ROOM = 1 << 22


def shared_accumulators(context: Context, body: Block, loops: list[Loop]) -> list[Statement] | None:
    """A nest that updates accumulators which iterations share: None when they do not."""
    shared = {
        buffer: stores
        for buffer, stores in updated_by(body).items()
        if not all(sliced(stores, loop.variable.name) for loop in loops)
    }
    if context.inside or not shared:
        return None
    return list(_Adding(context, body, loops, shared).chosen())


class _Adding:
    """The ways to run one nest."""

    def __init__(self, context: Context, body: Block, loops: list[Loop], shared: dict[Buffer, list[Store]]) -> None:
        self.context, self.body, self.loops, self.shared = context, body, loops, shared
        bound = bound_in(body) | {loop.variable.name for loop in loops}
        self.prefixes = {buffer: common_prefix(stores, bound) for buffer, stores in shared.items()}
        self.scalars = total([product(buffer.extents[len(prefix) :]) for buffer, prefix in self.prefixes.items()])
        self.own = [loop for loop in loops if all(sliced(stores, loop.variable.name) for stores in shared.values())]

    def chosen(self) -> Block:
        """The way that sizes decide for."""
        slices = product([loop.extent for loop in self.own])
        if self.context.target.atomics and not self.context.deterministic:
            few = folded("less_equal", self.scalars, Constant(SMALL, i64))
            block = chosen(few, self.copies(), self.atomics())
            enough = folded("less_equal", Constant(self.context.target.threads, i64), slices)
        else:
            block = self.copies()
            enough = folded("less_equal", self.count(), slices)
        return chosen(enough, self.slices(), block) if self.own else block

    def grid(self, loops: list[Loop], body: Block, reductions: dict[str, Reduction] | None = None) -> Block:
        context = self.context
        nest = Nest(loops, body, set(), reductions or {}, True, context.target, context.fresh)
        return tuple(grids.build(nest).statements)

    def slices(self) -> Block:
        others = [loop for loop in self.loops if loop not in self.own]
        return self.grid(self.own, grids.nested(others, self.body))

    def atomics(self) -> Block:
        def update(store: Store) -> Statement:
            if store.buffer not in self.shared or not adds(store):
                return store
            assert isinstance(store.value, Apply)
            added = store.value.arguments[1]
            return Update(store.buffer, store.indices, store.value.primitive, added, store.guarded)

        body = with_own_buffers(self.body, self.context.fresh)
        return self.grid(self.loops, map_block(body, lambda e: e, update))

    # Copies

    def count(self) -> Expression:
        """How many copies there are at most: one a thread, or as many as there is room for; at least one."""
        room = folded("floor_divide", Constant(ROOM, i64), folded("maximum", self.scalars, ONE))
        turns = product([loop.extent for loop in self.loops])
        most = folded("minimum", turns, Constant(self.context.target.threads, i64))
        return folded("maximum", folded("minimum", most, room), ONE)

    def copies(self) -> Block:
        """Each of some threads adds to a copy of its own; then the copies are added."""
        context = self.context
        pieces, piece = Variable(context.fresh("pieces"), i64), Variable(context.fresh("piece"), i64)
        private = {buffer: _Copies(buffer, prefix, context, pieces) for buffer, prefix in self.prefixes.items()}

        def store(s: Store) -> Store:
            return private[s.buffer].redirected(s, piece) if s.buffer in private and adds(s) else s

        work: list[Statement] = []
        for copies in private.values():
            work.extend(copies.cleared(piece))
        body = map_block(with_own_buffers(self.body, context.fresh), lambda e: e, store)
        work.append(self.turns(piece, pieces, body))
        made: list[Statement] = [Let(pieces.name, self.count())]
        made.extend([Allocate(copies.buffer) for copies in private.values()])
        made.append(For(piece.name, pieces, "parallel", tuple(work)))
        for copies in private.values():
            made.extend(self.merged(copies, pieces))
        return tuple(made)

    def turns(self, piece: Expression, pieces: Expression, body: Block) -> Statement:
        """The iterations of a piece, as far apart as there are pieces: threads side by side run neighbours."""
        context = self.context
        nest = Nest(self.loops, self.body, set(), {}, True, context.target, context.fresh)
        loops = grids.ordered(nest, survey(self.body))
        step, turn = Variable(context.fresh("step"), i64), Variable(context.fresh("turn"), i64)
        left = folded("subtract", product([loop.extent for loop in loops]), piece)
        count = folded("floor_divide", folded("add", left, folded("subtract", pieces, ONE)), pieces)
        lets: list[Statement] = [Let(turn.name, folded("add", folded("multiply", step, pieces), piece))]
        for loop in reversed(loops[1:]):
            lets.append(Let(loop.variable.name, folded("remainder", turn, loop.extent)))
            rest = Variable(context.fresh("turn"), i64)
            lets.append(Let(rest.name, folded("floor_divide", turn, loop.extent)))
            turn = rest
        lets.append(Let(loops[0].variable.name, turn))
        return For(step.name, count, "sequential", (*lets, *body))

    def merged(self, copies: _Copies, pieces: Expression) -> Block:
        """What all copies of an accumulator hold, added to it in order."""
        context, scalar = self.context, copies.final.scalar
        loops = [Loop(Variable(context.fresh("i"), i64), extent) for extent in copies.extents]
        place = tuple([loop.variable for loop in loops])
        k, whole = Variable(context.fresh("piece"), i64), Variable(context.fresh("sum"), scalar)
        nothing, final = Constant(zero(scalar), scalar), (*copies.prefix, *place)
        added = Assign(whole.name, context.apply("add", whole, Load(copies.buffer, (*place, k))))
        body: Block = (
            Declare(whole.name, nothing),
            For(k.name, pieces, "sequential", (added,)),
            Store(copies.final, final, context.apply("add", Load(copies.final, final), whole)),
        )
        alone = Loop(Variable(context.fresh("i"), i64), ONE)  # a single number is one element too
        return self.grid(loops or [alone], body, {k.name: Reduction(whole.name, lookup("add"), nothing)})


class _Copies:
    """An accumulator with as many copies as there are pieces, the same places of all copies side by side."""

    def __init__(self, final: Buffer, prefix: tuple[Expression, ...], context: Context, pieces: Expression) -> None:
        self.final, self.prefix, self.context = final, prefix, context
        self.extents = final.extents[len(prefix) :]
        self.buffer = Buffer(context.fresh(f"{final.name}_copies"), final.scalar, (*self.extents, pieces))

    def redirected(self, update: Store, piece: Expression) -> Store:
        """The update, of a piece's copy."""
        assert isinstance(update.value, Apply)
        place = (*update.indices[len(self.prefix) :], piece)
        value = Apply(update.value.primitive, (Load(self.buffer, place), update.value.arguments[1]), update.value.type)
        return Store(self.buffer, place, value)

    def cleared(self, piece: Expression) -> Block:
        """A piece's copy, set to zero."""
        loops = [Loop(Variable(self.context.fresh("i"), i64), extent) for extent in self.extents]
        place = (*[loop.variable for loop in loops], piece)
        return grids.nested(loops, (Store(self.buffer, place, Constant(zero(self.final.scalar), self.final.scalar)),))
