"""Sums of tangents along unit vectors, whose loops go away where a direction needs one term, or moves no term.

A tangent is a sum of terms, each of which is a coefficient, which no direction moves, times what is left, maybe under
tests. Since tangents are linear, a sum of them is the sum of what becomes of each term:

    sum(k: c[k] * (t[k] if k == i else 0))      c[i] * t[i]                            one term (``deltas.py``)
    sum(k: (c[k] * t if i == j else 0))         sum(k: c[k]) * t if i == j else 0      a factor, or test, that stays
    sum(k: c[k] * sum(l: d[k, l] * t[l]))       sum(l: sum(k: c[k] * d[k, l]) * t[l])  interchange
    sum(k: t[k] + t[k] if k in s else 0)        2 * sum(k: t[k] if k in s else 0)      what summands have in common

In the second and third the sums of coefficients are computed once for all directions. A sum of several terms is split
only if each loop that comes of it is of one of these kinds, but for one loop over all the rest (guarded fission:
Shaikhha et al. 2019, rule 8g). A factor is taken out of no sum but those of tangents, and under a test that the loop
decides only a number is: others may be infinite where the sum has no term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice

from ..core.builder import Builder
from ..core.dims import Dim
from ..core.graph import Node, Value
from ..core.types import Scalar, Type, i64
from ..interpreters.simplify.accumulators import plus
from ..interpreters.simplify.algebra import operands_of
from ..interpreters.simplify.deltas import conjunction, only_where, single, tested
from ..interpreters.simplify.rules import component_operator, rewrite
from .scalar_expansion import Loops, Stored

# A sum of more terms than this is left as it is.
MOST = 8

Term = tuple[Value | None, Value]  # a coefficient, None for one, and what it is multiplied with


class Tangents:
    """What is known of tangents: which variables move, and what coefficients are."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.moving: set[int] = set()  # directions, and bound tangents, by number
        self.stored = Stored(builder, self.moving)

    def bind(self, values: Iterable[Value]) -> None:
        """Note directions and tangents, of which the variables among them move."""
        self.moving.update([value.number for value in values if value.source is None and value.atom is None])

    def move(self, what: Value | Node) -> bool:
        """Whether a value depends on a direction."""
        return not what.free.isdisjoint(self.moving)

    def apart(self, tangent: Value) -> tuple[Value, Value | None]:
        """A scalar as a coefficient and what it is multiplied with, None where nothing moves."""
        if not isinstance(tangent.type, Scalar) or not self.move(tangent):
            return tangent, None
        coefficient, rest = self._factors(tangent)
        return self.builder.literal(1, tangent.type) if coefficient is None else coefficient, rest

    def _factors(self, tangent: Value) -> Term:
        args = operands_of(tangent, "multiply")
        for still, rest in (args, args[::-1]) if args else ():
            if not self.move(still) and self.move(rest):
                return still, rest
        return None, tangent

    def times(self, coefficient: Value, rest: Value | None) -> Value:
        """A linear function of one as the function of the rest, which is zero in a branch that is zero by its form."""
        b, source = self.builder, coefficient.source
        if rest is not None and source is not None and source.op == "cond" and not source.effects:
            then, orelse = [body.results[coefficient.position] for body in source.bodies]
            if _is_zero(then) or _is_zero(orelse):
                thens, others = [x if _is_zero(x) else self.times(x, rest) for x in (then, orelse)]
                return b.cond(source.args[0], lambda: [thens], lambda: [others])[0]
        coefficient = _without_ones(coefficient)
        return coefficient if rest is None else self.multiplied(coefficient, rest)

    def product(self, coefficient: Value | None, rest: Value) -> Value:
        """A term, zero where the rest is."""
        tests, inner = under(rest)
        return self.where(tests, self.multiplied(coefficient, inner))

    def where(self, tests: Sequence[Value], tangent: Value) -> Value:
        """The tangent where all tests hold, elsewhere zero.

        Tests that no direction moves stand inside, so that they may leave loops with what they choose.
        """
        zero = self.builder.literal(0, tangent.type)  # type: ignore[arg-type]
        return only_where(self.builder, sorted(tests, key=lambda test: not self.move(test)), tangent, zero)

    def plus(self, tangents: Sequence[Value]) -> Value:
        """The sum of some tangents."""
        return reduce(partial(plus, self.builder), tangents)

    def terms(self, tangent: Value) -> list[Term]:
        """The summands of a scalar; of more than MOST, which share a graph and may be very many, one more than that."""
        return list(islice(self._summands(None, tangent), MOST + 1))

    def _summands(self, coefficient: Value | None, tangent: Value) -> Iterator[Term]:
        if (args := operands_of(tangent, "add")) or (args := operands_of(tangent, "subtract")):
            assert tangent.source is not None
            signs: Sequence[bool] = (False, tangent.source.static[0].name == "subtract")
        elif args := operands_of(tangent, "negative"):
            signs = (True,)
        else:
            still, rest = self._factors(tangent)
            if still is None:
                yield coefficient, tangent
            else:
                yield from self._summands(self.multiplied(coefficient, still), rest)
            return
        for arg, negated in zip(args, signs, strict=True):
            yield from self._summands(self._negated(coefficient, arg) if negated else coefficient, arg)

    def multiplied(self, coefficient: Value | None, rest: Value) -> Value:
        if coefficient is None or coefficient.literal == 1:
            return rest
        return coefficient if rest.literal == 1 else self.builder.primitive("multiply", coefficient, rest)

    def factors(self, product: Value) -> list[Value]:
        """The factors of a product; what two summands have in common is one: ``a * c + b * c`` is ``c * (a + b)``."""
        return _flattened(product, self._shared)

    def _signed(self, value: Value) -> Sequence[Value]:
        """The factors of a product of two, or of what is negated."""
        inner = operands_of(value, "negative")
        return operands_of(value, "multiply") or (inner and (self._negated(None, value), *inner)) or ()

    def gathered(self, total: Value) -> Value:
        """A sum of two as a product, if both have factors in common."""
        found = self._common(total)
        return self.product_of(found, total.type) if found else total

    def _shared(self, value: Value) -> Sequence[Value]:
        return self._common(value) or self._signed(value)

    def _common(self, value: Value) -> Sequence[Value]:
        """Of two summands with common factors, the sum of what is left of them, and these factors."""
        for name in ("add", "subtract"):
            if args := operands_of(value, name):
                left, right = [_flattened(arg, self._signed) for arg in args]
                common = []
                for factor in list(left):
                    if factor in right:
                        left.remove(factor)
                        right.remove(factor)
                        common.append(factor)
                if common:
                    rest = [self.product_of(factors, value.type) for factors in (left, right)]
                    with decided(self.builder):
                        return [self.builder.primitive(name, *rest), *common]
        return ()

    def product_of(self, factors: Sequence[Value], type: Type) -> Value:
        if not factors:
            return self.builder.literal(1, type)  # type: ignore[arg-type]
        return reduce(partial(self.builder.primitive, "multiply"), factors)

    def _negated(self, coefficient: Value | None, like: Value) -> Value:
        b = self.builder
        if coefficient is None:
            return b.literal(-1, like.type)  # type: ignore[arg-type]
        return b.primitive("negative", coefficient)

    def opened(self, tangent: Value) -> Value:
        """An element of an array that is computed, as it is computed."""
        node = tangent.source
        if node is None or node.op != "index":
            return tangent
        found = self.element(node.args[0], len(node.args) - 1)
        return tangent if found is None else self.at(*found, node.args[1:])

    def element(self, array: Value, axes: int) -> tuple[Value, Loops] | None:
        """The element of an array that loops compute, and these; None if it is something else."""
        loops: Loops = ()
        while len(loops) < axes:
            source = array.source
            if source is None or source.op != "generate" or source.effects or source.partial:
                return None
            loops = (*loops, *source.loop_variables())
            array = source.bodies[0].results[array.position]
        return array, loops

    def at(self, value: Value, loops: Loops, places: Sequence[Value]) -> Value:
        """A value at places of loops; what no direction moves is computed for all places, if it is not cheap."""
        return self.stored.at(value, loops, places)


