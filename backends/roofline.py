"""The roofline of this machine: the least time that so many operations and bytes take (Williams et al. 2009).

    seconds = max(operations / rate of multiply-adds, bytes / rate of copies)

Both rates are measured, by programs of our own on as many threads as the program that is measured: independent
multiply-adds in registers, and a copy (``-x``) that touches about as much memory as the program does, so that what fits
into a cache is compared with the rate of that cache. No call is shorter than the copy of half a megabyte. What was
measured is kept for as long as the process lives.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum
from time import perf_counter
from typing import Any

import numpy as np

from ..core import trees
from ..core.combinators import fori_loop, map, sum
from ..core.dims import Dim
from ..core.expr import Expr
from ..core.program import Program, instance_of, program
from ..core.progress import shown, still
from ..core.types import ArrayType, Scalar, f32, f64, i64
from .llvm.version import Version
from .transformations import ALL

_CHAINS, _UNROLLED = 3, 4  # enough to hide the latency, few enough for the registers
_ELEMENTS, _STEPS = 1 << 14, 250
_LEAST, _MOST = 1 << 19, 1 << 28  # bytes of a copy
_TRIES, _SECONDS = 7, 0.03  # of a measurement, at least


@dataclass(frozen=True)
class Roofline:
    """Operations and bytes a second, of so many threads; the copy was of ``copied`` bytes, read and written."""

    operations: float
    bytes: float
    copied: int
    threads: int

    def seconds(self, operations: float, count: float) -> float:
        """The least time for so many operations and bytes."""
        return max(operations / self.operations, count / self.bytes)

    def bound(self, operations: float, count: float) -> str:
        """What the least time is due to: "arithmetic" or "memory"."""
        return "arithmetic" if operations / self.operations >= count / self.bytes else "memory"

    def as_data(self) -> dict[str, float]:
        """What the commands print as JSON."""
        return {"operations_a_second": self.operations, "bytes_a_second": self.bytes, "copied_bytes": self.copied}

    def __str__(self) -> str:
        return f"{1e-9 * self.operations:.3g} GFlop/s of multiply-adds, {1e-9 * self.bytes:.3g} GB/s of a copy"


def around(threads: int, values: Sequence[Any]) -> Roofline:
    """The roofline of so many threads for a call with these arguments and results: for their type and their memory."""
    leaves = [leaf for leaf in trees.flatten(list(values))[0] if isinstance(leaf, np.ndarray | np.generic | float)]
    arrays = [np.asarray(leaf) for leaf in leaves]
    touched = builtins.sum([array.nbytes for array in arrays])
    return measure(threads, floating([array.dtype for array in arrays]), touched)


def measure(threads: int, scalar: Scalar, touched: int) -> Roofline:
    """The roofline of so many threads: for a floating type, and for programs that touch so many bytes."""
    copied = min(max(touched, _LEAST), _MOST)
    with shown("measuring the roofline"), still():
        return Roofline(_adding(threads, scalar), _copying(threads, scalar, copied), copied, threads)


@cache
def _adding(threads: int, scalar: Scalar) -> float:
    """Operations a second, two for each multiply-add."""
    numbers = 0.5 * np.ones(_ELEMENTS, scalar.dtype)
    seconds = _least(_multiply_adds(scalar), [numbers, _STEPS], threads)
    return 2 * _CHAINS * _UNROLLED * _STEPS * _ELEMENTS / seconds


@cache
def _copying(threads: int, scalar: Scalar, copied: int) -> float:
    """Bytes a second of a copy that reads and writes so many."""
    return copied / _least(_copy(scalar), [np.ones(copied // (2 * scalar.bytes), scalar.dtype)], threads)


def _multiply_adds(scalar: Scalar) -> Program:
    """A sum over elements, each of which goes through chains of multiply-adds that do not depend on each other."""

    def multiply_adds(x: Expr, steps: Expr) -> Expr:
        def chains(v: Expr) -> Expr:
            def step(turn: Expr, state: tuple[Expr, ...]) -> tuple[Expr, ...]:
                for _ in range(_UNROLLED):
                    state = tuple([y * v + v for y in state])
                return state

            total: Expr = v
            for one in fori_loop(0, steps, step, tuple([v + float(k) for k in range(_CHAINS)])):
                total = total + one
            return total

        return sum(map(chains, x))

    return _annotated(multiply_adds, scalar, steps=i64)


def _copy(scalar: Scalar) -> Program:
    def copy(x: Expr) -> Expr:
        return -x

    return _annotated(copy, scalar)


def _annotated(function: Callable[..., Any], scalar: Scalar, **others: Scalar) -> Program:
    function.__annotations__ = {"x": ArrayType(scalar, (Dim.of("n"),)), **others}
    return program(function)


def _least(program: Program, arguments: Sequence[Any], threads: int) -> float:
    """The least time of some calls, after a first one."""
    version = Version(instance_of(program), True, ALL, False, frozenset())
    version.run(arguments, threads)
    times: list[float] = []
    while len(times) < _TRIES or fsum(times) < _SECONDS:
        started = perf_counter()
        version.run(arguments, threads)
        times.append(perf_counter() - started)
    return min(times)


def floating(dtypes: list[np.dtype[Any]]) -> Scalar:
    """The type whose rate counts: f32 where all floating arrays are, else f64."""
    kinds = {dtype for dtype in dtypes if dtype.kind == "f"}
    return f32 if kinds == {np.dtype(np.float32)} else f64
