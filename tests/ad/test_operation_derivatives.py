"""Derivatives of library operations: by a rule of one mode, or by an expansion; and what rules may not do."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_custom_derivatives import has_derivatives

import adze as az
from adze.core.types import ArrayType, dims, element

HERE = re.escape(Path(__file__).name) + r":\d+"

RANDOM = np.random.default_rng(5)
A, B = np.eye(4) * 4 + RANDOM.standard_normal((4, 4)), RANDOM.standard_normal(4)

Square = az.Array[az.f64, "n n"]
Vector = az.Array[az.f64, "n"]


def solved(a: Any, b: Any) -> Any:
    az.equal_sizes(*dims(a), "a is square")
    az.equal_sizes(dims(a)[0], dims(b)[0], "b has a row for each of a")
    return b


def solving(name: str, numpy: Any) -> Any:
    """An operation that solves, with a rule for reverse mode."""

    def rule(primals: Any, cotangent: Any) -> Any:
        a, b = primals
        y = operation(a.T, cotangent)
        return -az.outer(y, operation(a, b)), y

    operation = az.operation(
        name, numpy=numpy, result=solved, derivative={"vjp": rule}, cost=lambda a, b: a[0] * a[0] * a[0]
    )
    return operation


solve = solving("solve", np.linalg.solve)


def power_jvp(primals: Any, tangents: Any) -> Any:
    (x, n), (dx, dn) = primals, tangents
    assert dn is None
    return n * az.map(lambda v: v, power(x, n - 1)) * dx


power = az.operation("power", numpy=lambda x, n: x**n, result=lambda x, n: x, derivative={"jvp": power_jvp})


eigen = az.operation(
    "eigen",
    numpy=np.linalg.eigh,
    result=lambda a: (ArrayType(element(a), dims(a)[:1]), a),
    derivative={"vjp": lambda primals, cotangents: (eigen_vjp(primals[0], *cotangents),)},
)


def eigen_vjp(a: Any, values_bar: Any, vectors_bar: Any) -> Any:
    values, vectors = eigen(a)
    same = az.eye(az.size(a), dtype=az.bool_)
    gaps = az.where(same, 1.0, values[None, :] - values[:, None])
    inner = az.where(same, values_bar, (vectors.T @ vectors_bar) / gaps)
    return vectors @ (0.5 * (inner + inner.T)) @ vectors.T


@az.program
def objective(a: Square, b: Vector) -> az.f64:
    x = solve(a, b)
    return az.sum(az.sin(x) * solve(a.T, x * b))


@az.program
def cubes(x: Vector) -> az.f64:
    return az.sum(power(x, 3) * power(x, 2))


@az.program
def spectrum(a: Square) -> az.f64:
    symmetric = a + a.T
    values, vectors = eigen(symmetric)
    return az.sum(az.sin(values)) + az.sum(vectors[:, 0] ** 2 * values)


PROGRAMS: dict[str, tuple[az.Program, tuple[Any, ...]]] = {
    "one rule, of reverse mode": (objective, (A, B)),
    "one rule, of forward mode": (cubes, (B,)),
    "two results": (spectrum, (A[:3, :3],)),
    "one of two results": (az.program(lambda a: az.sum(az.sin(eigen(a + a.T)[0]))), (A[:3, :3],)),
    "in a map": (az.program(lambda a, bs: az.sum(az.map(lambda b: az.sum(solve(a, b) ** 2), bs))), (A, A)),
    "in a loop": (
        az.program(lambda a, b: az.sum(az.fori_loop(0, 3, lambda i, x: solve(a, az.sin(x)), b))),
        (A, B),
    ),
}

# Rules


@pytest.mark.rest
@pytest.mark.unguarded
@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_of_both_modes_and_orders(name: str) -> None:
    program, arguments = PROGRAMS[name]
    has_derivatives(program, *arguments)


def test_the_other_mode_is_the_transposed_rule() -> None:
    """Reverse mode of a rule for tangents, and forward mode of one for cotangents, as people read them."""
    assert str(az.pretty(az.grad(cubes))).count("foreign.power(x, 1)") == 1
    tangent = az.jvp(az.program(lambda a, b: solve(a, b))).at(Square, Vector, Square, Vector)
    assert "foreign.solve(a, d_b + sum(-(d_a * t1), 1))" in str(az.pretty(tangent))


@pytest.mark.unguarded
@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
def test_a_gradient_solves_once_more_than_its_program(argnums: Any) -> None:
    """The rule asks for the solution again, which is there."""
    calls = []

    counting = solving("counting", lambda a, b: [calls.append(1), np.linalg.solve(a, b)][1])
    program = az.program(lambda a, b: az.sum(counting(a, b) ** 2))
    gradient = az.value_and_grad(program, argnums=argnums)
    for run in (az.evaluate(gradient), az.compile(gradient)):
        calls.clear()
        run(A, B)
        assert len(calls) == 2


def test_rules_that_give_something_else() -> None:
    def derived(rule: Any, mode: str, verb: Any) -> Any:
        wrong = az.operation("wrong", numpy=lambda x, k: x, result=lambda x, k: x, derivative={mode: rule})
        return verb(az.program(lambda x: az.sum(wrong(x, 2))))(B)

    with pytest.raises(TypeError, match=rf"vjp rule of wrong, written at .*{HERE}: result is a tuple of 2.*"):
        derived(lambda primals, cotangent: cotangent, "vjp", az.grad)
    with pytest.raises(TypeError, match=r"vjp rule of wrong.*: cotangent 2 belongs to a value of type i64: it is None"):
        derived(lambda primals, cotangent: (cotangent, cotangent), "vjp", az.grad)
    with pytest.raises(TypeError, match=r"jvp rule of wrong.*: tangent 1"):
        derived(lambda primals, tangents: tangents[0][0], "jvp", az.grad)
    with pytest.raises(az.Unsupported, match=r"wrong: its jvp rule is not linear .*vjp rule of its own"):
        derived(lambda primals, tangents: tangents[0] ** 2, "jvp", az.grad)


def test_a_missing_rule_is_refused_where_something_moves() -> None:
    plain = az.operation("plain", numpy=np.sort, result=lambda x: x)

    @az.program
    def f(x: Vector, y: Vector) -> az.f64:
        return az.sum(plain(x) * y)  # the line

    line = f.function.__code__.co_firstlineno + 2
    np.testing.assert_array_equal(az.grad(f, argnums=1)(B, B), np.sort(B))
    for verb in (az.grad, az.hessian):
        with pytest.raises(az.Unsupported, match=rf"function plain: give .*written at {__file__}:{line}"):
            verb(f)(B, B)


# Expansions


class Counted:
    """An operation with an expansion, which counts how often its other meaning is asked."""

    def __init__(self, small: int = 4, **more: Any) -> None:
        self.calls = 0
        self.apply = az.operation(
            "weighted", numpy=self.run, result=lambda a, x: x, expansion=self.expansion, small=small, **more
        )

    def run(self, a: Any, x: Any) -> Any:
        self.calls += 1
        return np.tril(a) @ np.sin(x)

    def expansion(self, a: Any, x: Any) -> Any:
        return az.tril(a) @ az.sin(x)


def weights(n: int) -> tuple[Any, Any]:
    return RANDOM.standard_normal((n, n)), RANDOM.standard_normal(n)


@pytest.mark.rest
@pytest.mark.unguarded
def test_derivatives_of_expansions() -> None:
    counted = Counted(small=0)
    program = az.program(lambda a, x: az.sum(counted.apply(a, x) ** 2))
    has_derivatives(program, *weights(5))
    a, x = weights(5)
    np.testing.assert_allclose(az.grad(program, via="trace")(a, x), az.grad(program)(a, x), rtol=1e-11)

    @az.custom_vjp
    def linear(a: Any, b: Any) -> Any:
        return triangle(a, b)

    linear.defvjp(lambda primals, cotangent: (0.0 * primals[0], triangle(primals[0].T, cotangent)))
    triangle = az.operation("triangle", numpy=lambda a, b: a @ b, result=lambda a, b: b, expansion=lambda a, b: a @ b)
    tangent = az.jvp(az.program(lambda b: linear(a, b)))(x, x)[1]  # the transpose of what has an expansion
    np.testing.assert_allclose(tangent, a @ x)


@pytest.mark.unguarded
def test_a_rule_comes_before_the_expansion() -> None:
    doubled = Counted(derivative={"vjp": lambda primals, cotangent: (primals[0] * 0.0, cotangent * 7.0)})
    program = az.program(lambda a, x: az.sum(doubled.apply(a, x)))
    a, x = weights(5)
    np.testing.assert_array_equal(az.grad(program, argnums=1)(a, x), np.full(5, 7.0))
