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
    """The arrays that nests make of others of their size, element by element."""
    return frozenset([pair for nest in ir.of_kind(function.body, ir.Nest) for pair in _pairs(nest)])


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
