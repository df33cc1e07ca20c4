"""What a program costs: counted with symbols for its sizes, or by running it on given arguments.

Counting with symbols is an interpretation in which a scalar integer is a dim (``core/dims.py``), an array its shape,
and running a block gives a cost beside the results. A loop runs its body once, with a symbol for the index, and the
cost is summed over the index (``amounts.py``); ``costs.py`` has the cost of each construct.

    sum(i < n: x[i] * x[i])      the body: 1 operation, 1 read; with the additions, 2 n operations and n reads

What depends on data is bounded from above: of two branches, each count is the larger one; an integer that is computed
from data (the trips of a ``while``, the size of a filtered array) gets a name, which stands for the largest value that
it takes in a run. Counting by running (``counting.py``) has no such bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, NoReturn

from ...core import terms
from ...core.constructs import Construct
from ...core.dims import Compound, Dim, DimAtom, Opaque, arithmetic
from ...core.environment import Env
from ...core.language import Binding, Language, Unsupported
from ...core.primitive import Primitive
from ...core.program import Instance, Program, instance_of
from ...core.ranges import bounds
from ...core.showing import Shown
from ...core.source import at_line
from ...core.terms import Block, Failure, Foreign, Operation, Rules
from ...core.types import ArrayType, FunctionType, Named, Scalar, Type, array_of, dims, element, i64
from ..evaluate import call
from ..in_place import InPlace
from ..reads_first import reads_first
from ..simplify import simplify
from .amounts import Amount, Number
from .costs import FREE, Cost, Runs, cost_of, cost_of_results
from .counting import Counting


@dataclass(frozen=True)
class Known:
    """What is known of a value: an integer's value, an array's shape, a function's body, a tuple's items, a test."""

    value: Dim | None = None
    shape: tuple[Dim, ...] = ()
    function: Callable[[Sequence[Known]], tuple[list[Known], Cost]] | None = None
    items: tuple[Known, ...] = ()
    holds: bool | None = None


UNKNOWN = Known()

Atom = Callable[[Env[Known]], Known]
Body = Callable[[Env[Known], Sequence[Known]], "tuple[list[Known], Cost]"]
Outcome = tuple[Sequence[Known], Sequence[Runs]]


@dataclass(frozen=True)
class Step:
    """An operation: its results with the runs of its blocks, and what it costs then."""

    run: Callable[[Env[Known]], Outcome]
    cost: Callable[[Env[Known], Outcome], Cost] = lambda env, outcome: FREE


class Symbolic(Language[Atom, Step, Body]):
    """The meanings for one term; where ``sizes`` are given, a choice by sizes is the branch that they take."""

    later_rules = True

    def __init__(self, term: Block, sizes: Mapping[str, int] | None = None) -> None:
        self.term, self.sizes = self.expanded(term), sizes
        self.chooses = False  # whether there is such a choice
        self.in_place = InPlace(self.term, elements=False)
        self.inside: list[Operation] = []  # the operation being interpreted, and those around it
        self.numbers = count()
        self.names: dict[int, str] = {}  # of integers, by the numbers of their symbols
        self.data: set[int] = set()  # those that depend on data
        self.extents: dict[int, Dim] = {}  # of loop variables

    def total(self, names: Sequence[str]) -> Cost:
        """The cost of the term, whose parameters have these names."""
        given = [
            self.bound(Known(shape=dims(type)), type, name) for type, name in zip(self.term.binders, names, strict=True)
        ]
        self.data.clear()
        results, cost = self.term.interpret(self)(Env(), given)
        cost += cost_of_results(self.term, [_amounts(result.shape) for result in results])
        amounts = [Amount.of(number) for number in cost.numbers]
        taken = {name for amount in amounts for name in amount.names()}
        shown: dict[int, str] = {}
        for number in sorted({number for amount in amounts for number in amount.opaque()}):
            shown[number] = _unused(self.names[number], taken)
            taken.add(shown[number])
        return cost.map(lambda number: Amount.of(number).named(shown))

    def refuse(self, construct: str) -> NoReturn:
        raise Unsupported(f"the cost of {construct} depends on its arguments: count it by az.cost(f)(*arguments)")

    # Integers and loops

    def bound(self, known: Known, type: Type, name: str) -> Known:
        """What is known of a value that is bound; an integer that depends on data gets a symbol."""
        if type != i64 or known.value is not None:
            return known
        number = next(self.numbers)
        self.names[number] = name or "size"
        self.data.add(number)
        return Known(Dim.atom(Opaque(number)))

    def extent(self, known: Known) -> Dim:
        """The trips of a loop: the integer, if it grows with what depends on data; else a name for all of it."""
        dim = known.value
        if dim is None or not _grows(dim, self.data):
            dim = self.bound(UNKNOWN, i64, "size").value
        assert dim is not None
        return dim

    def extent_of(self, atom: DimAtom) -> Dim | None:
        return self.extents.get(atom.number) if isinstance(atom, Opaque) else None

    def repeated(
        self, extents: Sequence[Dim], body: Callable[[list[Known]], tuple[list[Known], Cost]]
    ) -> tuple[list[Known], Runs]:
        """The results of a loop's body in some iteration, and what all its runs cost."""
        indices = [Opaque(next(self.numbers)) for _ in extents]
        self.extents.update({index.number: extent for index, extent in zip(indices, extents, strict=True)})
        results, cost = body([Known(Dim.atom(index)) for index in indices])
        runs = Runs.once(cost)
        for index, extent in reversed(list(zip(indices, extents, strict=True))):
            runs = runs.over(index, extent)
        return results, runs

    def meaning_of_operation(self, operation: Operation) -> Step:
        self.inside.append(operation)
        step = super().meaning_of_operation(operation)
        self.inside.pop()
        atoms, places = [self.meaning_of_atom(atom) for atom in operation.args], self.in_place.of(operation)

        def cost(env: Env[Known], outcome: Outcome) -> Cost:
            results, runs = outcome
            args, made = [[_amounts(x.shape) for x in values] for values in ([atom(env) for atom in atoms], results)]
            return cost_of(operation, runs, args, made, places)

        return Step(step.run, cost)

    # Atoms

    def variable(self, index: int, type: Type) -> Atom:
        return lambda env: env.get(index)

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        known = Known(Dim.of(int(value))) if type == i64 else UNKNOWN
        return lambda env: known

    def constant(self, array: terms.Constant, type: ArrayType) -> Atom:
        return lambda env: Known(shape=type.dims)

    def dim(self, dim: Dim) -> Atom:
        return lambda env: Known(dim)

    # Scalars and control

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Step:
        def run(env: Env[Known]) -> Outcome:
            values = [arg(env).value for arg in args]
            return [Known(self.integer(primitive.name, values), holds=self.compared(primitive, values))], []

        return Step(run)

    def compared(self, primitive: Primitive, operands: Sequence[Dim | None]) -> bool | None:
        """Whether a comparison of sizes holds, if they are given."""
        known = [dim for dim in operands if dim is not None and dim.is_static()]
        if len(known) < 2 or not primitive.name.startswith(("less", "greater")):
            return None
        self.chooses = True
        return None if self.sizes is None else bool(primitive.numpy(*[dim.evaluate(self.sizes) for dim in known]))

    def integer(self, primitive: str, operands: Sequence[Dim | None]) -> Dim | None:
        """The value of an integer operation; an extremum that the ranges of loop variables decide is one operand."""
        if primitive in ("maximum", "minimum"):
            for one, other in (operands, operands[::-1]):
                range = None if one is None or other is None else bounds(one - other, self.extent_of)
                if range is not None and range[0].is_nonnegative():
                    return one if primitive == "maximum" else other
        return arithmetic(primitive, operands)

    def cond(self, test: Atom, then: Body, orelse: Body) -> Step:
        def run(env: Env[Known]) -> Outcome:
            holds = test(env).holds
            taken = [branch for branch, when in ((then, True), (orelse, False)) if holds in (None, when)]
            return _either([branch(env, ()) for branch in taken])

        return Step(run)

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Body) -> Step:
        def run(env: Env[Known]) -> Outcome:
            state, trips = _shapes(env, initials), self.extent(extent(env))
            results, runs = self.repeated([trips], lambda i: body(env, [*i, *state]))
            return [*state, *_stacked(trips, results[len(state) :])], [runs]

        return Step(run)

    def while_loop(self, initials: Sequence[Atom], test: Body, body: Body) -> Step:
        def run(env: Env[Known]) -> Outcome:
            state, trips = _shapes(env, initials), self.bound(UNKNOWN, i64, "trips")
            tests, bodies = Amount.of(self.extent(trips)) + 1, Amount.of(self.extent(trips))
            costs = [(tests, test(env, state)[1]), (bodies, body(env, state)[1])]
            return [*state, trips], [Runs(times, cost * times, cost.span) for times, cost in costs]

        return Step(run)

    # Arrays

    def size(self, array: Atom, axis: int) -> Step:
        return Step(lambda env: ([Known(array(env).shape[axis])], []))

    def index(self, array: Atom, indices: Sequence[Atom]) -> Step:
        return Step(lambda env: ([UNKNOWN], []))

    def generate(self, dim: Dim, extent: Atom, body: Body) -> Step:
        def run(env: Env[Known]) -> Outcome:
            trips = self.extent(extent(env))
            results, runs = self.repeated([trips], lambda i: body(env, i))
            return _stacked(trips, results), [runs]

        return Step(run)

    def combination(
        self, construct: Construct, extents: Sequence[Atom], neutrals: Sequence[Atom], element: Body, operator: Body
    ) -> Step:
        def run(env: Env[Known]) -> Outcome:
            units, trips = _shapes(env, neutrals), self.extent(extents[-1](env))
            elements = self.repeated([trips], lambda i: element(env, i))[1]
            operators = self.repeated([trips], lambda i: operator(env, [*units, *units]))[1]
            if construct.stacked:
                units = _stacked(self.extent(extents[0](env)) if construct.places else trips, units)
            return units, [elements, operators]

        return Step(run)

    def scatter(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Body) -> Step:
        def run(env: Env[Known]) -> Outcome:
            trips = [self.extent(extent(env)) for extent in extents]
            return _shapes(env, destinations), [self.repeated(trips, lambda i: element(env, i))[1]]

        return Step(run)

    def argsort(self, array: Atom) -> Step:
        return Step(lambda env: ([array(env)], []))

    # Meanings given by the user

    def custom(self, rules: Rules, args: Sequence[Atom], body: Body, blocks: Sequence[Body]) -> Step:
        return Step(lambda env: _either([body(env, [arg(env) for arg in args])]))

    def probe(self, name: str, values: Sequence[Atom]) -> Step:
        return Step(lambda env: ([value(env) for value in values], []))

    def foreign(self, function: Foreign, args: Sequence[Atom]) -> Step:
        scalars = [element(arg.type) for arg in self.inside[-1].args]

        def run(env: Env[Known]) -> Outcome:
            types = [array_of(scalar, arg(env).shape) for scalar, arg in zip(scalars, args, strict=True)]
            return [Known(shape=dims(type)) for type in function.result_types(types)], []

        return Step(run)

    # The higher-order fragment, without recursion

    def function(self, type: FunctionType, body: Body) -> Step:
        return Step(lambda env: ([Known(function=lambda args: body(env, args))], []))

    def fix(self, type: FunctionType, body: Body) -> Step:
        self.refuse("a recursive function")

    def apply(self, function: Atom, args: Sequence[Atom]) -> Step:
        def run(env: Env[Known]) -> Outcome:
            known = function(env).function
            if known is None:
                self.refuse("a function that is chosen by data")
            return _either([known([arg(env) for arg in args])])

        return Step(run)

    def pack(self, items: Sequence[Atom]) -> Step:
        return Step(lambda env: ([Known(items=tuple([item(env) for item in items]))], []))

    def project(self, value: Atom, position: int) -> Step:
        return Step(lambda env: ([value(env).items[position] if value(env).items else UNKNOWN], []))

    def construct(self, type: Named, variant: str, fields: Sequence[Atom]) -> Step:
        return Step(lambda env: ([UNKNOWN], []))

    def case(self, value: Atom, variants: tuple[str, ...], branches: Sequence[Body]) -> Step:
        fields = [[Known(shape=_dims(type)) for type in block.binders] for block in self.inside[-1].blocks]
        return Step(lambda env: _either([branch(env, x) for branch, x in zip(branches, fields, strict=True)]))

    def par(self, branches: Sequence[Body]) -> Step:
        def run(env: Env[Known]) -> Outcome:
            outcomes = [branch(env, ()) for branch in branches]
            return [result for results, _ in outcomes for result in results], [Runs.once(cost) for _, cost in outcomes]

        return Step(run)

    # Effects

    def accumulate(self, initials: Sequence[Atom], body: Body) -> Step:
        def run(env: Env[Known]) -> Outcome:
            totals = _shapes(env, initials)
            results, cost = body(env, totals)
            return [*totals, *results], [Runs.once(cost)]

        return Step(run)

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Step:
        return Step(lambda env: ([], []))

    def require(self, test: Atom, failure: Failure, values: Sequence[Atom]) -> Step:
        return Step(lambda env: ([], []))

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Body:
        def run(env: Env[Known], arguments: Sequence[Known]) -> tuple[list[Known], Cost]:
            env, cost = env.enter(map(self.bound, arguments, binders, names)), FREE
            for step, types, origin in bindings:
                outcome = step.run(env)
                cost += step.cost(env, outcome)
                env = env.extend([self.bound(x, t, origin.name) for x, t in zip(outcome[0], types, strict=True)])
            return [result(env) for result in results], cost

        return run


