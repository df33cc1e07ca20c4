"""Nests that require something: whether all holds is found out side by side, and only a failure is looked for.

What else a point does is done beside that: its reads are clamped, so that it may run on after a failure. Loops that
are run in order may require something in their steps, such as a bisection of its index. ::

    nest i < n                           var bad = False
      require 0 <= p[i] < m              lanes i
      y[i] = x[p[i]]               =>      bad = bad or not 0 <= p[i] < m
                                           y[i] = x[p[i]]
                                         if bad: for i < n: require 0 <= p[i] < m

Where the rest overwrites what the requirements read, it waits until all of them are known to hold.

Where lanes are threads there is nothing to gain: such a nest is a grid like any other, with the requirements inside.
"""

from __future__ import annotations

from dataclasses import replace

from ...core.primitive import lookup
from ...core.types import bool_, i64
from .. import ir
from ..target import LANE_CHUNK, LANE_CHUNK_WITH_LOOPS, ROW_STRIP_REGISTERS, STRIP_REGISTERS
from . import nests
from .context import Context
from .lanes import strip_of
from .nests import Built, Plan
from .survey import survey

_FALSE = ir.Constant(False, bool_)


def work_of(body: ir.Block) -> ir.Block:
    """What stands behind the requirements of a body."""
    last = max((k for k, s in enumerate(body) if isinstance(s, ir.If) or ir.contains((s,), ir.Require)), default=-1)
    return body[last + 1 :]


def beside_requirements(body: ir.Block) -> ir.Block:
    """What a body does but for its requirements, with all that is bound for these."""
    return tuple(
        [
            replace(s, body=beside_requirements(s.body)) if isinstance(s, ir.For) else s
            for s in body
            if not isinstance(s, ir.Require | ir.If)
        ]
    )


def requirements(context: Context, plan: Plan) -> Built | None:
    """The nest in this form; None without requirements before all else, and where lanes are threads."""
    loops, work = plan.loops, work_of(plan.body)
    required = plan.body[: len(plan.body) - len(work)]
    fits = loops and not context.target.group and ir.contains(required, ir.Require)
    if not (fits and _only_requires(required)):
        return None
    failed = context.variable("failed", bool_)
    reduction = ir.Reduction(failed.name, lookup("logical_or"), _FALSE)
    tests = _tested(required, reduction)
    registers = STRIP_REGISTERS if plan.parallel else ROW_STRIP_REGISTERS
    strip, layouts = registers * context.target.lanes(i64), dict[str, tuple[int, ...]]()
    beside = replace(plan, body=(*beside_requirements(required), *work))
    about = survey(beside.body, plan.variables)
    if work:
        if not nests.roles_of(beside).along(plan.variables):
            return None
        strip = min(strip, strip_of(about, context.target))
        layouts = nests.layouts_of(beside, about, loops[:-1], plan.variables[-1])
    if plan.variables[-1] in about.uniform:
        return None
    *outer, last = loops
    parallel = plan.parallel and context.target.parallel
    grain = nests.grain_of(survey(plan.body).work, [loop.extent for loop in loops[1:]])

    overwrites = not ir.read_in(required).isdisjoint(ir.written_in(work))

    def checked(variable: str, length: ir.Expression, at: tuple[ir.Statement, ...]) -> ir.Block:
        tested = (*at, *tests) if overwrites else (*at, *tests, *work)
        lanes = ir.For(variable, length, "lanes", tested, strip, reductions=(reduction,))
        one_by_one = ir.For(variable, length, "sequential", (*at, *required))
        made = (ir.Declare(failed.name, _FALSE), lanes, ir.If(failed, (one_by_one,), ()))
        return (*made, ir.For(variable, length, "lanes", (*at, *beside.body), strip)) if overwrites else made

    if not outer and parallel:
        chunk = nests.Chunk(last, LANE_CHUNK_WITH_LOOPS if about.inner else LANE_CHUNK, context.fresh)
        body = checked(chunk.lane, chunk.length, (ir.Let(last.variable.name, chunk.iteration(chunk.lane)),))
        share = grain // chunk.size
        return Built([ir.For(chunk.number.name, chunk.count, "parallel", body, grain=share)], layouts)
    made = checked(last.variable.name, last.extent, ())
    for loop in reversed(outer):
        kind: ir.Kind = "parallel" if parallel and loop is outer[0] else "sequential"
        made = (ir.For(loop.variable.name, loop.extent, kind, made, grain=grain if kind == "parallel" else None),)
    return Built(list(made), layouts)


def _only_requires(body: ir.Block) -> bool:
    """Whether a body writes nothing but variables, in loops that end the same whatever fails."""
    for statement in body:
        match statement:
            case ir.Let() | ir.Declare() | ir.Assign() | ir.Require():
                pass
            case ir.For(_, _, "sequential", inner) if _only_requires(inner):
                pass
            case ir.If(_, then, orelse) if _only_tests(then) and _only_tests(orelse):
                pass
            case _:
                return False
    return True


def _only_tests(body: ir.Block) -> bool:
    """Whether a branch only requires something."""
    return _only_requires(body) and not ir.contains(body, ir.Declare, ir.Assign, ir.For)


def _tested(body: ir.Block, failed: ir.Reduction, when: ir.Expression | None = None) -> ir.Block:
    """A body that runs under a condition, in which a variable says that something fails."""
    made: list[ir.Statement] = []
    for statement in body:
        match statement:
            case ir.Require(test):
                made.append(failed.combined(~test if when is None else when & ~test))
            case ir.For():
                made.append(replace(statement, body=_tested(statement.body, failed)))
            case ir.If(test, then, orelse):
                for branch, holds in ((then, test), (orelse, ~test)):
                    made += _tested(branch, failed, holds if when is None else when & holds)
            case _:
                made.append(statement)
    return tuple(made)
