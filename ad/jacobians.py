"""Whole Jacobians and Hessians: one program for all directions.

A column of a Jacobian is forward mode along one axis of a parameter (``directions.py``), a row is the gradient of one
element of the result; a loop over the directions makes all of them, and what does not depend on the direction is
computed once, outside of it (``side_by_side.py`` has few directions, without a loop):

    @az.program
    def f(a: az.Array[az.f64, "m n"], x: az.Array[az.f64, "n"]):       jacobian(f, argnums=1)(a, x):
        return az.tanh(a @ x)                                          for i < m: for j < n: ...

The gradient of an element is derived after the program was simplified for that element alone, so that what other
elements need is not there. Rows of a result of few numbers are written one by one where that costs less. A Hessian is
forward mode over reverse mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from ..core import trees
from ..core.builder import Builder, current
from ..core.dims import Dim
from ..core.environment import Env
from ..core.expr import Expr
from ..core.functions import description
from ..core.graph import Value
from ..core.program import P, Program
from ..core.source import at_line, ending_at_user
from ..core.types import Type, dims, element, i64, is_float
from ..core.verb import Function, Verb, program_of
from ..interpreters.simplify.switches import is_on
from ..interpreters.simplify.unrolling import FEW
from .differentiating import Argnums, Differentiated, Pullback, chosen, is_single, without_aux
from .directions import Directions
from .duals import Dual
from .modes import by_cost, cheaper_way
from .scalar_expansion import generate
from .side_by_side import SideBySide, at_place, directions, is_first_order
from .sums_of_tangents import Tangents, decided

MODES = ("forward", "reverse")

Mode = str | Sequence[str | None] | None  # None: the one that costs less; a sequence: one for each parameter


@ending_at_user
def jacobian(f: Function[P, Any], argnums: Argnums = 0, mode: Mode = None, *, has_aux: bool = False) -> Program[P, Any]:
    """All partial derivatives of a program: for a result of shape r and a parameter of shape p, an array of shape r, p.

    The structure of the result is outside, that of the parameter inside, or a tuple of these when ``argnums`` is a
    sequence. There is None at integer leaves of both; the scalar type is that of the parameter. The mode is
    ``"forward"``, which costs at most a small multiple of f for each number in the parameters, or ``"reverse"``: for
    each number in the result. By default it is the one that costs less, as ``az.cost`` counts: the program is derived
    by both, and where sizes decide, it holds both (``ad/modes.py``). By parameters of up to 32 numbers, which their
    types say, forward mode makes all columns in one pass, where that costs less (``ad/side_by_side.py``). Very long
    programs are derived by the mode that needs fewer directions. With a sequence of ``argnums`` there may be a mode for
    each of them: ``mode=("forward", "reverse")``. A Jacobian that is zero but for a band takes as long
    as its zeros: take ``az.sparse_jacobian``. With ``has_aux`` the program returns a pair, the result and what comes
    with it, and this one the Jacobian of the result and what comes with it. Raises TypeError when a parameter or the
    whole result has no floating part, ValueError for another mode.

    >>> import adze as az, numpy as np
    >>> @az.program
    ... def polar(r: az.f64, phi: az.f64):
    ...     return {"x": r * az.cos(phi), "y": r * az.sin(phi)}
    >>> az.jacobian(polar, argnums=(0, 1))(2.0, 0.0)
    {'x': (np.float64(1.0), np.float64(-0.0)), 'y': (np.float64(0.0), np.float64(2.0))}
    >>> @az.program
    ... def differences(x: az.Array[az.f64, "n"]):
    ...     return x[1:] - x[:-1]
    >>> az.jacobian(differences)(np.ones(3))
    array([[-1.,  1.,  0.],
           [ 0., -1.,  1.]])
    """
    program = program_of("jacobian", f)
    numbers = chosen("jacobian", program, argnums)
    modes = mode if mode is None or isinstance(mode, str) else tuple(mode)
    for one in modes if isinstance(modes, tuple) else (modes,):
        if one is not None and one not in MODES:
            raise ValueError(at_line(f"jacobian({program.name}): the mode is 'forward' or 'reverse', not {one!r}"))
    if isinstance(modes, tuple) and (is_single(argnums) or len(modes) != len(numbers)):
        problem = f"{len(modes)} mode(s) for {len(numbers)} parameter(s): argnums is a sequence with one for each"
        raise ValueError(at_line(f"jacobian({program.name}): {problem}"))
    verb = _Jacobian("jacobian", program, numbers, is_single(argnums), modes, has_aux)
    return verb.program(program.parameters)


@ending_at_user
def hessian(f: Function[P, Any], argnums: Argnums = 0, *, has_aux: bool = False) -> Program[P, Any]:
    """The second derivatives of a scalar program: forward mode over reverse mode.

    For a parameter of shape p the Hessian has the shape p, p. The structure of the parameter is there twice, one in
    the other; with a sequence of ``argnums`` the result is a tuple of tuples, ``H[i][j]`` by parameter i and then j.
    Costs a small multiple of f for each number in the parameters: for the product with one direction take ``az.hvp``.
    Of a program that is not scalar it is the Hessian of each number in the result. ``has_aux`` is as in ``jacobian``,
    which also says what is raised.

    >>> import adze as az, numpy as np
    >>> @az.program
    ... def valley(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x ** 4) + az.sum(x) ** 2
    >>> az.hessian(valley)(np.array([1.0, 2.0]))
    array([[14.,  2.],
           [ 2., 50.]])
    """
    program = program_of("hessian", f)
    numbers, single = chosen("hessian", program, argnums), is_single(argnums)
    parameters = program.parameters
    gradient = _Jacobian("hessian", program, numbers, single, "reverse", has_aux).program(parameters, program.name)
    return _Jacobian("hessian", gradient, numbers, single, "forward", has_aux).program(parameters)


@dataclass(frozen=True)
class _Jacobian(Verb):
    argnums: tuple[int, ...]
    single: bool
    mode: str | tuple[str | None, ...] | None
    has_aux: bool

    def __call__(self, *args: Any) -> Any:
        function = Differentiated.of(self.f, args)
        function.require_moving(self.name, self.argnums, is_float)
        results = function.results()
        output = without_aux(self.name, self.f, function.output) if self.has_aux else function.output
        values = results[: output.leaves]
        if not any(is_float(value.type) for value in values):
            given = description(trees.unflatten(output, [Expr(value, current()) for value in values]))
            raise TypeError(at_line(f"{self.name}: {self.f.name} returns {given}, which has no floating part"))
        rows = self._rows(function, values)
        derivative = trees.unflatten(output, [row and self._structured(function, row) for row in rows])
        if not self.has_aux:
            return derivative
        return derivative, trees.unflatten(function.output, [Expr(value, current()) for value in results])[1]

    def _rows(self, function: Differentiated, values: Sequence[Value]) -> Rows:
        """The Jacobian by the mode that was asked for, of all parameters or of each."""
        if not isinstance(self.mode, tuple):
            return self._by(self.mode, function, self.argnums, values)
        rows: Rows = [{} if is_float(value.type) else None for value in values]
        for number, mode in zip(self.argnums, self.mode, strict=True):
            for row, own in zip(rows, self._by(mode, function, [number], values), strict=True):
                if row is not None and own is not None:
                    row.update(own)
        return rows

    def _by(self, mode: str | None, function: Differentiated, argnums: Sequence[int], values: Sequence[Value]) -> Rows:
        """By a mode, or else by the one that costs less."""
        forward = partial(_forward, function, argnums, values)
        reverse = partial(_reverse, self.name, function, argnums, values)
        if mode is not None:
            return forward() if mode == "forward" else reverse()
        inputs = [value.type for number in argnums for value in function.leaves[number]]
        fewer = cheaper(inputs, [value.type for value in values])
        ways = {"forward": partial(_flat, forward), "reverse": partial(_flat, reverse)}
        return _in_rows(by_cost(current(), function.block, fewer, ways), function, argnums, values)

    def _structured(self, function: Differentiated, row: dict[int, list[Value | None]]) -> Any:
        builder = current()
        parts = [
            function.rebuilt(number, [None if part is None else Expr(part, builder) for part in row[number]])
            for number in self.argnums
        ]
        return parts[0] if self.single else tuple(parts)


# For each leaf of the result: for each chosen parameter the Jacobians by its leaves. None at integer leaves
Rows = list[dict[int, list[Value | None]] | None]


def _flat(derived: Callable[[], Rows]) -> list[Value]:
    parts = [part for row in derived() if row is not None for leaves in row.values() for part in leaves]
    return [part for part in parts if part is not None]


def _in_rows(made: Sequence[Value], function: Differentiated, argnums: Sequence[int], values: Sequence[Value]) -> Rows:
    """The other way round."""
    parts = iter(made)

    def row() -> dict[int, list[Value | None]]:
        return {k: [next(parts) if is_float(leaf.type) else None for leaf in function.leaves[k]] for k in argnums}

    return [row() if is_float(value.type) else None for value in values]


def cheaper(inputs: Sequence[Type], outputs: Sequence[Type]) -> str:
    """The mode that needs fewer directions, where that is known, or that of the lower degree in the sizes."""
    columns, rows = _numbers(inputs), _numbers(outputs)
    if (rows - columns).is_nonnegative():
        return "forward"
    if (columns - rows).is_nonnegative():
        return "reverse"
    return "forward" if _degree(columns) < _degree(rows) else "reverse"


def _numbers(types: Sequence[Type]) -> Dim:
    """How many floating numbers values of these types hold."""
    total = Dim.of(0)
    for type in types:
        if is_float(type):
            product = Dim.of(1)
            for dim in dims(type):
                product *= dim
            total += product
    return total


def _degree(dim: Dim) -> int:
    return max([len(monomial) for monomial, _ in dim.terms], default=0)


def _forward(function: Differentiated, argnums: Sequence[int], values: Sequence[Value]) -> Rows:
    """Column by column, or, if they are few and that costs less, all side by side."""
    moving = [(number, k, leaf) for number in argnums for k, leaf in enumerate(function.leaves[number])]
    moving = [each for each in moving if is_float(each[2].type)]
    few = directions([leaf.type for _, _, leaf in moving])
    columns = partial(_by_columns, function, argnums, values)
    if few is None or not is_on("side_by_side") or not is_first_order(function.block):
        return columns()
    beside = partial(_side_by_side, function, argnums, values, [(*moving[k][:2], place) for k, place in few])
    made = cheaper_way(current(), function.block, partial(_flat, columns), partial(_flat, beside))
    return _in_rows(made, function, argnums, values)


def _side_by_side(
    function: Differentiated,
    argnums: Sequence[int],
    values: Sequence[Value],
    along: Sequence[tuple[int, int, tuple[int, ...]]],
) -> Rows:
    """All columns in one pass: the tangents of each value along the places of the leaves of parameters."""
    b = current()
    forward = SideBySide(b, len(along))
    with decided(b):
        duals = [Dual(value) for value in function.captured]
        for number, parts in function.leaves.items():
            for k, leaf in enumerate(parts):
                tangents = [
                    forward.along(leaf, [b.literal(at, i64) for at in place]) if (n, j) == (number, k) else None
                    for n, j, place in along
                ]
                duals.append(forward.many(leaf, tangents))
        found = function.block.interpret(forward).run(Env(), duals)
        results = [dual for dual in found[: len(values)] if is_float(dual.primal.type)]
        leaves = [function.leaves[number][k] for number, k in dict.fromkeys([each[:2] for each in along])]
        made = [forward.columns(dual, leaves) for dual in results]
    return _in_rows([column for columns in made for column in columns], function, argnums, values)


def _by_columns(function: Differentiated, argnums: Sequence[int], values: Sequence[Value]) -> Rows:
    """Column by column."""
    b = current()
    forward = Directions(b)
    block = function.block.interpret(forward)
    rows: Rows = [{number: [] for number in argnums} if is_float(value.type) else None for value in values]

    def columns(moving: int, position: int) -> list[Value]:
        """The tangents of all floating results, by the places in a leaf of a parameter."""

        def column(*places: Value) -> list[Value]:
            duals = [Dual(value) for value in function.captured]
            for number, leaves in function.leaves.items():
                here = [number == moving and k == position for k in range(len(leaves))]
                duals += [
                    Dual(x, forward.along(x, places) if moves else None) for x, moves in zip(leaves, here, strict=True)
                ]
            found = block.run(Env(), duals)
            return [forward.tangent(dual) for dual in found[: len(values)] if is_float(dual.primal.type)]

        return list(generate(b, b.sizes(function.leaves[moving][position]), column))

    for number in argnums:
        for k, leaf in enumerate(function.leaves[number]):
            made = iter(columns(number, k) if is_float(leaf.type) else [])
            for value, row in zip(values, rows, strict=True):
                if row is not None:
                    row[number].append(_turned(forward, next(made), leaf, value) if is_float(leaf.type) else None)
    return rows


def _turned(forward: Directions, columns: Value, leaf: Value, value: Value) -> Value:
    """Columns with the axes of the result in front of those of the parameter, in the parameter's scalar type."""
    b, count = forward.builder, len(dims(value.type))

    def at(*places: Value) -> Value:
        found = forward.element_of(columns, [*places[count:], *places[:count]])
        return Expr(found, b).astype(element(leaf.type)).value

    return b.array([*b.sizes(value), *b.sizes(leaf)], at)


