"""Values under widening: what one scalar of the loop IR becomes inside ``lanes`` and ``jam`` loops.

Inside a ``jam`` loop of factor 4 a scalar that varies with the loop variable is four registers, its *copies*;
inside two such loops it may be copies along either *axis*, or along both. Inside a ``lanes`` loop a copy is one of

* *uniform*: one scalar, the same in every lane;
* a *ramp*: the scalar of lane 0 and a constant stride; what loop variables and indices made from them are, so that
  consecutive places are recognised when memory is read or written (the same is known of copies: their *slopes*);
* a *vector*: one register of ``lanes`` elements.

Whatever does not vary stays as it is, and is widened where it meets a value that does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from ...core.types import Scalar, i64
from .. import ir
from .text import Body, indices, iota, is_constant, register_type


@dataclass(frozen=True, order=True)
class Axis:
    """An enclosing ``jam`` loop whose copies are being made together."""

    depth: int
    factor: int


class Digit(NamedTuple):
    """How an integer is computed from another one: as its quotient by a size, or as the remainder."""

    primitive: str
    number: Value
    size: ir.Expression


@ir.node
class Value:
    """A scalar of the loop IR: one part a copy, the copies in row-major order of the axes."""

    scalar: Scalar
    parts: tuple[str, ...]
    axes: tuple[Axis, ...] = ()
    lanes: int = 0  # 0: parts are scalars
    stride: int = 0  # not 0: a ramp
    slopes: tuple[int | None, ...] = ()  # by axis, the difference of a copy to the one before; empty: none is known
    digit: Digit | None = None

    def slope(self, axis: Axis) -> int | None:
        """By how much a copy along an axis differs from the one before; None where that is not known."""
        if axis not in self.axes:
            return 0
        return self.slopes[self.axes.index(axis)] if self.slopes else None

    @property
    def uniform(self) -> bool:
        return self.lanes == 0 and self.stride == 0

    def along(self, axes: tuple[Axis, ...]) -> tuple[str, ...]:
        """The parts for every copy of ``axes``, which contain the value's own."""
        if axes == self.axes:
            return self.parts
        chosen = []
        for copy in product(*(range(axis.factor) for axis in axes)):
            number = 0
            for axis, position in zip(axes, copy):
                if axis in self.axes:
                    number = number * axis.factor + position
            chosen.append(self.parts[number])
        return tuple(chosen)


def one(scalar: Scalar, part: str) -> Value:
    """A value that varies with nothing."""
    return Value(scalar, (part,))


def join(values: Sequence[Value]) -> tuple[Axis, ...]:
    """The axes along which any of the values varies."""
    axes = {axis for value in values for axis in value.axes}
    return tuple(sorted(axes)) if axes else ()


@dataclass
class Strip:
    """The ``lanes`` loop being emitted: how many lanes at a time, and which of them are on (None: all)."""

    lanes: int
    mask: str | None = None
    left: str | None = None  # the iterations that are left, where some lanes may be off


