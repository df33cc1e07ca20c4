"""``checkpoint``: a function of which reverse mode keeps nothing.

A checkpoint is a custom operation without rules. Its results are computed as usual, in a scope of its own; when the
return sweep comes to it, it runs the function again, in another scope of its own, and goes back through it. What is
computed inside therefore lives as long as that scope, and not from the forward sweep to the return sweep
(``ad/custom.py``; for loops there is more to choose from, ``combinators/segments.py``).

    y = checkpoint x: tanh(w @ x)        x_bar = checkpoint x, y_bar: w.T @ (y_bar * (1 - tanh(w @ x) ** 2))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from . import trees
from .builder import current
from .expr import Expr, as_expr
from .functions import expression_of
from .graph import Value
from .source import user_line
from .trees import Shape, Structure
from .types import is_float


def checkpoint(function: Callable[..., Any]) -> Callable[..., Structure]:
    """The function, of whose insides reverse mode keeps nothing: it is run again when its derivative is needed.

    It takes and gives any structures of expressions, and may capture others. Time is traded for memory: the function
    runs once more, and what it computes on the way is not stored in between. ``peak_bytes`` of the compiled gradient
    says what a call then holds. Its derivatives are the same bit for bit, with one exception: compiled, inside of a
    ``map``, cotangents of what all elements read are summed in another order when they have more than 256 numbers
    and the map has fewer than eight elements for each (differences of some units in the last place).

    >>> import adze as az, numpy as np
    >>> @az.checkpoint
    ... def layer(w, x):
    ...     return az.tanh(w @ x)
    >>> @az.program
    ... def network(w: az.Array[az.f64, "n n"], x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(layer(w, layer(w, x)))
    >>> az.grad(network, argnums=1)(np.eye(2), [0.0, 1.0])
    array([1.        , 0.24686795])
    """

    @wraps(function)
    def checkpointed(*args: Any, **kwargs: Any) -> Structure:
        builder = current()
        origin = user_line()
        leaves, inputs = trees.flatten((args, kwargs))
        # Integers are sizes of arrays, too, and those are the same inside and outside
        moving = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Expr) and is_float(leaf.type)]
        values = [leaves[k].value for k in moving]
        outputs: list[Shape] = []

        def body(*binders: Value) -> Sequence[Value]:
            for k, binder in zip(moving, binders, strict=True):
                leaves[k] = Expr(binder, builder)
            inner_args, inner_kwargs = trees.unflatten(inputs, leaves)
            results, shape = trees.flatten(function(*inner_args, **inner_kwargs))
            outputs.append(shape)
            return [as_expr(result).value for result in results]

        names = [value.name for value in values]
        inside = builder.body([value.type for value in values], body, names)
        builder.origin = origin
        results = builder.emit("custom", ("checkpoint",), values, [inside])
        return trees.unflatten(outputs[0], [expression_of(value, builder) for value in results])

    return checkpointed
