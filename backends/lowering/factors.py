"""Products among nests: a body that is one sum, over inner loops, of a product of two factors.

One factor varies with the innermost loop and a *row* loop of the nest, the other with it and a *column* loop;
what both vary with, or neither, are further loops (a batch). Factors need not be plain reads: each is a scalar with
the bindings that it is computed from. ::

    Y[k, r, i] = sum(j: Q[k, r, j] * (x[i, j] - mu[k, j]))     batch k, row r: Q[k, r, j], column i: x[i, j] - mu[k, j]

Terms may be left out where a test fails, as outside of an image. Tests that vary with one factor make it 0 there, which
is the same only if the other factor is finite; so that is looked at before. ::

    y[c, i] = sum(k, j: 0 <= i - j < n ? g[k, i - j] * w[k, c, j] : 0)     column i: 0 <= i - j < n ? g[k, i - j] : 0

A body that makes several sums is as many products. All but the last become nests of their own, which store them. ::

    h[i, j] = tanh(sum(k: x[i, k] * w[k, j]) + sum(k: g[i, k] * u[k, j]))
                                    =>   t[i, j] = sum(k: ...);  h[i, j] = tanh(t[i, j] + sum(k: g[i, k] * u[k, j]))

What is made of a product is in ``group_products.py`` (groups of threads) and ``contractions.py`` (lanes of vectors).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...core.types import Scalar
from .. import ir
from .context import zero
from .lanes import contiguous
from .nests import Plan, depends
from .survey import Access, Survey


@dataclass(frozen=True)
class Factor:
    """One of the two that are multiplied, with the bindings that it is computed from."""

    value: ir.Expression
    lets: tuple[ir.Let, ...]

    @staticmethod
    def of(value: ir.Expression, before: Sequence[ir.Let]) -> Factor:
        """A scalar with those of the bindings before it that it needs, directly or through each other."""
        return Factor(value, ir.bindings_of([value], before))

    @property
    def free(self) -> set[str]:
        """The variables that these mention, but do not bind."""
        return ir.names_in([self.value, *[let.value for let in self.lets]]) - {let.name for let in self.lets}

    @property
    def loads(self) -> list[ir.Load]:
        """What it reads."""
        values = [self.value, *[let.value for let in self.lets]]
        return [part for value in values for part in ir.inside(value) if isinstance(part, ir.Load)]


@dataclass(frozen=True)
class Sum:
    """What a body does that adds up products and nothing else in loops: the loops, outermost first, and the two."""

    start: ir.Declare
    loops: tuple[ir.For, ...]
    last: ir.Assign
    before: list[ir.Let]  # what is bound before the product, in the body and in the loops
    factors: tuple[Factor, Factor]
    tests: tuple[ir.Expression, ...] = ()  # a product is added where all hold

    @property
    def type(self) -> Scalar:
        return self.start.initial.type

    @property
    def extent(self) -> ir.Expression:
        """The steps of all loops."""
        return ir.product([loop.extent for loop in self.loops])

    @property
    def fused(self) -> bool:
        """Whether the product is made and added at once."""
        return isinstance(self.last.value, ir.MultiplyAdd)

    def masked(self, varying: set[str]) -> tuple[Factor, Factor] | None:
        """The factors, each 0 where a test fails that varies with no more than it does; None if one fits neither."""
        masked = list(self.factors)
        for test in self.tests:
            needed = Factor.of(test, self.before).free & varying
            fitting = [k for k, factor in enumerate(self.factors) if needed <= factor.free]
            if not fitting:
                return None
            factor = masked[fitting[0]]
            nothing = ir.Constant(zero(self.type), self.type)
            masked[fitting[0]] = Factor.of(ir.Select(test, factor.value, nothing, self.type), self.before)
        a, b = masked
        return a, b


def sum_of(body: ir.Block, reductions: Mapping[str, ir.Reduction]) -> Sum | None:
    """The sum of products that a body makes, if that is all the loops it has.

    Each loop is the last statement of the one before, and nothing but scalars is bound in them.
    """
    chain = _chain(body)
    if not chain:
        return None
    reduction = reductions.get(chain[0].variable)
    if reduction is None or reduction.primitive.name != "add":
        return None
    if any(reductions.get(each.variable) != reduction for each in chain):
        return None
    starts = [s for s in body if isinstance(s, ir.Declare) and s.name == reduction.name]
    *more, last = chain[-1].body
    lets = [*[s for each in chain[:-1] for s in each.body[:-1]], *more]
    if len(starts) != 1 or not isinstance(last, ir.Assign) or last.name != reduction.name:
        return None
    initial = starts[0].initial
    if initial != ir.Constant(zero(initial.type), initial.type) or not all(isinstance(s, ir.Let) for s in lets):
        return None
    before = [s for s in (*body, *lets) if isinstance(s, ir.Let)]
    factors, tests = _factors(last, before)
    return factors and Sum(starts[0], tuple(chain), last, before, factors, tests)


@dataclass(frozen=True)
class Operand(Factor):
    """A factor with the loop of the nest that it is along."""

    along: ir.Axis
    inner_first: bool  # it is contiguous along the inner loop
    masked: bool = False  # it is 0 where a test fails


@dataclass(frozen=True)
class Product:
    """What a nest does: a sum of products, and the two that are multiplied, each along a loop of the nest."""

    sum: Sum
    row: Operand
    column: Operand

    @property
    def sides(self) -> frozenset[str]:
        """The variables of the loops over rows and columns."""
        return frozenset([self.row.along.variable.name, self.column.along.variable.name])


def products_apart(nest: Plan) -> tuple[list[tuple[ir.Buffer, Plan]], Plan]:
    """The sums of a nest but the last one, each as a nest that stores it in a buffer, and what is left of the nest."""
    stored: list[tuple[ir.Buffer, Plan]] = []
    body, place = nest.body, tuple([loop.variable for loop in nest.loops])
    for loop in [s for s in nest.body if isinstance(s, ir.For)][:-1]:
        own = _alone(body, loop, nest.reductions)
        if own is None:
            return [], nest
        [start] = [s for s in own if isinstance(s, ir.Declare)]
        total = start.initial.type
        buffer = ir.Buffer(nest.fresh("product"), total, tuple([loop.extent for loop in nest.loops]))
        store = ir.Store(buffer, place, ir.Variable(start.name, total))
        stored.append((buffer, replace(nest, body=(*own, store), temporaries=set())))
        load = ir.Let(start.name, ir.Load(buffer, place))
        body = tuple([load if s is start else s for s in body if s is not loop])
    return stored, replace(nest, body=body)


def _alone(body: ir.Block, loop: ir.For, reductions: Mapping[str, ir.Reduction]) -> ir.Block | None:
    """A loop that makes a sum, with the start of the sum and the bindings that the loop needs."""
    before = body[: [s is loop for s in body].index(True)]
    reduction = reductions.get(loop.variable)
    starts = [s for s in before if isinstance(s, ir.Declare) and reduction is not None and s.name == reduction.name]
    wholes = [e for s in ir.walk((loop,)) for e in ir.expressions_of(s)]
    needed = ir.bindings_of(wholes, [s for s in before if isinstance(s, ir.Let)])
    own: ir.Block = (*needed, *starts, loop)
    others = {s.name for s in body if isinstance(s, ir.Declare)} - {s.name for s in starts}
    return own if len(starts) == 1 and others.isdisjoint(ir.mentioned(own)[0]) else None


def product_of(nest: Plan, found: Survey, loops: Sequence[ir.Axis]) -> Product | None:
    """A nest's body as a product, if it is one."""
    sum = sum_of(nest.body, nest.reductions)
    if sum is None or len(sum.loops) != len(found.inner):
        return None
    outside = tuple([s for s in nest.body if not isinstance(s, ir.For)])
    scalars = all(
        isinstance(s, ir.Let | ir.Declare | ir.Assign | ir.Store | ir.If | ir.Require) for s in ir.walk(outside)
    )
    if not scalars or any(depends(each.extent, found.bound) for each in sum.loops):
        return None
    if any(factor.value.type != sum.type for factor in sum.factors):
        return None
    varying = found.bound - {let.name for let in sum.before}
    varying -= {s.name for s in ir.of_kind(nest.body, ir.Declare)}
    own, inner = {*nest.variables, *[each.variable for each in sum.loops]}, sum.loops[-1].variable
    if any(not factor.free & varying <= own or inner not in factor.free for factor in sum.factors):
        return None
    factors = sum.masked(varying)
    if factors is None:
        return None
    a, b = factors
    wide = [loop for loop in loops if found.may_widen(loop.variable.name)]
    first, second = _widest(wide, a.free - b.free), _widest(wide, b.free - a.free)
    if first is None or second is None:
        return None
    operands = [
        Operand(factor.value, factor.lets, along, _inner_first(found, factor, inner, along), factor != whole)
        for factor, whole, along in ((a, sum.factors[0], first), (b, sum.factors[1], second))
    ]
    operands.sort(key=lambda operand: loops.index(operand.along))
    return Product(sum, *operands)


