"""Pictures: deblurring, filters, transforms, in Adze (programs/pictures.py) and other tools."""

from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Numba, Tool, Torch, of_jax, of_torch
from programs import pictures

import adze as az
from lines.everyday import in_adze, in_jax, in_torch, random, uniform

# Deblurring


def photograph(n: int) -> Arguments:
    image, kernel, observed = uniform((n, n), (9, 9), (n, n))
    return image, kernel / np.sum(kernel), observed


def jax_misfit(image: Any, kernel: Any, observed: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    blurred = lax.conv_general_dilated(image[None, None], kernel[None, None], (1, 1), "SAME")[0, 0]
    return 0.5 * jnp.sum((blurred - observed) ** 2)


def jax_misfit_by_taps(image: Any, kernel: Any, observed: Any) -> Any:
    import jax.numpy as jnp

    (n, m), p = image.shape, jnp.pad(image, 4)
    blurred = sum(kernel[y, x] * p[y : y + n, x : x + m] for y in range(9) for x in range(9))
    return 0.5 * jnp.sum((blurred - observed) ** 2)


def torch_misfit(image: Any, kernel: Any, observed: Any) -> Any:
    import torch

    blurred = torch.nn.functional.conv2d(image[None, None], kernel[None, None], padding=4)[0, 0]
    return 0.5 * ((blurred - observed) ** 2).sum()


def photograph_and_steps(n: int, steps: int) -> Arguments:
    return (*photograph(n), steps)


def jax_deblurred(misfit: Any) -> Any:
    import jax
    from jax import lax

    def descent(image: Any, kernel: Any, observed: Any, steps: int) -> Any:
        return lax.fori_loop(0, steps, lambda _, u: u - 0.5 * jax.grad(misfit)(u, kernel, observed), image)

    return {"primal": descent}


def torch_deblurred(image: Any, kernel: Any, observed: Any, steps: int) -> Any:
    for _ in range(steps):
        image = image - 0.5 * of_torch(torch_misfit)["gradient"](image, kernel, observed)
    return image


# Pictures


def picture(n: int) -> Arguments:
    return tuple(random((n, n)))


def numba_median() -> dict[str, Any]:
    from numba import prange

    def median(image: Any) -> Any:
        h, w = image.shape
        found = np.empty((h - 2, w - 2))
        for y in prange(h - 2):
            for x in range(w - 2):
                found[y, x] = np.sort(image[y : y + 3, x : x + 3].copy().ravel())[4]
        return found

    return {"primal": median}


def jax_median(image: Any) -> Any:
    import jax.numpy as jnp

    h, w = image.shape
    windows = jnp.stack([image[y : y + h - 2, x : x + w - 2] for y in range(3) for x in range(3)], -1)
    return jnp.sort(windows, -1)[..., 4]


def torch_median(image: Any) -> Any:
    return image.unfold(0, 3, 1).unfold(1, 3, 1).flatten(2).median(2).values


def scipy_median(image: Any) -> Any:
    from scipy.ndimage import median_filter

    return median_filter(image, 3)[1:-1, 1:-1]


def edges(n: int, a: int) -> Arguments:
    return 512 * np.random.default_rng(1).random((n, 2)), np.pi / a * np.arange(a), 725


def numba_hough() -> dict[str, Any]:
    from numba import prange

    def votes(points: Any, angles: Any, reach: Any) -> Any:
        found = np.zeros((len(angles), 2 * reach + 1), np.int64)
        for a in prange(len(angles)):
            c, s = np.cos(angles[a]), np.sin(angles[a])
            for i in range(len(points)):
                found[a, int(np.round(points[i, 0] * c + points[i, 1] * s)) + reach] += 1
        return found

    return {"primal": votes}


def jax_hough(points: Any, angles: Any, reach: int) -> Any:
    import jax
    import jax.numpy as jnp

    def votes(angle: Any) -> Any:
        distances = points[:, 0] * jnp.cos(angle) + points[:, 1] * jnp.sin(angle)
        return jnp.bincount(jnp.round(distances).astype(int) + reach, length=2 * reach + 1)

    return jax.vmap(votes)(angles)


def greys(n: int) -> Arguments:
    return (np.clip(120 + 25 * random((n, n))[0], 0, 255).astype(np.int64),)


def numba_equalised() -> dict[str, Any]:
    from numba import prange

    def equalised(image: Any) -> Any:
        (h, w), below = image.shape, np.zeros(256, np.int64)
        for y in range(h):
            for x in range(w):
                below[image[y, x]] += 1
        below = np.cumsum(below)
        least = below[below > 0].min()
        table = np.round(255 * (below - least) / (h * w - least)).astype(np.int64)
        found = np.empty_like(image)
        for y in prange(h):
            for x in range(w):
                found[y, x] = table[image[y, x]]
        return found

    return {"primal": equalised}


def jax_equalised(image: Any) -> Any:
    import jax.numpy as jnp

    below = jnp.cumsum(jnp.bincount(image.ravel(), length=256))
    least = jnp.where(below > 0, below, image.size).min()
    return jnp.round(255 * (below - least) / (image.size - least)).astype(int)[image]


def torch_equalised(image: Any) -> Any:
    import torch

    below = torch.bincount(image.ravel(), minlength=256).cumsum(0)
    least = below[below > 0].min()
    return (255 * (below - least) / (image.numel() - least).double()).round().long()[image]


def plane(n: int, limit: int) -> Arguments:
    return np.linspace(-2.2, 0.8, n), np.linspace(-1.2, 1.2, n), limit


def numba_mandelbrot() -> dict[str, Any]:
    from numba import prange

    def escape(real: Any, imaginary: Any, limit: Any) -> Any:
        found = np.empty((len(imaginary), len(real)), np.int64)
        for i in prange(len(imaginary)):
            for j in range(len(real)):
                x, y, k = 0.0, 0.0, 0
                while x * x + y * y <= 4 and k < limit:
                    x, y, k = x * x - y * y + real[j], 2 * x * y + imaginary[i], k + 1
                found[i, j] = k
        return found

    return {"primal": escape}


def jax_mandelbrot(real: Any, imaginary: Any, limit: Any) -> Any:
    import jax
    from jax import lax

    def steps(a: Any, b: Any) -> Any:
        def inside(state: Any) -> Any:
            x, y, k = state
            return (x**2 + y**2 <= 4) & (k < limit)

        def step(state: Any) -> Any:
            x, y, k = state
            return x**2 - y**2 + a, 2 * x * y + b, k + 1

        return lax.while_loop(inside, step, (0.0, 0.0, 0))[2]

    return jax.vmap(jax.vmap(steps, (0, None)), (None, 0))(real, imaginary)


PHOTOGRAPH = {"n": 256}
DESCENT = {"n": 256, "steps": 10}
PICTURE = {"n": 512}
EDGES = {"n": 5000, "a": 180}
PRIMAL = ("primal",)
GREYS = {"n": 1024}
PLANE = {"n": 512, "limit": 100}
LINES = [
    Line(
        "deblurring, misfit",
        "Misfit of an image that is blurred by 9 x 9 points",
        [PHOTOGRAPH],
        photograph,
        [
            in_adze({"primal": pictures.misfit, "gradient": az.grad(pictures.misfit)}),
            Contender("JAX", Jax(), lambda: of_jax(jax_misfit), library=True),
            Contender("JAX, by taps", Jax(), lambda: of_jax(jax_misfit_by_taps)),
            Contender("PyTorch", Torch(), lambda: of_torch(torch_misfit)),
        ],
        main=PHOTOGRAPH,
    ),
    Line(
        "deblurring, descent",
        "Ten steps of gradient descent towards a sharp image",
        [DESCENT],
        photograph_and_steps,
        [
            in_adze({"primal": pictures.deblurred}),
            Contender("JAX", Jax(static=(3,)), lambda: jax_deblurred(jax_misfit), library=True),
            Contender("JAX, by taps", Jax(static=(3,)), lambda: jax_deblurred(jax_misfit_by_taps)),
            Contender("PyTorch", Torch(), lambda: {"primal": torch_deblurred}),
        ],
        functions=("primal",),
        main=DESCENT,
    ),
    Line(
        "median",
        "Median of each window of 3 x 3",
        [PICTURE],
        picture,
        [
            in_adze({"primal": pictures.median, "gradient": az.grad(pictures.median_squares)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_median, 0)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_median, (0,))),
            Contender("Numba", Numba(), numba_median),
            Contender("SciPy", Tool(), lambda: {"primal": scipy_median}),
        ],
        main=PICTURE,
    ),
    Line(
        "hough",
        "Hough transform for lines",
        [EDGES],
        edges,
        [
            in_adze({"primal": pictures.hough}),
            Contender("JAX", Jax(static=(2,)), lambda: {"primal": jax_hough}),
            Contender("Numba", Numba(), numba_hough),
        ],
        functions=PRIMAL,
        main=EDGES,
    ),
    Line(
        "equalised",
        "Histogram equalisation",
        [GREYS],
        greys,
        [
            in_adze({"primal": pictures.equalised}),
            Contender("JAX", Jax(), lambda: {"primal": jax_equalised}),
            Contender("PyTorch", Torch(), lambda: {"primal": torch_equalised}),
            Contender("Numba", Numba(), numba_equalised),
        ],
        functions=PRIMAL,
        main=GREYS,
    ),
    Line(
        "mandelbrot",
        "Mandelbrot set",
        [PLANE],
        plane,
        [
            in_adze({"primal": pictures.mandelbrot}),
            Contender("JAX", Jax(), lambda: {"primal": jax_mandelbrot}),
            Contender("Numba", Numba(), numba_mandelbrot),
        ],
        functions=PRIMAL,
        main=PLANE,
    ),
]
