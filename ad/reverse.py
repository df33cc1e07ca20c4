"""Reverse mode: a language in which an operation means its own code and the code of its return sweep.

The meaning of an operation emits its primal into the builder and gives a *pull*: a Python function that, when the
cotangents of the results are known, emits the return sweep. Pulls exist only while code is generated; the program
that comes out has no tape. A scope that the return sweep enters runs its own forward part again, and what of that
is not needed is dead code (Schenck et al. 2022, sections 4 and 5).

A *cell* holds the cotangent of one value and knows its scope. In that scope it is a value, and single reads wait in
it; from a deeper scope (the body of a loop, a branch) it is reached by ``add_to`` on an accumulator made on demand,
and the statement that did so is wrapped by its accumulate at once. A value captured from outside the differentiated
function has no cell: this is all there is to activity analysis, and to freedom from perturbation confusion.
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
from ..core.types import Accumulator, ArrayType, Scalar, Type, element, i64, is_float, rank
from ..interpreters.accumulators import plus, zeros_like
from ..interpreters.embed import Embed
from ..interpreters.embed import Operation as PrimalOperation
from ..interpreters.rules import operator_name

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
            self.accumulator = self.sweep.builder.variable(Accumulator(_plain(self.primal.type)))
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

            body = b.body([Accumulator(_plain(self.primal.type))], updates)
            self.close(b.emit("accumulate", (), [self.initial()], [body])[0])
        return self.total


@dataclass
class Entry:
    """What the environment holds: a value and its cell. An accumulator has its final's cotangent in place of both."""

    value: Value | None
    cell: Cell | None = None
    final: Value | None = None


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


def _plain(type: Type) -> Scalar | ArrayType:
    assert not isinstance(type, Accumulator)
    return type


# Meanings


@dataclass(frozen=True)
class _Atom:
    primal: Callable[[Env[Entry]], Value]
    entry: Callable[[Env[Entry]], Entry]
    accumulators: frozenset[int] = frozenset()

    def cell(self, env: Env[Entry]) -> Cell | None:
        return self.entry(env).cell


@dataclass(frozen=True)
class _Operation:
    """The primal alone, and the primal with its pull; ``always``: pull though no result has a cotangent."""

    primal: PrimalOperation
    run: Callable[[Env[Entry]], tuple[Sequence[Value], Pull | None]]
    accumulators: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Block:
    primal: Callable[[Env[Entry], Sequence[Value]], list[Value]]
    run: Callable[[Env[Entry], Sequence[Entry]], tuple[list[Value], Pull]]
    accumulators: frozenset[int] = frozenset()


def _free(*parts: Any) -> frozenset[int]:
    return frozenset().union(*[part.accumulators for part in parts])


class _Primal(Embed):
    """The primal code, in environments of entries; updates of accumulators that are differentiated vanish."""

    def entry(self, value: Value) -> Entry:
        return Entry(value)

    def value(self, entry: Any) -> Value:
        return entry.value  # type: ignore[no-any-return]

    def add_to(self, accumulator: Any, value: Any, indices: Any) -> PrimalOperation:
        emit = super().add_to(accumulator, value, indices)
        return lambda env: [] if accumulator(env) is None else emit(env)


