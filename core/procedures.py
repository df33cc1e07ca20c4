"""Procedures: closed blocks that are called by name, by themselves and by each other.

A program whose functions recur is a block and the procedures that it calls, directly or through each other (see
``interpreters/first_order``). A procedure is made before its block, which may call it. Its parameters and results are
scalars, arrays and values of declared types; the sizes in its types are names of the program, or those of parameters.
A call of several procedures gives the results of all, and they may run side by side: it is a fork, and its join.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from .terms import NOWHERE, Block, Origin
from .types import Type, all_dims

T = TypeVar("T")


class Procedure:
    """A block with a name. Two procedures are the same when they are one object."""

    def __init__(
        self, name: str, parameters: tuple[Type, ...], results: tuple[Type, ...], origin: Origin = NOWHERE
    ) -> None:
        self.name, self.parameters, self.results, self.origin = name, parameters, results, origin
        self._block: Block | None = None

    @property
    def block(self) -> Block:
        """What it does."""
        assert self._block is not None, f"{self.name} is still being made"
        return self._block

    @block.setter
    def block(self, block: Block) -> None:
        assert self._block is None and len(block.binders) == len(self.parameters) and block.types == self.results
        self._block = block

    @property
    def fixed(self) -> bool:
        """Whether no size in its types is decided by the run."""
        return all([dim.is_static() for type in (*self.parameters, *self.results) for dim in all_dims(type)])

    def __repr__(self) -> str:
        return f"<procedure {self.name}>"


def shared_out(procedures: Sequence[Procedure], args: Sequence[T]) -> list[Sequence[T]]:
    """What each of some procedures takes of the arguments of all."""
    shares: list[Sequence[T]] = []
    for procedure in procedures:
        count = len(procedure.parameters)
        shares.append(args[:count])
        args = args[count:]
    return shares


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
            yield from operation.static
        for inner in operation.blocks:
            yield from called_in(inner)
