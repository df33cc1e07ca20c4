"""Integers that cannot wrap around: sizes, counters of loops, and what is made of these alone.

A size or a counter counts as less than 2^31 (``expressions.py``), so what a name stands for has a bound that follows
from what it was made of. A name is *measured* if it is not negative and its bound is no more than 64 bits hold::

    let chunks = (n + 1023) // 1024        at most 2^31 + 1022
    let square = i * i                     at most 2^62; its own square is none
"""

from __future__ import annotations

from ...core.types import i64
from .. import ir
from .expressions import COUNTER, LARGEST


def measures_of(function: ir.Function) -> dict[str, int]:
    """The host's scalars that are sizes, or made of sizes alone, and what they are at most."""
    measures = dict.fromkeys(function.sizes, COUNTER)
    pending = [function.body]
    while pending:
        for statement in pending.pop():
            match statement:
                case ir.Let(name, value):
                    measure(name, value, measures)
                case ir.For(variable):
                    measures[variable] = COUNTER
                    pending.append(statement.body)
                case ir.If(_, then, orelse):
                    pending += [then, orelse]
                case ir.While(head, _, body):
                    pending += [head, body]
                case _:
                    pass
    return measures


def measure(name: str, value: ir.Expression, measures: dict[str, int]) -> None:
    """Note what is made of sizes and counters alone, if it is not negative."""
    bounds = _bounds(value, measures)
    if bounds is not None and bounds[0] >= 0:
        measures[name] = bounds[1]


def _bounds(value: ir.Expression, measures: dict[str, int]) -> tuple[int, int] | None:
    """What is made of sizes and counters is at least, and at most; None for anything else, and what may wrap around."""
    match value:
        case ir.Constant(number, type) if type == i64 and abs(number) <= COUNTER:
            return int(number), int(number)
        case ir.Variable(name) if name in measures:
            return 0, measures[name]
        case ir.Apply(primitive, (first, second), type) if type == i64:
            a, b = _bounds(first, measures), _bounds(second, measures)
            found = None if a is None or b is None else _bounds_of(primitive.name, a, b)
            return found if found is not None and found[1] <= LARGEST else None
    return None


def _bounds_of(name: str, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int] | None:
    match name:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "subtract" if b[0] == b[1]:
            return a[0] - b[0], a[1] - b[0]
        case "maximum":
            return max(a[0], b[0]), max(a[1], b[1])
        case _ if min(a[0], b[0]) < 0:
            return None
        case "multiply":
            return 0, a[1] * b[1]
        case "minimum":
            return min(a[0], b[0]), min(a[1], b[1])
        case "floor_divide":
            return 0, a[1]
        case "remainder":
            return 0, b[1]
    return None
