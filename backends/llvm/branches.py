"""Branches that sizes decide: the code of each is written and compiled when a call comes whose sizes take it.

Where there are two ways to do something, one for large sizes and one for small ones, a call needs one of them, and
most programs only ever see sizes that need the same one. So each branch of such an ``If`` is a function in a module
of its own, which is compiled when it is needed; until then nothing is spent on it::

    if 6144 <= n * m * k        entry:     if 6144 <= n * m * k: call the function at word 0 of the table
      tiles                =>              else:                 call the function at word 1
    else                        needed:    bit 0: 6144 <= n * m * k;  bit 1: not so
      plain loops

Before a run whose sizes are new, ``needed(sizes)`` tells which functions it takes; those that are missing are emitted
and compiled, and their addresses written into the table (``jit.py``). Code that is kept on disk has what was compiled
so far, and the loops, from which another process makes what it needs besides.

Such an ``If`` stands outside of parallel loops, and its test is made of sizes and of what is bound to them at the top.
Branches that are short, or take memory by data, stay where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from ...core.primitive import Primitive
from .. import ir
from ..specialisations import conjunction, purpose

SHORT = 8  # statements: no more are compiled in next to no time
_MOST = 62  # bits of a word


class Branches:
    """The branches of a function that are made on demand."""

    def __init__(self, function: ir.Function, dynamic: Collection[str]) -> None:
        self.tests: list[ir.Expression] = []  # by number: when the branch is taken
        self.around: list[int | None] = []  # and the branch that it stands in
        self._blocks: list[ir.Block] = []
        self._dynamic = dynamic  # the buffers that take memory by data
        self._numbers: dict[int, tuple[int | None, int | None]] = {}  # by the id of the If
        self._lets = ir.decided_by_sizes(function)
        self._static = {*function.sizes, *[let.name for let in self._lets]}
        times = Counter(id(statement) for statement in ir.of_kind(function.body, ir.If))
        self._repeated = {each for each, count in times.items() if count > 1}
        self._look(function.body, None, None)

    def of(self, statement: ir.If) -> tuple[int | None, int | None]:
        """The numbers of the two branches; None for one that stays where it is."""
        return self._numbers.get(id(statement), (None, None))

    def prelude(self) -> tuple[ir.Let, ...]:
        """The bindings that the tests mention, directly or through each other."""
        return ir.bindings_of(self.tests, self._lets)

    def described(self, number: int) -> tuple[str, str]:
        """When a branch is taken, in terms of the sizes, and what it computes."""
        test = self.tests[number]
        for let in reversed(ir.bindings_of([test], self._lets)):
            test = ir.substituted(test, {let.name: let.value})
        return _condition(test), purpose(self._blocks[number])

    def _look(self, block: ir.Block, path: ir.Expression | None, around: int | None) -> None:
        for statement in block:
            match statement:
                case ir.If(test, then, orelse) if (
                    ir.decided_by(self._static, test) and id(statement) not in self._repeated
                ):
                    ways = test, ~test
                    taken = [way if path is None else path & way for way in ways]
                    pair = zip(taken, (then, orelse), strict=True)
                    first, second = (self._number(way, branch, around) for way, branch in pair)
                    self._numbers[id(statement)] = first, second
                    self._look(then, taken[0], around if first is None else first)
                    self._look(orelse, taken[1], around if second is None else second)
                case ir.If(_, then, orelse):
                    self._look(then, path, around)
                    self._look(orelse, path, around)
                case ir.For(kind="sequential"):
                    self._look(statement.body, path, around)
                case ir.While():
                    self._look(statement.body, path, around)

    def _number(self, taken: ir.Expression, branch: ir.Block, around: int | None) -> int | None:
        if len(self.tests) == _MOST:
            return None
        statements = list(ir.walk(branch))
        fixed = not any(isinstance(each, ir.Allocate) and each.buffer.name in self._dynamic for each in statements)
        if len(statements) <= SHORT or not fixed:
            return None
        self.tests.append(taken)
        self.around.append(around)
        self._blocks.append(branch)
        return len(self.tests) - 1


def _condition(test: ir.Expression) -> str:
    """A test as text, with words for what joins its parts."""
    match test:
        case ir.Apply(Primitive(name="logical_and"), parts):
            texts = [_condition(part) for part in parts]
            return conjunction([f"({text})" if " or " in text else text for text in texts])
        case ir.Apply(Primitive(name="logical_not"), (part,)):
            return f"not ({_condition(part)})"
    return ir.expression_text(test)
