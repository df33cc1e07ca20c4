"""Traps of automatic differentiation, one small test each: where rules are printed wrongly, or are easily made wrong.

Each docstring names the trap and where it is from. ``S`` with a section is Schenck, Rønning, Henriksen and Oancea, *AD
for an Array Language with Nested Parallelism* (2022); ``A`` is Smeding, *Reverse Automatic Differentiation for
Accelerate* (2021). Where a rule or a figure of theirs is misprinted it says *misprint*, where they stop, *beyond*.

The order is that of the constructs: numbers, integers, branches, reads, maps, reductions, histograms, scans, writes,
loops, while, nesting, shapes, and at the end what a derivative looks like and what it costs.

:func:`holds` compares whole Jacobians: reverse mode gives their rows and forward mode their columns. Reverse mode is
compiled, too, where code of its own is generated. What is expected is written down by hand, by NumPy, or by exact
differences of linear functions.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import numbers

import adze as az

pytestmark = pytest.mark.unguarded

INF = float("inf")
x4 = np.array([0.5, -1.5, 2.0, 0.75])
e4 = np.eye(4)


def units(like: Any) -> list[tuple[tuple[int, ...], Any]]:
    """Each place of an array with the array that is 1 there and 0 elsewhere."""
    made = []
    for place in np.ndindex(np.shape(like)):
        unit = np.zeros_like(like)
        unit[place] = 1
        made.append((place, unit[()]))
    return made


def holds(f: Callable[..., Any], *arguments: Any, wanted: Any, compiled: bool = False) -> None:
    """Both modes give this Jacobian, or one for each floating argument, of a function with one array as its result."""
    program = az.program(f)
    result = az.evaluate(program)(*arguments)
    moving = [k for k, x in enumerate(arguments) if np.asarray(x).dtype.kind == "f"]
    jacobians = [np.asarray(w, float) for w in ([wanted] if len(moving) == 1 else wanted)]
    shapes = [np.shape(result) + np.shape(arguments[k]) for k in moving]
    assert [w.shape for w in jacobians] == shapes
    pull, push = az.vjp(program), az.evaluate(az.jvp(program))
    for back in (az.evaluate(pull), az.compile(pull, threads=1)) if compiled else (az.evaluate(pull),):
        for place, unit in units(result):
            value, *cotangents = back(*arguments, unit)
            np.testing.assert_allclose(value, result, rtol=1e-14)
            for got, jacobian in zip(cotangents, jacobians, strict=True):
                np.testing.assert_allclose(got, jacobian[place], rtol=1e-13, atol=1e-14)
    for k, jacobian in zip(moving, jacobians, strict=True):
        tangents = [np.zeros_like(x)[()] if other in moving else None for other, x in enumerate(arguments)]
        for place, unit in units(arguments[k]):
            tangents[k] = unit
            _, tangent = push(*arguments, *tangents)
            np.testing.assert_allclose(tangent, jacobian[(..., *place)], rtol=1e-13, atol=1e-14)


def without(x: Any, *places: int) -> float:
    """The product of all elements but those at these places."""
    return float(np.prod(np.delete(x, places)))


both = pytest.mark.parametrize("run", [az.evaluate, az.compile])


# Numbers


def test_the_tangent_of_a_sine_has_a_cosine() -> None:
    """Misprint: figure 1 (b) has ``sin(x0) * d_x0``. [S 2]"""
    holds(lambda x, y: x * y + az.sin(x), 0.7, 2.0, wanted=(2 + np.cos(0.7), 0.7))


def test_each_function_of_a_chain_is_differentiated_at_its_own_point() -> None:
    """Misprint: the sweep back through g3(g2(g1(x))) has x2 = g1(x), x3 = g2(x2). [A 2.1]"""
    x, y = 0.3, np.exp(0.3)
    holds(lambda x: az.sin(az.exp(x) ** 2), x, wanted=np.cos(y**2) * 2 * y * y)


def test_the_cotangent_of_a_logarithm_is_divided_by_the_operand() -> None:
    """Misprint: ``y / d`` for ``d / y``. [A 2.1.2]"""
    holds(lambda x: 3.0 * az.log(x), 4.0, wanted=0.75)


def test_values_used_never_once_and_many_times() -> None:
    """The contributions of all uses add up; dead code has none, though its derivative be infinite. [S 4.2, A 3.4.4]"""

    def f(x: Any) -> Any:
        az.sqrt(x)
        square = x * x
        return square + square * square + az.where(x == 0, square, 1.0)

    holds(f, 0.0, wanted=0)
    holds(f, 3.0, wanted=6 + 4 * 27)


def test_unused_parameters_have_zeros_of_their_own_shape_and_type() -> None:
    """A cotangent that nothing was added to. [S 4.2]"""

    @az.program
    def f(x: az.f64, unused: az.Array[az.f32, "n 2"], empty: az.Array[az.f64, "0"]) -> az.f64:
        return x * x

    _, by_unused, by_empty = az.evaluate(az.grad(f, argnums=(0, 1, 2)))(3.0, np.ones((3, 2), np.float32), np.zeros(0))
    assert by_unused.dtype == np.float32 and by_unused.shape == (3, 2) and not by_unused.any()
    assert by_empty.shape == (0,)
    holds(lambda x: az.full(2, 42.0), x4, wanted=np.zeros((2, 4)))  # a function that ignores its argument, A 3.4.5


@pytest.mark.parametrize(("power", "wanted"), [(0, 0), (1, 1), (2, 0), (3, 0)])
def test_integer_powers_at_zero(power: int, wanted: float) -> None:
    """``k x^(k-1)`` is ``0 * inf`` for k = 0, and ``0 ** 0`` for k = 1. [A 3.5]"""
    holds(lambda x: x**power, 0.0, wanted=wanted)


def test_kinks_and_ties_of_numbers() -> None:
    """abs and sign have derivative 0 at 0; a tie goes to the first operand, whatever the signs of zeros. [A 3.2]"""

    def f(x: Any, y: Any) -> Any:
        return abs(x) + 2 * az.sign(x) + 3 * az.maximum(x, y) + 5 * az.minimum(x, y)

    holds(f, 0.0, -0.0, wanted=(8, 0), compiled=True)
    holds(f, -0.0, 0.0, wanted=(8, 0))


# Integers and booleans


def test_rounding_breaks_a_derivative() -> None:
    """A value that goes through an integer does not move. [A 3.1, 3.3.1]"""
    holds(lambda x: az.round(x).astype(az.i64).astype(az.f64) * x + az.floor(x) * x, 2.75, wanted=3 + 2)


def test_integers_beside_numbers_in_elements() -> None:
    """Elements of an integer and a number: only the number moves. [A, appendix A]"""

    def f(x: Any) -> Any:
        pairs = az.map(lambda v: (az.round(v).astype(az.i64), az.sin(v)), x)
        return az.sum(az.map(lambda i, v: i.astype(az.f64) * v, *pairs))

    holds(f, x4 + 0.125, wanted=np.round(x4 + 0.125) * np.cos(x4 + 0.125), compiled=True)


def test_quotients_that_are_rounded_and_remainders() -> None:
    """``x % y = x - y floor(x / y)``: the quotient is constant, and still it is the derivative by y. [beyond]"""
    holds(lambda x, y: x % y + 10.0 * (x // y), -7.5, 2.0, wanted=(1, 4))


def test_counts_and_comparisons_do_not_move() -> None:
    """A number of elements, or of steps, is an integer. [A 3.2]"""

    def f(x: Any) -> Any:
        positive = az.sum(x > 0).astype(az.f64)
        steps = az.while_loop(lambda s: s[0] < 9.0, lambda s: (s[0] * 2.0, s[1] + 1), (1.0 + x[0] ** 2, 0))[1]
        return positive * x[1] + steps.astype(az.f64) * x[2]

    holds(f, x4, wanted=[0, 3, 3, 0])


def test_a_read_adds_nothing_to_its_index() -> None:
    """Misprint: an index node "makes one contribution to its expression argument"; an index is discrete. [A 3.5.2]"""

    def f(a: Any, s: Any) -> Any:
        return a[az.round(s).astype(az.i64)] * s

    holds(f, x4, 2.25, wanted=(2.25 * e4[2], 2.0), compiled=True)


def test_the_place_of_an_extremum_does_not_move() -> None:
    """``x[argmax(x)]`` is the maximum with its derivative, and the place alone has none. [S 5.1.1]"""
    holds(lambda x: x[az.argmax(x)] + az.argmax(x).astype(az.f64) * x[0], x4, wanted=e4[2] + 2 * e4[0])


# Branches


@both
def test_the_branch_that_is_not_taken_makes_no_nan(run: Any) -> None:
    """``where(x > 0, sqrt(x), 0)`` has derivative 0 at 0: alone, in map, as cond, in both modes. [A 3.5.1]"""

    def root(x: Any) -> Any:
        return az.where(x > 0, az.sqrt(x), 0.0)

    def chosen(v: Any) -> Any:
        return az.cond(v > 0, lambda: az.sqrt(v), lambda: 0.0)

    x = np.array([0.0, 4.0, -1.0])
    for f in (root, lambda x: az.map(root, x), lambda x: az.map(chosen, x)):
        program = az.program(f)
        np.testing.assert_array_equal(run(az.vjp(program))(x, np.ones(3))[1], [0, 0.25, 0])
        np.testing.assert_array_equal(run(az.jvp(program))(x, np.ones(3))[1], [0, 0.25, 0])
    assert run(az.grad(root))(0.0) == run(az.jvp(root))(0.0, 1.0)[1] == 0


def test_a_branch_that_is_not_taken_may_hold_an_infinity() -> None:
    """``sin(x) / x`` at 0, filled in. [A 3.5.1]"""
    holds(lambda x: az.cond(x == 0, lambda: 1.0, lambda: az.sin(x) / x), 0.0, wanted=0)


def test_branches_that_use_different_variables() -> None:
    """The sweep back gives the cotangents of what either branch reads; those of the other are unchanged. [S 4.1]"""

    def f(t: Any, a: Any, b: Any, c: Any) -> Any:
        return az.cond(t > 0, lambda: a * b, lambda: b * c) + b

    holds(f, 1.0, 2.0, 3.0, 5.0, wanted=(0, 3, 3, 0), compiled=True)
    holds(f, -1.0, 2.0, 3.0, 5.0, wanted=(0, 0, 6, 3))


def test_branches_without_anything_that_moves() -> None:
    """Both constant, or one: nothing is swept there. [A 3.4.3]"""
    for x, wanted in ((1.0, 3), (-1.0, 5 + 1)):
        holds(
            lambda x: az.cond(x > 0, lambda: 3.0, lambda: 5.0) * x + az.cond(x > 0, lambda: 1.0, lambda: x),
            x,
            wanted=wanted,
        )


def test_branches_that_give_their_variables_back() -> None:
    """As they are, and exchanged. [A, appendix A: acond_1]"""

    def f(a: Any, b: Any) -> Any:
        first, second = az.cond(a > b, lambda: (a, b), lambda: (b, a))
        return first + 10.0 * second

    holds(f, 1.0, 2.0, wanted=(10, 1))
    holds(f, 2.0, 1.0, wanted=(1, 10))


def test_a_test_may_read_what_moves() -> None:
    """Reads in a test belong to discrete code and have no cotangent, but they must not be in the way. [A 3.5]"""
    holds(lambda x: az.cond((x[0] > 0) & (x[3] > 0), lambda: x[1], lambda: x[0]), x4, wanted=e4[1])


@both
@pytest.mark.parametrize("place", [3, 7])
def test_a_guarded_read_is_guarded_in_the_derivative(run: Any, place: int) -> None:
    """Where a program does not read outside of an array, neither does its derivative. [A 3.3.2]"""

    def f(x: Any, k: Any) -> Any:
        inside = az.cond(k < az.size(x), lambda: x[k] ** 2, lambda: 1.0)
        return inside + az.sum(az.map(lambda v: az.cond(k < az.size(x), lambda: v * x[k], lambda: v), x))

    wanted = (2 * x4[place] + np.sum(x4)) * e4[place] + x4[place] if place < 4 else np.ones(4)
    np.testing.assert_allclose(run(az.grad(f))(x4, place), wanted)
    np.testing.assert_allclose(run(az.jvp(f))(x4, place, e4[0], None)[1], wanted[0])


def test_arrays_from_branches_of_which_one_part_is_used() -> None:
    """A cotangent of one component; zeros, of the right shape, for the others. [A 3.4.3]"""

    def f(x: Any) -> Any:
        square, _, (last,) = az.cond(x[0] > 0, lambda: (x * x, x, (x[-1],)), lambda: (x, x * x, (x[0],)))
        return az.sum(square) * last

    wanted = 2 * x4 * x4[-1] + np.sum(x4**2) * e4[3]
    holds(f, x4, wanted=wanted, compiled=True)
    holds(f, -x4, wanted=np.sum(-x4) * e4[0] - x4[0])


def test_branches_of_different_sizes() -> None:
    """A cotangent has the size of the branch that was taken. [A, appendix A: acond_3a]"""

    def f(x: Any, short: Any) -> Any:
        return az.sum(az.cond(short, lambda: x[1:3] ** 2, lambda: x**2))

    holds(f, x4, True, wanted=2 * x4 * [0, 1, 1, 0], compiled=True)
    holds(f, x4, False, wanted=2 * x4)


def test_a_branch_inside_a_branch() -> None:
    """The inner test is run only where the outer branch is taken, in the derivative too. [A 3.5.1]"""

    def f(x: Any, k: Any) -> Any:
        def inner() -> Any:
            return az.cond(x[k] > 0, lambda: x[k] ** 2, lambda: 2.0 * x[k])

        return az.cond(k < az.size(x), inner, lambda: x[0])

    for k, wanted in ((2, 4 * e4[2]), (1, 2 * e4[1]), (9, e4[0])):
        holds(f, x4, k, wanted=wanted)


# Reads


def test_an_element_read_many_times() -> None:
    """Misprint: ``let y' = upd i y' a'`` for ``let a' = upd i y' a'``; what was there before is kept. [S 4.2]"""
    holds(lambda x: x[0] * x[0] * x[1] + x[-1] * az.sum(x), x4, wanted=_reads(x4))


def _reads(x: Any) -> Any:
    return np.array([2 * x[0] * x[1] + x[3], x[0] ** 2 + x[3], x[3], np.sum(x) + x[3]])


def test_the_same_place_gathered_many_times() -> None:
    """Cotangents of one place are added, not overwritten; a place that is not read has none. [S 5.4, A 3.4.4]"""
    places = np.array([2, 0, 2, 2])
    holds(lambda x, k: x[k] ** 2, x4, places, wanted=2 * x4[places][:, None] * e4[places], compiled=True)
    holds(lambda x, k: x[k], x4, places[:0], wanted=np.zeros((0, 4)))


def test_reads_at_places_computed_from_what_moves() -> None:
    """``sum(map(x + a[round(x)]))``: the array moves and is read in the same map. [A 3.3.2]"""

    def f(a: Any) -> Any:
        return az.sum(az.map(lambda v: v + a[az.round(v).astype(az.i64) % az.size(a)], a))

    wanted = np.ones(4)
    np.add.at(wanted, np.round(x4).astype(int) % 4, 1)
    holds(f, x4, wanted=wanted, compiled=True)


def test_reads_at_several_places_of_one_array_in_one_body() -> None:
    """Each has its own cotangent and its own place. [A 3.4.4, appendix A: aindex_generate_2]"""

    def f(x: Any) -> Any:
        return az.generate(8, lambda i: x[i // 2] + 10.0 * x[az.minimum(i % 2, 3)])

    wanted = [e4[i // 2] + 10 * e4[i % 2] for i in range(8)]
    holds(f, x4, wanted=wanted)


def test_a_gather_that_wraps_around() -> None:
    """A backpermute whose index map is not injective: its transpose adds. [A 3.4.4]"""
    wanted = [[e4[(i + j) % 4] for j in range(3)] for i in range(5)]
    holds(lambda x: az.generate((5, 3), lambda i, j: x[(i + j) % 4]), x4, wanted=wanted)


# Maps


def test_free_variables_of_a_map() -> None:
    """A captured number is summed over, a captured array accumulated; nested maps share it. [S 5.4]"""

    def f(x: Any, a: Any, s: Any) -> Any:
        return az.sum(az.map(lambda v: az.sum(az.map(lambda w: v * w * s, a)) + a[0] * v, x))

    a, s = numbers(3), 0.5
    by_x = np.full(4, s * np.sum(a) + a[0])
    by_a = np.sum(x4) * (s + np.eye(3)[0])
    holds(f, x4, a, s, wanted=(by_x, by_a, np.sum(x4) * np.sum(a)), compiled=True)


def test_an_array_that_is_mapped_over_and_captured() -> None:
    """Both ways of reading it add to one cotangent. [S 5.4]"""
    holds(lambda x: az.map(lambda v: v * x[0], x), x4, wanted=x4[0] * e4 + np.outer(x4, e4[0]))


def test_a_map_over_nothing() -> None:
    """What it captures has zeros, in their shapes. [S 5.4]"""
    wanted = [np.zeros((0, *shape)) for shape in ((0,), (), (4,))]
    holds(lambda x, s, a: az.map(lambda v: v * s * a[0], x), x4[:0], 2.0, x4, wanted=wanted)


def test_a_body_that_ignores_its_element() -> None:
    """And one of whose results nobody uses. [A, appendix A: ignore_argument]"""

    def f(x: Any, s: Any) -> Any:
        used, _ = az.map(lambda v: (s, az.sqrt(v)), x)
        return az.sum(used)

    holds(f, np.zeros(3), 2.0, wanted=(np.zeros(3), 3))


# Reductions


def rotation(angle: float) -> Any:
    return np.array([[np.cos(angle), -np.sin(angle)], [2 * np.sin(angle), np.cos(angle)]])


@pytest.mark.parametrize("n", [0, 1, 3])
def test_an_operator_that_does_not_commute(n: int) -> None:
    """``y = l a r``: what is behind an element must be combined in the order of the elements, too. [S 5.1]"""
    m = np.array([rotation(k + 0.5) for k in range(n)]).reshape(n, 2, 2)
    wanted = np.zeros((2, 2, n, 2, 2))
    for k in range(n):
        left, right = np.eye(2), np.eye(2)
        for matrix in m[:k]:
            left = left @ matrix
        for matrix in m[k + 1 :]:
            right = right @ matrix
        wanted[:, :, k] = np.einsum("ai,jb->abij", left, right)
    holds(lambda m: az.reduce(lambda a, b: a @ b, np.eye(2), m), m, wanted=wanted)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_free_variables_of_an_operator(n: int) -> None:
    """They move one application for each element: twice counted if both of ``l op a op r`` are. [S 5.1, beyond]"""
    x, s = x4[:n], 0.5
    others = [without(1 + s * x, k) for k in range(n)]
    by_s = np.dot(x, others) / s - (np.prod(1 + s * x) - 1) / s**2

    def f(x: Any, s: Any) -> Any:
        return az.reduce(lambda a, b: a + b + s[0] * a * b, 0.0, x)

    holds(f, x, np.array([s, 7.0]), wanted=(others, [by_s, 0]), compiled=n == 4)


@pytest.mark.parametrize("x", [[], [3.0], [0.0], [2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
def test_products_with_zeros(x: list[float]) -> None:
    """Misprint: with one zero, that element has the product of the others, where ``y`` is printed. [S 5.1.1]"""
    wanted = [without(x, k) for k in range(len(x))]
    holds(lambda x: az.prod(x), np.array(x), wanted=wanted)


@pytest.mark.parametrize("x", [[], [2.0], [1.0, 3.0, 1.0, 3.0], [-INF, -INF], [INF, -INF, INF]], ids=str)
def test_ties_of_extrema(x: list[float]) -> None:
    """The first that attains it and no other, though it be the neutral element. [S 5.1.1]"""
    array = np.array(x)
    unit = np.eye(len(x))
    most, least = (unit[np.argmax(array)], unit[np.argmin(array)]) if x else (np.zeros(0), np.zeros(0))
    holds(lambda x: az.stack([az.max(x), az.min(x)]), array, wanted=[most, least])


@both
def test_only_the_element_that_attains_an_extremum_is_swept(run: Any) -> None:
    """The sparse cotangent: infinite derivatives of other elements make no NaN. [S 5.1.1]"""
    f = az.program(lambda x: az.max(az.map(lambda v: az.sqrt(v), x)))
    x = np.array([0.0, 4.0, 0.0])
    np.testing.assert_array_equal(run(az.grad(f))(x), [0, 0.25, 0])
    assert run(az.jvp(f))(x, np.ones(3))[1] == 0.25


def test_several_extrema_of_one_array() -> None:
    """Their places are added to one cotangent. [S 5.1.1]"""
    wanted = 2 * e4[2] - e4[1] + 2 * x4[2] * e4[2]
    holds(lambda x: 2.0 * az.max(x) - az.min(x) + az.max(x * x), x4, wanted=wanted)


def test_extrema_with_their_places() -> None:
    """An operator on pairs of a number and an integer, by comparisons. [A 3.4.4: beyond, elements that are tuples]"""

    def larger(a: Any, b: Any) -> Any:
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return az.where(first, a[0], b[0]), az.where(first, a[1], b[1])

    def f(x: Any) -> Any:
        value, place = az.reduce(larger, (-INF, 2**62), (x, az.iota(az.size(x))))
        return value * place.astype(az.f64)

    holds(f, np.array([1.0, 3.0, 2.0, 3.0]), wanted=[0, 1, 0, 0], compiled=True)


def test_rows_without_elements_and_no_rows() -> None:
    """Sums, products, extrema and any operator of nothing. [A 3.4.4]"""

    def f(a: Any) -> Any:
        general = az.map(lambda r: az.reduce(lambda p, q: p + q + p * q, 0.0, r), a)
        return az.sum(a, 1) + az.prod(a, 1) + az.maximum(az.max(a, 1), 0.0) + general

    for shape in ((2, 0), (0, 2), (0, 0)):
        holds(f, np.zeros(shape), wanted=np.zeros((shape[0], *shape)))


def test_a_fold_without_a_neutral_element() -> None:
    """The first element has no left neighbour: its derivative is the product of those of all others. [A 3.4.4]"""

    def f(x: Any) -> Any:
        return az.fold1(lambda a, b: 0.5 * a * b, x)

    for n in (1, 2, 4):
        holds(f, x4[:n], wanted=[0.5 ** (n - 1) * without(x4[:n], k) for k in range(n)])


def test_logsumexp_of_equal_and_of_infinite_elements() -> None:
    """Its derivative does not go through the maximum that it subtracts. [A, appendix A: logsumexp1]"""
    holds(lambda x: az.logsumexp(x), np.array([1000.0, 1000.0]), wanted=[0.5, 0.5])
    holds(lambda x: az.logsumexp(x), np.array([-INF, 0.0, -INF]), wanted=[0, 1, 0])


# Histograms


BINS = np.array([2, 0, 2, 9])  # bin 1 is empty, and the last element is in none


@pytest.mark.parametrize(
    ("op", "neutral", "wanted"),
    [
        (lambda a, b: a + b, 0.0, [e4[1], 0 * e4[0], e4[0] + e4[2]]),
        (lambda a, b: a * b, 1.0, [e4[1], 0 * e4[0], x4[2] * e4[0] + x4[0] * e4[2]]),
        (lambda a, b: az.maximum(a, b), -INF, [e4[1], 0 * e4[0], e4[2]]),
        (lambda a, b: az.minimum(a, b), INF, [e4[1], 0 * e4[0], e4[0]]),
    ],
    ids=["add", "multiply", "maximum", "minimum"],
)
def test_histograms_with_empty_and_ignored_bins(op: Any, neutral: float, wanted: Any) -> None:
    """An element has its bin's cotangent; one in no bin has none. [S 5.1.2]"""
    holds(lambda x, k: az.histogram(op, neutral, 3, k, x), x4, BINS, wanted=wanted)
    holds(lambda x, k: az.histogram(op, neutral, 3, k, x), x4[:0], BINS[:0], wanted=np.zeros((3, 0)))
    holds(lambda x, k: az.histogram(op, neutral, 0, k, x), x4, BINS, wanted=np.zeros((0, 4)))


