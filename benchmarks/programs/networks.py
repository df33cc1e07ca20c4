"""Layers and networks that people write from their textbooks, each as they would write it first."""

import math
from typing import Any

import adze as az

Matrix = az.Array[az.f32, "n m"]
Vector = az.Array[az.f32, "m"]
Images = az.Array[az.f32, "b h w"]
Labels = az.Array[az.i64, "b"]


# Convolutions


@az.program
def convolution_1d(signal: az.Array[az.f32, "c n"], kernels: az.Array[az.f32, "o c 5"]) -> az.Array[az.f32, "o n-4"]:
    """Each of several kernels at each place of a signal with several channels."""
    n, o = signal.shape[1], kernels.shape[0]
    return az.generate((o, n - 4), lambda f, x: az.sum(kernels[f] * signal[:, x : x + 5]))


@az.program
def convolution_1d_squares(signal: az.Array[az.f32, "c n"], kernels: az.Array[az.f32, "o c 5"]) -> az.f32:
    return az.sum(convolution_1d(signal, kernels) ** 2)


@az.program
def convolution_3d(
    volume: az.Array[az.f32, "c p q r"], kernels: az.Array[az.f32, "o c 3 3 3"]
) -> az.Array[az.f32, "o p-2 q-2 r-2"]:
    """The same in three dimensions."""
    (_, p, q, r), o = volume.shape, kernels.shape[0]
    return az.generate(
        (o, p - 2, q - 2, r - 2),
        lambda f, z, y, x: az.sum(kernels[f] * volume[:, z : z + 3, y : y + 3, x : x + 3]),
    )


@az.program
def convolution_3d_squares(volume: az.Array[az.f32, "c p q r"], kernels: az.Array[az.f32, "o c 3 3 3"]) -> az.f32:
    return az.sum(convolution_3d(volume, kernels) ** 2)


