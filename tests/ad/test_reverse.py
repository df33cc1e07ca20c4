"""Reverse mode, construct by construct: nesting, kinks, zeros, accumulators, structure, types, and its errors."""

import re
from typing import Any

import numpy as np
import pytest
from plain import instance
from programs import numbers

import adze as az
from adze.core import trees
from adze.core.terms import Block
from adze.interpreters.check import check
from adze.interpreters.simplify import simplify

Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n m"]
HERE = r"test_reverse\.py:\d+"


def both(program: az.Program, *arguments: Any) -> Any:
    """What a program gives when it is evaluated, after compiled code was seen to give the same."""
    check(instance(program, arguments))
    evaluated = az.evaluate(program)(*arguments)
    leaves, shape = trees.flatten(evaluated)
    compiled, same_shape = trees.flatten(az.compile(program, threads=1)(*arguments))
    assert shape == same_shape
    single = any(np.asarray(leaf).dtype == np.float32 for leaf in trees.flatten(arguments)[0])
    for x, y in zip(leaves, compiled, strict=True):
        assert np.asarray(x).dtype == y.dtype
        np.testing.assert_allclose(y, x, rtol=1e-6 if single else 1e-14)
    return evaluated


def gradient(function: Any, *arguments: Any, **options: Any) -> Any:
    return az.evaluate(az.grad(az.program(function), **options))(*arguments)


def ops(block: Block) -> list[str]:
    """The names of all operations, at all depths."""
    return [name for x in block.bindings for name in [x.op, *[inner for block in x.blocks for inner in ops(block)]]]


# Nesting


@az.program
def confusion(x: az.f64) -> az.f64:
    return x * az.grad(lambda y: x * y)(x)


def test_what_is_captured_is_constant() -> None:
    assert both(confusion, 3.0) == 9
    assert both(az.grad(confusion), 3.0) == 6
    assert both(az.grad(az.grad(confusion)), 3.0) == 2


def test_what_is_captured_is_differentiated_by_the_outer_derivative() -> None:
    @az.program
    def f(x: az.f64, z: az.f64) -> az.f64:
        return az.grad(lambda y: az.grad(lambda u: u * u * y * x)(y) * z)(x)

    # d/dy (2 y y x) z at y = x is 4 x^2 z
    assert az.evaluate(f)(3.0, 0.5) == 18
    assert az.evaluate(az.grad(f, argnums=(0, 1)))(3.0, 0.5) == (12, 36)


def test_inside_map() -> None:
    @az.program
    def f(x: Vector, s: az.f64) -> Vector:
        return az.map(lambda v: az.grad(lambda y: az.sin(y) * s * v)(v), x)

    x, s = numbers(4), 0.5
    wanted = np.cos(x) * s * x
    np.testing.assert_allclose(az.evaluate(f)(x, s), wanted, rtol=1e-15)
    _, dx, ds = az.evaluate(az.vjp(f))(x, s, np.ones(4))
    np.testing.assert_allclose(dx, s * (np.cos(x) - x * np.sin(x)), rtol=1e-14)
    np.testing.assert_allclose(ds, np.sum(np.cos(x) * x), rtol=1e-14)


def test_inside_a_loop() -> None:
    """Newton's method, differentiated through its steps."""

    @az.program
    def root(a: az.f64) -> az.f64:
        def equation(x: Any) -> Any:
            return x * x - a

        def step(i: Any, x: Any) -> Any:
            return x - equation(x) / az.grad(equation)(x)

        return az.fori_loop(0, 6, step, 1.0)

    assert az.evaluate(root)(2.0) == pytest.approx(2**0.5, rel=1e-15)
    assert both(az.grad(root), 2.0) == pytest.approx(0.5 / 2**0.5, rel=1e-12)
    assert az.evaluate(az.grad(az.grad(root)))(2.0) == pytest.approx(-0.25 / 2**1.5, rel=1e-9)