def test_histograms_with_any_operator_are_sorted_stably() -> None:
    """Affine maps by bin: the order within a bin counts, and cotangents go back to where elements stood. [S 5.1.2]"""

    def op(f: Any, g: Any) -> Any:
        return f[0] * g[0], f[1] * g[0] + g[1]

    def f(p: Any, q: Any, k: Any) -> Any:
        return az.histogram(op, (1.0, 0.0), 2, k, (p, q))[1]

    p, q, bins = x4, x4 + 1, np.array([1, 0, 1, 1])
    # bin 1 holds (q0 p2 + q2) p3 + q3, bin 0 holds q1
    by_p = [np.zeros(4), [0, 0, q[0] * p[3], q[0] * p[2] + q[2]]]
    by_q = [e4[1], [p[2] * p[3], 0, p[3], 1]]
    holds(f, p, q, bins, wanted=(by_p, by_q), compiled=True)


# Scans


DIRECTIONS = [(exclusive, reverse) for exclusive in (False, True) for reverse in (False, True)]


@pytest.mark.parametrize(("exclusive", "reverse"), DIRECTIONS)
@pytest.mark.parametrize("n", [0, 3])
def test_running_sums_in_all_directions(exclusive: bool, reverse: bool, n: int) -> None:
    """The cotangent of a running sum is the one that runs the other way. [S 5.2]"""
    wanted = np.tril(np.ones((n, n)), -1 if exclusive else 0)

    def f(x: Any) -> Any:
        return az.scan(lambda a, b: a + b, 0.0, x, exclusive=exclusive, reverse=reverse)

    holds(f, x4[:n], wanted=wanted.T if reverse else wanted)


