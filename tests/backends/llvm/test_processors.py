"""Code for a level of processors: no more than what all of that level have, and a key of its own on disk."""

import re
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.backends.llvm import host
from adze.backends.llvm.control import X86
from adze.backends.llvm.stored import entry_of
from adze.core.program import instance_of

pytestmark = pytest.mark.skipif(not X86, reason="levels are of x86-64")

Vector = az.Array[az.f64, "n"]


@az.program
def likelihood(x: Vector, c: az.Array[az.f64, "k"]) -> az.f64:
    return az.sum(az.map(lambda p: az.logsumexp(-0.5 * (p - c) ** 2), x))


X, C = np.random.default_rng(0).normal(size=1003), np.array([-1.0, 0.3, 2.0])


def present(cpu: str) -> Any:
    return pytest.param(cpu, marks=pytest.mark.skipif(bool(host.lacking(cpu)), reason=f"no {cpu}"))


@pytest.mark.parametrize("cpu", list(map(present, host.LEVELS)))
def test_levels_compile_and_use_no_more_than_they_have(cpu: str) -> None:
    compiled = az.compile(az.value_and_grad(likelihood), cpu=cpu)
    wanted = az.evaluate(az.value_and_grad(likelihood))(X, C)
    for found, expected in zip(compiled(X, C), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    code = compiled.assembly
    assert ("%ymm" in code or "%zmm" in code) == ("avx" in host.LEVELS[cpu])
    assert bool(re.search(r"\bvfn?m(add|sub)", code)) == ("fma" in host.LEVELS[cpu])
    assert ("%zmm" not in code) or "avx512f" in host.LEVELS[cpu]


def test_each_level_compiles_to_an_entry_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path))
    target = host.host_target()  # the same for all, as of processors that differ in nothing a target has
    keys = [entry_of(instance_of(likelihood), target, True, [], cpu) for cpu in (None, *host.LEVELS)]
    assert len({each.key for each in keys if each is not None}) == 1 + len(host.LEVELS)


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"cpu= is one of 'x86-64', 'x86-64-v2', .*, not 'pentium'"):
        az.compile(likelihood, cpu="pentium")
    with pytest.raises(ValueError, match='cpu= is for backend="llvm" and backend="dask"'):
        az.compile(likelihood, backend="opencl", device=0, cpu="x86-64")
    monkeypatch.setattr(host, "_features", lambda: frozenset(host.LEVELS["x86-64-v2"]))
    with pytest.raises(ValueError, match=r"this processor has no avx, avx2, .*, which cpu='x86-64-v3' asks for"):
        az.compile(likelihood, cpu="x86-64-v3")