class Reverse(Language[_Atom, _Operation, _Block]):
    """The language of return sweeps. Use :func:`pullback`."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep, self.builder = sweep, sweep.builder
        self.embed = _Primal(sweep.builder)

    def stop_checking(self) -> None:
        """Requirements belong to the forward sweep: from here on code is run again."""
        self.embed.checks = False

    # Atoms

    def variable(self, index: int, type: Type) -> _Atom:
        own = frozenset([index]) if isinstance(type, Accumulator) else frozenset[int]()
        return _Atom(self.embed.variable(index, type), lambda env: env.get(index), own)

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

        def run(env: Env[Entry]) -> tuple[Sequence[Value], Pull | None]:
            values, cells = [a.primal(env) for a in args], [a.cell(env) for a in args]
            (y,) = self.builder.emit("primitive", (primitive,), values)
            if not is_float(y.type) or not any(cells):
                return [y], None
            return [y], lambda cotangents: self._pull_primitive(primitive, y, values, cells, cotangents)

        return _Operation(primal, run)

    def _pull_primitive(
        self, primitive: Primitive, y: Value, values: list[Value], cells: list[Cell | None], cotangents: Cotangents
    ) -> None:
        assert primitive.derivative is not None and cotangents[0] is not None
        b = self.builder
        rules = primitive.derivative(Expr(y, b), *[Expr(value, b) for value in values])
        for cell, rule in zip(cells, rules, strict=True):
            if cell is not None and rule is not None:
                cell.add(rule(Expr(cotangents[0], b)).value)

    def cond(self, test: _Atom, then: _Block, orelse: _Block) -> _Operation:
        primal = self.embed.cond(test.primal, then.primal, orelse.primal)

        def run(env: Env[Entry]) -> tuple[Sequence[Value], Pull | None]:
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

        return _Operation(primal, run, _free(then, orelse))

    def loop(self, dim: Dim, extent: _Atom, initials: Sequence[_Atom], body: _Block) -> _Operation:
        """The forward loop stores the state of each step; the return loop runs the steps again, backwards."""
        primal = self.embed.loop(dim, extent.primal, [a.primal for a in initials], body.primal)
        b, count = self.builder, len(initials)

        def run(env: Env[Entry]) -> tuple[Sequence[Value], Pull | None]:
            length, starts = extent.primal(env), [a.primal(env) for a in initials]
            cells = [a.cell(env) for a in initials]
            floating = [k for k in range(count) if is_float(starts[k].type)]

            def step(i: Value, *state: Value) -> Sequence[Value]:
                return [*body.primal(env, [i, *state]), *state]

            values = b.loop(length, starts, step)
            plain = values[: len(values) - count]
            stored = values[len(values) - count :]

            def pull(cotangents: Cotangents) -> None:
                incoming = [
                    zeros_like(b, starts[k]) if cotangents[k] is None else cotangents[k] for k in floating
                ]

                def back(j: Value, *state: Value) -> Sequence[Value]:
                    last = b.primitive("subtract", length, b.literal(1, i64))
                    i = b.primitive("subtract", last, j)
                    entries = [Entry(i)]
                    for k in range(count):
                        value = element_at(b, stored[k], [i])
                        entries.append(Entry(value, Cell(self.sweep, value) if k in floating else None))
                    known: dict[int, Value] = dict(zip(floating, state, strict=True))
                    outputs = [None if g is None else element_at(b, g, [i]) for g in cotangents[count:]]
                    body.run(env, entries)[1]([*[known.get(k) for k in range(count)], *outputs])
                    results = []
                    for k in floating:
                        cell = entries[1 + k].cell
                        assert cell is not None
                        total = cell.read()
                        results.append(cell.initial() if total is None else total)
                    return results

                starting = [value for value in incoming if value is not None]
                results = self.sweep.enclose(lambda: b.loop(length, starting, back))
                for k, result in zip(floating, results, strict=True):
                    cell = cells[k]
                    if cell is not None:
                        cell.add(result)

            return plain, pull

        return _Operation(primal, run, _free(body))

    # Arrays

    def size(self, array: _Atom, axis: int) -> _Operation:
        primal = self.embed.size(array.primal, axis)
        return _Operation(primal, lambda env: (primal(env), None))

    def index(self, array: _Atom, indices: Sequence[_Atom]) -> _Operation:
        primal = self.embed.index(array.primal, [i.primal for i in indices])

        def run(env: Env[Entry]) -> tuple[Sequence[Value], Pull | None]:
            cell, places = array.cell(env), [i.primal(env) for i in indices]
            values = [self.builder.index(array.primal(env), places)]
            if cell is None:
                return values, None

            def pull(cotangents: Cotangents) -> None:
                if cotangents[0] is not None:
                    cell.add_at(places, cotangents[0])

            return values, pull

        return _Operation(primal, run)

    def generate(self, dim: Dim, extent: _Atom, body: _Block) -> _Operation:
        primal = self.embed.generate(dim, extent.primal, body.primal)

        def run(env: Env[Entry]) -> tuple[Sequence[Value], Pull | None]:
            values, length = primal(env), extent.primal(env)

            def pull(cotangents: Cotangents) -> None:
                def sweep(i: Value) -> Sequence[Value]:
                    inner = [None if g is None else element_at(self.builder, g, [i]) for g in cotangents]
                    body.run(env, [Entry(i)])[1](inner)
                    return []

                self.sweep.enclose(lambda: self.builder.generate(length, sweep))

            return values, pull

        return _Operation(primal, run, body.accumulators)

    def reduce(self, extent: _Atom, neutrals: Sequence[_Atom], element: _Block, operator: _Block) -> _Operation:
        primal = self.embed.reduce(extent.primal, [a.primal for a in neutrals], element.primal, operator.primal)

        def run(env: Env[Entry]) -> tuple[Sequence[Value], Pull | None]:
            values = primal(env)
            source = values[0].source
            if not any(is_float(value.type) for value in values) or source is None or source.op != "reduce":
                return values, None
            return values, _Reduction(self, env, extent.primal(env), element, values, source).pull

        return _Operation(primal, run, _free(element, operator))

    # Effects

    def accumulate(self, initials: Sequence[_Atom], body: _Block) -> _Operation:
        """A sum of updates is linear: inside, an accumulator is its final's cotangent, which is only read."""
        primal = self.embed.accumulate([a.primal for a in initials], body.primal)
        count = len(initials)

        def run(env: Env[Entry]) -> tuple[Sequence[Value], Pull | None]:
            values, cells = primal(env), [a.cell(env) for a in initials]

            def pull(cotangents: Cotangents) -> None:
                for cell, cotangent in zip(cells, cotangents, strict=False):
                    if cell is not None and cotangent is not None:
                        cell.add(cotangent)
                body.run(env, [Entry(None, None, g) for g in cotangents[:count]])[1](cotangents[count:])

            return values, pull

        return _Operation(primal, run, _free(body))

    def add_to(self, accumulator: _Atom, value: _Atom, indices: Sequence[_Atom]) -> _Operation:
        primal = self.embed.add_to(accumulator.primal, value.primal, [i.primal for i in indices])

        def run(env: Env[Entry]) -> tuple[Sequence[Value], Pull | None]:
            final, cell = accumulator.entry(env).final, value.cell(env)
            places = [i.primal(env) for i in indices]
            if final is None or cell is None:
                return [], None
            return [], lambda cotangents: cell.add(self.builder.index(final, places))

        return _Operation(primal, run, accumulator.accumulators)

    def require(self, test: _Atom, failure: Failure, values: Sequence[_Atom]) -> _Operation:
        primal = self.embed.require(test.primal, failure, [v.primal for v in values])
        return _Operation(primal, lambda env: (primal(env), None))

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[_Atom], names: Sequence[str]
    ) -> _Block:
        inner = [Binding(binding.operation.primal, binding.types, binding.origin) for binding in bindings]
        primal = self.embed.block(binders, inner, [result.primal for result in results], names)
        free: set[int] = set()
        bound = len(binders)
        for binding in bindings:
            free |= {index - bound for index in binding.operation.accumulators if index >= bound}
            bound += len(binding.types)

        def run(env: Env[Entry], arguments: Sequence[Entry]) -> tuple[list[Value], Pull]:
            return self._run_block(env.enter(arguments), bindings, results)

        return _Block(primal, run, frozenset(free))

    def _run_block(
        self, env: Env[Entry], bindings: Sequence[Binding], results: Sequence[_Atom]
    ) -> tuple[list[Value], Pull]:
        steps: list[tuple[Pull, list[Cell | None], bool, Origin]] = []
        outer = self.builder.origin
        for operation, _, origin in bindings:
            self.builder.origin = origin
            values, pull = operation.run(env)
            cells: list[Cell | None] = [None] * len(values)
            if pull is not None:
                cells = [Cell(self.sweep, value) if is_float(value.type) else None for value in values]
                steps.append((pull, cells, bool(operation.accumulators), origin))
            env = env.extend([Entry(value, cell) for value, cell in zip(values, cells, strict=True)])
        self.builder.origin = outer
        finals = [result.cell(env) for result in results]

        def pull_all(cotangents: Cotangents) -> None:
            for cell, cotangent in zip(finals, cotangents, strict=True):
                if cell is not None and cotangent is not None:
                    cell.add(cotangent)
            before = self.builder.origin
            for pull, cells, always, origin in reversed(steps):
                self.builder.origin = origin
                arrived = [None if cell is None else cell.read() for cell in cells]
                if always or any(cotangent is not None for cotangent in arrived):
                    pull(arrived)
            self.builder.origin = before

        return [result.primal(env) for result in results], pull_all