def _shapes(env: Env[Known], atoms: Sequence[Atom]) -> list[Known]:
    """What stays known of values that change: the shapes of arrays."""
    return [Known(shape=atom(env).shape) for atom in atoms]


def _stacked(extent: Dim, values: Sequence[Known]) -> list[Known]:
    return [Known(shape=(extent, *value.shape)) for value in values]


def _either(branches: Sequence[tuple[list[Known], Cost]]) -> Outcome:
    """One of several branches: an integer is known if it is the same in all."""
    (results, cost), *rest = branches
    for others, other in rest:
        results = [a if a == b else Known(shape=a.shape) for a, b in zip(results, others, strict=True)]
        cost = cost.either(other)
    return results, [Runs.once(cost)]


def _amounts(shape: Sequence[Dim]) -> list[Number]:
    return [Amount.of(dim) for dim in shape]


def _dims(type: Type) -> tuple[Dim, ...]:
    return dims(type) if isinstance(type, ArrayType) else ()


def _grows(dim: Dim, data: set[int]) -> bool:
    """Whether a dim is the larger, the larger the integers are that depend on data."""

    def depends(part: Dim) -> bool:
        return any(isinstance(atom, Opaque) and atom.number in data for atom in part.atoms())

    def atom_grows(atom: DimAtom) -> bool:
        match atom:
            case Compound("//", left, right):
                return _grows(left, data) and not depends(right)
            case Compound(_, left, right):
                return _grows(left, data) and _grows(right, data)
        return True

    return all(
        not depends(Dim({monomial: c})) or (c > 0 and all(map(atom_grows, monomial))) for monomial, c in dim.terms
    )


