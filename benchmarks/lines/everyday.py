"""Programs that people write from their textbooks (programs/everyday.py), and the same in JAX and PyTorch.

JAX's are written as its users do: a convolution and a maximum of windows are its library's, a Cholesky factor by hand
is a loop, as in Adze. Neural networks are in f32.
"""

from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Tool, Torch, adze, of_jax, of_torch
from programs import everyday

import adze as az


def random(*shapes: tuple[int, ...], dtype: Any = np.float64) -> list[Any]:
    drawn = np.random.default_rng(1)
    return [drawn.standard_normal(shape).astype(dtype) for shape in shapes]


def squares(f: Any) -> Any:
    return lambda *given: (f(*given) ** 2).sum()


def in_jax(f: Any, argnums: int | tuple[int, ...]) -> dict[str, Any]:
    """A function to an array, and the gradient of the sum of its squares, in JAX."""
    return {"primal": f, "gradient": of_jax(squares(f), argnums)["gradient"]}


def in_torch(f: Any, argnums: tuple[int, ...]) -> dict[str, Any]:
    """The same in PyTorch."""
    return {"primal": f, "gradient": of_torch(squares(f), argnums)["gradient"]}


# Convolutions


def layer(c: int, o: int, n: int) -> Arguments:
    return tuple(random((c, n, n), (o, c, 3, 3), dtype=np.float32))


def jax_convolution(image: Any, kernels: Any) -> Any:
    from jax import lax

    axes = "NCHW", "OIHW", "NCHW"
    return lax.conv_general_dilated(image[None], kernels, (1, 1), "VALID", dimension_numbers=axes)[0]


def jax_pooled(image: Any, kernels: Any) -> Any:
    import jax
    from jax import lax

    found = jax.nn.relu(jax_convolution(image, kernels))
    return lax.reduce_window(found, -np.inf, lax.max, (1, 2, 2), (1, 2, 2), "VALID")


def torch_convolution(image: Any, kernels: Any) -> Any:
    import torch

    return torch.nn.functional.conv2d(image[None], kernels)[0]


def torch_pooled(image: Any, kernels: Any) -> Any:
    import torch

    return torch.nn.functional.max_pool2d(torch.relu(torch_convolution(image, kernels)), 2)


# Stencils


def grid(n: int) -> Arguments:
    return tuple(random((n, n), (7, 7)))


def jax_smoothed(u: Any, weights: Any) -> Any:
    import jax.numpy as jnp

    (n, m), padded = u.shape, jnp.pad(u, 3)
    return sum(weights[y, x] * padded[y : y + n, x : x + m] for y in range(7) for x in range(7))


def torch_smoothed(u: Any, weights: Any) -> Any:
    import torch

    return torch.nn.functional.conv2d(u[None, None], weights[None, None], padding=3)[0, 0]


def warmth(n: int, steps: int) -> Arguments:
    return (*random((n, n)), steps)


def jax_heat(start: Any, steps: int) -> Any:
    import jax.numpy as jnp
    from jax import lax

    def step(u: Any, _: Any) -> Any:
        around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
        return u + 0.1 * (around - 4 * u), None

    return lax.scan(step, start, length=steps)[0]


# Attention


def heads(b: int, n: int, d: int) -> Arguments:
    return tuple(random((b, n, d), (b, n, d), (b, n, d), dtype=np.float32))


def jax_attention(queries: Any, keys: Any, values: Any) -> Any:
    import jax
    import jax.numpy as jnp

    scores = jnp.einsum("bnd,bmd->bnm", queries, keys) / np.float32(np.sqrt(queries.shape[-1]))
    return jnp.einsum("bnm,bmd->bnd", jax.nn.softmax(scores, -1), values)


def torch_attention(queries: Any, keys: Any, values: Any) -> Any:
    import torch

    return torch.nn.functional.scaled_dot_product_attention(queries, keys, values)


# Regressions


def labelled(n: int, d: int) -> Arguments:
    weights, x, drawn = random((d,), (n, d), (n,))
    return weights, x, (drawn > 0).astype(np.float64)


def jax_logistic(weights: Any, x: Any, labels: Any) -> Any:
    import jax.numpy as jnp

    scores = x @ weights
    return jnp.mean(jnp.logaddexp(scores, 0.0) - scores * labels)


def torch_logistic(weights: Any, x: Any, labels: Any) -> Any:
    import torch

    return torch.nn.functional.binary_cross_entropy_with_logits(x @ weights, labels)


def observed(n: int) -> Arguments:
    return (*random((n, 3), (n,)), 1.0, 0.1)


def jax_gaussian_process(x: Any, y: Any, scale: Any, noise: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    n = y.shape[0]
    covariance = jnp.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(-1) / scale**2) + noise * jnp.eye(n)

    def column(j: Any, factor: Any) -> Any:
        rest = covariance[:, j] - factor @ factor[j]
        below = jnp.where(jnp.arange(n) >= j, rest / jnp.sqrt(rest[j]), 0.0)
        return factor.at[:, j].set(below)

    factor = lax.fori_loop(0, n, column, jnp.zeros((n, n)))
    z = lax.fori_loop(0, n, lambda i, z: z.at[i].set((y[i] - factor[i] @ z) / factor[i, i]), jnp.zeros(n))
    return 0.5 * (z @ z) + jnp.log(jnp.diagonal(factor)).sum() + 0.5 * n * np.log(2 * np.pi)


