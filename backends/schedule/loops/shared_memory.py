"""Shared memory: an array that is made of another element by element, when nobody needs that any more, takes its place.

Memory that was just read is in a cache, and what is written to memory that was not is read first. So a nest that reads
an array at the place alone that it writes of another may write to the array itself::

    nest i < n: e[i] = exp(x[i])                      nest i < n: y[i] = exp(x[i])
    sum = ..e[i]..                             =>     sum = ..y[i]..
    nest i < n: y[i] = e[i] / sum                     nest i < n: y[i] = y[i] / sum

The older array must be a temporary that this nest is the last to mention, the newer one a temporary or a result that it
is the first to. Nests say which they are, as each of their points runs once (``nests/elementwise.py``). Loops must be
so when all else has been decided, as others may have come into them: in each iteration all reads of the older array are
at the place of the write, and before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ... import ir
from ..nests.elementwise import Pairs, alike


def sharing_memory(function: ir.Function, pairs: Pairs) -> ir.Function:
    """A function whose arrays of these pairs are one where that can be."""
    sharing = _Sharing(pairs, function.results)
    for block in _blocks_with(function.body, {old for old, _ in pairs}):
        sharing.look(block, block is function.body)
    if not sharing.newer:
        return function
    return replace(function, body=ir.with_buffers(ir.without(function.body, sharing.is_unwanted), sharing.newest))


def _blocks_with(block: ir.Block, names: Collection[str]) -> Iterator[ir.Block]:
    """Of a block and those in it the ones that allocate arrays of these names."""
    if any(isinstance(each, ir.Allocate) and each.buffer.name in names for each in block):
        yield block
    for statement in block:
        for inner in ir.blocks_of(statement):
            yield from _blocks_with(inner, names)


@dataclass
class _Sharing:
    """Finds arrays of which there is a ``newer`` one in the same memory."""

    pairs: Pairs
    results: Sequence[ir.Buffer]
    newer: dict[str, ir.Buffer] = field(default_factory=dict)
    taking: set[str] = field(default_factory=set)  # the newer ones

    def look(self, block: ir.Block, outermost: bool) -> None:
        """Find those of a block."""
        temporary = {each.buffer.name: each.buffer for each in block if isinstance(each, ir.Allocate)}
        there = {**temporary, **{buffer.name: buffer for buffer in self.results if outermost}}
        first, last = dict[str, int](), dict[str, int]()
        for number, statement in enumerate(block):
            if not isinstance(statement, ir.Allocate):
                for name in ir.mentioned((statement,))[1]:
                    first.setdefault(name, number)
                    last[name] = number
        for old, new in sorted(self.pairs):
            meet = old in temporary and new in there and last.get(old, -1) == first.get(new, -2)
            if not meet or old in self.newer or new in self.taking or not alike(temporary[old], there[new]):
                continue
            order = _Order(old, new)
            if order.look((block[last[old]],), False) and order.order:
                self.newer[old] = there[new]
                self.taking.add(new)

    def newest(self, buffer: ir.Buffer) -> ir.Buffer:
        """The array whose memory an array is in."""
        while buffer.name in self.newer:
            buffer = self.newer[buffer.name]
        return buffer

    def is_unwanted(self, statement: ir.Statement) -> bool:
        """Whether it allocates what is in the memory of another array, or of a result."""
        if not isinstance(statement, ir.Allocate):
            return False
        return statement.buffer.name in self.taking or self.newest(statement.buffer) in self.results


@dataclass
class _Order:
    """Reads of an old array and writes of a new one: in ``order`` if all are at one place, and reads come before."""

    old: str
    new: str
    place: tuple[ir.Expression, ...] | None = None
    order: bool = True

    def look(self, block: ir.Block, written: bool) -> bool:
        """Go through a block, before which the new array was written or not; whether it is so behind it."""
        for statement in block:
            for load in ir.loads(statement):
                if load.buffer.name == self.new or (load.buffer.name == self.old and written):
                    self.order = False
                elif load.buffer.name == self.old:
                    self.at(load)
            match statement:
                case ir.Store(ir.Buffer(name)) if name == self.new:
                    self.at(statement)
                    written = True
                case ir.For():
                    written = self.look(statement.body, written)
                case ir.If():
                    written = self.look(statement.then, written) | self.look(statement.orelse, written)
                case ir.Let() | ir.Declare() | ir.Assign() | ir.Require():
                    pass
                case ir.Store(ir.Buffer(name)) if name != self.old:
                    pass
                case _ if not {self.old, self.new}.isdisjoint(ir.mentioned((statement,))[1]):
                    self.order = False
        return written

    def at(self, access: ir.Load | ir.Store) -> None:
        """Note the place of an access."""
        self.place = self.place or access.indices
        if access.guarded or access.indices != self.place:
            self.order = False
