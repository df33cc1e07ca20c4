"""Numerical methods: differential equations, tables, matrices, a transform, in Adze
(programs/numerics.py) and other tools."""

import contextlib
from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Numba, Tool, of_jax
from programs import numerics

import adze as az
from lines.everyday import Sequential, in_adze, in_jax, random, uniform

with contextlib.suppress(ImportError):  # without Numba the other tools are measured
    import numba

# Differential equations


def animals(n: int, steps: int) -> Arguments:
    return (*(0.5 + x for x in uniform((n,), (n,), (n,), (n,))), 0.01, steps)


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


def rod(n: int, steps: int) -> Arguments:
    return (*uniform((n,)), 50.0, 0.01, steps)


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


# Tables


def table(n: int, k: int) -> Arguments:
    points, steps, ys = uniform((n,), (k,), (k,))
    xs = np.cumsum(steps)
    return xs[0] + points * (xs[-1] - xs[0]), xs, ys


def jax_interpolated(points: Any, xs: Any, ys: Any) -> Any:
    import jax.numpy as jnp

    return jnp.interp(points, xs, ys)


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


# Matrices


def matrix(n: int) -> Arguments:
    (a,) = random((n, n))
    return (a + n * np.eye(n),)


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


def general(n: int) -> Arguments:
    (a,) = random((n, n))
    return (a + 10 * np.eye(n),)


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


# A transform


def signal(stages: int) -> Arguments:
    return (*random((1 << stages,), (1 << stages,)), stages)


def jax_fourier(real: Any, imaginary: Any, stages: Any) -> Any:
    import jax.numpy as jnp

    n = real.shape[0]
    k = jnp.arange(n)
    for stage in range(stages):
        m = 1 << stage
        j = k % m
        i = k // (2 * m) * m + j
        c, s = jnp.cos(-jnp.pi * j / m), jnp.sin(-jnp.pi * j / m)
        x, y = real[i + n // 2], imaginary[i + n // 2]
        sign = jnp.where(k // m % 2 == 0, 1.0, -1.0)
        real, imaginary = real[i] + sign * (c * x - s * y), imaginary[i] + sign * (c * y + s * x)
    return real, imaginary


def with_jax_fourier() -> dict[str, Any]:
    def cubes(*given: Any) -> Any:
        return sum((part**3).sum() for part in jax_fourier(*given))

    return {"primal": jax_fourier, "gradient": of_jax(cubes, BOTH)["gradient"]}


def scipy_fourier(real: Any, imaginary: Any, stages: int) -> Any:
    from scipy import fft

    found = fft.fft(real + 1j * imaginary)
    return found.real, found.imag


ANIMALS = {"n": 10_000, "steps": 200}
ROD = {"n": 1000, "steps": 50}
TABLE = {"n": 1_000_000, "k": 1000}
MATRIX = {"n": 200}
SIGNAL = {"stages": 14}
BOTH = (0, 1)
LINES = [
    Line(
        "ensemble",
        "Lotka-Volterra for many rates, by Runge and Kutta's method",
        [ANIMALS],
        animals,
        [
            in_adze({"primal": numerics.predators, "gradient": az.grad(numerics.predators_squares, argnums=(2, 3))}),
            Contender("JAX", Jax(static=(5,)), with_jax_predators),
            Contender("Numba", Numba(), lambda: {"primal": numba_predators}),
        ],
        main=ANIMALS,
    ),
    Line(
        "implicit Euler",
        "Implicit Euler with Newton's method and tridiagonal solves",
        [ROD],
        rod,
        [
            in_adze({"primal": numerics.implicit, "gradient": az.grad(numerics.implicit_squares, argnums=(0, 1))}),
            Contender("JAX", Jax(static=(3,)), lambda: in_jax(jax_implicit(jax_tridiagonal), (0, 1))),
            Contender("JAX, solve", Jax(static=(3,)), lambda: in_jax(jax_implicit(jax_solve), (0, 1)), library=True),
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
            in_adze(
                {
                    "primal": numerics.interpolated,
                    "gradient": az.grad(numerics.interpolated_squares, argnums=(0, 2)),
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
            in_adze({"primal": numerics.looked_up, "gradient": az.grad(numerics.looked_up_squares, argnums=(0, 2))}),
            Contender("JAX", Jax(), lambda: in_jax(jax_looked_up, (0, 2))),
            Contender("Numba", Numba(), lambda: {"primal": numba_looked_up}),
        ],
        main=TABLE,
    ),
    Line(
        "lu",
        "Factors of a matrix by Gauss's elimination",
        [MATRIX],
        matrix,
        [
            in_adze({"primal": numerics.lu, "gradient": az.grad(numerics.lu_squares)}),
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
            in_adze({"primal": numerics.qr, "gradient": az.grad(numerics.qr_cubes)}),
            Contender("JAX", Jax(), with_jax_qr),
            Contender("Numba", Sequential(), lambda: {"primal": numba_qr}),
        ],
        main=MATRIX,
    ),
    Line(
        "fourier",
        "Fourier transform by hand",
        [SIGNAL],
        signal,
        [
            in_adze({"primal": numerics.fourier, "gradient": az.grad(numerics.fourier_cubes, argnums=BOTH)}),
            Contender("JAX", Jax(static=(2,)), with_jax_fourier),
            Contender("SciPy, fft", Tool(), lambda: {"primal": scipy_fourier}),
        ],
        main=SIGNAL,
    ),
]
