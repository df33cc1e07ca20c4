"""What several loops compute for the same indices is stored (``backends/schedule/terms/materialisation.py``)."""

from typing import Any

import numpy as np
import pytest
from sampling import some

import adze as az
from adze.backends.schedule.terms.materialisation import materialised

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n m"]
Weights = az.Array[az.f64, "m h"]
Square = az.Array[az.f64, "n n"]


Between = az.Array[az.f64, "h h"]


@az.program
def layers(x: Matrix, w: Weights, v: Between) -> az.f64:
    return az.sum((az.tanh(x @ w) @ v) ** 2)


@az.program
def rectified(x: Matrix, w: Weights, v: Between) -> az.f64:
    """Its derivative needs the sum, though not its maximum with 0."""
    return az.sum((az.maximum(x @ w, 0.0) ** 3 @ v) ** 2)


@az.program
def deep(x: Matrix, w: Weights, v: Between) -> az.f64:
    return az.sum(az.sigmoid(az.tanh(az.tanh(x @ w) @ v) @ v))


@az.program
def square(x: Square, y: Square) -> az.f64:
    """Loops of one extent, in which three products are told apart."""
    return az.sum((az.tanh(x @ y) @ y) * az.cos(y @ x) + az.sin(az.transpose(y) @ x))


@az.program
def distances(x: Matrix, w: Weights, v: az.Array[az.f64, "h"]) -> az.f64:
    """Sums of squares, of which the derivative needs two functions, and the squared numbers themselves."""
    return az.sum(az.map(lambda row: az.sin(az.log1p(az.sum((row @ w) ** 2) + az.sum(v))), x))


@az.program
def branches(x: Matrix, w: Weights) -> az.f64:
    """What is in a branch is computed there only."""
    return az.cond(x[0, 0] > 0.0, lambda: az.sum(az.exp(x @ w)), lambda: 0.0) + az.sum(x)


@az.program
def steps(x: Matrix, w: az.Array[az.f64, "m m"]) -> az.f64:
    return az.sum(az.fori_loop(0, 3, lambda _, y: az.tanh(y @ w), az.tanh(x @ w)))


PROGRAMS = {
    "layers": (az.value_and_grad(layers, argnums=(0, 1, 2)), "nm mh hh"),
    "rectified": (az.value_and_grad(rectified, argnums=(0, 1, 2)), "nm mh hh"),
    "deep": (az.value_and_grad(deep, argnums=(0, 1, 2)), "nm mh hh"),
    "square": (az.value_and_grad(square, argnums=(0, 1)), "nn nn"),
    "distances": (az.value_and_grad(distances, argnums=(0, 1, 2)), "nm mh h"),
    "branches": (az.value_and_grad(branches, argnums=(0, 1)), "nm mh"),
    "steps": (az.value_and_grad(steps, argnums=(0, 1)), "nm mm"),
}


@pytest.mark.rest
@pytest.mark.parametrize("name", some(PROGRAMS, 7))
def test_values(name: str) -> None:
    program, shapes = PROGRAMS[name]
    compiled = [
        az.compile(program, threads=threads, schedule=s) for threads in (1, 2) for s in ({}, {"materialise": False})
    ]
    rng = np.random.default_rng(3)
    for sizes in [(5, 4, 3), (40, 33, 50), (0, 4, 3)][: 2 if name == "branches" else 3]:  # it reads an element
        size = dict(zip("nmh", sizes, strict=True))
        given = [rng.standard_normal([size[axis] for axis in shape]) / 4 for shape in shapes.split()]
        wanted = _flat(az.evaluate(program)(*given))
        for f in compiled:
            for found, value in zip(_flat(f(*given)), wanted, strict=True):
                np.testing.assert_allclose(found, value, rtol=1e-11, atol=1e-13)


def test_what_is_not_a_number_stays_so() -> None:
    x, w, v = np.array([[np.inf, 1.0], [np.nan, 2.0], [0.5, 0.25]]), np.array([[0.0, 1.0], [1.0, -1.0]]), np.eye(2)
    program = az.value_and_grad(layers, argnums=(0, 1, 2))
    for found, value in zip(_flat(az.compile(program)(x, w, v)), _flat(az.evaluate(program)(x, w, v)), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-12)


