"""Argsort: a stable merge sort of keys and their places, from the bottom up.

Chunks are sorted on their own, runs by insertion and then in merges of doubling width; so far, chunks are independent.
Then sorted stretches of doubling width are merged, each chunk of the output by itself: where it begins in the two
stretches is found by bisection (the merge path of Odeh et al. 2012). Everything is done between two copies, of keys
and of places, since a merge is not in place. A merge goes on at both ends at once: neither of its two chains
of loads and comparisons waits for the other.

Where threads come in groups there are no chunks: a thread has a run, and then few elements of each merge's output
(``MERGED``), since bisection costs each thread little and there are many of them.

The order is NumPy's: equal keys keep their order, NaN comes last, and is equal to itself.

It is written in the loop IR, not called from a library: so it is the same on all targets, inside parallel loops
it works in the memory of its thread, and its chunks go to threads like those of every other loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...core import terms
from ...core.types import i64
from ..loops import (
    Allocate,
    Assign,
    Buffer,
    Constant,
    Declare,
    Expression,
    For,
    Kind,
    Load,
    Select,
    Statement,
    Store,
    Variable,
    While,
)
from .combining import Combining
from .context import ONE, ZERO, ArrayRef, Environment

# Elements that are sorted by insertion.
RUN = 16
# Elements of a chunk: keys and places, twice, stay in the cache of a core.
CHUNK = 4096
# Chunks of a merge that are worth a thread's attention.
MERGES = 4
# Elements that a thread merges where threads come in groups: a multiple of those of a run.
MERGED = 32


@dataclass(frozen=True)
class _Copies:
    """Two copies of the keys and their places; element i is at i + 1, so that there is one before and one after."""

    keys: Buffer
    places: Buffer


@dataclass(frozen=True)
class _Stretch:
    """Where something begins and ends."""

    begin: Expression
    end: Expression


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
        room = (Constant(2, i64), self.apply("add", length, Constant(2, i64)))
        copies = _Copies(Buffer(self.fresh("keys"), array.buffer.scalar, room), Buffer(self.fresh("places"), i64, room))
        self.out.extend([Allocate(copies.keys), Allocate(copies.places)])
        parallel: Kind = "parallel" if self.inside == 0 and self.target.parallel else "sequential"
        alone = Constant(RUN if self.target.group else CHUNK, i64)
        chunks = self.let("chunks", self._up(length, alone))
        sort = self._sort_runs if self.target.group else self._sort_chunks
        width, slot = sort(copies, array, length, chunks, parallel)

        def level(width: Expression, slot: Expression) -> None:
            size: Expression = alone
            count = chunks
            if self.target.group:
                size = self.let("merged", self.apply("minimum", self.apply("add", width, width), Constant(MERGED, i64)))
                count = self._up(length, size)
            block = Variable(self.fresh("block"), i64)
            with self.captured() as body:
                self._merge_block(copies, self._bounds(block, length, size), width, length, slot)
            self.out.append(For(block.name, count, parallel, tuple(body), grain=self._grain(parallel, MERGES)))

        width, slot = self._widths(length, width, slot, level)
        i = Variable(self.fresh("i"), i64)
        place = Load(copies.places, (slot, self.apply("add", i, ONE)))
        self._copy_all(i, length, (Store(result.buffer, result.place([i]), place),))

    def _sort_chunks(
        self, copies: _Copies, array: ArrayRef, length: Expression, chunks: Expression, kind: Kind
    ) -> tuple[Expression, Expression]:
        """Sort each chunk on its own: how wide sorted stretches are then, and in which copy."""
        chunk = Variable(self.fresh("chunk"), i64)
        with self.captured() as body:
            self._sort_chunk(copies, array, self._bounds(chunk, length, Constant(CHUNK, i64)), length)
        self.out.append(For(chunk.name, chunks, kind, tuple(body), grain=self._grain(kind, 1)))
        width, slot = self._widths(self.apply("minimum", length, Constant(CHUNK, i64)), Constant(RUN, i64), ZERO)
        return self.apply("maximum", width, Constant(CHUNK, i64)), slot

    def _sort_runs(
        self, copies: _Copies, array: ArrayRef, length: Expression, runs: Expression, kind: Kind
    ) -> tuple[Expression, Expression]:
        """Sort each run on its own, likewise."""
        run = Variable(self.fresh("run"), i64)
        with self.captured() as body:
            self.inside += 1
            stretch = self._bounds(run, length, Constant(RUN, i64))
            self._fill(copies, array, stretch.begin, self.apply("subtract", stretch.end, stretch.begin))
            self._insert(copies, stretch)
            self.inside -= 1
        self.out.append(For(run.name, runs, kind, tuple(body)))
        return Constant(RUN, i64), ZERO

    def _grain(self, kind: Kind, chunks: int) -> Expression | None:
        return Constant(chunks, i64) if kind == "parallel" and not self.target.group else None

    def _copy_all(self, variable: Variable, count: Expression, stores: tuple[Statement, ...]) -> None:
        """A loop that only copies."""
        if not self.target.group:
            self.out.append(For(variable.name, count, "lanes", stores, self.target.lanes(i64)))
        else:
            self.out.append(For(variable.name, count, "sequential" if self.inside else "parallel", stores))

    # Widths that double, between two copies

    def _widths(
        self,
        length: Expression,
        first: Expression,
        slot: Expression,
        level: Callable[[Expression, Expression], None] = lambda width, slot: None,
    ) -> tuple[Expression, Expression]:
        """Merge stretches of doubling width until one is the whole: that width, and in which copy it is."""
        width, now = Variable(self.fresh("width"), i64), Variable(self.fresh("slot"), i64)
        self.out.extend([Declare(width.name, first), Declare(now.name, slot)])
        with self.captured() as body:
            present = self.frozen(width)
            level(present, self.frozen(now))
            self.out.append(Assign(width.name, self.apply("add", present, present)))
            self.out.append(Assign(now.name, self.apply("subtract", ONE, now)))
        self.out.append(While((), self.apply("less", width, length), tuple(body)))
        return self.frozen(width), self.frozen(now)

    def _up(self, length: Expression, part: Expression) -> Expression:
        """How many parts of a length, rounded up."""
        rounded = self.apply("add", length, self.apply("subtract", part, ONE))
        return self.apply("floor_divide", rounded, part)

    def _bounds(self, number: Expression, length: Expression, size: Expression) -> _Stretch:
        begin = self.let("begin", self.apply("add", self.apply("multiply", number, size), ONE))
        end = self.apply("minimum", self.apply("add", begin, size), self.apply("add", length, ONE))
        return _Stretch(begin, self.let("end", end))

    # Chunks

    def _sort_chunk(self, copies: _Copies, array: ArrayRef, chunk: _Stretch, length: Expression) -> None:
        count = self.let("count", self.apply("subtract", chunk.end, chunk.begin))
        self._fill(copies, array, chunk.begin, count)
        run = Variable(self.fresh("run"), i64)
        with self.captured() as body:
            self._insert(copies, self._part(chunk, run, Constant(RUN, i64)))
        self.out.append(For(run.name, self._up(count, Constant(RUN, i64)), "sequential", tuple(body)))

        def level(width: Expression, slot: Expression) -> None:
            pair = Variable(self.fresh("pair"), i64)
            both = self.let("both", self.apply("add", width, width))
            with self.captured() as body:
                whole = self._part(chunk, pair, both)
                middle = self.apply("minimum", self.apply("add", whole.begin, width), whole.end)
                middle = self.let("middle", middle)
                halves = _Stretch(whole.begin, middle), _Stretch(middle, whole.end)
                self._merge(copies, *halves, whole.begin, slot)
            self.out.append(For(pair.name, self._up(count, both), "sequential", tuple(body)))

        # As many levels as in a full chunk, unless there is none: all chunks end in the same copy.
        self._widths(self.apply("minimum", length, Constant(CHUNK, i64)), Constant(RUN, i64), ZERO, level)

    def _fill(self, copies: _Copies, array: ArrayRef, begin: Expression, count: Expression) -> None:
        """Copy so many keys to a place, and their places."""
        i = Variable(self.fresh("i"), i64)
        at = self.apply("add", begin, i)
        source = self.apply("subtract", at, ONE)
        fill = (
            Store(copies.keys, (ZERO, at), Load(array.buffer, array.place([source]))),
            Store(copies.places, (ZERO, at), source),
        )
        self._copy_all(i, count, fill)

    def _part(self, whole: _Stretch, number: Expression, size: Expression) -> _Stretch:
        begin = self.let("begin", self.apply("add", whole.begin, self.apply("multiply", number, size)))
        return _Stretch(begin, self.let("end", self.apply("minimum", self.apply("add", begin, size), whole.end)))

    def _insert(self, copies: _Copies, run: _Stretch) -> None:
        """Insert each element of a run into those before it."""
        i, at = Variable(self.fresh("i"), i64), Variable(self.fresh("at"), i64)
        with self.captured() as body:
            start = self.let("start", self.apply("add", self.apply("add", run.begin, ONE), i))
            key, place = (self.let("held", each) for each in self._element(copies, ZERO, start))
            self.out.append(Declare(at.name, start))
            with self.captured() as head:
                before = self.let("before", self.apply("subtract", at, ONE))
                near = before
                if self.target.group:  # the run before is another thread's
                    near = self.let("near", self.apply("maximum", before, run.begin))
                other, other_place = self._element(copies, ZERO, near)
                more = self.apply("less_equal", run.begin, before)
                test = self.let("test", self.apply("logical_and", more, self._precedes(key, other)))
            shift = (*self._put(copies, ZERO, at, other, other_place), Assign(at.name, before))
            self.out.append(While(tuple(head), test, shift))
            self.out.extend(self._put(copies, ZERO, at, key, place))
        count = self.apply("subtract", self.apply("subtract", run.end, run.begin), ONE)
        self.out.append(For(i.name, count, "sequential", tuple(body)))

    # Merges

    def _merge_block(
        self, copies: _Copies, block: _Stretch, width: Expression, length: Expression, slot: Expression
    ) -> None:
        """Write a block of what comes of merging stretches of a width."""
        both = self.let("both", self.apply("add", width, width))
        offset = self.apply("subtract", block.begin, ONE)
        pair = self.apply("multiply", self.apply("floor_divide", offset, both), both)
        left = self.let("left", self.apply("add", pair, ONE))
        last = self.apply("add", length, ONE)
        middle = self.let("middle", self.apply("minimum", self.apply("add", left, width), last))
        right = self.let("right", self.apply("minimum", self.apply("add", left, both), last))
        first, second = _Stretch(left, middle), _Stretch(middle, right)
        begin = self._split(copies, first, second, block.begin, slot)
        end = self._split(copies, first, second, block.end, slot)
        lower = _Stretch(begin, end)
        upper = _Stretch(*[self._other(first, second, at, i) for at, i in ((block.begin, begin), (block.end, end))])
        self._merge(copies, lower, upper, block.begin, slot)

    def _other(self, first: _Stretch, second: _Stretch, at: Expression, i: Expression) -> Expression:
        """Where the second stretch is split, when the first is at ``i`` for the output at ``at``."""
        return self.let("other", self.apply("subtract", self.apply("add", at, second.begin), i))

    def _split(
        self, copies: _Copies, first: _Stretch, second: _Stretch, at: Expression, slot: Expression
    ) -> Expression:
        """Up to where the first stretch has gone into the output when the output has come to ``at``."""
        low, high = Variable(self.fresh("low"), i64), Variable(self.fresh("high"), i64)
        size = self.apply("subtract", second.end, second.begin)
        self.out.append(Declare(low.name, self.apply("maximum", first.begin, self.apply("subtract", at, size))))
        self.out.append(Declare(high.name, self.apply("minimum", at, first.end)))
        with self.captured() as body:
            i = self.let("i", self.apply("floor_divide", self.apply("add", low, high), Constant(2, i64)))
            j = self.let("j", self.apply("subtract", self._other(first, second, at, i), ONE))
            key, _ = self._element(copies, slot, i)
            other, _ = self._element(copies, slot, j)
            later = self.let("later", self._precedes(other, key))
            self.out.append(Assign(high.name, Select(later, i, high, i64)))
            self.out.append(Assign(low.name, Select(later, low, self.apply("add", i, ONE), i64)))
        self.out.append(While((), self.apply("less", low, high), tuple(body)))
        return self.frozen(low)

    def _merge(self, copies: _Copies, first: _Stretch, second: _Stretch, target: Expression, slot: Expression) -> None:
        """Merge two stretches into the other copy, from both ends to the middle."""
        to = self.let("to", self.apply("subtract", ONE, slot))
        sizes = [self.apply("subtract", each.end, each.begin) for each in (first, second)]
        count = self.let("count", self.apply("add", *sizes))
        i, j, k, l = (Variable(self.fresh(stem), i64) for stem in "ijkl")
        ends = zip((i, j, k, l), (first.begin, second.begin, first.end, second.end), strict=True)
        self.out.extend([Declare(variable.name, at) for variable, at in ends])

        def from_below(at: Expression) -> None:
            a, b = self.frozen(i), self.frozen(j)
            (key, _), (other, _) = (self._element(copies, slot, each) for each in (a, b))
            exhausted = self.apply("less_equal", first.end, a)
            chosen = self.apply("logical_or", exhausted, self._precedes(other, key))
            right = self.let("right", self.apply("logical_and", self.apply("less", b, second.end), chosen))
            self._take(copies, slot, to, right, (b, other), (a, key), self.apply("add", target, at))
            self.out.append(Assign(i.name, Select(right, a, self.apply("add", a, ONE), i64)))
            self.out.append(Assign(j.name, Select(right, self.apply("add", b, ONE), b, i64)))

        def from_above(at: Expression) -> None:
            a, b = (self.let("before", self.apply("subtract", each, ONE)) for each in (k, l))
            (key, _), (other, _) = (self._element(copies, slot, each) for each in (a, b))
            exhausted = self.apply("less", b, second.begin)
            chosen = self.apply("logical_or", exhausted, self._precedes(other, key))
            left = self.let("left", self.apply("logical_and", self.apply("less_equal", first.begin, a), chosen))
            last = self.apply("subtract", self.apply("add", target, count), ONE)
            self._take(copies, slot, to, left, (a, key), (b, other), self.apply("subtract", last, at))
            self.out.append(Assign(k.name, Select(left, a, k, i64)))
            self.out.append(Assign(l.name, Select(left, l, b, i64)))

        step = Variable(self.fresh("step"), i64)
        half = self.let("half", self.apply("floor_divide", count, Constant(2, i64)))
        with self.captured() as body:
            from_below(step)
            from_above(step)
        self.out.append(For(step.name, half, "sequential", tuple(body)))
        with self.captured() as middle:
            from_below(half)
        odd = self.apply("subtract", count, self.apply("add", half, half))
        self.out.append(For(self.fresh("step"), odd, "sequential", tuple(middle)))

    def _take(
        self,
        copies: _Copies,
        slot: Expression,
        to: Expression,
        test: Expression,
        then: tuple[Expression, Expression],
        orelse: tuple[Expression, Expression],
        at: Expression,
    ) -> None:
        """Move one of two elements, each of which is an index and a key."""
        source = self.let("source", Select(test, then[0], orelse[0], i64))
        key = Select(test, then[1], orelse[1], copies.keys.scalar)
        self.out.extend(self._put(copies, to, at, key, Load(copies.places, (slot, source))))

    # Elements

    def _element(self, copies: _Copies, slot: Expression, at: Expression) -> tuple[Expression, Expression]:
        key = self.let("key", Load(copies.keys, (slot, at)))
        return key, Load(copies.places, (slot, at))

    def _put(
        self, copies: _Copies, slot: Expression, at: Expression, key: Expression, place: Expression
    ) -> tuple[Statement, ...]:
        return Store(copies.keys, (slot, at), key), Store(copies.places, (slot, at), place)

    def _precedes(self, a: Expression, b: Expression) -> Expression:
        """Whether a key comes strictly before another."""
        match a.type.kind:
            case "bool":
                return self.apply("logical_and", b, self.apply("logical_not", a))
            case "float":
                number = self.apply("equal", a, a)
                return self.apply("logical_and", number, self.apply("logical_not", self.apply("less_equal", b, a)))
        return self.apply("less", a, b)
