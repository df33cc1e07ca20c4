"""Points: neighbours, and sums over all pairs, in Adze (programs/points.py) and other tools."""

import contextlib
from typing import Any

import numpy as np
from contenders import (
    Arguments,
    CompiledTorch,
    Contender,
    Jax,
    Line,
    Numba,
    Tool,
    Torch,
    of_jax,
    of_torch,
    torch_compiled,
)
from programs import points

import adze as az
from lines.everyday import in_adze, in_jax, in_torch, random, uniform

with contextlib.suppress(ImportError):  # without Numba the other tools are measured
    import numba

# Neighbours


def spread(n: int) -> Arguments:
    return np.random.default_rng(1).random((n, 2)), 0.02, 50


def numba_cell_lists() -> dict[str, Any]:
    from numba import prange

    def neighbours(points: Any, radius: Any, cells: Any) -> Any:
        n = len(points)
        places = np.minimum((points * cells).astype(np.int64), cells - 1)
        starts = np.zeros(cells * cells + 1, np.int64)
        for i in range(n):
            starts[places[i, 0] * cells + places[i, 1] + 1] += 1
        starts = np.cumsum(starts)
        order, filled = np.empty(n, np.int64), starts.copy()
        for i in range(n):
            cell = places[i, 0] * cells + places[i, 1]
            order[filled[cell]] = i
            filled[cell] += 1
        counts = np.empty(n, np.int64)
        for i in prange(n):
            count = -1
            for x in range(max(places[i, 0] - 1, 0), min(places[i, 0] + 2, cells)):
                for y in range(max(places[i, 1] - 1, 0), min(places[i, 1] + 2, cells)):
                    for e in range(starts[x * cells + y], starts[x * cells + y + 1]):
                        j = order[e]
                        dx, dy = points[i, 0] - points[j, 0], points[i, 1] - points[j, 1]
                        count += 1 if dx**2 + dy**2 < radius**2 else 0
            counts[i] = count
        return counts

    return {"primal": neighbours}


def asked(n: int, m: int, d: int, k: int) -> Arguments:
    return (*random((n, d), (m, d), (m,)), k)


def numba_nearest() -> dict[str, Any]:
    from numba import prange

    def predicted(queries: Any, points: Any, labels: Any, k: Any) -> Any:
        found = np.empty(len(queries))
        for i in prange(len(queries)):
            distances = np.empty(len(points))
            for j in range(len(points)):
                total = 0.0
                for c in range(points.shape[1]):
                    total += (points[j, c] - queries[i, c]) ** 2
                distances[j] = np.sqrt(total)
            chosen = np.argsort(distances)[:k]
            weights = 1 / distances[chosen]
            found[i] = (weights * labels[chosen]).sum() / weights.sum()
        return found

    return {"primal": predicted}


def jax_nearest(queries: Any, points: Any, labels: Any, k: Any) -> Any:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def predicted(q: Any) -> Any:
        negative, chosen = lax.top_k(-jnp.sqrt(((points - q) ** 2).sum(1)), k)
        return (labels[chosen] / -negative).sum() / (1 / -negative).sum()

    return jax.vmap(predicted)(queries)


def torch_nearest(queries: Any, points: Any, labels: Any, k: Any) -> Any:
    import torch

    distances, chosen = torch.cdist(queries, points).topk(k, largest=False)
    return (labels[chosen] / distances).sum(1) / (1 / distances).sum(1)


def clustered(n: int) -> Arguments:
    return (*random((n, 2)), 0.1)


def numba_crowded() -> dict[str, Any]:
    from numba import prange

    def crowded(points: Any, radius: Any) -> Any:
        counts = np.empty(len(points), np.int64)
        for i in prange(len(points)):
            count = 0
            for j in range(len(points)):
                dx, dy = points[i, 0] - points[j, 0], points[i, 1] - points[j, 1]
                count += 1 if dx**2 + dy**2 <= radius**2 else 0
            counts[i] = count
        return counts

    return {"primal": crowded}


def jax_crowded(points: Any, radius: Any) -> Any:
    return (((points[:, None] - points[None]) ** 2).sum(-1) <= radius**2).sum(1)


