"""Regressions, mixtures and prices, in Adze (programs/statistics.py) and other tools."""

import contextlib
from typing import Any

import numpy as np
from contenders import (
    Arguments,
    CompiledTorch,
    Contender,
    Jax,
    Line,
    Numba,
    Tool,
    Torch,
    of_jax,
    of_torch,
    torch_compiled,
)
from programs import statistics

import adze as az
from lines.everyday import in_adze, random

with contextlib.suppress(ImportError):  # without Numba the other tools are measured
    import numba

# Regressions


def labelled(n: int, d: int) -> Arguments:
    weights, x, drawn = random((d,), (n, d), (n,))
    return weights, x, (drawn > 0).astype(np.float64)


def jax_logistic(weights: Any, x: Any, labels: Any) -> Any:
    import jax.numpy as jnp

    scores = x @ weights
    return jnp.mean(jnp.logaddexp(scores, 0.0) - scores * labels)


def torch_logistic(weights: Any, x: Any, labels: Any) -> Any:
    import torch

    return torch.nn.functional.binary_cross_entropy_with_logits(x @ weights, labels)


def observed(n: int) -> Arguments:
    return (*random((n, 3), (n,)), 1.0, 0.1)


def jax_gaussian_process(solved: Any) -> Any:
    """The likelihood, where ``solved`` gives the Cholesky factor of a matrix, and its inverse times a vector."""

    def likelihood(x: Any, y: Any, scale: Any, noise: Any) -> Any:
        import jax.numpy as jnp

        n = y.shape[0]
        covariance = jnp.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(-1) / scale**2) + noise * jnp.eye(n)
        factor, z = solved(covariance, y)
        return 0.5 * (z @ z) + jnp.log(jnp.diagonal(factor)).sum() + 0.5 * n * np.log(2 * np.pi)

    return likelihood


