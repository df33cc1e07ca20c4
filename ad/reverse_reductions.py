"""The return sweeps of what combines elements with an operator: reduce, scan and histogram.

Each component of a result is looked at alone where the operator combines it with its like and nothing else. Sums,
minima and maxima have rules of their own (``reductions.py``), and so have reductions and histograms whose operator
gives back one of its operands. For the rest:

=============================  =====================================================================================
reduce, one number an element  the cotangents of a scan of which only the last result is used (``recurrences.py``)
reduce, more numbers           ``y = l op a op r``: two exclusive scans give l and r of all elements, which are constant
scan                           the linear recurrence of transposed Jacobians from the end (``recurrences.py``)
histogram                      one reduction a bin: sorted by bin, stably, the two scans of a reduce are segmented
=============================  =====================================================================================

(Schenck et al. 2022, sections 5.1 and 5.2.) A product has no rule: the general one multiplies what is before by what
is behind, ``a_bar[i] = (a[0] ... a[i-1]) (a[i+1] ... a[n-1]) y_bar``. There is no division, so it is right where
elements are zero or infinite; and since these are scans, it is right to any order. The rule of that paper, which counts
zeros, is not: where one element is zero, it is constant, but the product of the others still moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from ..core.builder import Builder
from ..core.environment import Env
from ..core.graph import Body, Value
from ..core.types import Scalar, i64, is_float
from ..interpreters.simplify.accumulators import plus
from ..interpreters.simplify.deltas import in_range
from .cells import Entry
from .operators import At, Cotangents, CotangentsAt, Element, Operator
from .recurrences import Recurrence
from .reductions import Choice, chosen_places, first_places, rule_of
from .reverse_meanings import Block, Emission


@dataclass
class Reduction:
    """The return sweep of a reduce; ``values`` are its results."""

    reverse: Emission
    env: Env[Entry]
    length: Value
    neutrals: Sequence[Value]
    element: Block
    operator: Block
    values: Sequence[Value]

    def pull(self, cotangents: Cotangents) -> None:
        if (choice := self._choice) is not None:
            self._at_chosen(choice, cotangents)
            return
        added, extreme, general = self._by_rule(cotangents)
        for k, (cotangent, rule) in extreme.items():
            self._at_first(k, cotangent, rule)
        op, at = self._operator, self._stored
        ways: list[CotangentsAt] = [lambda i: added] if _any(added) else []
        for k, *others in self._groups(general):
            if not others and isinstance(self.neutrals[k].type, Scalar):
                running = op.running(self.length, at)
                total = Recurrence(op, self.length, running, at, [k]).from_last(_known(general[k]))
                ways.append(self._after(running, total))
                general[k] = None
        if _any(general):
            before, behind = op.before(self.length, at), op.behind(self.length, at)
            ways.append(lambda i: op.pull_middle(before(i), at(i), behind(i), general))
        self._everywhere(ways)

    # The components of results and elements

    @property
    def _operator(self) -> Operator:
        return Operator(self.reverse, self.env, self.operator, self.neutrals)

    @property
    def _body(self) -> Body | None:
        source = self.values[0].source
        return None if source is None or len(source.bodies) != 2 else source.bodies[1]

    @property
    def _choice(self) -> Choice | None:
        return None if self._body is None else Choice.of(self._body)

    def _by_rule(
        self, cotangents: Cotangents
    ) -> tuple[list[Value | None], dict[int, tuple[Value, str]], list[Value | None]]:
        """The cotangents of sums; of extrema, with the name of the rule; and of all others."""
        added: list[Value | None] = [None] * len(cotangents)
        general = list(cotangents)
        extreme: dict[int, tuple[Value, str]] = {}
        for k, cotangent in enumerate(cotangents):
            rule = None if self._body is None or cotangent is None else rule_of(self._body, k)
            if rule == "add":
                added[k], general[k] = cotangent, None
            elif rule is not None:
                extreme[k], general[k] = (_known(cotangent), rule), None
        return added, extreme, general

    def _components(self, wanted: Sequence[int]) -> list[int]:
        """The floating components that cotangents of some results reach."""
        floating = [k for k, unit in enumerate(self.neutrals) if is_float(unit.type)]
        body, reached = self._body, set(wanted)
        if body is None:
            return floating
        while True:
            used = frozenset().union(*[body.results[k].free for k in reached])
            mates = [{binder.number for binder in body.binders[k :: len(self.neutrals)]} for k in floating]
            more = {k for k, own in zip(floating, mates, strict=True) if own & used} - reached
            if not more:
                return sorted(reached)
            reached |= more

    def _groups(self, cotangents: Cotangents) -> list[list[int]]:
        """Components that cotangents reach together, in groups that have nothing to do with each other."""
        groups: list[set[int]] = []
        for k, cotangent in enumerate(cotangents):
            if cotangent is not None:
                own = set(self._components([k]))
                own = own.union(*[group for group in groups if group & own])
                groups = [*[group for group in groups if not group & own], own]
        return [sorted(group) for group in groups]

    # The return sweep of elements

    def _items(self, i: Value) -> Element:
        return self.element.primal(self.env, [i])

    @property
    def _stored(self) -> At:
        return self._operator.stored(self.length, self._items)

    def _after(self, running: At, total: CotangentsAt) -> CotangentsAt:
        """The cotangents of elements from those of what is combined up to them."""
        op, at = self._operator, self._stored
        return lambda i: op.pull_after(i, running, at(i), total(i))

    def sweep(self, i: Value, cotangents: Cotangents) -> Sequence[Value]:
        """The return sweep of element i."""
        self.element.run(self.env, self.reverse.constants([i]))[1](cotangents)
        return []

    def _everywhere(self, ways: Sequence[CotangentsAt]) -> None:
        """The return sweep of all elements, whose cotangents are found in some ways, by component."""
        if ways:
            b = self.reverse.builder
            self.reverse.sweep.enclose(lambda: b.generate(self.length, lambda i: self.sweep(i, _merged(b, ways, i))))

    def _at_first(self, component: int, cotangent: Value, rule: str) -> None:
        """Only the first element that attains the extremum, if there is one (Schenck et al. 2022, 5.1.1: sparsity)."""
        b = self.reverse.builder
        first = first_places(
            b, rule, self.length, lambda i: self._items(i)[component], self.neutrals[component].type, b.reduce
        )
        self._if_found(first, self._only(component, cotangent))

    def _at_chosen(self, choice: Choice, cotangents: Cotangents) -> None:
        """Only the element that the operator has given back."""
        b = self.reverse.builder
        self._if_found(chosen_places(b, choice, self.length, self._items, self.neutrals, b.reduce), cotangents)

    def _if_found(self, place: Value, cotangents: Cotangents) -> Sequence[Value]:
        """The return sweep of the element at a place, if there is one."""
        b = self.reverse.builder
        found = b.primitive("less", place, self.length)
        return self.reverse.sweep.enclose(lambda: b.cond(found, lambda: self.sweep(place, cotangents), lambda: []))

    def _only(self, component: int, cotangent: Value) -> list[Value | None]:
        return [cotangent if k == component else None for k in range(len(self.values))]


class Scan(Reduction):
    """The return sweep of a scan. Those of running extrema are found by the recurrence, whose factors are 0 and 1."""

    def pull(self, cotangents: Cotangents) -> None:
        b = self.reverse.builder
        added, extreme, general = self._by_rule(cotangents)
        for k, (cotangent, _) in extreme.items():
            general[k] = cotangent
        ways: list[CotangentsAt] = []
        sums = [k for k, cotangent in enumerate(added) if cotangent is not None]
        if sums:
            ways.append(self._recurrence(sums).by_sums(self._arrived(added)))
        totals = [self._recurrence(group).cotangents(self._arrived(general)) for group in self._groups(general)]
        if totals:
            ways.append(self._after(self._results, lambda i: _merged(b, totals, i)))
        self._everywhere(ways)

    def _results(self, i: Value) -> Element:
        return [self.reverse.builder.part(value, [i]) for value in self.values]

    def _arrived(self, cotangents: Cotangents) -> CotangentsAt:
        return lambda i: [None if g is None else self.reverse.builder.part(g, [i]) for g in cotangents]

    def _recurrence(self, moving: Sequence[int]) -> Recurrence:
        return Recurrence(self._operator, self.length, self._results, self._stored, moving)


@dataclass
class Histogram(Reduction):
    """The return sweep of a histogram; an element is its bin and its values."""

    bins: Value

    def pull(self, cotangents: Cotangents) -> None:
        if (choice := self._choice) is not None:
            self._at_chosen(choice, cotangents)
            return
        added, extreme, general = self._by_rule(cotangents)
        for k, (cotangent, rule) in extreme.items():
            self._at_first(k, cotangent, rule)
        b = self.reverse.builder
        if _any(added):

            def gather(i: Value) -> Sequence[Value]:
                place = self._bin(i)
                return self._inside(place, lambda: self.sweep(i, self._at(added, place)))

            self.reverse.sweep.enclose(lambda: b.generate(self.length, gather))
        if _any(general):
            self._sorted(general)

    def _items(self, i: Value) -> Element:
        return super()._items(i)[1:]

    def _bin(self, i: Value) -> Value:
        return super()._items(i)[0]

    def sweep(self, i: Value, cotangents: Cotangents) -> Sequence[Value]:
        return super().sweep(i, [None, *cotangents])

    def _at(self, cotangents: Cotangents, place: Value) -> Cotangents:
        return [None if g is None else self.reverse.builder.part(g, [place]) for g in cotangents]

    def _inside(self, place: Value, sweep: Callable[[], Sequence[Value]]) -> Sequence[Value]:
        """Run a return sweep where a place is a bin."""
        b = self.reverse.builder
        return self.reverse.sweep.enclose(lambda: b.cond(in_range(b, [place], [self.bins]), sweep, lambda: []))

    def _at_first(self, component: int, cotangent: Value, rule: str) -> None:
        """Only the first element of each bin that attains its extremum."""
        b = self.reverse.builder
        item, type = (lambda i: self._items(i)[component]), self.neutrals[component].type
        firsts = first_places(b, rule, self.length, item, type, self._by_bin)
        self._in_each_bin(firsts, self._only(component, cotangent))

    def _at_chosen(self, choice: Choice, cotangents: Cotangents) -> None:
        """Only the element of each bin that the operator has given back."""
        b = self.reverse.builder
        places = chosen_places(b, choice, self.length, self._items, self.neutrals, self._by_bin)
        self._in_each_bin(places, cotangents)

    def _by_bin(self, length: Value, neutrals: Sequence[Value], at: At, op: Callable[..., Element]) -> Sequence[Value]:
        b = self.reverse.builder
        return b.histogram(self.bins, length, neutrals, lambda i: [self._bin(i), *at(i)], op)

    def _in_each_bin(self, places: Value, cotangents: Cotangents) -> None:
        """The return sweep of one element of each bin."""
        b = self.reverse.builder

        def sweep(bin: Value) -> Sequence[Value]:
            return self._if_found(b.index(places, [bin]), self._at(cotangents, bin))

        self.reverse.sweep.enclose(lambda: b.generate(self.bins, sweep))

    def _sorted(self, cotangents: Cotangents) -> None:
        """By a stable sort of the bins: each is then a segment."""
        b, op = self.reverse.builder, self._operator
        one = b.literal(1, i64)
        (places,) = b.generate(self.length, lambda i: [self._bin(i)])
        (order,) = b.emit("argsort", (), [places])
        at = op.stored(self.length, lambda j: self._items(b.index(order, [j])))
        (sorted_places,) = b.generate(self.length, lambda j: [b.index(places, [b.index(order, [j])])])

        def differs(j: Value, k: Value) -> Value:
            return b.primitive("not_equal", b.index(sorted_places, [j]), b.index(sorted_places, [k]))

        def starts(j: Value) -> Value:
            first = b.primitive("less", j, one)
            return b.primitive("logical_or", first, differs(j, b.primitive("subtract", j, one)))

        def ends(j: Value) -> Value:
            behind = b.primitive("add", j, one)
            last = b.primitive("greater_equal", behind, self.length)
            return b.primitive("logical_or", last, differs(j, behind))

        before, behind = op.before(self.length, at, starts), op.behind(self.length, at, ends)

        def sweep(j: Value) -> Sequence[Value]:
            place = b.index(sorted_places, [j])

            def inside() -> Sequence[Value]:
                given = op.pull_middle(before(j), at(j), behind(j), self._at(cotangents, place))
                return self.sweep(b.index(order, [j]), given)

            return self._inside(place, inside)

        self.reverse.sweep.enclose(lambda: b.generate(self.length, sweep))


def _any(cotangents: Cotangents) -> bool:
    return any(cotangent is not None for cotangent in cotangents)


def _known(cotangent: Value | None) -> Value:
    assert cotangent is not None
    return cotangent


def _merged(b: Builder, ways: Sequence[CotangentsAt], i: Value) -> list[Value | None]:
    """The cotangents at a place that come in several ways, by component."""
    found = [[value for value in values if value is not None] for values in zip(*[way(i) for way in ways], strict=True)]
    return [reduce(partial(plus, b), values) if values else None for values in found]
