"""The verbs of differentiation: programs from programs, derived when somebody needs them.

``jvp(f)`` is the program of ``(*primals, *tangents)`` giving ``(result, tangent)``; ``vjp(f)`` of ``(*primals,
cotangent)`` giving ``(result, *cotangents)``; ``grad`` and ``value_and_grad`` are the reverse mode of a scalar. Each
takes a program or, inside a program's body, any Python function of expressions, which may capture outer variables:
what is captured is constant for the derivative. Verbs nest to any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core import trees
from ..core.annotations import Parameter
from ..core.builder import current
from ..core.environment import Env
from ..core.expr import Expr, as_expr
from ..core.graph import Value
from ..core.placement import to_block
from ..core.program import Program, as_program
from ..core.source import at_line, user_line
from ..core.terms import Block
from ..core.types import element, is_float, rank
from ..interpreters.accumulators import zeros_like
from ..interpreters.simplify import simplify
from .forward import Dual, Forward
from .reverse import Entry, Reverse, Sweep
from .reverse import Cell as _Cell

Argnums = int | Sequence[int]


def grad(f: Program | Callable[..., Any], argnums: Argnums = 0) -> Program:
    """The gradient of a scalar program with respect to the chosen parameters.

    The result has the structure of the parameter, or is a tuple of these when ``argnums`` is a sequence. Raises
    TypeError when a parameter is not floating, ValueError when there is none of that number; a result that is not a
    floating scalar is refused when the derivative is built.

    >>> import adze as az, numpy as np
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> az.grad(norm2)(np.array([1.0, 2.0]))
    array([2., 4.])
    """
    f, chosen = as_program(f), _Argnums(f, argnums, "grad")

    def gradient(*args: Any) -> Any:
        return _value_and_gradient(f, chosen, args)[1]

    return Program(gradient, f"grad({f.name})", f.parameters)


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
    f, chosen = as_program(f), _Argnums(f, argnums, "value_and_grad")

    def both(*args: Any) -> Any:
        return _value_and_gradient(f, chosen, args)

    return Program(both, f"value_and_grad({f.name})", f.parameters)


def vjp(f: Program | Callable[..., Any], *primals: Any, argnums: Argnums | None = None) -> Any:
    """Reverse mode: the program of ``(*primals, cotangent)`` giving ``(result, *cotangents)``.

    There is one cotangent for each floating parameter (or each of ``argnums``), None at integer leaves. With primals
    it is JAX's: ``(result, pullback)`` where ``pullback(cotangent)`` gives the tuple of cotangents.
    """
    f = as_program(f)
    chosen = _Argnums(f, _floating(f) if argnums is None else argnums, "vjp")

    def transposed(*args: Any) -> Any:
        result, pull = _reverse(f, chosen, args[:-1])
        return (result, *pull(args[-1]))

    if not primals:
        return Program(transposed, f"vjp({f.name})", [*f.parameters, Parameter("cotangent", None)])
    if any(isinstance(leaf, Expr) for leaf in trees.flatten(primals)[0]):
        return _reverse(f, chosen, primals)
    program = vjp(f, argnums=chosen.numbers)
    return f(*primals), lambda cotangent: program(*primals, cotangent)[1:]


def jvp(f: Program | Callable[..., Any], primals: Any = None, tangents: Any = None) -> Any:
    """Forward mode: the program of ``(*primals, *tangents)`` giving ``(result, tangent)``.

    There is one tangent for each floating parameter. With ``primals`` and ``tangents`` (tuples) the pair itself.

    >>> import adze as az
    >>> @az.program
    ... def cube(x: az.f64) -> az.f64:
    ...     return x ** 3
    >>> value, tangent = az.jvp(cube)(2.0, 1.0)
    >>> float(value), float(tangent)
    (8.0, 12.0)
    """
    f = as_program(f)
    moving = _floating(f)
    names = [f.parameters[k] for k in moving]
    parameters = [*f.parameters, *[Parameter(f"d_{p.name}", p.type, p.static) for p in names]]
    count = len(f.parameters)

    def pushed(*args: Any) -> Any:
        return _forward(f, args[:count], dict(zip(moving, args[count:], strict=True)))

    program = Program(pushed, f"jvp({f.name})", parameters)
    if primals is None:
        return program
    return program(*primals, *tangents)


# How the verbs work: the function becomes a term, the term is differentiated into the builder


class _Argnums:
    """The chosen parameters, checked against the program's annotations at once."""

    def __init__(self, f: Program, argnums: Argnums, verb: str) -> None:
        self.single = isinstance(argnums, int)
        self.numbers = [argnums] if isinstance(argnums, int) else list(argnums)
        count = len(f.parameters)
        for k, number in enumerate(self.numbers):
            if not -count <= number < count:
                raise ValueError(f"{verb}({f.name}): argnums {number}, but {f.name} has {count} parameter(s)")
            self.numbers[k] = number % count
            parameter = f.parameters[number]
            if parameter.static is not None or (parameter.type is not None and not is_float(parameter.type)):
                shown = parameter.static.__name__ if parameter.static else parameter.type
                raise TypeError(
                    f"{verb}({f.name}): parameter {parameter.name!r} (argnums {number}) is {shown};"
                    " derivatives are taken with respect to floating parameters"
                )


def _floating(f: Program) -> list[int]:
    """The parameters that may have a derivative."""
    return [
        k for k, p in enumerate(f.parameters) if p.static is None and (p.type is None or is_float(p.type))
    ]


