"""Liveness of steps: which of a block a return sweep visits, and how many cotangents each of them waits for.

One walk from the last step to the first finds the live steps (those whose results are seeded, used by a live step, or
that add to an accumulator with a cotangent) and gives each of their uses a *slot*: one an operand of a primitive, so
that ``x * x`` uses x twice, one an outer variable of a construct with blocks, however often its blocks read it. A
step is complete when all slots of its results are filled. Dead code has no slots, so it holds up nobody (van Hus,
section 4, counts it: then cotangents never arrive).

Slots are numbered as the walk meets them. Contributions are summed by number, whatever order they came in.

    a = x * x;  b = sin(a);  y = a + b      y: 1 (the seed)    b: 1    a: 2 (of y, of b)    x: 2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...core.terms import Atom, Block, Operation, Variable
from ...core.types import Accumulator, Type, dims, is_float
from .partials import Partials, partials

Use = tuple[int, int]  # a level of the block (negative: ~ the index of an outer variable), and a slot of it


@dataclass
class Plan:
    """What a return sweep through a block does. Levels count the values a block binds, its parameters first."""

    block: Block
    starts: list[int]  # the level of each step's first result
    owner: list[int]  # the step that binds a level, or -1
    uses: list[Sequence[Use] | None]  # of the live steps
    rules: list[Partials | None]  # of the primitives that move
    sinks: list[frozenset[int]]  # the accumulators with a cotangent that a step adds to, by index
    slots: list[int]  # how many each level has
    waiting: list[int]  # for how many contributions each step waits
    results: list[Use | None]  # where the cotangents of the block's results go
    outer: dict[int, int]  # how many contributions each outer variable gets

    @cached_property
    def outer_types(self) -> dict[int, Type]:
        """The types of what the block reads from outside, by index."""
        return {variable.index: variable.type for variable in self.block.free}

    @property
    def ready(self) -> list[int]:
        """The live steps that wait for nobody: statements."""
        return [k for k, uses in enumerate(self.uses) if uses is not None and self.waiting[k] == 0]

    @cached_property
    def needed(self) -> list[bool]:
        """The steps whose values the sweep reads, or that are read by such."""
        needed = [False] * len(self.starts)

        def read(atoms: Sequence[Atom], start: int) -> None:
            for atom in atoms:
                if isinstance(atom, Variable) and atom.index < start and self.owner[start - 1 - atom.index] >= 0:
                    needed[self.owner[start - 1 - atom.index]] = True

        for k in reversed(range(len(self.starts))):
            operation, start, rule = self.block.bindings[k], self.starts[k], self.rules[k]
            if self.uses[k] is not None and rule is not None:
                needed[k] = needed[k] or len(operation.args) in rule.used
                read([atom for position, atom in enumerate(operation.args) if position in rule.used], start)
            elif self.uses[k] is not None:
                needed[k] = needed[k] or operation.op == "custom" or not all(map(_fixed, operation.types))
                read(variables(operation), start)
            if needed[k]:
                read(variables(operation), start)
        return needed


def variables(operation: Operation) -> list[Atom]:
    """All that an operation reads, in its blocks too, as atoms where it stands."""
    if not operation.blocks:
        return list(operation.args)
    return [*operation.args, *[variable for block in operation.blocks for variable in block.free]]


def make_plan(
    block: Block,
    active: frozenset[int] = frozenset(),
    binders: tuple[bool, ...] = (),
    seeded: tuple[bool, ...] = (),
    sinks: frozenset[int] = frozenset(),
    finals: tuple[bool, ...] = (),
) -> Plan:
    """The plan for a block: which outer variables (by index), parameters and results move.

    ``sinks`` and ``finals`` are the outer accumulators and those among the parameters that have a cotangent.
    """
    moves = [k < len(binders) and binders[k] and is_float(type) for k, type in enumerate(block.binders)]
    takes = [k < len(finals) and finals[k] for k in range(len(block.binders))]
    starts: list[int] = []
    owner = [-1] * len(block.binders)
    reads: list[Sequence[int]] = []  # the levels that a step gives cotangents to
    rules: list[Partials | None] = []
    into: list[frozenset[int]] = []

    def moving(level: int) -> bool:
        return moves[level] if level >= 0 else ~level in active

    def taking(level: int) -> bool:
        return level < len(takes) and takes[level] if level >= 0 else ~level in sinks

    for k, operation in enumerate(block.bindings):
        start = len(owner)
        own: Sequence[int] = ()
        rule, adds = None, _NONE
        if operation.op == "primitive":
            rule = _rule(operation, start, moving)
            if rule is not None:
                own = [start - 1 - operation.args[position].index for position in rule.positions]  # type: ignore[union-attr]
        elif not operation.row.discrete:
            found = _movable(operation)
            own = sorted({start - 1 - x.index for x in found if moving(start - 1 - x.index)})
            adds = frozenset(
                [x.index for x in found if isinstance(x.type, Accumulator) and taking(start - 1 - x.index)]
            )
            if operation.row.elements and not adds and not _moves(operation.blocks[0], own, start):
                own = ()
        starts.append(start)
        reads.append(own)
        rules.append(rule)
        into.append(adds)
        for type in operation.types:
            moves.append(bool(own) and is_float(type))
            owner.append(k)

    slots = [0] * len(owner)
    outer: dict[int, int] = {}

    def use(level: int) -> Use:
        if level >= 0:
            slot = slots[level]
            slots[level] = slot + 1
        else:
            slot = outer.get(~level, 0)
            outer[~level] = slot + 1
        return level, slot

    results: list[Use | None] = []
    for k, result in enumerate(block.results):
        given = k < len(seeded) and seeded[k] and isinstance(result, Variable) and is_float(result.type)
        level = len(owner) - 1 - result.index if isinstance(result, Variable) else 0
        results.append(use(level) if given and moving(level) else None)
    uses: list[Sequence[Use] | None] = [None] * len(starts)
    waiting = [0] * len(starts)
    for k in range(len(starts) - 1, -1, -1):
        if reads[k]:
            for level in range(starts[k], starts[k] + len(block.bindings[k].types)):
                waiting[k] += slots[level]
            if waiting[k] or into[k]:
                uses[k] = [use(level) for level in reads[k]]
    return Plan(block, starts, owner, uses, rules, into, slots, waiting, results, outer)


_NONE: frozenset[int] = frozenset()


def _moves(block: Block, levels: Sequence[int], start: int) -> bool:
    """Whether a result of a block moves where what is at these levels does, outside of it."""
    active, seeded = frozenset([start - 1 - level for level in levels]), (True,) * len(block.results)
    return bool(levels) and any(use is not None for use in make_plan(block, active, seeded=seeded).results)


def _rule(operation: Operation, start: int, moving: Callable[[int], bool]) -> Partials | None:
    """The rules of a primitive for those of its operands that move; None when none does."""
    positions = []
    for position, atom in enumerate(operation.args):
        if type(atom) is Variable and moving(start - 1 - atom.index):
            positions.append(position)
    if not positions:
        return None
    types: Any = tuple([atom.type for atom in operation.args])
    rule = partials(operation.static[0], types, tuple(positions))
    return rule if rule.positions else None


def _movable(operation: Operation) -> list[Variable]:
    """What a construct with a derivative reads, but for what is constant."""
    found: Sequence[Atom] = operation.args[:1] if operation.op == "index" else variables(operation)
    if operation.row.elements:  # its operands are sizes, and neutral elements, which are constant
        found = found[len(operation.args) :]
    return [atom for atom in found if isinstance(atom, Variable)]


def _fixed(type: Type) -> bool:
    return all(dim.constant is not None for dim in dims(type))


def shape_of(type: Type, value: Any) -> tuple[int, ...]:
    """The shape of values of a type; ``value`` is one, if the type does not say it."""
    sizes = [dim.constant for dim in dims(type)]
    return tuple([size if size is not None else value.shape[axis] for axis, size in enumerate(sizes)])
