"""Fork and join: ``par``, functions that may run side by side.

A branch keeps what it makes, and what was there before it is computed before the fork (``placement.py``).

(Smeding and Vákár, Parallel dual-numbers reverse AD, 2025, section 12.1: the parallel pair.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import trees
from ..builder import current
from ..case import Branch
from ..expr import as_expr
from ..functions import expression_of
from ..graph import Value
from ..source import user_line
from ..trees import Shape, Structure


def par(*branches: Any) -> Structure:
    """The results of functions without parameters, which may run side by side: ``par(lambda: a, lambda: b)``.

    It gives a tuple with one result a branch, or a list for one list of functions. The meaning is that of running one
    branch after the other. Raises TypeError for what is no function without parameters.

    >>> import adze as az
    >>> @az.fix
    ... def fibonacci(self, n: az.i64) -> az.i64:
    ...     return az.cond(n < 2, lambda: n, lambda: sum(az.par(lambda: self(n - 1), lambda: self(n - 2))))
    >>> int(az.evaluate(az.program(lambda n: fibonacci(n)))(10))
    55
    """
    builder = current()
    builder.origin = origin = user_line()
    listed = len(branches) == 1 and isinstance(branches[0], list | tuple)
    functions = [
        Branch(str(number), {}, function, "par")
        for number, function in enumerate(branches[0] if listed else branches, 1)
    ]
    shapes: list[Shape] = []

    def body(branch: Branch) -> Callable[[], Sequence[Value]]:
        def run() -> Sequence[Value]:
            leaves, shape = trees.flatten(branch.function())
            shapes.append(shape)
            return [as_expr(leaf).value for leaf in leaves]

        return run

    bodies = [builder.body([], body(branch)) for branch in functions]
    builder.origin = origin
    values = iter(builder.emit("par", (), [], bodies) if bodies else ())
    results = [
        trees.unflatten(shape, [expression_of(next(values), builder) for _ in range(shape.leaves)]) for shape in shapes
    ]
    return trees.structure(results if listed else tuple(results))
