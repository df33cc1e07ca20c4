"""Checkpoints: the same derivatives bit for bit whatever is kept, evaluated and compiled, and what is refused."""

from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

COUNTS = (0, 1, 2, 7, 64)


def counted(checkpoint: Any) -> az.program:
    @az.program
    def f(x: az.Array[az.f64, "n"], w: az.f64, steps: az.i64) -> az.f64:
        def step(i: Any, state: Any) -> Any:
            s, k = state
            return az.sin(s * w) + 0.3 * s[k] * x[i % az.size(x)], (k * 2 + 1) % az.size(x)

        return az.sum(az.fori_loop(0, steps, step, (x, 0), checkpoint=checkpoint)[0] ** 2)

    return f


def with_outputs(checkpoint: Any) -> az.program:
    @az.program
    def f(x: az.Array[az.f64, "n"], w: az.f64, steps: az.i64) -> az.f64:
        def step(s: Any, i: Any) -> Any:
            s = az.sin(s * w) + x[i % az.size(x)]
            return s, (s * s, s > 0.5)

        last, (outputs, signs) = az.scan_loop(step, x[0], az.iota(steps), checkpoint=checkpoint)
        return last + az.sum(az.where(signs, outputs * w, outputs))

    return f


def open_ended(checkpoint: Any) -> az.program:
    @az.program
    def f(x: az.Array[az.f64, "n"], w: az.f64, steps: az.i64) -> az.f64:
        def step(state: Any) -> Any:
            i, s = state
            return i + 1, az.sin(s * w) + 0.3 * x[i % az.size(x)]

        return az.sum(az.while_loop(lambda state: state[0] < steps, step, (0, x), checkpoint=checkpoint)[1] ** 2)

    return f


def nested(checkpoint: Any) -> az.program:
    @az.program
    def f(x: az.Array[az.f64, "n"], w: az.f64, steps: az.i64) -> az.f64:
        def outer(i: Any, s: Any) -> Any:
            def inner(j: Any, t: Any) -> Any:
                return az.sin(t * w) + x[j % az.size(x)]

            return az.fori_loop(0, i % 5, inner, s, checkpoint=checkpoint)

        return az.sum(az.fori_loop(0, steps, outer, x, checkpoint=checkpoint))

    return f


def permuted(checkpoint: Any) -> az.program:
    """Steps that write where an inner loop says that nobody knows to end: its places are checked before."""

    @az.program
    def f(x: az.Array[az.f64, "n"], w: az.f64, steps: az.i64) -> az.f64:
        def step(i: Any, s: Any) -> Any:
            halved = az.while_loop(lambda y: az.max(abs(y)) > w, lambda y: y / 2, s)
            return az.sin(s * w) + az.scatter(s, az.argsort(halved), x)

        return az.sum(az.fori_loop(0, steps, step, x, checkpoint=checkpoint) ** 2)

    return f


LOOPS = [counted, with_outputs, open_ended, nested, permuted]
ONE_FAST = [counted, *[pytest.param(make, marks=pytest.mark.slow) for make in LOOPS[1:]]]
X = np.array([0.3, -0.8, 1.1])


def bits(results: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in results]


@pytest.mark.parametrize("make", LOOPS)
@pytest.mark.parametrize(
    "checkpoint",
    ["sqrt", *[pytest.param(k, marks=pytest.mark.slow) for k in (1, 3, 8, 100, (16, 4), (5, 2, 2))]],
    ids=str,
)
def test_the_same_bits_evaluated(make: Any, checkpoint: Any) -> None:
    plain, kept = (az.evaluate(az.value_and_grad(make(option), argnums=(0, 1))) for option in ("all", checkpoint))
    for steps in (0, 1, 7) if checkpoint == "sqrt" else COUNTS:
        (value, wanted), (same, got) = plain(X, 0.9, steps), kept(X, 0.9, steps)
        assert bits([same, *got]) == bits([value, *wanted])


def mapped(checkpoint: Any, real: Any) -> az.program:
    """Loops side by side, which add to the cotangents of one number and of one array."""

    @az.program
    def f(x: az.Array[real, "n"], w: real, steps: az.i64) -> real:
        def run(y: Any) -> Any:
            def step(i: Any, s: Any) -> Any:
                return az.sin(s * w) + 0.3 * y * x[i % az.size(x)] * az.exp(-s * s)

            return az.fori_loop(0, steps, step, y, checkpoint=checkpoint)

        return az.sum(az.map(run, x))

    return f


