"""The language: one method a construct. An interpretation is a choice of what the methods return.

A construct that not every interpretation has a meaning for (the higher-order fragment has none in compiled code) is
refused by default, with the line where it was written: override it to give it one.

``A`` is what an atom means, ``O`` an operation, ``B`` a block. In practice an atom means ``env -> value``, an
operation ``env -> values`` and a block ``(env, arguments) -> values``, where the environment holds what the De
Bruijn indices stand for: running a scope again is calling its block's meaning again. Terms are the initial form of
the language, its instances the final one; :meth:`Fold.meaning` leads from one to the other, and ``Reify``
(``reify.py``) leads back.

(Carette, Kiselyov, Shan: Finally Tagless, Partially Evaluated, 2009; variadic constructs as in Schenck et al. 2022,
section 2.1.)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from . import terms
from .constructs import ADDED, CONSTRUCTS, Construct
from .dims import Dim
from .primitive import Primitive
from .procedures import Procedure
from .terms import Failure, Foreign, Origin, Rules
from .types import ArrayType, FunctionType, Named, Opened, Scalar, Type

# What writes the constructs of a term that an interpretation does not know in others that it knows. It is itself an
# interpretation, and enters itself (``interpreters/expansion.py``).
EXPANSION: dict[str, Callable[[terms.Block, Callable[[Construct], bool]], terms.Block]] = {}

A = TypeVar("A")
O = TypeVar("O")
B = TypeVar("B")


class Binding(NamedTuple):
    """An operation's meaning in a block, with the types of the values it binds and where it was written."""

    operation: Any
    types: tuple[Type, ...]
    origin: Origin


class Unsupported(TypeError):
    """An interpretation has no meaning for a construct that a program uses (at ``origin``, if that is known)."""

    origin: Origin | None = None

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.origin is None else f"{message}, written at {self.origin}"


class Fold(ABC, Generic[A, O, B]):
    """Gives terms a meaning from the inside out: atoms, then operations, then blocks."""

    # Atoms

    @abstractmethod
    def variable(self, index: int, type: Type) -> A:
        """The value bound ``index`` bindings ago."""

    @abstractmethod
    def literal(self, value: float | int | bool, type: Scalar) -> A:
        """A scalar constant."""

    @abstractmethod
    def constant(self, array: terms.Constant, type: ArrayType) -> A:
        """An array captured from Python."""

    @abstractmethod
    def dim(self, dim: Dim) -> A:
        """The i64 value of a size expression over the names bound by a call."""

    # Operations and blocks

    @abstractmethod
    def operation(self, operation: terms.Operation, args: Sequence[A], blocks: Sequence[B]) -> O:
        """An operation, from the meanings of its arguments and blocks."""

    @abstractmethod
    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[A], names: Sequence[str]
    ) -> B:
        """Parameters (with names for people), operations in order, results."""

    # The fold

    later_rules = False  # whether it takes custom operations whose rules are not built yet (``terms.LaterRule``)

    def knows(self, construct: Construct) -> bool:
        """Whether it has a meaning for a construct that the language does not have by itself."""
        return True

    def expanded(self, block: terms.Block) -> terms.Block:
        """A term with constructs that have no meaning here written in those that have."""
        return EXPANSION["default"](block, self.knows) if ADDED else block

    def meaning(self, block: terms.Block) -> B:
        """The meaning of a term."""
        return self.meaning_of_block(self.expanded(block))

    def meaning_of_atom(self, atom: terms.Atom) -> A:
        match atom:
            case terms.Variable(index, type):
                return self.variable(index, type)
            case terms.Literal(_, type):
                return self.literal(atom.value, type)
            case terms.Constant():
                return self.constant(atom, atom.type)
            case terms.Size(dim):
                return self.dim(dim)

    def meaning_of_operation(self, operation: terms.Operation) -> O:
        operation = operation if self.later_rules else operation.with_rules
        args = [self.meaning_of_atom(atom) for atom in operation.args]
        blocks = [self.meaning_of_block(block) for block in operation.blocks]
        try:
            return self.operation(operation, args, blocks)
        except Unsupported as error:
            if error.origin is None:
                error.origin = operation.origin
            raise

    def meaning_of_block(self, block: terms.Block) -> B:
        bindings = [Binding(self.meaning_of_operation(x), x.types, x.origin) for x in block.bindings]
        return self.block(block.binders, bindings, [self.meaning_of_atom(x) for x in block.results], block.names)


