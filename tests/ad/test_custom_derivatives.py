"""Rules of one's own, what is held constant, what is refused, and probes: both modes, nested, evaluated and compiled.

Where a rule is to be told from the derivative of the body, it is another one (ten times as steep); where it is the
derivative, it is compared with extrapolated differences.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from plain import instance
from programs import numbers
from richardson import along

import adze as az
from adze.core import trees
from adze.interpreters.check import check

Vector = az.Array[az.f64, "n"]
Square = az.Array[az.f64, "n n"]
HERE = r"test_custom_derivatives\.py:\d+"
BOTH = [("jvp",), ("vjp",), ("jvp", "vjp")]


def both(program: az.Program, *arguments: Any) -> Any:
    """What a program gives when it is evaluated, after compiled code was seen to give the same."""
    check(instance(program, arguments))
    evaluated = az.evaluate(program)(*arguments)
    pairs = [trees.flatten(result)[0] for result in (evaluated, az.compile(program, threads=1)(*arguments))]
    for x, y in zip(*pairs, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-13, atol=1e-13)
    return evaluated


def interpreted(program: az.Program, *arguments: Any) -> Any:
    return az.evaluate(program)(*arguments)


def has_derivatives(program: az.Program, *arguments: Any, run: Callable[..., Any] = both) -> None:
    """Both modes agree with differences along one direction, for a scalar program and for its gradient."""
    ways = [numbers(*np.shape(x), seed=1) if np.ndim(x) else np.float64(0.75) for x in arguments]
    difference, everything = along(program, arguments, ways), tuple(range(len(arguments)))
    difference.agrees([run(az.jvp(program), *arguments, *ways)[1]])
    gradient = az.grad(program, argnums=everything)
    pulled = run(gradient, *arguments)
    difference.agrees([sum(np.sum(g * way) for g, way in zip(pulled, ways, strict=True))])
    second = along(gradient, arguments, ways)
    second.agrees(run(az.hvp(program, argnums=everything), *arguments, *ways))


def custom(function: Callable[..., Any], **rules: Callable[..., Any]) -> Callable[..., Any]:
    """A custom function with some rules."""
    made = (az.custom_vjp if "vjp" in rules else az.custom_jvp)(function)
    for name, rule in rules.items():
        getattr(made, f"def{name}")(rule)
    return made


def steep(names: Sequence[str], more: float = 10.0) -> Callable[..., Any]:
    """x^2 with the derivative of 5 x^2 in the mode of the first rule, twice that in the other mode's own."""
    rules = {
        "jvp": lambda primals, tangents: more * primals[0] * tangents[0],
        "vjp": lambda primals, cotangent: (2 * more * primals[0] * cotangent,),
    }
    return custom(lambda x: x * x, **{name: rules[name] for name in names})


# Rules


@pytest.mark.unguarded
@pytest.mark.parametrize("names", BOTH, ids="-".join)
def test_each_mode_has_its_own_rule_or_that_of_the_other(names: Sequence[str]) -> None:
    f = steep(names)
    program = az.program(lambda x: f(az.sin(x)))
    x, s, c = 0.5, np.sin(0.5), np.cos(0.5)
    forward, reverse = (10.0 if "jvp" in names else 20.0), (20.0 if "vjp" in names else 10.0)
    assert both(program, x) == s * s
    np.testing.assert_allclose(both(az.jvp(program), x, 2.0), (s * s, 2 * forward * s * c), rtol=1e-14)
    np.testing.assert_allclose(both(az.grad(program), x), reverse * s * c, rtol=1e-14)
    np.testing.assert_allclose(both(az.grad(az.grad(program)), x), reverse * (c * c - s * s), rtol=1e-14)
    np.testing.assert_allclose(both(az.hvp(program), x, 1.0), reverse * (c * c - s * s), rtol=1e-14)


