"""Pairwise summation (Higham 1993): sums of f32 along lanes are made of partial sums of blocks, and these of others.

What is added one by one loses about a unit of the last place each time, which in f32 is seen soon: ten million times
0.1 came out as 999988.9. NumPy halves such a sum again and again. Here a lane adds sixteen elements, sixteen such
partial sums are added, sixteen of those, and so on, so that a sum of n elements loses as much as one of 16 log16(n):

    lanes lane < n by 64 combining s by add:      =>      for block < ceil(n / 1024):
      s += x[lane]                                          var part = 0
                                                            lanes lane < min(n - 1024 block, 1024) by 64 combining part:
                                                              part += x[1024 block + lane]
                                                            s += part

It is the last step before code is emitted, so that what recognises sums sees them as they were. Blocks depend on sizes
alone, so all numbers of threads give the same bits. Sums of f64 stay as they are, and shorter ones than a block; so do
those of which each lane has one of its own, as in products of matrices.
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

# So many elements or partial sums are added one by one, on so many levels; on the last one, as many as there are.
FEW = 16
LEVELS = 4


def summed_pairwise(function: Function) -> Function:
    """The function with long sums of f32 along lanes made in blocks."""
    fresh, sizes = unused_names(function), frozenset(function.sizes)
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


def _is_short(loop: For) -> Expression:
    return folded("less_equal", loop.extent, Constant(FEW * loop.factor, i64))


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
            sums = replace(statement, reductions=(Reduction(total, lookup("add"), Constant(0.0, f32)),))
            return _in_blocks(sums, fresh)
        case For(kind="parallel" | "sequential"):
            return (replace(statement, body=_block(statement.body, asked, fresh)),)
        case If(test, then, orelse):
            return (If(test, _block(then, asked, fresh), _block(orelse, asked, fresh)),)
        case While(head, test, body):
            return (While(head, test, _block(body, asked, fresh)),)
    return (statement,)


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


def _in_blocks(loop: For, fresh: Callable[[str], str]) -> Block:
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
    return (*before, _level(loop, LEVELS - 1, Constant(0, i64), length, totals, fresh), *after)


def _level(
    loop: For, level: int, start: Expression, length: Expression, totals: list[str], fresh: Callable[[str], str]
) -> For:
    """The loop over the blocks of a level, whose sums are added to totals."""
    size = Constant(FEW * loop.factor * FEW**level, i64)
    block, offset, first, rest = (fresh(stem) for stem in ("block", "offset", "start", "length"))
    steps: list[Statement] = [
        Let(offset, folded("multiply", Variable(block, i64), size)),
        Let(first, folded("add", start, Variable(offset, i64))),
        Let(rest, folded("minimum", folded("subtract", length, Variable(offset, i64)), size)),
    ]
    if level:
        parts = [fresh("part") for _ in totals]
        steps += [Declare(part, Constant(0.0, f32)) for part in parts]
        steps.append(_level(loop, level - 1, Variable(first, i64), Variable(rest, i64), parts, fresh))
    else:
        lane = fresh("lane")
        parts = [each.name for each in loop.reductions]
        steps += [Assign(each.name, each.neutral) for each in loop.reductions]
        index = Let(loop.variable, folded("add", Variable(first, i64), Variable(lane, i64)))
        reductions = loop.reductions if loop.kind == "lanes" else ()
        body = (index, *loop.body)
        steps.append(replace(loop, variable=lane, extent=Variable(rest, i64), body=body, reductions=reductions))
    steps += [
        Assign(total, Apply(lookup("add"), (Variable(total, f32), Variable(part, f32)), f32))
        for total, part in zip(totals, parts, strict=True)
    ]
    count = folded("floor_divide", folded("add", length, Constant(size.value - 1, i64)), size)
    return For(block, count, "sequential", tuple(steps))
