"""What the elements of combined, written and added arrays depend on.

Elements are computed first, all of them, by one loop. A sum, product, minimum or maximum depends on all that its
elements depend on: one union. With another operator elements are combined in pairs, then pairs of pairs, and so on:
the operator runs once for all pairs of a level, and an operator is associative.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.dims import Dim
from ...core.environment import Env
from ...core.types import rank
from ..evaluate.batches import Atom, Code, Effects, Step, loop_effects, mesh
from .sets import Array, once
from .shadows import Shadow, Shadows

# So few elements are united by putting their layers side by side.
FEW = 8


class Total:
    """An accumulator: the values, what was there, and the sets that were added with their places."""

    def __init__(self, value: Array, numbers: Array, varies: bool) -> None:
        self.value, self.varies = value, varies
        self.places: list[Array] = []
        self.numbers: list[Array] = []
        self.add(np.arange(value.size), numbers.ravel())

    def add(self, places: Array, numbers: Array) -> None:
        some = np.flatnonzero(numbers)
        self.places.append(places[some])
        self.numbers.append(numbers[some])


class Combining(Shadows):
    """Meanings of reduce, scan, histogram, scatter, argsort and accumulators."""

    def reduce(self, extent: Atom, neutrals: Sequence[Atom], element: Code, operator: Code) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            units = [neutral.run(env) for neutral in neutrals]
            columns = self.columns(env, extent, element)
            count = len(columns[0].value)
            if count == 0:
                return units
            if operator.ufunc is not None:
                return [self._reduced(columns[0], units[0], operator.ufunc)]
            while count > 1:
                pairs = count // 2
                evens, odds = [[_part(c, slice(k, 2 * pairs, 2)) for c in columns] for k in (0, 1)]
                rest = [_part(c, slice(2 * pairs, count)) for c in columns]
                columns = self._behind(self._combined(env, operator, evens, odds), rest)
                count = len(columns[0].value)
            return [self.map_layers(column, lambda x: x[0]) for column in columns]

        return Step(run, loop_effects([extent], element) | operator.effects)

    def columns(self, env: Env[Any], extent: Atom, element: Code) -> list[Shadow]:
        """The results of a body for all indices, along a new first axis."""
        count = self.length(extent.run(env))
        columns: list[Shadow] = self.for_all(
            count, lambda i: element.run(env, [Shadow(i)]), element.effects, element.ranks
        )
        return columns

    def _reduced(self, column: Shadow, unit: Shadow, ufunc: np.ufunc) -> Shadow:
        """The union along the first axis."""
        layers: list[Array] = list(unit.layers)
        for layer in column.layers:
            if layer.strides[0] == 0:
                layers.append(layer[0])
            elif len(layer) <= FEW:
                layers += list(layer)
            else:
                own = np.moveaxis(once(layer), 0, -1)
                layers.append(np.broadcast_to(self.sets.united(own), layer.shape[1:]))
        value = ufunc.reduce(column.value, axis=0, dtype=column.value.dtype)
        return self.settled(Shadow(value, tuple(layers), column.varies or unit.varies))

    def _combined(self, env: Env[Any], operator: Code, first: Sequence[Shadow], second: Sequence[Shadow]) -> list[Any]:
        """The operator on the elements of columns, at all their places."""

        def at(i: Any, columns: Sequence[Shadow]) -> list[Shadow]:
            moved = []
            for column, r in zip(columns, operator.ranks, strict=True):
                moved.append(self.map_layers(column, lambda x, r=r: np.moveaxis(x, 0, r) if np.ndim(i) else x[i]))  # type: ignore[misc]
            return moved

        return self.for_all(
            len(first[0].value),
            lambda i: operator.run(env, [*at(i, first), *at(i, second)]),
            operator.effects,
            operator.ranks,
        )

    def _behind(self, first: Sequence[Shadow], second: Sequence[Shadow]) -> list[Shadow]:
        """Columns put behind columns."""
        if len(second[0].value) == 0:
            return list(first)
        return [
            Shadow(
                np.concatenate([a.value, b.value]),
                (np.concatenate([self.single(a), self.single(b)]),) if a.layers or b.layers else (),
                a.varies or b.varies,
            )
            for a, b in zip(first, second, strict=True)
        ]

    def scan(self, dim: Dim, extent: Atom, neutrals: Sequence[Atom], element: Code, operator: Code) -> Step:
        """Each element with the one before it, then with the one two before it, then four, and so on."""

        def run(env: Env[Any]) -> Sequence[Any]:
            columns = self.columns(env, extent, element)
            count, distance = len(columns[0].value), 1
            while distance < count:
                before = [_part(c, slice(0, count - distance)) for c in columns]
                behind = [_part(c, slice(distance, count)) for c in columns]
                first = [_part(c, slice(0, distance)) for c in columns]
                columns = self._behind(first, self._combined(env, operator, before, behind))
                distance *= 2
            return columns

        return Step(run, loop_effects([extent], element) | operator.effects)

    def histogram(
        self, dim: Dim, bins: Atom, extent: Atom, neutrals: Sequence[Atom], element: Code, operator: Code
    ) -> Step:
        effects = loop_effects([bins, extent], element) | operator.effects
        ranks = element.ranks[1:]

        def run(env: Env[Any]) -> Sequence[Any]:
            units, size = [neutral.run(env) for neutral in neutrals], self.length(bins.run(env))
            place, *columns = self.columns(env, extent, element)
            self.decided(place)
            places = place.value
            inside = (places >= 0) & (places < size) & self.mask
            starts = []
            for unit, r in zip(units, ranks, strict=True):
                filled = self.filled(unit.value, r), self.filled(self.single(unit), r)
                starts.append([np.array(np.broadcast_to(each, (size, *each.shape)), order="C") for each in filled])
            if operator.ufunc is not None:
                value, numbers = starts[0]
                total = Total(value, numbers, units[0].varies or columns[0].varies or place.varies)
                key = np.nonzero(inside)
                chosen = (places[key], *key[1:])
                operator.ufunc.at(value, chosen, columns[0].value[key])
                for layer in columns[0].layers:
                    total.add(np.ravel_multi_index(chosen, value.shape), layer[key])
                return [self._finished(total)]
            varies = any([shadow.varies for shadow in (place, *units, *columns)])
            for k in range(len(places) if inside.any() else 0):
                if inside[k].any():
                    self._combine_at(env, operator, starts, np.where(inside[k], places[k], 0), inside[k], columns, k)
            return [Shadow(value, (numbers,), varies) for value, numbers in starts]

        return Step(run, effects)

    def _combine_at(
        self,
        env: Env[Any],
        operator: Code,
        totals: Sequence[list[Array]],
        place: Any,
        inside: Any,
        columns: Sequence[Shadow],
        k: int,
    ) -> None:
        """Combine the elements k into the bins, where they are inside."""
        old = []
        keys = [(place, *mesh(total[0].shape[1:])) for total in totals]
        for (value, numbers), key, column in zip(totals, keys, columns, strict=True):
            old.append(Shadow(value[key], (numbers[key],), column.varies))
        values = [self.map_layers(column, lambda x: x[k]) for column in columns]
        with self.inside(self.batch, self.mask & inside):
            new = operator.run(env, [*old, *values])
        for total, key, a, b, r in zip(totals, keys, new, old, operator.ranks, strict=True):
            after = self.chosen(inside, a, b, r)
            total[0][key] = after.value
            total[1][key] = self.filled(self.single(after), r)

    def scatter(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Code) -> Step:
        axes = len(element.ranks) - len(destinations)

        def run(env: Env[Any]) -> Sequence[Any]:
            counts, arrays = [self.length(extent.run(env)) for extent in extents], [d.run(env) for d in destinations]
            columns: list[Shadow] = self.for_each(
                counts, lambda *i: element.run(env, [Shadow(each) for each in i]), element.effects, element.ranks
            )
            self.decided(*columns[:axes])
            loops = len(counts)
            places = [_joined_axes(column.value, loops) for column in columns[:axes]]
            results = []
            for array, column, destination in zip(arrays, columns[axes:], destinations, strict=True):
                r = rank(destination.type)
                shape = self.filled(array.value, r).shape
                tests = [(place >= 0) & (place < n) for place, n in zip(places, shape, strict=False)]
                steps = np.nonzero(functools.reduce(np.logical_and, tests) & self.mask)
                written = functools.partial(self._written, r, [place[steps] for place in places], steps)
                new = self.map_layers(column, lambda x: _joined_axes(x, loops))
                layers = (written(self.single(array), self.single(new)),) if array.layers or new.layers else ()
                results.append(Shadow(written(array.value, new.value), layers, array.varies or new.varies))
            return results

        return Step(run, loop_effects(extents, element))

    def _written(self, r: int, places: Sequence[Array], steps: Sequence[Array], old: Array, new: Array) -> Array:
        """An array of rank r in which the values of these steps (and elements of the batch) are written."""
        # the axes of the batch stand behind the indices, so that one list of places says what to write
        result = np.array(self.filled(old, r))
        axes, batch = range(len(places)), range(r, result.ndim)
        own = range(len(places), r)
        rows = np.moveaxis(new, range(1, 1 + len(own)), range(-len(own), 0))
        result.transpose(*axes, *batch, *own)[(*places, *steps[1:])] = rows[steps]
        return result

    def argsort(self, array: Atom) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            shadow = array.run(env)
            return (Shadow(np.argsort(shadow.value, axis=0, kind="stable"), (), shadow.varies),)

        return Step(run)

    # Accumulators

    def accumulate(self, initials: Sequence[Atom], body: Code) -> Step:
        ranks = [rank(initial.type) for initial in initials]

        def run(env: Env[Any]) -> Sequence[Any]:
            totals = []
            for initial, r in zip(initials, ranks, strict=True):
                start = initial.run(env)
                value = np.array(self.filled(start.value, r), order="C")
                totals.append(Total(value, self.filled(self.single(start), r), start.varies))
            results = body.run(env, totals)
            return [*map(self._finished, totals), *results]

        return Step(run, body.effects)

    def _flat(self, x: Any) -> Array:
        """The elements of a scalar of the batch, one after the other."""
        return np.broadcast_to(x, self.batch).reshape(-1)

    def _finished(self, total: Total) -> Shadow:
        places, numbers = np.concatenate(total.places), np.concatenate(total.numbers)
        layers: tuple[Array, ...] = ()
        if len(places):
            layers = (self.sets.united_at(places, numbers, total.value.size).reshape(total.value.shape),)
        return Shadow(total.value[()], layers, total.varies)

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            total, added, at = accumulator.run(env), value.run(env), [index.run(env) for index in indices]
            self.decided(*at)
            shape = total.value.shape
            inside = [(index.value >= 0) & (index.value < n) for index, n in zip(at, shape, strict=False)]
            chosen = np.flatnonzero(self._flat(functools.reduce(np.logical_and, inside, self.mask)))
            place: Any = 0  # in the order of memory
            for index, n in zip([*[index.value for index in at], *mesh(shape[len(at) :])], shape, strict=True):
                place = place * n + index
            places = self._flat(place)[chosen]
            actual = self._flat(self.actual)[chosen]
            np.add.at(total.value.reshape(-1), places[actual], self._flat(added.value)[chosen][actual])
            total.varies |= added.varies
            for layer in added.layers:
                total.add(places, self._flat(layer)[chosen])
            return ()

        return Step(run, Effects(updates=True))


def _part(column: Shadow, places: slice) -> Shadow:
    return Shadow(column.value[places], tuple([layer[places] for layer in column.layers]), column.varies)


def _joined_axes(x: Array, count: int) -> Array:
    """An array with its first axes as one."""
    return x.reshape(math.prod(x.shape[:count]), *x.shape[count:])
