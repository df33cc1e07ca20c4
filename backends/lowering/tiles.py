"""Tiles of products: how large they are on a target, and whether they are full enough to pay for packing.

A tile of 8 rows by two registers of lanes holds its sums in 16 registers, where there are 32. Where there are fewer it
has the rows that fit: of 16, 6, with 12 sums, two registers of columns, and one for an element of a row. (With 4 rows
the multiply-adds, of which a core starts two in each cycle, wait for the ones of the step before.) With fewer rows than
a tile has, or columns that do not fill the lanes, tiles are mostly empty; with few steps, packing takes longer than the
sums::

    32 lanes, 64 steps     n x m with 8 <= n and 32 <= m: tiles     n = 3: as any nest
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from ...core.types import Scalar
from .. import ir
from ..target import (
    PRODUCT_LONG,
    PRODUCT_TILE_REGISTERS,
    PRODUCT_TILE_ROWS,
    Target,
)


def tile_of(target: Target, scalar: Scalar) -> tuple[int, int]:
    """The rows and the columns of a tile."""
    beside = (target.registers - 1) // PRODUCT_TILE_REGISTERS - 1  # the columns, and an element of a row
    return max(1, min(PRODUCT_TILE_ROWS, beside)), PRODUCT_TILE_REGISTERS * target.lanes(scalar)


def worth_of_tiles(
    target: Target, scalar: Scalar, row: ir.Axis, column: ir.Axis, steps: ir.Expression
) -> ir.Expression:
    """Whether tiles are full enough, and there is work enough for the packing: as much as bytes in L1.

    The columns, or the steps, may be half of what is wanted of them if the other extents are ``PRODUCT_LONG`` times
    that. Rows may not: with few of them, packing columns takes longer than the sums.
    """
    down, across = tile_of(target, scalar)
    wanted = [(row.extent, down), (column.extent, across), (steps, 2 * down)]

    def at_least(factors: Sequence[float]) -> ir.Expression:
        tests = [int(n * f) <= x for (x, n), f in zip(wanted, factors, strict=True)]
        return functools.reduce(operator.and_, tests)

    full = at_least([1, 1, 1])
    for factors in ([PRODUCT_LONG, 0.5, PRODUCT_LONG], [PRODUCT_LONG, PRODUCT_LONG, 0.5]):
        full = full | at_least(factors)
    multiplications = ir.product([extent for extent, _ in wanted])
    return (target.l1_bytes <= multiplications) & full


def share_of(extent: ir.Expression, pieces: ir.Expression, unit: int, least: int, most: int) -> ir.Expression:
    """The length of so many pieces of an extent, in units: at least so many of these, and no longer than the most."""
    units = ir.maximum(ir.ceil_divide(ir.ceil_divide(extent, pieces), unit), least)
    return ir.minimum(units * unit, most)


def at_most(number: int, multiple: int) -> int:
    """The multiple next below a number, at least one."""
    return max(1, number // multiple) * multiple
