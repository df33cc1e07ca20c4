"""A program in single precision: the same term with f32 wherever it has f64.

Test programs are annotated with f64, and some make numbers of their own (``az.full(n, 42.0)``). What is replaced is
therefore not the annotations but the term, by a language whose meanings are terms again: types, literals, constants
and conversions.

    g = single(f.at())          # f(x: f64[n]) -> f64    becomes    g(x: f32[n]) -> f32
    g(*halved(arguments))
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
from adze.core.primitive import Primitive, lookup
from adze.core.program import Instance, Program
from adze.core.reify import Pending, Reify
from adze.core.terms import Atom, Block, Constant, Literal
from adze.core.types import Accumulator, ArrayType, Scalar, Type, array_of, dims, element, f32, f64
from adze.interpreters.embed import Embed


def narrowed(type: Type) -> Type:
    """The type with f32 in the place of f64. Scalars, arrays and accumulators of them only."""
    if isinstance(type, Accumulator):
        of = narrowed(type.of)
        assert isinstance(of, Scalar | ArrayType)
        return Accumulator(of)
    return array_of(f32, dims(type)) if element(type) is f64 else type


class Narrow(Reify):
    """Gives the term back with f32 for f64."""

    def variable(self, index: int, type: Type) -> Atom:
        return super().variable(index, narrowed(type))

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return Literal.of(value, f32 if type is f64 else type)

    def constant(self, array: Constant, type: ArrayType) -> Atom:
        return Constant.capture(array.array.astype(np.float32)) if type.scalar is f64 else array

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Pending:
        return super().primitive(lookup("f32") if primitive is lookup("f64") else primitive, args)

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Block:
        types = [binding._replace(types=tuple(map(narrowed, binding.types))) for binding in bindings]
        return super().block(tuple(map(narrowed, binders)), types, results, names)


def single(instance: Instance) -> Program:
    """The program of an instance in single precision; its parameters are those that are not static."""
    block = instance.term.interpret(Narrow())
    types = iter(map(narrowed, instance.types))
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

    return Program(function, f"single({instance.program.name})", parameters)


def halved(tree: Any) -> Any:
    """The arrays and numbers of a structure with float32 in the place of float64."""

    def leaf(value: Any) -> Any:
        array = np.asarray(value)
        return array.astype(np.float32)[()] if array.dtype == np.float64 else value

    return trees.tree_map(leaf, tree)
