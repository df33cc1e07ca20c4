"""Integers that move with the lane by a constant, as those do that index-set splitting compares.

Such an integer is ``step * lane + base``, where the base is an expression that does not vary::

    2 + j - k   in lanes j:   1 * j + (2 - k)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ....core.dims import Dim, Name
from ... import ir

ZERO = ir.Constant(0)


@dataclass(frozen=True)
class Affine:
    """An integer that moves with the lane: ``step * lane + base``, where the base does not vary."""

    step: int
    base: ir.Expression

    def plus(self, other: Affine | int) -> Affine:
        other = Affine(0, ir.Constant(other)) if isinstance(other, int) else other
        return Affine(self.step + other.step, _sum(self.base, other.base))

    def less(self, other: Affine) -> Affine:
        base = other.base
        minus = self.plus(-int(base.value)) if isinstance(base, ir.Constant) else replace(self, base=self.base - base)
        return replace(minus, step=self.step - other.step)


def _sum(a: ir.Expression, b: ir.Expression) -> ir.Expression:
    match a, b:
        case ir.Apply(primitive, (x, ir.Constant() as c)), ir.Constant() if primitive.name == "add":
            return _sum(x, c + b)
    return a if b == ZERO else b if a == ZERO else a + b


def in_range(index: Affine, extent: Affine) -> list[Affine]:
    """The conditions by which an index is in range."""
    return [index, extent.less(index).plus(-1)]


def with_values(e: ir.Expression, values: Mapping[str, ir.Expression]) -> ir.Expression:
    """An integer for these values of variables in it, folded."""
    match e:
        case ir.Variable(name):
            return values.get(name, e)
        case ir.Apply(primitive, (a, b)) if primitive.name in ("add", "subtract"):
            a, b = with_values(a, values), with_values(b, values)
            return _sum(a, b) if primitive.name == "add" else a - b
    return ir.map_operands(e, lambda part: with_values(part, values))


def factor_of(dim: Dim, name: Name) -> int:
    """By how much an integer grows with a variable; 0 if not by a constant, or not at all."""
    terms = [(monomial, c) for monomial, c in dim.terms if name in Dim({monomial: 1}).atoms()]
    return terms[0][1] if len(terms) == 1 and terms[0][0] == (name,) else 0
