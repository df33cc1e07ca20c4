"""A Gaussian process, fitted: its likelihood by a Cholesky factor, SciPy's optimiser with the compiled gradient.

    python examples/gaussian_process.py

Observations y are a smooth function of x, and noise. The process has three parameters, which are logarithms: of its
size, of the distance over which it varies, and of the noise. The most likely ones are found by ``scipy.optimize``
(Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, algorithm 2.1 and section 5.4). What it prints
is compared with the density of ``scipy.stats``, with differences, and with the function that made the data.
"""

import numpy as np
import scipy.optimize
import scipy.stats

import adze as az

Vector = az.Array[az.f64, "n"]
Places = az.Array[az.f64, "m"]
Parameters = az.Array[az.f64, 3]


def kernel(x: az.Expr, z: az.Expr, parameters: az.Expr) -> az.Expr:
    size, distance = az.exp(parameters[0]), az.exp(parameters[1])
    return size**2 * az.exp(-(((x[:, None] - z[None, :]) / distance) ** 2) / 2)


@az.program
def misfit(parameters: Parameters, x: Vector, y: Vector) -> az.f64:
    """The negative logarithm of the likelihood."""
    noise = az.exp(2 * parameters[2])
    factor = az.linalg.cholesky(kernel(x, x, parameters) + noise * az.eye(az.size(x)))
    w = az.linalg.solve_triangular(factor, y, lower=True)
    return az.sum(w * w) / 2 + az.sum(az.log(az.diagonal(factor))) + az.size(x) * np.log(2 * np.pi) / 2


@az.program
def predicted(parameters: Parameters, x: Vector, y: Vector, places: Places) -> Places:
    """The mean of the process at other places."""
    noise = az.exp(2 * parameters[2])
    weights = az.linalg.solve(kernel(x, x, parameters) + noise * az.eye(az.size(x)), y, assume_a="pos")
    return kernel(places, x, parameters) @ weights


def main() -> None:
    random = np.random.default_rng(0)
    x = np.sort(random.uniform(0, 6, 60))
    y = np.sin(2 * x) + 0.1 * random.standard_normal(60)

    value_and_gradient = az.compile(az.value_and_grad(misfit))
    start = np.zeros(3)
    value, gradient = value_and_gradient(start, x, y)
    covariance = np.exp(-((x[:, None] - x[None, :]) ** 2) / 2) + np.eye(60)
    density = scipy.stats.multivariate_normal.logpdf(y, cov=covariance)
    slopes = scipy.optimize.approx_fprime(start, lambda p: value_and_gradient(p, x, y)[0], 1e-6)
    print(f"misfit at the start {value:.6f}; by scipy.stats {-density:.6f}")
    print(f"gradient off from differences by {np.max(abs(gradient - slopes)):.0e}")

    fit = scipy.optimize.minimize(value_and_gradient, start, (x, y), jac=True, method="L-BFGS-B")
    size, distance, noise = np.exp(fit.x)
    print(f"fitted: misfit {fit.fun:.3f}, size {size:.2f}, distance {distance:.2f}, noise {noise:.3f} (made with 0.1)")
    places = np.linspace(0.5, 5.5, 101)
    off = az.compile(predicted)(fit.x, x, y, places) - np.sin(2 * places)
    print(f"the mean is off from the function by {np.sqrt(np.mean(off**2)):.3f}")


if __name__ == "__main__":
    main()
