"""log(sum(exp(x))), by each tool's own function for it, and by a maximum and a sum (programs/lse.py).

The functions do not differentiate the maximum, which cancels; the formula does.
"""

from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Tool, Torch, adze, of_jax, of_torch
from programs import lse

import adze as az


@az.program
def logsumexp(x: az.Array[az.f64, "n"]) -> az.f64:
    return az.logsumexp(x)


def arguments(n: int) -> Arguments:
    return (np.random.default_rng(1).standard_normal(n),)


def with_jax() -> dict[str, Any]:
    from jax.scipy.special import logsumexp

    return of_jax(logsumexp)


def with_jax_by_hand() -> dict[str, Any]:
    import jax.numpy as jnp

    def formula(x: Any) -> Any:
        top = jnp.max(x)
        return top + jnp.log(jnp.sum(jnp.exp(x - top)))

    return of_jax(formula)


def with_torch() -> dict[str, Any]:
    import torch

    return of_torch(lambda x: torch.logsumexp(x, 0))


def with_scipy() -> dict[str, Any]:
    from scipy.special import logsumexp, softmax

    return {"primal": logsumexp, "gradient": softmax}


SIZES = [{"n": 10000}, {"n": 160000}, {"n": 1280000}]
MAIN = SIZES[1]
LINES = [
    Line(
        "lse",
        "Logarithm of a sum of exponentials",
        SIZES,
        arguments,
        [
            *adze({"primal": logsumexp, "gradient": az.grad(logsumexp)}),
            Contender("JAX", Jax(), with_jax),
            Contender("PyTorch", Torch(), with_torch),
            Contender("SciPy, by hand", Tool(), with_scipy),
        ],
        main=MAIN,
        ablated=True,
    ),
    Line(
        "lse, by hand",
        "Logarithm of a sum of exponentials, by a maximum and a sum",
        SIZES,
        arguments,
        [
            *adze({"primal": lse.logsumexp, "gradient": lse.gradient}),
            Contender("JAX", Jax(), with_jax_by_hand),
        ],
        main=MAIN,
    ),
]
