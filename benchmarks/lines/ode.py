"""An ordinary differential equation by the Runge-Kutta method (programs/ode.py)."""

from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Tool, Torch, adze, of_jax, of_torch
from programs import ode


def arguments(n: int, s: int) -> Arguments:
    return np.random.default_rng(1).standard_normal(n), s


def stepped(f: Any, y: Any, h: float) -> Any:
    """One step of the method."""
    k1 = f(y)
    k2 = f(y + h / 2 * k1)
    k3 = f(y + h / 2 * k2)
    k4 = f(y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def jax_last(x: Any, s: int) -> Any:
    import jax
    import jax.numpy as jnp

    def f(y: Any) -> Any:
        return x * jnp.concatenate([jnp.ones(1), y[:-1]])

    return jax.lax.scan(lambda y, _: (stepped(f, y, 2 / s), None), jnp.zeros_like(x), None, length=s)[0][-1]


def torch_last(x: Any, s: int) -> Any:
    import torch

    one = torch.ones(1, dtype=x.dtype)
    y = torch.zeros_like(x)
    for _ in range(s):
        y = stepped(lambda y: x * torch.cat([one, y[:-1]]), y, 2 / s)
    return y[-1]


def numpy_last(x: Any, s: int) -> Any:
    def f(y: Any) -> Any:
        result = np.empty_like(x)
        result[0] = x[0]
        np.multiply(x[1:], y[:-1], out=result[1:])
        return result

    y = np.zeros_like(x)
    for _ in range(s):
        y = stepped(f, y, 2 / s)
    return y[-1]


MAIN = {"n": 100000, "s": 100}
LINES = [
    Line(
        "ode",
        "Ordinary differential equation",
        [{"n": 1000, "s": 10}, {"n": 1000, "s": 100}, {"n": 100000, "s": 10}, MAIN],
        arguments,
        [
            *adze({"primal": ode.last, "gradient": ode.gradient}),
            Contender("JAX", Jax(static=(1,)), lambda: of_jax(jax_last)),
            Contender("PyTorch", Torch(), lambda: of_torch(torch_last)),
            Contender("NumPy", Tool(), lambda: {"primal": numpy_last}),
        ],
        main=MAIN,
        ablated=True,
    )
]
