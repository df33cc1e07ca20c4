"""Jacobians, Hessians, products with them, and batches of directions: values, structure, work, and what is refused."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from agreement import leaves
from hypothesis import given, settings
from programs import CASES, numbers
from programs.case import sampled
from random_programs import argument_lists, made, program_texts
from richardson import floating

import adze as az

Vector, Matrix = az.Array[az.f64, "n"], az.Array[az.f64, "m n"]
MODES = ("forward", "reverse")

# Compiling takes longer: some of it is for the long run.
RUNS = [az.evaluate, pytest.param(az.compile, marks=pytest.mark.slow)]


@az.program
def layer(a: Matrix, x: Vector):  # type: ignore[no-untyped-def]
    return az.tanh(a @ x)


@az.program
def softmax(x: Vector):  # type: ignore[no-untyped-def]
    e = az.exp(x - az.max(x))
    return e / az.sum(e)


@az.program
def power(a: az.Array[az.f64, "n n"]):  # type: ignore[no-untyped-def]
    return a @ a


@az.program
def orbit(x: Vector, c: az.f64):  # type: ignore[no-untyped-def]
    """A loop with a state, sums from the left, and a while."""
    y = az.fori_loop(0, 3, lambda i, s: s * c + az.roll(s, 1) ** 2, x)
    halved = az.while_loop(lambda v: v > 1.0, lambda v: v / 2, c * c + 3.0)
    return az.cumsum(y) * halved


def differences(f: Any, x: np.ndarray[Any, Any], step: float = 1e-6) -> np.ndarray[Any, Any]:
    """The Jacobian by central differences."""
    columns = []
    for place in np.ndindex(x.shape):
        h = np.zeros_like(x)
        h[place] = step
        columns.append((np.asarray(f(x + h)) - np.asarray(f(x - h))) / (2 * step))
    shape = np.asarray(f(x)).shape
    return np.moveaxis(np.reshape(columns, (*x.shape, *shape)), range(x.ndim), range(len(shape), x.ndim + len(shape)))


# Values


@pytest.mark.unguarded
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_analytic_jacobians(run: Any, mode: str) -> None:
    a, x = numbers(3, 5) / 4, numbers(5, seed=1) / 4
    slope = 1 - np.tanh(a @ x) ** 2
    by_a, by_x = run(az.jacobian(layer, (0, 1), mode))(a, x)
    np.testing.assert_allclose(by_x, slope[:, None] * a, rtol=1e-13)
    np.testing.assert_allclose(by_a, np.einsum("i,ik,j->ikj", slope, np.eye(3), x), rtol=1e-13)
    s = np.exp(x) / np.exp(x).sum()
    np.testing.assert_allclose(run(az.jacobian(softmax, 0, mode))(x), np.diag(s) - np.outer(s, s), atol=1e-15)
    b = numbers(3, 3)
    wanted = np.einsum("ik,lj->ijkl", np.eye(3), b) + np.einsum("ik,jl->ijkl", b, np.eye(3))
    np.testing.assert_array_equal(run(az.jacobian(power, 0, mode))(b), wanted)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("mode", MODES)
def test_loops_against_differences(run: Any, mode: str) -> None:
    x, c = numbers(4) / 8, 0.75
    jacobian = az.jacobian(orbit, (0, 1), mode)
    plain = az.evaluate(orbit)
    by_x, by_c = run(jacobian)(x, c)
    np.testing.assert_allclose(by_x, differences(lambda x: plain(x, c), x), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(by_c, differences(lambda c: plain(x, float(c)), np.array(c)), rtol=1e-6, atol=1e-8)


@pytest.mark.unguarded
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("mode", MODES)
def test_sizes_and_types(run: Any, mode: str) -> None:
    """Nothing, one number, scalars, f32."""
    jacobian = run(az.jacobian(layer, 1, mode))
    for rows, columns in ((0, 3), (3, 0), (0, 0), (1, 1)):
        assert jacobian(numbers(rows, columns), numbers(columns)).shape == (rows, columns)
    square = az.program(lambda x: x * x)
    assert run(az.jacobian(square, 0, mode))(3.0) == 6
    spread = az.program(lambda x: az.full(3, x * x))
    np.testing.assert_array_equal(run(az.jacobian(spread, 0, mode))(3.0), [6, 6, 6])

    @az.program
    def narrow(x: az.Array[az.f32, "n"]):  # type: ignore[no-untyped-def]
        return x**2, az.sum(x).astype(az.f64)

    by_square, by_sum = run(az.jacobian(narrow, 0, mode))(numbers(3, dtype=np.float32))
    assert by_square.dtype == by_sum.dtype == np.float32
    np.testing.assert_array_equal(by_square, np.diag(2 * numbers(3, dtype=np.float32)))
    np.testing.assert_array_equal(by_sum, np.ones(3))
    x = numbers(3, dtype=np.float32)
    _, (by_square, by_sum) = run(az.jvp(narrow))(x, x)
    assert by_square.dtype == np.float32 and by_sum.dtype == np.float64


def test_what_is_zero_stays_zero() -> None:
    """An infinity reaches only its own column; forward mode multiplies it with no zeros."""
    a = np.array([[math.inf, 2.0], [3.0, 4.0]])

    @az.program
    def product(a: Matrix, x: Vector):  # type: ignore[no-untyped-def]
        return a @ x

    for mode in MODES:
        np.testing.assert_array_equal(az.jacobian(product, 1, mode)(a, np.ones(2)), a)


@dataclass
class Weights:
    scale: Any
    count: Any


@pytest.mark.parametrize("mode", [None, *MODES])
def test_structures(mode: str | None) -> None:
    @az.program
    def f(w, x: Vector):  # type: ignore[no-untyped-def]
        return {"y": w["a"].scale * x, "n": w["a"].count, "pair": (az.sum(x), w["k"][0] * 2.0)}

    weights = {"a": Weights(2.0, 3), "k": [0.5]}
    x = numbers(3)
    by_w, by_x = az.jacobian(f, (0, 1), mode)(weights, x)["y"]
    np.testing.assert_array_equal(by_w["a"].scale, x)
    assert by_w["a"].count is None
    np.testing.assert_array_equal(by_w["k"][0], np.zeros(3))
    np.testing.assert_array_equal(by_x, 2 * np.eye(3))
    whole = az.jacobian(f, 0, mode)(weights, x)
    assert whole["n"] is None
    assert whole["pair"][0]["a"].scale == 0 and whole["pair"][1]["k"] == [2.0]


def test_the_mode_is_chosen_by_what_it_costs() -> None:
    """Both modes are right; which was taken shows in the printed program.

    Few results do not mean reverse mode, nor few parameters forward mode.
    """

    def taken(f: Any, argnums: Any = 0) -> str:
        program = az.program(f)
        texts = {mode: az.pretty(az.jacobian(program, argnums, mode)) for mode in MODES}
        assert texts["forward"] != texts["reverse"]
        found = az.pretty(az.jacobian(program, argnums))
        return next(mode for mode in MODES if texts[mode] == found)

    def square(x: Vector):  # type: ignore[no-untyped-def]
        return az.sin(x)

    def fewer(x: Vector, k: az.Array[az.f64, "m"]):  # type: ignore[no-untyped-def]
        return az.map(lambda v: az.sum(az.sin(x * v)), k)

    def tall(c: az.Array[az.f64, "11"], x: Vector):  # type: ignore[no-untyped-def]
        return az.exp(c[0] * x) * c[10]

    def wide(x: Vector):  # type: ignore[no-untyped-def]
        return az.stack([az.sum(az.sin(x)), *[az.sum(x**k) for k in range(2, 6)]])

    def outer(x: Vector, k: az.Array[az.f64, "m"]):  # type: ignore[no-untyped-def]
        return az.map(lambda v: az.sin(x * v), k)

    def chained(x: Vector):  # type: ignore[no-untyped-def]
        return az.prod(x)

    modes = {f.__name__: taken(f) for f in (square, fewer, tall, wide, outer, chained)}
    forward, reverse = ("square", "fewer", "wide", "outer"), ("tall", "chained")
    assert modes == dict.fromkeys(forward, "forward") | dict.fromkeys(reverse, "reverse")


# The printed programs, and what they cost


def test_a_mode_for_each_parameter() -> None:
    """What each mode alone gives, and in the text what each of them leaves."""

    @az.program
    def f(a: az.Array[az.f64, "k"], x: az.Array[az.f64, "n"]):  # type: ignore[no-untyped-def]
        return az.prod(a) * az.cumsum(x), az.sum(x) * a

    given = np.array([2.0, 3.0]), np.array([1.0, 2.0, 4.0])
    forward, reverse = [az.evaluate(az.jacobian(f, (0, 1), mode))(*given) for mode in ("forward", "reverse")]
    for modes in (("forward", "reverse"), ["reverse", None]):
        found = az.evaluate(az.jacobian(f, (0, 1), modes))(*given)
        for own, first, second in zip(found, forward, reverse, strict=True):
            for k in range(2):
                np.testing.assert_allclose(own[k], first[k], rtol=1e-12)
                np.testing.assert_allclose(own[k], second[k], rtol=1e-12)
    mixed = az.jacobian(f, ("a", "x"), ("forward", "reverse"))
    alone = az.jacobian(f, ("x",), "reverse")
    assert az.cost(mixed).at(k=2, n=50).work >= az.cost(alone).at(k=2, n=50).work


def test_printed_jacobians() -> None:
    @az.program
    def product(a: Matrix, x: Vector):  # type: ignore[no-untyped-def]
        return a @ x

    @az.program
    def sines(x: Vector):  # type: ignore[no-untyped-def]
        return az.sin(x)

    for mode in MODES:
        assert az.pretty(az.jacobian(product, 1, mode)).endswith("-> f64[m, n]:\n  return a")
    assert az.pretty(az.jacobian(sines)) == (
        "def jacobian(sines)(x: f64[n]) -> f64[n, n]:\n"
        "  t1 = cos(x)\n"
        "  return for i < n, j < n: t1[i] if i == j else 0.0"
    )


@pytest.mark.unguarded
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("f", "argnums"), [(layer, 1), (softmax, 0), (power, 0)])
def test_work(f: az.Program, argnums: int, mode: str) -> None:
    """Forward mode costs c times the program for each number in the parameters, reverse for each in the results."""
    primal, jacobian = az.cost(f), az.cost(az.jacobian(f, argnums, mode))
    for n in (4, 16, 64):
        m = 2 * n
        columns, rows, arrays = {layer: (n, m, m * n + n), softmax: (n, n, n), power: (n * n, n * n, n * n)}[f]
        directions = columns if mode == "forward" else rows
        work = jacobian.at(m=m, n=n).work, primal.at(m=m, n=n).work
        assert isinstance(work[0], int) and isinstance(work[1], int)
        assert work[0] <= (directions + 1) * 4 * (work[1] + arrays)


@az.program
def two_layers(a: Matrix, b: az.Array[az.f64, "k m"], x: Vector):  # type: ignore[no-untyped-def]
    return az.tanh(b @ az.tanh(a @ x))


@az.program
def mixture(x: az.Array[az.f64, "n d"], centres: az.Array[az.f64, "k d"]):  # type: ignore[no-untyped-def]
    return az.map(lambda p: az.logsumexp(az.map(lambda c: az.sum((p - c) ** 2), centres)), x)


@az.program
def pushes_of_two(a: Matrix, b: az.Array[az.f64, "k m"], x: Vector, directions: az.Array[az.f64, "c n"]):  # type: ignore[no-untyped-def]
    return az.map(lambda v: az.jvp(lambda x: two_layers(a, b, x), (x,), (v,))[1], directions)


@pytest.mark.unguarded
def test_what_no_direction_moves_is_computed_once() -> None:
    """A direction costs less than the program, which is not run again: neither elements nor sums over them."""
    primal = az.cost(two_layers).at(n=30, m=40, k=20).work
    for mode, directions in (("forward", 30), ("reverse", 20)):
        assert az.cost(az.jacobian(two_layers, 2, mode)).at(n=30, m=40, k=20).work <= (directions + 2) * primal
    sizes = {"n": 100, "d": 3, "k": 5}
    work = az.cost(az.jacobian(mixture, 1, "forward")).at(**sizes).work
    assert work <= 5 * az.cost(mixture).at(**sizes).work  # for 15 directions
    assert az.cost(pushes_of_two).at(n=30, m=40, k=20, c=30).work <= (30 + 2) * primal
    a, b, x = numbers(3, 2) / 8, numbers(4, 3, seed=1) / 8, numbers(2, seed=2)
    inner, outer = 1 - np.tanh(a @ x) ** 2, 1 - np.tanh(b @ np.tanh(a @ x)) ** 2
    for mode in MODES:
        found = az.evaluate(az.jacobian(two_layers, 2, mode))(a, b, x)
        np.testing.assert_allclose(found, outer[:, None] * b @ (inner[:, None] * a), rtol=1e-12)
        np.testing.assert_allclose(az.evaluate(pushes_of_two)(a, b, x, np.eye(2)), found.T, rtol=1e-12)
        points, centres = numbers(5, 2) / 8, numbers(3, 2, seed=1) / 8
        found = az.evaluate(az.jacobian(mixture, 1, mode))(points, centres)
        gaps = points[:, None] - centres
        shares = np.exp((gaps**2).sum(-1))
        wanted = -2 * gaps * (shares / shares.sum(-1, keepdims=True))[..., None]
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


# Hessians


@az.program
def energy(x: Vector, y: az.Array[az.f64, "m"]) -> az.f64:
    return az.sum(x**3) * az.sum(y) + az.sum(az.outer(x, y) ** 2) + az.prod(x)


@pytest.mark.unguarded
@pytest.mark.parametrize("run", RUNS)
def test_hessians_of_several_parameters(run: Any) -> None:
    x, y = numbers(3) / 4 + 2, numbers(2, seed=1) / 4
    gradient = az.evaluate(az.grad(energy, (0, 1)))
    (xx, xy), (yx, yy) = run(az.hessian(energy, (0, 1)))(x, y)
    np.testing.assert_allclose(xx, xx.T, rtol=1e-14)
    np.testing.assert_allclose(yx, xy.T, rtol=1e-14)
    for found, wanted in (
        (xx, differences(lambda x: gradient(x, y)[0], x)),
        (xy, differences(lambda y: gradient(x, y)[0], y)),
        (yy, differences(lambda y: gradient(x, y)[1], y)),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-7)
    u, v = numbers(3, seed=3), numbers(2, seed=4)
    by_x, by_y = run(az.hvp(energy, (0, 1)))(x, y, u, v)
    np.testing.assert_allclose(by_x, xx @ u + xy @ v, rtol=1e-12)
    np.testing.assert_allclose(by_y, yx @ u + yy @ v, rtol=1e-12)
    np.testing.assert_allclose(run(az.hessian(energy, 1))(x, y), yy, rtol=1e-14)
    np.testing.assert_allclose(run(az.hvp(energy, 1))(x, y, v), yy @ v, rtol=1e-12)


@az.program
def kmeans(points: az.Array[az.f64, "n d"], centroids: az.Array[az.f64, "k d"]) -> az.f64:
    return az.sum(az.map(lambda p: az.min(az.map(lambda c: az.sum((p - c) ** 2), centroids)), points))


@pytest.mark.unguarded
@pytest.mark.parametrize("run", RUNS)
def test_the_diagonal_hessian_of_kmeans_in_one_direction(run: Any) -> None:
    points, centroids = numbers(9, 2), numbers(3, 2, seed=4)
    whole = run(az.hessian(kmeans, 1))(points, centroids).reshape(6, 6)
    np.testing.assert_array_equal(whole, np.diag(np.diag(whole)))
    diagonal = run(az.hvp(kmeans, 1))(points, centroids, np.ones((3, 2)))
    np.testing.assert_array_equal(diagonal.ravel(), np.diag(whole))
    nearest = ((points[:, None] - centroids) ** 2).sum(-1).argmin(-1)
    np.testing.assert_array_equal(diagonal, 2.0 * np.bincount(nearest, minlength=3)[:, None] * np.ones(2))


# Several directions at once


@az.program
def pushes(a: Matrix, x: Vector, directions: az.Array[az.f64, "b n"]):  # type: ignore[no-untyped-def]
    return az.map(lambda v: az.jvp(lambda x: layer(a, x), (x,), (v,))[1], directions)


@az.program
def pulls(a: Matrix, x: Vector, cotangents: az.Array[az.f64, "b m"]):  # type: ignore[no-untyped-def]
    y, pullback = az.vjp(lambda x: layer(a, x), x)
    return y, az.map(lambda v: pullback(v)[0], cotangents), pullback(y)[0], pullback(2 * y)[0]


@pytest.mark.unguarded
def test_batches_of_directions() -> None:
    a, x, u, v = numbers(3, 4) / 4, numbers(4) / 4, numbers(5, 4), numbers(5, 3)
    single = az.evaluate(az.vjp(layer, argnums=1))
    jvp = az.evaluate(az.jvp(layer))
    for run in (az.evaluate, az.compile):
        tangents = [jvp(a, x, np.zeros_like(a), direction)[1] for direction in u]
        np.testing.assert_allclose(run(pushes)(a, x, u), tangents, rtol=1e-13, atol=1e-15)
        y, each, own, twice = run(pulls)(a, x, v)
        np.testing.assert_allclose(each, [single(a, x, cotangent)[1] for cotangent in v], rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(own, single(a, x, y)[1], rtol=1e-13)
        np.testing.assert_allclose(twice, 2 * own, rtol=1e-13)
        assert run(pushes)(a, x, u[:0]).shape == (0, 3)


def test_a_batch_of_a_program_with_requirements() -> None:
    """Indices are checked in a loop with a state, and in one without; what is heavy beside it is right, too."""

    @az.program
    def pushed_along(x: Vector, places: az.Array[az.i64, "k"], directions: az.Array[az.f64, "b n"]):  # type: ignore[no-untyped-def]
        def f(x: Any) -> Any:
            walked = az.fori_loop(0, places.shape[0], lambda i, s: az.sin(s) + x[places[i]], 0.5)
            return az.map(lambda k: az.exp(x[k]) * walked, places)

        return az.map(lambda v: az.jvp(f, (x,), (v,))[1], directions)

    x, places = numbers(4) / 8, np.array([3, 0, 3])

    def plain(x: Any) -> Any:
        walked = 0.5
        for place in places:
            walked = np.sin(walked) + x[place]
        return np.exp(x[places]) * walked

    found = az.evaluate(pushed_along)(x, places, np.eye(4))
    np.testing.assert_allclose(found.T, differences(plain, x), rtol=1e-7, atol=1e-8)
    with pytest.raises(IndexError, match=r"test_jacobians\.py"):
        az.evaluate(pushed_along)(x, np.array([0, 4]), np.eye(4))


@pytest.mark.unguarded
def test_a_batch_runs_the_program_once() -> None:
    """What is iterated until it ends is not iterated again for each cotangent; b directions cost b times a few."""

    @az.program
    def many(x: Vector, c: az.f64, cotangents: az.Array[az.f64, "b n"]):  # type: ignore[no-untyped-def]
        scaled = az.program(lambda x: x * az.while_loop(lambda v: v < 1e9, lambda v: v * 1.5, az.sum(x**2) + c))
        _, pullback = az.vjp(scaled, x)
        return az.map(lambda v: pullback(v)[0], cotangents)

    text = az.pretty(many)
    assert text.count("while") == 1 and text.index("while") < text.index("for")
    a, x = numbers(6, 8) / 4, numbers(8) / 4
    primal = az.cost(layer)(a, x).work
    for count in (1, 8):
        cotangents, directions = numbers(count, 6), numbers(count, 8)
        assert az.cost(pulls)(a, x, cotangents).work <= primal + (count + 2) * 4 * primal
        assert az.cost(pushes)(a, x, directions).work <= primal + count * 4 * primal


# Verbs in verbs


@pytest.mark.unguarded
def test_jacobians_inside_maps_inside_gradients() -> None:
    @az.program
    def f(a: Matrix, xs: az.Array[az.f64, "b n"]) -> az.f64:
        return az.sum(az.map(lambda x: az.sum(az.jacobian(lambda x: az.tanh(a @ x))(x) ** 2), xs))

    a, xs = numbers(2, 3) / 4, numbers(4, 3, seed=2) / 4

    def plain(a: Any) -> float:
        slopes = 1 - np.tanh(xs @ a.T) ** 2
        return float(np.sum((slopes[:, :, None] * a) ** 2))

    assert az.evaluate(f)(a, xs) == pytest.approx(plain(a), rel=1e-13)
    for run in (az.evaluate, az.compile):
        np.testing.assert_allclose(run(az.grad(f))(a, xs), differences(plain, a), rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_second_derivatives_four_ways() -> None:
    x = numbers(3) / 4
    jacobian = az.evaluate(az.jacobian(softmax, 0, "reverse"))
    wanted = differences(jacobian, x)
    for outer in MODES:
        for inner in MODES:
            found = az.evaluate(az.jacobian(az.jacobian(softmax, 0, inner), 0, outer))(x)
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(az.hessian(softmax)(x), wanted, rtol=1e-6, atol=1e-8)


def test_requirements_and_probes_run_once(capsys: pytest.CaptureFixture[str]) -> None:
    @az.program
    def chosen(x: Vector, places: az.Array[az.i64, "k"]):  # type: ignore[no-untyped-def]
        return az.inspect(az.sum(x), "total") * x[places] ** 2

    for mode in MODES:
        jacobian = az.jacobian(chosen, 0, mode)
        assert az.pretty(jacobian).count("require") == 1
        for run in (az.evaluate, az.compile):
            with pytest.raises(IndexError, match=r"test_jacobians\.py"):
                run(jacobian)(np.ones(3), np.array([0, 3]))
        capsys.readouterr()
        found = az.evaluate(jacobian)(np.ones(3), np.array([2, 0]))
        np.testing.assert_array_equal(found, np.ones((2, 3)) + 6 * np.eye(3)[[2, 0]])
        assert capsys.readouterr().out.count("total = ") == 1


# Bad input


@az.program
def typed(x: Vector, k: az.i64, n: int = 2) -> az.f64:
    return az.sum(x) * k * n


@az.program
def paired(p, x: Vector):  # type: ignore[no-untyped-def]
    return {"a": p[0] * x, "b": p[1]}


@az.program
def higher(g: az.Function[[az.f64], az.f64], x: az.f64) -> az.f64:
    return g(x)


def inner(body: Any) -> az.Program:
    """A program that uses verbs."""
    return az.program(lambda x: body(x))


def pushed(x: Any, tangents: Any) -> Any:
    return az.jvp(paired, ((x[0], 3), x), tangents)[1]["a"]


def pulled(x: Any, cotangent: Any) -> Any:
    return az.vjp(lambda x: x * x, x)[1](cotangent)[0]


P = (2.0, 3)
ERRORS: list[tuple[str, Any, type[Exception], str]] = [
    ("out of range", lambda: az.jacobian(layer, 2), ValueError, r"jacobian\(layer\): argnums 2, but layer has 2 param"),
    ("twice", lambda: az.hessian(layer, (0, -2)), ValueError,
     r"hessian\(layer\): argnums \(0, -2\) names the parameter 'a' twice"),
    ("an unknown name", lambda: az.grad(typed, "y"), TypeError,
     r"grad\(typed\): argnums is the number or name of a parameter, .*, not 'y'; typed has x, k, n"),
    ("a float", lambda: az.jacobian(layer, 1.0), TypeError, r"jacobian\(layer\): argnums is .*, not 1\.0"),
    ("a bool", lambda: az.hvp(layer, True), TypeError, r"hvp\(layer\): argnums is .*, not True"),
    ("integer", lambda: az.jacobian(typed, 1), TypeError, r"jacobian\(typed\): parameter 'k' \(argnums 1\) is of type"),
    ("static", lambda: az.jacobian(typed, 2), TypeError, r"parameter 'n' \(argnums 2\) is a static int"),
    ("function", lambda: az.jacobian(higher, 0), TypeError, r"jacobian\(higher\): parameter 'g' \(argnums 0\) is of t"),
    ("mode", lambda: az.jacobian(layer, 0, "fwd"), ValueError, r"jacobian\(layer\): the mode is .* not 'fwd'"),
    ("no program", lambda: az.jacobian("layer"), TypeError, r"jacobian takes a program or a Python function, not 'la"),
    ("None", lambda: az.vjp(None), TypeError, r"vjp takes a program or a Python function"),
    ("an instance", lambda: az.grad(typed.at()), TypeError, r"grad takes a program, .*: write az\.grad\(typed\)\.at"),
    ("no floating result", lambda: az.jacobian(lambda x: az.argmax(x))(np.ones(2)), TypeError,
     r"jacobian\(<lambda>\): <lambda> returns i64, which has no floating part"),
    ("no floating argument", lambda: az.jacobian(lambda x: x * 1.0)(1), TypeError,
     r"jacobian\(<lambda>\): parameter 'x' has no floating part"),
    ("not a scalar", lambda: az.grad(layer)(np.ones((2, 2)), np.ones(2)), TypeError,
     r"grad\(layer\): .* layer returns f64\[m\]; az\.jacobian takes any result, az\.vjp a cotangent"),
    ("primals", lambda: az.jvp(layer, np.ones((2, 2)), np.ones(2)), TypeError,
     r"jvp\(layer\): the primals are a tuple, one for each parameter, not an array of float64 with shape \(2, 2\)"),
    ("too few tangents", lambda: az.jvp(layer, (np.ones((2, 2)), np.ones(2)), (np.ones(2),)), TypeError,
     r"jvp\(layer\) takes 2 tangent\(s\), of a, x; got 1"),
    ("too few primals", lambda: az.jvp(layer, (np.ones(2),), (np.ones(2),)), TypeError,
     r"layer takes 2 argument\(s\) \(a, x\); missing: x"),
    ("too many directions", lambda: az.hvp(energy)(np.ones(2), np.ones(2), np.ones(2), np.ones(2)), TypeError,
     r"hvp\(energy\) takes 3 argument\(s\) \(x, y, d_x\); got 4"),
    ("tree", lambda: az.vjp(paired)(P, np.ones(2), {"a": np.ones(2)}), TypeError,
     r"vjp\(paired\): argument 'cotangent' is a dictionary with the keys 'a', 'b', got a dict"),
    ("shape", lambda: az.vjp(paired)(P, np.ones(2), {"a": np.ones((2, 2)), "b": None}), TypeError,
     r"vjp\(paired\): argument \"cotangent\['a'\]\" is f64\[n\], got an array of float64 with shape \(2, 2\)"),
    ("size", lambda: az.compile(az.vjp(paired, argnums=1))(P, np.ones(2), {"a": np.ones(3), "b": None}), ValueError,
     r"vjp\(paired\): n is 2 in argument 'x' .*, but 3 in argument \"cotangent\['a'\]\""),
    ("type", lambda: az.vjp(paired)(P, np.ones(2), {"a": np.ones(2, np.float32), "b": None}), TypeError,
     r"vjp\(paired\): argument \"cotangent\['a'\]\" is f64\[n\], got an array of float32"),
    ("text", lambda: az.jvp(lambda x: x * x)(1.0, "v"), TypeError, r"jvp.*: argument 'd_x' is f64, got .* str"),
    ("any arguments", lambda: az.grad(lambda *xs: xs[0]), TypeError, r"<lambda>: the parameters .* but there is \*xs"),
    ("any keywords", lambda: az.jvp(lambda **xs: xs["a"]), TypeError, r"<lambda>: .* but there is \*\*xs"),
    ("no parameters", lambda: az.grad(lambda: 1.0), ValueError, r"grad\(<lambda>\): argnums 0, but <lambda> has 0"),
    ("below range", lambda: az.vjp(layer, argnums=-3), ValueError, r"vjp\(layer\): argnums -3, but layer has 2 param"),
    ("one of two", lambda: az.value_and_grad(layer, (0, 5)), ValueError, r"value_and_grad\(layer\): argnums 5, but"),
    ("sparse", lambda: az.sparse_jacobian(layer, 7), ValueError, r"sparse_jacobian\(layer\): argnums 7, but layer has"),
    ("an integer", lambda: az.grad(lambda x: az.argmax(x))(np.ones(2)), TypeError,
     r"grad\(<lambda>\): the gradient is that of one floating scalar, but <lambda> returns i64"),
    ("two modes for one", lambda: az.jacobian(layer, 0, ("forward", "reverse")), ValueError,
     r"jacobian\(layer\): 2 mode\(s\) for 1 parameter\(s\): argnums is a sequence with one for each"),
    ("one of two modes", lambda: az.jacobian(layer, (0, 1), ("forward", "back")), ValueError,
     r"jacobian\(layer\): the mode is 'forward' or 'reverse', not 'back'"),
    ("a Hessian of many", lambda: az.sparse_hessian(layer)(np.ones((2, 2)), np.ones(2)), TypeError,
     r"grad\(layer\): the gradient is that of one floating scalar, but layer returns f64\[m\]"),
    ("a function that moves", lambda: az.vjp(higher)(lambda x: x, 1.0, 1.0), az.Unsupported,
     r"reverse mode does not know how a function from outside moves, \(f64\) -> f64"),
    ("tree of a tangent", lambda: az.evaluate(inner(lambda x: pushed(x, (x[0], x))))(np.ones(2)), TypeError,
     r"jvp\(paired\): the tangent of 'p' has another structure than what it belongs to: that is a tuple of 2"),
    ("shape of a tangent", lambda: az.evaluate(inner(lambda x: pushed(x, ((x, None), x))))(np.ones(2)), TypeError,
     r"jvp\(paired\): the tangent of 'p' at \[0\] is f64\[.*\], but belongs to a value of type f64"),
    ("type of a tangent", lambda: az.evaluate(inner(lambda x: pushed(x, ((x[0] > 0, None), x))))(np.ones(2)), TypeError,
     r"jvp\(paired\): the tangent of 'p' at \[0\] is bool, but belongs to a value of type f64"),
    ("too many tangents", lambda: inner(lambda x: az.jvp(lambda x: x, (x,), (x, x)))(np.ones(2)), TypeError,
     r"jvp\(<lambda>\) takes 1 tangent\(s\), of x; got 2"),
    ("shape of a pullback's", lambda: az.evaluate(inner(lambda x: pulled(x, x[0])))(np.ones(2)), TypeError,
     r"vjp\(<lambda>\): the cotangent is f64, but belongs to a value of type f64\[x_0\]"),
    ("tree of a pullback's", lambda: az.evaluate(inner(lambda x: pulled(x, (x, x))))(np.ones(2)), TypeError,
     r"vjp\(<lambda>\): the cotangent is f64\[2, x_0\], but belongs to a value of type f64\[x_0\]"),
    ("size of a pullback's", lambda: az.vjp(layer, np.ones((2, 2)), np.ones(2))[1](np.ones(3)), ValueError,
     r"vjp\(layer\): m is 2 in argument 'a' .*, but 3 in argument 'cotangent'"),
    ("compiled with a wrong size", lambda: az.compile(az.hvp(energy))(np.ones(2), np.ones(2), np.ones(3)), ValueError,
     r"hvp\(energy\): n is 2 in argument 'x' .* but 3 in argument 'd_x'"),
    ("compiled with a wrong type", lambda: az.compile(az.jvp(layer))(np.ones((2, 2)), np.ones(2), 1.0, np.ones(2)),
     TypeError, r"jvp\(layer\): argument 'd_a' is f64\[m, n\], got the number 1\.0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "message"), [x[1:] for x in ERRORS], ids=[x[0] for x in ERRORS])
def test_errors(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=rf"(?s){message}.*test_jacobians\.py:\d+"):
        make()


def test_structures_of_tangents_may_be_written_in_other_ways() -> None:
    """A list for a tuple, keys in another order, a whole number, None at integer leaves."""
    value, by_p, by_x = az.vjp(paired)(P, np.ones(2), {"b": None, "a": np.array([1.0, 2.0])})
    assert by_p == (3.0, None) and value["b"] == 3
    np.testing.assert_array_equal(by_x, [2.0, 4.0])
    _, tangent = az.jvp(paired, ((2.0, 3), np.ones(2)), ([1, None], np.zeros(2)))
    np.testing.assert_array_equal(tangent["a"], np.ones(2))
    assert tangent["b"] is None
    value, gradient = az.value_and_grad(lambda w: w["a"].scale ** 2 * w["a"].count)({"a": Weights(2.0, 3)})
    assert value == 12 and gradient["a"].scale == 12 and gradient["a"].count is None


# Every program


@pytest.mark.slow
@sampled(CASES, 4, long=0)
def test_both_modes_agree_on_every_program(case: Any) -> None:
    arguments = case.arguments[0]
    results = leaves(az.evaluate(case.program)(*arguments))
    argnums = floating(case.program, arguments)
    if not argnums or not any(result.dtype.kind == "f" for result in results):
        with pytest.raises(TypeError, match=r"no floating part|floating parameters"):
            az.evaluate(az.jacobian(case.program, argnums or 0))(*arguments)
        return
    columns, rows = (az.jacobian(case.program, argnums, mode) for mode in MODES)
    wanted = leaves(az.evaluate(columns)(*arguments))
    for found in (az.evaluate(rows), az.compile(rows), az.compile(columns)):
        for one, other in zip(leaves(found(*arguments)), wanted, strict=True):
            assert one.shape == other.shape and one.dtype == other.dtype
            scale = np.abs(other[np.isfinite(other)]).max(initial=1.0)
            tolerance = 64 * float(np.finfo(other.dtype).eps) * scale
            np.testing.assert_allclose(one, other, rtol=1e-8 if other.dtype == np.float64 else 1e-4, atol=tolerance)


@pytest.mark.slow
@pytest.mark.unguarded
@settings(max_examples=100)
@given(program_texts(polynomial=True), argument_lists())
def test_all_modes_agree_on_random_programs(text: str, arguments: tuple[Any, ...]) -> None:
    program = made(text)
    argnums = floating(program, arguments)
    wanted, *others = [
        leaves(az.evaluate(az.jacobian(program, argnums, mode))(*arguments)) for mode in ("reverse", "forward", None)
    ]
    for found in others:
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12 * np.abs(other).max(initial=1.0))
