"""Nests where threads are many and come in groups: a thread an element, a group an element, or tiles.

A nest outside of all loops becomes a *grid*: perfectly nested parallel loops, each iteration of which a thread runs.
Its body may be anything. The last loop moves fastest from thread to thread, so it is the one along which most of what
the body reads and writes is contiguous or does not vary; temporaries get it as their last axis, whatever its place in
the type. A nest inside of other loops is sequential, as its thread is one of many already; but one that is all of the
body of another belongs to it.

Where every element is one reduction, it may be worth a group, whose threads read side by side:

    s[i] = sum(k: a[i, k])    =>    parallel i < n
                                      var sum = 0.0
                                      lanes k < m by 256 reducing sum with add
                                        sum = sum + a[i, k]
                                      s[i] = sum

That is so when the reduction has at least two elements for each of the threads, and either there are fewer elements
than the target wants threads, or a thread an element would read across rows. Of nested reductions the outermost is
shared out, unless what is read is contiguous along an inner one only. A matrix product has a third form, tiles
(``group_products.py``). Sizes decide, and where they are not known both forms are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .. import ir
from ..target import LANE_ACROSS_COST, LANE_SAME_COST
from .group_products import tiles
from .lanes import Choice, contiguous
from .nests import Built, Plan, Roles, depends, layouts_of, reducing_lanes
from .survey import Access, Survey, survey


@dataclass(frozen=True)
class _Form:
    """A nest as loops, and when they are better than those of the plain grid."""

    when: ir.Expression
    block: ir.Block


def build(nest: Plan) -> Built:
    """The nest as loops; where sizes decide between several ways, all of them, and the choice."""
    if not nest.parallel or not nest.loops:
        return Built(list(ir.nested(nest.loops, nest.body)), {})
    nest = _merged(nest)
    found = survey(nest.body, nest.variables)
    loops = ordered(nest, found)
    block = ir.nested(loops, nest.body, "parallel")
    shared = _segments(nest, found, loops)
    if shared is not None:
        block = ir.branch(shared.when, shared.block, block)
    tiled = tiles(nest, found, loops)
    if tiled is not None:
        block = ir.branch(tiled.when, ir.nested(tiled.loops, tiled.body, "parallel"), block)
    return Built(list(block), layouts_of(nest, found, loops[:-1], loops[-1].variable.name))


def roles_of(nest: Plan) -> Roles:
    """The roles that the loops of a nest will have."""
    if not nest.parallel or not nest.loops:
        return Roles(tuple(nest.variables), None)
    found = survey(nest.body, nest.variables)
    loops = ordered(nest, found)
    shared, tiled = _segments(nest, found, loops), tiles(nest, found, loops)
    order = tuple([loop.variable.name for loop in loops])
    further = tuple([form.when for form in (shared, tiled) if form is not None])
    in_order = not further and not found.inner and order == tuple(nest.variables)
    return Roles(order, order[-1], further, bool(found.inner), in_order, layouts_of(nest, found, loops[:-1], order[-1]))


def _merged(nest: Plan) -> Plan:
    """The nest with the nests that are all of its body but bindings, which are computed again for each iteration."""
    *lets, last = nest.body or (None,)
    bound = {loop.variable.name for loop in nest.loops} | {let.name for let in lets if isinstance(let, ir.Let)}
    if not isinstance(last, ir.For) or last.variable not in nest.independent or depends(last.extent, bound):
        return nest
    if not all(isinstance(let, ir.Let) for let in lets):
        return nest
    loops = [*nest.loops, ir.Axis(ir.Variable(last.variable), last.extent)]
    return _merged(replace(nest, loops=loops, body=(*lets, *last.body)))


def ordered(nest: Plan, found: Survey) -> list[ir.Axis]:
    """The loops, the one along which most is contiguous at the end."""

    def cost(loop: ir.Axis) -> float:
        name = loop.variable.name
        written = [s for s in found.stores if s.buffer.name not in nest.temporaries]
        return _reading(found, name) + sum(_cost(store, name) for store in written)

    fastest = min(reversed(nest.loops), key=cost)
    return [*[loop for loop in nest.loops if loop is not fastest], fastest]


def _reading(found: Survey, variable: str) -> float:
    """What it costs to read side by side for successive values of a variable."""
    return sum(access.weight * _cost(access, variable) for access in found.loads)


def _cost(access: Access, variable: str) -> float:
    if not access.mentions(variable):
        return LANE_SAME_COST
    return 1.0 if access.indices and contiguous(access, variable, len(access.indices) - 1) else LANE_ACROSS_COST


# A group an element


def _segments(nest: Plan, found: Survey, loops: Sequence[ir.Axis]) -> _Form | None:
    """The nest with a group an element, when its body is one reduction and scalars."""
    group = nest.target.group
    worth: dict[str, ir.Expression] = {}
    costs: dict[str, float] = {}
    for depth, loop in enumerate(_chain(nest)):
        if not depends(loop.extent, found.bound):
            long = 2 * group <= loop.extent
            if getattr(long, "value", True):
                worth[loop.variable] = long
                costs[loop.variable] = _reading(found, loop.variable) * 2**depth
    if not costs:
        return None
    lane = min(costs, key=lambda name: costs[name])
    when = worth[lane]
    if _reading(found, loops[-1].variable.name) <= 2 * _reading(found, lane):
        elements = ir.product([loop.extent for loop in loops])
        when = when & (elements < nest.target.threads)
    body = reducing_lanes(nest.body, Choice(lane, None, (lane,), group), nest.reductions)
    return _Form(when, ir.nested(loops, body, "parallel"))


def _chain(nest: Plan) -> list[ir.For]:
    """The loops that combine into the one variable that a body reduces, outermost first, if that is all it does.

    What stands around a loop is for all threads alike, so it is scalars; what is inside is a thread's own.
    """
    found: list[ir.For] = []
    body = nest.body
    while True:
        inner = [statement for statement in body if isinstance(statement, ir.For)]
        around = ir.walk(tuple([statement for statement in body if not isinstance(statement, ir.For)]))
        if len(inner) != 1 or not all(
            isinstance(s, ir.Let | ir.Declare | ir.Assign | ir.Store | ir.If | ir.Require) for s in around
        ):
            return found
        reduction = nest.reductions.get(inner[0].variable)
        if reduction is None or not _only_combines(inner[0], reduction):
            return found
        found.append(inner[0])
        body = inner[0].body


def _only_combines(loop: ir.For, reduction: ir.Reduction) -> bool:
    """Whether a loop has no effect but on the variable that it combines into."""
    statements = list(ir.walk(loop.body))
    own = {statement.name for statement in statements if isinstance(statement, ir.Declare)}
    assigned = {statement.name for statement in statements if isinstance(statement, ir.Assign)} - own
    local = all(
        isinstance(s, ir.Let | ir.Declare | ir.Assign | ir.If | ir.For | ir.While | ir.Require) for s in statements
    )
    return local and assigned == {reduction.name}
