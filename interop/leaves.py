"""Programs of leaves: what a program, its derivatives and its batches are to a library that knows arrays alone.

Each takes arrays and numbers, one a parameter, and gives a tuple of them. So the cotangents of a program of leaves are
one again, and its tangents, and what it is along an axis:

    f(x, {"k": k}) -> {"y": y}         leaves(f)                     (x, k) -> (y,)
                                       pulled(leaves(f), [0], [0])   (x, k, cotangent) -> (cotangent of x,)
                                       pushed(leaves(f), [0])        (x, k, tangent) -> (tangent of y,)
                                       mapped(leaves(f), (0, None))  (x[batch], k) -> (y[batch],)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ad.verbs import jvp, vjp
from ..core import trees
from ..core.annotations import Parameter, fresh
from ..core.dims import Dim, Name
from ..core.program import Instance, Program
from ..core.types import Type, array_of, dims, element, is_float
from ..core.vmap import vmap


def leaves(instance: Instance) -> Program:
    """The program of the leaves of one version of a program."""

    def run(*given: Any) -> Any:
        return tuple(trees.flatten(instance(*trees.unflatten(instance.inputs, given)))[0])

    return _program(instance.program.name, instance.names, instance.types, run)


def results(program: Program) -> tuple[Type, ...]:
    """The types of what a program of leaves gives."""
    return program.at().term.types


def floating(types: Sequence[Type]) -> list[int]:
    """Which of these are differentiated."""
    return [number for number, type in enumerate(types) if is_float(type)]


def pulled(program: Program, wanted: Sequence[int], given: Sequence[int]) -> Program:
    """From arguments and the cotangents of the given results, the cotangents of the wanted arguments."""
    types, made = program.at().types, results(program)
    count = len(types)

    def run(*arguments: Any) -> Any:
        cotangents = dict(zip(given, arguments[count:], strict=True))
        _, pullback = vjp(program, *arguments[:count], argnums=tuple(wanted))
        return pullback(tuple([cotangents.get(number) for number in range(len(made))]))

    moving = [_of_any_size(made[number], f"cotangent_{number}") for number in given]
    return _following(f"vjp({program.name})", program, "cotangent", moving, run)


def pushed(program: Program, moving: Sequence[int]) -> Program:
    """From arguments and the tangents of those that move, the tangents of the floating results."""
    types = program.at().types
    count, floats = len(types), floating(results(program))

    def run(*arguments: Any) -> Any:
        _, tangents = jvp(program, arguments[:count], arguments[count:], argnums=tuple(moving))
        return tuple([tangents[number] for number in floats])

    return _following(f"jvp({program.name})", program, "tangent", [types[number] for number in moving], run)


def mapped(program: Program, axes: Sequence[int | None]) -> Program:
    """The program along an axis of each argument, None for one that all share; results are along their first axis."""
    return vmap(program, tuple(axes))


def _following(name: str, program: Program, what: str, types: Sequence[Type], run: Any) -> Program:
    """The program of the arguments of another one, and of more, which are called after what they are."""
    names = [parameter.name for parameter in program.parameters]
    for _ in types:
        names.append(fresh(what, names))
    return _program(name, names, (*program.at().types, *types), run)


def _program(name: str, names: Sequence[str], types: Sequence[Type], run: Any) -> Program:
    return Program(run, name, [Parameter(name, type) for name, type in zip(names, types, strict=True)])


def _of_any_size(type: Type, name: str) -> Type:
    """The type of an array, with names for the sizes that the run decides."""
    sizes = [dim if dim.is_static() else Dim.atom(Name(f"{name}_{axis}")) for axis, dim in enumerate(dims(type))]
    return array_of(element(type), tuple(sizes))
