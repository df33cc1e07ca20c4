"""The property suite of reverse differentiation in Accelerate, on random inputs.

Each row of ``appendix.py`` is a program and a strategy for its inputs. On every input forward and reverse mode agree
with each other; with extrapolated differences, where the program is seen to be smooth there; with compiled code; and
with the same program in single precision. Where the thesis expects differences to work, they must: most of the inputs
count. To second order, the product of the Hessian with a direction agrees with differences of the gradient.

(Smeding: Reverse Automatic Differentiation for Accelerate, 2021, section 4.3 and appendix A; what it allows is an
error of 0.1.)
"""

import math
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest
from appendix import INPUTS, ROWS, Row
from hypothesis import event, given, settings
from hypothesis import strategies as st
from plain import Plain, instance
from precision import cast, in_precision
from richardson import along, decisions, floating
from sampling import SLOW, SWEEP, some

import adze as az
from adze.core.types import is_float

pytestmark = pytest.mark.unguarded

LARGE = 1e36  # numbers in between below it are no infinity in f32
EACH = pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
FEW = pytest.mark.parametrize("row", some(ROWS, 5, long=0), ids=lambda row: row.name)  # where each is compiled


def inputs(few: int, many: int) -> Any:
    """How many inputs a test runs on, each time and in the sweep; with few = 0 in that and in the long run."""
    return pytest.mark.parametrize("count", [few or pytest.param(3, marks=SLOW), pytest.param(many, marks=SWEEP)])


class Largest(Plain):
    """The plain interpreter, keeping the largest magnitude of the numbers that it meets."""

    largest = 1.0

    def note(self, value: Any) -> None:
        if isinstance(value, np.floating):
            self.largest = max(self.largest, abs(float(value)))


class Derivatives:
    """A program with its derivatives, each built and compiled once."""

    def __init__(self, program: az.Program) -> None:
        self.program, self.forward, self.reverse = program, az.jvp(program), az.vjp(program)

    @cached_property
    def compiled_forward(self) -> Callable[..., Any]:
        return az.compile(self.forward, threads=1)

    @cached_property
    def compiled_reverse(self) -> Callable[..., Any]:
        return az.compile(self.reverse, threads=1)

    @cached_property
    def single(self) -> az.Program:
        return in_precision(self.program.at(), az.f32)

    @cached_property
    def single_reverse(self) -> az.Program:
        return az.vjp(self.single)

    @cached_property
    def gradient(self) -> az.Program:
        floats = [k for k, parameter in enumerate(self.program.parameters) if is_float(parameter.type)]
        return az.grad(self.program, argnums=tuple(floats))

    @cached_property
    def forward_over_reverse(self) -> az.Program:
        return az.jvp(self.gradient)

    @cached_property
    def reverse_over_reverse(self) -> az.Program:
        return az.vjp(self.gradient)


derivatives = cache(Derivatives)


class At:
    """A point: arguments, a direction, and what both modes give there."""

    def __init__(self, row: Row, arguments: Sequence[Any], seed: int) -> None:
        self.arguments, self.own = arguments, derivatives(row.program)
        random = np.random.default_rng(seed)
        floats = [arguments[k] for k in floating(self.own.program, arguments)]
        self.direction = [random.integers(-8, 9, x.shape) / 4 for x in floats]
        self.value, self.tangent = az.evaluate(self.own.forward)(*arguments, *self.direction)
        self.primal, *cotangents = az.evaluate(self.own.reverse)(*arguments, 1.0)
        self.cotangents = [c for c in cotangents if c is not None]

    def largest(self) -> float:
        """The largest magnitude that reverse mode meets."""
        program, arguments = self.own.reverse, (*self.arguments, 1.0)
        return Largest.run(instance(program, arguments), program.leaves(arguments)).largest

    def modes_agree(self) -> None:
        """<1, J u> = <J^T 1, u>; at a pole (the logarithm of 0) nothing is said."""
        value = az.evaluate(self.own.program)(*self.arguments)
        np.testing.assert_allclose([self.value, self.primal], [value, value], rtol=1e-14)
        terms = np.concatenate([np.zeros(1), *map(np.multiply, self.cotangents, self.direction)])
        scale = max(float(np.sum(np.abs(terms))), 1.0)
        assert np.isinf(value) or abs(np.sum(terms) - self.tangent) <= 1e-10 * scale

    def difference_agrees(self) -> bool:
        """False where the program is not seen to be smooth."""
        difference = along(self.own.program, self.arguments, self.direction)
        reliable = difference.reliable and bool(np.isfinite(self.value))
        if reliable:
            difference.agrees([self.tangent])
        return reliable

    def hessian_products(self) -> list[list[Any]]:
        """The Hessian times the direction, by forward and by reverse mode over reverse mode."""
        _, forward = az.evaluate(self.own.forward_over_reverse)(*self.arguments, *self.direction)
        _, *reverse = az.evaluate(self.own.reverse_over_reverse)(*self.arguments, tuple(self.direction))
        return [list(forward), [c for c in reverse if c is not None]]

    def single_agrees(self) -> bool:
        """False where f32 decides otherwise, or does not hold the numbers."""
        arguments, largest = cast(tuple(self.arguments), az.f32), self.largest()
        _, made = decisions(self.own.program, self.arguments)
        if largest > LARGE or decisions(self.own.single, arguments)[1] != made:
            return False
        got = az.evaluate(self.own.single_reverse)(*arguments, np.float32(1))
        assert all(leaf.dtype == np.float32 for leaf in got if leaf is not None)
        close(got, (self.primal, *self.cotangents), 1e-4 * largest)
        return True


