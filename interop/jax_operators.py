"""Operators of JAX, and the linear maps that are their derivatives.

A linear map goes between the tangents of some arguments and those of the results, at some primals; read backwards it is
its transpose, from cotangents of results to those of arguments. So the transpose of either reading is the other one:

    forwards    x, k; dx -> dy  ``az.jvp``
    backwards   x, k; cy -> cx  ``az.vjp``

Along an axis both are programs of ``az.vmap``. The map keeps, level by level, which of its operands have the axis: what
its transpose gives for an operand without one is summed along it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ..core.program import Program
from .jax_arrays import aval, refuse_long
from .leaves import floating
from .operators import Operator


class JaxOperator(Operator):
    """A program of leaves as an operator of JAX."""

    array: ClassVar[str] = "array of JAX"
    before: ClassVar[str] = "JAX has to know before a call"

    def __init__(self, name: str, program: Program, options: Mapping[str, Any]) -> None:
        super().__init__(name, program, options)
        for type in self.results:
            refuse_long(type, f"{program.name} gives a value of type {type}")

    def run(self, *arrays: Any) -> tuple[Any, ...]:
        """The results of a call, as NumPy's arrays."""
        given = [np.asarray(array) for array in arrays]
        return tuple(map(np.asarray, self.compiled(*[array if array.ndim else array[()] for array in given])))

    def avals(self, *arrays: Any) -> list[Any]:
        """What JAX knows of the results."""
        return [aval(type, shape) for type, shape in self.made([array.shape for array in arrays])]


@dataclass(frozen=True)
class Linear:
    """The derivative of an operator: between tangents of these arguments, and of all floating or these results.

    Forwards it takes the tangents of the arguments. ``levels`` has an entry an axis along which it is mapped, from the
    inside out: which of its operands, the primals and then what moves, have that axis, as their first one.
    """

    operator: JaxOperator
    forwards: bool
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    levels: tuple[tuple[bool, ...], ...] = ()

    @property
    def moving(self) -> tuple[int, ...]:
        """The arguments or results that its operands belong to."""
        return self.arguments if self.forwards else self.results

    @property
    def moved(self) -> tuple[int, ...]:
        """The results or arguments that its results belong to."""
        return self.results if self.forwards else self.arguments

    @property
    def primals(self) -> int:
        return len(self.operator.types)

    @property
    def program(self) -> JaxOperator:
        """The operator that computes it."""
        made = self.operator.pushed(self.moving) if self.forwards else self.operator.pulled(self.moved, self.moving)
        for level in self.levels:
            made = made.mapped([0 if mapped else None for mapped in level])
        return made

    def avals(self, *arrays: Any) -> list[Any]:
        """What JAX knows of the results, without the program: what is only transposed needs none in this direction."""
        own = [array.shape[sum([level[number] for level in self.levels]) :] for number, array in enumerate(arrays)]
        primals = own[: self.primals]
        ends = self.operator.made(primals) if self.forwards else list(zip(self.operator.types, primals, strict=True))
        sizes: list[int] = []
        for depth, level in enumerate(self.levels):  # an axis of a level further out stands before it
            operand = level.index(True)
            outer = sum([further[operand] for further in self.levels[depth + 1 :]])
            sizes.insert(0, arrays[operand].shape[outer])
        return [aval(type, (*sizes, *shape)) for type, shape in [ends[number] for number in self.moved]]

    def along(self, level: Sequence[bool]) -> Self:
        """It along one more axis, which these operands have."""
        return type(self)(self.operator, self.forwards, self.arguments, self.results, (*self.levels, tuple(level)))

    def of(self, chosen: Sequence[int]) -> Self:
        """It of some of what moves, by number; the rest is zero."""
        moving = tuple([self.moving[number] for number in chosen])
        operands = (*range(self.primals), *[self.primals + number for number in chosen])
        levels = tuple([tuple([level[operand] for operand in operands]) for level in self.levels])
        ends = (moving, self.results) if self.forwards else (self.arguments, moving)
        return type(self)(self.operator, self.forwards, *ends, levels)

    def transposed(self, wanted: Sequence[int], given: Sequence[int]) -> Self:
        """Its transpose, from some of its results to some of what moves in it, both by number."""
        moving = tuple([self.moved[number] for number in given])
        levels = tuple([(*level[: self.primals], *[True] * len(given)) for level in self.levels])
        if self.forwards:
            return type(self)(self.operator, False, tuple([self.moving[number] for number in wanted]), moving, levels)
        return type(self)(self.operator, True, moving, tuple(floating(self.operator.results)), levels)
