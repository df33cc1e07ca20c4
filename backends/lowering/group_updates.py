"""Nests that update accumulators where threads are many and light (targets with groups).

Iterations of loops whose variables are indices of all that is added to have places of their own; the others meet.
Where no two iterations meet, the nest is a grid like any other. Else there are three ways:

* *slices*: the loops whose iterations do not meet are a grid, and a thread runs the others in order.
* *copies*: as many threads as there is memory for take turns at the iterations, and each adds to a copy of its own.
  Copies are then added in order, which is a nest of reductions. This too gives the same bits in every run.
* *atomics*: all iterations are a grid, and what meets is an atomic update. What is added first is another thing in
  each run, and many additions to few places wait for each other.

With atomics: slices where there are enough of them for the target's threads; else copies where the accumulators have
at most ``GROUP_SMALL_ACCUMULATORS`` scalars, and updates would wait; else atomics. Without atomics, or when the order
of additions must be the same in every run (``deterministic``): slices, unless there are more copies than slices. Sizes
decide, and where they are not known all these forms are there.
"""

from __future__ import annotations

from ...core.primitive import lookup
from .. import ir
from ..target import GROUP_COPIES_ROOM, GROUP_SMALL_ACCUMULATORS
from . import grids
from .context import ONE, Context, zero
from .nests import Plan
from .privatisation import adds, common_prefix, sliced, updated_by
from .survey import survey


def shared_accumulators(context: Context, nest: ir.Nest) -> list[ir.Statement] | None:
    """A nest that updates accumulators which iterations share: None when they do not."""
    shared = {
        buffer: stores
        for buffer, stores in updated_by(nest.body).items()
        if not all(sliced(stores, axis.variable.name) for axis in nest.axes)
    }
    if not nest.outermost or not shared:
        return None
    return list(_Adding(context, nest.body, list(nest.axes), shared).chosen())


