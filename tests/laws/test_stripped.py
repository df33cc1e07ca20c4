"""Leaving out an annotation costs nothing: the code of programs without annotations is that of the annotated ones."""

import inspect
from typing import Any

import numpy as np
import pytest
from load import ROOT, benchmark, example
from programs import CASES, numbers
from stripped import same_code

import adze as az
from adze.core.annotations import Parameter

BENCHMARKS = sorted({path.stem for path in (ROOT / "benchmarks" / "programs").glob("*.py")} - {"__init__", "cases"})


def undetermined(parameter: Parameter) -> bool:
    """Whether a parameter without a type is not static, or has no value unless a call gives one."""
    return parameter.static is None or parameter.default is inspect.Parameter.empty


WRITTEN = [
    *[(f"{case.name}", case.program) for case in CASES],
    *[
        (f"{name}.{function}", program)
        for name in [*BENCHMARKS, "gmm"]
        for function, program in vars(benchmark(name) if name in BENCHMARKS else example(name)).items()
        if isinstance(program, az.Program)
        and not any(each.declared is None and undetermined(each) for each in program.parameters)
    ],
]
COMPARED = "the comparison of two sizes inside of a map keeps it apart from the sum over it"
OTHER = {"sequences.random_field": [pytest.mark.xfail(strict=True, reason=COMPARED)]}


@pytest.mark.rest
@pytest.mark.unguarded
@pytest.mark.parametrize(
    "program", [pytest.param(program, id=name, marks=OTHER.get(name, [])) for name, program in WRITTEN]
)
def test_programs_without_annotations_are_the_same(program: az.Program) -> None:
    assert same_code(program)


# Code that assumes what is required in loops and branches


def repeated(x: Any, y: Any, times: Any) -> Any:
    return az.fori_loop(0, times, lambda i, total: total + az.sum(x * y), 0.0)


def test_other_sizes_take_other_code() -> None:
    """The requirement of the loop is compared in the run then, if the loop runs at all."""
    x, y = numbers(20), numbers(21, seed=1)
    for first in (x, y):
        run = az.compile(az.program(repeated))
        for other in (first, y, x):
            if len(other) == len(x):
                assert run(x, other, 2) == 2 * np.sum(x * other)
            else:
                with pytest.raises(ValueError, match=r"multiply: the sizes x_0 = 20 and y_0 = 21 .*test_stripped.py"):
                    run(x, other, 1)
                assert run(x, other, 0) == 0
        assert [each.condition for each in run.specialisations] == ["x_0 = y_0", "all sizes"]


def test_assumptions_are_shown_and_kept_on_disk(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path))
    for state in ("compiled", "loaded from disk"):
        run = az.compile(az.grad(az.program(repeated), argnums=(0, 1)))
        x, y = numbers(20), numbers(20, seed=1)
        for made, wanted in zip(run(x, y, 3), (3 * y, 3 * x), strict=True):
            np.testing.assert_array_equal(made, wanted)
        [one] = run.specialisations
        assert (one.condition, one.state) == ("x_0 = y_0", state)


def test_a_loop_over_one_array_reads_all_of_another() -> None:
    """An index that runs along all of a loop is one of an array of this length, or of a longer one."""

    def f(x: Any, y: Any) -> Any:
        return az.generate(x.shape[0], lambda i: x[i] - y[i])

    run = az.compile(f)
    x, y = numbers(20), numbers(30, seed=1)
    np.testing.assert_array_equal(run(x, y[:20]), x - y[:20])
    np.testing.assert_array_equal(run(x, y), x - y[:20])
    np.testing.assert_array_equal(az.compile(f)(x, y), x - y[:20])
    with pytest.raises(IndexError, match=r"index 19 is out of range for axis 0 of y, of type .*, whose size is 19"):
        run(x, y[:19])
    assert [each.condition for each in run.specialisations] == ["x_0 = y_0", "all sizes"]


@pytest.mark.usefixtures("opencl")
def test_devices_take_the_same_code() -> None:
    run = az.compile(az.program(repeated), backend="opencl")
    x = numbers(20)
    assert run(x, x, 2) == 2 * np.sum(x * x)
    with pytest.raises(ValueError, match="the sizes x_0 = 20 and y_0 = 21"):
        run(x, numbers(21), 1)
