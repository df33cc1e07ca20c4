"""Arrays kept: a map is one sub-trace, on a vector of indices, or one for each way that its elements take.

Where nothing branches, a construct stays one step. Otherwise a ``generate`` runs its body once in the batch of all its
elements (``evaluate/batches.py``). If what is run next differs among them, they are parted, and each part is run by
itself; so there is a sub-trace for each branch pattern, over the elements that took it:

    [x * a if x > 0 else 0 for x in xs]        positives = [xs[at[j]] * a for j < 3], at = [0, 2, 5]
                                               zeros = [0 for j < 3], at' = [1, 3, 4]
                                               an array with positives at ``at`` and zeros at ``at'``

That is at most a sub-trace an element, which the paper makes of every map that branches (section 3.4), and few where
few ways are taken. A fold whose operator branches is unrolled; its elements are a map before it.

What a step adds to an accumulator of an accumulate that branches is collected, and added in one step at its end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.builder import Builder, build
from ...core.dims import Dim, Opaque
from ...core.environment import Env
from ...core.graph import Value
from ...core.placement import to_block
from ...core.terms import Atom, Block, Constant, Literal, Operation, Variable
from ...core.types import ArrayType, Type, array_of, dims, element, i64, rank
from ..embed import accumulate
from ..evaluate.batches import LARGEST_BATCH, Irregular, require_room
from ..evaluate.functions import uses_functions
from .control import Code, Control, Diverged, Entry, Meaning, Step
from .joining import Part, join
from .keeping import has_effect, has_order
from .recording import Known, Recorder, constant_atom, shifted


class Cell:
    """An accumulator of an accumulate that is taken apart."""


@dataclass(frozen=True)
class Addition:
    """Values to be added at places, over the loops that they are added in; what is the same in all is a scalar."""

    cell: Cell
    extents: tuple[int, ...]
    value: Known
    place: Sequence[Known]

    def parts(self) -> list[Known]:
        return [self.value, *self.place]

    def over(self, extent: int, parts: Sequence[Known]) -> Addition:
        """The same in a loop around, from the parts as they are there."""
        return Addition(self.cell, (extent, *self.extents), parts[0], parts[1:])


class Lanes(Control):
    """The array constructs, in batches."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.indices: list[Known] = []  # the loop variables of the batch, the innermost first
        self.additions: list[Addition] = []
        self.unnamed = 0  # sizes that have no name in the program
        self.forced = False  # while steps are read that belong together

    # Constants in a batch

    def named(self, known: Known) -> int | Atom:
        if known.name is not None:
            return known.name
        table, loops = self._table(known)
        if not loops:
            return self.constant_of(known)
        read = _read(table, self.atoms(loops), dims(known.type))
        return self.recorder.emit(read, [known.value])[0].level

    def constant_of(self, known: Known) -> Atom:
        """The atom of a value without a name that is the same in the whole batch."""
        known.name = self._table(known)[0]
        return known.name

    def _table(self, known: Known) -> tuple[Atom, list[Known]]:
        """A constant, and the loops of the batch over which it is an array."""
        own, value = rank(known.type), np.asarray(known.value)
        varying = [axis for axis in range(own, value.ndim) if value.shape[axis] > 1]
        table = value.transpose(*varying, *range(own), *[k for k in range(own, value.ndim) if k not in varying])
        table = table.reshape(table.shape[: len(varying) + own])
        return constant_atom(table[()], known.type), [self.indices[axis - value.ndim] for axis in varying]

    # Loops of a body that branches

    def generate(self, dim: Dim, extent: Meaning, body: Code) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            types = self.output_types
            return self.lanes(self.extent(extent(env)), lambda i: body.run(env, [i]), types, ordered)

        assert body.block is not None
        ordered = has_order(body.block) or (self.shows and uses_functions(body.block))
        return run

    def lanes(
        self, count: int, body: Callable[[Known], Sequence[Entry]], types: Sequence[Type], ordered: bool
    ) -> list[Entry]:
        """The arrays of these types of a body's results for so many indices, at once or in order."""
        if count == 0:
            return [self._empty(type) for type in types]
        require_room(count, [np.int64(0)])
        groups: list[tuple[Any, list[Known]]] = []
        most = 1 if ordered else max(1, LARGEST_BATCH // math.prod(self.numpy.batch))
        todo = deque([np.arange(k, min(k + most, count)) for k in range(0, count, most)])
        while todo:
            at = todo.popleft()
            before = len(self.additions)
            try:
                groups.append((at, self._lane(at, count, body, types)))
            except Diverged as difference:
                del self.additions[before:]
                if difference.depth != len(self.numpy.batch):
                    raise
                todo.extendleft([at[part] for part in difference.parts][::-1])
            except Irregular:  # an extent inside of a step differs
                del self.additions[before:]
                if len(at) == 1:
                    raise
                todo.extendleft([at[k : k + 1] for k in range(len(at))][::-1])
        if len(groups) == 1:
            return list(groups[0][1])
        return self.joined([(at, columns) for at, columns in groups], count, types)

    def _lane(
        self, at: Any, count: int, body: Callable[[Known], Sequence[Entry]], types: Sequence[Type]
    ) -> list[Known]:
        """The results of a body for some indices, which all take the same way: one sub-trace."""
        batch, whole, before = self.numpy.batch, len(at) == count, len(self.additions)
        with self.recording(Recorder(self.recorder.depth, (i64,))) as inside:
            shape = (len(at),) + (1,) * len(batch)
            loop = Known(np.arange(len(at)).reshape(shape), i64, inside.depth - 1)
            with self.numpy.inside((len(at), *batch), np.True_):
                self.indices.insert(0, loop)
                try:
                    results = [self.known(entry) for entry in body(loop if whole else self._chosen(at, loop))]
                    additions = self.additions[before:]
                    results += [x for addition in additions for x in addition.parts() if _inside(x, inside)]
                    gathered = [self.numpy.gathered(known.value, rank(known.type)) for known in results]
                    kept = [k for k, known in enumerate(results) if self.keeping(known.type)]
                    block = inside.block(self.atoms([results[k] for k in kept]))
                finally:
                    self.indices.pop(0)
        columns = [Known(value, _stacked(len(at), x.type)) for value, x in zip(gathered, results, strict=True)]
        if kept or any(map(has_effect, block.bindings)):
            made = tuple([columns[k].type for k in kept])
            extent = Literal.of(len(at), i64)
            operation = Operation("generate", (Dim.of(len(at)),), (extent,), (block,), made, self.origin)
            for k, known in zip(kept, self.recorder.emit(operation, [columns[k].value for k in kept]), strict=True):
                columns[k] = known
        spread = iter(columns[len(types) :])
        self.additions[before:] = [
            addition.over(len(at), [next(spread) if _inside(x, inside) else x for x in addition.parts()])
            for addition in additions
        ]
        return columns[: len(types)]

    def _chosen(self, at: Any, loop: Known) -> Known:
        """The index of the element that a lane is."""
        known = Known(at.reshape(loop.value.shape), i64)
        if self.keeping(i64):
            read = _read(Constant.capture(at), self.atoms([loop]), ())
            known.name = self.recorder.emit(read, [known.value])[0].name
        return known

    def _empty(self, type: Type) -> Known:
        shape = [0, *[self._dim(dim).constant or 0 for dim in dims(type)[1:]]]
        return Known(np.zeros(shape, element(type).dtype), array_of(element(type), tuple(map(Dim.of, shape))))

    # Arrays of parts

    def stacked(self, rows: Sequence[Sequence[Entry]], types: Sequence[Type]) -> list[Entry]:
        if not rows:
            return [self._empty(type) for type in types]
        parts = [(np.int64(k), [self.known(entry) for entry in row]) for k, row in enumerate(rows)]
        return self.joined(parts, len(rows), types)

    def joined(self, parts: Sequence[tuple[Any, Sequence[Known]]], count: int, types: Sequence[Type]) -> list[Entry]:
        """Arrays with the given rows at the given places, each of which occurs once: an index, or a vector of them."""
        return [self._joined([(at, columns[k]) for at, columns in parts], count) for k in range(len(types))]

    def _joined(self, parts: Sequence[tuple[Any, Known]], count: int) -> Known:
        at, first = parts[0]
        row = array_of(element(first.type), dims(first.type)[np.ndim(at) :])
        type, shape = _stacked(count, row), [dim.constant or 0 for dim in dims(row)]
        value = np.empty((count, *shape, *self.numpy.batch), type.scalar.dtype)
        for at, known in parts:
            value[at] = self.numpy.filled(known.value, rank(known.type))
        if not self.keeping(type):
            return Known(value, type)
        named = [Part(at, self.named(known), known.type) for at, known in parts]
        return join(self.recorder, named, type, value)

    def fragment(
        self, knowns: Sequence[Known], emit: Callable[[Builder, Sequence[Value]], Sequence[Value]]
    ) -> list[Entry]:
        """Steps on values of the run, written with the builder."""
        with build() as builder:
            binders = [builder.variable(known.type) for known in knowns]
            builder.origin = self.origin
            results = emit(builder, binders)
            block, _ = to_block(binders, results, builder.scopes[0].statements, [""] * len(binders))
        self.forced = True
        try:
            code = block.interpret(self)
        finally:
            self.forced = False
        return code.run(Env(), knowns)

    # Folds

    def meaning_of_operation(self, operation: Operation) -> Step:
        kept = any(map(self.keeping, operation.types))
        if self.forced and kept and self.keeping.straight(operation) and operation.op != "primitive":
            return self.step(operation)
        whole = self.keeping.stays(operation) or (self.keeping.straight(operation) and not kept)
        if operation.row.makes_elements and operation.op != "generate" and not whole:
            return self._over_columns(operation)
        return super().meaning_of_operation(operation)

    def _over_columns(self, operation: Operation) -> Step:
        """A construct over elements that branch, or are combined by what branches: first the elements, as arrays."""
        extents = operation.row.iterations(operation)
        columns, axes = self._columns(operation.blocks[0], extents), len(extents)
        operator = [self.meaning_of_block(block) for block in operation.blocks[1:]]
        args = [self.meaning_of_atom(a) for a in operation.args]

        def run(env: Env[Entry]) -> Sequence[Entry]:
            types = self.output_types
            found = [self.known(entry) for entry in columns(env)]
            if operator and not self.keeping.combines(operation):
                given = [arg(env) for arg in args]
                return self._sequential(operation, given, found, operator[0], env, types)
            bound = [*found, *self.indices]
            rest = Operation(
                operation.op,
                operation.static,
                tuple([_up(a, len(bound)) for a in operation.args]),
                (self._element(found, axes), *[shifted(block, len(bound)) for block in operation.blocks[1:]]),
                operation.types,
                operation.origin,
            )
            again = self.step if any(map(self.keeping, types)) else self.unrecorded
            return again(rest)(env.extend(bound))

        return run

    def _columns(self, row: Block, extents: Sequence[Atom]) -> Step:
        """The elements over these extents, as arrays."""
        block = Block((i64,) if extents else (), row.bindings, row.results)
        for k in reversed(range(len(extents))):
            self.unnamed += 1
            dim = Dim.atom(Opaque(-self.unnamed))
            types = tuple([array_of(element(type), (dim, *dims(type))) for type in block.types])
            operation = Operation("generate", (dim,), (_up(extents[k], k),), (block,), types)
            results = tuple([Variable(len(types) - 1 - j, type) for j, type in enumerate(types)])
            block = Block((i64,) if k else (), (operation,), results)
        code = self.meaning_of_block(block)
        return lambda env: code.run(env, ())

    def _element(self, columns: Sequence[Known], axes: int) -> Block:
        """The element that is read from columns, behind which the loops of the batch are bound."""
        bindings: list[Operation] = []
        results: list[Atom | None] = []
        for j, column in enumerate(columns):
            own = [Variable(axes - 1 - k + len(bindings), i64) for k in range(axes)]
            source: Atom = Variable(len(columns) - 1 - j + len(self.indices) + axes, column.type)
            places: list[Atom] = []
            if column.name is None:
                source, loops = self._table(column)
                behind = [len(self.indices) - 1 - self.indices.index(loop) for loop in loops]
                places = [Variable(k + axes + len(bindings), i64) for k in behind]
            if places or own:
                bindings.append(_read(_up(source, len(bindings)), [*places, *own], dims(column.type)[axes:]))
            results.append(None if places or own else source)
        read = iter([Variable(len(bindings) - 1 - j, o.types[0]) for j, o in enumerate(bindings)])
        found = [next(read) if result is None else _up(result, len(bindings)) for result in results]
        return Block((i64,) * axes, tuple(bindings), tuple(found))

    def _sequential(
        self,
        operation: Operation,
        given: Sequence[Entry],
        columns: Sequence[Known],
        operator: Code,
        env: Env[Entry],
        types: Any,
    ) -> Sequence[Entry]:
        """A reduction, scan or histogram whose operator branches: one application after the other."""
        op, row, origin, count = operation.op, operation.row, operation.origin, dims(columns[0].type)[0].constant or 0
        elements = [[self.part(column, k) for column in columns] for k in range(count)]
        if row.places:
            bins = self.extent(given[0])
            placed = [(int(self.uniform(place)), values) for place, *values in elements]
            placed = [(k, values) for k, values in placed if 0 <= k < bins]
            for _, values in placed[:1]:
                self.check_neutral(op, origin, given[2:], values, operator, env)
            totals: list[Sequence[Entry]] = [list(given[2:]) for _ in range(bins)]
            for k, values in placed:
                totals[k] = operator.run(env, [*totals[k], *values])
            return self.stacked(totals, types)
        for x in elements[:1]:
            self.check_neutral(op, origin, given[1:], x, operator, env)
        running: list[Sequence[Entry]] = []
        for x in elements:
            running.append(operator.run(env, [*running[-1], *x]) if running else x)
        if row.stacked:
            return self.stacked(running, types)
        return running[-1] if running else given[1:]

    def part(self, array: Known, place: int) -> Known:
        """A step that reads what stands at an index of the first axis."""
        value, axes = array.value[place], dims(array.type)[1:]
        if array.name is None or not self.keeping(array.type):
            return Known(value, array_of(element(array.type), axes))
        read = _read(self.atoms([array])[0], [Literal.of(place, i64)], axes)
        return self.recorder.emit(read, [value])[0]

    # Accumulators

    def accumulate(self, initials: Sequence[Meaning], body: Code) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            before = len(self.additions)
            totals = [self.known(initial(env)) for initial in initials]
            cells = [Cell() for _ in totals]
            results = body.run(env, cells)
            added = self.additions[before:]
            self.additions[before:] = [addition for addition in added if addition.cell not in cells]
            finals = [
                self._total(x, [a for a in added if a.cell is cell]) for x, cell in zip(totals, cells, strict=True)
            ]
            return [*finals, *results]

        return run

    def _total(self, initial: Known, additions: Sequence[Addition]) -> Known:
        """A value with everything added that was meant for it."""
        named = [x for addition in additions for x in addition.parts() if x.name is not None]

        def emit(builder: Builder, values: Sequence[Value]) -> Sequence[Value]:
            rest, loops = iter(values[1 : 1 + len(named)]), values[1 + len(named) :]

            def reader(part: Known) -> Callable[..., Value]:
                """The part for the loops of its addition; what has no name is read from a constant."""
                table, around = (None, []) if part.name is not None else self._table(part)
                value = next(rest) if table is None else builder.atom(table)
                outer = [loops[self.indices.index(loop)] for loop in around]
                return lambda *own: builder.index(value, [*outer, *own[: rank(part.type)]])

            def body(cell: Value) -> Sequence[Value]:
                for addition in additions:
                    parts = [reader(part) for part in addition.parts()]

                    def add(*own: Value, parts: Sequence[Callable[..., Value]] = parts) -> None:
                        builder.emit("add_to", (), [cell, *[part(*own) for part in parts]])

                    builder.each([builder.literal(n, i64) for n in addition.extents], add)
                return []

            return accumulate(builder, values[:1], body)

        (total,) = self.fragment([initial, *named, *self.indices], emit)
        return self.known(total)

    def add_to(self, accumulator: Meaning, value: Meaning, indices: Sequence[Meaning]) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            parts = [self.known(part(env)) for part in (value, *indices)]
            self.additions.append(Addition(accumulator(env), (), parts[0], parts[1:]))
            return ()

        return run

    # What is a step as it stands, or dropped, or taken apart above

    def size(self, array: Meaning, axis: int) -> Step:
        raise AssertionError("a size stays or is dropped")

    def index(self, array: Meaning, indices: Sequence[Meaning]) -> Step:
        raise AssertionError("an element stays or is dropped")

    def reduce(self, extent: Meaning, neutrals: Sequence[Meaning], element: Code, operator: Code) -> Step:
        raise AssertionError("a reduction stays, is dropped or is taken apart")


def _inside(known: Known, recorder: Recorder) -> bool:
    """Whether a value belongs to a sub-trace, or differs in its batch."""
    own = rank(known.type)
    return own > 0 or np.ndim(known.value) > own or (isinstance(known.name, int) and known.name >= recorder.inner)


def _read(array: Atom, indices: Sequence[Atom], axes: Sequence[Dim]) -> Operation:
    """What stands at some indices of an array: an element, or what is over the axes that are left."""
    scalar = element(array.type)
    if not axes:
        return Operation("index", (), (array, *indices), (), (scalar,))
    inner = _read(_up(array, 1), [*[_up(i, 1) for i in indices], Variable(0, i64)], axes[1:])
    block = Block((i64,), (inner,), (Variable(0, inner.types[0]),))
    extent = Literal.of(axes[0].constant or 0, i64)
    return Operation("generate", (axes[0],), (extent,), (block,), (array_of(scalar, tuple(axes)),))


def _up(atom: Atom, by: int) -> Atom:
    return Variable(atom.index + by, atom.type) if isinstance(atom, Variable) else atom


def _stacked(count: int, type: Type) -> ArrayType:
    return ArrayType(element(type), (Dim.of(count), *dims(type)))
