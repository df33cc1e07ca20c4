"""Parallel loops over the same range run as one, and keep what they pass on (``backends/schedule/loops/fusion``)."""

import re
from typing import Any

import numpy as np
import plain_loops
import pytest
from test_transformations import TINY

import adze as az

pytestmark = pytest.mark.unguarded

# Around the edges of tiles; more rows, and more steps, than a block has; nothing at all
SIZES = [(3, 5, 4), (5, 33, 50), (3, 270, 290), (0, 16, 40), (2, 9, 0)]


@az.program
def squares(
    q: az.Array[az.f64, "k d d"], mu: az.Array[az.f64, "k d"], x: az.Array[az.f64, "n d"]
) -> az.Array[az.f64, "n k"]:
    """|Q (x - mu)|^2 for all pairs: a batch of products, whose columns are summed."""

    def pair(point: az.Expr, mean: az.Expr, factor: az.Expr) -> az.Expr:
        return az.sum((factor @ (point - mean)) ** 2)

    return az.map(lambda point: az.map(lambda mean, factor: pair(point, mean, factor), mu, q), x)


@az.program
def scaled(
    a: az.Array[az.f64, "k d d"], b: az.Array[az.f64, "k d d"]
) -> tuple[az.Array[az.f64, "k d d"], az.Array[az.f64, "k d"]]:
    """Products of pairs of matrices, and the sums of their rows: the products are a result."""
    products = az.map(lambda x, y: az.exp(x) @ y, a, b)
    return products, az.map(lambda product: az.map(az.sum, product), products)


@az.program
def neighbouring(a: az.Array[az.f64, "k d d"], b: az.Array[az.f64, "k d d"]) -> az.Array[az.f64, "k d"]:
    """Sums of the rows of the products of the pair before: of another iteration."""
    products = az.map(lambda x, y: x @ y, a, b)
    return az.generate(
        (a.shape[0], a.shape[1]), lambda k, i: az.sum(products[az.where(k > 0, k - 1, a.shape[0] - 1), i] ** 2)
    )


def given(program: Any, k: int, d: int, n: int) -> tuple[Any, ...]:
    r = np.random.default_rng(k + 2 * d + 3 * n)
    if program is squares:
        return r.standard_normal((k, d, d)), r.standard_normal((k, d)), r.standard_normal((n, d))
    return r.standard_normal((k, d, d)), r.standard_normal((k, d, d))


def wanted(program: Any, *arguments: Any) -> Any:
    if program is squares:
        q, mu, x = arguments
        return (np.einsum("krj,nkj->nkr", q, x[:, None] - mu) ** 2).sum(2)
    a, b = arguments
    if program is scaled:
        return np.exp(a) @ b, (np.exp(a) @ b).sum(2)
    return np.roll(((a @ b) ** 2).sum(2), 1, axis=0)


def loops_of(program: Any, **schedule: Any) -> str:
    return str(az.compile(program, schedule=schedule).loops)


PROGRAMS = pytest.mark.parametrize("program", [squares, scaled, neighbouring], ids=lambda program: program.name)


@PROGRAMS
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values(program: Any, sizes: tuple[int, int, int]) -> None:
    arguments = given(program, *sizes)
    ways = [az.compile(program, threads=2), az.compile(program, threads=1)]
    ways.append(az.compile(program, schedule={"fuse_loops": False}))
    results = [way(*arguments) for way in ways]
    flat = [result if isinstance(result, tuple) else (result,) for result in results]
    expected = wanted(program, *arguments)
    for together, alone, apart, right in zip(*flat, expected if program is scaled else (expected,), strict=True):
        assert together.tobytes() == alone.tobytes() == apart.tobytes()
        np.testing.assert_allclose(together, right, rtol=1e-11, atol=1e-11 * np.max(np.abs(right), initial=1.0))


@PROGRAMS
@pytest.mark.parametrize("sizes", [(2, 3, 5), (3, 9, 17), (0, 4, 4)], ids=str)
def test_loops_are_valid(program: Any, sizes: tuple[int, int, int]) -> None:
    """Also on a processor so small that these are several blocks, where each read and write is looked at."""
    arguments = given(program, *sizes)
    found = plain_loops.lowered(program, TINY, arguments)
    expected = wanted(program, *arguments)
    for one, right in zip(found, expected, strict=True) if program is scaled else [(found, expected)]:
        np.testing.assert_allclose(one, right, rtol=1e-11, atol=1e-11 * np.max(np.abs(right), initial=1.0))


def test_a_product_and_the_sums_of_it_are_one_loop() -> None:
    text = loops_of(squares)
    assert re.search(r"temporary array\w+: f64\[d, n\]", text)
    assert re.search(r"temporary array\w+: f64\[k, d, n\]", text)  # where a matrix is several blocks
    apart = loops_of(squares, fuse_loops=False)
    assert not re.search(r"temporary array\w+: f64\[d, n\]", apart)


def test_what_is_a_result_is_stored_whole() -> None:
    text = loops_of(scaled)
    assert "temporary array" in text  # the exponentials, which nothing else needs
    assert re.search(r"result3\[\w+, \w+, \w+\] = ", text)


def test_a_read_of_another_iteration_keeps_loops_apart() -> None:
    assert not re.search(r"temporary array\w+: f64\[d, d\]", loops_of(neighbouring))


def test_a_choice_by_sizes_has_its_own_copy_in_each_branch() -> None:
    """Each place is written once, in whichever branch runs."""
    text = loops_of(squares)
    assert text.count("] = sum") + text.count("result1[") > 2
    names = re.findall(r"temporary (\w+):", text)
    assert len(names) == len(set(names))


@az.program
def deciding(x: az.Array[az.f64, "n m"], s: az.f64) -> az.Array[az.f64, "n"]:
    """A choice that makes an array and a number; what is computed from the number comes before the sums."""
    a, c = az.cond(s > 0, lambda: (az.sin(x), az.exp(s)), lambda: (az.cos(x), az.sin(s)))
    d = az.exp(c)
    return az.map(lambda row: az.sum(row * d), a)


@pytest.mark.parametrize("s", [0.5, -0.5])
def test_a_choice_stays_before_what_reads_its_number(s: float) -> None:
    x = np.arange(20.0).reshape(5, 4)
    expected = np.sum(np.sin(x), 1) * np.exp(np.exp(s)) if s > 0 else np.sum(np.cos(x), 1) * np.exp(np.sin(s))
    np.testing.assert_allclose(az.compile(deciding)(x, s), expected, rtol=1e-12)


@az.program
def growing(x: az.f64, n: az.i64) -> tuple[az.Array[az.f64, "_"], az.Array[az.f64, "_"]]:
    """Temporaries that are as long as the number of their iteration, in both of the loops that become one."""

    def sums(factor: Any) -> Any:
        return az.generate(n, lambda i: az.sum(factor(i) * az.cumsum(az.generate(i, lambda j: x * j))[::-1]))

    first = sums(lambda i: 1.0)
    return first, sums(lambda i: first[i])


def test_temporaries_as_long_as_an_iteration_says() -> None:
    first, second = az.compile(growing)(0.5, 9)
    expected = np.array([np.sum(np.cumsum(0.5 * np.arange(i))) for i in range(9)])
    np.testing.assert_allclose(first, expected, rtol=1e-12)
    np.testing.assert_allclose(second, expected**2, rtol=1e-12)