@dataclass(frozen=True)
class Sums:
    """Sums over one loop variable, of so many terms."""

    tangents: Tangents
    length: Value
    i: Value

    def of(self, tangent: Value) -> Value:
        """The sum of a tangent over the loop."""
        tests, inner = under(tangent)
        outside = [test for test in tests if not self._varies(test)]
        if outside:
            inside = [test for test in tests if self._varies(test)]
            return self.tangents.where(outside, self.of(self.tangents.where(inside, inner)))
        terms = self.tangents.terms(tangent)
        if len(terms) > MOST or not self.tangents.move(tangent):
            return self._loop(tangent)
        found = [self.without_loop(*term) for term in terms]
        totals = [value for value in found if value is not None]
        left = [term for term, value in zip(terms, found, strict=True) if value is None]
        if len(left) == 1:
            product = self.tangents.product(*left[0])
            totals.append(self.of(product) if totals else self._factored(product))
        elif left:
            rest = tangent if not totals else self.tangents.plus([self.tangents.product(*term) for term in left])
            totals.append(self._factored(rest))
        return self.tangents.plus(totals)

    def _factored(self, product: Value) -> Value:
        """The sum of a product: factors that stay the same stand before it.

        Under tests only numbers that are known: another factor may be infinite where the sum is zero.
        """
        tests, inner = under(product)
        factors = self.tangents.factors(inner)
        stay = [factor for factor in factors if not self._varies(factor) and (not tests or _is_finite(factor))]
        if not stay:
            return self._loop(product)
        vary = [factor for factor in factors if factor not in stay]
        if not vary and not tests:
            return self.tangents.product_of([*stay, self._count(product.type)], product.type)
        total = self._loop(self.tangents.where(tests, self.tangents.product_of(vary, product.type)))
        return self.tangents.product_of([*stay, total], product.type)

    def _count(self, type: Type) -> Value:
        """How many iterations there are, as a factor."""
        b = self.tangents.builder
        assert isinstance(type, Scalar)
        return b.primitive(type.name, b.primitive("maximum", self.length, b.literal(0, i64)))

    def without_loop(self, coefficient: Value | None, rest: Value) -> Value | None:
        """The sum of one term, if no loop is left that a direction moves, or it goes over another index."""
        tangents, b = self.tangents, self.tangents.builder
        tests, inner = under(rest)
        where = single(b, self.i, self.length, tests)
        if where is not None:
            product, place = tangents.product(coefficient, inner), where[0]
            if tangents.move(place):
                product = tangents.at(product, ((self.i, self.length),), [place])
            return tangents.where(where[1], b.substitute([product], {self.i: place})[0])
        outside = [test for test in tests if not self._varies(test)]
        inside = [test for test in tests if self._varies(test)]
        if outside:
            value = self.without_loop(coefficient, tangents.where(inside, inner))
            return None if value is None else tangents.where(outside, value)
        if not any(map(tangents.move, inside)):
            if not tangents.move(inner):
                return self._factored(tangents.where(inside, tangents.product(coefficient, inner)))
            if not self._varies(inner):
                one = b.literal(1, inner.type) if coefficient is None else coefficient  # type: ignore[arg-type]
                return tangents.multiplied(self._factored(tangents.where(inside, one)), inner)
        return None if inside else self._opened(coefficient, tangents.opened(inner))

    def _opened(self, coefficient: Value | None, inner: Value) -> Value | None:
        """The same of what is a sum itself: of terms, or over another index."""
        tangents, b = self.tangents, self.tangents.builder
        terms = tangents.terms(inner)
        if len(terms) > MOST:
            return None
        if terms != [(None, inner)]:
            found = []
            for more, rest in terms:
                value = self.without_loop(coefficient if more is None else tangents.multiplied(coefficient, more), rest)
                if value is None:
                    return None
                found.append(value)
            return tangents.plus(found)
        node = inner.source
        if node is None or node.op != "reduce" or len(node.results) > 1 or self._varies(node.args[0]):
            return None
        element, operator = node.bodies
        if element.statements or component_operator(operator) != "add":
            return None
        j, terms = element.binders[0], tangents.terms(element.results[0])
        if len(terms) > MOST or any(self._varies(rest) for _, rest in terms):
            return None
        found, coefficient = [], self._stored(coefficient)
        for more, rest in terms:
            own = tangents.multiplied(coefficient, b.literal(1, rest.type) if more is None else more)  # type: ignore[arg-type]
            found.append(tangents.multiplied(self._factored(own), rest))
        return Sums(tangents, node.args[0], j).of(self.tangents.plus(found))

    def _stored(self, coefficient: Value | None) -> Value | None:
        """A coefficient that is used in another loop around this one: if it is not cheap, it is computed before."""
        if coefficient is None:
            return None
        return self.tangents.at(coefficient, ((self.i, self.length),), [self.i])

    def _varies(self, value: Value) -> bool:
        return self.i.number in value.free

    def _loop(self, value: Value) -> Value:
        """The sum as a loop."""
        b, type = self.tangents.builder, value.type
        assert isinstance(type, Scalar)
        operator = b.body([type, type], lambda x, y: [b.primitive("add", x, y)])
        return b.emit("reduce", (), [self.length, b.literal(0, type)], [b.close((self.i,), (), (value,)), operator])[0]


