"""k-means on points of which few coordinates are not zero, in compressed sparse rows (CSR).

The row of point i has its coordinates that are not zero, ``values[rows[i]:rows[i + 1]]``, and their places in
``columns``. With |p - c|^2 = |p|^2 + |c|^2 - 2 p c only these are read:

    cost = sum_i min_j (|p_i|^2 + |c_j|^2 - 2 sum_e values_e c_j[columns_e])

Source: R. Schenck, O. Rønning, T. Henriksen and C. Oancea, AD for an Array Language with Nested Parallelism (SC 2022),
section 7.5.
"""

from typing import Any

import adze as az


@az.program
def cost(
    values: az.Array[az.f64, "e"],
    columns: az.Array[az.i64, "e"],
    rows: az.Array[az.i64, "r"],  # one more than there are points
    centroids: az.Array[az.f64, "k d"],
) -> az.f64:
    """The sum over the points of the squared distance to the nearest centroid."""
    lengths = az.map(lambda c: c @ c, centroids)

    def to_nearest(i: az.Expr) -> Any:
        start = rows[i]
        count = rows[i + 1] - start

        def distance(j: az.Expr) -> Any:
            product = az.sum(az.generate(count, lambda e: values[start + e] * centroids[j, columns[start + e]]))
            return lengths[j] - 2 * product

        own = az.sum(az.generate(count, lambda e: values[start + e] ** 2))
        return own + az.min(az.generate(centroids.shape[0], distance))

    return az.sum(az.generate(rows.shape[0] - 1, to_nearest))


gradient = az.grad(cost, argnums=3)
