"""The normal equations of few unknowns in one pass over the residuals: ``J^T J``, ``J^T r`` and the cost.

The Jacobian of a million residuals by five unknowns is 40 megabytes, and all that a step asks of it is fifteen sums.
So the program makes rows of J and their residuals in blocks, and adds up their products. A block is a checkpoint: it
holds its rows alone, and computes what they need. One residual is derived at a time, by all unknowns side by side,
which computes once what its derivatives share::

    for each block of 256 residuals:        rows, r = [[dr/dx1, ..., dr/dxn], ...], [r, ...]
        sums += rows.T @ rows, rows.T @ r, r @ r / 2

That is right where a residual needs little besides itself. Where it needs what others do, the residuals of a block are
derived together; and where that is the most of it (the solution of a differential equation that is read at many
times), all of them, and J is stored as a temporary: the first of these ways that costs at most twice as much as the
cheapest, as ``az.cost`` counts for the sizes of a call.

Robust losses weigh the rows before they are multiplied (``losses.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..ad.jacobians import jacobian
from ..backends.program_cost import cost
from ..core import trees
from ..core.annotations import Declared, Parameter
from ..core.checkpoint import checkpoint
from ..core.combinators import array, generate, ravel, reshape, stack
from ..core.combinators import sum as total
from ..core.dims import Dim
from ..core.program import Instance, Program
from ..core.types import SCALARS, array_of
from ..core.verb import Verb
from ..interpreters.cost import ProgramCost
from .losses import Loss
from .unknowns import Unknowns

ROWS = 256  # of a block: with ten unknowns its numbers are in the first cache
WAYS = ("rows", "blocks", "whole")  # what is derived at a time: the less it is, the less is held
DEARER = 2.0  # times the work of the cheapest of these ways that one which holds less may cost


def normal_pass(f: Program, unknowns: Unknowns, loss: Loss, arguments: Sequence[Any]) -> Program:
    """The program of ``(x, *args)`` that gives the cost, ``J^T J`` and ``J^T r``, weighted by a loss."""
    passes = [Pass("normal", f, unknowns, loss, way).made() for way in WAYS]
    works = [_work(each, arguments) for each in passes]
    good = [each for each, work in zip(passes, works, strict=True) if work < DEARER * min(works)]
    return good[0] if good else passes[-1]


def _work(program: Program, arguments: Sequence[Any]) -> float:
    """Operations, reads and writes at the sizes of these arguments, counted without running it.

    Infinite where they depend on data: then nothing is known of what blocks cost.
    """
    instance = program.instance_for(arguments)
    sizes = instance.signature.convert(instance.leaves(arguments))[1]
    try:
        found = _counted(instance).at(**sizes)
    except TypeError:
        return math.inf
    counts: Any = found.operations + found.reads + found.writes
    return float(counts)


@lru_cache(maxsize=32)
def _counted(instance: Instance) -> ProgramCost:
    """Counted once for all fits, which takes longer than many of these."""
    return cost(instance)


@dataclass(frozen=True)
class Pass(Verb):
    """The pass that derives so much at a time."""

    unknowns: Unknowns
    loss: Loss
    way: str

    def made(self) -> Program:
        """The program, whose first parameter has the sizes of the unknowns in its type."""
        types = [
            array_of(SCALARS[dtype.name.replace("float", "f")], tuple(map(Dim.of, shape)))
            for shape, dtype in zip(self.unknowns.shapes, self.unknowns.dtypes, strict=True)
        ]
        declared = Declared(self.unknowns.structure, tuple(types))
        one = types[0] if declared.shape == trees.LEAF else None
        first = Parameter(self.f.parameters[0].name, one, structure=declared if one is None else None)
        return self.program([first, *self.f.parameters[1:]])

    def __call__(self, x: Any, *rest: Any) -> tuple[Any, Any, Any]:
        counts = [leaf.shape[0] for leaf in vectors(self.f(x, *rest))]
        sums = [self.sums(which, count, x, rest) for which, count in enumerate(counts)]
        return tuple(map(_added, zip(*sums, strict=True)))

    def sums(self, which: int, count: Any, x: Any, rest: Sequence[Any]) -> tuple[Any, Any, Any]:
        """The cost of a leaf, and its part of the normal equations."""

        def leaf(x: Any) -> Any:
            return vectors(self.f(x, *rest))[which]

        def block(start: Any, rows: Any, x: Any) -> tuple[Any, Any, Any]:
            if self.way == "rows":
                made: Any = generate(rows, lambda i: self.derived(lambda x: leaf(x)[start + i], x))
            else:
                made = self.derived(lambda x: generate(rows, lambda i: leaf(x)[start + i]), x)
            return self.products(*made)

        if self.way == "whole":
            return block(0, count, x)
        full = count // ROWS
        sums = generate(full, lambda k: checkpoint(lambda x: block(k * ROWS, ROWS, x))(x))
        left = checkpoint(lambda x: block(full * ROWS, count - full * ROWS, x))(x)
        cost, matrix, gradient = [total(part, 0) + last for part, last in zip(sums, left, strict=True)]
        return cost, matrix, gradient

    def derived(self, residuals: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
        """The derivatives of a residual by all unknowns, or a row of them for each of a vector, and the residuals."""

        def twice(x: Any) -> Any:
            found = residuals(x)
            return found, found

        derivatives, values = jacobian(twice, 0, "forward", has_aux=True)(x)
        leaves = zip(trees.flatten(derivatives)[0], self.unknowns.shapes, strict=True)
        if values.ndim:
            columns = [leaf[(slice(None), *place)] for leaf, shape in leaves for place in np.ndindex(shape)]
            return stack([column.astype(values.dtype) for column in columns], 1), values
        numbers = [number for leaf, shape in leaves for number in numbers_of(leaf, shape)]
        return array([number.astype(values.dtype) for number in numbers]), values

    def products(self, rows: Any, residuals: Any) -> tuple[Any, Any, Any]:
        if self.loss.is_linear:
            return residuals @ residuals / 2, rows.T @ rows, rows.T @ residuals
        weights = self.loss.weights(residuals)
        weighed, right = weights[:, None] * rows, weights * residuals
        return total(self.loss.costs(residuals)), weighed.T @ weighed, weighed.T @ right


def structured(structure: trees.Shape, shapes: Sequence[tuple[int, ...]], numbers: Sequence[Any]) -> Any:
    """Numbers as leaves of these shapes, in their structure."""
    built, taken = [], 0
    for shape in shapes:
        part = numbers[taken : taken + math.prod(shape)]
        taken += len(part)
        built.append(reshape(array(list(part)), shape) if shape else part[0])
    return trees.unflatten(structure, built)


def vectors(residuals: Any) -> list[Any]:
    """The leaves of residuals, each as a vector."""
    return [ravel(leaf) if leaf.ndim else array([leaf]) for leaf in trees.flatten(residuals)[0]]


def numbers_of(leaf: Any, shape: tuple[int, ...]) -> list[Any]:
    return [leaf[index] for index in np.ndindex(shape)] if shape else [leaf]


def _added(parts: Sequence[Any]) -> Any:
    result = parts[0]
    for part in parts[1:]:
        result = result + part
    return result
