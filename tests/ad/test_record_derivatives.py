"""Derivatives by records: the structure of the parameter, with None where nothing moves."""

from typing import Any, Generic, TypeVar

import numpy as np
import pytest

import adze as az

T = TypeVar("T")
Vector = az.Array[az.f64, "n"]


@az.data
class Params:
    w: Vector
    b: az.f64
    power: az.i64


@az.data
class Point:
    x: az.f64
    y: az.f64


@az.data
class Pair(Generic[T]):
    a: T
    b: T


@az.data
class Line:
    at: az.Function[[az.f64], az.f64]
    slope: az.f64


@az.program
def loss(p: Params, x: Vector) -> az.f64:
    """(w x + b)^power, by a loop whose state is a record."""
    end = az.fori_loop(0, p.power, lambda i, s: Point(s.x * (p.w @ x + p.b), s.y), Point(1, 0))
    return end.x + end.y


W, B, X = np.array([1.0, -2.0, 0.5]), 0.75, np.array([3.0, 0.5, -1.0])
P = Params(W, B, 3)
Z = W @ X + B
BY_W, BY_B, BY_X = 3 * Z**2 * X, 3 * Z**2, 3 * Z**2 * W


def close(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    parts = ("w", "b", "power") if isinstance(expected, Params) else ("x", "y")
    for name in parts:
        ours, theirs = getattr(found, name), getattr(expected, name)
        if theirs is None:
            assert ours is None
        elif isinstance(theirs, Params | Point):
            close(ours, theirs)
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)


both = pytest.mark.parametrize("run", [az.evaluate, az.compile], ids=["evaluate", "compile"])


@both
def test_gradients(run: Any) -> None:
    close(run(az.grad(loss))(P, X), Params(BY_W, BY_B, None))
    by_p, by_x = run(az.grad(loss, argnums=("p", "x")))(P, X)
    close(by_p, Params(BY_W, BY_B, None))
    np.testing.assert_allclose(by_x, BY_X)
    value, by_p = run(az.value_and_grad(loss))(P, X)
    assert value == pytest.approx(Z**3)
    close(by_p, Params(BY_W, BY_B, None))


def test_gradients_are_those_of_a_trace() -> None:
    close(az.grad(loss, via="trace")(P, X), az.compile(az.grad(loss))(P, X))

    @az.program
    def at(line: Line, t: az.f64) -> az.f64:
        return line.at(t) * line.slope

    line = Line(lambda z: z * z, 2.0)
    for by_line in (az.grad(at, via="trace")(line, 3.0), az.evaluate(az.grad(at))(line, 3.0)):
        assert by_line.at is None and by_line.slope == 9.0


@both
def test_products(run: Any) -> None:
    tangent = Params(np.array([1.0, 0.0, 2.0]), 0.5, None)
    moved = tangent.w @ BY_W + tangent.b * BY_B
    for power in (None, 7):  # an integer does not move, whatever is said
        given = Params(tangent.w, tangent.b, power)
        value, slope = run(az.jvp(loss))(P, X, given, np.zeros(3))
        assert (value, slope) == (pytest.approx(Z**3), pytest.approx(moved))
    value, by_p, by_x = run(az.vjp(loss))(P, X, 2.0)
    close(by_p, Params(2 * BY_W, 2 * BY_B, None))
    np.testing.assert_allclose(by_x, 2 * BY_X)
    direction = tangent.w @ X + tangent.b
    close(run(az.hvp(loss))(P, X, tangent), Params(6 * Z * direction * X, 6 * Z * direction, None))


@both
def test_whole_derivatives(run: Any) -> None:
    scaled = az.program(lambda p, x: Params(p.w * p.b, p.w @ x, p.power))
    eye = np.eye(3)
    found = run(az.jacobian(scaled))(P, X)
    close(found, Params(Params(B * eye, W, None), Params(X, 0.0, None), None))
    found = run(az.hessian(loss))(P, X)
    rows = Params(6 * Z * np.outer(X, X), 6 * Z * X, None)
    close(found, Params(rows, Params(6 * Z * X, 6 * Z, None), None))


