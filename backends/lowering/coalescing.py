"""Loop coalescing (Polychronopoulos 1987): several loops of a nest as one, over as many points as all of them.

A product has tiles along one loop of each side; what else its columns vary with would be further loops around, with
tiles that short columns leave empty. As one loop they are a long one. An array that has the loops as neighbouring
axes, each as long as its loop, is read and written side by side, as the target's addresses say. ::

    nest f < o, c < C, i < 3, j < 3                       nest f < o, n < C * 3 * 3
      s = sum(y, x: g[f, y, x] * u[c, y + i, x + j])  =>    let c = n // 9; let i = n // 3 % 3; let j = n % 3
      w[f, c, i, j] = s                                     s = sum(y, x: g[f, y, x] * u[c, y + i, x + j])
                                                            w[f, c, i, j] = s
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from .. import ir
from .nests import Layouts, Plan


@dataclass(frozen=True)
class Coalesced:
    """A nest with one loop in place of several, and the axes of its temporaries, in which these loops come last."""

    nest: Plan
    layouts: dict[str, tuple[int, ...]]
    apart: bool  # whether something that it sums is not side by side


def coalesced(nest: Plan, names: Collection[str], layouts: Layouts) -> Coalesced | None:
    """A nest with one loop for some of its loops; None where what it writes would not stand side by side.

    Nor may anything but what is summed be asked for by place.
    """
    stores = list(ir.of_kind(nest.body, ir.Store))
    by_name = {loop.variable.name: loop for loop in nest.loops if loop.variable.name in names}
    order = [getattr(index, "name", "") for store in stores[:1] for index in store.indices]
    loops = [by_name[name] for name in order if name in by_name]
    if len(loops) < max(2, len(by_name)):
        return None
    number = ir.Variable(nest.fresh("number"))
    orders = {store.buffer.name: tuple(range(len(store.indices))) for store in stores} | dict(layouts)
    for store in stores:
        if store.buffer.name in nest.temporaries:
            variables = [loop.variable for loop in loops]
            last = [store.indices.index(each) for each in variables if each in store.indices]
            first = [axis for axis in orders[store.buffer.name] if axis not in last]
            orders[store.buffer.name] = (*first, *last)

    def flat(e: ir.Load | ir.Store, order: Sequence[int]) -> bool:
        """Whether the elements of an array are side by side along all of the loops."""
        at = [axis for axis in order if not by_name.keys().isdisjoint(ir.names_in([e.indices[axis]]))]
        first = order.index(at[0]) if at else 0
        beside = tuple(order[first : first + len(loops)]) == tuple(at) and not set(at) & set(e.guarded)
        plain = [e.indices[axis] for axis in at] == [loop.variable for loop in loops]
        return beside and plain and [e.buffer.extents[axis] for axis in at[1:]] == [loop.extent for loop in loops[1:]]

    if not all(flat(store, orders[store.buffer.name]) for store in stores):
        return None

    def otherwise(e: ir.Expression) -> set[str]:
        """The loops whose places an expression asks for."""
        if isinstance(e, ir.Load) and e.buffer.name not in nest.temporaries and flat(e, range(len(e.indices))):
            return set()
        return set().union({e.name} if isinstance(e, ir.Variable) else (), *map(otherwise, ir.operands(e)))

    def asked(block: ir.Block) -> set[str]:
        values = [[s.value] if isinstance(s, ir.Store) else ir.expressions_of(s) for s in ir.walk(block)]
        return set().union(*[otherwise(e) for each in values for e in each])

    outside = tuple([s for s in nest.body if not isinstance(s, ir.For)])
    if not by_name.keys().isdisjoint(asked(outside)):
        return None
    lets = ir.unravelled(number, loops, nest.fresh)
    axis = ir.Axis(number, ir.product([loop.extent for loop in loops]))
    kept = [axis if loop is loops[-1] else loop for loop in nest.loops if loop not in loops[:-1]]
    return Coalesced(
        replace(nest, loops=kept, body=(*lets, *nest.body)), orders, bool(asked(nest.body) & by_name.keys())
    )
