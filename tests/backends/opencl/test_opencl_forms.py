"""Forms of programs on a device: sizes choose one, its kernels are built when the first call takes it."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from load import example
from test_reassociation import Matrix, Row, Square, arguments, batched, batches, gram, scores, summed

import adze as az
from adze.backends.opencl import version
from adze.backends.opencl.devices import Device, target_of
from adze.backends.target import Target
from adze.core import trees

pytestmark = [pytest.mark.unguarded, pytest.mark.usefixtures("opencl")]


@pytest.fixture(autouse=True)
def of_two_units(opencl: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where forms change depends on how many units a device has: of this one it is as if these were two."""

    def target(device: Device) -> Target:
        return replace(target_of(device), units=2 * device.compute_units // opencl.compute_units)

    monkeypatch.setattr(version, "target_of", target)


# (n, d, e) of ``gram``: many points, few of them, and none
MANY, FEW, NONE = (200_000, 5, 5), (40, 9, 7), (0, 4, 4)
AS_MANY, AS_FEW = (dict(zip("nde", sizes, strict=True)) for sizes in (MANY, FEW))


def fresh(program: az.Program) -> az.Compiled:
    """Compiled for the device, with no kernels of other tests."""
    return az.compile(az.program(program.function), backend="opencl")


def states(compiled: az.Compiled) -> list[str]:
    return [each.state for each in compiled.specialisations]


def close(found: Any, wanted: Any) -> None:
    for made, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-10, atol=1e-9 * np.max(np.abs(expected), initial=1e-3))


@pytest.mark.rest
def test_a_form_is_built_when_a_call_takes_it() -> None:
    compiled = fresh(gram)
    assert states(compiled) == ["not compiled", "not compiled"] and compiled.compile_seconds > 0
    few, many = arguments(*FEW), arguments(*MANY)
    results = [compiled(*few)]
    close(results[0], az.evaluate(gram)(*few))
    assert states(compiled) == ["not compiled", "compiled"]
    empty = arguments(*NONE)
    close(compiled(*empty), az.evaluate(gram)(*empty))
    assert states(compiled) == ["not compiled", "compiled"]
    seconds = compiled.compile_seconds
    close(compiled(*many), az.compile(gram, threads=1)(*many))
    assert states(compiled) == ["compiled", "compiled"] and compiled.compile_seconds > seconds
    there = compiled(*[az.to_device(each) for each in few])
    results += [compiled(*few), [each.get() for each in there]]
    for found in results[1:]:
        for made, first in zip(found, results[0], strict=True):
            np.testing.assert_array_equal(made, first)


def test_specialisations_say_which_sizes_take_what() -> None:
    compiled = fresh(gram)
    compiled.warm(**AS_MANY)
    first, other = compiled.specialisations
    assert (first.state, other.state) == ("compiled", "not compiled") and first.seconds > 0 == other.seconds
    assert other.condition == f"not ({first.condition})" and "n" in first.condition
    assert first.why.startswith("result") and "lanes" in first.why  # the loops of its kernels
    assert compiled.compile_seconds == pytest.approx(first.seconds)
    close(compiled(*arguments(*MANY)), az.compile(gram, threads=1)(*arguments(*MANY)))
    assert compiled.compile_seconds == pytest.approx(first.seconds)  # what was made ahead is what the call takes
    compiled.warm()
    assert states(compiled) == ["compiled", "compiled"]
    assert compiled.compile_seconds == pytest.approx(sum(each.seconds for each in compiled.specialisations))
    with pytest.raises(TypeError, match="warm takes a value for each size, which are: d, e, n"):
        compiled.warm(n=3)


def test_texts_show_each_form_under_its_condition() -> None:
    compiled = fresh(gram)
    few = compiled.specialisations[0].condition
    for text in (compiled.nests, compiled.loops, compiled.schedule):
        assert [line for line in text.splitlines() if line.startswith("#")] == [f"# where {few}", "# elsewhere"]
    assert states(compiled) == ["not compiled", "not compiled"]
    first, other = compiled.opencl_source.split("\n// elsewhere\n")
    assert first.startswith(f"// where {few}\n") and "kernel void" in first and "kernel void" in other


