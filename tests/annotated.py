"""Programs for given arguments: a function annotated with their types, and compared with NumPy.

Every comparison runs the program twice: with sizes that are names, and with sizes that are integers, where more is
proved or refused while the program is built.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import adze as az
from adze.core import types

SCALARS = {scalar.dtype: scalar for scalar in types.SCALARS.values()}


def annotated(f: Callable[..., Any], *arguments: Any, fixed: bool = False) -> az.Program:
    """The program of a function on arguments like these; every axis has a size of its own, or an integer."""
    names = [f"x{k}" for k in range(len(arguments))]
    scope: dict[str, Any] = {"f": f}
    exec(f"def program({', '.join(names)}): return f({', '.join(names)})", scope)
    for name, argument in zip(names, map(np.asarray, arguments), strict=True):
        scalar: Any = SCALARS[argument.dtype]
        if argument.ndim:
            sizes = argument.shape if fixed else [f"{name}_{axis}" for axis in range(argument.ndim)]
            scalar = az.Array[scalar, " ".join(map(str, sizes))]
        scope["program"].__annotations__[name] = scalar
    return az.program(scope["program"])


def evaluated(f: Callable[..., Any], *arguments: Any, fixed: bool = False) -> Any:
    """What a function gives for these arguments."""
    program = annotated(f, *arguments, fixed=fixed)
    az.check(program)
    return az.evaluate(program)(*arguments)


def agrees(f: Callable[..., Any], numpy: Callable[..., Any], *arguments: Any, exact: bool = True) -> None:
    """Compare a function with its meaning in NumPy: structure, shapes, types and values."""
    wanted = numpy(*arguments)
    for fixed in (False, True):
        same(evaluated(f, *arguments, fixed=fixed), wanted, exact)


def same(found: Any, wanted: Any, exact: bool = True) -> None:
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        found, wanted = tuple(found.values()), tuple(wanted.values())
    if isinstance(wanted, tuple | list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other, exact)
        return
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if exact:
        np.testing.assert_array_equal(found, wanted)
    else:
        epsilon = float(np.finfo(wanted.dtype).eps) if wanted.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(found, wanted, rtol=64 * epsilon, atol=64 * epsilon)
