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
        self._by_hash: dict[int, int] = {}

    def matrix(self, numbers: Array) -> scipy.sparse.csr_array:
        """The sets of these numbers, in order, as the rows of a boolean matrix with sorted columns."""
        lengths, members = self._rows(np.ravel(numbers))
        starts = np.concatenate([[0], np.cumsum(lengths)])
        return scipy.sparse.csr_array(
            (np.ones(len(members), np.bool_), members, starts), shape=(len(lengths), self.inputs)
        )

    def united(self, numbers: Array) -> Array:
        """The unions along the last axis."""
        count = numbers.shape[-1]
        if count == 0:
            return np.zeros(numbers.shape[:-1], NUMBER)
        rows = numbers.reshape(-1, count)
        result: Array = rows.max(axis=1, initial=0)
        several = np.flatnonzero(((rows != result[:, None]) & (rows != 0)).any(axis=1))
        if several.size:
            rows, back = self._distinct(rows[several])
            starts = np.arange(0, rows.size + 1, count, dtype=NUMBER)
            result[several] = self._products(rows.ravel(), starts)[back]
        return result.reshape(numbers.shape[:-1])

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
        own = [once(layer) for layer in layers]
        shape = np.broadcast_shapes(*[layer.shape for layer in own])
        full = np.broadcast_shapes(*[layer.shape for layer in layers])
        stacked = np.stack([np.broadcast_to(layer, shape) for layer in own], axis=-1)
        return np.broadcast_to(self.united(stacked), full)

    # The table

    def _distinct(self, rows: Array) -> tuple[Array, Array]:
        """The different rows, and which of them each row is: where that saves more than it costs."""
        lengths = self._starts[1 : self._size + 1] - self._starts[: self._size]
        if len(rows) == 1 or lengths[rows].sum() < 4 * rows.size:
            return rows, np.arange(len(rows))
        rows = np.sort(rows, axis=1)
        key = rows[:, 0].astype(np.int64)
        for column in rows.T[1:]:
            key = np.unique(key, return_inverse=True)[1] * self._size + column
        _, first, back = np.unique(key, return_index=True, return_inverse=True)
        return rows[first], back

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
        if len(many) < len(lengths):
            members = members[spans(starts[many], lengths[many])]
        lengths = lengths[many]
        begins = np.cumsum(lengths) - lengths
        hashes, first, back = np.unique(
            np.add.reduceat(self._random[members], begins), return_index=True, return_inverse=True
        )
        order = np.argsort(first)  # as they come, so that sets which are used together are near each other
        hashes, first = hashes[order], first[order]
        numbers = np.array([self._by_hash.get(key, -1) for key in hashes.tolist()], NUMBER)
        new = np.flatnonzero(numbers < 0)
        added = first[new]
        rows = members if len(added) == len(lengths) else members[spans(begins[added], lengths[added])]
        numbers[new] = self._added(lengths[added], rows)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        found = numbers[place[back]]
        known = np.delete(np.arange(len(lengths)), added)
        known_lengths, known_members = self._rows(found[known])
        if np.array_equal(known_lengths, lengths[known]) and np.array_equal(
            known_members, members[spans(begins[known], lengths[known])]
        ):
            self._by_hash.update(zip(hashes[new].tolist(), numbers[new].tolist(), strict=True))
        else:
            found = self._added(lengths, members)  # two sets have one hash: here nothing is shared
        result[many] = found
        return result

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


def spans(begins: Array, lengths: Array) -> Array:
    """The integers of ranges, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(begins - ends + lengths, lengths)


def _with_room(array: Array, size: int) -> Array:
    """The array, or a copy with room for as many numbers and more."""
    return array if len(array) >= size else np.concatenate([array, np.zeros(size, array.dtype)])
