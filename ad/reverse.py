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
from functools import partial
from typing import Any

from ..core.builder import Builder, Scope
from ..core.dims import Dim
from ..core.environment import Env
from ..core.expr import Expr
from ..core.graph import Node, Value
from ..core.language import Binding, Language
from ..core.primitive import Primitive
from ..core.terms import Constant, Failure, Origin
from ..core.types import Accumulator, ArrayType, Scalar, Type, accumulator_of, element, i64
from ..interpreters.accumulators import plus, zeros_like
from ..interpreters.embed import Atom as PrimalAtom
from ..interpreters.embed import Block as PrimalBlock
from ..interpreters.embed import Embed, name_arguments
from ..interpreters.embed import Operation as PrimalOperation
from .activity import Activity
from .activity import Block as ActivityBlock
from .activity import Operation as ActivityOperation
from .reductions import first_place, products_of_others, rule_of

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
class _Atom:
    primal: Callable[[Env[Entry]], Value]
    entry: Callable[[Env[Entry]], Entry]

    def cell(self, env: Env[Entry]) -> Cell | None:
        return self.entry(env).cell


@dataclass(frozen=True)
class _Operation:
    """The primal alone; the primal with its pull, given which results are active; and the analysis that says so."""

    primal: PrimalOperation
    run: Callable[[Env[Entry], Sequence[bool]], tuple[Sequence[Value], Pull]]
    activity: ActivityOperation


@dataclass(frozen=True)
class _Block:
    primal: PrimalBlock
    run: Callable[[Env[Entry], Sequence[Entry]], tuple[list[Value], Pull]]
    activity: ActivityBlock


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


