"""A program in another precision: the same term with f32, say, wherever it has a floating type.

Test programs are annotated with f64, and some make numbers of their own (``az.full(n, 42.0)``). What is replaced is
therefore not the annotations but the term, by a language whose meanings are terms again: types, literals, constants
and conversions.

    g = in_precision(f.at(), az.f32)          # f(x: f64[n]) -> f64    becomes    g(x: f32[n]) -> f32
    g(*cast(arguments, az.f32))
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from adze.core import trees
from adze.core.annotations import Declared, Parameter
from adze.core.builder import current
from adze.core.environment import Env
from adze.core.expr import Expr, as_expr
from adze.core.language import Binding
from adze.core.primitive import lookup
from adze.core.program import Instance, Program
from adze.core.reify import Pending, Reify
from adze.core.terms import Atom, Block, Constant, Literal, Operation
from adze.core.types import Accumulator, ArrayType, Scalar, Type, accumulator_of, array_of, dims, f32, f64, is_float
from adze.interpreters.embed import Embed


class InPrecision(Reify):
    """Gives the term back with this floating type in the place of the others."""

    def __init__(self, scalar: Scalar) -> None:
        self.scalar = scalar

    def type(self, type: Type) -> Type:
        """For scalars, arrays, and accumulators of them."""
        if isinstance(type, Accumulator):
            return accumulator_of(self.type(type.of))
        return array_of(self.scalar, dims(type)) if is_float(type) else type

    def variable(self, index: int, type: Type) -> Atom:
        return super().variable(index, self.type(type))

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return Literal.of(value, self.scalar if type.kind == "float" else type)

    def constant(self, array: Constant, type: ArrayType) -> Atom:
        return Constant.capture(array.array.astype(self.scalar.dtype)) if is_float(type) else array

    def operation(self, operation: Operation, args: Sequence[Atom], blocks: Sequence[Block]) -> Pending:
        op, static = operation.op, operation.static
        if op == "primitive" and static[0].name in (f32.name, f64.name):
            operation = Operation(op, (lookup(self.scalar.name),), operation.args, (), operation.types)
        return super().operation(operation, args, blocks)

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Block:
        typed = [binding._replace(types=tuple(map(self.type, binding.types))) for binding in bindings]
        return super().block(tuple(map(self.type, binders)), typed, results, names)


def in_precision(instance: Instance, scalar: Scalar) -> Program:
    """The program of an instance with this floating type; its parameters are those that are not static."""
    language = InPrecision(scalar)
    block = instance.term.interpret(language)
    types = iter(map(language.type, instance.types))
    parameters = []
    for parameter, shape in zip(instance.program.dynamic, instance.inputs.inner, strict=True):
        leaves = len(trees.leaf_names(parameter.name, shape))
        declared = Declared(shape, tuple([next(types) for _ in range(leaves)]))
        type = declared.types[0] if shape == trees.LEAF else None
        parameters.append(Parameter(parameter.name, type, structure=declared))

    def function(*arguments: Any) -> Any:
        builder = current()
        values = [as_expr(leaf).value for leaf in trees.flatten(arguments)[0]]
        results = block.interpret(Embed(builder))(Env(), values)
        return trees.unflatten(instance.outputs, [Expr(value, builder) for value in results])

    return Program(function, f"{scalar}({instance.program.name})", parameters)


def cast(tree: Any, scalar: Scalar) -> Any:
    """A structure with its floating arrays and numbers in this type."""

    def leaf(value: Any) -> Any:
        array = np.asarray(value)
        return array.astype(scalar.dtype)[()] if array.dtype.kind == "f" else value

    return trees.tree_map(leaf, tree)
