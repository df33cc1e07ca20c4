"""The reference interpreter: what a program means, in NumPy.

An atom means ``env -> value``, an operation ``env -> values``, a block ``(env, arguments) -> values``. Values are
NumPy scalars and arrays of the declared types. There is one idea beside that: a loop need not run element by element.
Its body can run once, with a vector of all its indices in the place of the index. Inside there is a *batch*: the
extents of the loops run this way, innermost first. A scalar is then an array that broadcasts to the batch, and an
array carries the last few batch axes behind its own, so that NumPy's broadcasting aligns everything:

    for i < n: sum(j < m: x[i, j] * y[j])      i: (n,)   j: (m, 1)   x[i, j]: (m, n)   the sum, over axis 0: (n,)

Both branches of a ``cond`` run where its test differs along the batch, with a *mask* that says where updates and
requirements are meant. Where this is not possible (an extent that differs along the batch, too many elements) the loop
runs in Python, in the batch around it. ``vectorize=False`` runs every loop in Python; the tests compare the two.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import terms, trees
from ..core.arguments import convert
from ..core.dims import Dim
from ..core.environment import Env
from ..core.language import Binding, Language
from ..core.primitive import PRIMITIVES, Primitive
from ..core.program import Instance, Program, as_program
from ..core.terms import Failure
from ..core.types import ArrayType, Scalar, Type, element, i64, rank

Meaning = Callable[[Env[Any]], Any]

# A loop runs at once while the batch holds at most so many elements.
LARGEST_BATCH = 1 << 20

# Operators whose reduction NumPy has.
_UFUNCS = {name: getattr(np, name) for name in ("add", "multiply", "minimum", "maximum")}


class _Irregular(Exception):
    """Something differs along the batch that must not: run the innermost loop in Python."""


class _NotNeutral(Exception):
    """A neutral element that is not: what it is, what it met, and what came out."""


@dataclass(frozen=True)
class Atom:
    """What an atom means, with its De Bruijn index (or -1) and type."""

    run: Meaning
    index: int
    type: Type


@dataclass(frozen=True)
class Effects:
    """What decides how a loop around some code may run."""

    updates: bool = False  # adds to an accumulator: must not be tried twice
    irregular: bool = False  # an extent is computed, so running it at once may fail

    def __or__(self, other: Effects) -> Effects:
        return Effects(self.updates or other.updates, self.irregular or other.irregular)


PURE = Effects()


@dataclass(frozen=True)
class Step:
    """What an operation means."""

    run: Callable[[Env[Any]], Sequence[Any]]
    effects: Effects = PURE
    applies: tuple[Primitive, tuple[int, ...]] | None = None  # a primitive and the indices of its variables


@dataclass(frozen=True)
class Code:
    """What a block means."""

    run: Callable[[Env[Any], Sequence[Any]], list[Any]]
    effects: Effects
    ranks: tuple[int, ...]  # of the results
    ufunc: np.ufunc | None = None  # of a binary function that is one of NumPy's


class Evaluate(Language[Atom, Step, Code]):
    """The meanings for one call, in which the size names have these values."""

    def __init__(self, sizes: dict[str, int], vectorize: bool = True) -> None:
        self.sizes = sizes
        self.largest = LARGEST_BATCH if vectorize else 0
        self.batch: tuple[int, ...] = ()
        self.mask: Any = np.True_

    # Atoms

    def variable(self, index: int, type: Type) -> Atom:
        return Atom(lambda env: env.get(index), index, type)

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return _fixed(type.dtype.type(value), type)

    def constant(self, array: terms.Constant, type: ArrayType) -> Atom:
        return _fixed(array.array, type)

    def dim(self, dim: Dim) -> Atom:
        return _fixed(np.int64(dim.evaluate(self.sizes)), i64)

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
        effects = then.effects | orelse.effects

        def run(env: Env[Any]) -> Sequence[Any]:
            chosen = test.run(env)
            if np.ndim(chosen) == 0 or chosen.all() or not chosen.any():
                return then.run(env, ()) if np.all(chosen) else orelse.run(env, ())
            if effects.irregular:
                raise _Irregular
            with self._inside(self.batch, self.mask & chosen):
                first = then.run(env, ())
            with self._inside(self.batch, self.mask & ~chosen):
                second = orelse.run(env, ())
            return [
                np.where(chosen, a if r == 0 else self.filled(a, r), b if r == 0 else self.filled(b, r))
                for a, b, r in zip(first, second, then.ranks, strict=True)
            ]

        return Step(run, effects)

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Code) -> Step:
        count = len(initials)

        def run(env: Env[Any]) -> Sequence[Any]:
            state, outputs = [initial.run(env) for initial in initials], []
            steps = _extent(extent.run(env))
            for i in range(steps):
                results = body.run(env, [np.int64(i), *state])
                state = results[:count]
                outputs.append(results[count:])
            if len(body.ranks) == count:
                return state
            if not outputs:
                return [*state, *self.all_at_once(0, lambda i: body.run(env, [i, *state])[count:], body.ranks[count:])]
            return [*state, *[self.stacked(column, r) for *column, r in zip(*outputs, body.ranks[count:], strict=True)]]

        return Step(run, _around(extent, body))

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
            return (value[(*inside, *self.mesh(value.ndim - len(at)))],)

        return Step(run)

    def generate(self, dim: Dim, extent: Atom, body: Code) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            return self.for_all(_extent(extent.run(env)), lambda i: body.run(env, [i]), body)

        return Step(run, _around(extent, body))

    def reduce(self, extent: Atom, neutrals: Sequence[Atom], element: Code, operator: Code) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            units = [neutral.run(env) for neutral in neutrals]
            count = _extent(extent.run(env))
            if count == 0:
                return units
            elements = self.for_all(count, lambda i: element.run(env, [i]), element)
            first = [column[0] for column in elements]
            results = operator.run(env, [*units, *first])
            for unit, x, result, r in zip(units, first, results, element.ranks, strict=True):
                same = (result == x) | ((result != result) & (x != x))
                if not self._holds(self.filled(same, r) if self.batch else same):
                    raise _NotNeutral(f"{_some(unit)}: combined with {_some(x)} it gives {_some(result)}")
            if operator.ufunc is not None:
                return [operator.ufunc.reduce(elements[0], axis=0, dtype=elements[0].dtype)]
            total: Sequence[Any] = first
            for k in range(1, count):
                total = operator.run(env, [*total, *[column[k] for column in elements]])
            return total

        effects = _around(extent, element)
        return Step(run, effects | operator.effects)

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
            behind = total.ndim - len(at)
            inside = functools.reduce(np.logical_and, [(i >= 0) & (i < n) for i, n in zip(at, total.shape)], np.True_)
            if not self.batch:
                if inside and self.mask:
                    total[tuple(at)] += added
                return ()
            places = [np.broadcast_to(x, self.batch) for x in (inside & self.mask, added, *at, *self.mesh(behind))]
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
            if not self._holds(holds):
                shown = np.broadcast_arrays(holds | ~self.mask, *[value.run(env) for value in values])
                first = int(np.argmin(shown[0]))
                raise failure.error([int(value.flat[first]) for value in shown[1:]])
            return ()

        return Step(run)

    def _holds(self, test: Any) -> bool:
        """Whether a test holds wherever it is meant."""
        return 0 in self.batch or bool(np.all(test | ~self.mask))

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
                try:
                    env = env.extend(binding.operation.run(env))
                except _NotNeutral as error:
                    raise ValueError(
                        f"reduce: the neutral element is not neutral: {error}, at {binding.origin}"
                    ) from None
            return [result.run(env) for result in results]

        return Code(run, effects, tuple(rank(result.type) for result in results), _ufunc(binders, bindings, results))

    # Loops, in Python or at once

    def for_all(self, extent: int, body: Callable[[Any], list[Any]], code: Code) -> list[Any]:
        """The results of a body for all indices, stacked."""
        batch = int(np.prod(self.batch, dtype=np.float64)) * extent
        safe = not (code.effects.updates and code.effects.irregular)
        if extent == 0 or (safe and batch <= self.largest):
            try:
                return self.all_at_once(extent, body, code.ranks)
            except _Irregular:
                pass
        rows = [body(np.int64(i)) for i in range(extent)]
        return [self.stacked([row[k] for row in rows], r) for k, r in enumerate(code.ranks)]

    def all_at_once(self, extent: int, body: Callable[[Any], list[Any]], ranks: Sequence[int]) -> list[Any]:
        """The same, from one run with a vector of indices as a new first axis of the batch."""
        index = np.arange(extent).reshape((extent,) + (1,) * len(self.batch))
        with self._inside((extent, *self.batch), self.mask):
            return [np.moveaxis(self.filled(value, r), r, 0) for value, r in zip(body(index), ranks, strict=True)]

    @contextmanager
    def _inside(self, batch: tuple[int, ...], mask: Any) -> Iterator[None]:
        outer = self.batch, self.mask
        self.batch, self.mask = batch, mask
        try:
            yield
        finally:
            self.batch, self.mask = outer

    def stacked(self, values: Sequence[Any], r: int) -> Any:
        """Values of the same type as one array with a new first axis."""
        if any(np.ndim(value) != r for value in values):
            values = [self.filled(value, r) for value in values]
        return np.stack(values)

    def filled(self, value: Any, r: int) -> Any:
        """A value of rank r with the whole batch behind its own axes."""
        shape, batch = np.shape(value), self.batch
        missing = (1,) * (len(batch) - (len(shape) - r))
        return np.broadcast_to(np.reshape(value, (*shape[:r], *missing, *shape[r:])), (*shape[:r], *batch))

    def mesh(self, axes: int) -> list[Any]:
        """The index vectors of the last axes of the batch, which an array made in an outer batch has behind its own."""
        behind = self.batch[len(self.batch) - axes :]
        return [np.arange(n).reshape((n,) + (1,) * (axes - 1 - k)) for k, n in enumerate(behind)]


def _fixed(value: Any, type: Type) -> Atom:
    return Atom(lambda env: value, -1, type)


def _extent(value: Any) -> int:
    """The number of steps of a loop, the same for the whole batch; no steps where nothing runs it."""
    if np.ndim(value):
        if np.size(value) == 0:
            return 0
        if not np.all(value == value.flat[0]):
            raise _Irregular
        value = value.flat[0]
    return max(0, int(value))


def _around(extent: Atom, body: Code) -> Effects:
    return Effects(body.effects.updates, body.effects.irregular or extent.index >= 0)


def _ufunc(binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom]) -> np.ufunc | None:
    """The NumPy function that a block of two scalars is, if it is one whose reduction NumPy has."""
    if len(binders) != 2 or len(bindings) != 1 or len(results) != 1 or results[0].index != 0:
        return None
    applies = bindings[0].operation.applies
    if applies is None:
        return None
    primitive, indices = applies
    standard = PRIMITIVES.get(primitive.name) is primitive
    return _UFUNCS.get(primitive.name) if standard and sorted(indices) == [0, 1] else None


def _some(value: Any) -> str:
    return str(value.flat[0] if np.size(value) and np.ndim(value) else value)


# Running programs


def evaluate_block(
    block: terms.Block, arguments: Sequence[Any], sizes: dict[str, int], vectorize: bool = True
) -> list[Any]:
    """The results of a block for arguments of its binders' types: new arrays and NumPy scalars."""
    with np.errstate(all="ignore"):
        results = block.interpret(Evaluate(sizes, vectorize)).run(Env(), arguments)
    return [np.array(result, order="C")[()] for result in results]


