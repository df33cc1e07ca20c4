"""Models, searches and pictures from textbooks (programs/models.py), and the same in JAX, PyTorch and Numba.

Numba has loops, as they stand in a book. JAX has no sizes that data decide: what is filtered out counts as zero there.
"""

from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Numba, Tool, Torch, adze, of_jax, of_torch
from programs import models

import adze as az
from lines.everyday import in_jax, in_torch, random

# Hidden Markov models and conditional random fields


def normalised(table: Any) -> Any:
    return table - np.log(np.exp(table).sum(-1, keepdims=True))


def emitted(k: int, n: int) -> Arguments:
    start, transition, emission = map(normalised, random((k,), (k, k), (k, 20)))
    return start, transition, emission, np.random.default_rng(2).integers(0, 20, n)


def jax_hidden_markov(start: Any, transition: Any, emission: Any, observed: Any) -> Any:
    from jax import lax
    from jax.nn import logsumexp

    def step(forward: Any, seen: Any) -> Any:
        return logsumexp(forward[:, None] + transition, 0) + emission[:, seen], None

    return logsumexp(lax.scan(step, start + emission[:, observed[0]], observed[1:])[0])


def torch_hidden_markov(start: Any, transition: Any, emission: Any, observed: Any) -> Any:
    forward = start + emission[:, observed[0]]
    for seen in observed[1:]:
        forward = (forward[:, None] + transition).logsumexp(0) + emission[:, seen]
    return forward.logsumexp(0)


def sentences(b: int, n: int, k: int) -> Arguments:
    return (*random((k, k), (b, n, k)), np.random.default_rng(2).integers(0, k, (b, n)))


def jax_random_field(transition: Any, scores: Any, tags: Any) -> Any:
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.nn import logsumexp

    def sentence(score: Any, tag: Any) -> Any:
        def step(forward: Any, own: Any) -> Any:
            return logsumexp(forward[:, None] + transition, 0) + own, None

        own = score[jnp.arange(len(tag)), tag].sum() + transition[tag[:-1], tag[1:]].sum()
        return own - logsumexp(lax.scan(step, score[0], score[1:])[0])

    return jax.vmap(sentence)(scores, tags).sum()


def torch_random_field(transition: Any, scores: Any, tags: Any) -> Any:
    own = scores.gather(2, tags[..., None]).sum() + transition[tags[:, :-1], tags[:, 1:]].sum()
    forward = scores[:, 0]
    for t in range(1, scores.shape[1]):
        forward = (forward[:, :, None] + transition).logsumexp(1) + scores[:, t]
    return own - forward.logsumexp(1).sum()


# Alignments


def letters(n: int) -> Arguments:
    drawn = np.random.default_rng(1)
    return drawn.integers(0, 4, n), drawn.integers(0, 4, n)


def aligned(n: int) -> Arguments:
    return (*letters(n), 3 * np.eye(4) - 1, 2.0)


def jax_alignment(smooth: bool) -> Any:
    import jax
    import jax.numpy as jnp
    from jax import lax

    larger, largest = (jnp.logaddexp, jax.nn.logsumexp) if smooth else (jnp.maximum, jnp.max)

    def score_of(a: Any, b: Any, similarity: Any, gap: Any) -> Any:
        def row(above: Any, letter: Any) -> Any:
            def cell(left: Any, given: Any) -> Any:
                other, corner, up = given
                score = larger(0.0, larger(corner + similarity[letter, other], larger(left - gap, up - gap)))
                return score, score

            scores = lax.scan(cell, 0.0, (b, above[:-1], above[1:]))[1]
            return jnp.concatenate([jnp.zeros(1), scores]), largest(scores)

        return largest(lax.scan(row, jnp.zeros(len(b) + 1), a)[1])

    return score_of


