"""Loop fusion and array contraction: parallel loops over one range become one; what only they pass on stays in it.

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

from ... import ir
from ...decisions import Decisions, writes_text
from ...target import LOOP_FUSION_LOOKAHEAD, LOOP_FUSION_STATEMENTS


def fused_loops(function: ir.Function, decisions: Decisions) -> ir.Function:
    """A function whose neighbouring parallel loops over the same range are one."""
    unused = ir.unused_names(function)

    def fresh(name: str) -> str:
        return unused(name.rstrip("0123456789"))

    return replace(function, body=_Localising(frozenset(function.sizes), fresh, decisions).block(function.body))


@dataclass(frozen=True)
class _Localising:
    """Goes through blocks; ``sizes`` are those of the function, ``fresh`` makes names for copies."""

    sizes: frozenset[str]
    fresh: Callable[[str], str]
    decisions: Decisions

    def block(self, block: ir.Block) -> ir.Block:
        """A block with its neighbouring loops joined, and their temporaries inside of them."""
        made: list[ir.Statement] = []
        for statement in block:
            apart = isinstance(statement, ir.For) and statement.kind != "sequential"
            self.append(made, statement if apart else ir.map_inside(statement, self.block))
        return self.with_own_temporaries(made)

    # Joining

    def append(self, made: list[ir.Statement], second: ir.Statement) -> bool:
        """Add a statement to a block, joined with the last one before it if it can be: whether it was."""
        passed = 0
        for position in range(len(made) - 1, -1, -1) if isinstance(second, ir.For | ir.If) else ():
            first = made[position]
            if isinstance(first, ir.Let | ir.Allocate):
                continue
            both = None if ir.conflict((first,), made[position + 1 :]) else self.joined(first, second)
            if both is not None:
                del made[position]
                made.append(both)
                return True
            passed += 1
            if passed > LOOP_FUSION_LOOKAHEAD:
                break
        made.append(second)
        return False

    def joined(self, first: ir.Statement, second: ir.Statement) -> ir.Statement | None:
        """Two statements as one, if both are parallel loops that can be, or one of them is a choice of such loops."""
        match first, second:
            case ir.For(kind="parallel"), ir.For(kind="parallel"):
                return self.one(first, second)
            case ir.If(test, then, orelse), ir.For(kind="parallel"):
                ways = list(then), list(orelse)
                found = [self.append(ways[0], second), self.append(ways[1], self.copied(second))]
                return ir.If(test, tuple(ways[0]), tuple(ways[1])) if any(found) else None
            case ir.For(kind="parallel"), ir.If(test, then, orelse) if not list(ir.loads(second)):
                copy = self.copied(first)
                before, instead = self.before(first, then), self.before(copy, orelse)
                if before is not None or instead is not None:
                    return ir.If(test, before or (first, *then), instead or (copy, *orelse))
        return None

    def one(self, first: ir.For, second: ir.For) -> ir.For | None:
        """Two parallel loops as one, if each iteration of the second needs of the first what its own has written."""
        if first.extent != second.extent or list(ir.loads(second)):
            return None
        both = [*ir.walk((first,)), *ir.walk((second,))]
        ordered = any(isinstance(each, ir.Require | ir.Call | ir.Update) for each in both)
        if len(both) > LOOP_FUSION_STATEMENTS or ordered:
            return None
        body = ir.with_own_names(second.body, ir.bound_in((first,)), self.fresh)
        names: dict[str, ir.Expression] = {second.variable: ir.Variable(first.variable)}
        added = ir.with_buffers(body, lambda buffer: _renamed(buffer, names))
        added = ir.substituted_in(added, names)
        common = ir.mentioned(first.body)[1] & ir.mentioned(added)[1]
        own = {name for name in common if _own_axes(name, (*first.body, *added), first.variable)}
        if not own or not common & (ir.written_in(first.body) | ir.written_in(added)) <= own:
            return None
        if not self.decisions.take("fuse_loops", f"{writes_text(second)} with {writes_text(first)}"):
            return None
        grain = first.grain
        if grain is not None and second.grain is not None and grain != second.grain:
            grain = ir.minimum(grain, second.grain)
        return replace(first, body=(*first.body, *added), grain=grain)

    def before(self, first: ir.For, block: ir.Block) -> ir.Block | None:
        """A loop and a block after it, if the loop can be joined with the last statement of the block."""
        if not block or ir.conflict((first,), block[:-1]):
            return None
        last = self.joined(first, block[-1])
        return None if last is None else (*block[:-1], last)

    def copied(self, loop: ir.For) -> ir.For:
        """A copy of a loop, with temporaries of its own."""
        (copy,) = ir.with_own_buffers((loop,), self.fresh)
        assert isinstance(copy, ir.For)
        return copy

    # Temporaries

    def with_own_temporaries(self, block: Sequence[ir.Statement]) -> ir.Block:
        """A block whose temporaries are inside of the only loop that uses them, or of branches with such loops."""
        made: list[ir.Statement | None] = list(block)
        users: defaultdict[str, list[int]] = defaultdict(list)
        for position, statement in enumerate(block):
            if not isinstance(statement, ir.Allocate):
                for name in ir.mentioned((statement,))[1]:
                    users[name].append(position)
        for position, statement in enumerate(block):
            if isinstance(statement, ir.Allocate) and len(users[statement.buffer.name]) == 1:
                (only,) = users[statement.buffer.name]
                user = made[only]
                inside = None if user is None else self.inside(statement, user)
                if inside is not None:
                    made[position], made[only] = None, inside
        return tuple([statement for statement in made if statement is not None])

    def inside(self, allocation: ir.Allocate, user: ir.Statement) -> ir.Statement | None:
        """The only user of a temporary with the allocation in it; none where that cannot be."""
        buffer = allocation.buffer
        if ir.names_in(buffer.extents) - self.sizes:
            return None
        match user:
            case ir.For(kind="parallel"):
                return _with_part(buffer, user)
            case ir.If(test, then, orelse):
                first, second = [
                    (allocation, *way) if buffer.name in ir.mentioned(way)[1] else way for way in (then, orelse)
                ]
                if first is not then and second is not orelse:
                    second = ir.with_own_buffers(second, self.fresh)
                return ir.If(test, self.with_own_temporaries(first), self.with_own_temporaries(second))
        return None


def _renamed(buffer: ir.Buffer, names: Mapping[str, ir.Expression]) -> ir.Buffer:
    """A buffer whose extents are expressions of other names."""
    return replace(buffer, extents=tuple([ir.substituted(extent, names) for extent in buffer.extents]))


def _own_axes(name: str, block: ir.Block, variable: str) -> list[int]:
    """The axes along which a block touches a buffer at a variable alone: none where a call takes all of it."""
    if any(name in [buffer.name for buffer in (*call.reads, *call.writes)] for call in ir.of_kind(block, ir.Call)):
        return []
    places = [(s.indices, s.guarded) for s in ir.of_kind(block, ir.Store) if s.buffer.name == name]
    reads = [load for statement in ir.walk(block) for load in ir.loads(statement) if load.buffer.name == name]
    places += [(load.indices, load.guarded) for load in reads]
    own = [
        {axis for axis, index in enumerate(indices) if index == ir.Variable(variable) and axis not in guarded}
        for indices, guarded in places
    ]
    return sorted(set.intersection(*own))


def _with_part(buffer: ir.Buffer, loop: ir.For) -> ir.For | None:
    """A loop that allocates, in each iteration, what the iteration needs of a buffer that nothing else uses."""
    axes = _own_axes(buffer.name, loop.body, loop.variable)
    if not axes:
        return None
    axis = axes[0]

    def rest(indices: tuple[ir.Expression, ...]) -> tuple[ir.Expression, ...]:
        return (*indices[:axis], *indices[axis + 1 :])

    def moved(guarded: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([each - (each > axis) for each in guarded])

    def expression(e: ir.Expression) -> ir.Expression:
        e = ir.map_operands(e, expression)
        return ir.Load(part, rest(e.indices), moved(e.guarded)) if isinstance(e, ir.Load) and e.buffer == buffer else e

    def store(s: ir.Store) -> ir.Store:
        return ir.Store(part, rest(s.indices), s.value, moved(s.guarded)) if s.buffer == buffer else s

    part = ir.Buffer(buffer.name, buffer.scalar, rest(buffer.extents))
    return replace(loop, body=(ir.Allocate(part), *ir.map_block(loop.body, expression, store)))
