"""The verbs of differentiation: programs from programs, derived when somebody needs them.

``jvp(f)`` is the program of ``(*primals, *tangents)`` giving ``(result, tangent)``; ``vjp(f)`` of ``(*primals,
cotangent)`` giving ``(result, *cotangents)``; ``grad`` and ``value_and_grad`` are the reverse mode of a scalar. Each
takes a program or, inside a program's body, any Python function of expressions, which may capture outer variables:
what is captured is constant for the derivative. Verbs nest to any depth.

A verb checks what it can at once and gives a program that holds (verb, options, f); the derivative is built with that
program's term: f becomes a term, which is simplified, and its meaning in ``Forward`` or ``Reverse`` is emitted.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from ..core import trees
from ..core.annotations import Parameter
from ..core.builder import current
from ..core.environment import Env
from ..core.expr import Expr, as_expr, same_size
from ..core.graph import Value
from ..core.placement import to_block
from ..core.program import Program, as_program
from ..core.source import at_line, user_line
from ..core.terms import Block
from ..core.types import ArrayType, Scalar, element, i64, is_float, rank
from ..interpreters.simplify import simplify
from ..interpreters.simplifying.accumulators import zeros_like
from .cells import Cell, Entry, Sweep
from .forward import Dual, Forward
from .reverse import Reverse

Argnums = SupportsIndex | Sequence[SupportsIndex]


def grad(f: Program | Callable[..., Any], argnums: Argnums = 0) -> Program:
    """The gradient of a scalar program with respect to the chosen parameters.

    The result has the structure of the parameter (None at its integer leaves), or is a tuple of these when
    ``argnums`` is a sequence. Raises TypeError when a parameter is not floating, ValueError when there is none of
    that number; a result that is not a floating scalar is refused when the derivative is built.

    >>> import adze as az, numpy as np
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> az.grad(norm2)(np.array([1.0, 2.0]))
    array([2., 4.])
    """
    f = as_program(f)
    gradient = _ValueAndGradient("grad", f, _numbers("grad", f, argnums), _is_single(argnums))
    return Program(gradient, gradient.name, f.parameters)


def value_and_grad(f: Program | Callable[..., Any], argnums: Argnums = 0) -> Program:
    """The program of ``(f(...), grad(f)(...))``, which shares the work of both.

    >>> import adze as az
    >>> @az.program
    ... def square(x: az.f64) -> az.f64:
    ...     return x * x
    >>> value, gradient = az.value_and_grad(square)(3.0)
    >>> float(value), float(gradient)
    (9.0, 6.0)
    """
    f = as_program(f)
    both = _ValueAndGradient("value_and_grad", f, _numbers("value_and_grad", f, argnums), _is_single(argnums))
    return Program(both, both.name, f.parameters)


def vjp(f: Program | Callable[..., Any], *primals: Any, argnums: Argnums | None = None) -> Any:
    """Reverse mode: the program of ``(*primals, cotangent)`` giving ``(result, *cotangents)``.

    There is one cotangent for each parameter with floating leaves (or each of ``argnums``), None at integer leaves;
    the cotangent that is given has the structure of the result, and anything (None, say) at its integer leaves. With
    primals it is JAX's: ``(result, pullback)`` where ``pullback(cotangent)`` gives the tuple of cotangents.

    >>> import adze as az
    >>> @az.program
    ... def product(x: az.f64, y: az.f64) -> az.f64:
    ...     return x * y
    >>> [float(number) for number in az.vjp(product)(2.0, 3.0, 1.0)]
    [6.0, 3.0, 2.0]
    >>> result, pullback = az.vjp(product, 2.0, 3.0)
    >>> [float(number) for number in pullback(10.0)]
    [30.0, 20.0]
    """
    f = as_program(f)
    transposed = _Transposed("vjp", f, None if argnums is None else _numbers("vjp", f, argnums))
    if any(isinstance(leaf, Expr) for leaf in trees.flatten(primals)[0]):
        pullback = _Pullback(transposed.name, _Function.of(f, f.bind(primals, {})), transposed.argnums)
        return pullback.result, pullback
    taken = [parameter.name for parameter in f.parameters]
    declared = f.result if isinstance(f.result, Scalar | ArrayType) and is_float(f.result) else None
    parameters = [*f.parameters, Parameter(_fresh("cotangent", taken), declared)]
    program = Program(transposed, transposed.name, parameters)
    if not primals:
        return program
    return f(*primals), lambda cotangent: program(*primals, cotangent)[1:]


def jvp(f: Program | Callable[..., Any], primals: Any = None, tangents: Any = None) -> Any:
    """Forward mode: the program of ``(*primals, *tangents)`` giving ``(result, tangent)``.

    There is one tangent for each parameter that may be floating, with its structure and anything (None, say) at
    integer leaves. With ``primals`` and ``tangents`` (tuples) the pair itself.

    >>> import adze as az
    >>> @az.program
    ... def cube(x: az.f64) -> az.f64:
    ...     return x ** 3
    >>> value, tangent = az.jvp(cube)(2.0, 1.0)
    >>> float(value), float(tangent)
    (8.0, 12.0)
    """
    f = as_program(f)
    pushed = _Pushed("jvp", f)
    parameters = list(f.parameters)
    for number in pushed.moving:
        parameter = f.parameters[number]
        name = _fresh(f"d_{parameter.name}", [parameter.name for parameter in parameters])
        parameters.append(Parameter(name, parameter.type))
    program = Program(pushed, pushed.name, parameters)
    if primals is None and tangents is None:
        return program
    if primals is None or tangents is None:
        raise TypeError(at_line(f"{pushed.name} takes primals and tangents together, or neither"))
    return program(*primals, *tangents)


# Which parameters


def _is_single(argnums: Argnums) -> bool:
    return not isinstance(argnums, Sequence)


def _numbers(verb: str, f: Program, argnums: Argnums) -> tuple[int, ...]:
    """The numbers of the chosen parameters, checked against the program's annotations."""
    numbers = []
    count = len(f.parameters)
    for given in argnums if isinstance(argnums, Sequence) else [argnums]:
        number = operator.index(given)
        if not -count <= number < count:
            parameters = "1 parameter" if count == 1 else f"{count} parameters"
            raise ValueError(at_line(f"{verb}({f.name}): argnums {number}, but {f.name} has {parameters}"))
        parameter = f.parameters[number]
        if not _may_be_floating(parameter):
            shown = f"a static {parameter.static.__name__}" if parameter.static else f"of type {parameter.type}"
            raise TypeError(
                at_line(
                    f"{verb}({f.name}): parameter {parameter.name!r} (argnums {number}) is {shown};"
                    " derivatives are taken with respect to floating parameters"
                )
            )
        numbers.append(number % count)
    return tuple(numbers)


