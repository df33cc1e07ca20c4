"""Directions in which the arguments of programs move: values of any structure, with numbers in the place of numbers.

v = direction(List.Cons(2.0, List.Nil()), seed=1)       # List.Cons(0.34..., List.Nil())
inner(v, v)                                             # 0.11...
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import adze as az
from adze.core.data import Data
from adze.core.types import holds_floating


def moving(program: az.Program) -> list[int]:
    """The parameters with floating numbers in them."""
    declared = [parameter.declared for parameter in program.parameters]
    return [k for k, one in enumerate(declared) if one is not None and any(map(holds_floating, one.types))]


def parts(x: Any) -> list[Any]:
    """What a value is directly made of."""
    if isinstance(x, Data):
        return list(x._values)
    return list(x.values() if isinstance(x, dict) else x) if isinstance(x, tuple | list | dict) else []


def is_floating(x: Any) -> bool:
    return isinstance(x, float | np.ndarray) and np.asarray(x).dtype.kind == "f"


def combined(f: Callable[..., Any], x: Any, *others: Any) -> Any:
    """The value with ``f`` applied to its floating numbers and those of values like it."""
    inside = [combined(f, *each) for each in zip(*map(parts, (x, *others)), strict=True)]
    if isinstance(x, Data):
        return type(x)._of(inside)
    if isinstance(x, dict):
        return dict(zip(x, inside, strict=True))
    if isinstance(x, tuple | list):
        return type(x)(inside)
    return f(x, *others) if is_floating(x) else x


def floats(x: Any) -> list[Any]:
    if isinstance(x, Data | tuple | list | dict):
        return [leaf for part in parts(x) for leaf in floats(part)]
    return [x] if is_floating(x) else []


def direction(x: Any, seed: int) -> Any:
    random = np.random.default_rng(seed)
    return combined(lambda y: random.normal(size=np.shape(y))[()], x)


def inner(x: Any, y: Any) -> float:
    return sum(float(np.sum(np.asarray(a) * b)) for a, b in zip(floats(x), floats(y), strict=True))


def differences(f: Callable[..., Any], primals: list[Any], tangents: list[Any], h: float = 1e-5) -> Any:
    """The derivative along tangents by central differences: its floating numbers."""
    ahead, behind = (
        f(*[combined(lambda x, d, k=k: x + k * h * d, x, d) for x, d in zip(primals, tangents, strict=True)])
        for k in (1, -1)
    )
    return [(a - b) / (2 * h) for a, b in zip(floats(ahead), floats(behind), strict=True)]


def close(found: Any, expected: Any) -> None:
    for x, y in zip(floats(found), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-8)
