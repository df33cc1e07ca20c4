"""Both modes on every program: against each other, extrapolated differences, compiled code, and to second order.

Each program is differentiated in both precisions. Differences are taken in f64 (also of programs that are written in
f32, whose terms are changed for it), and the derivatives in f32 are compared with those in f64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from appendix import ROWS
from plain import instance
from precision import cast, in_precision
from programs import CASES, Case, sampled
from richardson import Difference, along
from sampling import sooner

import adze as az
from adze.core import trees
from adze.core.language import Unsupported
from adze.core.program import Instance, Program
from adze.core.types import Scalar, element, f32, f64, is_float
from adze.interpreters.check import check
from adze.interpreters.simplify import simplify

pytestmark = pytest.mark.unguarded


def leaves(tree: Any) -> list[Any]:
    return trees.flatten(tree, plain=True)[0]


def floating(tree: Any) -> list[Any]:
    return [leaf for leaf in leaves(tree) if np.asarray(leaf).dtype.kind == "f"]


def generic(argument: Any, seed: int) -> Any:
    """The argument, away from ties and kinks where it is floating."""
    if np.asarray(argument).dtype.kind != "f":
        return argument
    noise = np.random.default_rng(seed).uniform(0.03, 0.12, np.shape(argument))
    return (argument + noise.astype(np.asarray(argument).dtype))[()]


def direction(like: Any, seed: int) -> Any:
    """Quarters in the shape and type of a floating value; None for a value of another type."""
    array = np.asarray(like)
    if array.dtype.kind != "f":
        return None
    return (np.random.default_rng(seed).integers(-8, 9, array.shape) / 4).astype(array.dtype)[()]


class Point:
    """A case at generic arguments: which of its parameters are floating, and a direction for each.

    The program is as it is written, or in the given precision.
    """

    def __init__(self, case: Case, scalar: Scalar | None = None) -> None:
        arguments = tuple(generic(x, k) for k, x in enumerate(case.arguments[0]))
        written = instance(case.program, arguments)
        self.program = in_precision(written, scalar) if scalar else case.program
        self.arguments = cast(arguments, scalar) if scalar else arguments
        self.floating = [k for k, type in enumerate(written.types) if is_float(type)]
        self.tangents = [direction(self.arguments[k], 10 + k) for k in self.floating]
        self.cotangent = trees.tree_map(lambda leaf: direction(leaf, 3), az.evaluate(self.program)(*self.arguments))

    @staticmethod
    def double(case: Case) -> Point:
        """A case in f64, which it is in most times already."""
        return Point(case, f64 if case.name in SINGLE else None)

    def differences(self, program: Program) -> Difference:
        """Those of a program's results along the tangents; it must be smooth here."""
        difference = along(program, self.arguments, self.tangents)
        assert difference.reliable
        return difference


def is_differentiable(case: Case) -> bool:
    arguments = case.arguments[0]
    floating = any(is_float(type) for type in instance(case.program, arguments).types)
    return floating and any(
        np.asarray(leaf).dtype.kind == "f" for leaf in leaves(az.evaluate(case.program)(*arguments))
    )


DIFFERENTIABLE = [case for case in CASES if is_differentiable(case)]
SINGLE = {
    case.name
    for case in DIFFERENTIABLE
    if any(element(t).bits == 32 for t in instance(case.program, case.arguments[0]).types)
}
# To second order these stand for all constructs, every time.
CURVED = {
    "scalars", "powers", "extremes", "row_norms", "generate_two", "gather_pairs", "product", "extremes_of_all",
    "log_sum_exp", "dot", "where_sqrt", "cond_structure", "cond_in_map", "power_loop", "loop_in_map",
    "matrix_power_loop", "prefix_sums", "horner",
}  # fmt: skip


# Compiled derivatives of these are tested every time.
COMPILED = CURVED | {
    "running_sum", "linear_recurrence", "histograms", "histogram_of_rows", "scan_in_map",
    "updated_element", "scattered_twice", "sorting", "prefix_in_place", "swapped_states", "heat", "series",
    "outputs_of_array_steps", "products", "statistics", "where_broadcast", "slices", "gather",
}  # fmt: skip


