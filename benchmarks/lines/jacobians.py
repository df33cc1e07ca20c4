"""Whole Jacobians (programs/jacobians.py), by forward mode, by reverse mode, and by the mode that costs less.

JAX and PyTorch have either mode for each function where its arrays fit: forward mode of a gradient would need n numbers
for each of n directions, so that reverse mode stands in its place.
"""

from collections.abc import Mapping
from typing import Any

from contenders import Call, Contender, Jax, Line, Torch, adze
from programs import jacobians as programs

import adze as az

from .ba import project

DECADES = [{"n": 10**k} for k in range(3, 8)]
FACTORS = [{"m": 1000, "n": 1000, "k": 10}, {"m": 4000, "n": 4000, "k": 10}]
POINTS = [{"n": 10**4}, {"n": 10**6}]
STEPS = [{"n": 10**3}, {"n": 10**5}]
WAYS = ("reverse", "default", "forward")


def modes(program: az.Program, by: str) -> Mapping[str, az.Program]:
    return {way: az.jacobian(program, by, None if way == "default" else way) for way in WAYS}


def whole(program: az.Program, by: str) -> Mapping[str, az.Program]:
    return {"primal": program, "jacobian": az.jacobian(program, by)}


def in_jax(f: Call, argnums: int) -> list[Contender]:
    """The function and its Jacobian, by either mode."""

    def functions(mode: str) -> Mapping[str, Call]:
        import jax

        return {"primal": f, "jacobian": getattr(jax, mode)(f, argnums=argnums)}

    return [Contender(f"JAX, {mode}", Jax(), lambda mode=mode: functions(mode)) for mode in ("jacfwd", "jacrev")]


def in_torch(f: Call, argnums: int, mode: str) -> Contender:
    def functions() -> Mapping[str, Call]:
        import torch

        return {"primal": f, "jacobian": getattr(torch.func, mode)(f, argnums=argnums)}

    return Contender(f"PyTorch, {mode}", Torch(), functions)


def gradient_in_jax(f: Call, argnums: int = 0) -> Contender:
    """Its gradient by reverse mode, for all functions of a line."""

    def functions() -> Mapping[str, Call]:
        import jax

        return dict.fromkeys(WAYS, jax.grad(f, argnums=argnums))

    return Contender("JAX", Jax(), functions)


def gradient_in_torch(f: Call, argnums: int = 0) -> Contender:
    def functions() -> Mapping[str, Call]:
        import torch

        return dict.fromkeys(WAYS, torch.func.grad(f, argnums=argnums))

    return Contender("PyTorch", Torch(), functions)


# Of one point, which is mapped


def mapped(f: Call, jax_mode: str) -> Mapping[str, Call]:
    import jax

    by_camera = getattr(jax, jax_mode)(f)
    return {"primal": jax.vmap(f, (None, 0)), "jacobian": jax.vmap(by_camera, (None, 0))}


def of_a_point(scalars: bool) -> list[Contender]:
    """In JAX and in PyTorch: the derivatives of one point by the camera, for all points."""

    def seen(xp: Any) -> Call:
        if not scalars:
            return lambda camera, point: project(xp, camera, point)
        return lambda camera, point: xp.stack(programs.projected(xp.sqrt, xp.cos, xp.sin, camera, point))

    def in_jax(mode: str) -> Mapping[str, Call]:
        import jax

        return mapped(seen(jax.numpy), mode)

    def in_torch() -> Mapping[str, Call]:
        import torch

        f = seen(torch)
        jacobian = torch.func.vmap(torch.func.jacrev(f), (None, 0))
        return {"primal": torch.func.vmap(f, (None, 0)), "jacobian": jacobian}

    return [
        Contender("JAX, vmap jacfwd", Jax(), lambda: in_jax("jacfwd")),
        Contender("JAX, vmap jacrev", Jax(), lambda: in_jax("jacrev")),
        Contender("PyTorch, vmap jacrev", Torch(), in_torch),
    ]


