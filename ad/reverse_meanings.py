"""What atoms, operations and blocks mean in reverse mode: a primal, a pull, and what is active; how they are emitted.

A meaning is a function of an environment of entries (``cells.py``). The primal alone can be emitted anywhere and any
number of times: that is how a return sweep runs code again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..core import terms
from ..core.builder import Builder
from ..core.environment import Env
from ..core.graph import Value
from ..core.procedures import Procedure
from ..core.terms import Foreign
from ..core.types import Accumulator, Type, is_float
from ..interpreters.embed import Atom as PrimalAtom
from ..interpreters.embed import Block as PrimalBlock
from ..interpreters.embed import Embed
from ..interpreters.embed import Operation as PrimalOperation
from .active_calls import ActiveCalls
from .activity import Block as ActivityBlock
from .activity import Operation as ActivityOperation
from .cells import Cell, Entry, Sweep
from .fragment import again

Cotangents = Sequence[Value | None]
Pull = Callable[[Cotangents], None]
Functions = dict[tuple[Procedure, bool], Value]  # those of procedures, with and without what they check


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

    def __init__(self, builder: Builder) -> None:
        super().__init__(builder)
        self.functions: Functions = {}
        self.acting: dict[Procedure, Foreign] = {}  # what has effects in a procedure, or in one that it calls

    def require_no_effects(self, procedure: Procedure) -> None:
        """Unsupported where a procedure with effects would run once more."""
        if procedure in self.acting and not self.checks:
            raise again(self.builder, self.acting[procedure], "reverse")

    def variable(self, index: int, type: Type) -> PrimalAtom:
        if isinstance(type, Accumulator):
            return lambda env: env.get(index).value  # None for one that is differentiated
        return super().variable(index, type)

    def foreign(self, function: Foreign, args: Any) -> PrimalOperation:
        emit = super().foreign(function, args)

        def run(env: Env[Entry]) -> Sequence[Value]:
            if function.effects and not self.checks:
                raise again(self.builder, function, "reverse")
            return emit(env)

        return run

    def call(self, procedures: tuple[Procedure, ...], args: Sequence[PrimalAtom]) -> PrimalOperation:
        [procedure] = procedures  # forks are not written as calls yet

        def run(env: Env[Entry]) -> Sequence[Value]:
            self.require_no_effects(procedure)
            return self.builder.emit("apply", (), [self.functions[procedure, self.checks], *[arg(env) for arg in args]])

        return run

    def add_to(self, accumulator: Any, value: Any, indices: Any) -> PrimalOperation:
        emit = super().add_to(accumulator, value, indices)
        return lambda env: [] if accumulator(env) is None else emit(env)


class Emission(ABC):
    """Where a return sweep is emitted to, and what is emitted meanwhile.

    While ``checks`` is false, requirements are left out: they belong to the forward sweep; all else runs code again.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep, self.builder = sweep, sweep.builder
        self.embed = Primal(sweep.builder)
        self.activity = ActiveCalls(lambda entry: entry.active)
        self.functions: Functions = {}  # with pullbacks
        self.transposing = False  # a rule, of which all that moves is linear
        self.probes: set[str] = set()  # the names in the program
        self.showing = True  # cotangents of probes

    @abstractmethod
    def meaning(self, block: terms.Block, of_procedure: bool = False) -> Block:
        """The meaning of a whole term, or of the block of a procedure."""

    @property
    def checks(self) -> bool:
        return self.embed.checks

    @checks.setter
    def checks(self, value: bool) -> None:
        self.embed.checks = value

    @contextmanager
    def checking(self, checks: bool = True) -> Iterator[None]:
        """Set ``checks`` while code is emitted."""
        before, self.checks = self.checks, checks
        try:
            yield
        finally:
            self.checks = before

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What is pulled meanwhile is a step of a rule, no cotangent of the program's."""
        before, self.showing = self.showing, False
        try:
            yield
        finally:
            self.showing = before

    @contextmanager
    def transposed(self) -> Iterator[None]:
        """Customs without a rule of this mode are what their bodies are, meanwhile."""
        before, self.transposing = self.transposing, True
        try:
            yield
        finally:
            self.transposing = before

    def constants(self, values: Sequence[Value]) -> list[Entry]:
        """Entries of values that nothing is differentiated by."""
        return [Entry(value) for value in values]

    def give_cells(self, entries: Sequence[Entry]) -> list[Cell | None]:
        """Cells in the open scope for entries that are floating."""
        for entry in entries:
            if entry.value is not None and is_float(entry.value.type):
                entry.cell = Cell(self.sweep, entry.value)
        return [entry.cell for entry in entries]
