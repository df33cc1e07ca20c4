"""Least squares over chunks: of residuals that are too many for one machine's memory, only sums are kept.

A step needs the cost, ``J^T J`` and ``J^T r``. Each is a sum over the residuals, so a program that was compiled for
chunks (``az.compile(residuals, backend="dask", over="n")``) is derived, and compiled for the same chunks: a chunk has
its rows of J, which are multiplied and added up there, and a run of chunks gives ``(n + 1)**2`` numbers::

    each chunk:   columns = [dr/dx1, ..., dr/dxn, r]       sums[a, b] = sum(columns[a] * columns[b])
    here:         J^T J, J^T r; a step of Levenberg and Marquardt

One pass over the data gives all of a trial point, the cost and what the next step needs: reading is what bounds large
data, and most trials are taken. Of few unknowns each sum is of its own, and loops over a chunk compute several of them
without storing a column; of more, whose sums grow with the square of their number, leaves are contracted.

(Chu et al., *Map-Reduce for machine learning on multicore*, 2006: sums over data, then a small system.)
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ad.jacobians import jacobian
from ..backends.chunked.chunked import Chunked
from ..core import trees
from ..core.annotations import Declared, Parameter
from ..core.combinators import arange, einsum, where
from ..core.combinators import min as smallest
from ..core.combinators import sum as total
from ..core.dims import Dim
from ..core.primitives import isfinite
from ..core.program import Instance, Program
from ..core.source import at_line
from ..core.types import SCALARS, Type, all_dims, array_of, is_float
from ..core.verb import Verb
from .linearised import Normal
from .losses import Loss
from .unknowns import Array, Unknowns, check_first, place, unknowns_of

FEW = 8  # unknowns, at most, of which each product is a sum of its own: 45 sums
BEYOND = 2**63 - 1  # any place
ROUNDED = 16  # units in the last place, for each unknown, of an eigenvalue of J^T J that may be zero


class ChunkedProblem:
    """Residuals over chunks as a function of a vector of unknowns, at given other arguments.

    Raises TypeError where a leaf of the residuals is not floating, ValueError where the unknowns are cut, or the cost
    is NaN or infinite at x0.
    """

    def __init__(
        self, name: str, residuals: Chunked, unknowns: Unknowns, x: Array, rest: Sequence[Any], loss: Loss
    ) -> None:
        self.name, self.unknowns, self.rest, self._residuals = name, unknowns, rest, residuals
        instance = residuals.instance
        for type in instance.types[: unknowns.structure.leaves]:
            if any(residuals.over in dim.names() for dim in all_dims(type)):
                problem = f"the unknowns are {type}, and over={residuals.over!r} cuts what is given beside them"
                raise ValueError(at_line(f"{name}: {problem}"))
        for type in [result.type for result in instance.term.results]:
            if not is_float(type):
                problem = f"{instance.program.name} returns {type} as residuals: residuals are floating numbers"
                raise TypeError(at_line(f"{name}: {problem}"))
        self._pass = residuals.same_chunks(_Equations("normal", instance.program, unknowns, loss).made(instance))
        self._pass.keep_arrays(True)
        self._last: tuple[bytes, float, Array] | None = None  # a point, its cost and sums
        self.count = 0  # of residuals
        self.nfev = self.njev = 0
        cost, _ = self._sums(x)
        if not np.isfinite(cost):
            wrong = self._wrong(x)
            what = f"{wrong[0]} is {wrong[1]} at x0" if wrong else f"the residuals at x0 have the cost {cost}"
            raise ValueError(at_line(f"{name}: {what}"))

    def _sums(self, x: Array) -> tuple[float, Array]:
        """The cost at a point, and the products of all columns: of J, and behind it the residuals."""
        if self._last is None or self._last[0] != x.tobytes():
            with np.errstate(all="ignore"):
                cost, count, blocks = self._pass(self.of(x), *self.rest)
            sides = _sides(self.unknowns)
            starts = np.cumsum([0, *[int(np.prod(side.shape)) for side in sides]])
            table = np.empty((starts[-1], starts[-1]))
            for (a, b), block in zip(_pairs(len(sides)), blocks, strict=True):
                rows, columns = slice(starts[a], starts[a + 1]), slice(starts[b], starts[b + 1])
                table[rows, columns] = np.reshape(block, (starts[a + 1] - starts[a], -1))
                table[columns, rows] = table[rows, columns].T
            self.count, self._last = int(count), (x.tobytes(), float(cost), table)
        return self._last[1:]

    def finish(self) -> None:
        """Workers no longer keep the data of the fit."""
        self._pass.keep_arrays(False)

    def of(self, x: Array) -> Any:
        return self.unknowns.of(x)

    def cost(self, x: Array) -> float:
        """Half the sum of squares, or what a loss makes of it; what overflows is infinite, or NaN."""
        self.nfev += 1
        return self._sums(x)[0]

    def linearised(self, x: Array) -> Normal | None:
        """The problem around a point; None where a derivative is NaN or infinite."""
        self.njev += 1
        _, table = self._sums(x)
        return Normal(table[:-1, :-1].copy(), table[:-1, -1]) if np.all(np.isfinite(table)) else None

    def derivative_that_is_not_finite(self, x: Array) -> str:
        """Its name, for people."""
        _, table = self._sums(x)
        column = int(np.flatnonzero(~np.isfinite(np.diagonal(table)))[0])
        wrong = self._wrong(x, column)
        return f"the derivative of {wrong[0] if wrong else 'a residual'} by {self.unknowns.place(column)}"

    def _wrong(self, x: Array, column: int | None = None) -> tuple[str, float] | None:
        """The first residual that is NaN or infinite, or whose derivative by an unknown is, and what that is."""
        instance = self._residuals.instance
        verb = _FirstWrong("first_wrong", instance.program, self.unknowns, column)
        with np.errstate(all="ignore"):
            found = self._residuals.same_chunks(verb.made(instance))(self.of(x), *self.rest)
        for path, (number, value, *shape) in zip(trees.paths(instance.outputs), found, strict=True):
            if number < math.prod(shape):
                return place("residuals", [path], [tuple(map(int, shape))], int(number)), float(value)
        return None

    def residuals(self, x: Array) -> Any:
        """What the program gives: arrays of Dask's where they are over the size that is cut."""
        return self._residuals(self.of(x), *self.rest)

    def jacobian(self, x: Array) -> Any:
        """TypeError: there is none."""
        problem = "over chunks J is not stored; az.jacobian(residuals), compiled for chunks, gives arrays of Dask's"
        raise TypeError(at_line(f"{self.name}: {problem}"))

    def factor(self, x: Array) -> tuple[int, Array]:
        """How many residuals there are, and a matrix F with ``F^T F = J^T J``, whose eigenvalues rounding leaves."""
        _, table = self._sums(x)
        normal = table[:-1, :-1]
        lengths = np.sqrt(np.diagonal(normal))
        scales = np.where(lengths > 0, lengths, 1.0)
        values, vectors = np.linalg.eigh(normal / scales / scales[:, None])
        left = values > ROUNDED * len(scales) * np.finfo(np.float64).eps * values[-1]
        return self.count, np.sqrt(np.where(left, values, 0.0))[:, None] * vectors.T * scales


