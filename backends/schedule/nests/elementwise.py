"""Elementwise nests: which arrays are made of others element by element.

Each point of such a nest writes one place of an array, and reads another array at this place alone. So the one may be
in the memory of the other, if nobody needs that any more (``loops/shared_memory.py``)::

    nest i < n, j < m: y[i, j] = x[i, j] / s[i]        y may be where x was
"""

from __future__ import annotations

from collections.abc import Iterator

from ... import ir

Pairs = frozenset[tuple[str, str]]  # the names of an older array, and of a newer one
Place = tuple[ir.Expression, ...] | None  # the indices of an access, unless they are moved into the array


def elementwise(function: ir.Function) -> Pairs:
    """The arrays that nests make of others of their size, element by element, in the block where the others are."""
    return frozenset(_in_block(function.body, frozenset()))


def _in_block(block: ir.Block, around: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The pairs of a block that runs once for each run of what allocates the arrays ``around``.

    In a loop, a nest would read of arrays outside of it what an earlier turn has written.
    """
    there = around | {each.buffer.name for each in block if isinstance(each, ir.Allocate)}
    for statement in block:
        if isinstance(statement, ir.Nest):
            yield from [(old, new) for old, new in _pairs(statement) if old in there]
        for inner in ir.blocks_of(statement):
            yield from _in_block(inner, there if isinstance(statement, ir.If) else frozenset())


def alike(old: ir.Buffer, new: ir.Buffer) -> bool:
    """Whether arrays are of one scalar type and shape."""
    return old.scalar == new.scalar and old.extents == new.extents


def _pairs(nest: ir.Nest) -> Iterator[tuple[str, str]]:
    if nest.combines:
        return
    axes = sorted([axis.variable.name for axis in nest.axes])
    read: dict[ir.Buffer, set[Place]] = {}
    written: dict[ir.Buffer, list[Place]] = {}
    for each in ir.accesses(nest.body):
        place = None if each.guarded else each.indices
        if isinstance(each, ir.Store):
            written.setdefault(each.buffer, []).append(place)
        else:
            read.setdefault(each.buffer, set()).add(place)
    for new, places in written.items():
        if len(places) == 1 and _names(places[0]) == axes:
            for old, found in read.items():
                if found == set(places) and alike(old, new) and old not in written:
                    yield old.name, new.name


def _names(place: Place) -> list[str]:
    """The names of a place whose indices are variables, in one order."""
    indices = place or ()
    return sorted([index.name if isinstance(index, ir.Variable) else "" for index in indices])
