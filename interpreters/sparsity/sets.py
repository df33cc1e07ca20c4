"""Sets of inputs, many at a time: what the elements of arrays depend on.

A set has a number, so that the sets of the elements of an array are an array of integers of the same shape, which is
indexed, reshaped and stacked like the array itself. Number 0 is the empty set, number k + 1 the set of the input k
alone; others are entered when they are met first, and equal sets have the same number. The sets are the rows of one
boolean matrix in compressed form, and unions are a product of such matrices:

    groups (one row a union, ones at the sets to unite)  @  sets (one row a set, ones at its inputs)

>>> sets = Sets(3)
>>> both = sets.united(np.array([[1, 2], [2, 1], [3, 3], [0, 1]]))
>>> both.tolist()
[4, 4, 3, 1]
>>> sets.matrix(both).toarray().astype(int)
array([[1, 1, 0],
       [1, 1, 0],
       [0, 0, 1],
       [1, 0, 0]])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

Array = Any  # NumPy's arrays, and its scalars in the place of arrays without axes

NUMBER = np.int32


class Sets:
    """A table of sets of ``inputs`` inputs, to which unions are added."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self._starts = np.concatenate([np.zeros(1, NUMBER), np.arange(inputs + 1, dtype=NUMBER)])
        self._members = np.arange(inputs, dtype=NUMBER)
        self._size, self._filled = inputs + 1, inputs  # how much of both is in use
        # A set's hash is the sum of random numbers, one an input (Zobrist 1970).
        self._random = np.random.default_rng(0).integers(0, 1 << 64, inputs, np.uint64)
        self._mixed = np.zeros(0, np.uint64)  # a random number for each set, by which groups of sets are told apart
        self._entries: list[tuple[Array, Array]] = []  # hashes of sets, each time in order, and the sets' numbers

    def matrix(self, numbers: Array) -> scipy.sparse.csr_array:
        """The sets of these numbers, in order, as the rows of a boolean matrix with sorted columns."""
        lengths, members = self._rows(np.ravel(numbers))
        starts = np.concatenate([[0], np.cumsum(lengths)])
        return scipy.sparse.csr_array(
            (np.ones(len(members), np.bool_), members, starts), shape=(len(lengths), self.inputs)
        )

    def united(self, numbers: Array) -> Array:
        """The unions along the last axis; the result only repeats along axes where they do not change."""
        if numbers.shape[-1] == 0:
            return np.zeros(numbers.shape[:-1], NUMBER)
        rows = np.sort(numbers, axis=-1)
        rows[..., 1:][rows[..., 1:] == rows[..., :-1]] = 0  # in each row a set is there once, in order
        rows.sort(axis=-1)
        rows = _repeated_once(rows, rows.ndim - 1)
        shape, rows = rows.shape[:-1], rows.reshape(-1, rows.shape[-1])
        result: Array = rows[:, -1].copy()
        several = np.flatnonzero(rows[:, -2:-1].any(axis=1))
        if several.size:
            rows = rows[several]
            there = rows != 0
            result[several] = self._of_groups(there.sum(axis=1), rows[there])
        return np.broadcast_to(result.reshape(shape), numbers.shape[:-1])

    def united_at(self, places: Array, numbers: Array, count: int) -> Array:
        """For each place in 0..count the union of the sets that go there."""
        groups = scipy.sparse.coo_array(
            (np.ones(len(places), np.bool_), (places, numbers)), shape=(count, self._size)
        ).tocsr()
        return self._products(groups.indices, groups.indptr)

    def joined(self, layers: Sequence[Array]) -> Array:
        """The unions of the elements of several arrays that broadcast; the result has no axis that they only repeat."""
        if len(layers) == 1:
            return layers[0]
        own = _different([_repeated_once(once(layer)) for layer in layers])
        shape = np.broadcast_shapes(*[layer.shape for layer in own])
        full = np.broadcast_shapes(*[layer.shape for layer in layers])
        stacked = np.stack([np.broadcast_to(layer, shape) for layer in own], axis=-1)
        return np.broadcast_to(self.united(stacked), full)

    # The table

    def _of_groups(self, lengths: Array, numbers: Array) -> Array:
        """The numbers of unions of groups of sets, one after the other; in a group each is there once, in order."""
        if numbers.max() <= self.inputs:  # each set is one input
            return self._entered(_begins(lengths), numbers - 1)
        if len(self._mixed) < self._size:
            self._mixed = np.random.default_rng(1).integers(0, 1 << 64, 2 * self._size, np.uint64)
        _, first, back = _distinct(self._mixed, lengths, numbers)
        lengths, numbers = _some(first, lengths, numbers)
        return self._products(numbers, _begins(lengths))[back]

    def _products(self, numbers: Array, starts: Array) -> Array:
        """The numbers of unions of groups of sets; ``starts`` says where the groups begin in ``numbers``."""
        ones = np.ones(max(len(numbers), self._filled), np.bool_)
        groups = scipy.sparse.csr_array((ones[: len(numbers)], numbers, starts), shape=(len(starts) - 1, self._size))
        sets = scipy.sparse.csr_array(
            (ones[: self._filled], self._members[: self._filled], self._starts[: self._size + 1]),
            shape=(self._size, self.inputs),
        )
        unions = groups @ sets
        unions.sort_indices()
        return self._entered(unions.indptr, unions.indices)

    def _entered(self, starts: Array, members: Array) -> Array:
        """The numbers of the rows of a compressed matrix; those that are new are added to the table."""
        lengths = np.diff(starts)
        result = np.zeros(len(lengths), NUMBER)
        alone = lengths == 1
        result[alone] = members[starts[:-1][alone]] + 1
        many = np.flatnonzero(lengths > 1)
        if not many.size:
            return result
        lengths, members = _some(many, lengths, members)
        hashes, first, back = _distinct(self._random, lengths, members)
        lengths, members = _some(first, lengths, members)
        numbers = self._known(hashes)
        known = np.flatnonzero(numbers >= 0)
        if known.size and not all(map(np.array_equal, self._rows(numbers[known]), _some(known, lengths, members))):
            numbers[:] = -1  # two sets have one hash: here nothing is shared
        new = np.flatnonzero(numbers < 0)  # as they come, so that sets which are used together are near each other
        numbers[new] = self._added(*_some(new, lengths, members))
        self._enter(hashes[new], numbers[new])
        result[many] = numbers[back]
        return result

    def _known(self, hashes: Array) -> Array:
        """The numbers of the sets of these hashes, -1 for those that are not there."""
        found = np.full(len(hashes), -1, NUMBER)
        for entered, numbers in self._entries:
            place = np.minimum(np.searchsorted(entered, hashes), len(entered) - 1)
            there = entered[place] == hashes
            found[there] = numbers[place[there]]
        return found

    def _enter(self, hashes: Array, numbers: Array) -> None:
        """Note the hashes of new sets: each list of them is at least twice as long as the next one."""
        if not len(hashes):
            return
        while self._entries and len(self._entries[-1][0]) < 2 * len(hashes):
            before = self._entries.pop()
            hashes, numbers = np.concatenate([before[0], hashes]), np.concatenate([before[1], numbers])
        order = np.argsort(hashes)
        self._entries.append((hashes[order], numbers[order]))

    def _added(self, lengths: Array, members: Array) -> Array:
        """The numbers of new sets."""
        size, filled = self._size + len(lengths), self._filled + len(members)
        self._starts = _with_room(self._starts, size + 1)
        self._members = _with_room(self._members, filled)
        self._members[self._filled : filled] = members
        self._starts[self._size + 1 : size + 1] = self._filled + np.cumsum(lengths)
        numbers = np.arange(self._size, size, dtype=NUMBER)
        self._size, self._filled = size, filled
        return numbers

    def _rows(self, numbers: Array) -> tuple[Array, Array]:
        """How many inputs sets have, and all of these one after the other."""
        begins = self._starts[numbers]
        lengths = self._starts[numbers + 1] - begins
        return lengths, self._members[spans(begins, lengths)]


