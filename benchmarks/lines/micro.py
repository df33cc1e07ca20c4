"""Small programs at sizes that grow by decades, a chain of two elementwise functions, and the cost of a call.

The derivative of an array is a vjp: it takes a cotangent, and gives the array, too.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from contenders import (
    Arguments,
    CompiledTorch,
    Contender,
    Jax,
    Line,
    Tool,
    Torch,
    adze,
    adze_into,
    of_jax,
    of_torch,
    torch_compiled,
)
from contenders import pulled_by_jax as by_jax
from contenders import pulled_by_torch as by_torch

import adze as az

Vector = az.Array[az.f64, "n"]
Indices = az.Array[az.i64, "n"]
BINS = 1024
DECADES = [{"n": 10**k} for k in range(3, 8)]
MAIN = DECADES[-1]


@az.program
def doubled(x: Vector) -> Vector:
    return 2 * x + 1


@az.program
def total(x: Vector) -> az.f64:
    return az.sum(x)


@az.program
def squares(x: Vector) -> az.f64:
    return az.sum(x * x)


@az.program
def running(x: Vector) -> Vector:
    return az.cumsum(x)


@az.program
def gathered(x: Vector, indices: Indices) -> Vector:
    return x[indices]


@az.program
def scattered(x: Vector, indices: Indices, values: Vector) -> Vector:
    return az.scatter(x, indices, values)


@az.program
def binned(indices: Indices, values: Vector) -> az.Array[az.f64, BINS]:
    return az.histogram(lambda a, b: a + b, 0.0, BINS, indices, values)


@az.program
def exp_sin(x: Vector) -> az.f64:
    return az.sum(az.exp(az.sin(x)) * x)


@az.program
def scalar(x: az.f64) -> az.f64:
    return az.sin(x) * x


def vectors(count: int) -> Callable[[int], Arguments]:
    return lambda n: tuple(np.random.default_rng(k).standard_normal(n) for k in range(count))


def gather_arguments(n: int) -> Arguments:
    x, cotangent = vectors(2)(n)
    return x, np.random.default_rng(9).integers(0, n, n), cotangent


def scatter_arguments(n: int) -> Arguments:
    x, values, cotangent = vectors(3)(n)
    return x, np.random.default_rng(9).permutation(n), values, cotangent


def histogram_arguments(n: int) -> Arguments:
    return (
        np.random.default_rng(9).integers(0, BINS, n),
        *vectors(1)(n),
        np.random.default_rng(10).standard_normal(BINS),
    )


def given(function: str, arguments: Arguments) -> Arguments:
    """Only a vjp takes the cotangent."""
    return arguments if function == "vjp" else arguments[:-1]


# Contenders


def pulled(program: az.Program, argnums: tuple[int, ...]) -> list[Contender]:
    return [*adze({"primal": program, "vjp": az.vjp(program, argnums=argnums)}), adze_into({"primal": program})]


def jax_sum() -> dict[str, Any]:
    import jax.numpy as jnp

    return {"primal": jnp.sum, "gradient": of_jax(lambda x: jnp.sum(x * x))["gradient"]}


def jax_scan() -> dict[str, Any]:
    import jax.numpy as jnp

    return by_jax(jnp.cumsum, (0,))


def jax_histogram() -> dict[str, Any]:
    import jax.numpy as jnp

    return by_jax(
        lambda indices, values: jnp.zeros(BINS).at[indices].add(values, mode="promise_in_bounds"),
        (1,),
    )


def jax_gather() -> dict[str, Any]:
    return by_jax(lambda x, indices: x.at[indices].get(mode="promise_in_bounds"), (0,))


def jax_scatter() -> dict[str, Any]:
    def scatter(x: Any, indices: Any, values: Any) -> Any:
        return x.at[indices].set(values, unique_indices=True, mode="promise_in_bounds")

    return by_jax(scatter, (0, 2))


def jax_exp_sin() -> dict[str, Any]:
    import jax.numpy as jnp

    return of_jax(lambda x: jnp.sum(jnp.exp(jnp.sin(x)) * x))


def torch_sum() -> dict[str, Any]:
    return {"primal": lambda x: x.sum(), "gradient": of_torch(lambda x: (x * x).sum())["gradient"]}


def torch_scan() -> dict[str, Any]:
    import torch

    return by_torch(lambda x: torch.cumsum(x, 0), (0,))


def torch_histogram() -> dict[str, Any]:
    import torch

    def histogram(indices: Any, values: Any) -> Any:
        return torch.zeros(BINS, dtype=values.dtype).index_add(0, indices, values)

    return by_torch(histogram, (1,))


def torch_exp_sin(compiled: bool) -> dict[str, Any]:
    import torch

    def exp_sin(x: Any) -> Any:
        return (torch.exp(torch.sin(x)) * x).sum()

    return of_torch(torch_compiled(exp_sin) if compiled else exp_sin)


def numpy_scatter(x: Any, indices: Any, values: Any) -> Any:
    result = x.copy()
    result[indices] = values
    return result


def numpy_histogram(indices: Any, values: Any) -> Any:
    return np.bincount(indices, weights=values, minlength=BINS)


def numpy_exp_sin_gradient(x: Any) -> Any:
    value = np.exp(np.sin(x))
    return value * (1 + x * np.cos(x))


LINES = [
    Line(
        "map",
        "Map: 2 x + 1",
        DECADES,
        vectors(2),
        [
            *pulled(doubled, (0,)),
            Contender("JAX", Jax(), lambda: by_jax(lambda x: 2 * x + 1, (0,))),
            Contender("PyTorch", Torch(), lambda: by_torch(lambda x: 2 * x + 1, (0,))),
            Contender("NumPy", Tool(), lambda: {"primal": lambda x: 2 * x + 1}),
        ],
        functions=("primal", "vjp"),
        main=MAIN,
        given=given,
        moved={"primal": lambda n: 16.0 * n},
    ),
    Line(
        "reduce",
        "Reduce: a sum; the gradient is that of a sum of squares",
        DECADES,
        vectors(1),
        [
            *adze({"primal": total, "gradient": az.grad(squares)}),
            Contender("JAX", Jax(), jax_sum),
            Contender("PyTorch", Torch(), torch_sum),
            Contender("NumPy", Tool(), lambda: {"primal": np.sum}),
        ],
        main=MAIN,
        moved={"primal": lambda n: 8.0 * n},
        tolerance=1e-7,
    ),
    Line(
        "scan",
        "Scan: prefix sums",
        DECADES,
        vectors(2),
        [
            *pulled(running, (0,)),
            Contender("JAX", Jax(), jax_scan),
            Contender("PyTorch", Torch(), torch_scan),
            Contender("NumPy", Tool(), lambda: {"primal": np.cumsum}),
        ],
        functions=("primal", "vjp"),
        main=MAIN,
        given=given,
        moved={"primal": lambda n: 16.0 * n},
    ),
    Line(
        "gather",
        "Gather, at random places",
        DECADES,
        gather_arguments,
        [
            *pulled(gathered, (0,)),
            Contender("JAX", Jax(), jax_gather),
            Contender("PyTorch", Torch(), lambda: by_torch(lambda x, indices: x[indices], (0,))),
            Contender("NumPy", Tool(), lambda: {"primal": lambda x, indices: x[indices]}),
        ],
        functions=("primal", "vjp"),
        main=MAIN,
        given=given,
        moved={"primal": lambda n: 24.0 * n},
    ),
    Line(
        "scatter",
        "Scatter, to the places of a random permutation",
        DECADES,
        scatter_arguments,
        [
            *pulled(scattered, (0, 2)),
            Contender("JAX", Jax(), jax_scatter),
            Contender("PyTorch", Torch(), lambda: by_torch(lambda x, i, v: x.scatter(0, i, v), (0, 2))),
            Contender("NumPy", Tool(), lambda: {"primal": numpy_scatter}),
        ],
        functions=("primal", "vjp"),
        main=MAIN,
        given=given,
        moved={"primal": lambda n: 40.0 * n},
    ),
    Line(
        "histogram",
        f"Histogram: sums in {BINS} bins",
        DECADES,
        histogram_arguments,
        [
            *pulled(binned, (1,)),
            Contender("JAX", Jax(), jax_histogram),
            Contender("PyTorch", Torch(), torch_histogram),
            Contender("NumPy", Tool(), lambda: {"primal": numpy_histogram}),
        ],
        functions=("primal", "vjp"),
        main=MAIN,
        given=given,
        moved={"primal": lambda n: 16.0 * n},
    ),
    Line(
        "exp sin",
        "sum(exp(sin x) x)",
        DECADES,
        vectors(1),
        [
            *adze({"primal": exp_sin, "gradient": az.grad(exp_sin)}),
            Contender("JAX", Jax(), jax_exp_sin),
            Contender("PyTorch", Torch(), lambda: torch_exp_sin(False)),
            Contender("PyTorch, compiled", CompiledTorch(), lambda: torch_exp_sin(True)),
            Contender(
                "NumPy, by hand",
                Tool(),
                lambda: {"primal": lambda x: np.sum(np.exp(np.sin(x)) * x), "gradient": numpy_exp_sin_gradient},
            ),
        ],
        main=MAIN,
        tolerance=1e-7,
    ),
    Line(
        "calls, a scalar",
        "A call: sin(x) x of a number",
        [{}],
        lambda: (0.5,),
        adze({"primal": scalar}),
        functions=("primal",),
    ),
    Line(
        "calls, a vector",
        "A call: 2 x + 1 of a few numbers",
        [{"n": 10}],
        vectors(1),
        [
            *adze({"primal": doubled}),
            Contender("NumPy", Tool(), lambda: {"primal": lambda x: 2 * x + 1}),
        ],
        functions=("primal",),
        main={"n": 10},
    ),
]