def _may_be_floating(parameter: Parameter) -> bool:
    """Whether some argument of a parameter has floating leaves, as far as its annotation says."""
    return parameter.static is None and (parameter.type is None or is_float(parameter.type))


def _fresh(name: str, taken: Sequence[str]) -> str:
    """The name, or the first of name2, name3, ... that is not taken."""
    numbered = (f"{name}{k}" for k in range(2, len(taken) + 3))
    return next(candidate for candidate in (name, *numbered) if candidate not in taken)


# What a verb's program does


@dataclass(frozen=True)
class _Verb:
    """A verb applied to a program, waiting for arguments. The name is that of the program that it makes."""

    verb: str
    f: Program

    @property
    def name(self) -> str:
        return f"{self.verb}({self.f.name})"


@dataclass(frozen=True)
class _ValueAndGradient(_Verb):
    argnums: tuple[int, ...]
    single: bool

    def __call__(self, *args: Any) -> Any:
        """The value and the gradient, or the gradient alone."""
        builder = current()
        builder.origin = user_line()
        pullback = _Pullback(self.name, _Function.of(self.f, args), self.argnums)
        result = pullback.result
        if not isinstance(result, Expr) or result.ndim or result.dtype.kind != "float":
            shown = result.type if isinstance(result, Expr) else f"a {type(result).__name__}"
            message = f"{self.name}: the gradient is that of one floating scalar, but {self.f.name} returns {shown}"
            raise TypeError(at_line(message))
        gradients = pullback(Expr(builder.literal(1.0, result.dtype), builder))
        chosen = gradients[0] if self.single else gradients
        return (result, chosen) if self.verb == "value_and_grad" else chosen


@dataclass(frozen=True)
class _Transposed(_Verb):
    argnums: tuple[int, ...] | None

    def __call__(self, *args: Any) -> Any:
        """The result and the cotangents."""
        pullback = _Pullback(self.name, _Function.of(self.f, args[:-1]), self.argnums)
        return (pullback.result, *pullback(args[-1]))


@dataclass(frozen=True)
class _Pushed(_Verb):
    @property
    def moving(self) -> list[int]:
        """The parameters that have a tangent."""
        return [number for number, parameter in enumerate(self.f.parameters) if _may_be_floating(parameter)]

    def __call__(self, *args: Any) -> Any:
        """The result and its tangent."""
        builder = current()
        count = len(self.f.parameters)
        function = _Function.of(self.f, args[:count])
        tangents = dict(zip(self.moving, args[count:], strict=True))
        duals = [Dual(value) for value in function.captured]
        for number, values in function.leaves.items():
            name = self.f.parameters[number].name
            given = tangents.get(number, function.rebuilt(number, [None] * len(values)))
            tangent = _converted(f"{self.name}: the tangent of {name!r}", given, function.shapes[number], values)
            duals += [Dual(value, moves) for value, moves in zip(values, tangent, strict=True)]
        results = function.block.interpret(Forward(builder)).run(Env(), duals)

        def tangent_of(dual: Dual) -> Expr | None:
            if not is_float(dual.primal.type):
                return None
            return Expr(zeros_like(builder, dual.primal) if dual.tangent is None else dual.tangent, builder)

        result = trees.unflatten(function.output, [Expr(dual.primal, builder) for dual in results])
        return result, trees.unflatten(function.output, [tangent_of(dual) for dual in results])


