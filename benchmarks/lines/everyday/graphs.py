"""Graphs and sparse matrices, in Adze (programs/graphs.py) and other tools."""

import contextlib
from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Numba, Torch, of_jax
from programs import graphs

import adze as az
from lines.everyday import Sequential, floats, in_adze, in_jax, in_torch, uniform

with contextlib.suppress(ImportError):  # without Numba the other tools are measured
    import numba

# Ranks


def links(n: int, e: int) -> Arguments:
    """Edges of which each page has one at least, and no page links much more than others."""
    generator = np.random.default_rng(1)
    source = np.concatenate([np.arange(n), generator.integers(0, n, e - n)])
    return source, generator.integers(0, n, e), 0.5 + generator.random(e), np.full(n, 1 / n)


def scaled(f: Any) -> Any:
    """The ranks, and the gradient of the sum of the squares of n times them."""

    def total(*given: Any) -> Any:
        return ((given[-1].shape[0] * f(*given)) ** 2).sum()

    return {"primal": f, "gradient": of_jax(total, (2, 3))["gradient"]}


def jax_ranks(source: Any, target: Any, weights: Any, jump: Any) -> Any:
    import jax
    import jax.numpy as jnp
    from jax import lax

    n = jump.shape[0]
    shares = weights / jax.ops.segment_sum(weights, source, n)[source]

    def step(rank: Any, _: Any) -> Any:
        return 0.15 * jump + 0.85 * jax.ops.segment_sum(shares * rank[source], target, n), None

    return lax.scan(step, jnp.full(n, 1.0 / n), length=50)[0]


def numba_ranks(source: Any, target: Any, weights: Any, jump: Any) -> Any:
    n = len(jump)
    sums, rank = np.zeros(n), np.full(n, 1.0 / n)
    for k in range(len(source)):
        sums[source[k]] += weights[k]
    shares = weights / sums[source]
    for _ in range(50):
        coming = np.zeros(n)
        for k in range(len(source)):
            coming[target[k]] += shares[k] * rank[source[k]]
        rank = 0.15 * jump + 0.85 * coming
    return rank


def link_rows(n: int, e: int) -> Arguments:
    """The same by the page that is linked to, with shares that sum to 1."""
    source, target, weights, jump = links(n, e)
    shares = weights / np.bincount(source, weights, n)[source]
    order = np.argsort(target, kind="stable")
    rows = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=n))])
    return rows, source[order], shares[order], jump


def jax_row_ranks(rows: Any, source: Any, shares: Any, jump: Any) -> Any:
    import jax
    import jax.numpy as jnp
    from jax import lax

    n = jump.shape[0]
    target = jnp.repeat(jnp.arange(n), jnp.diff(rows), total_repeat_length=source.shape[0])

    def step(rank: Any, _: Any) -> Any:
        coming = jax.ops.segment_sum(shares * rank[source], target, n, indices_are_sorted=True)
        return 0.15 * jump + 0.85 * coming, None

    return lax.scan(step, jnp.full(n, 1.0 / n), length=50)[0]


def numba_row_ranks(rows: Any, source: Any, shares: Any, jump: Any) -> Any:
    n = len(jump)
    rank, after = np.full(n, 1.0 / n), np.empty(n)
    for _ in range(50):
        for i in numba.prange(n):
            total = 0.0
            for k in range(rows[i], rows[i + 1]):
                total += shares[k] * rank[source[k]]
            after[i] = 0.15 * jump[i] + 0.85 * total
        rank, after = after, rank
    return rank


# Shortest ways


def distances(n: int) -> Arguments:
    """Lengths of edges between all nodes, where each has none to itself."""
    (lengths,) = uniform((n, n))
    np.fill_diagonal(lengths, 0.0)
    return (lengths**4,)