class _Adding:
    """The ways to run one nest."""

    def __init__(
        self, context: Context, body: ir.Block, loops: list[ir.Axis], shared: dict[ir.Buffer, list[ir.Store]]
    ) -> None:
        self.context, self.body, self.loops, self.shared = context, body, loops, shared
        bound = ir.bound_in(body) | {loop.variable.name for loop in loops}
        self.prefixes = {buffer: common_prefix(stores, bound) for buffer, stores in shared.items()}
        self.scalars = ir.total([ir.product(buffer.extents[len(prefix) :]) for buffer, prefix in self.prefixes.items()])
        self.own = [loop for loop in loops if all(sliced(stores, loop.variable.name) for stores in shared.values())]

    def chosen(self) -> ir.Block:
        """The way that sizes decide for."""
        slices = ir.product([loop.extent for loop in self.own])
        if self.context.target.atomics and not self.context.deterministic:
            few = self.scalars <= GROUP_SMALL_ACCUMULATORS
            block = ir.branch(few, self.copies(), self.atomics())
            enough = self.context.target.threads <= slices
        else:
            block = self.copies()
            enough = self.count() <= slices
        return ir.branch(enough, self.slices(), block) if self.own else block

    def grid(self, loops: list[ir.Axis], body: ir.Block, reductions: dict[str, ir.Reduction] | None = None) -> ir.Block:
        context = self.context
        nest = Plan(loops, body, set(), reductions or {}, True, context.target, context.fresh)
        return tuple(grids.build(nest).statements)

    def slices(self) -> ir.Block:
        others = [loop for loop in self.loops if loop not in self.own]
        return self.grid(self.own, ir.nested(others, self.body))

    def atomics(self) -> ir.Block:
        def update(store: ir.Store) -> ir.Statement:
            if store.buffer not in self.shared or not adds(store):
                return store
            assert isinstance(store.value, ir.Apply)
            added = store.value.arguments[1]
            return ir.Update(store.buffer, store.indices, store.value.primitive, added, store.guarded)

        body = ir.with_own_buffers(self.body, self.context.fresh)
        return self.grid(self.loops, ir.map_block(body, lambda e: e, update))

    # Copies

    def count(self) -> ir.Expression:
        """How many copies there are at most: one a thread, or as many as there is room for; at least one."""
        room = GROUP_COPIES_ROOM // ir.maximum(self.scalars, 1)
        turns = ir.product([loop.extent for loop in self.loops])
        most = ir.minimum(turns, self.context.target.threads)
        return ir.maximum(ir.minimum(most, room), 1)

    def copies(self) -> ir.Block:
        """Each of some threads adds to a copy of its own; then the copies are added."""
        context = self.context
        pieces, piece = context.variable("pieces"), context.variable("piece")
        private = {buffer: _Copies(buffer, prefix, context, pieces) for buffer, prefix in self.prefixes.items()}

        def store(s: ir.Store) -> ir.Store:
            return private[s.buffer].redirected(s, piece) if s.buffer in private and adds(s) else s

        work: list[ir.Statement] = []
        for copies in private.values():
            work.extend(copies.cleared(piece))
        body = ir.map_block(ir.with_own_buffers(self.body, context.fresh), lambda e: e, store)
        work.append(self.turns(piece, pieces, body))
        made: list[ir.Statement] = [ir.Let(pieces.name, self.count())]
        made.extend([ir.Allocate(copies.buffer) for copies in private.values()])
        made.append(ir.For(piece.name, pieces, "parallel", tuple(work)))
        for copies in private.values():
            made.extend(self.merged(copies, pieces))
        return tuple(made)

    def turns(self, piece: ir.Expression, pieces: ir.Expression, body: ir.Block) -> ir.Statement:
        """The iterations of a piece, as far apart as there are pieces: threads side by side run neighbours."""
        context = self.context
        nest = Plan(self.loops, self.body, set(), {}, True, context.target, context.fresh)
        loops = grids.ordered(nest, survey(self.body))
        step, turn = context.variable("step"), context.variable("turn")
        left = ir.product([loop.extent for loop in loops]) - piece
        count = ir.ceil_divide(left, pieces)
        lets = [ir.Let(turn.name, step * pieces + piece), *ir.unravelled(turn, loops, context.fresh)]
        return ir.For(step.name, count, "sequential", (*lets, *body))

    def merged(self, copies: _Copies, pieces: ir.Expression) -> ir.Block:
        """What all copies of an accumulator hold, added to it in order."""
        context, scalar = self.context, copies.final.scalar
        loops = [ir.Axis(context.variable("i"), extent) for extent in copies.extents]
        place = tuple([loop.variable for loop in loops])
        k, whole = context.variable("piece"), context.variable("sum", scalar)
        nothing, final = ir.Constant(zero(scalar), scalar), (*copies.prefix, *place)
        added = ir.Assign(whole.name, whole + ir.Load(copies.buffer, (*place, k)))
        body: ir.Block = (
            ir.Declare(whole.name, nothing),
            ir.For(k.name, pieces, "sequential", (added,)),
            ir.Store(copies.final, final, ir.Load(copies.final, final) + whole),
        )
        alone = ir.Axis(context.variable("i"), ONE)  # a single number is one element too
        return self.grid(loops or [alone], body, {k.name: ir.Reduction(whole.name, lookup("add"), nothing)})


class _Copies:
    """An accumulator with as many copies as there are pieces, the same places of all copies side by side."""

    def __init__(
        self, final: ir.Buffer, prefix: tuple[ir.Expression, ...], context: Context, pieces: ir.Expression
    ) -> None:
        self.final, self.prefix, self.context = final, prefix, context
        self.extents = final.extents[len(prefix) :]
        self.buffer = ir.Buffer(context.fresh(f"{final.name}_copies"), final.scalar, (*self.extents, pieces))

    def redirected(self, update: ir.Store, piece: ir.Expression) -> ir.Store:
        """The update, of a piece's copy."""
        assert isinstance(update.value, ir.Apply)
        place = (*update.indices[len(self.prefix) :], piece)
        value = ir.Apply(
            update.value.primitive, (ir.Load(self.buffer, place), update.value.arguments[1]), update.value.type
        )
        return ir.Store(self.buffer, place, value)

    def cleared(self, piece: ir.Expression) -> ir.Block:
        """A piece's copy, set to zero."""
        loops = [ir.Axis(ir.Variable(self.context.fresh("i")), extent) for extent in self.extents]
        place = (*[loop.variable for loop in loops], piece)
        return ir.nested(
            loops, (ir.Store(self.buffer, place, ir.Constant(zero(self.final.scalar), self.final.scalar)),)
        )
