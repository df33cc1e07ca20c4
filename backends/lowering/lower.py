"""From a scheduled term to nests and loops, in destination-passing style.

A term is walked from the top, since a destination is handed down: an array is written where it is wanted, element by
element, and only arrays that no destination takes are allocated. Scalars become Lets; a reduction becomes a variable
and a loop (``reductions.py``, ``pieces.py``); a generate becomes a nest (``arrays.py``), which gets its loops later
(``roles.py``); state and accumulators are updated in place (``state.py``). Reads whose index is not proved in range are
clamped, so that no other memory is touched; what reports the mistake is the requirement that the program holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from ...core import terms
from ...core.builder import build
from ...core.dims import Dim, Name
from ...core.environment import Env
from ...core.expr import Expr
from ...core.language import Unsupported
from ...core.placement import to_block
from ...core.primitive import Expansion, Primitive
from ...core.procedures import Procedure
from ...core.types import Type, dims, i64, rank
from ...interpreters.domains import Domains as Regions
from ...interpreters.in_place import InPlace
from ...interpreters.simplify.costs import INDEX_ARITHMETIC
from ...interpreters.simplify.rules import rewrite
from .. import ir
from ..decisions import Decisions
from ..target import SELECTABLE_WORK, Target
from .calls import indices_around
from .constructing import writing
from .context import ArrayRef, Context, Destinations, Environment, Operand, Shared, Site, zero
from .histograms import Histograms
from .procedures import Procedures
from .scans import Scans
from .sorting import Sorting
from .state import State
from .survey import survey
from .updates import Updates, accumulates

# How a construct is lowered: its operation, what is in scope, and where results are wanted.
Lower = Callable[[terms.Operation, Environment, Destinations], list[Operand]]

# What a block uses, as seen from around it: made when it is asked for, None where only the block can.
Delayed = Callable[[], Operand | None]


@dataclass
class Lowered:
    """A function of the loop IR, whose nests have no loops at first, with what its call needs to know."""

    function: ir.Function
    types: tuple[Type, ...]  # of the results: callers derive from them, as the function does, what is ``returned``
    failures: list[terms.Failure]
    calls: list[Site]  # of functions that are written elsewhere, by number
    constants: list[terms.Constant]
    decisions: Decisions
    context: Context  # what is known of its names and buffers, for who gives its nests their loops
    procedures: tuple[Lowered, ...] = ()  # that it calls, by number: their failures, calls and constants are its own

    @property
    def whole(self) -> ir.Function:
        """The function with its procedures."""
        return replace(self.function, procedures=tuple([each.function for each in self.procedures]))


def _present(operand: Operand) -> Delayed:
    return lambda: operand


def _nothing() -> None:
    """What only the block itself computes."""


def returned(type: Type) -> bool:
    """Whether a result is returned by the function, since the run decides its size."""
    return any(not dim.is_static() for dim in dims(type))


def lower(
    block: terms.Block,
    name: str,
    target: Target,
    checks: bool = True,
    deterministic: bool = False,
    decisions: Decisions | None = None,
    procedures: Mapping[Procedure, terms.Block] = MappingProxyType({}),
) -> Lowered:
    """Lower a closed, scheduled block, and those of the ``procedures`` that it calls, to nests.

    Where the target has atomics, floating numbers that many iterations add to one place are summed in the order in
    which they come, which is another in each run; ``deterministic`` sums them in an order that sizes alone decide.
    ``decisions`` are those that led to the block. Raises Unsupported for what compiled programs cannot do.
    """
    before = Decisions() if decisions is None else decisions.copy()
    shared = Shared({procedure: number for number, procedure in enumerate(procedures)}, writing(procedures))
    sizes = sizes_of(block)

    def lowering() -> Lowering:
        return Lowering(target, checks, deterministic, decisions=before, shared=shared)

    parts = tuple([lowering().lowered_procedure(each, own, sizes) for each, own in procedures.items()])
    return replace(lowering().function(block, name), procedures=parts)


def sizes_of(block: terms.Block) -> list[str]:
    """The names of the sizes of a closed block."""
    return sorted({size for type in block.binders for dim in dims(type) for size in dim.names()})


class Lowering(State, Updates, Sorting, Scans, Histograms, Procedures):
    """The walk: blocks, scalars and branches."""

    def function(self, block: terms.Block, name: str) -> Lowered:
        sizes = sizes_of(block)
        self.begin(block, sizes)
        arguments, operands = [], []
        for type, binder in zip(block.binders, block.names, strict=True):
            buffer = self.buffer(binder or "argument", type)
            arguments.append(buffer)
            operands.append(self.array(buffer) if rank(type) else self.let(binder or "scalar", ir.Load(buffer, ())))
        results: list[ir.Buffer | None] = []
        for atom, type in zip(block.results, block.types, strict=True):
            self.origin = block.origin(atom)
            results.append(None if returned(type) else self.buffer("result", type))
        self.origin = terms.NOWHERE
        places = [None if buffer is None else self.array(buffer) for buffer in results]
        values = self.block(block, Env(), operands, places)
        loose = [value for value, buffer in zip(values, results, strict=True) if buffer is None]
        self.hand_over([value for value in loose if isinstance(value, ArrayRef)])
        hidden = tuple(self.shared.constants.values())
        written = tuple([buffer for buffer in results if buffer is not None])
        function = ir.Function(name, tuple(sizes), (*arguments, *hidden), written, tuple(self.out), len(loose))
        return self.lowered(function, block)

    def lowered_procedure(self, procedure: Procedure, block: terms.Block, sizes: Sequence[str]) -> Lowered:
        """A procedure of a program with these sizes, by its block."""
        self.begin(block, sizes)
        return self.lowered(self.procedure(procedure, block, sizes), block)

    def begin(self, block: terms.Block, sizes: Sequence[str]) -> None:
        """Find out what is asked of a block all the way through it."""
        self.known.update({size: Dim.atom(Name(size)) for size in sizes})
        self.places, self.regions, self.loops_around = InPlace(block), Regions(block), indices_around(block)

    def lowered(self, function: ir.Function, block: terms.Block) -> Lowered:
        """A function of a block, with what is known of it."""
        shared = self.shared
        constants = list(shared.constants)
        return Lowered(function, block.types, shared.failures, shared.calls, constants, self.decisions, self)

    def hand_over(self, values: Sequence[ArrayRef]) -> None:
        """Return arrays of sizes that the run decides: each as it is, or a copy where it is not the only one there."""
        buffers: list[ir.Buffer] = []
        for value in values:
            buffer = value.buffer
            if value != self.array(buffer) or buffer in buffers or ir.Allocate(buffer) not in self.out:
                extents = tuple([value.extent(axis) for axis in range(len(value.order) - len(value.prefix))])
                buffer = self.temporary("returned", buffer.scalar, extents)
                self.copy(value, self.array(buffer))
            buffers.append(buffer)
        self.emit(*[ir.Return(number, buffer) for number, buffer in enumerate(buffers)])

    # Blocks

    def block(
        self, block: terms.Block, env: Environment, arguments: Sequence[Operand], destinations: Destinations
    ) -> list[Operand]:
        """Lower a block; its results go to the destinations, where there are any."""
        env = self.bindings(block, env.enter(arguments), destinations)
        results = []
        for atom, destination in zip(block.results, destinations, strict=True):
            value = self.atom(env, atom)
            if destination is not None and value != destination:
                self.copy(value, destination)
            results.append(value)
        return results

    def bindings(self, block: terms.Block, env: Environment, destinations: Destinations) -> Environment:
        """Lower the operations of a block; arrays that are results are written to their destination at once."""
        direct = self.direct(block, destinations)
        level = len(block.binders)
        for binding in block.bindings:
            own = [direct.get(level + k) for k in range(len(binding.types))]
            env = env.extend(self.operation(binding, env, own))
            level += len(binding.types)
        return env

    def direct(self, block: terms.Block, destinations: Destinations) -> dict[int, ArrayRef]:
        """By level: the destination that an array of a block is for.

        An array whose memory a later one takes is made where the later one shall be.
        """
        level = len(block.binders) + sum(len(binding.types) for binding in block.bindings)
        direct: dict[int, ArrayRef] = {}
        for atom, destination in zip(block.results, destinations, strict=True):
            if isinstance(atom, terms.Variable) and destination is not None and rank(atom.type):
                direct.setdefault(level - 1 - atom.index, destination)
        for binding in reversed(block.bindings):
            level -= len(binding.types)
            for k, operand in enumerate(self.updated(binding)):
                place = direct.get(level + k)
                if place is not None and isinstance(operand, terms.Variable):
                    direct.setdefault(level - 1 - operand.index, place)
        return direct

    def updated(self, op: terms.Operation) -> list[terms.Atom | None]:
        """For each result, the operand whose memory it takes."""
        if op.op == "generate":
            elements = zip(self.places.of(op).elements, op.types)
            return [None if index is None else terms.Variable(index, type) for index, type in elements]
        if op.row.takes is None:
            return []
        first = op.row.takes(op.static)
        return [op.args[first + k] if take else None for k, take in enumerate(self.places.of(op).taken)]

    # Operations

    def operation(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        outer = self.origin
        if op.origin.file and not self.expanding:
            self.origin = op.origin
        made = self.lowered_operation(op, env, destinations)
        self.origin = outer
        return made

    def lowered_operation(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        if op.static and isinstance(op.static[0], Dim):
            self.know(op.static[0], self.scalar(env, op.args[0]))
        row = op.row
        if row.extents is not None and row.makes_elements and (row.places or not row.stacked):
            for atom in op.args[: row.extents(op.static).stop]:
                self.fixed(self.scalar(env, atom))
        if not all(dim.is_static() for type in op.types for dim in dims(type)):
            around: Env[Delayed] = env.mapped(_present)
            for block in op.blocks:
                self.know_extents(block, around)
        match op.op:
            case "primitive":
                return [self.primitive(op.static[0], [self.scalar(env, a) for a in op.args], op.origin.name)]
            case "size":
                array = self.atom(env, op.args[0])
                assert isinstance(array, ArrayRef)
                return [self.let("size", array.extent(op.static[0]))]
            case "index":
                return [self.index(op, env)]
            case "argsort":
                return [self.argsort(op, env, destinations[0])]
            case "add_to":
                self.add_to(op, env)
                return []
            case "require":
                if self.checks:
                    values = tuple([self.scalar(env, a) for a in op.args[1:]])
                    self.emit(ir.Require(self.scalar(env, op.args[0]), len(self.shared.failures), values))
                    self.shared.failures.append(op.static[0])
                return []
        method: Lower | None = None if row.higher_order else getattr(self, row.method, None)
        if method is not None:
            return method(op, env, destinations)
        raise Unsupported(f"{op.op} is not compiled (written at {op.origin}); evaluate runs it")

    def primitive(self, row: Primitive, arguments: list[ir.Expression], name: str = "") -> ir.Expression:
        if isinstance(row.llvm, Expansion):
            return self.expansion(row, arguments)
        made = self.let(name or "t", ir.apply(row, *arguments))
        if row.name in INDEX_ARITHMETIC and isinstance(made, ir.Variable):
            self.know_turn(made, row.name == "floor_divide", *arguments)
        return made

    def expansion(self, row: Primitive, arguments: list[ir.Expression]) -> ir.Expression:
        """A primitive that is written in the language."""
        assert isinstance(row.llvm, Expansion)
        with build(rewrite) as builder:
            binders = [builder.variable(a.type) for a in arguments]
            result = row.llvm.definition(*[Expr(binder, builder) for binder in binders])
            block, _ = to_block(binders, [result.value])
        outer, self.expanding = self.expanding, True
        value = self.block(block, Env(), arguments, [None])[0]
        self.expanding = outer
        assert not isinstance(value, ArrayRef)
        return value

    def index(self, op: terms.Operation, env: Environment) -> ir.Expression:
        array = self.atom(env, op.args[0])
        assert isinstance(array, ArrayRef)
        indices = [self.scalar(env, atom) for atom in op.args[1:]]
        guarded = self.guarded(array, indices, dims(op.args[0].type))
        return self.let("t", ir.Load(array.buffer, array.place(indices), guarded))

    def know_turn(self, made: ir.Variable, is_row: bool, place: ir.Expression, width: ir.Expression) -> None:
        """Note the range of a quotient or remainder of what runs through rows of a width: it is a row, or a column."""
        whole, columns = self.extent_of(place), self.dim(width)
        if whole is not None and columns is not None and columns.is_nonnegative():
            rows = whole.quotient(columns)
            if rows is not None:
                self.know_range(made, rows if is_row else columns)

    def clamped(self, index: ir.Expression, size: Dim, extent: ir.Expression) -> ir.Expression:
        """The index, in range whatever it is; as it is where that is proved."""
        if self.proved(index, size):
            return index
        last = extent - 1
        return self.let("index", ir.maximum(ir.minimum(index, last), 0))

    def know_extents(self, block: terms.Block, env: Env[Delayed]) -> None:
        """Note the sizes that loops in a block have from integers around it, or computed from these."""
        env = env.enter([_nothing] * len(block.binders))
        for binding in block.bindings:
            match binding.static, binding.args:
                case (Dim() as size, *_), (terms.Variable(index), *_) if not (
                    size.is_static() or size in self.run_sizes
                ):
                    extent = env.get(index)()
                    if extent is not None:
                        assert not isinstance(extent, ArrayRef)
                        self.know(size, extent)
            for inner in binding.blocks:
                self.know_extents(inner, env)
            computed = binding.op == "primitive" and binding.types == (i64,)
            env = env.extend([partial(self.outside, binding, env) if computed else _nothing] * len(binding.types))

    def outside(self, op: terms.Operation, env: Env[Delayed]) -> ir.Expression | None:
        """An integer that a block computes from those around it, computed there; nothing, if that may fail."""
        if op.static[0].guard is not None:
            return None
        arguments = []
        for atom in op.args:
            value = env.get(atom.index)() if isinstance(atom, terms.Variable) else self.atom(Env(), atom)
            if value is None or isinstance(value, ArrayRef) or value.type != i64:
                return None
            arguments.append(value)
        return self.primitive(op.static[0], arguments)

    def cond(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """A selection where both branches are cheap scalars; else statements, arrays going to destinations.

        Branches that give nothing only check something. What they compute for that, as how often a scatter that is
        refused writes to each place, is not worth the code of several threads.
        """
        checks = not op.types and not self.target.group and not any(map(accumulates, op.blocks))
        test = self.scalar(env, op.args[0])
        kept = self.places.of(op).taken or (False,) * len(op.types)
        places = [
            (destination or self.allocate("chosen", type)) if rank(type) and not keep else None
            for type, destination, keep in zip(op.types, destinations, kept, strict=True)
        ]
        branches = []
        self.inside += checks
        for block in op.blocks:
            with self.captured() as statements:
                results = self.block(block, env, [], places)
            branches.append((statements, results))
        self.inside -= checks
        (then, then_results), (orelse, else_results) = branches
        pairs = [
            (a, b)
            for a, b in zip(then_results, else_results, strict=True)
            if not isinstance(a, ArrayRef) and not isinstance(b, ArrayRef)
        ]
        work = sum(survey(tuple(statements), invariant=self.invariant).work for statements in (then, orelse))
        cheap = work <= SELECTABLE_WORK
        if cheap and len(pairs) == len(op.types) > 0 and all(isinstance(s, ir.Let) for s in (*then, *orelse)):
            self.emit(*then, *orelse)
            return [self.let("t", ir.select(test, a, b)) for a, b in pairs]
        chosen = [self.variable("chosen", a.type) for a, _ in pairs]
        self.emit(*[ir.Declare(name.name, ir.Constant(zero(name.type), name.type)) for name in chosen])
        then.extend([ir.Assign(name.name, a) for name, (a, _) in zip(chosen, pairs, strict=True)])
        orelse.extend([ir.Assign(name.name, b) for name, (_, b) in zip(chosen, pairs, strict=True)])
        self.emit(ir.If(test, tuple(then), tuple(orelse)))
        assert not any(keep and a != b for keep, a, b in zip(kept, then_results, else_results, strict=True))
        scalars = iter(chosen)
        return [
            place if place is not None else value if isinstance(value, ArrayRef) else next(scalars)
            for place, value in zip(places, then_results, strict=True)
        ]
