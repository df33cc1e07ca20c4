"""Full unrolling: maps over short arrays are straight-line code along lanes, all arrays in registers.

The Jacobian of a residual with a few parameters, for each of many observations, is a parallel loop whose body is made
of loops over 2, 3 or 11 elements and of arrays of as many. Lanes along such a loop are mostly off, and its arrays go
through memory. Here the body becomes straight-line code instead (``partial_evaluation.py``), and its *iterations* are
the lanes::

    parallel i < n                              parallel chunk < (n + 511) // 512
      temporary u: f64[3]                         lanes lane < minimum(n - chunk * 512, 512) by 8
      for j < 3                                     let i = chunk * 512 + lane
        u[j] = x[k[i], j] / r[i]           =>       let t1 = k[i]
      var s = 0.0                                   let t2 = r[i]
      for j < 3                                     let t3 = x[t1, 0] / t2
        s = fma(u[j], u[j], s)                      ...
      y[i] = s                                      y[i] = fma(t5, t5, t4)

so that a scalar is a vector of several iterations, and a branch is a selection. Loops over one range that follow each
other become one loop, and a temporary array between them that nothing else reads is left out. A buffer that only ever
receives one constant is that constant.

Inside a parallel loop that is not of this kind, a loop that is written to run in order becomes lanes too, if each of
its iterations stores at places of its own and reads what no other one stored.

What an iteration fills of a temporary is a row of it, and lanes would store one element of each of several rows. So a
temporary gets the iterations as its last axis (``roles.py`` asks which ones would), and those who read it find columns:
sums over the iterations have these as lanes, as in ``rows.T @ rows`` of the rows of many small Jacobians.

It is done where it is less work: reading or writing an element of each of several rows is one access a lane, while
what is computed costs one operation for all lanes; a plain map over rows gains nothing and stays as it is. Nor does a
body become code that is longer than the budget for compiling it: LLVM's time grows faster than its length.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...core.types import i64
from .. import ir
from ..decisions import Decisions, writes_text
from ..target import (
    LANE_ELEMENT_COST,
    SHORT_VECTOR_COST,
    SURVEY_UNKNOWN_ITERATIONS,
    THREAD_GRAIN,
    UNROLLED_CHUNK_STRIPS,
    UNROLLED_CHUNK_WORK,
    UNROLLED_INSTRUCTIONS,
    UNROLLING_GAIN,
    Target,
)
from .nests import Chunk
from .partial_evaluation import Irregular, Straight, scalar_of, simplified


def straightened(body: ir.Block, target: Target, fresh: Callable[[str], str], decisions: Decisions) -> ir.Block:
    """The body of a function with such loops along lanes; ``decisions`` are told which they are."""
    made = tuple(_Groups(target, fresh, _constants(body), decisions, {}).block(body))
    return ir.without_unread(made) if made != body else body


def stored_along(
    loop: ir.Statement, free: Collection[ir.Buffer], inside: bool, target: Target, fresh: Callable[[str], str]
) -> Mapping[ir.Buffer, tuple[int, int]]:
    """By array, along which axis the iterations of a loop store it, and how many elements each of them.

    Nothing, if the loop does not become straight-line code along lanes even where these ``free`` arrays are contiguous
    along it. ``inside`` a parallel loop it is one that runs in order.
    """
    return _Groups(target, fresh, {}, Decisions(), {}, inside).stored_along(loop, free)


@dataclass
class _Range:
    """A loop over a range: all iterations of a parallel loop, or of one that was cut into chunks."""

    variable: str
    extent: ir.Expression
    body: ir.Block
    chunked: bool


@dataclass
class _Group:
    """Loops over one range, to become one, and the same loops as they are written."""

    code: Straight
    written: list[ir.Statement] = field(default_factory=list)
    cost: float = 0.0
    across: bool = False  # they combine lanes


@dataclass(frozen=True)
class _StraightLoop:
    """The body of a loop as straight-line code along so many lanes, what an iteration costs, and what it did before."""

    body: ir.Block
    lanes: int
    cost: float
    before: float


@dataclass
class _Groups:
    """Collects the loops of a block that follow each other; ``inside`` a parallel loop those that run in order.

    ``around`` has the loops that the block stands in: the extents, by variable.
    """

    target: Target
    fresh: Callable[[str], str]
    constants: dict[str, ir.Constant]
    decisions: Decisions
    around: Mapping[str, ir.Expression]
    inside: bool = False

    def block(self, block: ir.Block) -> Iterator[ir.Statement]:
        group: _Group | None = None
        for statement in _decided(block):
            found = _range(statement, self.inside)
            if group is not None and found is not None and group.code.extent == found.extent:
                if self._joined(group, statement, found):
                    continue
            own = None if found is None else self._group(statement, found)
            before = group is not None and _before(statement, group)
            if own is not None and not (before and isinstance(own.code.extent, ir.Constant)):
                yield from self._closed(group)
                group = own
                continue
            if not before:
                yield from self._closed(group)
                group = None
            yield from [self._inner(statement)] if own is None else self._closed(own)
        yield from self._closed(group)

    def _inner(self, statement: ir.Statement) -> ir.Statement:
        match statement:
            case ir.For(variable, extent, "parallel" | "sequential" as kind):
                around = {**self.around, variable: extent}
                inner = replace(self, around=around, inside=self.inside or kind == "parallel")
                return replace(statement, body=tuple(inner.block(statement.body)))
            case ir.If(test, then, orelse):
                return ir.If(test, tuple(self.block(then)), tuple(self.block(orelse)))
            case ir.While(head, test, body):
                return ir.While(head, test, tuple(self.block(body)))
        return statement

    def _group(self, statement: ir.Statement, found: _Range) -> _Group | None:
        """A group of one loop, or None if its body is not straight-line code."""
        code = Straight(ir.Variable(self.fresh("i")), found.extent, self.fresh, self.constants, self.around)
        group = _Group(code)
        return group if self._joined(group, statement, found) else None

    def _joined(self, group: _Group, statement: ir.Statement, found: _Range) -> bool:
        """Whether the loop became a part of the group."""
        try:
            group.code.run(found.variable, found.body, in_order=self.inside)
        except Irregular:
            return False
        group.written.append(statement)
        lanes = self.target.lanes(scalar_of(group.code.body)) if found.chunked else 1
        group.cost += _work(found.body, self.target) / lanes
        group.across |= any(isinstance(each, ir.For) and each.reductions for each in ir.walk(found.body))
        return True

    def _closed(self, group: _Group | None) -> list[ir.Statement]:
        """The loop that the group becomes, or its loops as they were where that is no more work."""
        if group is None:
            return []
        code = group.code
        straight = self._straight(group)
        if straight is None:
            return group.written
        body, lanes, cost, before = straight.body, straight.lanes, straight.cost, straight.before
        loops = f"{len(group.written)} loops over {ir.expression_text(code.extent)}"
        told = f"{loops}: straight-line code of {len(body)} statements, {lanes} iterations side by side"
        if not self.decisions.take("unroll", writes_text(*body), told, cost * UNROLLING_GAIN <= before):
            return group.written
        loop = ir.For(code.variable.name, code.extent, "lanes", tuple(body), lanes)
        if self.inside:
            return [loop]
        size = lanes * max(1, min(UNROLLED_CHUNK_STRIPS, UNROLLED_CHUNK_WORK // max(1, int(cost * lanes))))
        grain = ir.Constant(int(THREAD_GRAIN / max(1.0, cost)) + 1)
        return [Chunk(ir.Axis(code.variable, code.extent), size, self.fresh).parallel(loop, grain)]

    def _straight(self, group: _Group) -> _StraightLoop | None:
        """The straight-line code of a group, and what it costs; None for a loop that is shorter than a register."""
        code = group.code
        lanes = self.target.transformations.strip or self.target.lanes(scalar_of(code.body))
        short = isinstance(code.extent, ir.Constant) and code.extent.value < lanes
        body = ir.without_dead(code.body)
        if short or not body or _instructions(body, code.variable, lanes) > UNROLLED_INSTRUCTIONS:
            return None
        # loops without such combinations are unrolled in any case, later
        before = group.cost if group.across else min(group.cost, _along_lanes(body, code.variable, 1))
        return _StraightLoop(tuple(body), lanes, _along_lanes(body, code.variable, lanes), before)

    def stored_along(self, loop: ir.Statement, free: Collection[ir.Buffer]) -> Mapping[ir.Buffer, tuple[int, int]]:
        """See above."""
        found = _range(loop, self.inside)
        group = self._group(loop, found) if found is not None else None
        straight = self._straight(group) if group is not None else None
        if group is None or straight is None:
            return {}
        stores = [each for each in ir.of_kind(straight.body, ir.Store) if each.buffer in free]
        made = dict[ir.Buffer, tuple[int, int]]()
        for buffer in dict.fromkeys([each.buffer for each in stores]):
            own = [each for each in stores if each.buffer == buffer]
            axes = [_along(each, group.code.variable, straight.body) for each in own]
            if axes[0] is not None and len(set(axes)) == 1:
                made[buffer] = axes[0], len(own)
        least = straight.cost - LANE_ELEMENT_COST * sum([count for _, count in made.values()])
        return made if least * UNROLLING_GAIN <= straight.before else {}


def _along(store: ir.Store, variable: ir.Variable, body: ir.Block) -> int | None:
    """The axis at whose own number each iteration stores, if nothing else in the place varies with it."""
    axes = [axis for axis, index in enumerate(store.indices) if index == variable]
    others = [index for index in store.indices if index != variable]
    fixed = ir.names_in(others).isdisjoint(ir.bound_in(body))
    return axes[0] if len(axes) == 1 and fixed else None


def _decided(block: ir.Block) -> Iterator[ir.Statement]:
    """The statements of a block, those of a branch in place of a choice that is known."""
    for statement in block:
        match statement:
            case ir.If(ir.Apply() as test, then, orelse) if isinstance(known := simplified(test), ir.Constant):
                yield from _decided(then if known.value else orelse)
            case _:
                yield statement


def _range(statement: ir.Statement, inside: bool) -> _Range | None:
    """The range that a statement runs over, if it is such a loop."""
    if not isinstance(statement, ir.For) or statement.kind != ("sequential" if inside else "parallel"):
        return None
    match statement.body:
        case (
            ir.For(
                lane, ir.Apply(least, (ir.Apply(_, (extent, start)), _)), "lanes", (ir.Let(i, place), *body)
            ) as inner,
        ):
            whole = start + ir.Variable(lane)
            if least.name == "minimum" and place == whole and not inner.reductions:
                if isinstance(start, ir.Apply) and start.arguments[0] == ir.Variable(statement.variable):
                    return _Range(i, extent, tuple(body), True)
    return _Range(statement.variable, statement.extent, statement.body, False)


def _before(statement: ir.Statement, group: _Group) -> bool:
    """Whether a statement after the loops of a group may as well stand before them."""
    if isinstance(statement, ir.Allocate):
        return True
    if ir.contains((statement,), ir.Assign, ir.Call, ir.Return):
        return False
    _, buffers = ir.mentioned((statement,))
    return not buffers & group.code.written and not ir.written_in((statement,)) & group.code.read


def _constants(body: ir.Block) -> dict[str, ir.Constant]:
    """The temporary buffers that only ever receive one constant."""
    found: dict[str, ir.Constant | None] = {}
    allocated: set[str] = set()
    for statement in ir.walk(body):
        match statement:
            case ir.Store(buffer, _, value):
                only = value if isinstance(value, ir.Constant) and found.get(buffer.name, value) is not None else None
                before = found.get(buffer.name)
                same = before is None or repr(before) == repr(only)
                found[buffer.name] = only if same else None
            case ir.Update(buffer):
                found[buffer.name] = None
            case ir.Call():
                found.update(dict.fromkeys([buffer.name for buffer in statement.writes]))
            case ir.Allocate(buffer):
                allocated.add(buffer.name)
    return {name: value for name, value in found.items() if value is not None and name in allocated}


# How much work


def _work(block: ir.Block, target: Target) -> float:
    """About how many operations an iteration is as it is written: a vector is one."""
    work = 0.0
    for statement in block:
        work += sum(map(_operations, ir.expressions_of(statement))) + isinstance(statement, ir.Store)
        match statement:
            case ir.For(_, ir.Constant(extent), kind, inner):
                lanes = target.lanes(i64) if kind == "lanes" else 1
                work += -(-extent // lanes) * _work(inner, target) + SHORT_VECTOR_COST * len(statement.reductions)
            case ir.If(_, then, orelse):
                work += max(_work(then, target), _work(orelse, target))
            case ir.While(head, _, inner):
                work += SURVEY_UNKNOWN_ITERATIONS * _work((*head, *inner), target)
    return work


def _operations(expression: ir.Expression) -> float:
    """About how many additions an expression is worth."""
    work = 0.0
    for part in ir.inside(expression):
        match part:
            case ir.Apply(primitive):
                work += primitive.cost
            case ir.Select() | ir.MultiplyAdd() | ir.Load():
                work += 1
            case _:
                pass
    return work


def _along_lanes(body: Sequence[ir.Statement], variable: ir.Variable, lanes: int) -> float:
    """About how many operations an iteration of straight-line code is as one of so many lanes.

    Reading or writing a place for each lane takes as many accesses; what lies side by side takes one for all.
    """
    work = 0.0
    for value, across, turns in _computed(body, variable, {variable.name}):
        once = 1.0 if across is not None else _operations(value)
        work += turns * (LANE_ELEMENT_COST if across and lanes > 1 else once / lanes)
    return work


def _instructions(body: Sequence[ir.Statement], variable: ir.Variable, lanes: int) -> int:
    """About how many instructions straight-line code is, each access across lanes one for the place and one to move."""
    return sum([2 * lanes if across else 1 for _, across, _ in _computed(body, variable, {variable.name})])


def _computed(
    body: Sequence[ir.Statement], variable: ir.Variable, varying: set[str]
) -> Iterator[tuple[ir.Expression, bool | None, float]]:
    """What the statements of straight-line code compute, in how many turns, where some names vary with the lane.

    And, of an access, whether it is one for each lane.
    """
    for statement in body:
        if isinstance(statement, ir.While):
            for value, across, turns in _computed((*statement.head, *statement.body), variable, varying):
                yield value, across, turns * SURVEY_UNKNOWN_ITERATIONS
            continue
        assert isinstance(statement, ir.Let | ir.Store | ir.Declare | ir.Assign)
        moves = not varying.isdisjoint(ir.names_in(ir.expressions_of(statement)))
        if isinstance(statement, ir.Declare) or (isinstance(statement, ir.Let) and moves):
            varying.add(statement.name)
        value = statement.initial if isinstance(statement, ir.Declare) else statement.value
        access = statement if isinstance(statement, ir.Store) else value
        if isinstance(access, ir.Store | ir.Load):
            names = [ir.names_in([index]) & varying for index in access.indices]
            row = not any(names[:-1]) and access.indices and access.indices[-1] == variable
            yield value, bool(any(names) and not row), 1
        else:
            yield value, None, 1
