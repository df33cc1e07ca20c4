"""How many registers of lanes a body runs on: as many as hold what it computes."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded


def strip(element: Callable[[Any], Any]) -> int:
    """How many elements are computed at a time."""

    @az.program
    def mapped(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        return az.map(element, x)

    compiled = az.compile(mapped)
    x = np.linspace(-1, 1, 1001)
    np.testing.assert_allclose(compiled(x), az.evaluate(mapped)(x), rtol=1e-12)
    (found,) = re.findall(r"lanes .* by (\d+)", compiled.schedule)
    return int(found)


def chain(x: Any) -> Any:
    """Many values, each of which the next one waits for and nobody else reads."""
    for k in range(40):
        x = az.sqrt(x * x + 1.0 / (k + 1))
    return x


def pyramid(x: Any) -> Any:
    """As many values, all of which are there before the first is read again."""
    values = [x]
    for _ in range(40):
        values.append(az.sqrt(values[-1] + 2.0))
    total = values.pop()
    while values:
        total = az.sqrt(total * total + values.pop())
    return total


def test_a_long_chain_runs_on_as_many_registers_as_a_short_body() -> None:
    short = strip(lambda x: 2 * x + 1)
    assert strip(chain) == short
    assert strip(pyramid) < short


def test_random_numbers_run_on_several_registers() -> None:
    program = az.program(lambda key: az.random.normal(key, 5000)).at(az.Array[az.u32, 2])
    uniform = az.program(lambda key: az.random.uniform(key, 5000)).at(az.Array[az.u32, 2])
    found = [int(re.findall(r"lanes .* by (\d+)", az.compile(p).schedule)[0]) for p in (program, uniform)]
    assert min(found) > strip(pyramid)
