"""Inlining: a procedure that is called at one place alone stands there (Appel, Compiling with continuations, 1992).

The functions of return sweeps call each other in a round, each at one place. Together they are one procedure, which
goes on with itself. Nothing is written twice by that; and each round is entered from outside, so one of its procedures
is called twice, and stays. A call in a loop stays one, and so do those of a fork.

    p(x) = q(x + 1);  q(y) = cond(y > 9, y, p(2 * y))       p(x) = cond(x + 1 > 9, x + 1, p(2 * (x + 1)))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ...core.builder import Builder
from ...core.environment import Env
from ...core.procedures import Procedure, procedures_of
from ...core.terms import Block, Operation
from .. import embed
from .copies import Copies, Copy


def inlined(block: Block) -> Block:
    """A closed term in first-order form that calls no procedure at one place alone, if that is in no loop."""
    blocks = [block, *[procedure.block for procedure in procedures_of(block)]]
    calls = [call for each in blocks for call in _calls(each)]
    places = Counter([procedure for operation, _ in calls for procedure in operation.static])
    once = frozenset([call.static[0] for call, stays in calls if places[call.static[0]] == 1 and not stays])
    return Copies(lambda builder, copies: _Inlined(builder, copies, once)).block(block) if once else block


class _Inlined(Copy):
    def __init__(self, builder: Builder, copies: Copies, once: frozenset[Procedure]) -> None:
        super().__init__(builder, copies)
        self.once = once

    def call(self, procedures: tuple[Procedure, ...], args: Sequence[embed.Atom]) -> embed.Operation:
        if procedures[0] not in self.once:
            return super().call(procedures, args)
        meaning = procedures[0].block.interpret(self)
        return lambda env: meaning(Env(), [arg(env) for arg in args])


def _calls(block: Block, inside: bool = False) -> Iterator[tuple[Operation, bool]]:
    """The calls in a block; whether they stay: in loops, of several procedures, and on arrays of other types."""
    for operation in block.bindings:
        if operation.op == "call":
            types = [type for procedure in operation.static for type in procedure.block.binders]
            stays = inside or len(operation.static) > 1 or [arg.type for arg in operation.args] != types
            yield operation, stays
        for inner in operation.blocks:
            yield from _calls(inner, inside or operation.row.loops)
