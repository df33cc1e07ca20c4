"""Stacks of matrices, and operations on them: results that are computed without derivatives, and move by a rule.

LAPACK computes them, or for small matrices a program of the language (``small.py``); neither is differentiated. What
was computed goes, with what it was computed from, through a function that returns it as it is and has the rule::

    factor = moving(a, cholesky of a constant)        rule(a, factor, factor_bar) -> a_bar

So the rule has the results, and nothing is factorised again, in derivatives of any order. (JAX's
``custom_linear_solve`` gives the factors of a constant to a solve in this way.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ...core import trees
from ...core.builder import current
from ...core.combinators import broadcast_to, diagonal, eye, generate, swapaxes, tril, zeros_like
from ...core.combinators.linear import batch_sizes
from ...core.custom import Custom
from ...core.dims import Dim
from ...core.expr import Expr, same_size
from ...core.graph import Value
from ...core.operations import operation as library_operation
from ...core.primitive import PRIMITIVES
from ...core.source import at_line, user_line
from ...core.terms import Failure
from ...core.types import Type, array_of, dims, element
from .one_thread import on_one_thread
from .routines import load

SMALL = 32  # matrices with constant extents up to this one are left to programs of the language
Operation = Callable[..., Any]
Rule = Callable[[tuple[Any, ...], Any, Any], tuple[Any, ...]]


def matrices(what: str, x: Expr, square: bool = True) -> Expr:
    """A matrix, or a stack of them."""
    if x.ndim < 2:
        raise TypeError(at_line(f"{what} takes a matrix or a stack of matrices, not a value of type {x.type}"))
    if square:
        same_size(x.value, x.ndim - 2, x.value, x.ndim - 1, f"{what} of what is not square")
    return x


def stacks(what: str, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Two stacks of as many matrices."""
    if a.ndim == b.ndim == 2:
        return a, b
    front = [Expr(size, a.builder) for size in batch_sizes(a, b, what)]
    first, second = [broadcast_to(x, (*front, *x.shape[-2:])) for x in (a, b)]
    return first, second


def like(type: Type, *sizes: Dim) -> Type:
    """The type of a stack of other arrays than the matrices of a type."""
    return array_of(element(type), (*dims(type)[:-2], *sizes))


# Algebra


def turned(x: Any) -> Any:
    """The transposes."""
    return swapaxes(x, -1, -2)


def halved(x: Any) -> Any:
    """The lower triangle with half of the diagonal."""
    return tril(x) - 0.5 * eye(x.shape[-1], dtype=x.dtype) * x


def symmetric(x: Any) -> Any:
    """The symmetric parts."""
    return 0.5 * (x + turned(x))


def diagonals(x: Any) -> Any:
    """The main diagonals."""
    return diagonal(x, axis1=-2, axis2=-1)


def on_diagonal(x: Any) -> Any:
    """Matrices with these diagonals."""
    return eye(x.shape[-1], dtype=x.dtype) * x[..., None, :]


def read(x: Any, *place: Any) -> Expr:
    """The element at a place that is known to be there."""
    builder = current()
    return Expr(builder.index(x.value, [i.value for i in place]), builder)


def written(x: Any, place: Any, value: Any) -> Expr:
    """A vector with another value at a place that is known to be there."""
    builder = current()
    return Expr(builder.scatter(True, [], [x.value], lambda: [place.value, value.value])[0], builder)


# Operations


def constant(x: Any) -> Any:
    """x, which does not move."""
    return PRIMITIVES["stop_gradient"](x) if x.dtype.kind == "float" else x


def is_small(x: Any, most: int = SMALL) -> bool:
    """Whether matrices have constant, small extents."""
    return all([dim.constant is not None and dim.constant <= most for dim in dims(x.type)[-2:]])


def of_each(function: Operation) -> Operation:
    """A function of one matrix, and of other arrays, for stacks of them."""

    @wraps(function)
    def mapped(*arrays: Any) -> Any:
        [first, *_] = arrays
        if first.ndim == 2:
            return function(*arrays)
        return generate(first.shape[:-2], lambda *at: function(*[x[at] for x in arrays]))

    return mapped


def one_by_one(function: Operation) -> Operation:
    """A function of equal stacks, which goes through small matrices in a loop: its iterations are the lanes."""
    mapped = of_each(function)
    return lambda *arrays: (mapped if is_small(arrays[0]) else function)(*arrays)


