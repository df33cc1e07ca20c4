"""``az.levenberg_marquardt``: least squares inside a program, for many small fits at once.

The method is that of ``iteration.py`` as a ``while_loop``. A step computes the normal equations where it leads, and
then takes either these or those it had; nothing branches, so that in a map the fits of many pixels run side by side::

    while not done:   p = solve(A + mu I, -g)        of the scaled problem
                      c', A', g' = around(x + p)
                      x, c, A, g, mu = those of x + p if c' < c, else these with more damping

What it gives depends on the data through the equation that holds at the minimum, ``gradient(x, data) = 0``. So its
derivative is one solve with the Hessian of the cost there, whatever the steps were (the implicit function theorem;
Blondel et al., *Efficient and modular implicit differentiation*, 2022)::

    dx = -H^-1 (d gradient / d data) d data
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ad.jacobians import hessian
from ..ad.verbs import grad, jvp
from ..core import trees
from ..core.builder import building
from ..core.combinators import array, concatenate, eye, stack, where, while_loop, zeros_like
from ..core.combinators import sum as total
from ..core.custom import custom_vjp
from ..core.expr import as_expr
from ..core.functions import description
from ..core.primitive import PRIMITIVES
from ..core.source import at_line
from ..core.types import dims, element, is_float
from ..library.linalg import solve
from ..library.linalg.small import cholesky, substituted
from .iteration import FIRST_DAMPING
from .normal_pass import numbers_of, structured, vectors

MOST = 32  # unknowns of a fit: its matrix is factorised by a program of the language
ROUNDED = 8  # units in the last place of a cost that rounding may move

_maximum, _sqrt, _isfinite, _abs = (PRIMITIVES[name] for name in ("maximum", "sqrt", "isfinite", "abs"))


def levenberg_marquardt(residuals: Callable[..., Any], x0: Any, args: Sequence[Any] = (), *, steps: int = 100) -> Any:
    """Inside a program: the unknowns for which the sum of the squares of ``residuals(x, *args)`` is smallest, near x0.

    ``x0`` is a number, an array, or a structure of them, of f64 or f32, with at most 32 numbers and sizes that are
    numbers (``az.Array[az.f64, 5]``); the result is like it. ``residuals`` gives an array, a number or a structure.
    After ``steps`` steps it is what was found so far; where residuals or derivatives are not finite at x0, it is x0.

    It may stand in ``az.map``, one fit for each element, and is differentiated by ``args`` (not by x0, on which a
    minimum does not depend): one solve with the Hessian at the minimum, by the implicit function theorem. What
    ``residuals`` captures is differentiated through all steps. :func:`least_squares` is for one fit with arrays.

    Raises TypeError for x0 with other types or sizes, and outside of programs, ValueError for more than 32 unknowns;
    its derivative is a LinAlgError in the run where the Hessian is not positive definite.

    >>> import adze as az
    >>> @az.program
    ... def root(square: az.f64) -> az.f64:
    ...     return az.levenberg_marquardt(lambda x, square: x * x - square, 1.0, args=(square,))
    >>> round(float(az.evaluate(root)(2.0)), 6)
    1.414214
    """
    name = "levenberg_marquardt"
    if not building():
        raise TypeError(at_line(f"{name} is for the inside of a program; least_squares takes arrays"))
    leaves, structure = trees.flatten(x0)
    leaves = [as_expr(leaf) for leaf in leaves]
    shapes = []
    for leaf, path in zip(leaves, trees.paths(structure)):
        sizes = [dim.constant for dim in dims(leaf.type)]
        if not is_float(leaf.type):
            raise TypeError(at_line(f"{name}: x0{path} is of type {leaf.type}: unknowns are floating numbers"))
        if None in sizes or element(leaf.type) != element(leaves[0].type):
            problem = "the sizes of unknowns are numbers, and all are of one scalar type"
            raise TypeError(at_line(f"{name}: x0{path} is of type {leaf.type}: {problem}"))
        shapes.append(tuple([size or 0 for size in sizes]))
    count = sum(map(math.prod, shapes))
    if not 0 < count <= MOST:
        raise ValueError(at_line(f"{name}: there are {count} unknowns, and may be from 1 to {MOST}"))
    if not isinstance(args, tuple | list):
        raise TypeError(at_line(f"{name}: args is a tuple of what follows the unknowns, not {description(args)}"))
    problem_ = _Small(residuals, structure, shapes, float(np.finfo(str(leaves[0].dtype).replace("f", "float")).eps))
    start = array([number for leaf, shape in zip(leaves, shapes) for number in numbers_of(leaf, shape)])
    return problem_.structured(problem_.fitted(start, args, steps))


def _solved(matrix: Any, right: Any) -> Any:
    """The solution for a positive definite matrix; NaN or infinite, where rounding has left none, and no error."""
    factor = cholesky(matrix)
    column = substituted(True, False, False, factor, right[:, None])
    return substituted(True, True, False, factor, column)[:, 0]


class _Small:
    """A problem of a few unknowns, as a function of a vector of them."""

    def __init__(
        self, residuals: Callable[..., Any], structure: trees.Shape, shapes: list[tuple[int, ...]], epsilon: float
    ) -> None:
        self.residuals, self.structure, self.shapes, self.epsilon = residuals, structure, shapes, epsilon
        self.count = sum(map(math.prod, shapes))

    def structured(self, x: Any) -> Any:
        return structured(self.structure, self.shapes, [x[k] for k in range(self.count)])

    def vector(self, x: Any, args: Sequence[Any]) -> Any:
        parts = vectors(self.residuals(self.structured(x), *args))
        return parts[0] if len(parts) == 1 else concatenate(parts)

    def cost(self, x: Any, args: Sequence[Any]) -> Any:
        return total(self.vector(x, args) ** 2) / 2

    def fitted(self, start: Any, args: Sequence[Any], steps: int) -> Any:
        """The minimum, as a function with a rule of its own."""

        def fit(start: Any, *args: Any) -> Any:
            return self.minimum(start, args, steps)

        def rule(primals: Any, cotangent: Any) -> Any:
            start, *given = primals
            x = wrapped(start, *given)
            curvature = hessian(lambda x: self.cost(x, given))
            adjoint = solve(curvature(x), cotangent, assume_a="pos")

            def slope(moving: Any) -> Any:
                """The gradient of the cost along the adjoint."""
                return jvp(lambda x: self.cost(x, moving), (x,), (adjoint,))[1]

            if not any(is_float(as_expr(leaf).type) for leaf in trees.flatten(given)[0]):
                return (zeros_like(start), *[None for _ in given])
            moved = grad(slope)(tuple(given))
            return (zeros_like(start), *trees.tree_map(lambda leaf: -leaf, moved))

        wrapped = custom_vjp(fit)
        wrapped.defvjp(rule)
        return wrapped(start, *args)

    def around(self, x: Any, args: Sequence[Any]) -> tuple[Any, Any, Any]:
        """The cost, the normal matrix and the gradient at a point."""
        numbers = [x[k] for k in range(self.count)]

        def along(k: int) -> Any:
            def moved(number: Any) -> Any:
                return self.vector(array([*numbers[:k], number, *numbers[k + 1 :]]), args)

            return jvp(moved, (numbers[k],), (1.0,))[1]

        residual = self.vector(x, args)
        table = stack([along(k) for k in range(self.count)])
        return total(residual**2) / 2, table @ table.T, table @ residual

    def minimum(self, start: Any, args: Sequence[Any], steps: int) -> Any:
        unit = eye(self.count, dtype=start.dtype)
        tolerance, tiny = self.epsilon ** (2 / 3), ROUNDED * self.epsilon

        def going(state: Any) -> Any:
            return (state["turn"] < steps) & ~state["done"]

        def step(state: Any) -> Any:
            x, cost, matrix, gradient = (state[key] for key in ("x", "cost", "matrix", "gradient"))
            norms = _maximum(state["norms"], array([matrix[k, k] for k in range(self.count)]))
            scales = _sqrt(where(norms > 0, norms, 1.0))
            damping = state["damping"]
            scaled = matrix / scales[:, None] / scales[None, :] + damping * unit
            finite = _isfinite(total(scaled))
            moved = _solved(where(finite, scaled, unit), -gradient / scales)
            tried = x + moved / scales
            new_cost, new_matrix, new_gradient = self.around(tried, args)
            fell, predicted = cost - new_cost, total(moved * (damping * moved - gradient / scales)) / 2
            better = finite & (fell > 0) & _isfinite(total(new_matrix)) & _isfinite(total(new_gradient))
            ratio = 2 * fell / predicted - 1
            length = _sqrt(total(moved**2))
            short = length <= tolerance * (tolerance + _sqrt(total((scales * x) ** 2)))
            level = (_abs(fell) <= tiny * cost) & (predicted <= tiny * cost)
            flat = total(where(_abs(gradient) <= tolerance * _sqrt(2 * cost * norms), 0.0, 1.0)) == 0
            return {
                "x": where(better & ~flat, tried, x),
                "cost": where(better & ~flat, new_cost, cost),
                "matrix": where(better, new_matrix, matrix),
                "gradient": where(better, new_gradient, gradient),
                "norms": norms,
                "damping": where(
                    better, _maximum(damping * _maximum(1 / 3, 1 - ratio**3), tiny), damping * state["growth"]
                ),
                "growth": where(better, 2.0, 2 * state["growth"]),
                "turn": state["turn"] + 1,
                "done": flat | short | level | ~finite,
            }

        cost, matrix, gradient = self.around(start, args)
        one = 0 * cost + 1
        first = {"x": start, "cost": cost, "matrix": matrix, "gradient": gradient, "norms": zeros_like(start)}
        rest = {"damping": FIRST_DAMPING * one, "growth": 2 * one, "turn": 0, "done": ~_isfinite(cost)}
        return while_loop(going, step, {**first, **rest})["x"]
