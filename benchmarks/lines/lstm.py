"""The LSTM of ADBench (programs/lstm.py), and the one with weight matrices on a batch of Schenck et al."""

import itertools
from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Torch, adze, of_jax, of_torch
from programs import lstm, lstm_batch

# The LSTM of ADBench: t characters of b features


def arguments(l: int, c: int, b: int = 14) -> Arguments:
    random = np.random.default_rng(1)
    state = random.standard_normal((l, b)), random.standard_normal((l, b))
    return random.standard_normal((l, 2, 4, b)), random.standard_normal((3, b)), state, random.standard_normal((c, b))


def jax_loss(layers: Any, ends: Any, state: Any, sequence: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def layer(x: Any, given: Any) -> Any:
        (w, v), h, c = given
        forget, add, out = (jax.nn.sigmoid(y * w[k] + v[k]) for k, y in enumerate((x, h, x)))
        c = c * forget + add * jnp.tanh(h * w[3] + v[3])
        h = out * jnp.tanh(c)
        return h, (h, c)

    def predict(state: Any, characters: Any) -> Any:
        this, following = characters
        x, state = jax.lax.scan(layer, this * ends[0], (layers, *state))
        y = x * ends[1] + ends[2]
        return state, jnp.sum(following * (y - jnp.log(2 + jnp.sum(jnp.exp(y)))))

    _, likelihoods = jax.lax.scan(predict, state, (sequence[:-1], sequence[1:]))
    return -jnp.mean(likelihoods) / sequence.shape[1]


def torch_loss(layers: Any, ends: Any, state: Any, sequence: Any) -> Any:
    import torch

    h, c = list(state[0]), list(state[1])
    total = 0.0
    for this, following in itertools.pairwise(sequence):
        x = this * ends[0]
        for k, (w, v) in enumerate(layers):
            forget, add, out = (torch.sigmoid(y * w[g] + v[g]) for g, y in enumerate((x, h[k], x)))
            c[k] = c[k] * forget + add * torch.tanh(h[k] * w[3] + v[3])
            x = h[k] = out * torch.tanh(c[k])
        y = x * ends[1] + ends[2]
        total = total + (following * (y - torch.log(2 + torch.exp(y).sum()))).sum()
    return -total / ((len(sequence) - 1) * sequence.shape[1])


# The LSTM of Schenck et al.


def batch_arguments(bs: int, n: int, d: int, h: int) -> Arguments:
    random = np.random.default_rng(1)
    return (
        random.standard_normal((d, 4 * h)) / np.sqrt(d),
        random.standard_normal((h, 4 * h)) / np.sqrt(h),
        random.standard_normal(4 * h),
        random.standard_normal((h, d)) / np.sqrt(h),
        random.standard_normal((n, bs, d)),
        random.standard_normal((n, bs, d)),
    )


def jax_batch(wx: Any, wh: Any, bias: Any, wy: Any, inputs: Any, targets: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def step(state: Any, x: Any) -> Any:
        h, c = state
        i, f, o, g = jnp.split(x + h @ wh, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros((inputs.shape[1], wh.shape[0]))
    _, hidden = jax.lax.scan(step, (start, start), inputs @ wx + bias)
    return jnp.mean((hidden @ wy - targets) ** 2)


def torch_batch(wx: Any, wh: Any, bias: Any, wy: Any, inputs: Any, targets: Any) -> Any:
    import torch

    h = c = torch.zeros((inputs.shape[1], wh.shape[0]), dtype=wx.dtype)
    hidden = []
    for x in inputs @ wx + bias:
        i, f, o, g = torch.addmm(x, h, wh).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        hidden.append(h)
    return ((torch.stack(hidden) @ wy - targets) ** 2).mean()


MAIN = {"l": 6, "c": 4096}
BATCH = {"bs": 64, "n": 20, "d": 50, "h": 64}
LINES = [
    Line(
        "lstm",
        "LSTM of ADBench, 14 features",
        [{"l": l, "c": c} for l in (2, 6) for c in (1024, 4096)],
        arguments,
        [
            *adze({"primal": lstm.loss, "gradient": lstm.gradient}),
            Contender("JAX, scan", Jax(), lambda: of_jax(jax_loss, (0, 1))),
            Contender("PyTorch", Torch(), lambda: of_torch(torch_loss, (0, 1))),
        ],
        main=MAIN,
        ablated=True,
    ),
    Line(
        "lstm, batch",
        "LSTM with weight matrices on a batch (Schenck et al.)",
        [BATCH, {"bs": 1024, "n": 20, "d": 300, "h": 192}],
        batch_arguments,
        [
            *adze({"primal": lstm_batch.loss, "gradient": lstm_batch.gradient}),
            Contender("JAX, scan", Jax(), lambda: of_jax(jax_batch, (0, 1, 2, 3))),
            Contender("PyTorch", Torch(), lambda: of_torch(torch_batch, (0, 1, 2, 3))),
        ],
        main=BATCH,
        ablated=True,
    ),
]
