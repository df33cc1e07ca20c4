"""What the verbs share: which parameters are chosen, a program as a term, tangents and cotangents that fit.

A verb checks what it can at once and gives a program that holds (verb, options, f); the derivative is built with that
program's term. Then f at its arguments becomes a term, which is simplified (:class:`Differentiated`), and its meaning
in ``Forward`` or ``Reverse`` is emitted. A :class:`Pullback` is the reverse mode of such a term: its forward sweep is
emitted once, its return sweep once for each cotangent, wherever that is known:

    result, pullback = az.vjp(f, x)
    az.map(pullback, cotangents)          # one forward sweep, outside of the map
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from ..core import trees
from ..core.annotations import Parameter
from ..core.arguments import array_of_type
from ..core.builder import current
from ..core.combinators.shapes import array
from ..core.environment import Env
from ..core.expr import Expr, as_expr, same_size
from ..core.functions import as_typed, description
from ..core.graph import Value
from ..core.placement import to_block
from ..core.program import Program
from ..core.source import at_line
from ..core.terms import Block
from ..core.types import Type, element, holds_floating, is_data, is_float, rank
from ..interpreters.embed import Embed
from ..interpreters.simplify import simplify
from .cells import Cell, Entry, Sweep
from .interchange import interchanged
from .reverse import Reverse
from .taken_apart import TakenApart

if TYPE_CHECKING:
    Argnums = SupportsIndex | str | Sequence[SupportsIndex | str]
else:  # the verbs check these themselves, and say more than their types do
    Argnums = Any

# What is differentiated, and by what


def is_single(argnums: Any) -> bool:
    """Whether ``argnums`` names one parameter by itself, and not a sequence of them."""
    return not isinstance(argnums, Sequence) or isinstance(argnums, str)


def may_be_floating(parameter: Parameter) -> bool:
    """Whether some argument of a parameter has floating leaves, as far as its annotation says."""
    if parameter.static is not None:
        return False
    return parameter.declared is None or any(is_float(type) for type in parameter.declared.types)


def may_hold_floating(parameter: Parameter) -> bool:
    """Whether some argument of a parameter has floating parts, as far as its annotation says, inside of data too."""
    if parameter.static is not None:
        return False
    return parameter.declared is None or any(map(holds_floating, parameter.declared.types))


def chosen(
    verb: str, f: Program, argnums: Any, moves: Callable[[Parameter], bool] = may_be_floating
) -> tuple[int, ...]:
    """The numbers of the chosen parameters, from the front, checked against the program's annotations."""
    numbers: list[int] = []
    for given in [argnums] if is_single(argnums) else argnums:
        number = _number(verb, f, given, moves)
        if number in numbers:
            name = f.parameters[number].name
            raise ValueError(at_line(f"{verb}({f.name}): argnums {argnums} names the parameter {name!r} twice"))
        numbers.append(number)
    return tuple(numbers)


def _number(verb: str, f: Program, given: Any, moves: Callable[[Parameter], bool]) -> int:
    count, names = len(f.parameters), [parameter.name for parameter in f.parameters]
    try:
        if isinstance(given, bool):
            raise TypeError
        number = names.index(given) if given in names else operator.index(given)
    except TypeError:
        message = f"{verb}({f.name}): argnums is the number or name of a parameter, or a sequence of these"
        raise TypeError(at_line(f"{message}, not {description(given)}; {f.name} has {', '.join(names)}")) from None
    if not -count <= number < count:
        parameters = "1 parameter" if count == 1 else f"{count} parameters"
        raise ValueError(at_line(f"{verb}({f.name}): argnums {number}, but {f.name} has {parameters}"))
    parameter = f.parameters[number]
    if not moves(parameter):
        described = f"a static {parameter.static.__name__}" if parameter.static else f"of type {parameter.declared}"
        message = f"{verb}({f.name}): parameter {parameter.name!r} (argnums {number}) is {described}"
        data = "; az.grad, az.vjp and az.jvp take data, too" if may_hold_floating(parameter) else ""
        raise TypeError(at_line(f"{message}; derivatives are taken with respect to floating parameters{data}"))
    return number % count


# A program as a term


