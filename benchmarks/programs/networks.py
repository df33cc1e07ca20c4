"""Layers and networks, each as somebody would write it first."""

import math
from typing import Any

import adze as az

Images = az.Array[az.f32, "b h w"]
Labels = az.Array[az.i64, "b"]
Heads = az.Array[az.f32, "b n d"]
Matrix = az.Array[az.f32, "n m"]
Vector = az.Array[az.f32, "m"]


# Networks that tell classes apart


def pooled(image: az.Expr) -> az.Expr:
    """The greatest of each square of four."""
    c, h, w = image.shape
    return az.generate((c, h // 2, w // 2), lambda f, y, x: az.max(image[f, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]))


def cross_entropy(scores: az.Expr, label: az.Expr) -> az.Expr:
    """The negative logarithm of the probability of a label."""
    return az.logsumexp(scores) - scores[label]


def convolved(image: az.Expr, kernels: az.Expr, bias: az.Expr) -> az.Expr:
    (_, h, w), o = image.shape, kernels.shape[0]
    return az.generate((o, h - 2, w - 2), lambda f, y, x: az.sum(kernels[f] * image[:, y : y + 3, x : x + 3]) + bias[f])


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


# Attention


@az.program
def attention(queries: Heads, keys: Heads, values: Heads) -> Heads:
    """For each query the mean of values, weighted by how much their keys are like it."""

    def head(q: az.Expr, k: az.Expr, v: az.Expr) -> az.Expr:
        scores = q @ k.T / az.sqrt(q.shape[1].astype(az.f32))
        weights = az.exp(scores - az.max(scores, 1)[:, None])
        return weights @ v / az.sum(weights, 1)[:, None]

    return az.map(head, queries, keys, values)


@az.program
def attention_squares(queries: Heads, keys: Heads, values: Heads) -> az.f32:
    return az.sum(attention(queries, keys, values) ** 2)


def gelu(x: az.Expr) -> az.Expr:
    return 0.5 * x * (1 + az.erf(x / math.sqrt(2)))


def self_attention(x: az.Expr, block: Any, heads: int = 4) -> az.Expr:
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


def normalized(x: az.Expr, scale: az.Expr, offset: az.Expr) -> az.Expr:
    """Layer norm of rows."""
    centred = x - az.mean(x, 1, keepdims=True)
    return centred / az.sqrt(az.mean(centred**2, 1, keepdims=True) + 1e-5) * scale + offset


@az.program
def transformer(blocks: Any, x: az.Array[az.f32, "n d"], targets: az.Array[az.f32, "n d"]) -> az.f32:
    """The mean squared error of blocks of self_attention and two dense layers."""
    for block in blocks:
        x = x + self_attention(normalized(x, *block["first norm"]), block)
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