@pytest.mark.parametrize("x", [2.0, -2.0])
def test_inside_a_branch(x: float) -> None:
    @az.program
    def f(x: az.f64, s: az.f64) -> az.f64:
        return az.cond(x > 0, lambda: az.grad(lambda y: y**3 * s)(x), lambda: s * az.grad(lambda y: y * x)(s))

    s = 0.5
    assert az.evaluate(f)(x, s) == (3 * x**2 * s if x > 0 else s * x)
    assert both(az.grad(f, argnums=(0, 1)), x, s) == ((6 * x * s, 3 * x**2) if x > 0 else (s, x))


def test_a_gradient_inside_two_loops_and_a_branch() -> None:
    @az.program
    def f(x: Vector, a: Matrix) -> az.f64:
        def row(v: Any, r: Any) -> Any:
            energy = lambda u: az.sum(az.map(lambda w: az.cond(w > 0, lambda: u * w * w, lambda: u * u * w), r))  # noqa: E731
            return az.fori_loop(0, 2, lambda i, s: s - 0.25 * az.grad(energy)(s), v)

        return az.sum(az.map(row, x, a))

    def plain(x: Any, a: Any) -> float:
        total = 0.0
        for v, r in zip(x, a, strict=True):
            for _ in range(2):
                v = v - 0.25 * sum(w * w if w > 0 else 2 * v * w for w in r)
            total += v
        return total

    x, a = numbers(3), numbers(3, 4) / 4
    assert az.evaluate(f)(x, a) == pytest.approx(plain(x, a), rel=1e-14)
    dx, da = both(az.grad(f, argnums=(0, 1)), x, a)
    step = 1e-6
    for k in range(3):
        e = np.eye(3)[k] * step
        assert dx[k] == pytest.approx((plain(x + e, a) - plain(x - e, a)) / (2 * step), rel=1e-6)
    e = np.zeros((3, 4))
    e[1, 2] = step
    assert da[1, 2] == pytest.approx((plain(x, a + e) - plain(x, a - e)) / (2 * step), rel=1e-6)


def test_a_pullback_may_be_called_more_than_once() -> None:
    @az.program
    def f(x: Vector) -> Any:
        value, pullback = az.vjp(lambda y: az.sum(y * y), x)
        return value, pullback(1.0)[0], pullback(2.0)[0]

    x = numbers(3)
    value, first, second = both(f, x)
    assert value == np.sum(x * x)
    np.testing.assert_array_equal(first, 2 * x)
    np.testing.assert_array_equal(second, 4 * x)


def test_a_pullback_may_be_called_inside_map() -> None:
    @az.program
    def jacobian(x: Vector) -> Matrix:
        _, pullback = az.vjp(lambda y: y * y[::-1], x)
        n = x.shape[0]
        return az.generate(n, lambda i: pullback(az.generate(n, lambda j: az.where(i == j, 1.0, 0.0)))[0])

    x = numbers(3)
    wanted = np.diag(x[::-1]) + np.fliplr(np.diag(x))
    wanted[1, 1] = 2 * x[1]
    np.testing.assert_array_equal(az.evaluate(jacobian)(x), wanted)


def test_requirements_of_a_differentiated_function_are_checked_once() -> None:
    @az.program
    def f(x: Vector, k: az.i64) -> az.f64:
        return az.grad(lambda y: az.sum(az.map(lambda v: v * y[k], y)))(x)[0]

    term = simplify(f.at().term)
    assert ops(term).count("require") <= 2  # 0 <= k < n, and 0 < n
    with pytest.raises(IndexError, match=f"index 7 is out of range.*{HERE}"):
        az.evaluate(f)(numbers(3), 7)
    with pytest.raises(IndexError, match=f"index 7 is out of range.*{HERE}"):
        az.evaluate(az.vjp(f))(numbers(3), 7, 1.0)


# Activity


