"""Temporaries of a kernel's iterations whose sizes the iterations decide: counted, placed one after the other, used.

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

from ..core.language import Unsupported
from ..core.types import i64
from .loops import (
    Allocate,
    Assign,
    Barrier,
    Block,
    Buffer,
    Constant,
    Declare,
    Expression,
    For,
    Function,
    If,
    Kernel,
    Let,
    Load,
    Require,
    Select,
    Statement,
    Store,
    Variable,
    While,
    walk,
)
from .loops_walk import blocks_of, bound_in, expressions, grid, inside, mentioned, written_in
from .lowering.arithmetic import folded, product
from .lowering.rewriting import map_block, map_operands, without

ZERO, ONE = Constant(0, i64), Constant(1, i64)


def with_heaps(function: Function, group: int) -> Function:
    """A split function in which no kernel allocates what its iterations decide; groups are of so many threads."""
    return replace(function, body=_Heaps(function, group).host(function.body))


class _Heaps:
    def __init__(self, function: Function, group: int) -> None:
        self.group = group
        self.taken = set(function.sizes).union(*mentioned(function.body))
        self.number = 0
        self.heaps: set[str] = set()  # which iterations have their own parts of

    def host(self, block: Block) -> Block:
        made: list[Statement] = []
        for statement in block:
            match statement:
                case Kernel():
                    made.extend(self.kernel(statement))
                case For():
                    made.append(replace(statement, body=self.host(statement.body)))
                case If(test, then, orelse):
                    made.append(If(test, self.host(then), self.host(orelse)))
                case While(head, test, body):
                    made.append(While(self.host(head), test, self.host(body)))
                case _:
                    made.append(statement)
        return tuple(made)

    def kernel(self, kernel: Kernel) -> list[Statement]:
        """The kernel, behind what counts and places its temporaries."""
        waiting = [each for each in _allocations(kernel.body) if decided_inside(each.buffer, kernel.body)]
        _refuse_in_lanes(kernel.body, waiting)
        made: list[Statement] = []
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

    def place(self, allocation: Allocate, kernel: Kernel, made: list[Statement]) -> _Placed:
        """Emit what counts one temporary in all iterations, and what finds its places."""
        self.number = self.free_number()
        buffer, k = allocation.buffer, self.number
        loops = grid(kernel.body)[1]
        count = product([loop.extent for loop in loops])
        sizes, starts = (Buffer(f"{stem}{k}_{buffer.name}", i64, (count,)) for stem in ("sizes", "starts"))
        ends = Buffer(f"ends{k}_{buffer.name}", i64, (Constant(self.group, i64),))
        made.extend([Allocate(sizes), Allocate(starts), Allocate(ends)])
        made.append(Kernel(f"count{k}_{buffer.name}", _counting(kernel.body, allocation, sizes, self.heaps)))
        made.extend(self.placing(k, sizes, starts, ends, count))
        whole = Variable(f"whole{k}_{buffer.name}", i64)
        made.append(Let(whole.name, Load(ends, (Constant(self.group - 1, i64),))))
        heap = Buffer(f"heap{k}_{buffer.name}", buffer.scalar, (whole,))
        made.append(Allocate(heap))
        return _Placed(heap, starts, f"start{k}_{buffer.name}", _iteration(loops))

    def free_number(self) -> int:
        """The next number that is free behind each of the short names of ``placing``."""
        stems = ("lane", "at", "place", "sum", "start", "sums")
        numbers = itertools.count(self.number + 1)
        return next(k for k in numbers if self.taken.isdisjoint(f"{stem}{k}" for stem in stems))

    def placing(self, k: int, sizes: Buffer, starts: Buffer, ends: Buffer, count: Expression) -> Iterator[Statement]:
        """The sums of the sizes before each: a group, each thread with a stretch; the last ends with all."""
        lane, at, place = (Variable(f"{stem}{k}", i64) for stem in ("lane", "at", "place"))
        summed, start = Variable(f"sum{k}", i64), Variable(f"start{k}", i64)
        sums = Buffer(f"sums{k}", i64, (Constant(self.group, i64),))
        stretch = folded("floor_divide", folded("add", count, Constant(self.group - 1, i64)), Constant(self.group, i64))
        where = Let(place.name, folded("add", folded("multiply", lane, stretch), at))
        size = Load(sizes, (place,), (0,))
        add = (where, Assign(summed.name, folded("add", summed, size)))
        move = (where, Store(starts, (place,), start, (0,)), Assign(start.name, folded("add", start, size)))
        before = (Assign(start.name, folded("add", start, Load(sums, (at,)))),)
        body: Block = (
            Declare(summed.name, ZERO),
            For(at.name, stretch, "sequential", add),
            Store(sums, (lane,), summed),
            Barrier(),
            Declare(start.name, ZERO),
            For(at.name, lane, "sequential", before),
            For(at.name, stretch, "sequential", move),
            Store(ends, (lane,), start),
        )
        yield Allocate(sums)
        loop = For(lane.name, Constant(self.group, i64), "lanes", body, self.group)
        yield Kernel(f"place{k}_{starts.name}", (loop,))


@dataclass(frozen=True)
class _Placed:
    """A temporary in a heap: where each iteration's begins."""

    heap: Buffer
    starts: Buffer
    name: str  # of the start of this iteration
    iteration: Expression

    def let(self) -> Let:
        return Let(self.name, Load(self.starts, (self.iteration,)))

    def at(self, buffer: Buffer, indices: Sequence[Expression], guarded: Sequence[int]) -> Expression:
        """The place of an element; outside of the heap where it is outside of the temporary, along guarded axes."""
        place: Expression = ZERO
        for k, (index, extent) in enumerate(zip(indices, buffer.extents, strict=True)):
            place = index if k == 0 else folded("add", folded("multiply", place, extent), index)
        place = folded("add", Variable(self.name, i64), place)
        for axis in guarded:
            index = indices[axis]
            within = folded(
                "logical_and", folded("less_equal", ZERO, index), folded("less", index, buffer.extents[axis])
            )
            place = Select(within, place, Constant(-1, i64), i64)
        return place


