"""Joint states: states of a loop that are made of each other, element by element, are made in one nest.

Each of two new arrays may be made where an old one was, if that is read no more (``interpreters/own_places.py``). Where
both are made of both old ones, each would have to be the last. Made together, elements are read before they are
written::

    x' = for i < n: x[i] + 0.1 * v[i]               x', v' = for i < n: x[i] + 0.1 * v[i], v[i] - 0.1 * x[i]
    v' = for i < n: v[i] - 0.1 * x[i]         =>

So are the coordinates of a rotation, the moments and parameters of a network, or the position and speed of a step whose
operations are few, which are then computed twice and not stored. Elements with loops of their own stay apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ....core.builder import Builder
from ....core.graph import Body, Value
from ....core.terms import Block
from ....core.types import rank
from ....interpreters.embed import Embed, rebuilt
from ....interpreters.simplify.value_numbering import made_of, operands


def made_together(block: Block) -> Block:
    """The term with such states made by one operation; the same object if there are none."""
    return rebuilt(block, Embed, _rule) if _has_states(block) else block


def _has_states(block: Block) -> bool:
    """Whether a loop has two arrays as states."""
    for op in block.bindings:
        states = op.types[: len(op.args) - 1] if op.op == "loop" else ()
        if sum([rank(type) > 0 for type in states]) > 1 or any(map(_has_states, op.blocks)):
            return True
    return False


def _rule(
    b: Builder, op: str, static: tuple[Any, ...], args: tuple[Value, ...], bodies: tuple[Body, ...]
) -> tuple[Value, ...] | None:
    if op != "loop":
        return None
    (body,) = bodies
    groups = list(_groups(body, len(args) - 1))
    if not groups:
        return None
    results = list(body.results)
    for group in groups:
        for made, value in zip(group, _together(b, group), strict=True):
            results[made.number] = value
    closed = b.close(body.binders, body.statements, tuple(results), body.partial)
    return b.make(op, static, args, [closed])


@dataclass(frozen=True)
class _Made:
    """The next value of a state, by its number: an array over some loops, and the element."""

    number: int
    state: Value
    loops: tuple[tuple[Value, Value], ...]  # by binder and extent
    element: Value

    def alike(self, other: _Made) -> bool:
        """Whether both are made in the same loops, each of both states, and neither of what the other makes."""
        same = [extent.dim for _, extent in self.loops] == [extent.dim for _, extent in other.loops]
        return same and self.state.number in other.element.free and other.state.number in self.element.free


def _groups(body: Body, count: int) -> Iterator[list[_Made]]:
    """The states whose next values are to be made together."""
    states = body.binders[1:]
    found = [made for k in range(count) if (made := _made(k, states[k], body.results[k])) is not None]
    left = [made for made in found if _reads_in_place(made, [each.state for each in found])]
    while left:
        first, *others = left
        group = [first, *[other for other in others if first.alike(other)]]
        left = [made for made in others if made not in group]
        if len(group) > 1:
            yield group


def _made(number: int, state: Value, value: Value) -> _Made | None:
    """A next state that is an array of elements without loops in them."""
    loops: list[tuple[Value, Value]] = []
    while value.source is not None and value.source.op == "generate" and len(value.source.results) == 1:
        (inside,) = value.source.bodies
        if inside.statements:
            return None
        loops.append((inside.binders[0], value.source.args[0]))
        (value,) = inside.results
    plain = all(not node.row.loops for node in made_of([value], frozenset([binder.number for binder, _ in loops])))
    return _Made(number, state, tuple(loops), value) if plain and len(loops) == rank(state.type) > 0 else None


def _reads_in_place(made: _Made, states: Sequence[Value]) -> bool:
    """Whether a next state reads states at the place of the element alone."""
    indices = tuple([binder for binder, _ in made.loops])
    for node in made_of([made.element], frozenset([state.number for state in states])):
        for state in states:
            if state in operands(node) and not (node.op == "index" and node.args == (state, *indices)):
                return False
    return True


def _together(b: Builder, group: Sequence[_Made]) -> Sequence[Value]:
    """The next states as the results of one operation."""
    extents = [extent for _, extent in group[0].loops]

    def inside(at: tuple[Value, ...]) -> Sequence[Value]:
        if len(at) < len(extents):
            return b.generate(extents[len(at)], lambda i: inside((*at, i)))
        moved = [dict(zip([binder for binder, _ in made.loops], at, strict=True)) for made in group]
        return [b.substitute([made.element], places)[0] for made, places in zip(group, moved, strict=True)]

    return inside(())
