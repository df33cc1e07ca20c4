"""Cells: where the cotangents of values are kept while the code of a return sweep is generated.

A *cell* holds the cotangent of one value and knows its scope. In that scope it is a value, and single reads wait in
it; from a deeper scope (the body of a loop, a branch) it is reached by ``add_to`` on an accumulator made on demand,
and the statement that did so is wrapped by its accumulate at once. What does not depend on what is differentiated
has no cell, a value captured from outside the differentiated function above all: there is no perturbation confusion.
(Schenck et al. 2022, section 5.4, has accumulators; there they are made for all free arrays of a map.)

A choice between arrays hands the cells of its scope down: each branch begins with the cotangents so far, adds to them
as if it stood alone, and gives them back. So what a branch passes through stays where it is in memory.

    t = if c: update(s, i, sin(s[i])) else: s            t_bar is in s's memory, too:
    t_bar = ...                                          s_bar = if c: update(t_bar, i, 0) and s_bar[i] += ...
                                                                 else: t_bar

What a function gives for an array that it captures is written down as what is owed (``cotangents.py``). So a loop over
a row of a table in such a function adds up that row alone: the indices that are known outside of the loop are the
*place* of what it adds to.

    for j: table_bar[k, j] += e        row = accumulate zeros(m): for j: row[j] += e,    owed: Part1(k, row)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import takewhile

from ..core.builder import Builder, Scope
from ..core.graph import Node, Value, numbers, union
from ..core.types import ArrayType, Type, accumulator_of, is_data
from .cotangents import at, nothing, pay, plus, whole, zero_like
from .fragment import unsupported

_CAPTURED = (
    "reverse mode does not add up the cotangents of one value of type {type} here, where an operator, a checkpoint or"
    " the steps of a loop capture it: write a recursive function, or differentiate via='trace'"
)


Place = tuple[Value, ...]  # leading indices


@dataclass
class Held:
    """What was added so far: a sum, single elements that wait, what is owed to an array, what deeper scopes add to."""

    total: Value | None = None
    reads: list[tuple[Sequence[Value], Value]] = field(default_factory=list)
    owed: Value | None = None
    accumulators: dict[Place, Value] = field(default_factory=dict)


class Cell:
    """The cotangent of one value, while code is generated. Of one that ``owes`` a function gives what is owed."""

    def __init__(self, sweep: Sweep, value: Value, owes: bool = False) -> None:
        self.sweep, self.primal, self.owes = sweep, value, owes
        self.scope = sweep.builder.scopes[-1]
        self.held = Held()
        if self.scope is sweep.home:
            sweep.cells.append(self)

    def restart(self) -> None:
        """Nothing was added yet, in the open scope."""
        self.scope = self.sweep.builder.scopes[-1]
        self.held = Held()

    def add(self, cotangent: Value) -> None:
        """Add a cotangent of the whole value, or what is owed to it."""
        b = self.sweep.builder
        self._follow()
        if is_data(self.primal.type) and not is_data(cotangent.type):
            if b.scopes[-1] is self.scope:
                self.held.owed = cotangent if self.held.owed is None else plus(b, self.held.owed, cotangent)
            else:
                pay(b, cotangent, lambda places, number: self._add_to(number, places))
        elif b.scopes[-1] is self.scope:
            self.held.total = cotangent if self.held.total is None else plus(b, self.held.total, cotangent)
        elif not is_data(self.primal.type):
            raise unsupported(b, _CAPTURED.format(type=self.primal.type))
        else:
            b.each(b.sizes(cotangent), lambda *i: self._add_to(b.index(cotangent, i), i))

    def add_at(self, indices: Sequence[Value], cotangent: Value) -> None:
        """Add the cotangent of one element."""
        self._follow()
        if self.sweep.builder.scopes[-1] is self.scope:
            self.held.reads.append((indices, cotangent))
        else:
            self._add_to(cotangent, indices)

    def _follow(self) -> None:
        """Belong to the innermost open branch that cells of this scope are handed down to."""
        for branch in self.sweep.branches:
            if branch.around is self.scope:
                branch.before[self] = self.held
                self.scope, self.held = branch.scope, Held(self.held.total)

    def _add_to(self, cotangent: Value, indices: Sequence[Value]) -> None:
        place = self._place(indices)
        if place not in self.held.accumulators:
            self.held.accumulators[place] = self.sweep.builder.variable(accumulator_of(self._part(place)))
            self.sweep.touched.setdefault(self.scope, []).append((self, place))
        self.sweep.builder.emit("add_to", (), [self.held.accumulators[place], cotangent, *indices[len(place) :]])

    def _place(self, indices: Sequence[Value]) -> Place:
        """The leading indices that are known in the cell's own scope, where that makes what is owed smaller."""
        if not self.owes or any([self in branch.before for branch in self.sweep.branches]):
            return ()
        scopes = self.sweep.builder.scopes
        inner = scopes[scopes.index(self.scope) + 1 :]
        bound = union([numbers(scope.binders, scope.statements) for scope in inner])
        return tuple(takewhile(lambda index: index.free.isdisjoint(bound), indices))

    def _part(self, place: Place) -> Type:
        type = self.primal.type
        if not place or not isinstance(type, ArrayType):
            return type
        return ArrayType(type.scalar, type.dims[len(place) :])

    def initial(self, place: Place = ()) -> Value:
        """What an accumulate of what deeper scopes add to begins with."""
        if place:
            return zero_like(self.sweep.builder, self.sweep.builder.part(self.primal, place))
        return zero_like(self.sweep.builder, self.primal) if self.held.total is None else self.held.total

    def close(self, total: Value, place: Place = ()) -> None:
        """What an accumulate over this cell has made of it."""
        self.held.accumulators.pop(place, None)
        if place:
            self.add(at(self.sweep.builder, self.primal.type, place, total))
        elif self.owes:
            self.held.total = total
        else:
            self.held = Held(total)

    def read(self) -> Value | None:
        """The cotangent so far, in the cell's own scope; None when nothing was added."""
        if self.held.reads or self.held.owed is not None:
            b = self.sweep.builder

            def updates(accumulator: Value) -> Sequence[Value]:
                self.settle(accumulator)
                return []

            body = b.body([accumulator_of(self.primal.type)], updates)
            self.held = Held(b.emit("accumulate", (), [self.initial()], [body])[0])
        return self.held.total

    def settle(self, accumulator: Value) -> None:
        """Add what waits to an accumulator."""
        b = self.sweep.builder

        def add(places: Sequence[Value], cotangent: Value) -> None:
            b.emit("add_to", (), [accumulator, cotangent, *places])

        for indices, cotangent in self.held.reads:
            add(indices, cotangent)
        if self.held.owed is not None:
            pay(b, self.held.owed, add)

    def given(self) -> Value:
        """What a function gives for the value, in the cell's own scope: of an array, what is owed to it."""
        b, type = self.sweep.builder, self.primal.type
        if not isinstance(type, ArrayType):
            return self.total_or_zero()
        parts = [] if self.held.total is None else [whole(b, self.held.total)]
        parts += [at(b, type, places, number) for places, number in self.held.reads]
        parts += [] if self.held.owed is None else [self.held.owed]
        return reduce(partial(plus, b), parts) if parts else nothing(b, type)

    def total_or_zero(self) -> Value:
        """The cotangent so far, in the cell's own scope."""
        self.read()
        return self.initial()


