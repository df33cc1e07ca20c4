"""The reference interpreter: what a program means, in NumPy.

An atom means ``env -> value``, an operation ``env -> values``, a block ``(env, arguments) -> values``. Values are
NumPy scalars and arrays of the declared types. Loops run at once where that is possible: ``batches.py`` says how, and
with what values the code inside then computes. ``combining.py`` has the constructs that combine, order and write
elements. ``vectorize=False`` runs every loop in Python, element by element; the tests compare the two.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...core import terms, trees
from ...core.dims import Dim
from ...core.environment import Env
from ...core.foreign import BrokenPromise, applied, promised, sized
from ...core.language import Binding, Language
from ...core.limits import lifted_limits
from ...core.presented import presented
from ...core.primitive import PRIMITIVES, Primitive
from ...core.program import Instance, P, Program, R, as_program
from ...core.terms import Failure, Foreign, Rules
from ...core.types import ArrayType, Scalar, Type, dims, element, i64, rank
from ...core.verb import Function
from .batches import (
    LARGEST_BATCH,
    ORDERED,
    PURE,
    Atom,
    Batches,
    Code,
    Effects,
    Irregular,
    Refused,
    Step,
    extent_of,
    loop_effects,
    mesh,
    repeated,
    require_room,
)
from .combining import Combining
from .functions import Functions, deeply, result_value, uses_functions

# Operators whose reduction NumPy has.
_NAMES = ("add", "multiply", "minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor")
_UFUNCS = {name: getattr(np, name) for name in _NAMES}

Show = Callable[[str, Sequence[Any]], None]


def print_probe(name: str, values: Sequence[Any]) -> None:
    """What a probe does when nobody says otherwise."""
    print(f"{name} = {', '.join(map(str, values))}")


class Evaluate(Combining, Functions, Batches, Language[Atom, Step, Code]):
    """The meanings for one call, in which the size names have these values. ``show`` is what probes do."""

    later_rules = True

    def __init__(self, sizes: dict[str, int], vectorize: bool = True, show: Show = print_probe) -> None:
        super().__init__(sizes, vectorize)
        self.show = show

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
        function, runs = primitive.numpy, [arg.run for arg in args]
        dtype = primitive.result_type([element(arg.type) for arg in args]).dtype

        def run(env: Env[Any]) -> Sequence[Any]:
            value = function(*[run(env) for run in runs])
            if getattr(value, "dtype", None) != dtype:
                value = np.asarray(value).astype(dtype)[()]
            return (value,)

        return Step(run, applies=(primitive, tuple(arg.index for arg in args)))

    def cond(self, test: Atom, then: Code, orelse: Code) -> Step:
        effects = (then.effects | orelse.effects).sometimes

        def run(env: Env[Any]) -> Sequence[Any]:
            chosen = test.run(env)
            if np.ndim(chosen) == 0 or chosen.all() or not chosen.any():
                return then.run(env, ()) if np.all(chosen) else orelse.run(env, ())
            if effects.irregular:
                raise Irregular
            with self.inside(self.batch, self.mask & chosen):
                first = then.run(env, ())
            with self.inside(self.batch, self.mask & ~chosen):
                second = orelse.run(env, ())
            return [self.chosen(chosen, a, b, r) for a, b, r in zip(first, second, then.ranks, strict=True)]

        return Step(run, effects)

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Code) -> Step:
        count = len(initials)

        def run(env: Env[Any]) -> Sequence[Any]:
            state, outputs = [initial.run(env) for initial in initials], []
            steps = extent_of(extent.run(env))
            for i in range(steps):
                results = body.run(env, [np.int64(i), *state])
                if self.once(body.effects, results):
                    require_room(steps, results[count:])
                    made = [np.empty((steps, *np.shape(value)), value.dtype) for value in results[count:]]
                    return [*results[:count], *made]
                if i == 0:
                    require_room(steps, results[count:])
                state = results[:count]
                outputs.append(results[count:])
            if len(body.ranks) == count:
                return state
            if not outputs:
                return [*state, *self.all_at_once(0, lambda i: body.run(env, [i, *state])[count:], body.ranks[count:])]
            return [*state, *[self.stacked(column, r) for *column, r in zip(*outputs, body.ranks[count:], strict=True)]]

        return Step(run, loop_effects([extent], body))

    def while_loop(self, initials: Sequence[Atom], test: Code, body: Code) -> Step:
        effects = (test.effects | body.effects).sometimes

        def run(env: Env[Any]) -> Sequence[Any]:
            state, trips = [initial.run(env) for initial in initials], np.int64(0)
            going = self.mask
            while not self.nothing:
                with self.inside(self.batch, going):
                    going = going & test.run(env, state)[0]
                    if not np.any(going):
                        break
                    if effects.irregular and not np.all(going):
                        raise Irregular
                with self.inside(self.batch, going):
                    after = body.run(env, state)
                if np.all(going):
                    state = after
                else:
                    state = [self.chosen(going, a, b, r) for a, b, r in zip(after, state, body.ranks, strict=True)]
                trips = trips + going
            return [*state, trips]

        return Step(run, effects)

    # Arrays

    def size(self, array: Atom, axis: int) -> Step:
        return Step(lambda env: (np.int64(array.run(env).shape[axis]),))

    def index(self, array: Atom, indices: Sequence[Atom]) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            value, at = array.run(env), [index.run(env) for index in indices]
            if value.size == 0:
                shapes = [np.shape(i) for i in at]
                behind = value.shape[len(at) :]
                return (np.zeros(np.broadcast_shapes(behind, *shapes), value.dtype)[()],)
            inside = [np.minimum(np.maximum(i, 0), n - 1) for i, n in zip(at, value.shape)]
            return (value[(*inside, *mesh(value.shape[len(at) :]))],)

        return Step(run)

    def generate(self, dim: Dim, extent: Atom, body: Code) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            if dim.is_static():  # where it has wrapped around, there is no such array
                dim.number(self.sizes)
            count = extent_of(extent.run(env))
            if body.fixed and count > LARGEST_BATCH:  # the same in each row
                rows = body.run(env, [np.int64(0)])
                return [repeated(row, count) for row in rows]
            return self.for_all(count, lambda i: body.run(env, [i]), body.effects, body.ranks)

        return Step(run, loop_effects([extent], body))

    # Meanings given by the user

    def custom(self, rules: Rules, args: Sequence[Atom], body: Code, blocks: Sequence[Code]) -> Step:
        return Step(lambda env: body.run(env, [arg.run(env) for arg in args]), body.effects)

    def probe(self, name: str, values: Sequence[Atom]) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            shown = [value.run(env) for value in values]
            if not self.nothing:
                self.show(name, shown)
            return shown

        return Step(run, ORDERED)

    def foreign(self, function: Foreign, args: Sequence[Atom]) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            values = [arg.run(env) for arg in args]
            types = promised(function, values, [arg.type for arg in args])
            if self.nothing:
                return [self.filled(_zeros(type), rank(type)) for type in types]
            if function.numpy is None:
                return self.by_c(function, values, [arg.type for arg in args], types)
            try:
                return applied(function, values, types)
            except BrokenPromise as error:
                raise Refused(TypeError, str(error)) from None

        return Step(run, ORDERED)

    def by_c(
        self, function: Foreign, values: Sequence[Any], given: Sequence[Type], made: Sequence[Type]
    ) -> Sequence[Any]:
        """The results of a function of C, where there is no other meaning."""
        assert function.c is not None
        results, code = function.c.run(values, sized(values, given), made)
        if code:
            raise Refused(function.c.error, f"{function.name}: {function.c.message.format(code)}")
        return results

    # Effects

    def accumulate(self, initials: Sequence[Atom], body: Code) -> Step:
        ranks = [rank(initial.type) for initial in initials]

        def run(env: Env[Any]) -> Sequence[Any]:
            totals = [np.array(self.filled(initial.run(env), r)) for initial, r in zip(initials, ranks, strict=True)]
            results = body.run(env, totals)
            return [total[()] for total in totals] + results

        return Step(run, body.effects)

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            total, added, at = accumulator.run(env), value.run(env), [index.run(env) for index in indices]
            inside = functools.reduce(np.logical_and, [(i >= 0) & (i < n) for i, n in zip(at, total.shape)], np.True_)
            if not self.batch:
                if inside and self.mask:
                    total[tuple(at)] += added
                return ()
            behind = mesh(total.shape[len(at) :])
            places = [np.broadcast_to(x, self.batch) for x in (inside & self.mask, added, *at, *behind)]
            chosen, *rest = [place[places[0]] for place in places[1:]]
            if total.ndim == 0:
                total += np.add.reduce(chosen, dtype=total.dtype)
            else:
                np.add.at(total, tuple(rest), chosen)
            return ()

        return Step(run, Effects(updates=True))

    def require(self, test: Atom, failure: Failure, values: Sequence[Atom]) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            holds = test.run(env)
            if not self.holds(holds):
                first = self.first_failure(holds)
                self.failed = int(first[-1]) if first else -1
                raise failure.error([int(self.filled(value.run(env), 0)[first]) for value in values])
            return ()

        return Step(run, Effects(tests=frozenset([test.index])) if test.index >= 0 else PURE)

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Code:
        effects, bound = PURE, len(binders)
        for binding in bindings:
            effects = effects | binding.operation.effects.outside(bound)
            bound += len(binding.types)

        def run(env: Env[Any], arguments: Sequence[Any]) -> list[Any]:
            env = env.enter(arguments)
            for binding in bindings:
                self.origin = binding.origin
                try:
                    env = env.extend(binding.operation.run(env))
                except Refused as error:
                    raise error.at(binding.origin) from None
            return [result.run(env) for result in results]

        ranks = tuple(rank(result.type) for result in results)
        fixed = not bindings and all([not 0 <= result.index < len(binders) for result in results])
        return Code(run, effects, ranks, ufunc_of(binders, bindings, results), fixed)


def _fixed(value: Any, type: Type) -> Atom:
    return Atom(lambda env: value, -1, type, value if np.ndim(value) == 0 else None)


def _zeros(type: Type) -> Any:
    return np.zeros([dim.evaluate({}) for dim in dims(type)], element(type).dtype)


def ufunc_of(binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom]) -> np.ufunc | None:
    """The NumPy function that a block of two scalars is, if it is one whose reduction NumPy has."""
    if len(binders) != 2 or len(bindings) != 1 or len(results) != 1 or results[0].index != 0:
        return None
    applies = bindings[0].operation.applies
    if applies is None:
        return None
    primitive, indices = applies
    standard = PRIMITIVES.get(primitive.name) is primitive
    return _UFUNCS.get(primitive.name) if standard and sorted(indices) == [0, 1] else None


# Running programs


def evaluate_block(
    block: terms.Block,
    arguments: Sequence[Any],
    sizes: dict[str, int],
    vectorize: bool = True,
    show: Show = print_probe,
) -> list[Any]:
    """The results of a block for arguments of its binders' types: new arrays, NumPy scalars, data and functions."""

    def run() -> list[Any]:
        with lifted_limits():
            code = block.interpret(Evaluate(sizes, vectorize, show))
        with np.errstate(all="ignore"):
            return code.run(Env(), arguments)

    results = deeply(run) if uses_functions(block) else run()
    try:
        return [result_value(result, type, sizes) for result, type in zip(results, block.types, strict=True)]
    except MemoryError:  # of one that is the same in each row
        largest = max(range(len(results)), key=lambda k: np.size(results[k]))
        shape = np.shape(results[largest])
        error = Refused(MemoryError, f"no memory for an array of shape {shape}")
    raise error.at(block.origin(block.results[largest]))


