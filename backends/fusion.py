"""Neighbouring nests over the same extents become one, and what only they passed on to each other stays in registers.

Lowering makes a nest for each array. Many are neighbours that run over the same extents, and small ones spend more
time on starting a loop than in it; large ones read again what the one before has just written:

    temporary t: f64[n]                              parallel chunk < (n + 4095) // 4096
    parallel chunk < ...: lanes i: t[i] = exp(x[i])    lanes i
    parallel chunk < ...: lanes i: y[i] = 2 * t[i]  =>   let v = exp(x[i])
                                                         y[i] = 2 * v

Two nests are fused when the loops are the same and no iteration of one touches what another iteration of the other
writes: wherever both touch a buffer, and one of them writes it, their indices have each loop's variable in a common
place. A nest moves down to a later one past bindings and allocations only. What they do with each place may be a loop:
where both have one, these must become one, by the same rule, so that a scan is summed while it is made. ::

    lanes i: for j < m: p = p * x[i]; t[j, i] = p      =>   lanes i: for j < m: p = p * x[i]
    lanes i: for j < m: s = s + c[j] * t[j, i]                                  s = s + c[j] * p

A loop that only requires something becomes one with the loop behind it, which mostly reads the same. Code may run on
after a failure, since reads are clamped::

    parallel chunk < ...: lanes i: bad = bad or k[i] >= n      parallel chunk < ...
                          if bad: ...                            lanes i
    parallel chunk < ...: lanes i: y[i] = x[k[i]]          =>      bad = bad or k[i] >= n
                                                                   y[i] = x[k[i]]
                                                                 if bad: ...

Statements keep their order, and so results are the same bits. A temporary that is stored, and from then on read at
the same place in the same iteration alone, is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from . import ir
from .lowering.lanes import strip_of
from .lowering.survey import survey
from .target import Target

# Fused nests have at most so many bindings together: more values do not fit into the registers.
LARGEST = 160

Access = tuple[ir.Buffer, tuple[ir.Expression, ...]]


def fused(function: ir.Function, target: Target) -> ir.Function:
    """A function with its neighbouring nests fused."""
    return replace(function, body=ir.without_unread(_fused(function.body, target)))


def _fused(block: ir.Block, target: Target) -> ir.Block:
    """A block with the nests in it fused, innermost blocks first."""
    made: list[ir.Statement] = []
    for statement in block:
        if not isinstance(statement, ir.For) or _Nest.of(statement) is None:
            statement = ir.map_inside(statement, lambda inner: _fused(inner, target))
        _append(made, statement, target)
    return _with_checks(made, target)


def _with_checks(block: Sequence[ir.Statement], target: Target) -> ir.Block:
    """A block in which parallel loops that only require something are run together with those behind them."""
    made: list[ir.Statement] = []
    last = -1  # the position of the last statement that is more than a binding or an allocation
    for statement in block:
        check = made[last] if last >= 0 else None
        if isinstance(check, ir.For) and isinstance(statement, ir.For):
            both = _checked(check, statement, target)
            if both is not None:
                del made[last]
                statement = both
        if not isinstance(statement, ir.Let | ir.Allocate):
            last = len(made)
        made.append(statement)
    return tuple(made)


def _checked(check: ir.For, other: ir.For, target: Target) -> ir.For | None:
    """A loop that only requires something and a loop that requires nothing as one, if that makes no difference."""
    extents = check.extent == other.extent and check.kind == other.kind == "parallel"
    effects = (ir.Store, ir.Update, ir.Allocate, ir.While)
    only_requires = not any(isinstance(each, effects) for each in ir.walk(check.body))
    last = not ir.contains(other.body, ir.Require, ir.Allocate)
    apart = ir.written_in(other.body).isdisjoint(ir.read_in(check.body)) and ir.bound_in((check,)).isdisjoint(
        ir.bound_in(other.body)
    )
    if not (extents and only_requires and last and apart):
        return None
    names: dict[str, ir.Expression] = {other.variable: ir.Variable(check.variable)}
    body = (*check.body, *ir.substituted_in(other.body, names))
    match body:
        case (ir.Declare() as failed, ir.For() as tests, ir.If() as found, ir.For() as work) if _same_lanes(
            tests, work
        ):
            both = _Nest((check, tests), tests.body).followed_by(work)
            strip = min(tests.factor, work.factor, strip_of(survey(both), target))
            body = (failed, replace(tests, body=both, factor=strip), found)
    return replace(check, body=body, grain=_smaller(check.grain, other.grain))


def _same_lanes(first: ir.For, second: ir.For) -> bool:
    """Whether two loops are lanes over the same extent, and the second one combines nothing."""
    return first.kind == second.kind == "lanes" and first.extent == second.extent and not second.reductions


def _before(made: Sequence[ir.Statement]) -> int:
    """The position of the last statement of a block that is more than a binding or an allocation; -1 without one."""
    position = len(made) - 1
    while position >= 0 and isinstance(made[position], ir.Let | ir.Allocate):
        position -= 1
    return position


def _smaller(a: ir.Expression | None, b: ir.Expression | None) -> ir.Expression | None:
    """The smaller one of two grains, the first if one is not known."""
    return a if a is None or b is None or a == b else ir.minimum(a, b)


def _append(made: list[ir.Statement], statement: ir.Statement, target: Target) -> None:
    """Add a statement to a block; a nest is fused with the last one before it if it can be."""
    second = _Nest.of(statement) if isinstance(statement, ir.For) else None
    if second is None:
        made.append(statement)
        return
    position = _before(made)
    before = made[position] if position >= 0 else None
    first = _Nest.of(before) if isinstance(before, ir.For) else None
    if first is not None and not _read(made[position + 1 :], first):
        both = first.with_next(second, target)
        if both is not None:
            del made[position]
            made.append(both)
            return
    made.append(statement)


def _read(statements: Sequence[ir.Statement], nest: _Nest) -> bool:
    """Whether statements between two nests read what the first one writes."""
    written = {buffer for buffer, _ in _writes(nest.body)}
    return any(load.buffer in written for statement in statements for load in ir.loads(statement))


@dataclass(frozen=True)
class _Nest:
    """Loops one inside the other, the last one lanes, around bindings and stores, and at most one loop of these."""

    loops: tuple[ir.For, ...]
    body: ir.Block

    @staticmethod
    def of(loop: ir.For) -> _Nest | None:
        """The nest that a loop is the outermost one of, if it is one."""
        loops = [loop]
        while len(loops[-1].body) == 1 and isinstance(inner := loops[-1].body[0], ir.For):
            loops.append(inner)
        body = loops[-1].body
        plain = all(each.kind in ("parallel", "sequential") for each in loops[:-1])
        fits = plain and loops[-1].kind == "lanes" and not any(each.reductions for each in loops)
        return _Nest(tuple(loops), body) if fits and _is_simple(body) else None

    def with_next(self, other: _Nest, target: Target) -> ir.For | None:
        """The two nests as one, if their loops are the same and no iteration needs another one of the other nest."""
        if len(self.loops) != len(other.loops):
            return None
        names: dict[str, ir.Expression] = {}
        for mine, its in zip(self.loops, other.loops, strict=True):
            if mine.kind != its.kind or mine.extent != ir.substituted(its.extent, names):
                return None
            names[its.variable] = ir.Variable(mine.variable)
        second = tuple(self._next(other.body, names))
        if not self._apart(self.body, second, [loop.variable for loop in self.loops]):
            return None
        body = self._with_loops_joined((*self.body, *second))
        if body is None:
            return None
        bound = [s.name for s in ir.walk(body) if isinstance(s, ir.Let | ir.Declare)]
        variables = [loop.variable for loop in (*self.loops, *ir.walk(body)) if isinstance(loop, ir.For)]
        if len(bound) > LARGEST or len({*bound, *variables}) < len(bound) + len(variables):
            return None
        return self._around(_passed_on(body), other, target)

    def _next(self, body: ir.Block, names: dict[str, ir.Expression]) -> Iterator[ir.Statement]:
        """The body of the other nest on this one's variables; indices that are computed in both are computed once."""
        mutable = {statement.name for statement in self.body if isinstance(statement, ir.Declare)}
        known = {
            s.value: s.name for s in self.body if isinstance(s, ir.Let) and mutable.isdisjoint(ir.names_in([s.value]))
        }
        for statement in body:
            (statement,) = ir.substituted_in((statement,), names)
            if isinstance(statement, ir.Let) and statement.value in known and not list(ir.loads(statement)):
                names[statement.name] = ir.Variable(known[statement.value], statement.value.type)
            else:
                yield statement

    def followed_by(self, lanes: ir.For) -> ir.Block:
        """The body, and behind it that of other lanes on this one's variable."""
        return (*self.body, *self._next(lanes.body, {lanes.variable: ir.Variable(self.loops[-1].variable)}))

    def _with_loops_joined(self, body: ir.Block) -> ir.Block | None:
        """A body with its two loops as one, if it has two and they can be one; none if they cannot."""
        first, *more = [k for k, statement in enumerate(body) if isinstance(statement, ir.For)] or [len(body)]
        if not more:
            return body
        (second,) = more
        mine, its = body[first], body[second]
        assert isinstance(mine, ir.For) and isinstance(its, ir.For)
        changed, written = ir.assigned_in((mine,)), ir.written_in((mine,))
        between = body[first + 1 : second]
        moves = all(isinstance(s, ir.Let | ir.Declare) and written.isdisjoint(ir.read_in((s,))) for s in between)
        if mine.extent != its.extent or not moves or changed & ir.mentioned((*between, its))[0]:
            return None
        inner = {its.variable: ir.Variable(mine.variable)}
        added = ir.substituted_in(its.body, inner)
        if not self._apart(mine.body, added, [mine.variable]):
            return None
        loop = replace(mine, body=(*mine.body, *added))
        return (*body[:first], *between, loop, *body[second + 1 :])

    def _apart(self, mine: ir.Block, its: ir.Block, variables: Sequence[str]) -> bool:
        """Whether what one block writes and the other touches is touched in the same iteration of some loops."""
        pairs = [(a, b) for a in _writes(mine) for b in (*_reads(its), *_writes(its))]
        pairs += [(a, b) for a in _reads(mine) for b in _writes(its)]
        return all(self._same(a, b, variables) for a, b in pairs if a[0].name == b[0].name)

    def _same(self, mine: Access, its: Access, variables: Sequence[str]) -> bool:
        """Whether two accesses can meet in the same iteration alone."""
        common = {a.name for a, b in zip(mine[1], its[1], strict=True) if a == b and isinstance(a, ir.Variable)}
        return set(variables) <= common.union(*[self._determines(name) for name in common])

    def _determines(self, name: str) -> set[str]:
        """The loop variables that a variable tells: a number counted through chunks tells chunk and lane."""
        for statement in self.body:
            match statement:
                case ir.Let(
                    found, ir.Apply(add, (ir.Apply(times, (ir.Variable(chunk), ir.Constant())), ir.Variable(lane)))
                ) if found == name:
                    outer, inner = self.loops[-2:] if len(self.loops) > 1 else (None, self.loops[-1])
                    chunked = outer is not None and (chunk, lane) == (outer.variable, inner.variable)
                    if chunked and (add.name, times.name) == ("add", "multiply"):
                        return {chunk, lane}
        return set()

    def _around(self, body: ir.Block, other: _Nest, target: Target) -> ir.For:
        """The loops around the body of both."""
        strip = min(self.loops[-1].factor, other.loops[-1].factor, strip_of(survey(body), target))
        for k, (mine, its) in reversed(list(enumerate(zip(self.loops, other.loops, strict=True)))):
            grain = _smaller(mine.grain, its.grain)
            factor = strip if k == len(self.loops) - 1 else mine.factor
            body = (replace(mine, body=body, factor=factor, grain=grain),)
        (loop,) = body
        assert isinstance(loop, ir.For)
        return loop


