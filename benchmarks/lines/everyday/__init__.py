"""Everyday programs: what people write from their textbooks, each as they would write it first.

Adze's are in programs/, in modules of the same names. JAX's, Numba's and those of PyTorch's compiler are the same
algorithm as their users write it, with the library for single steps; Numba's are loops, and have no derivatives. What
calls routines of a library that are compiled already is marked so: eager PyTorch, SciPy, a convolution in JAX.

Such a line has one size. It is measured on two cores and on one (run.py), and all of them are held to bounds together
(bounds.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from contenders import Adze, Call, Contender, Numba, of_jax, of_torch


@dataclass(frozen=True)
class Sequential(Numba):
    """Numba on one thread, for loops whose steps are short: arrays of four numbers are not worth two."""

    def build(self, program: Any) -> Call:
        import numba

        return numba.njit(program)  # type: ignore[no-any-return]


def in_adze(programs: Mapping[str, Any]) -> Contender:
    return Contender("Adze", Adze(), lambda: programs)


# Arguments


def random(*shapes: tuple[int, ...], dtype: Any = np.float64) -> list[Any]:
    """Numbers of a normal distribution."""
    drawn = np.random.default_rng(1)
    return [drawn.standard_normal(shape).astype(dtype) for shape in shapes]


def floats(*shapes: tuple[int, ...]) -> list[Any]:
    """The same in single precision."""
    return random(*shapes, dtype=np.float32)


def uniform(*shapes: tuple[int, ...]) -> list[Any]:
    """Numbers between 0 and 1."""
    drawn = np.random.default_rng(1)
    return [drawn.random(shape) for shape in shapes]


# Derivatives


def squares(f: Any) -> Any:
    return lambda *given: (f(*given) ** 2).sum()


def in_jax(f: Any, argnums: int | tuple[int, ...]) -> dict[str, Any]:
    """A function to an array, and the gradient of the sum of its squares, in JAX."""
    return {"primal": f, "gradient": of_jax(squares(f), argnums)["gradient"]}


def in_torch(f: Any, argnums: tuple[int, ...]) -> dict[str, Any]:
    """The same in PyTorch."""
    return {"primal": f, "gradient": of_torch(squares(f), argnums)["gradient"]}
