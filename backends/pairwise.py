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

from ..core.primitive import lookup
from ..core.types import bool_, f32, i64
from .loops import (
    Allocate,
    Apply,
    Assign,
    Block,
    Constant,
    Declare,
    Expression,
    For,
    Function,
    If,
    Let,
    Load,
    Reduction,
    Statement,
    Variable,
    While,
    walk,
)
from .loops_walk import names_in, unused_names
from .lowering.arithmetic import both, chosen, folded
from .lowering.rewriting import renamed
from .target import Target

# So many elements or partial sums are added one by one, on so many levels; on the last one, as many as there are.
FEW = 16
LEVELS = 4
FEW_OF_A_THREAD = 64
LEVELS_OF_A_THREAD = 2


def summed_pairwise(function: Function, target: Target) -> Function:
    """The function with long sums of f32 along lanes made in blocks."""
    fresh, sizes = unused_names(function), frozenset(function.sizes)
    if target.group:
        return replace(function, body=_by_threads(function.body, fresh))
    return replace(function, body=tuple([made for s in function.body for made in _unswitched(s, sizes, fresh)]))


def _unswitched(statement: Statement, sizes: frozenset[str], fresh: Callable[[str], str]) -> Block:
    """A nest with sums in blocks, unless its sizes say that all are short: that is asked outside of its loops."""
    inside = list(walk((statement,)))
    if not isinstance(statement, For) or any(isinstance(each, Allocate) for each in inside):
        return _statement(statement, frozenset(), fresh)
    sums = [each for each in inside if isinstance(each, For) and each.kind == "lanes" and _sums(each)]
    known = [each for each in sums if names_in([each.extent]) <= sizes]
    few: Expression = Constant(True, bool_)
    for each in known:
        few = both(few, _is_short(each))
    blocks = _statement(statement, sizes, fresh)
    return blocks if not known else chosen(few, (statement,), blocks)


def _is_short(loop: For, few: int = FEW) -> Expression:
    return folded("less_equal", loop.extent, Constant(few * loop.factor, i64))


def _block(block: Block, asked: frozenset[str], fresh: Callable[[str], str]) -> Block:
    return tuple([made for statement in block for made in _statement(statement, asked, fresh)])


def _statement(statement: Statement, asked: frozenset[str], fresh: Callable[[str], str]) -> Block:
    """A statement with sums in blocks; where an extent mentions no others than these sizes, it is known to be long."""
    match statement:
        case For(kind="lanes") if _sums(statement):
            blocks = _in_blocks(statement, fresh)
            return (
                blocks if names_in([statement.extent]) <= asked else chosen(_is_short(statement), (statement,), blocks)
            )
        case For(kind="sequential") if total := _summed(statement):
            # the partial sums of chunks, for instance
            return _in_blocks(replace(statement, reductions=(_sum(total),)), fresh)
        case For(kind="parallel" | "sequential"):
            return (replace(statement, body=_block(statement.body, asked, fresh)),)
        case If(test, then, orelse):
            return (If(test, _block(then, asked, fresh), _block(orelse, asked, fresh)),)
        case While(head, test, body):
            return (While(head, test, _block(body, asked, fresh)),)
    return (statement,)


def _by_threads(block: Block, fresh: Callable[[str], str]) -> Block:
    """A block where threads come in groups, with the sums of each thread in blocks."""
    made: list[Statement] = []
    for statement in block:
        match statement:
            case For(kind="lanes") if _sums(statement):
                made += chosen(_is_short(statement, FEW_OF_A_THREAD), (statement,), (_own_sums(statement, fresh),))
                continue
            case For(kind="sequential") if total := _added(statement):
                blocks = _of_a_thread(replace(statement, reductions=(_sum(total),)), fresh)
                made += chosen(_is_short(statement, FEW_OF_A_THREAD), (statement,), blocks)
                continue
            case For():
                statement = replace(statement, body=_by_threads(statement.body, fresh))
            case If(test, then, orelse):
                statement = If(test, _by_threads(then, fresh), _by_threads(orelse, fresh))
            case While(head, test, body):
                statement = While(head, test, _by_threads(body, fresh))
        made.append(statement)
    return tuple(made)


def _own_sums(loop: For, fresh: Callable[[str], str]) -> For:
    """A loop over the threads of a group, each of which adds to variables of its own in blocks."""
    thread, step, index = (Variable(name, i64) for name in (fresh("thread"), fresh("step"), loop.variable))
    own = {each.name: fresh("own") for each in loop.reductions}
    width = Constant(loop.factor, i64)
    rounds = folded("floor_divide", folded("add", loop.extent, Constant(loop.factor - 1, i64)), width)
    turn = (
        Let(index.name, folded("add", folded("multiply", step, width), thread)),
        If(folded("less", index, loop.extent), renamed(loop.body, own), ()),
    )
    sums = tuple([_sum(name) for name in own.values()])
    body = (
        *[Declare(name, Constant(0.0, f32)) for name in own.values()],
        *_of_a_thread(For(step.name, rounds, "sequential", turn, reductions=sums), fresh),
        *[Assign(name, _added_to(name, Variable(mine, f32))) for name, mine in own.items()],
    )
    return replace(loop, variable=thread.name, extent=width, body=body)


