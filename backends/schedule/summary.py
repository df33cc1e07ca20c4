"""What the scheduler decided, as text for people: what is stored and why, and the loops with their roles.

The loops are those of the loop IR without the scalar code in them: their kinds and strips, temporaries, and which
buffers a block writes or adds to. So it says what is run, whatever decided it.

    temporary array11: f64[k, n]
    parallel i13 < k
      jam i12 < n by 4
        lanes i15 < d by 32 combining sum14 by add from 0.0
        writes array11
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .. import ir
from ..decisions import Decisions
from ..lowering.privatisation import adds


def schedule_text(decisions: Decisions, function: ir.Function) -> str:
    """What is noted of the decisions, one a line, and the loops of a function, then of its procedures."""
    lines = [*decisions.notes, *_outline(function.body)]
    for number, procedure in enumerate(function.procedures):
        lines += [f"procedure {number}: {procedure.name}", *["  " + line for line in _outline(procedure.body)]]
    return "\n".join(lines)


def _outline(block: ir.Block) -> Iterator[str]:
    done: dict[str, None] = {}  # what the block itself does, each thing once
    for statement in block:
        match statement:
            case ir.Store(buffer):
                done[f"{'adds to' if adds(statement) else 'writes'} {buffer.name}"] = None
                continue
            case ir.Update(buffer):
                done[f"adds to {buffer.name}"] = None
                continue
            case ir.Assign(name):
                done[f"combines into {name}"] = None
                continue
        inner = list(_inside(statement))
        if inner:
            yield from done
            done.clear()
            yield from inner
    yield from done


def _inside(statement: object) -> Iterator[str]:
    """The lines of a statement that holds others, or that is a temporary."""
    match statement:
        case ir.Invoke():
            if statement.kind == "procedure":
                yield ir.statement_text(statement)
        case ir.Fork(calls):
            yield from map(ir.statement_text, calls)
        case ir.Call():
            yield ir.statement_text(statement) + ("" if statement.symbol else " (Python, one thread at a time)")
        case ir.Allocate():
            yield ir.statement_text(statement)
        case ir.For():
            yield ir.statement_text(replace(statement, grain=None))
            yield from _indented(statement.body)
        case ir.If(_, then, orelse):
            yield ir.statement_text(statement)
            yield from _indented(then)
            if orelse:
                yield "else"
                yield from _indented(orelse)
        case ir.While(head, _, body):
            yield ir.statement_text(statement)
            yield from _indented((*head, *body))
        case ir.Kernel(_, body):
            yield ir.statement_text(statement)
            yield from _indented(body)


def _indented(block: ir.Block) -> Iterator[str]:
    for line in _outline(block):
        yield "  " + line
