"""The corners of the verbs: numbers, lists, names, defaults and results of any kind, the same by every verb."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from programs.functions import List

import adze as az

pytestmark = pytest.mark.unguarded

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


# Derivatives with what comes with the value


@az.program
def loss(w: az.Array[az.f64, "n"], x: az.Array[az.f64, "n"]) -> Any:
    y = az.sin(w) * x
    return az.sum(y * y), {"y": y, "largest": az.argmax(y)}


def loss_alone(w: Any, x: Any) -> Any:
    return loss(w, x)[0]


class Sums(NamedTuple):
    a: az.f64
    b: az.Array[az.f64, "n"]


@az.program
def annotated(w: az.Array[az.f64, "n"]) -> tuple[Sums, az.i64]:
    return Sums(az.sum(w), w * w), az.argmax(w)


W, AT = np.array([0.1, 0.5, -0.3]), np.array([1.0, 2.0, 3.0])
Y = np.sin(W) * AT


def comes_with_it(aux: Any) -> bool:
    return set(aux) == {"y", "largest"} and np.allclose(aux["y"], Y) and aux["largest"] == 1


@pytest.mark.parametrize("via", ["program", "trace"])
def test_gradients_with_what_comes_with_the_value(via: Any) -> None:
    gradient, aux = az.grad(loss, has_aux=True, via=via)(W, AT)
    wanted = 2 * Y * np.cos(W) * AT
    assert np.allclose(gradient, wanted) and comes_with_it(aux)
    (value, aux), gradients = az.value_and_grad(loss, (0, 1), has_aux=True, via=via)(W, AT)
    assert np.isclose(value, np.sum(Y * Y)) and np.allclose(gradients[0], wanted) and comes_with_it(aux)
    assert np.allclose(gradients[1], 2 * Y * np.sin(W))


@pytest.mark.parametrize("via", ["program", "trace"])
def test_pullbacks_of_the_first_part(via: Any) -> None:
    wanted = 2 * Y * np.cos(W) * AT
    value, to_w, to_x, aux = az.vjp(loss, has_aux=True, via=via)(W, AT, 3.0)
    assert np.isclose(value, np.sum(Y * Y)) and comes_with_it(aux)
    assert np.allclose(to_w, 3 * wanted) and np.allclose(to_x, 6 * Y * np.sin(W))
    value, pullback, aux = az.vjp(loss, W, AT, argnums=0, has_aux=True, via=via)
    assert np.isclose(value, np.sum(Y * Y)) and comes_with_it(aux)
    assert np.allclose(pullback(3.0), [3 * wanted])
    result, gradient, largest = az.vjp(annotated, has_aux=True, via=via)(W, Sums(1.0, AT))
    assert np.allclose(result.b, W * W) and largest == 1 and np.allclose(gradient, 1 + 2 * W * AT)


def test_pullbacks_of_the_first_part_inside() -> None:
    @az.program
    def both(w: az.Array[az.f64, "n"], x: az.Array[az.f64, "n"]) -> Any:
        value, pullback, aux = az.vjp(loss, w, x, has_aux=True)
        return value, az.map(lambda c: pullback(c)[0], x), aux

    value, gradients, aux = az.compile(both)(W, AT)
    assert np.isclose(value, np.sum(Y * Y)) and comes_with_it(aux)
    assert np.allclose(gradients, np.outer(AT, 2 * Y * np.cos(W) * AT))


@pytest.mark.parametrize("mode", [None, "forward", "reverse"])
def test_jacobians_with_what_comes_with_the_result(mode: Any) -> None:
    found, aux = az.jacobian(loss, (0, 1), mode, has_aux=True)(W, AT)
    wanted = az.jacobian(loss_alone, (0, 1), mode)(W, AT)
    assert np.allclose(found[0], wanted[0]) and np.allclose(found[1], wanted[1]) and comes_with_it(aux)
    rows, largest = az.jacobian(annotated, mode=mode, has_aux=True)(W)
    assert np.allclose(rows.a, 1) and np.allclose(rows.b, np.diag(2 * W)) and largest == 1


def test_hessians_with_what_comes_with_the_value() -> None:
    for run in (az.evaluate, az.compile):
        found, aux = run(az.hessian(loss, has_aux=True))(W, AT)
        assert np.allclose(found, az.hessian(loss_alone)(W, AT)) and comes_with_it(aux)


@pytest.mark.parametrize(
    "use",
    [
        lambda f: az.grad(f, has_aux=True)(1.0),
        lambda f: az.value_and_grad(f, has_aux=True, via="trace")(1.0),
        lambda f: az.vjp(f, has_aux=True)(1.0, 1.0),
        lambda f: az.vjp(f, 1.0, has_aux=True),
        lambda f: az.vjp(f, 1.0, has_aux=True, via="trace"),
        lambda f: az.jacobian(f, has_aux=True)(1.0),
        lambda f: az.hessian(f, has_aux=True)(1.0),
    ],
)
@pytest.mark.parametrize("result", [lambda x: x, lambda x: (x, x, x), lambda x: [x, x], lambda x: {"a": x, "b": x}])
def test_what_is_no_pair_has_nothing_that_comes_with_it(use: Callable[..., Any], result: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"with has_aux=True .* returns a pair, .* not .*test_verbs.py:\d+"):
        use(az.program(result))


# Derivatives at one place


def test_the_derivative_at_a_place() -> None:
    value, push = az.linearize(loss_alone, W, AT)
    ones, zeros = np.ones(3), np.zeros(3)
    assert np.isclose(value, np.sum(Y * Y))
    assert np.isclose(push(ones, zeros), np.sum(2 * Y * np.cos(W) * AT))
    assert np.isclose(push(zeros, W), np.sum(2 * Y * np.sin(W) * W))

    @az.program
    def columns(w: az.Array[az.f64, "n"], x: az.Array[az.f64, "n"]) -> Any:
        _, push = az.linearize(lambda w: az.sin(w) * x, w)
        return az.map(push, az.eye(3))

    assert np.allclose(az.compile(columns)(W, AT), np.diag(np.cos(W) * AT))
    with pytest.raises(TypeError, match=r"takes 2 tangent\(s\), of w, x; got 1"):
        push(ones)


# Verbs that are applied again make nothing anew


def test_a_verb_makes_one_program_of_another() -> None:
    assert az.grad(loss, has_aux=True) is az.grad(loss, has_aux=True)
    assert az.grad(loss_alone) is not az.grad(loss_alone)  # what it captures may be other values by now
    for verb in (az.value_and_grad, az.vjp, az.jvp, az.hvp, az.jacobian, az.hessian, az.vmap):
        assert verb(annotated) is verb(annotated)
        assert verb(loss) is not verb(annotated)
    assert az.grad(loss, 1) is not az.grad(loss, 0) is not az.grad(loss, (0,))


def test_a_parameter_without_annotation_with_floats_inside_of_data() -> None:
    """The gradient looks inside of such values; a Jacobian would have a shape that depends on them, and says so."""
    total = az.program(lambda xs: az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: head))
    assert az.evaluate(az.grad(total))(List.Cons(3.0, List.Nil())) == List.Cons(1.0, List.Nil())
    with pytest.raises(TypeError, match=r"parameter 'xs' is List\[f64\], .*: az\.grad, az\.vjp and az\.jvp"):
        az.evaluate(az.jacobian(total))(List.Cons(1.0, List.Nil()))
