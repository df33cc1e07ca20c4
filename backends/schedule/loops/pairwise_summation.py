"""Pairwise summation (Higham 1993): sums of f32 along lanes are made of partial sums of blocks, and these of others.

What is added one by one loses about a unit of the last place each time, which in f32 is seen soon: ten million times
0.1 came out as 999988.9. NumPy halves such a sum again and again. Here a lane adds sixteen elements, sixteen such
partial sums are added, sixteen of those, and so on, so that a sum of n elements loses as much as one of 16 log16(n):

    lanes lane < n by 64 combining s by add:      =>      for block < ceil(n / 1024):
      s += x[lane]                                          var part = 0
                                                            lanes lane < min(n - 1024 block, 1024) by 64 combining part:
                                                              part += x[1024 block + lane]
                                                            s += part

Where threads come in groups, lanes are threads, which wait for each other at the end of such a loop. So there each
thread adds what is its own in blocks, first::

    lanes thread < 64 by 64 combining s:
      var own = 0
      for block < ceil(n / 4096):
        var part = 0
        for step < min(ceil(n / 64) - 64 block, 64):
          let lane = 64 (64 block + step) + thread
          if lane < n:
            part += x[lane]
        own += part
      s += own

and so it does where it has a sum to itself, but for sums of products, as in products of matrices.

It is the last step before code is emitted, so that what recognises sums sees them as they were. Blocks depend on sizes
alone, so all numbers of threads give the same bits. Sums of f64 stay as they are, and shorter ones than a block; so do
those of which each lane of a vector has one of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ....core.primitive import lookup
from ....core.types import bool_, f32
from ... import ir
from ...target import PAIRWISE_BLOCK, PAIRWISE_LEVELS, PAIRWISE_THREAD_BLOCK, PAIRWISE_THREAD_LEVELS, Target


def summed_pairwise(function: ir.Function, target: Target) -> ir.Function:
    """The function with long sums of f32 along lanes made in blocks."""
    fresh, sizes = ir.unused_names(function), frozenset(function.sizes)
    if target.group:
        return replace(function, body=_by_threads(function.body, fresh))
    return replace(function, body=tuple([made for s in function.body for made in _unswitched(s, sizes, fresh)]))


def _unswitched(statement: ir.Statement, sizes: frozenset[str], fresh: Callable[[str], str]) -> ir.Block:
    """A nest with sums in blocks, unless its sizes say that all are short: that is asked outside of its loops."""
    inside = list(ir.walk((statement,)))
    if not isinstance(statement, ir.For) or any(isinstance(each, ir.Allocate) for each in inside):
        return _statement(statement, frozenset(), fresh)
    sums = [each for each in inside if isinstance(each, ir.For) and each.kind == "lanes" and _sums(each)]
    known = [each for each in sums if ir.names_in([each.extent]) <= sizes]
    few: ir.Expression = ir.Constant(True, bool_)
    for each in known:
        few = few & _is_short(each)
    blocks = _statement(statement, sizes, fresh)
    return blocks if not known else ir.branch(few, (statement,), blocks)


def _is_short(loop: ir.For, few: int = PAIRWISE_BLOCK) -> ir.Expression:
    return loop.extent <= few * loop.factor


def _block(block: ir.Block, asked: frozenset[str], fresh: Callable[[str], str]) -> ir.Block:
    return tuple([made for statement in block for made in _statement(statement, asked, fresh)])


def _statement(statement: ir.Statement, asked: frozenset[str], fresh: Callable[[str], str]) -> ir.Block:
    """A statement with sums in blocks; where an extent mentions no others than these sizes, it is known to be long."""
    match statement:
        case ir.For(kind="lanes") if _sums(statement):
            blocks = _in_blocks(statement, fresh)
            return (
                blocks
                if ir.names_in([statement.extent]) <= asked
                else ir.branch(_is_short(statement), (statement,), blocks)
            )
        case ir.For(kind="sequential") if total := _summed(statement):
            # the partial sums of chunks, for instance
            return _in_blocks(replace(statement, reductions=(_sum(total),)), fresh)
        case ir.For(kind="lanes" | "jam"):
            return (statement,)
    return (ir.map_inside(statement, lambda inner: _block(inner, asked, fresh)),)


def _by_threads(block: ir.Block, fresh: Callable[[str], str]) -> ir.Block:
    """A block where threads come in groups, with the sums of each thread in blocks."""
    made: list[ir.Statement] = []
    for statement in block:
        match statement:
            case ir.For(kind="lanes") if _sums(statement):
                short = _is_short(statement, PAIRWISE_THREAD_BLOCK)
                made += ir.branch(short, (statement,), (_own_sums(statement, fresh),))
            case ir.For(kind="sequential") if total := _added(statement):
                blocks = _of_a_thread(replace(statement, reductions=(_sum(total),)), fresh)
                made += ir.branch(_is_short(statement, PAIRWISE_THREAD_BLOCK), (statement,), blocks)
            case _:
                made.append(ir.map_inside(statement, lambda inner: _by_threads(inner, fresh)))
    return tuple(made)


def _own_sums(loop: ir.For, fresh: Callable[[str], str]) -> ir.For:
    """A loop over the threads of a group, each of which adds to variables of its own in blocks."""
    thread, step, index = (ir.Variable(name) for name in (fresh("thread"), fresh("step"), loop.variable))
    own = {each.name: fresh("own") for each in loop.reductions}
    width = ir.Constant(loop.factor)
    rounds = ir.ceil_divide(loop.extent, width)
    turn = (
        ir.Let(index.name, step * width + thread),
        ir.If(index < loop.extent, ir.renamed(loop.body, own), ()),
    )
    sums = tuple([_sum(name) for name in own.values()])
    body = (
        *[ir.Declare(name, ir.Constant(0.0, f32)) for name in own.values()],
        *_of_a_thread(ir.For(step.name, rounds, "sequential", turn, reductions=sums), fresh),
        *[_sum(name).combined(ir.Variable(mine, f32)) for name, mine in own.items()],
    )
    return replace(loop, variable=thread.name, extent=width, body=body)


def _of_a_thread(loop: ir.For, fresh: Callable[[str], str]) -> ir.Block:
    return _in_blocks(loop, fresh, PAIRWISE_THREAD_BLOCK, PAIRWISE_THREAD_LEVELS)


def _added(loop: ir.For) -> str | None:
    """The variable to which a loop adds an f32 each time, and does nothing else, unless these are products."""
    *before, last = loop.body or (None,)
    match last:
        case ir.Assign(name, ir.Apply(primitive, (ir.Variable(same), value), scalar)):
            product = isinstance(value, ir.Apply) and value.primitive.name == "multiply"
            plain = all(isinstance(each, ir.Let) for each in before) and name not in ir.names_in(
                [value, *[each.value for each in before if isinstance(each, ir.Let)]]
            )
            if primitive.name == "add" and scalar is f32 and name == same and plain and not product:
                return name
    return None


def _sum(name: str) -> ir.Reduction:
    return ir.Reduction(name, lookup("add"), ir.Constant(0.0, f32))


def _sums(loop: ir.For) -> bool:
    """Whether all that a loop combines are sums of f32."""
    return bool(loop.reductions) and all(
        [each.primitive.name == "add" and each.neutral.type is f32 for each in loop.reductions]
    )


def _summed(loop: ir.For) -> str | None:
    """The variable to which a loop adds one stored f32 after the other, and does nothing else."""
    match loop.body:
        case (ir.Assign(name, ir.Apply(primitive, (ir.Variable(same), ir.Load()), scalar)),):
            return name if primitive.name == "add" and scalar is f32 and name == same else None
    return None


def _in_blocks(
    loop: ir.For, fresh: Callable[[str], str], few: int = PAIRWISE_BLOCK, levels: int = PAIRWISE_LEVELS
) -> ir.Block:
    """The loop over blocks of blocks. Its own variables hold the sum of a block meanwhile, and the total at last."""
    names = [each.name for each in loop.reductions]
    totals = [fresh("total") for _ in names]
    length: ir.Expression = loop.extent
    before: list[ir.Statement] = [ir.Declare(t, ir.Variable(n, f32)) for t, n in zip(totals, names, strict=True)]
    if not isinstance(length, ir.Constant | ir.Variable):
        extent = fresh("extent")
        before.append(ir.Let(extent, length))
        length = ir.Variable(extent)
    after = [ir.Assign(n, ir.Variable(t, f32)) for t, n in zip(totals, names, strict=True)]
    blocks = _level(replace(loop, extent=length), few, levels - 1, None, totals, fresh)
    return (*before, blocks, *after)


def _level(
    loop: ir.For, few: int, level: int, around: ir.Expression | None, totals: list[str], fresh: Callable[[str], str]
) -> ir.For:
    """The loop over the blocks of a level, in a block of the level around, whose sums are added to totals."""
    size = few * loop.factor * few**level
    turn = block = ir.Variable(fresh("block"))
    count = ir.ceil_divide(loop.extent, size)
    steps: list[ir.Statement] = []
    if around is not None:
        block = ir.Variable(fresh("block"))
        before = around * few
        steps.append(ir.Let(block.name, before + turn))
        count = ir.minimum(count - before, few)
    if level:
        parts = [fresh("part") for _ in totals]
        steps += [ir.Declare(part, ir.Constant(0.0, f32)) for part in parts]
        steps.append(_level(loop, few, level - 1, block, parts, fresh))
    else:
        start, lane = ir.Variable(fresh("start")), ir.Variable(fresh("lane"))
        parts = [each.name for each in loop.reductions]
        steps += [ir.Assign(each.name, each.neutral) for each in loop.reductions]
        steps.append(ir.Let(start.name, block * size))
        extent = ir.minimum(loop.extent - start, size)
        body = (ir.Let(loop.variable, start + lane), *loop.body)
        reductions = loop.reductions if loop.kind == "lanes" else ()
        steps.append(replace(loop, variable=lane.name, extent=extent, body=body, reductions=reductions))
    steps += [_sum(total).combined(ir.Variable(part, f32)) for total, part in zip(totals, parts, strict=True)]
    return ir.For(turn.name, count, "sequential", tuple(steps))
