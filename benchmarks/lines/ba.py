"""Bundle adjustment (programs/ba.py): the errors, the values of their sparse Jacobian, and the whole matrix.

The matrix is SciPy's, on the three arrays of its compressed rows, which each tool computes. The sizes are those of
GradBench, which replicates one camera, point and observation.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Then, Torch, adze, adze_into
from programs import ba
from programs.cases import read_cases
from scipy.sparse import csr_array

import adze as az

SIZES = [
    {"n": n, "m": m, "p": p}
    for n, m, p in (
        (49, 7776, 31843),
        (21, 11315, 36455),
        (161, 48126, 182072),
        (372, 47423, 204472),
        (257, 65132, 225911),
        (539, 65220, 277273),
    )
]
MAIN = SIZES[3]


def arguments(n: int, m: int, p: int) -> Arguments:
    given = read_cases("ba")[0].given
    return ba.arguments({**given, "n": n, "m": m, "p": p})


@az.program
def values(
    cameras: az.Array[az.f64, "n 11"],
    points: az.Array[az.f64, "m 3"],
    weights: az.Array[az.f64, "p"],
    observations: az.Array[az.i64, "p 2"],
    features: az.Array[az.f64, "p 2"],
) -> tuple[az.Array[az.f64, "p 2 15"], az.Array[az.f64, "p"]]:
    """The values of the Jacobian alone, for who has the pattern already."""
    _, errors, of_weights = ba.jacobian(cameras, points, weights, observations, features)
    return errors, of_weights


def matrix(compressed: Any) -> csr_array:
    """SciPy's matrix of these arrays. Its last column is that of the last weight."""
    values, columns, starts = map(np.asarray, compressed)
    width = int(columns[-1]) + 1 if len(columns) else 0
    return csr_array((values, columns, starts), shape=(len(starts) - 1, width))


def project(xp: Any, camera: Any, point: Any) -> Any:
    """``ba.project`` in the NumPy of a tool; both branches of the rotation are computed, and neither gives NaN."""
    r, z = camera[:3], point - camera[3:6]
    square = r @ r
    is_zero = square == 0
    angle = xp.sqrt(xp.where(is_zero, 1.0, square))
    u = r / angle

    def cross(a: Any, b: Any) -> Any:
        return xp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])

    turned = z * xp.cos(angle) + cross(u, z) * xp.sin(angle) + u * (u @ z) * (1 - xp.cos(angle))
    seen = xp.where(is_zero, z + cross(r, z), turned)
    p = seen[:2] / seen[2]
    s = p @ p
    return camera[6] * p * (1 + camera[9] * s + camera[10] * s**2) + camera[7:9]


def with_arrays(xp: Any, vmap: Callable[..., Any], jacrev: Callable[..., Any]) -> dict[str, Any]:
    """The functions in JAX or PyTorch, whose arrays, vmap and jacrev these are."""

    def error(camera: Any, point: Any, weight: Any, feature: Any) -> Any:
        return weight * (project(xp, camera, point) - feature)

    def errors(cameras: Any, points: Any, weights: Any, observations: Any, features: Any) -> Any:
        seen = cameras[observations[:, 0]], points[observations[:, 1]]
        return vmap(error)(*seen, weights, features), 1 - weights**2

    def jacobian(cameras: Any, points: Any, weights: Any, observations: Any, features: Any) -> Any:
        seen = cameras[observations[:, 0]], points[observations[:, 1]]
        by_camera, by_point, by_weight = vmap(jacrev(error, argnums=(0, 1, 2)))(*seen, weights, features)
        return xp.concatenate([by_camera, by_point, by_weight[:, :, None]], 2), -2 * weights

    def compressed(cameras: Any, points: Any, weights: Any, observations: Any, features: Any) -> Any:
        n, m, p = cameras.shape[0], points.shape[0], weights.shape[0]
        of_weights = 11 * n + 3 * m + xp.arange(p)
        of_cameras, of_points = 11 * observations[:, :1], 11 * n + 3 * observations[:, 1:]
        columns = [of_cameras + xp.arange(11), of_points + xp.arange(3), of_weights[:, None]]
        of_rows = xp.stack(2 * [xp.concatenate(columns, 1)], 1)
        by_errors, by_weights = jacobian(cameras, points, weights, observations, features)
        starts = xp.concatenate([15 * xp.arange(2 * p), 30 * p + xp.arange(p + 1)])
        return (
            xp.concatenate([by_errors.reshape(-1), by_weights]),
            xp.asarray(xp.concatenate([of_rows.reshape(-1), of_weights]), dtype=xp.int32),
            xp.asarray(starts, dtype=xp.int32),
        )

    return {"objective": errors, "jacobian": jacobian, "assembled": Then(compressed, matrix)}


def with_jax() -> dict[str, Any]:
    import jax

    return with_arrays(jax.numpy, jax.vmap, jax.jacrev)


def with_torch() -> dict[str, Any]:
    import torch

    return with_arrays(torch, torch.func.vmap, torch.func.jacrev)


LINES = [
    Line(
        "ba",
        "Bundle adjustment",
        SIZES,
        arguments,
        [
            *adze(
                {
                    "objective": ba.errors,
                    "jacobian": values,
                    "assembled": Then(ba.compressed, matrix),
                }
            ),
            adze_into({"jacobian": values}),
            Contender("JAX, vmap", Jax(), with_jax),
            Contender("PyTorch, vmap", Torch(), with_torch),
        ],
        functions=("objective", "jacobian", "assembled"),
        main=MAIN,
        ablated=True,
        moved={"jacobian": lambda n, m, p: 2 * 8.0 * 31 * p},
        notes="The Jacobian is that of its values, whose pattern is known; assembled, all of the matrix is made, with "
        "its pattern, as SciPy's CSR.",
    )
]
