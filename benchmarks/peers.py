"""JAX and PyTorch on the programs of gpu.py, as somebody who knows them would write these.

``jax_peers`` and ``torch_peers`` give contenders for a problem, or say why there are none. They compute on the GPU when
asked for one, else on the CPU. JAX compiles for each size; PyTorch is run as it is (eager).
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from gmm import Callables, Contender, Problem, Times, jax_contenders

Put = Callable[[np.ndarray], Any]


def placed(argument: Any, put: Put) -> Any:
    """An argument whose arrays are where ``put`` moves them; numbers stay."""
    if isinstance(argument, tuple):
        return tuple([placed(part, put) for part in argument])
    return put(argument) if isinstance(argument, np.ndarray) and argument.ndim else argument


# JAX


def jax_peers(name: str, argnums: tuple[int, ...], is_scalar: bool, gpu: bool) -> list[Contender] | str:
    """JAX with a program and its derivative: of a number its gradient, of an array its vjp, which takes a cotangent."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if importlib.util.find_spec("jax") is None:
        return "JAX is not installed"
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")  # f32 as it is, without TF32
    if gpu and jax.default_backend() != "gpu":
        return f"JAX {jax.__version__} sees no GPU"
    if name == "gmm":
        return jax_contenders()
    primal = _jax_programs()[name]

    def pulled(*arguments: Any) -> Any:
        *given, cotangent = arguments

        def of_chosen(*chosen: Any) -> Any:
            return primal(*_with(given, argnums, chosen))

        result, pullback = jax.vjp(of_chosen, *(given[k] for k in argnums))
        return result, pullback(cotangent)

    gradient = jax.value_and_grad(primal, argnums=argnums) if is_scalar else pulled

    def build(arguments: Problem) -> tuple[Callables, Times]:
        run, run_gradient = jax.jit(primal), jax.jit(gradient)
        calls: Callables = {
            "primal": lambda *given: jax.block_until_ready(run(*given)),
            "gradient": lambda *given: jax.block_until_ready(run_gradient(*given)),
        }
        return calls, {}

    return [Contender("JAX", build, lambda arguments: placed(arguments, jax.numpy.asarray))]


def _jax_programs() -> dict[str, Callable[..., Any]]:
    import jax
    import jax.numpy as jnp

    def kmeans(points: Any, centroids: Any) -> Any:
        return jnp.sum(jnp.min(jnp.sum((points[:, None] - centroids) ** 2, axis=2), axis=1))

    def lstm(layers: Any, ends: Any, state: Any, sequence: Any) -> Any:
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

    return {
        "reduce": lambda x: jnp.sum(x * x),
        "scan": jnp.cumsum,
        "histogram": lambda like, indices, values: jnp.zeros_like(like).at[indices].add(values),
        "gather": lambda x, indices: x[indices],
        "scatter": lambda x, indices, values: x.at[indices].set(values, unique_indices=True),
        "product": lambda a, b: a @ b,
        "kmeans": kmeans,
        "lstm": lstm,
    }


# PyTorch


def torch_peers(name: str, argnums: tuple[int, ...], is_scalar: bool, gpu: bool) -> list[Contender] | str:
    """PyTorch with a program and its derivative by autograd."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed"
    import torch

    if gpu and not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} sees no GPU"
    program = _torch_programs()[name]

    def finish() -> None:
        if gpu:
            torch.cuda.synchronize()

    def primal(*arguments: Any) -> Any:
        with torch.no_grad():
            result = program(*arguments)
        finish()
        return result

    def gradient(*arguments: Any) -> Any:
        given, cotangent = (arguments, None) if is_scalar else (arguments[:-1], arguments[-1])
        chosen = [given[k].detach().requires_grad_() for k in argnums]
        result = program(*_with(given, argnums, chosen))
        cotangents = torch.autograd.grad(result, chosen, cotangent)
        finish()
        return result.detach(), cotangents

    def build(arguments: Problem) -> tuple[Callables, Times]:
        return {"primal": primal, "gradient": gradient}, {}

    def put(array: np.ndarray) -> Any:
        return torch.as_tensor(array, device="cuda" if gpu else "cpu")

    return [Contender("PyTorch", build, lambda arguments: placed(arguments, put))]


def _torch_programs() -> dict[str, Callable[..., Any]]:
    import torch

    def gmm(alpha: Any, mu: Any, q: Any, l: Any, x: Any, gamma: Any, m: Any) -> Any:
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

    def lstm(layers: Any, ends: Any, state: Any, sequence: Any) -> Any:
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

    return {
        "reduce": lambda x: (x * x).sum(),
        "scan": lambda x: torch.cumsum(x, 0),
        "histogram": lambda like, indices, values: torch.zeros_like(like).index_add(0, indices, values),
        "gather": lambda x, indices: x[indices],
        "scatter": lambda x, indices, values: x.scatter(0, indices, values),
        "product": lambda a, b: a @ b,
        "gmm": gmm,
        "kmeans": lambda points, centroids: (torch.cdist(points, centroids) ** 2).min(1).values.sum(),
        "lstm": lstm,
    }


def _with(arguments: Any, argnums: tuple[int, ...], chosen: Any) -> list[Any]:
    """The arguments, with those at ``argnums`` replaced."""
    replaced = dict(zip(argnums, chosen, strict=True))
    return [replaced.get(k, argument) for k, argument in enumerate(arguments)]
