"""JAX and PyTorch on the programs of gpu.py, as somebody who knows them would write these.

``jax_peers`` and ``torch_peers`` give contenders for a problem, or say why there are none. They compute on the GPU when
asked for one, else on the CPU. JAX compiles for each size; PyTorch is run as it is (eager).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from lines import gmm, kmeans, lstm

Put = Callable[[np.ndarray], Any]
Callables = dict[str, Callable[..., Any]]  # the gradient and the primal


@dataclass(frozen=True)
class Contender:
    """``build`` makes the callables; ``convert`` gives arguments as the contender likes them."""

    name: str
    build: Callable[[], Callables]
    convert: Callable[[tuple[Any, ...]], tuple[Any, ...]]


def placed(argument: Any, put: Put) -> Any:
    """An argument whose arrays are where ``put`` moves them; numbers stay."""
    if isinstance(argument, tuple):
        return tuple([placed(part, put) for part in argument])
    return put(argument) if isinstance(argument, np.ndarray) and argument.ndim else argument


# JAX


def jax_peers(name: str, argnums: tuple[int, ...], is_scalar: bool, gpu: bool) -> list[Contender] | str:
    """JAX with a program and its derivative: of a number its gradient, of an array its vjp, which takes a cotangent."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if importlib.util.find_spec("jax") is None:
        return "JAX is not installed"
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")  # f32 as it is, without TF32
    if gpu and jax.default_backend() != "gpu":
        return f"JAX {jax.__version__} sees no GPU"
    return [_jax_contender(name, primal, argnums, is_scalar) for name, primal in _jax_programs()[name].items()]


def _jax_contender(name: str, primal: Callable[..., Any], argnums: tuple[int, ...], is_scalar: bool) -> Contender:
    import jax

    def pulled(*arguments: Any) -> Any:
        *given, cotangent = arguments

        def of_chosen(*chosen: Any) -> Any:
            return primal(*_with(given, argnums, chosen))

        result, pullback = jax.vjp(of_chosen, *(given[k] for k in argnums))
        return result, pullback(cotangent)

    gradient = jax.value_and_grad(primal, argnums=argnums) if is_scalar else pulled

    def build() -> Callables:
        run, run_gradient = jax.jit(primal), jax.jit(gradient)
        return {
            "primal": lambda *given: jax.block_until_ready(run(*given)),
            "gradient": lambda *given: jax.block_until_ready(run_gradient(*given)),
        }

    return Contender(name, build, lambda arguments: placed(arguments, jax.numpy.asarray))


def _jax_programs() -> dict[str, dict[str, Callable[..., Any]]]:
    """The programs by the names of the workloads, each by the names of its contenders."""
    import jax.numpy as jnp

    return {
        "reduce": {"JAX": lambda x: jnp.sum(x * x)},
        "scan": {"JAX": jnp.cumsum},
        "histogram": {"JAX": lambda like, indices, values: jnp.zeros_like(like).at[indices].add(values)},
        "gather": {"JAX": lambda x, indices: x[indices]},
        "scatter": {"JAX": lambda x, indices, values: x.at[indices].set(values, unique_indices=True)},
        "product": {"JAX": lambda a, b: a @ b},
        "gmm": {"JAX": gmm.jax_gmm(gmm.jax_direct), "JAX, Qx - Qμ": gmm.jax_gmm(gmm.jax_expanded)},
        "kmeans": {"JAX": kmeans.jax_direct},
        "lstm": {"JAX": lstm.jax_loss},
    }


# PyTorch


def torch_peers(name: str, argnums: tuple[int, ...], is_scalar: bool, gpu: bool) -> list[Contender] | str:
    """PyTorch with a program and its derivative by autograd."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed"
    import torch

    if gpu and not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} sees no GPU"
    program = _torch_programs()[name]

    def finish() -> None:
        if gpu:
            torch.cuda.synchronize()

    def primal(*arguments: Any) -> Any:
        with torch.no_grad():
            result = program(*arguments)
        finish()
        return result

    def gradient(*arguments: Any) -> Any:
        given, cotangent = (arguments, None) if is_scalar else (arguments[:-1], arguments[-1])
        chosen = [given[k].detach().requires_grad_() for k in argnums]
        result = program(*_with(given, argnums, chosen))
        cotangents = torch.autograd.grad(result, chosen, cotangent)
        finish()
        return result.detach(), cotangents

    def build() -> Callables:
        return {"primal": primal, "gradient": gradient}

    def put(array: np.ndarray) -> Any:
        return torch.as_tensor(array, device="cuda" if gpu else "cpu")

    return [Contender("PyTorch", build, lambda arguments: placed(arguments, put))]


def _torch_programs() -> dict[str, Callable[..., Any]]:
    import torch

    return {
        "reduce": lambda x: (x * x).sum(),
        "scan": lambda x: torch.cumsum(x, 0),
        "histogram": lambda like, indices, values: torch.zeros_like(like).index_add(0, indices, values),
        "gather": lambda x, indices: x[indices],
        "scatter": lambda x, indices, values: x.scatter(0, indices, values),
        "product": lambda a, b: a @ b,
        "gmm": gmm.torch_gmm,
        "kmeans": lambda points, centroids: (torch.cdist(points, centroids) ** 2).min(1).values.sum(),
        "lstm": lstm.torch_loss,
    }


def _with(arguments: Any, argnums: tuple[int, ...], chosen: Any) -> list[Any]:
    """The arguments, with those at ``argnums`` replaced."""
    replaced = dict(zip(argnums, chosen, strict=True))
    return [replaced.get(k, argument) for k, argument in enumerate(arguments)]