class Language(Fold[A, O, B]):
    """The constructs. Subclass it to give programs a meaning of your own."""

    def refuse(self, construct: str) -> NoReturn:
        """Raise what an interpretation without a meaning for a construct raises."""
        raise Unsupported(f"{type(self).__name__.strip('_')} has no meaning for {construct}")

    def knows(self, construct: Construct) -> bool:
        return hasattr(self, construct.method)

    def operation(self, operation: terms.Operation, args: Sequence[A], blocks: Sequence[B]) -> O:
        """What the method says that the row of the construct names."""
        row = operation.row
        meaning: O = getattr(self, row.method)(*row.parameters(operation.static, args, blocks))
        return meaning

    # Scalars and control

    @abstractmethod
    def primitive(self, primitive: Primitive, args: Sequence[A]) -> O:
        """A scalar operation: one result."""

    @abstractmethod
    def cond(self, test: A, then: B, orelse: B) -> O:
        """The results of one branch, which alone is run. Branches take no arguments."""

    @abstractmethod
    def loop(self, dim: Dim, extent: A, initials: Sequence[A], body: B) -> O:
        """``body(i, *state) -> (*state, *outputs)`` for i in 0..extent: the final state, then outputs stacked."""

    # Arrays

    @abstractmethod
    def size(self, array: A, axis: int) -> O:
        """The i64 length of an axis, for a length that is not a static dim."""

    @abstractmethod
    def index(self, array: A, indices: Sequence[A]) -> O:
        """One element. Total: outside the array the value is unspecified, and no other memory is touched."""

    @abstractmethod
    def generate(self, dim: Dim, extent: A, body: B) -> O:
        """The arrays of ``body(i)`` for i in 0..extent, one for each result; ``dim`` is the extent in types."""

    def reduce(self, extent: A, neutrals: Sequence[A], element: B, operator: B) -> O:
        """``element(0) op element(1) op ...`` with an associative operator and its neutral element."""
        return self.combination(CONSTRUCTS["reduce"], [extent], neutrals, element, operator)

    def scan(self, dim: Dim, extent: A, neutrals: Sequence[A], element: B, operator: B) -> O:
        """The running reductions ``element(0) op ... op element(i)`` for i in 0..extent, stacked."""
        return self.combination(CONSTRUCTS["scan"], [extent], neutrals, element, operator)

    def histogram(self, dim: Dim, bins: A, extent: A, neutrals: Sequence[A], element: B, operator: B) -> O:
        """``element(i) -> (bin, *values)``: for each bin, the reduction in order of the values that go there.

        Values of bins outside 0..bins are ignored. ``dim`` is the number of bins in types.
        """
        return self.combination(CONSTRUCTS["histogram"], [bins, extent], neutrals, element, operator)

    def combination(
        self, construct: Construct, extents: Sequence[A], neutrals: Sequence[A], element: B, operator: B
    ) -> O:
        """One of these three, for interpretations that treat them alike; there are elements for the last extent."""
        self.refuse(construct.name)

    def scatter(self, unique: bool, extents: Sequence[A], destinations: Sequence[A], element: B) -> O:
        """The destinations with ``element(*i) -> (*indices, *values)`` written, for all i in order of the extents.

        A value is a scalar, or an array over the axes behind the indices. The last of two writes to one place wins;
        ``unique`` promises that there are none. Writes outside the destinations are ignored.
        """
        self.refuse("scatter")

    def argsort(self, array: A) -> O:
        """The i64 permutation that sorts a vector, stably; NaN comes last."""
        self.refuse("argsort")

    def while_loop(self, initials: Sequence[A], test: B, body: B) -> O:
        """``state = body(*state)`` while ``test(*state)``: the final state, then the i64 number of trips."""
        self.refuse("while")

    # Meanings given by the user

    def custom(self, rules: Rules, args: Sequence[A], body: B, blocks: Sequence[B]) -> O:
        """``body(*args)``, whose derivatives are given: by a block for each of ``rules`` ("jvp", "vjp").

        With the rule "checkpoint", which has no block, they are those of the body, which a return sweep runs again.

        A jvp block takes the function itself (as a value, which it may apply), the arguments, and one tangent for each
        that is floating; it gives one tangent for each floating result. A vjp block takes the function itself, the
        arguments, and one cotangent for each floating result; it gives one cotangent for each floating argument.

        An interpretation that has ``later_rules`` is given those in the place of names, without blocks.
        """
        self.refuse("custom")

    def probe(self, name: str, values: Sequence[A]) -> O:
        """These values as they are, shown to whoever runs the program: a statement that stays where it is."""
        self.refuse("probe")

    def foreign(self, function: Foreign, args: Sequence[A]) -> O:
        """A function on arrays written elsewhere; a statement, if it has effects."""
        self.refuse("foreign")

    # The higher-order fragment

    def function(self, type: FunctionType, body: B) -> O:
        """A function as a value."""
        self.refuse("a function as a value")

    def fix(self, type: FunctionType, body: B) -> O:
        """The recursive function ``f`` with ``f(*x) = body(f, *x)``."""
        self.refuse("fix")

    def apply(self, function: A, args: Sequence[A]) -> O:
        """The results of a function that is a value."""
        self.refuse("the application of a function that is a value")

    def pack(self, items: Sequence[A]) -> O:
        """A tuple as one value."""
        self.refuse("a tuple as one value")

    def project(self, value: A, position: int) -> O:
        """An item of a tuple."""
        self.refuse("a tuple as one value")

    def construct(self, type: Named, variant: str, fields: Sequence[A]) -> O:
        """A value of a declared type."""
        self.refuse("a value of a declared type")

    def case(self, value: A, variants: tuple[str, ...], branches: Sequence[B]) -> O:
        """The results of the branch for the variant of a value, which is given its fields."""
        self.refuse("case")

    def par(self, branches: Sequence[B]) -> O:
        """The results of all branches, one after the other, which may run side by side (fork and join)."""
        self.refuse("par")

    # Procedures, and data as addresses of cells (interpreters/first_order)

    def call(self, procedures: tuple[Procedure, ...], args: Sequence[A]) -> O:
        """The results of a procedure, which may call itself, or of several, which may run side by side."""
        self.refuse("the call of a procedure")

    def cell(self, number: int, fields: Sequence[A]) -> O:
        """The i64 address of a new cell with this number as its tag, and these fields."""
        self.refuse("a cell")

    def open(self, cell: A, variants: tuple[Opened, ...], branches: Sequence[B]) -> O:
        """The results of the branch for the variant of the cell at an address, which is given its fields."""
        self.refuse("a cell")

    # Effects: commuting updates of accumulators, and requirements

    @abstractmethod
    def accumulate(self, initials: Sequence[A], body: B) -> O:
        """``body(*accumulators) -> results``: the initials with all updates added, then the results."""

    @abstractmethod
    def add_to(self, accumulator: A, value: A, indices: Sequence[A]) -> O:
        """A statement: add a scalar at an element (no indices: to a scalar accumulator)."""

    @abstractmethod
    def require(self, test: A, failure: Failure, values: Sequence[A]) -> O:
        """A statement: the program fails, with these integers, when the test is false."""