def close(got: Sequence[Any], wanted: Sequence[Any], allowed: float) -> None:
    """To an absolute error; any, if numbers in between were infinite."""
    for x, y in zip([leaf for leaf in got if leaf is not None], wanted, strict=True):
        assert np.isinf(allowed) or np.allclose(x, y, rtol=0, atol=allowed, equal_nan=True), (x, y, allowed)


def for_each(row: Row, count: int, test: Callable[[At], bool], least: float = 0.0) -> None:
    """Run a test at so many points of a row. It is true where it could say something: at this share of them.

    The points are drawn, so the share is held to three standard deviations.
    """
    said = []

    @settings(max_examples=count)
    @given(row.inputs, st.integers(0, 2**16))
    def run(arguments: Sequence[Any], seed: int) -> None:
        said.append(test(At(row, arguments, seed)))
        event(f"{row.name}: {said[-1]}")

    run()
    chance = 3 * math.sqrt(len(said) * least * (1 - least))
    assert sum(said) >= least * len(said) - chance, f"{sum(said)} of {len(said)} points"


def smooth(row: Row) -> float:
    """At which share of the points, at least, a program is seen to be smooth: ties and zeros are drawn on purpose."""
    return 0.0 if row.rough else 0.8 if row.name.endswith("_friendly") else 0.4


def test_the_rows() -> None:
    names = {row.name for row in ROWS}
    assert len(ROWS) == len(names) == 59 + 3 and set(INPUTS) <= names
    assert len({row.program.name for row in ROWS}) == 52 + 3


@EACH
@inputs(4, 25)
def test_modes_and_differences(row: Row, count: int) -> None:
    def test(at: At) -> bool:
        at.modes_agree()
        return at.difference_agrees()

    for_each(row, count, test, smooth(row))


@FEW
@inputs(0, 15)
def test_compiled_gradient(row: Row, count: int) -> None:
    def test(at: At) -> bool:
        close(at.own.compiled_reverse(*at.arguments, 1.0), (at.primal, *at.cotangents), 1e-13 * at.largest())
        return True

    for_each(row, count, test)


@FEW
@inputs(0, 15)
def test_compiled_tangent(row: Row, count: int) -> None:
    def test(at: At) -> bool:
        got = at.own.compiled_forward(*at.arguments, *at.direction)
        close(got, (at.value, at.tangent), 1e-12 * at.largest())
        return True

    for_each(row, count, test)


@FEW
@inputs(0, 15)
def test_single_precision(row: Row, count: int) -> None:
    for_each(row, count, At.single_agrees, 0.3)


@FEW
@inputs(0, 6)
def test_second_order(row: Row, count: int) -> None:
    def test(at: At) -> bool:
        difference = along(at.own.gradient, at.arguments, at.direction)
        if difference.reliable:
            for product in at.hessian_products():
                difference.agrees(product)
        return difference.reliable

    for_each(row, count, test, smooth(row))