def read_chunked(name: str, residuals: Chunked, x0: Any, args: Sequence[Any]) -> tuple[Unknowns, Array, list[Any]]:
    """The unknowns of a program over chunks, their first values, and the program's other arguments."""
    instance = residuals.instance
    check_first(name, instance.program)
    arguments = residuals.program.bind([x0, *args], {})
    return (*unknowns_of(name, instance, instance.leaves(arguments)), list(arguments[1:]))


@dataclass(frozen=True)
class _OfUnknowns(Verb):
    """A program of the parameters of another one, of which the first is the unknowns of a fit."""

    unknowns: Unknowns

    def made(self, instance: Instance) -> Program:
        """The program, whose first parameter has the sizes of the unknowns in its type."""
        leaves = zip(self.unknowns.shapes, self.unknowns.dtypes, strict=True)
        types: list[Type] = [
            array_of(SCALARS[dtype.name.replace("float", "f")], tuple(map(Dim.of, shape))) for shape, dtype in leaves
        ]
        types += instance.types[len(types) :]
        parameters = list[Parameter]()
        shapes = iter(instance.inputs.inner)
        for parameter in instance.program.parameters:
            if not parameter.static:
                shape = next(shapes)
                mine, types = types[: shape.leaves], types[shape.leaves :]
                one = mine[0] if shape == trees.LEAF else None
                structure = Declared(shape, tuple(mine)) if one is None else None
                parameter = Parameter(parameter.name, one, structure=structure)
            parameters.append(parameter)
        return self.program(parameters)


