"""Neighbouring parallel loops over the same range become one, and what only they pass on stays with its thread.

Lowering makes a nest for each array, and a nest runs over the whole of its array before the next one begins. Where two
nests run over the same outermost range, and an iteration of the second needs what the same iteration of the first
wrote and nothing else of it, one loop runs both, and that is read from the cache which would come back from memory::

    temporary y: f64[k, d, n]                  parallel c < k
    parallel c < k                               temporary y: f64[d, n]
      y[c, ..] = a matrix product        =>      y[..] = a matrix product
    parallel c < k                               s[c, ..] = sums of squares of y[..]
      s[c, ..] = sums of squares of y[c, ..]

A temporary that no other loop mentions needs room for one iteration alone, in each thread.

Where sizes decide between two ways to run one of the nests, the other one goes into those branches: each of them then
has its own copy of it, of which a call needs one. A nest moves down to a later one past bindings and allocations only.
Statements keep their order within an iteration, and so results are the same bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..core.types import i64
from .loops import (
    Allocate,
    Block,
    Buffer,
    Expression,
    For,
    Function,
    If,
    Let,
    Load,
    Require,
    Statement,
    Store,
    Update,
    Variable,
    While,
    walk,
)
from .loops_walk import assigned_in, bound_in, loads, mentioned, names_in, unused_names, written_in
from .lowering.arithmetic import folded
from .lowering.rewriting import (
    map_block,
    map_operands,
    substituted,
    substituted_in,
    with_buffers,
    with_own_buffers,
    with_own_names,
)

# Loops of more statements together are not joined.
LARGEST = 1000
# A loop moves down past so many others to the one that it is joined with.
PASSED = 2


def localised(function: Function) -> Function:
    """A function whose neighbouring parallel loops over the same range are one."""
    unused = unused_names(function)

    def fresh(name: str) -> str:
        return unused(name.rstrip("0123456789"))

    return replace(function, body=_Localising(frozenset(function.sizes), fresh).block(function.body))


@dataclass(frozen=True)
class _Localising:
    """Goes through blocks; ``sizes`` are those of the function, ``fresh`` makes names for copies."""

    sizes: frozenset[str]
    fresh: Callable[[str], str]

    def block(self, block: Block) -> Block:
        """A block with its neighbouring loops joined, and their temporaries inside of them."""
        made: list[Statement] = []
        for statement in block:
            match statement:
                case If(test, then, orelse):
                    statement = If(test, self.block(then), self.block(orelse))
                case While(head, test, body):
                    statement = While(self.block(head), test, self.block(body))
                case For(kind="sequential"):
                    statement = replace(statement, body=self.block(statement.body))
            self.append(made, statement)
        return self.with_own_temporaries(made)

    # Joining

    def append(self, made: list[Statement], second: Statement) -> bool:
        """Add a statement to a block, joined with the last one before it if it can be: whether it was."""
        passed = 0
        for position in range(len(made) - 1, -1, -1) if isinstance(second, For | If) else ():
            first = made[position]
            if isinstance(first, Let | Allocate):
                continue
            both = None if _meet(first, made[position + 1 :]) else self.joined(first, second)
            if both is not None:
                del made[position]
                made.append(both)
                return True
            passed += 1
            if passed > PASSED:
                break
        made.append(second)
        return False

    def joined(self, first: Statement, second: Statement) -> Statement | None:
        """Two statements as one, if both are parallel loops that can be, or one of them is a choice of such loops."""
        match first, second:
            case For(kind="parallel"), For(kind="parallel"):
                return self.one(first, second)
            case If(test, then, orelse), For(kind="parallel"):
                ways = list(then), list(orelse)
                found = [self.append(ways[0], second), self.append(ways[1], self.copied(second))]
                return If(test, tuple(ways[0]), tuple(ways[1])) if any(found) else None
            case For(kind="parallel"), If(test, then, orelse) if not any(loads(second)):
                copy = self.copied(first)
                before, instead = self.before(first, then), self.before(copy, orelse)
                if before is not None or instead is not None:
                    return If(test, before or (first, *then), instead or (copy, *orelse))
        return None

    def one(self, first: For, second: For) -> For | None:
        """Two parallel loops as one, if each iteration of the second needs of the first what its own has written."""
        if first.extent != second.extent or any(loads(second)):
            return None
        both = [*walk((first,)), *walk((second,))]
        if len(both) > LARGEST or any(isinstance(each, Require | Update) for each in both):
            return None
        body = with_own_names(second.body, bound_in((first,)), self.fresh)
        names: dict[str, Expression] = {second.variable: Variable(first.variable, i64)}
        added = with_buffers(body, lambda buffer: _renamed(buffer, names))
        added = substituted_in(added, names)
        common = mentioned(first.body)[1] & mentioned(added)[1]
        own = {name for name in common if _own_axes(name, (*first.body, *added), first.variable)}
        if not own or not common & (written_in(first.body) | written_in(added)) <= own:
            return None
        grain = first.grain
        if grain is not None and second.grain is not None and grain != second.grain:
            grain = folded("minimum", grain, second.grain)
        return replace(first, body=(*first.body, *added), grain=grain)

    def before(self, first: For, block: Block) -> Block | None:
        """A loop and a block after it, if the loop can be joined with the last statement of the block."""
        if not block or _meet(first, block[:-1]):
            return None
        last = self.joined(first, block[-1])
        return None if last is None else (*block[:-1], last)

    def copied(self, loop: For) -> For:
        """A copy of a loop, with temporaries of its own."""
        (copy,) = with_own_buffers((loop,), self.fresh)
        assert isinstance(copy, For)
        return copy

    # Temporaries

    def with_own_temporaries(self, block: Sequence[Statement]) -> Block:
        """A block whose temporaries are inside of the only loop that uses them, or of branches with such loops."""
        made: list[Statement | None] = list(block)
        users: defaultdict[str, list[int]] = defaultdict(list)
        for position, statement in enumerate(block):
            if not isinstance(statement, Allocate):
                for name in mentioned((statement,))[1]:
                    users[name].append(position)
        for position, statement in enumerate(block):
            if isinstance(statement, Allocate) and len(users[statement.buffer.name]) == 1:
                (only,) = users[statement.buffer.name]
                user = made[only]
                inside = None if user is None else self.inside(statement, user)
                if inside is not None:
                    made[position], made[only] = None, inside
        return tuple([statement for statement in made if statement is not None])

    def inside(self, allocation: Allocate, user: Statement) -> Statement | None:
        """The only user of a temporary with the allocation in it; none where that cannot be."""
        buffer = allocation.buffer
        if names_in(buffer.extents) - self.sizes:
            return None
        match user:
            case For(kind="parallel"):
                return _with_part(buffer, user)
            case If(test, then, orelse):
                first, second = [
                    (allocation, *way) if buffer.name in mentioned(way)[1] else way for way in (then, orelse)
                ]
                if first is not then and second is not orelse:
                    second = with_own_buffers(second, self.fresh)
                return If(test, self.with_own_temporaries(first), self.with_own_temporaries(second))
        return None


def _renamed(buffer: Buffer, names: Mapping[str, Expression]) -> Buffer:
    """A buffer whose extents are expressions of other names."""
    return replace(buffer, extents=tuple([substituted(extent, names) for extent in buffer.extents]))


def _meet(first: Statement, others: Sequence[Statement]) -> bool:
    """Whether a statement writes or assigns what one of some others mentions, or mentions what one of them does."""
    mine, its = (first,), tuple(others)
    for block, other in ((mine, its), (its, mine)):
        variables, buffers = mentioned(other)
        if not (assigned_in(block).isdisjoint(variables) and written_in(block).isdisjoint(buffers)):
            return True
    return False


def _own_axes(name: str, block: Block, variable: str) -> list[int]:
    """The axes along which a block touches a buffer at a variable alone."""
    places = [(s.indices, s.guarded) for s in walk(block) if isinstance(s, Store) and s.buffer.name == name]
    reads = [load for statement in walk(block) for load in loads(statement) if load.buffer.name == name]
    places += [(load.indices, load.guarded) for load in reads]
    own = [
        {axis for axis, index in enumerate(indices) if index == Variable(variable, i64) and axis not in guarded}
        for indices, guarded in places
    ]
    return sorted(set.intersection(*own))


def _with_part(buffer: Buffer, loop: For) -> For | None:
    """A loop that allocates, in each iteration, what the iteration needs of a buffer that nothing else uses."""
    axes = _own_axes(buffer.name, loop.body, loop.variable)
    if not axes:
        return None
    axis = axes[0]

    def rest(indices: tuple[Expression, ...]) -> tuple[Expression, ...]:
        return (*indices[:axis], *indices[axis + 1 :])

    def moved(guarded: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([each - (each > axis) for each in guarded])

    def expression(e: Expression) -> Expression:
        e = map_operands(e, expression)
        return Load(part, rest(e.indices), moved(e.guarded)) if isinstance(e, Load) and e.buffer == buffer else e

    def store(s: Store) -> Store:
        return Store(part, rest(s.indices), s.value, moved(s.guarded)) if s.buffer == buffer else s

    part = Buffer(buffer.name, buffer.scalar, rest(buffer.extents))
    return replace(loop, body=(Allocate(part), *map_block(loop.body, expression, store)))
