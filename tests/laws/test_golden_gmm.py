"""The Gaussian mixture model against an independent implementation (tests/data): every layer on one real program."""

from typing import Any

import numpy as np
import pytest
from load import example

import adze as az

pytestmark = pytest.mark.unguarded

gmm = example("gmm")
CASES = gmm.read_cases()
TOLERANCE = 1e-10

cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "_"))


def close(found: Any, wanted: Any) -> None:
    """Each element is right, relative to itself (to 1, where it is small)."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape and found.dtype == np.float64
    scale = np.maximum(1.0, np.maximum(abs(found), abs(wanted)))
    assert np.max(abs(found - wanted) / scale, initial=0.0) <= TOLERANCE


def agree(result: Any, case: Any) -> None:
    """A result of ``gradient`` is what the reference says, in all its parts."""
    value, *parts = gmm.flat(result)
    close(value, case.objective)
    for name, part in zip(gmm.PARTS, parts, strict=True):
        close(part, case.gradient[name])


@pytest.fixture(scope="module")
def compiled() -> dict[int, az.Compiled]:
    return {threads: az.compile(gmm.gradient, threads=threads) for threads in (1, 2, 3)}


@pytest.fixture(scope="module")
def forward() -> az.Compiled:
    return az.compile(az.jvp(gmm.objective), threads=1)


def test_the_cases_are_there() -> None:
    assert [case.name for case in CASES] == ["d=2 k=5 n=1000", "d=2 k=25 n=1000", "d=10 k=25 n=1000"]
    assert all(case.objective is not None and case.gradient is not None for case in CASES)


@cases
def test_evaluated(case: Any) -> None:
    close(az.evaluate(gmm.objective)(*case.arguments), case.objective)
    agree(az.evaluate(gmm.gradient)(*case.arguments), case)


@pytest.mark.rest
@cases
def test_compiled(case: Any, compiled: dict[int, az.Compiled]) -> None:
    for threads in (1, 2):
        close(az.compile(gmm.objective, threads=threads)(*case.arguments), case.objective)
        agree(compiled[threads](*case.arguments), case)


@cases
def test_the_number_of_threads_changes_no_bit(case: Any, compiled: dict[int, az.Compiled]) -> None:
    results = [gmm.flat(compiled[threads](*case.arguments)) for threads in (1, 2, 3, 2)]
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.rest
@cases
def test_forward_mode_agrees_with_reverse_mode(case: Any, forward: az.Compiled) -> None:
    """The derivative in one direction is the inner product of the gradient with it."""
    random = np.random.default_rng(1)
    tangents = [random.standard_normal(np.shape(argument)) for argument in case.arguments[:4]]
    fixed = [np.zeros_like(case.arguments[4]), 0.0]  # for the points and for gamma
    value, tangent = forward(*case.arguments, *tangents, *fixed)
    close(value, case.objective)
    products = [case.gradient[name] * v for name, v in zip(gmm.PARTS, tangents, strict=True)]
    magnitude = sum(float(np.sum(abs(p))) for p in products)
    assert abs(tangent - sum(float(np.sum(p)) for p in products)) <= TOLERANCE * magnitude


def test_the_gradient_is_a_well_typed_program() -> None:
    term = gmm.gradient.at().term
    az.check(term)
    simplified = az.simplify(term)
    az.check(simplified)
    assert simplified.count() < term.count()
    assert term.interpret(az.Reify()) == term


@pytest.mark.parametrize(("d", "k", "n"), [(1, 1, 1), (1, 3, 2), (3, 1, 5), (2, 2, 0), (5, 4, 37)])
def test_small_sizes_compiled_as_evaluated(d: int, k: int, n: int, compiled: dict[int, az.Compiled]) -> None:
    """Sizes that fill no vector, one component, one dimension (no element under the diagonal), no point."""
    random = np.random.default_rng(d + 10 * k)
    shapes = ((k,), (k, d), (k, d), (k, d * (d - 1) // 2), (n, d))
    arguments = [*(random.standard_normal(shape) for shape in shapes), 1.5, 2]
    wanted = gmm.flat(az.evaluate(gmm.gradient)(*arguments))
    for a, b in zip(gmm.flat(compiled[2](*arguments)), wanted, strict=True):
        close(a, b)