def test_what_does_not_depend_on_the_parameter_may_be_anything() -> None:
    """A general reduction, and values whose derivative would be NaN, of inactive values."""

    @az.program
    def f(x: az.f64, a: Vector) -> az.f64:
        least = az.reduce(lambda p, q: az.where(p < q, p, q), float("inf"), a)
        state = az.fori_loop(0, 2, lambda i, s: s * az.sqrt(a[0]), 0.0)
        return x * least + az.log(a[0] + 1.0) * x + state

    a = np.array([0.0, -2.0, 3.0])
    assert both(az.grad(f), 4.0, a) == -2


def test_a_state_that_is_not_active_has_no_cotangent() -> None:
    @az.program
    def f(x: az.f64) -> az.f64:
        return az.fori_loop(0, 3, lambda i, s: {"a": s["a"] * x, "n": s["n"] + 1.0}, {"a": 1.0, "n": 0.0})["a"]

    term = az.grad(f).at().term
    back = [x for x in term.bindings if x.op in ("loop", "accumulate")][-1]
    assert len(back.blocks[0].bindings) < 12
    assert both(az.grad(f), 2.0) == 12


def test_stop_gradient() -> None:
    assert gradient(lambda x: az.stop_gradient(x) * x, 3.0) == 3
    assert gradient(lambda x: az.stop_gradient(x * x) + 0.0 * x, 3.0) == 0


def test_a_result_that_depends_on_nothing() -> None:
    assert gradient(lambda x: 2.5, 3.0) == 0
    assert gradient(lambda x: az.sum(az.ones(3)), 3.0) == 0

    @az.program
    def f(x: Vector, a: az.Array[az.f64, "k m"]) -> az.f64:
        return az.sum(x)

    dx, da = both(az.grad(f, argnums=(0, 1)), numbers(2), numbers(3, 4))
    np.testing.assert_array_equal(dx, np.ones(2))
    np.testing.assert_array_equal(da, np.zeros((3, 4)))
    _, cotangent = az.evaluate(az.vjp(f, argnums=1))(numbers(2), numbers(0, 4), 1.0)
    assert cotangent.shape == (0, 4)


# Reads


def test_gathers_with_repeated_indices() -> None:
    @az.program
    def f(x: Vector, k: az.Array[az.i64, "p"]) -> az.f64:
        return az.sum(x[k] * x[k] * az.map(lambda i: x[i], k))

    x, k = numbers(4), np.array([3, 0, 3, 3, 1])
    wanted = np.zeros(4)
    np.add.at(wanted, k, 3 * x[k] ** 2)
    np.testing.assert_array_equal(both(az.grad(f), x, k), wanted)
    np.testing.assert_array_equal(az.evaluate(az.grad(f))(x, k[:0]), np.zeros(4))


def test_reads_of_one_element_wait_for_each_other() -> None:
    @az.program
    def f(x: az.Array[az.f64, 4]) -> az.f64:
        return x[0] * x[1] + x[1] * x[2] + x[2] * x[-1] + az.sum(x)

    x = numbers(4)
    wanted = np.array([x[1], x[0] + x[2], x[1] + x[3], x[2]]) + 1
    np.testing.assert_array_equal(both(az.grad(f), x), wanted)
    assert ops(simplify(az.grad(f).at().term)).count("accumulate") == 1


def test_rows_and_their_elements() -> None:
    @az.program
    def f(a: Matrix, k: az.i64) -> az.f64:
        row = a[k]
        return az.sum(row * row) + row[0] * a[0, 0] + az.sum(a[:, 0])

    a = numbers(3, 4)
    wanted = np.zeros((3, 4))
    wanted[2] += 2 * a[2]
    wanted[2, 0] += a[0, 0]
    wanted[0, 0] += a[2, 0]
    wanted[:, 0] += 1
    np.testing.assert_array_equal(both(az.grad(f), a, 2), wanted)


# Kinks


