"""Specialisations: what a compiled program says of its codes, codes made ahead, and small sizes as constants."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded


@az.program
def product(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "m k"]) -> az.Array[az.f64, "n k"]:
    return a @ b


def states(compiled: Any) -> list[str]:
    return [each.state for each in compiled.specialisations]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path))


def fresh(f: Any) -> Any:
    """The compiled program, as a process that has not seen it would make it."""
    return az.compile(az.program(f.function))


def test_what_sizes_choose_is_shown_and_made_ahead(cache: None) -> None:
    compiled = fresh(product)
    first, *branches = compiled.specialisations
    assert first.condition == "all sizes" and first.state == "compiled" and first.seconds > 0
    assert re.match(r"\d+ <= n \* k \* m", branches[0].condition) and len(branches) > 1  # how many: by the machine
    assert {each.state for each in branches} == {"not compiled"} and not any(each.seconds for each in branches)
    assert all(each.why.startswith("result") for each in branches)
    compiled.warm(n=300, m=300, k=300)
    made = [each for each in compiled.specialisations if each.state == "compiled"]
    assert 1 < len(made) <= len(branches) and all(each.seconds > 0 for each in made)
    assert made[1].condition == branches[0].condition
    seconds = compiled.compile_seconds
    assert seconds == pytest.approx(sum(each.seconds for each in compiled.specialisations))
    a = np.ones((300, 300))
    compiled(a, a)
    assert compiled.compile_seconds == seconds  # what was made ahead is what the call takes
    compiled.warm()
    assert set(states(compiled)) == {"compiled"}
    again = fresh(product)
    again.warm()
    assert set(states(again)) == {"loaded from disk"}


def test_what_a_bound_call_takes_is_made_when_it_is_bound(cache: None) -> None:
    compiled, a = fresh(product), np.ones((300, 300))
    bound = compiled.bind(a, a)
    made = states(compiled)
    assert made.count("compiled") > 1
    np.testing.assert_array_equal(bound(), a @ a)
    assert states(compiled) == made


@pytest.mark.parametrize("sizes", [{}, {"n": 3}, {"n": 3, "m": 4, "k": 5, "j": 6}, {"rows": 3, "m": 4, "k": 5}])
def test_sizes_to_make_ahead_are_those_of_the_program(sizes: dict[str, int]) -> None:
    compiled = az.compile(product)
    if not sizes:
        compiled.warm()
        return
    with pytest.raises(TypeError, match=r"product: warm takes a value for each size, which are: k, m, n \(at .*\.py"):
        compiled.warm(**sizes)


def test_a_program_without_sizes_has_none_to_make_ahead() -> None:
    with pytest.raises(TypeError, match="which are: none"):
        az.compile(az.program(lambda x: x + 1).at(az.f64)).warm(n=3)


def test_a_branch_in_a_branch_that_is_kept_on_disk(cache: None) -> None:
    """Only the inner one is missing when the second program is called."""

    def called(n: int, m: int) -> set[str]:
        a, b = np.ones((n, 100)), np.ones((100, m))
        compiled = fresh(product)
        np.testing.assert_array_equal(compiled(a, b), 100)
        return set(states(compiled))

    assert called(100, 64) == {"compiled", "not compiled"}
    assert called(20, 3000) == {"compiled", "loaded from disk", "not compiled"}  # the longer side is rows


# Programs that leave types to their arguments


def test_each_type_that_was_called_is_shown() -> None:
    compiled = az.compile(lambda v: v + 1)
    for wanted in ("loops", "schedule", "llvm_ir", "assembly", "compile_seconds", "specialisations"):
        with pytest.raises(TypeError, match=r"leaves types to its arguments.*test_specialisations\.py"):
            getattr(compiled, wanted)
    compiled(np.ones(100))
    assert compiled.loops.count("->") == 1 and "for " not in compiled.loops.splitlines()[0]
    compiled(np.ones(100, np.float32))
    assert [line for line in compiled.loops.splitlines() if line.startswith("#")] == [
        "# for f64[v_0]",
        "# for f32[v_0]",
    ]
    assert [line for line in compiled.llvm_ir.splitlines() if line.startswith("; for ")] == [
        "; for f64[v_0]",
        "; for f32[v_0]",
    ]
    assert [each.condition for each in compiled.specialisations] == ["(f64[v_0])", "(f32[v_0])"]
    assert compiled.compile_seconds > 0 and "define" in compiled.llvm_ir and compiled.assembly


def test_small_sizes_are_constants_until_they_differ() -> None:
    compiled = az.compile(lambda points, t: az.sum(az.map(lambda p: az.sum(az.sin(p * t)), points)))
    generator = np.random.default_rng(1)

    def run(n: int, d: int) -> list[str]:
        points, t = generator.normal(size=(n, d)), generator.normal(size=d)
        assert np.isclose(compiled(points, t), np.sin(points * t).sum(), rtol=1e-13)
        return list(dict.fromkeys([each.condition for each in compiled.specialisations]))

    first = "points_0 = 5 and points_1 = 3"
    assert run(5, 3)[0].startswith(first)
    with_names = run(1000, 3)
    assert len(with_names) == 2 and with_names[1].startswith("points_1 = 3")
    assert run(5, 3) == run(17, 3) == with_names  # no code of their own
    assert run(9, 4)[-1] == "points_1 = t_0" and len(run(1000, 16)) == 3


def test_sizes_that_were_equal_in_a_branch_are_not_later() -> None:
    """The first call makes code for equal sizes; where the branch is not taken they may differ, to either side."""
    compiled = az.compile(lambda b, x, y: az.cond(b, lambda: az.sum(x * y), lambda: az.sum(x) - 2 * az.sum(y)))
    x = np.linspace(1.0, 2.0, 40)
    np.testing.assert_allclose(compiled(True, x, x), x @ x, rtol=1e-14)
    assert "=" in compiled.specialisations[0].condition
    for n in (23, 99, 40):
        y = np.linspace(-1.0, 3.0, n)
        np.testing.assert_allclose(compiled(False, x, y), x.sum() - 2 * y.sum(), rtol=1e-13)


def test_empty_and_larger_axes_are_no_constants() -> None:
    compiled = az.compile(lambda v: v + 1)
    assert compiled(np.ones(0)).shape == (0,) and compiled(np.ones(17)).tolist() == [2.0] * 17
    assert [each.condition for each in compiled.specialisations] == ["all sizes"]


def test_failures_of_constants_are_those_of_names() -> None:
    """Whether the first call compiles for constants or not: what is wrong for these sizes says so when it runs."""
    third = az.compile(lambda v: v[3])
    with pytest.raises(IndexError, match=r"index 3 is out of range for axis 0 of v.*whose size is 2"):
        third(np.ones(2))
    assert third(np.arange(5.0)) == 3.0
    both = az.compile(lambda a, b: a + b)
    with pytest.raises(ValueError, match=r"2.*3|3.*2"):
        both(np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match=r"1.*3|3.*1"):
        both(np.ones(1), np.ones(3))
    assert both(np.ones(3), np.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_derivatives_have_constants_too() -> None:
    gradient = az.compile(az.grad(lambda x, w: az.sum(az.tanh(x @ w)), argnums=1))
    x, w = np.random.default_rng(2).normal(size=(50, 3)), np.ones((3, 4))
    expected = x.T @ (1 - np.tanh(x @ w) ** 2)
    assert np.allclose(gradient(x, w), expected)
    assert all("w_1 = 4" in each.condition for each in gradient.specialisations)
    annotated = az.compile(
        az.grad(az.program(lambda x, w: az.sum(az.tanh(x @ w))), argnums=1).at(
            az.Array[az.f64, "n 3"], az.Array[az.f64, "3 4"]
        )
    )
    assert annotated(x, w).tobytes() == gradient(x, w).tobytes()


def test_codes_with_constants_are_kept_on_disk(cache: None) -> None:
    def squares(v: Any) -> Any:
        return az.sum(v * v)

    for wanted in ("compiled", "loaded from disk"):
        compiled = az.compile(az.program(squares))
        assert compiled(np.array([3.0, 4.0])) == 25.0 and compiled(np.arange(100.0)) == 328350.0
        assert [(each.condition, each.state) for each in compiled.specialisations] == [
            ("v_0 = 2", wanted),
            *[(each.condition, each.state) for each in compiled.specialisations[1:]],
        ]
        assert compiled.specialisations[1].condition == "all sizes" and compiled.specialisations[1].state == wanted


def test_kernels_have_constants_too(opencl: Any) -> None:
    compiled = az.compile(lambda v: az.sum(v * v), backend="opencl", device=opencl)
    assert compiled(np.array([3.0, 4.0])) == 25.0 and compiled(np.arange(100.0)) == 328350.0
    assert [each.condition for each in compiled.specialisations] == ["v_0 = 2", "all sizes"]
    assert set(states(compiled)) == {"compiled"}
    compiled.warm()