@pytest.mark.unguarded
@pytest.mark.parametrize("names", BOTH[:2], ids="-".join)
@pytest.mark.parametrize(
    "inside",
    {
        "map": lambda f, x: az.sum(az.map(f, x)),
        "loop": lambda f, x: az.fori_loop(0, az.size(x), lambda i, s: s + f(x[i]), 0.0),
        "while": lambda f, x: az.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + f(x[s[0]])), (0, 0.0))[1],
        "reduce": lambda f, x: az.reduce(lambda a, b: a + b, 0.0, az.map(f, x)),
        "scan": lambda f, x: az.scan(lambda a, b: a + b, 0.0, az.map(f, x))[-1],
        "cond": lambda f, x: az.sum(az.map(lambda v: az.cond(v < 100, lambda: f(v), lambda: v), x)),
        "vjp": lambda f, x: az.vjp(lambda y: az.sum(az.map(f, y)), x)[0],
    }.items(),
    ids=lambda pair: pair[0],
)
def test_inside_of_constructs(inside: Any, names: Sequence[str]) -> None:
    f = steep(names)
    program = az.program(lambda x: inside[1](f, x))
    x, v = np.array([1.0, -2.0, 0.5]), np.array([1.0, 0.5, 2.0])
    forward, reverse = (10.0 if "jvp" in names else 20.0), (20.0 if "vjp" in names else 10.0)
    run = both if inside[0] in ("loop", "cond") else interpreted
    np.testing.assert_allclose(run(az.jvp(program), x, v)[1], forward * np.sum(x * v), rtol=1e-14)
    np.testing.assert_allclose(run(az.grad(program), x), reverse * x, rtol=1e-14)


@pytest.mark.unguarded
@pytest.mark.parametrize("name", ["jvp", pytest.param("vjp", marks=pytest.mark.slow)])
def test_the_other_mode_is_the_transpose(name: str) -> None:
    """Of rules with a matrix, a loop, a scan, a branch and indices in them."""

    def recurrence(weights: Any, given: Any) -> Any:
        return az.scan_loop(lambda s, pair: (pair[0] * s + pair[1], pair[0] * s + pair[1]), 0.0, (weights, given))[1]

    def body(a: Any, x: Any) -> Any:
        return recurrence(az.cos(x) * 0 + 0.5, a @ az.sin(x))

    def jvp(primals: Any, tangents: Any) -> Any:
        (a, x), (da, dx) = primals, tangents
        moved = az.map(lambda v, d: az.cond(v > 0, lambda: d * az.cos(v), lambda: az.cos(v) * d), x, dx)
        return recurrence(az.full(az.size(x), 0.5), da @ az.sin(x) + a @ moved)

    def vjp(primals: Any, cotangent: Any) -> Any:
        a, x = primals
        arrived = recurrence(az.full(az.size(x), 0.5), cotangent[::-1])[::-1]
        return az.map(lambda g: g * az.sin(x), arrived), (az.transpose(a) @ arrived) * az.cos(x)

    f = custom(body, **{name: {"jvp": jvp, "vjp": vjp}[name]})

    @az.program
    def program(a: Square, x: Vector) -> az.f64:
        return az.sum(f(a, x) ** 2)

    has_derivatives(program, numbers(3, 3) / 4, numbers(3, seed=2), run=interpreted)
    assert az.evaluate(az.grad(program))(np.zeros((0, 0)), np.zeros(0)).shape == (0, 0)


def test_structures_and_integers() -> None:
    """A rule has the structure of arguments and results, with None at integers."""

    @az.custom_vjp
    def f(pair: Any, k: Any) -> Any:
        return {"power": pair["x"] ** k, "k": k + 1, "y": pair["y"]}

    @f.defvjp
    def _(primals: Any, cotangent: Any) -> Any:
        pair, k = primals
        assert cotangent["k"] is None
        return {"x": 3 * cotangent["power"] * pair["x"], "y": cotangent["y"] * k.astype(az.f64)}, None

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (pair, _), (moved, none) = primals, tangents
        assert none is None
        return {"power": 3 * pair["x"] * moved["x"], "k": None, "y": moved["y"] * 2.0}

    @az.program
    def program(x: az.f64, y: az.f64, k: az.i64) -> az.f64:
        made = f({"x": x, "y": y}, k=k)
        return made["power"] * made["k"].astype(az.f64) + made["y"]

    assert both(az.grad(program, argnums=(0, 1)), 2.0, 7.0, 2) == (18, 2)
    assert both(az.jvp(program), 2.0, 7.0, 2, 1.0, 0.0)[1] == 18