@dataclass(frozen=True)
class Differentiated:
    """A program at its arguments as a term: what is differentiated."""

    program: Program
    block: Block  # simplified; its binders are what it captures, then the leaves of its arguments
    captured: Sequence[Value]
    leaves: dict[int, list[Value]]  # by number of the parameter; static ones have none
    shapes: dict[int, trees.Shape]
    output: trees.Shape

    @staticmethod
    def of(f: Program, args: Sequence[Any]) -> Differentiated:
        builder = current()
        arguments, leaves, shapes = list(args), {}, {}
        for number, (parameter, argument) in enumerate(zip(f.parameters, args, strict=True)):
            if parameter.static:
                continue
            like = element(parameter.type) if parameter.type is not None and is_data(parameter.type) else None
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
        block, captured = _term(values, run)
        return Differentiated(f, block, captured, leaves, shapes, outputs[0])

    @property
    def arguments(self) -> list[Value]:
        """What the term's binders stand for."""
        return [*self.captured, *[value for values in self.leaves.values() for value in values]]

    def results(self) -> list[Value]:
        """The results of the program, emitted here with its requirements."""
        return self.block.interpret(Embed(current()))(Env(), self.arguments)

    def element(self, leaf: int, indices: Sequence[Value]) -> Differentiated:
        """The function of one element of a result, without the requirements and probes of the whole."""
        builder = current()
        embed = Embed(builder)
        embed.checks = False
        inner = self.block.interpret(embed)

        def run(*binders: Value) -> Sequence[Value]:
            return [builder.index(inner(Env(), [*self.captured, *binders])[leaf], indices)]

        block, captured = _term(self.arguments[len(self.captured) :], run)
        return Differentiated(self.program, block, captured, self.leaves, self.shapes, trees.LEAF)

    def moving(self, moves: Callable[[Type], bool] = holds_floating) -> list[int]:
        """The parameters of which some leaf may move, as its type says."""
        return [number for number, values in self.leaves.items() if any(moves(value.type) for value in values)]

    def require_moving(self, name: str, argnums: Sequence[int], moves: Callable[[Type], bool] = holds_floating) -> None:
        """TypeError when no leaf of a parameter may move; ``name`` is the program's that a verb has made."""
        for number in argnums:
            if number not in self.moving(moves):
                parameter = self.program.parameters[number].name
                problem = "has no floating part to differentiate"
                inside = [value.type for value in self.leaves.get(number, ()) if holds_floating(value.type)]
                if inside:
                    problem = f"is {inside[0]}, and the shape of a Jacobian by such a value would depend on the value"
                    problem += ": az.grad, az.vjp and az.jvp differentiate by it"
                raise TypeError(at_line(f"{name}: parameter {parameter!r} {problem}"))

    def rebuilt(self, number: int, parts: Sequence[Any]) -> Any:
        """What belongs to the leaves of a parameter, in its structure."""
        return trees.unflatten(self.shapes[number], parts)


def _term(values: Sequence[Value], run: Callable[..., Sequence[Value]]) -> tuple[Block, list[Value]]:
    """The simplified term of a function at these values, and what it captures."""
    body = current().body([value.type for value in values], run, [value.name for value in values])
    block, captured = to_block(body.binders, body.results, body.statements, functions=True)
    simplified = simplify(block, unswitch=False)
    inside = interchanged(simplified)
    return simplified if inside is simplified else simplify(inside, unswitch=False), captured


# Reverse mode of a term


