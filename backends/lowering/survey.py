"""What a body of scalar code consists of: its reads and writes, its inner loops, and about how much work it is.

This is all that ``lanes.py`` looks at when it chooses which loop is the vector. Reads are weighed by the loops around
them; a loop of unknown extent counts as ``SURVEY_UNKNOWN_ITERATIONS`` iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from .. import ir
from ..target import LEAST_PERIOD, NEAR, SURVEY_MOST_ITERATIONS, SURVEY_MOST_WORK, SURVEY_UNKNOWN_ITERATIONS


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
    found = Survey(bound=set(around), private=frozenset(private))
    depends: dict[str, frozenset[str]] = {}
    steps: dict[str, frozenset[str]] = {}  # by Let
    nears: dict[str, frozenset[str]] = {}
    falls: dict[str, frozenset[str]] = {}
    given: dict[str, frozenset[str]] = {}  # by mutable scalar: what is assigned to it mentions these
    loops: list[str] = []  # inside, around what is looked at

    def mentioned(expression: ir.Expression) -> frozenset[str]:
        match expression:
            case ir.Variable(name):
                return depends.get(name, frozenset([name]))
            case ir.Constant():
                return frozenset()
        return frozenset().union(*[mentioned(each) for each in ir.operands(expression)])

    def stepping(expression: ir.Expression) -> frozenset[str]:
        match expression:
            case ir.Variable(name):
                return steps.get(name, frozenset([name]))
            case ir.Apply(primitive, (a, b)) if primitive.name in ("minimum", "maximum"):
                sides = (a, b), (b, a)
                return frozenset().union(*[stepping(x) - (mentioned(y) - stepping(y) - falling(y)) for x, y in sides])
            case ir.Apply(primitive, (a, b)) if primitive.name == "add":
                return (stepping(a) - mentioned(b)) | (stepping(b) - mentioned(a))
            case ir.Apply(primitive, (a, b)) if primitive.name == "subtract":
                return stepping(a) - mentioned(b)
            case ir.Apply(primitive, (a, b)) if primitive.name == "remainder":
                short = isinstance(b, ir.Constant) and abs(b.value) < LEAST_PERIOD
                return frozenset() if short else stepping(a) - mentioned(b)
        return frozenset()

    def near(expression: ir.Expression) -> frozenset[str]:
        match expression:
            case ir.Variable(name):
                return nears.get(name, frozenset([name]))
            case ir.Apply(primitive, (ir.Constant(times), a) | (a, ir.Constant(times))) if (
                primitive.name == "multiply" and 0 < times <= NEAR
            ):
                return stepping(a)
            case ir.Apply(primitive, (a, b)) if primitive.name == "add":
                return (near(a) - mentioned(b)) | (near(b) - mentioned(a))
            case ir.Apply(primitive, (a, b)) if primitive.name == "subtract":
                return near(a) - mentioned(b)
        return frozenset()

    def falling(expression: ir.Expression) -> frozenset[str]:
        match expression:
            case ir.Variable(name):
                return falls.get(name, frozenset())
            case ir.Apply(primitive, (a, b)) if primitive.name == "subtract":
                return (stepping(b) - mentioned(a)) | (falling(a) - mentioned(b))
            case ir.Apply(primitive, (a, b)) if primitive.name == "add":
                return (falling(a) - mentioned(b)) | (falling(b) - mentioned(a))
        return frozenset()

    def access(e: ir.Load | ir.Store, weight: float) -> Access:
        varies, moves = [mentioned(i) for i in e.indices], [stepping(i) for i in e.indices]
        return Access(e.buffer, e.indices, weight, varies, moves, [near(i) for i in e.indices], e.guarded, tuple(loops))

    def read(expression: ir.Expression, weight: float) -> None:
        pending = [expression]
        while pending:
            each = pending.pop()
            if isinstance(each, ir.Apply) and invariant(each):
                continue
            pending.extend(ir.operands(each))
            if isinstance(each, ir.Load):
                found.loads.append(access(each, weight))
                found.work += weight
            elif isinstance(each, ir.Apply):
                found.work += weight * each.primitive.cost
                found.once += each.primitive.cost if weight == 1.0 else 0.0
            elif isinstance(each, ir.Select | ir.MultiplyAdd):
                found.work += weight

    def visit(block: ir.Block, weight: float) -> None:
        weight = min(weight, SURVEY_MOST_WORK)
        for statement in block:
            match statement:
                case ir.Let(name, value):
                    found.bound.add(name)
                    read(value, weight)
                    depends[name], steps[name] = mentioned(value), stepping(value)
                    nears[name], falls[name] = near(value), falling(value)
                    found.operations.append((weight, depends[name]))
                    found.lets += weight == 1.0
                case ir.Declare(name, value):
                    read(value, weight)
                    found.mutable += 1
                    depends[name], given[name] = frozenset([name]), mentioned(value)
                case ir.Assign(name, value):
                    read(value, weight)
                    given[name] = given.get(name, frozenset()) | mentioned(value)
                case ir.Store(_, _, value):
                    read(value, weight)
                    found.stores.append(access(statement, weight))
                case ir.For(variable, extent, "sequential", inner):
                    found.bound.add(variable)
                    found.inner[variable] = statement
                    found.uniform |= mentioned(extent)
                    known = extent.value if isinstance(extent, ir.Constant) else SURVEY_UNKNOWN_ITERATIONS
                    found.carried = max(found.carried, len(ir.assigned_in(inner)))
                    loops.append(variable)
                    visit(inner, weight * max(1.0, min(float(known), SURVEY_MOST_ITERATIONS)))
                    loops.pop()
                case (
                    ir.Allocate() | ir.Require() | ir.Return() | ir.Update() | ir.Prefetch() | ir.Barrier() | ir.Call()
                ):
                    found.simple = False
                case ir.If(_, then, orelse):
                    found.simple = False
                    visit(then, weight)
                    visit(orelse, weight)
                case ir.Nest(axes, inner):
                    found.simple = False
                    visit(inner, weight * SURVEY_UNKNOWN_ITERATIONS ** len(axes))
                case ir.For() | ir.Kernel():
                    found.simple = False
                    visit(statement.body, weight * SURVEY_UNKNOWN_ITERATIONS)
                case ir.While():
                    found.simple = False
                    visit((*statement.head, *statement.body), weight * SURVEY_UNKNOWN_ITERATIONS)

    visit(body, 1.0)
    while further := {each for name in found.uniform for each in given.get(name, ())} - found.uniform:
        found.uniform |= further
    found.work = min(found.work, SURVEY_MOST_WORK)
    return found
