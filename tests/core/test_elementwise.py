"""What help says of elementwise functions is what they do: their domains and derivatives, checked by numbers."""

from typing import Any

import numpy as np
import pytest

import adze as az
from adze.core.elementwise import PLAIN, SMOOTH
from adze.core.primitive import Primitive, lookup

NAMES = {name: getattr(az, name) for name in az.__all__}
ELEMENTWISE = {name: row for name, row in NAMES.items() if isinstance(row, Primitive)}
NUMBERS = np.array([-2.75, -1.25, -1.0, -0.5, -0.1, 0.0, 0.3, 0.8, 1.0, 1.4, 2.25, 3.6])
ONLY_LOOSELY = {"lgamma", "power"}  # defined for negative numbers, too, but not for all


def formula(text: str, *operands: Any) -> Any:
    return eval(text, dict(NAMES), dict(zip("xy", operands)))


def test_every_elementwise_function_is_described() -> None:
    assert ELEMENTWISE.keys() == SMOOTH.keys() | PLAIN.keys() and not SMOOTH.keys() & PLAIN.keys()
    for name, row in ELEMENTWISE.items():
        assert row.__doc__ and row.__doc__.startswith(f"{name}(x"), name
    assert Primitive.__doc__ and Primitive.__doc__.startswith("A scalar operation")


@pytest.mark.parametrize("name", [name for name, (_, domain, _) in SMOOTH.items() if domain != "True"])
def test_domains(name: str) -> None:
    row = lookup(name)
    for operands in np.array(np.meshgrid(*[NUMBERS] * row.arity)).reshape(row.arity, -1).T:
        inside = bool(formula(SMOOTH[name][1], *operands))
        if inside or name not in ONLY_LOOSELY:
            assert np.isfinite(row(*operands)) == inside, operands


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_are_those_that_are_said(name: str) -> None:
    _, domain, derivatives = SMOOTH[name]
    row = lookup(name)
    function = (lambda x: row(x)) if row.arity == 1 else (lambda x, y: row(x, y))
    gradient = az.evaluate(az.grad(function, argnums=tuple(range(row.arity))))
    for operands in np.array(np.meshgrid(*[NUMBERS + 0.0625] * row.arity)).reshape(row.arity, -1).T:
        if formula(domain, *operands):
            said = [float(formula(text, *operands)) for text in derivatives]
            assert np.allclose(gradient(*operands), said, rtol=1e-13, atol=1e-300), operands


def test_a_primitive_of_ones_own_is_described_too() -> None:
    half = az.primitive(
        "half_of_it",
        numpy=lambda x: x / 2,
        derivative=lambda y, x: (lambda t: t / 2,),
        llvm=az.Expansion(lambda x: x / 2),
        doc="half of a number.",
    )
    assert half.__doc__ == "half_of_it(x): half of a number."
