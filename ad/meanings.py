"""What atoms, operations and blocks mean in reverse mode: a primal, a pull, and what is active.

A meaning is a function of an environment of entries (``cells.py``). The primal alone can be emitted anywhere and any
number of times: that is how a return sweep runs code again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.environment import Env
from ..core.graph import Value
from ..core.types import Accumulator, Type
from ..interpreters.embed import Atom as PrimalAtom
from ..interpreters.embed import Block as PrimalBlock
from ..interpreters.embed import Embed
from ..interpreters.embed import Operation as PrimalOperation
from .activity import Block as ActivityBlock
from .activity import Operation as ActivityOperation
from .cells import Cell, Entry

Cotangents = Sequence[Value | None]
Pull = Callable[[Cotangents], None]


@dataclass(frozen=True)
class Atom:
    primal: Callable[[Env[Entry]], Value]
    entry: Callable[[Env[Entry]], Entry]

    def cell(self, env: Env[Entry]) -> Cell | None:
        return self.entry(env).cell


@dataclass(frozen=True)
class Operation:
    """The primal alone; the primal with its pull, given which results are active; and the analysis that says so."""

    primal: PrimalOperation
    run: Callable[[Env[Entry], Sequence[bool]], tuple[Sequence[Value], Pull]]
    activity: ActivityOperation


@dataclass(frozen=True)
class Block:
    primal: PrimalBlock
    run: Callable[[Env[Entry], Sequence[Entry]], tuple[list[Value], Pull]]
    activity: ActivityBlock
    width: int  # how many results


class Primal(Embed):
    """The primal code, in environments of entries; updates of accumulators that are differentiated vanish."""

    def entry(self, value: Value) -> Entry:
        return Entry(value)

    def value(self, entry: Entry) -> Value:
        assert entry.value is not None
        return entry.value

    def variable(self, index: int, type: Type) -> PrimalAtom:
        if isinstance(type, Accumulator):
            return lambda env: env.get(index).value  # None for one that is differentiated
        return super().variable(index, type)

    def add_to(self, accumulator: Any, value: Any, indices: Any) -> PrimalOperation:
        emit = super().add_to(accumulator, value, indices)
        return lambda env: [] if accumulator(env) is None else emit(env)
