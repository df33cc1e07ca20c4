"""Arrays put together from parts, as steps: what the groups of a map have computed, the outputs of a loop's turns.

The core has no array of given elements, and an update each would copy the array each time. So the parts are added, in
one ``accumulate``, to what addition leaves as it is: -0.0 in floating numbers, 0 in integers. Truth values are joined
as integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.dims import Dim
from ...core.primitive import lookup
from ...core.terms import Atom, Constant, Literal, Operation
from ...core.types import Accumulator, ArrayType, Scalar, Type, array_of, bool_, dims, element, i32, i64
from .recording import Known, Recorder

Name = int | Atom


class Part(NamedTuple):
    """A row of an array, at an index; or rows, at a vector of indices. ``type`` is that of the row, or of the rows."""

    at: Any
    name: Name
    type: Type


def join(recorder: Recorder, parts: Sequence[Part], type: ArrayType, value: Any) -> Known:
    """Record the steps to an array of this type, which has this value and these parts."""
    scalar = i32 if type.scalar is bool_ else type.scalar
    total, nothing = ArrayType(scalar, type.dims), -0.0 if scalar.kind == "float" else 0
    blank = _array(recorder, total, lambda inner, loops: Literal.of(nothing, scalar))
    (initial,) = recorder.emit(blank, [np.full_like(value, nothing, scalar.dtype)])
    inside = Recorder(recorder.depth, (Accumulator(total),))
    for part in parts:
        _add(inside, recorder.depth, total, part, [])
    step = Operation("accumulate", (), (recorder.atom(initial.level, total),), (inside.block(()),), (total,))
    (joined,) = recorder.emit(step, [value.astype(scalar.dtype)])
    if scalar is type.scalar:
        return joined

    def truth(inner: Recorder, loops: Sequence[int]) -> Name:
        number = _read(inner, joined.level, total, loops)
        return _apply(inner, "not_equal", [number, Literal.of(0, scalar)], scalar, bool_)

    return recorder.emit(_array(recorder, type, truth), [value])[0]


def _add(recorder: Recorder, cell: int, total: ArrayType, part: Part, loops: Sequence[int]) -> None:
    """Add a part to an accumulator, in a loop over each of its axes."""
    axes, scalar = dims(part.type), total.scalar
    if len(loops) < len(axes):
        inner = Recorder(recorder.depth, (i64,))
        _add(inner, cell, total, part, [*loops, recorder.depth])
        recorder.emit(_loop(axes[len(loops)], inner, [], ()), [])
        return
    value, places = _read(recorder, part.name, part.type, loops), list[Name](loops)
    if element(part.type) is not scalar:
        value = _apply(recorder, scalar.name, [value], element(part.type), scalar)
    if np.ndim(part.at):
        table = Constant.capture(part.at)
        places[0] = _read(recorder, table, table.type, loops[:1])
    else:
        places.insert(0, Literal.of(int(part.at), i64))
    atoms = [recorder.atom(place, i64) for place in places]
    target = recorder.atom(cell, Accumulator(total))
    recorder.emit(Operation("add_to", (), (target, recorder.atom(value, scalar), *atoms), (), ()), [])


def _array(recorder: Recorder, type: ArrayType, element: Callable[[Recorder, Sequence[int]], Name]) -> Operation:
    """The step of an array, of an element that is recorded where its loops are."""

    def over(outer: Recorder, loops: Sequence[int]) -> Operation:
        inner, rest = Recorder(outer.depth, (i64,)), type.dims[len(loops) :]
        here = [*loops, outer.depth]
        part = array_of(type.scalar, rest[1:])
        if len(rest) > 1:
            operation = over(inner, here)
            result: Name = inner.emit(operation, [None])[0].level
        else:
            result = element(inner, here)
        return _loop(rest[0], inner, [inner.atom(result, part)], (array_of(type.scalar, rest),))

    return over(recorder, [])


def _loop(extent: Dim, inside: Recorder, results: Sequence[Atom], types: tuple[Type, ...]) -> Operation:
    count = extent.constant
    assert count is not None
    return Operation("generate", (extent,), (Literal.of(count, i64),), (inside.block(results),), types)


def _read(recorder: Recorder, array: Name, type: Type, loops: Sequence[int]) -> Name:
    """The element of an array for these loops; a scalar as it is."""
    if not loops:
        return array
    atoms = (recorder.atom(array, type), *[recorder.atom(loop, i64) for loop in loops])
    return recorder.emit(Operation("index", (), atoms, (), (element(type),)), [None])[0].level


def _apply(recorder: Recorder, primitive: str, names: Sequence[Name], operand: Scalar, result: Scalar) -> Name:
    atoms = tuple([recorder.atom(name, operand) for name in names])
    return recorder.emit(Operation("primitive", (lookup(primitive),), atoms, (), (result,)), [None])[0].level