@pytest.mark.parametrize(("exclusive", "reverse"), DIRECTIONS)
@pytest.mark.parametrize("n", [1, 4])
def test_running_products_in_all_directions(exclusive: bool, reverse: bool, n: int) -> None:
    """The recurrence begins at the last element with 1, and the first element has no left neighbour. [S 5.2]"""
    x = x4[:n][::-1] if reverse else x4[:n]
    wanted = np.zeros((n, n))
    for i in range(n):
        taken = x[: i if exclusive else i + 1]
        wanted[i, : len(taken)] = [without(taken, k) for k in range(len(taken))]

    def f(x: Any) -> Any:
        return az.scan(lambda a, b: a * b, 1.0, x, exclusive=exclusive, reverse=reverse)

    holds(f, x4[:n], wanted=wanted[::-1, ::-1] if reverse else wanted)


@pytest.mark.parametrize("n", [1, 4])
def test_scans_of_pairs_transpose_their_jacobians(n: int) -> None:
    """The recurrence of the cotangents is that of the transposed Jacobians; these are not symmetric. [S 5.2]"""

    def f(p: Any, q: Any) -> Any:
        return az.scan(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), (1.0, 0.0), (p, q))[1]

    p, q = x4[:n], x4[:n] + 1
    run, by_p, by_q = np.zeros(n + 1), np.zeros((n, n)), np.zeros((n, n))
    for i in range(n):
        run[i + 1] = run[i] * p[i] + q[i]
        for j in range(i + 1):
            by_q[i, j] = np.prod(p[j + 1 : i + 1])
            by_p[i, j] = by_q[i, j] * run[j]
    holds(f, p, q, wanted=(by_p, by_q), compiled=n == 4)