def _is_simple(body: ir.Block) -> bool:
    """Whether a body is bindings and stores, and at most one loop of these that runs in order."""
    loops = [statement for statement in body if isinstance(statement, ir.For)]
    inside = [each for loop in loops for each in loop.body]
    plain = all(isinstance(s, ir.Let | ir.Declare | ir.Assign | ir.Store | ir.For) for s in body) and len(loops) <= 1
    return (
        plain
        and all(loop.kind == "sequential" for loop in loops)
        and all(isinstance(s, ir.Let | ir.Assign | ir.Store) for s in inside)
    )


def _writes(block: ir.Block) -> list[Access]:
    return [(statement.buffer, statement.indices) for statement in ir.of_kind(block, ir.Store)]


def _reads(block: ir.Block) -> list[Access]:
    return [_place(load) for statement in ir.walk(block) for load in ir.loads(statement)]


def _place(load: ir.Load) -> Access:
    """What a load reads: an index that is clamped may be any other."""
    anywhere = ir.Constant(-1)
    return load.buffer, tuple([anywhere if k in load.guarded else index for k, index in enumerate(load.indices)])


# What is stored and read again


def _passed_on(body: ir.Block) -> ir.Block:
    """A body in which what was stored at a place is not read again from there."""
    mutable = {statement.name for statement in ir.of_kind(body, ir.Declare)}

    def passed_on(block: ir.Block, known: dict[Access, ir.Expression]) -> ir.Block:
        made: list[ir.Statement] = []

        def value(e: ir.Expression) -> ir.Expression:
            if isinstance(e, ir.Load) and (e.buffer, e.indices) in known:
                return known[e.buffer, e.indices]
            return ir.map_operands(e, value)

        for statement in block:
            written = {buffer.name for buffer, _ in _writes((statement,))}
            if isinstance(statement, ir.For):
                known = _without(known, written)  # an iteration may read what the one before wrote
                made.append(replace(statement, body=passed_on(statement.body, known)))
                continue
            (new,) = ir.map_block((statement,), value, lambda store: store)
            made.append(new)
            known = _without(known, written)
            if isinstance(new, ir.Store) and not new.guarded and isinstance(new.value, ir.Variable | ir.Constant):
                if getattr(new.value, "name", "") not in mutable:
                    known[new.buffer, new.indices] = new.value
        return tuple(made)

    return passed_on(body, {})


def _without(known: dict[Access, ir.Expression], written: set[str]) -> dict[Access, ir.Expression]:
    return {place: stored for place, stored in known.items() if place[0].name not in written}