def of_lapack(
    name: str,
    numpy: Callable[..., None],
    result: Callable[..., Any],
    program: Operation,
    lanes: int = SMALL,
    devices: int | None = None,
    fewer: Mapping[tuple[int, ...], Callable[..., None]] | None = None,
) -> Operation:
    """What LAPACK computes on stacks, on one thread; ``program`` is the same for one matrix, in the language.

    ``numpy`` fills its results, and ``fewer`` has what fills those at some places alone. ``program`` runs where
    constant extents are at most ``lanes``, and on OpenCL devices, if they are at most ``devices`` there and the sizes
    are those of arguments.
    """
    each = of_each(program)

    def entry(numpy: Callable[..., None], on_devices: bool, places: tuple[int, ...] | None, **more: Any) -> Operation:
        def of_these(function: Operation) -> Operation:
            return function if places is None else lambda *given: tuple([function(*given)[place] for place in places])

        expansion = of_these(each) if on_devices else None
        more |= {"result": of_these(result), "expansion": expansion}
        return library_operation(name, numpy=on_one_thread(numpy), views=True, fills=True, **more)

    def whole(on_devices: bool) -> Operation:
        parts = {places: entry(function, on_devices, places) for places, function in (fewer or {}).items()}
        return entry(numpy, on_devices, None, fewer=parts)

    called, expanded = whole(False), whole(True)

    def applied(*arrays: Any) -> Any:
        if is_small(arrays[0], lanes):
            return each(*arrays)
        load()
        given = all([dim.is_static() for x in arrays for dim in dims(x.type)])
        return (expanded if given and (devices is None or is_small(arrays[0], devices)) else called)(*arrays)

    return applied


def operation(name: str, computed: Operation, rule: Rule, *options: bool) -> Operation:
    """The operation whose results are computed from constants, and have derivatives by a rule.

    ``rule(arguments, results, cotangents)`` gives the cotangents of the arguments, None for integers. It is a function
    of them and of the ``options`` alone.
    """

    def moving(arguments: Any, results: Any) -> Any:
        return results

    moving.__name__ = name
    custom = Custom(moving, "custom_vjp", (rule.__module__, rule.__qualname__, *options))

    @custom.defvjp
    def _(primals: Any, cotangents: Any) -> Any:
        arguments, results = primals
        leaves, tree = trees.flatten(results)
        still = [zeros_like(x) if x.dtype.kind == "float" else None for x in leaves]
        return rule(arguments, custom(*primals), cotangents), trees.unflatten(tree, still)

    def applied(*arguments: Any) -> Any:
        return custom(arguments, computed(*[constant(x) for x in arguments]))

    return applied


def regular(fine: Expr, problem: str) -> None:
    """Require this of all matrices of a stack: LinAlgError in the run, with the number of the first that is not so.

    Loops around are counted too, if the matrix may vary with them.
    """
    builder = current()

    def check(*place: Any) -> None:
        test = builder.index(fine.value, place) if place else fine.value
        around, varies = list[Value](), False
        for scope in reversed(builder.scopes):
            own = [binder for binder in scope.binders if binder.number in test.free]
            # A state, or what a function is given, varies with all loops around.
            varies = varies or any(binder.number not in builder.extents for binder in own)
            indices = [x for x in scope.binders if x.number in builder.extents and (varies or x in own)]
            around[:0] = indices
        number = ", number " + ", ".join([f"{{{k}}}" for k in range(len(around))]) if around else ""
        builder.require(test, Failure("linalg", problem + number, user_line()), around)

    builder.origin = user_line()
    builder.each(builder.sizes(fine.value), check)


# LAPACK


def each_of(function: Callable[..., None], *arrays: Any) -> None:
    """Have a function of one matrix, and of other arrays, fill what it fills for each of a stack."""
    for at in np.ndindex(*arrays[0].shape[:-2]):
        function(*[x[at] for x in arrays])


def fill_with_nan(*arrays: Any) -> None:
    for array in arrays:
        array[...] = np.nan


def filling(function: Callable[..., Sequence[Any]]) -> Callable[..., None]:
    """NumPy's function of one array, which fills arrays with its results, or with NaN where it finds none.

    NumPy finds none for a whole stack if it finds none for one of its matrices.
    """

    def filled(x: Any, *results: Any) -> None:
        try:
            found = function(x)
        except np.linalg.LinAlgError:
            if x.ndim > 2:
                each_of(filled, x, *results)
            else:
                fill_with_nan(*results)
            return
        for place, result in zip(results, found, strict=True):
            place[...] = result

    return filled
