"""Programs that people write from their textbooks, each as they would write it first."""

import math
from typing import Any

import adze as az

Image = az.Array[az.f32, "c h w"]
Kernels = az.Array[az.f32, "o c 3 3"]
Heads = az.Array[az.f32, "b n d"]
Grid = az.Array[az.f64, "n m"]


@az.program
def convolution(image: Image, kernels: Kernels) -> az.Array[az.f32, "o h-2 w-2"]:
    """Each of several kernels at each place of an image with several channels."""
    (_, h, w), o = image.shape, kernels.shape[0]
    return az.generate((o, h - 2, w - 2), lambda f, y, x: az.sum(kernels[f] * image[:, y : y + 3, x : x + 3]))


@az.program
def convolution_squares(image: Image, kernels: Kernels) -> az.f32:
    return az.sum(convolution(image, kernels) ** 2)


@az.program
def pooled(image: Image, kernels: Kernels) -> az.Array[az.f32, "o (h-2)//2 (w-2)//2"]:
    """A convolution, its negative part cut off, and of each square of four the greatest."""
    found = az.maximum(convolution(image, kernels), 0.0)
    o, h, w = found.shape
    return az.generate((o, h // 2, w // 2), lambda f, y, x: az.max(found[f, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]))


@az.program
def pooled_squares(image: Image, kernels: Kernels) -> az.f32:
    return az.sum(pooled(image, kernels) ** 2)


@az.program
def smoothed(u: Grid, weights: az.Array[az.f64, "7 7"]) -> Grid:
    """A stencil of 49 points; around the grid there are zeros."""
    padded = az.pad(u, 3)
    return az.generate(u.shape, lambda y, x: az.sum(weights * padded[y : y + 7, x : x + 7]))


@az.program
def smoothed_squares(u: Grid, weights: az.Array[az.f64, "7 7"]) -> az.f64:
    return az.sum(smoothed(u, weights) ** 2)


@az.program
def heat(start: Grid, steps: az.i64) -> Grid:
    """Steps of the heat equation on a torus."""

    def step(_: az.Expr, u: az.Expr) -> az.Expr:
        around = az.roll(u, 1, 0) + az.roll(u, -1, 0) + az.roll(u, 1, 1) + az.roll(u, -1, 1)
        return u + 0.1 * (around - 4 * u)

    return az.fori_loop(0, steps, step, start)


@az.program
def heat_squares(start: Grid, steps: az.i64) -> az.f64:
    return az.sum(heat(start, steps) ** 2)


@az.program
def attention(queries: Heads, keys: Heads, values: Heads) -> Heads:
    """For each query the mean of values, weighted by how much their keys are like it."""

    def head(q: az.Expr, k: az.Expr, v: az.Expr) -> az.Expr:
        scores = q @ k.T / az.sqrt(q.shape[1].astype(az.f32))
        weights = az.exp(scores - az.max(scores, 1)[:, None])
        return weights @ v / az.sum(weights, 1)[:, None]

    return az.map(head, queries, keys, values)


@az.program
def attention_squares(queries: Heads, keys: Heads, values: Heads) -> az.f32:
    return az.sum(attention(queries, keys, values) ** 2)


@az.program
def logistic(weights: az.Array[az.f64, "d"], x: az.Array[az.f64, "n d"], labels: az.Array[az.f64, "n"]) -> az.f64:
    """The mean loss of a logistic regression."""
    scores = x @ weights
    return az.mean(az.maximum(scores, 0.0) + az.log1p(az.exp(-az.abs(scores))) - scores * labels)


@az.program
def gaussian_process(x: az.Array[az.f64, "n d"], y: az.Array[az.f64, "n"], scale: az.f64, noise: az.f64) -> az.f64:
    """The negative logarithm of the likelihood of y; the Cholesky factor and the triangular solve are loops."""
    n = y.shape[0]
    covariance = az.map(lambda p: az.map(lambda q: az.exp(-0.5 * az.sum((p - q) ** 2) / scale**2), x), x)
    covariance = covariance + noise * az.eye(n)

    def column(j: az.Expr, factor: az.Expr) -> az.Expr:
        rest = covariance[:, j] - factor @ factor[j]
        root = az.sqrt(rest[j])
        below = az.generate(n, lambda i: az.where(i >= j, rest[i] / root, 0.0))
        return az.update(factor, (slice(None), j), below)

    factor = az.fori_loop(0, n, column, az.zeros((n, n)))
    z = az.fori_loop(0, n, lambda i, z: az.update(z, i, (y[i] - factor[i] @ z) / factor[i, i]), az.zeros(n))
    return 0.5 * (z @ z) + az.sum(az.log(az.diagonal(factor))) + 0.5 * n * math.log(2 * math.pi)


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
