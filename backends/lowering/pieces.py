"""Pieces of a range: what any operator combines outside of all loops, with threads, lanes and stretches side by side.

A range is cut into pieces; each has totals, which are combined in order. Sizes alone decide how many pieces there are,
so the result does not depend on the number of threads. A piece is reduced in one of two ways::

    an operator that commutes (commuting.py)         any other
    lanes lane < 16                                  jam copy < 8
      for step                                         for each i in the copy's stretch
        total = total op x[start + 16 step + lane]       total = total op x[i]
      totals[first + lane] = total                     totals[first + copy] = total
    what is left, in order                           what is left, in order

Lanes have neighbouring elements; stretches in lockstep are for what waits for the step before (``jam``). Few elements
that are large are combined one after the other, by an operator whose own loops are for all threads. On a target with
groups there are many more pieces, a thread has each, and their totals are combined in pairs, then pairs of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...core import terms
from ...core.types import element, i64, rank
from .. import ir
from ..target import (
    GROUP_PIECE_SCALARS,
    GROUP_SMALL_ELEMENT,
    LOCKSTEP_CELLS,
    LOCKSTEP_STATEMENTS,
    PIECE_REGISTERS,
    PIECE_SCALARS,
    PIECE_TOTALS_ROOM,
    REDUCTION_PIECES,
    SMALL_ELEMENT,
)
from .combining import Cell
from .commutativity import commutes
from .context import ONE, ZERO, ArrayRef, Environment, Operand
from .groups import Groups
from .lanes import contiguous
from .survey import Survey, survey

# What is done with a part of the elements: its start and length, and the number of its total.
Stretch = Callable[[ir.Expression, ir.Expression, ir.Expression], None]
# The name of an index, and what a loop over it consists of.
Trial = tuple[str, Survey]


@dataclass(frozen=True)
class Combination:
    """What is combined, and the rows of totals that it is kept in."""

    op: terms.Operation
    env: Environment
    neutrals: Sequence[Operand]
    totals: Sequence[ArrayRef]


class Pieces(Groups):
    """Reductions of pieces, and how many pieces there are."""

    def reduce_in_pieces(
        self, op: terms.Operation, env: Environment, neutrals: Sequence[Operand], cells: Sequence[Cell]
    ) -> None:
        """The totals of pieces, combined in order; large elements that are few go one after the other."""
        extent = self.scalar(env, op.args[0])
        size = self.scalars(op.types)
        most = self.let("most", self.most(size, self.target.threads if self.target.group else REDUCTION_PIECES))
        smallest = self.let("smallest", self.worthwhile(size))
        count = ir.minimum(most, extent // smallest)
        small = self.small(size)
        count = self.let("pieces", ir.maximum(count, 1) if small else count)
        with self.captured() as serial:
            if not small:  # an operator that may have loops for several threads
                self.elements(op, env, ir.Constant(0), extent, cells)
        with self.captured() as parallel:
            trial = self.trial(op, env, neutrals)
            lanes = self.lanes(op, trial)
            copies = lanes or self.copies(op, trial)
            rows = 1 if copies == 1 else copies + 1
            totals = self.totals(op.types, most * rows)

            def bound(k: ir.Expression) -> ir.Expression:
                return extent * k // count

            with self.over("piece", count, "parallel", grain=ONE) as piece:
                start = self.let("start", bound(piece))
                length = self.let("length", bound(piece + 1) - start)
                first = self.let("first", piece * rows)
                reduce = self.interleaved if lanes else self.stretches
                reduce(Combination(op, env, neutrals, totals), start, length, first, copies)
            if self.target.group:
                self.merge_in_pairs(op, env, count, totals)
                self.restore(cells, [total.at(ZERO) for total in totals])
            else:
                self.merge(op, env, count * rows, totals, cells)
        if small:
            self.emit(*parallel)
        else:
            self.emit(*ir.branch(count < 2, serial, parallel))

    def merge(
        self,
        op: terms.Operation,
        env: Environment,
        rows: ir.Expression,
        totals: Sequence[ArrayRef],
        cells: Sequence[Cell],
    ) -> None:
        """Combine so many totals into cells, in order."""
        with self.over("row", rows) as row:
            self.inside += 1
            self.step(op, env, cells, [self.read(total.at(row)) for total in totals])
            self.inside -= 1

    def merge_in_pairs(
        self, op: terms.Operation, env: Environment, count: ir.Expression, totals: Sequence[ArrayRef]
    ) -> None:
        """Combine so many totals into the first of them: neighbours, then those two apart, and so on."""
        width, pair = self.declare("width", ONE), self.variable("pair")
        with self.as_long_as(width < count):
            present = self.frozen(width)
            both = self.let("both", present + present)
            # a total without a neighbour stays as it is
            with self.over(pair, (count + (present - 1)) // both, "parallel"):
                left = self.let("left", pair * both)
                right = self.let("right", left + present)
                element = [self.read(total.at(right)) for total in totals]
                self.step(op, env, [total.at(left) for total in totals], element)
            self.assign(width, both)

    def stretches(
        self, what: Combination, start: ir.Expression, length: ir.Expression, first: ir.Expression, copies: int
    ) -> None:
        """The totals of so many equal stretches of a range in lockstep, and of what is left of it."""
        self.in_lockstep(start, length, first, copies, lambda *stretch: self.stretch(what, *stretch))

    def stretch(self, what: Combination, start: ir.Expression, length: ir.Expression, row: ir.Expression) -> None:
        """The total of a range."""
        cells = self.cells(what.op.blocks[1].types, what.neutrals)
        self.elements(what.op, what.env, start, length, cells)
        self.save(cells, [total.at(row) for total in what.totals])

    def interleaved(
        self, what: Combination, start: ir.Expression, length: ir.Expression, first: ir.Expression, lanes: int
    ) -> None:
        """The totals of each so-manieth element of a range, which a lane combines, and of what is left of it."""
        op, env, width = what.op, what.env, ir.Constant(lanes)
        steps = self.let("steps", length // width)
        lane, step = self.variable("lane"), self.variable("step")
        index = self.index_variable(op, env)
        with self.over(lane, width, "lanes", lanes):
            cells = self.cells(op.blocks[1].types, what.neutrals)
            with self.over(step, steps):
                self.emit(ir.Let(index.name, start + step * width + lane))
                self.step(op, env, cells, self.element(op, env, index))
            row = self.let("row", first + lane)
            self.save(cells, [total.at(row) for total in what.totals])
        done = self.let("done", steps * width)
        begin = self.let("begin", start + done)
        rest = self.let("rest", length - done)
        self.stretch(what, begin, rest, self.let("row", first + width))

    def in_lockstep(
        self, start: ir.Expression, length: ir.Expression, first: ir.Expression, copies: int, run: Stretch
    ) -> None:
        """Run equal stretches of a range side by side, and then what is left; ``run(start, length, row)``."""
        if copies > 1:
            segment = self.let("segment", length // copies)
            with self.over("copy", copies, "jam", copies) as copy:
                begin = self.let("begin", start + copy * segment)
                run(begin, segment, self.let("row", first + copy))
            done = self.let("done", segment * copies)
            start = self.let("begin", start + done)
            length = self.let("rest", length - done)
            first = self.let("row", first + copies)
        run(start, length, first)

    def trial(self, op: terms.Operation, env: Environment, neutrals: Sequence[Operand]) -> Trial | None:
        """The index of a loop that combines elements, and what is in it; None where it has loops or much code."""
        if self.target.group or any(rank(type) for type in op.blocks[1].types):
            return None
        with self.captured() as trial:
            self.inside += 1
            cells = self.cells(op.blocks[1].types, neutrals)
            variable = self.elements(op, env, ZERO, ONE, cells)
            self.inside -= 1
        loop = trial[-1]
        assert isinstance(loop, ir.For)
        found = survey(loop.body)
        long = sum(1 for _ in ir.walk(loop.body)) > LOCKSTEP_STATEMENTS
        return None if not found.simple or long or variable.name in found.uniform else (variable.name, found)

    def copies(self, op: terms.Operation, trial: Trial | None) -> int:
        """How many stretches are reduced in lockstep."""
        return 1 if trial is None else max(2, LOCKSTEP_CELLS // len(op.types))

    def lanes(self, op: terms.Operation, trial: Trial | None) -> int:
        """How many lanes have elements of their own, where the operator commutes and neighbours are side by side."""
        if trial is None or not self.target.transformations.vectorise:
            return 0
        index, found = trial
        across = [load for load in found.loads if load.mentions(index)]
        rows = all(contiguous(load, index, len(load.indices) - 1) for load in across)
        body, operator = op.blocks
        place = terms.Variable(sum(len(binding.types) for binding in body.bindings), i64)
        if found.inner or not rows or not commutes(operator, frozenset(_places(body.results, place))):
            return 0
        registers = max(1, min(PIECE_REGISTERS, LOCKSTEP_CELLS // len(op.types)))
        return registers * min(self.target.lanes(element(type)) for type in op.types)

    def small(self, size: ir.Expression) -> bool:
        """Whether one thread combines elements of so many scalars, whatever the sizes."""
        small = GROUP_SMALL_ELEMENT if self.target.group else SMALL_ELEMENT
        return isinstance(size, ir.Constant) and size.value <= small

    def worthwhile(self, size: ir.Expression) -> ir.Expression:
        """How many elements of so many scalars are worth a thread's attention."""
        worth = ir.Constant(GROUP_PIECE_SCALARS if self.target.group else PIECE_SCALARS)
        share = worth // ir.maximum(size, 1)
        return share + 1

    def most(self, size: ir.Expression, wanted: int) -> ir.Expression:
        """How many totals of so many scalars are kept at most; none if one thread does not combine such elements."""
        size = ir.maximum(size, 1)
        most = ir.minimum(PIECE_TOTALS_ROOM // size, wanted)
        if not self.target.group:
            return most
        small = ir.minimum(GROUP_SMALL_ELEMENT // size, 1)
        return most * small


def _places(results: Sequence[terms.Atom], place: terms.Atom) -> Iterator[int]:
    """The components of an element that are its own place."""
    return (number for number, result in enumerate(results) if result == place)
