"""Gradients by the reverse pass over a trace: right, the same as those of source to source, for any number of workers.

Each trap is a way in which a reverse pass over a trace goes wrong that is easily taken; the paper's listings take
most of them. (van Hus: Maintaining parallelism in reverse-mode automatic differentiation, section 4.)
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from plain import instance
from programs import CASES, Case, numbers, sampled
from programs.functions import BUSH, CHAIN, EMPTY, HIGHER_ORDER, LEAF, F, List, Maybe, Tree, folded, linked, listed
from programs.models import MODELS
from programs.recursion import RECURSION
from random_programs import argument_lists, made, program_texts
from richardson import Difference, difference
from trace_programs import MICRO, RECURSIVE, Matrix, Micro, Recursive, Vector, leaves, moved, same_bits

import adze as az
from adze.core import trees
from adze.core.data import Data
from adze.core.types import is_float

pytestmark = pytest.mark.unguarded

HERE = r"test_trace_gradients\.py:\d+"
X = numbers(5)
WORKERS = (1, 2, 4)


def floating(tree: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in leaves(tree) if np.asarray(leaf).dtype.kind == "f"]


def gradient(f: Any, *arguments: Any, argnums: Any = 0) -> Any:
    """Via the trace: by one worker, after several were seen to give the same bits."""
    program = f if isinstance(f, az.Program) else az.program(f)
    one, *others = [az.grad(program, argnums=argnums, via="trace", workers=n)(*arguments) for n in WORKERS]
    for other in others:
        same_bits(other, one)
    return one


def holds(f: Any, *arguments: Any, tolerance: float = 1e-12) -> Any:
    """The gradient of all floating arguments is that of source to source; gives it."""
    program = f if isinstance(f, az.Program) else az.program(f)
    argnums = tuple([k for k, x in enumerate(arguments) if floating(x)])
    got = gradient(program, *arguments, argnums=argnums)
    wanted = az.evaluate(az.grad(program, argnums=argnums))(*arguments)
    close(got, wanted, tolerance)
    return got if len(argnums) > 1 else got[0]


def close(got: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    """The same to rounding; None, infinities and NaN by place."""
    first, second = leaves(got), leaves(wanted)
    assert len(first) == len(second)
    for x, y in zip(first, second, strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            x, y = np.asarray(x), np.asarray(y)
            assert x.dtype == y.dtype and x.shape == y.shape
            size = float(np.max(np.abs(y), where=np.isfinite(y), initial=1.0))
            rounding = tolerance if y.dtype == np.float64 else 1e-4
            np.testing.assert_allclose(x, y, rtol=rounding, atol=rounding * size)


# The smallest programs


@pytest.mark.parametrize("micro", MICRO, ids=lambda micro: micro.name)
def test_the_smallest_programs(micro: Micro) -> None:
    """Against extrapolated differences, and source to source."""
    argnums = tuple(range(len(micro.arguments)))
    got = gradient(micro.program, *micro.arguments, argnums=argnums)
    tangents = tangents_of(micro.arguments, argnums)
    differences(micro.program, micro.arguments, argnums, tangents).agrees([pairing(got, tangents)], 1e-9)
    if micro.name not in WITH_FUNCTIONS:
        holds(micro.program, *micro.arguments)


# Source to source has no derivative of functions that are values.
WITH_FUNCTIONS = {"a_lambda_that_captures", "an_element_twice"}


def test_the_running_example() -> None:
    f = az.program(lambda x1, x2: x1 + x1 * x2)
    assert gradient(f, 5.0, 3.0, argnums=(0, 1)) == (4, 5)
    value, parts = az.value_and_grad(f, argnums=(0, 1), via="trace")(5.0, 3.0)
    assert value == 20 and parts == (4, 5)
    assert az.vjp(f, via="trace")(5.0, 3.0, 2.0) == (20, 8, 10)


# Traps


def test_trap_1_dead_code_does_not_stall() -> None:
    """A reference from a step that the result does not need brings no cotangent."""
    unused = lambda a, b: az.fori_loop(0, 3, lambda i, s: (s[0] * a, s[1] * b), (a, a))[1]  # noqa: E731
    assert gradient(unused, 2.0, 3.0, argnums=(0, 1)) == (27, 54)
    assert holds(lambda x, a: az.sum(az.map(lambda v: (v * v * a, az.sin(v) * a), x)[1]), X, 2.0)[1] != 0
    holds(lambda x: az.sum(az.scan_loop(lambda s, v: (s * v, (s + v, s * s)), 1.0, x)[1][0]), X)
    compared = lambda a, b: az.cond(az.sin(a) * b < 9, lambda: a * b, lambda: a)  # noqa: E731
    assert gradient(compared, 2.0, 3.0, argnums=(0, 1)) == (3, 2)


def test_trap_2_an_element_that_is_read_twice() -> None:
    assert list(gradient(lambda v: v[2] * v[2], X)) == [0, 0, 2 * X[2], 0, 0]
    holds(lambda v, k: az.sum(az.map(lambda j: v[j] * v[j] * v[1], k)), X, np.array([1, 1, 3, 1]))
    holds(lambda v, k: az.fori_loop(0, 4, lambda i, s: s * v[k[i]], v[1]), X, np.array([1, 1, 3, 1]))


def test_trap_3_the_sum_of_one() -> None:
    assert list(gradient(az.sum, np.array([1.5]))) == [1]
    assert list(gradient(lambda x: az.sum(x) * az.prod(x) * az.max(x), np.array([1.5]))) == [3 * 1.5**2]
    assert gradient(az.sum, numbers(0)).shape == (0,)


def test_trap_4_maps_of_the_identity_of_constants_and_of_what_is_captured() -> None:
    assert list(gradient(lambda x: az.sum(az.map(lambda v: v, x)), X)) == [1] * 5
    assert list(gradient(lambda x: az.sum(az.map(lambda v: 2.5, x)) + 0 * x[0], X)) == [0] * 5
    assert gradient(lambda a, x: az.sum(az.map(lambda v: a, x)), 2.0, X) == 5
    assert list(gradient(lambda y, x: az.sum(az.map(lambda v: y[0], x)), X, X)) == [5, 0, 0, 0, 0]
    holds(lambda a: az.sum(az.map(lambda r: az.map(lambda v: r[0], r), a)), numbers(3, 4))


def test_trap_5_nothing_and_each_element_has_its_own_values() -> None:
    f = lambda x, a: az.sum(az.map(lambda v: az.exp(v * a) * v, x)) + a  # noqa: E731
    for n in (0, 1, 2, 7):
        holds(f, numbers(n) / 4, 0.5)
    g = lambda a: az.sum(az.map(lambda r: az.prod(r) * az.sum(r), a))  # noqa: E731
    for shape in ((0, 3), (3, 0), (0, 0), (1, 1)):
        assert holds(g, np.zeros(shape)).shape == shape
    holds(g, numbers(3, 4))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 8, 23])
def test_trap_6_folds_keep_their_order(n: int) -> None:
    """Of operators that do not commute, for lengths that no number of segments divides."""

    def affine(p: Any, q: Any) -> Any:
        return p[0] * q[0], p[1] * q[0] + q[1]

    def matrices(p: Any, q: Any) -> Any:
        return (
            p[0] * q[0] + p[1] * q[2],
            p[0] * q[1] + p[1] * q[3],
            p[2] * q[0] + p[3] * q[2],
            p[2] * q[1] + p[3] * q[3],
        )

    x, y = np.sin(np.arange(n) + 1.0), np.cos(np.arange(n) * 2.0)
    holds(lambda x, y: az.sin(az.reduce(affine, (1.0, 0.0), (x, y))[1]), x, y)
    holds(lambda x, y: az.reduce(matrices, (1.0, 0.0, 0.0, 1.0), (x, y, y * x, x + y))[1], x, y, tolerance=1e-11)
    holds(lambda x, y: az.sum(az.scan(affine, (1.0, 0.0), (x, y))[1] * y), x, y)
    holds(lambda x, y: az.sum(az.scan(affine, (1.0, 0.0), (x, y), reverse=True, exclusive=True)[1] * y), x, y)
    if n:
        assert list(gradient(lambda v: az.fold1(lambda p, q: q, v), x)) == [0] * (n - 1) + [1]
        assert list(gradient(lambda v: az.fold1(lambda p, q: p, v), x)) == [1] + [0] * (n - 1)


def test_trap_7_folds_give_cotangents_to_elements_and_to_what_they_capture() -> None:
    combine = lambda w: lambda p, q: p + q + w * p * q  # noqa: E731
    for n in (0, 1, 2, 9, 40):
        x = np.sin(np.arange(n) + 1.0)
        holds(lambda x, w: az.reduce(combine(w), 0.0, x), x, 0.6)
        holds(lambda x, w: az.reduce(combine(w[1]), 0.0, az.map(lambda v: v * w[0], x)), x, np.array([0.5, 0.25, 7.0]))
        holds(lambda x, w: az.sum(az.scan(combine(w), 0.0, x)), x, 0.6)
        holds(lambda x, w: az.sum(az.histogram(combine(w), 0.0, 3, az.iota(az.size(x)) % 4, x)), x, 0.6)
    captured_array = lambda a, w: az.sum(az.map(lambda r: az.reduce(combine(r[0] * w), 0.0, r), a))  # noqa: E731
    holds(captured_array, numbers(3, 4) / 4, 0.5)


def test_trap_8_as_many_partial_cotangents_as_references() -> None:
    """From steps of all kinds, one of them with two references."""
    x = 0.5
    got = gradient(lambda x: x + x * x + az.sin(x) - az.sum(az.generate(3, lambda i: x * i)), x)
    assert got == pytest.approx(1 + 2 * x + np.cos(x) - 3, rel=1e-15)
    holds(lambda v: az.sum(v * v) + az.sum(v) + v[0] + az.sum(az.cumsum(v)) + az.max(v) + az.sum(v[1:] * v[0]), X)


def test_trap_9_what_nested_maps_capture() -> None:
    """Scalars and arrays from each level outside."""

    def f(a: Matrix, s: az.f64, w: az.Array[az.f64, "m"]) -> az.f64:
        def row(r: Any) -> Any:
            t = az.sum(r) * s
            return az.sum(az.map(lambda v, u: v * s * t * u * r[0] * a[0, 0] * w[1], r, w))

        return az.sum(az.map(row, a)) * s

    holds(f, numbers(3, 4) / 4, 0.5, numbers(4) / 4)
    holds(lambda x, s: az.sum(az.generate((3, 2), lambda i, j: x[i] * s * x[j])), X, 2.0)


def test_trap_10_cotangents_of_arrays_are_arrays() -> None:
    """One element, all of them alike, and each its own are added up to one array, in any order."""
    x = X
    got = gradient(lambda v: v[0] * 3 + az.sum(v) * 2 + az.sum(v * v) + v[0] * v[4], x)
    np.testing.assert_allclose(got, 2 + 2 * x + np.array([3 + x[4], 0, 0, 0, x[0]]), rtol=1e-15)
    got = gradient(lambda v: az.sum(v * v) + v[0] * v[4] + az.sum(v) * 2 + v[0] * 3, x)
    np.testing.assert_allclose(got, 2 + 2 * x + np.array([3 + x[4], 0, 0, 0, x[0]]), rtol=1e-15)
    holds(lambda a: a[1, 2] * az.sum(a[0]) + az.sum(a[:, 1]) + az.sum(a), numbers(3, 4))
    holds(lambda a: az.sum(az.map(lambda r: r[1] * az.sum(r) + az.sum(r), a)), numbers(3, 4))


def test_trap_11_functions_that_are_not_known_and_branches_in_nested_maps() -> None:
    def applied(x: Vector, up: az.bool_) -> az.f64:
        bent = az.function(lambda v: az.cond(v > 0, lambda: v * v, lambda: v), az.f64)
        g = az.cond(up, lambda: bent, lambda: az.function(az.sin, az.f64))
        return az.sum(az.map(lambda v: g(v), x))

    x = X + 0.05
    np.testing.assert_allclose(gradient(applied, x, True), np.where(x > 0, 2 * x, 1), rtol=1e-15)
    np.testing.assert_allclose(gradient(applied, x, False), np.cos(x), rtol=1e-14)

    def nested(a: Matrix, s: az.f64) -> az.f64:
        def row(r: Any) -> Any:
            inner = az.map(lambda v: az.cond(v * az.sum(r) > s, lambda: v * v * s, lambda: az.sin(v) * r[0]), r)
            return az.cond(r[1] > 0, lambda: az.sum(inner) * s, lambda: az.prod(inner))

        return az.sum(az.map(row, a))

    holds(nested, numbers(4, 3) / 4 + 0.05, 0.5)
    holds(nested, numbers(0, 3), 0.5)


def test_trap_12_one_partial_cotangent_a_map_for_what_it_captures() -> None:
    """Used twice in a lambda, in several maps, in another's operand, and by some elements only."""
    holds(lambda x, a: az.sum(az.map(lambda v: v * a + a * a, x)) * a + az.sum(az.map(lambda v: a, x)), X, 2.0)
    some = lambda x, a: az.sum(az.map(lambda v: az.cond(v > 1, lambda: v * a, lambda: v * v), x)) * a  # noqa: E731
    assert 0 < np.sum(X > 1) < 5
    holds(some, X, 2.0)
    none = lambda x, a: az.sum(az.map(lambda v: az.cond(v > 100, lambda: v * a, lambda: v * v), x)) + a  # noqa: E731
    assert holds(none, X, 2.0)[1] == 1
    only_none = lambda a, x: az.sum(az.map(lambda v: az.cond(v > 100, lambda: v * a, lambda: v * v), x))  # noqa: E731
    assert gradient(only_none, 2.0, X) == 0


