"""Regressions, mixtures and prices, each as somebody would write it first."""

import math
from typing import Any

import adze as az

Points = az.Array[az.f64, "n d"]
Grid = az.Array[az.f64, "n m"]


# Regressions


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


# Classes and mixtures


@az.program
def naive_bayes(counts: Points, labels: az.Array[az.i64, "n"], classes: az.i64, smoothing: az.f64) -> Any:
    """For each document and class the logarithm of their probability, from the words of each class's documents."""
    n, d = counts.shape
    words = az.histogram(lambda a, b: a + b, az.zeros(d), classes, labels, counts) + smoothing
    likelihood = az.log(words) - az.log(az.sum(words, 1))[:, None]
    prior = az.log(az.bincount(labels, length=classes) / n)
    return counts @ likelihood.T + prior


@az.program
def naive_bayes_classes(counts: Points, labels: az.Array[az.i64, "n"], classes: az.i64, smoothing: az.f64) -> Any:
    return az.argmax(naive_bayes(counts, labels, classes, smoothing), 1)


@az.program
def naive_bayes_loss(counts: Points, labels: az.Array[az.i64, "n"], classes: az.i64, smoothing: az.f64) -> az.f64:
    """The mean of minus the logarithms of the probabilities of the right classes."""
    joint = naive_bayes(counts, labels, classes, smoothing)
    return az.mean(az.logsumexp(joint, 1) - joint[az.iota(counts.shape[0]), labels])


@az.program
def em_step(
    points: Points, shares: az.Array[az.f64, "k"], means: az.Array[az.f64, "k d"], variances: az.Array[az.f64, "k d"]
) -> Any:
    """A step of expectation maximisation, for a mixture of normal distributions with diagonal covariances."""

    def logs(p: az.Expr) -> az.Expr:
        terms = (p - means) ** 2 / variances + az.log(2 * math.pi * variances)
        return az.log(shares) - 0.5 * az.sum(terms, 1)

    joint = az.map(logs, points)
    total = az.logsumexp(joint, 1)
    members = az.exp(joint - total[:, None])
    counts = az.sum(members, 0)
    new_means = members.T @ points / counts[:, None]
    new_variances = members.T @ points**2 / counts[:, None] - new_means**2
    return counts / points.shape[0], new_means, new_variances, az.sum(total)


# Options


@az.program
def asian(spot: az.f64, volatility: az.f64, rate: az.f64, strike: az.f64, normals: Grid) -> az.f64:
    """The price of an option on the mean of a price that moves as Black and Scholes say; all paths at once."""
    dt = 1.0 / normals.shape[1]
    moves = (rate - 0.5 * volatility**2) * dt + volatility * az.sqrt(dt) * normals
    prices = spot * az.exp(az.cumsum(moves, 1))
    return az.exp(-rate) * az.mean(az.maximum(az.mean(prices, 1) - strike, 0.0))


@az.program
def asian_by_paths(spot: az.f64, volatility: az.f64, rate: az.f64, strike: az.f64, normals: Grid) -> az.f64:
    """The same, path by path and step by step."""
    steps = normals.shape[1]
    dt = 1.0 / steps

    def path(z: az.Expr) -> az.Expr:
        def step(i: az.Expr, state: Any) -> Any:
            price, total = state
            price = price * az.exp((rate - 0.5 * volatility**2) * dt + volatility * az.sqrt(dt) * z[i])
            return price, total + price

        return az.maximum(az.fori_loop(0, steps, step, (spot, 0.0))[1] / steps - strike, 0.0)

    return az.exp(-rate) * az.mean(az.map(path, normals))
