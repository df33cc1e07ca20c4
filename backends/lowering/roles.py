"""Roles: each nest becomes loops, some for threads, some for lanes, some that run side by side.

Lowering leaves nests (``ir.Nest``): points in any order, arrays in any layout. Here they get their loops, inner nests
before those around them. The first of these that fits says how:

* points whose values are combined: parts of them, and the parts in order (``totals.py``)
* points that add to single places in loops of their own: a sum for each, in lanes, and their sum (``point_sums.py``)
* points that add to the same places: pieces with copies (``privatisation.py``), or atomics (``group_updates.py``)
* points that only require something: a test side by side (``requirements.py``)
* a sum over two loops: one of its factors first, in a nest of its own (``regrouping.py``)
* a grid of threads in groups (``grids.py``), or a product in tiles (``contractions.py``), or what reads and writes say
  (``nests.py``)

Who fills a temporary says in which order its axes stand in memory; what comes after it is changed to that. ::

    temporary t: f64[n, m]                        temporary t: f64[m, n]
    nest i < n, j < m                             parallel j < m
      t[i, j] = x[j, i]                     =>      lanes i < n by 32
    nest j < m                                        t[j, i] = x[j, i]
      y[j] = t[0, j]                              parallel chunk < ..: lanes ..: y[j] = t[j, 0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .. import ir
from ..decisions import writes_text
from ..target import LANE_ELEMENT_COST
from . import contractions, grids, nests, totals
from .context import Context
from .group_updates import shared_accumulators
from .lanes import turns
from .lower import Lowered
from .nests import Built, Layouts, Plan, Roles
from .point_sums import point_sums
from .privatisation import private_accumulators
from .readers import Readers
from .regrouping import regrouped
from .requirements import beside_requirements, requirements
from .unrolling import stored_along, straightened


def with_roles(lowered: Lowered) -> Lowered:
    """A function with loops in place of its nests."""
    context = lowered.context
    allowed = context.target.transformations
    body = ir.without_idle_loops(_Roles(context, lowered.function.body).block(lowered.function.body))
    if not context.target.group and allowed.unroll and allowed.vectorise:
        body = straightened(body, context.target, context.fresh, context.decisions)
    return replace(lowered, function=replace(lowered.function, body=body))


class Planner:
    """Says which roles the loops of a nest will have, among the nests of one function."""

    def __init__(self, context: Context, body: ir.Block) -> None:
        self.context = context
        self.independent: set[str] = set()  # variables of inner loops that need no order
        self.changing: frozenset[str] | None = None  # names of what changes in the loop around
        self.fixed = {s.buffer.name for s in ir.walk(body) if isinstance(s, ir.Return | ir.Update)}
        self.fixed |= {buffer.name for s in ir.of_kind(body, ir.Call) for buffer in (*s.reads, *s.writes)}
        self.readers = Readers(body, self.plan)

    def plan(self, nest: ir.Nest) -> Plan:
        """What is known of a nest and around it."""
        context, target = self.context, self.context.target
        free = {buffer.name for buffer in nest.fills} - self.fixed
        free -= _read_elsewhere(nest.body) if free else free
        known = (nest.read, context.nonzero) if target.transformations.bound else ({}, {})
        inner = frozenset(self.independent)
        return Plan(
            list(nest.axes),
            nest.body,
            free,
            context.reductions,
            nest.outermost,
            target,
            context.fresh,
            inner,
            *known,
            reading=self.readers.cost,
            strip=nest.strip,
            changing=self.changing,
        )

    def roles(self, nest: ir.Nest) -> Roles:
        """The roles of the loops of a nest."""
        if nest.combines:
            return totals.roles_of(self.context, nest)
        if self.context.target.group:
            return grids.roles_of(self.plan(nest))
        return contractions.roles_of(self.plan(replace(nest, body=beside_requirements(nest.body))))


class _Roles:
    """The nests of one function, which get their loops."""

    def __init__(self, context: Context, body: ir.Block) -> None:
        self.context, self.planner = context, Planner(context, body)

    def block(self, block: ir.Block) -> ir.Block:
        """A block with loops in place of its nests."""
        return self.laid_out(block)[0]

    def laid_out(self, block: ir.Block) -> tuple[ir.Block, Layouts]:
        """A block with loops in place of its nests, and the layouts of what it fills: from there on, and behind it.

        What both branches fill has the layout that the second says.
        """
        made: list[ir.Statement] = []
        layouts: dict[str, tuple[int, ...]] = {}
        for statement in block:
            if layouts and not layouts.keys().isdisjoint(ir.mentioned((statement,))[1]):
                (statement,) = relaid((statement,), layouts)
            if isinstance(statement, ir.Nest) and ir.contains(statement.body, ir.Invoke):
                made += [self.inside(each) for each in statement.in_order()]
                continue
            if isinstance(statement, ir.If):
                orelse, found = self.laid_out(statement.orelse)
                then = self.block(relaid(statement.then, found) if found else statement.then)
                layouts |= found
                made = [*[_allocated(each, found) for each in made], ir.If(statement.test, then, orelse)]
                continue
            if not isinstance(statement, ir.Nest):
                made.append(self.inside(statement))
                continue
            combined = {each.name for each in statement.combines}  # declared where it is combined
            made = [each for each in made if not (isinstance(each, ir.Declare) and each.name in combined)]
            built = self.nest(replace(statement, body=self.block(statement.body)))
            found = {name: order for name, order in built.layouts.items() if order != tuple(range(len(order)))}
            if found:
                layouts |= found
                self.note(found)
                made = [_allocated(each, found) for each in made]
                built.statements = list(relaid(built.statements, found))
            made += built.statements
        own = {each.buffer.name for each in made if isinstance(each, ir.Allocate)}
        return tuple(made), {name: order for name, order in layouts.items() if name not in own}

    def inside(self, statement: ir.Statement) -> ir.Statement:
        """A statement with loops in place of the nests inside of it."""
        around = self.planner.changing
        if isinstance(statement, ir.For | ir.While):
            block = (statement,)
            self.planner.changing = frozenset(ir.bound_in(block) | ir.assigned_in(block) | ir.written_in(block))
        made = ir.map_inside(statement, self.block)
        self.planner.changing = around
        return made

    def nest(self, nest: ir.Nest) -> Built:
        """The loops of a nest whose body has its own already."""
        context, target = self.context, self.context.target
        if nest.combines:
            return Built(totals.totals(context, nest), {})
        if nest.meets:
            sums = self.point_sums(nest)
            if sums is not None:
                return sums
            accumulators = shared_accumulators if target.group else private_accumulators
            adding = accumulators(context, nest)
            if adding is not None:
                return Built(adding, {})
        required = requirements(context, self.planner.plan(nest))
        if required is not None:
            return required
        before: list[ir.Statement] = []
        if nest.outermost and target.transformations.regroup and not target.group:
            two = regrouped(context, nest.axes, nest.body)
            if two is not None and context.decisions.take(
                "regroup",
                writes_text(nest),
                f"sum over two loops: one of its factors summed first, as {two.stored.name}",
            ):
                first = self.nest(ir.Nest(tuple(two.loops), two.first, nest.outermost))
                before = [ir.Allocate(two.stored), *first.statements]
                nest = replace(nest, body=two.second)
        built = self.built(nest)
        statements = [*before, *built.statements]
        if nest.alone is not None:
            statements = [_for_one(each, nest.alone) for each in statements]
        return Built(statements, built.layouts)

    def point_sums(self, nest: ir.Nest) -> Built | None:
        """A nest whose points add up what is theirs in lanes, and the sum of that."""
        context = self.context
        if context.target.group or not nest.outermost:
            return None
        found = point_sums(context, nest)
        if found is None or self.planner.roles(found.points).lane is None:
            return None
        told = f"accumulated in {', '.join([each.buffer.name for each in found.added])}: sums of points, added in order"
        context.decisions.note(told)
        built = self.nest(found.points)
        statements = [*found.stored, *built.statements, *totals.totals(context, found.totals), *found.added]
        return Built(statements, built.layouts)

    def built(self, nest: ir.Nest) -> Built:
        """The loops that reads and writes are best for."""
        plan = self.planner.plan(nest)
        self.planner.independent.update(plan.variables)
        if self.context.target.group:
            return grids.build(plan)
        built = contractions.build(plan)
        if built.decision and not self.context.decisions.take("contract", writes_text(nest), built.decision):
            built = nests.build(plan)
        return replace(built, layouts={**built.layouts, **self.of_straight_lines(plan, built)})

    def of_straight_lines(self, plan: Plan, built: Built) -> Layouts:
        """The layouts of what iterations will store as lanes of straight-line code (``unrolling.py``).

        Each array is contiguous along these, if those who read it do not pay more for that, nor read it as one row.
        """
        allowed, readers = plan.target.transformations, self.planner.readers
        free = {each.buffer for each in ir.of_kind(plan.body, ir.Store) if len(each.indices) > 1}
        free = {buffer for buffer in free if buffer.name in plan.temporaries and readers.along_axes(buffer.name)}
        *_, loop = built.statements
        if not (free and allowed.unroll and allowed.vectorise and isinstance(loop, ir.For)):
            return {}
        found = dict[str, tuple[int, ...]]()
        stored = stored_along(loop, free, not plan.parallel, plan.target, self.context.fresh)
        for buffer, (axis, elements) in stored.items():
            *others, last = built.layouts[buffer.name]
            written = turns(buffer.extents[axis]) * elements
            across = written * LANE_ELEMENT_COST * plan.target.lanes(buffer.scalar)
            if last != axis and readers.cost(buffer.name, axis) <= readers.cost(buffer.name, last) + across:
                found[buffer.name] = (*[each for each in (*others, last) if each != axis], axis)
        return found

    def note(self, layouts: Layouts) -> None:
        """Where arrays are 0, by their axes in memory."""
        for name, order in layouts.items():
            if name in self.context.nonzero:
                axes = self.context.nonzero[name].items()
                self.context.nonzero[name] = {(order.index(a), order.index(b)): least for (a, b), least in axes}


def _read_elsewhere(body: ir.Block) -> set[str]:
    """The buffers that points read at places where they do not write."""
    written = {(store.buffer, store.indices, ()) for store in ir.of_kind(body, ir.Store)}
    reads = [load for statement in ir.walk(body) for load in ir.loads(statement)]
    return {load.buffer.name for load in reads if (load.buffer, load.indices, load.guarded) not in written}


def _for_one(statement: ir.Statement, when: ir.Expression) -> ir.Statement:
    """A parallel loop that one thread runs under a condition."""
    if not isinstance(statement, ir.For) or statement.grain is None:
        return statement
    return replace(statement, grain=ir.select(when, statement.extent, statement.grain))


def _allocated(statement: ir.Statement, layouts: Layouts) -> ir.Statement:
    if isinstance(statement, ir.Allocate) and statement.buffer.name in layouts:
        return ir.Allocate(_permuted(statement.buffer, layouts[statement.buffer.name]))
    return statement


def relaid(block: Sequence[ir.Statement], layouts: Layouts) -> ir.Block:
    """A block with the axes of some buffers in the order in which they stand in memory."""

    def place(e: ir.Load | ir.Store, order: tuple[int, ...]) -> tuple[ir.Buffer, tuple[ir.Expression, ...]]:
        return _permuted(e.buffer, order), tuple([e.indices[axis] for axis in order])

    def guards(e: ir.Load | ir.Store, order: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted([order.index(axis) for axis in e.guarded]))

    def expression(e: ir.Expression) -> ir.Expression:
        e = ir.map_operands(e, expression)
        order = layouts.get(e.buffer.name) if isinstance(e, ir.Load) else None
        return ir.Load(*place(e, order), guards(e, order)) if isinstance(e, ir.Load) and order else e

    def store(s: ir.Store) -> ir.Store:
        order = layouts.get(s.buffer.name)
        if not order:
            return s
        buffer, indices = place(s, order)
        return ir.Store(buffer, indices, s.value, guards(s, order))

    return ir.map_block(tuple(block), expression, store)


def _permuted(buffer: ir.Buffer, order: tuple[int, ...]) -> ir.Buffer:
    return ir.Buffer(buffer.name, buffer.scalar, tuple([buffer.extents[axis] for axis in order]))
