"""Histograms: each value is combined into its bin, in order.

Outside of all loops the elements are cut into pieces; a piece combines into bins of its own, and the bins of all
pieces are then combined in order, so the operator need not be commutative and no atomic is needed. Sizes alone decide
how many pieces there are: one where there are too few elements for the bins, since clearing and merging costs
as much as combining then. The result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core import terms
from ...core.types import dims, element, i64
from ..loops import Allocate, Buffer, Constant, Expression, For, If, Statement, Variable
from . import nests
from .combining import Combining
from .context import ONE, ZERO, ArrayRef, Destinations, Environment, Operand
from .private import COPIES
from .reductions import SMALL, WORTH

# A piece has at least so many elements for each bin.
FILLED = 4


class Histograms(Combining):
    """The lowering of histogram."""

    def histogram(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        results = self.placed(op, env, destinations)
        neutrals = [self.atom(env, a) for a in op.args[2:]]
        extent = self.scalar(env, op.args[1])
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
        bins = self.scalar(env, op.args[0])
        types = op.blocks[1].types
        copies: list[ArrayRef] = []
        for type in types:
            extents = (pieces, bins, *[self.size(dim) for dim in dims(type)])
            buffer = Buffer(self.fresh("bins"), element(type), extents)
            self.out.append(Allocate(buffer))
            copies.append(self.array(buffer))
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
        self.out.append(For(piece.name, pieces, "parallel", tuple(body), grain=ONE))
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
