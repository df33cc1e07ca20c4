"""Sparsity patterns: which inputs each result of a program depends on, by propagating sets.

A result depends on an input when a derivative may be other than zero: what goes through integers, comparisons or
rounding has none, and ``stop_gradient`` cuts. Products with known zeros count. Programs run on concrete arguments, so
that sizes and indices are known, whole loops at once like in evaluate (``evaluate/batches.py``), and every value has
the sets of inputs of its elements beside it (``shadows.py``, ``sets.py``).

    y[i] = x[i + 1] - x[i]      inputs x[0], x[1], x[2]      y[0]: {x[0], x[1]}   y[1]: {x[1], x[2]}

What is found holds for all floating arguments with the same sizes and integers, unless :class:`Found` says that it
need not: a choice by a floating test unites both branches, but an index that is computed from floating numbers (a
sort, say), or the trips of a while loop whose test reads any, are those of this point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy

from ...core import terms
from ...core.active_operands import active_operands
from ...core.dims import Dim
from ...core.environment import Env
from ...core.language import Binding, Language, Unsupported
from ...core.primitive import Primitive
from ...core.terms import Failure, Foreign, Rules
from ...core.types import ArrayType, Scalar, Type, element, i64, is_float, rank
from ..evaluate import Evaluate, ufunc_of
from ..evaluate.batches import ORDERED, PURE, Atom, Code, Irregular, Step, loop_effects, mesh
from .combining import Combining
from .sets import NUMBER, Array, Sets
from .shadows import Shadow, merged


class Dependence(Combining, Language[Atom, Step, Code]):
    """The meanings for one call, in which the size names have these values."""

    def __init__(self, sizes: dict[str, int], sets: Sets) -> None:
        super().__init__(sizes, sets)
        self.evaluate = Evaluate(sizes)

    def refuse(self, construct: str) -> NoReturn:
        raise Unsupported(f"no sparsity pattern is found for a program with {construct}: give one, by pattern=")

    # Atoms

    def variable(self, index: int, type: Type) -> Atom:
        return Atom(lambda env: env.get(index), index, type)

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return _fixed(type.dtype.type(value), type)

    def constant(self, array: terms.Constant, type: ArrayType) -> Atom:
        return _fixed(array.array, type)

    def dim(self, dim: Dim) -> Atom:
        return _fixed(np.int64(dim.evaluate(self.sizes, wraps=True)), i64)

    # Scalars and control

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Step:
        """The union over the operands whose tangents count."""
        step = self.evaluate.primitive(primitive, [_value_of(arg) for arg in args])
        moving = [moves and is_float(arg.type) for arg, moves in zip(args, active_operands(primitive), strict=True)]
        floating = primitive.result_type([element(arg.type) for arg in args]).kind == "float"

        def run(env: Env[Any]) -> Sequence[Any]:
            operands = [arg.run(env) for arg in args]
            (value,) = step.run(env)
            active = [operand for operand, moves in zip(operands, moving, strict=True) if moves and floating]
            varies = any([operand.varies for operand in operands])
            return (self.settled(Shadow(value, merged(active), varies)),)

        return Step(run, applies=step.applies)

    def cond(self, test: Atom, then: Code, orelse: Code) -> Step:
        """The branch that is taken; where a test may turn out otherwise, both."""
        effects = then.effects | orelse.effects

        def run(env: Env[Any]) -> Sequence[Any]:
            chosen = test.run(env)
            holds = chosen.value
            mixed = np.ndim(holds) and holds.any() and not holds.all()
            if mixed and effects.irregular:
                raise Irregular
            if not (mixed or chosen.varies):
                return then.run(env, ()) if np.all(holds) else orelse.run(env, ())
            results = []
            for branch, taken in ((then, holds), (orelse, ~holds)):
                mask = self.mask if chosen.varies else self.mask & taken
                with self.inside(self.batch, mask), self.actually(self.actual & taken):
                    results.append(branch.run(env, ()))
            if chosen.varies:
                return [self.either(chosen, a, b, r) for a, b, r in zip(*results, then.ranks, strict=True)]
            return [self.chosen(holds, a, b, r) for a, b, r in zip(*results, then.ranks, strict=True)]

        return Step(run, effects)

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Code) -> Step:
        count = len(initials)

        def run(env: Env[Any]) -> Sequence[Any]:
            state, outputs = [initial.run(env) for initial in initials], []
            for i in range(self.length(extent.run(env))):
                results = body.run(env, [Shadow(np.int64(i)), *state])
                state = [self.settled(shadow, 1) for shadow in results[:count]]
                outputs.append(results[count:])
            ranks = body.ranks[count:]
            if outputs or not ranks:
                return [*state, *[self.stacked(column, r) for *column, r in zip(*outputs, ranks, strict=True)]]
            return [*state, *self.all_at_once(0, lambda i: body.run(env, [Shadow(i), *state])[count:], ranks)]

        return Step(run, loop_effects([extent], body))

    def while_loop(self, initials: Sequence[Atom], test: Code, body: Code) -> Step:
        """The trips of this point. In a branch that is not taken at this point there are none."""
        effects = test.effects | body.effects

        def run(env: Env[Any]) -> Sequence[Any]:
            state, trips = [initial.run(env) for initial in initials], np.int64(0)
            going, varies = self.mask & self.actual, bool(np.any(self.mask & ~self.actual))
            while not self.nothing:
                with self.inside(self.batch, going), self.actually(going):
                    (tested,) = test.run(env, state)
                    going, varies = going & tested.value, varies or tested.varies
                    if not np.any(going):
                        break
                    if effects.irregular and not np.all(going):
                        raise Irregular
                with self.inside(self.batch, going), self.actually(going):
                    after = [self.settled(shadow, 1) for shadow in body.run(env, state)]
                if np.all(going):
                    state = after
                else:
                    state = [self.chosen(going, a, b, r) for a, b, r in zip(after, state, body.ranks, strict=True)]
                trips = trips + going
            counted = Shadow(trips, (), varies)
            self.decided(counted)
            return [*state, counted]

        return Step(run, effects)

    # Arrays

    def size(self, array: Atom, axis: int) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            shadow = array.run(env)
            return (Shadow(np.int64(shadow.value.shape[axis])),)

        return Step(run)

    def index(self, array: Atom, indices: Sequence[Atom]) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            shadow, at = array.run(env), [index.run(env) for index in indices]
            if shadow.layers:
                self.decided(*at)
            places = [index.value for index in at]
            shapes = [np.shape(place) for place in places]

            def read(x: Any) -> Any:
                behind = x.shape[len(at) :]
                if x.size == 0:
                    return np.zeros(np.broadcast_shapes(behind, *shapes), x.dtype)[()]
                inside = [np.minimum(np.maximum(i, 0), n - 1) for i, n in zip(places, x.shape, strict=False)]
                return x[(*inside, *mesh(behind))]

            found = self.map_layers(shadow, read)
            return (Shadow(found.value, found.layers, any([s.varies for s in (shadow, *at)])),)

        return Step(run)

    def generate(self, dim: Dim, extent: Atom, body: Code) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            return self.columns(env, extent, body)

        return Step(run, loop_effects([extent], body))

    # Meanings given by the user

    def custom(self, rules: Rules, args: Sequence[Atom], body: Code, blocks: Sequence[Code]) -> Step:
        """What the derivatives that are given depend on."""
        chosen = dict(zip(rules, blocks, strict=False))

        def run(env: Env[Any]) -> Sequence[Any]:
            shadows = [arg.run(env) for arg in args]
            if not chosen:
                return body.run(env, shadows)
            fixed = [Shadow(shadow.value, (), shadow.varies) for shadow in shadows]
            itself = Itself(lambda *arguments: body.run(env, arguments))
            moving = [shadow for shadow, arg in zip(shadows, args, strict=True) if is_float(arg.type)]
            values = body.run(env, fixed)
            floating = [k for k, value in enumerate(values) if value.value.dtype.kind == "f"]
            if "jvp" in chosen:
                moved = [shadow.layers for shadow in chosen["jvp"].run(env, [itself, *fixed, *moving])]
            else:
                ranks = [rank(arg.type) for arg in args if is_float(arg.type)]
                shapes = [np.shape(values[k].value)[: body.ranks[k]] for k in floating]
                rule = chosen["vjp"]
                moved = self._transposed(lambda given: rule.run(env, [itself, *fixed, *given]), moving, ranks, shapes)
            for k, layers in zip(floating, moved, strict=True):
                layers = tuple([self.aligned(layer, body.ranks[k]) for layer in layers])
                values[k] = Shadow(values[k].value, layers, True)
            return values

        return Step(run, body.effects)

    def _transposed(
        self,
        pull: Callable[[list[Shadow]], list[Shadow]],
        moving: Sequence[Shadow],
        ranks: Sequence[int],
        shapes: Sequence[tuple[int, ...]],
    ) -> list[tuple[Array, ...]]:
        """The layers of results of these shapes, by what pulls cotangents back to values that move."""
        lengths = [math.prod(shape) for shape in shapes]
        ends = np.cumsum(lengths)
        outer, self.sets = self.sets, Sets(int(ends[-1]) if len(ends) else 0)
        own = self.sets
        numbers = [np.arange(end - n + 1, end + 1, dtype=NUMBER) for n, end in zip(lengths, ends, strict=True)]
        cotangents = [
            Shadow(np.zeros(shape)[()], (each.reshape(shape),), True)
            for each, shape in zip(numbers, shapes, strict=True)
        ]
        pulled = [self.filled(self.single(c), r) for c, r in zip(pull(cotangents), ranks, strict=True)]
        self.sets = outer
        lanes, places, members = math.prod(self.batch), [np.zeros(0, np.int64)], [np.zeros(0, NUMBER)]
        for shadow, r, received in zip(moving, ranks, pulled, strict=True):
            entries = own.matrix(received).tocoo()  # rows: the numbers of an argument, for each lane of the batch
            places.append(entries.col.astype(np.int64) * lanes + entries.row % lanes)
            members.append(self.filled(self.single(shadow), r).ravel()[entries.row])
        union = self.sets.united_at(np.concatenate(places), np.concatenate(members), own.inputs * lanes)
        parts = np.split(union.reshape(own.inputs, *self.batch), ends[:-1])
        return [(part.reshape(*shape, *self.batch),) for part, shape in zip(parts, shapes, strict=True)]

    def probe(self, name: str, values: Sequence[Atom]) -> Step:
        return Step(lambda env: [value.run(env) for value in values])

    def foreign(self, function: Foreign, args: Sequence[Atom]) -> Step:
        """Every number of its results depends on every number of its arguments."""
        step = self.evaluate.foreign(function, [_value_of(arg) for arg in args])

        def run(env: Env[Any]) -> Sequence[Any]:
            with self.evaluate.inside(self.batch, self.mask):
                values = step.run(env)
            numbers = [np.ravel(layer) for arg in args for layer in arg.run(env).layers]
            union = self.sets.united(np.concatenate(numbers)) if numbers else np.zeros((), NUMBER)
            return [
                Shadow(value, (np.broadcast_to(union, np.shape(value)),) if value.dtype.kind == "f" else (), True)
                for value in values
            ]

        return Step(run, ORDERED)

    def apply(self, function: Atom, args: Sequence[Atom]) -> Step:
        """A rule may apply the function that it belongs to, which depends on its arguments as its body says."""

        def run(env: Env[Any]) -> Sequence[Any]:
            applied = function.run(env)
            if not isinstance(applied, Itself):
                self.refuse("the application of a function that is a value")
            return applied.run(*[arg.run(env) for arg in args])

        return Step(run, ORDERED)

    def par(self, branches: Sequence[Code]) -> Step:
        effects = PURE
        for branch in branches:
            effects = effects | branch.effects
        return Step(lambda env: [value for branch in branches for value in branch.run(env, ())], effects)

    # Effects

    def require(self, test: Atom, failure: Failure, values: Sequence[Atom]) -> Step:
        step = self.evaluate.require(_value_of(test), failure, [_value_of(value) for value in values])

        def run(env: Env[Any]) -> Sequence[Any]:
            with self.evaluate.inside(self.batch, self.mask & self.actual):
                return step.run(env)

        return Step(run)

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Code:
        effects = PURE
        for binding in bindings:
            effects = effects | binding.operation.effects

        def run(env: Env[Any], arguments: Sequence[Any]) -> list[Any]:
            env = env.enter(arguments)
            for binding in bindings:
                env = env.extend(binding.operation.run(env))
            return [result.run(env) for result in results]

        return Code(
            run, effects, tuple([rank(result.type) for result in results]), ufunc_of(binders, bindings, results)
        )


class Itself(NamedTuple):
    """The function of a custom, in its rules."""

    run: Callable[..., Sequence[Any]]


def _fixed(value: Any, type: Type) -> Atom:
    shadow = Shadow(value)
    return Atom(lambda env: shadow, -1, type)


def _value_of(atom: Atom) -> Atom:
    """What evaluate takes an atom for."""
    return Atom(lambda env: atom.run(env).value, atom.index, atom.type)


# Running programs


@dataclass(frozen=True)
class Found:
    """Which numbers of the floating results (rows) depend on which of the chosen inputs (columns), both flattened."""

    pattern: scipy.sparse.csr_array
    shapes: list[tuple[int, ...]]  # of the floating results
    holds_everywhere: bool  # at all floating arguments with the same sizes and integers


def dependence(
    block: terms.Block, arguments: Sequence[Any], sizes: dict[str, int], chosen: Sequence[int] | None = None
) -> Found:
    """The dependence of a block's results on some of its arguments: those at these positions, or all floating ones.

    Raises what the program raises for these arguments, and Unsupported for constructs of the higher-order fragment.

    >>> from adze.core.program import program
    >>> from adze.core.annotations import Array
    >>> from adze.core.types import f64
    >>> @program
    ... def differences(x: Array[f64, "n"]) -> Array[f64, "n-1"]:
    ...     return x[1:] - x[:-1]
    >>> dependence(differences.at().term, [np.zeros(4)], {"n": 4}).pattern.toarray().astype(int)
    array([[1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1]])
    """
    floating = [position for position, type in enumerate(block.binders) if is_float(type)]
    chosen = floating if chosen is None else chosen
    inputs = 0
    shadows = []
    numbers = {}
    for position in chosen:
        shape = np.shape(arguments[position])
        count = int(np.prod(shape, dtype=np.int64))
        numbers[position] = (np.arange(count, dtype=NUMBER) + (inputs + 1)).reshape(shape)
        inputs += count
    for position, value in enumerate(arguments):
        layers = (numbers[position],) if position in numbers else ()
        shadows.append(Shadow(value, layers, position in floating))
    sets = Sets(inputs)
    language = Dependence(sizes, sets)
    with np.errstate(all="ignore"):
        results = block.interpret(language).run(Env(), shadows)
    moving = [shadow for shadow, type in zip(results, block.types, strict=True) if is_float(type)]
    rows = [language.single(shadow).ravel() for shadow in moving]
    pattern = sets.matrix(np.concatenate(rows) if rows else np.zeros(0, NUMBER))
    return Found(pattern, [np.shape(shadow.value) for shadow in moving], language.holds_everywhere)
