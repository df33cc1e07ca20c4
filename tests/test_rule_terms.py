"""Programs whose derivatives need all terms of a rule: in both modes against differences of their values."""

from typing import Any

import numpy as np
import pytest
from programs import numbers
from richardson import along, floating

import adze as az

Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n m"]


@az.program
def rows_added(x: Matrix) -> az.Array[az.f64, "m"]:
    """A reduction of arrays that has a rule."""
    return az.reduce(lambda p, q: p + q, az.zeros(az.size(x, 1)), x * x)


@az.program
def products_of_matrices(x: az.Array[az.f64, "n d d"]) -> az.Array[az.f64, "n d d"]:
    """Elements of a size that is not known, which do not split: from the last step to the first."""
    d = az.size(x, 1)
    unit = az.generate((d, d), lambda i, j: az.where(i == j, 1.0, 0.0))
    return az.scan(lambda p, q: p @ q, unit, x)


@az.program
def affine_maps(a: az.Array[az.f64, "n 2 2"], v: az.Array[az.f64, "n 2"], s: Vector):  # type: ignore[no-untyped-def]
    """Components of several shapes in one row of numbers."""

    def compose(p: Any, q: Any) -> Any:
        return q[0] @ p[0], q[0] @ p[1] + q[1] * p[2], p[2] * q[2]

    return az.scan(compose, (np.eye(2), np.zeros(2), 1.0), (a, v, s))


@az.program
def written_in_two_axes(x: Matrix, to: az.Array[az.i64, "n m"], base: az.Array[az.f64, "k"]) -> az.Array[az.f64, "k"]:
    """The last of the writes to a place counts, in the order of both axes."""
    return az.scatter(base * base, to, x * x, unique=False)


@az.program
def shown(x: Vector) -> az.f64:
    """A probe stands in the way of tangents and cotangents."""
    return az.sum(az.inspect(az.sin(x), "sine") * x)


@az.program
def extremes_by_bin(x: Vector, bins: az.Array[az.i64, "n"]):  # type: ignore[no-untyped-def]
    """Each component of a histogram with a rule of its own."""

    def op(p: Any, q: Any) -> Any:
        return az.maximum(p[0], q[0]), az.minimum(p[1], q[1]), p[2] + q[2]

    return az.histogram(op, (-np.inf, np.inf, 0.0), 2, bins, (x, x * x, az.sin(x)))


def softmax_op(p: Any, q: Any) -> Any:
    """The largest number so far, and the sum of exponentials below it: an extremum that another component needs."""
    top = az.maximum(p[1], q[1])
    return p[0] * az.exp(p[1] - top) + q[0] * az.exp(q[1] - top), top


@az.program
def running_softmax(x: Vector):  # type: ignore[no-untyped-def]
    return az.scan(softmax_op, (0.0, -np.inf), (x * x, x))


@az.program
def softmax_by_bin(x: Vector, bins: az.Array[az.i64, "n"]):  # type: ignore[no-untyped-def]
    return az.histogram(softmax_op, (0.0, -np.inf), 2, bins, (x * x, x))


@az.program
def side_by_side(x: Vector, w: Vector):  # type: ignore[no-untyped-def]
    """Branches of which some move, and some not."""
    first, second, third = az.par(
        lambda: az.sum(az.sin(x)), lambda: (az.size(x), az.sum(x * w)), lambda: az.cos(x[0]) * x[1]
    )
    return first * third, second[1] + second[0]


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rows added": (rows_added, (numbers(3, 2),)),
    "products of matrices": (products_of_matrices, (numbers(4, 2, 2) / 2,)),
    "affine maps": (affine_maps, (numbers(4, 2, 2) / 2, numbers(4, 2, seed=1), numbers(4, seed=2))),
    "written in two axes": (
        written_in_two_axes, (numbers(2, 3), np.array([[0, 4, 1], [4, 0, 4]]), numbers(5, seed=1)),
    ),
    "extremes by bin": (extremes_by_bin, (numbers(5), np.array([0, 1, 0, 1, 1]))),
    "running softmax": (running_softmax, (numbers(5),)),
    "softmax by bin": (softmax_by_bin, (numbers(5), np.array([0, 1, 0, 1, 1]))),
    "side by side": (side_by_side, (numbers(3), numbers(3, seed=1))),
    "shown": (shown, (numbers(3),)),
}  # fmt: skip


def leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def quiet(program: Any) -> Any:
    return az.evaluate(program, show=lambda name, values: None)


@pytest.mark.parametrize("case", CASES)
def test_both_modes_against_differences(case: str) -> None:
    program, arguments = CASES[case]
    generator = np.random.default_rng(3)
    places = floating(program, arguments)
    directions = [generator.normal(size=np.shape(arguments[k])) for k in places]
    value, tangent = quiet(az.jvp(program))(*arguments, *directions)
    along(program, arguments, directions).agrees(leaves(tangent))
    cotangents = [generator.normal(size=np.shape(leaf)) for leaf in leaves(value)]
    result = quiet(az.vjp(program))(*arguments, tuple(cotangents) if isinstance(value, tuple) else cotangents[0])
    pulled = sum(np.sum(share * move) for share, move in zip(result[1:], directions, strict=True))
    moved = sum(np.sum(share * move) for share, move in zip(cotangents, leaves(tangent), strict=True))
    np.testing.assert_allclose(pulled, moved, rtol=1e-10, atol=1e-10)
    for leaf, again in zip(leaves(value), leaves(result[0]), strict=True):
        np.testing.assert_array_equal(leaf, again)


def test_a_conversion_moves_with_what_it_converts() -> None:
    @az.program
    def f(x: Vector, w: Vector) -> az.f64:
        return az.sum(x.astype(az.f32).astype(az.f64) * w)

    x, w = numbers(3), numbers(3, seed=1)
    np.testing.assert_array_equal(az.evaluate(az.grad(f))(x, w), w)
    assert az.evaluate(az.jvp(lambda x: f(x, w)))(x, np.array([1.0, 2.0, -1.0]))[1] == w[0] + 2 * w[1] - w[2]


def test_a_pullback_starts_anew_each_time() -> None:
    @az.program
    def twice(x: Vector, u: Vector, v: Vector):  # type: ignore[no-untyped-def]
        _, pull = az.vjp(lambda x: az.sin(x) * x, x)
        return pull(u)[0], pull(v)[0]

    x, u, v = numbers(3), numbers(3, seed=1), numbers(3, seed=2)
    for pulled, cotangent in zip(az.evaluate(twice)(x, u, v), (u, v), strict=True):
        np.testing.assert_allclose(pulled, cotangent * (np.cos(x) * x + np.sin(x)), rtol=1e-14)


def test_what_does_not_move_shows_no_tangent() -> None:
    @az.program
    def f(x: Vector, w: Vector) -> az.f64:
        return az.sum(az.inspect(az.sin(x), "sine") * az.inspect(w * w, "weight"))

    names: list[str] = []
    x, w = numbers(3), numbers(3, seed=1)
    az.evaluate(az.jvp(lambda x: f(x, w)), show=lambda name, values: names.append(name))(x, x)
    assert sorted(names) == ["sine", "sine tangent", "weight"]
    names.clear()
    az.evaluate(az.grad(lambda x: f(x, w)), show=lambda name, values: names.append(name))(x)
    assert sorted(names) == ["sine", "sine cotangent", "weight"]


def test_nothing_to_reduce() -> None:
    """The reduction is folded away where its size is known; what is left is constant."""

    @az.program
    def f(x: az.Array[az.f64, "0"]) -> az.f64:
        return az.reduce(lambda a, b: a + b, 0.0, x * x)

    assert az.evaluate(az.jvp(f))(np.zeros(0), np.zeros(0)) == (0.0, 0.0)
    assert az.evaluate(az.grad(f))(np.zeros(0)).shape == (0,)