def jax_by_columns(covariance: Any, y: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    n = y.shape[0]

    def column(j: Any, factor: Any) -> Any:
        rest = covariance[:, j] - factor @ factor[j]
        below = jnp.where(jnp.arange(n) >= j, rest / jnp.sqrt(rest[j]), 0.0)
        return factor.at[:, j].set(below)

    factor = lax.fori_loop(0, n, column, jnp.zeros((n, n)))
    return factor, lax.fori_loop(0, n, lambda i, z: z.at[i].set((y[i] - factor[i] @ z) / factor[i, i]), jnp.zeros(n))


def jax_by_cholesky(covariance: Any, y: Any) -> Any:
    import jax

    factor = jax.numpy.linalg.cholesky(covariance)
    return factor, jax.scipy.linalg.solve_triangular(factor, y, lower=True)


# Classes and mixtures


def documents(n: int, d: int, k: int) -> Arguments:
    drawn = np.random.default_rng(1)
    labels = drawn.integers(0, k, n)
    rates = 0.2 * np.exp(0.1 * drawn.standard_normal((k, d)))
    return drawn.poisson(rates[labels]).astype(np.float64), labels, k, 1.0


def jax_naive_bayes(counts: Any, labels: Any, classes: int, smoothing: Any) -> Any:
    import jax
    import jax.numpy as jnp

    words = jax.ops.segment_sum(counts, labels, classes) + smoothing
    likelihood = jnp.log(words) - jnp.log(words.sum(1))[:, None]
    return counts @ likelihood.T + jnp.log(jnp.bincount(labels, length=classes) / len(labels))


def with_jax_naive_bayes() -> dict[str, Any]:
    import jax.numpy as jnp
    from jax.nn import logsumexp

    def loss(counts: Any, labels: Any, classes: int, smoothing: Any) -> Any:
        joint = jax_naive_bayes(counts, labels, classes, smoothing)
        return (logsumexp(joint, 1) - joint[jnp.arange(len(labels)), labels]).mean()

    return {"primal": lambda *given: jax_naive_bayes(*given).argmax(1), "gradient": of_jax(loss, 3)["gradient"]}


def torch_naive_bayes(counts: Any, labels: Any, classes: int, smoothing: Any) -> Any:
    import torch

    words = counts.new_zeros(classes, counts.shape[1]).index_add(0, labels, counts) + smoothing
    likelihood = words.log() - words.sum(1).log()[:, None]
    return (counts @ likelihood.T + (torch.bincount(labels, minlength=classes) / len(labels)).log()).argmax(1)


def numpy_naive_bayes(counts: Any, labels: Any, classes: int, smoothing: Any) -> Any:
    words = np.stack([counts[labels == c].sum(0) for c in range(classes)]) + smoothing
    likelihood = np.log(words) - np.log(words.sum(1))[:, None]
    return (counts @ likelihood.T + np.log(np.bincount(labels, minlength=classes) / len(labels))).argmax(1)


def mixture(n: int, d: int, k: int) -> Arguments:
    points, means, variances = random((n, d), (k, d), (k, d))
    return points, np.full(k, 1 / k), means, np.exp(0.3 * variances)


def jax_em_step(points: Any, shares: Any, means: Any, variances: Any) -> Any:
    import jax.numpy as jnp
    from jax.nn import logsumexp

    terms = (points[:, None] - means) ** 2 / variances + jnp.log(2 * jnp.pi * variances)
    joint = jnp.log(shares) - 0.5 * terms.sum(-1)
    total = logsumexp(joint, 1)
    members = jnp.exp(joint - total[:, None])
    counts = members.sum(0)
    new_means = members.T @ points / counts[:, None]
    new_variances = members.T @ points**2 / counts[:, None] - new_means**2
    return counts / len(points), new_means, new_variances, total.sum()


def torch_em_step(points: Any, shares: Any, means: Any, variances: Any) -> Any:
    terms = (points[:, None] - means) ** 2 / variances + (2 * np.pi * variances).log()
    joint = shares.log() - 0.5 * terms.sum(-1)
    total = joint.logsumexp(1)
    members = (joint - total[:, None]).exp()
    counts = members.sum(0)
    new_means = members.T @ points / counts[:, None]
    new_variances = members.T @ points**2 / counts[:, None] - new_means**2
    return counts / len(points), new_means, new_variances, total.sum()


# Options


def market(n: int, m: int) -> Arguments:
    return 100.0, 0.2, 0.05, 100.0, *random((n, m))


def torch_asian(spot: Any, volatility: Any, rate: Any, strike: Any, normals: Any) -> Any:
    import torch

    spot, volatility, rate = (torch.as_tensor(x, dtype=torch.float64) for x in (spot, volatility, rate))
    dt = 1 / normals.shape[1]
    moves = (rate - 0.5 * volatility**2) * dt + volatility * dt**0.5 * normals
    prices = spot * torch.exp(torch.cumsum(moves, 1))
    return torch.exp(-rate) * (prices.mean(1) - strike).clamp(min=0).mean()


def with_torch_asian() -> dict[str, Any]:
    import torch

    def gradient(*given: Any) -> Any:
        numbers = (torch.tensor(x, dtype=torch.float64) for x in given[:4])
        return of_torch(torch_asian, (0, 1, 2))["gradient"](*numbers, given[4])

    return {"primal": torch_asian, "gradient": gradient}


def jax_asian(spot: Any, volatility: Any, rate: Any, strike: Any, normals: Any) -> Any:
    import jax.numpy as jnp

    dt = 1 / normals.shape[1]
    moves = (rate - 0.5 * volatility**2) * dt + volatility * jnp.sqrt(dt) * normals
    prices = spot * jnp.exp(jnp.cumsum(moves, 1))
    return jnp.exp(-rate) * jnp.mean(jnp.maximum(jnp.mean(prices, 1) - strike, 0))


def numba_asian(spot: float, volatility: float, rate: float, strike: float, normals: Any) -> Any:
    n, m = normals.shape
    dt = 1 / m
    result = 0.0
    for k in numba.prange(n):
        price, total = spot, 0.0
        for i in range(m):
            price *= np.exp((rate - 0.5 * volatility**2) * dt + volatility * np.sqrt(dt) * normals[k, i])
            total += price
        result += max(total / m - strike, 0.0)
    return np.exp(-rate) * result / n


def jax_asian_by_paths(spot: Any, volatility: Any, rate: Any, strike: Any, normals: Any) -> Any:
    import jax
    import jax.numpy as jnp
    from jax import lax

    dt = 1 / normals.shape[1]

    def path(z: Any) -> Any:
        def step(state: Any, z: Any) -> Any:
            price, total = state
            price = price * jnp.exp((rate - 0.5 * volatility**2) * dt + volatility * jnp.sqrt(dt) * z)
            return (price, total + price), None

        return jnp.maximum(lax.scan(step, (spot, 0.0), z)[0][1] * dt - strike, 0)

    return jnp.exp(-rate) * jnp.mean(jax.vmap(path)(normals))


LABELLED = {"n": 100_000, "d": 100}
OBSERVED = {"n": 300}
DOCUMENTS = {"n": 10_000, "d": 1000, "k": 20}
MIXTURE = {"n": 100_000, "d": 4, "k": 8}
PRIMAL = ("primal",)
MARKET = {"n": 100_000, "m": 50}
LINES = [
    Line(
        "logistic",
        "Loss of a logistic regression",
        [LABELLED],
        labelled,
        [
            in_adze({"primal": statistics.logistic, "gradient": az.grad(statistics.logistic)}),
            Contender("JAX", Jax(), lambda: of_jax(jax_logistic)),
            Contender("PyTorch", Torch(), lambda: of_torch(torch_logistic)),
            Contender("PyTorch, compiled", CompiledTorch(), lambda: of_torch(torch_compiled(torch_logistic))),
        ],
        main=LABELLED,
    ),
    Line(
        "gaussian process",
        "Likelihood of a Gaussian process, with a Cholesky factor by hand",
        [OBSERVED],
        observed,
        [
            in_adze(
                {
                    "primal": statistics.gaussian_process,
                    "gradient": az.grad(statistics.gaussian_process, argnums=(0, 2, 3)),
                }
            ),
            Contender("JAX", Jax(), lambda: of_jax(jax_gaussian_process(jax_by_columns), (0, 2, 3))),
            Contender(
                "JAX, cholesky", Jax(), lambda: of_jax(jax_gaussian_process(jax_by_cholesky), (0, 2, 3)), library=True
            ),
        ],
        main=OBSERVED,
    ),
    Line(
        "naive bayes",
        "Naive Bayes, fitted to documents and asked for their classes",
        [DOCUMENTS],
        documents,
        [
            in_adze(
                {"primal": statistics.naive_bayes_classes, "gradient": az.grad(statistics.naive_bayes_loss, argnums=3)}
            ),
            Contender("JAX", Jax(static=(2,)), with_jax_naive_bayes),
            Contender("PyTorch", Torch(), lambda: {"primal": torch_naive_bayes}),
            Contender("NumPy", Tool(), lambda: {"primal": numpy_naive_bayes}),
        ],
        main=DOCUMENTS,
    ),
    Line(
        "em step",
        "Step of expectation maximisation for a mixture of normal distributions",
        [MIXTURE],
        mixture,
        [
            in_adze({"primal": statistics.em_step}),
            Contender("JAX", Jax(), lambda: {"primal": jax_em_step}),
            Contender("PyTorch", Torch(), lambda: {"primal": torch_em_step}),
            Contender("PyTorch, compiled", CompiledTorch(), lambda: {"primal": torch_compiled(torch_em_step)}),
        ],
        functions=PRIMAL,
        main=MIXTURE,
    ),
    Line(
        "asian option",
        "Price of an option on a mean, from given normals, all paths at once",
        [MARKET],
        market,
        [
            in_adze({"primal": statistics.asian, "gradient": az.grad(statistics.asian, argnums=(0, 1, 2))}),
            Contender("JAX", Jax(), lambda: of_jax(jax_asian, (0, 1, 2))),
            Contender("PyTorch", Torch(), with_torch_asian),
            Contender("Numba", Numba(), lambda: {"primal": numba_asian}),
        ],
        main=MARKET,
    ),
    Line(
        "asian option by paths",
        "Price of an option on a mean, from given normals, path by path",
        [MARKET],
        market,
        [
            in_adze(
                {
                    "primal": statistics.asian_by_paths,
                    "gradient": az.grad(statistics.asian_by_paths, argnums=(0, 1, 2)),
                }
            ),
            Contender("JAX", Jax(), lambda: of_jax(jax_asian_by_paths, (0, 1, 2))),
            Contender("Numba", Numba(), lambda: {"primal": numba_asian}),
        ],
        main=MARKET,
    ),
]