def test_trap_13_results_that_no_step_has_made() -> None:
    """Inputs, constants, and one value twice."""
    assert gradient(lambda x: x, 2.0) == 1
    assert gradient(lambda x: az.cond(x > 0, lambda: 1.5, lambda: x), 2.0) == 0
    assert list(gradient(lambda x: az.fori_loop(0, 0, lambda i, s: s * 2, x)[1], X)) == [0, 1, 0, 0, 0]
    f = az.program(lambda x, y: (x, x, x * y, x * y, 2.5, y[0]))
    pulled = az.vjp(f, via="trace")(X, X, (X, X, X, 2 * X, 7.0, 5.0))
    wanted = az.evaluate(az.vjp(f))(X, X, (X, X, X, 2 * X, 7.0, 5.0))
    close(pulled, wanted)


def test_trap_14_comparisons_pass_nothing_on() -> None:
    def f(x: az.f64, y: az.f64) -> az.f64:
        return az.cond(az.sqrt(x) < y * y, lambda: az.where(x == y, 7.0, x * y), lambda: y)

    assert gradient(f, 0.0, 3.0, argnums=(0, 1)) == (3, 0)  # although the root has no slope there
    assert gradient(f, 9.0, 1.0, argnums=(0, 1)) == (0, 1)


# Against source to source, on all of the first-order suite