def test_a_branch_that_is_not_taken_has_no_part() -> None:
    def root(x: Any) -> Any:
        return az.where(x > 0, az.sqrt(x), 0.0)

    @az.program
    def roots(x: Vector) -> az.f64:
        return az.sum(root(x)) + az.sum(az.map(root, x)) + az.sum(az.map(lambda v: az.grad(root)(v), x))

    x = np.array([0.0, 4.0, -1.0])
    assert gradient(root, 0.0) == 0
    np.testing.assert_array_equal(both(az.grad(roots), x), [0, 0.5 - 1 / 32, 0])

    @az.program
    def logs(x: az.f64) -> az.f64:
        return az.cond(x == 0, lambda: x, lambda: x * az.log(x))

    assert both(az.grad(logs), 0.0) == 1


def test_absolute_value_and_sign() -> None:
    for x, wanted in ((-2.0, -1), (0.0, 0), (2.0, 1)):
        assert gradient(abs, x) == wanted
        assert gradient(lambda x: az.sign(x) * x, x) == wanted


def test_ties_go_to_the_first() -> None:
    assert az.evaluate(az.grad(az.program(lambda a, b: az.minimum(a, b)), argnums=(0, 1)))(1.0, 1.0) == (1, 0)
    assert az.evaluate(az.grad(az.program(lambda a, b: az.maximum(a, b)), argnums=(0, 1)))(1.0, 1.0) == (1, 0)
    x = np.array([3.0, 3.0, 3.0])
    np.testing.assert_array_equal(gradient(lambda x: az.max(x), x), [1, 0, 0])
    np.testing.assert_array_equal(gradient(lambda x: az.min(x), x), [1, 0, 0])


@az.program
def spread(a: Matrix) -> Vector:
    return az.map(lambda row: az.max(row) - az.min(row), a)