def evaluate(program: Function[P, R], *, vectorize: bool = True, show: Show = print_probe) -> Callable[P, R]:
    """The program as a Python function on NumPy arrays, run by the reference interpreter.

    Arguments are arrays of the declared scalar types and sizes, or Python numbers and lists that convert exactly.
    Raises TypeError or ValueError for arguments that do not fit, IndexError for an index out of range and
    ZeroDivisionError for an integer division by zero, with the line of the program. With ``vectorize=False`` every
    loop is run element by element. ``show(name, values)`` is called by every probe that is met, in order.

    >>> import adze as az
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> float(az.evaluate(norm2)([3.0, 4.0]))
    25.0
    """
    family = program.program if isinstance(program, Instance) else as_program(program)
    runnable = program if isinstance(program, Instance) else family

    def run(*args: P.args, **kwargs: P.kwargs) -> Any:
        instance, arrays, sizes = call(runnable, args, kwargs)
        results = evaluate_block(instance.term, arrays, sizes, vectorize, show)
        return trees.unflatten(instance.outputs, results)

    return presented(run, "evaluate", family, result=family.declared)


def call(
    program: Program | Instance, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Instance, list[Any], dict[str, int]]:
    """The instance that a call uses, the leaves of its arguments as arrays, and the sizes they bind."""
    arguments = program.bind(args, kwargs)
    chosen = program if isinstance(program, Instance) else program.instance_for(arguments)
    return chosen, *chosen.signature.convert(chosen.leaves(arguments))