def is_differentiable(case: Case) -> bool:
    arguments = case.arguments[0]
    moving = any(is_float(type) for type in instance(case.program, arguments).types)
    return moving and bool(floating(az.evaluate(case.program)(*arguments)))


def cotangent_of(result: Any, seed: int = 3) -> Any:
    """Quarters in the structure of a result, None where it is not floating."""
    random = np.random.default_rng(seed)

    def part(leaf: Any) -> Any:
        array = np.asarray(leaf)
        quarters = (random.integers(-8, 9, array.shape) / 4).astype(array.dtype) if array.dtype.kind == "f" else None
        return None if quarters is None else quarters[()]

    return trees.tree_map(part, result)


def generic(argument: Any, seed: int) -> Any:
    """The argument, away from ties and kinks where it is floating."""
    random = np.random.default_rng(seed)
    return moved(lambda x: (x + random.uniform(0.03, 0.12, np.shape(x)).astype(np.asarray(x).dtype))[()], argument)


def agrees(program: az.Program, arguments: Sequence[Any]) -> None:
    """With az.vjp, and for several workers. Of numbers that are NaN none is the largest, and any may move."""
    if any(np.isnan(x).any() for x in floating(arguments)):
        return
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        cotangent = cotangent_of(az.evaluate(program)(*arguments))
        got, other = (az.vjp(program, via="trace", workers=n)(*arguments, cotangent) for n in (1, 4))
        wanted = az.evaluate(az.vjp(program))(*arguments, cotangent)
    same_bits(got[0], wanted[0])
    same_bits(other, got)
    close(got[1:], wanted[1:], 1e-11)


