"""Names that are used once give way to what they stand for, so that a kernel reads like a formula.

    let t1 = x[i]
    let t2 = exp(t1)             =>    y[i] = exp(x[i]) / total
    y[i] = t2 / total

Only names that the compiler made up (``t1``, ``t2``); those that come from the program stay. A value moves within its
block alone, never into a loop, and only if nothing on its way can change it: it reads no variable that is assigned to,
and no buffer that the kernel writes.
"""

from __future__ import annotations

import re
from collections import Counter

from .. import ir

_MADE_UP = re.compile(r"t\d+")
_LONGEST = 12  # parts of an expression that is put in place of a name


def inlined(body: ir.Block) -> ir.Block:
    """The body of a kernel with short expressions in place of the names for them."""
    statements = list(ir.walk(body))
    uses = Counter(name for statement in statements for name in _names(statement))
    changing = {each.name for each in statements if isinstance(each, ir.Declare)}
    return _Inlining(uses, changing, ir.written_in(body)).block(body)


def _names(statement: ir.Statement) -> list[str]:
    """The variables that a statement mentions itself, and those that say how large its buffers are."""
    return [part.name for part in ir.variables_in(ir.wholes(statement))]


class _Inlining:
    def __init__(self, uses: Counter[str], changing: set[str], written: set[str]) -> None:
        self.uses, self.changing, self.written = uses, changing, written

    def block(self, block: ir.Block) -> ir.Block:
        once = (
            ir.Let,
            ir.Declare,
            ir.Assign,
            ir.Store,
            ir.Update,
            ir.Require,
            ir.If,
        )  # what computes its expressions once
        used_here = {name for statement in block if isinstance(statement, once) for name in _names(statement)}
        values: dict[str, ir.Expression] = {}

        def put(expression: ir.Expression) -> ir.Expression:
            return ir.substituted(expression, values)

        made: list[ir.Statement] = []
        for statement in block:
            match statement:
                case ir.For() | ir.While():
                    made.append(ir.map_inside(statement, self.block))
                case ir.If(test, then, orelse):
                    made.append(ir.If(put(test), self.block(then), self.block(orelse)))
                case ir.Let(name, value) if name in used_here and self.moves(name, value := put(value)):
                    values[name] = value
                case _:
                    made.extend(ir.map_block((statement,), put, lambda store: store))
        return tuple(made)

    def moves(self, name: str, value: ir.Expression) -> bool:
        """Whether a value may stand in place of its name."""
        if self.uses[name] != 1 or not _MADE_UP.fullmatch(name):
            return False
        parts = list(ir.inside(value))
        return len(parts) <= _LONGEST and not any(self.changes(part) for part in parts)

    def changes(self, part: ir.Expression) -> bool:
        if isinstance(part, ir.Load):
            return part.buffer.name in self.written
        return isinstance(part, ir.Variable) and part.name in self.changing
