"""A case: a program, its meaning in NumPy, and inputs; and small arrays to make inputs of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sampling import some

import adze as az

Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """A program, the same function in NumPy, and the arguments of some calls."""

    name: str
    program: az.Program
    numpy: Callable[..., Any]
    arguments: tuple[Arguments, ...]


CASES: list[Case] = []


def sampled(cases: Sequence[Case], every: int = 4, long: int = 1) -> pytest.MarkDecorator:
    """A test of each case, of which some are run each time, others in the long run: see ``some``."""
    return pytest.mark.parametrize("case", some(cases, every, long), ids=lambda case: case.name)


Enter = Callable[[Callable[..., Any]], az.Program]


def entering(cases: list[Case]) -> Callable[..., Enter]:
    """``case(numpy, *arguments)``, which makes a case of a function and enters it into a list.

    ``numpy`` is its meaning in NumPy, and each further argument is the arguments of a call.
    """

    def case(numpy: Callable[..., Any], *arguments: Arguments) -> Enter:
        def add(function: Callable[..., Any]) -> az.Program:
            program = az.program(function)
            cases.append(Case(program.name, program, numpy, arguments))
            return program

        return add

    return case


case = entering(CASES)


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    """Distinct-looking quarters between -4 and 4; integers in that range for an integer type."""
    steps = (np.arange(int(np.prod(shape, dtype=int))) * 7 + 5 * seed + 3) % 33 - 16
    return (steps / 4 if np.dtype(dtype).kind == "f" else steps // 4).astype(dtype).reshape(shape)


def bools(*shape: int, seed: int = 0) -> Any:
    return numbers(*shape, seed=seed) > 0


def positive(*shape: int, seed: int = 0) -> Any:
    return np.abs(numbers(*shape, seed=seed)) + 0.25


X, Y = numbers(5), numbers(5, seed=1)
A, B = numbers(3, 4), numbers(3, 4, seed=1)
NONE = numbers(0)
Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n m"]
