"""Nests that require something: whether all holds is found out side by side, and only a failure is looked for.

What else a point does is done beside that: its reads are clamped, so that it may run on after a failure. Loops that
are run in order may require something in their steps, such as a bisection of its index. ::

    nest i < n                           var bad = False
      require 0 <= p[i] < m              lanes i
      y[i] = x[p[i]]               =>      bad = bad or not 0 <= p[i] < m
                                           y[i] = x[p[i]]
                                         if bad: for i < n: require 0 <= p[i] < m

Where the rest overwrites what the requirements read, it waits until all of them are known to hold.

A sum over a row requires something of what it reads, and has lanes along the row: these note what fails, too::

    nest i < n                                           parallel i < n
      for k < len(i)                                       lanes k < len(i) combining bad by or, s by add
        require 0 <= c[at(i) + k] < m               =>       bad = bad or not 0 <= c[at(i) + k] < m
        s = s + x[c[at(i) + k]]                              s = s + x[c[at(i) + k]]
      y[i] = s                                             if bad: for k < len(i): require 0 <= c[at(i) + k] < m
                                                           y[i] = s

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
        roles = nests.roles_of(beside)
        if not roles.along(plan.variables):
            return _in_sums(beside, checks_in_sum(plan.body, roles), reduction)
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


def checks_in_sum(body: ir.Block, roles: nests.Roles) -> ir.For | None:
    """The loop of a body that sums and requires something of what it sums, if all lanes are to run along it."""
    required = [each for each in body if ir.contains((each,), ir.Require)]
    loop = required[0] if len(required) == 1 else None
    if not isinstance(loop, ir.For) or ir.read_in((loop,)) & ir.written_in(body):
        return None
    return loop if roles.lane == loop.variable and roles.further == ((None, (loop.variable,), False),) else None


def _in_sums(beside: Plan, checked: ir.For | None, failed: ir.Reduction) -> Built | None:
    """A nest without its requirements, built with lanes along a sum, which note whether these fail."""
    if checked is None:
        return None
    last = max([k for k, each in enumerate(checked.body) if isinstance(each, ir.Require)])
    required = [each for each in checked.body[: last + 1] if isinstance(each, ir.Let | ir.Require)]
    tests = [failed.combined(~each.test) for each in required if isinstance(each, ir.Require)]
    one_by_one = replace(checked, body=tuple(required))

    def noted(block: ir.Block) -> ir.Block:
        made: list[ir.Statement] = []
        for statement in block:
            if isinstance(statement, ir.For) and statement.variable == checked.variable:
                lanes = replace(statement, body=(*statement.body, *tests), reductions=(*statement.reductions, failed))
                made += [
                    ir.Declare(failed.name, _FALSE),
                    lanes,
                    ir.If(ir.Variable(failed.name, bool_), (one_by_one,), ()),
                ]
            else:
                made.append(ir.map_inside(statement, noted))
        return tuple(made)

    built = nests.build(beside)
    return replace(built, statements=list(noted(tuple(built.statements))))


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
