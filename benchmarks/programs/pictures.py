"""Pictures: deblurring, filters, transforms, each as somebody would write it first."""

from typing import Any

import adze as az

Grid = az.Array[az.f64, "n m"]
Picture = az.Array[az.f64, "h w"]


# Deblurring


def blurred(image: az.Expr, kernel: az.Expr) -> az.Expr:
    """The mean of the 9 x 9 points around each, with the weights of the kernel and zeros around the image."""
    padded = az.pad(image, 4)
    return az.generate(image.shape, lambda y, x: az.sum(kernel * padded[y : y + 9, x : x + 9]))


@az.program
def misfit(image: Grid, kernel: az.Array[az.f64, "9 9"], observed: Grid) -> az.f64:
    """How far a blurred image is from what was observed."""
    return 0.5 * az.sum((blurred(image, kernel) - observed) ** 2)


@az.program
def deblurred(image: Grid, kernel: az.Array[az.f64, "9 9"], observed: Grid, steps: az.i64) -> Grid:
    """Steps of gradient descent from an image to one that gives what was observed when it is blurred."""
    slope = az.grad(lambda u: 0.5 * az.sum((blurred(u, kernel) - observed) ** 2))
    return az.fori_loop(0, steps, lambda _, u: u - 0.5 * slope(u), image)


# Pictures


@az.program
def median(image: Picture) -> az.Array[az.f64, "h-2 w-2"]:
    """The median of each window of 3 x 3."""
    h, w = image.shape
    return az.generate((h - 2, w - 2), lambda y, x: az.sort(az.ravel(image[y : y + 3, x : x + 3]))[4])


@az.program
def median_squares(image: Picture) -> az.f64:
    return az.sum(median(image) ** 2)


@az.program
def hough(points: az.Array[az.f64, "n 2"], angles: az.Array[az.f64, "a"], reach: az.i64) -> Any:
    """For each angle and distance, on how many points a line lies."""

    def votes(angle: az.Expr) -> az.Expr:
        distances = points[:, 0] * az.cos(angle) + points[:, 1] * az.sin(angle)
        return az.bincount(az.round(distances).astype(az.i64) + reach, length=2 * reach + 1)

    return az.map(votes, angles)


@az.program
def equalised(image: az.Array[az.i64, "h w"]) -> az.Array[az.i64, "h w"]:
    """An image whose grey values are spread evenly."""
    h, w = image.shape
    below = az.cumsum(az.bincount(az.ravel(image), length=256))
    least = az.min(az.where(below > 0, below, h * w))
    table = az.round(255 * (below - least) / (h * w - least)).astype(az.i64)
    return table[image]


@az.program
def mandelbrot(real: az.Array[az.f64, "w"], imaginary: az.Array[az.f64, "h"], limit: az.i64) -> Any:
    """For each point of the plane after how many steps it escapes."""

    def steps(a: az.Expr, b: az.Expr) -> az.Expr:
        def inside(state: Any) -> az.Expr:
            x, y, k = state
            return (x**2 + y**2 <= 4) & (k < limit)

        def step(state: Any) -> Any:
            x, y, k = state
            return x**2 - y**2 + a, 2 * x * y + b, k + 1

        return az.while_loop(inside, step, (0.0, 0.0, 0))[2]

    return az.map(lambda b: az.map(lambda a: steps(a, b), real), imaginary)