def _products(program: Any, **schedule: bool) -> int:
    """How many matrix products are run, where no sum changes its place."""
    compiled = az.compile(program, schedule={"reassociate": False, **schedule})
    return compiled.schedule.count("product over")


@pytest.mark.rest
@pytest.mark.parametrize(("program", "before", "after"), [(layers, 7, 6), (rectified, 6, 5), (deep, 11, 9)])
def test_a_product_is_computed_once(program: Any, before: int, after: int) -> None:
    gradient = az.value_and_grad(program, argnums=(0, 1, 2))
    assert _products(gradient, materialise=False) == before
    assert _products(gradient) == after


def test_a_sum_over_what_is_stored_is_computed_once() -> None:
    gradient = az.simplify(az.value_and_grad(distances, argnums=(0, 1, 2)))
    assert _text(gradient).count("** 2)") == 2
    assert _text(materialised(gradient)).count("** 2)") == 1


def test_the_widest_expression_is_stored() -> None:
    @az.program
    def biased(x: Matrix, w: Weights, b: az.Array[az.f64, "h"], y: az.Array[az.f64, "n h"]) -> az.f64:
        return az.sum((x @ w + b - y) ** 2)

    gradient = az.simplify(az.value_and_grad(biased, argnums=(0, 1, 2)))
    stored = next(line for line in _text(materialised(gradient)).splitlines() if "sum(" in line)
    assert stored.strip() == "t1 = for i < n, j < h: sum(k < m: x[i, k] * w[k, j]) + b[j] - y[i, j]"


def test_a_sum_in_more_loops_than_its_own_is_stored_by_itself() -> None:
    @az.program
    def wider(x: Matrix, w: Weights, c: Vector) -> Any:
        def shifted(f: Any) -> az.Expr:
            return az.map(lambda u: az.sum(f((x @ w) * u)), c)

        return shifted(az.sin), shifted(az.cos)

    stored = _text(materialised(az.simplify(wider))).splitlines()[1]
    assert stored.strip() == "t1 = for i < n, j < h: sum(k < m: x[i, k] * w[k, j])"


def test_a_short_sum_counts_with_the_function_of_it() -> None:
    """Ten products are less than to write and to read a number; with their hyperbolic tangent they are more."""

    @az.program
    def short(x: az.Array[az.f64, "n 10"], w: az.Array[az.f64, "10 h"], v: Between) -> az.f64:
        return az.sum((az.tanh(x @ w) @ v) ** 2)

    gradient = az.simplify(az.value_and_grad(short, argnums=(0, 1, 2)))
    assert _text(gradient).count("tanh") == 2
    assert _text(materialised(gradient)).count("tanh") == 1


def test_what_is_small_or_in_a_branch_is_left_as_it_is() -> None:
    @az.program
    def small(x: Matrix, w: Weights, c: az.Array[az.f64, "n 3"]) -> Any:
        sin, cos = (az.map(lambda row, f=f: f(az.sum(row**2)), c) for f in (az.sin, az.cos))
        return az.sum(x @ w), sin, cos

    @az.program
    def branch(x: Vector, w: Matrix) -> Any:
        def either(f: Any) -> Any:
            return az.map(lambda a: az.cond(a > 0.0, lambda: f(az.sum(az.map(lambda b: b * a, x))), lambda: a), x)

        return either(az.sin), either(az.cos), w

    for program in (small, branch):
        term = az.simplify(program)
        assert materialised(term) is term


@pytest.mark.rest
def test_what_a_checkpoint_computes_again_is_not_stored() -> None:
    @az.program
    def kept(x: Matrix, w: Weights, v: Between) -> az.f64:
        return az.sum((az.checkpoint(lambda y: az.tanh(y @ w))(x) @ v) ** 2)

    assert _products(az.value_and_grad(kept, argnums=(0, 1, 2))) == 7


def _text(term: Any) -> str:
    return az.pretty(term, simplified=False, style="loops")


def _flat(value: Any) -> list[Any]:
    return [part for each in value for part in _flat(each)] if isinstance(value, tuple) else [value]