def test_free_variables_of_the_operator_of_a_scan() -> None:
    """Their share comes from every prefix, weighted by what the recurrence has gathered. [S 5.2, beyond]"""
    s = 0.5

    def f(x: Any, s: Any) -> Any:
        return az.scan(lambda a, b: a + b + s * a * b, 0.0, x)

    by_x, by_s = np.zeros((4, 4)), np.zeros(4)
    for i in range(4):
        x = x4[: i + 1]
        by_x[i, : i + 1] = [without(1 + s * x, k) for k in range(i + 1)]
        by_s[i] = np.dot(x, by_x[i, : i + 1]) / s - (np.prod(1 + s * x) - 1) / s**2
    holds(f, x4, s, wanted=(by_x, by_s), compiled=True)


def test_a_scan_of_rows() -> None:
    """A vectorised operator is one scan for each column. [S 5.2]"""
    a = np.array([[1.0, 2.0], [3.0, 0.0], [0.5, 4.0]])
    wanted = np.zeros((3, 2, 3, 2))
    for i in range(3):
        for k in range(i + 1):
            for c in range(2):
                wanted[i, c, k, c] = without(a[: i + 1, c], k)
    holds(lambda a: az.scan(lambda p, q: p * q, np.ones(2), a), a, wanted=wanted)


