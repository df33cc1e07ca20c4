"""What generated code costs: an estimate for each nest, from the loops that are run and the sizes of a call.

``az.cost`` counts what a *program* asks for, on no machine. Here the loops that were made of it are looked at, with
their lanes, tiles and threads, on one. A nest takes the time of its arithmetic, of its reads and writes, of its longest
chain or of its memory, whichever is the longest, and some of the others::

    parallel i < n                  n = 1000, m = 2000, one thread of 8 lanes
      lanes j < m by 32             operations: 2 n m = 4.0e6, as 2 n m / 8 instructions
        y[i, j] = x[j] * s + t[i]   bytes: 8 n m written, 8 m read (x stays in a cache), 8 n read

* **Operations** run as often as the loops around them turn, but for those inside of the innermost loop that they vary
  with: there they stand outside, as LLVM moves them. Those that vary with lanes take an instruction for as many as a
  register holds; what does not vary with a jam is done once for its copies.
* **A chain** of additions into one variable takes the latency of each, divided by the lanes and copies that have
  variables of their own.
* **Bytes** that come from beyond a cache: what one iteration of a loop touches is there for the next one if it fits
  into the cache, and for no other loop around (the footprint of Ferrante, Sarkar and Thrash 1991). What was touched
  in a nest before is there if all that was touched since fits. A write that leaves the cache is read before.
* **Threads** divide the time as far as there are iterations worth one. On a device a kernel takes the time of its
  launch, and compute units divide the rest, each of which works on ``UNIT_LANES`` iterations at a time.

An estimate compares codes for the same sizes; it is no promise. A loop whose extent is computed from data turns
``UNKNOWN_TURNS`` times, and an integer that stands alone, as a number of steps does, is taken for as many; of a branch
that data decides each side counts half.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.host_arrays import on_device
from ..core.showing import Shown
from ..core.source import Origin
from ..core.types import i64
from . import ir
from .lowering import Lowered
from .origins import Names, lines_text
from .specialisations import purpose
from .tables import table, us
from .target import (
    APART,
    BESIDE,
    CYCLE,
    ENTRY_CYCLES,
    GATHER_CYCLES,
    L2_RATE,
    L3_BYTES,
    L3_RATE,
    LATENCY_CYCLES,
    LAUNCH_SECONDS,
    LINE_BYTES,
    MEMORY_RATE,
    OPERATION_CYCLES,
    RUN_BYTES,
    START_SECONDS,
    STREAMS,
    TURN_CYCLES,
    UNIT_LANES,
    UNKNOWN_SHARE,
    UNKNOWN_TURNS,
    Target,
)

_FREE = frozenset(("add", "subtract", "multiply", "negative", "minimum", "maximum"))
DATA = "data"  # among the loops that something varies with: what is read, too


@dataclass(frozen=True)
class Row:
    """A nest, or a kernel: what it writes by which loops; the seconds of a call that it takes, and what it does.

    ``number`` counts the nests of the code; ``runs`` is how often it is begun. ``operations`` are on scalars, each as
    many as the additions it is worth; ``bytes`` come from, or go to, beyond the first cache. ``lines`` are the user's,
    those that it computes something for.
    """

    number: int
    name: str
    seconds: float
    operations: float
    bytes: float
    runs: float
    lines: tuple[Origin, ...] = ()

    @property
    def title(self) -> str:
        """The name, and the user's lines: ``total3: parallel, lanes of 8 (model.py:12)``."""
        return f"{self.name} ({lines_text(self.lines)})" if self.lines else self.name


@dataclass(frozen=True)
class Breakdown(Shown):
    """The nests or kernels of a call, those that take longest first; ``seconds`` is the time of all."""

    rows: tuple[Row, ...]
    seconds: float

    def __str__(self) -> str:
        rows = [
            (row.title, us(row.seconds), f"{row.operations:.3g}", f"{row.bytes:.3g}", f"{row.runs:.0f}")
            for row in self.rows
        ]
        return table(["us", "operations", "bytes", "runs"], [*rows, ("in all", us(self.seconds))])

    __repr__ = __str__

    @property
    def by_number(self) -> dict[int, float]:
        """The seconds of rows, by their numbers."""
        return {row.number: row.seconds for row in self.rows}

    @staticmethod
    def of(rows: Sequence[Row], seconds: float | None = None) -> Breakdown:
        """Rows in the order of their time, which is that of the whole if nothing else is said."""
        ordered = sorted(rows, key=lambda row: -row.seconds)
        return Breakdown(tuple(ordered), sum([row.seconds for row in rows]) if seconds is None else seconds)


