"""Traversals: loops, one inside the other, that run through all indices of a range once.

Lowering writes a map or a reduction of a vector as chunks for the threads and lanes inside of each, and one of a matrix
as two loops. What passes over whole loops want to know is the same of both: which indices there are, and the block
that runs for each of them::

    parallel chunk < (n + 4095) // 4096
      lanes lane < minimum(n - chunk * 4096, 4096)        a traversal of n, whose index is i
        let i = chunk * 4096 + lane
        y[i] = exp(x[i])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ... import ir


@dataclass(frozen=True)
class Traversal:
    """The loops around a block that has none, from the outside in, and the indices that they run through."""

    loops: tuple[ir.For, ...]
    indices: tuple[str, ...]
    extents: tuple[ir.Expression, ...]
    lane: int  # the number of the index that is lanes; else the last one

    @property
    def body(self) -> ir.Block:
        """What runs for each index."""
        return self.loops[-1].body

    def with_body(self, body: ir.Block) -> ir.For:
        """The same loops around another block."""
        made = replace(self.loops[-1], body=body)
        for outer, inner in zip(self.loops[-2::-1], self.loops[:0:-1], strict=True):
            made = replace(outer, body=tuple([made if each is inner else each for each in outer.body]))
        return made

    @property
    def place(self) -> tuple[ir.Expression, ...]:
        """The indices in an order that puts lanes side by side."""
        return tuple([ir.Variable(self.indices[axis]) for axis in self.order])

    @property
    def order(self) -> tuple[int, ...]:
        """The numbers of the indices, that of the lanes last."""
        return tuple(sorted(range(len(self.indices)), key=lambda axis: axis == self.lane))

    @property
    def whole(self) -> bool:
        """Whether an array that has an element for each index is read or written in it."""
        parts = [part for statement in self.body for whole in ir.expressions_of(statement) for part in ir.inside(whole)]
        accesses = [each for each in (*self.body, *parts) if isinstance(each, ir.Store | ir.Load)]
        return any(set(self.place) <= set(access.indices) for access in accesses)


def traversal_of(statement: ir.Statement, lets: Mapping[str, ir.Expression]) -> Traversal | None:
    """The traversal that a statement is; ``lets`` are the bindings around it."""
    loops: list[ir.For] = []
    while isinstance(statement, ir.For):
        loops.append(statement)
        inner = [each for each in statement.body if isinstance(each, ir.For)]
        if (
            not all(isinstance(each, ir.For | ir.Let | ir.Declare | ir.Store | ir.Assign) for each in statement.body)
            or len(inner) > 1
        ):
            return None
        if not inner:
            return _counted(tuple(loops), lets)
        statement = inner[0]
    return None


def _counted(loops: tuple[ir.For, ...], lets: Mapping[str, ir.Expression]) -> Traversal | None:
    """The traversal of some loops: a pair that counts through chunks is one of its indices."""
    indices: list[str] = []
    extents: list[ir.Expression] = []
    position, lane = 0, -1
    while position < len(loops):
        pair = loops[position : position + 2]
        counted = chunked(*pair, lets) if len(pair) == 2 else None
        index, extent = counted or (pair[0].variable, pair[0].extent)
        indices.append(index)
        extents.append(extent)
        position += 2 if counted else 1
        lane = len(indices) - 1 if lane < 0 and loops[position - 1].kind == "lanes" else lane
    varying = {loop.variable for loop in loops} | {s.name for loop in loops for s in loop.body if isinstance(s, ir.Let)}
    if not varying.isdisjoint(ir.names_in(extents)):
        return None
    return Traversal(loops, tuple(indices), tuple(extents), lane if lane >= 0 else len(indices) - 1)


def chunked(outer: ir.For, inner: ir.For, lets: Mapping[str, ir.Expression]) -> tuple[str, ir.Expression] | None:
    """The index that two loops count through chunk by chunk, and its extent."""
    match inner.extent, inner.body[:1]:
        case (
            ir.Apply(
                minimum,
                (ir.Apply(subtract, (extent, ir.Apply(multiply, (ir.Variable(chunk), size)) as start)), size_again),
            ),
            (ir.Let(index, ir.Apply(add, (start_again, ir.Variable(lane)))),),
        ):
            names = (minimum.name, subtract.name, multiply.name, add.name)
            same = start == start_again and size == size_again and (chunk, lane) == (outer.variable, inner.variable)
            same = same and _parts(outer.extent, lets) == (extent, size)
            if same and names == ("minimum", "subtract", "multiply", "add"):
                return index, extent
    return None


def _parts(count: ir.Expression, lets: Mapping[str, ir.Expression]) -> tuple[ir.Expression, ir.Expression] | None:
    """What ``count`` chunks are made of, rounded up: the extent and the size of a chunk."""
    if isinstance(count, ir.Variable):
        count = lets.get(count.name, count)
    match count:
        case ir.Apply(divide, (ir.Apply(add, (extent, ir.Constant(less))), ir.Constant(size) as by)):
            if (divide.name, add.name, less) == ("floor_divide", "add", size - 1):
                return extent, by
        case ir.Apply(divide, (ir.Apply(subtract, (ir.Apply(add, (extent, size)), ir.Constant(1))), by)):
            if (divide.name, subtract.name, add.name) == ("floor_divide", "subtract", "add") and size == by:
                return extent, by
    return None
