"""Activity analysis of programs in first-order form: which parameters and results of procedures move, and which data.

A procedure has one answer for all its calls: a parameter moves if it does in any of them, and what its results are then
is found by looking at its block again, until nothing changes (``settle``). Of data it is one answer for all numbers in
it, so the fields of what moves move where they may.

    go(xs, k): case xs: Nil(): 0; Cons(h, t): k * h + go(t, k)        go(xs, 2), where xs moves:   (xs, not k) -> moves
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import or_
from typing import Any

from ..core import terms
from ..core.environment import Env
from ..core.procedures import Procedure
from ..core.types import Named, holds_floating
from .activity import Active, Activity, Atom, Block, Operation, either


@dataclass
class Moving:
    """Which parameters and results of a procedure move."""

    parameters: list[bool]
    results: list[bool]


class ActiveCalls(Activity):
    """The analysis with procedures and data."""

    def __init__(self, entry_is_active: Any) -> None:
        super().__init__(entry_is_active)
        self.procedures: dict[Procedure, Moving] = {}
        self._blocks: dict[Procedure, Block] = {}
        self._seen: set[Procedure] | None = None  # in this round, while nothing is settled
        self._changed = False
        self.met = False  # a call or data in which something moves, since somebody set this to False

    def settle(self, blocks: dict[Procedure, Block], block: Block, arguments: Sequence[Any]) -> None:
        """Find what moves in these procedures, for a block at these arguments that calls them."""
        self._blocks = blocks
        for procedure in blocks:
            binders, results = procedure.block.binders, procedure.results
            self.procedures[procedure] = Moving([False] * len(binders), [False] * len(results))
        self._changed = True
        while self._changed:
            self._changed, self._seen = False, set()
            block(Env(), arguments)
        self._seen = None

    def operation(self, operation: terms.Operation, args: Sequence[Atom], blocks: Sequence[Block]) -> Operation:
        """What the method of the construct says; the fields of data that moves are told by their types."""
        if operation.op == "case":
            may_move = [[holds_floating(type) for type in block.binders] for block in operation.blocks]
            return self.case_of(args[0], blocks, may_move)
        return super().operation(operation, args, blocks)

    def construct(self, type: Named, variant: str, fields: Sequence[Atom]) -> Operation:
        return lambda env: self._noted(Active([any([self.is_active(field(env)) for field in fields])]))

    def _noted(self, active: Active) -> Active:
        self.met = self.met or any(active.results)
        return active

    def case_of(self, value: Atom, branches: Sequence[Block], may_move: Sequence[Sequence[bool]]) -> Operation:
        """A choice whose fields may move where these say so."""

        def run(env: Env[Any]) -> Active:
            moves = self.is_active(value(env))
            self.met = self.met or moves
            fields = [[moves and may for may in own] for own in may_move]
            return either([branch(env, own) for branch, own in zip(branches, fields, strict=True)])

        return run

    def call(self, procedures: tuple[Procedure, ...], args: Sequence[Atom]) -> Operation:
        [procedure] = procedures
        types = procedure.block.binders

        def run(env: Env[Any]) -> Active:
            moving = self.procedures[procedure]
            if self._seen is not None:
                given = [self.is_active(arg(env)) for arg in args]
                may = [moves and holds_floating(type) for moves, type in zip(given, types, strict=True)]
                moving.parameters = self._risen(moving.parameters, may)
                if procedure not in self._seen:
                    self._seen.add(procedure)
                    with self.fixpoints.afresh():
                        found = self._blocks[procedure](Env(), moving.parameters)
                    moving.results = self._risen(moving.results, found.results)
            return self._noted(Active(list(moving.results)))

        return run

    def _risen(self, before: list[bool], more: Sequence[bool]) -> list[bool]:
        after = list(map(or_, before, more))
        self._changed = self._changed or after != before
        return after