def _reified(f: Program, args: Sequence[Any]) -> tuple[Block, list[Value], list[Value], trees.Shape, list[Any]]:
    """The simplified term of ``f`` at these arguments, what it captures, its leaves, and the result's structure."""
    builder = current()
    arguments = []
    for parameter, argument in zip(f.parameters, args, strict=True):
        like = element(parameter.type) if parameter.type is not None else None
        arguments.append(argument if parameter.static else trees.tree_map(lambda x, t=like: as_expr(x, t), argument))
    dynamic = [a for a, p in zip(arguments, f.parameters, strict=True) if not p.static]
    leaves, shape = trees.flatten(dynamic)
    values = [leaf.value for leaf in leaves]
    outputs: list[trees.Shape] = []

    def run(*binders: Value) -> Sequence[Value]:
        inner = iter(trees.unflatten(shape, [Expr(binder, builder) for binder in binders]))
        results = f.inline([a if p.static else next(inner) for a, p in zip(arguments, f.parameters, strict=True)])
        result_leaves, output = trees.flatten(results)
        outputs.append(output)
        return [as_expr(leaf).value for leaf in result_leaves]

    names = [value.name for value in values]
    body = builder.body([value.type for value in values], run, names)
    block, captured = to_block(body.binders, body.results, body.statements)
    return simplify(block), captured, values, outputs[0], arguments


def _reverse(f: Program, chosen: _Argnums, args: Sequence[Any]) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """The result of ``f`` and its pullback, emitted into the program that is being built."""
    builder = current()
    block, captured, values, output, arguments = _reified(f, args)
    sweep = Sweep(builder)
    cells: dict[int, list[_Cell | None]] = {}
    entries = [Entry(value) for value in captured]
    position = 0
    for k, (parameter, argument) in enumerate(zip(f.parameters, arguments, strict=True)):
        if parameter.static:
            continue
        own: list[_Cell | None] = []
        for _ in trees.flatten(argument)[0]:
            value = values[position]
            position += 1
            own.append(_Cell(sweep, value) if k in chosen.numbers and is_float(value.type) else None)
            entries.append(Entry(value, own[-1]))
        cells[k] = own
        if k in chosen.numbers and not any(own):
            raise TypeError(at_line(f"{f.name}: parameter {parameter.name!r} has no floating part to differentiate"))
    reverse = Reverse(sweep)
    results, pull = block.interpret(reverse).run(Env(), entries)
    reverse.stop_checking()
    result = trees.unflatten(output, [Expr(value, builder) for value in results])

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        given, shape = trees.flatten(cotangent, none_is_leaf=True)
        if shape != output:
            raise TypeError(at_line(f"{f.name}: the cotangent has another structure than the result"))
        pull(_cotangents(f, given, results))
        return tuple([_collected(arguments[k], cells[k]) for k in chosen.numbers])

    return result, pullback


def _cotangents(f: Program, given: Sequence[Any], results: Sequence[Value]) -> list[Value | None]:
    cotangents: list[Value | None] = []
    for leaf, result in zip(given, results, strict=True):
        if leaf is None or not is_float(result.type):
            cotangents.append(None)
            continue
        x = as_expr(leaf, element(result.type))
        if x.dtype != element(result.type) or x.ndim != rank(result.type):
            raise TypeError(at_line(f"{f.name}: a cotangent of type {x.type} for a result of type {result.type}"))
        cotangents.append(x.value)
    return cotangents


def _collected(argument: Any, cells: Sequence[_Cell | None]) -> Any:
    """The cotangents of one argument, in its structure."""
    builder = current()

    def total(cell: _Cell | None) -> Any:
        if cell is None:
            return None
        value = cell.read()
        return Expr(cell.initial() if value is None else value, builder)

    return trees.unflatten(trees.flatten(argument)[1], [total(cell) for cell in cells])


def _value_and_gradient(f: Program, chosen: _Argnums, args: Sequence[Any]) -> tuple[Any, Any]:
    builder = current()
    builder.origin = user_line()
    result, pull = _reverse(f, chosen, args)
    if not isinstance(result, Expr) or result.ndim or result.dtype.kind != "float":
        shown = result.type if isinstance(result, Expr) else f"a {type(result).__name__}"
        raise TypeError(at_line(f"grad takes a program with one floating scalar as result; {f.name} returns {shown}"))
    gradients = pull(Expr(builder.literal(1.0, result.dtype), builder))
    return result, gradients[0] if chosen.single else gradients


def _forward(f: Program, args: Sequence[Any], tangents: dict[int, Any]) -> tuple[Any, Any]:
    """The result of ``f`` and its tangent, emitted into the program that is being built."""
    builder = current()
    block, captured, values, output, arguments = _reified(f, args)
    duals = [Dual(value) for value in captured]
    position = 0
    for k, (parameter, argument) in enumerate(zip(f.parameters, arguments, strict=True)):
        if parameter.static:
            continue
        leaves, shape = trees.flatten(argument)
        given, given_shape = trees.flatten(tangents[k], none_is_leaf=True) if k in tangents else ([None] * len(leaves), shape)
        if shape != given_shape:
            raise TypeError(at_line(f"{f.name}: the tangent of {parameter.name!r} has another structure"))
        for _, tangent in zip(leaves, given, strict=True):
            value = values[position]
            position += 1
            duals.append(Dual(value, _cotangents(f, [tangent], [value])[0]))
    results = block.interpret(Forward(builder))(Env(), duals)

    def tangent_of(dual: Dual) -> Any:
        if not is_float(dual.primal.type):
            return None
        return Expr(zeros_like(builder, dual.primal) if dual.tangent is None else dual.tangent, builder)

    result = trees.unflatten(output, [Expr(dual.primal, builder) for dual in results])
    return result, trees.unflatten(output, [tangent_of(dual) for dual in results])
