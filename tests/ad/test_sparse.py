"""Sparse Jacobians and Hessians against dense ones: patterns, colours, modes, what is kept, and errors."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import adze as az
from adze.ad import colouring
from adze.ad.colouring import column_colouring, readable, star_colouring

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]


@az.program
def second_differences(x: Vector) -> Vector:
    before, behind = az.concatenate([x[:1], x[:-1]]), az.concatenate([x[1:], x[-1:]])
    return before * x - az.sin(behind)


@az.program
def arrow(x: Vector) -> Vector:
    return x * x + x[0] * az.where(az.iota(x.shape[0]) == 0, az.sum(x), 1.0)


@az.program
def everyone(x: Vector) -> Vector:
    return x * az.sum(x)


@az.program
def chosen(x: Vector, places: az.Array[az.i64, "m"]) -> az.Array[az.f64, "m"]:
    return az.map(lambda i: x[i] ** 2, places)


@pytest.mark.parametrize("run", [az.evaluate, pytest.param(None, marks=pytest.mark.slow)], ids=["evaluate", "compile"])
@pytest.mark.parametrize("mode", [None, "forward", "reverse"])
@pytest.mark.parametrize("f", [second_differences, arrow, everyone], ids=lambda f: f.name)
def test_like_the_dense_one(f: az.Program, mode: str | None, run: object) -> None:
    x = np.linspace(0.5, 2, 7)
    jacobian = az.sparse_jacobian(f, mode=mode, run=run)  # type: ignore[arg-type]
    found = jacobian(x)
    assert isinstance(found, csr_array) and found.has_sorted_indices
    np.testing.assert_allclose(found.toarray(), az.jacobian(f)(x), rtol=1e-13, atol=1e-13)
    assert jacobian.mode == (mode or "forward")
    jacobian.verify(x)


def test_numbers_of_colours() -> None:
    for n in (5, 50):
        jacobian = az.sparse_jacobian(second_differences)
        jacobian(np.ones(n))
        assert jacobian.colors == 3
    tall = az.program(lambda x: (x, x[0] * x))  # a dense column: no row has more than two entries
    wide = az.program(lambda x: az.concatenate([x, az.array([az.sum(x)])]))  # a dense row
    by_columns, by_rows = az.sparse_jacobian(tall), az.sparse_jacobian(wide)
    by_columns(np.ones(9)), by_rows(np.ones(9))
    assert (by_columns.mode, by_columns.colors) == ("forward", 2)
    assert (by_rows.mode, by_rows.colors) == ("reverse", 2)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_small_sizes(n: int) -> None:
    found = az.sparse_jacobian(second_differences)(np.ones(n)) if n else az.sparse_jacobian(everyone)(np.ones(0))
    assert found.shape == (n, n)


def random_matrix(shape: tuple[int, int], density: float, seed: int) -> csr_array:
    """About this share of the entries is not zero."""
    rng = np.random.default_rng(seed)
    return csr_array(np.where(rng.random(shape) < density, rng.uniform(0.5, 1, shape), 0.0))


@pytest.mark.rest
@settings(max_examples=10, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 1), st.integers(0, 99))
def test_random_bilinear_maps(rows: int, columns: int, density: float, seed: int) -> None:
    matrix = random_matrix((rows, columns), density, seed)
    starts, places = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
    x = np.arange(1.0, columns + 1)
    found = _OF_PRODUCT(matrix.data, x, _rows_of(starts), places, np.zeros(rows))
    np.testing.assert_allclose(found.toarray(), 2 * matrix.toarray() * x, rtol=1e-13)
    assert found.nnz == matrix.nnz


def _rows_of(starts: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


@az.program
def _product(
    data: az.Array[az.f64, "k"],
    x: Vector,
    rows: az.Array[az.i64, "k"],
    columns: az.Array[az.i64, "k"],
    start: az.Array[az.f64, "m"],
):
    terms = az.map(lambda a, j: a * x[j] ** 2, data, columns)
    return az.permute(lambda a, b: a + b, start, lambda i: rows[i], terms)


_OF_PRODUCT = az.sparse_jacobian(_product, argnums=1)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 12), st.integers(0, 12), st.floats(0, 1), st.integers(0, 99))
def test_columns_of_a_colour_share_no_row(rows: int, columns: int, density: float, seed: int) -> None:
    pattern = random_matrix((rows, columns), density, seed) != 0
    colours = column_colouring(csr_array(pattern))
    for colour in range(colours.max(initial=-1) + 1):
        assert pattern.toarray()[:, colours == colour].sum(axis=1).max(initial=0) <= 1


def one_after_the_other(pattern: np.ndarray) -> list[int]:
    """Columns that meet the most others first, each with the first colour that none of its rows has."""
    colours = np.zeros(pattern.shape[1], np.int64)
    done = np.zeros(pattern.shape[1], bool)
    for column in np.argsort(-(pattern.sum(axis=1) @ pattern), kind="stable"):
        others = done & (pattern[pattern[:, column]].any(axis=0))
        if pattern[:, column].any():
            colours[column] = next(k for k in range(len(colours)) if k not in colours[others])
        done[column] = True
    return colours.tolist()


@pytest.mark.parametrize("many", [1, 4, 10**9], ids=["at once", "some at once", "one by one"])
@pytest.mark.parametrize("density", [0.0, 0.02, 0.3, 1.0])
def test_columns_at_once_have_the_colours_of_one_after_the_other(
    density: float, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(colouring, "MANY", many)
    for shape in ((60, 90), (90, 60), (3, 70)):
        pattern = random_matrix(shape, density, 1) != 0
        assert column_colouring(csr_array(pattern)).tolist() == one_after_the_other(pattern.toarray())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 12), st.floats(0, 1), st.integers(0, 99))
def test_of_two_entries_that_mirror_each_other_one_is_readable(size: int, density: float, seed: int) -> None:
    lower = random_matrix((size, size), density, seed).toarray() != 0
    pattern = lower | lower.T
    colours = star_colouring(csr_array(pattern))
    alone = np.array([[np.sum(row & (colours == colour)) == 1 for colour in colours] for row in pattern], bool)
    alone = alone.reshape(pattern.shape)
    np.testing.assert_array_equal((alone | alone.T) & pattern, pattern)
    np.testing.assert_array_equal(readable(csr_array(pattern), colours), alone[np.nonzero(pattern)])


def test_numbers_of_directions_of_symmetric_patterns() -> None:
    n = 40
    arrow = np.eye(n, dtype=bool)
    arrow[7] = arrow[:, 7] = True
    band = abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 2
    tree = np.eye(n, dtype=bool)
    for child in range(1, n):
        tree[child, (child - 1) // 2] = tree[(child - 1) // 2, child] = True
    chain = abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 1
    grid = np.kron(chain[:6, :6], np.eye(6)) + np.kron(np.eye(6), chain[:6, :6]) > 0
    counts = [star_colouring(csr_array(pattern)).max() + 1 for pattern in (arrow, chain, band, tree, grid)]
    assert counts[:4] == [2, 3, 5, 3] and counts[4] <= 5
    assert [column_colouring(csr_array(pattern)).max() + 1 for pattern in (arrow, chain, band)] == [n, 3, 5]
    assert star_colouring(csr_array(np.ones((70, 70), bool))).tolist() == list(range(70))
    assert star_colouring(csr_array((3, 3), dtype=bool)).tolist() == [0, 0, 0]


def test_many_colours() -> None:
    assert sorted(column_colouring(csr_array(np.ones((3, 150), bool)))) == list(range(150))


def test_the_pattern_is_found_again_when_integers_or_sizes_change() -> None:
    jacobian = az.sparse_jacobian(chosen)
    x = np.array([1.0, 2.0, 3.0])
    for places in ([0, 1], [2, 2], [1, 0, 2]):
        found = jacobian(x, np.array(places))
        np.testing.assert_array_equal(found.toarray(), 2 * x * (np.arange(3) == np.array(places)[:, None]))


def test_the_pattern_of_a_sort_is_that_of_the_point() -> None:
    @az.program
    def squares(x: Vector) -> Vector:
        return az.sort(x) ** 2

    jacobian = az.sparse_jacobian(squares)
    for x in ([3.0, 1.0, 2.0], [1.0, 2.0, 3.0]):
        np.testing.assert_array_equal(jacobian(np.array(x)).toarray(), az.jacobian(squares)(np.array(x)))


def test_who_asks_again_has_the_same_program() -> None:
    """So it is derived and compiled once."""
    programs = list[az.Program]()

    def run(program: az.Program) -> object:
        programs.append(program)
        return az.evaluate(program)

    for _ in range(2):
        az.sparse_jacobian(second_differences, run=run)(np.ones(4))  # type: ignore[arg-type]
    assert programs[0] is programs[1]


def test_the_pattern_without_derivatives() -> None:
    def run(program: az.Program) -> object:
        raise AssertionError("derivatives were asked for")

    jacobian = az.sparse_jacobian(second_differences, run=run)  # type: ignore[arg-type]
    found = jacobian.find(np.ones(4)).toarray()
    np.testing.assert_array_equal(found, np.abs(np.subtract.outer(range(4), range(4))) <= 1)
    assert jacobian.colors == 3 and jacobian.pattern.nnz == found.sum()


def test_structures_and_several_parameters() -> None:
    @az.program
    def f(a: tuple[Vector, az.Array[az.i64, "n"]], b: az.f64, c: az.Array[az.f32, "n"]):
        return {"first": a[0] * b, "count": az.sum(a[1]), "second": az.sum(c)}

    arguments = (np.array([1.0, 2.0]), np.array([1, 2])), 3.0, np.ones(2, np.float32)
    found = az.sparse_jacobian(f, argnums=(1, 0, 2))(*arguments)
    wanted = [[1, 3, 0, 0, 0], [2, 0, 3, 0, 0], [0, 0, 0, 1, 1]]
    np.testing.assert_array_equal(found.toarray(), wanted)


def test_single_precision() -> None:
    @az.program
    def f(x: az.Array[az.f32, "n"]) -> az.Array[az.f32, "n"]:
        return x * x

    found = az.sparse_jacobian(f)(np.ones(3, np.float32))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.toarray(), 2 * np.eye(3))


def test_a_pattern_that_is_given() -> None:
    x = np.linspace(1, 2, 6)
    wide = np.tri(6, 6, 2, bool) & ~np.tri(6, 6, -3, bool)
    for pattern in (wide, csr_array(wide), lambda x: wide):
        jacobian = az.sparse_jacobian(second_differences, pattern=pattern, run=az.evaluate)
        found = jacobian(x)
        assert found.nnz == wide.sum()
        np.testing.assert_allclose(found.toarray(), az.jacobian(second_differences)(x), rtol=1e-13)
        jacobian.verify(x)
    with pytest.raises(ValueError, match="misses entries of row"):
        az.sparse_jacobian(second_differences, pattern=np.eye(6), run=az.evaluate).verify(x)
    with pytest.raises(ValueError, match=r"has the shape \(3, 3\), not \(6, 6\)"):
        az.sparse_jacobian(second_differences, pattern=np.eye(3))(x)


@az.fix
def powers(self: Any, x: az.f64, n: az.i64) -> az.f64:
    return az.cond(n == 0, lambda: 1.0, lambda: x * self(x, n - 1))


def test_a_recursion_needs_a_pattern_that_is_given() -> None:
    @az.program
    def squares(x: Vector) -> Vector:
        return az.map(lambda v: powers(v, 2), x)

    x = np.array([1.0, -2.0, 3.0])
    np.testing.assert_array_equal(az.sparse_jacobian(squares, pattern=np.eye(3))(x).toarray(), np.diag(2 * x))
    with pytest.raises(
        az.Unsupported, match=r"no sparsity pattern .* with fix: give one, by pattern=.*test_sparse\.py"
    ):
        az.sparse_jacobian(squares)(x)


def test_hessian_of_a_chain() -> None:
    @az.program
    def rosenbrock(x: Vector) -> az.f64:
        return az.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    hessian, x = az.sparse_hessian(rosenbrock), np.linspace(-1, 1, 8)
    found = hessian(x)
    assert hessian.colors == 3 and found.nnz == 3 * 8 - 2
    np.testing.assert_allclose(found.toarray(), az.hessian(rosenbrock)(x), rtol=1e-12, atol=1e-12)


@az.program
def hub(x: Vector, c: az.f64) -> az.f64:
    """Everyone with one, and the chosen parameter with all: its Hessian is an arrow with two shafts."""
    return az.sum(az.sin(x) * x[0]) + c**2 * az.sum(x**3)


@pytest.mark.parametrize("run", [az.evaluate, pytest.param(None, marks=pytest.mark.slow)])
def test_hessian_with_a_hub(run: object) -> None:
    """Few directions, whatever the size, counted by what the program of derivatives is given."""
    counted = []

    def counting(program: az.Program) -> object:
        inner = az.evaluate(program) if run else az.compile(program)

        def call(*arguments: object) -> object:
            counted.append(len(arguments[-1]))  # type: ignore[arg-type]
            return inner(*arguments)

        return call

    hessian = az.sparse_hessian(hub, argnums=(0, 1), run=counting)  # type: ignore[arg-type]
    for n in (1, 2, 9):
        x = np.linspace(-1, 2, n)
        (xx, xc), (cx, cc) = az.evaluate(az.hessian(hub, (0, 1)))(x, 3.0)
        wanted = np.block([[xx, xc[:, None]], [cx[None, :], np.reshape(cc, (1, 1))]])
        found = hessian(x, 3.0)
        np.testing.assert_allclose(found.toarray(), wanted, rtol=1e-12, atol=1e-12)
        assert hessian.colors == counted[-1] == min(n, 2) + 1
        hessian.verify(x, 3.0)
    with pytest.raises(ValueError, match="misses entries"):
        az.sparse_hessian(hub, pattern=np.eye(9), run=az.evaluate).verify(x, 3.0)


def test_errors() -> None:
    integers = az.program(lambda x: az.argsort(x))
    with pytest.raises(TypeError, match="no floating part"):
        az.sparse_jacobian(integers)(np.ones(3))
    with pytest.raises(TypeError, match="no floating part to differentiate"):
        az.sparse_jacobian(az.program(lambda x: 2.0 * x))(np.arange(3))
    with pytest.raises(TypeError, match="derivatives are taken with respect to floating parameters"):
        az.sparse_jacobian(chosen, argnums=1)
    with pytest.raises(ValueError, match="mode is 'forward' or 'reverse', not 'sideways'"):
        az.sparse_jacobian(chosen, mode="sideways")
    with pytest.raises(AttributeError, match="has not been called"):
        az.sparse_jacobian(chosen).pattern  # noqa: B018
