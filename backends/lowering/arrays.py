"""Arrays: a generate, and the generates perfectly nested in it, become a nest that writes to a destination."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import terms
from ...core.dims import Dim
from ...core.types import Type
from .. import ir
from .context import ArrayRef, Context, Destinations, Environment, Operand
from .triangles import Differences


class Arrays(Context):
    """The lowering of generates."""

    def generate(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """A nest over this loop and the loops that are perfectly nested in it."""
        axes: list[ir.Axis] = []
        results: list[ArrayRef] = []
        fills: list[ir.Buffer] = []
        elements = self.places.of(op).elements or (None,) * len(op.types)
        for k, (type, destination) in enumerate(zip(op.types, destinations, strict=True)):
            taken = elements[k]
            old = None if taken is None else env.get(taken)
            if isinstance(old, ArrayRef):
                destination = old
                self.nonzero.pop(old.buffer.name, None)  # it holds more than one array
            elif destination is None:
                fills.append(self.stored(op, type, env))
                destination = self.array(fills[-1])
            results.append(destination)
        with self.captured() as statements:
            self.inside += 1
            inner, env, places = self.enter(op, env, axes, results)
            self.block_within(inner, env, places)
            self.inside -= 1
        self.emit(*[ir.Allocate(buffer) for buffer in fills])
        needed = self.needed(op, axes)
        self.emit(ir.Nest(tuple(axes), tuple(statements), self.inside == 0, tuple(fills), True, needed))
        self.note_zeros(op, results, fills)
        return list(results)

    def needed(self, op: terms.Operation, axes: Sequence[ir.Axis]) -> Differences:
        """Least differences of a nest's variables where anyone reads what it makes."""
        names = [axis.variable.name for axis in axes]
        regions = [self.regions.needed(op, k) for k in range(len(op.types))]
        return {
            (names[a], names[b]): min([region[a, b] for region in regions])
            for a, b in (regions[0] if regions else ())
            if max(a, b) < len(names) and all((a, b) in region for region in regions)
        }

    def note_zeros(self, op: terms.Operation, results: Sequence[ArrayRef], own: Sequence[ir.Buffer]) -> None:
        """Remember where arrays are 0 that have buffers of their ``own``, by the axes of these."""
        for k, result in enumerate(results):
            region = self.regions.nonzero(op, k)
            if region and result.buffer in own:
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
        self, op: terms.Operation, env: Environment, axes: list[ir.Axis], places: list[ArrayRef], bound: int = 0
    ) -> tuple[terms.Block, Environment, list[ArrayRef]]:
        """Go into the loops that are perfectly nested; scalars between them are computed inside.

        ``bound``: how many variables there are that the loops around this one and the scalars between them bind.
        """
        block = op.blocks[0]
        variable = self.loop_variable(block.names[0], op.static[0])
        axes.append(ir.Axis(variable, self.scalar(env, op.args[0])))
        env = env.enter([variable])
        places = [place.at(variable) for place in places]
        bound += len(block.binders) + sum(len(binding.types) for binding in block.bindings[:-1])
        inner = _perfect(block, bound)
        if inner is None:
            return block, env, places
        for binding in block.bindings[:-1]:
            env = env.extend(self.operation(binding, env, [None] * len(binding.types)))
        return self.enter(inner, env, axes, places, bound)

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
        loops = [ir.Axis(self.loop_variable("i", self.dim(e) or Dim({})), e) for e in extents]
        indices = [loop.variable for loop in loops]
        body: ir.Block = (
            ir.Store(destination.buffer, destination.place(indices), ir.Load(source.buffer, source.place(indices))),
        )
        self.nest(loops, body)

    def nest(self, axes: Sequence[ir.Axis], body: ir.Block) -> None:
        """A nest whose points write at places of their own, in arrays that are there."""
        self.emit(ir.Nest(tuple(axes), body, self.inside == 0))


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
