"""Derivatives of small programs as a person reads them, word for word, and what they compute.

``data/derivatives.txt`` has the text of each program and of its derivative; with UPDATE=1 in the environment it is
written. Read what has changed there: a derivative should be what one would write by hand, with every value computed
once, and no accumulator where an array or a sum will do.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from agreement import everywhere, leaves, rounded
from load import ROOT
from programs import numbers
from richardson import Difference, along

import adze as az

TEXTS = ROOT / "tests" / "data" / "derivatives.txt"
Vector, Matrix, Places = az.Array[az.f64, "n"], az.Array[az.f64, "n m"], az.Array[az.i64, "m"]


@az.program
def dot(x: Vector, y: Vector) -> az.f64:
    return x @ y


@az.program
def energy(x: Vector) -> az.f64:
    return az.sum(az.map(lambda v: v * az.sin(v), x))


@az.program
def polynomial(coefficients: Vector, x: az.f64) -> az.f64:
    """Horner's rule, from the highest coefficient on."""
    return az.fori_loop(0, az.size(coefficients), lambda i, s: s * x + coefficients[i], 0.0)


@az.program
def huber(x: Vector) -> az.f64:
    return az.sum(az.where(abs(x) < 1, x**2, 2 * abs(x) - 1))


@az.program
def residual(a: Matrix, x: az.Array[az.f64, "m"], b: Vector) -> az.f64:
    """The square of what is missing in a x = b."""
    return az.sum((a @ x - b) ** 2)


@az.program
def transform(a: Matrix, x: az.Array[az.f64, "m"]) -> Vector:
    return a @ x


@az.program
def savings(rates: Vector) -> az.f64:
    return az.sum(az.cumsum(rates) ** 2)


@az.program
def embedded(table: az.Array[az.f64, "k d"], words: Places) -> az.f64:
    return az.sum(table[words] ** 2)


@az.program
def corrected(x: Vector, places: Places, values: az.Array[az.f64, "m"]) -> az.f64:
    return az.sum(az.scatter(x, places, values) ** 2)


@az.program
def loudest(x: Vector) -> az.f64:
    return az.max(az.map(lambda v: v**2, x))


@az.custom_vjp
def softplus(x: Any) -> Any:
    """log(1 + exp(x)), whose own derivative overflows to infinity over infinity."""
    return az.log(1.0 + az.exp(x))


@softplus.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    return (cotangent / (1.0 + az.exp(-primals[0])),)


@az.program
def hinge(x: az.f64, w: az.f64) -> az.f64:
    return softplus(x * w)


@az.program
def root(a: az.f64) -> az.f64:
    """Newton's method for x x = a."""
    return az.while_loop(lambda x: abs(x * x - a) > 1e-6, lambda x: 0.5 * (x + a / x), a)


@az.program
def softest(x: Vector) -> az.f64:
    return az.logsumexp(x)


@dataclass(frozen=True)
class Shown:
    """A derivative by verb, of a program, at arguments; ``kind`` says what it is the derivative of, in which mode."""

    verb: Callable[..., az.Program]
    program: az.Program
    arguments: tuple[Any, ...]
    argnums: int | tuple[int, ...] = 0

    @property
    def name(self) -> str:
        return f"{self.verb.__name__}({self.program.name})"

    @property
    def derivative(self) -> az.Program:
        return self.verb(self.program) if self.verb is az.jvp else self.verb(self.program, argnums=self.argnums)

    @property
    def places(self) -> Sequence[int]:
        return (self.argnums,) if isinstance(self.argnums, int) else self.argnums


x, y, a = numbers(5) / 4, numbers(5, seed=1), numbers(3, 4)
SHOWN = [
    Shown(az.grad, dot, (x, y), (0, 1)),
    Shown(az.grad, energy, (x,)),
    Shown(az.grad, polynomial, (x, 0.75), (0, 1)),
    Shown(az.jvp, polynomial, (x, 0.75), (0, 1)),
    Shown(az.grad, huber, (x,)),
    Shown(az.grad, residual, (a, numbers(4), numbers(3)), 1),
    Shown(az.vjp, transform, (a, numbers(4)), (0, 1)),
    Shown(az.grad, savings, (x,)),
    Shown(az.grad, embedded, (a, np.array([2, 0, 2]))),
    Shown(az.grad, corrected, (x, np.array([3, 0]), y[:2]), (0, 2)),
    Shown(az.grad, loudest, (x,)),
    Shown(az.grad, hinge, (0.5, -1.25), (0, 1)),
    Shown(az.grad, root, (2.0,)),
    Shown(az.jvp, root, (2.0,)),
    Shown(az.hvp, energy, (x,)),
    Shown(az.hvp, softest, (x,)),
    Shown(az.hessian, residual, (a, numbers(4), numbers(3)), 1),
]
each = pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.name)


def text(shown: Shown) -> str:
    return f"{az.pretty(shown.program)}\n\n{az.pretty(shown.derivative)}\n"


def read() -> dict[str, str]:
    parts = TEXTS.read_text(encoding="utf-8").split("-- ")[1:]
    return {name: body.rstrip("\n") + "\n" for name, body in (part.split("\n", 1) for part in parts)}


def test_the_file_is_of_these_derivatives() -> None:
    if os.environ.get("UPDATE"):
        parts = [f"-- {shown.name}\n{text(shown)}" for shown in SHOWN]
        TEXTS.write_text("\n\n".join(parts), encoding="utf-8")
    assert list(read()) == [shown.name for shown in SHOWN]


@each
def test_text(shown: Shown) -> None:
    assert text(shown) == read()[shown.name]


def directions(shown: Shown) -> list[Any]:
    """A tangent for each floating argument, zero where nothing is differentiated."""
    return [
        (numbers(*np.shape(v), seed=7 + k) / 8)[()] if k in shown.places else np.zeros(np.shape(v))[()]
        for k, v in enumerate(shown.arguments)
        if np.asarray(v).dtype.kind == "f"
    ]


@pytest.mark.unguarded
@each
def test_value(shown: Shown) -> None:
    """The term that is printed, among others, against extrapolated differences along a direction."""
    tangents = directions(shown)
    moved = [tangent for tangent in tangents if np.any(tangent)]
    program, more = shown.program, []
    if shown.verb is az.jvp:
        more = tangents
    elif shown.verb is az.vjp:
        more = [numbers(3, seed=5)]
    elif shown.verb is az.hvp:
        more = moved
    result = leaves(everywhere(shown.derivative, (*shown.arguments, *more), rounded, compiled=False))
    if shown.verb in (az.hvp, az.hessian):
        program = az.grad(shown.program, argnums=shown.argnums)
    difference = along(program, shown.arguments, tangents)
    match shown.verb:
        case az.jvp:
            got = result[1:]
        case az.hvp:
            got = result
        case az.vjp:
            got = [sum(np.sum(g * t) for g, t in zip(result[1:], moved, strict=True))]
            (values,), (errors,), weights = difference.values, difference.errors, more[0]
            difference = Difference(difference.reliable, [weights @ values], [abs(weights) @ errors])
        case az.hessian:
            got = [result[0] @ moved[0]]
        case _:
            got = [sum(np.sum(g * t) for g, t in zip(result, moved, strict=True))]
    difference.agrees(got, 1e-9)
