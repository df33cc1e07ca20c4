"""Tail calls modulo constructors: who makes a cell of what a call gives need not wait for it.

A recursion that makes a list gives a cell of a head and of the list that it calls itself for, so it would go as deep as
the list is long. But nothing looks at a cell before the procedure is done. So a procedure of such a recursion *writes*
what it gives to words that its caller says: it makes the cell first, with a hole, and goes on with itself, which writes
to the hole. That is a loop, and takes no stack (Warren 1980; Bour, Clément and Scherer 2021, Tail modulo cons)::

    go(xs) = case xs: Nil(): Nil()                     take xs, word
             case Cons(h, t): Cons(h * h, go(t))       ... cell = Cons of h * h, 0; put cell at word
                                                           go on with go on t, the place of the tail in cell

The same holds for several results, each in a cell or passed on, in any order, as those of return sweeps are: the
cotangents of two lists. What the procedure computes behind the call, and not of what that gives, it computes before.

Recursions that call themselves besides, as over trees, stay as they are: they take the stack anyway, and a loop down
one arm, whose end no processor predicts, takes longer than calls that are unfolded (``llvm/unfolding.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ...core import terms
from ...core.components import components
from ...core.procedures import Procedure, called_in
from ...core.types import rank


@dataclass(frozen=True)
class Last:
    """The operation of a block that may be its last: a call, or a choice. Behind it are cells of what it gives."""

    position: int
    first: int  # the level of its first result, counted from the block's first binder
    count: int  # of its results

    def result(self, level: int, atom: terms.Atom) -> int | None:
        """The number of the result that an atom is, at a level behind it; None where it is none."""
        number = level - 1 - atom.index - self.first if isinstance(atom, terms.Variable) else -1
        return number if 0 <= number < self.count else None


def writing(procedures: Mapping[Procedure, terms.Block]) -> frozenset[Procedure]:
    """The procedures that write what they give: those of recursions that make cells of what these give."""
    graph = {each: [p for p in called_in(block) if p in procedures] for each, block in procedures.items()}
    found = set[Procedure]()
    for group in components(graph):
        blocks = [procedures[each] for each in group]
        scalars = not any([rank(type) for block in blocks for type in block.types])
        calls = [len([p for p in called_in(block) if p in group]) for block in blocks]
        linear = calls == [_last_calls(block, group) for block in blocks]
        if scalars and linear and any([_constructs(block, group) for block in blocks]):
            found.update(group)
    return frozenset(found)


def _last_calls(block: terms.Block, group: Collection[Procedure]) -> int:
    """At how many places a block goes on with a procedure of a group."""
    found = last(block, group)
    if found is None:
        return 0
    operation = block.bindings[found.position]
    return 1 if operation.op == "call" else sum([_last_calls(inner, group) for inner in operation.blocks])


def last(block: terms.Block, group: Collection[Procedure]) -> Last | None:
    """What a block may do last, by which it goes on with a procedure of a group."""
    level = len(block.binders) + sum([len(each.types) for each in block.bindings])
    for position in reversed(range(len(block.bindings))):
        operation = block.bindings[position]
        level -= len(operation.types)
        if _goes_on(operation, group):
            found = Last(position, level, len(operation.types))
            return found if _waits_for_nothing(block, found) else None
        if not _may_move(operation):
            return None
    return None


def _goes_on(operation: terms.Operation, group: Collection[Procedure]) -> bool:
    if operation.op == "call":
        return len(operation.static) == 1 and operation.static[0] in group
    return operation.row.chooses and any([last(block, group) is not None for block in operation.blocks])


def _may_move(operation: terms.Operation) -> bool:
    """Whether an operation may be done earlier: it ends, and is no statement."""
    return all([each.row.pure and not (each.row.partial or each.row.external) for each in _inside(operation)])


def _inside(operation: terms.Operation) -> Iterator[terms.Operation]:
    yield operation
    for block in operation.blocks:
        for inner in block.bindings:
            yield from _inside(inner)


def _waits_for_nothing(block: terms.Block, found: Last) -> bool:
    """Whether each result of an operation is in one place: a field of a cell, or a result of the block."""
    places, level = list[int | None](), found.first + found.count
    for operation in block.bindings[found.position + 1 :]:
        held = [found.result(level, atom) for atom in operation.args]
        read = [found.result(level, variable) for each in operation.blocks for variable in each.free]
        if any([number is not None for number in (*(held if operation.op != "cell" else ()), *read)]):
            return False
        places += held
        level += len(operation.types)
    places += [found.result(level, atom) for atom in block.results]
    return all([places.count(number) == 1 for number in range(found.count)])


def _constructs(block: terms.Block, group: Collection[Procedure]) -> bool:
    """Whether a block makes cells of what it goes on with, or passes that on in another order."""
    found = last(block, group)
    if found is None:
        return False
    operation = block.bindings[found.position]
    return not are_results(operation, block) or any([_constructs(each, group) for each in operation.blocks])


def are_results(operation: terms.Operation, block: terms.Block) -> bool:
    """Whether what a block gives is what its last operation gives."""
    count = len(operation.types)
    return operation is block.bindings[-1] and list(block.results) == [
        terms.Variable(count - 1 - k, type) for k, type in enumerate(operation.types)
    ]