# Writes


def test_an_update_takes_the_cotangent_of_what_it_overwrites() -> None:
    """The value has that of its place, the old element none. [S 5.3, 6.2]"""
    keep = np.diag([1.0, 1, 0, 1])
    holds(lambda x, v: az.update(x, 2, v), x4, 3.0, wanted=(keep, e4[2]))
    holds(lambda x: az.update(x, 2, x[2] * x[0]), x4, wanted=keep + np.outer(e4[2], x4[2] * e4[0] + x4[0] * e4[2]))


def test_one_place_updated_twice() -> None:
    """The first value was overwritten and has none. [S 6.2]"""
    wanted = np.diag([1.0, 0, 1, 1]), 0 * e4[1], e4[1]
    holds(lambda x, v, w: az.update(az.update(x, 1, v), 1, w), x4, 3.0, 5.0, wanted=wanted)


def test_an_update_in_a_branch() -> None:
    """In a loop, now and then: only what was overwritten is needed. [S 6.3: there the whole array is saved]"""

    def step(i: Any, s: Any) -> Any:
        return az.cond(s[i] > 0, lambda: az.update(s, i, s[i] * s[i - 1]), lambda: s)

    _, b, c, d = x4  # b is negative, c and d are not: (a, b, c b, d c b)
    wanted = [[1, 0, 0, 0], [0, 1, 0, 0], [0, c, b, 0], [0, d * c, d * b, c * b]]
    holds(lambda x: az.fori_loop(1, az.size(x), step, x), x4, wanted=wanted, compiled=True)


def test_places_written_twice_by_a_scatter() -> None:
    """The last value wins and has all of the cotangent; the paper has no duplicates. [S 5.3, beyond]"""
    keep, v = np.diag([1.0, 0, 1, 0]), np.array([5.0, 6.0, 7.0])

    def f(x: Any, k: Any, v: Any) -> Any:
        return az.scatter(x, k, v, unique=False)

    by_v = np.zeros((4, 3))
    by_v[3, 1] = by_v[1, 2] = 1
    holds(f, x4, np.array([1, 3, 1]), v, wanted=(keep, by_v), compiled=True)


