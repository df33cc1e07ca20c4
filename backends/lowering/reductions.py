"""Reductions: cells that a loop combines elements into, or, outside of all loops, a nest that combines.

Outside of all loops, what a single primitive combines (a sum, a maximum) is a nest, whose loops are made later
(``totals.py``); elements that are reductions themselves are computed by a nest of their own before. What any other
operator combines is reduced in pieces (``pieces.py``) or, on a target with groups, as in ``groups.py``: operators on
small arrays combine pieces there, too. Sizes alone decide how many parts there are, and their totals are combined in
order, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core import terms
from ...core.primitive import Primitive
from .. import ir
from .combining import Cell, named_operator
from .context import ArrayRef, Destinations, Environment, Operand
from .pieces import Pieces


class Reductions(Pieces):
    """The lowering of reduce."""

    def reduce(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        named = named_operator(op.blocks[1])
        neutrals = [self.atom(env, a) for a in op.args[1:]]
        if self.inside == self.around and named is not None and isinstance(neutrals[0], ir.Constant):
            return [self.whole_reduction(op, env, named, neutrals[0])]
        row = self.row(op.types)
        if row:
            return self.reduce_by_groups(op, env, neutrals, row)
        cells: list[Cell] = []
        for type, neutral, destination in zip(op.types, neutrals, destinations, strict=True):
            if isinstance(neutral, ArrayRef):
                place = destination or self.allocate("total", type)
                self.copy(neutral, place)
                cells.append(place)
            else:
                cells.append(self.declare("sum" if named and named.name == "add" else "total", neutral))
        if self.inside == 0 and self.target.parallel:
            self.reduce_in_pieces(op, env, neutrals, cells)
        else:
            self.reducing_loop(op, env, cells, named)
        return [self.read(cell) for cell in cells]

    def reducing_loop(
        self, op: terms.Operation, env: Environment, cells: Sequence[Cell], named: Primitive | None
    ) -> None:
        """The loop that combines the elements into cells."""
        variable = self.index_variable(op, env)
        with self.over(variable, self.scalar(env, op.args[0])):
            self.inside += 1
            self.combine(op, env, variable, cells, named)
            self.inside -= 1
        neutral = op.args[1]
        if named is not None and isinstance(neutral, terms.Literal) and isinstance(cells[0], ir.Variable):
            constant = ir.Constant(neutral.value, neutral.type)
            self.reductions[variable.name] = ir.Reduction(cells[0].name, named, constant)

    def combine(
        self,
        op: terms.Operation,
        env: Environment,
        variable: ir.Expression,
        cells: Sequence[Cell],
        named: Primitive | None,
    ) -> None:
        """One element, combined into the cells."""
        body = op.blocks[0]
        inner = _merged(body, op) if named is not None else None
        if inner is None:
            self.step(op, env, cells, self.element(op, env, variable))
            return
        within = env.enter([variable])
        for binding in body.bindings[:-1]:
            within = within.extend(self.operation(binding, within, [None] * len(binding.types)))
        self.reducing_loop(inner, within, cells, named)

    # Single commutative primitives, outside of all loops of a program or procedure

    def whole_reduction(
        self, op: terms.Operation, env: Environment, named: Primitive, neutral: ir.Constant
    ) -> ir.Expression:
        """A reduction outside of all loops: a nest that combines, or the totals of the elements' own loops in order."""
        extent = self.scalar(env, op.args[0])
        nested = any(binding.blocks and binding.op != "cond" for binding in op.blocks[0].bindings)
        nested = nested and (self.target.group > 0 or self.of_sizes(extent))
        partial = self.element_partials(op, env, named, neutral) if nested else None
        total = self.declare("total", neutral)
        if partial is not None and not self.target.group:
            with self.over("part", extent) as index:
                self.emit(ir.Reduction(total.name, named, neutral).combined(ir.Load(partial, (index,))))
            return total
        variable = self.index_variable(op, env)
        with self.captured() as body:
            self.inside += 1
            if partial is None:
                self.combine(op, env, variable, [total], named)
            else:
                self.emit(ir.Reduction(total.name, named, neutral).combined(ir.Load(partial, (variable,))))
            self.inside -= 1
        reduction = ir.Reduction(total.name, named, neutral)
        self.emit(ir.Nest((ir.Axis(variable, extent),), tuple(body), self.inside == 0, combines=(reduction,)))
        return total

    def element_partials(
        self, op: terms.Operation, env: Environment, named: Primitive, neutral: ir.Constant
    ) -> ir.Buffer:
        """One partial result an element, where elements are reductions themselves: a nest."""
        extent = self.scalar(env, op.args[0])
        partial = self.temporary("partial", neutral.type, (extent,))
        variable = self.index_variable(op, env)
        part = self.variable("part", neutral.type)
        with self.captured() as body:
            self.inside += 1
            self.emit(ir.Declare(part.name, neutral))
            self.combine(op, env, variable, [part], named)
            self.emit(ir.Store(partial, (variable,), part))
            self.inside -= 1
        self.nest([ir.Axis(variable, extent)], tuple(body))
        return partial


def _merged(body: terms.Block, outer: terms.Operation) -> terms.Operation | None:
    """The inner reduction that is all of an element, when both combine in the same way."""
    if not body.bindings or body.bindings[-1].op != "reduce" or len(body.results) != 1:
        return None
    inner = body.bindings[-1]
    same = inner.blocks[1] == outer.blocks[1] and inner.args[1:] == outer.args[1:] and len(inner.types) == 1
    plain = all(binding.row.elementwise and not binding.blocks for binding in body.bindings[:-1])
    is_result = body.results[0] == terms.Variable(0, inner.types[0])
    return inner if same and plain and is_result and isinstance(inner.args[1], terms.Literal) else None
