"""The language whose meanings are terms: the way back from an interpretation to syntax.

``block.interpret(Reify()) == block`` is a law, names and source lines included. A language that wraps another one
(differentiation, simplification) ends here when a term is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import terms
from .dims import Dim
from .language import Binding, Fold
from .terms import Atom, Block, Literal, Operation, Origin, Size, Variable
from .types import ArrayType, Scalar, Type

# An operation waits for its types and origin, which belong to its binding.
Pending = Callable[[tuple[Type, ...], Origin], Operation]


class Reify(Fold[Atom, Pending, Block]):
    """Gives terms back (see the module)."""

    def variable(self, index: int, type: Type) -> Atom:
        return Variable(index, type)

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return Literal.of(value, type)

    def constant(self, array: terms.Constant, type: ArrayType) -> Atom:
        return array

    def dim(self, dim: Dim) -> Atom:
        return Size(dim)

    def operation(self, operation: Operation, args: Sequence[Atom], blocks: Sequence[Block]) -> Pending:
        op, static, args, blocks = operation.op, operation.static, tuple(args), tuple(blocks)
        return lambda types, origin: Operation(op, static, args, blocks, types, origin)

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Block:
        operations = tuple([binding.operation(binding.types, binding.origin) for binding in bindings])
        return Block(tuple(binders), operations, tuple(results), tuple(names))
