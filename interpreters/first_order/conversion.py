"""Closure conversion: the walk that writes a program in first-order form, by what the flow analysis has found.

An environment holds the parts of each value. A construct that is neither a function nor data is rebuilt with the parts
of its arguments, and its blocks take and give parts; of the others nothing is left but parts, choices and calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.annotations import fresh
from ...core.builder import Builder, build
from ...core.dims import Dim, DimAtom, Opaque
from ...core.environment import Env
from ...core.graph import Value
from ...core.language import Unsupported
from ...core.placement import to_block
from ...core.procedures import Procedure
from ...core.terms import Atom, Block, Operation, Variable
from ...core.types import Named, Type, is_data, map_dims
from .. import embed
from .flows import Flow, Flows, Function, Shape, recursive
from .layouts import Layouts, Parts, nothing

Entries = Env[Parts]


class Conversion:
    """The procedures of a program, made as they are met."""

    def __init__(self, flows: Flows, layouts: Layouts, rules: bool) -> None:
        self.flows, self.layouts = flows, layouts
        self.rules = rules  # it is to be derived in reverse mode
        self.recursive = recursive(list(flows.functions.values()))
        self._procedures: dict[Function, Procedure] = {}
        self._captured: dict[Function, list[str]] = {}  # the names of what it captures, where it was met first
        self._waiting: list[Function] = []

    def program(self, block: Block, inputs: Sequence[Shape]) -> Block:
        """The block of the program; by then all its procedures have theirs."""
        types = [list(self.layouts.parts(shape)) for shape in inputs]
        names = [
            name if len(parts) == 1 else f"{name}_{k}"
            for name, parts in zip(block.names, types, strict=True)
            for k in range(len(parts))
        ]
        flat = [type for parts in types for type in parts]

        def run(writer: _Writer, binders: Sequence[Value]) -> list[Value]:
            return writer.block(block, Env(), self.layouts.split(binders, inputs))

        made = self._block(flat, names, run)
        while self._waiting:
            self._make(self._waiting.pop())
        return made

    def procedure(self, function: Function, captured: Sequence[Value]) -> Procedure:
        """The procedure of a function that recurs, where it captures these."""
        if function not in self._procedures:
            self._captured[function] = [value.name for value in captured]
            results = self.layouts.of_all(function.flow.root.results)
            name = fresh(function.name, [procedure.name for procedure in self._procedures.values()])
            shapes = (*function.captured, *function.flow.root.parameters)
            types = self.layouts.of_all(shapes)
            self._procedures[function] = Procedure(name, types, results, function.operation.origin)
            self._waiting.append(function)
        return self._procedures[function]

    def _make(self, function: Function) -> None:
        shapes = (*function.captured, *function.flow.root.parameters)

        def run(writer: _Writer, binders: Sequence[Value]) -> list[Value]:
            parts = self.layouts.split(binders, shapes)
            count = len(function.captured)
            return writer.body(function, parts[:count], parts[count:])

        own = function.block.names[1:] if function.operation.op == "fix" else function.block.names
        pairs = zip(function.flow.root.parameters, own, strict=True)
        names = self._captured[function] + [name for shape, name in pairs for _ in self.layouts.parts(shape)]
        self._procedures[function].block = self._block(self.layouts.of_all(shapes), names, run)

    def _block(
        self, types: Sequence[Type], names: Sequence[str], run: Callable[[_Writer, Sequence[Value]], list[Value]]
    ) -> Block:
        with build() as builder:
            binders = [builder.variable(type, name) for type, name in zip(_renumbered(types), names, strict=True)]
            results = run(_Writer(self, builder), binders)
            block, captured = to_block(binders, results, builder.scopes[0].statements, tuple(names))
            assert not captured
            return block


def _renumbered(types: Sequence[Type]) -> list[Type]:
    """Types of parameters, in which sizes that the run decides are numbers of nothing: the parameters have them."""
    numbers: dict[int, Dim] = {}

    def renumber(atom: DimAtom) -> Dim | None:
        if not isinstance(atom, Opaque):
            return None
        return numbers.setdefault(atom.number, Dim.atom(Opaque(-1 - len(numbers))))

    return [map_dims(type, lambda dim: dim.substitute(renumber)) for type in types]


class _Writer:
    """Writes blocks of the program into a builder."""

    def __init__(self, conversion: Conversion, builder: Builder) -> None:
        self.conversion, self.builder = conversion, builder
        self.flows, self.layouts = conversion.flows, conversion.layouts
        self.plain = embed.Embed(builder)

    def block(self, block: Block, env: Entries, arguments: Sequence[Parts]) -> list[Value]:
        """The parts of the results of a block."""
        for parts, name in zip(arguments, block.names, strict=True):
            embed.name_arguments(parts, [name] * len(parts))
        env = env.enter(arguments)
        outer = self.builder.origin
        for operation in block.bindings:
            self.builder.origin = operation.origin
            values = self.operation(operation, env)
            env = env.extend(self.layouts.split(values, self.flows.results[id(operation)]))
        self.builder.origin = outer
        return [value for each in block.results for value in self.atom(each, env)]

    def atom(self, atom: Atom, env: Entries) -> Parts:
        if isinstance(atom, Variable):
            return env.get(atom.index)
        return (self.plain.meaning_of_atom(atom)(Env()),)

    def operation(self, op: Operation, env: Entries) -> Sequence[Value]:
        """The parts of the results of an operation."""
        args = [self.atom(each, env) for each in op.args]
        shapes = self.flows.arguments[id(op)]
        match op.op:
            case "pack":
                return _flat(args)
            case "project":
                assert isinstance(shapes[0], tuple)
                item: Parts = self.layouts.split(args[0], shapes[0])[op.static[0]]
                return item
            case "construct":
                named, variant = op.static
                return self.layouts.make(
                    self.builder, named, list(named.declaration.variants).index(variant), _flat(args)
                )
            case "case":
                return self._case(op, args[0], env)
            case "function" | "fix":
                function = self.flows.functions[id(op)]
                captured = [env.get(variable.index) for variable in op.blocks[0].free]
                return self._closure(function, captured)
            case "apply":
                assert isinstance(shapes[0], Flow)
                return self._apply(shapes[0], args[0], args[1:])
        if op.op == "custom" and not self.conversion.rules and "checkpoint" not in op.static:
            return self.block(op.blocks[0], env, args)
        if self.conversion.rules and op.row.combines and has_values(op.blocks[0]):
            return self._stored(op, args, env)
        atoms = [lambda env, value=value: value for value in _flat(args)]
        made: Sequence[Value] = self.plain.operation(op, atoms, self._blocks(op, env))(Env())
        return made

    def _stored(self, op: Operation, args: Sequence[Parts], env: Entries) -> Sequence[Value]:
        """A reduction of elements that call something: they are stored first, so that a return sweep leads through
        them one by one."""
        b, (element, operator) = self.builder, [self._entered(block, env) for block in op.blocks]
        extents, neutrals = _flat(args[: -len(op.types)]), _flat(args[-len(op.types) :])
        stored = b.generate(extents[-1], lambda i: element(Env(), [i]))

        def row(i: Value) -> Sequence[Value]:
            return [b.part(array, [i]) for array in stored]

        return b.combination(op.op, extents, neutrals, row, lambda *both: operator(Env(), both))

    def _blocks(self, op: Operation, env: Entries) -> list[embed.Block]:
        if op.op != "custom":
            return [self._entered(block, env) for block in op.blocks]
        if op.blocks[1:] and not all(is_data(arg.type) for arg in op.args):
            problem = f"{op.origin.name} has rules for numbers and arrays, and takes a function, a tuple or data"
            error = Unsupported(f"{problem} in a program in which such values move: reverse mode does not look into it")
            error.origin = op.origin
            raise error
        rules = [self._rule(block, env) for block in op.blocks[1:]]
        return [self._entered(op.blocks[0], env), *rules]

    def _rule(self, block: Block, env: Entries) -> embed.Block:
        """The rule of a derivative, which is no part of the program: it is as it was, on numbers and arrays."""
        captured = [env.get(variable.index) for variable in block.free]
        for variable, parts in zip(block.free, captured, strict=True):
            if not is_data(variable.type) or len(parts) != 1:
                problem = f"the rule of a derivative captures a value of type {variable.type}"
                raise Unsupported(f"{problem}, where functions or data are differentiated: hand it over as an argument")
        outside = _outside(block, captured)
        meaning = block.interpret(self.plain)
        values: list[Value | None] = [parts[0] if parts else None for parts in outside]
        return lambda _, arguments: meaning(Env[Value | None]().enter(values), arguments)

    def _entered(self, block: Block, env: Entries) -> embed.Block:
        """A block that takes and gives parts."""
        shapes = self.flows.binders.get(id(block), block.binders)  # a rule of a derivative is not part of the program

        def run(_: object, arguments: Sequence[Value]) -> list[Value]:
            return self.block(block, env, self.layouts.split(arguments, shapes))

        return run

    def _case(self, op: Operation, value: Parts, env: Entries) -> Sequence[Value]:
        of = op.args[0].type
        assert isinstance(of, Named)
        by_name = dict(zip(op.static, op.blocks, strict=True))

        def branch(name: str, shapes: Sequence[Shape]) -> Callable[[Sequence[Value]], Sequence[Value]]:
            return lambda fields: self.block(by_name[name], env, self.layouts.split(fields, shapes))

        branches = [branch(name, shapes) for name, shapes in self.layouts.variants(of)]
        return self.layouts.choose(self.builder, of, value, branches)

    # Functions

    def _closure(self, function: Function, captured: Sequence[Parts]) -> Parts:
        flow = function.flow
        return self.layouts.make(self.builder, flow, flow.functions.index(function), _flat(captured))

    def _apply(self, flow: Flow, value: Parts, args: Sequence[Parts]) -> Sequence[Value]:
        """One of the functions of a flow, which the value says, is entered or called."""

        def branch(function: Function) -> Callable[[Sequence[Value]], Sequence[Value]]:
            return lambda captured: self._entry(function, self.layouts.split(captured, function.captured), args)

        functions = flow.functions
        if not functions:  # so this does not run
            return [nothing(self.builder, type) for type in self.layouts.of_all(flow.root.results)]
        return self.layouts.choose(self.builder, flow, value, [branch(function) for function in functions])

    def _entry(self, function: Function, captured: Sequence[Parts], args: Sequence[Parts]) -> Sequence[Value]:
        if function in self.conversion.recursive:
            procedure = self.conversion.procedure(function, _flat(captured))
            return self.builder.emit("call", (procedure,), _flat([*captured, *args]))
        return self.body(function, captured, args)

    def body(self, function: Function, captured: Sequence[Parts], args: Sequence[Parts]) -> list[Value]:
        """What the body of a function gives, where it captures these."""
        outside = _outside(function.block, captured)
        own = [self._closure(function, captured)] if function.operation.op == "fix" else []
        return self.block(function.block, Env[Parts]().enter(outside), [*own, *args])


def has_values(block: Block) -> bool:
    """Whether a block makes, takes apart or calls what is no scalar or array."""
    return any(op.row.higher_order or any(map(has_values, op.blocks)) for op in block.bindings)


def _outside(block: Block, captured: Sequence[Parts]) -> list[Parts]:
    """What a block finds outside of itself, where its free variables are these."""
    found: list[Parts] = [()] * (1 + max([variable.index for variable in block.free], default=-1))
    for variable, parts in zip(block.free, captured, strict=True):
        found[-1 - variable.index] = parts
    return found


def _flat(parts: Sequence[Parts]) -> list[Value]:
    return [value for each in parts for value in each]
