"""Forward mode along unit vectors: what a direction does not need is left out, what no direction moves stands apart.

A column of a Jacobian is the tangent along one axis, ``x_bar[i] = 1 if i = j else 0``. What such a tangent is
multiplied with matters at one place only. So a tangent of the form ``t if test else 0`` keeps it: a linear function
goes into the branch, an element is read where its array is zero elsewhere, and a sum over the test is one term:

    sum(k < m: a[i, k] * (1 if k = j else 0))            a[i, j]
    c * ((1 if i = j) - (1 if k = j)) + (d if k = j)     (c if i = j) + (d - c if k = j)

Terms under one test are added under it, as in the second line; terms whose tests differ are multiplied together. The
zeros are those of a branch that is not taken: they stay zero when multiplied with an infinity. (Shaikhha et al.
2019, rules 8d and 8e, which do this by rewriting afterwards.)

Under its tests a tangent is a *coefficient*, which no direction moves, times the rest. Linear functions apply to the
coefficient, which is computed once for all directions (``scalar_expansion.py``). How sums are taken is in
``sums_of_tangents.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..core.builder import Builder
from ..core.dims import Dim
from ..core.graph import Body, Value
from ..core.types import Scalar, element
from ..interpreters.simplify.costs import CHEAP, nodes_within, own_cost
from ..interpreters.simplify.deltas import tested
from .duals import Atom, Block, Dual, Duals, Linear, Operation, Pick
from .forward import Forward
from .sums_of_tangents import MOST, Sums, Tangents, decided


class Directions(Forward):
    """Forward mode beside the primal, which checks requirements and shows probes."""

    def __init__(self, builder: Builder) -> None:
        super().__init__(builder)
        self.checks = False
        self.tangents = Tangents(builder)

    def duals(self, values: Sequence[Value], active: Pick) -> list[Dual]:
        made = super().duals(values, active)
        self.tangents.bind([dual.tangent for dual in made if dual.tangent is not None])
        return made

    def along(self, value: Value, places: Sequence[Value]) -> Value:
        """The tangent of a value along one axis: one at these places, elsewhere zero."""
        b = self.builder
        one, zero = (b.literal(number, element(value.type)) for number in (1, 0))
        self.tangents.bind(places)

        def chosen(pairs: Sequence[tuple[Value, Value]]) -> Value:
            if not pairs:
                return one
            test = b.primitive("equal", *pairs[-1])
            return b.cond(test, lambda: [chosen(pairs[:-1])], lambda: [zero])[0]

        def at(*indices: Value) -> Value:
            return chosen(list(zip(indices, places, strict=True)))

        return b.array(b.sizes(value), at)

    def sum_of(self, shares: Sequence[tuple[Linear, Value]]) -> Value:
        """Linear functions of coefficients, by the tests and by what is multiplied with them."""
        under: dict[Value, list[tuple[Linear, Value]]] = {}
        by_rest: dict[Value | None, list[tuple[Linear, Value]]] = {}
        for rule, tangent in self._split(shares):
            if (found := tested(tangent)) is not None:
                under.setdefault(found[0], []).append((rule, found[1]))
            else:
                coefficient, rest = self.tangents.apart(tangent)
                by_rest.setdefault(rest, []).append((rule, coefficient))
        with decided(self.builder):  # coefficients are folded
            coefficients = [super(Directions, self).sum_of(some) for some in by_rest.values()]
        made = list(map(self.tangents.times, coefficients, by_rest))
        made += [self.tangents.where([test], self.sum_of(inner)) for test, inner in under.items()]
        return self.tangents.plus(made)

    def _split(self, shares: Sequence[tuple[Linear, Value]]) -> Sequence[tuple[Linear, Value]]:
        """The shares, of which sums are their terms if a test is that of terms in several: these are added under it."""
        terms = [[self.tangents.product(*term) for term in self.tangents.terms(tangent)] for _, tangent in shares]
        tests = [{found[0] for term in some if (found := tested(term)) is not None} for some in terms]
        common = Counter([test for some in tests for test in some])
        made: list[tuple[Linear, Value]] = []
        for share, some, own in zip(shares, terms, tests, strict=True):
            is_split = len(some) <= MOST and any(common[test] > 1 for test in own)
            made += [(share[0], term) for term in some] if is_split else [share]
        return made

    def element_of(self, tangent: Value, places: Sequence[Value]) -> Value:
        """The element computed where it is read, if it is zero but for a test, or cheap but for a coefficient."""
        found = self.tangents.element(tangent, len(places))
        if found is None:
            return super().element_of(tangent, places)
        value, loops = found
        inside = frozenset([binder.number for binder, _ in loops])
        moving = [node for node in nodes_within([value], inside) if self.tangents.move(node)]
        single = tested(value) is not None or sum(map(own_cost, moving)) <= CHEAP
        if not single or any(not node.row.elementwise for node in moving):
            return super().element_of(tangent, places)
        return self.tangents.at(value, loops, places)

    def sum_over(self, length: Value, tangents: Body, type: Scalar) -> Value:
        """Without the loop over what directions choose."""
        return Sums(self.tangents, length, tangents.binders[0]).of(tangents.results[0])

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Block) -> Operation:
        """A tangent to which each step adds what needs no state is a sum."""
        plain = super().loop(dim, extent, initials, body)

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            duals, length = plain.run(env, active), extent(env).primal
            states = [
                dual if dual.tangent is None else replace(dual, tangent=self._added(length, dual.tangent))
                for dual in duals[: len(initials)]
            ]
            return [*states, *duals[len(initials) :]]

        return replace(plain, run=run)

    def _added(self, length: Value, tangent: Value) -> Value:
        """The last tangent of a loop, as a sum if it is one."""
        node = tangent.source
        if node is None or node.op != "loop" or node.effects or not isinstance(tangent.type, Scalar):
            return tangent
        (body,), k = node.bodies, tangent.position
        (i, *states), result = body.binders, body.results[tangent.position]
        terms = self.tangents.terms(result)
        added = [term for term in terms if term != (None, states[k])]
        if not added or len(added) + 1 != len(terms) or len(terms) > MOST:
            return tangent
        total = self.tangents.plus([self.tangents.product(*term) for term in added])
        if any(state.number in total.free for state in states):
            return tangent
        return self.tangents.plus([node.args[1 + k], Sums(self.tangents, length, i).of(total)])
