"""Models of sequences, alignments and filters, in Adze (programs/sequences.py) and other tools."""

from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Numba, Torch, of_jax, of_torch
from programs import sequences

import adze as az
from lines.everyday import Sequential, in_adze, random

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


# Filters


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


def moving(t: int) -> Arguments:
    """Places of something that moves in a plane with the same speed, but for noise."""
    motion = np.eye(4) + 0.1 * np.eye(4, k=2)
    generator = np.random.default_rng(1)
    seen = np.cumsum(0.1 * generator.standard_normal((t, 2)), 0) + 0.3 * generator.standard_normal((t, 2))
    return seen, motion, 0.01 * np.eye(4), np.eye(2, 4), 0.1 * np.eye(2)


def jax_kalman(seen: Any, motion: Any, noise: Any, view: Any, error: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    def step(state: Any, z: Any) -> Any:
        x, p, total = state
        x = motion @ x
        p = motion @ p @ motion.T + noise
        s = view @ p @ view.T + error
        determinant = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        inverse = jnp.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]]) / determinant
        gain = p @ view.T @ inverse
        r = z - view @ x
        total = total + 0.5 * (r @ inverse @ r + jnp.log(determinant))
        return (x + gain @ r, p - gain @ view @ p, total), None

    return lax.scan(step, (jnp.zeros(4), jnp.eye(4), 0.0), seen)[0][2]


def numba_kalman(seen: Any, motion: Any, noise: Any, view: Any, error: Any) -> Any:
    x, p, total = np.zeros(4), np.eye(4), 0.0
    for k in range(len(seen)):
        x = motion @ x
        p = motion @ p @ motion.T + noise
        s = view @ p @ view.T + error
        determinant = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        inverse = np.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]]) / determinant
        gain = p @ view.T @ inverse
        r = seen[k] - view @ x
        total += 0.5 * (r @ inverse @ r + np.log(determinant))
        x = x + gain @ r
        p = p - gain @ view @ p
    return total


EMITTED = {"k": 64, "n": 1000}
SENTENCES = {"b": 32, "n": 50, "k": 30}
BOTH = (0, 1)
LETTERS = {"n": 1000}
PRIMAL = ("primal",)
TRACKED = {"n": 10_000, "t": 100}
MOVING = {"t": 1000}
LINES = [
    Line(
        "hidden markov",
        "Likelihood of a hidden Markov model, by the forward algorithm in logarithms",
        [EMITTED],
        emitted,
        [
            in_adze(
                {"primal": sequences.hidden_markov, "gradient": az.grad(sequences.hidden_markov, argnums=(0, 1, 2))}
            ),
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
            in_adze({"primal": sequences.random_field, "gradient": az.grad(sequences.random_field, argnums=BOTH)}),
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
            in_adze({"primal": sequences.alignment}),
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
            in_adze(
                {"primal": sequences.smooth_alignment, "gradient": az.grad(sequences.smooth_alignment, argnums=(2, 3))}
            ),
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
            in_adze({"primal": sequences.edits}),
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
            in_adze(
                {
                    "primal": sequences.particle_filter,
                    "gradient": az.grad(sequences.particle_likelihood, argnums=(1, 2)),
                }
            ),
            Contender("JAX", Jax(), with_jax_particle_filter),
            Contender("PyTorch", Torch(), with_torch_particle_filter),
            Contender("Numba", Numba(), numba_particle_filter),
        ],
        main=TRACKED,
    ),
    Line(
        "kalman",
        "Likelihood by the Kalman filter",
        [MOVING],
        moving,
        [
            in_adze({"primal": sequences.kalman, "gradient": az.grad(sequences.kalman, argnums=(1, 2, 4))}),
            Contender("JAX", Jax(), lambda: of_jax(jax_kalman, (1, 2, 4))),
            Contender("Numba", Sequential(), lambda: {"primal": numba_kalman}),
        ],
        main=MOVING,
    ),
]
