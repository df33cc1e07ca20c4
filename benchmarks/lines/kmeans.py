"""k-means: the cost, and the direction of Newton's method (programs/kmeans.py).

The direct formula makes an array of n k d differences where a tool does not fuse; |p|^2 - 2 p c + |c|^2 is multiplied
out, one matrix product. The sibling has the distance |p - c|_1, for which that is not possible; its direction is the
gradient, since its curvature is zero.
"""

from typing import Any

import numpy as np
from contenders import Contender, Jax, Line, Tool, Torch, adze, of_torch
from programs import kmeans

import adze as az


def arguments(n: int, k: int, d: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(1)
    return random.standard_normal((n, d)), random.standard_normal((k, d))


def arguments_by_columns(n: int, k: int, d: int) -> tuple[np.ndarray, ...]:
    points, centroids = arguments(n, k, d)
    return np.ascontiguousarray(points.T), np.ascontiguousarray(centroids.T)


def work(n: int, k: int, d: int) -> float:
    return 3.0 * n * k * d


# JAX


def jax_direct(p: Any, c: Any) -> Any:
    import jax.numpy as jnp

    return jnp.sum(jnp.min(jnp.sum((p[:, None] - c) ** 2, axis=2), axis=1))


def jax_multiplied_out(p: Any, c: Any) -> Any:
    import jax.numpy as jnp

    return jnp.sum(jnp.min(jnp.sum(p * p, 1)[:, None] - 2 * p @ c.T + jnp.sum(c * c, 1), axis=1))


def jax_functions(cost: Any) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    def direction(p: Any, c: Any) -> Any:
        slope, curvature = jax.jvp(lambda c: jax.grad(cost, argnums=1)(p, c), (c,), (jnp.ones_like(c),))
        return slope / curvature

    return {"cost": cost, "direction": direction}


def jax_l1(p: Any, c: Any) -> Any:
    import jax.numpy as jnp

    return jnp.sum(jnp.min(jnp.sum(jnp.abs(p[:, None] - c), axis=2), axis=1))


# PyTorch


def torch_multiplied_out(p: Any, c: Any) -> Any:
    import torch

    return torch.addmm((c * c).sum(1), p, c.T, alpha=-2).add((p * p).sum(1)[:, None]).min(1).values.sum()


def torch_functions(cost: Any) -> dict[str, Any]:
    import torch

    def direction(p: Any, c: Any) -> Any:
        def gradient(c: Any) -> Any:
            return torch.func.grad(cost, argnums=1)(p, c)

        slope, curvature = torch.func.jvp(gradient, (c,), (torch.ones_like(c),))
        return slope / curvature

    return {"cost": cost, "direction": direction}


def torch_l1(p: Any, c: Any) -> Any:
    import torch

    return torch.cdist(p, c, p=1).min(1).values.sum()


# NumPy


def numpy_cost(p: Any, c: Any) -> Any:
    distances = p @ c.T
    distances *= -2
    distances += np.sum(c * c, 1)
    return np.sum(np.min(distances, axis=1)) + np.sum(p * p)


def numpy_direction(p: Any, c: Any) -> Any:
    """By hand: the mean of each cluster."""
    nearest = np.argmin(np.sum(c * c, 1) - 2 * (p @ c.T), axis=1)
    count = np.bincount(nearest, minlength=len(c))[:, None]
    sums = np.stack([np.bincount(nearest, weights=column, minlength=len(c)) for column in p.T], axis=1)
    with np.errstate(invalid="ignore"):
        return (count * c - sums) / count


# The siblings


@az.program
def l1_cost(points: az.Array[az.f64, "n d"], centroids: az.Array[az.f64, "k d"]) -> az.f64:
    """The sum over the points of the distance to the nearest centroid, coordinate by coordinate."""
    return az.sum(az.map(lambda p: az.min(az.map(lambda c: az.sum(abs(p - c)), centroids)), points))


@az.program
def cost_by_columns(points: az.Array[az.f64, "d n"], centroids: az.Array[az.f64, "d k"]) -> az.f64:
    """The cost where a row has one coordinate of all points."""
    return kmeans.cost(points.T, centroids.T)


@az.program
def direction_by_columns(
    points: az.Array[az.f64, "d n"], centroids: az.Array[az.f64, "d k"]
) -> az.Array[az.f64, "d k"]:
    return kmeans.direction(points.T, centroids.T).T


def by_columns(functions: dict[str, Any]) -> dict[str, Any]:
    """A tool's functions where a row has one coordinate of all points."""
    return {
        "cost": lambda p, c: functions["cost"](p.T, c.T),
        "direction": lambda p, c: functions["direction"](p.T, c.T).T,
    }


def jax_l1_functions() -> dict[str, Any]:
    import jax

    return {"cost": jax_l1, "direction": jax.grad(jax_l1, argnums=1)}


def torch_l1_functions() -> dict[str, Any]:
    functions = of_torch(torch_l1, (1,))
    return {"cost": functions["primal"], "direction": functions["gradient"]}


MAIN = {"n": 10000, "k": 1000, "d": 16}
LINES = [
    Line(
        "kmeans",
        "k-means",
        [{"n": 10000, "k": 10, "d": 16}, MAIN, {"n": 494019, "k": 5, "d": 35}],
        arguments,
        [
            *adze({"cost": kmeans.cost, "direction": kmeans.direction}),
            Contender("JAX", Jax(), lambda: jax_functions(jax_direct)),
            Contender("JAX, multiplied out", Jax(), lambda: jax_functions(jax_multiplied_out)),
            Contender("PyTorch, multiplied out", Torch(), lambda: torch_functions(torch_multiplied_out)),
            Contender("NumPy, by hand", Tool(), lambda: {"cost": numpy_cost, "direction": numpy_direction}),
        ],
        functions=("cost", "direction"),
        main=MAIN,
        ablated=True,
        work=work,
    ),
    Line(
        "kmeans, L1",
        "k-means with the distance |p - c|_1; the derivative is the gradient",
        [MAIN],
        arguments,
        [
            *adze({"cost": l1_cost, "direction": az.grad(l1_cost, argnums=1)}),
            Contender("JAX", Jax(), jax_l1_functions),
            Contender("PyTorch", Torch(), torch_l1_functions),
        ],
        functions=("cost", "direction"),
        main=MAIN,
        work=work,
        sibling_of="kmeans",
    ),
    Line(
        "kmeans, by columns",
        "k-means on the transposed arrays",
        [MAIN],
        arguments_by_columns,
        [
            *adze({"cost": cost_by_columns, "direction": direction_by_columns}),
            Contender("JAX, multiplied out", Jax(), lambda: by_columns(jax_functions(jax_multiplied_out))),
        ],
        functions=("cost", "direction"),
        main=MAIN,
        work=work,
        sibling_of="kmeans",
    ),
]
