"""Loops that hold a reduction over the cut size beside other work become two: the reductions, and the rest.

    for j < d: sum(x[:, j]) / f64(n)    becomes    t = for j < d: sum(x[:, j])
                                                   for j < d: t[j] / f64(n)

The first is done chunk by chunk, the second once, with what all chunks have given. What stands before the reduction in
the loop is computed in both. A choice in the loop is divided in the same way, so its test guards the reduction::

    for j < d: if t[j]: 2.0 * sum(x[:, j])    becomes    s = for j < d: if t[j]: sum(x[:, j]) else: 0.0
               else: 1.0                                 for j < d: if t[j]: 2.0 * s[j] else: 1.0

The operations of a checkpoint take its place: a stage computes all that it needs anew,
anyway. Of a choice that is made on each chunk, the planner has the reductions computed first, from the blocks that are
made here; no builder could put them there, for it computes what one branch needs in that branch.

(Loop fission with scalar expansion: Allen and Kennedy, 2001, sections 5.3 and 6.2.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

from ...core.builder import Builder, build
from ...core.dims import Dim
from ...core.graph import Value
from ...core.placement import to_block
from ...core.terms import Block, Operation, Rules, Variable
from ...core.types import Type
from ...interpreters.embed import Atom, Embed, Entries, emit_blocks
from ...interpreters.embed import Block as Meaning
from ...interpreters.embed import Operation as Operations
from .cutting import (
    INSTEAD,
    first_combination,
    goes_over,
    has_computed_size,
    is_choice_of_combinations,
    is_combination,
    partly_over,
    refuse,
    touches,
    without,
    writes,
)
from .language import zeros


def with_combinations_alone(block: Block, size: Dim) -> Block:
    """The closed block in which reductions over the size have loops of their own."""
    return without(block, size, _is_divided, _Fission)


def _is_divided(operation: Operation, size: Dim) -> bool:
    return _position(operation, size) is not None or (operation.op == "custom" and touches(operation, size))


def _position(operation: Operation, size: Dim) -> int | None:
    """Where the block of a loop has a reduction over the size beside other work."""
    if not operation.row.makes_elements or goes_over(operation, size) or partly_over(operation, size) is not None:
        return None
    if is_combination(operation, size):
        return None
    return first_combination(operation.blocks[0], size)


def combinations_alone(block: Block, places: Sequence[int]) -> Block:
    """The block of a branch that gives its combinations; requirements are those of the branch itself."""
    bindings = tuple([each for each in block.bindings[: places[-1] + 1] if each.types])
    levels = list(itertools.accumulate([len(each.types) for each in block.bindings], initial=0))
    results = [
        Variable(levels[places[-1] + 1] - 1 - levels[place] - k, type)
        for place in places
        for k, type in enumerate(block.bindings[place].types)
    ]
    return Block((), bindings, tuple(results))


def block_of_zeros(choice: Operation, types: Sequence[Type], size: Dim) -> Block:
    """The block of a branch that gives zeros; Unsupported where nothing outside of the other one knows their sizes."""
    check_sizes(choice, types, size)
    with build() as builder:
        block, _ = to_block([], [zeros(builder, type) for type in types])
    return block


def check_sizes(choice: Operation, types: Sequence[Type], size: Dim) -> None:
    """Unsupported where a combination in a choice is an array with a size that is computed."""
    for type in types:
        if has_computed_size(type):
            raise refuse(choice, size, f"a reduction in a branch is part of {type}, with a size that is computed")


class _Fission(Embed):
    def __init__(self, builder: Builder, size: Dim) -> None:
        super().__init__(builder)
        self._size, self._inside = size, Embed(builder)

    def meaning_of_operation(self, operation: Operation) -> Operations:
        """Loops over the size stay as they are, with all that is in them."""
        if goes_over(operation, self._size):
            self._inside.checks = self.checks
            return self._inside.meaning_of_operation(operation)
        return super().meaning_of_operation(operation)

    def custom(self, rules: Rules, args: Sequence[Atom], body: Meaning, blocks: Sequence[Meaning]) -> Operations:
        return lambda env: body(env, [arg(env) for arg in args])

    def operation(self, operation: Operation, args: Sequence[Atom], blocks: Sequence[Meaning]) -> Operations:
        position = _position(operation, self._size)
        if position is None:
            return super().operation(operation, args, blocks)
        return lambda env: self._loop(operation, position, args, blocks, env)

    def _loop(
        self, operation: Operation, position: int, args: Sequence[Atom], blocks: Sequence[Meaning], env: Entries
    ) -> Sequence[Value]:
        block = operation.blocks[0]
        if block.bindings[position].op == "cond":
            choice = block.bindings[position]
            check_sizes(choice, [*self._types(choice), *operation.types], self._size)
        sizes = [self.meaning_of_atom(extent)(env) for extent in operation.row.iterations(operation)]
        arrays = self._for_each(sizes, lambda *index: self._combination(block, position, env.enter(index)))

        def element(*index: Value) -> Sequence[Value]:
            found = [self.builder.part(array, index) for array in arrays]
            return self._rest(block, position, env.enter(index), found)

        others = [lambda *binders, each=each: each(env, binders) for each in blocks[1:]]
        values = [arg(env) for arg in args]
        return emit_blocks(self.builder, operation.op, operation.static, values, [element, *others])

    def _combination(self, block: Block, position: int, env: Entries) -> Sequence[Value]:
        """A combination of a block; what stands before it makes its requirements in the rest."""
        before, combination = block.bindings[:position], block.bindings[position]
        for each in before:
            if each.types and writes(each):
                raise refuse(each, self._size, INSTEAD["effects"])
        checks, self.checks = self.checks, False
        try:
            env = self._extended([each for each in before if each.types], env)
            if combination.op != "cond" or is_choice_of_combinations(combination, self._size):
                return self.meaning_of_operation(combination)(env)
            return self._guarded(combination, env)
        finally:
            self.checks = checks

    def _guarded(self, choice: Operation, env: Entries) -> Sequence[Value]:
        """The first combination of a choice where its branch is taken, zeros elsewhere."""
        taken, position = self._first(choice)
        types = self._types(choice)
        self.builder.origin = choice.origin
        branches: list[Callable[[], Sequence[Value]]] = [lambda: [zeros(self.builder, type) for type in types]] * 2
        branches[taken] = lambda: self._combination(choice.blocks[taken], position, env)
        return self.builder.cond(self.meaning_of_atom(choice.args[0])(env), *branches)

    def _first(self, choice: Operation) -> tuple[int, int]:
        """The branch and the place of the first combination of a choice."""
        places = [first_combination(block, self._size) for block in choice.blocks]
        return next((taken, place) for taken, place in enumerate(places) if place is not None)

    def _types(self, combination: Operation) -> Sequence[Type]:
        """The types of a combination, or of the first one of a choice."""
        if combination.op != "cond" or is_choice_of_combinations(combination, self._size):
            return combination.types
        taken, place = self._first(combination)
        return self._types(combination.blocks[taken].bindings[place])

    def _rest(self, block: Block, position: int, env: Entries, found: Sequence[Value]) -> Sequence[Value]:
        """The results of a block, one combination of which is there."""
        env, choice = self._extended(block.bindings[:position], env), block.bindings[position]
        if choice.op == "cond" and not is_choice_of_combinations(choice, self._size):
            taken, place = self._first(choice)
            inside, given = env, found
            branches: list[Callable[[], Sequence[Value]]]
            branches = [partial(self.meaning_of_block(each), inside, []) for each in choice.blocks]
            branches[taken] = lambda: self._rest(choice.blocks[taken], place, inside, given)
            self.builder.origin = choice.origin
            found = self.builder.cond(self.meaning_of_atom(choice.args[0])(env), *branches)
        env = env.extend(found)
        env = self._extended(block.bindings[position + 1 :], env)
        return [self.meaning_of_atom(result)(env) for result in block.results]

    def _for_each(self, sizes: Sequence[Value], body: Callable[..., Sequence[Value]]) -> Sequence[Value]:
        """The arrays of a body over indices."""

        def build(index: tuple[Value, ...]) -> Sequence[Value]:
            if len(index) == len(sizes):
                return body(*index)
            return self.builder.generate(sizes[len(index)], lambda i: build((*index, i)))

        return build(())

    def _extended(self, operations: Sequence[Operation], env: Entries) -> Entries:
        for operation in operations:
            self.builder.origin = operation.origin
            env = env.extend(self.meaning_of_operation(operation)(env))
        return env
