"""Sparse Jacobians and Hessians: few directional derivatives, from which all entries are read.

Columns of a Jacobian that have no row in common can share one direction: forward mode along the sum of such columns
gives each of their entries by itself. The same holds for rows and reverse mode. So the pattern is found (once for the
sizes and integers of a call, ``interpreters/sparsity/``), columns or rows are coloured (``colouring.py``), and one
program computes the derivatives along all colours: a loop over the directions, with the primal outside of it.

    1 1 . . .        colours of the columns: 0 1 2 0 1
    1 1 1 . .        derivative along 0: columns 0 and 3, which share no row
    . 1 1 1 .
    . . 1 1 1        3 directions, whatever the size
    . . . 1 1

A Hessian is symmetric: it is enough that one of the two entries that mirror each other can be read, and so an
arrowhead needs two directions, however many rows it has.

(Curtis, Powell and Reid 1974; Coleman and Moré 1984; Gebremedhin, Manne and Pothen, *What color is your Jacobian?*,
2005.)
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
import scipy

from ..core import trees
from ..core.annotations import Parameter, fresh
from ..core.builder import current
from ..core.environment import Env
from ..core.expr import Expr
from ..core.functions import description
from ..core.graph import Value
from ..core.presented import SignatureOf
from ..core.program import Instance, P, Program
from ..core.source import at_line
from ..core.types import dims, element, is_float
from ..core.verb import Function, Verb, program_of
from ..interpreters.evaluate import evaluate_block
from ..interpreters.simplify import simplify
from ..interpreters.sparsity import dependence
from .colouring import column_colouring, readable, star_colouring
from .differentiating import Argnums, Differentiated, Pullback, chosen
from .directions import Directions
from .duals import Dual
from .jacobians import MODES
from .scalar_expansion import generate
from .verbs import grad

Array = np.ndarray[Any, Any]
Run = Callable[[Program], Callable[..., Any]]

# Patterns are kept for so many choices of sizes and integers.
KEPT = 8


def sparse_jacobian(
    f: Function[P, Any],
    argnums: Argnums = 0,
    pattern: Any = None,
    mode: str | None = None,
    run: Run | None = None,
) -> SparseJacobian[P]:
    """The Jacobian of a program as a ``scipy.sparse.csr_array``: a function of the program's arguments.

    Rows are the floating numbers of the result, one leaf after the other and each in row-major order; columns are those
    of the chosen parameters, in the order of ``argnums``. Indices are sorted, and every place of the pattern is stored,
    so that the structure is the same in each call. The pattern is found at the first call, and again when sizes or
    integer arguments change; or it is given: what ``csr_array`` takes, or a function of the arguments that gives such.
    A pattern that misses an entry makes other entries wrong (see :meth:`SparseJacobian.verify`).

    Columns share directions of ``mode="forward"``, rows of ``mode="reverse"``; by default it is what needs fewer.
    ``run`` makes a function of the program that computes the derivatives: ``az.evaluate``, or
    ``lambda p: az.compile(p, threads=1)``; by default it is compiled.

    Raises TypeError when a parameter or the whole result has no floating part, ValueError for a pattern of another
    shape and for another mode.

    >>> import adze as az, numpy as np
    >>> @az.program
    ... def differences(x: az.Array[az.f64, "n"]):
    ...     return x[1:] ** 2 - x[:-1]
    >>> jacobian = az.sparse_jacobian(differences)
    >>> jacobian(np.array([1.0, 2.0, 3.0])).toarray()
    array([[-1.,  4.,  0.],
           [ 0., -1.,  6.]])
    >>> jacobian.colors, jacobian.mode
    (2, 'forward')
    """
    program = program_of("sparse_jacobian", f)
    if mode is not None and mode not in MODES:
        raise ValueError(at_line(f"sparse_jacobian({program.name}): the mode is 'forward' or 'reverse', not {mode!r}"))
    return SparseJacobian("sparse_jacobian", program, chosen("sparse_jacobian", program, argnums), pattern, mode, run)


def sparse_hessian(
    f: Function[P, Any], argnums: Argnums = 0, pattern: Any = None, run: Run | None = None
) -> SparseJacobian[P]:
    """The second derivatives of a scalar program as a symmetric ``scipy.sparse.csr_array``.

    Rows and columns are the floating numbers of the chosen parameters. It is the sparse Jacobian of the gradient, by
    forward mode over reverse mode, and takes fewer directions than that: of two entries that mirror each other one is
    computed where the other cannot be told apart. A pattern that is given is made symmetric. The arguments and errors
    are those of :func:`sparse_jacobian`, and those of ``az.grad``.

    >>> import adze as az, numpy as np
    >>> @az.program
    ... def chain(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum((x[1:] - x[:-1]) ** 2)
    >>> az.sparse_hessian(chain)(np.zeros(3)).toarray()
    array([[ 2., -2.,  0.],
           [-2.,  4., -2.],
           [ 0., -2.,  2.]])
    """
    program = program_of("sparse_hessian", f)
    numbers = chosen("sparse_hessian", program, argnums)
    return SparseJacobian("sparse_hessian", grad(program, numbers), numbers, pattern, "forward", run, symmetric=True)


@dataclass(frozen=True)
class _Plan:
    """What is known for some sizes and integers: the pattern, and the colours of its columns or rows."""

    pattern: scipy.sparse.csr_array
    mode: str
    colors: int
    colours: list[Array]  # for each number of each leaf of the parameters, or of the result
    places: Array  # where each entry of the pattern is in the derivatives along all colours


class SparseJacobian(Generic[P]):
    """A sparse Jacobian, to be called like its program. Made by :func:`sparse_jacobian` and :func:`sparse_hessian`."""

    __signature__ = SignatureOf(lambda jacobian: inspect.signature(jacobian.f))

    def __init__(
        self,
        verb: str,
        f: Program[P, Any],
        argnums: tuple[int, ...],
        pattern: Any,
        mode: str | None,
        run: Run | None,
        symmetric: bool = False,
    ) -> None:
        self.f, self.argnums, self.name = f, argnums, f"{verb}({f.name})"
        self._verb = verb
        self._given, self._mode, self._run, self._symmetric = pattern, mode, run or _compiled, symmetric
        self._compressed: dict[str, Callable[..., Any]] = {}
        self._kept: list[tuple[_Key, _Plan]] = []
        self._last: _Plan | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> scipy.sparse.csr_array:
        """The Jacobian at these arguments. Raises what the program itself raises."""
        call = _Call.of(self.f, self.argnums, args, kwargs, self.name)
        plan = self._last = self._plan(call)
        pattern = plan.pattern
        derivatives = self._derivatives(call, plan.mode, plan.colours, plan.colors)
        numbers = pattern.shape[0 if plan.mode == "forward" else 1]
        if derivatives.shape[1] != numbers:
            message = f"the pattern has {numbers} rows, but the result {derivatives.shape[1]} numbers"
            raise ValueError(at_line(f"{self.name}: {message}"))
        data = derivatives.ravel()[plan.places]
        return scipy.sparse.csr_array((data, pattern.indices.copy(), pattern.indptr.copy()), shape=pattern.shape)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def pattern(self) -> scipy.sparse.csr_array:
        """The places that the last call has stored, or found, as a boolean matrix."""
        return self._of_last_call().pattern

    @property
    def colors(self) -> int:
        """The number of directions of the last call."""
        return self._of_last_call().colors

    @property
    def mode(self) -> str:
        """The mode of the last call: ``"forward"`` or ``"reverse"``."""
        return self._of_last_call().mode

    def find(self, *args: P.args, **kwargs: P.kwargs) -> scipy.sparse.csr_array:
        """The pattern for the sizes and integers of these arguments, without the derivatives."""
        plan = self._last = self._plan(_Call.of(self.f, self.argnums, args, kwargs, self.name))
        return plan.pattern

    def verify(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Compare the Jacobian with derivatives along random sums of columns (or rows), which need no pattern.

        Raises ValueError when they differ by more than the square root of the precision: the pattern misses entries,
        or the derivatives are not finite there. A pattern that misses one entry is found in 15 of 16 cases at least.
        """
        jacobian = self(*args, **kwargs)
        call, plan = _Call.of(self.f, self.argnums, args, kwargs, self.name), self._of_last_call()
        table = jacobian if plan.mode == "forward" else jacobian.T.tocsr()
        colours = np.random.default_rng(len(jacobian.data)).integers(0, 16, table.shape[1])
        seeds = scipy.sparse.csr_array(
            (np.ones(len(colours)), colours, np.arange(len(colours) + 1)), shape=(len(colours), 16)
        )
        shaped = _shaped(colours, [part.shape for part in plan.colours])
        wanted = self._derivatives(call, plan.mode, shaped, 16).T
        scale = abs(table) @ seeds.toarray() + abs(wanted)
        differs = ~(abs(table @ seeds.toarray() - wanted) <= np.sqrt(np.finfo(jacobian.dtype).eps) * scale).all(axis=1)
        if differs.any():
            what = "row" if plan.mode == "forward" else "column"
            raise ValueError(at_line(f"{self.name}: the pattern misses entries of {what} {int(np.argmax(differs))}"))

    # The pattern

    def _of_last_call(self) -> _Plan:
        if self._last is None:
            raise AttributeError(f"{self.name} has not been called yet: its pattern is that of the last call")
        return self._last

    def _plan(self, call: _Call) -> _Plan:
        for known, plan in self._kept:
            if known.is_of(call):
                return plan
        shapes: Sequence[tuple[int, ...]] | None = None
        if self._given is None:
            found = dependence(simplify(call.instance.term), call.leaves, call.sizes, call.chosen)
            pattern, shapes, lasting = found.pattern, found.shapes, found.holds_everywhere
        else:
            pattern, shapes, lasting = self._read(call), call.result_shapes(), True
        if self._symmetric:
            pattern = scipy.sparse.csr_array(pattern + pattern.T)
        pattern.sort_indices()
        parameters = [np.shape(call.leaves[k]) for k in call.chosen]
        plan = _symmetric(pattern, parameters) if self._symmetric else _planned(pattern, self._mode, parameters, shapes)
        if lasting:
            self._kept = [(_Key.of(call), plan), *self._kept[: KEPT - 1]]
        return plan

    def _read(self, call: _Call) -> scipy.sparse.csr_array:
        """The pattern that is given, as a boolean matrix without duplicates."""
        given = self._given(*call.arguments) if callable(self._given) else self._given
        try:
            entries = scipy.sparse.coo_array(given)
        except (TypeError, ValueError):
            raise TypeError(
                at_line(f"{self.name}: the pattern is a matrix that scipy.sparse reads, not {description(given)}")
            ) from None
        columns = sum([np.size(call.leaves[k]) for k in call.chosen])
        rows = sum([math.prod(shape) for shape in call.result_shapes()])
        if entries.shape != (rows, columns):
            raise ValueError(at_line(f"{self.name}: the pattern has the shape {entries.shape}, not {(rows, columns)}"))
        ones = np.ones(entries.nnz, np.bool_)
        return scipy.sparse.csr_array(
            (ones, (entries.row.astype(np.int32), entries.col.astype(np.int32))), shape=entries.shape
        )

    # The derivatives

    def _derivatives(self, call: _Call, mode: str, colours: Sequence[Array], colors: int) -> Array:
        """The derivatives along all colours: a row each."""
        if mode not in self._compressed:
            self._compressed[mode] = self._run(_Compressed(self._verb, self.f, self.argnums, mode).made())
        parts = self._compressed[mode](*call.arguments, tuple(colours), np.arange(colors))
        return np.concatenate([np.reshape(part, (colors, math.prod(np.shape(part)[1:]))) for part in parts], axis=1)


def _compiled(program: Program) -> Callable[..., Any]:
    """Programs that are called are compiled."""
    return program


def _planned(
    pattern: scipy.sparse.csr_array,
    mode: str | None,
    parameters: Sequence[tuple[int, ...]],
    results: Sequence[tuple[int, ...]],
) -> _Plan:
    """Colour columns or rows, whichever needs fewer colours; not both, if one has as few as the other can have."""
    entries = pattern.tocoo()
    least = {"forward": _most(entries.row, pattern.shape[0]), "reverse": _most(entries.col, pattern.shape[1])}
    best: tuple[int, str, Array] | None = None
    for each in sorted(least, key=lambda each: least[each]) if mode is None else [mode]:
        if best is None or least[each] < best[0]:
            colours = column_colouring(pattern if each == "forward" else scipy.sparse.csr_array(pattern.T))
            count = int(colours.max(initial=-1)) + 1 if pattern.nnz else 0
            if best is None or count < best[0]:
                best = count, each, colours
    assert best is not None
    count, mode, colours = best
    moving, read = (entries.col, entries.row) if mode == "forward" else (entries.row, entries.col)
    width = pattern.shape[0 if mode == "forward" else 1]
    shapes = parameters if mode == "forward" else results
    return _Plan(pattern, mode, count, _shaped(colours, shapes), colours[moving] * width + read)


def _symmetric(pattern: scipy.sparse.csr_array, parameters: Sequence[tuple[int, ...]]) -> _Plan:
    """Colour the columns of a symmetric pattern; of an entry and its mirror, read one that is there by itself."""
    entries = pattern.tocoo()
    colours = min(column_colouring(pattern), star_colouring(pattern), key=lambda colours: colours.max(initial=-1))
    count = int(colours.max(initial=-1)) + 1 if pattern.nnz else 0
    alone = readable(pattern, colours)
    moving, read = np.where(alone, (entries.col, entries.row), (entries.row, entries.col))
    return _Plan(pattern, "forward", count, _shaped(colours, parameters), colours[moving] * pattern.shape[0] + read)


def _shaped(colours: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """The colours of all numbers, as arrays of these shapes."""
    parts = np.split(colours, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _most(numbers: Array, count: int) -> int:
    """How often the number among 0..count occurs that occurs most often."""
    return int(np.bincount(numbers, minlength=count).max(initial=0))


# A call


@dataclass(frozen=True)
class _Call:
    """The arguments of one call."""

    instance: Instance
    arguments: list[Any]
    leaves: list[Any]
    sizes: dict[str, int]
    chosen: list[int]  # the floating leaves of the chosen parameters

    @staticmethod
    def of(f: Program, argnums: Sequence[int], args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> _Call:
        arguments = f.bind(args, kwargs)
        instance = f.instance_for(arguments)
        leaves, sizes = instance.signature.convert(instance.leaves(arguments))
        places, taken = {}, 0
        for parameter, shape in zip(f.dynamic, instance.inputs.inner, strict=True):
            places[parameter.name] = range(taken, taken + shape.leaves)
            taken += shape.leaves
        positions = []
        for number in argnums:
            parameter = f.parameters[number]
            floating = [k for k in places[parameter.name] if is_float(instance.types[k])]
            if not floating:
                raise TypeError(at_line(f"{name}: parameter {parameter.name!r} has no floating part to differentiate"))
            positions += floating
        if not any(is_float(type) for type in instance.term.types):
            given = ", ".join(map(str, instance.term.types))
            raise TypeError(at_line(f"{name}: {f.name} returns {given}, which has no floating part"))
        return _Call(instance, arguments, leaves, sizes, positions)

    def result_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the floating results."""
        types = [type for type in self.instance.term.types if is_float(type)]
        if all(dim.is_static() for type in types for dim in dims(type)):
            return [tuple([dim.evaluate(self.sizes) for dim in dims(type)]) for type in types]
        results = evaluate_block(self.instance.term, self.leaves, self.sizes)
        return [np.shape(x) for x, type in zip(results, self.instance.term.types, strict=True) if is_float(type)]


@dataclass(frozen=True)
class _Key:
    """What a pattern depends on: the program's version, the sizes, and all that is not floating."""

    instance: Instance
    parts: list[Any]  # of a floating leaf the shape, of others a copy

    @staticmethod
    def of(call: _Call) -> _Key:
        types = zip(call.leaves, call.instance.types, strict=True)
        return _Key(call.instance, [np.shape(leaf) if is_float(type) else np.array(leaf) for leaf, type in types])

    def is_of(self, call: _Call) -> bool:
        return self.instance is call.instance and all(
            np.shape(leaf) == part if is_float(type) else np.array_equal(leaf, part)
            for leaf, part, type in zip(call.leaves, self.parts, call.instance.types, strict=True)
        )


# The program of all directions


@dataclass(frozen=True)
class _Compressed(Verb):
    """The program of ``(*primals, colours, directions)``: derivatives along the sums of what has the same colour."""

    argnums: tuple[int, ...]
    mode: str

    def made(self) -> Program:
        names = [parameter.name for parameter in self.f.parameters]
        extra = [Parameter(fresh(name, names), None) for name in ("colours", "directions")]
        return self.program([*self.f.parameters, *extra])

    def __call__(self, *args: Any) -> tuple[Expr, ...]:
        *primals, colours, directions = args
        function, b = Differentiated.of(self.f, primals), current()
        count = b.size(directions.value, 0)
        seeds = iter([colour.value for colour in trees.flatten(colours)[0]])
        if self.mode == "forward":
            results = generate(b, [count], self._forward(function, seeds))
        else:
            results = generate(b, [count], self._reverse(function, seeds))
        return tuple([Expr(result, b) for result in results])

    def _forward(self, function: Differentiated, colours: Iterator[Value]) -> Callable[[Value], list[Value]]:
        """The tangents of the floating results in a direction."""
        b = current()
        function.results()  # with the requirements
        forward = Directions(b)
        block = function.block.interpret(forward)
        colour = {
            value: next(colours) for number in self.argnums for value in function.leaves[number] if is_float(value.type)
        }

        def tangents(direction: Value) -> list[Value]:
            duals = [Dual(value) for value in function.captured]
            for values in function.leaves.values():
                duals += [
                    Dual(value, _seed(value, colour[value], direction) if value in colour else None) for value in values
                ]
            return [forward.tangent(dual) for dual in block.run(Env(), duals) if is_float(dual.primal.type)]

        return tangents

    def _reverse(self, function: Differentiated, colours: Iterator[Value]) -> Callable[[Value], list[Value]]:
        """The cotangents of the floating parameters in a direction."""
        b = current()
        pullback = Pullback(self.name, function, self.argnums)
        colour = [next(colours) if is_float(value.type) else None for value in pullback.values]

        def cotangents(direction: Value) -> list[Value]:
            given = [
                None if each is None else Expr(_seed(value, each, direction), b)
                for value, each in zip(pullback.values, colour, strict=True)
            ]
            return [leaf.value for leaf in trees.flatten(pullback(trees.unflatten(function.output, given)))[0]]

        return cotangents


def _seed(value: Value, colours: Value, direction: Value) -> Value:
    """One where a value has the colour of this direction, elsewhere zero."""
    b = current()

    def at(*places: Value) -> Value:
        chosen = Expr(b.primitive("equal", b.index(colours, places), direction), b)
        return chosen.astype(element(value.type)).value

    return b.array(b.sizes(value), at)
