"""Rewriting the loop IR: a function applied to every expression or store, buffers renamed, statements left out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from .expressions import All, Apply, Buffer, Constant, Expression, Load, MultiplyAdd, Select, Variable
from .loops import (
    Allocate,
    Assign,
    Axis,
    Barrier,
    Block,
    Declare,
    For,
    If,
    Kernel,
    Let,
    Nest,
    Prefetch,
    Require,
    Return,
    Statement,
    Store,
    Update,
    While,
    walk,
)
from .queries import bound_in, expressions_of, mentioned, names_in, names_of, read_in

# A buffer, and the indices of an element
Place = tuple[Buffer, tuple[Expression, ...]]


def read_packed(block: Block, replacements: Mapping[Place, Load]) -> Block:
    """The block with reads of packed arrays in place of the originals, by buffer and indices."""
    if not replacements:
        return block

    def expression(e: Expression) -> Expression:
        e = replacements.get((e.buffer, e.indices), e) if isinstance(e, Load) else e
        return map_operands(e, expression)

    return map_block(block, expression, lambda store: store)


def substituted(e: Expression, values: Mapping[str, Expression]) -> Expression:
    """An expression with values in place of some of its variables."""
    if isinstance(e, Variable):
        return values.get(e.name, e)
    return map_operands(e, lambda each: substituted(each, values))


def substituted_in(block: Block, values: Mapping[str, Expression]) -> Block:
    """A block with values in place of some of its variables."""
    return map_block(block, lambda e: substituted(e, values), lambda store: store)


def with_own_names(block: Block, taken: Collection[str], fresh: Callable[[str], str]) -> Block:
    """A block that binds none of the names that are taken: before it moves to where they mean something else."""
    names = {name: fresh(name.rstrip("0123456789")) for name in sorted(bound_in(block) & set(taken))}
    return renamed(block, names) if names else block


def renamed(block: Block, names: Mapping[str, str]) -> Block:
    """A block with other names for some of the variables that it mentions, binds or assigns."""

    def name(old: str) -> str:
        return names.get(old, old)

    def variable(e: Expression) -> Expression:
        return Variable(name(e.name), e.type) if isinstance(e, Variable) else map_operands(e, variable)

    def buffer(b: Buffer) -> Buffer:
        return replace(b, extents=tuple([variable(extent) for extent in b.extents]))

    return with_buffers(map_block(block, variable, lambda store: store, name=name), buffer)


def map_inside(statement: Statement, rewrite: Callable[[Block], Block]) -> Statement:
    """The statement with the blocks inside of it rewritten."""
    match statement:
        case For() | Nest() | Kernel():
            return replace(statement, body=rewrite(statement.body))
        case If(test, then, orelse):
            return If(test, rewrite(then), rewrite(orelse))
        case While(head, test, body):
            return While(rewrite(head), test, rewrite(body))
    return statement


def without(block: Block, unwanted: Callable[[Statement], bool]) -> Block:
    """A block without some of its statements, and without the loops that have nothing to do."""
    made: list[Statement] = []
    rewrite = partial(without, unwanted=unwanted)
    for statement in block:
        if unwanted(statement):
            continue
        inner = map_inside(statement, rewrite)
        if not isinstance(inner, For) or inner.reductions or not all(isinstance(each, Let) for each in inner.body):
            made.append(inner)
    return tuple(made)


def without_idle_loops(block: Block) -> Block:
    """The block without the loops that are known to make no turn.

    What they would read and write has no place: where a size is zero, an index does not move an address.
    """
    return without(block, lambda s: isinstance(s, For) and isinstance(s.extent, Constant) and s.extent.value <= 0)


def without_unread(body: Block) -> Block:
    """The body of a function without temporaries that nothing reads."""
    while unread := _unread(body):
        body = without(body, partial(_is_of, unread))
    return body


def _unread(body: Block) -> set[str]:
    used = read_in(body) | {s.buffer.name for s in walk(body) if isinstance(s, Return | Update)}
    return {s.buffer.name for s in walk(body) if isinstance(s, Allocate)} - used


def _is_of(buffers: set[str], statement: Statement) -> bool:
    return isinstance(statement, Store | Allocate) and statement.buffer.name in buffers


def without_unused(block: Sequence[Statement]) -> Block:
    """A block without bindings that nothing behind them mentions."""
    made, used = list[Statement](), set[str]()
    for statement in reversed(block):
        if not isinstance(statement, Let) or statement.name in used:
            used |= mentioned((statement,))[0]
            made.append(statement)
    return tuple(made[::-1])


def without_dead(body: Sequence[Let | Store]) -> list[Let | Store]:
    """Straight-line code without what no store needs."""
    needed: set[str] = set()
    made: list[Let | Store] = []
    for statement in reversed(body):
        if isinstance(statement, Let) and statement.name not in needed:
            continue
        needed |= names_in(expressions_of(statement))
        made.append(statement)
    return made[::-1]


def with_own_buffers(block: Block, fresh: Callable[[str], str]) -> Block:
    """A copy of a block that stands beside it: what it allocates has names of its own."""
    renamed = {s.buffer.name: fresh(s.buffer.name) for s in walk(block) if isinstance(s, Allocate)}
    if not renamed:
        return block

    def own(buffer: Buffer) -> Buffer:
        extents = tuple([with_buffers_in(extent, own) for extent in buffer.extents])
        return Buffer(renamed.get(buffer.name, buffer.name), buffer.scalar, extents)

    return with_buffers(block, own)


def with_buffers(block: Block, other: Callable[[Buffer], Buffer]) -> Block:
    """A block that reads, writes and allocates other buffers in place of its own."""
    return map_block(block, lambda e: with_buffers_in(e, other), lambda store: store, other)


def with_buffers_in(e: Expression, other: Callable[[Buffer], Buffer]) -> Expression:
    """An expression that reads other buffers in place of its own."""
    if isinstance(e, Constant | Variable) or not names_of(e)[1]:
        return e
    e = map_operands(e, lambda operand: with_buffers_in(operand, other))
    return Load(other(e.buffer), e.indices, e.guarded) if isinstance(e, Load) else e


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
        case All(test):
            return All(function(test))
    return e


def map_block(
    block: Block,
    expression: Callable[[Expression], Expression],
    store: Callable[[Store], Statement],
    buffer: Callable[[Buffer], Buffer] = lambda buffer: buffer,
    name: Callable[[str], str] = lambda name: name,
) -> Block:
    """A block with its expressions and stores rewritten, the buffers it writes or allocates, and what it binds."""
    made: list[Statement] = []
    for statement in block:
        match statement:
            case Let(bound, value):
                made.append(Let(name(bound), expression(value)))
            case Declare(bound, value):
                made.append(Declare(name(bound), expression(value)))
            case Assign(bound, value):
                made.append(Assign(name(bound), expression(value)))
            case Store(written, indices, value, guarded):
                place = tuple([expression(i) for i in indices])
                made.append(store(Store(buffer(written), place, expression(value), guarded)))
            case Update(written, indices, primitive, value, guarded):
                place = tuple([expression(i) for i in indices])
                made.append(Update(buffer(written), place, primitive, expression(value), guarded))
            case For():
                grain = None if statement.grain is None else expression(statement.grain)
                inner = map_block(statement.body, expression, store, buffer, name)
                reductions = tuple([replace(each, name=name(each.name)) for each in statement.reductions])
                loop = replace(statement, variable=name(statement.variable), extent=expression(statement.extent))
                made.append(replace(loop, body=inner, grain=grain, reductions=reductions))
            case Nest():
                axes = [Axis(Variable(name(axis.variable.name)), expression(axis.extent)) for axis in statement.axes]
                alone = None if statement.alone is None else expression(statement.alone)
                fills = tuple([buffer(each) for each in statement.fills])
                read = {(name(i), name(j)): least for (i, j), least in statement.read.items()}
                inner = map_block(statement.body, expression, store, buffer, name)
                combines = tuple([replace(each, name=name(each.name)) for each in statement.combines])
                nest = replace(statement, axes=tuple(axes), body=inner, fills=fills, read=read, alone=alone)
                nest = replace(nest, combines=combines)
                made.append(nest)
            case If(test, then, orelse):
                branches = [map_block(branch, expression, store, buffer, name) for branch in (then, orelse)]
                made.append(If(expression(test), *branches))
            case While(head, test, inner):
                blocks = [map_block(each, expression, store, buffer, name) for each in (head, inner)]
                made.append(While(blocks[0], expression(test), blocks[1]))
            case Kernel(called, inner):
                made.append(Kernel(called, map_block(inner, expression, store, buffer, name)))
            case Require(test, site, values):
                made.append(Require(expression(test), site, tuple([expression(v) for v in values])))
            case Allocate(own, shared):
                made.append(Allocate(buffer(own), shared))
            case Prefetch(read, indices, write):
                made.append(Prefetch(buffer(read), tuple([expression(i) for i in indices]), write))
            case Return() | Barrier():
                made.append(statement)
    return tuple(made)
