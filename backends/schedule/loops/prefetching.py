"""Software prefetching: elements at places that other elements tell are asked for before their turn.

What is next in a row of memory the processor fetches by itself. Where an array of indices says what is read or written,
it cannot know, and waits for a large array's memory each time. The places are known in advance, though, since the
indices stand in a row. So a loop looks at those ``PREFETCH_AHEAD`` iterations further on::

    lanes i                          lanes i
      let t = k[i]                     if 2097152 < n: prefetch x[k[i + 128]]
      y[i] = x[t]              =>      let t = k[i]
                                       y[i] = x[t]

It is done in loops that are short, in which there is little else to do meanwhile, and for arrays that take more than
their share of the last cache: sizes that are not known are compared in the run. What that cache holds comes soon enough
for a core that reads ahead by itself, and to ask for it costs more than it gains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ... import ir
from ...decisions import Decisions, writes_text
from ...target import L3_BYTES, PREFETCH_AHEAD, PREFETCH_INDEX_PARTS, PREFETCH_STATEMENTS, Target


def prefetched(function: ir.Function, target: Target, decisions: Decisions) -> ir.Function:
    """A function whose short loops look ahead."""
    return replace(function, body=_block(function.body, target, decisions))


def _block(block: ir.Block, target: Target, decisions: Decisions) -> ir.Block:
    return tuple([_statement(statement, target, decisions) for statement in block])


def _statement(statement: ir.Statement, target: Target, decisions: Decisions) -> ir.Statement:
    match statement:
        case ir.For(kind="lanes" | "sequential") if not ir.contains(statement.body, ir.For, ir.While):
            ahead = tuple(_ahead(statement, target))
            if ahead and decisions.take("prefetch", f"reads for {writes_text(statement)}"):
                return replace(statement, body=(*ahead, *statement.body))
            return statement
    return ir.map_inside(statement, lambda inner: _block(inner, target, decisions))


def _ahead(loop: ir.For, target: Target) -> Iterator[ir.Statement]:
    """What a loop asks for."""
    if sum(1 for _ in ir.walk(loop.body)) > PREFETCH_STATEMENTS:
        return
    allocated = {each.buffer for each in ir.of_kind(loop.body, ir.Allocate)}
    written = {each.buffer for each in ir.of_kind(loop.body, ir.Store)}
    bound = ir.bound_in(loop.body) | {reduction.name for reduction in loop.reductions}
    lets = {statement.name: statement.value for statement in loop.body if isinstance(statement, ir.Let)}
    done: set[tuple[ir.Buffer, tuple[ir.Expression, ...]]] = set()
    for buffer, indices, write in _accesses(loop.body):
        found = tuple([_resolved(index, lets) for index in indices])
        parts = [part for index in found for part in ir.inside(index)]
        told_by = {part.buffer for part in parts if isinstance(part, ir.Load)}
        outside = bound.isdisjoint(part.name for part in parts if isinstance(part, ir.Variable))
        there = allocated.isdisjoint({buffer, *told_by}) and written.isdisjoint(told_by)
        simple = told_by and outside and there and all(_simple(index, loop.variable) for index in found)
        if not simple or (buffer, found) in done:
            continue
        done.add((buffer, found))
        large = ir.bytes_of(buffer) > L3_BYTES // 2
        later = tuple([_later(index, loop.variable) for index in found])
        yield from ir.branch(large, (ir.Prefetch(buffer, later, write),), ())


def _accesses(block: ir.Block) -> Iterator[tuple[ir.Buffer, tuple[ir.Expression, ...], bool]]:
    """The places that a block writes, and those that it reads."""
    statements = list(ir.walk(block))
    stores = [statement for statement in statements if isinstance(statement, ir.Store)]
    yield from ((store.buffer, store.indices, True) for store in stores)
    written = {(store.buffer, store.indices) for store in stores}
    parts = [part for statement in statements for whole in ir.expressions_of(statement) for part in ir.inside(whole)]
    for load in parts:
        if isinstance(load, ir.Load) and (load.buffer, load.indices) not in written:
            yield load.buffer, load.indices, False


def _resolved(index: ir.Expression, lets: Mapping[str, ir.Expression]) -> ir.Expression:
    """An index in terms of what is bound outside of the loop, and its variable."""
    if isinstance(index, ir.Variable) and index.name in lets:
        return _resolved(lets[index.name], lets)
    return ir.map_operands(index, lambda each: _resolved(each, lets))


def _simple(index: ir.Expression, variable: str) -> bool:
    """Whether an index is little more than an element of an array that the loop runs along."""
    parts = list(ir.inside(index))
    loads = [part for part in parts if isinstance(part, ir.Load)]
    if len(loads) > 1 or len(parts) > PREFETCH_INDEX_PARTS * (1 + len(loads)):
        return False
    places = [place for load in loads for place in load.indices]
    return all(_steps(place, variable) or ir.Variable(variable) not in ir.inside(place) for place in places)


def _steps(index: ir.Expression, variable: str) -> bool:
    """Whether an index grows by one with the loop's variable."""
    match index:
        case ir.Variable(name):
            return name == variable
        case ir.Apply(primitive, (a, b)) if primitive.name == "add":
            moving = [each for each in (a, b) if ir.Variable(variable) in ir.inside(each)]
            return len(moving) == 1 and _steps(moving[0], variable)
    return False


def _later(index: ir.Expression, variable: str) -> ir.Expression:
    """An index as it will be ``PREFETCH_AHEAD`` iterations further on; where the row ends, an index of some element."""
    if isinstance(index, ir.Variable) and index.name == variable:
        return index + PREFETCH_AHEAD
    later = ir.map_operands(index, lambda each: _later(each, variable))
    return replace(later, guarded=tuple(range(len(later.indices)))) if isinstance(later, ir.Load) else later
