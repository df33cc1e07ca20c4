"""Updates of arrays: scatter, and accumulators with what is added to them.

Both write into memory that holds the old array: the old array's own where nothing reads it later
(``interpreters/in_place.py``), else a copy. A write that is not proved in range is tested, and outside has no effect.

Of several writes to one place the last wins. Where iterations may update one place, they need not wait for their turn
to find out which that is:

    for i < n: x[p[i]] = v[i]    =>    parallel i < n: update winner[p[i]] = maximum(winner[p[i]], i)
                                       parallel i < n: if winner[p[i]] == i: x[p[i]] = v[i]
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core import terms
from ...core.dims import Dim, Opaque
from ...core.primitive import lookup
from ...core.types import Type, dims, i64, rank
from .. import ir
from ..target import CONTEST_CLEARED, LIGHT_WRITE_WORK
from .borders import Borders
from .context import ONE, ZERO, ArrayRef, Destinations, Environment, Operand
from .survey import survey


class Updates(Borders):
    """The lowering of scatter, accumulate and add_to."""

    def scatter(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """Writes in order, or, where no two meet, a nest of parallel loops."""
        unique, count = op.static
        olds = [self.atom(env, atom) for atom in op.args[count:]]
        targets = self.targets(op, olds, destinations)
        element = op.blocks[0]
        loops: list[ir.Axis] = []
        variables: list[Operand] = []
        for atom, name in zip(op.args[:count], element.names, strict=True):
            extent = self.scalar(env, atom)
            if extent == ONE:
                variables.append(ZERO)
                continue
            number = self.dim(extent) or Dim.atom(Opaque(-1_000_000 - self.shared.counter))
            loops.append(ir.Axis(self.loop_variable(name, number), extent))
            variables.append(loops[-1].variable)
        contest = bool(loops) and not unique and self.may_contest(element, len(targets))
        side_by_side = bool(loops) and (unique or contest)
        with self.captured() as statements:
            self.inside += side_by_side
            results = self.block(element, env, variables, [None] * len(element.results))
            with self.captured() as stores:
                self.write_at(results[: -len(targets)], results[-len(targets) :], targets, op)
            self.inside -= side_by_side
        body: ir.Block = (*statements, *stores)
        in_order = ir.nested(loops, body)
        place = [index for index in results[: -len(targets)] if not isinstance(index, ArrayRef)]
        box = self.box(loops, tuple(statements), place) if unique else None
        for k, (old, target) in enumerate(zip(olds, targets, strict=True)):
            if isinstance(old, ArrayRef) and old != target:
                self.copy_around(old, target, box, self.whole_turns.get((id(op), k)))
        if loops and unique:
            alone = self.one_is_faster(body, place, targets)
            self.emit(ir.Nest(tuple(loops), body, self.inside == 0, alone=alone))
        elif contest:
            worth, block = self.contest(loops, tuple(statements), tuple(stores), place, targets[0], op.types[0])
            self.emit(*ir.branch(worth, block, in_order))
        else:
            self.emit(*in_order)
        return list(targets)

    def one_is_faster(
        self, body: ir.Block, place: Sequence[ir.Expression], targets: Sequence[ArrayRef]
    ) -> ir.Expression | None:
        """When one thread is faster than several, since the lines that they write would go from cache to cache.

        That is where data tell the places, the arrays stay in a core's cache, and little is computed for a write.
        """
        told = any(self.dim(index) is None for index in place)
        if self.target.group or not told or survey(body).work > LIGHT_WRITE_WORK:
            return None
        return ir.total([ir.bytes_of(target.buffer) for target in targets]) <= self.target.l2_bytes // 2

    def may_contest(self, element: terms.Block, count: int) -> bool:
        """Whether iterations may find out side by side which of them comes last, at the top level."""
        scalars = all(rank(atom.type) == 0 for atom in element.results[-count:])
        return self.target.atomics and self.inside == 0 and scalars and not accumulates(element)

    def contest(
        self,
        loops: list[ir.Axis],
        element: ir.Block,
        stores: ir.Block,
        place: Sequence[ir.Expression],
        target: ArrayRef,
        type: Type,
    ) -> tuple[ir.Expression, ir.Block]:
        """Writes side by side, of which the last wins; and whether that is worth it."""
        extents = tuple([target.extent(axis) for axis in range(len(place))])
        winner = ir.Buffer(self.fresh("winner"), i64, extents)
        guarded = self.guarded(self.array(winner), place, dims(type))
        number: ir.Expression = loops[0].variable
        for loop in loops[1:]:
            number = number * loop.extent + loop.variable
        with self.captured() as statements:
            self.emit(ir.Allocate(winner))
            places = [ir.Axis(self.loop_variable("i", self.dim(e) or Dim({})), e) for e in extents]
            nobody = ir.Constant(-1)
            self.nest(places, (ir.Store(winner, tuple([each.variable for each in places]), nobody),))
            claim = ir.Update(winner, tuple(place), lookup("maximum"), number, guarded)
            self.nest(loops, (*ir.with_own_buffers(element, self.fresh), claim))
            won = ir.equal(ir.Load(winner, tuple(place), guarded), number)
            self.nest(loops, (*ir.with_own_buffers(element, self.fresh), ir.If(won, stores, ())))
        cleared = ir.product(extents) // CONTEST_CLEARED
        return cleared <= ir.product([loop.extent for loop in loops]), tuple(statements)

    def targets(self, op: terms.Operation, olds: Sequence[Operand], destinations: Destinations) -> list[ArrayRef]:
        """Where the updated arrays are: where the old ones were, or in memory of their own."""
        taken = self.places.of(op).taken or (False,) * len(olds)
        made = []
        for old, type, destination, take in zip(olds, op.types, destinations, taken, strict=False):
            place = old if take else destination or self.allocate("updated", type)
            assert isinstance(place, ArrayRef)
            made.append(place)
        return made

    def write_at(
        self, indices: Sequence[Operand], values: Sequence[Operand], targets: Sequence[ArrayRef], op: terms.Operation
    ) -> None:
        """Write the values of one iteration at their place."""
        place = [index for index in indices if not isinstance(index, ArrayRef)]
        arrays = [(value, target) for value, target in zip(values, targets, strict=True) if isinstance(value, ArrayRef)]
        for value, target in zip(values, targets, strict=True):
            if not isinstance(value, ArrayRef):
                guarded = self.guarded(target, place, dims(op.types[0]))
                self.emit(ir.Store(target.buffer, target.place(place), value, guarded))
        if arrays:
            with self.captured() as stores:
                for value, target in arrays:
                    for index in place:
                        target = target.at(index)
                    self.copy(value, target)
            self.within(place, op.types[0], targets[0], stores)

    def within(
        self, indices: Sequence[ir.Expression], type: Type, target: ArrayRef, stores: Sequence[ir.Statement]
    ) -> None:
        """Emit stores, for when the indices are in range of the first axes of an array."""
        inside: ir.Expression | None = None
        for axis, index in enumerate(indices):
            if not self.proved(index, dims(type)[axis]):
                below = index < target.extent(axis)
                fits = (index >= 0) & below
                inside = fits if inside is None else inside & fits
        self.emit(*stores if inside is None else [ir.If(inside, tuple(stores), ())])

    # Accumulators

    def accumulate(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """Accumulators are arrays that updates are added to, in place."""
        count = len(op.args)
        finals: list[ArrayRef] = []
        taken = self.places.of(op).taken or (False,) * count
        for k in range(count):
            initial = self.atom(env, op.args[k])
            place = initial if taken[k] else destinations[k] or self.allocate("accumulator", op.types[k])
            assert isinstance(place, ArrayRef)
            if place != initial:
                self.copy(initial, place)
            finals.append(place)
        results = self.block(op.blocks[0], env, finals, destinations[count:])
        values: list[Operand] = []
        for final, type in zip(finals, op.types, strict=False):
            values.append(final if rank(type) else self.let("t", ir.Load(final.buffer, final.place(()))))
        return [*values, *results]

    def add_to(self, op: terms.Operation, env: Environment) -> None:
        """An update of one element."""
        target, value = self.atom(env, op.args[0]), self.scalar(env, op.args[1])
        assert isinstance(target, ArrayRef)
        indices = [self.scalar(env, a) for a in op.args[2:]]
        place = target.place(indices)
        update = ir.Store(target.buffer, place, ir.Load(target.buffer, place) + value)
        self.within(indices, op.args[0].type, target, [update])


def accumulates(block: terms.Block) -> bool:
    """Whether a block adds to accumulators."""
    return any(binding.op == "add_to" or any(map(accumulates, binding.blocks)) for binding in block.bindings)
