"""Triangles in products: the steps of a tile that multiply by 0 are left out, and the tiles that nobody reads.

What is known of arrays (``interpreters/domains.py``) bounds the tiles of a product (``contractions.py``). Where a
factor is 0 but for ``row - k >= 0``, a tile whose last row is r runs over k <= r only, and of a product that is read
where ``row - column >= 0`` a tile beyond the diagonal stays 0. ::

    y[r, i] = sum(k < d: q[r, k] * x[k, i])        rows 8..15 of a lower triangular q:  for k < min(16, d)

0 times a number is 0, and adding it changes no sum; but 0 times infinity is not a number. So a panel of the other
factor is looked at while it is packed, and where something in it is not finite, its tiles run over all steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...core.types import bool_
from .. import ir

# Least differences of loop variables: (u, v): c says that u - v is at least c.
Differences = Mapping[tuple[str, str], int]
# By buffer: least differences of axes where it is not 0.
Regions = Mapping[str, Mapping[tuple[int, int], int]]


@dataclass(frozen=True)
class Side:
    """A tile along one of the two loops of a product: the loop's variable, where the tile begins, and its length."""

    variable: str
    start: ir.Expression
    length: int


def nonzero(value: ir.Expression, lets: Sequence[ir.Let], known: Regions) -> Differences:
    """Where a factor is not 0: one that is read, as it is, from an array of which that is known."""
    defined = {let.name: let.value for let in lets}
    while isinstance(value, ir.Variable) and value.name in defined:
        value = defined[value.name]
    if not isinstance(value, ir.Load) or value.guarded:
        return {}
    names = [index.name if isinstance(index, ir.Variable) else "" for index in value.indices]
    axes = known.get(value.buffer.name, {})
    return {(names[a], names[b]): least for (a, b), least in axes.items() if names[a] and names[b]}


def firsts(facts: Differences, side: Side, inner: str) -> Iterator[ir.Expression]:
    """Steps before which a factor is 0 in all of a tile."""
    if (inner, side.variable) in facts:
        yield side.start + facts[inner, side.variable]


def stops(facts: Differences, side: Side, inner: str) -> Iterator[ir.Expression]:
    """Steps from which on a factor is 0 in all of a tile."""
    if (side.variable, inner) in facts:
        yield side.start + (side.length - facts[side.variable, inner])


def is_read(facts: Differences, row: Side, column: Side) -> ir.Expression:
    """Whether something of a tile is read."""
    test: ir.Expression = ir.Constant(True, bool_)
    for first, second in ((row, column), (column, row)):
        least = facts.get((first.variable, second.variable))
        if least is not None:
            last = first.start + (first.length - 1 - least)
            test = test & (second.start <= last)
    return test
