"""Which version of a program the arrays of another library choose, and what it is given of them.

A library says three things of its arrays (:class:`Reading`); the rest is as in calls with NumPy's. An array becomes a
leaf of the type that the program declares, or is refused with the line of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..core import trees
from ..core.program import Instance, Program
from ..core.types import Type
from .operators import Shaped


class Reading(NamedTuple):
    """How a library's arrays are read."""

    concrete: Callable[[Any], Any]  # a Python number for a symbol of one, anything else as it is
    stand_in: Callable[[Any], Any]  # NumPy's array of the same scalar type and rank
    argument: Callable[[Any, Type, str], Any]  # an array of a type; TypeError, beginning with the text


def chosen(
    program: Program | Instance, args: Sequence[Any], kwargs: dict[str, Any], reading: Reading
) -> tuple[Instance, list[Any]]:
    """The version of the program that arguments choose, and their leaves as arrays that it takes."""
    arguments = [reading.concrete(given) for given in program.bind(args, kwargs)]
    instance = program if isinstance(program, Instance) else _instance(program, arguments, reading)
    signature = instance.signature
    places = zip(instance.leaves(arguments), instance.types, signature.names, strict=True)
    leaves = [reading.argument(leaf, type, f"{signature.program}: argument {name!r}") for leaf, type, name in places]
    signature.fitting([Shaped(tuple(leaf.shape)) for leaf in leaves])
    return instance, leaves


def _instance(program: Program, arguments: Sequence[Any], reading: Reading) -> Instance:
    """The version that arrays choose, by their types where the program leaves these open."""
    if all(parameter.declared is not None for parameter in program.parameters):
        return program.instance_for(arguments)
    given = zip(program.parameters, arguments, strict=True)
    return program.instance_for([a if p.static else trees.tree_map(reading.stand_in, a) for p, a in given])