@dataclass(frozen=True)
class Given:
    """What is known of a call: its sizes, and the arguments of a program where they are there."""

    sizes: Mapping[str, int]
    arguments: Sequence[Any] = ()

    def arrays(self, lowered: Lowered) -> dict[str, Any]:
        """Arguments that this machine can read, and constants, by the names of their buffers in a form."""
        buffers, constants = lowered.function.arguments, [constant.array for constant in lowered.constants]
        own = zip(buffers[len(buffers) - len(constants) :], constants, strict=True)
        known = [*zip(buffers, self.arguments, strict=False), *own]
        return {buffer.name: array for buffer, array in known if not on_device(array)}


def nests(block: ir.Block) -> Iterator[ir.For | ir.While | ir.Kernel]:
    """The rows of a function: kernels, loops that threads share, and other loops that are in none and have none."""
    for statement in block:
        match statement:
            case ir.For(kind="sequential", body=body) if _shares(body):
                yield from nests(body)
            case ir.While(head, _, body) if _shares((*head, *body)):
                yield from nests((*head, *body))
            case ir.For() | ir.While() | ir.Kernel():
                yield statement
            case ir.If(_, then, orelse):
                yield from nests((*then, *orelse))
            case _:
                pass


def _shares(block: ir.Block) -> bool:
    return any(
        isinstance(each, ir.Kernel) or (isinstance(each, ir.For) and each.kind == "parallel") for each in ir.walk(block)
    )


def estimate(
    lowered: Lowered, target: Target, sizes: Mapping[str, int], arrays: Mapping[str, Any], threads: int
) -> list[Row]:
    """A row for each nest of a form (``nests``), in their order, for the sizes and the arguments of a call.

    Arguments may be missing: then what is read of them is not known.
    """
    function, names = lowered.function, Names(lowered.context.shared.origins)
    found = _Rows(function, target, _Samples(sizes, arrays), threads)
    with np.errstate(all="ignore"):
        found.block(function.body, _ONCE)
    return [replace(found.rows[id(nest)], lines=names.lines(nest)) for nest in nests(function.body)]


Numbers = np.ndarray[Any, np.dtype[Any]]

SAMPLES = 60  # has many divisors: the few turns of a short loop are sampled alike
_ONCE = np.ones(SAMPLES)
_STRIDES = (1, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 49, 53, 59)  # have no divisor in common with them


class _Samples:
    """Values of expressions in some turns of the loops around, drawn evenly: so triangles and tails have their share.

    Where turns of an inner loop depend on that of an outer one, the mean of their product over the samples is their
    number: ``sum(i < n: sum(j < i: 1))`` is n times the mean of i.
    """

    def __init__(self, sizes: Mapping[str, int], arrays: Mapping[str, Any]) -> None:
        self.names: dict[str, Numbers | None] = {name: np.full(SAMPLES, size) for name, size in sizes.items()}
        self.arrays = arrays
        self._loops = 0

    def enter(self, variable: str, extent: ir.Expression) -> Numbers:
        """How often a loop turns; its variable is somewhere in between."""
        turns = self.length(extent)
        stride = _STRIDES[self._loops % len(_STRIDES)]
        self._loops += 1
        place = (np.arange(SAMPLES) * stride % SAMPLES + 0.5) / SAMPLES
        self.names[variable] = np.floor(place * turns).astype(np.int64)
        return turns

    def length(self, extent: ir.Expression) -> Numbers:
        """What an extent is."""
        found = self.of(extent)
        return np.full(SAMPLES, UNKNOWN_TURNS) if found is None else np.maximum(found, 0).astype(float)

    def share(self, test: ir.Expression) -> Numbers:
        """How often a test holds."""
        found = self.of(test)
        return np.full(SAMPLES, UNKNOWN_SHARE) if found is None else found.astype(float)

    def of(self, expression: ir.Expression) -> Numbers | None:
        """The values of an expression; None where data decides them."""
        match expression:
            case ir.Constant(value, type):
                return np.full(SAMPLES, value, type.dtype)
            case ir.Variable(name):
                return self.names.get(name)
            case ir.Apply(primitive, arguments, type):
                given = [self.of(argument) for argument in arguments]
                known = [each for each in given if each is not None]
                return np.asarray(primitive.numpy(*known)).astype(type.dtype) if len(known) == len(given) else None
            case ir.Select(test, then, orelse):
                first, second, held = self.of(then), self.of(orelse), self.share(test)
                return None if first is None or second is None else held * first + (1 - held) * second
            case ir.Load(buffer, indices) if buffer.name in self.arrays:
                array = np.asarray(self.arrays[buffer.name])
                places = [self.of(index) for index in indices]
                if array.size == 0 or any(place is None for place in places):
                    return None
                found = zip(places, array.shape, strict=True)
                clipped = [np.clip(place, 0, n - 1).astype(np.int64) for place, n in found if place is not None]
                return np.broadcast_to(array[tuple(clipped)], SAMPLES)
            case ir.Load(_, (), _) if expression.type == i64:
                return np.full(SAMPLES, UNKNOWN_TURNS)  # as if it were a number of turns, from which others are made
        return None


