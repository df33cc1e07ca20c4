"""Simulations and numerical methods from textbooks (programs/simulations.py), and the same in JAX, PyTorch and Numba.

JAX's are written as its users do, with its library where that has the function. Numba's are loops, and have no
derivatives.
"""

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Numba, Torch, adze, of_jax, of_torch
from programs import simulations

import adze as az
from lines.everyday import in_jax, in_torch, random

with contextlib.suppress(ImportError):  # without Numba the other tools are measured
    import numba


@dataclass(frozen=True)
class Sequential(Numba):
    """Numba on one thread, for loops whose steps are short: arrays of four numbers are not worth two."""

    def build(self, program: Any) -> Any:
        return numba.njit(program)


def drawn(*shapes: tuple[int, ...]) -> list[Any]:
    """Numbers between 0 and 1."""
    generator = np.random.default_rng(1)
    return [generator.random(shape) for shape in shapes]


# Stencils


def vector(n: int) -> Arguments:
    return tuple(random((n,)))


def plane(n: int) -> Arguments:
    return tuple(random((n, n)))


def block(n: int) -> Arguments:
    return tuple(random((n, n, n)))


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


def plate(n: int, steps: int) -> Arguments:
    return (*random((n, n)), steps)


def medium(n: int, steps: int) -> Arguments:
    return (*random((n, n), (n, n)), steps)


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


def jax_wave(start: Any, speed: Any, steps: int) -> Any:
    import jax.numpy as jnp

    def step(state: Any) -> Any:
        u, before = state
        p = jnp.pad(u, 1)
        laplacian = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u
        return 2 * u - before + 0.1 * speed**2 * laplacian, u

    return remembered(step, (start, start), steps)[0]


# Deblurring


def photograph(n: int) -> Arguments:
    image, kernel, observed = drawn((n, n), (9, 9), (n, n))
    return image, kernel / np.sum(kernel), observed


def photograph_and_steps(n: int, steps: int) -> Arguments:
    return (*photograph(n), steps)