# How the verbs work


@dataclass(frozen=True)
class _Function:
    """A program at its arguments as a term: what is differentiated."""

    program: Program
    block: Block  # simplified; its binders are what it captures, then the leaves of its arguments
    captured: Sequence[Value]
    leaves: dict[int, list[Value]]  # by number of the parameter; static ones have none
    shapes: dict[int, trees.Shape]
    output: trees.Shape

    @staticmethod
    def of(f: Program, args: Sequence[Any]) -> _Function:
        builder = current()
        arguments, leaves, shapes = list(args), {}, {}
        for number, (parameter, argument) in enumerate(zip(f.parameters, args, strict=True)):
            if parameter.static:
                continue
            like = None if parameter.type is None else element(parameter.type)
            parts, shapes[number] = trees.flatten(argument)
            leaves[number] = [as_expr(part, like).value for part in parts]
        outputs: list[trees.Shape] = []

        def run(*binders: Value) -> Sequence[Value]:
            expressions = iter([Expr(binder, builder) for binder in binders])
            for number, values in leaves.items():
                arguments[number] = trees.unflatten(shapes[number], [next(expressions) for _ in values])
            results, output = trees.flatten(f.inline(arguments))
            outputs.append(output)
            return [as_expr(leaf).value for leaf in results]

        values = [value for parts in leaves.values() for value in parts]
        body = builder.body([value.type for value in values], run, [value.name for value in values])
        block, captured = to_block(body.binders, body.results, body.statements)
        return _Function(f, simplify(block), captured, leaves, shapes, outputs[0])

    def rebuilt(self, number: int, parts: Sequence[Any]) -> Any:
        """What belongs to the leaves of a parameter, in its structure."""
        return trees.unflatten(self.shapes[number], parts)


class _Pullback:
    """The result of a function, and how a cotangent of it becomes cotangents of the arguments."""

    def __init__(self, name: str, function: _Function, argnums: Sequence[int] | None) -> None:
        self.name, self.function = name, function
        floating = [k for k, values in function.leaves.items() if any(is_float(value.type) for value in values)]
        self.argnums = floating if argnums is None else argnums
        for number in self.argnums:
            if number not in floating:
                parameter = function.program.parameters[number].name
                raise TypeError(at_line(f"{name}: parameter {parameter!r} has no floating part to differentiate"))
        self._sweep_forward(checks=True)
        output = [Expr(value, current()) for value in self.values]
        self.result = trees.unflatten(function.output, output)

    def _sweep_forward(self, checks: bool) -> None:
        """Emit the forward part here; the return part waits in ``pull``, with cells for one cotangent."""
        function, builder = self.function, current()
        sweep = Sweep(builder)
        self.cells: dict[int, list[Cell | None]] = {}
        entries = [Entry(value) for value in function.captured]
        for number, values in function.leaves.items():
            chosen = number in self.argnums
            cells = [Cell(sweep, value) if chosen and is_float(value.type) else None for value in values]
            entries += [Entry(value, cell) for value, cell in zip(values, cells, strict=True)]
            self.cells[number] = cells
        reverse = Reverse(sweep)
        reverse.checks = checks
        self.values, self.pull = function.block.interpret(reverse).run(Env(), entries)
        reverse.checks = False
        self.scope, self.used = builder.scopes[-1], False

    def __call__(self, cotangent: Any) -> tuple[Any, ...]:
        if self.used or current().scopes[-1] is not self.scope:
            self._sweep_forward(checks=False)
        self.used = True
        self.pull(_converted(f"{self.name}: the cotangent", cotangent, self.function.output, self.values))
        return tuple([self._collected(number) for number in self.argnums])

    def _collected(self, number: int) -> Any:
        builder = current()
        totals = [None if cell is None else Expr(cell.total_or_zero(), builder) for cell in self.cells[number]]
        return self.function.rebuilt(number, totals)


def _converted(what: str, given: Any, shape: trees.Shape, values: Sequence[Value]) -> list[Value | None]:
    """A tangent or cotangent: one value a leaf, of exactly the leaf's type; None at leaves that have none."""
    leaves, own = trees.flatten(given, none_is_leaf=True)
    if own != shape:
        raise TypeError(at_line(f"{what} has another structure than what it belongs to"))
    return [
        None if leaf is None or not is_float(value.type) else _of_type(what, leaf, value)
        for leaf, value in zip(leaves, values, strict=True)
    ]


def _of_type(what: str, leaf: Any, value: Value) -> Value:
    builder, type = current(), value.type
    x = as_expr(leaf, element(type))
    if x.type == i64:
        x = x.astype(element(type))  # a Python number
    if x.dtype != element(type) or x.ndim != rank(type):
        raise TypeError(at_line(f"{what} is {x.type}, but belongs to a value of type {type}"))
    if x.type == type:
        return x.value
    for axis in range(rank(type)):
        same_size(value, axis, x.value, axis, what)
    return builder.array(builder.sizes(value), lambda *indices: builder.index(x.value, indices))
