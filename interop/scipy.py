"""``az.linear_operator``: the Jacobian of a program at a point, as a linear operator of SciPy.

The matrix is never made. Its products with vectors are the tangents of a program of leaves, and those of its transpose
the cotangents (``leaves.py``); with several vectors at once, both along an axis. SciPy's vectors are the floating
numbers of the arguments or results, leaf after leaf, each in row-major order::

    operator = az.linear_operator(residuals, x)     # m by n, for residuals of m numbers and n unknowns
    operator @ v                                    # az.jvp
    operator.T @ u                                  # az.vjp
    scipy.sparse.linalg.lsqr(operator, b)           # a Gauss-Newton step
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np

from ..ad.differentiating import chosen, may_hold_floating
from ..core.program import Program
from ..core.source import at_line, ending_at_user
from ..core.types import element
from ..core.verb import program_of
from .leaves import floating
from .operators import Operator

Array = np.ndarray[Any, Any]
Shapes = Sequence[tuple[int, ...]]


class _Leaves(Operator):
    """A program of leaves on NumPy's arrays."""

    array: ClassVar[str] = "array"
    before: ClassVar[str] = "a linear operator has to know"


def _parts(vectors: Array, shapes: Shapes, types: Sequence[np.dtype[Any]]) -> list[Any]:
    """The arrays whose numbers stand in a vector, or in each row of several."""
    found, start = [], 0
    for shape, dtype in zip(shapes, types, strict=True):
        end = start + math.prod(shape)
        part = vectors[..., start:end].reshape(*vectors.shape[:-1], *shape).astype(dtype)
        found.append(part if part.ndim else part[()])
        start = end
    return found


def _joined(parts: Sequence[Any], axes: int, dtype: Any) -> Array:
    """The numbers of arrays as a vector, or as several along so many first axes."""
    flat = [np.reshape(part, (*np.shape(part)[:axes], math.prod(np.shape(part)[axes:]))) for part in parts]
    return np.concatenate(flat, axis=-1, dtype=dtype)


@cache
def _jacobian_class() -> Any:
    base: Any = importlib.import_module("scipy.sparse.linalg").LinearOperator

    class Jacobian(base):  # type: ignore[misc]
        """The derivative of an operator at some values of its arguments, by some of which it is taken."""

        def __init__(self, operator: _Leaves, values: Sequence[Any], moving: Sequence[int]) -> None:
            self._values, self._axes = list(values), [None] * len(values)
            results, shapes = floating(operator.results), operator.made([np.shape(value) for value in values])
            self._inputs = [np.shape(values[number]) for number in moving]
            self._outputs = [tuple(shapes[number][1]) for number in results]
            self._input_types = [element(operator.types[number]).dtype for number in moving]
            self._output_types = [element(operator.results[number]).dtype for number in results]
            self._forwards = partial(operator.pushed, moving)
            self._backwards = partial(operator.pulled, moving, results)
            shape = (sum(map(math.prod, self._outputs)), sum(map(math.prod, self._inputs)))
            base.__init__(self, np.result_type(*self._input_types, *self._output_types), shape)

        def _product(self, forwards: bool, vectors: Any, axes: int) -> Array:
            """The products with vectors that are the rows of an array, or one of no other axis."""
            ends = (self._inputs, self._input_types), (self._outputs, self._output_types)
            parts = _parts(vectors, *ends[not forwards])
            made = self._forwards() if forwards else self._backwards()
            if axes:
                made = made.mapped([*self._axes, *[0] * len(parts)])
            return _joined(made.compiled(*self._values, *parts), axes, self.dtype)

        def _matvec(self, x: Any) -> Array:
            return self._product(True, np.ravel(x), 0)

        def _rmatvec(self, x: Any) -> Array:
            return self._product(False, np.ravel(x), 0)

        def _matmat(self, X: Any) -> Array:
            return self._product(True, np.asarray(X).T, 1).T

        def _rmatmat(self, X: Any) -> Array:
            return self._product(False, np.asarray(X).T, 1).T

    return Jacobian


@ending_at_user
def linear_operator(f: Program | Callable[..., Any], *at: Any, argnums: Any = 0, **options: Any) -> Any:
    """The Jacobian of a program at some arguments, as a ``scipy.sparse.linalg.LinearOperator``, which is never made.

    Its columns are the floating numbers of the parameters in ``argnums``, its rows those of the result: leaf after
    leaf, each in row-major order. ``matvec`` is :func:`jvp`, ``rmatvec`` is :func:`vjp`, and a product with a matrix is
    one of them along an axis. The arguments are copied; ``dtype`` is float64, or float32 where all of these numbers
    are. For a symmetric operator, such as a Hessian, give the program of a gradient. The ``options`` are those of
    :func:`compile`.

    Raises what a call raises for its arguments, TypeError and ValueError for ``argnums`` that are none, TypeError where
    no result is floating, and ValueError for a result whose size the run decides.

    >>> import adze as az, numpy as np, scipy
    >>> @az.program
    ... def valley(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum((x[1:] - x[:-1] ** 2) ** 2) + az.sum(x ** 2)
    >>> gradient = az.grad(valley)
    >>> x = np.zeros(3)
    >>> hessian = az.linear_operator(gradient, x)
    >>> hessian @ np.array([1.0, 0.0, 0.0])
    array([2., 0., 0.])
    >>> hessian.shape, scipy.sparse.linalg.cg(hessian, np.ones(3))[0]
    ((3, 3), array([0.5 , 0.25, 0.25]))
    """
    program = program_of("linear_operator", f, len(at) or None)
    numbers = chosen("linear_operator", program, argnums, may_hold_floating)
    arguments = program.bind(at, {})
    instance = program.instance_for(arguments)
    values = [np.array(value)[()] for value in instance.signature.convert(instance.leaves(arguments))[0]]
    moving, start, places = [], 0, {}
    for parameter, shape in zip(program.dynamic, instance.inputs.inner, strict=True):
        places[parameter.name] = range(start, start + shape.leaves)
        start += shape.leaves
    floats = floating(instance.types)
    for number in numbers:
        moving += [leaf for leaf in places[program.parameters[number].name] if leaf in floats]
    operator = _Leaves.of(instance, options)
    for what, found in (("arguments", moving), ("results", floating(operator.results))):
        if not found:
            raise TypeError(at_line(f"linear_operator({program.name}): there are no floating numbers in its {what}"))
    return _jacobian_class()(operator, values, moving)
