"""Scans: the running reductions along an axis, and their named instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..expr import Expr, as_expr
from ..graph import Value
from ..primitive import PRIMITIVES
from ..trees import Structure
from ..types import i64
from .operands import Elements, Function, extreme, totalled
from .shapes import ravel


def scan(
    op: Function, neutral: Any, xs: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False
) -> Structure:
    """The running reductions along an axis with an associative ``op``: ``xs[0] op ... op xs[i]`` for each i.

    An exclusive scan leaves out ``xs[i]`` itself, so that it begins with the neutral element. A reversed one runs from
    the end: its element i is ``xs[n-1] op ... op xs[i]``, with the later elements on the left (as the reversed
    ``associative_scan`` of JAX has it; swap the arguments of ``op`` for Accelerate's ``scanr1``). ``xs``, ``neutral``
    and ``op`` are as in :func:`reduce`: the neutral's axes say what an element is, other axes are mapped over. The
    result has the shape of ``xs``. Raises TypeError when the structures or types do not fit.

    >>> import adze as az
    >>> @az.program
    ... def offsets(lengths: az.Array[az.i64, "n"]) -> az.Array[az.i64, "n"]:
    ...     return az.scan(lambda a, b: a + b, 0, lengths, exclusive=True)
    """
    elements = Elements("scan", op, neutral, xs, axis)
    builder = elements.builder
    zero, one = builder.literal(0, i64), builder.literal(1, i64)

    def build(prefix: tuple[Value, ...]) -> Sequence[Value]:
        last = builder.primitive("subtract", elements.extent, one)

        def mirrored(i: Value) -> Value:
            return builder.primitive("subtract", last, i) if reverse else i

        def at(i: Value) -> Sequence[Value]:
            if not exclusive:
                return elements.at(prefix, mirrored(i))
            before = builder.primitive("subtract", i, one)
            first = builder.primitive("equal", i, zero)
            return builder.cond(first, lambda: elements.neutrals, lambda: elements.at(prefix, mirrored(before)))

        values = builder.scan(elements.extent, elements.neutrals, at, elements.operator, elements.names)
        if not reverse:
            return values
        return builder.generate(elements.extent, lambda i: [builder.part(value, [mirrored(i)]) for value in values])

    return elements.in_place(elements.mapped(build))


def _cumulative(x: Expr, axis: Any, reverse: bool, primitive: str, neutral: Any) -> Expr:
    flat, along = (ravel(x), 0) if axis is None else (x, axis)
    running: Expr = scan(PRIMITIVES[primitive], neutral, flat, along, reverse=reverse)
    return running


def cumsum(x: Any, axis: Any = None, reverse: bool = False, *, dtype: Any = None) -> Expr:
    """The running sums along an axis, or of all elements in order (the default).

    Integers and booleans are added as i64, as in NumPy; ``dtype`` says another type to add in.
    """
    return _cumulative(totalled(x, dtype), axis, reverse, "add", 0)


def cumprod(x: Any, axis: Any = None, reverse: bool = False, *, dtype: Any = None) -> Expr:
    """The running products along an axis, or of all elements; of integers and booleans in i64, or in ``dtype``."""
    return _cumulative(totalled(x, dtype), axis, reverse, "multiply", 1)


def cummax(x: Any, axis: Any = None, reverse: bool = False) -> Expr:
    """The largest element so far along an axis, or of all elements in order (the default)."""
    x = as_expr(x)
    return _cumulative(x, axis, reverse, "maximum", extreme(x.dtype, -1))


def cummin(x: Any, axis: Any = None, reverse: bool = False) -> Expr:
    """The smallest element so far along an axis, or of all elements in order (the default)."""
    x = as_expr(x)
    return _cumulative(x, axis, reverse, "minimum", extreme(x.dtype, 1))
