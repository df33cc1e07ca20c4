"""Readers: what the layout of an array costs those who read it.

A nest that fills a temporary decides which of its axes is the last one in memory: the one that is its lane. Two lanes
may cost it the same, or nearly, while those who read the array want one of them. So its estimate counts what each costs
them, with the lanes that are then their best, or else in the order of their loops. ::

    temporary t: f64[n, m]
    nest i < n, j < m: t[i, j] = sum(k: abs(x[i, k] - w[j, k]))      lanes i or j: w or x is packed
    nest i < n: o[i, :] = sort(t[i, :])                              rows are read in order, so the lane is j

Only the nests that read the array at once count, and of what they read only its layout changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from .. import ir
from .lanes import least, points
from .nests import Plan
from .survey import Access, Survey, survey


class Readers:
    """Those who read the arrays of one function."""

    def __init__(self, body: ir.Block, plan: Callable[[ir.Nest], Plan]) -> None:
        self.body, self.plan = body, plan
        self.known: dict[tuple[str, int], float] = {}
        self.surveys: dict[int, Survey] = {}  # by the id of a nest of the body

    def cost(self, name: str, axis: int) -> float:
        """What an array costs those who read it if this axis is the last one in memory."""
        if (name, axis) not in self.known:
            self.known[name, axis] = sum([self.of(nest, name, axis) for nest in self.nests[name]])
        return self.known[name, axis]

    def along_axes(self, name: str) -> bool:
        """Whether no loop moves along several axes of an array at once, as one does that reads all of it as one row."""
        loads = [load for nest in self.nests[name] for load in self.contents(nest).loads if load.buffer.name == name]
        return all(sum(map(len, load.varies)) == len(frozenset().union(*load.varies)) for load in loads)

    @cached_property
    def nests(self) -> dict[str, list[ir.Nest]]:
        """By array, the nests whose points read it, but for what nests inside of them do."""
        found: dict[str, list[ir.Nest]] = defaultdict(list)
        for nest in ir.of_kind(self.body, ir.Nest):
            for name in ir.read_in(ir.without(nest.body, lambda each: isinstance(each, ir.Nest))):
                found[name].append(nest)
        return found

    def of(self, nest: ir.Nest, name: str, axis: int) -> float:
        """What one of them costs."""
        plan, found = self.plan(nest), self.contents(nest)
        loads = [_with_last(load, axis) if load.buffer.name == name else load for load in found.loads]
        found = replace(found, loads=loads)
        return points(plan.loops) * least(plan.loops, found, plan.temporaries, plan.reductions, plan.target)

    def contents(self, nest: ir.Nest) -> Survey:
        """What one of them consists of."""
        if id(nest) not in self.surveys:
            self.surveys[id(nest)] = survey(nest.body, [axis.variable.name for axis in nest.axes])
        return self.surveys[id(nest)]


def _with_last(access: Access, axis: int) -> Access:
    """A read of an array whose axes but for the last one are as they were."""
    order = [*[k for k in range(len(access.indices)) if k != axis], axis]
    indices = tuple([access.indices[k] for k in order])
    guarded = tuple([order.index(k) for k in access.guarded])
    varies, steps = [access.varies[k] for k in order], [access.steps[k] for k in order]
    return replace(access, indices=indices, varies=varies, steps=steps, guarded=guarded)
