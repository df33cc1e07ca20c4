"""Linear recurrences as scans: the cotangents of running results, from the end.

With ``r[i] = r[i-1] op a[i]``, the cotangent of the running result at i is what arrives there, and what the next one
gives back through the operator's left operand:

    r_bar[i] = arrived[i] + C[i]^T r_bar[i+1]        C[i] = d (r[i] op a[i+1]) / d r[i]

These are affine maps, and affine maps are composed in any grouping: ``(d1, C1)`` and then ``(d2, C2)`` is
``(d2 + C2 d1, C2 C1)``. So all cotangents come out of one scan (Schenck et al. 2022, section 5.2; C is transposed, as
it acts on cotangents). Where only the last result has a cotangent, as in a reduce, the maps are products of the C.

Elements of d numbers need the d by d numbers of C, and d^3 operations a composition. Up to ``NUMBERS`` numbers these
are single values, so that zeros and ones in them fold away; up to ``MATRIX`` they are small matrices. Larger elements,
and those whose size is not known, go through a loop from the end instead: its work is that of the operator, but its
span is n steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

import numpy as np

from ..core.builder import Builder
from ..core.graph import Value
from ..core.primitive import PRIMITIVES
from ..core.terms import Constant
from ..core.types import Scalar, Type, dims, element, i64
from ..interpreters.simplify.accumulators import plus, zeros_like
from .operators import At, Cotangents, CotangentsAt, Operator

NUMBERS = 3
MATRIX = 16


@dataclass
class Recurrence:
    """The running results of so many elements; ``moving`` are the components whose cotangents are wanted.

    What other components give to these must be among these, too.
    """

    operator: Operator
    length: Value
    results: At
    at: At
    moving: Sequence[int]

    @property
    def builder(self) -> Builder:
        return self.operator.builder

    def cotangents(self, arrived: CotangentsAt) -> CotangentsAt:
        """For each place the cotangent of the running result there, all that it is used for counted.

        ``arrived`` gives the cotangents of the scan's own results.
        """
        layout = _Layout.of(self.builder, [self.operator.neutrals[k] for k in self.moving])
        if layout is None or layout.width > MATRIX:
            return self._by_loop(arrived)
        if layout.width > NUMBERS or not layout.scalars:
            return self._by_matrices(arrived, layout)
        return self._by_numbers(arrived, layout)

    def from_last(self, cotangent: Value) -> CotangentsAt:
        """The same for the last result's cotangent alone, where a single number moves."""
        (k,), b = self.moving, self.builder
        type = cast(Scalar, self.operator.neutrals[k].type)
        one = b.literal(1, type)

        def element(j: Value) -> list[Value]:
            return list(b.cond(self._is_first(j), lambda: [one], lambda: [self._back(self._place(j), [one])[0]]))

        made = b.scan(self.length, [one], element, lambda x, y: [b.primitive("multiply", x, y)])
        factors = self._from_the_end(made)

        def read(i: Value) -> Cotangents:
            return [None if f is None else b.primitive("multiply", cotangent, f) for f in factors(i)]

        return read

    def by_sums(self, arrived: CotangentsAt) -> CotangentsAt:
        """:meth:`cotangents` for sums: what arrives at a place counts for all before it, too."""
        b = self.builder

        def plus_each(*ab: Value) -> list[Value]:
            half = len(ab) // 2
            return [plus(b, x, y) for x, y in zip(ab[:half], ab[half:], strict=True)]

        zeros = [zeros_like(b, self.operator.neutrals[k]) for k in self.moving]
        return self._from_the_end(
            b.scan(self.length, zeros, lambda j: self._arrived(arrived, self._place(j)), plus_each)
        )

    # Places, and what is given back

    def _place(self, j: Value) -> Value:
        """The place j steps before the last."""
        return self.operator.last_but(self.length, j)

    def _is_first(self, j: Value) -> Value:
        return self.builder.primitive("equal", j, self.builder.literal(0, i64))

    def _arrived(self, arrived: CotangentsAt, i: Value) -> list[Value]:
        here = arrived(i)
        return [self._or_zero(here[k], self.operator.neutrals[k]) for k in self.moving]

    def _or_zero(self, cotangent: Value | None, like: Value) -> Value:
        return zeros_like(self.builder, like) if cotangent is None else cotangent

    def _spread(self, values: Sequence[Value]) -> list[Value | None]:
        """Cotangents of all components from those of the moving ones."""
        found: list[Value | None] = [None] * len(self.operator.neutrals)
        for k, value in zip(self.moving, values, strict=True):
            found[k] = value
        return found

    def _back(self, i: Value, cotangents: Sequence[Value]) -> list[Value]:
        """What cotangents of the result behind place i give to that at i."""
        behind = self.builder.primitive("add", i, self.builder.literal(1, i64))
        left = self.results(i)
        given = self.operator.pull_left(left, self.at(behind), self._spread(cotangents))
        return [self._or_zero(given[k], left[k]) for k in self.moving]

    def _from_the_end(self, arrays: Sequence[Value]) -> CotangentsAt:
        """The cotangents that arrays hold of the moving components, the last place first."""
        return lambda i: self._spread([self.builder.part(array, [self._place(i)]) for array in arrays])

    # Step by step

    def _by_loop(self, arrived: CotangentsAt) -> CotangentsAt:
        b = self.builder

        def step(j: Value, *later: Value) -> list[Value]:
            """The cotangent at a place, and what it gives to the place before."""
            i = self._place(j)
            total = [plus(b, own, more) for own, more in zip(self._arrived(arrived, i), later, strict=True)]
            before = b.primitive("subtract", i, b.literal(1, i64))
            given = b.cond(
                self._is_first(i), lambda: [zeros_like(b, x) for x in total], lambda: self._back(before, total)
            )
            return [*given, *total]

        starts = [zeros_like(b, self.operator.neutrals[k]) for k in self.moving]
        return self._from_the_end(b.loop(self.length, starts, step)[len(starts) :])

    # As a scan of affine maps

    def _by_numbers(self, arrived: CotangentsAt, layout: _Layout) -> CotangentsAt:
        """The maps as single numbers: offsets, then factors, by rows of what is given."""
        b, d, type = self.builder, layout.width, layout.type
        zero, one = b.literal(0, type), b.literal(1, type)

        def unit(p: int) -> list[Value]:
            return layout.own([one if p == q else zero for q in range(d)])

        def factors(i: Value) -> list[Value]:
            columns = [layout.common(self._back(i, unit(p))) for p in range(d)]
            return [columns[p][q] for q in range(d) for p in range(d)]

        def element(j: Value) -> list[Value]:
            i = self._place(j)
            nothing = [zero] * (d * d)
            return [
                *layout.common(self._arrived(arrived, i)),
                *b.cond(self._is_first(j), lambda: nothing, lambda: factors(i)),
            ]

        def row(factors: Sequence[Value], values: Sequence[Value], q: int) -> Value:
            total = b.primitive("multiply", factors[q * d], values[0])
            for p in range(1, d):
                total = b.primitive("add", total, b.primitive("multiply", factors[q * d + p], values[p]))
            return total

        def compose(*both: Value) -> list[Value]:
            """First the left map, then the right one."""
            half = d + d * d
            first, second = both[:half], both[half:]
            offsets = [b.primitive("add", second[q], row(second[d:], first[:d], q)) for q in range(d)]
            columns = [[first[d + p * d + r] for p in range(d)] for r in range(d)]
            return [*offsets, *[row(second[d:], columns[r], q) for q in range(d) for r in range(d)]]

        identity = [one if p == q else zero for q in range(d) for p in range(d)]
        made = b.scan(self.length, [*[zero] * d, *identity], element, compose)[:d]
        return lambda i: self._spread(layout.own([b.index(array, [self._place(i)]) for array in made]))

    def _by_matrices(self, arrived: CotangentsAt, layout: _Layout) -> CotangentsAt:
        """The maps as a row of d numbers and a d by d matrix, which is multiplied from the right."""
        b, d = self.builder, self.builder.literal(layout.width, i64)
        zero, one = b.literal(0, layout.type), b.literal(1, layout.type)

        def same(p: Value, q: Value) -> Value:
            return b.cond(b.primitive("equal", p, q), lambda: [one], lambda: [zero])[0]

        def unit(p: Value) -> list[Value]:
            return layout.parts(lambda q: same(p, q))

        def factors(i: Value) -> Value:
            return b.generate(d, lambda p: [layout.row(self._back(i, unit(p)))])[0]

        def element(j: Value) -> list[Value]:
            i = self._place(j)
            nothing = b.array([d, d], lambda p, q: zero)
            matrix = b.cond(self._is_first(j), lambda: [nothing], lambda: [factors(i)])
            return [layout.row(self._arrived(arrived, i)), *matrix]

        def times(at: Callable[[Value], Value], matrix: Value, q: Value) -> Value:
            return b.sum(d, lambda p: b.primitive("multiply", at(p), b.index(matrix, [p, q])), layout.type)

        def compose(*both: Value) -> list[Value]:
            """First the left map, then the right one."""
            row, matrix, offset, factor = both
            moved = b.array([d], lambda q: b.primitive("add", b.index(offset, [q]), times(_at(b, row), factor, q)))
            return [moved, b.array([d, d], lambda r, q: times(_at(b, matrix, r), factor, q))]

        neutrals = [b.array([d], lambda q: zero), b.array([d, d], same)]
        made = b.scan(self.length, neutrals, element, compose)[0]
        return lambda i: self._spread(layout.parts(lambda q: b.index(made, [self._place(i), q])))


