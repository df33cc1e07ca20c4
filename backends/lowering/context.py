"""What lowering knows and keeps: names, sizes, proofs about indices, and the statements emitted so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...core import terms
from ...core.dims import Compound, Dim, DimAtom, Name, Opaque
from ...core.environment import Env
from ...core.language import Unsupported
from ...core.procedures import Procedure
from ...core.ranges import index_in_range
from ...core.types import Scalar, Type, dims, element, i64
from ...interpreters.domains import Domain as Region
from ...interpreters.domains import Domains as Regions
from ...interpreters.in_place import InPlace
from .. import ir
from ..decisions import Decisions
from ..target import GROUP_WAVES, Target

ZERO, ONE = ir.Constant(0), ir.Constant(1)


@dataclass(frozen=True)
class ArrayRef:
    """An array in memory: its buffer, whose axes stand in the given order, behind fixed leading indices."""

    buffer: ir.Buffer
    order: tuple[int, ...]
    prefix: tuple[ir.Expression, ...] = ()

    def place(self, indices: Sequence[ir.Expression]) -> tuple[ir.Expression, ...]:
        """The buffer's indices for indices of the array."""
        logical = (*self.prefix, *indices)
        return tuple([logical[axis] for axis in self.order])

    def axis(self, axis: int) -> int:
        """The buffer's axis for one of the array."""
        return self.order.index(len(self.prefix) + axis)

    def at(self, index: ir.Expression) -> ArrayRef:
        return ArrayRef(self.buffer, self.order, (*self.prefix, index))

    def extent(self, axis: int) -> ir.Expression:
        return self.buffer.extents[self.axis(axis)]


@dataclass(frozen=True)
class Site:
    """A call: of which function, with what, for what, inside of how many loops, and where it was written."""

    function: terms.Foreign
    arguments: tuple[Type, ...]
    results: tuple[Type, ...]
    loops: int
    origin: terms.Origin
    symbol: str = ""  # by which the code knows a function of C


@dataclass
class Shared:
    """What the function of a program and its procedures have together."""

    numbers: Mapping[Procedure, int] = field(default_factory=dict)
    writing: frozenset[Procedure] = frozenset()  # those that write what they give to words of who calls them
    failures: list[terms.Failure] = field(default_factory=list)
    calls: list[Site] = field(default_factory=list)  # of functions that are written elsewhere
    constants: dict[terms.Constant, ir.Buffer] = field(default_factory=dict)
    counter: int = 0  # of names
    origins: dict[str, terms.Origin] = field(default_factory=dict)  # by name: where what it was made for was written


Operand = ir.Expression | ArrayRef
Environment = Env[Operand]
Destinations = Sequence[ArrayRef | None]


