"""Stencils, the heat and the wave equation, and cells, in Adze (programs/stencils.py) and other tools."""

import contextlib
from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Numba, Torch
from programs import stencils

import adze as az
from lines.everyday import in_adze, in_jax, in_torch, random

with contextlib.suppress(ImportError):  # without Numba the other tools are measured
    import numba

# Stencils


def grid(n: int) -> Arguments:
    return tuple(random((n, n), (7, 7)))


def jax_smoothed(u: Any, weights: Any) -> Any:
    import jax.numpy as jnp

    (n, m), padded = u.shape, jnp.pad(u, 3)
    return sum(weights[y, x] * padded[y : y + n, x : x + m] for y in range(7) for x in range(7))


def torch_smoothed(u: Any, weights: Any) -> Any:
    import torch

    return torch.nn.functional.conv2d(u[None, None], weights[None, None], padding=3)[0, 0]


def vector(n: int) -> Arguments:
    return tuple(random((n,)))


def jax_line(x: Any) -> Any:
    import jax.numpy as jnp

    p = jnp.pad(x, 2)
    return (p[:-4] + 4 * p[1:-3] + 6 * p[2:-2] + 4 * p[3:-1] + p[4:]) / 16


def numba_line(x: Any) -> Any:
    n = len(x)
    result = np.empty_like(x)
    for i in numba.prange(n):
        total = 6 * x[i]
        if i > 0:
            total += 4 * x[i - 1]
        if i > 1:
            total += x[i - 2]
        if i < n - 1:
            total += 4 * x[i + 1]
        if i < n - 2:
            total += x[i + 2]
        result[i] = total / 16
    return result


def plane(n: int) -> Arguments:
    return tuple(random((n, n)))


def jax_plane(u: Any) -> Any:
    import jax.numpy as jnp

    p = jnp.pad(u, 1, mode="edge")
    sides = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
    corners = p[:-2, :-2] + p[:-2, 2:] + p[2:, :-2] + p[2:, 2:]
    return (4 * u + 2 * sides + corners) / 16


def numba_plane(u: Any) -> Any:
    n, m = u.shape
    result = np.empty_like(u)
    for i in numba.prange(n):
        a, b = max(i - 1, 0), min(i + 1, n - 1)
        for j in range(m):
            c, d = max(j - 1, 0), min(j + 1, m - 1)
            sides = u[a, j] + u[b, j] + u[i, c] + u[i, d]
            corners = u[a, c] + u[a, d] + u[b, c] + u[b, d]
            result[i, j] = (4 * u[i, j] + 2 * sides + corners) / 16
    return result


def block(n: int) -> Arguments:
    return tuple(random((n, n, n)))


def jax_block(u: Any) -> Any:
    import jax.numpy as jnp

    return sum(jnp.roll(u, shift, axis) for axis in range(3) for shift in (1, -1)) - 6 * u


def torch_block(u: Any) -> Any:
    import torch

    return sum(torch.roll(u, shift, axis) for axis in range(3) for shift in (1, -1)) - 6 * u


def numba_block(u: Any) -> Any:
    n, m, k = u.shape
    result = np.empty_like(u)
    for x in numba.prange(n):
        for y in range(m):
            for z in range(k):
                around = u[(x - 1) % n, y, z] + u[(x + 1) % n, y, z] + u[x, (y - 1) % m, z] + u[x, (y + 1) % m, z]
                around += u[x, y, (z - 1) % k] + u[x, y, (z + 1) % k]
                result[x, y, z] = around - 6 * u[x, y, z]
    return result


# Partial differential equations in time


def warmth(n: int, steps: int) -> Arguments:
    return (*random((n, n)), steps)


def jax_heat(start: Any, steps: int) -> Any:
    import jax.numpy as jnp
    from jax import lax

    def step(u: Any, _: Any) -> Any:
        around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
        return u + 0.1 * (around - 4 * u), None

    return lax.scan(step, start, length=steps)[0]


def jax_diffused(start: Any, steps: int) -> Any:
    import jax.numpy as jnp
    from jax import lax

    def step(u: Any, _: Any) -> Any:
        p = jnp.pad(u, 1)
        return u + 0.1 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u), None

    return lax.scan(step, start, length=steps)[0]


def numba_diffused(start: Any, steps: int) -> Any:
    n, m = start.shape
    u, after = np.zeros((n + 2, m + 2)), np.zeros((n + 2, m + 2))
    u[1:-1, 1:-1] = start
    for _ in range(steps):
        for i in numba.prange(1, n + 1):
            for j in range(1, m + 1):
                after[i, j] = u[i, j] + 0.1 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4 * u[i, j])
        u, after = after, u
    return u[1:-1, 1:-1].copy()


def plate(n: int, steps: int) -> Arguments:
    return (*random((n, n)), steps)