def _chain(body: ir.Block) -> list[ir.For]:
    """The loops in a body, each of them the last statement of the one before."""
    found = [s for s in body if isinstance(s, ir.For)]
    if len(found) != 1:
        return []
    while found[-1].body and isinstance(last := found[-1].body[-1], ir.For):
        found.append(last)
    return found if found[-1].body else []


def _factors(
    last: ir.Assign, before: Sequence[ir.Let]
) -> tuple[tuple[Factor, Factor] | None, tuple[ir.Expression, ...]]:
    """The two whose product is added to a sum, and the tests that must hold for it."""
    match last.value:
        case ir.MultiplyAdd(a, b, ir.Variable(name)) if name == last.name:
            return (Factor.of(a, before), Factor.of(b, before)), ()
        case ir.Apply(add, (ir.Variable(name), value)) if add.name == "add" and name == last.name:
            defined, tests = {let.name: let.value for let in before}, list[ir.Expression]()
            value = defined.get(getattr(value, "name", ""), value)
            while isinstance(value, ir.Select) and repr(value.orelse) == repr(
                ir.Constant(zero(value.type), value.type)
            ):
                tests.append(value.test)
                value = defined.get(getattr(value.then, "name", ""), value.then)
            if isinstance(value, ir.Apply) and value.primitive.name == "multiply":
                a, b = value.arguments
                return (Factor.of(a, before), Factor.of(b, before)), tuple(tests)
    return None, ()


