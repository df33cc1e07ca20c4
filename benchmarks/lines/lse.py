"""log(sum(exp(x))) (programs/lse.py), by each tool's own function for it."""

from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Tool, Torch, adze, of_jax, of_torch
from programs import lse


def arguments(n: int) -> Arguments:
    return (np.random.default_rng(1).standard_normal(n),)


def with_jax() -> dict[str, Any]:
    from jax.scipy.special import logsumexp

    return of_jax(logsumexp)


def with_torch() -> dict[str, Any]:
    import torch

    return of_torch(lambda x: torch.logsumexp(x, 0))


def with_scipy() -> dict[str, Any]:
    from scipy.special import logsumexp, softmax

    return {"primal": logsumexp, "gradient": softmax}


MAIN = {"n": 160000}
LINES = [
    Line(
        "lse",
        "Logarithm of a sum of exponentials",
        [{"n": 10000}, MAIN, {"n": 1280000}],
        arguments,
        [
            *adze({"primal": lse.logsumexp, "gradient": lse.gradient}),
            Contender("JAX", Jax(), with_jax),
            Contender("PyTorch", Torch(), with_torch),
            Contender("SciPy, by hand", Tool(), with_scipy),
        ],
        main=MAIN,
        ablated=True,
    )
]
