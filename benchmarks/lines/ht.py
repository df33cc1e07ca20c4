"""Hand tracking (programs/ht.py): the residuals at vertices of the mesh, and their Jacobian by forward mode.

JAX poses all vertices, as the program says, or first selects those that are asked for, which somebody does who knows
that they are few; so does PyTorch. The larger mesh is the one of
the suite's small model with each triangle cut into four, twice.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Torch, adze
from programs import ht
from programs.cases import read_cases

SMALL, LARGE = 544, 8674  # vertices


@functools.cache
def model_of(vertices: int) -> dict[str, Any]:
    """The model of a hand with so many vertices."""
    model: dict[str, Any] = ht.arguments(read_cases("ht")[0].given)[1]
    while len(model["base_positions"]) < vertices:
        model = refined(model)
    assert len(model["base_positions"]) == vertices
    return model


def refined(model: dict[str, Any]) -> dict[str, Any]:
    """With a new vertex in the middle of each edge."""
    triangles = model["triangles"]
    edges = np.sort(np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]]), axis=1)
    unique, number = np.unique(edges, axis=0, return_inverse=True)
    a, b, c = triangles.T
    ab, bc, ca = len(model["base_positions"]) + number.reshape(3, -1)
    corners = [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
    grown = {
        name: np.concatenate([model[name], model[name][unique].mean(axis=1)]) for name in ("base_positions", "weights")
    }
    return {**model, **grown, "triangles": np.concatenate([np.stack(corner, axis=1) for corner in corners])}


def arguments(v: int, p: int) -> Arguments:
    theta, _, _, points = ht.arguments(read_cases("ht")[0].given)
    random = np.random.default_rng(1)
    return theta, model_of(v), random.integers(0, v, p), points[random.integers(0, len(points), p)]


# The program in JAX or PyTorch, whose arrays are ``xp``


def matrices(xp: Any, *entries: Any) -> Any:
    """A matrix [3, 3] of nine numbers, or an array of them of arrays."""
    return xp.stack(entries, -1).reshape(*entries[0].shape, 3, 3)


def bone_rotations(xp: Any, angles: Any) -> Any:
    cos, sin = xp.cos(angles), xp.sin(angles)
    one, zero = xp.ones_like(angles[:, 0]), xp.zeros_like(angles[:, 0])
    about_x = matrices(xp, one, zero, zero, zero, cos[:, 0], -sin[:, 0], zero, sin[:, 0], cos[:, 0])
    about_y = matrices(xp, cos[:, 2], zero, -sin[:, 2], zero, one, zero, sin[:, 2], zero, cos[:, 2])
    about_z = matrices(xp, cos[:, 1], -sin[:, 1], zero, sin[:, 1], cos[:, 1], zero, zero, zero, one)
    return about_z @ about_y @ about_x


def global_rotation(xp: Any, r: Any) -> Any:
    square = r @ r
    is_small = square < 1e-8
    angle = xp.sqrt(xp.where(is_small, 1.0, square))
    x, y, z = r / angle
    zero = xp.zeros_like(x)
    across = matrices(xp, zero, -z, y, z, zero, -x, -y, x, zero)
    turned = xp.eye(3, dtype=r.dtype) + xp.sin(angle) * across + (1 - xp.cos(angle)) * (across @ across)
    return xp.where(is_small, xp.eye(3, dtype=r.dtype), turned)


def finger_rotations(xp: Any, theta: Any) -> Any:
    bend, spread, middle, tip = theta[6:].reshape(5, 4).T
    zero = xp.zeros_like(bend)
    joints = [(bend, spread, zero), (middle, zero, zero), (tip, zero, zero), (zero, zero, zero)]
    fingers = xp.stack([xp.stack(joint, -1) for joint in joints], 1).reshape(20, 3)
    return xp.concatenate([xp.zeros_like(fingers[:2]), fingers])


def residuals(
    xp: Any, parents: list[int], selected: bool, theta: Any, model: Any, correspondences: Any, points: Any
) -> Any:
    base = model["base_relatives"]
    rotated = base[:, :, :3] @ bone_rotations(xp, finger_rotations(xp, theta))
    relative = xp.concatenate([rotated, base[:, :, 3:]], 2)
    absolute: list[Any] = []
    for bone, parent in enumerate(parents):
        absolute.append(relative[bone] if parent < 0 else absolute[parent] @ relative[bone])
    bones = (xp.stack(absolute) @ model["inverse_base_absolutes"])[:, :3]

    weights, positions = model["weights"], model["base_positions"]
    if selected:
        weights, positions = weights[correspondences], positions[correspondences]
    blended = (weights @ bones.reshape(22, 12)).reshape(-1, 3, 4)
    at_rest = (blended @ positions[:, :, None])[:, :, 0]
    one = xp.ones_like(theta[0])
    mirrored = at_rest * xp.stack([xp.where(model["is_mirrored"], -one, one), one, one])
    mesh = mirrored @ global_rotation(xp, theta[:3]).T + theta[3:6]
    return points - (mesh if selected else mesh[correspondences])


def with_arrays(xp: Any, jacfwd: Callable[..., Any], selected: bool) -> dict[str, Any]:
    off = functools.partial(residuals, xp, model_of(SMALL)["parents"].tolist(), selected)

    def jacobian(theta: Any, model: Any, correspondences: Any, points: Any) -> Any:
        return jacfwd(lambda t: off(t, model, correspondences, points).reshape(-1))(theta)

    return {"objective": off, "jacobian": jacobian}


def with_jax(selected: bool) -> dict[str, Any]:
    import jax

    return with_arrays(jax.numpy, jax.jacfwd, selected)


def with_torch() -> dict[str, Any]:
    import torch

    # A number stays one in a dictionary of arguments, and torch.where wants an array.
    functions = with_arrays(torch, torch.func.jacfwd, True)

    def on_arrays(f: Callable[..., Any]) -> Callable[..., Any]:
        def call(theta: Any, model: Any, *others: Any) -> Any:
            return f(theta, {**model, "is_mirrored": torch.tensor(model["is_mirrored"])}, *others)

        return call

    return {name: on_arrays(f) for name, f in functions.items()}


MAIN = {"v": SMALL, "p": 100}
LINES = [
    Line(
        "ht",
        "Hand tracking",
        [*({"v": SMALL, "p": 100 * 2**k} for k in range(8)), {"v": LARGE, "p": 100}, {"v": LARGE, "p": 12800}],
        arguments,
        [
            *adze({"objective": ht.residuals, "jacobian": ht.jacobian}),
            Contender("JAX, all vertices", Jax(), lambda: with_jax(False)),
            Contender("JAX, selected", Jax(), lambda: with_jax(True)),
            Contender("PyTorch, selected", Torch(), with_torch),
        ],
        functions=("objective", "jacobian"),
        main=MAIN,
        ablated=True,
    )
]
