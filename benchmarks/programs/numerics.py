"""Numerical methods: differential equations, tables, matrices, a transform, each as somebody would write it first."""

import math
from typing import Any

import adze as az

Vector = az.Array[az.f64, "n"]
Square = az.Array[az.f64, "n n"]


# Differential equations


@az.program
def predators(
    prey: Vector, hunters: Vector, births: Vector, catches: Vector, dt: az.f64, steps: az.i64
) -> tuple[Vector, Vector]:
    """Lotka-Volterra for many animals' rates, each integrated by the method of Runge and Kutta."""

    def member(x: az.Expr, y: az.Expr, birth: az.Expr, catch: az.Expr) -> Any:
        def slope(x: az.Expr, y: az.Expr) -> Any:
            return birth * x - catch * x * y, catch * x * y - y

        def step(_: az.Expr, state: Any) -> Any:
            x, y = state
            a, b = slope(x, y)
            c, d = slope(x + dt / 2 * a, y + dt / 2 * b)
            e, f = slope(x + dt / 2 * c, y + dt / 2 * d)
            g, h = slope(x + dt * e, y + dt * f)
            return x + dt / 6 * (a + 2 * c + 2 * e + g), y + dt / 6 * (b + 2 * d + 2 * f + h)

        return az.fori_loop(0, steps, step, (x, y))

    return az.map(member, prey, hunters, births, catches)


@az.program
def predators_squares(
    prey: Vector, hunters: Vector, births: Vector, catches: Vector, dt: az.f64, steps: az.i64
) -> az.f64:
    x, y = predators(prey, hunters, births, catches, dt, steps)
    return az.sum(x**2) + az.sum(y**2)


def tridiagonal(lower: az.Expr, diagonal: az.Expr, upper: az.Expr, right: az.Expr) -> az.Expr:
    """The solution of a system with a matrix of three diagonals, by Thomas's algorithm."""

    def forward(state: Any, row: Any) -> Any:
        c, d = state
        low, middle, up, r = row
        pivot = middle - low * c
        state = up / pivot, (r - low * d) / pivot
        return state, state

    _, (c, d) = az.scan_loop(forward, (0.0, 0.0), (lower, diagonal, upper, right))

    def backward(x: az.Expr, row: Any) -> Any:
        c, d = row
        x = d - c * x
        return x, x

    return az.flip(az.scan_loop(backward, 0.0, (az.flip(c), az.flip(d)))[1])


@az.program
def implicit(start: Vector, rate: az.f64, dt: az.f64, steps: az.i64) -> Vector:
    """Diffusion with a reaction, by implicit Euler: in each step three of Newton's method, each with a solve."""
    n = start.shape[0]

    def step(_: az.Expr, old: az.Expr) -> az.Expr:
        def newton(_: az.Expr, u: az.Expr) -> az.Expr:
            p = az.pad(u, 1)
            flow = rate * (p[:-2] - 2.0 * u + p[2:])
            residual = u - old - dt * (flow + u - u**3)
            side = az.full(n, -dt * rate)
            middle = 1.0 - dt * (-2.0 * rate + 1.0 - 3.0 * u**2)
            return u - tridiagonal(side, middle, side, residual)

        return az.fori_loop(0, 3, newton, old)

    return az.fori_loop(0, steps, step, start)


@az.program
def implicit_squares(start: Vector, rate: az.f64, dt: az.f64, steps: az.i64) -> az.f64:
    return az.sum(implicit(start, rate, dt, steps) ** 2)


# Tables


@az.program
def interpolated(points: Vector, xs: az.Array[az.f64, "k"], ys: az.Array[az.f64, "k"]) -> Vector:
    """Linear interpolation in a table."""
    i = az.clip(az.searchsorted(xs, points, side="right") - 1, 0, xs.shape[0] - 2)
    t = (points - xs[i]) / (xs[i + 1] - xs[i])
    return (1.0 - t) * ys[i] + t * ys[i + 1]


