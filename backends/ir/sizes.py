"""Sums and products of sizes, and the bytes of a buffer: at once where they are known."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.types import i64
from .expressions import Buffer, Constant, Expression, Operand


def product(factors: Iterable[Expression]) -> Expression:
    """The product of sizes."""
    one = Constant(1, i64)
    total: Expression = one
    for factor in factors:
        total = factor if total == one else total if factor == one else total * factor
    return total


def total(terms: Iterable[Expression]) -> Expression:
    """The sum of sizes."""
    whole: Expression | None = None
    for term in terms:
        whole = term if whole is None else whole + term
    return Constant(0, i64) if whole is None else whole


def ceil_divide(extent: Expression, size: Operand) -> Expression:
    """How many parts of a size an extent has, the last one perhaps not full."""
    return (extent + (size - 1)) // size


def bytes_of(buffer: Buffer) -> Expression:
    """The size of an array in memory."""
    return product(buffer.extents) * (buffer.scalar.bits // 8)
