"""Random programs mean the same in every interpretation.

``random_programs.py`` writes them; ``agreement.py`` says when results agree. A failure shows the program as text.
"""

from typing import Any

import numpy as np
import pytest
from agreement import ROUNDINGS, everywhere, exact, leaves, magnitude, rounded
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import instance
from random_programs import PARAMETERS, argument_lists, made, program_texts
from richardson import along

import adze as az
from adze.core import trees

pytestmark = pytest.mark.unguarded

EXAMPLES = 40


@pytest.mark.rest
@given(program_texts(polynomial=True), argument_lists())
def test_polynomial_programs_agree_exactly(text: str, arguments: tuple[Any, ...]) -> None:
    everywhere(made(text), arguments, exact)


@pytest.mark.rest
@given(program_texts(depth=3), argument_lists())
def test_smooth_programs_agree_to_rounding(text: str, arguments: tuple[Any, ...]) -> None:
    everywhere(made(text), arguments, rounded)


@pytest.mark.rest
@given(program_texts(polynomial=True, depth=3), argument_lists(special=True))
def test_infinities_and_nan_come_out_in_the_same_places(text: str, arguments: tuple[Any, ...]) -> None:
    everywhere(made(text), arguments, rounded)


@pytest.mark.rest
@given(program_texts(polynomial=True, depth=3), argument_lists(empty=True))
def test_empty_arrays_give_the_same_or_fail_in_the_same_way(text: str, arguments: tuple[Any, ...]) -> None:
    """Reading an element of nothing is an error everywhere, with the same message."""
    program = made(text)
    try:
        az.evaluate(program)(*arguments)
    except (IndexError, ValueError) as failure:
        for run in (az.evaluate(program, vectorize=False), az.compile(program)):
            with pytest.raises(type(failure)):
                run(*arguments)
    else:
        everywhere(program, arguments, exact)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(program_texts(polynomial=True, depth=5), argument_lists())
def test_larger_polynomial_programs_agree_exactly(text: str, arguments: tuple[Any, ...]) -> None:
    everywhere(made(text), arguments, exact)


# Derivatives

FLOATING = len(PARAMETERS) - 1  # all but the places


def largest(program: az.Program, arguments: tuple[Any, ...]) -> float | None:
    made_here = instance(program, arguments)
    return magnitude(made_here.term, *made_here.signature.convert(program.leaves(arguments)))


def transposed(program: az.Program, arguments: tuple[Any, ...], seed: int) -> tuple[list[Any], list[Any]]:
    """A direction and the tangent along it, after both modes were seen to agree: <v, J u> = <J^T v, u>."""
    random = np.random.default_rng(seed)

    def quarters(like: Any) -> Any:
        return (random.integers(-8, 9, np.shape(like)) / 4)[()]

    direction = [quarters(x) for x in arguments[:FLOATING]]
    with np.errstate(all="ignore"):
        result = az.evaluate(program)(*arguments)
        cotangent = trees.tree_map(quarters, result)
        forward, reverse = (az.jvp(program), (*arguments, *direction)), (az.vjp(program), (*arguments, cotangent))
        tangent = leaves(az.evaluate(forward[0])(*forward[1])[1])
        cotangents = az.evaluate(reverse[0])(*reverse[1])[1:]
        pairs = [zip(leaves(cotangent), tangent, strict=True), zip(cotangents, direction, strict=True)]
        left, right = (sum(float(np.sum(a * b)) for a, b in terms) for terms in pairs)
    magnitudes = [largest(*each) for each in (forward, reverse)]
    if np.isfinite(left) and np.isfinite(right) and None not in magnitudes:
        count = sum(map(np.size, tangent)) + sum(map(np.size, direction))
        assert abs(left - right) <= count * ROUNDINGS * np.finfo(float).eps * 8 * max(m for m in magnitudes if m)
    return direction, tangent


def squares(program: az.Program) -> az.Program:
    """The sum of the squares of all results."""

    def total(*arguments: Any) -> Any:
        return sum((az.sum(part * part) for part in trees.flatten(program(*arguments))[0]), start=0.0)

    return az.Program(total, f"squares({program.name})", program.parameters)


def differentiated(text: str, arguments: tuple[Any, ...], seed: int) -> None:
    """Both modes against each other and, where the program is seen to be smooth, against differences."""
    program = made(text)
    direction, tangent = transposed(program, arguments, seed)
    if "stop_gradient" not in text and all(np.all(np.isfinite(part)) for part in tangent):
        difference = along(program, arguments, direction)
        if difference.reliable:
            difference.agrees(tangent, 1e-7)


@settings(max_examples=10)
@given(program_texts(depth=3), argument_lists(), st.integers(0, 99))
def test_derivatives_agree_with_each_other_and_with_differences(text: str, arguments: Any, seed: int) -> None:
    differentiated(text, arguments, seed)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(program_texts(depth=4), argument_lists(), st.integers(0, 99))
def test_derivatives_of_larger_programs(text: str, arguments: Any, seed: int) -> None:
    differentiated(text, arguments, seed)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(program_texts(depth=3), argument_lists(), st.integers(0, 99))
def test_second_derivatives_agree(text: str, arguments: Any, seed: int) -> None:
    gradient = az.grad(squares(made(text)), argnums=tuple(range(FLOATING)))
    transposed(gradient, arguments, seed)


@pytest.mark.slow
@settings(max_examples=EXAMPLES // 4)
@given(program_texts(polynomial=True, depth=3), argument_lists())
def test_gradients_agree_in_every_interpretation(text: str, arguments: Any) -> None:
    everywhere(az.grad(squares(made(text)), argnums=tuple(range(FLOATING))), arguments, rounded)