@dataclass
class Context(ABC):
    """The state of lowering one function. Subclasses add the constructs."""

    target: Target
    checks: bool
    deterministic: bool = False  # no sum depends on who comes first, even where iterations may update one place
    out: list[ir.Statement] = field(default_factory=list)
    inside: int = 0  # generates around, inside of which nothing is parallel
    around: int = 0  # of them, those around all that is lowered here: a procedure may run where other threads do
    turns: int = 0  # loops around that run in order
    shared: Shared = field(default_factory=Shared)
    lasting: set[str] = field(default_factory=set)  # the buffers that outlive a procedure
    loops_around: dict[int, tuple[int, ...]] = field(default_factory=dict)  # around such a call, as variables
    known: dict[str, Dim] = field(default_factory=dict)  # integer variables as dims
    extents: dict[int, Dim] = field(default_factory=dict)  # loop variables by number
    values: dict[str, ir.Expression] = field(default_factory=dict)  # what Lets stand for
    reductions: dict[str, ir.Reduction] = field(default_factory=dict)  # by loop variable
    places: InPlace = field(default_factory=lambda: InPlace(terms.Block((), (), (), ())))
    regions: Regions = field(default_factory=lambda: Regions(terms.Block((), (), (), ())))
    nonzero: dict[str, Region] = field(default_factory=dict)  # by buffer, of its axes: where it is not 0
    run_sizes: dict[Dim, ir.Expression] = field(default_factory=dict)  # those that the run decides, as far as in scope
    present: dict[str, ir.Expression] = field(default_factory=dict)  # the values of variables that may change later
    whole_turns: dict[tuple[int, int], ir.Expression] = field(default_factory=dict)  # in which a state's update copies
    decisions: Decisions = field(default_factory=Decisions)
    origin: terms.Origin = terms.NOWHERE  # of the operation that is lowered
    expanding: bool = False  # whether it is part of the meaning of another one

    # The walk, which every construct goes on with

    @abstractmethod
    def operation(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """Lower an operation; its arrays go to the destinations, where there are any."""

    @abstractmethod
    def block(
        self, block: terms.Block, env: Environment, arguments: Sequence[Operand], destinations: Destinations
    ) -> list[Operand]:
        """Lower a block; its results go to the destinations, where there are any."""

    @abstractmethod
    def bindings(self, block: terms.Block, env: Environment, destinations: Destinations) -> Environment:
        """Lower the operations of a block; arrays that are results are written to their destination at once.

        Gives the environment after them.
        """

    @property
    def most_groups(self) -> int:
        """How many groups share the work at most, where threads come in groups."""
        return max(1, GROUP_WAVES * self.target.threads // max(1, self.target.group))

    # Names and values

    def fresh(self, stem: str) -> str:
        """A name that nothing has yet, nor a size; a stem that ends in a digit is kept apart from its number."""
        self.shared.counter += 1
        name = f"{stem}{'_' if stem[-1:].isdigit() else ''}{self.shared.counter}"
        if name in self.known:
            return self.fresh(stem)
        origins = self.shared.origins
        likely = origins.get(stem) or origins.get(stem.rpartition("_")[0], terms.NOWHERE)  # of what it is a copy of
        origins[name] = self.origin if self.origin.file else likely
        return name

    def variable(self, stem: str, type: Scalar = i64) -> ir.Variable:
        return ir.Variable(self.fresh(stem), type)

    def buffer(self, stem: str, type: Type) -> ir.Buffer:
        return ir.Buffer(self.fresh(stem), element(type), tuple([self.size(dim) for dim in dims(type)]))

    def array(self, buffer: ir.Buffer) -> ArrayRef:
        return ArrayRef(buffer, tuple(range(len(buffer.extents))))

    def allocate(self, stem: str, type: Type) -> ArrayRef:
        buffer = self.buffer(stem, type)
        self.emit(ir.Allocate(buffer))
        return self.array(buffer)

    def let(self, stem: str, value: ir.Expression) -> ir.Expression:
        if isinstance(value, ir.Constant | ir.Variable):
            return value
        name = self.fresh(stem)
        self.emit(ir.Let(name, value))
        self.values[name] = value
        dim = self.dim(value)
        if dim is not None:
            self.known[name] = dim
        return ir.Variable(name, value.type)

    def frozen(self, value: ir.Expression) -> ir.Expression:
        """The present value of a variable, which may change later."""
        name = self.fresh("t")
        self.emit(ir.Let(name, value))
        return ir.Variable(name, value.type)

    # Statements

    def emit(self, *statements: ir.Statement) -> None:
        self.out.extend(statements)

    def temporary(self, stem: str, scalar: Scalar, extents: Sequence[ir.Expression], shared: bool = False) -> ir.Buffer:
        """A fresh buffer, from here on."""
        buffer = ir.Buffer(self.fresh(stem), scalar, tuple(extents))
        self.emit(ir.Allocate(buffer, shared))
        return buffer

    def declare(self, stem: str, value: ir.Expression) -> ir.Variable:
        """A variable that may change, with its first value."""
        variable = self.variable(stem, value.type)
        self.emit(ir.Declare(variable.name, value))
        return variable

    def assign(self, variable: ir.Variable, value: ir.Expression) -> None:
        self.emit(ir.Assign(variable.name, value))

    def captured(self) -> Capture:
        """The statements emitted inside a ``with`` block, apart."""
        return Capture(self)

    @contextmanager
    def over(
        self,
        of: ir.Variable | str,
        extent: ir.Expression | int,
        kind: ir.Kind = "sequential",
        factor: int = 1,
        grain: ir.Expression | None = None,
        reductions: tuple[ir.Reduction, ...] = (),
    ) -> Iterator[ir.Variable]:
        """What is emitted inside a ``with`` block becomes a loop over a variable, or over a fresh one of a stem."""
        variable = self.variable(of) if isinstance(of, str) else of
        self.inside += kind != "sequential"
        self.turns += kind == "sequential"
        with self.captured() as body:
            yield variable
        self.turns -= kind == "sequential"
        self.inside -= kind != "sequential"
        count = ir.Constant(extent) if isinstance(extent, int) else extent
        self.emit(ir.For(variable.name, count, kind, tuple(body), factor, grain, reductions))

    @contextmanager
    def when(self, test: ir.Expression) -> Iterator[None]:
        """What is emitted inside a ``with`` block runs where the test holds."""
        with self.captured() as body:
            yield
        self.emit(ir.If(test, tuple(body), ()))

    @contextmanager
    def as_long_as(self, test: ir.Expression) -> Iterator[None]:
        """What is emitted inside a ``with`` block runs again and again, as long as the test holds before."""
        with self.captured() as body:
            yield
        self.emit(ir.While((), test, tuple(body)))

    # Sizes and indices

    def know(self, dim: Dim, extent: ir.Expression) -> None:
        """Note what a size is that the run decides."""
        if not dim.is_static():
            self.run_sizes[dim] = self.fixed(extent)

    def fixed(self, extent: ir.Expression) -> ir.Expression:
        """What an extent is from now on: an array is that long, and so a variable that may change is read before.

        Whatever asks for this variable from here on gets the same name.
        """
        if not isinstance(extent, ir.Variable) or extent.name in self.values or extent.name in self.known:
            return extent
        if extent in self.present.values():
            return extent
        if extent.name not in self.present:
            self.present[extent.name] = self.frozen(extent)
        return self.present[extent.name]

    def size(self, dim: Dim) -> ir.Expression:
        """The value of a dim."""
        if dim in self.run_sizes:
            return self.run_sizes[dim]
        total: ir.Expression | None = None
        for monomial, factor in dim.terms:
            product: ir.Expression | None = None if monomial and factor == 1 else ir.Constant(factor)
            for atom in monomial:
                part = self._size_atom(atom)
                product = part if product is None else product * part
            assert product is not None
            total = product if total is None else total + product
        return ZERO if total is None else total

    def _size_atom(self, atom: DimAtom) -> ir.Expression:
        match atom:
            case Name(name):
                return ir.Variable(name)
            case Compound(operator, left, right):
                row = {"//": "floor_divide", "min": "minimum", "max": "maximum"}[operator]
                return ir.apply(row, self.size(left), self.size(right))
        known = self.run_sizes.get(Dim.atom(atom))
        if known is None:
            raise Unsupported(f"the size {atom} of an array is the extent of no loop around it or before it")
        return known

    def dim(self, value: ir.Expression) -> Dim | None:
        """An integer expression as a dim, for proofs about indices."""
        return ir.dim_of(value, self.known)

    def loop_variable(self, stem: str, extent: Dim) -> ir.Variable:
        """A fresh loop variable, known to lie below its extent."""
        variable = ir.Variable(self.fresh(stem or "i"))
        self.know_range(variable, extent)
        return variable

    def know_range(self, variable: ir.Variable, extent: Dim) -> None:
        """Note that a variable lies below an extent, and not below 0."""
        number = -1 - len(self.extents)
        self.known[variable.name] = Dim.atom(Opaque(number))
        self.extents[number] = extent

    def extent_of(self, value: ir.Expression) -> Dim | None:
        """What a variable is known to lie below, if it is not computed from others."""
        dim = self.dim(value)
        atoms = [] if dim is None else list(dim.atoms())
        return self._extent_of(atoms[0]) if len(atoms) == 1 and dim == Dim.atom(atoms[0]) else None

    def of_sizes(self, extent: ir.Expression) -> bool:
        """Whether the sizes of the function alone decide an extent."""
        sizes = {name for name in ir.names_in([extent]) if name in self.known and self.known[name].is_static()}
        return ir.decided_by(sizes, extent)

    def invariant(self, extent: ir.Expression) -> bool:
        """Whether an extent is computed before a loop around: the sizes of the function alone decide it."""
        return self.turns > 0 and self.of_sizes(extent)

    def proved(self, index: ir.Expression, size: Dim) -> bool:
        """Whether an index is in range of an axis for all sizes."""
        dim = self.dim(index)
        return dim is not None and index_in_range(dim, size, self._extent_of)

    def guarded(self, array: ArrayRef, indices: Sequence[ir.Expression], sizes: Sequence[Dim]) -> tuple[int, ...]:
        """The axes of an array's buffer along which these indices are not proved in range."""
        pairs = zip(indices, sizes, strict=False)
        return tuple(sorted(array.axis(k) for k, (i, size) in enumerate(pairs) if not self.proved(i, size)))

    def _extent_of(self, atom: DimAtom) -> Dim | None:
        return self.extents.get(atom.number) if isinstance(atom, Opaque) else None

    # Atoms

    def atom(self, env: Environment, atom: terms.Atom) -> Operand:
        match atom:
            case terms.Variable(index):
                return env.get(index)
            case terms.Literal(_, type):
                return ir.Constant(atom.value, type)
            case terms.Size(dim):
                return self.size(dim)
            case terms.Constant():
                constants = self.shared.constants
                if atom not in constants:
                    constants[atom] = self.buffer("constant", atom.type)
                return self.array(constants[atom])

    def scalar(self, env: Environment, atom: terms.Atom) -> ir.Expression:
        value = self.atom(env, atom)
        assert not isinstance(value, ArrayRef)
        return self.present.get(value.name, value) if isinstance(value, ir.Variable) else value


class Capture:
    def __init__(self, lowering: Context) -> None:
        self.lowering = lowering

    def __enter__(self) -> list[ir.Statement]:
        self.outer, self.lowering.out = self.lowering.out, []
        self.run_sizes, self.present = dict(self.lowering.run_sizes), dict(self.lowering.present)
        return self.lowering.out

    def __exit__(self, *_: object) -> None:
        self.lowering.out, self.lowering.run_sizes, self.lowering.present = self.outer, self.run_sizes, self.present


def zero(scalar: Scalar) -> float | int | bool:
    """The zero of a scalar type."""
    return {"float": 0.0, "int": 0, "bool": False}[scalar.kind]
