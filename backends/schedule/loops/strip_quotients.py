"""Quotients in strips of lanes: they are one number for all lanes, unless a multiple of the divisor lies among these.

What reads rows, blocks or turns of an array by one index asks for its quotient and its remainder, of every lane, and
what is read may lie anywhere. But most strips lie within a row, if rows are longer than strips::

    lanes k < n by 16                     lanes k < n by 16
      let i = k // m * h + k % m            let q = first(k) // m
      y[k] = x[i?]                    =>    if all(0 < m and first(k) < q * m + m and k < q * m + m)
                                              y[k] = x[q * h + (k - q * m)?]
                                            else
                                              let i = k // m * h + k % m
                                              y[k] = x[i?]

So there is a division for a strip, and what the remainder leads to is contiguous. How long rows are, the run says: a
constant divisor must be some strips long. (Where the end of a row is beyond all integers, the first lane is not before
it as they wrap around.) Where the quotient and the remainder are indices of an array with rows as
long, the two are one index as it is (``llvm/access.py``), and nothing is to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ... import ir
from ...target import SPLIT_LEAST_STRIPS
from .affine_lanes import ZERO, Affine

DIVISIONS = ("floor_divide", "remainder")


class Quotients:
    """Those of a loop along lanes that are one number inside; ``lets`` bind them, before the ``tests`` that ask."""

    def __init__(self, loop: ir.For, fresh: Callable[[str], str]) -> None:
        self.loop, self.fresh = loop, fresh
        self.lets: list[ir.Let] = []
        self.tests: list[ir.Expression] = []
        self._known: list[tuple[ir.Expression, ir.Expression, ir.Variable]] = []  # what is divided, in lane 0; by what

    def of(self, number: Affine | None, divisor: Affine | None) -> ir.Variable | None:
        """The quotient of a number by a divisor, if it is one of them."""
        if number is None or divisor is None or number.step != 1 or divisor.step:
            return None
        return next((q for base, by, q in self._known if base == number.base and by == divisor.base), None)

    def add(self, number: Affine | None, divisor: Affine | None) -> list[Affine]:
        """What is not negative, beside the tests, where another quotient is one number; nothing if it cannot be."""
        if number is None or divisor is None or number.step != 1 or divisor.step:
            return []
        by = divisor.base
        if isinstance(by, ir.Constant) and int(by.value) < SPLIT_LEAST_STRIPS * self.loop.factor:
            return []
        lane, quotient = ir.First(ir.Variable(self.loop.variable)), ir.Variable(self.fresh("quotient"))
        first, end = lane if number.base == ZERO else lane + number.base, quotient * by + by
        self.lets.append(ir.Let(quotient.name, first // by))
        self.tests += [by > ZERO, first < end]
        self._known.append((number.base, by, quotient))
        return [Affine(0, end).less(number).plus(-1)]


def rows_of(
    part: ir.Expression | ir.Store, lets: Mapping[str, ir.Let]
) -> Iterator[tuple[ir.Expression, ir.Expression]]:
    """The numbers, each with its divisor, whose quotient and remainder an access takes as one index."""
    if isinstance(part, ir.Load | ir.Store):
        values = [lets[i.name].value if isinstance(i, ir.Variable) and i.name in lets else i for i in part.indices]
        for high, low, size in zip(values, values[1:], part.buffer.extents[1:], strict=False):
            match high, low:
                case ir.Apply(first, (a, b)), ir.Apply(second, (c, d)) if (first.name, second.name) == DIVISIONS:
                    if a == c and b == d == size:
                        yield a, b
