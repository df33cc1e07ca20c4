"""Derivatives from values alone: central differences, extrapolated to a step of zero, with an estimate of their error.

A central difference ``D(h) = (f(h) - f(-h)) / 2h`` of a smooth function has an error in even powers of h. Neville's
table takes them away, one power a column:

    D(h)
    D(h/2)   (4 D(h/2) - D(h)) / 3
    D(h/4)   (4 D(h/4) - D(h/2)) / 3   (16 * ... - ...) / 15

The entry that differs least from its two parents is the derivative, and by how much it does, its error (Ridders 1982).
Eight steps give about ten digits.

Whether a program is smooth there is decided, not guessed: :class:`Decisions` runs it and notes each comparison,
rounding, order and sign that a number decides on. Where all the points of the table (the middle one, too) decide
alike, they lie on one straight-line program, and its derivative is what is wanted.

    difference = along(program, arguments, tangents)
    difference.reliable, difference.values, difference.errors
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from plain import Atom, Operation, Plain, instance

from adze.core.environment import Env
from adze.core.primitive import Primitive
from adze.core.types import element, is_float
from adze.interpreters.evaluate import Evaluate

STEPS = tuple([2.0**-k for k in range(5, 13)])
FEWEST = 4  # steps; with less of them nothing is said
ACCURACY = 1e-6  # of a difference that is relied on

# What else a number decides in these: which operand is taken, the sign, how often the divisor goes in.
CHOICES: dict[str, Callable[..., Any]] = {
    "minimum": lambda a, b: np.sign(a - b),
    "maximum": lambda a, b: np.sign(a - b),
    "abs": np.sign,
    "fmod": lambda a, b: np.trunc(a / b),
    "floor_remainder": lambda a, b: np.floor(a / b),
}


def extrapolated(ahead: Sequence[Any], behind: Sequence[Any], steps: Sequence[float]) -> tuple[Any, Any]:
    """The derivative at 0 of a function with these values at h and -h for each of the steps, and its error.

    Values are numbers or arrays of one shape; a step is half the one before.

    >>> steps = (0.1, 0.05, 0.025, 0.0125)
    >>> value, error = extrapolated([np.exp(h) for h in steps], [np.exp(-h) for h in steps], steps)
    >>> bool(abs(value - 1) < 1e-12), bool(error < 1e-8)
    (True, True)
    """
    best, least = np.asarray(np.nan), np.asarray(np.inf)
    above: list[Any] = []
    with np.errstate(all="ignore"):
        for h, a, b in zip(steps, ahead, behind, strict=True):
            still = np.equal(a, b)  # infinities that stay, too
            row = [np.where(still, 0.0, (np.asarray(a, np.float64) - b) / (2 * h))]
            rounding = 4 * np.finfo(np.float64).eps * np.where(np.isinf(a), 0.0, np.maximum(np.abs(a), np.abs(b))) / h
            for k, parent in enumerate(above, start=1):
                row.append(row[-1] + (row[-1] - parent) / (4**k - 1))
                error = np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - parent)) + rounding
                better = error < least
                best, least = np.where(better, row[-1], best), np.where(better, error, least)
            above = row
    return best, least


class Decisions(Plain):
    """The plain interpreter, noting what numbers decide: branches, places, orders, signs."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__(sizes)
        self.made: list[Any] = []

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Operation:
        run = super().primitive(primitive, args)
        choice = CHOICES.get(primitive.name)
        rules = primitive.derivative
        constant = rules is None or primitive.name in ("floor", "ceil", "trunc", "round", "sign", "floor_quotient")
        if choice is None and not constant:
            return run

        def noting(env: Env[Any]) -> Sequence[Any]:
            operands = [np.asarray(arg(env)) for arg in args]
            results = run(env)
            if any(operand.dtype.kind == "f" for operand in operands):
                with np.errstate(all="ignore"):
                    self.made.append((results[0] if choice is None else choice(*operands)).item())
            return results

        return noting

    def argsort(self, array: Atom) -> Operation:
        run = super().argsort(array)

        def noting(env: Env[Any]) -> Sequence[Any]:
            (order,) = run(env)
            values = array(env)[order]
            self.made.append((order.tobytes(), (values[1:] == values[:-1]).tobytes()))
            return (order,)

        return noting