class _Rows:
    """The rows of a function, found on a walk through what is outside of them."""

    def __init__(self, function: ir.Function, target: Target, samples: _Samples, threads: int) -> None:
        self.target, self.samples, self.threads = target, samples, threads
        self.assigned = _assigned(function.body)
        self.own = {id(nest) for nest in nests(function.body)}
        buffers = [*function.arguments, *function.results]
        buffers += [each.buffer for each in ir.of_kind(function.body, ir.Allocate)]
        self.buffers = buffers
        counted = enumerate(nests(function.body))
        self.rows = {id(nest): Row(k, _name(nest), 0.0, 0.0, 0.0, 0.0) for k, nest in counted}
        self.repeats = False  # whether this is the first turn of a loop, of which there will be another one
        self.touched = 0.0  # bytes, by the nests so far
        self.latest: dict[str, float] = {}  # what was touched when a buffer was

    def since(self, buffer: ir.Buffer) -> float:
        """The bytes that were touched since a buffer was: in the call before, if it was not yet in this one."""
        return self.touched - self.latest.get(buffer.name, -sum(map(self.bytes, self.buffers)))

    def block(self, block: ir.Block, runs: Numbers) -> None:
        for statement in block:
            self.statement(statement, runs)

    def statement(self, statement: ir.Statement, runs: Numbers) -> None:
        if id(statement) in self.own and isinstance(statement, ir.For | ir.While | ir.Kernel):
            self.rows[id(statement)] = _Nest(self, statement).added_to(self.rows[id(statement)], float(runs.mean()))
            return
        match statement:
            case ir.Let() | ir.Declare():
                self.bind(statement)
            case ir.For(variable, extent, _, body):
                turns = self.samples.enter(variable, extent)
                self.turn(body, runs * turns)
            case ir.While(head, _, body):
                self.turn((*head, *body), runs * UNKNOWN_TURNS)
            case ir.If(test, then, orelse):
                share = self.samples.share(test)
                for branch, taken in ((then, share), (orelse, 1 - share)):
                    if taken.any():
                        self.block(branch, runs * taken)
            case _:
                pass

    def turn(self, body: ir.Block, runs: Numbers) -> None:
        """A body as it is in the second turn of the outermost loop: what the first one touched is there."""
        if not self.repeats:
            self.repeats = True
            self.block(body, runs)
            self.repeats = False
        self.block(body, runs)

    def bind(self, statement: ir.Let | ir.Declare) -> None:
        """Enter what a variable is, if it keeps its value."""
        value = statement.value if isinstance(statement, ir.Let) else statement.initial
        self.samples.names[statement.name] = None if statement.name in self.assigned else self.samples.of(value)

    def bytes(self, buffer: ir.Buffer) -> float:
        """The size of a buffer."""
        return buffer.scalar.bytes * math.prod([float(self.samples.length(each).mean()) for each in buffer.extents])


@dataclass(frozen=True)
class _Loop:
    """A loop around what is looked at: how often it turns, and how many turns are made at once."""

    variable: str
    turns: Numbers
    factor: float = 1.0
    lanes: bool = False
    spread: bool = False  # a device spreads its turns over units and their lanes

    @property
    def steps(self) -> Numbers:
        """Its turns, those made at once as one."""
        return self.turns if self.factor == 1 else _at_least_one(self.turns / self.factor)


def _at_least_one(turns: Numbers) -> Numbers:
    """Turns, of which a part takes as long as a whole one."""
    return np.where(turns > 0, np.maximum(turns, 1.0), 0.0)


