"""Reductions: cells that a loop combines elements into, or, outside of all loops, pieces side by side.

A reduction outside of all loops is cut into pieces, whose totals are combined in order; sizes alone decide how many
there are, so the result does not depend on the number of threads. What a single addition or maximum combines is
reduced along lanes, and so is what any other operator combines that is found to commute (``commuting.py``): each lane
has one of neighbouring elements, and a total of its own. What others combine is reduced in order; as each step then
waits for the one before, several stretches of a piece are reduced in lockstep (``jam``).

On a target with groups the pieces are chunks, each of which a group combines: what a single primitive combines along
its lanes, each of which takes every ``group``-th element, and what another operator combines as in ``groups.py``. One
more group combines the chunks' totals. An element that has loops of its own is computed first, in a nest, which knows
better how its loops go to threads. Operators on small arrays combine pieces as elsewhere, but many more: a thread has
each, and their totals are combined in pairs, then pairs of pairs, and so on. Arrays that are not small (``LARGE``) go
one after the other, with the operator's own loops for all threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...core import terms
from ...core.primitive import Primitive
from ...core.types import element, i64, rank
from ..loops import (
    Allocate,
    Apply,
    Assign,
    Buffer,
    Constant,
    Declare,
    Expression,
    For,
    If,
    Let,
    Load,
    Reduction,
    Store,
    Variable,
    While,
    walk,
)
from . import nests
from .combining import Cell, named_operator
from .commuting import commutes
from .context import ONE, ZERO, ArrayRef, Destinations, Environment, Operand
from .groups import Groups
from .survey import Survey, survey

# At most so many pieces of a reduction are reduced side by side.
PIECES = 128
# A piece combines about this many scalars at least.
WORTH = 32_768
# The totals of pieces take at most so many scalars.
TOTALS = 1 << 18
# Stretches of a piece that are reduced in lockstep hold so many cells together.
LOCKSTEP = 8
# An element of at most so many scalars is combined by one thread.
SMALL = 4096
# The most statements in a step that is worth several copies.
SIMPLE = 60

# Where threads come in groups: elements of more scalars than this are not combined by one thread,
LARGE = 256
# a piece combines about this many scalars at least,
THREAD_WORTH = 64
# and so does a lane of elements.
LANE_WORTH = 4

# What is done with a part of the elements: its start and length, and the number of its total.
Stretch = Callable[[Expression, Expression, Expression], None]
# The name of an index, and what a loop over it consists of.
Trial = tuple[str, Survey]
# Combine the element at an index into a variable.
Contribution = Callable[[Expression, Variable], None]


class Reductions(Groups):
    """The lowering of reduce."""

    def reduce(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        named = named_operator(op.blocks[1])
        neutrals = [self.atom(env, a) for a in op.args[1:]]
        if self.inside == 0 and named is not None and isinstance(neutrals[0], Constant):
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
                name = self.fresh("sum" if named and named.name == "add" else "total")
                self.out.append(Declare(name, neutral))
                cells.append(Variable(name, neutral.type))
        if self.inside == 0 and self.target.parallel:
            self.reduce_in_pieces(op, env, neutrals, cells)
        else:
            self.reducing_loop(op, env, cells, named)
        return [self.read(cell) for cell in cells]

    def reducing_loop(
        self, op: terms.Operation, env: Environment, cells: Sequence[Cell], named: Primitive | None
    ) -> None:
        """The loop that combines the elements into cells."""
        variable = self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))
        with self.captured() as statements:
            self.inside += 1
            self.combine(op, env, variable, cells, named)
            self.inside -= 1
        extent = self.scalar(env, op.args[0])
        self.out.append(For(variable.name, extent, "sequential", tuple(statements)))
        neutral = op.args[1]
        if named is not None and isinstance(neutral, terms.Literal) and isinstance(cells[0], Variable):
            constant = Constant(neutral.value, neutral.type)
            self.reductions[variable.name] = Reduction(cells[0].name, named, constant)

    def combine(
        self,
        op: terms.Operation,
        env: Environment,
        variable: Expression,
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

    # Any operator, outside of all loops

    def reduce_in_pieces(
        self, op: terms.Operation, env: Environment, neutrals: Sequence[Operand], cells: Sequence[Cell]
    ) -> None:
        """The totals of pieces, combined in order; large elements that are few go one after the other."""
        extent = self.scalar(env, op.args[0])
        size = self.scalars(op.types)
        most = self.let("most", self.most(size, self.target.threads if self.target.group else PIECES))
        smallest = self.let("smallest", self.worthwhile(size))
        count = self.calculate("minimum", most, self.calculate("floor_divide", extent, smallest))
        small = self.small(size)
        count = self.let("pieces", self.calculate("maximum", count, ONE) if small else count)
        with self.captured() as serial:
            if not small:  # an operator that may have loops for several threads
                self.elements(op, env, Constant(0, i64), extent, cells)
        with self.captured() as parallel:
            trial = self.trial(op, env, neutrals)
            lanes = self.lanes(op, trial)
            copies = lanes or self.copies(op, trial)
            rows = 1 if copies == 1 else copies + 1
            totals = self.totals(op.types, self.calculate("multiply", most, Constant(rows, i64)))
            piece = Variable(self.fresh("piece"), i64)

            def bound(k: Expression) -> Expression:
                return self.apply("floor_divide", self.apply("multiply", extent, k), count)

            with self.captured() as body:
                self.inside += 1
                start = self.let("start", bound(piece))
                length = self.let("length", self.apply("subtract", bound(self.apply("add", piece, ONE)), start))
                first = self.let("first", self.apply("multiply", piece, Constant(rows, i64)))
                reduce = self.interleaved if lanes else self.stretches
                reduce(op, env, neutrals, start, length, totals, first, copies)
                self.inside -= 1
            self.out.append(For(piece.name, count, "parallel", tuple(body), grain=ONE))
            if self.target.group:
                self.merge_in_pairs(op, env, count, totals)
                for cell, total in zip(cells, totals, strict=True):
                    self.write(cell, self.read(total.at(ZERO)))
            else:
                row = Variable(self.fresh("row"), i64)
                with self.captured() as merge:
                    self.inside += 1
                    self.step(op, env, cells, [self.read(total.at(row)) for total in totals])
                    self.inside -= 1
                number = self.apply("multiply", count, Constant(rows, i64))
                self.out.append(For(row.name, number, "sequential", tuple(merge)))
        if small:
            self.out.extend(parallel)
        else:
            self.out.append(If(self.apply("less", count, Constant(2, i64)), tuple(serial), tuple(parallel)))

    def merge_in_pairs(
        self, op: terms.Operation, env: Environment, count: Expression, totals: Sequence[ArrayRef]
    ) -> None:
        """Combine so many totals into the first of them: neighbours, then those two apart, and so on."""
        width, pair = Variable(self.fresh("width"), i64), Variable(self.fresh("pair"), i64)
        self.out.append(Declare(width.name, ONE))
        with self.captured() as level:
            present = self.frozen(width)
            both = self.let("both", self.apply("add", present, present))
            with self.captured() as body:
                self.inside += 1
                left = self.let("left", self.apply("multiply", pair, both))
                right = self.let("right", self.apply("add", left, present))
                element = [self.read(total.at(right)) for total in totals]
                self.step(op, env, [total.at(left) for total in totals], element)
                self.inside -= 1
            # a total without a neighbour stays as it is
            pairs = self.apply("floor_divide", self.apply("add", count, self.apply("subtract", present, ONE)), both)
            self.out.append(For(pair.name, pairs, "parallel", tuple(body)))
            self.out.append(Assign(width.name, both))
        self.out.append(While((), self.apply("less", width, count), tuple(level)))

    def small(self, size: Expression) -> bool:
        """Whether one thread combines elements of so many scalars, whatever the sizes."""
        return isinstance(size, Constant) and size.value <= (LARGE if self.target.group else SMALL)

    def worthwhile(self, size: Expression) -> Expression:
        """How many elements of so many scalars are worth a thread's attention."""
        worth = Constant(THREAD_WORTH if self.target.group else WORTH, i64)
        share = self.calculate("floor_divide", worth, self.at_least_one(size))
        return self.calculate("add", share, ONE)

    def most(self, size: Expression, wanted: int) -> Expression:
        """How many totals of so many scalars are kept at most; none if one thread does not combine such elements."""
        size = self.at_least_one(size)
        most = self.calculate(
            "minimum", self.calculate("floor_divide", Constant(TOTALS, i64), size), Constant(wanted, i64)
        )
        if not self.target.group:
            return most
        small = self.calculate("minimum", self.calculate("floor_divide", Constant(LARGE, i64), size), ONE)
        return self.calculate("multiply", most, small)

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
        assert isinstance(loop, For)
        found = survey(loop.body)
        long = sum(1 for _ in walk(loop.body)) > SIMPLE
        return None if not found.simple or long or variable.name in found.uniform else (variable.name, found)

    def copies(self, op: terms.Operation, trial: Trial | None) -> int:
        """How many stretches are reduced in lockstep."""
        return 1 if trial is None else max(2, LOCKSTEP // len(op.types))

    def lanes(self, op: terms.Operation, trial: Trial | None) -> int:
        """How many lanes have elements of their own, where the operator commutes and neighbours are side by side."""
        if trial is None or not self.target.transformations.vectorise:
            return 0
        index, found = trial
        across = [load for load in found.loads if load.mentions(index)]
        rows = all(nests.contiguous(load, index, len(load.indices) - 1) for load in across)
        body, operator = op.blocks
        place = terms.Variable(sum(len(binding.types) for binding in body.bindings), i64)
        if found.inner or not rows or not commutes(operator, frozenset(_places(body.results, place))):
            return 0
        registers = max(1, min(4, LOCKSTEP // len(op.types)))
        return registers * min(self.target.lanes(element(type)) for type in op.types)

    def stretches(
        self,
        op: terms.Operation,
        env: Environment,
        neutrals: Sequence[Operand],
        start: Expression,
        length: Expression,
        totals: Sequence[ArrayRef],
        first: Expression,
        copies: int,
    ) -> None:
        """The totals of so many equal stretches of a range in lockstep, and of what is left of it."""

        def run(start: Expression, length: Expression, row: Expression) -> None:
            cells = self.cells(op.blocks[1].types, neutrals)
            self.elements(op, env, start, length, cells)
            self.keep(cells, totals, row)

        self.in_lockstep(start, length, first, copies, run)

    def interleaved(
        self,
        op: terms.Operation,
        env: Environment,
        neutrals: Sequence[Operand],
        start: Expression,
        length: Expression,
        totals: Sequence[ArrayRef],
        first: Expression,
        lanes: int,
    ) -> None:
        """The totals of each so-manieth element of a range, which a lane combines, and of what is left of it."""
        width = Constant(lanes, i64)
        steps = self.let("steps", self.apply("floor_divide", length, width))
        lane, step = Variable(self.fresh("lane"), i64), Variable(self.fresh("step"), i64)
        index = self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))
        with self.captured() as body:
            cells = self.cells(op.blocks[1].types, neutrals)
            with self.captured() as combined:
                strip = self.apply("add", start, self.apply("multiply", step, width))
                self.out.append(Let(index.name, self.apply("add", strip, lane)))
                self.step(op, env, cells, self.element(op, env, index))
            self.out.append(For(step.name, steps, "sequential", tuple(combined)))
            self.keep(cells, totals, self.let("row", self.apply("add", first, lane)))
        self.out.append(For(lane.name, width, "lanes", tuple(body), lanes))
        done = self.let("done", self.apply("multiply", steps, width))
        cells = self.cells(op.blocks[1].types, neutrals)
        rest = self.let("rest", self.apply("subtract", length, done))
        self.elements(op, env, self.let("begin", self.apply("add", start, done)), rest, cells)
        self.keep(cells, totals, self.let("row", self.apply("add", first, width)))

    def keep(self, cells: Sequence[Cell], totals: Sequence[ArrayRef], row: Expression) -> None:
        """Write what cells hold to a row of totals."""
        for cell, total in zip(cells, totals, strict=True):
            self.copy(self.read(cell), total.at(row))

    def in_lockstep(self, start: Expression, length: Expression, first: Expression, copies: int, run: Stretch) -> None:
        """Run equal stretches of a range side by side, and then what is left; ``run(start, length, row)``."""
        if copies > 1:
            segment = self.let("segment", self.apply("floor_divide", length, Constant(copies, i64)))
            copy = Variable(self.fresh("copy"), i64)
            with self.captured() as body:
                begin = self.let("begin", self.apply("add", start, self.apply("multiply", copy, segment)))
                run(begin, segment, self.let("row", self.apply("add", first, copy)))
            self.out.append(For(copy.name, Constant(copies, i64), "jam", tuple(body), copies))
            done = self.let("done", self.apply("multiply", segment, Constant(copies, i64)))
            start = self.let("begin", self.apply("add", start, done))
            length = self.let("rest", self.apply("subtract", length, done))
            first = self.let("row", self.apply("add", first, Constant(copies, i64)))
        run(start, length, first)

    # Single commutative primitives, outside of all loops

    def whole_reduction(self, op: terms.Operation, env: Environment, named: Primitive, neutral: Constant) -> Expression:
        """A reduction outside of all loops: partial results side by side, combined in order."""
        nested = any(binding.blocks and binding.op != "cond" for binding in op.blocks[0].bindings)
        if self.target.group:
            return self.total_by_groups(op, env, named, neutral, nested)
        nested = nested and self.extent_dim(op, env).is_static()
        partials = self.element_partials if nested else self.chunk_partials
        partial, count = partials(op, env, named, neutral)
        total, index = self.fresh("total"), self.fresh("part")
        self.out.append(Declare(total, neutral))
        value = Load(partial, (Variable(index, i64),))
        merged = Assign(total, Apply(named, (Variable(total, neutral.type), value), neutral.type))
        self.out.append(For(index, count, "sequential", (merged,)))
        return self.let("t", Variable(total, neutral.type))

    def total_by_groups(
        self, op: terms.Operation, env: Environment, named: Primitive, neutral: Constant, nested: bool
    ) -> Expression:
        """The total of elements, each by a lane; those that are reductions themselves are first computed in a nest."""
        if nested:
            partial, extent = self.element_partials(op, env, named, neutral)
            return self.total(extent, named, neutral, self.partials(named, partial))
        dim = self.extent_dim(op, env)

        def combine(index: Expression, part: Variable) -> None:
            variable = self.loop_variable(op.blocks[0].names[0], dim)
            self.out.append(Let(variable.name, index))
            self.combine(op, env, variable, [part], named)

        return self.total(self.scalar(env, op.args[0]), named, neutral, combine)

    def total(
        self,
        extent: Expression,
        named: Primitive,
        neutral: Constant,
        combine: Contribution,
    ) -> Expression:
        """A total along lanes: a partial one by each group, and the total of these by one more."""
        least = LANE_WORTH * self.target.group
        strips = self.at_least_one(self.parts(extent, Constant(least * self.most_groups, i64)))
        size = self.let("size", self.calculate("multiply", strips, Constant(least, i64)))
        count = self.let("chunks", self.parts(extent, size))
        if isinstance(count, Constant) and count.value <= 1:
            return self.frozen(self.along_lanes(ZERO, extent, named, neutral, combine))
        partial = Buffer(self.fresh("partial"), neutral.type, (count,))
        self.out.append(Allocate(partial))
        chunk = Variable(self.fresh("chunk"), i64)
        with self.captured() as body:
            start = self.let("start", self.apply("multiply", chunk, size))
            length = self.apply("minimum", self.apply("subtract", extent, start), size)
            self.out.append(Store(partial, (chunk,), self.along_lanes(start, length, named, neutral, combine)))
        self.out.append(For(chunk.name, count, "parallel", tuple(body)))
        return self.frozen(self.along_lanes(ZERO, count, named, neutral, self.partials(named, partial)))

    def partials(self, named: Primitive, partial: Buffer) -> Contribution:
        """What combines the elements of a buffer."""

        def combine(index: Expression, part: Variable) -> None:
            self.out.append(Assign(part.name, Apply(named, (part, Load(partial, (index,))), part.type)))

        return combine

    def along_lanes(
        self,
        start: Expression,
        length: Expression,
        named: Primitive,
        neutral: Constant,
        combine: Contribution,
    ) -> Variable:
        """The variable into which the lanes of a group combine a stretch."""
        part, lane = Variable(self.fresh("part"), neutral.type), Variable(self.fresh("lane"), i64)
        with self.captured() as body:
            self.inside += 1
            combine(self.calculate("add", start, lane) if start != ZERO else lane, part)
            self.inside -= 1
        reduction = (Reduction(part.name, named, neutral),)
        self.out.append(Declare(part.name, neutral))
        self.out.append(For(lane.name, length, "lanes", tuple(body), self.target.group, reductions=reduction))
        return part

    def element_partials(
        self, op: terms.Operation, env: Environment, named: Primitive, neutral: Constant
    ) -> tuple[Buffer, Expression]:
        """One partial result an element, where elements are reductions themselves: a nest."""
        extent = self.scalar(env, op.args[0])
        partial = Buffer(self.fresh("partial"), neutral.type, (extent,))
        self.out.append(Allocate(partial))
        variable = self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))
        part = Variable(self.fresh("part"), neutral.type)
        with self.captured() as body:
            self.inside += 1
            self.out.append(Declare(part.name, neutral))
            self.combine(op, env, variable, [part], named)
            self.out.append(Store(partial, (variable,), part))
            self.inside -= 1
        self.nest([nests.Loop(variable, extent)], tuple(body), set())
        return partial, extent

    def chunk_partials(
        self, op: terms.Operation, env: Environment, named: Primitive, neutral: Constant
    ) -> tuple[Buffer, Expression]:
        """One partial result a chunk of elements, which are lanes where that is possible."""
        chunk, lane = Variable(self.fresh("chunk"), i64), self.fresh("lane")
        part = Variable(self.fresh("part"), neutral.type)
        extent = self.scalar(env, op.args[0])
        size = self.let("size", self._chunk(extent))
        start = self.apply("multiply", chunk, size)
        length = self.apply("minimum", self.apply("subtract", extent, start), size)
        rounded = self.apply("subtract", self.apply("add", extent, size), ONE)
        count = self.let("chunks", self.apply("floor_divide", rounded, size))
        partial = Buffer(self.fresh("partial"), neutral.type, (Constant(PIECES, i64),))
        self.out.append(Allocate(partial))
        variable = self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))
        with self.captured() as elements:
            self.inside += 1
            self.out.append(Let(variable.name, self.apply("add", start, Variable(lane, i64))))
            self.combine(op, env, variable, [part], named)
            self.inside -= 1
        found = survey(tuple(elements))
        if found.simple and not found.inner and self.target.transformations.vectorise:
            reduction = (Reduction(part.name, named, neutral),)
            strip = 4 * self.target.lanes(neutral.type)
            loop = For(lane, length, "lanes", tuple(elements), strip, reductions=reduction)
        else:
            loop = For(lane, length, "sequential", tuple(elements))
        body = (Declare(part.name, neutral), loop, Store(partial, (chunk,), part))
        if self.target.parallel:
            work = self.apply("multiply", size, Constant(max(1, int(found.work)), i64))
            grain = self.apply("floor_divide", Constant(nests.GRAIN, i64), work)
            self.out.append(For(chunk.name, count, "parallel", body, grain=grain))
        else:
            self.out.append(For(chunk.name, count, "sequential", body))
        return partial, count

    def _chunk(self, extent: Expression) -> Expression:
        """The elements of a chunk: a multiple of 64, such that there are few enough chunks."""
        strips = self.apply("floor_divide", extent, Constant(64 * PIECES, i64))
        share = self.apply("multiply", self.apply("add", strips, ONE), Constant(64, i64))
        return self.apply("maximum", share, Constant(nests.LONG_CHUNK, i64))


def _merged(body: terms.Block, outer: terms.Operation) -> terms.Operation | None:
    """The inner reduction that is all of an element, when both combine in the same way."""
    if not body.bindings or body.bindings[-1].op != "reduce" or len(body.results) != 1:
        return None
    inner = body.bindings[-1]
    same = inner.blocks[1] == outer.blocks[1] and inner.args[1:] == outer.args[1:] and len(inner.types) == 1
    plain = all(binding.op in ("primitive", "index", "size") for binding in body.bindings[:-1])
    is_result = body.results[0] == terms.Variable(0, inner.types[0])
    return inner if same and plain and is_result and isinstance(inner.args[1], terms.Literal) else None


def _places(results: Sequence[terms.Atom], place: terms.Atom) -> Iterator[int]:
    """The components of an element that are its own place."""
    return (number for number, result in enumerate(results) if result == place)
