"""Rules before the scheduler, each switched off: the program is another one, and means the same."""

from typing import Any

import numpy as np
import pytest
from agreement import leaves
from load import ROOT

import adze as az
from adze.interpreters.simplify import switches

pytestmark = pytest.mark.unguarded

Vector, Matrix = az.Array[az.f64, "n"], az.Array[az.f64, "m n"]


def normalised(x: Vector) -> Any:
    e = az.exp(x - 1.0)
    return az.sum(e * x)


def unswitched(x: Vector, c: az.f64) -> Any:
    return az.map(lambda v: az.cond(c > 0.0, lambda: v * az.sin(c), lambda: v), x)


def layer(w: Matrix, x: Vector) -> Any:
    return az.tanh(w @ x)


def chosen(x: Vector, k: az.i64) -> Any:
    return az.sum(az.generate(x.shape[0], lambda i: az.where(i == k, x[i], 0.0)))


def few(x: Vector) -> Any:
    return az.sum(az.generate(3, lambda i: az.where(i < 1, x[0], x[0] * i)))


def curve(p: az.Array[az.f64, 3], x: Vector) -> Any:  # type: ignore[valid-type]
    return az.map(lambda v: p[0] * az.exp(p[1] * v) + p[2], x)


def forward(f: Any) -> az.Program:
    return az.jacobian(az.program(f), 0, "forward")


X = np.linspace(0.1, 0.9, 4)
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "fuse_arrays": (lambda: az.program(normalised), (X,)),
    "unswitch": (lambda: az.program(unswitched), (X, 0.5)),
    "expand_scalars": (lambda: forward(layer), (np.outer(X[:3], X), X)),
    "single_terms": (lambda: az.program(chosen), (X, 2)),
    "unroll_few": (lambda: az.program(few), (X,)),
    "side_by_side": (lambda: forward(curve), (X[:3], X)),
}


def test_every_rule_has_a_program_and_a_line_in_the_docs() -> None:
    text = (ROOT / "docs" / "compilation.md").read_text(encoding="utf-8")
    assert PROGRAMS.keys() == switches.RULES.keys()
    assert all(f"| `{name}` |" in text for name in switches.RULES)


@pytest.mark.parametrize("name", switches.RULES)
def test_without_a_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, given = PROGRAMS[name]
    texts, results = [], []
    for off in (frozenset[str](), frozenset({name})):
        monkeypatch.setattr(switches, "without", lambda off=off: off)
        program = make()
        texts.append(az.pretty(program, style="loops"))
        results.append(leaves(az.compile(program)(*given)))
    assert texts[0] != texts[1]
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)


def test_a_rule_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADZE_WITHOUT", "unswitch, unrol")
    switches.without.cache_clear()
    with pytest.raises(ValueError, match="ADZE_WITHOUT knows no 'unrol'; it takes fuse_arrays, unswitch"):
        switches.without()
    monkeypatch.setenv("ADZE_WITHOUT", "unswitch, unroll_few")
    assert not switches.is_on("unswitch") and switches.is_on("single_terms")
    monkeypatch.undo()
    switches.without.cache_clear()
