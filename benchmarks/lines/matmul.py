"""The product of square matrices with the gradient of the sum of its squares, and a network of two layers."""

from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Tool, Torch, adze, of_jax, of_torch

import adze as az

Matrix = az.Array[az.f64, "n n"]


@az.program
def product(a: Matrix, b: Matrix) -> Matrix:
    return a @ b


@az.program
def squares(a: Matrix, b: Matrix) -> az.f64:
    """The sum of the squares of the product."""
    return az.sum((a @ b) ** 2)


def arguments(n: int) -> Arguments:
    random = np.random.default_rng(1)
    return random.standard_normal((n, n)), random.standard_normal((n, n))


def numpy_gradient(a: Any, b: Any) -> Any:
    cotangent = a @ b
    cotangent *= 2
    return cotangent @ b.T, a.T @ cotangent


def products(gradient: Any) -> dict[str, Any]:
    return {"product": lambda a, b: a @ b, "gradient": gradient}


def with_jax() -> dict[str, Any]:
    return products(of_jax(lambda a, b: ((a @ b) ** 2).sum(), (0, 1))["gradient"])


def with_torch() -> dict[str, Any]:
    return products(of_torch(lambda a, b: ((a @ b) ** 2).sum(), (0, 1))["gradient"])


# A network: bs inputs of i numbers, h hidden units, o outputs


@az.program
def network(
    w1: az.Array[az.f64, "i h"],
    b1: az.Array[az.f64, "h"],
    w2: az.Array[az.f64, "h o"],
    b2: az.Array[az.f64, "o"],
    inputs: az.Array[az.f64, "bs i"],
    targets: az.Array[az.f64, "bs o"],
) -> az.f64:
    """The mean squared error of a batch."""
    return az.mean((az.tanh(inputs @ w1 + b1) @ w2 + b2 - targets) ** 2)


def network_arguments(bs: int, i: int, h: int, o: int) -> Arguments:
    random = np.random.default_rng(1)
    w1, w2 = random.standard_normal((i, h)) / np.sqrt(i), random.standard_normal((h, o)) / np.sqrt(h)
    b1, b2 = random.standard_normal(h), random.standard_normal(o)
    return w1, b1, w2, b2, random.standard_normal((bs, i)), random.standard_normal((bs, o))


def jax_network(w1: Any, b1: Any, w2: Any, b2: Any, inputs: Any, targets: Any) -> Any:
    import jax.numpy as jnp

    return jnp.mean((jnp.tanh(inputs @ w1 + b1) @ w2 + b2 - targets) ** 2)


def torch_network(w1: Any, b1: Any, w2: Any, b2: Any, inputs: Any, targets: Any) -> Any:
    import torch

    hidden = torch.tanh(torch.addmm(b1, inputs, w1))
    return ((torch.addmm(b2, hidden, w2) - targets) ** 2).mean()


WEIGHTS = (0, 1, 2, 3)
MAIN = {"n": 1000}
BATCH = {"bs": 256, "i": 784, "h": 256, "o": 10}
LINES = [
    Line(
        "matmul",
        "Product of square matrices",
        [{"n": 30}, {"n": 100}, {"n": 300}, MAIN],
        arguments,
        [
            *adze({"product": product, "gradient": az.grad(squares, argnums=(0, 1))}),
            Contender("JAX", Jax(), with_jax),
            Contender("PyTorch", Torch(), with_torch),
            Contender("NumPy", Tool(), lambda: products(numpy_gradient)),
        ],
        functions=("product", "gradient"),
        main=MAIN,
        ablated=True,
        notes="The gradient of the sum of the squares of the product, by both matrices: three products.",
    ),
    Line(
        "network",
        "Network of two layers on a batch",
        [{"bs": 32, "i": 20, "h": 30, "o": 5}, BATCH],
        network_arguments,
        [
            *adze({"primal": network, "gradient": az.value_and_grad(network, argnums=WEIGHTS)}),
            Contender("JAX", Jax(), lambda: of_jax(jax_network, WEIGHTS, True)),
            Contender("PyTorch", Torch(), lambda: of_torch(torch_network, WEIGHTS, True)),
        ],
        main=BATCH,
        ablated=True,
    ),
]
