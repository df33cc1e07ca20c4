"""Loop fusion of nests: neighbours over the same axes become one, and what only they pass on stays in registers.

Lowering makes a nest for each array. Many are neighbours over the same axes; small ones spend more time on starting
than on their points, on a device each is a kernel, and large ones read again what the one before has just written::

    temporary t: f64[n]
    nest i < n: t[i] = exp(x[i])          =>    nest i < n
    nest j < n: y[j] = 2 * t[j]                   let v = exp(x[i])
                                                  y[i] = 2 * v

Points of a nest run in any order, so two are one if no point of either touches what another point writes: wherever
both touch a buffer, and one of them writes it, their indices have each axis in a common place (Allen and Kennedy,
ch. 8: fusion prevented by no dependence but loop-independent ones). Axes that index the same axes of the same arrays
are the same, whatever their order. A nest moves down to a later one, past what has nothing to do with it; bindings that
need its results then follow both. None moves past a requirement.

Fused nests must keep their roles: a product stays one, with the other nest before its sum or behind it, and nobody's
lanes turn. What a point does may hold a loop; where both have one, these must become one by the same rule, so that a
scan is summed while it is made. ::

    nest i < n: for j < m: p = p * x[i]; t[j, i] = p      =>   nest i < n: for j < m: p = p * x[i]
    nest i < n: for j < m: s = s + c[j] * t[j, i]                                    s = s + c[j] * p

A nest that combines (a sum, a maximum) is fused with those that write what it reads, or read what it does::

    nest i < n: y[i] = exp(x[i])                               nest i < n combining total by add
    nest j < n combining total by add: total = total + y[j]  =>  let v = exp(x[i]);  y[i] = v;  total = total + v

A nest that only requires something becomes one with the nest behind it, which mostly reads the same; see
``lowering/requirements.py`` for its loops. Code may run on after a failure, since reads are clamped. Where both go
through the same row, which may be of any length, a loop over the row does both, and reads it once::

    nest i < n: nest k < len(i): require c[at(i) + k] < m
    nest i < n: for k < len(i): s = s + x[c[at(i) + k]]  =>  nest i < n: for k < len(i): require ..; s = s + ..

Statements keep their order, and so results are the same bits. A temporary that is stored, and from then on read at
the same place by the same point alone, is not stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ... import ir
from ...decisions import writes_text
from ...lowering import Lowered
from ...lowering.privatisation import updated_by
from ...lowering.requirements import checks_in_sum, work_of
from ...lowering.roles import Planner, relaid
from ...target import FUSION_BINDINGS, FUSION_LOOKAHEAD

Access = tuple[ir.Buffer, tuple[ir.Expression, ...]]


def fused(lowered: Lowered) -> Lowered:
    """A function with its neighbouring nests fused."""
    function = lowered.function
    body = _Fusion(Planner(lowered.context, function.body)).block(function.body)
    return replace(lowered, function=replace(function, body=ir.without_unread(body)))


class _Fusion:
    """The nests of one function."""

    def __init__(self, planner: Planner) -> None:
        self.planner, self.decisions = planner, planner.context.decisions

    def block(self, block: ir.Block) -> ir.Block:
        """A block with the nests in it fused, innermost blocks first."""
        made: list[ir.Statement] = []
        for number, statement in enumerate(block, 1):
            statement = ir.map_inside(statement, self.block)
            if isinstance(statement, ir.Nest):
                self.append(made, statement, block[number:])
            else:
                made.append(statement)
        return tuple(made)

    def append(self, made: list[ir.Statement], second: ir.Nest, rest: ir.Block) -> None:
        """Add a nest to a block, fused with one before it if it can be, and that with another one; the rest follows."""
        passed = 0
        for position in range(len(made) - 1, -1, -1):
            first = made[position]
            if isinstance(first, ir.Let | ir.Declare | ir.Allocate):
                continue
            if isinstance(first, ir.Nest) and _same_extents(first, second):
                between = made[position + 1 :]
                after = _depending(first, between)
                follows = all(isinstance(each, ir.Let | ir.Declare) for each in after)  # what it fills lives no longer
                follows &= not ir.conflict((second,), after)
                both = None if not follows or self.feeds(first, second, rest) else self.one(first, second)
                if both is not None and self.decisions.take("fuse", f"{writes_text(second)} with {writes_text(first)}"):
                    made[position:] = [statement for statement in between if statement not in after]
                    self.append(made, both, rest)
                    made += after
                    return
            passed += 1
            if passed > FUSION_LOOKAHEAD or ir.contains((first,), ir.Require, ir.Call, ir.Return):
                break
        made.append(second)

    def one(self, first: ir.Nest, second: ir.Nest) -> ir.Nest | None:
        """Two nests as one, if their axes are the same and no point needs another one of the other nest."""
        if first.outermost != second.outermost or not _plain(second.body):
            return None
        second = _along(first, second, _common_axes(first, second))
        if not _plain(work_of(first.body)):
            return None
        variables = [axis.variable.name for axis in first.axes]
        if not ir.assigned_in(first.body).isdisjoint(ir.mentioned((second,))[0]):
            return None
        if _meets(first, variables) or _meets(second, variables) or not _apart(first.body, second.body, variables):
            return None
        body = _with_loops_joined((*self.checks(first, second), *_rest(first.body, second.body)))
        if body is None:
            return None
        bound = [s.name for s in ir.walk(body) if isinstance(s, ir.Let | ir.Declare)]
        bound += [*variables, *[loop.variable for loop in ir.of_kind(body, ir.For)]]
        if len(bound) > FUSION_BINDINGS + len(variables) or len(set(bound)) < len(bound):
            return None
        both = replace(
            first,
            body=_passed_on(body),
            fills=(*first.fills, *second.fills),
            meets=first.meets or second.meets,
            alone=first.alone if first.alone == second.alone else None,
            combines=(*first.combines, *second.combines),
            read={pair: min(least, second.read[pair]) for pair, least in first.read.items() if pair in second.read},
        )
        return both if self.alike(first, second, both) else None

    def checks(self, first: ir.Nest, second: ir.Nest) -> ir.Block:
        """What the first nest does; what it requires along an inner axis, in a loop like that of the second nest."""
        loop = next((statement for statement in second.body if isinstance(statement, ir.For)), None)
        if loop is None or work_of(first.body) or self.planner.context.target.group:
            return first.body
        return tuple([_required_in_order(statement, loop) for statement in first.body])

    def feeds(self, first: ir.Nest, second: ir.Nest, rest: ir.Block) -> bool:
        """Whether the first nest only requires something, and the second fills what others read that may be unrolled.

        With those it becomes straight-line code, and what it fills stays in registers.
        """
        target = self.planner.context.target
        if target.group or not target.transformations.unroll or work_of(first.body):
            return False
        filled = {buffer.name for buffer in second.fills}
        like = (each for each in rest if isinstance(each, ir.Nest) and _same_extents(each, second))
        return any(not _plain(each.body) and filled & ir.read_in(each.body) for each in like)

    def alike(self, first: ir.Nest, second: ir.Nest, both: ir.Nest) -> bool:
        """Whether two nests run together as each of them runs alone."""
        mine, common = self.planner.roles(first), self.planner.roles(both)
        its = self.planner.roles(replace(second, body=relaid(second.body, mine.layouts)))
        if first.combines or second.combines:
            return mine.in_order and its.in_order and common.in_order
        if not work_of(first.body):
            return its == common and (common.in_order or checks_in_sum(both.body, common) is not None)
        if mine.has_loops and its.has_loops:
            return mine == its == common and mine.plain
        leading = mine if mine.has_loops else its
        return leading == common and mine.lane == its.lane and (leading.has_loops or mine == its)


def _depending(nest: ir.Nest, statements: Sequence[ir.Statement]) -> list[ir.Statement]:
    """Those of the statements behind a nest that must stay there, directly or because of each other."""
    found: list[ir.Statement] = []
    for statement in statements:
        before = found if isinstance(statement, ir.Allocate) else [nest, *found]  # what a nest fills is allocated
        if ir.conflict((statement,), before):
            found.append(statement)
    return found


# Axes


def _same_extents(first: ir.Nest, second: ir.Nest) -> bool:
    """Whether two nests run over the same extents, in any order."""
    return Counter([axis.extent for axis in first.axes]) == Counter([axis.extent for axis in second.axes])


def _common_axes(first: ir.Nest, second: ir.Nest) -> list[int]:
    """For each axis of the second nest the one of the first that it is, by what they index; extents are the same."""
    met = Counter(
        (a, b)
        for mine, its in _pairs(first, second)
        for a, b in zip(mine[1], its[1], strict=True)
        if isinstance(a, ir.Variable) and isinstance(b, ir.Variable)
    )
    left, found = list(range(len(first.axes))), list[int]()
    for k, axis in enumerate(second.axes):
        fitting = [number for number in left if first.axes[number].extent == axis.extent]
        variable = axis.variable
        found.append(max(fitting, key=lambda number: (met[first.axes[number].variable, variable], number == k)))
        left.remove(found[-1])
    return found


def _pairs(first: ir.Nest, second: ir.Nest) -> Iterator[tuple[Access, Access]]:
    """What both nests touch of the same buffer."""
    its: dict[str, list[Access]] = {}
    for access in (*_reads(second.body), *_writes(second.body)):
        its.setdefault(access[0].name, []).append(access)
    for access in dict.fromkeys((*_reads(first.body), *_writes(first.body))):
        yield from ((access, other) for other in its.get(access[0].name, ()))


def _along(first: ir.Nest, second: ir.Nest, axes: Sequence[int]) -> ir.Nest:
    """The second nest along the axes of the first."""
    names = {axis.variable.name: first.axes[number].variable for axis, number in zip(second.axes, axes, strict=True)}
    read = {(names[a].name, names[b].name): least for (a, b), least in second.read.items()}
    return replace(second, axes=first.axes, body=ir.substituted_in(second.body, names), read=read)


# Dependences


def _plain(body: ir.Block) -> bool:
    """Whether a body is bindings and stores, and at most one loop of these that runs in order."""
    loops = [statement for statement in body if isinstance(statement, ir.For)]
    inside = [each for loop in loops for each in loop.body]
    plain = all(isinstance(s, ir.Let | ir.Declare | ir.Assign | ir.Store | ir.For) for s in body) and len(loops) <= 1
    return (
        plain
        and all(loop.kind == "sequential" for loop in loops)
        and all(isinstance(s, ir.Let | ir.Assign | ir.Store) for s in inside)
    )


def _meets(nest: ir.Nest, variables: Sequence[str]) -> bool:
    """Whether points add to the same places."""
    adding = [store for stores in updated_by(nest.body).values() for store in stores]
    return not all(_same((s.buffer, s.indices), (s.buffer, s.indices), variables) for s in adding)


def _apart(mine: ir.Block, its: ir.Block, variables: Sequence[str]) -> bool:
    """Whether what one block writes and the other touches is touched for the same values of some variables alone."""
    return all(
        _same(a, b, variables)
        for one, other in ((mine, its), (its, mine))
        for a in dict.fromkeys(_writes(one))
        for b in dict.fromkeys((*_reads(other), *_writes(other)))
        if a[0].name == b[0].name
    )


def _same(mine: Access, its: Access, variables: Sequence[str]) -> bool:
    """Whether two accesses can meet for the same values of some variables alone."""
    common = {a.name for a, b in zip(mine[1], its[1], strict=True) if a == b and isinstance(a, ir.Variable)}
    return common.issuperset(variables)


def _writes(block: ir.Block) -> list[Access]:
    return [(statement.buffer, statement.indices) for statement in ir.of_kind(block, ir.Store)]


def _reads(block: ir.Block) -> list[Access]:
    return [_place(load) for statement in ir.walk(block) for load in ir.loads(statement)]


def _place(load: ir.Load) -> Access:
    """What a load reads: an index that is clamped may be any other."""
    anywhere = ir.Constant(-1)
    return load.buffer, tuple([anywhere if k in load.guarded else index for k, index in enumerate(load.indices)])


# Bodies


def _rest(before: ir.Block, body: ir.Block) -> Iterator[ir.Statement]:
    """The body of the second nest; what is computed before is not computed again."""
    changing = {s.name for s in before if isinstance(s, ir.Declare)} | ir.assigned_in(before)
    written = ir.written_in(before) | ir.written_in(body)

    def stays(let: ir.Let) -> bool:
        variables, buffers = ir.mentioned((let,))
        return changing.isdisjoint(variables) and written.isdisjoint(buffers)

    known = {s.value: s.name for s in before if isinstance(s, ir.Let) and stays(s)}
    names: dict[str, ir.Expression] = {}
    for statement in body:
        (statement,) = ir.substituted_in((statement,), names)
        if isinstance(statement, ir.Let) and statement.value in known:
            names[statement.name] = ir.Variable(known[statement.value], statement.value.type)
        else:
            yield statement


def _required_in_order(statement: ir.Statement, like: ir.For) -> ir.Statement:
    """A nest along one axis that only requires something, as a loop with the variable of another one."""
    if not isinstance(statement, ir.Nest) or len(statement.axes) > 1:
        return statement
    if not all(isinstance(each, ir.Let | ir.Require) for each in statement.body):
        return statement
    [axis] = statement.axes
    body = ir.substituted_in(statement.body, {axis.variable.name: ir.Variable(like.variable)})
    return ir.For(like.variable, axis.extent, "sequential", body)


def _with_loops_joined(body: ir.Block) -> ir.Block | None:
    """A body with its two loops as one, if it has two and they can be one; none if they cannot, or are more."""
    loops = [k for k, statement in enumerate(body) if isinstance(statement, ir.For)]
    if len(loops) < 2:
        return body
    if len(loops) > 2:
        return None
    first, second = loops
    mine, its = body[first], body[second]
    assert isinstance(mine, ir.For) and isinstance(its, ir.For)
    changed, written = ir.assigned_in((mine,)), ir.written_in((mine,))
    between = body[first + 1 : second]
    moves = all(isinstance(s, ir.Let | ir.Declare) and written.isdisjoint(ir.read_in((s,))) for s in between)
    if mine.extent != its.extent or not moves or changed & ir.mentioned((*between, its))[0]:
        return None
    added = ir.substituted_in(its.body, {its.variable: ir.Variable(mine.variable)})
    if not _apart(mine.body, added, [mine.variable]):
        return None
    return (*body[:first], *between, replace(mine, body=(*mine.body, *added)), *body[second + 1 :])


def _passed_on(body: ir.Block) -> ir.Block:
    """A body in which what was stored at a place is not read again from there, and nothing is computed twice by it."""
    mutable = {statement.name for statement in ir.of_kind(body, ir.Declare)} | ir.assigned_in(body)

    def stays(e: ir.Expression) -> bool:
        return isinstance(e, ir.Constant) or (isinstance(e, ir.Variable) and e.name not in mutable)

    def passed_on(
        block: ir.Block,
        stored: Mapping[Access, ir.Expression],
        computed: Mapping[ir.Expression, ir.Expression],
        names: Mapping[str, ir.Expression],
    ) -> ir.Block:
        made: list[ir.Statement] = []

        def value(e: ir.Expression) -> ir.Expression:
            if isinstance(e, ir.Variable):
                return names.get(e.name, e)
            e = ir.map_operands(e, value)
            return stored.get((e.buffer, e.indices), e) if isinstance(e, ir.Load) else e

        for statement in block:
            written = {buffer.name for buffer, _ in _writes((statement,))}
            if isinstance(statement, ir.For):
                stored = _without(stored, written)  # an iteration may read what the one before wrote
                loop = replace(statement, extent=value(statement.extent))
                made.append(replace(loop, body=passed_on(statement.body, stored, computed, names)))
                continue
            (new,) = ir.map_block((statement,), value, lambda store: store)
            if isinstance(new, ir.Let):
                known = new.value if stays(new.value) else computed.get(new.value)
                if known is not None:
                    names = {**names, new.name: known}
                    continue
                if isinstance(new.value, ir.Apply) and all(stays(each) for each in new.value.arguments):
                    computed = {**computed, new.value: ir.Variable(new.name, new.value.type)}
            made.append(new)
            stored = _without(stored, written)
            if isinstance(new, ir.Store) and not new.guarded and stays(new.value):
                stored = {**stored, (new.buffer, new.indices): new.value}
        return tuple(made)

    return passed_on(body, {}, {}, {})


def _without(known: Mapping[Access, ir.Expression], written: set[str]) -> dict[Access, ir.Expression]:
    return {place: stored for place, stored in known.items() if place[0].name not in written}
