"""Random programs of the higher-order fragment mean the same in every interpretation, and in Python.

``random_functions.py`` draws them. A failure shows the program as text.
"""

import re
from typing import Any

import numpy as np
import pytest
from agreement import exact
from directions import direction, floats, inner, moving
from random_functions import random_function, text_of
from sampling import some

import adze as az
from adze.core import trees
from adze.core.types import is_data
from adze.interpreters.evaluate import evaluate_block

pytestmark = pytest.mark.unguarded


@pytest.mark.parametrize("seed", range(100))
def test_evaluate_agrees_with_python(seed: int) -> None:
    program, arguments, expected = random_function(seed)
    exact(az.evaluate(program)(*arguments), expected)


@pytest.mark.rest
@pytest.mark.parametrize("seed", [12, 156, *range(200, 230)])
def test_compiled_agrees_with_python(seed: int) -> None:
    """Seed 12 jumps between procedures that take more than there are registers; 156 has empty cells of two types."""
    program, arguments, expected = random_function(seed)
    exact(az.compile(program)(*arguments), expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(2000, 2200), 5, long=0))
def test_more_compiled_programs_agree(seed: int) -> None:
    program, arguments, expected = random_function(seed, 3 + seed % 3)
    exact(az.compile(program)(*arguments), expected)


def laws(seed: int, depth: int) -> None:
    """Evaluated in both ways, simplified, and traced."""
    program, arguments, expected = random_function(seed, depth)
    made = program.instance_for(program.bind(arguments, {}))
    az.check(made.term)
    assert made.term.interpret(az.Reify()) == made.term
    simplified = az.simplify(made.term)
    az.check(simplified)
    values, sizes = made.signature.convert(program.leaves(arguments))
    exact(trees.unflatten(made.outputs, evaluate_block(simplified, values, sizes)), expected)
    exact(az.evaluate(program)(*arguments), expected)
    exact(az.evaluate(program, vectorize=False)(*arguments), expected)
    if all(is_data(type) for type in made.term.types):  # what is traced away is no result
        exact(az.trace(program)(*arguments).result, expected)


@pytest.mark.parametrize("seed", range(100, 110))
def test_all_interpretations_agree(seed: int) -> None:
    laws(seed, 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(1000, 1300), 5, long=0))
def test_more_programs_agree(seed: int) -> None:
    laws(seed, 3 + seed % 3)


def transposed(seed: int, depth: int, run: Any) -> None:
    """Reverse mode is the transpose of forward mode, which has rules of its own for functions and data."""
    program, arguments, expected = random_function(seed, depth)
    numbers = moving(program)
    if not numbers or not floats(expected):
        return
    w, v = direction(expected, 1), [direction(arguments[k], k + 5) for k in numbers]
    moved = az.evaluate(az.jvp(program, argnums=numbers))(*arguments, *v)[1]
    found = run(az.vjp(program, argnums=numbers))(*arguments, w)[1:]
    np.testing.assert_allclose(inner(found, v), inner(w, moved), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_reverse_mode_is_the_transpose_of_forward_mode(seed: int) -> None:
    transposed(seed, 3, az.evaluate)


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(3000, 3100), 5, long=0))
def test_compiled_reverse_mode_is_the_transpose_of_forward_mode(seed: int) -> None:
    transposed(seed, 3 + seed % 2, az.compile)


def test_programs_are_drawn_of_all_kinds() -> None:
    """The first hundred use each construct often, call definitions outside, and are the same each time."""
    texts = [text_of(random_function(seed)[0]) for seed in range(100)]
    kinds = ["data", "function", "fix", "case", "par", "fori_loop", "cond", "generate", "map", "sum"]
    for kind in kinds:
        assert sum(f"az.{kind}" in text for text in texts) >= 20, kind
    called = [re.findall(r"^(g\d+) = (.*)$", text, re.MULTILINE) for text in texts]
    mutual = [
        own for own in called if any(f"{name}(" in body for name, _ in own for other, body in own if other != name)
    ]
    assert len(mutual) >= 20
    assert texts[0] == text_of(random_function(0)[0])


def test_numbers_are_exact_in_any_order() -> None:
    for seed in range(20):
        _, _, expected = random_function(seed)
        for leaf in trees.flatten(expected)[0]:
            if isinstance(leaf, float | np.ndarray):
                assert np.all(np.asarray(leaf) * 2.0**16 % 1 == 0)
