"""What a kernel consists of: its grid, the names and buffers that it mentions, and where its threads must wait."""

from __future__ import annotations

from collections import Counter

from ..kernels import changed
from ..loops import (
    Allocate,
    Block,
    Buffer,
    Expression,
    For,
    If,
    Load,
    Store,
    Update,
    Variable,
    While,
    walk,
)
from ..loops_walk import blocks_of, bound_in, inside, loads, variables_of, written_in


def guards(body: Block) -> list[Expression]:
    """What must hold for a kernel to do anything."""
    return [body[0].test] if len(body) == 1 and isinstance(body[0], If) and not body[0].orelse else []


def awake(body: Block) -> Block:
    """A kernel's body where that holds."""
    return body[0].then if guards(body) and isinstance(body[0], If) else body


def names_of(body: Block) -> set[str]:
    """All names of a kernel."""
    temporaries = {each.buffer.name for each in walk(body) if isinstance(each, Allocate)}
    mentioned = {part.name for part in variables_of(body)} | {buffer.name for buffer in buffers_of(body)}
    return bound_in(body) | mentioned | temporaries


def buffers_of(body: Block) -> list[Buffer]:
    """The buffers that a kernel mentions, in the order of their first mention."""
    found: dict[str, Buffer] = {}
    for statement in walk(body):
        for load in loads(statement):
            found.setdefault(load.buffer.name, load.buffer)
        if isinstance(statement, Store | Update):
            found.setdefault(statement.buffer.name, statement.buffer)
    return list(found.values())


def changes(body: Block, expression: Expression) -> bool:
    """Whether a value is another one after a block."""
    variables, buffers = changed(body), written_in(body)
    return any(
        (isinstance(part, Variable) and part.name in variables)
        or (isinstance(part, Load) and part.buffer.name in buffers)
        for part in inside(expression)
    )


def conflicts(body: Block) -> set[str]:
    """The buffers where what one thread of a group writes another may read, or write again later."""
    lanes = [each for each in walk(body) if isinstance(each, For) and each.kind == "lanes"]
    own = {each.buffer.name for loop in lanes for each in walk(loop.body) if isinstance(each, Allocate)}
    loaded = {part.buffer.name for each in walk(body) for part in loads(each)}
    times: Counter[str] = Counter()
    _count_writes(body, 1, times)
    return {name for name, count in times.items() if count > 1 or name in loaded} - own


def _count_writes(block: Block, turns: int, times: Counter[str]) -> None:
    """How often buffers are written, where that runs so often; lanes are once, and loops twice, which is often."""
    for statement in block:
        match statement:
            case Store(buffer) | Update(buffer):
                times[buffer.name] += turns
            case For(kind="lanes"):
                times.update(dict.fromkeys(written_in(statement.body), turns))
            case _:
                again = isinstance(statement, While) or (isinstance(statement, For) and statement.kind == "sequential")
                for inner in blocks_of(statement):
                    _count_writes(inner, 2 if again else turns, times)