def _unused(name: str, taken: set[str]) -> str:
    """The name, with a number behind it if it is taken."""
    candidates = (name if k == 1 else f"{name}{k}" for k in count(1))
    return next(candidate for candidate in candidates if candidate not in taken)


class ProgramCost(Shown):
    """The cost of a program (see ``az.cost``). Counts are polynomials in the names of sizes."""

    def __init__(self, program: Program | Instance | Block, simplified: bool) -> None:
        self.program, self.simplified = program, simplified
        self._simplified: dict[Block, Block] = {}

    @cached_property
    def symbolic(self) -> Cost:
        return self._counted.total(self._names)

    @cached_property
    def _counted(self) -> Symbolic:
        return Symbolic(self.program if isinstance(self.program, Block) else self.term(instance_of(self.program)))

    @property
    def _names(self) -> Sequence[str]:
        return self.program.names if isinstance(self.program, Block) else instance_of(self.program).names

    @property
    def operations(self) -> Number:
        """Operations on scalars, each as many as the additions it is worth."""
        return self.symbolic.operations

    @property
    def reads(self) -> Number:
        """Elements read from memory."""
        return self.symbolic.reads

    @property
    def writes(self) -> Number:
        """Elements written to memory."""
        return self.symbolic.writes

    @property
    def span(self) -> Number:
        """The time that it takes with unboundedly many processors."""
        return self.symbolic.span

    @property
    def work(self) -> Number:
        """Operations, reads and writes together."""
        return self.symbolic.work

    def at(self, **sizes: int) -> Cost:
        """The counts for given sizes, as integers; TypeError names those that are missing.

        Where sizes choose between two ways, they are those of the way that is taken.
        """
        amounts = [Amount.of(number) for number in self.symbolic.numbers]
        missing = sorted({name for amount in amounts for name in amount.names()} - set(sizes))
        if missing:
            raise TypeError(at_line(f"the cost depends on {', '.join(missing)}: give a value for each"))
        symbolic = self.symbolic
        if self._counted.chooses:
            symbolic = Symbolic(self._counted.term, sizes).total(self._names)
        return symbolic.map(lambda number: Amount.of(number).evaluate(sizes))

    def __call__(self, *args: Any, **kwargs: Any) -> Cost:
        """The counts of the call with these arguments, as integers."""
        if isinstance(self.program, Block):
            raise TypeError("a term has no arguments to convert: count the calls of a program")
        instance, arrays, sizes = call(self.program, args, kwargs)
        return Counting(self.term(instance), sizes).count(arrays)

    def term(self, instance: Instance) -> Block:
        """The term that is counted for an instance of the program."""
        written = instance.term
        if not self.simplified:
            return written
        if written not in self._simplified:
            self._simplified[written] = reads_first(simplify(written))  # as before code is generated
        return self._simplified[written]

    def __str__(self) -> str:
        return str(self.symbolic)
