"""Both modes on every program: against each other, finite differences, compiled code, and to second order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from plain import instance
from programs import CASES, Case

import adze as az
from adze.core import trees
from adze.core.program import Instance, Program
from adze.core.types import element, is_float
from adze.interpreters.check import check
from adze.interpreters.simplify import simplify


def leaves(tree: Any) -> list[Any]:
    return trees.flatten(tree, none_is_leaf=True)[0]


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
    """A case at generic arguments: which of its parameters are floating, and a direction for each."""

    def __init__(self, case: Case) -> None:
        self.case, self.program = case, case.program
        self.arguments = tuple(generic(x, k) for k, x in enumerate(case.arguments[0]))
        self.floating = [k for k, type in enumerate(instance(case.program, self.arguments).types) if is_float(type)]
        self.tangents = [direction(self.arguments[k], 10 + k) for k in self.floating]

    def moved(self, step: float) -> list[Any]:
        arguments = list(self.arguments)
        for k, tangent in zip(self.floating, self.tangents, strict=True):
            arguments[k] = arguments[k] + step * tangent
        return arguments

    def difference(self, program: Program, step: float = 1e-6) -> list[Any]:
        """Central differences of a program's results along the tangents; None at integer results."""
        ahead, behind = (leaves(az.evaluate(program)(*self.moved(h))) for h in (step, -step))
        with np.errstate(invalid="ignore"):  # infinities that stay
            return [
                np.where(a == b, 0.0, (np.asarray(a) - b) / (2 * step)) if np.asarray(a).dtype.kind == "f" else None
                for a, b in zip(ahead, behind, strict=True)
            ]


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
# To second order these stand for all constructs.
CURVED = {
    "scalars", "powers", "extremes", "row_norms", "generate_two", "gather_pairs", "product", "extremes_of_all",
    "log_sum_exp", "dot", "where_sqrt", "cond_structure", "cond_in_map", "power_loop", "loop_in_map",
    "matrix_power_loop", "prefix_sums", "horner", "kmeans",
}  # fmt: skip


# Compiled derivatives of these are tested every time.
COMPILED = CURVED | {
    "running_sum", "linear_recurrence", "matrix_products", "histograms", "histogram_of_rows", "scan_in_map",
    "updated_element", "scattered_twice", "sorting", "prefix_in_place", "swapped_states", "heat", "series",
    "outputs_of_array_steps", "products", "statistics", "where_broadcast", "slices", "gather", "neural", "tuple3",
}  # fmt: skip


def cases(*, among: set[str] | None = None, without: set[str] = frozenset(), fast: set[str] | None = None) -> Any:  # type: ignore[assignment]
    """The differentiable cases (among these names) but some; those that are not fast are marked slow."""
    chosen = [case for case in DIFFERENTIABLE if case.name not in without and (among is None or case.name in among)]
    slow = [[pytest.mark.slow] if fast is not None and case.name not in fast else [] for case in chosen]
    parameters = [pytest.param(case, marks=marks, id=case.name) for case, marks in zip(chosen, slow, strict=True)]
    return pytest.mark.parametrize("case", parameters)


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


@cases()
def test_the_modes_agree(case: Case) -> None:
    """<v, J u> = <J^T v, u>, at every argument at which these are finite."""
    for arguments in case.arguments:
        result = az.evaluate(case.program)(*arguments)
        floating = [k for k, type in enumerate(instance(case.program, arguments).types) if is_float(type)]
        tangents = [direction(arguments[k], k) for k in floating]
        cotangent = trees.tree_map(lambda leaf: direction(leaf, 7), result)
        same, tangent = az.evaluate(az.jvp(case.program))(*arguments, *tangents)
        primal, *cotangents = az.evaluate(az.vjp(case.program))(*arguments, cotangent)
        np.testing.assert_equal(leaves(same), leaves(result))
        np.testing.assert_equal(leaves(primal), leaves(result))
        for k, gradient in zip(floating, cotangents, strict=True):
            assert gradient.dtype == np.asarray(arguments[k]).dtype and gradient.shape == np.shape(arguments[k])
        left, size = pairing(leaves(cotangent), leaves(tangent))
        right, other = pairing(cotangents, tangents)
        if np.isfinite(left) and np.isfinite(right):
            precision = 1e-5 if case.name in SINGLE else 1e-12
            assert abs(left - right) <= precision * max(size, other) * 100


@cases()
def test_forward_mode_against_differences(case: Case) -> None:
    point = Point(case)
    program = az.jvp(case.program)
    arguments = (*point.arguments, *point.tangents)
    checked(program, arguments)
    _, tangent = az.evaluate(program)(*arguments)
    if case.name not in SINGLE:
        assert_close(leaves(tangent), point.difference(case.program), 1e-6)


@cases(fast=COMPILED)
def test_reverse_mode_compiled(case: Case) -> None:
    point = Point(case)
    result = az.evaluate(case.program)(*point.arguments)
    program, arguments = (
        az.vjp(case.program),
        (*point.arguments, trees.tree_map(lambda leaf: direction(leaf, 3), result)),
    )
    checked(program, arguments)
    evaluated, compiled = az.evaluate(program)(*arguments), az.compile(program, threads=1)(*arguments)
    assert_close(leaves(compiled), leaves(evaluated), 1e-5 if case.name in SINGLE else 1e-12)


@cases(fast=COMPILED)
def test_forward_mode_compiled(case: Case) -> None:
    point = Point(case)
    program, arguments = az.jvp(case.program), (*point.arguments, *point.tangents)
    evaluated, compiled = az.evaluate(program)(*arguments), az.compile(program, threads=1)(*arguments)
    assert_close(leaves(compiled), leaves(evaluated), 1e-5 if case.name in SINGLE else 1e-12)


# Second order


def scalar(program: Program) -> Program:
    """A number made of all floating results, with curvature everywhere."""

    def total(*arguments: Any) -> Any:
        parts = [leaf for leaf in trees.flatten(program(*arguments))[0] if isinstance(leaf, az.Expr)]
        return sum((az.sum(az.tanh(part * 0.25)) for part in parts if part.dtype.kind == "float"), start=0.0)

    return Program(total, f"scalar({program.name})", program.parameters)


@cases(among=CURVED | COMPILED, without=SINGLE, fast=CURVED)
def test_second_order(case: Case) -> None:
    """The product of the Hessian with a vector in four ways, against differences of the gradient."""
    point = Point(case)
    f, argnums, arguments, tangents = scalar(case.program), tuple(point.floating), point.arguments, point.tangents
    gradient = az.grad(f, argnums=argnums)
    wanted = point.difference(gradient, 1e-5)

    def result(program: Program, *more: Any) -> Any:
        return az.evaluate(program)(*arguments, *more)

    check(instance(gradient, arguments).term)
    count = len(argnums)
    assert_close(leaves(result(az.jvp(gradient), *tangents)[1]), wanted, 1e-5)
    assert_close(leaves(result(az.vjp(gradient), tuple(tangents))[1:]), wanted, 1e-5)
    assert_close(leaves(result(az.vjp(az.jvp(f)), *tangents, (0.0, 1.0))[1 : 1 + count]), wanted, 1e-5)
    assert_close(leaves(result(az.vjp(az.vjp(f)), 1.0, (0.0, *tangents))[1 : 1 + count]), wanted, 1e-5)


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
