"""Products of square matrices under all reductions: extents that are equal make loops that look the same.

Programs are drawn as text, which NumPy runs too. They are polynomial, so NumPy's complex numbers give derivatives that
are exact but for rounding: the imaginary part of f(x + ih)/h.
"""

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sampling import some

import adze as az

pytestmark = pytest.mark.unguarded

LEAVES = (
    "a",
    "b",
    "a.T",
    "b.T",
    "xp.eye(n)",
    "xp.diag(v)",
    "xp.tril(a)",
    "xp.tril(a, -1)",
    "xp.triu(b)",
    "xp.outer(v, v)",
    "a[xp.argsort(v)]",
)
PRODUCTS = ("({} @ {})",) * 3 + ("({} @ {}).T", "xp.tril({} @ {})", "xp.triu({}, 1) @ {}", "({} + {})", "({} * {})")
REDUCTIONS = (
    "xp.sum({})",
    "xp.sum(xp.sum({}, axis=0) ** 2)",
    "xp.sum({}.sum(1) * v)",
    "xp.sum(v @ {})",
    "xp.sum({} @ v)",
    "v @ {} @ v",
    "xp.sum(xp.diagonal({}))",
    "xp.sum({}) / 7",
    "xp.sum(xp.sum({}, 0) * xp.sum({}, 1))",
    "xp.sum({} * {})",
)
ARRAYS = ("{}", "xp.sum({}, axis=0)", "({}).sum(1)", "xp.diagonal({})", "{} @ v", "v @ {}")


def matrix(draw: random.Random, depth: int) -> str:
    """A square matrix."""
    if not depth:
        return draw.choice(LEAVES)
    return draw.choice(PRODUCTS).format(matrix(draw, draw.randrange(depth)), matrix(draw, depth - 1))


def scalar(draw: random.Random) -> str:
    form = draw.choice(REDUCTIONS)
    return form.format(*[matrix(draw, draw.randrange(1, 4)) for _ in range(form.count("{}"))])


def compare(text: str, sizes: str, n: int) -> None:
    """A program and its gradient against NumPy."""
    meaning: Callable[..., Any] = eval(f"lambda xp, n, a, b, v: {text}")
    Matrix, Vector = az.Array[az.f64, f"{sizes} {sizes}"], az.Array[az.f64, sizes]

    def program(a: Matrix, b: Matrix, v: Vector) -> Any:  # type: ignore[valid-type]
        return meaning(az, a.shape[0], a, b, v)

    r = np.random.default_rng(n)
    arguments = r.uniform(-1, 1, (n, n)), r.uniform(-1, 1, (n, n)), r.uniform(-1, 1, n)
    wanted = meaning(np, n, *arguments)
    near = {"rtol": 1e-11, "atol": 1e-11 * max(1.0, n**2)}
    np.testing.assert_allclose(az.compile(program)(*arguments), wanted, **near)
    if np.ndim(wanted):
        return
    gradient = az.compile(az.grad(program, argnums=(0, 1, 2)))(*arguments)
    for k, found in enumerate(gradient):
        for place in itertools.islice(np.ndindex(found.shape), 0, None, max(1, found.size // 8)):
            moved = [x.astype(complex) for x in arguments]
            moved[k][place] += 1e-30j
            np.testing.assert_allclose(found[place], meaning(np, n, *moved).imag / 1e-30, **near)


@pytest.mark.parametrize("sizes", ["n", "4"])
@pytest.mark.parametrize(
    "text",
    [
        "xp.sum(a @ b)",
        "xp.sum(a @ a)",
        "(a @ b).sum(1)",
        "xp.sum(xp.eye(n) @ b)",
        "xp.sum(xp.diag(v) @ b)",
        "(xp.tril(a) @ xp.tril(a)).sum(1)",
        "xp.sum(v @ ((a * a.T) * xp.triu(xp.eye(n), 1) @ a))",
        "xp.sum(xp.diagonal(a[xp.argsort(v)].T @ a[xp.argsort(v)] @ xp.ones((n, n))))",
        "xp.sum(xp.sum((xp.diag(v) @ xp.outer(v, v)).T, 0) * xp.sum(xp.tril(a) @ xp.diag(v) @ xp.diag(v), 1))",
    ],
)
def test_sums_of_products(text: str, sizes: str) -> None:
    compare(text, sizes, 4)


@pytest.mark.parametrize("seed", range(6))
def test_drawn_programs(seed: int) -> None:
    draw = random.Random(seed)
    compare(scalar(draw), *draw.choice([("n", 0), ("n", 1), ("n", 33), ("7", 7)]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(6, 200), 8, long=0))
def test_more_drawn_programs(seed: int) -> None:
    draw = random.Random(seed)
    text = scalar(draw) if draw.random() < 0.7 else draw.choice(ARRAYS).format(matrix(draw, 3))
    compare(text, *draw.choice([("n", 3), ("4", 4), ("n", 33), ("n", 0), ("n", 1), ("7", 7)]))
