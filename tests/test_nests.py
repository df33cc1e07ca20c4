"""Nests: what lowering leaves without an order means the program, and its points need nothing of each other."""

from dataclasses import replace
from typing import Any

import numpy as np
import plain_loops
import pytest
from programs import CASES, Case, sampled
from test_compile import assert_same
from test_grids import GROUPS

import adze as az
from adze.backends import ir

VECTORS = replace(GROUPS, register_bytes=32, group=0, shared_bytes=0, threads=1, atomics=False)


def of(program: Any, *arguments: Any, nests: bool = True) -> ir.Function:
    return plain_loops.loops_of(program, VECTORS, arguments, nests=nests)


@sampled(CASES)
@pytest.mark.parametrize("target", [VECTORS, GROUPS], ids=["vectors", "groups"])
def test_nests_run_point_by_point_give_the_values_of_the_program(case: Case, target: Any) -> None:
    """The interpreter of loops also finds points that touch what another one writes."""
    for arguments in case.arguments[:1]:
        found = plain_loops.lowered(case.program, target, arguments, nests=True)
        assert_same(found, az.evaluate(case.program)(*arguments))


@pytest.mark.parametrize("case", CASES[1::9], ids=lambda case: case.name)
def test_nests_keep_the_rules_of_loops(case: Case) -> None:
    ir.check(of(case.program, *case.arguments[0]), nests=True)


def test_loops_have_no_nests_left() -> None:
    x = np.ones((3, 4))
    double = az.program(lambda x: az.map(lambda row: row * az.sum(row), x))
    assert ir.contains(of(double, x).body, ir.Nest)
    assert not ir.contains(of(double, x, nests=False).body, ir.Nest)
    with pytest.raises(ir.InvalidLoops, match="a nest has no loops yet, in: nest i"):
        ir.check(of(double, x))


def test_nests_are_printed() -> None:
    @az.program
    def outer(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "m"]) -> az.Array[az.f64, "n m"]:
        return az.generate((x.shape[0], y.shape[0]), lambda i, j: x[i] * y[j])

    text = """\
outer(m, n; x1: f64[n], y2: f64[m]) -> result3: f64[n, m]
  nest i4 < n, j6 < m
    let t5 = x1[i4]
    let t7 = y2[j6]
    let t8 = t5 * t7
    result3[i4, j6] = t8"""
    assert az.compile(outer).nests == text
    assert az.compile(outer, backend="opencl").nests == text


def test_an_array_that_is_handed_out_has_its_axes_in_order() -> None:
    """Lanes along the first axis would be faster, and another layout then; the caller wants rows."""

    @az.program
    def turned(x: az.Array[az.f64, "n m"]) -> Any:
        few = az.filter(lambda v: v > 0.5, x[0])
        return az.generate((x.shape[1], az.size(few)), lambda j, i: x[i, j] + 1)

    x = np.linspace(0.2, 1.4, 63).reshape(9, 7)
    compiled = az.compile(turned)
    np.testing.assert_array_equal(compiled(x), x[: (x[0] > 0.5).sum()].T + 1)
    assert "temporary returned" not in compiled.loops
