"""Sizes that are small and known: code for them is not worse than code for sizes that have names.

What is known lets short loops be written out and short arrays be kept in registers. It must not keep a gradient's
updates from becoming sums, or make lanes of a loop that fills a part of a register.
"""

import re
from typing import Any

import numpy as np
import pytest
from programs import numbers
from sampling import some
from stripped import without_annotations
from vectors import WIDE

import adze as az

pytestmark = pytest.mark.unguarded

LANES = re.compile(r"lanes i\d+ < (\d+) by")  # but for those that copy an array


def network(w: az.Array[az.f64, "d h"], v: az.Array[az.f64, "h o"], x: az.Array[az.f64, "n d"]) -> az.f64:
    return az.sum((az.tanh(x @ w) @ v) ** 2)


def softmax(w: az.Array[az.f64, "d c"], x: az.Array[az.f64, "n d"], y: az.Array[az.f64, "n c"]) -> az.f64:
    return az.sum(az.map(lambda p, t: az.logsumexp(p @ w) - t @ (p @ w), x, y))


def attention(q: az.Array[az.f64, "n d"], k: az.Array[az.f64, "m d"], v: az.Array[az.f64, "m e"]) -> az.f64:
    def row(a: Any) -> Any:
        weights = az.exp(az.map(lambda b: a @ b, k))
        return (weights / az.sum(weights)) @ v

    return az.sum(az.map(row, q) ** 2)


def quadratics(m: az.Array[az.f64, "k d d"], x: az.Array[az.f64, "n d"]) -> az.f64:
    """A mixture: the updates of a matrix are in a loop inside of the one that they share."""
    return az.sum(az.map(lambda p: az.log(az.sum(az.map(lambda a: az.exp(az.sum((a @ p) ** 2)), m))), x))


GRADIENTS = {
    "network": (az.grad(az.program(network), argnums=(0, 1, 2)), [(10, 16), (16, 3), (40, 10)]),
    "narrow": (az.grad(az.program(network), argnums=(0, 1, 2)), [(3, 8), (8, 2), (40, 3)]),
    "softmax": (az.grad(az.program(softmax)), [(16, 10), (40, 16), (40, 10)]),
    "attention": (az.grad(az.program(attention), argnums=(0, 1, 2)), [(40, 4), (50, 4), (50, 4)]),
    "quadratics": (az.grad(az.program(quadratics), argnums=(0, 1)), [(25, 3, 3), (40, 3)]),
}


@pytest.mark.rest
@pytest.mark.parametrize("name", some(GRADIENTS, 3))
def test_updates_become_sums(name: str) -> None:
    gradient, shapes = GRADIENTS[name]
    arguments = [numbers(*shape, seed=k) / 4 for k, shape in enumerate(shapes)]
    # without blocks of rows, which add to sums of their own
    annotated, bare = [
        az.compile(program, schedule={"fuse_rows": False}) for program in (gradient, without_annotations(gradient))
    ]
    for found, wanted in zip(_flat(bare(*arguments)), _flat(annotated(*arguments)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)
    [own, *_] = bare.specialisations
    assert " = " in own.condition
    assert "adds to" not in annotated.schedule
    assert "adds to" not in bare.schedule


def test_updates_at_places_of_their_own_do_not_store_arrays() -> None:
    """Who knows whether two observations are of one camera? A sum over observations is not to be had."""

    @az.program
    def loss(cameras: az.Array[az.f64, "c 3"], seen: az.Array[az.i64, "p"], points: az.Array[az.f64, "p 3"]) -> az.f64:
        return az.sum(az.map(lambda j, p: az.sum((az.sin(cameras[j] * p) - p) ** 2), seen, points))

    compiled = az.compile(az.grad(loss))
    cameras, points = numbers(4, 3), numbers(30, 3, seed=1)
    seen = np.arange(30) % 4
    wanted = np.zeros((4, 3))
    np.add.at(wanted, seen, 2 * (np.sin(cameras[seen] * points) - points) * np.cos(cameras[seen] * points) * points)
    np.testing.assert_allclose(compiled(cameras, seen, points), wanted, rtol=1e-12)
    assert "stored for all i < p: f64[3]" not in compiled.schedule


def test_lanes_are_filled() -> None:
    """The forces between bodies: sums over many bodies of vectors of three, which are no lanes."""

    @az.program
    def forces(p: az.Array[az.f64, "n 3"], m: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n 3"]:
        def one(a: Any, b: Any, mass: Any) -> Any:
            d = b - a
            s = d @ d + 1e-3
            return mass * d / (s * az.sqrt(s))

        return az.map(lambda a: az.sum(az.map(lambda b, mass: one(a, b, mass), p, m), 0), p)

    compiled = az.compile(forces)
    p, m = numbers(40, 3), numbers(40, seed=1)
    d = p[None, :] - p[:, None]
    s = np.sum(d**2, 2) + 1e-3
    np.testing.assert_allclose(compiled(p, m), np.sum(m[:, None] * d / (s * np.sqrt(s))[..., None], 1), rtol=1e-10)
    assert not WIDE or LANES.findall(compiled.schedule) == []


def test_what_follows_a_short_sum_is_computed_in_lanes() -> None:
    """Lanes along eight squares would leave the exponential to be computed for one sum at a time."""

    @az.program
    def kernels(x: az.Array[az.f64, "n 8"], c: az.Array[az.f64, "k 8"]) -> az.Array[az.f64, "n k"]:
        return az.map(lambda a: az.map(lambda b: az.exp(-az.sum((a - b) ** 2)), c), x)

    compiled = az.compile(kernels)
    x, c = numbers(30, 8), numbers(20, 8, seed=1)
    np.testing.assert_allclose(compiled(x, c), np.exp(-np.sum((x[:, None] - c) ** 2, 2)), rtol=1e-12)
    assert "combining" not in compiled.schedule


def _flat(value: Any) -> list[Any]:
    return [part for each in value for part in _flat(each)] if isinstance(value, tuple) else [value]
