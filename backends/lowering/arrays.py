"""Arrays: a generate, and the generates perfectly nested in it, become a nest of loops that write to a destination."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import terms
from ...core.dims import Dim
from ...core.types import Type
from .. import ir
from . import contractions, grids, nests
from .adding import shared_accumulators
from .context import ArrayRef, Context, Destinations, Environment, Operand
from .private import private_accumulators
from .regrouping import regrouped
from .requirements import requirements
from .triangles import Differences


class Arrays(Context):
    """The lowering of generates."""

    def generate(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """A nest over this loop and the loops that are perfectly nested in it."""
        loops: list[nests.Loop] = []
        results: list[ArrayRef] = []
        temporaries: set[str] = set()
        allocations: list[ir.Statement] = []
        for type, destination in zip(op.types, destinations, strict=True):
            if destination is None:
                buffer = self.stored(op, type, env)
                allocations.append(ir.Allocate(buffer))
                temporaries.add(buffer.name)
                destination = self.array(buffer)
            results.append(destination)
        with self.captured() as statements:
            self.inside += 1
            inner, env, places = self.enter(op, env, loops, results)
            self.block_within(inner, env, places)
            self.inside -= 1
        accumulators = shared_accumulators if self.target.group else private_accumulators
        adding = accumulators(self, tuple(statements), loops)
        if adding is not None:
            self.emit(*allocations, *adding)
            return list(results)
        layouts = self.nest(loops, tuple(statements), temporaries, allocations, self.needed(op, loops))
        made = [self.relaid(result, layouts) for result in results]
        self.note_zeros(op, made)
        return list(made)

    def needed(self, op: terms.Operation, loops: Sequence[nests.Loop]) -> Differences:
        """Least differences of a nest's variables where anyone reads what it makes."""
        names = [loop.variable.name for loop in loops]
        regions = [self.regions.needed(op, k) for k in range(len(op.types))]
        return {
            (names[a], names[b]): min([region[a, b] for region in regions])
            for a, b in (regions[0] if regions else ())
            if max(a, b) < len(names) and all((a, b) in region for region in regions)
        }

    def note_zeros(self, op: terms.Operation, results: Sequence[ArrayRef]) -> None:
        """Remember where arrays are 0, by the axes of their buffers."""
        for k, result in enumerate(results):
            region = self.regions.nonzero(op, k)
            if region and not result.prefix:
                axes = {(result.axis(a), result.axis(b)): least for (a, b), least in region.items()}
                self.nonzero[result.buffer.name] = axes

    def placed(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[ArrayRef]:
        """The places of an operation's arrays: the destinations, and temporaries where there are none."""
        results: list[ArrayRef] = []
        for type, destination in zip(op.types, destinations, strict=True):
            if destination is None:
                buffer = self.stored(op, type, env)
                self.emit(ir.Allocate(buffer))
                destination = self.array(buffer)
            results.append(destination)
        return results

    def stored(self, op: terms.Operation, type: Type, env: Environment) -> ir.Buffer:
        """The buffer of an operation's result."""
        self.know(op.static[0], self.scalar(env, op.args[0]))
        return self.buffer(op.origin.name or "array", type)

    def enter(
        self, op: terms.Operation, env: Environment, loops: list[nests.Loop], places: list[ArrayRef], bound: int = 0
    ) -> tuple[terms.Block, Environment, list[ArrayRef]]:
        """Go into the loops that are perfectly nested; scalars between them are computed inside.

        ``bound``: how many variables there are that the loops around this one and the scalars between them bind.
        """
        block = op.blocks[0]
        variable = self.loop_variable(block.names[0], op.static[0])
        loops.append(nests.Loop(variable, self.scalar(env, op.args[0])))
        env = env.enter([variable])
        places = [place.at(variable) for place in places]
        bound += len(block.binders) + sum(len(binding.types) for binding in block.bindings[:-1])
        inner = _perfect(block, bound)
        if inner is None:
            return block, env, places
        for binding in block.bindings[:-1]:
            env = env.extend(self.operation(binding, env, [None] * len(binding.types)))
        return self.enter(inner, env, loops, places, bound)

    def block_within(self, block: terms.Block, env: Environment, places: Destinations) -> None:
        """The body of a nest, whose parameter is bound already."""
        env = self.bindings(block, env, places)
        for atom, place in zip(block.results, places, strict=True):
            value = self.atom(env, atom)
            assert place is not None
            if value != place:
                self.copy(value, place)

    def copy(self, value: Operand, destination: ArrayRef) -> None:
        """Store a scalar, or copy an array, into a destination."""
        if not isinstance(value, ArrayRef):
            self.emit(ir.Store(destination.buffer, destination.place(()), value))
            return
        source = value
        extents = [source.extent(axis) for axis in range(len(source.order) - len(source.prefix))]
        loops = [nests.Loop(self.loop_variable("i", self.dim(e) or Dim({})), e) for e in extents]
        indices = [loop.variable for loop in loops]
        body: ir.Block = (
            ir.Store(destination.buffer, destination.place(indices), ir.Load(source.buffer, source.place(indices))),
        )
        self.nest(loops, body, set())

    def nest(
        self,
        loops: list[nests.Loop],
        body: ir.Block,
        temporaries: set[str],
        allocations: Sequence[ir.Statement] = (),
        needed: Differences | None = None,
    ) -> dict[str, tuple[int, ...]]:
        """Arrange a nest's loops; the layouts that its temporaries got. ``needed``: where anyone reads them."""
        required = requirements(self, loops, body)
        if required is not None:
            self.emit(*required)
            return {}
        parallel = self.inside == 0
        if parallel and self.target.transformations.regroup and not self.target.group:
            two = regrouped(self, loops, body)
            if two is not None:
                self.decisions.append(f"sum over two loops: one of its factors summed first, as {two.stored.name}")
                self.emit(ir.Allocate(two.stored))
                self.nest(two.loops, two.first, set())
                body = two.second
        temporaries = temporaries - ir.read_in(body)
        inner = frozenset(self.independent)
        self.independent.update([loop.variable.name for loop in loops])
        known = (needed or {}, self.nonzero) if self.target.transformations.bound else ({}, {})
        found = nests.Nest(loops, body, temporaries, self.reductions, parallel, self.target, self.fresh, inner, *known)
        built = grids.build(found) if self.target.group else contractions.build(found)
        if built.decision:
            self.decisions.append(built.decision)
        renamed = {name: order for name, order in built.layouts.items() if order != tuple(range(len(order)))}
        for allocation in allocations:
            assert isinstance(allocation, ir.Allocate)
            self.emit(ir.Allocate(_permuted(allocation.buffer, renamed)))

        def store(statement: ir.Store) -> ir.Store:
            order = renamed.get(statement.buffer.name)
            if order is None:
                return statement
            indices = tuple([statement.indices[axis] for axis in order])
            guarded = tuple([order.index(axis) for axis in statement.guarded])
            return ir.Store(_permuted(statement.buffer, renamed), indices, statement.value, guarded)

        self.emit(*ir.map_block(tuple(built.statements), lambda e: e, store) if renamed else built.statements)
        return renamed

    def relaid(self, result: ArrayRef, layouts: dict[str, tuple[int, ...]]) -> ArrayRef:
        order = layouts.get(result.buffer.name)
        return result if order is None else ArrayRef(_permuted(result.buffer, layouts), order)


def _perfect(block: terms.Block, bound: int) -> terms.Operation | None:
    """The generate that is all of a block but cheap scalars, whose results are the block's, in order.

    Its length is none of the last so many variables before it, which a nest binds.
    """
    if not block.bindings or block.bindings[-1].op != "generate":
        return None
    last = block.bindings[-1]
    if any(binding.blocks or not binding.row.elementwise for binding in block.bindings[:-1]):
        return None
    count = len(last.types)
    wanted = [terms.Variable(count - 1 - k, type) for k, type in enumerate(last.types)]
    if list(block.results) != wanted:
        return None
    extent = last.args[0]
    if isinstance(extent, terms.Variable) and extent.index < bound:
        return None
    return last


def _permuted(buffer: ir.Buffer, layouts: dict[str, tuple[int, ...]]) -> ir.Buffer:
    order = layouts.get(buffer.name)
    return (
        buffer
        if order is None
        else ir.Buffer(buffer.name, buffer.scalar, tuple([buffer.extents[axis] for axis in order]))
    )
