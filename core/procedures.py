"""Procedures: closed blocks that are called by name, by themselves and by each other.

A program whose functions recur is a block and the procedures that it calls, directly or through each other (see
``interpreters/first_order``). A procedure is made before its block, which may call it. Its parameters and results are
scalars, arrays and values of declared types; the sizes in its types are names of the program, or those of parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

from .terms import NOWHERE, Block, Origin
from .types import Type


class Procedure:
    """A block with a name. Two procedures are the same when they are one object."""

    def __init__(self, name: str, results: tuple[Type, ...], origin: Origin = NOWHERE) -> None:
        self.name, self.results, self.origin = name, results, origin
        self._block: Block | None = None

    @property
    def block(self) -> Block:
        """What it does."""
        assert self._block is not None, f"{self.name} is still being made"
        return self._block

    @block.setter
    def block(self, block: Block) -> None:
        assert self._block is None and block.types == self.results
        self._block = block

    def __repr__(self) -> str:
        return f"<procedure {self.name}>"


def procedures_of(block: Block) -> list[Procedure]:
    """The procedures that a block calls, directly or through each other, in the order in which they are met."""
    found: dict[Procedure, None] = {}
    todo = [block]
    while todo:
        for procedure in called_in(todo.pop()):
            if procedure not in found:
                found[procedure] = None
                todo.append(procedure.block)
    return list(found)


def called_in(block: Block) -> Iterator[Procedure]:
    """The procedures that a block calls by itself, each as often as it does."""
    for operation in block.bindings:
        if operation.op == "call":
            yield operation.static[0]
        for inner in operation.blocks:
            yield from called_in(inner)
