"""The language whose meanings are terms: the way back from an interpretation to syntax.

``block.interpret(Reify()) == block`` is a law, names and source lines included. A language that wraps another one
(differentiation, simplification) ends here when a term is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import terms
from .dims import Dim
from .language import Binding, Language
from .primitive import Primitive
from .terms import Atom, Block, Failure, Foreign, Literal, Operation, Origin, Size, Variable
from .types import ArrayType, FunctionType, Named, Scalar, Type

# An operation waits for its types and origin, which belong to its binding.
Pending = Callable[[tuple[Type, ...], Origin], Operation]


class Reify(Language[Atom, Pending, Block]):
    """Gives terms back (see the module)."""

    def variable(self, index: int, type: Type) -> Atom:
        return Variable(index, type)

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return Literal.of(value, type)

    def constant(self, array: terms.Constant, type: ArrayType) -> Atom:
        return array

    def dim(self, dim: Dim) -> Atom:
        return Size(dim)

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Pending:
        return _pending("primitive", (primitive,), args)

    def cond(self, test: Atom, then: Block, orelse: Block) -> Pending:
        return _pending("cond", (), [test], then, orelse)

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Block) -> Pending:
        return _pending("loop", (dim,), [extent, *initials], body)

    def size(self, array: Atom, axis: int) -> Pending:
        return _pending("size", (axis,), [array])

    def index(self, array: Atom, indices: Sequence[Atom]) -> Pending:
        return _pending("index", (), [array, *indices])

    def generate(self, dim: Dim, extent: Atom, body: Block) -> Pending:
        return _pending("generate", (dim,), [extent], body)

    def reduce(self, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block) -> Pending:
        return _pending("reduce", (), [extent, *neutrals], element, operator)

    def scan(self, dim: Dim, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block) -> Pending:
        return _pending("scan", (dim,), [extent, *neutrals], element, operator)

    def histogram(
        self, dim: Dim, bins: Atom, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block
    ) -> Pending:
        return _pending("histogram", (dim,), [bins, extent, *neutrals], element, operator)

    def scatter(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Block) -> Pending:
        return _pending("scatter", (unique, len(extents)), [*extents, *destinations], element)

    def argsort(self, array: Atom) -> Pending:
        return _pending("argsort", (), [array])

    def while_loop(self, initials: Sequence[Atom], test: Block, body: Block) -> Pending:
        return _pending("while", (), initials, test, body)

    def custom(self, rules: tuple[str, ...], args: Sequence[Atom], body: Block, blocks: Sequence[Block]) -> Pending:
        return _pending("custom", rules, args, body, *blocks)

    def probe(self, name: str, values: Sequence[Atom]) -> Pending:
        return _pending("probe", (name,), values)

    def foreign(self, function: Foreign, args: Sequence[Atom]) -> Pending:
        return _pending("foreign", (function,), args)

    def function(self, type: FunctionType, body: Block) -> Pending:
        return _pending("function", (type,), [], body)

    def fix(self, type: FunctionType, body: Block) -> Pending:
        return _pending("fix", (type,), [], body)

    def apply(self, function: Atom, args: Sequence[Atom]) -> Pending:
        return _pending("apply", (), [function, *args])

    def pack(self, items: Sequence[Atom]) -> Pending:
        return _pending("pack", (), items)

    def project(self, value: Atom, position: int) -> Pending:
        return _pending("project", (position,), [value])

    def construct(self, type: Named, variant: str, fields: Sequence[Atom]) -> Pending:
        return _pending("construct", (type, variant), fields)

    def case(self, value: Atom, variants: tuple[str, ...], branches: Sequence[Block]) -> Pending:
        return _pending("case", variants, [value], *branches)

    def par(self, branches: Sequence[Block]) -> Pending:
        return _pending("par", (), [], *branches)

    def accumulate(self, initials: Sequence[Atom], body: Block) -> Pending:
        return _pending("accumulate", (), initials, body)

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Pending:
        return _pending("add_to", (), [accumulator, value, *indices])

    def require(self, test: Atom, failure: Failure, values: Sequence[Atom]) -> Pending:
        return _pending("require", (failure,), [test, *values])

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Block:
        operations = tuple([binding.operation(binding.types, binding.origin) for binding in bindings])
        return Block(tuple(binders), operations, tuple(results), tuple(names))


def _pending(op: str, static: tuple[Any, ...], args: Sequence[Atom], *blocks: Block) -> Pending:
    return lambda types, origin: Operation(op, static, tuple(args), blocks, types, origin)
