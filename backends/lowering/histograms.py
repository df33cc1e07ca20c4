"""Histograms: each value is combined into its bin, in order.

Outside of all loops the elements are cut into pieces; a piece combines into bins of its own, and the bins of all
pieces are then combined in order, so the operator need not be commutative and no atomic is needed. Sizes alone decide
how many pieces there are: one where there are too few elements for the bins, since clearing and merging costs
as much as combining then. The result does not depend on the number of threads. Bins and values that are more than
read are computed in lanes, for a strip of elements at a time.

On a target with groups there are three ways, which sizes and the operator decide between:

* A single commutative primitive updates bins at once (``Update``), where the target can and where its order makes no
  difference, or none that matters. For scalars each group has bins of its own where they fit into its memory, for
  a chunk of elements. Otherwise all update the result; the parts of an array that is only read are threads' each.
* Few bins: pieces as above, each a thread's, and many more of them. The bins of all pieces stand side by side.
* Many bins, such that there would be fewer than ``GROUP_HISTOGRAM_ENOUGH_PIECES`` pieces with enough elements for each
  bin: the places of elements are sorted by bin, stably, and a thread combines what belongs to one bin.

    order = argsort(bins);  for b < m: result[b] = value[order[first(b)]] op ... op value[order[first(b + 1) - 1]]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core import terms
from ...core.primitive import Primitive
from ...core.types import dims, element, f64, i64, rank
from .. import ir
from ..target import (
    ACCUMULATOR_COPIES,
    BIN_ELEMENTS,
    GROUP_HISTOGRAM_ENOUGH_PIECES,
    GROUP_HISTOGRAM_FEW_ELEMENTS,
    GROUP_HISTOGRAM_PIECES,
    GROUP_HISTOGRAM_ROOM,
    GROUP_LANE_ELEMENTS,
    HISTOGRAM_LANES_WORK,
    HISTOGRAM_STRIP,
    PIECE_SCALARS,
    SMALL_ELEMENT,
    STRIP_REGISTERS,
)
from .combining import Cell, elementwise_operator, named_operator
from .context import ONE, ZERO, ArrayRef, Destinations, Environment, Operand
from .groups import Groups
from .survey import survey


class Histograms(Groups):
    """The lowering of histogram."""

    def histogram(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        results = self.placed(op, env, destinations)
        neutrals = [self.atom(env, a) for a in op.args[2:]]
        extent = self.scalar(env, op.args[1])
        if self.target.group and self.inside == 0:
            self.by_threads(op, env, extent, neutrals, results)
            return list(results)
        with self.captured() as serial:
            for result, neutral in zip(results, neutrals, strict=True):
                self.fill(result, neutral)
            size = self.scalars(op.blocks[1].types)
            small = self.inside > 0 or not isinstance(size, ir.Constant) or size.value <= SMALL_ELEMENT
            self.inside += small
            self.fill_bins(op, env, ZERO, extent, results)
            self.inside -= small
        if self.inside or not self.target.parallel:
            self.emit(*serial)
            return list(results)
        pieces = self.let("pieces", self._pieces(op, extent, env))
        if isinstance(pieces, ir.Constant) and pieces.value < 2:
            self.emit(*serial)
            return list(results)
        with self.captured() as parallel:
            self.fill_in_pieces(op, env, extent, pieces, neutrals, results)
        self.emit(*ir.branch(pieces < 2, serial, parallel))
        return list(results)

    def fill_bins(
        self,
        op: terms.Operation,
        env: Environment,
        start: ir.Expression,
        length: ir.Expression,
        bins: Sequence[ArrayRef],
    ) -> None:
        """Combine a range of elements into bins; those that belong to none are ignored."""
        variable, index = self.indices(op, env, start)
        self.turns += 1
        with self.captured() as computed:
            self.at(start, variable, index)
            made = self.element(op, env, index)

        def update(bin: Operand, *values: Operand) -> Sequence[ir.Statement]:
            assert not isinstance(bin, ArrayRef)
            with self.captured() as combined:
                self.step(op, env, [place.at(bin) for place in bins], values)
            return self._where_inside(op, env, bin, combined)

        if self._worth_lanes(computed, made):
            self._by_strips(variable, length, computed, made, update)
        else:
            body = (*computed, *update(*made))
            self.emit(ir.For(variable.name, length, "sequential", body))
        self.turns -= 1

    def _worth_lanes(self, computed: Sequence[ir.Statement], made: Sequence[Operand]) -> bool:
        """Whether elements are computed in lanes: by straight-line code that is more work than to store and read."""
        target = self.target
        if target.group or not target.transformations.vectorise or any(isinstance(each, ArrayRef) for each in made):
            return False
        straight = all(isinstance(statement, ir.Let) for statement in computed)
        return straight and survey(tuple(computed)).once >= HISTOGRAM_LANES_WORK

    def _by_strips(
        self,
        variable: ir.Variable,
        length: ir.Expression,
        computed: Sequence[ir.Statement],
        made: Sequence[Operand],
        update: Callable[..., Sequence[ir.Statement]],
    ) -> None:
        """Compute the elements of a strip in lanes, and then combine them in order."""
        bound = {variable.name, *ir.bound_in(tuple(computed))}
        strip = ir.Constant(HISTOGRAM_STRIP)
        with self.over("block", ir.ceil_divide(length, strip)) as block:
            first = self.let("first", block * strip)
            count = self.let("count", ir.minimum(length - first, strip))
            step, stored, read = self.variable("step"), list[ir.Statement](), list[Operand]()
            for each in made:
                assert not isinstance(each, ArrayRef)
                if ir.names_in([each]).isdisjoint(bound):
                    read.append(each)
                    continue
                room = self.temporary("strip", each.type, [strip])
                stored.append(ir.Store(room, (step,), each))
                read.append(ir.Load(room, (step,)))
            lanes = (ir.Let(variable.name, first + step), *computed, *stored)
            self.emit(ir.For(step.name, count, "lanes", lanes, self.target.lanes(f64) * STRIP_REGISTERS))
            with self.over(step, count):
                values = [self.let("t", each) if isinstance(each, ir.Load) else each for each in read]
                self.emit(*update(*values))

    def _where_inside(
        self, op: terms.Operation, env: Environment, bin: ir.Expression, update: Sequence[ir.Statement]
    ) -> Sequence[ir.Statement]:
        if self.proved(bin, op.static[0]):
            return update
        return [ir.If((bin >= 0) & (bin < self.scalar(env, op.args[0])), tuple(update), ())]

    # Outside of all loops

    def _pieces(self, op: terms.Operation, extent: ir.Expression, env: Environment) -> ir.Expression:
        """How many pieces are worth it, or none: each has elements enough, alone and for the bins."""
        size = ir.maximum(self.scalars(op.blocks[1].types), 1)
        enough = PIECE_SCALARS // size
        filled = self.scalar(env, op.args[0]) * BIN_ELEMENTS
        least = ir.maximum(enough, filled) + 1
        count = ir.minimum(extent // least, ACCUMULATOR_COPIES)
        several = ir.minimum(count // 2, 1)
        return count * several

    def fill_in_pieces(
        self,
        op: terms.Operation,
        env: Environment,
        extent: ir.Expression,
        pieces: ir.Expression,
        neutrals: Sequence[Operand],
        results: Sequence[ArrayRef],
    ) -> None:
        """Combine pieces of the elements into bins of their own, and these in order."""
        bins = self.size(op.static[0])  # not the argument, a variable that may change
        types = op.blocks[1].types
        copies: list[ArrayRef] = []
        for type in types:
            extents = (pieces, bins, *[self.size(dim) for dim in dims(type)])
            order = tuple(range(len(extents)))
            if self.target.group:  # threads side by side write side by side
                order = (*order[1:], 0)
            buffer = self.temporary("bins", element(type), [extents[axis] for axis in order])
            copies.append(ArrayRef(buffer, order))
        piece = self.variable("piece")

        def bound(k: ir.Expression) -> ir.Expression:
            return extent * k // pieces

        self.inside += 1
        with self.over(piece, pieces, "parallel", grain=None if self.target.group else ONE):
            own = [copy.at(piece) for copy in copies]
            for place, neutral in zip(own, neutrals, strict=True):
                self.fill(place, neutral)
            start = self.let("start", bound(piece))
            length = self.let("length", bound(piece + 1) - start)
            self.fill_bins(op, env, start, length, own)
        bin = self.loop_variable("bin", op.static[0])
        later = self.loop_variable("piece", self.unknown())
        with self.captured() as merge:
            cells = self.cells(types, [self.read(copy.at(ZERO).at(bin)) for copy in copies])
            with self.over(later, pieces - 1):
                next = self.let("next", later + 1)
                self.step(op, env, cells, [self.read(copy.at(next).at(bin)) for copy in copies])
            self.save(cells, [result.at(bin) for result in results])
        self.inside -= 1
        self.nest([ir.Axis(bin, bins)], tuple(merge))

    # Where threads come in groups

    def by_threads(
        self,
        op: terms.Operation,
        env: Environment,
        extent: ir.Expression,
        neutrals: Sequence[Operand],
        results: Sequence[ArrayRef],
    ) -> None:
        """Fill the bins with all threads."""
        types = op.blocks[1].types
        named = named_operator(op.blocks[1]) or elementwise_operator(op.blocks[1])
        inexact = self.deterministic and element(types[0]).kind == "float"
        if named is not None and self.target.atomics and not inexact:
            self.at_once(op, env, extent, named, neutrals[0], results[0])
            return
        bins = self.size(op.static[0])  # not the argument, a variable that may change
        slots = ir.maximum(bins * self.scalars(types), 1)
        room = GROUP_HISTOGRAM_ROOM // slots
        filled = ir.maximum(bins * BIN_ELEMENTS, 1)
        pieces = ir.minimum(extent // filled, room)
        most = min(GROUP_HISTOGRAM_PIECES, self.target.threads)
        pieces = self.let("pieces", ir.maximum(ir.minimum(pieces, most), 1))
        enough = min(GROUP_HISTOGRAM_ENOUGH_PIECES, most) <= pieces
        few = (extent <= GROUP_HISTOGRAM_FEW_ELEMENTS) | enough
        with self.captured() as copied:
            self.fill_in_pieces(op, env, extent, pieces, neutrals, results)
        with self.captured() as sorted:
            self.fill_sorted(op, env, extent, neutrals, results)
        self.emit(*ir.branch(few, copied, sorted))

    # All at once

    def at_once(
        self,
        op: terms.Operation,
        env: Environment,
        extent: ir.Expression,
        named: Primitive,
        neutral: Operand,
        result: ArrayRef,
    ) -> None:
        """Update bins that threads share: those of a group, if they fit into its memory, else the result's."""
        self.fill(result, neutral)
        with self.captured() as directly:
            self.in_result(op, env, extent, named, result)
        if isinstance(neutral, ArrayRef) or not op.static[0].is_static():  # the extents of shared memory are sizes
            self.emit(*directly)
            return
        with self.captured() as privately:
            self.in_own_bins(op, env, extent, named, neutral, result)
        bins = self.size(op.static[0])  # not the argument, a variable that may change
        fits = bins <= self.target.shared_bytes // neutral.type.dtype.itemsize
        self.emit(*ir.branch(fits, privately, directly))

    def in_result(
        self, op: terms.Operation, env: Environment, extent: ir.Expression, named: Primitive, result: ArrayRef
    ) -> None:
        """Threads update the bins of the result."""
        index = self.index_variable(op, env)
        loops = [ir.Axis(index, extent)]
        with self.captured() as body:
            self.inside += 1
            bin, value = self.element(op, env, index)
            assert not isinstance(bin, ArrayRef)
            parts = [ir.Axis(self.loop_variable("i", dim), self.size(dim)) for dim in dims(op.blocks[1].types[0])]
            if isinstance(value, ArrayRef):
                at = [loop.variable for loop in parts]
                update = self.update(op, [bin, *at], named, ir.Load(value.buffer, value.place(at)), result)
            else:
                update = self.update(op, [bin], named, value, result)
            self.inside -= 1
        if all(isinstance(statement, ir.Let) for statement in body):
            loops, parts = [*loops, *parts], []
        self.emit(*ir.nested(loops, (*body, *ir.nested(parts, (update,))), "parallel"))

    def in_own_bins(
        self,
        op: terms.Operation,
        env: Environment,
        extent: ir.Expression,
        named: Primitive,
        neutral: ir.Expression,
        result: ArrayRef,
    ) -> None:
        """Groups fill bins of their own with chunks of the elements, and then update the result with them."""
        bins = self.size(op.static[0])  # not the argument, a variable that may change
        least = bins * BIN_ELEMENTS
        least = ir.maximum(least, GROUP_LANE_ELEMENTS * self.target.group)
        size = self.let("size", ir.maximum(least, self.parts(extent, self.most_groups)))
        chunk = self.variable("chunk")
        own = ir.Buffer(self.fresh("bins"), neutral.type, (self.size(op.static[0]),))
        bin = self.loop_variable("bin", op.static[0])
        clear = ir.Store(own, (bin,), neutral)
        merge = ir.Update(result.buffer, result.place([bin]), named, ir.Load(own, (bin,)))
        with self.captured() as body:
            self.inside += 1
            start = self.let("start", chunk * size)
            left = extent - start
            lane = self.variable("lane")
            with self.captured() as updates:
                index = self.index_variable(op, env)
                self.at(start, lane, index)
                bin_of, value = self.element(op, env, index)
                assert not isinstance(bin_of, ArrayRef) and not isinstance(value, ArrayRef)
                updates.append(self.update(op, [bin_of], named, value, self.array(own)))
            self.inside -= 1

        def lanes(variable: ir.Variable, count: ir.Expression, block: Sequence[ir.Statement]) -> ir.For:
            return ir.For(variable.name, count, "lanes", tuple(block), self.target.group)

        length = ir.minimum(left, size)
        filled = (lanes(bin, bins, [clear]), lanes(lane, length, updates), lanes(bin, bins, [merge]))
        self.emit(
            ir.For(chunk.name, self.parts(extent, size), "parallel", (*body, ir.Allocate(own, shared=True), *filled))
        )

    def update(
        self,
        op: terms.Operation,
        indices: Sequence[ir.Expression],
        named: Primitive,
        value: ir.Expression,
        bins: ArrayRef,
    ) -> ir.Update:
        """The update of a bin, or of a part of one; of none if it is out of range."""
        guarded = self.guarded(bins, indices[:1], [op.static[0]])
        return ir.Update(bins.buffer, bins.place(indices), named, value, guarded)

    # Sorted

    def fill_sorted(
        self,
        op: terms.Operation,
        env: Environment,
        extent: ir.Expression,
        neutrals: Sequence[Operand],
        results: Sequence[ArrayRef],
    ) -> None:
        """Sort the places of elements by their bins; a thread combines what belongs to one."""
        keys, order = (self.temporary(stem, i64, (extent,)) for stem in ("bin_of", "order"))
        index = self.index_variable(op, env)
        with self.over(index, extent, "parallel"):
            key, *_ = self.element(op, env, index)
            assert not isinstance(key, ArrayRef)
            self.emit(ir.Store(keys, (index,), key))
        self.sort(self.array(keys), self.array(order))
        bin = self.loop_variable("bin", op.static[0])
        with self.over(bin, self.scalar(env, op.args[0]), "parallel"):
            begin = self.first_of(bin, keys, order, ZERO, extent)
            end = self.first_of(bin + 1, keys, order, begin, extent)
            self.combine_sorted(op, env, order, begin, end, neutrals, [result.at(bin) for result in results])

    def first_of(
        self, bin: ir.Expression, keys: ir.Buffer, order: ir.Buffer, begin: ir.Expression, end: ir.Expression
    ) -> ir.Expression:
        """The first of sorted places, between two, whose element does not belong before a bin."""
        low, high = self.declare("low", begin), self.declare("high", end)
        with self.as_long_as(low < high):
            middle = self.let("middle", (low + high) // 2)
            key = ir.Load(keys, (ir.Load(order, (middle,)),))
            before = self.let("before", key < bin)
            self.assign(low, ir.select(before, middle + 1, low))
            self.assign(high, ir.select(before, high, middle))
        return self.frozen(low)

    def combine_sorted(
        self,
        op: terms.Operation,
        env: Environment,
        order: ir.Buffer,
        begin: ir.Expression,
        end: ir.Expression,
        neutrals: Sequence[Operand],
        bins: Sequence[ArrayRef],
    ) -> None:
        """Combine the elements at sorted places into one bin, which is a component each: an array where it is."""
        cells: list[Cell] = []
        for type, bin, neutral in zip(op.blocks[1].types, bins, neutrals, strict=True):
            if rank(type):
                self.fill(bin, neutral)
            cells.extend([bin] if rank(type) else self.cells([type], [neutral]))
        with self.over("step", end - begin) as step:
            index = self.index_variable(op, env)
            place = self.let("place", begin + step)
            self.emit(ir.Let(index.name, ir.Load(order, (place,))))
            _, *values = self.element(op, env, index)
            self.step(op, env, cells, values)
        for cell, bin in zip(cells, bins, strict=True):
            if isinstance(cell, ir.Variable):
                self.copy(self.read(cell), bin)
