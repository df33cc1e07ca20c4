"""Orthogonal factors of small matrices by programs of the language: values against NumPy's, slopes by differences."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sampling import some

import adze as az
from adze.library.linalg import jacobi, small

pytestmark = pytest.mark.unguarded

RANDOM = np.random.default_rng(29)


def of(x: np.ndarray, front: str = "m") -> Any:
    """The type of a stack of matrices with constant extents."""
    names = front.split()
    return az.Array[az.f32 if x.dtype == "f4" else az.f64, *names, *x.shape[len(names) :]]


def general(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape)


def symmetric(*shape: int) -> np.ndarray:
    x = general(*shape)
    return x + np.swapaxes(x, -1, -2)


def flipped(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def exact(found: Any, wanted: Any, scale: Any, eps: float = 1e-14) -> None:
    assert np.shape(found) == np.shape(wanted) and np.asarray(found).dtype == np.asarray(wanted).dtype
    assert np.all(np.abs(found - wanted) <= eps * scale * (1 + max(wanted.shape, default=0)))


def are_eigenvalues(a: np.ndarray, values: np.ndarray, vectors: np.ndarray, eps: float = 1e-14) -> None:
    size = np.abs(a).max(initial=0)
    exact(values, np.linalg.eigvalsh(a), size, eps)
    assert np.all(np.diff(values) >= 0)
    exact(a @ vectors, vectors * values[..., None, :], size, eps)
    exact(flipped(vectors) @ vectors, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape), 1, eps)


def are_singular(a: np.ndarray, u: np.ndarray, values: np.ndarray, vh: np.ndarray, eps: float = 1e-14) -> None:
    size, least = np.abs(a).max(initial=0), min(a.shape[-2:])
    exact(values, np.linalg.svd(a, compute_uv=False), size, eps)
    assert np.all(np.diff(values) <= 0) and np.all(values >= 0)
    exact(u * values[..., None, :] @ vh, a, size, eps)
    unit = np.broadcast_to(np.eye(least, dtype=a.dtype), (*a.shape[:-2], least, least))
    exact(flipped(u) @ u, unit, 1, eps)
    exact(vh @ flipped(vh), unit, 1, eps)


def mapped(call: Callable[..., Any]) -> Any:
    return az.program(lambda a: az.map(lambda a: tuple(call(a)), a))


def hard(n: int) -> np.ndarray:
    """Symmetric matrices: nothing, of one rank, of equal numbers and opposite ones, of all scales."""
    graded = np.diag(10.0 ** -np.arange(n)) @ symmetric(n, n) @ np.diag(10.0 ** -np.arange(n))
    opposite = np.eye(n)[::-1]
    made = [np.zeros((n, n)), np.ones((n, n)), np.eye(n), opposite, graded, graded[::-1, ::-1], np.diag(np.arange(n))]
    return np.stack([*made, *(scale * symmetric(n, n) for scale in (1e-200, 1e-30, 1e30, 1e150))])


@pytest.mark.parametrize("n", some([2, 3, 1, 0, 5, 8], 2))
def test_eigenvalues_along_lanes(n: int) -> None:
    a = np.concatenate([symmetric(30, n, n), hard(n)])
    compiled = [az.compile(mapped(az.linalg.eigh).at(of(a)), threads=threads) for threads in (1, 2)]
    assert "call" not in compiled[0].loops
    one, two = [each(a) for each in compiled]
    for matrix, values, vectors in zip(a, *one, strict=True):
        are_eigenvalues(matrix, values, vectors)
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first, second)
    assert a[:0].shape[0] == len(compiled[0](a[:0])[0])


@pytest.mark.parametrize("shape", some([(3, 2), (1, 1), (2, 4), (0, 2), (2, 0), (4, 4)], 1))
def test_singular_values_along_lanes(shape: tuple[int, int]) -> None:
    a = np.concatenate([general(30, *shape), hard(max(shape))[:, : shape[0], : shape[1]]])
    compiled = az.compile(mapped(az.linalg.svd).at(of(a)))
    assert "call" not in compiled.loops
    for matrix, *parts in zip(a, *compiled(a), strict=True):
        are_singular(matrix, *parts)


@pytest.mark.parametrize("shape", some([(3, 3), (5, 2), (2, 5), (1, 1), (0, 3), (3, 0), (8, 8)], 2))
def test_reflections_along_lanes(shape: tuple[int, int]) -> None:
    """NumPy's own factors, and so the same signs."""
    a = np.concatenate([general(30, *shape), 1e200 * general(2, *shape), 1e-200 * general(2, *shape)])
    a[3], a[4] = 0, np.eye(*shape)
    compiled = az.compile(mapped(az.linalg.qr).at(of(a)))
    assert "call" not in compiled.loops
    scale = np.abs(a).max((1, 2), keepdims=True, initial=0)
    for found, wanted, size in zip(compiled(a), np.linalg.qr(a), (1, scale), strict=True):
        exact(found, wanted, size, 3e-13)


@pytest.mark.rest
def test_single_precision() -> None:
    a = symmetric(20, 3, 3).astype("f4")
    are_eigenvalues(a, *az.compile(mapped(az.linalg.eigh).at(of(a)))(a), eps=1e-6)
    are_singular(a, *az.compile(mapped(az.linalg.svd).at(of(a)))(a), eps=1e-6)