def remembered(step: Any, start: Any, steps: int) -> Any:
    """Steps of which reverse mode in JAX keeps each tenth, and runs the others again."""
    import jax
    from jax import lax

    def ten(state: Any) -> Any:
        return lax.scan(lambda state, _: (step(state), None), state, length=10)[0]

    return lax.scan(lambda state, _: (jax.checkpoint(ten)(state), None), start, length=steps // 10)[0]


def jax_cooled(start: Any, steps: int) -> Any:
    def step(u: Any) -> Any:
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return u.at[1:-1, 1:-1].set(u[1:-1, 1:-1] + 0.1 * (around - 4 * u[1:-1, 1:-1]))

    return remembered(step, start, steps)


def numba_cooled(start: Any, steps: int) -> Any:
    n, m = start.shape
    u, after = start.copy(), start.copy()
    for _ in range(steps):
        for i in numba.prange(1, n - 1):
            for j in range(1, m - 1):
                around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
                after[i, j] = u[i, j] + 0.1 * (around - 4 * u[i, j])
        u, after = after, u
    return u


def medium(n: int, steps: int) -> Arguments:
    return (*random((n, n), (n, n)), steps)


def jax_wave(start: Any, speed: Any, steps: int) -> Any:
    import jax.numpy as jnp

    def step(state: Any) -> Any:
        u, before = state
        p = jnp.pad(u, 1)
        laplacian = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u
        return 2 * u - before + 0.1 * speed**2 * laplacian, u

    return remembered(step, (start, start), steps)[0]


# Cells


def population(n: int, steps: int) -> Arguments:
    return (np.random.default_rng(1).integers(0, 2, (n, n)).astype(np.int32), steps)


def jax_life(start: Any, steps: int) -> Any:
    import jax.numpy as jnp
    from jax import lax

    def step(_: Any, u: Any) -> Any:
        rows = jnp.roll(u, 1, 0) + u + jnp.roll(u, -1, 0)
        around = jnp.roll(rows, 1, 1) + rows + jnp.roll(rows, -1, 1) - u
        return ((around == 3) | ((around == 2) & (u == 1))).astype(jnp.int32)

    return lax.fori_loop(0, steps, step, start)


def numba_life(start: Any, steps: int) -> Any:
    n, m = start.shape
    u, after = start.copy(), start.copy()
    for _ in range(steps):
        for i in numba.prange(n):
            a, b = u[(i - 1) % n], u[(i + 1) % n]
            for j in range(m):
                c, d = (j - 1) % m, (j + 1) % m
                around = a[c] + a[j] + a[d] + u[i, c] + u[i, d] + b[c] + b[j] + b[d]
                after[i, j] = around == 3 or (around == 2 and u[i, j] == 1)
        u, after = after, u
    return u


GRID = {"n": 512}
ROW = {"n": 1_000_000}
PLANE = {"n": 1024}
BLOCK = {"n": 128}
TORUS = {"n": 256, "steps": 200}
PLATE = {"n": 512, "steps": 100}
FIELD = {"n": 4096, "steps": 100}  # 268 MB for two steps, which no cache holds
LINES = [
    Line(
        "stencil",
        "Stencil of 7 x 7 points with zeros around",
        [GRID],
        grid,
        [
            in_adze({"primal": stencils.smoothed, "gradient": az.grad(stencils.smoothed_squares)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_smoothed, 0)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_smoothed, (0,))),
        ],
        main=GRID,
    ),
    Line(
        "stencil, 1-D",
        "Stencil of five points with zeros around",
        [ROW],
        vector,
        [
            in_adze({"primal": stencils.line_stencil, "gradient": az.grad(stencils.line_stencil_squares)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_line, 0)),
            Contender("Numba", Numba(), lambda: {"primal": numba_line}),
        ],
        main=ROW,
    ),
    Line(
        "stencil, 2-D",
        "Stencil of nine points, clamped at the edge",
        [PLANE],
        plane,
        [
            in_adze({"primal": stencils.plane_stencil, "gradient": az.grad(stencils.plane_stencil_squares)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_plane, 0)),
            Contender("Numba", Numba(), lambda: {"primal": numba_plane}),
        ],
        main=PLANE,
    ),
    Line(
        "stencil, 3-D",
        "Stencil of seven points on a torus of three dimensions",
        [BLOCK],
        block,
        [
            in_adze({"primal": stencils.block_stencil, "gradient": az.grad(stencils.block_stencil_squares)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_block, 0)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_block, (0,))),
            Contender("Numba", Numba(), lambda: {"primal": numba_block}),
        ],
        main=BLOCK,
    ),
    Line(
        "heat",
        "Heat equation on a torus",
        [TORUS],
        warmth,
        [
            in_adze({"primal": stencils.heat, "gradient": az.grad(stencils.heat_squares)}),
            Contender("JAX", Jax(static=(1,)), lambda: in_jax(jax_heat, 0)),
        ],
        main=TORUS,
    ),
    Line(
        "heat, large",
        "Heat equation on a large field with zeros around",
        [PLATE, FIELD],
        plate,
        [
            in_adze({"primal": stencils.diffused}),
            Contender("JAX", Jax(static=(1,)), lambda: {"primal": jax_diffused}),
            Contender("Numba", Numba(), lambda: {"primal": numba_diffused}),
        ],
        functions=("primal",),
        main=FIELD,
    ),
    Line(
        "heat, checkpoints",
        "Heat equation on a plate, with checkpoints",
        [PLATE],
        plate,
        [
            in_adze({"primal": stencils.cooled, "gradient": az.grad(stencils.cooled_squares)}),
            Contender("JAX", Jax(static=(1,)), lambda: in_jax(jax_cooled, 0)),
            Contender("Numba", Numba(), lambda: {"primal": numba_cooled}),
        ],
        main=PLATE,
    ),
    Line(
        "wave, checkpoints",
        "Wave equation, and its gradient by the speed at each point, with checkpoints",
        [PLATE],
        medium,
        [
            in_adze({"primal": stencils.wave, "gradient": az.grad(stencils.wave_squares, argnums=1)}),
            Contender("JAX", Jax(static=(2,)), lambda: in_jax(jax_wave, 1)),
        ],
        main=PLATE,
    ),
    Line(
        "life",
        "Game of life on a torus",
        [PLATE],
        population,
        [
            in_adze({"primal": stencils.life}),
            Contender("JAX", Jax(static=(1,)), lambda: {"primal": jax_life}),
            Contender("Numba", Numba(), lambda: {"primal": numba_life}),
        ],
        functions=("primal",),
        main=PLATE,
    ),
]
