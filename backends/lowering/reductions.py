"""Reductions: cells that a loop combines elements into, or, outside of all loops, parts side by side.

Outside of all loops, what a single primitive combines (a sum, a maximum) is cut into chunks, which lanes reduce, or has
a nest compute its elements where these are reductions themselves; what any other operator combines is reduced in pieces
(``pieces.py``). Sizes alone decide how many parts there are, and their totals are combined in order, so the result does
not depend on the number of threads.

On a target with groups, what a single primitive combines goes along the lanes of a group, each of which takes every
``group``-th element, and what another operator combines as in ``groups.py``; one more group combines the groups'
totals. Operators on small arrays combine pieces as elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core import terms
from ...core.primitive import Primitive
from .. import ir
from . import nests
from .combining import Cell, named_operator
from .context import ZERO, ArrayRef, Destinations, Environment, Operand
from .pieces import PIECES, Pieces
from .survey import survey

# Where threads come in groups, a lane combines about this many elements at least.
LANE_WORTH = 4

# Combine the element at an index into a variable.
Contribution = Callable[[ir.Expression, ir.Variable], None]


class Reductions(Pieces):
    """The lowering of reduce."""

    def reduce(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        named = named_operator(op.blocks[1])
        neutrals = [self.atom(env, a) for a in op.args[1:]]
        if self.inside == 0 and named is not None and isinstance(neutrals[0], ir.Constant):
            return [self.whole_reduction(op, env, named, neutrals[0])]
        row = self.row(op.types)
        if row:
            return self.reduce_by_groups(op, env, neutrals, row)
        cells: list[Cell] = []
        for type, neutral, destination in zip(op.types, neutrals, destinations, strict=True):
            if isinstance(neutral, ArrayRef):
                place = destination or self.allocate("total", type)
                self.copy(neutral, place)
                cells.append(place)
            else:
                cells.append(self.declare("sum" if named and named.name == "add" else "total", neutral))
        if self.inside == 0 and self.target.parallel:
            self.reduce_in_pieces(op, env, neutrals, cells)
        else:
            self.reducing_loop(op, env, cells, named)
        return [self.read(cell) for cell in cells]

    def reducing_loop(
        self, op: terms.Operation, env: Environment, cells: Sequence[Cell], named: Primitive | None
    ) -> None:
        """The loop that combines the elements into cells."""
        variable = self.index_variable(op, env)
        with self.over(variable, self.scalar(env, op.args[0])):
            self.inside += 1
            self.combine(op, env, variable, cells, named)
            self.inside -= 1
        neutral = op.args[1]
        if named is not None and isinstance(neutral, terms.Literal) and isinstance(cells[0], ir.Variable):
            constant = ir.Constant(neutral.value, neutral.type)
            self.reductions[variable.name] = ir.Reduction(cells[0].name, named, constant)

    def combine(
        self,
        op: terms.Operation,
        env: Environment,
        variable: ir.Expression,
        cells: Sequence[Cell],
        named: Primitive | None,
    ) -> None:
        """One element, combined into the cells."""
        body = op.blocks[0]
        inner = _merged(body, op) if named is not None else None
        if inner is None:
            self.step(op, env, cells, self.element(op, env, variable))
            return
        within = env.enter([variable])
        for binding in body.bindings[:-1]:
            within = within.extend(self.operation(binding, within, [None] * len(binding.types)))
        self.reducing_loop(inner, within, cells, named)

    # Single commutative primitives, outside of all loops

    def whole_reduction(
        self, op: terms.Operation, env: Environment, named: Primitive, neutral: ir.Constant
    ) -> ir.Expression:
        """A reduction outside of all loops: partial results side by side, combined in order."""
        nested = any(binding.blocks and binding.op != "cond" for binding in op.blocks[0].bindings)
        if self.target.group:
            return self.total_by_groups(op, env, named, neutral, nested)
        nested = nested and self.of_sizes(self.scalar(env, op.args[0]))
        partials = self.element_partials if nested else self.chunk_partials
        partial, count = partials(op, env, named, neutral)
        total = self.declare("total", neutral)
        with self.over("part", count) as index:
            self.emit(ir.Reduction(total.name, named, neutral).combined(ir.Load(partial, (index,))))
        return self.let("t", total)

    def total_by_groups(
        self, op: terms.Operation, env: Environment, named: Primitive, neutral: ir.Constant, nested: bool
    ) -> ir.Expression:
        """The total of elements, each by a lane; those that are reductions themselves are first computed in a nest."""
        if nested:
            partial, extent = self.element_partials(op, env, named, neutral)
            return self.total(extent, named, neutral, self.partials(named, partial))
        dim = self.extent_dim(op, env)

        def combine(index: ir.Expression, part: ir.Variable) -> None:
            variable = self.loop_variable(op.blocks[0].names[0], dim)
            self.emit(ir.Let(variable.name, index))
            self.combine(op, env, variable, [part], named)

        return self.total(self.scalar(env, op.args[0]), named, neutral, combine)

    def total(
        self,
        extent: ir.Expression,
        named: Primitive,
        neutral: ir.Constant,
        combine: Contribution,
    ) -> ir.Expression:
        """A total along lanes: a partial one by each group, and the total of these by one more."""
        least = LANE_WORTH * self.target.group
        strips = ir.maximum(self.parts(extent, least * self.most_groups), 1)
        size = self.let("size", strips * least)
        count = self.let("chunks", self.parts(extent, size))
        if isinstance(count, ir.Constant) and count.value <= 1:
            return self.frozen(self.along_lanes(ZERO, extent, named, neutral, combine))
        partial = self.temporary("partial", neutral.type, (count,))
        with self.over("chunk", count, "parallel") as chunk:
            start = self.let("start", chunk * size)
            length = ir.minimum(extent - start, size)
            self.emit(ir.Store(partial, (chunk,), self.along_lanes(start, length, named, neutral, combine)))
        return self.frozen(self.along_lanes(ZERO, count, named, neutral, self.partials(named, partial)))

    def partials(self, named: Primitive, partial: ir.Buffer) -> Contribution:
        """What combines the elements of a buffer."""

        def combine(index: ir.Expression, part: ir.Variable) -> None:
            self.assign(part, ir.Apply(named, (part, ir.Load(partial, (index,))), part.type))

        return combine

    def along_lanes(
        self,
        start: ir.Expression,
        length: ir.Expression,
        named: Primitive,
        neutral: ir.Constant,
        combine: Contribution,
    ) -> ir.Variable:
        """The variable into which the lanes of a group combine a stretch."""
        part, lane = self.declare("part", neutral), self.variable("lane")
        reduction = (ir.Reduction(part.name, named, neutral),)
        with self.over(lane, length, "lanes", self.target.group, reductions=reduction):
            combine(start + lane if start != ZERO else lane, part)
        return part

    def element_partials(
        self, op: terms.Operation, env: Environment, named: Primitive, neutral: ir.Constant
    ) -> tuple[ir.Buffer, ir.Expression]:
        """One partial result an element, where elements are reductions themselves: a nest."""
        extent = self.scalar(env, op.args[0])
        partial = self.temporary("partial", neutral.type, (extent,))
        variable = self.index_variable(op, env)
        part = self.variable("part", neutral.type)
        with self.captured() as body:
            self.inside += 1
            self.emit(ir.Declare(part.name, neutral))
            self.combine(op, env, variable, [part], named)
            self.emit(ir.Store(partial, (variable,), part))
            self.inside -= 1
        self.nest([ir.Axis(variable, extent)], tuple(body))
        return partial, extent

    def chunk_partials(
        self, op: terms.Operation, env: Environment, named: Primitive, neutral: ir.Constant
    ) -> tuple[ir.Buffer, ir.Expression]:
        """One partial result a chunk of elements, which are lanes where that is possible."""
        chunk, lane = self.variable("chunk"), self.fresh("lane")
        part = self.variable("part", neutral.type)
        extent = self.scalar(env, op.args[0])
        size = self.let("size", self._chunk(extent))
        start = chunk * size
        length = ir.minimum(extent - start, size)
        count = self.let("chunks", self.parts(extent, size))
        partial = self.temporary("partial", neutral.type, (ir.Constant(PIECES),))
        variable = self.index_variable(op, env)
        with self.captured() as elements:
            self.inside += 1
            self.emit(ir.Let(variable.name, start + ir.Variable(lane)))
            self.combine(op, env, variable, [part], named)
            self.inside -= 1
        found = survey(tuple(elements))
        if found.simple and not found.inner and self.target.transformations.vectorise:
            reduction = (ir.Reduction(part.name, named, neutral),)
            strip = 4 * self.target.lanes(neutral.type)
            loop = ir.For(lane, length, "lanes", tuple(elements), strip, reductions=reduction)
        else:
            loop = ir.For(lane, length, "sequential", tuple(elements))
        body = (ir.Declare(part.name, neutral), loop, ir.Store(partial, (chunk,), part))
        if self.target.parallel:
            grain = nests.GRAIN // (size * max(1, int(found.work)))
            self.emit(ir.For(chunk.name, count, "parallel", body, grain=grain))
        else:
            self.emit(ir.For(chunk.name, count, "sequential", body))
        return partial, count

    def _chunk(self, extent: ir.Expression) -> ir.Expression:
        """The elements of a chunk: a multiple of 64, such that there are few enough chunks."""
        strips = extent // (64 * PIECES)
        share = (strips + 1) * 64
        return ir.maximum(share, nests.LONG_CHUNK)


def _merged(body: terms.Block, outer: terms.Operation) -> terms.Operation | None:
    """The inner reduction that is all of an element, when both combine in the same way."""
    if not body.bindings or body.bindings[-1].op != "reduce" or len(body.results) != 1:
        return None
    inner = body.bindings[-1]
    same = inner.blocks[1] == outer.blocks[1] and inner.args[1:] == outer.args[1:] and len(inner.types) == 1
    plain = all(binding.row.elementwise and not binding.blocks for binding in body.bindings[:-1])
    is_result = body.results[0] == terms.Variable(0, inner.types[0])
    return inner if same and plain and is_result and isinstance(inner.args[1], terms.Literal) else None