@pytest.mark.unguarded
@pytest.mark.parametrize("names", [("jvp",), ("vjp",)], ids="-".join)
def test_captured_variables_move(names: Sequence[str]) -> None:
    """What the body captures moves the result as the body says; what a rule captures is differentiated again."""

    @az.program
    def program(x: az.f64, w: az.f64) -> az.f64:
        f = custom(
            lambda y: y * w * w,
            **{
                name: {"jvp": lambda p, t: az.sin(w) * p[0] * t[0], "vjp": lambda p, g: (az.sin(w) * p[0] * g,)}[name]
                for name in names
            },
        )
        return f(2 * x)

    x, w = 1.5, 0.5
    dx, dw = both(az.grad(program, argnums=(0, 1)), x, w)
    np.testing.assert_allclose((dx, dw), (np.sin(w) * 4 * x, 4 * x * w), rtol=1e-14)
    np.testing.assert_allclose(both(az.jvp(program), x, w, 1.0, 3.0)[1], dx + 3 * dw, rtol=1e-14)
    mixed = both(az.grad(lambda x, w: az.grad(program)(x, w), argnums=(0, 1)), x, w)
    np.testing.assert_allclose(mixed, (np.sin(w) * 4, np.cos(w) * 4 * x), rtol=1e-14)


def scaled(name: str, body: Any, slope: Any) -> Any:
    """A function of a number with one rule, made of its derivative."""
    rule = {"jvp": lambda p, t: slope(p[0]) * t[0], "vjp": lambda p, g: (slope(p[0]) * g,)}[name]
    return custom(body, **{name: rule})


def capturing_a_sum(name: str, x: Any, w: Any) -> Any:
    def slope(v: Any) -> Any:
        return az.cos(v) * az.sum(w * v) + az.sin(v) * az.sum(w)

    return az.sum(az.map(scaled(name, lambda v: az.sin(v) * az.sum(w * v), slope), x))


def capturing_an_index(name: str, x: Any, w: Any) -> Any:
    return az.sum(az.generate(3, lambda i: scaled(name, lambda v: v * w[i] * x[i], lambda v: w[i] * x[i])(x[i])))


def stepping(name: str, x: Any, w: Any) -> Any:
    f = scaled(name, lambda v: az.tanh(v) * w[0], lambda v: (1 - az.tanh(v) ** 2) * w[0])
    return az.fori_loop(0, 3, lambda i, s: f(s) + x[i] * w[i], 0.25)


def combining(name: str, x: Any, w: Any) -> Any:
    f = scaled(name, lambda v: az.exp(v) * w[1], lambda v: az.exp(v) * w[1])
    return az.sum(az.scan(lambda a, b: a * b, 1.0, az.map(f, x)) ** 2)


def looping_inside(name: str, x: Any, w: Any) -> Any:
    def body(v: Any) -> Any:
        return az.fori_loop(0, 3, lambda i, s: s * v + w[i], 1.0)

    f = scaled(name, body, lambda v: az.jvp(body, (v,), (1.0,))[1])
    return az.sum(az.map(lambda v: az.cond(v > 0, lambda: f(v), lambda: f(f(v))), x))


def one_in_another(name: str, x: Any, w: Any) -> Any:
    inner = scaled(name, lambda v: v * v * w[0], lambda v: 2 * v * w[0])
    outer = scaled(name, lambda v: inner(v) * v + w[1], lambda v: 3 * v * v * w[0])
    return az.sum(az.map(outer, x))


CAPTURING = [capturing_an_index, stepping, capturing_a_sum, combining, looping_inside, one_in_another]


@pytest.mark.unguarded
@pytest.mark.parametrize("name", ["jvp", "vjp"])
@pytest.mark.parametrize("program", CAPTURING[:2], ids=lambda program: program.__name__)
def test_captured_in_loops(program: Any, name: str) -> None:
    x, w = np.array([0.5, -1.25, 2.0]), np.array([1.0, 0.25, -0.75])
    has_derivatives(az.program(lambda x, w: program(name, x, w)), x, w, run=interpreted)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jvp", "vjp"])
