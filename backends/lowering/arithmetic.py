"""Arithmetic on sizes, done at once where they are known; and a choice of blocks by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ...core.primitive import Primitive, lookup
from ...core.types import i64
from ..loops import Apply, Block, Buffer, Constant, Expression, If


def applied(row: Primitive, arguments: Sequence[Expression]) -> Expression:
    """A primitive applied to scalars, at once where they are known."""
    type = row.result_type([a.type for a in arguments])
    numbers = [a.type.dtype.type(a.value) for a in arguments if isinstance(a, Constant)]
    if len(numbers) < len(arguments):
        return Apply(row, tuple(arguments), type)
    with np.errstate(all="ignore"):
        return Constant(np.asarray(row.numpy(*numbers)).astype(type.dtype).item(), type)


def folded(name: str, *arguments: Expression) -> Expression:
    """The primitive of this name applied to scalars, at once where they are known."""
    return applied(lookup(name), arguments)


def product(factors: Iterable[Expression]) -> Expression:
    """The product of sizes."""
    one = Constant(1, i64)
    total: Expression = one
    for factor in factors:
        total = factor if total == one else total if factor == one else folded("multiply", total, factor)
    return total


def bytes_of(buffer: Buffer) -> Expression:
    """The size of an array in memory."""
    return folded("multiply", product(buffer.extents), Constant(buffer.scalar.bits // 8, i64))


def total(terms: Iterable[Expression]) -> Expression:
    """The sum of sizes."""
    whole: Expression | None = None
    for term in terms:
        whole = term if whole is None else folded("add", whole, term)
    return Constant(0, i64) if whole is None else whole


def both(a: Expression, b: Expression) -> Expression:
    """Whether both hold."""
    for known, other in ((a, b), (b, a)):
        if isinstance(known, Constant):
            return other if known.value else known
    return folded("logical_and", a, b)


def either(a: Expression, b: Expression) -> Expression:
    """Whether one of both holds."""
    for known, other in ((a, b), (b, a)):
        if isinstance(known, Constant):
            return known if known.value else other
    return a if a == b else folded("logical_or", a, b)


def chosen(test: Expression, then: Block, orelse: Block) -> Block:
    """One of two blocks, at once where the test is known."""
    if isinstance(test, Constant):
        return then if test.value else orelse
    return (If(test, then, orelse),)
