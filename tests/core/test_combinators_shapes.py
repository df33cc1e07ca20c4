"""Shapes, pieces, borders, products of matrices, and Accelerate's combinators, each against NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from annotated import agrees, evaluated

import adze as az


def numbers(*shape: int, dtype: Any = np.float64) -> Any:
    steps = (np.arange(int(np.prod(shape, dtype=int))) * 7 + 3) % 17 - 8
    return (steps / 4 if np.dtype(dtype).kind == "f" else steps).astype(dtype).reshape(shape)


X, A, B, E = numbers(5), numbers(3, 4), numbers(2, 3, 4), numbers(0, 4)

# Each is one function of az and NumPy, by the module that it is written with.
COMMON: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("transpose", lambda m, a: m.transpose(a), (B,)),
    ("transpose axes", lambda m, a: m.transpose(a, (1, -1, 0)), (B,)),
    ("T", lambda m, a: a.T, (E,)),
    ("method transpose", lambda m, a: a.transpose(2, 0, 1), (B,)),
    ("transpose of a vector", lambda m, a: m.transpose(a), (X,)),
    ("swapaxes", lambda m, a: m.swapaxes(a, 0, -1), (B,)),
    ("moveaxis", lambda m, a: m.moveaxis(a, 0, -1), (B,)),
    ("expand_dims", lambda m, a: m.expand_dims(a, (0, -1)), (A,)),
    ("squeeze", lambda m, a: m.squeeze(m.expand_dims(a, (0, 2))), (A,)),
    ("squeeze axis", lambda m, a: m.squeeze(m.expand_dims(a, (0, 2)), 2), (A,)),
    ("reshape", lambda m, a: m.reshape(a, (4, 3)), (A,)),
    ("reshape to a vector", lambda m, a: m.reshape(a, -1), (B,)),
    ("reshape with a rest", lambda m, a: m.reshape(a, (2, -1, 2)), (A,)),
    ("reshape by its sizes", lambda m, a: m.reshape(a, (a.shape[1], a.shape[0])), (A,)),
    ("reshape by its sizes, rest", lambda m, a: m.reshape(a, (a.shape[2], -1)), (B,)),
    ("reshape splits", lambda m, a: m.reshape(a, (a.shape[0], 1, -1, 2)), (A,)),
    ("reshape of nothing", lambda m, a: m.reshape(a, (2, 0, 5)), (E,)),
    ("reshape of a number", lambda m, a: m.reshape(a, (1, 1)), (np.float64(2.5),)),
    ("method reshape", lambda m, a: a.reshape(6, 2), (A,)),
    ("ravel", lambda m, a: m.ravel(a), (E,)),
    ("broadcast_to", lambda m, a: m.broadcast_to(a, (2, 3, 4)), (A,)),
    ("broadcast_to of ones", lambda m, a: m.broadcast_to(a[:, None], (5, 3)), (X,)),
    ("broadcast_to of a number", lambda m, a: m.broadcast_to(a, (2,)), (np.float64(2.5),)),
    ("concatenate", lambda m, a, b: m.concatenate([a, b, a[:0], b]), (X, numbers(1))),
    ("concatenate axis", lambda m, a: m.concatenate((a, a[:, :1]), axis=1), (A,)),
    ("concatenate none", lambda m, a, b: m.concatenate([a, b], axis=None), (A, E)),
    ("concatenate types", lambda m, a, b: m.concatenate([a, b]), (X, np.arange(2))),
    ("concatenate many", lambda m, a: m.concatenate([a[k : k + 1] for k in (4, 0, 3, 1, 2, 2, 0)]), (X,)),
    ("stack", lambda m, a: m.stack([a, 2 * a, a * a]), (X,)),
    ("stack axis", lambda m, a: m.stack([a, -a], axis=-1), (A,)),
    ("stack middle", lambda m, a: m.stack([a, -a], 1), (A,)),
    ("stack scalars", lambda m, a: m.stack([a[0], a[1] * a[2], 1.0]), (X,)),
    ("array", lambda m, a: m.array([[a[0], a[1]], [1.0, a[2]]]), (X,)),
    ("flip", lambda m, a: m.flip(a), (A,)),
    ("flip axis", lambda m, a: m.flip(a, 1), (A,)),
    ("roll", lambda m, a: m.roll(a, 2), (A,)),
    ("roll axis", lambda m, a: m.roll(a, -1, axis=1), (A,)),
    ("roll far", lambda m, a: m.roll(a, 13, 0), (X,)),
    ("roll axes", lambda m, a: m.roll(a, (1, -2), (0, 1)), (A,)),
    ("roll axes alike", lambda m, a: m.roll(a, 2, axis=[0, -1]), (B,)),
    ("roll an axis twice", lambda m, a: m.roll(a, (1, 2, 3), 1), (A,)),
    ("roll axes again", lambda m, a: m.roll(a, (1, 2), (1, 1)), (A,)),
    ("roll all by a tuple", lambda m, a: m.roll(a, (1, 2)), (A,)),
    ("roll by an array", lambda m, a: m.roll(a, np.array([3, 1]), (2, 0)), (B,)),
    ("roll by no axes", lambda m, a: m.roll(a, (), ()), (A,)),
    ("roll nothing along axes", lambda m, a: m.roll(a, (1, 1), (0, 1)), (E,)),
    ("roll nothing", lambda m, a: m.roll(a, 1, 0), (E,)),
    ("roll computed", lambda m, a, k: m.roll(a, k, 0), (X, -7)),
    ("roll axes computed", lambda m, a, k: m.roll(a, (k, 1), (1, 0)), (A, -7)),
    ("np.roll of axes", lambda m, a: np.roll(a, (1, 1), (0, 1)), (A,)),
    ("repeat", lambda m, a: m.repeat(a, 3), (A,)),
    ("repeat axis", lambda m, a: a.repeat(2, 1), (A,)),
    ("repeat never", lambda m, a: m.repeat(a, 0, 0), (A,)),
    ("repeat each", lambda m, a: m.repeat(a, [2, 0, 1], 0), (A,)),
    ("repeat all by one of one", lambda m, a: a.repeat([2], axis=-1), (A,)),
    ("repeat each, computed", lambda m, a, k: m.repeat(a, k, axis=1), (A, np.array([0, 3, 0, 1]))),
    ("repeat each of bytes", lambda m, a, k: a.repeat(k), (A, np.arange(12, dtype=np.uint8))),
    ("repeat each never", lambda m, a, k: m.repeat(a, k), (X, np.zeros_like(X, np.int64))),
    ("repeat nothing", lambda m, a, k: m.repeat(a, k, 0), (E, np.zeros(0, np.int64))),
    ("tile", lambda m, a: m.tile(a, (2, 1, 3)), (A,)),
    ("tile a vector", lambda m, a: m.tile(a, 2), (X,)),
    ("take", lambda m, a, i: m.take(a, i), (A, np.array([11, 0, 5]))),
    ("take axis", lambda m, a, i: m.take(a, i, axis=1), (A, np.array([[3, 0]]))),
    ("take_along_axis", lambda m, a, i: m.take_along_axis(a, i, 1), (A, np.array([[3, 0], [1, 1], [2, 0]]))),
    ("pad", lambda m, a: m.pad(a, 2), (A,)),
    ("pad axes", lambda m, a: m.pad(a, ((1, 0), (0, 2)), constant_values=7.0), (A,)),
    ("pad nothing", lambda m, a: m.pad(a, (1, 2)), (numbers(0),)),
    ("pad edge", lambda m, a: m.pad(a, (2, 1), mode="edge"), (A,)),
    ("pad wrap", lambda m, a: m.pad(a, 3, mode="wrap"), (A,)),
    ("pad reflect", lambda m, a: m.pad(a, 2, mode="reflect"), (A,)),
    ("eye", lambda m, a: m.eye(3) * a[0], (X,)),
    ("eye with a diagonal", lambda m, a: m.eye(2, 4, -1) + a[0], (X,)),
    ("diag of a vector", lambda m, a: m.diag(a), (X,)),
    ("diag above", lambda m, a: m.diag(a, 2), (X,)),
    ("diag below", lambda m, a: m.diag(a, -1), (X,)),
    ("diag of a matrix", lambda m, a: m.diag(a), (A,)),
    ("diag of a matrix, above", lambda m, a: m.diag(a, 2), (A,)),
    ("diag of a matrix, out", lambda m, a: m.diag(a, -9), (A,)),
    ("trace", lambda m, a: a.trace() + a.trace(1) + a[1:].trace(offset=-1), (A,)),
    ("np.trace", lambda m, a: np.trace(a, -1) + np.trace(a, offset=2), (A,)),
    ("tril", lambda m, a: m.tril(a), (B,)),
    ("triu", lambda m, a: m.triu(a, 1), (A,)),
    ("outer", lambda m, a, b: m.outer(a, b), (X, numbers(3))),
    ("einsum", lambda m, a, b: m.einsum("ij,kj->ki", a, b), (A, numbers(2, 4))),
    ("einsum implied", lambda m, a, b: m.einsum("bij,jc", a, b), (B, numbers(4, 2))),
    ("einsum diagonal", lambda m, a: m.einsum("ii->i", a), (numbers(3, 3),)),
    ("einsum to a number", lambda m, a: m.einsum("ij->", a), (A,)),
    ("dot", lambda m, a, b: m.dot(a, b), (X, X)),
    ("dot of a number", lambda m, a: m.dot(a, 2.0), (X,)),
    ("matmul", lambda m, a, b: m.matmul(a, b), (A, numbers(4, 2))),
    ("matmul of a stack", lambda m, a, b: m.matmul(a, b), (B, numbers(2, 4, 2))),
    ("matmul of stacks", lambda m, a, b: a[:, None] @ b, (B, numbers(5, 4, 2))),
    ("matmul of a stack and a matrix", lambda m, a, b: a @ b, (B, numbers(4, 1))),
    ("matmul of a stack and a vector", lambda m, a, b: a @ b, (B, numbers(4))),
    ("matmul of a vector and a stack", lambda m, a, b: a @ b, (numbers(3), B)),
    ("matmul of nothing", lambda m, a, b: a @ b, (E, numbers(4, 2))),
    ("matmul over nothing", lambda m, a, b: a @ b, (numbers(2, 0), numbers(0, 3))),
    ("zeros_like", lambda m, a: m.zeros_like(a) + m.ones_like(a) + m.full_like(a, 2.0), (A,)),
    ("methods", lambda m, a: a.sum(0) + a.mean(0) + a.max(0) - a.min(0) + a.prod(0), (A,)),
    ("more methods", lambda m, a: a.cumsum(1).ravel().dot(a.flatten()), (A,)),
]  # fmt: skip


@pytest.mark.parametrize(("f", "arguments"), [c[1:] for c in COMMON], ids=[c[0] for c in COMMON])
def test_as_in_numpy(f: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    agrees(lambda *a: f(az, *a), lambda *a: f(np, *a), *arguments)


BY_NUMPY = {name for name, _, _ in COMMON} - {
    "array", "eye", "eye with a diagonal", "broadcast_to of a number", "reshape of a number",
}  # fmt: skip


@pytest.mark.parametrize(
    ("f", "arguments"), [c[1:] for c in COMMON if c[0] in BY_NUMPY], ids=[c[0] for c in COMMON if c[0] in BY_NUMPY]
)
def test_functions_of_numpy_take_expressions(f: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    agrees(lambda *a: f(np, *a), lambda *a: f(np, *a), *arguments)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64, np.bool_])
def test_types_are_kept(dtype: Any) -> None:
    a = numbers(2, 3, dtype=dtype)
    for f in (
        lambda m, a: m.concatenate([a, a]), lambda m, a: m.pad(a, 1), lambda m, a: m.triu(a),
        lambda m, a: m.stack([a, a]), lambda m, a: m.roll(a, 1), lambda m, a: m.reshape(a, (3, 2)),
    ):  # fmt: skip
        agrees(lambda a, f=f: f(az, a), lambda a, f=f: f(np, a), a)


def test_the_size_of_an_expression() -> None:
    agrees(
        lambda a: (a.size + a[0, 0] * 0, a.ndim, az.size(a, -1)),
        lambda a: (np.float64(12), np.int64(2), np.int64(4)),
        A,
    )
    agrees(lambda x: az.reverse(x), lambda x: x[::-1], A)
    agrees(lambda x: az.rotate(x, 1), lambda x: np.roll(x, -1, 0), A)
    agrees(lambda x: az.rotate(x, (1, 2), (0, 1)), lambda x: np.roll(x, (-1, -2), (0, 1)), A)
    agrees(lambda x: az.broadcast(x, (2, 5)), lambda x: np.stack([x, x]), X)


# Accelerate


def test_replicate_and_slice() -> None:
    All = az.All
    agrees(
        lambda a: az.replicate((6, All, 7, All), a), lambda a: np.broadcast_to(a[None, :, None], (6, 3, 7, 4)).copy(), A
    )
    agrees(lambda a: az.replicate((All, All), a), lambda a: a, A)
    agrees(lambda x: az.replicate((2,), x), lambda x: np.full(2, x), np.float64(1.5))
    agrees(lambda b, i: az.slice(b, (All, i, 3)), lambda b, i: b[:, i, 3], B, 1)
    agrees(lambda b: az.slice(b, (1, 2, 3)), lambda b: b[1, 2, 3], B)
    agrees(lambda b: b[All, 0], lambda b: b[:, 0], B)


def test_backpermute() -> None:
    agrees(lambda a: az.backpermute((4, 3), lambda i, j: (j, i), a), lambda a: a.T, A)
    agrees(lambda x: az.backpermute(3, lambda i: 4 - 2 * i, x), lambda x: x[::-2], X)
    agrees(
        lambda a, x: az.backpermute(2, lambda i: i, (a, x)), lambda a, x: (a[:2], x[:2]), A, X
    )  # fmt: skip


def test_permute() -> None:
    def tally(old: Any, places: Any) -> Any:
        result = old.copy()
        np.add.at(result, places[places >= 0], 1.0)
        return result

    places = np.array([1, -1, 0, 1, 1])
    agrees(
        lambda old, places: az.permute(lambda a, b: a + b, old, lambda i: places[i], az.ones(5)), tally, X[:2], places
    )
    agrees(
        lambda a: az.permute(lambda old, new: new, az.zeros((4, 3)), lambda i, j: (j, i), a), lambda a: a.T, A
    )  # fmt: skip
    agrees(lambda a: az.permute(az.maximum, az.full(3, 0.25), lambda i, j: i, a), lambda a: a.max(1, initial=0.25), A)
    agrees(
        lambda x: az.permute(
            lambda p, q: (p[0] + q[0], az.minimum(p[1], q[1])),
            (az.zeros(2), az.full(2, 9)), lambda i: i % 2, (x, az.iota(5)),
        ),
        lambda x: (np.array([x[::2].sum(), x[1::2].sum()]), np.array([0, 1])),
        X,
    )  # fmt: skip
    with pytest.raises(IndexError, match=r"permute: index 2 is out of range for axis 0 of .* whose size is 2"):
        evaluated(lambda x: az.permute(lambda a, b: a + b, az.zeros(2), lambda i: i, x), X)


def padded(a: Any, mode: str, width: int) -> Any:
    return np.pad(a, width, mode={"clamp": "edge", "mirror": "reflect"}.get(mode, mode))  # type: ignore[call-overload]


@pytest.mark.parametrize("boundary", ["edge", "wrap", "reflect", "symmetric"])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_stencils_that_reach_far_outside(boundary: str, n: int) -> None:
    agrees(
        lambda x: az.stencil(lambda w: w[-5] + 2 * w[5], boundary, x),
        lambda x: padded(x, boundary, 5)[:-10] + 2 * padded(x, boundary, 5)[10:],
        numbers(n),
    )


@pytest.mark.parametrize("boundary", ["clamp", "wrap", "mirror", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("n", [1, 3, 5])
def test_stencils(boundary: str, n: int) -> None:
    def around(x: Any) -> Any:
        p = padded(x, boundary, 2)
        return p[:-4] + 2 * p[2:-2] - p[4:] / 4

    width = 2 if n > 2 else 1
    if n > 2:
        agrees(lambda x: az.stencil(lambda w: w[-2] + 2 * w[0] - w[2] / 4, boundary, x), around, numbers(n))

    def cross(a: Any) -> Any:
        p = padded(a, boundary, 1)
        return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + 2 * p[1:-1, 2:] + p[:-2, 2:]

    agrees(
        lambda a: az.stencil(lambda w: w[-1, 0] + w[1, 0] + w[0, -1] + 2 * w[0, 1] + w[-1, 1], boundary, a),
        cross,
        numbers(n, 4),
    )
    assert evaluated(lambda x: az.stencil(lambda w: w[width], boundary, x), np.zeros(0)).shape == (0,)


def test_stencils_with_values_outside() -> None:
    agrees(
        lambda x: az.stencil(lambda w: (w[-1], w[0], w[3]), 7, x),
        lambda x: (np.r_[7.0, x[:-1]], x, np.r_[x[3:], 7.0, 7, 7]),
        X,
    )
    agrees(
        lambda x: az.stencil(lambda w: w[-1], lambda i: 10.0 * i, x), lambda x: np.r_[-10.0, x[:-1]], X
    )  # fmt: skip
    agrees(
        lambda x, y: az.stencil(lambda v, w: v[-1] + w[1], 0.0, x, y),
        lambda x, y: np.r_[0.0, x[:-1]] + np.r_[y[1:], 0.0],
        X,
        X * X,
    )
    agrees(
        lambda x: az.stencil(
            lambda w: {"k": w[1]["k"], "x": w[-1]["x"]}, {"x": 0.5, "k": -1}, {"x": x, "k": az.iota(5)}
        ),
        lambda x: {"k": np.array([1, 2, 3, 4, -1]), "x": np.r_[0.5, x[:-1]]},
        X,
    )


@pytest.mark.parametrize(
    ("repeats", "error", "said"),
    [
        ([1, -1, 2], ValueError, "repeat: an element cannot be there -1 times"),
        ([1, 2], ValueError, "repeat: the sizes .* differ"),
        ([1.0, 2.0, 0.0], TypeError, r"a vector of integers, not f64\[3\]"),
        ([[1, 2, 0]], TypeError, r"a vector of integers, not i64\[1, 3\]"),
    ],
)
def test_repeats_that_are_wrong_are_refused(repeats: Any, error: type[Exception], said: str) -> None:
    """Before the run where they are known, with the user's line; an argument of the same kind by the run."""
    with pytest.raises(error, match=said + r".*test_combinators_shapes\.py:\d+"):
        az.evaluate(lambda x: az.repeat(x, repeats, 0))(A)
    given = az.program(lambda x, k: az.repeat(x, k, 0))
    for run in (az.evaluate(given), az.compile(given)):
        with pytest.raises(error, match=r"repeat: .*test_combinators_shapes\.py:\d+"):
            run(A, np.array(repeats))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_counts_are_integers_of_any_type(dtype: Any) -> None:
    """As constants and as arguments."""
    counts, expected = np.array([2, 0, 1], dtype), A[[0, 0, 2]]
    for run in (az.evaluate, az.compile):
        np.testing.assert_array_equal(run(lambda x: az.repeat(x, counts, 0))(A), expected)
        np.testing.assert_array_equal(run(lambda x, k: az.repeat(x, k, 0))(A, counts), expected)


def test_unique_and_repeat_sort() -> None:
    """What occurs, as often as it occurs, is what there was in order; and a derivative adds up what was repeated."""
    x = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])
    for run in (az.evaluate, az.compile):
        np.testing.assert_array_equal(run(lambda x: az.repeat(*az.unique(x, return_counts=True)))(x), np.sort(x))
    slopes = az.compile(az.grad(lambda x, k: az.sum(az.repeat(x, k) ** 2)))(X, np.arange(5))
    np.testing.assert_allclose(slopes, 2 * X * np.arange(5), rtol=1e-14)
