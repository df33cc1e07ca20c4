"""A second interpreter, one element at a time in plain Python: an oracle for evaluate, and a counter of operations.

It is a language like any other, with none of evaluate's ways to run loops at once. ``operations`` counts
scalar operations (at their cost in additions), reads, writes and updates of elements as they are executed. ``exact``
says whether every floating number met was a multiple of 2**-20 below 2**24: then sums and products are exact in any
order, and all interpretations agree bit for bit. ``shown`` is what probes showed.

    run = Plain.run(term, arguments)
    run.results, run.operations, run.exact
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from adze.core import terms
from adze.core.dims import Dim
from adze.core.environment import Env
from adze.core.language import Binding, Language
from adze.core.primitive import Primitive
from adze.core.program import Instance
from adze.core.terms import Failure, Foreign, Rules
from adze.core.types import SCALARS, ArrayType, Scalar, Type, array_of, dims, element

Atom = Callable[[Env[Any]], Any]
Operation = Callable[[Env[Any]], Sequence[Any]]
Block = Callable[[Env[Any], Sequence[Any]], list[Any]]


class Plain(Language[Atom, Operation, Block]):
    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.operations = 0
        self.exact = True
        self.results: list[Any] = []
        self.shown: list[tuple[Any, ...]] = []  # by probes
        self.dry = False  # finding out the shapes of what an empty loop makes

    @classmethod
    def run(cls, instance: Instance, arguments: Sequence[Any], term: terms.Block | None = None) -> Self:
        """Run an instance (or another term of its type) on the leaves of a call's arguments."""
        arrays, sizes = instance.signature.convert(arguments)
        plain = cls(sizes)
        with np.errstate(all="ignore"):
            plain.results = (term or instance.term).interpret(plain)(Env(), arrays)
        return plain

    def count(self, cost: int = 1) -> None:
        if not self.dry:
            self.operations += cost

    def note(self, value: Any) -> None:
        if isinstance(value, np.floating):
            scaled = float(value) * 2.0**20
            self.exact = self.exact and abs(scaled) < 2.0**44 and scaled.is_integer()

    # Atoms

    def variable(self, index: int, type: Type) -> Atom:
        return lambda env: env.get(index)

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        number = type.dtype.type(value)
        return lambda env: number

    def constant(self, array: terms.Constant, type: ArrayType) -> Atom:
        return lambda env: array.array

    def dim(self, dim: Dim) -> Atom:
        return lambda env: np.int64(dim.evaluate(self.sizes))

    # Scalars and control

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            operands = [arg(env) for arg in args]
            self.count(primitive.cost)
            by_zero = primitive.name in ("floor_divide", "remainder") and operands[1] == 0
            value = operands[0] * 0 if by_zero else primitive.numpy(*operands)
            if primitive.result is not None:
                value = np.asarray(value).astype(primitive.result.dtype)[()]
            self.note(value)
            return (value,)

        return run

    def cond(self, test: Atom, then: Block, orelse: Block) -> Operation:
        return lambda env: then(env, ()) if test(env) else orelse(env, ())

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Block) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            state, rows = [initial(env) for initial in initials], []
            for i in range(int(extent(env))):
                results = body(env, [np.int64(i), *state])
                state, row = results[: len(state)], results[len(state) :]
                rows.append(row)
            return [*state, *self.stacked(rows, lambda: body(env, [np.int64(0), *state])[len(state) :])]

        return run

    def while_loop(self, initials: Sequence[Atom], test: Block, body: Block) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            state, trips = [initial(env) for initial in initials], 0
            while not self.dry and test(env, state)[0]:
                state, trips = body(env, state), trips + 1
            return [*state, np.int64(trips)]

        return run

    # Arrays

    def size(self, array: Atom, axis: int) -> Operation:
        return lambda env: (np.int64(array(env).shape[axis]),)

    def index(self, array: Atom, indices: Sequence[Atom]) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            value, places = array(env), [int(i(env)) for i in indices]
            self.count()
            inside = all(0 <= place < n for place, n in zip(places, value.shape, strict=True))
            element = value[tuple(places)] if inside else value.dtype.type(0)
            self.note(element)
            return (element,)

        return run

    def generate(self, dim: Dim, extent: Atom, body: Block) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            rows = [body(env, [np.int64(i)]) for i in range(int(extent(env)))]
            return self.stacked(rows, lambda: body(env, [np.int64(0)]))

        return run

    def reduce(self, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            total = [neutral(env) for neutral in neutrals]
            for i in range(int(extent(env))):
                total = operator(env, [*total, *element(env, [np.int64(i)])])
            return total

        return run

    def scan(self, dim: Dim, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            units = [neutral(env) for neutral in neutrals]
            rows = [units]
            for i in range(int(extent(env))):
                rows.append(operator(env, [*rows[-1], *element(env, [np.int64(i)])]))
            return self.stacked(rows[1:], lambda: units)

        return run

    def histogram(
        self, dim: Dim, bins: Atom, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block
    ) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            units = [neutral(env) for neutral in neutrals]
            rows = [units for _ in range(int(bins(env)))]
            for i in range(int(extent(env))):
                place, *values = element(env, [np.int64(i)])
                if 0 <= place < len(rows):
                    self.count(sum(np.size(value) for value in values))
                    rows[place] = operator(env, [*rows[place], *values])
            return self.stacked(rows, lambda: units)

        return run

    def scatter(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Block) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            arrays = [np.array(destination(env)) for destination in destinations]
            for i in np.ndindex(*[max(0, int(extent(env))) for extent in extents]):
                results = element(env, [np.int64(k) for k in i])
                places = tuple([int(place) for place in results[: len(results) - len(arrays)]])
                if all(0 <= place < n for place, n in zip(places, arrays[0].shape, strict=False)):
                    for array, value in zip(arrays, results[len(places) :], strict=True):
                        self.count(np.size(value))
                        array[places] = value
            return arrays

        return run

    def argsort(self, array: Atom) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            values = [value.item() for value in array(env)]
            self.count(len(values) * len(values).bit_length())
            numbers = [i for i, value in enumerate(values) if value == value]
            rest = [i for i, value in enumerate(values) if value != value]
            return (np.array([*sorted(numbers, key=lambda i: values[i]), *rest], np.int64),)

        return run

    def stacked(self, rows: Sequence[Sequence[Any]], shapes: Callable[[], Sequence[Any]]) -> list[Any]:
        """Columns as arrays; the shapes of what no row shows come from a run that counts nothing."""
        if rows:
            return [np.stack(column) for column in zip(*rows, strict=True)]
        outer, exact, self.dry = self.dry, self.exact, True
        samples = shapes()
        self.dry, self.exact = outer, exact
        return [np.empty((0, *np.shape(sample)), np.asarray(sample).dtype) for sample in samples]

    # Meanings given by the user

    def custom(self, rules: Rules, args: Sequence[Atom], body: Block, blocks: Sequence[Block]) -> Operation:
        return lambda env: body(env, [arg(env) for arg in args])

    def probe(self, name: str, values: Sequence[Atom]) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            found = [value(env) for value in values]
            if not self.dry:
                self.shown.append((name, *found))
            return found

        return run

    def apply(self, function: Atom, args: Sequence[Atom]) -> Operation:
        """Found in the rules of customs, which do not run."""
        return lambda env: function(env)(*[arg(env) for arg in args])

    def par(self, branches: Sequence[Block]) -> Operation:
        return lambda env: [value for branch in branches for value in branch(env, [])]

    def foreign(self, function: Foreign, args: Sequence[Atom]) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            arrays = [arg(env) for arg in args]
            if self.dry:
                scalars = [next(s for s in SCALARS.values() if s.dtype == x.dtype) for x in arrays]
                actual = [array_of(s, tuple(map(Dim.of, x.shape))) for s, x in zip(scalars, arrays, strict=True)]
                types = function.result_types(actual)
                return [np.zeros([dim.evaluate({}) for dim in dims(t)], element(t).dtype)[()] for t in types]
            results = function.numpy(*arrays)
            return results if isinstance(results, tuple) else (results,)

        return run

    # Effects

    def accumulate(self, initials: Sequence[Atom], body: Block) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            totals = [np.array(initial(env)) for initial in initials]
            results = body(env, totals)
            return [*[total[()] for total in totals], *results]

        return run

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            total, places = accumulator(env), tuple([int(i(env)) for i in indices])
            if not self.dry and all(0 <= place < n for place, n in zip(places, total.shape, strict=True)):
                self.count()
                total[places] += value(env)
                self.note(total[places])
            return ()

        return run

    def require(self, test: Atom, failure: Failure, values: Sequence[Atom]) -> Operation:
        def run(env: Env[Any]) -> Sequence[Any]:
            if not self.dry and not test(env):
                raise failure.error([int(value(env)) for value in values])
            return ()

        return run

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Block:
        def run(env: Env[Any], arguments: Sequence[Any]) -> list[Any]:
            env = env.enter(arguments)
            for binding in bindings:
                env = env.extend(binding.operation(env))
            return [result(env) for result in results]

        return run


def instance(program: Any, arguments: Sequence[Any]) -> Instance:
    """The instance of a program that a call with these arguments uses."""
    chosen: Instance = program.instance_for(program.bind(arguments, {}))
    return chosen


def operations(program: Any, *arguments: Any, term: terms.Block | None = None) -> int:
    """How many operations a call executes (of another term of the same type, if one is given)."""
    return Plain.run(instance(program, arguments), program.leaves(arguments), term).operations
