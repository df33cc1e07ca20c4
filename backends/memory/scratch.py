"""Dynamic scratch allocation: temporaries whose sizes a kernel's iterations decide are counted, placed, used.

A kernel cannot allocate. So what an iteration would allocate is counted first, by a kernel that does the part of the
work on which the sizes depend; their sums before each iteration are where its memory begins in one buffer for all, the
*heap*, which the host allocates once it knows the whole. A size may depend on what is in such memory; then there are
several rounds, each with the heaps of those before.

    parallel i < n                             kernel count_store: parallel i < n
      var trips = 0                              var trips = 0
      while ...: trips = trips + 1               while ...: trips = trips + 1
      temporary store: f64[trips]                sizes[i] = maximum(trips, 1)
      for t < trips: store[t] = ...      =>    kernel place_store: starts[i] = sum(j < i: sizes[j]), total
      ...                                      temporary heap: f64[total]
                                               kernel compute_y: parallel i < n
                                                 ...
                                                 let start = starts[i]
                                                 for t < trips: heap[start + t] = ...
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...core.language import Unsupported
from ...core.types import i64
from .. import ir

ZERO, ONE = ir.Constant(0), ir.Constant(1)


def with_heaps(function: ir.Function, group: int) -> ir.Function:
    """A split function in which no kernel allocates what its iterations decide; groups are of so many threads."""
    return replace(function, body=_Heaps(function, group).host(function.body))


class _Heaps:
    def __init__(self, function: ir.Function, group: int) -> None:
        self.group = group
        self.taken = set(function.sizes).union(*ir.mentioned(function.body))
        self.number = 0
        self.heaps: set[str] = set()  # which iterations have their own parts of

    def host(self, block: ir.Block) -> ir.Block:
        made: list[ir.Statement] = []
        for statement in block:
            if isinstance(statement, ir.Kernel):
                made.extend(self.kernel(statement))
            else:
                made.append(ir.map_inside(statement, self.host))
        return tuple(made)

    def kernel(self, kernel: ir.Kernel) -> list[ir.Statement]:
        """The kernel, behind what counts and places its temporaries."""
        waiting = [each for each in _allocations(kernel.body) if decided_inside(each.buffer, kernel.body)]
        _refuse_in_lanes(kernel.body, waiting)
        made: list[ir.Statement] = []
        while waiting:
            later = {each.buffer.name for each in waiting}
            ready = [each for each in waiting if later.isdisjoint(_Slice(each, kernel.body, self.heaps).buffers)]
            if not ready:
                _refuse(waiting[0].buffer)
            starts = {each.buffer: self.place(each, kernel, made) for each in ready}
            kernel = replace(kernel, body=_with_starts(kernel.body, starts))
            self.heaps.update(placed.heap.name for placed in starts.values())
            waiting = [
                each for each in _allocations(kernel.body) if each.buffer.name in later - {b.name for b in starts}
            ]
        return [*made, kernel]

    def place(self, allocation: ir.Allocate, kernel: ir.Kernel, made: list[ir.Statement]) -> _Placed:
        """Emit what counts one temporary in all iterations, and what finds its places."""
        self.number = self.free_number()
        buffer, k = allocation.buffer, self.number
        loops = ir.grid(kernel.body)[1]
        count = ir.product([loop.extent for loop in loops])
        sizes, starts = (ir.Buffer(f"{stem}{k}_{buffer.name}", i64, (count,)) for stem in ("sizes", "starts"))
        ends = ir.Buffer(f"ends{k}_{buffer.name}", i64, (ir.Constant(self.group),))
        made.extend([ir.Allocate(sizes), ir.Allocate(starts), ir.Allocate(ends)])
        made.append(ir.Kernel(f"count{k}_{buffer.name}", _counting(kernel.body, allocation, sizes, self.heaps)))
        made.extend(self.placing(k, sizes, starts, ends, count))
        whole = ir.Variable(f"whole{k}_{buffer.name}")
        made.append(ir.Let(whole.name, ir.Load(ends, (ir.Constant(self.group - 1),))))
        heap = ir.Buffer(f"heap{k}_{buffer.name}", buffer.scalar, (whole,))
        made.append(ir.Allocate(heap))
        return _Placed(heap, starts, f"start{k}_{buffer.name}", _iteration(loops))

    def free_number(self) -> int:
        """The next number that is free behind each of the short names of ``placing``."""
        stems = ("lane", "at", "place", "sum", "start", "sums")
        numbers = itertools.count(self.number + 1)
        return next(k for k in numbers if self.taken.isdisjoint(f"{stem}{k}" for stem in stems))

    def placing(
        self, k: int, sizes: ir.Buffer, starts: ir.Buffer, ends: ir.Buffer, count: ir.Expression
    ) -> Iterator[ir.Statement]:
        """The sums of the sizes before each: a group, each thread with a stretch; the last ends with all."""
        lane, at, place = (ir.Variable(f"{stem}{k}") for stem in ("lane", "at", "place"))
        summed, start = ir.Variable(f"sum{k}"), ir.Variable(f"start{k}")
        sums = ir.Buffer(f"sums{k}", i64, (ir.Constant(self.group),))
        stretch = ir.ceil_divide(count, self.group)
        where = ir.Let(place.name, lane * stretch + at)
        size = ir.Load(sizes, (place,), (0,))
        add = (where, ir.Assign(summed.name, summed + size))
        move = (where, ir.Store(starts, (place,), start, (0,)), ir.Assign(start.name, start + size))
        before = (ir.Assign(start.name, start + ir.Load(sums, (at,))),)
        body: ir.Block = (
            ir.Declare(summed.name, ZERO),
            ir.For(at.name, stretch, "sequential", add),
            ir.Store(sums, (lane,), summed),
            ir.Barrier(),
            ir.Declare(start.name, ZERO),
            ir.For(at.name, lane, "sequential", before),
            ir.For(at.name, stretch, "sequential", move),
            ir.Store(ends, (lane,), start),
        )
        yield ir.Allocate(sums)
        loop = ir.For(lane.name, ir.Constant(self.group), "lanes", body, self.group)
        yield ir.Kernel(f"place{k}_{starts.name}", (loop,))


@dataclass(frozen=True)
class _Placed:
    """A temporary in a heap: where each iteration's begins."""

    heap: ir.Buffer
    starts: ir.Buffer
    name: str  # of the start of this iteration
    iteration: ir.Expression

    def let(self) -> ir.Let:
        return ir.Let(self.name, ir.Load(self.starts, (self.iteration,)))

    def at(self, buffer: ir.Buffer, indices: Sequence[ir.Expression], guarded: Sequence[int]) -> ir.Expression:
        """The place of an element; outside of the heap where it is outside of the temporary, along guarded axes."""
        place: ir.Expression = ZERO
        for k, (index, extent) in enumerate(zip(indices, buffer.extents, strict=True)):
            place = index if k == 0 else place * extent + index
        place = ir.Variable(self.name) + place
        for axis in guarded:
            index = indices[axis]
            within = (index >= 0) & (index < buffer.extents[axis])
            place = ir.select(within, place, -1)
        return place


