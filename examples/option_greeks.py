"""The price of a call option by simulation, with its Greeks, beside the formulas of Black and Scholes.

    python examples/option_greeks.py

The Greeks are derivatives of the price: by the spot (delta), by the volatility (vega) and by the rate (rho). Each is
the mean of the derivatives of the paths, by reparametrisation: random numbers depend on a key and a place alone, and
do not move (the pathwise method: Glasserman, "Monte Carlo Methods in Financial Engineering", 2003, section 7.2). No
array of random numbers is stored.
"""

import math

import numpy as np
import scipy.stats

import adze as az

STRIKE, PATHS = 100.0, 1_000_000


@az.program
def price(spot: az.f64, volatility: az.f64, rate: az.f64, key: az.Array[az.u32, 2]) -> az.f64:
    """What the option is worth that pays in a year by how much the price is above the strike."""
    noise = az.random.normal(key, PATHS)
    final = spot * az.exp(rate - volatility**2 / 2 + volatility * noise)
    return az.exp(-rate) * az.mean(az.maximum(final - STRIKE, 0.0))


def formulas(spot: float, volatility: float, rate: float) -> list[float]:
    """The price, delta, vega and rho by Black and Scholes (1973)."""
    first = (math.log(spot / STRIKE) + rate + volatility**2 / 2) / volatility
    share, second = scipy.stats.norm.cdf(first), scipy.stats.norm.cdf(first - volatility)
    paid = STRIKE * math.exp(-rate) * second
    return [spot * share - paid, share, spot * scipy.stats.norm.pdf(first), paid]


def main() -> None:
    arguments = 105.0, 0.2, 0.03
    compiled = az.compile(az.value_and_grad(price, argnums=(0, 1, 2)))
    value, slopes = compiled(*arguments, az.random.key(5))
    print("          simulated    formula")
    rows = zip(("price", "delta", "vega", "rho"), (value, *slopes), formulas(*arguments), strict=True)
    for name, found, exact in rows:
        print(f"{name:8}{float(found):11.4f}{exact:11.4f}")
    print(f"{compiled.peak_bytes(*arguments, np.zeros(2, np.uint32)) / 1e6:.1f} MB, not {8 * PATHS / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
