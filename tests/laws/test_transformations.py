"""What the scheduler makes of programs, validated: its loops are run as plain loops, and its code is compared.

The loops are those for a core whose registers and caches are tiny, so that small inputs take several strips, tiles and
blocks, and what is left over of each. Run one scalar at a time (``plain_loops.py``) they show what compiled code would
hide: a read or write out of range, two parallel iterations at one place, a read of what was never written. Each
program and each derivative runs so with every transformation, and a third of them with each one off.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import plain_loops
import pytest
from agreement import magnitude, rounded
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import CASES, Case, numbers
from random_programs import PARAMETERS, argument_lists, made, program_texts
from sampling import some
from test_derivatives import COMPILED, DIFFERENTIABLE, OTHERS, SINGLE, Point, assert_close, leaves
from test_random_programs import squares

import adze as az
from adze.backends.target import Target
from adze.backends.transformations import ALL, EARLIER, Transformations, transformations_of
from adze.core.program import as_program

pytestmark = pytest.mark.unguarded

TINY = Target(
    register_bytes=16,
    registers=8,
    l1_bytes=512,
    l2_bytes=2048,
    parallel=True,
    multiply_add=True,
)
NAMES = [field.name for field in fields(Transformations) if field.default is True]


def without(name: str) -> Target:
    """The tiny target with one transformation off."""
    return replace(TINY, transformations=replace(ALL, **{name: False}))


@pytest.mark.parametrize(("earlier", "now"), EARLIER.items())
def test_switches_go_on_under_the_names_they_had(earlier: str, now: str) -> None:
    with pytest.warns(FutureWarning, match=f"schedule= calls '{earlier}' '{now}' now \\(at .*test_transformations"):
        compiled = az.compile(lambda x: x + 1, schedule={earlier: False})
    assert compiled(np.ones(2)).tolist() == [2.0, 2.0]
    assert transformations_of({now: False}) == replace(ALL, **{now: False})


def agrees(program: Any, arguments: Sequence[Any], target: Target = TINY) -> None:
    """A program's loops give what evaluate gives, to rounding."""
    whole = as_program(program)
    bound = whole.bind(arguments, {})
    instance = whole.instance_for(bound)
    largest = magnitude(instance.term, *instance.signature.convert(instance.leaves(bound)))
    rounded(plain_loops.lowered(program, target, arguments), az.evaluate(program)(*arguments), largest)


def derivative_agrees(case: Case, target: Target = TINY) -> None:
    """So do those of its reverse derivative, in a smooth point."""
    point = Point(case)
    arguments = (*point.arguments, point.cotangent)
    program = az.vjp(case.program)
    found, wanted = plain_loops.lowered(program, target, arguments), az.evaluate(program)(*arguments)
    assert_close(leaves(found), leaves(wanted), 1e-5 if case.name in SINGLE else 1e-12)


def each(cases: Sequence[Case], fast: set[str]) -> pytest.MarkDecorator:
    """The cases; those that are not fast are marked slow."""
    marks = {True: [], False: [pytest.mark.slow]}
    return pytest.mark.parametrize("case", [pytest.param(c, marks=marks[c.name in fast], id=c.name) for c in cases])


def every_third(cases: Sequence[Case], name: str) -> Sequence[Case]:
    """Those that run without a transformation; for the next one these are others."""
    return cases[NAMES.index(name) % 3 :: 3]


OWN = [case for case in DIFFERENTIABLE if case.name in OTHERS]
FAST = {"matmul", "histograms", "scan_in_map", "gather_pairs", "log_sum_exp", "heat", "updated_element"}


# Programs of the common body


@each(CASES, FAST)
def test_every_program(case: Case) -> None:
    for arguments in case.arguments:
        agrees(case.program, arguments)


@each(OWN, FAST)
def test_every_derivative(case: Case) -> None:
    derivative_agrees(case)


