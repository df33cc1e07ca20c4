"""The Gaussian mixture model (examples/gmm.py), and three that differ from it.

JAX computes Q (x - μ), as the formula and the Adze program do, or Q x - Q μ, one large matrix product. PyTorch does
the latter. The siblings: full matrices in the place of triangular ones; Student's t distribution in the place of the
normal one; points and means by columns.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Torch, adze, of_jax, of_torch
from programs.gmm import example

import adze as az

DIFFERENTIATED = (0, 1, 2, 3)  # alpha, mu, q and l
FREEDOM = 5.0  # of Student's distribution


# Arguments


def arguments(d: int, k: int, n: int) -> Arguments:
    """Random ones, distributed as those of ADBench."""
    random = np.random.default_rng(2026)
    return (
        random.standard_normal(k),
        random.random((k, d)),
        random.standard_normal((k, d)),
        random.standard_normal((k, d * (d - 1) // 2)),
        random.standard_normal((n, d)),
        1.0,
        0,
    )


def arguments_by_columns(d: int, k: int, n: int) -> Arguments:
    alpha, mu, q, l, x, gamma, m = arguments(d, k, n)
    return alpha, np.ascontiguousarray(mu.T), q, l, np.ascontiguousarray(x.T), gamma, m


def arguments_of_full(d: int, k: int, n: int) -> Arguments:
    random = np.random.default_rng(2027)
    factors = random.standard_normal((k, d, d)) / math.sqrt(d)
    return random.standard_normal(k), random.random((k, d)), factors, random.standard_normal((n, d))


def arguments_of_student(d: int, k: int, n: int) -> Arguments:
    return arguments(d, k, n)[:5]


def triangular_work(d: int, k: int, n: int) -> float:
    """Multiplications and additions of the products of triangular matrices and vectors."""
    return 1.0 * n * k * d * (d + 1)


def full_work(d: int, k: int, n: int) -> float:
    return 2.0 * n * k * d * d


# The siblings


@az.program
def by_columns(
    alpha: az.Array[az.f64, "k"],
    mu: az.Array[az.f64, "d k"],
    q: az.Array[az.f64, "k d"],
    l: az.Array[az.f64, "k d*(d-1)//2"],
    x: az.Array[az.f64, "d n"],
    gamma: az.f64,
    m: az.i64,
) -> az.f64:
    """The mixture model where a row has one coordinate of all points, or means."""
    return example.objective(alpha, mu.T, q, l, x.T, gamma, m)


@az.program
def full(
    alpha: az.Array[az.f64, "k"],
    mu: az.Array[az.f64, "k d"],
    factors: az.Array[az.f64, "k d d"],
    x: az.Array[az.f64, "n d"],
) -> az.f64:
    """The log likelihood with precision factors that are full matrices; their determinants are part of alpha."""

    def log_density(point: az.Expr) -> az.Expr:
        def component(weight: az.Expr, mean: az.Expr, factor: az.Expr) -> az.Expr:
            return weight - 0.5 * az.sum((factor @ (point - mean)) ** 2)

        return example.logsumexp(az.map(component, alpha, mu, factors))

    return az.sum(az.map(log_density, x))


@az.program
def student(
    alpha: az.Array[az.f64, "k"],
    mu: az.Array[az.f64, "k d"],
    q: az.Array[az.f64, "k d"],
    l: az.Array[az.f64, "k d*(d-1)//2"],
    x: az.Array[az.f64, "n d"],
) -> az.f64:
    """The log likelihood of a mixture of Student's distributions, up to a constant."""
    d = x.shape[1]
    factors = az.map(example.lower_triangular, q, l)

    def log_density(point: az.Expr) -> az.Expr:
        def component(weight: az.Expr, mean: az.Expr, log_diagonal: az.Expr, factor: az.Expr) -> az.Expr:
            square = az.sum((factor @ (point - mean)) ** 2)
            return weight + az.sum(log_diagonal) - 0.5 * (FREEDOM + d) * az.log1p(square / FREEDOM)

        return example.logsumexp(az.map(component, alpha, mu, q, factors))

    return az.sum(az.map(log_density, x))


# JAX


def jax_factors(q: Any, l: Any) -> Any:
    """Lower triangular matrices; a gather and a mask are faster here than a scatter into zeros."""
    import jax.numpy as jnp

    d = q.shape[1]
    column, row = np.triu_indices(d, 1)
    position = np.zeros((d, d), dtype=np.int64)
    position[row, column] = np.arange(row.size)
    lower = jnp.where(np.tri(d, k=-1, dtype=bool), l[:, position], 0.0) if d > 1 else 0.0
    return lower + jnp.exp(q)[:, :, None] * np.eye(d)


def jax_direct(factors: Any, mu: Any, x: Any) -> Any:
    """|Q (x - mu)|^2, one matrix product a component: [n, k]."""
    import jax
    import jax.numpy as jnp

    def component(factor: Any, mean: Any) -> Any:
        return jnp.sum(((x - mean) @ factor.T) ** 2, axis=1)

    return jax.vmap(component, out_axes=1)(factors, mu)


def jax_expanded(factors: Any, mu: Any, x: Any) -> Any:
    """|Q x - Q mu|^2, a single large matrix product."""
    import jax.numpy as jnp

    at_points = jnp.einsum("kij,nj->kin", factors, x)
    at_means = jnp.einsum("kij,kj->ki", factors, mu)
    return jnp.sum((at_points - at_means[:, :, None]) ** 2, axis=1).T


Distances = Callable[[Any, Any, Any], Any]


