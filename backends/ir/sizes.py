"""Sums and products of sizes, at once where they are known; and sizes as polynomials, which can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...core.dims import Dim, arithmetic
from ...core.types import i64
from .expressions import Apply, Buffer, Constant, Expression, Operand, Variable

_ARITHMETIC = ("add", "subtract", "multiply", "minimum", "maximum", "floor_divide")  # what has a meaning on dims


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
    return product(buffer.extents) * buffer.scalar.bytes


def dim_of(
    expression: Expression, known: Mapping[str, Dim], other: Callable[[Expression], Dim | None] = lambda _: None
) -> Dim | None:
    """An i64 expression as a dim, given what its variables are; ``other`` says what is made by no arithmetic of sizes.

    >>> n = Variable("n")
    >>> dim_of((n + 1) * n - 1, {"n": Dim.of("n")})
    n*n + n - 1
    >>> dim_of(ceil_divide(n, 4) + 2, {"n": Dim.of("n")})
    (n+3)//4 + 2
    """
    match expression:
        case Constant(number) if expression.type == i64:
            return Dim.of(int(number))
        case Variable(name) if name in known:
            return known[name]
        case Apply(primitive, (a, b)) if expression.type == i64 and primitive.name in _ARITHMETIC:
            dim = arithmetic(primitive.name, (dim_of(a, known, other), dim_of(b, known, other)))
            if dim is not None:
                return dim
    return other(expression)
