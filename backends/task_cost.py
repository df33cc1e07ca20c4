"""Whether a branch of a fork is worth a task: it takes long, and threads could not share what is in it.

A branch without recursion is counted (``interpreters/cost``). A size that is not known, the trips of a loop included,
is taken to be large. What then takes as much work as another thread is worth, and has no more of it for each step of
its span than an array in registers has elements, would keep one thread busy and leave the others idle:

    fori_loop(0, n, lambda i, s: sin(s) + a, a)    26 n operations, and a span of 26 n: a task
    exp(x)                                         20 n operations, and a span of 22: its loop is for all threads

What combines elements is no part of a task, for it would do so in another order there.
"""

from __future__ import annotations

from ..core.language import Unsupported
from ..core.terms import Block
from ..interpreters.cost import ProgramCost
from ..interpreters.cost.amounts import Amount
from .target import CACHED_ELEMENTS, SMALL_ARRAY, THREAD_GRAIN


def is_long(block: Block) -> bool:
    """Whether a closed term without calls is worth a task."""
    if _combines(block):
        return False
    try:
        cost = ProgramCost(block, simplified=False).symbolic
    except Unsupported:  # it makes data, or takes some apart, which is not counted
        return False
    work, span = Amount.of(cost.work), Amount.of(cost.span)
    sizes = dict.fromkeys(work.names() | span.names(), CACHED_ELEMENTS)
    return THREAD_GRAIN <= work.evaluate(sizes) <= SMALL_ARRAY * span.evaluate(sizes)


def _combines(block: Block) -> bool:
    return any(x.row.combines or any(map(_combines, x.blocks)) for x in block.bindings)
