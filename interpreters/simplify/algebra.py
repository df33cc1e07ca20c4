"""Constant folding and algebraic simplification of operations on scalars.

Every rule holds for IEEE numbers to the bit: ``x * 0.0`` stays, since x may be infinite; ``x + 0.0`` stays, since x
may be -0.0; ``x * 1.0`` and ``x - 0.0`` go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...core.builder import Builder
from ...core.dims import Name, arithmetic
from ...core.graph import Value
from ...core.indexing import extents_of
from ...core.primitive import Primitive
from ...core.ranges import index_in_range, never_negative
from ...core.terms import Literal
from ...core.types import bool_, element, i64
from .implied import is_exact

_FEW_TIMES = 1 << 20  # a factor, or a number, of a sum that is small


def primitive(b: Builder, row: Primitive, args: Sequence[Value]) -> Value | None:
    """What an operation on scalars becomes; None where it stays as it is."""
    literals = [isinstance(arg.atom, Literal) for arg in args]
    if all(literals):
        return _fold(b, row, args)
    if args[0].dim is not None:
        dim = arithmetic(row.name, [arg.dim for arg in args])
        known = None if dim is None else b.known(dim)
        if known is not None:
            return known
    special = _ALGEBRA.get(row.name)
    answer = special(b, *args) if special else None
    if answer is None and row.commutative and literals == [False, True] and row.infix not in ("==", "!="):
        return b.primitive(row, args[1], args[0])  # literals first
    return answer


def _fold(b: Builder, row: Primitive, args: Sequence[Value]) -> Value:
    """Constant folding with the primitive's NumPy meaning."""
    types = [arg.type for arg in args]
    numbers = [np.array(arg.literal, dtype=t.dtype)[()] for arg, t in zip(args, types, strict=True)]  # type: ignore[union-attr]
    with np.errstate(all="ignore"):
        result = row.numpy(*numbers)
    target = row.result_type(types)  # type: ignore[arg-type]
    return b.literal(np.asarray(result).astype(target.dtype).item(), target)


def _is(value: Value, number: float) -> bool:
    return value.atom is not None and value.literal == number and value.type != bool_


def is_zero(value: Value) -> bool:
    """Positive zero: the neutral element of nothing but sums of derivatives, where it is an absent term."""
    return _is(value, 0) and not _is_negative(value)


def _is_negative(literal: Value) -> bool:
    """Whether a literal has a minus sign, -0.0 too."""
    return bool(np.signbit(float(literal.literal)))  # type: ignore[arg-type]


def operands_of(value: Value, name: str) -> tuple[Value, ...] | None:
    source = value.source
    if source is not None and source.op == "primitive" and source.static[0].name == name:
        return source.args
    return None


def _is_float(value: Value) -> bool:
    return getattr(value.type, "kind", "") == "float"


def _add(b: Builder, x: Value, y: Value) -> Value | None:
    for zero, other in ((x, y), (y, x)):
        if _is(zero, 0) and (not _is_float(x) or _is_negative(zero)):
            return other
    if (inner := operands_of(y, "negative")) is not None:
        return b.primitive("subtract", x, inner[0])
    if (inner := operands_of(x, "negative")) is not None:
        return b.primitive("subtract", y, inner[0])
    for constant, other in ((x, y), (y, x)):
        if constant.literal is not None and (sum := _shifted(b, other, constant.literal)) is not None:
            return sum
    for size, other in ((x, y), (y, x)):
        inner = operands_of(other, "subtract")
        if inner is not None and (total := _of_sizes(b, "add", size, inner[0])) is not None:
            return b.primitive("subtract", total, inner[1])
    return None


def _offset(b: Builder, value: Value) -> tuple[Value, int] | None:
    """An integer as another one and a constant that is added to it."""
    source = value.source
    if value.type is not i64 or source is None or source.op != "primitive":
        return None
    match source.static[0].name, source.args:
        case "add", (base, constant) if constant.literal is not None:
            return base, int(constant.literal)
        case "add", (constant, base) if constant.literal is not None:
            return base, int(constant.literal)
        case "subtract", (base, constant) if constant.literal is not None:
            return base, -int(constant.literal)
    return None


