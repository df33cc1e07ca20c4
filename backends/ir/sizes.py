"""Sums and products of sizes, at once where they are known; and sizes as polynomials, which can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...core.dims import Dim
from ...core.types import i64
from .expressions import Apply, Buffer, Constant, Expression, Operand, Variable

_TERMS = 32  # a polynomial of more terms is not expanded
_POLYNOMIAL = {"add": Dim.__add__, "subtract": Dim.__sub__, "multiply": Dim.__mul__}


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


def dim_of(
    expression: Expression, known: Mapping[str, Dim], other: Callable[[Expression], Dim | None] = lambda _: None
) -> Dim | None:
    """An i64 expression as a polynomial, given what its variables are; ``other`` says what is neither sum nor product.

    >>> n = Variable("n")
    >>> dim_of((n + 1) * n - 1, {"n": Dim.of("n")})
    n*n + n - 1
    """
    match expression:
        case Constant(number) if expression.type == i64:
            return Dim.of(int(number))
        case Variable(name) if name in known:
            return known[name]
        case Apply(primitive, (a, b)) if expression.type == i64 and primitive.name in _POLYNOMIAL:
            left, right = dim_of(a, known, other), dim_of(b, known, other)
            if left is not None and right is not None:
                dim = _POLYNOMIAL[primitive.name](left, right)
                if len(dim.terms) <= _TERMS:
                    return dim
    return other(expression)
