"""What each construct costs: the one table behind counting by symbols and by running (``counting.py``).

A cost is four numbers. *Operations* are those on scalars, each as many as the additions it is worth. *Reads* and
*writes* are of single elements in memory. The *span* is the time with unboundedly many processors: the elements of a
generate run at once, values are combined in rounds, what stands one after the other takes its time one after the other
(as in NESL: Blelloch 1996). The table adds to what the blocks of an operation cost, which whoever counts has found out:
the sum over all their runs, and the longest of them.

Scalars are in no memory, and neither are totals that are one number: they are added to as a reduction does it. The
updates of an accumulate are combined in rounds, at most as many as the logarithm of its operations.

Arrays are made where they are stored: an array that a body makes is not copied into the result of the loop around.
Where an update happens in place (``in_place.py``) it costs what is written, otherwise a copy of the whole beside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...core.dims import Dim, Opaque
from ...core.terms import Block, Operation, Variable
from ...core.types import Type, rank
from ..in_place import Places
from .amounts import Amount, Number, larger, largest, log2

Shape = Sequence[Number]


@dataclass(frozen=True)
class Cost:
    """Scalar operations, elements read and written, and the span."""

    operations: Number = 0
    reads: Number = 0
    writes: Number = 0
    span: Number = 0

    def __add__(self, other: Cost) -> Cost:
        """One after the other."""
        return Cost(*[a + b for a, b in zip(self.numbers, other.numbers, strict=True)])

    def __mul__(self, times: Number) -> Cost:
        """So many times, one after the other."""
        return self.map(lambda number: number * times)

    def lasting(self, span: Number) -> Cost:
        """The same work in another time."""
        return Cost(self.operations, self.reads, self.writes, span)

    def either(self, other: Cost) -> Cost:
        """The larger of two costs, or an upper bound of both."""
        return Cost(*map(larger, self.numbers, other.numbers))

    @property
    def numbers(self) -> tuple[Number, ...]:
        return self.operations, self.reads, self.writes, self.span

    def map(self, function: Callable[[Number], Number]) -> Cost:
        return Cost(*map(function, self.numbers))

    @property
    def work(self) -> Number:
        """Operations, reads and writes together."""
        return self.operations + self.reads + self.writes

    def __str__(self) -> str:
        counts = {"operations": self.operations, "reads": self.reads, "writes": self.writes, "span": self.span}
        return "\n".join(f"{name + ':':11} {count}" for name, count in counts.items())


FREE = Cost()


@dataclass(frozen=True)
class Runs:
    """What the runs of a block cost: how many they are, all of them one after the other, and the longest."""

    count: Number = 0
    total: Cost = FREE
    longest: Number = 0

    @staticmethod
    def once(cost: Cost) -> Runs:
        return Runs(1, cost, cost.span)

    def over(self, index: Opaque, extent: Dim) -> Runs:
        """The runs in a loop, of which these are those in the iteration of an index."""
        total = self.total.map(lambda number: Amount.of(number).sum(index, extent))
        return Runs(self.count * Amount.of(extent), total, Amount.of(self.longest).highest(index, extent))

    @staticmethod
    def of(costs: Iterable[Cost]) -> Runs:
        runs = list(costs)
        return Runs(len(runs), sum(runs, FREE), largest([cost.span for cost in runs]))


def cost_of(
    operation: Operation, runs: Sequence[Runs], args: Sequence[Shape], results: Sequence[Shape], places: Places
) -> Cost:
    """What an operation costs, for the runs of its blocks and the shapes of its arguments and results.

    An operation that enters blocks of others (``apply``) has their runs too.
    """
    inside = sum([block.total for block in runs], FREE)
    match operation.op:
        case "primitive":
            return Cost(operations=operation.static[0].cost, span=operation.static[0].cost)
        case "index" | "project":
            return Cost(reads=1, span=1)
        case "pack" | "construct":
            return Cost(writes=len(args), span=1)
        case "case":
            return inside + Cost(reads=1, span=1)
        case "apply":
            return inside + Cost(span=1)
        case "par":
            return inside.lasting(largest([branch.longest for branch in runs]) + 1)
        case "generate":
            return inside.lasting(runs[0].longest + 1) + _stored(operation.blocks[0], 0, results)
        case _ if operation.row.combines and not operation.row.places:
            stored = _stored_scalars(operation.types, results) if operation.row.stacked else FREE
            return inside.lasting(_combined(runs)) + stored
        case _ if operation.row.combines:
            cells = sum([1 for block_type in operation.blocks[1].types if rank(block_type) == 0])
            updates = Cost(reads=runs[1].count * cells, writes=runs[1].count * cells)
            return (inside + updates).lasting(_combined(runs) + 1) + Cost(writes=sum(map(_size, results), 0))
        case "scatter":
            return _scatter(operation, runs[0], args, places)
        case "argsort":
            rounds = log2(args[0][0])
            moved = args[0][0] * rounds
            return Cost(moved, moved, moved, rounds * rounds)
        case "loop":
            states = len(operation.args) - 1
            return inside + _copied(args[1:], places) + _stored(operation.blocks[0], states, results[states:])
        case "while":
            return inside + _copied(args, places)
        case "accumulate":
            return inside.lasting(inside.span + log2(inside.operations)) + _copied_unless(places.taken, args)
        case "add_to":
            return Cost(1, 1, 1, 1) if len(operation.args) > 2 else Cost(operations=1, span=1)
        case "foreign":
            moved_in, moved_out = sum(map(_size, args), 0), sum(map(_size, results), 0)
            stated = operation.static[0].cost
            work: Number = 0 if stated is None else stated(*map(tuple, args))
            return Cost(work, moved_in, moved_out, work + moved_in + moved_out)
    return inside


def _size(shape: Shape) -> Number:
    return math.prod(shape)


def _combined(runs: Sequence[Runs]) -> Number:
    """The span of combining all elements."""
    elements, operators = runs
    return elements.longest + log2(elements.count) * operators.longest


def _stored_scalars(types: Sequence[Type], results: Sequence[Shape]) -> Cost:
    """Storing what each iteration gives as a scalar."""
    return Cost(writes=sum([_size(shape) for type, shape in zip(types, results, strict=True) if rank(type) == 1], 0))


def _stored(block: Block, first: int, results: Sequence[Shape]) -> Cost:
    """Storing the results of a block, from the first that is stacked: scalars, and arrays that it did not make."""
    made = sum([len(binding.types) for binding in block.bindings])
    cost = FREE
    for atom, shape in zip(block.results[first:], results, strict=True):
        if rank(atom.type) == 0:
            cost += Cost(writes=_size(shape))
        elif not (isinstance(atom, Variable) and atom.index < made):
            cost += Cost(reads=_size(shape), writes=_size(shape))
    return cost


def cost_of_results(term: Block, results: Sequence[Shape]) -> Cost:
    """Copies of a program's results that are arguments or constants, or that it gives back twice."""
    made = sum([len(binding.types) for binding in term.bindings])
    cost, seen = FREE, set()
    for atom, shape in zip(term.results, results, strict=True):
        if rank(atom.type) and (atom in seen or not (isinstance(atom, Variable) and atom.index < made)):
            cost += Cost(reads=_size(shape), writes=_size(shape), span=1)
        seen.add(atom)
    return cost


def _copied(args: Sequence[Shape], places: Places) -> Cost:
    """Copies of initial states that a loop overwrites, but whose memory it may not take."""
    overwritten = [k for k, source in enumerate(places.sources) if source == k]
    return _copied_unless([places.taken[k] for k in overwritten], [args[k] for k in overwritten])


def _scatter(operation: Operation, runs: Runs, args: Sequence[Shape], places: Places) -> Cost:
    element, destinations = operation.blocks[0], args[operation.static[1] :]
    axes = len(element.results) - len(destinations)
    values = [(*[runs.count], *shape[axes:]) for shape in destinations]
    written = runs.total.lasting(runs.longest + 1) + _stored(element, axes, values)
    return written + _copied_unless(places.taken, destinations)


def _copied_unless(taken: Sequence[bool], arrays: Sequence[Shape]) -> Cost:
    """Copies of the arrays whose memory is not taken."""
    sizes = [_size(shape) for shape, take in zip(arrays, taken, strict=True) if shape and not take]
    return Cost(reads=sum(sizes, 0), writes=sum(sizes, 0))
