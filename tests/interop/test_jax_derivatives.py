"""Derivatives and batches of programs as functions of JAX's arrays, against those of JAX's own formulas."""

import importlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from array_programs import BY_NAME, jax, jnp, layer, numbers, recurrence, same, scalars
from sampling import some

import adze as az

pytestmark = pytest.mark.unguarded


def total(f: Callable[..., Any]) -> Callable[..., Any]:
    """A number of what a function gives."""
    return lambda *x: sum([jnp.sum(jnp.cos(y)) for y in f(*x)])


TRANSFORMS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "value_and_grad": lambda f: lambda *x: jax.value_and_grad(total(f), tuple(range(len(x))))(*x),
    "jacrev": jax.jacrev,
    "jacfwd": jax.jacfwd,
    "hessian": lambda f: jax.hessian(total(f)),
    "jvp": lambda f: lambda *x: jax.jvp(f, x, tuple([jnp.cos(part) for part in x])),
    "vjp": lambda f: lambda *x: jax.vjp(f, *x)[1](tuple([jnp.sin(y) for y in f(*x)])),
    "linearize": lambda f: lambda *x: jax.linearize(f, *x)[1](*[jnp.cos(part) for part in x]),
    "transposed twice": lambda f: lambda *x: twice_transposed(f, *x),
    "vmap": lambda f: lambda *x: jax.vmap(f)(*[jnp.stack([part, 2 * part]) for part in x]),
    "vmap of one": lambda f: lambda *x: jax.vmap(f, (0, *[None] * (len(x) - 1)))(jnp.stack([x[0], -x[0]]), *x[1:]),
    "vmap along the last axis": lambda f: (
        lambda *x: jax.vmap(f, -1, -1)(*[jnp.stack([part, 2 * part], -1) for part in x])
    ),
    "jit of vmap of grad": lambda f: (
        lambda *x: jax.jit(jax.vmap(jax.grad(total(f))))(*[jnp.stack([part, 2 * part]) for part in x])
    ),
    "checkpoint": lambda f: lambda *x: jax.grad(jax.checkpoint(total(f)))(*x),
}
NESTED: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "jacfwd of jacfwd": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "jacrev of jacrev": lambda f: jax.jacrev(jax.jacrev(f)),
    "jacrev of jacfwd": lambda f: jax.jacrev(jax.jacfwd(f)),
    "grad of grad": lambda f: jax.grad(lambda *x: jnp.sum(jax.grad(total(f))(*x) ** 2)),
    "vmap of vmap of jacrev": lambda f: (
        lambda *x: jax.vmap(jax.vmap(jax.jacrev(f)))(*[jnp.stack([part, 2 * part])[None] for part in x])
    ),
    "jacrev of vmap of one": lambda f: jax.jacrev(
        lambda *x: jax.vmap(jax.jacfwd(f), (0, *[None] * (len(x) - 1)))(jnp.stack([x[0], -x[0]]), *x[1:])
    ),
    "hessian of vmap in a jit": lambda f: jax.jit(
        jax.hessian(lambda *x: jnp.sum(jax.vmap(total(f))(*[jnp.stack([part, 2 * part]) for part in x])))
    ),
}


def twice_transposed(f: Callable[..., Any], *x: Any) -> Any:
    """The linear map of the tangents, made from that of the cotangents."""
    values, back = jax.vjp(f, *x)
    return jax.linear_transpose(back, values)(tuple([jnp.cos(part) for part in x]))


def pairs(formulas: Iterable[str], transforms: Iterable[str], every: int) -> list[Any]:
    return some([f"{formula} {transform}" for formula in formulas for transform in transforms], every, long=2)


@pytest.mark.parametrize("pair", pairs(BY_NAME, TRANSFORMS, 6))
def test_transforms(pair: str) -> None:
    name, transform = pair.split(" ", 1)
    formula, transformed = BY_NAME[name], TRANSFORMS[transform]
    found = transformed(formula.fixed(az.jax(formula.program)))(*formula.moving())
    same(found, transformed(formula.fixed(formula.meaning))(*formula.moving()))


@pytest.mark.rest
@pytest.mark.parametrize("pair", pairs(["scalars", "mixed", "recurrence"], NESTED, 8))
def test_transforms_of_transforms(pair: str) -> None:
    name, transform = pair.split(" ", 1)
    formula, transformed = BY_NAME[name], NESTED[transform]
    found = transformed(formula.fixed(az.jax(formula.program)))(*formula.moving())
    same(found, transformed(formula.fixed(formula.meaning))(*formula.moving()))


def test_against_differences() -> None:
    importlib.import_module("jax.test_util").check_grads(az.jax(scalars), (numbers(), numbers(seed=1)), order=2)