@pytest.mark.parametrize("program", CAPTURING, ids=lambda program: program.__name__)
def test_captured_in_loops_compiled(program: Any, name: str) -> None:
    x, w = np.array([0.5, -1.25, 2.0]), np.array([1.0, 0.25, -0.75])
    has_derivatives(az.program(lambda x, w: program(name, x, w)), x, w)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (lambda d: az.minimum(d, 1.0), "minimum of it"),
        (lambda d: d * d, "a product of two values that depend on it"),
        (lambda d: d + 1.0, "a constant added to it"),
        (lambda d: az.cond(d > 0, lambda: d, lambda: 2 * d), "greater of it|a choice that depends on it"),
        (lambda d: 3.0 + az.cos(d), "cos of it"),
        (lambda d: az.fori_loop(0, 3, lambda i, s: s * d, d), "a product of two values"),
    ],
)
def test_a_rule_that_is_not_linear_has_no_transpose(rule: Any, reason: str) -> None:
    """The other mode is refused with the rule's line, and is right when it has a rule of its own."""
    vjp = custom(lambda x: 2 * x, vjp=lambda primals, cotangent: (rule(cotangent),))
    jvp = custom(lambda x: 2 * x, jvp=lambda primals, tangents: rule(tangents[0]))
    for f, own, other, what in ((vjp, "vjp", az.jvp, "forward"), (jvp, "jvp", az.grad, "reverse")):
        program = az.program(f)
        message = rf"its {own} rule is not linear in the .*{HERE}.*{what} mode cannot be derived .*written at .*{HERE}"
        with pytest.raises(az.Unsupported, match=message) as error:
            az.evaluate(other(program))(*[1.0, 1.0][: 2 if other is az.jvp else 1])
        assert any(part in str(error.value) for part in reason.split("|"))
    vjp.defjvp(lambda primals, tangents: 2 * tangents[0])
    assert az.evaluate(az.jvp(az.program(lambda x: vjp(x))))(1.0, 3.0) == (2, 6)


# Rules that call their own function


@pytest.mark.unguarded
@pytest.mark.parametrize("name", ["jvp", "vjp"])
def test_a_rule_may_call_its_function(name: str) -> None:
    """The derivative of f is f, to any order."""
    f = custom(
        lambda x: az.exp(x),
        **{name: {"jvp": lambda p, t: f(p[0]) * t[0], "vjp": lambda p, g: (g * f(p[0]),)}[name]},
    )
    program = az.program(lambda x: f(2 * x))
    derivatives = [program]
    for _ in range(3):
        derivatives.append(az.grad(derivatives[-1]))
    for order, each in enumerate(derivatives):
        np.testing.assert_allclose(both(each, 0.25), 2**order * np.exp(0.5), rtol=1e-14)
    np.testing.assert_allclose(both(az.jvp(az.grad(program)), 0.25, 1.0)[1], 4 * np.exp(0.5), rtol=1e-14)
    nested = az.program(lambda x: az.jvp(lambda y: az.jvp(f, (y,), (1.0,))[1], (x,), (1.0,))[1])
    np.testing.assert_allclose(both(nested, 0.25), np.exp(0.25), rtol=1e-14)
    summed = az.program(lambda x: az.sum(az.map(lambda v: f(v * v), x)))
    has_derivatives(summed, numbers(3) / 4, run=interpreted)


def test_compiled_code_has_no_rules() -> None:
    other = az.foreign("other", np.cos, lambda x: x)
    f = az.custom_jvp(lambda x: az.sin(x))
    f.defjvp(lambda p, t: (other(p[0]) + 0 * f(p[0])) * t[0])
    program = az.program(lambda x: f(x))
    assert both(program, 0.5) == np.sin(0.5)
    along(program, [0.5], [1.0]).agrees([az.evaluate(az.grad(program))(0.5)])


def test_rules_may_call_each_other() -> None:
    sine = az.custom_jvp(lambda x: az.sin(x))
    cosine = az.custom_vjp(lambda x: az.cos(x))
    sine.defjvp(lambda p, t: cosine(p[0]) * t[0])
    cosine.defvjp(lambda p, g: (-sine(p[0]) * g,))
    program, x = az.program(lambda x: sine(x)), 0.5
    values = [np.sin(x), np.cos(x), -np.sin(x), -np.cos(x), np.sin(x)]
    for wanted in values:
        np.testing.assert_allclose(both(program, x), wanted, rtol=1e-14)
        program = az.grad(program)


def test_a_linear_function_is_its_own_rule() -> None:
    """Its transpose is that of its body."""
    f = az.custom_jvp(lambda x: az.cumsum(x))
    f.defjvp(lambda p, t: f(t[0]))
    program = az.program(lambda x: az.sum(f(x) ** 2))
    has_derivatives(program, numbers(3), run=interpreted)


def test_a_rule_may_call_its_function_at_other_types() -> None:
    f = az.custom_jvp(lambda x: az.sum(x * x))
    f.defjvp(lambda p, t: 2 * az.sum(p[0] * t[0]) if p[0].ndim else t[0] * f(az.full(2, p[0])) / p[0])
    assert both(az.grad(az.program(lambda x: f(x))), 3.0) == 6
    g = az.custom_jvp(lambda x: az.sum(x))
    g.defjvp(lambda p, t: g(p[0][1:]))
    with pytest.raises(TypeError, match=rf"calls itself in its rule at arguments of ever other .*{HERE}"):
        az.evaluate(az.program(lambda x: g(x)))(np.ones(3))


