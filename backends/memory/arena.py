"""Memory planning: every ``Allocate`` gets a place in one arena before the run.

The arena is a list of *slots*: first those shared by all threads, then, for each thread, a copy of the *private*
ones, which belong to buffers allocated inside parallel loops. A buffer lives from the first to the last statement of
its block that mentions it. What lives in branches that the sizes of a call do not take has no size there. Extents that
depend on data are not known before the run: those buffers are *dynamic*, and take their memory where they are bound.
So are those that are returned.

Buffers that never live at the same time may share memory. Where the arena is one piece of memory, each has a slot of
its own, and slots are put on top of each other when the sizes of a call are known (``llvm/packing.py``). Where slots
are pieces of their own, as on a device, two buffers share one if they are equal in size whatever the sizes are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import combinations

from ...core.dims import Dim, Name
from ...core.types import bool_, i64
from .. import ir

# The path to what every call needs
ALWAYS = ir.Constant(True, bool_)


@dataclass(frozen=True)
class Slot:
    """A piece of the arena, of the size of any of the buffers in it, where it is ``needed`` at all.

    It is used from the ``first`` to the ``last`` statement, by their numbers.
    """

    like: ir.Buffer
    private: bool
    first: int
    last: int
    needed: ir.Expression


@dataclass(frozen=True)
class Plan:
    """Where every temporary lives. ``prelude`` binds, from sizes, the names that the extents of slots mention."""

    prelude: tuple[ir.Let, ...]
    slots: tuple[Slot, ...]
    slot_of: dict[str, int]
    dynamic: frozenset[str]

    def is_private(self, buffer: str) -> bool:
        """Whether each thread has a copy of a buffer in the arena."""
        return buffer in self.slot_of and self.slots[self.slot_of[buffer]].private

    def may_overlap(self, first: str, second: str) -> bool:
        """Whether two buffers that have slots of their own may be in the same memory, one after the other."""
        numbers = self.slot_of.get(first), self.slot_of.get(second)
        if None in numbers:
            return False
        a, b = (self.slots[number] for number in numbers if number is not None)
        return a.private == b.private and (a.last < b.first or b.last < a.first)

    def overlapping(self, buffers: Sequence[str]) -> list[tuple[int, int]]:
        """The pairs of some buffers that may be in the same memory, by their places among these."""
        slots = {k: self.slots[self.slot_of[name]] for k, name in enumerate(buffers) if name in self.slot_of}
        if max([slot.first for slot in slots.values()], default=0) <= min([s.last for s in slots.values()], default=0):
            return []  # all live at one time
        return [(a, b) for a, b in combinations(slots, 2) if self.may_overlap(buffers[a], buffers[b])]


@dataclass
class _Life:
    """A buffer, whether it is private, and the numbers of the first and the last statement that mention it.

    It is needed where ``path`` holds, the tests of sizes on the way to it.
    """

    buffer: ir.Buffer
    private: bool
    first: int
    last: int
    path: ir.Expression


def plan(function: ir.Function, reuse: bool = True) -> Plan:
    """The places of all temporaries of a function; with ``reuse`` those of one size share a slot, else none do."""
    known = {name: Dim.atom(Name(name)) for name in function.sizes}
    prelude = ir.decided_by_sizes(function)
    for let in prelude:
        known[let.name] = size_of(let.value, known)
    lives: list[_Life] = []
    _Lives(lives, known).block(function.body, 0, False, ALWAYS)
    returned = {statement.buffer.name for statement in function.body if isinstance(statement, ir.Return)}
    planned = [life for life in lives if life.buffer.name not in returned]
    fixed = [life for life in planned if all(ir.decided_by(known, extent) for extent in life.buffer.extents)]
    slots, slot_of = _assign(fixed, known) if reuse else _apart(fixed)
    return Plan(
        ir.bindings_of([each for slot in slots for each in (*slot.like.extents, slot.needed)], prelude),
        slots,
        slot_of,
        frozenset(life.buffer.name for life in lives) - slot_of.keys(),
    )


def _apart(lives: list[_Life]) -> tuple[tuple[Slot, ...], dict[str, int]]:
    """Give each buffer a slot of its own."""
    ordered = sorted(lives, key=lambda life: (life.private, life.first))
    slots = [Slot(life.buffer, life.private, life.first, life.last, life.path) for life in ordered]
    return tuple(slots), {life.buffer.name: number for number, life in enumerate(ordered)}


def _assign(lives: list[_Life], known: Mapping[str, Dim]) -> tuple[tuple[Slot, ...], dict[str, int]]:
    """Give each buffer, in the order of their first mention, a slot of its size that is free by then, or a new one."""
    slots: list[Slot] = []
    slot_of: dict[str, int] = {}
    free: defaultdict[object, list[int]] = defaultdict(list)
    busy: list[tuple[int, int, object]] = []  # last statement, slot, its key
    keys: dict[object, int] = {}
    for life in sorted(lives, key=lambda life: life.first):
        key = keys.setdefault((bytes_of(life.buffer, known), life.private), len(keys))
        while busy and busy[0][0] < life.first:
            _, slot, other = heappop(busy)
            free[other].append(slot)
        if free[key]:
            slot = free[key].pop()
            slots[slot] = replace(slots[slot], last=life.last, needed=slots[slot].needed | life.path)
        else:
            slot = len(slots)
            slots.append(Slot(life.buffer, life.private, life.first, life.last, life.path))
        slot_of[life.buffer.name] = slot
        heappush(busy, (life.last, slot, key))
    return tuple(map(_empty_where_unneeded, slots)), slot_of


def _empty_where_unneeded(slot: Slot) -> Slot:
    if slot.needed == ALWAYS:
        return slot
    count = ir.select(slot.needed, ir.product(slot.like.extents), 0)
    return replace(slot, like=replace(slot.like, extents=(count,)))


class _Lives:
    """Numbers the statements in program order and notes the lives of the buffers allocated."""

    def __init__(self, lives: list[_Life], known: Mapping[str, Dim]) -> None:
        self.lives, self.known = lives, known

    def block(self, block: ir.Block, number: int, private: bool, path: ir.Expression) -> tuple[int, set[str]]:
        """Go through a block whose first statement has this number: the next number, and the buffers it mentions."""
        own: dict[str, _Life] = {}
        seen: set[str] = set()
        for statement in block:
            start, number = number, number + 1
            names = {load.buffer.name for load in ir.loads(statement)}
            match statement:
                case ir.Allocate(buffer):
                    own[buffer.name] = _Life(buffer, private, -1, start, path)
                case ir.Store(buffer):
                    names.add(buffer.name)
                case ir.Call(_, _, reads, writes):
                    names.update([buffer.name for buffer in (*reads, *writes)])
                case ir.For():
                    number, more = self.block(statement.body, number, private or statement.kind == "parallel", path)
                    names |= more
                case ir.If(test, then, orelse):
                    tests = (test, ~test) if ir.decided_by(self.known, test) else (ALWAYS, ALWAYS)
                    for branch, taken in zip((then, orelse), tests, strict=True):
                        number, more = self.block(branch, number, private, path & taken)
                        names |= more
                case ir.Kernel(_, body) | ir.Fork(body):  # temporaries of a kernel are places of its threads
                    names |= ir.mentioned(body)[1]
                case ir.While(head, test, body):
                    number, more = self.block((*head, ir.If(test, (), ()), *body), number, private, path)
                    names |= more
                case _:
                    pass
            for name in names & own.keys():
                life = own[name]
                life.first = start if life.first < 0 else life.first
                life.last = number - 1
            seen |= names
        for life in own.values():
            life.first = life.last if life.first < 0 else life.first
        self.lives.extend(own.values())
        return number, seen - own.keys()


# Sizes


def size_of(expression: ir.Expression, known: Mapping[str, Dim]) -> Dim:
    """The normal form of an expression of sizes: equal normal forms are equal values.

    What is no sum or product stands in it under its printed form.
    """

    def printed(other: ir.Expression) -> Dim:
        text = repr(other)
        if isinstance(other, ir.Apply) and other.type == i64:
            text = f"{other.primitive}({', '.join([str(size_of(each, known)) for each in other.arguments])})"
        return Dim.atom(Name(text))

    found = ir.dim_of(expression, known, printed)
    assert found is not None
    return found


def room(extents: Iterable[int]) -> int:
    """The elements that reads may touch: all of them, and those behind the last axis that is empty.

    A read of an empty array runs on with its index clamped to 0, after a requirement that has failed. Elements are in
    row-major order, so an axis before an empty one has a stride of 0.

    >>> room((3, 4)), room((2**50, 0)), room((2**50, 0, 4))
    (12, 1, 4)
    """
    count = 1
    for extent in extents:
        count = count * extent if extent > 0 else 1
    return count


def bytes_of(buffer: ir.Buffer, known: Mapping[str, Dim]) -> Dim:
    """The size of a buffer."""
    return math.prod([size_of(extent, known) for extent in buffer.extents], start=Dim.of(buffer.scalar.bytes))
