"""The operator of a reduce, scan or histogram, and its pulls, while a return sweep is made.

The operator is applied again to elements and to what stands before and behind them; its pull gives the cotangent of
the left or of the right operand. Free variables of the operator get theirs once for each place where it was applied,
from the pull of the right operand, which each element is once (Schenck et al. 2022, section 5.1).

    y = l op a          a_bar = (d op / d a)^T y_bar          l_bar = (d op / d l)^T y_bar
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.environment import Env
from ..core.graph import Value
from ..core.types import bool_, i64
from ..interpreters.simplify.accumulators import zeros_like
from .cells import Entry
from .reverse_meanings import Block, Emission

Element = list[Value]
At = Callable[[Value], Element]
Cotangents = Sequence[Value | None]
CotangentsAt = Callable[[Value], Cotangents]


class Operator:
    """An operator with its neutral element, in the environment of its free variables."""

    def __init__(self, reverse: Emission, env: Env[Entry], block: Block, neutrals: Sequence[Value]) -> None:
        self.reverse, self.builder = reverse, reverse.builder
        self.env, self.block, self.neutrals = env, block, list(neutrals)
        self.fixed = _without_cells(env)

    # The operator, and its pull

    def combined(self, a: Sequence[Value], b: Sequence[Value]) -> Element:
        return self.block.primal(self.fixed, [*a, *b])

    def pull_right(self, left: Element, right: Element, cotangents: Cotangents) -> list[Value | None]:
        """The cotangent of the right operand; free variables of the operator get theirs."""
        return self._pull(self.env, left, right, cotangents, False)

    def pull_left(self, left: Element, right: Element, cotangents: Cotangents) -> list[Value | None]:
        """The cotangent of the left operand, and of nothing else."""
        with self.reverse.unseen():
            return self._pull(self.fixed, left, right, cotangents, True)

    def _pull(
        self, env: Env[Entry], left: Element, right: Element, cotangents: Cotangents, wanted_left: bool
    ) -> list[Value | None]:
        entries = self.reverse.constants([*left, *right])
        own = entries[: len(left)] if wanted_left else entries[len(left) :]
        cells = self.reverse.give_cells(own)
        self.block.run(env, entries)[1](cotangents)
        return [None if cell is None else cell.read() for cell in cells]

    def pull_middle(self, before: Element, a: Element, behind: Element, cotangents: Cotangents) -> list[Value | None]:
        """The cotangent of a in ``before op a op behind``; free variables get theirs for the first operator."""
        inner = self.pull_left(self.combined(before, a), behind, cotangents)
        return self.pull_right(before, a, inner)

    def pull_after(self, i: Value, running: At, a: Element, cotangents: Cotangents) -> list[Value | None]:
        """The cotangent of element i, given that of what is combined up to it, which for the first is its own."""
        b = self.builder
        wanted = [k for k, own in enumerate(cotangents) if own is not None]

        def pulled(left: Element) -> list[Value]:
            given = self.pull_right(left, a, cotangents)
            return [zeros_like(b, a[k]) if given[k] is None else given[k] for k in wanted]  # type: ignore[misc]

        first = b.primitive("equal", i, b.literal(0, i64))
        before = b.primitive("subtract", i, b.literal(1, i64))
        if any(self.block.activity.of_constants(self.env).results):
            given = pulled(self.shifted(running)(i))  # the updates of free variables do not stand in a branch
            chosen = b.cond(first, lambda: [cotangents[k] for k in wanted], lambda: given)  # type: ignore[misc]
        else:
            chosen = b.cond(first, lambda: [cotangents[k] for k in wanted], lambda: pulled(running(before)))  # type: ignore[misc]
        found = dict(zip(wanted, chosen, strict=True))
        return [found.get(k) for k in range(len(a))]

    # Scans

    def stored(self, length: Value, at: At) -> At:
        """The elements, made once."""
        return self._read(self.builder.generate(length, at))

    def running(self, length: Value, at: At) -> At:
        """What is combined up to each element, with it."""
        return self._read(self._scan(length, at, self.combined))

    def shifted(self, running: At) -> At:
        """What stands one place before, the neutral element before the first."""
        b = self.builder

        def read(i: Value) -> Element:
            first = b.primitive("equal", i, b.literal(0, i64))
            before = b.primitive("subtract", i, b.literal(1, i64))
            return list(b.cond(first, lambda: self.neutrals, lambda: running(before)))

        return read

    def before(self, length: Value, at: At, starts: Callable[[Value], Value] | None = None) -> At:
        """What is combined before each element; with ``starts``, since the last place where it holds."""
        if starts is None:
            return self.shifted(self.running(length, at))
        return self._segmented(length, at, starts, self.combined)

    def behind(self, length: Value, at: At, ends: Callable[[Value], Value] | None = None) -> At:
        """What is combined behind each element; with ``ends``, up to the next place where it holds."""

        def from_the_end(j: Value) -> Element:
            return at(self.last_but(length, j))

        def swapped(a: Element, b: Element) -> Element:
            return self.combined(b, a)

        if ends is None:
            flipped = self.shifted(self._read(self._scan(length, from_the_end, swapped)))
        else:
            flipped = self._segmented(length, from_the_end, lambda j: ends(self.last_but(length, j)), swapped)
        return lambda i: flipped(self.last_but(length, i))

    def _scan(self, length: Value, at: At, combine: Callable[[Element, Element], Element]) -> Sequence[Value]:
        count = len(self.neutrals)
        return self.builder.scan(length, self.neutrals, at, lambda *ab: combine(list(ab[:count]), list(ab[count:])))

    def _segmented(
        self,
        length: Value,
        at: At,
        starts: Callable[[Value], Value],
        combine: Callable[[Element, Element], Element],
    ) -> At:
        """What is combined before each element since the last place where ``starts`` holds."""
        b, count = self.builder, len(self.neutrals)

        def step(*ab: Value) -> Element:
            left, right = ab[: count + 1], ab[count + 1 :]
            joined = b.cond(right[0], lambda: right[1:], lambda: combine(list(left[1:]), list(right[1:])))
            return [b.primitive("logical_or", left[0], right[0]), *joined]

        neutrals = [b.literal(False, bool_), *self.neutrals]
        running = self._read(b.scan(length, neutrals, lambda i: [starts(i), *at(i)], step)[1:])

        def read(i: Value) -> Element:
            before = b.primitive("subtract", i, b.literal(1, i64))
            return list(b.cond(starts(i), lambda: self.neutrals, lambda: running(before)))

        return read

    def _read(self, arrays: Sequence[Value]) -> At:
        return lambda i: [self.builder.part(array, [i]) for array in arrays]

    def last_but(self, length: Value, i: Value) -> Value:
        """The place i steps before the last one."""
        b = self.builder
        return b.primitive("subtract", b.primitive("subtract", length, b.literal(1, i64)), i)


def _without_cells(env: Env[Entry]) -> Env[Entry]:
    """The environment with nothing to differentiate in it."""
    entries = [env.get(index) for index in reversed(range(len(env)))]
    inactive: Env[Entry] = Env()
    return inactive.enter([type(entry)(entry.value) for entry in entries])
