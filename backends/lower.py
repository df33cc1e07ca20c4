"""From a scheduled term to the loop IR, in destination-passing style.

A term is walked from the top, since a destination is handed down: an array is written where it is wanted, element by
element, and only arrays that no destination takes are allocated. Scalars become Lets; a reduction becomes a variable
and a loop; a generate becomes a nest, whose loops ``nests.py`` arranges. Reads whose index is not proved in range are
clamped, so that no other memory is touched; what reports the mistake is the requirement that the program holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..core import terms
from ..core.builder import build
from ..core.dims import Compound, Dim, DimAtom, Name, Opaque, index_in_range
from ..core.environment import Env
from ..core.expr import Expr
from ..core.placement import to_block
from ..core.primitive import Expansion, Primitive, lookup
from ..core.types import Scalar, Type, dims, element, f64, i64, rank
from ..interpreters.rules import rewrite as rule
from . import nests
from .loops import (
    Allocate,
    Apply,
    Assign,
    Block,
    Buffer,
    Constant,
    Declare,
    Expression,
    For,
    Function,
    If,
    Let,
    Load,
    MultiplyAdd,
    Reduction,
    Require,
    Select,
    Statement,
    Store,
    Variable,
)
from .target import Target

# A cond between scalars is a selection when both branches cost no more than this many additions.
SELECTABLE = 60
# Copies of an accumulator that threads add to side by side.
COPIES = 8

ZERO, ONE = Constant(0, i64), Constant(1, i64)


class Unsupported(TypeError):
    """A program that the compiler does not take, though evaluate does."""


@dataclass(frozen=True)
class ArrayRef:
    """An array in memory: its buffer, whose axes stand in the given order, behind fixed leading indices."""

    buffer: Buffer
    order: tuple[int, ...]
    prefix: tuple[Expression, ...] = ()

    def place(self, indices: Sequence[Expression]) -> tuple[Expression, ...]:
        """The buffer's indices for indices of the array."""
        logical = (*self.prefix, *indices)
        return tuple([logical[axis] for axis in self.order])

    def at(self, index: Expression) -> ArrayRef:
        return ArrayRef(self.buffer, self.order, (*self.prefix, index))

    def extent(self, axis: int) -> Expression:
        return self.buffer.extents[self.order.index(len(self.prefix) + axis)]


Operand = Expression | ArrayRef
Environment = Env[Operand]
Destinations = Sequence[ArrayRef | None]


@dataclass
class Lowered:
    """A function of the loop IR, with what its call needs to know."""

    function: Function
    failures: list[terms.Failure]
    constants: list[terms.Constant]


def lower(block: terms.Block, name: str, target: Target, checks: bool = True) -> Lowered:
    """Lower a closed, scheduled block. Raises Unsupported for what compiled programs cannot do."""
    return _Lowering(target, checks).function(block, name)


