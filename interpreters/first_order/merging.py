"""Merging: procedures that do the same, and whose recursions are written at one line, are one.

Derivatives emit a walk for each parameter, as one that fills a cotangent with zeros. Those of two lists are equal but
for which copies of themselves they call. Procedures are taken to be equal until their blocks show that they are not,
as states of an automaton are (Hopcroft, An n log n algorithm for minimizing states in a finite automaton, 1971).

    filled(x, c) = ... filled(...)    filled2(x, c) = ... filled2(...)    =>    filled alone
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.builder import Builder
from ...core.procedures import Procedure, procedures_of
from ...core.terms import Block
from .. import embed
from .copies import Copies, Copy


def merged(block: Block) -> Block:
    """A closed term in first-order form that calls one of several equal procedures."""
    procedures = procedures_of(block)
    classes, count = dict.fromkeys(procedures, 0), 0
    while True:
        keys = {p: (classes[p], p.origin, p.parameters, p.results, _written(p.block, classes)) for p in procedures}
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys.values()))}
        classes = {each: numbers[keys[each]] for each in procedures}
        if len(numbers) == count:
            break
        count = len(numbers)
    if count == len(procedures):
        return block
    first: dict[int, Procedure] = {}
    for each in procedures:
        first.setdefault(classes[each], each)
    return Copies(lambda builder, copies: _Merged(builder, copies, classes, first)).block(block)


class _Merged(Copy):
    def __init__(
        self, builder: Builder, copies: Copies, classes: Mapping[Procedure, int], first: Mapping[int, Procedure]
    ) -> None:
        super().__init__(builder, copies)
        self.classes, self.first = classes, first

    def call(self, procedures: tuple[Procedure, ...], args: Sequence[embed.Atom]) -> embed.Operation:
        return super().call(tuple([self.first[self.classes[each]] for each in procedures]), args)


def _written(block: Block, classes: Mapping[Procedure, int]) -> object:
    """What a block does, where only the classes of procedures are known."""
    bindings = [
        (
            each.op,
            tuple([classes[called] for called in each.static]) if each.op == "call" else each.static,
            each.args,
            each.types,
            tuple([_written(inner, classes) for inner in each.blocks]),
        )
        for each in block.bindings
    ]
    return block.binders, tuple(bindings), block.results
