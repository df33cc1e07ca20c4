"""Tiled producer-consumer fusion: what is stored for a range and then summed over it is summed in chunks that make it.

A nest that runs through a range stores something for each of its points, and a later one sums that over all points, for
each of many rows. What is stored is large, and has left the caches by then. So the sums of a chunk are made where the
chunk is, and added up afterwards, in order::

    temporary t: f64[m, n]                              temporary partial: f64[chunks, m]
    parallel chunk < chunks:                            parallel chunk < chunks:
      lanes lane: for j < m: t[j, i] = ...                temporary t: f64[m, 512]
    parallel j < m:                              =>       lanes lane: for j < m: t[j, lane] = ...
      lanes i < n combining sum: sum += r[i] * t[j, i]    for j < m:
      y[j] = sum                                            lanes lane combining sum: sum += r[i] * t[j, lane]
                                                            partial[chunk, j] = sum
                                                        parallel j < m:
                                                          for chunk < chunks: sum += partial[chunk, j]
                                                          y[j] = sum

The sums may be any reduction along lanes, whose order is free. All that they read of what the chunks write is of their
own points, and some of it has an element for each point and row: partial sums are so much smaller than that. Where
chunks begin depends on sizes alone, so the result does not depend on the number of threads.

A temporary that only the loop over chunks mentions, each chunk at its own points, is as long as a chunk, and there is
one for each thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ... import ir
from ...decisions import Decisions, writes_text
from ...target import PACKED_PADDING, TILED_FUSION_STATEMENTS
from .traversals import Traversal, chunked, traversal_of


def summed_in_chunks(function: ir.Function, decisions: Decisions) -> ir.Function:
    """A function whose sums over a range are made in the chunks that make what is summed."""
    unused = ir.unused_names(function)
    chunking = _Chunking(frozenset(function.sizes), lambda: unused("chunked"), decisions)
    return replace(function, body=chunking.block(function.body, {}))


@dataclass
class _Chunking:
    """Goes through blocks; ``sizes`` are those of the function."""

    sizes: frozenset[str]
    fresh: Callable[[], str]
    decisions: Decisions
    added: dict[int, ir.Statement] = field(default_factory=dict)  # the sums of what chunks have summed, by ``id``

    def block(self, block: ir.Block, lets: Mapping[str, ir.Expression]) -> ir.Block:
        """A block whose sums are made in chunks, and whose temporaries are those of a chunk."""
        made: list[ir.Statement] = []
        known = dict(lets)
        for statement in block:
            match statement:
                case ir.Let(name, value):
                    known[name] = value
                case ir.If(test, then, orelse):
                    statement = ir.If(test, self.block(then, known), self.block(orelse, known))
            self.append(made, statement, known)
        return tuple(self.with_own_temporaries(made, known))

    def append(self, made: list[ir.Statement], statement: ir.Statement, lets: Mapping[str, ir.Expression]) -> None:
        """Add a statement to a block; sums over the range of the last loop before it are made in its chunks."""
        sums = _Sums.of(statement, lets)
        position = len(made) - 1
        while sums is not None and position >= 0 and self.passed(made[position]):
            position -= 1
        chunks = _Chunks.of(made[position], lets) if sums is not None and position >= 0 else None
        if sums is None or chunks is None or not sums.may_join(chunks, made[position + 1 :]):
            made.append(statement)
            return
        if not self.decisions.take("fuse_tiles", f"{writes_text(statement)} with {writes_text(chunks.loop)}"):
            made.append(statement)
            return
        extents = (chunks.loop.extent, *[sums.traversal.extents[axis] for axis in sums.rows])
        partial = [ir.Buffer(self.fresh(), each.neutral.type, extents) for each in sums.inner.reductions]
        between = made[position + 1 :]
        made[position:] = [each for each in between if not isinstance(each, ir.For)]
        made.extend([ir.Allocate(buffer) for buffer in partial])
        made.append(sums.in_chunks(chunks, partial, self.fresh()))
        made.extend([each for each in between if isinstance(each, ir.For)])
        made.append(sums.over_chunks(chunks, partial, self.fresh()))
        self.added[id(made[-1])] = made[-1]

    def passed(self, statement: ir.Statement) -> bool:
        """Whether sums may come from behind a statement: from behind others that were made in chunks, too."""
        return isinstance(statement, ir.Let | ir.Allocate) or id(statement) in self.added

    def with_own_temporaries(
        self, block: Sequence[ir.Statement], lets: Mapping[str, ir.Expression]
    ) -> Iterator[ir.Statement]:
        """A block in which the temporaries that one loop over chunks has for itself are as long as a chunk."""
        users = Counter(name for statement in block for name in ir.mentioned((statement,))[1])
        temporaries = [s.buffer for s in block if isinstance(s, ir.Allocate) and users[s.buffer.name] == 2]
        single = {buffer.name: number for number, buffer in enumerate(temporaries)}
        owned: set[str] = set()
        made: list[ir.Statement] = []
        for statement in block:
            chunks = _Chunks.of(statement, lets) if single else None
            if chunks is not None:
                numbers = sorted([single[name] for name in ir.mentioned((statement,))[1] & single.keys()])
                for buffer in [temporaries[number] for number in numbers]:
                    axis = chunks.axis(buffer.name)
                    rest = [extent for k, extent in enumerate(buffer.extents) if k != axis]
                    if axis is not None and ir.names_in(rest) <= self.sizes:
                        owned.add(buffer.name)
                        chunks = chunks.with_own(buffer, axis, self.sizes)
                statement = chunks.loop
            made.append(statement)
        return (s for s in made if not (isinstance(s, ir.Allocate) and s.buffer.name in owned))


@dataclass(frozen=True)
class _Chunks:
    """A parallel loop over the chunks of a range, with lanes in it that run through the points of a chunk."""

    loop: ir.For
    extent: ir.Expression  # of the range
    start: ir.Expression  # of a chunk in it
    length: ir.Expression  # of a chunk
    size: ir.Constant  # the length of all chunks but the last

    @staticmethod
    def of(statement: ir.Statement, lets: Mapping[str, ir.Expression]) -> _Chunks | None:
        """The chunks that a statement runs through, if it does."""
        if not isinstance(statement, ir.For) or statement.kind != "parallel":
            return None
        for inner in statement.body:
            counted = chunked(statement, inner, lets) if isinstance(inner, ir.For) and inner.kind == "lanes" else None
            match inner, counted:
                case ir.For(extent=ir.Apply(_, (ir.Apply(_, (_, start)), ir.Constant() as size)) as length), (
                    _,
                    extent,
                ):
                    return _Chunks(statement, extent, start, length, size)
        return None

    @property
    def written(self) -> set[str]:
        """The names of the buffers that chunks write, without those of their own."""
        own = ir.allocated_in(self.loop.body)
        return {each.buffer.name for each in ir.of_kind(self.loop.body, ir.Store)} - own

    @property
    def lanes(self) -> dict[str, str]:
        """By index of the range, as which it is bound in a loop over a chunk, the variable of this loop."""
        found: dict[str, str] = {}
        for each in ir.walk(self.loop.body):
            match each:
                case ir.For(lane, length, body=(ir.Let(index, value), *_)) if length == self.length:
                    if value == self.at(lane):
                        found[index] = lane
        return found

    def at(self, lane: str) -> ir.Expression:
        """The point of the range that a lane of a chunk is."""
        return self.start + ir.Variable(lane)

    def axis(self, name: str) -> int | None:
        """The axis along which a chunk touches a buffer at its own points alone, if there is one."""
        touched = list(_touched(self.loop.body, name))
        own = self.lanes
        buffer = touched[0].buffer
        for axis, extent in enumerate(buffer.extents):
            indices = [each.indices[axis] for each in touched]
            if extent == self.extent and all(isinstance(index, ir.Variable) and index.name in own for index in indices):
                return axis
        return None

    def with_own(self, buffer: ir.Buffer, axis: int, sizes: frozenset[str]) -> _Chunks:
        """The same with a buffer as long as a chunk in each of them."""
        own = self.lanes
        extents = list(buffer.extents)
        extents[axis] = ir.minimum(self.extent, self.size) if ir.names_in([self.extent]) <= sizes else self.size
        if len(extents) > 1 and axis == len(extents) - 1:
            extents[axis] = extents[axis] + PACKED_PADDING
        short = ir.Buffer(buffer.name, buffer.scalar, tuple(extents))

        def place(each: ir.Load | ir.Store) -> tuple[tuple[ir.Expression, ...], tuple[int, ...]]:
            index = each.indices[axis]
            assert isinstance(index, ir.Variable)
            lane = ir.Variable(own[index.name])
            guarded = tuple([k for k in each.guarded if k != axis])  # the points of a chunk are in the range
            return (*each.indices[:axis], lane, *each.indices[axis + 1 :]), guarded

        def expression(e: ir.Expression) -> ir.Expression:
            e = ir.map_operands(e, expression)
            return ir.Load(short, *place(e)) if isinstance(e, ir.Load) and e.buffer == buffer else e

        def store(s: ir.Store) -> ir.Store:
            indices, guarded = place(s) if s.buffer == buffer else (s.indices, s.guarded)
            return ir.Store(short if s.buffer == buffer else s.buffer, indices, s.value, guarded)

        body = (ir.Allocate(short), *ir.map_block(self.loop.body, expression, store))
        return replace(self, loop=replace(self.loop, body=body))


def _touched(block: ir.Block, name: str) -> Iterator[ir.Load | ir.Store]:
    """The reads and writes of a buffer in a block."""
    for statement in ir.walk(block):
        if isinstance(statement, ir.Store) and statement.buffer.name == name:
            yield statement
        yield from (load for load in ir.loads(statement) if load.buffer.name == name)


@dataclass(frozen=True)
class _Sums:
    """Loops over rows around a reduction along lanes, and what becomes of its result."""

    traversal: Traversal

    @staticmethod
    def of(statement: ir.Statement, lets: Mapping[str, ir.Expression]) -> _Sums | None:
        """The sums that a statement makes, if it is nothing else."""
        if not isinstance(statement, ir.For) or statement.kind != "parallel":
            return None
        traversal = traversal_of(statement, lets)
        if traversal is None or len(traversal.indices) < 2:
            return None
        inner, totals = traversal.loops[-1], {each.name for each in traversal.loops[-1].reductions}
        lanes = inner.kind == "lanes" and inner.variable == traversal.indices[-1]
        assigned = {each.name for each in inner.body if isinstance(each, ir.Assign)}
        declared = {each.name for each in traversal.loops[-2].body if isinstance(each, ir.Declare)}
        plain = all(isinstance(each, ir.Let | ir.Assign) for each in inner.body) and assigned <= totals <= declared
        last = all(outer.body[-1] is loop for outer, loop in zip(traversal.loops, traversal.loops[1:-1], strict=False))
        sums = _Sums(traversal) if lanes and plain and last else None
        return None if sums is None or sums.does_more else sums

    @property
    def inner(self) -> ir.For:
        """The reduction."""
        return self.traversal.loops[-1]

    @property
    def does_more(self) -> bool:
        """Whether anything but bindings comes before the reduction, which runs once a chunk."""
        before = [each for outer in self.traversal.loops[:-2] for each in outer.body[:-1]]
        return not all(isinstance(each, ir.Let | ir.Declare) for each in (*before, *self.around[0]))

    @property
    def rows(self) -> range:
        """The numbers of the indices of the rows."""
        return range(len(self.traversal.indices) - 1)

    def may_join(self, chunks: _Chunks, between: Sequence[ir.Statement]) -> bool:
        """Whether what is summed is made by chunks, and chunks may sum it, each at its own points."""
        if sum(1 for _ in ir.walk(chunks.loop.body)) > TILED_FUSION_STATEMENTS:
            return False
        written = chunks.written
        after = {each.buffer.name for each in ir.of_kind(tuple(between), ir.Store)}
        moved = [load for each in between if not isinstance(each, ir.For) for load in ir.loads(each)]
        if self.traversal.extents[-1] != chunks.extent or any(load.buffer.name in written | after for load in moved):
            return False
        own = {each.buffer.name for each in ir.of_kind((self.traversal.loops[0],), ir.Store)}
        summed = [load for each in self.inner.body for load in ir.loads(each)]
        read = [load for each in ir.walk((self.traversal.loops[0],)) for load in ir.loads(each)]
        point = ir.Variable(self.inner.variable)
        for load in read:
            if load.buffer.name in own | after:
                return False
            if load.buffer.name in written:
                axis = chunks.axis(load.buffer.name)
                if axis is None or load not in summed or load.indices[axis] != point:
                    return False
        everything = {ir.Variable(index) for index in self.traversal.indices}
        return any(load.buffer.name in written and everything <= set(load.indices) for load in summed)

    def in_chunks(self, chunks: _Chunks, partial: Sequence[ir.Buffer], lane: str) -> ir.For:
        """The loop over chunks, with the sums of each chunk's points at its end."""
        body = (ir.Let(self.inner.variable, chunks.at(lane)), *self.inner.body)
        inner = replace(self.inner, variable=lane, extent=chunks.length, body=body)
        place = self.place(chunks.loop.variable)
        neutral = {each.name: each.neutral for each in self.inner.reductions}
        stores = [
            ir.Store(buffer, place, ir.Variable(each.name, buffer.scalar))
            for buffer, each in zip(partial, self.inner.reductions, strict=True)
        ]
        before = [
            ir.Declare(each.name, neutral.get(each.name, each.initial)) if isinstance(each, ir.Declare) else each
            for each in self.around[0]
        ]
        made: ir.Statement = replace(self.traversal.loops[-2], body=(*before, inner, *stores))
        for outer in self.traversal.loops[-3::-1]:
            made = replace(outer, body=(*outer.body[:-1], made))
        assert isinstance(made, ir.For)
        made = _in_order(made)
        return replace(chunks.loop, body=(*chunks.loop.body, made))

    def over_chunks(self, chunks: _Chunks, partial: Sequence[ir.Buffer], number: str) -> ir.For:
        """The sums, from those of the chunks."""
        place = self.place(number)
        body: list[ir.Statement] = []
        for buffer, each in zip(partial, self.inner.reductions, strict=True):
            body.append(each.combined(ir.Load(buffer, place)))
        before, after = self.around
        inner = ir.For(number, chunks.loop.extent, "sequential", tuple(body))
        made = replace(self.traversal.loops[-2], body=(*before, inner, *after))
        for outer in self.traversal.loops[-3::-1]:
            made = replace(outer, body=(*outer.body[:-1], made))
        grain = None if made.grain is None else made.grain * chunks.size
        return replace(made, grain=grain)

    @property
    def around(self) -> tuple[ir.Block, ir.Block]:
        """What stands before the reduction, and after it."""
        body = self.traversal.loops[-2].body
        position = [each is self.inner for each in body].index(True)
        return body[:position], body[position + 1 :]

    def place(self, chunk: str) -> tuple[ir.Expression, ...]:
        """The place of a chunk's sum."""
        return (ir.Variable(chunk), *[ir.Variable(self.traversal.indices[axis]) for axis in self.rows])


def _in_order(loop: ir.For) -> ir.For:
    """A loop that was parallel, in one that is."""
    inner = [_in_order(each) if isinstance(each, ir.For) else each for each in loop.body]
    kind = "sequential" if loop.kind == "parallel" else loop.kind
    return replace(loop, kind=kind, grain=None, body=tuple(inner))
