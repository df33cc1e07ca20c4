"""Corners of tracing, and of gradients via the trace: what has an order, what is added up, what comes from Python."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import CASES, Case
from sampling import some

import adze as az
from adze.core import trees
from adze.core.language import Unsupported

X = np.array([1.0, -2.0, 3.0, -4.0, 0.5])
Vector = az.Array[az.f64, "n"]

total = az.foreign("total", lambda x: np.float64(np.sum(x)), az.f64)
twice = az.foreign("twice", lambda x: 2 * x, lambda x: x)


def shown(run: Callable[..., Any], f: Any, *args: Any) -> list[tuple[str, list[Any]]]:
    """What probes show in a run, in order."""
    seen: list[tuple[str, list[Any]]] = []
    run(az.program(f), show=lambda name, values: seen.append((name, [np.asarray(v).tolist() for v in values])))(*args)
    return seen


# Order


def probed(x: Vector) -> az.f64:
    return az.sum(az.map(lambda v: az.cond(v > 0.0, lambda: az.inspect(v, "p"), lambda: az.inspect(v * 2, "m")), x))


def probed_inside(x: Vector) -> az.f64:
    def element(v: Any) -> Any:
        return az.sum(az.generate(3, lambda i: az.cond(v > i, lambda: az.inspect(v * 2, "b"), lambda: v)))

    return az.sum(az.map(element, x))


def probed_in_a_function(x: Vector) -> az.f64:
    @az.function
    def g(v: az.f64) -> az.f64:
        return az.cond(v > 0.0, lambda: az.inspect(v, "p"), lambda: az.inspect(v * 2, "m"))

    return az.sum(az.map(lambda v: g(v), x)) + g(x[0])


@pytest.mark.parametrize("f", [probed, probed_inside, probed_in_a_function])
def test_probes_are_shown_in_the_order_of_the_program(f: Any) -> None:
    assert shown(az.trace, f, X) == shown(az.evaluate, f, X)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: az.map(lambda v: az.cond(v > 0.0, lambda: total(x * v), lambda: v), x),
        lambda x: az.map(lambda v: az.cond(v > 0.0, lambda: twice(v), lambda: v), x),
        lambda x: az.map(lambda v: az.fori_loop(0, 2, lambda i, s: twice(s) + i, v), x),
        lambda x: az.map(lambda v: az.sum(az.map(lambda w: az.cond(w > v, lambda: total(x), lambda: w), x)), x),
    ],
)
def test_foreign_functions_get_one_element_at_a_time(f: Any) -> None:
    f = az.program(f)
    trace = az.trace(f)(X)
    np.testing.assert_array_equal(trace.result, az.evaluate(f)(X))
    np.testing.assert_array_equal(az.evaluate(trace.program)(X), trace.result)
    assert az.trace(trace.program)(X).block == trace.block


@az.custom_vjp
def product(a: Any, b: Any) -> Any:
    return az.foreign("product", lambda x: np.float64(np.prod(x)), az.f64)(
        az.generate(2, lambda i: az.where(i == 0, a, b))
    )


@product.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    return cotangent * primals[1], cotangent * primals[0]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: az.reduce(lambda a, b: product(a, b), 1.0, x),
        lambda x: az.sum(az.scan(lambda a, b: product(a, b), 1.0, x) * x),
        lambda x: az.sum(az.map(lambda v: az.reduce(lambda a, b: product(a, b), 1.0, x * v), x)),
    ],
    ids=["reduce", "scan", "in-a-map"],
)
def test_operators_that_call_foreign_functions(f: Any) -> None:
    f = az.program(f)
    np.testing.assert_allclose(az.grad(f, via="trace")(X), az.evaluate(az.grad(f))(X), rtol=1e-12)


# What is added up


def read_and_branch(x: Vector) -> az.f64:
    return az.sum(az.map(lambda v: az.cond(v > 0.0, lambda: v * x[0], lambda: v * 2.0), x))


def updated(x: Vector, k: az.Array[az.i64, "n"]) -> az.f64:
    def element(v: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            return az.update(y, (k[i],), az.cond(y[i] > 0.0, lambda: az.sum(y), lambda: y[k[i]]))

        return az.sum(az.fori_loop(0, 2, step, x * v))

    return az.sum(az.map(element, x))


PLACES = np.array([0, 1, 1, 4, 2])


GRADIENTS = {
    "read-and-branch": (az.grad(read_and_branch), (X,)),
    "updated": (az.grad(updated), (X, PLACES)),
    "read-and-branch-summed": (az.program(lambda x: az.sum(az.grad(read_and_branch)(x))), (X,)),
    "updated-summed": (az.program(lambda x, k: az.sum(az.grad(updated)(x, k))), (X, PLACES)),
}


@pytest.mark.parametrize(
    ("name", "keep"),
    [
        *[(name, keep) for name in GRADIENTS for keep in ("arrays", ("reals", "arrays"))],
        *[(name, keep) for name in GRADIENTS if name.endswith("summed") for keep in ("scalars", "reals")],
    ],
)
def test_traces_of_gradients_with_branches(name: str, keep: Any) -> None:
    """Their accumulators are taken apart: those inside of others, and those that several groups add to."""
    f, args = GRADIENTS[name]
    trace = az.trace(f, keep=keep)(*args)
    np.testing.assert_allclose(trace.result, az.evaluate(f)(*args), rtol=1e-13)
    az.check(trace.block)
    assert az.trace(trace.program, keep=keep)(*trace.arguments).block == trace.block


def test_second_derivatives_via_the_trace() -> None:
    slope = az.program(lambda x: az.sum(az.grad(read_and_branch)(x) * x))
    np.testing.assert_allclose(az.grad(slope, via="trace")(X), az.evaluate(az.grad(slope))(X), rtol=1e-13)


@pytest.mark.parametrize("keep", ["arrays", "scalars"])
@pytest.mark.parametrize("construct", ["reduce", "scan", "histogram"])
def test_a_neutral_element_that_is_not_neutral_is_refused(construct: str, keep: str) -> None:
    def operator(a: Any, b: Any) -> Any:
        return az.cond(a > b, lambda: a * 1.0, lambda: a + b)

    @az.program
    def f(x: Vector) -> az.f64:
        if construct == "histogram":
            return az.sum(az.histogram(operator, 1.0, 2, az.map(lambda v: (v > 0.0).astype(az.i64), x), x))
        return az.sum(getattr(az, construct)(operator, 1.0, x))

    for run in (az.evaluate(f), az.trace(f, keep=keep), az.grad(f, via="trace")):
        with pytest.raises(ValueError, match=f"{construct}: the neutral element is not neutral"):
            run(X)


@pytest.mark.parametrize("keep", ["arrays", "scalars"])
def test_what_goes_into_no_bin_does_not_test_the_neutral_element(keep: str) -> None:
    @az.program
    def f(x: Vector, k: az.Array[az.i64, "n"]) -> az.f64:
        return az.sum(az.histogram(lambda a, b: az.cond(a > b, lambda: a, lambda: b), 0.0, 2, k, x))

    x, places = np.array([-5.0, 2.0, 3.0, 4.0, 5.0]), np.array([9, 0, 1, 0, 1])
    assert az.trace(f, keep=keep)(x, places).result == az.evaluate(f)(x, places) == 9.0


# Custom derivatives


def test_a_captured_variable_that_is_also_an_argument() -> None:
    """The rule is that of the argument; what is captured moves the result, too."""

    def f(x: az.f64) -> az.f64:
        @az.custom_vjp
        def g(v: Any) -> Any:
            return v * v * x

        g.defvjp(lambda primals, cotangent: (3.0 * cotangent,))
        return g(x)  # type: ignore[no-any-return]

    assert az.grad(f, via="trace")(1.5) == az.evaluate(az.grad(f))(1.5) == 3.0 + 1.5**2


def test_rules_that_would_be_lost_are_refused() -> None:
    @az.program
    def f(x: az.f64) -> az.f64:
        @az.fix
        def square(self: Any, v: az.f64) -> az.f64:
            return v * v

        @az.custom_vjp
        def g(v: Any) -> Any:
            return square(v)

        g.defvjp(lambda primals, cotangent: (100.0 * cotangent,))
        return g(x) + square(x)

    assert az.trace(f)(3.0).result == 18.0
    with pytest.raises(Unsupported, match=r"captures a function that is a value.*test_trace_corners.py"):
        az.grad(f, via="trace")(3.0)


# Functions given from Python


@az.program
def applied_twice(f: az.Function[[az.f64], az.f64], x: az.f64) -> az.f64:
    return f(f(x))


@pytest.mark.parametrize(
    ("f", "value", "slope"),
    [
        (lambda v: v * v + 1.0, 26.0, 40.0),
        (np.sin, np.sin(np.sin(2.0)), np.cos(np.sin(2.0)) * np.cos(2.0)),
        (az.program(lambda v: v * 3.0), 18.0, 9.0),
        (lambda v: az.cond(v > 0.0, lambda: -v, lambda: v * v), 4.0, 4.0),
    ],
    ids=["arithmetic", "numpy", "program", "branch"],
)
def test_functions_given_from_python_are_traced(f: Any, value: float, slope: float) -> None:
    trace = az.trace(applied_twice)(f, 2.0)
    assert trace.result == pytest.approx(value)
    assert trace.arguments == (2.0,)
    assert az.grad(applied_twice, 1, via="trace")(f, 2.0) == pytest.approx(slope)


def test_a_function_that_cannot_be_one_of_expressions() -> None:
    with pytest.raises(TypeError, match="has no content yet") as caught:
        az.trace(applied_twice)(lambda v: float(v) * 2.0, 2.0)
    assert any("argument 'f' as a function of expressions" in note for note in caught.value.__notes__)


# Traces of derivatives, over all programs


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_return_sweeps_are_traced(case: Case) -> None:
    """Derivatives have what programs do not: accumulators in branches and in loops, tapes of loops."""
    for arguments in case.arguments:
        leaves, shape = trees.flatten(az.evaluate(case.program)(*arguments))
        seeds = [np.ones_like(leaf)[()] if np.asarray(leaf).dtype.kind == "f" else None for leaf in leaves]
        derivative = az.vjp(case.program)
        try:
            expected = az.evaluate(derivative)(*arguments, trees.unflatten(shape, seeds))
        except TypeError as error:
            assert "floating" in str(error)
            continue
        for keep in ("arrays", ("reals", "arrays")):
            try:
                trace = az.trace(derivative, keep=keep)(*arguments, trees.unflatten(shape, seeds))
            except TypeError as error:
                assert "traced away" in str(error)
                continue
            az.check(trace.block)
            for found, wanted in zip(trees.flatten(trace.result)[0], trees.flatten(expected)[0], strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-5 if wanted.dtype == np.float32 else 1e-12)
            assert az.trace(trace.program, keep=keep)(*trace.arguments).block == trace.block


# Sizes that the traced run decides


@pytest.mark.parametrize("n", [1, 2, 4])
def test_inner_sizes_that_depend_on_a_dropped_index(n: int) -> None:
    @az.program
    def f(x: Vector) -> az.f64:
        def row(i: Any) -> Any:
            return az.sum(az.generate(i + 1, lambda j: x[i] * x[j]))

        return az.sum(az.generate(az.size(x), row))

    for program in (f, az.grad(f)):
        trace = az.trace(program, keep=("reals", "arrays"))(X[:n])
        az.check(trace.block)
        np.testing.assert_allclose(trace.result, az.evaluate(program)(X[:n]), rtol=1e-13)


@az.fix
def descended(self: Any, n: az.i64, x: az.f64) -> az.f64:
    return az.cond(n == 0, lambda: x, lambda: self(n - 1, x * 1.5) + 1.0)


@pytest.mark.rest
@pytest.mark.unguarded
@pytest.mark.parametrize("keep", some(["reals", "arrays"], 2))
def test_deep_recursion(keep: str) -> None:
    """On every Python: one that limits the calls through C must not find any between two calls of a recursion."""
    program = az.program(lambda n, x: descended(n, x))
    depth = 10_000
    assert az.trace(program, keep=keep)(depth, 0.0).result == depth
    assert az.grad(program, argnums=1, via="trace")(depth, 0.0) == np.float64(1.5) ** depth


# Beyond memory

LONG = 2**50


@pytest.mark.parametrize(
    "f",
    [
        lambda x: az.fori_loop(0, LONG, lambda i, s: s * x, 1.0),
        lambda x: az.scan_loop(lambda s, i: (s * x, s), 1.0, az.iota(LONG))[1][0],
        lambda x: az.reduce(lambda a, b: az.maximum(a * 1.0, b), -np.inf, az.map(lambda i: x * i, az.iota(LONG))),
        lambda x: az.cumsum(az.iota(LONG) * x)[3],
        lambda x: x * az.sum(az.ones(LONG)),
        lambda x: az.sort(az.iota(LONG) * x)[0],
        lambda x: az.map(lambda k: az.fori_loop(0, LONG, lambda i, s: s * x * k, 1.0), az.iota(3))[0],
    ],
    ids=["loop", "rows of a loop", "reduce", "scan", "constant", "sort", "loop in a map"],
)
@pytest.mark.parametrize("keep", ["arrays", "reals"])
def test_traces_beyond_memory_are_refused_at_once(keep: str, f: Any) -> None:
    with pytest.raises(MemoryError, match=r"no memory for .*\b1125899906842624\b.*test_trace_corners\.py:\d+"):
        az.trace(f, keep=keep)(2.0)
