"""Products in tiles: every size around their edges, every guise of a factor, every type; values are NumPy's."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import plain_loops
import pytest
from test_transformations import TINY

import adze as az
from adze.backends.lowering.tiles import tile_of

pytestmark = pytest.mark.unguarded

# Around the edges of a register, a tile, a block and what is worth tiles
SIZES = [(0, 20, 20), (1, 1, 1), (8, 16, 400), (9, 17, 400), (31, 33, 64), (64, 64, 64), (130, 70, 515), (300, 1, 300)]
# One extent is half of what is worth tiles, or a bit more, and the others are long
SIZES += [(4, 64, 64), (32, 64, 8), (40, 70, 10), (32, 8, 64), (70, 9, 90)]

Matrix = np.ndarray[Any, Any]


@az.program
def plain(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "m k"]) -> az.Array[az.f64, "n k"]:
    return a @ b


@az.program
def right_transposed(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "k m"]) -> az.Array[az.f64, "n k"]:
    return a @ b.T


@az.program
def left_transposed(a: az.Array[az.f64, "m n"], b: az.Array[az.f64, "m k"]) -> az.Array[az.f64, "n k"]:
    return a.T @ b


@az.program
def single(a: az.Array[az.f32, "n m"], b: az.Array[az.f32, "m k"]) -> az.Array[az.f32, "n k"]:
    return a @ b


@az.program
def whole(a: az.Array[az.i64, "n m"], b: az.Array[az.i64, "m k"]) -> az.Array[az.i64, "n k"]:
    return a @ b


@az.program
def layer(x: az.Array[az.f64, "n m"], w: az.Array[az.f64, "m k"], b: az.Array[az.f64, "k"]) -> az.Array[az.f64, "n k"]:
    """Factors that are computed, and an epilogue."""

    def entry(i: az.Expr, j: az.Expr) -> az.Expr:
        return az.tanh(az.sum(az.generate(x.shape[1], lambda p: (2.0 - x[i, p]) * (w[p, j] - b[j]))) + b[j])

    return az.generate((x.shape[0], w.shape[1]), entry)


@az.program
def batch(
    q: az.Array[az.f64, "k r m"], x: az.Array[az.f64, "n m"], mu: az.Array[az.f64, "k m"]
) -> az.Array[az.f64, "k n r"]:
    def entry(k: az.Expr, i: az.Expr, r: az.Expr) -> az.Expr:
        return az.sum(az.generate(x.shape[1], lambda j: q[k, r, j] * (x[i, j] - mu[k, j])))

    return az.generate((q.shape[0], x.shape[0], q.shape[1]), entry)


@az.program
def over_two(x: az.Array[az.f64, "b t m"], g: az.Array[az.f64, "b t k"]) -> az.Array[az.f64, "m k"]:
    """The gradient of a layer's weights: a sum over two loops."""

    def entry(i: az.Expr, j: az.Expr) -> az.Expr:
        def row(b: az.Expr) -> az.Expr:
            return az.sum(az.generate(x.shape[1], lambda t: x[b, t, i] * g[b, t, j]))

        return az.sum(az.generate(x.shape[0], row))

    return az.generate((x.shape[2], g.shape[2]), entry)


def matrices(n: int, m: int, k: int, dtype: Any = np.float64) -> tuple[Matrix, Matrix]:
    r = np.random.default_rng(n + 2 * m + 3 * k)
    if np.issubdtype(dtype, np.integer):
        return r.integers(-50, 50, (n, m)), r.integers(-50, 50, (m, k))
    return r.standard_normal((n, m)).astype(dtype), r.standard_normal((m, k)).astype(dtype)


