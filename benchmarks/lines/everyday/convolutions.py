"""Convolutions of images, signals and volumes, in Adze (programs/convolutions.py) and other tools."""

from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Numba, Torch
from programs import convolutions

import adze as az
from lines.everyday import floats, in_adze, in_jax, in_torch

# Images


def image(c: int, o: int, n: int) -> Arguments:
    return tuple(floats((c, n, n), (o, c, 3, 3)))


def jax_convolution(axes: str, stride: int = 1) -> Any:
    """The convolution along axes with these letters."""
    from jax import lax

    letters, strides = (f"NC{axes}", f"OI{axes}", f"NC{axes}"), (stride,) * len(axes)
    return lambda x, kernels: lax.conv_general_dilated(x[None], kernels, strides, "VALID", dimension_numbers=letters)[0]


def torch_convolution(x: Any, kernels: Any) -> Any:
    from torch.nn import functional

    convolution = (functional.conv1d, functional.conv2d, functional.conv3d)[x.ndim - 2]
    return convolution(x[None], kernels)[0]


def jax_pooled(image: Any, kernels: Any) -> Any:
    import jax
    from jax import lax

    found = jax.nn.relu(jax_convolution("HW")(image, kernels))
    return lax.reduce_window(found, -np.inf, lax.max, (1, 2, 2), (1, 2, 2), "VALID")


def torch_pooled(image: Any, kernels: Any) -> Any:
    import torch

    return torch.nn.functional.max_pool2d(torch.relu(torch_convolution(image, kernels)), 2)


