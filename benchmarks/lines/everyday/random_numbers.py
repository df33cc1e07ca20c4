"""Random numbers: large arrays of them, and a Monte Carlo price with its Greeks (programs/monte_carlo.py).

Each tool draws numbers of its own. What is compared is their statistics: the mean and the deviation of the first ones,
and the price, of which so many paths give three digits.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from contenders import Arguments, Contender, Jax, Line, Then, Tool, adze
from programs import monte_carlo
from programs.monte_carlo import STEPS, STRIKE

import adze as az

COUNT = 10**7
LOOKED_AT = 10**4
KEY = np.array([2026, 0], np.uint32)
Key = az.Array[az.u32, 2]


@az.program
def uniforms(key: Key) -> az.Array[az.f64, COUNT]:
    return az.random.uniform(key, COUNT)


@az.program
def normals(key: Key) -> az.Array[az.f64, COUNT]:
    return az.random.normal(key, COUNT)


def statistics(drawn: Any) -> np.ndarray:
    """Of the first numbers, which takes a thousandth of the time of drawing all."""
    first = np.asarray(drawn[:LOOKED_AT])
    assert len(drawn) == COUNT
    return np.array([first.mean(), first.std()])


def jax_drawn(name: str) -> dict[str, Any]:
    import jax

    draw = getattr(jax.random, name)
    return {"primal": Then(lambda key: draw(key, (COUNT,)), statistics)}


def numpy_drawn(name: str) -> dict[str, Any]:
    draw = getattr(np.random.Generator(np.random.PCG64(2026)), name)
    return {"primal": Then(lambda key: draw(COUNT), statistics)}


# The price in JAX: all paths take a step together


def jax_price(wrapped: Callable[[Any], Any]) -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    def price(spot: Any, volatility: Any, rate: Any, key: Any, paths: int) -> Any:
        drift, scale = (rate - volatility**2 / 2) / STEPS, volatility / math.sqrt(STEPS)

        def step(state: Any, own: Any) -> Any:
            logarithm, total = state
            logarithm = logarithm + drift + scale * jax.random.normal(own, (paths,))
            return (logarithm, total + jnp.exp(logarithm)), None

        start = jnp.full(paths, jnp.log(spot)), jnp.zeros(paths)
        (_, total), _ = jax.lax.scan(wrapped(step), start, jax.random.split(key, STEPS))
        return jnp.exp(-rate) * jnp.mean(jnp.maximum(total / STEPS - STRIKE, 0.0))

    return price


def jax_stored() -> dict[str, Any]:
    import jax

    price = jax_price(lambda step: step)
    return {"primal": price, "gradient": jax.value_and_grad(price, (0, 1, 2))}


def jax_checkpointed() -> dict[str, Any]:
    import jax

    return {"gradient": jax.value_and_grad(jax_price(jax.checkpoint), (0, 1, 2))}


def jax_forward() -> dict[str, Any]:
    """Three tangents, for which the random numbers are drawn once."""
    import jax

    price = jax_price(lambda step: step)

    def greeks(spot: Any, volatility: Any, rate: Any, key: Any, paths: int) -> Any:
        def twice(*parameters: Any) -> Any:
            value = price(*parameters, key, paths)
            return value, value

        slopes, value = jax.jacfwd(twice, (0, 1, 2), has_aux=True)(spot, volatility, rate)
        return value, slopes

    return {"gradient": greeks}


def arguments(paths: int) -> Arguments:
    return 100.0, 0.2, 0.05, KEY, paths


def drawn(name: str, title: str, program: Any, jax: str, numpy: str) -> Line:
    """Ten million numbers by a function of each tool."""
    return Line(
        name,
        title,
        [{"n": COUNT}],
        lambda n: (KEY,),
        [
            *adze({"primal": Then(program, statistics)}),
            Contender("JAX", Jax(), lambda: jax_drawn(jax)),
            Contender("NumPy", Tool(), lambda: numpy_drawn(numpy)),
        ],
        functions=("primal",),
        main={"n": COUNT},
        tolerance=0.05,
    )


MAIN = {"paths": 1_000_000}
LINES = [
    drawn("uniforms", "Numbers of equal probability", uniforms, "uniform", "random"),
    drawn("normals", "Normal numbers", normals, "normal", "standard_normal"),
    Line(
        "monte carlo",
        "An Asian option by simulation, 100 steps, with its Greeks",
        [MAIN],
        arguments,
        [
            *adze({"primal": monte_carlo.price, "gradient": monte_carlo.greeks}),
            Contender("JAX", Jax(static=(4,)), jax_stored),
            Contender("JAX, checkpoint", Jax(static=(4,)), jax_checkpointed),
            Contender("JAX, forward", Jax(static=(4,)), jax_forward),
        ],
        main=MAIN,
        tolerance=0.02,
    ),
]