# What a kernel consists of


def _allocations(body: ir.Block) -> list[ir.Allocate]:
    return list(ir.of_kind(body, ir.Allocate))


def decided_inside(buffer: ir.Buffer, body: ir.Block) -> bool:
    """Whether the extents of a kernel's temporary mention what the kernel itself binds."""
    bound = ir.bound_in(body)
    return any(
        isinstance(part, ir.Load) or (isinstance(part, ir.Variable) and part.name in bound)
        for extent in buffer.extents
        for part in ir.inside(extent)
    )


def _in_grid(body: ir.Block, change: Callable[[ir.Block], ir.Block]) -> ir.Block:
    """A kernel's body with that of its grid changed."""
    last = body[-1] if body else None
    if isinstance(last, ir.For) and last.kind == "parallel":
        return (*body[:-1], replace(last, body=_in_grid(last.body, change)))
    return change(body)


def _iteration(loops: Sequence[ir.For]) -> ir.Expression:
    """The number of an iteration of a grid."""
    number: ir.Expression = ZERO
    for k, loop in enumerate(loops):
        variable = ir.Variable(loop.variable)
        number = variable if k == 0 else number * loop.extent + variable
    return number


# Counting


def _counting(body: ir.Block, allocation: ir.Allocate, sizes: ir.Buffer, heaps: set[str]) -> ir.Block:
    """A kernel that stores how much each iteration needs for a temporary: the most, where it is made several times."""
    needed = ir.Variable(f"needed_{allocation.buffer.name}")
    sliced = _Slice(allocation, body, heaps).block
    size: ir.Expression = ONE
    for extent in allocation.buffer.extents:  # as ``memory.room``
        size = ir.maximum(extent, 1) if size == ONE else ir.select(extent > 0, size * extent, ONE)
    count = ir.Assign(needed.name, ir.maximum(needed, size))
    store = ir.Store(sizes, (_iteration(ir.grid(body)[1]),), needed)
    return _in_grid(body, lambda inner: (ir.Declare(needed.name, ONE), *sliced(inner, count), store))


