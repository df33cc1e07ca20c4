"""From a term back into the builder: the interpretation that rebuilds a program, and on which passes are built.

An atom means ``env -> value``, an operation ``env -> values``, a block ``(env, arguments) -> values``; entering a
block again emits its code again. With a plain builder this is the identity; with rules it is a simplifier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core import terms
from ..core.builder import Builder, Rule, build
from ..core.constructs import Construct, construct
from ..core.dims import Dim, DimAtom, Opaque
from ..core.environment import Env
from ..core.graph import NONE, Body, Value
from ..core.language import Binding, Language
from ..core.placement import to_block
from ..core.primitive import Primitive
from ..core.procedures import Procedure
from ..core.terms import Constant, Failure, Foreign, Rules
from ..core.types import ArrayType, FunctionType, Opened, Scalar, Type, accumulator_of, i64, map_dims

Entries = Env[Any]
Atom = Callable[[Entries], Value]
Operation = Callable[[Entries], Sequence[Value]]
Block = Callable[[Entries, Sequence[Value]], list[Value]]


class Embed(Language[Atom, Operation, Block]):
    """Rebuilds a term in a builder. While ``checks`` is false, requirements are left out, and probes show nothing.

    An environment holds *entries*; ``entry`` and ``value`` lead from a value to its entry and back, so that a
    transformation may keep more beside a value.
    """

    later_rules = True

    def __init__(self, builder: Builder) -> None:
        self.builder, self.checks = builder, True

    def entry(self, value: Value) -> Any:
        return value

    def value(self, entry: Any) -> Value:
        assert isinstance(entry, Value)
        return entry

    def knows(self, construct: Construct) -> bool:
        return True

    def operation(self, operation: terms.Operation, args: Sequence[Atom], blocks: Sequence[Block]) -> Operation:
        row, static = operation.row, operation.static
        method: Callable[..., Operation] | None = getattr(self, row.method, None)
        if method is None or row.values:
            return self._with_blocks(operation.op, static, args, blocks)
        return method(*row.parameters(static, args, blocks))

    def variable(self, index: int, type: Type) -> Atom:
        return lambda env: self.value(env.get(index))

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return lambda env: self.builder.literal(value, type)

    def constant(self, array: Constant, type: ArrayType) -> Atom:
        return lambda env: self.builder.atom(array)

    def dim(self, dim: Dim) -> Atom:
        return lambda env: self.builder.dim(dim)

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Operation:
        return lambda env: self.builder.emit("primitive", (primitive,), [a(env) for a in args])

    def cond(self, test: Atom, then: Block, orelse: Block) -> Operation:
        return lambda env: self.builder.cond(test(env), lambda: then(env, []), lambda: orelse(env, []))

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Block) -> Operation:
        def run(env: Entries) -> Sequence[Value]:
            return self.builder.loop(extent(env), [a(env) for a in initials], lambda *state: body(env, state))

        return run

    def size(self, array: Atom, axis: int) -> Operation:
        return lambda env: [self.builder.size(array(env), axis)]

    def index(self, array: Atom, indices: Sequence[Atom]) -> Operation:
        return lambda env: [self.builder.index(array(env), [i(env) for i in indices])]

    def generate(self, dim: Dim, extent: Atom, body: Block) -> Operation:
        return lambda env: self.builder.generate(extent(env), lambda i: body(env, [i]))

    def combination(
        self, construct: Construct, extents: Sequence[Atom], neutrals: Sequence[Atom], element: Block, operator: Block
    ) -> Operation:
        def run(env: Entries) -> Sequence[Value]:
            units, sizes = [a(env) for a in neutrals], [a(env) for a in extents]
            return self.builder.combination(
                construct.name, sizes, units, lambda i: element(env, [i]), lambda *ab: operator(env, ab)
            )

        return run

    def scatter(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Block) -> Operation:
        def run(env: Entries) -> Sequence[Value]:
            sizes, arrays = [a(env) for a in extents], [a(env) for a in destinations]
            return self.builder.scatter(unique, sizes, arrays, lambda *i: element(env, i))

        return run

    def argsort(self, array: Atom) -> Operation:
        return lambda env: self.builder.emit("argsort", (), [array(env)])

    def while_loop(self, initials: Sequence[Atom], test: Block, body: Block) -> Operation:
        def run(env: Entries) -> Sequence[Value]:
            state = [a(env) for a in initials]
            return self.builder.while_loop(state, lambda *s: test(env, s)[0], lambda *s: body(env, s))

        return run

    # Meanings given by the user

    def custom(self, rules: Rules, args: Sequence[Atom], body: Block, blocks: Sequence[Block]) -> Operation:
        return self._with_blocks("custom", rules, args, [body, *blocks])

    def probe(self, name: str, values: Sequence[Atom]) -> Operation:
        show = self._with_blocks("probe", (name,), values, [])
        return lambda env: show(env) if self.checks else [value(env) for value in values]

    def foreign(self, function: Foreign, args: Sequence[Atom]) -> Operation:
        return self._with_blocks("foreign", (function,), args, [])

    # The higher-order fragment

    def case(self, value: Atom, variants: tuple[str, ...], branches: Sequence[Block]) -> Operation:
        return self._with_blocks("case", variants, [value], branches)

    def par(self, branches: Sequence[Block]) -> Operation:
        return self._with_blocks("par", (), [], branches)

    def call(self, procedures: tuple[Procedure, ...], args: Sequence[Atom]) -> Operation:
        return self._with_blocks("call", procedures, args, [])

    def cell(self, number: int, fields: Sequence[Atom]) -> Operation:
        return self._with_blocks("cell", (number,), fields, [])

    def open(self, cell: Atom, variants: tuple[Opened, ...], branches: Sequence[Block]) -> Operation:
        return self._with_blocks("open", variants, [cell], branches)

    def _with_blocks(
        self, op: str, static: tuple[Any, ...], args: Sequence[Atom], blocks: Sequence[Block]
    ) -> Operation:
        """A construct whose blocks are entered with their own parameters."""

        def run(env: Entries) -> Sequence[Value]:
            entries = [lambda *binders, block=block: block(env, binders) for block in blocks]
            return emit_blocks(self.builder, op, static, [a(env) for a in args], entries)

        return run

    # Effects

    def accumulate(self, initials: Sequence[Atom], body: Block) -> Operation:
        def run(env: Entries) -> Sequence[Value]:
            return accumulate(self.builder, [a(env) for a in initials], lambda *cells: body(env, cells))

        return run

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Operation:
        def run(env: Entries) -> Sequence[Value]:
            return self.builder.emit("add_to", (), [accumulator(env), value(env), *[i(env) for i in indices]])

        return run

    def require(self, test: Atom, failure: Failure, values: Sequence[Atom]) -> Operation:
        def run(env: Entries) -> Sequence[Value]:
            if self.checks:
                self.builder.require(test(env), failure, [v(env) for v in values])
            return []

        return run

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Block:
        def run(env: Entries, arguments: Sequence[Value]) -> list[Value]:
            builder = self.builder
            name_arguments(arguments, names)
            env = env.enter([self.entry(argument) for argument in arguments])
            outer = builder.origin
            for operation, _, origin in bindings:
                builder.origin = origin
                env = env.extend([self.entry(value) for value in operation(env)])
            builder.origin = outer
            return [result(env) for result in results]

        return run


class Known(Value):
    """A function that is no value of the program: its code is emitted where it is applied."""

    __slots__ = ("emit",)

    def __init__(self, type: FunctionType, emit: Callable[..., Sequence[Value]]) -> None:
        super().__init__(0, type, NONE)
        self.emit = emit


def emit_blocks(
    builder: Builder,
    op: str,
    static: tuple[Any, ...],
    args: Sequence[Value],
    blocks: Sequence[Callable[..., Sequence[Value]]],
) -> tuple[Value, ...]:
    """Emit a construct whose blocks are functions of their parameters."""
    if op == "apply" and isinstance(args[0], Known):
        return tuple(args[0].emit(*args[1:]))
    bodies, row = list[Body](), construct(op, static)
    for block in blocks:
        types = row.binders(static, [arg.type for arg in args], [body.types for body in bodies])
        bodies.append(builder.body(types, block))
    return builder.emit(op, static, args, bodies)


def name_arguments(arguments: Sequence[object], names: Sequence[str]) -> None:
    """Give binders that a block is entered with the names of its parameters, where they have none."""
    for argument, name in zip(arguments, names, strict=True):
        if isinstance(argument, Value) and argument.source is None and argument.atom is None and not argument.name:
            argument.name = name


def accumulate(builder: Builder, initials: Sequence[Value], body: Callable[..., Sequence[Value]]) -> tuple[Value, ...]:
    """An accumulate over these initial values."""
    types = [accumulator_of(value.type) for value in initials]
    made: Body = builder.body(types, body)
    return builder.emit("accumulate", (), initials, [made])


def rebuilt(
    block: terms.Block, language: Callable[[Builder], Embed], rule: Rule | None = None, remade: bool = False
) -> terms.Block:
    """A closed block as a language that emits rebuilds it; ``remade`` as in ``to_block``."""
    with build(rule) as builder:
        binders = fresh_binders(builder, block)
        results = block.interpret(language(builder))(Env(), binders)
        made, captured = to_block(binders, results, builder.scopes[0].statements, block.names, remade=remade)
        assert not captured
        return made


def fresh_binders(builder: Builder, block: terms.Block) -> list[Value]:
    """Binders for a whole term's parameters; sizes known by number only get numbers of this builder."""
    integers = [
        builder.variable(type, name) for type, name in zip(block.binders, block.names, strict=True) if type == i64
    ]
    numbers = {number: Dim.of(value.dim) for number, value in enumerate(integers) if value.dim is not None}

    def renumber(atom: DimAtom) -> Dim | None:
        if not isinstance(atom, Opaque):
            return None
        return numbers.setdefault(atom.number, Dim.atom(Opaque(-1 - atom.number)))

    def renamed(type: Type) -> Type:
        return map_dims(type, lambda dim: dim.substitute(renumber))

    remaining = iter(integers)
    return [
        next(remaining) if type == i64 else builder.variable(renamed(type), name)
        for type, name in zip(block.binders, block.names, strict=True)
    ]
