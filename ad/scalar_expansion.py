"""Scalar expansion in loops over directions: what does not depend on the direction is computed once, and stored.

The builder moves what a loop does not change out of it. Inside of an inner loop this is not enough: the primal of an
element depends on the inner index, though not on the direction. It is computed for all elements before the loop over
the directions, if it is worth an array: with a function like ``tanh``, a quotient, a reduction.

    for d < n:                                      t = for i < m: tanh(v[i])
      for i < m: (1 - tanh(v[i]) ** 2) * a[i, d]    for d < n: for i < m: (1 - t[i] ** 2) * a[i, d]

For this, what is found beside tangents must not depend on the direction with them: a loop or a branch that gives
primals and tangents together is made twice, for each kind. (What the tangents need of the primals is in both, and what
is not needed goes when the program is simplified.)

A branch that a direction chooses is one that some direction takes. What stands in branches of the program, and in loops
with a state, is computed again in each direction: a branch may not be taken, and the states of all steps would have to
be stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..core.builder import Builder, Replacement, Substitution
from ..core.graph import Body, Node, Value, union
from ..core.types import dims, i64
from ..interpreters.simplify.costs import is_costly
from ..interpreters.simplify.switches import is_on

Loops = tuple[tuple[Value, Value], ...]  # by binder and extent, from outside


def generate(b: Builder, extents: Sequence[Value], function: Callable[..., Sequence[Value]]) -> tuple[Value, ...]:
    """Arrays over directions, which have one index or several: ``function`` gives their elements."""
    if not extents:
        return tuple(function())
    extent = extents[0]
    assert extent.dim is not None
    with _apart(b) as direction:

        def build(prefix: tuple[Value, ...]) -> Sequence[Value]:
            if len(prefix) == len(extents):
                return function(*prefix)
            return b.generate(extents[len(prefix)], lambda i: build((*prefix, direction(i))))

        body = b.body([i64], lambda i: build((direction(i),)), extents=[extent.dim])
    replaced = _stored(b, _invariants([body], direction.numbers | {body.binders[0].number}), {})
    if not replaced:
        return b.emit("generate", (extent.dim,), [extent], [body])

    def enter(first: Value) -> list[Value]:
        return Substitution(b, {body.binders[0]: first}, None, body.statements, replaced).apply(body)

    return b.generate(extent, enter)


def expanded(
    b: Builder, primals: Sequence[Value], tangents: Sequence[Value], function: Callable[[], Sequence[Value]]
) -> Sequence[Value]:
    """What a function gives for tangents that loops around it choose, if these loops do not move the primals.

    So a map of ``az.jvp`` over directions is the loop over directions that it is.
    """
    fixed = union([primal.free for primal in primals])
    chosen = union([tangent.free for tangent in tangents]) - fixed
    loops = {binder for scope in b.scopes for binder in scope.binders if binder.number in chosen & b.extents.keys()}
    if not loops:
        return function()
    statements = b.scopes[-1].statements
    before = len(statements)
    with _apart(b) as direction:
        for binder in loops:
            direction(binder)
        results = tuple(function())
    if any([statement.results for statement in statements[before:]]):
        return results  # a loop that checks requirements is not emitted again
    replaced = _stored(b, _invariants([Body(0, (), (), results)], direction.numbers), {})
    if not replaced:
        return results
    return Substitution(b, {binder: binder for binder in loops}, None, (), replaced).values(results)


class Stored:
    """What no direction moves, in arrays of all iterations of loops that end where directions choose an iteration."""

    def __init__(self, b: Builder, directions: Collection[int]) -> None:
        self.builder, self.directions = b, directions
        self.arrays: dict[int, Read] = {}  # by the number of what is stored

    def at(self, value: Value, loops: Loops, places: Sequence[Value]) -> Value:
        """A value at places of loops, of which the values that no direction moves, if not cheap, are stored."""
        b = self.builder
        known = {number: read for number, read in self.arrays.items() if read.free <= b.open}
        replaced = _stored(b, _invariants([Body(0, (), (), (value,))], self.directions, loops), known)
        self.arrays.update(replaced)
        mapping = dict(zip([binder for binder, _ in loops], places, strict=True))
        return Substitution(b, mapping, None, (), replaced).values([value])[0]


# What does not depend on the direction, apart from what does


@dataclass(frozen=True)
class _Directions:
    """Which binders are directions."""

    numbers: set[int]

    def __call__(self, binder: Value) -> Value:
        self.numbers.add(binder.number)
        return binder


@contextmanager
def _apart(b: Builder) -> Iterator[_Directions]:
    """While this is entered, operations are split into the results that depend on a direction and the others."""
    outer, direction = b.rule, _Directions(set())

    def rule(
        builder: Builder, op: str, static: tuple[Any, ...], args: tuple[Value, ...], bodies: tuple[Body, ...]
    ) -> tuple[Value, ...] | None:
        split = _SPLIT.get(op)
        if split is not None and not any([body.statements or body.partial for body in bodies]):
            still = split(direction.numbers, args, bodies)
            if 0 < len(still) < len(bodies[0].results):
                return _split(builder, op, static, args, bodies, still)
        return outer(builder, op, static, args, bodies) if outer is not None else None

    b.rule = rule
    try:
        yield direction
    finally:
        b.rule = outer


def _split(
    b: Builder,
    op: str,
    static: tuple[Any, ...],
    args: tuple[Value, ...],
    bodies: tuple[Body, ...],
    still: Collection[int],
) -> tuple[Value, ...]:
    """The results of two operations: one gives those that are ``still``, the other all, of which the rest is taken."""
    if op == "loop":
        states = [k for k in sorted(still) if k < len(args) - 1]
        binders = [bodies[0].binders[0], *[bodies[0].binders[1 + k] for k in states]]
        fewer = [b.close(tuple(binders), (), tuple([bodies[0].results[k] for k in sorted(still)]))]
        alone = b.emit(op, static, [args[0], *[args[1 + k] for k in states]], fewer)
        rest = b.make(op, static, args, bodies)
    else:
        parts = [sorted(still), [k for k in range(len(bodies[0].results)) if k not in still]]
        alone, moved = (
            b.emit(op, static, args, [b.close(x.binders, (), tuple([x.results[k] for k in part])) for x in bodies])
            for part in parts
        )
        others = iter(moved)
        rest = tuple([alone[0] if k in still else next(others) for k in range(len(bodies[0].results))])
    known = iter(alone)
    return tuple([next(known) if k in still else rest[k] for k in range(len(rest))])


def _still_results(directions: Collection[int], args: tuple[Value, ...], bodies: tuple[Body, ...]) -> list[int]:
    """The results that no direction moves, of a loop without a state or of a branch."""
    if any([not arg.free.isdisjoint(directions) for arg in args]):
        return []
    return [
        k
        for k in range(len(bodies[0].results))
        if all([body.results[k].free.isdisjoint(directions) for body in bodies])
    ]


def _still_states(directions: Collection[int], args: tuple[Value, ...], bodies: tuple[Body, ...]) -> list[int]:
    """The same of a loop, whose states move when states move that they are made of."""
    (body,), count = bodies, len(args) - 1
    moving = {*directions, *[body.binders[1 + k].number for k, x in enumerate(args[1:]) if x.free & set(directions)]}
    if args[0].free & moving:
        return []
    while True:
        found = {body.binders[1 + k].number for k in range(count) if not body.results[k].free.isdisjoint(moving)}
        if found <= moving:
            break
        moving |= found
    states = [k for k in range(count) if body.binders[1 + k].number not in moving]
    outputs = [k for k in range(count, len(body.results)) if body.results[k].free.isdisjoint(moving)]
    return [*states, *outputs]


_SPLIT = {"generate": _still_results, "cond": _still_results, "loop": _still_states}


# Scalar expansion


def _invariants(bodies: Sequence[Body], directions: Collection[int], around: Loops = ()) -> dict[Node, Loops]:
    """The operations in inner loops that no direction moves, but whose users directions move, with their loops.

    And those in fewer of these loops that such operations use. ``around`` are inner loops that the bodies are in. What
    stands in a branch that no direction chooses counts only where something else runs it anyway.
    """
    if not is_on("expand_scalars"):
        return {}
    found: dict[Node, Loops | None] = {}
    seen: set[tuple[int, tuple[int, ...], float, bool]] = set()
    certain: set[int] = set()
    # With the number of loops around a user that is stored, and whether it may not be run
    waiting: list[tuple[Node, Loops, float, bool]] = []

    def enter(inner: Body, loops: Loops, maybe: bool) -> None:
        waiting.extend([(statement, loops, math.inf, maybe) for statement in inner.statements])
        waiting.extend(
            [(result.source, loops, math.inf, maybe) for result in inner.results if result.source is not None]
        )

    for body in bodies:
        enter(body, around, False)
    while waiting:
        node, loops, user, maybe = waiting.pop()
        own = tuple([loop for loop in loops if loop[0].number in node.free])
        key, still = (node.number, tuple([extent.number for _, extent in own])), node.free.isdisjoint(directions)
        if (*key, user, maybe) in seen or (still and not own):
            continue
        seen.add((*key, user, maybe))
        if not maybe:
            certain.add(node.number)
        if still and len(own) < user and _storable(node, frozenset([binder.number for binder, _ in own])):
            # A body that two loops of different extents share has two images, and none of them is stored.
            found[node] = own if found.get(node, own) == own else None
            user = len(own)
        waiting.extend([(arg.source, loops, user, maybe) for arg in node.args if arg.source is not None])
        if user < math.inf:
            continue
        if node.op == "accumulate":
            enter(node.bodies[0], loops, maybe)
        elif node.op == "cond":
            for body in node.bodies:
                enter(body, loops, maybe or node.args[0].free.isdisjoint(directions))
        elif node.row.elements:
            [(binder, extent)] = node.loop_variables()
            if binder.number in directions:
                enter(node.bodies[0], loops, maybe)
            elif extent.free.isdisjoint({*directions, *[outer.number for outer, _ in loops]}):
                enter(node.bodies[0], (*loops, (binder, extent)), maybe)
    return {node: loops for node, loops in found.items() if loops is not None and node.number in certain}


def _storable(node: Node, loops: frozenset[int]) -> bool:
    """Whether the results of an operation can be stored, and are worth it: they take more than cheap operations."""
    sizes = [dim for value in node.results for dim in dims(value.type)]
    if node.effects or node.partial or not all([dim.is_static() for dim in sizes]):
        return False
    waiting, seen = [node], set[int]()
    while waiting:
        node = waiting.pop()
        if node.number in seen or node.free.isdisjoint(loops):
            continue
        seen.add(node.number)
        if not node.row.control and is_costly(node):
            return True
        waiting += [arg.source for arg in node.args if arg.source is not None]
        waiting += [result.source for body in node.bodies for result in body.results if result.source is not None]
    return False


def _stored(b: Builder, invariants: Mapping[Node, Loops], known: Mapping[int, Read]) -> dict[int, Read]:
    """Arrays of all iterations, and how they are read: what has the same loops is computed together.

    What is ``known`` is there already.
    """
    replaced = dict(known)
    together: dict[Loops, list[Node]] = {}
    for node, loops in sorted(invariants.items(), key=lambda item: item[0].number):
        if node.number not in replaced:
            together.setdefault(loops, []).append(node)
    for loops, nodes in sorted(together.items(), key=lambda item: len(item[0])):
        arrays = iter(_arrays(b, loops, [value for node in nodes for value in node.results], dict(replaced)))
        binders = [binder for binder, _ in loops]
        for node in nodes:
            replaced[node.number] = Read(b, [next(arrays) for _ in node.results], binders)
    return replaced


def _arrays(b: Builder, loops: Loops, wanted: Sequence[Value], replaced: Mapping[int, Replacement]) -> Sequence[Value]:
    """These values for all iterations, from what is stored already."""

    def build(places: tuple[Value, ...]) -> Sequence[Value]:
        if len(places) < len(loops):
            return b.generate(loops[len(places)][1], lambda i: build((*places, i)))
        mapping = dict(zip([binder for binder, _ in loops], places, strict=True))
        return Substitution(b, mapping, None, (), replaced).values(wanted)

    return build(())


@dataclass(frozen=True)
class Read:
    """The read of what is stored, in arrays with an axis for each of these binders."""

    builder: Builder
    arrays: Sequence[Value]
    binders: Sequence[Value]

    @property
    def free(self) -> frozenset[int]:
        return union([array.free for array in self.arrays])

    def __call__(self, level: Substitution) -> tuple[Value, ...]:
        places = [level.value(binder) for binder in self.binders]
        return tuple([self.builder.part(array, places) for array in self.arrays])
