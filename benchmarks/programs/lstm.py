"""A character model with long short-term memory, whose weight matrices are diagonal.

Of each layer, with input x and the state (h, c), weights w and biases v, one for each of four gates:

    forget = sigmoid(x w_0 + v_0)    add = sigmoid(h w_1 + v_1)    out = sigmoid(x w_2 + v_2)
    change = tanh(h w_3 + v_3)       c' = c forget + add change    h' = out tanh(c')

and h' is the input of the next layer. All products are elementwise. The first layer's input is a character of the
sequence, weighted; the last layer's output, weighted and shifted, gives y, and

    loss = -(mean over t and b of  sequence[t+1] * (y - log(2 + sum(exp(y)))))

Source: ADBench, in GradBench (lstm).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import adze as az


@az.program
def loss(
    layers: az.Array[az.f64, "l 2 4 b"],  # of each layer: weights, then biases, one for each gate
    ends: az.Array[az.f64, "3 b"],  # the weights of the input and of the output, and what is added to the output
    state: tuple[az.Array[az.f64, "l b"], az.Array[az.f64, "l b"]],  # h and c of each layer at the start
    sequence: az.Array[az.f64, "t b"],
) -> az.f64:
    """The loss of predicting each character of the sequence from those before it."""

    def layer(x: az.Expr, given: Any) -> Any:
        (w, v), (h, c) = given
        forget, add, out = az.sigmoid(x * w[0] + v[0]), az.sigmoid(h * w[1] + v[1]), az.sigmoid(x * w[2] + v[2])
        c = c * forget + add * az.tanh(h * w[3] + v[3])
        h = out * az.tanh(c)
        return h, (h, c)

    def predict(state: Any, characters: Any) -> Any:
        this, following = characters
        x, state = az.scan_loop(layer, this * ends[0], (layers, state))
        y = x * ends[1] + ends[2]
        return state, az.sum(following * (y - az.log(2 + az.sum(az.exp(y)))))

    _, likelihoods = az.scan_loop(predict, state, (sequence[:-1], sequence[1:]))
    return -az.sum(likelihoods) / (likelihoods.shape[0] * sequence.shape[1])


gradient = az.grad(loss, argnums=(0, 1))

FUNCTIONS = {"objective": loss, "jacobian": gradient}


def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The parameters of layers and ends, the state at the start, and the sequence."""
    ends = np.array(given["extra_params"], dtype=np.float64)
    b = ends.shape[1]
    layers = np.array(given["main_params"], dtype=np.float64).reshape(-1, 2, 4, b)
    h, c = np.array(given["state"], dtype=np.float64).reshape(-1, 2, b).swapaxes(0, 1).copy()
    return layers, ends, (h, c), np.array(given["sequence"], dtype=np.float64)


def answer(function: str, result: Any) -> Any:
    """The loss; or its gradient, one vector for the layers and the ends."""
    return result if function == "objective" else np.concatenate([part.ravel() for part in result])