def _shifted(b: Builder, value: Value, constant: Any) -> Value | None:
    """An integer with a constant added, as one addition where it is itself a sum with a constant."""
    found = _offset(b, value)
    if found is None or abs(found[1] + constant) >= 1 << 62:
        return None
    base, total = found[0], found[1] + constant
    if total < 0:
        return b.primitive("subtract", base, b.literal(-total, i64))
    return b.primitive("add", base, b.literal(total, i64)) if total else base


def _of_sizes(b: Builder, operation: str, x: Value, y: Value) -> Value | None:
    """The sum or the difference of two sizes where it is a size, too; None where it is an operation.

    A dim has no large numbers, so that ``2**63 - 1 - n`` is one.
    """
    dim = arithmetic(operation, [x.dim, y.dim]) if x.atom is not None and y.atom is not None else None
    return None if dim is None else b.dim(dim)


def _subtract(b: Builder, x: Value, y: Value) -> Value | None:
    if is_zero(y):
        return x
    if (inner := operands_of(y, "negative")) is not None:
        return b.primitive("add", x, inner[0])
    if not _is_float(x):
        if (inner := operands_of(y, "subtract")) is not None and inner[0] is x:
            return inner[1]
        inner = operands_of(x, "subtract")
        if inner is not None and (rest := _of_sizes(b, "subtract", inner[0], y)) is not None:
            return b.primitive("subtract", rest, inner[1])
        if x.dim is not None and y.dim is not None and (x.dim - y.dim).constant is not None:
            return b.literal((x.dim - y.dim).constant, x.type)  # type: ignore[arg-type]
        if y.literal is not None:
            return _shifted(b, x, -int(y.literal))
    return None


def _multiply(b: Builder, x: Value, y: Value) -> Value | None:
    for factor, other in ((x, y), (y, x)):
        if _is(factor, 1):
            return other
        if _is(factor, -1):
            return b.primitive("negative", other)
        if _is(factor, 0) and not _is_float(factor):
            return factor
    first, second = operands_of(x, "negative"), operands_of(y, "negative")
    if first is not None and second is not None:
        return b.primitive("multiply", first[0], second[0])
    if first is not None and y.literal is None:
        return b.primitive("negative", b.primitive("multiply", first[0], y))
    if second is not None and x.literal is None:
        return b.primitive("negative", b.primitive("multiply", x, second[0]))
    return None


def _divide(b: Builder, x: Value, y: Value) -> Value | None:
    if _is(y, 1):
        return x
    number = y.literal
    if number is not None and 2.0**-100 < abs(number) < 2.0**100 and abs(float(np.frexp(number)[0])) == 0.5:
        return b.primitive("multiply", b.literal(1.0 / float(number), y.type), x)  # type: ignore[arg-type]
    return None


def _floor_divide(b: Builder, x: Value, y: Value) -> Value | None:
    return x if _is(y, 1) else b.literal(0, i64) if _is_below(b, x, y) else None


def _remainder(b: Builder, x: Value, y: Value) -> Value | None:
    if _is(y, 1):
        return b.literal(0, x.type)  # type: ignore[arg-type]
    if _is_below(b, x, y):
        return x
    around = _around(b, x, y)
    return None if around is None else b.primitive("remainder", around, y)


def _around(b: Builder, x: Value, y: Value) -> Value | None:
    """A sum without an inner remainder by the same number: ``(i + 1) % n + j`` is ``i + 1 + j`` around a circle.

    All is small, so that nothing overflows that did not before.
    """
    source = x.source
    if source is None or source.op != "primitive" or source.static[0].name not in ("add", "subtract"):
        return None
    opened = list(source.args)
    for k, part in enumerate(source.args):
        inner = operands_of(part, "remainder")
        if inner is not None and inner[1] is y:
            opened[k] = inner[0]
    if opened == list(source.args) or not all([_is_small(b, part) for part in opened]):
        return None
    return b.primitive(source.static[0], *opened)