def once(array: Array) -> Array:
    """An array with one element along the axes that only repeat it."""
    return array[tuple([slice(0, 1) if step == 0 else slice(None) for step in array.strides])]


def _repeated_once(array: Array, axes: int | None = None) -> Array:
    """An array with one element along those of its first axes, or of all, where its elements are the same."""
    for axis in range(array.ndim if axes is None else axes):
        first = array[(slice(None),) * axis + (slice(0, 1),)]
        if array.shape[axis] > 1 and bool((array == first).all()):
            array = first
    return array


def _different(arrays: Sequence[Array]) -> list[Array]:
    """The different ones of some arrays; only those with one sum are compared."""
    found: dict[tuple[Any, ...], list[Array]] = {}
    for array in arrays:
        like = found.setdefault((array.shape, int(array.sum(dtype=np.int64))), [])
        if not any([np.array_equal(array, each) for each in like]):
            like.append(array)
    return [array for like in found.values() for array in like]


def _begins(lengths: Array) -> Array:
    """Where each of some rows begins that stand one after the other, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _distinct(random: Array, lengths: Array, members: Array) -> tuple[Array, Array, Array]:
    """The hashes of the different rows, as they come, the first of each, and which of them each row is.

    ``random``: a number for each member, which a row's hash is the sum of. Rows are compared where hashes are equal; if
    two are not the same, all rows count as different.
    """
    begins, every = _begins(lengths), np.arange(len(lengths))
    hashes = np.add.reduceat(random[members], begins[:-1])
    _, first, back = np.unique(hashes, return_index=True, return_inverse=True)
    if len(first) == len(every):
        return hashes, every, every
    order = np.argsort(first)
    again, one = np.delete(every, first), np.delete(first[back], first)
    if not np.array_equal(lengths[one], lengths[again]) or not np.array_equal(
        members[spans(begins[one], lengths[one])], members[spans(begins[again], lengths[again])]
    ):
        return hashes, every, every
    first, place = first[order], np.empty_like(order)
    place[order] = np.arange(len(order))
    return hashes[first], first, place[back]


def _some(rows: Array, lengths: Array, members: Array) -> tuple[Array, Array]:
    """The lengths and members of some of many rows, whose numbers are given."""
    if len(rows) == len(lengths):
        return lengths, members
    return lengths[rows], members[spans(_begins(lengths)[rows], lengths[rows])]


def spans(begins: Array, lengths: Array) -> Array:
    """The integers of ranges, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(begins - ends + lengths, lengths)


def _with_room(array: Array, size: int) -> Array:
    """The array, or a copy with room for as many numbers and more."""
    return array if len(array) >= size else np.concatenate([array, np.zeros(size, array.dtype)])
