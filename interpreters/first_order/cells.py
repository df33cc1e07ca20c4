"""Data as addresses: a program in first-order form whose recursive data are cells of memory.

What is left of data is a number, the i64 address of a cell: its tag (``tags.py``), and its fields, eight bytes each (of
an array, its address). ``construct`` is then ``cell``, and ``case`` is ``open``; a procedure takes and gives addresses.

    List.Cons(x, rest)                 cell 1 of x, rest
    case xs: Nil: a; Cons(h, t): b     open xs: 0: a; 1 (h, t): b
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...core.builder import Builder
from ...core.terms import Block, Operation
from ...core.types import Named, Opened, Type, i64
from .. import embed
from .copies import Copies, Copy
from .tags import Tags, Variant


def in_cells(block: Block) -> Block:
    """A closed term in first-order form with cells for its data; procedures of its own for those that it calls."""
    return Copies(partial(_Cells, Tags()), held).block(block)


def held(type: Type) -> Type:
    """What a part of a value is in a cell, or in a register."""
    return i64 if isinstance(type, Named) else type


class _Cells(Copy):
    def __init__(self, tags: Tags, builder: Builder, copies: Copies) -> None:
        super().__init__(builder, copies)
        self.tags = tags

    def operation(
        self, operation: Operation, args: Sequence[embed.Atom], blocks: Sequence[embed.Block]
    ) -> embed.Operation:
        match operation.op:
            case "construct":
                named, name = operation.static
                variant = self.tags.variants(named)[name]
                if variant.is_field:
                    return lambda env: [args[0](env)]
                return self._with_blocks("cell", variant.tags, args, [])
            case "case":
                named = operation.args[0].type
                assert isinstance(named, Named)
                variants = self.tags.variants(named)
                opened = tuple([self._opened(named, *each) for each in variants.items()])
                ordered = [blocks[operation.static.index(name)] for name in variants]
                if len(opened) == 1 and opened[0][1] is None:  # there is nothing to open
                    return lambda env: ordered[0](env, [args[0](env)])
                return self._with_blocks("open", opened, args, ordered)
        return super().operation(operation, args, blocks)

    @staticmethod
    def _opened(named: Named, name: str, variant: Variant) -> Opened:
        fields = tuple([held(type) for type in named.fields(name).values()])
        return variant.tags, None if variant.is_field else fields