def jax_misfit(image: Any, kernel: Any, observed: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    blurred = lax.conv_general_dilated(image[None, None], kernel[None, None], (1, 1), "SAME")[0, 0]
    return 0.5 * jnp.sum((blurred - observed) ** 2)


def jax_misfit_by_taps(image: Any, kernel: Any, observed: Any) -> Any:
    import jax.numpy as jnp

    (n, m), p = image.shape, jnp.pad(image, 4)
    blurred = sum(kernel[y, x] * p[y : y + n, x : x + m] for y in range(9) for x in range(9))
    return 0.5 * jnp.sum((blurred - observed) ** 2)


def torch_misfit(image: Any, kernel: Any, observed: Any) -> Any:
    import torch

    blurred = torch.nn.functional.conv2d(image[None, None], kernel[None, None], padding=4)[0, 0]
    return 0.5 * ((blurred - observed) ** 2).sum()


def jax_deblurred(misfit: Any) -> Any:
    import jax
    from jax import lax

    def descent(image: Any, kernel: Any, observed: Any, steps: int) -> Any:
        return lax.fori_loop(0, steps, lambda _, u: u - 0.5 * jax.grad(misfit)(u, kernel, observed), image)

    return {"primal": descent}


def torch_deblurred(image: Any, kernel: Any, observed: Any, steps: int) -> Any:
    for _ in range(steps):
        image = image - 0.5 * of_torch(torch_misfit)["gradient"](image, kernel, observed)
    return image


# Ensembles


def animals(n: int, steps: int) -> Arguments:
    return (*(0.5 + x for x in drawn((n,), (n,), (n,), (n,))), 0.01, steps)


def jax_predators(prey: Any, hunters: Any, births: Any, catches: Any, dt: Any, steps: int) -> Any:
    import jax
    from jax import lax

    def member(x: Any, y: Any, birth: Any, catch: Any) -> Any:
        def slope(x: Any, y: Any) -> Any:
            return birth * x - catch * x * y, catch * x * y - y

        def step(state: Any, _: Any) -> Any:
            x, y = state
            a, b = slope(x, y)
            c, d = slope(x + dt / 2 * a, y + dt / 2 * b)
            e, f = slope(x + dt / 2 * c, y + dt / 2 * d)
            g, h = slope(x + dt * e, y + dt * f)
            return (x + dt / 6 * (a + 2 * c + 2 * e + g), y + dt / 6 * (b + 2 * d + 2 * f + h)), None

        return lax.scan(step, (x, y), length=steps)[0]

    return jax.vmap(member)(prey, hunters, births, catches)


def with_jax_predators() -> dict[str, Any]:
    def total(*given: Any) -> Any:
        x, y = jax_predators(*given)
        return (x**2).sum() + (y**2).sum()

    return {"primal": jax_predators, "gradient": of_jax(total, (2, 3))["gradient"]}


def numba_predators(prey: Any, hunters: Any, births: Any, catches: Any, dt: float, steps: int) -> Any:
    xs, ys = np.empty_like(prey), np.empty_like(prey)
    for k in numba.prange(len(prey)):
        x, y, birth, catch = prey[k], hunters[k], births[k], catches[k]
        for _ in range(steps):
            a, b = birth * x - catch * x * y, catch * x * y - y
            p, q = x + dt / 2 * a, y + dt / 2 * b
            c, d = birth * p - catch * p * q, catch * p * q - q
            p, q = x + dt / 2 * c, y + dt / 2 * d
            e, f = birth * p - catch * p * q, catch * p * q - q
            p, q = x + dt * e, y + dt * f
            g, h = birth * p - catch * p * q, catch * p * q - q
            x += dt / 6 * (a + 2 * c + 2 * e + g)
            y += dt / 6 * (b + 2 * d + 2 * f + h)
        xs[k], ys[k] = x, y
    return xs, ys


# Graphs


def links(n: int, e: int) -> Arguments:
    """Edges of which each page has one at least, and no page links much more than others."""
    generator = np.random.default_rng(1)
    source = np.concatenate([np.arange(n), generator.integers(0, n, e - n)])
    return source, generator.integers(0, n, e), 0.5 + generator.random(e), np.full(n, 1 / n)


def link_rows(n: int, e: int) -> Arguments:
    """The same by the page that is linked to, with shares that sum to 1."""
    source, target, weights, jump = links(n, e)
    shares = weights / np.bincount(source, weights, n)[source]
    order = np.argsort(target, kind="stable")
    rows = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=n))])
    return rows, source[order], shares[order], jump


def jax_ranks(source: Any, target: Any, weights: Any, jump: Any) -> Any:
    import jax
    import jax.numpy as jnp
    from jax import lax

    n = jump.shape[0]
    shares = weights / jax.ops.segment_sum(weights, source, n)[source]

    def step(rank: Any, _: Any) -> Any:
        return 0.15 * jump + 0.85 * jax.ops.segment_sum(shares * rank[source], target, n), None

    return lax.scan(step, jnp.full(n, 1.0 / n), length=50)[0]


def jax_row_ranks(rows: Any, source: Any, shares: Any, jump: Any) -> Any:
    import jax
    import jax.numpy as jnp
    from jax import lax

    n = jump.shape[0]
    target = jnp.repeat(jnp.arange(n), jnp.diff(rows), total_repeat_length=source.shape[0])

    def step(rank: Any, _: Any) -> Any:
        coming = jax.ops.segment_sum(shares * rank[source], target, n, indices_are_sorted=True)
        return 0.15 * jump + 0.85 * coming, None

    return lax.scan(step, jnp.full(n, 1.0 / n), length=50)[0]


def scaled(f: Any) -> Any:
    """The ranks, and the gradient of the sum of the squares of n times them."""

    def total(*given: Any) -> Any:
        return ((given[-1].shape[0] * f(*given)) ** 2).sum()

    return {"primal": f, "gradient": of_jax(total, (2, 3))["gradient"]}


def numba_ranks(source: Any, target: Any, weights: Any, jump: Any) -> Any:
    n = len(jump)
    sums, rank = np.zeros(n), np.full(n, 1.0 / n)
    for k in range(len(source)):
        sums[source[k]] += weights[k]
    shares = weights / sums[source]
    for _ in range(50):
        coming = np.zeros(n)
        for k in range(len(source)):
            coming[target[k]] += shares[k] * rank[source[k]]
        rank = 0.15 * jump + 0.85 * coming
    return rank