def _is_small(b: Builder, x: Value) -> bool:
    """Whether an integer is a sum of loop variables, sizes and numbers, each a few times."""
    if x.dim is None:
        return False
    extent, atoms = extents_of(b), x.dim.atoms()
    linear = all([len(monomial) <= 1 and abs(c) <= _FEW_TIMES for monomial, c in x.dim.terms])
    return linear and all([isinstance(each, Name) or extent(each) is not None for each in atoms])


def _is_below(b: Builder, x: Value, y: Value) -> bool:
    """Whether a place is proved to be one of an axis, for loop variables in their range."""
    if x.dim is None or y.dim is None or not (is_exact(b, x.dim) and is_exact(b, y.dim)):
        return False
    return index_in_range(x.dim, y.dim, extents_of(b))


def _extremum(b: Builder, x: Value, y: Value, least: bool = True) -> Value | None:
    if x is y:
        return x
    if x.dim is None or y.dim is None or not (is_exact(b, x.dim) and is_exact(b, y.dim)):
        return None
    above, extents = y.dim - x.dim if least else x.dim - y.dim, extents_of(b)
    return x if never_negative(above, extents) else y if never_negative(-above, extents) else None


def _absolute(b: Builder, x: Value) -> Value | None:
    if operands_of(x, "abs") is not None or not element(x.type).signed:
        return x
    inner = operands_of(x, "negative")
    return None if inner is None else b.primitive("abs", inner[0])


def _negative(b: Builder, x: Value) -> Value | None:
    if (inner := operands_of(x, "negative")) is not None:
        return inner[0]
    if (inner := operands_of(x, "multiply")) is not None and inner[0].literal is not None:
        return b.primitive("multiply", b.primitive("negative", inner[0]), inner[1])
    return None


def _not(b: Builder, x: Value) -> Value | None:
    inner = operands_of(x, "logical_not")
    return None if inner is None else inner[0]


def _and(b: Builder, x: Value, y: Value) -> Value | None:
    for known, other in ((x, y), (y, x)):
        if known.literal is not None:
            return other if known.literal else known
    return x if x is y else None


def _or(b: Builder, x: Value, y: Value) -> Value | None:
    for known, other in ((x, y), (y, x)):
        if known.literal is not None:
            return known if known.literal else other
    return x if x is y else None


def _compare_sizes(holds: Callable[[int], bool]) -> Callable[[Builder, Value, Value], Value | None]:
    """A comparison of integers whose difference is proved to have a sign, for loop variables in their range.

    Of those that may have wrapped around it is known whether they are equal, where they differ by a number.
    """

    def rule(b: Builder, x: Value, y: Value) -> Value | None:
        if x.dim is None or y.dim is None:
            return None
        signs, extents = {-1, 0, 1}, extents_of(b)
        if not (is_exact(b, x.dim) and is_exact(b, y.dim)):
            apart = (x.dim - y.dim).constant
            signs = signs if apart is None else {-1, 1} if apart else {0}
            verdicts = {holds(sign) for sign in signs}
            return b.literal(verdicts.pop(), bool_) if len(verdicts) == 1 else None
        for difference, other in ((x.dim - y.dim, -1), (y.dim - x.dim, 1)):
            if never_negative(difference, extents):
                signs -= {other}
                if never_negative(difference - 1, extents):
                    signs -= {0}
        verdicts = {holds(sign) for sign in signs}
        return b.literal(verdicts.pop(), bool_) if len(verdicts) == 1 else None

    return rule


_ALGEBRA: dict[str, Callable[..., Value | None]] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "minimum": _extremum,
    "maximum": partial(_extremum, least=False),
    "abs": _absolute,
    "negative": _negative,
    "logical_not": _not,
    "logical_and": _and,
    "logical_or": _or,
    "equal": _compare_sizes(lambda d: d == 0),
    "not_equal": _compare_sizes(lambda d: d != 0),
    "less": _compare_sizes(lambda d: d < 0),
    "less_equal": _compare_sizes(lambda d: d <= 0),
    "greater": _compare_sizes(lambda d: d > 0),
    "greater_equal": _compare_sizes(lambda d: d >= 0),
}
