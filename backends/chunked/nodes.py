"""Nodes: the operations of a block, with what they need, where they are computed, and when.

A value has a *key*, a number of the whole plan. Where a node is computed is its *place*: *here*, beside all chunks;
*on chunks*, where its results are chunks of arrays, made again by each stage that needs them; or *combined*, by the
stage of its *time*: one later than all that it needs. What is computed here has the time of the latest thing it needs.

    t1 = sum(x)            combined, at time 1
    t2 = t1 / f64(n)       here, at time 1
    t3 = x - t2            on chunks, from time 1 on
    t4 = sum(t3 ** 2)      combined, at time 2

The body of an ``accumulate`` is part of the block around it. Of an accumulator that is not cut, what the statements of
one time add is one combined node (``Sums``), and its final value is computed here (``Total``).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from enum import Enum
from functools import cached_property
from typing import Any

from ...core.constructs import Role
from ...core.dims import Dim
from ...core.environment import Env
from ...core.graph import Value
from ...core.source import Origin
from ...core.terms import Atom, Block, Operation, Variable
from ...core.types import Accumulator, Type, bool_, dims, element
from ...interpreters.embed import accumulate
from .cutting import block_touches, cut_axis, goes_over, requires
from .language import OnChunk, zeros

Key = int
Ref = Key | Atom  # a value of the plan, or an atom that is no variable
Refs = Env[Ref]


class Place(Enum):
    """Where a node is computed."""

    HERE = "here"
    CHUNK = "on chunks"
    COMBINED = "combined"
    RUN = "run here, around stages"


def resolved(atom: Atom, env: Refs) -> Ref:
    """What an atom stands for."""
    return env.get(atom.index) if isinstance(atom, Variable) else atom


class Slice:
    """What has been emitted for a part of a plan, by keys."""

    def __init__(self, language: OnChunk, entries: dict[Key, Value]) -> None:
        self.language, self.entries = language, entries

    def value(self, ref: Ref) -> Value:
        return self.entries[ref] if isinstance(ref, int) else self.language.meaning_of_atom(ref)(Env())

    def env(self, refs: Refs) -> Env[Any]:
        return refs.mapped(self.value)


class Node(ABC):
    """Something that a plan computes: ``keys`` are its results, ``uses`` what it needs."""

    place: Place
    time: int
    keys: tuple[Key, ...]
    types: tuple[Type, ...]
    uses: frozenset[Key]
    origin: Origin
    required = False  # whether it is computed although nobody needs its results

    @abstractmethod
    def emit(self, made: Slice) -> Sequence[Value]:
        """Its results, in the program of a stage or in one that is computed here."""

    def merge(self, made: Slice, left: Sequence[Value], right: Sequence[Value]) -> Sequence[Value]:
        """What two runs of chunks give together, from what each gives."""
        raise AssertionError(f"{self} is not combined")


class Known:
    """What is known of the values of a block: their types and names, and the nodes that make them.

    Of blocks inside it knows nothing; they know what is outside of them, as it is there when they begin.
    """

    def __init__(self, name: str, size: Dim) -> None:
        self.name, self.size, self.is_inside = name, size, False
        self.keys, self.stages = itertools.count(), itertools.count(1)
        self.types: dict[Key, Type] = {}
        self.names: dict[Key, str] = {}
        self.makers: dict[Key, Node] = {}
        self._begin()

    def _begin(self) -> None:
        self.nodes: list[Node] = []  # of this block, in order
        self._times: dict[Key, int] = {}  # of its values

    def inside(self) -> Known:
        """What a block inside knows."""
        made = copy(self)
        made.is_inside, made.makers = True, dict(self.makers)
        made._begin()
        return made

    def key(self, type: Type, name: str = "") -> Key:
        """A new value."""
        key = next(self.keys)
        self.types[key], self.names[key] = type, name or f"t{key}"
        return key

    def time(self, keys: Iterable[Key]) -> int:
        """When all of these can be had; what is from outside is there when the block begins."""
        return max([self._times.get(key, 0) for key in keys], default=0)

    def add(self, node: Node) -> None:
        """A node that makes its keys."""
        self.nodes.append(node)
        for key in node.keys:
            self.makers[key], self._times[key] = node, node.time

    def is_cut(self, type: Type) -> bool:
        return cut_axis(type, self.size) is not None


class Operated(Node):
    """An operation of the term. One that updates accumulators updates copies, which nobody reads."""

    def __init__(self, operation: Operation, env: Refs, keys: Sequence[Key], size: Dim) -> None:
        self.operation, self.env, self.keys, self.types = operation, env, tuple(keys), operation.types
        self.origin, self._size = operation.origin, size
        refs = [resolved(atom, env) for atom in operation.args]
        refs += [env.get(variable.index) for block in operation.blocks for variable in block.free]
        self.read = frozenset([ref for ref in refs if isinstance(ref, int)])
        self.required = requires(operation)

    def emit(self, made: Slice) -> Sequence[Value]:
        cells = {key: type for key, type in self.cells.items() if key not in made.entries}
        if not cells:
            return self.meaning(made)
        builder = made.language.builder
        starts = [zeros(builder, type.of) for type in cells.values()]

        def body(*inside: Value) -> Sequence[Value]:
            return self.meaning(Slice(made.language, {**made.entries, **dict(zip(cells, inside, strict=True))}))

        return accumulate(builder, starts, body)[len(starts) :]

    def meaning(self, made: Slice) -> Sequence[Value]:
        made.language.builder.origin = self.origin
        return made.language.meaning_of_operation(self.operation)(made.env(self.env))

    @cached_property
    def cells(self) -> dict[Key, Accumulator]:
        """The accumulators that it updates."""
        found = {}
        refs = [(resolved(atom, self.env), atom.type) for atom in self.operation.args]
        refs += [(self.env.get(free.index), free.type) for block in self.operation.blocks for free in block.free]
        for ref, type in refs:
            if isinstance(ref, int) and isinstance(type, Accumulator):
                found[ref] = type
        return found

    def merge(self, made: Slice, left: Sequence[Value], right: Sequence[Value]) -> Sequence[Value]:
        return _merged(made.language, self.operation, made.env(self.env), left, right, self._size)


class Chosen(Operated):
    """A choice on each chunk; the combinations in its branches have been computed, and are given by keys."""

    def __init__(
        self,
        operation: Operation,
        env: Refs,
        keys: Sequence[Key],
        size: Dim,
        places: Sequence[Sequence[int]],  # of the combinations in each branch
        found: Sequence[Sequence[Key]],  # their results
    ) -> None:
        super().__init__(operation, env, keys, size)
        self._places, self._found = places, found
        self.read = self.read.union(*found)

    def meaning(self, made: Slice) -> Sequence[Value]:
        language, outside = made.language, made.env(self.env)
        language.builder.origin = self.origin

        def branch(k: int) -> Sequence[Value]:
            env, found, block = outside, iter(self._found[k]), self.operation.blocks[k]
            for place, each in enumerate(block.bindings):
                if place in self._places[k]:
                    env = env.extend([made.value(next(found)) for _ in each.types])
                else:
                    env = env.extend(language.meaning_of_operation(each)(env))
            return [language.meaning_of_atom(result)(env) for result in block.results]

        test = language.meaning_of_atom(self.operation.args[0])(outside)
        return language.builder.cond(test, lambda: branch(0), lambda: branch(1))


class Sums(Node):
    """What statements of one time add to accumulators that are not cut."""

    def __init__(
        self,
        cells: Mapping[Key, Accumulator],
        statements: Sequence[Operated],
        keys: Sequence[Key],
        place: Place,
        time: int,
    ) -> None:
        self.cells, self.statements, self.keys, self.place, self.time = cells, statements, tuple(keys), place, time
        self.types = tuple([type.of for type in cells.values()])
        self.uses = frozenset().union(*[each.uses for each in statements])
        self.origin = statements[0].origin

    def emit(self, made: Slice) -> Sequence[Value]:
        starts = [zeros(made.language.builder, type.of) for type in self.cells.values()]
        return _accumulated(made, self.cells, starts, self.statements, made.language.shared)

    def merge(self, made: Slice, left: Sequence[Value], right: Sequence[Value]) -> Sequence[Value]:
        return [_sum(made.language, [a, b]) for a, b in zip(left, right, strict=True)]


class Total(Node):
    """The final value of an accumulator that is not cut: how it began, and what has been added."""

    place = Place.HERE

    def __init__(self, initial: Ref, sums: Sequence[Key], key: Key, type: Type, time: int, origin: Origin) -> None:
        self.parts, self.keys, self.types, self.time, self.origin = [initial, *sums], (key,), (type,), time, origin
        self.uses = frozenset([ref for ref in self.parts if isinstance(ref, int)])

    def emit(self, made: Slice) -> Sequence[Value]:
        return [_sum(made.language, [made.value(part) for part in self.parts])]


class Updated(Node):
    """The final values of accumulators that are cut, on each chunk."""

    place = Place.CHUNK

    def __init__(
        self,
        cells: Mapping[Key, Accumulator],
        initials: Sequence[Ref],
        statements: Sequence[Operated],
        keys: Sequence[Key],
        time: int,
        origin: Origin,
    ) -> None:
        self.cells, self.initials, self.statements, self.keys = cells, initials, statements, tuple(keys)
        self.types, self.time, self.origin = tuple([type.of for type in cells.values()]), time, origin
        starts = frozenset([ref for ref in initials if isinstance(ref, int)])
        self.uses = starts.union(*[each.uses for each in statements])

    def emit(self, made: Slice) -> Sequence[Value]:
        return _accumulated(made, self.cells, [made.value(ref) for ref in self.initials], self.statements)


class Alias(Node):
    """A result of an ``accumulate`` that is a value of its body."""

    def __init__(self, ref: Ref, key: Key, type: Type, place: Place, time: int, origin: Origin) -> None:
        self.ref, self.keys, self.types, self.place, self.time, self.origin = ref, (key,), (type,), place, time, origin
        self.uses = frozenset([ref] if isinstance(ref, int) else [])

    def emit(self, made: Slice) -> Sequence[Value]:
        return [made.value(self.ref)]


class Repeated(Node):
    """A sequential loop or a choice around stages, which is run here: its blocks are plans."""

    place = Place.RUN

    def __init__(self, operation: Operation, env: Refs, keys: Sequence[Key], plans: Sequence[Any], time: int) -> None:
        self.operation, self.keys, self.types = operation, tuple(keys), operation.types
        self.plans, self.time = plans, time
        self.args = [resolved(atom, env) for atom in operation.args]
        outside = [env.get(variable.index) for block in operation.blocks for variable in block.free]
        self.uses = frozenset([ref for ref in [*self.args, *outside] if isinstance(ref, int)])
        self.origin, self.required = operation.origin, requires(operation)

    def emit(self, made: Slice) -> Sequence[Value]:
        raise AssertionError("a loop around stages is run, not emitted")


def _accumulated(
    made: Slice,
    cells: Mapping[Key, Accumulator],
    starts: Sequence[Value],
    statements: Sequence[Operated],
    entered: Callable[[Sequence[Value]], object] = list,
) -> Sequence[Value]:
    """What accumulators hold after some statements; of others that these update, nobody reads the copies."""
    builder = made.language.builder
    others = {key: type for each in statements for key, type in each.cells.items() if key not in cells}
    copies = [zeros(builder, type.of) for type in others.values()]

    def body(*inside: Value) -> Sequence[Value]:
        entered(inside[: len(cells)])
        within = Slice(made.language, {**made.entries, **dict(zip([*cells, *others], inside, strict=True))})
        for each in statements:
            each.meaning(within)
        return []

    return accumulate(builder, [*starts, *copies], body)[: len(cells)]


def _sum(language: OnChunk, values: Sequence[Value]) -> Value:
    """Scalars or arrays, added up in order; of booleans, whether one of them is true."""
    builder = language.builder
    name = "logical_or" if element(values[0].type) == bool_ else "add"
    sizes = [builder.dim(dim) for dim in dims(values[0].type)]

    def added(*index: Value) -> Value:
        first, *rest = [builder.index(value, index) for value in values]
        for each in rest:
            first = builder.primitive(name, first, each)
        return first

    return builder.array(sizes, added)


def _merged(
    language: OnChunk, operation: Operation, env: Env[Any], left: Sequence[Value], right: Sequence[Value], size: Dim
) -> Sequence[Value]:
    """A combination (``cutting.is_combination``) of two runs of chunks, from those of each."""
    builder = language.builder
    if operation.op == "cond":  # all chunks have chosen alike

        def branch(block: Block) -> Sequence[Value]:
            return _merged_last(language, block, env, left, right, size) if block_touches(block, size) else left

        test = language.meaning_of_atom(operation.args[0])(env)
        return builder.cond(test, *[lambda each=each: branch(each) for each in operation.blocks])
    if not operation.row.makes_elements:
        return [_sum(language, [a, b]) for a, b in zip(left, right, strict=True)]
    (extent, *_), block = operation.row.iterations(operation), operation.blocks[0]
    if goes_over(operation, size):
        operator = language.meaning_of_block(operation.blocks[operation.row.roles.index(Role.OPERATOR)])
        if not operation.row.places:
            return operator(env, [*left, *right])
        bins = language.meaning_of_atom(operation.args[0])(env)  # of a histogram: bin by bin
        return builder.generate(
            bins,
            lambda i: operator(env, [builder.part(each, [i]) for each in (*left, *right)]),
        )

    def element_of(i: Value) -> Sequence[Value]:
        a, b = ([builder.part(each, [i]) for each in side] for side in (left, right))
        return _merged_last(language, block, env.enter([i]), a, b, size)

    return builder.generate(language.meaning_of_atom(extent)(env), element_of)


def _merged_last(
    language: OnChunk, block: Block, env: Env[Any], left: Sequence[Value], right: Sequence[Value], size: Dim
) -> Sequence[Value]:
    """The combination that a block ends with, of two runs of chunks."""
    for each in block.bindings[:-1]:
        env = language.later(each, env)
    return _merged(language, block.bindings[-1], env, left, right, size)
