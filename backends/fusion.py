"""Neighbouring nests over the same extents become one, and what only they passed on to each other stays in registers.

Lowering makes a nest for each array. Many are neighbours that run over the same extents, and small ones spend more
time on starting a loop than in it; large ones read again what the one before has just written:

    temporary t: f64[n]                              parallel chunk < (n + 4095) // 4096
    parallel chunk < ...: lanes i: t[i] = exp(x[i])    lanes i
    parallel chunk < ...: lanes i: y[i] = 2 * t[i]  =>   let v = exp(x[i])
                                                         y[i] = 2 * v

Two nests are fused when the loops are the same and no iteration of one touches what another iteration of the other
writes: wherever both touch a buffer, and one of them writes it, their indices have each loop's variable in a common
place. A nest moves down to a later one past bindings and allocations only. Statements keep their order, and so
results are the same bits. A temporary that is stored, and from then on read at the same place in the same iteration
alone, is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..core.types import i64
from .loops import (
    Allocate,
    Apply,
    Block,
    Buffer,
    Constant,
    Expression,
    For,
    Function,
    If,
    Let,
    Load,
    Return,
    Statement,
    Store,
    Update,
    Variable,
    While,
    walk,
)
from .loops_walk import expressions, inside
from .lowering.arithmetic import folded
from .lowering.nests import strip_of
from .lowering.rewriting import map_block, map_operands
from .lowering.survey import survey
from .target import Target

# Fused nests have at most so many bindings together: more values do not fit into the registers.
LARGEST = 160

Access = tuple[Buffer, tuple[Expression, ...]]


def fused(function: Function, target: Target) -> Function:
    """A function with its neighbouring nests fused."""
    body = _without_dead_stores(_fused(function.body, target))
    return replace(function, body=body)


def _fused(block: Block, target: Target) -> Block:
    """A block with the nests in it fused, innermost blocks first."""
    made: list[Statement] = []
    for statement in block:
        match statement:
            case If(test, then, orelse):
                statement = If(test, _fused(then, target), _fused(orelse, target))
            case While(head, test, body):
                statement = While(_fused(head, target), test, _fused(body, target))
            case For() if _Nest.of(statement) is None:
                statement = replace(statement, body=_fused(statement.body, target))
        _append(made, statement, target)
    return tuple(made)


def _append(made: list[Statement], statement: Statement, target: Target) -> None:
    """Add a statement to a block; a nest is fused with the last one before it if it can be."""
    second = _Nest.of(statement) if isinstance(statement, For) else None
    if second is None:
        made.append(statement)
        return
    position = len(made) - 1
    while position >= 0 and isinstance(made[position], Let | Allocate):
        position -= 1
    before = made[position] if position >= 0 else None
    first = _Nest.of(before) if isinstance(before, For) else None
    if first is not None and not _read(made[position + 1 :], first):
        both = first.with_next(second, target)
        if both is not None:
            del made[position]
            made.append(both)
            return
    made.append(statement)


def _read(statements: Sequence[Statement], nest: _Nest) -> bool:
    """Whether statements between two nests read what the first one writes."""
    written = {buffer for buffer, _ in nest.writes}
    loads = [e for s in statements for whole in expressions(s) for e in inside(whole) if isinstance(e, Load)]
    return any(load.buffer in written for load in loads)


@dataclass(frozen=True)
class _Nest:
    """Loops one inside the other, the last one lanes, around bindings and stores."""

    loops: tuple[For, ...]
    body: Block

    @staticmethod
    def of(loop: For) -> _Nest | None:
        """The nest that a loop is the outermost one of, if it is one."""
        loops = [loop]
        while len(loops[-1].body) == 1 and isinstance(inner := loops[-1].body[0], For):
            loops.append(inner)
        body = loops[-1].body
        plain = all(each.kind in ("parallel", "sequential") for each in loops[:-1])
        fits = plain and loops[-1].kind == "lanes" and not any(each.reductions for each in loops)
        return _Nest(tuple(loops), body) if fits and all(isinstance(s, Let | Store) for s in body) else None

    @property
    def writes(self) -> list[Access]:
        return [(statement.buffer, statement.indices) for statement in self.body if isinstance(statement, Store)]

    @property
    def reads(self) -> list[Access]:
        parts = [e for statement in self.body for whole in expressions(statement) for e in inside(whole)]
        return [_place(e) for e in parts if isinstance(e, Load)]

    def with_next(self, other: _Nest, target: Target) -> For | None:
        """The two nests as one, if their loops are the same and no iteration needs another one of the other nest."""
        if len(self.loops) != len(other.loops):
            return None
        names: dict[str, Expression] = {}
        for mine, its in zip(self.loops, other.loops, strict=True):
            if mine.kind != its.kind or mine.extent != _renamed(its.extent, names):
                return None
            names[its.variable] = Variable(mine.variable, i64)
        body = self.body + tuple(self._next(other.body, names))
        bound = [statement.name for statement in body if isinstance(statement, Let)]
        if len(bound) > min(LARGEST, len(set(bound))):
            return None
        second = replace(other, body=body[len(self.body) :])
        if not self._apart(second):
            return None
        return self._around(_passed_on(body), other, target)

    def _next(self, body: Block, names: dict[str, Expression]) -> Iterator[Statement]:
        """The body of the other nest on this one's variables; indices that are computed in both are computed once."""
        known = {statement.value: statement.name for statement in self.body if isinstance(statement, Let)}
        for statement in _substituted(body, names):
            if isinstance(statement, Let):
                value = _renamed(statement.value, names)
                if value in known and not any(isinstance(e, Load) for e in inside(value)):
                    names[statement.name] = Variable(known[value], value.type)
                    continue
            yield from _substituted((statement,), names)

    def _apart(self, other: _Nest) -> bool:
        """Whether what one writes and the other touches is touched in the same iteration."""
        pairs = [(mine, its) for mine in self.writes for its in (*other.reads, *other.writes)]
        pairs += [(mine, its) for mine in self.reads for its in other.writes]
        return all(self._same(mine, its) for mine, its in pairs if mine[0].name == its[0].name)

    def _same(self, mine: Access, its: Access) -> bool:
        """Whether two accesses can meet in the same iteration alone."""
        common = {a.name for a, b in zip(mine[1], its[1], strict=True) if a == b and isinstance(a, Variable)}
        return {loop.variable for loop in self.loops} <= common.union(*[self._determines(name) for name in common])

    def _determines(self, name: str) -> set[str]:
        """The loop variables that a variable tells: a number counted through chunks tells chunk and lane."""
        for statement in self.body:
            match statement:
                case Let(found, Apply(add, (Apply(times, (Variable(chunk), Constant())), Variable(lane)))) if (
                    found == name
                ):
                    outer, inner = self.loops[-2:] if len(self.loops) > 1 else (None, self.loops[-1])
                    chunked = outer is not None and (chunk, lane) == (outer.variable, inner.variable)
                    if chunked and (add.name, times.name) == ("add", "multiply"):
                        return {chunk, lane}
        return set()

    def _around(self, body: Block, other: _Nest, target: Target) -> For:
        """The loops around the body of both."""
        strip = min(self.loops[-1].factor, other.loops[-1].factor, strip_of(survey(body), target))
        for k, (mine, its) in reversed(list(enumerate(zip(self.loops, other.loops, strict=True)))):
            grain = mine.grain
            if grain is not None and its.grain is not None and grain != its.grain:
                grain = folded("minimum", _constant(grain), _constant(its.grain))
            factor = strip if k == len(self.loops) - 1 else mine.factor
            body = (replace(mine, body=body, factor=factor, grain=grain),)
        (loop,) = body
        assert isinstance(loop, For)
        return loop