def numba_alignment() -> dict[str, Any]:
    def score_of(a: Any, b: Any, similarity: Any, gap: Any) -> Any:
        scores = np.zeros((len(a) + 1, len(b) + 1))
        best = 0.0
        for i in range(len(a)):
            for j in range(len(b)):
                steps = max(scores[i + 1, j] - gap, scores[i, j + 1] - gap)
                score = max(0.0, scores[i, j] + similarity[a[i], b[j]], steps)
                scores[i + 1, j + 1] = score
                best = max(best, score)
        return best

    return {"primal": score_of}


def numba_smooth_alignment() -> dict[str, Any]:
    def score_of(a: Any, b: Any, similarity: Any, gap: Any) -> Any:
        scores = np.zeros((len(a) + 1, len(b) + 1))
        for i in range(len(a)):
            for j in range(len(b)):
                steps = np.logaddexp(scores[i + 1, j] - gap, scores[i, j + 1] - gap)
                scores[i + 1, j + 1] = np.logaddexp(0.0, np.logaddexp(scores[i, j] + similarity[a[i], b[j]], steps))
        best = scores.max()
        return best + np.log(np.exp(scores[1:, 1:] - best).sum())

    return {"primal": score_of}


def jax_edits(a: Any, b: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    def row(above: Any, given: Any) -> Any:
        i, letter = given

        def cell(left: Any, at: Any) -> Any:
            other, corner, up = at
            distance = jnp.minimum(corner + (letter != other), jnp.minimum(left, up) + 1)
            return distance, distance

        distances = lax.scan(cell, i + 1, (b, above[:-1], above[1:]))[1]
        return jnp.concatenate([(i + 1)[None], distances]), None

    return lax.scan(row, jnp.arange(len(b) + 1), (jnp.arange(len(a)), a))[0][-1]


def numba_edits() -> dict[str, Any]:
    def distance(a: Any, b: Any) -> Any:
        above = np.arange(len(b) + 1)
        for i in range(len(a)):
            here = np.empty_like(above)
            here[0] = i + 1
            for j in range(len(b)):
                replaced = above[j] + (1 if a[i] != b[j] else 0)
                here[j + 1] = min(replaced, min(here[j], above[j + 1]) + 1)
            above = here
        return above[-1]

    return {"primal": distance}


# Particles


def tracked(n: int, t: int) -> Arguments:
    first, noise, seen = random((n,), (t, n), (t,))
    return np.abs(10 + 5 * seen), first, 3 * noise, np.random.default_rng(2).random(t)


def jax_particle_filter(observed: Any, first: Any, noise: Any, draws: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax
    from jax.nn import logsumexp

    n = len(first)

    def step(state: Any, given: Any) -> Any:
        x, likelihood, t = state
        y, moved, draw = given
        x = 0.5 * x + 25 * x / (1 + x**2) + 8 * jnp.cos(1.2 * t) + moved
        logs = -0.5 * (y - x**2 / 20) ** 2
        likelihood = likelihood + logsumexp(logs) - jnp.log(n)
        weights = jnp.exp(logs - logs.max())
        weights = weights / weights.sum()
        chosen = jnp.searchsorted(jnp.cumsum(weights), (jnp.arange(n) + draw) / n)
        return (x[jnp.minimum(chosen, n - 1)], likelihood, t + 1), (weights * x).sum()

    (_, likelihood, _), means = lax.scan(step, (first, 0.0, 0.0), (observed, noise, draws))
    return means, likelihood


def with_jax_particle_filter() -> dict[str, Any]:
    slope = of_jax(lambda *given: jax_particle_filter(*given)[1], (1, 2))["gradient"]
    return {"primal": jax_particle_filter, "gradient": slope}


def torch_particle_filter(observed: Any, first: Any, noise: Any, draws: Any) -> Any:
    import torch

    x, n, likelihood, means = first, len(first), 0.0, []
    for t in range(len(observed)):
        x = 0.5 * x + 25 * x / (1 + x**2) + 8 * np.cos(1.2 * t) + noise[t]
        logs = -0.5 * (observed[t] - x**2 / 20) ** 2
        likelihood = likelihood + logs.logsumexp(0) - np.log(n)
        weights = logs.softmax(0)
        chosen = torch.searchsorted(weights.cumsum(0), (torch.arange(n) + draws[t]) / n)
        means.append((weights * x).sum())
        x = x[chosen.clamp(max=n - 1)]
    return torch.stack(means), likelihood


def with_torch_particle_filter() -> dict[str, Any]:
    slope = of_torch(lambda *given: torch_particle_filter(*given)[1], (1, 2))["gradient"]
    return {"primal": torch_particle_filter, "gradient": slope}


def numba_particle_filter() -> dict[str, Any]:
    def filtered(observed: Any, first: Any, noise: Any, draws: Any) -> Any:
        n = len(first)
        x, moved = first.copy(), first.copy()
        weights, means, likelihood = np.empty(n), np.empty(len(observed)), 0.0
        for t in range(len(observed)):
            for i in range(n):
                x[i] = 0.5 * moved[i] + 25 * moved[i] / (1 + moved[i] ** 2) + 8 * np.cos(1.2 * t) + noise[t, i]
                weights[i] = -0.5 * (observed[t] - x[i] ** 2 / 20) ** 2
            most = weights.max()
            weights = np.exp(weights - most)
            total = weights.sum()
            likelihood += most + np.log(total) - np.log(n)
            weights /= total
            means[t] = (weights * x).sum()
            k, below = 0, weights[0]
            for i in range(n):
                while below < (i + draws[t]) / n and k < n - 1:
                    k += 1
                    below += weights[k]
                moved[i] = x[k]
        return means, likelihood

    return {"primal": filtered}


def spread(n: int) -> Arguments:
    return np.random.default_rng(1).random((n, 2)), 0.02, 50


def numba_cell_lists() -> dict[str, Any]:
    from numba import prange

    def neighbours(points: Any, radius: Any, cells: Any) -> Any:
        n = len(points)
        places = np.minimum((points * cells).astype(np.int64), cells - 1)
        starts = np.zeros(cells * cells + 1, np.int64)
        for i in range(n):
            starts[places[i, 0] * cells + places[i, 1] + 1] += 1
        starts = np.cumsum(starts)
        order, filled = np.empty(n, np.int64), starts.copy()
        for i in range(n):
            cell = places[i, 0] * cells + places[i, 1]
            order[filled[cell]] = i
            filled[cell] += 1
        counts = np.empty(n, np.int64)
        for i in prange(n):
            count = -1
            for x in range(max(places[i, 0] - 1, 0), min(places[i, 0] + 2, cells)):
                for y in range(max(places[i, 1] - 1, 0), min(places[i, 1] + 2, cells)):
                    for e in range(starts[x * cells + y], starts[x * cells + y + 1]):
                        j = order[e]
                        dx, dy = points[i, 0] - points[j, 0], points[i, 1] - points[j, 1]
                        count += 1 if dx**2 + dy**2 < radius**2 else 0
            counts[i] = count
        return counts

    return {"primal": neighbours}


# Points


def rows_of(n: int, d: int) -> Arguments:
    return (*random((n, d)), float(np.sqrt(d)))


def jax_long_rows(rows: Any, bound: Any) -> Any:
    import jax.numpy as jnp

    kept = jnp.where((jnp.sqrt((rows**2).sum(1)) > bound)[:, None], rows, 0.0)
    return kept.T @ kept


def torch_long_rows(rows: Any, bound: Any) -> Any:
    kept = rows[rows.norm(dim=1) > bound]
    return kept.T @ kept


def numpy_long_rows(rows: Any, bound: Any) -> Any:
    kept = rows[np.linalg.norm(rows, axis=1) > bound]
    return kept.T @ kept


def asked(n: int, m: int, d: int, k: int) -> Arguments:
    return (*random((n, d), (m, d), (m,)), k)


def jax_nearest(queries: Any, points: Any, labels: Any, k: Any) -> Any:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def predicted(q: Any) -> Any:
        negative, chosen = lax.top_k(-jnp.sqrt(((points - q) ** 2).sum(1)), k)
        return (labels[chosen] / -negative).sum() / (1 / -negative).sum()

    return jax.vmap(predicted)(queries)


def torch_nearest(queries: Any, points: Any, labels: Any, k: Any) -> Any:
    import torch

    distances, chosen = torch.cdist(queries, points).topk(k, largest=False)
    return (labels[chosen] / distances).sum(1) / (1 / distances).sum(1)


def numba_nearest() -> dict[str, Any]:
    from numba import prange

    def predicted(queries: Any, points: Any, labels: Any, k: Any) -> Any:
        found = np.empty(len(queries))
        for i in prange(len(queries)):
            distances = np.empty(len(points))
            for j in range(len(points)):
                total = 0.0
                for c in range(points.shape[1]):
                    total += (points[j, c] - queries[i, c]) ** 2
                distances[j] = np.sqrt(total)
            chosen = np.argsort(distances)[:k]
            weights = 1 / distances[chosen]
            found[i] = (weights * labels[chosen]).sum() / weights.sum()
        return found

    return {"primal": predicted}


def clustered(n: int) -> Arguments:
    return (*random((n, 2)), 0.1)


def jax_crowded(points: Any, radius: Any) -> Any:
    return (((points[:, None] - points[None]) ** 2).sum(-1) <= radius**2).sum(1)


def torch_crowded(points: Any, radius: Any) -> Any:
    return (((points[:, None] - points[None]) ** 2).sum(-1) <= radius**2).sum(1)


def numba_crowded() -> dict[str, Any]:
    from numba import prange

    def crowded(points: Any, radius: Any) -> Any:
        counts = np.empty(len(points), np.int64)
        for i in prange(len(points)):
            count = 0
            for j in range(len(points)):
                dx, dy = points[i, 0] - points[j, 0], points[i, 1] - points[j, 1]
                count += 1 if dx**2 + dy**2 <= radius**2 else 0
            counts[i] = count
        return counts

    return {"primal": crowded}


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


def embedded(n: int) -> Arguments:
    y, high = random((n, 2), (n, 10))
    p = np.exp(-0.5 * ((high[:, None] - high[None]) ** 2).sum(-1)) * (1 - np.eye(n))
    return y, p / p.sum()


def jax_tsne(y: Any, p: Any) -> Any:
    import jax.numpy as jnp

    distances = ((y[:, None] - y[None]) ** 2).sum(-1)
    kernel = jnp.where(jnp.eye(len(y)) == 1, 0.0, 1 / (1 + distances))
    q = kernel / kernel.sum()
    return (p * jnp.log((p + 1e-12) / (q + 1e-12))).sum()


def torch_tsne(y: Any, p: Any) -> Any:
    import torch

    distances = ((y[:, None] - y[None]) ** 2).sum(-1)
    kernel = torch.where(torch.eye(len(y)) == 1, 0.0, 1 / (1 + distances))
    q = kernel / kernel.sum()
    return (p * ((p + 1e-12) / (q + 1e-12)).log()).sum()


def jax_tsne_gradient(y: Any, p: Any) -> Any:
    import jax.numpy as jnp

    differences = y[:, None] - y[None]
    kernel = jnp.where(jnp.eye(len(y)) == 1, 0.0, 1 / (1 + (differences**2).sum(-1)))
    forces = (p - kernel / kernel.sum()) * kernel
    return 4 * (forces[:, :, None] * differences).sum(1)


def numba_tsne_gradient() -> dict[str, Any]:
    from numba import prange

    def gradient(y: Any, p: Any) -> Any:
        n = len(y)
        kernel, total = np.zeros((n, n)), 0.0
        for i in prange(n):
            for j in range(n):
                if i != j:
                    kernel[i, j] = 1 / (1 + (y[i, 0] - y[j, 0]) ** 2 + (y[i, 1] - y[j, 1]) ** 2)
                    total += kernel[i, j]
        found = np.zeros((n, 2))
        for i in prange(n):
            for j in range(n):
                force = 4 * (p[i, j] - kernel[i, j] / total) * kernel[i, j]
                found[i, 0] += force * (y[i, 0] - y[j, 0])
                found[i, 1] += force * (y[i, 1] - y[j, 1])
        return found

    return {"primal": gradient}


# Tables


def compressed(n: int, e: int) -> Arguments:
    drawn = np.random.default_rng(1)
    row, columns = np.sort(drawn.integers(0, n, e)), drawn.integers(0, n, e)
    return drawn.standard_normal(e), columns, np.searchsorted(row, np.arange(n + 1)), drawn.standard_normal(n)


def jax_sparse_product(values: Any, columns: Any, rows: Any, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    count = len(rows) - 1
    row = jnp.repeat(jnp.arange(count), jnp.diff(rows), total_repeat_length=len(values))
    return jax.ops.segment_sum(values * x[columns], row, count, indices_are_sorted=True)


def torch_sparse_product(values: Any, columns: Any, rows: Any, x: Any) -> Any:
    import torch

    return torch.sparse_csr_tensor(rows, columns, values, (len(rows) - 1, len(x)), check_invariants=False) @ x


def numba_sparse_product() -> dict[str, Any]:
    from numba import prange

    def product(values: Any, columns: Any, rows: Any, x: Any) -> Any:
        found = np.empty(len(rows) - 1)
        for i in prange(len(rows) - 1):
            total = 0.0
            for e in range(rows[i], rows[i + 1]):
                total += values[e] * x[columns[e]]
            found[i] = total
        return found

    return {"primal": product}


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


# Pictures


def picture(n: int) -> Arguments:
    return tuple(random((n, n)))


def jax_median(image: Any) -> Any:
    import jax.numpy as jnp

    h, w = image.shape
    windows = jnp.stack([image[y : y + h - 2, x : x + w - 2] for y in range(3) for x in range(3)], -1)
    return jnp.sort(windows, -1)[..., 4]


def torch_median(image: Any) -> Any:
    return image.unfold(0, 3, 1).unfold(1, 3, 1).flatten(2).median(2).values


def numba_median() -> dict[str, Any]:
    from numba import prange

    def median(image: Any) -> Any:
        h, w = image.shape
        found = np.empty((h - 2, w - 2))
        for y in prange(h - 2):
            for x in range(w - 2):
                found[y, x] = np.sort(image[y : y + 3, x : x + 3].copy().ravel())[4]
        return found

    return {"primal": median}


def scipy_median(image: Any) -> Any:
    from scipy.ndimage import median_filter

    return median_filter(image, 3)[1:-1, 1:-1]


def edges(n: int, a: int) -> Arguments:
    return 512 * np.random.default_rng(1).random((n, 2)), np.pi / a * np.arange(a), 725


def jax_hough(points: Any, angles: Any, reach: int) -> Any:
    import jax
    import jax.numpy as jnp

    def votes(angle: Any) -> Any:
        distances = points[:, 0] * jnp.cos(angle) + points[:, 1] * jnp.sin(angle)
        return jnp.bincount(jnp.round(distances).astype(int) + reach, length=2 * reach + 1)

    return jax.vmap(votes)(angles)


def numba_hough() -> dict[str, Any]:
    from numba import prange

    def votes(points: Any, angles: Any, reach: Any) -> Any:
        found = np.zeros((len(angles), 2 * reach + 1), np.int64)
        for a in prange(len(angles)):
            c, s = np.cos(angles[a]), np.sin(angles[a])
            for i in range(len(points)):
                found[a, int(np.round(points[i, 0] * c + points[i, 1] * s)) + reach] += 1
        return found

    return {"primal": votes}


def greys(n: int) -> Arguments:
    return (np.clip(120 + 25 * random((n, n))[0], 0, 255).astype(np.int64),)


def jax_equalised(image: Any) -> Any:
    import jax.numpy as jnp

    below = jnp.cumsum(jnp.bincount(image.ravel(), length=256))
    least = jnp.where(below > 0, below, image.size).min()
    return jnp.round(255 * (below - least) / (image.size - least)).astype(int)[image]


def torch_equalised(image: Any) -> Any:
    import torch

    below = torch.bincount(image.ravel(), minlength=256).cumsum(0)
    least = below[below > 0].min()
    return (255 * (below - least) / (image.numel() - least).double()).round().long()[image]


def numba_equalised() -> dict[str, Any]:
    from numba import prange

    def equalised(image: Any) -> Any:
        (h, w), below = image.shape, np.zeros(256, np.int64)
        for y in range(h):
            for x in range(w):
                below[image[y, x]] += 1
        below = np.cumsum(below)
        least = below[below > 0].min()
        table = np.round(255 * (below - least) / (h * w - least)).astype(np.int64)
        found = np.empty_like(image)
        for y in prange(h):
            for x in range(w):
                found[y, x] = table[image[y, x]]
        return found

    return {"primal": equalised}


def plane(n: int, limit: int) -> Arguments:
    return np.linspace(-2.2, 0.8, n), np.linspace(-1.2, 1.2, n), limit


def jax_mandelbrot(real: Any, imaginary: Any, limit: Any) -> Any:
    import jax
    from jax import lax

    def steps(a: Any, b: Any) -> Any:
        def inside(state: Any) -> Any:
            x, y, k = state
            return (x**2 + y**2 <= 4) & (k < limit)

        def step(state: Any) -> Any:
            x, y, k = state
            return x**2 - y**2 + a, 2 * x * y + b, k + 1

        return lax.while_loop(inside, step, (0.0, 0.0, 0))[2]

    return jax.vmap(jax.vmap(steps, (0, None)), (None, 0))(real, imaginary)


def numba_mandelbrot() -> dict[str, Any]:
    from numba import prange

    def escape(real: Any, imaginary: Any, limit: Any) -> Any:
        found = np.empty((len(imaginary), len(real)), np.int64)
        for i in prange(len(imaginary)):
            for j in range(len(real)):
                x, y, k = 0.0, 0.0, 0
                while x * x + y * y <= 4 and k < limit:
                    x, y, k = x * x - y * y + real[j], 2 * x * y + imaginary[i], k + 1
                found[i, j] = k
        return found

    return {"primal": escape}


BOTH = (0, 1)
PRIMAL = ("primal",)
EMITTED, SENTENCES = {"k": 64, "n": 1000}, {"b": 32, "n": 50, "k": 30}
LETTERS, TRACKED, SPREAD = {"n": 1000}, {"n": 10_000, "t": 100}, {"n": 10_000}
ROWS, ASKED, CLUSTERED = {"n": 100_000, "d": 32}, {"n": 2000, "m": 5000, "d": 16, "k": 5}, {"n": 4000}
MIXTURE, EMBEDDED = {"n": 100_000, "d": 4, "k": 8}, {"n": 1000}
COMPRESSED, DOCUMENTS = {"n": 100_000, "e": 1_000_000}, {"n": 10_000, "d": 1000, "k": 20}
PICTURE, EDGES, GREYS, PLANE = {"n": 512}, {"n": 5000, "a": 180}, {"n": 1024}, {"n": 512, "limit": 100}
LINES = [
    Line(
        "hidden markov",
        "Likelihood of a hidden Markov model, by the forward algorithm in logarithms",
        [EMITTED],
        emitted,
        [
            *adze({"primal": models.hidden_markov, "gradient": az.grad(models.hidden_markov, argnums=(0, 1, 2))}),
            Contender("JAX", Jax(), lambda: of_jax(jax_hidden_markov, (0, 1, 2))),
            Contender("PyTorch", Torch(), lambda: of_torch(torch_hidden_markov, (0, 1, 2))),
        ],
        main=EMITTED,
    ),
    Line(
        "random field",
        "Likelihood of a conditional random field along sentences",
        [SENTENCES],
        sentences,
        [
            *adze({"primal": models.random_field, "gradient": az.grad(models.random_field, argnums=BOTH)}),
            Contender("JAX", Jax(), lambda: of_jax(jax_random_field, BOTH)),
            Contender("PyTorch", Torch(), lambda: of_torch(torch_random_field, BOTH)),
        ],
        main=SENTENCES,
    ),
    Line(
        "alignment",
        "Score of the best local alignment of two sequences",
        [LETTERS],
        aligned,
        [
            *adze({"primal": models.alignment}),
            Contender("JAX", Jax(), lambda: {"primal": jax_alignment(smooth=False)}),
            Contender("Numba", Numba(), numba_alignment),
        ],
        functions=PRIMAL,
        main=LETTERS,
    ),
    Line(
        "alignment, smooth",
        "Score of all local alignments of two sequences",
        [LETTERS],
        aligned,
        [
            *adze({"primal": models.smooth_alignment, "gradient": az.grad(models.smooth_alignment, argnums=(2, 3))}),
            Contender("JAX", Jax(), lambda: of_jax(jax_alignment(smooth=True), (2, 3))),
            Contender("Numba", Numba(), numba_smooth_alignment),
        ],
        main=LETTERS,
    ),
    Line(
        "edits",
        "Distance of two sequences in edits",
        [LETTERS],
        letters,
        [
            *adze({"primal": models.edits}),
            Contender("JAX", Jax(), lambda: {"primal": jax_edits}),
            Contender("Numba", Numba(), numba_edits),
        ],
        functions=PRIMAL,
        main=LETTERS,
    ),
    Line(
        "particle filter",
        "Particle filter with systematic resampling",
        [TRACKED],
        tracked,
        [
            *adze({"primal": models.particle_filter, "gradient": az.grad(models.particle_likelihood, argnums=(1, 2))}),
            Contender("JAX", Jax(), with_jax_particle_filter),
            Contender("PyTorch", Torch(), with_torch_particle_filter),
            Contender("Numba", Numba(), numba_particle_filter),
        ],
        main=TRACKED,
    ),
    Line(
        "cell lists",
        "Neighbours within a radius, through a grid of cells",
        [SPREAD],
        spread,
        [
            *adze({"primal": models.cell_lists}),
            Contender("Numba", Numba(), numba_cell_lists),
        ],
        functions=PRIMAL,
        main=SPREAD,
    ),
    Line(
        "long rows",
        "Products of the rows that are longer than a bound",
        [ROWS],
        rows_of,
        [
            *adze({"primal": models.long_rows, "gradient": az.grad(models.long_rows_squares)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_long_rows, 0)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_long_rows, (0,))),
            Contender("NumPy", Tool(), lambda: {"primal": numpy_long_rows}),
        ],
        main=ROWS,
    ),
    Line(
        "nearest",
        "Regression by the k nearest neighbours",
        [ASKED],
        asked,
        [
            *adze({"primal": models.nearest, "gradient": az.grad(models.nearest_squares, argnums=(0, 2))}),
            Contender("JAX", Jax(static=(3,)), lambda: in_jax(jax_nearest, (0, 2))),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_nearest, (0, 2))),
            Contender("Numba", Numba(), numba_nearest),
        ],
        main=ASKED,
    ),
    Line(
        "crowded",
        "Number of points within a radius of each, over all pairs",
        [CLUSTERED],
        clustered,
        [
            *adze({"primal": models.crowded}),
            Contender("JAX", Jax(), lambda: {"primal": jax_crowded}),
            Contender("PyTorch", Torch(), lambda: {"primal": torch_crowded}),
            Contender("Numba", Numba(), numba_crowded),
        ],
        functions=PRIMAL,
        main=CLUSTERED,
    ),
    Line(
        "em step",
        "Step of expectation maximisation for a mixture of normal distributions",
        [MIXTURE],
        mixture,
        [
            *adze({"primal": models.em_step}),
            Contender("JAX", Jax(), lambda: {"primal": jax_em_step}),
            Contender("PyTorch", Torch(), lambda: {"primal": torch_em_step}),
        ],
        functions=PRIMAL,
        main=MIXTURE,
    ),
    Line(
        "t-SNE",
        "Divergence of an embedding in the plane (t-SNE)",
        [EMBEDDED],
        embedded,
        [
            *adze({"primal": models.tsne, "gradient": az.grad(models.tsne)}),
            Contender("JAX", Jax(), lambda: of_jax(jax_tsne)),
            Contender("PyTorch", Torch(), lambda: of_torch(torch_tsne)),
        ],
        main=EMBEDDED,
    ),
    Line(
        "t-SNE, by hand",
        "Gradient of the divergence of an embedding, by its formula",
        [EMBEDDED],
        embedded,
        [
            *adze({"primal": models.tsne_gradient}),
            Contender("JAX", Jax(), lambda: {"primal": jax_tsne_gradient}),
            Contender("Numba", Numba(), numba_tsne_gradient),
        ],
        functions=PRIMAL,
        main=EMBEDDED,
    ),
    Line(
        "sparse product",
        "Matrix in compressed sparse rows, times a vector",
        [COMPRESSED],
        compressed,
        [
            *adze({"primal": models.sparse_product, "gradient": az.grad(models.sparse_squares, argnums=(0, 3))}),
            Contender("JAX, segments", Jax(), lambda: in_jax(jax_sparse_product, (0, 3))),
            Contender("PyTorch, CSR", Torch(), lambda: {"primal": torch_sparse_product}),
            Contender("Numba", Numba(), numba_sparse_product),
        ],
        main=COMPRESSED,
    ),
    Line(
        "naive bayes",
        "Naive Bayes, fitted to documents and asked for their classes",
        [DOCUMENTS],
        documents,
        [
            *adze({"primal": models.naive_bayes_classes, "gradient": az.grad(models.naive_bayes_loss, argnums=3)}),
            Contender("JAX", Jax(static=(2,)), with_jax_naive_bayes),
            Contender("PyTorch", Torch(), lambda: {"primal": torch_naive_bayes}),
            Contender("NumPy", Tool(), lambda: {"primal": numpy_naive_bayes}),
        ],
        main=DOCUMENTS,
    ),
    Line(
        "median",
        "Median of each window of 3 x 3",
        [PICTURE],
        picture,
        [
            *adze({"primal": models.median, "gradient": az.grad(models.median_squares)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_median, 0)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_median, (0,))),
            Contender("Numba", Numba(), numba_median),
            Contender("SciPy", Tool(), lambda: {"primal": scipy_median}),
        ],
        main=PICTURE,
    ),
    Line(
        "hough",
        "Hough transform for lines",
        [EDGES],
        edges,
        [
            *adze({"primal": models.hough}),
            Contender("JAX", Jax(static=(2,)), lambda: {"primal": jax_hough}),
            Contender("Numba", Numba(), numba_hough),
        ],
        functions=PRIMAL,
        main=EDGES,
    ),
    Line(
        "equalised",
        "Histogram equalisation",
        [GREYS],
        greys,
        [
            *adze({"primal": models.equalised}),
            Contender("JAX", Jax(), lambda: {"primal": jax_equalised}),
            Contender("PyTorch", Torch(), lambda: {"primal": torch_equalised}),
            Contender("Numba", Numba(), numba_equalised),
        ],
        functions=PRIMAL,
        main=GREYS,
    ),
    Line(
        "mandelbrot",
        "Mandelbrot set",
        [PLANE],
        plane,
        [
            *adze({"primal": models.mandelbrot}),
            Contender("JAX", Jax(), lambda: {"primal": jax_mandelbrot}),
            Contender("Numba", Numba(), numba_mandelbrot),
        ],
        functions=PRIMAL,
        main=PLANE,
    ),
]