@contextmanager
def decided(b: Builder) -> Iterator[None]:
    """While this is entered, what is emitted is simplified."""
    outer, b.rule = b.rule, rewrite
    try:
        yield
    finally:
        b.rule = outer


def under(tangent: Value) -> tuple[list[Value], Value]:
    """The tests around a value, elsewhere it is zero, and the value."""
    tests: list[Value] = []
    while (found := tested(tangent)) is not None:
        tests += conjunction(found[0])
        tangent = found[1]
    return tests, tangent


def _without_ones(product: Value) -> Value:
    factors = [factor for factor in operands_of(product, "multiply") or () if factor.literal != 1]
    return factors[0] if len(factors) == 1 else product


def _flattened(value: Value, parts: Callable[[Value], Sequence[Value]]) -> list[Value]:
    """The parts of a value, and theirs, in order; where there are many, some are left as they are."""
    found, waiting = list[Value](), [value]
    while waiting:
        one = waiting.pop()
        inner = parts(one) if len(waiting) + len(found) < MOST else ()
        if inner:
            waiting += reversed(inner)
        else:
            found.append(one)
    return found


def _is_finite(value: Value) -> bool:
    """Whether a value is a known number."""
    return value.literal is not None and math.isfinite(value.literal)


def _is_zero(value: Value) -> bool:
    return value.literal == 0 and not isinstance(value.literal, bool)


def _dim(extent: Value) -> Dim:
    assert extent.dim is not None
    return extent.dim