def numba_row_ranks(rows: Any, source: Any, shares: Any, jump: Any) -> Any:
    n = len(jump)
    rank, after = np.full(n, 1.0 / n), np.empty(n)
    for _ in range(50):
        for i in numba.prange(n):
            total = 0.0
            for k in range(rows[i], rows[i + 1]):
                total += shares[k] * rank[source[k]]
            after[i] = 0.15 * jump[i] + 0.85 * total
        rank, after = after, rank
    return rank


def distances(n: int) -> Arguments:
    """Lengths of edges between all nodes, where each has none to itself."""
    (lengths,) = drawn((n, n))
    np.fill_diagonal(lengths, 0.0)
    return (lengths**4,)


def jax_shortest(lengths: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    def through(d: Any, k: Any) -> Any:
        there = d[:, k, None] + d[k]
        return jnp.where(there < d, there, d), None

    return lax.scan(through, lengths, jnp.arange(lengths.shape[0]))[0]


def numba_shortest(lengths: Any) -> Any:
    n, d = len(lengths), lengths.copy()
    for k in range(n):
        for i in numba.prange(n):
            for j in range(n):
                d[i, j] = min(d[i, j], d[i, k] + d[k, j])
    return d


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


# An implicit method


def rod(n: int, steps: int) -> Arguments:
    return (*drawn((n,)), 50.0, 0.01, steps)


def jax_tridiagonal(lower: Any, diagonal: Any, upper: Any, right: Any) -> Any:
    from jax import lax

    def forward(state: Any, row: Any) -> Any:
        c, d = state
        low, middle, up, r = row
        pivot = middle - low * c
        state = up / pivot, (r - low * d) / pivot
        return state, state

    def backward(x: Any, row: Any) -> Any:
        c, d = row
        x = d - c * x
        return x, x

    _, rows = lax.scan(forward, (0.0, 0.0), (lower, diagonal, upper, right))
    return lax.scan(backward, 0.0, rows, reverse=True)[1]


def jax_solve(lower: Any, diagonal: Any, upper: Any, right: Any) -> Any:
    from jax import lax

    lower, upper = lower.at[0].set(0.0), upper.at[-1].set(0.0)
    return lax.linalg.tridiagonal_solve(lower, diagonal, upper, right[:, None])[:, 0]


def jax_implicit(solve: Any) -> Any:
    def integrated(start: Any, rate: Any, dt: Any, steps: int) -> Any:
        import jax.numpy as jnp
        from jax import lax

        def newton(old: Any, u: Any) -> Any:
            p = jnp.pad(u, 1)
            residual = u - old - dt * (rate * (p[:-2] - 2 * u + p[2:]) + u - u**3)
            side = jnp.full_like(u, -dt * rate)
            return u - solve(side, 1 - dt * (-2 * rate + 1 - 3 * u**2), side, residual)

        def step(old: Any, _: Any) -> Any:
            return lax.scan(lambda u, _: (newton(old, u), None), old, length=3)[0], None

        return lax.scan(step, start, length=steps)[0]

    return integrated


def numba_implicit(start: Any, rate: float, dt: float, steps: int) -> Any:
    n = len(start)
    u = start.copy()
    c, d = np.empty(n), np.empty(n)
    side = -dt * rate
    for _ in range(steps):
        old = u.copy()
        for _ in range(3):
            before_c, before_d = 0.0, 0.0
            for i in range(n):
                left = u[i - 1] if i > 0 else 0.0
                right = u[i + 1] if i < n - 1 else 0.0
                residual = u[i] - old[i] - dt * (rate * (left - 2 * u[i] + right) + u[i] - u[i] ** 3)
                pivot = 1 - dt * (-2 * rate + 1 - 3 * u[i] ** 2) - side * before_c
                before_c, before_d = side / pivot, (residual - side * before_d) / pivot
                c[i], d[i] = before_c, before_d
            x = 0.0
            for i in range(n - 1, -1, -1):
                x = d[i] - c[i] * x
                u[i] -= x
    return u


# Tables


def table(n: int, k: int) -> Arguments:
    points, steps, ys = drawn((n,), (k,), (k,))
    xs = np.cumsum(steps)
    return xs[0] + points * (xs[-1] - xs[0]), xs, ys


def jax_interpolated(points: Any, xs: Any, ys: Any) -> Any:
    import jax.numpy as jnp

    return jnp.interp(points, xs, ys)


def jax_looked_up(points: Any, xs: Any, ys: Any) -> Any:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def place(x: Any) -> Any:
        def halve(_: Any, state: Any) -> Any:
            low, high = state
            middle = (low + high) // 2
            right = xs[middle] <= x
            return jnp.where(right, middle, low), jnp.where(right, high, middle)

        return lax.fori_loop(0, (xs.shape[0] - 1).bit_length(), halve, (0, xs.shape[0] - 1))[0]

    i = jax.vmap(place)(points)
    t = (points - xs[i]) / (xs[i + 1] - xs[i])
    return (1 - t) * ys[i] + t * ys[i + 1]


def numba_looked_up(points: Any, xs: Any, ys: Any) -> Any:
    result = np.empty_like(points)
    for k in numba.prange(len(points)):
        x = points[k]
        low, high = 0, len(xs) - 1
        while high - low > 1:
            middle = (low + high) // 2
            if xs[middle] <= x:
                low = middle
            else:
                high = middle
        t = (x - xs[low]) / (xs[low + 1] - xs[low])
        result[k] = (1 - t) * ys[low] + t * ys[low + 1]
    return result


# Bodies


def cluster(n: int, steps: int) -> Arguments:
    return (*drawn((n, 3), (n, 3), (n,)), 0.001, steps)


def jax_bodies(places: Any, speeds: Any, masses: Any, dt: Any, steps: int) -> Any:
    from jax import lax

    def forces(x: Any) -> Any:
        d = x[None] - x[:, None]
        return (masses[:, None] * d / ((d**2).sum(-1) + 0.01)[..., None] ** 1.5).sum(1)

    def step(state: Any, _: Any) -> Any:
        x, v = state
        v = v + 0.5 * dt * forces(x)
        x = x + dt * v
        return (x, v + 0.5 * dt * forces(x)), None

    return lax.scan(step, (places, speeds), length=steps)[0]


def with_jax_bodies() -> dict[str, Any]:
    def total(*given: Any) -> Any:
        x, v = jax_bodies(*given)
        return (x**2).sum() + (v**2).sum()

    return {"primal": jax_bodies, "gradient": of_jax(total, (0, 2))["gradient"]}


def numba_bodies(places: Any, speeds: Any, masses: Any, dt: float, steps: int) -> Any:
    n = len(places)
    x, v = places.copy(), speeds.copy()
    for step in range(2 * steps):
        for i in numba.prange(n):
            a = b = c = 0.0
            for j in range(n):
                p, q, r = x[j, 0] - x[i, 0], x[j, 1] - x[i, 1], x[j, 2] - x[i, 2]
                pull = masses[j] / (p * p + q * q + r * r + 0.01) ** 1.5
                a += pull * p
                b += pull * q
                c += pull * r
            v[i, 0] += 0.5 * dt * a
            v[i, 1] += 0.5 * dt * b
            v[i, 2] += 0.5 * dt * c
        if step % 2 == 0:
            x += dt * v
    return x, v


# Filters


def tracked(t: int) -> Arguments:
    """Places of something that moves in a plane with the same speed, but for noise."""
    motion = np.eye(4) + 0.1 * np.eye(4, k=2)
    generator = np.random.default_rng(1)
    seen = np.cumsum(0.1 * generator.standard_normal((t, 2)), 0) + 0.3 * generator.standard_normal((t, 2))
    return seen, motion, 0.01 * np.eye(4), np.eye(2, 4), 0.1 * np.eye(2)


def jax_kalman(seen: Any, motion: Any, noise: Any, view: Any, error: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    def step(state: Any, z: Any) -> Any:
        x, p, total = state
        x = motion @ x
        p = motion @ p @ motion.T + noise
        s = view @ p @ view.T + error
        determinant = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        inverse = jnp.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]]) / determinant
        gain = p @ view.T @ inverse
        r = z - view @ x
        total = total + 0.5 * (r @ inverse @ r + jnp.log(determinant))
        return (x + gain @ r, p - gain @ view @ p, total), None

    return lax.scan(step, (jnp.zeros(4), jnp.eye(4), 0.0), seen)[0][2]


