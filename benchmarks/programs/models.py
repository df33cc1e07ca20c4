"""Models, searches and pictures from textbooks, each as one would write it first."""

import math
from typing import Any

import adze as az

Vector = az.Array[az.f64, "n"]
Points = az.Array[az.f64, "n d"]
Matrix = az.Array[az.f64, "k k"]
Picture = az.Array[az.f64, "h w"]
Sequence = az.Array[az.i64, "n"]
Other = az.Array[az.i64, "m"]


# Sequences


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


# Points


@az.program
def long_rows(rows: Points, bound: az.f64) -> az.Array[az.f64, "d d"]:
    """The Gram matrix of the rows that are longer than a bound."""
    kept = az.filter(lambda row: az.sqrt(az.sum(row**2)) > bound, rows)
    return kept.T @ kept


@az.program
def long_rows_squares(rows: Points, bound: az.f64) -> az.f64:
    return az.sum(long_rows(rows, bound) ** 2)


@az.program
def cell_lists(points: az.Array[az.f64, "n 2"], radius: az.f64, cells: az.i64) -> az.Array[az.i64, "n"]:
    """How many other points of the unit square are within a radius, through a grid of cells as wide as that."""
    places = az.minimum((points * cells).astype(az.i64), cells - 1)
    cell = places[:, 0] * cells + places[:, 1]
    order = az.argsort(cell)
    starts = az.searchsorted(cell[order], az.iota(cells * cells + 1))

    def neighbours(p: az.Expr, place: az.Expr) -> az.Expr:
        def within(dx: az.Expr, dy: az.Expr) -> az.Expr:
            x, y = place[0] + dx - 1, place[1] + dy - 1
            inside = (x >= 0) & (x < cells) & (y >= 0) & (y < cells)

            def count() -> az.Expr:
                there = x * cells + y
                others = points[order[starts[there] : starts[there + 1]]]
                return az.count_nonzero(az.sum((others - p) ** 2, 1) < radius**2)

            return az.cond(inside, count, lambda: 0)

        return az.sum(az.generate((3, 3), within)) - 1

    return az.map(neighbours, points, places)


@az.program
def nearest(queries: Points, points: az.Array[az.f64, "m d"], labels: az.Array[az.f64, "m"], k: az.i64) -> Vector:
    """At each query the mean label of the k nearest points, weighted by the inverse of their distance."""

    def predicted(q: az.Expr) -> az.Expr:
        distances = az.sqrt(az.sum((points - q) ** 2, 1))
        chosen = az.argsort(distances)[:k]
        weights = 1 / distances[chosen]
        return az.sum(weights * labels[chosen]) / az.sum(weights)

    return az.map(predicted, queries)


@az.program
def nearest_squares(
    queries: Points, points: az.Array[az.f64, "m d"], labels: az.Array[az.f64, "m"], k: az.i64
) -> az.f64:
    return az.sum(nearest(queries, points, labels, k) ** 2)


@az.program
def crowded(points: Points, radius: az.f64) -> az.Array[az.i64, "n"]:
    """How many points are within a radius of each, which is the first pass of DBSCAN."""
    return az.map(lambda p: az.sum(az.map(lambda q: az.sum((p - q) ** 2) <= radius**2, points)), points)


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


@az.program
def tsne(y: az.Array[az.f64, "n 2"], p: az.Array[az.f64, "n n"]) -> az.f64:
    """The divergence between probabilities of pairs, and those that follow from places in the plane."""
    n = y.shape[0]
    distances = az.sum((y[:, None] - y[None]) ** 2, 2)
    kernel = az.where(az.eye(n) == 1, 0.0, 1 / (1 + distances))
    q = kernel / az.sum(kernel)
    return az.sum(p * az.log((p + 1e-12) / (q + 1e-12)))


@az.program
def tsne_gradient(y: az.Array[az.f64, "n 2"], p: az.Array[az.f64, "n n"]) -> az.Array[az.f64, "n 2"]:
    """The gradient of the divergence as papers have it."""
    n = y.shape[0]
    distances = az.sum((y[:, None] - y[None]) ** 2, 2)
    kernel = az.where(az.eye(n) == 1, 0.0, 1 / (1 + distances))
    forces = (p - kernel / az.sum(kernel)) * kernel
    return 4 * az.sum(forces[:, :, None] * (y[:, None] - y[None]), 1)


# Tables


@az.program
def sparse_product(
    values: az.Array[az.f64, "e"], columns: az.Array[az.i64, "e"], rows: az.Array[az.i64, "r"], x: Vector
) -> az.Array[az.f64, "r-1"]:
    """A matrix in compressed sparse rows times a vector."""

    def row(i: az.Expr) -> az.Expr:
        here = slice(rows[i], rows[i + 1])
        return az.sum(values[here] * x[columns[here]])

    return az.generate(rows.shape[0] - 1, row)


@az.program
def sparse_squares(
    values: az.Array[az.f64, "e"], columns: az.Array[az.i64, "e"], rows: az.Array[az.i64, "r"], x: Vector
) -> az.f64:
    return az.sum(sparse_product(values, columns, rows, x) ** 2)


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
