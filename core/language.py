"""The language: one method a construct. An interpretation is a choice of what the methods return.

``A`` is what an atom means, ``O`` an operation, ``B`` a block. In practice an atom means ``env -> value``, an
operation ``env -> values`` and a block ``(env, arguments) -> values``, where the environment holds what the De
Bruijn indices stand for: running a scope again is calling its block's meaning again. Terms are the initial form of
the language, its instances the final one; :meth:`Language.meaning_of_block` leads from one to the other, and
``Reify`` (``reify.py``) leads back.

(Carette, Kiselyov, Shan: Finally Tagless, Partially Evaluated, 2009; variadic constructs as in Schenck et al. 2022,
section 2.1.)
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from . import terms
from .dims import Dim
from .primitive import Primitive
from .terms import Failure, Origin
from .types import ArrayType, Scalar, Type

A = TypeVar("A")
O = TypeVar("O")
B = TypeVar("B")


class Binding(NamedTuple):
    """An operation's meaning in a block, with the types of the values it binds and where it was written."""

    operation: Any
    types: tuple[Type, ...]
    origin: Origin


class Language(ABC, Generic[A, O, B]):
    """The constructs. Subclass it to give programs a meaning of your own."""

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

    @abstractmethod
    def reduce(self, extent: A, neutrals: Sequence[A], element: B, operator: B) -> O:
        """``element(0) op element(1) op ...`` with an associative operator and its neutral element."""

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

    # Blocks

    @abstractmethod
    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[A], names: Sequence[str]
    ) -> B:
        """Parameters (with names for people), operations in order, results."""

    # The fold

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
        a = [self.meaning_of_atom(atom) for atom in operation.args]
        b = [self.meaning_of_block(block) for block in operation.blocks]
        static = operation.static
        match operation.op:
            case "primitive":
                return self.primitive(static[0], a)
            case "cond":
                return self.cond(a[0], *b)
            case "loop":
                return self.loop(static[0], a[0], a[1:], *b)
            case "size":
                return self.size(a[0], static[0])
            case "index":
                return self.index(a[0], a[1:])
            case "generate":
                return self.generate(static[0], a[0], *b)
            case "reduce":
                return self.reduce(a[0], a[1:], *b)
            case "accumulate":
                return self.accumulate(a, *b)
            case "add_to":
                return self.add_to(a[0], a[1], a[2:])
            case "require":
                return self.require(a[0], static[0], a[1:])
        raise ValueError(f"no construct is called {operation.op!r}")

    def meaning_of_block(self, block: terms.Block) -> B:
        bindings = [Binding(self.meaning_of_operation(x), x.types, x.origin) for x in block.bindings]
        return self.block(block.binders, bindings, [self.meaning_of_atom(x) for x in block.results], block.names)
