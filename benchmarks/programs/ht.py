"""Hand tracking: how far a model of a hand in some pose is from points that were measured.

The hand is a mesh on a skeleton of 22 bones. Its pose has 26 parameters: a rotation (axis times angle) and a
translation of the whole, and four angles for each of five fingers. Bone i turns relative to its parent by R_i,

    relative_i = base_i [R_i 0; 0 1]    absolute_i = absolute_parent relative_i    transform_i = absolute_i inverse_i

and vertex v is at sum_i weights[v, i] transform_i position_v, then rotated and moved with the whole. Point j was
measured near a vertex (``residuals``), or near the place with barycentric coordinates (u_j, w_j) in a triangle
(``surface_residuals``).

The Jacobian has three rows a point and one column a parameter. These are many rows and few columns, so it is made by
forward mode, one direction a column. On the surface it begins with two columns more, the derivatives of each point's
residuals by that point's own u and w. No residual depends on the coordinates of another point, so that one direction
moves the u of all points at once, and one the w.

Source: ADBench, in GradBench (ht).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import adze as az

# The model of a hand: its skeleton and its mesh.
MODEL = {
    "parents": az.Array[az.i64, "22"],  # of the bones; -1 for the root, and no parent comes after its children
    "base_relatives": az.Array[az.f64, "22 4 4"],  # a bone at rest relative to its parent
    "inverse_base_absolutes": az.Array[az.f64, "22 4 4"],
    "base_positions": az.Array[az.f64, "v 4"],  # of the vertices at rest
    "weights": az.Array[az.f64, "v 22"],  # how much a vertex moves with a bone
    "triangles": az.Array[az.i64, "t 3"],
    "is_mirrored": az.bool_,
}

# The pose


def finger_rotations(theta: az.Expr) -> Any:
    """The angles of the bones by which they turn about x, z and y: of the four bones of a finger the last is stiff."""

    def joints(angles: az.Expr) -> Any:
        bend, spread, middle, tip = angles
        return az.array([[bend, spread, 0.0], [middle, 0.0, 0.0], [tip, 0.0, 0.0], [0.0, 0.0, 0.0]])

    fingers = az.map(joints, theta[6:].reshape((5, 4)))
    return az.concatenate([az.zeros((2, 3)), fingers.reshape((20, 3))])  # the first two bones are the arm's


def bone_rotation(angles: az.Expr) -> Any:
    """The rotation about x, then y, then z."""
    x, z, y = angles
    about_x = az.array([[1.0, 0.0, 0.0], [0.0, az.cos(x), -az.sin(x)], [0.0, az.sin(x), az.cos(x)]])
    about_y = az.array([[az.cos(y), 0.0, -az.sin(y)], [0.0, 1.0, 0.0], [az.sin(y), 0.0, az.cos(y)]])
    about_z = az.array([[az.cos(z), -az.sin(z), 0.0], [az.sin(z), az.cos(z), 0.0], [0.0, 0.0, 1.0]])
    return about_z @ about_y @ about_x


def global_rotation(r: az.Expr) -> Any:
    """The rotation about the axis r by the angle |r|, by Rodrigues' formula; none where the angle is tiny."""
    square = r @ r

    def matrix() -> Any:
        angle = az.sqrt(square)
        x, y, z = r / angle
        across = az.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
        return az.eye(3) + az.sin(angle) * across + (1 - az.cos(angle)) * (across @ across)

    return az.cond(square < 1e-8, lambda: az.eye(3), matrix)


# The hand


def transforms(theta: az.Expr, model: Any) -> Any:
    """Where each bone takes its surroundings, as matrices [22, 3, 4]."""

    def rotated(base: az.Expr, angles: az.Expr) -> Any:
        return az.concatenate([base[:, :3] @ bone_rotation(angles), base[:, 3:]], axis=1)

    relative = az.map(rotated, model["base_relatives"], finger_rotations(theta))

    def attach(i: az.Expr, absolute: az.Expr) -> Any:
        parent = model["parents"][i]
        placed = az.cond(parent < 0, lambda: relative[i], lambda: absolute[parent] @ relative[i])
        return az.update(absolute, i, placed)

    absolute = az.fori_loop(0, 22, attach, az.zeros((22, 4, 4)))
    return az.map(lambda a, b: a[:3] @ b, absolute, model["inverse_base_absolutes"])