def torch_crowded(points: Any, radius: Any) -> Any:
    return (((points[:, None] - points[None]) ** 2).sum(-1) <= radius**2).sum(1)


# Sums over rows and pairs


def rows_of(n: int, d: int) -> Arguments:
    return (*random((n, d)), float(np.sqrt(d)))


def jax_long_rows(rows: Any, bound: Any) -> Any:
    import jax.numpy as jnp

    kept = jnp.where((jnp.sqrt((rows**2).sum(1)) > bound)[:, None], rows, 0.0)
    return kept.T @ kept


def torch_long_rows(rows: Any, bound: Any) -> Any:
    kept = rows[rows.norm(dim=1) > bound]
    return kept.T @ kept


def numpy_long_rows(rows: Any, bound: Any) -> Any:
    kept = rows[np.linalg.norm(rows, axis=1) > bound]
    return kept.T @ kept


def embedded(n: int) -> Arguments:
    y, high = random((n, 2), (n, 10))
    p = np.exp(-0.5 * ((high[:, None] - high[None]) ** 2).sum(-1)) * (1 - np.eye(n))
    return y, p / p.sum()


def jax_tsne(y: Any, p: Any) -> Any:
    import jax.numpy as jnp

    distances = ((y[:, None] - y[None]) ** 2).sum(-1)
    kernel = jnp.where(jnp.eye(len(y)) == 1, 0.0, 1 / (1 + distances))
    q = kernel / kernel.sum()
    return (p * jnp.log((p + 1e-12) / (q + 1e-12))).sum()


def torch_tsne(y: Any, p: Any) -> Any:
    import torch

    distances = ((y[:, None] - y[None]) ** 2).sum(-1)
    kernel = torch.where(torch.eye(len(y)) == 1, 0.0, 1 / (1 + distances))
    q = kernel / kernel.sum()
    return (p * ((p + 1e-12) / (q + 1e-12)).log()).sum()


def numba_tsne_gradient() -> dict[str, Any]:
    from numba import prange

    def gradient(y: Any, p: Any) -> Any:
        n = len(y)
        kernel, total = np.zeros((n, n)), 0.0
        for i in prange(n):
            for j in range(n):
                if i != j:
                    kernel[i, j] = 1 / (1 + (y[i, 0] - y[j, 0]) ** 2 + (y[i, 1] - y[j, 1]) ** 2)
                    total += kernel[i, j]
        found = np.zeros((n, 2))
        for i in prange(n):
            for j in range(n):
                force = 4 * (p[i, j] - kernel[i, j] / total) * kernel[i, j]
                found[i, 0] += force * (y[i, 0] - y[j, 0])
                found[i, 1] += force * (y[i, 1] - y[j, 1])
        return found

    return {"primal": gradient}


def jax_tsne_gradient(y: Any, p: Any) -> Any:
    import jax.numpy as jnp

    differences = y[:, None] - y[None]
    kernel = jnp.where(jnp.eye(len(y)) == 1, 0.0, 1 / (1 + (differences**2).sum(-1)))
    forces = (p - kernel / kernel.sum()) * kernel
    return 4 * (forces[:, :, None] * differences).sum(1)


def cluster(n: int, steps: int) -> Arguments:
    return (*uniform((n, 3), (n, 3), (n,)), 0.001, steps)


def jax_bodies(places: Any, speeds: Any, masses: Any, dt: Any, steps: int) -> Any:
    from jax import lax

    def forces(x: Any) -> Any:
        d = x[None] - x[:, None]
        return (masses[:, None] * d / ((d**2).sum(-1) + 0.01)[..., None] ** 1.5).sum(1)

    def step(state: Any, _: Any) -> Any:
        x, v = state
        v = v + 0.5 * dt * forces(x)
        x = x + dt * v
        return (x, v + 0.5 * dt * forces(x)), None

    return lax.scan(step, (places, speeds), length=steps)[0]


def with_jax_bodies() -> dict[str, Any]:
    def total(*given: Any) -> Any:
        x, v = jax_bodies(*given)
        return (x**2).sum() + (v**2).sum()

    return {"primal": jax_bodies, "gradient": of_jax(total, (0, 2))["gradient"]}


