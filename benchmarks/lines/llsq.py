"""Linear least squares (programs/llsq.py): the powers of t as a Vandermonde matrix, or Horner's rule."""

from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Tool, Torch, adze, of_jax, of_torch
from programs import llsq


def arguments(n: int, m: int) -> Arguments:
    return np.random.default_rng(1).standard_normal(m), n


def jax_vandermonde(x: Any, n: int) -> Any:
    import jax.numpy as jnp

    t = -1 + 2 * jnp.arange(n) / (n - 1)
    return 0.5 * jnp.sum((jnp.sign(t) - jnp.vander(t, x.shape[0], increasing=True) @ x) ** 2)


def jax_horner(x: Any, n: int) -> Any:
    import jax.numpy as jnp

    t = -1 + 2 * jnp.arange(n) / (n - 1)
    return 0.5 * jnp.sum((jnp.sign(t) - jnp.polyval(x[::-1], t)) ** 2)


def torch_vandermonde(x: Any, n: int) -> Any:
    import torch

    t = -1 + 2 * torch.arange(n, dtype=x.dtype) / (n - 1)
    return 0.5 * ((torch.sign(t) - torch.vander(t, x.shape[0], increasing=True) @ x) ** 2).sum()


def residual(x: Any, n: int) -> tuple[Any, Any]:
    t = -1 + 2 * np.arange(n) / (n - 1)
    powers = np.vander(t, x.shape[0], increasing=True)
    return powers, np.sign(t) - powers @ x


def numpy_loss(x: Any, n: int) -> Any:
    t = -1 + 2 * np.arange(n) / (n - 1)
    return 0.5 * np.sum((np.sign(t) - np.polynomial.polynomial.polyval(t, x)) ** 2)


def numpy_gradient(x: Any, n: int) -> Any:
    powers, off = residual(x, n)
    return -(off @ powers)


MAIN = {"n": 16392, "m": 128}
LINES = [
    Line(
        "llsq",
        "Linear least squares",
        [{"n": 1024, "m": 128}, MAIN],
        arguments,
        [
            *adze({"primal": llsq.loss, "gradient": llsq.gradient}),
            Contender("JAX, Vandermonde", Jax(static=(1,)), lambda: of_jax(jax_vandermonde)),
            Contender("JAX, Horner", Jax(static=(1,)), lambda: of_jax(jax_horner)),
            Contender("PyTorch, Vandermonde", Torch(), lambda: of_torch(torch_vandermonde)),
            Contender("NumPy, by hand", Tool(), lambda: {"primal": numpy_loss, "gradient": numpy_gradient}),
        ],
        main=MAIN,
        ablated=True,
    )
]