def inside_scan(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: jax.lax.scan(lambda s, step: (f(s, step) + s, f(step, s)), x, jnp.stack([y, 2 * y, y]))


def inside_fori_loop(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: jax.lax.fori_loop(0, 3, lambda i, s: s + f(s, y), x)


def inside_cond(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: jax.lax.cond(x > y, f, lambda x, y: f(y, x), x, y)


@pytest.mark.rest
@pytest.mark.parametrize("inside", [inside_scan, inside_fori_loop, inside_cond])
def test_inside_of_jax_control_flow(inside: Callable[..., Any]) -> None:
    x, y = jnp.asarray(0.3), jnp.asarray(0.8)
    found, expected = inside(az.jax(scalars)), inside(BY_NAME["scalars"].meaning)
    for transform in (jax.jit, jax.jacrev, jax.jacfwd):
        same(transform(found)(x, y), transform(expected)(x, y))
    batch = jnp.stack([x, y, 2 * x])
    same(jax.vmap(found, (0, None))(batch, y), jax.vmap(expected, (0, None))(batch, y))


def test_structures_around() -> None:
    def loss(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda parameters, x: jnp.mean(f(parameters["w"], parameters["b"], x) ** 2)

    parameters = {"w": numbers(2, 3), "b": numbers(2, seed=1)}
    found = jax.jit(jax.value_and_grad(loss(az.jax(layer))))(parameters, numbers(3, 3, seed=2))
    same(found, jax.value_and_grad(loss(BY_NAME["layer"].meaning))(parameters, numbers(3, 3, seed=2)))


def test_integers_have_no_tangents() -> None:
    """Their tangents are of the type float0, in and out; nothing comes back through a result that is one."""
    f = az.jax(lambda x, k: (x * k, k + 1))
    k = jnp.asarray([2, 3])
    x, nothing = numbers(2), np.zeros((2,), jax.dtypes.float0)
    results, tangents = jax.jvp(f, (x, k), (jnp.ones(2), nothing))
    same(results, (x * k, k + 1))
    same(tangents[0], jnp.asarray([2.0, 3.0]))
    assert tangents[1].dtype == jax.dtypes.float0
    _, back = jax.vjp(f, x, k)
    cotangents = back((jnp.ones(2), nothing))
    same(cotangents[0], jnp.asarray([2.0, 3.0]))
    assert cotangents[1].dtype == jax.dtypes.float0
    with pytest.raises(TypeError, match="grad requires real- or complex-valued inputs"):
        jax.grad(lambda k: f(x, k)[0].sum())(k)
    _, tangents = jax.jvp(lambda k: f(x, k), (k,), (nothing,))
    same(tangents[0], jnp.zeros(2))


def test_verbs_of_programs() -> None:
    x, y = numbers(), numbers(seed=1)
    same(jax.grad(az.jax(az.grad(scalars)))(x, y), -jnp.sin(x) * y**3)
    same(az.jax(az.vmap(scalars, (0, None)))(numbers(3), y), jnp.sin(numbers(3)) * y**3)


def test_a_function_with_a_reverse_rule_alone() -> None:
    """Its gradient follows the rule, and forward mode is refused with the line of the function."""

    @az.custom_vjp
    def clipped(x: az.Expr) -> az.Expr:
        return x**2

    @clipped.defvjp
    def rule(primals: Any, cotangent: az.Expr) -> Any:
        return (az.clip(cotangent, -1.0, 1.0) * 2 * primals[0],)

    @az.program
    def f(x: az.f64) -> az.f64:
        return 10 * clipped(x)

    assert float(jax.grad(az.jax(f))(3.0)) == 6.0
    with pytest.raises(az.Unsupported, match="clipped"):
        jax.jacfwd(az.jax(f))(3.0)


@pytest.mark.rest
def test_a_custom_linear_solve() -> None:
    """Whose matrix is a derivative that JAX transposes."""

    def root(f: Callable[..., Any]) -> Callable[..., Any]:
        def residual(x: Any, rate: Any) -> Any:
            return x - 0.3 * jax.grad(f)(x, rate)

        return lambda rate: jax.lax.custom_root(
            lambda x: residual(x, rate),
            jnp.ones(3),
            lambda g, x: jax.lax.fori_loop(0, 60, lambda i, x: x - 0.2 * g(x), x),
            lambda g, y: jnp.linalg.solve(jax.jacobian(g)(y), y),
        ).sum()

    rate = jnp.asarray(0.1)
    found, expected = root(az.jax(recurrence)), root(BY_NAME["recurrence"].meaning)
    np.testing.assert_allclose(jax.grad(found)(rate), jax.grad(expected)(rate), rtol=1e-6)


def test_training() -> None:
    def losses(f: Callable[..., Any]) -> list[float]:
        x, wanted = numbers(5, 2, seed=2), jnp.tanh(numbers(5, 3, seed=3))
        step = jax.jit(jax.value_and_grad(lambda p: jnp.mean((f(*p, x) - wanted) ** 2)))
        parameters, found = (numbers(3, 2), numbers(3, seed=1)), []
        for _ in range(20):
            value, gradient = step(parameters)
            parameters = jax.tree.map(lambda p, g: p - 0.5 * g, parameters, gradient)
            found.append(float(value))
        return found

    found = losses(az.jax(layer))
    np.testing.assert_allclose(found, losses(BY_NAME["layer"].meaning), rtol=1e-10)
    assert found[-1] < found[0] / 2