def numba_bodies(places: Any, speeds: Any, masses: Any, dt: float, steps: int) -> Any:
    n = len(places)
    x, v = places.copy(), speeds.copy()
    for step in range(2 * steps):
        for i in numba.prange(n):
            a = b = c = 0.0
            for j in range(n):
                p, q, r = x[j, 0] - x[i, 0], x[j, 1] - x[i, 1], x[j, 2] - x[i, 2]
                pull = masses[j] / (p * p + q * q + r * r + 0.01) ** 1.5
                a += pull * p
                b += pull * q
                c += pull * r
            v[i, 0] += 0.5 * dt * a
            v[i, 1] += 0.5 * dt * b
            v[i, 2] += 0.5 * dt * c
        if step % 2 == 0:
            x += dt * v
    return x, v


SPREAD = {"n": 10_000}
PRIMAL = ("primal",)
ASKED = {"n": 2000, "m": 5000, "d": 16, "k": 5}
CLUSTERED = {"n": 4000}
ROWS = {"n": 100_000, "d": 32}
EMBEDDED = {"n": 1000}
CLUSTER = {"n": 512, "steps": 10}
LINES = [
    Line(
        "cell lists",
        "Neighbours within a radius, through a grid of cells",
        [SPREAD],
        spread,
        [
            in_adze({"primal": points.cell_lists}),
            Contender("Numba", Numba(), numba_cell_lists),
        ],
        functions=PRIMAL,
        main=SPREAD,
    ),
    Line(
        "nearest",
        "Regression by the k nearest neighbours",
        [ASKED],
        asked,
        [
            in_adze({"primal": points.nearest, "gradient": az.grad(points.nearest_squares, argnums=(0, 2))}),
            Contender("JAX", Jax(static=(3,)), lambda: in_jax(jax_nearest, (0, 2))),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_nearest, (0, 2))),
            Contender("Numba", Numba(), numba_nearest),
        ],
        main=ASKED,
    ),
    Line(
        "crowded",
        "Number of points within a radius of each, over all pairs",
        [CLUSTERED],
        clustered,
        [
            in_adze({"primal": points.crowded}),
            Contender("JAX", Jax(), lambda: {"primal": jax_crowded}),
            Contender("PyTorch", Torch(), lambda: {"primal": torch_crowded}),
            Contender("Numba", Numba(), numba_crowded),
        ],
        functions=PRIMAL,
        main=CLUSTERED,
    ),
    Line(
        "long rows",
        "Products of the rows that are longer than a bound",
        [ROWS],
        rows_of,
        [
            in_adze({"primal": points.long_rows, "gradient": az.grad(points.long_rows_squares)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_long_rows, 0)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_long_rows, (0,))),
            Contender("NumPy", Tool(), lambda: {"primal": numpy_long_rows}),
        ],
        main=ROWS,
    ),
    Line(
        "t-SNE",
        "Divergence of an embedding in the plane (t-SNE)",
        [EMBEDDED],
        embedded,
        [
            in_adze({"primal": points.tsne, "gradient": az.grad(points.tsne)}),
            Contender("JAX", Jax(), lambda: of_jax(jax_tsne)),
            Contender("PyTorch", Torch(), lambda: of_torch(torch_tsne)),
            Contender("PyTorch, compiled", CompiledTorch(), lambda: of_torch(torch_compiled(torch_tsne))),
        ],
        main=EMBEDDED,
    ),
    Line(
        "t-SNE, by hand",
        "Gradient of the divergence of an embedding, by its formula",
        [EMBEDDED],
        embedded,
        [
            in_adze({"primal": points.tsne_gradient}),
            Contender("JAX", Jax(), lambda: {"primal": jax_tsne_gradient}),
            Contender("Numba", Numba(), numba_tsne_gradient),
        ],
        functions=PRIMAL,
        main=EMBEDDED,
    ),
    Line(
        "bodies",
        "Bodies that attract each other",
        [CLUSTER],
        cluster,
        [
            in_adze({"primal": points.bodies, "gradient": az.grad(points.bodies_squares, argnums=(0, 2))}),
            Contender("JAX", Jax(static=(4,)), with_jax_bodies),
            Contender("Numba", Numba(), lambda: {"primal": numba_bodies}),
        ],
        main=CLUSTER,
    ),
]
