"""Rewriting the loop IR: a function applied to every expression or store, buffers renamed, idle loops left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...core.types import i64
from ..loops import (
    Allocate,
    Apply,
    Assign,
    Barrier,
    Block,
    Buffer,
    Constant,
    Declare,
    Expression,
    For,
    If,
    Kernel,
    Let,
    Load,
    MultiplyAdd,
    Require,
    Return,
    Select,
    Statement,
    Store,
    Update,
    Variable,
    While,
    walk,
)


def read_packed(block: Block, replacements: dict[Buffer, tuple[Buffer, tuple[str, ...]]]) -> Block:
    """The block with reads of packed arrays in place of the originals."""
    if not replacements:
        return block

    def expression(e: Expression) -> Expression:
        if isinstance(e, Load) and e.buffer in replacements:
            packed, order = replacements[e.buffer]
            return Load(packed, tuple([Variable(name, i64) for name in order]))
        return map_operands(e, expression)

    return map_block(block, expression, lambda store: store)


def without_idle_loops(block: Block) -> Block:
    """The block without the loops that are known to make no turn.

    What they would read and write has no place: where a size is zero, an index does not move an address.
    """
    made: list[Statement] = []
    for statement in block:
        match statement:
            case For(_, Constant(value)) if value <= 0:
                pass
            case For():
                made.append(replace(statement, body=without_idle_loops(statement.body)))
            case If(test, then, orelse):
                made.append(If(test, without_idle_loops(then), without_idle_loops(orelse)))
            case While(head, test, inner):
                made.append(While(without_idle_loops(head), test, without_idle_loops(inner)))
            case _:
                made.append(statement)
    return tuple(made)


def with_own_buffers(block: Block, fresh: Callable[[str], str]) -> Block:
    """A copy of a block that stands beside it: what it allocates has names of its own."""
    renamed = {s.buffer.name: fresh(s.buffer.name) for s in walk(block) if isinstance(s, Allocate)}
    if not renamed:
        return block

    def own(buffer: Buffer) -> Buffer:
        extents = tuple([expression(extent) for extent in buffer.extents])
        return Buffer(renamed.get(buffer.name, buffer.name), buffer.scalar, extents)

    def expression(e: Expression) -> Expression:
        e = map_operands(e, expression)
        return Load(own(e.buffer), e.indices, e.guarded) if isinstance(e, Load) else e

    return map_block(block, expression, lambda store: store, own)


def map_operands(e: Expression, function: Callable[[Expression], Expression]) -> Expression:
    """An expression with the function applied to what it is made from."""
    match e:
        case Apply(primitive, arguments, type):
            return Apply(primitive, tuple([function(a) for a in arguments]), type)
        case Select(test, then, orelse, type):
            return Select(function(test), function(then), function(orelse), type)
        case MultiplyAdd(a, b, c, type):
            return MultiplyAdd(function(a), function(b), function(c), type)
        case Load(buffer, indices, guarded):
            return Load(buffer, tuple([function(i) for i in indices]), guarded)
    return e


def map_block(
    block: Block,
    expression: Callable[[Expression], Expression],
    store: Callable[[Store], Statement],
    buffer: Callable[[Buffer], Buffer] = lambda buffer: buffer,
) -> Block:
    """A block with its expressions and stores rewritten, and the buffers that it writes or allocates."""
    made: list[Statement] = []
    for statement in block:
        match statement:
            case Let(name, value):
                made.append(Let(name, expression(value)))
            case Declare(name, value):
                made.append(Declare(name, expression(value)))
            case Assign(name, value):
                made.append(Assign(name, expression(value)))
            case Store(written, indices, value, guarded):
                place = tuple([expression(i) for i in indices])
                made.append(store(Store(buffer(written), place, expression(value), guarded)))
            case Update(written, indices, primitive, value, guarded):
                place = tuple([expression(i) for i in indices])
                made.append(Update(buffer(written), place, primitive, expression(value), guarded))
            case For():
                grain = None if statement.grain is None else expression(statement.grain)
                inner = map_block(statement.body, expression, store, buffer)
                made.append(replace(statement, extent=expression(statement.extent), body=inner, grain=grain))
            case If(test, then, orelse):
                branches = [map_block(branch, expression, store, buffer) for branch in (then, orelse)]
                made.append(If(expression(test), *branches))
            case While(head, test, inner):
                blocks = [map_block(each, expression, store, buffer) for each in (head, inner)]
                made.append(While(blocks[0], expression(test), blocks[1]))
            case Kernel(name, inner):
                made.append(Kernel(name, map_block(inner, expression, store, buffer)))
            case Require(test, site, values):
                made.append(Require(expression(test), site, tuple([expression(v) for v in values])))
            case Allocate(own, shared):
                made.append(Allocate(buffer(own), shared))
            case Return() | Barrier():
                made.append(statement)
    return tuple(made)