def numba_kalman(seen: Any, motion: Any, noise: Any, view: Any, error: Any) -> Any:
    x, p, total = np.zeros(4), np.eye(4), 0.0
    for k in range(len(seen)):
        x = motion @ x
        p = motion @ p @ motion.T + noise
        s = view @ p @ view.T + error
        determinant = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        inverse = np.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]]) / determinant
        gain = p @ view.T @ inverse
        r = seen[k] - view @ x
        total += 0.5 * (r @ inverse @ r + np.log(determinant))
        x = x + gain @ r
        p = p - gain @ view @ p
    return total


# Options


def market(n: int, m: int) -> Arguments:
    return 100.0, 0.2, 0.05, 100.0, *random((n, m))


def jax_asian(spot: Any, volatility: Any, rate: Any, strike: Any, normals: Any) -> Any:
    import jax.numpy as jnp

    dt = 1 / normals.shape[1]
    moves = (rate - 0.5 * volatility**2) * dt + volatility * jnp.sqrt(dt) * normals
    prices = spot * jnp.exp(jnp.cumsum(moves, 1))
    return jnp.exp(-rate) * jnp.mean(jnp.maximum(jnp.mean(prices, 1) - strike, 0))


def jax_asian_by_paths(spot: Any, volatility: Any, rate: Any, strike: Any, normals: Any) -> Any:
    import jax
    import jax.numpy as jnp
    from jax import lax

    dt = 1 / normals.shape[1]

    def path(z: Any) -> Any:
        def step(state: Any, z: Any) -> Any:
            price, total = state
            price = price * jnp.exp((rate - 0.5 * volatility**2) * dt + volatility * jnp.sqrt(dt) * z)
            return (price, total + price), None

        return jnp.maximum(lax.scan(step, (spot, 0.0), z)[0][1] * dt - strike, 0)

    return jnp.exp(-rate) * jnp.mean(jax.vmap(path)(normals))


