"""Data as addresses: a program in first-order form whose recursive data are cells of memory.

What is left of data is a number, the i64 address of a cell: which variant it is, and its fields, eight bytes each (of
an array, its address). ``construct`` is then ``cell``, and ``case`` is ``open``; a procedure takes and gives addresses.

    List.Cons(x, rest)                 cell 1 of x, rest
    case xs: Nil: a; Cons(h, t): b     open xs: 0: a; 1 (h, t): b
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.builder import Builder, build
from ...core.environment import Env
from ...core.placement import to_block
from ...core.procedures import Procedure
from ...core.terms import Block, Operation
from ...core.types import Named, Type, i64
from .. import embed


def in_cells(block: Block) -> Block:
    """A closed term in first-order form with cells for its data; procedures of its own for those that it calls."""
    return _Cells().block(block)


def held(type: Type) -> Type:
    """What a part of a value is in a cell, or in a register."""
    return i64 if isinstance(type, Named) else type


class _Cells:
    def __init__(self) -> None:
        self._procedures: dict[Procedure, Procedure] = {}

    def block(self, block: Block) -> Block:
        with build() as builder:
            types = [held(type) for type in block.binders]
            binders = embed.fresh_binders(builder, Block(tuple(types), (), (), block.names))
            results = block.interpret(_Rewrite(builder, self))(Env(), binders)
            made, captured = to_block(binders, results, builder.scopes[0].statements, block.names)
            assert not captured
            return made

    def procedure(self, procedure: Procedure) -> Procedure:
        if procedure not in self._procedures:
            results = tuple([held(type) for type in procedure.results])
            made = self._procedures[procedure] = Procedure(procedure.name, results, procedure.origin)
            made.block = self.block(procedure.block)
        return self._procedures[procedure]


class _Rewrite(embed.Embed):
    def __init__(self, builder: Builder, cells: _Cells) -> None:
        super().__init__(builder)
        self._cells = cells

    def operation(
        self, operation: Operation, args: Sequence[embed.Atom], blocks: Sequence[embed.Block]
    ) -> embed.Operation:
        match operation.op:
            case "construct":
                named, variant = operation.static
                number = list(named.declaration.variants).index(variant)
                return self._with_blocks("cell", (number,), args, [])
            case "case":
                named = operation.args[0].type
                assert isinstance(named, Named)
                variants = list(named.declaration.variants)
                fields = tuple([tuple([held(type) for type in named.fields(name).values()]) for name in variants])
                ordered = [blocks[operation.static.index(name)] for name in variants]
                return self._with_blocks("open", fields, args, ordered)
            case "call":
                return self._with_blocks("call", (self._cells.procedure(operation.static[0]),), args, [])
        return super().operation(operation, args, blocks)