def test_scatters_of_nothing_and_outside() -> None:
    """A value that is dropped has none, and a scatter of nothing is its destination. [S 5.3]"""
    f: Any = lambda x, k, v: az.scatter(x, k, v, mode="drop")  # noqa: E731
    by_v = np.zeros((4, 3))
    by_v[2, 1] = 1
    holds(f, x4, np.array([4, 2, -1]), x4[:3], wanted=(np.diag([1.0, 1, 0, 1]), by_v), compiled=True)
    holds(f, x4, np.zeros(0, np.int64), x4[:0], wanted=(e4, np.zeros((4, 0))))


def test_a_scatter_of_an_array_into_itself() -> None:
    """Destination and values are one array; misprint: ``gather is ys`` for ``gather ys is``. [S 5.3]"""
    order = np.array([2, 0, 3, 1])
    wanted = np.zeros((4, 4))
    wanted[order, np.arange(4)] = 2
    holds(lambda x, k: az.scatter(x, k, 2.0 * x), x4, order, wanted=wanted)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("x", [[], [2.0], [1.0, 3.0, 1.0, 3.0, 1.0], [0.0, -0.0, np.nan, -INF]], ids=str)
def test_sorts_with_ties(x: list[float], descending: bool) -> None:
    """The derivative is that of the permutation that was found, which is stable. [beyond]"""
    array = np.array(x)
    order = sorted(range(len(x)), key=lambda k: (_last(x[k], descending), -x[k] if descending else x[k]))
    if np.isnan(array).any():
        order = [2, 0, 1, 3] if descending else [3, 0, 1, 2]
    wanted = np.eye(len(x))[order].reshape(len(x), len(x))
    holds(lambda x: az.sort(x, descending=descending), array, wanted=wanted, compiled=len(x) == 5 and not descending)
    holds(lambda x: x[az.argsort(x, descending=descending)] * 2.0, array, wanted=2 * wanted)


def _last(value: float, descending: bool) -> bool:
    """Whether a value comes in the second part: NaN is last, or first where the order descends."""
    return bool(np.isnan(value)) != descending


# Loops


@pytest.mark.parametrize(("lower", "upper"), [(0, 0), (0, 1), (3, 1), (2, 3), (-2, 1), (0, 4)])
def test_bounds_of_loops(lower: int, upper: int) -> None:
    """No step, one, bounds the wrong way round, and indices that do not begin at 0. [S 4.2]"""
    holds(
        lambda x, s, m, n: az.fori_loop(m, n, lambda i, t: t * s + i.astype(az.f64) * x, x),
        2.0,
        0.5,
        lower,
        upper,
        wanted=_horner(2.0, 0.5, lower, upper),
        compiled=(lower, upper) == (-2, 1),
    )


def _horner(x: float, s: float, lower: int, upper: int) -> tuple[float, float]:
    """The derivatives of the loop t = t s + i x, from t = x, by both, as polynomials in s."""
    coefficients = [1.0]
    for i in range(lower, upper):
        coefficients = [float(i), *coefficients]
    powers = s ** np.arange(len(coefficients))
    slopes = np.arange(1, len(coefficients)) * powers[:-1]
    return float(coefficients @ powers), float(x * (np.array(coefficients[1:]) @ slopes))


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_states_that_change_places_or_are_dropped(steps: int) -> None:
    """The initial state is captured by the body, too; what is dropped has no cotangent. [S 4.2]"""

    def f(x: Any, y: Any, n: Any) -> Any:
        a, b, c = az.fori_loop(0, n, lambda i, s: (s[1], s[0], x * y), (x, y, y))
        return a + 10.0 * b + 100.0 * c

    swapped = (10, 1) if steps % 2 else (1, 10)
    last = (0, 100) if steps == 0 else (100 * 3.0, 100 * 2.0)
    holds(f, 2.0, 3.0, steps, wanted=np.add(swapped, last))


def test_a_state_with_an_integer() -> None:
    """It is needed by the return sweep, and has no cotangent. [A 3.1]"""

    def step(i: Any, s: Any) -> Any:
        place, total = s
        return (place * 3 + 1) % 4, total * x_at(place)

    def x_at(place: Any) -> Any:
        return held[0][place]

    held: list[Any] = []

    def f(x: Any) -> Any:
        held[:] = [x]
        return az.fori_loop(0, 3, step, (0, 1.0))[1]

    # places 0, 1, 0
    holds(f, x4, wanted=[2 * x4[0] * x4[1], x4[0] ** 2, 0, 0])


