"""``az.from_jax`` and ``az.from_torch``: a function of another library as an operation, with the derivatives of that.

An operation (``core/operations.py``) is a meaning on NumPy's arrays, types of results, and rules. The meaning is the
function, called by its library. Its rules are operations again, whose meanings are what the library makes of the
function: its jvp, its vjp; and so on, each made when somebody differentiates:

    op(x, k) -> y                        f
    jvp:  op.jvp(x, k, dx) -> dy         lambda x, k, dx: jax.jvp(f at k, (x,), (dx,))[1]
    vjp:  op.vjp(x, k, cy) -> cx         lambda x, k, cy: jax.vjp(f at k, x)[1](cy)
    vjp of the vjp: op.vjp.vjp(...)      the same of that

So the functions of a library are all it takes: how to call one, push tangents through, pull cotangents back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..core import trees
from ..core.functions import description
from ..core.operations import ForeignFunction, operation
from ..core.source import at_line, ending_at_user
from ..core.types import Type
from .jax_arrays import jax_module
from .leaves import floating
from .tensors import pytorch

Function = Callable[..., Any]  # of the library's arrays, giving a tuple of them


class _Library(NamedTuple):
    """What a library does with functions of its arrays."""

    called: Callable[[Function], Callable[..., Any]]  # as a function of NumPy's arrays
    jvp: Callable[[Function, tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]  # the tangents of the results
    vjp: Callable[[Function, tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]  # the cotangents of the arguments


def _operation(name: str, library: _Library, function: Function, result: Any) -> ForeignFunction:
    """A function that gives a tuple, as an operation."""

    @cache
    def pushed(count: int, moving: tuple[int, ...], moved: tuple[int, ...]) -> ForeignFunction:
        def run(*given: Any) -> tuple[Any, ...]:
            chosen, primals = _at(function, given[:count], moving, moved)
            return library.jvp(chosen, primals, given[count:])

        return _operation(f"{name}.jvp", library, run, lambda *types: _several([made(types, count)[k] for k in moved]))

    @cache
    def pulled(count: int, moving: tuple[int, ...], moved: tuple[int, ...]) -> ForeignFunction:
        def run(*given: Any) -> tuple[Any, ...]:
            chosen, primals = _at(function, given[:count], moving, moved)
            return library.vjp(chosen, primals, given[count:])

        return _operation(f"{name}.vjp", library, run, lambda *types: _several([types[k] for k in moving]))

    def made(types: Sequence[Type], count: int) -> Sequence[Type]:
        return op.function.result_types(types[:count])

    def ends(primals: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The numbers of the arguments and of the results that are differentiated."""
        types = [primal.type for primal in primals]
        return tuple(floating(types)), tuple(floating(made(types, len(types))))

    def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        moving, moved = ends(primals)
        results = trees.flatten(pushed(len(primals), moving, moved)(*primals, *[tangents[k] for k in moving]))[0]
        found = dict(zip(moved, results, strict=True))
        count = len(made([primal.type for primal in primals], len(primals)))
        all_of_them = tuple([found.get(number) for number in range(count)])
        return all_of_them[0] if count == 1 and not is_tuple(primals) else all_of_them

    def vjp(primals: tuple[Any, ...], cotangent: Any) -> Any:
        moving, moved = ends(primals)
        given = list(cotangent) if is_tuple(primals) else [cotangent]
        results = trees.flatten(pulled(len(primals), moving, moved)(*primals, *[given[k] for k in moved]))[0]
        found = dict(zip(moving, results, strict=True))
        return tuple([found.get(number) for number in range(len(primals))])

    def is_tuple(primals: Sequence[Any]) -> bool:
        outputs = op.function.outputs
        if outputs is not None:
            return outputs.container is not None
        return len(made([primal.type for primal in primals], len(primals))) != 1

    op = operation(name, numpy=library.called(function), result=result, derivative={"jvp": jvp, "vjp": vjp})
    return op


def _at(
    function: Function, primals: tuple[Any, ...], moving: Sequence[int], moved: Sequence[int]
) -> tuple[Function, tuple[Any, ...]]:
    """The function of some arguments, the others fixed, giving some results; and the former."""

    def run(*given: Any) -> tuple[Any, ...]:
        arguments = list(primals)
        for number, argument in zip(moving, given, strict=True):
            arguments[number] = argument
        results = function(*arguments)
        return tuple([results[number] for number in moved])

    return run, tuple([primals[number] for number in moving])


