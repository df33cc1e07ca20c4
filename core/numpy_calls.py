"""Calls of NumPy's functions on expressions: NumPy's arguments, in NumPy's order, for the functions of the language.

A function of NumPy that is the meaning of a primitive is that primitive; ``NUMPY`` has our functions in the place of
others, entered by the modules that define them.

A function of ours that stands for one of NumPy has its own parameters: it may have more of them, and lack some. So
the arguments of a call are bound by NumPy's signature, and go to ours by name. The arrays in front, which have no
default, go by their places, as they are named in many ways. What ours has no parameter for may only be what NumPy's
default says:

    np.sum(x, 0, np.int32)                is sum(x, axis=0, dtype=i32, keepdims=False)
    np.sum(x, where=mask)                 is refused
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .primitive import MEANINGS
from .source import at_line

# What functions of NumPy mean on expressions: those of our functions that have the same arguments.
NUMPY: dict[Callable[..., Any], Callable[..., Any]] = {}

# Arguments that choose between ways to the same result.
_WAYS = frozenset({"kind", "stable", "optimize", "subok", "copy", "casting", "device"})
# Parameters of ours with another name in NumPy.
_RENAMED = {"a_min": "low", "a_max": "high", "min": "low", "max": "high", "fill_value": "value"}

# Arrays that have a default in NumPy.
_ARRAYS: dict[Callable[..., Any], Sequence[str]] = {np.where: ("x", "y")}

# What NumPy writes before or behind the name of a function for one that is much like it: np.nansum, np.fliplr.
_VARIANTS = ("nan", "a", "h", "v", "d", "row_", "column_"), ("lr", "ud", "2")

Given = Mapping[str, Any]


def meaning(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a function of NumPy means on expressions: the primitive with that meaning, or our function in its place."""
    ours = NUMPY.get(function) or MEANINGS.get(function)
    if ours is None:
        raise TypeError(at_line(f"{_name_in_numpy(function)} is not an operation of the language; {_near(function)}"))
    return ours


def _name_in_numpy(function: Any) -> str:
    """The whole name of a function of NumPy, or of a universal function of another library."""
    name = function.__name__
    if isinstance(function, np.ufunc) and getattr(np, name, None) is not function:
        return f"the universal function {name}"
    return f"{getattr(function, '__module__', None) or 'numpy'}.{name}".replace("numpy", "np", 1)


def _near(function: Any) -> str:
    """What there is in the place of a function of NumPy."""
    ours = {known.__name__ for known in [*MEANINGS, *NUMPY] if hasattr(np, known.__name__)}
    name, (before, behind) = function.__name__, _VARIANTS
    plain = [name, *[name.removeprefix(part) for part in before], *[name.removesuffix(part) for part in behind]]
    near = next((each for each in plain if each in ours), None)
    there = f"there is np.{near}, and " if near else "write it with loops, or "
    return f"{there}az.foreign brings in a function on arrays"


def called(function: Callable[..., Any], args: Sequence[Any], options: Given) -> Any:
    """What ``function`` of NumPy, called so, is with ours in its place. TypeError where ours has not all of that."""
    ours, signature = meaning(function), _signature(function)
    if signature is None:
        return ours(*args, **options)
    try:
        bound = signature.bind(*args, **options)
    except TypeError as error:
        raise TypeError(at_line(f"np.{function.__name__}: {error}")) from None
    given = dict(bound.arguments)
    rest = {**given.pop("kwargs", {})}
    own = inspect.signature(ours).parameters
    front = [name for name, parameter in signature.parameters.items() if _is_array(parameter)]
    front += [name for name in _ARRAYS.get(function, ()) if name in given]
    arrays: list[Any] = []
    for name in front:
        arrays += (
            given.pop(name)
            if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            else ([given.pop(name)] if name in given else [])
        )
    for name, parameter in signature.parameters.items():
        if name in front or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        value = given.get(name, parameter.default)
        if value is not np._NoValue:
            rest[name] = value
    named: dict[str, Any] = {}
    for name, value in rest.items():
        target = name if name in own else _RENAMED.get(name, name)
        if target in own:
            named[target] = value
        elif name not in _WAYS and not _is_default(signature, name, value):
            raise TypeError(at_line(f"np.{function.__name__}: on expressions it takes no argument {name!r}"))
    return ours(*arrays, **named)


def _is_array(parameter: inspect.Parameter) -> bool:
    """Whether a parameter of NumPy's is one of those in front, without a default."""
    if parameter.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
        return False
    return parameter.default is inspect.Parameter.empty


def _is_default(signature: inspect.Signature, name: str, value: Any) -> bool:
    if name not in signature.parameters:
        return False
    default = signature.parameters[name].default
    return value is default or (isinstance(value, str | bool | int) and value == default)


@lru_cache(maxsize=256)
def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """NumPy's signature, if it says it (functions written in C do so in some versions)."""
    try:
        return inspect.signature(function)
    except ValueError:
        return None