def test_a_loop_in_a_loop_with_a_bound_that_changes() -> None:
    """The inner loop is run again, and stores its states, at each step of the return sweep. [S 4.2, 4.3]"""

    def f(x: Any, n: Any) -> Any:
        return az.fori_loop(0, n, lambda i, s: az.fori_loop(0, i, lambda j, t: t * x + 1.0, s), x)

    for n in (0, 1, 2, 4):
        polynomial = [0.0, 1.0]  # x, then six times p x + 1 for n = 4
        for _ in range(n * (n - 1) // 2):
            polynomial = [1.0, *polynomial]
        wanted = sum(k * c * 0.5 ** (k - 1) for k, c in enumerate(polynomial) if k)
        holds(f, 0.5, n, wanted=wanted, compiled=n == 4)


def test_a_loop_in_a_map_with_as_many_steps_as_the_data_say() -> None:
    """Each element stores as many states as it had steps. [S 4.3]"""
    steps = np.array([3, 0, 1, 2])
    wanted = np.diag((steps + 1) * x4**steps)

    def f(x: Any, k: Any) -> Any:
        return az.map(lambda v, n: az.fori_loop(0, n, lambda i, s: s * v, v), x, k)

    holds(f, x4, steps, wanted=wanted, compiled=True)


@pytest.mark.parametrize("checkpoint", ["sqrt", (4, 2)], ids=str)
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_segments_that_do_not_divide_the_number_of_steps(checkpoint: Any, steps: int) -> None:
    """The last segment is shorter, or there is none. [S 4.3]"""

    def f(x: Any, n: Any) -> Any:
        return az.fori_loop(0, n, lambda i, s: s * x, 1.0, checkpoint=checkpoint)

    holds(f, 0.5, steps, wanted=steps * 0.5 ** (steps - 1))


def test_a_loop_with_outputs() -> None:
    """Cotangents come from the last state and from each output; without a step there are no outputs. [beyond]"""

    def f(s: Any, x: Any) -> Any:
        last, outputs = az.scan_loop(lambda s, v: (s * v, s), s, x)
        return az.sum(outputs) + 10.0 * last

    for n in (0, 1, 3):
        x = x4[:n]
        by_s = sum(np.prod(x[:k]) for k in range(n)) + 10 * np.prod(x)
        by_x = [2 * (sum(without(x[:j], k) for j in range(k + 1, n)) + 10 * without(x, k)) for k in range(n)]
        holds(f, 2.0, x, wanted=(by_s, by_x), compiled=n == 3)


# While


def doublings(v: Any, limit: Any) -> Any:
    """v, squared and doubled until it exceeds a limit."""
    return az.while_loop(lambda s: s < limit, lambda s: 2.0 * s * s, v)


def slope(v: float, limit: float) -> tuple[float, float]:
    """The value and derivative of doublings."""
    d = 1.0
    while v < limit:
        v, d = 2 * v * v, 4 * v * d
    return v, d


@pytest.mark.parametrize("v", [0.75, 5.0, 40.0])
def test_while_without_a_bound(v: float) -> None:
    """No annotation is asked for; also with no step. The limit decides, and does not move. [S 6.2: bound or slice]"""
    holds(doublings, v, 30.0, wanted=(slope(v, 30.0)[1], 0), compiled=True)


def test_while_in_map() -> None:
    """Each element has its own number of steps. [S 6.2]"""
    x = np.array([0.75, 50.0, 3.0, 1.0])
    wanted = np.diag([slope(v, 30.0)[1] for v in x])
    holds(lambda x: az.map(lambda v: doublings(v, 30.0), x), x, wanted=wanted, compiled=True)


def test_while_in_while() -> None:
    """And a loop around both, in a map. [S 6.2, beyond]"""

    def outer(v: Any) -> Any:
        return az.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, az.sqrt(doublings(s[1], 30.0))), (0, v))[1]

    x = np.array([0.75, 2.0])
    wanted = []
    for v in x:
        total = 1.0
        for _ in range(3):
            v, d = slope(v, 30.0)
            v, total = np.sqrt(v), total * d / (2 * np.sqrt(v))
        wanted.append(total)
    holds(lambda x: az.map(outer, x), x, wanted=np.diag(wanted), compiled=True)


# Nesting


FORWARD: Any = lambda f, at: az.jvp(f, (at,), (1.0,))[1]  # noqa: E731
REVERSE: Any = lambda f, at: az.grad(f)(at)  # noqa: E731
MODES = {"forward": FORWARD, "reverse": REVERSE}


@pytest.mark.parametrize("outer", MODES)
@pytest.mark.parametrize("inner", MODES)
def test_perturbation_confusion(outer: str, inner: str) -> None:
    """``d/dx x (d/dy (x + y))`` is 1, and 2 for who takes x and y for one. [S 2.1, A 2.1.5]"""
    by, within = MODES[outer], MODES[inner]

    def classical(x: Any) -> Any:
        return x * within(lambda y: x + y, 1.0)

    def product(x: Any) -> Any:
        return x * within(lambda y: x * y * y, x)  # 2 x^3

    def mapped(x: Any) -> Any:
        return az.sum(az.map(lambda v: within(lambda y: x * y * v, x), az.full(3, x)))  # 3 x^2

    def stepped(x: Any) -> Any:
        return az.fori_loop(0, 2, lambda i, s: within(lambda y: x * y * s, s), x)  # x (x (x))

    def chosen(x: Any) -> Any:
        return az.cond(x > 0, lambda: within(lambda y: az.cond(y > 0, lambda: x * y, lambda: y), x), lambda: x)

    program = az.program(lambda x: az.stack([by(f, x) for f in (classical, product, mapped, stepped, chosen)]))
    np.testing.assert_allclose(az.evaluate(program)(3.0), [1, 54, 18, 27, 1], rtol=1e-15)


@pytest.mark.parametrize("inner", MODES)
def test_nested_derivatives_compiled(inner: str) -> None:
    """The same inside of maps and loops, compiled. [S 2.1]"""
    within = MODES[inner]

    def f(x: Any) -> Any:
        looped = az.fori_loop(0, 2, lambda i, s: within(lambda y: x[0] * y * s, s), x[0])
        return az.map(lambda v: within(lambda y: az.sin(x[0] * y) * v, v) + looped, x)

    program = az.jacobian(az.program(f), mode="reverse")
    first = np.cos(x4[0] * x4) - x4[0] * x4 * np.sin(x4[0] * x4) - 0 * x4
    # v x0 cos(x0 v) + x0^3: by v, and by x0
    wanted = np.diag(x4[0] * first)
    wanted[:, 0] += x4 * first + 3 * x4[0] ** 2
    np.testing.assert_allclose(az.compile(program)(x4), wanted, rtol=1e-13)


@pytest.mark.parametrize("outer", MODES)
def test_derivatives_of_accumulators(outer: str) -> None:
    """A gradient that scatters: a read of the cotangent for each addition, a tangent beside it. [S 5.4]"""
    k = np.array([2, 0, 2])

    def gradient(x: Any) -> Any:
        return az.grad(lambda x: az.sum(x[k] ** 3 * x[0]))(x)

    hessian = np.zeros((4, 4))
    for place in k:
        hessian[place, place] += 6 * x4[place] * x4[0]
        hessian[0, place] += 3 * x4[place] ** 2
        hessian[place, 0] += 3 * x4[place] ** 2
    program = az.jacobian(az.program(gradient), mode=outer)
    for run in (az.evaluate, az.compile):
        np.testing.assert_allclose(run(program)(x4), hessian, rtol=1e-13)


def test_a_diagonal_hessian_in_one_direction() -> None:
    """k-means: forward over reverse mode along ones. [S 7.4]"""

    @az.program
    def kmeans(points: az.Array[az.f64, "n d"], centroids: az.Array[az.f64, "k d"]) -> az.f64:
        return az.sum(az.map(lambda p: az.min(az.map(lambda c: az.sum((p - c) ** 2), centroids)), points))

    points, centroids = np.array([[0.0, 0.0], [1.0, 0.0], [9.0, 9.0]]), np.array([[0.0, 1.0], [8.0, 8.0], [99.0, 0.0]])
    gradient = az.jvp(az.grad(kmeans, argnums=1))
    for run in (az.evaluate, az.compile):
        _, diagonal = run(gradient)(points, centroids, np.zeros((3, 2)), np.ones((3, 2)))
        np.testing.assert_array_equal(diagonal, [[4, 4], [2, 2], [0, 0]])


