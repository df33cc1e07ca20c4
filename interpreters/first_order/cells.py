"""Data as addresses: a program in first-order form whose recursive data are cells of memory.

What is left of data is a number, the i64 address of a cell: which variant it is, and its fields, eight bytes each (of
an array, its address). ``construct`` is then ``cell``, and ``case`` is ``open``; a procedure takes and gives addresses.

    List.Cons(x, rest)                 cell 1 of x, rest
    case xs: Nil: a; Cons(h, t): b     open xs: 0: a; 1 (h, t): b
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.terms import Block, Operation
from ...core.types import Named, Type, i64
from .. import embed
from .copies import Copies, Copy


def in_cells(block: Block) -> Block:
    """A closed term in first-order form with cells for its data; procedures of its own for those that it calls."""
    return Copies(_Cells, held).block(block)


def held(type: Type) -> Type:
    """What a part of a value is in a cell, or in a register."""
    return i64 if isinstance(type, Named) else type


class _Cells(Copy):
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
        return super().operation(operation, args, blocks)