def _widest(loops: Sequence[ir.Axis], names: set[str]) -> ir.Axis | None:
    """Of the loops with these variables, the one that is known to be longest, or else the last."""
    found = [loop for loop in loops if loop.variable.name in names]

    def length(loop: ir.Axis) -> float:
        return loop.extent.value if isinstance(loop.extent, ir.Constant) else float("inf")

    return max(reversed(found), key=length, default=None)


def _inner_first(found: Survey, factor: Factor, inner: str, along: ir.Axis) -> bool:
    """Whether a factor reads its arrays contiguously along the inner loop, and not along the loop of the nest."""
    loads = factor.loads

    def across(variable: str) -> int:
        matching = [a for a in found.loads if a.mentions(variable) and any(_reads(a, load) for load in loads)]
        return sum(not contiguous(access, variable, len(access.indices) - 1, near=True) for access in matching)

    return across(inner) < across(along.variable.name)


def lies_in_rows(operand: Operand, found: Survey, inner: Sequence[ir.For]) -> bool:
    """Whether an operand is elements of arrays as they are, which lie side by side along the only inner loop."""
    if len(inner) > 1 or not operand.inner_first or any(load.guarded for load in operand.loads):
        return False
    variable = inner[0].variable
    made = [operand.value, *[let.value for let in ir.apart(operand.lets, {variable})[1]]]
    read = [a for a in found.loads if a.mentions(variable) and any(_reads(a, load) for load in operand.loads)]
    plain = all(isinstance(each, ir.Load | ir.Variable) for each in made)
    return plain and all(contiguous(access, variable, len(access.indices) - 1, near=True) for access in read)


def _reads(access: Access, load: ir.Load) -> bool:
    return access.buffer == load.buffer and access.indices == load.indices