@dataclass
class Widening:
    """The ``lanes`` and ``jam`` loops around the statement being emitted, and how values widen in them."""

    body: Body
    strip: Strip | None = None
    axes: list[Axis] = field(default_factory=list)

    @property
    def lanes(self) -> int:
        return self.strip.lanes if self.strip else 0

    @property
    def last(self) -> str:
        """The last lane that is on."""
        most = str(self.lanes - 1)
        if self.strip is None or self.strip.left is None:
            return most
        last = self.body.subtract(self.strip.left, "1")
        return self.body.value(f"call i64 @llvm.smin.i64(i64 {last}, i64 {most})")

    def vector(self, value: Value) -> Value:
        """The value as vectors."""
        if value.lanes:
            return value
        parts = tuple(self._spread(value.scalar, part, value.stride) for part in value.parts)
        return Value(value.scalar, parts, value.axes, self.lanes)

    def _spread(self, scalar: Scalar, part: str, stride: int) -> str:
        spread = splat(self.body, register_type(scalar), part, self.lanes)
        if not stride:
            return spread
        return self.body.value(f"add <{self.lanes} x i64> {spread}, {iota(self.lanes, stride)}")

    def lift(self, scalar: Scalar, values: Sequence[Value], operation: Callable[[Sequence[str], int], str]) -> Value:
        """Apply ``operation(parts, lanes)`` to every copy of the values, as vectors if one of them varies."""
        lanes = 0 if all([value.uniform for value in values]) else self.lanes
        if lanes:
            values = [self.vector(value) for value in values]
        axes = join(values)
        if not axes:
            return Value(scalar, (operation([value.parts[0] for value in values], lanes),), axes, lanes)
        copies = zip(*[value.along(axes) for value in values])
        return Value(scalar, tuple(operation(parts, lanes) for parts in copies), axes, lanes)

    # Integers keep ramps and slopes where the result has them

    def add(self, a: Value, b: Value) -> Value:
        return self._linear(a, b, self.body.add, 1, 1)

    def subtract(self, a: Value, b: Value) -> Value:
        return self._linear(a, b, self.body.subtract, 1, -1)

    def multiply(self, a: Value, b: Value) -> Value | None:
        """The product where it is uniform or a ramp; None where it is neither."""
        if a.lanes or b.lanes:
            return None
        if is_constant(a.parts[0]) and not a.axes and a.uniform:
            a, b = b, a
        if is_constant(b.parts[0]) and not b.axes and b.uniform:
            return self._linear(a, b, self.body.multiply, int(b.parts[0]), 0)
        if a.uniform and b.uniform:
            return self._linear(a, b, self.body.multiply, None, None)
        return None

    def _linear(
        self, a: Value, b: Value, operation: Callable[[str, str], str], of_a: int | None, of_b: int | None
    ) -> Value:
        """What grows as so many times the one and so many times the other; None: as nobody knows."""
        axes = join((a, b))
        parts = tuple(operation(p, q) for p, q in zip(a.along(axes), b.along(axes)))
        if of_a is None or of_b is None:
            return Value(i64, parts, axes)
        return Value(i64, parts, axes, stride=of_a * a.stride + of_b * b.stride, slopes=slopes(a, b, of_a, of_b))


def slopes(a: Value, b: Value, of_a: int, of_b: int) -> tuple[int | None, ...]:
    """The slopes of what grows as so many times the one and so many times the other."""
    found = [(a.slope(axis), b.slope(axis)) for axis in join((a, b))]
    return tuple([None if p is None or q is None else of_a * p + of_b * q for p, q in found])


def transposed(body: Body, element: str, rows: Sequence[str]) -> list[str]:
    """As many vectors as each has lanes, rows of a square, as its columns.

    Row by column, a place is known by the bits of two numbers; they are exchanged one by one, between pairs of rows
    and pairs of lanes that are 1, 2, 4 ... apart::

        a0 a1 a2 a3        a0 b0 a2 b2        a0 b0 c0 d0
        b0 b1 b2 b3   ->   a1 b1 a3 b3   ->   a1 b1 c1 d1
        c0 c1 c2 c3        c0 d0 c2 d2        a2 b2 c2 d2
        d0 d1 d2 d3        c1 d1 c3 d3        a3 b3 c3 d3
    """
    lanes, made, apart = len(rows), list(rows), 1
    type = f"<{lanes} x {element}>"
    while apart < lanes:
        low = indices([lane + lanes - apart if lane & apart else lane for lane in range(lanes)])
        high = indices([lane + lanes if lane & apart else lane + apart for lane in range(lanes)])
        for first in range(lanes):
            if not first & apart:
                pair = f"{type} {made[first]}, {type} {made[first + apart]}"
                made[first], made[first + apart] = (body.value(f"shufflevector {pair}, {how}") for how in (low, high))
        apart *= 2
    return made


def splat(body: Body, element: str, part: str, lanes: int) -> str:
    """A vector with one scalar in every lane."""
    if is_constant(part):
        return f"splat ({element} {part})"
    type = f"<{lanes} x {element}>"
    first = body.value(f"insertelement {type} poison, {element} {part}, i64 0")
    return body.value(f"shufflevector {type} {first}, {type} poison, <{lanes} x i32> zeroinitializer")


def slice_of(body: Body, element: str, vector: str, lanes: int, chosen: Sequence[int]) -> str:
    """The chosen elements of a vector, in that order."""
    type = f"<{lanes} x {element}>"
    return body.value(f"shufflevector {type} {vector}, {type} poison, {indices(chosen)}")


def concatenate(body: Body, element: str, pieces: list[str], lanes: int) -> str:
    """Pieces of equal width, a power of two of them, as one vector."""
    while len(pieces) > 1:
        type, whole = f"<{lanes} x {element}>", indices(range(2 * lanes))
        pieces = [
            body.value(f"shufflevector {type} {low}, {type} {high}, {whole}")
            for low, high in zip(pieces[::2], pieces[1::2])
        ]
        lanes *= 2
    return pieces[0]
