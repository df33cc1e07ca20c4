"""Loop distribution: what a sequential loop around stages does on chunks goes into loops of its own.

    loop i < steps with w = w0:                  becomes  w2, ws = loop i < steps with w = w0:
      for j < n: slope[j] += w * x[j]                       next w - mean(w * x)
      next w - mean(w * x)                                  yield w
      yield w * x                                         loop i < steps:
                                                            for j < n: slope[j] += ws[i] * x[j]
                                                          for i < steps: ws[i] * x

Derivatives of loops by data are such loops: each step adds to the slope of all data. The first one is run here, a round
of stages for each step; the others on each chunk, when all steps are known. What these need of the first one is stored
for each step; what is as long as the size they compute again.

(Loop distribution with scalar expansion: Allen and Kennedy, 2001, sections 5.3 and 6.2.)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from ...core.builder import Builder
from ...core.dims import Dim
from ...core.graph import Value
from ...core.terms import Atom as TermAtom
from ...core.terms import Block, Operation, Variable
from ...core.types import Accumulator, Type
from ...interpreters.embed import Atom, Embed, Entries
from ...interpreters.embed import Block as Meaning
from ...interpreters.embed import Operation as Operations
from .cutting import combines, has_computed_size, mentions, touches, without, writes


def with_chunks_alone(block: Block, size: Dim) -> Block:
    """The closed block whose sequential loops around stages neither add to accumulators nor yield chunks."""
    return without(block, size, _is_distributed, _Distribution)


def _is_distributed(operation: Operation, size: Dim) -> bool:
    return _Parts.of(operation, size) is not None


@dataclass(frozen=True)
class _Needs:
    """What a loop of its own needs of another one's block: operations that are made again, and stored values.

    Values of a block are numbered: its parameters, and then the results of its operations.
    """

    again: frozenset[int]
    stored: frozenset[int]


@dataclass(frozen=True)
class _Parts:
    """What of a sequential loop gets loops of its own: operations that update accumulators, and results."""

    updates: dict[int, _Needs]
    chunks: dict[int, _Needs]

    @staticmethod
    def of(loop: Operation, size: Dim) -> _Parts | None:
        """None where there is nothing of the kind, or where it cannot be."""
        if loop.op != "loop" or not touches(loop, size) or not (loop.types or combines(loop, size)):
            return None
        (block,), state = loop.blocks, len(loop.args) - 1
        updates = [place for place, each in enumerate(block.bindings) if writes(each)]
        chunks = [k for k, type in enumerate(loop.types) if k >= state and mentions(type, size)]
        if not (updates or chunks) or any(size.names() & dim.names() for dim in loop.static):
            return None
        if any(_combines_beside(block.bindings[place], size) for place in updates):
            return None
        found = _Parts(
            {place: _needs(block, _read(block, place), size) for place in updates},
            {k: _needs(block, _numbers(block, [block.results[k]], _count(block)), size) for k in chunks},
        )
        types = _types(block)
        stored = [types[number] for number in found.stored]
        if any(mentions(type, size) or isinstance(type, Accumulator) or has_computed_size(type) for type in stored):
            return None
        return found

    @property
    def stored(self) -> list[int]:
        """All that is stored for each step."""
        needs = [*self.updates.values(), *self.chunks.values()]
        return sorted(frozenset().union(*[each.stored for each in needs]))


def _combines_beside(update: Operation, size: Dim) -> bool:
    """Whether there is a combination in an update that it could not do without: its own accumulators it can."""
    inner = update.blocks[0].bindings if update.op == "accumulate" else [update]
    return any(combines(each, size) for each in inner)


def _types(block: Block) -> list[Type]:
    """The types of the values of a block, by their numbers."""
    return [*block.binders, *[type for each in block.bindings for type in each.types]]


def _count(block: Block, place: int | None = None) -> int:
    """How many values there are before an operation, or at the end."""
    return len(block.binders) + sum(len(each.types) for each in block.bindings[:place])


def _numbers(block: Block, atoms: Iterable[TermAtom], bound: int) -> list[int]:
    """The numbers of the values of a block among atoms that stand where there are so many."""
    return [bound - 1 - atom.index for atom in atoms if isinstance(atom, Variable) and atom.index < bound]


def _read(block: Block, place: int) -> list[int]:
    """The numbers of what an operation reads."""
    operation = block.bindings[place]
    inside = [variable for inner in operation.blocks for variable in inner.free]
    return _numbers(block, [*operation.args, *inside], _count(block, place))


def _needs(block: Block, numbers: Sequence[int], size: Dim) -> _Needs:
    types, again, stored = _types(block), set[int](), set[int]()
    makers = [None] * len(block.binders) + [k for k, each in enumerate(block.bindings) for _ in each.types]
    todo = list(numbers)
    while todo:
        number = todo.pop()
        maker = makers[number]
        if maker is not None and mentions(types[number], size):
            if maker not in again:
                again.add(maker)
                todo += _read(block, maker)
        elif number:  # 0 is the index of the loop
            stored.add(number)
    return _Needs(frozenset(again), frozenset(stored))


class _Dropped:
    """An accumulator to which nothing is added."""


_DROPPED = _Dropped()


def _dropped(entry: object) -> object:
    return _DROPPED if isinstance(entry, Value) and isinstance(entry.type, Accumulator) else entry


class _Distribution(Embed):
    def __init__(self, builder: Builder, size: Dim) -> None:
        super().__init__(builder)
        self._size = size

    def operation(self, operation: Operation, args: Sequence[Atom], blocks: Sequence[Meaning]) -> Operations:
        if operation.op == "add_to":
            index, add = operation.args[0].index, super().operation(operation, args, blocks)  # type: ignore[union-attr]
            return lambda env: [] if env.get(index) is _DROPPED else add(env)
        parts = _Parts.of(operation, self._size)
        if parts is None:
            return super().operation(operation, args, blocks)
        return lambda env: self._distributed(operation, parts, [arg(env) for arg in args], env)

    def _distributed(self, loop: Operation, parts: _Parts, args: Sequence[Value], env: Entries) -> Sequence[Value]:
        """The results of a loop: of one without what chunks are for, and of those behind it."""
        (extent, *initials), (block,), stored = args, loop.blocks, parts.stored
        kept = [k for k in range(len(loop.types)) if k not in parts.chunks]

        def step(*binders: Value) -> Sequence[Value]:
            inside, values = env.mapped(_dropped).enter(binders), list(binders)
            for each in block.bindings:
                made = self._made(each, inside)
                inside, values = inside.extend(made), [*values, *made]
            results = [self.meaning_of_atom(block.results[k])(inside) for k in kept]
            return [*results, *[values[number] for number in stored]]

        found = self.builder.loop(extent, initials, step, block.names)
        stacks = dict(zip(stored, found[len(kept) :], strict=True))
        for place, needs in parts.updates.items():
            self.builder.origin = block.bindings[place].origin
            self.builder.loop(extent, [], partial(self._update, block, place, needs, stacks, env))
        results = dict(zip(kept, found, strict=False))
        for k, needs in parts.chunks.items():
            self.builder.origin = loop.origin
            (results[k],) = self.builder.generate(extent, partial(self._result, block, k, needs, stacks, env))
        return [results[k] for k in range(len(loop.types))]

    def _update(
        self, block: Block, place: int, needs: _Needs, stacks: dict[int, Value], env: Entries, i: Value
    ) -> Sequence[Value]:
        """A step of the loop of an update, whose own accumulators, if it has some, nobody reads."""
        inside, operation = self._inside(block, place, needs, stacks, env, i), block.bindings[place]
        if operation.op == "accumulate":
            self.meaning_of_block(operation.blocks[0])(inside, [_DROPPED] * len(operation.args))  # type: ignore[list-item]
        else:
            self._made(operation, inside)
        return []

    def _result(
        self, block: Block, k: int, needs: _Needs, stacks: dict[int, Value], env: Entries, i: Value
    ) -> Sequence[Value]:
        """What a step yields."""
        inside = self._inside(block, len(block.bindings), needs, stacks, env.mapped(_dropped), i)
        return [self.meaning_of_atom(block.results[k])(inside)]

    def _inside(
        self, block: Block, place: int, needs: _Needs, stacks: dict[int, Value], env: Entries, i: Value
    ) -> Entries:
        """What is known before an operation of a block in a loop of its own; what it does not need is not there."""
        numbers = itertools.count(1)

        def stored(count: int) -> list[Value | None]:
            found = itertools.islice(numbers, count)
            return [self.builder.part(stacks[number], [i]) if number in needs.stored else None for number in found]

        env = env.enter([i, *stored(len(block.binders) - 1)])
        checks, self.checks = self.checks, False  # requirements are those of the first loop
        try:
            for k, each in enumerate(block.bindings[:place]):
                known = stored(len(each.types))
                env = env.extend(self._made(each, env.mapped(_dropped)) if k in needs.again else known)
        finally:
            self.checks = checks
        return env

    def _made(self, operation: Operation, env: Entries) -> Sequence[Value]:
        self.builder.origin = operation.origin
        return self.meaning_of_operation(operation)(env)