# What a kernel consists of


def _allocations(body: Block) -> list[Allocate]:
    return [each for each in walk(body) if isinstance(each, Allocate)]


def decided_inside(buffer: Buffer, body: Block) -> bool:
    """Whether the extents of a kernel's temporary mention what the kernel itself binds."""
    bound = bound_in(body)
    return any(
        isinstance(part, Load) or (isinstance(part, Variable) and part.name in bound)
        for extent in buffer.extents
        for part in inside(extent)
    )


def _in_grid(body: Block, change: Callable[[Block], Block]) -> Block:
    """A kernel's body with that of its grid changed."""
    last = body[-1] if body else None
    if isinstance(last, For) and last.kind == "parallel":
        return (*body[:-1], replace(last, body=_in_grid(last.body, change)))
    return change(body)


def _iteration(loops: Sequence[For]) -> Expression:
    """The number of an iteration of a grid."""
    number: Expression = ZERO
    for k, loop in enumerate(loops):
        variable = Variable(loop.variable, i64)
        number = variable if k == 0 else folded("add", folded("multiply", number, loop.extent), variable)
    return number


# Counting


def _counting(body: Block, allocation: Allocate, sizes: Buffer, heaps: set[str]) -> Block:
    """A kernel that stores how much each iteration needs for a temporary: the most, where it is made several times."""
    needed = Variable(f"needed_{allocation.buffer.name}", i64)
    sliced = _Slice(allocation, body, heaps).block
    size = product([folded("maximum", extent, ONE) for extent in allocation.buffer.extents])
    count = Assign(needed.name, folded("maximum", needed, size))
    store = Store(sizes, (_iteration(grid(body)[1]),), needed)
    return _in_grid(body, lambda inner: (Declare(needed.name, ONE), *sliced(inner, count), store))