@dataclass(frozen=True)
class _Access:
    """A place in memory that is touched: with which loops around it moves, and with which along its last axis."""

    buffer: ir.Buffer
    around: tuple[tuple[str, float], ...]  # variables and turns, in the order in which they turn
    varies: frozenset[str]
    along: frozenset[str]  # what moves it to neighbours
    axes: tuple[frozenset[str], ...]  # what each of its axes moves with
    lengths: tuple[float, ...]
    share: float
    written: bool

    @property
    def anywhere(self) -> float:
        """The bytes of the axes along which data tells the place."""
        told = [length for length, axis in zip(self.lengths, self.axes, strict=True) if DATA in axis]
        return math.prod(told) * self.buffer.scalar.bytes

    @property
    def run(self) -> float:
        """The bytes of neighbours that are touched one after the other."""
        bytes, covered = float(self.buffer.scalar.bytes), 1.0
        axes = list(zip(self.axes, self.lengths, strict=True))
        for variable, turns in reversed(self.around):
            if axes and variable in axes[-1][0] and DATA not in axes[-1][0]:
                bytes, covered = bytes * turns, covered * turns
                while axes and covered >= axes[-1][1]:  # all of the axis: what comes next is a neighbour of its end
                    covered = 1.0
                    axes.pop()
            elif variable in self.varies and turns > STREAMS:
                return bytes
        return bytes if DATA in self.varies else math.inf