def _reverse(name: str, function: Differentiated, argnums: Sequence[int], values: Sequence[Value]) -> Rows:
    """Row by row, or, if those of a result are few and that costs less, without a loop around them."""
    rows = partial(_by_rows, name, function, argnums, values)
    if not is_on("side_by_side") or not any(map(_has_few, values)):
        return rows(False)
    made = cheaper_way(
        current(), function.block, partial(_flat, partial(rows, False)), partial(_flat, partial(rows, True))
    )
    return _in_rows(made, function, argnums, values)


def _has_few(value: Value) -> bool:
    """Whether it is an array of a few floating numbers, so that a loop over these would be unrolled."""
    along = directions([value.type])
    return is_float(value.type) and along is not None and 1 < len(along) <= FEW


def _by_rows(
    name: str, function: Differentiated, argnums: Sequence[int], values: Sequence[Value], beside: bool
) -> Rows:
    """The gradients of all numbers in the results, those of a few without a loop around them if asked for."""
    b, made = current(), list[Value]()
    for k, value in enumerate(values):
        if not is_float(value.type):
            continue

        def row(*places: Value, k: int = k, value: Value = value) -> list[Value]:
            pullback = Pullback(name, function.element(k, places), argnums)
            gradients = pullback(Expr(b.literal(1, element(value.type)), b))
            return [leaf.value for leaf in trees.flatten(gradients)[0]]

        made += _stacked(b, value, row) if beside and _has_few(value) else generate(b, b.sizes(value), row)
    return _in_rows(made, function, argnums, values)


def _stacked(b: Builder, value: Value, row: Callable[..., Sequence[Value]]) -> list[Value]:
    """The rows of a few numbers: what two of them share is one node of the graph.

    Each number is computed where it is put, in one loop over the rows and the places of a parameter.
    """
    shape = [dim.constant or 0 for dim in dims(value.type)]
    rows = {place: row(*[b.literal(at, i64) for at in place]) for place in product(*map(range, shape))}

    def whole(own: Mapping[tuple[int, ...], Value]) -> Value:
        def at(*indices: Value) -> Value:
            along = indices[len(shape) :]
            return at_place(b, shape, indices, lambda *place: _number(b, own[place], along))

        return b.array([*b.sizes(value), *b.sizes(next(iter(own.values())))], at)

    return [whole(dict(zip(rows, parts, strict=True))) for parts in zip(*rows.values(), strict=True)]


def _number(b: Builder, array: Value, places: Sequence[Value]) -> Value:
    """A number of an array; of one that loops make, what these compute there."""
    found = Tangents(b).element(array, len(places))
    if found is None:
        return b.index(array, places)
    number, loops = found
    return b.substitute([number], {binder: at for (binder, _), at in zip(loops, places, strict=True)})[0]
