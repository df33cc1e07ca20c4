"""Layers and networks from textbooks (programs/networks.py), and the same in JAX, PyTorch and Numba, in f32.

Convolutions are the library's in JAX and PyTorch, and loops in Numba. Networks have structures of parameters, of which
gradients have the structure.
"""

import itertools
from typing import Any

import numpy as np
from contenders import (
    Arguments,
    Contender,
    Jax,
    Line,
    Numba,
    Torch,
    adze,
    of_jax,
    of_torch,
    pulled_by_jax,
    pulled_by_torch,
)
from programs import networks

import adze as az
from lines.everyday import in_jax, in_torch, random


def drawn(*shapes: tuple[int, ...]) -> list[Any]:
    return random(*shapes, dtype=np.float32)


def dense(*shapes: tuple[int, ...]) -> list[Any]:
    """Weights whose products with numbers of size one are about as large."""
    return [array / np.float32(np.sqrt(array.shape[0])) for array in drawn(*shapes)]


def with_slopes_by_torch(f: Any) -> dict[str, Any]:
    """A function of a structure of parameters, and its value with the gradient, in PyTorch."""
    import torch

    def gradient(*given: Any) -> Any:
        slopes, value = torch.func.grad_and_value(f)(*given)
        return value, slopes

    return {"primal": f, "gradient": gradient}


# Convolutions


def signal(c: int, o: int, n: int) -> Arguments:
    return tuple(drawn((c, n), (o, c, 5)))


def volume(c: int, o: int, n: int) -> Arguments:
    return tuple(drawn((c, n, n, n), (o, c, 3, 3, 3)))


def image(c: int, o: int, n: int) -> Arguments:
    return tuple(drawn((c, n, n), (o, c, 3, 3)))


def planes(c: int, n: int) -> Arguments:
    return tuple(drawn((c, n, n), (c, 3, 3)))


def jax_convolution(axes: str, stride: int = 1) -> Any:
    """The convolution along axes with these letters."""
    from jax import lax

    letters, strides = (f"NC{axes}", f"OI{axes}", f"NC{axes}"), (stride,) * len(axes)
    return lambda x, kernels: lax.conv_general_dilated(x[None], kernels, strides, "VALID", dimension_numbers=letters)[0]


def jax_depthwise(x: Any, kernels: Any) -> Any:
    from jax import lax

    letters = "NCHW", "OIHW", "NCHW"
    c = x.shape[0]
    return lax.conv_general_dilated(
        x[None], kernels[:, None], (1, 1), "VALID", dimension_numbers=letters, feature_group_count=c
    )[0]


def torch_convolution(x: Any, kernels: Any) -> Any:
    import torch

    convolution = torch.nn.functional.conv1d if x.ndim == 2 else torch.nn.functional.conv3d
    return convolution(x[None], kernels)[0]


def torch_strided(x: Any, kernels: Any) -> Any:
    import torch

    return torch.nn.functional.conv2d(x[None], kernels, stride=2)[0]


def torch_depthwise(x: Any, kernels: Any) -> Any:
    import torch

    return torch.nn.functional.conv2d(x[None], kernels[:, None], groups=len(x))[0]


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


# Networks that tell classes apart


def pictures(b: int, n: int) -> Arguments:
    inner = ((n - 2) // 2 - 2) // 2
    first, bias, more, more_bias, last_bias, images = drawn((8, 1, 3, 3), (8,), (16, 8, 3, 3), (16,), (10,), (b, n, n))
    (weights,) = dense((16 * inner**2, 10))
    labels = np.random.default_rng(1).integers(0, 10, b)
    return ((first / 3, bias), (more / 9, more_bias), (weights, last_bias)), images, labels


def jax_cross_entropy(scores: Any, labels: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1))