def torch_asian(spot: Any, volatility: Any, rate: Any, strike: Any, normals: Any) -> Any:
    import torch

    spot, volatility, rate = (torch.as_tensor(x, dtype=torch.float64) for x in (spot, volatility, rate))
    dt = 1 / normals.shape[1]
    moves = (rate - 0.5 * volatility**2) * dt + volatility * dt**0.5 * normals
    prices = spot * torch.exp(torch.cumsum(moves, 1))
    return torch.exp(-rate) * (prices.mean(1) - strike).clamp(min=0).mean()


def with_torch_asian() -> dict[str, Any]:
    import torch

    def gradient(*given: Any) -> Any:
        numbers = (torch.tensor(x, dtype=torch.float64) for x in given[:4])
        return of_torch(torch_asian, (0, 1, 2))["gradient"](*numbers, given[4])

    return {"primal": torch_asian, "gradient": gradient}


def numba_asian(spot: float, volatility: float, rate: float, strike: float, normals: Any) -> Any:
    n, m = normals.shape
    dt = 1 / m
    result = 0.0
    for k in numba.prange(n):
        price, total = spot, 0.0
        for i in range(m):
            price *= np.exp((rate - 0.5 * volatility**2) * dt + volatility * np.sqrt(dt) * normals[k, i])
            total += price
        result += max(total / m - strike, 0.0)
    return np.exp(-rate) * result / n


# Matrices


def matrix(n: int) -> Arguments:
    (a,) = random((n, n))
    return (a + n * np.eye(n),)


def general(n: int) -> Arguments:
    (a,) = random((n, n))
    return (a + 10 * np.eye(n),)


