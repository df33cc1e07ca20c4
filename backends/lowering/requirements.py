"""Nests that require something: whether all holds is found out side by side, and only a failure is looked for.

What else a point does is done beside that: its reads are clamped, so that it may run on after a failure. ::

    nest i < n                           var bad = False
      require 0 <= p[i] < m              lanes i
      y[i] = x[p[i]]               =>      bad = bad or not 0 <= p[i] < m
                                           y[i] = x[p[i]]
                                         if bad: for i < n: require 0 <= p[i] < m

Where lanes are threads there is nothing to gain: such a nest is a grid like any other, with the requirements inside.
"""

from __future__ import annotations

from dataclasses import replace

from ...core.primitive import lookup
from ...core.types import bool_, i64
from .. import ir
from ..target import LANE_CHUNK, STRIP_REGISTERS
from . import nests
from .context import Context
from .lanes import strip_of
from .nests import Built, Plan
from .survey import survey

_FALSE = ir.Constant(False, bool_)


def work_of(body: ir.Block) -> ir.Block:
    """What stands behind the requirements of a body."""
    last = max((k for k, s in enumerate(body) if isinstance(s, ir.Require | ir.If)), default=-1)
    return body[last + 1 :]


def beside_requirements(body: ir.Block) -> ir.Block:
    """What a body does but for its requirements, with all that is bound for these."""
    return tuple([s for s in body if not isinstance(s, ir.Require | ir.If)])


def requirements(context: Context, plan: Plan) -> Built | None:
    """The nest in this form; None without requirements before all else, or with loops, and where lanes are threads."""
    loops, work = plan.loops, work_of(plan.body)
    required = plan.body[: len(plan.body) - len(work)]
    tests: list[ir.Statement] = []
    fits = loops and not context.target.group and _only_requires(required)
    wrong = _wrong(context, required, None, tests) if fits else None
    if wrong is None:
        return None
    strip, layouts = STRIP_REGISTERS * context.target.lanes(i64), dict[str, tuple[int, ...]]()
    if work:
        beside = replace(plan, body=(*tests, *work))
        roles, about = nests.roles_of(beside), survey(beside.body, plan.variables)
        if not roles.in_order:
            return None
        strip = min(strip, strip_of(about, context.target))
        layouts = nests.layouts_of(beside, about, loops[:-1], plan.variables[-1])
    failed = context.variable("failed", bool_)
    reduction = ir.Reduction(failed.name, lookup("logical_or"), _FALSE)
    found = reduction.combined(wrong)
    *outer, last = loops
    parallel = plan.parallel and context.target.parallel
    grain = nests.grain_of(survey(plan.body).work, [loop.extent for loop in loops[1:]])

    def checked(variable: str, length: ir.Expression, at: tuple[ir.Statement, ...]) -> ir.Block:
        side_by_side = (*at, *tests, found, *work)
        lanes = ir.For(variable, length, "lanes", side_by_side, strip, reductions=(reduction,))
        one_by_one = ir.For(variable, length, "sequential", (*at, *required))
        return ir.Declare(failed.name, _FALSE), lanes, ir.If(failed, (one_by_one,), ())

    if not outer and parallel:
        chunk = nests.Chunk(last, LANE_CHUNK, context.fresh)
        body = checked(chunk.lane, chunk.length, (ir.Let(last.variable.name, chunk.iteration(chunk.lane)),))
        share = grain // chunk.size
        return Built([ir.For(chunk.number.name, chunk.count, "parallel", body, grain=share)], layouts)
    made = checked(last.variable.name, last.extent, ())
    for loop in reversed(outer):
        kind: ir.Kind = "parallel" if parallel and loop is outer[0] else "sequential"
        made = (ir.For(loop.variable.name, loop.extent, kind, made, grain=grain if kind == "parallel" else None),)
    return Built(list(made), layouts)


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