def evaluate(program: Program | Instance | Callable[..., Any], *, vectorize: bool = True) -> Callable[..., Any]:
    """The program as a Python function on NumPy arrays, run by the reference interpreter.

    Arguments are arrays of the declared scalar types and sizes, or Python numbers and lists that convert exactly.
    Raises TypeError or ValueError for arguments that do not fit, IndexError for an index out of range and
    ZeroDivisionError for an integer division by zero, with the line of the program. With ``vectorize=False`` every
    loop is run element by element.

    >>> import adze as az
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> float(az.evaluate(norm2)([3.0, 4.0]))
    25.0
    """
    if isinstance(program, Instance):
        chosen, family = program, program.program
    else:
        chosen, family = None, as_program(program)

    def run(*args: Any, **kwargs: Any) -> Any:
        if chosen is not None:  # its static arguments need not be given again
            given = {parameter.name for parameter in family.parameters[: len(args)]}
            kwargs = {name: value for name, value in chosen.statics.items() if name not in given} | kwargs
        arguments = family.bind(args, kwargs)
        instance = chosen or family.instance_for(arguments)
        arrays, sizes = convert(instance, family.leaves(arguments))
        results = evaluate_block(instance.term, arrays, sizes, vectorize)
        return trees.unflatten(instance.outputs, results)

    run.__name__ = run.__qualname__ = f"evaluate({family.name})"
    run.__doc__ = family.__doc__
    return run
