"""The tree in which chunks are combined: one shape for each number of chunks, whoever combines what, and when."""

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adze.backends.chunked.trees import Tree


def paired(left: str, right: str) -> str:
    return f"({left} {right})"


def in_order(count: int) -> str:
    tree = Tree(count, paired)
    for k in range(count):
        tree.add(0, k, str(k))
    return str(tree.root)


@given(st.integers(1, 200), st.randoms())
def test_order_of_arrival_does_not_matter(count: int, chance: random.Random) -> None:
    places = list(range(count))
    chance.shuffle(places)
    tree = Tree(count, paired)
    for k in places:
        tree.add(0, k, str(k))
    assert tree.root == in_order(count)


@given(st.integers(1, 200), st.lists(st.integers(1, 199), max_size=9), st.randoms())
def test_runs_may_be_combined_beforehand(count: int, cuts: Sequence[int], chance: random.Random) -> None:
    bounds = sorted({0, count, *[cut for cut in cuts if cut < count]})
    runs = list(itertools.pairwise(bounds))
    chance.shuffle(runs)
    whole = Tree(count, paired)
    for start, stop in runs:
        part = Tree(count, paired)
        for k in range(start, stop):
            part.add(0, k, str(k))
        assert len(part.nodes) <= 2 * count.bit_length()
        for level, place, value in part.nodes:
            whole.add(level, place, value)
    assert whole.root == in_order(count)


@pytest.mark.parametrize(("count", "depth"), [(1, 0), (2, 1), (3, 2), (1000, 10), (100_000, 17)])
def test_depth_is_logarithmic(count: int, depth: int) -> None:
    tree = Tree(count, lambda left, right: max(left, right) + 1)
    for k in range(count):
        tree.add(0, k, 0)
    assert tree.root == depth