# In f32 these are tested every time.
IN_BOTH_PRECISIONS = {"product", "extremes_of_all", "prefix_sums"}


# The rows of the property suite have the same tests on more inputs there, each time.
OTHERS = {case.name for case in DIFFERENTIABLE} - {row.program.name for row in ROWS}


def cases(fast: set[str]) -> Any:
    """The differentiable cases: those that are fast each time, every third of the others in the long run."""
    parameters = sooner(DIFFERENTIABLE, lambda case: case.name in fast, 3)
    return pytest.mark.parametrize("case", parameters, ids=lambda case: case.name)


def checked(program: Program, arguments: Sequence[Any]) -> Instance:
    """The instance, after its term and its simplified term were typed again and simplified to the end."""
    made = instance(program, arguments)
    check(made.term)
    simplified = simplify(made.term)
    check(simplified)
    assert simplify(simplified) == simplified
    return made


def assert_close(got: Sequence[Any], wanted: Sequence[Any], tolerance: float) -> None:
    assert len(got) == len(wanted)
    for x, y in zip(got, wanted, strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            assert np.shape(x) == np.shape(y)
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def pairing(first: Sequence[Any], second: Sequence[Any]) -> tuple[float, float]:
    """The inner product, and the largest of its terms."""
    terms = [np.asarray(a, np.float64) * b for a, b in zip(first, second, strict=True) if a is not None]
    total = sum(float(np.sum(term)) for term in terms)
    return total, max([1.0, *[float(np.max(np.abs(term), initial=0)) for term in terms]])


@cases(OTHERS)
def test_the_modes_agree(case: Case) -> None:
    """<v, J u> = <J^T v, u>, at every argument at which these are finite."""
    for arguments in case.arguments:
        result = az.evaluate(case.program)(*arguments)
        places = [k for k, type in enumerate(instance(case.program, arguments).types) if is_float(type)]
        tangents = [direction(arguments[k], k) for k in places]
        cotangent = trees.tree_map(lambda leaf: direction(leaf, 7), result)
        same, tangent = az.evaluate(az.jvp(case.program))(*arguments, *tangents)
        primal, *cotangents = az.evaluate(az.vjp(case.program))(*arguments, cotangent)
        np.testing.assert_equal(leaves(same), leaves(result))
        np.testing.assert_equal(leaves(primal), leaves(result))
        for k, gradient in zip(places, cotangents, strict=True):
            assert gradient.dtype == np.asarray(arguments[k]).dtype and gradient.shape == np.shape(arguments[k])
        left, size = pairing(leaves(cotangent), leaves(tangent))
        right, other = pairing(cotangents, tangents)
        if np.isfinite(left) and np.isfinite(right):
            precision = 1e-5 if case.name in SINGLE else 1e-12
            assert abs(left - right) <= precision * max(size, other) * 100


@cases(OTHERS)
def test_forward_mode_against_differences(case: Case) -> None:
    point = Point.double(case)
    program = az.jvp(point.program)
    arguments = (*point.arguments, *point.tangents)
    checked(program, arguments)
    _, tangent = az.evaluate(program)(*arguments)
    point.differences(point.program).agrees(floating(tangent))


@cases(COMPILED)
def test_reverse_mode_compiled(case: Case) -> None:
    point = Point(case)
    program, arguments = az.vjp(case.program), (*point.arguments, point.cotangent)
    checked(program, arguments)
    evaluated, compiled = az.evaluate(program)(*arguments), az.compile(program, threads=1)(*arguments)
    assert_close(leaves(compiled), leaves(evaluated), 1e-5 if case.name in SINGLE else 1e-12)


@cases(COMPILED)
def test_forward_mode_compiled(case: Case) -> None:
    point = Point(case)
    program, arguments = az.jvp(case.program), (*point.arguments, *point.tangents)
    evaluated, compiled = az.evaluate(program)(*arguments), az.compile(program, threads=1)(*arguments)
    assert_close(leaves(compiled), leaves(evaluated), 1e-5 if case.name in SINGLE else 1e-12)


@cases(IN_BOTH_PRECISIONS)
def test_single_precision(case: Case) -> None:
    """Both modes of the program in f32, evaluated and compiled, against those in f64 at the same arguments."""
    single, double = Point(case, f32), Point(case, f64)
    arguments = cast(single.arguments, f64)
    for verb, inputs in ((az.jvp, single.tangents), (az.vjp, [single.cotangent])):
        program, given = verb(single.program), (*single.arguments, *inputs)
        wanted = floating(az.evaluate(verb(double.program))(*arguments, *cast(tuple(inputs), f64)))
        for run in (az.evaluate(program), az.compile(program, threads=1)):
            got = floating(run(*given))
            assert all(leaf.dtype == np.float32 for leaf in got)
            for x, y in zip(got, wanted, strict=True):
                scale = np.max(np.abs(y), initial=1.0, where=np.isfinite(y))
                np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5 * scale)


