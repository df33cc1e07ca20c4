"""What a body of scalar code consists of: its reads and writes, its inner loops, and about how much work it is.

This is all that ``lanes.py`` looks at when it chooses which loop is the vector. Reads are weighed by the loops around
them; a loop of unknown extent counts as ``SURVEY_UNKNOWN_ITERATIONS`` iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from .. import ir
from ..target import (
    CALL_WORK,
    LEAST_PERIOD,
    NEAR,
    SURVEY_MOST_ITERATIONS,
    SURVEY_MOST_WORK,
    SURVEY_UNKNOWN_ITERATIONS,
)


@dataclass
class Access:
    """A read or write of a buffer in the body, with the loops inside that are around it.

    Its indices mention variables, and step with some of them.

    An index steps with a variable if it grows by one where that does, but for borders where it wraps around, turns back
    or is clamped: lanes are split there (``schedule/loops/index_set_splitting.py``).
    """

    buffer: ir.Buffer
    indices: tuple[ir.Expression, ...]
    weight: float
    varies: list[frozenset[str]]
    steps: list[frozenset[str]]
    near: list[frozenset[str]]  # variables by whose steps the index grows by a few
    guarded: tuple[int, ...] = ()
    around: tuple[str, ...] = ()

    def mentions(self, variable: str) -> bool:
        return any(variable in each for each in self.varies)


@dataclass
class Survey:
    """What a body consists of."""

    body: ir.Block = ()
    simple: bool = True  # nothing in it keeps it from being widened
    loads: list[Access] = field(default_factory=list)
    stores: list[Access] = field(default_factory=list)
    inner: dict[str, ir.For] = field(default_factory=dict)  # loops inside, by variable
    uniform: set[str] = field(default_factory=set)  # variables that extents inside depend on
    operations: list[tuple[float, frozenset[str]]] = field(default_factory=list)  # weights, and what they mention
    work: float = 0.0
    once: float = 0.0  # what is computed outside of the loops inside
    mutable: int = 0
    carried: int = 0  # mutable scalars that one loop inside assigns to, at most
    lets: int = 0
    bound: set[str] = field(default_factory=set)  # names bound in the body, and loop variables around it
    private: frozenset[ir.Buffer] = frozenset()  # arrays of which each point has its own

    @cached_property
    def live(self) -> int:
        """How many values of the bindings of straight-line code are held at a time, at most; of other code, all."""
        if not all(isinstance(statement, ir.Let | ir.Store) for statement in self.body):
            return len(self.body)
        names = {statement.name for statement in self.body if isinstance(statement, ir.Let)}
        held, most = set[str](), 0
        for statement in reversed(self.body):
            held |= ir.names_in(ir.expressions_of(statement)) & names
            most = max(most, len(held))
            if isinstance(statement, ir.Let):
                held.discard(statement.name)
        return most

    def may_widen(self, variable: str) -> bool:
        """Whether a loop around may be lanes or a jam: no extent inside varies with it, and every store does."""
        apart = all(store.mentions(variable) or store.buffer in self.private for store in self.stores)
        return apart and variable not in self.uniform


def survey(
    body: ir.Block,
    around: Iterable[str] = (),
    private: Collection[ir.Buffer] = (),
    invariant: Callable[[ir.Expression], bool] = lambda expression: False,
) -> Survey:
    """Look through a body once; ``around`` are the variables of the loops that it is the body of.

    ``private`` are the arrays of which each of their iterations has its own. What is ``invariant`` is no work.
    """
    surveyor = _Surveyor(Survey(body, bound=set(around), private=frozenset(private)), invariant)
    surveyor.visit(body, 1.0)
    return surveyor.result()


_NOTHING: frozenset[str] = frozenset()


@dataclass
class _Surveyor:
    """Looks through a body; what is said of a variable in it is what holds of the value that is bound to it."""

    found: Survey
    invariant: Callable[[ir.Expression], bool]
    depends: dict[str, frozenset[str]] = field(default_factory=dict)
    steps: dict[str, frozenset[str]] = field(default_factory=dict)
    nears: dict[str, frozenset[str]] = field(default_factory=dict)
    falls: dict[str, frozenset[str]] = field(default_factory=dict)
    given: dict[str, frozenset[str]] = field(default_factory=dict)  # by mutable scalar: what is assigned mentions these
    loops: list[str] = field(default_factory=list)  # inside, around what is looked at

    def result(self) -> Survey:
        found = self.found
        while further := {each for name in found.uniform for each in self.given.get(name, ())} - found.uniform:
            found.uniform |= further
        found.work = min(found.work, SURVEY_MOST_WORK)
        return found

    # Which variables an index mentions, and which it goes along with

    def mentioned(self, expression: ir.Expression) -> frozenset[str]:
        names = ir.names_in([expression])
        return frozenset([name for name in names if name not in self.depends]).union(
            *[self.depends[name] for name in names if name in self.depends]
        )

    def stepping(self, expression: ir.Expression) -> frozenset[str]:
        match expression:
            case ir.Variable(name):
                return self.steps.get(name, frozenset([name]))
            case ir.Apply(primitive, (a, b)):
                match primitive.name:
                    case "add":
                        return (self.stepping(a) - self.mentioned(b)) | (self.stepping(b) - self.mentioned(a))
                    case "subtract":
                        return self.stepping(a) - self.mentioned(b)
                    case "minimum" | "maximum":
                        return self._clamped(a, b) | self._clamped(b, a)
                    case "remainder" if not (isinstance(b, ir.Constant) and abs(b.value) < LEAST_PERIOD):
                        return self.stepping(a) - self.mentioned(b)
        return _NOTHING

    def _clamped(self, a: ir.Expression, b: ir.Expression) -> frozenset[str]:
        """What an index goes along with where it is a, unless b moves with that in another way."""
        return self.stepping(a) - (self.mentioned(b) - self.stepping(b) - self.falling(b))

    def near(self, expression: ir.Expression) -> frozenset[str]:
        match expression:
            case ir.Variable(name):
                return self.nears.get(name, frozenset([name]))
            case ir.Apply(primitive, (ir.Constant(times), a) | (a, ir.Constant(times))) if (
                primitive.name == "multiply" and 0 < times <= NEAR
            ):
                return self.stepping(a)
            case ir.Apply(primitive, (a, b)) if primitive.name == "add":
                return (self.near(a) - self.mentioned(b)) | (self.near(b) - self.mentioned(a))
            case ir.Apply(primitive, (a, b)) if primitive.name == "subtract":
                return self.near(a) - self.mentioned(b)
        return _NOTHING

    def falling(self, expression: ir.Expression) -> frozenset[str]:
        match expression:
            case ir.Variable(name):
                return self.falls.get(name, _NOTHING)
            case ir.Apply(primitive, (a, b)) if primitive.name == "subtract":
                return (self.stepping(b) - self.mentioned(a)) | (self.falling(a) - self.mentioned(b))
            case ir.Apply(primitive, (a, b)) if primitive.name == "add":
                return (self.falling(a) - self.mentioned(b)) | (self.falling(b) - self.mentioned(a))
        return _NOTHING

    # What there is

    def access(self, e: ir.Load | ir.Store, weight: float) -> Access:
        return Access(
            e.buffer,
            e.indices,
            weight,
            [self.mentioned(i) for i in e.indices],
            [self.stepping(i) for i in e.indices],
            [self.near(i) for i in e.indices],
            e.guarded,
            tuple(self.loops),
        )

    def read(self, expression: ir.Expression, weight: float) -> None:
        found, pending = self.found, [expression]
        while pending:
            each = pending.pop()
            if isinstance(each, ir.Apply) and self.invariant(each):
                continue
            pending.extend(ir.operands(each))
            if isinstance(each, ir.Load):
                found.loads.append(self.access(each, weight))
                found.work += weight
            elif isinstance(each, ir.Apply):
                found.work += weight * each.primitive.cost
                found.once += each.primitive.cost if weight == 1.0 else 0.0
            elif isinstance(each, ir.Select | ir.MultiplyAdd):
                found.work += weight

    def visit(self, block: ir.Block, weight: float) -> None:
        found, weight = self.found, min(weight, SURVEY_MOST_WORK)
        for statement in block:
            match statement:
                case ir.Let(name, value):
                    found.bound.add(name)
                    self.read(value, weight)
                    steps = self.stepping(value), self.near(value), self.falling(value)
                    self.depends[name] = self.mentioned(value)
                    self.steps[name], self.nears[name], self.falls[name] = steps
                    found.operations.append((weight, self.depends[name]))
                    found.lets += weight == 1.0
                case ir.Declare(name, value):
                    self.read(value, weight)
                    found.mutable += 1
                    self.depends[name], self.given[name] = frozenset([name]), self.mentioned(value)
                case ir.Assign(name, value):
                    self.read(value, weight)
                    self.given[name] = self.given.get(name, _NOTHING) | self.mentioned(value)
                case ir.Store(_, _, value):
                    self.read(value, weight)
                    found.stores.append(self.access(statement, weight))
                case ir.For(variable, extent, "sequential", inner):
                    found.bound.add(variable)
                    found.inner[variable] = statement
                    found.uniform |= self.mentioned(extent)
                    known = extent.value if isinstance(extent, ir.Constant) else SURVEY_UNKNOWN_ITERATIONS
                    found.carried = max(found.carried, len(ir.assigned_in(inner)))
                    self.loops.append(variable)
                    self.visit(inner, weight * max(1.0, min(float(known), SURVEY_MOST_ITERATIONS)))
                    self.loops.pop()
                case ir.Fork(calls):
                    self.visit(calls, weight)
                case ir.Call():
                    found.simple = False
                    found.work += weight * CALL_WORK
                case ir.Allocate() | ir.Require() | ir.Return() | ir.Update() | ir.Prefetch() | ir.Barrier():
                    found.simple = False
                case ir.If(_, then, orelse):
                    found.simple = False
                    self.visit(then, weight)
                    self.visit(orelse, weight)
                case ir.Nest(axes, inner):
                    found.simple = False
                    self.visit(inner, weight * SURVEY_UNKNOWN_ITERATIONS ** len(axes))
                case ir.For() | ir.Kernel():
                    found.simple = False
                    self.visit(statement.body, weight * SURVEY_UNKNOWN_ITERATIONS)
                case ir.While():
                    found.simple = False
                    self.visit((*statement.head, *statement.body), weight * SURVEY_UNKNOWN_ITERATIONS)