@pytest.mark.parametrize("real", [az.f64, pytest.param(az.f32, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize(
    "checkpoint", ["sqrt", *[pytest.param(k, marks=pytest.mark.slow) for k in (3, (16, 4))]], ids=str
)
def test_the_same_bits_inside_of_map(real: Any, checkpoint: Any) -> None:
    """However the loops are widened or cut for threads: sines, exponentials and sums do not depend on it."""
    plain, kept = (az.grad(mapped(option, real), argnums=(0, 1)) for option in ("all", checkpoint))
    generator, w = np.random.default_rng(7), real.dtype.type(0.9)
    for threads in (1, 2):
        one, other = az.compile(plain, threads=threads), az.compile(kept, threads=threads)
        for size in (0, 1, 3, 8, 33, 100):
            x = generator.uniform(-1, 1, size).astype(real.dtype)
            for steps in (0, 1, 7, 100):
                if size or not steps:
                    assert bits(other(x, w, steps)) == bits(one(x, w, steps))


@pytest.mark.parametrize("make", LOOPS)
@pytest.mark.parametrize(
    "checkpoint", [pytest.param(k, marks=pytest.mark.slow) for k in (1, 3, "sqrt", (16, 4))], ids=str
)
def test_the_same_bits_compiled(make: Any, checkpoint: Any) -> None:
    gradients = [az.grad(make(option), argnums=(0, 1)) for option in ("all", checkpoint)]
    for threads in (1, 2):
        plain, kept = (az.compile(gradient, threads=threads) for gradient in gradients)
        for steps in (*COUNTS, 100):
            assert bits(kept(X, 0.9, steps)) == bits(plain(X, 0.9, steps))


@pytest.mark.parametrize("make", ONE_FAST)
def test_second_order(make: Any) -> None:
    gradient, step = az.grad(make("sqrt")), 1e-5
    direction = np.array([0.25, -0.5, 1.0])
    f = az.evaluate(gradient)
    wanted = (f(X + step * direction, 0.9, 7) - f(X - step * direction, 0.9, 7)) / (2 * step)
    got = az.evaluate(az.jvp(gradient))(X, 0.9, 7, direction, 0.0)[1]
    np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-8)


# Functions


@pytest.mark.slow
def test_a_function_that_runs_again() -> None:
    def layer(w: Any, x: Any) -> Any:
        return az.tanh(w @ x)

    def network(layer: Any) -> Any:
        @az.program
        def f(w: az.Array[az.f64, "n n"], x: az.Array[az.f64, "n"]) -> az.f64:
            return az.sum(layer(w, layer(w, layer(w, x))) ** 2)

        return f

    generator = np.random.default_rng(4)
    w, x = generator.normal(size=(5, 5)), generator.normal(size=5)
    plain, again = network(layer), network(az.checkpoint(layer))
    gradients = [az.evaluate(az.value_and_grad(f, argnums=(0, 1)))(w, x) for f in (plain, again)]
    assert bits([gradients[0][0], *gradients[0][1]]) == bits([gradients[1][0], *gradients[1][1]])
    compiled = [az.compile(az.grad(f, argnums=(0, 1)))(w, x) for f in (plain, again)]
    assert bits(compiled[0]) == bits(compiled[1])
    for one, other in zip(compiled[0], gradients[0][1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)
    tangents = [az.evaluate(az.jvp(f))(w, x, w, x)[1] for f in (plain, again)]
    assert bits(tangents[:1]) == bits(tangents[1:])


# Refusals


@pytest.mark.parametrize(
    "body",
    [
        lambda v, x: x,
        lambda v, x: v * x + x[0],
        lambda v, x: az.cond(x[0] > 0.5, lambda: v * x, lambda: x * x),
        lambda v, x: az.map(lambda e: e * az.sum(v * x), x),
        lambda v, x: az.checkpoint(lambda u: u * v * x)(x),
        lambda v, x: az.fori_loop(0, 3, lambda i, s: s * x[i % 2] + v, x),
    ],
    ids=["all", "element", "branch", "map", "checkpoint", "loop"],
)
def test_what_is_captured_may_be_an_argument(body: Any) -> None:
    """One value under two names has one cotangent, in which both meet."""

    def cubed(run: Any) -> az.program:
        @az.program
        def f(x: az.Array[az.f64, "n"]) -> az.f64:
            return az.sum(run(lambda v: body(v, x))(x) ** 3)

        return f

    kept, again = cubed(lambda function: function), cubed(az.checkpoint)
    x = np.array([0.75, -1.25])
    for verb in (az.grad, az.hessian, lambda f: az.grad(lambda x: az.sum(az.grad(f)(x) ** 2))):
        wanted = az.evaluate(verb(kept))(x)
        assert np.any(wanted != 0)
        np.testing.assert_allclose(az.evaluate(verb(again))(x), wanted, rtol=1e-14)


@pytest.mark.parametrize(
    ("checkpoint", "error", "message"),
    [
        (0, ValueError, "have at least one step, not 0"),
        (-3, ValueError, "have at least one step, not -3"),
        ("some", ValueError, "not 'some'"),
        ((), ValueError, r"not \(\)"),
        (2.5, TypeError, "not 2.5"),
        (True, TypeError, "not True"),
    ],
)
@pytest.mark.parametrize("make", LOOPS)
def test_refused(make: Any, checkpoint: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"{message}.*test_checkpoint.py"):
        az.evaluate(make(checkpoint))(X, 0.9, 4)


def test_a_number_of_steps_that_the_run_decides() -> None:
    @az.program
    def f(x: az.f64, k: az.i64) -> az.f64:
        return az.fori_loop(0, 10, lambda i, s: az.sin(s * x), 1.0, checkpoint=k)

    gradient = az.grad(f)
    assert az.evaluate(gradient)(0.7, 3) == az.evaluate(gradient)(0.7, 10)
    for run in (az.evaluate, az.compile):
        with pytest.raises(ValueError, match=r"at least one step, not 0.*test_checkpoint.py"):
            run(gradient)(0.7, 0)
