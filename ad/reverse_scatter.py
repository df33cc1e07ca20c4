"""The return sweep of scatter: written places take their cotangent to what was written, all others to the destination.

With ``y = scatter(x, indices, values)``, the cotangent of ``values[i]`` is ``y_bar[indices[i]]``, and that of x is
``y_bar`` with zeros at the places written (Schenck et al. 2022, section 5.3; nothing is restored, since arrays are
values). Where places may be written twice, only the last write counts: another scatter finds out which that is, into
an array of the destination's size. A few writes are compared with each other instead, so that a loop that writes
to a few places a step takes no longer for a large array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ..core.environment import Env
from ..core.graph import Value
from ..core.types import bool_, i64
from ..interpreters.simplify.accumulators import zeros_like
from ..interpreters.simplify.deltas import in_range
from .cells import Cell, Entry
from .reverse_meanings import Block, Emission

# Of at most so many writes, which may meet, each is compared with all others.
FEW = 8


@dataclass
class Scatter:
    """The return sweep of a scatter into ``arrays``, whose cells are given."""

    reverse: Emission
    env: Env[Entry]
    unique: bool
    lengths: Sequence[Value]
    arrays: Sequence[Value]
    cells: Sequence[Cell | None]
    element: Block

    def pull(self, cotangents: Sequence[Value | None]) -> None:
        b = self.reverse.builder
        wanted = [k for k, cotangent in enumerate(cotangents) if cotangent is not None]
        for k in wanted:
            cell, cotangent = self.cells[k], cotangents[k]
            if cell is not None and cotangent is not None:
                cell.add(self._cleared(k, cotangent))
        few = all([length.literal is not None for length in self.lengths])
        few = few and prod([int(length.literal or 0) for length in self.lengths]) <= FEW
        last = None if self.unique or few else self._last_writes()

        def sweep(*i: Value) -> None:
            indices = self._indices(i)
            counts = in_range(b, indices, self._sizes(len(indices)))
            if last is not None:
                same = b.primitive("equal", b.index(last, indices), self._number(i))
                counts = b.primitive("logical_and", counts, same)
            elif not self.unique:
                counts = b.primitive("logical_and", counts, b.primitive("logical_not", self._written_later(i)))

            def inside() -> Sequence[Value]:
                parts = [None if g is None else b.part(g, indices) for g in cotangents]
                self.element.run(self.env, self.reverse.constants(i))[1]([*[None] * len(indices), *parts])
                return []

            self.reverse.sweep.enclose(lambda: b.cond(counts, inside, lambda: []))

        def everywhere() -> Sequence[Value]:
            b.each(self.lengths, sweep)
            return []

        self.reverse.sweep.enclose(everywhere)

    def _results(self, i: Sequence[Value]) -> list[Value]:
        return self.element.primal(self.env, list(i))

    def _indices(self, i: Sequence[Value]) -> list[Value]:
        found = self._results(i)
        return found[: len(found) - len(self.arrays)]

    def _sizes(self, axes: int) -> list[Value]:
        return [self.reverse.builder.size(self.arrays[0], axis) for axis in range(axes)]

    def _cleared(self, k: int, cotangent: Value) -> Value:
        """A cotangent with zeros at the places written."""
        b = self.reverse.builder

        def element(*i: Value) -> list[Value]:
            indices, values = self._indices(i), self._results(i)[-len(self.arrays) :]
            return [*indices, zeros_like(b, values[k])]

        return b.scatter(self.unique, self.lengths, [cotangent], element)[0]

    def _number(self, i: Sequence[Value]) -> Value:
        """The position of a write among all."""
        b = self.reverse.builder
        total = i[0]
        for index, length in zip(i[1:], self.lengths[1:], strict=True):
            total = b.primitive("add", b.primitive("multiply", total, length), index)
        return total

    def _written_later(self, i: Sequence[Value]) -> Value:
        """Whether a later write goes to the same place."""
        b = self.reverse.builder
        indices, number = self._indices(i), self._number(i)

        def either(x: Value, y: Value) -> Sequence[Value]:
            return [b.primitive("logical_or", x, y)]

        def among(j: tuple[Value, ...]) -> Value:
            if len(j) < len(self.lengths):
                never = b.literal(False, bool_)
                return b.reduce(self.lengths[len(j)], [never], lambda k: [among((*j, k))], either)[0]
            same = b.primitive("less", number, self._number(j))
            for here, there in zip(indices, self._indices(j), strict=True):
                same = b.primitive("logical_and", same, b.primitive("equal", here, there))
            return same

        return among(())

    def _last_writes(self) -> Value:
        """For each place the position of the last write to it."""
        b = self.reverse.builder
        axes = self.element.width - len(self.arrays)
        places = b.array(self._sizes(axes), lambda *_: b.literal(-1, i64))
        return b.scatter(False, self.lengths, [places], lambda *i: [*self._indices(i), self._number(i)])[0]
