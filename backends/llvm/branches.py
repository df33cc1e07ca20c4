"""Branches that sizes decide: the code of each is written and compiled when a call comes whose sizes take it.

Where there are two ways to do something, one for large sizes and one for small ones, a call needs one of them, and
most programs only ever see sizes that need the same one. So each branch of such an ``If`` is a function in a module
of its own, which is compiled when it is needed; until then nothing is spent on it::

    if 6144 <= n * m * k        entry:     if 6144 <= n * m * k: call the function at word 0 of the table
      tiles                =>              else:                 call the function at word 1
    else                        needed:    byte 0: 6144 <= n * m * k;  byte 1: not so
      plain loops

Before a run whose sizes are new, ``needed`` tells which functions it takes; those that are missing are emitted
and compiled, and their addresses written into the table (``jit.py``). What the first call takes is compiled beside the
rest. Code that is kept on disk has what was compiled so far, and the loops, from which another process makes what it
needs besides.

Such an ``If`` stands outside of parallel loops, and its test is made of sizes and of what is bound to them at the top.
Branches that are short, or take memory by data, stay where they are. Branches that differ in names alone are one, taken
where any of them is.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Hashable
from itertools import islice

from ...core.primitive import Primitive
from .. import ir
from ..specialisations import conjunction, purpose

SHORT = 8  # statements: no more are compiled in next to no time
_DESCRIBED = 100  # parts of a test that people read, at most


class Branches:
    """The branches of a function that are made on demand."""

    def __init__(
        self,
        function: ir.Function,
        dynamic: Collection[str],
        likeness: Callable[[ir.Block], tuple[Hashable, ir.Canonical]],
    ) -> None:
        self._taken: list[dict[ir.Expression, None]] = []  # by number: when the branch is taken, at each of its places
        self.around: list[int | None] = []  # and the branch that it stands in
        self._blocks: list[ir.Block] = []
        self._dynamic = dynamic  # the buffers that take memory by data
        self._numbers: dict[int, tuple[int | None, int | None]] = {}  # by the id of the If
        self._lets = ir.decided_by_sizes(function)
        self._static = {*function.sizes, *[let.name for let in self._lets]}
        self._likeness = likeness
        self._known: dict[Hashable, int] = {}  # the numbers of branches, by what those have in common that are one
        self._look(function.body, None, None)

    @functools.cached_property
    def tests(self) -> list[ir.Expression]:
        """By number: when the branch is taken."""
        return [functools.reduce(operator.or_, each) for each in self._taken]

    def of(self, statement: ir.If) -> tuple[int | None, int | None]:
        """The numbers of the two branches; None for one that stays where it is."""
        return self._numbers.get(id(statement), (None, None))

    def prelude(self) -> tuple[ir.Let, ...]:
        """The bindings that the tests mention, directly or through each other."""
        return ir.bindings_of(self.tests, self._lets)

    def described(self, number: int) -> tuple[str, str]:
        """When a branch is taken, in terms of the sizes, and what it computes; what is long keeps its names."""
        test = self.tests[number]
        for let in reversed(ir.bindings_of([test], self._lets)):
            longer = ir.substituted(test, {let.name: let.value})
            if any(True for _ in islice(ir.inside(longer), _DESCRIBED, None)):
                break
            test = longer
        return _condition(test), purpose(self._blocks[number])

    def _look(self, block: ir.Block, path: ir.Expression | None, around: int | None) -> None:
        for statement in block:
            match statement:
                case ir.If(test, then, orelse) if ir.decided_by(self._static, test):
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
        statements = list(ir.walk(branch))
        fixed = not any(isinstance(each, ir.Allocate) and each.buffer.name in self._dynamic for each in statements)
        if len(statements) <= SHORT or not fixed:
            return None
        likeness, found = self._likeness(branch)
        static = tuple([name in self._static for name in found.variables])  # decides what is a branch inside
        number = self._known.setdefault((likeness, static), len(self._taken))
        if number == len(self._taken):
            self._taken.append({})
            self.around.append(around)
            self._blocks.append(branch)
        self._taken[number][taken] = None
        return number


def _condition(test: ir.Expression) -> str:
    """A test as text, with words for what joins its parts."""
    match test:
        case ir.Apply(Primitive(name="logical_and"), parts):
            texts = [_condition(part) for part in parts]
            return conjunction([f"({text})" if " or " in text else text for text in texts])
        case ir.Apply(Primitive(name="logical_or"), parts):
            return " or ".join([_condition(part) for part in parts])
        case ir.Apply(Primitive(name="logical_not"), (part,)):
            return f"not ({_condition(part)})"
    return ir.expression_text(test)