@az.program
def strided(image: az.Array[az.f32, "c h w"], kernels: az.Array[az.f32, "o c 3 3"]) -> Any:
    """A convolution at every second place of an image, along both axes."""
    (_, h, w), o = image.shape, kernels.shape[0]

    def entry(f: az.Expr, y: az.Expr, x: az.Expr) -> az.Expr:
        return az.sum(kernels[f] * image[:, 2 * y : 2 * y + 3, 2 * x : 2 * x + 3])

    return az.generate((o, (h - 3) // 2 + 1, (w - 3) // 2 + 1), entry)


@az.program
def strided_squares(image: az.Array[az.f32, "c h w"], kernels: az.Array[az.f32, "o c 3 3"]) -> az.f32:
    return az.sum(strided(image, kernels) ** 2)


@az.program
def depthwise(image: az.Array[az.f32, "c h w"], kernels: az.Array[az.f32, "c 3 3"]) -> az.Array[az.f32, "c h-2 w-2"]:
    """A kernel of its own for each channel."""

    def channel(plane: az.Expr, kernel: az.Expr) -> az.Expr:
        h, w = plane.shape
        return az.generate((h - 2, w - 2), lambda y, x: az.sum(kernel * plane[y : y + 3, x : x + 3]))

    return az.map(channel, image, kernels)


@az.program
def depthwise_squares(image: az.Array[az.f32, "c h w"], kernels: az.Array[az.f32, "c 3 3"]) -> az.f32:
    return az.sum(depthwise(image, kernels) ** 2)


# Networks that tell classes apart


def cross_entropy(scores: az.Expr, label: az.Expr) -> az.Expr:
    """The negative logarithm of the probability of a label."""
    return az.logsumexp(scores) - scores[label]


def convolved(image: az.Expr, kernels: az.Expr, bias: az.Expr) -> az.Expr:
    (_, h, w), o = image.shape, kernels.shape[0]
    return az.generate((o, h - 2, w - 2), lambda f, y, x: az.sum(kernels[f] * image[:, y : y + 3, x : x + 3]) + bias[f])


def pooled(image: az.Expr) -> az.Expr:
    """The greatest of each square of four."""
    c, h, w = image.shape
    return az.generate((c, h // 2, w // 2), lambda f, y, x: az.max(image[f, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]))


@az.program
def convolutional(parameters: Any, images: Images, labels: Labels) -> az.f32:
    """The mean loss of two convolutions, each with pooling, and a dense layer."""
    (kernels, bias), (more_kernels, more_bias), (weights, last_bias) = parameters

    def loss(image: az.Expr, label: az.Expr) -> az.Expr:
        x = pooled(az.maximum(convolved(image[None], kernels, bias), 0.0))
        x = pooled(az.maximum(convolved(x, more_kernels, more_bias), 0.0))
        return cross_entropy(x.ravel() @ weights + last_bias, label)

    return az.mean(az.map(loss, images, labels))


@az.program
def perceptron(parameters: Any, x: az.Array[az.f32, "b d"], labels: Labels) -> az.f32:
    """The mean loss of three dense layers."""
    *hidden, (weights, bias) = parameters
    for w, b in hidden:
        x = az.maximum(x @ w + b, 0.0)
    return az.mean(az.map(cross_entropy, x @ weights + bias, labels))


@az.program
def adam(parameters: Any, moments: Any, t: az.f32, x: az.Array[az.f32, "b d"], labels: Labels) -> Any:
    """A step of Adam: the loss, the new parameters and for each the new moments."""
    loss, slopes = az.value_and_grad(perceptron)(parameters, x, labels)

    def moved(p: az.Expr, slope: az.Expr, m: az.Expr, v: az.Expr) -> Any:
        m = 0.9 * m + 0.1 * slope
        v = 0.999 * v + 0.001 * slope**2
        step = (m / (1 - 0.9**t)) / (az.sqrt(v / (1 - 0.999**t)) + 1e-8)
        return p - 0.001 * step, (m, v)

    new_parameters, new_moments = [], []
    for layer, layer_slopes, layer_moments in zip(parameters, slopes, moments):
        (w, w_moments), (b, b_moments) = (
            moved(p, slope, *mv) for p, slope, mv in zip(layer, layer_slopes, layer_moments)
        )
        new_parameters.append((w, b))
        new_moments.append((w_moments, b_moments))
    return loss, tuple(new_parameters), tuple(new_moments)


# A transformer


def normalized(x: az.Expr, scale: az.Expr, offset: az.Expr) -> az.Expr:
    """Layer norm of rows."""
    centred = x - az.mean(x, 1, keepdims=True)
    return centred / az.sqrt(az.mean(centred**2, 1, keepdims=True) + 1e-5) * scale + offset


def gelu(x: az.Expr) -> az.Expr:
    return 0.5 * x * (1 + az.erf(x / math.sqrt(2)))


def attention(x: az.Expr, block: Any, heads: int = 4) -> az.Expr:
    """Attention of a sequence to itself, with several heads."""
    n, d = x.shape
    width = d // heads

    def split(y: az.Expr) -> az.Expr:
        return y.reshape(n, heads, width).transpose(1, 0, 2)

    def head(q: az.Expr, k: az.Expr, v: az.Expr) -> az.Expr:
        scores = q @ k.T / az.sqrt(width.astype(az.f32))
        weights = az.exp(scores - az.max(scores, 1, keepdims=True))
        return weights / az.sum(weights, 1, keepdims=True) @ v

    found = az.map(head, split(x @ block["query"]), split(x @ block["key"]), split(x @ block["value"]))
    return found.transpose(1, 0, 2).reshape(n, d) @ block["out"]


@az.program
def transformer(blocks: Any, x: az.Array[az.f32, "n d"], targets: az.Array[az.f32, "n d"]) -> az.f32:
    """The mean squared error of blocks of attention and two dense layers."""
    for block in blocks:
        x = x + attention(normalized(x, *block["first norm"]), block)
        inner = gelu(normalized(x, *block["second norm"]) @ block["up"] + block["up bias"])
        x = x + inner @ block["down"] + block["down bias"]
    return az.mean((x - targets) ** 2)


# Recurrent networks


@az.program
def lstm(
    wx: az.Array[az.f32, "d 4*h"], wh: az.Array[az.f32, "h 4*h"], bias: az.Array[az.f32, "4*h"], inputs: Any
) -> az.f32:
    """The mean square of the last hidden state of an LSTM."""
    h = wh.shape[0]

    def step(state: Any, x: az.Expr) -> Any:
        hidden, cell = state
        gates = x @ wx + hidden @ wh + bias
        i, f, o, g = (gates[:, k * h : (k + 1) * h] for k in range(4))
        cell = az.sigmoid(f) * cell + az.sigmoid(i) * az.tanh(g)
        hidden = az.sigmoid(o) * az.tanh(cell)
        return (hidden, cell), None

    start = az.zeros((inputs.shape[1], h), az.f32)
    (hidden, _), _ = az.scan_loop(step, (start, start), inputs)
    return az.mean(hidden**2)


@az.program
def gru(weights: Any, inputs: az.Array[az.f32, "t b d"]) -> az.f32:
    """The mean square of all hidden states of a GRU, with matrices of its own for each gate."""

    def gate(name: str, x: az.Expr, h: az.Expr) -> az.Expr:
        w, u, bias = weights[name]
        return x @ w + h @ u + bias

    def step(h: az.Expr, x: az.Expr) -> Any:
        z = az.sigmoid(gate("update", x, h))
        r = az.sigmoid(gate("reset", x, h))
        new = az.tanh(gate("new", x, r * h))
        h = (1 - z) * h + z * new
        return h, h

    start = az.zeros((inputs.shape[1], weights["new"][1].shape[0]), az.f32)
    return az.mean(az.scan_loop(step, start, inputs)[1] ** 2)


# Norms


@az.program
def batch_norm(x: Matrix, scale: Vector, offset: Vector) -> Matrix:
    """Columns with the mean 0 and the variance 1, scaled and moved."""
    return (x - az.mean(x, 0)) / az.sqrt(az.var(x, 0) + 1e-5) * scale + offset


@az.program
def layer_norm(x: Matrix, scale: Vector, offset: Vector) -> Matrix:
    """The same of rows, as for a row alone."""

    def row(x: az.Expr) -> az.Expr:
        return (x - az.mean(x)) / az.sqrt(az.var(x) + 1e-5) * scale + offset

    return az.map(row, x)


# Graphs


@az.program
def graph_convolution(
    values: az.Array[az.f32, "e"],
    columns: az.Array[az.i64, "e"],
    rows: az.Array[az.i64, "r"],  # one more than there are nodes
    x: az.Array[az.f32, "n d"],
    weights: az.Array[az.f32, "d k"],
) -> az.Array[az.f32, "r-1 k"]:
    """For each node the weighted sum of its neighbours' features, through a dense layer."""

    def around(i: az.Expr) -> az.Expr:
        start = rows[i]
        edges = az.iota(rows[i + 1] - start) + start
        return az.sum(az.map(lambda e: values[e] * x[columns[e]], edges), 0)

    return az.maximum(az.generate(rows.shape[0] - 1, around) @ weights, 0.0)


@az.program
def graph_convolution_squares(
    values: az.Array[az.f32, "e"],
    columns: az.Array[az.i64, "e"],
    rows: az.Array[az.i64, "r"],
    x: az.Array[az.f32, "n d"],
    weights: az.Array[az.f32, "d k"],
) -> az.f32:
    return az.sum(graph_convolution(values, columns, rows, x, weights) ** 2)
