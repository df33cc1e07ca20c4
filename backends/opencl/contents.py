"""What a kernel consists of: its grid, the names and buffers that it mentions, and where its threads must wait."""

from __future__ import annotations

from collections import Counter

from .. import ir
from .kernels import changed


def guards(body: ir.Block) -> list[ir.Expression]:
    """What must hold for a kernel to do anything."""
    return [body[0].test] if len(body) == 1 and isinstance(body[0], ir.If) and not body[0].orelse else []


def awake(body: ir.Block) -> ir.Block:
    """A kernel's body where that holds."""
    return body[0].then if guards(body) and isinstance(body[0], ir.If) else body


def names_of(body: ir.Block) -> set[str]:
    """All names of a kernel."""
    temporaries = ir.allocated_in(body)
    mentioned = {part.name for part in ir.variables_of(body)} | {buffer.name for buffer in buffers_of(body)}
    return ir.bound_in(body) | mentioned | temporaries


def buffers_of(body: ir.Block) -> list[ir.Buffer]:
    """The buffers that a kernel mentions, in the order of their first mention."""
    found: dict[str, ir.Buffer] = {}
    for statement in ir.walk(body):
        for load in ir.loads(statement):
            found.setdefault(load.buffer.name, load.buffer)
        if isinstance(statement, ir.Store | ir.Update):
            found.setdefault(statement.buffer.name, statement.buffer)
    return list(found.values())


def changes(body: ir.Block, expression: ir.Expression) -> bool:
    """Whether a value is another one after a block."""
    variables, buffers = changed(body), ir.written_in(body)
    return any(
        (isinstance(part, ir.Variable) and part.name in variables)
        or (isinstance(part, ir.Load) and part.buffer.name in buffers)
        for part in ir.inside(expression)
    )


def conflicts(body: ir.Block) -> set[str]:
    """The buffers where what one thread of a group writes another may read, or write again later."""
    lanes = [each for each in ir.of_kind(body, ir.For) if each.kind == "lanes"]
    own = {each.buffer.name for loop in lanes for each in ir.of_kind(loop.body, ir.Allocate)}
    loaded = {part.buffer.name for each in ir.walk(body) for part in ir.loads(each)}
    times: Counter[str] = Counter()
    _count_writes(body, 1, times)
    return {name for name, count in times.items() if count > 1 or name in loaded} - own


def _count_writes(block: ir.Block, turns: int, times: Counter[str]) -> None:
    """How often buffers are written, where that runs so often; lanes are once, and loops twice, which is often."""
    for statement in block:
        match statement:
            case ir.Store(buffer) | ir.Update(buffer):
                times[buffer.name] += turns
            case ir.For(kind="lanes"):
                times.update(dict.fromkeys(ir.written_in(statement.body), turns))
            case _:
                again = isinstance(statement, ir.While) or (
                    isinstance(statement, ir.For) and statement.kind == "sequential"
                )
                for inner in ir.blocks_of(statement):
                    _count_writes(inner, 2 if again else turns, times)