class _Slice:
    """The statements of a kernel on which the extents of one of its temporaries depend."""

    def __init__(self, target: Allocate, body: Block, heaps: set[str]) -> None:
        self.target = target
        self.names: set[str] = set()
        self.buffers: set[str] = set()
        self.required: set[int] = set()  # requirements, by ``id``
        own = {each.buffer.name for each in _allocations(body)} | heaps
        written = written_in(body)
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

    def use(self, wholes: Sequence[Expression]) -> None:
        for whole in wholes:
            for part in inside(whole):
                if isinstance(part, Variable):
                    self.names.add(part.name)
                elif isinstance(part, Load):
                    self.buffers.add(part.buffer.name)
                    self.use([extent for extent in part.buffer.extents])

    def look(self, block: Block) -> bool:
        """Add what is needed by what is kept; whether something is."""
        kept = False
        for statement in block:
            inner = [self.look(each) for each in blocks_of(statement)]
            if self.keeps(statement) or any(inner):
                kept = True
                self.use(expressions(statement))
                if isinstance(statement, While):  # a failure ends it
                    self.required.update(id(each) for each in walk((statement,)) if isinstance(each, Require))
                if isinstance(statement, For):
                    self.names.update(reduction.name for reduction in statement.reductions)
        return kept

    def keeps(self, statement: Statement) -> bool:
        match statement:
            case Let(name) | Declare(name) | Assign(name):
                return name in self.names
            case Store(buffer):
                return buffer.name in self.buffers
            case Allocate(buffer):
                return buffer.name in self.buffers or statement == self.target
            case For():
                return any(reduction.name in self.names for reduction in statement.reductions)
            case Require():
                return id(statement) in self.required
        return False

    def block(self, block: Block, count: Statement) -> Block:
        """What is kept of a block, with a statement for each of the temporaries."""
        made: list[Statement] = []
        for statement in block:
            if isinstance(statement, Allocate) and statement == self.target:
                made.append(count)
                continue
            match statement:
                case For():
                    inner = self.block(statement.body, count)
                    if inner or self.keeps(statement):
                        made.append(replace(statement, body=inner))
                case If(test, then, orelse):
                    branches = self.block(then, count), self.block(orelse, count)
                    if any(branches):
                        made.append(If(test, *branches))
                case While(head, test, body):
                    head, body = self.block(head, count), self.block(body, count)
                    if head or body:
                        made.append(While(head, test, body))
                case _:
                    if self.keeps(statement):
                        made.append(statement)
        return tuple(made)


def _with_starts(body: Block, placed: dict[Buffer, _Placed]) -> Block:
    """A kernel's body with temporaries in their heaps."""

    def expression(e: Expression) -> Expression:
        e = map_operands(e, expression)
        if isinstance(e, Load) and e.buffer in placed:
            where = placed[e.buffer]
            return Load(where.heap, (where.at(e.buffer, e.indices, e.guarded),), (0,) if e.guarded else ())
        return e

    def store(s: Store) -> Store:
        if s.buffer not in placed:
            return s
        where = placed[s.buffer]
        place = where.at(s.buffer, s.indices, s.guarded)
        return Store(where.heap, (place,), s.value, (0,) if s.guarded else ())

    def change(inner: Block) -> Block:
        lets = [where.let() for where in placed.values()]
        kept = without(inner, lambda s: isinstance(s, Allocate) and s.buffer in placed)
        return (*lets, *map_block(kept, expression, store))

    return _in_grid(body, change)


def _refuse(buffer: Buffer) -> None:
    raise Unsupported(
        f"the size of the temporary {buffer.name} depends on what is in it: a device cannot tell beforehand how much "
        'memory it takes; backend="llvm" runs this program'
    )


def _refuse_in_lanes(body: Block, waiting: Sequence[Allocate]) -> None:
    """A group has one part of a heap, and not one for each of its lanes."""
    loops = [each for each in walk(body) if isinstance(each, For) and each.kind == "lanes"]
    for allocation in [each for loop in loops for each in _allocations(loop.body)]:
        if allocation in waiting:
            raise Unsupported(
                f"each thread of a group would decide the size of the temporary {allocation.buffer.name}: a device "
                'cannot tell beforehand how much memory it takes; backend="llvm" runs this program'
            )