class _Reduction:
    """The return sweep of a reduce, by operator (Schenck et al. 2022, section 5.1)."""

    def __init__(
        self,
        reverse: Reverse,
        env: Env[Entry],
        length: Value,
        element: _Block,
        values: Sequence[Value],
        source: Node,
    ) -> None:
        self.reverse, self.env, self.length, self.element, self.values = reverse, env, length, element, values
        self.operator = operator_name(source.bodies[1])

    def pull(self, cotangents: Cotangents) -> None:
        rule = {
            "add": self._sum,
            "multiply": self._product,
            "minimum": self._extremum,
            "maximum": self._extremum,
        }.get(self.operator or "")
        if rule is None:
            origin = self.reverse.builder.origin
            raise TypeError(
                f"reverse mode of a reduce takes the operators +, *, min and max, not {self.operator or 'a general one'}"
                f" (at {origin})"
            )
        assert cotangents[0] is not None
        rule(cotangents[0])

    def _each(self, cotangent: Callable[[Value], Value]) -> None:
        """The return sweep of every element, whose cotangent may depend on its value."""
        b = self.reverse.builder

        def sweep(i: Value) -> Sequence[Value]:
            values, pull = self.element.run(self.env, [Entry(i)])
            pull([cotangent(values[0])])
            return []

        self.reverse.sweep.enclose(lambda: b.generate(self.length, sweep))

    def _sum(self, g: Value) -> None:
        self._each(lambda _: g)

    def _product(self, g: Value) -> None:
        """Without zeros y / a; with one, the product of the others there; with more, nothing."""
        b, type = self.reverse.builder, element(self.values[0].type)
        zero, one = b.literal(0, type), b.literal(1, type)

        def item(i: Value) -> Value:
            return self.element.primal(self.env, [i])[0]

        def is_zero(value: Value) -> Value:
            return b.primitive("equal", value, zero)

        zeros = b.sum(self.length, lambda i: b.primitive("i64", is_zero(item(i))), i64)
        others = b.reduce(
            self.length,
            [one],
            lambda i: b.cond(is_zero(item(i)), lambda: [one], lambda: [item(i)]),
            lambda x, y: [b.primitive("multiply", x, y)],
        )[0]
        none = b.primitive("equal", zeros, b.literal(0, i64))
        single = b.primitive("equal", zeros, b.literal(1, i64))

        def factor(value: Value) -> Value:
            at_zero = b.primitive("logical_and", single, is_zero(value))
            rest = b.cond(at_zero, lambda: [b.primitive("multiply", g, others)], lambda: [zero])[0]
            quotient = b.cond(none, lambda: [b.primitive("divide", self.values[0], value)], lambda: [zero])[0]
            return b.cond(none, lambda: [b.primitive("multiply", g, quotient)], lambda: [rest])[0]

        self._each(factor)

    def _extremum(self, g: Value) -> None:
        """Only the first element that attains it; nothing when there is none (no element, or NaN)."""
        b = self.reverse.builder

        def place(i: Value) -> Sequence[Value]:
            attained = b.primitive("equal", self.element.primal(self.env, [i])[0], self.values[0])
            return b.cond(attained, lambda: [i], lambda: [self.length])

        first = b.reduce(self.length, [self.length], place, lambda x, y: [b.primitive("minimum", x, y)])[0]

        def sweep() -> Sequence[Value]:
            self.element.run(self.env, [Entry(first)])[1]([g])
            return []

        found = b.primitive("less", first, self.length)
        self.reverse.sweep.enclose(lambda: b.cond(found, sweep, lambda: []))


def element_at(b: Builder, array: Value, indices: Sequence[Value]) -> Value:
    """An element, or the subarray that is left when there are fewer indices than axes."""
    sizes = [b.size(array, axis) for axis in range(len(indices), rank(array.type))]
    return b.array(sizes, lambda *rest: b.index(array, [*indices, *rest]))