def decisions(program: Any, arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The leaves of a program's result, and what was decided on the way."""
    run = Decisions.run(instance(program, arguments), program.leaves(arguments))
    return run.results, run.made


def floating(program: Any, arguments: Sequence[Any]) -> list[int]:
    """The numbers of the floating parameters of a program without structures."""
    return [k for k, type in enumerate(instance(program, arguments).types) if is_float(type)]


@dataclass(frozen=True)
class Difference:
    """One entry a floating leaf of the result. Not ``reliable``: the program is not seen to be smooth there."""

    reliable: bool
    values: Sequence[Any] = ()
    errors: Sequence[Any] = ()

    def agrees(self, tangents: Sequence[Any], tolerance: float = 1e-10) -> None:
        """Assert that tangents are these derivatives, to the estimated error and some rounding."""
        assert self.reliable and len(tangents) == len(self.values)
        for tangent, value, error in zip(tangents, self.values, self.errors, strict=True):
            assert np.shape(tangent) == np.shape(value)
            allowed = 8 * error + tolerance * np.maximum(1.0, np.abs(value))
            assert np.all(np.abs(tangent - value) <= allowed), (tangent, value, error)


def along(
    program: Any, arguments: Sequence[Any], tangents: Sequence[Any], steps: Sequence[float] = STEPS
) -> Difference:
    """The derivative of a program along a direction: one tangent a floating parameter. All of these are f64.

    Where nothing is decided at the point itself, no number can change what is run around it.
    """
    places, chosen = floating(program, arguments), instance(program, arguments)
    assert all(element(chosen.types[k]).bits == 64 for k in places)
    _, sizes = chosen.signature.convert(program.leaves(arguments))
    decide = Decisions(sizes)
    deciding = chosen.term.interpret(decide)
    running = chosen.term.interpret(Evaluate(sizes, True, lambda *probe: None))

    def at(step: float) -> tuple[list[Any], list[Any]]:
        moved = list(arguments)
        for k, tangent in zip(places, tangents, strict=True):
            moved[k] = moved[k] + step * np.asarray(tangent)
        leaves, _ = chosen.signature.convert(program.leaves(moved))
        with np.errstate(all="ignore"):
            if step == 0 or decide.made:
                decide.made = []
                deciding(Env(), leaves)
            return running.run(Env(), leaves), decide.made

    return difference(at, steps)


def difference(at: Callable[[float], tuple[list[Any], list[Any]]], steps: Sequence[float] = STEPS) -> Difference:
    """The derivative at 0 of a function that gives leaves, and what was decided on the way to them."""
    _, middle = at(0.0)
    ahead: list[list[Any]] = []
    behind: list[list[Any]] = []
    kept: list[float] = []
    for step in reversed(steps):
        (right, first), (left, second) = at(step), at(-step)
        if first != middle or second != middle:
            break
        ahead.insert(0, right)
        behind.insert(0, left)
        kept.insert(0, step)
    if len(kept) < FEWEST:
        return Difference(False)
    values, errors = [], []
    for a, b in zip(zip(*ahead, strict=True), zip(*behind, strict=True), strict=True):
        if np.asarray(a[0]).dtype.kind == "f":
            value, error = extrapolated(a, b, kept)
            values.append(value)
            errors.append(error)
    limits = [ACCURACY * np.maximum(1.0, np.abs(value)) for value in values]
    reliable = all(bool(np.all(error <= limit)) for error, limit in zip(errors, limits, strict=True))
    return Difference(reliable, values, errors)
