"""How reductions move with their elements, for the operators that have a rule of their own: + min max.

The rules are shared by forward and reverse mode, and by reduce, scan and histogram. They look at each component
alone: a reduce of several values at once, as ``(sum, max)``, has rules when its operator combines each with its like.
A sum moves with all elements alike; elements may be arrays. An extremum moves with the first element that attains it,
in the order of the elements, and with no other; that of no elements is constant. (Schenck et al. 2022, section 5.1.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..core.builder import Builder
from ..core.graph import Body, Value
from ..core.types import Type, element
from ..interpreters.simplifying.rules import component_operator

EXTREMES = ("minimum", "maximum")


def rule_of(operator: Body, component: int) -> str | None:
    """The primitive that combines one component with its like, if it has a rule."""
    name = component_operator(operator, component)
    if name in ("add", *EXTREMES):
        return name
    return "add" if adds_arrays(operator, component) else None


def adds_arrays(operator: Body, component: int) -> bool:
    """Whether a component is an array, and the operator adds it to its like element by element."""
    count = len(operator.results)
    mates, indices = {operator.binders[component], operator.binders[count + component]}, []
    value = operator.results[component]
    while value.source is not None and value.source.op == "generate":
        body = value.source.bodies[0]
        indices.append(body.binders[0])
        value = body.results[value.position]
    if value.source is None or value.source.op != "primitive" or value.source.static[0].name != "add":
        return False
    reads = [operand.source for operand in value.source.args]
    return (
        bool(indices)
        and all(read is not None and read.op == "index" and list(read.args[1:]) == indices for read in reads)
        and {read.args[0] for read in reads if read is not None} == mates
    )


def first_places(
    b: Builder,
    rule: str,
    length: Value,
    item: Callable[[Value], Value],
    type: Type,
    combine: Callable[..., Sequence[Value]],
) -> Value:
    """The first index that attains an extremum; the number of elements where there are none.

    ``combine(length, neutrals, elements, operator)`` is the reduction, scan or histogram whose extrema these are.
    Elements are compared with each other and never with the result: what is computed again in another loop may be
    rounded in another way. Where an element is NaN, so is the extremum, and which place is found is not specified.
    """
    better = "less" if rule == "minimum" else "greater"
    worst = b.literal(math.inf if rule == "minimum" else -math.inf, element(type))

    def choose(v: Value, i: Value, w: Value, j: Value) -> list[Value]:
        tie = b.primitive("logical_and", b.primitive("equal", v, w), b.primitive("less_equal", i, j))
        stays = b.primitive("logical_or", b.primitive(better, v, w), tie)
        return list(b.cond(stays, lambda: [v, i], lambda: [w, j]))

    return combine(length, [worst, length], lambda i: [item(i), i], choose)[1]
