"""Cotangents of arrays as they arrive: whole, or a few elements of them; and how they leave a loop that runs at once.

In a batch (``interpreters/evaluate/batches.py``) the cotangent of a scalar broadcasts to the batch, and that of an
array of rank r is filled: its own axes, then all axes of the batch. What reads single elements gives a *sparse*
cotangent, of places and the values there, which broadcast to the batch and to further axes before it:

    for i < n: for k < m: x[i, k] * w[k]            w_bar:  place k: (m, 1),  value x y_bar: (m, n)
    out of the loop over i (the last axis)                  place k: (m,),    value: (m,), summed

An axis that no place varies along is summed when its loop is left; any other one stays in front, and nothing is
computed. Elements are added to an array once, where the array's own cotangent is complete: many reads cost no more
than one addition each. (The sparse adjoints of van Hus, section 4.2, which are one-hot.)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...interpreters.evaluate.batches import mesh

Batch = tuple[int, ...]
Part = tuple[tuple[Any, ...], Any]  # places, one an axis of the array, and the values there


@dataclass
class Sparse:
    """The sum of some elements; each part's places and values broadcast with each other and with the batch."""

    parts: list[Part]

    def dense(self, shape: Sequence[int], batch: Batch, start: Any) -> Any:
        """The elements added to an array of the filled shape, in order; ``start`` is not written."""
        total = np.array(np.broadcast_to(start, (*shape, *batch)), order="C")  # so that what is flat is no copy
        flat = total.reshape(-1)
        for places, values in _joined(self.parts):
            _add(flat, shape, batch, places, values)
        return total

    def outside(self, batch: Batch) -> Sparse:
        """The same out of the innermost loop of a batch."""
        return Sparse([_outside(part, batch) for part in self.parts])

    def count(self, batch: Batch) -> int:
        """How many elements there are."""
        return sum(
            math.prod(np.broadcast_shapes(batch, np.shape(values), *map(np.shape, places)))
            for places, values in self.parts
        )


def _joined(parts: Sequence[Part]) -> list[Part]:
    """The parts, with runs of single elements as one."""
    joined: list[Part] = []
    run: list[Part] = []
    for part in (*parts, None):
        if part is not None and np.ndim(part[1]) == 0 and not any(map(np.ndim, part[0])):
            run.append(part)
            continue
        if run:
            places = tuple(np.array(column, np.int64) for column in zip(*[places for places, _ in run], strict=True))
            joined.append((places, np.array([value for _, value in run])))
            run = []
        if part is not None:
            joined.append(part)
    return joined


def _add(flat: Any, shape: Sequence[int], batch: Batch, places: Sequence[Any], values: Any) -> None:
    at: Any = np.int64(0)
    inside: Any = np.True_
    for place, n in zip(places, shape, strict=True):
        at, inside = at * n + place, inside & (place >= 0) & (place < n)
    for lane, n in zip(mesh(batch), batch, strict=True):
        at = at * n + lane
    if np.all(inside):
        at, values = np.broadcast_arrays(at, values)
    else:
        at, values, inside = np.broadcast_arrays(at, values, inside)
        at, values = at[inside], values[inside]
    np.add.at(flat, at.reshape(-1), values.reshape(-1))


def _outside(part: Part, batch: Batch) -> Part:
    places, values = part
    axis, length = -len(batch), batch[0]
    if any(np.ndim(place) >= -axis and np.shape(place)[axis] != 1 for place in places):
        return part
    shape = np.broadcast_shapes(np.shape(values), batch)
    return tuple(_without(place, axis) for place in places), np.broadcast_to(
        values, (*shape[:axis], length, *shape[len(shape) + axis + 1 :])
    ).sum(axis=axis)


def _without(place: Any, axis: int) -> Any:
    return np.squeeze(place, axis=axis) if np.ndim(place) >= -axis else place


def combined(given: Sequence[Any], shape: Sequence[int], batch: Batch) -> Any:
    """The sum of cotangents, in order: None when there are none, sparse when all are."""
    given = [one for one in given if one is not None]
    if len(given) <= 1:
        return given[0] if given else None
    sparse = [one for one in given if isinstance(one, Sparse)]
    parts = Sparse([part for one in sparse for part in one.parts])
    if len(sparse) == len(given):
        return parts
    whole = functools.reduce(np.add, [one for one in given if not isinstance(one, Sparse)])
    return parts.dense(shape, batch, whole) if sparse else whole


def picked(cotangent: Any, places: Sequence[Any], own: int, there: Any) -> Any:
    """The elements at places (rows, then the batch), with ``own`` axes between; zero where not ``there``."""
    batch = np.ndim(there) - 1
    rows = [place.reshape(len(place), *(1,) * own, *place.shape[1:]) for place in places]
    rest = cotangent.shape[len(places) :]
    found = cotangent[(*rows, *mesh(rest))] if len(rest) else cotangent[tuple(rows)]
    assert np.ndim(found) == 1 + own + batch
    return np.where(there.reshape(len(there), *(1,) * own, *there.shape[1:]), found, cotangent.dtype.type(0))