first_order = pytest.mark.parametrize("case", [c for c in CASES if is_differentiable(c)], ids=lambda case: case.name)


@first_order
def test_every_first_order_program(case: Case) -> None:
    agrees(case.program, [generic(x, k) for k, x in enumerate(case.arguments[0])])


@pytest.mark.slow
@first_order
def test_every_first_order_program_at_each_input(case: Case) -> None:
    for arguments in case.arguments:
        agrees(case.program, arguments)


@settings(max_examples=15)
@given(program_texts(depth=3), argument_lists())
def test_random_programs(text: str, arguments: tuple[Any, ...]) -> None:
    agrees(made(text), arguments)


@pytest.mark.slow
@settings(max_examples=100)
@given(program_texts(depth=4), argument_lists())
def test_larger_random_programs(text: str, arguments: tuple[Any, ...]) -> None:
    agrees(made(text), arguments)


@pytest.mark.slow
@settings(max_examples=50)
@given(program_texts(polynomial=True, depth=3), argument_lists())
def test_traced_gradients_of_gradients(text: str, arguments: tuple[Any, ...]) -> None:
    """The derivative of a source-to-source gradient, via its trace."""
    program = made(text)
    with np.errstate(all="ignore"):
        result = az.evaluate(program)(*arguments)
    if isinstance(result, np.float64):
        agrees(az.vjp(program), (*arguments, 1.0))