def vertices(theta: az.Expr, model: Any, places: az.Expr) -> Any:
    """Some vertices of the mesh in the given pose: [p, 3] for p numbers of vertices.

    It poses these, or the whole mesh where that has fewer vertices, some of which are asked for several times then.
    """
    count = model["base_positions"].shape[0]
    few = places.shape[0] < count
    numbers = az.generate(az.minimum(places.shape[0], count), lambda i: az.where(few, places[i], i))
    posed = pose(theta, model, model["weights"][numbers], model["base_positions"][numbers])
    return az.generate(places.shape[0], lambda i: posed[az.where(few, i, places[i])])


def pose(theta: az.Expr, model: Any, weights: az.Expr, positions: az.Expr) -> Any:
    """Vertices with these weights and positions at rest, in the given pose."""
    bones = transforms(theta, model)
    mirror = az.array([az.where(model["is_mirrored"], -1.0, 1.0), 1.0, 1.0])
    rotation, translation = global_rotation(theta[:3]), theta[3:6]

    def vertex(weights: az.Expr, position: az.Expr) -> Any:
        at_rest = az.sum(az.map(lambda weight, bone: weight * (bone @ position), weights, bones), axis=0)
        return rotation @ (mirror * at_rest) + translation

    return az.map(vertex, weights, positions)


@az.program
def residuals(
    theta: az.Array[az.f64, "26"],
    model: MODEL,
    correspondences: az.Array[az.i64, "p"],  # vertices
    points: az.Array[az.f64, "p 3"],
) -> az.Array[az.f64, "p 3"]:
    """From the vertices that the points correspond to, to the points."""
    return points - vertices(theta, model, correspondences)


@az.program
def surface_residuals(
    theta: az.Array[az.f64, "26"],
    us: az.Array[az.f64, "p 2"],
    model: MODEL,
    correspondences: az.Array[az.i64, "p"],  # triangles
    points: az.Array[az.f64, "p 3"],
) -> az.Array[az.f64, "p 3"]:
    """From the places in the triangles that the points correspond to, to the points."""
    corners = vertices(theta, model, model["triangles"][correspondences].ravel()).reshape((points.shape[0], 3, 3))

    def residual(uw: az.Expr, corner: az.Expr, point: az.Expr) -> Any:
        u, w = uw
        a, b, c = corner
        return point - (u * a + w * b + (1 - u - w) * c)

    return az.map(residual, us, corners, points)


# Their derivatives


@az.program
def jacobian(
    theta: az.Array[az.f64, "26"],
    model: MODEL,
    correspondences: az.Array[az.i64, "p"],
    points: az.Array[az.f64, "p 3"],
) -> az.Array[az.f64, "3*p 26"]:
    """The derivatives of the residuals by theta."""

    def column(direction: az.Expr) -> Any:
        return az.jvp(lambda t: residuals(t, model, correspondences, points), (theta,), (direction,))[1].ravel()

    return az.map(column, az.eye(26)).T


@az.program
def surface_jacobian(
    theta: az.Array[az.f64, "26"],
    us: az.Array[az.f64, "p 2"],
    model: MODEL,
    correspondences: az.Array[az.i64, "p"],
    points: az.Array[az.f64, "p 3"],
) -> az.Array[az.f64, "3*p 28"]:
    """The derivatives of the residuals by each point's own u and w, and by theta."""

    def own(direction: az.Expr) -> Any:
        def moved(us: az.Expr) -> Any:
            return surface_residuals(theta, us, model, correspondences, points)

        return az.jvp(moved, (us,), (az.broadcast_to(direction, us.shape),))[1].ravel()

    def column(direction: az.Expr) -> Any:
        def moved(theta: az.Expr) -> Any:
            return surface_residuals(theta, us, model, correspondences, points)

        return az.jvp(moved, (theta,), (direction,))[1].ravel()

    return az.concatenate([az.map(own, az.eye(2)), az.map(column, az.eye(26))]).T


FUNCTIONS = {
    "objective": residuals,
    "jacobian": jacobian,
    "surface objective": surface_residuals,
    "surface jacobian": surface_jacobian,
}


def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The pose, the points' places on the surface if the input has any, the model, the correspondences, the points."""
    data = given["data"]
    integers = ("parents", "triangles")
    model = {
        name: np.array(data["model"][name], dtype=np.int64 if name in integers else np.float64)
        for name in MODEL
        if name != "is_mirrored"
    }
    model["is_mirrored"] = data["model"]["is_mirrored"]
    us = [np.array(given["us"], dtype=np.float64)] if given["us"] else []
    correspondences = np.array(data["correspondences"], dtype=np.int64)
    return np.array(given["theta"], dtype=np.float64), *us, model, correspondences, np.array(data["points"])


def answer(function: str, result: Any) -> Any:
    """The residuals one after another, or their Jacobian."""
    return result.ravel() if function.endswith("objective") else result
