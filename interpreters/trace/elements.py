"""Arrays traced away: what they are made of is computed element by element, and the elements have names.

An array whose scalars are kept is an array of :class:`Known`; one whose scalars are dropped, too, is its value. Each
construct is what its definition says: a sum of n numbers is n - 1 additions (van Hus, section 3.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from ...core.dims import Dim
from ...core.environment import Env
from ...core.primitive import lookup
from ...core.terms import Block, Constant, Foreign
from ...core.types import ArrayType, Scalar, Type, array_of, dims, element, i64, scalar_of
from .control import Code, Control, Entry, Meaning, Step
from .recording import Known


class Elements(Control):
    """The array constructs, element by element."""

    # Arrays as entries

    def raw(self, entry: Entry) -> Any:
        if not isinstance(entry, np.ndarray):
            return entry.value
        values = [known.value for known in entry.flat]
        dtype = values[0].dtype if values else np.float64
        return np.array(values, dtype).reshape(entry.shape)

    def entry(self, value: Any, type: Type) -> Entry:
        """The entry of a constant."""
        if not self.keeping.parts(type):
            return Known(value, type)
        parts = np.empty(value.shape, object)
        for place in np.ndindex(value.shape):
            parts[place] = Known(value[place], element(type))
        return parts

    def constant(self, array: Constant, type: ArrayType) -> Meaning:
        entry = self.entry(array.array, type)
        return lambda env: entry

    def stacked(self, rows: Sequence[Sequence[Entry]], types: Sequence[Type]) -> list[Entry]:
        return [self._column([row[k] for row in rows], type) for k, type in enumerate(types)]

    def _column(self, items: Sequence[Entry], type: Type) -> Entry:
        if not self.keeping.parts(type):
            shape = [len(items), *self._shape(type)[1:]] if not items else None
            values = np.zeros(shape, element(type).dtype) if shape else np.stack([item.value for item in items])
            return Known(values, array_of(element(type), tuple(map(Dim.of, values.shape))))
        column = np.empty((len(items), *(np.shape(items[0]) if items else self._shape(type)[1:])), object)
        for k, item in enumerate(items):
            column[k] = item
        return column

    def _shape(self, type: Type) -> list[int]:
        return [self._dim(dim).constant or 0 for dim in dims(type)]

    def at(self, array: Entry, place: Sequence[int]) -> Entry:
        """What stands at the first indices of an array."""
        if isinstance(array, np.ndarray):
            return array[tuple(place)]
        value = array.value[tuple(place)]
        return Known(value, array_of(element(array.type), dims(array.type)[len(place) :]))

    def size_of(self, array: Entry, axis: int) -> int:
        return int(np.shape(array if isinstance(array, np.ndarray) else array.value)[axis])

    # The constructs

    def size(self, array: Meaning, axis: int) -> Step:
        return lambda env: (self.fixed(self.size_of(array(env), axis)),)

    def index(self, array: Meaning, indices: Sequence[Meaning]) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            from_, type = array(env), self.output_types[0]
            shape = [self.size_of(from_, axis) for axis in range(len(indices))]
            if 0 in shape:
                return (Known(element(type).dtype.type(0), type),)
            places = [int(i(env).value) for i in indices]
            return (self.at(from_, [min(max(i, 0), n - 1) for i, n in zip(places, shape, strict=True)]),)

        return run

    def generate(self, dim: Dim, extent: Meaning, body: Code) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            types, count, before = self.output_types, self.extent(extent(env)), len(self.recorder.bindings)
            rows = [body.run(env, [self.fixed(i)]) for i in range(min(count, 1))]
            if rows and self._is_empty(rows[0], body):
                return [self._longer(entry, count) for entry in rows[0]]
            if rows:
                self.require_room(count, before, rows[0])
            rows += [body.run(env, [self.fixed(i)]) for i in range(1, count)]
            return self.stacked(rows, types)

        return run

    def _is_empty(self, entries: Sequence[Entry], code: Code) -> bool:
        """Whether code has made empty arrays, and nothing else comes of it."""
        assert code.block is not None
        return all([np.size(self.raw(entry)) == 0 for entry in entries]) and _only_computes(code.block)

    def _longer(self, row: Entry, count: int) -> Entry:
        """So many of an empty row."""
        if isinstance(row, np.ndarray):
            return np.empty((count, *row.shape), object)
        values = np.empty((count, *row.value.shape), row.value.dtype)
        return Known(values, array_of(element(row.type), (Dim.of(count), *dims(row.type))))

    def reduce(self, extent: Meaning, neutrals: Sequence[Meaning], element: Code, operator: Code) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            units = [neutral(env) for neutral in neutrals]
            running = self._running("reduce", env, self.extent(extent(env)), units, element, operator)
            return running[-1] if running else units

        return run

    def scan(self, dim: Dim, extent: Meaning, neutrals: Sequence[Meaning], element: Code, operator: Code) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            types, units = self.output_types, [neutral(env) for neutral in neutrals]
            return self.stacked(self._running("scan", env, self.extent(extent(env)), units, element, operator), types)

        return run

    def _running(
        self, construct: str, env: Env[Entry], count: int, units: Sequence[Entry], element: Code, operator: Code
    ) -> list[Sequence[Entry]]:
        """The reductions of the first elements, one after the other."""
        origin, before = self.origin, len(self.recorder.bindings)
        running: list[Sequence[Entry]] = []
        for i in range(count):
            x = element.run(env, [self.fixed(i)])
            if i == 0:
                self.require_room(count, before, x)
                self.check_neutral(construct, origin, units, x, operator, env)
            running.append(operator.run(env, [*running[-1], *x]) if running else x)
        return running

    def histogram(
        self, dim: Dim, bins: Meaning, extent: Meaning, neutrals: Sequence[Meaning], element: Code, operator: Code
    ) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            origin, types, count = self.origin, self.output_types, self.extent(bins(env))
            units = [neutral(env) for neutral in neutrals]
            rows: list[Sequence[Entry]] = [units] * count
            checked = False
            for i in range(self.extent(extent(env))):
                place, *values = element.run(env, [self.fixed(i)])
                k = int(place.value)
                if 0 <= k < count:
                    if not checked:
                        self.check_neutral("histogram", origin, units, values, operator, env)
                    checked, rows[k] = True, operator.run(env, [*rows[k], *values])
            return self.stacked(rows, types)

        return run

    def scatter(self, unique: bool, extents: Sequence[Meaning], destinations: Sequence[Meaning], element: Code) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            results = [self._copy(destination(env)) for destination in destinations]
            for place in product(*[range(self.extent(extent(env))) for extent in extents]):
                found = element.run(env, [self.fixed(i) for i in place])
                axes = len(found) - len(results)
                at = tuple([int(i.value) for i in found[:axes]])
                if all(0 <= i < self.size_of(results[0], axis) for axis, i in enumerate(at)):
                    for result, value in zip(results, found[axes:], strict=True):
                        self._write(result, at, value)
            return results

        return run

    def _copy(self, array: Entry) -> Entry:
        return array.copy() if isinstance(array, np.ndarray) else Known(array.value.copy(), array.type)

    def _write(self, array: Entry, place: tuple[int, ...], value: Entry) -> None:
        if isinstance(array, np.ndarray):
            array[place] = value
        else:
            array.value[place] = value.value

    def argsort(self, array: Meaning) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            order = np.argsort(self.raw(array(env)), axis=0, kind="stable")
            type = array_of(i64, (Dim.of(order.size),))
            return (self.entry(order, type),)

        return run

    def foreign(self, function: Foreign, args: Sequence[Meaning]) -> Step:
        """Its results are constants of the trace: nothing says what they are made of."""

        def run(env: Env[Entry]) -> Sequence[Entry]:
            types, given = self.output_types, [self.raw(arg(env)) for arg in args]
            inputs = [array_of(_scalar(x), tuple(map(Dim.of, np.shape(x)))) for x in given]
            atoms = [self.numpy.variable(len(args) - 1 - k, type) for k, type in enumerate(inputs)]
            values = self.numpy.foreign(function, atoms).run(Env().enter(given))
            return [self.entry(v, self.learn(t, v)) for v, t in zip(values, types, strict=True)]

        return run

    # Accumulators: what they hold so far

    def accumulate(self, initials: Sequence[Meaning], body: Code) -> Step:
        def run(env: Env[Entry]) -> Sequence[Entry]:
            cells = []
            for initial in initials:
                entry = initial(env)
                cell = np.empty(np.shape(self.raw(entry)), object)
                for place in np.ndindex(cell.shape):
                    cell[place] = self.at(entry, place) if cell.ndim else entry
                cells.append((cell, entry))
            results = body.run(env, [cell for cell, _ in cells])
            return [*[self._total(cell, entry) for cell, entry in cells], *results]

        return run

    def _total(self, cell: Any, before: Entry) -> Entry:
        if isinstance(before, np.ndarray):
            return cell
        if not cell.ndim:
            return cell[()]
        return Known(
            np.array([known.value for known in cell.flat], before.value.dtype).reshape(cell.shape), before.type
        )

    def add_to(self, accumulator: Meaning, value: Meaning, indices: Sequence[Meaning]) -> Step:
        add = self.primitive(lookup("add"), [lambda env: env.get(1), lambda env: env.get(0)])

        def run(env: Env[Entry]) -> Sequence[Entry]:
            cell, place = accumulator(env), tuple([int(i(env).value) for i in indices])
            if all(0 <= i < n for i, n in zip(place, cell.shape, strict=True)):
                cell[place] = add(Env().enter([cell[place], value(env)]))[0]
            return ()

        return run


def _only_computes(block: Block) -> bool:
    """Whether all that comes of a block is its results."""
    others = [o for o in block.bindings if o.row.statement or o.row.external or not all(map(_only_computes, o.blocks))]
    return not others


def _scalar(value: Any) -> Scalar:
    scalar = scalar_of(value.dtype)
    assert scalar is not None
    return scalar
