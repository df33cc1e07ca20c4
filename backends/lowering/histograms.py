"""Histograms: each value is combined into its bin, in order.

Outside of all loops the elements are cut into pieces; a piece combines into bins of its own, and the bins of all
pieces are then combined in order, so the operator need not be commutative and no atomic is needed. Sizes alone decide
how many pieces there are: one where there are too few elements for the bins, since clearing and merging costs
as much as combining then. The result does not depend on the number of threads.

On a target with groups there are three ways, which sizes and the operator decide between:

* A single commutative primitive updates bins at once (``Update``), where the target can and where its order makes no
  difference, or none that matters. For scalars each group has bins of its own where they fit into its memory, for
  a chunk of elements. Otherwise all update the result; the parts of an array that is only read are threads' each.
* Few bins: pieces as above, each a thread's, and many more of them. The bins of all pieces stand side by side.
* Many bins, such that there would be fewer than ``FEW_PIECES`` pieces with enough elements for each bin: the places of
  elements are sorted by bin, stably, and a thread combines what belongs to one bin.

    order = argsort(bins);  for b < m: result[b] = value[order[first(b)]] op ... op value[order[first(b + 1) - 1]]
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core import terms
from ...core.primitive import Primitive
from ...core.types import dims, element, i64, rank
from ..loops import (
    Allocate,
    Assign,
    Block,
    Buffer,
    Constant,
    Declare,
    Expression,
    For,
    If,
    Let,
    Load,
    Select,
    Statement,
    Store,
    Update,
    Variable,
    While,
)
from . import nests
from .arithmetic import chosen, folded
from .combining import Cell, elementwise_operator, named_operator
from .context import ONE, ZERO, ArrayRef, Destinations, Environment, Operand
from .groups import Groups
from .pieces import SMALL, WORTH
from .private import COPIES
from .reductions import LANE_WORTH

# A piece has at least so many elements for each bin.
FILLED = 4
# Where threads come in groups: the most pieces, how many are worth it, and the most scalars that their bins have.
PIECES, FEW_PIECES, COPIED = 1024, 64, 1 << 22
# So few elements are not worth sorting.
FEW = 256


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
            small = self.inside > 0 or not isinstance(size, Constant) or size.value <= SMALL
            self.inside += small
            self.fill_bins(op, env, ZERO, extent, results)
            self.inside -= small
        if self.inside or not self.target.parallel:
            self.out.extend(serial)
            return list(results)
        pieces = self.let("pieces", self._pieces(op, extent, env))
        if isinstance(pieces, Constant) and pieces.value < 2:
            self.out.extend(serial)
            return list(results)
        with self.captured() as parallel:
            self.fill_in_pieces(op, env, extent, pieces, neutrals, results)
        self.out.append(If(self.apply("less", pieces, Constant(2, i64)), tuple(serial), tuple(parallel)))
        return list(results)

    def fill_bins(
        self,
        op: terms.Operation,
        env: Environment,
        start: Expression,
        length: Expression,
        bins: Sequence[ArrayRef],
    ) -> None:
        """Combine a range of elements into bins; those that belong to none are ignored."""
        variable, index = self.indices(op, env, start)
        with self.captured() as body:
            self.at(start, variable, index)
            bin, *values = self.element(op, env, index)
            assert not isinstance(bin, ArrayRef)
            with self.captured() as update:
                self.step(op, env, [place.at(bin) for place in bins], values)
            self.out.extend(self._where_inside(op, env, bin, update))
        self.out.append(For(variable.name, length, "sequential", tuple(body)))

    def _where_inside(
        self, op: terms.Operation, env: Environment, bin: Expression, update: Sequence[Statement]
    ) -> Sequence[Statement]:
        if self.proved(bin, op.static[0]):
            return update
        below = self.apply("less", bin, self.scalar(env, op.args[0]))
        inside = self.apply("logical_and", self.apply("less_equal", ZERO, bin), below)
        return [If(inside, tuple(update), ())]

    # Outside of all loops

    def _pieces(self, op: terms.Operation, extent: Expression, env: Environment) -> Expression:
        """How many pieces are worth it, or none: each has elements enough, alone and for the bins."""
        size = self.calculate("maximum", self.scalars(op.blocks[1].types), ONE)
        enough = self.calculate("floor_divide", Constant(WORTH, i64), size)
        filled = self.calculate("multiply", self.scalar(env, op.args[0]), Constant(FILLED, i64))
        least = self.calculate("add", self.calculate("maximum", enough, filled), ONE)
        count = self.calculate("minimum", self.calculate("floor_divide", extent, least), Constant(COPIES, i64))
        several = self.calculate("minimum", self.calculate("floor_divide", count, Constant(2, i64)), ONE)
        return self.calculate("multiply", count, several)

    def fill_in_pieces(
        self,
        op: terms.Operation,
        env: Environment,
        extent: Expression,
        pieces: Expression,
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
            buffer = Buffer(self.fresh("bins"), element(type), tuple([extents[axis] for axis in order]))
            self.out.append(Allocate(buffer))
            copies.append(ArrayRef(buffer, order))
        piece = Variable(self.fresh("piece"), i64)

        def bound(k: Expression) -> Expression:
            return self.apply("floor_divide", self.apply("multiply", extent, k), pieces)

        self.inside += 1
        with self.captured() as body:
            own = [copy.at(piece) for copy in copies]
            for place, neutral in zip(own, neutrals, strict=True):
                self.fill(place, neutral)
            start = self.let("start", bound(piece))
            length = self.let("length", self.apply("subtract", bound(self.apply("add", piece, ONE)), start))
            self.fill_bins(op, env, start, length, own)
        self.out.append(For(piece.name, pieces, "parallel", tuple(body), grain=None if self.target.group else ONE))
        bin = self.loop_variable("bin", op.static[0])
        later = self.loop_variable("piece", self.unknown())
        with self.captured() as merge:
            cells = self.cells(types, [self.read(copy.at(ZERO).at(bin)) for copy in copies])
            with self.captured() as steps:
                next = self.let("next", self.apply("add", later, ONE))
                self.step(op, env, cells, [self.read(copy.at(next).at(bin)) for copy in copies])
            others = self.apply("subtract", pieces, ONE)
            self.out.append(For(later.name, others, "sequential", tuple(steps)))
            for cell, result in zip(cells, results, strict=True):
                self.copy(self.read(cell), result.at(bin))
        self.inside -= 1
        self.nest([nests.Loop(bin, bins)], tuple(merge), set())

    # Where threads come in groups

    def by_threads(
        self,
        op: terms.Operation,
        env: Environment,
        extent: Expression,
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
        slots = self.at_least_one(self.calculate("multiply", bins, self.scalars(types)))
        room = self.calculate("floor_divide", Constant(COPIED, i64), slots)
        filled = self.at_least_one(self.calculate("multiply", bins, Constant(FILLED, i64)))
        pieces = self.calculate("minimum", self.calculate("floor_divide", extent, filled), room)
        most = min(PIECES, self.target.threads)
        pieces = self.let("pieces", self.at_least_one(self.calculate("minimum", pieces, Constant(most, i64))))
        enough = folded("less_equal", Constant(min(FEW_PIECES, most), i64), pieces)
        few = folded("logical_or", folded("less_equal", extent, Constant(FEW, i64)), enough)
        with self.captured() as copied:
            self.fill_in_pieces(op, env, extent, pieces, neutrals, results)
        with self.captured() as sorted:
            self.fill_sorted(op, env, extent, neutrals, results)
        self.out.extend(chosen(few, tuple(copied), tuple(sorted)))

    # All at once

    def at_once(
        self,
        op: terms.Operation,
        env: Environment,
        extent: Expression,
        named: Primitive,
        neutral: Operand,
        result: ArrayRef,
    ) -> None:
        """Update bins that threads share: those of a group, if they fit into its memory, else the result's."""
        self.fill(result, neutral)
        with self.captured() as directly:
            self.in_result(op, env, extent, named, result)
        if isinstance(neutral, ArrayRef) or not op.static[0].is_static():  # the extents of shared memory are sizes
            self.out.extend(directly)
            return
        with self.captured() as privately:
            self.in_own_bins(op, env, extent, named, neutral, result)
        bins = self.size(op.static[0])  # not the argument, a variable that may change
        fits = folded("less_equal", bins, Constant(self.target.shared_bytes // neutral.type.dtype.itemsize, i64))
        self.out.extend(chosen(fits, tuple(privately), tuple(directly)))

    def in_result(
        self, op: terms.Operation, env: Environment, extent: Expression, named: Primitive, result: ArrayRef
    ) -> None:
        """Threads update the bins of the result."""
        index = self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))
        loops = [nests.Loop(index, extent)]
        with self.captured() as body:
            self.inside += 1
            bin, value = self.element(op, env, index)
            assert not isinstance(bin, ArrayRef)
            parts = [nests.Loop(self.loop_variable("i", dim), self.size(dim)) for dim in dims(op.blocks[1].types[0])]
            if isinstance(value, ArrayRef):
                at = [loop.variable for loop in parts]
                update = self.update(op, [bin, *at], named, Load(value.buffer, value.place(at)), result)
            else:
                update = self.update(op, [bin], named, value, result)
            self.inside -= 1
        if all(isinstance(statement, Let) for statement in body):
            loops, parts = [*loops, *parts], []
        block: Block = (update,)
        for loop in reversed(parts):
            block = (For(loop.variable.name, loop.extent, "sequential", block),)
        block = (*body, *block)
        for loop in reversed(loops):
            block = (For(loop.variable.name, loop.extent, "parallel", block),)
        self.out.extend(block)

    def in_own_bins(
        self,
        op: terms.Operation,
        env: Environment,
        extent: Expression,
        named: Primitive,
        neutral: Expression,
        result: ArrayRef,
    ) -> None:
        """Groups fill bins of their own with chunks of the elements, and then update the result with them."""
        bins = self.size(op.static[0])  # not the argument, a variable that may change
        least = self.calculate("multiply", bins, Constant(FILLED, i64))
        least = self.calculate("maximum", least, Constant(LANE_WORTH * self.target.group, i64))
        size = self.calculate("maximum", least, self.parts(extent, Constant(self.most_groups, i64)))
        size = self.let("size", size)
        chunk = Variable(self.fresh("chunk"), i64)
        own = Buffer(self.fresh("bins"), neutral.type, (self.size(op.static[0]),))
        bin = self.loop_variable("bin", op.static[0])
        clear = Store(own, (bin,), neutral)
        merge = Update(result.buffer, result.place([bin]), named, Load(own, (bin,)))
        with self.captured() as body:
            self.inside += 1
            start = self.let("start", self.apply("multiply", chunk, size))
            left = self.apply("subtract", extent, start)
            lane = Variable(self.fresh("lane"), i64)
            with self.captured() as updates:
                index = self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))
                self.at(start, lane, index)
                bin_of, value = self.element(op, env, index)
                assert not isinstance(bin_of, ArrayRef) and not isinstance(value, ArrayRef)
                updates.append(self.update(op, [bin_of], named, value, self.array(own)))
            self.inside -= 1

        def lanes(variable: Variable, count: Expression, block: Sequence[Statement]) -> For:
            return For(variable.name, count, "lanes", tuple(block), self.target.group)

        length = self.apply("minimum", left, size)
        filled = (lanes(bin, bins, [clear]), lanes(lane, length, updates), lanes(bin, bins, [merge]))
        self.out.append(
            For(chunk.name, self.parts(extent, size), "parallel", (*body, Allocate(own, shared=True), *filled))
        )

    def update(
        self,
        op: terms.Operation,
        indices: Sequence[Expression],
        named: Primitive,
        value: Expression,
        bins: ArrayRef,
    ) -> Update:
        """The update of a bin, or of a part of one; of none if it is out of range."""
        guarded = self.guarded(bins, indices[:1], [op.static[0]])
        return Update(bins.buffer, bins.place(indices), named, value, guarded)

    # Sorted

    def fill_sorted(
        self,
        op: terms.Operation,
        env: Environment,
        extent: Expression,
        neutrals: Sequence[Operand],
        results: Sequence[ArrayRef],
    ) -> None:
        """Sort the places of elements by their bins; a thread combines what belongs to one."""
        keys, order = (Buffer(self.fresh(stem), i64, (extent,)) for stem in ("bin_of", "order"))
        self.out.extend([Allocate(keys), Allocate(order)])
        index = self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))
        with self.captured() as body:
            self.inside += 1
            key, *_ = self.element(op, env, index)
            assert not isinstance(key, ArrayRef)
            self.out.append(Store(keys, (index,), key))
            self.inside -= 1
        self.out.append(For(index.name, extent, "parallel", tuple(body)))
        self.sort(self.array(keys), self.array(order))
        bin = self.loop_variable("bin", op.static[0])
        with self.captured() as body:
            self.inside += 1
            begin = self.first_of(bin, keys, order, ZERO, extent)
            end = self.first_of(self.apply("add", bin, ONE), keys, order, begin, extent)
            self.combine_sorted(op, env, order, begin, end, neutrals, [result.at(bin) for result in results])
            self.inside -= 1
        self.out.append(For(bin.name, self.scalar(env, op.args[0]), "parallel", tuple(body)))

    def first_of(self, bin: Expression, keys: Buffer, order: Buffer, begin: Expression, end: Expression) -> Expression:
        """The first of sorted places, between two, whose element does not belong before a bin."""
        low, high = Variable(self.fresh("low"), i64), Variable(self.fresh("high"), i64)
        self.out.extend([Declare(low.name, begin), Declare(high.name, end)])
        with self.captured() as body:
            middle = self.apply("floor_divide", self.apply("add", low, high), Constant(2, i64))
            middle = self.let("middle", middle)
            key = Load(keys, (Load(order, (middle,)),))
            before = self.let("before", self.apply("less", key, bin))
            self.out.append(Assign(low.name, Select(before, self.apply("add", middle, ONE), low, i64)))
            self.out.append(Assign(high.name, Select(before, high, middle, i64)))
        self.out.append(While((), self.apply("less", low, high), tuple(body)))
        return self.frozen(low)

    def combine_sorted(
        self,
        op: terms.Operation,
        env: Environment,
        order: Buffer,
        begin: Expression,
        end: Expression,
        neutrals: Sequence[Operand],
        bins: Sequence[ArrayRef],
    ) -> None:
        """Combine the elements at sorted places into one bin, which is a component each: an array where it is."""
        cells: list[Cell] = []
        for type, bin, neutral in zip(op.blocks[1].types, bins, neutrals, strict=True):
            if rank(type):
                self.fill(bin, neutral)
            cells.extend([bin] if rank(type) else self.cells([type], [neutral]))
        step = Variable(self.fresh("step"), i64)
        with self.captured() as body:
            index = self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))
            place = self.let("place", self.apply("add", begin, step))
            self.out.append(Let(index.name, Load(order, (place,))))
            _, *values = self.element(op, env, index)
            self.step(op, env, cells, values)
        self.out.append(For(step.name, self.apply("subtract", end, begin), "sequential", tuple(body)))
        for cell, bin in zip(cells, bins, strict=True):
            if isinstance(cell, Variable):
                self.copy(self.read(cell), bin)