class _Nest:
    """What a nest does."""

    def __init__(self, rows: _Rows, nest: ir.For | ir.While | ir.Kernel) -> None:
        self.rows, self.nest = rows, nest
        self.target, self.samples = rows.target, rows.samples
        self.depends: dict[str, frozenset[str]] = {}  # of bindings, on the loops around
        self.operations = self.computing = self.moving = self.chain = 0.0  # the last three in cycles
        self.accesses: dict[tuple[str, frozenset[str], frozenset[str], bool], _Access] = {}
        self.footprints: dict[tuple[tuple[str, float], ...], float] = {}  # by the loops around
        self.iterations = 1.0  # that a kernel may run at a time
        self.statement(nest, (), _ONCE)

    def added_to(self, row: Row, runs: float) -> Row:
        """The row of the nest, run so many times."""
        caches = (self.target.l1_bytes, L2_RATE), (self.target.l2_bytes, L3_RATE), (L3_BYTES, MEMORY_RATE)
        moved = [self.traffic(size) for size, _ in caches]
        memory = max([slow / rate for (_, slow), (_, rate) in zip(moved, caches, strict=True)])
        workers, side_by_side, start = self.shared()
        self.rows.touched += self.footprint(())
        self.rows.latest |= dict.fromkeys([access.buffer.name for access in self.accesses.values()], self.rows.touched)
        cycles = [each / side_by_side for each in (self.computing, self.moving, self.chain)]
        *rest, longest = sorted([*cycles, memory])
        seconds = CYCLE * (longest + BESIDE * sum(rest)) / workers + start
        return replace(
            row, seconds=runs * seconds, operations=runs * self.operations, bytes=runs * moved[0][0], runs=runs
        )

    def shared(self) -> tuple[float, float, float]:
        """How many threads or compute units have something to do, for how many iterations at a time, from when on."""
        match self.nest:
            case ir.For(_, extent, "parallel", _, grain=grain):
                least = 1.0 if grain is None else max(1.0, float(self.samples.length(grain).mean()))
                workers = max(1.0, min(self.rows.threads, float(self.samples.length(extent).mean()) / least))
                return workers, 1.0, START_SECONDS if workers > 1 else 0.0
            case ir.Kernel():
                beside = min(self.iterations, float(UNIT_LANES))
                return max(1.0, min(self.target.units, self.iterations / beside)), beside, LAUNCH_SECONDS
        return 1.0, 1.0, 0.0

    # The walk: what is done, and how often

    def block(self, block: ir.Block, around: tuple[_Loop, ...], share: Numbers) -> None:
        for statement in block:
            self.statement(statement, around, share)

    def statement(self, statement: ir.Statement, around: tuple[_Loop, ...], share: Numbers) -> None:
        match statement:
            case ir.Let(name, value) | ir.Declare(name, value):
                self.rows.bind(statement)
                self.depends[name] = self.read(value, around, share)
                if isinstance(statement, ir.Declare) and around:  # what it becomes varies with the loops inside
                    self.depends[name] |= {around[-1].variable}
            case ir.Assign(name, value):
                varies = self.read(value, around, share)
                self.depends[name] = self.depends.get(name, frozenset()) | varies
                if any(isinstance(e, ir.Variable) and e.name == name for e in ir.inside(value)):
                    self.chain += float((share * LATENCY_CYCLES * _steps(around)).mean())
            case ir.Store(buffer, indices, value) | ir.Update(buffer, indices, _, value):
                self.read(value, around, share)
                self.touch(buffer, indices, around, share, written=True)
            case ir.For(variable, extent, kind, body, factor):
                self.read(extent, around, share)
                wide = kind in ("lanes", "jam")
                turns = self.samples.enter(variable, extent)
                loop = _Loop(variable, turns, factor if wide else 1, kind == "lanes", kind in ("parallel", "lanes"))
                inside = (*around, loop)
                self.computing += float((share * (ENTRY_CYCLES * _steps(around) + TURN_CYCLES * _steps(inside))).mean())
                if loop.spread:
                    at_once = math.prod([each.turns for each in inside if each.spread], start=_ONCE)
                    self.iterations = max(self.iterations, float(at_once.mean()))
                self.block(body, inside, share)
            case ir.While(head, test, body):
                inside = (*around, _Loop(f"while {id(statement)}", np.full(SAMPLES, UNKNOWN_TURNS)))
                self.block(head, inside, share)
                self.read(test, inside, share)
                self.block(body, inside, share)
            case ir.If(test, then, orelse):
                self.read(test, around, share)
                held = self.samples.share(test)
                self.block(then, around, share * held)
                self.block(orelse, around, share * (1 - held))
            case ir.Require(test):
                self.read(test, around, share)
            case ir.Kernel(_, body):
                self.block(body, around, share)
            case _:
                pass

    def read(self, value: ir.Expression, around: tuple[_Loop, ...], share: Numbers) -> frozenset[str]:
        """Count what is computed; gives the loops that it varies with, and whether data is in it."""
        match value:
            case ir.Constant():
                return frozenset()
            case ir.Variable(name):
                return self.depends.get(name, frozenset([name]))
            case ir.Load(buffer, indices):
                for index in indices:
                    self.read(index, around, share)
                return self.touch(buffer, indices, around, share) | {DATA}
        varies = frozenset[str]().union(*[self.read(each, around, share) for each in ir.operands(value)])
        if isinstance(value, ir.Apply) and value.type == i64 and DATA not in varies and value.primitive.name in _FREE:
            return varies  # an address, which moves with the loops
        cost = value.primitive.cost if isinstance(value, ir.Apply) else 1
        times, vectors = self.times(varies, around, value.type.bytes)
        counted = 2 if isinstance(value, ir.MultiplyAdd) else cost  # in the time of one
        self.operations += float((share * counted * times).mean())
        self.computing += float((share * cost * OPERATION_CYCLES * vectors).mean())
        return varies

    def touch(
        self,
        buffer: ir.Buffer,
        indices: Sequence[ir.Expression],
        around: tuple[_Loop, ...],
        share: Numbers,
        written: bool = False,
    ) -> frozenset[str]:
        """Count an access; gives the loops that it varies with."""
        parts = [self.parts(index) for index in indices]
        axes = tuple([frozenset[str]().union(*each) for each in parts])
        varies = frozenset[str]().union(*axes)
        jumps = [each for each in (parts or [[]])[-1] if DATA in each]
        along = frozenset[str]().union(*axes[-1:]).difference(*axes[:-1], *jumps)
        lengths = tuple([float(self.samples.length(extent).mean()) for extent in buffer.extents])
        times, vectors = self.times(varies, around, buffer.scalar.bytes)
        lanes = {loop.variable for loop in around if loop.lanes} & varies
        self.moving += float((share * (GATHER_CYCLES * times if lanes - along else OPERATION_CYCLES * vectors)).mean())
        key, often = (buffer.name, varies, along, written), float(share.mean())
        if key not in self.accesses or self.accesses[key].share < often:
            self.accesses[key] = _Access(buffer, _as_run(around), varies, along, axes, lengths, often, written)
        return varies

    def parts(self, index: ir.Expression) -> list[frozenset[str]]:
        """The loops that each part of an index varies with, and whether data is in it."""
        match index:
            case ir.Variable(name):
                return [self.depends.get(name, frozenset([name]))]
            case ir.Load(_, indices):
                return [frozenset([DATA]).union(*[part for each in indices for part in self.parts(each)])]
        return [part for each in ir.operands(index) for part in self.parts(each)]

    def times(self, varies: frozenset[str], around: tuple[_Loop, ...], size: int) -> tuple[Numbers, Numbers]:
        """How often something runs that varies with some loops, and in how many instructions."""
        numbers = [number for number, loop in enumerate(around) if loop.variable in varies]
        times = vectors = _ONCE
        for loop in around[: numbers[-1] + 1 if numbers else 0]:
            mine = loop.variable in varies
            registers = max(1.0, loop.factor * size / self.target.register_bytes)  # of a strip, also of a short one
            times = times * (loop.turns if mine else loop.steps)
            own = np.ceil(loop.steps) * registers if loop.lanes else loop.turns
            vectors = vectors * (own if mine else loop.steps)
        return times, vectors

    # Memory

    def traffic(self, capacity: float) -> tuple[float, float]:
        """The bytes that come from beyond a cache of so many or go there, and how many read in order take as long."""
        moved = [(access, self.fetched(access, capacity)) for access in self.accesses.values()]
        slow = [amount * (APART if access.run < RUN_BYTES else 1.0) * (1 + access.written) for access, amount in moved]
        return sum([amount for _, amount in moved]), sum(slow)

    def footprint(self, around: tuple[tuple[str, float], ...]) -> float:
        """The bytes that are touched in one turn of some loops, the outermost ones of the nest."""
        if around not in self.footprints:
            inside = [access for access in self.accesses.values() if access.around[: len(around)] == around]
            self.footprints[around] = sum([self.distinct(access, len(around)) for access in inside])
        return self.footprints[around]

    def fetched(self, access: _Access, capacity: float) -> float:
        """The bytes that an access fetches, if a turn finds what the one before touched where a turn's bytes fit.

        Turns of loops further out begin anew.
        """
        depth = len(access.around)
        level = next((k for k in range(depth) if self.footprint(access.around[:k]) <= capacity), depth)
        if level == 0 and self.rows.since(access.buffer) <= capacity:
            return 0.0
        if DATA in access.varies and access.anywhere > capacity:
            return access.share * self.lines(access, 0)
        kept = max(0, level - 1)
        return access.share * math.prod([turns for _, turns in access.around[:kept]]) * self.distinct(access, kept)

    def distinct(self, access: _Access, level: int) -> float:
        """The bytes of different places that loops from a level inwards touch, by whole lines."""
        return min(self.lines(access, level), max(LINE_BYTES, self.rows.bytes(access.buffer)))

    def lines(self, access: _Access, level: int) -> float:
        """The bytes of the lines that they touch, however often the same."""
        inside = [loop for loop in access.around[level:] if loop[0] in access.varies]
        size = access.buffer.scalar.bytes
        neighbours = math.prod([turns for variable, turns in inside if variable in access.along])
        return math.prod([turns for _, turns in inside]) * max(size, LINE_BYTES / neighbours if neighbours else size)