def with_numba_strided() -> dict[str, Any]:
    import numba

    def convolution(x: Any, kernels: Any) -> Any:
        (o, c, _, _), (_, h, w) = kernels.shape, x.shape
        out = np.zeros((o, (h - 3) // 2 + 1, (w - 3) // 2 + 1), np.float32)
        for f in numba.prange(o):
            for y in range(out.shape[1]):
                for at in range(out.shape[2]):
                    total = np.float32(0)
                    for i in range(c):
                        for dy in range(3):
                            for dx in range(3):
                                total += kernels[f, i, dy, dx] * x[i, 2 * y + dy, 2 * at + dx]
                    out[f, y, at] = total
        return out

    return {"primal": convolution}


def torch_strided(x: Any, kernels: Any) -> Any:
    import torch

    return torch.nn.functional.conv2d(x[None], kernels, stride=2)[0]


def planes(c: int, n: int) -> Arguments:
    return tuple(floats((c, n, n), (c, 3, 3)))


def with_numba_depthwise() -> dict[str, Any]:
    import numba

    def convolution(x: Any, kernels: Any) -> Any:
        c, h, w = x.shape
        out = np.zeros((c, h - 2, w - 2), np.float32)
        for f in numba.prange(c):
            for y in range(h - 2):
                for at in range(w - 2):
                    total = np.float32(0)
                    for dy in range(3):
                        for dx in range(3):
                            total += kernels[f, dy, dx] * x[f, y + dy, at + dx]
                    out[f, y, at] = total
        return out

    return {"primal": convolution}


def jax_depthwise(x: Any, kernels: Any) -> Any:
    from jax import lax

    letters = "NCHW", "OIHW", "NCHW"
    c = x.shape[0]
    return lax.conv_general_dilated(
        x[None], kernels[:, None], (1, 1), "VALID", dimension_numbers=letters, feature_group_count=c
    )[0]


def torch_depthwise(x: Any, kernels: Any) -> Any:
    import torch

    return torch.nn.functional.conv2d(x[None], kernels[:, None], groups=len(x))[0]


# One dimension and three


def signal(c: int, o: int, n: int) -> Arguments:
    return tuple(floats((c, n), (o, c, 5)))


def with_numba_1d() -> dict[str, Any]:
    import numba

    def convolution(x: Any, kernels: Any) -> Any:
        (o, c, k), n = kernels.shape, x.shape[1]
        out = np.zeros((o, n - k + 1), np.float32)
        for f in numba.prange(o):
            for i in range(c):
                for j in range(k):
                    for at in range(n - k + 1):
                        out[f, at] += kernels[f, i, j] * x[i, at + j]
        return out

    return {"primal": convolution}


def volume(c: int, o: int, n: int) -> Arguments:
    return tuple(floats((c, n, n, n), (o, c, 3, 3, 3)))


def with_numba_3d() -> dict[str, Any]:
    import numba

    def convolution(x: Any, kernels: Any) -> Any:
        (o, c, _, _, _), (_, p, q, r) = kernels.shape, x.shape
        out = np.zeros((o, p - 2, q - 2, r - 2), np.float32)
        for f in numba.prange(o):
            for z in range(p - 2):
                for y in range(q - 2):
                    for at in range(r - 2):
                        total = np.float32(0)
                        for i in range(c):
                            for dz in range(3):
                                for dy in range(3):
                                    for dx in range(3):
                                        total += kernels[f, i, dz, dy, dx] * x[i, z + dz, y + dy, at + dx]
                        out[f, z, y, at] = total
        return out

    return {"primal": convolution}


def work(c: int, o: int, out: int, window: int) -> float:
    """Operations of a convolution from c channels to o, at so many places with so many weights each."""
    return 2.0 * c * o * out * window


BOTH = (0, 1)
IMAGE, FEW, PLANES = {"c": 16, "o": 32, "n": 56}, {"c": 1, "o": 16, "n": 56}, {"c": 32, "n": 56}
SIGNAL, VOLUME = {"c": 64, "o": 64, "n": 4096}, {"c": 4, "o": 8, "n": 32}
LINES = [
    Line(
        "convolution",
        "Convolution of an image with 3 x 3 kernels",
        [IMAGE],
        image,
        [
            in_adze(
                {
                    "primal": convolutions.convolution,
                    "gradient": az.grad(convolutions.convolution_squares, argnums=BOTH),
                }
            ),
            Contender("JAX", Jax(), lambda: in_jax(jax_convolution("HW"), BOTH), library=True),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_convolution, BOTH)),
        ],
        main=IMAGE,
        work=lambda c, o, n: work(c, o, (n - 2) ** 2, 9),
        tolerance=1e-4,
    ),
    Line(
        "convolution, pooled",
        "Convolution of an image of one channel, and the greatest of each square of four",
        [FEW],
        image,
        [
            in_adze({"primal": convolutions.pooled, "gradient": az.grad(convolutions.pooled_squares, argnums=BOTH)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_pooled, BOTH), library=True),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_pooled, BOTH)),
        ],
        main=FEW,
        work=lambda c, o, n: work(c, o, (n - 2) ** 2, 9),
        tolerance=1e-4,
    ),
    Line(
        "convolution, strided",
        "Convolution of an image at every second place",
        [IMAGE],
        image,
        [
            in_adze({"primal": convolutions.strided, "gradient": az.grad(convolutions.strided_squares, argnums=BOTH)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_convolution("HW", 2), BOTH), library=True),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_strided, BOTH)),
            Contender("Numba", Numba(), with_numba_strided),
        ],
        main=IMAGE,
        work=lambda c, o, n: work(c, o, ((n - 1) // 2) ** 2, 9),
        tolerance=1e-4,
    ),
    Line(
        "convolution, depthwise",
        "Convolution of each channel with a kernel of its own",
        [PLANES],
        planes,
        [
            in_adze(
                {"primal": convolutions.depthwise, "gradient": az.grad(convolutions.depthwise_squares, argnums=BOTH)}
            ),
            Contender("JAX", Jax(), lambda: in_jax(jax_depthwise, BOTH), library=True),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_depthwise, BOTH)),
            Contender("Numba", Numba(), with_numba_depthwise),
        ],
        main=PLANES,
        work=lambda c, n: work(c, 1, (n - 2) ** 2, 9),
        tolerance=1e-4,
    ),
    Line(
        "convolution, 1-D",
        "Convolution of a signal of 64 channels with kernels of 5 places",
        [SIGNAL],
        signal,
        [
            in_adze(
                {
                    "primal": convolutions.convolution_1d,
                    "gradient": az.grad(convolutions.convolution_1d_squares, argnums=BOTH),
                }
            ),
            Contender("JAX", Jax(), lambda: in_jax(jax_convolution("W"), BOTH), library=True),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_convolution, BOTH)),
            Contender("Numba", Numba(), with_numba_1d),
        ],
        main=SIGNAL,
        work=lambda c, o, n: work(c, o, n - 4, 5),
        tolerance=1e-4,
    ),
    Line(
        "convolution, 3-D",
        "Convolution of a volume with 3 x 3 x 3 kernels",
        [VOLUME],
        volume,
        [
            in_adze(
                {
                    "primal": convolutions.convolution_3d,
                    "gradient": az.grad(convolutions.convolution_3d_squares, argnums=BOTH),
                }
            ),
            Contender("JAX", Jax(), lambda: in_jax(jax_convolution("DHW"), BOTH), library=True),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_convolution, BOTH)),
            Contender("Numba", Numba(), with_numba_3d),
        ],
        main=VOLUME,
        work=lambda c, o, n: work(c, o, (n - 2) ** 3, 27),
        tolerance=1e-4,
    ),
]