@pytest.mark.slow
def test_memory_and_time_are_those_of_the_form_that_is_taken() -> None:
    compiled = fresh(batched)
    sizes = [dict(zip("nked", (n, k, d, d), strict=True)) for n, k, d in ((4, 6, 10), (20_000, 12, 24))]
    [name] = [row.name for row in compiled.decisions(sizes=sizes[0]).rows if row.name.startswith("reassociate")]
    for k, side in enumerate((False, True)):
        given = batches(*[sizes[k][name] for name in "nkd"])
        forced = az.compile(batched, backend="opencl", schedule={"force": {name: side}})
        [row] = [row for row in compiled.decisions(sizes=sizes[k]).rows if row.name == name]
        assert row.taken is side
        results = 8 * (given[3].size + given[1].size)
        assert compiled.peak_bytes(*given) == forced.peak_bytes(*given) > results
        profile = compiled.profile(*given)
        assert {row.name for row in profile.rows} == {row.name for row in forced.profile(*given).rows}
        assert {row.name for row in profile.rows} <= {row.name for row in compiled.cost(*given).rows}
        assert compiled.cost(*given).seconds == pytest.approx(forced.cost(sizes=sizes[k]).seconds)
        for made, wanted in zip(compiled(*given), forced(*given), strict=True):
            np.testing.assert_array_equal(made, wanted)
    with pytest.raises(ValueError, match="forces 'reassociate: nothing'"):
        az.compile(batched, backend="opencl", schedule={"force": {"reassociate: nothing": True}}).warm()


@az.program
def picked(
    x: Matrix, q: Square, centre: Row, w: az.Array[az.f64, "m"], places: az.Array[az.i64, "n"]
) -> tuple[az.f64, Square]:
    """Weights are those at checked places."""
    y, chosen = scores(x, q, centre), az.map(lambda i: w[i], places)
    outer = az.generate(q.shape, lambda r, c: summed(x.shape[0], lambda i: y[i, r] * x[i, c]))
    return summed(y.shape, lambda i, r: az.exp(chosen[i] * y[i, r])), outer


@pytest.mark.rest
@pytest.mark.parametrize("sizes", [MANY, FEW])
def test_an_index_out_of_range_in_either_form(sizes: tuple[int, int, int]) -> None:
    compiled = fresh(picked)
    x, q, centre, _ = arguments(*sizes)
    w, places = np.array([0.5, -1.0, 0.25]), np.arange(sizes[0]) % 3
    wrong = places.copy()
    wrong[sizes[0] // 2] = 3
    wanted = az.compile(picked, threads=1)(x, q, centre, w, places)
    for _ in range(2):
        with pytest.raises(IndexError) as caught:
            compiled(x, q, centre, w, wrong)
        with pytest.raises(IndexError) as reference:
            az.evaluate(picked)(x, q, centre, w, wrong)
        assert str(caught.value) == str(reference.value) and "index 3 is out of range" in str(caught.value)
        close(compiled(x, q, centre, w, places), wanted)
    assert sorted(states(compiled)) == ["compiled", "not compiled"]


def test_each_device_has_its_own_border(opencl: Device) -> None:
    """Where kernels take longer to start, in what it computes meanwhile, more points are many."""
    larger = replace(opencl, compute_units=100 * opencl.compute_units)
    assert target_of(larger).start_work == 100 * target_of(opencl).start_work > 0
    borders = []
    for device in (opencl, larger):
        compiled = az.compile(az.program(gram.function), backend="opencl", device=device)
        first, _ = compiled.specialisations
        borders.append(max(map(int, re.findall(r"\d+", first.condition))))
    assert borders[0] < borders[1]


# The gradient of the Gaussian mixture model


def sums(text: str) -> list[set[str]]:
    """The extents of the loops around each other in each nest that are not its axes."""
    nests = re.split(r"\n(?= *nest )", text)
    return [set(re.findall(r"for i\d+ < (\w+)", nest)) for nest in nests[1:]]


@pytest.mark.slow
def test_the_mixture_model_sums_over_points_before_it_multiplies() -> None:
    program = example("gmm").gradient
    gradient = az.compile(program, backend="opencl")
    many, others = gradient.nests.split("\n# elsewhere\n")
    assert {"n", "d"} in sums(others)  # a sum of n * d products for each of k * d elements
    assert {"n", "d"} not in sums(many) and {"n"} in sums(many)
    r = np.random.default_rng(3)
    d, k, n = 32, 10, 2000
    given = (r.normal(size=k), r.random((k, d)), r.normal(size=(k, d)) / 8, r.normal(size=(k, d * (d - 1) // 2)) / 8)
    given = (*given, r.normal(size=(n, d)), 1.0, 0)
    close(trees.flatten(gradient(*given))[0], trees.flatten(az.evaluate(program)(*given))[0])
    assert states(gradient)[0] == "compiled"