def jax_shortest(lengths: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    def through(d: Any, k: Any) -> Any:
        there = d[:, k, None] + d[k]
        return jnp.where(there < d, there, d), None

    return lax.scan(through, lengths, jnp.arange(lengths.shape[0]))[0]


def numba_shortest(lengths: Any) -> Any:
    n, d = len(lengths), lengths.copy()
    for k in range(n):
        for i in numba.prange(n):
            for j in range(n):
                d[i, j] = min(d[i, j], d[i, k] + d[k, j])
    return d


# Sparse products


def compressed(n: int, e: int) -> Arguments:
    drawn = np.random.default_rng(1)
    row, columns = np.sort(drawn.integers(0, n, e)), drawn.integers(0, n, e)
    return drawn.standard_normal(e), columns, np.searchsorted(row, np.arange(n + 1)), drawn.standard_normal(n)


def numba_sparse_product() -> dict[str, Any]:
    from numba import prange

    def product(values: Any, columns: Any, rows: Any, x: Any) -> Any:
        found = np.empty(len(rows) - 1)
        for i in prange(len(rows) - 1):
            total = 0.0
            for e in range(rows[i], rows[i + 1]):
                total += values[e] * x[columns[e]]
            found[i] = total
        return found

    return {"primal": product}


def jax_sparse_product(values: Any, columns: Any, rows: Any, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    count = len(rows) - 1
    row = jnp.repeat(jnp.arange(count), jnp.diff(rows), total_repeat_length=len(values))
    return jax.ops.segment_sum(values * x[columns], row, count, indices_are_sorted=True)


def torch_sparse_product(values: Any, columns: Any, rows: Any, x: Any) -> Any:
    import torch

    return torch.sparse_csr_tensor(rows, columns, values, (len(rows) - 1, len(x)), check_invariants=False) @ x


def dense(*shapes: tuple[int, ...]) -> list[Any]:
    """Weights whose products with numbers of size one are about as large."""
    return [array / np.float32(np.sqrt(array.shape[0])) for array in floats(*shapes)]


def graph(n: int, e: int, d: int) -> Arguments:
    """Edges between random nodes, in compressed rows."""
    generator = np.random.default_rng(1)
    starts = np.concatenate([[0], np.cumsum(generator.multinomial(e, np.full(n, 1 / n)))])
    columns = generator.integers(0, n, e)
    values, x = floats((e,), (n, d))
    return values, columns, starts, x, *dense((d, d))


def rows(n: int, m: int) -> Arguments:
    """A matrix, scale and offset, and a cotangent."""
    return tuple(floats((n, m), (m,), (m,), (n, m)))


def with_numba_graph() -> dict[str, Any]:
    import numba

    def convolved(values: Any, columns: Any, rows: Any, x: Any, weights: Any) -> Any:
        n, d = len(rows) - 1, x.shape[1]
        around = np.zeros((n, d), np.float32)
        for i in numba.prange(n):
            for e in range(rows[i], rows[i + 1]):
                for j in range(d):
                    around[i, j] += values[e] * x[columns[e], j]
        return np.maximum(around @ weights, np.float32(0))

    return {"primal": convolved}


def jax_graph(values: Any, columns: Any, rows: Any, x: Any, weights: Any) -> Any:
    import jax
    import jax.numpy as jnp

    n = rows.shape[0] - 1
    row = jnp.repeat(jnp.arange(n), jnp.diff(rows), total_repeat_length=values.shape[0])
    around = jax.ops.segment_sum(values[:, None] * x[columns], row, n, indices_are_sorted=True)
    return jax.nn.relu(around @ weights)


def torch_graph(values: Any, columns: Any, rows: Any, x: Any, weights: Any) -> Any:
    import torch

    matrix = torch.sparse_csr_tensor(rows, columns, values, (len(rows) - 1, len(x)), check_invariants=False)
    return torch.relu(matrix @ x @ weights)


LINKS = {"n": 10_000, "e": 100_000}
DISTANCES = {"n": 300}
COMPRESSED = {"n": 100_000, "e": 1_000_000}
GRAPH = {"n": 10_000, "e": 100_000, "d": 32}
LINES = [
    Line(
        "pagerank, edges",
        "PageRank of a list of edges",
        [LINKS],
        links,
        [
            in_adze({"primal": graphs.ranks, "gradient": az.grad(graphs.ranks_squares, argnums=(2, 3))}),
            Contender("JAX", Jax(), lambda: scaled(jax_ranks)),
            Contender("Numba", Sequential(), lambda: {"primal": numba_ranks}),
        ],
        main=LINKS,
    ),
    Line(
        "pagerank, rows",
        "PageRank of compressed rows",
        [LINKS],
        link_rows,
        [
            in_adze({"primal": graphs.row_ranks, "gradient": az.grad(graphs.row_ranks_squares, argnums=(2, 3))}),
            Contender("JAX", Jax(), lambda: scaled(jax_row_ranks)),
            Contender("Numba", Numba(), lambda: {"primal": numba_row_ranks}),
        ],
        main=LINKS,
    ),
    Line(
        "shortest paths",
        "Shortest ways between all nodes, by Floyd and Warshall",
        [DISTANCES],
        distances,
        [
            in_adze({"primal": graphs.shortest, "gradient": az.grad(graphs.shortest_sum)}),
            Contender(
                "JAX",
                Jax(),
                lambda: {
                    "primal": jax_shortest,
                    "gradient": of_jax(lambda lengths: jax_shortest(lengths).sum())["gradient"],
                },
            ),
            Contender("Numba", Numba(), lambda: {"primal": numba_shortest}),
        ],
        main=DISTANCES,
    ),
    Line(
        "sparse product",
        "Matrix in compressed sparse rows, times a vector",
        [COMPRESSED],
        compressed,
        [
            in_adze({"primal": graphs.sparse_product, "gradient": az.grad(graphs.sparse_squares, argnums=(0, 3))}),
            Contender("JAX, segments", Jax(), lambda: in_jax(jax_sparse_product, (0, 3))),
            Contender("PyTorch, CSR", Torch(), lambda: {"primal": torch_sparse_product}),
            Contender("Numba", Numba(), numba_sparse_product),
        ],
        main=COMPRESSED,
    ),
    Line(
        "graph convolution",
        "Graph convolution over compressed rows",
        [GRAPH],
        graph,
        [
            in_adze(
                {
                    "primal": graphs.graph_convolution,
                    "gradient": az.grad(graphs.graph_convolution_squares, argnums=(3, 4)),
                }
            ),
            Contender("JAX", Jax(), lambda: in_jax(jax_graph, (3, 4))),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_graph, (3, 4))),
            Contender("Numba", Numba(), with_numba_graph),
        ],
        main=GRAPH,
        tolerance=1e-4,
    ),
]
