"""Bundle adjustment: cameras and points in space are found from the points' places on pictures.

A camera has a rotation r (axis times angle), a centre, a focal length f, a principal point and two coefficients k of
radial distortion: 11 parameters. With Y the point relative to the centre, turned by r, and p = Y[:2] / Y[2],

    projection = f p (1 + k_1 |p|^2 + k_2 |p|^4) + principal point

and an observation of a point through a camera, at a place (the feature) and with a weight w, has the errors

    reprojection error = w (projection - feature)    weight error = 1 - w^2

The Jacobian has a row for each component of all the errors, and a column for each parameter of a camera, coordinate of
a point, and weight. A reprojection error depends on one camera, one point and one weight, so that the Jacobian is
sparse, with 15 entries in such a row and one in the row of a weight error. ``jacobian`` computes the entries, from the
derivatives of each observation alone, ``compressed`` puts them in the order of compressed sparse rows (CSR), and
``matrix`` makes a SciPy matrix of them.
``az.sparse_jacobian(errors, argnums=(0, 1, 2))`` gives the same matrix without any of this.

Source: ADBench, in GradBench (ba). There one camera, point, weight and feature are given, to be replicated; the program
does not know this.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import adze as az


def rotate(r: az.Expr, z: az.Expr) -> Any:
    """z, turned about the axis r by the angle |r|, by Rodrigues' formula; to first order where r is 0."""
    square = r @ r

    def turned() -> Any:
        angle = az.sqrt(square)
        u = r / angle
        return z * az.cos(angle) + cross(u, z) * az.sin(angle) + u * (u @ z) * (1 - az.cos(angle))

    return az.cond(square == 0, lambda: z + cross(r, z), turned)


def cross(a: az.Expr, b: az.Expr) -> Any:
    """The product of two vectors that is orthogonal to both."""
    return az.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def project(camera: az.Expr, point: az.Expr) -> Any:
    """Where a camera sees a point."""
    rotation, centre, focal, principal, k = camera[:3], camera[3:6], camera[6], camera[7:9], camera[9:]
    seen = rotate(rotation, point - centre)
    p = seen[:2] / seen[2]
    square = p @ p
    return focal * p * (1 + k[0] * square + k[1] * square**2) + principal


def reprojection_error(camera: az.Expr, point: az.Expr, weight: az.Expr, feature: az.Expr) -> Any:
    """The weighted distance of where the point is seen and where it was observed: a vector of two."""
    return weight * (project(camera, point) - feature)


@az.program
def errors(
    cameras: az.Array[az.f64, "n 11"],
    points: az.Array[az.f64, "m 3"],
    weights: az.Array[az.f64, "p"],
    observations: az.Array[az.i64, "p 2"],  # of each the camera and the point
    features: az.Array[az.f64, "p 2"],
) -> tuple[az.Array[az.f64, "p 2"], az.Array[az.f64, "p"]]:
    """The reprojection errors and the weight errors of all observations."""

    def error(observation: az.Expr, weight: az.Expr, feature: az.Expr) -> Any:
        camera, point = observation
        return reprojection_error(cameras[camera], points[point], weight, feature)

    return az.map(error, observations, weights, features), 1 - weights**2


@az.program
def jacobian(
    cameras: az.Array[az.f64, "n 11"],
    points: az.Array[az.f64, "m 3"],
    weights: az.Array[az.f64, "p"],
    observations: az.Array[az.i64, "p 2"],
    features: az.Array[az.f64, "p 2"],
) -> tuple[az.Array[az.i64, "p 15"], az.Array[az.f64, "p 2 15"], az.Array[az.f64, "p"]]:
    """The derivatives of the errors by cameras, points and weights that are not zero everywhere.

    For each observation the columns of the Jacobian that it has entries in, and the entries of its two rows; then the
    one entry in the row of each weight error, which is in the last of these columns.
    """
    n, m, p = cameras.shape[0], points.shape[0], weights.shape[0]

    def entries(number: az.Expr, observation: az.Expr, weight: az.Expr, feature: az.Expr) -> Any:
        camera, point = observation
        own = az.array([11 * n + 3 * m + number])
        columns = az.concatenate([11 * camera + az.iota(11), 11 * n + 3 * point + az.iota(3), own])

        def error(camera: az.Expr, point: az.Expr, weight: az.Expr) -> Any:
            return reprojection_error(camera, point, weight, feature)

        _, pullback = az.vjp(error, cameras[camera], points[point], weight)

        def row(direction: az.Expr) -> Any:
            by_camera, by_point, by_weight = pullback(direction)
            return az.concatenate([by_camera, by_point, az.array([by_weight])])

        return columns, az.map(row, az.eye(2))

    columns, values = az.map(entries, az.iota(p), observations, weights, features)
    return columns, values, -2 * weights


@az.program
def compressed(
    cameras: az.Array[az.f64, "n 11"],
    points: az.Array[az.f64, "m 3"],
    weights: az.Array[az.f64, "p"],
    observations: az.Array[az.i64, "p 2"],
    features: az.Array[az.f64, "p 2"],
) -> tuple[az.Array[az.f64, "31*p"], az.Array[az.i32, "31*p"], az.Array[az.i32, "3*p+1"]]:
    """The Jacobian in compressed rows: its values, their columns and where the rows start.

    Integers have 32 bits, as SciPy has them where they fit, which they do for all sizes here.
    """
    columns, errors, of_weights = jacobian(cameras, points, weights, observations, features)
    p = weights.shape[0]
    of_rows = az.map(lambda each: az.stack([each, each]), columns)
    starts = az.concatenate([15 * az.iota(2 * p), 30 * p + az.iota(p + 1)])
    return (
        az.concatenate([az.ravel(errors), of_weights]),
        az.concatenate([az.ravel(of_rows), columns[:, -1]]).astype(az.i32),
        starts.astype(az.i32),
    )


def matrix(columns: np.ndarray, values: np.ndarray, weight_values: np.ndarray) -> csr_array:
    """The whole Jacobian: two rows for each observation, then one for each weight."""
    p = len(weight_values)
    return csr_array(
        (
            np.concatenate([values.ravel(), weight_values]),
            np.concatenate([np.repeat(columns, 2, axis=0).ravel(), columns[:, -1]]),
            np.concatenate([15 * np.arange(2 * p), 30 * p + np.arange(p + 1)]),
        ),
        shape=(3 * p, columns.max(initial=-1) + 1),
    )


FUNCTIONS = {"objective": errors, "jacobian": jacobian, "compressed jacobian": compressed}


def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Cameras, points, weights, observations and features.

    Observation i looks through camera i mod n at point i mod m.
    """
    n, m, p = given["n"], given["m"], given["p"]
    number = np.arange(p)
    return (
        np.tile(np.array(given["cam"]), (n, 1)),
        np.tile(np.array(given["x"]), (m, 1)),
        np.full(p, given["w"]),
        np.stack([number % n, number % m], axis=1),
        np.tile(np.array(given["feat"]), (p, 1)),
    )


def answer(function: str, result: Any) -> Any:
    """The first error of each kind with its number; of the Jacobian's arrays the first 30 elements and the last."""
    if function == "objective":
        reprojection, weight = result
        count = len(weight)
        return {
            "reproj_error": {"elements": reprojection[0], "repeated": count},
            "w_err": {"element": weight[0], "repeated": count},
        }
    if function == "jacobian":
        csr = matrix(*result)
        result = csr.data, csr.indices, csr.indptr
    values, columns, starts = [np.append(each[:30], each[-1]) for each in result]
    return {"rows": starts, "cols": columns, "vals": values}
