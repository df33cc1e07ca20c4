"""The arena as a call lays it out: what lives at the same time is apart, and what does not shares memory."""

import ctypes
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adze as az
from adze.backends.llvm.frames import entries
from adze.backends.llvm.packing import MOST

Slot = tuple[int, int, int]  # the first and the last statement, and the size


def pack(slots: Sequence[Slot], base: int = 0) -> tuple[list[int], int]:
    """The offsets of slots, and the end."""
    packing = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p, ctypes.c_int64] * 2, ctypes.c_void_p)(entries().pack)
    lives = np.array([slot[:2] for slot in slots], np.int64)
    sizes = np.array([slot[2] for slot in slots], np.int64)
    offsets = np.full(len(slots), -1, np.int64)
    end = packing(lives.ctypes.data, len(slots), sizes.ctypes.data, base, offsets.ctypes.data)
    return offsets.tolist(), end


def meet(one: Slot, other: Slot) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


SLOTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8), st.integers(1, 9)), min_size=1, max_size=40).map(
    lambda drawn: [(first, first + length, 128 * size) for first, length, size in drawn]
)


@given(SLOTS, st.sampled_from([0, 128, 1280]))
def test_what_lives_together_is_apart(slots: list[Slot], base: int) -> None:
    offsets, end = pack(slots, base)
    ends = [offset + slot[2] for offset, slot in zip(offsets, slots, strict=True)]
    assert min(offsets) == base and max(ends) == end  # nothing is left at the beginning or the end
    for a, b in combinations(range(len(slots)), 2):
        if meet(slots[a], slots[b]):
            assert ends[a] <= offsets[b] or ends[b] <= offsets[a]
    live = max(sum(size for first, last, size in slots if first <= time <= last) for time in range(40))
    assert live <= end - base <= sum(slot[2] for slot in slots)


def test_the_example() -> None:
    a, b, c, d = (0, 1, 4), (1, 4, 3), (3, 4, 2), (3, 4, 2)
    assert pack([a, b, c, d]) == ([0, 4, 0, 2], 7)


def test_more_memory_than_there_is() -> None:
    assert pack([(0, 1, MOST), (0, 1, MOST), (0, 1, 128)], 128)[1] == MOST
    assert pack([(0, 0, MOST), (1, 1, 128)]) == ([0, 0], MOST)


@pytest.mark.unguarded
def test_arrays_of_different_sizes_share_memory() -> None:
    """Each layer has a width of its own, but only two of their arrays are needed at a time."""
    widths = [3000, 2900, 2800, 2700, 2600, 2500]

    @az.program
    def layers(x: az.Array[az.f64, "n"]) -> az.f64:
        for width in widths:
            x = az.cumsum(az.generate(width, lambda i, x=x: az.sin(x[i]) + 0.1 * x[i + 1]))
        return az.sum(x)

    compiled, x = az.compile(layers, threads=1), np.linspace(0.0, 3.0, 3001)
    expected = x
    for width in widths:
        expected = np.cumsum(np.sin(expected[:width]) + 0.1 * expected[1 : width + 1])
    assert np.isclose(compiled(x), expected.sum(), rtol=1e-12)
    assert compiled.peak_bytes(x) < 3 * 8 * widths[0]
