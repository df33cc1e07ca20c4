"""How reductions move with their elements, for the operators that have a rule of their own: + min max, and choices.

The rules are shared by forward and reverse mode, and by reduce, scan and histogram. They look at each component
alone: a reduce of several values at once, as ``(sum, max)``, has rules when its operator combines each with its like.
A sum moves with all elements alike; elements may be arrays. An extremum moves with the first element that attains it,
in the order of the elements, and with no other; that of no elements is constant. (Schenck et al. 2022, section 5.1.)
A *choice* is an operator that gives back one of its operands, whole, by a test. Its reduction is one of the elements,
and moves with that alone: ``where(p > q, p, q)``, or the largest number together with its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core.builder import Builder
from ..core.graph import Body, Value
from ..core.types import Type, element
from ..interpreters.simplify.rules import component_operator

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


@dataclass(frozen=True)
class Choice:
    """An operator that gives back its left operand where a test holds (or does not), and else the right one."""

    operator: Body
    test: Value
    wanted: bool

    @staticmethod
    def of(operator: Body) -> Choice | None:
        """The operator as a choice, if it is one."""
        first = operator.results[0].source
        if first is None or first.op != "cond" or operator.statements:
            return None
        count, test = len(operator.results), first.args[0]
        left, right = operator.binders[:count], operator.binders[count:]
        branches: tuple[list[Value], list[Value]] = [], []
        for result in operator.results:
            node = result.source
            if node is None or node.op != "cond" or node.args[0] is not test or node.effects:
                return None
            for branch, body in zip(branches, node.bodies, strict=True):
                branch.append(body.results[result.position])
        for wanted, (then, orelse) in ((True, branches), (False, branches[::-1])):
            if then == [*left] and orelse == [*right]:
                return Choice(operator, test, wanted)
        return None

    def stays(self, b: Builder, left: Sequence[Value], right: Sequence[Value]) -> Value:
        """Whether the left one of two operands is given back."""
        (test,) = b.substitute([self.test], dict(zip(self.operator.binders, [*left, *right], strict=True)))
        return test if self.wanted else b.primitive("logical_not", test)


def chosen_places(
    b: Builder,
    choice: Choice,
    length: Value,
    items: Callable[[Value], Sequence[Value]],
    neutrals: Sequence[Value],
    combine: Callable[..., Sequence[Value]],
) -> Value:
    """The index of the element that a choice gives back; the number of elements where there are none.

    ``combine`` is as in :func:`first_places`. The neutral element, which may be as good as an element, is never chosen.
    """

    def choose(*both: Value) -> list[Value]:
        half = len(both) // 2
        (*v, i), (*w, j) = both[:half], both[half:]
        stays = b.primitive("logical_or", b.primitive("equal", j, length), choice.stays(b, v, w))
        stays = b.primitive("logical_and", b.primitive("not_equal", i, length), stays)
        return list(b.cond(stays, lambda: both[:half], lambda: both[half:]))

    return combine(length, [*neutrals, length], lambda i: [*items(i), i], choose)[-1]


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
        # It commutes, also where NaN is no better than anything, so that lanes may search side by side.
        as_good = b.primitive("logical_not", b.primitive(better, w, v))
        first = b.primitive("logical_and", as_good, b.primitive("less_equal", i, j))
        stays = b.primitive("logical_or", b.primitive(better, v, w), first)
        return list(b.cond(stays, lambda: [v, i], lambda: [w, j]))

    return combine(length, [worst, length], lambda i: [item(i), i], choose)[1]