def jax_divergence(a: Any, w: Any, h: Any) -> Any:
    import jax.numpy as jnp

    p = w @ h
    return jnp.sum(jnp.log(p) + a / p)


def torch_divergence(a: Any, w: Any, h: Any) -> Any:
    p = w @ h
    return (p.log() + a / p).sum()


def jax_largest(v: Any) -> Any:
    import jax.numpy as jnp

    return jnp.max(v)


def jax_orbit(rates: Any, times: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def step(state: Any, _: Any) -> Any:
        x, y = programs.stepped(programs.motion(rates), *state, programs.STEP)
        return (x, y), jnp.stack([x, y])

    return jax.lax.scan(step, (jnp.float64(10.0), jnp.float64(5.0)), times)[1]


LINES = [
    Line(
        "gradient of dot",
        "The gradient of a scalar product by either mode",
        DECADES,
        programs.vectors(2),
        [
            *adze(modes(programs.dot, "u")),
            gradient_in_jax(lambda u, v: (u * v).sum()),
            gradient_in_torch(lambda u, v: (u * v).sum()),
        ],
        functions=("reverse", "forward"),
        main=DECADES[-1],
        ablated=True,
    ),
    Line(
        "gradient of max",
        "The gradient of a maximum by either mode",
        DECADES,
        programs.vectors(1),
        [
            *adze(modes(programs.largest, "v")),
            gradient_in_jax(jax_largest),
            gradient_in_torch(lambda v: v.max()),
        ],
        functions=("reverse", "forward"),
        main=DECADES[-1],
        ablated=True,
    ),
    Line(
        "jacobian of u + v",
        "The Jacobian of u + v by u, which is a diagonal",
        [{"n": 1000}, {"n": 4000}],
        programs.vectors(2),
        [
            *adze(whole(programs.added, "u")),
            *in_jax(lambda u, v: u + v, 0),
            in_torch(lambda u, v: u + v, 0, "jacfwd"),
        ],
        functions=("primal", "jacobian"),
        main={"n": 4000},
        moved={"jacobian": lambda n: 8.0 * n * n},
        ablated=True,
    ),
    Line(
        "jacobian of s v",
        "The Jacobian of s v by s, which is v",
        [{"n": 1000}, {"n": 10**7}],
        programs.number_and_vector,
        [
            *adze(whole(programs.scaled, "s")),
            in_jax(lambda s, v: s * v, 0)[0],
        ],
        functions=("primal", "jacobian"),
        main={"n": 10**7},
        moved={"jacobian": lambda n: 16.0 * n},
        ablated=True,
    ),
    Line(
        "factorisation",
        "Non-negative matrix factorisation: the gradient by H, by either mode",
        FACTORS,
        programs.factors,
        [
            *adze(modes(programs.divergence, "h")),
            gradient_in_jax(jax_divergence, 2),
            gradient_in_torch(torch_divergence, 2),
        ],
        functions=WAYS,
        main=FACTORS[0],
        ablated=True,
    ),
    Line(
        "project",
        "Bundle adjustment: where a camera sees n points, by its 11 parameters; written with arrays",
        POINTS,
        programs.seen,
        [*adze(whole(programs.project, "camera")), *of_a_point(False)],
        functions=("primal", "jacobian"),
        main=POINTS[-1],
        moved={"jacobian": lambda n: 8.0 * 25 * n},
        ablated=True,
    ),
    Line(
        "project, scalars",
        "Bundle adjustment: the same, written with scalars",
        POINTS,
        programs.seen,
        [*adze(whole(programs.project_scalars, "camera")), *of_a_point(True)],
        functions=("primal", "jacobian"),
        main=POINTS[-1],
        moved={"jacobian": lambda n: 8.0 * 25 * n},
    ),
    Line(
        "orbit",
        "Lotka-Volterra: all states by the four rates",
        STEPS,
        programs.rates,
        [*adze(whole(programs.orbit, "rates")), in_jax(jax_orbit, 0)[0]],
        functions=("primal", "jacobian"),
        main=STEPS[-1],
    ),
]
