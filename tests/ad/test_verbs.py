"""The corners of the verbs: numbers, lists, names, defaults and results of any kind, the same by every verb."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az

X, X32 = np.array([1.0, 2.0]), np.array([1.0, 2.0], np.float32)


def total(v: Any) -> Any:
    return az.sum(v * v)


def squares(v: Any) -> Any:
    return v * v


# Numbers and lists are tangents and cotangents, of the type of what they belong to

PULLS: dict[str, Callable[..., Any]] = {
    "program": lambda f, x, cotangent: az.evaluate(az.vjp(f))(x, cotangent)[1],
    "primals": lambda f, x, cotangent: az.vjp(f, x)[1](cotangent)[0],
    "trace": lambda f, x, cotangent: az.vjp(f, x, via="trace")[1](cotangent)[0],
    "inside": lambda f, x, cotangent: az.evaluate(lambda x: az.vjp(f, x)[1](cotangent)[0])(x),
    "inside, at once": lambda f, x, cotangent: az.evaluate(lambda x: az.vjp(f)(x, cotangent)[1])(x),
}


@pytest.mark.parametrize("pull", PULLS.values(), ids=PULLS)
@pytest.mark.parametrize("x", [X, X32], ids=["f64", "f32"])
def test_cotangents_are_numbers_and_lists(pull: Callable[..., Any], x: Any) -> None:
    for one in (1.0, 1, True):
        found = pull(total, x, one)
        assert found.dtype == x.dtype and np.array_equal(found, 2 * x)
    for rows in ([1.0, 0.0], [1, 0], [True, False], (1.0, 0)):
        found = pull(squares, x, rows)
        assert found.dtype == x.dtype and np.array_equal(found, [2, 0])


@pytest.mark.parametrize("pull", PULLS.values(), ids=PULLS)
def test_cotangents_of_other_types_are_refused(pull: Callable[..., Any]) -> None:
    for cotangent in (np.ones(2), np.ones((2, 2), np.float32), ["a", "b"]):
        with pytest.raises(TypeError, match=r"cotangent.*f32"):
            pull(squares, X32, cotangent)


PUSHES: dict[str, Callable[..., Any]] = {
    "program": lambda f, x, tangent: az.evaluate(az.jvp(f))(x, tangent)[1],
    "primals": lambda f, x, tangent: az.jvp(f, (x,), (tangent,))[1],
    "inside": lambda f, x, tangent: az.evaluate(lambda x: az.jvp(f, (x,), (tangent,))[1])(x),
}


@pytest.mark.parametrize("push", PUSHES.values(), ids=PUSHES)
@pytest.mark.parametrize("x", [X, X32], ids=["f64", "f32"])
def test_tangents_are_numbers_and_lists(push: Callable[..., Any], x: Any) -> None:
    for rows in ([1.0, 0.0], [1, 0], [True, False]):
        found = push(squares, x, rows)
        assert found.dtype == x.dtype and np.array_equal(found, [2, 0])
    for one in (1.0, 1, True):
        found = push(squares, x[1], one)
        assert found.dtype == x.dtype and found == 4
    assert np.array_equal(az.hvp(total)(x, [1, 0]), [2, 0])


def test_a_list_of_expressions_is_a_cotangent() -> None:
    pulled = az.program(lambda x: az.vjp(squares, x)[1]([x[1], 3.0])[0])
    assert np.array_equal(pulled(X), [4.0, 12.0])


def test_the_structures_of_moving_leaves() -> None:
    """What is floating follows what it belongs to; what is not is given by anything."""

    def mixed(p: Any) -> Any:
        return {"a": p[0] * 2.0, "b": az.argmax(p[0]), "c": (p[1] * p[0],)}

    for integer in (None, 1, np.arange(2)):
        result, cotangent = az.vjp(mixed)((X32, np.float32(2)), {"a": [1, 0], "b": integer, "c": ([0, 1],)})
        assert result["b"] == 1 and cotangent[0].dtype == np.float32
        assert np.array_equal(cotangent[0], [2, 2]) and cotangent[1] == 2
    _, tangent = az.jvp(lambda p: p[0] * p[1])((X, 3), ([1, 0], None))
    assert np.array_equal(tangent, [3, 0])


def test_results_whose_sizes_the_run_decides() -> None:
    positive = az.vjp(lambda x: az.filter(lambda v: v > 0, x) * 2.0)
    for x, cotangent in (([1.0, -1.0], [3.0]), ([-1.0, 2.0, 1.0], [3.0, 4.0])):
        expected = np.zeros(len(x))
        expected[np.array(x) > 0] = 2 * np.array(cotangent)
        assert np.array_equal(positive(np.array(x), cotangent)[1], expected)
    with pytest.raises(ValueError, match="cotangent"):
        positive(np.array([1.0, -1.0]), [1.0, 1.0])


def test_the_types_of_a_verb_follow_from_those_of_the_program() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n m"], k: az.i64):
        return x[k] * 2.0, k

    assert str(az.vjp(f).at().types[-1]) == "f64[m]"
    assert str(az.jvp(f).at().types[-1]) == "f64[n, m]"
    assert az.compile(az.vjp(f)).loops


# Results that are not floating have no tangent, and give a cotangent of zeros


@pytest.mark.parametrize("pull", PULLS.values(), ids=PULLS)
def test_results_without_floating_parts(pull: Callable[..., Any]) -> None:
    for f, cotangent in ((lambda v: az.argmax(v), 1), (lambda v: v > 0, True), (lambda v: v > 0, [True, False])):
        assert np.array_equal(pull(f, X, cotangent), [0.0, 0.0])
    assert az.jvp(lambda v: az.argmax(v))(X, X)[1] is None


# Parameters


def test_any_number_of_arguments_when_they_are_given() -> None:
    def product(*xs: Any) -> Any:
        return xs[0] * xs[1]

    result, pullback = az.vjp(product, 2.0, 3.0)
    assert result == 6 and pullback(1.0) == (3.0, 2.0)
    assert az.vjp(product, 2.0, 3.0, via="trace")[1](1.0) == (3.0, 2.0)
    assert az.jvp(product, (2.0, 3.0), (1.0, 0.0)) == (6.0, 3.0)
    assert az.jvp(lambda a, *rest: a * rest[-1], (2.0, 3.0, 4.0), (1.0, 0.0, 0.0)) == (8.0, 4.0)
    inside = az.program(lambda x: az.vjp(product, x, 3.0)[1](1.0)[0])
    assert inside(2.0) == 3
    with pytest.raises(TypeError, match=r"named one by one, but there is \*xs"):
        az.grad(product)


@az.program
def weighted(x: az.Array[az.f64, "n"], w: az.Array[az.f64, "n"]) -> az.f64:
    return az.sum(x * x * w)


def test_parameters_are_chosen_by_name() -> None:
    x, w = X, 3 * X
    for via in ("program", "trace"):
        assert np.array_equal(az.grad(weighted, "w", via=via)(x, w), x * x)
        by_name = az.grad(weighted, argnums=("w", "x"), via=via)(x, w)
        assert np.array_equal(by_name[0], x * x) and np.array_equal(by_name[1], 2 * x * w)
        assert np.array_equal(az.vjp(weighted, argnums="w", via=via)(x, w, 1.0)[1], x * x)
    assert np.array_equal(az.jacobian(weighted, "w")(x, w), x * x)
    assert np.array_equal(az.hessian(weighted, "x")(x, w), np.diag(2 * w))
    assert np.array_equal(az.hvp(weighted, "x")(x, w, [1, 0]), [2 * w[0], 0])
    with pytest.raises(ValueError, match="names the parameter 'w' twice"):
        az.grad(weighted, argnums=("w", 1))


def test_forward_mode_takes_argnums() -> None:
    x, w = X, 3 * X
    for argnums in (1, -1, "w", ("w",), [1]):
        assert az.jvp(weighted, argnums=argnums)(x, w, x)[1] == np.sum(x**3)
        assert az.jvp(weighted, (x, w), (x,), argnums=argnums)[1] == np.sum(x**3)
    both = az.jvp(weighted, (x, w), (x, w), argnums=("w", "x"))[1]
    assert both == np.sum(x * x * x) + np.sum(2 * x * w * w)
    with pytest.raises(TypeError, match=r"takes 1 tangent\(s\), of w; got 2"):
        az.jvp(weighted, (x, w), (x, w), argnums="w")


SQUARED = az.program(squares)


@pytest.mark.parametrize("default", [SQUARED, squares, np.square], ids=["program", "function", "ufunc"])
def test_defaults_that_are_functions_are_static(default: Any) -> None:
    def f(u: Any, g: Any = default) -> Any:
        return az.sum(g(u))

    assert az.program(f)(X) == 5 and az.program(f)(X, az.sin) == az.program(f)(X, g=az.sin)
    assert np.array_equal(az.grad(f)(X), 2 * X)
    assert np.array_equal(az.vjp(f, X)[1](1)[0], 2 * X)
    assert az.jvp(f, (X,), (X,))[1] == 10
    assert az.evaluate(f)(X) == az.compile(f)(X) == 5
    with pytest.raises(TypeError, match="static Callable"):
        az.program(f)(X, 1.0)


def test_defaults_that_are_text_are_static() -> None:
    f = az.program(lambda x, mode="up": x if mode == "up" else -x)
    assert f(1.0) == 1 and f(1.0, "down") == -1


def test_parameters_that_python_takes_by_name_only() -> None:
    def f(x: Any, *, power: int = 2, scale: az.f64 = 1.0) -> Any:
        return scale * x**power

    assert az.program(f)(3.0) == 9 and az.program(f)(3.0, scale=2.0, power=3) == 54
    assert az.grad(f)(3.0) == 6 and az.compile(f)(3.0) == az.evaluate(f)(3.0) == 9
    assert az.program(lambda x: f(x, power=3))(2.0) == 8


# Lists that hold expressions


def test_lists_of_expressions_are_pieces() -> None:
    joined = az.program(lambda x: az.concatenate([x, [x[0], 5.0], (7,)]))
    assert np.array_equal(az.evaluate(joined)(X), [1, 2, 1, 5, 7])
    stacked = az.program(lambda x: az.stack([x, [x[1], 3]], axis=1))
    assert np.array_equal(az.evaluate(stacked)(X), np.stack([X, [2, 3]], axis=1))
    rows = az.program(lambda x: az.concatenate([[[x[0], x[1]]], [[1, 2]]]))
    assert np.array_equal(az.evaluate(rows)(X), [[1, 2], [1, 2]])


@pytest.mark.parametrize(
    "use",
    [lambda x: az.sum([x[0], x[1]]), lambda x: x * [x[0], 1.0], lambda x: az.where(x > 0, (x[0], 1.0), 0)],
    ids=["sum", "multiply", "where"],
)
def test_other_lists_of_expressions_are_no_arrays(use: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"of expressions is not an array: .* az\.array\(.*test_verbs\.py:\d+"):
        az.program(use)(X)
    with pytest.raises(TypeError, match=r"use az\.array.*test_verbs\.py:\d+"):
        az.program(lambda x: np.max([x[0]]))(X)
