"""An operation of one's own: a solver of tridiagonal systems, in C, with its derivative.

    python examples/new_operation.py

``az.operation`` makes a function that is written elsewhere an operation of the language: here the algorithm of Thomas,

    lower[i] x[i-1] + diagonal[i] x[i] + upper[i] x[i+1] = right[i]

Its meaning is a function of NumPy. Compiled code calls the function of C instead, in parallel loops without Python's
lock, with a work area for each thread; a pivot that is 0 is an exception with the user's line. The derivative is a rule
of reverse mode, which is the solution with the transposed matrix; forward mode is the transpose of the rule. What it
means in terms of others, two loops, runs on OpenCL, and on the CPU where the systems are small and of constant size.
In printed programs it stays one operation. (Without a compiler of C, compiled code calls the function of NumPy.)
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import adze as az
from adze.core.types import Type, dims

SOURCE = r"""
#include <stdint.h>

int thomas(const double *lower, int64_t n, const double *diagonal, int64_t n1, const double *upper, int64_t n2,
           const double *right, int64_t n3, double *x, int64_t n4, double *ratio, int64_t words) {
    for (int64_t i = 0; i < n; i++) {
        double pivot = i ? diagonal[i] - lower[i] * ratio[i - 1] : diagonal[i];
        if (pivot == 0) return 1;
        ratio[i] = upper[i] / pivot;
        x[i] = (i ? right[i] - lower[i] * x[i - 1] : right[i]) / pivot;
    }
    for (int64_t i = n - 2; i >= 0; i--) x[i] -= ratio[i] * x[i + 1];
    return 0;
}
"""


def result_type(lower: Type, diagonal: Type, upper: Type, right: Type) -> Type:
    """The type of x, which is that of the right-hand side."""
    for other, name in ((lower, "lower"), (diagonal, "diagonal"), (upper, "upper")):
        az.equal_sizes(dims(other)[0], dims(right)[0], f"{name} is as long as right")
    return right


def by_numpy(lower: Any, diagonal: Any, upper: Any, right: Any) -> Any:
    """The solution by way of the whole matrix: simple, so that the others are compared with it."""
    return np.linalg.solve(np.diag(lower[1:], -1) + np.diag(diagonal) + np.diag(upper[:-1], 1), right)


def by_c(folder: Path) -> az.CFunction | None:
    """The function of C, compiled into a library in this folder, if there is a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    (folder / "thomas.c").write_text(SOURCE)
    subprocess.check_call([compiler, "-O2", "-shared", "-fPIC", "-o", folder / "thomas.so", folder / "thomas.c"])
    return az.c_function(
        folder / "thomas.so",
        "thomas",
        work=lambda lower, diagonal, upper, right: dims(right)[0],
        error=np.linalg.LinAlgError,
        message="a pivot is 0",
    )


def by_loops(lower: az.Expr, diagonal: az.Expr, upper: az.Expr, right: az.Expr) -> Any:
    """The same in the language: down, and up again."""

    def down(state: Any, row: Any) -> Any:
        (ratio, x), (low, middle, up, value) = state, row
        pivot = middle - low * ratio
        after = up / pivot, (value - low * x) / pivot
        return after, after

    def up(below: Any, row: Any) -> Any:
        ratio, x = row
        solved = x - ratio * below
        return solved, solved

    _, rows = az.scan_loop(down, (0.0, 0.0), (lower, diagonal, upper, right))
    return az.flip(az.scan_loop(up, 0.0, (az.flip(rows[0]), az.flip(rows[1])))[1])


def rule(primals: Any, cotangent: Any) -> Any:
    """``y = A^-T x_bar``:  ``right_bar = y``,  ``A_bar = -y x^T`` where A has entries."""
    lower, diagonal, upper, _ = primals
    x, y = solve(*primals), solve(az.roll(upper, 1), diagonal, az.roll(lower, -1), cotangent)
    return -y * az.pad(x, (1, 0))[:-1], -y * x, -y * az.pad(x, (0, 1))[1:], y


_folder = tempfile.TemporaryDirectory()

solve = az.operation(
    "thomas",
    numpy=by_numpy,
    c=by_c(Path(_folder.name)),
    result=result_type,
    derivative={"vjp": rule},
    expansion=by_loops,
    small=8,
    cost=lambda lower, diagonal, upper, right: right[0] * 8,
)


@az.program
def cooling(heat: az.Array[az.f64, "rods n"], conductivity: az.Array[az.f64, "n"]) -> az.f64:
    """The heat that is left of rods after one implicit step, squared."""

    def step(rod: az.Expr) -> Any:
        return solve(-conductivity, 1 + 2 * conductivity, -conductivity, rod)

    return az.sum(az.map(step, heat) ** 2)


def main() -> None:
    gradient = az.grad(cooling, argnums=1)
    print(az.pretty(cooling))
    print()
    print(az.pretty(gradient))
    heat, conductivity = np.cos(np.arange(2000.0)).reshape(100, 20), np.linspace(0.1, 2.0, 20)
    evaluated, compiled = az.evaluate(gradient)(heat, conductivity), az.compile(gradient)(heat, conductivity)
    off = float(np.max(abs(evaluated - compiled)))
    print(
        f"\nheat {cooling(heat, conductivity):.6f}; the compiled gradient differs from the evaluated one by {off:.0e}"
    )


if __name__ == "__main__":
    main()