# Foreign functions

raw = az.foreign("solve", np.linalg.solve, lambda a, b: b)


@az.custom_vjp
def solve(a: Any, b: Any) -> Any:
    return raw(a, b)


@solve.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    a, b = primals
    x, y = solve(a, b), solve(az.transpose(a), cotangent)
    return -az.map(lambda u: u * x, y), y


@pytest.mark.unguarded
def test_a_foreign_function_with_one_rule_has_all_derivatives() -> None:
    @az.program
    def program(a: Square, b: Vector) -> az.f64:
        return az.sum(solve(a, b) ** 2)

    a, b = numbers(3, 3) / 4 + 4 * np.eye(3), numbers(3, seed=3)
    has_derivatives(program, a, b, run=interpreted)
    inverse = np.linalg.inv(a)
    hessian = az.evaluate(az.hessian(program, argnums=1))(a, b)
    np.testing.assert_allclose(hessian, 2 * inverse.T @ inverse, rtol=1e-12, atol=1e-15)
    mapped = az.program(lambda a, bs: az.sum(az.map(lambda b: az.sum(solve(a, b)), bs)))
    np.testing.assert_allclose(
        az.evaluate(az.grad(mapped, argnums=1))(a, np.ones((2, 3))), np.tile(inverse.sum(0), (2, 1)), rtol=1e-12
    )


def test_a_foreign_function_without_a_rule_is_refused_where_it_moves() -> None:
    @az.program
    def program(a: Square, b: Vector, x: az.f64) -> az.f64:
        return x * az.sum(raw(a, b))

    a, b = 2 * np.eye(2), np.ones(2)
    message = (
        r"the foreign function solve: give az.operation a rule as its derivative, or wrap it in az.custom_vjp or "
        rf"az.custom_jvp, written at .*{HERE}"
    )
    with pytest.raises(az.Unsupported, match="reverse mode does not know the derivative of " + message):
        az.evaluate(az.grad(program, argnums=1))(a, b, 3.0)
    with pytest.raises(az.Unsupported, match="forward mode does not know the derivative of " + message):
        az.evaluate(az.jvp(lambda b: program(a, b, 3.0)))(b, b)
    assert az.evaluate(az.grad(program, argnums=2))(a, b, 3.0) == 1
    assert az.evaluate(az.jvp(az.program(lambda x: program(a, b, x))))(3.0, 2.0) == (3, 2)
    mapped = az.program(lambda x: az.sum(az.map(lambda v: v * az.sum(raw(a, b)), x)))
    np.testing.assert_array_equal(az.evaluate(az.grad(mapped))(np.ones(3)), np.ones(3))


# What is held constant


def test_stop_gradient() -> None:
    @az.program
    def program(x: Vector) -> az.f64:
        held = az.map(lambda v: v * az.stop_gradient(v * v), x)
        return az.fori_loop(0, az.size(x), lambda i, s: az.stop_gradient(s) * held[i] + s, 1.0)

    x, v = np.array([0.5, -2.0, 1.5]), np.array([1.0, 2.0, -1.0])
    before = np.array([1.0, 1 + 0.125, 1.125 - 8 * 1.125])  # the state of each step
    np.testing.assert_allclose(both(az.grad(program), x), before * x * x, rtol=1e-14)
    np.testing.assert_allclose(both(az.jvp(program), x, v)[1], np.sum(before * x * x * v), rtol=1e-14)
    inner = az.program(lambda x: az.grad(lambda y: az.stop_gradient(y * y) * y)(x))
    assert both(inner, 3.0) == 9 and both(az.grad(inner), 3.0) == 0
    outer = az.program(lambda x: az.grad(lambda y: az.stop_gradient(x) * x * y)(x))
    assert both(az.grad(outer), 3.0) == 3


def test_straight_through() -> None:
    """A value from one function, its derivative from another."""
    program = az.program(lambda x: az.sum((x + az.stop_gradient(az.round(x) - x)) ** 2))
    x = np.array([0.2, 1.7, -2.6])
    np.testing.assert_array_equal(both(az.grad(program), x), 2 * np.round(x))
    np.testing.assert_array_equal(both(az.jvp(program), x, np.ones(3))[1], np.sum(2 * np.round(x)))


