"""Forward mode along unit vectors: tangents that are zero but at one place, and known to be.

A column of a Jacobian is the tangent along one axis, ``x_bar[i] = 1 if i = j else 0``. What such a tangent is
multiplied with matters at one place only. So a tangent of the form ``t if test else 0`` keeps it: a linear function
goes into the branch, an element is read where its array is zero elsewhere, and a sum over the test is one term:

    sum(k < m: a[i, k] * (1 if k = j else 0))        a[i, j]

The zeros are those of a branch that is not taken: they stay zero when multiplied with an infinity. (Shaikhha et al.
2019, rules 8d and 8e, which do this by rewriting afterwards.)
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.builder import Builder
from ..core.expr import Expr
from ..core.graph import Body, Value
from ..core.types import Scalar, element
from ..interpreters.simplify.costs import nodes_within
from ..interpreters.simplify.deltas import one_term, tested
from .duals import Linear
from .forward import Forward


class Directions(Forward):
    """Forward mode beside the primal, which checks requirements and shows probes."""

    def __init__(self, builder: Builder) -> None:
        super().__init__(builder)
        self.checks = False

    def sum_of(self, shares: Sequence[tuple[Linear, Value]]) -> Value:
        plain: list[tuple[Linear, Value]] = []
        under: dict[Value, list[tuple[Linear, Value]]] = {}
        for rule, tangent in shares:
            found = tested(tangent)
            if found is None:
                plain.append((rule, tangent))
            else:
                under.setdefault(found[0], []).append((rule, found[1]))
        for test, inner in under.items():
            plain.append((_same, self.where(test, self.sum_of(inner))))
        return super().sum_of(plain)

    def element_of(self, tangent: Value, places: Sequence[Value]) -> Value:
        """The element computed where it is read, if it is zero but for a test."""
        value = tangent
        binders: list[Value] = []
        while len(binders) < len(places):
            source = value.source
            if source is None or source.op != "generate" or source.effects:
                return super().element_of(tangent, places)
            binders.append(source.bodies[0].binders[0])
            value = source.bodies[0].results[value.position]
        inside = frozenset([binder.number for binder in binders])
        if tested(value) is None or any(not node.row.elementwise for node in nodes_within([value], inside)):
            return super().element_of(tangent, places)
        return self.builder.substitute([value], dict(zip(binders, places, strict=True)))[0]

    def sum_over(self, length: Value, tangents: Body, type: Scalar) -> Value:
        """One term, if a test of the elements says which."""
        term = one_term(self.builder, length, tangents)
        return super().sum_over(length, tangents, type) if term is None else term

    def where(self, test: Value, tangent: Value) -> Value:
        """The tangent where a test holds, elsewhere zero."""
        zero = self.builder.literal(0, tangent.type)  # type: ignore[arg-type]
        return self.builder.cond(test, lambda: [tangent], lambda: [zero])[0]


# What an element is made of that may be computed anywhere: scalars


def along(b: Builder, value: Value, places: Sequence[Value]) -> Value:
    """The tangent of a value along one axis: one at these places, elsewhere zero."""
    one, zero = (b.literal(number, element(value.type)) for number in (1, 0))

    def chosen(pairs: Sequence[tuple[Value, Value]]) -> Value:
        if not pairs:
            return one
        test = b.primitive("equal", *pairs[-1])
        return b.cond(test, lambda: [chosen(pairs[:-1])], lambda: [zero])[0]

    def at(*indices: Value) -> Value:
        return chosen(list(zip(indices, places, strict=True)))

    return b.array(b.sizes(value), at)


def _same(tangent: Expr) -> Expr:
    return tangent
