"""The normal equations of few unknowns in one pass over the residuals: ``J^T J``, ``J^T r`` and the cost.

The Jacobian of a million residuals by five unknowns is 40 megabytes, and all that a step asks of it is fifteen sums.
So the program derives the residuals along each unknown, as a number of its own (what does not depend on it folds away),
and adds up products in blocks of rows. A block is a checkpoint: it holds its rows alone, and computes what they need::

    for each block of 1024 residuals:       rows = [dr/dx1, ..., dr/dxn, r], each of 1024 numbers
        sums += rows @ rows.T               of size n + 1: J^T J, J^T r, r^T r

That is right where a block of residuals needs little besides itself. Where it needs what all others do (the solution
of a differential equation that is read at many times), a program without blocks costs less, and that one is taken:
``az.cost`` compares them for the sizes of a call. It stores columns of J as temporaries.

Robust losses weigh the rows before they are multiplied (``losses.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..ad.verbs import jvp
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

ROWS = 1024  # of a block: with ten unknowns its numbers are in the second cache
DEARER = 2.0  # times the operations of a pass without blocks that one in blocks may cost


def normal_pass(f: Program, unknowns: Unknowns, loss: Loss, arguments: Sequence[Any]) -> Program:
    """The program of ``(x, *args)`` that gives the cost and the matrix of ``[J r]^T [J r]``, weighted by a loss."""
    blocked, whole = [_Pass("normal", f, unknowns, loss, blocks).made() for blocks in (True, False)]
    return blocked if _work(blocked, arguments) < DEARER * _work(whole, arguments) else whole


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
class _Pass(Verb):
    unknowns: Unknowns
    loss: Loss
    blocks: bool

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

    def __call__(self, *args: Any) -> tuple[Any, Any]:
        leaves = trees.flatten(args[0])[0]
        numbers = [number for leaf, shape in zip(leaves, self.unknowns.shapes) for number in numbers_of(leaf, shape)]
        counts = [leaf.shape[0] for leaf in self.residuals(numbers, args[1:])]
        sums = [self.sums(which, count, numbers, args[1:]) for which, count in enumerate(counts)]
        return _added([cost for cost, _ in sums]), _added([gram for _, gram in sums])

    def residuals(self, numbers: Sequence[Any], rest: Sequence[Any]) -> list[Any]:
        """The leaves of the residuals, each as a vector."""
        x = structured(self.unknowns.structure, self.unknowns.shapes, numbers)
        return vectors(self.f(x, *rest))

    def columns(self, which: int, numbers: Sequence[Any], rest: Sequence[Any]) -> list[Any]:
        """The derivatives of a leaf by each unknown, and the leaf itself."""

        def along(k: int) -> Any:
            def moved(number: Any) -> Any:
                return self.residuals([*numbers[:k], number, *numbers[k + 1 :]], rest)[which]

            return jvp(moved, (numbers[k],), (1.0,))[1]

        return [*map(along, range(len(numbers))), self.residuals(numbers, rest)[which]]

    def sums(self, which: int, count: Any, numbers: Sequence[Any], rest: Sequence[Any]) -> tuple[Any, Any]:
        """The cost of a leaf, and the products of all columns."""
        if not self.blocks:
            columns = self.columns(which, numbers, rest)
            return self.products(generate(count, lambda i: tuple([column[i] for column in columns])))

        def block(start: Any, rows: Any, *numbers: Any) -> tuple[Any, Any]:
            columns = self.columns(which, numbers, rest)
            return self.products(generate(rows, lambda i: tuple([column[start + i] for column in columns])))

        full = count // ROWS
        costs, grams = generate(full, lambda k: checkpoint(lambda *given: block(k * ROWS, ROWS, *given))(*numbers))
        left = checkpoint(lambda *given: block(full * ROWS, count - full * ROWS, *given))(*numbers)
        return total(costs) + left[0], total(grams, 0) + left[1]

    def products(self, columns: Sequence[Any]) -> tuple[Any, Any]:
        *derivatives, residual = columns
        value = total(self.loss.costs(residual))
        if not self.loss.is_linear:
            weight = self.loss.weights(residual)
            derivatives, residual = [weight * column for column in derivatives], weight * residual
        table = stack([*derivatives, residual])
        return value, table @ table.T


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
