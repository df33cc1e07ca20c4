"""Copies of a program and of the procedures that it calls, each block rebuilt by one interpretation.

Procedures call each other, so the copy of one is there, without its block, before that is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.builder import Builder, build
from ...core.environment import Env
from ...core.graph import Value
from ...core.placement import to_block
from ...core.procedures import Procedure
from ...core.terms import Block
from ...core.types import Type
from .. import embed


class Copies:
    """The procedures of one program; ``language`` rebuilds blocks, ``type`` says what types become."""

    def __init__(
        self, language: Callable[[Builder, Copies], Copy], type: Callable[[Type], Type] = lambda type: type
    ) -> None:
        self._language, self._type = language, type
        self._procedures: dict[Procedure, Procedure] = {}

    def block(self, block: Block, of: Procedure | None = None) -> Block:
        """The copy of a closed block, or of that of a procedure."""
        takes, gives = (range(len(block.binders)), range(len(block.results))) if of is None else self.keeps(of)
        with build() as builder:
            types = tuple([self._type(type) for type in block.binders])
            binders = embed.fresh_binders(builder, Block(types, (), (), block.names))
            given = binders if of is None else self.given(of, builder, binders)
            results = block.interpret(self._language(builder, self))(Env(), given)
            names = tuple([block.names[k] for k in takes])
            kept = [binders[k] for k in takes], [results[k] for k in gives]
            made, captured = to_block(*kept, builder.scopes[0].statements, names)
            assert not captured
            return made

    def procedure(self, procedure: Procedure) -> Procedure:
        """The copy of a procedure."""
        if procedure not in self._procedures:
            takes, gives = self.keeps(procedure)
            parameters = tuple([self._type(procedure.parameters[k]) for k in takes])
            results = tuple([self._type(procedure.results[k]) for k in gives])
            made = self._procedures[procedure] = Procedure(procedure.name, parameters, results, procedure.origin)
            made.block = self.block(procedure.block, procedure)
        return self._procedures[procedure]

    def keeps(self, procedure: Procedure) -> tuple[Sequence[int], Sequence[int]]:
        """Which parameters and results the copy of a procedure has: all, if nothing else is said."""
        return range(len(procedure.parameters)), range(len(procedure.results))

    def given(self, procedure: Procedure, builder: Builder, binders: Sequence[Value]) -> Sequence[Value]:
        """What the block of a procedure is entered with, where these are its parameters."""
        return binders


class Copy(embed.Embed):
    """Rebuilds one block of a program, which calls the copies of procedures."""

    def __init__(self, builder: Builder, copies: Copies) -> None:
        super().__init__(builder)
        self.copies = copies

    def call(self, procedures: tuple[Procedure, ...], args: Sequence[embed.Atom]) -> embed.Operation:
        return super().call(tuple(map(self.copies.procedure, procedures)), args)