def test_extrema_of_rows() -> None:
    a = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, -1.0, -1.0]])
    _, da = both(az.vjp(spread), a, np.array([1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(da, [[-1, 1, 0], [0, 0, 0], [4, -4, 0]])


def test_extrema_of_nothing() -> None:
    _, da = both(az.vjp(spread), np.zeros((2, 0)), np.ones(2))
    assert da.shape == (2, 0)


def test_logsumexp_has_no_place_of_the_maximum_in_its_gradient() -> None:
    @az.program
    def f(x: Vector) -> az.f64:
        return az.logsumexp(x)

    gradient = az.grad(f)
    term = simplify(gradient.at().term)
    assert "minimum" not in az.pretty(term) and "accumulate" not in ops(term)
    x = np.array([1000.0, 1000.0, 999.0])
    e = np.exp(x - 1000)
    np.testing.assert_allclose(both(gradient, x), e / e.sum(), rtol=1e-14)


# Products


@az.program
def product(x: Vector) -> az.f64:
    return az.prod(x)


@pytest.mark.unguarded
@pytest.mark.parametrize(
    "x",
    [[], [3.0], [0.0], [2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 3.0, 0.0, 2.0], [0.0] * 3, [2.0, np.inf, 3.0]],
    ids=str,
)
def test_products(x: list[float]) -> None:
    array = np.array(x)
    others = np.array([np.prod(np.delete(array, k)) for k in range(len(x))])
    np.testing.assert_array_equal(both(az.grad(product), array), others.reshape(len(x)))


def test_products_with_zeros_to_second_order() -> None:
    x, v = np.array([2.0, 0.0, 4.0, 0.0]), np.array([1.0, 2.0, 3.0, 4.0])
    hessian = np.array([[0 if i == j else np.prod(np.delete(x, [i, j])) for j in range(4)] for i in range(4)])
    _, product_with_v = az.evaluate(az.jvp(az.grad(product)))(x, v)
    np.testing.assert_array_equal(product_with_v, hessian @ v)
    _, again = az.evaluate(az.vjp(az.grad(product)))(x, v)
    np.testing.assert_array_equal(again, v @ hessian)


def test_a_product_of_what_is_expensive_computes_it_a_bounded_number_of_times() -> None:
    @az.program
    def f(x: Vector) -> az.f64:
        return az.prod(az.map(lambda v: az.exp(v), x))

    names = [x.static[0].name for x in _operations(simplify(az.grad(f).at().term)) if x.op == "primitive"]
    assert names.count("exp") <= 2


def _operations(block: Block) -> list[Any]:
    return [y for x in block.bindings for y in [x, *[z for inner in x.blocks for z in _operations(inner)]]]


# Reductions of several values


def test_a_reduction_of_several_values_at_once() -> None:
    @az.program
    def f(x: Vector, y: Vector) -> Any:
        def combine(p: Any, q: Any) -> Any:
            return {"sum": p["sum"] + q["sum"], "max": az.maximum(p["max"], q["max"]), "all": p["all"] & q["all"]}

        neutral = {"sum": 0.0, "max": -float("inf"), "all": True}
        return az.reduce(combine, neutral, {"sum": x * y, "max": x, "all": x > 0})

    x, y = np.array([1.0, 3.0, -2.0]), numbers(3)
    _, dx, dy = both(az.vjp(f), x, y, {"sum": 2.0, "max": 5.0, "all": None})
    np.testing.assert_array_equal(dx, 2 * y + [0, 5, 0])
    np.testing.assert_array_equal(dy, 2 * x)


def test_a_general_operator() -> None:
    """The product of all ``1 + x`` less one, by its own operator; also where an element is -1."""

    @az.program
    def f(x: Vector) -> az.f64:
        return 2.0 * az.reduce(lambda p, q: p + q + p * q, 0.0, x)

    for x in (numbers(5), np.array([1.0, -1.0, 3.0]), np.array([-1.0, 2.0, -1.0]), numbers(1), numbers(0)):
        others = [2.0 * np.prod(1 + np.delete(x, i)) for i in range(len(x))]
        np.testing.assert_array_equal(az.evaluate(az.grad(f))(x), others)


def test_free_variables_of_operators() -> None:
    """What an operator captures has its cotangent from every place where it is applied."""

    @az.program
    def f(x: Vector, s: az.f64) -> Any:
        def op(p: Any, q: Any) -> Any:
            return p + q + s * p * q

        total, running = az.reduce(op, 0.0, x), az.scan(op, 0.0, x)
        return total + az.sum(running) + az.sum(az.histogram(op, 0.0, 2, az.iota(az.size(x)) % 2, x))

    x, s, h = numbers(5) / 4, 0.75, 1e-6
    _, by_s = az.evaluate(az.grad(f, argnums=(0, 1)))(x, s)
    ahead, behind = az.evaluate(f)(x, s + h), az.evaluate(f)(x, s - h)
    assert by_s == pytest.approx((ahead - behind) / (2 * h), rel=1e-7)


# Empty arrays


@az.program
def everything(x: Vector, a: Matrix) -> az.f64:
    smooth = az.map(lambda row: az.sum(row * row) + az.logsumexp(row), a)
    return az.sum(x) + az.sum(smooth) + az.prod(x) + az.fori_loop(0, x.shape[0], lambda i, s: s * x[i], 1.0)


@pytest.mark.unguarded
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (1, 1)])
def test_empty_and_single(shape: tuple[int, int]) -> None:
    x, a = numbers(shape[0]), numbers(*shape)
    dx, da = both(az.grad(everything, argnums=(0, 1)), x, a)
    np.testing.assert_array_equal(dx, np.full(shape[0], 3.0))
    np.testing.assert_allclose(da, 2 * a + 1)


# Loops


@pytest.mark.unguarded
def test_a_loop_with_structured_state() -> None:
    """Leapfrog steps: an array, a scalar, an integer and a bool."""

    @az.program
    def f(x: Vector, v: Vector, h: az.f64) -> Any:
        def step(i: Any, s: Any) -> Any:
            v = s["v"] - h * s["x"]
            return {"x": s["x"] + h * v, "v": v, "t": s["t"] + h, "i": s["i"] + i, "odd": ~s["odd"]}

        start = {"x": x, "v": v, "t": 0.0, "i": 0, "odd": False}
        return az.fori_loop(0, 3, step, start)

    x, v, h = numbers(2), numbers(2, seed=1), 0.5
    a = np.array([[1 - h * h, h], [-h, 1]])
    m = np.linalg.matrix_power(a, 3)
    cotangent = {"x": np.array([1.0, 2.0]), "v": np.array([-1.0, 0.5]), "t": 2.0, "i": None, "odd": None}
    result, dx, dv, dh = both(az.vjp(f), x, v, h, cotangent)
    assert result["i"] == 3 and result["odd"]
    np.testing.assert_array_equal(dx, m[0, 0] * cotangent["x"] + m[1, 0] * cotangent["v"])
    np.testing.assert_array_equal(dv, m[0, 1] * cotangent["x"] + m[1, 1] * cotangent["v"])
    da = np.array([[-2 * h, 1], [-1, 0]])
    dm = da @ a @ a + a @ da @ a + a @ a @ da
    moved = dm @ np.array([x, v])
    assert dh == np.sum(moved[0] * cotangent["x"]) + np.sum(moved[1] * cotangent["v"]) + 6


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_loop_with_a_number_of_steps_from_the_call(steps: int) -> None:
    @az.program
    def f(x: az.f64, n: az.i64) -> az.f64:
        return az.fori_loop(0, n, lambda i, s: s * x, x)

    assert both(az.grad(f), 2.0, steps) == (steps + 1) * 2.0**steps


@pytest.mark.unguarded
def test_loops_in_loops() -> None:
    @az.program
    def f(a: Matrix) -> az.f64:
        return az.fori_loop(
            0, a.shape[0], lambda i, s: az.fori_loop(0, a.shape[1], lambda j, t: t * a[i, j] + s, s), 1.0
        )

    a = numbers(2, 3) / 2

    def plain(a: Any) -> float:
        s = 1.0
        for row in a:
            t = s
            for v in row:
                t = t * v + s
            s = t
        return s

    da = both(az.grad(f), a)
    for place in np.ndindex(2, 3):
        e = np.zeros((2, 3))
        e[place] = 1e-6
        assert da[place] == pytest.approx((plain(a + e) - plain(a - e)) / 2e-6, rel=1e-7, abs=1e-7)


# Parameters and structure


def test_integer_and_bool_parameters() -> None:
    @az.program
    def f(x: az.f64, i: az.i64, b: az.bool_, k: az.Array[az.i32, "p"]) -> Any:
        return az.where(b, x * i, x), i * 2, az.sum(k)

    result, cotangent = both(az.vjp(f), 2.0, 3, True, np.array([1, 2], np.int32), (5.0, None, None))
    assert result == (6, 6, 3) and cotangent == 15
    result, tangent = both(az.jvp(f), 2.0, 3, True, np.array([1, 2], np.int32), 5.0)
    assert result == (6, 6, 3) and tangent == (15, None, None)


def test_structures_without_annotation() -> None:
    @az.program
    def f(p: Any, q: Any) -> Any:
        return p["w"] * p["b"][0] + az.sum(q[0]) * q[1] + p["n"]

    p, q = {"w": 2.0, "b": (3.0, 4.0), "n": 5}, (np.array([1.0, 2.0]), 0.5)
    dp, dq = both(az.grad(f, argnums=(0, 1)), p, q)
    assert dp == {"w": 3, "b": (2, 0), "n": None}
    np.testing.assert_array_equal(dq[0], [0.5, 0.5])
    assert dq[1] == 3
    value, gradient = az.evaluate(az.value_and_grad(f))(p, q)
    assert value == 12.5 and gradient == dp


def test_integer_parameters_without_annotation() -> None:
    f = az.program(lambda x, i: x * i)
    result, *cotangents = az.evaluate(az.vjp(f))(2.0, 3, 1.0)
    assert result == 6 and cotangents == [3]
    result, tangent = az.evaluate(az.jvp(f))(2.0, 3, 1.0, None)
    assert (result, tangent) == (6, 3)


def test_argnums() -> None:
    f = az.program(lambda a, b, c: a * b * c)
    assert gradient(f.function, 2.0, 3.0, 5.0, argnums=1) == 10
    assert gradient(f.function, 2.0, 3.0, 5.0, argnums=-1) == 6
    assert gradient(f.function, 2.0, 3.0, 5.0, argnums=(2, 0)) == (6, 15)
    assert gradient(f.function, 2.0, 3.0, 5.0, argnums=[1]) == (10,)
    assert gradient(f.function, 2.0, 3.0, 5.0, argnums=(-1, 0, 1)) == (6, 15, 10)
    assert gradient(f.function, 2.0, 3.0, 5.0, argnums=()) == ()
    assert gradient(f.function, 2.0, 3.0, 5.0, argnums=np.int64(1)) == 10
    assert az.evaluate(az.vjp(f, argnums=1))(2.0, 3.0, 5.0, 1.0) == (30, 10)


def test_static_parameters_and_defaults() -> None:
    @az.program
    def f(x: az.f64, steps: int, scale: float = 2.0) -> az.f64:
        for _ in range(steps):
            x = x * scale
        return x

    assert az.evaluate(az.grad(f))(3.0, 3) == 8
    assert az.evaluate(az.grad(f))(3.0, 2, scale=0.5) == 0.25
    assert az.evaluate(az.vjp(f))(3.0, 1, 2.0, 10.0) == (6, 20)
    assert az.evaluate(az.jvp(f))(3.0, 1, 2.0, 10.0) == (6, 20)
    with pytest.raises(TypeError, match=rf"grad\(f\): parameter 'steps' \(argnums 1\) is a static int.*{HERE}"):
        az.grad(f, argnums=1)


def test_types_are_kept() -> None:
    @az.program
    def f(x: az.Array[az.f32, "n"], y: az.f64) -> az.f64:
        return az.sum(az.exp(x) * x) * y + az.max(x).astype(az.f64)

    x = numbers(4, dtype=np.float32)
    dx, dy = both(az.grad(f, argnums=(0, 1)), x, 0.5)
    assert dx.dtype == np.float32 and dy.dtype == np.float64
    exponentials = [x for x in _operations(az.grad(f).at().term) if x.op == "primitive" and x.static[0].name == "exp"]
    assert {x.types for x in exponentials} == {(az.f32,)}


def test_as_in_jax() -> None:
    f = az.program(lambda x, y: x * y)
    result, pullback = az.vjp(f, 2.0, 3.0)
    assert result == 6 and pullback(1.0) == (3, 2) and pullback(2.0) == (6, 4)
    assert az.jvp(f, (2.0, 3.0), (1.0, 0.0)) == (6, 3)


def test_two_cotangents_in_one_signature() -> None:
    """vjp of vjp and jvp of jvp have parameters of different names."""
    f = az.program(lambda x: x * x * x)
    assert [p.name for p in az.vjp(az.vjp(f)).parameters] == ["x", "cotangent", "cotangent2"]
    assert [p.name for p in az.jvp(az.jvp(f)).parameters] == ["x", "d_x", "d_x2", "d_d_x"]
    assert az.evaluate(az.jvp(az.jvp(f)))(2.0, 1.0, 1.0, 0.0) == ((8, 12), (12, 12))


# Errors


@az.program
def quadratic(x: Vector, k: az.i64) -> az.f64:
    return az.sum(x * x) * k


@az.program
def vector(x: Vector) -> Vector:
    return 2 * x


@az.program
def pair(x: Vector) -> Any:
    return 2 * x, az.sum(x)


@az.program
def counted(x: Vector) -> az.i64:
    return az.sum(x > 0)


ERRORS: list[tuple[str, Any, type[Exception], str]] = [
    ("integer parameter", lambda: az.grad(quadratic, argnums=1), TypeError,
     r"grad\(quadratic\): parameter 'k' \(argnums 1\) is of type i64; derivatives are taken with respect to floating"),
    ("no such parameter", lambda: az.grad(quadratic, argnums=2), ValueError,
     r"grad\(quadratic\): argnums 2, but quadratic has 2 parameters"),
    ("negative", lambda: az.value_and_grad(quadratic, argnums=(0, -3)), ValueError,
     r"value_and_grad\(quadratic\): argnums -3, but quadratic has 2 parameters"),
    ("one parameter", lambda: az.vjp(vector, argnums=1), ValueError,
     r"vjp\(vector\): argnums 1, but vector has 1 parameter"),
    ("not a scalar", lambda: az.grad(vector)(np.ones(2)), TypeError,
     r"grad\(vector\): the gradient is that of one floating scalar, but vector returns f64\[n\]"),
    ("an integer", lambda: az.value_and_grad(counted)(np.ones(2)), TypeError,
     r"value_and_grad\(counted\): the gradient is that of one floating scalar, but counted returns i64"),
    ("a tuple", lambda: az.grad(lambda x: (x, x))(1.0), TypeError, r"grad\(<lambda>\): .* returns a tuple"),
    ("nothing", lambda: az.grad(lambda x: None)(1.0), TypeError, r"<lambda> returns a NoneType"),
    ("an integer argument", lambda: az.grad(lambda x: x * 1.0)(1), TypeError,
     r"grad\(<lambda>\): parameter 'x' has no floating part to differentiate"),
    ("a declared cotangent", lambda: az.vjp(vector)(np.ones(2), 1.0), TypeError,
     r"vjp\(vector\): argument 'cotangent' is f64\[n\], got the number 1.0"),
    ("rank of a cotangent", lambda: az.vjp(pair)(np.ones(2), (1.0, 1.0)), TypeError,
     r"vjp\(pair\): argument 'cotangent\[0\]' is f64\[n\], got the number 1.0"),
    ("type of a cotangent", lambda: az.vjp(pair)(np.ones(2), (np.ones(2, np.float32), 1.0)), TypeError,
     r"vjp\(pair\): argument 'cotangent\[0\]' is f64\[n\], got an array of float32"),
    ("length of a cotangent", lambda: az.evaluate(az.vjp(pair))(np.ones(2), (np.ones(3), 1.0)), ValueError,
     r"vjp\(pair\): n is 2 in argument 'x' .*, but 3 in argument 'cotangent\[0\]'"),
    ("structure of a cotangent", lambda: az.vjp(pair)(np.ones(2), np.ones(2)), TypeError,
     r"vjp\(pair\): argument 'cotangent' is a tuple of 2, got ndarray"),
    ("primals alone", lambda: az.jvp(vector, (np.ones(2),)), TypeError,
     r"jvp\(vector\) takes primals and tangents together, or neither"),
    ("length of a tangent", lambda: az.evaluate(az.jvp(vector))(np.ones(2), np.ones(3)), ValueError,
     r"n is 2 in argument 'x' .* but 3 in argument 'd_x'"),
    ("type of a tangent", lambda: az.jvp(lambda x: x * x)(1.0, np.float32(1)), TypeError,
     r"jvp\(<lambda>\): argument 'd_x' is f64, got the scalar .*float32"),
    ("structure of a tangent", lambda: az.jvp(lambda p: p["a"])({"a": 1.0}, {"b": 1.0}), TypeError,
     r"jvp\(<lambda>\): argument 'd_p' is a dictionary with the keys 'a', got a dictionary with the keys 'b'"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "message"), [x[1:] for x in ERRORS], ids=[x[0] for x in ERRORS])
def test_errors(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"{message}.*{HERE}"):
        make()


def test_an_error_in_a_body_names_the_line_of_the_verb() -> None:
    @az.program
    def f(x: Vector) -> Vector:
        return az.map(lambda v: az.grad(lambda u: x * u)(v), x)

    line = f.function.__code__.co_firstlineno + 2
    with pytest.raises(TypeError, match=re.escape("one floating scalar") + f".*test_reverse.py:{line}"):
        az.evaluate(f)(numbers(2))