@az.program
def interpolated_squares(points: Vector, xs: az.Array[az.f64, "k"], ys: az.Array[az.f64, "k"]) -> az.f64:
    return az.sum(interpolated(points, xs, ys) ** 2)


@az.program
def looked_up(points: Vector, xs: az.Array[az.f64, "k"], ys: az.Array[az.f64, "k"]) -> Vector:
    """The same, point by point with a binary search by hand."""

    def at(x: az.Expr) -> az.Expr:
        def halve(state: Any) -> Any:
            low, high = state
            middle = (low + high) // 2
            right = xs[middle] <= x
            return az.where(right, middle, low), az.where(right, high, middle)

        i, _ = az.while_loop(lambda s: s[1] - s[0] > 1, halve, (0, xs.shape[0] - 1))
        t = (x - xs[i]) / (xs[i + 1] - xs[i])
        return (1.0 - t) * ys[i] + t * ys[i + 1]

    return az.map(at, points)


@az.program
def looked_up_squares(points: Vector, xs: az.Array[az.f64, "k"], ys: az.Array[az.f64, "k"]) -> az.f64:
    return az.sum(looked_up(points, xs, ys) ** 2)


# Matrices


@az.program
def lu(matrix: Square) -> tuple[Square, Square]:
    """The factors of a matrix without pivots, by Gauss's elimination with slices."""
    n = matrix.shape[0]

    def column(k: az.Expr, a: az.Expr) -> az.Expr:
        factors = a[k + 1 :, k] / a[k, k]
        a = az.update(a, (slice(k + 1, None), k), factors)
        rest = a[k + 1 :, k + 1 :] - az.outer(factors, a[k, k + 1 :])
        return az.update(a, (slice(k + 1, None), slice(k + 1, None)), rest)

    both = az.fori_loop(0, n - 1, column, matrix)
    return az.tril(both, -1) + az.eye(n), az.triu(both)


@az.program
def lu_squares(matrix: Square) -> az.f64:
    lower, upper = lu(matrix)
    return az.sum(lower**2) + az.sum(upper**2)


@az.program
def qr(matrix: Square) -> tuple[Square, Square]:
    """An orthogonal and a triangular factor, by the method of Gram and Schmidt as modified."""
    n = matrix.shape[0]

    def column(k: az.Expr, state: Any) -> Any:
        q, r = state
        length = az.sqrt(az.sum(q[:, k] ** 2))
        unit = q[:, k] / length
        row = az.where(az.iota(n) > k, unit @ q, 0.0)
        q = az.update(q - az.outer(unit, row), (slice(None), k), unit)
        return q, az.update(az.update(r, k, row), (k, k), length)

    return az.fori_loop(0, n, column, (matrix, az.zeros((n, n))))


@az.program
def qr_cubes(matrix: Square) -> az.f64:
    q, r = qr(matrix)
    return az.sum(q**3) + az.sum(r**3)


# A transform


@az.program
def fourier(real: az.Array[az.f64, "n"], imaginary: az.Array[az.f64, "n"], stages: az.i64) -> Any:
    """The Fourier transform of 2^stages numbers, by stages that double the length of the transforms (Stockham)."""
    n = real.shape[0]

    def stage(_: az.Expr, state: Any) -> Any:
        m, re, im = state

        def entry(k: az.Expr) -> Any:
            j = k % m
            i = k // (2 * m) * m + j
            angle = -math.pi * j.astype(az.f64) / m.astype(az.f64)
            c, s = az.cos(angle), az.sin(angle)
            x, y = re[i + n // 2], im[i + n // 2]
            sign = az.where(k // m % 2 == 0, 1.0, -1.0)
            return re[i] + sign * (c * x - s * y), im[i] + sign * (c * y + s * x)

        return 2 * m, *az.generate(n, entry)

    return az.fori_loop(0, stages, stage, (1, real, imaginary))[1:]


@az.program
def fourier_cubes(real: az.Array[az.f64, "n"], imaginary: az.Array[az.f64, "n"], stages: az.i64) -> az.f64:
    re, im = fourier(real, imaginary, stages)
    return az.sum(re**3) + az.sum(im**3)
