"""The real programs on an OpenCL device, against independent implementations (tests/data): values and derivatives."""

from functools import cache
from typing import Any

import pytest
import test_golden_gmm as gmm
from load import benchmark
from test_golden_programs import bundle, close, functions

import adze as az

pytestmark = [pytest.mark.unguarded, pytest.mark.usefixtures("opencl")]

# What takes longer to build, or has sequences of a thousand steps.
LONG = {("ba", "jacobian")}
LONG |= {(program, function) for program in ("ht", "lstm") for function in benchmark(program).FUNCTIONS}


@cache
def compiled(program: az.Program) -> az.Compiled:
    return az.compile(program, backend="opencl")


@pytest.mark.rest
@gmm.cases
def test_mixture_model(case: Any) -> None:
    gmm.close(compiled(gmm.gmm.objective)(*case.arguments), case.objective)
    gmm.agree(compiled(gmm.gmm.gradient)(*case.arguments), case)


@pytest.mark.rest
@functions(LONG)
def test_program(case: Any, function: str) -> None:
    program = benchmark(case.program)
    result = compiled(program.FUNCTIONS[function])(*program.arguments(case.given))
    close(program.answer(function, result), case.wanted[function])


@pytest.mark.slow
def test_bundle_adjustment_of_different_cameras_and_points() -> None:
    """The case of the suite has one observation, repeated."""
    ba = benchmark("ba")
    arguments = bundle(3, 4, 40)
    found, wanted = (ba.matrix(*run(*arguments)) for run in (compiled(ba.jacobian), az.evaluate(ba.jacobian)))
    close(found.toarray(), wanted.toarray(), 1e-12)