class _Slice:
    """The statements of a kernel on which the extents of one of its temporaries depend."""

    def __init__(self, target: ir.Allocate, body: ir.Block, heaps: set[str]) -> None:
        self.target = target
        self.names: set[str] = set()
        self.buffers: set[str] = set()
        self.required: set[int] = set()  # requirements, by ``id``
        own = {each.buffer.name for each in _allocations(body)} | heaps
        written = ir.written_in(body)
        self.use(target.buffer.extents)
        before = -1
        while before != len(self.names) + len(self.buffers):
            before = len(self.names) + len(self.buffers)
            self.look(body)
        for name in sorted((self.buffers & written) - own):
            raise Unsupported(
                f"the size of a temporary depends on {name}, which the same kernel writes: a device cannot tell "
                'beforehand how much memory it takes; backend="llvm" runs this program'
            )

    def use(self, wholes: Sequence[ir.Expression]) -> None:
        for whole in wholes:
            for part in ir.inside(whole):
                if isinstance(part, ir.Variable):
                    self.names.add(part.name)
                elif isinstance(part, ir.Load):
                    self.buffers.add(part.buffer.name)
                    self.use([extent for extent in part.buffer.extents])

    def look(self, block: ir.Block) -> bool:
        """Add what is needed by what is kept; whether something is."""
        kept = False
        for statement in block:
            inner = [self.look(each) for each in ir.blocks_of(statement)]
            if self.keeps(statement) or any(inner):
                kept = True
                self.use(ir.expressions_of(statement))
                if isinstance(statement, ir.While):  # a failure ends it
                    self.required.update(id(each) for each in ir.of_kind((statement,), ir.Require))
                if isinstance(statement, ir.For):
                    self.names.update(reduction.name for reduction in statement.reductions)
        return kept

    def keeps(self, statement: ir.Statement) -> bool:
        match statement:
            case ir.Let(name) | ir.Declare(name) | ir.Assign(name):
                return name in self.names
            case ir.Store(buffer):
                return buffer.name in self.buffers
            case ir.Allocate(buffer):
                return buffer.name in self.buffers or statement == self.target
            case ir.For():
                return any(reduction.name in self.names for reduction in statement.reductions)
            case ir.Require():
                return id(statement) in self.required
        return False

    def block(self, block: ir.Block, count: ir.Statement) -> ir.Block:
        """What is kept of a block, with a statement for each of the temporaries."""
        made: list[ir.Statement] = []
        for statement in block:
            if isinstance(statement, ir.Allocate) and statement == self.target:
                made.append(count)
                continue
            match statement:
                case ir.For():
                    inner = self.block(statement.body, count)
                    if inner or self.keeps(statement):
                        made.append(replace(statement, body=inner))
                case ir.If(test, then, orelse):
                    branches = self.block(then, count), self.block(orelse, count)
                    if any(branches):
                        made.append(ir.If(test, *branches))
                case ir.While(head, test, body):
                    head, body = self.block(head, count), self.block(body, count)
                    if head or body:
                        made.append(ir.While(head, test, body))
                case _:
                    if self.keeps(statement):
                        made.append(statement)
        return tuple(made)


def _with_starts(body: ir.Block, placed: dict[ir.Buffer, _Placed]) -> ir.Block:
    """A kernel's body with temporaries in their heaps."""

    def expression(e: ir.Expression) -> ir.Expression:
        e = ir.map_operands(e, expression)
        if isinstance(e, ir.Load) and e.buffer in placed:
            where = placed[e.buffer]
            return ir.Load(where.heap, (where.at(e.buffer, e.indices, e.guarded),), (0,) if e.guarded else ())
        return e

    def store(s: ir.Store) -> ir.Store:
        if s.buffer not in placed:
            return s
        where = placed[s.buffer]
        place = where.at(s.buffer, s.indices, s.guarded)
        return ir.Store(where.heap, (place,), s.value, (0,) if s.guarded else ())

    def change(inner: ir.Block) -> ir.Block:
        lets = [where.let() for where in placed.values()]
        kept = ir.without(inner, lambda s: isinstance(s, ir.Allocate) and s.buffer in placed)
        return (*lets, *ir.map_block(kept, expression, store))

    return _in_grid(body, change)


def _refuse(buffer: ir.Buffer) -> None:
    raise Unsupported(
        f"the size of the temporary {buffer.name} depends on what is in it: a device cannot tell beforehand how much "
        'memory it takes; backend="llvm" runs this program'
    )


def _refuse_in_lanes(body: ir.Block, waiting: Sequence[ir.Allocate]) -> None:
    """A group has one part of a heap, and not one for each of its lanes."""
    loops = [each for each in ir.of_kind(body, ir.For) if each.kind == "lanes"]
    for allocation in [each for loop in loops for each in _allocations(loop.body)]:
        if allocation in waiting:
            raise Unsupported(
                f"each thread of a group would decide the size of the temporary {allocation.buffer.name}: a device "
                'cannot tell beforehand how much memory it takes; backend="llvm" runs this program'
            )
