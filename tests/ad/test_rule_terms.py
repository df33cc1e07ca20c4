"""Programs whose derivatives need all terms of a rule: in both modes against differences of their values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from plain import Atom, Block, Operation, Plain, instance
from programs import numbers
from richardson import along, floating

import adze as az
from adze.core.dims import Dim

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
    """The last of the writes to a place counts: places are written to twice in a row, and in a column."""
    return az.scatter(base * base, to, x * x, unique=False)


@az.program
def few_written(
    x: az.Array[az.f64, "2 4"], to: az.Array[az.i64, "2 4"], base: az.Array[az.f64, "5"]
) -> az.Array[az.f64, "5"]:
    """The same for so few writes that they are compared with each other."""
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


def cubic(p: Any, q: Any) -> Any:
    """The product of two polynomials modulo x ** 3 - 2: each number of it moves with all numbers of both."""
    return (
        p[0] * q[0] + 2.0 * (p[1] * q[2] + p[2] * q[1]),
        p[0] * q[1] + p[1] * q[0] + 2.0 * p[2] * q[2],
        p[0] * q[2] + p[1] * q[1] + p[2] * q[0],
    )


@az.program
def products_of_polynomials(x: Vector, y: Vector, z: Vector):  # type: ignore[no-untyped-def]
    """Maps of three numbers."""
    return az.scan(cubic, (1.0, 0.0, 0.0), (x, y, z))


@az.program
def polynomials_by_bin(x: Vector, y: Vector, z: Vector, bins: az.Array[az.i64, "n"]):  # type: ignore[no-untyped-def]
    return az.histogram(cubic, (1.0, 0.0, 0.0), 2, bins, (x, y, z))


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rows added": (rows_added, (numbers(3, 2),)),
    "products of matrices": (products_of_matrices, (numbers(3, 2, 2) / 2,)),
    "affine maps": (affine_maps, (numbers(3, 2, 2) / 2, numbers(3, 2, seed=1), numbers(3, seed=2))),
    "few written": (few_written, (numbers(2, 4), np.array([[0, 4, 1, 0], [4, 0, 1, 4]]), numbers(5, seed=1))),
    "written in two axes": (
        written_in_two_axes, (numbers(2, 4), np.array([[0, 4, 1, 0], [4, 0, 1, 4]]), numbers(5, seed=1)),
    ),
    "extremes by bin": (extremes_by_bin, (numbers(5), np.array([0, 1, 0, 1, 1]))),
    "running softmax": (running_softmax, (numbers(5),)),
    "softmax by bin": (softmax_by_bin, (numbers(5), np.array([0, 1, 0, 1, 1]))),
    "products of polynomials": (products_of_polynomials, (numbers(4) / 2, numbers(4, seed=1) / 2, numbers(4, seed=2))),
    "polynomials by bin": (
        polynomials_by_bin,
        (numbers(5) / 2, numbers(5, seed=1) / 2, numbers(5, seed=2), np.array([0, 2, 1, -1, 0])),
    ),
    "side by side": (side_by_side, (numbers(3), numbers(3, seed=1))),
    "shown": (shown, (numbers(3),)),
}  # fmt: skip


def leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def quiet(program: Any) -> Any:
    return az.evaluate(program, show=lambda name, values: None)


@pytest.mark.unguarded
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


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_a_place_behind_the_last_bin_is_none(run: Any) -> None:
    """Nothing is ignored but what is outside, on both sides."""

    @az.program
    def f(x: Vector, bins: az.Array[az.i64, "n"], w: az.Array[az.f64, "2"]) -> az.f64:
        made = az.histogram(lambda p, q: (p[0] + q[0], p[1] * q[1]), (0.0, 1.0), 2, bins, (x, x))
        return az.sum(made[0] * w) + az.sum(made[1])

    x, bins = np.array([2.0, 3.0, 5.0, 7.0]), np.array([2, 0, -1, 1])
    np.testing.assert_array_equal(run(az.grad(f))(x, bins, np.array([4.0, 8.0])), [0, 5, 0, 9])


@pytest.mark.unguarded
@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_numbers_of_two_types_in_one_recurrence(run: Any) -> None:
    """The maps are in double precision, the cotangents in the types of their components."""

    @az.program
    def mixed(x: az.Array[az.f32, "n"], y: Vector):  # type: ignore[no-untyped-def]
        def op(p: Any, q: Any) -> Any:
            return p[0] * q[0], p[1] * q[0].astype(az.f64) + q[1]

        return az.scan(op, (1.0, 0.0), (x, y))

    @az.program
    def double(x: Vector, y: Vector):  # type: ignore[no-untyped-def]
        return az.scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (1.0, 0.0), (x, y))

    x, u = numbers(4), numbers(4, seed=2)
    y, v = numbers(4, seed=1) / 3, numbers(4, seed=3) / 7  # which single precision would round
    single = run(az.vjp(mixed))(x.astype(np.float32), y, (u.astype(np.float32), v))
    assert single[1].dtype == np.float32 and single[2].dtype == np.float64
    by_x, by_y = run(az.vjp(double))(x, y, (u, v))[1:]
    np.testing.assert_allclose(single[1], by_x, rtol=1e-6)
    np.testing.assert_allclose(single[2], by_y, rtol=1e-14)


class Lawful(Plain):
    """The plain interpreter; a neutral element must be neutral for all elements, on both sides."""

    def reduce(self, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block) -> Operation:
        return self._lawful(super().reduce(extent, neutrals, element, operator), extent, neutrals, element, operator)

    def scan(self, dim: Dim, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block) -> Operation:
        run = super().scan(dim, extent, neutrals, element, operator)
        return self._lawful(run, extent, neutrals, element, operator)

    def _lawful(
        self, run: Operation, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block
    ) -> Operation:
        def checking(env: Any) -> Sequence[Any]:
            units = [neutral(env) for neutral in neutrals]
            for i in range(int(extent(env))):
                values = element(env, [np.int64(i)])
                for operands in ([*units, *values], [*values, *units]):
                    for made, value in zip(operator(env, operands), values, strict=True):
                        np.testing.assert_array_equal(made, value)
            return run(env)

        return checking


@pytest.mark.unguarded
@pytest.mark.parametrize("case", ["products of polynomials", "affine maps", "polynomials by bin"])
def test_neutral_elements_of_return_sweeps_are_neutral(case: str) -> None:
    """Sequential code does not need it, since the first map is constant; parallel scans do."""
    program, arguments = CASES[case]
    cotangents = tuple([np.ones_like(leaf) for leaf in az.evaluate(program)(*arguments)])
    pull = az.vjp(program)
    results = Lawful.run(instance(pull, (*arguments, cotangents)), pull.leaves((*arguments, cotangents))).results
    expected = az.evaluate(pull)(*arguments, cotangents)
    for mine, other in zip(results[-len(expected) + 1 :], expected[1:], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_the_extremum_of_nothing_is_constant(run: Any) -> None:
    """Also where an element does not read any array."""

    @az.program
    def f(c: az.f64, n: az.i64) -> az.f64:
        return az.max(az.generate(n, lambda i: c * 3.0))

    assert run(az.grad(f))(2.0, 0) == 0.0
    assert run(az.grad(f))(2.0, 4) == 3.0


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_a_result_without_a_cotangent_gives_a_rule_zero(run: Any) -> None:
    @az.custom_vjp
    def both(x):  # type: ignore[no-untyped-def]
        return az.sin(x), x * x

    @both.defvjp
    def rule(primals, cotangents):  # type: ignore[no-untyped-def]
        (x,), (to_sine, to_square) = primals, cotangents
        return (to_sine * az.cos(x) + 10.0 * to_square,)

    @az.program
    def first(x: az.f64) -> az.f64:
        return 2.0 * both(x)[0]

    @az.program
    def second(x: az.f64) -> az.f64:
        return 2.0 * both(x)[1]

    assert run(az.grad(first))(0.5) == pytest.approx(2 * np.cos(0.5))
    assert run(az.grad(second))(0.5) == 20.0


def test_a_name_that_is_taken_is_not_given_to_a_tangent() -> None:
    @az.program
    def f(x: az.f64) -> az.f64:
        return az.inspect(az.sin(x), "v") * az.inspect(x * x, "v tangent") * az.inspect(x + 1.0, "v cotangent")

    names: list[str] = []
    az.evaluate(az.jvp(f), show=lambda name, values: names.append(name))(0.5, 1.0)
    assert sorted(names) == [
        "v", "v cotangent", "v cotangent tangent", "v tangent", "v tangent 2", "v tangent tangent"
    ]  # fmt: skip
    names.clear()
    az.evaluate(az.grad(f), show=lambda name, values: names.append(name))(0.5)
    assert sorted(names) == [
        "v", "v cotangent", "v cotangent 2", "v cotangent cotangent", "v tangent", "v tangent cotangent"
    ]  # fmt: skip