@pytest.mark.slow
@pytest.mark.parametrize("name", some(NAMES, 3, long=0))
def test_programs_without_one_transformation(name: str) -> None:
    """Each has a switch; ``benchmarks/run.py`` shows what it gains (S19)."""
    for case in every_third(CASES, name):
        for arguments in case.arguments:
            agrees(case.program, arguments, without(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", some(NAMES, 3, long=0))
def test_derivatives_without_one_transformation(name: str) -> None:
    for case in every_third([case for case in OWN if case.name in COMPILED], name):
        derivative_agrees(case, without(name))


# Nests of several tiles, at sizes around them

AROUND = [0, 1, 2, 3, 5, 8, 13]


@az.program
def mixture(x: az.Array[az.f64, "n d"], mu: az.Array[az.f64, "k d"], q: az.Array[az.f64, "k d d"]) -> az.f64:
    """A reduction in a reduction in a map, whose gradient is made of two products."""

    def density(p: az.Expr) -> Any:
        return az.logsumexp(az.map(lambda m, f: -0.5 * az.sum((f @ (p - m)) ** 2), mu, q))

    return az.sum(az.map(density, x))


@az.program
def nearest(points: az.Array[az.f64, "n d"], centres: az.Array[az.f64, "k d"]) -> az.f64:
    """A minimum in a map, whose gradient goes to one of several places."""

    def distance(p: az.Expr) -> Any:
        return az.min(az.map(lambda c: az.sum((p - c) ** 2), centres))

    return az.sum(az.map(distance, points))


@az.program
def stencil(x: az.Array[az.f64, "n"], w: az.Array[az.f64, "w"], steps: az.i64) -> az.f64:
    """A loop whose steps read beside themselves, out of the array, too, where there is nothing."""
    n, width = x.shape[0], w.shape[0]

    def step(_: az.Expr, y: az.Expr) -> Any:
        def at(i: az.Expr, j: az.Expr) -> Any:
            place = i + j - width // 2
            inside = (place >= 0) & (place < n)
            return w[j] * az.cond(inside, lambda: y[place], lambda: 0.25)

        return az.generate(n, lambda i: az.sin(az.sum(az.generate(width, lambda j: at(i, j)))))

    return az.sum(az.fori_loop(0, steps, step, x))


@az.program
def layers(x: az.Array[az.f64, "n d"], a: az.Array[az.f64, "d h"], b: az.Array[az.f64, "h o"]) -> az.f64:
    """Two matrix products with something in between."""
    return az.sum(az.tanh(x @ a) @ b)


def arguments_of(program: Any, n: int, d: int, k: int) -> tuple[Any, ...]:
    if program is mixture:
        return numbers(n, d), numbers(k, d), numbers(k, d, d)
    if program is nearest:
        return numbers(n, d) + 0.01 * np.arange(d), numbers(k, d)
    if program is stencil:
        return numbers(n), 0.25 * numbers(k), d
    return numbers(n, d), numbers(d, k), numbers(k, d)


@pytest.mark.slow
@pytest.mark.parametrize("program", [mixture, nearest, stencil, layers], ids=lambda program: str(program.name))
@pytest.mark.parametrize("name", some([None, *NAMES], 4, long=0))
def test_nests_at_all_sizes(program: Any, name: str | None) -> None:
    target = TINY if name is None else without(name)
    gradient = az.grad(program, argnums=(0, 1))
    for n in AROUND:
        for d, k in ((1, 1), (2, 5), (5, 2), (9, 3), (0, 2)):
            if program is nearest and k == 0:
                continue
            arguments = arguments_of(program, n, d, k)
            agrees(program, arguments, target)
            agrees(gradient, arguments, target)


@pytest.mark.parametrize("program", [mixture, nearest, stencil, layers], ids=lambda program: str(program.name))
def test_nests(program: Any) -> None:
    arguments = arguments_of(program, 7, 5, 3)
    agrees(program, arguments)
    agrees(az.grad(program, argnums=(0, 1)), arguments)


# Random programs


@pytest.mark.slow
@settings(max_examples=60)
@given(program_texts(depth=3), argument_lists(), st.sets(st.sampled_from(NAMES)))
def test_random_programs(text: str, arguments: tuple[Any, ...], off: set[str]) -> None:
    agrees(made(text), arguments, replace(TINY, transformations=replace(ALL, **dict.fromkeys(off, False))))


@pytest.mark.slow
@settings(max_examples=40)
@given(program_texts(polynomial=True, depth=3), argument_lists(), st.sets(st.sampled_from(NAMES)))
def test_gradients_of_random_programs(text: str, arguments: tuple[Any, ...], off: set[str]) -> None:
    gradient = az.grad(squares(made(text)), argnums=tuple(range(len(PARAMETERS) - 1)))
    agrees(gradient, arguments, replace(TINY, transformations=replace(ALL, **dict.fromkeys(off, False))))


@az.program
def products_of_rows(
    rows: az.Array[az.i64, "r"], v: az.Array[az.f64, "e"], column: az.Array[az.i64, "e"], y: az.Array[az.f64, "k d"]
) -> az.Array[az.f64, "r-1 k"]:
    """A matrix in compressed rows, times the transposed of y."""

    def product(i: az.Expr, j: az.Expr) -> Any:
        def term(e: az.Expr) -> Any:
            return v[rows[i] + e] * y[j, column[rows[i] + e]]

        return az.sum(az.generate(rows[i + 1] - rows[i], term))

    return az.generate((rows.shape[0] - 1, y.shape[0]), product)


@pytest.mark.rest
@pytest.mark.parametrize(("n", "k", "d"), [(0, 3, 4), (1, 1, 1), (2, 3, 40), (40, 17, 3), (90, 10, 5)])
def test_what_data_choose_is_packed_whole_where_it_is_read_often(n: int, k: int, d: int) -> None:
    random = np.random.default_rng(n)
    rows = np.concatenate([[0], np.cumsum(random.integers(0, 7, n))])
    column = random.integers(0, d, rows[-1])
    v, y = numbers(rows[-1]), numbers(k, d, seed=1)
    dense = np.zeros((n, d))
    np.add.at(dense, (np.repeat(np.arange(n), np.diff(rows)), column), v)
    np.testing.assert_allclose(az.compile(products_of_rows)(rows, v, column, y), dense @ y.T, rtol=1e-12, atol=1e-12)
    for target in (TINY, without("pack")):
        agrees(products_of_rows, [rows, v, column, y], target)
    assert "_packed" in az.compile(products_of_rows).loops


def test_an_index_into_what_is_packed_whole_is_checked() -> None:
    rows, v, y = np.arange(0, 21, 2), numbers(20), numbers(3, 4)
    column = np.arange(20) % 4
    column[7] = 4
    with pytest.raises(IndexError, match="4 is out of range"):
        az.compile(products_of_rows)(rows, v, column, y)