class Reverse(Language[_Atom, _Operation, _Block]):
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

    def variable(self, index: int, type: Type) -> _Atom:
        return _Atom(self.embed.variable(index, type), lambda env: env.get(index))

    def _inactive(self, primal: Callable[[Env[Any]], Value]) -> _Atom:
        return _Atom(primal, lambda env: Entry(primal(env)))

    def literal(self, value: float | int | bool, type: Scalar) -> _Atom:
        return self._inactive(self.embed.literal(value, type))

    def constant(self, array: Constant, type: ArrayType) -> _Atom:
        return self._inactive(self.embed.constant(array, type))

    def dim(self, dim: Dim) -> _Atom:
        return self._inactive(self.embed.dim(dim))

    # Scalars and control

    def primitive(self, primitive: Primitive, args: Sequence[_Atom]) -> _Operation:
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

        return _Operation(primal, run, self.activity.primitive(primitive, _entries(args)))

    def cond(self, test: _Atom, then: _Block, orelse: _Block) -> _Operation:
        primal = self.embed.cond(test.primal, then.primal, orelse.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, condition = primal(env), test.primal(env)

            def branch(block: _Block, cotangents: Cotangents) -> Callable[[], Sequence[Value]]:
                def sweep() -> Sequence[Value]:
                    block.run(env, [])[1](cotangents)
                    return []

                return sweep

            def pull(cotangents: Cotangents) -> None:
                self.sweep.enclose(
                    lambda: self.builder.cond(condition, branch(then, cotangents), branch(orelse, cotangents))
                )

            return values, pull

        return _Operation(primal, run, self.activity.cond(test.entry, then.activity, orelse.activity))

    def loop(self, dim: Dim, extent: _Atom, initials: Sequence[_Atom], body: _Block) -> _Operation:
        """The forward loop stores the state of each step; the return loop runs the steps again, backwards."""
        primal = self.embed.loop(dim, extent.primal, [a.primal for a in initials], body.primal)
        b, count = self.builder, len(initials)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            length, starts = extent.primal(env), [a.primal(env) for a in initials]
            cells = [a.cell(env) for a in initials]
            moving = [k for k in range(count) if active[k]]

            def step(i: Value, *state: Value) -> Sequence[Value]:
                return [*body.primal(env, [i, *state]), *state]

            values = b.loop(length, starts, step)
            plain, stored = values[: len(values) - count], values[len(values) - count :]

            def pull(cotangents: Cotangents) -> None:
                def back(j: Value, *state: Value) -> Sequence[Value]:
                    last = b.primitive("subtract", length, b.literal(1, i64))
                    i = b.primitive("subtract", last, j)
                    known = dict(zip(moving, state, strict=True))
                    states = [b.part(array, [i]) for array in stored]
                    own = [Cell(self.sweep, states[k]) for k in moving]
                    entries = [Entry(value) for value in states]
                    for k, cell in zip(moving, own, strict=True):
                        entries[k].cell = cell
                    outputs = [None if g is None else b.part(g, [i]) for g in cotangents[count:]]
                    body.run(env, [Entry(i), *entries])[1]([*[known.get(k) for k in range(count)], *outputs])
                    return [cell.total_or_zero() for cell in own]

                incoming = [cotangents[k] for k in moving]
                ends = [zeros_like(b, starts[k]) if g is None else g for k, g in zip(moving, incoming, strict=True)]
                results = self.sweep.enclose(lambda: b.loop(length, ends, back))
                for k, result in zip(moving, results, strict=True):
                    cell = cells[k]
                    if cell is not None:
                        cell.add(result)

            return plain, pull

        return _Operation(primal, run, self.activity.loop(dim, extent.entry, _entries(initials), body.activity))

    # Arrays

    def size(self, array: _Atom, axis: int) -> _Operation:
        primal = self.embed.size(array.primal, axis)
        return _Operation(primal, _never, self.activity.size(array.entry, axis))

    def index(self, array: _Atom, indices: Sequence[_Atom]) -> _Operation:
        primal = self.embed.index(array.primal, [i.primal for i in indices])

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            cell, places = array.cell(env), [i.primal(env) for i in indices]

            def pull(cotangents: Cotangents) -> None:
                if cell is not None and cotangents[0] is not None:
                    cell.add_at(places, cotangents[0])

            return [self.builder.index(array.primal(env), places)], pull

        return _Operation(primal, run, self.activity.index(array.entry, _entries(indices)))

    def generate(self, dim: Dim, extent: _Atom, body: _Block) -> _Operation:
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

        return _Operation(primal, run, self.activity.generate(dim, extent.entry, body.activity))

    def reduce(self, extent: _Atom, neutrals: Sequence[_Atom], element: _Block, operator: _Block) -> _Operation:
        units = [a.primal for a in neutrals]
        primal = self.embed.reduce(extent.primal, units, element.primal, operator.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values = primal(env)
            return values, _Reduction(self, env, extent.primal(env), element, values).pull

        activity = self.activity.reduce(extent.entry, _entries(neutrals), element.activity, operator.activity)
        return _Operation(primal, run, activity)

    # Effects

    def accumulate(self, initials: Sequence[_Atom], body: _Block) -> _Operation:
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

        return _Operation(primal, run, self.activity.accumulate(_entries(initials), body.activity))

    def add_to(self, accumulator: _Atom, value: _Atom, indices: Sequence[_Atom]) -> _Operation:
        primal = self.embed.add_to(accumulator.primal, value.primal, [i.primal for i in indices])

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            final, cell, places = accumulator.entry(env).final, value.cell(env), [i.primal(env) for i in indices]
            assert final is not None and cell is not None
            return [], lambda cotangents: cell.add(self.builder.index(final, places))

        activity = self.activity.add_to(accumulator.entry, value.entry, _entries(indices))
        return _Operation(primal, run, activity)

    def require(self, test: _Atom, failure: Failure, values: Sequence[_Atom]) -> _Operation:
        primal = self.embed.require(test.primal, failure, [v.primal for v in values])
        return _Operation(primal, _never, self.activity.require(test.entry, failure, _entries(values)))

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[_Atom], names: Sequence[str]
    ) -> _Block:
        primals = [Binding(binding.operation.primal, binding.types, binding.origin) for binding in bindings]
        primal = self.embed.block(binders, primals, [result.primal for result in results], names)
        activities = [Binding(binding.operation.activity, binding.types, binding.origin) for binding in bindings]
        activity = self.activity.block(binders, activities, _entries(results), names)

        def run(env: Env[Entry], arguments: Sequence[Entry]) -> tuple[list[Value], Pull]:
            name_arguments([argument.value for argument in arguments], names)
            return self._run_block(env.enter(arguments), bindings, results)

        return _Block(primal, run, activity)

    def _run_block(
        self, env: Env[Entry], bindings: Sequence[Binding], results: Sequence[_Atom]
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


def _entries(atoms: Sequence[_Atom]) -> list[Callable[[Env[Entry]], Entry]]:
    return [atom.entry for atom in atoms]


def _never(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
    raise AssertionError("an operation without active results is not run")


class _Reduction:
    """The return sweep of a reduce, by operator (``reductions.py``)."""

    def __init__(
        self, reverse: Reverse, env: Env[Entry], length: Value, element: _Block, values: Sequence[Value]
    ) -> None:
        self.reverse, self.env, self.length, self.element, self.values = reverse, env, length, element, values

    def pull(self, cotangents: Cotangents) -> None:
        b = self.reverse.builder
        everywhere: dict[int, Callable[[Value], Value]] = {}  # the cotangent of element i, by component
        for component, (value, cotangent) in enumerate(zip(self.values, cotangents, strict=True)):
            if cotangent is None:
                continue
            assert value.source is not None
            match rule := rule_of(value.source.bodies[1], component):
                case "add":
                    everywhere[component] = partial(_same, cotangent)
                case "multiply":
                    others = products_of_others(b, self.length, self._item(component), element(value.type))
                    everywhere[component] = partial(_scaled, b, cotangent, others)
                case "minimum" | "maximum":
                    self._at_first(component, element(value.type), cotangent, rule)
                case _:
                    raise TypeError(
                        f"reverse mode of a reduce takes the operators +, *, min and max on each component, not a "
                        f"general one (at {b.origin}); jvp takes any"
                    )
        if everywhere:
            self.reverse.sweep.enclose(
                lambda: b.generate(self.length, lambda i: self._sweep(i, {k: at(i) for k, at in everywhere.items()}))
            )

    def _item(self, component: int) -> Callable[[Value], Value]:
        return lambda i: self.element.primal(self.env, [i])[component]

    def _sweep(self, i: Value, cotangents: dict[int, Value]) -> Sequence[Value]:
        """The return sweep of element i."""
        pull = self.element.run(self.env, [Entry(i)])[1]
        pull([cotangents.get(component) for component in range(len(self.values))])
        return []

    def _at_first(self, component: int, type: Scalar, cotangent: Value, rule: str) -> None:
        """Only the first element that attains the extremum, if there is one."""
        b = self.reverse.builder
        first, found = first_place(b, self.length, self._item(component), type, rule)
        self.reverse.sweep.enclose(
            lambda: b.cond(found, lambda: self._sweep(first, {component: cotangent}), lambda: [])
        )


def _same(cotangent: Value, i: Value) -> Value:
    return cotangent


def _scaled(b: Builder, cotangent: Value, factors: Value, i: Value) -> Value:
    return b.primitive("multiply", cotangent, b.index(factors, [i]))