# The higher-order fragment


@pytest.mark.unguarded
def test_par_moves_in_all_branches() -> None:
    @az.program
    def program(x: Vector, w: az.f64) -> az.f64:
        def pair(v: Any) -> Any:
            sine, (product, shift) = az.par(lambda: az.sin(v * w), lambda: (v * v * w, 2.0 + 0 * v))
            return sine * product + shift

        total, count = az.par(lambda: az.sum(az.map(pair, x)), lambda: az.size(x))
        state = az.fori_loop(0, 2, lambda i, s: sum(az.par(lambda: s * w, lambda: az.cos(s))), total)
        return state * count.astype(az.f64)

    has_derivatives(program, numbers(3) / 4, np.float64(0.5), run=interpreted)
    both(az.grad(program), numbers(3) / 4, 0.5)
    assert "par" in az.pretty(az.grad(program))


@az.data
class Shape:
    class Circle:
        radius: az.f64

    class Square:
        side: az.f64
        count: az.i64


def test_the_branches_of_data_move() -> None:
    @az.program
    def program(x: Vector, shape: Shape) -> az.f64:
        def one(v: Any) -> Any:
            return az.case(
                shape,
                Circle=lambda radius: az.sin(v) * radius,
                Square=lambda side, count: v * v * side * count.astype(az.f64) + az.sum(x),
            )

        return az.sum(az.map(one, x))

    x = numbers(3)
    circle, square = Shape.Circle(2.0), Shape.Square(3.0, 2)
    np.testing.assert_allclose(az.evaluate(az.grad(program))(x, circle), 2 * np.cos(x), rtol=1e-14)
    np.testing.assert_allclose(az.evaluate(az.grad(program))(x, square), 12 * x + 3, rtol=1e-14)


def test_recursion_beside_what_is_differentiated() -> None:
    @az.fix
    def fibonacci(self: Any, n: az.i64) -> az.i64:
        return az.cond(n < 2, lambda: n, lambda: sum(az.par(lambda: self(n - 1), lambda: self(n - 2))))

    @az.program
    def program(x: az.f64, n: az.i64) -> az.f64:
        half = az.function(lambda v: v / 2, az.f64)
        return x * x * fibonacci(n).astype(az.f64) + x * half(3.0)

    assert az.evaluate(az.grad(program))(2.0, 7) == 4 * 13 + 1.5
    assert az.evaluate(az.jvp(program))(2.0, 7, 1.0)[1] == 4 * 13 + 1.5
    assert az.evaluate(az.grad(az.grad(program)))(2.0, 7) == 26


def applied(x: Any) -> Any:
    f = az.cond(x > 0, lambda: az.function(lambda v: v * v, az.f64), lambda: az.function(lambda v: v, az.f64))
    return f(x)


def recursive(x: Any) -> Any:
    return az.fix(lambda self, n: az.cond(n == 0, lambda: x, lambda: x * self(n - 1)), az.i64, result=az.f64)(3)


def captured(x: Any) -> Any:
    return az.cond(x > 0, lambda: az.function(lambda v: v * x, az.f64), lambda: az.function(lambda v: x, az.f64))(1.0)


def held(x: Any) -> Any:
    def radius(scale: float) -> Any:
        return az.function(
            lambda shape: az.case(shape, Circle=lambda radius: scale * radius, Square=lambda side, count: side), Shape
        )

    return az.cond(x > 0, lambda: radius(1.0), lambda: radius(2.0))(Shape.Circle(x))


@pytest.mark.parametrize("program", [applied, recursive, captured, held])
def test_what_moves_through_values(program: Any) -> None:
    """Both modes agree with the trace, evaluated and compiled."""
    slope = az.grad(az.program(program), via="trace")(2.0)
    assert az.evaluate(az.jvp(az.program(program)))(2.0, 1.0)[1] == slope
    assert az.evaluate(az.grad(az.program(program)))(2.0) == slope == az.compile(az.grad(az.program(program)))(2.0)


