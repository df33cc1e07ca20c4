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
Loops with lanes divide before, where ``index_set_splitting.py`` leaves a division to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ....core.dims import Dim
from ....core.types import i64
from ... import ir

_ZERO = ir.Constant(0, i64)


def stepped(function: ir.Function) -> ir.Function:
    """A function whose loops in order count the quotients and remainders of what they count."""
    sizes = {name: Dim.of(name) for name in function.sizes}
    return replace(function, body=_Stepping(sizes, ir.unused_names(function)).block(function.body))


class _Stepping:
    """Rewrites loops; ``sizes`` are names of what is known not to be negative."""

    def __init__(self, sizes: Mapping[str, Dim], fresh: Callable[[str], str]) -> None:
        self.sizes, self.fresh = sizes, fresh

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
            self.behind += [
                ir.Let(following.name, ir.Variable(column) + 1),
                ir.Assign(column, ir.select(following < divisor, following, 0)),
                ir.Assign(row, ir.Variable(row) + ir.select(ir.equal(following, divisor), 1, 0)),
            ]
            self._counted[offset, divisor] = {"remainder": column, "floor_divide": row}
        return self._counted[offset, divisor][kind]


def _first(name: str, kind: str, offset: ir.Expression, divisor: ir.Expression) -> ir.Declare:
    """A variable with what the first iteration has."""
    return ir.Declare(name, _ZERO if offset == _ZERO else ir.apply(kind, offset, divisor))


def _divides(e: ir.Expression) -> bool:
    return isinstance(e, ir.Apply) and e.type is i64 and e.primitive.name in ("floor_divide", "remainder")
