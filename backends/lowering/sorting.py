"""Argsort: a stable merge sort of keys and their places, from the bottom up.

Chunks are sorted on their own, runs by insertion and then in merges of doubling width; so far, chunks are independent.
Then sorted stretches of doubling width are merged, each chunk of the output by itself: where it begins in the two
stretches is found by bisection (the merge path of Odeh et al. 2012). Everything is done between two copies, of keys
and of places, since a merge is not in place. A merge goes on at both ends at once: neither of its two chains
of loads and comparisons waits for the other.

Where threads come in groups there are no chunks: a thread has a run, and then few elements of each merge's output
(``GROUP_SORT_MERGED``), since bisection costs each thread little and there are many of them.

The order is NumPy's: equal keys keep their order, NaN comes last, and is equal to itself.

It is written in the loop IR, not called from a library: so it is the same on all targets, inside parallel loops
it works in the memory of its thread, and its chunks go to threads like those of every other loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...core import terms
from ...core.types import i64
from .. import ir
from ..target import GROUP_SORT_MERGED, SORT_CHUNK, SORT_GRAIN, SORT_RUN
from .combining import Combining
from .context import ZERO, ArrayRef, Environment


@dataclass(frozen=True)
class _Copies:
    """Two copies of the keys and their places; element i is at i + 1, so that there is one before and one after."""

    keys: ir.Buffer
    places: ir.Buffer


@dataclass(frozen=True)
class _Stretch:
    """Where something begins and ends."""

    begin: ir.Expression
    end: ir.Expression


class Sorting(Combining):
    """The lowering of argsort."""

    def argsort(self, op: terms.Operation, env: Environment, destination: ArrayRef | None) -> ArrayRef:
        array = self.atom(env, op.args[0])
        assert isinstance(array, ArrayRef)
        result = destination or self.allocate("order", op.types[0])
        self.sort(array, result)
        return result

    def sort(self, array: ArrayRef, result: ArrayRef) -> None:
        """Write the permutation that sorts a vector."""
        length = self.let("length", array.extent(0))
        room = (ir.Constant(2), length + 2)
        copies = _Copies(self.temporary("keys", array.buffer.scalar, room), self.temporary("places", i64, room))
        parallel: ir.Kind = "parallel" if self.inside == 0 and self.target.parallel else "sequential"
        alone = ir.Constant(SORT_RUN if self.target.group else SORT_CHUNK)
        chunks = self.let("chunks", ir.ceil_divide(length, alone))
        sort = self._sort_runs if self.target.group else self._sort_chunks
        width, slot = sort(copies, array, length, chunks, parallel)

        def level(width: ir.Expression, slot: ir.Expression) -> None:
            size: ir.Expression = alone
            count = chunks
            if self.target.group:
                size = self.let("merged", ir.minimum(width + width, GROUP_SORT_MERGED))
                count = ir.ceil_divide(length, size)
            with self.over("block", count, parallel, grain=self._grain(parallel, SORT_GRAIN)) as block:
                self._merge_block(copies, self._bounds(block, length, size), width, length, slot)

        width, slot = self._widths(length, width, slot, level)
        i = self.variable("i")
        place = ir.Load(copies.places, (slot, i + 1))
        self._copy_all(i, length, (ir.Store(result.buffer, result.place([i]), place),))

    def _sort_chunks(
        self, copies: _Copies, array: ArrayRef, length: ir.Expression, chunks: ir.Expression, kind: ir.Kind
    ) -> tuple[ir.Expression, ir.Expression]:
        """Sort each chunk on its own: how wide sorted stretches are then, and in which copy."""
        with self.over("chunk", chunks, kind, grain=self._grain(kind, 1)) as chunk:
            self._sort_chunk(copies, array, self._bounds(chunk, length, ir.Constant(SORT_CHUNK)), length)
        width, slot = self._widths(ir.minimum(length, SORT_CHUNK), ir.Constant(SORT_RUN), ZERO)
        return ir.maximum(width, SORT_CHUNK), slot

    def _sort_runs(
        self, copies: _Copies, array: ArrayRef, length: ir.Expression, runs: ir.Expression, kind: ir.Kind
    ) -> tuple[ir.Expression, ir.Expression]:
        """Sort each run on its own, likewise."""
        with self.over("run", runs, kind) as run:
            self.inside += 1
            stretch = self._bounds(run, length, ir.Constant(SORT_RUN))
            self._fill(copies, array, stretch.begin, stretch.end - stretch.begin)
            self._insert(copies, stretch)
            self.inside -= 1
        return ir.Constant(SORT_RUN), ZERO

    def _grain(self, kind: ir.Kind, chunks: int) -> ir.Expression | None:
        return ir.Constant(chunks) if kind == "parallel" and not self.target.group else None

    def _copy_all(self, variable: ir.Variable, count: ir.Expression, stores: tuple[ir.Statement, ...]) -> None:
        """A loop that only copies."""
        if not self.target.group:
            self.emit(ir.For(variable.name, count, "lanes", stores, self.target.lanes(i64)))
        else:
            self.emit(ir.For(variable.name, count, "sequential" if self.inside else "parallel", stores))

    # Widths that double, between two copies

    def _widths(
        self,
        length: ir.Expression,
        first: ir.Expression,
        slot: ir.Expression,
        level: Callable[[ir.Expression, ir.Expression], None] = lambda width, slot: None,
    ) -> tuple[ir.Expression, ir.Expression]:
        """Merge stretches of doubling width until one is the whole: that width, and in which copy it is."""
        width, now = self.declare("width", first), self.declare("slot", slot)
        with self.as_long_as(width < length):
            present = self.frozen(width)
            level(present, self.frozen(now))
            self.assign(width, present + present)
            self.assign(now, 1 - now)
        return self.frozen(width), self.frozen(now)

    def _bounds(self, number: ir.Expression, length: ir.Expression, size: ir.Expression) -> _Stretch:
        begin = self.let("begin", number * size + 1)
        end = ir.minimum(begin + size, length + 1)
        return _Stretch(begin, self.let("end", end))

    # Chunks

    def _sort_chunk(self, copies: _Copies, array: ArrayRef, chunk: _Stretch, length: ir.Expression) -> None:
        count = self.let("count", chunk.end - chunk.begin)
        self._fill(copies, array, chunk.begin, count)
        with self.over("run", ir.ceil_divide(count, SORT_RUN)) as run:
            self._insert(copies, self._part(chunk, run, ir.Constant(SORT_RUN)))

        def level(width: ir.Expression, slot: ir.Expression) -> None:
            pair = self.variable("pair")
            both = self.let("both", width + width)
            with self.over(pair, ir.ceil_divide(count, both)):
                whole = self._part(chunk, pair, both)
                middle = self.let("middle", ir.minimum(whole.begin + width, whole.end))
                halves = _Stretch(whole.begin, middle), _Stretch(middle, whole.end)
                self._merge(copies, *halves, whole.begin, slot)

        # As many levels as in a full chunk, unless there is none: all chunks end in the same copy.
        self._widths(ir.minimum(length, SORT_CHUNK), ir.Constant(SORT_RUN), ZERO, level)

    def _fill(self, copies: _Copies, array: ArrayRef, begin: ir.Expression, count: ir.Expression) -> None:
        """Copy so many keys to a place, and their places."""
        i = self.variable("i")
        at = begin + i
        source = at - 1
        fill = (
            ir.Store(copies.keys, (ZERO, at), ir.Load(array.buffer, array.place([source]))),
            ir.Store(copies.places, (ZERO, at), source),
        )
        self._copy_all(i, count, fill)

    def _part(self, whole: _Stretch, number: ir.Expression, size: ir.Expression) -> _Stretch:
        begin = self.let("begin", whole.begin + number * size)
        return _Stretch(begin, self.let("end", ir.minimum(begin + size, whole.end)))

    def _insert(self, copies: _Copies, run: _Stretch) -> None:
        """Insert each element of a run into those before it."""
        i, at = self.variable("i"), self.variable("at")
        with self.over(i, run.end - run.begin - 1):
            start = self.let("start", run.begin + 1 + i)
            key, place = (self.let("held", each) for each in self._element(copies, ZERO, start))
            self.emit(ir.Declare(at.name, start))
            with self.captured() as head:
                before = self.let("before", at - 1)
                near = before
                if self.target.group:  # the run before is another thread's
                    near = self.let("near", ir.maximum(before, run.begin))
                other, other_place = self._element(copies, ZERO, near)
                test = self.let("test", (run.begin <= before) & self._precedes(key, other))
            shift = (*self._put(copies, ZERO, at, other, other_place), ir.Assign(at.name, before))
            self.emit(ir.While(tuple(head), test, shift))
            self.emit(*self._put(copies, ZERO, at, key, place))

    # Merges

    def _merge_block(
        self, copies: _Copies, block: _Stretch, width: ir.Expression, length: ir.Expression, slot: ir.Expression
    ) -> None:
        """Write a block of what comes of merging stretches of a width."""
        both = self.let("both", width + width)
        offset = block.begin - 1
        pair = offset // both * both
        left = self.let("left", pair + 1)
        last = length + 1
        middle = self.let("middle", ir.minimum(left + width, last))
        right = self.let("right", ir.minimum(left + both, last))
        first, second = _Stretch(left, middle), _Stretch(middle, right)
        begin = self._split(copies, first, second, block.begin, slot)
        end = self._split(copies, first, second, block.end, slot)
        lower = _Stretch(begin, end)
        upper = _Stretch(*[self._other(first, second, at, i) for at, i in ((block.begin, begin), (block.end, end))])
        self._merge(copies, lower, upper, block.begin, slot)

    def _other(self, first: _Stretch, second: _Stretch, at: ir.Expression, i: ir.Expression) -> ir.Expression:
        """Where the second stretch is split, when the first is at ``i`` for the output at ``at``."""
        return self.let("other", at + second.begin - i)

    def _split(
        self, copies: _Copies, first: _Stretch, second: _Stretch, at: ir.Expression, slot: ir.Expression
    ) -> ir.Expression:
        """Up to where the first stretch has gone into the output when the output has come to ``at``."""
        low = self.declare("low", ir.maximum(first.begin, at - (second.end - second.begin)))
        high = self.declare("high", ir.minimum(at, first.end))
        with self.as_long_as(low < high):
            i = self.let("i", (low + high) // 2)
            j = self.let("j", self._other(first, second, at, i) - 1)
            key, _ = self._element(copies, slot, i)
            other, _ = self._element(copies, slot, j)
            later = self.let("later", self._precedes(other, key))
            self.assign(high, ir.select(later, i, high))
            self.assign(low, ir.select(later, low, i + 1))
        return self.frozen(low)

    def _merge(
        self, copies: _Copies, first: _Stretch, second: _Stretch, target: ir.Expression, slot: ir.Expression
    ) -> None:
        """Merge two stretches into the other copy, from both ends to the middle."""
        to = self.let("to", 1 - slot)
        count = self.let("count", first.end - first.begin + (second.end - second.begin))
        i, j = self.declare("i", first.begin), self.declare("j", second.begin)
        k, l = self.declare("k", first.end), self.declare("l", second.end)

        def from_below(at: ir.Expression) -> None:
            a, b = self.frozen(i), self.frozen(j)
            (key, _), (other, _) = (self._element(copies, slot, each) for each in (a, b))
            chosen = (first.end <= a) | self._precedes(other, key)
            right = self.let("right", (b < second.end) & chosen)
            self._take(copies, slot, to, right, (b, other), (a, key), target + at)
            self.assign(i, ir.select(right, a, a + 1))
            self.assign(j, ir.select(right, b + 1, b))

        def from_above(at: ir.Expression) -> None:
            a, b = (self.let("before", each - 1) for each in (k, l))
            (key, _), (other, _) = (self._element(copies, slot, each) for each in (a, b))
            chosen = (b < second.begin) | self._precedes(other, key)
            left = self.let("left", (first.begin <= a) & chosen)
            self._take(copies, slot, to, left, (a, key), (b, other), target + count - 1 - at)
            self.assign(k, ir.select(left, a, k))
            self.assign(l, ir.select(left, l, b))

        step = self.variable("step")
        half = self.let("half", count // 2)
        with self.over(step, half):
            from_below(step)
            from_above(step)
        with self.captured() as middle:
            from_below(half)
        odd = count - (half + half)
        self.emit(ir.For(self.fresh("step"), odd, "sequential", tuple(middle)))

    def _take(
        self,
        copies: _Copies,
        slot: ir.Expression,
        to: ir.Expression,
        test: ir.Expression,
        then: tuple[ir.Expression, ir.Expression],
        orelse: tuple[ir.Expression, ir.Expression],
        at: ir.Expression,
    ) -> None:
        """Move one of two elements, each of which is an index and a key."""
        source = self.let("source", ir.select(test, then[0], orelse[0]))
        key = ir.select(test, then[1], orelse[1])
        self.emit(*self._put(copies, to, at, key, ir.Load(copies.places, (slot, source))))

    # Elements

    def _element(self, copies: _Copies, slot: ir.Expression, at: ir.Expression) -> tuple[ir.Expression, ir.Expression]:
        key = self.let("key", ir.Load(copies.keys, (slot, at)))
        return key, ir.Load(copies.places, (slot, at))

    def _put(
        self, copies: _Copies, slot: ir.Expression, at: ir.Expression, key: ir.Expression, place: ir.Expression
    ) -> tuple[ir.Statement, ...]:
        return ir.Store(copies.keys, (slot, at), key), ir.Store(copies.places, (slot, at), place)

    def _precedes(self, a: ir.Expression, b: ir.Expression) -> ir.Expression:
        """Whether a key comes strictly before another."""
        match a.type.kind:
            case "bool":
                return b & ~a
            case "float":
                return ir.equal(a, a) & ~(b <= a)
        return a < b