def test_functions_as_arguments() -> None:
    """They are constant: what they give moves when they are applied to what is constant, and is refused else."""

    @az.program
    def program(f: az.Function[[az.f64], az.f64], x: az.f64, y: az.f64) -> az.f64:
        return f(y) * x

    arguments = (lambda v: v * v, 2.0, 3.0)
    assert az.evaluate(az.grad(program, argnums=1))(*arguments) == 9
    assert az.evaluate(az.vjp(program, argnums=1))(*arguments, 2.0) == (18, 18)
    with pytest.raises(az.Unsupported, match=rf"how a function from outside moves.*, written at .*{HERE}"):
        az.evaluate(az.grad(program, argnums=2))(*arguments)
    with pytest.raises(TypeError, match=rf"'f' \(argnums 0\) is of type \(f64\) -> f64; derivatives.*{HERE}"):
        az.grad(program)
    with pytest.raises(az.Unsupported, match=rf"how a function from outside moves.*, written at .*{HERE}"):
        az.evaluate(az.jvp(program, argnums=2))(*arguments, 1.0)


# Probes


def shown(program: az.Program, *arguments: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """The result of a program and what it shows."""
    seen: list[tuple[str, Any]] = []
    result = az.evaluate(program, show=lambda name, values: seen.append((name, *map(float, values))))(*arguments)
    return result, seen


def test_a_probe_shows_its_value_once_and_what_moves_there() -> None:
    program = az.program(lambda x: az.inspect(2 * x, "twice") ** 2 + az.inspect(x, "x") * 3)
    value, cotangents = [("twice", 6.0), ("x", 3.0)], [("x cotangent", 3.0), ("twice cotangent", 12.0)]
    assert shown(program, 3.0) == (45, value)
    assert shown(az.grad(program), 3.0) == (27, [*value, *cotangents])
    pairs = [("twice", 6.0), ("twice tangent", 4.0), ("x", 3.0), ("x tangent", 2.0)]
    assert shown(az.jvp(program), 3.0, 2.0) == ((45, 54), pairs)


def test_probes_of_second_derivatives_have_names_of_their_own() -> None:
    program = az.program(lambda x: az.inspect(2 * x, "v") ** 2)
    names = ["v", "v cotangent", "v cotangent cotangent", "v cotangent 2"]
    assert shown(az.grad(az.grad(program)), 3.0) == (8, list(zip(names, [6.0, 12.0, 2.0, 4.0], strict=True)))
    names = ["v", "v tangent", "v cotangent", "v cotangent tangent"]
    assert shown(az.hvp(program), 3.0, 1.0) == (8, list(zip(names, [6.0, 2.0, 12.0, 4.0], strict=True)))


@pytest.mark.unguarded
@pytest.mark.parametrize(
    ("program", "values", "tangents", "cotangents"),
    [
        (lambda x: az.sum(az.map(lambda v: az.inspect(v * v, "v"), x)), [1, 4, 9], [2, 4, 6], [1, 1, 1]),
        (
            lambda x: az.fori_loop(0, 3, lambda i, s: az.inspect(s * x[i], "v"), 1.0),
            [1, 2, 6],
            [1, 3, 11],
            [1, 3, 6],
        ),
        (lambda x: az.max(az.map(lambda v: az.inspect(2 * v, "v"), x)), [2, 4, 6], [2, 2, 2], [0, 0, 1]),
        (lambda x: az.reduce(lambda a, b: az.inspect(a * b, "v"), 1.0, x), [2, 6], [3, 11], [3, 1]),
        (lambda x: az.sum(az.scan(lambda a, b: az.inspect(a * b, "v"), 1.0, x)), [2, 6], [3, 11], [4, 1]),
        (
            lambda x: az.histogram(
                lambda a, b: a * b, 1.0, 1, az.full(3, 0), az.map(lambda v: az.inspect(2 * v, "v"), x)
            )[0],
            [2, 4, 6],
            [2, 2, 2],
            [24, 12, 8],
        ),
    ],
    ids=["map", "loop", "max", "reduce", "scan", "histogram"],
)
def test_probes_inside_of_constructs(
    program: Any, values: list[float], tangents: list[float], cotangents: list[float]
) -> None:
    program, x = az.program(program), np.array([1.0, 2.0, 3.0])
    assert shown(program, x)[1] == [("v", value) for value in values]
    seen = shown(az.jvp(program), x, np.ones(3))[1]
    assert [each for each in seen if each[0] == "v"] == [("v", value) for value in values]
    assert [each for each in seen if each[0] != "v"] == [("v tangent", value) for value in tangents]
    seen = shown(az.grad(program), x)[1]
    assert seen == [*[("v", value) for value in values], *[("v cotangent", value) for value in cotangents]]


def test_a_probe_changes_no_program(capsys: pytest.CaptureFixture[str]) -> None:
    plain = az.program(lambda x: az.sum(az.map(lambda v: v * v * az.sin(v), x)))
    probed = az.program(lambda x: az.sum(az.map(lambda v: az.inspect(v * v, "v") * az.sin(v), x)))
    x = numbers(5)
    one, other = (az.compile(az.grad(each), threads=1) for each in (plain, probed))
    np.testing.assert_array_equal(one(x), other(x))
    np.testing.assert_allclose(one(x), shown(az.grad(probed), x)[0], rtol=1e-14)
    assert capsys.readouterr().out == ""
    az.evaluate(az.program(lambda x: az.inspect({"a": x, "k": 3}, "s")["a"]))(2.0)
    assert capsys.readouterr().out == "s = 2.0, 3\n"


def test_a_probe_in_a_rule_is_seen_where_the_rule_runs() -> None:
    f = custom(lambda x: x * x, vjp=lambda p, g: (az.inspect(2 * p[0] * g, "rule"),))
    program = az.program(lambda x: f(x))
    assert shown(program, 3.0) == (9, [])
    assert shown(az.grad(program), 3.0) == (6, [("rule", 6.0)])


# Bad input


a_number: Any = 3


def used(function: Any, arguments: Sequence[Any], **rules: Any) -> Any:
    f = custom(function, **rules)
    program = az.program(lambda x, y: f(x, y))
    return az.evaluate(az.grad(program) if "vjp" in rules else az.jvp(lambda x: program(x, 1.0)))(*arguments)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda p, g: (g,), r"result is a tuple of 2, got a tuple of 1"),
        (lambda p, g: g, r"result is a tuple of 2, got"),
        (lambda p, g: None, r"result is a tuple of 2, got NoneType"),
        (lambda p, g: (g, az.zeros(3)), r"cotangent 2 is f64, got f64\[3\]"),
        (lambda p, g: (g, "y"), r"cotangent 2 is f64, got 'y'"),
        (lambda p, g: (g > 0, g), r"cotangent 1 is f64, got bool"),
        (lambda p, g: (g, None), r"cotangent 2 is f64, got"),
    ],
)
def test_what_a_rule_gives_is_checked(rule: Any, message: str) -> None:
    with pytest.raises(TypeError, match=rf"^vjp rule of <lambda>, written at .*{HERE}: {message}.*{HERE}"):
        used(lambda x, y: x * y, [1.0, 2.0], vjp=rule)


