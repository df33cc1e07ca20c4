"""Strength reduction (Cocke and Kennedy 1977): quotients and remainders of a counter are counted, not divided.

The places of an array that is read as one row, ``ravel(x)[i] = x[i // w, i % w]``, cost two divisions an iteration
where a loop runs in order, as those of histograms and scans do. Both grow by one from step to step, or turn::

    for i < h * w:                            var column = 0, var row = 0
      let y = i // w                          for i < h * w:
      let x = i % w                   =>        let y = row
      s = max(s, a[y, x])                       let x = column
                                                s = max(s, a[y, x])
                                                row = row + (column + 1 == w)
                                                column = column + 1 if column + 1 < w else 0

The divisor does not vary in the loop and is made of sizes, so that it is known not to be negative; what is divided is
the counter with something added that does not vary. Where a size is zero both stay zero, as division by it gives.
What is added may be so large that the sum wraps around: there both are those of the least integer. Loops with lanes
divide before, where ``index_set_splitting.py`` leaves a division to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from ....core.dims import Dim, Name
from ....core.types import i64
from ....interpreters.simplify.implied import FEW
from ... import ir

_ZERO = ir.Constant(0, i64)
_LEAST, _GREATEST = (ir.Constant(int(number), i64) for number in (np.iinfo(np.int64).min, np.iinfo(np.int64).max))


def stepped(function: ir.Function) -> ir.Function:
    """A function whose loops in order count the quotients and remainders of what they count."""
    return replace(function, body=_Stepping(function).block(function.body))


class _Stepping:
    """Rewrites the loops of a function."""

    def __init__(self, function: ir.Function) -> None:
        self.function, self.fresh = function, ir.unused_names(function)
        self.sizes = {name: Dim.of(name) for name in function.sizes}  # which are known not to be negative

    @cached_property
    def places(self) -> Mapping[str, Dim]:
        """What names stand for that are made of sizes and of places in loops."""
        known = dict(self.sizes)
        for statement in ir.walk(self.function.body):
            if isinstance(statement, ir.For):
                known[statement.variable] = Dim.atom(Name(statement.variable))
            elif isinstance(statement, ir.Let) and statement.value.type is i64:
                dim = ir.dim_of(statement.value, known)
                if dim is not None:
                    known[statement.name] = dim
        return known

    def block(self, block: ir.Block) -> ir.Block:
        """A block whose loops count."""
        made: list[ir.Statement] = []
        for statement in block:
            statement = ir.map_inside(statement, self.block)
            made += self.loop(statement) if isinstance(statement, ir.For) else [statement]
        return tuple(made)

    def loop(self, loop: ir.For) -> list[ir.Statement]:
        """A loop with what it counts declared before it."""
        divisions = [each for each in loop.body if isinstance(each, ir.Let) and _divides(each.value)]
        if loop.kind != "sequential" or not divisions:
            return [loop]
        found = _Counters(loop, self)
        body = [found.counted(each) if isinstance(each, ir.Let) else each for each in loop.body]
        return [*found.before, replace(loop, body=(*body, *found.behind))]

    def is_size(self, divisor: ir.Expression) -> bool:
        """Whether a divisor is known not to be negative."""
        dim = ir.dim_of(divisor, self.sizes)
        return dim is not None and dim.is_nonnegative()

    def is_small(self, offset: ir.Expression) -> bool:
        """Whether a counter with so much added is known not to wrap around, as with a few sizes and places."""
        dim = ir.dim_of(offset, self.places)
        if dim is None or sum([abs(factor) for _, factor in dim.terms]) > FEW:
            return False
        return all(len(monomial) < 2 and all(isinstance(x, Name) for x in monomial) for monomial, _ in dim.terms)


class _Counters:
    """The quotients and remainders that a loop counts: what stands before the loop, and at the end of its body."""

    def __init__(self, loop: ir.For, stepping: _Stepping) -> None:
        self.loop, self.stepping = loop, stepping
        self.before: list[ir.Statement] = []
        self.behind: list[ir.Statement] = []
        self._bound = ir.bound_in((loop,)) | ir.assigned_in((loop,))
        self._places: dict[str, ir.Expression] = {loop.variable: _ZERO}  # by name: the counter with so much added
        self._counted: dict[tuple[ir.Expression, ir.Expression], dict[str, str]] = {}

    def counted(self, let: ir.Let) -> ir.Let:
        """A binding in the loop's body, which reads what is counted where it divides that."""
        match let.value:
            case ir.Apply(primitive, (dividend, divisor)) if _divides(let.value):
                offset = self.offset(dividend)
                if offset is not None and self.stays(divisor) and self.stepping.is_size(divisor):
                    return ir.Let(let.name, ir.Variable(self.counter(primitive.name, offset, divisor)))
        offset = self.offset(let.value)
        if offset is not None:
            self._places[let.name] = offset
        return let

    def stays(self, e: ir.Expression) -> bool:
        """Whether an expression is the same in all iterations."""
        return ir.unchanged_by(self._bound, e)

    def offset(self, e: ir.Expression) -> ir.Expression | None:
        """What is added to the loop's counter; None where an expression is something else."""
        match e:
            case ir.Variable(name):
                return self._places.get(name)
            case ir.Apply(primitive, (a, b)) if primitive.name == "add":
                for moving, other in ((a, b), (b, a)):
                    offset = self.offset(moving)
                    if offset is not None and self.stays(other):
                        return other if offset == _ZERO else offset + other
            case ir.Apply(primitive, (a, b)) if primitive.name == "subtract" and self.stays(b):
                offset = self.offset(a)
                return None if offset is None else offset - b
        return None

    def counter(self, kind: str, offset: ir.Expression, divisor: ir.Expression) -> str:
        """The variable that has a quotient or remainder in each iteration."""
        if (offset, divisor) not in self._counted:
            fresh = self.stepping.fresh
            column, row, following = fresh("column"), fresh("row"), ir.Variable(fresh("next"))
            self.before += [_first(column, "remainder", offset, divisor), _first(row, "floor_divide", offset, divisor)]
            columns = ir.select(following < divisor, following, 0)
            rows = ir.Variable(row) + ir.select(ir.equal(following, divisor), 1, 0)
            if not self.stepping.is_small(offset):
                wraps = ir.equal(ir.Variable(self.loop.variable) + offset, _GREATEST)
                columns = ir.select(wraps, self.at_least("remainder", divisor), columns)
                rows = ir.select(wraps, self.at_least("floor_divide", divisor), rows)
            self.behind += [
                ir.Let(following.name, ir.Variable(column) + 1),
                ir.Assign(column, columns),
                ir.Assign(row, rows),
            ]
            self._counted[offset, divisor] = {"remainder": column, "floor_divide": row}
        return self._counted[offset, divisor][kind]

    def at_least(self, kind: str, divisor: ir.Expression) -> ir.Expression:
        """The name of a quotient or remainder of the least integer, before the loop."""
        name = self.stepping.fresh("least")
        self.before.append(ir.Let(name, ir.apply(kind, _LEAST, divisor)))
        return ir.Variable(name)


def _first(name: str, kind: str, offset: ir.Expression, divisor: ir.Expression) -> ir.Declare:
    """A variable with what the first iteration has."""
    return ir.Declare(name, _ZERO if offset == _ZERO else ir.apply(kind, offset, divisor))


def _divides(e: ir.Expression) -> bool:
    return isinstance(e, ir.Apply) and e.type is i64 and e.primitive.name in ("floor_divide", "remainder")
