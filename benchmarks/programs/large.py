"""Programs over so many points that one goes through them in chunks, as their user writes them.

Each is a program over ``n`` points; ``IN_DASK`` are the same as a user of ``dask.array`` writes them, and behind them
are the fits that scikit-learn has.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import adze as az

Points = az.Array[az.f64, "n d"]
Vector = az.Array[az.f64, "n"]
Centroids = az.Array[az.f64, "k d"]


def added(a: Any, b: Any) -> Any:
    return a + b


@az.program
def total(x: Points) -> az.f64:
    """The sum of all numbers."""
    return az.sum(x)


@az.program
def step(x: Points, c: Centroids) -> Centroids:
    """A step of k-means: the means of the points that are nearest to each centroid."""
    nearest = az.map(lambda p: az.argmin(az.sum((p - c) ** 2, axis=1)), x)
    count = az.histogram(added, 0.0, az.size(c, 0), nearest, az.map(lambda _: 1.0, nearest))
    return az.histogram(added, 0.0, az.size(c, 0), nearest, x) / az.maximum(count, 1.0)[:, None]


@az.program
def clusters(x: Points, start: Centroids, steps: az.i64) -> Centroids:
    """So many steps of k-means."""
    return az.fori_loop(0, steps, lambda _, c: step(x, c), start)


@az.program
def mixture(x: Points, means: Centroids, weights: az.Array[az.f64, "k"]) -> az.f64:
    """The log likelihood of a mixture of normal distributions of width one, but for a constant."""
    each = az.map(lambda p: az.logsumexp(weights - 0.5 * az.sum((p - means) ** 2, axis=1)), x)
    return az.sum(each) - az.size(x, 0) * az.logsumexp(weights)


@az.program
def logistic(x: Points, y: Vector, w: az.Array[az.f64, "d"]) -> az.f64:
    """The loss of a logistic regression with labels of -1 and 1."""
    return az.mean(az.log1p(az.exp(-y * (x @ w)))) + 0.01 * az.sum(w * w)


@az.program
def component(x: Points, start: az.Array[az.f64, "d"], steps: az.i64) -> az.Array[az.f64, "d"]:
    """The direction of the largest variance, by power iteration."""
    mean = az.mean(x, axis=0)

    def round(_: Any, v: Any) -> Any:
        w = (x - mean).T @ ((x - mean) @ v)
        return w / az.sqrt(az.sum(w * w))

    return az.fori_loop(0, steps, round, start)


@az.program
def normalised(x: Vector, bins: az.Array[az.f64, "b"]) -> tuple[az.Array[az.f64, "b"], az.f64, az.f64]:
    """A histogram of what is scaled to mean 0 and spread 1, with both; ``bins`` are as many as there are."""
    mean = az.mean(x)
    spread = az.sqrt(az.mean((x - mean) ** 2))
    place = az.floor(((x - mean) / spread + 4.0) / 8.0 * az.size(bins, 0)).astype(az.i64)
    return az.histogram(added, 0.0, az.size(bins, 0), place, az.map(lambda _: 1.0, place)), mean, spread


@az.program
def curve(p: az.Array[az.f64, 3], t: Vector, y: Vector) -> Vector:
    """Residuals of an exponential with an offset."""
    return p[0] * az.exp(-p[1] * t) + p[2] - y


@az.program
def normal_equations(
    p: az.Array[az.f64, 3], t: Vector, y: Vector
) -> tuple[az.Array[az.f64, 3, 3], az.Array[az.f64, 3], az.f64]:
    """What a step of Gauss-Newton solves: J.T @ J, J.T @ r, and the cost."""
    jacobian, residuals = az.jacobian(curve)(p, t, y), curve(p, t, y)
    return jacobian.T @ jacobian, jacobian.T @ residuals, 0.5 * az.sum(residuals**2)


def fitted(equations: Callable[..., Any], start: Any, t: Any, y: Any, steps: int) -> Any:
    """Steps of Gauss-Newton, with the equations from a compiled program."""
    p = np.asarray(start)
    for _ in range(steps):
        matrix, slope, _ = equations(p, t, y)
        p = p - np.linalg.solve(matrix, slope)
    return p


# As a user of dask.array writes them


def step_in_dask(x: Any, c: Any) -> Any:
    import dask.array as da

    distance = ((x[:, None, :] - c[None]) ** 2).sum(axis=2)
    nearest = distance.argmin(axis=1)
    chosen = (nearest[:, None] == da.arange(len(c))[None]).astype(float)
    found, count = da.compute(chosen.T @ x, chosen.sum(axis=0))
    return found / np.maximum(count, 1.0)[:, None]


def logistic_in_dask(x: Any, y: Any, w: Any) -> tuple[float, Any]:
    import dask.array as da

    e = da.exp(-y * (x @ w))
    value, slope = da.compute(da.log1p(e).mean(), (x.T @ (-y * e / (1.0 + e))) / len(y))
    return float(value + 0.01 * (w @ w)), slope + 0.02 * w


def normalised_in_dask(x: Any, bins: Any) -> tuple[Any, float, float]:
    import dask.array as da

    mean, spread = da.compute(x.mean(), x.std())
    width = 8.0 / len(bins)
    counts, _ = da.histogram((x - mean) / spread, bins=np.arange(len(bins) + 1) * width - 4.0)
    return counts.compute().astype(float), float(mean), float(spread)


def clusters_in_dask(x: Any, start: Any, steps: int) -> Any:
    c = start
    for _ in range(steps):
        c = step_in_dask(x, c)
    return c


def mixture_in_dask(x: Any, means: Any, weights: Any) -> tuple[Any, tuple[Any, Any]]:
    """The likelihood and its gradient by means and weights, as one derives it."""
    import dask.array as da

    each = weights - 0.5 * ((x[:, None, :] - means[None]) ** 2).sum(axis=2)
    largest = each.max(axis=1, keepdims=True)
    part = da.exp(each - largest)
    sums = part.sum(axis=1, keepdims=True)
    value, moved, count = da.compute((largest + da.log(sums)).sum(), (part / sums).T @ x, (part / sums).sum(axis=0))
    share = np.exp(weights - weights.max())
    whole = weights.max() + np.log(share.sum())
    slopes = moved - count[:, None] * means, count - len(x) * share / share.sum()
    return value - len(x) * whole, slopes


def component_in_dask(x: Any, start: Any, steps: int) -> Any:
    centred, v = x - x.mean(axis=0), start
    for _ in range(steps):
        w = (centred.T @ (centred @ v)).compute()
        v = w / np.sqrt(w @ w)
    return v


def normal_equations_in_dask(p: Any, t: Any, y: Any) -> tuple[Any, Any, Any]:
    import dask.array as da

    e = da.exp(-p[1] * t)
    columns, r = da.stack([e, -p[0] * t * e, da.ones_like(t)], axis=1), p[0] * e + p[2] - y
    found: tuple[Any, Any, Any] = da.compute(columns.T @ columns, columns.T @ r, 0.5 * (r**2).sum())
    return found


IN_DASK = {
    "step": step_in_dask,
    "clusters": clusters_in_dask,
    "mixture": mixture_in_dask,
    "logistic": logistic_in_dask,
    "component": component_in_dask,
    "normalised": normalised_in_dask,
    "normal equations": normal_equations_in_dask,
}


# In scikit-learn: whole fits, as it has no parts of them


def clusters_in_scikit_learn(x: Any, start: Any, steps: int) -> Any:
    from sklearn.cluster import KMeans

    return KMeans(len(start), init=start, n_init=1, max_iter=steps, tol=0.0, algorithm="lloyd").fit(x).cluster_centers_


def regression_in_scikit_learn(x: Any, y: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(C=50.0 / len(x), fit_intercept=False, tol=1e-6).fit(x, y)  # what `logistic` adds
    return fitted.coef_[0]


def component_in_scikit_learn(x: Any) -> Any:
    from sklearn.decomposition import PCA

    return PCA(1, svd_solver="covariance_eigh").fit(x).components_[0]
