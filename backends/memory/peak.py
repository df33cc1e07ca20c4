"""How much memory a call takes, from its arguments, without running it.

What is in the arena is known from the sizes (``memory/arena.py``). The other temporaries, the *dynamic* ones, take
their memory where they are bound: their extents mention scalar arguments, such as a number of steps, and variables of
loops. So the extents are interpreted over ranges. An argument is a range of one number, the variable of a loop is from
0 to the extent less one, and most of what makes extents is monotone in each operand: its range is that of the corners.

    for i < t17                               with 100 steps in segments of t14 = 10:  i in 0 .. 9
      let t35 = minimum(t14, t9 - i * t14)    minimum(10, 10 .. 100) = 10
      temporary array87: f64[t35, m]          10 * m numbers of 8 bytes

A temporary keeps its memory until its function is left; but what a parallel loop takes is given back behind it, and is
there once a thread, beside what was taken before. The peak is an upper bound, and exact where no extent is below its
bound in every iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from ...core.primitive import Conversion, Primitive
from .. import ir
from .arena import plan

# The least and the greatest value that an expression may have; None where the run decides
Range = tuple[Any, Any] | None

# fmt: off
_MONOTONE = frozenset((
    "add", "subtract", "multiply", "negative", "minimum", "maximum", "floor_divide", "sqrt", "ceil", "floor",
    "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_not",
))
# fmt: on


class Peak:
    """The dynamic temporaries of a function, ready to be measured."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self.dynamic = plan(function).dynamic
        statements = list(ir.walk(function.body))
        self.assigned = {statement.name for statement in statements if isinstance(statement, ir.Assign)}
        self.assigned |= {one.name for each in statements if isinstance(each, ir.For) for one in each.reductions}

    def bytes(self, arrays: Mapping[str, Any], sizes: Mapping[str, int], threads: int, alignment: int) -> int:
        """What they take at most, for the arguments (by the names of their buffers) and sizes of a call.

        Raises LookupError, with the name of the temporary, where a size is known to nobody before the run.
        """
        if not self.dynamic:
            return 0
        names: dict[str, Range] = {name: (np.int64(size), np.int64(size)) for name, size in sizes.items()}
        with np.errstate(all="ignore"):
            return _Measure(self, arrays, names, threads, alignment).block(self.function.body).peak


@dataclass(frozen=True)
class _Bytes:
    """What statements take: the temporaries that stay, those of a parallel loop in passing, and the most at a time."""

    own: int = 0
    passing: int = 0
    peak: int = 0

    def then(self, other: _Bytes) -> _Bytes:
        """These statements, and others after them."""
        peak = max(self.peak, self.own + other.peak)
        return _Bytes(self.own + other.own, max(self.passing, other.passing), peak)

    def again(self) -> _Bytes:
        """These statements several times: what stays is there when they begin anew."""
        return replace(self, peak=self.own + self.passing)


