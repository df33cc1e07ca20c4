"""The stages of dual-numbers reverse mode, ``examples/dual_numbers.py``: the paper's numbers, and that they agree."""

import math
from typing import Any

import numpy as np
import pytest
from load import example

import adze as az
from adze.core.language import Unsupported

stages = example("dual_numbers")
each = pytest.mark.parametrize("stage", stages.STAGES, ids=lambda stage: stage.__name__)


def gradient(stage: Any, program: az.Program, *inputs: float) -> list[float]:
    run = stage()
    gradient: list[float] = run.pull(run.run(program, *inputs), 1.0)
    return gradient


@each
def test_the_running_example(stage: Any) -> None:
    """Figure 1 of the paper; a sweep may be made again, for another cotangent."""
    run = stage()
    result = run.run(stages.running, 12.0, 13.0)
    assert result.primal == 300
    assert [run.pull(result, z) for z in (1.0, 1.0, -0.5)] == [[37, 12], [37, 12], [-18.5, -6]]


def test_the_staging_map() -> None:
    """Section 6: after the call of the product, 25 is due at x (number 0), and 12 at the sum (number 2)."""
    run = stages.Staged()
    steps = [(list(known), due) for known, due in run.maps(run.run(stages.running, 12.0, 13.0), 1.0)]
    assert steps[1] == ([0, 0], {0: 25, 2: 12})
    assert steps == [
        ([0, 0], {3: 1}),
        ([0, 0], {0: 25, 2: 12}),
        ([0, 0], {0: 37, 1: 12}),
        ([0, 12], {0: 37}),
        ([37, 12], {}),
    ]


@pytest.mark.parametrize("n", [1, 2, 7, 14])
def test_calls_of_backpropagators(n: int) -> None:
    """Section 5.4: as many as there are paths; with factoring, as there are operations."""
    counts = [stages.calls(stage(), n) for stage in (stages.Naive, stages.Staged, stages.Accumulated)]
    assert counts == [2**n - 1, n, n]
    assert [gradient(stage, stages.doublings(n), 1.0) for stage in stages.STAGES] == [[2.0**n]] * 4


@each
def test_functions_and_recursion(stage: Any) -> None:
    """Against formulas: c**(1/2), and x sin(y)**2."""
    assert gradient(stage, stages.root, 2.0) == pytest.approx([1 / (2 * math.sqrt(2))], rel=1e-12)
    x, y = 0.5, 1.0
    wanted = [math.sin(y) ** 2, 2 * x * math.sin(y) * math.cos(y)]
    assert gradient(stage, stages.twice, x, y) == pytest.approx(wanted, rel=1e-14)


@az.program
def forked(x: az.f64, y: az.f64) -> az.f64:
    """Both branches read both inputs, and a number from before the fork; literals, a choice, and functions chosen."""
    z = x * y - 0.5
    a, b = az.par(lambda: az.exp(z) / (x + 3.0), lambda: az.par(lambda: -z, lambda: z * z)[1] + y)
    scaled = az.function(lambda u: 2.0 * u * a, az.f64)
    f = az.cond(b > a, lambda: scaled, lambda: az.function(lambda u: u - y, az.f64))
    power = az.fix(
        lambda self, k, u: az.cond(k == 0, lambda: u, lambda: self(k - 1, u * f(u))), az.i64, az.f64, result=az.f64
    )
    return power(3, x) + b


@each
def test_forks_and_choices(stage: Any) -> None:
    """Against the gradient of a run in the reference interpreter."""
    for inputs in ((0.5, 1.25), (-0.75, 0.25), (1.5, -2.0)):
        wanted = az.grad(forked, argnums=(0, 1), via="trace")(*inputs)
        np.testing.assert_allclose(gradient(stage, forked, *inputs), wanted, rtol=1e-13)


@each
def test_what_stages_have_no_meaning_for(stage: Any) -> None:
    looped = az.program(lambda x: az.fori_loop(0, 3, lambda _, s: s * x, x)).at(az.f64)
    for program, said in (
        (looped, "arrays, loops and requirements"),
        (az.program(lambda x: az.tanh(x)).at(az.f64), "tanh"),
    ):
        with pytest.raises(Unsupported, match=f"{stage.__name__} has no meaning for {said}"):
            gradient(stage, program, 0.5)
