"""Points: neighbours, and sums over all pairs, each as somebody would write it first."""

from typing import Any

import adze as az

Points = az.Array[az.f64, "n d"]
Vector = az.Array[az.f64, "n"]
Bodies = az.Array[az.f64, "n 3"]


# Neighbours


@az.program
def cell_lists(points: az.Array[az.f64, "n 2"], radius: az.f64, cells: az.i64) -> az.Array[az.i64, "n"]:
    """How many other points of the unit square are within a radius, through a grid of cells as wide as that."""
    places = az.minimum((points * cells).astype(az.i64), cells - 1)
    cell = places[:, 0] * cells + places[:, 1]
    order = az.argsort(cell)
    starts = az.searchsorted(cell[order], az.iota(cells * cells + 1))

    def neighbours(p: az.Expr, place: az.Expr) -> az.Expr:
        def within(dx: az.Expr, dy: az.Expr) -> az.Expr:
            x, y = place[0] + dx - 1, place[1] + dy - 1
            inside = (x >= 0) & (x < cells) & (y >= 0) & (y < cells)

            def count() -> az.Expr:
                there = x * cells + y
                others = points[order[starts[there] : starts[there + 1]]]
                return az.count_nonzero(az.sum((others - p) ** 2, 1) < radius**2)

            return az.cond(inside, count, lambda: 0)

        return az.sum(az.generate((3, 3), within)) - 1

    return az.map(neighbours, points, places)


@az.program
def nearest(queries: Points, points: az.Array[az.f64, "m d"], labels: az.Array[az.f64, "m"], k: az.i64) -> Vector:
    """At each query the mean label of the k nearest points, weighted by the inverse of their distance."""

    def predicted(q: az.Expr) -> az.Expr:
        distances = az.sqrt(az.sum((points - q) ** 2, 1))
        chosen = az.argsort(distances)[:k]
        weights = 1 / distances[chosen]
        return az.sum(weights * labels[chosen]) / az.sum(weights)

    return az.map(predicted, queries)


@az.program
def nearest_squares(
    queries: Points, points: az.Array[az.f64, "m d"], labels: az.Array[az.f64, "m"], k: az.i64
) -> az.f64:
    return az.sum(nearest(queries, points, labels, k) ** 2)


@az.program
def crowded(points: Points, radius: az.f64) -> az.Array[az.i64, "n"]:
    """How many points are within a radius of each, which is the first pass of DBSCAN."""
    return az.map(lambda p: az.sum(az.map(lambda q: az.sum((p - q) ** 2) <= radius**2, points)), points)


# Sums over rows and pairs


@az.program
def long_rows(rows: Points, bound: az.f64) -> az.Array[az.f64, "d d"]:
    """The Gram matrix of the rows that are longer than a bound."""
    kept = az.filter(lambda row: az.sqrt(az.sum(row**2)) > bound, rows)
    return kept.T @ kept


@az.program
def long_rows_squares(rows: Points, bound: az.f64) -> az.f64:
    return az.sum(long_rows(rows, bound) ** 2)


@az.program
def tsne(y: az.Array[az.f64, "n 2"], p: az.Array[az.f64, "n n"]) -> az.f64:
    """The divergence between probabilities of pairs, and those that follow from places in the plane."""
    n = y.shape[0]
    distances = az.sum((y[:, None] - y[None]) ** 2, 2)
    kernel = az.where(az.eye(n) == 1, 0.0, 1 / (1 + distances))
    q = kernel / az.sum(kernel)
    return az.sum(p * az.log((p + 1e-12) / (q + 1e-12)))


@az.program
def tsne_gradient(y: az.Array[az.f64, "n 2"], p: az.Array[az.f64, "n n"]) -> az.Array[az.f64, "n 2"]:
    """The gradient of the divergence as papers have it."""
    n = y.shape[0]
    distances = az.sum((y[:, None] - y[None]) ** 2, 2)
    kernel = az.where(az.eye(n) == 1, 0.0, 1 / (1 + distances))
    forces = (p - kernel / az.sum(kernel)) * kernel
    return 4 * az.sum(forces[:, :, None] * (y[:, None] - y[None]), 1)


@az.program
def bodies(places: Bodies, speeds: Bodies, masses: Vector, dt: az.f64, steps: az.i64) -> tuple[Bodies, Bodies]:
    """Bodies that attract each other, by the leapfrog method."""

    def forces(x: az.Expr) -> az.Expr:
        def force(p: az.Expr) -> az.Expr:
            def pull(q: az.Expr, m: az.Expr) -> az.Expr:
                d = q - p
                return m * d / (az.sum(d**2) + 0.01) ** 1.5

            return az.sum(az.map(pull, x, masses), 0)

        return az.map(force, x)

    def step(_: az.Expr, state: Any) -> Any:
        x, v = state
        v = v + 0.5 * dt * forces(x)
        x = x + dt * v
        return x, v + 0.5 * dt * forces(x)

    return az.fori_loop(0, steps, step, (places, speeds))


@az.program
def bodies_squares(places: Bodies, speeds: Bodies, masses: Vector, dt: az.f64, steps: az.i64) -> az.f64:
    x, v = bodies(places, speeds, masses, dt, steps)
    return az.sum(x**2) + az.sum(v**2)