# Shapes


SHAPES: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda a: az.reshape(a, (3, 2)),
    "ravel": lambda a: az.ravel(a),
    "transpose": lambda a: a.T,
    "reverse": lambda a: az.reverse(a),
    "rotate": lambda a: az.rotate(a, 1, 1),
    "slice": lambda a: a[::-1, 1::2],
    "replicate": lambda a: az.replicate((2, az.All, az.All), a),
    "replicate without new axes": lambda a: az.replicate((az.All, az.All), a),
    "replicate no times": lambda a: az.replicate((az.All, 0, az.All), a),
    "one place": lambda a: az.slice(a, (1, az.All)),
    "concatenate": lambda a: az.concatenate([a, a[:1], a]),
    "broadcast": lambda a: a[:, None, :] + a[None, :, :],
    "pad": lambda a: az.pad(a, 1, mode="wrap"),
    "sum": lambda a: az.sum(a, 0) + az.sum(a),
    "shorter": lambda a: az.map(lambda v, w: v + w, a[0, :2], a[1, 1:]),
    "one of a pair": lambda a: (lambda p: p["second"][1])({"first": a, "second": (a, a[0])}),
}


@pytest.mark.parametrize("shape", [(2, 3), (2, 0)], ids=str)
@pytest.mark.parametrize("f", SHAPES.values(), ids=SHAPES)
def test_moves_of_elements(f: Callable[[Any], Any], shape: tuple[int, int]) -> None:
    """Linear functions: their Jacobian is their matrix, new axes of no element included. [S 5, A 3.4.4]"""
    if shape == (2, 0) and f in (SHAPES["reshape"], SHAPES["shorter"], SHAPES["pad"]):
        shape = (2, 3)
    a = np.zeros(shape)
    run = az.evaluate(az.program(f))
    wanted = np.zeros((*np.shape(run(a)), *shape))
    for place, unit in units(a):
        wanted[(..., *place)] = run(unit)
    holds(f, a, wanted=wanted)


# What a derivative looks like, and costs


def text(program: Any) -> str:
    return az.pretty(program).split(":\n", 1)[1]


def test_a_perfect_nest_is_not_run_again() -> None:
    """Of figure 2 nothing of the forward sweep is left. [S 4.1]"""

    @az.program
    def f(c: az.Array[az.bool_, "n"], a: az.Array[az.f64, "n m"]) -> az.f64:
        return az.sum(az.map(lambda c, r: az.cond(c, lambda: r, lambda: az.map(lambda v: v * v, r)), c, a))

    shown = text(az.grad(f, argnums=1))
    assert "accumulate" not in shown and "**" not in shown and shown.count("for") <= 1
    a = numbers(2, 3)
    np.testing.assert_array_equal(
        az.evaluate(az.grad(f, argnums=1))(np.array([True, False]), a), [np.ones(3), 2 * a[1]]
    )


def test_three_maps_become_one() -> None:
    """The gradient of ``sum(x^2 (x + 1))`` is one loop, ``3 x^2 + 2 x``. [A 3.3.1]"""

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(az.map(lambda v: v * v, x) * az.map(lambda v: v + 1.0, x))

    shown = text(az.grad(f))
    assert shown.count("for") <= 1 and "accumulate" not in shown
    np.testing.assert_allclose(az.grad(f)(x4), 3 * x4**2 + 2 * x4)


def test_the_cotangents_of_a_matrix_product_are_two_matrix_products() -> None:
    """Misprint: ``bs[:, j] cs[i, :]`` for ``bs[k, :] cs[i, :]``. No accumulator is left. [S 6.1]"""

    @az.program
    def product(a: az.Array[az.f64, "m q"], b: az.Array[az.f64, "q n"]) -> az.Array[az.f64, "m n"]:
        return a @ b

    shown = text(az.vjp(product))
    assert "accumulate" not in shown and shown.count("@") == 3
    a, b, c = numbers(2, 3), numbers(3, 4), numbers(2, 4)
    _, by_a, by_b = az.evaluate(az.vjp(product))(a, b, c)
    np.testing.assert_allclose(by_a, c @ b.T)
    np.testing.assert_allclose(by_b, a.T @ c)


def test_maps_leave_no_tape() -> None:
    """What a nest of maps computed is computed again, not stored. [S 1, 4]"""

    @az.program
    def f(x: az.Array[az.f64, "n"], w: az.Array[az.f64, "m"]) -> az.f64:
        return az.sum(az.map(lambda v: az.sum(az.map(lambda u: az.sin(u * v), w)), x))

    assert "f64[n, m]" not in az.pretty(az.grad(f), style="de-bruijn")


def test_places_that_a_loop_keeps_in_range_are_not_guarded() -> None:
    """The return sweep of a write reads its cotangent where a write counted; here all of them do. [S 5.3]"""

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.f64:
        steps = az.fori_loop(1, az.size(x), lambda i, s: az.update(s, i, az.sin(s[i - 1]) * x[i]), x)
        return az.sum(az.scatter(steps, az.iota(az.size(x)), az.sin(x)))

    requirement = r"if sum\(population_count\(t\d+\)\) == n: nothing"  # of the scatter
    found = re.sub(requirement, "", text(az.grad(f)))
    assert " if " not in found and "where" not in found


def work(program: Any, n: int) -> int:
    return int(az.cost(program)(numbers(n)).work)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: az.fori_loop(0, az.size(x), lambda i, s: az.sin(s * x[i]) + x[0], 1.0),
        lambda x: az.sum(az.fori_loop(1, az.size(x), lambda i, s: az.update(s, i, az.sin(s[i - 1]) * s[i]), x)),
        lambda x: az.sum(az.generate(az.size(x), lambda i: az.sin(x[i // 2] * x[0]))),
    ],
    ids=["read in a loop", "write in a loop", "read at computed places"],
)
def test_reads_and_writes_cost_what_they_touch(f: Any) -> None:
    """Not the size of the array for each: O(n) steps stay O(n). [S 4.2, 5.3, 6.2]"""
    program = az.grad(az.program(f))
    assert work(program, 160) <= 11 * work(program, 16)
