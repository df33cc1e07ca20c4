"""Stored parts: a loop stores the row of a state that is read of it, where it stored the whole array a step.

The return sweep of an elimination reads, of the state before step p, row p and column p. Neither is a number, and how
long they are may depend on the step, so that no cut stores them (``rematerialisation.py``). But each lies at a place of
an axis that the step alone says, and what is stored is the array over the other axes:

    a, s = loop k < n with a = x:              a, r, c = loop k < n with a = x:
      next update(a, k)                          next update(a, k)
      yield a                                    yield a[k, :], a[:, k]
    ... s[p, p, j] * s[p, p + 1 + i, p] ...    ... r[p, j] * c[p, p + 1 + i] ...

The place is the step plus something constant, or that minus the step, or constant, and in range at each step. All reads
of a state must be of parts, and the parts smaller than it together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ...core.builder import Builder, Replacement, Substitution
from ...core.dims import Dim, DimAtom, Opaque
from ...core.graph import Node, Value
from ...core.ranges import never_negative
from ...core.types import dims, rank
from .loop_rewriting import LoopRewriting, Loops, Pending, Readers
from .value_numbering import amount


class StoredParts(LoopRewriting):
    """Rebuilds a term with loops that store parts of arrays."""

    def change(self, loops: Loops, results: Sequence[Value], statements: list[Node]) -> dict[int, Replacement]:
        readers = Readers(loops[0].known, results, [*statements, *[loop.node for loop in loops]])
        replaced: dict[int, Replacement] = {}
        for loop in loops:
            body, first = loop.node.bodies[0], len(loop.node.args) - 1
            found = {k: _parts(self.builder, loop, k, readers) for k in range(first, len(loop.results))}
            dropped, stored = [k for k, parts in found.items() if parts], list[Value]()
            for k in dropped:
                for part in found[k]:
                    position = len(loop.results) - len(dropped) + len(stored)
                    for read in part.reads:
                        replaced[read.number] = partial(_read, loop, position, part, read.args[1:])
                    stored.append(_stored(self.builder, loop, body.results[k], part))
            if dropped:
                self.drop(loops, loop, dropped, stored, statements)
        return replaced


@dataclass(frozen=True)
class _Place:
    """Where, of an axis, a step reads: at ``offset``, plus or minus the step if there is a ``sign``."""

    axis: int
    sign: int
    offset: Dim

    def at(self, b: Builder, step: Value) -> Value:
        offset = b.known(self.offset)
        assert offset is not None
        return b.primitive("add" if self.sign > 0 else "subtract", offset, step) if self.sign else offset


@dataclass
class _Part:
    """What is read at some places, and the reads."""

    places: frozenset[_Place]
    reads: list[Node]

    def others(self, axes: int) -> list[int]:
        """The axes that a part has."""
        return [axis for axis in range(axes) if axis not in {place.axis for place in self.places}]


def _parts(b: Builder, loop: Pending, position: int, readers: Readers) -> list[_Part]:
    """The parts of a state that are read of what a loop stores, smaller than it together; none if it is read itself."""
    output, sizes = loop.results[position], dims(loop.node.bodies[0].results[position].type)
    parts: list[_Part] = []
    reads = readers.reads(output) or []
    places = {read.number: frozenset(_places(b, loop, sizes, read.args[1:])) for read in reads}
    for read in sorted(reads, key=lambda read: len(places[read.number])):
        one = next((part for part in parts if part.places <= places[read.number]), None)
        if one is None:
            parts.append(one := _Part(places[read.number], []))
        one.reads.append(read)
    together = sum([amount([sizes[axis] for axis in part.others(len(sizes))]) for part in parts])
    return parts if together < amount(sizes) else []


def _places(b: Builder, loop: Pending, sizes: Sequence[Dim], indices: Sequence[Value]) -> Iterator[_Place]:
    """Which indices of a read the step alone says, and are inside of the array at each step."""
    step, *places = [index.dim for index in indices]
    own, count = loop.node.bodies[0].binders[0], loop.node.args[0].dim
    assert own.dim is not None and count is not None

    def extents(atom: DimAtom) -> Dim | None:
        return count if atom == Opaque(own.number) else None

    def holds(dim: Dim) -> bool:
        """Whether a dim is not negative at any step: there is one, and so the count less one is not."""
        return never_negative(dim, extents) or never_negative(dim - (count - 1), extents)

    for axis, place in enumerate(places):
        if place is None or step is None:
            continue
        for sign, offset in ((1, place - step), (-1, place + step), (0, place)):
            known = b.known(offset)
            if known is not None and known.free <= loop.known:
                at = own.dim * sign + offset
                if holds(at) and holds(sizes[axis] - 1 - at):
                    yield _Place(axis, sign, offset)
                break


def _stored(b: Builder, loop: Pending, state: Value, part: _Part) -> Value:
    """A part of the state of a step."""
    at = {place.axis: place.at(b, loop.node.bodies[0].binders[0]) for place in part.places}
    others = part.others(rank(state.type))

    def element(*rest: Value) -> Value:
        where = at | dict(zip(others, rest, strict=True))
        return b.index(state, [where[axis] for axis in sorted(where)])

    return b.array([b.size(state, axis) for axis in others], element)


def _read(
    loop: Pending, position: int, part: _Part, indices: Sequence[Value], level: Substitution
) -> tuple[Value, ...]:
    """A read of a part, for one of the state."""
    step, *places = indices
    array, *at = level.values([loop.node.results[position], step, *[places[k] for k in part.others(len(places))]])
    return (level.builder.index(array, at),)
