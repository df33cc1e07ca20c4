"""Dual numbers, and what atoms, operations and blocks mean in forward mode: how duals are emitted.

A meaning is a function of an environment of duals. ``reverse_meanings.py`` has the same for reverse mode.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..core.builder import Builder
from ..core.environment import Env
from ..core.expr import Expr
from ..core.graph import Body, Value
from ..core.types import Scalar
from ..interpreters.simplify.accumulators import plus, zeros_like
from .active_parts import ActiveParts
from .activity import Block as ActivityBlock
from .activity import Operation as ActivityOperation
from .activity import State
from .forms import Form
from .reverse_meanings import Emission as ReverseEmission


@dataclass(frozen=True)
class Dual:
    """A value and its tangent; None: the tangent is zero.

    A function, a tuple or a value of a declared type has its tangent inside, where its ``form`` says so.
    """

    primal: Value
    tangent: Value | None = None
    form: Form | None = None

    @property
    def moves(self) -> State:
        """Its state for activity analysis."""
        return self.tangent is not None if self.form is None else self.form


Duals = Env[Dual]
Atom = Callable[[Duals], Dual]
Pick = Sequence[State]
Linear = Callable[[Expr], Expr]  # from the tangent of an operand to its share in that of the result


@dataclass(frozen=True)
class Operation:
    """The duals of the results, given which of them are to have a tangent; and the analysis that says so."""

    run: Callable[[Duals, Pick], Sequence[Dual]]
    activity: ActivityOperation


@dataclass(frozen=True)
class Block:
    """The same for a block, which decides by itself."""

    run: Callable[[Duals, Sequence[Dual]], list[Dual]]
    activity: ActivityBlock
    width: int  # how many results
    names: Sequence[str]  # of the parameters


class Emission(ABC):
    """Where duals are emitted to, and what is emitted meanwhile: without ``checks`` neither requirements nor probes."""

    def __init__(self, builder: Builder) -> None:
        self.builder, self.checks = builder, True
        self.probes: set[str] = set()  # the names in the program
        self.activity = ActiveParts(lambda dual: dual.moves)

    def tangent(self, dual: Dual) -> Value:
        """The tangent as a value, zero if need be."""
        return zeros_like(self.builder, dual.primal) if dual.tangent is None else dual.tangent

    def flat(self, duals: Sequence[Dual], active: Pick) -> list[Value]:
        """The primals, then the tangents of the active ones that are numbers or arrays."""
        tangents = [self.tangent(dual) for dual, moves in zip(duals, active, strict=True) if moves is True]
        return [*[dual.primal for dual in duals], *tangents]

    def duals(self, values: Sequence[Value], active: Pick) -> list[Dual]:
        """Duals from values followed by the tangents of the active ones."""
        tangents = iter(values[len(active) :])
        return [
            Dual(value, form=moves) if isinstance(moves, Form) else Dual(value, next(tangents) if moves else None)
            for value, moves in zip(values, active, strict=False)
        ]

    def constants(self, values: Sequence[Value]) -> list[Dual]:
        """Duals of values that do not move."""
        return [Dual(value) for value in values]

    def fixed(self, dual: Dual) -> Dual:
        """What a number is where it does not move. What is inside of other values stays, and moves nothing there."""
        return Dual(dual.primal, form=dual.form)

    # Linear functions of tangents

    def sum_of(self, shares: Sequence[tuple[Linear, Value]]) -> Value:
        """What tangents of operands, each through its linear function, give together."""
        total, *rest = [rule(Expr(tangent, self.builder)).value for rule, tangent in shares]
        for share in rest:
            total = plus(self.builder, total, share)
        return total

    def element_of(self, tangent: Value, places: Sequence[Value]) -> Value:
        """An element of the tangent of an array."""
        return self.builder.index(tangent, places)

    def sum_over(self, length: Value, tangents: Body, type: Scalar) -> Value:
        """The sum of the tangents of all elements, each of which is the result of a body."""
        b = self.builder
        operator = b.body([type, type], lambda x, y: [b.primitive("add", x, y)])
        return b.emit("reduce", (), [length, b.literal(0, type)], [tangents, operator])[0]

    @abstractmethod
    def reverse(self) -> ReverseEmission:
        """Reverse mode of what is found here."""

    @contextmanager
    def checking(self, checks: bool) -> Iterator[None]:
        """Set ``checks`` while code is emitted."""
        before, self.checks = self.checks, checks
        try:
            yield
        finally:
            self.checks = before

    def primals(self, block: Block, env: Duals, *arguments: Value) -> list[Value]:
        """What a block gives where nothing moves."""
        return [dual.primal for dual in block.run(env.mapped(self.fixed), self.constants(arguments))]
