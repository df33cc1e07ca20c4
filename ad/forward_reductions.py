"""Forward mode of what combines elements: reduce, scan and histogram over duals.

The elements are emitted once, each with its tangents. Then, where every operand moves alike, by component:

=============  =========================================================================================
``y = sum a``  ``dy = sum da``, a sum of its own (reduce only: in a scan or histogram, the next line)
any operator   the operator on duals, which is associative as the operator is: ``(y, dy) = op((a, da) ...)``
min, max       ``dy = da[k]`` for the first element ``k`` that attains the extremum; 0 if there is none
choices        ``dy = da[k]`` for the element ``k`` that the operator gives back
=============  =========================================================================================

Of the neutral element and an element that is equal to it, the operator on duals would take the tangent of the former;
so extrema that no other component needs have a rule, and so have choices between numbers. (Schenck et al. 2022,
sections 3 and 5.1.1.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.constructs import Construct
from ..core.dims import Dim
from ..core.graph import Body, Node, Value, numbers
from ..core.types import Scalar, i64
from ..core.types import element as scalar_of
from ..interpreters.simplify.accumulators import plus, zeros_like
from .duals import Block, Dual, Duals, Emission, Pick
from .reductions import EXTREMES, Choice, chosen_places, first_places, rule_of


@dataclass
class Combination(ABC):
    """A construct of so many elements over duals; ``active`` says which components have tangents."""

    forward: Emission
    construct: Construct
    env: Duals
    extents: Sequence[Value]
    units: Sequence[Dual]
    element: Block
    operator: Block
    active: Pick
    body: Body = field(init=False)  # of an element: where it goes, the values, the tangents of the active ones

    def __post_init__(self) -> None:
        b = self.forward.builder

        def at(i: Value) -> list[Value]:
            found = self.element.run(self.env, self.forward.constants([i]))
            places, values = found[: self.places], found[self.places :]
            return [*[dual.primal for dual in places], *self.forward.flat(values, self.active)]

        extents = [_dim(self.length)]
        self.body = b.body([i64], at, extents=extents)
        bound = numbers((), self.body.statements)
        if any(not result.free.isdisjoint(bound) for result in self.body.results):  # probes run once
            stored = b.emit("generate", (extents[0],), [self.length], [self.body])
            self.body = b.body([i64], lambda i: [b.part(array, [i]) for array in stored], extents=extents)

    @property
    def length(self) -> Value:
        """The number of elements."""
        return self.extents[-1]

    @property
    def places(self) -> int:
        """How many numbers of an element say where it goes."""
        return int(self.construct.places)

    def push(self) -> Sequence[Dual]:
        """The results, with the tangents of the active ones."""
        extremes = self._extremes()
        rest = [moves and k not in extremes for k, moves in enumerate(self.active)]
        made = self.by_operator(rest)
        tangents = {k: dual.tangent for k, dual in enumerate(made) if rest[k]}
        tangents.update({k: self.extreme(k, rule) for k, rule in extremes.items()})
        moved = [self.forward.tangent(made[k]) if t is None else t for k, t in sorted(tangents.items())]
        return self.forward.duals([*[dual.primal for dual in made], *moved], self.active)

    def by_operator(self, moving: Pick) -> Sequence[Dual]:
        """The operator on duals, of which these components have tangents."""
        values = self.combined(
            self.forward.flat(self.units, moving),
            self.elements([*self.primals, *self.moving(moving)], self.body.statements),
            self.operator_on(moving),
        )
        return self.forward.duals(values, moving)

    def combined(self, neutrals: Sequence[Value], elements: Body, operator: Body) -> Sequence[Value]:
        """The construct over such elements."""
        return self.forward.builder.combined(self.construct.name, self.extents, neutrals, [elements, operator])

    @abstractmethod
    def extreme(self, component: int, rule: str | Choice) -> Value:
        """The tangent of a minimum or maximum, or of what is chosen."""

    # What elements are made of

    @property
    def primals(self) -> Sequence[Value]:
        return self.body.results[self.places : self.places + len(self.units)]

    def moving(self, moving: Pick) -> list[Value]:
        """The tangents of these components of an element."""
        return [self.tangent(k) for k, moves in enumerate(moving) if moves]

    def tangent(self, component: int) -> Value:
        return self.body.results[self.places + len(self.units) + sum(self.active[:component])]

    def tangent_at(self, component: int, place: Value) -> Value:
        """The tangent of the element at a place, zero where there is none."""
        b, zero = self.forward.builder, scalar_of(self.units[component].primal.type)
        found = b.primitive("less", place, self.length)
        moved = {self.body.binders[0]: place}
        return b.cond(found, lambda: b.substitute([self.tangent(component)], moved), lambda: [b.literal(0, zero)])[0]

    def elements(self, results: Sequence[Value], statements: tuple[Node, ...] = ()) -> Body:
        """The body of elements with these values."""
        places = self.body.results[: self.places]
        return self.forward.builder.close(self.body.binders, statements, (*places, *results), self.body.partial)

    def first(self, component: int, rule: str | Choice) -> Value:
        """The places of the first elements that attain an extremum, or of those that are chosen."""
        b, (i,) = self.forward.builder, self.body.binders

        def combine(length: Value, units: Sequence[Value], at: Any, choose: Any) -> Sequence[Value]:
            types = [unit.type for unit in units]
            return self.combined(units, self.elements(at(i)), b.body([*types, *types], choose))

        if isinstance(rule, Choice):
            neutrals = [unit.primal for unit in self.units]
            return chosen_places(b, rule, self.length, lambda i: self.primals, neutrals, combine)
        value = self.primals[component]
        return first_places(b, rule, self.length, lambda i: value, self.units[component].primal.type, combine)

    # The operator

    def operator_on(self, moving: Pick) -> Body:
        """The operator on duals, of which these components have tangents."""
        types = [value.type for value in self.forward.flat(self.units, moving)]

        def run(*values: Value) -> list[Value]:
            halves = values[: len(types)], values[len(types) :]
            operands = [dual for half in halves for dual in self.forward.duals(half, moving)]
            return self.forward.flat(self.operator.run(self.env, operands), moving)

        return self.forward.builder.body([*types, *types], run)

    def _extremes(self) -> dict[int, str | Choice]:
        """The active components that are extrema and that no other active one needs, with the name of their rule.

        All of them, if the operator is a choice between numbers.
        """
        found: dict[int, str | Choice] = {}
        rules = self.rules(self.active)
        if rules and all(isinstance(unit.primal.type, Scalar) for unit in self.units):
            choice = Choice.of(self._plain)
            if choice is not None:
                return dict.fromkeys(rules, choice)
        for k, rule in rules.items():
            if rule in EXTREMES:
                own = {binder.number for binder in self._plain.binders[k :: len(self.active)]}
                others = [result.free for n, result in enumerate(self._plain.results) if n != k and self.active[n]]
                if all(own.isdisjoint(free) for free in others):
                    found[k] = rule
        return found

    def rules(self, moving: Pick) -> dict[int, str | None]:
        """The rules of some components, None where there is none."""
        if any(moving):
            self._plain = self.operator_on([False] * len(self.active))
        return {k: rule_of(self._plain, k) for k, moves in enumerate(moving) if moves}


class Reduction(Combination):
    def by_operator(self, moving: Pick) -> Sequence[Dual]:
        """Sums have sums of tangents beside them."""
        if not all(rule == "add" for rule in self.rules(moving).values()):
            return super().by_operator(moving)
        made = super().by_operator([False] * len(moving))
        sums = [self._sum(k, made[k].primal) for k, moves in enumerate(moving) if moves]
        return self.forward.duals([*[dual.primal for dual in made], *sums], moving)

    def _sum(self, component: int, total: Value) -> Value:
        tangents = self.elements([self.tangent(component)])
        if isinstance(total.type, Scalar):
            return self.forward.sum_over(self.length, tangents, total.type)
        b = self.forward.builder
        operator = b.body([total.type, total.type], lambda x, y: [plus(b, x, y)])
        return self.combined([zeros_like(b, total)], tangents, operator)[0]

    def extreme(self, component: int, rule: str | Choice) -> Value:
        return self.tangent_at(component, self.first(component, rule))


class Scan(Combination):
    def extreme(self, component: int, rule: str | Choice) -> Value:
        """Each of the tangents is read by many results: they are stored."""
        b, firsts = self.forward.builder, self.first(component, rule)
        element = self.elements([self.tangent(component)])
        (stored,) = b.emit("generate", (_dim(self.length),), [self.length], [element])

        def at(i: Value) -> Value:
            first = b.index(firsts, [i])
            zero = b.literal(0, scalar_of(stored.type))
            found = b.primitive("less", first, self.length)
            return b.cond(found, lambda: [b.index(stored, [first])], lambda: [zero])[0]

        return b.array([self.length], at)


class Histogram(Combination):
    """Tangents go to the bins of their primals."""

    def extreme(self, component: int, rule: str | Choice) -> Value:
        b, firsts = self.forward.builder, self.first(component, rule)
        return b.array(self.extents[:1], lambda place: self.tangent_at(component, b.index(firsts, [place])))


def _dim(extent: Value) -> Dim:
    assert extent.dim is not None
    return extent.dim
