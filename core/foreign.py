"""Calls of functions that are written elsewhere: what they are given, and whether they keep what they promised.

A function gets NumPy's scalars and arrays, which it cannot write to. It gives as many results as its rule for types
says, of these types and sizes; who calls it copies them, since it may keep its own. Or it fills arrays that it gets.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from .dims import Dim
from .host_arrays import as_array
from .terms import Foreign
from .types import Type, array_of, dims, element, rank, scalar_of


class _Surroundings(threading.local):
    """What is known, in this thread, of the call that the function which runs is a part of."""

    threads = 1  # that it may have: one inside of a parallel loop, and in evaluation


surroundings = _Surroundings()


class BrokenPromise(Exception):
    """A function written elsewhere has not given what it promised."""


def promised(function: Foreign, values: Sequence[Any], types: Sequence[Type]) -> Sequence[Type]:
    """The types of the results for values of these types, with integers for all sizes."""
    return function.result_types(sized(values, types))


def sized(values: Sequence[Any], types: Sequence[Type]) -> list[Type]:
    """The types of values, with integers for all sizes."""
    pairs = zip(values, types, strict=True)
    return [array_of(element(type), tuple(map(Dim.of, np.shape(value)[: rank(type)]))) for value, type in pairs]


def applied(function: Foreign, values: Sequence[Any], types: Sequence[Type]) -> list[Any]:
    """Copies of the results of a function, which promised these types. BrokenPromise where it gives something else."""
    return [np.array(result)[()] for result in given(function, values, types)]


def given(function: Foreign, values: Sequence[Any], types: Sequence[Type]) -> list[Any]:
    """The results of a function, as :func:`applied`; the function may keep them, and change them later."""
    assert function.numpy is not None
    if function.fills:
        empty = [np.empty([dim.number({}) for dim in dims(type)], element(type).dtype) for type in types]
        filled(function, values, empty)
        return [each[()] for each in empty]
    found = function.numpy(*[_read_only(value) for value in values])
    results = [as_array(result) for result in (found if isinstance(found, tuple | list) else [found])]
    if len(results) != len(types) or not all(map(_fits, results, types)):
        wanted, found = ", ".join(map(str, types)), ", ".join(map(_described, results))
        raise BrokenPromise(f"{function.name} promised to give ({wanted}), but gave ({found})")
    return results


def filled(function: Foreign, values: Sequence[Any], results: Sequence[Any]) -> None:
    """Have a function that fills its results do so. BrokenPromise where it gives some, too."""
    assert function.numpy is not None
    found = function.numpy(*[_read_only(value) for value in values], *results)
    if found is not None:
        raise BrokenPromise(f"{function.name} promised to fill its results, but gave {_described(np.asarray(found))}")


def _fits(value: Any, type: Type) -> bool:
    """Whether a scalar or array is of a type, all sizes of which are integers."""
    return bool(value.dtype == element(type).dtype and value.shape == tuple([dim.constant for dim in dims(type)]))


def _described(value: Any) -> str:
    """The type of an array or scalar, as types are written."""
    return f"{scalar_of(value.dtype) or value.dtype}{list(value.shape) if value.ndim else ''}"


def _read_only(value: Any) -> Any:
    if np.ndim(value) == 0:
        return value
    view = np.require(value, requirements=["C", "A"])[...]
    view.flags.writeable = False
    return view