class Pullback:
    """The result of a function, and how a cotangent of it becomes cotangents of the arguments.

    May be called any number of times, in the scope that it is made in or deeper ones. With ``has_aux`` the function
    returns a pair, whose second part, ``aux``, has no cotangent.
    """

    def __init__(
        self, name: str, function: Differentiated, argnums: Sequence[int] | None, has_aux: bool = False
    ) -> None:
        self.name, self.function = name, function
        self.argnums = function.moving() if argnums is None else argnums
        function.require_moving(name, self.argnums)
        builder = current()
        self.sweep = Sweep(builder)
        values = [*function.captured, *[value for values in function.leaves.values() for value in values]]
        numbers = [None] * len(function.captured) + [n for n, values in function.leaves.items() for _ in values]
        moves = [n in self.argnums and holds_floating(x.type) for n, x in zip(numbers, values, strict=True)]
        self.form = TakenApart(builder, function.block, moves)
        self.entries: list[list[Entry]] = []  # of the parts of each of these
        for k, (value, moving) in enumerate(zip(values, moves, strict=True)):
            parts = [(part, moving and holds_floating(part.type)) for part in self.form.parts(k, value)]
            self.entries.append([Entry(x, Cell(self.sweep, x)) if m else Entry(x) for x, m in parts])
        self.numbers = numbers
        reverse = Reverse(self.sweep)
        found, self.pull = reverse.differentiated(self.form.block, [entry for own in self.entries for entry in own])
        reverse.checks = False
        self.parts = self.form.split(found)  # of each result
        self.values = [self.form.result(k, parts) for k, parts in enumerate(self.parts)]
        result: Any = trees.unflatten(function.output, [Expr(value, builder) for value in self.values])
        self.output = without_aux(name, function.program, function.output) if has_aux else function.output
        self.result: Any = result[0] if has_aux else result
        self.aux: Any = result[1] if has_aux else None

    def __call__(self, cotangent: Any) -> tuple[Any, ...]:
        moving = self.values[: self.output.leaves]
        given = fitting(f"{self.name}: the cotangent", cotangent, self.output, moving)
        self.sweep.restart()
        rest = [None] * (len(self.values) - len(moving))
        pairs = zip(self.parts, [*given, *rest], strict=True)
        arrived = [self.form.cotangents(k, parts, each) for k, (parts, each) in enumerate(pairs)]
        self.pull([part for parts in arrived for part in parts])
        return tuple([self._collected(number) for number in self.argnums])

    def _collected(self, number: int) -> Any:
        builder = current()
        totals: list[Expr | None] = []
        for k, (owner, entries) in enumerate(zip(self.numbers, self.entries, strict=True)):
            if owner == number:
                cotangents = [None if entry.cell is None else entry.cell.total_or_zero() for entry in entries]
                values = [entry.value for entry in entries if entry.value is not None]
                moves = any(cotangent is not None for cotangent in cotangents)
                totals.append(Expr(self.form.filled(k, values, cotangents), builder) if moves else None)
        return self.function.rebuilt(number, totals)


def without_aux(name: str, f: Program, output: trees.Shape) -> trees.Shape:
    """The structure of what is differentiated of a pair, the result and what comes with it; TypeError if it is none."""
    if output.container is None or not issubclass(output.container, tuple) or len(output.inner) != 2:
        given = "one value" if output == trees.LEAF else output
        message = f"{name}: with has_aux=True {f.name} returns a pair, the result and what comes with it, not {given}"
        raise TypeError(at_line(message))
    return output.inner[0]


# Tangents and cotangents


def fitting(what: str, given: Any, shape: trees.Shape, values: Sequence[Value]) -> list[Value | None]:
    """A tangent or cotangent of these values: one value a leaf, of exactly the leaf's type.

    There is None where a leaf holds nothing floating, and where None is given. Raises TypeError for another structure,
    type or rank, and for sizes that differ; sizes that may be equal are required to be so in the run.
    """
    try:
        leaves = trees.matched(shape, given)
    except TypeError as error:
        path, problem = error.args
        message = f"{what} has another structure than what it belongs to: {path or 'that'} {problem}"
        raise TypeError(at_line(message)) from None
    made: list[Value | None] = []
    for leaf, value, path in zip(leaves, values, trees.paths(shape), strict=True):
        where = f"{what} at {path}" if path else what
        made.append(None if leaf is None or not holds_floating(value.type) else _of_type(where, leaf, value))
    return made


def _of_type(what: str, leaf: Any, value: Value) -> Value:
    builder, type = current(), value.type
    if not is_data(type):
        return as_typed(leaf, type, what)
    if isinstance(leaf, tuple | list | np.ndarray):
        expressions = any(isinstance(part, Expr) for part in trees.flatten(leaf)[0])
        leaf = array(leaf) if expressions else array_of_type(leaf, type, what)
    try:
        x = as_expr(leaf, element(type))
    except (TypeError, ValueError):
        message = f"{what} is {description(leaf)}, but belongs to a value of type {type}"
        raise TypeError(at_line(message)) from None
    if x.dtype != element(type) or x.ndim != rank(type):
        raise TypeError(at_line(f"{what} is {x.type}, but belongs to a value of type {type}"))
    if x.type == type:
        return x.value
    for axis in range(rank(type)):
        same_size(value, axis, x.value, axis, what)
    return builder.array(builder.sizes(value), lambda *indices: builder.index(x.value, indices))
