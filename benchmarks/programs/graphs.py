"""Graphs and sparse matrices, each as somebody would write it first."""

import adze as az

Vector = az.Array[az.f64, "n"]
Square = az.Array[az.f64, "n n"]


# Ranks


@az.program
def ranks(
    source: az.Array[az.i64, "e"], target: az.Array[az.i64, "e"], weights: az.Array[az.f64, "e"], jump: Vector
) -> Vector:
    """PageRank of a list of edges: 50 steps from equal ranks; the weights of a page's links are made to sum to 1."""
    n = jump.shape[0]
    shares = weights / az.bincount(source, weights, length=n)[source]

    def step(_: az.Expr, rank: az.Expr) -> az.Expr:
        return 0.15 * jump + 0.85 * az.bincount(target, shares * rank[source], length=n)

    return az.fori_loop(0, 50, step, az.full(n, 1.0 / n))


@az.program
def ranks_squares(
    source: az.Array[az.i64, "e"], target: az.Array[az.i64, "e"], weights: az.Array[az.f64, "e"], jump: Vector
) -> az.f64:
    return az.sum((jump.shape[0] * ranks(source, target, weights, jump)) ** 2)


@az.program
def row_ranks(
    rows: az.Array[az.i64, "n+1"], source: az.Array[az.i64, "e"], shares: az.Array[az.f64, "e"], jump: Vector
) -> Vector:
    """PageRank of compressed rows: those of a page have the pages that link to it, with their shares."""
    n = jump.shape[0]

    def step(_: az.Expr, rank: az.Expr) -> az.Expr:
        def page(i: az.Expr) -> az.Expr:
            links = az.generate(rows[i + 1] - rows[i], lambda k: shares[rows[i] + k] * rank[source[rows[i] + k]])
            return 0.15 * jump[i] + 0.85 * az.sum(links)

        return az.generate(n, page)

    return az.fori_loop(0, 50, step, az.full(n, 1.0 / n))


@az.program
def row_ranks_squares(
    rows: az.Array[az.i64, "n+1"], source: az.Array[az.i64, "e"], shares: az.Array[az.f64, "e"], jump: Vector
) -> az.f64:
    return az.sum((jump.shape[0] * row_ranks(rows, source, shares, jump)) ** 2)


# Shortest ways


@az.program
def shortest(lengths: Square) -> Square:
    """The lengths of the shortest ways between all pairs of nodes, by Floyd and Warshall."""
    n = lengths.shape[0]
    return az.fori_loop(0, n, lambda k, d: az.minimum(d, d[:, k, None] + d[k]), lengths)


@az.program
def shortest_sum(lengths: Square) -> az.f64:
    return az.sum(shortest(lengths))


# Sparse products


@az.program
def sparse_product(
    values: az.Array[az.f64, "e"], columns: az.Array[az.i64, "e"], rows: az.Array[az.i64, "r"], x: Vector
) -> az.Array[az.f64, "r-1"]:
    """A matrix in compressed sparse rows times a vector."""

    def row(i: az.Expr) -> az.Expr:
        here = slice(rows[i], rows[i + 1])
        return az.sum(values[here] * x[columns[here]])

    return az.generate(rows.shape[0] - 1, row)


@az.program
def sparse_squares(
    values: az.Array[az.f64, "e"], columns: az.Array[az.i64, "e"], rows: az.Array[az.i64, "r"], x: Vector
) -> az.f64:
    return az.sum(sparse_product(values, columns, rows, x) ** 2)


@az.program
def graph_convolution(
    values: az.Array[az.f32, "e"],
    columns: az.Array[az.i64, "e"],
    rows: az.Array[az.i64, "r"],  # one more than there are nodes
    x: az.Array[az.f32, "n d"],
    weights: az.Array[az.f32, "d k"],
) -> az.Array[az.f32, "r-1 k"]:
    """For each node the weighted sum of its neighbours' features, through a dense layer."""

    def around(i: az.Expr) -> az.Expr:
        start = rows[i]
        edges = az.iota(rows[i + 1] - start) + start
        return az.sum(az.map(lambda e: values[e] * x[columns[e]], edges), 0)

    return az.maximum(az.generate(rows.shape[0] - 1, around) @ weights, 0.0)


@az.program
def graph_convolution_squares(
    values: az.Array[az.f32, "e"],
    columns: az.Array[az.i64, "e"],
    rows: az.Array[az.i64, "r"],
    x: az.Array[az.f32, "n d"],
    weights: az.Array[az.f32, "d k"],
) -> az.f32:
    return az.sum(graph_convolution(values, columns, rows, x, weights) ** 2)
