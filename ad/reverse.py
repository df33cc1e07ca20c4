"""Reverse mode: a language in which an operation means its own code and the code of its return sweep.

The meaning of an operation emits its primal into the builder and gives a *pull*: a Python function that, when the
cotangents of the results are known, emits the return sweep. Pulls exist only while code is generated; the program
that comes out has no tape. A scope that the return sweep enters runs its own forward part again, and what of that
is not needed is dead code (Schenck et al. 2022, sections 4 and 5).

A *cell* holds the cotangent of one value and knows its scope. In that scope it is a value, and single reads wait in
it; from a deeper scope (the body of a loop, a branch) it is reached by ``add_to`` on an accumulator made on demand,
and the statement that did so is wrapped by its accumulate at once. What does not depend on what is differentiated
has no cell, a value captured from outside the differentiated function above all: there is no perturbation confusion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.builder import Builder, Scope
from ..core.dims import Dim
from ..core.environment import Env
from ..core.expr import Expr
from ..core.graph import Node, Value
from ..core.language import Binding, Language
from ..core.primitive import Primitive
from ..core.terms import Constant, Failure, Origin
from ..core.types import Accumulator, ArrayType, Scalar, Type, accumulator_of, i64, is_float
from ..interpreters.embed import Atom as PrimalAtom
from ..interpreters.embed import Block as PrimalBlock
from ..interpreters.embed import Embed, name_arguments
from ..interpreters.embed import Operation as PrimalOperation
from ..interpreters.simplifying.accumulators import plus, zeros_like
from .activity import Activity
from .activity import Block as ActivityBlock
from .activity import Operation as ActivityOperation
from .combining import Histogram, Reduction, Scan
from .scattering import Scatter

Cotangents = Sequence[Value | None]
Pull = Callable[[Cotangents], None]


class Cell:
    """The cotangent of one value, while code is generated."""

    def __init__(self, sweep: Sweep, value: Value) -> None:
        self.sweep, self.primal = sweep, value
        self.scope = sweep.builder.scopes[-1]
        self.total: Value | None = None
        self.reads: list[tuple[Sequence[Value], Value]] = []  # single elements that wait
        self.accumulator: Value | None = None

    def add(self, cotangent: Value) -> None:
        """Add a cotangent of the whole value."""
        b = self.sweep.builder
        if b.scopes[-1] is self.scope:
            self.total = cotangent if self.total is None else plus(b, self.total, cotangent)
        else:
            b.each(b.sizes(cotangent), lambda *i: self._add_to(b.index(cotangent, i), i))

    def add_at(self, indices: Sequence[Value], cotangent: Value) -> None:
        """Add the cotangent of one element."""
        if self.sweep.builder.scopes[-1] is self.scope:
            self.reads.append((indices, cotangent))
        else:
            self._add_to(cotangent, indices)

    def _add_to(self, cotangent: Value, indices: Sequence[Value]) -> None:
        if self.accumulator is None:
            self.accumulator = self.sweep.builder.variable(accumulator_of(self.primal.type))
            self.sweep.touched.setdefault(self.scope, []).append(self)
        self.sweep.builder.emit("add_to", (), [self.accumulator, cotangent, *indices])

    def initial(self) -> Value:
        return zeros_like(self.sweep.builder, self.primal) if self.total is None else self.total

    def close(self, total: Value) -> None:
        """What an accumulate over this cell has made of it."""
        self.total, self.accumulator, self.reads = total, None, []

    def read(self) -> Value | None:
        """The cotangent so far, in the cell's own scope; None when nothing was added."""
        if self.reads:
            b = self.sweep.builder

            def updates(accumulator: Value) -> Sequence[Value]:
                for indices, cotangent in self.reads:
                    b.emit("add_to", (), [accumulator, cotangent, *indices])
                return []

            body = b.body([accumulator_of(self.primal.type)], updates)
            self.close(b.emit("accumulate", (), [self.initial()], [body])[0])
        return self.total

    def total_or_zero(self) -> Value:
        """The cotangent so far, in the cell's own scope."""
        total = self.read()
        return self.initial() if total is None else total


