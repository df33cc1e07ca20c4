"""Nests that only require something: whether all holds is found out side by side, and only a failure is looked for.

for i < n: require 0 <= p[i] < m       bad = False
                                  =>   lanes i < n: bad = bad or not 0 <= p[i] < m
                                       if bad: for i < n: require 0 <= p[i] < m

Where lanes are threads there is nothing to gain: such a nest is a grid like any other, with the requirements inside.
"""

from __future__ import annotations

from ...core.primitive import lookup
from ...core.types import bool_, i64
from .. import ir
from . import nests
from .context import Context
from .survey import survey

_FALSE = ir.Constant(False, bool_)
_CHUNK = 4096  # iterations of a single loop, of which threads take some


def requirements(context: Context, nest: ir.Nest) -> list[ir.Statement] | None:
    """The nest in this form; None when it does something else or has loops inside, and where lanes are threads."""
    loops, body = nest.axes, nest.body
    tests: list[ir.Statement] = []
    fits = loops and not context.target.group and _only_requires(body)
    wrong = _wrong(context, body, None, tests) if fits else None
    if wrong is None:
        return None
    failed = context.variable("failed", bool_)
    reduction = ir.Reduction(failed.name, lookup("logical_or"), _FALSE)
    found = reduction.combined(wrong)
    *outer, last = loops
    strip = 4 * context.target.lanes(i64)
    parallel = nest.outermost and context.target.parallel
    grain = nests.grain_of(survey(body).work, [loop.extent for loop in loops[1:]])

    def checked(length: ir.Expression, variable: str, at: tuple[ir.Statement, ...]) -> ir.Block:
        side_by_side = ir.For(variable, length, "lanes", (*at, *tests, found), strip, reductions=(reduction,))
        one_by_one = ir.For(variable, length, "sequential", (*at, *body))
        return ir.Declare(failed.name, _FALSE), side_by_side, ir.If(failed, (one_by_one,), ())

    if not outer and parallel:
        chunk, lane, size = context.variable("chunk"), context.fresh("lane"), ir.Constant(_CHUNK)
        start = chunk * size
        length = ir.minimum(last.extent - start, size)
        count = ir.ceil_divide(last.extent, size)
        at = ir.Let(last.variable.name, start + ir.Variable(lane))
        share = grain // size
        return [ir.For(chunk.name, count, "parallel", checked(length, lane, (at,)), grain=share)]
    made = checked(last.extent, last.variable.name, ())
    for loop in reversed(outer):
        kind: ir.Kind = "parallel" if parallel and loop is outer[0] else "sequential"
        made = (ir.For(loop.variable.name, loop.extent, kind, made, grain=grain if kind == "parallel" else None),)
    return list(made)


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
                fails = ~test
                wrong.append(fails if when is None else when & fails)
            case ir.If(test, then, orelse):
                for branch, holds in ((then, test), (orelse, ~test)):
                    both = holds if when is None else when & holds
                    inside = _wrong(context, branch, both, tests)
                    wrong += [] if inside is None else [inside]
            case _:
                raise AssertionError(statement)
    total: ir.Expression | None = None
    for each in wrong:
        total = each if total is None else total | each
    return total
