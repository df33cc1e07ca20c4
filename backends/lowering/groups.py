"""What a group of threads combines in order: tiles of elements in the memory that the group shares.

The operator need not commute, so each lane combines a *row* of neighbours, and the lanes' parts are combined in order.
But neighbours in memory are read by neighbouring lanes; so the elements of a tile go through shared memory:

    lanes lane < G by G
      var carry = neutral
      for tile < tiles
        for k < K: stage[k * G + lane] = element(tile * G * K + k * G + lane)
        barrier
        parts[lane] = stage[lane * K] op ... op stage[lane * K + K - 1]
        barrier
        parts[0] = parts[0] op ... op parts[G - 1]           (a tree, in log2 G steps with barriers)
        carry = carry op parts[0]

K is odd, so that lanes at their rows use different banks of the memory. A scan leaves in the stage what each row has
combined so far, has the parts scanned (Hillis and Steele 1986), puts what comes before a row in front of it, and
writes the stage out as it was filled. Beyond the last element there is the neutral element, of which any number may
stand in a row.

A long stretch of elements is cut into chunks, one a group, so that there are a few times as many threads as
the target runs at a time. Sizes and the target alone decide how many chunks there are, so each run gives the same
result. An operator on arrays, or one of so many components that no tile fits into shared memory, is not for groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...core import terms
from ...core.types import Type, element, rank
from .. import ir
from ..target import GROUP_ROW_LENGTHS
from .combining import Cell, Combining
from .context import ONE, ZERO, ArrayRef, Environment, Operand

# The components of the element at an index.
Source = Callable[[ir.Expression], Sequence[Operand]]


@dataclass(frozen=True)
class _Combination:
    """What combines elements: an operation's operator, its neutral element, and how many are the row of a lane."""

    op: terms.Operation
    env: Environment
    neutrals: Sequence[Operand]
    row: int

    @property
    def types(self) -> Sequence[Type]:
        return self.op.blocks[1].types


@dataclass(frozen=True)
class _Chunks:
    """Elements in chunks of a size, the last of which may be smaller."""

    source: Source
    extent: ir.Expression
    count: ir.Expression
    size: ir.Expression


@dataclass(frozen=True)
class _Tile:
    """A tile as a lane sees it: the group's memory, an array for each component, and where the lane's row begins."""

    of: _Combination
    stage: Sequence[ArrayRef]
    parts: Sequence[ArrayRef]
    lane: ir.Variable
    first: ir.Expression


