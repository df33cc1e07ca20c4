"""Stencils, the heat and the wave equation, and cells, each as somebody would write it first."""

from typing import Any

import adze as az

Grid = az.Array[az.f64, "n m"]
Vector = az.Array[az.f64, "n"]
Block = az.Array[az.f64, "n m l"]


# Stencils


@az.program
def smoothed(u: Grid, weights: az.Array[az.f64, "7 7"]) -> Grid:
    """A stencil of 49 points; around the grid there are zeros."""
    padded = az.pad(u, 3)
    return az.generate(u.shape, lambda y, x: az.sum(weights * padded[y : y + 7, x : x + 7]))


@az.program
def smoothed_squares(u: Grid, weights: az.Array[az.f64, "7 7"]) -> az.f64:
    return az.sum(smoothed(u, weights) ** 2)


@az.program
def line_stencil(x: Vector) -> Vector:
    """Five points with the weights of a smoother; around them there are zeros."""
    return az.stencil(lambda w: (w[-2] + 4.0 * w[-1] + 6.0 * w[0] + 4.0 * w[1] + w[2]) / 16.0, 0.0, x)


@az.program
def line_stencil_squares(x: Vector) -> az.f64:
    return az.sum(line_stencil(x) ** 2)


@az.program
def plane_stencil(u: Grid) -> Grid:
    """Nine points; outside of the grid is the nearest of its points."""

    def smooth(w: Any) -> az.Expr:
        sides = w[-1, 0] + w[1, 0] + w[0, -1] + w[0, 1]
        corners = w[-1, -1] + w[-1, 1] + w[1, -1] + w[1, 1]
        return (4.0 * w[0, 0] + 2.0 * sides + corners) / 16.0

    return az.stencil(smooth, "clamp", u)


@az.program
def plane_stencil_squares(u: Grid) -> az.f64:
    return az.sum(plane_stencil(u) ** 2)


@az.program
def block_stencil(u: Block) -> Block:
    """Seven points on a torus."""

    def laplacian(w: Any) -> az.Expr:
        around = w[-1, 0, 0] + w[1, 0, 0] + w[0, -1, 0] + w[0, 1, 0] + w[0, 0, -1] + w[0, 0, 1]
        return around - 6.0 * w[0, 0, 0]

    return az.stencil(laplacian, "wrap", u)


@az.program
def block_stencil_squares(u: Block) -> az.f64:
    return az.sum(block_stencil(u) ** 2)


# Partial differential equations in time


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
def diffused(start: Grid, steps: az.i64) -> Grid:
    """The heat equation with zeros around."""

    def step(_: az.Expr, u: az.Expr) -> az.Expr:
        p = az.pad(u, 1)
        return u + 0.1 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4.0 * u)

    return az.fori_loop(0, steps, step, start)


@az.program
def cooled(start: Grid, steps: az.i64) -> Grid:
    """The heat equation on a plate whose border keeps its temperature; few of the steps are kept."""

    def step(_: az.Expr, u: az.Expr) -> az.Expr:
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        inside = u[1:-1, 1:-1] + 0.1 * (around - 4.0 * u[1:-1, 1:-1])
        return az.update(u, (slice(1, -1), slice(1, -1)), inside)

    return az.fori_loop(0, steps, step, start, checkpoint="sqrt")


@az.program
def cooled_squares(start: Grid, steps: az.i64) -> az.f64:
    return az.sum(cooled(start, steps) ** 2)


@az.program
def wave(start: Grid, speed: Grid, steps: az.i64) -> Grid:
    """The wave equation with a speed at each point and zeros around; few of the steps are kept."""

    def step(_: az.Expr, state: Any) -> Any:
        u, before = state
        p = az.pad(u, 1)
        laplacian = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4.0 * u
        return 2.0 * u - before + 0.1 * speed**2 * laplacian, u

    return az.fori_loop(0, steps, step, (start, start), checkpoint="sqrt")[0]


@az.program
def wave_squares(start: Grid, speed: Grid, steps: az.i64) -> az.f64:
    return az.sum(wave(start, speed, steps) ** 2)


# Cells


@az.program
def life(start: az.Array[az.i32, "n m"], steps: az.i64) -> az.Array[az.i32, "n m"]:
    """Generations of Conway's game of life on a torus."""

    def step(_: az.Expr, u: az.Expr) -> az.Expr:
        rows = az.roll(u, 1, 0) + u + az.roll(u, -1, 0)
        around = az.roll(rows, 1, 1) + rows + az.roll(rows, -1, 1) - u
        return ((around == 3) | ((around == 2) & (u == 1))).astype(az.i32)

    return az.fori_loop(0, steps, step, start)
