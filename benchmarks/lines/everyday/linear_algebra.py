"""Linear algebra: many small matrices, a filter, large systems and factors, a Gaussian process, in Adze
(programs/linear_algebra.py) and in JAX, whose routines are LAPACK's, or in SciPy, on two threads and on one."""

from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Tool, of_jax
from programs import linear_algebra

import adze as az
from adze.library.linalg.one_thread import on_one_thread
from lines.everyday import in_adze, in_jax, random

BOTH = (0, 1)


def library(jax: Any) -> Contender:
    """JAX with its routines for matrices."""
    return Contender("JAX", Jax(), jax, library=True)


# Many small matrices


def systems(m: int) -> Arguments:
    return tuple(random((m, 6, 6), (m, 6)))


def jax_solves(a: Any, b: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return jax.vmap(jnp.linalg.solve)(a, b)


def numpy_solves(a: Any, b: Any) -> Any:
    return np.linalg.solve(a, b[..., None])[..., 0]


def definite(m: int) -> Arguments:
    (x,) = random((m, 4, 4))
    return (x @ x.swapaxes(1, 2) + np.eye(4),)


def jax_factors_cubes(a: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return (jax.vmap(jnp.linalg.cholesky)(a) ** 3).sum()


# A filter


def series(t: int) -> Arguments:
    y, motion = random((t, 4), (4, 4))
    return y, 0.9 * np.eye(4) + 0.05 * motion, 0.1 * np.eye(4), np.eye(4)


def jax_filtered(y: Any, motion: Any, drift: Any, noise: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax
    from jax.scipy.linalg import cho_solve, solve_triangular

    def step(state: Any, y: Any) -> Any:
        x, p, total = state
        x, p = motion @ x, motion @ p @ motion.T + drift
        error, factor = y - x, jnp.linalg.cholesky(p + noise)
        w = solve_triangular(factor, error, lower=True)
        total = total + (w * w).sum() / 2 + jnp.log(jnp.diag(factor)).sum()
        gain = cho_solve((factor, True), p).T
        return (x + gain @ error, p - gain @ p, total), None

    return lax.scan(step, (jnp.zeros(4), jnp.eye(4), 0.0), y)[0][2]


# Large systems


def system(n: int) -> Arguments:
    a, b = random((n, n), (n,))
    return a + n**0.5 * np.eye(n), b


def jax_system_squares(a: Any, b: Any) -> Any:
    import jax.numpy as jnp

    return (jnp.linalg.solve(a, b) ** 2).sum()


def jax_determinant(a: Any) -> Any:
    import jax.numpy as jnp

    return jnp.linalg.slogdet(a)[1]


# Large factors


def definite_system(n: int) -> Arguments:
    x, b = random((n, n), (n, n))
    return x @ x.T / n + np.eye(n), b


def in_scipy() -> dict[str, Any]:
    """The routines that Adze calls: LAPACK's, on as many threads as SciPy has."""
    from scipy import linalg

    def magnitudes(values: Any, vectors: Any) -> tuple[Any, Any]:
        return values, np.abs(vectors)

    return {
        "cholesky": lambda a, b: linalg.cholesky(a, lower=True, check_finite=False),
        "lu": lambda a, b: linalg.lu_factor(a, check_finite=False)[0],
        "qr": lambda a, b: linalg.qr(a, mode="economic", check_finite=False),
        "eigh": lambda a, b: magnitudes(*linalg.eigh(a, driver="evd", check_finite=False)),
        "eigvalsh": lambda a, b: linalg.eigvalsh(a, driver="evd", check_finite=False),
        "svd": lambda a, b: linalg.svd(a, full_matrices=False, check_finite=False),
        "svdvals": lambda a, b: linalg.svdvals(a, check_finite=False),
        "triangle": lambda a, b: linalg.solve_triangular(a, b, lower=True, check_finite=False),
    }


def in_scipy_on_one_thread() -> dict[str, Any]:
    return {name: on_one_thread(function) for name, function in in_scipy().items()}


# A Gaussian process


def observed(n: int) -> Arguments:
    return (*random((n, 4), (n,)), 1.5, 0.1)


def jax_process(x: Any, y: Any, scale: Any, noise: Any) -> Any:
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    squares = (x * x).sum(1)
    distances = squares[:, None] + squares[None, :] - 2 * (x @ x.T)
    factor = jnp.linalg.cholesky(jnp.exp(-distances / (2 * scale**2)) + noise * jnp.eye(len(y)))
    w = solve_triangular(factor, y, lower=True)
    return (w * w).sum() / 2 + jnp.log(jnp.diag(factor)).sum()


MANY = {"m": 100_000}
STEPS = {"t": 1000}
LARGE = {"n": 500}
ROWS = (0, 2, 3)
FACTORS = {
    "cholesky": linear_algebra.factor,
    "lu": linear_algebra.elimination,
    "qr": linear_algebra.reflections,
    "eigh": linear_algebra.eigenvectors,
    "eigvalsh": linear_algebra.eigenvalues,
    "svd": linear_algebra.singular_vectors,
    "svdvals": linear_algebra.singular_values,
    "triangle": linear_algebra.substitution,
}


def of_process(name: str, n: int) -> Line:
    programs = {"primal": linear_algebra.process, "gradient": az.grad(linear_algebra.process, argnums=ROWS)}
    jax = library(lambda: of_jax(jax_process, ROWS))
    return Line(
        name, f"Likelihood of a Gaussian process, of {n}", [{"n": n}], observed, [in_adze(programs), jax], main={"n": n}
    )


LINES = [
    Line(
        "small solves",
        "Solves of systems with six unknowns",
        [MANY],
        systems,
        [
            in_adze(
                {"primal": linear_algebra.solves, "gradient": az.grad(linear_algebra.solves_squares, argnums=BOTH)}
            ),
            library(lambda: in_jax(jax_solves, BOTH)),
            Contender("NumPy", Tool(), lambda: {"primal": numpy_solves}),
        ],
        main=MANY,
    ),
    Line(
        "small factors",
        "Cholesky factors of matrices with four rows",
        [MANY],
        definite,
        [
            in_adze({"primal": linear_algebra.factors_cubes, "gradient": az.grad(linear_algebra.factors_cubes)}),
            library(lambda: of_jax(jax_factors_cubes, 0)),
        ],
        main=MANY,
    ),
    Line(
        "kalman",
        "Likelihood by a Kalman filter",
        [STEPS],
        series,
        [
            in_adze(
                {
                    "primal": linear_algebra.filtered,
                    "gradient": az.grad(linear_algebra.filtered, argnums=(1, 2, 3)),
                }
            ),
            library(lambda: of_jax(jax_filtered, (1, 2, 3))),
        ],
        main=STEPS,
    ),
    Line(
        "large solve",
        "Solution of a large system",
        [LARGE],
        system,
        [
            in_adze(
                {
                    "primal": linear_algebra.system_squares,
                    "gradient": az.grad(linear_algebra.system_squares, argnums=BOTH),
                }
            ),
            library(lambda: of_jax(jax_system_squares, BOTH)),
        ],
        main=LARGE,
    ),
    Line(
        "large slogdet",
        "Logarithm of a large determinant",
        [LARGE],
        lambda n: system(n)[:1],
        [
            in_adze({"primal": linear_algebra.determinant, "gradient": az.grad(linear_algebra.determinant)}),
            library(lambda: of_jax(jax_determinant, 0)),
        ],
        main=LARGE,
    ),
    Line(
        "large factors",
        "Factors of large matrices",
        [{"n": 1000}],
        definite_system,
        [
            in_adze(FACTORS),
            Contender("SciPy", Tool(), in_scipy),
            Contender("SciPy, 1 thread", Tool(), in_scipy_on_one_thread),
        ],
        functions=tuple(FACTORS),
        main={"n": 1000},
        notes="The routines are SciPy's own; lu, qr and the solve with a triangle call them for blocks, side by side.",
    ),
    of_process("process of 300", 300),
    of_process("process of 1500", 1500),
]
