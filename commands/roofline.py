"""The roofline of this machine: the least time that so many operations and bytes take (Williams et al. 2009).

    seconds = max(operations / rate of multiply-adds, bytes / rate of copies)

Both rates are measured, by programs of our own on as many threads as the program that is measured: independent
multiply-adds in registers, and a copy (``-x``) that touches about as much memory as the program does, so that what fits
into a cache is compared with the rate of that cache. No call is shorter than the copy of half a megabyte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import fsum
from time import perf_counter
from typing import Any

import numpy as np

from ..backends.compile import compile
from ..core.combinators import fori_loop, map, sum
from ..core.dims import Dim
from ..core.expr import Expr
from ..core.program import Program, program
from ..core.types import ArrayType, Scalar, f32, f64, i64

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


def measure(threads: int, scalar: Scalar, touched: int) -> Roofline:
    """The roofline of so many threads: for a floating type, and for programs that touch so many bytes."""
    numbers = 0.5 * np.ones(_ELEMENTS, scalar.dtype)
    adds = compile(_multiply_adds(scalar), threads=threads)
    operations = 2 * _CHAINS * _UNROLLED * _STEPS * _ELEMENTS
    copied = min(max(touched, _LEAST), _MOST)
    given = np.ones(copied // (2 * scalar.bytes), scalar.dtype)
    copy = compile(_copy(scalar), threads=threads)
    return Roofline(
        operations / _least(lambda: adds(numbers, _STEPS)), copied / _least(lambda: copy(given)), copied, threads
    )


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


def _least(call: Callable[[], Any]) -> float:
    """The least time of some calls, after a first one."""
    call()
    times: list[float] = []
    while len(times) < _TRIES or fsum(times) < _SECONDS:
        started = perf_counter()
        call()
        times.append(perf_counter() - started)
    return min(times)


def floating(dtypes: list[np.dtype[Any]]) -> Scalar:
    """The type whose rate counts: f32 where all floating arrays are, else f64."""
    kinds = {dtype for dtype in dtypes if dtype.kind == "f"}
    return f32 if kinds == {np.dtype(np.float32)} else f64
