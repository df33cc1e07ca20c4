"""Unknowns: the numbers of a structure of arrays in one vector, and back.

A solver works on a vector; a program takes a structure. The vector holds the leaves of the structure one after the
other, each in row-major order, in f64, so that steps lose nothing on the way; a program is given leaves of its own
scalar types. ::

    {"camera": f64[2], "points": f64[3, 2]}     x[0:2] is camera, x[2:8] is points, x[5] is x0['points'][1, 1]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import trees
from ..core.arguments import array_of_type
from ..core.program import Instance, Program
from ..core.source import at_line
from ..core.types import is_float

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Unknowns:
    """The structure of the first argument of a program, and the shape and scalar type of each of its leaves."""

    structure: trees.Shape
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]

    @property
    def count(self) -> int:
        return sum(map(math.prod, self.shapes))

    @property
    def epsilon(self) -> float:
        """The distance of 1 to the next number, in the coarsest of the scalar types."""
        return max(float(np.finfo(dtype).eps) for dtype in self.dtypes)

    def leaves(self, x: Array) -> list[Any]:
        """The numbers of a vector as leaves that a program takes."""
        parts = np.split(x, np.cumsum([math.prod(shape) for shape in self.shapes])[:-1])
        made = zip(parts, self.shapes, self.dtypes, strict=True)
        return [part.astype(dtype).reshape(shape)[()] for part, shape, dtype in made]

    def of(self, x: Array) -> Any:
        """The numbers of a vector in their structure."""
        return trees.unflatten(self.structure, self.leaves(x))

    def rounded(self, x: Array) -> Array:
        """The vector that a program sees."""
        return joined(self.leaves(x))

    def place(self, number: int) -> str:
        """How one gets at a number of the vector, as it is written in Python."""
        return place("x0", trees.paths(self.structure), self.shapes, number)


def joined(leaves: Sequence[Any]) -> Array:
    """The numbers of leaves in one vector of f64."""
    return np.concatenate([np.zeros(0), *[np.ravel(np.asarray(leaf, np.float64)) for leaf in leaves]])


def place(name: str, paths: Sequence[str], shapes: Sequence[tuple[int, ...]], number: int) -> str:
    """Where a number of a vector of leaves is in their structure.

    >>> place("x0", ["['a']", "['b']"], [(2,), (3, 2)], 5)
    "x0['b'][1, 1]"
    """
    for path, shape in zip(paths, shapes, strict=True):
        if number < math.prod(shape):
            index = ", ".join([str(int(k)) for k in np.unravel_index(number, shape)])
            return f"{name}{path}[{index}]" if shape else f"{name}{path}"
        number -= math.prod(shape)
    raise IndexError(number)


def read(name: str, f: Program, x0: Any, args: Sequence[Any]) -> tuple[Unknowns, Array, list[Any]]:
    """The unknowns of a program, their first values, and the program's other arguments.

    Raises TypeError when there is a leaf that is not floating, or none, and what a call of the program raises.
    """
    check_first(name, f)
    arguments = f.bind([x0, *args], {})
    instance = f.instance_for(arguments)
    return (*unknowns_of(name, instance, instance.leaves(arguments)), list(arguments[1:]))


def unknowns_of(name: str, instance: Instance, leaves: Sequence[Any]) -> tuple[Unknowns, Array]:
    """The unknowns among the leaves of a call's arguments, and their first values."""
    structure = instance.inputs.inner[0]
    types = instance.types[: structure.leaves]
    for path, type in zip(trees.paths(structure), types, strict=True):
        if not is_float(type):
            problem = f"x0{path} is of type {type}: unknowns are floating numbers"
            raise TypeError(at_line(f"{name}: {problem}, as are 1.0 and x.astype(float)"))
    declared = instance.declared
    places = [f"{declared.program}: argument {place!r}" for place in declared.names]
    arrays = [np.asarray(array_of_type(*each)) for each in zip(leaves, types, places, strict=False)]
    unknowns = Unknowns(structure, tuple([a.shape for a in arrays]), tuple([a.dtype for a in arrays]))
    if unknowns.count == 0:
        raise TypeError(at_line(f"{name}: x0 holds no numbers"))
    return unknowns, joined(arrays)


def check_first(name: str, f: Program) -> None:
    """TypeError where the first parameter of a program cannot be the unknowns."""
    if not f.parameters or f.parameters[0].static:
        lacking = "is static" if f.parameters else "it does not have"
        raise TypeError(at_line(f"{name}: the unknowns are the first parameter of {f.name}, which {lacking}"))
