"""Nested derivatives with respect to arrays whose sizes the run decides: a size has one name inside and outside."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sampling import some

import adze as az
from adze.interpreters.check import check
from adze.interpreters.simplify import simplify

pytestmark = pytest.mark.unguarded

Function = Callable[[Any], Any]
X = np.array([0.5, -1.0, 0.75, 0.25, -0.5, 1.0])

SOURCES: dict[str, Function] = {
    "filter": lambda x: az.filter(lambda v: v > 0, x),
    "slice": lambda x: x[: az.count_nonzero(x > 0)],
    "middle": lambda x: x[1 : az.count_nonzero(x > 0) + 1],
    "half": lambda x: x[: x.shape[0] // 2],
    "rest": lambda x: x[: x.shape[0] % 4],
    "of sizes": lambda x: x[: az.count_nonzero(az.iota(x.shape[0]) > 2)],
    "ones": lambda x: az.ones(az.count_nonzero(x > 0)) * 0.5,
    "counted": lambda x: az.map(lambda i: 0.1 * i + x[0], az.iota(az.count_nonzero(x > 0))),
}
BODIES: dict[str, Function] = {
    "loop": lambda y: az.fori_loop(0, 3, lambda i, s: s * y * 0.5 + s, y),
    "loop of matrices": lambda y: az.fori_loop(0, 2, lambda i, s: s @ az.outer(y, y) * 0.5, az.outer(y, y))[0],
    "reduce of rows": lambda y: az.reduce(lambda a, b: a + b, az.zeros_like(y), az.outer(y, y)),
    "scan of rows": lambda y: az.scan(lambda a, b: a + b, az.zeros_like(y), az.outer(y, y))[1],
    "update": lambda y: az.fori_loop(0, y.shape[0], lambda i, s: az.update(s, i, s[i] * y[0]), y),
    "permute": lambda y: az.permute(lambda a, b: a + b, az.zeros_like(y), lambda j: y.shape[0] - 1 - j, y * y),
    "while": lambda y: az.while_loop(lambda s: az.sum(s * s) < 4.0, lambda s: s * 1.5 + y, y),
    "cond": lambda y: az.cond(az.sum(y) > 1.0, lambda: y * y, lambda: az.fori_loop(0, 2, lambda i, s: s * y, y)),
    "checkpoint": lambda y: az.checkpoint(lambda z: az.fori_loop(0, 2, lambda i, s: s * z, z))(y),
}
VERBS: dict[str, Callable[[Function, Any], Any]] = {
    "grad": lambda f, y: az.sum(az.grad(f)(y) * y),
    "jvp": lambda f, y: az.jvp(f)(y, y)[1],
    "hvp": lambda f, y: az.sum(az.hvp(f)(y, y)),
    "grad in a map": lambda f, y: az.sum(az.map(lambda a: az.sum(az.grad(lambda z: f(z) * a)(y)), y)),
    "grad in a loop": lambda f, y: az.sum(az.fori_loop(0, 2, lambda i, s: s + 0.01 * az.grad(f)(s), y)),
}


def compare(source: Function, body: Function, verb: Callable[[Function, Any], Any], compiles: bool) -> None:
    """The derivative with respect to a computed array against that with respect to an argument of the same numbers."""

    def f(y: Any) -> Any:
        return az.sum(body(y) * y)

    def nested(x: az.Array[az.f64, "n"]) -> Any:
        return verb(f, source(x))

    def plain(y: az.Array[az.f64, "n"]) -> Any:
        return verb(f, y)

    def computed(x: az.Array[az.f64, "n"]) -> Any:
        return source(x)

    wanted = az.evaluate(plain)(az.evaluate(computed)(X))
    check(simplify(az.program(nested)))
    np.testing.assert_allclose(az.evaluate(nested)(X), wanted, rtol=1e-12)
    if compiles:
        np.testing.assert_allclose(az.compile(nested)(X), wanted, rtol=1e-12)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("source", some(SOURCES, 2))
def test_gradients(source: str, body: str) -> None:
    compiles = list(SOURCES).index(source) == list(BODIES).index(body) % len(SOURCES)
    compare(SOURCES[source], BODIES[body], VERBS["grad"], compiles)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "grad"])
@pytest.mark.parametrize("body", ["loop", "scan of rows", "permute"])
def test_other_verbs(verb: str, body: str) -> None:
    compare(SOURCES["slice"], BODIES[body], VERBS[verb], body == "loop")


@pytest.mark.rest
def test_an_array_whose_size_is_a_sum_keeps_its_size() -> None:
    """A sum is a variable of the loops; arrays are as long as it is then."""

    @az.program
    def cubed(x: az.Array[az.f64, "n"]) -> az.f64:
        y = x[: az.count_nonzero(x > 0)]
        z = az.map(lambda i: 0.5 * i + x[0], az.iota(az.count_nonzero(x > 0)))
        m = az.outer(y, z) + 1.0
        return az.sum(m @ m @ m) + az.permute(lambda a, b: a + b, az.zeros_like(z), lambda j: j // 2, z * z)[0]

    y, z = X[:4], 0.5 * np.arange(4) + X[0]
    m = np.outer(y, z) + 1.0
    np.testing.assert_allclose(az.compile(cubed)(X), (m @ m @ m).sum() + (z[:2] ** 2).sum(), rtol=1e-12)


def test_arrays_of_computed_sizes_in_a_recursion() -> None:
    """A pullback keeps what they are made of."""

    @az.program
    def sieved(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, k: az.i64, s: az.f64) -> az.f64:
            kept = az.filter(lambda a: a > s, x)
            return az.cond(k == 0, lambda: s, lambda: kept[0] * self(k - 1, s + 0.1) + az.sum(kept * kept))

        return go(k, 0.0)

    by_trace = az.grad(sieved, via="trace")(X, 3)
    for run in (az.evaluate, az.compile):
        np.testing.assert_allclose(run(az.grad(sieved))(X, 3), by_trace, rtol=1e-13)
    assert az.pretty(az.grad(sieved)).count("scatter") == 1  # it is captured, where functions are values


def test_recursions_that_take_arrays_of_computed_sizes_are_refused() -> None:
    @az.program
    def picked(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        kept = az.filter(lambda a: a > 0, x)
        go = az.fix(lambda self, k: az.cond(k == 0, lambda: 1.0, lambda: kept[k] * self(k - 1)), az.i64, result=az.f64)
        return go(k)

    with pytest.raises(az.Unsupported, match=r"takes or gives .* whose size the run decides: have it take .* at .*"):
        az.grad(picked)(X, 1)
