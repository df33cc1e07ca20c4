"""Blocks of rows: what makes and uses the rows of a large table runs for some of them at a time, with the same bits."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from sampling import some

import adze as az

pytestmark = pytest.mark.unguarded

APART = {"fuse_rows": False}
SCALARS = [np.float32, np.float64]
Shape = tuple[int, int, int, int]  # queries, keys, components of these, components of values


def softmax(scores: az.Expr) -> az.Expr:
    weights = az.exp(scores - az.max(scores))
    return weights / az.sum(weights)


@az.program
def broadcast(q: Any, k: Any, v: Any) -> Any:
    """Attention with whole arrays."""
    scores = q @ k.T
    weights = az.exp(scores - az.max(scores, 1)[:, None])
    return weights @ v / az.sum(weights, 1)[:, None]


@az.program
def mapped(q: Any, k: Any, v: Any) -> Any:
    """The same for each query."""
    return az.map(lambda query: softmax(k @ query) @ v, q)


@az.program
def by_keys(q: Any, k: Any, v: Any) -> Any:
    """The same with a table whose rows are keys, and whose columns are the rows that matter."""
    scores = k @ q.T
    weights = az.exp(scores - az.max(scores, 0))
    return weights.T @ v / az.sum(weights, 0)[:, None]


@az.program
def causal(q: Any, k: Any, v: Any) -> Any:
    """The same, where a query looks at keys up to its own."""
    scores = q @ k.T
    seen = az.generate(scores.shape, lambda i, j: az.where(j <= i, scores[i, j], -np.inf))
    return az.map(softmax, seen) @ v


@az.program
def normalised(q: Any, k: Any, v: Any) -> Any:
    """Layer norm of a product, and another product of it."""
    hidden = q @ k.T
    centred = hidden - az.mean(hidden, 1)[:, None]
    return centred / az.sqrt(az.mean(centred**2, 1) + 0.01)[:, None] @ v


@az.program
def logsumexp(q: Any, k: Any, v: Any) -> Any:
    return az.map(az.logsumexp, q @ k.T) * v[0, 0]


@az.program
def heads(q: Any, k: Any, v: Any) -> Any:
    return az.map(broadcast, q, k, v)


PROGRAMS = [broadcast, mapped, by_keys, causal, normalised, logsumexp]


@cache
def gradient(program: Any) -> Any:
    def loss(q: az.Expr, k: az.Expr, v: az.Expr) -> az.Expr:
        return az.sum(program(q, k, v) ** 2)

    return az.grad(az.program(loss), argnums=(0, 1, 2))


def drawn(shape: Shape, scalar: Any, batch: tuple[int, ...] = ()) -> list[np.ndarray]:
    n, m, d, e = shape
    rng = np.random.default_rng(n + m)
    return [0.5 * rng.standard_normal((*batch, *each)).astype(scalar) for each in ((n, d), (m, d), (m, e))]


def in_blocks(compiled: Any, arguments: Any, rows: int, columns: int) -> bool:
    """Whether a call has no room for a table."""
    found: int = compiled.peak_bytes(*arguments)
    return found < rows * columns * arguments[0].dtype.itemsize


@pytest.mark.parametrize("scalar", some(SCALARS, 2))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_rows_have_the_bits_that_they_have_without_blocks(program: Any, scalar: Any) -> None:
    arguments = drawn((1203, 1601, 20, 33), scalar)
    compiled = az.compile(program, threads=1)
    found = compiled(*arguments)
    assert in_blocks(compiled, arguments, 1203, 1601)
    np.testing.assert_array_equal(found, az.compile(program, threads=1, schedule=APART)(*arguments))
    for threads in (2, 3):
        np.testing.assert_array_equal(found, az.compile(program, threads=threads)(*arguments))


@pytest.mark.rest
@pytest.mark.parametrize("shape", some([(400, 700, 24, 33), (1203, 1601, 33, 64)], 2), ids=str)
@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("program", some([broadcast, mapped, normalised], 2), ids=lambda program: program.name)
def test_sums_over_rows_are_those_of_pieces(program: Any, scalar: Any, shape: Shape) -> None:
    arguments = drawn(shape, scalar)
    compiled = az.compile(gradient(program), threads=1)
    found, wanted = compiled(*arguments), az.compile(gradient(program), threads=1, schedule=APART)(*arguments)
    for one, other in zip(found, wanted, strict=True):
        scale = float(np.abs(other).max())
        np.testing.assert_allclose(one, other, rtol=0, atol=20 * scale * float(np.finfo(scalar).eps))
    for threads in (2, 3):
        again = az.compile(gradient(program), threads=threads)(*arguments)
        assert all(np.array_equal(one, other) for one, other in zip(found, again, strict=True))


@pytest.mark.parametrize("program", [broadcast, mapped], ids=lambda program: program.name)
def test_no_table_is_stored(program: Any) -> None:
    arguments = drawn((4096, 4096, 64, 64), np.float32)
    for each in (program, gradient(program)):
        compiled = az.compile(each, threads=2)
        assert in_blocks(compiled, arguments, 4096, 4096)
        assert not in_blocks(az.compile(each, threads=2, schedule=APART), arguments, 4096, 4096)


@pytest.mark.rest
def test_derivatives_are_those_of_the_formula() -> None:
    q, k, v = drawn((500, 900, 16, 40), np.float64)
    weights = np.exp(q @ k.T)
    weights /= weights.sum(1, keepdims=True)
    outer = 2 * (weights @ v)
    inner = weights * (outer @ v.T - (weights * (outer @ v.T)).sum(1, keepdims=True))
    found = az.compile(gradient(mapped))(q, k, v)
    for one, other in zip(found, (inner @ k, inner.T @ q, weights.T @ outer), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("scalar", SCALARS)
def test_a_batch_has_tables_of_its_own(scalar: Any) -> None:
    arguments = drawn((1200, 1200, 64, 64), scalar, (3,))
    for program in (heads, gradient(heads)):
        compiled, apart = az.compile(program, threads=2), az.compile(program, threads=1, schedule=APART)
        assert compiled.peak_bytes(*arguments) < apart.peak_bytes(*arguments) // 2
        found, wanted = compiled(*arguments), apart(*arguments)
        for one, other in zip(*[each if isinstance(each, tuple) else (each,) for each in (found, wanted)], strict=True):
            scale = float(np.abs(other).max())
            np.testing.assert_allclose(one, other, rtol=0, atol=20 * scale * float(np.finfo(scalar).eps))
    one_by_one = [az.compile(broadcast)(*each) for each in zip(*arguments, strict=True)]
    np.testing.assert_array_equal(az.compile(heads)(*arguments), np.stack(one_by_one))


@az.program
def masked(q: Any, k: Any, v: Any) -> Any:
    """Attention in which the first component of a query says that all of its scores are infinite."""
    scores = q @ k.T

    def score(i: az.Expr, j: az.Expr) -> az.Expr:
        return az.where(q[i, 0] > 10.0, -np.inf, az.where(q[i, 0] < -10.0, np.inf, scores[i, j]))

    return az.map(softmax, az.generate(scores.shape, score)) @ v


@pytest.mark.rest
@pytest.mark.parametrize("program", [broadcast, mapped, normalised, masked], ids=lambda program: program.name)
def test_rows_that_are_not_finite_are_as_in_evaluate(program: Any) -> None:
    q, k, v = drawn((401, 700, 24, 33), np.float64)
    q[3], q[64], q[130], q[399], q[400, 0], q[200, 0] = np.nan, np.inf, -np.inf, 0.0, 11.0, -11.0
    with np.errstate(all="ignore"):
        wanted = np.asarray(az.evaluate(program)(q, k, v))
    found = az.compile(program)(q, k, v)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert np.isnan(found).any(1).sum() == (5 if program is masked else 3)


@pytest.mark.rest
@pytest.mark.parametrize("shape", [(0, 700, 24, 33), (1, 700, 24, 33), (400, 1, 24, 33), (33, 5000, 64, 64)], ids=str)
def test_few_rows_or_columns(shape: Shape) -> None:
    arguments = drawn(shape, np.float64)
    for program in (broadcast, gradient(broadcast)):
        compiled = az.compile(program)
        compiled(*drawn((400, 700, 24, 33), np.float64))
        found, wanted = compiled(*arguments), az.compile(program, schedule=APART)(*arguments)
        for one, other in zip(*[each if isinstance(each, tuple) else (each,) for each in (found, wanted)], strict=True):
            np.testing.assert_array_equal(one, other)


@az.program
def neighbours(q: Any, k: Any, v: Any) -> Any:
    """Rows of a table that are used with others of it."""
    scores = az.exp(q @ k.T)
    return (scores[1:] - scores[:-1]) @ v


@az.program
def kept(q: Any, k: Any, v: Any) -> Any:
    """A table that is a result, too."""
    scores = q @ k.T
    return az.map(softmax, scores) @ v, scores


@az.program
def two_ways(q: Any, k: Any, v: Any) -> Any:
    """A table of which rows are used, and columns."""
    weights = az.exp(q @ k.T)
    return weights @ v / az.sum(weights, 1)[:, None], az.max(weights, 0), weights.T @ q


@az.program
def in_steps(q: Any, k: Any, v: Any) -> Any:
    """Attention again and again, in a loop."""
    return az.fori_loop(0, 3, lambda _, state: broadcast(state, k, v), q)


@pytest.mark.rest
@pytest.mark.parametrize("program", [neighbours, kept, two_ways, in_steps], ids=lambda program: program.name)
def test_what_else_uses_a_table(program: Any) -> None:
    arguments = drawn((700, 900, 24, 24), np.float64)
    found, wanted = az.compile(program)(*arguments), az.compile(program, schedule=APART)(*arguments)
    for one, other in zip(*[each if isinstance(each, tuple) else (each,) for each in (found, wanted)], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12 * float(np.abs(other).max()))
    numbers = np.exp(arguments[0] @ arguments[1].T)
    if program is neighbours:
        np.testing.assert_allclose(found, (numbers[1:] - numbers[:-1]) @ arguments[2], rtol=1e-9, atol=1e-9)
    if program is two_ways:
        np.testing.assert_allclose(found[1], numbers.max(0), rtol=1e-12)
        np.testing.assert_allclose(found[2], numbers.T @ arguments[0], rtol=1e-9, atol=1e-9)


@az.program
def gathered(q: Any, k: Any, v: Any, places: Any) -> Any:
    """The weight of one key for each query, whose place is checked."""
    return az.map(lambda row, place: softmax(row)[place], q @ k.T, places) * v[0, 0]


def test_indices_are_checked_as_before() -> None:
    arguments = drawn((700, 900, 24, 24), np.float64)
    places = np.arange(700)
    compiled = az.compile(gathered)
    wanted = az.compile(gathered, schedule=APART)(*arguments, places)
    np.testing.assert_array_equal(compiled(*arguments, places), wanted)
    places[650] = 900
    with pytest.raises(IndexError, match="900"):
        compiled(*arguments, places)


@pytest.mark.rest
def test_it_is_a_decision() -> None:
    arguments = drawn((1000, 1000, 64, 64), np.float64)
    names = [row.name for row in az.compile(broadcast).decisions(*arguments).rows if row.name.startswith("fuse_rows")]
    assert len(names) == 1
    forced = az.compile(broadcast, schedule={"force": {names[0]: False}})
    forced(*arguments)
    assert "blocks of rows" not in forced.schedule
    assert not in_blocks(forced, arguments, 1000, 1000)


def test_tables_that_fit_into_the_cache_stay_whole() -> None:
    arguments = drawn((64, 64, 16, 16), np.float64)
    peaks = [az.compile(broadcast, schedule=each).peak_bytes(*arguments) for each in ({}, APART)]
    assert abs(peaks[0] - peaks[1]) < 64 * 64  # a table has eight times as many bytes


def test_operands_are_packed_once_a_piece() -> None:
    compiled = az.compile(broadcast)
    compiled(*drawn((1000, 1000, 64, 64), np.float64))
    loops = compiled.loops[compiled.loops.index("if in_blocks") :]
    before_blocks = loops[loops.index("parallel task") : loops.index("let rows")]
    assert before_blocks.count("temporary right") == 1 and "temporary left" not in before_blocks
