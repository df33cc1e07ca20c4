"""Loop-invariant code motion: a temporary that is the same in each iteration is filled once, before the loop.

The program itself has no such arrays left: the simplifier computes them outside. But nests bring their own. A product
packs its factors, and in a loop with state one of them is often a matrix that stays as it is::

    for step < n                                    temporary right: f64[..]
      if 49152 <= b * h * h                         if 1 <= n and 49152 <= b * h * h
        temporary right: f64[..]                      parallel panel: right[..] = w[..]
        parallel panel: right[..] = w[..]      =>   for step < n
        parallel task: .. right[..] ..                if 49152 <= b * h * h
      else ..                                           parallel task: .. right[..] ..
                                                      else ..

What fills the temporary must read nothing that the loop writes or binds, write nothing else, fail in no way, and come
before all that reads it. Where it stands in branches, their tests must be the same in each iteration, and go with it.
So nothing is computed that the loop would not compute; the temporary lives longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ... import ir
from ...decisions import Decisions

# What does nothing but compute, and write to buffers
_PURE = ir.For | ir.If | ir.Let | ir.Declare | ir.Assign | ir.Store | ir.Prefetch


def hoisted(function: ir.Function, decisions: Decisions) -> ir.Function:
    """A function whose loops fill no temporary again with what is in it already."""
    return replace(function, body=_block(function.body, decisions))


def _block(block: ir.Block, decisions: Decisions) -> ir.Block:
    made: list[ir.Statement] = []
    for statement in block:
        match statement:
            case ir.For(kind="sequential"):
                made += _Hoisting(replace(statement, body=_block(statement.body, decisions)), decisions).statements()
            case ir.For(kind="lanes" | "jam"):
                made.append(statement)
            case _:
                made.append(ir.map_inside(statement, lambda inner: _block(inner, decisions)))
    return tuple(made)


class _Hoisting:
    """A loop, and what stands before it."""

    def __init__(self, loop: ir.For, decisions: Decisions) -> None:
        self.loop, self.decisions = loop, decisions
        self.changing = _changing(loop)
        self.stores = _stores(loop.body)
        self.own = ir.allocated_in(loop.body)
        self.allocated: list[ir.Allocate] = []
        self.filled: list[tuple[ir.Expression, ir.Block]] = []  # and when

    def statements(self) -> list[ir.Statement]:
        """The loop, after what it does not have to do itself."""
        some = self.loop.extent >= 1
        body = self.block(self.loop.body, some)
        before = [each for test, statements in self.filled for each in ir.branch(test, statements, ())]
        return [*self.allocated, *before, replace(self.loop, body=body)]

    def block(self, block: ir.Block, test: ir.Expression) -> ir.Block:
        """A block of the loop, which runs if a test holds, without what is moved."""
        filling: dict[str, list[ir.Statement]] = {}
        read: set[str] = set()
        again: set[str] = set()  # what is filled with something else after it was read
        for statement in block:
            written = set(_stores((statement,)))
            again |= written & read
            read |= ir.read_in((statement,)) - written
            for name in written:
                filling.setdefault(name, []).append(statement)
        moved: set[int] = set()
        made: list[ir.Statement] = []
        for statement in block:
            match statement:
                case ir.Allocate(buffer) if buffer.name not in again and self.movable(
                    buffer, statements := filling.get(buffer.name, [])
                ):
                    self.move(statement, test, tuple(statements))
                    moved |= {id(each) for each in statements}
                case ir.If(other, then, orelse) if id(statement) not in moved and self.invariant(other):
                    ways = other, ~other
                    branches = [self.block(each, test & way) for each, way in zip((then, orelse), ways)]
                    made.append(ir.If(other, branches[0], branches[1]))
                case _ if id(statement) not in moved:
                    made.append(statement)
        return tuple(made)

    def move(self, allocate: ir.Allocate, test: ir.Expression, statements: ir.Block) -> None:
        """Have a temporary before the loop, filled by these statements."""
        name = allocate.buffer.name
        self.allocated.append(allocate)
        self.own.remove(name)
        del self.stores[name]
        if self.filled and self.filled[-1][0] == test:
            statements = (*self.filled.pop()[1], *statements)
        self.filled.append((test, statements))

    def movable(self, buffer: ir.Buffer, statements: Sequence[ir.Statement]) -> bool:
        """Whether some statements fill a temporary with the same in each iteration, and they alone."""
        if not statements or _stores(statements) != {buffer.name: self.stores[buffer.name]}:
            return False
        same = self.changing.isdisjoint(ir.names_in(buffer.extents)) and all(
            self.repeated(statement, buffer) for statement in statements
        )
        return same and self.decisions.take("hoist", f"{buffer.name} out of {self.loop.variable}")

    def repeated(self, statement: ir.Statement, buffer: ir.Buffer) -> bool:
        """Whether a statement does the same in each iteration, and nothing but writing to a buffer."""
        parts = list(ir.walk((statement,)))
        bound = ir.bound_in((statement,))
        assigned = ir.assigned_in((statement,))
        outer = {variable.name for variable in ir.variables_of((statement,))} - bound
        read = ir.read_in((statement,)) - {buffer.name}
        return (
            isinstance(statement, ir.For | ir.If)
            and all(isinstance(each, _PURE) for each in parts)
            and assigned <= bound
            and self.changing.isdisjoint(outer)
            and read.isdisjoint(self.stores)
            and read.isdisjoint(self.own)
        )

    def invariant(self, test: ir.Expression) -> bool:
        """Whether a test has the same answer in each iteration, and may be asked without any: it reads nothing."""
        return self.changing.isdisjoint(ir.names_in([test])) and not any(
            isinstance(part, ir.Load) for part in ir.inside(test)
        )


def _changing(loop: ir.For) -> set[str]:
    """The names that a loop binds or assigns to."""
    return {loop.variable, *ir.bound_in(loop.body), *ir.assigned_in(loop.body)}


def _stores(block: Sequence[ir.Statement]) -> Counter[str]:
    """How many statements in a block write to each buffer."""
    return Counter(each.buffer.name for each in ir.walk(tuple(block)) if isinstance(each, ir.Store | ir.Update))
