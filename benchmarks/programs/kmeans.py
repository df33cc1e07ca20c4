"""k-means clustering: the sum of the squared distances of points to their nearest centroids.

    cost = sum_i min_j |c_j - p_i|^2            direction = gradient / diagonal of the Hessian

The direction is that of Newton's method. Between the points where the nearest centroid changes, the Hessian is
diagonal, so that its product with a vector of ones is its diagonal: one forward derivative of the gradient.

Source: GradBench (kmeans).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import adze as az


@az.program
def cost(points: az.Array[az.f64, "n d"], centroids: az.Array[az.f64, "k d"]) -> az.f64:
    """The sum over the points of the squared distance to the nearest centroid."""

    def to_nearest(p: az.Expr) -> Any:
        return az.min(az.map(lambda c: az.sum((p - c) ** 2), centroids))

    return az.sum(az.map(to_nearest, points))


@az.program
def direction(points: az.Array[az.f64, "n d"], centroids: az.Array[az.f64, "k d"]) -> az.Array[az.f64, "k d"]:
    """The gradient by the centroids, divided by the diagonal of the Hessian."""

    def gradient(c: az.Expr) -> Any:
        return az.grad(cost, argnums=1)(points, c)

    slope, curvature = az.jvp(gradient, (centroids,), (az.ones_like(centroids),))
    return slope / curvature


FUNCTIONS = {"cost": cost, "dir": direction}


def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Points and centroids."""
    return np.array(given["points"], dtype=np.float64), np.array(given["centroids"], dtype=np.float64)


def answer(function: str, result: Any) -> Any:
    """The cost, or the direction."""
    return result
