"""What control flow and the higher-order fragment leave in a trace: nothing but the steps they lead to.

The test of a branch must be known to choose it, and the extent of a loop to run it. In the batch of a sub-trace it may
differ from element to element: then :class:`Diverged` says which belong together, and the loop that the batch is of
makes a sub-trace for each (``lanes.py``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import terms
from ...core.data import value_class
from ...core.dims import Dim, Name, Opaque
from ...core.environment import Env
from ...core.language import Binding, Language
from ...core.primitive import Primitive
from ...core.terms import NOWHERE, Block, Constant, Failure, Foreign, Literal, Operation, Origin, Rules, Size, Variable
from ...core.types import ArrayType, FunctionType, Named, Scalar, Type, array_of, dims, element, i64, map_dims, rank
from ..evaluate import Evaluate, Show
from ..evaluate.batches import Refused
from ..evaluate.functions import DEEPEST
from .keeping import Keeping, has_effect
from .recording import Known, Recorder, constant_atom, free_variables, rebuilt, sized, sized_from_outside

Entry = Any  # Known, an array of Known, a function of entries, a tuple of entries or a value of a declared type
Meaning = Callable[[Env[Entry]], Entry]
Step = Callable[[Env[Entry]], Sequence[Entry]]

_RECORDED = 64  # words of memory that a recorded step takes, at least


@dataclass
class Code:
    """What a block means: a function of an environment and the entries of its parameters."""

    run: Callable[[Env[Entry], Sequence[Entry]], list[Entry]]
    block: Block | None = None


class Diverged(Exception):
    """What is run next differs along an axis of the batch: the parts that agree, as positions along it."""

    def __init__(self, depth: int, parts: Sequence[Any]) -> None:
        super().__init__("control flow differs along a batch")
        self.depth, self.parts = depth, parts


class Control(Language[Meaning, Step, Code]):
    """Atoms, scalars, control flow and functions; the steps go to ``recorder``."""

    def __init__(self, sizes: dict[str, int], keeping: Keeping, show: Show) -> None:
        self.sizes, self.keeping, self.show = dict(sizes), keeping, show
        self.numpy = Evaluate(self.sizes, show=show)
        self.recorder = Recorder(0)
        self.origin = NOWHERE
        self.shows = False  # whether something in the program has an order that is seen: probes, foreign functions
        self.without_rules: Origin | None = None  # where a function with derivatives of its own was taken apart
        self.deep = 0  # calls of functions inside of each other

    # Values and names

    def known(self, entry: Entry) -> Known:
        assert isinstance(entry, Known)
        return entry

    def raw(self, entry: Entry) -> Any:
        """An entry as evaluate has it."""
        return entry.value

    def constant_of(self, known: Known) -> terms.Atom:
        """The atom of a value that has no name and is the same in the whole batch."""
        known.name = constant_atom(known.value, known.type)
        return known.name

    def named(self, known: Known) -> int | terms.Atom:
        """The name of a value; what has none is constant (in a sub-trace: read from an array of constants)."""
        if known.name is not None:
            return known.name
        return self.constant_of(known)

    def atoms(self, entries: Sequence[Entry]) -> tuple[terms.Atom, ...]:
        """What stands for these values in the next step."""
        knowns = [self.known(entry) for entry in entries]
        names = [self.named(known) for known in knowns]  # this may take steps, so places are known afterwards
        return tuple([self.recorder.atom(name, known.type) for name, known in zip(names, knowns, strict=True)])

    def uniform(self, entry: Entry) -> Any:
        """The value of a scalar, which is the same in the whole batch; raises Diverged where it is not."""
        value = self.known(entry).value
        if np.ndim(value) == 0:
            return value
        for axis in range(-1, -1 - np.ndim(value), -1):  # the outermost loop first
            rows = np.ascontiguousarray(np.moveaxis(value, axis, 0).reshape(np.shape(value)[axis], -1))
            if not (rows == rows[0]).all():
                whole = rows.view(np.dtype((np.void, rows[0].nbytes)))  # a row is one item
                _, first, which = np.unique(whole, return_index=True, return_inverse=True)
                which = which.reshape(-1)
                parts = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
                raise Diverged(-1 - axis, [parts[k] for k in np.argsort(first)])
        return value.flat[0]

    def one_by_one(self) -> None:
        """What is run next is for single elements, in order: raises Diverged in a batch of several."""
        batch = self.numpy.batch
        for axis in reversed(range(len(batch))):
            if batch[axis] > 1:
                raise Diverged(len(batch) - 1 - axis, [np.array([k]) for k in range(batch[axis])])

    def extent(self, entry: Entry) -> int:
        return max(0, int(self.uniform(entry)))

    def fixed(self, value: int) -> Known:
        """An integer that the trace has decided."""
        return Known(np.int64(value), i64)

    @contextmanager
    def recording(self, recorder: Recorder) -> Iterator[Recorder]:
        outer, self.recorder = self.recorder, recorder
        try:
            yield recorder
        finally:
            self.recorder = outer

    # Types without size names

    def concrete(self, part: Any) -> Any:
        """A type, size or atom with the sizes of this run."""
        match part:
            case Scalar():
                return part
            case Dim():
                return self._dim(part)
            case Size(dim):
                return Literal.of(dim.evaluate(self.sizes, wraps=True), i64)
            case Literal() | Constant() | str() | int() | Primitive() | Failure() | Foreign():
                return part
        return map_dims(part, self._dim)

    def _dim(self, dim: Dim) -> Dim:
        if dim.constant is not None:
            return dim

        def meaning(atom: Any) -> Dim | None:
            value = self.sizes.get(str(atom)) if isinstance(atom, Name | Opaque) else None
            return None if value is None else Dim.of(value)

        return dim.substitute(meaning)

    def learn(self, type: Type, value: Any) -> Type:
        """The type of a value that is there; the opaque sizes in its declared type are known from now on."""
        if isinstance(type, Scalar):
            return type
        for dim, size in zip(dims(type), np.shape(value), strict=False):
            if dim.constant is None:
                self.sizes.update(_solved(dim, size))
        return array_of(element(type), tuple([Dim.of(n) for n in np.shape(value)[: rank(type)]]))

    # Atoms

    def variable(self, index: int, type: Type) -> Meaning:
        return lambda env: env.get(index)

    def literal(self, value: float | int | bool, type: Scalar) -> Meaning:
        known = Known(type.dtype.type(value), type, Literal.of(value, type))
        return lambda env: known

    def constant(self, array: terms.Constant, type: ArrayType) -> Meaning:
        known = Known(array.array, type, array)
        return lambda env: known

    def dim(self, dim: Dim) -> Meaning:
        known = Known(np.int64(dim.evaluate(self.sizes, wraps=True)), i64)
        return lambda env: known

    # Operations

    def meaning_of_operation(self, operation: Operation) -> Step:
        """What stays becomes a step; the methods say what becomes of the others."""
        if operation.row.acts:
            return self.step(operation)
        shows = operation.row.statement and operation.row.external
        if self.keeping.stays(operation) and operation.op != "primitive" and not shows:
            return self.step(operation)
        dropped = not any(self.keeping(type) or self.keeping.parts(type) for type in operation.types)
        if dropped and self.keeping.straight(operation) and not has_effect(operation):
            return self.unrecorded(operation)
        return super().meaning_of_operation(operation)

    def unrecorded(self, operation: Operation) -> Step:
        """An operation whose results are all dropped: its values alone."""
        evaluated = self._evaluated(operation)

        def run(env: Env[Entry]) -> Sequence[Entry]:
            return [Known(v, self.learn(t, v)) for v, t in zip(evaluated(env), operation.types, strict=True)]

        return run

    def _evaluated(self, operation: Operation) -> Callable[[Env[Entry]], Sequence[Any]]:
        """The values of an operation, which is straight; what has an order is run for single elements."""
        step = self.numpy.meaning_of_operation(operation)

        def run(env: Env[Entry]) -> Sequence[Any]:
            if not (step.effects.ordered and self.numpy.batch):
                return step.run(env.mapped(self.raw))
            self.one_by_one()
            with self.numpy.inside((), np.True_):
                return step.run(env.mapped(lambda entry: _alone(self.raw(entry), entry.type)))

        return run

    def step(self, operation: Operation) -> Step:
        """An operation as a step of its own, with its blocks moved to where it stands."""
        args, free = [self.meaning_of_atom(a) for a in operation.args], free_variables(operation)
        evaluated, inner = self._evaluated(operation), sized_from_outside(operation)

        def run(env: Env[Entry]) -> Sequence[Entry]:
            values = evaluated(env)
            if operation.static and isinstance(operation.static[0], Dim):
                self.sizes.update(_solved(operation.static[0], args[0](env).value))
            types = tuple([self.learn(t, v) for t, v in zip(operation.types, values, strict=True)])
            known = {index: self.known(env.get(index)) for index in free}
            for index, type in free.items():
                self.learn(type, known[index].value)
            for dim, index in inner:
                self.sizes.update(_solved(dim, known[index].value))
            names = {index: self.named(x) for index, x in known.items()}
            atoms = self.atoms([arg(env) for arg in args])
            depth = self.recorder.depth

            def placed(variable: Variable, bound: int) -> terms.Atom:
                name = names[variable.index]
                return Variable(depth + bound - 1 - name, known[variable.index].type) if isinstance(name, int) else name

            blocks = tuple([rebuilt(block, placed, self.concrete) for block in operation.blocks])
            static = tuple([self.concrete(part) for part in operation.static])
            step = Operation(operation.op, static, sized(static, atoms), blocks, types, operation.origin)
            return self.recorder.emit(step, values)

        return run

    def primitive(self, primitive: Primitive, args: Sequence[Meaning]) -> Step:
        function, static = primitive.numpy, (primitive,)

        def run(env: Env[Entry]) -> Sequence[Entry]:
            knowns = [arg(env) for arg in args]
            type = primitive.result_type([known.type for known in knowns])
            value = function(*[known.value for known in knowns])
            if getattr(value, "dtype", None) != type.dtype:
                value = np.asarray(value).astype(type.dtype)[()]
            if not self.keeping(type):
                return (Known(value, type),)
            step = Operation("primitive", static, self.atoms(knowns), (), (type,), self.origin)
            return self.recorder.emit(step, (value,))

        return run

    def require(self, test: Meaning, failure: Failure, values: Sequence[Meaning]) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            if not np.all(test(env).value):
                raise failure.error([int(self.uniform(value(env))) for value in values])
            return ()

        return run

    def probe(self, name: str, values: Sequence[Meaning]) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            entries = [value(env) for value in values]
            self.one_by_one()
            self.show(name, [_alone(self.raw(entry), self.output_types[k]) for k, entry in enumerate(entries)])
            if not all(map(self.keeping, self.output_types)):
                return entries
            types = tuple([self.known(entry).type for entry in entries])
            step = Operation("probe", (name,), self.atoms(entries), (), types, self.origin)
            return self.recorder.emit(step, [entry.value for entry in entries])

        return run

    def custom(self, rules: Rules, args: Sequence[Meaning], body: Code, blocks: Sequence[Code]) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            if blocks:
                self.without_rules = self.origin
            return body.run(env, [arg(env) for arg in args])

        return run

    # Control flow

    def cond(self, test: Meaning, then: Code, orelse: Code) -> Step:
        return lambda env: then.run(env, ()) if self.uniform(test(env)) else orelse.run(env, ())

    def loop(self, dim: Dim, extent: Meaning, initials: Sequence[Meaning], body: Code) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            state, rows = [initial(env) for initial in initials], []
            steps, types = self.extent(extent(env)), self.output_types[len(initials) :]
            before = len(self.recorder.bindings)
            for i in range(steps):
                results = body.run(env, [self.fixed(i), *state])
                if i == 0:
                    self.require_room(steps, before, results[len(initials) :])
                state = results[: len(initials)]
                rows.append(results[len(initials) :])
            return [*state, *self.stacked(rows, types)]

        return run

    def require_room(self, steps: int, before: int, row: Sequence[Entry]) -> None:
        """Refuse so many steps like the first one, which has given a row and recorded what came since ``before``."""
        recorded = len(self.recorder.bindings) - before
        try:
            np.empty((steps, len(row) + recorded * _RECORDED), np.int64)  # of which no page is touched
        except (MemoryError, ValueError):
            what = f"of which the first one records {recorded}" if recorded else "each of which gives a row"
            raise Refused(MemoryError, f"no memory for the trace of {steps} iterations, {what}") from None

    def while_loop(self, initials: Sequence[Meaning], test: Code, body: Code) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            state, trips = [initial(env) for initial in initials], 0
            while self.uniform(test.run(env, state)[0]):
                state = body.run(env, state)
                trips += 1
            return [*state, self.fixed(trips)]

        return run

    @abstractmethod
    def stacked(self, rows: Sequence[Sequence[Entry]], types: Sequence[Type]) -> list[Entry]:
        """The arrays of these types whose rows are given, one column of entries an array."""

    def par(self, branches: Sequence[Code]) -> Step:
        return lambda env: [entry for branch in branches for entry in branch.run(env, ())]

    def case(self, value: Meaning, variants: tuple[str, ...], branches: Sequence[Code]) -> Step:
        chosen = dict(zip(variants, branches, strict=True))

        def run(env: Env[Entry]) -> Sequence[Entry]:
            data = value(env)
            return chosen[data._variant].run(env, data._values)

        return run

    # Functions, tuples and declared types

    def function(self, type: FunctionType, body: Code) -> Step:
        return lambda env: (lambda *arguments: body.run(env, arguments),)

    def fix(self, type: FunctionType, body: Code) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            def recursive(*arguments: Entry) -> list[Entry]:
                return body.run(env, (recursive, *arguments))

            return (recursive,)

        return run

    def apply(self, function: Meaning, args: Sequence[Meaning]) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            if self.deep >= DEEPEST:
                raise Refused(RecursionError, f"functions call each other {DEEPEST} deep: this recursion has no end")
            called, arguments = function(env), [arg(env) for arg in args]
            self.deep += 1
            try:
                results: Sequence[Entry] = called(*arguments)
            finally:
                self.deep -= 1
            return results

        return run

    def pack(self, items: Sequence[Meaning]) -> Step:
        return lambda env: (tuple([item(env) for item in items]),)

    def project(self, value: Meaning, position: int) -> Step:
        return lambda env: (value(env)[position],)

    def construct(self, type: Named, variant: str, fields: Sequence[Meaning]) -> Step:
        cls = value_class(type.declaration, variant)
        return lambda env: (cls._of([field(env) for field in fields]),)

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Meaning], names: Sequence[str]
    ) -> Code:
        def run(env: Env[Entry], arguments: Sequence[Entry]) -> list[Entry]:
            env = env.enter(arguments)
            for step, types, origin in bindings:
                self.origin, self.output_types = origin, types
                try:
                    env = env.extend(step(env))
                except Refused as error:
                    raise error.at(origin) from None
            return [result(env) for result in results]

        return Code(run)

    def meaning_of_block(self, block: Block) -> Code:
        code = super().meaning_of_block(block)
        code.block = block
        return code

    def check_neutral(
        self,
        construct: str,
        origin: Origin,
        units: Sequence[Entry],
        first: Sequence[Entry],
        operator: Code,
        env: Env[Entry],
    ) -> None:
        """Refuse a neutral element that changes the first element, where evaluate does."""
        assert operator.block is not None
        code, inside = self.numpy.meaning_of_block(operator.block), env.mapped(self.raw)
        neutrals, elements = ([self.raw(entry) for entry in entries] for entries in (units, first))
        self.numpy.check_neutral(construct, origin, neutrals, elements, lambda a, b: code.run(inside, [*a, *b]), code)


def _alone(value: Any, type: Type) -> Any:
    """A value without the axes of a batch of one element."""
    return np.reshape(value, np.shape(value)[: rank(type)])[()]


def _solved(dim: Dim, size: Any) -> dict[str, int]:
    """The opaque size that a dim has, if it has one and is linear in it, where the dim is so large."""
    opaque = [atom for atom in dim.atoms() if isinstance(atom, Opaque)]
    if len(opaque) != 1 or dim.names() or np.size(size) == 0 or not np.all(size == np.ravel(size)[0]):
        return {}
    constant, factor = 0, 0
    for monomial, c in dim.terms:
        if monomial == ():
            constant = c
        elif monomial == (opaque[0],):
            factor = c
        else:
            return {}
    return {str(opaque[0]): (int(np.ravel(size)[0]) - constant) // factor}
