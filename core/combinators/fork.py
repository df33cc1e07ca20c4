"""Fork and join: ``par``, functions that may run side by side.

A branch keeps what it makes, and what was there before it is computed before the fork (``placement.py``). So a branch
that decides the size of an array that it gives is none: the size is part of a type, and is known around the fork. ::

    a, b, c = par(lambda: filter(f, x), lambda: g(y), lambda: h(z))    =>    a = filter(f, x)
                                                                            b, c = par(lambda: g(y), lambda: h(z))

(Smeding and Vákár, Parallel dual-numbers reverse AD, 2025, section 12.1: the parallel pair.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import trees
from ..builder import current
from ..case import Branch
from ..dims import Opaque
from ..expr import as_expr
from ..functions import expression_of
from ..graph import Body, Value
from ..source import user_line
from ..trees import Shape, Structure
from ..types import dims


def par(*branches: Any) -> Structure:
    """The results of functions without parameters, which may run side by side: ``par(lambda: a, lambda: b)``.

    It gives a tuple with one result a branch, or a list for one list of functions. The meaning is that of running one
    branch after the other. Up to the last branch that decides the size of an array that it gives, they do run one after
    the other. Raises TypeError for what is no function without parameters.

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

    made = builder.fresh()
    bodies = [builder.body([], body(branch)) for branch in functions]
    builder.origin = origin
    early = max([k + 1 for k, body in enumerate(bodies) if _decides_a_size(body, made)], default=0)
    before = [value for body in bodies[:early] for value in builder.instantiate(body, [])]
    values = iter([*before, *builder.emit("par", (), [], bodies[early:])] if bodies[early:] else before)
    results = [
        trees.unflatten(shape, [expression_of(next(values), builder) for _ in range(shape.leaves)]) for shape in shapes
    ]
    return trees.structure(results if listed else tuple(results))


def _decides_a_size(branch: Body, made: int) -> bool:
    """Whether a size in the types of the results is a value that was made after the number ``made``."""
    atoms = [atom for type in branch.types for dim in dims(type) for atom in dim.atoms()]
    return any([isinstance(atom, Opaque) and atom.number > made for atom in atoms])