@dataclass(frozen=True)
class _Equations(_OfUnknowns):
    """The cost, the number of residuals, and the products of the columns of J and of the residuals, two by two."""

    loss: Loss

    def __call__(self, *args: Any) -> tuple[Any, Any, Any]:
        residuals, structure = trees.flatten(self.f(*args))
        tables = trees.matched(structure, jacobian(self.f, 0)(*args))
        sides = _sides(self.unknowns)
        found = [self.of_leaf(leaf, trees.flatten(table)[0], sides) for leaf, table in zip(residuals, tables)]
        costs, counts, products = zip(*found, strict=True)
        return _added(costs), _added(counts), tuple(map(_added, zip(*products, strict=True)))

    def of_leaf(self, residual: Any, table: Sequence[Any], sides: Sequence[_Side]) -> tuple[Any, Any, tuple[Any, ...]]:
        """The cost of a leaf of the residuals, its length, and its products."""
        axes = (slice(None),) * residual.ndim
        columns = [table[side.leaf][(*axes, *side.index)] for side in sides[:-1]]
        cost = total(self.loss.costs(residual)) if residual.ndim else self.loss.costs(residual)
        count = math.prod(residual.shape)
        if not self.loss.is_linear:
            weight = self.loss.weights(residual)
            columns = [weight[(*axes, *(None,) * len(side.shape))] * each for side, each in zip(sides, columns)]
            residual = weight * residual
        letters = iter(string.ascii_letters)
        over = "".join(itertools.islice(letters, len(axes)))
        left, right = (["".join(itertools.islice(letters, len(side.shape))) for side in sides] for _ in range(2))
        columns = [*columns, residual]
        products = [
            einsum(f"{over}{left[a]},{over}{right[b]}->{left[a]}{right[b]}", columns[a], columns[b])
            for a, b in _pairs(len(sides))
        ]
        return cost, count, tuple(products)


@dataclass(frozen=True)
class _FirstWrong(_OfUnknowns):
    """Of each leaf of the residuals, or of a column of J: the first place of what is not finite, it, and the shape.

    Places are numbers in row-major order; one beyond the end says that there is none.
    """

    column: int | None

    def __call__(self, *args: Any) -> tuple[tuple[Any, ...], ...]:
        residuals, structure = trees.flatten(self.f(*args))
        if self.column is None:
            return tuple(map(_first_wrong, residuals))
        tables = trees.matched(structure, jacobian(self.f, 0)(*args))
        side = _numbers(self.unknowns)[self.column]
        columns = [trees.flatten(table)[0][side.leaf] for table in tables]
        found = [each[(*(slice(None),) * r.ndim, *side.index)] for each, r in zip(columns, residuals, strict=True)]
        return tuple(map(_first_wrong, found))


def _first_wrong(values: Any) -> tuple[Any, ...]:
    """The first place of what is not finite, as a number in row-major order; it; and the shape."""
    if values.ndim == 0:
        return where(isfinite(values), 1, 0), values
    places = arange(values.shape[0])
    for extent in values.shape[1:]:
        places = places[..., None] * extent + arange(extent)
    number = smallest(where(isfinite(values), BEYOND, places))
    return number, total(where(places == number, values, 0.0)), *values.shape


@dataclass(frozen=True)
class _Side:
    """Columns of J: those of a leaf of the unknowns, or of one of its numbers; the last ones are the residuals."""

    leaf: int
    index: tuple[int, ...]
    shape: tuple[int, ...]


def _sides(unknowns: Unknowns) -> list[_Side]:
    residuals = _Side(len(unknowns.shapes), (), ())
    if unknowns.count > FEW:
        return [*[_Side(leaf, (), shape) for leaf, shape in enumerate(unknowns.shapes)], residuals]
    return [*_numbers(unknowns), residuals]


def _numbers(unknowns: Unknowns) -> list[_Side]:
    """The columns of J, one by one."""
    return [_Side(leaf, index, ()) for leaf, shape in enumerate(unknowns.shapes) for index in np.ndindex(shape)]


def _pairs(count: int) -> list[tuple[int, int]]:
    return list(itertools.combinations_with_replacement(range(count), 2))


def _added(parts: Sequence[Any]) -> Any:
    return functools.reduce(operator.add, parts)