@dataclass
class _Lowering:
    target: Target
    checks: bool
    out: list[Statement] = field(default_factory=list)
    inside: int = 0  # generates around, inside of which nothing is parallel
    counter: int = 0
    failures: list[terms.Failure] = field(default_factory=list)
    constants: dict[terms.Constant, Buffer] = field(default_factory=dict)
    known: dict[str, Dim] = field(default_factory=dict)  # integer variables as dims
    extents: dict[int, Dim] = field(default_factory=dict)  # loop variables by number
    values: dict[str, Expression] = field(default_factory=dict)  # what Lets stand for
    reductions: dict[str, Reduction] = field(default_factory=dict)  # by loop variable

    # Functions

    def function(self, block: terms.Block, name: str) -> Lowered:
        sizes = sorted({size for type in block.binders for dim in dims(type) for size in dim.names()})
        self.known.update({size: Dim.atom(Name(size)) for size in sizes})
        arguments, operands = [], []
        for type, binder in zip(block.binders, block.names, strict=True):
            buffer = self.buffer(binder or "argument", type)
            arguments.append(buffer)
            operands.append(self.array(buffer) if rank(type) else self.let(binder or "scalar", Load(buffer, ())))
        results = []
        for type in block.types:
            if any(not dim.is_static() for dim in dims(type)):
                raise Unsupported(f"{name}: a result of type {type}, whose size is known during the run only")
            results.append(self.buffer("result", type))
        self.block(block, Env(), operands, [self.array(buffer) for buffer in results])
        hidden = tuple(self.constants.values())
        function = Function(name, tuple(sizes), (*arguments, *hidden), tuple(results), tuple(self.out))
        return Lowered(function, self.failures, list(self.constants))

    # Names and pieces

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def buffer(self, stem: str, type: Type) -> Buffer:
        return Buffer(self.fresh(stem), element(type), tuple([self.size(dim) for dim in dims(type)]))

    def array(self, buffer: Buffer) -> ArrayRef:
        return ArrayRef(buffer, tuple(range(len(buffer.extents))))

    def let(self, stem: str, value: Expression) -> Expression:
        if isinstance(value, Constant | Variable):
            return value
        name = self.fresh(stem)
        self.out.append(Let(name, value))
        self.values[name] = value
        dim = self.dim(value)
        if dim is not None:
            self.known[name] = dim
        return Variable(name, value.type)

    def apply(self, name: str, *arguments: Expression) -> Expression:
        row = lookup(name)
        return Apply(row, arguments, row.result_type([a.type for a in arguments]))

    def size(self, dim: Dim) -> Expression:
        """The value of a static dim."""
        total: Expression | None = None
        for monomial, factor in dim.terms:
            product: Expression | None = None if monomial and factor == 1 else Constant(factor, i64)
            for atom in monomial:
                part = self._size_atom(atom)
                product = part if product is None else self.apply("multiply", product, part)
            assert product is not None
            total = product if total is None else self.apply("add", total, product)
        return ZERO if total is None else total

    def _size_atom(self, atom: DimAtom) -> Expression:
        match atom:
            case Name(name):
                return Variable(name, i64)
            case Compound(operator, left, right):
                row = {"//": "floor_divide", "min": "minimum", "max": "maximum"}[operator]
                return self.apply(row, self.size(left), self.size(right))
        raise Unsupported("an array inside a loop has a size that is known during the run only")

    def dim(self, value: Expression) -> Dim | None:
        """An integer expression as a dim, for proofs about indices."""
        match value:
            case Constant(number) if value.type == i64:
                return Dim.of(int(number))
            case Variable(name):
                return self.known.get(name)
            case Apply(primitive, (a, b)) if value.type == i64 and primitive.name in ("add", "subtract", "multiply"):
                left, right = self.dim(a), self.dim(b)
                if left is not None and right is not None:
                    combine = {"add": Dim.__add__, "subtract": Dim.__sub__, "multiply": Dim.__mul__}
                    return combine[primitive.name](left, right)
        return None

    def loop_variable(self, stem: str, extent: Dim) -> Variable:
        """A fresh loop variable, known to lie below its extent."""
        name = self.fresh(stem or "i")
        number = -self.counter
        self.known[name] = Dim.atom(Opaque(number))
        self.extents[number] = extent
        return Variable(name, i64)

    def captured(self) -> _Capture:
        """The statements emitted inside a ``with`` block, apart."""
        return _Capture(self)

    # Blocks

    def atom(self, env: Environment, atom: terms.Atom) -> Operand:
        match atom:
            case terms.Variable(index):
                return env.get(index)
            case terms.Literal(_, type):
                return Constant(atom.value, type)
            case terms.Size(dim):
                return self.size(dim)
            case terms.Constant():
                if atom not in self.constants:
                    self.constants[atom] = self.buffer("constant", atom.type)
                return self.array(self.constants[atom])

    def scalar(self, env: Environment, atom: terms.Atom) -> Expression:
        value = self.atom(env, atom)
        assert not isinstance(value, ArrayRef)
        return value

    def block(
        self, block: terms.Block, env: Environment, arguments: Sequence[Operand], destinations: Destinations
    ) -> list[Operand]:
        """Lower a block; its results go to the destinations, where there are any."""
        env, wanted = self.bindings(block, env.enter(arguments), destinations)
        results = []
        for atom, destination in zip(block.results, destinations, strict=True):
            value = self.atom(env, atom)
            if destination is not None and not (isinstance(value, ArrayRef) and value.buffer in wanted):
                self.copy(value, destination)
            elif destination is not None:
                wanted.discard(destination.buffer)
            results.append(value)
        return results

    def bindings(
        self, block: terms.Block, env: Environment, destinations: Destinations
    ) -> tuple[Environment, set[Buffer]]:
        """Lower the operations of a block; arrays that are results are written to their destination at once."""
        total = len(block.binders) + sum(len(binding.types) for binding in block.bindings)
        direct: dict[int, ArrayRef] = {}
        for atom, destination in zip(block.results, destinations, strict=True):
            if isinstance(atom, terms.Variable) and destination is not None and rank(atom.type):
                direct.setdefault(total - 1 - atom.index, destination)
        level = len(block.binders)
        written: set[Buffer] = set()
        for binding in block.bindings:
            own = [direct.get(level + k) for k in range(len(binding.types))]
            written.update([destination.buffer for destination in own if destination is not None])
            env = env.extend(self.operation(binding, env, own))
            level += len(binding.types)
        return env, written

    def copy(self, value: Operand, destination: ArrayRef) -> None:
        """Store a scalar, or copy an array, into a destination."""
        if not isinstance(value, ArrayRef):
            self.out.append(Store(destination.buffer, destination.place(()), value))
            return
        source = value
        extents = [source.extent(axis) for axis in range(len(source.order) - len(source.prefix))]
        loops = [nests.Loop(self.loop_variable("i", self.dim(e) or Dim({})), e) for e in extents]
        indices = [loop.variable for loop in loops]
        body: Block = (Store(destination.buffer, destination.place(indices), Load(source.buffer, source.place(indices))),)
        self.nest(loops, body, set())

    # Operations

    def operation(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        match op.op:
            case "primitive":
                return [self.primitive(op.static[0], [self.scalar(env, a) for a in op.args], op.origin.name)]
            case "size":
                array = self.atom(env, op.args[0])
                assert isinstance(array, ArrayRef)
                return [self.let("size", array.extent(op.static[0]))]
            case "index":
                return [self.index(op, env)]
            case "cond":
                return self.cond(op, env, destinations)
            case "generate":
                return self.generate(op, env, destinations)
            case "reduce":
                return self.reduce(op, env)
            case "loop":
                return self.loop(op, env, destinations)
            case "accumulate":
                return self.accumulate(op, env, destinations)
            case "add_to":
                self.add_to(op, env)
                return []
            case "require":
                if self.checks:
                    values = tuple([self.scalar(env, a) for a in op.args[1:]])
                    self.out.append(Require(self.scalar(env, op.args[0]), len(self.failures), values))
                    self.failures.append(op.static[0])
                return []
        raise Unsupported(f"{op.op} is not compiled (written at {op.origin}); evaluate runs it")

    def primitive(self, row: Primitive, arguments: list[Expression], name: str = "") -> Expression:
        if isinstance(row.llvm, Expansion):
            return self.expansion(row, arguments)
        type = row.result_type([a.type for a in arguments])
        if all(isinstance(a, Constant) for a in arguments):
            numbers = [np.array(a.value, a.type.dtype)[()] for a in arguments if isinstance(a, Constant)]
            with np.errstate(all="ignore"):
                return Constant(np.asarray(row.numpy(*numbers)).astype(type.dtype).item(), type)
        return self.let(name or "t", Apply(row, tuple(arguments), type))

    def expansion(self, row: Primitive, arguments: list[Expression]) -> Expression:
        """A primitive that is written in the language."""
        assert isinstance(row.llvm, Expansion)
        with build(rule) as builder:
            binders = [builder.variable(a.type) for a in arguments]
            result = row.llvm.definition(*[Expr(binder, builder) for binder in binders])
            block, _ = to_block(binders, [result.value])
        value = self.block(block, Env(), arguments, [None])[0]
        assert not isinstance(value, ArrayRef)
        return value

    def index(self, op: terms.Operation, env: Environment) -> Expression:
        array = self.atom(env, op.args[0])
        assert isinstance(array, ArrayRef)
        indices = []
        for axis, atom in enumerate(op.args[1:]):
            indices.append(self.clamped(self.scalar(env, atom), dims(op.args[0].type)[axis], array.extent(axis)))
        return self.let("t", Load(array.buffer, array.place(indices)))

    def clamped(self, index: Expression, size: Dim, extent: Expression) -> Expression:
        """The index, in range whatever it is; as it is where that is proved."""
        dim = self.dim(index)
        if dim is not None and index_in_range(dim, size, self._extent_of):
            return index
        last = self.apply("subtract", extent, ONE)
        return self.let("index", self.apply("maximum", self.apply("minimum", index, last), ZERO))

    def _extent_of(self, atom: DimAtom) -> Dim | None:
        return self.extents.get(atom.number) if isinstance(atom, Opaque) else None

    def cond(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        test = self.scalar(env, op.args[0])
        branches = []
        scalars = not any(rank(type) for type in op.types)
        for block in op.blocks:
            with self.captured() as statements:
                results = self.block(block, env, [], destinations)
            branches.append((statements, results))
        simple = all(isinstance(s, Let) for statements, _ in branches for s in statements)
        cost = sum(nests.survey(tuple(statements)).work for statements, _ in branches)
        if scalars and simple and cost <= SELECTABLE and not any(destinations):
            self.out.extend([s for statements, _ in branches for s in statements])
            pairs = zip(branches[0][1], branches[1][1], strict=True)
            return [self.let("t", Select(test, a, b, a.type)) for a, b in pairs if not isinstance(a, ArrayRef) and not isinstance(b, ArrayRef)]
        return self.branches(op, env, destinations, test)

    def branches(
        self, op: terms.Operation, env: Environment, destinations: Destinations, test: Expression
    ) -> list[Operand]:
        """A cond as statements: scalars through variables, arrays into destinations."""
        results: list[Operand] = []
        places: list[ArrayRef | None] = []
        variables: list[str | None] = []
        for type, destination in zip(op.types, destinations, strict=True):
            if rank(type):
                place = destination or self.allocate("chosen", type)
                places.append(place)
                variables.append(None)
                results.append(place)
            else:
                name = self.fresh("chosen")
                self.out.append(Declare(name, Constant(_zero(element(type)), element(type))))
                places.append(None)
                variables.append(name)
                results.append(Variable(name, element(type)))
        made = []
        for block in op.blocks:
            with self.captured() as statements:
                self.inside += 1
                values = self.block(block, env, [], places)
                self.inside -= 1
                for name, value in zip(variables, values, strict=True):
                    if name is not None and not isinstance(value, ArrayRef):
                        self.out.append(Assign(name, value))
            made.append(tuple(statements))
        self.out.append(If(test, *made))
        return [self.let("t", r) if isinstance(r, Variable) else r for r in results]

    def allocate(self, stem: str, type: Type) -> ArrayRef:
        if any(not dim.is_static() for dim in dims(type)):
            raise Unsupported(f"an array of type {type}, whose size is known during the run only, cannot be stored here")
        buffer = self.buffer(stem, type)
        self.out.append(Allocate(buffer))
        return self.array(buffer)

    # Arrays

    def generate(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """A nest over this loop and the loops that are perfectly nested in it."""
        loops: list[nests.Loop] = []
        results: list[ArrayRef] = []
        temporaries: set[str] = set()
        allocations: list[Statement] = []
        for type, destination in zip(op.types, destinations, strict=True):
            if destination is None:
                buffer = self.stored(op, type, env)
                allocations.append(Allocate(buffer))
                temporaries.add(buffer.name)
                destination = self.array(buffer)
            results.append(destination)
        with self.captured() as statements:
            self.inside += 1
            inner, env, places = self.enter(op, env, loops, results)
            self.block_within(inner, env, places)
            self.inside -= 1
        private = self.private_accumulators(tuple(statements), loops)
        if private is not None:
            self.out.extend(private)
            return list(results)
        layouts = self.nest(loops, tuple(statements), temporaries, allocations)
        return [self.relaid(result, layouts) for result in results]

    def stored(self, op: terms.Operation, type: Type, env: Environment) -> Buffer:
        """The buffer of a generate's result; its first extent may be known during the run only."""
        first, *rest = dims(type)
        extents = [self.scalar(env, op.args[0]) if not first.is_static() else self.size(first)]
        extents += [self.size(dim) for dim in rest]
        if not first.is_static() and self.inside:
            raise Unsupported(f"an array of type {type} inside a loop, whose size is known during the run only")
        return Buffer(self.fresh(op.origin.name or "array"), element(type), tuple(extents))

    def enter(
        self, op: terms.Operation, env: Environment, loops: list[nests.Loop], places: list[ArrayRef]
    ) -> tuple[terms.Block, Environment, list[ArrayRef]]:
        """Go into the loops that are perfectly nested; scalars between them are computed inside."""
        block = op.blocks[0]
        variable = self.loop_variable(block.names[0], op.static[0])
        loops.append(nests.Loop(variable, self.scalar(env, op.args[0])))
        env = env.enter([variable])
        places = [place.at(variable) for place in places]
        inner = _perfect(block)
        if inner is None:
            return block, env, places
        for binding in block.bindings[:-1]:
            env = env.extend(self.operation(binding, env, [None] * len(binding.types)))
        return self.enter(inner, env, loops, places)

    def block_within(self, block: terms.Block, env: Environment, places: Destinations) -> None:
        """The body of a nest, whose parameter is bound already."""
        env, written = self.bindings(block, env, places)
        for atom, place in zip(block.results, places, strict=True):
            value = self.atom(env, atom)
            assert place is not None
            if not (isinstance(value, ArrayRef) and value.buffer in written):
                self.copy(value, place)

    def nest(
        self, loops: list[nests.Loop], body: Block, temporaries: set[str], allocations: Sequence[Statement] = ()
    ) -> dict[str, tuple[int, ...]]:
        """Arrange a nest's loops; the layouts that its temporaries got."""
        parallel = self.inside == 0
        found = nests.Nest(loops, body, temporaries, self.reductions, parallel, self.target, self.fresh)
        built = nests.build(found)
        renamed = {name: order for name, order in built.layouts.items() if order != tuple(range(len(order)))}
        for allocation in allocations:
            assert isinstance(allocation, Allocate)
            self.out.append(Allocate(_permuted(allocation.buffer, renamed)))

        def store(statement: Store) -> Store:
            order = renamed.get(statement.buffer.name)
            if order is None:
                return statement
            indices = tuple([statement.indices[axis] for axis in order])
            return Store(_permuted(statement.buffer, renamed), indices, statement.value)

        self.out.extend(nests.map_block(tuple(built.statements), lambda e: e, store) if renamed else built.statements)
        return renamed

    def relaid(self, result: ArrayRef, layouts: dict[str, tuple[int, ...]]) -> ArrayRef:
        order = layouts.get(result.buffer.name)
        return result if order is None else ArrayRef(_permuted(result.buffer, layouts), order)

    # Reductions

    def reduce(self, op: terms.Operation, env: Environment) -> list[Operand]:
        if any(rank(type) for type in op.types):
            raise Unsupported(f"a reduce over arrays is not compiled yet (written at {op.origin}); evaluate runs it")
        named = _operator(op.blocks[1])
        neutrals = [self.scalar(env, a) for a in op.args[1:]]
        if self.inside == 0 and named is not None and isinstance(neutrals[0], Constant):
            return [self.whole_reduction(op, env, named, neutrals[0])]
        names = [self.fresh("sum" if named and named.name == "add" else "total") for _ in neutrals]
        self.out.extend([Declare(name, neutral) for name, neutral in zip(names, neutrals, strict=True)])
        self.reducing_loop(op, env, names, named)
        return [self.let("t", Variable(name, n.type)) for name, n in zip(names, neutrals, strict=True)]

    def reducing_loop(
        self, op: terms.Operation, env: Environment, names: list[str], named: Primitive | None
    ) -> Variable:
        """The loop that combines the elements into variables."""
        variable = self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))
        with self.captured() as statements:
            self.inside += 1
            self.combine(op, env, variable, names, named)
            self.inside -= 1
        extent = self.scalar(env, op.args[0])
        self.out.append(For(variable.name, extent, "sequential", tuple(statements)))
        neutral = op.args[1]
        if named is not None and isinstance(neutral, terms.Literal):
            constant = Constant(neutral.value, neutral.type)
            self.reductions[variable.name] = Reduction(names[0], named, constant)
        return variable

    def extent_dim(self, op: terms.Operation, env: Environment) -> Dim:
        return self.dim(self.scalar(env, op.args[0])) or Dim.atom(Opaque(-1_000_000 - self.counter))

    def combine(
        self, op: terms.Operation, env: Environment, variable: Expression, names: list[str], named: Primitive | None
    ) -> None:
        """One element, combined into the variables."""
        body = op.blocks[0]
        inner = _merged(body, op) if named is not None else None
        if inner is not None:
            within = env.enter([variable])
            for binding in body.bindings[:-1]:
                within = within.extend(self.operation(binding, within, [None] * len(binding.types)))
            self.reducing_loop(inner, within, names, named)
            return
        elements = self.block(body, env, [variable], [None] * len(names))
        scalars = [value for value in elements if not isinstance(value, ArrayRef)]
        if named is not None:
            self.out.append(Assign(names[0], self.combined(named, names[0], scalars[0])))
            return
        current = [self.let("t", Variable(name, s.type)) for name, s in zip(names, scalars, strict=True)]
        results = self.block(op.blocks[1], env, [*current, *scalars], [None] * len(names))
        for name, result in zip(names, results, strict=True):
            assert not isinstance(result, ArrayRef)
            self.out.append(Assign(name, result))

    def combined(self, named: Primitive, name: str, value: Expression) -> Expression:
        """The variable and an element under the operator; a product that is added is added in one rounding."""
        total = Variable(name, value.type)
        if named.name == "add" and value.type.kind == "float" and self.target.multiply_add:
            product, negated = self.values.get(getattr(value, "name", ""), value), False
            if isinstance(product, Apply) and product.primitive.name == "negative":
                product, negated = self.definition(product.arguments[0]), True
            if isinstance(product, Apply) and product.primitive.name == "multiply":
                a, b = product.arguments
                return MultiplyAdd(self.apply("negative", a) if negated else a, b, total, value.type)
        return Apply(named, (total, value), value.type)

    def definition(self, value: Expression) -> Expression:
        return self.values.get(value.name, value) if isinstance(value, Variable) else value

    def whole_reduction(self, op: terms.Operation, env: Environment, named: Primitive, neutral: Constant) -> Expression:
        """A reduction outside of all loops: chunks side by side, combined in order."""
        outer = self.scalar(env, op.args[0])
        body = op.blocks[0]
        nested = any(binding.blocks and binding.op != "cond" for binding in body.bindings)
        chunk = self.fresh("chunk")
        part = self.fresh("part")
        if nested:
            start, length, count = Variable(chunk, i64), ONE, outer
        else:
            start, length, count = nests.chunks(outer, chunk)
        partial = Buffer(self.fresh("partial"), neutral.type, (count,))
        self.out.append(Allocate(partial))
        with self.captured() as inside:
            self.inside += 1
            self.out.append(Declare(part, neutral))
            if nested:
                variable = self.loop_variable(body.names[0], self.extent_dim(op, env))
                self.out.append(Let(variable.name, Variable(chunk, i64)))
                self.combine(op, env, variable, [part], named)
            else:
                self.lanes_of_chunk(op, env, start, length, part, named, neutral)
            self.out.append(Store(partial, (Variable(chunk, i64),), Variable(part, neutral.type)))
            self.inside -= 1
        work = nests.survey(tuple(inside)).work * (1 if nested else nests.CHUNK / nests.DEPTH_WEIGHT)
        grain = Constant(max(1, int(nests.GRAIN / max(1.0, work))), i64)
        self.out.append(For(chunk, count, "parallel" if self.target.parallel else "sequential", tuple(inside), grain=grain if self.target.parallel else None))
        total, index = self.fresh("total"), self.fresh("chunk")
        self.out.append(Declare(total, neutral))
        value = Load(partial, (Variable(index, i64),))
        merged = Assign(total, Apply(named, (Variable(total, neutral.type), value), neutral.type))
        self.out.append(For(index, count, "sequential", (merged,)))
        return self.let("t", Variable(total, neutral.type))

    def lanes_of_chunk(
        self,
        op: terms.Operation,
        env: Environment,
        start: Expression,
        length: Expression,
        part: str,
        named: Primitive,
        neutral: Constant,
    ) -> None:
        """The elements of one chunk as lanes, where that is possible."""
        variable = self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))
        lane = self.fresh("lane")
        with self.captured() as statements:
            self.out.append(Let(variable.name, self.apply("add", start, Variable(lane, i64))))
            self.combine(op, env, variable, [part], named)
        found = nests.survey(tuple(statements))
        if found.simple and not found.inner:
            reduction = (Reduction(part, named, neutral),)
            strip = 4 * self.target.lanes(neutral.type)
            self.out.append(For(lane, length, "lanes", tuple(statements), strip, reductions=reduction))
        else:
            self.out.append(For(lane, length, "sequential", tuple(statements)))

    # State and effects

    def loop(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """A sequential loop: scalars of the state are variables, arrays are written anew and copied back."""
        count = len(op.args) - 1
        body = op.blocks[0]
        extent = self.scalar(env, op.args[0])
        state: list[Operand] = []
        names: list[str | None] = []
        following: list[ArrayRef | None] = []
        results: list[Operand] = []
        for k in range(count):
            initial, type = self.atom(env, op.args[1 + k]), op.types[k]
            if isinstance(initial, ArrayRef):
                place = destinations[k] or self.allocate("state", type)
                self.copy(initial, place)
                state.append(place)
                names.append(None)
                following.append(self.allocate("next", type))
                results.append(place)
            else:
                name = self.fresh("state")
                self.out.append(Declare(name, initial))
                names.append(name)
                state.append(Variable(name, initial.type))
                following.append(None)
                results.append(Variable(name, initial.type))
        outputs = [
            destination or self.array(self.output(op, type, env))
            for type, destination in zip(op.types[count:], destinations[count:], strict=True)
        ]
        variable = self.loop_variable(body.names[0], op.static[0])
        with self.captured() as statements:
            current = [self.let("t", s) if isinstance(s, Variable) else s for s in state]
            copied: list[Operand] = []
            for value, name in zip(current, names, strict=True):
                copied.append(self.frozen(value) if name is not None and not isinstance(value, ArrayRef) else value)
            places = [*following, *[output.at(variable) for output in outputs]]
            after = self.block(body, env, [variable, *copied], places)
            for k in range(count):
                name, value, place = names[k], after[k], following[k]
                if name is not None and not isinstance(value, ArrayRef):
                    self.out.append(Assign(name, value))
                elif place is not None:
                    target = state[k]
                    assert isinstance(target, ArrayRef)
                    self.copy(place, target)
        self.out.append(For(variable.name, extent, "sequential", tuple(statements)))
        finals = [self.frozen(r) if isinstance(r, Variable) else r for r in results]
        return [*finals, *outputs]

    def frozen(self, value: Expression) -> Expression:
        """The present value of a variable, which may change later."""
        name = self.fresh("t")
        self.out.append(Let(name, value))
        return Variable(name, value.type)

    def output(self, op: terms.Operation, type: Type, env: Environment) -> Buffer:
        buffer = self.stored(op, type, env)
        self.out.append(Allocate(buffer))
        return buffer

    def accumulate(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """Accumulators are arrays that updates are added to, in place."""
        count = len(op.args)
        finals: list[ArrayRef] = []
        for k in range(count):
            place = destinations[k] or self.allocate("accumulator", op.types[k])
            self.copy(self.atom(env, op.args[k]), place)
            finals.append(place)
        results = self.block(op.blocks[0], env, finals, destinations[count:])
        values: list[Operand] = []
        for final, type in zip(finals, op.types, strict=False):
            values.append(final if rank(type) else self.let("t", Load(final.buffer, final.place(()))))
        return [*values, *results]

    def add_to(self, op: terms.Operation, env: Environment) -> None:
        """An update; one that is not proved in range is tested, and outside it has no effect."""
        target, value = self.atom(env, op.args[0]), self.scalar(env, op.args[1])
        assert isinstance(target, ArrayRef)
        indices = [self.scalar(env, a) for a in op.args[2:]]
        place = target.place(indices)
        update = Store(target.buffer, place, self.apply("add", Load(target.buffer, place), value))
        inside: Expression | None = None
        for axis, index in enumerate(indices):
            dim = self.dim(index)
            if dim is None or not index_in_range(dim, dims(op.args[0].type)[axis], self._extent_of):
                below = self.apply("less", index, target.extent(axis))
                fits = self.apply("logical_and", self.apply("less_equal", ZERO, index), below)
                inside = fits if inside is None else self.apply("logical_and", inside, fits)
        self.out.append(update if inside is None else If(inside, (update,), ()))

    def private_accumulators(self, body: Block, loops: list[nests.Loop]) -> list[Statement] | None:
        """A nest that updates accumulators: None when its loops are independent.

        The outer loop is parallel when each iteration updates a slice of its own; else it is cut into pieces that
        update copies, which are then added in order.
        """
        updated = _updated(body)
        if not updated:
            return None
        outer = loops[0]
        nest = body
        for loop in reversed(loops[1:]):
            nest = (For(loop.variable.name, loop.extent, "sequential", nest),)
        sequential: list[Statement] = [For(outer.variable.name, outer.extent, "sequential", nest)]
        if self.inside or not self.target.parallel:
            return sequential
        own = outer.variable.name
        shared = {buffer for buffer, stores in updated.items() if not _sliced(stores, own)}
        grain = nests._grain(nests.survey(body).work, [loop.extent for loop in loops[1:]])
        if not shared:
            return [For(own, outer.extent, "parallel", nest, grain=grain)]
        return self.copies(outer, nest, shared, grain)

    def copies(self, outer: nests.Loop, nest: Block, shared: set[Buffer], grain: Expression) -> list[Statement]:
        """The outer loop in pieces, each of which updates its own copy of the shared accumulators."""
        made: list[Statement] = []
        piece = self.fresh("piece")
        wanted = self.apply("floor_divide", outer.extent, grain)
        pieces = self.fresh("pieces")
        bounded = self.apply("maximum", self.apply("minimum", wanted, Constant(COPIES, i64)), ONE)
        made.append(Let(pieces, bounded))
        count = Variable(pieces, i64)
        private = {buffer: Buffer(self.fresh(f"{buffer.name}_copy"), buffer.scalar, (Constant(COPIES, i64), *buffer.extents)) for buffer in sorted(shared, key=lambda b: b.name)}
        made.extend([Allocate(copy) for copy in private.values()])

        def bound(k: Expression) -> Expression:
            return self.apply("floor_divide", self.apply("multiply", outer.extent, k), count)

        def expression(e: Expression) -> Expression:
            if isinstance(e, Load) and e.buffer in private:
                return Load(private[e.buffer], (Variable(piece, i64), *[expression(i) for i in e.indices]))
            return nests.map_parts(e, expression)

        def store(s: Store) -> Store:
            return Store(private[s.buffer], (Variable(piece, i64), *s.indices), s.value) if s.buffer in private else s

        body: list[Statement] = []
        for copy in private.values():
            zero = Constant(_zero(copy.scalar), copy.scalar)
            body.extend(self.over(copy.extents[1:], lambda i, c=copy, z=zero: Store(c, (Variable(piece, i64), *i), z)))
        start = self.fresh("start")
        body.append(Let(start, bound(Variable(piece, i64))))
        length = self.apply("subtract", bound(self.apply("add", Variable(piece, i64), ONE)), Variable(start, i64))
        step = self.fresh("step")
        at = Let(outer.variable.name, self.apply("add", Variable(start, i64), Variable(step, i64)))
        body.append(For(step, length, "sequential", (at, *nests.map_block(nest, expression, store))))
        made.append(For(piece, count, "parallel", tuple(body), grain=ONE))
        for buffer, copy in private.items():
            k = self.fresh("piece")

            def merge(i: tuple[Expression, ...], b: Buffer = buffer, c: Buffer = copy, k: str = k) -> Store:
                return Store(b, i, self.apply("add", Load(b, i), Load(c, (Variable(k, i64), *i))))

            made.append(For(k, count, "sequential", tuple(self.over(buffer.extents, merge))))
        return made

    def over(self, extents: Sequence[Expression], store: Callable[[tuple[Expression, ...]], Store]) -> list[Statement]:
        """A store for all indices, the last of them as lanes."""
        names = [self.fresh("i") for _ in extents]
        body: Block = (store(tuple([Variable(name, i64) for name in names])),)
        for k, (name, extent) in reversed(list(enumerate(zip(names, extents, strict=True)))):
            last = k == len(names) - 1
            body = (For(name, extent, "lanes" if last else "sequential", body, self.target.lanes(f64) if last else 1),)
        return list(body)


class _Capture:
    def __init__(self, lowering: _Lowering) -> None:
        self.lowering = lowering

    def __enter__(self) -> list[Statement]:
        self.outer, self.lowering.out = self.lowering.out, []
        return self.lowering.out

    def __exit__(self, *_: object) -> None:
        self.lowering.out = self.outer


def _perfect(block: terms.Block) -> terms.Operation | None:
    """The generate that is all of a block but cheap scalars, whose results are the block's, in order."""
    if not block.bindings or block.bindings[-1].op != "generate":
        return None
    last = block.bindings[-1]
    if any(binding.op not in ("primitive", "index", "size") for binding in block.bindings[:-1]):
        return None
    count = len(last.types)
    wanted = [terms.Variable(count - 1 - k, type) for k, type in enumerate(last.types)]
    if list(block.results) != wanted:
        return None
    extent = last.args[0]
    inside = len(block.binders) + sum(len(binding.types) for binding in block.bindings[:-1])
    if isinstance(extent, terms.Variable) and extent.index < inside:
        return None  # its length depends on this loop
    return last


def _operator(block: terms.Block) -> Primitive | None:
    """The primitive that an operator's block applies to its two elements."""
    if len(block.bindings) == 1 and block.bindings[0].op == "primitive" and len(block.binders) == 2:
        row: Primitive = block.bindings[0].static[0]
        args = [arg.index for arg in block.bindings[0].args if isinstance(arg, terms.Variable)]
        symmetric = row.commutative or row.name in ("minimum", "maximum")
        if sorted(args) == [0, 1] and symmetric and block.results == (terms.Variable(0, block.binders[0]),):
            return row
    return None


def _merged(body: terms.Block, outer: terms.Operation) -> terms.Operation | None:
    """The inner reduction that is all of an element, when both combine in the same way."""
    if not body.bindings or body.bindings[-1].op != "reduce" or len(body.results) != 1:
        return None
    inner = body.bindings[-1]
    same = inner.blocks[1] == outer.blocks[1] and inner.args[1:] == outer.args[1:] and len(inner.types) == 1
    plain = all(binding.op in ("primitive", "index", "size") for binding in body.bindings[:-1])
    is_result = body.results[0] == terms.Variable(0, inner.types[0])
    return inner if same and plain and is_result and isinstance(inner.args[1], terms.Literal) else None


def _permuted(buffer: Buffer, layouts: dict[str, tuple[int, ...]]) -> Buffer:
    order = layouts.get(buffer.name)
    return buffer if order is None else Buffer(buffer.name, buffer.scalar, tuple([buffer.extents[axis] for axis in order]))


def _updated(body: Block) -> dict[Buffer, list[Store]]:
    """The buffers that a body adds to: stored and read at one place by one statement."""
    found: dict[Buffer, list[Store]] = {}

    def visit(block: Block) -> None:
        for statement in block:
            match statement:
                case Store(buffer, indices, Apply(_, (Load(source, place), _))) if source == buffer and place == indices:
                    found.setdefault(buffer, []).append(statement)
                case For():
                    visit(statement.body)
                case If(_, then, orelse):
                    visit(then)
                    visit(orelse)

    visit(body)
    return found


def _sliced(stores: list[Store], variable: str) -> bool:
    """Whether all updates of a buffer have the variable itself as index of one common axis."""
    axes = set(range(len(stores[0].indices)))
    for store in stores:
        axes &= {k for k, index in enumerate(store.indices) if isinstance(index, Variable) and index.name == variable}
    return bool(axes)


def _zero(scalar: Scalar) -> float | int | bool:
    return {"float": 0.0, "int": 0, "bool": False}[scalar.kind]
