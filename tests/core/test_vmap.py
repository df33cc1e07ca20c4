"""``az.vmap`` against the calls one by one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import adze as az
from adze.core.dims import Dim
from adze.core.types import dims

pytestmark = pytest.mark.unguarded

RANDOM = np.random.default_rng(3)
ROWS = RANDOM.standard_normal((5, 3))


@az.program
def layer(w: az.Array[az.f64, "n m"], x: az.Array[az.f64, "m"], b: az.f64, times: int = 2) -> Any:
    y = az.tanh(w @ x) + b * times
    return {"y": y, "total": az.sum(y), "weights": az.sum(w)}


def layers(w: Any, x: Any, b: Any) -> Any:
    return np.tanh(x @ w.T) + 2 * b[:, None]


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_axes_of_arguments_and_results(run: Callable[..., Any]) -> None:
    w, b = RANDOM.standard_normal((4, 3)), RANDOM.standard_normal(5)
    wanted = layers(w, ROWS, b)
    for x, at in ((ROWS, 0), (ROWS.T, 1), (ROWS.T, -1), (ROWS, np.int64(-2))):
        mapped = az.vmap(layer, (None, at, 0, None), {"y": 1, "total": 0, "weights": None})
        found = run(mapped)(w, x, b)
        np.testing.assert_allclose(found["y"], wanted.T, rtol=1e-12)
        np.testing.assert_allclose(found["total"], wanted.sum(1), rtol=1e-12)
        np.testing.assert_allclose(found["weights"], w.sum(), rtol=1e-12)
    back = az.vmap(layer, (None, 0, 0, None), -1)
    assert run(back)(w, ROWS, b)["y"].shape == (4, 5) and run(back)(w, ROWS, b)["weights"].shape == (5,)


def test_the_annotations_of_a_batch() -> None:
    mapped = az.vmap(layer, (None, 1, 0))
    w, x, b, times = mapped.parameters
    assert [dims(p.type) for p in (w, x, b)] == [  # type: ignore[arg-type]
        (Dim.of("n"), Dim.of("m")),
        (Dim.of("m"), Dim.of("batch")),
        (Dim.of("batch"),),
    ]
    assert times.static is int and times.default == 2

    @az.program
    def taken(x: az.Array[az.f64, "batch"]) -> az.f64:
        return az.sum(x)

    assert dims(az.vmap(taken).parameters[0].type) == (Dim.of("batch2"), Dim.of("batch"))  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_batches_of_any_length(count: int) -> None:
    found = az.compile(az.vmap(lambda x, y: (x * y, az.sum(x))))(np.ones((count, 3)), np.ones(count))
    assert found[0].shape == (count, 3) and found[1].shape == (count,)


class Pair(NamedTuple):
    a: az.f64
    b: az.Array[az.f64, "k"]


@dataclass
class Parameters:
    w: az.Array[az.f64, "k"]
    c: az.f64


def test_structures() -> None:
    @az.program
    def f(pair: Pair, own: Parameters, rest: Any) -> Any:
        return pair.a * pair.b + own.w * own.c, rest["p"][0] + pair.a

    k = RANDOM.standard_normal(3)
    a, p = RANDOM.standard_normal((2, 5))
    mapped = az.vmap(f, (Pair(0, None), Parameters(1, None), {"p": (0, None)}))
    found = az.compile(mapped)(Pair(a, k), Parameters(ROWS.T, 2.0), {"p": (p, 1.0)})
    np.testing.assert_allclose(found[0], np.outer(a, k) + 2 * ROWS)
    np.testing.assert_allclose(found[1], p + a)


def test_inside_of_programs() -> None:
    """A Python function may capture what is around it, and is mapped in any order of axes."""

    @az.program
    def outer(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "m"]) -> az.Array[az.f64, "n m"]:
        scale = az.sum(x)
        return az.vmap(az.vmap(lambda a, b: a * b * scale, (None, 0)), (0, None))(x, y)

    x, y = np.arange(3.0), np.arange(4.0)
    np.testing.assert_allclose(az.compile(outer)(x, y), 3 * np.outer(x, y))


@az.program
def loss(w: az.Array[az.f64, "m"], x: az.Array[az.f64, "m"]) -> az.f64:
    return az.sum(az.sin(w) * x) ** 2


def test_with_derivatives() -> None:
    w = np.array([0.3, -0.2, 0.9])
    rows = np.stack([az.grad(loss)(w, x) for x in ROWS])
    np.testing.assert_allclose(az.compile(az.vmap(az.grad(loss), (None, 0)))(w, ROWS), rows, rtol=1e-12)
    np.testing.assert_allclose(az.compile(az.jacobian(az.vmap(loss, (None, 0))))(w, ROWS), rows, rtol=1e-12)
    np.testing.assert_allclose(
        az.grad(lambda w, x: az.sum(az.vmap(loss, (None, 0))(w, x)))(w, ROWS), rows.sum(0), rtol=1e-12
    )
    pulled = az.vmap(az.vjp(loss), (None, 0, 0))(w, ROWS, np.arange(5.0))
    np.testing.assert_allclose(pulled[1], np.arange(5.0)[:, None] * rows, rtol=1e-12)
    doubled = az.vmap(az.hvp(loss), (None, 0, None))(w, ROWS, w)
    np.testing.assert_allclose(doubled, [az.hvp(loss)(w, x, w) for x in ROWS], rtol=1e-12)


def test_what_all_calls_share_is_computed_once() -> None:
    def f(w: Any, x: Any) -> Any:
        return az.sum(az.exp(w)) * x

    mapped = az.cost(
        az.program(lambda w, x: az.vmap(f, (None, 0))(w, x)).at(az.Array[az.f64, "n"], az.Array[az.f64, "b"])
    )
    alone = az.cost(az.program(lambda w, x: az.sum(az.exp(w)) * x).at(az.Array[az.f64, "n"], az.Array[az.f64, "b"]))
    sizes = {"n": 1000, "b": 1000}
    assert mapped.operations.evaluate(sizes) == alone.operations.evaluate(sizes)


@az.program
def scaled(x: az.f64, slope: az.f64 = 2.0) -> az.f64:
    return slope * x


def plainly_scaled(x: Any, slope: Any = 2.0) -> Any:
    return slope * x


@pytest.mark.parametrize("run", [lambda f: f, az.evaluate, az.compile])
@pytest.mark.parametrize("f", [scaled, plainly_scaled])
def test_defaults_are_shared_where_nothing_is_given(f: Any, run: Callable[..., Any]) -> None:
    """As in JAX: what a call leaves out is not passed through vmap; what it gives is mapped, by keyword, too."""
    x, slope = np.arange(3.0), np.array([5.0, -1.0, 0.5])
    mapped = run(az.vmap(f))
    for _ in range(2):  # one program takes both
        np.testing.assert_array_equal(mapped(x), 2.0 * x)
        np.testing.assert_array_equal(mapped(x, slope), slope * x)
        np.testing.assert_array_equal(mapped(x, slope=slope), slope * x)
    np.testing.assert_array_equal(run(az.vmap(f, (0,)))(x), 2.0 * x)
    np.testing.assert_array_equal(run(az.vmap(f, (0,)))(x, slope), slope * x)
    np.testing.assert_array_equal(run(az.vmap(f, (0, None)))(x), 2.0 * x)
    np.testing.assert_array_equal(run(az.vmap(az.vmap(f)))(ROWS), 2.0 * ROWS)
    np.testing.assert_array_equal(run(az.vmap(az.vmap(f)))(ROWS, ROWS), ROWS * ROWS)
    np.testing.assert_array_equal(run(az.vmap(az.vmap(f), (0, None)))(ROWS), 2.0 * ROWS)
    np.testing.assert_array_equal(run(az.vmap(az.grad(f)))(x), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(run(az.jacobian(az.vmap(f)))(x), np.diag([2.0, 2.0, 2.0]))


OWN = {"a": 3.0, "b": np.ones(2)}
OFFSETS = np.arange(3.0)


def test_defaults_that_are_structures_or_mapped() -> None:
    def f(x: Any, own: Any = OWN, *, times: Any = 2.0) -> Any:
        return (x * own["a"] + own["b"]) * times

    x = np.arange(3.0)
    np.testing.assert_array_equal(az.vmap(f)(x), (3.0 * x[:, None] + np.ones(2)) * 2.0)
    np.testing.assert_array_equal(
        az.vmap(f)(x, {"a": x, "b": ROWS[:3]}, times=x), (x[:, None] ** 2 + ROWS[:3]) * x[:, None]
    )
    added = az.vmap(lambda x, offset=OFFSETS: x + offset, (0, 0))  # in_axes says so
    np.testing.assert_array_equal(added(x), x + OFFSETS)


def test_sizes_that_differ() -> None:
    with pytest.raises(ValueError, match=r"batch is 5 in argument 'w'.*but 4 in argument 'x'"):
        az.vmap(loss)(ROWS, ROWS[:4])
    with pytest.raises(Exception, match=r"vmap\(<lambda>\): .*5.*4"):
        az.vmap(lambda a, b: a + b)(np.ones(5), np.ones(4))


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: az.vmap(loss, None), ValueError, "None for all parameters"),
    (lambda: az.vmap(loss, (None, None)), ValueError, "None for all parameters"),
    (lambda: az.vmap(loss, (0,)), TypeError, r"1 parts, one for each parameter are 2 \(w, x\)"),
    (lambda: az.vmap(loss, 2), ValueError, "'w': axis 2 of an array of 2 axes"),
    (lambda: az.vmap(loss, -3), ValueError, "'w': axis -3 of an array of 2 axes"),
    (lambda: az.vmap(loss, True), TypeError, "an axis is a Python integer or None, not True"),
    (lambda: az.vmap(loss, 0.5), TypeError, "an axis is a Python integer or None, not 0.5"),
    (lambda: az.vmap(loss, ((0, 0), None)), TypeError, "'w' is for one leaf, got a tuple of 2"),
    (lambda: az.vmap(3), TypeError, "vmap takes a program or a Python function, not 3"),  # type: ignore[arg-type]
    (lambda: az.vmap(lambda x: x)(1.0), ValueError, "'x' is a scalar, which has no axes"),
    (lambda: az.vmap(lambda x: x, 1)(np.ones(3)), ValueError, r"axis 1 of a value of type f64\[x_0\]"),
    (lambda: az.vmap(lambda x: x, out_axes=1)(np.ones(3)), ValueError, "axis 1 of an array of 1 axes"),
    (lambda: az.vmap(lambda x: x, out_axes=None)(np.ones(3)), ValueError, "another in each call"),
    (lambda: az.vmap(lambda x: x, out_axes=(0, 0))(np.ones(3)), TypeError, "out_axes is for one leaf"),
    (lambda: az.vmap(lambda x: (x, x), out_axes=(0, 0, 0))(np.ones(3)), TypeError, "out_axes is a tuple of 2, got"),
    (lambda: az.vmap(lambda x: x["a"], ({"b": 0},))({"a": ROWS}), TypeError, "in_axes of 'x' is a dictionary"),
    (lambda: az.vmap(lambda x: x["a"], ({"a": None},))({"a": ROWS}), ValueError, "no argument has anything"),
]


@pytest.mark.parametrize("wrong", WRONG, ids=[match for _, _, match in WRONG])
def test_axes_that_do_not_fit(wrong: tuple[Callable[[], Any], type[Exception], str]) -> None:
    use, error, match = wrong
    with pytest.raises(error, match=rf"(?s){match}.*test_vmap.py:\d+"):
        use()
