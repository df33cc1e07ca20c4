"""Long short-term memory with weight matrices, on a batch of sequences.

With input x and state (h, c), sigmoid of the gates and the products of matrices,

    i, f, o, g = the four parts of  x wx + h wh + bias
    c' = sigmoid(f) c + sigmoid(i) tanh(g)    h' = sigmoid(o) tanh(c')    loss = mean((h' wy - target)^2)

over all steps. What does not depend on the state, x wx + bias, is computed for all steps at once, and so are the
outputs.

Source: R. Schenck, O. Rønning, T. Henriksen and C. Oancea, AD for an Array Language with Nested Parallelism (SC 2022),
section 7.6, with a batch of 64 sequences of 20 inputs of 50 numbers, and a state of 64.
"""

from typing import Any

import adze as az


@az.program
def loss(
    wx: az.Array[az.f64, "d 4*h"],
    wh: az.Array[az.f64, "h 4*h"],
    bias: az.Array[az.f64, "4*h"],
    wy: az.Array[az.f64, "h d"],
    inputs: az.Array[az.f64, "n bs d"],
    targets: az.Array[az.f64, "n bs d"],
) -> az.f64:
    """The mean squared error of the outputs."""
    n, bs, d = inputs.shape
    h = wh.shape[0]

    def step(state: Any, x: az.Expr) -> Any:
        before, c = state
        gates = x + before @ wh
        i, f, o, g = (gates[:, part * h : (part + 1) * h] for part in range(4))
        c = az.sigmoid(f) * c + az.sigmoid(i) * az.tanh(g)
        after = az.sigmoid(o) * az.tanh(c)
        return (after, c), after

    given = (inputs.reshape((n * bs, d)) @ wx + bias).reshape((n, bs, 4 * h))
    _, hidden = az.scan_loop(step, (az.zeros((bs, h)), az.zeros((bs, h))), given)
    outputs = (hidden.reshape((n * bs, h)) @ wy).reshape((n, bs, d))
    return az.mean((outputs - targets) ** 2)


gradient = az.grad(loss, argnums=(0, 1, 2, 3))
