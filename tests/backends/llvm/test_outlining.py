"""Long blocks are compiled in pieces (``backends/llvm/outlining.py``): wherever one is cut, the bits are the same."""

from typing import Any

import numpy as np
import pytest
from programs import CASES, Case
from programs.case import sampled
from test_compile import assert_same

import adze as az
from adze.backends.llvm import outlining as regions

SELECTED = [case for k, case in enumerate(CASES) if k % 5 == 0 or "sort" in case.name or "permute" in case.name]


@pytest.mark.unguarded
@sampled(SELECTED)
def test_pieces_of_a_few_statements_compute_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [az.compile(case.program, threads=2)(*arguments) for arguments in case.arguments]
    monkeypatch.setattr(regions, "_LONG", 1)
    monkeypatch.setattr(regions, "_PIECE", 4)
    cut = az.compile(az.program(case.program.function), threads=2)  # another program: code is kept with the old one
    for arguments, expected in zip(case.arguments, wanted, strict=True):
        assert_same(cut(*arguments), expected, exact=True)


@pytest.mark.unguarded
def test_extents_that_a_piece_binds_itself() -> None:
    """A sort inside a long gradient: its buffers are as long as a name says that stands in the same piece."""

    def part(x: az.Array[az.f64, "n"]) -> Any:
        def step(i: Any, y: Any) -> Any:
            return az.permute(az.maximum, az.zeros(1), lambda j: az.where(j < 1, 0, -1), x[: x.shape[0] // 2]) + y

        return az.fori_loop(0, 3, step, az.zeros(1))[0]

    gradient = az.grad(az.program(part))
    compiled = az.compile(gradient)
    for n in (4, 34, 60, 64):
        x = np.random.default_rng(n).random(n)
        assert_same(compiled(x), az.evaluate(gradient)(x), exact=True)
