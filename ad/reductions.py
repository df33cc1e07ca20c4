"""How a reduce moves with its elements, for the operators that have a rule of their own: + * min max.

The rules are shared by forward and reverse mode. They look at each component of the reduce alone: a reduce of
several values at once, as ``(sum, max)``, has a rule when its operator combines each with its like. (Schenck et al.
2022, section 5.1; the product of the other elements is made without division, so that it is right where an element
is zero or infinite, and to any order.)
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..core.builder import Builder
from ..core.graph import Body, Value
from ..core.types import Scalar, i64
from ..interpreters.simplifying.rules import component_operator

Item = Callable[[Value], Value]

RULES = ("add", "multiply", "minimum", "maximum")


def rule_of(operator: Body, component: int) -> str | None:
    """The primitive that combines one component with its like, if it is one of ``RULES``."""
    name = component_operator(operator, component)
    return name if name in RULES else None


def products_of_others(b: Builder, length: Value, item: Item, type: Scalar) -> Value:
    """For each element the product of all others: of those before it times those behind it."""
    (items,) = b.generate(length, lambda i: [item(i)])
    last = b.primitive("subtract", length, b.literal(1, i64))
    one = b.literal(1, type)

    def behind(i: Value) -> Value:
        return b.primitive("subtract", last, i)

    def products(place: Callable[[Value], Value]) -> Value:
        def step(i: Value, product: Value) -> list[Value]:
            return [b.primitive("multiply", product, b.index(items, [place(i)])), product]

        return b.loop(length, [one], step)[1]

    before, after = products(lambda i: i), products(behind)
    (others,) = b.generate(
        length, lambda i: [b.primitive("multiply", b.index(before, [i]), b.index(after, [behind(i)]))]
    )
    return others


def first_place(b: Builder, length: Value, item: Item, type: Scalar, rule: str) -> tuple[Value, Value]:
    """The first index that attains an extremum, and whether there is one (not without elements).

    Elements are compared with each other and never with the result: what is computed again in another loop may be
    rounded in another way. Where an element is NaN, so is the extremum, and which place is found is not specified.
    """
    better = "less" if rule == "minimum" else "greater"
    worst = b.literal(math.inf if rule == "minimum" else -math.inf, type)

    def choose(v: Value, i: Value, w: Value, j: Value) -> list[Value]:
        tie = b.primitive("logical_and", b.primitive("equal", v, w), b.primitive("less_equal", i, j))
        stays = b.primitive("logical_or", b.primitive(better, v, w), tie)
        return list(b.cond(stays, lambda: [v, i], lambda: [w, j]))

    _, first = b.reduce(length, [worst, length], lambda i: [item(i), i], choose)
    return first, b.primitive("less", first, length)