def _of_a_thread(loop: For, fresh: Callable[[str], str]) -> Block:
    return _in_blocks(loop, fresh, FEW_OF_A_THREAD, LEVELS_OF_A_THREAD)


def _added(loop: For) -> str | None:
    """The variable to which a loop adds an f32 each time, and does nothing else, unless these are products."""
    *before, last = loop.body or (None,)
    match last:
        case Assign(name, Apply(primitive, (Variable(same), value), scalar)):
            product = isinstance(value, Apply) and value.primitive.name == "multiply"
            plain = all(isinstance(each, Let) for each in before) and name not in names_in(
                [value, *[each.value for each in before if isinstance(each, Let)]]
            )
            if primitive.name == "add" and scalar is f32 and name == same and plain and not product:
                return name
    return None


def _sum(name: str) -> Reduction:
    return Reduction(name, lookup("add"), Constant(0.0, f32))


def _added_to(name: str, value: Expression) -> Expression:
    return Apply(lookup("add"), (Variable(name, f32), value), f32)


def _sums(loop: For) -> bool:
    """Whether all that a loop combines are sums of f32."""
    return bool(loop.reductions) and all(
        [each.primitive.name == "add" and each.neutral.type is f32 for each in loop.reductions]
    )


def _summed(loop: For) -> str | None:
    """The variable to which a loop adds one stored f32 after the other, and does nothing else."""
    match loop.body:
        case (Assign(name, Apply(primitive, (Variable(same), Load()), scalar)),):
            return name if primitive.name == "add" and scalar is f32 and name == same else None
    return None


def _in_blocks(loop: For, fresh: Callable[[str], str], few: int = FEW, levels: int = LEVELS) -> Block:
    """The loop over blocks of blocks. Its own variables hold the sum of a block meanwhile, and the total at last."""
    names = [each.name for each in loop.reductions]
    totals = [fresh("total") for _ in names]
    length: Expression = loop.extent
    before: list[Statement] = [Declare(t, Variable(n, f32)) for t, n in zip(totals, names, strict=True)]
    if not isinstance(length, Constant | Variable):
        extent = fresh("extent")
        before.append(Let(extent, length))
        length = Variable(extent, i64)
    after = [Assign(n, Variable(t, f32)) for t, n in zip(totals, names, strict=True)]
    blocks = _level(replace(loop, extent=length), few, levels - 1, None, totals, fresh)
    return (*before, blocks, *after)


def _level(
    loop: For, few: int, level: int, around: Expression | None, totals: list[str], fresh: Callable[[str], str]
) -> For:
    """The loop over the blocks of a level, in a block of the level around, whose sums are added to totals."""
    size = few * loop.factor * few**level
    turn = block = Variable(fresh("block"), i64)
    count = folded("floor_divide", folded("add", loop.extent, Constant(size - 1, i64)), Constant(size, i64))
    steps: list[Statement] = []
    if around is not None:
        block = Variable(fresh("block"), i64)
        before = folded("multiply", around, Constant(few, i64))
        steps.append(Let(block.name, folded("add", before, turn)))
        count = folded("minimum", folded("subtract", count, before), Constant(few, i64))
    if level:
        parts = [fresh("part") for _ in totals]
        steps += [Declare(part, Constant(0.0, f32)) for part in parts]
        steps.append(_level(loop, few, level - 1, block, parts, fresh))
    else:
        start, lane = Variable(fresh("start"), i64), Variable(fresh("lane"), i64)
        parts = [each.name for each in loop.reductions]
        steps += [Assign(each.name, each.neutral) for each in loop.reductions]
        steps.append(Let(start.name, folded("multiply", block, Constant(size, i64))))
        extent = folded("minimum", folded("subtract", loop.extent, start), Constant(size, i64))
        body = (Let(loop.variable, folded("add", start, lane)), *loop.body)
        reductions = loop.reductions if loop.kind == "lanes" else ()
        steps.append(replace(loop, variable=lane.name, extent=extent, body=body, reductions=reductions))
    steps += [Assign(total, _added_to(total, Variable(part, f32))) for total, part in zip(totals, parts, strict=True)]
    return For(turn.name, count, "sequential", tuple(steps))
