"""What the constructs that combine, order and write elements mean in NumPy: the part of evaluate about whole arrays.

Elements are computed first, all of them, by one loop (``batches.py``); then they are combined in index order. Where
the operator is one of NumPy's own functions, NumPy combines; otherwise the operator runs once an element, in the
batch around. Columns of elements have the loop's index as first axis, then their own axes, then those of the batch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.dims import Dim
from ...core.environment import Env
from ...core.terms import NOT_NEUTRAL, Origin
from ...core.types import rank
from .batches import Atom, Batches, Code, Irregular, Refused, Step, extent_of, loop_effects, mesh

Operator = Callable[[Sequence[Any], Sequence[Any]], list[Any]]


class Combining(Batches):
    """Meanings of reduce, scan, histogram, scatter and argsort."""

    def reduce(self, extent: Atom, neutrals: Sequence[Atom], element: Code, operator: Code) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            origin = self.origin
            units, combine = self.prepared(env, neutrals, operator)
            count = extent_of(extent.run(env))
            if count == 0:
                return units
            columns = self.for_all(count, lambda i: element.run(env, [i]), element.effects, element.ranks)
            total: Sequence[Any] = [column[0] for column in columns]
            self.check_neutral("reduce", origin, units, total, combine, operator)
            if operator.ufunc is not None:
                column = columns[0]
                if column.dtype == np.float32:  # NumPy adds in pairs where elements are neighbours
                    column = np.moveaxis(np.ascontiguousarray(np.moveaxis(column, 0, -1)), -1, 0)
                return [operator.ufunc.reduce(column, axis=0, dtype=column.dtype)]
            for k in range(1, min(count, 2) if self.once(operator.effects, total) else count):
                total = combine(total, [column[k] for column in columns])
            return total

        return Step(run, loop_effects([extent], element) | operator.effects.sometimes)

    def scan(self, dim: Dim, extent: Atom, neutrals: Sequence[Atom], element: Code, operator: Code) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            origin = self.origin
            units, combine = self.prepared(env, neutrals, operator)
            count = extent_of(extent.run(env))
            columns = self.for_all(count, lambda i: element.run(env, [i]), element.effects, element.ranks)
            if count == 0:
                return columns
            total: Sequence[Any] = [column[0] for column in columns]
            self.check_neutral("scan", origin, units, total, combine, operator)
            if self.once(operator.effects, total):
                return columns
            if operator.ufunc is not None:
                return [operator.ufunc.accumulate(columns[0], axis=0, dtype=columns[0].dtype)]
            rows = [total]
            for k in range(1, count):
                total = combine(total, [column[k] for column in columns])
                rows.append(total)
            return [self.stacked([row[k] for row in rows], r) for k, r in enumerate(element.ranks)]

        return Step(run, loop_effects([extent], element) | operator.effects.sometimes)

    def histogram(
        self, dim: Dim, bins: Atom, extent: Atom, neutrals: Sequence[Atom], element: Code, operator: Code
    ) -> Step:
        effects = loop_effects([bins, extent], element) | operator.effects.sometimes
        ranks = element.ranks[1:]

        def run(env: Env[Any]) -> Sequence[Any]:
            origin = self.origin
            units, combine = self.prepared(env, neutrals, operator)
            size, count = extent_of(bins.run(env)), extent_of(extent.run(env))
            made = self.for_all(count, lambda i: element.run(env, [i]), element.effects, element.ranks)
            places, *columns = [self.filled(column, 1 + r) for column, r in zip(made, element.ranks, strict=True)]
            fills = [self.filled(unit, r) for unit, r in zip(units, ranks, strict=True)]
            totals = [np.array(np.broadcast_to(fill, (size, *fill.shape))) for fill in fills]
            inside = (places >= 0) & (places < size) & self.mask
            if not inside.any():
                return totals
            first = np.argmax(inside, axis=0)  # the first that falls into a bin, wherever in the batch
            values = [
                np.take_along_axis(column, first.reshape(*[1] * (1 + r), *first.shape), 0)[0]
                for column, r in zip(columns, ranks, strict=True)
            ]
            self.check_neutral("histogram", origin, units, values, combine, operator, inside.any(axis=0))
            if operator.ufunc is not None:
                chosen = np.nonzero(inside)
                operator.ufunc.at(totals[0], (places[chosen], *chosen[1:]), columns[0][chosen])
                return totals
            for k in range(count):
                if effects.irregular and inside[k].any() and not inside[k].all():
                    raise Irregular
                if inside[k].any():
                    self._combine_at(totals, places[k], inside[k], [column[k] for column in columns], combine)
            return totals

        return Step(run, effects)

    def _combine_at(
        self, totals: Sequence[Any], place: Any, inside: Any, values: Sequence[Any], combine: Operator
    ) -> None:
        """Combine one value a batch element into the bins, where they are inside."""
        keys = [(np.where(inside, place, 0), *mesh(total.shape[1:])) for total in totals]
        old = [total[key] for total, key in zip(totals, keys, strict=True)]
        with self.inside(self.batch, self.mask & inside):
            new = combine(old, values)
        for total, key, a, b in zip(totals, keys, new, old, strict=True):
            total[key] = self.chosen(inside, a, b, total.ndim - 1 - len(self.batch))

    def scatter(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Code) -> Step:
        axes = len(element.ranks) - len(destinations)

        def run(env: Env[Any]) -> Sequence[Any]:
            ranks = [rank(destination.type) for destination in destinations]
            results = [np.array(self.filled(d.run(env), r)) for d, r in zip(destinations, ranks, strict=True)]
            counts = [extent_of(extent.run(env)) for extent in extents]
            columns = self.for_each(counts, lambda *i: element.run(env, i), element.effects, element.ranks)
            columns = [self.filled(column, len(counts) + r) for column, r in zip(columns, element.ranks, strict=True)]
            rows = [column.reshape(math.prod(counts), *column.shape[len(counts) :]) for column in columns]
            places, values = rows[:axes], rows[axes:]
            tests = [(place >= 0) & (place < n) for place, n in zip(places, results[0].shape, strict=False)]
            chosen = np.nonzero(functools.reduce(np.logical_and, tests) & self.mask)
            key = (*[place[chosen] for place in places], *chosen[1:])
            for result, r, value in zip(results, ranks, values, strict=True):
                # the axes of the batch stand behind the indices, so that one list of places says what to write
                batch, own = range(r, result.ndim), range(axes, r)
                target = result.transpose(*range(axes), *batch, *own)
                target[key] = np.moveaxis(value, range(1, 1 + len(own)), range(-len(own), 0))[chosen]
            return results

        return Step(run, loop_effects(extents, element))

    def argsort(self, array: Atom) -> Step:
        return Step(lambda env: (np.argsort(array.run(env), axis=0, kind="stable"),))

    # Operators

    def prepared(self, env: Env[Any], neutrals: Sequence[Atom], operator: Code) -> tuple[list[Any], Operator]:
        """The neutral elements, and the operator as a function of two elements."""
        return [neutral.run(env) for neutral in neutrals], lambda a, b: operator.run(env, [*a, *b])

    def check_neutral(
        self,
        construct: str,
        origin: Origin,
        units: Sequence[Any],
        elements: Sequence[Any],
        combine: Operator,
        operator: Code,
        inside: Any = np.True_,
    ) -> None:
        """Refuse a neutral element that changes an element which is combined with it, by more than rounding.

        What derivatives and the functions of the language combine has neutral elements that are right.
        """
        if not origin.combines or self.nothing or operator.effects.ordered:
            return
        with self.inside(self.batch, self.mask & inside):
            results = self.combined_with_neutral(units, elements, combine, operator)
            for k, (result, r) in enumerate(zip(results, [*operator.ranks, *operator.ranks], strict=False)):
                unit, x = units[k % len(units)], elements[k % len(units)]
                unit, x, result = self.filled(unit, r), self.filled(x, r), self.filled(result, r)
                same = (result == x) | ((result != result) & (x != x))
                if x.dtype.kind == "f":  # an operator may round
                    same = same | (np.abs(result - x) <= 16 * np.finfo(x.dtype).eps * np.abs(x))
                same = same.all(axis=tuple(range(r)))
                if not self.holds(same):
                    lane = (..., *self.first_failure(same))
                    raise Refused(
                        ValueError,
                        f"{construct}: the neutral element is not neutral: {_text(unit[lane])}: combined with "
                        f"{_text(x[lane])} it gives {_text(result[lane])}",
                        NOT_NEUTRAL,
                    )

    def combined_with_neutral(
        self, units: Sequence[Any], elements: Sequence[Any], combine: Operator, operator: Code
    ) -> list[Any]:
        """What shall be the elements again: from one side, and from the other where that may be something else."""
        return [*combine(units, elements), *(combine(elements, units) if operator.ufunc is None else ())]


def _text(value: Any) -> str:
    return " ".join(np.array2string(value, separator=", ", threshold=20).split()) if np.ndim(value) else str(value[()])