class Groups(Combining):
    """Reductions and scans by groups."""

    def row(self, types: Sequence[Type]) -> int:
        """How many elements are the row of a lane; 0 if groups do not combine such elements here."""
        if not self.target.group or self.inside or any(rank(type) for type in types):
            return 0
        slot = self.target.group * sum(element(type).dtype.itemsize for type in types)
        return max([row for row in GROUP_ROW_LENGTHS if (row + 1) * slot <= self.target.shared_bytes], default=0)

    def reduce_by_groups(
        self, op: terms.Operation, env: Environment, neutrals: Sequence[Operand], row: int
    ) -> list[Operand]:
        """The total of all elements: the totals of chunks, and the total of these."""
        what = _Combination(op, env, neutrals, row)
        chunks = self._chunks(what)
        totals = self.totals(what.types, chunks.count)
        self._chunk_totals(what, chunks, totals)
        if chunks.count != ONE:
            parts, totals = totals, self.totals(what.types, ONE)
            self._chunk_totals(what, self._one_chunk(parts, chunks.count), totals)
        return [self.read(total.at(ZERO)) for total in totals]

    def scan_by_groups(
        self,
        op: terms.Operation,
        env: Environment,
        neutrals: Sequence[Operand],
        row: int,
        results: Sequence[ArrayRef],
    ) -> None:
        """The totals of chunks, the scan of these, and the scan of each chunk from what comes before it."""
        what = _Combination(op, env, neutrals, row)
        chunks = self._chunks(what)
        if chunks.count == ONE:
            self._chunk_scans(what, chunks, [], results)
            return
        totals = self.totals(what.types, chunks.count)
        with self.captured() as before:
            self._chunk_totals(what, chunks, totals)
            self._chunk_scans(what, self._one_chunk(totals, chunks.count), [], totals)
        self.emit(*ir.branch(chunks.count > 1, before, ()))
        self._chunk_scans(what, chunks, totals, results)

    # Chunks

    def _chunks(self, what: _Combination) -> _Chunks:
        """The elements of an operation, in at least one chunk; each is of whole tiles."""

        def source(index: ir.Expression) -> Sequence[Operand]:
            variable = self.index_variable(what.op, what.env)
            self.emit(ir.Let(variable.name, index))
            return self.element(what.op, what.env, variable)

        extent, tile = self.scalar(what.env, what.op.args[0]), what.row * self.target.group
        tiles = ir.maximum(self.parts(extent, tile * self.most_groups), 1)
        size = self.let("size", tiles * tile)
        return _Chunks(source, extent, self.let("chunks", ir.maximum(self.parts(extent, size), 1)), size)

    def _one_chunk(self, arrays: Sequence[ArrayRef], count: ir.Expression) -> _Chunks:
        """So many elements that stand in arrays."""
        return _Chunks(lambda index: [self.read(array.at(index)) for array in arrays], count, ONE, count)

    def _chunk_totals(self, what: _Combination, chunks: _Chunks, totals: Sequence[ArrayRef]) -> None:
        """The total of each chunk."""

        def run(chunk: ir.Variable, tile: _Tile) -> None:
            carry = self.cells(what.types, what.neutrals)

            def turn(start: ir.Expression, end: ir.Expression) -> None:
                self._load(tile, chunks.source, start, end)
                self._combine_row(tile)
                self._combine_parts(tile)
                self._append(what, carry, [part.at(ZERO) for part in tile.parts])

            self._each_tile(what, chunks, chunk, turn)
            self.save(carry, [array.at(tile.first) for array in tile.stage])

        self._each_chunk(what, chunks.count, run, totals)

    def _chunk_scans(
        self, what: _Combination, chunks: _Chunks, totals: Sequence[ArrayRef], results: Sequence[ArrayRef]
    ) -> None:
        """The scan of each chunk; what comes before it is in the scanned totals, where there are several chunks."""

        def run(chunk: ir.Variable, tile: _Tile) -> None:
            carry = self.cells(what.types, what.neutrals)
            if totals:
                with self.when(chunk > 0):
                    previous = self.let("previous", chunk - 1)
                    self.restore(carry, [total.at(previous) for total in totals])

            def turn(start: ir.Expression, end: ir.Expression) -> None:
                self._load(tile, chunks.source, start, end)
                self._scan_row(tile)
                self._scan_parts(tile)
                self._put_before(tile, carry)
                self._unload(tile, results, start, end)
                last = ir.Constant(self.target.group - 1)
                self._append(what, carry, [part.at(last) for part in tile.parts])

            self._each_tile(what, chunks, chunk, turn)

        self._each_chunk(what, chunks.count, run)

    def _each_chunk(
        self,
        what: _Combination,
        count: ir.Expression,
        run: Callable[[ir.Variable, _Tile], None],
        totals: Sequence[ArrayRef] = (),
    ) -> None:
        """A group for each chunk. ``run`` is what a lane does; what it leaves first in the stage goes to the totals."""
        chunk, lane, group = self.variable("chunk"), self.variable("lane"), self.target.group
        with self.over(chunk, count, "parallel"):
            stage = [self._shared("stage", type, what.row * group) for type in what.types]
            parts = [self._shared("parts", type, group) for type in what.types]
            with self.over(lane, group, "lanes", group):
                run(chunk, _Tile(what, stage, parts, lane, self.let("first", lane * what.row)))
            for total, array in zip(totals, stage, strict=False):
                self.copy(self.read(array.at(ZERO)), total.at(chunk))

    def _shared(self, stem: str, type: Type, length: int) -> ArrayRef:
        return self.array(self.temporary(stem, element(type), (ir.Constant(length),), shared=True))

    # Tiles

    def _each_tile(
        self,
        what: _Combination,
        chunks: _Chunks,
        chunk: ir.Variable,
        turn: Callable[[ir.Expression, ir.Expression], None],
    ) -> None:
        """Go through the tiles of a chunk; ``turn`` has the start of one, and the end of the elements."""
        tile = ir.Constant(what.row * self.target.group)
        begin = self.let("begin", chunk * chunks.size)
        end = self.let("end", ir.minimum(begin + chunks.size, chunks.extent))
        with self.over("tile", self.parts(end - begin, tile)) as number:
            turn(self.let("start", begin + number * tile), end)

    def _load(self, tile: _Tile, source: Source, start: ir.Expression, end: ir.Expression) -> None:
        """Fill the stage with the elements from a start; beyond the end they are neutral."""
        what = tile.of
        with self.over("turn", what.row) as turn:
            place, index = self._place(tile, turn, start)
            cells = self.cells(what.types, what.neutrals)
            with self.when(index < end):
                for cell, value in zip(cells, source(index), strict=True):
                    self.write(cell, value)
            self.save(cells, [array.at(place) for array in tile.stage])
        self.emit(ir.Barrier())

    def _unload(self, tile: _Tile, results: Sequence[ArrayRef], start: ir.Expression, end: ir.Expression) -> None:
        """Write the stage to the results from a start, up to the end."""
        with self.over("turn", tile.of.row) as turn:
            place, index = self._place(tile, turn, start)
            with self.when(index < end):
                for array, result in zip(tile.stage, results, strict=True):
                    self.copy(self.read(array.at(place)), result.at(index))

    def _place(self, tile: _Tile, turn: ir.Variable, start: ir.Expression) -> tuple[ir.Expression, ir.Expression]:
        """Where a lane reads and writes the stage in a turn, and the index of that element."""
        begin = turn * self.target.group
        place = self.let("place", begin + tile.lane)
        return place, self.let("index", start + place)

    def _combine_row(self, tile: _Tile) -> None:
        """Each lane's part: what its row combines to."""
        total = self.cells(tile.of.types, [self.read(array.at(tile.first)) for array in tile.stage])
        self._rest_of_row(tile, lambda place: self._append(tile.of, total, [a.at(place) for a in tile.stage]))
        self.save(total, [part.at(tile.lane) for part in tile.parts])
        self.emit(ir.Barrier())

    def _scan_row(self, tile: _Tile) -> None:
        """Each lane's part, as in ``_combine_row``; in the stage is what each row combined on the way."""
        total = self.cells(tile.of.types, [self.read(array.at(tile.first)) for array in tile.stage])

        def step(place: ir.Expression) -> None:
            slots = [array.at(place) for array in tile.stage]
            self._append(tile.of, total, slots)
            self.save(total, slots)

        self._rest_of_row(tile, step)
        self.save(total, [part.at(tile.lane) for part in tile.parts])
        self.emit(ir.Barrier())

    def _rest_of_row(self, tile: _Tile, step: Callable[[ir.Expression], None]) -> None:
        """The places of a row behind its first."""
        with self.over("k", tile.of.row - 1) as number:
            step(self.let("place", tile.first + 1 + number))

    def _combine_parts(self, tile: _Tile) -> None:
        """The lanes' parts, combined into the first of them: neighbours, then those two apart, and so on."""

        def level(width: ir.Expression) -> None:
            pair = tile.lane * (width + width)
            left = self.let("left", pair)
            right = self.let("right", left + width)
            with self.when(right < self.target.group):
                slots = [part.at(left) for part in tile.parts]
                total = self.cells(tile.of.types, [self.read(slot) for slot in slots])
                self._append(tile.of, total, [part.at(right) for part in tile.parts])
                self.save(total, slots)

        self._doubling(level)

    def _scan_parts(self, tile: _Tile) -> None:
        """The lanes' parts, scanned: each with its neighbour before it, then with the one two before, and so on."""

        def level(width: ir.Expression) -> None:
            total = self.cells(tile.of.types, tile.of.neutrals)
            own = [part.at(tile.lane) for part in tile.parts]
            reaches = width <= tile.lane
            with self.when(reaches):
                before = self.let("before", tile.lane - width)
                self.restore(total, [part.at(before) for part in tile.parts])
                self._append(tile.of, total, own)
            self.emit(ir.Barrier())
            with self.when(reaches):
                self.save(total, own)

        self._doubling(level)

    def _doubling(self, level: Callable[[ir.Expression], None]) -> None:
        """A level for each width 1, 2, 4 ... below that of a group, each ending with a barrier."""
        width = self.declare("width", ONE)
        with self.captured() as body:  # whose loop has the number after those inside
            present = self.frozen(width)
            level(present)
            self.emit(ir.Barrier())
            self.assign(width, present + present)
        levels = ir.Constant(self.target.group.bit_length() - 1)
        self.emit(ir.For(self.fresh("level"), levels, "sequential", tuple(body)))

    def _put_before(self, tile: _Tile, carry: Sequence[Cell]) -> None:
        """Put in front of what each row has combined what the tiles and lanes before it have."""
        before = self.cells(tile.of.types, [self.read(cell) for cell in carry])
        with self.when(tile.lane > 0):
            previous = self.let("previous", tile.lane - 1)
            self._append(tile.of, before, [part.at(previous) for part in tile.parts])
        with self.over("k", tile.of.row) as number:
            place = self.let("place", tile.first + number)
            slots = [array.at(place) for array in tile.stage]
            total = self.cells(tile.of.types, [self.read(cell) for cell in before])
            self._append(tile.of, total, slots)
            self.save(total, slots)
        self.emit(ir.Barrier())

    # Cells

    def _append(self, what: _Combination, cells: Sequence[Cell], places: Sequence[ArrayRef]) -> None:
        """Combine what stands at places into cells."""
        self.step(what.op, what.env, cells, [self.read(place) for place in places])