def _constant(expression: Expression) -> Expression:
    """An expression with operations on constants done."""
    if not isinstance(expression, Apply):
        return expression
    return folded(expression.primitive.name, *[_constant(each) for each in expression.arguments])


def _place(load: Load) -> Access:
    """What a load reads: an index that is clamped may be any other."""
    anywhere = Constant(-1, i64)
    return load.buffer, tuple([anywhere if k in load.guarded else index for k, index in enumerate(load.indices)])


def _renamed(expression: Expression, names: Mapping[str, Expression]) -> Expression:
    if isinstance(expression, Variable):
        return names.get(expression.name, expression)
    return map_operands(expression, lambda each: _renamed(each, names))


def _substituted(block: Block, names: Mapping[str, Expression]) -> Block:
    return map_block(block, lambda e: _renamed(e, names), lambda store: store)


# What is stored and read again


def _passed_on(body: Block) -> Block:
    """A body in which what was stored at a place is not read again from there."""
    made: list[Statement] = []
    known: dict[Access, Expression] = {}

    def value(e: Expression) -> Expression:
        if isinstance(e, Load) and (e.buffer, e.indices) in known:
            return known[e.buffer, e.indices]
        return map_operands(e, value)

    for statement in body:
        (new,) = map_block((statement,), value, lambda store: store)
        made.append(new)
        if isinstance(new, Store):
            known = {place: stored for place, stored in known.items() if place[0].name != new.buffer.name}
            if not new.guarded and isinstance(new.value, Variable | Constant):
                known[new.buffer, new.indices] = new.value
    return tuple(made)


def _without_dead_stores(block: Block) -> Block:
    """A function's body without temporaries that nothing reads."""
    statements = list(walk(block))
    used = {e.buffer.name for s in statements for whole in expressions(s) for e in inside(whole) if isinstance(e, Load)}
    used |= {statement.buffer.name for statement in statements if isinstance(statement, Return)}
    dead = {s.buffer.name for s in statements if isinstance(s, Allocate) and s.buffer.name not in used}
    return _without(block, dead) if dead else block


def _without(block: Block, dead: set[str]) -> Block:
    made: list[Statement] = []
    for statement in block:
        match statement:
            case Allocate(buffer) | Store(buffer) | Update(buffer) if buffer.name in dead:
                continue
            case For():
                statement = replace(statement, body=_without(statement.body, dead))
                if not statement.body:
                    continue
            case If(test, then, orelse):
                statement = If(test, _without(then, dead), _without(orelse, dead))
            case While(head, test, body):
                statement = While(_without(head, dead), test, _without(body, dead))
        made.append(statement)
    return tuple(made)
