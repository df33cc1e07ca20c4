"""Scans: running reductions, in two passes over blocks of elements where they stand outside of all loops.

The first pass reduces each block, then the totals are scanned, and the second pass scans each block from the total
before it. A few blocks at a time are taken through both passes, so that the second finds its elements in a cache.
Sizes alone decide where blocks begin: the result does not depend on the number of threads. In a scan of scalars,
where each step waits for the one before, several stretches of a block go in lockstep (``jam``).

Arrays are combined in the result itself: step i reads what stands at i - 1 and writes at i.

On a target with groups, blocks of scalars are chunks for a group each (``groups.py``). Blocks of small arrays are
taken through both passes at once, by a thread each; arrays that are not small go one after the other, with the
operator's own loops for all threads.

    totals[k] = reduce(block k)          for all k, in parallel
    starts[k] = totals[0] op ... op totals[k - 1]
    result[i] = starts[k] op x[start] op ... op x[i]      for all k, in parallel
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core import terms
from ...core.types import rank
from .. import ir
from ..target import GROUP_SCAN_THREADS, SCAN_BLOCK, SCAN_BLOCKS_AT_ONCE, SCAN_LOCKSTEP_WORTH
from .context import ONE, ZERO, ArrayRef, Destinations, Environment, Operand
from .pieces import Combination
from .reductions import Reductions


class Scans(Reductions):
    """The lowering of scan."""

    def scan(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        results = self.placed(op, env, destinations)
        neutrals = [self.atom(env, a) for a in op.args[1:]]
        row = self.row(op.blocks[1].types)
        if row:
            self.scan_by_groups(op, env, neutrals, row, results)
            return list(results)
        scalars = not any(rank(type) for type in op.blocks[1].types)
        size = self.scalars(op.blocks[1].types)
        extent = self.scalar(env, op.args[0])
        with self.captured() as serial:
            unknown = not isinstance(size, ir.Constant) and not self.target.group
            small = self.inside > 0 or unknown or self.small(size)
            self.inside += small
            if scalars:
                self.scan_scalars(op, env, ZERO, extent, neutrals, results)
            else:
                self.scan_arrays(op, env, ZERO, extent, results)
            self.inside -= small
        if self.inside or not self.target.parallel:
            self.emit(*serial)
            return list(results)
        copies = self.copies(op, self.trial(op, env, neutrals))
        block: ir.Expression = ir.Constant(SCAN_BLOCK) if scalars else self.worthwhile(size)
        blocks = self.let("most", self.most(size, GROUP_SCAN_THREADS if self.target.group else SCAN_BLOCKS_AT_ONCE))
        if self.target.group:
            block = ir.maximum(self.worthwhile(size), self.parts(extent, GROUP_SCAN_THREADS))
        if copies > 1:
            worth = extent // SCAN_LOCKSTEP_WORTH
        else:
            worth = ir.minimum(extent // block, blocks)
        if isinstance(worth, ir.Constant) and worth.value < 2:
            self.emit(*serial)
            return list(results)
        with self.captured() as parallel:
            self.scan_in_blocks(op, env, self.let("block", block), blocks, copies, neutrals, results)
        self.emit(*ir.branch(worth < 2, serial, parallel))
        return list(results)

    # In order

    def scan_scalars(
        self,
        op: terms.Operation,
        env: Environment,
        start: ir.Expression,
        length: ir.Expression,
        values: Sequence[Operand],
        results: Sequence[ArrayRef],
    ) -> None:
        """Scan a range of elements that are scalars, from what was combined before it."""
        cells = self.cells(op.blocks[1].types, values)
        variable, index = self.indices(op, env, start)
        with self.over(variable, length):
            self.at(start, variable, index)
            self.step(op, env, cells, self.element(op, env, index))
            self.save(cells, [result.at(index) for result in results])

    def scan_arrays(
        self,
        op: terms.Operation,
        env: Environment,
        start: ir.Expression,
        length: ir.Expression,
        results: Sequence[ArrayRef],
    ) -> None:
        """Scan a range of elements; the results before it are there already."""
        variable, index = self.indices(op, env, start)
        with self.over(variable, length):
            self.at(start, variable, index)
            element = self.element(op, env, index)
            with self.captured() as first:
                for value, result in zip(element, results, strict=True):
                    self.copy(value, result.at(index))
            with self.captured() as later:
                previous = self.let("previous", index - 1)
                before = [self.read(result.at(previous)) for result in results]
                places = [result.at(index) for result in results]
                own = [place if rank(type) else None for place, type in zip(places, op.blocks[1].types, strict=True)]
                combined = self.block(op.blocks[1], env, [*before, *element], own)
                for value, place in zip(combined, places, strict=True):
                    if not isinstance(value, ArrayRef):
                        self.copy(value, place)
            self.emit(ir.If(ir.equal(index, 0), tuple(first), tuple(later)))

    # In two passes

    def scan_in_blocks(
        self,
        op: terms.Operation,
        env: Environment,
        block: ir.Expression,
        blocks: ir.Expression,
        copies: int,
        neutrals: Sequence[Operand],
        results: Sequence[ArrayRef],
    ) -> None:
        """Scan groups of so many blocks of so many elements."""
        types, extent = op.blocks[1].types, self.scalar(env, op.args[0])
        rows = 1 if copies == 1 else copies + 1
        totals = self.totals(types, blocks * rows)
        carry = self.cells(types, neutrals)
        whole = self.let("whole", block * blocks)
        group, row = self.variable("group"), self.variable("row")
        scalars = not any(rank(type) for type in types)
        with self.over(group, self.parts(extent, whole)):
            self.inside += 1
            base = self.let("base", group * whole)
            left = ir.minimum(extent - base, whole)
            count = self.let("blocks", self.parts(left, block))

            def bounds(number: ir.Expression) -> tuple[ir.Expression, ir.Expression]:
                start = self.let("start", base + number * block)
                return start, self.let("length", ir.minimum(extent - start, block))

            def reduce(number: ir.Variable) -> None:
                first = self.let("first", number * rows)
                self.stretches(Combination(op, env, neutrals, totals), *bounds(number), first, copies)

            def scan(number: ir.Variable) -> None:
                start, length = bounds(number)
                if not scalars:
                    self.scan_arrays(op, env, start, length - 1, results)
                    return
                first = self.let("first", number * rows)

                def run(start: ir.Expression, length: ir.Expression, row: ir.Expression) -> None:
                    self.scan_scalars(op, env, start, length, [self.read(t.at(row)) for t in totals], results)

                self.in_lockstep(start, length, first, copies, run)

            self._each_block(count, reduce)
            with self.over(row, count * rows):
                total = [self.read(each.at(row)) for each in totals]
                if scalars:
                    before = [self.read(cell) for cell in carry]
                    for value, each in zip(before, totals, strict=True):
                        self.copy(value, each.at(row))
                self.step(op, env, carry, total)
                if not scalars:
                    start, length = bounds(row)
                    last = self.let("last", start + length - 1)
                    self.save(carry, [result.at(last) for result in results])
            self._each_block(count, scan)
            self.inside -= 1

    def _each_block(self, count: ir.Expression, run: Callable[[ir.Variable], None]) -> None:
        with self.over("block", count, "parallel", grain=ONE) as number:
            run(number)
