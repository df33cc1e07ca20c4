"""Programs with az.linalg: many small matrices, a filter, large systems and factors, a Gaussian process."""

from typing import Any

import adze as az

Scalar = az.f64
Solved = az.Array[az.f64, "m", 6]
Systems = az.Array[az.f64, "m", 6, 6]
Four = az.Array[az.f64, 4, 4]
Square = az.Array[az.f64, "n n"]
Vector = az.Array[az.f64, "n"]


@az.program
def solves(a: Systems, b: Solved) -> Solved:
    """A solve for each of many systems with six unknowns."""
    return az.map(lambda a, b: az.linalg.solve(a, b), a, b)


@az.program
def solves_squares(a: Systems, b: Solved) -> Scalar:
    return az.sum(solves(a, b) ** 2)


@az.program
def factors_cubes(a: az.Array[az.f64, "m", 4, 4]) -> Scalar:
    """A Cholesky factor of each of many matrices with four rows."""
    return az.sum(az.map(lambda a: az.sum(az.linalg.cholesky(a) ** 3), a))


@az.program
def filtered(y: az.Array[az.f64, "t", 4], motion: Four, drift: Four, noise: Four) -> Scalar:
    """The negative logarithm of a series' likelihood, but for a constant, by a Kalman filter."""

    def step(state: Any, y: az.Expr) -> Any:
        x, p, total = state
        x, p = motion @ x, motion @ p @ motion.T + drift
        error, factor = y - x, az.linalg.cholesky(p + noise)
        w = az.linalg.solve_triangular(factor, error, lower=True)
        total = total + az.sum(w * w) / 2 + az.sum(az.log(az.diagonal(factor)))
        gain = az.linalg.cho_solve((factor, True), p).T
        return (x + gain @ error, p - gain @ p, total), total

    return az.scan_loop(step, (az.zeros(4), az.eye(4), 0.0), y)[0][2]


@az.program
def system_squares(a: Square, b: Vector) -> Scalar:
    """A function of the solution of a large system."""
    return az.sum(az.linalg.solve(a, b) ** 2)


@az.program
def determinant(a: Square) -> Scalar:
    return az.linalg.slogdet(a).logabsdet


@az.program
def process(x: az.Array[az.f64, "n d"], y: Vector, scale: Scalar, noise: Scalar) -> Scalar:
    """The negative logarithm of the likelihood of a Gaussian process, but for a constant."""
    squares = az.sum(x * x, axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * (x @ x.T)
    kernel = az.exp(-distances / (2 * scale**2)) + noise * az.eye(y.shape[0])
    factor = az.linalg.cholesky(kernel)
    w = az.linalg.solve_triangular(factor, y, lower=True)
    return az.sum(w * w) / 2 + az.sum(az.log(az.diagonal(factor)))


@az.program
def factor(a: Square, b: Square) -> Square:
    return az.linalg.cholesky(a)


@az.program
def elimination(a: Square, b: Square) -> Square:
    return az.linalg.lu_factor(a)[0]


@az.program
def reflections(a: Square, b: Square) -> tuple[Square, Square]:
    return tuple(az.linalg.qr(a))


@az.program
def eigenvectors(a: Square, b: Square) -> tuple[Vector, Square]:
    """Eigenvalues, and the magnitudes of their vectors, whose signs are open."""
    values, vectors = az.linalg.eigh(a)
    return values, az.abs(vectors)


@az.program
def eigenvalues(a: Square, b: Square) -> Vector:
    return az.linalg.eigvalsh(a)


@az.program
def singular_vectors(a: Square, b: Square) -> tuple[Square, Vector, Square]:
    return tuple(az.linalg.svd(a))


@az.program
def singular_values(a: Square, b: Square) -> Vector:
    return az.linalg.svdvals(a)


@az.program
def substitution(a: Square, b: Square) -> Square:
    return az.linalg.solve_triangular(a, b, lower=True)