def _at(b: Builder, array: Value, *first: Value) -> Callable[[Value], Value]:
    return lambda p: b.index(array, [*first, p])


@dataclass
class _Layout:
    """Where the numbers of some components stand in one row of ``width``, all of one type."""

    builder: Builder
    types: Sequence[Type]
    sizes: Sequence[Sequence[int]]

    @staticmethod
    def of(b: Builder, values: Sequence[Value]) -> _Layout | None:
        """The layout of values of these types; None if a size is not a number."""
        sizes = [[dim.constant for dim in dims(value.type)] for value in values]
        if any(size is None for each in sizes for size in each):
            return None
        return _Layout(b, [value.type for value in values], cast(list[list[int]], sizes))

    @property
    def width(self) -> int:
        return self.ends[-1]

    @property
    def ends(self) -> list[int]:
        return list(accumulate([math.prod(sizes) for sizes in self.sizes]))

    @property
    def scalars(self) -> bool:
        return not any(self.sizes)

    @property
    def type(self) -> Scalar:
        """The type of all numbers in the row: the widest of the components'."""
        return max([element(type) for type in self.types], key=lambda type: type.bits)

    def _converted(self, value: Value, type: Scalar) -> Value:
        return value if value.type == type else self.builder.primitive(PRIMITIVES[type.name], value)

    def common(self, values: Sequence[Value]) -> list[Value]:
        """Single numbers in the type of the row."""
        return [self._converted(value, self.type) for value in values]

    def own(self, values: Sequence[Value]) -> list[Value]:
        """Single numbers of the row in the components' types."""
        return [self._converted(value, element(type)) for value, type in zip(values, self.types, strict=True)]

    def row(self, values: Sequence[Value]) -> Value:
        """The numbers of the components as one array."""
        b = self.builder

        def number(p: Value, k: int) -> Value:
            if k == len(values) - 1:
                return self._number(values[k], self._since(p, k))
            inside = b.primitive("less", p, b.literal(self.ends[k], i64))
            here, later = (lambda: [self._number(values[k], self._since(p, k))]), (lambda: [number(p, k + 1)])
            return b.cond(inside, here, later)[0]

        return b.array([b.literal(self.width, i64)], lambda p: number(p, 0))

    def parts(self, at: Callable[[Value], Value]) -> list[Value]:
        """The components whose numbers are those of a row."""
        return [self._part(at, k) for k in range(len(self.types))]

    def _part(self, at: Callable[[Value], Value], k: int) -> Value:
        b, start = self.builder, self.ends[k] - math.prod(self.sizes[k])

        def number(*indices: Value) -> Value:
            place = b.literal(0, i64)
            for index, size in zip(indices, self.sizes[k], strict=True):
                place = b.primitive("add", b.primitive("multiply", place, b.literal(size, i64)), index)
            return self._converted(at(b.primitive("add", place, b.literal(start, i64))), element(self.types[k]))

        return b.array([b.literal(size, i64) for size in self.sizes[k]], number)

    def _since(self, p: Value, k: int) -> Value:
        """The place in component k of place p in the row."""
        start = self.ends[k] - math.prod(self.sizes[k])
        return self.builder.primitive("subtract", p, self.builder.literal(start, i64))

    def _number(self, value: Value, place: Value) -> Value:
        """The number at a place of a component. Its indices are looked up: divisions would cost more than the rest."""
        b, sizes = self.builder, [size.constant or 0 for size in dims(value.type)]
        if len(sizes) < 2:
            return self._converted(b.index(value, [place] if sizes else []), self.type)
        tables = [Constant.capture(table.astype(np.int64)) for table in np.indices(sizes).reshape(len(sizes), -1)]
        return self._converted(b.index(value, [b.index(b.atom(table), [place]) for table in tables]), self.type)
