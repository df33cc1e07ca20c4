"""Copies of a program and of the procedures that it calls, each block rebuilt by one interpretation.

Procedures call each other, so the copy of one is there, without its block, before that is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.builder import Builder, build
from ...core.environment import Env
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

    def block(self, block: Block) -> Block:
        """The copy of a closed block."""
        with build() as builder:
            types = tuple([self._type(type) for type in block.binders])
            binders = embed.fresh_binders(builder, Block(types, (), (), block.names))
            results = block.interpret(self._language(builder, self))(Env(), binders)
            made, captured = to_block(binders, results, builder.scopes[0].statements, block.names)
            assert not captured
            return made

    def procedure(self, procedure: Procedure) -> Procedure:
        """The copy of a procedure."""
        if procedure not in self._procedures:
            takes, gives = (tuple(map(self._type, each)) for each in (procedure.parameters, procedure.results))
            made = self._procedures[procedure] = Procedure(procedure.name, takes, gives, procedure.origin)
            made.block = self.block(procedure.block)
        return self._procedures[procedure]


class Copy(embed.Embed):
    """Rebuilds one block of a program, which calls the copies of procedures."""

    def __init__(self, builder: Builder, copies: Copies) -> None:
        super().__init__(builder)
        self.copies = copies

    def call(self, procedures: tuple[Procedure, ...], args: Sequence[embed.Atom]) -> embed.Operation:
        return super().call(tuple(map(self.copies.procedure, procedures)), args)
