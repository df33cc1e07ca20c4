"""Programs and the same formulas in JAX, for the tests of ``az.jax``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from leaf_programs import layer, mixed, picked, recurrence, scalars
from other_libraries import jax_with_x64

import adze as az

jax = jax_with_x64()
jnp = jax.numpy


@dataclass(frozen=True)
class Formula:
    """A program, the same in JAX, arguments, and which of these are differentiated."""

    program: az.Program
    meaning: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    floats: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.program.name

    def fixed(self, function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
        """A function of the arrays that are differentiated, giving the results that are."""
        given = self.arguments()

        def run(*moving: Any) -> tuple[Any, ...]:
            all_of_them = list(given)
            for number, array in zip(self.floats, moving, strict=True):
                all_of_them[number] = array
            results = jax.tree.leaves(function(*all_of_them))
            return tuple([result for result in results if jnp.issubdtype(result.dtype, jnp.floating)])

        return run

    def moving(self) -> tuple[Any, ...]:
        """The arrays that are differentiated."""
        given = self.arguments()
        return tuple([given[number] for number in self.floats])


def same(found: Any, expected: Any) -> None:
    """Equal structures of arrays of the same types, up to rounding."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        tolerance = 1e-6 if one.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def numbers(*shape: int, seed: int = 0) -> Any:
    """An array of f64, the same for the same seed."""
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def mixed_meaning(x: Any, k: Any, chosen: Any) -> Any:
    found = jnp.where(chosen, x**2 * k, jnp.sin(x))
    return {"found": found, "sums": (found.sum(), chosen.sum(), chosen)}


def recurrence_meaning(x: Any, rate: Any) -> Any:
    state = x
    for _ in range(5):
        state = jnp.sin(state) + rate * x
    return state.sum()


FORMULAS = [
    Formula(
        layer,
        lambda w, b, x: jnp.tanh(x @ w.T + b),
        lambda: (numbers(2, 3), numbers(2, seed=1), numbers(3, 3, seed=2)),
        (0, 1, 2),
    ),
    Formula(scalars, lambda x, y: jnp.sin(x) * y**3, lambda: (numbers(), numbers(seed=1)), (0, 1)),
    Formula(mixed, mixed_meaning, lambda: (numbers(4), jnp.asarray(3), jnp.asarray([True, False, False, True])), (0,)),
    Formula(recurrence, recurrence_meaning, lambda: (numbers(3), numbers(seed=1)), (0, 1)),
    Formula(
        picked,
        lambda table, rows: jax.nn.logsumexp(table[rows], 1),
        lambda: (numbers(3, 2), jnp.asarray([2, 0, 2, 1])),
        (0,),
    ),
]
BY_NAME = {formula.name: formula for formula in FORMULAS}