def _several(types: Sequence[Any]) -> Any:
    return types[0] if len(types) == 1 else tuple(types)


def _as_tuple(function: Callable[..., Any]) -> Function:
    """A function that gives a tuple, also of one."""

    def run(*arguments: Any) -> tuple[Any, ...]:
        results = function(*arguments)
        return tuple(results) if isinstance(results, tuple | list) else (results,)

    return run


def _named(verb: str, function: Any, name: str | None) -> str:
    if not callable(function):
        raise TypeError(at_line(f"{verb} takes a function of arrays, not {description(function)}"))
    return name or getattr(function, "__name__", None) or type(function).__name__


# JAX


@cache
def _jax() -> _Library:
    jax = jax_module()

    def called(function: Function) -> Callable[..., Any]:
        jitted = jax.jit(function)

        def run(*arrays: Any) -> Any:
            long = any([np.asarray(array).dtype.itemsize == 8 for array in arrays])
            with jax.enable_x64(True) if long and not jax.config.jax_enable_x64 else nullcontext():
                return _several([np.asarray(result) for result in jitted(*arrays)])

        return run

    return _Library(
        called,
        lambda function, primals, tangents: jax.jvp(function, primals, tangents)[1],
        lambda function, primals, cotangents: jax.vjp(function, *primals)[1](cotangents),
    )


@ending_at_user
def from_jax(f: Any, *, result: Any, name: str | None = None) -> ForeignFunction:
    """A function of JAX's arrays as an operation of programs, with JAX's derivatives.

    ``f`` takes arrays and gives one, or a tuple of them; JAX compiles it for each shape. ``result`` declares what it
    gives, or is a rule that gives this for the types of the arguments, as for :func:`operation`. Derivatives of
    programs that call it are those of ``jax.jvp`` and ``jax.vjp``, to any order. Where an argument has 64 bits, JAX's
    numbers of 64 bits are on during a call.

    Compiled programs call it as any function of Python: on copies, under the interpreter's lock. Raises ImportError
    without JAX, and TypeError for what is no function. See ``docs/jax.md``::

        bessel = az.from_jax(jax.scipy.special.i0, result=lambda x: x)

        @az.program
        def total(x: az.Array[az.f64, "n"]) -> az.f64:
            return az.sum(bessel(x))

        az.grad(total)(np.array([0.5, 1.0]))
    """
    library = _jax()
    return _operation(_named("from_jax", f, name), library, _as_tuple(f), result)


# PyTorch


@cache
def _torch() -> _Library:
    torch, one_at_a_time = pytorch(), threading.RLock()  # the levels of PyTorch's dual numbers are those of all threads

    def called(function: Function) -> Callable[..., Any]:
        def run(*arrays: Any) -> Any:
            tensors = [torch.from_numpy(np.array(array)) for array in arrays]
            with torch.no_grad():
                return _several([result.detach().resolve_neg().numpy() for result in function(*tensors)])

        return run

    def jvp(function: Function, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
        with one_at_a_time:
            found: tuple[Any, ...] = torch.func.jvp(function, primals, tangents)[1]
            return found

    return _Library(
        called,
        jvp,
        lambda function, primals, cotangents: torch.func.vjp(function, *primals)[1](cotangents),
    )


@ending_at_user
def from_torch(f: Any, *, result: Any, name: str | None = None) -> ForeignFunction:
    """A function of PyTorch's tensors, such as a module, as an operation of programs, with PyTorch's derivatives.

    ``f`` takes tensors on the host and gives one, or a tuple of them. ``result`` declares what it gives, or is a rule
    that gives this for the types of the arguments, as for :func:`operation`. Derivatives of programs that call it are
    those of ``torch.func.jvp`` and ``torch.func.vjp``, to any order. The parameters of a module are what they are at
    the time of a call, and constants of derivatives; what shall be differentiated is an argument, as in
    ``torch.func.functional_call``.

    Compiled programs call it as any function of Python: on copies, under the interpreter's lock. Raises ImportError
    without PyTorch, and TypeError for what is no function. See ``docs/torch.md``::

        layer = torch.nn.Linear(3, 2, dtype=torch.float64)
        applied = az.from_torch(layer, result=az.Array[az.f64, 2])

        @az.program
        def energy(x: az.Array[az.f64, 3]) -> az.f64:
            return az.sum(applied(x) ** 2)

        az.grad(energy)(np.ones(3))
    """
    library = _torch()
    return _operation(_named("from_torch", f, name), library, _as_tuple(f), result)