def signal(stages: int) -> Arguments:
    return (*random((1 << stages,), (1 << stages,)), stages)


def jax_fourier(real: Any, imaginary: Any, stages: Any) -> Any:
    import jax.numpy as jnp

    n = real.shape[0]
    k = jnp.arange(n)
    for stage in range(stages):
        m = 1 << stage
        j = k % m
        i = k // (2 * m) * m + j
        c, s = jnp.cos(-jnp.pi * j / m), jnp.sin(-jnp.pi * j / m)
        x, y = real[i + n // 2], imaginary[i + n // 2]
        sign = jnp.where(k // m % 2 == 0, 1.0, -1.0)
        real, imaginary = real[i] + sign * (c * x - s * y), imaginary[i] + sign * (c * y + s * x)
    return real, imaginary


def with_jax_fourier() -> dict[str, Any]:
    def cubes(*given: Any) -> Any:
        return sum((part**3).sum() for part in jax_fourier(*given))

    return {"primal": jax_fourier, "gradient": of_jax(cubes, BOTH)["gradient"]}


def with_numpy_fourier() -> dict[str, Any]:
    def transformed(real: Any, imaginary: Any, stages: int) -> Any:
        found = np.fft.fft(real + 1j * imaginary)
        return found.real, found.imag

    return {"primal": transformed}


BOTH = (0, 1)
FEW, MANY = {"c": 1, "o": 16, "n": 56}, {"c": 16, "o": 32, "n": 56}
GRID, TORUS = {"n": 512}, {"n": 256, "steps": 200}
SIGNAL = {"stages": 14}
HEADS, LABELLED, OBSERVED = {"b": 8, "n": 256, "d": 64}, {"n": 100_000, "d": 100}, {"n": 300}
LINES = [
    Line(
        "convolution",
        "Convolution of an image with 3 x 3 kernels",
        [MANY],
        layer,
        [
            *adze({"primal": everyday.convolution, "gradient": az.grad(everyday.convolution_squares, argnums=BOTH)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_convolution, BOTH)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_convolution, BOTH)),
        ],
        main=MANY,
        tolerance=1e-4,
    ),
    Line(
        "convolution, pooled",
        "Convolution of an image of one channel, and the greatest of each square of four",
        [FEW],
        layer,
        [
            *adze({"primal": everyday.pooled, "gradient": az.grad(everyday.pooled_squares, argnums=BOTH)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_pooled, BOTH)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_pooled, BOTH)),
        ],
        main=FEW,
        tolerance=1e-4,
    ),
    Line(
        "stencil",
        "Stencil of 7 x 7 points with zeros around",
        [GRID],
        grid,
        [
            *adze({"primal": everyday.smoothed, "gradient": az.grad(everyday.smoothed_squares)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_smoothed, 0)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_smoothed, (0,))),
        ],
        main=GRID,
    ),
    Line(
        "heat",
        "Heat equation on a torus",
        [TORUS],
        warmth,
        [
            *adze({"primal": everyday.heat, "gradient": az.grad(everyday.heat_squares)}),
            Contender("JAX", Jax(static=(1,)), lambda: in_jax(jax_heat, 0)),
        ],
        main=TORUS,
    ),
    Line(
        "attention",
        "Attention, head by head",
        [HEADS],
        heads,
        [
            *adze({"primal": everyday.attention, "gradient": az.grad(everyday.attention_squares, argnums=(0, 1, 2))}),
            Contender("JAX", Jax(), lambda: in_jax(jax_attention, (0, 1, 2))),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_attention, (0, 1, 2))),
        ],
        main=HEADS,
        tolerance=1e-4,
    ),
    Line(
        "logistic",
        "Loss of a logistic regression",
        [LABELLED],
        labelled,
        [
            *adze({"primal": everyday.logistic, "gradient": az.grad(everyday.logistic)}),
            Contender("JAX", Jax(), lambda: of_jax(jax_logistic)),
            Contender("PyTorch", Torch(), lambda: of_torch(torch_logistic)),
        ],
        main=LABELLED,
    ),
    Line(
        "gaussian process",
        "Likelihood of a Gaussian process, with a Cholesky factor by hand",
        [OBSERVED],
        observed,
        [
            *adze(
                {
                    "primal": everyday.gaussian_process,
                    "gradient": az.grad(everyday.gaussian_process, argnums=(0, 2, 3)),
                }
            ),
            Contender("JAX", Jax(), lambda: of_jax(jax_gaussian_process, (0, 2, 3))),
        ],
        main=OBSERVED,
    ),
    Line(
        "fourier",
        "Fourier transform by hand",
        [SIGNAL],
        signal,
        [
            *adze({"primal": everyday.fourier, "gradient": az.grad(everyday.fourier_cubes, argnums=BOTH)}),
            Contender("JAX", Jax(static=(2,)), with_jax_fourier),
            Contender("NumPy, fft", Tool(), with_numpy_fourier),
        ],
        main=SIGNAL,
    ),
]