@dataclass
class Entry:
    """What the environment holds: a value and its cell. An accumulator has its final's cotangent in place of both."""

    value: Value | None
    cell: Cell | None = None
    final: Value | None = None

    @property
    def active(self) -> bool:
        return self.cell is not None or self.final is not None


@dataclass
class Branch:
    """A branch that is open: its scope, the one around it, and the cells that it was handed, with what they held."""

    scope: Scope
    around: Scope
    before: dict[Cell, Held]

    def leave(self) -> dict[Cell, Value]:
        """Give the cells back to the scope around; their cotangents in the branch."""
        totals = {cell: cell.total_or_zero() for cell in self.before}
        for cell, held in self.before.items():
            cell.scope, cell.held = self.around, held
        return totals


class Sweep:
    """One differentiation: the builder, and the cells that deeper scopes have reached.

    The forward sweep is run once, in the scope that is its home. The return sweep may run many times, there or in
    deeper scopes, once a cotangent: the cells of the forward sweep then belong to the scope that it runs in.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.touched: dict[Scope, list[tuple[Cell, Place]]] = {}
        self.home: Scope | None = builder.scopes[-1]
        self.cells: list[Cell] = []
        self.branches: list[Branch] = []

    def restart(self) -> None:
        """Prepare for a return sweep in the open scope."""
        self.home = None
        for cell in self.cells:
            cell.restart()

    def enclose(self, make: Callable[[], Sequence[Value]]) -> list[Value]:
        """Emit one statement that may reach cells of this scope, wrapped in an accumulate for these.

        Gives the statement's results.
        """
        b = self.builder
        scope = b.scopes[-1]
        outer = self.touched.pop(scope, [])
        mark = len(scope.statements)
        results = list(make())
        cells = self.touched.pop(scope, [])
        self.touched[scope] = outer
        if not cells:
            return results
        statements = scope.statements[mark:]
        del scope.statements[mark:]
        updates = self._updates(cells)
        binders = tuple([cell.held.accumulators[place] for cell, place in cells])
        initials = [cell.initial(place) for cell, place in cells]
        body = b.close(binders, (*updates, *statements), tuple(results))
        values = b.emit("accumulate", (), initials, [body])
        for (cell, place), total in zip(cells, values, strict=False):
            cell.close(total, place)
        return list(values[len(cells) :])

    def choose(self, test: Value, branches: Sequence[Callable[[], object]]) -> None:
        """Emit a cond whose branches may reach cells of this scope, which are handed down to them."""
        b, found = self.builder, dict[Cell, list[Value | None]]()

        def run(number: int) -> list[Value]:
            branch = Branch(b.scopes[-1], b.scopes[-2], {})
            self.branches.append(branch)
            branches[number]()
            self.branches.pop()
            totals = branch.leave()
            for cell, total in totals.items():
                found.setdefault(cell, [None] * len(branches))[number] = total
            return list(totals.values())

        def cond() -> Sequence[Value]:
            bodies = [b.body([], partial(run, number)) for number in range(len(branches))]
            results = [[cell.initial() if x is None else x for x in totals] for cell, totals in found.items()]
            closed = [
                b.close((), body.statements, tuple([totals[number] for totals in results]), body.partial)
                for number, body in enumerate(bodies)
            ]
            return b.emit("cond", (), [test], closed)

        for cell, total in zip(found, self.enclose(cond), strict=True):
            cell.held.total = total

    def _updates(self, cells: Sequence[tuple[Cell, Place]]) -> list[Node]:
        """The reads that wait in these cells, as statements; what is owed may wait."""
        b = self.builder
        b.scopes.append(Scope(()))
        for cell, _ in cells:
            if not cell.owes:
                cell.settle(cell.held.accumulators[()])
        return b.scopes.pop().statements
