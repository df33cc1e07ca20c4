"""The price of an Asian call option by simulation, with its Greeks: the derivatives by spot, volatility and rate.

    ds = s (rate dt + volatility dw),   payoff = exp(-rate) max(mean of s over the steps - STRIKE, 0)

The Greeks are the means of those of the paths (the pathwise method: Glasserman 2003, "Monte Carlo methods in financial
engineering", 7.2). Paths are simulated in blocks, so that no more is there at a time than one block's random numbers
and states. They are the same numbers in any blocks.
"""

import math
from typing import Any

import adze as az

STEPS, STRIKE = 100, 100.0
BLOCK = 2000  # paths
Key = az.Array[az.u32, 2]


@az.program
def payoff(spot: az.f64, volatility: az.f64, rate: az.f64, noise: az.Array[az.f64, STEPS]) -> az.f64:
    """What a path pays, today."""
    drift, scale = (rate - volatility**2 / 2) / STEPS, volatility / math.sqrt(STEPS)

    def step(t: az.Expr, state: Any) -> Any:
        logarithm, total = state
        logarithm = logarithm + drift + scale * noise[t]
        return logarithm, total + az.exp(logarithm)

    _, total = az.fori_loop(0, STEPS, step, (az.log(spot), 0.0))
    return az.exp(-rate) * az.maximum(total / STEPS - STRIKE, 0.0)


def mean(of_path: Any, zeros: Any, key: az.Expr, paths: az.Expr) -> Any:
    """The means of what a function gives of the random numbers of a path, over so many paths in whole blocks."""
    blocks = paths // BLOCK
    noise = az.random.normal(key, (blocks, BLOCK, STEPS))

    def block(k: az.Expr, totals: Any) -> Any:
        return tuple([total + az.sum(x) for total, x in zip(totals, az.map(of_path, noise[k]), strict=True)])

    return tuple([total / (blocks * BLOCK) for total in az.fori_loop(0, blocks, block, zeros)])


@az.program
def price(spot: az.f64, volatility: az.f64, rate: az.f64, key: Key, paths: az.i64) -> az.f64:
    return mean(lambda noise: (payoff(spot, volatility, rate, noise),), (0.0,), key, paths)[0]


@az.program
def greeks(spot: az.f64, volatility: az.f64, rate: az.f64, key: Key, paths: az.i64) -> Any:
    """The price, and its derivatives by spot, volatility and rate."""

    def of_path(noise: az.Expr) -> Any:
        value, slopes = az.value_and_grad(payoff, (0, 1, 2))(spot, volatility, rate, noise)
        return value, *slopes

    value, *slopes = mean(of_path, (0.0, 0.0, 0.0, 0.0), key, paths)
    return value, tuple(slopes)