class _Measure:
    """Blocks as the bytes that they take."""

    def __init__(
        self, peak: Peak, arrays: Mapping[str, Any], names: dict[str, Range], threads: int, alignment: int
    ) -> None:
        self.peak, self.arrays, self.names = peak, arrays, names
        self.threads, self.alignment = threads, alignment

    def block(self, block: ir.Block) -> _Bytes:
        return reduce(_Bytes.then, map(self.statement, block), _Bytes())

    def statement(self, statement: ir.Statement) -> _Bytes:
        match statement:
            case ir.Let(name, value):
                self.names[name] = self.range(value)
            case ir.Declare(name, value):
                self.names[name] = None if name in self.peak.assigned else self.range(value)
            case ir.Allocate(buffer) if buffer.name in self.peak.dynamic:
                size = self.size(buffer)
                return _Bytes(own=size, peak=size)
            case ir.For(variable, extent, kind, body):
                count = self.range(extent)
                if count is not None and count[1] <= 0:
                    return _Bytes()
                self.names[variable] = None if count is None else (np.int64(0), np.int64(count[1] - 1))
                inner = self.block(body).again()
                if kind != "parallel":
                    return inner
                return _Bytes(passing=self.threads * inner.peak, peak=self.threads * inner.peak)
            case ir.If(test, then, orelse):
                return self.block(tuple(each for branch in self.branches(test, then, orelse) for each in branch))
            case ir.While(head, test, body):
                return self.block((*head, *(body if self.range(test) != (False, False) else ()))).again()
            case _:
                pass
        return _Bytes()

    def branches(self, test: ir.Expression, then: ir.Block, orelse: ir.Block) -> Iterator[ir.Block]:
        """The branches that may be taken."""
        truth = self.range(test)
        if truth is None or truth[1]:
            yield then
        if truth is None or not truth[0]:
            yield orelse

    def size(self, buffer: ir.Buffer) -> int:
        """The bytes that a temporary takes at most."""
        count = buffer.scalar.bytes
        for extent in buffer.extents:
            length = self.range(extent)
            if length is None:
                raise LookupError(buffer.name)
            count = count * int(length[1]) if length[1] > 0 else buffer.scalar.bytes
        return -(-count // self.alignment) * self.alignment

    def range(self, expression: ir.Expression) -> Range:
        match expression:
            case ir.Constant(value, type):
                number = type.dtype.type(value)
                return number, number
            case ir.Variable(name):
                return self.names.get(name)
            case ir.Apply(primitive, arguments, type):
                ranges = [self.range(argument) for argument in arguments]
                return _applied(primitive, [r for r in ranges if r is not None], type.dtype.type, len(ranges))
            case ir.Select(test, then, orelse):
                truth, first, second = (self.range(each) for each in (test, then, orelse))
                if truth is not None and truth[0] == truth[1]:
                    return first if truth[0] else second
                return None if first is None or second is None else (min(first[0], second[0]), max(first[1], second[1]))
            case ir.Load(buffer, indices) if buffer.name in self.arrays:
                return self.element(self.arrays[buffer.name], [self.range(index) for index in indices])
            case ir.Load() | ir.MultiplyAdd() | ir.All() | ir.First():
                return None

    def element(self, array: Any, indices: list[Range]) -> Range:
        """An element of an argument; where its place is not one, any of those it may be."""
        part = np.asarray(array)
        for axis, index in enumerate(indices):
            if index is not None and index[0] == index[1]:
                part = part.take([min(max(0, int(index[0])), part.shape[axis] - 1)] if part.shape[axis] else [], axis)
        return (part.min(), part.max()) if part.size else None


def _applied(primitive: Primitive, ranges: list[tuple[Any, Any]], scalar: Any, arity: int) -> Range:
    """A primitive on ranges: on the numbers themselves, or on the corners where it is monotone in each operand."""
    name = primitive.name
    if len(ranges) < arity:  # the lesser of two numbers is no more than the one that is known
        bounded = name == "minimum" and ranges and np.dtype(scalar).kind == "i"
        return (np.iinfo(scalar).min, ranges[0][1]) if bounded else None
    corners = list(product(*(sorted({low, high}) for low, high in ranges)))
    if len(corners) > 1:
        if name in ("floor_divide", "remainder") and ranges[1][0] <= 0:
            return None
        if name == "remainder":
            return scalar(0), scalar(ranges[1][1] - 1)
        converts = isinstance(primitive.llvm, Conversion)
        if name not in _MONOTONE and not converts:
            return None
        exact = [float(c[0]) if converts else primitive.numpy(*map(np.float64, c)) for c in corners]
        if (
            np.dtype(scalar).kind in "iu"
            and not np.iinfo(scalar).min <= min(exact) <= max(exact) <= np.iinfo(scalar).max
        ):
            return None  # it may wrap around
    values = [scalar(primitive.numpy(*corner)) for corner in corners]
    return min(values), max(values)
