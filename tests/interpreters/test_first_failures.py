"""Of several requirements that fail, the first one in the order of the program is named, however loops are run."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az

Indices, Row = az.Array[az.i64, "n"], az.Array[az.f64, "m"]


@az.program
def rows(x: Indices, y: Row) -> az.Array[az.f64, "n"]:
    return az.generate(x.shape[0], lambda i: y[10 // x[i]])


@az.program
def inside(x: Indices, y: Row) -> az.Array[az.f64, "n n"]:
    return az.generate(x.shape[0], lambda i: az.generate(x.shape[0], lambda j: y[(8 + i) // x[j]]))


@az.program
def chosen(x: Indices, y: Row) -> az.f64:
    def element(i: Any) -> Any:
        return az.cond(x[i] < 9, lambda: y[10 // x[i]], lambda: y[x[i]])

    return az.sum(az.generate(x.shape[0], element))


@az.program
def walked(x: Indices, y: Row) -> az.Array[az.f64, "n"]:
    def element(i: Any) -> Any:
        return az.while_loop(lambda s: s < 3.0, lambda s: s + y[12 // x[i]] + 1.0, 0.0)

    return az.generate(x.shape[0], element)


def failure(run: Callable[..., Any], *arguments: Any) -> tuple[type[Exception], str]:
    with pytest.raises((IndexError, ZeroDivisionError)) as caught:
        run(*arguments)
    return caught.type, str(caught.value).partition(", at ")[0]


CASES = [
    (rows, [5, 1, 0], IndexError),
    (rows, [5, 0, 1], ZeroDivisionError),
    (inside, [4, 1, 0], IndexError),
    (inside, [8, 0, 1], ZeroDivisionError),
    (inside, [2, 4, 4], IndexError),
    (chosen, [10, 0, 1], IndexError),
    (chosen, [5, 0, 10], ZeroDivisionError),
    (walked, [6, 2, 0], IndexError),
]


@pytest.mark.parametrize(("program", "x", "kind"), CASES)
def test_the_first_row_that_fails_is_named(program: az.Program, x: list[int], kind: type[Exception]) -> None:
    found = failure(az.evaluate(program), x, np.zeros(4))
    assert found == failure(az.evaluate(program, vectorize=False), x, np.zeros(4))
    assert found[0] is kind


@pytest.mark.parametrize(("program", "x"), [(program, x) for program, x, _ in CASES[::3]])
def test_compiled_code_names_the_same(program: az.Program, x: list[int]) -> None:
    assert failure(az.compile(program), x, np.zeros(4)) == failure(az.evaluate(program), x, np.zeros(4))
