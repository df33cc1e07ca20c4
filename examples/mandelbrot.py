"""The Mandelbrot set: a `while` of its own length in every element of a parallel loop.

    python examples/mandelbrot.py                        print what it measures, and a small picture as text
    python examples/mandelbrot.py --output set.png       draw it with matplotlib (pip install 'adze-lang[examples]')

A point c of the plane is in the set when z = z² + c, from z = 0, stays bounded. The number of steps after which |z|
exceeds 2 is its colour. Points near the border take a hundred times as many steps as those far outside, so the rows
of the picture cost unequal time: threads take them in small pieces.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import adze as az


@az.program
def escape_times(
    real: az.Array[az.f64, "w"], imaginary: az.Array[az.f64, "h"], limit: az.i64
) -> az.Array[az.i64, "h w"]:
    """For each point of a grid, the number of steps in which it escapes, or the limit."""

    def steps(b: az.Expr, a: az.Expr) -> az.Expr:
        def goes_on(state: tuple[az.Expr, ...]) -> az.Expr:
            x, y, k = state
            return (x * x + y * y <= 4) & (k < limit)

        def step(state: tuple[az.Expr, ...]) -> tuple[az.Expr, ...]:
            x, y, k = state
            return x * x - y * y + a, 2 * x * y + b, k + 1

        return az.while_loop(goes_on, step, (0.0, 0.0, 0))[2]

    return az.map(lambda b: az.map(lambda a: steps(b, a), real), imaginary)


def grid(width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """The coordinates of the part of the plane that holds the set."""
    return np.linspace(-2.2, 0.8, width), np.linspace(-1.2, 1.2, height)


def as_text(times: np.ndarray, limit: int) -> str:
    """A picture of characters: the set itself is #."""
    shades = " .:-=+*%"
    level = np.minimum(np.log2(times).astype(int), len(shades) - 1)
    return "\n".join(
        "".join("#" if t == limit else shades[k] for t, k in zip(*row, strict=True)).rstrip()
        for row in zip(times, level, strict=True)
    )


def draw(times: np.ndarray, limit: int, output: Path) -> None:
    """Draw the picture into a file; no display is needed."""
    from matplotlib.figure import Figure

    height, width = times.shape
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    shades = np.ma.masked_where(times == limit, np.log(times))
    axes.imshow(shades, cmap="magma", vmin=-1, aspect="auto", interpolation="nearest")
    figure.set_facecolor("black")
    figure.savefig(output)


def main() -> None:
    parser = argparse.ArgumentParser(description="The Mandelbrot set, computed by compiled code.")
    parser.add_argument("--width", type=int, default=1200, help="points in a row")
    parser.add_argument("--limit", type=int, default=300, help="steps after which a point counts as one of the set")
    parser.add_argument("--output", type=Path, help="a file for the picture: .png, .pdf, .svg")
    options = parser.parse_args()

    print(az.pretty(escape_times) + "\n")
    compiled = az.compile(escape_times)
    print(as_text(compiled(*grid(72, 28), options.limit), options.limit) + "\n")

    real, imaginary = grid(options.width, options.width * 4 // 5)
    started = time.perf_counter()
    times = compiled(real, imaginary, options.limit)
    seconds = time.perf_counter() - started
    print(
        f"{times.size} points, {times.sum()} steps, {seconds:.3f} s: {times.sum() / seconds / 1e6:.0f} million a second"
    )
    if options.output is not None:
        draw(times, options.limit, options.output)
        print(f"drawn: {options.output}")


if __name__ == "__main__":
    main()