@pytest.mark.parametrize(("n", "m", "k"), SIZES)
def test_products_of_all_sizes(n: int, m: int, k: int) -> None:
    a, b = matrices(n, m, k)
    np.testing.assert_allclose(az.compile(plain)(a, b), a @ b, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(az.compile(right_transposed)(a, b.T.copy()), a @ b, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(az.compile(left_transposed)(a.T.copy(), b), a @ b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("n", "m", "k"), [(33, 65, 47), (100, 300, 90)])
def test_products_of_other_scalars(n: int, m: int, k: int) -> None:
    a, b = matrices(n, m, k, np.float32)
    np.testing.assert_allclose(az.compile(single)(a, b), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
    c, d = matrices(n, m, k, np.int64)
    np.testing.assert_array_equal(az.compile(whole)(c, d), c @ d)


@pytest.mark.parametrize(("n", "m", "k"), [(10, 20, 600), (65, 130, 70)])
def test_factors_that_are_computed_and_an_epilogue(n: int, m: int, k: int) -> None:
    x, w = matrices(n, m, k)
    b = w[0] / 2
    np.testing.assert_allclose(az.compile(layer)(x, w, b), np.tanh((2.0 - x) @ (w - b) + b), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("k", "n", "m"), [(3, 70, 33), (2, 200, 16), (5, 30, 40), (0, 70, 33)])
def test_a_batch_whose_factor_varies_with_it(k: int, n: int, m: int) -> None:
    r = np.random.default_rng(k)
    q, x, mu = r.standard_normal((k, m, m)), r.standard_normal((n, m)), r.standard_normal((k, m))
    wanted = np.einsum("krj,knj->knr", q, x[None] - mu[:, None])
    np.testing.assert_allclose(az.compile(batch)(q, x, mu), wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("b", "t", "m", "k"), [(3, 20, 50, 64), (2, 300, 33, 40), (0, 20, 50, 64), (9, 3, 5, 7)])
def test_a_sum_over_two_loops(b: int, t: int, m: int, k: int) -> None:
    r = np.random.default_rng(b)
    x, g = r.standard_normal((b, t, m)), r.standard_normal((b, t, k))
    compiled = az.compile(over_two)
    np.testing.assert_allclose(compiled(x, g), np.einsum("bti,btj->ij", x, g), rtol=1e-11, atol=1e-11)
    assert "left" in str(compiled.loops)


def test_what_is_not_finite_stays_in_its_row_and_column() -> None:
    a, b = matrices(33, 40, 35)
    a[5, 7], b[3, 34], b[4, 0] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(az.compile(plain)(a, b), a @ b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("program", [plain, right_transposed, layer])
def test_threads_change_nothing(program: Any) -> None:
    a, b = matrices(150, 150, 150)
    arguments = (a, b, b[0]) if program is layer else (a, b)
    first, *others = [az.compile(program, threads=threads)(*arguments) for threads in (1, 2, 7)]
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_tiles_give_what_the_plain_nest_gives() -> None:
    """Sums are made in the same order."""
    a, b = matrices(150, 300, 70)
    np.testing.assert_array_equal(az.compile(plain, schedule={"contract": False})(a, b), az.compile(plain)(a, b))


@pytest.mark.rest
@pytest.mark.parametrize(("n", "m", "k"), [(10, 70, 30000), (19, 33, 40001), (40, 200, 9001)])
def test_the_longer_side_is_not_packed_as_a_whole(n: int, m: int, k: int) -> None:
    """It is the rows, wherever it stands, and the results are written across: the bits are those of plain loops."""
    a, b = matrices(n, m, k)
    given = (a, b), (a, b.T.copy()), (a.T.copy(), b), (a, b, b[0])
    for program, arguments in zip((plain, right_transposed, left_transposed, layer), given, strict=True):
        compiled = az.compile(program, threads=1)
        found = compiled(*arguments)
        np.testing.assert_array_equal(found, az.compile(program, threads=3)(*arguments))
        np.testing.assert_array_equal(found, az.compile(program, schedule={"contract": False})(*arguments))
        assert compiled.peak_bytes(*arguments) < b.nbytes


def test_products_are_run_in_tiles() -> None:
    for program, types in ((plain, 2), (right_transposed, 2), (left_transposed, 2), (layer, 3)):
        arguments = (*matrices(3, 3, 3), np.ones(3))[:types]
        compiled = az.compile(program)
        compiled(*arguments)
        assert "right" in str(compiled.loops) and "tiles of" in str(compiled.schedule)


def test_rows_are_packed_where_they_are_computed_or_not_contiguous() -> None:
    def packs_rows(program: Any, *more: Any) -> bool:
        compiled = az.compile(program)
        compiled(*matrices(3, 3, 3), *more)
        return "temporary left" in str(compiled.loops)

    assert not packs_rows(right_transposed)  # whichever of the two are rows
    assert packs_rows(left_transposed) and packs_rows(layer, np.ones(3))


@pytest.mark.parametrize(("n", "m", "k"), [(4, 8, 16), (5, 9, 17), pytest.param(13, 19, 41, marks=pytest.mark.slow)])
def test_loops_of_a_tiny_core(n: int, m: int, k: int) -> None:
    a, b = matrices(n, m, k)
    arguments = (a, b), (a, b.T.copy()), (a.T.copy(), b), (a, b, b[0])
    for program, given in zip((plain, right_transposed, left_transposed, layer), arguments, strict=True):
        found = plain_loops.lowered(program, TINY, given)
        np.testing.assert_allclose(found, az.evaluate(program)(*given), rtol=1e-11, atol=1e-11)
    x, g = np.stack([a.T, a.T]), np.stack([b, 2 * b])
    found = plain_loops.lowered(over_two, TINY, (x, g))
    np.testing.assert_allclose(found, az.evaluate(over_two)(x, g), rtol=1e-11, atol=1e-11)


def test_tiles_have_the_rows_that_registers_hold() -> None:
    """Panels of 6 rows are packed by registers, of which the last may be half of one."""
    cores = [replace(TINY, registers=registers) for registers in (8, 16, 32)]
    assert [tile_of(core, az.f64) for core in cores] == [(2, 4), (6, 4), (8, 4)]
    wide = replace(TINY, registers=16, register_bytes=32)
    assert tile_of(wide, az.f64) == (6, 8)
    a, b = matrices(15, 17, 9)
    for program, given in ((plain, (a, b)), (left_transposed, (a.T.copy(), b))):
        np.testing.assert_allclose(plain_loops.lowered(program, wide, given), a @ b, rtol=1e-11, atol=1e-11)


# Several products in one nest


@az.program
def cell(
    x: az.Array[az.f64, "n m"],
    w: az.Array[az.f64, "m k"],
    h: az.Array[az.f64, "n l"],
    u: az.Array[az.f64, "l k"],
    b: az.Array[az.f64, "k"],
) -> Any:
    """A step of a recurrent network: two products, and a third one whose factor is computed."""
    return az.tanh(x @ w + h @ u + b) * az.sigmoid((h - 1.0) @ (2.0 * u))


@az.program
def turned_cell(
    x: az.Array[az.f64, "n m"],
    w: az.Array[az.f64, "m k"],
    h: az.Array[az.f64, "n l"],
    u: az.Array[az.f64, "l k"],
    b: az.Array[az.f64, "k"],
) -> Any:
    return az.generate((w.shape[1], x.shape[0]), lambda j, i: x[i] @ w[:, j] - b[j] * (h[i] @ u[:, j]))


@az.program
def with_rows(
    x: az.Array[az.f64, "n m"],
    w: az.Array[az.f64, "m k"],
    h: az.Array[az.f64, "n l"],
    u: az.Array[az.f64, "l k"],
    b: az.Array[az.f64, "k"],
) -> Any:
    """One of the sums is no product, and one needs another."""

    def entry(i: az.Expr, j: az.Expr) -> az.Expr:
        first = x[i] @ w[:, j]
        return az.sum(az.generate(h.shape[1], lambda p: (h[i, p] + first) * u[p, j])) + az.max(h[i] + b[j])

    return az.generate((x.shape[0], w.shape[1]), entry)


CELLS: dict[Any, Any] = {
    cell: lambda x, w, h, u, b: np.tanh(x @ w + h @ u + b) / (1 + np.exp(-(h - 1) @ (2 * u))),
    turned_cell: lambda x, w, h, u, b: (x @ w - b * (h @ u)).T,
    with_rows: lambda x, w, h, u, b: h @ u + (x @ w) * u.sum(0) + (h[:, None] + b[:, None]).max(2),
}


def cell_arguments(n: int, m: int, k: int, l: int) -> tuple[Matrix, ...]:
    r = np.random.default_rng(n + l)
    return tuple(r.standard_normal(size) / 4 for size in ((n, m), (m, k), (n, l), (l, k), (k,)))


@pytest.mark.parametrize("program", CELLS)
@pytest.mark.parametrize(
    ("n", "m", "k", "l"),
    [(33, 40, 65, 50), (70, 33, 70, 3), (1, 5, 1, 2), (0, 4, 4, 4), (40, 0, 64, 50), (9, 300, 300, 9)],
)
def test_several_products_in_a_nest(program: Any, n: int, m: int, k: int, l: int) -> None:
    given = cell_arguments(n, m, k, l)
    found = az.compile(program, threads=1)(*given)
    np.testing.assert_allclose(found, CELLS[program](*given), rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(az.compile(program, threads=3)(*given), found)
    np.testing.assert_array_equal(az.compile(program, schedule={"contract": False})(*given), found)


def test_each_of_several_products_is_run_in_tiles() -> None:
    text = str(az.compile(cell).loops)
    assert len(set(re.findall(r"temporary (product\d+)", text))) >= 2
    assert "product" not in str(az.compile(with_rows).loops)


# Triangles


@az.program
def triangular(q: az.Array[az.f64, "k d d"], x: az.Array[az.f64, "n d"]) -> az.Array[az.f64, "k d n"]:
    """A lower triangular factor, of rows."""
    lower = az.generate(q.shape, lambda k, i, j: az.cond(i >= j, lambda: az.exp(q[k, i, j]), lambda: 0.0))
    return az.map(lambda one: one @ x.T, lower)


@az.program
def upper(q: az.Array[az.f64, "d d"], x: az.Array[az.f64, "n d"]) -> az.Array[az.f64, "n d"]:
    """A strictly upper triangular factor, of columns."""
    return x @ az.generate(q.shape, lambda i, j: az.cond(i < j, lambda: az.exp(q[i, j]), lambda: 0.0))


@az.program
def band(q: az.Array[az.f64, "d d"], x: az.Array[az.f64, "d n"]) -> az.Array[az.f64, "d n"]:
    """Both factors are bounded, and of the product a triangle is read, twice."""
    diagonals = az.generate(
        q.shape, lambda i, j: az.cond((i - j <= 3) & (j - i <= 20), lambda: az.exp(q[i, j]), lambda: 0.0)
    )
    rest = az.generate(x.shape, lambda i, j: az.cond(i >= j, lambda: az.sin(x[i, j]), lambda: 0.0))
    both = diagonals @ rest
    sums = az.map(az.sum, az.generate(x.shape, lambda i, j: az.cond(j >= i, lambda: both[i, j], lambda: 0.0)))
    return az.generate(x.shape, lambda i, j: az.cond(j >= i, lambda: both[i, j] - sums[i], lambda: 0.0))


def band_in_numpy(q: Matrix, x: Matrix) -> Matrix:
    both = np.triu(np.triu(np.tril(np.exp(q), 20), -3) @ np.tril(np.sin(x)))
    return np.triu(both - both.sum(axis=1)[:, None])


BOUNDED: list[tuple[Any, Any]] = [
    (triangular, lambda q, x: np.einsum("kij,nj->kin", np.tril(np.exp(q)), x)),
    (upper, lambda q, x: x @ np.triu(np.exp(q), 1)),
    (band, band_in_numpy),
]


def bounded_arguments(program: Any, d: int, n: int) -> list[Matrix]:
    r = np.random.default_rng(d + n)
    q = r.standard_normal((3, d, d) if program is triangular else (d, d))
    return [q, r.standard_normal((d, n) if program is band else (n, d))]


@pytest.mark.parametrize(("d", "n"), [(0, 20), (40, 70), (64, 64), (131, 90)])
@pytest.mark.parametrize(("program", "reference"), BOUNDED)
def test_triangles_bound_products(program: Any, reference: Any, d: int, n: int) -> None:
    arguments = bounded_arguments(program, d, n)
    compiled = az.compile(program)
    found = compiled(*arguments)
    np.testing.assert_allclose(found, reference(*arguments), rtol=1e-11, atol=1e-11)
    assert "bounded" in str(compiled.schedule)
    unbounded = az.compile(program, schedule={"bound": False})
    assert "bounded" not in str(unbounded.schedule)
    np.testing.assert_array_equal(found, unbounded(*arguments))  # to the bit


@pytest.mark.unguarded
@pytest.mark.parametrize("offset", [-20, -3, -1, 0, 1, 3])
def test_triangles_begin_at_any_diagonal(offset: int) -> None:
    """An upper and a lower one, as the left and as the right factor."""

    @az.program
    def four(q: az.Array[az.f64, "d d"], x: az.Array[az.f64, "d n"]) -> Any:
        above = az.generate(q.shape, lambda i, j: az.cond(j - i >= offset, lambda: az.exp(q[i, j]), lambda: 0.0))
        below = az.generate(q.shape, lambda i, j: az.cond(i - j >= offset, lambda: az.exp(q[i, j]), lambda: 0.0))
        return above @ x, below @ x, x.T @ above, x.T @ below

    d, n = 41, 70
    r = np.random.default_rng(offset + 20)
    q, x = r.standard_normal((d, d)), r.standard_normal((d, n))
    above, below = np.triu(np.exp(q), offset), np.tril(np.exp(q), -offset)
    compiled = az.compile(four)
    assert str(compiled.schedule).count("bounded") >= 4
    for found, expected in zip(compiled(q, x), (above @ x, below @ x, x.T @ above, x.T @ below), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.rest
@pytest.mark.parametrize("threads", [1, 3])
def test_products_of_a_batch_inside_of_a_parallel_loop(threads: int) -> None:
    @az.program
    def powers(a: az.Array[az.f64, "b k m m"], x: az.Array[az.f64, "b k m m"]) -> az.Array[az.f64, "b k m m"]:
        def step(a: az.Expr, s: az.Expr) -> az.Expr:
            return az.map(lambda p: p @ a[0], az.map(lambda p, q: p @ q, a, s))

        return az.map(lambda a, x: az.fori_loop(0, 2, lambda i, s: step(a, s), x), a, x)

    a, x = np.random.default_rng(0).standard_normal((2, 2, 9, 40, 40))
    found = az.compile(powers, threads=threads)(a, x)
    once = a @ x @ a[:, :1]
    np.testing.assert_allclose(found, a @ once @ a[:, :1], rtol=1e-11, atol=1e-8)


@pytest.mark.parametrize(("program", "reference"), BOUNDED)
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_is_multiplied_by_zeros_of_triangles(program: Any, reference: Any, value: float) -> None:
    for place in ((0, 50), (50, 50), (77, 3), (79, 79)):
        arguments = bounded_arguments(program, 80, 80)
        arguments[1][place] = value
        with np.errstate(invalid="ignore"):
            expected = reference(*arguments)
            np.testing.assert_allclose(az.compile(program)(*arguments), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.rest
@pytest.mark.parametrize(("program", "reference"), BOUNDED)
@pytest.mark.parametrize(("d", "n"), [(8, 16), (13, 41)])
def test_triangles_on_a_tiny_core(program: Any, reference: Any, d: int, n: int) -> None:
    arguments = bounded_arguments(program, d, n)
    np.testing.assert_allclose(plain_loops.lowered(program, TINY, arguments), reference(*arguments), rtol=1e-11)
    arguments[1][3, 5] = np.inf
    with np.errstate(invalid="ignore"):
        found = plain_loops.lowered(program, TINY, arguments)
        np.testing.assert_allclose(found, reference(*arguments), rtol=1e-11)


@az.program
def moments(
    w: az.Array[az.f64, "k n"], x: az.Array[az.f64, "d n"], mu: az.Array[az.f64, "d k"]
) -> az.Array[az.f64, "k"]:
    """The greatest and least second moments about each of several means, which are columns."""
    (d, n), k = x.shape, w.shape[0]

    def moment(j: az.Expr, a: az.Expr, b: az.Expr) -> az.Expr:
        return az.sum(az.generate(n, lambda i: w[j, i] * (x[a, i] - mu[a, j]) * (x[b, i] - mu[b, j])))

    stored = az.generate((k, d, d), moment)
    return az.map(lambda m: az.max(az.map(az.max, m)) * az.min(az.map(az.min, m)), stored)


@az.program
def beside(x: az.Array[az.f64, "d e k"], y: az.Array[az.f64, "e d k"]) -> az.Array[az.f64, "k"]:
    """The greatest and least elements of products of matrices that are side by side."""
    d, e, k = x.shape
    stored = az.generate((k, d, d), lambda j, a, b: az.sum(az.generate(e, lambda i: x[a, i, j] * y[i, b, j])))
    return az.map(lambda m: az.max(az.map(az.max, m)) * az.min(az.map(az.min, m)), stored)


@pytest.mark.rest
def test_products_of_a_batch_are_stored_one_after_the_other_where_nothing_is_contiguous_along_it() -> None:
    together, mixed = az.compile(moments), az.compile(beside)
    r = np.random.default_rng(4)
    for k, d, n in ((40, 30, 50), (9, 17, 33), (3, 2, 5), (30, 1, 20)):
        w, x, mu = r.random((k, n)), r.random((d, n)), r.random((d, k))
        c = x[:, :, None] - mu[:, None, :]
        products = np.einsum("kn,ank,bnk->kab", w, c, c)
        wanted = products.max((1, 2)) * products.min((1, 2))
        np.testing.assert_allclose(together(w, x, mu), wanted, rtol=1e-11, atol=1e-12)
        u, v = r.random((d, n, k)), r.random((n, d, k))
        products = np.einsum("aik,ibk->kab", u, v)
        np.testing.assert_allclose(mixed(u, v), products.max((1, 2)) * products.min((1, 2)), rtol=1e-11)
    assert re.search(r"temporary m\w+: f64\[k, d, d\]", together.schedule)
    assert re.search(r"temporary m\w+: f64\[d, d, k\]", mixed.schedule)


# Convolutions: windows of an image, and their gradients, whose terms are left out outside of it


Shape = tuple[int, int, int, int, int, int]
SHAPES = [
    (16, 40, 70, 12, 3, 3),
    (3, 9, 50, 40, 5, 3),
    (8, 7, 41, 9, 1, 7),
    (40, 33, 36, 33, 3, 1),
    (1, 64, 64, 16, 3, 3),
]


def convolution(a: int, b: int) -> az.Program:
    """Of an image with kernels of a x b."""

    @az.program
    def convolved(image: az.Array[az.f32, "c h w"], kernels: az.Array[az.f32, f"o c {a} {b}"]) -> Any:
        (_, h, w), o = image.shape, kernels.shape[0]
        extents = o, h - a + 1, w - b + 1
        return az.generate(extents, lambda f, y, x: az.sum(kernels[f] * image[:, y : y + a, x : x + b]))

    return convolved


def gradient_of_squares(a: int, b: int) -> Any:
    program = convolution(a, b)

    @az.program
    def of_squares(image: az.Array[az.f32, "c h w"], kernels: az.Array[az.f32, f"o c {a} {b}"]) -> az.f32:
        return az.sum(program(image, kernels) ** 2)

    return az.grad(of_squares, argnums=(0, 1))


def image_and_kernels(c: int, h: int, w: int, o: int, a: int, b: int) -> tuple[Matrix, Matrix]:
    r = np.random.default_rng(c + h)
    return r.standard_normal((c, h, w)).astype(np.float32), r.standard_normal((o, c, a, b)).astype(np.float32)


def convolved(image: Matrix, kernels: Matrix, cotangent: Matrix | None = None) -> tuple[Matrix, Matrix, Matrix]:
    """The convolution, and what it pulls a cotangent back to: by default that of the sum of its squares.

    An element of the image takes part only in its windows.
    """
    image, kernels = image.astype(np.float64), kernels.astype(np.float64)
    a, b = kernels.shape[2:]
    windows = np.lib.stride_tricks.sliding_window_view(image, (a, b), axis=(1, 2))
    found = np.einsum("ocab,chwab->ohw", kernels, windows)
    cotangent = 2 * found if cotangent is None else cotangent.astype(np.float64)
    (_, h, w), by_image = found.shape, np.zeros_like(image)
    for y in range(a):
        for x in range(b):
            by_image[:, y : y + h, x : x + w] += np.einsum("ohw,oc->chw", cotangent, kernels[:, :, y, x])
    return found, by_image, np.einsum("ohw,chwab->ocab", cotangent, windows)


@pytest.mark.rest
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolutions_are_products(shape: Shape) -> None:
    image, kernels = image_and_kernels(*shape)
    wanted, *gradients = convolved(image, kernels)
    np.testing.assert_allclose(az.compile(convolution(*shape[4:]))(image, kernels), wanted, rtol=1e-4, atol=1e-4)
    program = gradient_of_squares(*shape[4:])
    compiled = az.compile(program)
    for found, right in zip(compiled(image, kernels), gradients, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4 * np.abs(right).max())
    for threads in (1, 3):
        other = az.compile(program, threads=threads)(image, kernels)
        assert all(np.array_equal(x, y) for x, y in zip(other, compiled(image, kernels), strict=True))
    assert compiled.schedule.count("product over") == 3


@pytest.mark.rest
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("where", ["kernels", "cotangent"])
def test_what_is_not_finite_reaches_only_what_has_a_term_of_it(where: str, value: float) -> None:
    """Outside of the image no term is added, so an infinite weight makes no NaN of a 0 there."""
    image, kernels = image_and_kernels(16, 40, 70, 12, 3, 3)
    cotangent = np.random.default_rng(3).standard_normal((12, 38, 68)).astype(np.float32)
    if where == "kernels":
        kernels[5, 3, 0, 0] = value
    else:
        cotangent[5, 20, 30] = value
    with np.errstate(invalid="ignore"):
        _, *gradients = convolved(image, kernels, cotangent)
    _, *pulled = az.compile(az.vjp(convolution(3, 3)))(image, kernels, cotangent)
    for found, right in zip(pulled, gradients, strict=True):
        finite = np.isfinite(right)
        assert finite.any()
        np.testing.assert_array_equal(found[~finite], right[~finite])
        np.testing.assert_allclose(found[finite], right[finite], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 6, 9, 3, 2, 3), (3, 5, 8, 9, 3, 3)], ids=str)
def test_convolutions_on_a_tiny_core(shape: Shape) -> None:
    image, kernels = image_and_kernels(*shape)
    found = plain_loops.lowered(gradient_of_squares(*shape[4:]), TINY, (image, kernels))
    for mine, right in zip(found, convolved(image, kernels)[1:], strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-4)


@az.program
def both_left_out(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "m k"]) -> az.Array[az.f64, "n k"]:
    """Terms that a test of rows leaves out, and others that one of columns does."""
    (n, m), k = a.shape, b.shape[1]

    def term(i: az.Expr, j: az.Expr, p: az.Expr) -> az.Expr:
        within = lambda: az.cond(p + j < m + 5, lambda: a[i, p] * b[p, j], lambda: 0.0)  # noqa: E731
        return az.cond(i + 3 >= p, within, lambda: 0.0)

    return az.generate((n, k), lambda i, j: az.sum(az.generate(m, lambda p: term(i, j, p))))


def both_left_out_in_numpy(a: Matrix, b: Matrix) -> Matrix:
    i, p, j = np.arange(a.shape[0])[:, None, None], np.arange(a.shape[1])[None, :, None], np.arange(b.shape[1])
    with np.errstate(invalid="ignore"):
        return np.where((i + 3 >= p) & (p + j < a.shape[1] + 5), a[:, :, None] * b[None], 0.0).sum(1)


@pytest.mark.parametrize(("n", "m", "k"), [(0, 20, 20), (8, 16, 400), (31, 33, 64), (130, 70, 51), (40, 300, 33)])
def test_terms_that_are_left_out_on_both_sides(n: int, m: int, k: int) -> None:
    a, b = matrices(n, m, k)
    compiled = az.compile(both_left_out)
    np.testing.assert_allclose(compiled(a, b), both_left_out_in_numpy(a, b), rtol=1e-11, atol=1e-11)
    assert "product over" in compiled.schedule
    for x, place in ((a, (n // 2, m - 1)), (b, (m - 1, 3)), (b, (0, k - 1)), (a, (0, 0))):
        for value in (np.inf, -np.inf, np.nan):
            if x.size:
                before, x[place] = x[place], value
                np.testing.assert_allclose(compiled(a, b), both_left_out_in_numpy(a, b), rtol=1e-11, atol=1e-11)
                x[place] = before


@pytest.mark.rest
@pytest.mark.parametrize(("n", "m", "k"), [(4, 8, 16), (13, 19, 41)])
def test_terms_that_are_left_out_on_a_tiny_core(n: int, m: int, k: int) -> None:
    a, b = matrices(n, m, k)
    for place, value in (((0, 0), 0.5), ((m - 1, 3), np.inf)):
        b[place] = value
        found = plain_loops.lowered(both_left_out, TINY, (a, b))
        np.testing.assert_allclose(found, both_left_out_in_numpy(a, b), rtol=1e-11, atol=1e-11)