# Second order


def scalar(program: Program) -> Program:
    """A number made of all floating results, with curvature everywhere."""

    def total(*arguments: Any) -> Any:
        parts = [leaf for leaf in trees.flatten(program(*arguments))[0] if isinstance(leaf, az.Expr)]
        return sum((az.sum(az.tanh(part * 0.25)) for part in parts if part.dtype.kind == "float"), start=0.0)

    return Program(total, f"scalar({program.name})", program.parameters)


@cases(CURVED)
def test_second_order(case: Case) -> None:
    """The product of the Hessian with a vector in four ways, against differences of the gradient."""
    point = Point.double(case)
    f, argnums, arguments, tangents = scalar(point.program), tuple(point.floating), point.arguments, point.tangents
    gradient = az.grad(f, argnums=argnums)
    wanted = point.differences(gradient)

    def result(program: Program, *more: Any) -> Any:
        return az.evaluate(program)(*arguments, *more)

    check(instance(gradient, arguments).term)
    count = len(argnums)
    wanted.agrees(leaves(result(az.jvp(gradient), *tangents)[1]))
    wanted.agrees(leaves(result(az.vjp(gradient), tuple(tangents))[1:]))
    wanted.agrees(leaves(result(az.vjp(az.jvp(f)), *tangents, (0.0, 1.0))[1 : 1 + count]))
    wanted.agrees(leaves(result(az.vjp(az.vjp(f)), 1.0, (0.0, *tangents))[1 : 1 + count]))


def test_derivatives_of_each_order() -> None:
    @az.program
    def f(x: az.f64) -> az.f64:
        return az.sin(x) * x

    x = 0.7
    wanted = [np.cos(x) * x + np.sin(x), 2 * np.cos(x) - x * np.sin(x), -3 * np.sin(x) - x * np.cos(x)]
    derivative: Program = f
    for expected in wanted:
        derivative = az.grad(derivative)
        assert az.evaluate(derivative)(x) == pytest.approx(expected, rel=1e-14)
    in_turn = az.grad(lambda v: az.jvp(az.grad(f), (v,), (1.0,))[1])
    assert az.evaluate(in_turn)(x) == pytest.approx(wanted[2], rel=1e-14)


@sampled(DIFFERENTIABLE, every=40, long=4)
def test_the_default_mode_of_a_jacobian_costs_no_more_than_the_better(case: Case) -> None:
    """At all sizes that the case has, other than none; where rows are accumulated, they count half as much again
    (``ad/modes.py``), and here all rows by reverse mode do.
    """
    by = min(Point(case).floating)

    def costs(mode: str | None) -> Any:
        try:
            return az.cost(az.jacobian(case.program, by, mode))
        except Unsupported:
            return None  # a rule of the user's serves one mode

    taken, forward, reverse = [costs(mode) for mode in (None, "forward", "reverse")]
    for arguments in case.arguments:
        if all(map(np.size, trees.flatten(arguments, plain=True)[0])):
            columns, rows = [math.inf if cost is None else cost(*arguments).work for cost in (forward, reverse)]
            assert taken(*arguments).work <= 1.05 * min(columns, 1.5 * rows) + 64
