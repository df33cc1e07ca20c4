"""Minimum cuts against all sets of values."""

import math
from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from adze.backends.schedule.terms.minimum_cut import last_cut

Graph = tuple[dict[int, float], dict[int, set[int]], list[int], list[int]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to 7 values, each made from ones before it."""
    count = draw(st.integers(1, 7))
    values = range(count)
    costs = {k: draw(st.sampled_from([1.0, 2.0, 8.0, math.inf])) for k in values}
    users = {k: {j for j in range(k + 1, count) if draw(st.booleans())} for k in values}
    return costs, users, draw(st.lists(st.sampled_from(values))), draw(st.lists(st.sampled_from(values)))


def reached(users: dict[int, set[int]], start: list[int], removed: set[int]) -> set[int]:
    found, queue = set[int](), [k for k in start if k not in removed]
    while queue:
        k = queue.pop()
        if k not in found:
            found.add(k)
            queue += users[k] - removed
    return found


@given(graphs())
def test_no_set_of_values_is_cheaper(graph: Graph) -> None:
    costs, users, sources, sinks = graph
    sets = list(chain.from_iterable(combinations(costs, size) for size in range(len(costs) + 1)))
    cuts = [set(each) for each in sets if reached(users, sources, set(each)).isdisjoint(sinks)]
    cheapest = min(sum(costs[k] for k in each) for each in cuts)
    found = last_cut(costs, users, sources, sinks)
    if math.isinf(cheapest):
        assert not found
        return
    assert found in cuts and sum(costs[k] for k in found) == cheapest
    before = reached(users, sources, found) | found
    others = [each for each in cuts if sum(costs[k] for k in each) == cheapest]
    assert all(each <= before for each in others)  # none is nearer to the sinks
