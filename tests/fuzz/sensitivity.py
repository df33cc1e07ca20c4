"""How far results may move by rounding: stochastic arithmetic, for comparisons that raise no false alarm.

Two results that differ by more than a few roundings of their own magnitude are not wrong yet: something large may have
cancelled, or a comparison may have been decided by the last bit. So the reference is run again, a few times, with a
random relative error of some eps in every operation that is not exact. What then moves, may move; a result that stays
may differ by ``ROUNDINGS`` of the largest magnitude that was met. Integers and booleans may differ where they moved.

Stochastic arithmetic: Vignes 1993 (CESTAC); CADNA (Jézéquel and Chesneaux 2008).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from agreement import ROUNDINGS, leaves

import adze as az
from adze.core.environment import Env
from adze.core.primitive import Primitive
from adze.interpreters.evaluate import Evaluate

RUNS = 3
ERROR = 8  # of an operation in a disturbed run, in eps
SPREAD = 64.0  # how often what the runs differ by is allowed
IN_LONGDOUBLE = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}
EXACT = ("negative", "abs", "sign", "minimum", "maximum", "floor", "ceil", "trunc", "round", "stop_gradient")


class Disturbed(Evaluate):
    """Evaluate with errors in operations.

    It remembers the largest magnitude, and whether anything overflowed: to infinity, or a product to zero. The factors
    of a product may be associated in any way, and another order may meet an infinite one first.
    """

    def __init__(self, sizes: dict[str, int], vectorize: bool, random: np.random.Generator | None) -> None:
        super().__init__(sizes, vectorize)
        self.random, self.largest, self.overflowed, self.rounded = random, 1.0, False, False

    def primitive(self, primitive: Primitive, args: Sequence[Any]) -> Any:
        step = super().primitive(primitive, args)
        known = IN_LONGDOUBLE.get(primitive.name)

        def run(env: Env[Any]) -> Sequence[Any]:
            (result,) = step.run(env)
            values = np.asarray(result)
            if values.dtype.kind != "f":
                return (result,)
            operands = [arg.run(env) for arg in args]
            self.note(values, operands, primitive.name == "multiply")
            if primitive.name in EXACT:
                return (result,)
            if known is not None:
                longer = known(*[np.asarray(operand, np.longdouble) for operand in operands])
                exact = (longer == values) | ~np.isfinite(values)
            else:
                exact = ~np.isfinite(values)
            self.rounded |= not bool(np.all(exact))
            if self.random is None:
                return (result,)
            errors = self.random.uniform(-ERROR, ERROR, values.shape) * np.finfo(values.dtype).eps
            return ((values * np.where(exact, 1.0, 1.0 + errors)).astype(values.dtype)[()],)

        return type(step)(run, step.effects)  # not by name: NumPy's reductions would make no errors

    def note(self, values: Any, operands: Sequence[Any], product: bool) -> None:
        for met in (values, *operands):
            self.largest = max(self.largest, float(np.max(np.abs(met), where=np.isfinite(met), initial=0.0)))
        infinite = np.logical_and.reduce(np.broadcast_arrays(np.isinf(values), *map(np.isfinite, operands)))
        vanished = np.logical_and.reduce(np.broadcast_arrays(values == 0, *[x != 0 for x in operands], product))
        self.overflowed |= bool(np.any(infinite | vanished))


@dataclass
class Reference:
    """What a program gives, and how exactly that is known."""

    program: az.Program
    arguments: Sequence[Any]
    vectorize: bool
    result: Any
    finite: bool = False  # what is not finite may differ: sums of infinite terms may be associated in any way

    def _run(self, random: np.random.Generator | None) -> tuple[Disturbed, list[Any]]:
        instance = self.program.instance_for(self.program.bind(self.arguments, {}))
        arrays, sizes = instance.signature.convert(self.program.leaves(self.arguments))
        language = Disturbed(sizes, self.vectorize, random)
        code = instance.term.interpret(language)
        with np.errstate(all="ignore"):
            return language, [np.asarray(leaf) for leaf in code.run(Env(), arrays)]

    @cached_property
    def plain(self) -> Disturbed:
        return self._run(None)[0]

    @cached_property
    def disturbed(self) -> list[list[Any]]:
        """The leaves of the results of some disturbed runs. A requirement that fails in one is a decision, too."""
        try:
            return [self._run(np.random.default_rng(seed))[1] for seed in range(RUNS)]
        except (ArithmeticError, LookupError, ValueError):
            return []

    def agrees(self, found: Any) -> str:
        """What is wrong with another result, or nothing."""
        wanted, got = leaves(self.result), leaves(found)
        if len(wanted) != len(got):
            return f"{len(got)} results, not {len(wanted)}"
        for number, (b, a) in enumerate(zip(wanted, got, strict=True)):
            if a.dtype != b.dtype or a.shape != b.shape:
                if a.dtype == b.dtype and self._uncertain_shape(number):
                    continue
                return f"result {number} is {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
            wrong = ~close(a, b)
            if not np.any(wrong) or self.plain.overflowed:
                continue
            if b.dtype.kind == "f" and self.finite:
                wrong &= np.isfinite(a) & np.isfinite(b)
            if b.dtype.kind == "f":
                bound = ROUNDINGS * np.finfo(b.dtype).eps * self.plain.largest
                with np.errstate(all="ignore"):
                    wrong &= ~(np.abs(a - b) <= bound)
            if np.any(wrong):
                wrong &= ~self._moved(number, a, b)
            if np.any(wrong):
                place = tuple(np.argwhere(wrong)[0].tolist())
                count = f"{int(np.sum(wrong))} of {wrong.size} elements"
                return f"result {number}{list(place)} is {a[place]}, not {b[place]} ({count})"
        return ""

    def _uncertain_shape(self, number: int) -> bool:
        return not self.disturbed or any(
            np.shape(run[number]) != np.shape(self.disturbed[0][number]) for run in self.disturbed
        )

    def _moved(self, number: int, a: Any, b: Any) -> Any:
        """Where a disturbed run differs from the reference, by enough to explain the difference."""
        if not self.disturbed:
            return np.True_
        moved = np.zeros(b.shape, bool)
        for run in self.disturbed:
            other = run[number]
            if other.shape != b.shape:
                return np.True_
            if b.dtype.kind != "f":
                moved |= other != b
                continue
            with np.errstate(all="ignore"):
                moved |= np.abs(a - b) <= SPREAD * np.abs(other - b)
            moved |= np.isfinite(other) != np.isfinite(b)
        return moved


def close(a: Any, b: Any) -> Any:
    """Where two arrays are equal, to a few roundings of an element."""
    if b.dtype.kind != "f":
        return a == b
    with np.errstate(all="ignore"):
        return (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= 16 * np.finfo(b.dtype).eps * np.abs(b))
