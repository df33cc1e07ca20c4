"""Random programs mean the same in every interpretation.

``random_programs.py`` writes them; ``agreement.py`` says when results agree. A failure shows the program as text.
"""

from typing import Any

import pytest
from agreement import everywhere, exact, rounded
from hypothesis import given, settings
from random_programs import argument_lists, made, program_texts

import adze as az

SWEEP = 100


@given(program_texts(polynomial=True), argument_lists())
def test_polynomial_programs_agree_exactly(text: str, arguments: tuple[Any, ...]) -> None:
    everywhere(made(text), arguments, exact)


@given(program_texts(depth=3), argument_lists())
def test_smooth_programs_agree_to_rounding(text: str, arguments: tuple[Any, ...]) -> None:
    everywhere(made(text), arguments, rounded)


@given(program_texts(polynomial=True, depth=3), argument_lists(special=True))
def test_infinities_and_nan_come_out_in_the_same_places(text: str, arguments: tuple[Any, ...]) -> None:
    everywhere(made(text), arguments, rounded)


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
@settings(max_examples=SWEEP)
@given(program_texts(polynomial=True, depth=5), argument_lists())
def test_larger_polynomial_programs_agree_exactly(text: str, arguments: tuple[Any, ...]) -> None:
    everywhere(made(text), arguments, exact)
