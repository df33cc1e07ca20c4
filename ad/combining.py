"""The return sweeps of what combines elements with an operator: reduce, scan and histogram.

An element ``a`` of a reduction stands between what is combined before it and what comes behind it, ``y = l op a op r``
with l and r constant, so two exclusive scans and a map give all cotangents. A free variable of the operator gets its
cotangent from ``l op a`` alone, in each place (Schenck et al. 2022, section 5.1). A histogram is one reduction a bin:
elements are sorted by bin, stably, and the scans are segmented (5.1.2). The cotangents of a scan's results satisfy a
linear recurrence from the end, whose factors are the transposed Jacobians of the operator: itself a scan, of affine
maps (5.2); where an element has more than a few numbers, a loop. Operators such as + and min have rules of their own
(``reductions.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..core.builder import Builder
from ..core.environment import Env
from ..core.graph import Value
from ..core.types import Scalar, element, i64, is_float
from ..interpreters.simplifying.accumulators import plus, zeros_like
from .reductions import first_place, products_of_others, rule_of

if TYPE_CHECKING:
    from .cells import Entry
    from .reverse import Block, Reverse

Element = list[Value]
At = Callable[[Value], Element]
Cotangents = Sequence[Value | None]
CotangentsAt = Callable[[Value], Cotangents]

# A scan over elements of at most so many numbers is differentiated by a scan of affine maps, else by a loop.
NUMBERS = 3


class Combining:
    """The operator of a reduction, with the elements it combines, while a return sweep is made."""

    def __init__(self, reverse: Reverse, env: Env[Entry], operator: Block, neutrals: Sequence[Value]) -> None:
        self.reverse, self.builder = reverse, reverse.builder
        self.env, self.operator, self.neutrals = env, operator, list(neutrals)
        self.fixed = _without_cells(env)

    # The operator, and its pull

    def combined(self, a: Sequence[Value], b: Sequence[Value]) -> Element:
        return self.operator.primal(self.fixed, [*a, *b])

    def pull_right(self, left: Element, right: Element, cotangents: Cotangents) -> list[Value | None]:
        """The cotangent of the right operand; free variables of the operator get theirs."""
        return self._pull(self.env, left, right, cotangents, False)

    def pull_left(self, left: Element, right: Element, cotangents: Cotangents) -> list[Value | None]:
        """The cotangent of the left operand, and of nothing else."""
        return self._pull(self.fixed, left, right, cotangents, True)

    def _pull(
        self, env: Env[Entry], left: Element, right: Element, cotangents: Cotangents, wanted_left: bool
    ) -> list[Value | None]:
        entries = self.reverse.constants([*left, *right])
        own = entries[: len(left)] if wanted_left else entries[len(left) :]
        cells = self.reverse.give_cells(own)
        self.operator.run(env, entries)[1](cotangents)
        return [None if cell is None else cell.read() for cell in cells]

    def pull_middle(self, before: Element, a: Element, behind: Element, cotangents: Cotangents) -> list[Value | None]:
        """The cotangent of a in ``before op a op behind``; free variables get theirs for the first operator."""
        inner = self.pull_left(self.combined(before, a), behind, cotangents)
        return self.pull_right(before, a, inner)

    # Scans

    def stored(self, length: Value, at: At) -> At:
        """The elements, made once."""
        arrays = self.builder.generate(length, at)
        return lambda i: [self.builder.part(array, [i]) for array in arrays]

    def before(self, length: Value, at: At, starts: Callable[[Value], Value] | None = None) -> At:
        """What is combined before each element; with ``starts``, since the last place where it holds."""
        return self._exclusive(length, at, starts, lambda a, b: self.combined(a, b))

    def behind(self, length: Value, at: At, ends: Callable[[Value], Value] | None = None) -> At:
        """What is combined behind each element; with ``ends``, up to the next place where it holds."""

        def reverse(i: Value) -> Value:
            return self.last_but(length, i)

        flipped = self._exclusive(
            length,
            lambda j: at(reverse(j)),
            None if ends is None else lambda j: ends(reverse(j)),
            lambda a, b: self.combined(b, a),
        )
        return lambda i: flipped(reverse(i))

    def _exclusive(
        self,
        length: Value,
        at: At,
        starts: Callable[[Value], Value] | None,
        combine: Callable[[Element, Element], Element],
    ) -> At:
        b, count = self.builder, len(self.neutrals)
        first = (lambda i: b.primitive("equal", i, b.literal(0, i64))) if starts is None else starts
        if starts is None:
            arrays = b.scan(length, self.neutrals, at, lambda *ab: combine(list(ab[:count]), list(ab[count:])))
        else:

            def segmented(*ab: Value) -> Element:
                left, right = ab[: count + 1], ab[count + 1 :]
                joined = b.cond(right[0], lambda: right[1:], lambda: combine(list(left[1:]), list(right[1:])))
                return [b.primitive("logical_or", left[0], right[0]), *joined]

            false = b.primitive("not_equal", length, length)
            made = b.scan(length, [false, *self.neutrals], lambda i: [starts(i), *at(i)], segmented)
            arrays = made[1:]

        def read(i: Value) -> Element:
            before = b.primitive("subtract", i, b.literal(1, i64))
            return list(b.cond(first(i), lambda: self.neutrals, lambda: [b.part(array, [before]) for array in arrays]))

        return read

    def last_but(self, length: Value, i: Value) -> Value:
        """The place i steps before the last one."""
        b = self.builder
        return b.primitive("subtract", b.primitive("subtract", length, b.literal(1, i64)), i)

    # The cotangents of a scan's results, with what comes from those behind

    def recurrence(self, length: Value, results: At, at: At, arrived: CotangentsAt) -> CotangentsAt:
        """For each place the cotangent of the running result there, all that it is used for counted.

        ``arrived`` gives the cotangents of the scan's own results.
        """
        moving = [k for k, unit in enumerate(self.neutrals) if is_float(unit.type)]
        scalars = all(isinstance(self.neutrals[k].type, Scalar) for k in moving)
        if scalars and len(moving) <= NUMBERS:
            return self._by_scan(length, results, at, arrived, moving)
        return self._by_loop(length, results, at, arrived, moving)

    def sums_from_the_end(self, length: Value, arrived: CotangentsAt, moving: Sequence[int]) -> CotangentsAt:
        """:meth:`recurrence` for sums: each cotangent counts for its place and all before it."""
        b = self.builder

        def element(j: Value) -> list[Value]:
            here = arrived(self.last_but(length, j))
            return [value for value in here if value is not None]

        zeros = [zeros_like(b, self.neutrals[k]) for k in moving]

        def plus_each(*ab: Value) -> list[Value]:
            half = len(ab) // 2
            return [b.primitive("add", x, y) for x, y in zip(ab[:half], ab[half:], strict=True)]

        made = b.scan(length, zeros, element, plus_each)

        return self._from_the_end(length, made, moving)

    def _own(self, arrived: Cotangents, k: int, like: Value) -> Value:
        cotangent = arrived[k]
        return zeros_like(self.builder, like) if cotangent is None else cotangent

    def _by_loop(
        self, length: Value, results: At, at: At, arrived: CotangentsAt, moving: Sequence[int]
    ) -> CotangentsAt:
        b = self.builder

        def step(j: Value, *later: Value) -> list[Value]:
            """The cotangent at a place, and what it gives to the place before."""
            i = self.last_but(length, j)
            before = b.primitive("subtract", i, b.literal(1, i64))
            here = results(i)
            total = [plus(b, self._own(arrived(i), k, here[k]), later[n]) for n, k in enumerate(moving)]
            cotangents: list[Value | None] = [None] * len(here)
            for n, k in enumerate(moving):
                cotangents[k] = total[n]

            def back() -> list[Value]:
                left = results(before)
                given = self.pull_left(left, at(i), cotangents)
                return [self._own(given, k, left[k]) for k in moving]

            first = b.primitive("equal", i, b.literal(0, i64))
            given = b.cond(first, lambda: [zeros_like(b, here[k]) for k in moving], back)
            return [*given, *total]

        starts = [zeros_like(b, self.neutrals[k]) for k in moving]
        made = b.loop(length, starts, step)[len(moving) :]

        return self._from_the_end(length, made, moving)

    def _from_the_end(self, length: Value, arrays: Sequence[Value], moving: Sequence[int]) -> CotangentsAt:
        """The cotangents that arrays hold of the moving components, the last place first."""

        def read(i: Value) -> Cotangents:
            found: list[Value | None] = [None] * len(self.neutrals)
            for k, array in zip(moving, arrays, strict=True):
                found[k] = self.builder.part(array, [self.last_but(length, i)])
            return found

        return read

    def _by_scan(
        self, length: Value, results: At, at: At, arrived: CotangentsAt, moving: Sequence[int]
    ) -> CotangentsAt:
        """A scan of the affine maps from the cotangent behind a place to that of the place."""
        b, d = self.builder, len(moving)
        types = [self.neutrals[k].type for k in moving]

        def zero(k: int) -> Value:
            return zeros_like(b, self.neutrals[moving[k]])

        def one(k: int) -> Value:
            return b.literal(1, types[k])  # type: ignore[arg-type]

        def jacobian(i: Value) -> list[Value]:
            """By rows of what is given: how the cotangent behind moves that of place i."""
            behind = b.primitive("add", i, b.literal(1, i64))
            here = results(i)
            columns = []
            for p in range(d):
                unit: list[Value | None] = [None] * len(here)
                unit[moving[p]] = one(p)
                given = self.pull_left(here, at(behind), unit)
                columns.append([self._own(given, moving[q], here[moving[q]]) for q in range(d)])
            return [columns[p][q] for q in range(d) for p in range(d)]

        def element(j: Value) -> list[Value]:
            i = self.last_but(length, j)
            here = arrived(i)
            offsets = [zero(k) if here[moving[k]] is None else here[moving[k]] for k in range(d)]
            last = b.primitive("equal", j, b.literal(0, i64))
            factors = b.cond(last, lambda: [zero(p) for q in range(d) for p in range(d)], lambda: jacobian(i))
            return [*offsets, *factors]  # type: ignore[list-item]

        def row(factors: Sequence[Value], values: Sequence[Value], q: int) -> Value:
            total = b.primitive("multiply", factors[q * d], values[0])
            for p in range(1, d):
                total = b.primitive("add", total, b.primitive("multiply", factors[q * d + p], values[p]))
            return total

        def compose(*both: Value) -> list[Value]:
            """First the left map, then the right one."""
            half = d + d * d
            first, second = both[:half], both[half:]
            offsets = [b.primitive("add", second[q], row(second[d:], first[:d], q)) for q in range(d)]
            factors = [row(second[d:], [first[d + p * d + r] for p in range(d)], q) for q in range(d) for r in range(d)]
            return [*offsets, *factors]

        identity = [one(q) if p == q else zero(q) for q in range(d) for p in range(d)]
        made = b.scan(length, [*[zero(k) for k in range(d)], *identity], element, compose)[:d]

        return self._from_the_end(length, made, moving)


@dataclass
class Reduction:
    """The return sweep of a reduce; ``values`` are its results."""

    reverse: Reverse
    env: Env[Entry]
    length: Value
    neutrals: Sequence[Value]
    element: Block
    operator: Block
    values: Sequence[Value]

    def pull(self, cotangents: Cotangents) -> None:
        rules = {k: self.rule(k) for k, cotangent in enumerate(cotangents) if cotangent is not None}
        if None in rules.values():
            self._general(cotangents)
            return
        b = self.reverse.builder
        everywhere: dict[int, Callable[[Value], Value]] = {}  # the cotangent of element i, by component
        for component, rule in rules.items():
            cotangent, type = cotangents[component], element(self.values[component].type)
            assert cotangent is not None
            match rule:
                case "add":
                    everywhere[component] = partial(_same, cotangent)
                case "multiply":
                    others = products_of_others(b, self.length, self._item(component), type)
                    everywhere[component] = partial(_scaled, b, cotangent, others)
                case "minimum" | "maximum":
                    self._at_first(component, type, cotangent, rule)
        if everywhere:
            self.reverse.sweep.enclose(
                lambda: b.generate(self.length, lambda i: self.sweep(i, {k: at(i) for k, at in everywhere.items()}))
            )

    def rule(self, component: int) -> str | None:
        """The operator that has a rule of its own, on this component."""
        source = self.values[component].source
        return None if source is None or len(source.bodies) != 2 else rule_of(source.bodies[1], component)

    def _general(self, cotangents: Cotangents) -> None:
        combining = Combining(self.reverse, self.env, self.operator, self.neutrals)
        at = combining.stored(self.length, self._items)
        before, behind = combining.before(self.length, at), combining.behind(self.length, at)

        def sweep(i: Value) -> Sequence[Value]:
            return self.sweep(i, dict(enumerate(combining.pull_middle(before(i), at(i), behind(i), cotangents))))

        self.reverse.sweep.enclose(lambda: self.reverse.builder.generate(self.length, sweep))

    def _items(self, i: Value) -> Element:
        return self.element.primal(self.env, [i])

    def _item(self, component: int) -> Callable[[Value], Value]:
        return lambda i: self._items(i)[component]

    def sweep(self, i: Value, cotangents: Mapping[int, Value | None]) -> Sequence[Value]:
        """The return sweep of element i."""
        pull = self.element.run(self.env, self.reverse.constants([i]))[1]
        pull([cotangents.get(component) for component in range(len(self.values))])
        return []

    def _at_first(self, component: int, type: Scalar, cotangent: Value, rule: str) -> None:
        """Only the first element that attains the extremum, if there is one."""
        b = self.reverse.builder
        first, found = first_place(b, self.length, self._item(component), type, rule)
        self.reverse.sweep.enclose(lambda: b.cond(found, lambda: self.sweep(first, {component: cotangent}), lambda: []))


class Scan(Reduction):
    """The return sweep of a scan."""

    def pull(self, cotangents: Cotangents) -> None:
        b, combining = self.reverse.builder, Combining(self.reverse, self.env, self.operator, self.neutrals)
        at = combining.stored(self.length, self._items)

        def results(i: Value) -> Element:
            return [b.part(value, [i]) for value in self.values]

        def arrived(i: Value) -> Cotangents:
            return [None if cotangent is None else b.part(cotangent, [i]) for cotangent in cotangents]

        moving = [k for k, cotangent in enumerate(cotangents) if cotangent is not None]
        if all(self.rule(k) == "add" and isinstance(self.neutrals[k].type, Scalar) for k in moving):
            total = combining.sums_from_the_end(self.length, arrived, moving)
        else:
            total = combining.recurrence(self.length, results, at, arrived)

        def sweep(i: Value) -> Sequence[Value]:
            one = b.literal(1, i64)
            first = b.primitive("less", i, one)
            left = b.cond(first, lambda: self.neutrals, lambda: results(b.primitive("subtract", i, one)))
            return self.sweep(i, dict(enumerate(combining.pull_right(list(left), at(i), total(i)))))

        self.reverse.sweep.enclose(lambda: b.generate(self.length, sweep))


@dataclass
class Histogram(Reduction):
    """The return sweep of a histogram; an element is its bin and its values."""

    bins: Value

    def _items(self, i: Value) -> Element:
        return super()._items(i)[1:]

    def _bin(self, i: Value) -> Value:
        return super()._items(i)[0]

    def sweep(self, i: Value, cotangents: Mapping[int, Value | None]) -> Sequence[Value]:
        pull = self.element.run(self.env, self.reverse.constants([i]))[1]
        pull([None, *[cotangents.get(component) for component in range(len(self.values))]])
        return []

    def pull(self, cotangents: Cotangents) -> None:
        b = self.reverse.builder
        moving = [k for k, cotangent in enumerate(cotangents) if cotangent is not None]
        if all(self.rule(k) == "add" for k in moving):

            def gather(i: Value) -> Sequence[Value]:
                place = self._bin(i)
                return b.cond(
                    in_range(b, [place], [self.bins]), lambda: self.sweep(i, self._at(cotangents, place)), lambda: []
                )

            self.reverse.sweep.enclose(lambda: b.generate(self.length, gather))
            return
        self._sorted(cotangents)

    def _at(self, cotangents: Cotangents, place: Value) -> dict[int, Value | None]:
        parts = [None if g is None else self.reverse.builder.part(g, [place]) for g in cotangents]
        return dict(enumerate(parts))

    def _sorted(self, cotangents: Cotangents) -> None:
        """By a stable sort of the bins: each is then a segment."""
        b, combining = self.reverse.builder, Combining(self.reverse, self.env, self.operator, self.neutrals)
        one = b.literal(1, i64)
        (places,) = b.generate(self.length, lambda i: [self._bin(i)])
        (order,) = b.emit("argsort", (), [places])
        at = combining.stored(self.length, lambda j: self._items(b.index(order, [j])))
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

        before, behind = combining.before(self.length, at, starts), combining.behind(self.length, at, ends)

        def sweep(j: Value) -> Sequence[Value]:
            place = b.index(sorted_places, [j])

            def inside() -> Sequence[Value]:
                arrived = list(self._at(cotangents, place).values())
                given = combining.pull_middle(before(j), at(j), behind(j), arrived)
                return self.sweep(b.index(order, [j]), dict(enumerate(given)))

            return self.reverse.sweep.enclose(lambda: b.cond(in_range(b, [place], [self.bins]), inside, lambda: []))

        self.reverse.sweep.enclose(lambda: b.generate(self.length, sweep))


def _same(cotangent: Value, i: Value) -> Value:
    return cotangent


def _scaled(b: Builder, cotangent: Value, factors: Value, i: Value) -> Value:
    return b.primitive("multiply", cotangent, b.index(factors, [i]))


def _without_cells(env: Env[Entry]) -> Env[Entry]:
    """The environment with nothing to differentiate in it."""
    entries = [env.get(index) for index in reversed(range(len(env)))]
    inactive: Env[Entry] = Env()
    return inactive.enter([type(entry)(entry.value) for entry in entries])


def in_range(b: Builder, indices: Sequence[Value], sizes: Sequence[Value]) -> Value:
    """Whether a place lies inside an array."""
    tests = []
    for index, size in zip(indices, sizes, strict=True):
        tests.append(b.primitive("less_equal", b.literal(0, i64), index))
        tests.append(b.primitive("less", index, size))
    total = tests[0]
    for test in tests[1:]:
        total = b.primitive("logical_and", total, test)
    return total