def test_what_a_tangent_rule_gives_is_checked() -> None:
    for rule, message in (
        (lambda p, t: (t[0],), r"tangent 1 is f64, got \(f64,\)"),
        (lambda p, t: t[0] > 0, r"tangent 1 is f64, got bool"),
    ):
        with pytest.raises(TypeError, match=rf"jvp rule of <lambda>, written at .*{HERE}: {message}"):
            used(lambda x, y: x * y, [1.0, 1.0], jvp=rule)
    with pytest.raises(TypeError, match=r"cotangent 2 belongs to a value of type i64: it is None"):
        used(lambda x, k: x, [1.0, 2], vjp=lambda p, g: (g, g))
    with pytest.raises(ValueError, match=rf"cotangent 1.*axis 0.*2.*3.*{HERE}"):
        used(lambda x, y: az.sum(x) + az.sum(y), [np.ones(2), np.ones(3)], vjp=lambda p, g: (p[1], p[1]))


def test_customs_that_cannot_be() -> None:
    for make, message in (
        (lambda: az.custom_vjp(3), r"custom_vjp takes a function of expressions, not 3"),
        (
            lambda: az.custom_jvp(lambda x: x).defjvp(3),
            r"takes a function of two arguments, \(primals, tangents\), not 3",
        ),
        (lambda: az.custom_vjp(lambda x: x).defvjp(lambda g: g), r"\(primals, cotangent\), not of \(g\)"),
        (lambda: az.evaluate(az.program(lambda x: az.custom_vjp(lambda x: x)(x)))(1.0), r"has no rule yet"),
        (lambda: az.evaluate(az.program(lambda x: steep(["jvp"])(x, x)))(1.0), r"too many positional arguments"),
        (lambda: az.evaluate(az.program(lambda x: steep(["jvp"])(z=x)))(1.0), r"missing a required argument"),
    ):
        with pytest.raises(TypeError, match=rf"{message}.*{HERE}"):
            make()
