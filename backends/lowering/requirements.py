"""Nests that only require something: whether all holds is found out side by side, and only a failure is looked for.

for i < n: require 0 <= p[i] < m       bad = False
                                  =>   lanes i < n: bad = bad or not 0 <= p[i] < m
                                       if bad: for i < n: require 0 <= p[i] < m

Where lanes are threads there is nothing to gain: such a nest is a grid like any other, with the requirements inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.primitive import lookup
from ...core.types import bool_, i64
from .. import ir
from . import nests
from .context import Context
from .survey import survey

_FALSE = ir.Constant(False, bool_)
_CHUNK = 4096  # iterations of a single loop, of which threads take some


def requirements(context: Context, loops: Sequence[nests.Loop], body: ir.Block) -> list[ir.Statement] | None:
    """The nest in this form; None when it does something else or has loops inside, and where lanes are threads."""
    tests: list[ir.Statement] = []
    fits = loops and not context.target.group and _only_requires(body)
    wrong = _wrong(context, body, None, tests) if fits else None
    if wrong is None:
        return None
    failed = ir.Variable(context.fresh("failed"), bool_)
    found = ir.Assign(failed.name, context.apply("logical_or", failed, wrong))
    reduction = (ir.Reduction(failed.name, lookup("logical_or"), _FALSE),)
    *outer, last = loops
    strip = 4 * context.target.lanes(i64)
    parallel = context.inside == 0 and context.target.parallel
    grain = nests.grain_of(survey(body).work, [loop.extent for loop in loops[1:]])

    def checked(length: ir.Expression, variable: str, at: tuple[ir.Statement, ...]) -> ir.Block:
        side_by_side = ir.For(variable, length, "lanes", (*at, *tests, found), strip, reductions=reduction)
        one_by_one = ir.For(variable, length, "sequential", (*at, *body))
        return ir.Declare(failed.name, _FALSE), side_by_side, ir.If(failed, (one_by_one,), ())

    if not outer and parallel:
        chunk, lane, size = ir.Variable(context.fresh("chunk"), i64), context.fresh("lane"), ir.Constant(_CHUNK, i64)
        start = context.apply("multiply", chunk, size)
        length = context.apply("minimum", context.apply("subtract", last.extent, start), size)
        rounded = context.apply("add", last.extent, ir.Constant(_CHUNK - 1, i64))
        count = context.apply("floor_divide", rounded, size)
        at = ir.Let(last.variable.name, context.apply("add", start, ir.Variable(lane, i64)))
        share = context.apply("floor_divide", grain, size)
        return [ir.For(chunk.name, count, "parallel", checked(length, lane, (at,)), grain=share)]
    nest = checked(last.extent, last.variable.name, ())
    for loop in reversed(outer):
        kind: ir.Kind = "parallel" if parallel and loop is outer[0] else "sequential"
        nest = (ir.For(loop.variable.name, loop.extent, kind, nest, grain=grain if kind == "parallel" else None),)
    return list(nest)


def _only_requires(body: ir.Block) -> bool:
    for statement in body:
        match statement:
            case ir.Let() | ir.Require():
                pass
            case ir.If(_, then, orelse) if _only_requires(then) and _only_requires(orelse):
                pass
            case _:
                return False
    return True


def _wrong(
    context: Context, body: ir.Block, when: ir.Expression | None, tests: list[ir.Statement]
) -> ir.Expression | None:
    """Whether something in a body fails that runs under a condition; what that is computed from goes to ``tests``."""
    wrong: list[ir.Expression] = []
    for statement in body:
        match statement:
            case ir.Let():
                tests.append(statement)
            case ir.Require(test):
                fails = context.apply("logical_not", test)
                wrong.append(fails if when is None else context.apply("logical_and", when, fails))
            case ir.If(test, then, orelse):
                for branch, holds in ((then, test), (orelse, context.apply("logical_not", test))):
                    both = holds if when is None else context.apply("logical_and", when, holds)
                    inside = _wrong(context, branch, both, tests)
                    wrong += [] if inside is None else [inside]
            case _:
                raise AssertionError(statement)
    total: ir.Expression | None = None
    for each in wrong:
        total = each if total is None else context.apply("logical_or", total, each)
    return total