def jax_convolutional(parameters: Any, images: Any, labels: Any) -> Any:
    import jax
    from jax import lax

    *convolutions, (weights, last_bias) = parameters
    x = images[:, None]
    for kernels, bias in convolutions:
        x = lax.conv_general_dilated(x, kernels, (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW"))
        x = jax.nn.relu(x + bias[:, None, None])
        x = lax.reduce_window(x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return jax_cross_entropy(x.reshape(len(x), -1) @ weights + last_bias, labels)


def torch_convolutional(parameters: Any, images: Any, labels: Any) -> Any:
    import torch

    *convolutions, (weights, last_bias) = parameters
    x = images[:, None]
    for kernels, bias in convolutions:
        x = torch.nn.functional.max_pool2d(torch.relu(torch.nn.functional.conv2d(x, kernels, bias)), 2)
    return torch.nn.functional.cross_entropy(x.flatten(1) @ weights + last_bias, labels)


def layers(b: int) -> Arguments:
    """Parameters, their moments, the step, inputs and labels."""
    widths = 784, 256, 128, 10
    weights = dense(*itertools.pairwise(widths))
    parameters = tuple(zip(weights, drawn(*((width,) for width in widths[1:])), strict=True))
    moments = tuple(tuple((p / 10, p**2) for p in layer) for layer in parameters)
    (x,) = drawn((b, 784))
    return parameters, moments, np.float32(10), x, np.random.default_rng(1).integers(0, 10, b)


def of_layers(function: str, arguments: Arguments) -> Arguments:
    """Only the step takes the moments."""
    return arguments if function == "step" else (arguments[0], *arguments[3:])


def jax_perceptron(parameters: Any, x: Any, labels: Any) -> Any:
    import jax

    *hidden, (weights, bias) = parameters
    for w, b in hidden:
        x = jax.nn.relu(x @ w + b)
    return jax_cross_entropy(x @ weights + bias, labels)


def torch_perceptron(parameters: Any, x: Any, labels: Any) -> Any:
    import torch

    *hidden, (weights, bias) = parameters
    for w, b in hidden:
        x = torch.relu(x @ w + b)
    return torch.nn.functional.cross_entropy(x @ weights + bias, labels)


def adam(value_and_grad: Any, root: Any) -> Any:
    """A step of Adam, in JAX and in PyTorch."""

    def moved(p: Any, slope: Any, moments: Any, t: Any) -> Any:
        m = 0.9 * moments[0] + 0.1 * slope
        v = 0.999 * moments[1] + 0.001 * slope**2
        step = (m / (1 - 0.9**t)) / (root(v / (1 - 0.999**t)) + 1e-8)
        return p - 0.001 * step, (m, v)

    def step(parameters: Any, moments: Any, t: Any, x: Any, labels: Any) -> Any:
        loss, slopes = value_and_grad(parameters, x, labels)
        new = [[moved(*of, t) for of in zip(*layer, strict=True)] for layer in zip(parameters, slopes, moments)]
        return loss, [[p for p, _ in layer] for layer in new], [[mv for _, mv in layer] for layer in new]

    return step


def with_jax_adam() -> dict[str, Any]:
    import jax.numpy as jnp

    found = of_jax(jax_perceptron, with_value=True)
    return {"primal": jax_perceptron, "gradient": found["gradient"], "step": adam(found["gradient"], jnp.sqrt)}


def with_torch_adam() -> dict[str, Any]:
    import torch

    found = with_slopes_by_torch(torch_perceptron)
    return found | {"step": adam(found["gradient"], torch.sqrt)}


# A transformer


def sequence(n: int, d: int, blocks: int = 2) -> Arguments:
    def block() -> Any:
        square, (up, down) = dense(*4 * [(d, d)]), dense((d, 4 * d), (4 * d, d))
        scale, offset, up_bias, down_bias = drawn((d,), (d,), (4 * d,), (d,))
        return {
            "first norm": (1 + scale / 4, offset),
            "second norm": (1 + offset / 4, scale),
            **dict(zip(("query", "key", "value", "out"), square, strict=True)),
            "up": up,
            "up bias": up_bias,
            "down": down,
            "down bias": down_bias,
        }

    return [block() for _ in range(blocks)], *drawn((n, d), (n, d))


def jax_norm(x: Any, scale: Any, offset: Any) -> Any:
    import jax.numpy as jnp

    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + offset


def jax_attention(x: Any, block: Any, heads: int = 4) -> Any:
    import jax
    import jax.numpy as jnp

    n, d = x.shape
    q, k, v = ((x @ block[name]).reshape(n, heads, d // heads) for name in ("query", "key", "value"))
    weights = jax.nn.softmax(jnp.einsum("nhd,mhd->hnm", q, k) / np.float32(np.sqrt(d // heads)), -1)
    return jnp.einsum("hnm,mhd->nhd", weights, v).reshape(n, d) @ block["out"]


def jax_transformer(blocks: Any, x: Any, targets: Any) -> Any:
    import jax

    for block in blocks:
        x = x + jax_attention(jax_norm(x, *block["first norm"]), block)
        inner = jax.nn.gelu(jax_norm(x, *block["second norm"]) @ block["up"] + block["up bias"], approximate=False)
        x = x + inner @ block["down"] + block["down bias"]
    return ((x - targets) ** 2).mean()


def torch_transformer(blocks: Any, x: Any, targets: Any, heads: int = 4) -> Any:
    import torch
    from torch.nn import functional

    n, d = x.shape
    for block in blocks:
        y = functional.layer_norm(x, (d,), *block["first norm"])
        q, k, v = ((y @ block[name]).view(n, heads, -1).transpose(0, 1) for name in ("query", "key", "value"))
        weights = torch.softmax(q @ k.transpose(1, 2) / (d // heads) ** 0.5, -1)
        x = x + (weights @ v).transpose(0, 1).reshape(n, d) @ block["out"]
        y = functional.layer_norm(x, (d,), *block["second norm"])
        x = x + functional.gelu(y @ block["up"] + block["up bias"]) @ block["down"] + block["down bias"]
    return ((x - targets) ** 2).mean()


# Recurrent networks


def lstm_sequence(b: int, h: int, t: int) -> Arguments:
    return *dense((h, 4 * h), (h, 4 * h)), *drawn((4 * h,), (t, b, h))


def jax_lstm(wx: Any, wh: Any, bias: Any, inputs: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def step(state: Any, x: Any) -> Any:
        hidden, cell = state
        i, f, o, g = jnp.split(x @ wx + hidden @ wh + bias, 4, axis=1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), None

    start = jnp.zeros((inputs.shape[1], wh.shape[0]), jnp.float32)
    (hidden, _), _ = jax.lax.scan(step, (start, start), inputs)
    return (hidden**2).mean()


def torch_lstm(wx: Any, wh: Any, bias: Any, inputs: Any) -> Any:
    import torch

    hidden = cell = torch.zeros((inputs.shape[1], wh.shape[0]))
    for x in inputs:
        i, f, o, g = (x @ wx + hidden @ wh + bias).chunk(4, dim=1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
    return (hidden**2).mean()


def gru_sequence(b: int, h: int, t: int) -> Arguments:
    def gate() -> Any:
        return *dense((h, h), (h, h)), *drawn((h,))

    return {name: gate() for name in ("update", "reset", "new")}, *drawn((t, b, h))


def jax_gru(weights: Any, inputs: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def gate(name: str, x: Any, h: Any) -> Any:
        w, u, bias = weights[name]
        return x @ w + h @ u + bias

    def step(h: Any, x: Any) -> Any:
        z = jax.nn.sigmoid(gate("update", x, h))
        r = jax.nn.sigmoid(gate("reset", x, h))
        new = jnp.tanh(gate("new", x, r * h))
        h = (1 - z) * h + z * new
        return h, h

    start = jnp.zeros((inputs.shape[1], weights["new"][1].shape[0]), jnp.float32)
    return (jax.lax.scan(step, start, inputs)[1] ** 2).mean()


def torch_gru(weights: Any, inputs: Any) -> Any:
    import torch

    def gate(name: str, x: Any, h: Any) -> Any:
        w, u, bias = weights[name]
        return x @ w + h @ u + bias

    h, found = torch.zeros((inputs.shape[1], len(weights["new"][1]))), []
    for x in inputs:
        z = torch.sigmoid(gate("update", x, h))
        r = torch.sigmoid(gate("reset", x, h))
        h = (1 - z) * h + z * torch.tanh(gate("new", x, r * h))
        found.append(h)
    return (torch.stack(found) ** 2).mean()


# Norms


def rows(n: int, m: int) -> Arguments:
    """A matrix, scale and offset, and a cotangent."""
    return tuple(drawn((n, m), (m,), (m,), (n, m)))


def of_rows(function: str, arguments: Arguments) -> Arguments:
    """Only a vjp takes the cotangent."""
    return arguments if function == "vjp" else arguments[:-1]


def jax_batch_norm(x: Any, scale: Any, offset: Any) -> Any:
    import jax.numpy as jnp

    return (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5) * scale + offset


def torch_batch_norm(x: Any, scale: Any, offset: Any) -> Any:
    import torch

    return torch.nn.functional.batch_norm(x, None, None, scale, offset, training=True)


def torch_layer_norm(x: Any, scale: Any, offset: Any) -> Any:
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[1:], scale, offset)


def with_numba_batch_norm() -> dict[str, Any]:
    import numba

    def normalized(x: Any, scale: Any, offset: Any) -> Any:
        n, m = x.shape
        mean, variance, out = np.zeros(m, np.float32), np.zeros(m, np.float32), np.empty_like(x)
        for i in range(n):
            for j in range(m):
                mean[j] += x[i, j] / np.float32(n)
        for i in range(n):
            for j in range(m):
                variance[j] += (x[i, j] - mean[j]) ** 2 / np.float32(n)
        for i in numba.prange(n):
            for j in range(m):
                out[i, j] = (x[i, j] - mean[j]) / np.sqrt(variance[j] + np.float32(1e-5)) * scale[j] + offset[j]
        return out

    return {"primal": normalized}


def with_numba_layer_norm() -> dict[str, Any]:
    import numba

    def normalized(x: Any, scale: Any, offset: Any) -> Any:
        n, m = x.shape
        out = np.empty_like(x)
        for i in numba.prange(n):
            mean = np.float32(0)
            for j in range(m):
                mean += x[i, j]
            mean /= np.float32(m)
            variance = np.float32(0)
            for j in range(m):
                variance += (x[i, j] - mean) ** 2
            root = np.sqrt(variance / np.float32(m) + np.float32(1e-5))
            for j in range(m):
                out[i, j] = (x[i, j] - mean) / root * scale[j] + offset[j]
        return out

    return {"primal": normalized}


# Graphs


def graph(n: int, e: int, d: int) -> Arguments:
    """Edges between random nodes, in compressed rows."""
    generator = np.random.default_rng(1)
    starts = np.concatenate([[0], np.cumsum(generator.multinomial(e, np.full(n, 1 / n)))])
    columns = generator.integers(0, n, e)
    values, x = drawn((e,), (n, d))
    return values, columns, starts, x, *dense((d, d))


def jax_graph(values: Any, columns: Any, rows: Any, x: Any, weights: Any) -> Any:
    import jax
    import jax.numpy as jnp

    n = rows.shape[0] - 1
    row = jnp.repeat(jnp.arange(n), jnp.diff(rows), total_repeat_length=values.shape[0])
    around = jax.ops.segment_sum(values[:, None] * x[columns], row, n, indices_are_sorted=True)
    return jax.nn.relu(around @ weights)


def torch_graph(values: Any, columns: Any, rows: Any, x: Any, weights: Any) -> Any:
    import torch

    matrix = torch.sparse_csr_tensor(rows, columns, values, (len(rows) - 1, len(x)), check_invariants=False)
    return torch.relu(matrix @ x @ weights)


def with_numba_graph() -> dict[str, Any]:
    import numba

    def convolved(values: Any, columns: Any, rows: Any, x: Any, weights: Any) -> Any:
        n, d = len(rows) - 1, x.shape[1]
        around = np.zeros((n, d), np.float32)
        for i in numba.prange(n):
            for e in range(rows[i], rows[i + 1]):
                for j in range(d):
                    around[i, j] += values[e] * x[columns[e], j]
        return np.maximum(around @ weights, np.float32(0))

    return {"primal": convolved}


BOTH, ALL = (0, 1), (0, 1, 2)
SIGNAL, VOLUME, IMAGE, PLANES = (
    {"c": 64, "o": 64, "n": 4096},
    {"c": 4, "o": 8, "n": 32},
    {"c": 16, "o": 32, "n": 56},
    {"c": 32, "n": 56},
)
PICTURES, LAYERS, SEQUENCE, STEPS = {"b": 16, "n": 28}, {"b": 256}, {"n": 128, "d": 128}, {"b": 32, "h": 128, "t": 64}
COLUMNS, ROWS, GRAPH = {"n": 256, "m": 512}, {"n": 1024, "m": 512}, {"n": 10_000, "e": 100_000, "d": 32}
LINES = [
    Line(
        "convolution, 1-D",
        "Convolution of a signal of 64 channels with kernels of 5 places",
        [SIGNAL],
        signal,
        [
            *adze(
                {"primal": networks.convolution_1d, "gradient": az.grad(networks.convolution_1d_squares, argnums=BOTH)}
            ),
            Contender("JAX", Jax(), lambda: in_jax(jax_convolution("W"), BOTH)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_convolution, BOTH)),
            Contender("Numba", Numba(), with_numba_1d),
        ],
        main=SIGNAL,
        tolerance=1e-4,
    ),
    Line(
        "convolution, 3-D",
        "Convolution of a volume with 3 x 3 x 3 kernels",
        [VOLUME],
        volume,
        [
            *adze(
                {"primal": networks.convolution_3d, "gradient": az.grad(networks.convolution_3d_squares, argnums=BOTH)}
            ),
            Contender("JAX", Jax(), lambda: in_jax(jax_convolution("DHW"), BOTH)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_convolution, BOTH)),
            Contender("Numba", Numba(), with_numba_3d),
        ],
        main=VOLUME,
        tolerance=1e-4,
    ),
    Line(
        "convolution, strided",
        "Convolution of an image at every second place",
        [IMAGE],
        image,
        [
            *adze({"primal": networks.strided, "gradient": az.grad(networks.strided_squares, argnums=BOTH)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_convolution("HW", 2), BOTH)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_strided, BOTH)),
            Contender("Numba", Numba(), with_numba_strided),
        ],
        main=IMAGE,
        tolerance=1e-4,
    ),
    Line(
        "convolution, depthwise",
        "Convolution of each channel with a kernel of its own",
        [PLANES],
        planes,
        [
            *adze({"primal": networks.depthwise, "gradient": az.grad(networks.depthwise_squares, argnums=BOTH)}),
            Contender("JAX", Jax(), lambda: in_jax(jax_depthwise, BOTH)),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_depthwise, BOTH)),
            Contender("Numba", Numba(), with_numba_depthwise),
        ],
        main=PLANES,
        tolerance=1e-4,
    ),
    Line(
        "convolutional network",
        "Loss of two convolutions with pooling and a dense layer",
        [PICTURES],
        pictures,
        [
            *adze({"primal": networks.convolutional, "gradient": az.value_and_grad(networks.convolutional)}),
            Contender("JAX", Jax(), lambda: of_jax(jax_convolutional, with_value=True)),
            Contender("PyTorch", Torch(), lambda: with_slopes_by_torch(torch_convolutional)),
        ],
        main=PICTURES,
        tolerance=1e-4,
    ),
    Line(
        "Adam",
        "Loss of three dense layers, and a step of Adam",
        [LAYERS],
        layers,
        [
            *adze(
                {
                    "primal": networks.perceptron,
                    "gradient": az.value_and_grad(networks.perceptron),
                    "step": networks.adam,
                }
            ),
            Contender("JAX", Jax(), with_jax_adam),
            Contender("PyTorch", Torch(), with_torch_adam),
        ],
        functions=("primal", "step", "gradient"),
        main=LAYERS,
        given=of_layers,
        tolerance=1e-4,
    ),
    Line(
        "transformer",
        "Loss of two blocks of a transformer",
        [SEQUENCE],
        sequence,
        [
            *adze({"primal": networks.transformer, "gradient": az.value_and_grad(networks.transformer)}),
            Contender("JAX", Jax(), lambda: of_jax(jax_transformer, with_value=True)),
            Contender("PyTorch", Torch(), lambda: with_slopes_by_torch(torch_transformer)),
        ],
        main=SEQUENCE,
        tolerance=1e-4,
    ),
    Line(
        "LSTM, textbook",
        "LSTM with matrices, all products in the loop",
        [STEPS],
        lstm_sequence,
        [
            *adze({"primal": networks.lstm, "gradient": az.grad(networks.lstm, argnums=ALL)}),
            Contender("JAX", Jax(), lambda: of_jax(jax_lstm, ALL)),
            Contender("PyTorch", Torch(), lambda: of_torch(torch_lstm, ALL)),
        ],
        main=STEPS,
        tolerance=1e-4,
    ),
    Line(
        "GRU",
        "GRU with matrices of its own for each gate",
        [STEPS],
        gru_sequence,
        [
            *adze({"primal": networks.gru, "gradient": az.value_and_grad(networks.gru)}),
            Contender("JAX", Jax(), lambda: of_jax(jax_gru, with_value=True)),
            Contender("PyTorch", Torch(), lambda: with_slopes_by_torch(torch_gru)),
        ],
        main=STEPS,
        tolerance=1e-4,
    ),
    Line(
        "batch norm",
        "Batch norm of columns",
        [COLUMNS],
        rows,
        [
            *adze({"primal": networks.batch_norm, "vjp": az.vjp(networks.batch_norm, argnums=ALL)}),
            Contender("JAX", Jax(), lambda: pulled_by_jax(jax_batch_norm, ALL)),
            Contender("PyTorch", Torch(), lambda: pulled_by_torch(torch_batch_norm, ALL)),
            Contender("Numba", Numba(), with_numba_batch_norm),
        ],
        functions=("primal", "vjp"),
        main=COLUMNS,
        given=of_rows,
        tolerance=1e-4,
    ),
    Line(
        "layer norm",
        "Layer norm of rows",
        [ROWS],
        rows,
        [
            *adze({"primal": networks.layer_norm, "vjp": az.vjp(networks.layer_norm, argnums=ALL)}),
            Contender("JAX", Jax(), lambda: pulled_by_jax(jax_norm, ALL)),
            Contender("PyTorch", Torch(), lambda: pulled_by_torch(torch_layer_norm, ALL)),
            Contender("Numba", Numba(), with_numba_layer_norm),
        ],
        functions=("primal", "vjp"),
        main=ROWS,
        given=of_rows,
        tolerance=1e-4,
    ),
    Line(
        "graph convolution",
        "Graph convolution over compressed rows",
        [GRAPH],
        graph,
        [
            *adze(
                {
                    "primal": networks.graph_convolution,
                    "gradient": az.grad(networks.graph_convolution_squares, argnums=(3, 4)),
                }
            ),
            Contender("JAX", Jax(), lambda: in_jax(jax_graph, (3, 4))),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_graph, (3, 4))),
            Contender("Numba", Numba(), with_numba_graph),
        ],
        main=GRAPH,
        tolerance=1e-4,
    ),
]