def jax_lu(a: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    n = a.shape[0]

    def column(a: Any, k: Any) -> Any:
        below = jnp.arange(n) > k
        factors = jnp.where(below, a[:, k] / a[k, k], 0)
        row = jnp.where(below, a[k], 0)
        return (a - jnp.outer(factors, row)).at[:, k].set(jnp.where(below, factors, a[:, k])), None

    both = lax.scan(column, a, jnp.arange(n - 1))[0]
    return jnp.tril(both, -1) + jnp.eye(n), jnp.triu(both)


def with_jax_lu() -> dict[str, Any]:
    def squares(a: Any) -> Any:
        lower, upper = jax_lu(a)
        return (lower**2).sum() + (upper**2).sum()

    return {"primal": jax_lu, "gradient": of_jax(squares)["gradient"]}


def numba_lu(matrix: Any) -> Any:
    n, a = len(matrix), matrix.copy()
    for k in range(n - 1):
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
            for j in range(k + 1, n):
                a[i, j] -= a[i, k] * a[k, j]
    return np.tril(a, -1) + np.eye(n), np.triu(a)


def jax_qr(a: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    n = a.shape[0]

    def column(state: Any, k: Any) -> Any:
        q, r = state
        length = jnp.sqrt(jnp.sum(q[:, k] ** 2))
        unit = q[:, k] / length
        row = jnp.where(jnp.arange(n) > k, unit @ q, 0)
        q = (q - jnp.outer(unit, row)).at[:, k].set(unit)
        return (q, r.at[k].set(row).at[k, k].set(length)), None

    return lax.scan(column, (a, jnp.zeros((n, n))), jnp.arange(n))[0]


def with_jax_qr() -> dict[str, Any]:
    def cubes(a: Any) -> Any:
        q, r = jax_qr(a)
        return (q**3).sum() + (r**3).sum()

    return {"primal": jax_qr, "gradient": of_jax(cubes)["gradient"]}


def numba_qr(matrix: Any) -> Any:
    n, q, r = len(matrix), matrix.copy(), np.zeros_like(matrix)
    for k in range(n):
        r[k, k] = np.sqrt(np.sum(q[:, k] ** 2))
        q[:, k] /= r[k, k]
        for i in range(n):
            for j in range(k + 1, n):
                r[k, j] += q[i, k] * q[i, j]
        for i in range(n):
            for j in range(k + 1, n):
                q[i, j] -= q[i, k] * r[k, j]
    return q, r


ROW, PLANE, BLOCK = {"n": 1_000_000}, {"n": 1024}, {"n": 128}
PLATE, PHOTOGRAPH, DESCENT = {"n": 512, "steps": 100}, {"n": 256}, {"n": 256, "steps": 10}
ANIMALS, LINKS, DISTANCES = {"n": 10_000, "steps": 200}, {"n": 10_000, "e": 100_000}, {"n": 300}
ROD, TABLE, CLUSTER = {"n": 1000, "steps": 50}, {"n": 1_000_000, "k": 1000}, {"n": 512, "steps": 10}
TRACKED, MARKET, MATRIX = {"t": 1000}, {"n": 100_000, "m": 50}, {"n": 200}
LINES = [
    Line(
        "stencil, 1-D",
        "Stencil of five points with zeros around",
        [ROW],
        vector,
        [
            *adze({"primal": simulations.line_stencil, "gradient": az.grad(simulations.line_stencil_squares)}),
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
            *adze({"primal": simulations.plane_stencil, "gradient": az.grad(simulations.plane_stencil_squares)}),
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
            *adze({"primal": simulations.block_stencil, "gradient": az.grad(simulations.block_stencil_squares)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_block, 0)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_block, (0,))),
            Contender("Numba", Numba(), lambda: {"primal": numba_block}),
        ],
        main=BLOCK,
    ),
    Line(
        "heat, checkpoints",
        "Heat equation on a plate, with checkpoints",
        [PLATE],
        plate,
        [
            *adze({"primal": simulations.cooled, "gradient": az.grad(simulations.cooled_squares)}),
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
            *adze({"primal": simulations.wave, "gradient": az.grad(simulations.wave_squares, argnums=1)}),
            Contender("JAX", Jax(static=(2,)), lambda: in_jax(jax_wave, 1)),
        ],
        main=PLATE,
    ),
    Line(
        "deblurring, misfit",
        "Misfit of an image that is blurred by 9 x 9 points",
        [PHOTOGRAPH],
        photograph,
        [
            *adze({"primal": simulations.misfit, "gradient": az.grad(simulations.misfit)}),
            Contender("JAX", Jax(), lambda: of_jax(jax_misfit)),
            Contender("JAX, by taps", Jax(), lambda: of_jax(jax_misfit_by_taps)),
            Contender("PyTorch", Torch(), lambda: of_torch(torch_misfit)),
        ],
        main=PHOTOGRAPH,
    ),
    Line(
        "deblurring, descent",
        "Ten steps of gradient descent towards a sharp image",
        [DESCENT],
        photograph_and_steps,
        [
            *adze({"primal": simulations.deblurred}),
            Contender("JAX", Jax(static=(3,)), lambda: jax_deblurred(jax_misfit)),
            Contender("JAX, by taps", Jax(static=(3,)), lambda: jax_deblurred(jax_misfit_by_taps)),
            Contender("PyTorch", Torch(), lambda: {"primal": torch_deblurred}),
        ],
        functions=("primal",),
        main=DESCENT,
    ),
    Line(
        "ensemble",
        "Lotka-Volterra for many rates, by Runge and Kutta's method",
        [ANIMALS],
        animals,
        [
            *adze(
                {"primal": simulations.predators, "gradient": az.grad(simulations.predators_squares, argnums=(2, 3))}
            ),
            Contender("JAX", Jax(static=(5,)), with_jax_predators),
            Contender("Numba", Numba(), lambda: {"primal": numba_predators}),
        ],
        main=ANIMALS,
    ),
    Line(
        "pagerank, edges",
        "PageRank of a list of edges",
        [LINKS],
        links,
        [
            *adze({"primal": simulations.ranks, "gradient": az.grad(simulations.ranks_squares, argnums=(2, 3))}),
            Contender("JAX", Jax(), lambda: scaled(jax_ranks)),
            Contender("Numba", Sequential(), lambda: {"primal": numba_ranks}),
        ],
        main=LINKS,
    ),
    Line(
        "pagerank, rows",
        "PageRank of compressed rows",
        [LINKS],
        link_rows,
        [
            *adze(
                {"primal": simulations.row_ranks, "gradient": az.grad(simulations.row_ranks_squares, argnums=(2, 3))}
            ),
            Contender("JAX", Jax(), lambda: scaled(jax_row_ranks)),
            Contender("Numba", Numba(), lambda: {"primal": numba_row_ranks}),
        ],
        main=LINKS,
    ),
    Line(
        "shortest paths",
        "Shortest ways between all nodes, by Floyd and Warshall",
        [DISTANCES],
        distances,
        [
            *adze({"primal": simulations.shortest, "gradient": az.grad(simulations.shortest_sum)}),
            Contender(
                "JAX",
                Jax(),
                lambda: {
                    "primal": jax_shortest,
                    "gradient": of_jax(lambda lengths: jax_shortest(lengths).sum())["gradient"],
                },
            ),
            Contender("Numba", Numba(), lambda: {"primal": numba_shortest}),
        ],
        main=DISTANCES,
    ),
    Line(
        "life",
        "Game of life on a torus",
        [PLATE],
        population,
        [
            *adze({"primal": simulations.life}),
            Contender("JAX", Jax(static=(1,)), lambda: {"primal": jax_life}),
            Contender("Numba", Numba(), lambda: {"primal": numba_life}),
        ],
        functions=("primal",),
        main=PLATE,
    ),
    Line(
        "implicit Euler",
        "Implicit Euler with Newton's method and tridiagonal solves",
        [ROD],
        rod,
        [
            *adze({"primal": simulations.implicit, "gradient": az.grad(simulations.implicit_squares, argnums=(0, 1))}),
            Contender("JAX", Jax(static=(3,)), lambda: in_jax(jax_implicit(jax_tridiagonal), (0, 1))),
            Contender("JAX, solve", Jax(static=(3,)), lambda: in_jax(jax_implicit(jax_solve), (0, 1))),
            Contender("Numba", Sequential(), lambda: {"primal": numba_implicit}),
        ],
        main=ROD,
    ),
    Line(
        "interpolation",
        "Linear interpolation in a table",
        [TABLE],
        table,
        [
            *adze(
                {
                    "primal": simulations.interpolated,
                    "gradient": az.grad(simulations.interpolated_squares, argnums=(0, 2)),
                }
            ),
            Contender("JAX", Jax(), lambda: in_jax(jax_interpolated, (0, 2))),
            Contender("Numba", Numba(), lambda: {"primal": numba_looked_up}),
        ],
        main=TABLE,
    ),
    Line(
        "interpolation by hand",
        "Linear interpolation in a table, with a binary search by hand",
        [TABLE],
        table,
        [
            *adze(
                {"primal": simulations.looked_up, "gradient": az.grad(simulations.looked_up_squares, argnums=(0, 2))}
            ),
            Contender("JAX", Jax(), lambda: in_jax(jax_looked_up, (0, 2))),
            Contender("Numba", Numba(), lambda: {"primal": numba_looked_up}),
        ],
        main=TABLE,
    ),
    Line(
        "bodies",
        "Bodies that attract each other",
        [CLUSTER],
        cluster,
        [
            *adze({"primal": simulations.bodies, "gradient": az.grad(simulations.bodies_squares, argnums=(0, 2))}),
            Contender("JAX", Jax(static=(4,)), with_jax_bodies),
            Contender("Numba", Numba(), lambda: {"primal": numba_bodies}),
        ],
        main=CLUSTER,
    ),
    Line(
        "kalman",
        "Likelihood by the Kalman filter",
        [TRACKED],
        tracked,
        [
            *adze({"primal": simulations.kalman, "gradient": az.grad(simulations.kalman, argnums=(1, 2, 4))}),
            Contender("JAX", Jax(), lambda: of_jax(jax_kalman, (1, 2, 4))),
            Contender("Numba", Sequential(), lambda: {"primal": numba_kalman}),
        ],
        main=TRACKED,
    ),
    Line(
        "asian option",
        "Price of an option on a mean, from given normals, all paths at once",
        [MARKET],
        market,
        [
            *adze({"primal": simulations.asian, "gradient": az.grad(simulations.asian, argnums=(0, 1, 2))}),
            Contender("JAX", Jax(), lambda: of_jax(jax_asian, (0, 1, 2))),
            Contender("PyTorch", Torch(), with_torch_asian),
            Contender("Numba", Numba(), lambda: {"primal": numba_asian}),
        ],
        main=MARKET,
    ),
    Line(
        "asian option by paths",
        "Price of an option on a mean, from given normals, path by path",
        [MARKET],
        market,
        [
            *adze(
                {
                    "primal": simulations.asian_by_paths,
                    "gradient": az.grad(simulations.asian_by_paths, argnums=(0, 1, 2)),
                }
            ),
            Contender("JAX", Jax(), lambda: of_jax(jax_asian_by_paths, (0, 1, 2))),
            Contender("Numba", Numba(), lambda: {"primal": numba_asian}),
        ],
        main=MARKET,
    ),
    Line(
        "lu",
        "Factors of a matrix by Gauss's elimination",
        [MATRIX],
        matrix,
        [
            *adze({"primal": simulations.lu, "gradient": az.grad(simulations.lu_squares)}),
            Contender("JAX", Jax(), with_jax_lu),
            Contender("Numba", Sequential(), lambda: {"primal": numba_lu}),
        ],
        main=MATRIX,
    ),
    Line(
        "qr",
        "Factors of a matrix by Gram and Schmidt's method",
        [MATRIX],
        general,
        [
            *adze({"primal": simulations.qr, "gradient": az.grad(simulations.qr_cubes)}),
            Contender("JAX", Jax(), with_jax_qr),
            Contender("Numba", Sequential(), lambda: {"primal": numba_qr}),
        ],
        main=MATRIX,
    ),
]
