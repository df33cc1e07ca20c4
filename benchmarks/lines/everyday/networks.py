"""Layers and networks, in Adze (programs/networks.py) and other tools."""

import itertools
from typing import Any

import numpy as np
from contenders import (
    Arguments,
    CompiledTorch,
    Contender,
    Jax,
    Line,
    Numba,
    Torch,
    of_jax,
    of_torch,
    pulled_by_jax,
    pulled_by_torch,
    torch_compiled,
)
from programs import networks

import adze as az
from lines.everyday import floats, in_adze, in_jax, in_torch, random

# Networks that tell classes apart


def dense(*shapes: tuple[int, ...]) -> list[Any]:
    """Weights whose products with numbers of size one are about as large."""
    return [array / np.float32(np.sqrt(array.shape[0])) for array in floats(*shapes)]


def pictures(b: int, n: int) -> Arguments:
    inner = ((n - 2) // 2 - 2) // 2
    first, bias, more, more_bias, last_bias, images = floats((8, 1, 3, 3), (8,), (16, 8, 3, 3), (16,), (10,), (b, n, n))
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


def with_slopes_by_torch(f: Any) -> dict[str, Any]:
    """A function of a structure of parameters, and its value with the gradient, in PyTorch."""
    import torch

    def gradient(*given: Any) -> Any:
        slopes, value = torch.func.grad_and_value(f)(*given)
        return value, slopes

    return {"primal": f, "gradient": gradient}


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
    parameters = tuple(zip(weights, floats(*((width,) for width in widths[1:])), strict=True))
    moments = tuple(tuple((p / 10, p**2) for p in layer) for layer in parameters)
    (x,) = floats((b, 784))
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


def torch_perceptron(parameters: Any, x: Any, labels: Any) -> Any:
    import torch

    *hidden, (weights, bias) = parameters
    for w, b in hidden:
        x = torch.relu(x @ w + b)
    return torch.nn.functional.cross_entropy(x @ weights + bias, labels)


def with_torch_adam() -> dict[str, Any]:
    import torch

    found = with_slopes_by_torch(torch_perceptron)
    return found | {"step": adam(found["gradient"], torch.sqrt)}


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


def sequence(n: int, d: int, blocks: int = 2) -> Arguments:
    def block() -> Any:
        square, (up, down) = dense(*4 * [(d, d)]), dense((d, 4 * d), (4 * d, d))
        scale, offset, up_bias, down_bias = floats((d,), (d,), (4 * d,), (d,))
        return {
            "first norm": (1 + scale / 4, offset),
            "second norm": (1 + offset / 4, scale),
            **dict(zip(("query", "key", "value", "out"), square, strict=True)),
            "up": up,
            "up bias": up_bias,
            "down": down,
            "down bias": down_bias,
        }

    return [block() for _ in range(blocks)], *floats((n, d), (n, d))


def jax_self_attention(x: Any, block: Any, heads: int = 4) -> Any:
    import jax
    import jax.numpy as jnp

    n, d = x.shape
    q, k, v = ((x @ block[name]).reshape(n, heads, d // heads) for name in ("query", "key", "value"))
    weights = jax.nn.softmax(jnp.einsum("nhd,mhd->hnm", q, k) / np.float32(np.sqrt(d // heads)), -1)
    return jnp.einsum("hnm,mhd->nhd", weights, v).reshape(n, d) @ block["out"]


def jax_norm(x: Any, scale: Any, offset: Any) -> Any:
    import jax.numpy as jnp

    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + offset


def jax_transformer(blocks: Any, x: Any, targets: Any) -> Any:
    import jax

    for block in blocks:
        x = x + jax_self_attention(jax_norm(x, *block["first norm"]), block)
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
    return *dense((h, 4 * h), (h, 4 * h)), *floats((4 * h,), (t, b, h))


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
        return *dense((h, h), (h, h)), *floats((h,))

    return {name: gate() for name in ("update", "reset", "new")}, *floats((t, b, h))


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
    return tuple(floats((n, m), (m,), (m,), (n, m)))


def of_rows(function: str, arguments: Arguments) -> Arguments:
    """Only a vjp takes the cotangent."""
    return arguments if function == "vjp" else arguments[:-1]


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


def jax_batch_norm(x: Any, scale: Any, offset: Any) -> Any:
    import jax.numpy as jnp

    return (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5) * scale + offset


def torch_batch_norm(x: Any, scale: Any, offset: Any) -> Any:
    import torch

    return torch.nn.functional.batch_norm(x, None, None, scale, offset, training=True)


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


def torch_layer_norm(x: Any, scale: Any, offset: Any) -> Any:
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[1:], scale, offset)


PICTURES = {"b": 16, "n": 28}
LAYERS = {"b": 256}
HEADS = {"b": 8, "n": 256, "d": 64}
SEQUENCE = {"n": 128, "d": 128}
STEPS = {"b": 32, "h": 128, "t": 64}
ALL = (0, 1, 2)
COLUMNS = {"n": 256, "m": 512}
ROWS = {"n": 1024, "m": 512}
LINES = [
    Line(
        "convolutional network",
        "Loss of two convolutions with pooling and a dense layer",
        [PICTURES],
        pictures,
        [
            in_adze({"primal": networks.convolutional, "gradient": az.value_and_grad(networks.convolutional)}),
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
            in_adze(
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
        "attention",
        "Attention, head by head",
        [HEADS],
        heads,
        [
            in_adze({"primal": networks.attention, "gradient": az.grad(networks.attention_squares, argnums=(0, 1, 2))}),
            Contender("JAX", Jax(), lambda: in_jax(jax_attention, (0, 1, 2))),
            Contender("PyTorch", Torch(), lambda: in_torch(torch_attention, (0, 1, 2))),
            Contender("PyTorch, compiled", CompiledTorch(), lambda: in_torch(torch_compiled(torch_attention), ALL)),
        ],
        main=HEADS,
        tolerance=1e-4,
    ),
    Line(
        "transformer",
        "Loss of two blocks of a transformer",
        [SEQUENCE],
        sequence,
        [
            in_adze({"primal": networks.transformer, "gradient": az.value_and_grad(networks.transformer)}),
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
            in_adze({"primal": networks.lstm, "gradient": az.grad(networks.lstm, argnums=ALL)}),
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
            in_adze({"primal": networks.gru, "gradient": az.value_and_grad(networks.gru)}),
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
            in_adze({"primal": networks.batch_norm, "vjp": az.vjp(networks.batch_norm, argnums=ALL)}),
            Contender("JAX", Jax(), lambda: pulled_by_jax(jax_batch_norm, ALL)),
            Contender("PyTorch", Torch(), lambda: pulled_by_torch(torch_batch_norm, ALL)),
            Contender(
                "PyTorch, compiled", CompiledTorch(), lambda: pulled_by_torch(torch_compiled(torch_batch_norm), ALL)
            ),
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
            in_adze({"primal": networks.layer_norm, "vjp": az.vjp(networks.layer_norm, argnums=ALL)}),
            Contender("JAX", Jax(), lambda: pulled_by_jax(jax_norm, ALL)),
            Contender("PyTorch", Torch(), lambda: pulled_by_torch(torch_layer_norm, ALL)),
            Contender(
                "PyTorch, compiled", CompiledTorch(), lambda: pulled_by_torch(torch_compiled(torch_layer_norm), ALL)
            ),
            Contender("Numba", Numba(), with_numba_layer_norm),
        ],
        functions=("primal", "vjp"),
        main=ROWS,
        given=of_rows,
        tolerance=1e-4,
    ),
]