def test_the_programs_of_larger_ones() -> None:
    """As devices run them, in NumPy's arrays."""
    a, b = symmetric(9, 9), general(7, 10)
    are_eigenvalues(a, *az.evaluate(az.program(lambda a: jacobi.eigh(a)).at(of(a, "")))(a))
    are_singular(b, *az.evaluate(az.program(lambda b: jacobi.svd(b)).at(of(b, "")))(b))
    for found, wanted in zip(az.evaluate(lambda b: small.orthonormal(b))(b), np.linalg.qr(b), strict=True):
        exact(found, wanted, 1, 1e-13)


@pytest.mark.parametrize("name", ["eigh", "svd"])
def test_nan(name: str) -> None:
    """It ends, and is an error."""
    a = np.stack([np.eye(2), np.array([[1.0, 2.0], [2.0, np.nan]])])
    program = mapped(getattr(az.linalg, name)).at(of(a))
    with pytest.raises(np.linalg.LinAlgError, match=rf"{name}: the .* did not converge, number 1, at .*test_jacobi"):
        az.compile(program)(a)
    assert np.isnan(az.compile(program, checks=False)(a)[1][1]).any()


NUMBERS: dict[str, Callable[..., Any]] = {
    "eigh": lambda a: az.sum(az.sin(az.linalg.eigh(a).eigenvectors ** 2)) + az.sum(az.linalg.eigvalsh(a) ** 3),
    "svd": lambda a: az.sum(az.sin(az.linalg.svd(a).U ** 2)) + az.sum(az.linalg.svdvals(a) ** 3),
    "qr": lambda a: az.sum(az.sin(az.linalg.qr(a).Q)) + az.sum(az.linalg.qr(a).R ** 3),
    "norm": lambda a: az.linalg.norm(a, 2) * az.linalg.cond(a),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NUMBERS)
def test_derivatives(name: str) -> None:
    a, way, h = np.diag([1.0, 2.0, 4.0]) + 0.1 * symmetric(5, 3, 3), symmetric(5, 3, 3), 1e-6
    program = az.program(lambda a: az.sum(az.map(NUMBERS[name], a)))
    run, gradient = az.compile(program.at(of(a))), az.compile(az.grad(program).at(of(a)))
    wanted = (run(a + h * way) - run(a - h * way)) / (2 * h)
    np.testing.assert_allclose(np.sum(gradient(a) * way), wanted, rtol=1e-6)


def test_of_equal_eigenvalues_vectors_have_no_slope() -> None:
    a, program = (
        np.stack([np.eye(2)]),
        az.program(lambda a: az.sum(az.map(lambda a: a[0, 1] + az.linalg.eigh(a)[1], a))),
    )
    assert not np.isfinite(az.compile(az.grad(program).at(of(a)))(a)).all()


# OpenCL


@pytest.mark.slow
def test_factors_of_any_size_on_a_device(opencl: Any) -> None:
    a, b = general(40, 40) + 8 * np.eye(40), general(40, 3)
    positive = a @ a.T
    calls: dict[str, tuple[Any, Any]] = {
        "cholesky": (lambda a, p, b: az.linalg.cholesky(p), np.linalg.cholesky(positive)),
        "lu": (lambda a, p, b: az.linalg.solve(a, b[:, 0]), np.linalg.solve(a, b[:, 0])),
        "triangle": (
            lambda a, p, b: az.linalg.solve_triangular(a, b[:, 0], trans=1, unit_diagonal=True),
            np.linalg.solve(np.triu(a, 1).T + np.eye(40), b[:, 0]),
        ),
        "qr": (lambda a, p, b: az.linalg.qr(p[:, :9]).R, np.linalg.qr(positive[:, :9]).R),
    }
    for call, wanted in calls.values():
        found = az.compile(az.program(call), backend="opencl")(a, positive, b)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())


def test_large_blocks_are_refused_on_a_device(opencl: Any) -> None:
    """Of many right-hand sides, blocks are solved for whose sizes are computed."""
    with pytest.raises(TypeError, match="the function solve_triangular, which is written elsewhere, runs on the host"):
        az.compile(lambda a, b: az.linalg.solve_triangular(a, b), backend="opencl")(np.eye(40), np.ones((40, 3)))


@pytest.mark.rest
def test_decompositions_on_a_device(opencl: Any) -> None:
    a, b = symmetric(2, 12, 12), general(2, 10, 4)
    values = az.compile(mapped(lambda a: (az.linalg.eigvalsh(a),)).at(of(a)), backend="opencl")(a)
    singular = az.compile(mapped(lambda a: (az.linalg.svdvals(a),)).at(of(b)), backend="opencl")(b)
    np.testing.assert_allclose(values[0], np.linalg.eigvalsh(a), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(singular[0], np.linalg.svd(b, compute_uv=False), rtol=1e-10)


@pytest.mark.parametrize("name", ["eigh", "svd"])
def test_large_decompositions_are_refused_on_a_device(name: str, opencl: Any) -> None:
    with pytest.raises(TypeError, match=f"the function {name}, which is written elsewhere, runs on the host"):
        az.compile(lambda a: tuple(getattr(az.linalg, name)(a)), backend="opencl")(np.eye(40))
