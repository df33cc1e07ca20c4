"""Models that are fitted to data by least squares: many small fits, one of many places, and a bundle.

``peaks`` fits a Gaussian peak with an offset to each of k pictures of 5 x 5 pixels: 5 unknowns each. ``exponentials``
are the residuals of a sum of exponentials at n places. ``bundle`` are those of bundle adjustment, with ``ba.project``
for cameras that have 11 parameters; its data are made up, with noise and one outlier in a hundred. A fit of a bundle
begins at 140 times the cost at which it ends.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import adze as az

from . import ba

SIDE = np.arange(5.0) - 2.0
START = (1.0, 0.0, 0.0, 1.0, 0.0)  # the height, place, width and offset of a peak
RATES = np.array([0.3, 1.0, 3.0, 10.0, 30.0])


def peak(exp: Any, p: Any, u: Any) -> Any:
    """The pixels of a peak."""
    distances = ((u[None, :] - p[1]) ** 2 + (u[:, None] - p[2]) ** 2) / (2 * p[3] ** 2)
    return p[0] * exp(-distances) + p[4]


@az.program
def peaks(images: az.Array[az.f64, "k", 5, 5], u: az.Array[az.f64, 5]) -> az.Array[az.f64, "k", 5]:
    def residuals(p: Any, image: Any, u: Any) -> Any:
        return peak(az.exp, [p[k] for k in range(5)], u) - image

    return az.map(lambda image: az.levenberg_marquardt(residuals, az.array(list(START)), args=(image, u)), images)


@az.program
def exponentials(p: az.Array[az.f64, 5, 2], t: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"]):  # type: ignore[no-untyped-def]
    return az.map(lambda s, v: az.sum(az.map(lambda q: q[0] * az.exp(-q[1] * s), p)) - v, t, y)


@az.program
def bundle(  # type: ignore[no-untyped-def]
    x: {"cameras": az.Array[az.f64, "c", 11], "points": az.Array[az.f64, "p", 3]},  # type: ignore[valid-type]
    camera: az.Array[az.i64, "o"],
    point: az.Array[az.i64, "o"],
    seen: az.Array[az.f64, "o", 2],
):
    return az.map(lambda c, p, s: ba.project(x["cameras"][c], x["points"][p]) - s, camera, point, seen)


# What they take


def pictures(k: int) -> tuple[Any, ...]:
    draw = np.random.default_rng(0)
    each = [draw.uniform(low, high, k) for low, high in ((1.5, 2.5), (-0.5, 0.5), (-0.5, 0.5), (0.8, 1.2), (0.1, 0.4))]
    return np.stack([peak(np.exp, p, SIDE) for p in np.stack(each, 1)]), SIDE


def decay(n: int) -> tuple[Any, ...]:
    """Where a search begins, places and values."""
    t, exact = np.linspace(0.0, 3.0, n), np.column_stack([np.linspace(1.0, 2.0, 5), RATES])
    y = np.exp(-t[:, None] * exact[:, 1]) @ exact[:, 0] + 1e-3 * np.random.default_rng(1).standard_normal(n)
    return exact * np.array([1.1, 0.95]), t, y


def scene(c: int, p: int, o: int) -> tuple[Mapping[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Cameras and points as they are first thought to be, and o observations: each point is seen at least twice."""
    draw = np.random.default_rng(5)
    cameras = np.zeros((c, 11))
    cameras[:, :3] = 0.1 * draw.normal(size=(c, 3)) + 0.05
    cameras[:, 3:6] = draw.normal(size=(c, 3)) * (1.0, 1.0, 0.2) - (0.0, 0.0, 8.0)
    cameras[:, 6], cameras[:, 9:] = 2.0, (0.01, 0.001)
    points = draw.normal(size=(p, 3))
    point = np.sort(np.concatenate([np.repeat(np.arange(p), 2), draw.integers(0, p, o - 2 * p)]))
    camera = (draw.integers(0, c, p)[point] + np.arange(o) - np.searchsorted(point, point)) % c
    exact = {"cameras": cameras, "points": points}
    seen = bundle(exact, camera, point, np.zeros((o, 2)))
    outliers = 2e-2 * (draw.random(seen.shape) < 0.01) * draw.normal(size=seen.shape)
    seen = seen + 1e-3 * draw.normal(size=seen.shape) + outliers
    moved = np.zeros((c, 11))
    moved[:, :6] = 0.02 * draw.normal(size=(c, 6))
    return {"cameras": cameras + moved, "points": points + 0.05 * draw.normal(size=(p, 3))}, camera, point, seen
