"""Models of sequences, alignments and filters, each as somebody would write it first."""

from typing import Any

import adze as az

Matrix = az.Array[az.f64, "k k"]
Sequence = az.Array[az.i64, "n"]
Other = az.Array[az.i64, "m"]
Vector = az.Array[az.f64, "n"]


# Hidden Markov models and conditional random fields


@az.program
def hidden_markov(
    start: az.Array[az.f64, "k"], transition: Matrix, emission: az.Array[az.f64, "k m"], observed: Sequence
) -> az.f64:
    """The logarithm of the likelihood of what was observed, by the forward algorithm; all tables are logarithms."""

    def step(t: az.Expr, forward: az.Expr) -> az.Expr:
        return az.logsumexp(forward[:, None] + transition, 0) + emission[:, observed[t]]

    return az.logsumexp(az.fori_loop(1, observed.shape[0], step, start + emission[:, observed[0]]))


@az.program
def random_field(transition: Matrix, scores: az.Array[az.f64, "b n k"], tags: az.Array[az.i64, "b n"]) -> az.f64:
    """The logarithm of the likelihood of tags, in a conditional random field along sentences."""
    n = tags.shape[1]

    def sentence(score: az.Expr, tag: az.Expr) -> az.Expr:
        def step(t: az.Expr, forward: az.Expr) -> az.Expr:
            return az.logsumexp(forward[:, None] + transition, 0) + score[t]

        own = az.sum(score[az.iota(n), tag]) + az.sum(transition[tag[:-1], tag[1:]])
        return own - az.logsumexp(az.fori_loop(1, n, step, score[0]))

    return az.sum(az.map(sentence, scores, tags))


# Alignments


@az.program
def alignment(a: Sequence, b: Other, similarity: Matrix, gap: az.f64) -> az.f64:
    """The score of the best local alignment of two sequences (Smith and Waterman)."""
    zeros = az.zeros(b.shape[0] + 1)

    def row(above: az.Expr, letter: az.Expr) -> Any:
        def cell(left: az.Expr, given: Any) -> Any:
            other, corner, up = given
            steps = az.maximum(left - gap, up - gap)
            score = az.maximum(0.0, az.maximum(corner + similarity[letter, other], steps))
            return score, score

        scores = az.scan_loop(cell, 0.0, (b, above[:-1], above[1:]))[1]
        return az.concatenate([az.zeros(1), scores]), az.max(scores)

    return az.max(az.scan_loop(row, zeros, a)[1])


@az.program
def smooth_alignment(a: Sequence, b: Other, similarity: Matrix, gap: az.f64) -> az.f64:
    """The same, with logarithms of sums of exponentials for the maxima."""
    zeros = az.zeros(b.shape[0] + 1)

    def row(above: az.Expr, letter: az.Expr) -> Any:
        def cell(left: az.Expr, given: Any) -> Any:
            other, corner, up = given
            steps = az.logaddexp(left - gap, up - gap)
            score = az.logaddexp(0.0, az.logaddexp(corner + similarity[letter, other], steps))
            return score, score

        scores = az.scan_loop(cell, 0.0, (b, above[:-1], above[1:]))[1]
        return az.concatenate([az.zeros(1), scores]), az.logsumexp(scores)

    return az.logsumexp(az.scan_loop(row, zeros, a)[1])


@az.program
def edits(a: Sequence, b: Other) -> az.i64:
    """How many letters must be inserted, deleted or replaced to make one sequence of the other (Levenshtein)."""
    m = b.shape[0]

    def row(i: az.Expr, above: az.Expr) -> az.Expr:
        def cell(left: az.Expr, j: az.Expr) -> Any:
            replaced = above[j] + (a[i] != b[j]).astype(az.i64)
            distance = az.minimum(replaced, az.minimum(left, above[j + 1]) + 1)
            return distance, distance

        distances = az.scan_loop(cell, i + 1, az.iota(m))[1]
        return az.concatenate([az.array([i + 1]), distances])

    return az.fori_loop(0, a.shape[0], row, az.iota(m + 1))[m]


# Filters


@az.program
def particle_filter(
    observed: az.Array[az.f64, "t"], first: Vector, noise: az.Array[az.f64, "t n"], draws: az.Array[az.f64, "t"]
) -> Any:
    """The means of the particles at each step, and the logarithm of the likelihood; resampling is systematic."""
    n = first.shape[0]

    def step(state: Any, given: Any) -> Any:
        x, likelihood, t = state
        y, moved, draw = given
        x = 0.5 * x + 25 * x / (1 + x**2) + 8 * az.cos(1.2 * t) + moved
        logs = -0.5 * (y - x**2 / 20) ** 2
        likelihood = likelihood + az.logsumexp(logs) - az.log(n)
        weights = az.exp(logs - az.max(logs))
        weights = weights / az.sum(weights)
        chosen = az.searchsorted(az.cumsum(weights), (az.iota(n) + draw) / n)
        return (x[az.minimum(chosen, n - 1)], likelihood, t + 1), az.sum(weights * x)

    (_, likelihood, _), means = az.scan_loop(step, (first, 0.0, 0.0), (observed, noise, draws))
    return means, likelihood


@az.program
def particle_likelihood(
    observed: az.Array[az.f64, "t"], first: Vector, noise: az.Array[az.f64, "t n"], draws: az.Array[az.f64, "t"]
) -> az.f64:
    return particle_filter(observed, first, noise, draws)[1]


@az.program
def kalman(
    seen: az.Array[az.f64, "t 2"],
    motion: az.Array[az.f64, "4 4"],
    noise: az.Array[az.f64, "4 4"],
    view: az.Array[az.f64, "2 4"],
    error: az.Array[az.f64, "2 2"],
) -> az.f64:
    """The negative logarithm of the likelihood of what was seen, by the Kalman filter."""

    def step(state: Any, z: az.Expr) -> Any:
        x, p, total = state
        x = motion @ x
        p = motion @ p @ motion.T + noise
        s = view @ p @ view.T + error
        determinant = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        inverse = az.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]]) / determinant
        gain = p @ view.T @ inverse
        r = z - view @ x
        total = total + 0.5 * (r @ inverse @ r + az.log(determinant))
        return (x + gain @ r, p - gain @ view @ p, total), None

    return az.scan_loop(step, (az.zeros(4), az.eye(4), 0.0), seen)[0][2]