def _name(nest: ir.For | ir.While | ir.Kernel) -> str:
    return nest.name if isinstance(nest, ir.Kernel) else purpose((nest,))


def _as_run(around: tuple[_Loop, ...]) -> tuple[tuple[str, float], ...]:
    """Loops in the order in which they turn: those inside of lanes and jams run once for all that is side by side."""
    outside = [(loop.variable, float(loop.steps.mean())) for loop in around]
    beside = [(loop.variable, float(np.minimum(loop.factor, loop.turns).mean())) for loop in around if loop.factor > 1]
    return (*outside, *beside)


def _steps(around: tuple[_Loop, ...]) -> Numbers:
    """How often the innermost of some loops turns, in vectors and copies."""
    return math.prod([loop.steps for loop in around], start=_ONCE)


def _assigned(block: ir.Block) -> set[str]:
    """The variables that do not keep their value."""
    statements = list(ir.walk(block))
    names = {each.name for each in statements if isinstance(each, ir.Assign)}
    return names | {one.name for each in statements if isinstance(each, ir.For) for one in each.reductions}


def measured(rows: Sequence[Row], seconds: Sequence[float], runs: Sequence[int]) -> list[Row]:
    """Rows with the time that each took, and how often it was run."""
    found = zip(rows, seconds, runs, strict=True)
    return [replace(row, seconds=time, runs=float(count)) for row, time, count in found]