def jax_gmm(distances: Distances) -> Callable[..., Any]:
    import jax.numpy as jnp
    from jax.scipy.special import gammaln, logsumexp

    def gmm(alpha: Any, mu: Any, q: Any, l: Any, x: Any, gamma: Any, m: Any) -> Any:
        (n, d), k = x.shape, alpha.shape[0]
        sum_q = jnp.sum(q, axis=1)
        beta = alpha + sum_q - 0.5 * distances(jax_factors(q, l), mu, x)
        wishart = d + m + 1
        log_gamma = d * (d - 1) / 4 * math.log(math.pi) + jnp.sum(gammaln((wishart - np.arange(d)) / 2))
        return (
            jnp.sum(logsumexp(beta, axis=1))
            - n * (d / 2 * math.log(2 * math.pi) + logsumexp(alpha))
            + k * (wishart * d * jnp.log(gamma / math.sqrt(2)) - log_gamma)
            - gamma**2 / 2 * (jnp.sum(jnp.exp(2 * q)) + jnp.sum(l**2))
            + m * jnp.sum(sum_q)
        )

    return gmm


def jax_by_columns(distances: Distances) -> Callable[..., Any]:
    gmm = jax_gmm(distances)
    return lambda alpha, mu, q, l, x, gamma, m: gmm(alpha, mu.T, q, l, x.T, gamma, m)


def jax_full(distances: Distances) -> Callable[..., Any]:
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp

    def gmm(alpha: Any, mu: Any, factors: Any, x: Any) -> Any:
        return jnp.sum(logsumexp(alpha - 0.5 * distances(factors, mu, x), axis=1))

    return gmm


def jax_student(distances: Distances) -> Callable[..., Any]:
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp

    def mixture(alpha: Any, mu: Any, q: Any, l: Any, x: Any) -> Any:
        squares = distances(jax_factors(q, l), mu, x)
        beta = alpha + jnp.sum(q, axis=1) - 0.5 * (FREEDOM + x.shape[1]) * jnp.log1p(squares / FREEDOM)
        return jnp.sum(logsumexp(beta, axis=1))

    return mixture


def with_jax(make: Callable[[Distances], Callable[..., Any]], argnums: tuple[int, ...]) -> list[Contender]:
    return [
        Contender("JAX", Jax(), lambda: of_jax(make(jax_direct), argnums, True)),
        Contender("JAX, Qx - Qμ", Jax(), lambda: of_jax(make(jax_expanded), argnums, True)),
    ]


# PyTorch


def torch_gmm(alpha: Any, mu: Any, q: Any, l: Any, x: Any, gamma: Any, m: Any) -> Any:
    import torch

    (n, d), k = x.shape, alpha.shape[0]
    column, row = np.triu_indices(d, 1)
    below = torch.zeros((k, d, d), dtype=x.dtype, device=x.device)
    below[:, torch.as_tensor(row, device=x.device), torch.as_tensor(column, device=x.device)] = l
    diagonal = torch.exp(q)
    factors = below + torch.diag_embed(diagonal)
    centred = factors @ x.T - factors @ mu[:, :, None]
    sum_q = q.sum(1)
    beta = (alpha + sum_q)[:, None] - 0.5 * (centred**2).sum(1)
    wishart = d + m + 1
    log_gamma = d * (d - 1) / 4 * math.log(math.pi) + sum(math.lgamma((wishart - j) / 2) for j in range(d))
    return (
        torch.logsumexp(beta, 0).sum()
        - n * (d / 2 * math.log(2 * math.pi) + torch.logsumexp(alpha, 0))
        + k * (wishart * d * math.log(gamma / math.sqrt(2)) - log_gamma)
        - gamma**2 / 2 * ((diagonal**2).sum() + (l**2).sum())
        + m * sum_q.sum()
    )


def with_adze(program: az.Program, argnums: tuple[int, ...]) -> list[Contender]:
    return adze({"primal": program, "gradient": az.value_and_grad(program, argnums=argnums)})


MAIN = {"d": 64, "k": 100, "n": 1000}
SIZES = [{"d": d, "k": k, "n": 1000} for d in (2, 10, 64, 128) for k in (5, 25, 100, 200)]

LINES = [
    Line(
        "gmm",
        "Gaussian mixture model",
        [*SIZES, {"d": 64, "k": 25, "n": 10000}],
        arguments,
        [
            *with_adze(example.objective, DIFFERENTIATED),
            *with_jax(jax_gmm, DIFFERENTIATED),
            Contender("PyTorch, Qx - Qμ", Torch(), lambda: of_torch(torch_gmm, DIFFERENTIATED, True)),
        ],
        main=MAIN,
        ablated=True,
        work=triangular_work,
        notes="`JAX` computes Q (x - μ) as the formula says, `Qx - Qμ` is one large matrix product. A gradient comes "
        "with the value.",
    ),
    Line(
        "gmm, full matrices",
        "Gaussian mixture model with full matrices",
        [MAIN],
        arguments_of_full,
        [*with_adze(full, (0, 1, 2)), *with_jax(jax_full, (0, 1, 2))],
        main=MAIN,
        work=full_work,
        sibling_of="gmm",
    ),
    Line(
        "gmm, Student",
        "Mixture of Student's t distributions",
        [MAIN],
        arguments_of_student,
        [*with_adze(student, DIFFERENTIATED), *with_jax(jax_student, DIFFERENTIATED)],
        main=MAIN,
        work=triangular_work,
        sibling_of="gmm",
    ),
    Line(
        "gmm, by columns",
        "Gaussian mixture model, points and means transposed",
        [MAIN],
        arguments_by_columns,
        [*with_adze(by_columns, DIFFERENTIATED), *with_jax(jax_by_columns, DIFFERENTIATED)],
        main=MAIN,
        work=triangular_work,
        sibling_of="gmm",
    ),
]