# Against differences, on the higher-order fragment


def differences(program: az.Program, arguments: Sequence[Any], moving: Sequence[int], tangents: Sequence[Any]) -> Any:
    """Of the result along a direction; the steps that are traced are what numbers decide on."""

    def at(step: float) -> tuple[list[Any], list[Any]]:
        there = list(arguments)
        for k, tangent in zip(moving, tangents, strict=True):
            there[k] = moved(lambda x, t: x + step * t, arguments[k], tangent)
        return floating(az.evaluate(program)(*there)), [az.trace(program)(*there).block]

    found: Difference = difference(at)
    assert found.reliable
    return found


def tangents_of(arguments: Sequence[Any], moving: Sequence[int]) -> list[Any]:
    random = np.random.default_rng(5)
    return [moved(lambda x: (random.integers(-8, 9, np.shape(x)) / 4)[()], arguments[k]) for k in moving]


def pairing(cotangents: Any, tangents: Any) -> float:
    first, second = floating(cotangents), floating(tangents)
    return sum(float(np.sum(a * b)) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("case", RECURSIVE, ids=lambda case: case.name)
def test_recursive_programs(case: Recursive) -> None:
    got = gradient(case.program, *case.arguments, argnums=case.moving)
    tangents = tangents_of(case.arguments, case.moving)
    found = differences(case.program, case.arguments, case.moving, tangents)
    found.agrees([pairing(got, tangents)], 1e-9)


def smooth(cases: list[Case]) -> list[Case]:
    """Those with a floating argument, and a floating result that is not inside of data, at their first arguments."""
    chosen = []
    for case in cases:
        arguments = case.arguments[0]
        result = az.evaluate(case.program)(*arguments)
        plain = not any(isinstance(leaf, Data) for leaf in trees.flatten(result)[0])
        if floating(arguments) and floating(result) and plain and case.name not in DISCRETE:
            chosen.append(case)
    return chosen


# What these give does not depend on their arguments smoothly: numbers are found by halving. And numbers of the last
# are too narrow for differences.
DISCRETE = {"root_by_halving", "in_a_while", "mixed_types"}


@pytest.mark.parametrize("case", smooth(HIGHER_ORDER), ids=lambda case: case.name)
def test_higher_order_programs(case: Case) -> None:
    is_the_derivative(case)


@pytest.mark.unguarded
@sampled(smooth([*RECURSION, *MODELS]))
def test_more_higher_order_programs(case: Case) -> None:
    is_the_derivative(case)


def is_the_derivative(case: Case) -> None:
    arguments = [generic(x, k) for k, x in enumerate(case.arguments[0])]
    moving = [k for k, x in enumerate(arguments) if floating(x)]
    cotangent = cotangent_of(az.evaluate(case.program)(*arguments))
    _, *got = az.vjp(case.program, via="trace")(*arguments, cotangent)
    same_bits(az.vjp(case.program, via="trace", workers=4)(*arguments, cotangent)[1:], tuple(got))
    tangents = tangents_of(arguments, moving)
    found = differences(case.program, arguments, moving, tangents)
    weights = floating(cotangent)
    wanted = sum(float(np.sum(w * v)) for w, v in zip(weights, found.values, strict=True))
    assert pairing(got, tangents) == pytest.approx(wanted, rel=1e-8, abs=1e-8)


def test_gradients_have_the_structure_of_the_argument() -> None:
    def squares(xs: List[az.f64]) -> az.f64:
        return folded(xs, az.f64, az.f64, 0.0, lambda x, rest: x * x + rest)

    got = gradient(squares, linked([1.5, -2.0]))
    assert isinstance(got, List.Cons) and listed(got) == [3, -4]
    assert isinstance(gradient(squares, EMPTY), List.Nil)

    def tree_squares(tree: Tree[az.f64]) -> az.f64:
        go = az.fix(
            lambda self, t: az.case(t, Leaf=lambda: 0.0, Node=lambda l, v, r: self(l) + v * v + self(r)),
            Tree[az.f64],
            result=az.f64,
        )
        return go(tree)

    for tree in (BUSH, CHAIN, LEAF):
        assert gradient(tree_squares, tree) == moved(lambda v: 2 * v, tree)


def test_integers_in_data_have_no_gradient() -> None:
    def value(f: F, x: Vector) -> az.f64:
        return az.case(
            f,
            Number=lambda v: v * v,
            Variable=lambda k: x[k] * x[k],
            Sum=lambda a, b: 0.0,
            Product=lambda a, b: 0.0,
        )

    assert gradient(value, F.Number(3.0), X) == F.Number(6.0)
    assert gradient(value, F.Variable(2), X) == F.Variable(None)
    assert list(gradient(value, F.Variable(2), X, argnums=1)) == [0, 0, 2 * X[2], 0, 0]
    unused = gradient(value, F.Sum(F.Number(1.0), F.Variable(1)), X)
    assert unused == F.Sum(F.Number(0.0), F.Variable(None))


def test_data_beside_other_structures() -> None:
    def f(p: {"m": Maybe[az.f64], "x": tuple[az.f64, az.i64]}) -> az.f64:
        return az.case(p["m"], Nothing=lambda: p["x"][0], Just=lambda y: y * p["x"][0] * p["x"][0])

    assert gradient(f, {"m": Maybe.Just(2.0), "x": (3.0, 1)}) == {"m": Maybe.Just(9.0), "x": (12.0, None)}
    assert gradient(f, {"m": Maybe.Nothing(), "x": (3.0, 1)}) == {"m": Maybe.Nothing(), "x": (1.0, None)}


def test_a_recursion_that_is_deeper_than_the_stack_of_python() -> None:
    def f(x: az.f64, n: az.i64) -> az.f64:
        go = az.fix(lambda self, k: az.cond(k == 0, lambda: x, lambda: self(k - 1) * x), az.i64, result=az.f64)
        return go(n)

    assert az.grad(az.program(f), via="trace")(1.0, 2000) == 2001


# Structures and types


def test_structures_of_parameters() -> None:
    def f(p: {"a": az.f64, "k": az.i64, "x": Vector}, s: az.f64) -> az.f64:
        return p["a"] * az.sum(p["x"]) * s + p["k"]

    got = gradient(f, {"a": 2.0, "k": 3, "x": X}, 0.5)
    assert got["k"] is None and got["a"] == np.sum(X) * 0.5
    same_bits(got["x"], np.full(5, 1.0))
    assert gradient(f, {"a": 2.0, "k": 3, "x": X}, 0.5, argnums=1) == 2 * np.sum(X)
    assert gradient(f, {"a": 2.0, "k": 3, "x": X}, 0.5, argnums=(1,)) == (2 * np.sum(X),)


def test_single_precision_stays_single() -> None:
    x = X.astype(np.float32)

    def f(x: az.Array[az.f32, "n"], a: az.f64) -> az.f32:
        return az.sum(az.map(lambda v: az.cond(v > 0, lambda: v * v, lambda: az.sin(v)), x)) * a.astype(az.f32)

    dx, da = holds(f, x, 0.5)
    assert dx.dtype == np.float32 and da.dtype == np.float64


def test_gradients_are_not_shared_with_arguments() -> None:
    x = X.copy()
    one, other = gradient(lambda x, y: az.sum(x * y), x, X, argnums=(0, 1))
    one[0], other[0] = 77.0, 78.0
    same_bits(x, X)


def test_kinks_and_zeros() -> None:
    """The conventions of source to source: the first of equals, no slope of abs at 0, products with zeros."""
    holds(lambda x: az.max(x) * 2 + az.min(x) + az.sum(abs(x)), np.array([1.0, 0.0, 1.0, -2.0, -2.0]))
    for zeros in ([0.0, 2.0, 3.0], [0.0, 2.0, 0.0], [0.0], [-0.0, 0.0, 1.0]):
        holds(lambda x: az.prod(x) + az.sum(az.cumprod(x)), np.array(zeros))
    holds(lambda x: az.sum(az.where(x > 0, az.sqrt(x), 0.0)), np.array([0.0, 4.0, -1.0]))
    holds(lambda x: az.sum(az.maximum(x, 0.0)) + az.logsumexp(x), np.array([0.0, 4.0, -1.0]))


def test_writes() -> None:
    """What is overwritten has no cotangent; the last write wins; what falls outside is ignored."""
    k = np.array([1, 0, 1])
    holds(lambda x, v, k: az.sum(az.scatter(x, k, v, unique=False) ** 2), X, numbers(3), k)
    holds(lambda x, v, k: az.sum(az.scatter(x, k, v, unique=False, mode="drop") ** 2), X, numbers(3), k + 4)
    holds(lambda x: az.sum(az.fori_loop(0, 4, lambda i, y: az.update(y, i + 1, y[i] * y[i + 1]), x) ** 2), X)
    holds(lambda a: az.sum(az.update(a, 1, a[0] * 2) ** 2), numbers(3, 4))
    holds(lambda x: az.sum(az.sort(x) * az.iota(az.size(x))), X)


def test_many_reads_of_one_array() -> None:
    """3000 steps that each read an element of an array of 3000: time and memory are linear."""
    n = 3_000
    x = np.linspace(0.0, 1.0, n)
    f = az.program(lambda x: az.fori_loop(0, az.size(x), lambda i, s: s + x[i] * x[i], 0.0))
    np.testing.assert_allclose(az.grad(f, via="trace")(x), 2 * x, rtol=1e-15)


def test_what_is_held_constant() -> None:
    assert gradient(lambda x: az.stop_gradient(x) * x, 3.0) == 3
    assert list(gradient(lambda x: az.sum(az.map(lambda v: az.stop_gradient(v * v) * v, x)), X)) == list(X * X)


# Rules of one's own


def steep(vjp: bool) -> Callable[..., Any]:
    """x^2 with a slope of 20 x, by a rule of one mode or the other."""
    f = (az.custom_vjp if vjp else az.custom_jvp)(lambda x: az.cond(x > 0, lambda: x * x, lambda: -x * -x))
    if vjp:
        f.defvjp(lambda primals, cotangent: (20 * primals[0] * cotangent,))
    else:
        f.defjvp(lambda primals, tangents: 20 * primals[0] * tangents[0])
    return f


@pytest.mark.parametrize("vjp", [True, False], ids=["vjp", "jvp"])
def test_rules(vjp: bool) -> None:
    f = steep(vjp)
    assert gradient(lambda x: f(x) * 2, 3.0) == 120
    assert gradient(lambda x: az.cond(x > 0, lambda: f(x), lambda: x), 3.0) == 60
    assert gradient(lambda x: az.fori_loop(0, 2, lambda i, s: f(s), x), 3.0) == 60 * 180
    same_bits(gradient(lambda x: az.sum(az.map(f, x)), X), 20 * X)
    same_bits(gradient(lambda x: az.sum(az.map(lambda v: az.cond(v > 0, lambda: f(v), lambda: 0.0), x)), X),
              np.where(X > 0, 20 * X, 0.0))  # fmt: skip


def test_a_rule_beside_what_the_function_captures() -> None:
    def program(x: az.f64, w: az.f64) -> az.f64:
        f = az.custom_vjp(lambda y: y * y * w)
        f.defvjp(lambda primals, cotangent: (10 * primals[0] * cotangent,))
        return f(x)

    holds(program, 3.0, 2.0)


def test_checkpoints() -> None:
    layer = az.checkpoint(lambda w, x: az.tanh(w @ x))
    holds(lambda w, x: az.sum(layer(w, layer(w, x))), numbers(3, 3) / 4, numbers(3) / 4)
    holds(lambda x: az.fori_loop(0, 7, lambda i, s: az.sin(s) * x, x, checkpoint="sqrt"), 0.5)


def test_probes_show_cotangents(capsys: pytest.CaptureFixture[str]) -> None:
    f = az.program(lambda x: az.inspect(x * 2, "twice") ** 2)
    assert az.grad(f, via="trace")(3.0) == 24
    traced = capsys.readouterr().out
    az.evaluate(az.grad(f))(3.0)
    assert traced == capsys.readouterr().out == "twice = 6.0\ntwice cotangent = 12.0\n"


def test_functions_written_elsewhere_have_no_derivative() -> None:
    twice = az.foreign("twice", lambda x: 2 * x, lambda x: x)
    with pytest.raises(TypeError, match=f"(?s)foreign function twice.*custom_vjp.*{HERE}"):
        az.grad(az.program(lambda x: az.sum(twice(x)) * x[0]), via="trace")(X)
    constant = lambda x, y: az.sum(twice(y)) * az.sum(x)  # noqa: E731
    same_bits(gradient(constant, X, X), np.full(5, 2 * np.sum(X)))


# Workers


def test_workers_give_the_same_bits() -> None:
    """On a wide program whose sums depend on the order in which they are taken."""

    def f(a: Matrix, s: az.f64) -> az.f64:
        branches = [az.sum(az.sin(a * (k + 1) * s) @ a.T) * az.sum(a[k % 3] * s) for k in range(6)]
        return sum(branches[1:], branches[0])

    program = az.program(f)
    a = np.random.default_rng(1).normal(size=(5, 7))
    one = az.grad(program, argnums=(0, 1), via="trace", workers=1)(a, 0.3)
    for workers in (2, 4, 8):
        for _ in range(3):
            same_bits(az.grad(program, argnums=(0, 1), via="trace", workers=workers)(a, 0.3), one)
    close(one, az.evaluate(az.grad(program, argnums=(0, 1)))(a, 0.3))


def test_an_error_in_a_worker_is_raised() -> None:
    twice = az.foreign("twice", lambda x: 2 * x, lambda x: x)
    for workers in (1, 4):
        with pytest.raises(TypeError, match="foreign function twice"):
            az.grad(az.program(lambda x: az.sum(twice(x)) * x[0]), via="trace", workers=workers)(X)


def test_long_traces_take_linear_time() -> None:
    f = az.program(lambda x, n: az.fori_loop(0, n, lambda i, s: s * 0.5 + x, x))
    assert az.grad(f, via="trace")(1.0, 10_000) == 2


# Errors


@az.program
def square(x: az.f64, k: az.i64) -> az.f64:
    return x * x * k


def test_an_unknown_way() -> None:
    for verb in (az.grad, az.value_and_grad, az.vjp):
        with pytest.raises(ValueError, match=rf"(?s)via.*trace.*tape.*{HERE}"):
            verb(square, via="tape")


@pytest.mark.parametrize("workers", [0, -1])
def test_too_few_workers(workers: int) -> None:
    for verb in (az.grad, az.value_and_grad, az.vjp):
        with pytest.raises(ValueError, match=f"(?s)workers.*{workers}.*{HERE}"):
            verb(square, via="trace", workers=workers)


def test_workers_that_are_no_number() -> None:
    with pytest.raises((TypeError, ValueError), match="workers"):
        az.grad(square, via="trace", workers=1.5)  # type: ignore[arg-type]


def test_integers_have_no_gradient() -> None:
    for options in ({}, {"via": "trace"}):
        with pytest.raises(TypeError, match=f"'k'.*i64.*{HERE}"):
            az.grad(square, argnums=1, **options)
        with pytest.raises(ValueError, match=HERE):
            az.grad(square, argnums=2, **options)


def test_the_gradient_is_that_of_one_number() -> None:
    for options in ({}, {"via": "trace"}):
        with pytest.raises(TypeError, match=r"one floating scalar, but .* returns f64\[.*az\.vjp"):
            az.grad(az.program(lambda x: x * 2), **options)(X)
        with pytest.raises(TypeError, match="one floating scalar"):
            az.grad(az.program(lambda x: az.argmax(x)), **options)(X)
        with pytest.raises(TypeError, match="one floating scalar"):
            az.grad(az.program(lambda x: (x[0], x[1])), **options)(X)


def test_nothing_floating_to_pull_back() -> None:
    result, cotangent = az.vjp(az.program(lambda x: az.argmax(x)), via="trace")(X, None)
    assert result == np.argmax(X) and np.array_equal(cotangent, np.zeros_like(X))


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match=r"square takes 2 argument\(s\).*missing: k"):
        az.grad(square, via="trace")(2.0)
    with pytest.raises(TypeError, match="'k'"):
        az.grad(square, via="trace")(2.0, 1.5)
    with pytest.raises(TypeError, match="cotangent"):
        az.vjp(square, via="trace")(2.0, 1, X)


def test_what_a_body_reads_as_a_constant_does_not_move() -> None:
    """A solve with many right-hand sides maps a function without a rule over blocks of these, all of them stopped."""
    a = np.array([[2.0, 0.3], [0.1, 1.5]])
    slope = az.grad(az.program(lambda a: az.sum(az.linalg.inv(a))), via="trace")(a)
    inverse = np.linalg.inv(a)
    np.testing.assert_allclose(slope, -inverse.T @ np.ones((2, 2)) @ inverse.T, rtol=1e-13)
    halves = az.program(lambda x: az.sum(x * az.map(lambda e: az.stop_gradient(e) * 0.5, x)))
    np.testing.assert_array_equal(az.grad(halves, via="trace")(X), X * 0.5)


def test_errors_of_the_run() -> None:
    with pytest.raises(IndexError, match=f"index 7 is out of range.*{HERE}"):
        az.grad(az.program(lambda x, k: x[k]), via="trace")(X, 7)