@dataclass
class Entry:
    """What the environment holds: a value and its cell. An accumulator has its final's cotangent in place of both."""

    value: Value | None
    cell: Cell | None = None
    final: Value | None = None

    @property
    def active(self) -> bool:
        return self.cell is not None or self.final is not None


class Sweep:
    """One differentiation: the builder, and the cells that deeper scopes have reached."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.touched: dict[Scope, list[Cell]] = {}

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
        binders = tuple([cell.accumulator for cell in cells if cell.accumulator is not None])
        initials = [cell.initial() for cell in cells]
        body = b.close(binders, (*updates, *statements), tuple(results))
        values = b.emit("accumulate", (), initials, [body])
        for cell, total in zip(cells, values, strict=False):
            cell.close(total)
        return list(values[len(cells) :])

    def _updates(self, cells: Sequence[Cell]) -> list[Node]:
        """The reads that wait in these cells, as statements."""
        b = self.builder
        b.scopes.append(Scope(()))
        for cell in cells:
            for indices, cotangent in cell.reads:
                assert cell.accumulator is not None
                b.emit("add_to", (), [cell.accumulator, cotangent, *indices])
        return b.scopes.pop().statements


# Meanings


@dataclass(frozen=True)
class Atom:
    primal: Callable[[Env[Entry]], Value]
    entry: Callable[[Env[Entry]], Entry]

    def cell(self, env: Env[Entry]) -> Cell | None:
        return self.entry(env).cell


@dataclass(frozen=True)
class Operation:
    """The primal alone; the primal with its pull, given which results are active; and the analysis that says so."""

    primal: PrimalOperation
    run: Callable[[Env[Entry], Sequence[bool]], tuple[Sequence[Value], Pull]]
    activity: ActivityOperation


@dataclass(frozen=True)
class Block:
    primal: PrimalBlock
    run: Callable[[Env[Entry], Sequence[Entry]], tuple[list[Value], Pull]]
    activity: ActivityBlock
    width: int  # how many results


class _Primal(Embed):
    """The primal code, in environments of entries; updates of accumulators that are differentiated vanish."""

    def entry(self, value: Value) -> Entry:
        return Entry(value)

    def value(self, entry: Entry) -> Value:
        assert entry.value is not None
        return entry.value

    def variable(self, index: int, type: Type) -> PrimalAtom:
        if isinstance(type, Accumulator):
            return lambda env: env.get(index).value  # None for one that is differentiated
        return super().variable(index, type)

    def add_to(self, accumulator: Any, value: Any, indices: Any) -> PrimalOperation:
        emit = super().add_to(accumulator, value, indices)
        return lambda env: [] if accumulator(env) is None else emit(env)


class Reverse(Language[Atom, Operation, Block]):
    """The language of return sweeps.

    Only active operations (``activity.py``) are run with a pull, and only their active results have a cell. While
    ``checks`` is false, requirements are left out: they belong to the forward sweep, and all else runs code again.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep, self.builder = sweep, sweep.builder
        self.embed = _Primal(sweep.builder)
        self.activity = Activity(lambda entry: entry.active)

    @property
    def checks(self) -> bool:
        return self.embed.checks

    @checks.setter
    def checks(self, value: bool) -> None:
        self.embed.checks = value

    # Atoms

    def variable(self, index: int, type: Type) -> Atom:
        return Atom(self.embed.variable(index, type), lambda env: env.get(index))

    def _inactive(self, primal: Callable[[Env[Any]], Value]) -> Atom:
        return Atom(primal, lambda env: Entry(primal(env)))

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return self._inactive(self.embed.literal(value, type))

    def constant(self, array: Constant, type: ArrayType) -> Atom:
        return self._inactive(self.embed.constant(array, type))

    def dim(self, dim: Dim) -> Atom:
        return self._inactive(self.embed.dim(dim))

    # Scalars and control

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Operation:
        primal = self.embed.primitive(primitive, [a.primal for a in args])
        b = self.builder

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, cells = [a.primal(env) for a in args], [a.cell(env) for a in args]
            (y,) = b.emit("primitive", (primitive,), values)

            def pull(cotangents: Cotangents) -> None:
                assert primitive.derivative is not None and cotangents[0] is not None
                rules = primitive.derivative(Expr(y, b), *[Expr(value, b) for value in values])
                for cell, rule in zip(cells, rules, strict=True):
                    if cell is not None and rule is not None:
                        cell.add(rule(Expr(cotangents[0], b)).value)

            return [y], pull

        return Operation(primal, run, self.activity.primitive(primitive, _entries(args)))

    def cond(self, test: Atom, then: Block, orelse: Block) -> Operation:
        primal = self.embed.cond(test.primal, then.primal, orelse.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, condition = primal(env), test.primal(env)

            def branch(block: Block, cotangents: Cotangents) -> Callable[[], Sequence[Value]]:
                def sweep() -> Sequence[Value]:
                    block.run(env, [])[1](cotangents)
                    return []

                return sweep

            def pull(cotangents: Cotangents) -> None:
                self.sweep.enclose(
                    lambda: self.builder.cond(condition, branch(then, cotangents), branch(orelse, cotangents))
                )

            return values, pull

        return Operation(primal, run, self.activity.cond(test.entry, then.activity, orelse.activity))

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Block) -> Operation:
        """The forward loop stores the state of each step; the return loop runs the steps again, backwards."""
        primal = self.embed.loop(dim, extent.primal, [a.primal for a in initials], body.primal)
        b, count = self.builder, len(initials)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            length, starts = extent.primal(env), [a.primal(env) for a in initials]
            cells = [a.cell(env) for a in initials]

            def step(i: Value, *state: Value) -> Sequence[Value]:
                return [*body.primal(env, [i, *state]), *state]

            values = b.loop(length, starts, step)
            plain, stored = values[: len(values) - count], values[len(values) - count :]

            def pull(cotangents: Cotangents) -> None:
                self._pull_steps(
                    length,
                    starts,
                    stored,
                    cells,
                    active,
                    cotangents,
                    lambda i, state: body.run(env, [Entry(i), *state]),
                )

            return plain, pull

        return Operation(primal, run, self.activity.loop(dim, extent.entry, _entries(initials), body.activity))

    def _pull_steps(
        self,
        length: Value,
        starts: Sequence[Value],
        stored: Sequence[Value],
        cells: Sequence[Cell | None],
        active: Sequence[bool],
        cotangents: Cotangents,
        run: Callable[[Value, Sequence[Entry]], tuple[list[Value], Pull]],
    ) -> None:
        """The return sweep of so many steps with these initial states, given the state before each step.

        ``cotangents`` are those of the final states, then those of the outputs, stacked.
        """
        b, count = self.builder, len(starts)
        moving = [k for k in range(count) if active[k]]

        def back(j: Value, *state: Value) -> Sequence[Value]:
            last = b.primitive("subtract", length, b.literal(1, i64))
            i = b.primitive("subtract", last, j)
            known = dict(zip(moving, state, strict=True))
            entries = self.constants([b.part(array, [i]) for array in stored])
            own = self.give_cells([entries[k] for k in moving])
            outputs = [None if g is None else b.part(g, [i]) for g in cotangents[count:]]
            run(i, entries)[1]([*[known.get(k) for k in range(count)], *outputs])
            return [cell.total_or_zero() for cell in own if cell is not None]

        incoming = [cotangents[k] for k in moving]
        ends = [zeros_like(b, starts[k]) if g is None else g for k, g in zip(moving, incoming, strict=True)]
        results = self.sweep.enclose(lambda: b.loop(length, ends, back))
        for k, result in zip(moving, results, strict=True):
            cell = cells[k]
            if cell is not None:
                cell.add(result)

    def constants(self, values: Sequence[Value]) -> list[Entry]:
        """Entries of values that nothing is differentiated by."""
        return [Entry(value) for value in values]

    def give_cells(self, entries: Sequence[Entry]) -> list[Cell | None]:
        """Cells in the open scope for entries that are floating."""
        for entry in entries:
            if entry.value is not None and is_float(entry.value.type):
                entry.cell = Cell(self.sweep, entry.value)
        return [entry.cell for entry in entries]

    # Arrays

    def size(self, array: Atom, axis: int) -> Operation:
        primal = self.embed.size(array.primal, axis)
        return Operation(primal, _never, self.activity.size(array.entry, axis))

    def index(self, array: Atom, indices: Sequence[Atom]) -> Operation:
        primal = self.embed.index(array.primal, [i.primal for i in indices])

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            cell, places = array.cell(env), [i.primal(env) for i in indices]

            def pull(cotangents: Cotangents) -> None:
                if cell is not None and cotangents[0] is not None:
                    cell.add_at(places, cotangents[0])

            return [self.builder.index(array.primal(env), places)], pull

        return Operation(primal, run, self.activity.index(array.entry, _entries(indices)))

    def generate(self, dim: Dim, extent: Atom, body: Block) -> Operation:
        primal = self.embed.generate(dim, extent.primal, body.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            length = extent.primal(env)

            def pull(cotangents: Cotangents) -> None:
                def sweep(i: Value) -> Sequence[Value]:
                    inner = [None if g is None else self.builder.part(g, [i]) for g in cotangents]
                    body.run(env, [Entry(i)])[1](inner)
                    return []

                self.sweep.enclose(lambda: self.builder.generate(length, sweep))

            return primal(env), pull

        return Operation(primal, run, self.activity.generate(dim, extent.entry, body.activity))

    def reduce(self, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block) -> Operation:
        units = [a.primal for a in neutrals]
        primal = self.embed.reduce(extent.primal, units, element.primal, operator.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, length = primal(env), extent.primal(env)
            return values, Reduction(self, env, length, [unit(env) for unit in units], element, operator, values).pull

        activity = self.activity.reduce(extent.entry, _entries(neutrals), element.activity, operator.activity)
        return Operation(primal, run, activity)

    def scan(self, dim: Dim, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block) -> Operation:
        units = [a.primal for a in neutrals]
        primal = self.embed.scan(dim, extent.primal, units, element.primal, operator.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, length = primal(env), extent.primal(env)
            return values, Scan(self, env, length, [unit(env) for unit in units], element, operator, values).pull

        activity = self.activity.scan(dim, extent.entry, _entries(neutrals), element.activity, operator.activity)
        return Operation(primal, run, activity)

    def histogram(
        self, dim: Dim, bins: Atom, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block
    ) -> Operation:
        units = [a.primal for a in neutrals]
        primal = self.embed.histogram(dim, bins.primal, extent.primal, units, element.primal, operator.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, length = primal(env), extent.primal(env)
            starts = [unit(env) for unit in units]
            return values, Histogram(self, env, length, starts, element, operator, values, bins.primal(env)).pull

        entries = bins.entry, extent.entry, _entries(neutrals)
        return Operation(primal, run, self.activity.histogram(dim, *entries, element.activity, operator.activity))

    def scatter(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Block) -> Operation:
        """What is written has the cotangent at its place, if it is the last there; the destination has the others."""
        primal = self.embed.scatter(
            unique, [a.primal for a in extents], [a.primal for a in destinations], element.primal
        )

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            lengths, cells = [a.primal(env) for a in extents], [a.cell(env) for a in destinations]
            arrays = [a.primal(env) for a in destinations]
            return primal(env), Scatter(self, env, unique, lengths, arrays, cells, element).pull

        activity = self.activity.scatter(unique, _entries(extents), _entries(destinations), element.activity)
        return Operation(primal, run, activity)

    def argsort(self, array: Atom) -> Operation:
        return Operation(self.embed.argsort(array.primal), _never, self.activity.argsort(array.entry))

    def while_loop(self, initials: Sequence[Atom], test: Block, body: Block) -> Operation:
        """The steps are counted; the return sweep is that of a loop of so many steps."""
        primal = self.embed.while_loop([a.primal for a in initials], test.primal, body.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, starts = primal(env), [a.primal(env) for a in initials]
            cells = [a.cell(env) for a in initials]

            def pull(cotangents: Cotangents) -> None:
                def step(_: Value, *state: Value) -> Sequence[Value]:
                    return [*body.primal(env, state), *state]

                stored = self.builder.loop(values[-1], starts, step)[len(starts) :]
                self._pull_steps(
                    values[-1],
                    starts,
                    stored,
                    cells,
                    active[:-1],
                    cotangents[:-1],
                    lambda i, state: body.run(env, state),
                )

            return values, pull

        activity = self.activity.while_loop(_entries(initials), test.activity, body.activity)
        return Operation(primal, run, activity)

    def probe(self, name: str, values: Sequence[Atom]) -> Operation:
        primal = self.embed.probe(name, [v.primal for v in values])
        return Operation(primal, _never, self.activity.probe(name, _entries(values)))

    # Effects

    def accumulate(self, initials: Sequence[Atom], body: Block) -> Operation:
        """A sum of updates is linear: inside, an accumulator is its final's cotangent, which is only read."""
        primal = self.embed.accumulate([a.primal for a in initials], body.primal)
        count = len(initials)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            cells = [a.cell(env) for a in initials]

            def pull(cotangents: Cotangents) -> None:
                for cell, cotangent in zip(cells, cotangents, strict=False):
                    if cell is not None and cotangent is not None:
                        cell.add(cotangent)
                body.run(env, [Entry(None, None, g) for g in cotangents[:count]])[1](cotangents[count:])

            return primal(env), pull

        return Operation(primal, run, self.activity.accumulate(_entries(initials), body.activity))

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Operation:
        primal = self.embed.add_to(accumulator.primal, value.primal, [i.primal for i in indices])

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            final, cell, places = accumulator.entry(env).final, value.cell(env), [i.primal(env) for i in indices]
            assert final is not None and cell is not None
            return [], lambda cotangents: cell.add(self.builder.index(final, places))

        activity = self.activity.add_to(accumulator.entry, value.entry, _entries(indices))
        return Operation(primal, run, activity)

    def require(self, test: Atom, failure: Failure, values: Sequence[Atom]) -> Operation:
        primal = self.embed.require(test.primal, failure, [v.primal for v in values])
        return Operation(primal, _never, self.activity.require(test.entry, failure, _entries(values)))

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Block:
        primals = [Binding(binding.operation.primal, binding.types, binding.origin) for binding in bindings]
        primal = self.embed.block(binders, primals, [result.primal for result in results], names)
        activities = [Binding(binding.operation.activity, binding.types, binding.origin) for binding in bindings]
        activity = self.activity.block(binders, activities, _entries(results), names)

        def run(env: Env[Entry], arguments: Sequence[Entry]) -> tuple[list[Value], Pull]:
            name_arguments([argument.value for argument in arguments], names)
            return self._run_block(env.enter(arguments), bindings, results)

        return Block(primal, run, activity, len(results))

    def _run_block(
        self, env: Env[Entry], bindings: Sequence[Binding], results: Sequence[Atom]
    ) -> tuple[list[Value], Pull]:
        steps: list[tuple[Pull, list[Cell | None], bool, Origin]] = []
        outer = self.builder.origin
        for operation, _, origin in bindings:
            self.builder.origin = origin
            active, updates = operation.activity(env)
            if updates or any(active):
                values, pull = operation.run(env, active)
                moving = zip(values, active, strict=True)
                cells = [Cell(self.sweep, value) if moves else None for value, moves in moving]
                steps.append((pull, cells, updates, origin))
                env = env.extend([Entry(value, cell) for value, cell in zip(values, cells, strict=True)])
            else:
                env = env.extend([Entry(value) for value in operation.primal(env)])
        self.builder.origin = outer
        finals = [result.cell(env) for result in results]

        def pull_all(cotangents: Cotangents) -> None:
            for cell, cotangent in zip(finals, cotangents, strict=True):
                if cell is not None and cotangent is not None:
                    cell.add(cotangent)
            before = self.builder.origin
            for pull, cells, updates, origin in reversed(steps):
                self.builder.origin = origin
                arrived = [None if cell is None else cell.read() for cell in cells]
                if updates or any(cotangent is not None for cotangent in arrived):
                    pull(arrived)
            self.builder.origin = before

        return [result.primal(env) for result in results], pull_all


def _entries(atoms: Sequence[Atom]) -> list[Callable[[Env[Entry]], Entry]]:
    return [atom.entry for atom in atoms]


def _never(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
    raise AssertionError("an operation without active results is not run")