@both
def test_results_that_are_records(run: Any) -> None:
    """Tangents and cotangents of a record are records; a number of Python is a scalar of its type."""
    polar = az.program(lambda p: Point(p.x * az.cos(p.y), p.x * az.sin(p.y)))
    point = Point(2.0, np.pi / 2)
    value, tangent = run(az.jvp(polar))(point, Point(1, 0))
    close(value, Point(2 * np.cos(np.pi / 2), 2.0))
    close(tangent, Point(np.cos(np.pi / 2), 1.0))
    _, cotangent = run(az.vjp(polar))(point, Point(0, 1))
    close(cotangent, Point(1.0, 2 * np.cos(np.pi / 2)))


@both
def test_inside_of_programs(run: Any) -> None:
    """A step of gradient descent: the gradient is a record of expressions."""

    @az.program
    def step(p: Params, x: Vector) -> Params:
        by_p = az.grad(loss)(p, x)
        assert by_p.power is None
        return Params(p.w - 0.1 * by_p.w, p.b - 0.1 * by_p.b, p.power)

    close(run(step)(P, X), Params(W - 0.1 * BY_W, B - 0.1 * BY_B, 3))
    moved = az.program(lambda p, x: az.jvp(loss)(p, x, Params(x, 1, None), x)[1])
    assert run(moved)(P, X) == pytest.approx(X @ BY_W + BY_B + X @ BY_X)


@both
def test_generic_records(run: Any) -> None:
    @az.program
    def area(p: Pair[Point]) -> az.f64:
        return (p.b.x - p.a.x) * (p.b.y - p.a.y)

    by_p = run(az.grad(area))(Pair(Point(1.0, 2.0), Point(3.0, 5.0)))
    assert by_p == Pair(Point(-3.0, -2.0), Point(3.0, 2.0))


@both
def test_rules_of_functions_of_records(run: Any) -> None:
    @az.custom_vjp
    def clipped(p: Any) -> Any:
        return Point(p.x, p.y)

    @clipped.defvjp
    def _(primals: Any, cotangent: Any) -> Any:
        return (Point(az.clip(cotangent.x, -1, 1), 0.0),)

    f = az.program(lambda p: (lambda q: 5 * q.x + q.y)(clipped(p)))
    assert run(az.grad(f))(Point(1.0, 2.0)) == Point(1.0, 0.0)
    kept = az.program(lambda p: az.checkpoint(lambda q: Point(q.x**2, q.y))(p).x)
    assert run(az.grad(kept))(Point(3.0, 2.0)) == Point(6.0, 0.0)


def test_over_batches() -> None:
    points = Point(np.arange(3.0), np.array([1.0, 2.0, 3.0]))
    by_p = az.compile(az.vmap(az.grad(lambda p: p.x**2 * p.y)))(points)
    close(by_p, Point(2 * points.x * points.y, points.x**2))


WRONG: list[tuple[Any, tuple[Any, ...], str]] = [
    (az.jvp(loss), (P, X, Point(1.0, 2.0), X), r"argument 'd_p' is a Params, got Point"),
    (az.jvp(loss), (P, X, Params(X[:2], 1.0, None), X), r"n is 3 in argument 'p\.w'|'d_p\.w'"),
    (az.vjp(az.program(lambda p: Point(p.y, p.x))), (Point(1.0, 2.0), 1.0), r"'cotangent' is a Point, got float"),
    (az.grad(lambda p: p.power), (P,), "the gradient is that of one floating scalar"),
]


@pytest.mark.parametrize(("program", "arguments", "message"), WRONG, ids=[row[2][:30] for row in WRONG])
def test_wrong_tangents(program: Any, arguments: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        program(*arguments)


def test_records_without_floating_parts() -> None:
    @az.data
    class Sizes:
        rows: az.i64

    @az.program
    def f(sizes: Sizes, x: az.f64) -> az.f64:
        return x * sizes.rows

    message = r"parameter 'sizes' \(argnums 0\) is of type Sizes\(i64\); derivatives are taken with respect to floating"
    with pytest.raises(TypeError, match=message):
        az.grad(f)
