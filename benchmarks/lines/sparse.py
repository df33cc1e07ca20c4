"""k-means on sparse points (programs/kmeans_sparse.py), random ones with ``z`` numbers in a row.

JAX sums the products of each row by segments, or multiplies by its sparse matrices; PyTorch and SciPy have products of
sparse matrices in compressed rows.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Tool, Torch, adze, of_jax, of_torch
from programs import kmeans_sparse
from scipy.sparse import csr_array


def arguments(n: int, z: int, d: int, k: int) -> Arguments:
    """So many points, each with z numbers at random places of d, and k centroids."""
    random = np.random.default_rng(1)
    columns = np.sort(random.integers(0, d, (n, z)), axis=1).ravel()
    return random.standard_normal(n * z), columns, z * np.arange(n + 1), random.standard_normal((k, d))


def jax_cost(products: Callable[..., Any]) -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    def cost(values: Any, columns: Any, rows: Any, centroids: Any) -> Any:
        count = rows.shape[0] - 1
        row = jnp.repeat(jnp.arange(count), jnp.diff(rows), total_repeat_length=values.shape[0])
        own = jax.ops.segment_sum(values**2, row, count, indices_are_sorted=True)
        inner = products(values, columns, rows, row, centroids)
        return jnp.sum(own + jnp.min(jnp.sum(centroids**2, axis=1) - 2 * inner, axis=1))

    return cost


def jax_segments(values: Any, columns: Any, rows: Any, row: Any, centroids: Any) -> Any:
    import jax

    terms = values[:, None] * centroids.T[columns]
    return jax.ops.segment_sum(terms, row, rows.shape[0] - 1, indices_are_sorted=True)


def jax_sparse(values: Any, columns: Any, rows: Any, row: Any, centroids: Any) -> Any:
    import jax.numpy as jnp
    from jax.experimental import sparse

    shape = rows.shape[0] - 1, centroids.shape[1]
    matrix = sparse.BCOO((values, jnp.stack([row, columns], axis=1)), shape=shape, indices_sorted=True)
    return matrix @ centroids.T


def torch_cost(values: Any, columns: Any, rows: Any, centroids: Any) -> Any:
    import torch

    shape = len(rows) - 1, centroids.shape[1]
    matrix = torch.sparse_csr_tensor(rows, columns, values, shape, check_invariants=False)
    own = torch.segment_reduce(values**2, "sum", offsets=rows)
    return (own + ((centroids**2).sum(1) - 2 * (matrix @ centroids.T)).min(1).values).sum()


def scipy_distances(values: Any, columns: Any, rows: Any, centroids: Any) -> Any:
    matrix = csr_array((values, columns, rows), shape=(len(rows) - 1, centroids.shape[1]))
    return matrix, np.sum(centroids**2, axis=1) - 2 * (matrix @ centroids.T)


def scipy_cost(values: Any, columns: Any, rows: Any, centroids: Any) -> Any:
    return np.sum(values**2) + np.sum(np.min(scipy_distances(values, columns, rows, centroids)[1], axis=1))


def scipy_gradient(values: Any, columns: Any, rows: Any, centroids: Any) -> Any:
    """Twice the count of each cluster times its centroid, less the sum of its points."""
    matrix, distances = scipy_distances(values, columns, rows, centroids)
    n, k = distances.shape
    member = csr_array((np.ones(n), np.argmin(distances, axis=1), np.arange(n + 1)), shape=(n, k)).T
    return 2 * (member.sum(axis=1)[:, None] * centroids - (member @ matrix).toarray())


MAIN = {"n": 10000, "z": 20, "d": 1000, "k": 10}
LINES = [
    Line(
        "sparse k-means",
        "k-means on sparse points",
        [{"n": 1000, "z": 20, "d": 1000, "k": 10}, MAIN, {"n": 100000, "z": 20, "d": 1000, "k": 10}],
        arguments,
        [
            *adze({"primal": kmeans_sparse.cost, "gradient": kmeans_sparse.gradient}),
            Contender("JAX, segments", Jax(), lambda: of_jax(jax_cost(jax_segments), 3)),
            Contender("JAX, BCOO", Jax(), lambda: of_jax(jax_cost(jax_sparse), 3)),
            Contender("PyTorch, CSR", Torch(), lambda: of_torch(torch_cost, (3,))),
            Contender("SciPy, by hand", Tool(), lambda: {"primal": scipy_cost, "gradient": scipy_gradient}),
        ],
        main=MAIN,
        ablated=True,
    )
]
