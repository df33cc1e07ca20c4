"""Rewriting the loop IR: a function applied to every expression or store, buffers renamed, statements left out."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from .expressions import All, Apply, Buffer, Constant, Expression, First, Load, MultiplyAdd, Select, Variable
from .loops import (
    Allocate,
    Assign,
    Axis,
    Block,
    Call,
    Declare,
    For,
    Fork,
    If,
    Invoke,
    Kernel,
    Let,
    Nest,
    Prefetch,
    Reduction,
    Require,
    Return,
    Statement,
    Store,
    Update,
    While,
    of_kind,
    walk,
)
from .queries import bound_in, mentioned, names_of, read_in

P = TypeVar("P")
W = TypeVar("W", Store, Update)
N = TypeVar("N", bound=Expression | Statement | Reduction | Axis)

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
    if values.keys().isdisjoint(names_of(e)[0]):
        return e
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

    def inside(block: Block) -> Block:
        return kept(block, rewrite(block))

    match statement:
        case For(body=body) | Nest(body=body) | Kernel(body=body):
            return changed(statement, body=inside(body))
        case If(_, then, orelse):
            return changed(statement, then=inside(then), orelse=inside(orelse))
        case While(head, _, body):
            return changed(statement, head=inside(head), body=inside(body))
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
    used |= {buffer.name for s in of_kind(body, Call) for buffer in s.writes}
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


def without_dead(body: Sequence[Statement]) -> list[Statement]:
    """Straight-line code without what no store and no loop needs."""
    needed: set[str] = set()
    made: list[Statement] = []
    for statement in reversed(body):
        if isinstance(statement, Let) and statement.name not in needed:
            continue
        needed |= mentioned((statement,))[0]
        made.append(statement)
    return made[::-1]


def with_own_buffers(block: Block, fresh: Callable[[str], str]) -> Block:
    """A copy of a block that stands beside it: what it allocates has names of its own."""
    renamed = {s.buffer.name: fresh(s.buffer.name) for s in walk(block) if isinstance(s, Allocate)}
    renamed |= {buffer.name: fresh(buffer.name) for s in of_kind(block, Invoke) for buffer in s.enters}
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
    if isinstance(e, Apply):  # this is asked most often of all
        found = mapped(e.arguments, function)
        return e if found is e.arguments else Apply(e.primitive, found, e.type, e.chained)
    match e:
        case Load(buffer, indices, guarded):
            found = mapped(indices, function)
            return e if found is indices else Load(buffer, found, guarded)
        case Select(test, then, orelse):
            return changed(e, test=function(test), then=function(then), orelse=function(orelse))
        case MultiplyAdd(a, b, c):
            return changed(e, a=function(a), b=function(b), c=function(c))
        case All(test):
            return changed(e, test=function(test))
        case First(number):
            return changed(e, of=function(number))
    return e


def map_block(
    block: Block,
    expression: Callable[[Expression], Expression],
    store: Callable[[Store], Statement],
    buffer: Callable[[Buffer], Buffer] = lambda buffer: buffer,
    name: Callable[[str], str] = lambda name: name,
) -> Block:
    """A block with its expressions and stores rewritten, the buffers it writes or allocates, and what it binds."""
    return mapped(block, _Mapping(expression, store, buffer, name).statement)


@dataclass(frozen=True)
class _Mapping:
    """What is done with the parts of statements. Functions that call each other would be garbage in a circle."""

    expression: Callable[[Expression], Expression]
    store: Callable[[Store], Statement]
    buffer: Callable[[Buffer], Buffer]
    name: Callable[[str], str]

    def optional(self, e: Expression | None) -> Expression | None:
        return None if e is None else self.expression(e)

    def reduction(self, each: Reduction) -> Reduction:
        return changed(each, name=self.name(each.name))

    def axis(self, each: Axis) -> Axis:
        variable = changed(each.variable, name=self.name(each.variable.name))
        return changed(each, variable=variable, extent=self.expression(each.extent))

    def written(self, s: W) -> W:
        indices = mapped(s.indices, self.expression)
        return changed(s, buffer=self.buffer(s.buffer), indices=indices, value=self.expression(s.value))

    def block(self, block: Block) -> Block:
        return mapped(block, self.statement)

    def statement(self, s: Statement) -> Statement:
        expression, buffer, name = self.expression, self.buffer, self.name
        match s:
            case Let() | Assign():
                return changed(s, name=name(s.name), value=expression(s.value))
            case Declare():
                return changed(s, name=name(s.name), initial=expression(s.initial))
            case Store():
                return self.store(self.written(s))
            case Update():
                return self.written(s)
            case For(variable, extent, _, body):
                reductions = mapped(s.reductions, self.reduction)
                loop = changed(s, variable=name(variable), extent=expression(extent), reductions=reductions)
                return changed(loop, body=self.block(body), grain=self.optional(s.grain))
            case Nest(axes, body):
                read = {(name(i), name(j)): least for (i, j), least in s.read.items()}
                nest = changed(s, axes=mapped(axes, self.axis), fills=mapped(s.fills, buffer))
                nest = changed(nest, combines=mapped(s.combines, self.reduction), alone=self.optional(s.alone))
                return changed(nest, read=s.read if read == s.read else read, body=self.block(body))
            case If(test, then, orelse):
                return changed(s, test=expression(test), then=self.block(then), orelse=self.block(orelse))
            case While(head, test, body):
                head = self.block(head)
                return changed(s, head=head, test=expression(test), body=self.block(body))
            case Kernel(_, body) | Fork(body):
                return changed(s, body=self.block(body))
            case Require(test, _, values):
                return changed(s, test=expression(test), values=mapped(values, expression))
            case Invoke():
                made = changed(s, name=name(s.name), reads=mapped(s.reads, buffer), writes=mapped(s.writes, buffer))
                made = changed(made, values=mapped(s.values, expression), enters=mapped(s.enters, buffer))
                return changed(made, binds=mapped(s.binds, lambda v: changed(v, name=name(v.name))))
            case Call():
                call = changed(s, name=name(s.name), reads=mapped(s.reads, buffer), writes=mapped(s.writes, buffer))
                return changed(call, iteration=mapped(s.iteration, expression))
            case Allocate(own):
                return changed(s, buffer=buffer(own))
            case Prefetch(read_from, indices):
                return changed(s, buffer=buffer(read_from), indices=mapped(indices, expression))
        return s


# What stays the same is the same object, and keeps what is known of it


def mapped(parts: tuple[P, ...], function: Callable[[P], P]) -> tuple[P, ...]:
    """The function applied to each part."""
    return kept(parts, tuple([function(part) for part in parts]))


def kept(parts: tuple[P, ...], found: tuple[P, ...]) -> tuple[P, ...]:
    """What was found in place of some parts: these themselves, where it is the same."""
    return parts if len(found) == len(parts) and all(map(operator.is_, found, parts)) else found


def changed(node: N, **parts: object) -> N:
    """A node with some parts in place of its own."""
    own = vars(node)
    return node if all([own[name] is part for name, part in parts.items()]) else replace(node, **parts)  # type: ignore[arg-type]
